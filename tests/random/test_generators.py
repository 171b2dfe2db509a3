"""Generators other than threefry: known values, vmap, sharded against whole, `lax.rng_bit_generator`."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax, random
from weft.sharding import NamedSharding, PartitionSpec as P

#: What JAX 0.10.2 gives for `key(12345)`.
KNOWN = {
    "rbg": {
        "split": [
            [1214163296, 439912094, 1214163296, 439912094],
            [867802714, 3762255628, 867802714, 3762255628],
        ],
        "fold_in": [192821482, 202942126, 192821482, 202942126],
        "randint": [25, 11, 61, 60],
    },
    "unsafe_rbg": {
        "split": [
            [847567024, 4182599256, 3536455182, 1231866431],
            [1860032690, 2313587092, 550454279, 2024852171],
        ],
        "fold_in": [2209715662, 1223095492, 1348790256, 3618624115],
        "randint": [48, 1, 86, 87],
    },
}
both = pytest.mark.parametrize("impl", KNOWN)

BLOCKS = {
    "philox2x32": {
        "data": [3750049204],
        "split": [[2595152097], [925778429]],
        "fold_in": [3555928645],
        "randint": [37, 1, 38, 66],
        "bits": [3551108459, 3266896040, 1437483538],
        "small": [107, 168, 18],
        "wide": [11146093385986047370, 3976188080017547605],
        "long": [273301894],
    },
    "philox4x32": {
        "data": [139010060, 1091201330],
        "split": [[4243951999, 2279796743], [4058390187, 1476117703]],
        "fold_in": [3681636203, 3720434478],
        "randint": [0, 10, 29, 30],
        "bits": [2924018621, 613881126, 145115460],
        "small": [189, 38, 68],
        "wide": [18227635043778621447, 3276131901991629584],
        "long": [4054286563, 3968804895],
    },
    "threefry4x32": {
        "data": [1644045203, 3692622613, 1027768007, 858343508],
        "split": [
            [2662652750, 4244609403, 3694917585, 1383406853],
            [1613881673, 957050990, 3270926629, 3667745093],
        ],
        "fold_in": [2324214146, 1789394490, 3654376769, 2531960268],
        "randint": [33, 8, 67, 95],
        "bits": [3959793889, 3176445988, 3016989425],
        "small": [225, 36, 241],
        "wide": [4796101192512603262, 3223762722083152697],
        "long": [2622904193, 697587529, 4243082074, 2720968090],
    },
}


@pytest.mark.parametrize("impl", BLOCKS)
def test_known_values_of_block_functions(impl):
    key, known = random.key(12345, impl=impl), BLOCKS[impl]
    assert random.key_impl(key) == impl and random.key_data(key).tolist() == known["data"]
    assert random.key_data(random.split(key, 2)).tolist() == known["split"]
    assert random.key_data(random.split(key, (2, 1))).tolist() == [[row] for row in known["split"]]
    assert random.key_data(random.fold_in(key, 77)).tolist() == known["fold_in"]
    assert random.randint(key, (4,), 0, 100).tolist() == known["randint"]
    assert (
        random.bits(key, (3,)).tolist() == known["bits"]
        and random.bits(key, (3,), "uint8").tolist() == known["small"]
    )
    with weft.enable_x64(True):
        assert random.bits(key, (2,), "uint64").tolist() == known["wide"]
        assert random.key_data(random.key(2**40 + 5, impl=impl)).tolist() == known["long"]


@both
def test_known_values(impl):
    key, known = random.key(12345, impl=impl), KNOWN[impl]
    assert random.key_impl(key) == impl and random.key_data(key).tolist() == [0, 12345, 0, 12345]
    assert random.bits(key, (5,)).tolist() == [
        847567024,
        4182599256,
        3536455182,
        1231866431,
        2619034691,
    ]
    assert random.bits(key, (3,), "uint8").tolist() == [176, 88, 14]
    assert random.key_data(random.split(key, 2)).tolist() == known["split"]
    assert random.key_data(random.split(key, (2, 1))).tolist() == [[row] for row in known["split"]]
    assert random.key_data(random.fold_in(key, 77)).tolist() == known["fold_in"]
    assert random.randint(key, (4,), 0, 100).tolist() == known["randint"]
    np.testing.assert_allclose(
        random.normal(key, (3,)),
        [-0.851162314414978, 1.9404466152191162, 0.9283815026283264],
        rtol=1e-6,
    )
    with weft.enable_x64(True):
        assert random.bits(random.key(1, impl=impl), (2,), "uint64").tolist() == [
            1372258198025814887,
            12700770364969126184,
        ]


every = pytest.mark.parametrize("impl", [*KNOWN, *BLOCKS])


@pytest.mark.parametrize("impl", BLOCKS)
def test_a_mapped_function_gives_what_it_gives_for_each_key(impl):
    keys = random.split(random.key(3, impl=impl), 4)
    draw = lambda k: random.normal(random.split(k)[0], (5,))
    np.testing.assert_array_equal(weft.vmap(draw)(keys), np.stack([draw(k) for k in keys]))


@both
@pytest.mark.parametrize("wrapped", [lambda f: f, weft.jit], ids=["eager", "jit"])
def test_a_batch_of_keys_draws_from_its_first(impl, wrapped):
    keys = random.split(random.key(3, impl=impl), (2, 3))
    draws = (
        lambda k, n: random.bits(k, (*n, 4), "uint8"),
        lambda k, n: random.uniform(k, n),
        lambda k, n: random.normal(k, (*n, 2)),
    )
    for draw in draws:
        np.testing.assert_array_equal(
            wrapped(weft.vmap(lambda k, d=draw: d(k, ())))(keys[0]), draw(keys[0, 0], (3,))
        )
        np.testing.assert_array_equal(
            wrapped(weft.vmap(weft.vmap(lambda k, d=draw: d(k, ()))))(keys),
            draw(keys[0, 0], (2, 3)),
        )
    data = random.key_data(keys[0])
    np.testing.assert_array_equal(
        weft.vmap(lambda k: random.bits(random.wrap_key_data(k, impl=impl)))(data),
        random.bits(keys[0, 0], (3,)),
    )


def test_new_keys_of_a_batch():
    keys = random.split(random.key(3, impl="unsafe_rbg"), 3)
    split_keys = weft.vmap(lambda k: random.split(k, 2))(keys)
    np.testing.assert_array_equal(
        random.key_data(split_keys), random.key_data(random.split(keys[0], (3, 2)))
    )
    keys = random.split(random.key(3, impl="rbg"), 3)  # whose new keys do not come from bits
    for fun in (random.split, lambda k: random.fold_in(k, 5)):
        each = [random.key_data(fun(k)) for k in keys]
        np.testing.assert_array_equal(random.key_data(weft.vmap(fun)(keys)), np.stack(each))


@both
def test_samples_by_rejection_come_from_their_own_keys(impl):
    """Samples equal a loop over the keys, and JAX 0.10.2's values for `split(key(73), 3)`."""
    keys = random.split(random.key(73, impl=impl), 3)
    samples = weft.vmap(lambda k: random.gamma(k, 2.0))(keys)
    np.testing.assert_array_equal(
        samples, lax.map(lambda k: random.gamma(k, 2.0), keys) if impl == "rbg" else samples
    )
    known = {"rbg": [0.1702, 2.2622, 3.5231], "unsafe_rbg": [0.3283, 0.9028, 2.5242]}[impl]
    np.testing.assert_allclose(
        random.gamma(random.key(73, impl=impl), wnp.array([0.5, 2.0, 3.0])), known, atol=1e-4
    )
    assert impl in random.key_impl_names and len(random.key_impl_names) == 6


