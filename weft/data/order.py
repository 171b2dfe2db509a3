"""A pseudorandom permutation of a range of integers, computed for any positions without a table.

In:   the size of the range, a key, positions.
Out:  the value at each position.
How:  a balanced Feistel network permutes the next power of four; results outside of the range are permuted again until
      they are inside ("cycle walking": Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002). A Feistel network
      is a permutation for any round function; this one mixes like the finalizer of MurmurHash3.
"""

from __future__ import annotations

import numpy as np

_ROUNDS = 6
_GOLDEN, _ALL = 0x9E3779B97F4A7C15, (1 << 64) - 1


def _mix_bits(x: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash; each bit depends on all bits of `x`."""
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


def permute_positions(positions: np.ndarray, size: int, seed: int, epoch: int = 0) -> np.ndarray:
    """Return the values at `positions` of a permutation of `range(size)` that `seed` and `epoch` select, as int64.

    Time and memory depend on the number of positions only. Raises ValueError for positions outside of the range.

    >>> [int(x) for x in permute_positions(np.arange(6), 6, seed=1)]
    [2, 3, 0, 4, 5, 1]
    """
    positions = np.asarray(positions, np.int64)
    if positions.size and not (0 <= positions.min() and positions.max() < size):
        raise ValueError(
            f"data.permuted: positions must be in 0 … {size - 1}, got {positions.min()} … {positions.max()}."
        )
    half = np.uint64(max((max(size - 1, 1).bit_length() + 1) // 2, 1))
    mask = np.uint64((1 << int(half)) - 1)
    mixed = lambda number: _mix_bits(np.array([number & _ALL], np.uint64))
    key = int(mixed(int(mixed(seed + _GOLDEN)[0]) ^ (epoch * 0xD1342543DE82EF95))[0])
    keys = [mixed(key + (i + 1) * _GOLDEN) for i in range(_ROUNDS)]
    values = positions.astype(np.uint64)
    open_ = np.arange(values.size)
    flat = values.reshape(-1)
    while open_.size:
        value = flat[open_]
        left, right = value >> half, value & mask
        for round_key in keys:
            left, right = right, left ^ (_mix_bits(right + round_key) & mask)
        flat[open_] = (left << half) | right
        open_ = open_[flat[open_] >= np.uint64(size)]
    return flat.reshape(positions.shape).astype(np.int64)
