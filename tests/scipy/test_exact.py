"""`weft.scipy`'s functions and their slopes against mpmath; a sample by default, all types and more points with `-m exhaustive`."""

from __future__ import annotations

import pytest

from tests.scipy.exact import CASES, HEAD, PAGE, TYPES, shares

SLOW = (
    "special.betainc",
    "stats.betabinom.logpmf",
    "stats.betabinom.pmf",
)  # mpmath takes long
QUICK = [
    pytest.param(name, ("f32", "f64")[k % 2], 4, id=f"{name}-{('f32', 'f64')[k % 2]}")
    for k, name in enumerate(CASES)
    if name not in SLOW
]
DENSE = [
    pytest.param(name, type_, 40, id=f"{name}-{type_}-dense", marks=pytest.mark.exhaustive)
    for name in CASES
    for type_ in TYPES
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name, type_, count", [*QUICK, *DENSE])
def test_errors_are_those_of_the_condition(name, type_, count):
    parts = ("value", *[f"slope by argument {i}" for i in CASES[name].by])
    for part, worst in zip(parts, shares(name, type_, count)):
        assert worst.share <= 1, (
            f"{part}: {worst.share:.3g} of what is allowed at {worst.args}: {worst.got}, exact {worst.exact}"
        )


def test_the_page_names_no_other_functions():
    table = PAGE.read_text().partition(HEAD)[2].partition("\n\n")[0]
    names = {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}
    assert names and names <= set(CASES)
