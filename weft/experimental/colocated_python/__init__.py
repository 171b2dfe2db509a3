"""Python functions that run where the devices of their arrays are: in this process, to which all devices belong."""

from weft.experimental.colocated_python.func import (
    colocated_cpu_devices as colocated_cpu_devices,
    colocated_python as colocated_python,
    colocated_python_class as colocated_python_class,
)
