"""Reductions by segment against loops of NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.harness.processes import run_python
from weft import segment_ops
from weft.sharding import NamedSharding, PartitionSpec as P, make_mesh

RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(16, 3)).astype(np.float32)
IDS = RNG.integers(-2, 7, 16)
KINDS = {
    "sum": (np.add, 0),
    "prod": (np.multiply, 1),
    "max": (np.maximum, -np.inf),
    "min": (np.minimum, np.inf),
}


def by_loop(kind, data, ids, n, identity=None):
    combine, start = KINDS[kind]
    out = np.full((n, *data.shape[ids.ndim :]), start if identity is None else identity, data.dtype)
    for at in np.ndindex(*ids.shape):
        if 0 <= ids[at] < n:
            out[ids[at]] = combine(out[ids[at]], data[at])
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bucket", [None, 5])
def test_values(kind, bucket):
    reduce = getattr(segment_ops, f"segment_{kind}")
    result = reduce(DATA, IDS, 5, bucket_size=bucket)
    np.testing.assert_allclose(result, by_loop(kind, DATA, IDS, 5), rtol=1e-6)
    np.testing.assert_allclose(weft.jit(reduce, static_argnums=2)(DATA, IDS, 5), result, rtol=1e-6)


def test_integers_ranks_and_counts():
    ids = np.array([[0, 2], [2, 0]])
    data = np.arange(8, dtype=np.int32).reshape(2, 2, 2)
    np.testing.assert_array_equal(segment_ops.segment_sum(data, ids), by_loop("sum", data, ids, 3))
    low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    np.testing.assert_array_equal(
        segment_ops.segment_max(data, ids, 4), by_loop("max", data, ids, 4, low)
    )
    np.testing.assert_array_equal(
        segment_ops.segment_min(data, ids, 4), by_loop("min", data, ids, 4, high)
    )
    for kind in KINDS:  # bucket sums and products wrap around like element sums and products
        small = getattr(segment_ops, f"segment_{kind}")(
            np.array([100, 2, 3, 120], np.int8), np.array([0, 0, 0, 0]), 1, bucket_size=2
        )
        whole = getattr(segment_ops, f"segment_{kind}")(
            np.array([100, 2, 3, 120], np.int8), np.array([0, 0, 0, 0]), 1
        )
        assert small.dtype == whole.dtype == np.int8 and small.tolist() == whole.tolist()
    np.testing.assert_array_equal(
        segment_ops.segment_sum(np.ones(3, np.int32), np.array([-4, 1, 9]), 3, mode="clip"),
        [1, 1, 1],
    )
    with pytest.raises(TypeError, match="must be integers"):
        segment_ops.segment_sum(data, ids * 1.0)


def test_gradient_and_sharding():
    weight = wnp.arange(5.0)[:, None]
    slope = weft.grad(lambda x: (segment_ops.segment_sum(x, IDS, 5) * weight).sum())(DATA)
    want = np.where((IDS >= 0) & (IDS < 5), IDS, 0)[:, None] * np.ones(3)
    np.testing.assert_allclose(slope, want)
    rows = NamedSharding(make_mesh((8,), ("i",)), P("i"))
    result = weft.jit(segment_ops.segment_sum, static_argnums=2)(
        weft.device_put(DATA, rows), weft.device_put(IDS, rows), 5
    )
    np.testing.assert_allclose(result, by_loop("sum", DATA, IDS, 5), rtol=1e-5)


def test_they_are_found_where_jax_has_them():
    from weft.ops import segment_sum

    assert segment_sum is segment_ops.segment_sum
    assert weft.ops.segment_max is segment_ops.segment_max
    with pytest.raises(AttributeError, match="segment_mean"):
        weft.ops.segment_mean  # noqa: B018
    program = "from weft.ops import segment_sum as f; print(f.__module__)"
    assert run_python("-c", program).stdout == "weft.segment_ops\n"


def test_operations_are_found_before_anything_else_is_loaded():
    code = (
        "import weft._engine.control; from weft._engine.ir.registry import registry as r, functions as f; "
        "print(r['scan'], r['erf'], f['rem'])"
    )
    assert run_python("-c", code).stdout == "scan erf None\n"
