"""Arrays that move between shardings of a plugin's devices, on the devices."""

import itertools

import numpy as np
import pytest

import weft
from weft._engine import hooks
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

SPECS = (P(), P("a"), P("b", "a"), P(None, ("a", "b")))


@pytest.fixture
def program_names(monkeypatch):
    """Return the names of the programs that are compiled, or loaded from disk, during the test."""
    names: list[str] = []
    monkeypatch.setattr(
        hooks, "after_compilation", [lambda executable: names.append(executable.name)]
    )
    return names


@pytest.mark.parametrize("is_reversed", [False, True], ids=["same mesh", "reversed devices"])
@pytest.mark.parametrize("old,new", [*itertools.permutations(SPECS, 2)], ids=str)
def test_device_put_reshards(devices, old, new, is_reversed):
    meshes = [Mesh(np.array(order).reshape(4, 2), ("a", "b")) for order in (devices, devices[::-1])]
    value = np.random.default_rng(0).standard_normal((1024, 512), np.float32)  # 2 MiB
    x = weft.device_put(value, NamedSharding(meshes[0], old))
    y = weft.device_put(x, NamedSharding(meshes[is_reversed], new))
    assert y.sharding == NamedSharding(meshes[is_reversed], new)
    for shard in y.addressable_shards:
        np.testing.assert_array_equal(shard.data, value[shard.index])


def test_large_arrays_reshard_without_the_host(devices, program_names, monkeypatch):
    mesh = Mesh(np.array(devices).reshape(4, 2), ("a", "b"))
    x = weft.device_put(np.ones((1024, 513), np.float32), NamedSharding(mesh, P("a")))
    backend = devices[0].client
    monkeypatch.setattr(type(backend), "get_blocks", None)
    weft.device_put(x, NamedSharding(mesh, P("b")))
    assert program_names == ["reshard"]
