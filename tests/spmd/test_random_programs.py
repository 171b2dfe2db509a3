"""Random programs on random meshes with random layouts: every local program gives the global values."""

import numpy as np
import pytest

from tests.spmd.harness import P, check, make
from weft._engine.core.trace import typeof
from weft._engine.ops import arithmetic, functions, layout, reduce, slicing
from weft._engine.ops.casting import convert_element_type
from weft._engine.ops.contraction import dot_general
from weft._engine.ops.dynamic_slicing import dynamic_slice, dynamic_update_slice
from weft._engine.ops.indexing import GatherDimensionNumbers, gather

MESHES = [make(x=8), make(a=4, b=2), make(a=2, b=2, c=2), make(a=2, b=3)]
SIZES = (1, 4, 6, 8, 12, 16)


class Program:
    """Draws a straight-line program; `run` replays it on values."""

    def __init__(self, rng: np.random.Generator):
        self.seed = int(rng.integers(1 << 30))
        self.length = int(rng.integers(3, 10))
        self.shapes = [
            tuple(int(s) for s in rng.choice(SIZES, int(rng.integers(1, 4)))) for _ in range(3)
        ]

    def run(self, *args):
        rng = np.random.default_rng(self.seed)
        pool = list(args)
        for _ in range(self.length):
            x = pool[int(rng.integers(len(pool)))]
            pool.append(self.grow(rng, x, pool))
        return pool[-3:]

    def grow(self, rng, x, pool):
        shape = typeof(x).shape
        dim = int(rng.integers(len(shape))) if shape else 0
        choice = int(rng.integers(18))
        same = [y for y in pool if typeof(y).shape == shape]
        if choice == 0 or not shape:
            return functions.tanh(x)
        if choice == 1:
            return arithmetic.add(x, same[int(rng.integers(len(same)))])
        if choice == 2:
            return arithmetic.mul(x, same[int(rng.integers(len(same)))])
        if choice == 3:
            return layout.transpose(x, tuple(int(d) for d in rng.permutation(len(shape))))
        if choice == 4:
            op = (reduce.reduce_sum, reduce.reduce_max)[int(rng.integers(2))]
            return arithmetic.mul(op(x, (dim,)), np.float32(0.25))
        if choice == 5 and len(shape) < 4:
            return layout.broadcast_in_dim(x, (4, *shape), tuple(range(1, len(shape) + 1)))
        if choice == 6 and len(shape) > 1:
            return layout.reshape(x, (shape[0] * shape[1], *shape[2:]))
        if choice == 7 and len(shape) < 4:
            outer = 2 if shape[dim] % 2 == 0 else 1
            return layout.reshape(x, (*shape[:dim], outer, shape[dim] // outer, *shape[dim + 1 :]))
        if choice == 8:
            half = max(1, shape[dim] // 2)
            limits = tuple(half if d == dim else s for d, s in enumerate(shape))
            return slicing.slice(x, (0,) * len(shape), limits)
        if choice > 9:
            return self.move(rng, choice, x, same, shape, dim)
        return self.contract(rng, x, pool, shape, dim)

    def move(self, rng, choice, x, same, shape, dim):
        """Operations that know positions along `dim`."""
        n = shape[dim]
        other = same[int(rng.integers(len(same)))]
        start = np.int32(rng.integers(-2, n + 2))
        if choice == 10:
            return slicing.concatenate([x, other], dim) if n <= 16 else layout.rev(x, (dim,))
        if choice == 11:
            return slicing.pad(
                x, np.float32(1), [(1, 3, 0) if d == dim else (0, 0, 0) for d in range(len(shape))]
            )
        if choice == 12:
            return layout.rev(x, (dim,))
        if choice == 13:
            return reduce.cumsum(arithmetic.mul(x, np.float32(0.25)), dim, bool(rng.integers(2)))
        if choice == 14:
            at = [start if d == dim else np.int32(0) for d in range(len(shape))]
            return dynamic_slice(
                x, at, [max(1, n // 2) if d == dim else s for d, s in enumerate(shape)]
            )
        if choice == 15:
            at = [start if d == dim else np.int32(0) for d in range(len(shape))]
            sizes = [max(1, n // 3) if d == dim else s for d, s in enumerate(shape)]
            part = slicing.slice(other, (0,) * len(shape), sizes)
            return dynamic_update_slice(x, part, at)
        if choice == 16:
            place = convert_element_type(reduce.argmax(x, dim, np.int32), np.float32)
            return arithmetic.mul(place, np.float32(0.125))
        rows = rng.integers(-1, n + 1, (4, 1)).astype(np.int32)
        numbers = GatherDimensionNumbers(tuple(range(1, len(shape))), (dim,), (dim,))
        sizes = tuple(1 if d == dim else s for d, s in enumerate(shape))
        return gather(
            x, rows, numbers, sizes, mode="clip" if rng.integers(2) else "fill", fill_value=0.5
        )

    def contract(self, rng, x, pool, shape, dim):
        fits = [
            (y, d)
            for y in pool
            for d, s in enumerate(typeof(y).shape)
            if s == shape[dim] and len(shape) + typeof(y).ndim <= 5
        ]
        if not fits:
            return reduce.cumsum(arithmetic.mul(x, np.float32(0.25)), dim)
        y, d = fits[int(rng.integers(len(fits)))]
        return functions.tanh(dot_general(x, y, (((dim,), (d,)), ((), ()))))


def random_spec(rng, mesh, shape):
    """Return a spec that divides `shape`, or None."""
    if rng.random() < 0.2:
        return None
    axes = list(mesh.axis_names)
    rng.shuffle(axes)
    entries = []
    for size in shape:
        mine = []
        while axes and rng.random() < 0.6 and size % mesh.shape[axes[-1]] == 0:
            size //= mesh.shape[axes[-1]]
            mine.append(axes.pop())
        entries.append(tuple(mine))
    return P(*entries)


@pytest.mark.parametrize("seed", range(100))
def test_random_program(seed):
    rng = np.random.default_rng(seed)
    program = Program(rng)
    mesh = MESHES[int(rng.integers(len(MESHES)))]
    args = [rng.standard_normal(s).astype(np.float32) for s in program.shapes]
    specs = [random_spec(rng, mesh, s) for s in program.shapes]
    outs = [np.shape(o) for o in program.run(*args)]
    out_specs = [random_spec(rng, mesh, s) for s in outs]
    check(program.run, args, mesh, specs, out_specs, tolerance=1e-4)
