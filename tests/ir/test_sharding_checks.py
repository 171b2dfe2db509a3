"""What shardings, specs and meshes refuse, and shardings over axes without devices."""

import numpy as np
import pytest

import weft
from weft.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec as P


def test_shardings_without_devices_are_compared():
    axes = AbstractMesh((2, 4), ("x", "y"))
    rows = NamedSharding(axes, P("x"))
    assert rows.is_equivalent_to(NamedSharding(axes, P("x", None)), 2)
    assert not rows.is_equivalent_to(NamedSharding(axes, P("y")), 2)
    assert not rows.is_equivalent_to(NamedSharding(AbstractMesh((2, 4), ("y", "x")), P("y")), 2)
    assert not rows.is_equivalent_to(
        NamedSharding(Mesh(np.array(weft.devices()).reshape(2, 4), ("x", "y")), P("x")), 2
    )


def test_what_does_not_fit_is_refused():
    devices = np.array(weft.devices()[:2])
    for error, text, make in [
        (
            ValueError,
            "Number of axis names should match",
            lambda: Mesh(devices.reshape(2, 1), ("x", "y"), axis_types=AxisType.Auto),
        ),
        (
            ValueError,
            "Number of axis names should match",
            lambda: AbstractMesh((2, 1), ("x", "y"), axis_types=AxisType.Auto),
        ),
        (
            TypeError,
            "axis_types must be of type AxisType",
            lambda: AbstractMesh((2,), ("x",), axis_types=("explicit",)),
        ),
        (
            TypeError,
            "axis_types must be of type AxisType",
            lambda: AbstractMesh((2,), ("x",), axis_types="explicit"),
        ),
        (ValueError, "Mesh axis names cannot be None", lambda: Mesh(devices, (None,))),
        (ValueError, "cannot contain a nested tuple", lambda: P("x", ("y", ("z",)))),
        (ValueError, "cannot contain a nested tuple", lambda: P((("x",),))),
        (
            ValueError,
            "rank at least 4.*rank 2",
            lambda: NamedSharding(
                Mesh(devices, ("x",)), P(None, "x", None, None)
            ).check_compatible_aval((8, 2)),
        ),
        (
            ValueError,
            "Could not find memory addressable by device",
            lambda: NamedSharding(Mesh(devices, ("x",)), P(), memory_kind="hbm"),
        ),
    ]:
        with pytest.raises(error, match=f"(?s){text}"):
            make()
