"""gather and the scatters: every rule, against a loop over windows."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.harness.rule_checks import (
    check_all,
    check_batch,
    check_factors,
    check_jvp,
    check_transpose,
    close,
)
from weft._engine.core.trace import typeof
from weft._engine.ops import indexing, windows as windows_of
from weft._engine.ops.indexing import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
    gather,
    gather_p,
    scatter_add_p,
    scatter_max_p,
    scatter_min_p,
    scatter_mul_p,
    scatter_p,
)
from weft._engine.util.config import enable_x64
from weft._engine.util.errors import ShapeError

rng = np.random.default_rng(0)
Mode = GatherScatterMode
MODES = list(Mode)
INSIDE = (Mode.PROMISE_IN_BOUNDS, Mode.UNCHECKED)


@pytest.fixture(autouse=True)
def double_precision():
    with enable_x64(True):
        yield


# operand shape, indices shape, dimension numbers, slice sizes, indexed sizes
CASES = {
    "take rows": ((5, 3), (4, 1), GatherDimensionNumbers((1,), (0,), (0,)), (1, 3)),
    "take columns": ((3, 5), (2, 2, 1), GatherDimensionNumbers((0,), (1,), (1,)), (3, 1)),
    "points": ((4, 5), (6, 2), GatherDimensionNumbers((), (0, 1), (1, 0)), (1, 1)),
    "windows": ((6, 5), (3, 2), GatherDimensionNumbers((1, 2), (), (0, 1)), (2, 3)),
    "part of a dim": ((4, 5), (3, 1), GatherDimensionNumbers((1,), (0,), (0,)), (1, 2)),
    "one window": ((6,), (1,), GatherDimensionNumbers((0,), (), (0,)), (2,)),
    "batching": (
        (3, 5, 2),
        (3, 4, 1),
        GatherDimensionNumbers((2,), (1,), (1,), (0,), (0,)),
        (1, 1, 2),
    ),
    "batching second": (
        (5, 3),
        (4, 3, 1),
        GatherDimensionNumbers((), (0,), (0,), (1,), (1,)),
        (1, 1),
    ),
    "window first": ((5, 3), (4, 1), GatherDimensionNumbers((0,), (0,), (0,)), (1, 3)),
    "no index": ((2, 3), (4, 0), GatherDimensionNumbers((0, 1), (), ()), (2, 3)),
    "nothing to take": ((5, 3), (0, 1), GatherDimensionNumbers((1,), (0,), (0,)), (1, 3)),
}


def make_indices(shape, operand_shape, numbers, slice_sizes, outside: bool):
    entries = []
    for d in numbers.start_index_map:
        high = operand_shape[d] - slice_sizes[d]
        lo, hi = (-3, operand_shape[d] + 3) if outside else (0, high + 1)
        entries.append(rng.integers(lo, hi, shape[:-1]))
    return np.stack(entries, -1).astype(np.int32) if entries else np.zeros(shape, np.int32)


def windows(operand_shape, indices, numbers, slice_sizes, mode):
    """Yield (position among the indices, start per operand dim or None if outside) of every window."""
    for at in np.ndindex(indices.shape[:-1]):
        start = [0] * len(operand_shape)
        for k, d in enumerate(numbers.start_index_map):
            start[d] = int(indices[(*at, k)])
        for d, i in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims):
            start[d] = at[i]
        limits = [n - s for n, s in zip(operand_shape, slice_sizes)]
        if mode is Mode.CLIP:
            start = [min(max(s, 0), limit) for s, limit in zip(start, limits)]
        yield at, (start if all(0 <= s <= limit for s, limit in zip(start, limits)) else None)


def out_index(at, inner, rank, numbers):
    """Return the index in the result of window element `inner` (over offset dims) of the window at
    indices position `at`."""
    index = [None] * rank
    for d, i in zip(numbers.offset_dims, inner):
        index[d] = i
    rest = iter(at)
    return tuple(next(rest) if i is None else i for i in index)


def slow_gather(x, indices, numbers, slice_sizes, mode, fill):
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    slice_dims = [d for d in range(x.ndim) if d not in gone]
    rank = indices.ndim - 1 + len(slice_dims)
    shape = out_index(indices.shape[:-1], [slice_sizes[d] for d in slice_dims], rank, numbers)
    out = np.full(shape, fill, x.dtype)
    for at, start in windows(x.shape, indices, numbers, slice_sizes, mode):
        for inner in np.ndindex(*[slice_sizes[d] for d in slice_dims]):
            if start is not None:
                position = list(start)
                for d, i in zip(slice_dims, inner):
                    position[d] += i
                out[out_index(at, inner, rank, numbers)] = x[tuple(position)]
    return out


def slow_scatter(x, indices, updates, numbers, slice_sizes, mode, combine):
    out = x.copy()
    slice_dims = [
        d
        for d in range(x.ndim)
        if d not in {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    ]
    for at, start in windows(x.shape, indices, numbers, slice_sizes, mode):
        for inner in np.ndindex(*[slice_sizes[d] for d in slice_dims]):
            if start is not None:
                position = list(start)
                for d, i in zip(slice_dims, inner):
                    position[d] += i
                p = tuple(position)
                out[p] = combine(out[p], updates[out_index(at, inner, updates.ndim, numbers)])
    return out


def moved(x, k):
    return x + np.asarray(k - 1, x.dtype)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_gather(case, mode):
    shape, i_shape, numbers, sizes = CASES[case]
    x = rng.standard_normal(shape)
    indices = make_indices(i_shape, shape, numbers, sizes, outside=mode not in INSIDE)
    fill = np.nan if mode is Mode.FILL_OR_DROP else None
    params = {
        "dimension_numbers": numbers,
        "slice_sizes": sizes,
        "mode": mode,
        "fill_value": fill,
        "indices_are_sorted": False,
        "unique_indices": False,
    }
    np.testing.assert_array_equal(
        gather_p.bind(x, indices, **params), slow_gather(x, indices, numbers, sizes, mode, fill)
    )
    zero_filled = dict(params, fill_value=0 if fill is not None else None)
    vary = (lambda x, k: x) if mode in INSIDE else moved
    check_all(gather_p, [x, indices], zero_filled, linear=[(0,)], vary=vary)


SCATTERS = {
    scatter_p: lambda a, b: b,
    scatter_add_p: lambda a, b: a + b,
    scatter_mul_p: lambda a, b: a * b,
    scatter_min_p: np.minimum,
    scatter_max_p: np.maximum,
}


def scatter_case(case, mode):
    shape, i_shape, numbers, sizes = CASES[case]
    x = rng.standard_normal(shape)
    indices = make_indices(i_shape, shape, numbers, sizes, outside=mode not in INSIDE)
    like = slow_gather(x, indices, numbers, sizes, Mode.CLIP, 0)
    params = {
        "dimension_numbers": ScatterDimensionNumbers(*numbers),
        "mode": mode,
        "indices_are_sorted": False,
        "unique_indices": False,
    }
    return x, indices, rng.standard_normal(like.shape), params, numbers, sizes


@pytest.mark.sampled(3)
@pytest.mark.parametrize("primitive", SCATTERS, ids=str)
@pytest.mark.parametrize(("case", "mode"), list(itertools.product(CASES, MODES)))
def test_scatter(primitive, case, mode):
    x, indices, updates, params, numbers, sizes = scatter_case(case, mode)
    want = slow_scatter(x, indices, updates, numbers, sizes, mode, SCATTERS[primitive])
    close(primitive.bind(x, indices, updates, **params), want, 1e-12)
    vary = (lambda x, k: x) if mode in INSIDE else moved
    check_batch(primitive, [x, indices, updates], params, vary=vary, limit=12)
    check_factors(primitive, [x, indices, updates], params)
    check_jvp(
        primitive, [x, indices, updates], params, wrt=[0] if primitive is scatter_mul_p else None
    )
    if primitive is scatter_add_p:
        check_transpose(primitive, [x, indices, updates], params, (0, 2))
        check_transpose(primitive, [np.zeros_like(x), indices, updates], params, (2,))
    if primitive in (scatter_p, scatter_add_p):
        check_transpose(primitive, [x, indices, np.zeros_like(updates)], params, (0,))
    if primitive is scatter_mul_p:
        check_transpose(primitive, [x, indices, updates], params, (0,))


@pytest.mark.parametrize("primitive", [scatter_p, scatter_mul_p], ids=str)
def test_unique_positions_have_simple_derivatives(primitive):
    x, updates = rng.standard_normal((5, 3)), rng.standard_normal((3, 3))
    indices = np.array([[4], [0], [2]])
    params = {
        "dimension_numbers": ScatterDimensionNumbers((1,), (0,), (0,)),
        "mode": Mode.FILL_OR_DROP,
        "indices_are_sorted": False,
        "unique_indices": True,
    }
    check_jvp(primitive, [x, indices, updates], params)
    if primitive is scatter_p:
        check_transpose(primitive, [x, indices, updates], params, (0, 2))


@pytest.mark.parametrize("primitive", [scatter_min_p, scatter_max_p], ids=str)
def test_ties_share_the_derivative(primitive):
    x, updates, indices = np.ones(3), np.ones(3), np.array([[0], [0], [1]])
    params = {
        "dimension_numbers": ScatterDimensionNumbers((), (0,), (0,)),
        "mode": Mode.CLIP,
        "indices_are_sorted": False,
        "unique_indices": False,
    }
    tangents = (np.array([3.0, 4.0, 5.0]), None, np.array([6.0, 9.0, 2.0]))
    _, t = primitive.jvp((x, indices, updates), tangents, **params)
    np.testing.assert_allclose(t, [6.0, 3.0, 5.0])


@pytest.mark.parametrize(
    ("case", "mode"),
    list(itertools.product(["take rows", "windows", "batching second", "points"], MODES)),
)
def test_scatter_position_of_the_lowering(case, mode):
    """The positions in kernels equal the positions in the reference."""
    from weft._engine.ir.build import LoopsBuilder
    from weft._engine.ir.loops_eval import apply

    x, indices, updates, params, numbers, sizes = scatter_case(case, mode)
    starts = dict(windows(x.shape, indices, numbers, sizes, mode))
    b = LoopsBuilder()

    def value(e):
        if hasattr(e, "value"):
            return e.value
        return apply(e.op, [value(a) for a in e.args], e.type)

    for u in np.ndindex(updates.shape):
        read = lambda position, guard=None: b.const(
            int(indices[tuple(value(p) for p in position)]), "i64"
        )
        where, inside = windows_of.scatter_position(
            b, tuple(b.const(i, "i64") for i in u), read, x.shape, updates.shape, **params
        )
        at = tuple(i for d, i in enumerate(u) if d not in numbers.offset_dims)
        ok = inside is None or bool(value(inside))
        assert ok == (starts[at] is not None)
        if ok:
            offsets = dict(
                zip(
                    [
                        d
                        for d in range(x.ndim)
                        if d not in {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
                    ],
                    [u[d] for d in numbers.offset_dims],
                )
            )
            assert [value(p) for p in where] == [
                s + offsets.get(d, 0) for d, s in enumerate(starts[at])
            ]


def test_defaults_of_the_functions():
    x = np.arange(5, dtype=np.float32)
    numbers = GatherDimensionNumbers((0,), (), (0,))
    np.testing.assert_array_equal(gather(x, np.array([4]), numbers, (2,)), [3, 4])
    assert np.isnan(gather(x, np.array([4]), numbers, (2,), mode="fill")).all()
    np.testing.assert_array_equal(
        gather(x.astype(np.int32), np.array([4]), numbers, (2,), mode="fill"),
        np.iinfo(np.int32).min,
    )
    np.testing.assert_array_equal(
        gather(x.astype(np.uint8), np.array([4]), numbers, (2,), mode="fill"), 255
    )
    np.testing.assert_array_equal(gather(x > 7, np.array([4]), numbers, (2,), mode="fill"), True)
    np.testing.assert_array_equal(
        gather(x, np.array([4]), numbers, (2,), mode="fill", fill_value=7), 7
    )
    to = ScatterDimensionNumbers((0,), (), (0,))
    np.testing.assert_array_equal(indexing.scatter(x, np.array([4]), np.ones(2, np.float32), to), x)
    np.testing.assert_array_equal(
        indexing.scatter(x, np.array([4]), np.ones(2, np.float32), to, mode="clip"), [0, 1, 2, 1, 1]
    )
    np.testing.assert_array_equal(
        indexing.scatter_sub(x, np.array([0]), np.ones(2, np.float32), to), [-1, 0, 2, 3, 4]
    )
    with pytest.raises(ValueError, match="not understood"):
        GatherScatterMode.from_any("wrap")


FAR = np.array([[3], [1 << 63], [(1 << 64) - 1], [1 << 40], [0]], np.uint64)
FIRST = GatherDimensionNumbers((), (0,), (0,))


@pytest.mark.parametrize("mode, want", [("clip", [3, 4, 4, 4, 0]), ("fill", [3, 9, 9, 9, 0])])
def test_unsigned_indices_beyond_all_places(mode, want):
    """Large unsigned indices do not wrap around like negative indices."""
    x = np.arange(5)
    params = {
        "dimension_numbers": FIRST,
        "slice_sizes": (1,),
        "mode": Mode.from_any(mode),
        "fill_value": 9,
    }
    np.testing.assert_array_equal(gather_p.reference(x, FAR, **params), want)
    np.testing.assert_array_equal(
        weft.jit(lambda x, i: gather(x, i, FIRST, (1,), mode=mode, fill_value=9))(x, FAR), want
    )


def test_unsigned_places_of_updates_beyond_all():
    to = ScatterDimensionNumbers((), (0,), (0,))
    add = lambda mode: weft.jit(
        lambda x, i: indexing.scatter_add(x, i, np.ones(5, int), to, mode=mode)
    )(np.zeros(5, int), FAR)
    np.testing.assert_array_equal(add("clip"), [1, 0, 0, 1, 3])
    np.testing.assert_array_equal(add("drop"), [1, 0, 0, 1, 0])


def test_half_sums_of_the_reference_round_once():
    x, updates = np.zeros(1, ml_dtypes.bfloat16), np.ones(300, ml_dtypes.bfloat16)
    params = {"dimension_numbers": ScatterDimensionNumbers((), (0,), (0,)), "mode": Mode.CLIP}
    out = scatter_add_p.reference(x, np.zeros((300, 1), np.int32), updates, **params)
    assert out.dtype == ml_dtypes.bfloat16 and float(out[0]) == 300.0


def test_integer_scatters_wrap_and_drop():
    x = np.full(3, 250, np.uint8)
    out = indexing.scatter_add(
        x,
        np.array([[0], [0], [-1], [3]]),
        np.full(4, 5, np.uint8),
        ScatterDimensionNumbers((), (0,), (0,)),
    )
    np.testing.assert_array_equal(out, [4, 250, 250])


@pytest.mark.parametrize(
    ("shape", "i_shape", "numbers", "sizes"),
    [
        ((5, 3), (4, 2), GatherDimensionNumbers((1,), (0,), (0,)), (1, 3)),
        ((5, 3), (4, 1), GatherDimensionNumbers((1,), (0,), (0,)), (2, 3)),
        ((5, 3), (4, 1), GatherDimensionNumbers((1,), (0,), (0,)), (1, 4)),
        ((5, 3), (4, 1), GatherDimensionNumbers((1,), (0,), (2,)), (1, 3)),
        ((5, 3), (4, 1), GatherDimensionNumbers((1,), (0, 0), (0,)), (1, 3)),
        ((5, 3), (4, 1), GatherDimensionNumbers((), (0,), (0,)), (1, 3)),
        ((5, 3), (4, 1), GatherDimensionNumbers((), (1,), (1,), (0,), (0,)), (1, 1)),
        ((5, 3), (4, 1), GatherDimensionNumbers((1,), (0,), (0,)), (1,)),
    ],
)
def test_gather_numbers_that_do_not_fit(shape, i_shape, numbers, sizes):
    params = {
        "dimension_numbers": numbers,
        "slice_sizes": sizes,
        "mode": Mode.CLIP,
        "fill_value": None,
        "indices_are_sorted": False,
        "unique_indices": False,
    }
    with pytest.raises(ShapeError, match="gather"):
        gather_p.abstract(
            [typeof(np.zeros(shape, np.float32)), typeof(np.zeros(i_shape, np.int32))], params
        )


def test_scatter_updates_that_do_not_fit():
    params = {
        "dimension_numbers": ScatterDimensionNumbers((1,), (0,), (0,)),
        "mode": Mode.CLIP,
        "indices_are_sorted": False,
        "unique_indices": False,
    }
    avals = [
        typeof(np.zeros(s, d))
        for s, d in [((5, 3), np.float32), ((4, 1), np.int32), ((3, 3), np.float32)]
    ]
    with pytest.raises(ShapeError, match="scatter-add"):
        scatter_add_p.abstract(avals, params)
    avals[2] = typeof(np.zeros((4, 3), np.int32))
    with pytest.raises(TypeError, match="equal dtypes"):
        scatter_add_p.abstract(avals, params)
