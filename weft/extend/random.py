"""Custom random number generators, under the names of `jax.extend.random`.

In:   functions of raw key data, uint32[*key_shape].
Out:  a generator for the `impl` argument of `weft.random.key` and similar functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft._engine.ops.rng import threefry2x32, threefry2x32_p as threefry2x32_p
from weft._engine.random.draws import prng_impls
from weft._engine.random.generators import PRNGImpl as PRNGImpl, generator_of
from weft._engine.util.errors import ShapeError
from weft.numpy import asarray
from weft.random import key

threefry_prng_impl = prng_impls["threefry2x32"]
rbg_prng_impl = prng_impls["rbg"]
unsafe_rbg_prng_impl = prng_impls["unsafe_rbg"]


def define_prng_impl(
    *,
    key_shape: tuple[int, ...],
    seed: Callable,
    split: Callable,
    random_bits: Callable,
    fold_in: Callable,
    name: str = "<unnamed>",
    tag: str = "?",
) -> PRNGImpl:
    """Define a random number generator by functions of raw key data; the result is an `impl` of `weft.random.key`.

    `seed(int32 scalar)` returns key data, uint32[*key_shape]; `split(key, shape)` returns uint32[*shape, *key_shape];
    `random_bits(key, bit_width, shape)` returns unsigned integers; `fold_in(key, uint32 scalar)` returns key data.

    >>> impl = define_prng_impl(name="constant", key_shape=(1,), seed=lambda seed: seed.astype("uint32").reshape(1),
    ...                         split=lambda key, shape: wnp.zeros((*shape, 1), "uint32"), fold_in=lambda key, data: key,
    ...                         random_bits=lambda key, width, shape: wnp.full(shape, key[0], f"uint{width}"))
    >>> weft.random.bits(weft.random.key(7, impl=impl), (2,))
    Array([7, 7], dtype=uint32)
    """
    impl = PRNGImpl(tuple(key_shape), seed, split, random_bits, fold_in, name, tag)
    generator_of(impl)
    return impl


def random_seed(seeds: Any, impl: PRNGImpl) -> Any:
    """Return keys of a generator from one or more seeds.

    >>> random_seed(0, threefry_prng_impl).shape
    ()
    """
    from weft._engine.api.vmap import vmap

    seeds = asarray(seeds)
    make: Callable = lambda seed: key(seed, impl=impl)
    for _ in range(seeds.ndim):
        make = vmap(make)
    return make(seeds)


def seed_with_impl(impl: PRNGImpl, seed: Any) -> Any:
    """Return keys from seeds like `random_seed`, with the generator first."""
    return random_seed(seed, impl)


def threefry_2x32(keypair: Any, count: Any) -> Any:
    """Return random bits, uint32, from a pair of key words and counters; the two halves of the counters are hashed in pairs.

    Raises ShapeError for counters that are not uint32.

    >>> threefry_2x32((np.uint32(0), np.uint32(0)), wnp.zeros(2, "uint32"))
    Array([1797259609, 2579123966], dtype=uint32)
    """
    from weft.numpy import concatenate, pad

    count = asarray(count)
    if count.dtype != "uint32":
        raise ShapeError(f"threefry_2x32: counters are uint32, got {count.dtype}.")
    flat = count.ravel()
    odd = flat.size % 2
    flat = pad(flat, (0, odd)) if odd else flat
    half = flat.size // 2
    low, high = threefry2x32(keypair[0], keypair[1], flat[:half], flat[half:])
    out = concatenate([low, high])
    return (out[:-1] if odd else out).reshape(count.shape)
