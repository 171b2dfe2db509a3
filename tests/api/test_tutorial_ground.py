"""The subjects of the tutorial on sharded arrays, without its text: layouts follow data, errors,
values, training.
Every case uses eight devices; layouts are read from `devices_indices_map`.
"""

from itertools import pairwise

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.experimental import mesh_utils
from weft.sharding import Mesh, NamedSharding, PartitionSpec, PositionalSharding

P = PartitionSpec
N = 64


def layout_of(array):
    """Return a layout as text: ids in a tile are separated by commas, columns by spaces, rows by
    slashes."""
    from weft._engine.debug.device_tiles import tile

    tiling = tile(array.shape, array.sharding)
    columns = tiling.counts[-1]
    tiles = [",".join(map(str, tiling.holders[cell])) for cell in np.ndindex(tiling.counts)]
    return "/".join(" ".join(tiles[i : i + columns]) for i in range(0, len(tiles), columns))


@pytest.fixture(scope="module")
def positions():
    return PositionalSharding(mesh_utils.create_device_mesh((8,)))


@pytest.fixture(scope="module")
def mesh():
    return Mesh(mesh_utils.create_device_mesh((4, 2)), axis_names=("a", "b"))


@pytest.fixture(scope="module")
def x():
    return weft.random.normal(weft.random.PRNGKey(0), (N, N))


GRID = "0 1/2 3/4 5/6 7"
ROWS = "0,1/2,3/4,5/6,7"
COLUMNS = "0,2,4,6 1,3,5,7"
WHOLE = "0,1,2,3,4,5,6,7"


@pytest.mark.parametrize(
    ("make", "layout"),
    [
        (lambda s: s.reshape(8, 1), "0/1/2/3/4/5/6/7"),
        (lambda s: s.reshape(4, 2), GRID),
        (lambda s: s.reshape(1, 8), "0 1 2 3 4 5 6 7"),
        (lambda s: s.reshape(4, 2).replicate(0), COLUMNS),
        (lambda s: s.reshape(4, 2).replicate(1), ROWS),
        (lambda s: s.reshape(4, 2).replicate(axis=0, keepdims=True), COLUMNS),
        (lambda s: s.reshape(4, 2).replicate(0).T, "0,2,4,6/1,3,5,7"),
        (lambda s: s.replicate(), WHOLE),
    ],
)
def test_positional_layouts(positions, x, make, layout):
    y = weft.device_put(x, make(positions))
    assert layout_of(y) == layout
    np.testing.assert_array_equal(np.asarray(y), np.asarray(x))


@pytest.mark.parametrize(
    ("spec", "layout"),
    [
        (P("a", "b"), GRID),
        (P("b", "a"), "0 2 4 6/1 3 5 7"),
        (P("a", None), ROWS),
        (P("a"), ROWS),
        (P(None, "b"), COLUMNS),
        (P(None, "a"), "0,1 2,3 4,5 6,7"),
        (P(("a", "b"), None), "0/1/2/3/4/5/6/7"),
        (P(), WHOLE),
    ],
)
def test_named_layouts(mesh, x, spec, layout):
    y = weft.device_put(x, NamedSharding(mesh, spec))
    assert layout_of(y) == layout
    np.testing.assert_array_equal(np.asarray(y), np.asarray(x))


def test_shards_hold_their_part(mesh, x):
    y = weft.device_put(x, NamedSharding(mesh, P("a", "b")))
    assert len(y.addressable_shards) == 8
    for shard in y.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), np.asarray(x)[shard.index])


def test_elementwise_keeps_the_layout(positions, x):
    y = weft.device_put(x, positions.reshape(4, 2))
    z = wnp.sin(y)
    assert layout_of(z) == GRID
    np.testing.assert_allclose(np.asarray(z), np.sin(np.asarray(x)), atol=1e-6)


def test_a_layout_does_not_change_the_bits(positions, x):
    whole = np.asarray(wnp.sin(x))
    for shape in ((8, 1), (4, 2), (1, 8)):
        assert (np.asarray(wnp.sin(weft.device_put(x, positions.reshape(*shape)))) == whole).all()


