"""Taylor mode: push the derivatives of curves through a function.

In:   a function, a point, and for each argument the derivatives of a curve through it: the first, the second, and so on.
Out:  the value, and the derivatives of the image of the curve.
Laws: the function maps a curve x(t) with derivatives x_k to y(t) = f(x(t)) with derivatives y_k, all exact; order one is
      `weft.jvp`. A linear operation maps each derivative; a product follows Leibniz's rule. Any other operation uses
      y'(t) = J(x(t)) x'(t): its JVP rule applied to the curves of x and x' of one order less. So every operation with a
      JVP rule has derivatives of all orders.
Source: A. Griewank and A. Walther, "Evaluating Derivatives" (2008), chapter 13; J. Bettencourt, M. J. Johnson and D. Duvenaud,
"Taylor-mode automatic differentiation for higher-order derivatives in JAX" (2019).

>>> value, (first, second) = jet(wnp.sin, (0.0,), ([1.0, 0.0],))
>>> float(value), float(first), float(second)
(0.0, 1.0, 0.0)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

import numpy as np

from weft._engine.api.execute import to_array
from weft._engine.control.call import jit_p
from weft._engine.core.interpret import evaluate
from weft._engine.core.primitive import Primitive, RegionOp, has_rule
from weft._engine.core.trace import (
    Trace,
    Tracer,
    Zero,
    current_trace,
    derived_trace,
    set_trace,
    typeof,
)
from weft._engine.ir.registry import registry
from weft._engine.numpy.creation import asarray
from weft._engine.ops import elementwise as ew, functions
from weft._engine.ops.families import zeros
from weft._engine.transforms.jvp import instantiate
from weft._engine.util import dtypes, tree
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import api_boundary, guard_all

__all__ = [
    "ZeroSeries",
    "ZeroTerm",
    "def_comp",
    "def_deriv",
    "deflinear",
    "defzero",
    "deriv_prop",
    "fact",
    "jet",
    "jet2",
    "jet_rules",
    "linear_prop",
    "zero_prop",
    "zero_series",
    "zero_term",
]


class ZeroSeries:
    """The derivatives of a constant argument."""

    def __repr__(self) -> str:
        return "zero_series"


zero_series = ZeroSeries()


class ZeroTerm:
    """A derivative that is zero."""

    def __repr__(self) -> str:
        return "zero_term"


zero_term = ZeroTerm()


#: the limit on the length of a series; larger factorials take seconds
_MOST_TERMS = 100_000


def fact(n: int) -> int:
    """Return n!, the divisor of the n-th derivative in a Taylor series.

    >>> fact(4)
    24
    """
    if not isinstance(n, (int, np.integer)) or not 0 <= n <= _MOST_TERMS:
        raise TypeError(f"fact: `n` must be an integer from 0 to {_MOST_TERMS}, got {n!r:.60}.")
    return math.factorial(n)


class JetTracer(Tracer):
    """A value with the derivatives of its curve; None stands for a zero derivative."""

    __slots__ = ("aval", "primal", "terms")

    def __init__(self, trace: JetTrace, primal: Any, terms: list):
        self.owning_trace = trace
        self.aval = typeof(primal)
        self.primal = primal
        self.terms = terms

    carries_derivative = True
    why_no_value = "its derivatives would be lost"

    def concrete(self):
        return self.primal.concrete() if isinstance(self.primal, Tracer) else self.primal

    def __repr__(self) -> str:
        return f"JetTracer(primal={self.primal}, terms={self.terms})"

    def describe(self) -> str:
        return f"a value of type {self.aval.str_short()} with {len(self.terms)} derivatives of its curve"


class JetTrace(Trace):
    """The trace that computes with curves of a fixed order of at least 1."""

    __slots__ = ("order", "tag")

    parent: Any

    def __init__(self, tag: Any, parent_trace: Trace | None, order: int):
        super().__init__(parent_trace)
        self.tag, self.order = tag, order

    def split(self, x: Any) -> tuple[Any, list]:
        """Return the value and the derivatives of any operand."""
        if type(x) is JetTracer and x.owning_trace is self:
            return x.primal, x.terms
        return x, [None] * self.order

    def join(self, primal: Any, terms: Sequence) -> Any:
        return primal if all(t is None for t in terms) else JetTracer(self, primal, list(terms))

    def process(self, primitive: Any, args: Sequence, params: dict) -> Any:
        primals, series = map(list, zip(*map(self.split, args))) if args else ([], [])
        moving = [any(t is not None for t in terms) for terms in series]
        if not any(moving):
            return self.parent.process(primitive, primals, params)
        if primitive is jit_p:  # evaluate the called program by this trace
            with set_trace(self):
                return evaluate(params["jaxpr"], *args)
        if primitive in jet_rules.user_rules:
            return self._by_given_rule(
                jet_rules.user_rules[primitive], primitive, primals, series, params
            )
        rule = _RULES.get(primitive.name)
        if rule is None and _is_linear(primitive):
            rule = _linear
        if rule is not None:
            with derived_trace(self.parent):
                result = rule(primitive, primals, series, params)
            if result is not None:
                value, terms = result
                return (
                    [self.join(*pair) for pair in zip(value, terms)]
                    if primitive.multiple_results
                    else self.join(value, terms)
                )
        return self._by_tangents(primitive, primals, series, params)

    def _by_given_rule(
        self, rule: JetRule, primitive: Any, primals: list, series: list, params: dict
    ) -> Any:
        """Apply a library's rule, which uses coefficients of Taylor series."""
        scales = _factorials(self.order)
        with derived_trace(self.parent):
            coefficients = [
                [
                    zeros(typeof(p).to_tangent_aval()) if t is None else _divide_series(t, n)
                    for t, n in zip(terms, scales)
                ]
                for p, terms in zip(primals, series)
            ]
            values, outs = rule(primals, coefficients, **params)
            pairs = list(zip(values, outs)) if primitive.multiple_results else [(values, outs)]
            joined = [
                self.join(x, [None if _is_zero(t) else _times(t, n) for t, n in zip(terms, scales)])
                for x, terms in pairs
            ]
        return joined if primitive.multiple_results else joined[0]

    def _by_tangents(self, primitive: Any, primals: list, series: list, params: dict) -> Any:
        """Apply the JVP rule of an operation to curves of one order less."""
        rule = primitive.jvp
        zero = [Zero(typeof(p).to_tangent_aval()) for p in primals]
        firsts = [z if terms[0] is None else terms[0] for z, terms in zip(zero, series)]
        inner = None
        if self.order == 1:
            with derived_trace(self.parent):
                outs, tangents = rule(primals, firsts, **params)
            split = lambda out, tangent: (out, [_given(tangent)])
        else:
            inner = JetTrace(self.tag, self.parent, self.order - 1)
            moved = [self._joined_tangent(inner, *x) for x in zip(zero, firsts, series)]
            with set_trace(inner):
                curves = [inner.join(p, terms[:-1]) for p, terms in zip(primals, series)]
                outs, tangents = rule(curves, moved, **params)
            split = functools.partial(self._split_inner, inner)
        if not primitive.multiple_results:
            outs, tangents = [outs], [tangents]
        pairs = list(map(split, outs, tangents))
        if inner is not None:
            inner.finished = True
        joined = [self.join(*pair) for pair in pairs]
        return joined if primitive.multiple_results else joined[0]

    def _joined_tangent(self, inner: JetTrace, zero: Zero, first: Any, terms: list) -> Any:
        """Return the tangent of an operand as a curve of one order less."""
        higher_terms = terms[1:]
        if type(first) is Zero and all(t is None for t in higher_terms):
            return zero
        with derived_trace(self.parent):
            return inner.join(instantiate(first), higher_terms)

    def _split_inner(self, inner: JetTrace, out: Any, tangent: Any) -> tuple[Any, list]:
        """Return a result and its series, whose terms are the terms of the tangent."""
        value, terms = None, [None] * (self.order - 1)
        if type(tangent) is not Zero:
            value, terms = inner.split(tangent)
        return inner.split(out)[0], [value, *terms]


