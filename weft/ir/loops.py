"""Loops: the kernel IR. Scalars, memory and loop nests; one `Kernel` is one native function.

In:   fused groups of equations (built by `compiler.lower`).
Out:  LLVM IR (emitted by `codegen.llvm`); `evaluate` runs a kernel slowly on NumPy.
Laws: every expression is a pure scalar; all memory is reached through named flat buffers by element index;
      loops have fixed extents; a `vector` loop promises that its iterations are independent but for `Accum`;
      the `parallel` loop, if any, is the single outermost statement of the kernel and its iterations are independent.

Scalar types are short names: bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 c64 c128. Index arithmetic is i64.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Union

ScalarType = str

#: ops whose result has the type of their (equal-typed) arguments
ARITHMETIC = frozenset({
    "add", "sub", "mul", "div",      # `div` on integers truncates toward zero
    "rem",                           # sign of the dividend, as C
    "neg", "abs", "sign", "min", "max",  # min/max propagate NaN
    "and", "or", "xor", "not", "shl", "shr_logical", "shr_arithmetic", "popcount", "clz", "fma",
})
#: ops whose result is bool
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
#: floating functions of one argument
UNARY_MATH = frozenset({
    "exp", "exp2", "expm1", "log", "log1p", "log2", "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "logistic", "erf", "erfc", "erf_inv", "lgamma", "digamma",
    "floor", "ceil", "round_even", "round_away", "trunc", "is_finite",   # is_finite gives bool
    "bessel_i0e", "bessel_i1e",
})
#: floating functions of two arguments
BINARY_MATH = frozenset({"pow", "atan2", "nextafter", "copysign"})


@dataclass(frozen=True, slots=True)
class Const:
    """A literal; `value` is a Python bool, int, float or complex."""
    value: object
    type: ScalarType


@dataclass(frozen=True, slots=True)
class Index:
    """The i64 value of loop variable `name`."""
    name: str
    type: ScalarType = "i64"


@dataclass(frozen=True, slots=True)
class Load:
    """Element `index` (flat, in elements) of buffer `buf`. `guard`, when given, is a bool: where false, gives `other` and touches nothing."""
    buf: str
    index: "Expr"
    type: ScalarType
    guard: "Expr | None" = None
    other: "Expr | None" = None


@dataclass(frozen=True, slots=True)
class Op:
    """Scalar operation `op` of ARITHMETIC, COMPARISONS, UNARY_MATH, BINARY_MATH, or one of:
    `select` (bool, then, else), `cast` (value conversion to `type`; float to int truncates and saturates, NaN gives 0),
    `bitcast`, `complex` (re, im), `real`, `imag`, `conj`."""
    op: str
    args: tuple["Expr", ...]
    type: ScalarType


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of a `Let` name or the current value of accumulator `name`."""
    name: str
    type: ScalarType


Expr = Union[Const, Index, Load, Op, Ref]


@dataclass(frozen=True, slots=True)
class Let:
    """Bind `name` to `value` for the rest of the enclosing body (computed once per iteration)."""
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Init:
    """Declare accumulator `name` and set it to `value`. It lives until the enclosing body ends."""
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Accum:
    """`name = op(name, value)`, with `op` associative: add mul min max and or xor — or `set` (plain assignment, never inside
    a `vector` loop that encloses it but not its `Init`). The order of a reduction is not promised. `guard` false skips."""
    name: str
    op: str
    value: Expr
    guard: Expr | None = None


@dataclass(frozen=True, slots=True)
class Store:
    """Write `value` to element `index` of `buf`. `accumulate` (add mul min max and or xor) makes it read-modify-write."""
    buf: str
    index: Expr
    value: Expr
    guard: Expr | None = None
    accumulate: str | None = None
    streaming: bool = False          # hint: non-temporal store


@dataclass(frozen=True, slots=True)
class For:
    """`for var in range(extent)`. `extent` is an int; for `serial` and `vector` loops it may also be an i64 expression that
    does not vary over the loop itself (a negative value means no iterations)."""
    var: str
    extent: "int | Expr"
    body: tuple["Stmt", ...]
    kind: Literal["serial", "vector", "parallel"] = "serial"


@dataclass(frozen=True, slots=True)
class While:
    """Repeat `body` while `cond` (a bool over accumulators and memory) holds. Never inside a `vector` loop."""
    cond: Expr
    body: tuple["Stmt", ...]


@dataclass(frozen=True, slots=True)
class If:
    """Run `body` where `cond` holds, else `orelse`. Inside a `vector` loop `cond` must not vary over the vector variable."""
    cond: Expr
    body: tuple["Stmt", ...]
    orelse: tuple["Stmt", ...] = ()


Stmt = Union[Let, Init, Accum, Store, For, While, If]


@dataclass(frozen=True, slots=True)
class Buf:
    """A flat buffer parameter of `size` elements; bool is stored as one byte. `mode`: in, out, inout.
    Different buffers never overlap, unless one names the other as its `alias` (same address, elementwise use: an iteration
    reads an element of either before it writes it, and no other iteration touches it)."""
    name: str
    type: ScalarType
    size: int
    mode: Literal["in", "out", "inout"] = "in"
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """One native function over `bufs`, in order. `name` does not take part in the kernel's identity."""
    bufs: tuple[Buf, ...]
    body: tuple[Stmt, ...]
    scratch: tuple[Buf, ...] = ()    # private to each iteration of the parallel loop (or to the kernel)
    name: str = field(default="kernel", compare=False)

    @property
    def parallel_extent(self) -> int:
        """Number of tasks: the extent of the outermost parallel loop, else 1."""
        if len(self.body) == 1 and isinstance(self.body[0], For) and self.body[0].kind == "parallel":
            return self.body[0].extent
        return 1


#: bytes of one element in memory
ITEMSIZE = {"bool": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "f16": 2, "bf16": 2, "i32": 4, "u32": 4, "f32": 4,
            "i64": 8, "u64": 8, "f64": 8, "c64": 8, "c128": 16}
FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
SIGNED = frozenset({"i8", "i16", "i32", "i64"})
UNSIGNED = frozenset({"u8", "u16", "u32", "u64"})
INTEGERS = SIGNED | UNSIGNED
COMPLEX = frozenset({"c64", "c128"})
#: the real type of a complex one, and back
REAL_OF = {"c64": "f32", "c128": "f64"}
COMPLEX_OF = {"f32": "c64", "f64": "c128"}
#: operations an accumulator or an accumulating store may use
REDUCTIONS = frozenset({"add", "mul", "min", "max", "and", "or", "xor"})
