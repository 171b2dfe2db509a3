"""Order of additions in generated matmuls: sums in parts, accuracy, equal bits for all threads and kernels."""

import itertools

import numpy as np
import pytest

from tests.codegen.gemm_cases import AVX512, ORDERS, TALL, Case, call, check, run
from tests.harness.tuning import tune
from weft._engine.codegen.gemm import assembler_support, gemm, gemm_plan, gemm_problem
from weft._engine.codegen.gemm.descriptor import ALONG, DIRECT, IN_RUNS, PRIVATE, SHARED, Word
from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.runtime import pool
from weft._engine.ir.program import BufRef, Gemm


def test_results_do_not_depend_on_threads():
    """The bits are equal for every plan: one thread, many threads, and each way of packing B."""
    rng = np.random.default_rng(1)
    a, b = (
        rng.standard_normal((400, 500)).astype(np.float32),
        rng.standard_normal((500, 600)).astype(np.float32),
    )
    gemm_types = GemmTypes("f32", "f32", "f32", gemm.machine())
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
        name, words = gemm_plan.plan(gemm_problem.problem_of(step, gemm_types), gemm_types, threads)
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
    gemm_types = GemmTypes("f32", "f32", "f32", gemm.machine())
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
        gemm_plan.plan(gemm_problem.problem_of(step, gemm_types), gemm_types, threads)[1]
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
    gemm_types = GemmTypes("f32", "f32", "f32", gemm.machine())
    parts = []
    for m, across in [(147, False), (147, True), (300, True), (576, True), (6000, True)]:
        step = Gemm(
            m,
            gemm_types.panel_cols,
            20000,
            BufRef(0),
            BufRef(1),
            BufRef(2),
            (1, m) if across else (20000, 1),
            (gemm_types.panel_cols, 1),
            (gemm_types.panel_cols, 1),
            "f32",
            "f32",
            "f32",
        )
        parts.append(
            gemm_plan.plan(gemm_problem.problem_of(step, gemm_types), gemm_types, 2)[1][Word.PARTS]
        )
    assert (
        parts[0] < parts[1]
        and parts[2] > 1
        and parts[3] > 1
        and parts[4] == 1
        and {n.bit_count() for n in parts} == {1}
    )


def test_few_columns_have_equal_bits_for_kernels_and_threads(monkeypatch):
    """A row's sums do not depend on the number of rows computed together."""
    tune(monkeypatch, gemm_quads=(32, 0))
    rng = np.random.default_rng(2)
    a, b = (
        rng.standard_normal((71, 2000)).astype(np.float32),
        rng.standard_normal((2000, 9)).astype(np.float32),
    )
    gemm_types, results = GemmTypes("f32", "f32", "f32", gemm.machine()), []
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
        name, words = gemm_plan.plan(gemm_problem.problem_of(step, gemm_types), gemm_types, threads)
        words = list(words)
        words[Word.WORKERS] = max(words[Word.WORKERS], pool.num_threads())
        c = np.full((rows, 9), np.nan, np.float32)
        call(f"weft_gemm_{name}", words, a, b, c)
        results.append(c[:32].tobytes())
    assert len(set(results)) == 1


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
        return gemm_plan.plan(gemm_problem.problem_of(step, gemm_types), gemm_types, 2)[1][
            Word.BLOCKS
        ]

    gemm_types = GemmTypes("f32", "f32", "f32", AVX512)
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
    gemm_types, results = GemmTypes("f32", "f32", "f32", gemm.machine()), set()
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
        name, words = gemm_plan.plan(gemm_problem.problem_of(step, gemm_types), gemm_types, threads)
        words = list(words)
        assert words[Word.B_MODE] == (ALONG if gemm_types.machine.masks else words[Word.B_MODE])
        words[Word.WORKERS] = max(words[Word.WORKERS], pool.num_threads())
        c = np.full((8, 3000), np.nan, np.float32)
        call(f"weft_gemm_{name}", words, a, b, c)
        results.add(c.tobytes())
    assert len(results) == 1


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
