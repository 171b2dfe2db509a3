"""Conjugate gradients on a sharded grid.

Solve Poisson's equation on a 64 x 64 grid that is cut into tiles for eight devices; the
compiler adds the exchange of tile borders.

python examples/gallery/conjugate_gradients.py
"""

# %%
# A 4 x 2 mesh; each device holds a tile of 16 x 32 points.
import weft
import weft.numpy as wnp
from weft.sharding import NamedSharding, PartitionSpec as P

weft.config.update("num_cpu_devices", 8)
mesh = weft.make_mesh((4, 2), ("row", "column"))
tiles = NamedSharding(mesh, P("row", "column"))


# %%
# The five-point Laplacian with zeros at the border. Slices of the padded grid read the
# neighbors of each point; at the edges of tiles these are on another device.
def laplacian(grid):
    padded = wnp.pad(grid, 1)
    vertical = padded[:-2, 1:-1] + padded[2:, 1:-1]
    horizontal = padded[1:-1, :-2] + padded[1:-1, 2:]
    return 4 * grid - vertical - horizontal


# %%
# Conjugate gradients: a loop with a condition, in one compiled program. The inner product
# is a sum over both dims: `wnp.vdot` would flatten the grid, and so gather its rows.
def inner(a, b):
    return (a * b).sum()


def solve(source):
    def unfinished(state):
        _, _, _, square, count = state
        return (square > 1e-10) & (count < 500)

    def step(state):
        solution, residual, direction, square, count = state
        image = laplacian(direction)
        size = square / inner(direction, image)
        solution = solution + size * direction
        residual = residual - size * image
        new_square = inner(residual, residual)
        direction = residual + new_square / square * direction
        return solution, residual, direction, new_square, count + 1

    start = (wnp.zeros_like(source), source, source, inner(source, source), 0)
    solution, _, _, square, count = weft.lax.while_loop(unfinished, step, start)
    return solution, wnp.sqrt(square), count


# %%
# Two charges of opposite sign.
source = wnp.zeros((64, 64)).at[16, 20].set(1.0).at[44, 44].set(-1.0)
source = weft.device_put(source, tiles)
solution, residual, count = weft.jit(solve, out_shardings=(tiles, None, None))(source)
print("solution", solution.shape, solution.sharding.spec)
print(f"residual below 1e-5 after {count} iterations: {bool(residual < 1e-5)}")

# %%
# What an iteration sends: borders of tiles to neighbors, and sums of products.
explained = weft.explain(weft.jit(solve), source)
print("collectives", explained.counts)

# %%
# The same solution from a dense solver.
points = wnp.eye(64 * 64).reshape(-1, 64, 64)
matrix = weft.vmap(laplacian)(points).reshape(64 * 64, -1)
dense = wnp.linalg.solve(matrix, source.reshape(-1)).reshape(64, 64)
print(f"agrees with a dense solver: {bool(abs(dense - solution).max() < 1e-4)}")
