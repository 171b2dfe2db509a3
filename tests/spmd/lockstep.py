"""Execution of all devices of a mesh in lockstep, as on the reference backend; scatter and gather of global arrays."""

from __future__ import annotations

import math

import numpy as np

from weft._engine.backends import lockstep
from weft._engine.ir.specs import grid_of_dims


class Lockstep(lockstep.Lockstep):
    """Devices in row-major order of the mesh `axes`, a sequence of (name, size)."""

    def __init__(self, axes):
        super().__init__(axes)
        self.sizes = dict(axes)

    def scatter(self, x, spec):
        """Return the shards of a global array, one per device."""
        splits, ids = grid_of_dims(tuple(spec), tuple(self.names), tuple(s for _, s in self.axes))
        local = [s // n for s, n in zip(x.shape, splits)]
        shards = []
        for shard in ids:
            at = np.unravel_index(shard, splits) if splits else ()
            shards.append(x[tuple(slice(p * n, (p + 1) * n) for p, n in zip(at, local))])
        return shards

    def gather(self, shards, spec):
        """Return the global array of shards; replicas must agree bit for bit."""
        splits, ids = grid_of_dims(tuple(spec), tuple(self.names), tuple(s for _, s in self.axes))
        local = shards[0].shape
        out = np.zeros([s * n for s, n in zip(local, splits)], shards[0].dtype)
        seen = {}
        for shard, block in zip(ids, shards):
            if shard in seen:
                np.testing.assert_array_equal(
                    np.asarray(block), np.asarray(seen[shard]), err_msg="replicas differ"
                )
            seen[shard] = block
            at = np.unravel_index(shard, splits) if splits else ()
            out[tuple(slice(p * n, (p + 1) * n) for p, n in zip(at, local))] = block
        return out

    def block(self, x, spec):
        """Return the storage of a global array: one block [splits..., local dims...]."""
        splits = [math.prod(self.sizes[a] for a in axes) for axes in spec]
        pairs = [n for s, k in zip(x.shape, splits) for n in (k, s // k)]
        rank = x.ndim
        return x.reshape(pairs).transpose([*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)])

    def whole(self, block):
        """Return the global array of a storage block."""
        rank = block.ndim // 2
        order = [d for k in range(rank) for d in (k, rank + k)]
        return block.transpose(order).reshape(
            [block.shape[k] * block.shape[rank + k] for k in range(rank)]
        )
