"""Strict promotion settings apply to the user's operands, not to steps inside a public function;
aliases are functions with their own names; tolerances of check_grads by dtype."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.util.config import enable_x64
from weft.test_util import check_grads

X, ROW, HALF = np.ones((3, 4), np.float32), np.ones(4, np.float32), np.ones((3, 4), np.float16)


@pytest.fixture(autouse=True)
def strict():
    with weft.numpy_rank_promotion("raise"), weft.numpy_dtype_promotion("strict"):
        yield


@pytest.mark.parametrize(
    "call",
    [
        lambda: wnp.add(X, ROW),
        lambda: wnp.asarray(X) * ROW,
        lambda: wnp.maximum(X, ROW),
        lambda: weft.jit(lambda x: x - ROW)(X),
        lambda: weft.jvp(lambda x: x * ROW, (X,), (X,)),
    ],
)
def test_ranks_of_the_users_operands_must_agree(call):
    with pytest.raises(ValueError, match="require rank promotion"):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: wnp.add(X, HALF),
        lambda: wnp.asarray(X) * HALF,
        lambda: wnp.where(X > 0, X, HALF),
        lambda: weft.vmap(wnp.hypot)(X, HALF),
    ],
)
def test_dtypes_of_the_users_operands_must_agree(call):
    with pytest.raises(weft.numpy.TypePromotionError, match="strict"):
        call()


def test_steps_within_public_functions_promote_as_always():
    assert wnp.where(X > 0, X, ROW).shape == (3, 4)  # of any ranks, as in JAX
    assert weft.image.resize(X, (6, 6), "linear").shape == (6, 6)
    assert weft.nn.dot_product_attention(
        *[np.ones((1, 2, 2, 4), np.float32)] * 3, is_causal=True
    ).shape == (1, 2, 2, 4)
    assert (
        weft.nn.initializers.orthogonal()(weft.random.key(0), (3, 3), np.complex64).dtype
        == np.complex64
    )
    np.testing.assert_allclose(
        weft.grad(lambda x: weft.image.resize(x, (6, 6), "linear").sum())(X), 3 * X, rtol=1e-6
    )


@pytest.mark.parametrize(
    "alias, function",
    [("acos", "arccos"), ("absolute", "abs"), ("permute_dims", "transpose"), ("mod", "remainder")],
)
def test_aliases_bear_their_own_names(alias, function):
    assert getattr(wnp, alias).__name__ == alias and getattr(wnp, function).__name__ == function


def test_tolerances_of_gradients_by_dtype():
    wrong = weft.custom_jvp(wnp.sin)
    wrong.defjvp(
        lambda primals, tangents: (wnp.sin(*primals), 1.05 * wnp.cos(*primals) * tangents[0])
    )
    check_grads(wrong, (ROW,), 1, atol={np.float32: 0.1}, rtol={np.float32: 0.1, np.float64: 1e-9})
    with pytest.raises(AssertionError):
        check_grads(wrong, (ROW,), 1, atol={np.float64: 0.1}, rtol={np.float64: 0.1})


def test_numpys_wide_numbers_are_cut_and_pythons_do_not_fit():
    same = weft.jit(lambda x: x)
    for n in (2**31 + 99, -(2**31) - 101, 2**40 + 3):
        assert (
            int(same(np.int64(n)))
            == int(wnp.asarray(np.int64(n)))
            == int(np.int64(n).astype(np.int32))
        )
        with pytest.raises(OverflowError, match="too large to convert"):
            same(n)


def test_function_dtypes_are_independent_of_the_setting():
    grid = wnp.mgrid[0:1:3j, 0:2]
    assert grid.dtype == np.float32 and grid.shape == (2, 3, 2)
    result = wnp.take_along_axis(X, np.zeros((3, 2), np.int32), 1, mode="one_hot")
    assert result.dtype == np.float32 and result.shape == (3, 2)


def test_vectorized_functions_have_leading_dims_of_equal_number():
    add = wnp.vectorize(wnp.add, signature="(),()->()")
    with pytest.raises(
        ValueError, match=r"vectorize\(add, .*shapes \(3, 4\) \(4,\) require rank promotion"
    ):
        add(X, ROW)
    with (
        weft.numpy_rank_promotion("warn"),
        pytest.warns(UserWarning, match="require rank promotion") as warned,
    ):
        np.testing.assert_array_equal(add(X, ROW), X + ROW)
    assert warned[0].filename == __file__
    np.testing.assert_array_equal(add(X, np.float32(1)), X + 1)
    np.testing.assert_array_equal(
        wnp.vectorize(wnp.add, signature="(n),()->(n)")(X, X[:, 0]), X + X[:, :1]
    )


def test_stored_values_have_the_dtype_of_the_array():
    with pytest.raises(weft.numpy.TypePromotionError, match="strict"):
        wnp.zeros(3, int).at[0].set(np.int16(1))
    assert (
        wnp.zeros(3, np.int16).at[0].set(1).dtype == np.int16
        and wnp.zeros(3).at[:1].add(1).dtype == np.float32
    )


@pytest.mark.parametrize(
    "f, expected",
    [
        (lambda a, b: a + 1, [1, 2, 3]),
        (lambda a, b: 1 - a, [1, 0, -1]),
        (lambda a, b: b * 2.5, [2.5, 2.5]),
        (lambda a, b: b + 1, [2, 2]),
        (lambda a, b: a**2, [0, 1, 4]),
        (lambda a, b: a > 1, [False, False, True]),
        (lambda a, b: wnp.maximum(a, 1), [1, 1, 2]),
        (lambda a, b: wnp.where(a > 1, a, 0), [0, 0, 2]),
        (lambda a, b: weft.grad(lambda x: (x * 2).sum())(b), [2, 2]),
    ],
)
@pytest.mark.parametrize("jit", [False, True])
def test_64_bit_arrays_with_numbers_when_x64_is_off(f, expected, jit):
    with enable_x64(True):
        a, b = wnp.arange(3), wnp.ones(2)
    assert (a.dtype, b.dtype) == (np.int64, np.float64)
    assert (weft.jit(f) if jit else f)(a, b).tolist() == expected


WIDE = 2**40 + 1


@pytest.mark.parametrize(
    "f, expected",
    [
        (lambda x: x.at[0].set(7), [7, WIDE]),
        (lambda x: x.at[0].set(WIDE + 1), [WIDE + 1, WIDE]),
        (lambda x: x.at[0].add(1), [WIDE + 1, WIDE]),
        (lambda x: x.at[0].subtract(1), [WIDE - 1, WIDE]),
        (lambda x: x.at[wnp.array([0, 0])].multiply(2), [4 * WIDE, WIDE]),
        (lambda x: x.at[0].min(3), [3, WIDE]),
        (lambda x: x.at[0].max(x[1]), [WIDE, WIDE]),
        (lambda x: x.at[:1].apply(lambda v: v + v), [2 * WIDE, WIDE]),
        (wnp.zeros_like, [0, 0]),
        (lambda x: wnp.full_like(x, 3), [3, 3]),
        (lambda x: wnp.stack([x[0], x[1]]), [WIDE, WIDE]),
        (lambda x: wnp.concatenate([x[:1], x[1:]]), [WIDE, WIDE]),
        (lambda x: wnp.where(x > 0, x, x), [WIDE, WIDE]),
    ],
)
@pytest.mark.parametrize("dtype", ["int64", "float64"])
@pytest.mark.parametrize("jit", [False, True])
def test_64_bit_arrays_keep_their_dtype_when_x64_is_off(f, expected, dtype, jit):
    with enable_x64(True):
        x = wnp.full(2, WIDE, dtype)
    out = (weft.jit(f) if jit else f)(x)
    assert out.dtype == dtype and np.asarray(out).tolist() == expected


def test_common_dtype_of_64_bit_arrays_when_x64_is_off():
    with enable_x64(True):
        i, f = wnp.arange(2), wnp.ones(2)
    assert wnp.result_type(i, i) == i.dtype == np.int64 and wnp.result_type(f) == np.float64
    assert wnp.result_type(i, 1) == wnp.result_type(i.dtype) == np.int32


WEAK = wnp.where(np.ones(3, bool), 1.0, 2.0)


@pytest.mark.parametrize(
    "product",
    [
        wnp.dot,
        wnp.vdot,
        wnp.inner,
        wnp.vecdot,
        wnp.matmul,
        lambda a, b: wnp.tensordot(a, b, 1),
        lambda a, b: wnp.einsum("i,i->", a, b),
        lambda a, b: wnp.einsum("i,i,i->", a, b, a),
    ],
)
def test_products_are_weakly_typed_if_all_factors_are(product):
    for f in (product, weft.jit(product)):
        weak, mixed = f(WEAK, WEAK), f(WEAK, np.ones(3, np.float32))
        assert weak.weak_type and not mixed.weak_type and float(weak) == float(mixed) == 3
        assert (weak * wnp.ones((), "bfloat16")).dtype == "bfloat16" and f(
            WEAK, wnp.ones(3, "bfloat16")
        ).dtype == "bfloat16"
    assert not wnp.dot(WEAK, WEAK, preferred_element_type=np.float32).weak_type
    assert not wnp.einsum("i,i->", WEAK, WEAK, preferred_element_type=np.float32).weak_type


@pytest.mark.parametrize(
    "update",
    [
        lambda x: x.at[0].set(3.0),
        lambda x: x.at[0].set(np.float32(3)),
        lambda x: x.at[0].add(2),
        lambda x: x.at[:1].multiply(3.0),
        lambda x: x.at[np.array([0])].max(3),
        lambda x: x.at[0].apply(lambda v: v + 2),
        lambda x: x.at[0].divide(1 / 3),
    ],
)
def test_updates_keep_weak_types(update):
    for f in (update, weft.jit(update)):
        out, strong = f(WEAK), f(wnp.ones(3))
        assert (
            out.weak_type and not strong.weak_type and out.tolist() == strong.tolist() == [3, 1, 1]
        )
