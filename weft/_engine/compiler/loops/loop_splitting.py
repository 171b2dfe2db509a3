"""Loop splitting: a vector loop is split where comparisons of its index change, as in concatenations, pads, rolls and stencils.

In:   the accesses of `LoweredGroup` code, the vectorized variable, and its range in a task.
Out:  `Segment`s of the range. Between two splits the results of all comparisons are constant and the code has no guards; the
      cache lines around a split keep their comparisons, so that segments begin on cache lines and results can be stored
      past the caches.

A comparison may add loop invariants to the index (the part of a flat index that depends on the row, a start read from memory).
All comparisons that split the loop must have the same invariant term, so that the order of the splits is known at compile time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft._engine.compiler.fusion.classify import SPLIT_PLACES, SPLIT_SEGMENT, flat_index
from weft._engine.compiler.lowering.lower import LoweredGroup, reachable
from weft._engine.ir.build import LoopsBuilder, type_name
from weft._engine.ir.loops import COMPARISONS, ITEMSIZE, Const, Expr, Load, ScalarOp
from weft._engine.util.machine_model import MODEL
from weft._engine.util.record import record

OPEN = 1 << 62  # beyond any index


@record
class Segment:
    """The indices from `start` to `start + extent`, where `extent` is at most `most`, and the constant results of comparisons there."""

    start: Expr
    extent: int | Expr
    most: int
    decided: dict[int, Expr]


@record
class Splits:
    """The splits of a loop.

    `term`: the invariant that is added to the index before comparisons, as factors by id of expression. `groups`: (first, last)
    positions of splits in order; splits that share a cache line are one group. `holds`: by id of comparison, (first, below, value):
    it has the value in [first, below) and the opposite elsewhere."""

    term: dict[int, int]
    groups: list[tuple[int, int]]
    holds: dict[int, tuple[int, int, bool]]
    line: int

    def between(self, left: int, right: int) -> dict[int, bool]:
        """Return the results of all comparisons between two successive splits."""
        return {
            key: (first <= left and below >= right) is so
            for key, (first, below, so) in self.holds.items()
        }

    def around(self, left: int, right: int) -> dict[int, bool]:
        """Return the results of the comparisons that do not change within a group of splits."""
        return {
            key: (first < left and below > right) is so
            for key, (first, below, so) in self.holds.items()
            if not (left <= first <= right or left <= below <= right)
        }


def find_splits(
    low: LoweredGroup, loads: Iterable[Load], var: Expr, extent: int, min_bytes: int
) -> Splits | None:
    """Return the splits of the loop over `var`; None if there are none or if a result has fewer than `min_bytes` bytes."""
    if min([out.var.aval.nbytes for out in low.outputs], default=0) < min_bytes:
        return None
    # The keys are unordered because ids differ from run to run; terms keep the order of the code.
    families: dict[frozenset, tuple[dict[int, int], dict[int, tuple[int, int, bool]]]] = {}
    for x in reachable([load.guard for load in loads if load.guard is not None]):
        comparison = comparison_range(low.builder, x, var)
        if comparison is not None:
            term, holds = comparison
            families.setdefault(frozenset(term.items()), (term, {}))[1][id(x)] = holds
    if not families:
        return None
    term, holds = max(families.values(), key=lambda family: len(family[1]))
    places = sorted(
        {place for first, last, _ in holds.values() for place in (first, last)} - {-OPEN, OPEN}
    )
    if len(places) > SPLIT_PLACES or extent < SPLIT_SEGMENT * (len(places) + 1):
        return None
    line = MODEL.cache_line // min([ITEMSIZE[type_name(out.var.aval.dtype)] for out in low.outputs])
    groups = [(places[0], places[0])]
    for place in places[1:]:
        groups.append((place, place)) if place - groups[-1][1] >= line else groups.append(
            (groups.pop()[0], place)
        )
    return Splits(term, groups, holds, line)


def comparison_range(
    b: LoopsBuilder, x: Expr, var: Expr
) -> tuple[dict[int, int], tuple[int, int, bool]] | None:
    """Return the term and the range of a comparison of `var` plus a term with a constant (see `Splits`); None for other expressions."""
    if type(x) is not ScalarOp or x.op not in COMPARISONS or x.args[0].type != "i64":
        return None
    form = b.affine(b.isub(*x.args))
    if form is None:
        return None
    terms, const = form
    step = terms.get(id(var), 0)
    if not step or any(k % step for k in terms.values()):
        return None
    term = {key: k // step for key, k in terms.items() if key != id(var)}
    if any(y is var for y in reachable([b.base(key) for key in term])):
        return None
    if x.op in ("eq", "ne") and const % step == 0:
        at = -const // step
        return term, (at, at + 1, x.op == "eq")
    if x.op not in ("lt", "le"):
        return None
    past = const + (x.op == "lt")  # the difference, without the constant, is at most -past
    if step > 0:
        return term, (-OPEN, -past // step + 1, True)
    return term, (-(past // step), OPEN, True)


def split_into_segments(
    splits: Splits,
    b: LoopsBuilder,
    substitute: Callable[[Expr], Expr],
    base: Callable[[int], Expr],
    start: Expr,
    stop: Expr,
    most: int,
) -> list[Segment]:
    """Return the segments from `start`, which must begin a cache line, to `stop`; each has at most `most` indices."""
    term = flat_index(b, [substitute(base(key)) for key in splits.term], splits.term.values())
    line, at, below = splits.line, start, -OPEN
    ranges = []
    for first, last in splits.groups:
        before, after = [
            b.imin(b.imul(b.idiv(b.imax(b.isub(place, term), start), line), line), stop)
            for place in (first, last + line - 1)
        ]
        widest = (last - first + 2 * line - 2) // line * line
        ranges += [
            (at, before, most, splits.between(below, first)),
            (before, after, widest, splits.around(first, last)),
        ]
        at, below = after, last
    ranges.append((at, stop, most, splits.between(below, OPEN)))
    segments = []
    for begin, end, most, known in ranges:
        length = b.isub(end, begin)
        extent = length.value if type(length) is Const else b.imin(length, most)
        if type(extent) is not int or extent > 0:
            segments.append(
                Segment(
                    begin,
                    extent,
                    extent if type(extent) is int else most,
                    {key: b.const(value, "bool") for key, value in known.items()},
                )
            )
    return segments
