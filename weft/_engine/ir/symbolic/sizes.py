"""Symbolic sizes: the dims of a program that is traced once for all sizes (`weft.export`).

In:   names, and constraints such as `b >= 4` or `mod(b, 8) == 0`.
Out:  `SymbolicDim`, an expression of sizes. Sums, products, quotients, remainders, minima and maxima of `SymbolicDim`s are `SymbolicDim`s.
      A comparison returns a bool if it has the same result for all sizes that the constraints allow, else it raises
      InconclusiveDimensionOperation.
How:  an expression is a polynomial over *atoms*: variables, and operations that are not polynomials. `bounds` decides comparisons.
Laws: equal expressions compare equal and have equal hashes. A variable is at least 1. Two different expressions compare unequal unless the
      constraints imply that they are equal. A `SymbolicDim` has no value: it cannot be converted to a Python number, and it can be
      converted to an array only inside of a traced program.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from weft._engine.ir.registry import registry
from weft._engine.ir.symbolic.bounds import Bounds
from weft._engine.ir.symbolic.polynomials import (
    Atom,
    Polynomial,
    add,
    as_constant,
    constant,
    evaluate,
    multiply,
    operation,
    parse,
    parse_node,
    replace_monomial,
    text,
    variables,
)
from weft._engine.util.errors import (
    InconclusiveDimensionOperation,
    TracerIntegerConversionError,
    describe,
)
from weft._engine.util.source import user_frame
from weft._engine.util.trees.narrowing import class_of, is_tuple_or_list

# ---- scopes


class SymbolicScope:
    """The sizes of one program and their constraints.

    `constraints` are strings: `e1 >= e2`, `e1 <= e2`, or `e1 == e2`. Sizes of different scopes cannot be combined.

    >>> scope = SymbolicScope(["b >= 4", "mod(b, 8) == 0"])
    >>> scope.dim("b") >= 2, scope.dim("b") % 8, scope.dim("b") * 2
    (True, 0, 2*b)
    """

    __module__ = "weft.export"

    def __init__(self, constraints_str: Sequence[str] | str = ()):
        constraints = (
            (constraints_str,) if isinstance(constraints_str, str) else tuple(constraints_str)
        )
        self.constraints = constraints
        self._parsed = [_parse_constraint(constraint) for constraint in constraints]
        self._equal = [(left, right) for left, sign, right in self._parsed if sign == "=="]
        nonnegative: list[Polynomial] = []
        for left, sign, right in self._parsed:
            if sign in (">=", "=="):
                nonnegative.append(add(left, right, -1))
            if sign in ("<=", "=="):
                nonnegative.append(add(right, left, -1))
        self.known_bounds = Bounds(nonnegative, self._reduce)
        for constraint, (left, sign, right) in zip(constraints, self._parsed):
            low, high = self.bounds(add(left, right, -1))
            if (sign != "<=" and high < 0) or (sign != ">=" and low > 0):
                raise ValueError(
                    f"Unsatisfiable explicit constraint: {constraint}. No sizes satisfy it along with {list(constraints)}."
                )

    def __repr__(self) -> str:
        return f"SymbolicScope({list(self.constraints)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return SymbolicScope, (self.constraints,)

    def _reduce(self, p: Polynomial, only_variables: bool = False) -> Polynomial:
        """Replace the left sides of equality constraints in `p` by the right sides; with `only_variables`, only variables."""
        for left, right in self._equal:
            if len(left) == 1 and left[0][1] == 1 and (not only_variables or is_variable(left)):
                p = replace_monomial(p, left[0][0], right)
        return p

    def dim(self, expression: str | Polynomial) -> Any:
        """Return the size of an expression: a `SymbolicDim`, or an int if it is constant."""
        p = self._reduce(parse(expression) if isinstance(expression, str) else expression)
        number = as_constant(p)
        return SymbolicDim(self, p) if number is None else number

    def constraints_text(self) -> str:
        """Return the constraints as a part of a message."""
        return f" with constraints {', '.join(self.constraints)}" if self.constraints else ""

    def bounds(self, p: Polynomial) -> tuple[float, float]:
        """Return a lower and an upper bound of a polynomial for all sizes that the constraints allow."""
        return self.known_bounds(p)

    def names(self) -> dict[str, str]:
        """Return the names in the constraints, each with the first constraint that contains it."""
        constraint_of: dict[str, str] = {}
        for constraint, (left, _, right) in zip(self.constraints, self._parsed):
            for side in (left, right):
                for name in sorted(variables(self._reduce(side, only_variables=True))):
                    constraint_of.setdefault(name, constraint)
        return constraint_of

    def check(self, sizes: Mapping[str, Any], solutions: Sequence[str]) -> None:
        """Raise InconsistentSizesError for the first constraint that `sizes` violate. `solutions` is a part of the message.

        Sizes may be symbolic themselves. A constraint that does not hold for all of their values is violated.
        """

        def known(p: Polynomial) -> Polynomial:
            return p if variables(p) <= set(sizes) else self._reduce(p, only_variables=True)

        for constraint, (left, sign, right) in zip(self.constraints, self._parsed):
            excess = add(left, right, -1) if sign != "<=" else add(right, left, -1)
            if not variables(known(excess)) <= set(sizes):
                continue
            value = evaluate(known(excess), sizes)
            low, high = value.bounds() if isinstance(value, SymbolicDim) else (value, value)
            if low < 0 or (sign == "==" and high > 0):
                values = [
                    f"'{text(side)}' = {evaluate(known(side), sizes)}"
                    for side in (left, right)
                    if variables(side)
                ]
                relation = "equal to" if sign == "==" else "greater or equal to"
                raise InconsistentSizesError(
                    f"Expected '{text(excess)}' to be {relation} 0, but found {value}. The sizes violate the constraint "
                    f"{constraint}: {', '.join(values)}.",
                    solutions,
                )


def is_variable(p: Polynomial) -> bool:
    """Return whether an expression is a single variable."""
    return (
        len(p) == 1
        and p[0][1] == 1
        and len(p[0][0]) == 1
        and isinstance(p[0][0][0][0], str)
        and p[0][0][0][1] == 1
    )


def _parse_constraint(constraint: str) -> tuple[Polynomial, str, Polynomial]:
    """Return the left side, the sign and the right side of a constraint. Raise ValueError for other text."""
    try:
        node = ast.parse(constraint.replace("^", "**"), mode="eval").body
    except SyntaxError:
        node = None
    sign = (
        _SIGNS.get(type(node.ops[0]))
        if isinstance(node, ast.Compare) and len(node.ops) == 1
        else None
    )
    if not isinstance(node, ast.Compare) or sign is None:
        raise ValueError(
            f"SymbolicScope: a constraint is e1 >= e2, e1 <= e2 or e1 == e2, got {constraint!r}."
        )
    return (
        parse_node(node.left, constraint),
        sign,
        parse_node(node.comparators[0], constraint),
    )


_SIGNS: dict[type[ast.cmpop], str] = {ast.GtE: ">=", ast.LtE: "<=", ast.Eq: "=="}


# ---- sizes


class SymbolicDim:
    """A symbolic size: an integer that is an expression of variables.

    Arithmetic with integers returns sizes. Arithmetic with floats and arrays returns arrays: the size becomes a value of the traced
    program.
    """

    __slots__ = ("expression", "scope")
    #: operators of NumPy values call the operators of this class
    __array_priority__ = 1000

    scope: SymbolicScope
    expression: Polynomial

    def __init__(self, scope: SymbolicScope, expression: Polynomial) -> None:
        self.scope, self.expression = scope, expression

    def __reduce__(self) -> tuple[Any, ...]:
        return _dim, (self.scope, self.expression)

    def __repr__(self) -> str:
        return text(self.expression)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __hash__(self) -> int:
        return hash((id(self.scope), self.expression))

    def __jax_array__(self) -> Any:
        return registry["dim_as_value"].bind(size=self, dtype=None)

    def __index__(self) -> int:
        raise InconclusiveDimensionOperation(
            f"Symbolic dimension '{self}' used in a context that requires a constant.\n"
            "  The program is traced once for all sizes, so int(), range(), NumPy functions and indices of Python sequences cannot use "
            "it.\n  Use functions of weft.numpy (jax.numpy), which accept symbolic sizes, or export for a fixed size."
        )

    __int__ = __float__ = __complex__ = __index__

    def bounds(self) -> tuple[float, float]:
        """Return a lower and an upper bound for all sizes that the constraints allow."""
        return self.scope.bounds(self.expression)

    # arithmetic

    def _operand_expression(self, other: Any) -> Polynomial | None:
        """Return the expression of an operand, or None if it is not an integer. Raise ValueError for a size of another scope."""
        if isinstance(other, SymbolicDim):
            if other.scope is not self.scope:
                raise ValueError(
                    f"symbolic sizes {self} and {other} belong to different scopes ({self.scope} and {other.scope}).\n"
                    "  Create them by one call of symbolic_shape, or pass the same scope=."
                )
            return other.expression
        return constant(int(other)) if issubclass(class_of(other), (int, np.integer)) else None

    def operation(self, name: str, a: Any, b: Any) -> Any:
        p, q = self._operand_expression(a), self._operand_expression(b)
        if p is None or q is None:
            return NotImplemented
        simpler = (
            self._extreme(name, p, q) if name in ("max", "min") else self._quotient(name, p, q)
        )
        return self.scope.dim(operation(name, p, q)) if simpler is None else simpler

    def _extreme(self, name: str, p: Polynomial, q: Polynomial) -> Any:
        """Return the max or min of two expressions if their bounds decide it, or None."""
        low, high = self.scope.bounds(add(p, q, -1))
        if low < 0 < high:
            return None
        return self.scope.dim(p if (low >= 0) == (name == "max") else q)

    def _quotient(self, name: str, p: Polynomial, q: Polynomial) -> Any:
        """Return the floordiv or mod of two expressions if a simpler expression equals it, or None."""
        scope, divisor = self.scope, as_constant(q)
        if divisor == 0:
            mark = "//" if name == "floordiv" else "%"
            raise ZeroDivisionError(
                f"a symbolic size is divided by zero: {scope.dim(p)} {mark} {scope.dim(q)}"
            )
        if divisor == 1:
            return scope.dim(p if name == "floordiv" else constant(0))
        if scope.bounds(q)[0] <= 0:
            return None
        for quotient in (0, -1):  # 0 <= p < q, or -q <= p < 0
            remainder = add(p, q, -quotient)
            if scope.bounds(remainder)[0] >= 0 and scope.bounds(add(q, remainder, -1))[0] > 0:
                return scope.dim(remainder if name == "mod" else constant(quotient))
        choice = _single_extreme(p) if name == "floordiv" else None
        if choice is None:
            return None
        # floor division is monotonic, so it can be applied to the operands of the max or min
        (kind, first, second), factor, remainder = choice
        by = scope.dim(q)
        ends = [
            scope.dim(add(remainder, multiply(constant(factor), end))) // by
            for end in (first, second)
        ]
        choose = max_dim if kind == "max" else min_dim
        return choose(*ends) if factor > 0 else -choose(-ends[0], -ends[1])

    def _arithmetic(self, name: str, a: Any, b: Any) -> Any:
        """Return the result of an operator on `a` and `b`; one of them is this size."""
        p, q = self._operand_expression(a), self._operand_expression(b)
        if p is None or q is None:
            return _with_array(_OPERATORS[name], a, b)
        if name == "mul":
            return self.scope.dim(multiply(p, q))
        return (
            self.scope.dim(add(p, q, 1 if name == "add" else -1))
            if name in ("add", "sub")
            else self.operation(name, a, b)
        )

    def __add__(self, other: Any) -> Any:
        return self._arithmetic("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._arithmetic("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._arithmetic("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._arithmetic("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._arithmetic("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._arithmetic("mul", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self._arithmetic("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._arithmetic("floordiv", other, self)

    def __mod__(self, other: Any) -> Any:
        return self._arithmetic("mod", self, other)

    def __rmod__(self, other: Any) -> Any:
        return self._arithmetic("mod", other, self)

    def __neg__(self) -> Any:
        return self.scope.dim(multiply(constant(-1), self.expression))

    def __pos__(self) -> SymbolicDim:
        return self

    def __abs__(self) -> Any:
        return self.operation("max", self, -self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __pow__(self, power: Any, modulus: Any = None) -> Any:
        if not issubclass(class_of(power), (int, np.integer)) or power < 0 or modulus is not None:
            return _with_array(_OPERATORS["pow"], self, power)
        out: Any = 1
        for _ in range(power):
            out = out * self
        return out

    def __rpow__(self, base: Any) -> Any:
        return _with_array(_OPERATORS["pow"], base, self)

    def __truediv__(self, other: Any) -> Any:
        return _with_array(_OPERATORS["truediv"], self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _with_array(_OPERATORS["truediv"], other, self)

    # comparisons

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SymbolicDim) and other.scope is not self.scope:
            return False
        q = self._operand_expression(other)
        if q is None:
            return NotImplemented
        p = add(self.expression, q, -1)
        return not p or (as_constant(p) is None and self.scope.bounds(p) == (0, 0))

    def __ne__(self, other: object) -> bool:
        same = self.__eq__(other)
        return same if same is NotImplemented else not same

    def _compare(self, other: Any, sign: str) -> Any:
        q = self._operand_expression(other)
        if q is None:
            return _with_array(_COMPARISONS[sign], self, other)
        low, high = self.scope.bounds(add(self.expression, q, -1))
        always, never = {
            ">=": (low >= 0, high < 0),
            ">": (low > 0, high <= 0),
            "<=": (high <= 0, low > 0),
            "<": (high < 0, low >= 0),
        }[sign]
        if always or never:
            return bool(always)
        raise InconclusiveDimensionOperation(
            f"Symbolic dimension comparison '{self}' {sign} '{other}' is inconclusive.\n"
            f"  It is true for some sizes and false for others{self.scope.constraints_text()}, and the program is traced once "
            f"for all sizes.\n  {self._advice(q, sign)}"
        )

    def _advice(self, q: Polynomial, sign: str) -> str:
        """Return the remedy for an inconclusive comparison: the constraint that decides it."""
        more = text(q if sign in (">=", "<") else add(q, constant(1)))
        less = text(add(q, constant(-1)) if sign in (">=", "<") else q)
        return (
            f"Add the constraint '{self} >= {more}' or '{self} <= {less}' in symbolic_shape(..., constraints=[...]), or write the "
            "program without the comparison, for example with max_dim and min_dim."
        )

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


def _single_extreme(p: Polynomial) -> tuple[Atom, int, Polynomial] | None:
    """Return the max or min in `p`, its factor, and the other terms of `p`, if `p` has exactly one and it is a term; else None."""
    terms = [
        (m, c)
        for m, c in p
        if any(not isinstance(atom, str) and atom[0] in ("max", "min") for atom, _ in m)
    ]
    if len(terms) != 1 or len(terms[0][0]) != 1 or terms[0][0][0][1] != 1:
        return None
    ((atom, _),), factor = terms[0]
    return atom, factor, add(p, (terms[0],), -1)


_NO_NAMES: frozenset[str] = frozenset()
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": lambda a, b: a // b,
    "mod": operator.mod,
    "pow": lambda a, b: a**b,
    "truediv": lambda a, b: a / b,
}
_COMPARISONS = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}


def _with_array(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """Apply an operator to sizes as arrays. Return NotImplemented if an operand is not a size, a number or a NumPy array."""
    for x in (a, b):
        if not isinstance(x, (SymbolicDim, bool, int, float, complex, np.ndarray, np.generic)):
            return NotImplemented
    return function(*[x.__jax_array__() if isinstance(x, SymbolicDim) else x for x in (a, b)])


def _dim(scope: SymbolicScope, expression: Polynomial) -> Any:
    return scope.dim(expression)


def is_symbolic_dim(p: Any) -> bool:
    """Return whether a size is symbolic.

    >>> is_symbolic_dim(SymbolicScope().dim("b")), is_symbolic_dim(3)
    (True, False)
    """
    return isinstance(p, SymbolicDim)


def as_size(n: Any) -> Any:
    """Return `operator.index(n)`, or a symbolic size unchanged. Raise TypeError for other values."""
    if isinstance(n, SymbolicDim):
        return n
    try:
        return operator.index(n)
    except TracerIntegerConversionError:
        raise TracerIntegerConversionError(
            describe(
                "",
                f"Shapes must be 1D sequences of concrete values of integer type, got the traced size {n!r} in a shape.",
                where=user_frame(),
                rule="A shape is part of the type of a traced value, so its sizes must be known while tracing.",
                remedy="Make the size a static argument (static_argnums / static_argnames of jit), or compute it from "
                "the shape of an argument.",
            )
        ) from None
    except TypeError:
        raise TypeError(
            f"Shapes must be 1D sequences of concrete values of integer type, got the size {n!r} in a shape."
        ) from None


def as_int(n: Any) -> Any:
    """Return `int(n)`, or a symbolic size unchanged."""
    return n if type(n) is int or isinstance(n, SymbolicDim) else int(n)


def is_at_most(n: Any, limit: Any) -> bool:
    """Return whether `n <= limit` is known to hold for all sizes that the constraints allow.

    False may mean that it holds for some sizes. Use this function to choose between computations with the same result.
    """
    excess = n - limit
    return excess.bounds()[1] <= 0 if isinstance(excess, SymbolicDim) else excess <= 0


def is_more_than(n: Any, limit: Any) -> bool:
    """Return whether `n > limit` is known to hold for all sizes that the constraints allow.

    False may mean that it holds for some sizes. Use this function to choose between computations with the same result.
    """
    excess = n - limit
    return excess.bounds()[0] > 0 if isinstance(excess, SymbolicDim) else excess > 0


def is_multiple(n: Any, divisor: int) -> bool:
    """Return whether `divisor` divides a size. Raise InconclusiveDimensionOperation if that depends on symbolic sizes."""
    remainder = n % divisor
    if isinstance(remainder, SymbolicDim):
        raise InconclusiveDimensionOperation(
            f"Symbolic dimension comparison '{remainder}' == '0' is inconclusive.\n"
            f"  {divisor} divides '{n}' for some sizes and not for others{n.scope.constraints_text()}.\n"
            f"  Add a constraint such as 'mod({n}, {divisor}) == 0' in symbolic_shape(..., constraints=[...])."
        )
    return remainder == 0


def slice_bounds(start: Any, stop: Any, step: Any, n: Any) -> tuple[Any, Any, Any]:
    """Return the first position, the count and the step of `range(n)[start:stop:step]`. Arguments and results may be symbolic.

    If the count is 0, the first position is at most n, and at least 0 (at least -1 for a negative step).

    >>> b = SymbolicScope().dim("b")
    >>> slice_bounds(-3, None, None, b), slice_bounds(None, None, -1, b)
    ((max(0, b - 3), min(3, b), 1), (b - 1, b, -1))
    """
    step = 1 if step is None else as_size(step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    start, stop = (None if bound is None else as_size(bound) for bound in (start, stop))
    start = start + n if start is not None and start < 0 else start
    stop = stop + n if stop is not None and stop < 0 else stop
    if step > 0:
        start = 0 if start is None else start
        limit = n if stop is None else min_dim(max_dim(stop, 0), n)
        span = max_dim(min_dim(limit - start, limit), 0)
        first, count = min_dim(max_dim(start, 0), n), (span + step - 1) // step
        note_nonnegative(n - first - max_dim((count - 1) * step + 1, 0))
        return first, count, step
    limit = -1 if stop is None else max_dim(stop, -1)
    first = n - 1 if start is None else min_dim(start, n - 1)
    first, count = max_dim(first, -1), (max_dim(first - limit, 0) - step - 1) // -step
    note_nonnegative(first + 1 - max_dim((count - 1) * -step + 1, 0))
    note_nonnegative(n - 1 - first)
    return first, count, step


def note_nonnegative(n: Any) -> None:
    """Record that a size is at least 0 by its construction."""
    if isinstance(n, SymbolicDim):
        n.scope.known_bounds.record_nonnegative(n.expression)


def max_dim(d1: Any, d2: Any) -> Any:
    """Return the larger of two sizes. It is a `SymbolicDim` if the constraints do not determine which size is larger.

    >>> max_dim(2, 3), max_dim(SymbolicScope().dim("b + 5"), 0)
    (3, b + 5)
    """
    return (
        SymbolicDim.operation(d1 if isinstance(d1, SymbolicDim) else d2, "max", d1, d2)
        if isinstance(d1, SymbolicDim) or isinstance(d2, SymbolicDim)
        else max(d1, d2)
    )


def min_dim(d1: Any, d2: Any) -> Any:
    """Return the smaller of two sizes. It is a `SymbolicDim` if the constraints do not determine which size is smaller."""
    return (
        SymbolicDim.operation(d1 if isinstance(d1, SymbolicDim) else d2, "min", d1, d2)
        if isinstance(d1, SymbolicDim) or isinstance(d2, SymbolicDim)
        else min(d1, d2)
    )


# ---- sizes from shapes


class UnsolvableSizesError(ValueError):
    """The error for sizes that do not determine their variables. `unprocessed` contains a text for each unsolved expression."""

    def __init__(self, names: Iterable[str], unprocessed: Sequence[str]):
        self.unprocessed = tuple(unprocessed)
        super().__init__(
            f"Cannot solve for values of dimension variables {set(names)}. We can only solve linear uni-variate constraints."
        )


class InconsistentSizesError(ValueError):
    """The error for sizes that contradict their expressions or constraints.

    `reason` describes the contradiction. `solutions` contains a text for each solved variable: its value and the expression that
    determined it.
    """

    def __init__(self, reason: str, solutions: Sequence[str]):
        self.reason, self.solutions = reason, tuple(solutions)
        super().__init__(
            f"{reason} Obtained dimension variables: {', '.join(solutions) or 'none'}."
        )


def solve(unknown: Sequence[tuple[Polynomial, Any, str]], scope: SymbolicScope) -> dict[str, Any]:
    """Return the values of the variables, given triples (expression, value, name of the dim) in `unknown`.

    Solve one expression after another for its only unknown variable, if the variable occurs linearly. Raise InconsistentSizesError if
    there is no solution or it violates a constraint of `scope`. Raise UnsolvableSizesError if no remaining expression can be solved.
    """
    sizes: dict[str, Any] = {}
    pending = list(unknown)
    solutions: list[str] = []
    while pending:
        unsolved = [item for item in pending if not _try_solve(item, sizes, solutions)]
        if len(unsolved) == len(pending):
            names = _NO_NAMES.union(*(variables(p) for p, _, _ in unsolved)) - set(sizes)
            raise UnsolvableSizesError(
                names, [f"'{text(p)}' for dimension size {what}" for p, _, what in unsolved]
            )
        pending = unsolved
    scope.check(sizes, solutions)
    return sizes


def _try_solve(
    item: tuple[Polynomial, Any, str], sizes: dict[str, Any], solutions: list[str]
) -> bool:
    """Solve an item for its unknown variable, add it to `sizes` and `solutions`, and return True.

    Return False if the item cannot be solved yet. Raise InconsistentSizesError for a contradiction.
    """
    p, value, what = item
    names = variables(p) - set(sizes)
    if len(names) > 1:
        return False
    if names:
        (name,) = names
        slope = sum(c for m, c in p if m == ((name, 1),))
        if not slope or any(name in variables(((m, 1),)) for m, _ in p if m != ((name, 1),)):
            return False
        multiple = value - evaluate(tuple((m, c) for m, c in p if m != ((name, 1),)), sizes)
        if multiple % slope != 0:
            raise InconsistentSizesError(
                f"Division had remainder {multiple % slope} when computing the value of '{name}'.",
                solutions,
            )
        solutions.append(
            f"'{name}' = {multiple // slope} from specification '{text(p)}' for dimension {what} (= {value})"
        )
        solution = multiple // slope
        # a symbolic solution must be at least 1 for all sizes on which it depends
        if (solution.bounds()[0] if isinstance(solution, SymbolicDim) else solution) < 1:
            raise InconsistentSizesError(
                f"Expected value >= 1 for dimension variable '{name}'.", solutions
            )
        sizes[name] = solution
        return True
    solution = evaluate(p, sizes)
    if solution != value:
        raise InconsistentSizesError(
            f"Found inconsistency between dimension size {what} (= {value}) and the specification '{text(p)}' (= {solution}).",
            solutions,
        )
    return True


def names_in(values: Iterable[Any]) -> frozenset[str]:
    """Return the names in all symbolic sizes among values."""
    return _NO_NAMES.union(*(variables(v.expression) for v in values if isinstance(v, SymbolicDim)))


def has_names(value: Any) -> bool:
    """Return whether a value, or an element of a nested tuple or list, is a symbolic size."""
    return any(map(has_names, value)) if is_tuple_or_list(value) else isinstance(value, SymbolicDim)
