"""The checks of compiled programs that the setting `check` selects.

In:   the text of the setting: names separated by commas, as `types,values:10%`.
Out:  a `Checks` record with one field per check; `canonical` text, which is equal for equal selections.
"""

from __future__ import annotations

import functools
from typing import Any

from weft._engine.util.record import record

#: every check and its effect, in the order of `str(checks)`
CHOICES = {
    "types": "check the types of the program after every stage of compilation",
    "maps": "compare what every kernel reads and writes with the equations that it implements",
    "memory": "guard the buffers of programs, and name the kernel that writes outside of its own",
    "stages": "run the program after every stage on its arguments, and compare each stage with the last",
    "values": "compare compiled calls with op-by-op execution; values:10% compares every tenth call",
}


@record
class Checks:
    """The selected checks. `values` is the fraction of calls to compare, from 0 to 1."""

    types: bool = False
    maps: bool = False
    memory: bool = False
    stages: bool = False
    values: float = 0.0

    @property
    def of_calls(self) -> bool:
        """True if a check acts on calls of programs."""
        return self.stages or self.memory or self.values > 0

    def __str__(self) -> str:
        names = [name for name in CHOICES if name != "values" and getattr(self, name)]
        if self.values:
            names.append("values" if self.values == 1 else f"values:{100 * self.values:.12g}%")
        return ",".join(names)


@functools.lru_cache(maxsize=256)
def parse_checks(text: str) -> Checks:
    """Return the checks named in `text`. Raise ValueError for an unknown name or an invalid percentage.

    >>> parse_checks("types,values:10%")
    Checks(types=True, maps=False, memory=False, stages=False, values=0.1)
    """
    selected: dict[str, Any] = {}
    for part in filter(None, [part.strip() for part in text.lower().split(",")]):
        name, colon, share = part.partition(":")
        if name not in CHOICES or (colon and name != "values"):
            raise _bad_check(text, f"{part!r} is not a check")
        selected[name] = _share_of(share, text) if colon else 1.0 if name == "values" else True
    return Checks(**selected)


def canonical(value: str | Checks | None) -> str:
    """Return the text of a selection, which is equal for equal selections. Raise ValueError for an unknown check.

    >>> canonical("values:10.0%, types"), canonical(None)
    ('types,values:10%', '')
    """
    if value is not None and not isinstance(value, (str, Checks)):
        raise _bad_check(value, f"{type(value).__name__} is not a string")
    return str(parse_checks(str(value or "")))


def with_types(text: str, types: bool) -> str:
    """Return the text of a selection with the check of types added or removed.

    >>> with_types("values", True), with_types("types,values", False)
    ('types,values', 'values')
    """
    parsed = parse_checks(text)
    return str(Checks(types, parsed.maps, parsed.memory, parsed.stages, parsed.values))


def _share_of(share: str, text: str) -> float:
    try:
        number = float(share.removesuffix("%")) / 100
    except ValueError:
        number = -1.0
    if not share.endswith("%") or not 0 < number <= 1:
        raise _bad_check(
            text, f"the share of values is above 0% and at most 100%, as values:10%, not {share!r}"
        )
    return number


def _bad_check(value: object, problem: str) -> ValueError:
    return ValueError(
        f"config.check is {value!r}: {problem}.\n"
        "  It is a list, separated by commas, of types, maps, memory, stages, values and values:N%; empty for none."
    )
