"""Invalid meshes, and programs with conflicting meshes: one clear error each, and the process
continues."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import lax
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

X = np.arange(8, dtype=np.float32)


def mesh(first, last, step=1, names=("i", "j")):
    devices = weft.devices()[:8][first:last:step]
    return Mesh(
        np.array(devices, object).reshape(2, -1) if len(names) == 2 else np.array(devices, object),
        names,
    )


def low():
    return mesh(0, 4)


def high():
    return mesh(4, 8)


def put(on, *spec):
    return weft.device_put(X, NamedSharding(on, P(*spec)))


def sharded(on):
    return weft.shard_map(lambda x: x * 2, mesh=on, in_specs=P("i"), out_specs=P("i"))


@weft.jit
def add(a, b):
    return a + b


FAULTS = {
    "more places than devices": (
        lambda: weft.make_mesh((64,), ("i",)),
        r"Number of devices 8 must be >= .*\(64,\)[\s\S]*WEFT_NUM_DEVICES=64",
    ),
    "more names than dims": (lambda: weft.make_mesh((8,), ("i", "j")), "axis names"),
    "other devices": (
        lambda: add(put(low(), "i"), put(high(), "i")),
        r"argument a .* ids \[0, 1, 2, 3\].* b .* ids \[4, 5, 6, 7\]",
    ),
    "other devices, eager": (lambda: put(low(), "i") + put(high(), "i"), "incompatible devices"),
    "another order": (lambda: add(put(low(), "i"), put(mesh(3, None, -1), "i")), r"\[3, 2, 1, 0\]"),
    "another number": (lambda: add(put(low(), "i"), put(mesh(0, 8), "i")), "incompatible devices"),
    "a constraint on other devices": (
        lambda: weft.jit(lambda a: lax.with_sharding_constraint(a, NamedSharding(high(), P("i"))))(
            put(low(), "i")
        ),
        r"argument a .*sharding_constraint.*\[4, 5, 6, 7\]",
    ),
    "a result on other devices": (
        lambda: weft.jit(lambda a: a, out_shardings=NamedSharding(high(), P("i")))(put(low(), "i")),
        "out_sharding",
    ),
    "an argument on other devices": (
        lambda: weft.jit(lambda a: a, in_shardings=NamedSharding(high(), P("i")))(put(low(), "i")),
        r"argument a .*ids \[0, 1, 2, 3\].*ids \[4, 5, 6, 7\]",
    ),
    "an unknown axis": (lambda: put(low(), "rows"), r"'rows'.*not found in mesh: \('i', 'j'\)"),
    "a dim that does not divide": (
        lambda: weft.device_put(X[:7], NamedSharding(low(), P("i"))),
        "not divisible",
    ),
    "shard_map in jit on other devices": (
        lambda: weft.jit(sharded(high()))(put(low(), "i")),
        "incompatible devices",
    ),
    "shard_maps of two meshes": (
        lambda: weft.jit(lambda x: sharded(low())(x) + sharded(high())(x))(X),
        "incompatible devices",
    ),
    "shard_map of an unknown axis": (lambda: sharded(mesh(0, 8, names=("rows",)))(X), "'rows'"),
    "a collective of an unknown axis": (
        lambda: weft.shard_map(
            lambda x: lax.psum(x, "rows"), mesh=low(), in_specs=P("i"), out_specs=P()
        )(X),
        "axis name: rows",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_explained_and_forgotten(name):
    fault, match = FAULTS[name]
    for _ in range(2):
        with pytest.raises((ValueError, NameError), match=match):
            fault()
    for on in (low(), high()):
        np.testing.assert_array_equal(add(put(on, "i"), put(on, "j")), 2 * X)
        np.testing.assert_array_equal(weft.jit(sharded(on))(X), 2 * X)
