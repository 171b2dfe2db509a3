"""slice, pad, concatenate, dynamic_slice, dynamic_update_slice: every rule, against NumPy."""

import itertools

import numpy as np
import pytest

import weft
from tests.harness.rule_checks import check_all, check_transpose
from weft._engine.core.stage import stage
from weft._engine.core.trace import typeof
from weft._engine.ops import slicing
from weft._engine.ops.dynamic_slicing import (
    dynamic_index_in_dim,
    dynamic_slice,
    dynamic_slice_in_dim,
    dynamic_slice_p,
    dynamic_update_index_in_dim,
    dynamic_update_slice,
    dynamic_update_slice_in_dim,
    dynamic_update_slice_p,
)
from weft._engine.ops.slicing import concatenate_p, pad_p, slice_p
from weft._engine.util.config import Override, enable_x64
from weft._engine.util.errors import ShapeError

rng = np.random.default_rng(0)
normal = lambda *shape: rng.standard_normal(shape)

SLICES = [
    ((6,), (1,), (5,), None),
    ((6,), (0,), (6,), (2,)),
    ((7, 4), (2, 0), (7, 4), (3, 1)),
    ((4,), (2,), (2,), None),
    ((3, 4, 2), (0, 1, 0), (3, 4, 2), (1, 2, 1)),
    ((), (), (), None),
]
PADS = [
    ((3,), ((1, 2, 0),)),
    ((3,), ((0, 0, 2),)),
    ((4,), ((-1, 3, 1),)),
    ((5,), ((-2, -1, 0),)),
    ((2, 3), ((1, 0, 0), (0, -1, 2))),
    ((0,), ((2, 1, 3),)),
    ((1, 4), ((0, 0, 0), (-5, 7, 1))),
    ((), ()),
    ((3,), ((2, -3, 0),)),
]


@pytest.fixture(autouse=True)
def double_precision():
    with enable_x64(True):
        yield


@pytest.mark.parametrize(("shape", "start", "limit", "strides"), SLICES)
def test_slice(shape, start, limit, strides):
    x = normal(*shape)
    params = {"start_indices": start, "limit_indices": limit, "strides": strides}
    check_all(slice_p, [x], params, linear=[(0,)])
    steps = strides or (1,) * len(shape)
    want = x[tuple(slice(*t) for t in zip(start, limit, steps))]
    np.testing.assert_array_equal(slice_p.bind(x, **params), want)


