"""The methods of ufuncs, sets with a static size, and weighted statistics, against NumPy."""

import inspect

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.numpy.ufunc_type import IDENTITIES

F = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
AT = np.array([2, 0, 0, 1], np.int32)


def minus(x, y):
    return x - y


OURS = {
    "add": wnp.add,
    "maximum": wnp.maximum,
    "subtract": wnp.subtract,
    "logaddexp": wnp.logaddexp,
    "logical_xor": wnp.logical_xor,
    "minus": wnp.frompyfunc(minus, 2, 1),
}
NUMPYS = {**{name: getattr(np, name) for name in OURS if name != "minus"}, "minus": np.subtract}


@pytest.mark.parametrize("name", OURS)
def test_methods_of_ufuncs(name):
    ours, numpys = OURS[name], NUMPYS[name]
    assert isinstance(ours, wnp.ufunc) and (ours.nin, ours.nout, ours.nargs) == (2, 1, 2)
    for method, args in (
        ("reduce", (F,)),
        ("accumulate", (F, 1)),
        ("outer", (F, F[0])),
        ("reduceat", (F, AT[:2])),
    ):
        expected = getattr(numpys, method)(*args)
        result = weft.jit(
            getattr(ours, method), static_argnums=1 if method == "accumulate" else ()
        )(*args)
        np.testing.assert_allclose(
            result,
            expected.astype(F.dtype) if method == "reduceat" else expected,
            rtol=1e-6,
            atol=1e-6,
        )
    np.testing.assert_allclose(ours.reduce(F, None), numpys.reduce(F.ravel()), rtol=1e-6)
    expected = F.copy()
    numpys.at(expected, (AT[:3], AT[1:]), F[0, :3])
    np.testing.assert_allclose(
        ours.at(F, (AT[:3], AT[1:]), F[0, :3], inplace=False), expected, rtol=1e-6
    )


def test_reductions_with_initial_where_and_none():
    mask = F > -2
    for name in ("add", "maximum", "logaddexp"):
        np.testing.assert_allclose(
            OURS[name].reduce(F, where=mask, initial=1),
            NUMPYS[name].reduce(F, where=mask, initial=1),
            rtol=1e-6,
        )
    np.testing.assert_allclose(
        OURS["minus"].reduce(F, 1, where=mask, initial=1, keepdims=True),
        np.subtract.reduce(F, 1, where=mask, initial=1, keepdims=True),
    )
    assert wnp.logaddexp.reduce(F[:0]).tolist() == [-np.inf] * 4
    with pytest.raises(ValueError, match="no identity"):
        OURS["minus"].reduce(F[:0])
    with pytest.raises(ValueError, match="where needs an identity"):
        wnp.maximum.reduce(F, where=mask)
    with pytest.raises(NotImplementedError, match="inplace=False"):
        wnp.add.at(F, 0, 1.0)
    with pytest.raises(NotImplementedError, match="out and where"):
        wnp.add(F, F, out=F)
    with pytest.raises(ValueError, match="two arguments"):
        wnp.negative.reduce(F)


def test_functions_of_scalars_broadcast_and_differentiate():
    both = wnp.frompyfunc(lambda x: (x * x, x + 1), 1, 2)
    np.testing.assert_allclose(both(F)[0], F * F)
    assert (
        both == wnp.frompyfunc(both._facts[0], 1, 2)
        and hash(both) == hash(wnp.frompyfunc(both._facts[0], 1, 2))
        and both != wnp.add
    )
    np.testing.assert_allclose(OURS["minus"](F, F[:, :1]), F - F[:, :1])
    np.testing.assert_allclose(
        weft.grad(lambda x: OURS["minus"].reduce(x).sum())(F), [[1] * 4, [-1] * 4, [-1] * 4]
    )
    assert wnp.negative.at(np.arange(3), np.array([0, 1, 1]), inplace=False).tolist() == [0, 1, 2]


A, B = np.array([5, 3, 3, 7, 9], np.int32), np.array([3, 9, 9, 4], np.int32)


@pytest.mark.parametrize(
    "name, size, filled",
    [
        ("intersect1d", 4, [3, 9, 3, 3]),
        ("setdiff1d", 3, [5, 7, 0]),
        ("setxor1d", 5, [4, 5, 7, 4, 4]),
        ("union1d", 6, [3, 4, 5, 7, 9, 3]),
    ],
)
def test_sets_of_static_size(name, size, filled):
    function, expected = getattr(wnp, name), getattr(np, name)(A, B).tolist()
    assert function(A, B).tolist() == expected
    sized = weft.jit(function, static_argnames="size")
    assert sized(A, B, size=size).tolist() == filled
    assert sized(A, B, size=size, fill_value=-1).tolist() == expected + [-1] * (
        size - len(expected)
    )
    assert sized(A, B, size=1).tolist() == expected[:1]
    mesh = weft.make_mesh((1,), ("i",))
    spread = weft.device_put(A, weft.sharding.NamedSharding(mesh, weft.sharding.PartitionSpec("i")))
    assert sized(spread, B, size=size).tolist() == filled


def test_where_common_elements_are():
    values, first, second = wnp.intersect1d(A, B, return_indices=True, size=3)
    assert (values.tolist(), first.tolist(), second.tolist()) == ([3, 9, 3], [1, 4, 5], [0, 1, 4])


