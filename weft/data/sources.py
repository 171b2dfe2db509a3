"""Sources of rows: trees of arrays, sequences of records, streams of records.

In:   the `source` argument of `Loader`.
Out:  an object that returns rows by number, or, for a stream, in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from weft._engine.util import tree
from weft._engine.util.errors import describe


class Arrays:
    """A tree of arrays whose first dims are the rows: NumPy arrays, memory maps, weft arrays, or objects with NumPy indexing."""

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
        """Return the rows with these numbers, in this order."""
        if numbers.size and (np.diff(numbers) == 1).all():
            part = slice(int(numbers[0]), int(numbers[-1]) + 1)
            return tree.tree_unflatten(
                self._structure, [np.array(leaf[part]) for leaf in self._leaves]
            )
        order = np.argsort(numbers, kind="stable")  # read memory-mapped files forward
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        return tree.tree_unflatten(
            self._structure, [np.asarray(leaf[numbers[order]])[back] for leaf in self._leaves]
        )


class Records:
    """A sequence of records; each record is a tree of arrays or numbers. Batches stack records."""

    def __init__(self, records: Sequence[Any]):
        self._records = records
        self.size = len(records)

    def rows(self, numbers: np.ndarray) -> Any:
        """Return the rows with these numbers, in this order."""
        return stack_records([self._records[int(number)] for number in numbers])


class Stream:
    """An iterable of records, or a function that returns one for each epoch. Every process reads all records and uses its own rows."""

    size = None

    def __init__(self, source: Iterable[Any] | Callable[..., Any]):
        self._source = source

    def records(self, start: int) -> Iterator[Any]:
        """Iterate over the records of an epoch from number `start` on."""
        source = self._source() if callable(self._source) else self._source
        return itertools.islice(iter(source), start, None)

    @property
    def can_begin_again(self) -> bool:
        """True if a second epoch is possible."""
        return callable(self._source) or iter(self._source) is not self._source


Source = Arrays | Records | Stream


def make_source(data: Any) -> Source:
    """Return the source for the argument of `Loader`: a tree of arrays, an object with a length and `[]`, or an iterable."""
    leaves = tree.tree_leaves(data)
    if leaves and all(hasattr(leaf, "shape") and hasattr(leaf, "__getitem__") for leaf in leaves):
        return Arrays(data)
    if (
        hasattr(data, "__len__")
        and hasattr(data, "__getitem__")
        and not isinstance(data, (dict, str, bytes))
    ):
        return Records(data)
    if callable(data) or (hasattr(data, "__iter__") and not isinstance(data, (dict, str, bytes))):
        return Stream(data)
    raise TypeError(
        f"data.Loader: a source is a tree of arrays, a sequence of records, an iterable of them or a function that gives one; "
        f"got {type(data).__name__}."
    )


def stack_records(records: Sequence[Any]) -> Any:
    """Stack records of one structure into a tree of arrays with one row for each record."""
    return tree.tree_map(
        lambda *values: np.stack([np.asarray(value) for value in values]), *records
    )
