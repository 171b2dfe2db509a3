"""Layouts between which an axis must be cut in two: exchanges over part of an axis, then a permute."""

import numpy as np
import pytest

import weft
from benchmarks.communication import read
from tests.spmd.harness import P, check, make, random
from weft._engine.ir.shardings import NamedSharding

#: mesh, spec of x, spec of x.T, kinds of collectives, bytes that a device sends (XLA sends at least as many)
TRANSPOSES = [
    ({"a": 4, "b": 2}, P("a", "b"), P("a", "b"), ["all_to_all", "ppermute"], 3072),
    ({"a": 4, "b": 2}, P("b", "a"), P("b", "a"), ["all_to_all", "ppermute"], 3072),
    ({"a": 4, "b": 2}, P("a"), P(("a", "b")), ["all_to_all"], 1792),
    ({"a": 4, "b": 2}, P(("a", "b")), P("a"), ["all_gather", "all_to_all"], 5120),
    ({"a": 4, "b": 2}, P(("b", "a")), P("b"), ["all_gather", "all_to_all", "ppermute"], 9216),
    ({"a": 2, "b": 2, "c": 2}, P("a", ("b", "c")), P("a", "b"), ["all_gather", "ppermute"], 4096),
]


@pytest.mark.parametrize("axes, have, want, kinds, nbytes", TRANSPOSES)
def test_transpose(axes, have, want, kinds, nbytes):
    result = check(lambda x: [x.T], [random(64, 64)], make(**axes), [have], [want])
    assert (sorted(r.kind for r in result.records), result.bytes_sent) == (kinds, nbytes)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_blocks_and_texts(backend):
    mesh, x = make(a=4, b=2), random(64, 32)
    grid = NamedSharding(mesh, P("a", "b"))
    f = weft.jit(lambda x: x.T, out_shardings=grid, backend=backend)
    placed = weft.device_put(x, grid)
    y = f(placed)
    assert y.sharding.spec == grid.spec
    for shard in y.addressable_shards:
        np.testing.assert_array_equal(shard.data, x.T[shard.index])
    compiled = f.lower(placed).compile()
    counted = [(r.kind, r.bytes_per_device) for r in compiled.stages.collectives]
    assert counted == [("all_to_all", 512), ("ppermute", 1024)]
    assert read(compiled.as_text()) == ({"all-to-all": 1, "collective-permute": 1}, 1536)
    text = str(weft.explain(f, placed))
    assert "all_to_all" in text and "ppermute" in text