def _given(tangent: Any) -> Any:
    return None if type(tangent) is Zero else tangent


# ---- rules: (primitive, primals, series, params) -> the value and its derivatives, or None if the rule does not apply

#: operations with a transpose that are linear in each operand, but not jointly linear
_PRODUCTS = ("mul", "dot_general", "conv_general_dilated", "ragged_dot")
_NOT_LINEAR = {*_PRODUCTS, "div", "scatter-mul", "triangular_solve", "tridiagonal_solve"}


def _is_linear(primitive: Any) -> bool:
    return (
        has_rule(primitive.transpose)
        and not isinstance(primitive, RegionOp)
        and primitive.name not in _NOT_LINEAR
    )


def _linear(primitive: Any, primals: list, series: list, params: dict) -> tuple:
    rule, out = primitive.jvp, []
    value: Any = None
    for terms in zip(*series):
        if all(t is None for t in terms):
            out.append(None)
            continue
        tangents = [
            Zero(typeof(p).to_tangent_aval()) if t is None else t for p, t in zip(primals, terms)
        ]
        value, tangent = rule(primals, tangents, **params)
        out.append([_given(t) for t in tangent] if primitive.multiple_results else _given(tangent))
    if primitive.multiple_results:
        out = [[None if terms is None else terms[i] for terms in out] for i in range(len(value))]
    return value, out


