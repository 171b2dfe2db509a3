"""Indexing of values without retracing: an index is split into its form, which is part of the
compiled program, and its integers and arrays, which are arguments. Thus `x[0]`, `x[1]`, ... are one
program, run by native dispatch.
"""

from __future__ import annotations

from weft._engine.api.jit import eager_jit
from weft._engine.core.trace import eval_trace, trace_state
from weft._engine.numpy import indexing
from weft._engine.runtime.array import Array
from weft._engine.util.config import config
from weft._engine.util.dtypes import is_native_integer

_INTEGER, _ARRAY = "integer", "array"
_forms: dict[tuple, tuple] = {}
_SMALL = 1 << 31
_BOUND_TYPES = frozenset((int, type(None)))


def split(x: Array, index):
    """Return (form, arguments) of an index, or None if its values matter.

    Values matter in masks, lists, and integers out of range.
    """
    entries = index if type(index) is tuple else (index,)
    form, arguments = [], []
    for i in entries:
        kind = type(i)
        if kind is int:
            if not -_SMALL <= i < _SMALL:
                return None
            form.append(_INTEGER)
            arguments.append(i)
        elif kind is slice:
            parts = (i.start, i.stop, i.step)
            if not _BOUND_TYPES.issuperset(map(type, parts)):
                return None
            form.append(parts)
        elif i is None or i is Ellipsis:
            form.append(i)
        elif kind is Array and is_native_integer(i.dtype):
            form.append(_ARRAY)
            arguments.append(i)
        else:
            return None
    if config.debug_key_reuse or config.check_static_indices:
        # which follow keys through single operations, and look at numbers
        return None
    if (
        0 in x.shape
        or len(entries) - form.count(None) - form.count(Ellipsis) > x.ndim
        or form.count(Ellipsis) > 1
    ):
        return None
    key = tuple(form)
    return _forms.setdefault(key, key), tuple(arguments)


def join(form: tuple, arguments) -> tuple:
    remaining = iter(arguments)
    return tuple(
        next(remaining) if isinstance(f, str) else slice(*f) if type(f) is tuple else f
        for f in form
    )


def _read(x, arguments, form):
    return indexing.getitem(x, join(form, arguments))


_read_eager = eager_jit(_read, (0, 1))


def getitem(x, index):
    """Return `x[index]`."""
    if type(x) is Array and trace_state.trace is eval_trace:
        parts = split(x, index)
        if parts is not None:
            return _read_eager(x, parts[1], parts[0])
    return indexing.getitem(x, index)
