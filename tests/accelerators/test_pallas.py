"""Pallas kernels run on a plugin as their interpretation: grids, memory copies, scratch memory, derivatives, meshes."""

import functools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.experimental import pallas as pl
from weft.experimental.pallas import tpu as pltpu
from weft.sharding import NamedSharding, PartitionSpec as P

X = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)


def scale(x, factor=3.0):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * factor

    block = pl.BlockSpec((4, 8), lambda i: (i, 0))
    shape = weft.ShapeDtypeStruct(x.shape, x.dtype)
    call = pl.pallas_call(
        kernel, grid=(x.shape[0] // 4,), in_specs=[block], out_specs=block, out_shape=shape
    )
    return call(x)


def multiply(x, y):
    """A product whose blocks add up in scratch memory."""

    def kernel(x_ref, y_ref, o_ref, acc_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            acc_ref[...] = wnp.zeros_like(acc_ref)

        acc_ref[...] += x_ref[...] @ y_ref[...]
        o_ref[...] = acc_ref[...]

    return pl.pallas_call(
        kernel,
        grid=(4, 2, 2),
        in_specs=[
            pl.BlockSpec((4, 4), lambda i, j, k: (i, k)),
            pl.BlockSpec((4, 8), lambda i, j, k: (k, j)),
        ],
        out_specs=pl.BlockSpec((4, 8), lambda i, j, k: (i, j)),
        out_shape=weft.ShapeDtypeStruct((16, 16), x.dtype),
        scratch_shapes=[pltpu.VMEM((4, 8), np.float32)],
    )(x, y)


def copy_by_dma(x):
    def kernel(x_ref, o_ref, semaphore):
        copy = pltpu.make_async_copy(x_ref, o_ref, semaphore)
        copy.start()
        copy.wait()

    shape = weft.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(kernel, out_shape=shape, scratch_shapes=[pltpu.SemaphoreType.DMA])(x)


CASES = {
    "grid": (scale, (X,), 3 * X),
    "scratch": (multiply, (X, X.T), X @ X.T),
    "copies": (copy_by_dma, (X,), X),
    "vmap": (lambda x: weft.vmap(scale)(wnp.stack([x, -x])), (X,), np.stack([3 * X, -3 * X])),
    "scan": (lambda x: weft.lax.scan(lambda c, _: (scale(c), None), x, None, 2)[0], (X,), 9 * X),
}


@pytest.mark.parametrize("interpret", [False, True], ids=["compiled", "interpret"])
@pytest.mark.parametrize("name", CASES)
def test_kernels_run_on_a_device(devices, name, interpret, monkeypatch):
    run, args, expected = CASES[name]
    if interpret:
        monkeypatch.setattr(pl, "pallas_call", functools.partial(pl.pallas_call, interpret=True))
    result = weft.jit(run)(*[weft.device_put(x, devices[3]) for x in args])
    assert result.devices() == {devices[3]}
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_kernels_run_on_each_device_of_a_mesh(mesh):
    x = weft.device_put(X, NamedSharding(mesh, P("a")))
    run = weft.shard_map(
        lambda x: scale(x) + weft.lax.psum(x, "a"), mesh=mesh, in_specs=P("a"), out_specs=P("a")
    )
    result = weft.jit(run)(x)
    assert result.sharding.is_equivalent_to(x.sharding, 2)
    np.testing.assert_allclose(
        result, 3 * X + np.tile(X.reshape(4, 4, 8).sum(0), (4, 1)), rtol=1e-5, atol=1e-5
    )
