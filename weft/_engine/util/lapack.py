"""The addresses of BLAS and LAPACK routines in NumPy's library, or otherwise in SciPy's.

In:   the Fortran name of a routine (`spotrf`).
Out:  its address. Routines take all arguments by reference; integers have `integer_bytes()` bytes.
Laws: NumPy's library is already loaded, so using it costs nothing, and no second library starts threads. If its symbols cannot be
      found by name, SciPy's public tables of routines are used, which take 0.2 s to import.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft._engine.util.lazy import scipy_module

#: patterns of symbol names of routines, and the bytes of integers in such libraries
_SPELLINGS = (("scipy_{}_64_", 8), ("{}_64_", 8), ("scipy_{}_", 4), ("{}_", 4))
#: symbol names of OpenBLAS's functions that get and set the number of threads
_THREADS = (
    "scipy_openblas_{}_num_threads64_",
    "openblas_{}_num_threads64_",
    "scipy_openblas_{}_num_threads",
    "openblas_{}_num_threads",
)
_PROBE = "sgesdd"


def address(routine: str) -> int:
    """Return the address of a routine.

    >>> address("spotrf") != 0
    True
    """
    return _source()[0](routine)


def integer_bytes() -> int:
    """Return the size in bytes of integer arguments of routines."""
    return _source()[1]


def call(routine: str, arguments: Sequence[Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Call a routine from Python, with arguments as in `ir.program.LibraryCall`.

    >>> x = np.array([[4.0, 2.0], [2.0, 5.0]], np.float32)
    >>> call("spotrf", ("U", 2, "y0", 2, "y1"), {"y0": x, "y1": np.zeros((), np.int32)})
    >>> x.tolist()
    [[2.0, 2.0], [1.0, 2.0]]
    """
    integer = np.dtype(f"i{integer_bytes()}")
    number = np.dtype({"s": "f4", "d": "f8", "c": "c8", "z": "c16"}[routine[0]])
    typed_arrays = {
        name: array.astype(integer) if array.dtype == np.int32 else array
        for name, array in arrays.items()
    }
    buffers = []
    for argument in arguments:
        if isinstance(argument, tuple) and len(argument) == 2:
            buffers.append(typed_arrays[argument[0]].ravel()[argument[1] :])
        elif isinstance(argument, tuple):
            buffers.append(
                np.empty(argument[2], integer if argument[1] == "int32" else argument[1])
            )
        elif isinstance(argument, str):
            buffers.append(
                np.frombuffer(argument.encode(), "u1")
                if len(argument) == 1
                else typed_arrays[argument]
            )
        else:
            buffers.append(np.array(argument, integer if isinstance(argument, int) else number))
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(buffers))(address(routine))(
        *[array.ctypes.data for array in buffers]
    )
    for name, array in arrays.items():
        if typed_arrays[name] is not array:
            array[...] = typed_arrays[name]


@functools.cache
def thread_control() -> tuple[int, int] | None:
    """Return the addresses of `int get()` and `void set(int)` for the library's number of threads; None if it has none."""
    library = _numpys()
    for spelling in _THREADS:
        addresses = [_symbol(library, spelling.format(verb)) for verb in ("get", "set")]
        if all(addresses):
            return addresses[0], addresses[1]
    return None


@functools.cache
def _source() -> tuple[Callable[[str], int], int]:
    """Return a function from a routine's name to its address, and the size of integers in bytes."""
    library = _numpys()
    for spelling, size in _SPELLINGS:
        if _symbol(library, spelling.format(_PROBE)):
            return functools.partial(_from_numpy, spelling), size
    return _from_scipy, 4


@functools.cache
def _numpys() -> ctypes.CDLL | None:
    """Return NumPy's linear algebra module as a shared library, through which symbols of its BLAS library are found."""
    try:
        from numpy.linalg import _umath_linalg

        return ctypes.CDLL(_umath_linalg.__file__)
    except (ImportError, OSError, TypeError):
        return None


def _from_numpy(spelling: str, routine: str) -> int:
    """Return the address of a routine in NumPy's BLAS library."""
    symbol = _symbol(_numpys(), spelling.format(routine))
    if not symbol:
        raise NotImplementedError(
            f"linear algebra: NumPy's BLAS and LAPACK library has no routine {routine!r}. Install another build of NumPy."
        )
    return symbol


def _symbol(library: ctypes.CDLL | None, name: str) -> int:
    """Return the address of a symbol, or 0 if there is none."""
    try:
        return ctypes.cast(library[name], ctypes.c_void_p).value or 0 if library is not None else 0
    except AttributeError:
        return 0


def _from_scipy(routine: str) -> int:
    """Return the address of a routine in SciPy's tables for compiled code."""
    for table in map(scipy_module, ("linalg.cython_lapack", "linalg.cython_blas")):
        capsule = table.__pyx_capi__.get(routine)
        if capsule is not None:
            api = ctypes.pythonapi
            api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = (
                ctypes.c_char_p,
                [ctypes.py_object],
            )
            api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = (
                ctypes.c_void_p,
                [ctypes.py_object, ctypes.c_char_p],
            )
            return api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    raise NotImplementedError(f"linear algebra: SciPy has no routine {routine!r}.")
