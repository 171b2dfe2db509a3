"""Generated matmul against NumPy: types, sizes with odd ends, strides, batch and outer dims, uneven rows, epilogues."""

import ctypes
import itertools
import math
import platform
import sys
import zlib
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest

from tests.codegen.harness import compile_kernel
from tests.harness.tuning import tune
from weft._engine.codegen.gemm import (
    assembler_modules,
    assembler_support,
    gemm,
    gemm_plan,
    gemm_problem,
    gemm_tile,
    required_functions,
)
from weft._engine.codegen.gemm.descriptor import ALONG, DIRECT, IN_RUNS, PRIVATE, SHARED, Word
from weft._engine.codegen.ir.gemm_types import GemmTypes, VectorUnit
from weft._engine.codegen.ir.microkernels import STREAMS
from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain import target
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
        "y", at, b.stored(b.cast(b.op("mul", total, b.const(2, sums)), out_type), out_type)
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


SIZES = [
    (1, 1, 1), (5, 7, 3), (6, 64, 8), (7, 65, 9), (1, 100, 33), (100, 1, 33), (3, 2, 70), (33, 17, 31), (64, 64, 64),
    (13, 130, 400), (200, 70, 50), (12, 12, 1000),
]  # fmt: skip
COMBINATIONS = [
    ("f32", "f32", "f32"), ("f64", "f64", "f64"), ("bf16", "f32", "bf16"), ("bf16", "f32", "f32"),
    ("f16", "f32", "f16"), ("f16", "f32", "f32"), ("f32", "f64", "f32"), ("i8", "i32", "i32"),
    ("u8", "i32", "i32"), ("i8", "i8", "i8"), ("i16", "i32", "i16"), ("i32", "i32", "i32"), ("u32", "u32", "u32"),
    ("i64", "i64", "i64"), ("u16", "u64", "u64"), ("c64", "c64", "c64"), ("c128", "c128", "c128"),
    ("i8", "f32", "f32"), ("i8", "bf16", "bf16"), ("f16", "f16", "f16"), ("bool", "bool", "bool"),
    ("bool", "i32", "i32"),
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
    ("u8", "i32", "i32"),
    ("i16", "i32", "i32"),
    ("c64",) * 3,
    ("c128",) * 3,
]


@pytest.mark.parametrize("types", LAYOUT_TYPES, ids="-".join)
def test_strides(types):
    for (m, n, k), orders, spread in itertools.product(
        [(35, 41, 37), (1, 50, 40), (50, 1, 41)], ORDERS, (1, 3)
    ):
        check(Case(m, n, k, types, orders=orders, spread=spread))


FOLDS = [
    Case(5, 6, 7, batch=(3,)),
    Case(5, 6, 7, batch=(3, 2), broadcast=("b",)),
    Case(1, 40, 9, batch=(11,), broadcast=("b",)),
    Case(5, 6, 7, batch=(3,), broadcast=("a",)),
    Case(9, 6, 7, batch=(3, 4), broadcast=("a",), epilogue=True),
    Case(33, 34, 35, batch=(2, 3), orders=("km", "nk", "mn")),
    Case(40, 70, 9, outer=(5,)),
    Case(40, 70, 1, outer=(5,)),
    Case(21, 30, 11, outer=(3, 2), orders=("km", "nk", "mn")),
    Case(21, 30, 200, outer=(3,), types=("bf16", "f32", "bf16")),
    Case(21, 30, 7, outer=(3, 5), types=("bf16", "f32", "f32"), orders=("km", "nk", "mn")),
    Case(21, 30, 7, outer=(3,), batch=(2,), types=("c64",) * 3),
    Case(21, 1, 30, outer=(3,)),
    Case(5, 6, 7, batch=(3,), broadcast=("b",), orders=("km", "kn", "mn")),
    Case(5, 1, 7, batch=(3,), broadcast=("a",), epilogue=True),
    Case(5, 1, 7, batch=(3,), broadcast=("a",)),
    Case(21, 30, 11, batch=(4,), orders=("mk", "kn", "nm")),
    Case(21, 30, 11, outer=(4,), orders=("mk", "nk", "nm")),
    Case(
        21,
        30,
        11,
        ("i16", "i32", "i32"),
        batch=(2, 3),
        outer=(4,),
        orders=("km", "kn", "nm"),
        epilogue=True,
    ),
    Case(8, 9, 300, outer=(2,), batch=(4,), types=("i8", "i32", "i32"), spread=2),
]


@pytest.mark.parametrize("case", FOLDS, ids=str)
def test_batch_and_outer_dims(case):
    check(case)


TAIL_TYPES = [
    ("f32",) * 3,
    ("f64",) * 3,
    ("bf16", "f32", "bf16"),
    ("f16", "f32", "f32"),
    ("i8", "i32", "i32"),
    ("c64",) * 3,
]


@pytest.mark.parametrize("types", TAIL_TYPES, ids="-".join)
@pytest.mark.parametrize(
    "orders", [("mk", "kn", "mn"), ("mk", "nk", "mn"), ("km", "nk", "mn")], ids="-".join
)
def test_tails(types, orders):
    for m, n, k in [
        (13, 70, 900),
        (50, 1, 300),
        (1, 90, 60),
        (1, 300, 600),
        (7, 5, 0),
        (200, 130, 40),
        (3, 2, 50),
        (1, 1, 9),
    ]:
        check(Case(m, n, k, types, orders=orders, epilogue=True))
    check(Case(9, 33, 20, types, batch=(3, 2), orders=orders, epilogue=True))
    check(Case(9, 33, 20, types, batch=(3, 2), broadcast=("b",), orders=orders, epilogue=True))


ENDS = [
    ("f32",) * 3,
    ("bf16", "f32", "bf16"),
    ("f16", "f32", "f16"),
    ("f64",) * 3,
    ("i8", "i32", "i32"),
]


@pytest.mark.parametrize("types", ENDS, ids="-".join)
@pytest.mark.parametrize("epilogue", [False, True])
def test_every_end(types, epilogue):
    """Covers every size from 0 to 70 in each dim, cycling through the layouts."""
    orders = itertools.cycle(
        itertools.product(("mk", "km"), ("kn", "nk"), ("mn",) if epilogue else ("mn", "nm"))
    )
    for size in range(71):
        for dims in [(size, 33, 20), (33, size, 20), (33, 20, size)]:
            check(Case(*dims, types, orders=next(orders), epilogue=epilogue))


