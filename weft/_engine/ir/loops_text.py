"""The text of Loops kernels: printing and parsing, `parse_kernel(print_kernel(k)) == k`.

`canonical` is the text without the name of the kernel. It identifies a kernel: kernels with equal texts are compiled once.

    kernel scale(in x: f32[8], out y: f32[8]) {
      vector i in 8 {
        y[@i] = mul.f32(x[@i], 2.0:f32)
      }
    }

`@i` is a loop variable, `%s` a name bound by `let` or `acc`, `x[index ? guard : other]` a guarded load,
`interleave y[index] = (a, b)` an `Interleave`, `prefetch x[index]` a `Prefetch`,
`scan v = x[@i] after a by add.f32(%a, %v)` a `PrefixCombine`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from weft._engine.ir import loops as L


def print_kernel(kernel: L.LoopsKernel) -> str:
    """Return the text of a kernel.

    >>> store = L.StoreElement("y", L.Const(0, "i64"), L.Const(7, "i32"))
    >>> k = L.LoopsKernel((L.Buf("y", "i32", 4, "out"),), (store,), name="seven")
    >>> print(print_kernel(k))
    kernel seven(out y: i32[4]) {
      y[0:i64] = 7:i32
    }
    """
    return f"kernel {kernel.name}{canonical(kernel)}"


def canonical(kernel: L.LoopsKernel) -> str:
    """Return the text of a kernel without its name. Equal kernels have equal texts."""
    header = ", ".join([f"{buf.mode} {_buffer(buf)}" for buf in kernel.bufs])
    if kernel.scratch:
        header += "; scratch " + ", ".join([_buffer(buf) for buf in kernel.scratch])
    lines = [f"({header}) {{"]
    _print_body(kernel.body, lines, "  ")
    lines.append("}")
    return "\n".join(lines)


def _buffer(buf: L.Buf) -> str:
    return f"{buf.name}: {buf.type}[{buf.size}]" + (f" alias {buf.alias}" if buf.alias else "")


def _print_body(body: tuple[L.Stmt, ...], lines: list[str], pad: str) -> None:
    for stmt in body:
        printer = _PRINTERS.get(type(stmt))
        if printer is not None:
            lines.append(pad + printer(stmt))
            continue
        if not isinstance(stmt, L.For | L.While | L.If):
            raise TypeError(f"loops: not a statement: {stmt!r}")
        lines.append(f"{pad}{_HEADS[type(stmt)](stmt)} {{")
        _print_body(stmt.body, lines, pad + "  ")
        if isinstance(stmt, L.If) and stmt.orelse:
            lines.append(pad + "} else {")
            _print_body(stmt.orelse, lines, pad + "  ")
        lines.append(pad + "}")


def _print_accum(stmt: L.Accum) -> str:
    return f"{stmt.name} {stmt.op}= {print_expr(stmt.value)}{_print_guard(stmt.guard)}"


def _print_guard(guard: L.Expr | None) -> str:
    return "" if guard is None else f" when {print_expr(guard)}"


def _print_exprs(exprs: tuple[L.Expr, ...]) -> str:
    return ", ".join([print_expr(expr) for expr in exprs])


def _print_scan(stmt: L.PrefixCombine) -> str:
    names, accs = ", ".join(stmt.names), ", ".join(stmt.accs)
    values, combine = _print_exprs(stmt.values), _print_exprs(stmt.combine)
    return f"scan {names} = {values} after {accs} by {combine}"


def _print_store(stmt: L.StoreElement) -> str:
    operator = f"{stmt.accumulate or ''}="
    tail = _print_guard(stmt.guard) + (" streaming" if stmt.streaming else "")
    return f"{stmt.buf}[{print_expr(stmt.index)}] {operator} {print_expr(stmt.value)}{tail}"


def _print_interleave(stmt: L.Interleave) -> str:
    tail = " streaming" if stmt.streaming else ""
    return f"interleave {stmt.buf}[{print_expr(stmt.index)}] = ({_print_exprs(stmt.values)}){tail}"


def _print_pack(stmt: L.Pack) -> str:
    value, guard = print_expr(stmt.value), print_expr(stmt.guard)
    return f"pack {stmt.buf} by {stmt.acc} = {value} when {guard}"


def _print_for(stmt: L.For) -> str:
    extent = stmt.extent if isinstance(stmt.extent, int) else print_expr(stmt.extent)
    return f"{stmt.kind} {stmt.var} in {extent}"


def _print_let(stmt: L.Let) -> str:
    return f"let {stmt.name} = {print_expr(stmt.value)}"


def _print_init(stmt: L.Init) -> str:
    return f"acc {stmt.name} = {print_expr(stmt.value)}"


def _print_prefetch(stmt: L.Prefetch) -> str:
    return f"prefetch {stmt.buf}[{print_expr(stmt.index)}]"


def _print_while(stmt: L.While) -> str:
    return f"while {print_expr(stmt.cond)}"


def _print_if(stmt: L.If) -> str:
    return f"if {print_expr(stmt.cond)}"


#: class of a statement -> its text
_PRINTERS: dict[type, Callable[..., str]] = {
    L.Let: _print_let,
    L.Init: _print_init,
    L.Accum: _print_accum,
    L.PrefixCombine: _print_scan,
    L.StoreElement: _print_store,
    L.Interleave: _print_interleave,
    L.Pack: _print_pack,
    L.Prefetch: _print_prefetch,
}
#: class of a statement with a body -> the text before the body
_HEADS: dict[type, Callable[..., str]] = {
    L.For: _print_for,
    L.While: _print_while,
    L.If: _print_if,
}


def print_expr(expr: L.Expr) -> str:
    """Return the text of an expression."""
    if isinstance(expr, L.ScalarOp):
        return f"{expr.op}.{expr.type}({_print_exprs(expr.args)})"
    if isinstance(expr, L.Index):
        return "@" + expr.name
    if isinstance(expr, L.ScalarRef):
        return "%" + expr.name
    if isinstance(expr, L.Const):
        return f"{_number(expr.value, expr.type)}:{expr.type}"
    if expr.guard is None:
        return f"{expr.buf}[{print_expr(expr.index)}]"
    other = "" if expr.other is None else f" : {print_expr(expr.other)}"
    return f"{expr.buf}[{print_expr(expr.index)} ? {print_expr(expr.guard)}{other}]"


def _number(value: Any, type_: str) -> str:  # the Python type of `value` depends on `type_`
    if type_ in L.FLOATS:
        return repr(float(value))
    if type_ == "bool":
        return "true" if value else "false"
    if type_ in L.COMPLEX:
        value = complex(value)
        return f"({value.real!r},{value.imag!r})"
    return str(int(value))


_MODES: tuple[L.BufMode, ...] = ("in", "out", "inout")
_UPDATES = ("add", "mul", "min", "max", "and", "or", "xor", "set")


def parse_kernel(text: str) -> L.LoopsKernel:
    """Return the kernel that `print_kernel` printed as `text`. Raise ValueError for other text."""
    return _KernelParser(text).kernel()


@functools.cache
def _token() -> re.Pattern[str]:
    """Return the pattern of a token. It is compiled on first use, because most processes parse no kernels."""
    return re.compile(
        r"""\s*(?:
    (?P<complex>\([-+.\w]+,[-+.\w]+\)(?=:c))
  | (?P<number>[-+]?(?:\d[\w.]*(?:[eE][-+]?\d+)?|\binf\b|\bnan\b|(?<=-)inf)(?=:)|-inf(?=:))
  | (?P<int>-?\d+)
  | (?P<name>[@%]?[A-Za-z_]\w*)
  | (?P<mark>[-\[\](){},;:?=.])
)""",
        re.VERBOSE,
    )


class _KernelParser:
    """A recursive-descent parser of one kernel."""

    def __init__(self, text: str):
        self.tokens: list[str] = []
        at, text, token = 0, text.rstrip(), _token()
        while at < len(text):
            match = token.match(text, at)
            if match is None:
                raise ValueError(f"loops text: cannot read {text[at : at + 30]!r}")
            self.tokens.append(match.group().strip())
            at = match.end()
        self.at = 0
        self.types: dict[str, str] = {}
        self.names: dict[str, str] = {}

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, token: str) -> None:
        actual = self.next()
        if actual != token:
            raise ValueError(f"loops text: expected {token!r}, found {actual!r} (token {self.at})")

    def accept(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def kernel(self) -> L.LoopsKernel:
        self.expect("kernel")
        name = self.next()
        self.expect("(")
        bufs: list[L.Buf] = []
        scratch: list[L.Buf] = []
        where = None
        while not self.accept(")"):
            if self.accept(";"):
                self.expect("scratch")
                where = scratch
            if where is None:
                bufs.append(self.buffer(self.next()))
            else:
                scratch.append(self.buffer("in"))
            self.accept(",")
        body = self.body()
        return L.LoopsKernel(tuple(bufs), body, tuple(scratch), name)

    def buffer(self, mode: str) -> L.Buf:
        if mode not in _MODES:
            raise ValueError(f"loops text: {mode!r} is not one of {', '.join(_MODES)}")
        name = self.next()
        self.expect(":")
        type_ = self.next()
        self.expect("[")
        size = int(self.next())
        self.expect("]")
        self.types[name] = type_
        return L.Buf(name, type_, size, mode, self.next() if self.accept("alias") else None)

    def body(self) -> tuple[L.Stmt, ...]:
        self.expect("{")
        stmts: list[L.Stmt] = []
        while not self.accept("}"):
            stmts.append(self.stmt())
        return tuple(stmts)

    def stmt(self) -> L.Stmt:
        word = self.next()
        keyword = _KEYWORDS.get(word)
        if keyword is not None and self.peek() not in ("[", *_UPDATES):
            return keyword(self)
        if self.accept("["):
            return self.store(word)
        op = self.next()
        self.expect("=")
        value = self.expr()
        return L.Accum(word, op, value, self.expr() if self.accept("when") else None)

    def store(self, buf: str) -> L.StoreElement:
        index = self.expr()
        self.expect("]")
        accumulate = self.next() if self.peek() != "=" else None
        self.expect("=")
        value = self.expr()
        guard = self.expr() if self.accept("when") else None
        return L.StoreElement(buf, index, value, guard, accumulate, self.accept("streaming"))

    def parse_binding(self, make: type[L.Let | L.Init]) -> L.Stmt:
        name = self.next()
        self.expect("=")
        value = self.expr()
        self.names[name] = value.type
        return make(name, value)

    def loop(self, kind: L.LoopKind) -> L.For:
        var = self.next()
        self.expect("in")
        extent = self.expr() if not self._plain_int() else int(self.next())
        return L.For(var, extent, self.body(), kind)

    def branch(self) -> L.If:
        cond, body = self.expr(), self.body()
        return L.If(cond, body, self.body() if self.accept("else") else ())

    def interleave(self) -> L.Interleave:
        buf = self.next()
        self.expect("[")
        index = self.expr()
        for mark in ("]", "=", "("):
            self.expect(mark)
        values: list[L.Expr] = []
        while not self.accept(")"):
            values.append(self.expr())
            self.accept(",")
        return L.Interleave(buf, index, tuple(values), self.accept("streaming"))

    def pack(self) -> L.Pack:
        buf = self.next()
        self.expect("by")
        acc = self.next()
        self.expect("=")
        value = self.expr()
        self.expect("when")
        return L.Pack(acc, buf, value, self.expr())

    def prefetch(self) -> L.Prefetch:
        buf = self.next()
        self.expect("[")
        index = self.expr()
        self.expect("]")
        return L.Prefetch(buf, index)

    def scan(self) -> L.PrefixCombine:
        names = self.comma_separated(self.next)
        self.expect("=")
        values = self.comma_separated(self.expr)
        self.names.update({name: value.type for name, value in zip(names, values)})
        self.expect("after")
        accs = self.comma_separated(self.next)
        self.expect("by")
        return L.PrefixCombine(names, accs, values, self.comma_separated(self.expr))

    def comma_separated(self, one: Callable[..., Any]) -> tuple[Any, ...]:
        """Parse one or more items, separated by commas, with `one`."""
        items = [one()]
        while self.accept(","):
            items.append(one())
        return tuple(items)

    def _plain_int(self) -> bool:
        return self.peek().lstrip("-").isdigit() and self.tokens[self.at + 1] == "{"

    def expr(self) -> L.Expr:
        token = self.next()
        if token[0] == "@":
            return L.Index(token[1:])
        if token[0] == "%":
            return L.ScalarRef(token[1:], self.names[token[1:]])
        following = self.peek()
        if following == ":" and token not in self.types:
            self.next()
            type_ = self.next()
            return L.Const(_parse_number(token, type_), type_)
        if following == "[":
            return self.load(token)
        self.expect(".")
        type_ = self.next()
        self.expect("(")
        args: list[L.Expr] = []
        while not self.accept(")"):
            args.append(self.expr())
            self.accept(",")
        return L.ScalarOp(token, tuple(args), type_)

    def load(self, name: str) -> L.Load:
        self.expect("[")
        index, guard, other = self.expr(), None, None
        if self.accept("?"):
            guard = self.expr()
            if self.accept(":"):
                other = self.expr()
        self.expect("]")
        return L.Load(name, index, self.types[name], guard, other)


_KEYWORDS: dict[str, Callable[[_KernelParser], L.Stmt]] = {
    "let": lambda parser: parser.parse_binding(L.Let),
    "acc": lambda parser: parser.parse_binding(L.Init),
    "serial": lambda parser: parser.loop(L.LoopKind.SERIAL),
    "vector": lambda parser: parser.loop(L.LoopKind.VECTOR),
    "parallel": lambda parser: parser.loop(L.LoopKind.PARALLEL),
    "interleave": _KernelParser.interleave,
    "pack": _KernelParser.pack,
    "prefetch": _KernelParser.prefetch,
    "scan": _KernelParser.scan,
    "while": lambda parser: L.While(parser.expr(), parser.body()),
    "if": _KernelParser.branch,
}


def _parse_number(token: str, type_: str) -> object:
    if type_ in L.FLOATS:
        return float(token)
    if type_ == "bool":
        return token == "true"
    if type_ in L.COMPLEX:
        real, imag = token[1:-1].split(",")
        return complex(float(real), float(imag))
    return int(token)
