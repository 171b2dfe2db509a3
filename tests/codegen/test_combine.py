"""Native reductions between processes against NumPy: NaNs, rounding, odd counts, and the form that MPI calls."""

import ctypes

import numpy as np
import pytest

from weft.codegen.library.combine import can_combine, combine
from weft.processes.plans import reduce
from weft.util.dtypes import dtypes_by_name

CALL = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2)
MPI_CALL = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)


@pytest.mark.parametrize("op, dtype", [("max", "float32"), ("min", "float16"), ("sum", "bfloat16"), ("sum", "complex64"), ("xor", "uint8")])
@pytest.mark.parametrize("count", [1, 71, 2003])
def test_reductions(op, dtype, count):
    rng, dtype = np.random.default_rng(count), dtypes_by_name[dtype]
    exact = np.int64 if dtype.kind == "u" else np.float32      # a negative float has no unsigned value
    parts = [(rng.standard_normal(count) * 9).astype(exact).astype(dtype) for _ in range(3)]
    if dtype.kind != "u":
        parts[1][::5], parts[2][::7] = np.nan, np.inf
    wanted = np.ascontiguousarray(reduce(op, parts)).view(np.uint8)
    addresses = (ctypes.c_void_p * 3)(*[part.ctypes.data for part in parts])
    for kind in ("plain", "stream"):
        memory = np.zeros(wanted.size + 64, np.uint8)
        found = memory[-memory.ctypes.data % 64:][:wanted.size]
        CALL(combine(op, dtype.name)[kind])(found.ctypes.data, ctypes.addressof(addresses), 3, count)
        np.testing.assert_array_equal(found.view(dtype).astype(np.complex128), wanted.view(dtype).astype(np.complex128))
    x, y, length = parts[0].copy(), parts[1].copy(), ctypes.c_int32(count)
    MPI_CALL(combine(op, dtype.name)["mpi"])(x.ctypes.data, y.ctypes.data, ctypes.addressof(length), 0)
    np.testing.assert_array_equal(y.astype(np.complex128), reduce(op, parts[:2]).astype(np.complex128))


def test_what_there_is_no_code_for():
    assert can_combine("sum", "bool") and can_combine("and", "int32")
    assert not any(can_combine(*case) for case in [("xor", "float32"), ("max", "complex64"), ("sum", "int4"), ("sum", "float7")])
