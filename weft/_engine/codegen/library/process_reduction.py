"""Native code for reductions between processes: `n` arrays are combined by element, in order.

In:   the name of a reduction and a dtype.
Out:  `combine(op, dtype)`: the addresses of functions void (ptr out, ptr addresses, i64 n, i64
      count), one of them for large results, and of a function with the signature of MPI's
      reductions.
Laws: the results equal `processes.collective_plan.reduce`: integers wrap around, a maximum or minimum with a
      NaN operand is NaN, small floats are added in 32 bits and rounded once. Every reduction that a
      plan may use exists here.
How:  floats of at most 8 bits are converted by tables. The rounding table is indexed by the upper
      half of a float32, whose last bit is set if the lower half is not zero. This rounds like the
      whole float32, because the upper half has at least two bits more than any such float.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import ml_dtypes
import numpy as np

from weft._engine.codegen.ir.gemm_types import (
    FLOATS,
    VectorUnit,
    llvm_type,
    machine,
    nbytes,
    real_of,
)
from weft._engine.codegen.ir.ir_writer import LLVMFunctionWriter
from weft._engine.codegen.ir.writer import Declarations, module_of
from weft._engine.codegen.toolchain.native_library import LibraryModule, link
from weft._engine.ir.build import TYPE_NAMES

#: bytes that are combined at a time, in the accumulator type
_BLOCK = 256


def can_combine(op: str, dtype: str) -> bool:
    """Return whether native code for a reduction exists.

    >>> can_combine("sum", "int4"), can_combine("max", "float8_e5m2"), can_combine("max", "complex64")
    (True, True, False)
    """
    if dtype not in TYPE_NAMES and _small(dtype) is None:
        return False
    if dtype.startswith("complex"):
        return op in ("sum", "prod")
    return op not in ("and", "or", "xor") or not dtype.startswith(("float", "bfloat"))


def _small(dtype: str) -> np.dtype | None:
    """Return the NumPy dtype if its elements have at most 8 bits and it is not a type of the code
    generator, else None."""
    scalar_type = getattr(ml_dtypes, dtype, None)
    return (
        None
        if dtype in TYPE_NAMES or scalar_type is None or np.dtype(scalar_type).itemsize != 1
        else np.dtype(scalar_type)
    )


@functools.cache
def combine(op: str, dtype: str) -> dict[str, int]:
    """Return the addresses of a reduction: `plain`, `stream` for large results, and `mpi` for MPI;
    compile it on the first call."""
    name = f"weft_combine_{op}_{dtype}"
    names = {"plain": name, "stream": f"{name}_stream", "mpi": f"{name}_mpi"}
    module = LibraryModule(name, _reduction(name, op, dtype).text, tuple(names.values()))
    addresses = link([module])
    return {kind: addresses[symbol] for kind, symbol in names.items()}


def _reduction(name: str, op: str, dtype: str) -> _CombineFunctions:
    small = _small(dtype)
    if small is None:
        return _CombineFunctions(name, op, TYPE_NAMES[dtype], machine())
    if "int" in dtype:
        return _NarrowIntegers(
            name,
            op,
            "i8" if dtype.startswith("i") else "u8",
            machine(),
            ml_dtypes.iinfo(small).bits,
        )
    return _NarrowFloats(name, op, "u8", machine(), small)


class _CombineFunctions:
    """The functions of one reduction over elements of a Loops type."""

    def __init__(self, name: str, op: str, type_: str, machine: VectorUnit):
        self.name, self.machine = name, machine
        self.op = (
            {"sum": "or", "max": "or", "prod": "and", "min": "and"}.get(op, op)
            if type_ == "bool"
            else op
        )
        self.type, self.parts = real_of(type_), 1 if type_ == real_of(type_) else 2
        self.acc = "f32" if self.type in ("f16", "bf16") else self.type
        self.width = _BLOCK // nbytes(self.acc)

    def text(self) -> str:
        return (
            module_of(lambda decls: [self._plain(decls), self._stream(decls), self._mpi(decls)])
            + "\n!0 = !{i32 1}\n"
        )

    def _function(self, decls: Declarations, name: str, arguments: str) -> LLVMFunctionWriter:
        return LLVMFunctionWriter(f"void @{name}({arguments})", decls, self.machine, "nounwind")

    def _plain(self, decls: Declarations) -> str:
        f = self._function(decls, self.name, "ptr %out, ptr %list, i64 %n, i64 %elements")
        self._loops(f, f"align {nbytes(self.type)}")
        return f.end()

    def _stream(self, decls: Declarations) -> str:
        """Emit the variant for large results, nontemporal if the result is 64-byte aligned."""
        f = self._function(
            decls, f"{self.name}_stream", "ptr %out, ptr %list, i64 %n, i64 %elements"
        )

        def emit_nontemporal() -> None:
            self._loops(f, "align 64, !nontemporal !0")
            f.do("fence seq_cst")

        aligned = f.equal(f.let(f"and i64 {f.let('ptrtoint ptr %out to i64')}, 63"), 0)
        f.branch_without_values(
            aligned,
            emit_nontemporal,
            lambda: f.do(f"call void @{self.name}(ptr %out, ptr %list, i64 %n, i64 %elements)"),
        )
        return f.end()

    def _mpi(self, decls: Declarations) -> str:
        """Emit the variant with the signature of MPI's reductions."""
        f = self._function(decls, f"{self.name}_mpi", "ptr %in, ptr %inout, ptr %length, ptr %type")
        pointers = f.slot("[2 x ptr]")
        f.do(f"store ptr %in, ptr {pointers}, align 8")
        f.do(f"store ptr %inout, ptr {f.byte_address(pointers, 8)}, align 8")
        count = f.let(f"sext i32 {f.read('i32', '%length', 4)} to i64")
        f.do(f"call void @{self.name}(ptr %inout, ptr {pointers}, i64 2, i64 {count})")
        return f.end()

    def _loops(self, f: LLVMFunctionWriter, store: str) -> None:
        """Emit loops over whole blocks, stored with the attributes `store`, and over the remaining
        elements."""
        count = f.mul("%elements", self.parts)
        whole = f.let(f"and i64 {count}, -{self.width}")
        f.loop(0, whole, self.width, lambda i: self._block(f, i, self.width, store))
        f.loop(
            whole,
            count,
            self.parts,
            lambda i: self._block(f, i, self.parts, f"align {nbytes(self.type)}"),
        )

    def _block(self, f: LLVMFunctionWriter, first: str, lanes: int, store: str) -> None:
        """Combine `lanes` numbers of all arrays, from number `first` on."""
        place, memory, register = (
            f.mul(first, nbytes(self.type)),
            llvm_type(self.type),
            llvm_type(self.acc),
        )

        def load(k: str) -> str:
            array = f.read("ptr", f.byte_address("%list", f.mul(k, 8)))
            return self._widen_loaded(f, f.load(memory, lanes, f.byte_address(array, place)), lanes)

        step: Callable[[str, str], list[str]] = lambda k, total: [
            self._combine(f, total, load(k), f"<{lanes} x {register}>", lanes)
        ]
        (total,) = f.loop(1, "%n", 1, step, [(f"<{lanes} x {register}>", load("0"))])
        f.do(
            f"store <{lanes} x {memory}> {self._narrow_result(f, total, lanes)}, ptr {f.byte_address('%out', place)}, {store}"
        )

    def _widen_loaded(self, f: LLVMFunctionWriter, value: str, lanes: int) -> str:
        """Convert loaded numbers to the accumulator type."""
        return f.convert(value, self.type, self.acc, lanes)

    def _narrow_result(self, f: LLVMFunctionWriter, value: str, lanes: int) -> str:
        """Convert accumulators to the type in memory."""
        return f.convert(value, self.acc, self.type, lanes)

    def _combine(self, f: LLVMFunctionWriter, a: str, b: str, vector: str, lanes: int) -> str:
        is_float = self.acc in FLOATS
        if self.op == "prod" and self.parts == 2:
            return self._complex_product(f, a, b, vector, lanes)
        if self.op not in ("max", "min"):
            word = {
                "sum": "fadd" if is_float else "add",
                "prod": "fmul" if is_float else "mul",
            }.get(self.op, self.op)
            return f.let(f"{word} {vector} {a}, {b}")
        order = "gt" if self.op == "max" else "lt"
        if is_float:  # the first operand if it is greater (less for min) or NaN
            first = f.let(
                f"or <{lanes} x i1> {f.let(f'fcmp o{order} {vector} {a}, {b}')}, {f.let(f'fcmp uno {vector} {a}, {a}')}"
            )
        else:
            first = f.let(
                f"icmp {'s' if self.acc.startswith('i') else 'u'}{order} {vector} {a}, {b}"
            )
        return f.let(f"select <{lanes} x i1> {first}, {vector} {a}, {vector} {b}")

    def _complex_product(
        self, f: LLVMFunctionWriter, a: str, b: str, vector: str, lanes: int
    ) -> str:
        """Multiply pairs of real and imaginary parts: ar br - ai bi and ar bi + ai br."""
        pairs = range(0, lanes, 2)
        pick = lambda value, even, odd: f.shuffle(
            value, value, vector, [i + k for i in pairs for k in (even, odd)]
        )
        straight = f.let(f"fmul {vector} {pick(a, 0, 0)}, {b}")
        crossed = f.let(f"fmul {vector} {pick(a, 1, 1)}, {pick(b, 1, 0)}")
        less, more = (
            f.let(f"fsub {vector} {straight}, {crossed}"),
            f.let(f"fadd {vector} {straight}, {crossed}"),
        )
        return f.shuffle(less, more, vector, [i + k for i in pairs for k in (0, lanes + 1)])


