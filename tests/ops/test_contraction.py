"""dot_general: every rule, against einsum."""

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.harness.rule_checks import check_all, check_factors, close
from weft._engine.core.trace import typeof
from weft._engine.ops import contraction
from weft._engine.ops.contraction import Precision, canonical_precision, dot_general, dot_general_p
from weft._engine.util.config import enable_x64
from weft._engine.util.errors import ShapeError

rng = np.random.default_rng(0)
LETTERS = "abcdefghij"

# lhs shape, rhs shape, ((lhs contract, rhs contract), (lhs batch, rhs batch))
CASES = [
    ((3, 4), (4, 5), (((1,), (0,)), ((), ()))),
    ((3, 4), (5, 4), (((1,), (1,)), ((), ()))),
    ((4,), (4,), (((0,), (0,)), ((), ()))),
    ((3,), (2,), (((), ()), ((), ()))),
    ((), (3, 2), (((), ()), ((), ()))),
    ((2, 3, 4), (2, 4, 5), (((2,), (1,)), ((0,), (0,)))),
    ((3, 2, 4), (4, 5, 2), (((2,), (0,)), ((1,), (2,)))),
    ((2, 3, 4, 5), (5, 3, 6, 4), (((2, 3), (3, 0)), ((1,), (1,)))),
    ((2, 3, 4, 2), (2, 4, 2, 3), (((2,), (1,)), ((3, 1), (0, 3)))),
    ((2, 0), (0, 3), (((1,), (0,)), ((), ()))),
    ((0, 4), (4, 3), (((1,), (0,)), ((), ()))),
]


@pytest.fixture(autouse=True)
def double_precision():
    with enable_x64(True):
        yield


def einsum(lhs, rhs, numbers):
    (lc, rc), (lb, rb) = numbers
    left = list(LETTERS[: lhs.ndim])
    right = list(LETTERS[lhs.ndim : lhs.ndim + rhs.ndim])
    for i, j in zip((*lc, *lb), (*rc, *rb)):
        right[j] = left[i]
    out = [left[i] for i in lb] + [x for i, x in enumerate(left) if i not in (*lc, *lb)]
    out += [x for i, x in enumerate(right) if i not in (*rc, *rb)]
    return np.einsum(f"{''.join(left)},{''.join(right)}->{''.join(out)}", lhs, rhs)


@pytest.mark.parametrize(("left", "right", "numbers"), CASES)
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_dot_general(left, right, numbers, dtype):
    x, y = rng.standard_normal(left).astype(dtype), rng.standard_normal(right).astype(dtype)
    if dtype is np.complex128:
        x, y = x + 1j * rng.standard_normal(left), y - 1j * rng.standard_normal(right)
    params = {"dimension_numbers": numbers, "precision": None, "preferred_element_type": None}
    check_all(dot_general_p, [x, y], params, linear=[(0,), (1,)], lower=False)
    close(dot_general(x, y, numbers), einsum(x, y, numbers), 1e-12)


@pytest.mark.parametrize(
    "dtype", [np.int8, np.int32, np.uint8, np.bool_, np.float32, np.float16, ml_dtypes.bfloat16]
)
def test_dtypes(dtype):
    x, y = (
        rng.integers(0, 2 if dtype is np.bool_ else 9, (3, 4)).astype(dtype),
        rng.integers(0, 2, (4, 5)).astype(dtype),
    )
    out = dot_general(x, y, CASES[0][2])
    assert out.dtype == dtype == typeof(x).dtype
    want = x.astype(np.int64) @ y.astype(np.int64)
    close(
        out.astype(np.float64), (want != 0 if dtype is np.bool_ else want).astype(np.float64), 1e-6
    )
    check_factors(
        dot_general_p,
        [x, y],
        {"dimension_numbers": CASES[1 - 1][2], "precision": None, "preferred_element_type": None},
    ) if dtype is np.int32 else None


def test_halves_accumulate_in_float32_and_round_once():
    x = np.full((1, 4097), 1.0, ml_dtypes.bfloat16)
    out = dot_general(x, x, (((1,), (1,)), ((), ())))
    assert out.dtype == ml_dtypes.bfloat16 and float(out[0, 0]) == 4096.0
    wide = dot_general(x, x, (((1,), (1,)), ((), ())), preferred_element_type=np.float32)
    assert wide.dtype == np.float32 and wide[0, 0] == 4097.0


