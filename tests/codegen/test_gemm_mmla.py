"""Products by BFMMLA, SMMLA and UMMLA, checked by their plans, by their code and, on aarch64, by
running it."""

import ctypes
import itertools

import ml_dtypes
import numpy as np
import pytest

from tests.codegen.gemm_cases import ORDERS, Case, check, run
from tests.codegen.test_gemm_neon import inner_loop
from weft._engine.codegen.gemm import gemm, gemm_micro, gemm_pack_pairs, gemm_plan, gemm_problem
from weft._engine.codegen.gemm.descriptor import Word
from weft._engine.codegen.ir.gemm_types import GemmTypes, VectorUnit
from weft._engine.codegen.ir.microkernels import kernel_name, tiles
from weft._engine.codegen.ir.writer import module_of
from weft._engine.codegen.toolchain import arm_features, loader, target
from weft._engine.codegen.toolchain.native_library import LibraryModule, link
from weft._engine.ir.program import BufRef, Gemm

MMLA = VectorUnit.of(["bf16", "i8mm"], "aarch64")
#: types of operands, sums and results -> the instruction
TYPES = {
    ("bf16", "f32", "f32"): "bfmmla",
    ("bf16", "bf16", "bf16"): "bfmmla",
    ("i8", "i32", "i32"): "smmla",
    ("i8", "i8", "i8"): "smmla",
    ("u8", "i32", "i32"): "ummla",
}
has_units = pytest.mark.skipif(
    loader.architecture() != "aarch64" or arm_features.matrix_features() != ("bf16", "i8mm"),
    reason="needs an aarch64 processor with BFMMLA and SMMLA, or QEMU (make arm)",
)


@pytest.fixture(autouse=True)
def units(monkeypatch):
    """Use the units, which are not chosen by default."""
    monkeypatch.setenv("WEFT_CPU_FEATURES", "mmla")


def plan(m, n, k, types=("bf16", "f32", "f32"), machine=MMLA):
    """Return the name and the words of the plan of a product of dense operands."""
    step = Gemm(m, n, k, BufRef(0), BufRef(1), BufRef(2), (k, 1), (n, 1), (n, 1), *types)
    gemm_types = GemmTypes(*types, machine)
    return gemm_plan.plan(gemm_problem.problem_of(step, gemm_types), gemm_types, 2)


@pytest.mark.parametrize("cpu", ["neoverse-v1", "neoverse-n2", "neoverse-v2", "apple-m2"])
@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_a_step_is_24_products_of_14_loads(types, cpu):
    """A step of 8 rows and 12 columns: 4 pairs of rows, which take two loads each, by 6 pairs of
    columns. No register is spilled or copied."""
    gemm_types = GemmTypes(*types, MMLA, tiles=True)
    assert (gemm_types.rows, gemm_types.panel_cols, gemm_types.step_bytes) == (8, 12, 8)
    text = module_of(lambda decls: gemm_micro.kernels(gemm_types, decls, ["kernel_8_3"]))
    loop = inner_loop(text, cpu, "+bf16,+i8mm")
    assert loop[TYPES[types]] == 24
    assert loop["ldr"] + loop["ld1"] + 2 * loop["ldp"] == 14
    assert not {"str", "stp", "dup", "mov", "zip1"} & loop.keys()


INT8 = GemmTypes("i8", "i32", "i32", MMLA, tiles=True)


@pytest.mark.parametrize("tile", [tile for tile in tiles(INT8) if tile[1]], ids=str)
def test_smaller_kernels_multiply_pairs(tile):
    text = module_of(lambda decls: gemm_micro.kernels(INT8, decls, [kernel_name(*tile)]))
    loop = inner_loop(text, "neoverse-v1", "+i8mm")
    rows, vectors, _ = tile
    assert loop["smmla"] == (rows + 1) // 2 * 2 * vectors


def arrange(source, pattern):
    """Return the array in memory of `source[line, k, byte]`, and the strides of lines and of k."""
    lines, k, item = source.shape
    if pattern == "dense k":
        return source, k * item, item
    if pattern == "dense lines":
        return np.ascontiguousarray(source.swapaxes(0, 1)), item, lines * item
    return np.repeat(source, 3, 1), 3 * k * item, 3 * item


