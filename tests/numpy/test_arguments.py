"""Edge cases of arguments of weft.numpy: masks, several shifts, mixed types, empty and scalar
arrays, errors."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.util.config import enable_x64


@pytest.mark.parametrize("name", ["nanmean", "nanvar", "nanstd", "nansum", "nanmax"])
@pytest.mark.parametrize("shape", [(), (1,), (4,), (3, 1), (1, 1), (3, 4)])
def test_masks_of_reductions_broadcast(name, shape):
    x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    x[1, 2] = x[0, 0] = np.nan
    where = np.random.default_rng(2).random(shape) > 0.3
    more = {"initial": -9.0} if name == "nanmax" else {}
    for axis in (None, 0, 1):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = getattr(np, name)(x, axis, where=np.broadcast_to(where, x.shape), **more)
        np.testing.assert_allclose(
            getattr(wnp, name)(x, axis, where=where, **more), want, rtol=1e-5
        )
    with pytest.raises(ValueError, match="does not broadcast"):
        getattr(wnp, name)(x, where=np.ones((2, 3, 4), bool), **more)


def test_reductions_that_ignore_nan_and_have_nothing_left():
    x = wnp.array([wnp.nan, 1.0, 3.0])
    assert [float(wnp.nanvar(x, ddof=d)) for d in (0, 1)] == [1.0, 2.0]
    assert (
        wnp.isnan(wnp.nanvar(x, ddof=2))
        and wnp.isnan(wnp.nanstd(x, ddof=3))
        and wnp.isnan(wnp.nanmax(x[:1]))
    )
    assert float(wnp.nanmax(x[:1], initial=2.5)) == 2.5 and wnp.nanmin(
        x[:1], axis=(), initial=2.5
    ).tolist() == [2.5]


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "complex64"])
def test_sums_and_products_of_truth(dtype):
    x = np.array([[0, 0, 2, 0], [3, 1, 0, 0]]).astype(dtype)
    for name in ("sum", "prod", "cumsum", "cumprod", "nansum", "nancumsum"):
        for axis in (None, 0, 1):
            want = getattr(np, name)(x, axis, dtype=bool)
            got = getattr(wnp, name)(x, axis, dtype=bool)
            np.testing.assert_array_equal(got, want)
            assert got.dtype == np.bool_
    assert wnp.sum(x[0, :2], dtype=bool, initial=1).tolist() is True


def test_covariances_in_a_dtype_and_of_no_observations():
    x = np.random.default_rng(0).normal(size=(2, 5))
    assert [
        wnp.cov(x, dtype="complex64").dtype.name,
        wnp.corrcoef(x, dtype="float16").dtype.name,
    ] == ["complex64", "float16"]
    with pytest.raises(ValueError, match="floating or complex, got int32"):
        wnp.cov(x, dtype="int32")
    assert np.isnan(wnp.cov(wnp.ones((2, 0)))).all() and np.isnan(wnp.cov(wnp.ones(1), ddof=2))


def test_deviations_from_a_given_mean():
    x = wnp.array([[1.0, wnp.nan, 4.0], [2.0, 2.0, 5.0]])
    for name in ("nanvar", "nanstd"):
        got = getattr(wnp, name)(x, axis=1, mean=wnp.zeros((2, 1)))
        np.testing.assert_allclose(
            got, getattr(np, name)(x, axis=1, mean=np.zeros((2, 1))), rtol=1e-6
        )


def test_names_of_arguments_and_refused_outputs():
    assert (
        float(wnp.fmax(x1=1.0, x2=wnp.nan)) == 1
        and int(wnp.gcd(x1=12, x2=18)) == 6
        and int(wnp.lcm(x1=4, x2=6)) == 12
    )
    assert (
        wnp.empty_like(prototype=wnp.ones(2)).shape == (2,)
        and wnp.iinfo(int_type="int8").max == 127
    )
    for fun in (wnp.isposinf, wnp.isneginf, wnp.modf):
        with pytest.raises(NotImplementedError, match="'out' argument"):
            fun(wnp.ones(2), out=np.ones(2))
    x = wnp.array([1.23456])
    assert (
        wnp.array_str(x, precision=2) == "[1.23]"
        and wnp.array_repr(x, precision=1) == "Array([1.2], dtype=float32)"
    )


def test_arrays_of_python_objects_are_not_unpickled(tmp_path):
    wnp.save(tmp_path / "a.npy", wnp.arange(3), allow_pickle=False)
    wnp.savez(tmp_path / "b.npz", wnp.arange(2), allow_pickle=False, c=wnp.ones(2))
    assert wnp.load(tmp_path / "a.npy").tolist() == [0, 1, 2] and sorted(
        np.load(tmp_path / "b.npz")
    ) == ["arr_0", "c"]


def test_variances_that_are_refused():
    z = wnp.array([1j, 2])
    for call in (
        lambda: wnp.var(z, dtype="float32"),
        lambda: wnp.std(wnp.arange(3.0), ddof=1, correction=1),
        lambda: wnp.cumulative_sum(wnp.float32(1)),
    ):
        with pytest.raises(ValueError):
            call()
    assert (
        wnp.var(wnp.arange(3.0), dtype="complex64").dtype == np.complex64
        and wnp.var(z).dtype == np.float32
    )
    assert (
        wnp.angle(wnp.array([-1], "bfloat16")).dtype == wnp.bfloat16
        and wnp.angle(np.int8(-1)).dtype == np.float32
    )


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(
    ("shift", "axis"),
    [
        ((1, 2), 0),
        ((1, 2), None),
        (1, (0, 1)),
        ((1, 2), (0, 0)),
        ((1, -1), (0, 1)),
        ((2,), (0, 1)),
        (-5, 1),
    ],
)
def test_rolls_by_several_shifts_add_up(shift, axis, traced):
    x = np.arange(12).reshape(3, 4)
    want = np.roll(x, shift, axis)
    np.testing.assert_array_equal(wnp.roll(x, shift, axis), want)
    if traced:
        np.testing.assert_array_equal(
            weft.jit(lambda x, s: wnp.roll(x, s, axis))(x, np.array(shift)), want
        )
    with pytest.raises(ValueError, match="3 shifts for 2 dims"):
        wnp.roll(x, (1, 2, 3), (0, 1))


def test_operands_of_several_types_promote():
    assert wnp.diff(np.int32([1, 2]), prepend=0.5).tolist() == [0.5, 1.0]
    assert wnp.diff(np.uint8([1, 2]), prepend=np.int32(7)).tolist() == [-6, 1]
    assert wnp.diff(np.uint8([1, 2]), append=3).dtype == np.uint8
    assert float(wnp.trapezoid(np.uint8([200, 200]), np.uint8([3, 1]))) == -400.0
    assert wnp.interp(np.float16([0.5]), np.float16([0, 1]), np.int32([0, 1])).dtype == np.float32
    assert wnp.intersect1d(np.float16([1, 2]), np.int16([2, 4])).dtype == np.float16
    assert [v.dtype for v in wnp.histogram(np.array([True]), 1, weights=np.float16([2]))] == [
        np.float16
    ] * 2
    x, xp, fp = np.float32([0.5, 1.5, 5]), np.float32([0, 1, 2]), np.complex64([1j, 2, 3])
    np.testing.assert_allclose(wnp.interp(x, xp, fp), np.interp(x, xp, fp))
    for side in ("left", "right"):
        z, v = np.complex64([1, 1 + 1j, 2]), np.complex64([1 + 0.5j, 1, 3, 1 + 1j])
        np.testing.assert_array_equal(wnp.searchsorted(z, v, side), np.searchsorted(z, v, side))


def test_shapes_at_the_edge():
    assert wnp.argwhere(wnp.float32(3)).shape == (1, 0) and wnp.argwhere(wnp.float32(0)).shape == (
        0,
        0,
    )
    assert wnp.poly(np.zeros(0)).shape == ()
    assert wnp.diff(np.arange(3), n=0, append=0).shape == (3,)
    x = np.float32([[1, 2, 4]])
    assert wnp.cov(x, rowvar=False).shape == (3, 3) and wnp.cov(x[0], rowvar=False).shape == ()
    np.testing.assert_allclose(
        wnp.cov(x.T, x.T * 2, rowvar=False), np.cov(x.T, x.T * 2, rowvar=False)
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda x: wnp.diff(x, n=-1),
        lambda x: wnp.rot90(x, 1, (0, -2)),
        lambda x: wnp.cov(x[None]),
        lambda x: wnp.tril_indices_from(x[0]),
        lambda x: wnp.triu_indices_from(x[None]),
        lambda x: wnp.gradient(x[0, :2], wnp.arange(5.0)),
        lambda x: wnp.compress(wnp.array([0, 0, 0, 1]), x[0]),
    ],
)
def test_arguments_that_cannot_be_meant(call):
    with pytest.raises(ValueError):
        call(wnp.ones((2, 3)))


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,ij->j", [(2, 3), (1, 3)]),
        ("ij,ij->i", [(2, 3), (2, 1)]),
        ("ij,jk->ik", [(2, 1), (3, 2)]),
        ("ij,ij", [(1, 3), (2, 3)]),
        ("i,i->", [(3,), (1,)]),
        ("ij,kj->", [(2, 3), (2, 1)]),
        ("ij,ij,ij->j", [(2, 3), (1, 3), (2, 1)]),
        ("ij,ij->ij", [(1, 3), (2, 1)]),
    ],
)
def test_contracted_indices_of_size_one_broadcast(subscripts, shapes):
    operands = [
        np.random.default_rng(i).normal(size=s).astype(np.float32) for i, s in enumerate(shapes)
    ]
    np.testing.assert_allclose(
        wnp.einsum(subscripts, *operands), np.einsum(subscripts, *operands), rtol=1e-5
    )


@pytest.mark.parametrize("name", ["linspace", "logspace", "geomspace"])
@pytest.mark.parametrize("num", [0, 1, 3])
@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_spaces_along_an_axis(name, num, axis):
    start, stop = np.float32([[1, 2, 3]]), np.float32([[4], [3]])
    want = getattr(np, name)(start, stop, num, axis=axis)
    np.testing.assert_allclose(getattr(wnp, name)(start, stop, num, axis=axis), want, rtol=1e-4)


@pytest.mark.parametrize("wide", [False, True])
def test_what_the_array_api_asks_of_a_library(wide):
    with weft.enable_x64(wide):
        info = wnp.__array_namespace_info__()
        names = list(info.dtypes())
        assert ("float64" in names) == ("complex128" in names) == wide and len(names) == (
            13 if wide else 9
        )
        assert list(info.dtypes(kind=("bool", "real floating"))) == [
            "bool",
            "float32",
            *(["float64"] if wide else []),
        ]
        ones = wnp.ones(2)
        arrays = {
            "real floating": ones,
            "complex floating": ones * 1j,
            "integral": wnp.arange(2),
            "indexing": wnp.argsort(ones),
        }
        assert {kind: x.dtype for kind, x in arrays.items()} == info.default_dtypes()
    assert (
        info.devices() == weft.devices()
        and info.default_device() is None
        and info.capabilities()["max dimensions"] == 32
    )
    assert wnp.__array_api_version__ == "2024.12"


@pytest.mark.parametrize(
    "name",
    ["sum", "prod", "all", "any", "nansum", "nanmean", "mean", "var", "std", "nanvar", "nanstd"],
)
def test_where_takes_bools_only(name):
    with pytest.raises(
        ValueError,
        match=rf"^wnp.{re.escape(name)}: where must be None or a boolean array, got one of int32",
    ):
        getattr(wnp, name)(np.ones(3, np.float32), where=np.arange(3))


def test_remainders_have_no_rounding_before_their_degree():
    u, v = (
        np.random.default_rng(3).normal(size=12).astype(np.float32) * 1e4,
        np.random.default_rng(4).normal(size=5).astype(np.float32),
    )
    q, r = wnp.polydiv(u, v)
    assert r.shape == (12,) and not np.any(r[:8]) and np.any(r[8:])
    np.testing.assert_allclose(wnp.polyadd(wnp.polymul(q, v), r), u, rtol=1e-3, atol=1.0)
    assert wnp.polydiv(u, v[:1])[1].tolist() == [0.0] * 12
    assert np.isnan(wnp.polydiv(u, np.zeros(2, np.float32))[1]).all()


@pytest.mark.parametrize("cov", [True, "unscaled"])
@pytest.mark.parametrize("columns", [None, 1, 2])
def test_covariances_of_fits(cov, columns):
    x = np.linspace(0, 1, 9)
    y = (
        np.sin(x * 5)
        if columns is None
        else np.stack([np.sin(x * (5 + k)) for k in range(columns)], 1)
    )
    with weft.enable_x64():
        got, want = wnp.polyfit(x, y, 2, cov=cov), np.polyfit(x, y, 2, cov=cov)
    for a, b in zip(got, want):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_copies_have_memory_of_their_own():
    import copy

    x = wnp.ones(10)
    copies = [
        wnp.array(x),
        copy.copy(x),
        copy.deepcopy(x),
        x.copy(),
        weft.vmap(wnp.array)(x),
        weft.vmap(lambda v: v.copy())(x),
        *weft.jvp(wnp.array, (x,), (x,)),
        weft.jit(wnp.asarray)(x),
        x.astype(x.dtype, copy=True),
        wnp.astype(x, "float32", copy=True),
        weft.vjp(wnp.array, x)[0],
        *weft.vjp(wnp.array, x)[1](x),
        wnp.asarray(x, copy=True),
    ]
    assert x.unsafe_buffer_pointer() not in [c.unsafe_buffer_pointer() for c in copies]
    assert [e.primitive.name for e in weft.make_jaxpr(wnp.array)(x).eqns] == ["copy"]
    assert (
        wnp.asarray(x) is x
        and x.astype("float32") is x
        and not weft.make_jaxpr(wnp.asarray)(x).eqns
    )
    x.delete()
    assert all(c.tolist() == [1.0] * 10 for c in copies)
    keys = weft.random.split(weft.random.key(0), 3)
    assert (
        weft.random.key_data(copy.copy(keys)) == weft.random.key_data(keys)
    ).all() and copy.copy(wnp.asarray(3)).weak_type


def test_indices_promised_in_bounds_are_not_wrapped():
    x, i = wnp.array([10, 20, 30]), wnp.array([2, 0], "int8")
    pick = lambda **kw: weft.make_jaxpr(lambda x, i: wnp.take_along_axis(x, i, 0, **kw))(x, i)
    names = lambda jaxpr: {e.primitive.name for e in jaxpr.eqns}
    assert "lt" in names(pick()) and "lt" in names(
        pick(mode="promise_in_bounds", wrap_negative_indices=True)
    )
    assert not {"lt", "add", "select_n"} & names(pick(mode="promise_in_bounds"))
    assert wnp.take_along_axis(x, i, 0, mode="promise_in_bounds").tolist() == [30, 10]
    assert wnp.take_along_axis(x, wnp.array([-1]), 0).tolist() == [30]


@pytest.mark.parametrize("name, expected", [("shape", (3,)), ("ndim", 1), ("size", 3)])
def test_facts_of_lists_warn(name, expected):
    with pytest.warns(DeprecationWarning, match=f"{name} requires ndarray or scalar arguments"):
        assert getattr(wnp, name)([1, 2, 3]) == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [getattr(wnp, name)(x) for x in (np.ones(3), wnp.ones(3))] == [expected, expected]
        assert wnp.shape(2.0) == ()


@pytest.mark.parametrize(
    "call", [lambda a: wnp.choose(a, [a, a]), lambda a: wnp.ravel_multi_index((a,), (3,))]
)
def test_positions_are_looked_at_outside_of_programs(call):
    a = wnp.array([0, 1])
    assert call(a).tolist() == [0, 1]
    with pytest.raises(
        weft.errors.ConcretizationTypeError, match="mode='raise' looks at the values"
    ):
        weft.jit(call)(a)


def test_gradients_where_the_function_turns_64_bits_on():
    def f(x):
        with weft.enable_x64(True):
            return wnp.sin(x.astype("float64"))

    slope = weft.grad(f)(np.float32(0.5))
    assert slope.dtype == np.float32
    np.testing.assert_allclose(slope, np.cos(0.5), rtol=1e-6)


def test_positions_in_an_array_beyond_32_bits():
    number = weft.ShapeDtypeStruct((), "float32")
    dtype_of = lambda n: (
        weft.eval_shape(wnp.searchsorted, weft.ShapeDtypeStruct((n,), "float32"), number).dtype
    )
    assert dtype_of(2**31 - 1) == np.int32
    with weft.enable_x64():
        assert (dtype_of(2**31 - 1), dtype_of(2**31)) == (np.int32, np.int64)
    with (
        pytest.warns(UserWarning, match="int64"),
        pytest.raises(OverflowError, match="2147483648 out of bounds"),
    ):
        dtype_of(2**31)


def test_keys_fill_arrays_of_keys():
    from weft import random

    key, words = random.key(5), np.array([0, 5])
    keys = random.split(key, 3)
    for filled in (
        wnp.full((3,), key),
        wnp.full((3,), key, key.dtype),
        wnp.full_like(keys, key),
        weft.jit(lambda k: wnp.full((3,), k, k.dtype))(key),
    ):
        assert filled.dtype == key.dtype and filled.shape == (3,)
        np.testing.assert_array_equal(random.key_data(filled), [words] * 3)
    np.testing.assert_array_equal(
        random.key_data(wnp.full((2, 3), keys, key.dtype)), [random.key_data(keys)] * 2
    )
    with pytest.raises(TypeError, match="keys and numbers"):
        wnp.full((3,), key, np.uint32)


def test_solutions_of_empty_systems():
    for m, n in ((0, 3), (3, 0)):
        for tail in ((), (2,)):
            b = wnp.ones((m, *tail))
            x, residuals, rank, s = wnp.linalg.lstsq(wnp.ones((m, n)), b)
            np.testing.assert_array_equal(x, np.zeros((n, *tail)))
            np.testing.assert_array_equal(residuals, np.full(tail or (1,), float(m)))
            assert rank == 0 and s.shape == (0,)


def test_one_cutoff_of_inverses():
    with pytest.raises(ValueError, match="only one of rtol and rcond"):
        wnp.linalg.pinv(np.eye(2), rtol=0.1, rcond=0.1)


def test_derivatives_of_mantissas():
    x = np.array([1.5, 0.3, -8, 0.75, 2.0**-130], np.float32)
    mantissa, exponent = wnp.frexp(x)
    np.testing.assert_array_equal(mantissa, np.frexp(x)[0])
    slope = weft.grad(lambda x: wnp.frexp(x)[0].sum())(x[:4])
    np.testing.assert_array_equal(slope, 2.0 ** -np.asarray(exponent)[:4])


@pytest.mark.parametrize(
    "name", ["frexp", "spacing", "signbit", "nan_to_num", "isposinf", "modf", "trunc", "exp2"]
)
@pytest.mark.parametrize("wide", [False, True])
def test_64_bit_values_of_numpy_are_taken_as_those_of_arrays(name, wide):
    x = np.array([0.3, -1.5, 0.0, 6.0])
    with enable_x64(wide):
        result, expected = (
            getattr(wnp, name)(x),
            getattr(np, name)(x if wide else x.astype(np.float32)),
        )
        for a, b in zip(*[v if isinstance(v, tuple) else (v,) for v in (result, expected)]):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("decimals", [40, 400])
def test_more_decimals_than_a_dtype_has(decimals):
    np.testing.assert_array_equal(
        wnp.round(np.array([0, 1.5, -2.25], np.float32), decimals), [0, 1.5, -2.25]
    )


def test_spacing_of_every_half():
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(wnp.spacing(x), np.spacing(x))


@pytest.mark.parametrize(
    "path",
    [[(0, 1, 2)], [(0, 2), (0, 1)], [(0, 1, 2, 3)], [(1, 2, 3), (0, 1)], True, False, "greedy"],
    ids=str,
)
def test_paths_of_einsum(path):
    operands = [np.arange(2 * n, dtype=np.float32).reshape(2, n) - 2 for n in (3, 4, 5, 2)]
    steps = path if isinstance(path, list) else [(0, 1, 2)]
    used = operands if max(map(max, steps)) == 3 else operands[:3]
    for result in ("jkl", "i", "lij"):
        subscripts = ",".join(["ij", "ik", "il", "im"][: len(used)]) + "->" + result
        np.testing.assert_allclose(
            wnp.einsum(subscripts, *used, optimize=path), np.einsum(subscripts, *used), rtol=1e-5
        )


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda x: wnp.interp(1j * x, x, x), "complex-valued"),
        (lambda x: wnp.interp(x, 1j * x, x), "complex-valued"),
        (lambda x: wnp.interp(x, x, x, period=x[:1]), r"period must be a scalar, got shape \(1,\)"),
        (lambda x: wnp.interp(x, x, x, period=np.array(0.0)), "non-zero"),
        (lambda x: wnp.interp(x, x, x, period=1j), "complex-valued"),
        (lambda x: wnp.corrcoef(x, dtype=int), "^corrcoef: dtype must be"),
        (lambda x: wnp.cov(x, dtype=int), "^cov: dtype must be"),
    ],
)
def test_arguments_without_a_meaning(call, says):
    x = np.arange(3, dtype=np.float32)
    for f in (call, weft.jit(call)) if "non-zero" not in says else (call,):
        with pytest.raises(ValueError, match=says):
            f(x)
