"""Alternative layouts of single values: without them each program sends more."""

import pytest

import weft
import weft.numpy as wnp
from tests.spmd.byte_programs import DTYPE, flat
from tests.spmd.harness import P, make, specs_of
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.core.stage import stage
from weft._engine.ir.specs import join_axis_parts
from weft._engine.ir.types import ShapedArray
from weft._engine.partition import alternatives
from weft._engine.partition.partition import partition

CUBE, GRID, LINE = {"a": 2, "b": 2, "c": 2}, {"a": 4, "b": 2}, {"x": 8}


def network(x, y, first, second):
    def loss(first, second):
        return ((wnp.maximum(wnp.maximum(x @ first, 0) @ second, 0) - y) ** 2).mean()

    return weft.grad(loss, (0, 1))(first, second)


def recomputed(x, y, w):
    layer = weft.checkpoint(lambda x, w: wnp.maximum(x @ w, 0))
    return [weft.grad(lambda w: ((layer(x, w) - y) ** 2).mean())(w)]


#: a program, shapes and specs of its arguments, the mesh, the bytes that a device sends
PROGRAMS = {
    # the outer product is laid out as its larger operand is, and not as the vector that comes first
    "outer": (
        lambda a, b, c: [wnp.einsum("i,ji,k->ki", a, b, c)],
        [(16,), (32, 16), (64,)],
        [P(("a", "b", "c")), P(("b", "a"), "c"), P(("b", "c"))],
        CUBE,
        112,
    ),
    # activations which the gradient needs whole are gathered before the next layer
    "network": (
        network,
        [(32, 8), (32, 32), (8, 32), (32, 32)],
        [P("x"), P(None, "x"), P(), P()],
        LINE,
        5824,
    ),
}


def sent(fun, shapes, specs, axes):
    jaxpr = simplify(stage(flat(fun), [ShapedArray(s, DTYPE) for s in shapes]))
    return partition(
        jaxpr, make(**axes), specs_of(specs, jaxpr.invars), [None] * len(jaxpr.outvars)
    ).bytes_sent


@pytest.mark.parametrize("name", PROGRAMS)
def test_fewer_bytes(name, monkeypatch):
    *program, least = PROGRAMS[name]
    assert sent(*program) == least
    monkeypatch.setattr(alternatives, "TRIES", 0)
    assert sent(*program) > least


def test_recomputed_weights_move_instead_of_masks():
    """The weights move to the layout of the targets once, by a permute of a shard of 8 numbers."""
    assert (
        sent(
            recomputed, [(128, 8), (128, 8), (8, 8)], [P(), P(None, ("b", "a")), P(None, "a")], GRID
        )
        == 32
    )


def test_what_is_computed_again_gathers_its_weights_again():
    """A whole copy of split weights is not saved for the recomputation: it would use the memory
    that checkpoint saves. A gather sends 7 of 8 shards."""
    shapes, specs = [(128, 8), (128, 8), (8, 8)], [P("x"), P("x"), P("x")]
    once = sent(
        lambda x, y, w: [weft.grad(lambda w: ((wnp.maximum(x @ w, 0) - y) ** 2).mean())(w)],
        shapes,
        specs,
        LINE,
    )
    assert sent(recomputed, shapes, specs, LINE) == once + 8 * 8 * 4 * 7 // 8


def test_results_like_arguments_stay_so():
    """New weights have the layout of the old weights, so that the next step uses them unchanged."""
    step = lambda w, x: [w - x.T @ (x @ w)]
    jaxpr = simplify(stage(flat(step), [ShapedArray(s, DTYPE) for s in ((32, 32), (64, 32))]))
    result = partition(jaxpr, make(**LINE), specs_of([P("x"), P("x")], jaxpr.invars), [None])
    assert result.out_specs == (P("x").dims(2),)


def test_explained_by_the_axes_of_the_user():
    mesh = weft.make_mesh((4, 2), ("a", "b"))
    x = weft.device_put(wnp.ones((64, 64)), weft.NamedSharding(mesh, weft.P("a", "b")))
    moved = weft.explain(weft.jit(lambda v: v.T, out_shardings=x.sharding), x).collectives
    assert [r.axes for r in moved] == [("a.1",), ("a", "b")]
    assert moved[-1].after == "P('b', 'a')" and join_axis_parts(("a.0", "b")) == ("a.0", "b")
