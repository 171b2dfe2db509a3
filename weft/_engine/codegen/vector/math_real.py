"""Arithmetic on register values with Python operators, as a notation for math formulas.

`RealFormulas(lanes, "f32")` is the working precision; its methods return `RegisterValue`s. A `RegisterValue` is a float, an integer
of the same size, or a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

from weft._engine.codegen.ir.scoped_writer import ScopedWriter
from weft._engine.codegen.vector.math_piecewise import PIECEWISE
from weft._engine.codegen.vector.math_tables import TABLE
from weft._engine.codegen.vector.registers import literal
from weft._engine.codegen.vector.vector_ops import Lanes
from weft._engine.ir.formulas import Formulas
from weft._engine.util.cache import blake2b

#: `getmant` immediate: the interval [3/4, 3/2), and NaN for negative numbers
_MANTISSA_FROM_THREE_QUARTERS = 0b1011
#: argument classes in the table of `fixupimm`, and codes of results (0: unchanged, 1: the argument)
_KINDS = {"zero": (2,), "infinite": (5,), "negative": (4, 6)}
_ANSWERS = {"nan": 3, "-inf": 4, "inf": 5, "-0.0": 7, "0.0": 8, "-1.0": 9, "1.0": 10}
_NAN_STAYS = 0x11
#: polynomials with more coefficients than this are evaluated by pairs
_PAIRWISE_FROM = 4


def _operator(
    floating: str, integer: str = "", swap: bool = False
) -> Callable[[RegisterValue, Any], RegisterValue]:
    """Return an operator on values: the instruction for floats, and the one for integers and masks
    if it differs."""

    def apply(x: RegisterValue, other: RegisterValue | float) -> RegisterValue:
        real, kind = x.real, x.kind
        instruction = floating if x.is_float or not integer else integer
        a, b = x.name, real.operand(kind, other)
        a, b = (b, a) if swap else (a, b)
        return RegisterValue(
            real, kind, real.b.pure(f"{instruction} {real.types[kind]} {a}, {b}", a, b)
        )

    return apply


def _order(name: str) -> Callable[[RegisterValue, Any], RegisterValue]:
    """Return a comparison operator on values; a NaN is neither less nor greater."""

    def apply(x: RegisterValue, other: RegisterValue | float) -> RegisterValue:
        signed = name if name == "eq" else f"s{name}"
        instruction = f"fcmp o{name}" if x.is_float else f"icmp {signed}"
        y = x.real.operand(x.kind, other)
        return RegisterValue(
            x.real,
            RegisterKind.MASK,
            x.real.b.pure(f"{instruction} {x.real.types[x.kind]} {x.name}, {y}", x.name, y),
        )

    return apply


class RegisterKind(StrEnum):
    """The type of the lanes of a register."""

    FLOAT = "f"
    INTEGER = "i"  # of the size of the floats
    MASK = "m"


class RegisterValue:
    """A register value."""

    __slots__ = ("kind", "name", "real")

    def __init__(self, real: RealFormulas, kind: RegisterKind, name: str):
        self.real = real
        self.kind = kind
        self.name = name

    @property
    def is_float(self) -> bool:
        return self.kind is RegisterKind.FLOAT

    @property
    def is_mask(self) -> bool:
        return self.kind is RegisterKind.MASK

    __add__, __radd__ = _operator("fadd", "add"), _operator("fadd", "add", swap=True)
    __sub__, __rsub__ = _operator("fsub", "sub"), _operator("fsub", "sub", swap=True)
    __mul__, __rmul__ = _operator("fmul", "mul"), _operator("fmul", "mul", swap=True)
    __truediv__, __rtruediv__ = _operator("fdiv"), _operator("fdiv", swap=True)
    __and__, __or__, __xor__ = _operator("and"), _operator("or"), _operator("xor")
    __lshift__, __rshift__ = _operator("shl"), _operator("ashr")
    __lt__, __le__, __gt__, __ge__, same = (_order(name) for name in ("lt", "le", "gt", "ge", "eq"))

    def __neg__(self) -> RegisterValue:
        if not self.is_float:
            return 0 - self
        return RegisterValue(
            self.real,
            RegisterKind.FLOAT,
            self.real.b.pure(f"fneg {self.real.t} {self.name}", self.name),
        )

    def __invert__(self) -> RegisterValue:
        return self ^ (1 if self.is_mask else -1)

    def is_nan(self) -> RegisterValue:
        """Return the mask of NaN lanes."""
        text = f"fcmp uno {self.real.t} {self.name}, {self.name}"
        return RegisterValue(self.real, RegisterKind.MASK, self.real.b.pure(text, self.name))


def _instruction(name: str) -> Callable[[RealFormulas, RegisterValue], RegisterValue]:
    return lambda real, x: real.intrinsic(name, x)


class RealFormulas(Formulas):
    """Formulas in one floating type over some lanes; if a half type is demanded, f32 formulas need
    fewer terms."""

    def __init__(self, lanes: Lanes, type_: str, demand: str = ""):
        super().__init__(type_, demand)
        self.lanes = lanes
        self.b = lanes.b
        self.short = self.demand in ("f16", "bf16")
        self.t = lanes.f64 if self.wide else lanes.f32
        self.it = lanes.i64 if self.wide else lanes.i32
        self.types = {
            RegisterKind.FLOAT: self.t,
            RegisterKind.INTEGER: self.it,
            RegisterKind.MASK: lanes.i1,
        }
        self.int_type = "i64" if self.wide else "i32"
        self.has_fma = lanes.target.has_fma
        self.zmm = lanes.target.level == "avx512" and lanes.w * self.bits == 512
        #: True if powers take few instructions, which are valid for all arguments
        self.brief = self.short and self.zmm

    def operand(self, kind: RegisterKind, value: RegisterValue | float) -> str:
        """Return the text of an operand: a register, or a constant of this kind."""
        if isinstance(value, RegisterValue):
            return value.name
        return self.lanes.const(
            value,
            {
                RegisterKind.FLOAT: self.type,
                RegisterKind.INTEGER: self.int_type,
                RegisterKind.MASK: "bool",
            }[kind],
        )

    def v(self, name: str) -> RegisterValue:
        """Return a float register as a value."""
        return RegisterValue(self, RegisterKind.FLOAT, name)

    def c(self, value: RegisterValue | float) -> RegisterValue:
        """Return a float constant as a value, or a value unchanged."""
        return RegisterValue(self, RegisterKind.FLOAT, self.operand(RegisterKind.FLOAT, value))

    def fma(
        self, x: RegisterValue | float, y: RegisterValue | float, z: RegisterValue | float
    ) -> RegisterValue:
        """Return x * y + z, rounded once or twice depending on the machine."""
        a, b, c = (self.operand(RegisterKind.FLOAT, value) for value in (x, y, z))
        return RegisterValue(self, RegisterKind.FLOAT, self.lanes.fma(self.t, a, b, c))

    def exact_fma(self, x: RegisterValue, y: RegisterValue, z: RegisterValue) -> RegisterValue:
        """Return x * y + z, rounded once on every machine."""
        return RegisterValue(
            self,
            RegisterKind.FLOAT,
            self.lanes.arithmetic("fma", self.type, [x.name, y.name, z.name]),
        )

    def select(
        self, cond: RegisterValue, x: RegisterValue | float, y: RegisterValue | float
    ) -> RegisterValue:
        """Choose x or y lanewise; at least one of them is a `RegisterValue`."""
        kind = (
            x.kind
            if isinstance(x, RegisterValue)
            else y.kind
            if isinstance(y, RegisterValue)
            else RegisterKind.FLOAT
        )
        a, b = (self.operand(kind, value) for value in (x, y))
        return RegisterValue(self, kind, self.lanes.select(cond.name, self.types[kind], a, b))

    def intrinsic(self, name: str, *args: RegisterValue) -> RegisterValue:
        """Apply an intrinsic that is a single instruction, or that LLVM expands well."""
        return RegisterValue(
            self, RegisterKind.FLOAT, self.b.intrinsic(name, self.t, *[arg.name for arg in args])
        )

    # magnitude, square root, integer part, and nearest integer (ties to even)
    abs, sqrt, trunc, round_even = map(_instruction, ("fabs", "sqrt", "trunc", "roundeven"))

    def max(self, x: RegisterValue, y: RegisterValue) -> RegisterValue:
        """Return the greater value; NaN if either is NaN."""
        return RegisterValue(
            self, RegisterKind.FLOAT, self.lanes.arithmetic("max", self.type, [x.name, y.name])
        )

    def copysign(self, x: RegisterValue | float, y: RegisterValue) -> RegisterValue:
        """Return the magnitude of x with the sign of y."""
        return RegisterValue(
            self,
            RegisterKind.FLOAT,
            self.b.intrinsic("copysign", self.t, self.operand(RegisterKind.FLOAT, x), y.name),
        )

    def to_bits(self, x: RegisterValue) -> RegisterValue:
        """Return the bits of a float as an integer."""
        return RegisterValue(
            self, RegisterKind.INTEGER, self.lanes.convert("bitcast", self.t, x.name, self.it)
        )

    def from_bits(self, x: RegisterValue) -> RegisterValue:
        """Return the float with the given bits."""
        return RegisterValue(
            self, RegisterKind.FLOAT, self.lanes.convert("bitcast", self.it, x.name, self.t)
        )

    def to_float(self, x: RegisterValue) -> RegisterValue:
        """Convert an integer to a float."""
        return RegisterValue(
            self, RegisterKind.FLOAT, self.lanes.convert("sitofp", self.it, x.name, self.t)
        )

    def table(self, name: str) -> tuple[float, ...]:
        """Return the coefficients of the tabulated polynomial `name`, as many as the demanded
        precision needs."""
        return TABLE.get((name, self.demand)) or TABLE[name, self.type]

    def horner(
        self, x: RegisterValue, coefficients: Sequence[RegisterValue | float]
    ) -> RegisterValue:
        """Evaluate a polynomial, highest coefficient first. The last step is a multiply-add, whose
        rounding dominates the error."""
        *leading, last = coefficients
        return self.fma(self._in_pairs(x, leading), x, last) if leading else self.c(last)

    def _in_pairs(
        self, x: RegisterValue, coefficients: Sequence[RegisterValue | float]
    ) -> RegisterValue | float:
        """Evaluate a polynomial; long ones by pairs, to shorten the dependency chain."""
        if len(coefficients) > _PAIRWISE_FROM and not self.wide:
            first = len(coefficients) % 2
            pairs = zip(coefficients[first::2], coefficients[first + 1 :: 2])
            return self._in_pairs(
                x * x, [*coefficients[:first], *[self.fma(high, x, low) for high, low in pairs]]
            )
        y = coefficients[0]
        for coefficient in coefficients[1:]:
            y = self.fma(y, x, coefficient)
        return y

    def ldexp(self, x: RegisterValue, shifted: RegisterValue) -> RegisterValue:
        return (
            self._whole("scalef", x, shifted - self.magic)
            if self.zmm
            else super().ldexp(x, shifted)
        )

    def scale(self, x: RegisterValue, k: RegisterValue) -> RegisterValue:
        return self._whole("scalef", x, k) if self.zmm else super().scale(x, k)

    def brief_power(self, t: RegisterValue) -> RegisterValue:
        """Return 2^t for any t, to half precision. `scalef` by an infinity returns the limit, even
        for a NaN mantissa."""
        whole = self.round_even(t)
        fraction = t - whole
        return self._whole("scalef", self.fma(fraction, self.poly(fraction, "exp2"), 1.0), whole)

    # --- single AVX-512 instructions, with fallbacks

    def _whole(self, name: str, *args: RegisterValue | int) -> RegisterValue:
        """Apply the AVX-512 instruction `name` to values and an immediate number, in all lanes."""
        t, mask = self.t, f"i{self.lanes.w}"
        passed = [
            ("i32", str(arg)) if isinstance(arg, int) else (self.types[arg.kind], arg.name)
            for arg in args
        ]
        if name != "fixupimm":
            passed.insert(
                1 if isinstance(args[0], RegisterValue) and len(args) == 1 else 2,
                (t, "zeroinitializer"),
            )
        passed += [(mask, "-1"), ("i32", "4")]
        called = f"llvm.x86.avx512.mask.{name}.p{'d' if self.wide else 's'}.512"
        self.b.declare(called, t, *[kind for kind, _ in passed])
        listed = ", ".join([f"{kind} {text}" for kind, text in passed])
        return RegisterValue(
            self,
            RegisterKind.FLOAT,
            self.b.pure(
                f"call {t} @{called}({listed})",
                *[arg.name for arg in args if isinstance(arg, RegisterValue)],
            ),
        )

    def split(self, x: RegisterValue) -> tuple[RegisterValue, RegisterValue]:
        if self.zmm:
            m = self._whole("getmant", x, _MANTISSA_FROM_THREE_QUARTERS)
            return self._whole("getexp", x) - self._whole("getexp", m), m
        return super().split(x)

    def split_normal(self, x: RegisterValue) -> tuple[RegisterValue, RegisterValue]:
        return self.split(x) if self.zmm else super().split_normal(x)

    def exponent(self, x: RegisterValue) -> RegisterValue:
        return self._whole("getexp", x) if self.zmm else super().exponent(x)

    def small_to_float(self, k: RegisterValue) -> RegisterValue:
        """Convert a small integer to a float, avoiding slow 64-bit conversions."""
        return (
            self.to_float(k) if not self.wide else self.from_bits(k + self.magic_bits) - self.magic
        )

    def at_special_arguments(
        self, y: RegisterValue, x: RegisterValue, **known: float
    ) -> RegisterValue:
        if self.zmm:
            table = _NAN_STAYS + sum(
                [
                    _ANSWERS[str(value)] << 4 * kind
                    for name, value in known.items()
                    for kind in _KINDS[name]
                ]
            )
            return self._whole(
                "fixupimm",
                y,
                x,
                RegisterValue(
                    self, RegisterKind.INTEGER, self.operand(RegisterKind.INTEGER, table)
                ),
                0,
            )
        return super().at_special_arguments(y, x, **known)

    def in_double(self) -> RealFormulas:
        """Return the f64 formulas over the same lanes."""
        return self if self.wide else RealFormulas(self.lanes, "f64")

    def widen(self, x: RegisterValue) -> RegisterValue:
        """Convert a value to double precision."""
        if self.wide:
            return x
        return RegisterValue(
            RealFormulas(self.lanes, "f64"),
            RegisterKind.FLOAT,
            self.lanes.convert("fpext", self.t, x.name, self.lanes.f64),
        )

    def narrow(self, x: RegisterValue) -> RegisterValue:
        """Convert a double to this precision."""
        return RegisterValue(
            self, RegisterKind.FLOAT, self.lanes.convert("fptrunc", self.lanes.f64, x.name, self.t)
        )

    def library(self, function: str, *args: RegisterValue) -> RegisterValue:
        """Call a function of the C library on every lane."""
        return RegisterValue(
            self,
            RegisterKind.FLOAT,
            self.lanes.per_lane(function, function, self.t, *[arg.name for arg in args]),
        )

    def repeat(
        self,
        step: Callable[..., tuple[RegisterValue, list[RegisterValue]]],
        *start: RegisterValue | float,
    ) -> list[RegisterValue]:
        """Repeat `(more, values) = step(n, *values)` for n = 1, 2, ..., in each lane until `more`
        is false; return the values."""

        def body(*names: str) -> list[str]:
            number, *values = [self.v(name) for name in names[:-1]]
            return [
                value.name
                for value in self.advance_iteration(
                    step, number, values, RegisterValue(self, RegisterKind.MASK, names[-1])
                )
            ]

        first = [
            (self.t, (value if isinstance(value, RegisterValue) else self.c(value)).name)
            for value in (1.0, *start)
        ]
        going = (self.lanes.i1, self.operand(RegisterKind.MASK, True))
        names = self.b.loop_while([lambda *names: self.lanes.any(names[-1])], body, [*first, going])
        return [self.v(name) for name in names[1:-1]]

    # --- polynomials by intervals

    def piecewise(self, w: RegisterValue, name: str, slope: float = 0.0) -> RegisterValue:
        """Evaluate the piecewise polynomial `name` at w, from -1/2 to 16 (f32 only): polynomial k
        at t for w = k + t.

        `slope` is the factor of a term `slope * t` that the table leaves out.
        """
        shifted = w + self.magic
        shifted = self.select(shifted > self.magic + 15.0, self.magic + 15.0, shifted)
        t = w - (shifted - self.magic)
        number, (*rows, last) = self.to_bits(shifted), PIECEWISE[name]
        y = self.lookup(number, rows[0])
        for row in rows[1:]:
            y = self.fma(y, t, self.lookup(number, row))
        if slope:
            return self.fma(t, slope, y * t) + self.lookup(number, last)
        return self.fma(y, t, self.lookup(number, last))

    def lookup(self, number: RegisterValue, table: tuple[float, ...]) -> RegisterValue:
        """Look up an entry of a table of sixteen f32 in each lane; only the low four bits of
        `number` count."""
        lanes, b = self.lanes, self.b
        if self.zmm:
            self.b.declare("llvm.x86.avx512.permvar.sf.512", self.t, self.t, self.it)
            text = f"call {self.t} @llvm.x86.avx512.permvar.sf.512({self.t} {self._row(table)}, {self.it} {number.name})"
            return RegisterValue(self, RegisterKind.FLOAT, b.pure(text, number.name))
        if lanes.w == 8 and lanes.target.level in ("avx2", "avx512"):
            self.b.declare("llvm.x86.avx2.permps", self.t, self.t, self.it)
            low, high = (
                RegisterValue(
                    self,
                    RegisterKind.FLOAT,
                    b.pure(
                        f"call {self.t} @llvm.x86.avx2.permps({self.t} {self._row(half)}, {self.it} {number.name})",
                        number.name,
                    ),
                )
                for half in (table[:8], table[8:])
            )
            return self.select((number & 8).same(0), low, high)
        return self._lookup_one_by_one(number, table)

    def _row(self, values: tuple[float, ...]) -> str:
        listed = ", ".join(["float " + literal(value, "f32") for value in values])
        return f"<{listed}>"

    def _lookup_one_by_one(self, number: RegisterValue, table: tuple[float, ...]) -> RegisterValue:
        lanes, b = self.lanes, self.b
        entries = f"[16 x float] [{self._row(table)[1:-1]}]"
        name = f"weft.table.{blake2b(entries.encode(), digest_size=6).hexdigest()}"
        b.helpers[name] = f"@{name} = private unnamed_addr constant {entries}\n"
        number = number & 15
        entries_vector = "poison"
        for lane in range(lanes.w):
            at = (
                number.name
                if lanes.w == 1
                else b.pure(f"extractelement {self.it} {number.name}, i32 {lane}", number.name)
            )
            place = b.pure(f"getelementptr [16 x float], ptr @{name}, i64 0, i32 {at}", at)
            entry = b.pure(f"load float, ptr {place}, align 4", place)
            if lanes.w == 1:
                return RegisterValue(self, RegisterKind.FLOAT, entry)
            entries_vector = b.pure(
                f"insertelement {self.t} {entries_vector}, float {entry}, i32 {lane}",
                entries_vector,
                entry,
            )
        return RegisterValue(self, RegisterKind.FLOAT, entries_vector)

    # --- rare lanes

    def with_rare_case(
        self,
        y: RegisterValue,
        where: RegisterValue,
        function: str | Callable[..., RegisterValue],
        *args: RegisterValue,
    ) -> RegisterValue:
        """Return `y`, or `function` of the arguments in lanes of the mask `where`; almost free if
        no lane is set.

        `function` is the name of a C library function, or a formula.
        """
        label = function if isinstance(function, str) else function.__name__.strip("_")
        helper, passed = self._cold_helper(label, function, len(args)), [y, *args]
        listed = ", ".join([f"{self.t} {v.name}" for v in passed])
        call = f"call {self.t} @{helper}({listed}, {self.lanes.i1} {where.name})"
        return RegisterValue(
            self,
            RegisterKind.FLOAT,
            self.lanes.branch_on_rare_lanes(
                where.name, [(y.name, call)], self.t, *[v.name for v in passed]
            )[0],
        )

    def _cold_helper(
        self, label: str, function: str | Callable[..., RegisterValue], arity: int
    ) -> str:
        b, t, mask = self.b, self.t, self.lanes.i1
        name = f"weft.cold.{label}.{self.demand}.{self.lanes.w}"
        if name not in b.helpers:
            own = ScopedWriter()
            inner = RealFormulas(
                Lanes(own, self.lanes.target, self.lanes.w), self.type, self.demand
            )
            args = [inner.v(f"%x{k}") for k in range(arity)]
            result = (
                inner.library(function, *args)
                if isinstance(function, str)
                else function(inner, *args)
            )
            result = inner.select(
                RegisterValue(inner, RegisterKind.MASK, "%m"), result, inner.v("%y")
            )
            b.declarations |= own.declarations
            b.helpers |= own.helpers
            params = ", ".join([f"{t} %x{k}" for k in range(arity)])
            b.helpers[name] = own.helper(
                name, t, f"{t} %y, {params}, {mask} %m", result.name, traits="cold noinline"
            )
        return name
