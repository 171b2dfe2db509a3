"""pmap: all parameters, placement of results, collectives inside, composition, errors."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.sharding import MemorySpace, Mesh, NamedSharding, PartitionSpec as P, PmapSharding

X = np.arange(24, dtype=np.float32).reshape(8, 3)


def test_results_lie_one_slice_per_device():
    y = weft.pmap(lambda v: v * 2)(X)
    np.testing.assert_array_equal(y, X * 2)
    assert isinstance(y.sharding, NamedSharding) and y.sharding.spec == P("pmap_axis")
    assert [s.data.shape for s in y.addressable_shards] == [(1, 3)] * 8
    assert len(weft.pmap(lambda v: v)(X[:5]).devices()) == 5


@pytest.mark.parametrize(
    "in_axes, out_axes", [(0, 0), (1, 0), (0, 1), (-1, -1), ((0,), 0), ([1], 1)]
)
def test_axes_are_those_of_vmap(in_axes, out_axes):
    x = X if in_axes in (0, (0,)) else X.T.copy()
    f = lambda v: (v + lax.axis_index("i"), {"sum": v.sum()})
    axes = (out_axes, {"sum": 0})
    got, want = (m(f, "i", in_axes=in_axes, out_axes=axes)(x) for m in (weft.pmap, vmap))
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[1]["sum"], want[1]["sum"])
    split = got[0].sharding.splits(got[0].shape)
    assert split == ((8, 1) if out_axes == 0 else (1, 8))


def vmap(f, axis_name, in_axes=0, out_axes=0):
    return weft.vmap(f, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)


def test_whole_arguments_and_results():
    scale = {"w": np.float32(3), "b": np.ones(3, np.float32)}
    f = weft.pmap(
        lambda p, v: (lax.psum((p["w"] * v + p["b"]).sum(), "i"), v),
        "i",
        in_axes=(None, 0),
        out_axes=(None, 0),
    )
    total, same = f(scale, X)
    assert total.shape == () and float(total) == (3 * X + 1).sum()
    assert total.sharding.is_fully_replicated and len(total.devices()) == 8
    np.testing.assert_array_equal(same, X)
    assert weft.pmap(lambda v: v + lax.axis_index("i"), "i", in_axes=None, axis_size=4)(
        np.ones(2, np.float32)
    ).shape == (4, 2)


def test_keyword_arguments_are_mapped_over_their_first_dim():
    np.testing.assert_array_equal(
        weft.pmap(lambda v, *, k=0: v + k)(X, k=np.arange(8.0, dtype=np.float32)),
        X + np.arange(8)[:, None],
    )


def test_static_arguments_are_python_values():
    traces = []

    def f(n, v, how="a"):
        traces.append((n, how))
        return v * n if how == "a" else v + n

    g = weft.pmap(f, static_broadcasted_argnums=(0, 2))
    np.testing.assert_array_equal(g(3, X, "a"), X * 3)
    np.testing.assert_array_equal(g(3, X, "b"), X + 3)
    g(3, X + 1, "a")
    assert traces == [(3, "a"), (3, "b")]
    h = weft.pmap(f, static_broadcasted_argnums=0, in_axes=(None, 1))
    np.testing.assert_array_equal(h(2, X.T.copy()), X * 2)


def test_devices_and_backend():
    chosen = weft.devices()[3:6]
    assert weft.pmap(lambda v: v, devices=chosen)(X[:3]).devices() == set(chosen)
    assert weft.pmap(lambda v: v, devices=chosen)(X[:2]).devices() == set(chosen[:2])
    np.testing.assert_array_equal(weft.pmap(lambda v: v + 1, backend="cpu")(X), X + 1)


def test_arguments_may_lie_anywhere():
    on_one = weft.device_put(X, weft.devices()[5])
    mesh = Mesh(np.array(weft.devices()).reshape(2, 4), ("a", "b"))
    spread = weft.device_put(X, NamedSharding(mesh, P("b", None)))
    f = weft.pmap(lambda a, b: a - b)
    np.testing.assert_array_equal(f(on_one, spread), np.zeros((8, 3)))
    np.testing.assert_array_equal(f(f(on_one, spread), X), -X)


def test_donated_arguments_are_gone():
    x = weft.pmap(lambda v: v)(X)
    y = weft.pmap(lambda v: v + 1, donate_argnums=0)(x)
    np.testing.assert_array_equal(y, X + 1)
    assert x.is_deleted() and not y.is_deleted()


def test_collectives_mean_and_cost_what_they_do_in_shard_map():
    def f(v):
        mean = lax.pmean(v, "i")
        ring = lax.ppermute(v, "i", [(i, (i + 1) % 8) for i in range(8)])
        return mean, ring, lax.all_gather(v, "i"), lax.axis_size("i")

    p = weft.pmap(f, axis_name="i")
    mean, ring, gathered, size = p(X)
    np.testing.assert_array_equal(mean, np.broadcast_to(X.mean(0), X.shape))
    np.testing.assert_array_equal(ring, np.roll(X, 1, 0))
    np.testing.assert_array_equal(gathered, np.broadcast_to(X, (8, 8, 3)))
    np.testing.assert_array_equal(size, [8] * 8)
    compiled = p.lower(X).compile()
    assert sorted(r.kind for r in compiled.stages.collectives) == ["all_gather", "ppermute", "psum"]


def test_a_data_parallel_step():
    """Gradients averaged inside equal the gradient of the mean over the whole batch."""
    rng = np.random.default_rng(0)
    w, x, y = (
        rng.standard_normal(3).astype(np.float32),
        rng.standard_normal((8, 4, 3)).astype(np.float32),
        np.ones((8, 4), np.float32),
    )
    loss = lambda w, x, y: ((x @ w - y) ** 2).mean()
    step = weft.pmap(
        lambda w, x, y: w - 0.1 * lax.pmean(weft.grad(loss)(w, x, y), "batch"),
        "batch",
        in_axes=(None, 0, 0),
    )
    want = w - 0.1 * weft.grad(loss)(w, x.reshape(-1, 3), y.reshape(-1))
    for row in np.asarray(step(w, x, y)):
        np.testing.assert_allclose(row, want, rtol=1e-5)


F = weft.pmap(lambda v: lax.psum(v * v, "i") * v, axis_name="i")
G = weft.vmap(lambda v: lax.psum(v * v, "i") * v, axis_name="i")


@pytest.mark.parametrize(
    "around",
    [
        lambda f: f,
        lambda f: weft.jit(f),
        lambda f: weft.grad(lambda x: (f(x) * X).sum()),
        lambda f: weft.jit(weft.grad(lambda x: f(x).sum())),
        lambda f: lambda x: weft.jvp(f, (x,), (x + 1,))[1],
        lambda f: lambda x: weft.vmap(f)(wnp.stack([x, 2 * x])),
        lambda f: lambda x: weft.vmap(f, in_axes=1, out_axes=1)(wnp.stack([x, 2 * x], 1)),
        lambda f: weft.checkpoint(f),
        lambda f: lambda x: lax.scan(lambda c, _: (f(c) / 1e4, c.sum()), x, None, length=3)[0],
    ],
    ids=["call", "jit", "grad", "jit_grad", "jvp", "vmap", "vmap1", "checkpoint", "scan"],
)
def test_composition(around):
    np.testing.assert_allclose(around(F)(X), around(G)(X), rtol=1e-5)


def test_inside_another_pmap_it_is_vmap():
    inner = weft.pmap(lambda v: v * lax.axis_index("j") + lax.psum(v, ("i", "j")), axis_name="j")
    got = weft.pmap(inner, axis_name="i")(X)
    np.testing.assert_array_equal(got, X * np.arange(3) + X.sum())
    static = weft.pmap(lambda n, v: v * n, static_broadcasted_argnums=0, in_axes=(None, 0))
    np.testing.assert_array_equal(weft.pmap(lambda v: static(3, v))(X), X * 3)


def test_random_keys_and_methods():
    keys = weft.random.split(weft.random.key(0), 4)
    draw = lambda k: weft.random.normal(k, (2,))
    np.testing.assert_array_equal(weft.pmap(draw)(keys), weft.vmap(draw)(keys))

    class Model:
        scale = 3.0

        @weft.pmap
        def plain(v):
            return v * 2

    np.testing.assert_array_equal(Model.plain(X), X * 2)


def test_earlier_stages():
    f = weft.pmap(lambda v: {"y": v.sum()})
    assert f.eval_shape(X)["y"].shape == (8,)
    np.testing.assert_array_equal(f.lower(X).compile()(X)["y"], X.sum(1))
    assert "shard_map" in str(weft.make_jaxpr(f)(X)) and f.__name__ == "<lambda>"
    assert weft.pmap(lambda v: 1)(X).tolist() == [1] * 8
    f.clear_cache()
    np.testing.assert_array_equal(f(X)["y"], X.sum(1))


@pytest.mark.parametrize(
    ("in_axes", "out_axes", "shape"), [(0, 0, (8, 2)), (1, -1, (2, 8)), (0, 1, (8, 3))]
)
def test_tangents_of_integers_pass(in_axes, out_axes, shape):
    empty = np.zeros(shape, weft.dtypes.float0)
    got = weft.pmap(lambda t, v: (t, v * 2), in_axes=(in_axes, 0), out_axes=(out_axes, 0))(empty, X)
    want = np.moveaxis(np.moveaxis(empty, in_axes, 0), 0, out_axes)
    assert got[0].dtype == weft.dtypes.float0 and got[0].shape == want.shape
    np.testing.assert_array_equal(got[1], X * 2)
    assert weft.pmap(lambda t: t)(empty if shape[0] == 8 else empty.T).shape[0] == 8
    assert weft.pmap(lambda t, v: t, in_axes=(None, 0), out_axes=None)(empty, X).shape == shape


def test_programs_are_lowered_for_types():
    f = weft.pmap(lambda v, s: v - lax.pmean(v, "i") * s["a"], "i", in_axes=(0, None))
    scale = {"a": np.float32(2)}
    for struct in (weft.typeof(wnp.asarray(X)), weft.ShapeDtypeStruct(X.shape, X.dtype)):
        np.testing.assert_allclose(
            f.lower(struct, {"a": weft.typeof(np.float32(2))}).compile()(X, scale), f(X, scale)
        )
    assert f.eval_shape(weft.typeof(wnp.asarray(X)), scale).shape == X.shape


def test_without_jit_it_runs_at_once():
    with weft.disable_jit():
        np.testing.assert_array_equal(
            weft.pmap(lambda v: lax.psum(v, "i"), "i")(X), np.broadcast_to(X.sum(0), X.shape)
        )


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            lambda: weft.pmap(lambda v: v)(np.ones((9, 2))),
            ValueError,
            r"mapped axis has size 9, but there are 8 devices",
        ),
        (lambda: weft.pmap(lambda v: v)(np.ones((0, 2))), ValueError, "mapped axis has size 0"),
        (
            lambda: weft.pmap(lambda v: v, devices=weft.devices()[:2])(X),
            ValueError,
            r"size 8, but there are 2 devices",
        ),
        (
            lambda: weft.pmap(lambda a, b: a)(X, {"k": np.ones(3)}),
            ValueError,
            r"inconsistent sizes(.|\n)*size 8: axis 0 of argument a of type float32\[8,3\];\n.*size 3: axis 0 of argument b\['k'\]",
        ),
        (
            lambda: weft.pmap(lambda n, a, b: a, static_broadcasted_argnums=0)(1, X, np.ones(3)),
            ValueError,
            r"size 3: axis 0 of argument b ",
        ),
        (
            lambda: weft.pmap(lambda a, b: a)(X, b=np.ones(3)),
            ValueError,
            r"size 3: axis 0 of argument b ",
        ),
        (
            lambda: weft.pmap(lambda a: a, axis_size=3)(X),
            ValueError,
            "the `axis_size` argument was 3",
        ),
        (
            lambda: weft.pmap(lambda a: a)(1.0),
            ValueError,
            r"pmap was requested to map(.|\n)*in pmap\(<lambda>\)",
        ),
        (
            lambda: weft.pmap(lambda a: a, in_axes=None)(X),
            ValueError,
            "at least one non-None value in in_axes",
        ),
        (
            lambda: weft.pmap(lambda a, b: a, in_axes=(0,))(X, X),
            ValueError,
            "one entry per positional argument",
        ),
        (
            lambda: weft.pmap(lambda a: (a, a), out_axes=(0, 0, 0))(X),
            ValueError,
            "out_axes specification must be a tree prefix",
        ),
        (lambda: weft.pmap(lambda a: a, out_axes=3)(X), ValueError, "out_axes=3 is out of range"),
        (
            lambda: weft.pmap(lambda a: a, in_axes="a"),
            TypeError,
            "in_axes and out_axes must be an int",
        ),
        (
            lambda: weft.pmap(lambda a: a, donate_argnums=0, static_broadcasted_argnums=0),
            ValueError,
            "both static and donated",
        ),
        (
            lambda: weft.pmap(lambda a: a, static_broadcasted_argnums=2)(X),
            ValueError,
            "1 positional",
        ),
        (lambda: weft.pmap(3), TypeError, "pmap: Expected a callable value"),
        (
            lambda: weft.pmap(lambda a: a, global_arg_shapes=((8,),)),
            NotImplementedError,
            "global_arg_shapes",
        ),
        (
            lambda: weft.pmap(lambda a: a, devices=weft.devices(), backend="cpu"),
            ValueError,
            "not both",
        ),
        (lambda: weft.pmap(lambda a: a, devices=[]), ValueError, "`devices` is empty"),
        (lambda: weft.pmap(lambda v: lax.psum(v, "j"), "i")(X), NameError, "unbound axis name: j"),
        (lambda: weft.pmap(lambda v: "text")(X), TypeError, "text"),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()
    np.testing.assert_array_equal(F(X), G(X))  # and the process continues


def test_device_put_into_a_memory():
    x = weft.device_put(np.arange(8.0), NamedSharding(weft.make_mesh((4,), ("a",)), P("a")))
    host = weft.device_put({"x": x, "y": 1.0}, MemorySpace.Host)
    assert (
        host["x"].sharding == x.sharding.with_memory_kind("pinned_host")
        and host["y"].sharding.memory_kind == "pinned_host"
    )
    assert weft.device_put(host["x"], MemorySpace.Device).sharding == x.sharding
    assert (
        weft.jit(lambda x: weft.device_put(x, MemorySpace.Host) * 2)(x).tolist()
        == (2 * np.arange(8.0)).tolist()
    )
    with pytest.raises(ValueError, match=r"MemorySpace\.Any is not a placement"):
        weft.device_put(x, MemorySpace.Any)


def test_device_put_over_a_mesh_without_devices():
    abstract = weft.sharding.AbstractMesh((4,), ("along",))
    rows, devices = NamedSharding(abstract, P("along")), weft.devices()[2:6]
    x = weft.device_put(np.arange(8.0), NamedSharding(Mesh(np.array(devices), ("b",)), P()))
    y = weft.device_put(x, rows)  # on the devices of the array
    assert (
        y.sharding == NamedSharding(Mesh(np.array(devices), ("along",)), P("along"))
        and y.tolist() == x.tolist()
    )
    with weft.set_mesh(Mesh(np.array(devices[::-1]), ("along",))):
        assert weft.device_put(np.arange(8.0), rows).addressable_shards[0].device == devices[-1]
    for value in (
        np.arange(8.0),
        1.0,
        weft.numpy.arange(8),
        weft.device_put(np.arange(8.0), devices[0]),
    ):
        with pytest.raises(ValueError, match=r"has no devices, and the value, of type .* is on"):
            weft.device_put(value, rows)
    assert weft.jit(lambda x: weft.device_put(x, rows))(x).sharding.is_equivalent_to(y.sharding, 1)


def test_device_put_along_devices():
    devices = weft.devices()[2:5]
    shards = weft.device_put_sharded([{"x": np.full(2, i)} for i in range(3)], devices)
    assert (
        shards["x"].shape == (3, 2)
        and [s.device for s in shards["x"].addressable_shards] == devices
    )
    same = weft.device_put_replicated(np.arange(2), devices)
    np.testing.assert_array_equal(same, [[0, 1]] * 3)
    np.testing.assert_array_equal(
        weft.pmap(lambda a, b: a + b, devices=devices)(shards["x"], same), [[0, 1], [1, 2], [2, 3]]
    )
    assert weft.local_device_count() == weft.device_count() == 8
    sharding = PmapSharding.default((2, 4), sharded_dim=1)
    assert sharding.shard_shape((2, 4)) == (2, 1) and sharding.num_devices == 4
    assert PmapSharding.default((2, 4), None, devices).is_fully_replicated
    with pytest.raises(ValueError, match="size 9"):
        PmapSharding.default((9,))
    with pytest.raises(NotImplementedError, match=r"PmapSharding\.default"):
        PmapSharding(devices, None)


def test_constraints_on_a_mesh_without_axes_ask_for_nothing():
    """Such shardings occur in the types of values on one device."""
    one = weft.typeof(wnp.ones((3,))).sharding
    assert one.mesh.empty
    f = lambda v: lax.with_sharding_constraint(v * 2, one)
    np.testing.assert_array_equal(weft.pmap(f)(X), 2 * X)
    np.testing.assert_array_equal(weft.jit(f)(X[0]), 2 * X[0])
