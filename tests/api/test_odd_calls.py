"""Rare calls that have a result: each group covers a family of arguments that were once refused."""

import copy
import enum

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax


def _no_tangent(*shape):
    return np.zeros(shape, weft.float0)


def _same(result, want):
    if isinstance(want, tuple):
        assert len(result) == len(want)
        for x, y in zip(result, want):
            _same(x, y)
    else:
        np.testing.assert_allclose(np.asarray(result), np.asarray(want), rtol=1e-6)


# ---- tangents of integers

SCALED = lambda i, x: x * i
INTEGERS = (wnp.arange(3), wnp.ones(3)), (_no_tangent(3), wnp.ones(3))


@pytest.mark.parametrize(
    "fun",
    [SCALED, weft.jit(SCALED), weft.checkpoint(SCALED), lambda i, x: lax.mul(i.astype(x.dtype), x)],
)
def test_tangents_of_integers(fun):
    _same(weft.jvp(fun, *INTEGERS), ([0.0, 1, 2], [0.0, 1, 2]))
    y, linear = weft.linearize(fun, *INTEGERS[0])
    _same((y, linear(*INTEGERS[1])), ([0.0, 1, 2], [0.0, 1, 2]))


def test_gradient_of_a_function_that_enables_x64():
    def wide(x):
        with weft.enable_x64(True):
            return wnp.sin(x) * x

    slope = weft.grad(wide)(0.5)
    value, pull = weft.vjp(wide, 0.5)
    assert slope.dtype == value.dtype == pull(value)[0].dtype == np.float32
    _same((slope, value), (np.sin(0.5) + 0.5 * np.cos(0.5), 0.5 * np.sin(0.5)))


def test_tangents_of_integer_results():
    y, t = weft.jvp(lambda i: i + 1, (wnp.arange(3),), (_no_tangent(3),))
    assert y.tolist() == [1, 2, 3] and t.dtype == weft.float0
    y, linear = weft.linearize(lambda i, x: (i + 1, 2 * x), wnp.arange(3), 1.0)
    t = linear(_no_tangent(3), 3.0)
    assert t[0].dtype == weft.float0 and t[0].shape == (3,) and float(t[1]) == 6


@pytest.mark.parametrize(
    "tangent, error", [(_no_tangent(2), "float0"), (np.ones(3, np.float32), "float0")]
)
def test_tangents_that_do_not_fit(tangent, error):
    with pytest.raises((TypeError, ValueError), match=error):
        weft.jvp(SCALED, INTEGERS[0], (tangent, wnp.ones(3)))
    with pytest.raises(ValueError, match="tangent"):
        weft.linearize(SCALED, *INTEGERS[0])[1](tangent, wnp.ones(3))


# ---- known values among traced ones


def test_compile_time_values_beside_traced_ones():
    def f(x):
        with weft.ensure_compile_time_eval():
            n = int(wnp.arange(4).sum())
            doubled = weft.jit(lambda y: y * 2)(x)
            return x * n + doubled + wnp.sin(wnp.zeros(3)).sum()

    _same(weft.jit(f)(2.0), 16.0)
    _same(weft.vmap(f)(wnp.arange(3.0)), [0.0, 8, 16])
    _same(weft.grad(f)(1.0), 8.0)
    _same(lax.scan(lambda c, x: (c + f(x), f(x)), 0.0, wnp.arange(3.0)), (24.0, [0.0, 8, 16]))
    _same(f(2.0), 16.0)


# ---- empty operands


def test_mapped_reads_of_nothing():
    result = weft.vmap(lambda x, i: x[i])(wnp.zeros((0, 5)), wnp.zeros((0, 2), int))
    assert result.shape == (0, 2)
    assert weft.vmap(wnp.take, (None, 0))(wnp.zeros(0), wnp.zeros((3, 0), int)).shape == (3, 0)
    assert weft.vmap(lambda x, i: x.at[i].set(1.0))(
        wnp.zeros((0, 5)), wnp.zeros((0, 2), int)
    ).shape == (0, 5)


# ---- updates without compiled programs

UPDATES = [
    ("set", [3.0, 1, 1]),
    ("add", [4.0, 1, 1]),
    ("multiply", [3.0, 1, 1]),
    ("max", [3.0, 1, 1]),
    ("min", [1.0, 1, 1]),
    ("divide", [1 / 3, 1, 1]),
    ("power", [1.0, 1, 1]),
]


