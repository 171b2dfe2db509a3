"""Dispatch of compiled functions without Python: cache entries that native code matches.

In:   a call that took the Python path but did not need to: only builtin containers, every leaf an array in the program's layout, a
      number, or a NumPy array that is copied; static arguments are identical objects.
Out:  an entry in the list of the function (`util.dispatch_state.Dispatching`), which native code searches at each call.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.backends.array_spec import ArraySpec
from weft._engine.backends.cpu import buffer
from weft._engine.codegen.runtime import dispatch, heap, pool, queue
from weft._engine.codegen.toolchain.native_library import start_compiling
from weft._engine.cpython import layouts
from weft._engine.hooks import PENDING_BUFFER_TYPES
from weft._engine.util import tree
from weft._engine.util.config import config
from weft._engine.util.dispatch_state import Dispatching, guard
from weft._engine.util.user_code_suspension import suspended

if TYPE_CHECKING:
    from weft._engine.backends.base import DispatchCandidate
    from weft._engine.codegen.runtime.dispatch import Dispatcher, DispatchOffsets

# thresholds, measured on several machines
#: maximum bytes of a NumPy array that one thread copies as a part of the call
_NUMPY_ARGUMENT_BYTES = 1 << 19


_ARRAY, _TUPLE, _LIST, _DICT, _NONE, _F32, _F64, _I32, _I64, _SAME, _BOOL, _NUMPY, _NUMPY_NUMBER = (
    range(13)
)
#: (type of a Python number, dtype of the program) -> code of the conversion in native code
_NUMBERS = {
    (float, np.dtype("float32")): _F32,
    (float, np.dtype("float64")): _F64,
    (int, np.dtype("int32")): _I32,
    (int, np.dtype("int64")): _I64,
    (bool, np.dtype("bool")): _BOOL,
}
#: native conversions of NumPy values; 64-bit dtypes are truncated when x64 is disabled
_CONVERSIONS = {
    (np.dtype(wide), np.dtype(narrow)): conversion
    for wide, narrow, conversion in (
        ("float64", "float32", 1),
        ("complex128", "complex64", 1),
        ("int64", "int32", 2),
        ("uint64", "uint32", 2),
    )
}
_MOST_ENTRIES = 256


def add_native_dispatch(function: Dispatching, loaded: Any, call: DispatchCandidate) -> bool:
    """Let later calls like this one use native dispatch, if possible; return True if a later attempt may succeed."""
    if call.is_first and not can_dispatch(type(function)):
        return True  # retry at the second call
    add_entry(function, loaded, call)
    return type(function) not in _dispatchers


class _UnmatchableError(Exception):
    """A value that native code cannot match."""


class _MatchProgram:
    """The encoded match program of an argument tree, and the objects that it refers to."""

    def __init__(self, array_type: type):
        self.array_type = array_type
        self.words: list[int] = []
        self.objects: list = []
        self.leaves: list = []

    def tree(self, x, specs: Sequence[ArraySpec] | None) -> None:
        """Append the words of tree `x`; leaves are checked against `specs`, in order, if given."""
        kind = type(x)
        if kind is tuple or kind is list:
            self.words += [_TUPLE if kind is tuple else _LIST, len(x)]
            for v in x:
                self.tree(v, specs)
        elif kind is dict:
            try:
                order = sorted(x)
            except TypeError:
                raise _UnmatchableError from None
            model = dict.fromkeys(order) if specs is None else None
            self.objects += [model, *order]
            self.words += [_DICT, len(x), 0 if model is None else id(model), *map(id, order)]
            for k in order:
                self.tree(x[k], specs)
        elif x is None:
            self.words.append(_NONE)
        else:
            self.words += (
                [_ARRAY] if specs is None else self._leaf_words(x, specs[len(self.leaves)])
            )
            self.leaves.append(x)

    def _leaf_words(self, x, spec: ArraySpec) -> list[int]:
        if type(x) is self.array_type:
            if x._spec is spec:
                return [_ARRAY]
            raise _UnmatchableError
        if type(x) is np.ndarray or isinstance(x, np.generic):
            return self._numpy_words(x, spec)
        code = _NUMBERS.get((type(x), spec.aval.dtype))
        if code is None or spec.aval.ndim:
            raise _UnmatchableError
        return [code]

    def _numpy_words(self, x: np.ndarray | np.generic, spec: ArraySpec) -> list[int]:
        """Return the words of a NumPy array or number whose fields native code can read; raise _UnmatchableError otherwise."""
        dtype, aval = x.dtype, spec.aval
        conversion = 0 if dtype == aval.dtype else _CONVERSIONS.get((dtype, aval.dtype))
        is_plain = (
            spec.is_row_major
            and spec.stored is spec
            and (spec.storage_dtype, spec.storage_bytes) == (aval.dtype, aval.nbytes)
        )
        if conversion is None or not is_plain or not 0 < aval.nbytes <= _NUMPY_ARGUMENT_BYTES:
            raise _UnmatchableError
        if isinstance(x, np.generic):
            if not layouts.has_plain_value(x):
                raise _UnmatchableError
            return [_NUMPY_NUMBER, id(type(x)), conversion]
        if not layouts.has_plain_fields(x):
            raise _UnmatchableError
        self.objects.append(dtype)
        return [_NUMPY, id(np.ndarray), id(dtype), aval.nbytes, conversion, x.ndim, *x.shape]

    def match_identity(self, x) -> None:
        """Append a static argument, which matches only the identical object."""
        self.words += [_SAME, id(x)]
        self.objects.append(x)


class _DispatchEntry:
    """The words of one entry, and the objects that they refer to. Native code holds it while it runs the program."""

    def __init__(
        self,
        loaded: Any,
        call: DispatchCandidate,
        names: Sequence[str],
        ins: _MatchProgram,
        outs: _MatchProgram,
        next_address: int | None,
    ):
        executable, plan = call.executable, loaded.plan
        n_const = len(executable.const_inputs)
        in_specs = executable.in_specs[n_const:]
        aliases = [
            loaded.aliases.get(i, n_const - 1) - n_const for i in range(len(executable.out_specs))
        ]
        donated = [d - n_const for d in executable.donated]
        by_name = sorted(range(len(names)), key=names.__getitem__)
        pointers = lambda xs: (ctypes.c_void_p * max(1, len(xs)))(*xs)
        words = lambda xs: (ctypes.c_int64 * max(1, len(xs)))(*xs)
        const_buffers = [a._live() for a in executable.const_inputs]
        parts = [
            words(ins.words),
            pointers([id(s) for s in in_specs]),
            pointers([b.ptr for b in const_buffers]),
            pointers([id(s) for s in executable.out_specs]),
            words(plan.result_bytes),
            words(outs.words),
            pointers([c.ptr for c in loaded.consts]),
            words(by_name),
            pointers([id(n) for n in names]),
            words(aliases),
            words(donated),
        ]
        native = loaded.native
        self.raise_error = native.host.reraise
        self.alive = [
            executable,
            native,
            in_specs,
            names,
            ins.objects,
            outs.objects,
            const_buffers,
            parts,
        ]
        at = [ctypes.addressof(p) for p in parts]
        self.words = words(
            [
                next_address or 0,
                len(call.args),
                at[0],
                at[1],
                native.entry,
                n_const,
                at[2],
                len(in_specs),
                len(executable.out_specs),
                at[3],
                at[4],
                at[5],
                len(loaded.consts),
                at[6],
                plan.arena_bytes,
                guard[1],
                _kind(loaded),
                id(self),
                len(names),
                at[7],
                at[8],
                at[9],
                len(donated),
                at[10],
                sum([n for i, n in enumerate(plan.result_bytes) if i not in loaded.aliases]),
            ]
        )
        assert len(self.words) == dispatch.ENTRY_WORDS
        self.address = ctypes.addressof(self.words)
        if native.draft is not None:
            loaded.followers.append(functools.partial(self.words.__setitem__, dispatch.ENTRY_CODE))
            if loaded.native is not native:  # it was replaced in the meantime
                self.words[dispatch.ENTRY_CODE] = loaded.native.entry

    def __call__(self) -> None:
        self.raise_error()


def _kind(loaded: Any) -> int:
    """Return word 16 of an entry: flags for long, queued and effectful programs."""
    kind = int(loaded.is_long) | (8 if loaded.has_effects else 0)
    may_queue = config.cpu_enable_async_dispatch and pool.futex()
    return kind | (6 if loaded.is_queued else 4) if may_queue else kind


def add_entry(jitted: Dispatching, loaded: Any, call: DispatchCandidate) -> None:
    """Add an entry for later calls like this one, if native code can match them."""
    executable = call.executable
    if executable.check_results is not None or executable.verifier is not None:
        return  # every call must be checked in Python
    if guard[0] or not install(type(jitted), call.array_type, wait=False):
        return
    if loaded.native.draft is not None and not loaded.native.draft.was_called:
        return  # Python must count the second call
    try:
        ins, outs = _words_of(call)
    except (_UnmatchableError, IndexError):
        return
    names = tuple(map(sys.intern, call.kwargs))
    specs = executable.in_specs[len(executable.const_inputs) :]
    key = (len(call.args), names, tuple(ins.words), tuple(id(s) for s in specs), guard[1])
    with suspended, pool.making:
        if key in jitted._entries or len(jitted._entries) >= _MOST_ENTRIES:
            return
        entry = jitted._entries[key] = _DispatchEntry(
            loaded, call, names, ins, outs, jitted._head[0]
        )
        jitted._head[0] = entry.address


def _words_of(call: DispatchCandidate) -> tuple[_MatchProgram, _MatchProgram]:
    """Return the match programs of the argument and the result trees. Raises _UnmatchableError or IndexError."""
    executable, args, kwargs = call.executable, call.args, call.kwargs
    n_const = len(executable.const_inputs)
    specs = executable.in_specs[n_const:]
    ins, outs = _MatchProgram(call.array_type), _MatchProgram(call.array_type)
    for i, x in enumerate(args):
        is_static = i in call.static_nums or i - len(args) in call.static_nums
        ins.match_identity(x) if is_static else ins.tree(x, specs)
    for name in sorted(kwargs):
        ins.match_identity(kwargs[name]) if name in call.static_names else ins.tree(
            kwargs[name], specs
        )
    outs.tree(tree.tree_unflatten(call.out_tree, [_ResultLeaf] * call.out_tree.num_leaves), None)
    if len(ins.leaves) != len(specs) or len(outs.leaves) != len(executable.out_specs):
        raise _UnmatchableError  # a registered pytree node hides leaves
    if any(type(ins.leaves[d - n_const]) is not call.array_type for d in executable.donated):
        raise _UnmatchableError  # only arrays can be donated
    return ins, outs


class _ResultLeaf:
    """A placeholder for an array in a result tree."""


_dispatchers: dict[type, Dispatcher | None] = {}


def can_dispatch(cls: type) -> bool:
    """Return whether native dispatch of `cls` is installed already."""
    return _dispatchers.get(cls) is not None


def install(cls: type, array_type: type, wait: bool = True) -> bool:
    """Install the native `__call__` of `cls` on first use; return whether `cls` has it.

    Compiling it the first time on a machine takes 50 ms. Without `wait`, returns False in the meantime.
    """
    if cls not in _dispatchers:
        with suspended, pool.making:
            if cls not in _dispatchers:
                places = _places(cls, array_type)
                if (
                    not wait
                    and places is not None
                    and not start_compiling([*heap.PARTS, places.part()])
                ):
                    return False
                _dispatchers[cls] = _install(cls, places)
    return _dispatchers[cls] is not None


def _install(cls: type, places: DispatchOffsets | None) -> Dispatcher | None:
    code = _code(places)
    if code is None:
        return None
    dispatcher = dispatch.Dispatcher(code, cls)
    cls.__call__ = dispatcher.descriptor
    return dispatcher


def _code(places: DispatchOffsets | None) -> dict[str, int] | None:
    """Link native dispatch, which opens the queue; return its symbols."""
    buffer.use_native(heap.symbols())
    # before the queue opens, because another thread may use it immediately
    PENDING_BUFFER_TYPES.update(heap.block_types()[1:])
    return places and dispatch.code(places, ctypes.addressof(guard))


def open_queue(array_type: type, wait: bool) -> None:
    """Open the queue of programs; with `wait`, wait for the compilation of its code, else compile it in the background."""
    with suspended, pool.making:
        places = (
            _places(Dispatching, array_type) if queue.current() is None and pool.futex() else None
        )
        if places is not None and start_compiling([*heap.PARTS, places.part()], wait):
            _code(places)


@functools.cache
def _places(cls: type, array_type: Any) -> DispatchOffsets | None:
    """Return the field offsets that native code needs, found by inspecting live objects."""
    array = array_type(object(), buffer.HostBuffer(4))
    array._view, array._parts = object(), []
    jitted: Any = object.__new__(cls)
    Dispatching.__init__(jitted, print)
    return dispatch.find_places(array, array._buffer, jitted)
