"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft._engine.api.explicit import auto_axes, explicit_axes, reshard
from weft._engine.api.pmap import PmapSharding
from weft._engine.ir.mesh import (
    AbstractDevice, AbstractMesh, AxisType, Mesh, get_abstract_mesh, get_mesh, set_mesh,
    use_abstract_mesh, use_mesh,
)
from weft._engine.ir.shardings import (
    MemorySpace, NamedSharding, PositionalSharding, Sharding, SingleDeviceSharding,
    make_single_device_sharding,
)
from weft._engine.ir.specs import P, PartitionSpec, UNCONSTRAINED, UnreducedKind
from weft._engine.ir.types import ManualAxisType
from weft._engine.runtime.topology import make_mesh

__all__ = [
    "AbstractDevice", "AbstractMesh", "AxisType", "ManualAxisType", "MemorySpace", "Mesh",
    "NamedSharding", "P", "PartitionSpec", "PmapSharding", "PositionalSharding", "Sharding",
    "SingleDeviceSharding", "UNCONSTRAINED", "UnreducedKind", "auto_axes", "explicit_axes",
    "get_abstract_mesh", "get_mesh", "make_mesh", "make_single_device_sharding", "reshard",
    "set_mesh", "use_abstract_mesh", "use_mesh",
]
