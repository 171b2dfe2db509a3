"""Weft's primitives under the names of `jax.extend.core.primitives`, such as `primitives.sin_p`.

A JAX primitive that weft composes from others has no name here; `weft.compat.missing` lists these names.
"""

import sys
from typing import Any

from weft._engine.ir.registry import registry
from weft._engine.util.lazy import LazyModule
from weft.extend.core.programs import CallPrimitive

#: call primitives that do not occur in weft's programs; libraries register rules for them
call_p = CallPrimitive("call")
closed_call_p = CallPrimitive("closed_call")

#: JAX's name, where it is not weft's name followed by `_p`
_IRREGULAR_NAMES = {
    "add_jaxvals_p": "add_any",
    "linear_solve_p": "custom_linear_solve",
    "remat_p": "checkpoint",
    "argmax_p": "argmax",
}


def __getattr__(name: str) -> Any:
    if not name.endswith("_p"):
        raise AttributeError(f"module 'weft.extend.core.primitives' has no attribute {name!r}")
    operation = _IRREGULAR_NAMES.get(name, name.removesuffix("_p"))
    for candidate in (operation, operation.replace("_", "-")):
        primitive = registry.find(candidate)
        if primitive is not None:
            globals()[name] = primitive
            return primitive
    raise AttributeError(f"module 'weft.extend.core.primitives' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(
        {
            "call_p",
            "closed_call_p",
            *(f"{name.replace('-', '_')}_p" for name in registry),
            *_IRREGULAR_NAMES,
        }
    )


sys.modules[__name__].__class__ = LazyModule
