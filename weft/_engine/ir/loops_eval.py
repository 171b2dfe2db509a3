"""An interpreter of Loops kernels on NumPy: the reference for tests of native code.

In:   a `Kernel` and one flat NumPy array per buffer.
Out:  the arrays of `out` and `inout` buffers are written.
Laws: statements run for one element at a time, in program order. An index outside of its buffer raises `IndexError`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from weft._engine.ir import loops as L
from weft._engine.ir.registry import functions

#: a NumPy scalar; its class depends on the value of a Loops type
Value = Any

DTYPES: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(bool),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
}


def evaluate(kernel: L.LoopsKernel, *arrays: np.ndarray) -> None:
    """Run a kernel on flat arrays, one per buffer.

    >>> from weft._engine.ir.loops import Buf, For, Index, LoopsKernel, ScalarOp, StoreElement
    >>> y = np.zeros(3, np.int32)
    >>> i = Index("i")
    >>> double = ScalarOp("add", (ScalarOp("cast", (i,), "i32"), ScalarOp("cast", (i,), "i32")), "i32")
    >>> evaluate(LoopsKernel((Buf("y", "i32", 3, "out"),), (For("i", 3, (StoreElement("y", i, double),)),)), y)
    >>> y
    array([0, 2, 4], dtype=int32)
    """
    if len(arrays) != len(kernel.bufs):
        raise ValueError(f"loops.evaluate: {len(arrays)} arrays for {len(kernel.bufs)} buffers")
    for buf, array in zip(kernel.bufs, arrays):
        if array.dtype != DTYPES[buf.type] or array.shape != (buf.size,):
            actual = f"{array.dtype}{array.shape}"
            raise ValueError(
                f"loops.evaluate: buffer {buf.name!r} is {buf.type}[{buf.size}], got {actual}"
            )
    machine = _KernelInterpreter(
        kernel.scratch, {buf.name: a for buf, a in zip(kernel.bufs, arrays)}
    )
    with np.errstate(all="ignore"):
        loop = kernel.parallel_loop
        if loop is None:
            machine.run_task(kernel.body)
        else:
            for task in range(kernel.parallel_extent):
                machine.env[loop.var] = np.int64(task)
                machine.run_task(loop.body)


class _KernelInterpreter:
    """The state of an interpreted kernel: the values of names and the memory. Its methods execute statements."""

    def __init__(self, scratch: tuple[L.Buf, ...], memory: dict[str, np.ndarray]):
        self.scratch = scratch
        self.memory = memory
        self.env: dict[str, Value] = {}

    def run_task(self, body: tuple[L.Stmt, ...]) -> None:
        """Run one task with its own scratch buffers."""
        for buf in self.scratch:
            self.memory[buf.name] = np.zeros(buf.size, DTYPES[buf.type])
        self.body(body)

    def body(self, body: tuple[L.Stmt, ...]) -> None:
        for stmt in body:
            _STATEMENTS[type(stmt)](self, stmt)

    def bind(self, stmt: L.Let | L.Init) -> None:
        self.env[stmt.name] = self.expr(stmt.value)

    def accum(self, stmt: L.Accum) -> None:
        if stmt.guard is not None and not self.expr(stmt.guard):
            return
        value = self.expr(stmt.value)
        if stmt.op != "set":
            value = apply(stmt.op, [self.env[stmt.name], value], stmt.value.type)
        self.env[stmt.name] = value

    def scan(self, stmt: L.PrefixCombine) -> None:
        self.env.update(zip(stmt.names, [self.expr(value) for value in stmt.values]))
        combined = [self.expr(value) for value in stmt.combine]
        self.env.update(zip((*stmt.accs, *stmt.names), combined * 2))

    def store(self, stmt: L.StoreElement) -> None:
        if stmt.guard is not None and not self.expr(stmt.guard):
            return
        at, value = self.place(stmt.buf, stmt.index), self.expr(stmt.value)
        array = self.memory[stmt.buf]
        if stmt.accumulate:
            value = apply(stmt.accumulate, [array[at], value], stmt.value.type)
        array[at] = value

    def interleave(self, stmt: L.Interleave) -> None:
        at = self.place(stmt.buf, stmt.index)
        row = self.memory[stmt.buf][at : at + len(stmt.values)]
        if len(row) < len(stmt.values):
            raise IndexError(
                f"loops.evaluate: the row {stmt.buf}[{at}] is not within its {self.memory[stmt.buf].size} elements"
            )
        row[:] = [self.expr(value) for value in stmt.values]

    def pack(self, stmt: L.Pack) -> None:
        if self.expr(stmt.guard):
            self.store(stmt.store_statement())
            self.env[stmt.acc] = apply("add", [self.env[stmt.acc], np.int64(1)], "i64")

    def prefetch(self, stmt: L.Prefetch) -> None:
        """Do nothing: a prefetch is a hint."""

    def loop(self, stmt: L.For) -> None:
        extent = stmt.extent if isinstance(stmt.extent, int) else int(self.expr(stmt.extent))
        for i in range(extent):
            self.env[stmt.var] = np.int64(i)
            self.body(stmt.body)

    def branch(self, stmt: L.If) -> None:
        self.body(stmt.body if self.expr(stmt.cond) else stmt.orelse)

    def repeat(self, stmt: L.While) -> None:
        while self.expr(stmt.cond):
            self.body(stmt.body)

    def place(self, name: str, index: L.Expr) -> int:
        at = int(self.expr(index))
        if not 0 <= at < self.memory[name].size:
            raise IndexError(
                f"loops.evaluate: {name}[{at}] is not within its {self.memory[name].size} elements"
            )
        return at

    def expr(self, expr: L.Expr) -> Value:
        return self.evaluate_shared(expr, {})

    def evaluate_shared(self, expr: L.Expr, seen: dict[int, Value]) -> Value:
        """Return the value of `expr`. Shared subexpressions are computed once."""
        value = seen.get(id(expr))
        if value is None:
            value = seen[id(expr)] = self.compute(expr, seen)
        return value

    def compute(self, expr: L.Expr, seen: dict[int, Value]) -> Value:
        if isinstance(expr, L.Index | L.ScalarRef):
            return self.env[expr.name]
        if isinstance(expr, L.Const):
            return scalar(expr.value, expr.type)
        if isinstance(expr, L.Load):
            if expr.guard is not None and not self.evaluate_shared(expr.guard, seen):
                return (
                    scalar(0, expr.type)
                    if expr.other is None
                    else self.evaluate_shared(expr.other, seen)
                )
            return self.memory[expr.buf][self.place(expr.buf, expr.index)]
        if expr.op == "select":
            return self.evaluate_shared(
                expr.args[1] if self.evaluate_shared(expr.args[0], seen) else expr.args[2], seen
            )
        return apply(expr.op, [self.evaluate_shared(arg, seen) for arg in expr.args], expr.type)


_STATEMENTS: dict[type, Callable[..., None]] = {  # class of a statement -> its execution
    L.Let: _KernelInterpreter.bind,
    L.Init: _KernelInterpreter.bind,
    L.Accum: _KernelInterpreter.accum,
    L.PrefixCombine: _KernelInterpreter.scan,
    L.StoreElement: _KernelInterpreter.store,
    L.Interleave: _KernelInterpreter.interleave,
    L.Pack: _KernelInterpreter.pack,
    L.Prefetch: _KernelInterpreter.prefetch,
    L.For: _KernelInterpreter.loop,
    L.While: _KernelInterpreter.repeat,
    L.If: _KernelInterpreter.branch,
}


def scalar(value: Value, type_: L.ScalarType) -> Value:
    """Convert a number to a NumPy scalar of a Loops type. Integers wrap around."""
    if type_ in L.INTEGERS:
        bits = 8 * L.ITEMSIZE[type_]
        value = int(value) & ((1 << bits) - 1)
        value = value - (1 << bits) if type_ in L.SIGNED and value >> (bits - 1) else value
    return DTYPES[type_].type(value)


def _type_of(value: Value) -> L.ScalarType:
    return _NAMES[np.asarray(value).dtype]


_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def apply(op: str, args: list[Value], type_: L.ScalarType) -> Value:
    """Return the result of one operation on NumPy scalars."""
    source = _type_of(args[0])
    if op == "cast":
        return _cast(args[0], source, type_)
    if op == "bitcast":
        return np.asarray(args[0]).view(DTYPES[type_])[()]
    if op in _COMPARE:
        return np.bool_(_COMPARE[op](args[0], args[1]))
    if source in L.INTEGERS or source == "bool":
        return scalar(_integer(op, [int(arg) for arg in args], source), type_)
    if op in _FLOATING:
        return scalar(_FLOATING[op](*args), type_)
    function = functions[op]
    if function.widen:
        wide = np.complex128 if source in L.COMPLEX else np.float64
        args = [wide(arg) for arg in args]
    return scalar(function.reference(*args), type_)


_COMPARE: dict[str, Callable[..., Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _complex(re: Value, im: Value) -> complex:
    return complex(float(re), float(im))


def _fma(x: Value, y: Value, z: Value) -> np.longdouble:
    return np.longdouble(x) * np.longdouble(y) + np.longdouble(z)


def _sign(x: Value) -> Value:
    return x if x == 0 else np.sign(x)


_FLOATING: dict[str, Callable[..., Any]] = {
    "complex": _complex,
    "real": np.real,
    "imag": np.imag,
    "conj": np.conj,
    "min": np.minimum,
    "max": np.maximum,
    "fma": _fma,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "rem": np.fmod,
    "neg": np.negative,
    "abs": np.abs,
    "sign": _sign,
}


def _cast(value: Value, source: L.ScalarType, target: L.ScalarType) -> Value:
    if target in L.INTEGERS and source not in L.INTEGERS and source != "bool":
        x = float(value.real)
        info = np.iinfo(DTYPES[target])
        if math.isnan(x):
            return scalar(0, target)
        return scalar(info.max if x >= info.max else info.min if x <= info.min else int(x), target)
    if target not in L.COMPLEX and source in L.COMPLEX:
        return np.bool_(value != 0) if target == "bool" else scalar(np.real(value), target)
    if target == "bool":
        return np.bool_(value != 0)
    if target in ("f16", "bf16") and source in L.INTEGERS:
        value = np.float32(value)
    return scalar(value, target)


def _integer(op: str, args: list[int], type_: L.ScalarType) -> int:
    bits = 1 if type_ == "bool" else 8 * L.ITEMSIZE[type_]
    mask, x = (1 << bits) - 1, args[0]
    y = args[1] if len(args) > 1 else 0
    if op in ("div", "rem"):
        if y == 0:
            return mask if op == "div" else x
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        return quotient if op == "div" else x - quotient * y
    if op in ("shl", "shr_logical", "shr_arithmetic"):
        count = y & mask
        if op == "shr_arithmetic":
            high = (x & mask) >> (bits - 1)
            signed = (x & mask) - (high << bits)
            return signed >> min(count, bits - 1)
        if count >= bits:
            return 0
        return x << count if op == "shl" else (x & mask) >> count
    if type_ == "bool" and op in ("add", "mul"):
        return (x | y) if op == "add" else (x & y)
    return _INTEGER[op](x, y, mask, args)


#: operation -> its result for two operands, the mask of the bits of the type, and all operands
_INTEGER: dict[str, Callable[[int, int, int, list[int]], int]] = {
    "real": lambda x, y, m, a: x,
    "imag": lambda x, y, m, a: 0,
    "conj": lambda x, y, m, a: x,
    "add": lambda x, y, m, a: x + y,
    "sub": lambda x, y, m, a: x - y,
    "mul": lambda x, y, m, a: x * y,
    "neg": lambda x, y, m, a: -x,
    "abs": lambda x, y, m, a: abs(x),
    "sign": lambda x, y, m, a: (x > 0) - (x < 0),
    "min": lambda x, y, m, a: min(x, y),
    "max": lambda x, y, m, a: max(x, y),
    "and": lambda x, y, m, a: x & y,
    "or": lambda x, y, m, a: x | y,
    "xor": lambda x, y, m, a: x ^ y,
    "not": lambda x, y, m, a: 1 - x if m == 1 else ~x,
    "popcount": lambda x, y, m, a: (x & m).bit_count(),
    "clz": lambda x, y, m, a: m.bit_length() - (x & m).bit_length(),
    "fma": lambda x, y, m, a: x * y + a[2],
}
