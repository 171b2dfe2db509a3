"""Which band along its diagonals of each value is read, when the rest is masked before use.

In:   a simplified jaxpr.
Out:  for each value the bands outside of which no equation reads it.
Laws: `select_n` reads an operand only where its mask selects it. Masks are understood if they compare positions (iotas, seen
      through layout ops and sums); any other mask counts as selecting everywhere.

This halves the first product of causal attention and removes nearly all of windowed attention's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._engine.compiler.fusion.classify import computes, moves, view_of
from weft._engine.core.primitive import ElementwiseOp
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft._engine.util.dtypes import is_native_integer

#: (r, c), dims of a value with r < c: low <= index c - index r <= high, wherever it is read
Bands = dict[tuple[int, int], tuple[int, int]]
#: a position: coefficients of indices, and a constant
Form = tuple[dict[int, int], int]

MOST = 1 << 80  # beyond any sum of a few integers
MOST_EQUATIONS = (
    128  # that are examined for a mask: there are 2^n paths through n that share operands
)
#: bounds of the difference of two operands where a comparison holds, and the comparison that holds elsewhere
_COMPARISONS = {
    "ge": (0, MOST, "lt"),
    "gt": (1, MOST, "le"),
    "le": (-MOST, 0, "gt"),
    "lt": (-MOST, -1, "ge"),
    "eq": (0, 0, ""),
}


def read(jaxpr: Jaxpr) -> dict[Var, Bands]:
    """The bands within which values are read, where there are any."""
    masks, found = _Masks(jaxpr), {v: {} for v in jaxpr.outvars if type(v) is not Literal}
    for eqn in reversed(jaxpr.eqns):
        results: list[Bands] = [found.get(v, {}) for v in eqn.outvars]
        for place, atom in enumerate(eqn.invars):
            if type(atom) is not Literal:
                here = _read_by(eqn, place, results[0] if len(results) == 1 else {}, masks)
                found[atom] = _either(found[atom], here) if atom in found else here
    return {v: bands for v, bands in found.items() if bands}


def _read_by(eqn: Eqn, place: int, result: Bands, masks: "_Masks") -> Bands:
    """Within which bands an equation reads an operand, if its result is read within some."""
    if (
        not isinstance(eqn.primitive, ElementwiseOp)
        or eqn.invars[place].aval.shape != eqn.outvars[0].aval.shape
    ):
        return {}
    selects = computes(eqn) == "select" and len(eqn.invars) == 3 and place > 0
    return _both(result, masks.holds(eqn.invars[0], place == 2)) if selects else result


def _either(a: Bands, b: Bands) -> Bands:
    """What holds if one of the two does."""
    return {
        pair: (min(a[pair][0], b[pair][0]), max(a[pair][1], b[pair][1])) for pair in a if pair in b
    }


def _both(a: Bands, b: Bands) -> Bands:
    return a | {
        pair: (max(low, a[pair][0]), min(high, a[pair][1])) if pair in a else (low, high)
        for pair, (low, high) in b.items()
    }


class _Masks:
    """What the masks of a program say of positions."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.producer = {eqn.outvars[0]: eqn for eqn in jaxpr.eqns if len(eqn.outvars) == 1}
        self.known: dict[tuple[Var, bool], Bands] = {}
        self.left = 0  # equations that may still be looked at

    def holds(self, mask: Atom, wanted: bool) -> Bands:
        """The bands within which a mask is as wanted."""
        if type(mask) is Literal or mask.aval.dtype != np.bool_:
            return {}
        key = (mask, wanted)
        if key not in self.known:
            index = [({d: 1}, 0) for d in range(mask.aval.ndim)]
            self.left = MOST_EQUATIONS
            self.known[key] = self._holds(mask, wanted, _Place(index, mask.aval.shape))
        return self.known[key]

    def _maker(self, atom: Atom) -> Eqn | None:
        """The equation that makes a value; None where there is none, or too many were looked at."""
        self.left -= 1
        return self.producer.get(atom) if type(atom) is not Literal and self.left >= 0 else None

    def _holds(self, atom: Atom, wanted: bool, place: "_Place") -> Bands:
        eqn = self._maker(atom)
        if eqn is None:
            return {}
        operation, operands = computes(eqn), eqn.invars
        if operation in _COMPARISONS:
            low, high, opposite = _COMPARISONS[operation]
            if not wanted:
                low, high, _ = _COMPARISONS.get(opposite, (-MOST, MOST, ""))
            return self._compared(operands[0], operands[1], low, high, place)
        if operation == "not":
            return self._holds(operands[0], not wanted, place)
        if operation == ("and" if wanted else "or"):
            a, b = (self._holds(x, wanted, place.of(x)) for x in operands)
            return _both(a, b)
        inner = place.through(eqn)
        return {} if inner is None else self._holds(operands[0], wanted, inner)

    def _compared(self, a: Atom, b: Atom, low: int, high: int, place: "_Place") -> Bands:
        """What it says of positions that the difference of two values is within these bounds."""
        x, y = (self._position(operand, place.of(operand)) for operand in (a, b))
        if x is None or y is None:
            return {}
        terms, constant = _sum(x, y, -1)
        if sorted(terms.values()) != [-1, 1]:
            return {}
        r, c = sorted(terms)
        low, high = (
            (low - constant, high - constant)
            if terms[c] == 1
            else (constant - high, constant - low)
        )
        return {(r, c): (max(low, -MOST), min(high, MOST))}

    def _position(self, atom: Atom, place: "_Place") -> Form | None:
        """An integer as indices and a constant, if no step of it leaves its type."""
        if not is_native_integer(atom.aval.dtype):
            return None
        if type(atom) is Literal:
            return ({}, int(atom.val)) if np.ndim(atom.val) == 0 else None
        eqn = self._maker(atom)
        form = None if eqn is None else self._form(eqn, place)
        return form if form is not None and place.fits(form, np.iinfo(atom.aval.dtype)) else None

    def _form(self, eqn: Eqn, place: "_Place") -> Form | None:
        """Return what an equation makes of positions, whatever its type holds."""
        operation = computes(eqn)
        if moves(eqn) == "iota":
            return place.index[eqn.params["dimension"]]
        if operation in ("add", "sub"):
            a, b = (self._position(x, place.of(x)) for x in eqn.invars)
            if a is None or b is None:
                return None
            return _sum(a, b, 1 if operation == "add" else -1)
        if operation == "cast":
            return self._position(eqn.invars[0], place)
        inner = place.through(eqn)
        return None if inner is None else self._position(eqn.invars[0], inner)