@pytest.mark.parametrize(
    "types",
    [("f32",) * 3, ("bf16", "f32", "bf16"), ("i8", "i32", "i32"), ("c64",) * 3],
    ids="-".join,
)
def test_uneven_rows_and_columns(types):
    """Rows of A, or columns of B, are windows of an image: each stride is constant over a run of
    them only."""
    rng = np.random.default_rng(2)
    in_type, acc_type, out_type = types
    wide = np.complex128 if acc_type == "c64" else np.float64 if acc_type in EPS else np.int64
    for images, high, across, features, taps, out in [
        (2, 5, 7, 3, 3, 9),
        (3, 9, 23, 17, 2, 70),
        (1, 40, 40, 4, 3, 5),
    ]:
        image, kernel = (
            values(rng, (images, high, across, features), in_type),
            values(rng, (taps * taps * features, out), in_type),
        )
        oh, ow = high - taps + 1, across - taps + 1
        shape = (images, oh, ow, taps, taps, features)
        s = tuple(x // image.itemsize for x in image.strides)
        windows = np.lib.stride_tricks.as_strided(
            image, shape, [x * image.itemsize for x in (*s[:3], *s[1:])]
        )
        m, k = images * oh * ow, taps * taps * features
        want = windows.reshape(m, k).astype(wide) @ kernel.astype(wide)
        dims, outer = ((images, s[0]), (oh, s[1])), taps
        inner = (taps * features, 1)
        c, turned = np.empty((m, out), DTYPES[out_type]), np.empty((out, m), DTYPES[out_type])
        refs = BufRef(0), BufRef(1), BufRef(2)
        run(Gemm(m, out, inner[0], *refs, (s[2], 1), (out, 1), (out, 1), *types, (), ((outer, s[1], inner[0] * out),),
                 a_rows=dims), image, kernel, c)  # fmt: skip
        run(Gemm(out, m, inner[0], *refs, (1, out), (1, s[2]), (m, 1), *types, (), ((outer, inner[0] * out, s[1]),),
                 b_cols=dims), kernel, image, turned)  # fmt: skip
        close = {"f32": 1e-4, "c64": 1e-4, "bf16": 0.2}.get(out_type, 0)
        np.testing.assert_allclose(c.astype(wide), want, rtol=close / 10, atol=close)
        np.testing.assert_allclose(turned.astype(wide), want.T, rtol=close / 10, atol=close)


@pytest.mark.parametrize(
    "types", [("f32",) * 3, ("f64",) * 3, ("bf16", "f32", "bf16"), ("c64",) * 3], ids="-".join
)
@pytest.mark.parametrize("run_rows, cols, k, segments", [
    (64, 130, 40, 1), (71, 33, 64, 1), (100, 70, 512, 2), (66, 17, 48, 2), (63, 70, 40, 1)])  # fmt: skip
def test_long_runs_of_rows_are_read_where_they_lie(types, run_rows, cols, k, segments):
    """Rows of A are in shards and addressed by lists; otherwise each shard is a separate product,
    if runs are long and blocks of k are within one segment."""
    rng = np.random.default_rng(7)
    in_type, _, out_type = types
    a, b = (
        values(rng, (2, 3, segments, run_rows, k), in_type),
        values(rng, (segments * k, cols), in_type),
    )
    wide = np.complex128 if in_type == "c64" else np.float64
    rows = np.moveaxis(a[:, ::2], 2, 3)  # (two of three shards are multiplied)
    want = rows.reshape(4 * run_rows, segments * k).astype(wide) @ b.astype(wide)
    c, shard = np.empty(want.shape, DTYPES[out_type]), segments * run_rows * k
    step = Gemm(
        4 * run_rows,
        cols,
        k,
        BufRef(0),
        BufRef(1),
        BufRef(2),
        (k, 1),
        (cols, 1),
        (cols, 1),
        *types,
        outer_k=((segments, run_rows * k, k * cols),),
        a_rows=((2, 3 * shard), (2, 2 * shard)),
    )
    words = run(step, a, b, c)[1]
    close = {"bf16": 0.3, "f64": 1e-11}.get(out_type, 2e-4)
    np.testing.assert_allclose(c.astype(wide), want, rtol=close / 10, atol=close)
    recipe = GemmTypes(*types, gemm.machine())
    apart = run_rows >= 64 and k != 48 and recipe.can_read_a_in_place
    assert (words[Word.BATCH], words[Word.A_DIRECT]) == (
        (1, IN_RUNS)
        if assembler_support.has_indirect_kernels(recipe)
        else (4, 1)
        if apart
        else (1, 0)
    )


def test_empty_sum_writes_zeros_and_empty_results_write_nothing():
    for k, outer in [(0, ()), (3, (0,)), (0, (2,))]:
        check(Case(4, 5, k, outer=outer))
    c = np.full(24, np.nan, np.float32)
    step = Gemm(
        24,
        1,
        0,
        BufRef(0),
        BufRef(1),
        BufRef(2),
        (1, 100),
        (2, 2),
        (1, 1),
        "f32",
        "f32",
        "f32",
        outer_k=((6, 0, 0),),
    )
    run(step, *np.zeros((2, 1000), np.float32), c)  # (the longest summed dim is not empty)
    assert not c.any()
    for m, n, batch in [(0, 5, ()), (5, 0, ()), (3, 4, (0,))]:
        check(Case(m, n, 6, batch=batch))


def test_an_epilogue_that_lies_as_c_is_asked_for():
    """An epilogue operand with the size and type of C is prefetched; a bias is not."""
    step = Gemm(
        24,
        70,
        40,
        BufRef(0),
        BufRef(1),
        None,
        (40, 1),
        (70, 1),
        (70, 1),
        "f32",
        "f32",
        "f32",
        epilogue=bias_epilogue(Case(24, 70, 40)),
        epilogue_args=(BufRef(2), BufRef(3)),
    )
    _, words = gemm.describe(step)
    sizes = [buf.size for buf in step.epilogue.bufs[2:]]
    assert sizes == [70, 24 * 70] and words[Word.EPILOGUE_STREAMS] == int.from_bytes(
        bytes([2] * STREAMS), "little"
    )
    _, words = gemm.describe(replace(step, c=BufRef(3), epilogue=None, epilogue_args=()))
    assert words[Word.EPILOGUE_STREAMS] == 0


def test_program_runs_matmuls():
    from weft._engine.codegen.program.program import compile_program
    from weft._engine.ir.program import BufferSlot, Loop, ScheduledProgram, SlotKind

    m, n, k, rounds = 9, 20, 30, 3
    epilogue = bias_epilogue(Case(m, n, k))
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
                    m, n, k, BufRef(0, 0, (("i", 4 * m * k),)), BufRef(1), None,
                    (k, 1), (n, 1), (n, 1), "f32", "f32", "f32", epilogue=epilogue,
                    epilogue_args=(BufRef(2), BufRef(3, 0, (("i", 4 * m * n),))),
                ),
            ),
        ),
        Gemm(m, n, k, BufRef(0), BufRef(1), BufRef(4), (k, 1), (n, 1), (1, m), "f32", "f32", "f32"),
    )  # fmt: skip
    arrays = [a, b, bias, c, d]
    kinds = [SlotKind.INPUT] * 3 + [SlotKind.OUTPUT] * 2
    program = compile_program(
        ScheduledProgram(
            tuple(BufferSlot(kind, x.nbytes) for kind, x in zip(kinds, arrays)), steps, 0
        )
    )
    program([x.ctypes.data for x in arrays])
    np.testing.assert_allclose(c, 2 * (a @ b + bias), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(d, (a[0] @ b).T, rtol=1e-5, atol=1e-5)


MACHINE_TYPES = [
    ("f32",) * 3,
    ("f64",) * 3,
    ("bf16", "f32", "bf16"),
    ("f16", "f32", "f16"),
    ("i8", "i32", "i32"),
    ("u8", "i32", "i32"),
    ("i64",) * 3,
    ("c64",) * 3,
    ("c128",) * 3,
]


@pytest.mark.parametrize("types", MACHINE_TYPES, ids="-".join)
@pytest.mark.parametrize("level", ["avx512-plain", "avx2", "generic"])
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="levels of x86-64")
def test_narrower_machines(level, types, monkeypatch):
    monkeypatch.setenv("WEFT_CPU_FEATURES", level)
    machine = gemm.machine()
    assert machine.vector_bytes <= {"avx512-plain": 64, "avx2": 32, "generic": 16}[level] and not (
        machine.bf16_dot or machine.i8_dot
    )
    for m, n, k in [(1, 1, 1), (7, 33, 9), (50, 40, 30), (40, 1, 50), (1, 50, 40), (13, 130, 400)]:
        check(Case(m, n, k, types))
    for orders in ORDERS[1:]:
        check(Case(23, 41, 37, types, orders=orders, epilogue=True))
    check(Case(9, 10, 11, types, batch=(3,), outer=(2,), spread=3))


