"""Multithreaded copies of NumPy views into dense memory.

In:   an address and a NumPy array with any strides.
Out:  `copy(target, view)`: True if it copied the view; False for views with contiguous runs too
      short to benefit.
"""

from __future__ import annotations

import ctypes
import functools
import math

import numpy as np

from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain.native_library import LibraryModule, link, text_of

# thresholds, measured on several machines
#: minimum bytes of a run that is worth a call
_COPY_SHORTEST_RUN = 64
#: bytes that a task copies
COPY_TASK_BYTES = 1 << 18


def copy(target: int, view: np.ndarray) -> bool:
    """Copy the elements of `view` in row-major order to the address `target`; return False if the
    runs are too short.

    >>> x, y = np.arange(2048.0).reshape(4, 512), np.zeros((4, 256))
    >>> copy(y.ctypes.data, x[:, 256:]), np.array_equal(x[:, 256:], y)
    (True, True)
    """
    run, dims = split_into_runs(view.shape, view.strides, view.itemsize)
    if run < _COPY_SHORTEST_RUN:
        return False
    runs = math.prod(extent for extent, _ in dims)
    chunks = -(-run // COPY_TASK_BYTES)
    share = max(1, COPY_TASK_BYTES // run)
    words = [
        target,
        view.ctypes.data,
        run,
        runs,
        share,
        chunks,
        -(-run // chunks),
        len(dims),
        *(word for dim in dims for word in dim),
    ]
    context = (ctypes.c_int64 * len(words))(*words)
    pool.parallel_for(_address(), ctypes.addressof(context), -(-runs // share) * chunks)
    return True


def split_into_runs(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> tuple[int, list[tuple[int, int]]]:
    """Return the bytes of a contiguous run, and the (extent, stride) of the dims that count runs,
    outermost first.

    >>> split_into_runs((4, 2, 8), (128, 64, 4), 4)
    (32, [(8, 64)])
    >>> split_into_runs((4, 2, 8), (256, 64, 4), 4)
    (32, [(4, 256), (2, 64)])
    >>> split_into_runs((4, 8, 8), (256, 32, 4), 4)
    (1024, [])
    """
    run, dims = itemsize, []
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent == 1:
            continue
        if not dims and stride == run:
            run *= extent
        elif dims and stride == dims[0][0] * dims[0][1]:
            dims[0] = (extent * dims[0][0], dims[0][1])
        else:
            dims.insert(0, (extent, stride))
    return run, dims


@functools.cache
def _address() -> int:
    name = "weft_copy_runs"
    return link(
        [LibraryModule("blocks", lambda: text_of("blocks.ll"), (name,), quick=True)],
        libc=("memcpy",),
    )[name]
