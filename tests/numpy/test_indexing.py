"""Indexing: `x[index]` and `x.at[index]` against NumPy over random indices; bounds; errors."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import weft
import weft.numpy as wnp
from weft._engine.control.ref_index import ds
from weft._engine.util.config import Override

PROFILE = settings(max_examples=120, derandomize=True, deadline=None, database=None)


@st.composite
def slices(draw, n: int):
    bound = st.none() | st.integers(-n - 2, n + 2)
    return slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, -1, -2])))


@st.composite
def indices(draw):
    """Draw (shape, index, whether positions are distinct): basic entries, integer arrays that
    broadcast together, masks, None, Ellipsis."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    group = tuple(draw(st.lists(st.integers(1, 3), min_size=0, max_size=2)))
    entries: list = []
    d = 0
    while d < len(shape) and draw(st.integers(0, 9)):
        n = shape[d]
        kind = draw(st.sampled_from(["int", "slice", "slice", "array", "mask", "none"]))
        if kind == "none":
            entries.append(None)
            continue
        if kind == "int":
            entries.append(draw(st.integers(-n, n - 1)))
        elif kind == "slice":
            entries.append(draw(slices(n)))
        elif kind == "array":
            own = tuple(k if draw(st.booleans()) else 1 for k in group)
            size = int(np.prod(own))
            entries.append(
                np.array(
                    draw(st.lists(st.integers(-n, n - 1), min_size=size, max_size=size)), np.int32
                ).reshape(own)
            )
        elif any(isinstance(e, np.ndarray) for e in entries):
            continue
        else:
            entries.append(np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n))))
            group = (int(entries[-1].sum()),)
        d += 1
    if draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), Ellipsis)
    return shape, tuple(entries)


def data(shape) -> np.ndarray:
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


def on_dims(shape, index):
    """Return `index` with its entries after Ellipsis checked against their dims; None if NumPy
    refuses it."""
    try:
        return data(shape)[index]
    except IndexError:
        return None


@PROFILE
@given(indices())
def test_reading(case):
    shape, index = case
    want = on_dims(shape, index)
    if want is None:
        return
    np.testing.assert_array_equal(np.asarray(wnp.asarray(data(shape))[index]), want)


@PROFILE
@given(indices(), st.sampled_from(["set", "add", "multiply", "min", "max"]))
def test_writing(case, method):
    shape, index = case
    want = on_dims(shape, index)
    if want is None:
        return
    x = data(shape)
    values = (np.arange(want.size, dtype=np.float32) * 3 - 5).reshape(want.shape)
    if method == "set":
        places = np.arange(x.size).reshape(shape)[index]
        if len(np.unique(places)) < places.size:
            return  # the order of several updates of one element is unspecified
    result = np.asarray(getattr(wnp.asarray(x).at[index], method)(values))
    if method == "set":
        x[index] = values
    else:
        {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}[method].at(
            x, index, values
        )
    np.testing.assert_array_equal(result, x)


@PROFILE
@given(indices())
def test_reading_is_linear(case):
    """The gradient of a read is a write: <f(x), v> == <x, transpose(v)>."""
    shape, index = case
    want = on_dims(shape, index)
    if want is None:
        return
    v = np.arange(want.size, dtype=np.float32).reshape(want.shape)
    gradient = weft.grad(lambda x: wnp.sum(x[index] * v))(data(shape))
    x = np.zeros(shape, np.float32)
    np.add.at(x, index, v)
    np.testing.assert_array_equal(np.asarray(gradient), x)


X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    "index, want",
    [
        (wnp.array(9), X[2]),
        (wnp.array(-9), X[0]),
        (wnp.array([0, 7, -1]), X[[0, 2, 2]]),
        (7, X[2]),
        (-7, X[0]),
        ((slice(None), wnp.array([1, 9])), X[:, [1, 3]]),
    ],
)
def test_reads_out_of_bounds_are_clamped(index, want):
    np.testing.assert_array_equal(np.asarray(wnp.asarray(X)[index]), want)


