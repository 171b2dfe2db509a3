"""Experimental interfaces while 64-bit types are on: indices of several dtypes in Pallas kernels, and sums of sparse arrays."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.experimental import pallas as pl, sparse


@pytest.fixture(autouse=True)
def with_64_bits():
    with weft.enable_x64():
        yield


X = np.arange(12.0).reshape(3, 4)


def by_loop(x, out):
    def body(i, _):
        out[pl.ds(i, 1), :] = x[pl.ds(i, 1), :] * 2
        return 0

    lax.fori_loop(0, 3, body, 0)


def by_mixed_starts(x, out):
    def body(i, _):
        out[pl.ds(i, 1), pl.ds(lax.convert_element_type(i * 0, np.int32), 4)] = (
            x[pl.ds(lax.convert_element_type(i, np.uint8), 1), :] * 2
        )
        return 0

    lax.fori_loop(0, 3, body, 0)


def by_program(x, out):
    out[pl.ds(pl.program_id(0), 1), :] = x[pl.ds(pl.program_id(0), 1), pl.ds(wnp.int64(0), 4)] * 2


@pytest.mark.parametrize(
    ("kernel", "grid"), [(by_loop, ()), (by_mixed_starts, ()), (by_program, (3,))]
)
@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_windows_of_kernels_begin_at_any_integers(kernel, grid, interpret, dtype):
    x = X.astype(dtype)
    call = pl.pallas_call(
        kernel, out_shape=weft.ShapeDtypeStruct(x.shape, x.dtype), grid=grid, interpret=interpret
    )
    np.testing.assert_array_equal(call(x), x * 2)
    np.testing.assert_array_equal(weft.jit(call)(x), x * 2)


def test_references_are_read_and_added_to_in_windows():
    ref = weft.new_ref(wnp.asarray(X))

    @weft.jit
    def update(i, j):
        ref[pl.ds(i, 2), pl.ds(j, 1)] += 10.0
        return ref[pl.ds(i, 2), pl.ds(j, 1)]

    np.testing.assert_array_equal(update(wnp.int64(1), wnp.int32(3)), X[1:3, 3:] + 10)


DENSE = np.array([[[1, 0, 3], [0, 1, 1]], [[1, 1, 0], [1, 0, 1]]])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint8", "int32", "uint32", "int64", "float16", "float32", "complex64"],
)
@pytest.mark.parametrize("x64", [True, False])
def test_sums_of_sparse_arrays_have_the_dtype_of_dense_sums(dtype, x64):
    if dtype == "int64" and not x64:
        pytest.skip("there is no int64")
    with weft.enable_x64(x64):
        dense = wnp.asarray(DENSE).astype(dtype)
        for layout in ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0)):
            mat = sparse.BCOO.fromdense(dense, n_batch=layout[0], n_dense=layout[1])
            for axes in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)):
                expected = dense.sum(axes)
                for result in (
                    sparse.bcoo_reduce_sum(mat, axes=axes),
                    sparse.sparsify(lambda m, axes=axes: wnp.sum(m, axis=axes))(mat),
                ):
                    assert result.dtype == expected.dtype
                    np.testing.assert_array_equal(
                        result.todense() if hasattr(result, "todense") else result, expected
                    )
