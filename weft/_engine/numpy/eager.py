"""Eager forms of public functions: a call is one compiled program, run by native dispatch.

The package itself uses the plain functions; traces contain no difference.
"""

from __future__ import annotations

from collections.abc import Callable

from weft._engine.api.jit import EagerJit, eager_jit
from weft._engine.numpy.ufunc_type import IDENTITIES, ufunc

_wrapped: dict[tuple[Callable, str], EagerJit] = {}


def eager(fun: Callable, arrays: int, name: str = "") -> EagerJit:
    """Return the eager form of a public function whose first `arrays` arguments are arrays.

    There is one eager form per function and name.
    """
    name = name or fun.__name__
    eager_form = _wrapped.get((fun, name))
    if eager_form is None:
        if name in IDENTITIES:
            eager_form = ufunc(fun, arrays, 1, name=name, identity=IDENTITIES[name])
        else:
            eager_form = eager_jit(fun, tuple(range(arrays)))
        _wrapped[fun, name] = eager_form
        eager_form.name = eager_form.__name__ = eager_form.__qualname__ = name
    return eager_form


_settings: dict[tuple, tuple] = {}


def same(setting):
    """Return one shared object for equal tuples of integers.

    Native dispatch recognizes them by identity.
    """
    if type(setting) is not tuple or len(_settings) > 4096:
        return setting
    try:
        return _settings.setdefault(setting, setting)
    except TypeError:
        return setting
