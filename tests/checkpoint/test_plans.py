"""A state saved under one plan of automatic sharding is restored under another one, and training continues with the same values."""

import numpy as np

import weft
import weft.numpy as wnp
from weft import checkpoint

RNG = np.random.default_rng(0)


def loss(params, batch):
    x, target = batch
    hidden = wnp.maximum(x @ params["up"], 0)
    return ((x + hidden @ params["down"] - target) ** 2).sum(-1).mean()


def step(params, batch):
    grads = weft.grad(loss)(params, batch)
    return weft.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def arrays(*shapes):
    return [RNG.normal(size=shape, scale=0.1).astype(np.float32) for shape in shapes]


def test_a_state_moves_from_plan_to_plan(tmp_path):
    params = dict(zip(("up", "down"), arrays((64, 256), (256, 64))))
    batches = [tuple(arrays((128, 64), (128, 64))) for _ in range(2)]
    first, second = (
        weft.auto.shardings(
            step, params, batches[0], mesh=weft.make_mesh(sizes, names), donate_argnums=0
        )
        for sizes, names in (((8,), ("x",)), ((4, 2), ("x", "y")))
    )
    blocks = [
        {
            name: plan.in_shardings[0][name].shard_shape(value.shape)
            for name, value in params.items()
        }
        for plan in (first, second)
    ]
    assert blocks == [
        {"up": (64, 32), "down": (32, 64)},
        {"up": (32, 64), "down": (32, 64)},
    ]

    state = first.jit()(*first.place((params, batches[0])))
    checkpoint.save(tmp_path, state, 1).wait()
    like = weft.tree.map(
        lambda value, sharding: weft.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding),
        state,
        second.in_shardings[0],
    )
    restored = checkpoint.restore(tmp_path, like)
    for name, value in restored.items():
        assert value.sharding == second.in_shardings[0][name]
        np.testing.assert_array_equal(value, state[name])

    continued = second.jit()(*second.place((restored, batches[1])))
    expected = step(step(params, batches[0]), batches[1])
    for name, value in continued.items():
        assert value.sharding == second.out_shardings[name]
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)
        assert np.abs(value - params[name]).max() > 1e-3
