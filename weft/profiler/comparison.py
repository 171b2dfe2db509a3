"""The comparison of two profiles: the seconds of each step in both.

In:   two profiles, of two runs of a program or of two versions of it.
Out:  a `ProfileComparison`, which prints as a table.
How:  steps are matched by program, kind, name and line; equal ones count together. Times are per call of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._engine.util.errors import align
from weft._engine.util.record import record
from weft.profiler.profile import Profile

#: rows of a printed comparison
MOST_ROWS = 30


@record
class StepDifference:
    """A step with its seconds per call in both profiles; None if a profile does not have it."""

    program: str
    kind: str
    name: str
    line: str
    before: float | None
    after: float | None

    @property
    def change(self) -> float:
        """The seconds per call that the second profile has in addition."""
        return (self.after or 0.0) - (self.before or 0.0)


@record
class ProfileComparison:
    """The differences of two profiles, the largest first."""

    steps: tuple[StepDifference, ...]

    def __str__(self) -> str:
        before = sum(step.before or 0.0 for step in self.steps)
        after = sum(step.after or 0.0 for step in self.steps)
        rows: list[Sequence[Any] | str] = [("before", "after", "change", "kind", "step", "line")]
        for step in self.steps[:MOST_ROWS]:
            times = _spell(step.before), _spell(step.after), _spell(step.change, "+")
            rows.append((*times, step.kind, step.name, step.line))
        hidden = len(self.steps) - MOST_ROWS
        more = [f"  and {hidden} more"] if hidden > 0 else []
        head = f"per call: {_spell(before)} before, {_spell(after)} after"
        return "\n".join([head, *align(rows, indent="  "), *more])


def _spell(seconds: float | None, sign: str = "") -> str:
    return "-" if seconds is None else f"{1e3 * seconds:{sign}.3f} ms"


def compare(before: Profile, after: Profile) -> ProfileComparison:
    """Compare two profiles, of `weft.profiler.record` or `Profile.load`; the result prints as a table.

    >>> import weft, weft.numpy as wnp
    >>> with weft.profiler.record() as profile:
    ...     _ = weft.jit(wnp.sin)(wnp.ones(8))
    >>> [step.change for step in compare(profile, profile).steps if step.change]
    []
    """
    first, second = _seconds_by_step(before), _seconds_by_step(after)
    steps = [
        StepDifference(*key, first.get(key), second.get(key))
        for key in dict.fromkeys([*first, *second])
    ]
    return ProfileComparison(tuple(sorted(steps, key=lambda step: -abs(step.change))))


_Key = tuple[str, str, str, str]


def _seconds_by_step(profile: Profile) -> dict[_Key, float]:
    """Return the seconds per call of steps by program, kind, name and line."""
    calls: dict[str, int] = {}
    for call in profile.calls:
        name = profile.programs[call.program].name
        calls[name] = calls.get(name, 0) + 1
    seconds: dict[_Key, float] = {}
    for step in profile.steps():
        facts = step.facts
        key = step.program.name, facts.kind, facts.name, facts.line
        seconds[key] = seconds.get(key, 0.0) + step.seconds / calls[step.program.name]
    return seconds
