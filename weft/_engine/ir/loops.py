"""Loops: the kernel IR. Scalars, memory and loop nests; one `Kernel` is one native function.

In:   fused groups of equations (built by `compiler.lowering.lower`).
Out:  LLVM IR (emitted by `codegen.kernel.kernel_emitter`); `evaluate` runs a kernel slowly on NumPy.
Laws: every expression is a pure scalar; all memory is reached through named flat buffers by element index;
      loops have fixed extents; a `vector` loop promises that its iterations are independent but for `Accum`, `Scan` and `Pack`;
      the `parallel` loop, if any, is the single outermost statement of the kernel and its iterations are independent.

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
#: the operations of Loops itself; all others are functions, of which `ir.registry` has a record each
OPERATIONS = (
    ARITHMETIC | COMPARISONS | {"select", "cast", "bitcast", "complex", "real", "imag", "conj"}
)
functions.update(dict.fromkeys(OPERATIONS))


@final
@record
class Const:
    """A literal; `value` is a Python bool, int, float or complex, as `type` requires."""

    value: Any  # its Python type follows from the value of `type`, which a checker cannot see
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
    """Element `index` (flat, in elements) of buffer `buf`. `guard`, when given, is a bool: where false, the value is
    `other` (zero by default) and nothing is touched."""

    buf: str
    index: Expr
    type: ScalarType
    guard: Expr | None = None
    other: Expr | None = None


@final
@record
class Op:
    """Scalar operation `op` of ARITHMETIC or COMPARISONS, a function of `ir.registry`, or one of:
    `select` (bool, then, else), `cast` (value conversion to `type`; float to int truncates and saturates, NaN gives 0),
    `bitcast`, `complex` (re, im), `real`, `imag`, `conj`."""

    op: str
    args: tuple[Expr, ...]
    type: ScalarType


@final
@record
class Ref:
    """The value of a `Let` name or the current value of accumulator `name`."""

    name: str
    type: ScalarType


Expr = Union[Const, Index, Load, Op, Ref]
EXPRESSIONS = (Const, Index, Load, Op, Ref)


@record
class Let:
    """Bind `name` to `value` for the rest of the enclosing body (computed once per iteration)."""

    name: str
    value: Expr


@record
class Init:
    """Declare accumulator `name` and set it to `value`. It lives until the enclosing body ends."""

    name: str
    value: Expr


@record
class Accum:
    """`name = op(name, value)`, with `op` associative: add mul min max and or xor — or `set` (plain assignment, never
    inside a `vector` loop that encloses it but not its `Init`). The order of a reduction is not promised. `guard` false
    skips."""

    name: str
    op: str
    value: Expr
    guard: Expr | None = None


@record
class Scan:
    """A running combination. Each of `names` is bound to its value in `values`, then to what `combine` makes of that and of
    the accumulators `accs`, which become it too: `names = values; accs = names = combine(accs, names)`. `combine` reads
    `Ref`s to these names and constants only and is associative: a `vector` loop around it (but not around the `Init`s)
    groups iterations as it likes, in their order, and nothing else there reads the accumulators."""

    names: tuple[str, ...]
    accs: tuple[str, ...]
    values: tuple[Expr, ...]
    combine: tuple[Expr, ...]


@record
class Store:
    """Write `value` to element `index` of `buf`. `accumulate` (add mul min max and or xor) makes it an update."""

    buf: str
    index: Expr
    value: Expr
    guard: Expr | None = None
    accumulate: str | None = None
    streaming: bool = False  # hint: non-temporal store


@record
class Interleave:
    """Write `values` to elements `index`, `index + 1`, ... of `buf`, a row of them in each iteration. What a vector loop
    computes value by value so reaches memory row by row: a transpose in registers."""

    buf: str
    index: Expr
    values: tuple[Expr, ...]
    streaming: bool = False  # hint: non-temporal stores


@record
class Pack:
    """Append: where `guard` holds, write `value` to element `acc` of `buf`, and let the accumulator `acc` (i64) be one more.
    `buf` has room for a value of each iteration, and what is there beyond those that were appended may be anything. Nothing else
    in a `vector` loop around it reads the accumulator, and its `Init` is outside."""

    acc: str
    buf: str
    value: Expr
    guard: Expr

    def stored(self) -> Store:
        """The write alone."""
        return Store(self.buf, Ref(self.acc, "i64"), self.value)


@record
class Prefetch:
    """Hint: element `index` of `buf` is needed soon. In a vector loop, so are those of all its iterations, unless they are further
    apart than a cache line. The place may be beyond the end of `buf`."""

    buf: str
    index: Expr


class LoopKind(StrEnum):
    """How the iterations of a loop run."""

    SERIAL = "serial"
    VECTOR = "vector"
    PARALLEL = "parallel"


@record
class For:
    """`for var in range(extent)`. `extent` is an int; for `serial` and `vector` loops it may also be an i64 expression
    that does not vary over the loop itself (a negative value means no iterations)."""

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
    """Repeat `body` while `cond` (a bool over accumulators and memory) holds. Never inside a `vector` loop."""

    cond: Expr
    body: tuple[Stmt, ...]


@record
class If:
    """Run `body` where `cond` holds, else `orelse`. Inside a `vector` loop `cond` must not vary over it."""

    cond: Expr
    body: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


Stmt = Union[Let, Init, Accum, Scan, Store, Interleave, Pack, Prefetch, For, While, If]


BufMode = Literal["in", "out", "inout"]


@record
class Buf:
    """A flat buffer parameter of `size` elements; bool is stored as one byte. `mode`: in, out, inout.
    Different buffers never overlap, unless one names the other as its `alias` (same address, elementwise use: an
    iteration reads an element of either before it writes it, and no other iteration touches it)."""

    name: str
    type: ScalarType
    size: int
    mode: BufMode = "in"
    alias: str | None = None


@record
class Kernel:
    """One native function over `bufs`, in order. `name` does not take part in the kernel's identity."""

    bufs: tuple[Buf, ...]
    body: tuple[Stmt, ...]
    scratch: tuple[
        Buf, ...
    ] = ()  # private to each iteration of the parallel loop (or to the kernel)
    name: str = field(default="kernel", compare=False)

    @property
    def parallel_loop(self) -> For | None:
        """The outermost loop if its iterations are the kernel's tasks."""
        match self.body:
            case (For() as loop,) if loop.is_parallel:
                return loop
            case _:
                return None

    @property
    def parallel_extent(self) -> int:
        """Number of tasks: the extent of the outermost parallel loop, else 1."""
        loop = self.parallel_loop
        return loop.extent if loop is not None and isinstance(loop.extent, int) else 1


