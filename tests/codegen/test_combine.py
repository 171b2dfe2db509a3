"""Native reductions between processes against NumPy: NaNs, rounding, odd counts, and the calling
convention of MPI."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

from weft._engine.codegen.library.process_reduction import can_combine, combine
from weft._engine.ir.build import TYPE_NAMES
from weft._engine.processes.collective_plan import OPS, CollectivePlan, reduce
from weft._engine.util.dtypes import dtypes_by_name

CALL = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2)
MPI_CALL = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)


@pytest.mark.parametrize(
    "op, dtype",
    [
        ("max", "float32"),
        ("min", "float16"),
        ("sum", "bfloat16"),
        ("sum", "complex64"),
        ("xor", "uint8"),
    ],
)
@pytest.mark.parametrize("count", [1, 71, 2003])
def test_reductions(op, dtype, count):
    rng, dtype = np.random.default_rng(count), dtypes_by_name[dtype]
    exact = np.int64 if dtype.kind == "u" else np.float32  # a negative float has no unsigned value
    parts = [(rng.standard_normal(count) * 9).astype(exact).astype(dtype) for _ in range(3)]
    if dtype.kind != "u":
        parts[1][::5], parts[2][::7] = np.nan, np.inf
    expected = np.ascontiguousarray(reduce(op, parts)).view(np.uint8)
    addresses = (ctypes.c_void_p * 3)(*[part.ctypes.data for part in parts])
    for kind in ("plain", "stream"):
        memory = np.zeros(expected.size + 64, np.uint8)
        result = memory[-memory.ctypes.data % 64 :][: expected.size]
        CALL(combine(op, dtype.name)[kind])(
            result.ctypes.data, ctypes.addressof(addresses), 3, count
        )
        np.testing.assert_array_equal(
            result.view(dtype).astype(np.complex128), expected.view(dtype).astype(np.complex128)
        )
    x, y, length = parts[0].copy(), parts[1].copy(), ctypes.c_int32(count)
    MPI_CALL(combine(op, dtype.name)["mpi"])(
        x.ctypes.data, y.ctypes.data, ctypes.addressof(length), 0
    )
    np.testing.assert_array_equal(
        y.astype(np.complex128), reduce(op, parts[:2]).astype(np.complex128)
    )


SMALL = [
    "int2",
    "uint2",
    "int4",
    "uint4",
    "float4_e2m1fn",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]


@pytest.mark.parametrize("dtype", SMALL)
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
def test_small_types(op, dtype):
    """All pairs of values, and three operands, whose sums and products are rounded once."""
    kind = np.dtype(getattr(ml_dtypes, dtype))
    bits = (
        ml_dtypes.iinfo(kind).bits
        if "int" in dtype
        else 8
        if "8" in dtype
        else 6
        if "6" in dtype
        else 4
    )
    bytes_of = np.arange(1 << bits, dtype=np.uint8)
    values = bytes_of.view(kind) if "int" not in dtype else bytes_of.astype(np.int8).astype(kind)
    parts = [np.ascontiguousarray(part.reshape(-1)) for part in np.meshgrid(values, values)]
    parts.append(np.random.default_rng(0).permutation(parts[0]))
    for n in (2, 3):
        with np.errstate(all="ignore"):
            expected = reduce(op, parts[:n])
        addresses = (ctypes.c_void_p * n)(*[part.ctypes.data for part in parts[:n]])
        for form in ("plain", "stream"):
            result = np.zeros(expected.shape, np.uint8)
            CALL(combine(op, dtype)[form])(
                result.ctypes.data, ctypes.addressof(addresses), n, result.size
            )
            np.testing.assert_array_equal(
                result.view(kind).astype(np.float32), expected.astype(np.float32)
            )


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("count", [1, 7, 2003])
def test_complex_products(dtype, count):
    rng = np.random.default_rng(count)
    parts = [
        (rng.standard_normal(count) + 1j * rng.standard_normal(count)).astype(dtype)
        for _ in range(3)
    ]
    addresses = (ctypes.c_void_p * 3)(*[part.ctypes.data for part in parts])
    result = np.zeros(count, dtype)
    CALL(combine("prod", dtype)["plain"])(result.ctypes.data, ctypes.addressof(addresses), 3, count)
    np.testing.assert_allclose(
        result, parts[0] * parts[1] * parts[2], rtol=1e-6 if dtype == "complex64" else 1e-14
    )


def test_every_plan_has_a_reduction():
    """Covers all reductions that `CollectivePlan` accepts."""
    accepted = 0
    for dtype in [*TYPE_NAMES, *SMALL]:
        for op in OPS:
            try:
                CollectivePlan("all_reduce", dtype, 1, op, ((0, 1),))
            except ValueError:
                assert not can_combine(op, dtype)
            else:
                assert can_combine(op, dtype), (op, dtype)
                accepted += 1
    assert accepted == 7 * (9 + 4) + 4 * (4 + 11) + 2 * 2  # integers, floats, complex numbers
    assert not can_combine("sum", "float7")
