"""Arrangement of devices into the array of a mesh."""

from weft._engine.runtime.topology import (
    create_device_mesh,
    create_hybrid_device_mesh,
    device_kind_handler_dict,
)
from weft._engine.util.source import guard_all

__all__ = ["create_device_mesh", "create_hybrid_device_mesh", "device_kind_handler_dict"]

guard_all(globals())
