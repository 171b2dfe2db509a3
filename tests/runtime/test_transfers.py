"""Guards of transfers: which values move implicitly, which because the user asks, and what each level does then."""

import functools
import logging

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import NamedSharding, P
from weft._engine.util.config import config
from weft._engine.util.errors import DeviceRuntimeError
from weft.sharding import Mesh

HOST = np.ones(8, np.float32)
plus = weft.jit(lambda x, y=0: x + y)


def one():
    return wnp.asarray(HOST)


def on(number: int):
    return weft.devices()[number]


def spread() -> NamedSharding:
    return NamedSharding(weft.make_mesh((8,), ("d",)), P("d"))


@functools.cache
def far():
    return weft.device_put(one(), on(1))


IMPLICIT = {
    "NumPy argument": lambda x, split: plus(HOST),
    "Python argument": lambda x, split: plus(x, 2.0),
    "NumPy scalar": lambda x, split: plus(x, HOST[0]),
    "operator": lambda x, split: x + HOST,
    "function": lambda x, split: wnp.sin(HOST),
    "array": lambda x, split: wnp.array([1, 2]),
    "shards from a callback": lambda x, split: weft.make_array_from_callback(
        (8,), spread(), lambda index: HOST[index]
    ),
    "vmap": lambda x, split: weft.vmap(plus)(HOST),
    "gradient": lambda x, split: weft.grad(lambda v: v * 3)(2.0),
}
BETWEEN = {
    "with a committed argument": lambda x, split: plus(split, x),
    "with an argument on another device": lambda x, split: plus(x, far()),
    "in_shardings": lambda x, split: weft.jit(lambda v: v, in_shardings=spread())(x),
}
EXPLICIT = {
    "of the host": lambda x, split: weft.device_put(HOST),
    "to a device": lambda x, split: weft.device_put(HOST, on(1)),
    "to a mesh": lambda x, split: weft.device_put(HOST, spread()),
    "between": lambda x, split: weft.device_put(x, on(1)),
}
NONE = {
    "arrays alone": lambda x, split: plus(x, x),
    "closed over": lambda x, split: weft.jit(lambda v: v + HOST)(x),
    "no move": lambda x, split: weft.device_put(x, on(0)),
    "reading": lambda x, split: (np.asarray(x), float(x[1:2].sum()), repr(x), x.tolist()),
    "copies": lambda x, split: (x.copy(), weft.device_get(split)),
    "range": lambda x, split: wnp.arange(5),
}
KINDS = {"implicit": IMPLICIT, "between": BETWEEN, "explicit": EXPLICIT, "none": NONE}
CASES = [(kind, name) for kind, cases in KINDS.items() for name in cases]


def outcome(level: str, kind: str, name: str, caplog) -> str:
    x = one()
    split = weft.device_put(one(), spread())
    plus(split, split), plus(x, x), far()
    caplog.clear()
    with weft.transfer_guard(level), caplog.at_level(logging.WARNING, "weft"):
        try:
            KINDS[kind][name](x, split)
        except DeviceRuntimeError as error:
            assert "Disallowed" in str(error) and "dst_sharding=" in str(error)
            return "refused"
    return (
        "logged"
        if [
            r
            for r in caplog.records
            if r.name == "weft.transfers" and "dst_sharding=" in r.getMessage()
        ]
        else "passed"
    )


@pytest.mark.parametrize("kind, name", CASES)
def test_every_level(caplog, kind, name):
    implicit, explicit = kind in ("implicit", "between"), kind != "none"
    expected = {
        "allow": "passed",
        "log": "logged" if implicit else "passed",
        "disallow": "refused" if implicit else "passed",
        "log_explicit": "logged" if explicit else "passed",
        "disallow_explicit": "refused" if explicit else "passed",
    }
    assert {level: outcome(level, kind, name, caplog) for level in expected} == expected


def test_each_direction_has_its_guard():
    x, split = one(), weft.device_put(one(), spread())
    with weft.transfer_guard_host_to_device("disallow"):
        plus(split, x)
        with pytest.raises(DeviceRuntimeError, match="host-to-device"):
            plus(x, 1.0)
    with weft.transfer_guard_device_to_device("disallow"):
        plus(x, 1.0)
        with pytest.raises(DeviceRuntimeError, match="device-to-device"):
            plus(split, x)
    with weft.transfer_guard_device_to_host("disallow_explicit"):
        assert np.asarray(plus(split, x)).sum() == 16
    with weft.transfer_guard("disallow"), weft.transfer_guard_host_to_device("allow"):
        plus(x, 1.0)


def test_a_guard_for_all_threads_sees_calls_that_bypassed_python():
    x = one()
    for _ in range(3):
        plus(x, 1.0)
    config.update("jax_transfer_guard", "disallow")
    try:
        for _ in range(3):
            with pytest.raises(DeviceRuntimeError, match="host-to-device"):
                plus(x, 1.0)
            plus(x, x)
    finally:
        config.update("jax_transfer_guard", None)
    assert plus(x, 1.0).sum() == 16


def test_every_logged_transfer_is_logged_again(caplog):
    x = one()
    config.update("transfer_guard", "log")
    try:
        with caplog.at_level(logging.WARNING, "weft"):
            for _ in range(4):
                plus(x, 1.0)
    finally:
        config.update("transfer_guard", None)
    assert len([r for r in caplog.records if r.name == "weft.transfers"]) == 4


def test_another_layout_on_the_same_devices_is_no_transfer():
    value = np.arange(16.0, dtype=np.float32).reshape(8, 2)
    devices = np.array(weft.devices()[:4])
    here = weft.device_put(
        value, NamedSharding(Mesh(devices.reshape(2, 2), ("x", "y")), P("x", "y"))
    )
    expected = NamedSharding(Mesh(devices[::-1].reshape(2, 2), ("x", "y")), P("x"))
    with weft.transfer_guard("disallow_explicit"):
        moved = weft.device_put(here, expected)
        with pytest.raises(DeviceRuntimeError, match="device-to-device"):
            weft.device_put(here, weft.devices()[5])
    assert moved.sharding == expected
    np.testing.assert_array_equal(moved, value)