#: bytes of one element in memory
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
#: the real type of a complex one, and back
REAL_OF = {"c64": "f32", "c128": "f64"}
COMPLEX_OF = {"f32": "c64", "f64": "c128"}
#: operations an accumulator or an accumulating store may use
REDUCTIONS = frozenset({"add", "mul", "min", "max", "and", "or", "xor"})


def check(kernel: Kernel) -> None:
    """Raise `ValueError` where a kernel breaks a law of this module: types agree, names are bound once and before use,
    vector loops hold no `While`, no `set` of an outer accumulator, and no condition that varies over them."""
    _Checker(kernel).run()


class _Checker:
    """Walks a kernel with the names in scope. `varying` holds what differs between iterations of the vector loop."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.bufs = {buf.name: buf for buf in (*kernel.bufs, *kernel.scratch)}
        self.names: dict[str, ScalarType] = {}
        self.loops: set[str] = set()
        self.accs: set[str] = set()
        self.varying: set[str] | None = None
        self.outer: set[str] = set()

    def fail(self, fact: str) -> NoReturn:
        raise ValueError(f"loops.check: kernel {self.kernel.name!r}: {fact}")

    def run(self) -> None:
        if len(self.bufs) != len(self.kernel.bufs) + len(self.kernel.scratch):
            self.fail("two buffers have the same name")
        for buf in self.bufs.values():
            if buf.type not in ITEMSIZE or buf.size < 0:
                self.fail(f"buffer {buf.name!r} has type {buf.type!r} and size {buf.size}")
            if buf.alias is not None and buf.alias not in self.bufs:
                self.fail(f"buffer {buf.name!r} names an unknown alias {buf.alias!r}")
        self.body(self.kernel.body, top=True)

    def body(self, body: tuple[Stmt, ...], top: bool = False) -> None:
        saved = dict(self.names), set(self.accs), set(self.loops)
        for stmt in body:
            if isinstance(stmt, For) and stmt.is_parallel and not (top and len(body) == 1):
                self.fail(f"parallel loop over {stmt.var!r} is not the single outermost statement")
            self.stmt(stmt)
        self.names, self.accs, self.loops = saved

    def bind(self, name: str, type_: ScalarType) -> None:
        if name in self.names or name in self.loops:
            self.fail(f"name {name!r} is bound twice")
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
            self.fail(f"prefetch from unknown buffer {stmt.buf!r}")
        self.want(stmt.index, "i64", f"the index into {stmt.buf!r}")

    def interleave(self, stmt: Interleave) -> None:
        if not stmt.values:
            self.fail(f"a row of no values is stored to {stmt.buf!r}")
        for value in stmt.values:
            self.store(Store(stmt.buf, stmt.index, value))

    def pack(self, stmt: Pack) -> None:
        if stmt.acc not in self.accs or (self.varying is not None and stmt.acc not in self.outer):
            self.fail(f"what is packed is counted by {stmt.acc!r}, which is not declared before")
        if stmt.value.type in COMPLEX:
            self.fail(f"complex values are packed into {stmt.buf!r}")
        self.store(stmt.stored())
        self.want(stmt.guard, "bool", f"the guard of what is packed into {stmt.buf!r}")

    def repeat(self, stmt: While) -> None:
        if self.varying is not None:
            self.fail("a while inside a vector loop")
        self.want(stmt.cond, "bool", "the condition of a while")
        self.body(stmt.body)

    def branch(self, stmt: If) -> None:
        self.want(stmt.cond, "bool", "the condition of an if")
        if self.varies(stmt.cond):
            self.fail("the condition of an if varies over the enclosing vector loop")
        self.body(stmt.body)
        self.body(stmt.orelse)

    def accum(self, stmt: Accum) -> None:
        name = stmt.name
        if name not in self.accs:
            self.fail(f"accumulator {name!r} is not declared")
        if stmt.op == "set":
            if name in self.outer:
                self.fail(f"accumulator {name!r} of outside is set inside a vector loop")
        elif stmt.op not in REDUCTIONS:
            self.fail(f"accumulator {name!r} is updated by {stmt.op!r}")
        self.want(stmt.value, self.names[name], f"the update of {name!r}")
        if stmt.guard is not None:
            self.want(stmt.guard, "bool", f"the guard of {name!r}")

    def scan(self, stmt: Scan) -> None:
        if not len(stmt.names) == len(stmt.accs) == len(stmt.values) == len(stmt.combine) >= 1:
            self.fail(
                f"a scan has {len(stmt.names)} names, {len(stmt.accs)} accumulators, {len(stmt.values)} values and "
                f"{len(stmt.combine)} combinations"
            )
        for acc, value in zip(stmt.accs, stmt.values):
            if acc not in self.accs:
                self.fail(f"accumulator {acc!r} is not declared")
            self.want(value, self.names[acc], f"what is scanned into {acc!r}")
        for name, acc in zip(stmt.names, stmt.accs):
            self.bind(name, self.names[acc])
            if self.varying is not None:
                self.varying.add(name)
        for acc, combined in zip(stmt.accs, stmt.combine):
            self.want(combined, self.names[acc], f"the combination of {acc!r}")
            if not _refers_only_to(combined, {*stmt.names, *stmt.accs}):
                self.fail(f"the combination of {acc!r} reads more than what is combined")

    def store(self, stmt: Store) -> None:
        buf = self.bufs.get(stmt.buf)
        if buf is None:
            self.fail(f"store to unknown buffer {stmt.buf!r}")
        if buf.mode == "in" and buf in self.kernel.bufs:
            self.fail(f"store to input {stmt.buf!r}")
        if stmt.accumulate is not None and stmt.accumulate not in REDUCTIONS:
            self.fail(f"store to {stmt.buf!r} accumulates by {stmt.accumulate!r}")
        self.want(stmt.index, "i64", f"the index into {stmt.buf!r}")
        self.want(stmt.value, buf.type, f"what is stored to {stmt.buf!r}")
        if stmt.guard is not None:
            self.want(stmt.guard, "bool", f"the guard of a store to {stmt.buf!r}")

    def loop(self, stmt: For) -> None:
        if not isinstance(stmt.extent, int):
            if stmt.is_parallel:
                self.fail(f"parallel loop over {stmt.var!r} has a computed extent")
            self.want(stmt.extent, "i64", f"the extent of the loop over {stmt.var!r}")
        if stmt.var in self.loops or stmt.var in self.names:
            self.fail(f"name {stmt.var!r} is bound twice")
        self.loops.add(stmt.var)
        opens = stmt.is_vector and self.varying is None
        if opens:
            self.varying, self.outer = {stmt.var}, set(self.accs)
        elif not isinstance(stmt.extent, int) and self.varies(stmt.extent):
            self.fail(
                f"the extent of the loop over {stmt.var!r} varies over the enclosing vector loop"
            )
        self.body(stmt.body)
        self.loops.discard(stmt.var)
        if opens:
            self.varying, self.outer = None, set()

    def want(self, expr: Expr, type_: ScalarType, what: str) -> None:
        found = self.expr(expr)
        if found != type_:
            self.fail(f"{what} has type {found}, not {type_}")

    def varies(self, expr: Expr) -> bool:
        """True if `expr` differs between iterations of the enclosing vector loop."""
        if self.varying is None:
            return False
        match expr:
            case Index(name) | Ref(name):
                return name in self.varying
            case Op(_, args):
                return any(self.varies(arg) for arg in args)
            case Load(_, index, _, guard, other):
                return any(self.varies(part) for part in (index, guard, other) if part is not None)
            case Const():
                return False

    def expr(self, expr: Expr) -> ScalarType:
        if isinstance(expr, Index):
            if expr.name not in self.loops:
                self.fail(f"loop variable {expr.name!r} is not in scope")
        elif isinstance(expr, Ref):
            if self.names.get(expr.name) != expr.type:
                self.fail(
                    f"name {expr.name!r} has type {self.names.get(expr.name)}, used as {expr.type}"
                )
        elif isinstance(expr, Load):
            self.load(expr)
        elif isinstance(expr, Op):
            self.op(expr)
        elif expr.type not in ITEMSIZE:
            self.fail(f"constant of unknown type {expr.type!r}")
        return expr.type

    def load(self, expr: Load) -> None:
        buf = self.bufs.get(expr.buf)
        if buf is None or buf.type != expr.type:
            self.fail(f"load of {expr.type} from buffer {expr.buf!r}")
        self.want(expr.index, "i64", f"the index into {expr.buf!r}")
        if expr.guard is not None:
            self.want(expr.guard, "bool", f"the guard of a load from {expr.buf!r}")
        if expr.other is not None:
            self.want(expr.other, expr.type, f"the alternative of a load from {expr.buf!r}")

    def op(self, expr: Op) -> None:
        types = [self.expr(arg) for arg in expr.args]
        if not _is_well_typed(expr.op, types, expr.type):
            self.fail(f"{expr.op} of ({', '.join(types)}) gives {expr.type}")


_STATEMENT_CHECKS: dict[type, Callable[..., None]] = {  # each takes its own class of statement
    Let: _Checker.let,
    Init: _Checker.init,
    Accum: _Checker.accum,
    Scan: _Checker.scan,
    Store: _Checker.store,
    Interleave: _Checker.interleave,
    Pack: _Checker.pack,
    Prefetch: _Checker.prefetch,
    For: _Checker.loop,
    While: _Checker.repeat,
    If: _Checker.branch,
}


def _is_well_typed(op: str, types: list[ScalarType], result: ScalarType) -> bool:
    """True if operation `op` takes operands of `types` to `result`."""
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


#: operation -> whether it takes operands of these types to this one
_TYPE_RULES: dict[str, Callable[[list[ScalarType], ScalarType], bool]] = {
    "select": lambda types, result: types == ["bool", result, result],
    "complex": lambda types, result: types[0] == types[1] and COMPLEX_OF.get(types[0]) == result,
    "bitcast": lambda types, result: ITEMSIZE[types[0]] == ITEMSIZE[result],
}


def _refers_only_to(expr: Expr, names: set[str]) -> bool:
    """Whether an expression is made of constants and `names` alone."""
    match expr:
        case Op(_, args):
            return all(_refers_only_to(arg, names) for arg in args)
        case Ref(name):
            return name in names
        case _:
            return isinstance(expr, Const)