def test_rows_times_columns_is_a_grid_and_needs_no_collective(positions, x):
    y = weft.device_put(x, positions.reshape(4, 2).replicate(1))
    z = weft.device_put(x, positions.reshape(4, 2).replicate(0))
    w = wnp.dot(y, z)
    assert layout_of(w) == GRID
    np.testing.assert_allclose(np.asarray(w), np.asarray(x) @ np.asarray(x), atol=1e-3)
    text = weft.jit(wnp.dot).lower(y, z).compile().as_text()
    assert not any(
        kind in text for kind in ("all-reduce", "all-gather", "all-to-all", "collective-permute")
    )
    assert layout_of(wnp.copy(w)) == GRID


def test_one_device(x, positions):
    single = weft.device_put(weft.device_put(x, positions.reshape(4, 2)), weft.devices()[3])
    assert layout_of(single) == "3"
    assert single.devices() == {weft.devices()[3]}


def test_disjoint_devices_disagree(x):
    first, second = PositionalSharding(weft.devices()[:4]), PositionalSharding(weft.devices()[4:])
    y, z = weft.device_put(x, first.reshape(2, 2)), weft.device_put(x, second.reshape(2, 2))
    with pytest.raises(ValueError, match="device"):
        y + z


def test_device_orders_disagree(x):
    devices = weft.devices()
    permuted = [devices[i] for i in (0, 1, 2, 3, 6, 7, 4, 5)]
    y = weft.device_put(x, PositionalSharding(devices).reshape(4, 2))
    z = weft.device_put(x, PositionalSharding(permuted).reshape(4, 2))
    with pytest.raises(ValueError, match=r"order|device"):
        y + z


def test_uncommitted_arrays_follow(x):
    y = weft.device_put(x, PositionalSharding(weft.devices()[:4]).reshape(4, 1))
    assert layout_of(y + wnp.ones_like(y)) == "0/1/2/3"
    total = y + wnp.arange(y.size).reshape(y.shape)
    np.testing.assert_allclose(
        np.asarray(total), np.asarray(x) + np.arange(N * N).reshape(N, N), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("make", "layout"),
    [(lambda s: s.reshape(2, 4), "0 1 2 3/4 5 6 7"), (lambda s: s.replicate(), WHOLE)],
)
def test_constraints_inside_jit(positions, x, make, layout):
    target = make(positions)
    f = weft.jit(lambda v: weft.lax.with_sharding_constraint(v + 1, target))
    y = f(weft.device_put(x, positions.reshape(4, 2)))
    assert layout_of(y) == layout
    np.testing.assert_array_equal(np.asarray(y), np.asarray(x) + 1)


def test_sizes_that_do_not_divide_are_errors(mesh):
    with pytest.raises(ValueError, match=r"divi") as caught:
        weft.device_put(np.zeros((6, 4), np.float32), NamedSharding(mesh, P("a")))
    assert "6" in str(caught.value) and "4" in str(caught.value)


# --- the network ---

SIZES = [24, 32, 32, 32, 8]


def predict(params, inputs):
    for W, b in params:
        outputs = wnp.dot(inputs, W) + b
        inputs = wnp.maximum(outputs, 0)
    return outputs


def loss(params, batch):
    inputs, targets = batch
    return wnp.mean(wnp.sum((predict(params, inputs) - targets) ** 2, axis=-1))


def init_model():
    rng = np.random.default_rng(0)
    params = [
        (
            rng.standard_normal((i, o)).astype(np.float32) / np.sqrt(i),
            rng.standard_normal(o).astype(np.float32),
        )
        for i, o in pairwise(SIZES)
    ]
    batch = tuple(
        rng.standard_normal((N, size)).astype(np.float32) for size in (SIZES[0], SIZES[-1])
    )
    return params, batch


def descend(params, batch, steps=5, rate=1e-3):
    gradient = weft.jit(weft.grad(loss))
    losses = [float(weft.jit(loss)(params, batch))]
    for _ in range(steps):
        grads = gradient(params, batch)
        params = [(W - rate * dW, b - rate * db) for (W, b), (dW, db) in zip(params, grads)]
        losses.append(float(weft.jit(loss)(params, batch)))
    return params, losses


