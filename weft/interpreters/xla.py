"""Names of `jax.interpreters.xla` that libraries use: separately compiled primitives, and types that stand for arrays.

In:  a primitive with values; a type with a function of its values.
Out: results; entries of `canonicalize_dtype_handlers` and `pytype_aval_mappings`, which `weft.typeof` and every operation read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import numpy as np

from weft._engine import hooks
from weft._engine.api.calls.evaluator import run_compiled_op
from weft._engine.api.execute import to_array
from weft._engine.backends.base import Backend as Backend
from weft._engine.core.primitive import Primitive
from weft._engine.core.trace import Tracer, any_tracers, typeof
from weft._engine.ir.types import ShapedArray
from weft._engine.numpy.promote import PYTHON_SCALARS
from weft._engine.runtime.array import Array

#: types that operations accept directly, with their subclasses
_ACCEPTED_TYPES = (Array, Tracer, np.ndarray, np.generic, *PYTHON_SCALARS)


class _TypeTable(MutableMapping):
    """Conversion functions by type: `given` has the types of libraries; types that operations accept use `usual`."""

    def __init__(self, given: dict[type, Callable], usual: Callable):
        self.given, self.usual = given, usual

    def __getitem__(self, kind: type) -> Callable:
        if kind in self.given:
            return self.given[kind]
        if isinstance(kind, type) and issubclass(kind, _ACCEPTED_TYPES):
            return self.usual
        raise KeyError(kind)

    def __setitem__(self, kind: type, function: Callable) -> None:
        if not isinstance(kind, type) or not callable(function):
            raise TypeError(
                f"an entry is a type and a function of its values, got {kind!r} and {function!r}."
            )
        self.given[kind] = function

    def __delitem__(self, kind: type) -> None:
        del self.given[kind]

    def __iter__(self) -> Iterator[type]:
        return iter(dict.fromkeys((*_ACCEPTED_TYPES, *self.given)))

    def __len__(self) -> int:
        return len({*_ACCEPTED_TYPES, *self.given})


def _array_of(x: Any) -> Array:
    return to_array(x if isinstance(x, (Array, *PYTHON_SCALARS)) else np.asarray(x))


def _type_of(x: Any) -> ShapedArray:
    return typeof(x if isinstance(x, _ACCEPTED_TYPES) else np.asarray(x))


#: type -> function that converts a value of that type to an array
canonicalize_dtype_handlers = _TypeTable(hooks.array_makers, _array_of)
#: type -> function that returns the array type that a value of that type stands for
pytype_aval_mappings = _TypeTable(hooks.type_makers, _type_of)


def apply_primitive(prim: Primitive, *args: Any, **params: Any) -> Any:
    """Return the results of a primitive on values, computed by a compiled program: the implementation of primitives with a
    lowering rule.

    >>> apply_primitive(lax.sin_p, 0.0, accuracy=None)
    Array(0., dtype=float32, weak_type=True)
    """
    if any_tracers(args):
        return prim.bind(*args, **params)
    return run_compiled_op(prim, args, params)
