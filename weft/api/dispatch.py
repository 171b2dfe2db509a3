"""Calls of compiled functions without Python: cache entries that native code matches.

An entry is made when a call took the Python path and could have done without it: positional arguments only, builtin
containers only, every leaf an Array that already lies as the executable wants it, nothing donated.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence

from weft.codegen import dispatch as native
from weft.codegen import heap
from weft.runtime import buffer
from weft.runtime.array import Array, ArraySpec, default_sharding
from weft.runtime.executable import Executable
from weft.ir.types import ShapedArray
from weft.util import tree
from weft.util.state import guard

_LEAF, _TUPLE, _LIST, _DICT, _NONE = range(5)
_lock = threading.Lock()


class Dispatching:
    """Base of jitted functions: `_cell` is the address of the list of entries, `_slow` does what entries cannot."""
    __slots__ = ("_cell", "_slow", "_head", "_entries", "__dict__", "__weakref__")

    def __init__(self, slow):
        self._slow = slow
        self._head = (ctypes.c_void_p * 1)(None)
        self._cell = ctypes.addressof(self._head)
        self._entries: list[_Entry] = []

    def _forget_entries(self) -> None:
        self._head[0] = None
        self._entries.clear()


class _Entry:
    """The words of one entry, and everything they point to."""

    def __init__(self, executable: Executable, n_args: int, in_program: Sequence[int], out_program: Sequence[int], keys: list,
                 next_address: int | None):
        n_const = len(executable.const_inputs)
        in_specs = executable.in_specs[n_const:]
        pointers = lambda xs: (ctypes.c_void_p * max(1, len(xs)))(*xs)
        words = lambda xs: (ctypes.c_int64 * max(1, len(xs)))(*xs)
        self.parts = [
            words(in_program), pointers([id(s) for s in in_specs]),
            pointers([a._live().ptr for a in executable.const_inputs]),
            pointers([id(s) for s in executable.out_specs]), words([s.nbytes for s in executable.out_specs]),
            words(out_program), pointers([c.ptr for c in executable.consts])]
        self.alive = [executable, in_specs, keys, executable.native.raise_error, [a._live() for a in executable.const_inputs]]
        at = [ctypes.addressof(p) for p in self.parts]
        self.words = (ctypes.c_int64 * native.ENTRY_WORDS)(
            next_address or 0, n_args, at[0], at[1], executable.native.entry, n_const, at[2], len(in_specs),
            len(executable.out_specs), at[3], at[4], at[5], len(executable.consts), at[6], executable.arena_bytes, guard[1],
            int(executable.is_long), id(self.alive[3]))
        self.address = ctypes.addressof(self.words)


def _program(x, out: list[int], keys: list) -> bool:
    """Append the words of a tree; false if it has a node that native code does not know."""
    kind = type(x)
    if kind is tuple or kind is list:
        out += [_TUPLE if kind is tuple else _LIST, len(x)]
        return all(_program(v, out, keys) for v in x)
    if kind is dict:
        try:
            order = sorted(x)
        except TypeError:
            return False
        out += [_DICT, len(x)]
        for k in order:
            keys.append(k)
            out.append(id(k))
            if not _program(x[k], out, keys):
                return False
        return True
    if x is None:
        out.append(_NONE)
        return True
    out.append(_LEAF)
    return True


def add_entry(jitted: Dispatching, executable: Executable, args: tuple, leaves: Sequence, out_tree) -> None:
    """Let later calls like this one go to native code, if they can."""
    if guard[0] or type(executable) is not Executable or executable.donated or executable.aliases or not _installed(type(jitted)):
        return
    specs = executable.in_specs[len(executable.const_inputs):]
    if len(leaves) != len(specs) or any(type(x) is not Array or x._spec is not s for x, s in zip(leaves, specs)):
        return
    keys: list = []
    in_program: list[int] = []
    if not all(_program(x, in_program, keys) for x in args):
        return
    if in_program.count(_LEAF) < len(leaves):         # a registered node hides leaves of its own
        return
    out_program: list[int] = []
    if not _program(tree.tree_unflatten(out_tree, [_Leaf] * out_tree.num_leaves), out_program, keys):
        return
    with _lock:
        entry = _Entry(executable, len(args), in_program, out_program, keys, jitted._head[0])
        jitted._entries.append(entry)
        jitted._head[0] = entry.address


class _Leaf:
    """Stands for an array in a result tree."""


_dispatchers: dict[type, native.Dispatcher | None] = {}


def _installed(cls: type) -> bool:
    """Whether `cls` has the native `__call__`; puts it there on first use."""
    if cls not in _dispatchers:
        with _lock:
            if cls not in _dispatchers:
                _dispatchers[cls] = _install(cls)
    return _dispatchers[cls] is not None


def _install(cls: type):
    buffer.use_native(heap.symbols())
    spec = ArraySpec(ShapedArray((), "float32"), default_sharding(), False)
    sample = Array(spec, buffer.Buffer(4))
    dispatcher = native.make_dispatcher(sample, sample._buffer, _sample(cls), ctypes.addressof(guard))
    if dispatcher is not None:
        cls.__call__ = dispatcher.descriptor
    return dispatcher


def _sample(cls: type):
    """A live object of `cls` for checking where its slots lie."""
    sample = cls.__new__(cls)
    Dispatching.__init__(sample, print)
    return sample
