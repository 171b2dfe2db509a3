"""Kernels and drivers of generated matmuls: plans, modules, assembled kernels, packing and scratch memory."""

import ctypes
import itertools
import math
import platform
import sys

import ml_dtypes
import numpy as np
import pytest

from tests.codegen.gemm_cases import (
    AVX512,
    DTYPES,
    ORDERS,
    Case,
    check,
    run,
    values,
    whole_machine,
    without,
)
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
from weft._engine.codegen.gemm.descriptor import DIRECT, SHARED, Word
from weft._engine.codegen.ir.gemm_types import GemmTypes, VectorUnit
from weft._engine.codegen.toolchain import target
from weft._engine.ir.program import BufRef, Gemm


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
    gemm_types = GemmTypes("f32", "f32", "f32", gemm.machine())

    def planned(case_batch, **strides):
        step = Gemm(
            4, 5, 6, BufRef(0), BufRef(1), BufRef(2), strides.get("a", (6, 1)), (5, 1), (5, 1), "f32", "f32", "f32",
            case_batch, strides.get("outer", ()),
        )  # fmt: skip
        return gemm_plan.plan(gemm_problem.problem_of(step, gemm_types), gemm_types, 2)[1]

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
        monkeypatch.setattr(gemm, "_linked_matmuls", {})
        steps.clear()
        check(case)
        [module] = gemm._linked_matmuls.values()
        assert module.features == gemm.features(steps[0])
    real_ensure(real_describe(steps[0])[0])
    [module] = gemm._linked_matmuls.values()
    assert {"kernel_6_1_edge", "finish", "pack_a_copy", "pack_b_scalar"} < module.features


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
    whole = whole_machine()
    machine = VectorUnit.of(["avx2", "fma", "f16c"], "x86_64") if kind == "avx2" else whole
    machine = without(machine, "avx512bf16", "avx512vnni") if kind == "joins not" else machine
    gemm_types, rng = GemmTypes(*types.split(), machine), np.random.default_rng(5)
    if kind == "joins not" and not GemmTypes(*types.split(), whole).joined_type:
        pytest.skip("joins nothing")
    write = assembler_modules.kernels(gemm_types)
    if write is None or (kind != "avx2" and not assembler_support.has_avx512(machine)):
        pytest.skip("LLVM compiles them, or they are those for AVX2")
    names = sorted(
        name
        for name in gemm_tile.all_features(gemm_types)
        if name.startswith("kernel") and "runs" not in name
    )
    modules = [
        write(gemm_types, [*names, "blocks"]),
        gemm_tile._kernel_module(gemm_types, [*names, "blocks"]),
    ]
    kinds = [
        target.link(target.emit_object(text, target.current(), quick), names, {})
        for text, quick in zip(modules, (True, False))
    ]
    dtype, row = DTYPES[gemm_types.acc], gemm_types.panel_row_bytes

    def numbers(nbytes):
        if gemm_types.joined_type or not gemm_types.is_float:
            return np.frombuffer(
                values(
                    rng, nbytes // DTYPES[gemm_types.in_type](0).itemsize, gemm_types.in_type
                ).tobytes(),
                np.uint8,
            ).copy()
        return np.frombuffer(
            values(rng, nbytes // dtype(0).itemsize, gemm_types.acc).tobytes(), np.uint8
        ).copy()

    for name, k_steps, adds in itertools.product(names, (0, 1, 8, 19), (False, True)):
        a, b, src, dst = (
            numbers(8 * 256),
            numbers((k_steps + 1) * row),
            numbers(6 * row),
            numbers(6 * row),
        )
        last = (
            1
            if name.endswith("_0_edge")
            else gemm_types.lanes - 3
            if name.endswith("edge") and gemm_types.lanes > 3
            else gemm_types.lanes
        )
        results = []
        for kind in kinds:
            out = dst.copy()
            arguments = [
                a.ctypes.data,
                256,
                b.ctypes.data,
                row,
                k_steps,
                src.ctypes.data if adds else None,
                row,
                out.ctypes.data,
                row,
                last,
                b.ctypes.data,
                0,
            ]
            ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 12)(kind[name])(*arguments)
            results.append(out.tobytes())
        assert results[0] == results[1], (name, k_steps, adds)
        assert results[0] != dst.tobytes()


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
    gemm_types = GemmTypes("f32", "f32", "f32", machine)
    _, words = gemm_plan.plan(gemm_problem.problem_of(step, gemm_types), gemm_types, 2)
    kernel, driver = gemm.parts(
        "weft_gemm_f32_f32_f32_tile", machine, gemm_tile.features(gemm_types, words)
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
    gemm_types = GemmTypes("f32", "f32", "f32", VectorUnit(32, 16, f16=True))
    step = Gemm(
        m, n, k, BufRef(0), BufRef(1), BufRef(2), (k, 1), (n, 1), (n, 1), "f32", "f32", "f32"
    )
    _, words = gemm_plan.plan(gemm_problem.problem_of(step, gemm_types), gemm_types, 2)
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
    alone, both = [
        gemm.parts(symbol, gemm.machine(), feature_set)[-1].text() for feature_set in features
    ]
    assert "@offsets" in both and "@offsets" not in alone and len(alone) < len(both)
    monkeypatch.setattr(gemm, "_linked_matmuls", {})
    monkeypatch.setattr(gemm, "is_on_disk", lambda name: False)
    gemm.ensure(symbol, features[0])
    gemm.ensure(symbol, features[1])
    [module] = gemm._linked_matmuls.values()
    kernels = [
        {name for name in feature_set if not required_functions.is_driver_feature(name)}
        for feature_set in (features[0], module.features)
    ]
    assert kernels[0] == kernels[1] and features[1] < module.features


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
    gemm_types = GemmTypes("f32", "f32", "f32", VectorUnit(64, 32, True))
    step = Gemm(
        60, n, 90, BufRef(0), BufRef(1), BufRef(2), (90, 1), (n, 1), (n, 1), "f32", "f32", "f32"
    )
    name, words = gemm_plan.plan(gemm_problem.problem_of(step, gemm_types), gemm_types, 2)
    assert name == "f32_f32_f32_tile" and [
        x for x in gemm_tile.features(gemm_types, words) if x.endswith("edge")
    ] == [kernel]


@pytest.mark.parametrize("types", [("f32",) * 3, ("bf16", "f32", "bf16")], ids="-".join)
def test_a_product_with_a_transposed_matrix_packs_no_copy_of_it(types, monkeypatch):
    """Tasks pack their own blocks of it, each once or twice, which stay in a near cache."""
    n = 1024
    tune(monkeypatch, gemm_pack_copy=2, gemm_pack_far=5)
    gemm_types = GemmTypes(*types, AVX512)
    step = Gemm(n, n, n, BufRef(0), BufRef(1), BufRef(2), (n, 1), (1, n), (n, 1), *types)
    _, words = gemm_plan.plan(gemm_problem.problem_of(step, gemm_types), gemm_types, 2)
    assert words[Word.SHARED_BYTES] + 2 * words[Word.WORKER_BYTES] <= 5 << 18


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


@pytest.mark.parametrize(
    "types",
    [("f32",) * 3, ("f64",) * 3, ("bf16", "f32", "bf16"), ("i8", "i32", "i32"), ("c64",) * 3],
    ids="-".join,
)
@pytest.mark.parametrize("m,n,k", [(4096, 4096, 4096), (300, 20000, 3000), (20000, 300, 3000), (1000, 1000, 50000), (100, 9000, 9000),
                                   (64, 2048, 100000)])  # fmt: skip
def test_scratch_is_bounded(types, m, n, k):
    """The data packed at a time fits the caches, however large the operands."""
    gemm_types = GemmTypes(*types, gemm.machine())
    for a, b in [((k, 1), (n, 1)), ((1, m), (1, k))]:
        step = Gemm(m, n, k, BufRef(0), BufRef(1), BufRef(2), a, b, (n, 1), *types)
        for threads in (1, 2, 8):
            words = gemm_plan.plan(gemm_problem.problem_of(step, gemm_types), gemm_types, threads)[
                1
            ]
            assert words[Word.SHARED_BYTES] <= 9 << 20 and words[Word.WORKER_BYTES] <= 2 << 20
