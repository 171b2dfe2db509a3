"""What the array API standard asks of a library: its devices, its dtypes and what it can do.

Law: dtypes are those that arrays have under the settings in force, so that 64-bit ones are missing unless they are enabled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft._engine.runtime.device import Device, devices as all_devices
from weft._engine.util import dtypes as dt

#: those of the standard
_DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"
).split()


class NamespaceInfo:
    """The functions of the standard that tell of the library."""

    def capabilities(self) -> dict[str, Any]:
        """What arrays can do: boolean indices work, and shapes that depend on data do outside of traced programs."""
        return {"boolean indexing": True, "data-dependent shapes": False, "max dimensions": 32}

    def default_device(self) -> None:
        """None: arrays that are not placed follow what they are computed with."""
        return None

    def devices(self) -> list[Device]:
        """All devices that arrays can be put on."""
        return all_devices()

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """The dtypes of arrays that are made without one."""
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
        """The dtypes of the standard that there are, all or those of a `kind` (see `isdtype`).

        >>> list(wnp.__array_namespace_info__().dtypes(kind="signed integer"))
        ['int8', 'int16', 'int32']
        """
        held = {
            name: np.dtype(name)
            for name in _DTYPES
            if dt.canonicalize_dtype(name) == np.dtype(name)
        }
        return {
            name: dtype for name, dtype in held.items() if kind is None or dt.isdtype(dtype, kind)
        }


def __array_namespace_info__() -> NamespaceInfo:
    """What the array API standard asks of a library: `capabilities`, `default_device`, `default_dtypes`, `devices` and `dtypes`."""
    return NamespaceInfo()
