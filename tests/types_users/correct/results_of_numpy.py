"""Functions of NumPy that return several arrays, lists, numbers and shapes."""

import weft
import weft.numpy as wnp

x = wnp.arange(12.0).reshape(3, 4)
left, right = wnp.split(x, 2, axis=1)
rows, columns = wnp.nonzero(x > 5)
(where,) = wnp.where(x[0] > 1)
grid_x, grid_y = wnp.meshgrid(wnp.arange(3), wnp.linspace(0.0, 1.0, 4))
quotient, remainder = wnp.divmod(x, 5)
counts, edges = wnp.histogram(x, bins=4, range=(0.0, 12.0))
values, inverse = wnp.unique(wnp.array([3, 1, 3]), return_inverse=True)
shape: tuple[int, ...] = wnp.shape(x)
parts: list[weft.Array] = wnp.array_split(x, 2)
first, *others = wnp.unstack(x)
points, spacing = wnp.linspace(0, 1, 5, retstep=True)
mean: weft.Array = wnp.average(x, weights=wnp.ones((3, 4)))
chosen = wnp.select([x > 6, x > 3], [x, -x], default=0)
print(left.shape, right.shape, rows.size, columns.dtype, where.shape, grid_x.shape, grid_y.T.shape)
print(quotient.max(), remainder.max(), counts.sum(), edges.size, values, inverse, shape, len(parts))
print(first.shape, len(others), points.size, float(spacing), mean.item(), chosen.sum())
print(wnp.broadcast_shapes((3, 1), (4,)), wnp.ndim(x), wnp.size(x), wnp.add.reduce(x).shape)
print(wnp.stack([x, x]).shape, wnp.pad(x, ((0, 1), (2, 0))).shape, wnp.tile(x, (2, 1)).shape)
