"""Analysis of the functions of a kernel that may be computed to half precision.

In:   a kernel.
Out:  `demands_of`: id of a float32 operation -> the half-precision type to which its result is
      rounded.
Laws: all operations between such a function and the rounding preserve relative errors: products,
      quotients, selections, maxima, and sums of nonnegative values, but not products accumulated
      over a loop. A function whose result has other uses keeps full precision. Only functions whose
      short formulas are valid for every float32 take part.
"""

from __future__ import annotations

from weft._engine.codegen.kernel.vectorization_plan import bodies, expressions
from weft._engine.ir.build import HALVES
from weft._engine.ir.loops import (
    Accum,
    Const,
    Expr,
    Init,
    Interleave,
    Let,
    Load,
    LoopsKernel,
    Pack,
    PrefixCombine,
    ScalarOp,
    ScalarRef,
    Stmt,
    StoreElement,
)
from weft._engine.ir.registry import functions

#: operations that preserve relative errors -> position of the first argument whose error is
#: preserved
_PRESERVES_RELATIVE_ERROR = {
    "mul": 0,
    "div": 0,
    "neg": 0,
    "abs": 0,
    "max": 0,
    "min": 0,
    "add": 0,
    "select": 1,
}
#: operations that preserve relative errors when iterated
_PRESERVES_WHEN_ITERATED = frozenset({"add", "max", "min"})
_FULL = "f32"
#: demands in increasing order: not read, bfloat16, float16, all bits
_ORDER = ("", "bf16", "f16", _FULL)


def demands_of(kernel: LoopsKernel) -> dict[int, str]:
    """Return the half type to which each f32 function may be computed, by operation id."""
    if not any(buf.type in HALVES and buf.mode != "in" for buf in kernel.bufs):
        return {}
    demands = _Demands(kernel)
    return {
        key: demands.expressions[key]
        for key in demands.functions
        if demands.expressions[key] in HALVES
    }


def _is_brief(op: str) -> bool:
    function = functions[op]
    return function is not None and function.brief