def test_preferred_element_type_transposes_to_operand_dtype():
    x = np.full((2, 300), 100, np.int8)
    out = dot_general(x, x, (((1,), (1,)), ((), ())), preferred_element_type=np.int32)
    assert out.dtype == np.int32 and out[0, 0] == 3_000_000
    from weft._engine.core.trace import UndefPrimal

    a = rng.standard_normal((3, 4)).astype(ml_dtypes.bfloat16)
    ct = rng.standard_normal((3, 5)).astype(np.float32)
    params = {
        "dimension_numbers": CASES[0][2],
        "precision": None,
        "preferred_element_type": np.dtype(np.float32),
    }
    b = UndefPrimal(typeof(np.zeros((4, 5), ml_dtypes.bfloat16)))
    _, ct_b = dot_general_p.transpose(ct, a, b, **params)
    assert ct_b.dtype == ml_dtypes.bfloat16 and ct_b.shape == (4, 5)
    close(ct_b, (a.astype(np.float32).T @ ct).astype(ml_dtypes.bfloat16), 1e-6)


def test_a_batch_of_one_operand_becomes_a_free_dim():
    from weft._engine.core.primitive import BatchAxis

    x, w = np.ones((7, 3, 4), np.float32), np.ones((4, 5), np.float32)
    params = {"dimension_numbers": CASES[0][2], "precision": None, "preferred_element_type": None}
    out, dim = dot_general_p.batch(BatchAxis(7), [x, w], [0, None], **params)
    assert out.shape == (7, 3, 5) and dim == 0
    out, dim = dot_general_p.batch(
        BatchAxis(7),
        [w.T, x],
        [None, 0],
        **dict(params, dimension_numbers=(((1,), (1,)), ((), ()))),
    )
    assert out.shape == (5, 7, 3) and dim == 1


def test_contraction_reduces_a_factor_and_is_bilinear():
    x, y = typeof(np.ones((3, 4), np.float32)), typeof(np.ones((4, 5), np.float32))
    rule = dot_general_p.factors(
        [x, y],
        [typeof(np.ones((3, 5), np.float32))],
        dimension_numbers=CASES[0][2],
        precision=None,
        preferred_element_type=None,
    )
    (k,) = rule.reduced
    assert (
        rule.ins[0][1] == rule.ins[1][0] == (k,)
        and rule.reduced[k] == "add"
        and rule.linear_ins == (0, 1)
    )


def test_functions():
    x, y = rng.standard_normal((3, 4)), rng.standard_normal(4)
    np.testing.assert_allclose(contraction.dot(x, y), x @ y)
    stack = rng.standard_normal((2, 4, 3))
    np.testing.assert_allclose(
        contraction.batch_matmul(stack, stack.transpose(0, 2, 1)), stack @ stack.transpose(0, 2, 1)
    )
    np.testing.assert_allclose(dot_general(x, 2.0, (((), ()), ((), ()))), 2 * x)


def test_precision_is_read_in_every_form():
    assert canonical_precision(None) is None
    assert canonical_precision("high") == (Precision.HIGH, Precision.HIGH)
    assert canonical_precision(("default", Precision.HIGHEST)) == (
        Precision.DEFAULT,
        Precision.HIGHEST,
    )
    with pytest.raises(ValueError, match="not understood"):
        canonical_precision("exactly")


@pytest.mark.parametrize(
    ("shapes", "numbers", "message"),
    [
        (
            ((3, 4), (5, 4)),
            (((1,), (0,)), ((), ())),
            r"contracted dims differ in size(.|\n)*rhs\.T",
        ),
        (((3, 4), (4, 5)), (((0,), (0,)), ((), ())), "contracted dims differ in size"),
        (((3, 4), (2, 4)), (((1,), (1,)), ((0,), (0,))), "batch dims differ in size"),
        (((3, 4), (4, 5)), (((1, 0), (0,)), ((), ())), "as many contracting"),
        (((3, 3), (3, 3)), (((0,), (0,)), ((0,), (1,))), "twice"),
        (((3, 3), (3, 3)), (((5,), (0,)), ((), ())), "does not have"),
    ],
)
def test_what_does_not_fit(shapes, numbers, message):
    with pytest.raises(ShapeError, match=message):
        dot_general_p.abstract(
            [typeof(np.zeros(s, np.float32)) for s in shapes],
            {"dimension_numbers": numbers, "precision": None, "preferred_element_type": None},
        )


