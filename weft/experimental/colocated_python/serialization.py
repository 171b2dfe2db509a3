"""Types of values sent to other hosts; a single process sends nothing."""

from weft._engine.runtime.device import Device

#: the devices of a sharding, in order
DeviceList = tuple[Device, ...]