def pack(function, operand, memory, strides, shape, row_bytes):
    """Return the packed rows of A or steps of B; bytes that are not written are 255."""
    lines, k, steps = shape
    packed = np.full((lines if operand == "a" else steps, row_bytes // 8, 8), 255, np.uint8)
    first = [row_bytes] if operand == "a" else []
    arguments = [*first, memory.ctypes.data, *strides, lines, k]
    kinds = [ctypes.c_void_p, *[ctypes.c_int64] * len(arguments)]
    ctypes.CFUNCTYPE(None, *kinds)(function)(packed.ctypes.data, *arguments)
    return packed


PATTERNS = {
    ("a", "copy"): "dense k",
    ("a", "transpose"): "dense lines",
    ("a", "scalar"): "spread",
    ("b", "copy"): "dense lines",
    ("b", "transpose"): "dense k",
    ("b", "scalar"): "spread",
}


@pytest.mark.parametrize("operand,path", PATTERNS, ids="-".join)
@pytest.mark.parametrize("types", [("bf16", "f32", "f32"), ("i8", "i32", "i32")], ids="-".join)
def test_packed_steps(types, operand, path, monkeypatch):
    """The packing has no instructions of its own, so it runs on all processors."""
    monkeypatch.setenv("WEFT_CACHE_DIR", "off")
    gemm_types = GemmTypes(*types, MMLA, tiles=True)
    write = {"a": gemm_pack_pairs.pack_a, "b": gemm_pack_pairs.pack_b}[operand]
    name, needed = f"pack_{operand}", [f"pack_{operand}_{path}"]
    text = lambda: module_of(lambda decls: write(gemm_types, decls, needed))
    function = link([LibraryModule(f"{types} {needed}", text, [name])])[name]
    item, per, rng = gemm_types.in_bytes, gemm_types.k_per_step, np.random.default_rng(1)
    for lines, k in itertools.product((1, 3, 4, 9, 12), (1, per - 1, per, 2 * per + 1, 5 * per)):
        steps = -(-k // per)
        source = rng.integers(1, 99, (lines, k, item), np.uint8)
        want = np.zeros((lines, steps * per, item), np.uint8)
        want[:, :k] = source
        want = want.reshape(lines, steps, 8)
        want = want if operand == "a" else want.swapaxes(0, 1)
        row_bytes = 8 * steps + 8 if operand == "a" else gemm_types.panel_row_bytes
        memory, *strides = arrange(source, PATTERNS[operand, path])
        packed = pack(function, operand, memory, strides, (lines, k, steps), row_bytes)
        np.testing.assert_array_equal(packed[:, : want.shape[1]], want)
        assert np.all(packed[:, want.shape[1] :] == 255)


@pytest.mark.parametrize(
    "types,m,n,k,uses_unit",
    [
        (("bf16", "f32", "f32"), 64, 64, 64, True),
        (("bf16", "bf16", "bf16"), 3, 200, 100, True),
        (("i8", "i32", "i32"), 64, 64, 64, True),
        (("u8", "i32", "i32"), 64, 64, 64, True),
        (("bf16", "f32", "f32"), 2, 4096, 4096, False),
        (("bf16", "f32", "f32"), 8, 8, 8, False),
        (("bf16", "f32", "f32"), 512, 1, 512, False),
        (("f16", "f32", "f32"), 64, 64, 64, False),
        (("i16", "i32", "i32"), 64, 64, 64, False),
        (("f32", "f32", "f32"), 64, 64, 64, False),
        (("i8", "f32", "f32"), 64, 64, 64, False),
    ],
)
def test_which_products_use_the_unit(types, m, n, k, uses_unit):
    assert ("_tiles" in plan(m, n, k, types)[0]) == uses_unit
    assert "_tiles" not in plan(m, n, k, types, VectorUnit.of([], "aarch64"))[0]


def test_whole_steps_of_rows_are_read_in_place():
    assert [plan(64, 64, k)[1][Word.A_DIRECT] for k in (64, 66, 68)] == [1, 0, 1]


@pytest.mark.parametrize(
    "bits,features", [(0, "-sve"), (1 << 14, "-sve,+bf16"), (3 << 13, "-sve,+bf16,+i8mm")]
)
def test_features_are_those_that_linux_reports(bits, features, monkeypatch):
    named = [name for name, bit in arm_features._BITS.items() if bits & bit]
    monkeypatch.setattr(arm_features, "matrix_features", lambda: tuple(named))
    monkeypatch.setattr(loader, "architecture", lambda: "aarch64")
    monkeypatch.setattr(target, "_host", lambda: ("generic", "-sve"))
    assert target._make.__wrapped__("mmla").features == features
    assert target._make.__wrapped__(None).features == "-sve"


def test_people_are_told_of_units(monkeypatch):
    monkeypatch.setattr(target, "_make", target._make.__wrapped__)
    monkeypatch.setattr(loader, "architecture", lambda: "aarch64")
    monkeypatch.setattr(arm_features, "matrix_features", lambda: ("bf16", "i8mm"))
    assert target.tile_unit() == "BFMMLA and SMMLA, in use"
    monkeypatch.delenv("WEFT_CPU_FEATURES")
    advice = "choose with WEFT_CPU_FEATURES=mmla"
    assert target.tile_unit() == f"BFMMLA and SMMLA, not in use ({advice})"
    monkeypatch.setattr(arm_features, "matrix_features", lambda: ())
    assert target.tile_unit() == "none"


@has_units
def test_units_are_chosen_on_request_only(monkeypatch):
    assert gemm.machine().tile_speeds == MMLA.tile_speeds
    monkeypatch.delenv("WEFT_CPU_FEATURES")
    assert not gemm.machine().tile_speeds


@has_units
@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize(
    "m,n,k",
    [
        (3, 200, 100),
        (7, 100, 50),
        (8, 12, 400),
        (9, 61, 67),
        (64, 64, 64),
        (61, 50, 39),
        (100, 24, 1000),
        (33, 256, 17),
        (130, 150, 3500),
    ],
)
def test_products(m, n, k, types):
    assert check(Case(m, n, k, types))[0].endswith("_tiles_tile")


@has_units
@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("orders", ORDERS, ids="-".join)
@pytest.mark.parametrize("spread", [1, 2])
def test_layouts(types, orders, spread):
    for m, n, k in [(40, 40, 40), (35, 29, 53)]:
        symbol, _ = check(Case(m, n, k, types, orders=orders, spread=spread))
        assert symbol.endswith("_tiles_tile")


@has_units
@pytest.mark.parametrize("types", [t for t in TYPES if t[1] != "i8"], ids="-".join)
@pytest.mark.parametrize("broadcast", [(), ("a",), ("b",)], ids=str)
@pytest.mark.parametrize("outer", [(), (3,)])
def test_batches_with_epilogues(types, broadcast, outer):
    case = Case(21, 30, 70, types, (5,), outer, broadcast=broadcast, epilogue=True)
    assert check(case)[0].endswith("_tiles_tile")


def product(a, b):
    """Return the product of two bfloat16 matrices, with float32 sums."""
    (m, k), n = a.shape, b.shape[1]
    c = np.full((m, n), 77, np.float32)
    step = Gemm(
        m, n, k, BufRef(0), BufRef(1), BufRef(2), (k, 1), (n, 1), (n, 1), "bf16", "f32", "f32"
    )
    assert run(step, a, b, c)[0].endswith("_tiles_tile")
    return c


@has_units
def test_infinities_and_nans_propagate():
    a, b = (np.ones((40, 40), ml_dtypes.bfloat16) for _ in range(2))
    a[3, 5], a[7, 39], b[2, 9] = np.inf, np.nan, -np.inf
    with np.errstate(all="ignore"):
        want = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(product(a, b), want)


@has_units
@pytest.mark.parametrize("distance", [1, 2, 4], ids=["pairs", "instruction", "instructions"])
def test_inexact_sums_round_to_odd(distance):
    a, b = np.ones((40, 40), ml_dtypes.bfloat16), np.zeros((40, 40), ml_dtypes.bfloat16)
    b[: 3 * distance : distance] = [[1], [2.0**-30], [-1]]
    np.testing.assert_array_equal(product(a, b), 2.0**-23)


@has_units
def test_subnormal_operands_count_as_zeros():
    tiny = ml_dtypes.finfo(ml_dtypes.bfloat16).smallest_subnormal
    a = np.full((40, 40), tiny, ml_dtypes.bfloat16)
    b = np.full((40, 40), 2.0**100, ml_dtypes.bfloat16)
    np.testing.assert_array_equal(product(a, b), 0)
