"""Meshes and shardings.

>>> from weft.sharding import PartitionSpec as P
>>> P('x', None)
P('x', None)
"""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft._engine.api.explicit": "auto_axes explicit_axes reshard",
        "weft._engine.api.pmap": "PmapSharding",
        "weft._engine.ir.types": "ManualAxisType",
        "weft._engine.ir.mesh": "AbstractDevice AbstractMesh AxisType Mesh get_abstract_mesh get_mesh set_mesh use_abstract_mesh use_mesh",
        "weft._engine.ir.shardings": """
        MemorySpace NamedSharding PositionalSharding Sharding SingleDeviceSharding make_single_device_sharding
    """,
        "weft._engine.ir.specs": "P PartitionSpec UNCONSTRAINED UnreducedKind",
        "weft._engine.runtime.topology": "make_mesh",
    },
    guards=True,
)
