"""Unreduced and reduced axes in types, and arrays whose devices hold terms of a sum."""

import pickle

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.util.errors import ShardingTypeError
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P, UnreducedKind, reshard

A = np.arange(32.0, dtype=np.float32).reshape(8, 4) / 7
B = np.cos(np.arange(24.0, dtype=np.float32)).reshape(4, 6)


@pytest.fixture(autouse=True)
def mesh():
    xy_mesh = weft.make_mesh(
        (2, 2), ("x", "y"), devices=weft.devices()[:4], axis_types=(AxisType.Explicit,) * 2
    )
    with weft.set_mesh(xy_mesh):
        yield xy_mesh


TERMS = P("x", unreduced={"y"})


def product(a, b, spec=TERMS):
    return wnp.einsum("ab,bc->ac", a, b, out_sharding=spec)


def operands():
    return weft.device_put(A, P("x", "y")), weft.device_put(B, P("y", None))


def collectives(fun, *args):
    return weft.jit(fun).lower(*args).compile().runtime_executable().stages.collectives


def test_a_contraction_leaves_its_terms_where_they_are(mesh):
    a, b = operands()
    out = weft.jit(product)(a, b)
    assert weft.typeof(out).str_short() == "float32[8@x,6]{U:y}" and out.sharding == NamedSharding(
        mesh, P("x", None, unreduced={"y"})
    )
    assert out.sharding.shard_shape(out.shape) == (4, 6) and not out.is_fully_replicated
    for shard in out.addressable_shards:
        i, j = divmod(shard.device.id - out.sharding.mesh.flat_devices[0].id, 2)
        assert np.allclose(
            shard.data, A[4 * i : 4 * i + 4, 2 * j : 2 * j + 2] @ B[2 * j : 2 * j + 2], atol=1e-5
        )
        assert shard.index == (slice(4 * i, 4 * i + 4), slice(None))
    assert collectives(product, a, b) == []
    assert np.allclose(reshard(out, P("x")), A @ B, atol=1e-5)
    assert str(weft.make_jaxpr(lambda x: x + x)(out)).count("f32[8@x,6]{U:y}") == 2


