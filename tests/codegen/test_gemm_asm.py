"""Assembled packing functions and edge kernels of matmuls against their LLVM versions: equal bits
for all small sizes, and no write out of bounds."""

import ctypes
import itertools

import ml_dtypes
import numpy as np
import pytest

from tests.codegen.gemm_cases import whole_machine, without
from weft._engine.codegen.gemm import assembler_modules, assembler_support, gemm, gemm_tile
from weft._engine.codegen.ir.gemm_types import GemmTypes, VectorUnit
from weft._engine.codegen.ir.writer import Declarations
from weft._engine.codegen.toolchain import target
from weft._engine.util.record import replace

SIZES = [0, 1, 2, 3, 4, 5, 7, 15, 16, 17, 31, 33, 63, 64]


@pytest.fixture(params=["avx512", "avx2"])
def machine(request):
    """Return this machine if it has AVX-512, and a machine with AVX2 only."""
    if request.param == "avx512":
        if not assembler_support.has_avx512(gemm.machine()):
            pytest.skip("for processors with AVX-512")
        return whole_machine()
    machine = VectorUnit.of(["avx2", "fma", "f16c"], "x86_64")
    if gemm.machine().vector_bytes < 32 or not assembler_support.has_avx2(machine):
        pytest.skip("for processors with AVX2")
    return machine


@pytest.fixture
def avx512():
    if not assembler_support.has_avx512(gemm.machine()):
        pytest.skip("for processors with AVX-512")


def functions(gemm_types, wanted, exports, monkeypatch):
    """Return the functions of `wanted`, assembled and compiled by LLVM."""
    text = gemm_tile._helper_module(gemm_types, wanted)
    assert "module asm" in text and "fcmp" not in text
    libraries = [target.link(target.emit_object(text, target.current(), True), exports, {})]
    monkeypatch.setattr(assembler_support, "has_avx512", lambda machine: False)
    monkeypatch.setattr(assembler_support, "has_avx2", lambda machine: False)
    text = gemm_tile._helper_module(gemm_types, wanted)
    assert "module asm" not in text
    return [*libraries, target.link(target.emit_object(text, target.current()), exports, {})]


def numbers(rng, size, name):
    """Return memory filled with numbers of a type; floats include NaNs, infinities and values that
    are hard to round."""
    if name not in ("f32", "bf16", "f16"):
        return rng.integers(0, 256, size, np.uint8)
    floats = rng.standard_normal(size // 4, np.float32) * np.float32(2) ** rng.integers(
        -30, 18, size // 4
    ).astype(np.float32)
    odd = np.array(
        [np.nan, np.inf, -np.inf, -0.0, 1e-40, 3.3e38, 65519, 65520, 1.00390625, 2**-25], np.float32
    )
    floats[::7] = rng.choice(odd, len(floats[::7]))
    dtype = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}[name]
    with np.errstate(over="ignore"):
        return np.resize(floats.astype(dtype).view(np.uint8), size)


def call(function, *arguments):
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arguments))(function)(*arguments)


PACKED = [
    "f32 f32 f32",
    "f64 f64 f64",
    "bf16 f32 bf16",
    "i8 i32 i32",
    "u8 i32 i32",
    "i16 i32 i32",
    "f16 f32 f16",
]


