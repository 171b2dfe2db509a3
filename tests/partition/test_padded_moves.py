"""Values that are padded along a split dim and needed in another layout are resharded before they
grow."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.sharding import NamedSharding, PartitionSpec as P

SHAPES = [(16, 32), (32, 32), (32, 16)]
ROWS, COLUMNS = P("x", None), P(None, "x")


def compiled(fun, mesh, out, *arguments):
    types = [
        weft.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))
        for x, spec in arguments
    ]
    return weft.jit(fun, out_shardings=NamedSharding(mesh, out)).lower(*types).compile()


def sent(program):
    return sum(r.bytes_per_device * r.count for r in program.stages.collectives)


def check(fun, mesh, out, *arguments):
    """Compare a program with the same on one device; return the bytes that it sends."""
    program = compiled(fun, mesh, out, *arguments)
    placed = [weft.device_put(x, NamedSharding(mesh, spec)) for x, spec in arguments]
    np.testing.assert_array_equal(program(*placed), weft.jit(fun)(*[x for x, _ in arguments]))
    return sent(program)


@pytest.fixture(scope="module")
def mesh():
    return weft.make_mesh((8,), ("x",))


def values(shape, dtype=np.float32):
    return np.arange(1, np.prod(shape) + 1).reshape(shape).astype(dtype)


def padded(x, low, high):
    return lax.pad(x, np.zeros((), x.dtype), [(low, high, 0)] * x.ndim)


#: bytes that XLA sends to pad by 4 on all sides, double and transpose a value
XLA = {(16, 32): 608, (32, 32): 1216, (32, 16): 992}


@pytest.mark.parametrize("shape", SHAPES)
def test_padded_transpose_sends_no_more_than_xla(shape, mesh):
    fun = lambda x: (padded(x, 4, 4) * 2).T
    assert check(fun, mesh, ROWS, (values(shape), ROWS)) <= XLA[shape]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex64, np.bool_])
@pytest.mark.parametrize("widths", [(4, 4), (0, 8), (8, 0), (2, 6), (16, 8), (-4, 4)], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_value_is_moved_before_it_is_padded(shape, widths, dtype, mesh):
    x = values(shape, dtype)
    fun = lambda x: padded(x, *widths)
    moved = sent(compiled(lambda x: x, mesh, COLUMNS, (x, ROWS)))
    alone = sent(compiled(fun, mesh, COLUMNS, (x, COLUMNS)))
    assert check(fun, mesh, COLUMNS, (x, ROWS)) <= moved + alone


@pytest.mark.parametrize("low, high, inner", [(4, 4, 0), (0, 1, 1), (8, 9, 1)])
def test_vmapped_and_differentiated_padding(low, high, inner, mesh):
    pad = lambda x: lax.pad(x, np.float32(0), [(low, high, inner)] * x.ndim)
    x, weights = (
        values((4, 16, 32)),
        values(weft.eval_shape(weft.vmap(pad), values((4, 16, 32))).shape),
    )
    fun = lambda x, w: weft.grad(lambda x: (weft.vmap(pad)(x) * w).sum())(x)
    check(fun, mesh, P(None, None, "x"), (x, P(None, "x", None)), (weights, P(None, None, "x")))
    check(weft.vmap(pad), mesh, P(None, None, "x"), (x, P(None, "x", None)))


@pytest.mark.parametrize(
    "fun, length",
    [
        (lambda x: wnp.concatenate([x, x * 2], 1), 64),
        (lambda x: wnp.concatenate([x, wnp.ones((16, 8), x.dtype)], 1), 40),
        (lambda x: x[:, 8:24], 16),
        (lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2), (1, 2), "VALID"), 16),
    ],
    ids=["concatenate", "append", "slice", "window"],
)
@pytest.mark.parametrize("spec", [ROWS, COLUMNS], ids=str)
def test_neighbors_along_another_split(fun, length, spec, mesh):
    x = values((16, 32))
    whole = 7 * 16 * length * 4 // 8
    assert check(fun, mesh, COLUMNS, (x, spec)) <= whole
