"""Calls of BLAS and LAPACK from native code: one task handles several problems of a batch.

In:   a `LibraryCall` step.
Out:  `task(step, name)`: the text of `void name(ptr arrays, i64 task, i64 worker)`, where `arrays`
      holds the addresses of the step's arrays in order; `tasks(step)`: the number of tasks.
Laws: problems are independent, so threads share a batch and the library runs single-threaded in
      each task. The library's own threads would spin after the call and slow down the next kernel;
      only single large problems use them. Batches of small problems use one thread; tiny problems
      are computed without the library (`tiny_lapack`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np

from weft._engine.codegen.ir.gemm_types import machine
from weft._engine.codegen.ir.ir_writer import LLVMFunctionWriter
from weft._engine.codegen.ir.writer import Declarations
from weft._engine.codegen.library import tiny_lapack
from weft._engine.codegen.runtime import symbols
from weft._engine.ir.program import LibraryCall
from weft._engine.util import lapack

# thresholds, measured on several machines
#: maximum number of tasks of a batch
_LAPACK_MOST_TASKS = 64
#: number of elements above which a single problem may use the library's own threads
_LAPACK_THREADED = 1 << 17
#: number of tiny problems that are worth a task
_LAPACK_UNROLLED_PROBLEMS = 256
#: number of elements below which one thread solves all triangular systems. Some routines of
#: OpenBLAS allocate under a lock: on problems of less than a microsecond two threads gain nothing,
#: and they wait for each other for milliseconds if one loses its CPU
_LAPACK_TINY_TRSM = 1 << 11
#: number of elements below which one thread computes all Cholesky factorizations
_LAPACK_TINY_POTRF = 1 << 10
#: number of elements below which one thread computes all LU factorizations
_LAPACK_TINY_GETRF = 1 << 9


_NUMBER = {"s": "float", "d": "double", "c": "[2 x float]", "z": "[2 x double]"}


def signature(step: LibraryCall) -> str:
    """Return the parameter types of a routine: pointers, then the length of each character
    argument, as Fortran passes it."""
    characters = [value for value in step.arguments if isinstance(value, str) and len(value) == 1]
    return ", ".join(["ptr"] * len(step.arguments) + ["i64"] * len(characters))


def must_be_single_threaded(step: LibraryCall) -> bool:
    """Return whether a step must keep the library from using its own threads."""
    if tiny_lapack.is_tiny(step) or lapack.thread_control() is None:
        return False
    return _count_touched_elements(step) < _LAPACK_THREADED or step.count > 1


def tasks(step: LibraryCall) -> int:
    """Return the number of tasks of a batch."""
    return -(-step.count // _problems_per_task(step))


def _problems_per_task(step: LibraryCall) -> int:
    """Return the number of problems per task."""
    if tiny_lapack.is_tiny(step):
        tasks = min(_LAPACK_MOST_TASKS, max(1, step.count // _LAPACK_UNROLLED_PROBLEMS))
        return -(-step.count // tasks)
    tiny = {
        "trsm": _LAPACK_TINY_TRSM,
        "potrf": _LAPACK_TINY_POTRF,
        "getrf": _LAPACK_TINY_GETRF,
    }
    is_single_threaded = lapack.thread_control() is not None and _count_touched_elements(
        step
    ) < tiny.get(step.routine[1:], 0)
    return step.count if is_single_threaded else -(-step.count // _LAPACK_MOST_TASKS)


def _count_touched_elements(step: LibraryCall) -> int:
    """Return the number of elements of one problem's arrays and workspace."""
    work = sum(value[2] for value in step.arguments if isinstance(value, tuple) and len(value) == 3)
    return sum(size for _, _, size, _ in step.arrays) + work


def task(step: LibraryCall, name: str) -> str:
    """Return the text of a function that computes the problems of one task."""
    f = LLVMFunctionWriter(
        f"internal void @{name}(ptr %arrays, i64 %task, i64 %worker)",
        Declarations(),
        machine(),
        "nounwind",
    )
    if tiny_lapack.is_tiny(step):
        _write_tiny(f, step)
        return f.end() + "\n"
    return _TaskWriter(f, step).text()