@pytest.mark.parametrize("setting", ["debug_nans", "debug_infs", "disable_jit"])
@pytest.mark.parametrize("name, want", UPDATES)
def test_updates_without_compiled_programs(setting, name, want):
    x = wnp.ones(3)
    getattr(x.at[1], name)(1.0)  # a compiled program exists
    with getattr(weft, setting)(True):
        for index in (0, wnp.array([0]), slice(0, 1), (None, 0)):
            _same(getattr(x.at[index], name)(3.0), want)


# ---- objects that are not arrays


def test_objects_that_are_not_mapped():
    class Scale:
        by = 3

    x = wnp.arange(3.0)
    _same(weft.vmap(lambda s, x: s.by * x, (None, 0))(Scale(), x), [0.0, 3, 6])
    _same(weft.vmap(lambda f, x: f(x), (None, 0))(wnp.negative, x), [0.0, -1, -2])
    _same(
        weft.vmap(lambda d, x: d["s"].by * x * d["v"], ({"s": None, "v": 0}, 0))(
            {"s": Scale(), "v": x}, x
        ),
        [0.0, 3, 12],
    )
    with pytest.raises(TypeError, match="not a valid JAX type"):
        weft.vmap(lambda s, x: x)(Scale(), x)


def test_scalar_types_as_keys():
    assert {np.float32: 1}[wnp.float32] == 1 and {wnp.int8: 1}[np.int8] == 1
    assert hash(wnp.float32) == hash(np.float32) and wnp.float32 == np.dtype("float32")


def test_structures_whose_static_data_has_no_hash():
    class Box:
        def __init__(self, x, data):
            self.x, self.data = x, data

    weft.tree_util.register_pytree_node(
        Box, lambda b: ((b.x,), b.data), lambda data, x: Box(x[0], data)
    )
    jitted = weft.jit(lambda b: b.x + len(b.data))
    assert (
        jitted(Box(1, [1, 2])) == 3 and jitted(Box(1, [1, 2, 3])) == 4 and jitted._cache_size() == 2
    )
    assert weft.jit(lambda x: Box(x + 1, {"a": [1]}))(1).data == {"a": [1]}
    _same(lax.scan(lambda c, x: (Box(c.x + x, c.data), x), Box(1.0, [1]), wnp.ones(2))[0].x, 3.0)
    assert hash(weft.tree.structure(Box(1, [1]))) == hash(weft.tree.structure(Box(2, [1])))


# ---- axes, numbers and dtypes in other forms


@pytest.mark.parametrize("axes", [range(2), [0, 1], np.array([0, 1]), (np.int8(0), 1)])
def test_axes_in_other_forms(axes):
    x = wnp.ones((1, 1, 3))
    assert wnp.expand_dims(x, axes).shape == (1, 1, 1, 1, 3)
    assert wnp.sum(x, axis=axes).shape == wnp.squeeze(x, axes).shape == (3,)
    assert wnp.flip(x, axes).shape == wnp.roll(x, (1, 1), axes).shape == (1, 1, 3)
    for bad in ("x", 1.5, [0.5], object()):
        with pytest.raises(TypeError, match="axis must be an int"):
            wnp.sum(x, axis=bad)


class Kind(enum.IntEnum):
    ONE = 1
    TWO = 2


class Seconds(float):
    pass


def test_numbers_of_the_users_own_types():
    x = wnp.arange(3)
    for result, want in [
        (wnp.where(x > 0, Kind.ONE, Kind.TWO), [2, 1, 1]),
        (wnp.add(Kind.ONE, x), [1, 2, 3]),
        (wnp.clip(x, Kind.ONE, 5), [1, 1, 2]),
        (wnp.array([Kind.ONE, Kind.TWO]), [1, 2]),
        (wnp.full(2, Kind.TWO), [2, 2]),
        (x == Kind.ONE, [False, True, False]),
        (lax.add(Kind.ONE, 1), 2),
        (wnp.array(Seconds(2)), 2.0),
        (wnp.where(True, Seconds(1), Kind.TWO), 1.0),
    ]:
        _same(result, want)
    assert (wnp.ones(2, np.int8) * Kind.TWO).dtype == np.int8


def test_dtype_of_dtypes():
    assert {
        lax.dtype(x)
        for x in (np.dtype("float32"), np.float32, "float64", 1.0, wnp.ones(2), wnp.float32)
    } == {np.dtype("float32")}


def test_copies_of_keys():
    key = weft.random.key(3)
    for array in (
        wnp.copy(key),
        wnp.array(key),
        wnp.array(key, copy=True),
        key.copy(),
        copy.deepcopy(key),
        weft.jit(wnp.copy)(key),
    ):
        assert array.dtype == key.dtype and weft.random.key_data(array).tolist() == [0, 3]