@pytest.mark.parametrize("types", [*PACKED, "bf16 f32 f32 alone"])
@pytest.mark.parametrize("operand", "ab")
def test_packed_lines(types, operand, machine, monkeypatch):
    in_type, acc, out, *alone = types.split()
    gemm_types, rng = (
        GemmTypes(in_type, acc, out, without(machine, "avx512bf16") if alone else machine),
        np.random.default_rng(3),
    )
    if assembler_modules.function(gemm_types, f"pack_{operand}_copy") is None:
        pytest.skip("LLVM compiles it")
    kinds = functions(gemm_types, {f"pack_{operand}_copy"}, [f"pack_{operand}"], monkeypatch)
    width = gemm_types.panel_cols
    for lines, length in itertools.product(SIZES, SIZES if operand == "a" else range(width + 1)):
        stride = 64 * gemm_types.in_bytes + 24
        source, results = numbers(rng, 65 * stride, gemm_types.in_type), []
        for kind in kinds:
            packed = np.full(66 * 640, 77, np.uint8)
            if operand == "a":  # (a line may be padded to a whole vector)
                call(
                    kind["pack_a"],
                    packed.ctypes.data,
                    640,
                    source.ctypes.data,
                    stride,
                    gemm_types.in_bytes,
                    lines,
                    length,
                )
                used = -(-length // gemm_types.k_per_step) * gemm_types.step_bytes
                table = packed.reshape(66, 640)
                results.append(table[:lines, :used].copy())
                assert (table[lines:] == 77).all() and (table[:, -(-used // 64) * 64 :] == 77).all()
            else:
                call(
                    kind["pack_b"],
                    packed.ctypes.data,
                    source.ctypes.data,
                    gemm_types.in_bytes,
                    stride,
                    length,
                    lines,
                )
                results.append(packed)
        np.testing.assert_array_equal(*results, err_msg=f"{lines} lines of {length}")


@pytest.mark.parametrize("operand", "ab")
def test_transposed_lines(operand, machine, monkeypatch):
    gemm_types, rng = GemmTypes("f32", "f32", "f32", machine), np.random.default_rng(3)
    kinds = functions(gemm_types, {f"pack_{operand}_transpose"}, [f"pack_{operand}"], monkeypatch)
    source = rng.standard_normal((70, 70), np.float32)
    for steps, others in itertools.product(
        SIZES, SIZES if operand == "a" else range(gemm_types.panel_cols + 1)
    ):
        for kind in kinds:
            packed = np.zeros((90, 160 if operand == "a" else gemm_types.panel_cols), np.float32)
            if operand == "a":  # adjacent rows become rows of steps
                call(
                    kind["pack_a"],
                    packed.ctypes.data,
                    640,
                    source.ctypes.data,
                    4,
                    280,
                    others,
                    steps,
                )
                want = source[:steps, :others].T
            else:
                call(kind["pack_b"], packed.ctypes.data, source.ctypes.data, 280, 4, others, steps)
                want = source[:others, :steps].T
            np.testing.assert_array_equal(
                packed[: len(want), : want.shape[1]],
                want,
                err_msg=f"{steps} steps, {others} rows or columns",
            )


@pytest.mark.parametrize(
    "types",
    [
        "f32 f32 f32",
        "f64 f64 f64",
        "bf16 f32 bf16",
        "f16 f32 f16",
        "i8 i32 i32",
        "i8 i32 i8",
        "i16 i16 i16",
        "u16 u16 u16",
        "i8 i32 f32",
        "i64 i64 i64",
    ],
)
@pytest.mark.parametrize("apart", [False, True], ids=["dense", "apart"])
def test_finished_sums(types, apart, avx512, monkeypatch):
    gemm_types, rng = GemmTypes(*types.split(), gemm.machine()), np.random.default_rng(4)
    kinds = functions(gemm_types, {"finish"}, ["finish"], monkeypatch)
    row_bytes, size = gemm_types.panel_row_bytes, gemm_types.out_bytes
    column = 3 * size if apart else size
    for rows, cols in itertools.product((0, 1, 6), range(gemm_types.panel_cols + 1)):
        sums, results = numbers(rng, 6 * row_bytes, gemm_types.acc), []
        for kind in kinds:
            c = np.full(6 * (row_bytes * 3 + 8), 77, np.uint8)
            call(
                kind["finish"],
                sums.ctypes.data,
                row_bytes,
                rows,
                cols,
                c.ctypes.data,
                row_bytes * 3 + 8,
                column,
            )
            results.append(c)
        np.testing.assert_array_equal(*results, err_msg=f"{rows} x {cols}")
        assert rows * cols == 0 or (results[0] != 77).any()


@pytest.mark.parametrize("types", ["i8 i32 i32", "u8 i32 i32"])
def test_ends_of_panels(types, avx512, monkeypatch):
    gemm_types, rng = GemmTypes(*types.split(), gemm.machine()), np.random.default_rng(5)
    if not gemm_types.flips_signs:
        pytest.skip("no instruction for quadruples of bytes")
    kinds = functions(gemm_types, {"pack_b_copy"}, ["end_panel"], monkeypatch)
    for steps in SIZES:
        panels = [numbers(rng, (65 + 1) * gemm_types.panel_row_bytes, "i8")] * 2
        panels = [panel.copy() for panel in panels]
        for kind, panel in zip(kinds, panels):
            call(kind["end_panel"], panel.ctypes.data, steps)
        np.testing.assert_array_equal(*panels, err_msg=f"{steps} steps")


@pytest.mark.parametrize("types", ["f32 f32 f32", "f64 f64 f64", "i16 i32 i32"])
def test_narrow_panels_are_cleared_without_masks(types):
    """The padding is multiplied, and subnormal numbers would take a hundred times as long."""
    plain = VectorUnit.of(["avx2", "fma", "f16c"], "x86_64")
    text = lambda machine: gemm_tile._pack_panel(
        GemmTypes(*types.split(), machine), Declarations(), {}
    )
    clears = [
        text.count("store <32 x i8> zeroinitializer")
        for text in (text(plain), text(replace(plain, masks=True)))
    ]
    gemm_types = GemmTypes(*types.split(), plain)
    assert clears == [gemm_types.panel_row_bytes // 32 * gemm_types.is_float, 0]
