"""Attention masks, as functions of the positions of query and key.

In:   shapes [queries, keys], windows and offsets, or arrays of bools.
Out:  `Mask` objects, which compute blocks on demand (`mask[a:b, c:d]`), combine with `|` and `&`, and compare by value;
      functions that return whole masks as arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Mask:
    """A mask of shape [queries, keys] or [heads, queries, keys]."""

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError(f"{type(self).__name__} must define `shape`.")

    def __getitem__(self, idx: Any) -> np.ndarray:
        """Return the block of the mask that one slice per dim selects."""
        raise NotImplementedError(f"{type(self).__name__} must define `__getitem__`.")

    def __bool__(self) -> bool:
        raise NotImplementedError(
            "A mask has no truth value. Join masks by | and &, not by `or` and `and`."
        )

    def __or__(self, other: Mask) -> Mask:
        return LogicalOr(self, other)

    def __and__(self, other: Mask) -> Mask:
        return LogicalAnd(self, other)


# ---- masks as arrays


def _evaluate(
    rule: Callable[[Any, Any], Any], shape: tuple[int, int], idx: Any = (slice(None), slice(None))
) -> np.ndarray:
    """Return the block `idx` of the mask of `shape` whose elements are `rule(query, key)`."""
    if len(idx) != 2:
        raise NotImplementedError(f"A mask of two dims takes two slices, got {idx!r}.")
    queries, keys = (np.arange(n)[each] for n, each in zip(shape, idx))
    return np.broadcast_to(rule(queries[:, None], keys[None, :]), (len(queries), len(keys))).copy()


def _causal(offset: int) -> Callable[[Any, Any], Any]:
    return lambda query, key: query + offset >= key


def _local(window_size: tuple[int | None, int | None], offset: int) -> Callable[[Any, Any], Any]:
    left, right = window_size

    def rule(query: Any, key: Any) -> Any:
        before = True if left is None else query + offset - left <= key
        after = True if right is None else query + offset + right >= key
        return np.logical_and(before, after)

    return rule


def _split_into_chunks(chunk_size: int) -> Callable[[Any, Any], Any]:
    if chunk_size <= 0:
        raise ValueError(f"chunk_size must be positive, got {chunk_size}.")
    return lambda query, key: (query >= key) & (query // chunk_size == key // chunk_size)


def make_causal_mask(shape: tuple[int, int], offset: int = 0) -> np.ndarray:
    """Return the mask with which query i attends to keys up to i + offset.

    >>> make_causal_mask((2, 3)).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0]]
    """
    return _evaluate(_causal(offset), shape)


def make_local_attention_mask(
    shape: tuple[int, int], window_size: tuple[int | None, int | None], *, offset: int = 0
) -> np.ndarray:
    """Return the mask for keys from i + offset - left to i + offset + right; `window_size` is (left, right), None for no bound.

    >>> make_local_attention_mask((3, 3), (1, 0)).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    return _evaluate(_local(window_size, offset), shape)


def make_chunk_attention_mask(shape: tuple[int, int], chunk_size: int) -> np.ndarray:
    """Return the mask with which a query attends to the keys of its own chunk of positions, up to its own position.

    >>> make_chunk_attention_mask((4, 4), 2).astype(int).tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    """
    return _evaluate(_split_into_chunks(chunk_size), shape)


def make_random_mask(shape: tuple[int, int], sparsity: float, seed: int) -> np.ndarray:
    """Return a mask whose entries are False with probability `sparsity`."""
    return np.random.RandomState(seed).binomial(1, 1 - sparsity, shape).astype(bool)


# ---- masks as objects


def _check_shape(mask: Mask, shape: tuple[int, ...]) -> None:
    if mask.shape != shape:
        raise ValueError(
            f"A mask has the shape {mask.shape}, where {shape} is needed: masks that are joined have one shape."
        )


