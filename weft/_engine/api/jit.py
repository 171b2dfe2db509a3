"""`jit`: trace a function once per kind of arguments, compile it, and call the result ever after.

A call looks up (argument tree, static values, argument specs, tracing flags); a hit goes straight to the executable.
Inside other transformations the traced program is bound as one operation.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft._engine import backends
from weft._engine.api.execute import arranged, on_mesh, prepare, run_ready, to_array, tracked
from weft._engine.api.flat import OfLeaves, argument_names, checked_argnames, signature_of
from weft._engine.api.layouts import (
    REPLICATED,
    check_constrained,
    check_donated_layouts,
    flat_layouts,
    flat_shardings,
)
from weft._engine.api.struct import stands_for_ref
from weft._engine.backends.array_spec import ArraySpec
from weft._engine.backends.base import Call, Device
from weft._engine.backends.formats import Layout
from weft._engine.backends.xla_flags import check_are_options
from weft._engine.control.call import jit_p
from weft._engine.control.hitypes import flatten, is_mutable, on_copies, put_back, taken_apart
from weft._engine.control.ref import (
    Threaded,
    any_refs,
    check_aliases,
    check_returned,
    is_ref,
    retried,
)
from weft._engine.core.interpret import evaluate
from weft._engine.core.stage import UsesRefs, hoist_tracers, is_staged, stage
from weft._engine.core.trace import (
    Tracer,
    _state,
    any_tracers,
    eval_trace,
    lenient,
    typeof,
)
from weft._engine.hooks import hi_types
from weft._engine.ir.explicit import type_sharding
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.mesh import current_mesh, device_mesh, spec_mesh, unplaced
from weft._engine.ir.program_mesh import is_abstract
from weft._engine.ir.shardings import Sharding, SingleDeviceSharding
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.placement import layout_constraint, reshard, sharding_constraint
from weft._engine.runtime import transfers
from weft._engine.runtime.array import Array, spec_of
from weft._engine.runtime.executable import Executable
from weft._engine.transforms.physical import has_keys
from weft._engine.util import tree
from weft._engine.util.config import Override, config
from weft._engine.util.dtypes import float0
from weft._engine.util.errors import ShardingTypeError
from weft._engine.util.events import report
from weft._engine.util.lazy import stay_first
from weft._engine.util.source import (
    api_boundary,
    check_callable,
    function_module,
    function_name,
    hide_caller,
    warn_user,
)
from weft._engine.util.state import Dispatching, clearing, forget_entries, new_entries


class Statics:
    """Which arguments are static or donated, resolved between positions and names."""

    def __init__(
        self, fun: Callable, static_argnums, static_argnames, donate_argnums, donate_argnames
    ):
        self.signature, self.name = signature_of(fun), function_name(fun)
        self.static_argnums, self.static_argnames = self._resolve(
            static_argnums, static_argnames, "static"
        )
        self.donate_argnums, self.donate_argnames = self._resolve(
            donate_argnums, donate_argnames, "donate"
        )
        clash = set(self.static_argnums) & set(self.donate_argnums) | set(
            self.static_argnames
        ) & set(self.donate_argnames)
        if clash:
            raise ValueError(
                f"jit: static_argnames and donate_argnames cannot intersect, nor the numbers: {sorted(map(str, clash))} "
                "are both static and donated."
            )

    def _resolve(self, nums, names, what: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
        nums_given, names_given = nums is not None, names is not None
        nums = (nums,) if isinstance(nums, int) else tuple(nums) if nums_given else ()
        names = checked_argnames(names, "jit", f"{what}_argnames") if names_given else ()
        for n in nums:
            if not isinstance(n, int):
                raise TypeError(f"jit: {what}_argnums must be integers, got {n!r}.")
        if self.signature is None:
            if names and not nums_given:
                raise ValueError(
                    f"jit: Getting the signature of function {self.name} failed. Pass {what}_argnums instead of "
                    f"{what}_argnames, or both."
                )
            return nums, names
        parameters = self.signature.parameters
        positional = [
            p.name
            for p in parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        variadic = any(p.kind == p.VAR_POSITIONAL for p in parameters.values())
        keywords = any(p.kind == p.VAR_KEYWORD for p in parameters.values())
        for n in names:
            if n in parameters and parameters[n].kind in (
                inspect.Parameter.POSITIONAL_ONLY,
                inspect.Parameter.VAR_POSITIONAL,
                inspect.Parameter.VAR_KEYWORD,
            ):
                raise ValueError(
                    f"jit got invalid argnames {n!r} in {what}_argnames: this parameter cannot be passed by name."
                )
            if n not in parameters and not keywords:
                raise ValueError(
                    f"jit got invalid argnames {n!r} in {what}_argnames: the function takes {tuple(parameters)}."
                )
        for n in nums:
            if not variadic and not -len(positional) <= n < len(positional):
                raise ValueError(
                    f"jit got invalid argnum {n} in {what}_argnums: the function takes {len(positional)} positional "
                    "arguments."
                )
        if not variadic:
            nums = tuple(n % len(positional) if positional else n for n in nums)
        if nums_given and not names_given:
            names = tuple(
                positional[n]
                for n in nums
                if 0 <= n < len(positional)
                and parameters[positional[n]].kind == inspect.Parameter.POSITIONAL_OR_KEYWORD
            )
        elif names_given and not nums_given:
            nums = tuple(positional.index(n) for n in names if n in positional)
        return nums, names


class _Static:
    """A static argument in a cache key; errors name the argument."""

    __slots__ = ("value", "_hash")

    def __init__(self, value, key: int | str, function: JitFunction):
        try:
            self._hash = hash((type(value), value))
        except TypeError:
            name = (
                key
                if isinstance(key, str)
                else argument_names(function.statics.signature, range(key + 1), {})[key]
            )
            raise ValueError(
                f"jit({function.name}): Non-hashable static arguments are not supported: {name} of type {type(value)} is "
                f"{value!r}, "
                "which is not hashable. Static arguments are part of the cache key; pass a tuple instead of a list, or "
                "do not make it "
                "static."
            ) from None
        self.value = value

    def __hash__(self):
        return self._hash

    def __eq__(self, other):
        if type(self.value) is not type(other.value):
            return False
        try:
            return self.value == other.value
        except Exception as error:
            raise ValueError(
                f"jit: static arguments should be comparable using __eq__, which failed for values of type "
                f"{type(self.value)}: {type(error).__name__}: {error}"
            ) from error


#: leaves of calls of compiled functions and of functions on arrays alike
_USUAL = frozenset(
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
_NATIVE = _USUAL | {
    np.float16,
    np.int8,
    np.int16,
    np.uint8,
    np.uint16,
    np.uint64,
}  # leaves that native dispatch knows


class TracedProgram:
    """One trace of a jitted function: its program, and the structure of its arguments and results."""

    __slots__ = (
        "jaxpr",
        "consts",
        "in_tree",
        "out_tree",
        "in_shardings",
        "out_shardings",
        "donated",
        "arg_names",
        "name",
        "in_avals",
        "fast_path_attempts",
        "empty",
        "by_leaves",
        "in_layouts",
        "out_layouts",
    )

    def __init__(
        self,
        jaxpr: Jaxpr,
        consts: list,
        in_tree,
        out_tree,
        in_shardings,
        out_shardings,
        donated,
        arg_names,
        name,
        in_avals,
        in_layouts: tuple = (),
        out_layouts: tuple = (),
    ):
        self.in_layouts, self.out_layouts = (
            in_layouts,
            out_layouts,
        )  # empty where no format says one
        self.jaxpr, self.consts, self.in_tree, self.out_tree = jaxpr, consts, in_tree, out_tree
        self.in_shardings, self.out_shardings, self.donated = in_shardings, out_shardings, donated
        self.arg_names, self.name, self.in_avals = arg_names, name, in_avals
        #: results of no bytes, the tangents of integers: they are NumPy's, as no array has such a dtype
        self.empty = [i for i, a in enumerate(jaxpr.out_avals) if a.dtype == float0]
        self.fast_path_attempts = (
            0 if self.empty else 16
        )  # how often the backend may still try to make calls bypass Python
        #: whether Python has to flatten the arguments or build the results
        self.by_leaves = not (in_tree.is_builtin() and out_tree.is_builtin())

    def prepared(
        self, arrays: Sequence[Array], backend: str | None
    ) -> tuple[Executable, list[Array]]:
        """Its executable for these arguments, and the arguments as it wants them."""
        donated = [i for i, d in enumerate(self.donated) if d]
        return prepare(
            self.jaxpr,
            arrays,
            self.in_shardings,
            self.out_shardings,
            donated,
            f"jit({self.name})",
            self.arg_names,
            backend,
            self.in_layouts,
            self.out_layouts,
        )

    def results(self, outs: list) -> Any:
        """What the function gives, of the results of its program."""
        for i in self.empty:
            outs[i] = np.zeros(outs[i].shape, float0)
        return tree.tree_unflatten(self.out_tree, outs)


def _constrained(traced: TracedProgram) -> Jaxpr:
    """The program with its shardings as constraints, so that they stay with its values when the call is transformed or inlined."""
    n_consts = len(traced.consts)
    ins = tuple(map(_as_constraint, traced.in_shardings, traced.jaxpr.in_avals[n_consts:]))
    outs = tuple(map(_as_constraint, traced.out_shardings, traced.jaxpr.out_avals))
    layouts = traced.out_layouts
    if not any((*ins, *outs)) and not any(isinstance(layout, Layout) for layout in layouts):
        return traced.jaxpr
    place = lambda xs, wanted: [
        x if s is None else sharding_constraint(x, s) for x, s in zip(xs, wanted)
    ]
    store = lambda x, layout: (
        layout_constraint(x, layout.major_to_minor) if isinstance(layout, Layout) else x
    )

    def flat_fun(*xs):
        results = place(evaluate(traced.jaxpr, *xs[:n_consts], *place(xs[n_consts:], ins)), outs)
        return list(map(store, results, layouts)) if layouts else results

    return traced.jaxpr.memo(
        ("constrained", ins, outs, layouts),
        lambda: stage(flat_fun, traced.jaxpr.in_avals, traced.name),
    )


def _as_constraint(sharding: Sharding | None, aval: ShapedArray) -> Sharding | None:
    """What of a sharding remains to be said of a value inside of a program: nothing if its type says it."""
    spread = (
        sharding is not None
        and aval.explicit is None
        and not is_abstract(sharding)
        and len(sharding.device_assignment) > 1
    )
    return sharding if spread else None


class _Known:
    """What a function was traced and compiled to, under one set of jit's parameters."""

    __slots__ = (
        "programs",
        "calls",
        "entries",
        "of_leaves",
        "last",
        "expected",
        "statics",
        "refs",
        "threaded",
        "__weakref__",
    )

    def __init__(self) -> None:
        self.programs: dict = {}
        self.calls: dict = {}
        self.entries = new_entries()
        self.of_leaves: dict[Any, OfLeaves] = {}  # by the structure of the arguments
        self.last: OfLeaves | None = None  # that of the last call
        self.expected: OfLeaves | None = (
            None  # that of the last calls: it is tried before the structure is determined
        )
        self.statics: Statics | None = None
        self.refs: list = []  # references to mutable arrays that the function closes over
        self.threaded: dict = {}  # the function with its references threaded through, by which they are
        _all_known.add(weakref.ref(self, _all_known.discard))

    def clear(self) -> None:
        """Forget all of it."""
        self.programs.clear()
        self.calls.clear()
        self.refs.clear()
        self.threaded.clear()
        forget_entries(*self.entries)
        for quick in list(self.of_leaves.values()):  # a copy: other threads add to it
            forget_entries(quick._head, quick._entries)
        self.of_leaves.clear()
        self.last = self.expected = None

    def of_structure(self, in_tree, statics) -> OfLeaves | None:
        """The function of leaves for arguments of a structure. One that is asked for again and again is what the next call will want."""
        quick = self.of_leaves.get((in_tree, statics))
        self.expected = quick if quick is self.last else None
        self.last = quick
        return quick


