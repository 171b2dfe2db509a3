"""The devices that programs are compiled for, as a description.

In:   a platform.
Out:  a `TopologyDescription` with its devices, of which `make_mesh` makes a mesh.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ir.mesh import Mesh
from weft.runtime.device import Device, devices
from weft.runtime.topology import create_device_mesh

__all__ = ["Device", "TopologyDescription", "get_attached_topology", "get_topology_desc", "make_mesh"]


class TopologyDescription:
    """Devices that need not be attached; `get_attached_topology` describes those that are."""
    __slots__ = ("devices",)

    def __init__(self, devices: list[Device]):
        self.devices = devices

    def __repr__(self) -> str:
        return f"TopologyDescription({self.devices})"


def get_attached_topology(platform: str | None = None) -> TopologyDescription:
    """The devices of a platform that are there.

    >>> from weft.experimental import topologies
    >>> len(topologies.get_attached_topology().devices) == weft.device_count()
    True
    """
    return TopologyDescription(devices(platform))


def get_topology_desc(topology_name: str = "", platform: str | None = None, **kwargs: Any) -> TopologyDescription:
    """Devices that are not there, by the name of their arrangement: NotImplementedError, as a CPU has no such names.

    For a mesh without devices there is `AbstractMesh`; `WEFT_NUM_DEVICES` says how many virtual devices a process has.
    """
    raise NotImplementedError(f"get_topology_desc: there are no topologies of the platform {platform or 'cpu'!r} to be described by name"
                              f" ({topology_name!r}). Use get_attached_topology(), or compile for a weft.sharding.AbstractMesh.")


def make_mesh(topo: TopologyDescription, mesh_shape: Sequence[int], axis_names: tuple[str, ...], *, contiguous_submeshes: bool = False
              ) -> Mesh:
    """A mesh of the devices of a topology. ValueError if their number does not fit.

    >>> from weft.experimental import topologies
    >>> topologies.make_mesh(topologies.get_attached_topology(), (2, 4), ("x", "y")).shape["y"]
    4
    """
    return Mesh(create_device_mesh(tuple(mesh_shape), list(topo.devices), contiguous_submeshes=contiguous_submeshes), axis_names)
