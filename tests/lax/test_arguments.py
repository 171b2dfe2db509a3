"""Arguments that lax refuses, and the error messages."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.util.config import Override, enable_x64
from weft._engine.util.errors import ShapeError

X = np.arange(6, dtype=np.float32).reshape(1, 2, 3)


@pytest.mark.parametrize("name", "add sub mul div rem max min eq ne lt le gt ge".split())
def test_python_numbers_of_two_kinds_are_refused(name):
    fun = getattr(lax, name)
    with pytest.raises(
        TypeError, match=f"{name}: requires arguments to have the same dtypes, got int32, float32"
    ):
        fun(3, 2.0)
    assert fun(3.0, 2.0).shape == fun(3, 2).shape == ()
    np.testing.assert_array_equal(
        fun(X, 2), fun(X, np.float32(2))
    )  # a number takes the dtype of the array operand
    np.testing.assert_array_equal(weft.jit(fun)(X, 2.0), fun(X, np.float32(2)))


def test_formulas_meet_numbers_of_several_kinds():
    assert float(lax.square(2.0)) == 4.0 and float(lax.pow(2.0, 3)) == 8.0
    np.testing.assert_allclose(weft.grad(lambda x: lax.square(x) * 3)(2.0), 12.0)
    assert float(lax.reduce(X, 0.0, lax.max, (0, 1, 2))) == 5.0


@pytest.mark.parametrize(
    "call, kind, message",
    [
        (lambda: lax.squeeze(X, (-4,)), ShapeError, "axis -4 is out of bounds"),
        (
            lambda: lax.squeeze(X, (0.0,)),
            TypeError,
            "'float' object cannot be interpreted as an integer",
        ),
        (lambda: lax.squeeze(X, (0, -3)), ShapeError, r"duplicate value in 'axes' \(0, -3\)"),
        (lambda: lax.reduce(X, 0.0, lax.add, (1, 1)), ShapeError, "duplicate value in 'axes'"),
        (lambda: lax.reduce_sum(X, (3,)), ShapeError, "out of bounds"),
        (lambda: lax.reshape(X, (1.5, 4)), TypeError, "of integer type, got the size 1.5"),
        (
            lambda: lax.broadcast_in_dim(X, (1, 2, "3"), (0, 1, 2)),
            TypeError,
            "of integer type, got the size '3'",
        ),
        (lambda: lax.broadcast_shapes((2, -1)), TypeError, "the size -1"),
        (lambda: lax.broadcast_shapes((2,), (1.0,)), TypeError, "of integer type"),
        (lambda: lax.broadcast_shapes((2,), (3,)), ShapeError, "Incompatible shapes"),
        (
            lambda: lax.argmin(np.ones((0, 2)), 0, np.int32),
            ShapeError,
            "require non-empty reduced dimension",
        ),
        (
            lambda: lax.reduce_window(X, 0.0, lax.add, (1, 0, 1)),
            TypeError,
            "window_dimensions must have every element be at least 1",
        ),
        (
            lambda: lax.reduce_window(X, 0.0, lax.add, (1, 1, 1), (1, 1, 0)),
            TypeError,
            "window_strides must have every element be",
        ),
        (
            lambda: lax.reduce_window(X, 0.0, lambda x, y: [x + y], (1, 1, 1)),
            ValueError,
            "must have the tree structure of the operands",
        ),
        (
            lambda: lax.reduce([X], [0.0], lambda x, y: (x[0] + y[0],), (0,)),
            ValueError,
            "must have the tree structure of the operands",
        ),
    ],
)
def test_refusals_name_the_argument(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


WIDE = {
    "argmax": lambda: lax.argmax(X, 0, np.int64),
    "argmin": lambda: lax.argmin(X, 0, np.int64),
    "bitcast_convert_type": lambda: lax.bitcast_convert_type(X[..., :2], np.float64),
    "broadcasted_iota": lambda: lax.broadcasted_iota("int64", (2, 3), 1),
    "conv_general_dilated": lambda: lax.conv(
        X[None], X[None], (1, 1), "VALID", preferred_element_type=np.float64
    ),
    "convert_element_type": lambda: lax.convert_element_type(X, np.complex128),
    "dot_general": lambda: lax.dot(X[0, 0], X[0, 0], preferred_element_type=np.float64),
    "full": lambda: lax.full_like(X, 1, np.float64),
    "mul": lambda: lax.mul(X, X, out_dtype=np.float64),
}


@pytest.mark.parametrize("name", WIDE)
def test_wide_dtypes_that_are_cut_are_told(name):
    with pytest.warns(
        UserWarning, match=f"^{name}: Explicitly requested dtype .* is not available and"
    ) as warned:
        out = WIDE[name]()
    assert [one.filename for one in warned] == [__file__] and out.dtype.name in (
        "int32",
        "float32",
        "complex64",
    )
    with (
        Override(explicit_x64_dtypes="error"),
        pytest.raises(ValueError, match="Explicitly requested dtype"),
    ):
        WIDE[name]()
    with enable_x64(True):
        assert WIDE[name]().dtype.name in ("int64", "float64", "complex128")


def test_pythons_types_are_cut_without_a_word():
    assert lax.full((2,), 1, float).dtype == lax.convert_element_type(X, float).dtype == np.float32
    assert (
        lax.iota(int, 3).dtype == np.int32
        and lax.convert_element_type(X, complex).dtype == np.complex64
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda x: lax.convert_element_type(x, np.float32),
        lambda x: lax.bitcast_convert_type(x, np.float32),
        lambda x: lax.pad(x, 0.0, [(0, 0, 0)]),
        lambda x: lax.slice(x, (0,), (3,)),
        lambda x: lax.concatenate([x], 0),
        lambda x: lax.reduce_precision(x, 8, 23),
        lambda x: lax.split(x, (3,))[0],
        lambda x: lax.broadcast_to_rank(x, 1),
    ],
)
def test_what_changes_nothing_makes_arrays_of_numpys(call):
    value = np.array([1.5, -2.0, 3.25])
    out = call(value)
    assert (
        isinstance(out, weft.Array) and out.dtype == np.float32 and out.tolist() == value.tolist()
    )
    again = wnp.asarray(value)
    assert call(again) is again


def test_sizes_that_are_traced_keep_their_own_error():
    with pytest.raises(weft.errors.TracerIntegerConversionError):
        weft.jit(lambda n: lax.reshape(X, (n,)))(6)
    with pytest.raises(
        weft.errors.ConcretizationTypeError,
        match=r"tobytes\(\) method was called on traced array with shape float32",
    ):
        weft.jit(lambda x: x.tobytes())(X)


def test_bounds_of_scatters():
    numbers = lax.ScatterDimensionNumbers((0,), (), (0,))
    indices = np.zeros((2, 1), np.int32)
    with pytest.raises(ShapeError, match="Bounds of the scatter dimensions"):
        lax.scatter(
            wnp.zeros(5), indices, wnp.ones((3, 4)), lax.ScatterDimensionNumbers((1,), (), (0,))
        )
    with pytest.raises(ShapeError, match="Bounds of the window dimensions"):
        lax.scatter(wnp.zeros(5), indices, wnp.ones((6, 2)), numbers)


def test_transforms_over_no_dims_and_groups_along_batch_dims():
    z = np.ones((2, 3), np.complex64)
    assert lax.fft(z, "FFT", ()) is z and weft.vmap(lambda x: lax.fft(x, "IFFT", ()))(z).shape == (
        2,
        3,
    )
    numbers = lax.RaggedDotDimensionNumbers((((3,), (2,)), ((0, 1), (0, 1))), (1,), ())
    lhs, rhs = np.ones((4, 3, 2, 5), np.float32), np.ones((4, 3, 5, 2), np.float32)
    assert lax.ragged_dot_general(lhs, rhs, np.ones((4, 2), np.int32), numbers).shape == (
        4,
        3,
        2,
        2,
    )
    with pytest.raises(ShapeError, match=r"group_sizes to have shape \(4, 2\), got \(3, 2\)"):
        lax.ragged_dot_general(lhs, rhs, np.ones((3, 2), np.int32), numbers)


def test_more_elements_than_indices_of_top_k():
    with pytest.raises(ValueError, match="int32 indices, which will overflow"):
        weft.eval_shape(lambda x: lax.top_k(x, 3), weft.ShapeDtypeStruct((2**31,), "float32"))
    values, _ = weft.eval_shape(
        lambda x: lax.top_k(x, 3), weft.ShapeDtypeStruct((2**31 - 1,), "float32")
    )
    assert values.shape == (3,)
