"""Arranging devices into the array that a mesh is made of."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft


def create_device_mesh(
    mesh_shape: Sequence[int],
    devices: Sequence[Any] | None = None,
    *,
    contiguous_submeshes: bool = False,
    allow_split_physical_axes: bool = False,
) -> np.ndarray:
    """Return an array of `mesh_shape` of the devices (default: all), in an order that suits their links.

    The virtual devices of one machine are equally far from each other, so their order is that of their ids. The two
    keywords speak of physical links and change nothing here.

    >>> create_device_mesh((4, 2)).shape
    (4, 2)
    """
    placed: Sequence[Any] = weft.devices() if devices is None else devices
    n_slots = math.prod(mesh_shape)
    if n_slots != len(placed):
        raise ValueError(
            f"create_device_mesh: the mesh shape {tuple(mesh_shape)} has {n_slots} slots, "
            f"but there are {len(placed)} devices.\n"
            "  Give a shape whose product is the number of devices, or pass devices=weft.devices()[:n]."
        )
    mesh = np.empty(n_slots, dtype=object)
    mesh[:] = sorted(placed, key=lambda device: device.id)
    return mesh.reshape(tuple(mesh_shape))
