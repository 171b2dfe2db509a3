"""Generators of random bits: their keys, and the computation of bits, new keys and folded keys.

In:   raw key data, uint32[*key_shape], and shapes.
Out:  unsigned integers, or raw key data.
Laws: the bits of an element depend only on the key and on the global position of the element, so
      they are the same under every sharding (except threefry without `threefry_partitionable`,
      whose order of bits needs communication). Bits equal JAX's. A function mapped over keys
      returns the result for each key, except with `rbg` and `unsafe_rbg`: a batch draws from its
      first key (but not in a loop with a varying number of steps, which might not terminate).
Next: `draws` has the public functions and computes samples from bits.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft._engine.ir.symbolic import SymbolicDim
from weft._engine.lax.bit_generator import philox_bits
from weft._engine.ops import elementwise as ew, keys, layout, rng, slicing
from weft._engine.ops.bit_generator import (
    join_words,
    philox_bits as one_philox_bits,
    positions,
    words_of,
)
from weft._engine.ops.casting import size_as
from weft._engine.ops.legacy_threefry import threefry_sequence
from weft._engine.util import dtypes
from weft._engine.util.config import config
from weft._engine.util.record import record

_U32 = np.dtype(np.uint32)


class PRNGImpl(NamedTuple):
    """A generator of random bits, defined by functions of raw key data, uint32[*key_shape].

    `seed(integer scalar)` returns key data; `split(key, shape)` returns uint32[*shape, *key_shape];
    `random_bits(key, bit_width, shape)` returns unsigned integers; `fold_in(key, uint32 scalar)`
    returns key data. `tag` is the name of the generator in the dtype of its keys.
    """

    key_shape: tuple[int, ...]
    seed: Callable[[Any], Any]
    split: Callable[[Any, tuple[int, ...]], Any]
    random_bits: Callable[[Any, int, tuple[int, ...]], Any]
    fold_in: Callable[[Any, Any], Any]
    name: str = "<unnamed>"
    tag: str = "?"


@record
class GeneratorImplementation:
    """A generator with its functions on raw key data."""

    generator: keys.Generator
    seed: Callable[[Any], Any]
    """Key data from the two words of a seed, uint32[2]: high, low."""
    split: Callable[[Any, tuple[int, ...]], Any]
    """New key data, uint32[*shape, *key_shape]."""
    fold_in: Callable[[Any, Any], Any]
    """Key data from key data and a uint32."""
    bits: Callable[[Any, int, tuple[int, ...]], Any]
    """Unsigned integers of a width in bits and a shape."""


def _join(words, axis: int = 0):
    """Return words stacked along a new dim at `axis`, by default the last."""
    return slicing.concatenate([layout.reshape(w, (*w.shape, 1)) for w in words], axis)


# ---- threefry


def _counter(shape: tuple[int, ...]) -> list:
    """Return the position of every element as the counter of a block: high word, low word."""
    low, *high = positions(shape)
    return [*(high or [np.uint32(0)]), low]


def _threefry_split(raw, shape):
    k0, k1 = words_of(raw)
    if config.threefry_partitionable:
        return _join(rng.threefry2x32(k0, k1, *_counter(shape)), len(shape))
    n = math.prod(shape)
    return layout.reshape(_threefry_flat(k0, k1, 2 * n), (*shape, 2))


def _threefry_fold_in(raw, data):
    k0, k1 = words_of(raw)
    return _join(rng.threefry2x32(k0, k1, np.uint32(0), data))


def _threefry_flat(k0, k1, n):
    """Return `n` words of threefry from counters split into halves.

    This is the generator without `threefry_partitionable`.
    """
    words = threefry_sequence(k0, k1, n + n % 2)
    if not isinstance(n % 2, SymbolicDim) and n % 2 == 0:
        return words
    # an odd number of counters is padded with a zero, not with the next number
    half = (n + 1) // 2
    last = rng.threefry2x32(k0, k1, size_as(half - 1, np.uint32), np.uint32(0))[0]
    if isinstance(n % 2, SymbolicDim):
        places = layout.broadcasted_iota(_U32, (n,), 0)
        is_last = ew.bitwise_and(
            ew.eq(places, size_as(half - 1, np.uint32)),
            ew.eq(size_as(n % 2, np.uint32), np.uint32(1)),
        )
        return ew.select_n(
            is_last,
            slicing.slice_in_dim(words, 0, n, axis=0),
            layout.broadcast_in_dim(last, (n,), ()),
        )
    parts = (
        slicing.slice_in_dim(words, 0, half - 1, axis=0),
        layout.reshape(last, (1,)),
        slicing.slice_in_dim(words, half, n, axis=0),
    )
    return slicing.concatenate(list(parts), 0)


def _threefry_bits(raw, width, shape):
    k0, k1 = words_of(raw)
    dtype = np.dtype(f"uint{width}")
    if config.threefry_partitionable:
        a, b = rng.threefry2x32(k0, k1, *_counter(shape))
        if width == 64:
            return join_words(b, a)
        word = ew.bitwise_xor(a, b)
        return word if width == 32 else ew.convert_element_type(word, dtype)
    size = math.prod(shape)
    words = -(-width * size // 32)
    flat = _threefry_flat(k0, k1, words)
    if width == 64:
        flat = join_words(
            *(slicing.slice_in_dim(flat, i * size, (i + 1) * size, axis=0) for i in (1, 0))
        )
    elif width < 32:
        per = 32 // width
        wide = layout.broadcast_in_dim(flat, (words, per), (0,))
        shifts = ew.mul(layout.broadcasted_iota(_U32, (words, per), 1), np.uint32(width))
        flat = ew.convert_element_type(
            ew.bitwise_and(ew.shift_right_logical(wide, shifts), np.uint32((1 << width) - 1)), dtype
        )
        flat = slicing.slice_in_dim(layout.reshape(flat, (words * per,)), 0, size, axis=0)
    return layout.reshape(flat, shape)


THREEFRY = GeneratorImplementation(
    keys.THREEFRY, lambda seed: seed, _threefry_split, _threefry_fold_in, _threefry_bits
)


# ---- keys of four words


def _twice(seed):
    return slicing.concatenate([seed, seed], 0)


def _split_words(raw) -> list:
    return [slicing.slice_in_dim(raw, i, i + 2, axis=0) for i in (0, 2)]


def _rbg(bits: Callable, serial: int = 0) -> GeneratorImplementation:
    return GeneratorImplementation(
        keys.Generator("rbg", "rbg", (4,), serial),
        _twice,
        split=lambda raw, shape: slicing.concatenate(
            [_threefry_split(half, shape) for half in _split_words(raw)], len(shape)
        ),
        fold_in=lambda raw, data: slicing.concatenate(
            [_threefry_fold_in(half, data) for half in _split_words(raw)], 0
        ),
        bits=bits,
    )


def _unsafe_rbg(bits: Callable, serial: int = 0) -> GeneratorImplementation:
    def split(raw, shape):
        """Return new keys: the first of ten rows of four words for each, as these are far apart."""
        rows = 10 * math.prod(shape)
        return layout.reshape(
            slicing.slice(bits(raw, 32, (rows, 4)), (0, 0), (rows, 4), (10, 1)), (*shape, 4)
        )

    def fold_in(raw, data):
        seed = _twice(_join([np.uint32(0), data]))
        return ew.bitwise_xor(
            raw, layout.reshape(slicing.slice_in_dim(bits(seed, 32, (10, 4)), 9, 10, axis=0), (4,))
        )

    return GeneratorImplementation(
        keys.Generator("unsafe_rbg", "urbg", (4,), serial), _twice, split, fold_in, bits
    )


RBG, UNSAFE_RBG = _rbg(philox_bits), _unsafe_rbg(philox_bits)

# ---- block functions on separate counters


def _of_blocks(
    name: str, tag: str, block: Callable, words: tuple[int, int], seed: Callable, halves: Callable
) -> GeneratorImplementation:
    """Return a generator whose bits are a `block` function of the key's words and a counter.

    `words` counts both.

    The counter of a new key ends with its number; the counter of bits begins with their position.
    `halves` are the low and high word of 64 bits; narrower bits come from the exclusive or of all
    words.
    """
    n, size = words
    zero_words = [np.uint32(0)] * (size - 2)

    def new(raw, high, low):
        return _join(block(*words_of(raw), *zero_words, high, low)[:n], len(low.shape))

    def bits(raw, width, shape):
        blocks = block(*words_of(raw), *_counter(shape), *zero_words)
        if width == 64:
            return join_words(*halves(blocks))
        word = functools.reduce(ew.bitwise_xor, blocks)
        return word if width == 32 else ew.convert_element_type(word, np.dtype(f"uint{width}"))

    def seeded(raw):
        return _join(seed(*words_of(raw))[:n])

    return GeneratorImplementation(
        keys.Generator(name, tag, (n,)),
        seeded,
        split=lambda raw, shape: new(raw, *_counter(shape)),
        fold_in=lambda raw, data: new(raw, np.uint32(0), data),
        bits=bits,
    )


_NONE = np.uint32(0)
PHILOX2 = _of_blocks(
    "philox2x32",
    "phx2",
    rng.philox2x32,
    (1, 2),
    lambda high, low: rng.philox2x32(_NONE, high, low),
    lambda w: (w[1], w[0]),
)
PHILOX4 = _of_blocks(
    "philox4x32",
    "phx4",
    rng.philox4x32,
    (2, 4),
    lambda high, low: rng.philox4x32(_NONE, _NONE, high, low, _NONE, _NONE),
    lambda w: (w[1], w[0]),
)
THREEFRY4 = _of_blocks(
    "threefry4x32",
    "fry4",
    rng.threefry4x32,
    (4, 4),
    lambda high, low: rng.threefry4x32(high, low, *[_NONE] * 6),
    lambda w: (ew.bitwise_xor(w[1], w[3]), ew.bitwise_xor(w[0], w[2])),
)

#: implementations by name; generators of libraries by their `Generator`
implementations: dict[Any, GeneratorImplementation] = {
    i.generator.name: i for i in (THREEFRY, RBG, UNSAFE_RBG, PHILOX2, PHILOX4, THREEFRY4)
}
names = tuple(implementations)

#: generators whose batches draw from their first key, and their variants with a draw from each key
_independent_variants = {
    "rbg": _rbg(one_philox_bits, -1),
    "unsafe_rbg": _unsafe_rbg(one_philox_bits, -2),
}
implementations.update({i.generator: i for i in _independent_variants.values()})


def drawing_from_each(used: GeneratorImplementation) -> GeneratorImplementation:
    """Return the generator with the same bits that, mapped over keys, draws from each key."""
    return (
        _independent_variants.get(used.generator.name, used) if not used.generator.serial else used
    )


_generators: dict[PRNGImpl, keys.Generator] = {}
_serial = itertools.count(1)


def publish(impl: PRNGImpl, generator: keys.Generator) -> PRNGImpl:
    """Make `impl` the public form of `generator` for libraries."""
    _generators[impl] = generator
    keys.public_forms[generator] = impl
    return impl


def generator_of(impl: PRNGImpl) -> keys.Generator:
    """Return the generator of `impl`; a new one for functions without a generator."""
    generator = _generators.get(impl)
    if generator is None:
        generator = keys.Generator(impl.name, impl.tag, tuple(impl.key_shape), next(_serial))
        seed: Callable = lambda words: impl.seed(
            ew.convert_element_type(words[1], np.dtype(np.int32))
        )
        implementations[generator] = GeneratorImplementation(
            generator, seed, impl.split, impl.fold_in, impl.random_bits
        )
        publish(impl, generator)
    return generator


def implementation(spec=None) -> GeneratorImplementation:
    """Return the generator named by `spec` or by the setting `default_prng_impl`."""
    spec = config.default_prng_impl if spec is None else spec
    spec = spec.impl if dtypes.is_extended(spec) else spec
    if isinstance(spec, PRNGImpl):
        spec = generator_of(spec)
    if type(spec) is keys.Generator:
        return implementations[spec if spec.serial else spec.name]
    name = getattr(spec, "name", spec)
    listed = ", ".join(names)
    if not isinstance(name, str):
        raise TypeError(
            f"random: unrecognized type {type(spec)} for a PRNG; give the name of a generator ({listed}) or the dtype of keys."
        )
    if name in implementations:
        return implementations[name]
    raise ValueError(f"random: unrecognized PRNG implementation {name!r}; there are {listed}.")


def implementation_of(impl, dtype) -> GeneratorImplementation:
    """Return the generator that `impl` or `dtype` names."""
    if impl is not None and dtype is not None:
        raise ValueError(
            "random: Cannot specify both `impl` and `dtype`; each names the generator."
        )
    if isinstance(dtype, np.dtype) or (isinstance(dtype, type) and issubclass(dtype, np.generic)):
        raise TypeError(
            "random: dtype must be a key dtype, as key_dtype returns, or the name of a generator; got "
            f"{np.dtype(dtype).name}."
        )
    return implementation(dtype if impl is None else impl)
