"""SciPy functions inside programs: in parts, one for each thread, and as a whole where there are
few elements."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import weft
from weft import numpy as wnp
from weft._engine.compiler.kernels import library_calls
from weft._engine.compiler.kernels.library_calls import HOST_PART
from weft.scipy import special

RNG = np.random.default_rng(3)


@pytest.fixture
def parts(monkeypatch):
    """Return the sizes of the parts of each call, with three threads."""
    seen: list[list[int]] = []
    share = library_calls.share_work

    def record(work, arguments):
        seen.append([views[-1].size for views in arguments])
        share(work, arguments)

    monkeypatch.setattr(library_calls, "allowed_threads", lambda: 3)
    monkeypatch.setattr(library_calls, "share_work", record)
    return seen


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (
            (HOST_PART * 2, 5),
            [
                HOST_PART * 10 // 3,
                HOST_PART * 20 // 3 - HOST_PART * 10 // 3,
                HOST_PART * 10 - HOST_PART * 20 // 3,
            ],
        ),
        ((HOST_PART * 2,), [HOST_PART] * 2),
        ((HOST_PART,), [HOST_PART]),
        ((7, 3), None),
        ((0, 4), None),
        ((), None),
    ],
)
def test_elements_are_shared_by_threads(parts, shape, expected):
    a, b, x = (RNG.uniform(0.1, 1, shape).astype("float32") for _ in range(3))
    out = np.asarray(weft.jit(lambda *xs: special.betainc(*xs))(a, b, x))
    np.testing.assert_allclose(
        out, scipy.special.betainc(*(v.astype("float64") for v in (a, b, x))), rtol=1e-6
    )
    assert out.shape == shape
    assert parts == ([] if expected is None else [expected])


def test_operands_that_are_broadcast_or_turned(parts):
    x = RNG.uniform(0.1, 0.9, (64, 80)).astype("float32")
    out = np.asarray(weft.jit(lambda x: special.betainc(2.0, wnp.arange(1.0, 65.0), x.T))(x))
    np.testing.assert_allclose(
        out, scipy.special.betainc(2.0, np.arange(1.0, 65.0), x.T), rtol=2e-6
    )
    assert [sum(sizes) for sizes in parts] == [x.size]


@pytest.mark.parametrize("shape", [(3,), (HOST_PART * 2,)])
def test_half_overflow_is_infinite_without_warning(shape):
    """Checked in worker threads and in the calling thread; warnings are errors in these tests."""
    slope = weft.jit(
        weft.vmap(weft.grad(lambda x: special.betainc(np.float16(0.01), np.float16(0.5), x)))
    )
    assert np.isinf(slope(np.full(shape, 6e-8, np.float16))).all()
