"""Generated matmul against NumPy: types, sizes with tails, strides, batch and outer dims, accumulation, bias."""

import ctypes
import itertools
import math
import zlib
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest

from weft.codegen import gemm
from weft.ir.program import BufRef, Gemm

DTYPES = {
    "bool": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "c64": np.complex64, "c128": np.complex128,
}  # fmt: skip
# Unit roundoff of the result, and of the products as they are summed.
EPS = {"f16": 2**-11, "bf16": 2**-8, "f32": 2**-24, "f64": 2**-53, "c64": 2**-23, "c128": 2**-52}


@dataclass
class Case:
    """A matmul over arrays of any layout; `perm_*` is the order of the dims in memory, outermost first."""

    m: int
    n: int
    k: int
    types: tuple[str, str, str] = ("f32", "f32", "f32")
    batch: tuple[int, ...] = ()
    outer: tuple[int, ...] = ()
    orders: tuple[str, str, str] = ("mk", "kn", "mn")  # memory order of the two matrix dims of A, B, C
    spread: int = 1  # elements between neighbours
    broadcast: tuple[str, ...] = ()  # operands ("a", "b") without the batch dims
    accumulate: bool = False
    bias: bool = False
    name: str = field(default="")

    def __str__(self):
        parts = [f"{self.m}x{self.n}x{self.k}", "-".join(self.types)]
        parts += [f"{k}={v}" for k, v in self.__dict__.items() if k in _EXTRAS and v != getattr(Case, k, None)]
        return " ".join(parts)


_EXTRAS = ("batch", "outer", "orders", "spread", "broadcast", "accumulate", "bias")


