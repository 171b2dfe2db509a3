"""Polynomials: sums of stacks, and roots with leading zeros."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft
import weft.numpy as wnp


@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 3), (2, 3)),
        ((2, 3), (1, 3)),
        ((2, 3), (1,)),
        ((1,), (2, 3)),
        ((2, 3), (2, 1)),
        ((2, 1), (3, 2)),
    ],
)
def test_sums_of_stacks_of_polynomials(shapes):
    a, b = (np.arange(1, 1 + math.prod(shape), dtype=np.float32).reshape(shape) for shape in shapes)
    n = max(len(a), len(b))
    full = [
        np.concatenate([np.zeros((n - len(x), *x.shape[1:]), x.dtype), x]) if len(x) < n else x
        for x in (a, b)
    ]
    full = [x if x.ndim == 2 else x[:, None] for x in full]
    np.testing.assert_array_equal(wnp.polyadd(a, b), full[0] + full[1])
    np.testing.assert_array_equal(wnp.polysub(a, b), full[0] - full[1])


def test_stacks_of_polynomials_that_do_not_fit():
    with pytest.raises(ValueError, match="polyadd"):
        wnp.polyadd(np.ones(3), np.ones((2, 3)))


@pytest.mark.parametrize(
    "coefficients", [[0, 1, 2], [0, 0, 1, 2], [1, 2, 0], [0, 1, -3, 2, 0], [0, 0, 0], [2, -6, 4]]
)
@pytest.mark.parametrize("jit", [False, True])
def test_roots_with_leading_zeros_kept(coefficients, jit):
    roots = lambda p: wnp.roots(p, strip_zeros=False)
    got = np.asarray((weft.jit(roots) if jit else roots)(wnp.array(coefficients)))
    want = np.roots(coefficients)
    assert (
        got.shape == (len(coefficients) - 1,)
        and np.isnan(got[len(want) :].real).all()
        and np.isnan(got[len(want) :].imag).all()
    )
    np.testing.assert_allclose(np.sort(got[: len(want)]), np.sort(want.astype(complex)), atol=1e-5)
