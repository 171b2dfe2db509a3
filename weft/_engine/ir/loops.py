"""Loops: the kernel IR, with scalars, memory and loop nests. One `LoopsKernel` is one native function.

In:   fused groups of equations (built by `compiler.lowering.lower`).
Out:  LLVM IR (emitted by `codegen.kernel.kernel_emitter`); `ir.loops_eval.evaluate` runs a kernel on NumPy.
Laws: every expression is a pure scalar. Memory is accessed by element indices into named flat buffers. The iterations of a `vector`
      loop are independent, except for `Accum`, `PrefixCombine` and `Pack`. A `parallel` loop is the single outermost statement of its
      kernel, and its iterations are independent.

Scalar types are short names: bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 c64 c128. Index arithmetic is i64.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal, NoReturn, Union, final

from weft._engine.ir.registry import functions
from weft._engine.util.record import field, record

ScalarType = str

#: ops whose result has the type of their (equal-typed) arguments
ARITHMETIC = frozenset(
    {
        "add",
        "sub",
        "mul",
        "div",  # `div` on integers truncates toward zero
        "rem",  # sign of the dividend, as C
        "neg",
        "abs",
        "sign",
        "min",
        "max",  # min/max propagate NaN
        "and",
        "or",
        "xor",
        "not",
        "shl",
        "shr_logical",
        "shr_arithmetic",
        "popcount",
        "clz",
        "fma",
    }
)
#: ops whose result is bool
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
#: the operations of the Loops IR; all other operations are scalar functions with a record in `ir.registry`
OPERATIONS = (
    ARITHMETIC | COMPARISONS | {"select", "cast", "bitcast", "complex", "real", "imag", "conj"}
)
functions.update(dict.fromkeys(OPERATIONS))


@final
@record
class Const:
    """A literal; `value` is a Python bool, int, float or complex, as `type` requires."""

    value: Any  # its Python type depends on the value of `type`
    type: ScalarType


@final
@record
class Index:
    """The i64 value of loop variable `name`."""

    name: str
    type: ScalarType = "i64"


@final
@record
class Load:
    """Element `index` (flat, in elements) of buffer `buf`.

    If the bool `guard` is false, the value is `other` (None: zero), and memory is not accessed.
    """

    buf: str
    index: Expr
    type: ScalarType
    guard: Expr | None = None
    other: Expr | None = None


@final
@record
class ScalarOp:
    """The scalar operation `op`: a member of ARITHMETIC or COMPARISONS, a function of `ir.registry`, or one of

    `select` (bool, then, else), `cast` (value conversion to `type`; float to int truncates and saturates, and NaN becomes 0),
    `bitcast`, `complex` (re, im), `real`, `imag`, `conj`.
    """

    op: str
    args: tuple[Expr, ...]
    type: ScalarType


@final
@record
class ScalarRef:
    """The value of the `Let` with name `name`, or the current value of the accumulator `name`."""

    name: str
    type: ScalarType


Expr = Union[Const, Index, Load, ScalarOp, ScalarRef]
EXPRESSIONS = (Const, Index, Load, ScalarOp, ScalarRef)


@record
class Let:
    """Bind `name` to `value` for the rest of the enclosing body (computed once per iteration)."""

    name: str
    value: Expr


@record
class Init:
    """Declare the accumulator `name` with initial value `value`. Its scope is the rest of the enclosing body."""

    name: str
    value: Expr


@record
class Accum:
    """Update an accumulator: `name = op(name, value)`. Nothing happens if `guard` is false.

    `op` is an associative operation (add mul min max and or xor), which may be applied in any order, or `set`, a plain assignment.
    `set` is not allowed inside of a `vector` loop that does not contain the `Init` of the accumulator.
    """

    name: str
    op: str
    value: Expr
    guard: Expr | None = None


@record
class PrefixCombine:
    """A prefix combination (inclusive scan): `names = values; accs = names = combine(accs, names)`.

    Each of `names` is first bound to its value in `values`, then to the combination of this value and the accumulators `accs`, which is
    also assigned to the accumulators. `combine` is associative and reads only constants and `ScalarRef`s to these names and
    accumulators. A `vector` loop around the scan (but not around the `Init`s) may group iterations, in order. No other
    statement in the loop reads the accumulators.
    """

    names: tuple[str, ...]
    accs: tuple[str, ...]
    values: tuple[Expr, ...]
    combine: tuple[Expr, ...]


@record
class StoreElement:
    """Write `value` to element `index` of `buf`, unless `guard` is false.

    With `accumulate` (add mul min max and or xor), the element is updated by this operation.
    """

    buf: str
    index: Expr
    value: Expr
    guard: Expr | None = None
    accumulate: str | None = None
    streaming: bool = False  # hint: non-temporal store


@record
class Interleave:
    """Write `values` to elements `index`, `index + 1`, ... of `buf`.

    In a vector loop this transposes in registers: each of `values` is a vector, and each iteration writes one row.
    """

    buf: str
    index: Expr
    values: tuple[Expr, ...]
    streaming: bool = False  # hint: non-temporal stores


@record
class Pack:
    """Append: if `guard` is true, write `value` to element `acc` of `buf`, and increment the accumulator `acc` (i64).

    `buf` has an element per iteration; elements after the last appended one are undefined. In a `vector` loop, no other statement
    reads the accumulator, and its `Init` is outside of the loop.
    """

    acc: str
    buf: str
    value: Expr
    guard: Expr

    def store_statement(self) -> StoreElement:
        """Return the write as a Store."""
        return StoreElement(self.buf, ScalarRef(self.acc, "i64"), self.value)


@record
class Prefetch:
    """A hint that element `index` of `buf` is needed soon. The index may be beyond the end of `buf`.

    In a vector loop the elements of all iterations are prefetched, unless they are more than a cache line apart.
    """

    buf: str
    index: Expr


class LoopKind(StrEnum):
    """The execution of the iterations of a loop: in order, as lanes of vectors, or as tasks of the thread pool."""

    SERIAL = "serial"
    VECTOR = "vector"
    PARALLEL = "parallel"


@record
class For:
    """`for var in range(extent)`. `extent` is an int.

    For `serial` and `vector` loops `extent` may also be an i64 expression that is loop-invariant. There are no iterations if it is
    negative.
    """

    var: str
    extent: int | Expr
    body: tuple[Stmt, ...]
    kind: LoopKind = LoopKind.SERIAL

    @property
    def is_parallel(self) -> bool:
        """True if the iterations are tasks of the thread pool."""
        return self.kind is LoopKind.PARALLEL

    @property
    def is_vector(self) -> bool:
        """True if the iterations are lanes of vectors."""
        return self.kind is LoopKind.VECTOR


@record
class While:
    """Repeat `body` while the bool `cond` is true. Not allowed inside of a `vector` loop."""

    cond: Expr
    body: tuple[Stmt, ...]


@record
class If:
    """Run `body` if `cond` is true, else `orelse`. Inside of a `vector` loop, `cond` must be loop-invariant."""

    cond: Expr
    body: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


Stmt = Union[
    Let, Init, Accum, PrefixCombine, StoreElement, Interleave, Pack, Prefetch, For, While, If
]


BufMode = Literal["in", "out", "inout"]


@record
class Buf:
    """A flat buffer parameter of `size` elements; a bool is stored as one byte.

    Buffers do not overlap, unless one has the other as its `alias`. These have the same address; an iteration reads an element of
    either buffer before it writes the element, and no other iteration accesses it.
    """

    name: str
    type: ScalarType
    size: int
    mode: BufMode = "in"
    alias: str | None = None


@record
class LoopsKernel:
    """One native function with the parameters `bufs`, in order. Comparison of kernels ignores `name`."""

    bufs: tuple[Buf, ...]
    body: tuple[Stmt, ...]
    #: buffers that are private to each iteration of the parallel loop, or to the kernel without such a loop
    scratch: tuple[Buf, ...] = ()
    name: str = field(default="kernel", compare=False)

    @property
    def parallel_loop(self) -> For | None:
        """The parallel loop, or None."""
        match self.body:
            case (For() as loop,) if loop.is_parallel:
                return loop
            case _:
                return None

    @property
    def parallel_extent(self) -> int:
        """The number of tasks: the extent of the parallel loop, else 1."""
        loop = self.parallel_loop
        return loop.extent if loop is not None and isinstance(loop.extent, int) else 1


#: type -> bytes of one element in memory
ITEMSIZE = {
    "bool": 1,
    "i8": 1,
    "u8": 1,
    "i16": 2,
    "u16": 2,
    "f16": 2,
    "bf16": 2,
    "i32": 4,
    "u32": 4,
    "f32": 4,
    "i64": 8,
    "u64": 8,
    "f64": 8,
    "c64": 8,
    "c128": 16,
}
FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
SIGNED = frozenset({"i8", "i16", "i32", "i64"})
UNSIGNED = frozenset({"u8", "u16", "u32", "u64"})
INTEGERS = SIGNED | UNSIGNED
COMPLEX = frozenset({"c64", "c128"})
#: complex type -> real type, and the inverse
REAL_OF = {"c64": "f32", "c128": "f64"}
COMPLEX_OF = {"f32": "c64", "f64": "c128"}
#: operations that an accumulator or an accumulating store may use
REDUCTIONS = frozenset({"add", "mul", "min", "max", "and", "or", "xor"})


def check(kernel: LoopsKernel) -> None:
    """Raise `ValueError` if a kernel violates a law of this module.

    Types must agree, and names must be bound once and before their uses. Vector loops must not contain a `While`, a `set` of an outer
    accumulator, or a condition that varies over the loop.
    """
    _KernelChecker(kernel).run()


class _KernelChecker:
    """The traversal of a kernel by `check`, with the names in scope.

    `varying` contains the names whose values differ between iterations of the enclosing vector loop; None outside of one.
    """

    def __init__(self, kernel: LoopsKernel):
        self.kernel = kernel
        self.bufs = {buf.name: buf for buf in (*kernel.bufs, *kernel.scratch)}
        self.names: dict[str, ScalarType] = {}
        self.loops: set[str] = set()
        self.accs: set[str] = set()
        self.varying: set[str] | None = None
        self.outer: set[str] = set()

    def raise_error(self, fact: str) -> NoReturn:
        raise ValueError(f"loops.check: kernel {self.kernel.name!r}: {fact}")

    def run(self) -> None:
        if len(self.bufs) != len(self.kernel.bufs) + len(self.kernel.scratch):
            self.raise_error("two buffers have the same name")
        for buf in self.bufs.values():
            if buf.type not in ITEMSIZE or buf.size < 0:
                self.raise_error(f"buffer {buf.name!r} has type {buf.type!r} and size {buf.size}")
            if buf.alias is not None and buf.alias not in self.bufs:
                self.raise_error(f"buffer {buf.name!r} names an unknown alias {buf.alias!r}")
        self.body(self.kernel.body, top=True)

    def body(self, body: tuple[Stmt, ...], top: bool = False) -> None:
        saved = dict(self.names), set(self.accs), set(self.loops)
        for stmt in body:
            if isinstance(stmt, For) and stmt.is_parallel and not (top and len(body) == 1):
                self.raise_error(
                    f"parallel loop over {stmt.var!r} is not the single outermost statement"
                )
            self.stmt(stmt)
        self.names, self.accs, self.loops = saved

    def bind(self, name: str, type_: ScalarType) -> None:
        if name in self.names or name in self.loops:
            self.raise_error(f"name {name!r} is bound twice")
        self.names[name] = type_

    def stmt(self, stmt: Stmt) -> None:
        _STATEMENT_CHECKS[type(stmt)](self, stmt)

    def let(self, stmt: Let) -> None:
        self.bind(stmt.name, self.expr(stmt.value))
        if self.varying is not None and self.varies(stmt.value):
            self.varying.add(stmt.name)

    def init(self, stmt: Init) -> None:
        self.bind(stmt.name, self.expr(stmt.value))
        self.accs.add(stmt.name)
        if self.varying is not None:
            self.varying.add(stmt.name)

    def prefetch(self, stmt: Prefetch) -> None:
        if stmt.buf not in self.bufs:
            self.raise_error(f"prefetch from unknown buffer {stmt.buf!r}")
        self.expect_type(stmt.index, "i64", f"the index into {stmt.buf!r}")

    def interleave(self, stmt: Interleave) -> None:
        if not stmt.values:
            self.raise_error(f"an interleave into {stmt.buf!r} has no values")
        for value in stmt.values:
            self.store(StoreElement(stmt.buf, stmt.index, value))

    def pack(self, stmt: Pack) -> None:
        if stmt.acc not in self.accs or (self.varying is not None and stmt.acc not in self.outer):
            self.raise_error(
                f"a pack uses accumulator {stmt.acc!r}, which is not declared before the loop"
            )
        if stmt.value.type in COMPLEX:
            self.raise_error(f"complex values are packed into {stmt.buf!r}")
        self.store(stmt.store_statement())
        self.expect_type(stmt.guard, "bool", f"the guard of a pack into {stmt.buf!r}")

    def repeat(self, stmt: While) -> None:
        if self.varying is not None:
            self.raise_error("a while inside a vector loop")
        self.expect_type(stmt.cond, "bool", "the condition of a while")
        self.body(stmt.body)

    def branch(self, stmt: If) -> None:
        self.expect_type(stmt.cond, "bool", "the condition of an if")
        if self.varies(stmt.cond):
            self.raise_error("the condition of an if varies over the enclosing vector loop")
        self.body(stmt.body)
        self.body(stmt.orelse)

    def accum(self, stmt: Accum) -> None:
        name = stmt.name
        if name not in self.accs:
            self.raise_error(f"accumulator {name!r} is not declared")
        if stmt.op == "set":
            if name in self.outer:
                self.raise_error(f"outer accumulator {name!r} is set inside a vector loop")
        elif stmt.op not in REDUCTIONS:
            self.raise_error(f"accumulator {name!r} is updated by {stmt.op!r}")
        self.expect_type(stmt.value, self.names[name], f"the update of {name!r}")
        if stmt.guard is not None:
            self.expect_type(stmt.guard, "bool", f"the guard of {name!r}")

    def scan(self, stmt: PrefixCombine) -> None:
        if not len(stmt.names) == len(stmt.accs) == len(stmt.values) == len(stmt.combine) >= 1:
            self.raise_error(
                f"a scan has {len(stmt.names)} names, {len(stmt.accs)} accumulators, {len(stmt.values)} values and "
                f"{len(stmt.combine)} combinations"
            )
        for acc, value in zip(stmt.accs, stmt.values):
            if acc not in self.accs:
                self.raise_error(f"accumulator {acc!r} is not declared")
            self.expect_type(value, self.names[acc], f"the value scanned into {acc!r}")
        for name, acc in zip(stmt.names, stmt.accs):
            self.bind(name, self.names[acc])
            if self.varying is not None:
                self.varying.add(name)
        for acc, combined in zip(stmt.accs, stmt.combine):
            self.expect_type(combined, self.names[acc], f"the combination of {acc!r}")
            if not _refers_only_to(combined, {*stmt.names, *stmt.accs}):
                self.raise_error(f"the combination of {acc!r} reads other values than its operands")

    def store(self, stmt: StoreElement) -> None:
        buf = self.bufs.get(stmt.buf)
        if buf is None:
            self.raise_error(f"store to unknown buffer {stmt.buf!r}")
        if buf.mode == "in" and buf in self.kernel.bufs:
            self.raise_error(f"store to input {stmt.buf!r}")
        if stmt.accumulate is not None and stmt.accumulate not in REDUCTIONS:
            self.raise_error(f"store to {stmt.buf!r} accumulates by {stmt.accumulate!r}")
        self.expect_type(stmt.index, "i64", f"the index into {stmt.buf!r}")
        self.expect_type(stmt.value, buf.type, f"the value stored to {stmt.buf!r}")
        if stmt.guard is not None:
            self.expect_type(stmt.guard, "bool", f"the guard of a store to {stmt.buf!r}")

    def loop(self, stmt: For) -> None:
        if not isinstance(stmt.extent, int):
            if stmt.is_parallel:
                self.raise_error(f"parallel loop over {stmt.var!r} has a computed extent")
            self.expect_type(stmt.extent, "i64", f"the extent of the loop over {stmt.var!r}")
        if stmt.var in self.loops or stmt.var in self.names:
            self.raise_error(f"name {stmt.var!r} is bound twice")
        self.loops.add(stmt.var)
        opens = stmt.is_vector and self.varying is None
        if opens:
            self.varying, self.outer = {stmt.var}, set(self.accs)
        elif not isinstance(stmt.extent, int) and self.varies(stmt.extent):
            self.raise_error(
                f"the extent of the loop over {stmt.var!r} varies over the enclosing vector loop"
            )
        self.body(stmt.body)
        self.loops.discard(stmt.var)
        if opens:
            self.varying, self.outer = None, set()

    def expect_type(self, expr: Expr, type_: ScalarType, what: str) -> None:
        actual = self.expr(expr)
        if actual != type_:
            self.raise_error(f"{what} has type {actual}, not {type_}")

    def varies(self, expr: Expr) -> bool:
        """Return whether `expr` differs between iterations of the enclosing vector loop."""
        if self.varying is None:
            return False
        match expr:
            case Index(name) | ScalarRef(name):
                return name in self.varying
            case ScalarOp(_, args):
                return any(self.varies(arg) for arg in args)
            case Load(_, index, _, guard, other):
                return any(self.varies(part) for part in (index, guard, other) if part is not None)
            case Const():
                return False

    def expr(self, expr: Expr) -> ScalarType:
        if isinstance(expr, Index):
            if expr.name not in self.loops:
                self.raise_error(f"loop variable {expr.name!r} is not in scope")
        elif isinstance(expr, ScalarRef):
            if self.names.get(expr.name) != expr.type:
                self.raise_error(
                    f"name {expr.name!r} has type {self.names.get(expr.name)}, used as {expr.type}"
                )
        elif isinstance(expr, Load):
            self.load(expr)
        elif isinstance(expr, ScalarOp):
            self.op(expr)
        elif expr.type not in ITEMSIZE:
            self.raise_error(f"constant of unknown type {expr.type!r}")
        return expr.type

    def load(self, expr: Load) -> None:
        buf = self.bufs.get(expr.buf)
        if buf is None or buf.type != expr.type:
            self.raise_error(f"load of {expr.type} from buffer {expr.buf!r}")
        self.expect_type(expr.index, "i64", f"the index into {expr.buf!r}")
        if expr.guard is not None:
            self.expect_type(expr.guard, "bool", f"the guard of a load from {expr.buf!r}")
        if expr.other is not None:
            self.expect_type(expr.other, expr.type, f"the alternative of a load from {expr.buf!r}")

    def op(self, expr: ScalarOp) -> None:
        types = [self.expr(arg) for arg in expr.args]
        if not _is_well_typed(expr.op, types, expr.type):
            self.raise_error(f"{expr.op} of ({', '.join(types)}) gives {expr.type}")


_STATEMENT_CHECKS: dict[type, Callable[..., None]] = {  # class of a statement -> its check
    Let: _KernelChecker.let,
    Init: _KernelChecker.init,
    Accum: _KernelChecker.accum,
    PrefixCombine: _KernelChecker.scan,
    StoreElement: _KernelChecker.store,
    Interleave: _KernelChecker.interleave,
    Pack: _KernelChecker.pack,
    Prefetch: _KernelChecker.prefetch,
    For: _KernelChecker.loop,
    While: _KernelChecker.repeat,
    If: _KernelChecker.branch,
}


def _is_well_typed(op: str, types: list[ScalarType], result: ScalarType) -> bool:
    """Return whether operation `op` on operands of `types` has a result of type `result`."""
    if op in ("abs", "real", "imag") and types[0] in COMPLEX:
        return result == REAL_OF[types[0]]
    if op in ARITHMETIC:
        return set(types) == {result}
    if op in COMPARISONS:
        return len(types) == 2 and types[0] == types[1] and result == "bool"
    if function := functions[op]:
        is_typed = result == "bool" if function.test else set(types) == {result}
        return len(types) == function.arity and is_typed
    if op in _TYPE_RULES:
        return _TYPE_RULES[op](types, result)
    return op in ("cast", "conj", "real", "imag") and len(types) == 1


#: operation -> whether operands of these types have a result of this type
_TYPE_RULES: dict[str, Callable[[list[ScalarType], ScalarType], bool]] = {
    "select": lambda types, result: types == ["bool", result, result],
    "complex": lambda types, result: types[0] == types[1] and COMPLEX_OF.get(types[0]) == result,
    "bitcast": lambda types, result: ITEMSIZE[types[0]] == ITEMSIZE[result],
}


def _refers_only_to(expr: Expr, names: set[str]) -> bool:
    """Return whether an expression consists of operations, constants and references to `names` only."""
    match expr:
        case ScalarOp(_, args):
            return all(_refers_only_to(arg, names) for arg in args)
        case ScalarRef(name):
            return name in names
        case _:
            return isinstance(expr, Const)
