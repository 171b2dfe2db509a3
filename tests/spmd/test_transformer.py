"""A transformer laid out over data and heads: the reductions of the textbook, forward and backward, and no others."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.spmd.harness import P, make, random, same, specs_of
from tests.spmd.lockstep import Lockstep
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.core.interpret import run_reference
from weft._engine.core.stage import stage
from weft._engine.core.trace import typeof
from weft._engine.partition.partition import partition

GRID = make(data=4, model=2)
HEADS, WIDTH, HIDDEN, WORDS, TIME, BATCH, LAYERS = 4, 16, 64, 32, 8, 8, 2
SHAPES = {
    "g1": (WIDTH,),
    "q": (WIDTH, HEADS, 4),
    "k": (WIDTH, HEADS, 4),
    "v": (WIDTH, HEADS, 4),
    "o": (HEADS, 4, WIDTH),
    "g2": (WIDTH,),
    "w1": (WIDTH, HIDDEN),
    "w2": (HIDDEN, WIDTH),
}
SPECS = {
    "g1": P(),
    "q": P(None, "model"),
    "k": P(None, "model"),
    "v": P(None, "model"),
    "o": P("model"),
    "g2": P(),
    "w1": P(None, "model"),
    "w2": P("model"),
}


def normed(x, gain):
    mean = wnp.mean(x, -1, keepdims=True)
    spread = wnp.mean((x - mean) ** 2, -1, keepdims=True)
    return (x - mean) / wnp.sqrt(spread + 1e-5) * gain


def block(p, x):
    h = normed(x, p["g1"])
    q, k, v = (wnp.einsum("btd,dhk->bthk", h, p[name]) for name in "qkv")
    scores = wnp.exp(wnp.einsum("bthk,bshk->bhts", q, k) / 2)
    mixed = wnp.einsum("bhts,bshk->bthk", scores / wnp.sum(scores, -1, keepdims=True), v)
    x = x + wnp.einsum("bthk,hkd->btd", mixed, p["o"])
    return x + wnp.maximum(normed(x, p["g2"]) @ p["w1"], 0) @ p["w2"]


def loss(*args):
    *weights, words, x, target = args
    for i in range(LAYERS):
        x = block(dict(zip(SHAPES, weights[i * len(SHAPES) :])), x)
    logits = x @ words
    logits = logits - wnp.log(wnp.sum(wnp.exp(logits), -1, keepdims=True))
    return -wnp.mean(wnp.sum(logits * target, -1))


def arguments():
    scale = np.float32(0.2)
    weights = [random(*shape, seed=i) * scale for i in range(LAYERS) for shape in SHAPES.values()]
    labels = np.random.default_rng(0).integers(0, WORDS, (BATCH, TIME))
    return [
        *weights,
        random(WIDTH, WORDS) * scale,
        random(BATCH, TIME, WIDTH),
        np.eye(WORDS, dtype=np.float32)[labels],
    ]


def partitioned(fun):
    args = arguments()
    specs = [*list(SPECS.values()) * LAYERS, P(None, "model"), P("data"), P("data")]
    jaxpr = simplify(stage(fun, [typeof(a) for a in args]))
    result = partition(jaxpr, GRID, specs_of(specs, jaxpr.invars), [None] * len(jaxpr.outvars))
    lockstep = Lockstep(result.axes)
    outs = lockstep.run(
        result.jaxpr, [lockstep.scatter(a, s) for a, s in zip(args, result.in_specs)]
    )
    for got, want, spec in zip(outs, run_reference(jaxpr, *args), result.out_specs):
        same(lockstep.gather(got, spec), want, 1e-4)
    return result


def activations(result):
    """Reductions of whole activations over the model axis."""
    return [
        r for r in result.records if r.axes == ("model",) and r.shape == (BATCH // 4, TIME, WIDTH)
    ]


@pytest.mark.parametrize("backward", [False, True])
def test_collectives(backward):
    n = LAYERS * len(SHAPES) + 1
    gradient = weft.grad(loss, argnums=tuple(range(n)))
    result = partitioned((lambda *a: list(gradient(*a))) if backward else (lambda *a: [loss(*a)]))
    assert set(result.counts) == {"psum"}
    # per layer one reduction after attention and one after the hidden layer; backward one before each of them, and one
    # for the logits, less the first layer's, whose input needs no gradient
    assert len(activations(result)) == (4 * LAYERS if backward else 2 * LAYERS)
    if backward:
        weights = [r for r in result.records if "data" in r.axes]
        assert sum(len(r.parts or (r,)) for r in weights) == n
        assert [r.axes for r in weights] == [("data", "model"), ("data",)]