def test_half_conversions_without_hardware(monkeypatch):
    """Every f16 widens exactly, and rounding agrees with NumPy on ties, subnormals, overflow and
    NaN."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("levels of x86-64")
    monkeypatch.setenv("WEFT_CPU_FEATURES", "generic")
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    a, c = every.reshape(-1, 1), np.empty((1 << 16, 1), np.float32)
    one = np.ones((1, 1), np.float16)
    step = Gemm(
        1 << 16, 1, 1, BufRef(0), BufRef(1), BufRef(2), (1, 1), (1, 1), (1, 1), "f16", "f32", "f32"
    )
    run(step, a, one, c)
    np.testing.assert_array_equal(c, a.astype(np.float32))
    rng = np.random.default_rng(3)
    bits = np.concatenate([
        rng.integers(0, 1 << 32, 60000, dtype=np.uint32),
        ((np.arange(1 << 15, dtype=np.uint32) << 13) + np.uint32(0x38000000 - (8 << 23))),
        ((np.arange(1 << 15, dtype=np.uint32) << 13) + np.uint32(0x38000000 + 4096)),
    ])  # fmt: skip
    x = bits.view(np.float32).reshape(-1, 1)
    for out_type, dtype in [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)]:
        out = np.empty(x.shape, dtype)
        step = Gemm(
            x.size,
            1,
            1,
            BufRef(0),
            BufRef(1),
            BufRef(2),
            (1, 1),
            (1, 1),
            (1, 1),
            "f32",
            "f32",
            out_type,
        )
        run(step, x, np.ones((1, 1), np.float32), out)
        with np.errstate(over="ignore", invalid="ignore"):
            want = x.astype(dtype)
        np.testing.assert_array_equal(np.isnan(out.astype(np.float32)), np.isnan(x))
        keep = ~np.isnan(x)
        np.testing.assert_array_equal(out[keep].view(np.uint16), want[keep].view(np.uint16))


def test_results_do_not_depend_on_threads():
    """The bits are equal for every plan: one thread, many threads, and each way of packing B."""
    rng = np.random.default_rng(1)
    a, b = (
        rng.standard_normal((400, 500)).astype(np.float32),
        rng.standard_normal((500, 600)).astype(np.float32),
    )
    recipe = GemmTypes("f32", "f32", "f32", gemm.machine())
    step = Gemm(
        400,
        600,
        500,
        BufRef(0),
        BufRef(1),
        BufRef(2),
        (500, 1),
        (600, 1),
        (600, 1),
        "f32",
        "f32",
        "f32",
    )
    results, modes = [], set()
    for threads, mode in itertools.product(
        (1, pool.num_threads(), 64), (None, SHARED, PRIVATE, DIRECT)
    ):
        name, words = gemm_plan.plan(gemm_problem.problem_of(step, recipe), recipe, threads)
        words = list(words)
        if mode is not None:
            words[Word.B_MODE] = mode
            words[Word.SHARED_BYTES] = (
                words[Word.BLOCKS] * words[Word.CHUNK_PANELS] * words[Word.PANEL_BYTES]
            )
            words[Word.WORKER_BYTES] = (
                words[Word.PANEL_OFFSET] + words[Word.TILE_PANELS] * words[Word.PANEL_BYTES]
            )
        modes.add(words[Word.B_MODE])
        words[Word.WORKERS] = max(words[Word.WORKERS], pool.num_threads())
        c = np.full((400, 600), np.nan, np.float32)
        call(f"weft_gemm_{name}", words, a, b, c)
        results.append(c.tobytes())
    assert modes >= {SHARED, PRIVATE} and len(set(results)) == 1


@pytest.mark.parametrize(
    "types",
    [("f32",) * 3, ("bf16", "f32", "bf16"), ("i8", "i32", "i32"), ("c64",) * 3],
    ids="-".join,
)
def test_long_sums_with_few_results_fall_in_parts(types, monkeypatch):
    tune(monkeypatch, gemm_block_steps=(8, 8))
    cases = [
        Case(m, n, 601, types, epilogue=epilogue)
        for m, n in [(1, 3), (3, 1), (8, 9), (13, 70), (40, 5)]
        for epilogue in (False, True)
    ]
    cases += [
        Case(7, 6, 150, types, batch=(2,), outer=(5,)),
        Case(9, 10, 300, types, orders=ORDERS[-1], spread=2),
    ]
    split = [check(case)[1][Word.PARTS] > 1 for case in cases]
    assert sum(split) > len(cases) // 2


def test_parts_of_sums_do_not_depend_on_threads():
    recipe = GemmTypes("f32", "f32", "f32", gemm.machine())
    step = Gemm(
        20,
        30,
        50000,
        BufRef(0),
        BufRef(1),
        BufRef(2),
        (50000, 1),
        (30, 1),
        (30, 1),
        "f32",
        "f32",
        "f32",
    )
    plans = [
        gemm_plan.plan(gemm_problem.problem_of(step, recipe), recipe, threads)[1]
        for threads in (1, 2, 7, 64)
    ]
    assert (
        len(
            {
                tuple(words[w] for w in (Word.PARTS, Word.PART_BLOCKS, Word.BLOCK_STEPS))
                for words in plans
            }
        )
        == 1
    )
    assert plans[0][Word.PARTS] >= 8


def test_sums_across_rows_fall_in_more_parts():
    """All row tiles of a part read the same data, which no other part reads; powers of two are
    split evenly."""
    recipe = GemmTypes("f32", "f32", "f32", gemm.machine())
    parts = []
    for m, across in [(147, False), (147, True), (300, True), (576, True), (6000, True)]:
        step = Gemm(
            m,
            recipe.panel_cols,
            20000,
            BufRef(0),
            BufRef(1),
            BufRef(2),
            (1, m) if across else (20000, 1),
            (recipe.panel_cols, 1),
            (recipe.panel_cols, 1),
            "f32",
            "f32",
            "f32",
        )
        parts.append(
            gemm_plan.plan(gemm_problem.problem_of(step, recipe), recipe, 2)[1][Word.PARTS]
        )
    assert (
        parts[0] < parts[1]
        and parts[2] > 1
        and parts[3] > 1
        and parts[4] == 1
        and {n.bit_count() for n in parts} == {1}
    )


def test_chunks_and_groups(monkeypatch):
    """When packed B must stay small, columns and batch elements are processed in several rounds."""
    tune(monkeypatch, gemm_shared_bytes=1 << 20)
    monkeypatch.setattr(gemm_plan, "_best_split", lambda *_: gemm_plan._TileSplit(SHARED, 48, 3))
    gemm._describe.cache_clear()
    for case in [
        Case(100, 1000, 300),
        Case(60, 200, 301, batch=(7,)),
        Case(60, 200, 301, ("bf16", "f32", "bf16"), (7,)),
    ]:
        _, words = check(case)
        panels = -(-case.n // GemmTypes(*case.types, gemm.machine()).panel_cols)
        assert words[Word.CHUNK_PANELS] < panels or words[Word.GROUP] < math.prod(case.batch)
    gemm._describe.cache_clear()


@pytest.mark.parametrize("limit", [1 << 25, 1 << 19])
def test_batch_elements_with_the_same_operand_share_it_packed(monkeypatch, limit):
    """Rows of blocks times columns of blocks: every block of B is packed once for all blocks of A."""
    tune(monkeypatch, gemm_shared_bytes=limit)
    monkeypatch.setattr(gemm_plan, "_best_split", lambda *_: gemm_plan._TileSplit(SHARED, 48, 2))
    gemm._describe.cache_clear()
    rng = np.random.default_rng(4)
    (high, m), k, (across, n) = (4, 50), 300, (3, 130)
    a, b = (
        rng.standard_normal(shape).astype(np.float32) for shape in [(high, m, k), (across, k, n)]
    )
    c = np.empty((high, across, m, n), np.float32)
    batch = (high, m * k, 0, across * m * n), (across, 0, k * n, m * n)
    step = Gemm(
        m, n, k, BufRef(0), BufRef(1), BufRef(2), (k, 1), (n, 1), (n, 1), "f32", "f32", "f32", batch
    )
    words = run(step, a, b, c)[1]
    np.testing.assert_allclose(c, np.einsum("hmk,wkn->hwmn", a, b), rtol=1e-4, atol=1e-4)
    one = words[Word.BLOCKS] * words[Word.CHUNK_PANELS] * words[Word.PANEL_BYTES]
    assert (
        words[Word.B_SHARE] == high and words[Word.SHARED_BYTES] == words[Word.GROUP] // high * one
    )
    assert words[Word.GROUP] == (high * across if limit == 1 << 25 else high * 2)
    gemm._describe.cache_clear()


def test_plans_merge_dims():
    recipe = GemmTypes("f32", "f32", "f32", gemm.machine())

    def planned(case_batch, **strides):
        step = Gemm(
            4, 5, 6, BufRef(0), BufRef(1), BufRef(2), strides.get("a", (6, 1)), (5, 1), (5, 1), "f32", "f32", "f32",
            case_batch, strides.get("outer", ()),
        )  # fmt: skip
        return gemm_plan.plan(gemm_problem.problem_of(step, recipe), recipe, 2)[1]

    rows = planned(((3, 24, 0, 20), (2, 72, 0, 60)))
    assert (rows[Word.M], rows[Word.BATCH]) == (24, 1)
    two = planned(((3, 24, 30, 20), (2, 72, 90, 60)))
    assert (two[Word.BATCH], two[Word.BATCH_DIMS]) == (6, 1)
    sums = planned((), a=(60, 1), outer=((10, 6, 30),))
    assert (sums[Word.K], sums[Word.SEGMENTS]) == (60, 1)


def test_unsupported_types_say_so():
    for types in [("f32", "i32", "i32"), ("c64", "c128", "c128"), ("f32", "f32", "i32")]:
        with pytest.raises(
            NotImplementedError, match=f"matmul from {types[0]} accumulated in {types[1]}"
        ):
            GemmTypes(*types, VectorUnit(16, 16))


def test_aarch64_source_parses():
    import llvmlite.binding as llvm

    for types in ("f32_f32_f32", "bf16_f32_bf16", "c64_c64_c64"):
        for variant in ("tile", "dot")[: 1 if "c64" in types else 2]:
            for part in gemm.parts(f"weft_gemm_{types}_{variant}", VectorUnit.of([], "aarch64")):
                llvm.parse_assembly(part.text()).verify()


@pytest.mark.parametrize(
    "types", [("f32",) * 3, ("bf16", "f32", "bf16"), ("c64",) * 3], ids="-".join
)
def test_pieces_suffice(types, monkeypatch):
    """A function with only a step's features computes that step; when a step needs more, the next
    function has all features."""
    real_describe, real_ensure, steps = gemm.describe, gemm.ensure, []
    monkeypatch.setattr(gemm, "describe", lambda step: (steps.append(step), real_describe(step))[1])
    monkeypatch.setattr(gemm, "ensure", lambda symbol: real_ensure(symbol, gemm.features(steps[0])))
    monkeypatch.setattr(gemm, "is_on_disk", lambda name: False)
    cases = [
        Case(m, n, 20, types) for m, n in [(1, 3), (5, 70), (6, 64), (27, 16), (40, 129), (200, 33)]
    ]
    cases += [Case(23, 41, 37, types, orders=ORDERS[-1]), Case(9, 65, 700, types, epilogue=True)]
    for case in cases:
        monkeypatch.setattr(gemm, "_made", {})
        steps.clear()
        check(case)
        [made] = gemm._made.values()
        assert made.features == gemm.features(steps[0])
    real_ensure(real_describe(steps[0])[0])
    [made] = gemm._made.values()
    assert {"kernel_6_1_edge", "finish", "pack_a_copy", "pack_b_scalar"} < made.features


REACHING_BACK = [
    Case(256, 256, 256),
    Case(64, 70, 20),
    Case(161, 33, 900),
    Case(100, 65, 900, ("bf16", "f32", "bf16")),
    Case(100, 20, 30, ("c64",) * 3),
    Case(1000, 130, 900, orders=("mk", "nk", "mn")),
    Case(1000, 200, 800, epilogue=True),
    Case(100, 70, 900, epilogue=True),
    Case(257, 9, 400, ("i8", "i32", "i32"), orders=("km", "kn", "mn")),
    Case(130, 65, 401, batch=(3,)),
]


@pytest.mark.parametrize("case", REACHING_BACK, ids=str)
@pytest.mark.parametrize("whole", (False, True), ids=("its features", "all features"))
def test_last_rows_reach_back(case, whole, monkeypatch):
    """Many rows use only the kernels of the most rows; the last kernel recomputes some rows, and
    stores them once."""
    real_describe, real_ensure, steps = gemm.describe, gemm.ensure, []
    monkeypatch.setattr(gemm, "describe", lambda step: (steps.append(step), real_describe(step))[1])
    monkeypatch.setattr(
        gemm,
        "ensure",
        lambda symbol: real_ensure(symbol, None if whole else gemm.features(steps[0])),
    )
    monkeypatch.setattr(gemm, "is_on_disk", lambda name: False)
    monkeypatch.setattr(gemm, "_made", {})
    check(case)
    expected = gemm.features(steps[0])
    assert "back" in expected and all(
        name.startswith("kernel_6") for name in expected if name.startswith("kernel")
    )


def test_an_epilogue_sees_rows_once_that_are_made_twice():
    m, n, k, b = 100, 70, 900, LoopsBuilder()
    word = {name: b.load("place", i, "i64") for i, name in enumerate(PLACE)}
    at = b.iadd(b.imul(b.iadd(word["row"], b.index("r")), n), b.iadd(word["col"], b.index("c")))
    count = StoreElement("y", at, b.op("add", b.load("y", at, "i32"), b.const(1, "i32")))
    bufs = Buf("s", "f32", 4096), Buf("place", "i64", len(PLACE)), Buf("y", "i32", m * n, "inout")
    epilogue = LoopsKernel(
        bufs,
        (For("r", word["rows"], (For("c", word["cols"], (count,), LoopKind.VECTOR),)),),
        name="epilogue",
    )
    step = Gemm(
        m,
        n,
        k,
        BufRef(0),
        BufRef(1),
        BufRef(2),
        (k, 1),
        (n, 1),
        (n, 1),
        "f32",
        "f32",
        "f32",
        epilogue=epilogue,
        epilogue_args=(BufRef(3),),
    )
    assert "back" in gemm.features(step)
    seen = np.zeros((m, n), np.int32)
    run(step, np.ones((m, k), np.float32), np.ones((k, n), np.float32), None, epilogue_args=(seen,))
    np.testing.assert_array_equal(seen, 1)


@pytest.mark.skipif(
    gemm.machine().vector_bytes < 32 or sys.platform != "linux",
    reason="for processors with AVX2 or AVX-512",
)
@pytest.mark.parametrize(
    "types",
    [
        "f32 f32 f32",
        "f64 f64 f64",
        "bf16 f32 f32",
        "i8 i32 i32",
        "u8 i32 i32",
        "i16 i32 i32",
        "u64 u64 u64",
    ],
)
@pytest.mark.parametrize("kind", ["joins", "joins not", "avx2"])
def test_assembled_kernels_equal_llvm_kernels_bitwise(types, kind):
    whole = replace(gemm.machine(), bf16_dot="+avx512bf16" in target.current().features)
    machine = VectorUnit.of(["avx2", "fma", "f16c"], "x86_64") if kind == "avx2" else whole
    machine = replace(machine, bf16_dot=False, i8_dot=False) if kind == "joins not" else machine
    recipe, rng = GemmTypes(*types.split(), machine), np.random.default_rng(5)
    if kind == "joins not" and not GemmTypes(*types.split(), whole).joined:
        pytest.skip("joins nothing")
    write = assembler_modules.kernels(recipe)
    if write is None or (kind != "avx2" and not assembler_support.has_avx512(machine)):
        pytest.skip("LLVM compiles them, or they are those for AVX2")
    names = sorted(
        name
        for name in gemm_tile.all_features(recipe)
        if name.startswith("kernel") and "runs" not in name
    )
    modules = [
        write(recipe, [*names, "blocks"]),
        gemm_tile._kernel_module(recipe, [*names, "blocks"]),
    ]
    kinds = [
        target.link(target.emit_object(text, target.current(), quick), names, {})
        for text, quick in zip(modules, (True, False))
    ]
    dtype, row = DTYPES[recipe.acc], recipe.panel_row_bytes

    def numbers(nbytes):
        if recipe.joined or not recipe.is_float:
            return np.frombuffer(
                values(rng, nbytes // DTYPES[recipe.in_type](0).itemsize, recipe.in_type).tobytes(),
                np.uint8,
            ).copy()
        return np.frombuffer(
            values(rng, nbytes // dtype(0).itemsize, recipe.acc).tobytes(), np.uint8
        ).copy()

    for name, beats, adds in itertools.product(names, (0, 1, 8, 19), (False, True)):
        a, b, src, dst = (
            numbers(8 * 256),
            numbers((beats + 1) * row),
            numbers(6 * row),
            numbers(6 * row),
        )
        last = (
            1
            if name.endswith("_0_edge")
            else recipe.lanes - 3
            if name.endswith("edge") and recipe.lanes > 3
            else recipe.lanes
        )
        made = []
        for kind in kinds:
            out = dst.copy()
            arguments = [
                a.ctypes.data,
                256,
                b.ctypes.data,
                row,
                beats,
                src.ctypes.data if adds else None,
                row,
                out.ctypes.data,
                row,
                last,
                b.ctypes.data,
                0,
            ]
            ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 12)(kind[name])(*arguments)
            made.append(out.tobytes())
        assert made[0] == made[1], (name, beats, adds)
        assert made[0] != dst.tobytes()


@pytest.mark.parametrize(
    "machine,name",
    [(VectorUnit(64, 32, masks=True), "kernel_6_4"), (VectorUnit(32, 16), "kernel_6_2")],
)
def test_a_first_matmul_is_two_modules(machine, name):
    """The kernel is assembled where the assembler supports it."""
    is_assembled = sys.platform == "linux"
    step = Gemm(
        256,
        256,
        256,
        BufRef(0),
        BufRef(1),
        BufRef(2),
        (256, 1),
        (256, 1),
        (256, 1),
        "f32",
        "f32",
        "f32",
    )
    recipe = GemmTypes("f32", "f32", "f32", machine)
    _, words = gemm_plan.plan(gemm_problem.problem_of(step, recipe), recipe, 2)
    kernel, driver = gemm.parts(
        "weft_gemm_f32_f32_f32_tile", machine, gemm_tile.features(recipe, words)
    )
    assert kernel.exports == [name] and kernel.quick == is_assembled and driver.quick
    assert ("define" not in kernel.text()) == is_assembled
    assert kernel.text().count("\n") <= 200 and driver.text().count("\n") <= 240


@pytest.mark.parametrize("m,k,n,a_direct,b_direct", [
    (2048, 2048, 2048, False, False), (2040, 2040, 2040, True, False), (512, 512, 512, True, False), (1024, 1024, 256, True, False),
    (64, 1024, 1024, True, False), (12, 1024, 1024, True, True), (128, 512, 240, True, True), (128, 128, 128, True, True),
])  # fmt: skip
def test_short_vectors_pack_operands_larger_than_a_cache(m, k, n, a_direct, b_direct, monkeypatch):
    """Rows a power of two apart compete for few sets of the cache."""
    tune(monkeypatch, l1_bytes=32 << 10, l2_bytes=512 << 10)
    recipe = GemmTypes("f32", "f32", "f32", VectorUnit(32, 16, f16=True, i16_dot=True))
    step = Gemm(
        m, n, k, BufRef(0), BufRef(1), BufRef(2), (k, 1), (n, 1), (n, 1), "f32", "f32", "f32"
    )
    _, words = gemm_plan.plan(gemm_problem.problem_of(step, recipe), recipe, 2)
    assert (words[Word.A_DIRECT] == 1, words[Word.B_MODE] == DIRECT) == (a_direct, b_direct)


def test_a_driver_looks_for_what_differs_between_its_matmuls(monkeypatch):
    """A later matmul that differs only in the packing makes the driver compile all packings, with
    the existing kernels."""
    flat, many = [
        Gemm(
            6,
            64,
            64,
            BufRef(0),
            BufRef(1),
            BufRef(2),
            (64, 1),
            (64, 1),
            (64, 1),
            "f32",
            "f32",
            "f32",
            batch=batch,
        )
        for batch in ((), ((3, 500, 0, 500),))
    ]
    symbol, _ = gemm.describe(flat)
    features = [gemm.features(flat), gemm.features(flat) | gemm.features(many)]
    alone, both = [gemm.parts(symbol, gemm.machine(), found)[-1].text() for found in features]
    assert "@offsets" in both and "@offsets" not in alone and len(alone) < len(both)
    monkeypatch.setattr(gemm, "_made", {})
    monkeypatch.setattr(gemm, "is_on_disk", lambda name: False)
    gemm.ensure(symbol, features[0])
    gemm.ensure(symbol, features[1])
    [made] = gemm._made.values()
    kernels = [
        {name for name in found if not required_functions.is_driver_feature(name)}
        for found in (features[0], made.features)
    ]
    assert kernels[0] == kernels[1] and features[1] < made.features


@pytest.mark.skipif(
    not assembler_support.has_avx512(gemm.machine()), reason="for processors with AVX-512"
)
@pytest.mark.parametrize(
    "types,packing,quick",
    [
        ("f32 f32 f32", "pack_a_transpose", True),
        ("f64 f64 f64", "pack_b_copy", True),
        ("f64 f64 f64", "pack_a_transpose", False),
        ("bf16 f32 bf16", "pack_b_copy", True),
        ("bf16 f32 bf16", "finish", True),
        ("i8 i32 i32", "pack_a_copy", True),
        ("f16 f32 f16", "pack_b_copy", True),
        ("f16 f32 f16", "pack_b_scalar", False),
    ],
)
def test_what_only_moves_elements_is_assembled(types, packing, quick):
    *_, helpers, _ = gemm_tile.parts(
        GemmTypes(*types.split(), gemm.machine()), "weft_gemm", {"kernel_6_4", packing}
    )
    assert helpers.quick == quick == ("module asm" in helpers.text())
    assert not quick or helpers.text().count("br ") == 0  # no loop remains for LLVM


@pytest.mark.parametrize(
    "n,kernel",
    [
        (8, "kernel_6_0_edge"),
        (9, "kernel_6_1_edge"),
        (72, "kernel_6_0_edge"),
        (32, "kernel_6_2_edge"),
    ],
)
def test_narrow_results_take_narrow_vectors(n, kernel):
    recipe = GemmTypes("f32", "f32", "f32", VectorUnit(64, 32, True))
    step = Gemm(
        60, n, 90, BufRef(0), BufRef(1), BufRef(2), (90, 1), (n, 1), (n, 1), "f32", "f32", "f32"
    )
    name, words = gemm_plan.plan(gemm_problem.problem_of(step, recipe), recipe, 2)
    assert name == "f32_f32_f32_tile" and [
        x for x in gemm_tile.features(recipe, words) if x.endswith("edge")
    ] == [kernel]


_FEW = [
    *(Case(m, n, k) for m, n, k in itertools.product((32, 37, 100), range(1, 13), (32, 36, 420))),
    *(
        Case(41, n, 64, orders=("mk", "nk", "mn"), epilogue=epilogue)
        for n in (3, 4, 5, 12)
        for epilogue in (False, True)
    ),
    Case(50, 7, 40, batch=(3,)),
    Case(50, 6, 40, batch=(3,), broadcast=("b",)),
    Case(33, 5, 8000),
    Case(3000, 10, 2000, epilogue=True),
]


@pytest.mark.skipif(gemm.machine().vector_bytes < 64, reason="wide vectors only")
@pytest.mark.parametrize("case", _FEW, ids=str)
def test_few_columns_fill_vectors_by_four_k_side_by_side(case, monkeypatch):
    tune(monkeypatch, gemm_quads=(32, 0))
    gemm._describe.cache_clear()
    assert check(case)[0] == (
        "weft_gemm_f32_f32_f32_dot" if case.n == 1 else "weft_gemm_f32_f32_f32_quads_tile"
    )


@pytest.mark.parametrize("types", [("f32",) * 3, ("bf16", "f32", "bf16")], ids="-".join)
def test_a_product_with_a_transposed_matrix_packs_no_copy_of_it(types, monkeypatch):
    """Tasks pack their own blocks of it, each once or twice, which stay in a near cache."""
    n = 1024
    tune(monkeypatch, gemm_pack_copy=2, gemm_pack_far=5)
    recipe = GemmTypes(*types, VectorUnit(64, 32, True, True, True, True, True))
    step = Gemm(n, n, n, BufRef(0), BufRef(1), BufRef(2), (n, 1), (1, n), (n, 1), *types)
    _, words = gemm_plan.plan(gemm_problem.problem_of(step, recipe), recipe, 2)
    assert words[Word.SHARED_BYTES] + 2 * words[Word.WORKER_BYTES] <= 5 << 18


def test_few_columns_have_equal_bits_for_kernels_and_threads(monkeypatch):
    """A row's sums do not depend on the number of rows computed together."""
    tune(monkeypatch, gemm_quads=(32, 0))
    rng = np.random.default_rng(2)
    a, b = (
        rng.standard_normal((71, 2000)).astype(np.float32),
        rng.standard_normal((2000, 9)).astype(np.float32),
    )
    recipe, results = GemmTypes("f32", "f32", "f32", gemm.machine()), []
    for rows, threads in itertools.product((71, 70, 69, 40, 32), (1, 64)):
        step = Gemm(
            rows,
            9,
            2000,
            BufRef(0),
            BufRef(1),
            BufRef(2),
            (2000, 1),
            (9, 1),
            (9, 1),
            "f32",
            "f32",
            "f32",
        )
        name, words = gemm_plan.plan(gemm_problem.problem_of(step, recipe), recipe, threads)
        words = list(words)
        words[Word.WORKERS] = max(words[Word.WORKERS], pool.num_threads())
        c = np.full((rows, 9), np.nan, np.float32)
        call(f"weft_gemm_{name}", words, a, b, c)
        results.append(c[:32].tobytes())
    assert len(set(results)) == 1


