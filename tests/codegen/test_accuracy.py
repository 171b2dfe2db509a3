"""Every vector function in every float type stays within its error bound, and follows IEEE at
zeros, infinities and NaN."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.accuracy import (
    FIRST,
    FUNCTIONS,
    PAGE,
    TYPES,
    WIDE_ENOUGH,
    bound,
    measure,
    native,
)
from weft._engine.ir.loops_eval import DTYPES


@pytest.mark.sampled(3)
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("op", sorted(FUNCTIONS))
def test_error_in_ulp(op, type_):
    if type_ == "f64" and not WIDE_ENOUGH:
        pytest.skip("long double has no more bits than f64 here")
    worst, args = measure(op, type_)
    assert worst <= bound(op, type_), f"{op} {type_}: {worst} ulp at {args}"


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("op", ["sin", "cos", "tanh", "erf", "logistic"])
def test_nothing_goes_beyond_one(op, type_):
    """`sqrt(1 - sin(x)**2)` and `asin(sin(x))` must not be NaN."""
    crests = (np.arange(-9999, 9999) * (np.pi / 2)).astype(DTYPES[type_])
    others = np.random.default_rng(0).normal(0, 9, 99999).astype(DTYPES[type_])
    assert np.abs(native(op, type_, np.concatenate([crests, others]))).max() <= 1


def test_the_page_names_every_function_and_keeps_the_bounds():
    table = PAGE.read_text().partition(FIRST)[2]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `")]
    figures = {row[0].strip(" `"): [float(cell) for cell in row[1:]] for row in rows}
    assert set(FUNCTIONS) <= set(figures)
    for op in FUNCTIONS:
        assert all(figure <= bound(op, type_) + 0.01 for figure, type_ in zip(figures[op], TYPES))
