"""Functions of leaves with aux results, and the types of tangents and cotangents.

Law:  a derivative has the tangent type of its value, and is weakly typed if the value is; Python scalars remain Python scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft._engine.api.execute import to_array
from weft._engine.control.hijax_types import flatten_linear
from weft._engine.core.trace import Tracer, eval_trace, trace_state, typeof
from weft._engine.ops.casting import in_dtype
from weft._engine.ops.elementwise import convert_element_type
from weft._engine.runtime.array import from_numpy
from weft._engine.transforms.jvp import instantiate
from weft._engine.util import dtypes, tree
from weft._engine.util.source import function_name


def flat_with_aux(fun: Callable, in_tree, has_aux: bool, api: str) -> tuple[Callable, list]:
    """Return flat `fun`, whose aux leaves follow its results, and a list for `aux_of`, filled with the structures when it runs."""
    trees: list = []

    def flat_fun(*xs):
        out, aux = fun(*tree.tree_unflatten(in_tree, xs)), ()
        if has_aux:
            if not isinstance(out, (tuple, list)) or len(out) != 2:
                raise TypeError(
                    f"{api} with has_aux=True: {function_name(fun)} must return a two-element tuple (output, aux), got "
                    f"{out!r}."
                )
            out, aux = out
        leaves, structure = flatten_linear(out)
        aux_leaves, aux_tree = flatten_linear(aux)
        others = {i: x for i, x in enumerate(aux_leaves) if not _is_value(x)}
        trees[:] = [structure, aux_tree, others]
        return [*leaves, *(0 if i in others else x for i, x in enumerate(aux_leaves))]

    return flat_fun, trees


def convert_python_scalar(x, aval):
    """Return `x` with a Python float or complex converted to an array of `aval`: `fun` may enable x64, which would change its width."""
    return from_numpy(np.asarray(x, aval.dtype), aval) if type(x) in (float, complex) else x


def _is_value(x) -> bool:
    try:
        return typeof(x) is not None
    except TypeError:
        return False


def aux_of(trees: list, leaves: Sequence):
    """Return the aux result of a function with `has_aux` from its leaves. Non-array leaves are returned unchanged."""
    _, structure, others = trees
    return tree.tree_unflatten(structure, [others.get(i, x) for i, x in enumerate(leaves)])


def as_derivative(t, aval):
    """Return a tangent or cotangent for the user: an Array, weakly typed if its value is, or the Python scalar that was passed."""
    t = instantiate(t)
    if aval.weak_type and type(t) not in (float, complex) and typeof(t).dtype != dtypes.float0:
        return convert_element_type(t, aval.dtype, weak_type=True)
    return to_array(t) if isinstance(t, np.generic) and trace_state.trace is eval_trace else t


def is_same_kind(got, want) -> bool:
    """Return whether a tangent of type `got` is valid for type `want`: dtypes agree, or a weak type has the same kind."""
    return got.dtype == want.dtype or (
        got.weak_type and np.dtype(got.dtype).kind == np.dtype(want.dtype).kind
    )


def as_cotangent(ct, aval):
    ct_aval = aval.to_tangent_aval()
    got = typeof(ct)
    # tracers have the right dtype, strong or weak
    if got.dtype != ct_aval.dtype or (got.weak_type and not isinstance(ct, Tracer)):
        return in_dtype(ct, ct_aval.dtype)
    return ct


def check_cotangent(ct, aval, api: str = "vjp", error: type[Exception] = ValueError) -> None:
    got, expected = typeof(ct), aval if api == "linear_transpose" else aval.to_tangent_aval()
    fits = (
        is_same_kind(got, expected)
        if api == "linear_transpose"
        else expected.dtype in (got.dtype, dtypes.float0) or got.weak_type
    )
    if got.shape != expected.shape or not fits:
        mismatch = (
            "unexpected JAX type of the cotangent"
            if api == "vjp"
            else "the cotangent type does not match the output"
        )
        raise error(
            f"{api}: {mismatch}: {got.str_short()} for an output of type {aval.str_short()}; it must be of type {expected.str_short()}."
        )
