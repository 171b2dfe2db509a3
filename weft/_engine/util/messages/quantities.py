"""Numbers with their nouns: "1 leaf", "2 leaves"."""

from __future__ import annotations

from typing import Any

_IRREGULAR = {
    "axis": "axes",
    "boundary": "boundaries",
    "entry": "entries",
    "index": "indices",
    "leaf": "leaves",
    "mismatch": "mismatches",
    "process": "processes",
}


def quantity(number: Any, noun: str) -> str:
    """Return a number and its noun, in the plural unless the number is 1.

    >>> quantity(1, "leaf"), quantity(2, "leaf"), quantity(0, "virtual device")
    ('1 leaf', '2 leaves', '0 virtual devices')
    """
    if number == 1:
        return f"{number} {noun}"
    *adjectives, last = noun.split()
    return " ".join([f"{number}", *adjectives, _IRREGULAR.get(last, f"{last}s")])