@pytest.mark.parametrize(("shape", "config"), PADS)
def test_pad(shape, config):
    x, value = normal(*shape), np.asarray(2.5)
    check_all(pad_p, [x, value], {"padding_config": config}, linear=[(0, 1)])
    out = pad_p.bind(x, value, padding_config=config)
    for position in np.ndindex(out.shape):
        source = [(p - lo) for p, (lo, _, _) in zip(position, config)]
        inside = all(
            s % (inner + 1) == 0 and 0 <= s // (inner + 1) < n
            for s, (_, _, inner), n in zip(source, config, shape)
        )
        want = (
            x[tuple(s // (inner + 1) for s, (_, _, inner) in zip(source, config))]
            if inside
            else 2.5
        )
        assert out[position] == want


def test_pad_transposes_to_operand_and_value_separately():
    check_transpose(pad_p, [normal(3), np.asarray(0.0)], {"padding_config": ((1, 2, 1),)}, [0])
    check_transpose(pad_p, [np.zeros(3), np.asarray(1.0)], {"padding_config": ((1, -1, 1),)}, [1])


@pytest.mark.parametrize(
    ("shapes", "dim"),
    [
        ([(2,), (3,)], 0),
        ([(2, 3), (2, 1), (2, 0), (2, 2)], 1),
        ([(1, 2, 2), (3, 2, 2), (2, 2, 2)], 0),
        ([(0, 2), (3, 2)], 0),
        ([(2, 2)], 1),
    ],
)
def test_concatenate(shapes, dim):
    xs = [normal(*s) for s in shapes]
    check_all(concatenate_p, xs, {"dimension": dim}, linear=[tuple(range(len(xs)))])
    np.testing.assert_array_equal(concatenate_p.bind(*xs, dimension=dim), np.concatenate(xs, dim))


def moved_starts(x, k):
    """Return start indices of example k, some of them out of bounds."""
    return x + np.asarray(2 * k - 2, x.dtype)


@pytest.mark.parametrize("starts", [(1, 0), (4, 3), (-3, 9), (0, 1)])
@pytest.mark.parametrize("sizes", [(2, 3), (5, 1), (5, 4), (0, 2)])
def test_dynamic_slice(starts, sizes):
    x = normal(5, 4)
    args = [x, *map(np.int32, starts)]
    check_all(dynamic_slice_p, args, {"slice_sizes": sizes}, linear=[(0,)], vary=moved_starts)
    a, b = (min(max(s, 0), n - size) for s, n, size in zip(starts, x.shape, sizes))
    np.testing.assert_array_equal(
        dynamic_slice_p.bind(*args, slice_sizes=sizes), x[a : a + sizes[0], b : b + sizes[1]]
    )


def test_unsigned_starts_beyond_all_places():
    x, update = np.arange(8), np.full(3, -1)
    with enable_x64(True):
        for start in np.array([2, 1 << 63, (1 << 64) - 1], np.uint64):
            a = min(int(start), 5)
            np.testing.assert_array_equal(
                weft.jit(lambda x, s: dynamic_slice(x, (s,), (3,)))(x, start), x[a : a + 3]
            )
            got = weft.jit(lambda x, s: dynamic_update_slice(x, update, (s,)))(x, start)
            np.testing.assert_array_equal(got, [*x[:a], *update, *x[a + 3 :]])


@pytest.mark.parametrize("starts", [(1, 0), (4, 3), (-3, 9)])
@pytest.mark.parametrize("sizes", [(2, 3), (5, 1), (5, 4), (0, 2)])
def test_dynamic_update_slice(starts, sizes):
    x, update = normal(5, 4), normal(*sizes)
    args = [x, update, *map(np.int64, starts)]
    check_all(dynamic_update_slice_p, args, {}, linear=[(0, 1)], vary=moved_starts)
    a, b = (min(max(s, 0), n - size) for s, n, size in zip(starts, x.shape, sizes))
    want = x.copy()
    want[a : a + sizes[0], b : b + sizes[1]] = update
    np.testing.assert_array_equal(dynamic_update_slice_p.bind(*args), want)


def test_functions_agree_with_numpy():
    x = np.arange(12).reshape(3, 4)
    for lo, hi, step in itertools.product((None, 0, 1, -2), (None, 3, -1, 4), (1, 2)):
        if (lo or 0) % 4 <= (4 if hi in (None, 4) else hi % 4):
            np.testing.assert_array_equal(
                slicing.slice_in_dim(x, lo, hi, step, 1), x[:, lo:hi:step]
            )
    np.testing.assert_array_equal(slicing.index_in_dim(x, -1, 1, keepdims=False), x[:, -1])
    np.testing.assert_array_equal(dynamic_index_in_dim(x, -1, 0), x[-1:])
    np.testing.assert_array_equal(dynamic_slice_in_dim(x, np.int32(2), 3, 1), x[:, 1:4])
    np.testing.assert_array_equal(dynamic_slice(x, np.array([1, 1]), (2, 2)), x[1:3, 1:3])
    np.testing.assert_array_equal(
        dynamic_update_index_in_dim(x, np.zeros(3, x.dtype), 1, 1)[:, 1], 0
    )
    np.testing.assert_array_equal(
        dynamic_update_slice_in_dim(x, np.zeros((1, 4), x.dtype), -1, 0)[2], 0
    )
    for got, want in zip(slicing.split(x, (1, 3), 1), np.split(x, [1], 1)):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(slicing.pad(np.ones(2, np.float32), 7, [(1, 0, 0)]), [7, 1, 1])


def test_negative_traced_starts_count_from_the_end():
    jaxpr = stage(
        lambda x, i: [dynamic_slice(x, (i,), (2,))],
        [typeof(np.arange(5)), typeof(np.int32(0))],
    )
    from weft._engine.core.interpret import run_reference

    np.testing.assert_array_equal(run_reference(jaxpr, np.arange(5), np.int32(-4))[0], [1, 2])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: slicing.slice(x, (0, 0), (3, 5)),
        lambda x: slicing.slice(x, (2, 0), (1, 4)),
        lambda x: slicing.slice(x, (0,), (3,)),
        lambda x: slicing.slice(x, (0, 0), (3, 4), (0, 1)),
        lambda x: slicing.pad(x, 0.0, [(0, 0, -1), (0, 0, 0)]),
        lambda x: slicing.pad(x, 0.0, [(-4, 0, 0), (0, 0, 0)]),
        lambda x: slicing.pad(x, 0.0, [(1, 0, 0)]),
        lambda x: slicing.pad(x, np.zeros(2, np.float32), [(1, 0, 0), (0, 0, 0)]),
        lambda x: slicing.concatenate([x, x[:2]], 1),
        lambda x: slicing.concatenate([x, x.astype(np.int32)], 0),
        lambda x: slicing.split(x, (1, 1), 0),
        lambda x: dynamic_slice(x, (0,), (1, 1)),
        lambda x: dynamic_slice(x, (0, 0), (4, 1)),
        lambda x: dynamic_update_slice(x, np.zeros((4, 1), x.dtype), (0, 0)),
    ],
)
def test_shapes_that_do_not_fit(call):
    with pytest.raises((ShapeError, TypeError), match=r"^(slice|pad|concatenate|split|dynamic_)"):
        stage(lambda: [call(np.zeros((3, 4), np.float32))], [])


