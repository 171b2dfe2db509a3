"""Public functions for values: a call is one compiled program, reached by native dispatch.

Inside the package the plain functions are used; traces see no difference.
"""

from __future__ import annotations

from collections.abc import Callable

from weft._engine.api.jit import FaceFunction, face
from weft._engine.numpy.ufunc_type import IDENTITIES, ufunc

_wrapped: dict[tuple[Callable, str], FaceFunction] = {}


def eager(fun: Callable, arrays: int, name: str = "") -> FaceFunction:
    """The wrapped form of a public function whose first `arrays` arguments are arrays; one per function and name."""
    name = name or fun.__name__
    found = _wrapped.get((fun, name))
    if found is None:
        if name in IDENTITIES:
            found = ufunc(fun, arrays, 1, name=name, identity=IDENTITIES[name])
        else:
            found = face(fun, tuple(range(arrays)))
        _wrapped[fun, name] = found
        found.name = found.__name__ = found.__qualname__ = name
    return found


_settings: dict[tuple, tuple] = {}


def same(setting):
    """The one object that stands for equal tuples of integers, so that native dispatch knows it again."""
    if type(setting) is not tuple or len(_settings) > 4096:
        return setting
    try:
        return _settings.setdefault(setting, setting)
    except TypeError:
        return setting
