"""AUTO in jit: layouts that the compiler chooses, against unsharded results and hand-written layouts."""

import functools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.errors import ShardingError
from weft.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

RANDOM = np.random.default_rng(0)


def uniform(*shape):
    return (RANDOM.random(shape) - 0.5).astype(np.float32)


def mlp_step(params, x, y):
    def loss(params):
        h = x
        for up, down in params:
            h = wnp.maximum(h @ up, 0) @ down
        return ((h - y) ** 2).mean()

    grads = weft.grad(loss)(params)
    return weft.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def mlp_args(batch, width, hidden, depth=2):
    params = [(uniform(width, hidden), uniform(hidden, width)) for _ in range(depth)]
    return params, uniform(batch, width), uniform(batch, width)


def attention(x, wq, wk, wv, wo):
    q, k, v = (wnp.einsum("bsd,dhk->bshk", x, w) for w in (wq, wk, wv))
    scores = weft.nn.softmax(wnp.einsum("bshk,bthk->bhst", q, k), axis=-1)
    return wnp.einsum("bshk,hkd->bsd", wnp.einsum("bhst,bthk->bshk", scores, v), wo)


def scan_of_layers(x, weights):
    return lax.scan(lambda x, w: (wnp.tanh(x @ w), x.sum()), x, weights)


def while_loop(x, w):
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, wnp.tanh(c[1] @ w)), (0, x))[1]


def branches(x, w):
    return lax.cond(x[0, 0] > 0, lambda x: x @ w, lambda x: x @ (2 * w), x)


def convolution(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), "SAME").sum((2, 3))


def embedding(table, tokens):
    return weft.grad(lambda t: (t[tokens] ** 2).sum())(table)


def heat(u):
    return lax.fori_loop(
        0, 4, lambda _, u: 0.25 * (wnp.roll(u, 1, 0) + wnp.roll(u, -1, 1) + 2 * u), u
    )


PROGRAMS = {
    "products": (
        lambda x, w, b: wnp.tanh(x @ w + b),
        [uniform(32, 16), uniform(16, 64), uniform(64)],
    ),
    "attention": (
        attention,
        [uniform(8, 16, 32), *(uniform(32, 8, 4) for _ in range(3)), uniform(8, 4, 32)],
    ),
    "scan": (scan_of_layers, [uniform(16, 32), uniform(4, 32, 32)]),
    "while": (while_loop, [uniform(16, 32), uniform(32, 32)]),
    "cond": (branches, [uniform(16, 32), uniform(32, 32)]),
    "convolution": (convolution, [uniform(8, 4, 16, 16), uniform(8, 4, 3, 3)]),
    "embedding": (embedding, [uniform(64, 16), np.arange(24).reshape(8, 3) % 64]),
    "stencil": (heat, [uniform(32, 32)]),
    "sort": (lambda x: wnp.sort(x, axis=0).cumsum(1), [uniform(24, 16)]),
    "uneven": (lambda x, w: wnp.exp(x @ w).sum(0), [uniform(30, 7), uniform(7, 50)]),
    "keys": (lambda key: weft.random.normal(key, (64, 8)).sum(0), [weft.random.key(0)]),
    "constant": (lambda x: x + np.arange(16, dtype=np.float32), [uniform(8, 16)]),
    "scalar": (lambda x: x * 2, [np.float32(3)]),
    "donothing": (lambda x: x, [uniform(8, 8)]),
}
MESHES = {"8": ((8,), ("x",)), "4x2": ((4, 2), ("x", "y")), "2x2x2": ((2, 2, 2), ("x", "y", "z"))}


def automatic(f, mesh, **options):
    return weft.jit(f, in_shardings=weft.AUTO(mesh), out_shardings=weft.AUTO(mesh), **options)


def assert_close(actual, expected):
    weft.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), actual, expected
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_automatic_layouts_keep_values(name, mesh):
    f, args = PROGRAMS[name]
    assert_close(automatic(f, weft.make_mesh(*MESHES[mesh]))(*args), weft.jit(f)(*args))


