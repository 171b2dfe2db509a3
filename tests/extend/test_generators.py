"""Generators of random bits that libraries define: their keys, whose raw data may have any number of dims."""

import math

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax, random
from weft.extend.random import (
    PRNGImpl,
    define_prng_impl,
    rbg_prng_impl,
    threefry_prng_impl,
    unsafe_rbg_prng_impl,
)


def generator(shape):
    size = math.prod(shape)
    words = lambda first: (first.astype("uint32") + wnp.arange(size, dtype="uint32")).reshape(shape)
    return define_prng_impl(
        key_shape=shape,
        seed=words,
        fold_in=lambda key, data: key + data,
        name="counting",
        tag="count",
        split=lambda key, of: (
            key + wnp.arange(math.prod(of), dtype="uint32").reshape(*of, *[1] * len(shape))
        ),
        random_bits=lambda key, width, of: wnp.full(of, key.ravel()[0], f"uint{width}"),
    )


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (4, 2, 7)])
def test_keys_of_any_shape_of_raw_data(shape):
    impl = generator(shape)
    key = random.key(42, impl=impl)
    data = lambda firsts: np.add.outer(np.asarray(firsts), np.arange(math.prod(shape))).reshape(
        (*np.shape(firsts), *shape)
    )
    same = lambda keys, firsts: np.testing.assert_array_equal(random.key_data(keys), data(firsts))
    assert (
        key.shape == ()
        and key.dtype == random.key_dtype(impl)
        and random.key_impl(key) == impl != generator(shape)
    )
    same(key, 42)
    keys = random.split(key, (2, 3))
    firsts = 42 + np.arange(6).reshape(2, 3)
    for run in (lambda f: f, weft.jit):
        same(run(lambda k: k.T)(keys), firsts.T)
        same(run(lambda k: k[1])(keys), firsts[1])
        same(
            run(lambda k: wnp.concatenate([k, k[:, :1]], 1))(keys),
            np.concatenate([firsts, firsts[:, :1]], 1),
        )
        same(run(lambda k: wnp.stack([k, k]))(key), [42, 42])
        same(run(lambda k: wnp.broadcast_to(k[0, 0], (2, 1)))(keys), [[42], [42]])
        same(
            run(lambda k: lax.scan(lambda c, _: (random.fold_in(c, 1), c), k, None, length=2)[1])(
                key
            ),
            [42, 43],
        )
        same(
            run(lambda k: wnp.where(wnp.array([True, False, True]), k[0], k[1]))(keys), [42, 46, 44]
        )
        same(run(weft.vmap(lambda k: random.fold_in(k, 1)))(keys[0]), firsts[0] + 1)
        assert run(random.bits)(key).item() == 42
    wrapped = random.wrap_key_data(wnp.asarray(data(firsts), "uint32"), impl=impl)
    assert (
        wrapped.shape == (2, 3)
        and random.wrap_key_data(random.key_data(key), dtype=key.dtype).dtype == key.dtype
    )
    same(wrapped, firsts)


def test_raw_data_of_another_shape_is_refused():
    with pytest.raises(TypeError, match=r"must be uint32\[..., 2, 3\], got uint32\[4,3\]"):
        random.wrap_key_data(wnp.zeros((4, 3), "uint32"), impl=generator((2, 3)))


@pytest.mark.parametrize(
    "impl", [threefry_prng_impl, rbg_prng_impl, unsafe_rbg_prng_impl], ids=lambda impl: impl.name
)
def test_functions_of_generators_on_raw_data(impl):
    key = random.key(7, impl=impl)
    raw = random.key_data(key)
    assert (
        isinstance(impl, PRNGImpl)
        and raw.shape == impl.key_shape
        and key._impl is impl
        and impl.tag in key.dtype.name
    )
    for run in (lambda f: f, weft.jit):
        np.testing.assert_array_equal(run(impl.seed)(np.int32(7)), raw)
        np.testing.assert_array_equal(
            run(lambda k: impl.split(k, (3,)))(raw), random.key_data(random.split(key, 3))
        )
        np.testing.assert_array_equal(
            run(lambda k: impl.random_bits(k, 16, (5,)))(raw), random.bits(key, (5,), "uint16")
        )
        np.testing.assert_array_equal(
            run(lambda k: impl.fold_in(k, np.uint32(3)))(raw),
            random.key_data(random.fold_in(key, 3)),
        )


def test_generators_made_of_their_functions():
    words = lambda shape: wnp.full(shape, 5, "uint32")
    impl = PRNGImpl(
        (1,),
        lambda seed: words((1,)),
        lambda key, shape: words((*shape, 1)),
        lambda key, width, shape: wnp.full(shape, key[0], f"uint{width}"),
        lambda key, data: key,
        "five",
        "five",
    )
    key = random.key(0, impl=impl)
    assert (
        random.bits(key, (2,)).tolist() == [5, 5]
        and key._impl is impl
        and random.key_impl(key) is impl
    )
    assert impl == PRNGImpl(*impl) and random.key(1, impl=PRNGImpl(*impl)).dtype == key.dtype
    assert impl != impl._replace(fold_in=lambda key, data: key)
