"""The accuracy that callers of elementary functions can request."""

from __future__ import annotations

import enum
from typing import Any

from weft._engine.ir.registry import functions
from weft._engine.util.record import record


class AccuracyMode(enum.Enum):
    """The accuracy requested of a function.

    There is one implementation of each function; `docs/accuracy.md` lists its error.
    """

    __module__ = "weft.lax"

    HIGHEST = 1
    DEFAULT = 2


@record
class Tolerance:
    """Permitted error of a function: absolute, relative, or in units in the last place.

    At least one must be given.

    Raises ValueError for negative numbers.

    >>> Tolerance(ulps=4)
    Tolerance(atol=0.0, rtol=0.0, ulps=4)
    """

    __module__ = "weft.lax"

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0

    def __post_init__(self) -> None:
        if self.atol < 0 or self.rtol < 0 or self.ulps < 0:
            raise ValueError(f"Tolerance: atol, rtol and ulps must be non-negative, got {self!r}.")


def check_accuracy(name: str, accuracy: Any) -> None:
    """Raise ValueError for a tolerance that function `name` exceeds, TypeError for other objects."""
    if isinstance(accuracy, AccuracyMode):
        return
    if not isinstance(accuracy, Tolerance):
        raise TypeError(
            f"{name}: accuracy must be a lax.Tolerance or a lax.AccuracyMode, got {accuracy!r}."
        )
    bound = functions[name].ulp[0]
    if not (accuracy.atol or accuracy.rtol or accuracy.ulps):
        raise ValueError(f"{name}: a tolerance must give at least one of atol, rtol and ulps.")
    if accuracy.ulps < bound and accuracy.rtol < bound * 2.0**-23 and not accuracy.atol:
        raise ValueError(
            f"{name}: its error is at most {bound} units in the last place, which {accuracy!r} does not permit."
        )
