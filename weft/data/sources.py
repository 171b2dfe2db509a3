"""Where rows come from: trees of arrays, sequences of records, streams of records.

In:   what a user gave `Loader`.
Out:  a source: rows by their numbers, or, of a stream, by reading it in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from weft._engine.util import tree
from weft._engine.util.errors import describe


class Arrays:
    """A tree of arrays whose first dims are the rows: NumPy arrays, memory maps, arrays of weft, or what NumPy indexes alike."""

    def __init__(self, arrays: Any):
        leaves, self._structure = tree.tree_flatten(arrays)
        self._leaves = [
            leaf if isinstance(leaf, np.ndarray) else np.asarray(leaf) for leaf in leaves
        ]
        sizes = [
            (tree.keystr(path) or "the array", np.shape(leaf))
            for path, leaf in tree.tree_leaves_with_path(arrays)
        ]
        if (
            not sizes
            or any(not shape for _, shape in sizes)
            or len({shape[0] for _, shape in sizes}) > 1
        ):
            raise ValueError(
                describe(
                    "data.Loader",
                    "the arrays have not the same number of rows.",
                    [(n, list(s)) for n, s in sizes[:8]],
                    rule="The first dim of every array counts the rows.",
                )
            )
        self.size: int = sizes[0][1][0]

    def rows(self, numbers: np.ndarray) -> Any:
        """These rows, in this order."""
        if numbers.size and (np.diff(numbers) == 1).all():
            part = slice(int(numbers[0]), int(numbers[-1]) + 1)
            return tree.tree_unflatten(
                self._structure, [np.array(leaf[part]) for leaf in self._leaves]
            )
        order = np.argsort(numbers, kind="stable")  # files are read forward
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        return tree.tree_unflatten(
            self._structure, [np.asarray(leaf[numbers[order]])[back] for leaf in self._leaves]
        )


class Records:
    """A sequence of records, trees of arrays or numbers, which are stacked."""

    def __init__(self, records: Sequence[Any]):
        self._records = records
        self.size = len(records)

    def rows(self, numbers: np.ndarray) -> Any:
        """These rows, in this order."""
        return stacked([self._records[int(number)] for number in numbers])


class Stream:
    """An iterable of records, or a function that gives one for each epoch. Every process reads all of it and keeps what it needs."""

    size = None

    def __init__(self, source: Iterable[Any] | Callable[..., Any]):
        self._source = source

    def records(self, start: int) -> Iterator[Any]:
        """The records of an epoch from number `start` on."""
        source = self._source() if callable(self._source) else self._source
        return itertools.islice(iter(source), start, None)

    @property
    def can_begin_again(self) -> bool:
        """Whether there can be a second epoch."""
        return callable(self._source) or iter(self._source) is not self._source


Source = Arrays | Records | Stream


def source_of(given: Any) -> Source:
    """The source that a user means: a tree of arrays, an object with a length and `[]`, or an iterable."""
    leaves = tree.tree_leaves(given)
    if leaves and all(hasattr(leaf, "shape") and hasattr(leaf, "__getitem__") for leaf in leaves):
        return Arrays(given)
    if (
        hasattr(given, "__len__")
        and hasattr(given, "__getitem__")
        and not isinstance(given, (dict, str, bytes))
    ):
        return Records(given)
    if callable(given) or (
        hasattr(given, "__iter__") and not isinstance(given, (dict, str, bytes))
    ):
        return Stream(given)
    raise TypeError(
        f"data.Loader: a source is a tree of arrays, a sequence of records, an iterable of them or a function that gives one; "
        f"got {type(given).__name__}."
    )


def stacked(records: Sequence[Any]) -> Any:
    """Records of one structure as one tree of arrays with a row for each."""
    return tree.tree_map(
        lambda *values: np.stack([np.asarray(value) for value in values]), *records
    )
