"""Plans of FFTs: which are native, and the order in which dims are transformed.

In:   an `fft` equation.
Out:  `steps_of(eqn)`: native steps with their kind, sizes and addresses, or None where SciPy's FFT is faster.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from weft.ir import fft
from weft.ir.jaxpr import Eqn
from weft.util.machine_model import MODEL
from weft.util.primes import prime_factors
from weft.util.record import record


@record
class Stage:
    """One native step: from the operand or from memory that it has, to that memory or to the result."""
    kind: str
    n: int
    rows: int
    inner: int
    reads_operand: bool
    writes_result: bool


def steps_of(eqn: Eqn) -> list[Stage] | None:
    """The native steps of a transform, in order, or None; of no rows there are none."""
    kind, lengths = eqn.params["fft_type"].name, eqn.params["fft_lengths"]
    (operand,), (result,) = eqn.invars, eqn.outvars
    lead = math.prod(result.aval.shape[:result.aval.ndim - len(lengths)])
    complex_row = kind in ("FFT", "IFFT") and operand.aval.dtype.kind == "c" and len(lengths) == 1
    if complex_row and _are_few(lead, lengths[0]) and (column := _columns(lengths[0])):
        row, un = lengths[0] // column, "un" * (kind == "IFFT")
        first = f"{un}down" if row == column else "inverse" if un else "forward"
        return [Stage(first, column, lead, row, True, False), Stage(f"{un}cross", row, lead, column, False, True)]
    if lengths[-1] == 1 or is_matrix_convolution(lead, *lengths) or any(fft.longest(n) > MODEL.fft_longest for n in lengths):
        return None
    shape = (operand if kind == "IRFFT" else result).aval.shape[-len(lengths):]
    last = {"FFT": "forward" if operand.aval.dtype.kind == "c" else "all", "IFFT": "inverse", "RFFT": "half", "IRFFT": "real"}[kind]
    rest = "inverse" if kind in ("IFFT", "IRFFT") else "forward"
    dims = [(last, lengths[-1], lead * math.prod(lengths[:-1]), 1)]
    dims += [(rest, n, lead * math.prod(lengths[:d]), math.prod(shape[d + 1:])) for d, n in enumerate(lengths[:-1]) if n > 1]
    if any(n > MODEL.fft_long * rows * inner for _, n, rows, inner in dims):
        return None
    if kind == "IRFFT":
        dims.reverse()
    return [Stage(*sizes, place == 0, kind != "IRFFT" or place == len(dims) - 1) for place, sizes in enumerate(dims)]


def _are_few(rows: int, n: int) -> bool:
    """Whether rows of n are so few that each is better processed as a matrix."""
    return 0 < rows <= min(MODEL.fft_few_rows, n // MODEL.fft_few_rows_length)


def is_matrix_convolution(rows: int, n: int, *others: int) -> bool:
    """Whether rows have a length without passes and are better convolved as matrices."""
    return not others and n > 1 and not fft.can_pass(n) and _are_few(rows, n)


def matrix_length(n: int) -> int | None:
    """A length from n on of which a few complex rows are transformed as matrices; None where there is none nearby.

    >>> matrix_length(2017), matrix_length(10 ** 6)
    (2048, None)
    """
    square = MODEL.fft_most_lanes**2
    m = _smooth(-(-n // square)) * square
    return m if _columns(m) else None


def _smooth(n: int) -> int:
    """The next number from n on that has no prime factor above 7."""
    while prime_factors(n)[-1:] > [7]:
        n += 1
    return n


@functools.cache
def _columns(n: int) -> int:
    """How long the columns are if a long row is processed as a matrix, columns first; 0 where it should not be.

    >>> _columns(4096), _columns(512), _columns(3 ** 9)
    (64, 16, 0)
    """
    if not MODEL.fft_matrix_from <= n <= MODEL.fft_matrix_to:
        return 0
    lanes = MODEL.fft_most_lanes
    found = [m for m in range(lanes, n // lanes + 1, lanes) if n % m == 0 and fft.can_pass(m) and fft.can_pass(n // m)]
    return min(found, key=lambda m: abs(math.log(m * m / n)), default=0)


def tables(stage: Stage, part: np.dtype) -> np.ndarray:
    """The factors of a step; equal ones are one constant of a program."""
    return _tables(stage.kind, stage.n, stage.inner if stage.kind in fft.CROSSED else 1, part)


_tables = functools.lru_cache(64)(fft.tables)
