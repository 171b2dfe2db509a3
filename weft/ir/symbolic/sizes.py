"""Symbolic sizes: the dims of a program that is traced once for all sizes (`weft.export`).

In:   names, and constraints such as `b >= 4` or `mod(b, 8) == 0`.
Out:  `Dim`, an integer that knows the expression it stands for. Sums, products, quotients, remainders, minima and maxima of `Dim`s are
      `Dim`s; a comparison is decided for all sizes that the constraints allow, else it raises InconclusiveDimensionOperation.
How:  an expression is a polynomial over *atoms*: variables, and operations that are not polynomials. As a number a `Dim` has the value of
      its expression at a sample of sizes, its scope's. weft's own code may look at that number, to choose among equal ways to do something;
      `export` compares such a program with those of other samples, so that no sample leaks into a program.
Laws: equal expressions are equal and hash alike; a variable is at least 1. Two different expressions compare as unequal unless the
      constraints make them equal.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.ir.symbolic.polynomials import (
    Atom,
    Monomial,
    Polynomial,
    add,
    as_constant,
    constant,
    evaluate,
    multiply,
    operation,
    parse,
    parsed,
    text,
    variables,
)
from weft.util.errors import InconclusiveDimensionOperation, TracerIntegerConversionError
from weft.util.source import is_internal

_INFINITY = float("inf")


# ---- scopes


class SymbolicScope:
    """The sizes of one program, and the constraints that hold among them.

    `constraints` are strings: `e1 >= e2`, `e1 <= e2`, or `e1 == e2`. Sizes of different scopes do not mix.

    >>> scope = SymbolicScope(["b >= 4", "mod(b, 8) == 0"])
    >>> scope.dim("b") >= 2, scope.dim("b") % 8, scope.dim("b") * 2
    (True, 0, 2*b)
    """

    def __init__(self, constraints_str: Sequence[str] | str = ()):
        given = (constraints_str,) if isinstance(constraints_str, str) else tuple(constraints_str)
        self.constraints = given
        self.sample: dict[str, int] = {}
        self.seen: dict[Polynomial, None] = {}                   # every expression that was computed
        self._equal: list[tuple[Polynomial, Polynomial]] = []
        self._positive: list[Polynomial] = []                    # polynomials that are at least 0
        for one in given:
            self._constrain(one)

    def __repr__(self) -> str:
        return f"SymbolicScope({list(self.constraints)})"

    def __reduce__(self) -> tuple:
        return SymbolicScope, (self.constraints,)

    def _constrain(self, said: str) -> None:
        try:
            node = ast.parse(said.replace("^", "**"), mode="eval").body
        except SyntaxError:
            node = None
        if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], (ast.GtE, ast.LtE, ast.Eq)):
            raise ValueError(f"SymbolicScope: a constraint is e1 >= e2, e1 <= e2 or e1 == e2, got {said!r}.")
        left, right = parsed(node.left, said), parsed(node.comparators[0], said)
        if isinstance(node.ops[0], ast.Eq):
            self._equal.append((left, right))
            self._positive += [add(left, right, -1), add(right, left, -1)]
        else:
            self._positive.append(add(left, right, -1) if isinstance(node.ops[0], ast.GtE) else add(right, left, -1))

    def dim(self, expression: str | Polynomial) -> Any:
        """The size that an expression stands for: a `Dim`, or an int if it depends on no size."""
        p = parse(expression) if isinstance(expression, str) else expression
        for left, right in self._equal:
            if len(left) == 1 and left[0][1] == 1:               # an atom, or a product, that is something simpler
                p = _replaced(p, left[0][0], right)
        number = as_constant(p)
        if number is not None:
            return number
        for name in variables(p):
            self.sample.setdefault(name, 1009 + 2 * len(self.sample))
        self.seen.setdefault(p)
        return Dim(self, p)

    def bounds(self, p: Polynomial) -> tuple[float, float]:
        """The least and the greatest value that a polynomial can have."""
        low, high = self._interval(p)
        for positive in self._positive:
            for k in (1, 2, 3, 4):
                low = max(low, self._interval(add(p, positive, -k))[0])
                high = min(high, self._interval(add(p, positive, k))[1])
        return low, high

    def _interval(self, p: Polynomial) -> tuple[float, float]:
        low = high = 0.0
        for m, c in p:
            a, b = 1.0, 1.0
            for atom, power in m:
                x, y = self._atom_interval(atom)
                for _ in range(power):
                    corners = [_times(u, v) for u in (a, b) for v in (x, y)]
                    a, b = min(corners), max(corners)
            a, b = sorted((_times(a, c), _times(b, c)))
            low, high = low + a, high + b
        return low, high

    def _atom_interval(self, atom: Atom) -> tuple[float, float]:
        if isinstance(atom, str):
            low, high = 1.0, _INFINITY
            for p in self._positive:
                terms = dict(p)
                c = terms.pop(((atom, 1),), 0)
                if c and set(terms) <= {()}:                     # c * atom + k >= 0
                    edge = -terms.get((), 0) / c
                    low, high = (max(low, edge), high) if c > 0 else (low, min(high, edge))
            return low, high
        name, p, q = atom
        (a, b), (c, d) = self._interval(p), self._interval(q)
        if name == "max":
            return max(a, c), max(b, d)
        if name == "min":
            return min(a, c), min(b, d)
        if name == "mod":
            return (0.0, min(d - 1, b) if a >= 0 else d - 1) if c > 0 else (-_INFINITY, _INFINITY)
        if c > 0:
            corners = [_quotient(x, y) for x in (a, b) for y in (c, d)]
            return min(corners), max(corners)
        return -_INFINITY, _INFINITY

    def names(self) -> dict[str, str]:
        """The names that constraints mention, each with the first that does."""
        found: dict[str, str] = {}
        for said in self.constraints:
            node = ast.parse(said.replace("^", "**"), mode="eval").body
            assert isinstance(node, ast.Compare)
            for side in (node.left, node.comparators[0]):
                for name in sorted(variables(parsed(side, said))):
                    found.setdefault(name, said)
        return found

    def admits(self, sizes: Mapping[str, int]) -> str | None:
        """The constraint that these sizes break, None if they break none."""
        for name, n in sizes.items():
            if n < 1:
                return f"{name} >= 1"
        for said in self.constraints:
            node = ast.parse(said.replace("^", "**"), mode="eval").body
            assert isinstance(node, ast.Compare)
            try:
                left, right = (evaluate(parsed(side, said), sizes) for side in (node.left, node.comparators[0]))
            except KeyError:
                continue
            holds = {ast.GtE: left >= right, ast.LtE: left <= right, ast.Eq: left == right}[type(node.ops[0])]
            if not holds:
                return said
        return None


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _quotient(a: float, b: float) -> float:
    return a // b if abs(a) != _INFINITY and b != _INFINITY else (a if b != _INFINITY else (0.0 if a >= 0 else -1.0))


def _replaced(p: Polynomial, target: Monomial, by: Polynomial) -> Polynomial:
    """`p` with every monomial `target` replaced."""
    out: Polynomial = ()
    for m, c in p:
        out = add(out, multiply(by, constant(c)) if m == target else ((m, c),))
    return out


# ---- sizes


class Dim(int):
    """A symbolic size. As a number it is the value of its expression at the sample of its scope."""

    scope: SymbolicScope
    expression: Polynomial

    def __new__(cls, scope: SymbolicScope, expression: Polynomial) -> Dim:
        made = int.__new__(cls, int(evaluate(expression, scope.sample)))
        made.scope, made.expression = scope, expression
        return made

    def __reduce__(self) -> tuple:
        return _dim, (self.scope, self.expression)

    def __repr__(self) -> str:
        return text(self.expression)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __hash__(self) -> int:
        return hash((Dim, self.expression))

    # arithmetic

    def _other(self, other: Any) -> Polynomial | None:
        if isinstance(other, Dim):
            if other.scope is not self.scope:
                raise ValueError(f"symbolic sizes {self} and {other} belong to different scopes ({self.scope} and {other.scope}).\n"
                                 "  Make them by one call of symbolic_shape, or pass the same scope=.")
            return other.expression
        return constant(int(other)) if isinstance(other, int) else None

    def _operation(self, name: str, a: Any, b: Any) -> Any:
        p, q = self._other(a), self._other(b)
        if p is None or q is None:
            return NotImplemented
        if name in ("floordiv", "mod") and as_constant(q) == 0:
            raise ZeroDivisionError(f"a symbolic size is divided by zero: {a} {'//' if name == 'floordiv' else '%'} {b}")
        if name in ("max", "min"):
            low, high = self.scope.bounds(add(p, q, -1))
            if low >= 0 or high <= 0:
                return self.scope.dim(p if (low >= 0) == (name == "max") else q)
        if name == "mod" and self.scope.bounds(p)[0] >= 0 and self.scope.bounds(add(q, p, -1))[0] > 0:
            return self.scope.dim(p)                             # 0 <= p < q
        return self.scope.dim(operation(name, p, q))

    def _sum(self, other: Any, mine: int, theirs: int) -> Any:
        q = self._other(other)
        if q is None:
            return NotImplemented
        return self.scope.dim(add(multiply(constant(mine), self.expression), q, theirs))

    def __add__(self, other: Any) -> Any:
        return self._sum(other, 1, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._sum(other, 1, -1)

    def __rsub__(self, other: Any) -> Any:
        return self._sum(other, -1, 1)

    def __mul__(self, other: Any) -> Any:
        q = self._other(other)
        return NotImplemented if q is None else self.scope.dim(multiply(self.expression, q))

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self.scope.dim(multiply(constant(-1), self.expression))

    def __pos__(self) -> Dim:
        return self

    def __abs__(self) -> Any:
        return self if self.scope.bounds(self.expression)[0] >= 0 else self._operation("max", self, -self)

    def __floordiv__(self, other: Any) -> Any:
        return self._operation("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._operation("floordiv", other, self)

    def __mod__(self, other: Any) -> Any:
        return self._operation("mod", self, other)

    def __rmod__(self, other: Any) -> Any:
        return self._operation("mod", other, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __pow__(self, power: Any, modulus: Any = None) -> Any:
        if type(power) is not int or power < 0 or modulus is not None:
            return NotImplemented
        out: Any = 1
        for _ in range(power):
            out = out * self
        return out

    # comparisons

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int):
            return NotImplemented
        if isinstance(other, Dim) and other.scope is not self.scope:
            return False
        p = add(self.expression, self._other(other) or (), -1)
        return not p or self.scope.bounds(p) == (0, 0)

    def __ne__(self, other: object) -> bool:
        same = self.__eq__(other)
        return same if same is NotImplemented else not same

    def _compare(self, other: Any, sign: str) -> Any:
        q = self._other(other)
        if q is None:
            return NotImplemented
        low, high = self.scope.bounds(add(self.expression, q, -1))
        always, never = {">=": (low >= 0, high < 0), ">": (low > 0, high <= 0),
                         "<=": (high <= 0, low > 0), "<": (high < 0, low >= 0)}[sign]
        if always or never:
            return bool(always)
        if is_internal(sys._getframe(2).f_code.co_filename):     # weft chooses a way; the samples show whether it matters
            mine, theirs = int(self), int(other)
            return {">=": mine >= theirs, ">": mine > theirs, "<=": mine <= theirs, "<": mine < theirs}[sign]
        raise InconclusiveDimensionOperation(
            f"Symbolic dimension comparison '{self}' {sign} '{other}' is inconclusive.\n"
            f"  It holds for some sizes and not for others (constraints: {list(self.scope.constraints)}), and the program is traced once "
            "for all.\n  Add a constraint in symbolic_shape(..., constraints=[...]), or write the program without the comparison.")

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, ">=")

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, ">")

    def __le__(self, other: Any) -> Any:
        return self._compare(other, "<=")

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, "<")

    def __bool__(self) -> bool:
        return self != 0


def _dim(scope: SymbolicScope, expression: Polynomial) -> Any:
    return scope.dim(expression)


def is_symbolic_dim(p: Any) -> bool:
    """Whether a size is symbolic.

    >>> is_symbolic_dim(SymbolicScope().dim("b")), is_symbolic_dim(3)
    (True, False)
    """
    return isinstance(p, Dim)


def as_size(n: Any) -> Any:
    """`operator.index` that leaves symbolic sizes as they are. TypeError for what is no integer, and for traced values their own."""
    if isinstance(n, Dim):
        return n
    try:
        return operator.index(n)
    except TracerIntegerConversionError:
        raise
    except TypeError:
        raise TypeError(f"Shapes must be 1D sequences of concrete values of integer type, got the size {n!r} in a shape.") from None


def max_dim(d1: Any, d2: Any) -> Any:
    """The larger of two sizes, for all sizes that the constraints allow.

    >>> max_dim(2, 3), max_dim(SymbolicScope().dim("b + 5"), 0)
    (3, b + 5)
    """
    return Dim._operation(d1 if isinstance(d1, Dim) else d2, "max", d1, d2) if _any_symbolic(d1, d2) else max(d1, d2)


def min_dim(d1: Any, d2: Any) -> Any:
    """The smaller of two sizes, for all sizes that the constraints allow."""
    return Dim._operation(d1 if isinstance(d1, Dim) else d2, "min", d1, d2) if _any_symbolic(d1, d2) else min(d1, d2)


def _any_symbolic(*sizes: Any) -> bool:
    return any(isinstance(size, Dim) for size in sizes)


# ---- sizes from shapes


class SizesDoNotFit(ValueError):
    """Given values that expressions do not have for any sizes: `reason` says which. `found_by` says which expression gave each size that is
    known."""

    def __init__(self, reason: str, found_by: Sequence[str]):
        self.reason, self.found_by = reason, tuple(found_by)
        super().__init__(f"{reason} Obtained dimension variables: {', '.join(found_by) or 'none'}.")


def solve(unknown: Sequence[tuple[Polynomial, Any, str]]) -> dict[str, Any]:
    """The sizes for which expressions have given values: (expression, value, the dim it is the size of) of each.

    Solves one expression after another for the one variable in it that is not known yet, if that occurs linearly. Raises SizesDoNotFit
    where no sizes fit, and ValueError where an expression cannot be solved.
    """
    sizes: dict[str, Any] = {}
    left, found_by = list(unknown), []
    while left:
        rest = [item for item in left if not _solved(item, sizes, found_by)]
        if len(rest) == len(left):
            p, _, what = rest[0]
            raise ValueError(f"Cannot solve for values of dimension variables {set(variables(p)) - set(sizes)!r}. We can only solve linear "
                             f"uni-variate constraints, and {text(p)} of {what} is none. Give an argument one of whose dims is that size "
                             "itself.")
        left = rest
    return sizes


def _solved(item: tuple[Polynomial, Any, str], sizes: dict[str, Any], found_by: list[str]) -> bool:
    """Find one more of the `sizes` by an item; `found_by` says which item gave each."""
    p, value, what = item
    names = variables(p) - set(sizes)
    if len(names) > 1:
        return False
    if names:
        (name,) = names
        slope = sum(c for m, c in p if m == ((name, 1),))
        if not slope or any(name in variables(((m, 1),)) for m, _ in p if m != ((name, 1),)):
            return False
        rest = value - evaluate(tuple((m, c) for m, c in p if m != ((name, 1),)), sizes)
        if rest % slope != 0:
            raise SizesDoNotFit(f"Division had remainder {rest % slope} when computing the value of '{name}': {text(p)} = {value} has no "
                                f"solution in integers, for the size of {what}.", found_by)
        found_by.append(f"'{name}' = {rest // slope} from specification '{text(p)}' for dimension {what} (= {value})")
        found = rest // slope
        if (found.scope.bounds(found.expression)[0] if isinstance(found, Dim) else found) < 1:       # for some of the sizes it depends on
            raise SizesDoNotFit(f"Expected value >= 1 for dimension variable '{name}'.", found_by)
        sizes[name] = found
        return True
    found = evaluate(p, sizes)
    if found != value:
        raise SizesDoNotFit(f"Found inconsistency between dimension size {what} (= {value}) and the specification '{text(p)}' (= {found}).",
                            found_by)
    return True


def names_in(values: Iterable[Any]) -> frozenset[str]:
    """The names of all symbolic sizes among values."""
    return frozenset().union(*(variables(v.expression) for v in values if isinstance(v, Dim)))
