"""Plans of FFTs: the choice between native code and SciPy, and the order of the transformed dims.

In:   an `fft` equation.
Out:  `steps_of(eqn)`: native steps with their kind, sizes and buffers, or None if SciPy's FFT is faster.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

from weft._engine.ir import fft
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ir.program import FftKind
from weft._engine.ops.fft import FftType
from weft._engine.util import dtypes
from weft._engine.util.record import record

# thresholds, measured on several machines
#: maximal row length at which several rows, one per vector lane, are transformed fast enough
_FFT_LONGEST = 1 << 14
#: maximal ratio of row length to number of rows: a few long rows leave most lanes of a vector empty
_FFT_LONG = 1 << 10
#: maximal number of rows that are each computed as a matrix
_FFT_FEW_ROWS = 15
#: minimal ratio of row length to number of rows, if each row is computed as a matrix
_FFT_FEW_ROWS_LENGTH = 48
#: minimal length of rows that are computed as a matrix
_FFT_MATRIX_FROM = 1 << 8
#: maximal length of rows that are computed as a matrix
_FFT_MATRIX_TO = 1 << 22
#: maximal length of a convolution that is computed as a matrix
FFT_CONVOLVED_TO = 1 << 18
#: vector lanes that the sides of such a matrix fill
FFT_MOST_LANES = 16


#: numbers of the buffers that steps read and write; temporary buffers are numbered from 2
OPERAND, RESULT = 0, 1
#: side lengths of matrices: multiples of the number of lanes that have one or two different radices, all of them unrolled
_SIDES = (
    16,
    32,
    48,
    64,
    80,
    96,
    112,
    128,
    144,
    256,
    288,
    320,
    384,
    448,
    512,
    576,
    640,
    784,
    800,
    864,
    1024,
)


@record
class FftStage:
    """One native step: `rows` x `n` x `inner` numbers, transformed along `n`, from buffer `source` to buffer `out`.

    A step of a convolution also has its `part` of the convolution and the `factors` to multiply by."""

    kind: FftKind
    n: int
    rows: int
    inner: int
    source: int
    out: int
    part: tuple[int, int, int, int, bool, bool] | None = None
    factors: fft.FftFactors | None = None

    def nbytes(self, part: np.dtype) -> int:
        """Return the size in bytes of the step's result in a temporary buffer; `part` is the dtype of real parts."""
        return 2 * self.rows * self.n * self.inner * part.itemsize


