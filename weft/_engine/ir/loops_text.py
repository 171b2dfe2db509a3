"""Text of Loops kernels: printing and parsing, `parse_kernel(print_kernel(k)) == k`.

The text is also a kernel's identity: `canonical` leaves out the name, and equal texts are compiled once.

    kernel scale(in x: f32[8], out y: f32[8]) {
      vector i in 8 {
        y[@i] = mul.f32(x[@i], 2.0:f32)
      }
    }

`@i` is a loop variable, `%s` a name bound by `let` or `acc`, `x[index ? guard : other]` a guarded load,
`interleave y[index] = (a, b)` a row of values, `prefetch x[index]` a hint that it is needed soon,
`scan v = x[@i] after a by add.f32(%a, %v)` a running combination.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from weft._engine.ir import loops as L


def print_kernel(kernel: L.Kernel) -> str:
    """Readable text of a kernel.

    >>> store = L.Store("y", L.Const(0, "i64"), L.Const(7, "i32"))
    >>> k = L.Kernel((L.Buf("y", "i32", 4, "out"),), (store,), name="seven")
    >>> print(print_kernel(k))
    kernel seven(out y: i32[4]) {
      y[0:i64] = 7:i32
    }
    """
    return f"kernel {kernel.name}{canonical(kernel)}"


def canonical(kernel: L.Kernel) -> str:
    """The text of a kernel without its name: equal for equal kernels."""
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
        kind = type(stmt)
        if kind is L.Let:
            lines.append(f"{pad}let {stmt.name} = {print_expr(stmt.value)}")
        elif kind is L.Init:
            lines.append(f"{pad}acc {stmt.name} = {print_expr(stmt.value)}")
        elif kind is L.Accum:
            guard = "" if stmt.guard is None else f" when {print_expr(stmt.guard)}"
            lines.append(f"{pad}{stmt.name} {stmt.op}= {print_expr(stmt.value)}{guard}")
        elif kind is L.Scan:
            values, combine = (
                ", ".join(map(print_expr, exprs)) for exprs in (stmt.values, stmt.combine)
            )
            lines.append(
                f"{pad}scan {', '.join(stmt.names)} = {values} after {', '.join(stmt.accs)} by {combine}"
            )
        elif kind is L.Store:
            guard = "" if stmt.guard is None else f" when {print_expr(stmt.guard)}"
            how = f"{stmt.accumulate}=" if stmt.accumulate else "="
            tail = " streaming" if stmt.streaming else ""
            value = print_expr(stmt.value)
            lines.append(f"{pad}{stmt.buf}[{print_expr(stmt.index)}] {how} {value}{guard}{tail}")
        elif kind is L.Interleave:
            values = ", ".join([print_expr(value) for value in stmt.values])
            tail = " streaming" if stmt.streaming else ""
            lines.append(f"{pad}interleave {stmt.buf}[{print_expr(stmt.index)}] = ({values}){tail}")
        elif kind is L.Pack:
            lines.append(
                f"{pad}pack {stmt.buf} by {stmt.acc} = {print_expr(stmt.value)} when {print_expr(stmt.guard)}"
            )
        elif kind is L.Prefetch:
            lines.append(f"{pad}prefetch {stmt.buf}[{print_expr(stmt.index)}]")
        elif kind is L.For:
            extent = stmt.extent if isinstance(stmt.extent, int) else print_expr(stmt.extent)
            lines.append(f"{pad}{stmt.kind} {stmt.var} in {extent} {{")
            _print_body(stmt.body, lines, pad + "  ")
            lines.append(pad + "}")
        elif kind is L.While:
            lines.append(f"{pad}while {print_expr(stmt.cond)} {{")
            _print_body(stmt.body, lines, pad + "  ")
            lines.append(pad + "}")
        elif kind is L.If:
            lines.append(f"{pad}if {print_expr(stmt.cond)} {{")
            _print_body(stmt.body, lines, pad + "  ")
            if stmt.orelse:
                lines.append(pad + "} else {")
                _print_body(stmt.orelse, lines, pad + "  ")
            lines.append(pad + "}")
        else:
            raise TypeError(f"loops: not a statement: {stmt!r}")


def print_expr(expr: L.Expr) -> str:
    """Text of an expression."""
    kind = type(expr)
    if kind is L.Op:
        return f"{expr.op}.{expr.type}({', '.join([print_expr(arg) for arg in expr.args])})"
    if kind is L.Index:
        return "@" + expr.name
    if kind is L.Ref:
        return "%" + expr.name
    if kind is L.Const:
        return f"{_number(expr.value, expr.type)}:{expr.type}"
    if kind is L.Load:
        if expr.guard is None:
            return f"{expr.buf}[{print_expr(expr.index)}]"
        other = "" if expr.other is None else f" : {print_expr(expr.other)}"
        return f"{expr.buf}[{print_expr(expr.index)} ? {print_expr(expr.guard)}{other}]"
    raise TypeError(f"loops: not an expression: {expr!r}")


def _number(value: object, type_: str) -> str:
    if type_ in L.FLOATS:
        return repr(float(value))
    if type_ == "bool":
        return "true" if value else "false"
    if type_ in L.COMPLEX:
        value = complex(value)
        return f"({value.real!r},{value.imag!r})"
    return str(int(value))


_MODES = ("in", "out", "inout")
_UPDATES = ("add", "mul", "min", "max", "and", "or", "xor", "set")


def parse_kernel(text: str) -> L.Kernel:
    """The kernel that `print_kernel` printed as `text`."""
    return _Parser(text).kernel()


@functools.cache
def _token() -> re.Pattern[str]:
    """One token; compiled when a text is first read, which programs seldom do."""
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


class _Parser:
    """Recursive descent over the tokens of one kernel."""

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
        found = self.next()
        if found != token:
            raise ValueError(f"loops text: expected {token!r}, found {found!r} (token {self.at})")

    def accept(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def kernel(self) -> L.Kernel:
        self.expect("kernel")
        name = self.next()
        self.expect("(")
        bufs, scratch, where = [], [], None
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
        return L.Kernel(tuple(bufs), body, tuple(scratch), name)

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
        stmts = []
        while not self.accept("}"):
            stmts.append(self.stmt())
        return tuple(stmts)

    def stmt(self) -> L.Stmt:
        word = self.next()
        if word in ("let", "acc") and self.peek() not in ("[", *_UPDATES):
            name = self.next()
            self.expect("=")
            value = self.expr()
            self.names[name] = value.type
            return (L.Let if word == "let" else L.Init)(name, value)
        if word in ("serial", "vector", "parallel") and self.peek() not in ("[", *_UPDATES):
            var = self.next()
            self.expect("in")
            extent = self.expr() if not self._plain_int() else int(self.next())
            return L.For(var, extent, self.body(), word)
        if word == "interleave" and self.peek() not in ("[", *_UPDATES):
            return self.interleave()
        if word == "pack" and self.peek() not in ("[", *_UPDATES):
            return self.pack()
        if word == "prefetch" and self.peek() not in ("[", *_UPDATES):
            return self.prefetch()
        if word == "scan" and self.peek() not in ("[", *_UPDATES):
            return self.scan()
        if word == "while" and self.peek() not in ("[", *_UPDATES):
            return L.While(self.expr(), self.body())
        if word == "if" and self.peek() not in ("[", *_UPDATES):
            cond, body = self.expr(), self.body()
            return L.If(cond, body, self.body() if self.accept("else") else ())
        if self.accept("["):
            index = self.expr()
            self.expect("]")
            how = self.next() if self.peek() != "=" else None
            self.expect("=")
            value = self.expr()
            guard = self.expr() if self.accept("when") else None
            return L.Store(word, index, value, guard, how, self.accept("streaming"))
        op = self.next()
        self.expect("=")
        value = self.expr()
        return L.Accum(word, op, value, self.expr() if self.accept("when") else None)

    def interleave(self) -> L.Interleave:
        buf = self.next()
        self.expect("[")
        index = self.expr()
        for mark in ("]", "=", "("):
            self.expect(mark)
        values = []
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

    def scan(self) -> L.Scan:
        names = self.listed(self.next)
        self.expect("=")
        values = self.listed(self.expr)
        self.names.update({name: value.type for name, value in zip(names, values)})
        self.expect("after")
        accs = self.listed(self.next)
        self.expect("by")
        return L.Scan(names, accs, values, self.listed(self.expr))

    def listed(self, one: Callable) -> tuple:
        """What `one` reads, once or more, between commas."""
        found = [one()]
        while self.accept(","):
            found.append(one())
        return tuple(found)

    def _plain_int(self) -> bool:
        return self.peek().lstrip("-").isdigit() and self.tokens[self.at + 1] == "{"

    def expr(self) -> L.Expr:
        token = self.next()
        if token[0] == "@":
            return L.Index(token[1:])
        if token[0] == "%":
            return L.Ref(token[1:], self.names[token[1:]])
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
        args = []
        while not self.accept(")"):
            args.append(self.expr())
            self.accept(",")
        return L.Op(token, tuple(args), type_)

    def load(self, name: str) -> L.Load:
        self.expect("[")
        index, guard, other = self.expr(), None, None
        if self.accept("?"):
            guard = self.expr()
            if self.accept(":"):
                other = self.expr()
        self.expect("]")
        return L.Load(name, index, self.types[name], guard, other)


def _parse_number(token: str, type_: str) -> object:
    if type_ in L.FLOATS:
        return float(token)
    if type_ == "bool":
        return token == "true"
    if type_ in L.COMPLEX:
        real, imag = token[1:-1].split(",")
        return complex(float(real), float(imag))
    return int(token)
