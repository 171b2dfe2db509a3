"""Bounds of size expressions under constraints.

In:   polynomials that are at least 0 (the constraints of a scope), and an expression.
Out:  a lower and an upper bound of the expression, valid for all sizes that the constraints allow, and not necessarily tight.
How:  interval arithmetic over the terms yields a first bound. Terms with poor bounds are eliminated: f >= 0 and k >= 0 imply p >= p - k*f.
      The facts f are the constraints and the consequences of the operations in the expression: q*floordiv(p, q) + mod(p, q) = p, and
      products of positive sizes are at least their factors. A max or min equals one of its operands; each case is bounded under the
      inequality that selects the operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft._engine.ir.symbolic.polynomials import (
    Atom,
    Monomial,
    Polynomial,
    add,
    as_constant,
    constant,
    multiply,
    operation,
    replace_monomial,
)

_INFINITY = float("inf")
#: the number of facts that are combined, and of nested case distinctions of max and min
_DEPTH, _CASES = 4, 3
#: the number of expressions that the search for one bound may visit
_MAX_VISITED = 250


class Bounds:
    """Lower and upper bounds of polynomials, given polynomials that are at least 0.

    `reduce` simplifies a polynomial by the equality constraints.
    """

    def __init__(
        self, nonnegative: Sequence[Polynomial], reduce: Callable[[Polynomial], Polynomial]
    ) -> None:
        self._nonnegative = tuple(nonnegative)
        self._reduce = reduce
        self._known: dict[Polynomial, float] = {}  # polynomial without a constant -> lower bound
        # (polynomial, facts, depth) -> lower bound, during one search
        self._seen: dict[tuple[Any, ...], float] = {}
        self._intervals: dict[Atom, tuple[float, float]] = {}

    def __call__(self, p: Polynomial) -> tuple[float, float]:
        return self.lower(p), -self.lower(multiply(constant(-1), p))

    def lower(self, p: Polynomial) -> float:
        """Return a lower bound of `p`, or minus infinity."""
        variable, shift = _without_constant(p)
        low = self._known.get(variable)
        if low is None:
            self._seen = {}
            low = self._known[variable] = self._bound_by_cases(variable, self._nonnegative, _CASES)
        return low + shift

    def record_nonnegative(self, p: Polynomial) -> None:
        """Record that `p` is at least 0, for a polynomial whose construction ensures this."""
        variable, shift = _without_constant(p)
        self._known[variable] = max(-shift, self._known.get(variable, -shift))

    def _bound_by_cases(self, p: Polynomial, facts: tuple[Polynomial, ...], cases: int) -> float:
        atom = _innermost_extreme(p)
        low = max(self._bound_from_facts(p, facts, depth) for depth in (1, 2, _DEPTH))
        if atom is None or not cases:
            return low
        name, a, b = atom
        difference = add(a, b, -1) if name == "max" else add(b, a, -1)
        case_bounds: list[float] = []
        for operand, fact in ((a, difference), (b, multiply(constant(-1), difference))):
            if -self._bound_from_facts(multiply(constant(-1), fact), facts, 1) >= 0:
                # otherwise the case does not occur
                known = [replace_monomial(f, ((atom, 1),), operand) for f in (*facts, fact)]
                case_bounds.append(
                    self._bound_by_cases(
                        replace_monomial(p, ((atom, 1),), operand), tuple(known), cases - 1
                    )
                )
        return max(low, min(case_bounds, default=_INFINITY))

    def _bound_from_facts(self, p: Polynomial, facts: tuple[Polynomial, ...], depth: int) -> float:
        """Return the best lower bound from the terms of `p` and of `p` minus multiples of up to `depth` facts."""
        low, _ = self._interval(p)
        key = p, facts, depth
        if (
            not depth
            or as_constant(p) is not None
            or key in self._seen
            or len(self._seen) > _MAX_VISITED
        ):
            return self._seen.get(key, low)
        self._seen[key] = low
        for fact in (*facts, *self._implied_constraints(p)):
            for m, mine in p:
                for factor, c in self._multiples(m, fact):
                    if mine * c > 0:  # abs(c) * p - abs(mine) * factor * fact has no term m
                        scaled = multiply(((factor, abs(mine)),), fact)
                        bound = self._bound_from_facts(
                            add(multiply(constant(abs(c)), p), scaled, -1), facts, depth - 1
                        )
                        low = max(
                            low, bound if abs(bound) == _INFINITY else -(-int(bound) // abs(c))
                        )
        self._seen[key] = low
        return low

    def _multiples(self, m: Monomial, fact: Polynomial) -> Iterator[tuple[Monomial, int]]:
        """Yield (factor, coefficient) for each term of `fact` that is `m` after multiplication by a factor, a product of positive sizes."""
        powers = dict(m)
        for term, c in fact:
            if term and all(powers.get(atom, 0) >= power for atom, power in term):
                others = {atom: power - dict(term).get(atom, 0) for atom, power in m}
                factor = tuple((atom, power) for atom, power in others.items() if power)
                if all(self._atom_interval(atom)[0] >= 0 for atom, _ in factor):
                    yield factor, c

    def _implied_constraints(self, p: Polynomial) -> Iterator[Polynomial]:
        """Yield polynomials that are at least 0 because of the operations and products in `p`."""
        for m, _ in p:
            for atom, _ in m:
                if not isinstance(atom, str) and atom[0] in ("floordiv", "mod"):
                    yield from self._division(atom)
                low = self._atom_interval(atom)[0]
                others = tuple((a, k - (a == atom)) for a, k in m if a != atom or k > 1)
                if others and 1 <= low < _INFINITY and self._interval(((others, 1),))[0] >= 0:
                    yield add(((m, 1),), ((others, int(low)),), -1)

    def _division(self, atom: Atom) -> Iterator[Polynomial]:
        """Yield the facts q*floordiv(p, q) + mod(p, q) = p and 0 <= mod(p, q) <= min(p, q - 1) for positive q."""
        _, p, q = atom
        if self._interval(q)[0] <= 0:
            return
        quotient, remainder = (self._reduce(operation(name, p, q)) for name in ("floordiv", "mod"))
        equation = add(add(multiply(q, quotient), remainder), p, -1)
        yield equation
        yield multiply(constant(-1), equation)
        if as_constant(remainder) is None:
            yield add(add(q, constant(-1)), remainder, -1)
            if self._interval(p)[0] >= 0:
                yield add(p, remainder, -1)

    # interval arithmetic

    def _interval(self, p: Polynomial) -> tuple[float, float]:
        low: float = 0
        high: float = 0
        for m, c in p:
            ends: tuple[float, float] = (c, c)
            for atom, power in m:
                ends = _product(ends, _power(self._atom_interval(atom), power))
            low, high = low + ends[0], high + ends[1]
        return low, high

    def _atom_interval(self, atom: Atom) -> tuple[float, float]:
        if atom not in self._intervals:
            self._intervals[atom] = (
                self._variable_interval(atom)
                if isinstance(atom, str)
                else self._operation_interval(atom)
            )
        return self._intervals[atom]

    def _operation_interval(self, atom: Atom) -> tuple[float, float]:
        name, p, q = atom
        (a, b), (c, d) = self._interval(p), self._interval(q)
        if name == "max":
            return max(a, c), max(b, d)
        if name == "min":
            return min(a, c), min(b, d)
        if name == "floordiv" and d < 0:
            (a, b), (c, d) = (-b, -a), (-d, -c)
        if c <= 0:
            return -_INFINITY, _INFINITY
        if name == "mod":
            return 0, min(d - 1, b) if a >= 0 else d - 1
        corners = [_quotient(x, y) for x in (a, b) for y in (c, d)]
        return min(corners), max(corners)

    def _variable_interval(self, name: str) -> tuple[float, float]:
        low: float = 1
        high: float = _INFINITY
        for p in self._nonnegative:
            terms = dict(p)
            c = terms.pop(((name, 1),), 0)
            if c and set(terms) <= {()}:  # c * name + k >= 0
                k = terms.get((), 0)
                if c > 0:
                    low = max(low, -(k // c))
                else:
                    high = min(high, k // -c)
        return low, high


def _without_constant(p: Polynomial) -> tuple[Polynomial, int]:
    """Return the terms of `p` that depend on sizes, and the constant term."""
    shift = dict(p).get((), 0)
    return add(p, constant(shift), -1) if shift else p, shift


def _innermost_extreme(p: Polynomial) -> Atom | None:
    """Return an innermost max or min in `p`, or None."""
    for m, _ in p:
        for atom, _ in m:
            if not isinstance(atom, str):
                inner = _innermost_extreme(atom[1]) or _innermost_extreme(atom[2])
                if inner is not None or atom[0] in ("max", "min"):
                    return inner or atom
    return None


def _product(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    corners = [0 if x == 0 or y == 0 else x * y for x in a for y in b]
    return min(corners), max(corners)


def _power(ends: tuple[float, float], power: int) -> tuple[float, float]:
    result = ends
    for _ in range(power - 1):
        result = _product(result, ends)
    return result


def _quotient(a: float, b: float) -> float:
    """Return the floor of a / b for positive b. Both may be infinite."""
    if b == _INFINITY:
        return 0 if a >= 0 else -1
    return a if abs(a) == _INFINITY else a // b
