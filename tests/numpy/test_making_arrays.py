"""Arguments, errors and warnings of `array` and related functions."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp

MASKED = np.ma.array([1, 2], mask=[True, False])


def test_array_strips_masks_and_other_functions_refuse_them():
    assert wnp.array(MASKED).tolist() == [1, 2] and wnp.array(
        MASKED, np.float32, ndmin=2
    ).tolist() == [[1.0, 2.0]]
    for call in (
        wnp.asarray,
        weft.jit(wnp.array),
        lambda x: wnp.add(x, 1),
        lambda x: wnp.arange(2) + x,
        weft.device_put,
    ):
        with pytest.raises(ValueError, match="masked arrays are not supported"):
            call(MASKED)


@pytest.mark.parametrize("values", [None, [0.0, None], [[None]], [1, [None]]], ids=str)
@pytest.mark.parametrize("make", [wnp.array, wnp.asarray])
def test_none_is_no_value(make, values):
    with pytest.raises(ValueError, match="None is not a valid value"):
        make(values)


def test_python_integers_beyond_64_bits():
    for values in ([0, -(2**63) - 1], [2**70], [[1, 2**64]], [2**63, -1]):
        with pytest.raises(OverflowError, match="do not fit in int32"):
            wnp.array(values)
    np.testing.assert_allclose(wnp.array([2**70, 1.5]), np.array([2.0**70, 1.5]), rtol=1e-6)
    for values in ([object()], ["a"], [np.datetime64(1, "s")], [1, b"x"]):
        with pytest.raises(TypeError):
            wnp.array(values)


def test_options_of_array_have_names():
    x = wnp.arange(3)
    with pytest.warns(DeprecationWarning, match=r"by position.*array\(x, copy=False\)") as warned:
        assert wnp.array(x, None, False) is x
    assert warned[0].filename == __file__
    with (
        pytest.warns(DeprecationWarning),
        pytest.raises(TypeError, match="multiple values for argument 'copy'"),
    ):
        wnp.array(x, None, True, copy=False)
    with pytest.warns(DeprecationWarning), pytest.raises(TypeError, match="positional arguments"):
        wnp.array(x, None, True, "K", 0, "more")
    assert wnp.array(x, None, copy=False, order="K", ndmin=2).shape == (1, 3)


@pytest.mark.parametrize(
    "cast", [lambda x, t: x.astype(t), wnp.astype, lambda x, t: weft.jit(lambda x: x.astype(t))(x)]
)
def test_casts_of_complex_numbers_to_real_ones_warn(cast):
    z = wnp.array([1 + 2j, 3])
    for dtype in ("float32", "int8"):
        with pytest.warns(DeprecationWarning, match="Casting from complex to real") as warned:
            assert cast(z, dtype).tolist() == [1, 3]
        assert warned[0].filename == __file__
    assert cast(z, bool).tolist() == [True, True]
    assert cast(z, "complex64").dtype == cast(wnp.arange(2), "complex64").dtype == z.dtype


@pytest.mark.parametrize("shape", [1.0, (1.0, 2), (2, "a"), "ab", None], ids=str)
@pytest.mark.parametrize("make", [wnp.zeros, wnp.ones, lambda shape: wnp.full(shape, 1), wnp.empty])
def test_what_is_no_shape(make, shape):
    with pytest.raises(TypeError, match="a shape is an integer or a sequence of integers, got"):
        make(shape)


def test_whether_elements_are_complex():
    values = [
        1,
        1j,
        [1, 2j],
        [[1], [2j]],
        (),
        "text",
        None,
        np.zeros(2, np.complex64),
        wnp.zeros(2, complex),
        wnp.zeros(2),
        [wnp.array(1j)],
    ]
    assert [wnp.iscomplexobj(v) for v in values] == [
        False,
        True,
        True,
        True,
        False,
        False,
        False,
        True,
        True,
        False,
        True,
    ]
    assert weft.jit(wnp.iscomplexobj)([1.0, 2j]) and not weft.jit(wnp.isrealobj)(np.complex64(1))
    assert not weft.jit(wnp.iscomplexobj)([1.0, 2])


def test_choices_and_their_numbers_broadcast_together():
    a, choices = np.array([[0], [1], [2]]), [np.arange(4), np.full((3, 4), 10), np.int64(20)]
    for mode, shift in (("raise", 0), ("wrap", 5), ("clip", 1)):
        np.testing.assert_array_equal(
            wnp.choose(a + shift, choices, mode=mode), np.choose(a + shift, choices, mode=mode)
        )
    stacked = np.arange(24).reshape(3, 2, 4)
    np.testing.assert_array_equal(
        weft.jit(lambda a: wnp.choose(a, stacked, mode="clip"))(a[:2]), np.choose(a[:2], stacked)
    )
    with pytest.raises(ValueError, match="invalid entry in `a` of choose"):
        wnp.choose(a + 1, choices)


@pytest.mark.parametrize(
    "values, dtype, error",
    [
        (np.nan, "int32", ValueError),
        ([np.nan, 1.0], "int8", ValueError),
        (np.inf, "int32", OverflowError),
        ([-np.inf], "uint8", OverflowError),
        (1e10, "int32", OverflowError),
        ([1e10], "int32", OverflowError),
        (-2.7, "uint8", OverflowError),
        (300.0, "uint8", OverflowError),
        (1 + 2j, "float32", TypeError),
        ([1j, 2], "int32", TypeError),
    ],
    ids=str,
)
def test_python_numbers_that_a_dtype_does_not_hold(values, dtype, error):
    with pytest.raises(error, match=r"^array: "):
        wnp.array(values, dtype=dtype)


def test_python_numbers_are_truncated_as_python_truncates():
    assert wnp.array(2.7, "uint8") == 2 and wnp.array([-0.9, 255.9], "uint8").tolist() == [0, 255]
    assert wnp.array([1 + 0j], bool).tolist() == [True] and wnp.array(
        np.array([300.0]), "int32"
    ).tolist() == [300]


F = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda **out: wnp.compress(np.array([True]), F, **out), NotImplementedError),
        (lambda **out: wnp.asarray(F).compress(np.array([True]), **out), NotImplementedError),
        (lambda **out: wnp.choose(0, [F], **out), NotImplementedError),
        (lambda **out: wnp.take(F, 0, **out), NotImplementedError),
        (lambda **out: wnp.trace(F, **out), NotImplementedError),
        (lambda **out: wnp.outer(F, F, **out), NotImplementedError),
        (lambda **out: wnp.einsum("ij->i", F, **out), NotImplementedError),
        (lambda **out: wnp.stack([F], **out), NotImplementedError),
        (lambda **out: wnp.round(F, **out), NotImplementedError),
        (lambda **out: wnp.median(F, **out), ValueError),
        (lambda **out: wnp.quantile(F, 0.5, **out), ValueError),
        (lambda **out: wnp.percentile(F, 5, **out), ValueError),
        (lambda **out: wnp.nanmedian(F, **out), ValueError),
        (lambda **out: wnp.nanquantile(F, 0.5, **out), ValueError),
        (lambda **out: wnp.nanpercentile(F, 5, **out), ValueError),
    ],
)
def test_arrays_to_be_filled_are_refused(call, error):
    call(out=None)
    with pytest.raises(error, match="'out' argument"):
        call(out=np.zeros(3, np.float32))


@pytest.mark.parametrize(
    "call, error, says",
    [
        (
            lambda: weft.grad(wnp.sin, reduce_axes=("i",)),
            NotImplementedError,
            r"lax.psum\(ct, \('i',\)\)",
        ),
        (
            lambda: weft.value_and_grad(wnp.sin, reduce_axes=("i",)),
            NotImplementedError,
            "reduce_axes",
        ),
        (lambda: weft.vjp(wnp.sin, 1.0, reduce_axes=("i",)), NotImplementedError, "reduce_axes"),
        (
            lambda: weft.linear_transpose(wnp.negative, 1.0, reduce_axes=("i",)),
            NotImplementedError,
            "reduce_axes",
        ),
        (lambda: wnp.copy(F, order="F"), NotImplementedError, "row-major"),
        (lambda: wnp.isin(F, F, method="x"), ValueError, "'binary_search'"),
        (lambda: wnp.searchsorted(F[0], 1, method="x"), ValueError, "'scan'"),
        (lambda: wnp.digitize(F, F[0], method="x"), ValueError, "method='x'"),
        (lambda: weft.lax.approx_min_k(np.arange(3, dtype=np.uint8), 1), ValueError, "floating"),
        (lambda: weft.lax.approx_max_k(F, 1, recall_target=5.0), ValueError, "share"),
        (
            lambda: weft.lax.approx_max_k(F, 1, reduction_input_size_override=2),
            ValueError,
            "override=2 is less than the size 3",
        ),
        (lambda: wnp.meshgrid(F[0], copy=False), ValueError, "copy=True"),
        (lambda: wnp.meshgrid(F[0], copy=None), ValueError, "copy=True"),
        (lambda: wnp.median(F, overwrite_input=True), ValueError, "median: overwrite_input"),
        (lambda: wnp.nanmedian(F, overwrite_input=True), ValueError, "immutable"),
        (lambda: wnp.quantile(F, 0.5, overwrite_input=True), ValueError, "immutable"),
        (lambda: wnp.nanquantile(F, 0.5, overwrite_input=True), ValueError, "immutable"),
        (lambda: wnp.percentile(F, 50, overwrite_input=True), ValueError, "immutable"),
        (lambda: wnp.nanpercentile(F, 50, overwrite_input=True), ValueError, "immutable"),
        (lambda: wnp.take(F, 0, mode="raise"), NotImplementedError, "check no values"),
        (lambda: wnp.asarray(F).take(0, mode="raise"), NotImplementedError, "check no values"),
        (lambda: wnp.sort(F, kind="stable"), TypeError, "stable=True"),
        (lambda: wnp.asarray(F).argsort(kind="quicksort"), TypeError, "stable="),
        (lambda: wnp.ravel(F, order="K"), NotImplementedError, "'K'"),
        (lambda: wnp.ravel(F, order="A"), NotImplementedError, "'A'"),
        (lambda: wnp.asarray(F).flatten(order="A"), NotImplementedError, "'A'"),
        (lambda: wnp.reshape(F, 6, order="K"), ValueError, "'K'"),
        (
            lambda: weft.device_put({"a": F}, src={"b": None}),
            ValueError,
            "source specification must be a tree",
        ),
        (
            lambda: weft.new_ref(F, memory_space=weft.sharding.MemorySpace.Host),
            NotImplementedError,
            "inside of a jitted function",
        ),
        (
            lambda: weft.empty_ref(weft.typeof(F), "any"),
            NotImplementedError,
            "inside of a jitted function",
        ),
        (
            lambda: weft.nn.dot_product_attention(
                *[F.reshape(1, 2, 1, 3)] * 3, implementation="other"
            ),
            ValueError,
            "no implementation 'other'",
        ),
        (
            lambda: weft.nn.dot_product_attention(
                *[F.reshape(1, 2, 1, 3)] * 3, implementation="cudnn"
            ),
            NotImplementedError,
            "GPUs",
        ),
    ],
)
def test_options_that_would_be_lost_are_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()


@pytest.mark.parametrize(
    "call, error, says",
    [
        (lambda: wnp.arange(3, dtype=bool), TypeError, "bool"),
        (lambda: wnp.arange(True), TypeError, "bool"),
        (lambda: wnp.arange(None), TypeError, "give at least"),
        (lambda: wnp.arange(np.array([3])), ValueError, "must be scalars"),
        (lambda: wnp.meshgrid(F), ValueError, "vectors"),
        (lambda: wnp.meshgrid(1, 2), ValueError, "vectors"),
        (lambda: wnp.take(F, np.array([0.0])), ValueError, "integer type"),
        (lambda: wnp.choose(np.array([0.5]), [F]), ValueError, "integers"),
        (lambda: wnp.choose(0, []), ValueError, "at least one"),
        (lambda: wnp.insert(F, 1.5, 0), ValueError, "integers, booleans"),
        (lambda: wnp.insert(F, 9, 0, axis=1), IndexError, "within dim 1 of size 3"),
        (lambda: wnp.delete(F, 1.0), ValueError, "integers"),
        (lambda: wnp.resize(F, -1), ValueError, "non-negative"),
        (lambda: wnp.resize(F, (2, -1)), ValueError, "non-negative"),
        (lambda: wnp.split(F, 0), ValueError, "larger than 0"),
        (lambda: wnp.array_split(F, -1), ValueError, "larger than 0"),
        (lambda: wnp.split(F, 1.5), TypeError, "are integers"),
        (lambda: wnp.split(F, [0.5]), TypeError, "are integers"),
        (lambda: wnp.pad(F, 1.5), TypeError, "pad_width must hold integers"),
        (lambda: wnp.pad(F, True), TypeError, "must hold integers"),
        (lambda: wnp.bincount(np.ones((2, 2), int)), ValueError, "1-dimensional"),
        (lambda: wnp.bincount(3), ValueError, "1-dimensional"),
        (lambda: wnp.sort(F, kind="foo"), TypeError, "not supported, got 'foo'"),
        (lambda: wnp.argsort(F, order="x"), TypeError, "names fields"),
        (lambda: wnp.partition(F, 5), ValueError, "kth=5"),
        (lambda: wnp.argpartition(F, -4), ValueError, "kth=-4"),
        (lambda: wnp.isin(F, [1, 2]), TypeError, "list"),
        (lambda: wnp.tensordot(F, F, axes=[0]), TypeError, "a pair"),
        (lambda: wnp.tensordot(F, F, axes=1.5), TypeError, "a pair"),
        (lambda: wnp.tensordot(F, F, axes=([0], 0)), TypeError, "alike"),
        (lambda: wnp.tensordot(F, F, axes=("bad", "axes")), TypeError, "alike"),
        (lambda: wnp.tensordot(F, F, axes=([2], [0])), ValueError, "axis 2 is out of bounds"),
        (lambda: wnp.tensordot(F, 2.0, axes=(0, 0)), ValueError, "out of bounds"),
    ],
)
def test_arguments_that_are_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_arguments_in_other_forms():
    assert wnp.zeros(True).shape == (1,) and wnp.delete(F, []).tolist() == F.ravel().tolist()
    for sections in (2.0, np.int8(2), np.array(2), wnp.array(2)):
        assert [p.shape for p in wnp.split(F, sections)] == [(1, 3)] * 2
    assert [p.shape for p in wnp.split(F, (1, np.int8(2)), axis=1)] == [(2, 1)] * 3
    assert (
        weft.jit(lambda x: weft.new_ref(x, memory_space=weft.sharding.MemorySpace.Host)[...] + 1)(
            F
        ).tolist()
        == (F + 1).tolist()
    )
    assert weft.device_put([F, F], src=[weft.devices()[0], None])[1].tolist() == F.tolist()
    assert wnp.partition(F, (0, -1)).tolist() == F.tolist()
    assert [
        p.shape for p in weft.jvp(lambda n: wnp.split(wnp.zeros((4, 2)), n), (2.0,), (1.0,))[0]
    ] == [(2, 2)] * 2
    for sections in (lambda n: n, lambda n: [1, n]):
        with pytest.raises(weft.errors.ConcretizationTypeError):
            weft.jit(lambda n: wnp.split(wnp.zeros((4, 2)), sections(n)))(2.0)  # noqa: B023


@pytest.mark.parametrize("other", [[1], (1,), {1}, {}], ids=str)
@pytest.mark.parametrize("make", [wnp.array, lambda x: x])
def test_comparisons_with_containers_have_no_answer(make, other):
    def compare(x):
        for call in (lambda: x == other, lambda: x != other, lambda: other == x, lambda: x < other):
            with pytest.raises(TypeError, match=r"not supported|unsupported"):
                call()
        return x

    compare(wnp.array([1])) if make is wnp.array else weft.jit(compare)(wnp.array([1]))


def test_comparisons_with_other_objects():
    x = wnp.array([1])
    for other in (None, "a", b"a", object(), frozenset(), range(3), ...):
        assert (x == other) is False and (x != other) is True


def test_lists_are_stored_as_arrays():
    x = wnp.zeros((2, 3))
    for values in ([1, 2, 3], (1, 2, 3), [wnp.array(1), 2, 3.0]):
        assert (
            x.at[0].set(values)[0].tolist()
            == x.at[0].add(values)[0].tolist()
            == (-x.at[0].subtract(values))[0].tolist()
            == [1, 2, 3]
        )
        assert weft.jit(lambda x, values=values: x.at[0].set(values))(x)[0].tolist() == [1, 2, 3]
    assert (
        (x + 1).at[0].multiply([1, 2, 3])[0].tolist()
        == (x + 1).at[0].max([1, 2, 3])[0].tolist()
        == [1, 2, 3]
    )
    with pytest.raises(ValueError, match="None is not a valid value"):
        x.at[0].set([None])


@pytest.mark.parametrize(
    "use",
    [
        lambda x, w: x @ w,
        lambda x, w: x + wnp.sum(w),
        lambda x, w: x + wnp.asarray(w),
        lambda x, w: x + wnp.array(w),
        lambda x, w: wnp.dot(w, x),
        lambda x, w: x + wnp.where(x > 0, wnp.cumsum(w, 0), 0),
    ],
)
@pytest.mark.parametrize(
    "wrap",
    [lambda f: f, weft.grad, weft.vmap, weft.checkpoint],
    ids=["plain", "grad", "vmap", "checkpoint"],
)
def test_a_numpy_array_is_one_constant_of_a_program(use, wrap):
    w = np.arange(9, dtype=np.float32).reshape(3, 3)
    ones, once = (
        wnp.ones((2, 3, 3)) if wrap is weft.vmap else wnp.ones((3, 3)),
        (lambda x: use(x, w).sum()),
    )
    f = lambda x: (use(use(x, w), w) + use(x, w)).sum()
    program = weft.make_jaxpr(wrap(f))(ones)
    assert len(program.consts) <= len(weft.make_jaxpr(wrap(once))(ones).consts)


def test_numpy_arrays_changed_during_tracing_are_separate():
    def f(x):
        w, total = np.zeros((2, 2), np.float32), x
        for i in range(3):
            w[:] = i
            total = total + wnp.sum(w) + wnp.asarray(w)
        w[0, 0] = np.nan
        return total + wnp.asarray(w) + wnp.asarray(w)

    got = np.asarray(weft.jit(f)(wnp.zeros((2, 2))))
    assert np.isnan(got[0, 0]) and got[1, 1] == (1 + 2) * 5 + 4


@pytest.mark.parametrize(
    "transform",
    [lambda f: f, weft.grad, lambda f: weft.vmap(f, in_axes=None, axis_size=2), weft.checkpoint],
)
@pytest.mark.parametrize("make", [wnp.array, wnp.copy, lambda x: wnp.array(np.asarray(x))])
def test_a_copy_of_an_array_from_outside_has_memory_of_its_own(transform, make):
    x = wnp.arange(6.0)
    step = weft.jit(lambda c, other: c + other, donate_argnums=0)

    def f(a):
        copied = make(x)
        return (step(copied, x) * a).sum()

    transform(f)(1.0)
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
