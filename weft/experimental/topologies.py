"""Devices to compile for, which need not be attached: TPU slices and GPU hosts by name.

In:   a topology's name and the platform of its plugin.
Out:  a `TopologyDescription`, whose devices make meshes and shardings. `jit(f).lower(...).compile()` of
      `ShapeDtypeStruct`s with such shardings compiles ahead of time: `memory_analysis()`,
      `cost_analysis()` and `as_text()` are the plugin's, and a call raises.
Next: the command `weft compile` reports all programs of a script.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._engine.ir.mesh import Mesh
from weft._engine.runtime.device import Device, devices
from weft._engine.runtime.topology import create_device_mesh

__all__ = [
    "Device",
    "TopologyDescription",
    "get_attached_topology",
    "get_topology_desc",
    "make_mesh",
]


class TopologyDescription:
    """Devices that need not be attached; `get_attached_topology` describes the attached devices."""

    __slots__ = ("devices",)

    def __init__(self, devices: list[Device]):
        self.devices = devices

    def serialize(self) -> bytes:
        """Return a description of all devices of this kind in the form of their plugin.

        NotImplementedError if they have no plugin, as CPUs.
        """
        return self.devices[0].client.serialize_topology()

    @classmethod
    def deserialize(cls, serialized: bytes) -> TopologyDescription:
        """Return the devices that `serialize` describes, by the plugin of their platform; they need not be attached.

        ValueError for other bytes, RuntimeError without the plugin.
        """
        from weft._engine.backends.pjrt import topology

        platform = topology.platform_of(serialized)
        return cls(topology.describe(platform, serialized, None).devices())

    def __repr__(self) -> str:
        return f"TopologyDescription({self.devices})"


def get_attached_topology(platform: str | None = None) -> TopologyDescription:
    """Describe the attached devices of a platform.

    >>> from weft.experimental import topologies
    >>> len(topologies.get_attached_topology().devices) == weft.device_count()
    True
    """
    return TopologyDescription(devices(platform))


def get_topology_desc(
    topology_name: str = "", platform: str | None = None, **kwargs: Any
) -> TopologyDescription:
    """Describe devices by name, attached or not, so that programs can be compiled for them.

    `platform` is the platform of an installed PJRT plugin, by default `tpu`. The name and `kwargs` are the
    plugin's: `v5e:2x4` of `tpu`, with `chips_per_host_bounds` or `num_slices`; `1x1x8` (slices, hosts,
    GPUs of a host) of `cuda`, with `target_config`, the text of a GpuTargetConfigProto. Without
    `target_config`, GPUs of known kinds have short names: `h100:8`, or `h100:2x8` for two hosts.

        topology = get_topology_desc("v5p:4x4x4", "tpu")
        mesh = make_mesh(topology, (16, 4), ("data", "model"))

    RuntimeError without the plugin, NotImplementedError if the plugin describes no devices or if
    `platform` is the CPU, ValueError for an unknown short name.
    """
    from weft._engine.backends import targets
    from weft._engine.backends.pjrt import topology

    kind = topology_name.partition(":")[0]
    if platform in (None, "gpu", "cuda") and kind in targets.GPU_KINDS and not kwargs:
        target = targets.parse_target(topology_name)
        platform, topology_name, kwargs = target.platform, target.topology, target.options
    if platform in ("cpu", "reference"):
        raise NotImplementedError(
            f"get_topology_desc: CPU devices have no topologies by name, got {topology_name!r}. Use "
            "get_attached_topology(), or compile for a weft.sharding.AbstractMesh."
        )
    return TopologyDescription(
        topology.describe(platform or "tpu", topology_name, kwargs).devices()
    )


def make_mesh(
    topo: TopologyDescription,
    mesh_shape: Sequence[int],
    axis_names: tuple[str, ...],
    *,
    contiguous_submeshes: bool = False,
) -> Mesh:
    """Make a mesh of the devices of a topology; ValueError if their number does not fit.

    >>> from weft.experimental import topologies
    >>> attached = topologies.get_attached_topology()
    >>> topologies.make_mesh(attached, (2, 4), ("x", "y")).shape["y"]
    4
    """
    grid = create_device_mesh(
        tuple(mesh_shape), list(topo.devices), contiguous_submeshes=contiguous_submeshes
    )
    return Mesh(grid, axis_names)
