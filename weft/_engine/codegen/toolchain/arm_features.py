"""Features of aarch64 processors that LLVM does not report.

In:   the bits that Linux passes to each process about its processor.
Out:  `matrix_features()`, LLVM's names of the features with matrix units.
"""

from __future__ import annotations

import ctypes
import functools
import sys

_HWCAP2 = 26  # type of the entry of the auxiliary vector that holds the bits
_BITS = {"bf16": 1 << 14, "i8mm": 1 << 13}


@functools.cache
def matrix_features() -> tuple[str, ...]:
    """Return the features of this aarch64 processor that multiply small matrices; none outside of Linux."""
    if sys.platform != "linux":
        return ()
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.argtypes, getauxval.restype = [ctypes.c_ulong], ctypes.c_ulong
    bits = getauxval(_HWCAP2)
    return tuple([name for name, bit in _BITS.items() if bits & bit])
