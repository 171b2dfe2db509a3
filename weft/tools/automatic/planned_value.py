"""Arguments and results of a planned function, and the mesh on which they are laid out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._engine.backends.planned_devices import planned_devices
from weft._engine.ir.mesh import AbstractMesh, Mesh
from weft._engine.ir.specs import PartitionSpec
from weft._engine.util.record import record


@record
class PlannedValue:
    """An argument or result of a planned function.

    path   key path in the tuple of arguments or in the results
    name   the same, from the name of the parameter or `result`
    """

    path: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    spec: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.name:24} {self.dtype}[{','.join(map(str, self.shape))}]"


def partition_spec(spec: Sequence[Any]) -> PartitionSpec:
    """Return axes per dim as a PartitionSpec, without trailing whole dims.

    >>> partition_spec((("x",), (), ())), partition_spec(((), ("x", "y")))
    (P('x',), P(None, ('x', 'y')))
    """
    entries = [None if not axes else axes[0] if len(axes) == 1 else tuple(axes) for axes in spec]
    while entries and entries[-1] is None:
        entries.pop()
    return PartitionSpec(*entries)


def concrete_mesh(mesh: Mesh | AbstractMesh) -> Mesh:
    """Return `mesh`, or a mesh of devices that are only planned if it has none."""
    if isinstance(mesh, Mesh):
        return mesh
    devices = planned_devices(1, int(np.prod(mesh.axis_sizes, dtype=int)))
    return Mesh(np.array(devices, object).reshape(mesh.axis_sizes), mesh.axis_names)
