"""Public face of meshes and shardings.

>>> from weft.sharding import PartitionSpec as P
>>> P('x', None)
PartitionSpec('x', None)
"""

import importlib

from weft.ir.mesh import (
    AbstractMesh,
    AxisType,
    Mesh,
    get_abstract_mesh,
    get_mesh,
    set_mesh,
    use_abstract_mesh,
    use_mesh,
)
from weft.ir.shardings import NamedSharding, PositionalSharding, Sharding, SingleDeviceSharding
from weft.ir.specs import UNCONSTRAINED, P, PartitionSpec
from weft.runtime.topology import make_mesh

make_single_device_sharding = SingleDeviceSharding


_LATE = {"PmapSharding": "weft.api.pmap", **dict.fromkeys(("auto_axes", "explicit_axes", "reshard"), "weft.api.explicit")}


def __getattr__(name: str):
    """Names that belong to the functions on programs, which are loaded when asked for."""
    if name in _LATE:
        return getattr(importlib.import_module(_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

__all__ = [
    "UNCONSTRAINED", "AbstractMesh", "AxisType", "Mesh", "NamedSharding", "P", "PartitionSpec", "PositionalSharding",
    "Sharding", "SingleDeviceSharding", "get_abstract_mesh", "get_mesh", "make_mesh", "make_single_device_sharding",
    "set_mesh", "use_abstract_mesh", "use_mesh",
]
