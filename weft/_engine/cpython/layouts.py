"""Layouts of objects in memory, for native code that reads and writes them.

In:   classes, and sample objects of them.
Out:  offsets in bytes, each seen on a live object; None where an object is not as expected.
Laws: offsets come from member descriptors, or are known and checked. Builds without a GIL have other headers, and native code
      counts on the lock: there nothing is known.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from weft._engine.cpython import self_check

#: offset of the address of a list's items
LIST_ITEMS = 24
_TYPE_NAME, _TYPE_BASIC_SIZE, _TYPE_ITEM_SIZE, _TYPE_DEALLOC = 24, 32, 40, 48
#: flags of an array of NumPy that is row-major without gaps, and aligned
_PLAIN = 0x101

_word = ctypes.c_ssize_t.from_address
_half = ctypes.c_int32.from_address


@self_check
def verify_object_layouts() -> bool:
    """Whether counts, types, sizes and items are where native code reads and writes them."""
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:
        return False
    sample, other = [object(), object()], object()
    pair = tuple(sample)
    count = _half(id(other)).value
    again = [other, other]
    if _half(id(other)).value != count + len(again):
        return False
    items = (id(pair) + tuple.__basicsize__, _word(id(sample) + LIST_ITEMS).value)
    has_types = all(_word(id(x) + 8).value == id(type(x)) for x in (other, sample, pair))
    return has_types and all(
        _word(id(x) + 16).value == len(x)
        and [_word(at + 8 * i).value for i in range(len(x))] == list(map(id, x))
        for x, at in zip((pair, sample), items)
    )


def slot_offset(cls: type, name: str) -> int | None:
    """Return the byte offset of slot `name` in objects of `cls`, or None if it is unknown.

    A member descriptor holds a pointer to its PyMemberDef, whose third word is the offset.
    """
    member = next(base.__dict__[name] for base in cls.__mro__ if name in base.__dict__)
    if type(member).__name__ != "member_descriptor" or not verify_object_layouts():
        return None
    words = (ctypes.c_void_p * 8).from_address(id(member))
    definition = words[5]  # refcount, type, d_type, d_name, d_qualname, d_member
    if not definition:
        return None
    return ctypes.c_ssize_t.from_address(definition + 16).value


def checked_slot_offset(instance: Any, name: str) -> int | None:
    """Return the offset of a slot, if a live object has its value there; else None."""
    offset = slot_offset(type(instance), name)
    if offset is None or not 16 <= offset < 1024:
        return None
    is_there = ctypes.c_void_p.from_address(id(instance) + offset).value == id(
        getattr(instance, name)
    )
    return offset if is_there else None


def deallocator(cls: type) -> Any:
    """Return the word of `cls`, a class of Python with slots, that has its destructor; None if it is elsewhere."""
    if not verify_object_layouts():
        return None

    class Another:
        __slots__ = ("slot",)

    address = id(cls)
    sizes = _word(address + _TYPE_BASIC_SIZE).value, _word(address + _TYPE_ITEM_SIZE).value
    if sizes != (cls.__basicsize__, cls.__itemsize__):
        return None
    if ctypes.string_at(_word(address + _TYPE_NAME).value) != cls.__name__.encode():
        return None
    own, usual, builtin = [_word(id(c) + _TYPE_DEALLOC) for c in (cls, Another, object)]
    return own if own.value == usual.value != builtin.value else None


def has_plain_fields(x: np.ndarray) -> bool:
    """Return whether native code finds the fields of an array of NumPy, which is row-major and aligned."""
    at = id(x)
    rank, flags = _half(at + 24).value, _half(at + 64).value
    fields = (_word(at + 16).value, rank, _word(at + 56).value, flags & _PLAIN)
    if fields != (x.ctypes.data, x.ndim, id(x.dtype), _PLAIN):
        return False
    return [_word(_word(at + 32).value + 8 * d).value for d in range(rank)] == list(x.shape)


def has_plain_value(x: np.generic) -> bool:
    """Return whether native code finds the value of a number of NumPy."""
    size = x.dtype.itemsize
    is_small = size <= 8 and type(x).__basicsize__ == 24
    return is_small and ctypes.string_at(id(x) + 16, size) == x.tobytes()