def test_polynomials_of_several_columns():
    p = wnp.arange(6.0).reshape(3, 2)
    _same(wnp.polyval(p, wnp.array([1.0, 2])), [6.0, 15])
    _same(wnp.polyval(p, 2.0), [8.0, 15])
    assert wnp.polyval(wnp.ones((2, 1, 3)), wnp.ones((4, 1))).shape == (4, 3)
    with pytest.raises(ValueError, match="coefficients p"):
        wnp.polyval(1.0, 2.0)


@pytest.mark.parametrize("distribution", ["normal", "uniform", "truncated_normal"])
def test_complex_initializers(distribution):
    w = weft.nn.initializers.variance_scaling(1.0, "fan_in", distribution)(
        weft.random.key(0), (400, 60), wnp.complex64
    )
    assert w.dtype == np.complex64
    assert abs(float(wnp.var(w)) * 400 - 1) < 0.02 and abs(complex(w.mean())) < 2e-3
    if distribution != "normal":
        assert float(wnp.abs(w).max()) < 3 / 20


@pytest.mark.parametrize(
    "index",
    [
        -1,
        np.int32(-1),
        np.array([-1]),
        (np.array([[-1]]), None),
        wnp.array([-1], np.int8),
        (None, -1),
        (..., -1),
    ],
)
def test_negative_indices_that_do_not_wrap(index):
    x = wnp.arange(1.0, 5)
    for name in ("set", "add", "multiply", "divide", "power", "min", "max", "subtract"):
        _same(getattr(x.at[index], name)(0.5, wrap_negative_indices=False, mode="drop"), x)
        assert getattr(x.at[index], name)(0.5)[3] != 4 or name == "max"
    assert np.isnan(np.asarray(x.at[index].get(wrap_negative_indices=False, mode="fill"))).all()
    _same(x.at[index].apply(wnp.sin, wrap_negative_indices=False), x)
    _same(x.at[-2:].get(wrap_negative_indices=False), [3.0, 4])


# ---- dtypes that operations once refused

SMALL = ["int2", "uint2", "int4", "uint4", "int8", "uint8", "bool"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("source", SMALL)
@pytest.mark.parametrize("target", SMALL)
def test_casts_of_small_integers(source, target):
    values = np.array([1, 0, 3, 2, -1, 7, 15, -8], np.int32)

    def wrapped(x, dtype):
        if dtype == "bool":
            return (x != 0).astype(np.int32)
        bits = weft.dtypes.itemsize_bits(dtype)
        low = x & ((1 << bits) - 1)
        return np.where((dtype[0] == "i") & (low >= 1 << (bits - 1)), low - (1 << bits), low)

    want = wrapped(wrapped(values, source), target)
    x = wnp.asarray(values).astype(source)
    assert x.astype(target).astype(np.int32).tolist() == want.tolist()
    assert (
        weft.jit(lambda v: v.astype(source).astype(target).astype(np.int32), backend="reference")(
            values
        ).tolist()
        == want.tolist()
    )


COMPLEX = np.array([1 + 2j, 3 - 1j, 2, 1 - 1j, 3, 1 + 2j], np.complex64)


@pytest.mark.parametrize("backend", [None, "reference"])
def test_complex_order(backend):
    other = np.array([1 + 3j, 3, -2, 1 - 2j, 3 - 1j, 1 + 2j], np.complex64)
    larger = [x if (x.real, x.imag) > (y.real, y.imag) else y for x, y in zip(COMPLEX, other)]
    smaller = [x if (x.real, x.imag) < (y.real, y.imag) else y for x, y in zip(COMPLEX, other)]
    jit = lambda f: weft.jit(f, backend=backend)
    _same(jit(lax.max)(COMPLEX, other), larger)
    _same(jit(lax.min)(COMPLEX, other), smaller)
    _same(jit(lambda x, y: x.at[:].max(y))(wnp.asarray(COMPLEX), other), larger)
    at = wnp.array([0, 0, 1])
    _same(
        jit(lambda x, y: x.at[at].min(y))(wnp.asarray(COMPLEX), other[:3]),
        [1 + 2j, -2, *COMPLEX[2:]],
    )
    _same(
        jit(lambda x: weft.ops.segment_max(x, wnp.array([0, 0, 1, 1, 2, 2]), 3))(
            wnp.asarray(COMPLEX)
        ),
        [3 - 1j, 2, 3],
    )


def test_gradient_of_the_complex_maximum():
    at = (
        np.array([1 + 1j, 1 - 1j, 2, 2], np.complex64),
        np.array([1 + 0j, 1 + 0j, 2, 3], np.complex64),
    )
    slopes = weft.grad(lambda x, y: lax.max(x, y).real.sum(), (0, 1))(*at)
    _same(slopes, ([1, 0, 0.5, 0], [0, 1, 0.5, 1]))


BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "rem",
    "max",
    "min",
    "pow",
    "atan2",
    "nextafter",
    "complex",
    "eq",
    "lt",
    "ge",
    "igamma",
    "zeta",
]


