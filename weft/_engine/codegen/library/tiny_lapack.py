"""Factorizations and solves of tiny real matrices as straight-line code instead of calls of LAPACK.

In:   a `LibraryCall` step whose routine factors or solves matrices of a few rows.
Out:  `is_tiny(step)`; `write(f, step, places)`: the code for one problem, whose arrays are at
      `places`.
Laws: results equal the results of LAPACK up to rounding: LU pivots on the first of the largest
      elements of a column, a column of zeros is left unchanged, Cholesky reports the first diagonal
      element that is not positive. All elements are in registers: there are no loops, locks or
      workspace, so that threads share any batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft._engine.codegen.ir.ir_writer import LLVMFunctionWriter
from weft._engine.codegen.ir.scalar_types import mangle
from weft._engine.ir.program import LibraryCall

# thresholds, measured on several machines
#: maximum number of rows of triangles that are factored and solved element by element
_LAPACK_UNROLLED = 8
#: maximum number of rows of matrices that are factored with pivoting; the library is faster on
#: larger ones
_LAPACK_UNROLLED_LU = 6
#: maximum number of multiplications of a solve; the library is faster on larger ones
_LAPACK_UNROLLED_SOLVE = 216


_TYPES = {"s": "float", "d": "double"}
Matrix = list[list[str]]


def is_tiny(step: LibraryCall) -> bool:
    """Return whether the problems of a step are computed without the library."""
    if step.routine[0] not in _TYPES:
        return False
    match step.routine[1:], step.arguments:
        case "potrf", (_, int(n), *_):
            return n <= _LAPACK_UNROLLED
        case "getrf", (int(m), int(n), *_):
            return max(m, n) <= _LAPACK_UNROLLED_LU
        case "trsm", (side, _, _, _, int(rows), int(columns), *_):
            n = rows if side == "L" else columns
            return n <= _LAPACK_UNROLLED and n * rows * columns <= _LAPACK_UNROLLED_SOLVE
        case "laswp", (1, _, int(size), *_):
            return size <= _LAPACK_UNROLLED
        case _:
            return False


def write(f: LLVMFunctionWriter, step: LibraryCall, places: Mapping[str, str]) -> None:
    """Emit the code of one problem."""
    writer = _TinyWriter(f, _TYPES[step.routine[0]])
    match step.routine[1:], step.arguments:
        case "potrf", (_, int(n), *_):
            writer.cholesky(n, places["y0"], places["y1"])
        case "getrf", (int(m), int(n), *_):
            writer.lu(m, n, places["y0"], places["y1"], places["y2"])
        case "trsm", arguments:
            writer.solve(arguments, places["x1"], places["y0"])
        case "laswp", (_, _, int(size), _, int(count), *_):
            writer.exchange(size, count, places["y0"], places["x1"])


class _TinyWriter:
    """Arithmetic on a matrix: lists of rows in registers, column-major in memory."""

    def __init__(self, f: LLVMFunctionWriter, type: str):
        self.f, self.type = f, type
        self.nbytes = 4 if type == "float" else 8
        self.suffix = mangle(type)

    def load(self, place: str, rows: int, columns: int) -> Matrix:
        f, size = self.f, self.nbytes
        at = lambda i, j: f.byte_address(place, (j * rows + i) * size)
        return [[f.read(self.type, at(i, j), size) for j in range(columns)] for i in range(rows)]

    def store(self, value: str, place: str, index: int) -> None:
        self.f.do(
            f"store {self.type} {value}, ptr {self.f.byte_address(place, index * self.nbytes)}, align {self.nbytes}"
        )

    def store_int(self, value: str, place: str, index: int = 0) -> None:
        self.f.do(f"store i32 {value}, ptr {self.f.byte_address(place, 4 * index)}, align 4")

    def op(self, name: str, a: str, b: str) -> str:
        return self.f.let(f"{name} {self.type} {a}, {b}")

    def call(self, name: str, x: str) -> str:
        name = f"@llvm.{name}.{self.suffix}"
        self.f.decls.use(f"declare {self.type} {name}({self.type})")
        return self.f.let(f"call {self.type} {name}({self.type} {x})")

    def minus(self, total: str, a: str, b: str) -> str:
        """Return total - a * b."""
        return self.op("fsub contract", total, self.op("fmul contract", a, b))

    def compare(self, name: str, a: str, b: str) -> str:
        return self.f.let(f"fcmp {name} {self.type} {a}, {b}")

    def pick(self, condition: str, a: str, b: str, type: str = "") -> str:
        kind = type or self.type
        return self.f.let(f"select i1 {condition}, {kind} {a}, {kind} {b}")

    def cholesky(self, n: int, place: str, info: str) -> None:
        """Compute the upper Cholesky factor in place."""
        a, failed = self.load(place, n, n), "0"
        for j in range(n):
            for i in range(j):
                a[j][j] = self.minus(a[j][j], a[i][j], a[i][j])
            positive = self.compare("ogt", a[j][j], "0.0")
            first = self.f.let(f"icmp eq i32 {failed}, 0")
            failed = self.pick(
                self.f.let(f"xor i1 {positive}, true"),
                self.pick(first, str(j + 1), failed, "i32"),
                failed,
                "i32",
            )
            a[j][j] = self.call("sqrt", a[j][j])
            for k in range(j + 1, n):
                for i in range(j):
                    a[j][k] = self.minus(a[j][k], a[i][j], a[i][k])
                a[j][k] = self.op("fdiv", a[j][k], a[j][j])
        for j in range(n):
            for i in range(j + 1):
                self.store(a[i][j], place, j * n + i)
        self.store_int(failed, info)

    def lu(self, m: int, n: int, place: str, pivots: str, info: str) -> None:
        """Compute the LU factorization in place; pivots count from 1."""
        a, singular = self.load(place, m, n), "0"
        for k in range(min(m, n)):
            pivot = self._exchange_pivot_row(a, k)
            self.store_int(pivot, pivots, k)
            zero = self.compare("oeq", a[k][k], "0.0")
            first = self.f.let(f"icmp eq i32 {singular}, 0")
            singular = self.pick(self.f.let(f"and i1 {zero}, {first}"), str(k + 1), singular, "i32")
            for i in range(k + 1, m):
                a[i][k] = self.pick(zero, a[i][k], self.op("fdiv", a[i][k], a[k][k]))
                for j in range(k + 1, n):
                    a[i][j] = self.minus(a[i][j], a[i][k], a[k][j])
        for i in range(m):
            for j in range(n):
                self.store(a[i][j], place, j * m + i)
        self.store_int(singular, info)

    def _exchange_pivot_row(self, a: Matrix, k: int) -> str:
        """Exchange row k with the row of the largest element in column k; return the number of that
        row, counted from 1."""
        largest, pivot = self.call("fabs", a[k][k]), str(k + 1)
        for i in range(k + 1, len(a)):
            size = self.call("fabs", a[i][k])
            larger = self.compare("ogt", size, largest)
            largest = self.pick(larger, size, largest)
            pivot = self.pick(larger, str(i + 1), pivot, "i32")
        self._exchange_rows(a, k, pivot, range(k + 1, len(a)))
        return pivot

    def _exchange_rows(self, a: Matrix, k: int, pivot: str, others: Iterable[int]) -> None:
        """Exchange row k with row `pivot` (counted from 1), which is row k or in `others`."""
        row = a[k]
        for i in others:
            here = self.f.let(f"icmp eq i32 {pivot}, {i + 1}")
            a[k] = [self.pick(here, x, y) for x, y in zip(a[i], a[k])]
            a[i] = [self.pick(here, x, y) for x, y in zip(row, a[i])]

    def exchange(self, size: int, count: int, place: str, pivots: str) -> None:
        """Apply row exchanges to one column in place, one after another."""
        column = self.load(place, size, 1)
        for k in range(count):
            pivot = self.f.read("i32", self.f.byte_address(pivots, 4 * k), 4)
            self._exchange_rows(column, k, pivot, [i for i in range(size) if i != k])
        for i, (value,) in enumerate(column):
            self.store(value, place, i)

    def solve(self, arguments: Sequence[Any], factor: str, place: str) -> None:
        """Solve with a triangular matrix in place: op(A) X = B, or X op(A) = B by transposition."""
        side, triangle, op, diagonal, rows, columns = arguments[:6]
        b = self.load(place, rows, columns)
        n = rows if side == "L" else columns
        a = self.load(factor, n, n)
        forward = triangle == "L"
        if (op != "N") != (side == "R"):
            a, forward = [list(row) for row in zip(*a)], not forward
        if side == "R":
            b = [list(row) for row in zip(*b)]
        order = range(n) if forward else range(n - 1, -1, -1)
        for i in order:
            before = range(i) if forward else range(i + 1, n)
            for c in range(len(b[i])):
                for j in before:
                    b[i][c] = self.minus(b[i][c], a[i][j], b[j][c])
                if diagonal == "N":
                    b[i][c] = self.op("fdiv", b[i][c], a[i][i])
        for i in range(rows):
            for j in range(columns):
                self.store(b[i][j] if side == "L" else b[j][i], place, j * rows + i)
