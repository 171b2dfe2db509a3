"""Storage of string arrays for the devices of another backend.

In:   NumPy arrays of `numpy.dtypes.StringDType`, whose elements vary in size.
Out:  buffers that are NumPy arrays of the shards, on the host: no program computes with strings.
Next: `base` defines the interface; `array_spec` selects this backend by dtype.
"""

from __future__ import annotations

import functools

import numpy as np

from weft._engine.backends.array_spec import ArraySpec, from_blocks, to_blocks
from weft._engine.backends.base import Backend, Device


class StringBackend(Backend):
    """A backend that stores strings for the devices of another backend."""

    def __init__(self, owner: Backend):
        super().__init__()
        self.platform, self._owner = owner.platform, owner

    def devices(self) -> list[Device]:
        return self._owner.devices()

    def put(self, value: np.ndarray, spec: ArraySpec, copy: bool = True) -> np.ndarray:
        return to_blocks(value, spec).copy()

    def get(self, buffer: np.ndarray, spec: ArraySpec) -> np.ndarray:
        return from_blocks(buffer, spec).reshape(spec.global_shape).copy()


@functools.cache
def string_backend_for(owner: Backend) -> StringBackend:
    """Return the backend that stores arrays of strings for the devices of `owner`."""
    return StringBackend(owner)
