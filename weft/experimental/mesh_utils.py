"""Arranging devices into the array that a mesh is made of."""

from weft.runtime.topology import create_device_mesh, create_hybrid_device_mesh

__all__ = ["create_device_mesh", "create_hybrid_device_mesh"]
