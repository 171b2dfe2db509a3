"""The cache of a compiled function: one cache with two levels, preceded by native entries.

In:   a function and jit's options, from which `cache_of_function` locates the cache.
Out:  `CallCache.traces`, a `TracedProgram` per types of arguments and context; `CallCache.calls`, an executable per placement of
      arguments and context. Native code searches `entries` and `FlatFastPath` before Python runs.
Laws: a cache lives as long as its function. Clearing it costs only time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft._engine.api.calls.build import ProgramOptions
from weft._engine.api.calls.options import JitOptions
from weft._engine.backends.formats import Layout
from weft._engine.core.interpret import evaluate
from weft._engine.core.stage import stage
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.mesh import AUTO
from weft._engine.ir.program_mesh import is_abstract
from weft._engine.ir.shardings import Sharding
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.placement import layout_constraint, sharding_constraint
from weft._engine.runtime.executable import Executable
from weft._engine.util import tree
from weft._engine.util.dispatch_state import (
    Dispatching,
    forget_entries,
    guard,
    new_entries,
    on_clear_caches,
)
from weft._engine.util.dtypes import float0
from weft._engine.util.record import record


@record(frozen=False, eq=False)
class TracedProgram:
    """One trace of a jitted function: its program, and the structure of its arguments and results.

    in_layouts, out_layouts   empty if no format specifies one
    automatic                 the AUTO among the shardings, or None
    is_automatic              for each argument, whether its sharding is automatic; empty if none is
    empty                     numbers of float0 results, tangents of integers: they are NumPy arrays, as no array has that dtype
    fast_path_attempts        remaining attempts of the backend to bypass Python in calls
    needs_leaves              whether Python must flatten the arguments or build the results
    """

    jaxpr: Jaxpr
    consts: list
    in_tree: Any
    out_tree: Any
    in_shardings: tuple[Sharding | None, ...]
    out_shardings: tuple[Sharding | None, ...]
    donated: tuple[bool, ...]
    arg_names: Sequence[str]
    name: str
    in_avals: Sequence[ShapedArray]
    in_layouts: tuple = ()
    out_layouts: tuple = ()
    automatic: AUTO | None = None
    is_automatic: tuple[bool, ...] = ()
    empty: Sequence[int] = ()
    fast_path_attempts: int = 16
    needs_leaves: bool = False

    def __post_init__(self) -> None:
        self.empty = [i for i, a in enumerate(self.jaxpr.out_avals) if a.dtype == float0]
        if self.empty:
            self.fast_path_attempts = 0
        self.needs_leaves = not (self.in_tree.is_builtin() and self.out_tree.is_builtin())

    @property
    def places_arguments(self) -> bool:
        """Whether `in_shardings` specifies the sharding of an argument."""
        return any(s is not None for s in self.in_shardings)

    def options(self, backend: str | None) -> ProgramOptions:
        """Return the options for `prepare`."""
        return ProgramOptions(
            f"jit({self.name})",
            self.arg_names,
            self.in_shardings,
            self.out_shardings,
            [i for i, is_donated in enumerate(self.donated) if is_donated],
            backend,
            self.in_layouts,
            self.out_layouts,
            self.automatic,
            self.is_automatic,
        )

    def results(self, outs: list) -> Any:
        """Return the function's tree of results from the arrays of its program."""
        for i in self.empty:
            outs[i] = np.zeros(outs[i].shape, float0)
        return tree.tree_unflatten(self.out_tree, outs)

    def with_constraints(self) -> Jaxpr:
        """Return the program with its shardings as constraints, which remain when the call is transformed or inlined."""
        count = len(self.consts)
        ins = tuple(map(_as_constraint, self.in_shardings, self.jaxpr.in_avals[count:]))
        outs = tuple(map(_as_constraint, self.out_shardings, self.jaxpr.out_avals))
        layouts = self.out_layouts
        if not any((*ins, *outs)) and not any(isinstance(layout, Layout) for layout in layouts):
            return self.jaxpr

        def flat_fun(*xs):
            results = evaluate(self.jaxpr, *xs[:count], *_constrain(xs[count:], ins))
            results = _constrain(results, outs)
            return list(map(_store, results, layouts)) if layouts else results

        return self.jaxpr.memo(
            ("constrained", ins, outs, layouts),
            lambda: stage(flat_fun, self.jaxpr.in_avals, self.name),
        )


class CompiledCall(NamedTuple):
    """An executable for arguments of one placement."""

    executable: Executable
    traced: TracedProgram
    places_arguments: bool


def _as_constraint(sharding: Sharding | None, aval: ShapedArray) -> Sharding | None:
    """Return the constraint to add inside the program; None if the type implies it."""
    if sharding is None or aval.explicit is not None or is_abstract(sharding):
        return None
    return sharding if len(sharding.device_assignment) > 1 else None


def _constrain(xs: Sequence, shardings: Sequence[Sharding | None]) -> list:
    return [x if s is None else sharding_constraint(x, s) for x, s in zip(xs, shardings)]


def _store(x: Any, layout: Any) -> Any:
    return layout_constraint(x, layout.major_to_minor) if isinstance(layout, Layout) else x


class FlatCall(NamedTuple):
    """The arguments of one call, also split into static values, and the leaves of the others with their structure."""

    args: tuple
    kwargs: dict
    statics: tuple
    leaves: Sequence
    in_tree: Any


