"""The types of what would travel to another host; with one process nothing does."""

from weft._engine.runtime.device import Device

#: the devices of a sharding, in order
DeviceList = tuple[Device, ...]
