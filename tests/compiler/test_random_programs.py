"""Random programs agree with the NumPy reference after scheduling."""

import random

import numpy as np
import pytest

import weft._engine.ops.elementwise as E
import weft._engine.ops.layout as L
import weft._engine.ops.reduce as R
import weft._engine.ops.slicing as S
from tests.compiler.machine import check
from tests.compiler.test_fusion import dot, spread
from weft._engine.core.stage import stage
from weft._engine.ir.types import ShapedArray

SHAPES = [(4, 5), (3, 4, 5), (7,), (), (2, 6), (20, 17)]


def grow(rnd: random.Random, values: list):
    """Return one more value computed from the others, or None."""
    x, kind = rnd.choice(values), rnd.randint(0, 10)
    n = x.ndim
    if kind <= 1:
        return rnd.choice([E.sin, E.tanh])(x)
    if kind <= 3:
        return rnd.choice([E.add, E.mul])(x, rnd.choice([y for y in values if y.shape == x.shape]))
    if n == 0:
        return None
    if kind == 4:
        return L.transpose(x, permutation=tuple(rnd.sample(range(n), n)))
    if kind == 5:
        axes = tuple(sorted(rnd.sample(range(n), rnd.randint(1, n))))
        return rnd.choice([R.reduce_sum, R.reduce_max])(x, axes=axes)
    if kind == 6:
        axis = rnd.randrange(n)
        row = rnd.choice([E.neg, E.sin])(R.reduce_max(x, axes=(axis,)))
        return E.sub(x, spread(row, x.shape, tuple(d for d in range(n) if d != axis)))
    if kind == 7:
        return spread(x, (3, *x.shape), tuple(range(1, n + 1))) if n < 3 else None
    if kind == 8:
        return L.reshape(
            x, new_sizes=rnd.choice([(x.size,), (1, x.size) if x.size % 2 else (2, x.size // 2)])
        )
    if kind == 9:
        return (
            E.mul(dot(x, L.transpose(x, permutation=(1, 0))), 0.1)
            if n == 2
            else S.slice(x, (0,) * n, x.shape)
        )
    if rnd.random() < 0.5:
        return S.concatenate([x, E.sin(x)], dimension=rnd.randrange(n))
    return S.pad(
        x, np.float32(0.5), tuple((rnd.randint(0, 2), rnd.randint(0, 2), 0) for _ in x.shape)
    )


def program(seed: int):
    rnd = random.Random(seed)
    shapes = [rnd.choice(SHAPES) for _ in range(rnd.randint(1, 3))]

    def fn(*ins):
        values = list(ins)
        for _ in range(rnd.randint(3, 14)):
            value = grow(rnd, values)
            if value is not None and 0 < value.size < 2000:
                values.append(value)
        return [values[-1], *rnd.sample(values, min(len(values), rnd.randint(0, 3)))]

    return stage(fn, [ShapedArray(s, np.dtype("f4")) for s in shapes]), shapes


@pytest.mark.parametrize("start", range(0, 160, 40))
def test_slow_machine(start):
    for seed in range(start, start + 40):
        jaxpr, shapes = program(seed)
        rng = np.random.default_rng(seed)
        args = [(rng.standard_normal(s) * 0.5).astype("f4") for s in shapes]
        check(jaxpr, *args, native=False, rtol=2e-3)


@pytest.mark.parametrize("start", range(1000, 1024, 8))
def test_native(start):
    for seed in range(start, start + 8):
        jaxpr, shapes = program(seed)
        rng = np.random.default_rng(seed)
        args = [(rng.standard_normal(s) * 0.5).astype("f4") for s in shapes]
        check(jaxpr, *args, rtol=2e-3)