def steps_of(eqn: Eqn) -> list[FftStage] | None:
    """Return the native steps of a transform in order, or None if SciPy's FFT is faster."""
    lengths = eqn.params["fft_lengths"]
    out = eqn.outvars[0].aval
    rows = math.prod(out.shape[: out.ndim - len(lengths)])
    if len(lengths) == 1 and _is_complex_row(eqn):
        column = _columns(lengths[0]) if _are_few(rows, lengths[0]) else None
        if column:
            return _plan_long_rows(lengths[0] // column, column, rows, _is_inverse(eqn))
        if is_matrix_convolution(rows, *lengths):
            return _plan_convolution(eqn, rows)
    if (
        lengths[-1] == 1
        or is_matrix_convolution(rows, *lengths)
        or any(fft.max_points(n) > _FFT_LONGEST for n in lengths)
    ):
        return None
    return _dim_by_dim(eqn, rows)


def _is_inverse(eqn: Eqn) -> bool:
    return eqn.params["fft_type"] in (FftType.IFFT, FftType.IRFFT)


def _is_complex_row(eqn: Eqn) -> bool:
    """Return whether the transform is from complex to complex numbers."""
    to_complex = eqn.params["fft_type"] in (FftType.FFT, FftType.IFFT)
    return to_complex and dtypes.is_complex(eqn.invars[0].aval.dtype)


def _plan_long_rows(row: int, column: int, rows: int, inverse: bool) -> list[FftStage]:
    """Return the steps that transform each of a few long rows as a matrix: its columns, then its rows."""
    down, first, cross = (
        ("undown", "inverse", "uncross") if inverse else ("down", "forward", "cross")
    )
    return [
        FftStage(down if row == column else first, column, rows, row, OPERAND, 2),
        FftStage(cross, row, rows, column, 2, RESULT),
    ]


def _plan_convolution(eqn: Eqn, rows: int) -> list[FftStage] | None:
    """Return the steps that transform a few rows by convolutions as matrices; None if the rows are too long."""
    (operand,), (result,) = eqn.invars, eqn.outvars
    in_length, out_length = operand.aval.shape[-1], result.aval.shape[-1]
    sides = convolution_matrix_sides(in_length + out_length - 1)
    part = dtypes.to_real_dtype(result.aval.dtype)
    (n,) = eqn.params["fft_lengths"]
    return sides and convolution(n, rows, in_length, out_length, *sides, _is_inverse(eqn), part)


def _dim_by_dim(eqn: Eqn, rows: int) -> list[FftStage] | None:
    """Return a step per dim, the last dim first, or last if the results are real; None if a dim is too long."""
    kind, lengths = eqn.params["fft_type"], eqn.params["fft_lengths"]
    (operand,), (result,) = eqn.invars, eqn.outvars
    to_real = kind == FftType.IRFFT
    shape = (operand if to_real else result).aval.shape[-len(lengths) :]
    kinds: dict[FftType, FftKind] = {
        FftType.FFT: "forward" if dtypes.is_complex(operand.aval.dtype) else "all",
        FftType.IFFT: "inverse",
        FftType.RFFT: "half",
        FftType.IRFFT: "real",
    }
    complex_kind: FftKind = "inverse" if _is_inverse(eqn) else "forward"
    last = kinds[kind], lengths[-1], rows * math.prod(lengths[:-1]), 1
    dims: list[tuple[FftKind, int, int, int]] = [last]
    for d, n in enumerate(lengths[:-1]):
        if n > 1:
            dims.append((complex_kind, n, rows * math.prod(lengths[:d]), math.prod(shape[d + 1 :])))
    if any(n > _FFT_LONG * many * inner for _, n, many, inner in dims):
        return None
    if to_real:
        dims.reverse()
    places = [OPERAND, *[2 if to_real else RESULT] * (len(dims) - 1), RESULT]
    return [
        FftStage(name, n, many, inner, places[i], places[i + 1])
        for i, (name, n, many, inner) in enumerate(dims)
    ]


def convolution(
    n: int,
    rows: int,
    in_count: int,
    out_count: int,
    column: int,
    row: int,
    inverse: bool,
    part: np.dtype,
) -> list[FftStage]:
    """Return the steps that transform a few rows by convolutions: the columns and rows of a matrix, twice."""
    whole = column * row
    before, between, after = _products(
        n, fft.Convolution(in_count, whole, out_count), column, 1 / n if inverse else 1.0, part
    )
    kind: FftKind = "down" if row == column else "forward"
    down: tuple[FftKind, int, int, int] = (kind, column, rows, row)
    cross: tuple[FftKind, int, int, int] = ("cross", row, rows, column)
    return [
        FftStage(
            *down, OPERAND, 2, (in_count, whole, -(-in_count // row), 0, not inverse, False), before
        ),
        FftStage(*cross, 2, 3, (whole, whole, 0, row, False, True), between),
        FftStage(*down, 3, 3, (whole, whole, 0, 0, False, False), between),
        FftStage(
            *cross, 3, RESULT, (whole, out_count, 0, -(-out_count // column), False, inverse), after
        ),
    ]


_products = functools.lru_cache(16)(fft.convolution_factors)


def _are_few(rows: int, n: int) -> bool:
    """Return whether there are so few rows of length `n` that each is faster as a matrix."""
    return 0 < rows <= min(_FFT_FEW_ROWS, n // _FFT_FEW_ROWS_LENGTH)


def is_matrix_convolution(rows: int, n: int, *others: int) -> bool:
    """Return whether rows have a length with large prime factors and are faster as convolutions by matrices."""
    return not others and n > 1 and not fft.can_pass(n, fft.MOST_DIRECT) and _are_few(rows, n)


@functools.cache
def convolution_matrix_sides(n: int) -> tuple[int, int] | None:
    """Return the column and row lengths of a matrix for the convolution of n numbers; None if n is too large.

    Columns and rows together have at most two different radices because LLVM takes milliseconds for each.

    >>> convolution_matrix_sides(2017), convolution_matrix_sides(8197), convolution_matrix_sides(10 ** 6)
    ((32, 64), (96, 96), None)
    """
    if n > FFT_CONVOLVED_TO:
        return None
    candidates = []
    for column, row in itertools.product(_SIDES, repeat=2):
        passes, others = fft.radices(column), fft.radices(row)
        if column * row >= n and len({*passes, *others}) <= 2:
            # in addition to the passes, elements are loaded and stored twice; each time costs three passes
            candidates.append(
                (column * row * (len(passes) + len(others) + 6), abs(column - row), column, row)
            )
    return min(candidates)[2:]


@functools.cache
def _columns(n: int) -> int:
    """Return the length of the columns if a long row is transformed as a matrix, columns first; 0 if it should not be.

    >>> _columns(4096), _columns(512), _columns(3 ** 9)
    (64, 16, 0)
    """
    if not _FFT_MATRIX_FROM <= n <= _FFT_MATRIX_TO:
        return 0
    lanes = FFT_MOST_LANES
    lengths = [
        m
        for m in range(lanes, n // lanes + 1, lanes)
        if n % m == 0 and fft.can_pass(m) and fft.can_pass(n // m, fft.MOST_PRIME)
    ]
    return min(lengths, key=lambda m: abs(math.log(m * m / n)), default=0)


def tables(stage: FftStage, part: np.dtype) -> fft.FftFactors:
    """Return the factors of a step; equal factors are one constant of a program."""
    return _tables(stage.kind, stage.n, stage.inner if fft.is_crossed(stage.kind) else 1, part)


_tables = functools.lru_cache(64)(fft.tables)
