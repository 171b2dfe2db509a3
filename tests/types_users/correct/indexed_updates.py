"""Indexing and functional updates."""

import numpy as np

import weft
import weft.numpy as wnp


def scatter(x: weft.Array, rows: weft.Array, values: np.ndarray) -> weft.Array:
    x = x.at[rows, 0].add(values)
    x = x.at[..., -1].set(0.0)
    x = x.at[x > 3].multiply(2.0)
    return x.at[0].min(wnp.ones(3)).at[1, 1:].max(5)


x = wnp.arange(12.0).reshape(4, 3)
updated = scatter(x, wnp.array([0, 2]), np.array([10.0, 20.0], dtype=np.float32))
row = updated[1]
block = updated[1:3, ::-1]
picked = updated[np.array([0, 1]), wnp.array([1, 2])]
masked = updated[updated > 4]
grown = updated[:, None, :]
print(row.shape, block.T.shape, picked.ndim, masked.size, grown[..., 0].shape)
print([float(r.sum()) for r in updated], len(updated), 5.0 in row)
