"""Generated matmul against NumPy: types, sizes with odd ends, strides, batch and outer dims, uneven rows, epilogues."""

import itertools
import platform

import numpy as np
import pytest

from tests.codegen.gemm_cases import (
    DTYPES,
    EPS,
    ORDERS,
    TALL,
    Case,
    bias_epilogue,
    check,
    run,
    values,
)
from tests.harness.tuning import tune
from weft._engine.codegen.gemm import assembler_support, gemm, gemm_plan
from weft._engine.codegen.gemm.descriptor import ALONG, IN_RUNS, PRIVATE, Word
from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.ir.microkernels import STREAMS
from weft._engine.ir.build import LoopsBuilder
from weft._engine.ir.loops import Buf, For, LoopKind, LoopsKernel, StoreElement
from weft._engine.ir.program import PLACE, BufRef, Gemm
from weft._engine.util.record import replace

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
    gemm_types = GemmTypes(*types, gemm.machine())
    apart = run_rows >= 64 and k != 48 and gemm_types.can_read_a_in_place
    assert (words[Word.BATCH], words[Word.A_DIRECT]) == (
        (1, IN_RUNS)
        if assembler_support.has_indirect_kernels(gemm_types)
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
    assert machine.vector_bytes <= {"avx512-plain": 64, "avx2": 32, "generic": 16}[level]
    assert {unit.instruction for unit in machine.matrix_units} == {"vpmaddwd"}
    for m, n, k in [(1, 1, 1), (7, 33, 9), (50, 40, 30), (40, 1, 50), (1, 50, 40), (13, 130, 400)]:
        check(Case(m, n, k, types))
    for orders in ORDERS[1:]:
        check(Case(23, 41, 37, types, orders=orders, epilogue=True))
    check(Case(9, 10, 11, types, batch=(3,), outer=(2,), spread=3))


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
    monkeypatch.setattr(gemm, "_linked_matmuls", {})
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


@pytest.mark.sampled(3)
@pytest.mark.skipif(gemm.machine().vector_bytes < 64, reason="wide vectors only")
@pytest.mark.parametrize("case", _FEW, ids=str)
def test_few_columns_fill_vectors_by_four_k_side_by_side(case, monkeypatch):
    tune(monkeypatch, gemm_quads=(32, 0))
    gemm._describe.cache_clear()
    assert check(case)[0] == (
        "weft_gemm_f32_f32_f32_dot" if case.n == 1 else "weft_gemm_f32_f32_f32_quads_tile"
    )


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
        and words[Word.REPEATS_ROWS]
        and words[Word.SUMS_IN_C] == (simple and split[0] == PRIVATE)
    )
