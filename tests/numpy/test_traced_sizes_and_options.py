"""Arguments of weft.numpy that are traced, out of bounds or options of a mode, compared with NumPy."""

from __future__ import annotations

import array as python_array

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.util.config import Override

A = np.arange(12, dtype=np.float32).reshape(3, 4)
V = np.array([0.5, 2.0, -1.0, 4.0, 3.0], np.float32)


@pytest.mark.parametrize("position", [0, 2, -1, 4])
@pytest.mark.parametrize("values", [7.0, np.array([7.0, 8.0], np.float32)])
def test_insert_at_a_traced_position(position, values):
    got = weft.jit(lambda x, i, v: wnp.insert(x, i, v))(V, position, values)
    np.testing.assert_array_equal(got, np.insert(V, position, values))


def test_insert_rows_at_a_traced_position():
    got = weft.jit(lambda x, i, v: wnp.insert(x, i, v, axis=1))(A, 2, np.float32(9))
    np.testing.assert_array_equal(got, np.insert(A, 2, 9, axis=1))


@pytest.mark.parametrize("positions", [1, -2, np.array([0, 3]), np.array([-1, 1])])
def test_delete_at_traced_positions(positions):
    delete = weft.jit(lambda x, i: wnp.delete(x, i, assume_unique_indices=True))
    np.testing.assert_array_equal(delete(V, positions), np.delete(V, positions))


def test_delete_of_traced_positions_needs_that_they_differ():
    with pytest.raises(weft.errors.TracerArrayConversionError):
        weft.jit(wnp.delete)(V, np.array([0, 1]))


@pytest.mark.parametrize("k", [-4, -1, 0, 2, 9])
def test_eye_of_a_traced_diagonal(k):
    np.testing.assert_array_equal(weft.jit(lambda k: wnp.eye(3, 5, k))(k), np.eye(3, 5, k))


def test_unravel_index_in_a_traced_shape():
    got = weft.jit(lambda i, m, n: wnp.unravel_index(i, (m, n)))(np.array([0, 5, 11, 99, -1]), 3, 4)
    np.testing.assert_array_equal(got, np.unravel_index([0, 5, 11, 11, 11], (3, 4)))


@pytest.mark.parametrize("mode", ["wrap", "clip"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_ravel_multi_index(mode, order):
    positions = np.array([[1, 2, 5], [0, 3, -1]])
    expected = np.ravel_multi_index(positions, (3, 4), mode, order)
    np.testing.assert_array_equal(wnp.ravel_multi_index(positions, (3, 4), mode, order), expected)


def test_ravel_multi_index_keeps_the_dtype_of_positions():
    positions = np.array([0, 1], np.int8)
    assert wnp.ravel_multi_index((positions, positions), (2, 3), mode="ignore").dtype == np.int8
    assert wnp.ravel_multi_index((positions, positions), (2, 3), dtype=np.int16).dtype == np.int16


@pytest.mark.parametrize(
    "call",
    [
        lambda: wnp.ravel_multi_index((np.array([3]),), (3,)),
        lambda: wnp.ravel_multi_index((np.array([0]),), (3,), "nearest"),
        lambda: wnp.ravel_multi_index((np.array([0]),), (3, 4)),
        lambda: wnp.ravel_multi_index((np.array([0]),), (3,), order="K"),
        lambda: wnp.choose(np.array([0, 3]), [V[:2], V[1:3]]),
        lambda: wnp.diagonal(V),
        lambda: wnp.trace(A, axis1=1, axis2=-1),
        lambda: wnp.interp(1.0, V, V, left="nearest"),
        lambda: wnp.arange(1 + 2j),
        lambda: wnp.pad(V, 1, "edge", constant_values=1),
        lambda: wnp.sum(A, where=np.ones((3, 4), int)),
        lambda: wnp.sum(A, initial=np.zeros(3)),
        lambda: wnp.sum(A, axis=(0, 0)),
    ],
)
def test_what_has_no_meaning_is_refused(call):
    with pytest.raises(ValueError, match=r".{20}"):
        call()


def test_unknown_padding_modes_and_swapped_arguments():
    with pytest.raises(NotImplementedError, match="'foo'"):
        wnp.pad(V, 1, "foo")
    with pytest.raises(TypeError, match=r"\(2, 3\)"):
        wnp.zeros(2, 3)
    with pytest.raises(weft.errors.ConcretizationTypeError, match="argument 'stop'"):
        weft.jit(wnp.arange)(3)


def test_pad_by_a_function():
    def numpy_border(vector, width, dim, kwargs):
        vector[: width[0]] = kwargs["value"]
        if width[1]:
            vector[-width[1] :] = dim

    def border(vector, width, dim, kwargs):
        vector = vector.at[: width[0]].set(kwargs["value"])
        return vector.at[-width[1] :].set(dim) if width[1] else vector

    widths = ((1, 2), (0, 1))
    np.testing.assert_array_equal(
        wnp.pad(A, widths, border, value=9), np.pad(A, widths, numpy_border, value=9)
    )


def test_interp_beyond_the_ends_along_the_outer_segments():
    x, xp, fp = (
        np.array([-1.0, 0.5, 5.0], np.float32),
        np.array([0.0, 1.0, 2.0], np.float32),
        np.array([1.0, 3.0, 4.0], np.float32),
    )
    np.testing.assert_allclose(wnp.interp(x, xp, fp, "extrapolate", "extrapolate"), [-1, 2, 7])


@pytest.mark.parametrize(
    "dx, axis",
    [(np.float32(0.5), 0), (V[:3], -1), (np.array([[1.0], [2.0], [3.0]], np.float32), 1)],
)
def test_trapezoid_with_several_steps(dx, axis):
    np.testing.assert_allclose(
        wnp.trapezoid(A, dx=dx, axis=axis), np.trapezoid(A, dx=dx, axis=axis), rtol=1e-6
    )


def test_positions_that_are_not_to_wrap():
    got = wnp.take_along_axis(V, np.array([-1, 1]), wrap_negative_indices=False, mode="clip")
    np.testing.assert_array_equal(got, V[[0, 1]])
    np.testing.assert_array_equal(
        wnp.take_along_axis(np.arange(200.0), np.array([-1, 5], np.int8)), [199, 5]
    )


def test_elements_and_their_bytes():
    assert 2.0 in wnp.asarray(V) and 9.0 not in wnp.asarray(V)
    with pytest.raises(ValueError, match="one-dimensional"):
        1.0 in wnp.asarray(A)  # noqa: B015
    for dtype in (np.uint16, np.int32, np.float32, np.complex64, np.int8):
        x = np.arange(1, 6).astype(dtype)
        np.testing.assert_array_equal(
            np.asarray(wnp.asarray(x).byteswap()).view(np.uint8), x.byteswap().view(np.uint8)
        )


def test_buffers_are_arrays():
    np.testing.assert_array_equal(wnp.asarray(python_array.array("f", [1, 2, 3])), [1, 2, 3])


@pytest.mark.parametrize("n", [-200, -150, 0, 128, 200])
def test_ldexp_of_zero_and_infinity(n):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5], np.float32)
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(wnp.ldexp(x, n), np.ldexp(x, n))