class _TaskWriter:
    """The function of a task that calls the library for each of its problems."""

    def __init__(self, f: LLVMFunctionWriter, step: LibraryCall) -> None:
        self.f, self.step, self.workspace = f, step, _Workspace(step)
        self.scratch = "null"
        if self.workspace.nbytes:
            self.scratch = f.let(f"call ptr @weft_scratch_take(i64 {self.workspace.nbytes})")
        self.bases = {
            array[0]: f.load_word("%arrays", i, "ptr") for i, array in enumerate(step.arrays)
        }
        self.first = f.mul("%task", _problems_per_task(step))
        self.constants = [
            _constant(f, value, step.routine[0]) if _is_constant(value) else None
            for value in step.arguments
        ]

    def text(self) -> str:
        """Return the finished function."""
        f, share = self.f, _problems_per_task(self.step)
        f.loop(self.first, f.min(f.add(self.first, share), self.step.count), 1, self.problem)
        if self.workspace.nbytes:
            f.do(f"call void @weft_scratch_give(ptr {self.scratch})")
        return f.end() + "\n"

    def problem(self, number: str) -> None:
        """Emit the call for one problem of the batch, with conversions of integers."""
        f, step = self.f, self.step
        places = _places(f, step, self.bases, number)
        passed = dict(places)
        for array, _, size, _ in self.workspace.integers:
            passed[array] = f.byte_address(self.scratch, self.workspace.offsets[array])
            f.loop(0, size, 1, functools.partial(_before, f, array, places[array], passed[array]))
        arguments = [
            constant or self.address(position, value, passed)
            for position, (constant, value) in enumerate(zip(self.constants, step.arguments))
        ]
        types = signature(step).split(", ")
        typed = [
            f"{t} {value}" for t, value in itertools.zip_longest(types, arguments, fillvalue="1")
        ]
        f.do(f"call void @{symbols.routine(step.routine)}({', '.join(typed)})")
        for array, _, size, _ in self.workspace.integers:
            if array.startswith("y"):
                f.loop(0, size, 1, functools.partial(_after, f, places[array], passed[array]))

    def address(self, position: int, value: Any, passed: Mapping[str, str]) -> str:
        """Return the address of an argument: an array, an element of an array, or workspace."""
        if isinstance(value, str):
            return passed[value]
        if len(value) == 3:
            return self.f.byte_address(self.scratch, self.workspace.offsets[position])
        array, element = value
        width = next(
            np.dtype(dtype).itemsize for name, *_, dtype in self.step.arrays if name == array
        )
        return self.f.byte_address(passed[array], element * width)


def _is_constant(value: object) -> TypeGuard[str | float]:
    """Return whether an argument is a letter or a number rather than an array or memory."""
    return len(value) == 1 if isinstance(value, str) else not isinstance(value, tuple)


def _places(
    f: LLVMFunctionWriter, step: LibraryCall, bases: Mapping[str, str], problem: str
) -> dict[str, str]:
    """Return the addresses of one problem's arrays."""
    return {
        array: f.byte_address(bases[array], f.mul(problem, size * np.dtype(kind).itemsize))
        for array, _, size, kind in step.arrays
    }


def _write_tiny(f: LLVMFunctionWriter, step: LibraryCall) -> None:
    """Emit the problems of a task without calls of the library."""
    bases = {array[0]: f.load_word("%arrays", i, "ptr") for i, array in enumerate(step.arrays)}
    first = f.mul("%task", _problems_per_task(step))

    def emit_problem(problem: str) -> None:
        tiny_lapack.write(f, step, _places(f, step, bases, problem))

    f.loop(first, f.min(f.add(first, _problems_per_task(step)), step.count), 1, emit_problem)


class _Workspace:
    """Memory of one problem apart from its arrays: workspace, and integers in the library's width."""

    def __init__(self, step: LibraryCall):
        self.integers = [array for array in step.arrays if array[3] == "int32"]
        width = lapack.integer_bytes()
        sizes: list[tuple[str | int, int]] = [
            (array, size * width) for array, _, size, _ in self.integers
        ]
        sizes += [
            (position, value[2] * (width if value[1] == "int32" else np.dtype(value[1]).itemsize))
            for position, value in enumerate(step.arguments)
            if isinstance(value, tuple) and len(value) == 3
        ]
        self.offsets: dict[str | int, int] = {}  # by array name, or by position in the arguments
        self.nbytes = 0
        for key, nbytes in sizes:
            self.offsets[key] = self.nbytes
            self.nbytes += -(-nbytes // 64) * 64


def _constant(f: LLVMFunctionWriter, value: str | float, letter: str) -> str:
    """Store a constant argument in memory and return its address."""
    if isinstance(value, str):
        kind, text = "i8", str(ord(value))
    elif isinstance(value, int):
        kind, text = f"i{8 * lapack.integer_bytes()}", str(value)
    else:
        kind = _NUMBER[letter]
        part = kind.strip("[]").split(" ")[-1]
        number = f"{value:e}"
        text = f"[{part} {number}, {part} 0.0]" if letter in "cz" else number
    place = f.slot(kind)
    f.do(f"store {kind} {text}, ptr {place}")
    return place


def _before(f: LLVMFunctionWriter, array: str, place: str, wide: str, i: str) -> None:
    """Convert input integer i to the library's width; store 0 for an output integer."""
    kind = f"i{8 * lapack.integer_bytes()}"
    value = "0"
    if array.startswith("x"):
        value = f.read("i32", f.byte_address(place, f.mul(i, 4)), 4)
        value = value if kind == "i32" else f.let(f"sext i32 {value} to {kind}")
    f.do(f"store {kind} {value}, ptr {f.byte_address(wide, f.mul(i, lapack.integer_bytes()))}")


def _after(f: LLVMFunctionWriter, place: str, wide: str, i: str) -> None:
    """Convert integer i from the library's width."""
    kind = f"i{8 * lapack.integer_bytes()}"
    value = f.let(f"load {kind}, ptr {f.byte_address(wide, f.mul(i, lapack.integer_bytes()))}")
    value = value if kind == "i32" else f.let(f"trunc {kind} {value} to i32")
    f.do(f"store i32 {value}, ptr {f.byte_address(place, f.mul(i, 4))}, align 4")
