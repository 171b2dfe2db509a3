"""Permission of the system to use AMX, Intel's unit that multiplies tiles.

In:   nothing.
Out:  `request()`, whether this process may use the tile registers, which it asks for once.
Laws: Linux grants them to a process, for all its threads and forks, but not after exec. Code that uses
      tiles without permission is ended by SIGILL, so the request comes before the choice of such code.
"""

from __future__ import annotations

import ctypes
import functools
import sys

from weft._engine.codegen.toolchain import loader

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


@functools.cache
def request() -> bool:
    """Return whether the system grants the tile registers; a virtual machine may lack or refuse them."""
    if sys.platform != "linux" or loader.architecture() != "x86_64":
        return False
    call = ctypes.CDLL(None).syscall
    call.restype = ctypes.c_long
    return (
        call(
            ctypes.c_long(_ARCH_PRCTL),
            ctypes.c_long(_REQUEST_PERMISSION),
            ctypes.c_long(_TILE_DATA),
        )
        == 0
    )
