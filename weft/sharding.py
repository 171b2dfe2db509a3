"""Public face of meshes and shardings.

>>> from weft.sharding import PartitionSpec as P
>>> P('x', None)
P('x', None)
"""

from weft.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft.api.explicit": "auto_axes explicit_axes reshard",
        "weft.api.pmap": "PmapSharding",
        "weft.ir.types": "ManualAxisType",
        "weft.ir.mesh": "AbstractDevice AbstractMesh AxisType Mesh get_abstract_mesh get_mesh set_mesh use_abstract_mesh use_mesh",
        "weft.ir.shardings": """
        MemorySpace NamedSharding PositionalSharding Sharding SingleDeviceSharding make_single_device_sharding
    """,
        "weft.ir.specs": "P PartitionSpec UNCONSTRAINED UnreducedKind",
        "weft.runtime.topology": "make_mesh",
    },
    guards=True,
)