def test_unique_rows_with_nan_and_fills():
    rows = np.array([[1, np.nan], [0, 2], [1, np.nan]], np.float32)
    np.testing.assert_array_equal(wnp.unique(rows, axis=0), [[0, 2], [1, np.nan]])
    assert wnp.unique(rows, axis=0, equal_nan=False).shape == (3, 2)
    grid = np.array([[1, 2, 1], [3, 4, 3]], np.int32)
    assert wnp.unique(grid, axis=1, size=3, fill_value=np.array([9, 8], np.int32)).tolist() == [
        [1, 2, 9],
        [3, 4, 8],
    ]
    with pytest.raises(ValueError, match="fill_value"):
        wnp.unique(rows[:0], size=2)


def test_weighted_statistics():
    x, w = F[0] + np.array([0, 9, 0, -7], np.float32), np.array([1, 2, 0, 4], np.float32)
    for q in (0.0, 0.3, 0.5, 1.0):
        expected = np.quantile(x, q, weights=w, method="inverted_cdf")
        assert float(wnp.quantile(x, q, weights=w, method="inverted_cdf")) == expected
        assert float(wnp.percentile(x, 100 * q, weights=w, method="inverted_cdf")) == expected
        assert float(wnp.quantile(x, q, method="inverted_cdf")) == np.quantile(
            x, q, method="inverted_cdf"
        )
    rows = wnp.quantile(
        F, np.float32([0.2, 0.6]), axis=1, weights=w, method="inverted_cdf", keepdims=True
    )
    np.testing.assert_array_equal(
        rows,
        np.quantile(
            F,
            [0.2, 0.6],
            axis=1,
            weights=np.broadcast_to(w, F.shape),
            method="inverted_cdf",
            keepdims=True,
        ),
    )
    with pytest.raises(NotImplementedError, match="inverted_cdf"):
        wnp.quantile(x, 0.5, weights=w)
    cube, weights = (
        np.arange(24, dtype=np.float32).reshape(2, 3, 4),
        np.arange(8, dtype=np.float32).reshape(4, 2),
    )
    np.testing.assert_allclose(
        wnp.average(cube, (2, 0), weights), np.average(cube, (2, 0), weights), rtol=1e-6
    )
    assert wnp.trim_zeros(np.array([[0, 0, 0], [0, 1, 0]]), axis=1).tolist() == [[0], [1]]


def test_ufuncs_of_given_functions_of_arrays():
    f = wnp.ufunc(
        minus,
        2,
        1,
        name="minus",
        nargs=2,
        call=lambda x, y: wnp.subtract(x, y) * 10,
        at=lambda a, i, b: (a, i, b),
        reduce=lambda a, axis, dtype, keepdims, initial, where: (a, axis),
        accumulate=lambda a, axis, dtype: (a, axis),
        reduceat=lambda a, indices, axis, dtype: (a, indices),
    )
    assert f(wnp.array([3, 4]), 1).tolist() == [20, 30]
    assert f.reduce(F, 1)[1] == 1 and f.accumulate(F, 1)[1] == 1 and f.reduceat(F, AT)[1] is AT
    assert f.at(F, 1, 2, inplace=False)[1:] == (1, 2)
    with pytest.raises(ValueError, match="nargs"):
        wnp.ufunc(minus, 2, 1, nargs=3)


@pytest.mark.parametrize("wrap", [lambda f: f, weft.jit])
def test_remainders_of_bools_except_fmod_equal_those_of_ints(wrap):
    a, b = np.array([False, True, False, True]), np.array([False, False, True, True])
    for name, want in (("fmod", [0, 1, 0, 0]), ("remainder", [0, 0, 0, 0]), ("mod", [0, 0, 0, 0])):
        got = wrap(getattr(wnp, name))(a, b)
        assert got.dtype == np.int32 and got.tolist() == want
    assert wrap(wnp.fmod)(np.array([5, 5], np.int8), np.array([0, 3], np.int8)).tolist() == [0, 2]
    with pytest.raises(TypeError, match="does not accept dtype bool"):
        wrap(weft.lax.rem)(a, b)


@pytest.mark.parametrize("name", IDENTITIES)
@pytest.mark.parametrize("option", ["out", "where"])
def test_out_and_where_of_ufuncs_are_refused(name, option):
    ufunc = getattr(wnp, name)
    args = (np.ones(3, np.int32),) * ufunc.nin
    assert inspect.signature(ufunc).parameters[option].default is None
    for run in (lambda f: f, weft.jit):
        with pytest.raises(NotImplementedError, match=f"{name}: out and where are not supported"):
            run(lambda *xs: ufunc(*xs, **{option: np.ones(3, bool)}))(*args)
    np.testing.assert_array_equal(ufunc(*args, **{option: None}), ufunc(*args))


@pytest.mark.parametrize("name", ["trunc", "fix", "i0", "iscomplex", "isreal"])
def test_functions_whose_argument_has_a_name(name):
    fun, x = getattr(wnp, name), np.linspace(-2, 2, 5, dtype=np.float32)
    for run in (lambda f: f, weft.jit, weft.vmap):
        np.testing.assert_array_equal(run(lambda x: fun(x=x))(x), fun(x))
