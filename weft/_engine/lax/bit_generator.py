"""Random bits under `vmap`: a batch of states draws from its first state, as in JAX.

In:   states, uint32[4] or uint64[2].
Out:  bits, and the next states.
Laws: the bits of a batch are one draw from its first state, with the mapped dim in front; only the
      first state advances. In a loop with a varying number of steps, every state draws for itself.
Next: `ops.bit_generator` computes the bits of one state.
"""

from __future__ import annotations

import functools

import numpy as np

from weft._engine.control.custom_batching import custom_vmap
from weft._engine.ops import bit_generator as one
from weft._engine.ops.bit_generator import RandomAlgorithm
from weft._engine.ops.dynamic_slicing import dynamic_update_index_in_dim


def rng_bit_generator(
    key, shape, dtype=np.uint32, algorithm=RandomAlgorithm.RNG_DEFAULT, *, out_sharding=None
):
    """Return the next state and random bits of `shape` and an unsigned dtype.

    The state `key` is uint32[4] or uint64[2].

    The bits have the sharding `out_sharding`, a NamedSharding or a PartitionSpec over the context
    mesh. Under `vmap` over states the first state draws all bits; the other states do not change.
    Raises TypeError for another state or dtype, ValueError for an unknown algorithm.

    >>> state, bits = weft.lax.rng_bit_generator(wnp.zeros(4, wnp.uint32), (2,))
    >>> state, hex(bits[0])
    (Array([0, 0, 1, 0], dtype=uint32), '0x6627e8d5')
    """
    if out_sharding is not None:
        return one.rng_bit_generator(key, shape, dtype, algorithm, out_sharding=out_sharding)
    return _state_and_bits(tuple(shape), dtype, algorithm)(key)


@functools.lru_cache(256)
def _state_and_bits(shape: tuple[int, ...], dtype, algorithm) -> custom_vmap:
    def rng_bit_generator(key):
        return one.rng_bit_generator(key, shape, dtype, algorithm)

    draw = custom_vmap(rng_bit_generator)
    draw.draws_together = True

    @draw.def_vmap
    def of_first(size, _, keys):
        state, bits = _state_and_bits((size, *shape), dtype, algorithm)(keys[0])
        return (dynamic_update_index_in_dim(keys, state, 0, 0), bits), (True, True)

    return draw


def philox_bits(raw, width: int, shape: tuple[int, ...]):
    """Return bits of `width` by philox from four words.

    A mapped batch draws all bits from its first words.
    """
    return _bits(width, tuple(shape))(raw)


@functools.lru_cache(256)
def _bits(width: int, shape: tuple[int, ...]) -> custom_vmap:
    def philox(raw):
        return one.philox_bits(raw, width, shape)

    draw = custom_vmap(philox)
    draw.draws_together = True

    @draw.def_vmap
    def of_first(size, _, raws):
        return _bits(width, (size, *shape))(raws[0]), True

    return draw