@both
def test_loops_that_end_for_each_key_by_itself_draw_by_each(impl):
    """The first key is constant after its loop ends; numbers drawn from it would never change for the others."""
    keys = random.split(random.key(5, impl=impl), 16)

    def until(k):
        return lax.while_loop(
            lambda s: s[1] < 0.8, lambda s: (random.split(s[0])[0], random.uniform(s[0])), (k, 0.0)
        )[1]

    for sample in (
        weft.vmap(until)(keys),
        weft.jit(weft.vmap(until))(keys),
        weft.vmap(weft.vmap(until))(keys.reshape(4, 4)).ravel(),
    ):
        np.testing.assert_array_equal(sample, np.stack([until(k) for k in keys]))
    samples = weft.vmap(lambda k: random.binomial(k, 1000.0, 0.4, (3,)))(keys)
    assert bool((wnp.abs(samples - 400) < 100).all()) and bool(
        (weft.vmap(lambda k: random.poisson(k, 50.0))(keys) < 200).all()
    )


@every
def test_keys_go_through_loops(impl):
    keys = random.split(random.key(3, impl=impl), 4)
    folded = lax.fori_loop(0, 3, lambda i, k: random.fold_in(k, i), keys[0])
    assert folded.dtype.name == keys.dtype.name


@every
def test_every_sharding_gives_the_same(impl):
    mesh = weft.make_mesh((4, 2), ("a", "b"))
    key = random.key(5, impl=impl)
    want = np.asarray(random.bits(key, (8, 6)))
    for spec in (P("a"), P("a", "b"), P(None, "b"), P(("b", "a"))):
        draw = weft.jit(lambda k: random.bits(k, (8, 6)), out_shardings=NamedSharding(mesh, spec))
        np.testing.assert_array_equal(draw(key), want)
        assert not weft.explain(draw, key).collectives


