"""Helpers and namespaces of JAX without a public name in weft."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest

import weft
from weft.compat import install_as_jax, uninstall


@pytest.fixture(scope="module", autouse=True)
def shim():
    install_as_jax()
    yield
    uninstall()


def exposed(module, name):
    return getattr(importlib.import_module(f"jax.experimental.{module}"), name)


@pytest.mark.parametrize("module", ["jet", "multihost_utils", "ode", "scheduling_groups"])
def test_safe_zip(module):
    safe_zip = exposed(module, "safe_zip")
    assert safe_zip("ab", [1, 2]) == [("a", 1), ("b", 2)] and safe_zip() == []
    with pytest.raises(ValueError, match="lengths"):
        safe_zip([1], [1, 2])


def test_maps_and_lists():
    assert exposed("ode", "map")(lambda x, y: x + y, [1, 2], [3, 4]) == [4, 6]
    assert exposed("jet", "unzip2")(iter([(1, "a"), (2, "b")])) == ((1, 2), ("a", "b"))
    split_list = exposed("scheduling_groups", "split_list")
    assert split_list((1, 2, 3, 4), [1, 2]) == [[1], [2, 3], [4]] and split_list([], []) == [[]]
    with pytest.raises(ValueError, match="no parts of sizes"):
        split_list([1], [2])


def test_functions_of_recurrent_networks():
    rnn = importlib.import_module("jax.experimental.rnn")
    assert rnn.Array is weft.Array and rnn.custom_vjp is weft.custom_vjp
    assert float(rnn.sigmoid(0.0)) == 0.5 and float(rnn.tanh(0.0)) == 0.0


@pytest.mark.parametrize(
    "name, content",
    [("ad", ["DidntWant", "DontWant", "GradRef", "GradValue"]), ("memory", ["Space"])],
)
def test_namespaces_are_values(name, content):
    jax = importlib.import_module("jax")
    namespace = getattr(jax, name)
    assert isinstance(namespace, SimpleNamespace) and sorted(vars(namespace)) == content
    with pytest.raises(ImportError):
        importlib.import_module(f"jax.{name}")


def test_memory_of_the_namespace_is_that_of_shardings():
    jax = importlib.import_module("jax")
    assert jax.memory.Space.Host is weft.sharding.MemorySpace.Host


def test_from_dlpack_takes_its_options_by_position():
    from jax import dlpack

    x = np.arange(3, dtype=np.float32)
    copied = dlpack.from_dlpack(x, weft.devices()[1], True)
    assert copied.devices() == {weft.devices()[1]} and copied.tolist() == dlpack.from_dlpack(
        external_array=x
    ).tolist() == [0, 1, 2]


def test_names_of_the_channels_of_xla():
    from jax.interpreters import mlir

    assert (mlir.DEVICE_TO_DEVICE_TYPE, mlir.SEND_TO_HOST_TYPE, mlir.RECV_FROM_HOST_TYPE) == (
        1,
        2,
        3,
    )


@pytest.mark.parametrize(
    "name, value", [("thread_guard", True), ("array_garbage_collection_guard", "log")]
)
def test_guards_are_settings(name, value):
    jax = importlib.import_module("jax")
    guard = getattr(jax, name)
    before = getattr(jax.config, name)
    with guard(value):
        assert guard.value == getattr(jax.config, name) == value
    assert guard.value == before