@pytest.mark.parametrize(
    "index", [7, -7, np.array([5, 9]), (0, 8), (np.array([3]), slice(1, 3))], ids=str
)
def test_writes_out_of_bounds_are_dropped(index):
    np.testing.assert_array_equal(np.asarray(wnp.asarray(X).at[index].set(-1)), X)
    np.testing.assert_array_equal(np.asarray(wnp.asarray(X).at[index].add(5)), X)


def test_modes():
    x = wnp.asarray(X)
    filled = np.asarray(x.at[wnp.array([1, 7])].get(mode="fill"))
    np.testing.assert_array_equal(filled[0], X[1])
    assert np.isnan(filled[1]).all()
    assert (np.asarray(x.at[7].get(mode="fill", fill_value=3.0)) == 3).all()
    np.testing.assert_array_equal(np.asarray(x.at[wnp.array(7)].set(0.0, mode="clip"))[2], 0)


@pytest.mark.filterwarnings("ignore:.*incompatible types:FutureWarning")
def test_updates_of_another_type_are_combined_in_the_common_one():
    """The result has the dtype of the array; NumPy's ufuncs also compute in the common dtype."""
    x, at = wnp.array([-3, 4, 5], np.int32), wnp.array([0, 2, 0])
    np.testing.assert_array_equal(x.at[at].add(1.5), [0, 4, 6])
    np.testing.assert_array_equal(x.at[at].multiply(np.array([2.5, 3, 1], np.float32)), [-7, 4, 15])
    np.testing.assert_array_equal(x.at[at].subtract(True), [-5, 4, 4])
    np.testing.assert_array_equal(x.at[at].subtract(np.uint8(3)), [-9, 4, 2])
    assert x.at[at].add(1.5).dtype == np.int32
    many = wnp.zeros(1, "bfloat16").at[wnp.zeros(1000, int)].add(wnp.full(1000, 0.3, np.float32))
    assert abs(float(many[0]) - 300) < 2


def test_division_and_powers_at_positions():
    x, at = wnp.array([3, 4, 5], np.int32), wnp.array([0, 2, 0])
    half = x.at[at].divide(2)
    assert half.dtype == np.float32
    np.testing.assert_allclose(half, [0.75, 4, 2.5])
    np.testing.assert_array_equal(x.at[at].power(2), [81, 4, 25])
    np.testing.assert_allclose(wnp.array([-3.0, 4, 5]).at[0].power(3.0), [-27, 4, 5], rtol=1e-6)


@pytest.mark.parametrize("jit", [weft.jit, lambda f: f])
def test_functions_are_applied_as_often_as_a_position_is_named(jit):
    x, at = np.arange(5), np.array([[0, -1, 0], [4, 0, 9]])
    want = x.copy()
    np.add.at(want, [0, 4, 0, 4, 0], 2)
    np.testing.assert_array_equal(
        jit(lambda x, at: x.at[at].apply(lambda v: v + 2))(wnp.array(x), wnp.array(at)), want
    )
    np.testing.assert_array_equal(
        jit(lambda x: x.at[1:3].apply(lambda v: v + 2))(wnp.array(x)), [0, 3, 4, 3, 4]
    )


def test_scalar_bools_make_a_dim():
    x = wnp.asarray(X)
    assert x[True].shape == (1, 3, 4) and x[False].shape == (0, 3, 4)
    assert x[..., True].shape == (3, 4, 1)
    np.testing.assert_array_equal(np.asarray(x.at[True].add(1)), X + 1)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    "index",
    [
        (np.array([2]), slice(0, 0)),
        (slice(None), np.zeros((0,), np.int32)),
        (None, np.array([[0], [5]])),
    ],
    ids=str,
)
def test_nothing_is_read_from_nothing_or_written_there(index, jit):
    x = wnp.zeros((0, 3))
    read, write = lambda x: x[index], lambda x: x.at[index].add(1.0)
    if jit:
        read, write = weft.jit(read), weft.jit(write)
    if index[0] is not None:
        assert read(x).size == 0
    assert write(x).shape == (0, 3)