def test_derivatives_of_sinc_at_zero():
    f, expected = wnp.sinc, [1, 0, -(np.pi**2) / 3, 0, np.pi**4 / 5]
    for value in expected:
        np.testing.assert_allclose(f(0.0), value, rtol=1e-5, atol=1e-6)
        f = weft.grad(f)


def test_logaddexp_has_its_phase_between_minus_pi_and_pi():
    x = np.array([1 + 3j, -2 + 3.1j, 0.5 - 3j], np.complex64)
    got = np.asarray(wnp.logaddexp(x, x + np.complex64(0.25j)))
    assert (np.abs(got.imag) <= np.pi + 1e-6).all()
    np.testing.assert_allclose(np.exp(got), np.exp(x) + np.exp(x + 0.25j), rtol=1e-4)


def test_piecewise_traces_its_functions_once():
    calls = []
    x = wnp.arange(5.0)

    def double(x):
        calls.append(x)
        return 2 * x

    for _ in range(3):
        np.testing.assert_array_equal(
            wnp.piecewise(x, [x < 2, x > 3], [double, -1.0, 5.0]), [0, 2, 5, 5, -1]
        )
    assert len(calls) == 1


def test_histograms_when_dtypes_do_not_promote():
    with Override(numpy_dtype_promotion="strict"):
        counts, edges = wnp.histogram(V, np.array([-1, 0, 3]), weights=np.abs(V))
        quantiles = wnp.quantile(V.astype(np.float16), np.array([0.25, 0.5], np.float32))
    np.testing.assert_allclose(counts, np.histogram(V, [-1, 0, 3], weights=np.abs(V))[0])
    assert edges.dtype == np.float32 and quantiles.dtype == np.float16
    np.testing.assert_allclose(quantiles, np.quantile(V, [0.25, 0.5]))


def test_histogram2d_with_edges_of_different_lengths():
    edges = [np.array([0, 1, 3, 5]), np.array([0, 2, 3, 4, 6])]
    x, y = np.array([0, 1, 2, 4]), np.array([1, 2, 3, 5])
    np.testing.assert_array_equal(wnp.histogram2d(x, y, edges)[0], np.histogram2d(x, y, edges)[0])


def test_static_indices_can_be_checked():
    x = wnp.zeros((2, 3))
    with Override(check_static_indices=True):
        assert x[1, -3] == 0
        for read in (lambda: x[2], lambda: weft.jit(lambda x: x[:, 4])(x), lambda: x.at[-3].get()):
            with pytest.raises(IndexError, match="out of bounds for axis"):
                read()
    assert x[7, 0] == 0


def test_masks_without_elements_choose_none():
    assert wnp.asarray(A)[np.empty((3, 0), bool)].shape == A[np.empty((3, 0), bool)].shape