def _sum(terms: list) -> Any:
    """Return the sum of pairs of an integer and a value or None; None for an empty sum."""
    total = None
    for count, x in terms:
        if x is not None:
            x = x if count == 1 else ew.mul(x, count)
            total = x if total is None else ew.add(total, x)
    return total


def _mul(x: Any, y: Any) -> Any:
    return None if x is None or y is None else ew.mul(x, y)


def _leibniz(product: Callable, x: list, y: list, k: int) -> Any:
    """Return the derivative of order `k` of a product of two curves, given as lists that start with their values."""
    return _sum([(math.comb(k, i), product(x[i], y[k - i])) for i in range(k + 1)])


def _product(primitive: Any, primals: list, series: list, params: dict) -> tuple | None:
    if len(primals) > 2 and any(t is not None for terms in series[2:] for t in terms):
        return None
    other_primals = primals[2:]

    def product(x, y):
        return None if x is None or y is None else primitive.bind(x, y, *other_primals, **params)

    x, y = ([p, *terms] for p, terms in zip(primals, series[:2]))
    return product(x[0], y[0]), [_leibniz(product, x, y, k) for k in range(1, len(x))]


def _div(primitive: Any, primals: list, series: list, params: dict) -> tuple:
    (x, y), (xs, ys) = primals, series
    out = [primitive.bind(x, y, **params)]
    for k in range(1, len(xs) + 1):
        less = _sum([(math.comb(k, i), _mul(ys[i - 1], out[k - i])) for i in range(1, k + 1)])
        top = (
            xs[k - 1]
            if less is None
            else ew.neg(less)
            if xs[k - 1] is None
            else ew.sub(xs[k - 1], less)
        )
        out.append(None if top is None else ew.div(top, y))
    return out[0], out[1:]


def _derivative_of_product_with_slope(x: list, out: list, k: int) -> Any:
    """Return the derivative of order k - 1 of `out` times x'."""
    return _sum([(math.comb(k - 1, i), _mul(out[i], x[k - i - 1])) for i in range(k)])