def test_a_plain_matmul_compiles_its_kernels_and_a_driver():
    """Kernels are optimized, in separate modules; the driver that only selects the packing is not,
    and contains only requested features."""
    symbol, machine, expected = (
        "weft_gemm_f32_f32_f32_tile",
        VectorUnit(16, 16),
        frozenset({"kernel_6_2", "kernel_2_2"}),
    )
    *kernels, driver = gemm.parts(symbol, machine, expected)
    assert [part.exports for part in kernels] == [["kernel_6_2"], ["kernel_2_2"]]
    assert [part.quick for part in (*kernels, driver)] == [False, False, True]
    whole = gemm.parts(symbol, machine)[-1]
    assert "pack" not in driver.text() and "pack" in whole.text()
    assert driver.text().count("\n") < 0.7 * whole.text().count("\n")


def test_long_sums_are_as_exact_as_blocks_make_them():
    """Sums run over blocks of k, so the error of long sums is smaller than in term-by-term
    summation."""
    rng = np.random.default_rng(7)
    for k in (1000, 10000):
        a, b = (
            rng.standard_normal((20, k)).astype(np.float32),
            rng.standard_normal((k, 30)).astype(np.float32),
        )
        c = np.empty((20, 30), np.float32)
        step = Gemm(
            20,
            30,
            k,
            BufRef(0),
            BufRef(1),
            BufRef(2),
            (k, 1),
            (30, 1),
            (30, 1),
            "f32",
            "f32",
            "f32",
        )
        run(step, a, b, c)
        one_by_one = np.zeros_like(c)
        for i in range(k):
            one_by_one += np.outer(a[:, i], b[i])
        exact = a.astype(np.float64) @ b.astype(np.float64)
        assert np.abs(c - exact).max() < np.abs(one_by_one - exact).max()


