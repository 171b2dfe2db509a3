"""Matmuls that read A in place by lists: kernels bit for bit, windows and transposed rows against
NumPy, any number of threads."""

import ctypes
import itertools

import numpy as np
import pytest

from tests.codegen.gemm_cases import DTYPES, Case, call, check, run, values
from weft._engine.codegen.gemm import assembler_support, gemm, gemm_plan, gemm_problem, gemm_tile
from weft._engine.codegen.gemm.avx512 import kernel_module
from weft._engine.codegen.gemm.descriptor import IN_RUNS, Word
from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain import target
from weft._engine.ir.program import BufRef, Gemm

pytestmark = pytest.mark.skipif(
    not assembler_support.has_avx512(gemm.machine()), reason="for processors with AVX-512"
)
REFS = BufRef(0), BufRef(1), BufRef(2)


@pytest.mark.parametrize("types", [("f32",) * 3, ("f64",) * 3, ("u64",) * 3], ids="-".join)
def test_lists_give_the_bits_of_even_rows(types):
    """An A with uneven rows and steps against the same A packed, in kernels of every shape."""
    gemm_types, rng = GemmTypes(*types, gemm.machine()), np.random.default_rng(3)
    names = sorted(name for name in gemm_tile.all_features(gemm_types) if name.startswith("kernel"))
    text = kernel_module.module(gemm_types, [*names, "blocks"])
    kernels = target.link(target.emit_object(text, target.current(), True), names, {})
    dtype, row, size = DTYPES[gemm_types.acc], gemm_types.panel_row_bytes, gemm_types.acc_bytes
    image = values(rng, (4000,), gemm_types.acc)
    assert sum("runs" in name for name in names) == len(names) // 2

    for name, step, features, adds in itertools.product(
        [x for x in names if "runs" in x], (1, 7), ((), (19,), (8, 1, 12)), (False, True)
    ):
        starts = rng.permutation(6)[:6] * 300 + 1
        offsets = [int(x) for x in rng.integers(0, 1000, len(features))]
        k_steps = sum(features)
        at = np.array(
            [o + step * i for o, count in zip(offsets, features) for i in range(count)], np.int64
        )
        a = (
            np.ascontiguousarray(image[starts[:, None] + at[None]])
            if k_steps
            else np.zeros((6, 1), dtype)
        )
        rows = np.array(
            [image.ctypes.data + size * s for s in starts] + [image.ctypes.data] * 16, np.int64
        )
        listed = np.array(
            [step * size, *(x for o, c in zip(offsets, features) for x in (c, o * size)), 0, 0],
            np.int64,
        )
        b, src = (values(rng, (n * row // size,), gemm_types.acc) for n in (k_steps + 1, 6))
        dst = src + dtype(1000)
        last, results = (
            gemm_types.lanes - 3 if name.endswith("edge") and "_0_" not in name else 1,
            [],
        )
        for kernel, first, second in (
            (name, rows, listed.ctypes.data),
            (name.replace("_runs", ""), a, max(k_steps, 1) * size),
        ):
            out = dst.copy()
            arguments = [
                first.ctypes.data,
                second,
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
            ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 12)(kernels[kernel])(*arguments)
            results.append(out.tobytes())
        assert results[0] == results[1] != dst.tobytes(), (name, step, features, adds)


def windows(images, high, across, features, taps, stride):
    """Return the offsets of a window on images, the strides (image, row, position) in elements, and
    their number."""
    strides = (high * across * features, across * features * stride, features * stride)
    return strides, (images, (high - taps) // stride + 1, (across - taps) // stride + 1)


SHAPES = [
    (2, 10, 17, 8, 3, 1, 9),
    (3, 9, 23, 17, 2, 1, 70),
    (1, 34, 34, 64, 3, 1, 64),
    (2, 19, 33, 3, 5, 2, 130),
    (2, 40, 9, 12, 1, 2, 32),
]


@pytest.mark.parametrize("types", [("f32",) * 3, ("f64",) * 3, ("i32",) * 3], ids="-".join)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_windows_and_their_kernels_gradient(types, shape):
    """Windows as rows, and windows as the summed dim, where rows are not contiguous."""
    *sizes, out = shape
    images, high, across, features, taps, _ = sizes
    (n, y, x), places = windows(*sizes)
    rng = np.random.default_rng(7)
    image, kernel = (
        values(rng, (images, high, across, features), types[0]),
        values(rng, (taps * taps * features, out), types[0]),
    )
    results = values(rng, (*places, out), types[0])
    strides = [s * image.itemsize for s in (n, y, x, across * features, features, 1)]
    seen = np.lib.stride_tricks.as_strided(image, (*places, taps, taps, features), strides).reshape(
        -1, taps * taps * features
    )
    line = taps * features
    forward = Gemm(
        len(seen),
        out,
        line,
        *REFS,
        (x, 1),
        (out, 1),
        (out, 1),
        *types,
        (),
        ((taps, across * features, line * out),),
        a_rows=((places[0], n), (places[1], y)),
    )
    c = np.zeros((len(seen), out), image.dtype)
    lists = [run(forward, image, kernel, c)[1][Word.A_DIRECT]]
    _close(c, seen, kernel)
    backward = Gemm(
        len(kernel),
        out,
        places[2],
        *REFS,
        (1, x),
        (out, 1),
        (out, 1),
        *types,
        (),
        ((places[0], n, places[1] * places[2] * out), (places[1], y, places[2] * out)),
        a_rows=((taps, across * features),),
    )
    c = np.zeros((len(kernel), out), image.dtype)
    lists.append(run(backward, image, results, c)[1][Word.A_DIRECT])
    _close(c, seen.T, results.reshape(-1, out))
    assert IN_RUNS in lists


def _close(c, a, b):
    if c.dtype.kind == "i":
        return np.testing.assert_array_equal(c, a.astype(np.int64) @ b.astype(np.int64))
    a, b = a.astype(np.longdouble), b.astype(np.longdouble)
    limit = np.abs(a) @ np.abs(b) * (np.finfo(c.dtype).eps * (len(b) ** 0.5 + 2))
    assert np.all(np.abs(c - a @ b) <= limit)


@pytest.mark.parametrize(
    "case",
    [
        Case(m, n, k, outer=outer, orders=("mk", b, "mn"), epilogue=epilogue)
        for m, n, k, outer in [
            (50, 64, 140, (7,)),
            (13, 70, 9, (5, 3)),
            (193, 30, 130, (5,)),
            (6, 128, 300, (2,)),
            (5, 65, 8, (3,)),
        ]
        for b in ("kn", "nk")
        for epilogue in (False, True)
    ],
    ids=str,
)
def test_segments_of_any_length(case):
    """The summed dim consists of segments that end within blocks of k, or span several blocks."""
    assert check(case)[1][Word.A_DIRECT] == IN_RUNS


def test_the_same_bits_by_any_number_of_threads():
    (n, y, x), places = windows(4, 34, 34, 64, 3, 1)
    rng = np.random.default_rng(2)
    image, results = (
        rng.standard_normal(s).astype(np.float32) for s in ((4, 34, 34, 64), (*places, 64))
    )
    step = Gemm(
        576,
        64,
        32,
        *REFS,
        (1, x),
        (64, 1),
        (64, 1),
        "f32",
        "f32",
        "f32",
        (),
        ((4, n, 32 * 32 * 64), (32, y, 32 * 64)),
        a_rows=((3, 34 * 64),),
    )
    gemm_types, outputs = GemmTypes("f32", "f32", "f32", gemm.machine()), set()
    for threads in (1, 2, 3, 7, 64):
        name, words = gemm_plan.plan(gemm_problem.problem_of(step, gemm_types), gemm_types, threads)
        words = list(words)
        words[Word.WORKERS] = max(words[Word.WORKERS], pool.num_threads())
        c = np.full((576, 64), np.nan, np.float32)
        call(f"weft_gemm_{name}", words, image, results, c)
        outputs.add(c.tobytes())
        assert words[Word.A_DIRECT] == IN_RUNS
    assert len(outputs) == 1


@pytest.mark.parametrize(
    "types", [("f32",) * 3, ("f64",) * 3, ("i32",) * 3, ("f32", "f32", "bf16")], ids="-".join
)
@pytest.mark.parametrize("epilogue", [False, True])
def test_rows_that_lie_across_and_meet_one_panel(types, epilogue):
    """No part of A is packed if only one panel of B would use it, whatever the remainders."""
    gemm_types = GemmTypes(*types, gemm.machine())
    for m, k, batch in [
        (1, 40, (3,)),
        (2, 200, ()),
        (5, 9, (2,)),
        (29, 300, ()),
        (64, 64, (2, 3)),
        (100, 1000, ()),
        (514, 70, (2,)),
    ]:
        for n in (
            1,
            3,
            17,
            gemm_types.panel_cols - 1,
            gemm_types.panel_cols,
            gemm_types.panel_cols + 1,
        ):
            words = check(
                Case(m, n, k, types, batch=batch, orders=("km", "kn", "mn"), epilogue=epilogue)
            )[1]
            if m > 2 and n > 2 and len(batch) < 2:
                assert (words[Word.A_DIRECT] == IN_RUNS) == (n <= gemm_types.panel_cols)


def test_steps_that_are_too_far_apart_are_packed():
    """Half a panel of B does not compensate for cache lines that share a few sets."""
    refs = BufRef(0), BufRef(1), BufRef(2)
    for m, n, in_runs in [
        (1024, 32, True),
        (4096, 32, False),
        (4096, 64, True),
        (4097, 32, True),
        (4096, 65, False),
    ]:
        step = Gemm(m, n, 500, *refs, (1, m), (n, 1), (n, 1), "f32", "f32", "f32")
        assert (gemm.describe(step)[1][Word.A_DIRECT] == IN_RUNS) == in_runs
