"""Programs of several devices of a plugin give the values of weft's CPU: collectives, pmap, sharded jit."""

from functools import partial

import numpy as np
import pytest

import weft
from weft import lax, numpy as wnp
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

AXES = ["a", "b", ("a", "b"), ("b", "a")]
SIZES = {"a": 4, "b": 2}
VALUE = np.random.default_rng(0).standard_normal((8, 16, 8)).astype(np.float32)


def ring(x, axes):
    """Send values to the next position along each axis."""
    for axis in (axes,) if isinstance(axes, str) else axes:
        x = lax.ppermute(x, axis, [(i, (i + 1) % SIZES[axis]) for i in range(SIZES[axis])])
    return x


def send_to_one(x, axes):
    """Send the value of position 1 to position 0; the others get zeros."""
    return lax.ppermute(x, axes if isinstance(axes, str) else axes[0], [(1, 0)])


COLLECTIVES = {
    "psum": lax.psum,
    "pmean": lax.pmean,
    "pmax": lax.pmax,
    "pmin": lax.pmin,
    "psum of several": lambda x, axes: sum(lax.psum((x, x * 2, 3.0), axes)),
    "all_gather": lax.all_gather,
    "all_gather of dim 1": partial(lax.all_gather, axis=1),
    "all_gather tiled": partial(lax.all_gather, axis=1, tiled=True),
    "psum_scatter": lambda x, axes: lax.psum_scatter(split_rows(x, axes), axes),
    "psum_scatter tiled": partial(lax.psum_scatter, scatter_dimension=1, tiled=True),
    "all_to_all": lambda x, axes: lax.all_to_all(split_rows(x, axes), axes, 0, 2),
    "all_to_all tiled": partial(lax.all_to_all, split_axis=1, concat_axis=2, tiled=True),
    "ppermute": ring,
    "ppermute to one": send_to_one,
    "axis_index": lambda x, axes: x + lax.axis_index(axes),
    "axis_size": lambda x, axes: x * lax.axis_size(axes),
    "psum of bits": lambda x, axes: lax.psum(lax.bitcast_convert_type(x, np.int32) % 97, axes),
    "psum in a loop": lambda x, axes: lax.fori_loop(
        0, 3, lambda i, x: lax.pmean(x, axes) + x * i, x
    ),
    "gradient": lambda x, axes: weft.grad(lambda x: (lax.psum(x, axes) ** 2).sum())(x),
    "in a branch": lambda x, axes: lax.cond(
        lax.psum(x.sum(), ("a", "b")) > 0, lambda x: lax.pmax(x, axes), lambda x: -x, x
    ),
}


def split_rows(x, axes):
    """Return 16 rows as one group for each position along `axes`."""
    parts = int(np.prod([SIZES[a] for a in axes]))
    return wnp.moveaxis(x.reshape(x.shape[0], parts, 16 // parts, x.shape[2]), 1, 0)


def grid_of(devices, **options):
    return Mesh(np.array(devices[:8]).reshape(4, 2), ("a", "b"), **options)


def on_both(devices, run):
    """Return what `run(mesh)` gives on the plugin's devices and on weft's CPU."""
    return run(grid_of(devices)), run(grid_of(weft.devices("cpu")))


def check_equal(got, expected, device, tolerance=1e-5):
    """Check shapes, dtypes and values, and that the plugin computed them."""
    for x, y in zip(weft.tree.leaves(got), weft.tree.leaves(expected), strict=True):
        assert device in x.devices() and x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_in_shard_map(devices, name, axes):
    def run(mesh):
        spec = P(("a", "b"))
        body = lambda x: COLLECTIVES[name](x, axes)  # noqa: E731
        mapped = weft.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
        return weft.jit(mapped)(weft.device_put(VALUE, NamedSharding(mesh, spec)))

    check_equal(*on_both(devices, run), devices[0])


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_of_empty_arrays(devices, name):
    def run(mesh):
        body = lambda x: COLLECTIVES[name](x, "a")  # noqa: E731
        mapped = weft.shard_map(body, mesh=mesh, in_specs=P(), out_specs=P("a"), check_vma=False)
        return weft.jit(mapped)(np.zeros((1, 16, 0), np.float32))

    check_equal(*on_both(devices, run), devices[0])


@pytest.mark.parametrize("name", ["psum", "all_gather tiled", "ppermute", "axis_index"])
def test_collectives_in_pmap(devices, name):
    def run(mesh):
        body = lambda x: COLLECTIVES[name](x[None], "a")[0]  # noqa: E731
        devices = list(mesh.devices[:, 0])
        return weft.pmap(body, axis_name="a", devices=devices)(VALUE[:4])

    check_equal(*on_both(devices, run), devices[0])


@pytest.mark.parametrize("order", [[7, 2, 5, 0, 3, 6, 1, 4], [1, 0, 3, 2, 5, 4, 7, 6]])
def test_meshes_may_have_any_order_of_devices(devices, order):
    def run(mesh):
        mesh = grid_of([mesh.devices.flat[i] for i in order])
        body = lambda x: (x + lax.axis_index("a") + 10 * lax.axis_index("b"), ring(x, ("a", "b")))  # noqa: E731
        spec = P(("a", "b"))
        mapped = weft.shard_map(body, mesh=mesh, in_specs=spec, out_specs=(spec, spec))
        return weft.jit(mapped)(weft.device_put(VALUE, NamedSharding(mesh, spec)))

    check_equal(*on_both(devices, run), devices[0])


def test_meshes_may_have_some_of_the_devices(devices):
    def run(mesh):
        mesh = Mesh(mesh.devices[1:3, 1], "a")
        body = weft.shard_map(lambda x: lax.psum(x, "a"), mesh=mesh, in_specs=P("a"), out_specs=P())
        return weft.jit(body)(weft.device_put(VALUE, NamedSharding(mesh, P("a"))))

    got, expected = on_both(devices, run)
    check_equal(got, expected, devices[3])
    assert got.devices() == {devices[3], devices[5]}


SPECS = [P(), P("a"), P(None, "b"), P(("a", "b")), P("b", "a"), P(None, None, "a")]


def layer(x, w):
    """A product, a normalization, a softmax and two reductions."""
    y = wnp.tanh(wnp.einsum("bik,kj->bij", x, w))
    y = (y - y.mean(1, keepdims=True)) / (y.std(1, keepdims=True) + 1e-3)
    return weft.nn.softmax(y, axis=-1), y.sum(), wnp.sort(y, axis=1), wnp.argmax(y, axis=0)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_jit_partitions_programs(devices, spec):
    def run(mesh):
        w = weft.device_put(VALUE[0, :8], NamedSharding(mesh, P("b")))
        x = weft.device_put(VALUE, NamedSharding(mesh, spec))
        loss = lambda w, x: layer(x, w)[0][..., 0].sum()  # noqa: E731
        return weft.jit(layer)(x, w), weft.jit(weft.value_and_grad(loss))(w, x)

    check_equal(*on_both(devices, run), devices[0], 1e-4)


@pytest.mark.parametrize("spec", SPECS[1:], ids=str)
def test_explicit_shardings_are_those_of_the_cpu(devices, spec):
    def run(mesh):
        mesh = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Explicit,) * 2)
        with weft.set_mesh(mesh):
            x = weft.device_put(VALUE, NamedSharding(mesh, spec))
            f = lambda x: (wnp.sin(x) * 2, x.sum(1), weft.sharding.reshard(x, P("b", "a")))  # noqa: E731
            return weft.jit(f)(x)

    got, expected = on_both(devices, run)
    check_equal(got, expected, devices[0])
    assert [x.sharding.spec for x in got] == [x.sharding.spec for x in expected]


