"""Loop splitting: a vector loop is split where comparisons of its index change, as in joins, pads, rolls and edges of stencils.

In:   the accesses of `Lowered` code, the vectorized variable, and the range of it that a task covers.
Out:  `Segment`s of the range. Between two splits all comparisons are decided and the code has no guards; the cache lines around a
      split keep their comparisons, so that segments begin on cache lines and results can be stored past the caches.

A comparison may add loop invariants to the index (the row's share of a flat index, a start read from memory). All comparisons
that split must have the same invariant term, so that the order of the splits is known at compile time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft._engine.compiler.fusion.classify import SPLIT_PLACES, SPLIT_SEGMENT, flat_index
from weft._engine.compiler.lowering.lower import Lowered, reachable
from weft._engine.ir.build import Builder, type_name
from weft._engine.ir.loops import COMPARISONS, ITEMSIZE, Const, Expr, Load, Op
from weft._engine.util.machine_model import MODEL
from weft._engine.util.record import record

OPEN = 1 << 62  # beyond any index


@record
class Segment:
    """Indices `start` to `start + extent` (at most `most`), and the values of comparisons there."""

    start: Expr
    extent: int | Expr
    most: int
    decided: dict[int, Expr]


@record
class Splits:
    """Where a loop is split. `term`: by id of base expression, what is added to the index before it is compared with `places`, in order;
    places that share a cache line are one group. `holds`: by id of comparison, where it holds (from, below), and whether it is so."""

    term: dict[int, int]
    groups: list[tuple[int, int]]
    holds: dict[int, tuple[int, int, bool]]
    line: int

    def between(self, left: int, right: int) -> dict[int, bool]:
        """What the comparisons are between two places that follow one another."""
        return {
            key: (first <= left and below >= right) is so
            for key, (first, below, so) in self.holds.items()
        }

    def around(self, left: int, right: int) -> dict[int, bool]:
        """What those are, around a group of places, that change elsewhere."""
        return {
            key: (first < left and below > right) is so
            for key, (first, below, so) in self.holds.items()
            if not (left <= first <= right or left <= below <= right)
        }


def splits_of(
    low: Lowered, loads: Iterable[Load], var: Expr, extent: int, least: int
) -> Splits | None:
    """Where to split the loop over `var`, if that pays: from `least` bytes of results on."""
    if min([out.var.aval.nbytes for out in low.outputs], default=0) < least:
        return None
    # The key has no order: ids differ from run to run. Terms have the order of the code.
    families: dict[frozenset, tuple[dict[int, int], dict[int, tuple[int, int, bool]]]] = {}
    for x in reachable([load.guard for load in loads if load.guard is not None]):
        found = holds_of(low.builder, x, var)
        if found is not None:
            term, holds = found
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


def holds_of(b: Builder, x: Expr, var: Expr) -> tuple[dict[int, int], tuple[int, int, bool]] | None:
    """For a comparison of `var` plus a term with a number: the term, and where the sum makes it hold."""
    if type(x) is not Op or x.op not in COMPARISONS or x.args[0].type != "i64":
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


def segments_of(
    splits: Splits,
    b: Builder,
    substitute: Callable[[Expr], Expr],
    base: Callable[[int], Expr],
    start: Expr,
    stop: Expr,
    most: int,
) -> list[Segment]:
    """The segments from `start`, where a cache line begins, to `stop`; each is `most` long at most."""
    term = flat_index(b, [substitute(base(key)) for key in splits.term], splits.term.values())
    line, at, below = splits.line, start, -OPEN
    found = []
    for first, last in splits.groups:
        before, after = [
            b.imin(b.imul(b.idiv(b.imax(b.isub(place, term), start), line), line), stop)
            for place in (first, last + line - 1)
        ]
        widest = (last - first + 2 * line - 2) // line * line
        found += [
            (at, before, most, splits.between(below, first)),
            (before, after, widest, splits.around(first, last)),
        ]
        at, below = after, last
    found.append((at, stop, most, splits.between(below, OPEN)))
    segments = []
    for begin, end, most, known in found:
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
