"""Band analysis: the band along the diagonals of each value that is read, if the other elements are masked before use.

In:   a simplified jaxpr.
Out:  the bands of each value; no equation reads elements outside of them.
Laws: `select_n` reads an operand only where its mask selects it. The analysis handles masks that compare positions (iotas after
      layout ops and sums); any other mask counts as selecting everywhere.

The bands halve the first matmul of causal attention and remove nearly all of it in windowed attention.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._engine.compiler.fusion.classify import computes, moves, view_of
from weft._engine.core.primitive import ElementwiseOp
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft._engine.util.dtypes import is_native_integer

#: (r, c) -> (low, high), for dims r < c of a value: every element that is read has low <= index c - index r <= high
Bands = dict[tuple[int, int], tuple[int, int]]
#: a position as an affine form: coefficients of indices, and a constant
Form = tuple[dict[int, int], int]

MOST = 1 << 80  # greater than any sum of a few integers
#: maximal number of equations examined for a mask: n equations that share operands can have 2^n paths
MOST_EQUATIONS = 128
#: bounds of the difference of the operands where a comparison holds, and the opposite comparison
_COMPARISONS = {
    "ge": (0, MOST, "lt"),
    "gt": (1, MOST, "le"),
    "le": (-MOST, 0, "gt"),
    "lt": (-MOST, -1, "ge"),
    "eq": (0, 0, ""),
}


def analyze_bands(jaxpr: Jaxpr) -> dict[Var, Bands]:
    """Return the bands within which values are read; values that may be read everywhere are left out."""
    masks, all_bands = (
        _MaskAnalysis(jaxpr),
        {v: {} for v in jaxpr.outvars if type(v) is not Literal},
    )
    for eqn in reversed(jaxpr.eqns):
        results: list[Bands] = [all_bands.get(v, {}) for v in eqn.outvars]
        for place, atom in enumerate(eqn.invars):
            if type(atom) is not Literal:
                here = _read_by(eqn, place, results[0] if len(results) == 1 else {}, masks)
                all_bands[atom] = _either(all_bands[atom], here) if atom in all_bands else here
    return {v: bands for v, bands in all_bands.items() if bands}


def _read_by(eqn: Eqn, place: int, result: Bands, masks: "_MaskAnalysis") -> Bands:
    """Return the bands within which an equation reads operand `place` if its result is read within the bands `result`."""
    if (
        not isinstance(eqn.primitive, ElementwiseOp)
        or eqn.invars[place].aval.shape != eqn.outvars[0].aval.shape
    ):
        return {}
    selects = computes(eqn) == "select" and len(eqn.invars) == 3 and place > 0
    return _both(result, masks.find_bands(eqn.invars[0], place == 2)) if selects else result


def _either(a: Bands, b: Bands) -> Bands:
    """Return the tightest bands that contain both."""
    return {
        pair: (min(a[pair][0], b[pair][0]), max(a[pair][1], b[pair][1])) for pair in a if pair in b
    }


def _both(a: Bands, b: Bands) -> Bands:
    return a | {
        pair: (max(low, a[pair][0]), min(high, a[pair][1])) if pair in a else (low, high)
        for pair, (low, high) in b.items()
    }


class _MaskAnalysis:
    """The analysis of the masks of a program: bands of the positions that they select."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.producer = {eqn.outvars[0]: eqn for eqn in jaxpr.eqns if len(eqn.outvars) == 1}
        self.known: dict[tuple[Var, bool], Bands] = {}
        self.left = 0  # equations that may still be examined

    def find_bands(self, mask: Atom, is_true: bool) -> Bands:
        """Return bands that contain all positions where `mask` has the value `is_true`."""
        if type(mask) is Literal or mask.aval.dtype != np.bool_:
            return {}
        key = (mask, is_true)
        if key not in self.known:
            index = [({d: 1}, 0) for d in range(mask.aval.ndim)]
            self.left = MOST_EQUATIONS
            self.known[key] = self._compute_bands(mask, is_true, _MaskIndex(index, mask.aval.shape))
        return self.known[key]

    def _maker(self, atom: Atom) -> Eqn | None:
        """Return the producer of a value; None if there is none or too many equations were examined."""
        self.left -= 1
        return self.producer.get(atom) if type(atom) is not Literal and self.left >= 0 else None

    def _compute_bands(self, atom: Atom, is_true: bool, place: "_MaskIndex") -> Bands:
        eqn = self._maker(atom)
        if eqn is None:
            return {}
        operation, operands = computes(eqn), eqn.invars
        if operation in _COMPARISONS:
            low, high, opposite = _COMPARISONS[operation]
            if not is_true:
                low, high, _ = _COMPARISONS.get(opposite, (-MOST, MOST, ""))
            return self._bands_of_comparison(operands[0], operands[1], low, high, place)
        if operation == "not":
            return self._compute_bands(operands[0], not is_true, place)
        if operation == ("and" if is_true else "or"):
            a, b = (self._compute_bands(x, is_true, place.of(x)) for x in operands)
            return _both(a, b)
        inner = place.through(eqn)
        return {} if inner is None else self._compute_bands(operands[0], is_true, inner)

    def _bands_of_comparison(
        self, a: Atom, b: Atom, low: int, high: int, place: "_MaskIndex"
    ) -> Bands:
        """Return the bands of positions where low <= a - b <= high."""
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

    def _position(self, atom: Atom, place: "_MaskIndex") -> Form | None:
        """Return an integer value as an affine form of indices; None if a step may overflow its type or is not affine."""
        if not is_native_integer(atom.aval.dtype):
            return None
        if type(atom) is Literal:
            return ({}, int(atom.val)) if np.ndim(atom.val) == 0 else None
        eqn = self._maker(atom)
        form = None if eqn is None else self._form(eqn, place)
        return form if form is not None and place.fits(form, np.iinfo(atom.aval.dtype)) else None

    def _form(self, eqn: Eqn, place: "_MaskIndex") -> Form | None:
        """Return the result of an equation as an affine form of indices, regardless of overflow; None if it is not affine."""
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


class _MaskIndex:
    """The index of an examined value, as affine forms of the indices of the mask. `shape` is the mask's shape."""

    def __init__(self, index: Sequence[Form], shape: tuple[int, ...]) -> None:
        self.index, self.shape = index, shape

    def of(self, operand: Atom) -> "_MaskIndex":
        """Return the index of an operand of an elementwise op: the same index, or the empty index of a scalar."""
        return self if operand.aval.shape else _MaskIndex((), self.shape)

    def through(self, eqn: Eqn) -> "_MaskIndex | None":
        """Return the index in the operand of a layout op; None if the equation is no affine view."""
        view = view_of(eqn)
        if view is None or None in view.maps:
            return None
        index = []
        for constant, terms in [index_map for index_map in view.maps if index_map is not None]:
            form: Form = {}, constant
            for d, coefficient in terms:
                form = _sum(form, self.index[d], coefficient)
            index.append(form)
        return _MaskIndex(index, self.shape)

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