@pytest.mark.parametrize("out", SPECS, ids=str)
def test_results_have_the_shardings_that_were_given(devices, out):
    def run(mesh):
        f = weft.jit(lambda x: x * 2, in_shardings=None, out_shardings=NamedSharding(mesh, out))
        return f(weft.device_put(VALUE, NamedSharding(mesh, P("a"))))

    got, expected = on_both(devices, run)
    check_equal(got, expected, devices[0])
    assert got.sharding == NamedSharding(grid_of(devices), out)


def test_uneven_shapes_are_partitioned(devices):
    def run(mesh):
        def f(x):
            y = lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P("a", "b")))
            return y.sum(0), wnp.cumsum(y, axis=0), y[1:, :-1]

        return weft.jit(f)(weft.device_put(VALUE[0, :13, :7], NamedSharding(mesh, P())))

    check_equal(*on_both(devices, run), devices[0])


DRAWS = {
    "bits": partial(weft.random.bits, shape=(64,)),
    "uniform": partial(weft.random.uniform, shape=(8, 8)),
    "normal": partial(weft.random.normal, shape=(8, 8)),
    "randint": partial(weft.random.randint, shape=(64,), minval=-5, maxval=1000),
    "permutation": partial(weft.random.permutation, x=64),
    "bernoulli": partial(weft.random.bernoulli, shape=(64,)),
    "split": weft.random.split,
    "fold_in": partial(weft.random.fold_in, data=9),
}
#: computed with `log`, whose last bits differ
ROUNDED = ("normal",)


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_are_those_of_the_cpu(devices, name, implementation):
    draws = []
    for platform in (devices, weft.devices("cpu")):
        with weft.default_device(platform[1]):
            drawn = weft.jit(DRAWS[name])(weft.random.key(42, impl=implementation))
            if wnp.issubdtype(drawn.dtype, weft.dtypes.prng_key):
                drawn = weft.random.key_data(drawn)
            assert drawn.devices() == {platform[1]}
            draws.append(np.asarray(drawn))
    if name in ROUNDED:
        np.testing.assert_allclose(*draws, rtol=2e-6)
    else:
        np.testing.assert_array_equal(*draws)


@pytest.mark.parametrize("partitionable", [False, True])
def test_sharded_random_numbers_are_those_of_one_device(devices, mesh, partitionable):
    with weft.threefry_partitionable(partitionable):
        sharding = NamedSharding(mesh, P("a", "b"))
        draw = lambda key: weft.random.bits(key, (16, 16))  # noqa: E731
        key = weft.device_put(weft.random.key(3), devices[0])
        sharded = weft.jit(draw, out_shardings=sharding)(
            weft.device_put(key, NamedSharding(mesh, P()))
        )
        np.testing.assert_array_equal(sharded, weft.jit(draw)(key))
        np.testing.assert_array_equal(sharded, draw(weft.random.key(3)))