@pytest.mark.parametrize(
    "batch, most_bytes, kinds",
    [
        (64, 4 * 64 * 128 * 4 * 2, {"psum", "reduce_scatter", "all_gather"}),  # tensor parallel
        (
            8192,
            2 * 4 * 2 * 2 * 128 * 512,
            {"psum", "reduce_scatter", "all_gather"},
        ),  # data parallel
    ],
    ids=["small_batch", "large_batch"],
)
def test_mlp_sends_no_more_than_by_hand(batch, most_bytes, kinds):
    mesh = weft.make_mesh((8,), ("x",))
    args = mlp_args(batch, 128, 512)
    report = weft.explain(automatic(mlp_step, mesh, donate_argnums=0), *args)
    assert 0 < report.bytes < most_bytes
    assert set(report.counts) <= kinds


def test_small_batch_shards_columns_then_rows():
    mesh = weft.make_mesh((8,), ("x",))
    args = mlp_args(64, 128, 512)
    compiled = automatic(mlp_step, mesh, donate_argnums=0).lower(*args).compile()
    ((params, *_),) = compiled.input_shardings[:1]
    assert [(up.spec, down.spec) for up, down in params] == [(P(None, "x"), P("x"))] * 2


def test_donated_state_keeps_its_layout():
    mesh = weft.make_mesh((8,), ("x",))
    params, x, y = mlp_args(64, 128, 512)
    step = automatic(mlp_step, mesh, donate_argnums=0)
    compiled = step.lower(params, x, y).compile()
    ins = weft.tree.leaves(compiled.input_shardings[0][0])
    assert ins == weft.tree.leaves(compiled.output_shardings)
    with weft.log_compiles(False):
        state = step(params, x, y)
        count = len(step.lower(params, x, y)._jaxpr._cache)
        for _ in range(3):
            state = step(state, x, y)
        assert len(step.lower(params, x, y)._jaxpr._cache) == count  # compiled once
    reference = params
    for _ in range(4):
        reference = weft.jit(mlp_step)(reference, x, y)
    assert_close(state, reference)


def test_given_sharding_is_kept():
    mesh = weft.make_mesh((8,), ("x",))
    rows = NamedSharding(mesh, P(None, "x"))
    f = weft.jit(
        lambda x, w: x @ w,
        in_shardings=(weft.AUTO(mesh), rows),
        out_shardings=NamedSharding(mesh, P()),
    )
    compiled = f.lower(uniform(32, 16), uniform(16, 64)).compile()
    assert compiled.input_shardings[0][1] == rows
    assert compiled.output_shardings.is_equivalent_to(NamedSharding(mesh, P()), 2)


def test_constraint_is_kept():
    mesh = weft.make_mesh((8,), ("x",))
    seen = []

    def f(x, w):
        y = lax.with_sharding_constraint(x @ w, NamedSharding(mesh, P("x", None)))
        weft.debug.inspect_array_sharding(y, callback=seen.append)
        return wnp.tanh(y)

    automatic(f, mesh)(uniform(16, 1024), uniform(1024, 8))
    assert seen[0].is_equivalent_to(NamedSharding(mesh, P("x")), 2)


def test_shard_map_inside_is_kept():
    mesh = weft.make_mesh((8,), ("x",))
    total = weft.shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    f = lambda x: total(wnp.sin(x)) * 2
    x = uniform(16, 4)
    assert_close(automatic(f, mesh)(x), 2 * np.sin(x).reshape(8, 2, 4).sum(0))


def test_committed_argument_is_moved():
    mesh = weft.make_mesh((8,), ("x",))
    x = weft.device_put(uniform(64, 64), NamedSharding(mesh, P(None, "x")))
    w = weft.device_put(uniform(64, 8), NamedSharding(mesh, P("x")))
    assert_close(automatic(lambda x, w: wnp.sin(x) @ w, mesh)(x, w), np.sin(x) @ np.asarray(w))


def test_same_program_gets_the_same_layouts():
    mesh = weft.make_mesh((4, 2), ("x", "y"))
    args = mlp_args(64, 128, 512, depth=1)
    first, second = (
        automatic(lambda *a: mlp_step(*a), mesh, donate_argnums=0).lower(*args).compile()
        for _ in range(2)
    )
    assert first.input_shardings == second.input_shardings


