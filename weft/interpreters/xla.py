"""Names of `jax.interpreters.xla` that libraries ask for: primitives compiled alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.api.execute import compiled_op
from weft.backends.base import Backend as Backend
from weft.core.primitive import Primitive
from weft.core.trace import Tracer

#: Python types -> functions that make arrays of values of that type; nothing of weft asks for more than `__jax_array__`
canonicalize_dtype_handlers: dict[type, Callable] = {}


def apply_primitive(prim: Primitive, *args: Any, **params: Any) -> Any:
    """The results of a primitive on values, by the program that it is compiled to: an implementation for those with a lowering.

    >>> apply_primitive(lax.sin_p, 0.0, accuracy=None)
    Array(0., dtype=float32, weak_type=True)
    """
    if any(isinstance(x, Tracer) for x in args):
        return prim.bind(*args, **params)
    return compiled_op(prim, args, params)
