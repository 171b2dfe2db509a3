"""Matching of the dims of two shapes with the same number of elements, for the rules of `reshape`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from weft._engine.ir.factors import RuleBuilder

if TYPE_CHECKING:
    from weft._engine.ir.build import IndexLike, LoopsBuilder
    from weft._engine.ops.rule_types import ElementIndex, Ints


def match_dims(b: RuleBuilder, source: Ints, target: Ints):
    """Return factors of the dims of `source` and `target` under a reshape.

    Also return the dims that do not match ('replicate').

    Both sides are read from major to minor. A common divisor of the remaining sizes is a shared
    factor; where there is none, dims are grouped until the products agree, and no dim of that group
    can be split.
    Dims of size 1 match too, so that mesh axes of size 1 stay in types.

    >>> match_dims(RuleBuilder(), (64, 3), (4, 16, 3))
    ([(0, 1), (2,)], [(0,), (1,), (2,)], {})
    >>> match_dims(RuleBuilder(), (1, 8), (1, 4, 2))
    ([(2,), (0, 1)], [(2,), (0,), (1,)], {})
    """
    if 0 in source or 0 in target:
        ins, outs = b.add_factors(source), b.add_factors(target)
        return [(f,) for f in ins], [(f,) for f in outs], dict.fromkeys(ins + outs, "replicate")
    sides = (_ShapeReader(source), _ShapeReader(target))
    special: dict[int, str] = {}
    while not all(side.at_end() for side in sides):
        left, right = sides
        common = math.gcd(left.rest, right.rest)
        if common > 1:
            f = b.new(common)
            left.take(f, common)
            right.take(f, common)
        else:
            special.update(dict.fromkeys(_take_group(b, left, right), "replicate"))
    _match_unit_dims(b, *sides)
    return sides[0].factors(), sides[1].factors(), special


def _match_unit_dims(b: RuleBuilder, source: _ShapeReader, target: _ShapeReader) -> None:
    """Give dims of size 1 on both sides shared factors.

    Dims with as many elements before them are paired first, then the others in order.
    """
    partners = target.unit_dims()
    free = dict.fromkeys(dim for dims in partners.values() for dim in dims)
    unmatched: list[int] = []
    for offset, dims in source.unit_dims().items():
        here = partners.get(offset, [])
        for k, dim in enumerate(dims):
            if here:
                _share_unit_factor(b, source, dim, target, here[min(k, len(here) - 1)])
                free.pop(here[min(k, len(here) - 1)], None)
            else:
                unmatched.append(dim)
    others = list(free) or [dim for dims in partners.values() for dim in dims]
    for k, dim in enumerate(unmatched if others else ()):
        _share_unit_factor(b, source, dim, target, others[min(k, len(others) - 1)])


def _share_unit_factor(
    b: RuleBuilder, source: _ShapeReader, dim: int, target: _ShapeReader, partner: int
) -> None:
    f = b.new(1)
    source.dims[dim].append(f)
    target.dims[partner].append(f)


class _ShapeReader:
    """A shape read from major to minor; `rest` is the unread size of the current dim."""

    def __init__(self, shape: Ints):
        self.shape = shape
        self.dims: list[list[int]] = [[] for _ in shape]
        self.dim = -1
        self.rest = 1
        self._advance()

    def _advance(self) -> None:
        while self.rest == 1 and self.dim + 1 < len(self.shape):
            self.dim += 1
            self.rest = self.shape[self.dim]

    def at_end(self) -> bool:
        return self.rest == 1

    def take(self, factor: int, size: int) -> None:
        """Add `factor` of `size` to the current dim."""
        self.dims[self.dim].append(factor)
        self.rest //= size
        self._advance()

    def factors(self) -> list[tuple[int, ...]]:
        return [tuple(d) for d in self.dims]

    def unit_dims(self) -> dict[int, list[int]]:
        """Return the dims of size 1, by the number of elements in the dims before them."""
        unit_dims: dict[int, list[int]] = {}
        offset = 1
        for dim, size in enumerate(self.shape):
            if size == 1:
                unit_dims.setdefault(offset, []).append(dim)
            offset *= size
        return unit_dims


def _take_group(b: RuleBuilder, left: _ShapeReader, right: _ShapeReader) -> list[int]:
    """Give separate factors to dims of both sides until both cover the same number of elements."""
    group: list[int] = []

    def consume(side: _ShapeReader) -> int:
        size = side.rest
        group.append(b.new(size))
        side.take(group[-1], size)
        return size

    covered = [consume(left), consume(right)]
    while covered[0] != covered[1]:
        smaller = 0 if covered[0] < covered[1] else 1
        covered[smaller] *= consume((left, right)[smaller])
    return group


def reindex(b: LoopsBuilder, index: ElementIndex, source: Ints, target: Ints) -> tuple[Any, ...]:
    """Return the index in shape `target` of the element at `index` of shape `source`.

    Groups of matching dims determine it.
    """
    out: list[Any] = []
    i = 0
    zero = b.const(0, "i64")
    if 0 in target:
        return (zero,) * len(target)  # nothing is ever read
    while len(out) < len(target):
        j = len(out)
        first, size_in, size_out = i, 1, target[j]
        stop = j + 1
        while size_in != size_out:
            if size_in < size_out:
                size_in *= source[i]
                i += 1
            else:
                size_out *= target[stop]
                stop += 1
        flat = zero
        for d in range(first, i):
            flat = b.linear([(flat, source[d]), (index[d], 1)])
        out.extend(_unravel(b, flat, target[j:stop]))
    return tuple(out)


def _unravel(b: LoopsBuilder, flat: IndexLike, shape: Ints) -> list[Any]:
    if len(shape) == 1:
        return [flat]
    out: list[IndexLike] = []
    for d in reversed(range(len(shape))):
        out.append(b.irem(flat, shape[d]) if d else flat)
        flat = b.idiv(flat, shape[d]) if d else flat
    return out[::-1]
