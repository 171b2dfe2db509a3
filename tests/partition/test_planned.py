"""Programs for a thousand processes, counted without running them."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.distributed import planned_devices
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

RANKS = 1024


def like(mesh, shape, *entries):
    return weft.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*entries)))


def step(params, batch):
    def loss(params):
        x = batch
        for w in params:
            x = wnp.tanh(x @ w)
        return (x ** 2).mean()
    return weft.tree.map(lambda p, g: p - 0.1 * g, params, weft.grad(loss)(params))


def test_a_data_parallel_step_reduces_its_gradients_once():
    mesh = Mesh(np.array(planned_devices(RANKS)), ("data",))
    weights = [like(mesh, (32, 32)) for _ in range(3)]
    explained = weft.explain(weft.jit(step, out_shardings=NamedSharding(mesh, P())), weights, like(mesh, (4 * RANKS, 32), "data"))
    assert {(r.kind, r.processes) for r in explained.exchanges} == {("all_reduce sum", RANKS)}
    assert explained.process_bytes == sum(2 * n * (RANKS - 1) // RANKS for n in [4 * 32 * 32] * 3)
    assert explained.bytes == explained.process_bytes


def test_devices_of_a_process_send_one_message():
    mesh = Mesh(np.array(planned_devices(64, 8, 4)).reshape(64, 8), ("data", "model"))
    x = like(mesh, (512, 64), ("data", "model"))
    explained = weft.explain(lambda x: x.sum(0), x)
    (one,) = explained.exchanges
    assert (one.bytes, one.messages) == (2 * 256 * 63 // 64, 2 * 63)
    assert len(one.links) == 16 and set(one.links.values()) == {one.bytes} and "from host 0 to host 1" in str(explained)
    within = weft.explain(lambda x: x.sum(1), like(mesh, (64, 64), "data", "model"))
    assert within.exchanges == [] and within.process_bytes == 0 and within.bytes > 0


def test_nothing_runs_on_planned_devices():
    mesh = Mesh(np.array(planned_devices(4)), ("x",))
    compiled = weft.jit(lambda x: x + 1).lower(like(mesh, (4,), "x")).compile()
    with pytest.raises(RuntimeError, match="planned devices are not there"):
        compiled(weft.device_put(np.ones(4, np.float32), NamedSharding(mesh, P("x"))))
    with pytest.raises(ValueError, match="processes must be at least 1"):
        planned_devices(0)