def _exp(primitive: Any, primals: list, series: list, params: dict) -> tuple:
    out = [primitive.bind(*primals, **params)]
    for k in range(1, len(series[0]) + 1):
        out.append(_derivative_of_product_with_slope(series[0], out, k))
    return out[0], out[1:]


def _make_derivative_pair_rule(first: str, second: str, sign: int, which: int) -> Callable:
    """Return the rule of two functions whose derivatives are each other, up to `sign` for the second."""

    def rule(primitive, primals, series, params):
        values = [primitive.bind(*primals, **params)]
        other = registry[second if which == 0 else first].bind(*primals, **params)
        a, b = (values, [other]) if which == 0 else ([other], values)
        for k in range(1, len(series[0]) + 1):
            next_a, next_b = (
                _derivative_of_product_with_slope(series[0], b, k),
                _derivative_of_product_with_slope(series[0], a, k),
            )
            a.append(next_a)
            b.append(next_b if next_b is None or sign == 1 else ew.neg(next_b))
        out = a if which == 0 else b
        return out[0], out[1:]

    return rule


def _integer_pow(primitive: Any, primals: list, series: list, params: dict) -> tuple | None:
    """Apply integer powers of at least 2 by squares and products."""
    power = params["y"]
    if power < 2:
        return None
    square, out = [primals[0], *series[0]], []
    while power:
        if power & 1:
            out = _multiply_curves(out, square) if out else square
        power >>= 1
        if power:
            square = _multiply_curves(square, square)
    return primitive.bind(*primals, **params), out[1:]


def _multiply_curves(a: list, b: list) -> list:
    return [_leibniz(_mul, a, b, k) for k in range(len(b))]


def _pow(primitive: Any, primals: list, series: list, params: dict) -> tuple | None:
    """Apply a power with a varying exponent: z' = z (y log x)'."""
    if all(t is None for t in series[1]):
        return None
    x, y = primals
    logs = [functions.log(x)]
    for k in range(1, len(series[0]) + 1):
        less = _sum(
            [(math.comb(k - 1, i), _mul(series[0][i - 1], logs[k - i])) for i in range(1, k)]
        )
        top = (
            series[0][k - 1]
            if less is None
            else ew.neg(less)
            if series[0][k - 1] is None
            else ew.sub(series[0][k - 1], less)
        )
        logs.append(None if top is None else ew.div(top, x))
    converted = [
        None if t is None else ew.convert_element_type(t, typeof(x).dtype) for t in (y, *series[1])
    ]
    exponent = [_leibniz(_mul, converted, logs, k) for k in range(1, len(logs))]
    out = [primitive.bind(*primals, **params)]
    for k in range(1, len(logs)):
        out.append(_derivative_of_product_with_slope(exponent, out, k))
    return out[0], out[1:]


_RULES: dict[str, Callable] = {
    **dict.fromkeys(_PRODUCTS, _product),
    "div": _div,
    "exp": _exp,
    "integer_pow": _integer_pow,
    "pow": _pow,
    "sin": _make_derivative_pair_rule("sin", "cos", -1, 0),
    "cos": _make_derivative_pair_rule("sin", "cos", -1, 1),
    "sinh": _make_derivative_pair_rule("sinh", "cosh", 1, 0),
    "cosh": _make_derivative_pair_rule("sinh", "cosh", 1, 1),
}


# ---- the transformation


def _factorials(order: int) -> list[int]:
    """Return the factors between coefficients of a Taylor series and derivatives, from order 1 on."""
    return [math.factorial(k) for k in range(1, order + 1)]


def _divide_series(x: Any, n: int) -> Any:
    return x if n == 1 else ew.div(x, n)


def _times(x: Any, n: int) -> Any:
    return x if n == 1 else ew.mul(x, n)


def _is_zero(term: Any) -> bool:
    return isinstance(term, (ZeroTerm, Zero))