class _Demands:
    """Precision demanded of expressions, names and scratch buffers by their readers."""

    def __init__(self, kernel: LoopsKernel):
        self.scratch = {buf.name for buf in kernel.scratch}
        #: name or scratch buffer -> the expressions that are assigned to it
        self.sources: dict[str, list[Expr]] = {}
        #: names whose sources are summed, and names whose values this analysis does not track
        self.summed: set[str] = set()
        self.opaque: set[str] = set()
        self.names: dict[str, str] = {}
        self.expressions: dict[int, str] = {}
        self.functions: list[int] = []
        self.roots: list[Expr] = []
        for stmt in kernel.body:
            self.analyze(stmt)
        self.opaque |= {name for name in self.sources if self.is_multiplied_in_loop(name)}
        #: names and scratch buffers that are never negative: the largest set that is consistent
        self.not_negative = set(self.sources) - self.opaque
        while wrong := {
            name
            for name in self.not_negative
            if not all(self.is_nonnegative(x) for x in self.sources[name])
        }:
            self.not_negative -= wrong
        for expr in self.roots:
            self.ask(expr, _FULL)

    def analyze(self, stmt: Stmt) -> None:
        """Record the sources of names and scratch buffers, and the expressions that are stored or control flow."""
        if isinstance(stmt, Let | Init):
            self.note_source(stmt.name, stmt.value)
        elif isinstance(stmt, Accum) and stmt.op in _PRESERVES_WHEN_ITERATED and stmt.guard is None:
            self.note_source(stmt.name, stmt.value, stmt.op)
        elif (
            isinstance(stmt, StoreElement)
            and stmt.buf in self.scratch
            and stmt.guard is None
            and (stmt.accumulate is None or stmt.accumulate in _PRESERVES_WHEN_ITERATED)
        ):
            self.roots.append(stmt.index)
            self.note_source(stmt.buf, stmt.value, stmt.accumulate)
        else:
            self.roots += expressions(stmt)
            if isinstance(stmt, PrefixCombine):
                self.opaque.update(stmt.accs, stmt.names)
            elif isinstance(stmt, Accum):
                self.opaque.add(stmt.name)
            elif isinstance(stmt, StoreElement | Interleave | Pack):
                self.opaque.add(stmt.buf)
        for body in bodies(stmt):
            for child in body:
                self.analyze(child)

    def is_multiplied_in_loop(self, name: str) -> bool:
        """Return whether a name is multiplied over loop iterations, directly or through other
        names, so that its error grows."""
        seen: set[tuple[int, bool]] = set()
        stack = [(expr, False) for expr in self.sources[name]]
        while stack:
            expr, multiplied = stack.pop()
            if (id(expr), multiplied) in seen:
                continue
            seen.add((id(expr), multiplied))
            if isinstance(expr, ScalarOp):
                first = _PRESERVES_RELATIVE_ERROR.get(expr.op, len(expr.args))
                stack += [
                    (arg, multiplied or expr.op in ("mul", "div")) for arg in expr.args[first:]
                ]
                continue
            source = (
                expr.name
                if isinstance(expr, ScalarRef)
                else expr.buf
                if isinstance(expr, Load)
                else ""
            )
            if source == name and multiplied:
                return True
            stack += [(arg, multiplied) for arg in self.sources.get(source, ())]
            if isinstance(expr, Load) and expr.other is not None:
                stack.append((expr.other, multiplied))
        return False

    def note_source(self, name: str, value: Expr, op: str | None = None) -> None:
        """Record a source of a name."""
        self.sources.setdefault(name, []).append(value)
        if op == "add":
            self.summed.add(name)

    def ask(self, expr: Expr, demand: str) -> None:
        """Raise the demand on an expression to `demand`."""
        if _ORDER.index(demand) <= _ORDER.index(self.expressions.get(id(expr), "")):
            return
        self.expressions[id(expr)] = demand
        if isinstance(expr, ScalarRef):
            self.ask_name(expr.name, demand)
        elif isinstance(expr, Load):
            for inner in (expr.index, expr.guard):
                if inner is not None:
                    self.ask(inner, _FULL)
            if expr.other is not None:
                self.ask(expr.other, demand)
            if expr.buf in self.scratch:
                self.ask_name(expr.buf, demand)
        elif isinstance(expr, ScalarOp):
            self.ask_arguments(expr, demand)

    def ask_arguments(self, expr: ScalarOp, demand: str) -> None:
        """Propagate the demand on an operation to its arguments."""
        if _is_brief(expr.op) and expr.type == "f32":
            self.functions.append(id(expr))
        first = len(expr.args)
        if expr.op == "cast" and expr.type in HALVES and expr.args[0].type == "f32":
            first, demand = 0, expr.type
        elif expr.type == "f32" and (
            expr.op != "add" or all(self.is_nonnegative(x) for x in expr.args)
        ):
            first = _PRESERVES_RELATIVE_ERROR.get(expr.op, first)
        for at, arg in enumerate(expr.args):
            self.ask(arg, demand if at >= first else _FULL)

    def ask_name(self, name: str, demand: str) -> None:
        """Propagate the demand on a name to its sources."""
        sources = self.sources.get(name, [])
        if name in self.opaque or (name in self.summed and name not in self.not_negative):
            demand = _FULL
        if _ORDER.index(demand) > _ORDER.index(self.names.get(name, "")):
            self.names[name] = demand
            for value in sources:
                self.ask(value, demand)

    def is_nonnegative(self, expr: Expr) -> bool:
        """Return whether a value is known to be nonnegative."""
        if isinstance(expr, Const):
            return isinstance(expr.value, int | float) and expr.value >= 0
        if isinstance(expr, ScalarOp):
            return _is_brief(expr.op) or (
                expr.op in ("add", "mul", "div", "max")
                and all(self.is_nonnegative(x) for x in expr.args)
            )
        if isinstance(expr, Load):
            return expr.buf in self.not_negative and (
                expr.other is None or self.is_nonnegative(expr.other)
            )
        name = expr.name if isinstance(expr, ScalarRef) else None
        return name in self.not_negative
