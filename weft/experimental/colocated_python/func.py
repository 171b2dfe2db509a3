"""`colocated_python`: functions and classes whose calls run on the hosts of the devices of their arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from weft._engine.core.trace import any_tracers, typeof
from weft._engine.ir.mesh import Mesh
from weft._engine.runtime.device import Device
from weft._engine.util import tree
from weft._engine.util.source import guard_all

__all__ = ["colocated_cpu_devices", "colocated_python", "colocated_python_class"]

C = TypeVar("C", bound=type)


def colocated_cpu_devices(devices_or_mesh: Sequence[Device] | Mesh) -> Any:
    """Return the CPU devices on the hosts of the given devices: the given devices, as a mesh or a tuple like the argument.

    >>> colocated_cpu_devices(weft.devices()[:1])[0].platform
    'cpu'
    """
    if isinstance(devices_or_mesh, Mesh):
        return devices_or_mesh
    return tuple(devices_or_mesh)


class _Colocated:
    """A function from arrays to arrays; `specialize` fixes their types or devices in advance."""

    __name__: str

    def __init__(
        self,
        fun: Callable[..., Any],
        in_specs: Any = None,
        out_specs_fn: Callable[..., Any] | None = None,
        devices: Sequence[Device] | None = None,
    ):
        functools.update_wrapper(self, fun)
        self._fun, self._in_specs, self._out_specs_fn, self._devices = (
            fun,
            in_specs,
            out_specs_fn,
            devices,
        )

    def specialize(
        self,
        in_specs: Any = None,
        out_specs_fn: Callable[..., Any] | None = None,
        devices: Sequence[Device] | None = None,
    ) -> _Colocated:
        """Return this function for arguments of types `in_specs`, with results of the types that `out_specs_fn` returns."""
        return _Colocated(
            self._fun,
            self._in_specs if in_specs is None else in_specs,
            self._out_specs_fn if out_specs_fn is None else out_specs_fn,
            self._devices if devices is None else devices,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = tree.tree_leaves((args, kwargs))
        if any_tracers(leaves):
            raise NotImplementedError(
                f"colocated_python: {self.__name__} is called on traced values. It runs in Python, outside of "
                "compiled programs: call it on arrays, or use pure_callback inside a program."
            )
        if self._in_specs is not None:
            _fit(f"an argument of {self.__name__}", tree.tree_leaves(self._in_specs), leaves)
        out = self._fun(*args, **kwargs)
        if self._out_specs_fn is not None:
            _fit(
                f"a result of {self.__name__}",
                tree.tree_leaves(self._out_specs_fn(*args, **kwargs)),
                tree.tree_leaves(out),
            )
        return out


def _fit(what: str, specs: Sequence[Any], values: Sequence[Any]) -> None:
    for spec, x in zip(specs, values, strict=True):
        aval = typeof(x)
        if (tuple(spec.shape), spec.dtype) != (aval.shape, aval.dtype):
            raise ValueError(
                f"colocated_python: {what} has type {aval.str_short()}, but {spec.dtype}{list(spec.shape)} was stated."
            )


def colocated_python(fun: Callable[..., Any]) -> Any:
    """Return `fun` as a function that runs on the hosts of its arguments' devices: in this process, synchronously.

    >>> double = colocated_python(lambda x: 2 * x)
    >>> double(wnp.arange(3))
    Array([0, 2, 4], dtype=int32)
    """
    if not callable(fun):
        raise TypeError(f"colocated_python: fun must be callable, got {fun!r}.")
    return _Colocated(fun)


def colocated_python_class(cls: C) -> C:
    """Return a class whose instances live on the hosts of the devices that their methods use: the class itself."""
    if not isinstance(cls, type):
        raise TypeError(f"colocated_python_class: cls must be a class, got {cls!r}.")
    return cls


guard_all(globals(), ["colocated_cpu_devices", "colocated_python", "colocated_python_class"])
