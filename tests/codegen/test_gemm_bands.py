"""Matmuls with a band of needed results: equal bits inside the band, and no computation far
outside."""

import math

import numpy as np
import pytest

from tests.codegen.gemm_cases import DTYPES, run, values
from weft._engine.codegen.gemm import gemm
from weft._engine.codegen.gemm.descriptor import DIRECT, PRIVATE, SHARED, Word
from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.ir.program import BufRef, Gemm
from weft._engine.util.record import replace

FAR = 1 << 39
BANDS = [(-FAR, 0), (0, FAR), (-16, 0), (-100, 37), (5, 5), (-FAR, -90), (3, FAR), (70, 60)]


def product(m, n, k, types=("f32",) * 3, batch=(), order="mn", b_order="kn", a_order="mk"):
    """Return a step and its operands; C is filled with sevens."""
    rng = np.random.default_rng(m + n + k)
    a = values(rng, (*batch, m, k) if a_order == "mk" else (*batch, k, m), types[0])
    b = values(rng, (*batch, k, n) if b_order == "kn" else (*batch, n, k), types[0])
    c = np.full((*batch, m, n), 7, DTYPES[types[2]])
    dims = [
        (e, *(math.prod([*batch[i + 1 :], *size]) for size in ((m, k), (k, n), (m, n))))
        for i, e in enumerate(batch)
    ]
    strides = (n, 1) if order == "mn" else (1, m)
    a_strides, b_strides = (
        (k, 1) if a_order == "mk" else (1, m),
        (n, 1) if b_order == "kn" else (1, k),
    )
    step = Gemm(
        m, n, k, BufRef(0), BufRef(1), BufRef(2), a_strides, b_strides, strides, *types, tuple(dims)
    )
    return step, a, b, c


def turned(c, order):
    """Return C as rows and columns, for either order in memory."""
    return (
        c
        if order == "mn"
        else np.swapaxes(c.reshape(*c.shape[:-2], c.shape[-1], c.shape[-2]), -1, -2)
    )


def within(m, n, low, high):
    apart = np.arange(n) - np.arange(m)[:, None]
    return (low <= apart) & (apart <= high)


@pytest.mark.parametrize(
    "types",
    [("f32",) * 3, ("f64",) * 3, ("bf16", "f32", "bf16"), ("i8", "i32", "i32"), ("c64",) * 3],
    ids="-".join,
)
@pytest.mark.parametrize("order", ["mn", "nm"])
@pytest.mark.parametrize("a_order", ["mk", "km"])
def test_what_is_read_has_the_bits_of_the_whole_product(types, order, a_order):
    sizes = [
        (130, 200, 40, (), "kn"),
        (77, 75, 1100, (2,), "nk"),
        (301, 64, 9, (2, 3), "kn"),
        (33, 190, 70, (), "nk"),
        (7, 100, 5, (), "kn"),
        (300, 300, 64, (), "nk"),
    ]
    for m, n, k, batch, b_order in sizes:
        step, a, b, c = product(m, n, k, types, batch, order, b_order, a_order)
        run(step, a, b, c)
        for band in BANDS:
            part = np.full_like(c, 7)
            run(replace(step, band=band), a, b, part)
            there = np.broadcast_to(within(m, n, *band), (*batch, m, n))
            np.testing.assert_array_equal(turned(part, order)[there], turned(c, order)[there])


@pytest.mark.parametrize(
    "m, n, k, mode",
    [
        (192, 192, 64, (DIRECT, PRIVATE)),
        (510, 900, 700, (SHARED, PRIVATE)),
        (96, 300, 2000, (SHARED,)),
        (18, 300, 700, (DIRECT,)),
    ],
)
def test_only_pieces_that_meet_the_band_are_made(m, n, k, mode):
    """A piece has the rows and columns of a register tile; all blocks of k skip the same pieces."""
    gemm_types = GemmTypes("f32", "f32", "f32", gemm.machine())
    for band in BANDS[:-1]:  # (a piece may meet an empty band)
        step, a, b, c = product(m, n, k)
        words = run(replace(step, band=band), a, b, c)[1]
        there, rows, cols = within(m, n, *band), gemm_types.rows, gemm_types.panel_cols
        met = np.zeros((m, n), bool)
        for i in range(0, m, rows):
            for j in range(0, n, cols):
                met[i : i + rows, j : j + cols] = there[i : i + rows, j : j + cols].any()
        assert words[Word.SWAPPED] == 0 and m % rows == 0
        if gemm_types.machine.vector_bytes == 64:
            assert words[Word.B_MODE] in mode
        np.testing.assert_array_equal(c == 7, ~met)


def test_sizes_and_their_ends():
    for size in range(33, 71):
        for m, n in ((size, 65), (65, size)):
            step, a, b, c = product(m, n, 20)
            run(step, a, b, c)
            for band in [(-FAR, 0), (-3, 2), (0, FAR), (30, FAR)]:
                part = np.full_like(c, 7)
                run(replace(step, band=band), a, b, part)
                there = within(m, n, *band)
                np.testing.assert_array_equal(part[there], c[there])


def test_a_batch_that_becomes_rows_has_no_band():
    """Batch elements with equal B become rows of one product, where the difference of row and
    column has no meaning."""
    step, a, b, c = product(40, 66, 30, batch=(3,))
    step = replace(step, batch=((3, 1200, 0, 2640),), band=(-FAR, 0))
    run(step, a, b[0], c)
    np.testing.assert_allclose(c, a @ b[0], rtol=1e-4, atol=1e-4)
