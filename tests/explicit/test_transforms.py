"""Explicit types through transformations and loops: cotangents have the types of their primals, carries keep theirs."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import lax, numpy as wnp
from weft.sharding import AxisType, NamedSharding, P, reshard, use_mesh

MESH = weft.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Explicit, AxisType.Explicit))
rng = np.random.default_rng(0)


def on(*spec):
    return NamedSharding(MESH, P(*spec))


def put(shape, *spec, scale=1.0):
    return weft.device_put((scale * rng.standard_normal(shape)).astype(np.float32), on(*spec))


def short(x) -> str:
    return weft.typeof(x).str_short()


X, W, V = put((8, 16), "a", "b"), put((16, 8), "b"), put((16, 8), None, "b")
Y = put((8, 16), "a")
HEADS = [put((4, 8, 4, 2), "a", None, "b") for _ in range(3)]


@weft.custom_vjp
def tripled_backwards(x):
    return x * 2


tripled_backwards.defvjp(lambda x: (x * 2, None), lambda _, ct: (ct * 3,))


def attention(q, k, v):
    weights = weft.nn.softmax(wnp.einsum("bqhd,bkhd->bhqk", q, k))
    return wnp.einsum("bhqk,bkhd->bqhd", weights, v)


def deep(w, x):
    return lax.scan(lambda h, _: (wnp.tanh(h @ w), None), x, None, length=3)[0]


LOSSES = {
    "matmul": (lambda y, v: (wnp.tanh(y @ v) ** 2).sum(), (Y, V)),
    "contracted over a split dim": (
        lambda x, w: (wnp.dot(x, w, out_sharding=on("a")) ** 2).mean(),
        (X, W),
    ),
    "broadcast": (lambda x, y: (x * y).sum(), (X, put((16,), "b"))),
    "mixed layouts": (lambda x, y: (x + y).sum(), (X, Y)),
    "gathered weights": (
        lambda w, x: (wnp.tanh(x @ reshard(w, on(None, "b")))).sum(),
        (put((16, 8), "a", "b"), Y),
    ),
    "reshape": (lambda x: (wnp.reshape(x, (128,), out_sharding=on("b")) ** 2).sum(), (X,)),
    "softmax": (lambda x: -weft.nn.log_softmax(x)[:, 0].sum(), (Y,)),
    "attention": (lambda *qkv: (attention(*qkv) ** 2).sum(), HEADS),
    "embedding": (
        lambda e, i: (e.at[i].get(out_sharding=on("a")) ** 2).sum(),
        (W, weft.device_put(np.array([1, 2, 2, 15], np.int32), on("a"))),
    ),
    "scan": (lambda w, x: (deep(w, x) ** 2).sum(), (put((16, 16), scale=0.2), Y)),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda q: q * 2, wnp.sin, x).sum(), (X,)),
    "checkpoint": (lambda x: weft.checkpoint(lambda q: wnp.sin(wnp.cos(q)))(x).sum(), (X,)),
    "custom rule": (lambda x: tripled_backwards(x).sum(), (X,)),
    "nested jit": (lambda x: weft.jit(lambda q: q * 2, out_shardings=on(None, "b"))(x).sum(), (X,)),
    "vmap": (lambda y, v: weft.vmap(lambda r: wnp.tanh(r) @ v)(y).sum(), (Y, V)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_have_the_types_of_their_primals(name):
    loss, args = LOSSES[name]
    wrt = tuple(i for i, a in enumerate(args) if a.dtype == np.float32)
    gradient = weft.grad(loss, wrt)
    expected = (
        gradient(*[wnp.asarray(np.asarray(a)) for a in args]) if "shard" not in name else None
    )
    for run in (gradient, weft.jit(gradient)):
        for i, got, want in zip(wrt, run(*args), expected):
            assert weft.typeof(got) is weft.typeof(args[i])
            assert (
                got.sharding.is_equivalent_to(args[i].sharding, got.ndim)
                and len(got.sharding.spec) == got.ndim
            )
            np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=1e-5)


def test_derivatives_forward():
    out, tangent = weft.jvp(lambda y: wnp.tanh(y @ V), (Y,), (Y,))
    assert short(out) == short(tangent) == "float32[8@a,8@b]"
    k = put((8,), "a")
    assert short(weft.jacfwd(wnp.sin)(k)) == "float32[8@a,8]"
    assert short(weft.jacrev(wnp.sin)(k)) == "float32[8,8@a]"
    for jacobian in (weft.jacfwd, weft.jacrev):
        np.testing.assert_allclose(
            np.asarray(jacobian(wnp.sin)(k)), np.diag(np.cos(np.asarray(k))), rtol=1e-5
        )


def test_gathered_weights_end_in_one_reduce_scatter():
    loss, args = LOSSES["gathered weights"]
    assert sorted(c.kind for c in weft.explain(weft.grad(loss), *args).collectives) == [
        "all_gather",
        "reduce_scatter",
    ]


def test_mapped_dims_stay_split():
    seen = []

    def one(row):
        seen.append(short(row))
        return lax.scan(lambda c, e: (c + e, c * 2), 0.0, row)

    sums, doubled = weft.vmap(one)(Y)
    assert seen[0] == "float32[16]"
    assert short(sums) == "float32[8@a]" and weft.typeof(doubled).sharding.spec == P("a", None)
    np.testing.assert_allclose(np.asarray(sums), np.asarray(Y).sum(1), rtol=1e-4, atol=1e-5)
    with pytest.raises(weft.errors.ShardingTypeError, match="different mesh axes"):
        weft.vmap(lambda x, y: x + y)(put((8,), "a"), put((8,), "b"))


@pytest.mark.parametrize(
    ("fun", "op"),
    [
        (lambda x, y: x[:4] * y, "mul"),
        (lambda x, y: wnp.where(y > 0, y, x[0]), "select_n"),
        (lambda x, y: wnp.outer(x, y), "mul"),
        (lambda x, y: wnp.concatenate([x[:4], y]), "concatenate"),
        (lambda x, y: wnp.dot(x[:3, None], y[None]), "dot_general"),
        (lambda x, y: weft.grad(lambda y: (x.sum() * y).sum())(y), "vmap"),
    ],
)
@pytest.mark.parametrize("run", [weft.jit, lambda f: f], ids=["jit", "eager"])
def test_axes_of_mapped_dims_split_no_other_dim(fun, op, run):
    x, whole = put((8, 16), "a"), put((4,))
    mapped = lambda *spec: run(weft.vmap(fun, (0, None)))(
        x, weft.device_put(whole, weft.NamedSharding(MESH, weft.P(*spec)))
    )
    with pytest.raises(ValueError, match=f"(?s)^{op}.*split by .*'a'.*mapped"):
        mapped("a")
    want = mapped()
    assert weft.typeof(want).sharding.spec.partitions[0] == "a"
    np.testing.assert_allclose(np.asarray(mapped("b")), np.asarray(want), rtol=1e-5)


def test_first_carries_take_the_layout_of_the_body():
    columns = put((8, 16), None, "b")
    for run in (
        lambda xs: lax.scan(lambda c, r: (c + r, None), wnp.zeros(16), xs)[0],
        lambda xs: lax.fori_loop(0, 8, lambda i, c: c + xs.sum(0), wnp.zeros(16)),
        lambda xs: lax.while_loop(
            lambda c: c[0] < 1, lambda c: (c[0] + 1, c[1] + xs.sum(0)), (0, wnp.zeros(16))
        )[1],
    ):
        assert short(run(columns)) == short(weft.jit(run)(columns)) == "float32[16@b]"


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (
            lambda x: lax.fori_loop(0, 3, lambda i, c: reshard(c, on(None, "b")), x),
            ["layouts differ", "taken as float32[8@a,16@b]", "reshard(carry, P('a', 'b'))"],
        ),
        (
            lambda x: lax.scan(lambda c, _: (reshard(c, on("a")), None), x, None, length=2),
            ["layouts differ", "float32[8@a,16]"],
        ),
        (
            lambda x: lax.cond(True, lambda q: q, lambda q: reshard(q, on("a")), x),
            ["layouts differ", "false_fun"],
        ),
    ],
)
def test_loops_and_branches_keep_layouts(run, words):
    with pytest.raises(TypeError) as caught:
        run(X)
    for word in words:
        assert word in str(caught.value)


def test_shard_map_of_typed_arrays():
    sums = weft.shard_map(
        lambda x: lax.psum(x, "b"), mesh=MESH, in_specs=P("a", "b"), out_specs=P("a")
    )
    for run in (sums, weft.jit(sums)):
        assert short(run(X)) == "float32[8@a,4]"
        np.testing.assert_allclose(
            np.asarray(run(X)), np.asarray(X).reshape(8, 4, 4).sum(1), rtol=1e-4, atol=1e-5
        )
    assert short(weft.grad(lambda x: (sums(x) ** 2).sum())(X)) == "float32[8@a,16@b]"


def test_jit_types_what_its_shardings_say():
    seen = []

    def f(x):
        seen.append(short(x))
        return x * 2

    assert (
        short(weft.jit(f, in_shardings=on("a"))(np.ones((8, 16), np.float32))) == "float32[8@a,16]"
    )
    assert seen == ["float32[8,16]"]  # only the type of the result has the axis
    assert short(weft.jit(f, out_shardings=on(None, "b"))(X)) == "float32[8,16@b]"
    assert (
        short(weft.jit(lambda x: weft.jit(f, out_shardings=on(None, "b"))(x) + 1)(X))
        == "float32[8,16@b]"
    )


@pytest.mark.parametrize("run", [lambda f: f, weft.jit])
def test_results_independent_of_a_split_dim_are_split_like_it(run):
    whole = lambda x: (wnp.zeros(4), x)
    with use_mesh(MESH):
        zeros, same = run(weft.vmap(whole, out_axes=(-1, 0)))(put((8,), "a"))
        assert (
            zeros.shape == (4, 8) and zeros.sharding == on(None, "a") and same.sharding == on("a")
        )
        twice = run(weft.vmap(weft.vmap(whole)))(put((8, 8), "a", "b"))[0]
        assert twice.shape == (8, 8, 4) and twice.sharding == on("a", "b", None)
    assert run(weft.vmap(whole))(put((8,), "a"))[0].tolist() == np.zeros((8, 4)).tolist()
    assert short(weft.vmap(lambda x, y: y, (0, None))(X, put((4,), "b"))) == "float32[8@a,4@b]"
    assert short(weft.vmap(lambda x, y: y, (0, None))(X, put((4,), "a"))) == "float32[8,4@a]"
