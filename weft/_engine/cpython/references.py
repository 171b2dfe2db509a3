"""Reference counts. They show that memory has no other user and can be reused.

In:   objects.
Out:  the number of references, without the counting call's own; None where the interpreter does not count exactly.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

from weft._engine.cpython import self_check

#: 0 where references are not counted
_count: Callable[[object], int] = getattr(sys, "getrefcount", lambda x: 0)


def _count_with_call(x: object) -> int:
    return _count(x)


#: references that a call of a function adds to its argument while it counts them
_OF_CALL = _count_with_call([object()][0])


@self_check
def _is_exact() -> bool:
    """Whether each container that holds an object adds one reference."""
    lists = [[object()]]
    for holders in (1, 2, 3):
        if _count_with_call(lists[0][0]) - _OF_CALL != holders:
            return False
        lists.append(list(lists[0]))
    return True


def count_references(x: object) -> int | None:
    """Return the number of references to `x`, without this call's own; None if it is unknown.

    A variable of the caller is a reference, too.

    >>> x = object()
    >>> held = [x, x]
    >>> count_references(x) in (3, None)
    True
    """
    return _count(x) - _OF_CALL if _is_exact() else None


def is_held_at_most(x: object, holders: int) -> bool:
    """Return whether at most `holders` references to `x` exist, without this call's own."""
    return _is_exact() and _count(x) - _OF_CALL <= holders


def count_at(address: int) -> int:
    """Return the word of an object in memory that counts its references, which `layouts` has checked."""
    return ctypes.c_int32.from_address(address).value
