"""Meshes as decorators, axis types by name, and initializers with shardings."""

import numpy as np
import pytest

import weft
from weft._engine.ir.mesh import AbstractMesh, AxisType, Mesh, current_mesh
from weft.nn import initializers
from weft.sharding import NamedSharding, PartitionSpec as P, set_mesh


def test_a_mesh_decorates_functions():
    mesh = Mesh(np.array(weft.devices()[:2]), ("x",))
    inside = mesh(current_mesh)
    assert inside() is mesh and current_mesh() is not mesh and inside.__name__ == "current_mesh"


def test_types_of_axes_are_replaced_by_name():
    mesh = AbstractMesh((4, 2), ("x", "y")).update_axis_types({"y": AxisType.Manual})
    assert mesh.axis_types == (AxisType.Auto, AxisType.Manual)
    with pytest.raises(ValueError, match="no axes"):
        mesh.update_axis_types({"z": AxisType.Auto})


@pytest.mark.parametrize(
    "make", [initializers.he_normal(), initializers.zeros, initializers.constant(2.0)]
)
def test_initializers_take_an_out_sharding(make):
    mesh = Mesh(np.array(weft.devices()[:2]), ("x",), (AxisType.Explicit,))
    with set_mesh(mesh):
        x = make(weft.random.key(0), (4, 6), out_sharding=P("x", None))
    assert x.sharding.is_equivalent_to(NamedSharding(mesh, P("x", None)), 2)
    np.testing.assert_array_equal(x, make(weft.random.key(0), (4, 6)))
