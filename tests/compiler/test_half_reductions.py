"""Reductions of 16-bit floats that accumulate in 32 bits."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.compiler.rewrite.half_reductions import narrow_reductions
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.core.interpret import run_reference
from weft._engine.core.stage import stage
from weft._engine.ir.check import check_jaxpr
from weft._engine.ir.types import ShapedArray

F16 = np.dtype("f2")
X = (np.random.default_rng(0).normal(size=(4, 6)) * 3).astype(F16)


@pytest.mark.parametrize(
    "function, narrow",
    [
        (lambda x: wnp.sum(x), True),
        (lambda x: wnp.prod(x, 1, keepdims=True), True),
        (lambda x: x / wnp.sum(x, 0, keepdims=True), True),
        (lambda x: wnp.sum(x, 1, where=x > 0), True),
        (lambda x: wnp.sum(x, 1, initial=1), False),  # the sum of both is rounded once
        (lambda x: wnp.sum(x.astype(np.float32) * 3, 1).astype(F16), False),
        (lambda x: wnp.sum(x.astype(np.float32), 1).astype(wnp.bfloat16), False),
        (lambda x: (lambda s: [s, s.astype(F16)])(wnp.sum(x.astype(np.float32), 1)), False),
    ],
)
def test_what_is_one(function, narrow):
    before = simplify(stage(lambda x: weft.tree.leaves(function(x)), [ShapedArray((4, 6), F16)]))
    after = narrow_reductions(before)
    check_jaxpr(after)
    reduced = [e.outvars[0].aval.dtype for e in after.eqns if e.primitive.kind == "reduce"]
    assert reduced == [F16 if narrow else np.float32] and (after is before) is not narrow
    for got, want in zip(run_reference(after, X), run_reference(before, X)):
        np.testing.assert_allclose(
            np.asarray(got, np.float32), np.asarray(want, np.float32), rtol=4e-3
        )
