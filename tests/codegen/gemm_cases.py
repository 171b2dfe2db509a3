"""Matmuls of all types and layouts, run natively and compared with NumPy."""

import ctypes
import math
import zlib
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from tests.codegen.harness import compile_kernel
from weft._engine.codegen.gemm import gemm
from weft._engine.codegen.gemm.descriptor import PRIVATE, SHARED, Word
from weft._engine.codegen.ir.gemm_types import VectorUnit
from weft._engine.codegen.toolchain import loader, target
from weft._engine.ir.build import LoopsBuilder
from weft._engine.ir.loops import Buf, For, LoopKind, LoopsKernel, StoreElement
from weft._engine.ir.program import PLACE, BufRef, Gemm
from weft._engine.util.record import replace

DTYPES = {
    "bool": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "c64": np.complex64, "c128": np.complex128,
}  # fmt: skip
# Unit roundoff of the result, and of the products as they are summed.
EPS = {"f16": 2**-11, "bf16": 2**-8, "f32": 2**-24, "f64": 2**-53, "c64": 2**-23, "c128": 2**-52}


#: a machine with all instructions for vectors of 64 bytes
AVX512 = VectorUnit.of(
    ["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512bf16", "avx512vnni"], "x86_64"
)


def whole_machine():
    """Return this machine with all its matrix units, even if they are no faster."""
    features = target.current().features.split(",")
    return VectorUnit.of(
        [name[1:] for name in features if name.startswith("+")], loader.architecture()
    )


def without(machine, *features):
    """Return a machine without the matrix units of some features."""
    others = [unit for unit in machine.matrix_units if unit.feature not in features]
    return replace(machine, matrix_units=tuple(others))


@dataclass
class Case:
    """A matmul over arrays of any layout; `perm_*` is the order of the dims in memory, outermost
    first."""

    m: int
    n: int
    k: int
    types: tuple[str, str, str] = ("f32", "f32", "f32")
    batch: tuple[int, ...] = ()
    outer: tuple[int, ...] = ()
    orders: tuple[str, str, str] = (
        "mk",
        "kn",
        "mn",
    )  # memory order of the two matrix dims of A, B, C
    spread: int = 1  # elements between neighbours
    broadcast: tuple[str, ...] = ()  # operands ("a", "b") without the batch dims
    epilogue: bool = False  # an epilogue adds a bias per column, doubles, and stores
    name: str = field(default="")

    def __str__(self):
        parts = [f"{self.m}x{self.n}x{self.k}", "-".join(self.types)]
        parts += [
            f"{k}={v}"
            for k, v in self.__dict__.items()
            if k in _EXTRAS and v != getattr(Case, k, None)
        ]
        return " ".join(parts)


_EXTRAS = ("batch", "outer", "orders", "spread", "broadcast", "epilogue")