def _series_of(position: int, primal: Any, terms: Any, order: int, scales: Sequence[int]) -> list:
    """Return the derivatives of an argument: its terms times `scales`; None for zeros."""
    aval = typeof(primal)
    if terms is zero_series or not dtypes.issubdtype(aval.dtype, np.inexact):
        return [None] * order
    out = []
    for term, scale in zip(terms, scales):
        if _is_zero(term):
            out.append(None)
            continue
        if np.shape(term) != tuple(aval.shape):
            raise ValueError(
                f"jet: the series of argument {position} has a term of shape {np.shape(term)}, but the argument has shape "
                f"{tuple(aval.shape)}."
            )
        out.append(_times(ew.convert_element_type(asarray(term), aval.dtype), scale))
    return out


def _check_arrays(primals: list, series: list) -> None:
    """Raise ValueError for a primal value or a term of a series that is not an array."""
    for i, x in enumerate(primals):
        if not tree.treedef_is_leaf(tree.tree_structure(x)):
            raise ValueError(
                f"jet: the primal value at position {i} is not an array: {type(x).__name__}."
            )
    for i, terms in enumerate(series):
        for j, term in enumerate(() if terms is zero_series else terms):
            if not tree.treedef_is_leaf(tree.tree_structure(term)):
                raise ValueError(
                    f"jet: term {j} of the series of argument {i} is not an array: {type(term).__name__}."
                )


@api_boundary
def jet(
    fun: Callable, primals: Sequence, series: Sequence, factorial_scaled: bool = True
) -> tuple[Any, Any]:
    """Return the value of `fun` at the arrays `primals`, and the derivatives of the image of curves through them.

    `series` has a list for each argument: the first derivative of its curve, the second, and so on, with equal lengths; or
    `zero_series`. The result is `fun(*primals)` and a tree of its structure, with such a list in place of every array.
    Without `factorial_scaled`, both series hold Taylor coefficients: the derivative of order k divided by k!.
    Raises ValueError for arguments that are not arrays, and for series of different lengths or shapes.

    >>> value, terms = jet(lambda x: x**3, (2.0,), ([1.0, 0.0, 0.0],))
    >>> float(value), [float(t) for t in terms]
    (8.0, [12.0, 12.0, 6.0])
    """
    primals, series = list(primals), list(series)
    if len(primals) != len(series):
        raise ValueError(
            f"jet: there are {quantity(len(primals), 'primal')}, but {len(series)} series."
        )
    lengths = {len(terms) for terms in series if terms is not zero_series}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            f"jet: all series must have one length from 1 up, got lengths {sorted(lengths)}."
        )
    order = lengths.pop()
    _check_arrays(primals, series)
    primals = [x if isinstance(x, Tracer) else to_array(x) for x in primals]
    scales = [1] * order if factorial_scaled else _factorials(order)
    all_terms = [
        _series_of(i, x, terms, order, scales) for i, (x, terms) in enumerate(zip(primals, series))
    ]
    trace = JetTrace(None, current_trace(), order)
    with set_trace(trace):
        outs, structure = tree.tree_flatten(fun(*map(trace.join, primals, all_terms)))
    pairs = [trace.split(x if isinstance(x, Tracer) else to_array(x)) for x in outs]
    trace.finished = True
    values = [value for value, _ in pairs]
    terms = [
        [zeros(typeof(value)) if t is None else _divide_series(t, n) for t, n in zip(terms, scales)]
        for value, terms in pairs
    ]
    return tree.tree_unflatten(structure, values), tree.tree_unflatten(structure, terms)


#: `jet` on coefficients of Taylor series
jet2 = functools.partial(jet, factorial_scaled=False)


# ---- rules of libraries

JetRule = Callable[..., tuple[Any, Any]]


