"""The partitioner compares plans by the communication costs of the backend."""

import numpy as np
import pytest

import weft
from weft._engine.backends import base
from weft._engine.backends.reference import ReferenceBackend
from weft._engine.partition.cost import CostModel
from weft.sharding import Mesh, NamedSharding, P


class FreeCompute(ReferenceBackend):
    """A model where computation takes no time, so every device may compute the whole."""

    platform = "free-work"
    cost_model = CostModel(
        latency=0,
        flops_per_byte=1 << 40,
        repeated_flops_per_byte=1 << 40,
        local_bytes_per_byte=1 << 40,
    )


class ExpensiveCompute(ReferenceBackend):
    """A model where computation is slow, so no product is computed twice."""

    platform = "dear-work"
    cost_model = CostModel(flops_per_byte=1, repeated_flops_per_byte=1, local_bytes_per_byte=1)


@pytest.fixture
def backends(monkeypatch):
    monkeypatch.setattr(base, "_factories", dict(base._factories))
    monkeypatch.setattr(base, "_backends", dict(base._backends))
    for backend in (FreeCompute, ExpensiveCompute):
        base.register(backend.platform, backend)


@pytest.mark.parametrize(
    ("backend", "kinds"), [("free-work", ["all_gather"]), ("dear-work", ["psum"])]
)
def test_the_cost_model_decides_between_plans(backends, backend, kinds):
    mesh = Mesh(np.array(weft.devices()).reshape(4, 2), ("x", "y"))
    a, b = [
        weft.device_put(np.arange(256, dtype=np.float32).reshape(16, 16), NamedSharding(mesh, spec))
        for spec in (P(), P("x"))
    ]
    product = weft.jit(lambda a, b: a @ b, backend=backend)
    np.testing.assert_allclose(product(a, b), np.asarray(a) @ np.asarray(b), rtol=1e-6)
    assert [r.kind for r in product.lower(a, b).compile().stages.collectives] == kinds