def values(rng, shape, type):
    dtype = DTYPES[type]
    if type == "bool":
        return rng.integers(0, 2, shape).astype(dtype)
    if type[0] in "iu":
        whole = (
            DTYPES[type](0).itemsize == 1
        )  # sums of products of all 8-bit values are far below 32 bits
        low, high = (
            (np.iinfo(dtype).min, np.iinfo(dtype).max)
            if whole
            else (0 if type[0] == "u" else -9, 9)
        )
        return rng.integers(low, high, shape, endpoint=True).astype(dtype)
    x = rng.standard_normal(shape)
    if type[0] == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def strided(x, order, spread):
    """Return an array equal to `x` with its dims in the memory order `order`, elements `spread`
    apart; and its strides."""
    moved = np.transpose(x, order)
    base = np.zeros((*moved.shape, spread), x.dtype)
    base[..., 0] = moved
    view = np.transpose(base[..., 0], np.argsort(order))
    return view, tuple(s // x.itemsize for s in view.strides)


def run(step, *arrays, epilogue_args=()):
    symbol, constants = gemm.describe(step)
    epilogue = compile_kernel(step.epilogue).address if step.epilogue else 0
    call(symbol, constants, *arrays, epilogue=epilogue, epilogue_args=epilogue_args)
    return symbol, constants


def bias_epilogue(case):
    """Return the kernel y[batch, row, col] = 2 * (sum + x[col]), in the form that the compiler
    generates."""
    _, acc_type, out_type = case.types
    sums = (
        "i32"
        if acc_type in ("i8", "u8", "i16", "u16")
        else "f32"
        if acc_type in ("f16", "bf16")
        else acc_type
    )
    b = LoopsBuilder()
    word = {name: b.load("place", i, "i64") for i, name in enumerate(PLACE)}
    r, c = b.index("r"), b.index("c")
    row, col = b.iadd(word["row"], r), b.iadd(word["col"], c)
    at = b.iadd(b.iadd(b.op("mul", word["batch"], case.m * case.n), b.imul(row, case.n)), col)
    total = b.op(
        "add",
        b.load("s", b.iadd(b.op("mul", r, word["pitch"]), c), sums),
        b.cast(b.load("x", col, out_type), sums),
    )
    store = StoreElement(
        "y", at, b.storage_form(b.cast(b.op("mul", total, b.const(2, sums)), out_type), out_type)
    )
    size = case.m * case.n * math.prod(case.batch)
    bufs = (
        Buf("s", sums, 4096),
        Buf("place", "i64", len(PLACE)),
        Buf("x", out_type, case.n),
        Buf("y", out_type, size, "out"),
    )
    return LoopsKernel(
        bufs,
        (For("r", word["rows"], (For("c", word["cols"], (store,), LoopKind.VECTOR),)),),
        name="epilogue",
    )


def call(symbol, constants, *arrays, epilogue=0, epilogue_args=()):
    words = (ctypes.c_int64 * len(constants))(*constants)
    words[Word.EPILOGUE] = epilogue
    words[len(words) - len(epilogue_args) :] = [x.ctypes.data for x in epilogue_args]
    for index, array in zip(gemm.POINTERS, arrays):
        words[index] = 0 if array is None else array.ctypes.data
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(gemm.ensure(symbol))(words)


def check(case):
    rng = np.random.default_rng(zlib.crc32(str(case).encode()))
    in_type, acc_type, out_type = case.types
    nb, no = len(case.batch), len(case.outer)

    def operand(dims, batched, swapped):
        shape = (case.batch if batched else ()) + case.outer + dims
        *lead, i, j = range(len(shape))
        return strided(
            values(rng, shape, in_type), [*lead, *((j, i) if swapped else (i, j))], case.spread
        )

    a, a_strides = operand((case.m, case.k), "a" not in case.broadcast, case.orders[0] == "km")
    b, b_strides = operand((case.k, case.n), "b" not in case.broadcast, case.orders[1] == "nk")
    c0 = values(rng, (*case.batch, case.m, case.n), out_type)
    lead = list(range(nb))
    c, c_strides = strided(
        c0, lead + ([nb, nb + 1] if case.orders[2] == "mn" else [nb + 1, nb]), case.spread
    )
    bias = values(rng, (case.n,), out_type)
    if case.epilogue:
        c = np.empty((*case.batch, case.m, case.n), c0.dtype)
    a_lead = a_strides[:-2] if "a" not in case.broadcast else (0,) * nb + a_strides[:-2]
    b_lead = b_strides[:-2] if "b" not in case.broadcast else (0,) * nb + b_strides[:-2]
    step = Gemm(
        case.m, case.n, case.k, BufRef(0), BufRef(1), BufRef(2),
        a_strides[-2:], b_strides[-2:], c_strides[-2:], in_type, acc_type, out_type,
        tuple(zip(case.batch, a_lead[:nb], b_lead[:nb], c_strides[:nb])),
        tuple(zip(case.outer, a_lead[nb:], b_lead[nb:])),
        epilogue=bias_epilogue(case) if case.epilogue else None,
        epilogue_args=(BufRef(3), BufRef(4)) if case.epilogue else (),
    )  # fmt: skip
    description = run(
        step, a, b, None if case.epilogue else c, epilogue_args=(bias, c) if case.epilogue else ()
    )

    wide = np.complex128 if acc_type[0] == "c" else np.float64 if acc_type in EPS else np.int64
    batch, outer = "uvw"[:nb], "pqr"[:no]
    aw = (
        a.astype(wide)
        if "a" not in case.broadcast
        else np.broadcast_to(a.astype(wide), (*case.batch, *a.shape))
    )
    bw = (
        b.astype(wide)
        if "b" not in case.broadcast
        else np.broadcast_to(b.astype(wide), (*case.batch, *b.shape))
    )
    spec = f"{batch}{outer}mk,{batch}{outer}kn->{batch}mn"
    want = np.einsum(spec, aw, bw)
    bound = np.einsum(spec, np.abs(aw), np.abs(bw))
    if case.epilogue:
        want, bound = 2 * (want + bias.astype(wide)), 2 * (bound + np.abs(bias.astype(wide)))
    sum_type = "f32" if acc_type in ("f16", "bf16") else acc_type
    if sum_type[0] not in "fc":
        np.testing.assert_array_equal(c, want.astype(DTYPES[out_type]))
        return description
    terms = case.k * math.prod(case.outer) + 2
    limit = bound * EPS[sum_type] * (2 * terms**0.5 + 4)
    if out_type in EPS:
        limit = limit + np.abs(want) * EPS[out_type] * 1.01 + 1e-30
        error = np.abs(c.astype(wide) - want)
        assert np.all(error <= limit), (
            f"{case}: {np.max(error)} over {np.max(error / limit)} of the bound"
        )
    return description


ORDERS = [("mk", "kn", "mn"), ("km", "kn", "mn"), ("mk", "nk", "mn"), ("km", "nk", "nm")]


TALL = [(SHARED, 96, 2), (PRIVATE, 402, 3), (PRIVATE, 402, 1), (PRIVATE, 204, 2)]