def test_two_meshes_are_refused():
    first, second = weft.make_mesh((8,), ("x",)), weft.make_mesh((4, 2), ("x", "y"))
    f = weft.jit(lambda x, y: x + y, in_shardings=(weft.AUTO(first), weft.AUTO(second)))
    with pytest.raises(ValueError, match="AUTO is given for different meshes"):
        f(uniform(8), uniform(8))


def test_auto_needs_a_mesh():
    with pytest.raises(TypeError, match="AUTO: mesh must be a Mesh, got tuple"):
        weft.AUTO((8,))


def test_gradient_of_automatic_function():
    mesh = weft.make_mesh((8,), ("x",))
    f = automatic(lambda x, w: wnp.tanh(x @ w).sum(), mesh)
    x, w = uniform(16, 8), uniform(8, 32)
    assert_close(weft.grad(f, 1)(x, w), weft.grad(lambda x, w: wnp.tanh(x @ w).sum(), 1)(x, w))


AUTO, EXPLICIT, MANUAL = AxisType.Auto, AxisType.Explicit, AxisType.Manual


@pytest.mark.parametrize(
    "types, fixed",
    [
        ((EXPLICIT, EXPLICIT), "'x' is Explicit, 'y' is Explicit"),
        ((EXPLICIT, AUTO), "'x' is Explicit"),
        ((AUTO, MANUAL), "'y' is Manual"),
        ((EXPLICIT, MANUAL), "'x' is Explicit, 'y' is Manual"),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(t.name for t in value),
)
@pytest.mark.parametrize("make", [weft.make_mesh, AbstractMesh], ids=["devices", "abstract"])
def test_axes_that_are_not_automatic_are_refused(make, types, fixed):
    mesh, x = make((4, 2), ("x", "y"), types), uniform(8, 8)
    message = rf"the mesh has axes that are not automatic: {fixed}\..*AxisType.Auto, AxisType.Auto"
    with pytest.raises(ShardingError, match=rf"(?s)^AUTO: {message}"):
        weft.AUTO(mesh)
    with pytest.raises(ShardingError, match=rf"(?s)^weft.auto.shardings: {message}"):
        weft.auto.shardings(wnp.sin, x, mesh=mesh)


def test_explicit_mesh_in_the_context_is_refused():
    f = automatic(wnp.sin, weft.make_mesh((8,), ("x",), (AUTO,)))
    with weft.set_mesh(weft.make_mesh((8,), ("x",), (EXPLICIT,))):
        with pytest.raises(
            ShardingError, match=r"AUTO in the context of a mesh: .*'x' is Explicit"
        ):
            f(uniform(8, 8))


def test_plan_takes_arguments_of_an_explicit_mesh():
    explicit = NamedSharding(weft.make_mesh((8,), ("x",), (EXPLICIT,)), P("x"))
    mesh = weft.make_mesh((4, 2), ("x", "y"), (AUTO, AUTO))
    x, w = uniform(32, 16), uniform(16, 64)
    typed = weft.device_put(x, explicit)
    plan = weft.auto.shardings(wnp.matmul, typed, w, mesh=mesh)
    assert plan.in_shardings[0] == NamedSharding(mesh, P("x"))
    result = plan.jit()(*plan.place((typed, w)))
    assert result.sharding.mesh == mesh
    assert_close(result, x @ w)


def test_clipped_gradients_are_reduced_once():
    """Clipping reads a gradient for its norm and for its scaling, which need not be in different layouts."""

    def step(params, x):
        loss = lambda ps: (functools.reduce(lambda x, p: wnp.tanh(x @ p), ps, x) ** 2).mean()
        grads = weft.grad(loss)(params)
        norm = wnp.sqrt(sum((g * g).sum() for g in grads))
        clipped = [weft.lax.select(norm < 1, g, g / norm) for g in grads]
        return [p - 0.1 * g for p, g in zip(params, clipped)]

    struct = lambda *shape: weft.ShapeDtypeStruct(shape, np.float32)
    params = [struct(64, 64) for _ in range(4)]
    mesh = weft.make_mesh((8,), ("x",))
    plan = weft.auto.shardings(
        step, params, struct(65536, 64), mesh=mesh, donate_argnums=0, machine="h100"
    )
    parallel = plan.compare()["data parallel"]
    assert plan.cost.price <= parallel.price
    assert plan.cost.collectives == parallel.collectives
