"""The vector math library: the list of functions, and equal bits at every position."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from tests.codegen.accuracy import UNARY, native, specials
from tests.codegen.harness import ulps
from weft._engine.codegen.toolchain import target
from weft._engine.ir.loops_eval import DTYPES
from weft._engine.ops import functions


def test_is_finite():
    for type_ in ("f32", "f64", "bf16", "f16"):
        x = specials(type_)
        np.testing.assert_array_equal(
            native("is_finite", type_, x, result="bool"), np.isfinite(x.astype(np.float64))
        )


@pytest.mark.parametrize(
    ("op", "type_"),
    [(op, t) for op in sorted(UNARY) for t in ("f32", "f64") if (op, t) != ("lgamma", "f64")],
)
def test_bits_do_not_depend_on_position(op, type_):
    """An element alone (scalar code) and inside vectors and remainders."""
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.uniform(-3, 3, 30), rng.uniform(0, 1, 30), [1e6, 1e9, -1e7]]).astype(
        DTYPES[type_]
    )
    whole = native(op, type_, x)
    for k in (0, 17, 44, 60, 62):
        alone = native(op, type_, x[k : k + 1].copy())
        assert ulps(alone, whole[k : k + 1])[0] == 0


def test_functions_are_listed_where_they_are_stated():
    """Functions are found by this list without loading the other modules; a wrong entry would load
    them all."""
    for name, module in functions.STATED_BY.items():
        stated = importlib.import_module(f"weft._engine.ops.functions.{module}")
        own = [
            function.numpy
            for function in functions.every()
            if function.formula.__module__ == stated.__name__
        ]
        assert (
            hasattr(stated, name)
            or hasattr(stated, f"{name}_p")
            or any(name in names for names in own)
        ), name
    assert all(
        name in functions.STATED_BY for function in functions.every() for name in function.numpy
    )
    assert target.current().level in ("avx512", "avx2", "neon", "generic")