class FlatFastPath(Dispatching):
    """A function with arguments of one structure, as a function of their leaves, which native code runs.

    It returns the leaves of the results, or None for leaves that native code does not match. Python flattens the arguments with code
    specialized to their structure: the structure is not determined, hashed or looked up (`docs/design/0002`).
    """

    def __init__(self, in_tree: Any, statics: tuple, out_tree: Any):
        super().__init__(_unknown)
        self.in_tree, self.statics, self.out_tree = in_tree, statics, out_tree
        self.flat_tree = tree.tree_structure([0] * out_tree.num_leaves)

    def has_results(self, out_tree: Any) -> bool:
        """Return whether its results have this structure; structures with incomparable static data must be identical."""
        try:
            return out_tree == self.out_tree
        except ValueError:
            return False

    def try_call(self, args: tuple, kwargs: dict) -> list | None:
        """Return the leaves of the results; None for arguments of another structure, and under settings that act on every call."""
        if guard[0]:
            return None
        if self.statics:
            dynamic = _without_statics(args, kwargs, self.statics)
            if dynamic is None:
                return None
            args, kwargs = dynamic
        leaves = self.in_tree.match((args, kwargs))
        return None if leaves is None else self(*leaves)

    def __call__(self, *leaves: Any) -> list | None:
        return None


def _without_statics(args: tuple, kwargs: dict, statics: tuple) -> tuple[tuple, dict] | None:
    """Return the arguments without the static ones, or None if these differ from `statics`."""
    n, expected = statics
    if len(args) != n:
        return None
    positional, named = list(args), kwargs
    for key, static in reversed(expected):  # names first, then positions from the last
        if type(key) is int:
            x = positional.pop(key)
        else:
            named = {**kwargs} if named is kwargs else named
            x = named.pop(key, static)
        try:
            if x is not static.value and not (type(x) is type(static.value) and x == static.value):
                return None
        except Exception:  # not comparable; the cache key raises the error
            return None
    return tuple(positional), named


def _unknown(_: FlatFastPath, *leaves: Any) -> None:
    return None


class CallCache:
    """The traces and executables of a function, under one set of options.

    traces        (argument structure, static values, types, context) -> the traced program
    calls         (argument structure, static values, placements, context) -> the executable
    entries       the entries of native dispatch
    fast_paths    (argument structure, static values) -> the function of leaves that native code runs
    expected      the fast path of the last two calls, which is tried before the structure is determined
    options       the options, completed by the function's signature
    refs          references to mutable arrays that the function closes over
    lifted        functions of the values of references, by the references
    """

    __slots__ = (
        "traces",
        "calls",
        "entries",
        "fast_paths",
        "expected",
        "options",
        "refs",
        "lifted",
        "_last",
        "__weakref__",
    )

    def __init__(self) -> None:
        self.traces: dict[tuple, TracedProgram] = {}
        self.calls: dict[tuple, CompiledCall] = {}
        self.entries = new_entries()
        self.fast_paths: dict[Any, FlatFastPath] = {}
        self.expected: FlatFastPath | None = None
        self.options: JitOptions | None = None
        self.refs: list = []
        self.lifted: dict = {}
        self._last: FlatFastPath | None = None
        _caches.add(weakref.ref(self, _caches.discard))

    def clear(self) -> None:
        """Clear all levels."""
        self.traces.clear()
        self.calls.clear()
        self.refs.clear()
        self.lifted.clear()
        forget_entries(*self.entries)
        for fast_path in list(self.fast_paths.values()):  # a copy: other threads add to it
            forget_entries(fast_path._head, fast_path._entries)
        self.fast_paths.clear()
        self._last = self.expected = None

    def fast_path(self, in_tree: Any, statics: tuple) -> FlatFastPath | None:
        """Return the fast path for arguments of a structure. After two successive uses it is expected for the next call."""
        fast_path = self.fast_paths.get((in_tree, statics))
        self.expected = fast_path if fast_path is self._last else None
        self._last = fast_path
        return fast_path


#: a plain set, because copying it is atomic: other threads may add to it, which the iterator of a WeakSet does not allow
_caches: set[weakref.ref[CallCache]] = set()
#: id of a function -> a weak reference to it, and the caches of jit and other transformations by key
_of_functions: dict[int, tuple[weakref.ref, dict]] = {}
#: limit of the table: a cache may refer to its function, and then only eviction frees it
_MAX_FUNCTIONS = 4096


def cache_of_function(fun: Callable, key: Any, make: Callable[[], Any]) -> Any:
    """Return the result of `make`, which is called once per function and key while the function is alive.

    It is called each time for functions or keys without a hash or weak references.
    """
    try:
        entry = _of_functions.get(id(fun))
        if entry is None or entry[0]() is not fun:
            number = id(fun)
            # the table is bound as a default, because module globals may be gone when the function is freed at exit
            entry = (
                weakref.ref(fun, lambda _, functions=_of_functions: functions.pop(number, None)),
                {},
            )
            while len(_of_functions) >= _MAX_FUNCTIONS:
                oldest = next(iter(list(_of_functions)))  # a copy, because other threads add to it
                _of_functions.pop(oldest, None)
            _of_functions[number] = entry
        known = entry[1].get(key)
        return entry[1].setdefault(key, make()) if known is None else known
    except TypeError:
        return make()


def parameters_key(*parameters: Any) -> tuple:
    """Return parameters as a key: keys are equal if the parameters and their types are."""
    leaves, structure = tree.tree_flatten(parameters, is_leaf=lambda x: x is None)
    return structure, tuple([(type(x), x) for x in leaves])


@on_clear_caches
def _clear_all() -> None:
    for cache in [ref() for ref in list(_caches)]:
        if cache is not None:
            cache.clear()
