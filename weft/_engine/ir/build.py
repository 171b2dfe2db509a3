"""Builder: creates Loops expressions, folds constants, and keeps index arithmetic in affine normal form.

In:   calls by the `lower` rules of operations and by the compiler.
Out:  expressions of `ir.loops`. Equal expressions are the same object, so they form a DAG.
Laws: index arithmetic is on non-negative i64 numbers, except that a guarded position may be negative if its guard is
      false.

Half floats: kernels compute bf16 and f16 in f32. A value is rounded when it is stored and when a program converts a value
to the half type (`cast` to bf16 or f16), not after every operation. `bitcast` uses the rounded value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Union, overload

import numpy as np

from weft._engine.ir.loops import (
    COMPARISONS,
    COMPLEX_OF,
    EXPRESSIONS,
    FLOATS,
    INTEGERS,
    REAL_OF,
    Const,
    Expr,
    Index,
    Load,
    ScalarOp,
    ScalarRef,
)
from weft._engine.ir.registry import functions
from weft._engine.ir.types import ShapedArray

IndexLike = Union[Expr, int]

#: name of a NumPy dtype -> name of the Loops type
TYPE_NAMES = {
    "bool": "bool",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "complex64": "c64",
    "complex128": "c128",
}
_types: dict[Any, Any] = {}
HALVES = frozenset({"bf16", "f16"})
_BITS = {
    "bool": 1,
    "i8": 8,
    "u8": 8,
    "i16": 16,
    "u16": 16,
    "i32": 32,
    "u32": 32,
    "i64": 64,
    "u64": 64,
}
#: the least and the greatest i64: the range of an unknown value
LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
_BOOL_FOLDS: dict[str, Callable[[bool, bool], bool]] = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


_MIRRORED = {"ge": "le", "gt": "lt"}
#: id of a base expression -> its coefficient, in an affine form
_Terms = dict[int, int]
#: quotient and remainder
_Division = tuple[Expr, Expr]


def type_name(dtype: Any) -> str:
    """Return the Loops type of a NumPy dtype. Raise NotImplementedError if kernels do not support it.

    >>> type_name(np.dtype("float32"))
    'f32'
    """
    cached = _types.get(dtype)  # computing the name of a NumPy dtype is slow
    if cached is not None:
        return cached
    try:
        cached = _types[dtype] = TYPE_NAMES[dtype.name]
        return cached
    except KeyError:
        raise NotImplementedError(
            f"compile: kernels do not support arrays of dtype {dtype.name}"
        ) from None


class _KernelDtypes(dict[Any, bool]):
    """A cache: dtype -> whether kernels compute with numbers of the dtype."""

    def __missing__(self, dtype: Any) -> bool:
        self[dtype] = is_supported = dtype.name in TYPE_NAMES
        return is_supported


#: dtype -> whether kernels compute with numbers of the dtype
KERNEL_DTYPES = _KernelDtypes()


class LoopsBuilder:
    """A factory of expressions. Loop variables are declared with their extents, so that `idiv` and `irem` can be folded.

    >>> b = LoopsBuilder()
    >>> i, j = b.index("i", 4), b.index("j", 8)
    >>> flat = b.iadd(b.imul(i, 8), j)
    >>> b.idiv(flat, 8) is i, b.irem(flat, 8) is j
    (True, True)
    """

    __slots__ = ("_affine", "_expressions", "_quotients", "_range", "_terms", "levels", "zeros")

    def __init__(self) -> None:
        #: key -> expression
        self._expressions: dict[Any, Any] = {}
        #: id of an expression -> its affine form: (id of base expression -> coefficient, constant)
        self._affine: dict[int, tuple[dict[int, int], int]] = {}
        #: id of an expression -> its least and greatest value
        self._range: dict[int, tuple[int, int]] = {}
        #: id -> base expression of affine forms
        self._terms: dict[int, Expr] = {}
        #: id of a quotient a / k -> every (id of a % k, k, a)
        self._quotients: dict[int, list[tuple[int, int, Expr]]] = {}
        #: id of an Index -> nesting depth of its loop
        self.levels: dict[int, int] = {}
        #: ids of guarded loads whose default value of zero is used
        self.zeros: set[int] = set()

    # ---- leaves

    def type_of(self, aval: ShapedArray) -> str:
        """Return the Loops type of an array type's elements."""
        return type_name(aval.dtype)

    def const(self, value: Any, type: str) -> Expr:
        """Return a literal of `type`. A half type gives an f32 literal of the rounded value."""
        if type == "bool":
            value = bool(value)
        elif type in INTEGERS:
            value = int(value)
            if type != "i64" or not LEAST <= value <= GREATEST:
                value = _wrap(value, type)
        elif type in HALVES:
            value, type = _round_half(float(value), type), "f32"
        elif type in FLOATS:
            value = float(value)
        else:
            value = complex(value)
        key = ("const", type, repr(value))
        expr = self._expressions.get(key)
        if expr is None:
            expr = self._expressions[key] = Const(value, type)
            if type == "i64":
                self._affine[id(expr)] = ({}, expr.value)
                self._range[id(expr)] = (expr.value, expr.value)
        return expr

    def index(self, name: str, extent: int | None = None, level: int = 0) -> Expr:
        """Return the variable of loop `name` with extent `extent` and nesting depth `level`.

        Comparisons with the variable are folded for all loops with this name, so no such loop may be longer than the first.
        Raise ValueError for a longer loop.
        """
        key = ("index", name)
        variable = self._expressions.get(key)
        if (
            variable is not None
            and extent is not None
            and extent - 1 > self._range[id(variable)][1]
        ):
            raise ValueError(
                f"build: loop {name!r} has extent {extent}, but comparisons were folded for extent {self._range[id(variable)][1] + 1}"
            )
        if variable is None:
            variable = self._expressions[key] = Index(name)
            self._range[id(variable)] = (0, GREATEST if extent is None else max(extent - 1, 0))
            self.levels[id(variable)] = level
            self._register_base(variable)
        return variable

    def ref(self, name: str, type: str) -> Expr:
        """Return the value of a `Let` or accumulator."""
        return self._cons(("ref", name, type), lambda: ScalarRef(name, type))

    def load(self, buf: str, index: IndexLike, type: str, guard: Expr | None = None) -> Expr:
        """Return an element of a buffer, which is zero if `guard` is false."""
        index = self._as_index(index)
        if isinstance(guard, Const):
            if not guard.value:
                return self.const(0, type)
            guard = None
        key = ("load", buf, id(index), type, id(guard))
        expr = self._expressions.get(key)
        if expr is None:
            other = None if guard is None else Const(_zero(type), type)
            expr = self._expressions[key] = Load(buf, index, type, guard, other)
        return expr

    # ---- scalar arithmetic

    def op(self, name: str, *args: Any, type: str | None = None) -> Expr:
        """Return the scalar operation `name`. Python numbers among `args` get the type of the first expression."""
        if None in [getattr(a, "type", None) for a in args]:
            args = self._with_literals(name, args, type)
        if name == "select":
            return self.select(*args)
        if name == "cast":
            return self.cast(args[0], type or args[0].type)
        if name == "bitcast":
            return self.bitcast(args[0], type or args[0].type)
        if not HALVES.isdisjoint([a.type for a in args]):
            args = tuple([self._widen(a) for a in args])
        return self._simplify(name, args, _result_type(name, args[0].type, type))

    def _simplify(self, name: str, args: tuple[Expr, ...], type: str) -> Expr:
        """Return an operation on values of kernel types, folded if its operands determine the result."""
        if type == "i64" and name in _INDEX_ARITHMETIC:
            return _INDEX_ARITHMETIC[name](self, *args)
        literals = [a.value for a in args if isinstance(a, Const)]
        if len(literals) == len(args):
            folded = _fold(name, literals, type)
            if folded is not None:
                return self.const(folded, type)
        if type == "bool" and name in ("and", "or"):
            return self._logical(name, *args)
        if name in COMPARISONS and args[0].type == "i64":
            return self.icmp(name, *args)
        return self._op(name, args, type)

    def _with_literals(
        self, name: str, args: tuple[Any, ...], type: str | None
    ) -> tuple[Expr, ...]:
        """Replace Python numbers by literals of the first expression's type."""
        typed = [a.type for a in args[name == "select" :] if hasattr(a, "type")]
        like = typed[0] if typed else type or "i64"
        return tuple([a if hasattr(a, "type") else self.const(a, like) for a in args])

    def op_of_type(self, name: str, *args: Expr, type: str) -> Expr:
        """Return operation `name` in `type` itself, for operations whose result in a half type is not the rounded result in f32."""
        return self._widen(self._op(name, tuple([self.storage_form(a, type) for a in args]), type))

    def cast(self, x: Expr, type: str) -> Expr:
        """Convert `x` to `type`. A conversion to bf16 or f16 rounds and returns an f32 value."""
        if x.type == type:
            return x
        if type in HALVES:
            if isinstance(x, Const) and x.type in ("bool", "f32", *INTEGERS):
                return self.const(x.value, type)
            return self._widen(self._op("cast", (self._widen(x),), type))
        x = self._widen(x)
        if x.type == type:
            return x
        if isinstance(x, Const):
            value = x.value
            if type == "bool":
                return self.const(value != 0, type)
            if x.type in INTEGERS or x.type == "bool":
                return self.const(value, type)
            if x.type in FLOATS and (type not in INTEGERS):
                return self.const(value, type)
        if type == "bool":
            return self.op("ne", x, self.const(0, x.type))
        result = self._op("cast", (x,), type)
        if type == "i64" and x.type in _BITS and id(result) not in self._range:
            self._range[id(result)] = _type_range(x.type)
        return result

    def to_index(self, x: Expr) -> Expr:
        """Convert an integer to an index. Large u64 values become the greatest index, not a negative one."""
        return self.cast(
            self.op("min", x, self.const(GREATEST, "u64")) if x.type == "u64" else x, "i64"
        )

    def storage_form(self, x: Expr, type: str) -> Expr:
        """Return `x` as a value that a buffer of `type` can store. Values of half types are rounded here."""
        if x.type == type:
            return x
        if type in HALVES:
            # a value that was widened from the same half type needs no second rounding
            half = _narrow(x, type)
            if half is not None:
                return half
            # functions of half values have cheaper formulas if the result is rounded to the half type
            if isinstance(x, ScalarOp) and functions[x.op]:
                halves = [half for a in x.args if (half := _narrow(a, type)) is not None]
                if len(halves) == len(x.args):
                    return self._op(x.op, tuple(halves), type)
            return self._op("cast", (x,), type)
        return self.cast(x, type)

    def bitcast(self, x: Expr, type: str, source: str | None = None) -> Expr:
        """Reinterpret the bits of `x` as `type`. `source` is the half type of `x` in the program, if it has one."""
        if source in HALVES and x.type == "f32":
            x = self.storage_form(x, source)
        if x.type == type:
            return x
        result = self._op("bitcast", (x,), type)
        return self._widen(result) if type in HALVES else result

    def select(self, cond: Expr, then: Expr, other: Expr) -> Expr:
        """Return `then` if `cond` is true, else `other`."""
        if then is other:
            return then
        if isinstance(cond, Const):
            return then if cond.value else other
        then, other = self._widen(then), self._widen(other)
        if (
            isinstance(then, Load)
            and isinstance(other, Const)
            and _implies(then.guard, cond)
            and _is_zero(other)
        ):
            self.zeros.add(id(then))  # the guarded load is zero if `cond` is false
            return then
        if isinstance(then, ScalarOp) and then.op == "select" and then.args[0] is cond:
            then = then.args[1]
        result = self._op("select", (cond, then, other), then.type)
        if then.type == "i64" and id(result) not in self._range:
            (a, b), (c, d) = self.range(then), self.range(other)
            self._range[id(result)] = (min(a, c), max(b, d))
        return result

    # ---- index arithmetic

    def linear(self, terms: Iterable[tuple[IndexLike, int]], const: int = 0) -> Expr:
        """Return the sum of products (index, coefficient) and of a constant.

        >>> b = LoopsBuilder()
        >>> i, j = b.index("i", 4), b.index("j", 8)
        >>> b.linear([(i, 8), (j, 1)], 3) is b.iadd(b.iadd(b.imul(i, 8), j), 3)
        True
        """
        coefficients: dict[int, int] = {}
        total, offset = None, 0
        for x, k in terms:
            form, more = self._affine.get(id(x)) or self._form(x)
            if k != 1:
                form, more = {key: k * c for key, c in form.items()} if k else {}, k * more
                if form and (coefficients or const):  # record the affine form of the product
                    self._build(form, more)
            const += more
            for key, c in form.items():
                coefficients[key] = coefficients.get(key, 0) + c
            if form:  # record the affine form of the partial sum
                total, offset = self._build(coefficients, const), const
        return self._build(coefficients, const) if total is None or offset != const else total

    def iadd(self, a: IndexLike, b: IndexLike) -> Expr:
        """Return the sum of two indices."""
        (ta, ca), (tb, cb) = self._form(a), self._form(b)
        if not tb:
            return self._as_index(a) if cb == 0 else self._build(ta, ca + cb)
        if not ta and ca == 0:
            return self._as_index(b)
        terms = dict(ta)
        for key, k in tb.items():
            terms[key] = terms.get(key, 0) + k
        return self._build(terms, ca + cb)

    def isub(self, a: IndexLike, b: IndexLike) -> Expr:
        """Return the difference of two indices."""
        return self.iadd(a, self.imul(b, -1))

    def imul(self, a: IndexLike, b: IndexLike) -> Expr:
        """Return the product of two indices. It is affine if one of them is constant."""
        (ta, ca), (tb, cb) = self._form(a), self._form(b)
        if ta and tb:
            return self._register_base(
                self._op("mul", (self._as_index(a), self._as_index(b)), "i64")
            )
        if ta:
            a, ta, ca, tb, cb = b, tb, cb, ta, ca  # now `ca` is the constant factor
            b = a
        if ca == 1:
            return self._build(tb, cb)
        return self._build({key: k * ca for key, k in tb.items()} if ca else {}, cb * ca)

    def idiv(self, a: IndexLike, b: IndexLike) -> Expr:
        """Return the floor quotient of a non-negative index by a positive one."""
        return self._divide(a, b)[0]

    def irem(self, a: IndexLike, b: IndexLike) -> Expr:
        """Return the remainder of a non-negative index by a positive one."""
        return self._divide(a, b)[1]

    def _divide(self, a: IndexLike, b: IndexLike) -> tuple[Expr, Expr]:
        terms, const = self._form(a)
        by, divisor = self._form(b)
        if by or divisor <= 0:
            a, b = self._as_index(a), self._as_index(b)
            quotient = self._register_base(self._op("div", (a, b), "i64"))
            return quotient, self._register_base(self._op("rem", (a, b), "i64"))
        if divisor == 1:
            return self._as_index(a), self.const(0, "i64")
        return (
            self._divide_multiples(terms, const, divisor)
            or self._divide_by_common_factor(terms, const, divisor)
            or self._divide_by_factor(terms, const, divisor)
            or self._divide_opaque(self._as_index(a), divisor)
        )

    def _divide_multiples(self, terms: _Terms, const: int, divisor: int) -> _Division | None:
        """Move the multiples of `divisor` into the quotient.

        The rest must not be negative, because division truncates.
        """
        undivided = {k: c for k, c in terms.items() if c % divisor}
        const_quotient, const_rest = divmod(const, divisor)
        low, high = self._bounds(undivided, const_rest)
        if low < 0:
            return None
        multiples = {k: c // divisor for k, c in terms.items() if k not in undivided}
        if high < divisor:
            return self._build(multiples, const_quotient), self._build(undivided, const_rest)
        if not multiples and not const_quotient:
            return None
        quotient, remainder = self._divide(self._build(undivided, const_rest), divisor)
        return self.iadd(self._build(multiples, const_quotient), quotient), remainder

    def _divide_by_common_factor(self, terms: _Terms, const: int, divisor: int) -> _Division | None:
        """Cancel a factor that the divisor and the whole dividend share."""
        common = math.gcd(divisor, const, *terms.values()) if terms else 1
        if common == 1:
            return None
        reduced = self._build({k: c // common for k, c in terms.items()}, const // common)
        quotient, remainder = self._divide(reduced, divisor // common)
        return quotient, self.imul(remainder, common)

    def _divide_by_factor(self, terms: _Terms, const: int, divisor: int) -> _Division | None:
        """Move terms smaller than a factor of the divisor into the remainder (columns of a row)."""
        for factor in sorted({math.gcd(divisor, c) for c in terms.values()} - {1}, reverse=True):
            small = {k: c for k, c in terms.items() if c % factor}
            const_quotient, const_rest = divmod(const, factor)
            low, high = self._bounds(small, const_rest)
            if low >= 0 and high < factor:
                multiples = {k: c // factor for k, c in terms.items() if k not in small}
                great = self._build(multiples, const_quotient)
                quotient, remainder = self._divide(great, divisor // factor)
                remainder = self.iadd(self.imul(remainder, factor), self._build(small, const_rest))
                return quotient, remainder
        return None

    def _divide_opaque(self, dividend: Expr, divisor: int) -> _Division:
        """Return the quotient and remainder operations for an index that no rule simplifies.

        They are not the same objects as the operations with these names on data, which may be negative.
        """
        low, high = self.range(dividend)
        remainder = self._index_op("rem", dividend, divisor)
        self._range.setdefault(id(remainder), (0, min(divisor - 1, high)))
        if id(dividend) in self._quotients:
            # x / m / n is x / mn, so both decompositions of x yield the same expression
            _, inner_divisor, inner_dividend = self._quotients[id(dividend)][0]
            quotient = self._divide(inner_dividend, inner_divisor * divisor)[0]
        else:
            quotient = self._index_op("div", dividend, divisor)
            self._range.setdefault(id(quotient), (max(low, 0) // divisor, high // divisor))
            self._register_base(quotient)
        decompositions = self._quotients.setdefault(id(quotient), [])
        if (id(remainder), divisor, dividend) not in decompositions:
            decompositions.append((id(remainder), divisor, dividend))
        return quotient, self._register_base(remainder)

    def _index_op(self, name: str, dividend: Expr, divisor: int) -> Expr:
        return self._cons(
            (name, "index", id(dividend), divisor),
            lambda: ScalarOp(name, (dividend, self.const(divisor, "i64")), "i64"),
        )

    def imin(self, a: IndexLike, b: IndexLike) -> Expr:
        """Return the smaller of two indices."""
        return self._extreme("min", a, b)

    def imax(self, a: IndexLike, b: IndexLike) -> Expr:
        """Return the greater of two indices."""
        return self._extreme("max", a, b)

    def _extreme(self, name: str, a: IndexLike, b: IndexLike) -> Expr:
        a, b = self._as_index(a), self._as_index(b)
        (la, ha), (lb, hb) = self.range(a), self.range(b)
        if ha <= lb:
            return a if name == "min" else b
        if hb <= la:
            return b if name == "min" else a
        result = self._op(name, (a, b), "i64")
        pick = min if name == "min" else max
        self._range[id(result)] = (pick(la, lb), pick(ha, hb))
        return self._register_base(result)

    def icmp(self, name: str, a: IndexLike, b: IndexLike) -> Expr:
        """Return the comparison of two indices (eq ne lt le gt ge), folded if their ranges determine it."""
        a, b = self._as_index(a), self._as_index(b)
        if isinstance(a, Const) and isinstance(b, Const):
            return self.const(_COMPARE[name](a.value, b.value), "bool")
        if name in _MIRRORED:
            name, a, b = _MIRRORED[name], b, a
        result = _compare_ranges(name, self.range(a), self.range(b))
        if result is None and a is b and name in ("eq", "ne"):
            result = name == "eq"
        return self._op(name, (a, b), "bool") if result is None else self.const(result, "bool")

    @overload
    def logical_and(self, first: Expr | None, second: Expr, /, *more: Expr) -> Expr: ...
    @overload
    def logical_and(self, *args: Expr | None) -> Expr | None: ...
    def logical_and(self, *args: Expr | None) -> Expr | None:
        """Return the conjunction of bools. None means true; the result is None if all arguments are None."""
        result = None
        for x in args:
            if x is not None:
                result = x if result is None else self._logical("and", result, x)
        return result

    def logical_or(self, x: Expr, y: Expr) -> Expr:
        """Return the disjunction of two bools."""
        return self._logical("or", x, y)

    def logical_not(self, x: Expr) -> Expr:
        """Return the negation of a bool."""
        return (
            self.const(not x.value, "bool")
            if isinstance(x, Const)
            else self._op("not", (x,), "bool")
        )

    def _logical(self, name: str, a: Expr, b: Expr) -> Expr:
        if a is b:
            return a
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Const):
                return y if bool(x.value) == (name == "and") else x
        return self._op(name, (a, b), "bool")

    # ---- the tables of expressions, affine forms and ranges

    def range(self, x: Expr) -> tuple[int, int]:
        """Return the least and the greatest value of an index."""
        bounds = self._range.get(id(x))
        if bounds is None:
            form = self._affine.get(id(x))
            if form is None or form[0].get(id(x)):
                bounds = (LEAST, GREATEST)
            else:
                bounds = self._bounds(*form)
            self._range[id(x)] = bounds
        return bounds

    def affine(self, x: Expr) -> tuple[dict[int, int], int] | None:
        """Return the affine form of an index: (id of base expression -> coefficient, constant), or None."""
        return self._affine.get(id(x))

    def base(self, key: int) -> Expr:
        """Return the base expression of a key of an affine form."""
        return self._terms[key]

    def copy_operation(self, x: ScalarOp, args: tuple[Expr, ...], maker: "LoopsBuilder") -> Expr:
        """Return the operation of `x`, which builder `maker` created, on other arguments; copy the known range of its result."""
        if id(x) in maker._quotients:
            return self.idiv(*args)
        if (
            x.op == "rem"
            and x.type == "i64"
            and maker._range.get(id(x), (-1, 0))[0] >= 0
            and isinstance(args[1], Const)
        ):
            # `irem` requires a nonnegative operand, as indices are; data may be negative
            return self.irem(*args)
        if x.type == "bool" or x.op == "select":  # may be folded with the new arguments
            return self.op(x.op, *args, type=x.type)
        result = self._op(x.op, args, x.type)
        known = maker._range.get(id(x))
        if known is not None and x.type == "i64":
            self._range.setdefault(id(result), known)
        return result

    def _bounds(self, terms: dict[int, int], const: int) -> tuple[int, int]:
        low = high = const
        for key, k in terms.items():
            a, b = self._range.get(key, (LEAST, GREATEST))
            low += k * (a if k > 0 else b)
            high += k * (b if k > 0 else a)
        if low < LEAST or high > GREATEST:  # the sum may wrap around
            return LEAST, GREATEST
        return low, high

    def _cons(self, key: Any, make: Callable[[], Expr]) -> Expr:
        expr = self._expressions.get(key)
        if expr is None:
            expr = self._expressions[key] = make()
        return expr

    def _op(self, name: str, args: tuple[Expr, ...], type: str) -> Expr:
        key = (name, type, *map(id, args))
        expr = self._expressions.get(key)
        if expr is None:
            expr = self._expressions[key] = ScalarOp(name, args, type)
        return expr

    def _register_base(self, x: Expr) -> Expr:
        if id(x) not in self._affine:
            self._affine[id(x)] = ({id(x): 1}, 0)
            self._terms[id(x)] = x
        return x

    def _as_index(self, x: IndexLike) -> Expr:
        return x if isinstance(x, EXPRESSIONS) else self.const(int(x), "i64")

    def _form(self, x: IndexLike) -> tuple[dict[int, int], int]:
        if type(x) is int:
            return {}, x
        form = self._affine.get(id(x))
        if form is None:
            x = self._as_index(x)
            self._register_base(x)
            form = self._affine[id(x)]
        return form

    def _build(self, terms: dict[int, int], const: int) -> Expr:
        terms = {key: k for key, k in terms.items() if k}
        if self._quotients:
            terms, const = self._rejoin(terms, const)
        if not terms:
            return self.const(const, "i64")
        levels = self.levels
        # outer loop variables first: terms that are invariant in an inner loop form a prefix of the sum, which is shared
        order = (
            sorted(terms, key=lambda key: (levels.get(key, 99), -terms[key]))
            if len(terms) > 1
            else list(terms)
        )
        outer = levels.get(order[0], 99)
        total, pending = self._scale(order[0], terms[order[0]]), const
        for key in order[1:]:
            if pending and levels.get(key, 99) != outer:
                total, pending = self._op("add", (total, self.const(pending, "i64")), "i64"), 0
            total = self._op("add", (total, self._scale(key, terms[key])), "i64")
        if pending:
            total = self._op("add", (total, self.const(pending, "i64")), "i64")
        self._affine.setdefault(id(total), (terms, const))
        return total

    def _scale(self, key: int, k: int) -> Expr:
        base = self._terms[key]
        return base if k == 1 else self._op("mul", (base, self.const(k, "i64")), "i64")

    def _rejoin(self, terms: dict[int, int], const: int) -> tuple[dict[int, int], int]:
        """Replace c k (a / k) + c (a % k) by c a."""
        for key in list(terms):
            for remainder, divisor, whole in self._quotients.get(key, ()):
                c = terms.get(remainder)
                if c is not None and terms[key] == c * divisor:
                    del terms[key], terms[remainder]
                    more, extra = self._form(whole)
                    for k, v in more.items():
                        terms[k] = terms.get(k, 0) + c * v
                    return self._rejoin({k: v for k, v in terms.items() if v}, const + c * extra)
        return terms, const

    def _widen(self, x: Expr) -> Expr:
        return self._op("cast", (x,), "f32") if x.type in HALVES else x


def _narrow(x: Expr, type: str) -> Expr | None:
    """Return the value of half type `type` from which the f32 value `x` was widened, or None."""
    if isinstance(x, ScalarOp) and x.op == "cast" and x.args[0].type == type:
        return x.args[0]
    return None


def _result_type(name: str, operand: str, type: str | None) -> str:
    """Return the type of an operation's result; `type` is the requested type, or None."""
    if name in COMPARISONS or name == "is_finite":
        return "bool"
    if name in ("real", "imag"):
        return REAL_OF[operand]
    if name == "complex":
        return COMPLEX_OF[operand]
    if type is None:
        return operand
    return "f32" if type in HALVES else type


def _compare_ranges(name: str, a: tuple[int, int], b: tuple[int, int]) -> bool | None:
    """Return the result of a comparison if it is the same for all values in two ranges, else None."""
    (low_a, high_a), (low_b, high_b) = a, b
    if name in ("eq", "ne"):
        return name == "ne" if high_a < low_b or high_b < low_a else None
    if high_a < low_b or (name == "le" and high_a == low_b):
        return True
    return False if low_a > high_b or (name == "lt" and low_a == high_b) else None


#: operations on i64 whose results are in affine normal form
_INDEX_ARITHMETIC = {"add": LoopsBuilder.iadd, "sub": LoopsBuilder.isub, "mul": LoopsBuilder.imul}


def _zero(type: str):
    return False if type == "bool" else 0 if type in INTEGERS else 0.0 if type in FLOATS else 0j


def _is_zero(x: Const) -> bool:
    """Return whether a constant is the value of a guarded load whose guard is false."""
    return repr(x.value) == repr(_zero(x.type))


def _implies(guard: Expr | None, cond: Expr) -> bool:
    """Return whether `guard` implies `cond`: the guard is false if `cond` is."""
    return guard is cond or (
        isinstance(guard, ScalarOp)
        and guard.op == "and"
        and any(_implies(x, cond) for x in guard.args)
    )


def _type_range(type: str) -> tuple[int, int]:
    """Return the least and the greatest i64 to which an integer of `type` is converted."""
    bits = _BITS[type]
    if bits == 64:
        return LEAST, GREATEST
    return (0, (1 << bits) - 1) if type[0] in "ub" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _wrap(value: int, type: str) -> int:
    bits = _BITS[type]
    value &= (1 << bits) - 1
    return value - (1 << bits) if type[0] == "i" and value >> (bits - 1) else value


def _round_half(value: float, type: str) -> float:
    import ml_dtypes

    with np.errstate(over="ignore"):
        return float(np.float32(value).astype(ml_dtypes.bfloat16 if type == "bf16" else np.float16))


def _fold(name: str, values: list[Any], type: str) -> Any:
    """Return the value of an operation on literals, or None if it is not folded. Floating-point arithmetic is not folded."""
    if name in _COMPARE:
        return _COMPARE[name](*values)
    if type == "bool":
        if name == "not":
            return not values[0]
        return _BOOL_FOLDS[name](*values) if name in _BOOL_FOLDS else None
    if type in FLOATS:
        return -values[0] if name == "neg" else abs(values[0]) if name == "abs" else None
    if type in INTEGERS:
        return _fold_integer(name, values)
    return None


def _fold_integer(name: str, values: list[int]) -> int | None:
    if name in ("add", "sub", "mul", "and", "or", "xor", "min", "max"):
        a, b = values
        return {
            "add": a + b,
            "sub": a - b,
            "mul": a * b,
            "and": a & b,
            "or": a | b,
            "xor": a ^ b,
            "min": min(a, b),
            "max": max(a, b),
        }[name]
    if name in ("div", "rem") and values[1]:
        quotient = (
            abs(values[0]) // abs(values[1]) * (1 if (values[0] < 0) == (values[1] < 0) else -1)
        )
        return quotient if name == "div" else values[0] - quotient * values[1]
    return -values[0] if name == "neg" else ~values[0] if name == "not" else None
