"""A writer of textual LLVM IR with index arithmetic, masked vectors and conversions.

A `LLVMFunctionWriter` is one function under construction; `Declarations` collects the intrinsics that
the functions of a module use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft._engine.codegen.ir.gemm_types import FLOATS, INTEGERS, VectorUnit, llvm_type, nbytes
from weft._engine.codegen.ir.scalar_types import mangle
from weft._engine.codegen.ir.writer import Declarations, LLVMBodyWriter, Operand, are_numbers

_TRUTHS = ("true", "false")


def _bool_literal(value: bool) -> str:
    return _TRUTHS[not value]


class LLVMFunctionWriter(LLVMBodyWriter):
    """One function under construction; operands are i64 unless a type is passed."""

    def __init__(
        self, signature: str, decls: Declarations, machine: VectorUnit, attributes: str = ""
    ) -> None:
        super().__init__()
        self.head = f"define {signature} {attributes} {{"
        self.decls = decls
        self.machine = machine
        self._first: list[str] = []

    # -- values

    def slot(self, type: str) -> str:
        """Return stack memory that lasts for the whole call (an alloca inside a loop would grow the
        stack each iteration)."""
        return self.let_first(f"alloca {type}, align 64")

    def let_first(self, value: str) -> str:
        """Return a value that is computed at the beginning of the function."""
        name = f"%t{self.fresh()}"
        self._first.append(f"  {name} = {value}")
        return name

    # Constants are folded.

    def add(self, a: Operand, b: Operand) -> str:
        if are_numbers(a, b):
            return str(int(a) + int(b))
        return (
            str(a) if str(b) == "0" else str(b) if str(a) == "0" else self.let(f"add i64 {a}, {b}")
        )

    def sub(self, a: Operand, b: Operand) -> str:
        if str(b) == "0":
            return str(a)
        return (
            str(int(a) - int(b))
            if are_numbers(a, b) and int(a) >= int(b)
            else self.let(f"sub i64 {a}, {b}")
        )

    def mul(self, a: Operand, b: Operand) -> str:
        if are_numbers(a, b):
            return str(int(a) * int(b))
        if "0" in (str(a), str(b)):
            return "0"
        return (
            str(a) if str(b) == "1" else str(b) if str(a) == "1" else self.let(f"mul i64 {a}, {b}")
        )

    def div(self, a: Operand, b: Operand) -> str:
        if are_numbers(a, b) and int(b):
            return str(int(a) // int(b))
        return str(a) if str(b) == "1" or str(a) == "0" else self.let(f"udiv i64 {a}, {b}")

    def rem(self, a: Operand, b: Operand) -> str:
        return "0" if str(b) == "1" else self.let(f"urem i64 {a}, {b}")

    def ceil_div(self, a: Operand, b: Operand) -> str:
        return str(a) if str(b) == "1" else self.div(self.add(a, self.sub(b, 1)), b)

    def less(self, a: Operand, b: Operand) -> str:
        return (
            _bool_literal(int(a) < int(b))
            if are_numbers(a, b)
            else self.let(f"icmp ult i64 {a}, {b}")
        )

    def equal(self, a: Operand, b: Operand) -> str:
        return (
            _bool_literal(int(a) == int(b))
            if are_numbers(a, b)
            else self.let(f"icmp eq i64 {a}, {b}")
        )

    def is_nonzero(self, a: Operand) -> str:
        """Return the condition that a number is not 0."""
        return _bool_literal(int(a) != 0) if are_numbers(a) else self.let(f"icmp ne i64 {a}, 0")

    def logical_not(self, cond: str) -> str:
        return (
            _bool_literal(cond == "false") if cond in _TRUTHS else self.let(f"xor i1 {cond}, true")
        )

    def logical_and(self, a: str, b: str) -> str:
        if "false" in (a, b):
            return "false"
        return b if a == "true" else a if b == "true" else self.let(f"and i1 {a}, {b}")

    def select(self, cond: str, a: Operand, b: Operand, type: str = "i64") -> str:
        if cond in _TRUTHS or str(a) == str(b):
            return str(b if cond == "false" else a)
        return self.let(f"select i1 {cond}, {type} {a}, {type} {b}")

    def min(self, a: Operand, b: Operand) -> str:
        return self.select(self.less(a, b), a, b)

    def max(self, a: Operand, b: Operand) -> str:
        return self.select(self.less(a, b), b, a)

    def byte_address(self, base: str, offset: Operand) -> str:
        return base if str(offset) == "0" else self.element("i8", base, offset)

    def load_word(self, base: str, index: int, type: str = "i64") -> str:
        return self.read(type, self.byte_address(base, 8 * index))

    # -- control

    def branch_without_values(
        self,
        cond: str,
        then: Callable[[], Sequence[str] | None],
        orelse: Callable[[], Sequence[str] | None] | None = None,
    ) -> None:
        """Emit a branch that yields no values."""
        if cond not in _TRUTHS:
            self.branch(cond, then, orelse)
        elif cond == "true":
            then()
        elif orelse:
            orelse()

    def branch_with_values(
        self, cond: str, then: Callable[[], Sequence[str]], orelse: Sequence[str], type: str
    ) -> list[str]:
        """Emit a branch that yields `then()` if `cond` holds, else `orelse`."""
        return self.branch(cond, then, lambda: orelse, [type] * len(orelse))

    def end(self) -> str:
        return "\n".join([self.head, "entry:", *self._first, *self.lines, "  ret void", "}"])

    # -- vectors

    def splat(self, value: str, type: str, lanes: int) -> str:
        one = self.let(f"insertelement <{lanes} x {type}> poison, {type} {value}, i32 0")
        return self.let(
            f"shufflevector <{lanes} x {type}> {one}, <{lanes} x {type}> poison, <{lanes} x i32> zeroinitializer"
        )

    def mask_of_first_lanes(self, count: str, lanes: int) -> str:
        """Return the mask whose first `count` lanes are set; `count` must be below 2**31."""
        iota = ", ".join(f"i32 {i}" for i in range(lanes))
        wide = self.splat(self.let(f"trunc i64 {count} to i32"), "i32", lanes)
        return self.let(f"icmp ult <{lanes} x i32> <{iota}>, {wide}")

    def load(self, type: str, lanes: int, pointer: str, mask: str | None = None) -> str:
        """Load a vector of LLVM elements of `type`; lanes outside `mask` are zero, and their memory
        is not accessed."""
        align = min(bits_of(type) // 8, 8)
        if mask is None:
            return self.let(f"load <{lanes} x {type}>, ptr {pointer}, align {align}")
        vector, m = f"<{lanes} x {type}>", f"<{lanes} x i1>"
        name = f"@llvm.masked.load.v{lanes}{mangle(type)}.p0"
        self.decls.use(f"declare {vector} {name}(ptr, i32, {m}, {vector})")
        return self.let(
            f"call {vector} {name}(ptr {pointer}, i32 {align}, {m} {mask}, {vector} zeroinitializer)"
        )

    def store(
        self, type: str, lanes: int, value: str, pointer: str, mask: str | None = None
    ) -> None:
        align = min(bits_of(type) // 8, 8)
        vector, m = f"<{lanes} x {type}>", f"<{lanes} x i1>"
        if mask is None:
            self.do(f"store {vector} {value}, ptr {pointer}, align {align}")
            return
        name = f"@llvm.masked.store.v{lanes}{mangle(type)}.p0"
        self.decls.use(f"declare void {name}({vector}, ptr, i32, {m})")
        self.do(f"call void {name}({vector} {value}, ptr {pointer}, i32 {align}, {m} {mask})")

    def prefetch(self, pointer: str) -> None:
        """Prefetch the cache line at an address, which need not be valid."""
        self.decls.use("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.do(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 2, i32 1)")

    def shuffle(self, a: str, b: str, vector: str, picks: Sequence[int]) -> str:
        places = ", ".join(f"i32 {p}" for p in picks)
        return self.let(
            f"shufflevector {vector} {a}, {vector} {b}, <{len(picks)} x i32> <{places}>"
        )

    def transpose(self, rows: list[str], type: str) -> list[str]:
        """Transpose n vectors of n elements in log2(n) rounds.

        Pairs of rows first exchange blocks of 16 bytes, then elements within the blocks. Other
        shuffles cross such blocks, which takes AVX2 twice as many instructions and LLVM three times
        as long to compile.
        """
        n = len(rows)
        block = min(n, 128 // bits_of(type))
        span = n // 2
        while span >= block:
            rows = self._exchange_blocks(rows, f"<{n} x {type}>", span)
            span //= 2
        for _ in range(block.bit_length() - 1):
            rows = self._interleave(rows, f"<{n} x {type}>", block)
        return rows

    def _exchange_blocks(self, rows: list[str], vector: str, span: int) -> list[str]:
        """Exchange runs of `span` lanes between rows that are `span` rows apart."""
        n, exchanged = len(rows), list(rows)
        upper = [i for i in range(n) if not i & span]
        low = [i if not i & span else n + i - span for i in range(n)]
        high = [i + span if not i & span else n + i for i in range(n)]
        for i in upper:
            pair = rows[i], rows[i + span]
            exchanged[i], exchanged[i + span] = (
                self.shuffle(*pair, vector, lanes) for lanes in (low, high)
            )
        return exchanged

    def _interleave(self, rows: list[str], vector: str, block: int) -> list[str]:
        """Interleave row i with row i + block/2, which rotates the address bits (row, lane) within
        a block by one."""
        n, half = len(rows), block // 2
        low = [first + i // 2 + n * (i % 2) for first in range(0, n, block) for i in range(block)]
        high = [half + p for p in low]
        return [
            self.shuffle(rows[first + i], rows[first + i + half], vector, p)
            for first in range(0, n, block)
            for i in range(half)
            for p in (low, high)
        ]

    # -- conversions; lanes == 0 means a scalar

    def convert(self, value: str, source: str, target: str, lanes: int) -> str:
        """Convert a value between two named types; floats round to nearest even, integers wrap."""
        if source == target:
            return value
        if source in INTEGERS:
            return self._convert_integer(value, source, target, lanes)
        if source not in FLOATS or target not in FLOATS:
            raise NotImplementedError(
                f"matmul conversion from {source} to {target} is not implemented"
            )
        if source == "bf16":
            wide = self.let(
                f"zext {_vector_type('i16', lanes)} {value} to {_vector_type('i32', lanes)}"
            )
            bits = self.let(
                f"shl {_vector_type('i32', lanes)} {wide}, {splat_constant('i32', 16, lanes)}"
            )
            return self.convert(self._cast(bits, "i32", "float", lanes), "f32", target, lanes)
        if target == "bf16":
            return self._round_to_bf16(self.convert(value, source, "f32", lanes), lanes)
        if source == "f16" and not self.machine.f16:
            return self.convert(self._widen_half(value, lanes), "f32", target, lanes)
        if target == "f16" and not self.machine.f16:
            return self._round_to_half(self.convert(value, source, "f32", lanes), lanes)
        op = "fpext" if nbytes(target) > nbytes(source) else "fptrunc"
        return self.let(
            f"{op} {_vector_type(llvm_type(source), lanes)} {value} to {_vector_type(llvm_type(target), lanes)}"
        )

    def _convert_integer(self, value: str, source: str, target: str, lanes: int) -> str:
        kind = llvm_type(source)
        if target == "bool":
            is_nonzero = self.let(
                f"icmp ne {_vector_type(kind, lanes)} {value}, {splat_constant(kind, 0, lanes)}"
            )
            return self.let(
                f"zext {_vector_type('i1', lanes)} {is_nonzero} to {_vector_type('i8', lanes)}"
            )
        if target in INTEGERS:
            return self._resize(value, source, target, lanes)
        wide = "f64" if target == "f64" else "f32"
        op = "sitofp" if source.startswith("i") else "uitofp"
        value = self.let(
            f"{op} {_vector_type(kind, lanes)} {value} to {_vector_type(llvm_type(wide), lanes)}"
        )
        return self.convert(value, wide, target, lanes)

    def _resize(self, value: str, source: str, target: str, lanes: int) -> str:
        a, b = llvm_type(source), llvm_type(target)
        if a == b:
            return value
        op = "trunc" if bits_of(b) < bits_of(a) else "sext" if source.startswith("i") else "zext"
        return self.let(f"{op} {_vector_type(a, lanes)} {value} to {_vector_type(b, lanes)}")

    def _cast(self, value: str, source: str, target: str, lanes: int) -> str:
        return self.let(
            f"bitcast {_vector_type(source, lanes)} {value} to {_vector_type(target, lanes)}"
        )

    def _int(self, op: str, a: str, b: str | int, lanes: int) -> str:
        right = b if isinstance(b, str) else splat_constant("i32", b, lanes)
        return self.let(f"{op} {_vector_type('i32', lanes)} {a}, {right}")

    def _pick(self, cond: str, a: str, b: str, lanes: int) -> str:
        m, v = _vector_type("i1", lanes), _vector_type("i32", lanes)
        return self.let(f"select {m} {cond}, {v} {a}, {v} {b}")

    def _round_to_bf16(self, value: str, lanes: int) -> str:
        # Integer rounding, because the hardware instruction flushes subnormals and few machines have it.
        bits = self._cast(value, "float", "i32", lanes)
        odd = self._int("and", self._int("lshr", bits, 16, lanes), 1, lanes)
        up = self._int("add", self._int("add", bits, 0x7FFF, lanes), odd, lanes)
        nan = self.let(f"fcmp uno {_vector_type('float', lanes)} {value}, {value}")
        rounded = self._pick(nan, self._int("or", bits, 0x400000, lanes), up, lanes)
        top = self._int("lshr", rounded, 16, lanes)
        return self.let(f"trunc {_vector_type('i32', lanes)} {top} to {_vector_type('i16', lanes)}")

    def _widen_half(self, value: str, lanes: int) -> str:
        """Convert f16 to f32 with integer operations: shift the fields, then scale by 2**112 (exact
        for subnormals too)."""
        wide = self.let(
            f"zext {_vector_type('i16', lanes)} {self._cast(value, 'half', 'i16', lanes)} to {_vector_type('i32', lanes)}"
        )
        sign = self._int("shl", self._int("and", wide, 0x8000, lanes), 16, lanes)
        body = self._int("shl", self._int("and", wide, 0x7FFF, lanes), 13, lanes)
        scale = splat_constant("float", "0x46F0000000000000", lanes)
        scaled = self.let(
            f"fmul {_vector_type('float', lanes)} {self._cast(body, 'i32', 'float', lanes)}, {scale}"
        )
        finite = self._cast(scaled, "float", "i32", lanes)
        special = self.let(
            f"icmp uge {_vector_type('i32', lanes)} {body}, {splat_constant('i32', 0x0F800000, lanes)}"
        )
        magnitude = self._pick(special, self._int("or", body, 0x7F800000, lanes), finite, lanes)
        return self._cast(self._int("or", magnitude, sign, lanes), "i32", "float", lanes)

    def _round_to_half(self, value: str, lanes: int) -> str:
        """Convert f32 to f16 with integer operations, to nearest even; an addition aligns the last
        bit of subnormals."""
        bits = self._cast(value, "float", "i32", lanes)
        sign = self._int("and", self._int("lshr", bits, 16, lanes), 0x8000, lanes)
        mag = self._int("and", bits, 0x7FFFFFFF, lanes)
        odd = self._int("and", self._int("lshr", mag, 13, lanes), 1, lanes)
        moved = self._int(
            "add",
            self._int("sub", mag, 112 << 23, lanes),
            self._int("add", odd, 0xFFF, lanes),
            lanes,
        )
        normal = self._int("lshr", moved, 13, lanes)
        magic = 126 << 23
        half = _vector_type("float", lanes)
        aligned = self.let(
            f"fadd {half} {self._cast(mag, 'i32', 'float', lanes)}, "
            f"{self._cast(splat_constant('i32', magic, lanes), 'i32', 'float', lanes)}"
        )
        small = self._int("sub", self._cast(aligned, "float", "i32", lanes), magic, lanes)
        v = _vector_type("i32", lanes)
        is_small = self.let(f"icmp ult {v} {mag}, {splat_constant('i32', 113 << 23, lanes)}")
        is_big = self.let(f"icmp uge {v} {mag}, {splat_constant('i32', 0x477FF000, lanes)}")
        is_nan = self.let(f"icmp ugt {v} {mag}, {splat_constant('i32', 0x7F800000, lanes)}")
        out = self._pick(is_small, small, normal, lanes)
        out = self._pick(is_big, splat_constant("i32", 0x7C00, lanes), out, lanes)
        out = self._pick(is_nan, splat_constant("i32", 0x7E00, lanes), out, lanes)
        low = self.let(
            f"trunc {v} {self._int('or', out, sign, lanes)} to {_vector_type('i16', lanes)}"
        )
        return self._cast(low, "i16", "half", lanes)


def bits_of(type: str) -> int:
    """Return the width of an LLVM scalar type in bits."""
    return int(mangle(type)[1:])


def _vector_type(type: str, lanes: int) -> str:
    return f"<{lanes} x {type}>" if lanes else type


def splat_constant(type: str, value: object, lanes: int) -> str:
    """Return a constant with the same value in every lane."""
    return f"<{', '.join([f'{type} {value}'] * lanes)}>" if lanes else str(value)
