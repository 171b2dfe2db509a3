"""`jit`: trace a function once per types of its arguments, compile it, and reuse the compiled program.

A call looks up (argument tree, static values, placements, context); a hit goes straight to the executable.
Inside other transformations the traced program is bound as one operation. See `docs/how-a-call-works.md`.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from weft._engine import backends
from weft._engine.api.calls.call_cache import (
    CallCache,
    CompiledCall,
    FlatCall,
    FlatFastPath,
    TracedProgram,
    cache_of_function,
    parameters_key,
)
from weft._engine.api.calls.options import (
    DEFAULT_OPTIONS,
    OPTION_NAMES,
    JitOptions,
    StaticValue,
)
from weft._engine.api.execute import (
    place_for,
    place_on_mesh,
    prepare,
    run_ready,
    to_array,
    with_key_reuse_check,
)
from weft._engine.api.flat import argument_names, signature_of
from weft._engine.api.layouts import (
    REPLICATED,
    check_donated_layouts,
    find_common_auto,
    flat_automatic,
    flat_layouts,
    flat_shardings,
)
from weft._engine.api.struct import is_ref_struct
from weft._engine.backends.array_spec import ArraySpec
from weft._engine.backends.base import DispatchCandidate
from weft._engine.backends.xla_flags import check_are_options
from weft._engine.control.call import jit_p
from weft._engine.control.hijax_types import flatten, is_mutable
from weft._engine.control.ref import any_refs, check_returned, trace_with_refs
from weft._engine.core.context import current_context
from weft._engine.core.interpret import evaluate
from weft._engine.core.stage import ClosedOverRefsError, hoist_tracers, is_staged, stage
from weft._engine.core.trace import (
    Tracer,
    allow_open_shardings,
    any_tracers,
    eval_trace,
    trace_state,
    typeof,
)
from weft._engine.hooks import after_calls, after_tracing, hi_types
from weft._engine.ir.explicit import type_sharding
from weft._engine.ir.mesh import AUTO, placement_mesh, spec_mesh, use_default_device
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.placement import reshard
from weft._engine.runtime import transfer_guards
from weft._engine.runtime.array import Array, spec_of
from weft._engine.transforms.key_physicalization import has_keys
from weft._engine.util import tree
from weft._engine.util.config import Override, config
from weft._engine.util.dispatch_state import Dispatching
from weft._engine.util.errors import ShardingTypeError
from weft._engine.util.events import report
from weft._engine.util.lazy import stay_first
from weft._engine.util.record import replace
from weft._engine.util.source import (
    boundary,
    check_callable,
    explain,
    function_module,
    function_name,
    positional_names,
)

if TYPE_CHECKING:
    from weft._engine.api.calls.options import JitArguments

#: common classes of leaves
_COMMON_LEAF_TYPES = frozenset(
    {
        Array,
        float,
        int,
        bool,
        np.ndarray,
        np.float32,
        np.float64,
        np.int32,
        np.int64,
        np.uint32,
        np.bool_,
    }
)
_ARRAYS = frozenset({Array})
#: classes of leaves that native dispatch matches
_NATIVE = _COMMON_LEAF_TYPES | {
    np.float16,
    np.int8,
    np.int16,
    np.uint8,
    np.uint16,
    np.uint64,
}


class _FlatBody:
    """The function on the leaves of its arguments, for one trace; after it has run, `out_tree` is the structure of its results."""

    __slots__ = ("jitted", "call", "out_tree")

    def __init__(self, jitted: JitFunction, call: FlatCall):
        self.jitted, self.call, self.out_tree = jitted, call, None

    def __call__(self, *leaves: Any) -> list:
        jitted, call = self.jitted, self.call
        fun = jitted.fun
        args, kwargs = jitted._rebuild(call.statics, call.in_tree, leaves)
        outs, structure = flatten(fun(*args, **kwargs), f"the result of jit({jitted.name})")
        self.out_tree = structure
        check_returned(fun, "jit", outs)
        for i, out in enumerate(outs):
            check_output(out, "jit", fun, structure, i)
        return jitted._apply_explicit_types(outs, structure)


class JitFunction(Dispatching):
    """A jitted function. Calling it runs the compiled function; `trace`, `lower`, `eval_shape` stop at earlier stages."""

    if TYPE_CHECKING:
        __name__: str
        __qualname__: str

        @functools.cached_property
        def options(self) -> JitOptions: ...

    is_lifted = False  # whether the values of references are arguments
    # the trace of the function before its references were known, if they are lifted
    traced_once: list
    _mesh_of = staticmethod(spec_mesh)  # returns the mesh for PartitionSpecs

    def __init__(self, fun: Callable, options: JitOptions = DEFAULT_OPTIONS):
        options.check_device()
        cache = cache_of_function(fun, parameters_key(*options.values()), CallCache)
        if cache.options is None:
            cache.options = options.for_function(fun)
        self._wrap(fun, cache)
        self.options = cache.options

    def __init_subclass__(cls) -> None:
        if "_call" in cls.__dict__:
            cls.__call__ = cls._call

    def _variant(self, fun: Callable, **changes: Any) -> JitFunction:
        """Return a jitted `fun` with these options and some changes, without device and compiler options."""
        return JitFunction(
            fun, replace(self.options, device=None, compiler_options=None, **changes)
        )

    def _wrap(self, fun: Callable, cache: CallCache) -> None:
        # not a bound method, which would keep this object alive
        Dispatching.__init__(self, type(self)._call, cache.entries)
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.name = function_name(fun)
        self._cache = cache

    _fun = property(lambda self: self.fun, doc="The function itself, under JAX's name for it.")

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name == "__signature__":  # for callers that do not follow `__wrapped__`
            return inspect.signature(self.fun)
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
        )

    def __repr__(self) -> str:
        try:
            return f"<PjitFunction of {self.fun!r}>"
        except Exception:  # the function's own repr fails
            return "<PjitFunction>"

    def __getstate__(self) -> dict:
        """Return the function, its name and its options; the device is represented by the shardings."""
        options = {name: getattr(self.options, name) for name in OPTION_NAMES if name != "device"}
        return {"function_name": self.name, "fun": self.fun, **options}

    def __setstate__(self, state: dict) -> None:
        options = {k: v for k, v in state.items() if k not in ("function_name", "fun")}
        JitFunction.__init__(self, state["fun"], JitOptions(**options))

    # ---- calling
    @boundary
    def _call(self, *args, **kwargs):
        try:
            stay_first()  # the call may import modules
            cache = self._cache
            if cache.expected is not None:
                outs = cache.expected.try_call(args, kwargs)
                if outs is not None:
                    return cache.expected.out_tree.unflatten(outs)
                cache.expected = None
            if config.disable_jit:
                return self.fun(*args, **kwargs)
            if hi_types and _has_high_values(args, kwargs):
                return self._call_with_hi_types(args, kwargs)
            call = self._flatten(args, kwargs)
            if cache.refs or any_refs(call.leaves):
                return _with_refs().call_with_refs(self, call, [])
            try:
                if trace_state.trace is eval_trace and not any_tracers(call.leaves):
                    return self._execute(call)
                return self._bind(call)
            except ClosedOverRefsError as used:
                if self.is_lifted:
                    raise
                return _with_refs().call_with_refs(self, call, used.refs, used)
        except Exception as error:
            better = explain(error, self, args, kwargs)
            if better is error:
                raise
            raise better from error

    __call__ = _call

    def _call_with_hi_types(self, args: tuple, kwargs: dict) -> Any:
        """Call with values of hijax types that cannot enter programs: mutable values, or values that are mapped or differentiated as wholes."""
        if any(map(is_mutable, tree.tree_leaves((args, kwargs)))):
            return _with_refs().call_on_parts(self, args, kwargs)
        return self.fun(*args, **kwargs)

    def _bind(self, call: FlatCall) -> Any:
        """Call inside a transformation: bind the traced program as one operation, or inline it."""
        if self.options.compiler_options and is_staged(trace_state.trace):
            raise ValueError(
                f"jit({self.name}): `compiler_options` can only be passed to the outermost jit, got "
                f"{dict(self.options.compiler_options)} for a function that becomes a part of another program.\n"
                "  Pass them to the jit of that program."
            )
        traced = self._trace(call, call.leaves)
        operands = [*traced.consts, *call.leaves]
        if self.options.inline:
            outs = evaluate(traced.jaxpr, *operands)
            return tree.tree_unflatten(traced.out_tree, outs)
        count = len(traced.consts)
        outs = jit_p.bind(
            *operands,
            jaxpr=traced.with_constraints(),
            name=traced.name,
            in_shardings=(None,) * count + traced.in_shardings,
            out_shardings=traced.out_shardings,
            donated=(False,) * count + traced.donated,
            inline=False,
            keep_unused=self.options.keep_unused,
        )
        return tree.tree_unflatten(traced.out_tree, outs)

    def _execute(self, call: FlatCall) -> Any:
        """Call on values: run the executable for their placements, which is compiled on first use."""
        options, cache = self.options, self._cache
        if options.compiler_options and not config.compiler_options:
            with Override(compiler_options=tuple(sorted(options.compiler_options.items()))):
                return self._execute(call)
        if cache.fast_paths:
            fast_path = cache.fast_path(call.in_tree, call.statics)
            outs = None if fast_path is None else fast_path(*call.leaves)
            if fast_path is not None and outs is not None:
                return tree.tree_unflatten(fast_path.out_tree, outs)
        originals, arrays = self._place(call)
        specs = tuple(map(spec_of, arrays))
        key = (call.in_tree, call.statics, specs, current_context(allows_unspecified=False))
        compiled, ready = cache.calls.get(key), None
        is_first = compiled is None
        if compiled is None:
            traced = self._trace(call, arrays)
            check_donated_layouts(traced, [x.committed for x in arrays])
            executable, ready = prepare(traced.jaxpr, arrays, traced.options(options.backend))
            executable.out_tree = traced.out_tree
            executable.loaded.module = function_module(self.fun)
            compiled = CompiledCall(executable, traced, traced.places_arguments)
            cache.calls[key] = compiled
        executable, traced, places_arguments = compiled
        self._install_fast_path(compiled, call, is_first)
        if ready is None and (places_arguments or traced.jaxpr.consts):
            executable, ready = prepare(traced.jaxpr, arrays, traced.options(options.backend))
        elif ready is None:
            ready = place_for(executable, arrays)
        outs = with_key_reuse_check(
            traced.jaxpr,
            f"jit({traced.name})",
            arrays,
            lambda: run_ready(executable, ready, originals),
        )
        for listener in after_calls:
            listener(self, call, outs)
        return traced.results(outs)

    def _place(self, call: FlatCall) -> tuple[Sequence[Array], Sequence[Array]]:
        """Return the leaves as arrays, and these arrays on the devices of the context or of the option `device`."""
        leaves = call.leaves
        if self.options.in_shardings is None:
            originals = leaves if _ARRAYS.issuperset(map(type, leaves)) else self._arrays(call)
            return originals, place_on_mesh(originals)
        with use_default_device():  # `in_shardings` places them
            originals = self._arrays(call)
        if self.options.device is None:
            return originals, originals
        if placement_mesh() is not None:
            raise ValueError(
                f"jit({self.name}): the argument device of jit contradicts the mesh of the context, on which programs run."
                "\n  Call it outside of the context, or leave the device out."
            )
        return originals, [
            Array(ArraySpec(x.aval, x.sharding, False, x._spec.order), x._live()) for x in originals
        ]

    def _install_fast_path(self, compiled: CompiledCall, call: FlatCall, is_first: bool) -> None:
        """Let the next similar call bypass Python, if the backend supports it."""
        executable, traced, places_arguments = compiled
        leaves = call.leaves
        if (
            places_arguments
            or not traced.fast_path_attempts
            or not _NATIVE.issuperset(map(type, leaves))
        ):
            return
        if (
            after_calls
            or config.no_execution
            or config.debug_key_reuse
            or (transfer_guards.has_guard() and _may_transfer(compiled, leaves))
        ):
            return  # these settings must see every call
        if placement_mesh() is not None and not any(
            type(x) is Array and x.committed for x in leaves
        ):
            return  # the context mesh is not part of the match, and other threads may have another one
        if traced.needs_leaves:
            function = self._cache.fast_paths.setdefault(
                (traced.in_tree, call.statics),
                FlatFastPath(traced.in_tree, call.statics, traced.out_tree),
            )
            if not function.has_results(traced.out_tree):
                return
            native = DispatchCandidate(
                executable, Array, tuple(leaves), {}, (), (), function.flat_tree, is_first
            )
        else:
            function, options = self, self.options
            native = DispatchCandidate(
                executable,
                Array,
                call.args,
                call.kwargs,
                options.static_argnums,
                options.static_argnames,
                traced.out_tree,
                is_first,
            )
        if not executable.loaded.speed_up(function, native):
            traced.fast_path_attempts -= 1

    # ---- arguments
    def _flatten(self, args: tuple, kwargs: dict) -> FlatCall:
        """Split the arguments into static values and leaves."""
        options, where = self.options, f"jit({self.name})"
        if (
            kwargs
            and options.in_shardings is not None
            and options.device is None
            and options.in_shardings is not REPLICATED
        ):
            raise ValueError(
                f"{where}: in_shardings cannot be given for keyword arguments; pass these positionally: "
                f"{sorted(kwargs)}. pjit does not support kwargs when in_shardings is specified."
            )
        if not options.static_argnums and not options.static_argnames:
            leaves, in_tree = flatten((args, kwargs), where)
            return FlatCall(args, kwargs, (), leaves, in_tree)
        n, names = len(args), options.static_argnames
        numbers = {i % n if -n <= i < 0 else i for i in options.static_argnums}
        statics = [(i, StaticValue(x, i, self.fun)) for i, x in enumerate(args) if i in numbers]
        statics += [(k, StaticValue(kwargs[k], k, self.fun)) for k in sorted(kwargs) if k in names]
        dynamic = (
            tuple([x for i, x in enumerate(args) if i not in numbers]),
            {k: v for k, v in kwargs.items() if k not in names},
        )
        leaves, in_tree = flatten(dynamic, where)
        return FlatCall(args, kwargs, (n, tuple(statics)), leaves, in_tree)

    def _rebuild(self, statics: tuple, in_tree: Any, leaves: Sequence) -> tuple[tuple, dict]:
        """Return the arguments from the static values and leaves of `_flatten`."""
        args, kwargs = tree.tree_unflatten(in_tree, leaves)
        if statics:
            n, values = statics
            dynamic = iter(args)
            positions = {i: x.value for i, x in values if isinstance(i, int)}
            args = tuple([positions[i] if i in positions else next(dynamic) for i in range(n)])
            kwargs = {**kwargs, **{k: x.value for k, x in values if isinstance(k, str)}}
        return args, kwargs

    def _arrays(self, call: FlatCall) -> list[Array]:
        return [
            x if type(x) is Array else self._array(x, i, call.in_tree)
            for i, x in enumerate(call.leaves)
        ]

    def _array(self, x: Any, i: int, in_tree: Any) -> Array:
        try:
            return to_array(x)
        except OverflowError as error:
            raise OverflowError(
                f"jit({self.name}): An overflow was met in the argument whose argument path is "
                f"{self._leaf_names(in_tree)[i]}. {error}"
            ) from None
        except TypeError:
            path = self._leaf_names(in_tree)[i]
            raise TypeError(
                f"jit({self.name}): argument {path} of type {type(x)} is not a valid JAX type: {x!r}. Arguments must be "
                "arrays, numbers or containers of them; make it static with static_argnums or static_argnames if "
                "it is a setting."
            ) from None

    def _typeof(self, x: Any, i: int, in_tree: Any) -> ShapedArray:
        if type(x) is ShapedArray:  # the program is only traced or lowered
            return x
        try:
            return typeof(x)
        except TypeError as error:
            if not isinstance(error, ShardingTypeError):
                self._array(x, i, in_tree)
            raise

    def _leaf_names(self, in_tree: Any) -> list[str]:
        try:
            args, kwargs = tree.tree_unflatten(in_tree, range(in_tree.num_leaves))
        except Exception:  # a user-defined pytree node that does not accept numbers as children
            return [f"number {i}" for i in range(in_tree.num_leaves)]
        return argument_names(signature_of(self.fun), args, kwargs, self.options.static_argnums)

    # ---- tracing
    def _trace(self, call: FlatCall, leaves: Sequence) -> TracedProgram:
        """Return the program for the types of `leaves`, which is traced on first use."""
        in_tree = call.in_tree
        avals = tuple([self._typeof(x, i, in_tree) for i, x in enumerate(leaves)])
        key = (in_tree, call.statics, avals, current_context(allows_unspecified=False))
        traced = self._cache.traces.get(key)
        if traced is not None:
            return traced
        start = time.perf_counter()
        self._check_tracing(key)
        names = self._leaf_names(in_tree)
        in_shardings = self._flat_shardings("in_shardings", in_tree, avals, names)
        body = _FlatBody(self, call)
        with allow_open_shardings(False):
            try:
                jaxpr = stage(body, avals, self.name)
            except ClosedOverRefsError as used:
                used.out_tree = body.out_tree
                raise
        is_cacheable = not any_tracers(jaxpr.consts)
        if config.debug_key_reuse and has_keys(jaxpr):
            from weft._engine.api import key_reuse

            key_reuse.signature_of(jaxpr)
        jaxpr, consts = hoist_tracers(jaxpr)
        options, where = self.options, f"jit({self.name})"
        traced = TracedProgram(
            jaxpr,
            consts,
            in_tree,
            body.out_tree,
            in_shardings,
            self._flat_shardings("out_shardings", body.out_tree, jaxpr.out_avals),
            self._donation_mask(call),
            names,
            self.name,
            avals,
            flat_layouts(options.in_shardings, in_tree, f"{where}: in_shardings", names),
            flat_layouts(options.out_shardings, body.out_tree, f"{where}: out_shardings"),
            *self._automatic(in_tree, names, body.out_tree),
        )
        if is_cacheable:
            self._cache.traces[key] = traced
        report(
            "tracing",
            config.log_compiles,
            "Finished tracing %s for jit in %.9f sec",
            self.name,
            time.perf_counter() - start,
        )
        for listener in after_tracing:
            listener(self, call, traced)
        return traced

    def _check_tracing(self, key: tuple) -> None:
        """Raise if settings forbid tracing; explain the cache miss if they request that."""
        backends.get(self.options.backend).check_compiler_options(
            "jit", self.options.compiler_options
        )
        if config.no_tracing:
            raise RuntimeError(
                f"jit({self.name}) would be traced for new types or settings, but config.no_tracing is set."
            )
        if config.explain_cache_misses:
            from weft._engine.api.cache_misses import explain_miss

            explain_miss(self, key)

    def _flat_shardings(
        self, what: str, structure: Any, avals: Sequence, names: Sequence[str] | None = None
    ) -> tuple:
        """Return the option `what`, a prefix tree of shardings, as one entry per leaf."""
        shardings = getattr(self.options, what)
        title = f"jit({self.name}): {what}"
        return flat_shardings(shardings, structure, avals, title, names, mesh_of=self._mesh_of)

    def _automatic(
        self, in_tree: Any, names: Sequence[str], out_tree: Any
    ) -> tuple[AUTO | None, tuple[bool, ...]]:
        """Return the AUTO among the shardings, and for each argument whether its sharding is AUTO."""
        options, where = self.options, f"jit({self.name})"
        ins = flat_automatic(options.in_shardings, in_tree, f"{where}: in_shardings", names)
        outs = flat_automatic(options.out_shardings, out_tree, f"{where}: out_shardings")
        auto = find_common_auto((*ins, *outs), where) if ins or outs else None
        return auto, tuple([s is not None for s in ins])

    def _apply_explicit_types(self, outs: list, structure: Any) -> list:
        """Return the results with the types that explicit `out_shardings` imply."""
        if self.options.out_shardings is None:
            return outs
        shardings = self._flat_shardings("out_shardings", structure, [typeof(x) for x in outs])
        return [
            x
            if s is None or type_sharding(s, typeof(x).ndim) in (None, typeof(x).explicit)
            else reshard(x, s)
            for x, s in zip(outs, shardings)
        ]

    def _donation_mask(self, call: FlatCall) -> tuple[bool, ...]:
        """Return whether each leaf is donated."""
        options = self.options
        if not options.donate_argnums and not options.donate_argnames:
            return (False,) * call.in_tree.num_leaves
        args, kwargs, numbers = call.args, call.kwargs, options.donate_argnums
        dynamic = [
            (i in numbers or i - len(args) in numbers, x)
            for i, x in enumerate(args)
            if i not in options.static_argnums
        ]
        dynamic += [
            (k in options.donate_argnames, kwargs[k])
            for k in sorted(kwargs)
            if k not in options.static_argnames
        ]
        flags: list[bool] = []
        for is_donated, x in dynamic:
            flags += [is_donated] * tree.tree_structure(x).num_leaves
        return tuple(flags)

    # ---- earlier stages
    def trace(self, *args, **kwargs):
        """Trace for these arguments (arrays, ShapeDtypeStructs or types); see `stages.Traced`."""
        from weft._engine.api.stages import Traced

        call = self._flatten(args, kwargs)

        def run(refs: list) -> Traced:
            if not refs and not any_refs(call.leaves) and not any(map(is_ref_struct, call.leaves)):
                return Traced.make(self, self._trace(call, call.leaves), call.leaves)
            inner, (values, named) = _with_refs().on_values(self, refs, call)
            traced = inner.trace([r[...] for r in refs], *values, **named)
            return Traced.make(inner, traced._program, traced._leaves, refs)

        return run([]) if self.is_lifted else trace_with_refs(run, self._cache.refs)

    def lower(self, *args, **kwargs):
        """Trace and lower for these arguments; see `stages.Lowered`."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args, **kwargs):
        """Return the types of the results, without computing them."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Drop all traces and executables."""
        self._cache.clear()

    _clear_cache = clear_cache

    def _cache_size(self) -> int:
        return len(self._cache.calls)