class _Place:
    """The index at which a value is looked at, as positions in the mask, whose shape is given."""

    def __init__(self, index: Sequence[Form], shape: tuple[int, ...]) -> None:
        self.index, self.shape = index, shape

    def of(self, operand: Atom) -> "_Place":
        """The place in an operand of an elementwise operation: the same, or there is but one."""
        return self if operand.aval.shape else _Place((), self.shape)

    def through(self, eqn: Eqn) -> "_Place | None":
        """The place in the operand of a layout op."""
        view = view_of(eqn)
        if view is None or None in view.maps:
            return None
        index = []
        for constant, terms in [found for found in view.maps if found is not None]:
            form: Form = {}, constant
            for d, coefficient in terms:
                form = _sum(form, self.index[d], coefficient)
            index.append(form)
        return _Place(index, self.shape)

    def fits(self, form: Form, limits: np.iinfo) -> bool:
        terms, constant = form
        reach = [k * (self.shape[d] - 1) for d, k in terms.items()]
        return (
            limits.min <= constant + sum(min(r, 0) for r in reach)
            and constant + sum(max(r, 0) for r in reach) <= limits.max
        )


def _sum(a: Form, b: Form, times: int) -> Form:
    terms = {d: a[0].get(d, 0) + times * b[0].get(d, 0) for d in {**a[0], **b[0]}}
    return {d: k for d, k in terms.items() if k}, a[1] + times * b[1]