#: a set that is copied at once: other threads may add to it, which the iterator of a WeakSet does not allow
_all_known: set[weakref.ref[_Known]] = set()
#: function, by its identity -> a reference to it, and what is kept for it by jit and its kin
_of_functions: dict[int, tuple[weakref.ref, dict]] = {}
_MOST_FUNCTIONS = (
    4096  # what is kept for a function may refer to it, and then nothing else lets it go
)


def of_function(fun: Callable, key: Any, make: Callable[[], Any]) -> Any:
    """What `make` gives, once for a function and a key, as long as that function lives; each time if they cannot be recognized."""
    try:
        found = _of_functions.get(id(fun))
        if found is None or found[0]() is not fun:
            number = id(fun)
            # the table is bound: at the interpreter's exit, the module's names are gone before the function is
            found = (
                weakref.ref(fun, lambda _, functions=_of_functions: functions.pop(number, None)),
                {},
            )
            while len(_of_functions) >= _MOST_FUNCTIONS:
                _of_functions.pop(
                    next(iter(list(_of_functions))), None
                )  # of a copy: other threads add to it
            _of_functions[number] = found
        known = found[1].get(key)
        return found[1].setdefault(key, make()) if known is None else known
    except TypeError:
        return make()


def parameters_key(*parameters: Any) -> tuple:
    """Parameters as a key: equal ones, of equal types, have equal keys."""
    leaves, structure = tree.tree_flatten(parameters, is_leaf=lambda x: x is None)
    return structure, tuple([(type(x), x) for x in leaves])