def _with_refs() -> ModuleType:
    """Import the module of calls with references, which most programs do not need."""
    from weft._engine.api.calls import with_refs

    return with_refs


def _has_high_values(args: tuple, kwargs: dict) -> bool:
    """Return whether an argument has values of hijax types that are mutable, or mapped or differentiated as wholes."""
    leaves = tree.tree_leaves((args, kwargs))
    return any(is_mutable(x) or (isinstance(x, Tracer) and x.aval.is_high) for x in leaves)


def _may_transfer(compiled: CompiledCall, leaves: Sequence) -> bool:
    """Return whether a call transfers values from the host, or from devices other than the program's."""
    executable = compiled.executable
    specs = (
        executable.out_specs[:1] * len(leaves)
        or executable.in_specs[len(executable.const_inputs) :]
    )
    return any(
        type(x) is not Array or x.sharding.device_assignment != s.sharding.device_assignment
        for x, s in zip(leaves, specs)
    )


class EagerJit(JitFunction):
    """A public function of arrays: on values it is compiled as a whole, inside a trace it is inlined."""

    is_public = True

    def __init__(self, fun: Callable, arrays: Sequence[int | str]):
        self._wrap(fun, CallCache())
        self.arrays = tuple(arrays)

    @functools.cached_property
    def options(self) -> JitOptions:
        """The options: all arguments but the arrays are static. Computed at the first call, because there are hundreds of such functions."""
        signature = inspect.signature(self.fun)
        parameters, positional = signature.parameters.values(), positional_names(signature)
        dynamic = {positional[a] if isinstance(a, int) else a for a in self.arrays}
        numbers = tuple([i for i, name in enumerate(positional) if name not in dynamic])
        by_name = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        names = tuple([p.name for p in by_name if p.name not in dynamic])
        return JitOptions(
            static_argnums=numbers, static_argnames=names, donate_argnums=(), donate_argnames=()
        )

    def __repr__(self) -> str:
        return f"<function {self.__module__}.{self.name}>"

    def __reduce__(self) -> tuple | str:
        public = getattr(sys.modules.get(self.__module__), self.__qualname__, None)
        return self.__qualname__ if public is self else (type(self), (self.fun, self.arrays))

    def _bind_keywords(self, kwargs: dict) -> dict:
        """Return the keywords to pass to the function itself."""
        return kwargs

    @boundary
    def _call(self, *args, **kwargs):
        try:
            if kwargs:
                kwargs = self._bind_keywords(kwargs)
            if (
                trace_state.trace is not eval_trace
                or trace_state.allows_unspecified
                or config.disable_jit
                or config.debug_nans
                or config.debug_infs
            ):
                return self.fun(*args, **kwargs)
            try:
                call = self._flatten(args, kwargs)
            except ValueError:  # an unhashable setting
                return self.fun(*args, **kwargs)
            if _EAGER.issuperset(map(type, call.leaves)):
                return self._execute(call)
            return self.fun(*args, **kwargs)
        except Exception as error:
            better = explain(error, self, args, kwargs)
            if better is error:
                raise
            raise better from error


