"""A Pallas kernel.

Write a kernel that computes blocks of the Mandelbrot set, run it over a grid of blocks,
and share the blocks among eight devices.

python examples/gallery/pallas_kernel.py
"""

# %%
# The kernel reads one block of each coordinate and writes one block of the result.
import weft
import weft.numpy as wnp
from weft.experimental import pallas as pl
from weft.sharding import PartitionSpec as P

weft.config.update("num_cpu_devices", 8)
STEPS, BLOCK = 40, 32


def escape_kernel(x_ref, y_ref, counts_ref):
    x, y = x_ref[...], y_ref[...]

    def step(_, state):
        a, b, counts = state
        a, b = a * a - b * b + x, 2 * a * b + y
        inside = a * a + b * b < 4
        return wnp.where(inside, a, 2.0), wnp.where(inside, b, 0.0), counts + inside

    start = (wnp.zeros_like(x), wnp.zeros_like(y), wnp.zeros_like(x))
    counts_ref[...] = weft.lax.fori_loop(0, STEPS, step, start)[2]


# %%
# `pallas_call` runs the kernel for each point of a grid; a block spec maps a grid index to
# a block.
def escape_counts(x, y):
    block = pl.BlockSpec((BLOCK, BLOCK), lambda i, j: (i, j))
    return pl.pallas_call(
        escape_kernel,
        weft.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.shape[0] // BLOCK, x.shape[1] // BLOCK),
        in_specs=[block, block],
        out_specs=block,
    )(x, y)


# %%
# The whole picture on one device.
x, y = wnp.meshgrid(wnp.linspace(-2.0, 1.0, 384), wnp.linspace(-1.2, 1.2, 256))
counts = weft.jit(escape_counts)(x, y)
print("counts", counts.shape, counts.dtype)
print(f"{(counts == STEPS).mean():.0%} of the points stay bounded for {STEPS} steps")

# %%
# On eight devices: `shard_map` gives each device 32 rows, on which it runs the same kernel.
mesh = weft.make_mesh((8,), ("row",))
sharded = weft.shard_map(
    escape_counts,
    mesh=mesh,
    in_specs=(P("row"), P("row")),
    out_specs=P("row"),
    check_vma=False,
)
counts_8 = weft.jit(sharded)(x, y)
print("sharded", counts_8.sharding.spec, "equal", bool((counts_8 == counts).all()))


# %%
# The kernel agrees with ordinary array code.
def reference(x, y):
    def step(_, state):
        z, counts = state
        z = z * z + (x + 1j * y)
        inside = abs(z) < 2
        return wnp.where(inside, z, 2.0), counts + inside

    start = (wnp.zeros_like(x + 1j * y), wnp.zeros_like(x))
    return weft.lax.fori_loop(0, STEPS, step, start)[1]


equal = (weft.jit(reference)(x, y) == counts).mean()
print(f"agrees with array code at {equal:.1%} of the points")