@pytest.mark.parametrize("name", BINARY)
def test_lax_repeats_dims_of_size_one(name):
    x, y = np.array([[1.5], [2.5], [3.5]], np.float32), np.array([[1.25, 2, 3, 4]], np.float32)
    op = getattr(lax, name)
    _same(op(x, y), op(*np.broadcast_arrays(x, y)))
    for a, b in (((3, 1), (2, 4)), ((3,), (1, 3)), ((1,), (2, 3))):
        with pytest.raises(TypeError, match="shapes"):
            op(np.ones(a, np.float32), np.ones(b, np.float32))


def test_gradient_of_a_repeated_dim():
    slopes = weft.grad(lambda x, y: lax.div(x, y).sum(), (0, 1))(
        wnp.ones((3, 4)), 2 * wnp.ones((3, 1))
    )
    _same(slopes, (np.full((3, 4), 0.5), np.full((3, 1), -1.0)))
    assert lax.bitwise_and(np.ones((3, 1), int), np.ones((1, 4), int)).shape == (3, 4)
    assert lax.betainc(*[np.full(s, 0.5, np.float32) for s in ((3, 1), (1, 4), (3, 1))]).shape == (
        3,
        4,
    )


WINDOWS = [
    ("max", np.array([True, False, False]), False, [True, False]),
    ("min", np.array([True, False, False]), True, [False, False]),
    ("max", np.array([1, 5, 2], np.uint8), np.uint8(0), [5, 5]),
    ("min", np.array([1, 5, 2], np.uint8), np.uint8(255), [1, 2]),
    ("max", np.array([1, 5, 2], np.uint32), np.uint32(3), [5, 5]),
    ("max", np.array([True, False, False]), True, [True, True]),
    ("bitwise_xor", np.array([1, 5, 2], np.uint8), np.uint8(0), [4, 7]),
    ("mul", np.array([1, 5, 2], np.uint16), np.uint16(1), [5, 10]),
]


@pytest.mark.parametrize("name, x, init, want", WINDOWS)
def test_windows_of_bools_and_unsigned(name, x, init, want):
    result = lax.reduce_window(x, init, getattr(lax, name), (2,), (1,), "VALID")
    assert result.dtype == x.dtype and result.tolist() == want


def test_repeated_scalars():
    for result in (
        wnp.repeat(3.0, 2, 0),
        wnp.repeat(wnp.array(3.0), 2, axis=-1),
        wnp.repeat(3.0, np.array([2]), axis=0),
    ):
        _same(result, [3.0, 3])


def test_filling_with_numbers_beyond_the_dtype():
    assert wnp.full(2, -1, wnp.uint4).astype(int).tolist() == [15, 15] and wnp.full(
        2, 300, np.int8
    ).tolist() == [44, 44]


# ---- limits, and errors that name the problem


@pytest.mark.parametrize(
    "make",
    [
        wnp.ones,
        lambda s: wnp.ones(s[1:])[None],
        lambda s: weft.device_put(np.ones(s)),
        lambda s: weft.jit(lambda x: x)(np.ones(s)),
        lambda s: weft.jit(lambda: wnp.ones(s))(),
    ],
)
def test_more_than_32_dims(make):
    assert wnp.ones((1,) * 32).ndim == 32
    with pytest.raises(NotImplementedError, match="at most 32 dims, got 33"):
        make((1,) * 33)


@pytest.mark.parametrize(
    "transform", [weft.grad, weft.value_and_grad, weft.jacfwd, weft.jacrev, weft.hessian]
)
@pytest.mark.parametrize("argnums", [(0, 0), (0, -2), [1, 0, 1]])
def test_an_argument_named_twice(transform, argnums):
    with pytest.raises(ValueError, match=r"argnums=.*twice"):
        transform(lambda x, y: x * y, argnums=argnums)(1.0, 2.0)


