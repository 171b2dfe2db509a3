"""Builds one LLVM function as text: scopes, value numbering, loop-invariant placement.

In:   instructions as text with their operands.
Out:  the lines of the function.
Laws: every pure instruction is written once per scope, in the outermost scope where its operands are defined, so that common
      subexpressions and loop invariants need no later pass. Nothing leaves a conditional scope.
      A nested scope is appended to its parent when it closes, after what was hoisted meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

#: LLVM register types of the scalar types; half precision lives in f32 registers
REGISTER = {
    "bool": "i1", "i8": "i8", "u8": "i8", "i16": "i16", "u16": "i16", "i32": "i32", "u32": "i32", "i64": "i64",
    "u64": "i64", "f16": "float", "bf16": "float", "f32": "float", "f64": "double",
}
#: LLVM types in memory
MEMORY = REGISTER | {"bool": "i8", "f16": "half", "bf16": "i16"}
BITS = {"bool": 1, "i8": 8, "u8": 8, "i16": 16, "u16": 16, "i32": 32, "u32": 32, "i64": 64, "u64": 64,
        "f16": 16, "bf16": 16, "f32": 32, "f64": 64}


class Scope:
    """A region of code under construction: its lines, its value table and the label of its current block."""
    __slots__ = ("label", "lines", "table")

    def __init__(self, label: str):
        self.lines: list[str] = []
        self.table: dict[str, str] = {}
        self.label = label


class Builder:
    """Text of one function body, with placement of pure instructions by their operands' scopes."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = [Scope("entry")]
        self.floor = 0
        self.load_floor = 0
        self.level_of: dict[str, int] = {}
        self.declarations: dict[str, str] = {}
        self.helpers: dict[str, str] = {}
        self.counter = 0

    @property
    def depth(self) -> int:
        """Level of the innermost open scope."""
        return len(self.scopes) - 1

    def name(self, prefix: str = "v") -> str:
        """A fresh local name."""
        self.counter += 1
        return f"%{prefix}{self.counter}"

    def label(self, prefix: str) -> str:
        """A fresh block label."""
        self.counter += 1
        return f"{prefix}{self.counter}"

    def pure(self, text: str, *operands: str) -> str:
        """The name of a pure instruction, written at the outermost scope that has its operands."""
        level, level_of = self.floor, self.level_of
        for operand in operands:
            at = level_of.get(operand, 0)
            if at > level:
                level = at
        scope = self.scopes[level]
        name = scope.table.get(text)
        if name is None:
            self.counter += 1
            name = f"%v{self.counter}"
            scope.lines.append(f"  {name} = {text}")
            scope.table[text] = name
            level_of[name] = level
        return name

    def invariant_load(self, text: str, *operands: str) -> str:
        """Like `pure`, for a load of memory that nobody writes: it must not leave a scope that may not run."""
        floor, self.floor = self.floor, max(self.floor, self.load_floor)
        name = self.pure(text, *operands)
        self.floor = floor
        return name

    def here(self, text: str, prefix: str = "v") -> str:
        """The name of an instruction written at the present place, never shared."""
        name = self.name(prefix)
        self.scopes[-1].lines.append(f"  {name} = {text}")
        self.level_of[name] = self.depth
        return name

    def line(self, text: str) -> None:
        """Append an instruction without result at the present place."""
        self.scopes[-1].lines.append("  " + text)

    def start_block(self, label: str, level: int = -1) -> None:
        """Begin a block in scope `level` (the innermost by default)."""
        scope = self.scopes[level]
        scope.lines.append(f"{label}:")
        scope.label = label

    def push(self, label: str) -> None:
        """Open a scope whose first block is `label`."""
        self.scopes.append(Scope(label))

    def pop(self) -> Scope:
        """Close the innermost scope; the caller appends its lines where they belong."""
        return self.scopes.pop()

    def inside(self, label: str, emit: Callable[[], None]) -> Scope:
        """A closed scope of what `emit` writes, which nothing leaves, as it may not run."""
        floors = self.floor, self.load_floor
        self.push(label)
        self.floor = self.load_floor = self.depth
        emit()
        self.floor, self.load_floor = floors
        return self.pop()

    def splice(self, scope: Scope, label: str, done: str) -> None:
        """Append a closed scope as block `label` that goes on to block `done`, and begin that."""
        self.start_block(label)
        self.scopes[-1].lines += scope.lines
        self.line(f"br label %{done}")
        self.start_block(done)

    def define(self, name: str, level: int | None = None) -> str:
        """Record that `name` lives at `level` (default: the innermost scope)."""
        self.level_of[name] = self.depth if level is None else level
        return name

    def declare(self, name: str, result: str, *args: str) -> str:
        """Declare an external function or intrinsic once; returns its name."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {result} @{name}({', '.join(args)})"
        return name

    def intrinsic(self, base: str, type_: str, *args: str, result: str | None = None) -> str:
        """Call the overloaded intrinsic `llvm.<base>.<type>` on arguments of one vector type."""
        name = f"llvm.{base}.{mangle(type_)}"
        self.declare(name, result or type_, *([type_] * len(args)))
        listed = ", ".join([f"{type_} {arg}" for arg in args])
        return self.pure(f"call {result or type_} @{name}({listed})", *args)


_SHORT = {"float": "f32", "double": "f64", "half": "f16"}
_mangled: dict[str, str] = {}


def mangle(type_: str) -> str:
    """Suffix of a type in an overloaded intrinsic name.

    >>> mangle("<16 x float>"), mangle("i32")
    ('v16f32', 'i32')
    """
    text = _mangled.get(type_)
    if text is None:
        if type_.startswith("<"):
            count, element = type_[1:-1].split(" x ")
            text = f"v{count}{_SHORT.get(element, element)}"
        else:
            text = _SHORT.get(type_, type_)
        _mangled[type_] = text
    return text


_vectors: dict[tuple[str, int], str] = {}


def vector(element: str, lanes: int) -> str:
    """The LLVM type of `lanes` elements; one lane is the scalar type itself."""
    if lanes == 1:
        return element
    text = _vectors.get((element, lanes))
    if text is None:
        text = _vectors[element, lanes] = f"<{lanes} x {element}>"
    return text