class _NarrowIntegers(_CombineFunctions):
    """Reductions of integers of fewer than 8 bits, stored in bytes: sign- or zero-extended to 8
    bits, then truncated."""

    def __init__(self, name: str, op: str, type_: str, machine: VectorUnit, bits: int):
        super().__init__(name, op, type_, machine)
        self.unused = 8 - bits

    def _widen_loaded(self, f: LLVMFunctionWriter, value: str, lanes: int) -> str:
        vector, shift = f"<{lanes} x i8>", f.splat(str(self.unused), "i8", lanes)
        up = f.let(f"shl {vector} {value}, {shift}")
        return f.let(f"{'ashr' if self.type == 'i8' else 'lshr'} {vector} {up}, {shift}")

    _narrow_result = _widen_loaded


class _NarrowFloats(_CombineFunctions):
    """Reductions of floats of at most 8 bits, stored in bytes; one element at a time."""

    def __init__(self, name: str, op: str, type_: str, machine: VectorUnit, dtype: np.dtype):
        super().__init__(name, op, type_, machine)
        self.acc, self.width, self.dtype = "f32", 1, dtype

    def text(self) -> str:
        values = (
            np.arange(256, dtype=np.uint8).view(self.dtype).astype(np.float32).astype(np.float64)
        )
        with np.errstate(all="ignore"):
            rounded = (
                (np.arange(1 << 16, dtype=np.uint32) << 16)
                .view(np.float32)
                .astype(self.dtype)
                .view(np.uint8)
            )
        wide = ", ".join(f"float 0x{int(bits):016X}" for bits in values.view(np.uint64))
        narrow = "".join(f"\\{byte:02X}" for byte in rounded.tolist())
        return (
            f"{super().text()}@widen = private constant [256 x float] [{wide}]\n"
            f'@narrow = private constant [65536 x i8] c"{narrow}"\n'
        )

    def _stream(self, decls: Declarations) -> str:
        f = self._function(
            decls, f"{self.name}_stream", "ptr %out, ptr %list, i64 %n, i64 %elements"
        )
        f.do(f"call void @{self.name}(ptr %out, ptr %list, i64 %n, i64 %elements)")
        return f.end()

    def _widen_loaded(self, f: LLVMFunctionWriter, value: str, lanes: int) -> str:
        index = f.let(f"zext i8 {f.let(f'extractelement <1 x i8> {value}, i32 0')} to i64")
        number = f.read("float", f.element("float", "@widen", index), 4)
        return f.let(f"insertelement <1 x float> poison, float {number}, i32 0")

    def _narrow_result(self, f: LLVMFunctionWriter, value: str, lanes: int) -> str:
        bits = f.let(f"bitcast float {f.let(f'extractelement <1 x float> {value}, i32 0')} to i32")
        sticky = f.let(f"icmp ne i32 {f.let(f'and i32 {bits}, 65535')}, 0")
        upper = f.let(
            f"or i32 {f.let(f'lshr i32 {bits}, 16')}, {f.let(f'zext i1 {sticky} to i32')}"
        )
        index = f.let(f"zext i32 {upper} to i64")
        byte = f.read("i8", f.element("i8", "@narrow", index), 1)
        return f.let(f"insertelement <1 x i8> poison, i8 {byte}, i32 0")
