"""Run kernels natively and on the evaluator, and compare the results."""

from __future__ import annotations

import ctypes
import mmap

import ml_dtypes
import numpy as np

from weft._engine.codegen.program import program
from weft._engine.codegen.program.build_record import CompiledKernel
from weft._engine.ir.loops import FLOATS, LoopsKernel, check as verify
from weft._engine.ir.loops_eval import DTYPES, evaluate
from weft._engine.ir.loops_text import parse_kernel, print_kernel

PAGE = mmap.PAGESIZE
_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def compile_kernel(kernel: LoopsKernel) -> CompiledKernel:
    """Return the native function of a kernel, from memory, from disk, or newly compiled."""
    name = program._kernel_name(kernel)
    program._load_kernels({name: kernel}, frozenset(), ())
    return program._kernels[name]


class Fenced:
    """Memory that ends where an unreadable page begins, or begins where one ends."""

    def __init__(self, nbytes: int, at_end: bool):
        room = -(-nbytes // PAGE) * PAGE
        self.pages = mmap.mmap(-1, room + 2 * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.pages))
        for fence in (base, base + PAGE + room):
            assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(fence), PAGE, 0)
        self.ptr = base + PAGE + (room - nbytes if at_end else 0)
        self.bytes = (ctypes.c_char * nbytes).from_address(self.ptr)

    def view(self, dtype) -> np.ndarray:
        return np.frombuffer(self.bytes, dtype)


def run_native(kernel: LoopsKernel, *arrays: np.ndarray) -> None:
    """Run the compiled kernel, one task after another."""
    compiled = compile_kernel(kernel)
    function = _FUNCTION(compiled.address)
    context = (ctypes.c_void_p * max(1, len(arrays)))(*[array.ctypes.data for array in arrays])
    for task in range(kernel.parallel_extent):
        function(ctypes.cast(context, ctypes.c_void_p), task, 0)


def ulps(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the distance of two float arrays in units of the last place; equal infinities and NaNs
    have distance 0."""
    bits = {2: np.int16, 4: np.int32, 8: np.int64}[x.dtype.itemsize]
    a, b = (v.view(bits).astype(object if bits is np.int64 else np.int64) for v in (x, y))
    low = -(1 << (8 * x.dtype.itemsize - 1))
    a, b = np.where(a < 0, low - a, a), np.where(b < 0, low - b, b)
    same = (x == y) | (np.isnan(x.astype(np.float64)) & np.isnan(y.astype(np.float64)))
    return np.where(same, 0, np.abs(a - b)).astype(np.float64)


def check(kernel: LoopsKernel, *arrays: np.ndarray, max_ulp: float = 0, rtol: float = 0) -> None:
    """Assert that native code and the evaluator leave equal contents in every buffer, and that
    native code writes nothing around them.
    The kernel is also verified, and its text is printed and parsed.
    """
    verify(kernel)
    assert parse_kernel(print_kernel(kernel)) == kernel
    expected = [array.copy() for array in arrays]
    padded = [
        np.concatenate([np.full(64, 7, np.uint8), array.view(np.uint8), np.full(64, 7, np.uint8)])
        for array in arrays
    ]
    inner = [pad[64:-64].view(array.dtype) for pad, array in zip(padded, arrays)]
    evaluate(kernel, *expected)
    run_native(kernel, *inner)
    for buf, pad, got, want in zip(kernel.bufs, padded, inner, expected):
        assert (pad[:64] == 7).all() and (pad[-64:] == 7).all(), f"{buf.name}: wrote outside"
        if rtol:
            np.testing.assert_allclose(
                got.astype(np.complex128), want.astype(np.complex128), rtol=rtol, atol=rtol
            )
        elif buf.type in FLOATS:
            worst = ulps(got, want)
            assert worst.size == 0 or worst.max() <= max_ulp, (
                f"{buf.name}: {got[worst.argmax()]!r} for {want[worst.argmax()]!r} at {worst.argmax()}"
            )
        else:
            np.testing.assert_array_equal(got, want, err_msg=buf.name)


def random_array(rng: np.random.Generator, type_: str, size: int) -> np.ndarray:
    """Return values of a type, including special values."""
    dtype = DTYPES[type_]
    if type_ == "bool":
        return rng.integers(0, 2, size).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        wide = rng.integers(info.min, info.max, size, dtype=dtype, endpoint=True)
        small = rng.integers(0, 5, size).astype(dtype)
        return np.where(rng.random(size) < 0.5, wide, small).astype(dtype)
    if dtype.kind == "c":
        return (rng.normal(size=size) + 1j * rng.normal(size=size)).astype(dtype)
    x = (rng.normal(size=size) * 4).astype(np.float64)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0])
    x = np.where(rng.random(size) < 0.1, special[rng.integers(0, len(special), size)], x)
    return x.astype(dtype if type_ != "bf16" else ml_dtypes.bfloat16)
