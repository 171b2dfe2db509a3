"""The operations of weft, by the names of `jax.extend.core.primitives`: `primitives.sin_p`.

An operation of JAX's that weft composes from others has no primitive here; AttributeError says so.
"""

from typing import Any

from weft.extend.core.programs import CallPrimitive
from weft.ir.registry import registry

#: operations of calls that programs of weft do not show: libraries have rules for them
call_p = CallPrimitive("call")
closed_call_p = CallPrimitive("closed_call")

#: JAX's name, where it is not that of the operation with `_p`
_OTHERS = {"add_jaxvals_p": "add_any", "linear_solve_p": "custom_linear_solve", "remat_p": "checkpoint", "argmax_p": "argmax"}
#: what JAX has as one operation and weft composes from others
_COMPOSED = frozenset("""
    after_all approx_top_k create_token device_put empty2 eq_to hessenberg householder_product le_to lt_to random_bits
    random_fold_in random_gamma random_seed random_split reduce reduce_window_max reduce_window_min reduce_window reduce_window_sum
    rng_bit_generator rng_uniform schur select_and_gather_add select_and_scatter_add select_and_scatter tridiagonal tridiagonal_solve
""".split())


def __getattr__(name: str) -> Any:
    if not name.endswith("_p"):
        raise AttributeError(f"module 'weft.extend.core.primitives' has no attribute {name!r}")
    operation = _OTHERS.get(name, name.removesuffix("_p"))
    for candidate in (operation, operation.replace("_", "-")):
        found = registry.find(candidate)
        if found is not None:
            globals()[name] = found
            return found
    if operation in _COMPOSED:
        raise AttributeError(f"weft.extend.core.primitives: weft has no primitive {operation!r}; it composes the operation from others, "
                             "and programs show those.")
    raise AttributeError(f"module 'weft.extend.core.primitives' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({"call_p", "closed_call_p", *(f"{name.replace('-', '_')}_p" for name in registry), *_OTHERS})
