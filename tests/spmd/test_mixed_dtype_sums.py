"""Products of two dtypes over a split dim are rounded once: devices exchange their sums in the dtype of the accumulation.

The operands are small integers, whose sums are exact in float32 and not in the results.
"""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

DIMS = (((1,), (0,)), ((), ()))
LAYOUTS = [
    (P(None, "x"), P("x")),
    (P(None, ("x", "y")), P(("x", "y"))),
    (P("y", "x"), P("x")),
    (P(None, "x"), P()),
]
PAIRS = [
    ("float16", "bfloat16"),
    ("float8_e4m3fn", "bfloat16"),
    ("float8_e4m3fn", "float8_e5m2"),
    ("float8_e5m2", "float16"),
    ("bfloat16", "float32"),
    ("int8", "bfloat16"),
    ("float16", "int16"),
]


def product(x, y):
    return lax.dot_general(x, y, DIMS)


def slopes(x, y):
    """Return the derivatives by both operands of a product whose result is read in float32."""
    weights = wnp.arange(16.0) % 5 - 2
    return weft.grad(
        lambda x, y: (product(x, y).astype("float32") * weights).sum(), (0, 1), allow_int=True
    )(x, y)


PROGRAMS = {
    "product": product,
    "vmap": lambda x, y: weft.vmap(lambda row: lax.dot_general(row, y, (((0,), (0,)), ((), ()))))(
        x
    ),
    "scan": lambda x, y: lax.scan(lambda carry, row: (carry, product(row[None], y)[0]), 0, x)[1],
    "convolution": lambda x, y: lax.conv_general_dilated(
        x[:, :, None],
        y.T[:, :, None],
        (1,),
        "VALID",
        preferred_element_type=lax.dot(x[:1, :1], y[:1, :1]).dtype,
    ),
    "ragged": lambda x, y: lax.ragged_dot(
        x,
        wnp.stack([y, y]),
        wnp.array([3, 5], np.int32),
        preferred_element_type=lax.dot(x[:1, :1], y[:1, :1]).dtype,
    ),
}


def check(function, left, right):
    rng = np.random.default_rng(0)
    x, y = (
        rng.integers(-3, 4, (8, 512)).astype(wnp.dtype(left)),
        rng.integers(-3, 4, (512, 16)).astype(wnp.dtype(right)),
    )
    mesh = Mesh(np.array(weft.devices()).reshape(4, 2), ("x", "y"))
    expected = [np.asarray(leaf) for leaf in weft.tree.leaves(weft.jit(function)(x, y))]
    for specs in LAYOUTS:
        placed = [weft.device_put(a, NamedSharding(mesh, spec)) for a, spec in zip((x, y), specs)]
        for ours, theirs in zip(weft.tree.leaves(weft.jit(function)(*placed)), expected):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(
                np.asarray(ours).astype(np.float64), theirs.astype(np.float64), err_msg=str(specs)
            )
    return x, y, expected


@pytest.mark.parametrize("left, right", PAIRS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_split_products_are_rounded_once(name, left, right):
    x, y, (result,) = check(PROGRAMS[name], left, right)
    if name == "product":
        exact = x.astype(np.float64) @ y.astype(np.float64)
        np.testing.assert_array_equal(
            result.astype(np.float64), exact.astype(result.dtype).astype(np.float64)
        )


@pytest.mark.parametrize("left, right", [pair for pair in PAIRS if "int" not in pair[0] + pair[1]])
def test_slopes_of_split_products_equal_the_whole(left, right):
    check(slopes, left, right)
