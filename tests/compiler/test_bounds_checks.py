"""Guards of short strided rows: removed where all addresses are inside the array, kept elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.machine import check
from weft._engine.core.stage import stage
from weft._engine.ir.loops import Const, For, LoopsKernel
from weft._engine.ir.types import ShapedArray


def cross_matrix(v):
    return wnp.stack(
        [
            wnp.stack([0 * v[0], -v[2], v[1]]),
            wnp.stack([v[2], 0 * v[0], -v[0]]),
            wnp.stack([-v[1], v[0], 0 * v[0]]),
        ]
    )


def rows(v):
    return weft.vmap(cross_matrix)(v) * 2


def turned(v):
    return weft.vmap(lambda v: cross_matrix(v[::-1]).T)(v) + 1


def padded_pairs(v):
    """Read past both ends of every second column under a guard."""
    wide = weft.lax.pad(v[:, ::2], wnp.zeros((), v.dtype), [(0, 0, 0), (1, 1, 0)])
    return wide[:, 1:] - wide[:, :-1]


def joined(v):
    return wnp.concatenate([v[:, ::2], v[:, 1::2], v[:, ::2] * 2], 1)


PROGRAMS = {"rows": rows, "turned": turned, "padded pairs": padded_pairs, "joined": joined}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8"])
@pytest.mark.parametrize("count", [1, 5, 64, 577])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_of_short_strided_rows(name, count, dtype):
    with weft.enable_x64(True):
        x = np.random.default_rng(count).integers(-9, 10, (count, 3)).astype(dtype)
        check(stage(lambda x: [PROGRAMS[name](x)], [ShapedArray(x.shape, x.dtype)]), x, rtol=1e-5)


def vector_extents(kernel: LoopsKernel):
    todo, extents = list(kernel.body), []
    while todo:
        statement = todo.pop()
        if isinstance(statement, For):
            todo += statement.body
            extents += [statement.extent] if statement.kind == "vector" else []
    return extents


def inertias(mass, inertia, v):
    """Return inertias of the links of many bodies, from matrices whose elements are selected one by one."""

    def of_link(mass, inertia, v):
        m = cross_matrix(v)
        return wnp.diag(inertia) + mass * m @ m.T, mass * m, mass * m.T

    return weft.vmap(weft.vmap(of_link), (None, None, 0))(mass, inertia, v)


def link_values(bodies):
    random = np.random.default_rng(bodies)
    return [
        random.integers(1, 9, shape).astype(np.float32) for shape in ((9,), (9, 3), (bodies, 9, 3))
    ]


def test_rows_that_stay_inside_have_one_loop():
    kernels = weft.jit(inertias).lower(*link_values(64)).compile().stages.scheduled.kernels
    for kernel in kernels:
        assert all(isinstance(extent, int | Const) for extent in vector_extents(kernel)), kernel


@pytest.mark.parametrize("bodies", [1, 2, 7, 64])
def test_values_of_unguarded_rows(bodies):
    mass, inertia, v = values = link_values(bodies)
    x, y, z = np.moveaxis(v, -1, 0)
    zero = np.zeros_like(x)
    m = np.stack([np.stack(row, -1) for row in ((zero, -z, y), (z, zero, -x), (-y, x, zero))], -2)
    scaled, back = mass[:, None, None] * m, np.swapaxes(m, -1, -2)
    got = weft.jit(inertias)(*values)
    np.testing.assert_array_equal(got[0], scaled @ back + inertia[:, None] * np.eye(3))
    np.testing.assert_array_equal(got[1], scaled)
    np.testing.assert_array_equal(got[2], mass[:, None, None] * back)