def test_closed_over_array_after_its_own_donation():
    a = wnp.ones(300)
    f = weft.jit(lambda x: x + a, donate_argnums=0)
    assert f(a).sum() == 600 and a.is_deleted()
    assert f(wnp.ones(300)).sum() == 600
    assert f.lower(wnp.ones(300)).compile()(wnp.ones(300)).sum() == 600


class _Converts:
    def __init__(self, value):
        self.value = value

    def __jax_array__(self):
        return self.value


def test_objects_that_convert_themselves():
    scalar, row = _Converts(wnp.array(1)), _Converts(wnp.ones(3))
    assert (
        wnp.isscalar(scalar)
        and wnp.size(scalar) == 1
        and wnp.shape(row) == (3,)
        and wnp.result_type(row) == np.float32
    )
    assert wnp.array([[scalar, 2], [3, scalar]]).tolist() == [[1, 2], [3, 1]] and wnp.array(
        [row, row]
    ).shape == (2, 3)
    for mapped in (weft.vmap(lambda x: x)(row), weft.vmap(lambda x, y: x, (0, None))(row, scalar)):
        assert isinstance(mapped, weft.Array) and mapped.tolist() == [1.0, 1.0, 1.0]
    assert (
        weft.vmap(lambda x: 2 * x, in_axes=1, out_axes=1)(_Converts(wnp.ones((2, 3)))).tolist()
        == [[2.0] * 3] * 2
    )


@pytest.mark.parametrize(
    "transform",
    [
        weft.grad,
        weft.value_and_grad,
        weft.vmap,
        weft.pmap,
        weft.jacfwd,
        weft.jacrev,
        weft.hessian,
        weft.make_jaxpr,
        weft.jit,
    ],
    ids=lambda f: f.__name__,
)
def test_what_is_no_function_is_refused_at_once(transform):
    with pytest.raises(TypeError, match=f"{transform.__name__}: Expected a callable value, got 5"):
        transform(5)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: wnp.mean(x, axis=2),
        lambda x: wnp.argmax(x, -3),
        lambda x: wnp.split(x, 1, axis=2),
        lambda x: wnp.swapaxes(x, 0, 2),
        lambda x: wnp.fft.fft(x, axis=2),
        lambda x: x.std(2),
        lambda x: lax.dynamic_index_in_dim(x, 0, 2),
    ],
)
def test_dims_that_there_are_not(call):
    """As in NumPy, the error is both a ValueError and an IndexError."""
    for kind in (ValueError, IndexError):
        with pytest.raises(kind, match=r"axis -?\d is out of bounds|dim 2 is out of range"):
            call(wnp.ones((2, 2)))


def test_whole_numbers_are_asked_for():
    for call in (
        lambda: wnp.round(wnp.ones(2), 1.5),
        lambda: wnp.ones(2).round(1.0),
        lambda: wnp.round(wnp.arange(2), 0.5),
        lambda: lax.integer_pow(wnp.ones(2), 1.5),
    ):
        with pytest.raises(TypeError, match="integer"):
            call()
    assert (
        wnp.round(wnp.array([1.26]), np.int32(1)).tolist()
        == [np.float32(1.3)]
        == wnp.round(wnp.array([1.26]), wnp.array(1)).tolist()
    )


@pytest.mark.parametrize(
    "call",
    [
        wnp.linalg.cholesky,
        wnp.linalg.svd,
        wnp.linalg.eigh,
        lambda x: wnp.linalg.solve(wnp.eye(2), x),
    ],
)
def test_what_is_no_matrix(call):
    for kind in (ValueError, TypeError):
        with pytest.raises(kind, match=r"takes (square )?matrices|rows must be equal"):
            call(wnp.ones(3))


def test_masked_arrays_of_numpy():
    masked = np.ma.array([1, 2, 3], mask=[True, False, True])
    for use in (wnp.asarray, wnp.sin, weft.jit(lambda x: x)):
        with pytest.raises(ValueError, match="masked arrays are not supported"):
            use(masked)


@pytest.mark.parametrize("transform", [weft.vmap, weft.pmap])
@pytest.mark.parametrize("axes", [{"in_axes": False}, {"in_axes": (True,)}, {"out_axes": True}])
def test_a_bool_is_no_axis(transform, axes):
    with pytest.raises(TypeError, match="must be an int"):
        transform(lambda x: x, **axes)(wnp.ones((1, 2)))


