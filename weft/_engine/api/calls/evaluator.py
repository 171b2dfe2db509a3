"""The evaluator of single operations: primitives on concrete values.

In:   a primitive, its arguments and parameters, outside of any trace.
Out:  arrays. Each operation is a program of its own, traced once per types of operands, parameters and context.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from weft._engine import backends
from weft._engine.api.calls.build import ProgramOptions
from weft._engine.api.execute import place_on_mesh, run, to_array, with_key_reuse_check
from weft._engine.control.call import jit_p
from weft._engine.core.context import TraceContext, current_context
from weft._engine.core.extension import ExtensionPrimitive, has_python_implementation
from weft._engine.core.interpret import evaluate
from weft._engine.core.primitive import CallbackOp, Primitive, RegionOp, UnsupportedRule
from weft._engine.core.stage import stage
from weft._engine.core.trace import eval_trace, implementations, set_trace
from weft._engine.ir.jaxpr import Jaxpr, subjaxprs
from weft._engine.runtime.array import Array
from weft._engine.transforms.expand_library_ops import has_extensions
from weft._engine.util.dispatch_state import on_clear_caches
from weft._engine.util.source import user_frame


@functools.lru_cache(maxsize=8192)
def _op_program(
    primitive: Primitive, avals: tuple, params: tuple, floats: tuple, context: TraceContext
) -> Jaxpr:
    """Return the program of one operation. The texts `floats` distinguish parameters that compare equal but differ (0.0, -0.0)."""
    return _stage_op(primitive, avals, dict(params))


on_clear_caches(_op_program.cache_clear)


def _region_program(primitive: Primitive, avals: tuple, params: dict) -> Jaxpr:
    """Return the program of one operation that holds programs; it lives as long as the first of them."""
    inner = next((j for _, j in subjaxprs(params)), None)
    if inner is None:
        return _stage_op(primitive, avals, params)
    return inner.memo(
        ("one op", primitive, avals, tuple(params.items())),
        lambda: _stage_op(primitive, avals, params),
    )


def _stage_op(primitive: Primitive, avals: tuple, params: dict) -> Jaxpr:
    def op(*xs):
        out = primitive.bind(*xs, **params)
        return out if primitive.multiple_results else [out]

    with set_trace(eval_trace):
        return stage(op, avals, primitive.name)


def _program_of(primitive: Primitive, avals: tuple, params: dict) -> Jaxpr:
    """Return the program of one operation, traced once if its parameters are hashable."""
    try:
        if isinstance(primitive, RegionOp):
            return _region_program(primitive, avals, params)
        floats = tuple([repr(v) for v in params.values() if isinstance(v, float)])
        return _op_program(primitive, avals, tuple(params.items()), floats, current_context())
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _stage_op(primitive, avals, params)


def evaluate_op(primitive: Primitive, args: Sequence, params: dict) -> Any:
    """Evaluate one primitive on concrete values."""
    if isinstance(primitive, ExtensionPrimitive) and (
        primitive.implementation is not None or primitive.expand is None
    ):
        return primitive.impl(*args, **params)
    return run_compiled_op(primitive, args, params)


def run_compiled_op(primitive: Primitive, args: Sequence, params: dict) -> Any:
    """Evaluate one primitive on concrete values by running its program."""
    if primitive.is_call and _is_interpreted(primitive, params["jaxpr"]):
        return evaluate(params["jaxpr"], *args)
    arrays = [to_array(x) for x in args]
    if primitive is jit_p:
        return _run_call(arrays, params)
    if isinstance(primitive, CallbackOp) and _is_on_one_device(params, arrays):
        return _run_callback(primitive, arrays, params)
    if isinstance(primitive.reference, UnsupportedRule):
        primitive.reference()  # raises: the operation cannot be evaluated alone
    jaxpr = _program_of(primitive, tuple([x._spec.aval for x in arrays]), params)
    outs = _run_checked(jaxpr, arrays, ProgramOptions(primitive.name))
    return outs if primitive.multiple_results else outs[0]


def _is_interpreted(primitive: Primitive, inner: Jaxpr) -> bool:
    """Return whether a call is evaluated op by op, because Python functions implement some of its ops."""
    has_functions = has_extensions(inner) or (implementations and primitive is not jit_p)
    return bool(has_functions) and has_python_implementation(inner)


def _run_call(arrays: list[Array], params: dict) -> list[Array]:
    """Run the program of a jitted function that was called inside another one."""
    options = ProgramOptions(
        f"jit({params['name']})",
        in_shardings=params["in_shardings"],
        out_shardings=params["out_shardings"],
        donated=[i for i, is_donated in enumerate(params["donated"]) if is_donated],
    )
    return _run_checked(params["jaxpr"], arrays, options)


def _run_checked(jaxpr: Jaxpr, arrays: list[Array], options: ProgramOptions) -> list[Array]:
    return with_key_reuse_check(
        jaxpr, options.name, arrays, lambda: run(jaxpr, place_on_mesh(arrays), options)
    )


def _is_on_one_device(params: dict, arrays: Sequence[Array]) -> bool:
    """Return whether a callback needs no program: it takes whole values, or each array is on one device."""
    return not params.get("partitioned") or all(
        len(x.sharding.device_assignment) == 1 for x in arrays
    )


def _run_callback(primitive: Primitive, arrays: list[Array], params: dict) -> list[Array]:
    from weft._engine.ops.callback import wrap_reference

    backends.wait_for_effects()
    call = (
        wrap_reference(primitive, user_frame()) if "result_avals" in params else primitive.reference
    )
    return [to_array(x) for x in call(*[x._numpy() for x in arrays], **params)]
