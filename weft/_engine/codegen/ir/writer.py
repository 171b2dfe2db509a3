"""A writer of LLVM functions as text: values, blocks, and structured loops and branches.

In:   instructions as text; callbacks that write the bodies of loops and the arms of branches.
Out:  lines. Only this module and `scoped_writer` write phi nodes: callers pass and get registers.
Laws: operands are strings (`%t3`, `12`). Each construct begins and ends with blocks of its own, so
      a body may contain further blocks.
Next: `ir_writer` adds index arithmetic and vectors, `scoped_writer` places instructions by the
      scopes of their operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

#: (LLVM type, register) of each value that a loop or a branch carries
Typed: TypeAlias = Sequence[tuple[str, str]]
#: a register or a number; both also as text
Operand: TypeAlias = str | int


class Declarations:
    """The declarations of a module, without duplicates."""

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}

    def use(self, line: str) -> None:
        self._lines[line] = None

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"


def module_of(write: Callable[[Declarations], str | Sequence[str]]) -> str:
    """Return a module of the functions returned by `write` and of their declarations."""
    decls = Declarations()
    functions = write(decls)
    return str(decls) + (functions if isinstance(functions, str) else "\n".join(functions))


def are_numbers(*operands: Operand) -> bool:
    """Return whether all operands are numbers."""
    return all(isinstance(operand, int) or operand.isdecimal() for operand in operands)


class LLVMBodyWriter:
    """The body of one function under construction."""

    #: True if LLVM optimizes the function. Indices are then frozen: loop strength reduction skips
    #: frozen values, and it would dominate compile time.
    optimized = True

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    # --- values and blocks

    def fresh(self) -> int:
        """Return a number that no name of this function contains."""
        self._count += 1
        return self._count

    def let(self, value: str) -> str:
        """Return the name of a value that is computed here."""
        name = f"%t{self.fresh()}"
        self.lines.append(f"  {name} = {value}")
        return name

    def do(self, line: str) -> None:
        """Write an instruction without a result."""
        self.lines.append(f"  {line}")

    # --- memory

    def element(self, type: str, base: str, index: Operand) -> str:
        """Return the address of an element of an array of `type`."""
        return self.let(f"getelementptr {type}, ptr {base}, i64 {index}")

    def read(self, type: str, pointer: str, align: int = 8) -> str:
        """Load a value of `type` from an address that is a multiple of `align` bytes."""
        return self.let(f"load {type}, ptr {pointer}, align {align}")

    def write(self, type: str, value: Operand, pointer: str, align: int = 8) -> None:
        """Store a value of `type` at an address that is a multiple of `align` bytes."""
        self.do(f"store {type} {value}, ptr {pointer}, align {align}")

    def block(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")

    # --- control

    def loop(
        self,
        lo: Operand,
        hi: Operand,
        step: Operand,
        body: Callable[..., Sequence[str] | None],
        carried: Typed = (),
    ) -> list[str]:
        """Emit `for i in range(lo, hi, step)`; `carried`: (type, first value) pairs that `body(i, *values)` renews."""
        if are_numbers(lo, hi) and int(hi) - int(lo) == 1:
            return list(body(str(lo), *[first for _, first in carried]) or ())
        k = self.fresh()
        self.lines += [f"  br label %pre{k}", f"pre{k}:", f"  %c{k} = icmp ult i64 {lo}, {hi}"]
        self.lines += [f"  br i1 %c{k}, label %body{k}, label %end{k}", f"body{k}:"]
        self.lines.append(f"  %i{k} = phi i64 [ {lo}, %pre{k} ], [ %n{k}, %latch{k} ]")
        phis = len(self.lines)
        index = (
            self.let(f"freeze i64 {self.let(f'add i64 %i{k}, 0')}") if self.optimized else f"%i{k}"
        )
        renewed = list(body(index, *(f"%v{k}_{j}" for j in range(len(carried)))) or ())
        pairs = list(enumerate(zip(carried, renewed)))
        self.lines[phis:phis] = [
            f"  %v{k}_{j} = phi {type} [ {first}, %pre{k} ], [ {new}, %latch{k} ]"
            for j, ((type, first), new) in pairs
        ]
        self.lines += [f"  br label %latch{k}", f"latch{k}:", f"  %n{k} = add i64 %i{k}, {step}"]
        self.lines += [
            f"  %m{k} = icmp ult i64 %n{k}, {hi}",
            f"  br i1 %m{k}, label %body{k}, label %end{k}",
            f"end{k}:",
        ]
        self.lines += [
            f"  %r{k}_{j} = phi {type} [ {first}, %pre{k} ], [ {new}, %latch{k} ]"
            for j, ((type, first), new) in pairs
        ]
        return [f"%r{k}_{j}" for j in range(len(carried))]

    def loop_while(
        self,
        tests: Sequence[Callable[..., str]],
        body: Callable[..., Sequence[str] | None],
        carried: Typed = (),
    ) -> list[str]:
        """Emit a loop that runs while all `tests` hold, evaluated with short circuit; return the
        carried values."""
        k = self.fresh()
        values = [f"%v{k}_{j}" for j in range(len(carried))]
        self.lines += [f"  br label %pre{k}", f"pre{k}:", f"  br label %head{k}", f"head{k}:"]
        phis = len(self.lines)
        for number, test in enumerate(tests):
            self.lines += [
                f"  br i1 {test(*values)}, label %pass{k}_{number}, label %end{k}",
                f"pass{k}_{number}:",
            ]
        renewed = list(body(*values) or ())
        self.lines += [f"  br label %latch{k}", f"latch{k}:", f"  br label %head{k}", f"end{k}:"]
        self.lines[phis:phis] = [
            f"  {value} = phi {type} [ {first}, %pre{k} ], [ {new}, %latch{k} ]"
            for value, (type, first), new in zip(values, carried, renewed)
        ]
        return values

    def branch(
        self,
        cond: str,
        then: Callable[[], Sequence[str] | None],
        orelse: Callable[[], Sequence[str] | None] | None = None,
        types: Sequence[str] = (),
    ) -> list[str]:
        """Emit a branch whose arms yield values of `types`; return the values of the taken arm."""
        k = self.fresh()
        self.lines += [f"  br i1 {cond}, label %then{k}, label %else{k}", f"then{k}:"]
        first = then() or ()
        self.lines += [
            f"  br label %thenend{k}",
            f"thenend{k}:",
            f"  br label %join{k}",
            f"else{k}:",
        ]
        second = (orelse() if orelse else None) or ()
        self.lines += [
            f"  br label %elseend{k}",
            f"elseend{k}:",
            f"  br label %join{k}",
            f"join{k}:",
        ]
        return [
            self.let(f"phi {type} [ {a}, %thenend{k} ], [ {b}, %elseend{k} ]")
            for type, a, b in zip(types, first, second)
        ]

    def switch(self, index: str, cases: Sequence[Callable[[], object]]) -> None:
        """Emit a switch over an i32 index; the last case is the default."""
        k, last = self.fresh(), len(cases) - 1
        listed = " ".join([f"i32 {i}, label %case{k}_{i}" for i in range(last)])
        self.do(f"switch i32 {index}, label %case{k}_{last} [{listed}]")
        for i, case in enumerate(cases):
            self.block(f"case{k}_{i}")
            case()
            self.do(f"br label %join{k}")
        self.block(f"join{k}")