def test_numbers_that_fit_the_dtype_updated():
    assert int(wnp.zeros(1, np.uint32).at[0].set(2**32 - 1)[0]) == 2**32 - 1


@pytest.mark.parametrize("ddof", [2, 3])
def test_variances_without_degrees_of_freedom_are_nan(ddof):
    assert np.isnan(wnp.var(V[:2], ddof=ddof)) and np.isnan(
        weft.jit(lambda x, m: wnp.std(x, ddof=ddof, where=m))(V[:2], np.ones(2, bool))
    )


def test_sums_of_16_bit_floats_take_32_bits():
    x = np.full(5000, 1, np.float16)
    primitives = lambda f: [e.primitive.name for e in weft.make_jaxpr(f)(x).eqns]
    assert primitives(wnp.sum) == ["convert_element_type", "reduce_sum", "convert_element_type"]
    assert float(wnp.sum(x)) == 5000 and float(wnp.mean(x)) == 1
    assert primitives(lambda x: wnp.sum(x, dtype=np.float16)) == ["reduce_sum"]


def test_vectorize_passes_none_and_counts_results():
    add = wnp.vectorize(lambda x, y: x if y is None else x + y)
    np.testing.assert_array_equal(add(V, None), V)
    with pytest.raises(TypeError, match="wrong number of output arguments"):
        wnp.vectorize(lambda *xs: xs, signature="(),()->(),(),()")(1.0, 2.0)


def test_argsort_bincount_and_trim_zeros_take_more():
    assert wnp.argsort(V, dtype=np.int8).dtype == np.int8
    np.testing.assert_array_equal(wnp.bincount(np.array([True, False, True])), [1, 2])
    assert wnp.trim_zeros(np.float32(0)).shape == ()


@pytest.mark.parametrize(
    "excluded, error, says",
    [
        ({1.5}, TypeError, "numbers of arguments or their names"),
        ([0, None], TypeError, "numbers of arguments"),
        ({-1}, ValueError, r"excluded=\{-1\} contains negative numbers"),
        (["x", -2], ValueError, "negative"),
    ],
    ids=str,
)
def test_what_vectorize_cannot_exclude(excluded, error, says):
    with pytest.raises(error, match=says):
        wnp.vectorize(lambda x: x, excluded=excluded)


@pytest.mark.parametrize(
    "signature",
    ["(n)", "(n)->", "->()", "(n?)->()", "(n),->()", "()->(),", "(n->()", "n->()", "(n)->(m)->()"],
)
def test_signatures_that_say_nothing(signature):
    with pytest.raises(ValueError, match="not a valid gufunc signature"):
        wnp.vectorize(lambda x: x, signature=signature)


@pytest.mark.parametrize(
    "f, signature, error, says",
    [
        (wnp.dot, "(n,m),(m,k)->(n,n)", ValueError, "inconsistent size for core dimension 'n'"),
        (
            wnp.dot,
            "(n,m),(m,k)->(n)",
            ValueError,
            r"output shape \(2, 2\) does not match core dimensions \('n',\)",
        ),
        (wnp.dot, "(n,m),(m,k)->(n,k),()", TypeError, "the output must be a tuple of 2"),
        (
            lambda x, y: [x, y],
            "(n,m),(m,k)->(n,m),(m,k)",
            TypeError,
            "the output must be a tuple of 2 arrays, got list",
        ),
        (
            lambda x, y: (x, y, y),
            "(n,m),(m,k)->(n,m),(m,k)",
            TypeError,
            "wrong number of output arguments: expected 2, got 3",
        ),
        (
            lambda x, y: wnp.ones((5, 4)),
            "(n,m),(m,k)->(p,p)",
            ValueError,
            "inconsistent size for core dimension 'p': 4 vs 5",
        ),
        (
            wnp.dot,
            "(n,m),(n,k)->()",
            ValueError,
            "inconsistent size for core dimension 'n': 3 vs 2",
        ),
    ],
)
@pytest.mark.parametrize("lead", [(), (4,)])
def test_vectorized_results_match_the_signature(f, signature, error, says, lead):
    k = 2 if "output shape" in says else 4
    x, y = (
        np.zeros((*lead, 2, 2 if k == 2 else 3), np.float32),
        np.zeros((2 if k == 2 else 3, k), np.float32),
    )
    with pytest.raises(error, match=says) as raised:
        wnp.vectorize(f, signature=signature)(x, y)
    assert f"vectorize({f.__name__}, signature={signature!r}): " in str(raised.value)


def test_vectorized_functions_take_lists_and_may_make_dims():
    assert wnp.vectorize(lambda x: x + 1, signature="()->()")([1, 2]).tolist() == [2, 3]
    assert wnp.vectorize(lambda x: wnp.ones(5), signature=" ( n ) -> ( k ) ")(
        np.zeros((2, 3), np.float32)
    ).shape == (2, 5)
    assert wnp.vectorize(lambda x, y: (3.0, x), signature="(),()->(),()")(
        np.zeros(2, np.float32), 1
    )[0].tolist() == [3.0, 3.0]