@pytest.mark.parametrize(
    "types",
    [("f32",) * 3, ("f64",) * 3, ("bf16", "f32", "bf16"), ("i8", "i32", "i32"), ("c64",) * 3],
    ids="-".join,
)
@pytest.mark.parametrize("m,n,k", [(4096, 4096, 4096), (300, 20000, 3000), (20000, 300, 3000), (1000, 1000, 50000), (100, 9000, 9000),
                                   (64, 2048, 100000)])  # fmt: skip
def test_scratch_is_bounded(types, m, n, k):
    """The data packed at a time fits the caches, however large the operands."""
    recipe = GemmTypes(*types, gemm.machine())
    for a, b in [((k, 1), (n, 1)), ((1, m), (1, k))]:
        step = Gemm(m, n, k, BufRef(0), BufRef(1), BufRef(2), a, b, (n, 1), *types)
        for threads in (1, 2, 8):
            words = gemm_plan.plan(gemm_problem.problem_of(step, recipe), recipe, threads)[1]
            assert words[Word.SHARED_BYTES] <= 9 << 20 and words[Word.WORKER_BYTES] <= 2 << 20


ALONG_TYPES = [("f32",) * 3, ("f64",) * 3, ("i32",) * 3, ("bf16", "f32", "bf16"), ("f16", "f32", "f32"), ("i16", "i32", "i32"),
               ("i8", "i32", "i32"), ("u8", "i32", "i32"), ("i8", "f32", "f32")]  # fmt: skip