def test_one_collective_sends_the_bytes_of_the_result():
    a, b = operands()
    whole = collectives(lambda a, b: reshard(product(a, b) + product(a, b), P("x")), a, b)
    assert [(r.kind, r.bytes_per_device) for r in whole] == [("psum", 4 * 6 * 4)]
    cut = collectives(lambda a, b: reshard(product(a, b), P("x", "y")), a, b)
    assert [(r.kind, r.bytes_per_device) for r in cut] == [("reduce_scatter", 4 * 6 * 4 // 2)]
    terms = weft.jit(product)(a, b)
    assert collectives(lambda t: t + t, terms) == []  # arguments and results are terms
    assert [r.kind for r in collectives(lambda t: reshard(t, P("x")), terms)] == ["psum"]
    assert collectives(lambda a: reshard(a, P(unreduced={"x"})), weft.device_put(A, P("x"))) == []


@pytest.mark.parametrize(
    "fun",
    [
        lambda t: t + t,
        lambda t: -t,
        lambda t: t - t.T.T,
        lambda t: t.T,
        lambda t: t.reshape(2, 16),
        lambda t: t.sum(0),
        lambda t: lax.slice(t, (0, 0), (4, 3)),
        lambda t: wnp.concatenate([t, t]),
        lambda t: wnp.pad(t, 1),
        lambda t: t[::-1],
        lambda t: wnp.broadcast_to(t, (2, 8, 4)),
        lambda t: t.astype("bfloat16"),
        lambda t: wnp.cumsum(t, 0),
        lambda t: lax.cond(t.ndim == 2, lambda u: u + u, lambda u: u, t),
        lambda t: lax.scan(lambda c, _: (c + c, None), t, None, length=2)[0],
        lambda t: weft.vmap(lambda u: u + u)(t),
        lambda t: wnp.where(wnp.arange(4) > 1, t, t),
        lambda t: t[wnp.array([0, 3])],
    ],
)
@pytest.mark.parametrize("wrap", [weft.jit, lambda f: f], ids=["jit", "eager"])
def test_what_is_linear_passes_terms_and_gives_the_same_sum(fun, wrap):
    terms = weft.device_put(A, P(unreduced={"x"}))
    assert [np.asarray(s.data).sum() != 0 for s in terms.addressable_shards] == [
        True,
        True,
        False,
        False,
    ]
    out = wrap(fun)(terms)
    assert weft.typeof(out).explicit.spec.unreduced == {"x"}
    want = fun(wnp.asarray(A))
    assert out.dtype == want.dtype and np.allclose(
        reshard(out, P()).astype("float32"), want.astype("float32"), rtol=1e-2
    )


@pytest.mark.parametrize(
    ("fun", "error", "words"),
    [
        (lambda t, r: wnp.sin(t), NotImplementedError, "unreduced over 'x'"),
        (lambda t, r: t.max(), NotImplementedError, "reduce_max"),
        (lambda t, r: t > 0, NotImplementedError, "gt"),
        (lambda t, r: r / t, NotImplementedError, "div"),
        (lambda t, r: t * 2, ShardingTypeError, "operand 1 is not reduced"),
        (lambda t, r: t * t, ShardingTypeError, "more than one operand"),
        (lambda t, r: t + 1, ShardingTypeError, "operand 1 is not"),
        (lambda t, r: t + r, ShardingTypeError, "unreduced over the same axes"),
        (lambda t, r: t + reshard(t, P(unreduced={"x", "y"})), ShardingTypeError, "over 'x', 'y'"),
        (lambda t, r: t.T @ A, ShardingTypeError, "contraction"),
        (lambda t, r: r * reshard(r, P()), ShardingTypeError, "replicated over 'x'"),
        (lambda t, r: r * reshard(r, P("x")), ShardingTypeError, "split by 'x'"),
        (
            lambda t, r: product(*operands(), P("x", unreduced={"x"})),
            ValueError,
            "overlap|not split|split by",
        ),
        (
            lambda t, r: product(reshard(A, P("x")), reshard(B, P()), P("x", unreduced={"y"})),
            ShardingTypeError,
            "terms are not there",
        ),
        (
            lambda t, r: reshard(t, P(unreduced={"x"}, unreduced_kind=UnreducedKind.max)),
            ValueError,
            "only sums",
        ),
    ],
)
def test_what_needs_the_sum_is_an_error(fun, error, words):
    terms, reduced = weft.device_put(A, P(unreduced={"x"})), weft.device_put(A, P(reduced={"x"}))
    with pytest.raises(error, match=words):
        weft.jit(fun)(terms, reduced)


def test_reduced_values_are_computed_with_alike():
    reduced = weft.device_put(A, P(reduced={"x"}))
    assert (
        np.array_equal(reduced, A)
        and reduced.is_fully_replicated
        and weft.typeof(reduced).str_short() == "float32[8,4]{R:x}"
    )
    assert weft.typeof(wnp.sin(reduced) * reduced * 2).str_short() == "float32[8,4]{R:x}"
    both = weft.device_put(A, P(unreduced={"x"})) * reduced
    assert weft.typeof(both).str_short() == "float32[8,4]{U:x}" and np.allclose(
        reshard(both, P()), A * A
    )
    assert weft.typeof(reduced @ B).explicit.spec == P(None, None)


def slope_by_differences(fun, at):
    gradient = np.zeros_like(at, np.float64)
    for i in np.ndindex(*at.shape):
        step = np.zeros_like(at)
        step[i] = 1e-2
        gradient[i] = (fun(at + step) - fun(at - step)) / 2e-2
    return gradient


def test_cotangents_of_terms_are_reduced_and_the_other_way_round():
    weights = np.sin(np.arange(32.0, dtype=np.float32)).reshape(8, 4)

    def loss(t, r):
        return (reshard(t * r, P()) ** 2 * weights).sum()

    def plain(a, r):
        return float((((a * r) ** 2) * weights).sum(dtype=np.float64))

    terms, reduced = (
        weft.device_put(A, P(unreduced={"x"})),
        weft.device_put(A + 1, P(reduced={"x"})),
    )
    for wrap in (weft.jit, lambda f: f):
        of_terms, of_reduced = wrap(weft.grad(loss, (0, 1)))(terms, reduced)
        assert of_terms.sharding.spec == P(
            None, None, reduced={"x"}
        ) and of_reduced.sharding.spec == P(None, None, unreduced={"x"})
        assert np.allclose(
            of_terms, slope_by_differences(lambda a: plain(a, A + 1), A), rtol=2e-2, atol=0.1
        )
        assert np.allclose(
            reshard(of_reduced, P()),
            slope_by_differences(lambda r: plain(A, r), A + 1),
            rtol=2e-2,
            atol=0.1,
        )
    assert weft.grad(lambda t: reshard(wnp.zeros_like(t), P()).sum())(terms).sharding.spec == P(
        None, None, reduced={"x"}
    )


def test_gradients_of_replicated_weights_leave_as_terms():
    """Data parallelism: each device has the gradient of its part of the batch, and one sum is taken of all."""
    x = weft.device_put(A, P("x"))
    w = weft.device_put(B, P(reduced={"x"}))
    step = lambda w, x: wnp.sum(wnp.einsum("ab,bc->ac", x, w) ** 2)
    slope = weft.jit(weft.grad(step))(w, x)
    assert slope.sharding.spec == P(None, None, unreduced={"x"}) and np.allclose(
        reshard(slope, P()), 2 * A.T @ (A @ B), rtol=1e-5
    )
    assert [r.kind for r in collectives(weft.grad(step), w, x)] == []


def test_arrays_move_in_and_out_of_terms(mesh):
    terms = weft.device_put(A, P(unreduced={"x"}))
    for spec in (
        P(),
        P("x"),
        P(None, "y"),
        P("y", unreduced={"x"}),
        P(unreduced={"x", "y"}),
        P(reduced={"x"}),
    ):
        moved = weft.device_put(terms, spec)
        assert moved.sharding.spec == spec and np.array_equal(weft.device_put(moved, P()), A)
        assert np.array_equal(weft.device_put(weft.device_put(moved, P(unreduced={"y"})), P()), A)
    assert np.array_equal(weft.device_put(terms, weft.devices()[0]), A)
    elsewhere = weft.make_mesh(
        (2, 2), ("x", "y"), devices=weft.devices()[4:8], axis_types=(AxisType.Explicit,) * 2
    )
    other = weft.device_put(terms, NamedSharding(elsewhere, P(unreduced={"x"})))
    for mine, theirs in zip(terms.addressable_shards, other.addressable_shards):
        assert np.array_equal(mine.data, theirs.data) and theirs.device in elsewhere.flat_devices
    partial = weft.jit(lambda x: x + 1, out_shardings=P(unreduced={"y"}))(weft.device_put(A, P()))
    assert np.array_equal(reshard(partial, P()), A + 1)
    assert [bool(np.any(np.asarray(s.data))) for s in partial.addressable_shards] == [
        True,
        False,
        True,
        False,
    ]
    with pytest.raises(ValueError, match="does not match"):
        weft.jit(lambda x: x, in_shardings=P())(terms)


def test_terms_cannot_be_read_before_they_are_added_up(mesh):
    terms = weft.device_put(A, P(unreduced={"x"}))
    for read in (np.asarray, pickle.dumps, lambda t: t.tolist(), lambda t: float(t.sum())):
        with pytest.raises(NotImplementedError, match="an unreduced sum"):
            read(terms)
    assert (
        repr(terms)
        == str(terms)
        == f"Array(shape=(8, 4), dtype=float32, sharding={terms.sharding!r})"
    )
    automatic = weft.make_mesh((2,), ("x",), devices=weft.devices()[:2])
    with pytest.raises(ValueError, match="Explicit"):
        NamedSharding(automatic, P(unreduced={"x"}))
    with pytest.raises(NotImplementedError, match="only sums"):
        weft.device_put(
            A, NamedSharding(mesh, P(unreduced={"x"}, unreduced_kind=UnreducedKind.min))
        )


def test_shard_map_hands_terms_in_and_out():
    a, b = operands()
    terms = weft.jit(product)(a, b)
    jitted = weft.jit(
        weft.shard_map(
            lambda t: 2 * t, in_specs=P("x", unreduced={"y"}), out_specs=P("x", unreduced={"y"})
        )
    )
    out = jitted(terms)
    assert out.sharding.spec == P("x", None, unreduced={"y"}) and collectives(jitted, terms) == []
    for mine, theirs in zip(terms.addressable_shards, out.addressable_shards):
        assert np.array_equal(2 * np.asarray(mine.data), theirs.data)
    total = weft.shard_map(
        lambda t: lax.psum(t, "y"), in_specs=P("x", unreduced={"y"}), out_specs=P("x")
    )
    for wrap in (weft.jit, lambda f: f):
        assert np.allclose(wrap(total)(terms), A @ B, atol=1e-5)
    gathered = weft.shard_map(
        lambda x: lax.all_gather(x, "x", tiled=True, to="reduced"),
        in_specs=P("x"),
        out_specs=P(reduced={"x"}),
    )
    assert gathered(weft.device_put(A, P("x"))).sharding.spec == P(None, None, reduced={"x"})


@pytest.mark.parametrize(
    "spec",
    [
        P(unreduced={"x"}),
        P("y", unreduced={"x"}),
        P(None, "x", unreduced={"y"}),
        P(unreduced={"x", "y"}),
    ],
)
def test_arrays_are_made_of_the_terms_that_shards_hold(spec):
    terms = weft.device_put(A, spec)
    shards = [s.data for s in terms.addressable_shards]
    assert all(s.shape == terms.sharding.without_partial_axes.shard_shape(A.shape) for s in shards)
    array = weft.make_array_from_single_device_arrays(A.shape, terms.sharding, shards[::-1])
    assert array.sharding == terms.sharding and weft.typeof(array) is weft.typeof(terms)
    for mine, shard in zip(array.addressable_shards, shards, strict=True):
        np.testing.assert_array_equal(mine.data, shard)
    np.testing.assert_array_equal(reshard(array, P()), A)
    with pytest.raises(ValueError, match="shard shape"):
        narrow = [weft.device_put(np.asarray(s)[..., :1], s.device) for s in shards]
        weft.make_array_from_single_device_arrays(A.shape, terms.sharding, narrow)