@pytest.mark.parametrize("index", [0, np.array(0), (np.array(0), slice(0, 0))], ids=str)
def test_a_position_in_nothing_is_out_of_bounds(index):
    x = wnp.zeros((0, 3))
    for use in (lambda x: x[index], weft.jit(lambda x: x[index]), lambda x: x.at[index].set(1.0)):
        with pytest.raises(IndexError, match="out of bounds for axis 0 with size 0"):
            use(x)
    with pytest.raises(IndexError, match="out of bounds for axis 0 with size 0"):
        weft.jit(lambda x, i: x[i])(x, 0)


def test_traced_indices():
    x = wnp.asarray(X)
    np.testing.assert_array_equal(weft.jit(lambda i: x[i])(2), X[2])
    np.testing.assert_array_equal(weft.jit(lambda i, j: x[i, j])(1, -1), X[1, -1])
    np.testing.assert_array_equal(
        weft.jit(lambda i: x.at[i].add(1.0))(np.array([0, 0, 2])), X + np.array([[2], [0], [1]])
    )
    np.testing.assert_array_equal(weft.vmap(lambda i: x[i, 1:3])(np.array([2, 0])), X[[2, 0], 1:3])
    np.testing.assert_array_equal(
        weft.vmap(lambda row, i: row.at[i].set(0.0))(x, np.array([0, 1, 2])),
        X * (1 - np.eye(3, 4, dtype=np.float32)),
    )


def test_static_slices_need_no_gather():
    text = str(weft.make_jaxpr(lambda x: (x[1:, ::2], x[0], x[:, None], x[..., -1], x[::-1]))(X))
    assert "gather" not in text and "scatter" not in text


@pytest.mark.parametrize("i", [-97, -98, -100, -194, -195, -96, 96, 97, 200])
def test_positions_out_of_bounds(i):
    """Indices wrap from the end once and are then clamped for reads, with zero derivatives; static
    indices are clamped."""
    n = 97
    x, at = wnp.arange(1.0, n + 1), np.array([i])
    near, inside = x[max(0, min(i + n if i < 0 else i, n - 1))], -n <= i < n
    read = lambda x, i: x[i]
    for index in (i, wnp.int32(i)):
        assert x[index] == near and weft.jit(read)(x, index) == near
    assert (
        weft.jit(lambda x: x[i])(x) == x[at][0] == x.at[at].get(mode="promise_in_bounds")[0] == near
    )
    slope = lambda mode: np.flatnonzero(
        weft.grad(lambda x: x.at[at].get(mode=mode).sum())(x)
    ).tolist()
    positions = [i % n] if inside else []
    assert slope(None) == slope("promise_in_bounds") == slope("fill") == positions and slope(
        "clip"
    ) == [int(near) - 1]
    assert (
        np.flatnonzero(weft.jit(weft.grad(lambda x, i: x[i].sum()))(x, wnp.asarray(at))).tolist()
        == positions
    )
    for mode in (None, "promise_in_bounds"):
        assert np.flatnonzero(x.at[at].set(-1.0, mode=mode) - x).tolist() == positions


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, np.complex64, np.float16])
def test_positions_found_by_comparison(dtype, axis):
    """With `mode="one_hot"`, values equal indexing's, even with infinite neighbors, and are 0 out
    of bounds."""
    x = (np.arange(12).reshape(3, 4) % 7).astype(dtype)
    at = (
        np.array([[0, -1], [2, 1], [-3, 0]])
        if axis == 1
        else np.array([[0, -1, 2, 1]])
        if axis == 0
        else np.array([5, -1, 11])
    )
    find = lambda x, i, **options: wnp.take_along_axis(x, i, axis, mode="one_hot", **options)
    result = find(x, at)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, np.take_along_axis(x, at, axis))
    np.testing.assert_array_equal(weft.jit(find)(x, at), result)
    assert (
        not np.asarray(find(x, np.full_like(at, 40))).any()
        and not np.asarray(find(x, np.full_like(at, -1), wrap_negative_indices=False)).any()
    )
    if dtype == np.float32:
        slope = weft.grad(
            lambda x: (find(x, at) * np.arange(1, at.size + 1).reshape(at.shape)).sum()
        )
        np.testing.assert_array_equal(
            slope(x),
            weft.grad(
                lambda x: (
                    wnp.take_along_axis(x, at, axis) * np.arange(1, at.size + 1).reshape(at.shape)
                ).sum()
            )(x),
        )


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("mode", [None, "one_hot", "clip"])
@pytest.mark.parametrize("wraps", [None, False])
def test_dims_longer_than_the_dtype_of_positions_counts(dtype, mode, wraps):
    x, at = wnp.arange(300), np.array([1, 100], dtype)
    assert (
        wnp.take_along_axis(x, at, 0, mode=mode, wrap_negative_indices=wraps).tolist()
        == at.tolist()
    )