@clearing
def _forget() -> None:
    for known in [ref() for ref in list(_all_known)]:
        if known is not None:
            known.clear()


class JitFunction(Dispatching):
    """What `jit` returns. Calling it runs the compiled function; `trace`, `lower`, `eval_shape` stop at earlier stages."""

    def __init__(
        self,
        fun: Callable,
        *,
        in_shardings=None,
        out_shardings=None,
        static_argnums=None,
        static_argnames=None,
        donate_argnums=None,
        donate_argnames=None,
        keep_unused=False,
        device=None,
        backend=None,
        inline=False,
        compiler_options=None,
    ):
        _check_device(device, backend, in_shardings, out_shardings)
        for what, given in (("in_shardings", in_shardings), ("out_shardings", out_shardings)):
            if given is not None:
                check_constrained(given, f"jit({function_name(fun)}): {what}")
        numbers = static_argnums, static_argnames, donate_argnums, donate_argnames
        settings = (
            in_shardings,
            out_shardings,
            numbers,
            keep_unused,
            device,
            backend,
            inline,
            compiler_options,
        )
        known = of_function(fun, parameters_key(*settings), _Known)
        self._wrap(fun, known)
        self.statics = known.statics = known.statics or Statics(
            fun, static_argnums, static_argnames, donate_argnums, donate_argnames
        )
        self.moves = device is not None  # arguments, wherever they are
        if device is not None:
            in_shardings = out_shardings = SingleDeviceSharding(device)
        self.in_shardings, self.out_shardings = in_shardings, out_shardings
        self.keep_unused, self.inline, self.backend, self.compiler_options = (
            keep_unused,
            inline,
            backend,
            compiler_options,
        )

    in_shardings = out_shardings = backend = compiler_options = None
    keep_unused = inline = is_threaded = moves = False
    _mesh_of = staticmethod(spec_mesh)  # what gives the mesh over which specs are read

    def _wrap(self, fun: Callable, known: _Known) -> None:
        Dispatching.__init__(
            self, type(self)._call, known.entries
        )  # not a bound method, which would keep this object alive
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.name = function_name(fun)
        self._known, self._programs, self._calls = known, known.programs, known.calls

    _fun = property(lambda self: self.fun, doc="The function itself, under JAX's name for it.")

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name == "__signature__":  # for those who ask for it without following `__wrapped__`
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
        """What describes the function: itself, its name and its settings."""
        s = self.statics
        return {
            "function_name": self.name,
            "fun": self.fun,
            "static_argnums": s.static_argnums,
            "static_argnames": s.static_argnames,
            "donate_argnums": s.donate_argnums,
            "donate_argnames": s.donate_argnames,
            "in_shardings": self.in_shardings,
            "out_shardings": self.out_shardings,
            "keep_unused": self.keep_unused,
            "inline": self.inline,
            "backend": self.backend,
            "compiler_options": self.compiler_options,
        }

    def __setstate__(self, state: dict) -> None:
        settings = {k: v for k, v in state.items() if k not in ("function_name", "fun")}
        JitFunction.__init__(self, state["fun"], **settings)

    # ---- calling
    def __call__(self, *args, **kwargs):
        try:
            return self._call(*args, **kwargs)
        except Exception as error:
            hide_caller(error)  # this frame: `_call` saw to those below
            raise

    @api_boundary
    def _call(self, *args, **kwargs):
        stay_first()  # the call may import modules
        expected = self._known.expected
        if expected is not None:
            outs = expected.of(args, kwargs)
            if outs is not None:
                return expected.out_tree.unflatten(outs)
            self._known.expected = None
        if config.disable_jit:
            return self.fun(*args, **kwargs)
        if hi_types and any(
            type(x) in hi_types and is_mutable(x) for x in tree.tree_leaves((args, kwargs))
        ):
            return self._with_mutable(args, kwargs)
        if hi_types and any(
            isinstance(x, Tracer) and x.aval.is_high for x in tree.tree_leaves((args, kwargs))
        ):
            return self.fun(
                *args, **kwargs
            )  # values that are mapped or differentiated as wholes do not enter programs
        statics, leaves, in_tree = self._flatten(args, kwargs)
        if self._known.refs or any_refs(leaves):
            return self._with_refs([], args, kwargs, statics, leaves, in_tree)
        try:
            if _state.trace is eval_trace and not any_tracers(leaves):
                return self._execute(args, kwargs, statics, leaves, in_tree)
            if self.compiler_options and is_staged(_state.trace):
                raise ValueError(
                    f"jit({self.name}): `compiler_options` can only be passed to the outermost jit, got "
                    f"{dict(self.compiler_options)} for a function that becomes a part of another program.\n"
                    "  Give them to the jit of that program."
                )
            traced = self._trace(args, kwargs, statics, leaves, in_tree)
        except UsesRefs as used:
            if self.is_threaded:
                raise
            return self._with_refs(used.refs, args, kwargs, statics, leaves, in_tree, used)
        if self.inline:
            return tree.tree_unflatten(
                traced.out_tree, evaluate(traced.jaxpr, *traced.consts, *leaves)
            )
        outs = jit_p.bind(
            *traced.consts,
            *leaves,
            jaxpr=_constrained(traced),
            name=traced.name,
            in_shardings=(None,) * len(traced.consts) + traced.in_shardings,
            out_shardings=traced.out_shardings,
            donated=(False,) * len(traced.consts) + traced.donated,
            inline=False,
            keep_unused=self.keep_unused,
        )
        return tree.tree_unflatten(traced.out_tree, outs)

    def _with_mutable(self, args, kwargs):
        """A call with mutable values of hi types among the arguments: a call of a function of the arrays that they consist of."""
        inner = self._known.threaded.get("mutable")
        if inner is None:

            def on_arrays(*args, **kwargs):
                return on_copies(self.fun, args, kwargs)

            functools.update_wrapper(on_arrays, self.fun)
            s = self.statics
            inner = self._known.threaded["mutable"] = JitFunction(
                on_arrays,
                in_shardings=self.in_shardings,
                out_shardings=None if self.out_shardings is None else (self.out_shardings, None),
                static_argnums=s.static_argnums,
                static_argnames=s.static_argnames,
                donate_argnums=s.donate_argnums,
                donate_argnames=s.donate_argnames,
                keep_unused=self.keep_unused,
                backend=self.backend,
                inline=self.inline,
            )
        (args, kwargs), values = taken_apart((args, kwargs))
        out, found = inner(*args, **kwargs)
        put_back(values, found)
        return out

    def _with_refs(self, refs, args, kwargs, statics, leaves, in_tree, used=None):
        """A call with references to mutable arrays among the arguments or closed over: a call of a function of their values. Inside of
        other transformations it is inlined, so that references keep what belongs to these."""
        names = self._leaf_names(in_tree)
        passed = [(x, names[i]) for i, x in enumerate(leaves) if is_ref(x)]
        check_aliases(self.fun, "jit", [r for r, _ in passed], [name for _, name in passed])
        if _state.trace is not eval_trace or any_tracers(leaves):
            if used is not None and used.out_tree is not None:  # it was traced once
                outs = evaluate(used.program, *[r[...] for r in refs], *leaves)
                for r, value in zip(refs, outs[len(outs) - len(refs) :]):
                    r._write(value)
                return tree.tree_unflatten(used.out_tree, outs[: len(outs) - len(refs)])
            out = self.fun(*args, **kwargs)
            check_returned(self.fun, "jit", tree.tree_leaves(out))
            return out

        def run(known: list) -> tuple:
            inner, given = self._on_values(known, statics, leaves, in_tree)
            if (
                used is not None
                and used.out_tree is not None
                and not passed
                and [*map(id, known)] == [*map(id, used.refs)]
            ):
                inner.traced_once[:] = [used]
            return [*known], inner([r[...] for r in known], *given[0], **given[1])

        closed = self._known.refs
        new = [r for r in refs if not any(r is k for k in closed)]
        closed[:], (out, state, lent) = retried(
            run,
            [*closed, *new],
            [r for r, _ in passed],
            self.fun,
            "jit",
            [name for _, name in passed],
        )
        for r, value in zip([*closed, *(r for r, _ in passed)], [*state, *lent]):
            r._write(value)
        return out

    def _on_values(self, refs: list, statics, leaves, in_tree) -> tuple["JitFunction", tuple]:
        """The function of values, of the references `refs` first, and the arguments with values for references."""
        at = tuple([i for i, x in enumerate(leaves) if is_ref(x) or stands_for_ref(x)])
        values = [
            x[...] if is_ref(x) else x.update(is_ref=False) if stands_for_ref(x) else x
            for x in leaves
        ]
        return self._threaded(refs, at, self._leaf_names(in_tree)), self._rebuild(
            statics, in_tree, values
        )

    def _threaded(self, refs: list, positions: tuple, names: list[str]) -> "JitFunction":
        """The function of values, with references again for the leaves at `positions`."""
        key = tuple(map(id, refs)), positions
        found = self._known.threaded.get(key)
        if found is not None:
            return found

        traced_once: list = []  # what was traced of the function before it was known to use references

        def on_values(values, *args, **kwargs):
            statics, leaves, in_tree = self._flatten(args, kwargs)

            def fun(*leaves):
                call_args, call_kwargs = self._rebuild(statics, in_tree, leaves)
                return self.fun(*call_args, **call_kwargs)

            first = traced_once.pop() if traced_once else None
            return Threaded(
                functools.update_wrapper(fun, self.fun), "jit", refs, positions, names, first
            ).call(values, leaves)

        functools.update_wrapper(on_values, self.fun)
        del on_values.__wrapped__  # its signature is another
        s = self.statics
        shift = lambda nums: tuple([n + 1 if n >= 0 else n for n in nums])
        in_shardings, out_shardings = self.in_shardings, self.out_shardings
        if in_shardings is not None:
            in_shardings = (
                (None, *in_shardings) if isinstance(in_shardings, (tuple, list)) else in_shardings
            )
        found = JitFunction(
            on_values,
            in_shardings=in_shardings,
            out_shardings=None if out_shardings is None else (out_shardings, None, None),
            static_argnums=shift(s.static_argnums),
            static_argnames=s.static_argnames,
            donate_argnums=shift(s.donate_argnums),
            donate_argnames=s.donate_argnames,
            keep_unused=self.keep_unused,
            backend=self.backend,
            inline=self.inline,
        )
        found.is_threaded, found.traced_once = True, traced_once
        self._known.threaded[key] = found
        return found

    def _execute(self, args, kwargs, statics, leaves, in_tree):
        if self.compiler_options and not config.compiler_options:
            with Override(compiler_options=tuple(sorted(self.compiler_options.items()))):
                return self._execute(args, kwargs, statics, leaves, in_tree)
        if self._known.of_leaves:
            quick = self._known.of_structure(in_tree, statics)
            outs = None if quick is None else quick(*leaves)
            if outs is not None:
                return tree.tree_unflatten(quick.out_tree, outs)
        if self.in_shardings is None:
            given = leaves
            if not _ARRAYS.issuperset(map(type, leaves)):
                given = [
                    x if type(x) is Array else self._array(x, i, in_tree)
                    for i, x in enumerate(leaves)
                ]
            arrays = on_mesh(given)
        else:
            with unplaced():  # `in_shardings` says where they go
                given = arrays = [
                    x if type(x) is Array else self._array(x, i, in_tree)
                    for i, x in enumerate(leaves)
                ]
        if self.moves:
            if device_mesh() is not None:
                raise ValueError(
                    f"jit({self.name}): the argument device of jit contradicts the mesh of the context, on which programs run."
                    "\n  Call it outside of the context, or leave the device out."
                )
            arrays = [
                Array(ArraySpec(x.aval, x.sharding, False, x._spec.order), x._live())
                for x in arrays
            ]
        key = (
            in_tree,
            statics,
            tuple(map(spec_of, arrays)),
            config.trace_key(),
            current_mesh(),
            self._mesh_of(),
            device_mesh(),
        )
        call = self._calls.get(key)
        if call is None:
            traced = self._trace(args, kwargs, statics, arrays, in_tree)
            check_donated_layouts(traced, [x.committed for x in arrays])
            executable, ready = traced.prepared(arrays, self.backend)
            executable.out_tree, executable.loaded.module = (
                traced.out_tree,
                function_module(self.fun),
            )
            placed = any(s is not None for s in traced.in_shardings)
            self._calls[key] = (executable, traced, placed)
            self._speed_up(executable, args, kwargs, statics, leaves, traced, placed, True)
            outs = tracked(
                traced.jaxpr,
                f"jit({traced.name})",
                arrays,
                lambda: run_ready(executable, ready, given),
            )
            return traced.results(outs)
        executable, traced, placed = call
        self._speed_up(executable, args, kwargs, statics, leaves, traced, placed, False)
        if placed or traced.jaxpr.consts:
            executable, ready = traced.prepared(arrays, self.backend)
        else:
            ready = arranged(executable, arrays)
        outs = tracked(
            traced.jaxpr, f"jit({traced.name})", arrays, lambda: run_ready(executable, ready, given)
        )
        return traced.results(outs)

    def _speed_up(
        self, executable, args, kwargs, statics, leaves, traced, placed, is_first: bool
    ) -> None:
        """Let the next call like this one bypass Python, if the backend can."""
        if (
            config.no_execution
            or config.debug_key_reuse
            or (transfers.guarded() and self._may_move(executable, leaves))
        ):
            return  # settings that must see every call
        if device_mesh() is not None and not any(type(x) is Array and x.committed for x in leaves):
            return  # other threads may have set another mesh, or none
        if not placed and traced.fast_path_attempts and _NATIVE.issuperset(map(type, leaves)):
            function, given = self, self.statics
            call = Call(
                executable,
                Array,
                args,
                kwargs,
                given.static_argnums,
                given.static_argnames,
                traced.out_tree,
                is_first,
            )
            if traced.by_leaves:
                function = self._known.of_leaves.setdefault(
                    (traced.in_tree, statics), OfLeaves(traced.in_tree, statics, traced.out_tree)
                )
                if not function.gives(traced.out_tree):
                    return
                call = Call(
                    executable, Array, tuple(leaves), {}, (), (), function.flat_tree, is_first
                )
            if not executable.loaded.speed_up(function, call):
                traced.fast_path_attempts -= 1

    def _may_move(self, executable, leaves) -> bool:
        """Whether a call transfers values: of the host, or of other devices than those of the program."""
        specs = (
            executable.out_specs[:1] * len(leaves)
            or executable.in_specs[len(executable.const_inputs) :]
        )
        return any(
            type(x) is not Array or x.sharding.device_assignment != s.sharding.device_assignment
            for x, s in zip(leaves, specs)
        )

    def _array(self, x, i: int, in_tree):
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

    def _leaf_names(self, in_tree) -> list[str]:
        try:
            args, kwargs = tree.tree_unflatten(in_tree, range(in_tree.num_leaves))
        except Exception:  # a node of the user's type that wants other children than numbers
            return [f"number {i}" for i in range(in_tree.num_leaves)]
        return argument_names(self.statics.signature, args, kwargs, self.statics.static_argnums)

    # ---- tracing
    def _flatten(self, args, kwargs):
        s = self.statics
        if (
            kwargs
            and self.in_shardings is not None
            and not self.moves
            and self.in_shardings is not REPLICATED
        ):
            raise ValueError(
                f"jit({self.name}): in_shardings cannot be given for keyword arguments; pass these positionally: "
                f"{sorted(kwargs)}. pjit does not support kwargs when in_shardings is specified."
            )
        if not s.static_argnums and not s.static_argnames:
            leaves, in_tree = flatten((args, kwargs), f"jit({self.name})")
            return (), leaves, in_tree
        n = len(args)
        nums = {i % n if -n <= i < 0 else i for i in s.static_argnums}
        found = [(i, _Static(x, i, self)) for i, x in enumerate(args) if i in nums]
        found += [
            (k, _Static(kwargs[k], k, self)) for k in sorted(kwargs) if k in s.static_argnames
        ]
        dynamic = (
            tuple(x for i, x in enumerate(args) if i not in nums),
            {k: v for k, v in kwargs.items() if k not in s.static_argnames},
        )
        leaves, in_tree = flatten(dynamic, f"jit({self.name})")
        return (n, tuple(found)), leaves, in_tree

    def _rebuild(self, statics, in_tree, leaves):
        args, kwargs = tree.tree_unflatten(in_tree, leaves)
        if statics:
            n, found = statics
            given = iter(args)
            positions = {i: x.value for i, x in found if isinstance(i, int)}
            args = tuple(positions[i] if i in positions else next(given) for i in range(n))
            kwargs = {**kwargs, **{k: x.value for k, x in found if isinstance(k, str)}}
        return args, kwargs

    def _trace(self, args, kwargs, statics, leaves, in_tree) -> TracedProgram:
        avals = tuple([self._typeof(x, i, in_tree) for i, x in enumerate(leaves)])
        key = (
            in_tree,
            statics,
            avals,
            config.trace_key(),
            current_mesh(),
            _state.axis_env,
            self._mesh_of(),
        )
        found = self._programs.get(key)
        if found is not None:
            return found
        backends.get(self.backend).check_compiler_options("jit", self.compiler_options)
        start = time.perf_counter()
        if config.no_tracing:
            raise RuntimeError(
                f"jit({self.name}) would be traced for new types or settings, but config.no_tracing is set."
            )
        if config.explain_cache_misses:
            from weft._engine.api.cache_misses import explain_miss

            explain_miss(self, key)
        out_tree: list = []
        names = self._leaf_names(in_tree)
        in_shardings = flat_shardings(
            self.in_shardings,
            in_tree,
            avals,
            f"jit({self.name}): in_shardings",
            names,
            mesh_of=self._mesh_of,
        )

        def flat_fun(*xs):
            call_args, call_kwargs = self._rebuild(statics, in_tree, xs)
            outs, structure = flatten(
                self.fun(*call_args, **call_kwargs), f"the result of jit({self.name})"
            )
            out_tree[:] = [structure]
            check_returned(self.fun, "jit", outs)
            for i, out in enumerate(outs):
                check_output(out, "jit", self.fun, structure, i)
            return self._typed_results(outs, structure)

        with lenient(False):
            try:
                jaxpr = stage(flat_fun, avals, self.name)
            except UsesRefs as used:
                used.out_tree = out_tree[0] if out_tree else None
                raise
        cacheable = not any_tracers(jaxpr.consts)
        if config.debug_key_reuse and has_keys(jaxpr):
            from weft._engine.api.key_reuse import signature_of

            signature_of(jaxpr)
        jaxpr, consts = hoist_tracers(jaxpr)
        n_out = len(jaxpr.outvars)
        traced = TracedProgram(
            jaxpr,
            consts,
            in_tree,
            out_tree[0],
            in_shardings,
            flat_shardings(
                self.out_shardings,
                out_tree[0],
                jaxpr.out_avals,
                f"jit({self.name}): out_shardings",
                mesh_of=self._mesh_of,
            ),
            self._donated(args, kwargs, in_tree),
            names,
            self.name,
            avals,
            flat_layouts(self.in_shardings, in_tree, f"jit({self.name}): in_shardings", names),
            flat_layouts(self.out_shardings, out_tree[0], f"jit({self.name}): out_shardings"),
        )
        assert len(traced.out_shardings) == n_out
        if cacheable:
            self._programs[key] = traced
        report(
            "tracing",
            config.log_compiles,
            "Finished tracing %s for jit in %.9f sec",
            self.name,
            time.perf_counter() - start,
        )
        return traced

    def _typed_results(self, outs, structure) -> list:
        """Results with the types that explicit `out_shardings` say."""
        if self.out_shardings is None:
            return outs
        avals = [typeof(x) for x in outs]
        wanted = flat_shardings(
            self.out_shardings,
            structure,
            avals,
            f"jit({self.name}): out_shardings",
            mesh_of=self._mesh_of,
        )
        return [
            x
            if s is None or type_sharding(s, typeof(x).ndim) in (None, typeof(x).explicit)
            else reshard(x, s)
            for x, s in zip(outs, wanted)
        ]

    def _typeof(self, x, i, in_tree):
        if type(x) is ShapedArray:  # of a program that is only traced or lowered
            return x
        try:
            return typeof(x)
        except TypeError as error:
            if not isinstance(error, ShardingTypeError):
                self._array(x, i, in_tree)
            raise

    def _donated(self, args, kwargs, in_tree) -> tuple[bool, ...]:
        s = self.statics
        if not s.donate_argnums and not s.donate_argnames:
            return (False,) * in_tree.num_leaves
        static = set(s.static_argnums)
        flags: list[bool] = []
        for i, x in enumerate(args):
            if i not in static:
                flags += [
                    i in s.donate_argnums or i - len(args) in s.donate_argnums
                ] * tree.tree_structure(x).num_leaves
        for k in sorted(kwargs):
            if k not in s.static_argnames:
                flags += [k in s.donate_argnames] * tree.tree_structure(kwargs[k]).num_leaves
        return tuple(flags)

    # ---- earlier stages
    def trace(self, *args, **kwargs):
        """Trace for these arguments (arrays, ShapeDtypeStructs or types); see `stages.Traced`."""
        from weft._engine.api.stages import Traced

        statics, leaves, in_tree = self._flatten(args, kwargs)

        def run(refs: list) -> Traced:
            if not refs and not any_refs(leaves) and not any(map(stands_for_ref, leaves)):
                return Traced.make(
                    self, self._trace(args, kwargs, statics, leaves, in_tree), leaves
                )
            inner, given = self._on_values(refs, statics, leaves, in_tree)
            traced = inner.trace([r[...] for r in refs], *given[0], **given[1])
            return Traced.make(inner, traced._program, traced._leaves, refs)

        return run([]) if self.is_threaded else retried(run, self._known.refs)

    def lower(self, *args, **kwargs):
        """Trace and lower for these arguments; see `stages.Lowered`."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args, **kwargs):
        """Types of the results, without computing them."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Forget all traces and executables."""
        self._known.clear()

    _clear_cache = clear_cache

    def _cache_size(self) -> int:
        return len(self._calls)