@pytest.mark.parametrize("types", ALONG_TYPES, ids="-".join)
@pytest.mark.parametrize("level", ["", "avx512", "avx2"])
def test_few_rows_read_b_along_its_rows(types, level, monkeypatch):
    """Assembled for every machine, and compiled by LLVM; with any remainders of columns and of k,
    in C itself or in scratch."""
    if level and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("levels of x86-64")
    if level and gemm.machine().vector_bytes < {"avx512": 64, "avx2": 32}[level]:
        pytest.skip("has no vectors as wide")
    if level:
        monkeypatch.setenv("WEFT_CPU_FEATURES", level)
    tune(monkeypatch, gemm_cached_bytes=(0, 0))
    gemm._describe.cache_clear()
    shapes = [
        (1, 200, 41),
        (1, 33, 8),
        (2, 128, 4),
        (5, 257, 72),
        (8, 160, 20),
        (16, 513, 9),
        (40, 130, 12),
    ]
    modes = [
        check(Case(*shape, types, epilogue=epilogue))[1][Word.B_MODE]
        for shape in shapes
        for epilogue in (False, True)
    ]
    modes.append(check(Case(3, 256, 16, types, batch=(3,)))[1][Word.B_MODE])
    modes.append(check(Case(4, 192, 16, types, orders=ORDERS[1]))[1][Word.B_MODE])
    gemm._describe.cache_clear()
    assert ALONG in modes[:2] or types[0] != "f32"
    assert sum(mode == ALONG for mode in modes) >= 4


