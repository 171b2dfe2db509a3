"""Products whose position masks select a band: detection of the band, and unchanged values."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.machine import check
from weft import lax, nn
from weft._engine.compiler.fusion import band_analysis
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.ir.program import Gemm, iterate_steps

RNG = np.random.default_rng(0)
N = 70
Q, K, V = (RNG.standard_normal((2, N, 8)).astype(np.float32) for _ in range(3))
ROW, COL = np.arange(N)[:, None], np.arange(N)
ROWS = lambda: wnp.arange(N)[:, None]
COLS = lambda: wnp.arange(N)


def attention(mask):
    """Mask the scores by position."""

    def f(q, k, v):
        scores = wnp.einsum("bqd,bkd->bqk", q, k) / 3
        return wnp.einsum("bqk,bkd->bqd", nn.softmax(wnp.where(mask(), scores, -1e30), -1), v)

    return f


MASKS = {
    # mask expressions, and the smallest and largest difference of column and row
    "causal": (lambda: ROWS() >= COLS(), (1 - N, 0)),
    "turned": (lambda: COLS() <= ROWS(), (1 - N, 0)),
    "strict": (lambda: COLS() < ROWS(), (1 - N, -1)),
    "after": (lambda: ~(ROWS() > COLS()), (0, N - 1)),
    "shifted": (lambda: ROWS() + 5 >= COLS(), (1 - N, 5)),
    "window": (lambda: (ROWS() >= COLS()) & (ROWS() - COLS() <= 16), (-16, 0)),
    "neither": (lambda: ~((ROWS() < COLS()) | (COLS() + 9 < ROWS())), (-9, 0)),
    "diagonal": (lambda: ROWS() == COLS(), (0, 0)),
    "with another": (
        lambda: (ROWS() >= COLS()) & (wnp.sin(COLS().astype("float32")) > 0),
        (1 - N, 0),
    ),
    "transposed": (lambda: (ROWS() >= COLS()).T, (0, N - 1)),
    "broadcast": (lambda: wnp.broadcast_to((ROWS() >= COLS())[None], (2, N, N)), (1 - N, 0)),
    "of bytes": (
        lambda: wnp.arange(N, dtype="int8")[:, None] >= wnp.arange(N, dtype="int8"),
        (1 - N, 0),
    ),
    "some columns": (lambda: (COLS() > 7)[None, :], None),
    "either": (lambda: (ROWS() >= COLS()) | (COLS() == 3), None),
    "scaled": (lambda: 2 * ROWS() >= COLS(), None),
    "bytes that wrap": (
        lambda: wnp.arange(N, dtype="int8")[:, None] + np.int8(90) >= wnp.arange(N, dtype="int8"),
        None,
    ),
    "unsigned below zero": (
        lambda: (
            wnp.arange(N, dtype="uint32")[:, None] - np.uint32(5) >= wnp.arange(N, dtype="uint32")
        ),
        None,
    ),
    "everything": (lambda: ROWS() + N >= COLS(), None),
}


def gemms(scheduled):
    return [step for step in iterate_steps(scheduled.program.steps) if isinstance(step, Gemm)]


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("native", [True, False])
def test_masks(name, native):
    mask, band = MASKS[name]
    jaxpr = weft.make_jaxpr(attention(mask))(Q, K, V)
    scores, out = gemms(check(jaxpr, Q, K, V, native=native))
    assert scores.band == band and out.band is None


def test_the_other_side_of_a_mask():
    f = lambda q, k: wnp.where(ROWS() >= COLS(), 0.0, wnp.einsum("bqd,bkd->bqk", q, k))
    [step] = gemms(check(weft.make_jaxpr(f)(Q, K), Q, K))
    assert (
        step.band is None and step.epilogue is not None
    )  # (an epilogue reads all sums of its product)
    f = lambda q, k: wnp.where(ROWS() >= COLS(), 0.0, wnp.einsum("bqd,bkd->bqk", q, k)).sum(-1)
    [step] = gemms(check(weft.make_jaxpr(f)(Q, K), Q, K))
    assert step.band == (1, N - 1)


READERS = {
    "a result": lambda s, low: (low.sum(-1), s),
    "a sum of all": lambda s, low: (low.sum(-1), s.sum(-1)),
    "as a mask": lambda s, low: wnp.where(s > 0, low, 1.0).sum(-1),
    "another shape": lambda s, low: (low.sum(-1), wnp.sin(s.reshape(2, N * N)).sum(-1)),
    "a wider mask": lambda s, low: (low.sum(-1), wnp.where(ROWS() + 9 >= COLS(), s, 0).max(-1)),
    "a narrower one": lambda s, low: wnp.where(ROWS() - 9 >= COLS(), low, 0).sum(-1),
}


@pytest.mark.parametrize("name", READERS)
def test_all_who_read_count(name):
    def f(q, k):
        scores = wnp.einsum("bqd,bkd->bqk", q, k)
        return READERS[name](scores, wnp.where(ROWS() >= COLS(), wnp.tanh(scores), 0))

    [step] = gemms(check(weft.make_jaxpr(f)(Q, K), Q, K))
    assert step.band == {"a wider mask": (1 - N, 9), "a narrower one": (1 - N, -9)}.get(name)


def test_values_in_a_program():
    def f(x):
        y = wnp.exp(x)
        return wnp.where(wnp.arange(9)[:, None] >= wnp.arange(9), y, 0.0)

    program = simplify(weft.make_jaxpr(f)(np.ones((9, 9), np.float32)))
    bands = {
        eqn.primitive.name: band_analysis.analyze_bands(program).get(v)
        for eqn in program.eqns
        for v in eqn.outvars
    }
    assert bands["exp"] == {(0, 1): (-band_analysis.MOST, 0)} and bands["select_n"] is None
    assert band_analysis.analyze_bands(program)[program.invars[0]] == bands["exp"]


@pytest.mark.parametrize("limit", [(1 << 63) - 1, 1 << 62, 1 << 41, (1 << 39) + 5, 90])
def test_limits_that_are_none(limit):
    """Windows may be as wide, and offsets as large, as integers allow; differences of these and of
    indices must not overflow."""
    q, k = np.rint(Q[0] * 3), np.rint(K[0] * 3)
    masks = [
        lambda at: (at >= 0) & (at <= limit),
        lambda at: at - (limit - N) <= 0,
        lambda at: limit - N + at <= 0,
    ]
    bands = [
        (1 - N, 0),
        (-20, N - 1) if limit == 90 else None,
        (20, N - 1) if limit == 90 else (N, N - 1),
    ]
    with weft.enable_x64(True):
        for i, band in enumerate(bands):
            f = lambda q, k, i=i: wnp.where(
                masks[i](wnp.arange(N)[:, None] - wnp.arange(N)), q @ k.T, 0
            ).sum(-1)
            [step] = gemms(check(weft.make_jaxpr(f)(q, k), q, k))
            assert step.band == band


def test_masks_of_many_ways_to_an_iota():
    """Expressions whose paths double with every step are searched to a bounded depth only."""

    def f(q, k):
        at = ROWS() - COLS()
        for _ in range(40):
            at = at + at[::-1, ::-1].T
        return wnp.where((at >= 0) & (ROWS() >= COLS()), q @ k.T, 0.0).sum(-1)

    program = simplify(weft.make_jaxpr(f)(Q[0], K[0]))
    assert all(set(band) <= {(0, 1)} for band in band_analysis.analyze_bands(program).values())


def test_infinities_and_nans_outside_change_nothing():
    """Elements that are not read may have any value, such as keys that only masked queries use."""
    k = K.copy()
    k[:, 40:] = [np.nan, np.inf, -np.inf, 0, 1, 2, 3, 4]
    got = weft.jit(attention(MASKS["causal"][0]))(Q, k, V)[:, :40]
    np.testing.assert_array_equal(got, weft.jit(attention(MASKS["causal"][0]))(Q, K, V)[:, :40])
    assert np.isfinite(got).all()


def test_gradients_and_api():
    loss = lambda q, k, v: (attention(MASKS["causal"][0])(q, k, v) ** 2).sum()
    jaxpr = weft.make_jaxpr(weft.grad(loss, (0, 1, 2)))(Q, K, V)
    assert [step.band for step in gemms(check(jaxpr, Q, K, V))].count((1 - N, 0)) == 1
    f = lambda q, k, v: nn.dot_product_attention(q, k, v, is_causal=True, local_window_size=(4, 0))
    x, y, z = (a.reshape(N, 2, 8) for a in (Q, K, V))
    assert gemms(check(weft.make_jaxpr(f)(x, y, z), x, y, z))[0].band == (-4, 0)


def test_in_a_loop():
    def f(q, k, v):
        return lax.scan(
            lambda c, x: (c + 1, attention(MASKS["causal"][0])(*[a[None] for a in x])), 0, (q, k, v)
        )

    steps = gemms(check(weft.make_jaxpr(f)(Q, K, V), Q, K, V))
    assert [step.band for step in steps] == [(1 - N, 0), None]