def test_mixed_dtypes_need_a_preferred_type():
    with pytest.raises(TypeError, match="same dtypes"):
        dot_general_p.abstract(
            [typeof(np.zeros(3, np.float32)), typeof(np.zeros(3, np.int32))],
            {"dimension_numbers": CASES[2][2], "precision": None, "preferred_element_type": None},
        )


@pytest.mark.parametrize(
    "left, right, common",
    [
        ("int16", "float16", "float16"),
        ("uint16", "uint32", "uint32"),
        ("bool", "float32", "float32"),
        ("float32", "complex64", "complex64"),
    ],
)
def test_operands_of_two_dtypes_are_promoted(left, right, common):
    x, y = np.arange(6).reshape(2, 3).astype(left), np.arange(3).astype(right)
    out = contraction.dot(x, y)
    assert out.dtype == common
    np.testing.assert_array_equal(out, x.astype(common) @ y.astype(common))


def test_derivatives_keep_the_dtypes_of_operands():
    x, y = np.ones(3, np.float32), np.arange(3).astype("bfloat16")
    grads = weft.grad(lambda x, y: contraction.dot(x, y), argnums=(0, 1))(x, y)
    assert [g.dtype.name for g in grads] == ["float32", "bfloat16"]
    np.testing.assert_array_equal(grads[0], [0.0, 1.0, 2.0])


@pytest.mark.parametrize(
    "left, right",
    [
        ("float32", "bfloat16"),
        ("float16", "int16"),
        ("uint16", "uint32"),
        ("int32", "float32"),
        ("bool", "float32"),
        ("float32", "complex64"),
        ("int8", "int32"),
    ],
)
def test_operands_of_two_dtypes(left, right):
    """The program has one product of the original operands under every promotion setting; sums use
    the common dtype."""
    a, b = rng.integers(0, 2, (3, 4)).astype(left), rng.integers(0, 2, (4, 5)).astype(right)
    common = weft.numpy.promote_types(left, right)
    with weft.numpy_dtype_promotion("strict"):
        (eqn,) = weft.make_jaxpr(contraction.dot)(a, b).eqns
        got = weft.jit(contraction.dot)(a, b)
    assert eqn.primitive is dot_general_p and [v.aval.dtype for v in eqn.invars] == [
        a.dtype,
        b.dtype,
    ]
    assert got.dtype == common
    np.testing.assert_array_equal(np.asarray(got), np.asarray(a, common) @ np.asarray(b, common))
    with pytest.raises(weft.errors.TypePromotionError), weft.numpy_dtype_promotion("strict"):
        weft.numpy.dot(a, b)


def test_derivatives_of_operands_of_two_dtypes():
    a, b = (
        rng.normal(size=(3, 4)).astype(np.float32),
        weft.numpy.asarray(rng.normal(size=(4, 5)), "bfloat16"),
    )
    out, (da, db) = weft.value_and_grad(lambda a, b: (weft.numpy.matmul(a, b) ** 2).sum(), (0, 1))(
        a, b
    )
    wide = np.asarray(b, np.float32)
    assert out.dtype == np.float32 and (da.dtype, db.dtype) == (np.float32, ml_dtypes.bfloat16)
    np.testing.assert_allclose(da, 2 * (a @ wide) @ wide.T, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(db, np.float32), 2 * a.T @ (a @ wide), rtol=1e-2)
    batched = weft.vmap(weft.numpy.matmul)(np.stack([a, a]), weft.numpy.stack([b, b]))
    np.testing.assert_allclose(batched[1], a @ wide, rtol=1e-5)


def test_einsum_sums_in_the_common_dtype():
    """Indices of only one operand are summed after its conversion: 300 ones overflow 8 bits."""
    ones = np.ones((2, 300), np.int8)
    np.testing.assert_array_equal(
        weft.numpy.einsum("ij,i->i", ones, np.array([1, 2], np.int32)), [300, 600]
    )
    (eqn,) = weft.make_jaxpr(lambda x, y: weft.numpy.einsum("ij,ik->jk", x, y))(
        ones, np.ones((2, 3), np.float32)
    ).eqns
    assert eqn.primitive is dot_general_p


def test_options_of_dot_have_names():
    x = np.ones(3, np.float32)
    with pytest.raises(TypeError, match="2 positional arguments"):
        weft.lax.dot(x, x, Precision.DEFAULT)
    assert weft.lax.dot(x, x, precision=Precision.HIGHEST) == 3
