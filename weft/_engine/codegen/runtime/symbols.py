"""External functions in native code: of the C library, Python, BLAS, LAPACK and the thread pool.

In:   a name.
Out:  its address in this process, or None.
Laws: the name of a BLAS or LAPACK routine includes the width of its integers, so that code compiled
      for a library with another width finds no address. The thread pool and the library are loaded
      on first use of their names.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable

from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain import loader

#: functions of the C library that kernels may call
LIBM = (
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "log2",
    "cbrt",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "erfc",
    "lgamma",
    "pow",
    "atan2",
    "fmod",
    "fma",
    "fmaf",
    "round",
    "roundf",
    "roundeven",
    "roundevenf",
    "floor",
    "floorf",
    "ceil",
    "ceilf",
    "trunc",
    "truncf",
    "rint",
    "rintf",
    "fmodf",
    "nearbyint",
    "nearbyintf",
)
LIBC = ("memcpy", "memset", "memmove", "pthread_self")
#: symbols for checking signals
SIGNAL_SYMBOLS = (
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyErr_CheckSignals",
    "PyErr_Fetch",
    "weft_signal_error",
    "weft_runner",
)
#: symbols for calling Python
PYTHON_CALL_SYMBOLS = ("PyObject_CallFunction", "PyLong_AsLong", "Py_DecRef")
#: symbols for restricting the threads of BLAS and LAPACK
LIBRARY_THREAD_SYMBOLS = ("weft_library_threads", "weft_library_set_threads", "weft_library_users")
#: prefixes of the symbols of the thread pool
POOL_PREFIXES = ("weft_parallel_for", "weft_scratch_")
#: prefix of the symbols of BLAS and LAPACK
LIBRARY_PREFIX = "weft_library_"

#: the error (type, value, traceback) of a signal handler that raised during a program or before a
#: host call; only the main thread runs handlers
signal_error = (ctypes.c_void_p * 3)()
#: [0]: the id of the thread that runs queued programs (see `queue.ll`) and handles no signals; [1]:
#: nonzero to stop its current program
runner = (ctypes.c_int64 * 2)()
#: [0]: number of running native calls that keep the library single-threaded; [1]: its thread count
#: before, or 0
_users = (ctypes.c_int32 * 2)()


def address(name: str) -> int | None:
    """Return the address of the symbol `name` of native code; None if it is undefined.

    >>> address("memcpy") is not None, address("no_such_function")
    (True, None)
    """
    if name.startswith(POOL_PREFIXES):
        return pool.symbols().get(name)
    if name in LIBM or name in LIBC:
        return _of_c(name)
    if name.startswith(LIBRARY_PREFIX):
        return _of_library(name)
    if name == "weft_signal_error":
        return ctypes.addressof(signal_error)
    if name == "weft_runner":
        return ctypes.addressof(runner)
    return (
        ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
        if name in SIGNAL_SYMBOLS + PYTHON_CALL_SYMBOLS
        else None
    )


def addresses(names: Iterable[str]) -> dict[str, int]:
    """Return the addresses of the names that this process has."""
    return {name: found_address for name in names if (found_address := address(name)) is not None}


def of_c() -> dict[str, int]:
    """Return the addresses of the C functions that generated code may call."""
    return addresses((*LIBM, *LIBC))


def routine(name: str) -> str:
    """Return the symbol of a BLAS or LAPACK routine in native code."""
    from weft._engine.util import lapack

    return f"{LIBRARY_PREFIX}i{8 * lapack.integer_bytes()}_{name}"


@functools.cache
def _of_c(name: str) -> int | None:
    function = getattr(loader.process(), name, None) or getattr(_libm(), name, None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


@functools.cache
def _libm() -> ctypes.CDLL:
    """Return the C math library, for interpreters that are not linked to it."""
    import ctypes.util  # lazy: it starts subprocesses to find libraries

    return ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")


def _of_library(name: str) -> int | None:
    from weft._engine.util import lapack

    if name in LIBRARY_THREAD_SYMBOLS:
        control = lapack.thread_control()
        return (
            None
            if control is None
            else (*control, ctypes.addressof(_users))[LIBRARY_THREAD_SYMBOLS.index(name)]
        )
    title = name.rpartition("_")[2]
    return lapack.address(title) if name == routine(title) else None
