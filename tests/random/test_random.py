"""Random numbers: golden values, independence of layouts and transformations, errors."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.random.cases import CASES, WIDE
from weft import lax, random
from weft._engine import hooks
from weft._engine.util.config import Override

GOLDEN = np.load(pathlib.Path(__file__).with_name("golden.npz"))
EXACT = 0
ROUNDED = {"float32": 2e-5, "float64": 1e-12, "bfloat16": 0.02, "float16": 2e-3, "complex64": 2e-5}


def check(result, want, dtype: str):
    assert result.dtype.name == dtype
    value = np.asarray(result)
    value = value.astype(np.float32) if dtype in ("bfloat16", "float16") else value
    assert value.shape == want.shape
    if dtype in ROUNDED:
        np.testing.assert_allclose(value, want, rtol=ROUNDED[dtype], atol=ROUNDED[dtype])
    else:
        np.testing.assert_array_equal(value, want)


@pytest.mark.parametrize("layout", ["new", "old"])
@pytest.mark.parametrize("name", [*CASES, *WIDE])
def test_golden(name, layout):
    with weft.threefry_partitionable(layout == "new"), weft.enable_x64(name in WIDE):
        numbers = {**CASES, **WIDE}[name](random, wnp, random.PRNGKey(7))
        check(numbers, GOLDEN[f"{layout}|{name}"], str(GOLDEN[f"{layout}|{name}|dtype"]))


def test_typed_and_raw_keys_draw_the_same():
    raw, typed = random.PRNGKey(3), random.key(3)
    assert typed.dtype.name == "key<fry>" and typed.shape == ()
    np.testing.assert_array_equal(random.normal(raw, (4,)), random.normal(typed, (4,)))
    np.testing.assert_array_equal(random.split(raw, 3), random.key_data(random.split(typed, 3)))
    np.testing.assert_array_equal(random.key_data(random.wrap_key_data(raw)), raw)


def test_transformations_do_not_change_draws():
    key = random.PRNGKey(0)
    keys = random.split(key, 3)
    want = np.stack([np.asarray(random.uniform(k, (5,))) for k in keys])
    np.testing.assert_array_equal(weft.vmap(lambda k: random.uniform(k, (5,)))(keys), want)
    np.testing.assert_array_equal(
        weft.jit(weft.vmap(lambda k: random.uniform(k, (5,))))(keys), want
    )
    np.testing.assert_array_equal(
        weft.vmap(lambda i: random.fold_in(key, i))(wnp.arange(3))[2], random.fold_in(key, 2)
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("mode", ["high", "highest"])
def test_large_gumbel_samples_are_as_rare_as_they_should_be(mode, dtype):
    """Those of probabilities below the rounding of one random number."""
    step = float(weft.numpy.finfo(dtype).eps) if dtype != "float32" else 1e-4
    count = 1 << 20
    sample = random.gumbel(random.key(0), (count,), dtype, mode=mode)
    for p in (0.25 * step, 1.5 * step):
        share = int((sample > wnp.asarray(-np.log(-np.log1p(-p)), dtype)).sum()) / count
        assert 0.6 * p < share < 1.5 * p


def test_rare_events_happen_as_often_as_they_should():
    p, count = 1e-9, 1 << 24
    low, high = (
        int(random.bernoulli(random.key(0), wnp.float32(p), (count,), mode).sum())
        for mode in ("low", "high")
    )
    assert low >= 1 and high == 0  # one draw of 24 bits meets 0, however small `p` is


def test_the_setting_chooses_the_mode_of_gumbel_samples():
    key, high = random.key(1), random.gumbel(random.key(1), (3,), mode="high")
    assert not np.array_equal(random.gumbel(key, (3,)), high)
    with Override(high_dynamic_range_gumbel=True):
        np.testing.assert_array_equal(random.gumbel(key, (3,)), high)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda k: random.gumbel(k, (2,), mode="best"), ValueError, "'highest'"),
        (lambda k: random.categorical(k, np.zeros(3), mode="best"), ValueError, "'highest'"),
        (lambda k: random.bernoulli(k, 0.5, mode="highest"), ValueError, "'high'"),
        (lambda k: random.choice(k, 5, 2), TypeError, r"\(2,\)"),
        (lambda k: random.choice(k, 5, np.int32(2), replace=False), TypeError, "sequence"),
    ],
)
def test_modes_and_shapes_that_do_not_exist(call, error, words):
    with pytest.raises(error, match=words):
        call(random.key(0))


def test_bits_are_as_wide_as_numbers_by_default():
    assert random.bits(random.key(0)).dtype == np.uint32
    with weft.enable_x64(True):
        assert random.bits(random.key(0)).dtype == np.uint64


def test_bits_depend_on_the_position_alone():
    key = random.PRNGKey(1)
    with weft.threefry_partitionable(True):
        flat = np.asarray(random.bits(key, (24,)))
        np.testing.assert_array_equal(np.asarray(random.bits(key, (2, 3, 4))).ravel(), flat)
        np.testing.assert_array_equal(np.asarray(random.bits(key, (7,))), flat[:7])


def test_samples_have_the_moments_they_should():
    key = random.PRNGKey(2)
    x = np.asarray(random.normal(key, (20000,)))
    assert abs(x.mean()) < 0.03 and abs(x.std() - 1) < 0.03
    u = np.asarray(random.uniform(key, (20000,), minval=2.0, maxval=4.0))
    assert 2 <= u.min() and u.max() < 4 and abs(u.mean() - 3) < 0.02
    t = np.asarray(random.truncated_normal(key, -1.0, 2.0, (5000,)))
    assert -1 < t.min() and t.max() < 2
    p = np.asarray(random.permutation(key, 1000))
    assert sorted(p) == list(range(1000)) and not np.array_equal(p, np.arange(1000))
    q = np.asarray(random.orthogonal(key, 4, (3,)))
    np.testing.assert_allclose(
        q @ q.swapaxes(-1, -2), np.broadcast_to(np.eye(4), (3, 4, 4)), atol=1e-5
    )


def test_gradients_pass_through_parameters():
    key = random.PRNGKey(5)
    slope = weft.grad(lambda b: random.uniform(key, (4,), minval=0.0, maxval=b).sum())(2.0)
    np.testing.assert_allclose(slope, np.asarray(random.uniform(key, (4,))).sum(), rtol=1e-5)


def test_gamma_samples_move_with_their_parameter():
    """The samples are the inverse of the distribution function at fixed numbers, so P(a, x(a)) stays where it is."""
    key, a = random.PRNGKey(5), wnp.array([0.3, 1.5, 20.0, 400.0])
    x, slope = weft.jvp(lambda a: random.gamma(key, a), (a,), (wnp.ones(4),))
    _, level = weft.jvp(lambda a, x: lax.igamma(a, x), (a, x), (wnp.ones(4), slope))
    np.testing.assert_allclose(level, np.zeros(4), atol=2e-5)
    log_slope = weft.grad(lambda a: random.loggamma(key, a).sum())(a)
    np.testing.assert_allclose(log_slope, slope / x, rtol=1e-4)
    assert float(weft.grad(lambda a: random.loggamma(key, a))(1e-4)) > 1e4


def test_rejection_under_jit_and_vmap():
    keys = random.split(random.PRNGKey(3), 3)
    rates = wnp.array([1.0, 30.0])
    for draw in (random.gamma, random.poisson):
        want = np.stack([np.asarray(draw(k, rates)) for k in keys])
        np.testing.assert_allclose(
            weft.jit(weft.vmap(lambda k, draw=draw: draw(k, rates)))(keys), want, rtol=1e-6
        )


@pytest.mark.parametrize(
    "call, error, says",
    [
        (lambda k: random.poisson(k, 1.0, dtype="float32"), ValueError, "int dtype"),
        (lambda k: random.dirichlet(k, 1.0), ValueError, "at least one dim"),
        (lambda k: random.PRNGKey(1.5), TypeError, "integer"),
        (lambda k: random.uniform(k, (2,), "int32"), ValueError, "float dtype"),
        (lambda k: random.normal(wnp.stack([k, k]), (2,)), ValueError, "single key"),
        (lambda k: random.uniform(wnp.zeros(2), (2,)), TypeError, "key"),
        (lambda k: random.choice(k, 3, (5,), replace=False), ValueError, "larger sample"),
        (lambda k: random.choice(k, 0, (5,)), ValueError, "greater than 0"),
        (lambda k: random.randint(k, (2,), 0, 3, "float32"), TypeError, "integer dtypes"),
        (lambda k: random.bits(k, (2,), "int32"), ValueError, "unsigned"),
        (
            lambda k: random.key(0, impl="philox"),
            ValueError,
            "unrecognized PRNG implementation .philox.",
        ),
    ],
)
def test_errors(call, error, says):
    with pytest.raises(error, match=says):
        call(random.PRNGKey(0))


@pytest.mark.parametrize(
    "draw",
    [  # sizes that no other test uses
        lambda k: random.normal(k, (37,)),
        lambda k: random.uniform(k, (37,), minval=-2.0, maxval=3.0),
        lambda k: random.split(k, 37),
        lambda k: random.categorical(k, np.zeros((37, 5), np.float32)),
    ],
    ids=["normal", "uniform", "split", "categorical"],
)
def test_a_draw_is_one_program(draw, monkeypatch):
    compilations = []
    key = random.PRNGKey(11)
    monkeypatch.setattr(hooks, "after_compilation", [compilations.append])
    eager = draw(key)
    assert len(compilations) == 1
    np.testing.assert_array_equal(eager, weft.jit(draw)(key))


def test_multivariate_normal_has_the_dtype_of_what_it_is_given():
    with Override(enable_x64=True):
        key, root = weft.random.key(0), np.eye(2)
        dtypes = [
            weft.random.multivariate_normal(key, np.zeros(2, a), root.astype(b)).dtype.name
            for a, b in (("f4", "f4"), ("f4", "f8"), ("i4", "f4"), ("i4", "i4"))
        ]
        assert dtypes == ["float32", "float64", "float32", "float64"]


def test_multivariate_normal_of_half_floats_factors_in_cov_dtype():
    sample = weft.random.multivariate_normal(
        weft.random.key(0), np.ones(2, "f4"), 4 * np.eye(2, dtype="f4"), (3,), dtype=np.float16
    )
    halves = weft.random.normal(weft.random.key(0), (3, 2), np.float16)
    assert sample.dtype == np.float32
    np.testing.assert_allclose(sample, 1 + 2 * np.asarray(halves, "f4"), atol=4e-3)
    with pytest.raises(
        ValueError, match=r"multivariate_normal: mean must be a vector.*shapes \(\)"
    ):
        weft.random.multivariate_normal(weft.random.key(0), np.float32(1), np.eye(2))


def test_keys_by_their_dtype():
    old = random.key(3, impl="rbg")
    for sample in (
        random.key(3, dtype=old.dtype),
        random.key(3, dtype="rbg"),
        random.wrap_key_data(random.key_data(old), dtype=old.dtype),
    ):
        assert sample.dtype == old.dtype and bool(sample == old)
    with pytest.raises(ValueError, match="Cannot specify both"):
        random.key(0, impl="rbg", dtype="rbg")
    with pytest.raises(ValueError, match="unrecognized PRNG implementation 'x'"):
        random.key(0, impl="x")
    for dtype in (object(), np.float32, np.dtype("uint32")):
        with pytest.raises(TypeError):
            random.key(0, dtype=dtype)


def test_keys_of_several_shapes_are_compared():
    one, many = random.key(1), random.split(random.key(0), 4).at[1:3].set(random.key(1))
    assert (one == many).tolist() == [False, True, True, False] and (many != one).tolist() == [
        True,
        False,
        False,
        True,
    ]
    for by in (lambda f: f, weft.jit, lambda f: weft.vmap(f, (0, None))):
        assert by(lax.eq)(many, one).tolist() == [False, True, True, False] and by(lax.ne)(
            many, one
        ).tolist() == [True, False, False, True]
    with pytest.raises(
        ValueError, match=r"eq: got operands of different shapes[\s\S]*key<fry>\[4\]"
    ):
        lax.eq(many, many[:2])


def test_keys_do_not_become_numbers_once_they_were_printed():
    keys = random.split(random.key(0), 3)
    assert "overlaying" in repr(keys)  # reads their data
    for read in (
        np.asarray,
        lambda k: k.tolist(),
        lambda k: k.item(0),
        lambda k: k.tobytes(),
        lambda k: k.view(np.uint32),
        wnp.unique,
    ):
        with pytest.raises(TypeError, match="key_data"):
            read(keys)
    for number in (bool, int, float, complex):
        with pytest.raises(TypeError, match="random keys are not numbers"):
            number(keys[0])
        with pytest.raises(TypeError):
            weft.jit(number)(keys[0])


def test_raw_keys_are_refused_where_the_setting_says_so():
    raw = random.PRNGKey(0)
    want = random.uniform(raw)
    with weft.legacy_prng_key("error"), pytest.raises(ValueError, match="Legacy uint32 key array"):
        random.uniform(raw)
    with weft.legacy_prng_key("warn"), pytest.warns(UserWarning, match="Legacy uint32 key array"):
        assert random.uniform(raw) == want
    with weft.legacy_prng_key("error"):
        assert random.uniform(random.key(0)) == want


def test_seeds_on_a_device_make_keys_there():
    seed = weft.device_put(np.int32(42))
    with weft.transfer_guard("disallow"):
        assert random.key_data(random.key(seed)) is not None


def test_seeds_and_bounds_that_fit_nowhere():
    with pytest.raises(OverflowError, match="int64"):
        random.key(1 << 63)
    for low, high, dtype in (
        (0, 2**31 + 1, "int32"),
        (-(2**31) - 1, 5, "int32"),
        (0, 2**40, "int8"),
    ):
        with pytest.raises(OverflowError, match="does not fit"):
            random.randint(random.key(0), (2,), low, high, dtype)
    assert random.randint(random.key(0), (2,), -1000, 1000, "uint8").dtype == np.uint8


@pytest.mark.parametrize("axis", range(-3, 3))
@pytest.mark.parametrize("batch", [(3, 4), (3, 1), (1, 4)])
def test_shapes_of_categories_broadcast(batch, axis):
    shape = list(batch)
    shape.insert(axis % 3, 5)
    drawn = random.categorical(random.key(0), wnp.ones(shape), axis, (2, 3, 4))
    assert drawn.shape == (2, 3, 4) and len(np.unique(drawn)) == 5
    with pytest.raises(ValueError):
        random.categorical(random.key(0), wnp.ones(shape), axis, (2, 5))
    with pytest.raises(ValueError, match="without replacement"):
        random.categorical(random.key(0), wnp.ones(shape), axis, (6, 3, 4), replace=False)


def test_permutations_that_are_refused():
    with pytest.raises(ValueError, match="axis 1"):
        random.permutation(random.key(0), 3, axis=1)
    with pytest.raises(TypeError):
        random.permutation(random.key(0), 3.0)
    with pytest.raises(weft.errors.ConcretizationTypeError):
        weft.jit(random.permutation)(random.key(0), 3)
    with pytest.raises(TypeError, match="Shapes must be 1D"):
        weft.jit(lambda n: random.normal(random.key(0), (n, 2)))(3)


def test_choice_refuses_a_traced_number_of_values():
    number = wnp.array(5)
    assert random.choice(random.key(0), number, (2,)).shape == (2,)
    for draw in (
        lambda: random.choice(random.key(0), wnp.array(5), (2,)),
        lambda n=number: random.choice(random.key(0), n + 1),
    ):
        with pytest.raises(weft.errors.ConcretizationTypeError):
            weft.jit(draw)()


def test_large_arrays_count_their_elements_in_two_words(monkeypatch):
    """Positions of arrays of more than 2**32 elements, on small ones that are taken for such."""
    from weft._engine.ops import bit_generator

    monkeypatch.setattr(bit_generator, "_ROW", 4)
    for shape in ((3, 5, 7), (9,)):
        want = np.arange(np.prod(shape)).reshape(shape)
        monkeypatch.setattr(
            bit_generator, "math", type("Math", (), {"prod": staticmethod(lambda shape: 1 << 40)})
        )
        low, high = bit_generator.positions(shape)
        np.testing.assert_array_equal(low, want)
        assert not np.asarray(high).any()
    monkeypatch.undo()
    numbers, factor = np.array([7 + (1 << 32), (2 << 32) - 1], np.uint64), (1 << 33) + 5
    words = [(numbers >> np.uint64(s)).astype(np.uint32) for s in (0, 32)]
    low, high = (np.asarray(w).astype(np.uint64) for w in bit_generator._times(words, factor))
    np.testing.assert_array_equal(low | high << np.uint64(32), numbers * np.uint64(factor))
    assert weft.eval_shape(lambda: random.normal(random.key(0), (10**12,))).shape == (10**12,)


@pytest.mark.parametrize(
    "draw",
    [
        lambda k, a, s: random.rayleigh(k, a, s),
        lambda k, a, s: random.pareto(k, a, s),
        lambda k, a, s: random.lognormal(k, a, s),
        lambda k, a, s: random.triangular(k, 0.0, a / 2, a, s),
        lambda k, a, s: random.wald(k, a, s),
        lambda k, a, s: random.t(k, a, s),
        lambda k, a, s: random.randint(k, s or (), 0, (5 * a).astype(int)),
        lambda k, a, s: random.multivariate_normal(k, wnp.zeros((*a.shape, 3)), wnp.eye(3), s),
    ],
)
def test_the_shape_of_samples_has_room_for_the_parameters(draw):
    key, a = random.key(0), wnp.array([1.0, 3.0])
    assert draw(key, a, (4, 2)).shape[:2] == (4, 2)
    for shape in ((), (3,), (2, 1)):
        with pytest.raises(ValueError, match=r"shape|broadcast"):
            draw(key, a, shape)


def test_samples_for_each_pair_of_parameters():
    sample = random.double_sided_maxwell(random.key(0), wnp.zeros((2, 1)), wnp.ones(3), (4,))
    assert sample.shape == (4, 2, 3) and random.t(random.key(0), wnp.ones(3)).shape == (3,)
    with pytest.raises(ValueError, match="covariances of shape"):
        random.multivariate_normal(random.key(0), wnp.zeros(2), wnp.eye(3))


@pytest.mark.parametrize(
    "name, args",
    [
        ("maxwell", ()),
        ("rayleigh", (1.0,)),
        ("pareto", (1.0,)),
        ("weibull_min", (1.0, 2.0)),
        ("lognormal", ()),
        ("orthogonal", (2,)),
        ("triangular", (0.0, 0.5, 1.0)),
        ("multivariate_normal", (np.zeros(2), np.eye(2))),
        ("chisquare", (2.0,)),
        ("dirichlet", (np.ones(2),)),
        ("categorical", (np.zeros(2),)),
        ("rademacher", ()),
        ("gumbel", ()),
    ],
)
def test_errors_name_the_function_that_was_called(name, args):
    with pytest.raises(
        ValueError,
        match=f"{name} accepts a single key, but was given a key array of shape \\(2,\\)",
    ):
        getattr(random, name)(random.split(random.key(0)), *args)


@pytest.mark.parametrize("name", ["key", "PRNGKey"])
def test_seeds_are_single_numbers(name):
    for seed in (np.arange(4), random.key(0)):
        with pytest.raises(TypeError, match=f"{name} accepts a scalar seed"):
            getattr(random, name)(wnp.asarray(seed) if isinstance(seed, np.ndarray) else seed)


@pytest.mark.parametrize(
    "f",
    [
        lambda k: k + 1,
        lambda k: 2.0 * k,
        lambda k: k == 1,
        lambda k: wnp.maximum(k, 1),
        lambda k: wnp.where(True, k, 1),
        lambda k: k + k,
        lambda k: k < k,
        lambda k: -k,
        wnp.sum,
        wnp.sin,
        lambda k: lax.dot(k[None], k[None]),
        lambda k: k[None] @ k[None],
        lambda k: k[None].at[0].add(k),
        lambda k: k[None].at[0].max(k),
        lambda k: lax.conv(k[None, None, None], k[None, None, None], (1,), "SAME"),
        lambda k: weft.ops.segment_sum(k[None], np.array([0]), 1),
        lambda k: lax.eq(k, 3),
        wnp.any,
    ],
)
def test_keys_are_not_numbers(f):
    with pytest.raises(TypeError):
        f(random.key(0))
    with pytest.raises(TypeError):
        weft.jit(f)(random.key(0))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.parametrize(
    "around",
    [
        weft.jit,
        weft.checkpoint,
        lambda f: weft.grad(weft.checkpoint(f)),
        lambda f: lambda w: lax.cond(w > 0, weft.jit(f), lambda w: w, w),
        lambda f: (
            lambda w: lax.scan(lambda c, _: (c + weft.jit(f)(w), None), 0.0, None, length=2)[0]
        ),
    ],
    ids=["jit", "checkpoint", "grad", "cond", "scan"],
)
def test_programs_in_programs_close_over_keys(around, impl):
    key, keys = random.key(0, impl=impl), random.split(random.key(1, impl=impl), 3)

    def f(w):
        return (
            w
            * w
            * (
                random.uniform(key)
                + weft.vmap(random.uniform)(keys).sum()
                + random.key_data(keys).ravel()[0]
            )
        )

    np.testing.assert_allclose(weft.jit(around(f))(2.0), around(f)(2.0), rtol=1e-6)
    np.testing.assert_allclose(
        weft.jit(lambda w: around(f)(w) + 1.0)(2.0), around(f)(2.0) + 1.0, rtol=1e-6
    )