def test_integers_beyond_every_integer_dtype():
    assert lax.convert_element_type(2**100, np.float32) == np.float32(2**100)
    assert lax.convert_element_type(-(2**40), np.float32) == np.float32(-(2**40))
    with pytest.raises(OverflowError):
        lax.convert_element_type(2**100, np.int32)


def test_tangents_of_another_kind():
    slope = weft.linearize(lambda x: 2 * x, np.float32(1))[1]
    assert slope(2.0) == 4
    for tangent in (1, np.float64(1).astype(np.float16), wnp.ones(2)):
        with pytest.raises(ValueError, match="inconsistent with the original primal values"):
            slope(tangent)


def test_transposes_of_integer_functions():
    assert weft.linear_transpose(lambda x: 2 * x, 1)(3)[0] == 6
    assert weft.linear_transpose(lambda x: x @ np.arange(3), np.arange(3))(2)[0].tolist() == [
        0,
        2,
        4,
    ]
    with pytest.raises(TypeError, match="type does not match"):
        weft.linear_transpose(lambda x: 2 * x, 1)(3.0)


def test_values_without_information_take_part_in_nothing():
    none = weft.grad(lambda x: x + 0.0, allow_int=True)(1)
    for use in (lambda: none + wnp.zeros(()), lambda: lax.add(none, wnp.zeros(()))):
        with pytest.raises(TypeError, match="float0"):
            use()


def test_cotangents_of_integer_results_need_only_the_shape():
    (y, n), pullback = weft.vjp(lambda x: (2 * x, (3 * x).astype(int)), wnp.ones(3))
    for ct in (n, wnp.ones(3), np.zeros(3, weft.dtypes.float0)):
        assert pullback((y, ct))[0].tolist() == weft.jit(pullback)((y, n))[0].tolist() == [4, 4, 4]
    with pytest.raises(ValueError, match=r"must be of type float0\[3\]"):
        pullback((y, wnp.ones(4)))


def test_memory_is_shared_or_given_away():
    with pytest.raises(ValueError, match="cannot be True at the same time"):
        weft.device_put(wnp.ones(3), may_alias=True, donate=True)


def test_a_struct_of_rank_0_has_no_length():
    with pytest.raises(TypeError, match="unsized"):
        len(weft.ShapeDtypeStruct((), np.float32))
    assert len(weft.ShapeDtypeStruct((4, 2), np.float32)) == 4


def test_map_of_batches_of_size_0_takes_single_slices():
    seen = []
    result = lax.map(
        lambda x: seen.append(x.shape) or x**2, np.arange(6.0, dtype=np.float32), batch_size=0
    )
    assert seen == [()] and result.tolist() == [0, 1, 4, 9, 16, 25]
    with pytest.raises(ValueError, match="negative"):
        lax.map(lambda x: x, np.arange(3), batch_size=-1)


def test_converted_closures_check_the_example_structure():
    pure, values = weft.closure_convert(lambda x: x * 2, 1.0)
    assert pure(3.0, *values) == 6
    with pytest.raises(TypeError, match="must have the structure"):
        pure([3.0], *values)


@pytest.mark.parametrize(
    "cotangent", [1, wnp.array(1), wnp.array(True), np.zeros((), weft.float0)], ids=str
)
def test_any_number_stands_for_the_cotangent_of_an_integer(cotangent):
    _, pullback = weft.vjp(lambda x: (2 * x, wnp.argmax(x)), wnp.ones(3))
    for call in (pullback, weft.jit(pullback)):
        assert call((wnp.ones(3), cotangent))[0].tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(ValueError, match="cotangent"):
        pullback((wnp.ones(3), wnp.ones(2, int)))


@pytest.mark.parametrize("shape, expected", [
    (((3,), (2, 3)), ((3,), (2, 3))), ((None, 2), (None, 2)), ((np.int64(2), True), (2, 1)), (np.array([2, 3]), (2, 3)),
], ids=["blocks", "unknown size", "numbers", "array"])  # fmt: skip
def test_structs_keep_any_tuple_as_shape(shape, expected):
    struct = weft.ShapeDtypeStruct(shape, "float32")
    assert struct.shape == expected and struct.ndim == 2
    assert struct == weft.ShapeDtypeStruct(expected, "float32") and hash(struct) == hash(
        weft.ShapeDtypeStruct(expected, "float32")
    )


def test_structs_without_sizes_are_no_arguments():
    with pytest.raises(TypeError):
        weft.eval_shape(lambda x: x, weft.ShapeDtypeStruct(((3,), (2, 3)), "float32"))
