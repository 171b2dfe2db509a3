"""The pages that extend weft are followed: their code runs as printed, and the extension works on a
mesh."""

import pytest

from tests.harness.pages import blocks, needs_pages
from tests.harness.processes import run_python

#: page -> a program that uses its extension
TRIED = {
    "adding-a-collective.md": """
from weft._engine.ir.collective_spec import evaluate_collective
grid = weft.make_mesh((2, 4), ("a", "b"))
y = np.arange(1, 17, dtype=np.float32).reshape(8, 2)
for axes in ("a", "b", ("a", "b"), ("b", "a")):
    local = lambda block: pprod(block, axes)
    over = (axes,) if isinstance(axes, str) else axes
    rest = tuple(a for a in "ab" if a not in over)
    got = weft.jit(weft.shard_map(local, mesh=grid, in_specs=P(("a", "b")), out_specs=P(rest)))(y)
    cube = y.reshape(2, 4, 2)
    want = np.prod(cube, axis=tuple("ab".index(a) for a in over)).reshape(-1, 2)
    np.testing.assert_allclose(got, want, rtol=1e-6)
results = evaluate_collective(pprod_p, [[row] for row in x], {"axes": ("i",), "axis_index_groups": ((0, 3), (2, 1))})
assert [r[0].tolist() for r in results] == [(x[0] * x[3]).tolist(), (x[1] * x[2]).tolist(), (x[1] * x[2]).tolist(), (x[0] * x[3]).tolist()]
uneven = np.full((61, 2), 1.01, np.float32)
cut = lambda v: wnp.prod(weft.lax.with_sharding_constraint(v * 1, NamedSharding(grid, P("b"))), axis=0)
np.testing.assert_allclose(weft.jit(cut)(uneven), np.prod(uneven, 0), rtol=1e-5)
""",
    "adding-a-pass.md": """
from weft._engine import pipeline
from weft.sharding import NamedSharding, PartitionSpec as P

def names(f):
    jaxpr = simplify(weft.make_jaxpr(f)(x))
    smaller = check_jaxpr(drop_repeated(jaxpr))
    (before,), (after,) = run_reference(jaxpr, x), run_reference(smaller, x)
    assert np.asarray(before).tobytes() == np.asarray(after).tobytes()
    return [eqn.primitive.name for eqn in smaller.eqns]

y = np.ones(8, np.float32)
assert names(lambda v: lax.max(lax.max(lax.max(v, 0.0), 0.0), 0.0)) == ["max"]
assert names(lambda v: lax.min(y, lax.min(v, y))) == ["min"]
assert names(lambda v: lax.max(lax.max(v, -0.0), 0.0)) == ["max", "max"]
assert names(lambda v: lax.max(lax.max(v, 0.0), 1.0)) == ["max", "max"]
assert names(lambda v: lax.max(lax.min(v, 0.0), 0.0)) == ["min", "max"]
assert names(lambda v: lax.add(lax.add(v, y), y)) == ["add", "add"]
loop = drop_repeated(weft.make_jaxpr(lambda v: lax.fori_loop(0, 3, lambda i, w: twice(w - 1.0), v))(x))
assert str(loop).count("= max") == 1

# in the compiler, on a mesh
ran = []
pipeline.simplify = lambda jaxpr: (ran.append(len(jaxpr.eqns)), drop_repeated(simplify(jaxpr)))[1]
rows = weft.device_put(x, NamedSharding(weft.make_mesh((8,), ("i",)), P("i")))
compiled = weft.jit(twice).lower(rows).compile()
assert ran and compiled.as_text().count(" maximum(") == 1
np.testing.assert_array_equal(compiled(rows), np.maximum(x, 0))
np.testing.assert_array_equal(weft.vmap(weft.grad(twice))(rows), np.where(x > 0, 1, 0))
""",
    "adding-a-partition-rule.md": """
grid = weft.make_mesh((2, 4), ("a", "b"))
for spec in (P("a", "b"), P(("a", "b")), P(None, "b"), P("b", "a")):
    for axes in ((0,), (1,), (0, 1)):
        f = lambda v: lax.reduce_xor(v, axes=axes)
        placed = weft.device_put(words, NamedSharding(grid, spec))
        weft.explain(f, placed).assert_bytes(max=7 * 64 * 4)
        np.testing.assert_array_equal(weft.jit(f)(placed), np.bitwise_xor.reduce(words, axis=axes))
uneven = lambda v: lax.reduce_xor(lax.with_sharding_constraint(v + v, NamedSharding(mesh, P("x"))), axes=(0,))
weft.explain(uneven, words[:61]).assert_bytes(max=7 * 4 * 4)
np.testing.assert_array_equal(weft.jit(uneven)(words[:61]), np.bitwise_xor.reduce(words[:61] * 2, axis=0))
""",
}


@needs_pages
@pytest.mark.parametrize("name", TRIED)
def test_following_the_page(name, tmp_path):
    script = tmp_path / "followed.py"
    script.write_text("\n".join([*blocks(name), TRIED[name], "print('done')"]))
    done = run_python(script, cwd=tmp_path, WEFT_NUM_DEVICES="8", WEFT_VERIFY="1")
    assert done.stdout == "done\n", done.stderr
