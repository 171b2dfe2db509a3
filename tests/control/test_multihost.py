"""APIs for several processes, used in a single process; and Python functions that run next to
devices."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.experimental import multihost_utils
from weft.experimental.colocated_python import (
    colocated_cpu_devices,
    colocated_python,
    colocated_python_class,
)
from weft.sharding import PartitionSpec as P


def test_one_process_agrees_with_itself():
    tree = {"a": np.arange(3), "b": wnp.ones((2, 2))}
    same = multihost_utils.broadcast_one_to_all(tree)
    assert all(type(x) is np.ndarray for x in same.values()) and same["b"].dtype == np.float32
    gathered = multihost_utils.process_allgather(tree)
    assert gathered["a"].shape == (1, 3) and multihost_utils.process_allgather(tree, tiled=True)[
        "b"
    ].shape == (2, 2)
    multihost_utils.sync_global_devices("here")
    multihost_utils.assert_equal(tree, "never said")
    assert not multihost_utils.reached_preemption_sync_point(3)
    with pytest.raises(ValueError, match="no process is the source"):
        multihost_utils.broadcast_one_to_all(1, is_source=False)
    with (
        pytest.raises(RuntimeError, match="not initialized"),
        multihost_utils.live_devices(weft.devices()),
    ):
        pass


def test_local_and_global_arrays():
    mesh = weft.make_mesh((4,), ("d",))
    spread = multihost_utils.host_local_array_to_global_array(
        {"x": np.arange(8), "y": np.ones(3)}, mesh, {"x": P("d"), "y": P()}
    )
    assert spread["x"].sharding.spec == P("d") and spread["y"].sharding.is_fully_replicated
    back = multihost_utils.global_array_to_host_local_array(spread, mesh, P())
    np.testing.assert_array_equal(back["x"], np.arange(8))
    assert back["x"].sharding.is_fully_replicated
    with pytest.raises(ValueError, match="pspecs must have a PartitionSpec"):
        multihost_utils.host_local_array_to_global_array(np.ones(2), mesh, None)


def test_colocated_functions_check_what_was_stated():
    double = colocated_python(lambda x: 2 * x)
    x = wnp.arange(3.0)
    np.testing.assert_array_equal(double(x), 2 * x)
    stated = double.specialize(
        in_specs=(weft.ShapeDtypeStruct((3,), "float32"),), out_specs_fn=lambda x: x
    )
    np.testing.assert_array_equal(stated(x), 2 * x)
    with pytest.raises(ValueError, match="has type float32"):
        stated(wnp.ones(4))
    with pytest.raises(NotImplementedError, match="traced values"):
        weft.jit(double)(x)
    assert colocated_cpu_devices(weft.devices()[:2]) == tuple(weft.devices()[:2])
    assert colocated_python_class(dict) is dict


def test_an_error_names_the_devices_of_failed_processes():
    failed = set(weft.devices()[:2])
    error = multihost_utils.ProcessFailureError(failed)
    assert error.failed_devices == failed and error.ranks == (0,) and "2 devices" in str(error)
    assert isinstance(error, weft.errors.ProcessFailureError)
