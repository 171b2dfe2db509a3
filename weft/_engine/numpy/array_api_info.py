"""Inspection as the array API standard defines it: devices, dtypes and capabilities.

Law: the dtypes follow the current settings, so 64-bit ones are missing unless
they are enabled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft._engine.runtime.device import Device, devices as all_devices
from weft._engine.util import dtypes as dt

#: the dtypes of the standard
_DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"
).split()


class NamespaceInfo:
    """The inspection functions of the standard."""

    def capabilities(self) -> dict[str, Any]:
        """Return the capabilities of arrays.

        Boolean indices work; shapes that depend on data work outside of traced programs.
        """
        return {"boolean indexing": True, "data-dependent shapes": False, "max dimensions": 32}

    def default_device(self) -> None:
        """Return None: arrays without a placement follow the operands they are combined with."""
        return None

    def devices(self) -> list[Device]:
        """Return all devices that can hold arrays."""
        return all_devices()

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """Return the dtypes of arrays created without a dtype."""
        real, whole = dt.default_float_dtype(), dt.default_int_dtype()
        return {
            "real floating": real,
            "complex floating": dt.to_complex_dtype(real),
            "integral": whole,
            "indexing": whole,
        }

    def dtypes(
        self, *, device: Any = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, np.dtype]:
        """Return the available dtypes of the standard, all or those of a `kind` (see `isdtype`).

        >>> list(wnp.__array_namespace_info__().dtypes(kind="signed integer"))
        ['int8', 'int16', 'int32']
        """
        available = {
            name: np.dtype(name)
            for name in _DTYPES
            if dt.canonicalize_dtype(name) == np.dtype(name)
        }
        return {
            name: dtype
            for name, dtype in available.items()
            if kind is None or dt.isdtype(dtype, kind)
        }


def __array_namespace_info__() -> NamespaceInfo:
    """Return the inspection object of the array API standard.

    Its methods are `capabilities`, `default_device`, `default_dtypes`, `devices` and `dtypes`.
    """
    return NamespaceInfo()