def test_comparison_is_exact_beside_infinities():
    result = wnp.take_along_axis(
        np.array([1, np.inf, np.nan, 4], np.float32), np.array([0, 3, -1, 1]), 0, mode="one_hot"
    )
    assert result.tolist() == [1, 4, 4, np.inf]


@pytest.mark.parametrize(
    "values, dtype",
    [
        (1.5, np.int32),
        (wnp.int32(1), np.int8),
        (np.float32(1), wnp.bfloat16),
        (1, np.bool_),
        (wnp.complex64(1 + 2j), np.float32),
        (2j, np.float32),
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["set", "add", "max", "multiply"])
def test_values_that_the_array_may_not_hold_warn(method, values, dtype):
    x = wnp.zeros(3, dtype)
    if method == "max" and np.iscomplexobj(values):
        return
    for update in (
        lambda x: getattr(x.at[0], method)(values),
        weft.jit(lambda x: getattr(x.at[0], method)(values)),
    ):
        with pytest.warns(FutureWarning, match="incompatible types") as warned:
            assert update(x).dtype == dtype
        assert [w.filename for w in warned if w.category is FutureWarning] == [__file__]


def test_values_that_the_array_holds_do_not_warn():
    for values, dtype in [
        (1, np.int8),
        (1.5, np.float16),
        (np.int16(1), np.int32),
        (np.float64(1), np.float32),
        (True, np.uint8),
    ]:
        assert wnp.zeros(3, dtype).at[0].set(values).dtype == dtype


def test_put_along_axis_broadcasts():
    for index, values, axis in [
        ([[1]], 9.0, 1),
        ([[1, 0]], [5.0, 6.0], 1),
        ([[1, 0], [2, 3], [0, 1]], [[5.0], [6.0], [7.0]], 1),
        ([[-1]], 9.0, 0),
        ([[2, 0, 1, 2]], 3.0, 0),
    ]:
        want = X.copy()
        np.put_along_axis(want, np.array(index), np.array(values, np.float32), axis)
        np.testing.assert_array_equal(
            wnp.put_along_axis(
                X, np.array(index), np.array(values, np.float32), axis, inplace=False
            ),
            want,
        )
    with pytest.raises(ValueError, match="number of dims"):
        wnp.put_along_axis(X, np.array([1]), 9.0, 1, inplace=False)


@pytest.mark.parametrize(
    "index, error, says",
    [
        ((0, 1, 2), IndexError, "Too many indices"),
        ([0, 1], TypeError, "non-tuple sequence"),
        (1.0, TypeError, "integer or boolean"),
        ("a", TypeError, "integer or boolean"),
        (np.array([1.0]), TypeError, "integer"),
        ((Ellipsis, Ellipsis), IndexError, "ellipsis"),
        (np.array([True, False]), IndexError, "boolean index"),
    ],
)
def test_errors(index, error, says):
    with pytest.raises(error, match=says):
        wnp.asarray(X)[index]


def test_masks_must_be_concrete():
    with pytest.raises(IndexError, match="concrete"):
        weft.jit(lambda x, m: x[m])(X, X > 3)


def test_arrays_are_immutable():
    with pytest.raises(TypeError, match="at\\[index\\]"):
        wnp.asarray(X)[0] = 1


def test_a_strided_slice_lists_no_positions():
    x = weft.ShapeDtypeStruct((1 << 24, 3), np.float32)
    tracemalloc.start()
    shape = weft.eval_shape(lambda x: (x[::2], x[-5::-3, 1]), x)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [s.shape for s in shape] == [(1 << 23, 3), (5592404,)] and most < 1 << 20


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(
    ("start", "size", "stride"),
    [(2, 3, None), (0, 10, None), (9, 2, None), (-2, 2, None), (1, 3, 2), (4, 0, None)],
)
def test_runs_that_begin_at_a_traced_place(start, size, stride, traced):
    """A read at a traced start is clamped; a write that is not inside is dropped."""
    x = np.arange(20, dtype=np.float32).reshape(10, 2)
    cut = lambda start: (ds(start, size, stride),)
    read = lambda start: (
        wnp.asarray(x)[cut(start)],
        wnp.asarray(x)[..., cut(start)[0], 1:],
        wnp.asarray(x).at[cut(start)].get(),
    )
    write = lambda start: (
        wnp.asarray(x).at[cut(start)].set(-1),
        wnp.asarray(x).at[cut(start)[0], 1].add(5),
    )
    run = (lambda f: weft.jit(f)(start)) if traced else (lambda f: f(start))
    step, first = stride or 1, start + 10 * (start < 0)
    reach = max((size - 1) * step + 1, 0)
    inside = min(first, 10 - reach)
    rows = slice(inside, inside + reach, step)
    for got, want in zip(run(read), (x[rows], x[rows, 1:], x[rows])):
        np.testing.assert_array_equal(got, want)
    replaced, added = x.copy(), x.copy()
    if first == inside:
        replaced[rows], added[rows, 1] = -1, x[rows, 1] + 5
    for got, want in zip(run(write), (replaced, added)):
        np.testing.assert_array_equal(got, want)


def test_runs_beside_other_indices():
    x = wnp.arange(24.0).reshape(2, 3, 4)
    i = wnp.int32(1)
    np.testing.assert_array_equal(x[1, ds(i, 2), None, ds(0, 3)], np.asarray(x)[1, 1:3, None, 0:3])
    np.testing.assert_array_equal(x[wnp.array([1, 0, 1]), ds(i, 2)], np.asarray(x)[[1, 0, 1], 1:3])
    np.testing.assert_array_equal(
        weft.grad(lambda x, i: x[0, ds(i, 2)].sum())(x, i)[0].sum(-1), [0, 4, 4]
    )
    np.testing.assert_array_equal(
        weft.vmap(lambda x, i: x[ds(i, 2)])(x, wnp.arange(2)), np.stack([x[0, :2], x[1, 1:]])
    )
    with pytest.raises(ValueError, match="of a dim of size 3"):
        x[0, ds(i, 4)]
    with pytest.raises(IndexError):
        x[0, 0, 0, ds(i, 1)]


def test_python_numbers_are_stored_where_promotion_is_strict():
    with Override(numpy_dtype_promotion="strict"):
        assert wnp.zeros(2, bool).at[0].set(True).tolist() == [True, False]
        assert wnp.zeros(2, "int32").at[0].set(True).tolist() == [1, 0] and wnp.zeros(
            2, "bfloat16"
        ).at[1].add(2).tolist() == [0, 2]