class FaceFunction(JitFunction):
    """A public function of arrays: called on values it is compiled as a whole, inside a trace it is inlined."""

    is_public = True

    def __init__(self, fun: Callable, arrays: Sequence[int | str]):
        self._wrap(fun, _Known())
        self.arrays = tuple(arrays)

    @functools.cached_property
    def statics(self) -> Statics:
        """All arguments but the arrays are static. Found at the first call: there are hundreds of these functions."""
        parameters = list(inspect.signature(self.fun).parameters.values())
        positional = [
            p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        dynamic = {positional[a].name if isinstance(a, int) else a for a in self.arrays}
        nums = tuple(i for i, p in enumerate(positional) if p.name not in dynamic)
        names = tuple(
            p.name
            for p in parameters
            if p.name not in dynamic and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        )
        return Statics(self.fun, nums, names, None, None)

    def __repr__(self) -> str:
        return f"<function {self.__module__}.{self.name}>"

    def __reduce__(self) -> tuple | str:
        public = getattr(sys.modules.get(self.__module__), self.__qualname__, None)
        return self.__qualname__ if public is self else (type(self), (self.fun, self.arrays))

    @api_boundary
    def _call(self, *args, **kwargs):
        if (
            config.disable_jit
            or config.debug_nans
            or config.debug_infs
            or _state.trace is not eval_trace
            or _state.lenient
        ):
            return self.fun(*args, **kwargs)
        try:
            statics, leaves, in_tree = self._flatten(args, kwargs)
        except ValueError:  # a setting that cannot be hashed
            return self.fun(*args, **kwargs)
        if any(type(x) not in _EAGER for x in leaves):
            return self.fun(*args, **kwargs)
        return self._execute(args, kwargs, statics, leaves, in_tree)


_EAGER = _USUAL | {complex}


def face(fun: Callable, arrays: Sequence[int | str] = (0,)) -> FaceFunction:
    """`fun` as a FaceFunction whose arguments at positions (or of names) `arrays` are arrays, the others settings."""
    return FaceFunction(fun, arrays)


def _check_device(
    device: Device | None, backend: str | None, in_shardings: Any, out_shardings: Any
) -> None:
    """Refuse the deprecated argument `device` along with what it contradicts, and an unknown `backend`."""
    if backend is not None:
        backends.get(backend)
    if device is None:
        return
    warn_user(
        "jit: the argument device is deprecated. Put the arguments where you want them with "
        "weft.device_put(x, device) instead.",
        DeprecationWarning,
    )
    if not isinstance(device, Device):
        raise TypeError(
            f"jit: device must be a Device, got {device!r}. in_shardings and out_shardings take shardings."
        )
    if backend is not None:
        raise ValueError(
            "jit: can't specify both a device and a backend for jit; the device tells the backend."
        )
    for what, given in (("in_shardings", in_shardings), ("out_shardings", out_shardings)):
        if given is not None:
            raise ValueError(
                f"jit: if a device is specified on jit, then {what} should not be specified: shardings say the devices. "
                "Leave the device out."
            )


def check_output(out, api: str, fun: Callable, structure, i: int) -> None:
    """TypeError if result number `i` of `fun` is no value of a program."""
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
):
    """Compile `fun` for the types and layouts of its arguments, once for each kind it is called with.

    Static arguments are compile-time constants (hashable; part of the cache key). Donated ones give their memory to the
    results and must not be used again. `in_shardings`/`out_shardings` are prefix trees of shardings; without them layouts
    follow the data. `compiler_options` are XLA's; they are checked when the function is compiled, and have no effect.
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
    options = {
        "in_shardings": in_shardings,
        "out_shardings": out_shardings,
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "keep_unused": keep_unused,
        "device": device,
        "backend": backend,
        "inline": inline,
        "compiler_options": compiler_options,
    }
    if fun is None:
        return lambda f: jit(f, **options)
    check_callable("jit", fun)
    if isinstance(fun, staticmethod):
        raise TypeError(
            f"jit: staticmethod arguments are not supported, got {fun}. Put @staticmethod before @jit."
        )
    if inspect.isgeneratorfunction(fun):
        raise TypeError(
            f"jit: Expected a function, got a generator function: {fun}, which cannot be traced."
        )
    return JitFunction(fun, **options)
