"""Sums over devices have the dtype of their value: products and lookups of bools, small integers and mixed dtypes."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

rng = np.random.default_rng(0)
LAYOUTS = [
    (P(None, "x"), P("x")),
    (P(None, ("x", "y")), P(("x", "y"))),
    (P("y", "x"), P("x", "y")),
    (P(None, "x"), P()),
]
VALUES = {
    "bool": lambda shape: rng.random(shape) < 0.3,
    "int8": lambda shape: rng.integers(-100, 100, shape),
    "uint8": lambda shape: rng.integers(0, 250, shape),
    "int4": lambda shape: rng.integers(-8, 8, shape),
    "int32": lambda shape: rng.integers(-9, 9, shape),
    "float32": lambda shape: rng.standard_normal(shape).round(1),
    "bfloat16": lambda shape: rng.integers(-3, 4, shape),
    "complex64": lambda shape: rng.integers(-3, 4, shape) + 1j * rng.integers(-3, 4, shape),
}
DIMS = (((1,), (0,)), ((), ()))


def product(preferred=None):
    return lambda x, y: lax.dot_general(x, y, DIMS, preferred_element_type=preferred)


def convolution(preferred=None):
    return lambda x, y: lax.conv_general_dilated(
        x[:, :, None], y.T[:, :, None], (1,), "VALID", preferred_element_type=preferred
    )


def window(preferred=None):
    return lambda x, y: lax.conv_general_dilated(
        x[None, None], y[None, None], (1, 1), "SAME", preferred_element_type=preferred
    )


def grouped(x, y):
    return lax.ragged_dot(x, wnp.stack([y, y]), wnp.array([6, 10], np.int32))


def scanned(x, y):
    return lax.scan(lambda carry, row: (carry, product()(row[None], y)[0]), 0, x)[1]


def by_device(x, y):
    mesh = Mesh(np.array(weft.devices()).reshape(4, 2), ("x", "y"))
    inner = weft.shard_map(
        product(),
        mesh=mesh,
        in_specs=(P("y"), P()),
        out_specs=P("y"),
        axis_names={"y"},
        check_vma=False,
    )
    return inner(x, y)


#: products and lookups whose results, or whose partial sums, have small dtypes
OPS = {
    "dot": product(),
    "convolution over features": convolution(),
    "convolution with a split window": window(),
    "ragged_dot": grouped,
    "vmap": lambda x, y: weft.vmap(lambda row: product()(row[None], y))(x),
    "scan": scanned,
    "shard_map": by_device,
    "two products": lambda x, y: product()(product()(x, y), x),
    "a sum that widens": lambda x, y: product("int32")(product()(x, y), x),
    "converted": lambda x, y: product()(x, y).astype("int32"),
    "selected": lambda x, y: wnp.where(x[:1, :1] == 0, product()(x, y), product()(x, y).T),
    "slice": lambda x, y: x[:, 2:5],
    "row": lambda x, y: x[:, 3],
    "gather": lambda x, y: x[:, wnp.array([3, 1, 7])],
    "gather with a fill value": lambda x, y: x.at[:, wnp.array([3, 1, 9])].get(
        mode="fill", fill_value=1
    ),
    "dynamic_slice": lambda x, y: lax.dynamic_slice(x, (y[0, 0].astype("int32") % 8, 1), (3, 4)),
}


def check(fun, dtype, layouts):
    x, y = [
        np.asarray(VALUES[dtype](shape)).astype(wnp.dtype(dtype)) for shape in ((16, 8), (8, 16))
    ]
    want = np.asarray(weft.jit(fun)(x, y))
    mesh = Mesh(np.array(weft.devices()).reshape(4, 2), ("x", "y"))
    for specs in layouts:
        got = weft.jit(fun)(
            *[weft.device_put(a, NamedSharding(mesh, s)) for a, s in zip((x, y), specs)]
        )
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(
            np.asarray(got).astype(np.complex128), want.astype(np.complex128), err_msg=str(specs)
        )


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int4"])
def test_sums_keep_their_dtype(name, dtype):
    check(OPS[name], dtype, LAYOUTS[:3] if name == "dot" else LAYOUTS[1:3])


#: operands and preferred element types, with results that are exact
PREFERRED = [
    ("bool", "int32"),
    ("bool", "float32"),
    ("int8", "bool"),
    ("int8", "int32"),
    ("int8", "float32"),
    ("int32", "int8"),
    ("uint8", "int4"),
    ("int32", "bool"),
    ("float32", "bool"),
    ("bfloat16", "float32"),
    ("bfloat16", "int32"),
    ("complex64", "float32"),
]


@pytest.mark.parametrize("dtype, preferred", PREFERRED)
def test_preferred_dtypes_are_those_of_sums(dtype, preferred):
    """Numbers whose sum is cut off, or compared with zero, are added up before that."""
    check(product(preferred), dtype, LAYOUTS)


@pytest.mark.parametrize("name", ["max", "min"])
def test_scattered_extrema_of_complex_numbers(name):
    fun = lambda x, y: getattr(wnp.zeros((4, 8), x.dtype).at[wnp.arange(16) % 4], name)(x)
    check(fun, "complex64", [(P("x"), P()), (P(("x", "y")), P()), (P("y", "x"), P())])


@pytest.mark.parametrize("dtype", [np.bool_, np.int8])
@pytest.mark.parametrize("spec", [P(), P("y"), P("x")], ids=str)
def test_unreduced_types_of_small_dtypes(dtype, spec):
    """Terms on several devices (unreduced types) are added in the same program or in the next one."""
    mesh = Mesh(
        np.array(weft.devices()).reshape(4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2
    )
    x, y = (np.asarray(rng.integers(0, 2, (8, 8))).astype(dtype) for _ in "xy")
    args = [
        weft.device_put(a, NamedSharding(mesh, s)) for a, s in zip((x, y), (P(None, "x"), P("x")))
    ]
    unreduced = P(None, None, unreduced={"x"})
    terms = lambda x, y: wnp.einsum("ij,jk->ik", x, y, out_sharding=unreduced)
    with weft.sharding.set_mesh(mesh):
        within = weft.jit(lambda x, y: weft.sharding.reshard(terms(x, y), spec))(*args)
        after = weft.sharding.reshard(weft.jit(terms)(*args), spec)
    np.testing.assert_array_equal(np.asarray(within), x @ y)
    np.testing.assert_array_equal(np.asarray(after), x @ y)
