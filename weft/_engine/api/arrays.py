"""Functions that read arrays and inspect programs: device_get, block_until_ready, make_jaxpr, eval_shape, named_call and others."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

from weft._engine.api.flat import FlatFunction, aval_of
from weft._engine.api.jit import JitFunction, check_output
from weft._engine.api.struct import ShapeDtypeStruct
from weft._engine.backends.array_spec import _specs
from weft._engine.control.hijax_types import (
    extract_mutable_values,
    flatten,
    flatten_linear,
    is_mutable,
    on_copies,
)
from weft._engine.control.ref import LiftedRefs, any_refs, is_ref, trace_with_refs
from weft._engine.core.interpret import evaluate
from weft._engine.core.stage import hoist_tracers, stage
from weft._engine.core.trace import (
    Trace,
    any_tracers,
    current_trace,
    eval_trace,
    extend_axis_env,
    set_trace,
    typeof,
)
from weft._engine.cpython.references import is_held_at_most
from weft._engine.hooks import PENDING_BUFFER_TYPES, hi_types
from weft._engine.ir.jaxpr import Jaxpr, OpenJaxpr
from weft._engine.ir.types import ShapedArray, _interned
from weft._engine.runtime.array import Array
from weft._engine.util import dtypes, tree
from weft._engine.util.dispatch_state import clearers
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import (
    api_boundary,
    check_callable,
    function_name,
    join,
    scope,
    wraps,
)


def device_get(x: Any) -> Any:
    """Return the tree `x` with its arrays as (read-only) NumPy arrays; random keys and other leaves are unchanged.

    >>> device_get({"x": wnp.arange(3), "n": 2})
    {'n': 2, 'x': array([0, 1, 2], dtype=int32)}
    """
    return tree.tree_map(
        lambda leaf: (
            leaf._numpy() if type(leaf) is Array and not dtypes.is_extended(leaf.dtype) else leaf
        ),
        x,
    )


def block_until_ready(x: Any) -> Any:
    """Wait until all arrays in the tree `x` are computed, and return it.

    >>> block_until_ready([wnp.ones(2).sum(), "a"])
    [Array(2., dtype=float32), 'a']
    """
    _wait((x,))
    return x


def _wait(xs) -> None:
    """Wait for the trees `xs`. Builtin containers are not flattened, because users time steps with this call."""
    for x in xs:
        kind = type(x)
        if kind is Array:
            if type(x._buffer) in PENDING_BUFFER_TYPES:
                x.block_until_ready()
        elif kind is tuple or kind is list:
            _wait(x)
        elif kind is dict:
            _wait(x.values())
        elif (wait := getattr(x, "block_until_ready", None)) is not None:
            wait()
        elif len(leaves := tree.tree_leaves(x)) != 1 or leaves[0] is not x:
            _wait(leaves)


def copy_to_host_async(x: Any) -> Any:
    """Start copying the arrays of the tree `x` to the host, and return it. On the CPU they are there already.

    >>> copy_to_host_async([wnp.ones(2).sum(), "a"])
    [Array(2., dtype=float32), 'a']
    """
    for leaf in tree.tree_leaves(x):
        start = getattr(leaf, "copy_to_host_async", None)
        if start is not None:
            try:
                start()
            except Exception as error:
                error._inside = False  # type: ignore[attr-defined]  # reaches the caller with its own traceback
                raise
    return x


# ---- inspecting programs


@api_boundary
def make_jaxpr(
    fun: Callable,
    static_argnums: int | Sequence[int] = (),
    axis_env=None,
    return_shape: bool = False,
    abstracted_axes=None,
) -> Callable:
    """Return a function that returns the program of `fun` for arguments of the types that it is called with.

    With `return_shape` it returns the program and the results' ShapeDtypeStructs. `axis_env` lists (name, size) pairs of the
    named axes that collectives inside may use.
    Raises TypeError for arguments and results that are not arrays or numbers.

    >>> print(weft.make_jaxpr(lambda x: x * 2)(wnp.ones(3)))
    { lambda ; a:f32[3]. let b:f32[3] = mul a 2.0:f32[] in (b,) }
    """
    if abstracted_axes is not None:
        raise NotImplementedError("make_jaxpr: abstracted_axes is not supported yet.")
    check_callable("make_jaxpr", fun)

    @wraps(fun)
    @functools.partial(api_boundary, name="make_jaxpr")
    def jaxpr_maker(*args, **kwargs):
        flat = FlatFunction(
            fun, args, kwargs, static_argnums, flatten=lambda x: flatten(x, "make_jaxpr")
        )
        with extend_axis_env(list(axis_env or ())):
            jaxpr = trace_with_refs(lambda refs: _program(flat, refs))
        if return_shape:
            return jaxpr, flat.unflatten([_struct(a) for a in jaxpr.out_avals])
        return jaxpr

    jaxpr_maker.__name__ = f"make_jaxpr({function_name(fun)})"
    jaxpr_maker.__qualname__ = f"make_jaxpr({getattr(fun, '__qualname__', function_name(fun))})"
    return jaxpr_maker


def _program(flat: FlatFunction, refs: list) -> Jaxpr:
    """Return the program of a function with references.

    The values of the references `refs`, which it closes over, are leading inputs; their final values, and the final values of references
    among the arguments, are trailing results.
    """
    if not refs and not any_refs(flat.leaves):
        return stage(flat, [aval_of(x) for x in flat.leaves], function_name(flat.fun))
    at = [i for i, x in enumerate(flat.leaves) if is_ref(x)]
    lifted = LiftedRefs(lambda *xs: flat.unflatten(flat(*xs)), "make_jaxpr", refs, at, flat.names())

    def on_values(*xs):
        out, state, passed_values = lifted.call(xs[: len(refs)], xs[len(refs) :])
        return [*tree.tree_leaves(out), *state, *passed_values]

    avals = [x.type.inner_aval if is_ref(x) else aval_of(x) for x in (*refs, *flat.leaves)]
    return stage(on_values, avals, function_name(flat.fun))


def _struct(aval: ShapedArray) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(
        aval.shape, aval.dtype, sharding=aval.explicit, weak_type=aval.weak_type, vma=aval.vma
    )


@api_boundary
def eval_shape(fun: Callable, *args, **kwargs) -> Any:
    """Return the shapes and dtypes of the results of `fun`, without computing them.

    For a jitted function they have also the shardings and formats of its `out_shardings`.

    Raises the errors of tracing `fun`: TypeError or ShapeError for arguments that do not fit.

    >>> weft.eval_shape(lambda x: x @ x.T, wnp.ones((2, 3)))
    ShapeDtypeStruct(shape=(2, 2), dtype=float32)
    """
    has_mutable = hi_types and any(map(is_mutable, tree.tree_leaves((args, kwargs))))
    if isinstance(fun, JitFunction):
        if fun.options.out_shardings is not None and not has_mutable:
            return fun.eval_shape(*args, **kwargs)
        fun = fun.fun
    if has_mutable:
        (args, kwargs), _ = extract_mutable_values((args, kwargs))
        return eval_shape(lambda *args, **kwargs: on_copies(fun, args, kwargs)[0], *args, **kwargs)
    flat = FlatFunction(fun, args, kwargs, flatten=lambda x: flatten(x, "eval_shape"))

    def checked(*leaves):
        outs = flat(*leaves)
        for i, out in enumerate(outs):
            check_output(out, "eval_shape", fun, flat.out_tree, i)
        return outs

    jaxpr = stage(checked, [aval_of(x) for x in flat.leaves], function_name(fun))
    return flat.unflatten([_struct(a) for a in jaxpr.out_avals])


def eval_jaxpr(
    jaxpr: Jaxpr | OpenJaxpr, consts: Sequence, *args, propagate_source_info: bool = True
) -> list:
    """Return the flat results of a program on flat arguments, evaluated op by op; `consts` are the values of its constants.

    >>> jaxpr = weft.make_jaxpr(lambda x: x + 1.0)(2.0)
    >>> [float(y) for y in weft.eval_jaxpr(jaxpr, jaxpr.consts, 2.0)]
    [3.0]
    """
    closed = jaxpr.closed(consts) if isinstance(jaxpr, OpenJaxpr) else jaxpr.replace(consts=consts)
    return evaluate(closed, *args)


@contextmanager
def ensure_compile_time_eval():
    """Compute operations on known values immediately inside this context, even while a function is being traced.

    >>> @weft.jit
    ... def f(x):
    ...     with weft.ensure_compile_time_eval():
    ...         n = int(wnp.arange(4).sum())
    ...     return x * n
    >>> float(f(2.0))
    12.0
    """
    outer = current_trace()
    with set_trace(outer if outer is eval_trace else _ConstantEvalTrace(outer)):
        yield


class _ConstantEvalTrace(Trace):
    """A trace that evaluates operations on known values; operations on tracers are left to the enclosing trace."""

    __slots__ = ()
    evaluates_constants = True

    def processing_trace(self, args):
        return self.parent if any_tracers(args) else eval_trace

    def process(self, primitive, args, params):
        trace = self.processing_trace(args)
        with set_trace(trace):
            return trace.process(primitive, args, params)


def named_call(fun: Callable, *, name: str | None = None) -> Callable:
    """Return `fun` with a name that is shown in program texts.

    >>> named_call(lambda x: x, name="same").__name__
    'same'
    """

    @wraps(fun)
    @api_boundary
    def called(*args, **kwargs):
        with named_scope(called.__name__):
            return fun(*args, **kwargs)

    called.__name__ = function_name(fun)
    if name is not None:
        called.__name__ = name
    return called


@contextmanager
def named_scope(name: str):
    """Name the operations inside this context in program texts. Raises TypeError if `name` is not a string.

    >>> def f(x):
    ...     with named_scope("layer"):
    ...         return wnp.sin(x)
    >>> 'op_name="jit(f)/layer/sin"' in weft.jit(f).lower(1.0).as_text("hlo", debug_info=True)
    True
    """
    if not isinstance(name, str):
        raise TypeError(f"named_scope: the name must be a string, got {name!r}.")
    outer = scope.name
    scope.name = join(outer, name)
    try:
        yield
    finally:
        scope.name = outer


def closure_convert(fun: Callable, *example_args) -> tuple[Callable, list]:
    """Return `fun` with the traced values it closes over as extra arguments.

    The result is `(converted, values)`, where `converted(*args, *values) == fun(*args)`.

    >>> converted, values = closure_convert(lambda x: 2.0 * x, 1.0)
    >>> float(converted(3.0, *values)), values
    (6.0, [])
    """
    flat = FlatFunction(fun, example_args, flatten=flatten_linear)
    jaxpr, consts = hoist_tracers(stage(flat, [typeof(x) for x in flat.leaves], function_name(fun)))

    def converted(*args):
        n = len(args) - len(consts)
        leaves, structure = flatten_linear((tuple(args[:n]), {}))
        if structure != flat.in_tree:
            raise TypeError(
                "The inputs to the closure produced by closure_convert must have the structure of its example arguments, "
                f"{flat.in_tree.children()[0]}, followed by {quantity(len(consts), 'value')}, got {structure.children()[0]}."
                f"{tree.describe_difference(flat.in_tree.children()[0], structure.children()[0], 'example', 'called')}"
            )
        return flat.unflatten(evaluate(jaxpr, *args[n:], *leaves))

    return converted, consts


def _prune(table: dict[Any, Any]) -> None:
    """Remove the entries that only the table holds."""
    for key in list(table):
        known = table.get(key)
        if known is not None and is_held_at_most(known, 2):  # by the table and by this function
            table.pop(key, None)
            if not is_held_at_most(known, 1):  # another thread has just fetched it
                table.setdefault(key, known)


def clear_caches() -> None:
    """Drop traces and compiled programs, and free their memory. Running programs and results of `compile` are kept.

    >>> clear_caches()
    """
    for clear in clearers:
        clear()
    gc.collect()  # programs and their parts refer to each other
    _prune(_specs)
    _prune(_interned)
    gc.collect()  # also clears the interpreter's free lists, which would hold memory