def test_a_little_more_than_a_block_is_one():
    """A sum over 513 steps visits C once; longer sums are split into equal blocks."""

    def blocks(k):
        step = Gemm(
            400,
            400,
            k,
            BufRef(0),
            BufRef(1),
            BufRef(2),
            (k, 1),
            (400, 1),
            (400, 1),
            "f32",
            "f32",
            "f32",
        )
        return gemm_plan.plan(gemm_problem.problem_of(step, recipe), recipe, 2)[1][Word.BLOCKS]

    recipe = GemmTypes("f32", "f32", "f32", VectorUnit(64, 32, True, True, True, True, True))
    assert [blocks(k) for k in (512, 513, 576, 577, 1024, 1025)] == [1, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    "types", [("f32",) * 3, ("bf16", "f32", "f32"), ("c64",) * 3], ids="-".join
)
def test_a_sum_in_segments_reads_a_where_it_lies(types, monkeypatch):
    """A is read in place where blocks of k end at its segments; by lists where they do not but
    segments are long; otherwise it is packed."""
    tune(monkeypatch, gemm_block_steps=(16, 16))
    gemm._describe.cache_clear()
    direct = [check(Case(*shape, types, outer=outer, epilogue=epilogue))[1][Word.A_DIRECT]
              for shape in [(50, 130, 64), (13, 70, 32)] for outer in [(2,), (5,), (3, 2)] for epilogue in (False, True)]  # fmt: skip
    lists, packed = [check(Case(50, 130, k, types, outer=(3,)))[1][Word.A_DIRECT] for k in (36, 5)]
    gemm._describe.cache_clear()
    assert (
        sum(direct) >= (1 if types[0] == "c64" else len(direct))
        or not GemmTypes(*types, gemm.machine()).can_read_a_in_place
    )
    assert not packed and lists == IN_RUNS * assembler_support.has_indirect_kernels(
        GemmTypes(*types, gemm.machine())
    )