def test_negative_starts_that_do_not_count_from_the_end():
    x, y = np.arange(6.0, dtype=np.float32), np.array([8.0, 9.0], np.float32)
    for start in (-2, np.int8(-2)):
        assert np.asarray(dynamic_slice(x, (start,), (2,))).tolist() == [4, 5]
        assert np.asarray(
            dynamic_slice(x, (start,), (2,), allow_negative_indices=False)
        ).tolist() == [0, 1]
        at = lambda s: dynamic_update_slice_in_dim(x, y, s, 0, allow_negative_indices=False)
        assert np.asarray(weft.jit(at)(start)).tolist() == [8, 9, 2, 3, 4, 5]
    two = dynamic_slice(x.reshape(2, 3), (-1, -1), (1, 1), allow_negative_indices=[True, False])
    assert np.asarray(two).tolist() == [[3]]
    assert float(dynamic_index_in_dim(x, -1, keepdims=False, allow_negative_indices=False)) == 0
    with pytest.raises(ValueError, match="one for each of 1 dim"):
        dynamic_slice(x, (0,), (2,), allow_negative_indices=[True, False])


def test_a_known_start_beside_a_mapped_one_of_another_dtype():
    x, starts = np.arange(12.0).reshape(3, 4), np.array([0, 2])
    with enable_x64(True), Override(numpy_dtype_promotion="strict"):
        part = weft.vmap(lambda i: weft.lax.dynamic_slice(x, (i, 1), (1, 2)))(starts)
        put = weft.vmap(lambda i: weft.lax.dynamic_update_slice(x, np.full((1, 1), -1.0), (i, 3)))(
            starts
        )
    assert part.tolist() == [[[1.0, 2.0]], [[9.0, 10.0]]]
    for row, i in zip(put, starts):
        want = x.copy()
        want[i, 3] = -1
        assert row.tolist() == want.tolist()
