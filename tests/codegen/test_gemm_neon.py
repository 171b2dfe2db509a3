"""Kernels for NEON, checked by their code and, as their text names no processor, by running it
here."""

import collections
import ctypes
import re

import numpy as np
import pytest

from weft._engine.codegen.gemm import gemm, gemm_micro
from weft._engine.codegen.ir.gemm_types import GemmTypes, VectorUnit
from weft._engine.codegen.ir.writer import module_of
from weft._engine.ir.program import BufRef, Gemm

NEON = VectorUnit(16, 32, f16=True)
DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "c64": np.complex64}


def inner_loop(text, cpu, features=""):
    """Return the counts of instructions of a compiled module's loop (from a label to the branch back
    to it) with the most products."""
    binding = pytest.importorskip("llvmlite.binding")
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = binding.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(
        cpu=cpu, features=features, opt=1
    )
    assembly = machine.emit_assembly(binding.parse_assembly(text))
    lines, labels, loops = assembly.splitlines(), {}, []
    for number, line in enumerate(lines):
        if label := re.match(r"(\.L\w+):", line):
            labels[label[1]] = number
        back = re.match(r"\tb\.\w+\t(\.L\w+)", line)
        if back and back[1] in labels:
            loops.append(
                [
                    text.split()[0]
                    for text in lines[labels[back[1]] : number]
                    if re.match(r"\t[a-z]", text)
                ]
            )
    return collections.Counter(max(loops, key=lambda body: sum("mla" in name for name in body)))


@pytest.mark.parametrize("cpu", ["neoverse-n1", "neoverse-v1", "apple-m1"])
@pytest.mark.parametrize("type", ["f32", "f64", "i32"])
def test_a_tile_multiplies_by_elements(type, cpu):
    """Two steps of 8 rows and 3 vectors are 48 products and 14 register loads: no element is
    broadcast to a whole register, and none is spilled."""
    gemm_types = GemmTypes(type, type, type, NEON)
    assert (gemm_types.rows, gemm_types.vectors, gemm_types.panel_cols) == (
        8,
        3,
        48 // gemm_types.acc_bytes,
    )
    text = module_of(lambda decls: gemm_micro.kernels(gemm_types, decls, ["kernel_8_3"]))
    loop = inner_loop(text, cpu)
    assert loop["mla" if type == "i32" else "fmla"] == 48
    assert loop["ldr"] + 2 * loop["ldp"] == 14
    assert not {"ld1r", "dup", "str", "stp"} & loop.keys()


@pytest.mark.parametrize("type", DTYPES)
@pytest.mark.parametrize(
    "m,n,k",
    [
        (1, 1, 1),
        (7, 11, 5),
        (8, 12, 8),
        (9, 13, 3),
        (61, 50, 39),
        (100, 24, 400),
        (3, 96, 64),
        (33, 256, 17),
    ],
)
def test_products_by_tiles_of_eight_rows(type, m, n, k, monkeypatch):
    monkeypatch.setattr(gemm, "machine", lambda: NEON)
    monkeypatch.setattr(gemm, "_linked_matmuls", {})
    monkeypatch.setenv("WEFT_CACHE_DIR", "off")  # where objects are looked up by this processor
    rng, dtype = np.random.default_rng(m), DTYPES[type]
    a, b = (rng.integers(-9, 9, shape).astype(dtype) for shape in ((m, k), (k, n)))
    step = Gemm(m, n, k, BufRef(0), BufRef(1), BufRef(2), (k, 1), (n, 1), (n, 1), type, type, type)
    symbol, words = gemm.describe(step)
    c, words_array = np.full((m, n), 77, dtype), (ctypes.c_int64 * len(words))(*words)
    for index, array in zip(gemm.POINTERS, (a, b, c)):
        words_array[index] = array.ctypes.data
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(gemm.ensure(symbol, gemm.features(step)))(words_array)
    np.testing.assert_array_equal(c, a @ b)
