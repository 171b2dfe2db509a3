"""The tolerance of comparisons: rounding differences between correct evaluations of a program.

In:   the expected results, a `ResultPrecision` for each, and a function that evaluates the program again
      with noise.
Out:  the first `Mismatch`, or None.
How:  results that depend on no floating-point value must be equal. Other results may differ by a
      number of units of the coarsest dtype in their computation, times their largest magnitude, and
      by more for long reductions. If they differ by more, the program runs again with every input
      and rounded value moved by one unit up or down; the difference may be a multiple of the change
      that this noise causes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from weft._engine.core.primitive import (
    CollectiveOp,
    ContractOp,
    ConvolutionOp,
    LibraryOp,
    RaggedOp,
    ReduceOp,
    ScanOp,
    ScatterOp,
    SortOp,
)
from weft._engine.ir.jaxpr import Jaxpr, Literal, Var, subjaxprs
from weft._engine.util.record import record

#: distance between 1 and the next greater number, by dtype
EPSILON = {
    "float64": 2.0**-52,
    "complex128": 2.0**-52,
    "float32": 2.0**-23,
    "complex64": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}
#: allowed difference in units, without an evaluation with noise
UNITS = 200
#: allowed difference in units of narrow types; compiled programs round these less often
COARSE_UNITS = 16
#: allowed units per square root of the length of a reduction
UNITS_PER_ROOT = 8
#: largest multiple of a change by noise that counts as rounding
NOISE_FACTOR = 20
#: number of evaluations with noise
TRIALS = 4
#: number of evaluations with noise before a difference is an error: values at a discontinuity
#: change in few of them
MOST_TRIALS = 16


@record
class ResultPrecision:
    """The precision of one result.

    `epsilon` is the unit of the coarsest dtype in its computation (0 if no dtype rounds), `length`
    is the length of the longest reduction, and `overflows` is True if float16 values may overflow.
    """

    epsilon: float = 0.0
    length: int = 1
    overflows: bool = False

    def join(self, other: ResultPrecision) -> ResultPrecision:
        """Return the coarser precision of both."""
        return ResultPrecision(
            max(self.epsilon, other.epsilon),
            max(self.length, other.length),
            self.overflows or other.overflows,
        )

    def relative(self, coarse_units: int = COARSE_UNITS) -> float:
        """Return the relative difference that is allowed without an evaluation with noise."""
        units = UNITS if self.epsilon < 2.0**-12 else coarse_units
        return self.epsilon * max(units, UNITS_PER_ROOT * math.sqrt(self.length))


@record
class Mismatch:
    """The first differing element: result number, index, both values, the number of such elements,
    and the allowed difference."""

    result: int
    index: tuple[int, ...]
    got: Any
    want: Any
    count: int
    size: int
    is_exact: bool
    allowed: float
    kind: str

    def __str__(self) -> str:
        return (
            f"result {self.result} ({self.kind}, {'exact' if self.is_exact else 'rounded'}) differs in {self.count} elements, "
            f"at {self.index}: {self.got!r}, not {self.want!r}"
        )


def epsilon_of(dtype: Any) -> float:
    """Return the unit of a dtype; 0 for dtypes that do not round.

    >>> epsilon_of(np.dtype("float32")) == 2.0 ** -23, epsilon_of(np.dtype("int8"))
    (True, 0.0)
    """
    name = np.dtype(dtype).name if not hasattr(dtype, "name") else dtype.name
    if name in EPSILON:
        return EPSILON[name]
    return 2.0**-2 if name.startswith("float") and name != "float0" else 0.0


def precisions(
    jaxpr: Jaxpr, given: Sequence[ResultPrecision] | None = None
) -> list[ResultPrecision]:
    """Return the precision of each result of a program; `given` holds the precisions of inputs."""
    precision_of: dict[Var, ResultPrecision] = {
        v: _of_type(v.aval) for v in (*jaxpr.constvars, *jaxpr.invars)
    }
    for var, more in zip(jaxpr.invars, given or ()):
        precision_of[var] = precision_of[var].join(more)
    for eqn in jaxpr.eqns:
        joined = ResultPrecision()
        for atom in eqn.invars:
            joined = joined.join(_of_atom(atom, precision_of))
        joined = joined.join(ResultPrecision(0.0, terms_of(eqn)))
        for _, inner in subjaxprs(eqn.params):
            joined = joined.join(_of_all(inner))
        for var in eqn.outvars:
            precision_of[var] = joined.join(_of_type(var.aval))
    return [_of_atom(atom, precision_of) for atom in jaxpr.outvars]


def _of_atom(atom: Any, known: dict[Var, ResultPrecision]) -> ResultPrecision:
    return _of_type(atom.aval) if type(atom) is Literal else known[atom]


def _of_type(aval: Any) -> ResultPrecision:
    return ResultPrecision(epsilon_of(aval.dtype), 1, getattr(aval.dtype, "name", "") == "float16")


def _of_all(jaxpr: Jaxpr) -> ResultPrecision:
    """Return the coarsest precision anywhere in a program."""
    precision = ResultPrecision()
    for var in (*jaxpr.constvars, *jaxpr.invars):
        precision = precision.join(_of_type(var.aval))
    for eqn in jaxpr.eqns:
        precision = precision.join(ResultPrecision(0.0, terms_of(eqn)))
        for var in eqn.outvars:
            precision = precision.join(_of_type(var.aval))
        for _, inner in subjaxprs(eqn.params):
            precision = precision.join(_of_all(inner))
    return precision


def terms_of(eqn: Any) -> int:
    """Return the number of elements that an equation combines into one."""
    primitive, params = eqn.primitive, eqn.params
    if isinstance(primitive, ContractOp | RaggedOp):
        numbers = params.get("dimension_numbers")
        dims = numbers[0][0] if isinstance(numbers, tuple) else (eqn.invars[0].aval.ndim - 1,)
        return _product(eqn.invars[0].aval.shape, dims)
    if isinstance(primitive, ConvolutionOp):
        rhs, spec = eqn.invars[1].aval, getattr(params.get("dimension_numbers"), "rhs_spec", None)
        return max(1, math.prod(rhs.shape) // max(1, rhs.shape[spec[0]] if spec else 1))
    if isinstance(primitive, ReduceOp):
        return _product(
            eqn.invars[0].aval.shape, params.get("axes", range(eqn.invars[0].aval.ndim))
        )
    if isinstance(primitive, ScanOp | SortOp):
        return max(eqn.invars[0].aval.shape, default=1)
    if isinstance(primitive, ScatterOp):
        return max(1, math.prod(eqn.invars[-1].aval.shape))
    if isinstance(primitive, LibraryOp | CollectiveOp):
        return max((n for a in eqn.invars for n in a.aval.shape), default=1)
    return max(1, params["length"]) if isinstance(params.get("length"), int) else 1


def _product(shape: Sequence[int], dims: Iterable[int]) -> int:
    return max(1, math.prod(shape[d] for d in dims if d < len(shape)))


class ResultTolerance:
    """The allowed differences from the results `want`.

    `repeat(k)` evaluates the program with noise number k. Units are relative to a magnitude of at
    least `min_magnitude`. With `either_zero` the sign of an exact zero is free; with `wild` infinities and
    NaN are interchangeable.
    """

    def __init__(
        self,
        want: Sequence[np.ndarray],
        precision: Sequence[ResultPrecision],
        repeat: Callable[[int], Sequence[np.ndarray]] | None = None,
        *,
        min_magnitude: float = 0.0,
        either_zero: bool = True,
        wild: bool = False,
        coarse_units: int = COARSE_UNITS,
    ) -> None:
        self.want, self.precision, self.repeat, self.coarse_units = (
            want,
            precision,
            repeat,
            coarse_units,
        )
        self.min_magnitude, self.either_zero, self.wild = min_magnitude, either_zero, wild
        self.moved: list[Sequence[np.ndarray]] = []

    def at(self, i: int) -> float:
        """Return the absolute difference allowed for all elements of result `i`; subnormal numbers
        have the unit of the least normal number."""
        finite = np.abs(wide(self.want[i]))
        dtype = self.want[i].dtype
        normal = float(ml_dtypes.finfo(dtype).smallest_normal) if epsilon_of(dtype) else 0.0
        largest = float(np.max(finite, initial=normal, where=np.isfinite(finite)))
        return self.precision[i].relative(self.coarse_units) * max(self.min_magnitude, largest)

    def trials(self, count: int) -> list[Sequence[np.ndarray]]:
        """Return the results of `count` evaluations with noise."""
        while self.repeat is not None and len(self.moved) < count:
            self.moved.append(self.repeat(len(self.moved)))
        return self.moved[:count]

    def widen(self, i: int, count: int = TRIALS) -> tuple[np.ndarray, np.ndarray]:
        """Return the change of each element by noise, and a mask of elements whose infinities or
        NaN change."""
        expected = wide(self.want[i])
        spread, unsure = np.zeros(expected.shape), np.zeros(expected.shape, bool)
        for trial in self.trials(count):
            moved = wide(np.asarray(trial[i]))
            with np.errstate(all="ignore"):
                change = np.abs(moved - expected)
            unsure |= ~same_ends(moved, expected)
            spread = np.maximum(spread, np.where(np.isfinite(change), change, 0))
        if self.precision[i].overflows:
            unsure |= ~np.isfinite(expected)
        return spread, unsure

    def find_changed_elements(self, i: int, wrong: np.ndarray) -> np.ndarray:
        """Return a mask of the elements of a discrete result that change with noise; stop once all
        `wrong` elements have changed."""
        differs = np.zeros(np.shape(self.want[i]), bool)
        if self.precision[i].epsilon == 0:
            return differs
        for count in range(1, MOST_TRIALS + 1):
            trials = self.trials(count)
            if len(trials) == count:
                differs |= np.asarray(trials[-1][i]) != self.want[i]
            if not (wrong & ~differs).any():
                break
        return differs


def difference(
    got: Sequence[np.ndarray],
    want: Sequence[np.ndarray],
    tolerance: ResultTolerance | None,
    exact: Sequence[bool] = (),
) -> Mismatch | None:
    """Return the first element of `got` that differs from `want`; None if none does.

    Results marked `exact`, and all results without a tolerance, must be equal.
    """
    for i, (x, y) in enumerate(zip(got, want, strict=True)):
        is_exact = i < len(exact) and exact[i]
        is_float = epsilon_of(x.dtype) > 0
        if not is_float:
            bad = np.asarray(x != y)
            if bad.any() and not is_exact and tolerance is not None:
                bad &= ~tolerance.find_changed_elements(i, bad)
        elif tolerance is None or is_exact:
            bad = _not_identical(x, y, tolerance is not None and tolerance.either_zero)
        else:
            bad = _too_far(x, y, i, tolerance)
        if bad.any():
            at = tuple(int(k[0]) for k in np.nonzero(np.atleast_1d(bad)))
            return Mismatch(
                i,
                at,
                np.atleast_1d(x)[at],
                np.atleast_1d(y)[at],
                int(bad.sum()),
                bad.size,
                tolerance is None or is_exact or not is_float,
                0.0 if is_exact or tolerance is None else tolerance.at(i),
                f"{x.dtype.name}{list(x.shape)}",
            )
    return None


def _not_identical(x: np.ndarray, y: np.ndarray, either_zero: bool) -> np.ndarray:
    a, b = wide(x), wide(y)
    same_zeros = (np.signbit(np.real(a)) == np.signbit(np.real(b))) | either_zero
    return np.asarray(~((a == b) & same_zeros | np.isnan(a) & np.isnan(b)))


def _too_far(x: np.ndarray, y: np.ndarray, i: int, tolerance: ResultTolerance) -> np.ndarray:
    """Return a mask of the floating-point elements that differ by more than rounding."""
    a, b = wide(x), wide(y)
    allowed = tolerance.at(i)
    with np.errstate(all="ignore"):
        bad = np.asarray(~(same_ends(a, b) & ~(np.abs(a - b) > allowed)))
        for count in (TRIALS, MOST_TRIALS):
            if not bad.any():
                break
            spread, unsure = tolerance.widen(i, count)
            if tolerance.wild:
                unsure |= ~np.isfinite(a) & ~np.isfinite(b)
            most = allowed + NOISE_FACTOR * np.max(spread, initial=0)
            bad &= ~(unsure | (same_ends(a, b) & ~(np.abs(a - b) > most)))
        return bad


def wide(x: np.ndarray) -> np.ndarray:
    """Return the values as float64 or complex128."""
    return x.astype(np.complex128 if np.iscomplexobj(x) else np.float64)


def same_ends(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return a mask of the elements that are both finite, both NaN, or the same infinity."""
    with np.errstate(all="ignore"):
        return (np.isfinite(x) & np.isfinite(y)) | (np.isnan(x) & np.isnan(y)) | (x == y)