_EAGER = _COMMON_LEAF_TYPES | {complex}


def eager_jit(fun: Callable, arrays: Sequence[int | str] = (0,)) -> EagerJit:
    """Return `fun` as a FaceFunction whose arguments at the positions or names `arrays` are arrays; the others are settings."""
    return EagerJit(fun, arrays)


def check_output(out, api: str, fun: Callable, structure, i: int) -> None:
    """Raise TypeError if result number `i` of `fun` is not a valid value of a program."""
    try:
        typeof(out)
    except TypeError:
        path = tree.keystr(
            tree.tree_flatten_with_path(
                tree.tree_unflatten(structure, range(structure.num_leaves))
            )[0][i][0]
        )
        at = f" component {path}" if path else ""
        code = getattr(fun, "__code__", None)
        place = "" if code is None else f" at {code.co_filename}:{code.co_firstlineno}"
        raise TypeError(
            f"function {function_name(fun)}{place} traced for {api} returned a value of type {type(out)} at output{at}, "
            "which is not a valid JAX "
            "type: "
            "it is neither an array nor a number."
        ) from None


@overload
def jit(fun: Callable, /, **arguments: Unpack[JitArguments]) -> JitFunction: ...
@overload
def jit(
    fun: None = None, /, **arguments: Unpack[JitArguments]
) -> Callable[[Callable], JitFunction]: ...
def jit(
    fun: Callable | None = None,
    /,
    *,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    abstracted_axes: Any = None,
    compiler_options: dict | None = None,
) -> JitFunction | Callable[[Callable], JitFunction]:
    """Compile `fun` for the types and layouts of its arguments, once for each combination that it is called with.

    Static arguments are compile-time constants (hashable; part of the cache key). Donated arguments pass their memory to the
    results and must not be used again. `in_shardings`/`out_shardings` are prefix trees of shardings; without them layouts
    follow the data. `compiler_options` are XLA's; they are checked when the function is compiled, and have no effect on the CPU.
    Raises ValueError for static arguments that are not hashable, and for `compiler_options` of a function that becomes a part of another
    program; TypeError for results that are not arrays.

    >>> @weft.jit
    ... def f(x): return x * 2 + 1
    >>> float(f(3.0))
    7.0
    """
    check_are_options("jit", compiler_options)
    if abstracted_axes is not None:
        raise NotImplementedError("jit: abstracted_axes is not supported yet.")
    options = JitOptions(
        in_shardings,
        out_shardings,
        static_argnums,
        static_argnames,
        donate_argnums,
        donate_argnames,
        keep_unused,
        device,
        backend,
        inline,
        compiler_options,
    )
    return (lambda f: _jit(f, options)) if fun is None else _jit(fun, options)


def _jit(fun: Callable, options: JitOptions) -> JitFunction:
    check_callable("jit", fun)
    if isinstance(fun, staticmethod):
        raise TypeError(
            f"jit: staticmethod arguments are not supported, got {fun}. Put @staticmethod before @jit."
        )
    if inspect.isgeneratorfunction(fun):
        raise TypeError(
            f"jit: Expected a function, got a generator function: {fun}, which cannot be traced."
        )
    return JitFunction(fun, options)
