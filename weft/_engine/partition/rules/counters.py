"""The split rule of `threefry_sequence`, whose counter is divided into halves."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ops import bitwise, slicing
from weft._engine.ops.dynamic_slicing import dynamic_slice_p
from weft._engine.partition.rules.split_rule import split_rule

_U32 = np.dtype(np.uint32)


@split_rule(
    "threefry_sequence",
    lambda f, rule, eqn: f in rule.special,
    tolerates_padding=lambda f, rule: False,
)
def _sequence(ctx: Any, args: list[Any], *, length: int) -> Any:
    """Compute part i of the pairs on device i of n; then exchange words.

    A block of the result has the first, or the second, words of the pairs of two devices.
    """
    from weft._engine.ops import legacy_threefry  # rarely needed

    k0, k1 = args
    dim, half = typeof(k0).ndim, length // 2
    axes = ctx.of_result(0, dim)
    n = ctx.size(axes)
    if n % 2 or half % n:  # blocks of words are not blocks of pairs
        size = length // n
        starts = [*[np.int32(0)] * dim, ctx.start(axes, size)]
        return dynamic_slice_p.bind(
            legacy_threefry.whole(k0, k1, length=length),
            *starts,
            slice_sizes=(*typeof(k0).shape, size),
        )
    first, second = legacy_threefry.pairs(k0, k1, ctx.start(axes, half // n, _U32), half // n, half)
    parts: list[Any] = []
    for odd in (0, 1):
        low, high = _every_second(odd, n // 2, 0), _every_second(odd, n // 2, n // 2)
        parts.append(
            bitwise.bitwise_or(ctx.ppermute(first, axes, low), ctx.ppermute(second, axes, high))
        )
    return slicing.concatenate(parts, dim)


@lru_cache(maxsize=256)
def _every_second(start: int, count: int, target: int) -> tuple[tuple[int, int], ...]:
    """Return pairs of every second device from `start` on and successive devices from `target` on.

    >>> _every_second(1, 2, 4)
    ((1, 4), (3, 5))
    """
    return tuple([(start + 2 * i, target + i) for i in range(count)])
