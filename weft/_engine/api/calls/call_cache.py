"""What is remembered of a compiled function: one cache with two levels, and native entries in front of it.

In:   a function and jit's options, from which `of_function` finds the cache.
Out:  `CallCache.traces`, a program per types of arguments and context; `CallCache.calls`, an executable per placement of arguments
      and context. `entries` and `FlatFastPath` are what native code looks up before Python runs.
Laws: a cache lives as long as its function. Clearing it loses nothing but time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft._engine.api.calls.options import JitOptions
from weft._engine.api.calls.traced_program import CompiledCall, TracedProgram
from weft._engine.util import tree
from weft._engine.util.state import Dispatching, clearing, forget_entries, guard, new_entries


class FlatCall(NamedTuple):
    """The arguments of one call, and taken apart: static values, and the leaves of the others with their structure."""

    args: tuple
    kwargs: dict
    statics: tuple
    leaves: Sequence
    in_tree: Any


class FlatFastPath(Dispatching):
    """A function with arguments of one structure, as a function of their leaves, which native code runs.

    It returns the leaves of the results, or None for leaves that native code does not know. Python takes the arguments apart with code
    that is written for their structure: the structure is not determined, hashed or looked up (`docs/design/0002`).
    """

    def __init__(self, in_tree: Any, statics: tuple, out_tree: Any):
        super().__init__(_unknown)
        self.in_tree, self.statics, self.out_tree = in_tree, statics, out_tree
        self.flat_tree = tree.tree_structure([0] * out_tree.num_leaves)

    def has_results(self, out_tree: Any) -> bool:
        """Return whether its results have this structure; structures whose static data cannot be compared must be one object."""
        try:
            return out_tree == self.out_tree
        except ValueError:
            return False

    def try_call(self, args: tuple, kwargs: dict) -> list | None:
        """Return the results' leaves; None for arguments of another structure, and under settings that must see every call."""
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
    """Return the arguments without the static ones, or None if these are others than `statics`."""
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
        except Exception:  # it cannot be compared: its key says so
            return None
    return tuple(positional), named


def _unknown(_: FlatFastPath, *leaves: Any) -> None:
    return None


class CallCache:
    """What a function was traced and compiled to, under one set of options.

    traces        (argument structure, static values, types, context) -> the traced program
    calls         (argument structure, static values, placements, context) -> the executable
    entries       the calls that native code knows
    fast_paths    (argument structure, static values) -> the function of leaves that native code runs
    expected      the fast path of the last calls, which is tried before the structure is determined
    options       the options, completed by the function's signature
    refs          references to mutable arrays that the function closes over
    threaded      functions of the values of references, by the references
    """

    __slots__ = (
        "traces",
        "calls",
        "entries",
        "fast_paths",
        "expected",
        "options",
        "refs",
        "threaded",
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
        self.threaded: dict = {}
        self._last: FlatFastPath | None = None
        _caches.add(weakref.ref(self, _caches.discard))

    def clear(self) -> None:
        """Forget all of it."""
        self.traces.clear()
        self.calls.clear()
        self.refs.clear()
        self.threaded.clear()
        forget_entries(*self.entries)
        for fast_path in list(self.fast_paths.values()):  # a copy: other threads add to it
            forget_entries(fast_path._head, fast_path._entries)
        self.fast_paths.clear()
        self._last = self.expected = None

    def fast_path(self, in_tree: Any, statics: tuple) -> FlatFastPath | None:
        """Return the fast path for arguments of a structure. The one of two calls in succession is expected of the next call."""
        fast_path = self.fast_paths.get((in_tree, statics))
        self.expected = fast_path if fast_path is self._last else None
        self._last = fast_path
        return fast_path


#: a set that is copied at once: other threads may add to it, which the iterator of a WeakSet does not allow
_caches: set[weakref.ref[CallCache]] = set()
#: identity of a function -> a reference to it, and what jit and other transformations remember of it
_of_functions: dict[int, tuple[weakref.ref, dict]] = {}
#: limit of the table: what is remembered of a function may refer to it, and then nothing else frees it
_MOST_FUNCTIONS = 4096


def of_function(fun: Callable, key: Any, make: Callable[[], Any]) -> Any:
    """Return the result of `make`, which is called once for a function and a key, while the function lives.

    It is called each time for functions or keys without a hash or weak references.
    """
    try:
        entry = _of_functions.get(id(fun))
        if entry is None or entry[0]() is not fun:
            number = id(fun)
            # the table is bound: at the interpreter's exit, the module's names are gone before the function is
            entry = (
                weakref.ref(fun, lambda _, functions=_of_functions: functions.pop(number, None)),
                {},
            )
            while len(_of_functions) >= _MOST_FUNCTIONS:
                oldest = next(iter(list(_of_functions)))  # of a copy: other threads add to it
                _of_functions.pop(oldest, None)
            _of_functions[number] = entry
        known = entry[1].get(key)
        return entry[1].setdefault(key, make()) if known is None else known
    except TypeError:
        return make()


def parameters_key(*parameters: Any) -> tuple:
    """Return parameters as a key: equal ones, of equal types, have equal keys."""
    leaves, structure = tree.tree_flatten(parameters, is_leaf=lambda x: x is None)
    return structure, tuple([(type(x), x) for x in leaves])


@clearing
def _clear_all() -> None:
    for cache in [ref() for ref in list(_caches)]:
        if cache is not None:
            cache.clear()
