"""Expressions of sizes in normal form: polynomials over variables and over operations that are not polynomials.

In:   texts, or expressions to combine.
Out:  tuples of (monomial, coefficient). Equal expressions are equal tuples.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping
from typing import Any

#: (atom, power) pairs in order; the empty monomial is 1
Monomial = tuple[tuple[Any, int], ...]
#: a variable, or (operation, polynomial, polynomial)
Atom = Any
Polynomial = tuple[tuple[Monomial, int], ...]

_OPERATIONS = ("floordiv", "mod", "max", "min")


# ---- polynomials


def _poly(terms: Mapping[Monomial, int]) -> Polynomial:
    """Return the polynomial with the given terms, in canonical order: high degrees first."""
    nonzero = [(m, c) for m, c in terms.items() if c]
    return tuple(
        sorted(
            nonzero,
            key=lambda term: (
                -sum(p for _, p in term[0]),
                [(_text_of_atom(a), -p) for a, p in term[0]],
            ),
        )
    )


def constant(n: int) -> Polynomial:
    return _poly({(): n})


def variable(name: str) -> Polynomial:
    return _poly({((name, 1),): 1})


def as_constant(p: Polynomial) -> int | None:
    """Return the value of a constant polynomial, or None if it depends on a size."""
    if not p:
        return 0
    return p[0][1] if len(p) == 1 and not p[0][0] else None


def add(p: Polynomial, q: Polynomial, factor: int = 1) -> Polynomial:
    """Return p + factor * q."""
    terms = dict(p)
    for m, c in q:
        terms[m] = terms.get(m, 0) + factor * c
    return _poly(terms)


def multiply(p: Polynomial, q: Polynomial) -> Polynomial:
    terms: dict[Monomial, int] = {}
    for m, c in p:
        for n, d in q:
            powers = dict(m)
            for atom, power in n:
                powers[atom] = powers.get(atom, 0) + power
            key = tuple(sorted(powers.items(), key=lambda pair: _text_of_atom(pair[0])))
            terms[key] = terms.get(key, 0) + c * d
    return _poly(terms)


def _divide_exactly(p: Polynomial, q: Polynomial) -> Polynomial | None:
    """Return p / q if the division has no remainder, else None."""
    if len(q) != 1:
        return _long_division(p, q)
    m, c = q[0]
    terms: dict[Monomial, int] = {}
    for n, d in p:
        powers = dict(n)
        for atom, power in m:
            powers[atom] = powers.get(atom, 0) - power
        if d % c or min(powers.values(), default=0) < 0:
            return None
        terms[tuple((atom, power) for atom, power in powers.items() if power)] = d // c
    return _poly(terms)


def _long_division(p: Polynomial, q: Polynomial) -> Polynomial | None:
    """Return p / q by long division in lexicographic order of terms, or None if the division has a remainder."""
    atoms = sorted({atom for m, _ in (*p, *q) for atom, _ in m}, key=_text_of_atom)

    def order(term: tuple[Monomial, int]) -> list[int]:
        powers = dict(term[0])
        return [powers.get(atom, 0) for atom in atoms]

    lead, quotient = max(q, key=order), constant(0)
    while p:
        part = _divide_exactly((max(p, key=order),), (lead,))
        if part is None:
            return None
        quotient, p = add(quotient, part), add(p, multiply(part, q), -1)
    return quotient


def operation(name: str, p: Polynomial, q: Polynomial) -> Polynomial:
    """Return the floordiv, mod, max or min of two polynomials, simplified."""
    a, b = as_constant(p), as_constant(q)
    if a is not None and b is not None:
        return constant(_COMPUTE[name](a, b))
    if name in ("max", "min"):
        return p if p == q else _poly({(((name, *sorted((p, q), key=text)), 1),): 1})
    is_quotient = name == "floordiv"
    exact = _divide_exactly(p, q)
    if exact is None and b:  # b + mod(-b, 4) is a multiple of 4
        exact = _divide_exactly(_with_quotients(p, b), q)
    if exact is not None:
        return exact if is_quotient else constant(0)
    if b and b < 0:
        opposite = operation(name, multiply(constant(-1), p), constant(-b))
        return opposite if is_quotient else multiply(constant(-1), opposite)
    multiples = _multiples(p, b)
    if multiples:  # (4*b + 3) // 2 is 2*b + 1
        inner = operation(name, add(p, multiples, -1), q)
        return inner if not is_quotient else add(_divide_exactly(multiples, q) or (), inner)
    return _poly({(((name, p, q), 1),): 1})


def _multiples(p: Polynomial, divisor: int | None) -> Polynomial:
    """Return the terms of `p` whose coefficients are multiples of a constant; the constant term is rounded down to a multiple."""
    if not divisor:
        return ()
    terms: dict[Monomial, int] = {}
    for monomial, c in p:
        if monomial == ():
            terms[monomial] = c - c % divisor
        elif c % divisor == 0:
            terms[monomial] = c
    return _poly(terms)


def _with_quotients(p: Polynomial, divisor: int) -> Polynomial:
    """Replace each mod(r, divisor) in `p` by r - divisor*floordiv(r, divisor)."""
    q = constant(divisor)
    for m, _ in p:
        for atom, _ in m:
            if not isinstance(atom, str) and atom[0] == "mod" and atom[2] == q:
                quotient = _poly({((("floordiv", atom[1], q), 1),): 1})
                p = replace_monomial(p, ((atom, 1),), add(atom[1], multiply(q, quotient), -1))
    return p


_COMPUTE: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
}


def evaluate(p: Polynomial, sizes: Mapping[str, Any]) -> Any:
    """Return the value of `p` for the given sizes, which may be symbolic. Raise KeyError for a variable without a size."""
    total: Any = 0
    for m, c in p:
        term: Any = c
        for atom, power in m:
            value = (
                sizes[atom]
                if isinstance(atom, str)
                else _apply(atom[0], evaluate(atom[1], sizes), evaluate(atom[2], sizes))
            )
            for _ in range(power):
                term = term * value
        total = total + term
    return total


def _apply(name: str, a: Any, b: Any) -> Any:
    if name == "floordiv":
        return a // b
    if name == "mod":
        return a % b
    for x in (a, b):
        if hasattr(x, "expression"):  # a symbolic size
            return x.operation(name, a, b)
    return _COMPUTE[name](a, b)


def replace_monomial(p: Polynomial, target: Monomial, by: Polynomial) -> Polynomial:
    """Replace every monomial `target` in `p` by `by`, also in the operands of operations."""
    out: Polynomial = ()
    for m, c in p:
        if m == target:
            out = add(out, multiply(by, constant(c)))
            continue
        term = constant(c)
        for atom, power in m:
            if not isinstance(atom, str):
                a, b = (replace_monomial(operand, target, by) for operand in atom[1:])
                factor = (
                    _poly({((atom, 1),): 1}) if (a, b) == atom[1:] else operation(atom[0], a, b)
                )
                factor = by if target == ((atom, 1),) else factor
            else:
                factor = by if target == ((atom, 1),) else variable(atom)
            for _ in range(power):
                term = multiply(term, factor)
        out = add(out, term)
    return out


def variables(p: Polynomial) -> frozenset[str]:
    """Return the names of the variables in a polynomial."""
    names: set[str] = set()
    for m, _ in p:
        for atom, _ in m:
            names |= {atom} if isinstance(atom, str) else variables(atom[1]) | variables(atom[2])
    return frozenset(names)


def text(p: Polynomial) -> str:
    """Return the text of a polynomial.

    Terms of higher degree come first; terms of equal degree are ordered by their number of factors, then by names from last to first.

    >>> text(add(multiply(variable("b"), constant(2)), constant(-1)))
    '2*b - 1'
    """
    if not p:
        return "0"
    parts: list[str] = []
    for m, c in sorted(p, key=_place_in_text, reverse=True):
        body = "*".join(_text_of_atom(a) if k == 1 else f"{_text_of_atom(a)}^{k}" for a, k in m)
        number = "" if body and abs(c) == 1 else str(abs(c))
        parts.append(("- " if c < 0 else "+ ") + "*".join(filter(None, (number, body))))
    return " ".join(parts).removeprefix("+ ")


def _place_in_text(term: tuple[Monomial, int]) -> tuple[Any, ...]:
    powers = term[0]
    return (
        sum(k for _, k in powers),
        len(powers),
        [(_text_of_atom(a), k) for a, k in reversed(powers)],
    )


@functools.lru_cache(maxsize=1 << 14)
def _text_of_atom(atom: Atom) -> str:
    return atom if isinstance(atom, str) else f"{atom[0]}({text(atom[1])}, {text(atom[2])})"


# ---- parsing


def parse(expression: str) -> Polynomial:
    """Return the polynomial with the given text. Raise ValueError for other text."""
    try:
        node = ast.parse(expression.strip().replace("^", "**"), mode="eval").body
    except SyntaxError:
        raise ValueError(
            f"syntax error in symbolic shape: {expression!r} is not an expression of sizes, such as 2*b + 1 or "
            "floordiv(b, 2)."
        ) from None
    return parse_node(node, expression)


_BINARY: dict[type[ast.operator], Callable[[Polynomial, Polynomial], Polynomial]] = {
    ast.Add: add,
    ast.Sub: lambda p, q: add(p, q, -1),
    ast.Mult: multiply,
    ast.FloorDiv: lambda p, q: operation("floordiv", p, q),
    ast.Mod: lambda p, q: operation("mod", p, q),
}
_SIGNS: dict[type[ast.unaryop], int] = {ast.UAdd: 1, ast.USub: -1}


def parse_node(node: ast.expr, whole: str) -> Polynomial:
    """Return the polynomial of a syntax tree. `whole` is the text for error messages."""
    match node:
        case ast.Constant(value) if type(value) is int:
            return constant(value)
        case ast.Name(name):
            return variable(name)
        case ast.UnaryOp(op, operand) if type(op) in _SIGNS:
            return multiply(constant(_SIGNS[type(op)]), parse_node(operand, whole))
        case ast.BinOp(left, op, right):
            p, q = parse_node(left, whole), parse_node(right, whole)
            if type(op) in _BINARY:
                return _BINARY[type(op)](p, q)
            power = as_constant(q)
            if isinstance(op, ast.Pow) and power is not None and power >= 0:
                out = constant(1)
                for _ in range(power):
                    out = multiply(out, p)
                return out
        case ast.Call(ast.Name(name), [first, second]) if name in _OPERATIONS:
            return operation(name, parse_node(first, whole), parse_node(second, whole))
        case _:
            pass
    raise ValueError(
        f"syntax error in symbolic shape: {whole!r} is not an expression of sizes: it contains {ast.unparse(node)!r}. Expressions "
        f"of sizes consist of names, integers, +, -, *, ^, //, %, and {', '.join(_OPERATIONS)}."
    )