def values(rng, shape, type):
    dtype = DTYPES[type]
    if type == "bool":
        return rng.integers(0, 2, shape).astype(dtype)
    if type[0] in "iu":
        low = 0 if type[0] == "u" else -9
        return rng.integers(low, 10, shape).astype(dtype)
    x = rng.standard_normal(shape)
    if type[0] == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def strided(x, order, spread):
    """Return an array equal to `x` whose dims lie in memory as `order` says, `spread` elements apart; and strides."""
    moved = np.transpose(x, order)
    base = np.zeros((*moved.shape, spread), x.dtype)
    base[..., 0] = moved
    view = np.transpose(base[..., 0], np.argsort(order))
    return view, tuple(s // x.itemsize for s in view.strides)


def run(step, *arrays):
    symbol, constants = gemm.describe(step)
    words = (ctypes.c_int64 * len(constants))(*constants)
    for index, array in zip(gemm.POINTERS, arrays):
        words[index] = 0 if array is None else array.ctypes.data
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(gemm.ensure(symbol))(words)
    return symbol, constants


def check(case):
    rng = np.random.default_rng(zlib.crc32(str(case).encode()))
    in_type, acc_type, out_type = case.types
    nb, no = len(case.batch), len(case.outer)

    def operand(dims, batched, swapped):
        shape = (case.batch if batched else ()) + case.outer + dims
        *lead, i, j = range(len(shape))
        return strided(values(rng, shape, in_type), [*lead, *((j, i) if swapped else (i, j))], case.spread)

    a, a_strides = operand((case.m, case.k), "a" not in case.broadcast, case.orders[0] == "km")
    b, b_strides = operand((case.k, case.n), "b" not in case.broadcast, case.orders[1] == "nk")
    c0 = values(rng, (*case.batch, case.m, case.n), out_type)
    lead = list(range(nb))
    c, c_strides = strided(c0, lead + ([nb, nb + 1] if case.orders[2] == "mn" else [nb + 1, nb]), case.spread)
    bias = values(rng, (case.n,), out_type) if case.bias else None
    a_lead = a_strides[:-2] if "a" not in case.broadcast else (0,) * nb + a_strides[:-2]
    b_lead = b_strides[:-2] if "b" not in case.broadcast else (0,) * nb + b_strides[:-2]
    step = Gemm(
        case.m, case.n, case.k, BufRef(0), BufRef(1), BufRef(2),
        a_strides[-2:], b_strides[-2:], c_strides[-2:], in_type, acc_type, out_type,
        tuple(zip(case.batch, a_lead[:nb], b_lead[:nb], c_strides[:nb])),
        tuple(zip(case.outer, a_lead[nb:], b_lead[nb:])),
        case.accumulate,
        (BufRef(3), 1) if case.bias else None,
    )  # fmt: skip
    description = run(step, a, b, c, bias)

    wide = np.complex128 if acc_type[0] == "c" else np.float64 if acc_type[0] == "f" else np.int64
    batch, outer = "uvw"[:nb], "pqr"[:no]
    aw = a.astype(wide) if "a" not in case.broadcast else np.broadcast_to(a.astype(wide), (*case.batch, *a.shape))
    bw = b.astype(wide) if "b" not in case.broadcast else np.broadcast_to(b.astype(wide), (*case.batch, *b.shape))
    spec = f"{batch}{outer}mk,{batch}{outer}kn->{batch}mn"
    want = np.einsum(spec, aw, bw)
    bound = np.einsum(spec, np.abs(aw), np.abs(bw))
    for extra in [bias] * case.bias + [c0] * case.accumulate:
        want = want + extra.astype(wide)
        bound = bound + np.abs(extra.astype(wide))
    if acc_type[0] not in "fc":
        np.testing.assert_array_equal(c, want.astype(DTYPES[out_type]))
        return description
    terms = case.k * math.prod(case.outer) + 2
    limit = bound * EPS[acc_type] * (2 * terms**0.5 + 4)
    if out_type in EPS:
        limit = limit + np.abs(want) * EPS[out_type] * 1.01 + 1e-30
        error = np.abs(c.astype(wide) - want)
        assert np.all(error <= limit), f"{case}: {np.max(error)} over {np.max(error / limit)} of the bound"
    return description


SIZES = [
    (1, 1, 1), (5, 7, 3), (6, 64, 8), (7, 65, 9), (1, 100, 33), (100, 1, 33), (3, 2, 70), (33, 17, 31), (64, 64, 64),
    (13, 130, 400), (200, 70, 50), (12, 12, 1000),
]  # fmt: skip
COMBINATIONS = [
    ("f32", "f32", "f32"), ("f64", "f64", "f64"), ("bf16", "f32", "bf16"), ("bf16", "f32", "f32"),
    ("f16", "f32", "f16"),
    ("f16", "f32", "f32"), ("f32", "f64", "f32"), ("i8", "i32", "i32"), ("u8", "i32", "i32"), ("i8", "i8", "i8"),
    ("i16", "i32", "i16"), ("i32", "i32", "i32"), ("u32", "u32", "u32"), ("i64", "i64", "i64"), ("u16", "u64", "u64"),
    ("c64", "c64", "c64"), ("c128", "c128", "c128"), ("i8", "f32", "f32"),
]  # fmt: skip


@pytest.mark.parametrize("types", COMBINATIONS, ids="-".join)
def test_types_and_sizes(types):
    for m, n, k in SIZES:
        check(Case(m, n, k, types))


ORDERS = [("mk", "kn", "mn"), ("km", "kn", "mn"), ("mk", "nk", "mn"), ("km", "nk", "nm")]
LAYOUT_TYPES = [
    ("f32",) * 3,
    ("bf16", "f32", "bf16"),
    ("f16", "f32", "f32"),
    ("i8", "i32", "i32"),
    ("c64",) * 3,
    ("c128",) * 3,
]


@pytest.mark.parametrize("types", LAYOUT_TYPES, ids="-".join)
def test_strides(types):
    for (m, n, k), orders, spread in itertools.product([(35, 41, 37), (1, 50, 40), (50, 1, 41)], ORDERS, (1, 3)):
        check(Case(m, n, k, types, orders=orders, spread=spread))


FOLDS = [
    Case(5, 6, 7, batch=(3,)),
    Case(5, 6, 7, batch=(3, 2), broadcast=("b",)),
    Case(1, 40, 9, batch=(11,), broadcast=("b",)),
    Case(5, 6, 7, batch=(3,), broadcast=("a",)),
    Case(9, 6, 7, batch=(3, 4), broadcast=("a",), bias=True),
    Case(33, 34, 35, batch=(2, 3), orders=("km", "nk", "mn")),
    Case(40, 70, 9, outer=(5,)),
    Case(40, 70, 1, outer=(5,)),
    Case(21, 30, 11, outer=(3, 2), orders=("km", "nk", "mn")),
    Case(21, 30, 200, outer=(3,), types=("bf16", "f32", "bf16")),
    Case(21, 30, 7, outer=(3, 5), types=("bf16", "f32", "f32"), orders=("km", "nk", "mn")),
    Case(21, 30, 7, outer=(3,), batch=(2,), types=("c64",) * 3),
    Case(21, 1, 30, outer=(3,)),
    Case(8, 9, 300, outer=(2,), batch=(4,), types=("i8", "i32", "i32"), spread=2),
]


@pytest.mark.parametrize("case", FOLDS, ids=str)
def test_batch_and_outer_dims(case):
    check(case)


@pytest.mark.parametrize(
    "types", [("f32",) * 3, ("bf16", "f32", "bf16"), ("f16", "f32", "f32"), ("i32",) * 3, ("c64",) * 3], ids="-".join
)
@pytest.mark.parametrize("m, n, k", [(13, 70, 900), (50, 1, 300), (1, 90, 60), (7, 5, 0)])
@pytest.mark.parametrize("accumulate, bias", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("orders", [("mk", "kn", "mn"), ("mk", "nk", "nm")], ids="-".join)
def test_accumulate_and_bias(types, m, n, k, accumulate, bias, orders):
    check(Case(m, n, k, types, accumulate=accumulate, bias=bias, orders=orders))


def test_empty_sum_writes_zeros_and_empty_results_write_nothing():
    for k, outer in [(0, ()), (3, (0,)), (0, (2,))]:
        check(Case(4, 5, k, outer=outer))
    for m, n, batch in [(0, 5, ()), (5, 0, ()), (3, 4, (0,))]:
        check(Case(m, n, 6, batch=batch))


def test_program_runs_matmuls():
    from weft.codegen.program import compile_program
    from weft.ir.program import Loop, Program, Slot

    m, n, k, rounds = 9, 20, 30, 3
    rng = np.random.default_rng(5)
    a = rng.standard_normal((rounds, m, k)).astype(np.float32)
    b = rng.standard_normal((k, n)).astype(np.float32)
    bias = rng.standard_normal(n).astype(np.float32)
    c, d = np.zeros((rounds, m, n), np.float32), np.zeros((n, m), np.float32)
    steps = (
        Loop(
            "i",
            rounds,
            (
                Gemm(
                    m, n, k, BufRef(0, 0, (("i", 4 * m * k),)), BufRef(1), BufRef(3, 0, (("i", 4 * m * n),)),
                    (k, 1), (n, 1), (n, 1), "f32", "f32", "f32", epilogue_bias=(BufRef(2), 1),
                ),
            ),
        ),
        Gemm(m, n, k, BufRef(0), BufRef(1), BufRef(4), (k, 1), (n, 1), (1, m), "f32", "f32", "f32"),
    )  # fmt: skip
    arrays = [a, b, bias, c, d]
    kinds = ["in", "in", "in", "out", "out"]
    program = compile_program(Program(tuple(Slot(kind, x.nbytes) for kind, x in zip(kinds, arrays)), steps, 0))
    program([x.ctypes.data for x in arrays])
    np.testing.assert_allclose(c, a @ b + bias, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(d, (a[0] @ b).T, rtol=1e-5, atol=1e-5)