def test_rows_along_b_have_equal_bits_for_any_thread_count(monkeypatch):
    rng = np.random.default_rng(5)
    a, b = (
        rng.standard_normal((8, 700)).astype(np.float32),
        rng.standard_normal((700, 3000)).astype(np.float32),
    )
    tune(monkeypatch, gemm_cached_bytes=(0, 0))
    recipe, results = GemmTypes("f32", "f32", "f32", gemm.machine()), set()
    step = Gemm(
        8,
        3000,
        700,
        BufRef(0),
        BufRef(1),
        BufRef(2),
        (700, 1),
        (3000, 1),
        (3000, 1),
        "f32",
        "f32",
        "f32",
    )
    for threads in (1, 2, 7, 64):
        name, words = gemm_plan.plan(gemm_problem.problem_of(step, recipe), recipe, threads)
        words = list(words)
        assert words[Word.B_MODE] == (ALONG if recipe.machine.masks else words[Word.B_MODE])
        words[Word.WORKERS] = max(words[Word.WORKERS], pool.num_threads())
        c = np.full((8, 3000), np.nan, np.float32)
        call(f"weft_gemm_{name}", words, a, b, c)
        results.add(c.tobytes())
    assert len(results) == 1


TALL = [(SHARED, 96, 2), (PRIVATE, 402, 3), (PRIVATE, 402, 1), (PRIVATE, 204, 2)]


@pytest.mark.parametrize(
    "types",
    [("f32",) * 3, ("bf16", "f32", "bf16"), ("i8", "i32", "i32"), ("c64",) * 3],
    ids="-".join,
)
@pytest.mark.parametrize("epilogue", [False, True])
@pytest.mark.parametrize("split", TALL, ids=str)
def test_tall_tiles(types, epilogue, split, monkeypatch):
    """A tile with its own B processes its rows in strips; the last strip overlaps the one before."""
    monkeypatch.setattr(gemm_plan, "_best_split", lambda *_: gemm_plan._TileSplit(*split))
    gemm._describe.cache_clear()
    _, words = check(Case(399, 200, 2500, types, epilogue=epilogue))
    gemm._describe.cache_clear()
    simple = types[0] != "bf16" and not epilogue
    assert (
        words[Word.BLOCKS] > 1
        and words[Word.BACK]
        and words[Word.SUMS_IN_C] == (simple and split[0] == PRIVATE)
    )


def test_sums_are_the_same_wherever_they_wait(monkeypatch):
    """In C, in scratch for the whole tile, or in scratch for overlapping rows."""
    rng = np.random.default_rng(11)
    a, b = (
        rng.standard_normal((399, 1700)).astype(np.float32),
        rng.standard_normal((1700, 200)).astype(np.float32),
    )
    step = Gemm(
        399,
        200,
        1700,
        BufRef(0),
        BufRef(1),
        BufRef(2),
        (1700, 1),
        (200, 1),
        (200, 1),
        "f32",
        "f32",
        "f32",
    )
    results = set()
    for split in [*TALL, (DIRECT, 96, 3)]:
        monkeypatch.setattr(
            gemm_plan, "_best_split", lambda *_, split=split: gemm_plan._TileSplit(*split)
        )
        gemm._describe.cache_clear()
        c = np.full((399, 200), np.nan, np.float32)
        run(step, a, b, c)
        results.add(c.tobytes())
    gemm._describe.cache_clear()
    assert len(results) == 1