class JetRules(MutableMapping[Primitive, JetRule]):
    """The rules of primitives: `rule(primals, series, **params)` returns the value and its series of Taylor coefficients.
    Setting a rule replaces weft's own; deleting it restores weft's.

    >>> value, series = jet_rules[lax.sin_p]((0.0,), ([1.0, 0.0, 0.0],))
    >>> float(value), [round(float(x), 4) + 0.0 for x in series]
    (0.0, [1.0, 0.0, -0.1667])
    """

    def __init__(self) -> None:
        self.user_rules: dict[Primitive, JetRule] = {}

    def __getitem__(self, primitive: Primitive) -> JetRule:
        if primitive in self.user_rules:
            return self.user_rules[primitive]
        if not isinstance(primitive, Primitive) or not has_rule(primitive.jvp):
            raise KeyError(primitive)
        return lambda primals, series, **params: jet2(
            lambda *xs: primitive.bind(*xs, **params), primals, series
        )

    def __setitem__(self, primitive: Primitive, rule: JetRule) -> None:
        if not isinstance(primitive, Primitive):
            raise TypeError(
                f"jet_rules: a rule is for a primitive, got {primitive!r}. Make one with weft.extend.core.Primitive(name)."
            )
        self.user_rules[primitive] = rule

    def __delitem__(self, primitive: Primitive) -> None:
        del self.user_rules[primitive]

    def __iter__(self) -> Iterator[Primitive]:
        return iter(
            dict.fromkeys(
                [*self.user_rules, *(p for p in list(registry.values()) if has_rule(p.jvp))]
            )
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)


jet_rules = JetRules()


def deriv_prop(
    prim: Primitive,
    deriv: Callable[[Any], Any],
    primals_in: Sequence[Any],
    series_in: Sequence[Any],
) -> tuple[Any, list]:
    """Return the value and series of a function of one array whose derivative is `deriv`."""
    (x,), (terms,) = primals_in, series_in
    slopes = [deriv(x)]
    if len(terms) > 1:
        value, higher = jet2(deriv, (x,), (terms[:-1],))
        slopes = [value, *higher]
    out = []
    for k in range(1, len(terms) + 1):
        total = _sum([(j, ew.mul(terms[j - 1], slopes[k - j])) for j in range(1, k + 1)])
        out.append(_divide_series(total, k))
    return prim.bind(x), out


def def_deriv(prim: Primitive, deriv: Callable[[Any], Any]) -> None:
    """Define the rule of a function of one array by its derivative `deriv`."""
    jet_rules[prim] = functools.partial(deriv_prop, prim, deriv)


def def_comp(prim: Primitive, comp: Callable[..., Any], **kwargs: Any) -> None:
    """Define the rule of a primitive by the equal function `comp(*arrays, **kwargs)`."""
    jet_rules[prim] = lambda primals, series, **params: jet2(
        functools.partial(comp, **kwargs), primals, series
    )


def linear_prop(
    prim: Primitive, primals_in: Sequence[Any], series_in: Sequence[Any], **params: Any
) -> tuple[Any, list]:
    """Return the value and series of a linear primitive, which maps each coefficient."""
    value = prim.bind(*primals_in, **params)
    outs = [prim.bind(*terms, **params) for terms in zip(*series_in)]
    return value, list(map(list, zip(*outs))) if prim.multiple_results else outs


def deflinear(prim: Primitive) -> None:
    """Declare a primitive linear."""
    jet_rules[prim] = functools.partial(linear_prop, prim)


def zero_prop(
    prim: Primitive, primals_in: Sequence[Any], series_in: Sequence[Any], **params: Any
) -> tuple[Any, list]:
    """Return the value and series of a primitive whose derivatives are all zero."""
    value, order = prim.bind(*primals_in, **params), len(series_in[0])
    none: list = [zero_term] * order
    return value, [none] * len(value) if prim.multiple_results else none


def defzero(prim: Primitive) -> None:
    """Declare that all derivatives of a primitive are zero."""
    jet_rules[prim] = functools.partial(zero_prop, prim)


guard_all(globals())
