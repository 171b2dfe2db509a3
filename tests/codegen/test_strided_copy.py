"""Copies of strided views by native code, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft._engine.codegen.library import strided_copy
from weft.sharding import NamedSharding, PartitionSpec as P

X = np.arange(1 << 20, dtype=np.float32)
VIEWS = {
    "whole": X,
    "rows": X.reshape(1024, 1024)[3:1000:7],
    "columns": X.reshape(1024, 1024)[:, 100:300],
    "shards of columns": X.reshape(256, 8, 512).transpose(1, 0, 2),
    "shards of both": X.reshape(4, 64, 8, 512).transpose(0, 2, 1, 3),
    "backward": X.reshape(64, 16384)[::-1, 5:6000],
    "long rows that come in pieces": X.reshape(2, 8, 65536)[:, ::2].transpose(1, 0, 2),
    "repeated": np.broadcast_to(X[:4096], (5, 3, 4096)),
    "one run": X[7 : 7 + 70001],
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_becomes_dense(name):
    view = VIEWS[name]
    out = np.full(view.shape, -1, view.dtype)
    guard = np.full(view.size + 32, -1, view.dtype)
    assert strided_copy.copy(out.ctypes.data, view) and strided_copy.copy(
        guard[16:].ctypes.data, view
    )
    np.testing.assert_array_equal(out, view)
    np.testing.assert_array_equal(guard[16:-16].reshape(view.shape), view)
    assert (guard[:16] == -1).all() and (guard[-16:] == -1).all()


@pytest.mark.parametrize("view", [X.reshape(1024, 1024).T, X[::2], X.reshape(-1, 8)[:, :3]])
def test_scattered_elements_are_left_to_others(view):
    assert not strided_copy.copy(0, view)


@pytest.mark.parametrize("spec", [P("a", "b"), P(None, ("a", "b")), P("b"), P(None, "a"), P()])
@pytest.mark.parametrize(
    "value",
    [
        X.reshape(1024, 1024),
        X.reshape(1024, 1024).T,
        (X % 2048).reshape(1024, 1024).astype(np.float16),
    ],
)
def test_there_and_back(spec, value):
    mesh = weft.make_mesh((4, 2), ("a", "b"))
    put = weft.device_put(value, NamedSharding(mesh, spec))
    assert put.committed and put.dtype == value.dtype
    np.testing.assert_array_equal(put, value)
    for shard in put.addressable_shards:
        np.testing.assert_array_equal(shard.data, value[shard.index])
