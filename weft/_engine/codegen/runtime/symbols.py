"""External functions that native code names: those of the C library, Python, BLAS, LAPACK and the thread pool.

In:   a name.
Out:  its address in this process, or None.
Laws: the name of a BLAS or LAPACK routine includes the width of its integers, so that code made for another library than this
      process has finds none. The thread pool and the library are looked up when they are first named.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable

from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain import loader

#: names of the C library's functions that kernels may call
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
#: what programs need to look for signals
SIGNALS = (
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyErr_CheckSignals",
    "PyErr_Fetch",
    "weft_signal_error",
    "weft_runner",
)
#: and what they need to call Python
CALLS = ("PyObject_CallFunction", "PyLong_AsLong", "Py_DecRef")
#: what takes the threads away from the library of BLAS and LAPACK for a time
RULE = ("weft_library_threads", "weft_library_set_threads", "weft_library_users")
#: what all symbols of the thread pool begin with
POOL_PREFIXES = ("weft_parallel_for", "weft_scratch_")
#: and those of BLAS and LAPACK
LIBRARY_PREFIX = "weft_library_"

#: what the handler of a signal raised while a program ran or a host call began (only the main thread runs handlers):
#: type, value, traceback
signal_error = (ctypes.c_void_p * 3)()
#: the thread that runs queued programs (see `queue.ll`), which handles no signals; nonzero: the program that it runs is to stop
runner = (ctypes.c_int64 * 2)()
#: native calls under way that keep the library from using threads; and the threads that it had before, or 0
_users = (ctypes.c_int32 * 2)()


def address(name: str) -> int | None:
    """The address of what native code calls `name`.

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
        if name in SIGNALS + CALLS
        else None
    )


def addresses(names: Iterable[str]) -> dict[str, int]:
    """The addresses of those names that this process knows."""
    return {name: found for name in names if (found := address(name)) is not None}


def of_c() -> dict[str, int]:
    """Addresses of the C functions that generated code may call."""
    return addresses((*LIBM, *LIBC))


def routine(name: str) -> str:
    """What native code calls a routine of BLAS or LAPACK."""
    from weft._engine.util import lapack

    return f"{LIBRARY_PREFIX}i{8 * lapack.integer_bytes()}_{name}"


@functools.cache
def _of_c(name: str) -> int | None:
    function = getattr(loader.process(), name, None) or getattr(_libm(), name, None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


@functools.cache
def _libm() -> ctypes.CDLL:
    """The C library's mathematics, where the interpreter does not load it."""
    import ctypes.util  # starts processes to find libraries

    return ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")


def _of_library(name: str) -> int | None:
    from weft._engine.util import lapack

    if name in RULE:
        control = lapack.thread_control()
        return None if control is None else (*control, ctypes.addressof(_users))[RULE.index(name)]
    title = name.rpartition("_")[2]
    return lapack.address(title) if name == routine(title) else None
