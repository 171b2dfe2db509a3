"""Native code for reductions between processes: `n` arrays combined element by element, in their order.

In:   the name of a reduction and a dtype.
Out:  `combine(op, dtype)`: the addresses of void (ptr out, ptr addresses, i64 n, i64 count), also for large results, and in the form of
      MPI's reductions.
Laws: as `processes.plans.reduce`: integers wrap around, maxima and minima are NaN where an operand is, small floats are added in 32 bits
      and rounded once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from weft.codegen.ir.gemm_types import FLOATS, Machine, llvm_type, machine, nbytes, real_of
from weft.codegen.ir.ir_writer import FunctionWriter
from weft.codegen.ir.writer import Declarations, module_of
from weft.codegen.toolchain.native_library import LibraryModule, link
from weft.ir.build import TYPE_NAMES

#: bytes of the elements that are combined at a time, in the type that they are added in
_BLOCK = 256


def can_combine(op: str, dtype: str) -> bool:
    """Whether there is native code for a reduction."""
    if dtype not in TYPE_NAMES:
        return False
    type_ = TYPE_NAMES[dtype]
    return not (real_of(type_) in FLOATS and op in ("and", "or", "xor")) and not (type_ != real_of(type_) and op != "sum")


@functools.cache
def combine(op: str, dtype: str) -> dict[str, int]:
    """The addresses of a reduction: `plain`, `stream` for large results, and `mpi`, as MPI calls it; compiled on the first call."""
    name = f"weft_combine_{op}_{dtype}"
    names = {"plain": name, "stream": f"{name}_stream", "mpi": f"{name}_mpi"}
    made = LibraryModule(name, _Reduction(name, op, TYPE_NAMES[dtype], machine()).text, tuple(names.values()))
    found = link([made])
    return {kind: found[symbol] for kind, symbol in names.items()}


class _Reduction:
    """The functions of one reduction of elements of a type of Loops."""

    def __init__(self, name: str, op: str, type_: str, machine: Machine):
        self.name, self.machine = name, machine
        self.op = {"sum": "or", "max": "or", "prod": "and", "min": "and"}.get(op, op) if type_ == "bool" else op
        self.type, self.parts = real_of(type_), 1 if type_ == real_of(type_) else 2
        self.acc = "f32" if self.type in ("f16", "bf16") else self.type
        self.width = _BLOCK // nbytes(self.acc)

    def text(self) -> str:
        return module_of(lambda decls: [self._plain(decls), self._stream(decls), self._mpi(decls)]) + "\n!0 = !{i32 1}\n"

    def _function(self, decls: Declarations, name: str, arguments: str) -> FunctionWriter:
        return FunctionWriter(f"void @{name}({arguments})", decls, self.machine, "nounwind")

    def _plain(self, decls: Declarations) -> str:
        f = self._function(decls, self.name, "ptr %out, ptr %list, i64 %n, i64 %elements")
        self._loops(f, f"align {nbytes(self.type)}")
        return f.end()

    def _stream(self, decls: Declarations) -> str:
        """The same for large results, which go past the caches to an address that is a multiple of 64."""
        f = self._function(decls, f"{self.name}_stream", "ptr %out, ptr %list, i64 %n, i64 %elements")

        def past_the_caches() -> None:
            self._loops(f, "align 64, !nontemporal !0")
            f.do("fence seq_cst")

        aligned = f.equal(f.let(f"and i64 {f.let('ptrtoint ptr %out to i64')}, 63"), 0)
        f.when(aligned, past_the_caches, lambda: f.do(f"call void @{self.name}(ptr %out, ptr %list, i64 %n, i64 %elements)"))
        return f.end()

    def _mpi(self, decls: Declarations) -> str:
        """As MPI calls a reduction."""
        f = self._function(decls, f"{self.name}_mpi", "ptr %in, ptr %inout, ptr %length, ptr %type")
        both = f.slot("[2 x ptr]")
        f.do(f"store ptr %in, ptr {both}, align 8")
        f.do(f"store ptr %inout, ptr {f.at(both, 8)}, align 8")
        count = f.let(f"sext i32 {f.let('load i32, ptr %length, align 4')} to i64")
        f.do(f"call void @{self.name}(ptr %inout, ptr {both}, i64 2, i64 {count})")
        return f.end()

    def _loops(self, f: FunctionWriter, store: str) -> None:
        """Whole blocks, stored as `store` says, and the elements after them."""
        count = f.mul("%elements", self.parts)
        whole = f.let(f"and i64 {count}, -{self.width}")
        f.loop(0, whole, self.width, lambda i: self._block(f, i, self.width, store))
        f.loop(whole, count, 1, lambda i: self._block(f, i, 1, f"align {nbytes(self.type)}"))

    def _block(self, f: FunctionWriter, first: str, lanes: int, store: str) -> None:
        """`lanes` elements of all arrays."""
        place, memory, register = f.mul(first, nbytes(self.type)), llvm_type(self.type), llvm_type(self.acc)

        def load(k: str) -> str:
            array = f.let(f"load ptr, ptr {f.at('%list', f.mul(k, 8))}, align 8")
            return f.convert(f.load(memory, lanes, f.at(array, place)), self.type, self.acc, lanes)

        step: Callable[[str, str], list[str]] = lambda k, total: [self._combined(f, total, load(k), f"<{lanes} x {register}>", lanes)]
        (total,) = f.loop(1, "%n", 1, step, [(f"<{lanes} x {register}>", load("0"))])
        value = f.convert(total, self.acc, self.type, lanes)
        f.do(f"store <{lanes} x {memory}> {value}, ptr {f.at('%out', place)}, {store}")

    def _combined(self, f: FunctionWriter, a: str, b: str, vector: str, lanes: int) -> str:
        is_float = self.acc in FLOATS
        if self.op not in ("max", "min"):
            word = {"sum": "fadd" if is_float else "add", "prod": "fmul" if is_float else "mul"}.get(self.op, self.op)
            return f.let(f"{word} {vector} {a}, {b}")
        order = "gt" if self.op == "max" else "lt"
        if is_float:                            # the first operand where it is greater, or NaN
            first = f.let(f"or <{lanes} x i1> {f.let(f'fcmp o{order} {vector} {a}, {b}')}, {f.let(f'fcmp uno {vector} {a}, {a}')}")
        else:
            first = f.let(f"icmp {'s' if self.acc.startswith('i') else 'u'}{order} {vector} {a}, {b}")
        return f.let(f"select <{lanes} x i1> {first}, {vector} {a}, {vector} {b}")