def reference_losses(steps=5, rate=1e-3):
    """Return the losses of the same descent in NumPy, in float64."""
    params, (inputs, targets) = init_model()
    params = [(W.astype(np.float64), b.astype(np.float64)) for W, b in params]
    losses = []
    for _ in range(steps + 1):
        values, x = [], inputs.astype(np.float64)
        for i, (W, b) in enumerate(params):
            values.append(x)
            out = x @ W + b
            x = np.maximum(out, 0) if i < len(params) - 1 else out
        losses.append(float(np.mean(np.sum((x - targets) ** 2, axis=-1))))
        ct = 2 * (x - targets) / N
        grads = []
        for i in reversed(range(len(params))):
            grads.insert(0, (values[i].T @ ct, ct.sum(0)))
            ct = (ct @ params[i][0].T) * (values[i] > 0) if i else None
        params = [(W - rate * dW, b - rate * db) for (W, b), (dW, db) in zip(params, grads)]
    return losses


def data_parallel(positions, params, batch):
    rows = positions.reshape(8, 1)
    return weft.device_put(params, rows.replicate()), weft.device_put(batch, rows)


def two_ways(positions, params, batch):
    grid = positions.reshape(4, 2)
    (W1, b1), (W2, b2), (W3, b3), (W4, b4) = params
    whole, columns, rows = grid.replicate(), grid.replicate(0), grid.replicate(0).T
    params = [
        (weft.device_put(W1, whole), weft.device_put(b1, whole)),
        (weft.device_put(W2, columns), weft.device_put(b2, columns)),
        (weft.device_put(W3, rows), weft.device_put(b3, whole)),
        (weft.device_put(W4, whole), weft.device_put(b4, whole)),
    ]
    return params, weft.device_put(batch, grid.replicate(1))


@pytest.mark.parametrize(
    "place", [lambda s, p, b: (p, b), data_parallel, two_ways], ids=["one", "data", "4x2"]
)
def test_training_is_the_same_under_every_layout(positions, place):
    params, batch = place(positions, *init_model())
    before = (
        [layout_of(W) for W, _ in params]
        if place is not None and hasattr(params[0][0], "sharding")
        else None
    )
    params, losses = descend(params, batch)
    np.testing.assert_allclose(losses, reference_losses(), rtol=1e-4)
    assert losses[-1] < losses[0]
    if before is not None:
        assert [layout_of(W) for W, _ in params] == before


# --- random numbers ---


def test_random_numbers_ignore_layout_and_need_no_collective():
    f = weft.jit(lambda key, v: v + weft.random.uniform(key, v.shape))
    key = weft.random.PRNGKey(42)
    x = wnp.arange(24)
    y = weft.device_put(x, PositionalSharding(weft.devices()))
    assert layout_of(f(key, y)) == "0 1 2 3 4 5 6 7"
    np.testing.assert_array_equal(np.asarray(f(key, y)), np.asarray(f(key, x)))
    text = f.lower(key, y).compile().as_text()
    assert not any(
        kind in text for kind in ("all-reduce", "all-gather", "all-to-all", "collective-permute")
    )


@pytest.mark.parametrize(
    ("partitionable", "expected"),
    [
        (True, [0.48870956897735596, 0.6797971725463867, 0.6162714958190918, 0.5610160827636719]),
        (False, [0.7250368595123291, 0.8532514572143555, 0.9834160804748535, 0.0832529067993164]),
    ],
)
def test_both_generations_of_random_numbers(partitionable, expected):
    with weft.threefry_partitionable(partitionable):
        numbers = weft.random.uniform(weft.random.PRNGKey(42), (24,))
    np.testing.assert_array_equal(np.asarray(numbers)[:4], np.float32(expected))


def test_arrays_made_like_a_sharded_one_lie_as_it_does(mesh, x):
    sharded = weft.device_put(x, NamedSharding(mesh, P("a", "b")))
    for array in (
        wnp.zeros_like(sharded),
        wnp.ones_like(sharded, dtype="int32"),
        wnp.full_like(sharded, 2.0),
    ):
        assert array.sharding == sharded.sharding and array.committed
    assert wnp.zeros_like(sharded, shape=(3,)).sharding != sharded.sharding
    assert not wnp.zeros_like(x).committed
