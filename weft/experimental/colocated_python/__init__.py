"""Python functions that run on the hosts of their arrays' devices: in this process, which drives all devices."""

from weft.experimental.colocated_python.func import (
    colocated_cpu_devices as colocated_cpu_devices,
    colocated_python as colocated_python,
    colocated_python_class as colocated_python_class,
)