@both
def test_every_draw_accepts_the_key(impl):
    key = random.key(1, impl=impl)
    assert sorted(random.permutation(key, 10).tolist()) == list(range(10))
    assert (
        random.choice(key, 10, (3,)).shape == (3,)
        and random.categorical(key, wnp.zeros(4)).shape == ()
    )
    for drawn in (
        random.gamma(key, 3.0, (20,)),
        random.beta(key, 2.0, 3.0, (20,)),
        random.poisson(key, 4.0, (20,)),
    ):
        assert bool((drawn >= 0).all())
    assert abs(float(random.normal(key, (10000,)).mean())) < 0.05


def test_the_default_generator_is_a_setting():
    with weft.default_prng_impl("rbg"):
        raw = random.PRNGKey(4)
        assert (
            raw.shape == (4,)
            and random.key(4).dtype.name == "key<rbg>"
            and random.key_impl(raw) == "rbg"
        )
        np.testing.assert_array_equal(
            random.uniform(raw, (3,)), random.uniform(random.key(4, impl="rbg"), (3,))
        )
    with pytest.raises(TypeError, match=r"uint32\[2\]"):
        random.bits(raw)
    with pytest.raises(TypeError, match=r"key data of rbg must be uint32\[\.\.\., 4\]"):
        random.wrap_key_data(wnp.zeros((2, 2), "uint32"), impl="rbg")


@pytest.mark.parametrize("algorithm", [1, 2])
def test_a_batch_of_states_draws_from_its_first(algorithm):
    states = random.bits(random.key(0), (3, 4))
    after, bits = weft.vmap(lambda s: lax.rng_bit_generator(s, (5,), algorithm=algorithm))(states)
    first, want = lax.rng_bit_generator(states[0], (3, 5), algorithm=algorithm)
    np.testing.assert_array_equal(bits, want)
    np.testing.assert_array_equal(after, np.stack([first, *states[1:]]))


STATE = np.array([1, 2, 0xFFFFFFFE, 0xFFFFFFFF], np.uint32)


@pytest.mark.parametrize(
    ("algorithm", "shape", "after", "bits"),
    [
        (1, (5,), [1, 2, 1, 0], [4115258991, 2695274985, 3850963268, 2619805951, 629071667]),
        (
            1,
            (2, 3),
            [1, 2, 1, 0],
            [[4115258991, 3850963268, 629071667], [2695274985, 2619805951, 2343584484]],
        ),
        (1, (), [1, 2, 4294967295, 4294967295], 4115258991),
        (2, (5,), [1, 2, 0, 0], [2440199171, 2734589407, 1297845474, 626431447, 875035680]),
        (
            2,
            (2, 3),
            [1, 2, 0, 0],
            [[2440199171, 2734589407, 1297845474], [626431447, 875035680, 2457449792]],
        ),
        (2, (), [1, 2, 4294967295, 4294967295], 2440199171),
        (0, (1,), [1, 2, 4294967295, 4294967295], [2440199171]),
    ],
)
def test_rng_bit_generator(algorithm, shape, after, bits):
    state, drawn = lax.rng_bit_generator(STATE, shape, algorithm=algorithm)
    assert state.tolist() == after and drawn.tolist() == bits
    with weft.enable_x64(True):
        state, drawn = lax.rng_bit_generator(
            STATE.view(np.uint64), shape, algorithm=lax.RandomAlgorithm(algorithm)
        )
        assert np.asarray(state).view(np.uint32).tolist() == after and drawn.tolist() == bits


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: lax.rng_bit_generator(STATE[:2], (3,)), TypeError, r"uint32\[4\] or uint64\[2\]"),
        (lambda: lax.rng_bit_generator(STATE, (3,), "int32"), TypeError, "uint8, uint16"),
        (lambda: lax.rng_bit_generator(STATE, (-3,)), ValueError, "must not be negative"),
        (lambda: lax.rng_bit_generator(STATE, (3,), algorithm=7), ValueError, "RandomAlgorithm"),
    ],
)
def test_rng_bit_generator_refuses(call, error, says):
    with pytest.raises(error, match=says):
        call()


@pytest.mark.parametrize("name", ["threefry2x32", "rbg"])
def test_libraries_read_the_generator_of_a_key(name):
    from weft.extend import random as implementations

    key = random.key(0, impl=name)
    assert (
        key._impl
        is {
            "threefry2x32": implementations.threefry_prng_impl,
            "rbg": implementations.rbg_prng_impl,
        }[name]
    )
    assert not hasattr(random.key_data(key), "_impl")