@dataclasses.dataclass(frozen=True)
class _Joined(Mask):
    left: Mask
    right: Mask

    def __post_init__(self) -> None:
        _check_shape(self.right, self.left.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.left.shape


class LogicalOr(_Joined):
    """The elementwise or of two masks of equal shape.

    >>> mask = CausalMask((2, 2)) | NumpyMask(np.eye(2, dtype=bool)[::-1])
    >>> mask[:, :].astype(int).tolist()
    [[1, 1], [1, 1]]
    """

    def __getitem__(self, idx: Any) -> np.ndarray:
        return self.left[idx] | self.right[idx]


class LogicalAnd(_Joined):
    """The elementwise and of two masks of equal shape."""

    def __getitem__(self, idx: Any) -> np.ndarray:
        return self.left[idx] & self.right[idx]


@dataclasses.dataclass(frozen=True)
class MultiHeadMask(Mask):
    """One mask per head, all of equal shape.

    >>> MultiHeadMask([CausalMask((4, 4)), FullMask((4, 4))]).shape
    (2, 4, 4)
    """

    masks: Sequence[Mask]

    def __post_init__(self) -> None:
        if not self.masks:
            raise ValueError("MultiHeadMask: there must be at least one mask.")
        object.__setattr__(self, "masks", tuple(self.masks))
        for mask in self.masks:
            if isinstance(mask, MultiHeadMask):
                raise ValueError("MultiHeadMask: the mask of a head must not be a MultiHeadMask.")
            _check_shape(mask, self.masks[0].shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.masks), *self.masks[0].shape)

    def __getitem__(self, idx: Any) -> np.ndarray:
        if len(idx) != 3:
            raise NotImplementedError(f"A mask of three dims takes three indices, got {idx!r}.")
        head, *block = idx
        if isinstance(head, int):
            return self.masks[head][tuple(block)]
        return np.stack([mask[tuple(block)] for mask in self.masks[head]])


@dataclasses.dataclass(frozen=True)
class FullMask(Mask):
    """The mask with which every query attends to every key."""

    _shape: tuple[int, int]

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def __getitem__(self, idx: Any) -> np.ndarray:
        return _evaluate(lambda query, key: True, self._shape, idx)


@dataclasses.dataclass(frozen=True, eq=False)
class NumpyMask(Mask):
    """A mask given by an array of bools. Raises ValueError for other arrays."""

    array: np.ndarray

    def __post_init__(self) -> None:
        if self.array.ndim != 2:
            raise ValueError(
                f"NumpyMask: the array must have two dims, got the shape {self.array.shape}."
            )
        if self.array.dtype != bool:
            raise ValueError(f"NumpyMask: the array must hold bools, got {self.array.dtype}.")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def __getitem__(self, idx: Any) -> np.ndarray:
        return np.asarray(self.array)[idx]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NumpyMask) and np.array_equal(self.array, other.array)

    def __hash__(self) -> int:
        return hash((self.array.shape, np.asarray(self.array).tobytes()))


class _RuleMask(Mask):
    """A mask defined by a rule on positions. Masks of one class with equal arguments are equal. `shard_count`, the number of
    parts into which a mesh divides the queries, has no effect."""

    def __init__(self, shape: tuple[int, int], rule: Callable[[Any, Any], Any], *arguments: Any):
        self._shape, self._rule, self._arguments = (shape[0], shape[1]), rule, arguments

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def __getitem__(self, idx: Any) -> np.ndarray:
        return _evaluate(self._rule, self._shape, idx)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (self._shape, self._arguments) == (
            other._shape,
            other._arguments,
        )

    def __hash__(self) -> int:
        return hash((type(self), self._shape, self._arguments))


class CausalMask(_RuleMask):
    """The mask with which query i attends to keys up to i + offset.

    >>> CausalMask((4, 4))[1:3, :].astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 1, 0]]
    """

    def __init__(self, shape: tuple[int, int], offset: int = 0, shard_count: int = 1):
        super().__init__(shape, _causal(offset), offset)
        self.offset = offset


class LocalMask(_RuleMask):
    """The mask for keys from i + offset - left to i + offset + right; `window_size` is (left, right), None for no bound."""

    def __init__(
        self,
        shape: tuple[int, int],
        window_size: tuple[int | None, int | None],
        offset: int,
        shard_count: int = 1,
    ):
        super().__init__(shape, _local(window_size, offset), tuple(window_size), offset)
        self.window_size, self.offset = window_size, offset


class ChunkedCausalMask(_RuleMask):
    """The mask with which a query attends to the keys of its own chunk of positions, up to its own position."""

    def __init__(self, shape: tuple[int, int], chunk_size: int, shard_count: int = 1):
        super().__init__(shape, _split_into_chunks(chunk_size), chunk_size)
        self.chunk_size = chunk_size
