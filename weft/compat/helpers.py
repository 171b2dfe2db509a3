"""Helpers and namespaces of JAX modules that have no public name in weft.

In:   nothing; `names` and `inside` refer to them.
Out:  functions on sequences, `from_dlpack`, and the namespaces `jax.ad` and `jax.memory`.
"""

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from weft import numpy
from weft._engine.api.differentiation.reverse import DidntWant, DontWant, GradRef, GradValue
from weft.sharding import MemorySpace

ad = SimpleNamespace(DontWant=DontWant, DidntWant=DidntWant, GradRef=GradRef, GradValue=GradValue)
memory = SimpleNamespace(Space=MemorySpace)

Shape = Sequence[int | Any]


def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Any:
    """Return `weft.numpy.from_dlpack` of an array."""
    return numpy.from_dlpack(external_array, device=device, copy=copy)


def safe_zip(*sequences: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return `zip` of sequences of one length as a list. Raises ValueError if the lengths differ."""
    lists = [list(sequence) for sequence in sequences]
    if len({len(one) for one in lists}) > 1:
        raise ValueError(
            f"safe_zip: the sequences have lengths {[len(one) for one in lists]}, which must be equal."
        )
    return list(zip(*lists))


def safe_map(fun: Callable[..., Any], *sequences: Iterable[Any]) -> list[Any]:
    """Return `map` over sequences of one length as a list. Raises ValueError if the lengths differ."""
    return [fun(*args) for args in safe_zip(*sequences)]


def unzip2(xys: Iterable[Sequence[Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the first and the second parts of pairs.

    >>> unzip2([(1, "a"), (2, "b")])
    ((1, 2), ('a', 'b'))
    """
    listed = list(xys)
    return tuple(a for a, _ in listed), tuple(b for _, b in listed)


def split_list(args: Sequence[Any], ns: Sequence[int]) -> list[list[Any]]:
    """Split a sequence into parts of the sizes `ns` and the remainder. Raises ValueError if it is
    too short.

    >>> split_list("abcd", [1, 2])
    [['a'], ['b', 'c'], ['d']]
    """
    remaining = list(args)
    if min(ns, default=0) < 0 or sum(ns) > len(remaining):
        raise ValueError(
            f"split_list: a sequence of {len(remaining)} elements has no parts of sizes {list(ns)}."
        )
    parts = []
    for size in ns:
        parts.append(remaining[:size])
        remaining = remaining[size:]
    return [*parts, remaining]
