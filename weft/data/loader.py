"""`Loader`: an iterator of global batches.

In:   a source, the size of the global batch, the sharding of batches, a seed.
Out:  batches: arrays on devices, or NumPy arrays of the rows of this process.
Laws: batch number n does not depend on the number of processes: every process computes the positions of the whole batch
      and reads the rows for its own devices. `state` counts batches that were returned, not batches that were prefetched.
      An error of the source is raised in place of its batch. The thread ends with the loader, or with `close`.
Next: `sources` reads rows; `order` shuffles them.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from weft._engine import processes
from weft._engine.api.placement.assembly import make_array_from_callback
from weft._engine.ir.shardings import Sharding
from weft._engine.util import tree
from weft._engine.util.errors import describe
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import record
from weft._engine.util.source import api_boundary
from weft.data.order import permute_positions
from weft.data.sources import Arrays, Records, Source, Stream, make_source, stack_records

_END = object()


@record(eq=False)
class _LoaderPlan:
    """The parameters of the batches: everything that the thread needs, without the loader."""

    source: Source
    batch_size: int
    shardings: Any
    seed: int
    shuffle: bool
    epochs: int | None
    drop_last: bool
    transform: Callable[[Any], Any] | None

    def steps_of(self, rows: int) -> int:
        """Return the number of batches in an epoch."""
        return rows // self.batch_size if self.drop_last else -(-rows // self.batch_size)


class Loader:
    """An iterator of global batches of `batch_size` rows of `source`, in a new order in each epoch.

    `source` is a tree of arrays with equal first dims (NumPy arrays, memory maps), an object with `len` and `[]` that
    returns records, an iterable of records, or a function that returns an iterable for each epoch. `sharding`, for all
    arrays or as a prefix of the tree, places batches on devices: each process reads the rows for its own devices.
    Without it a batch consists of NumPy arrays; with several processes they hold this process's part. The order depends
    only on `seed` and the epoch, not on the number of processes; iterables are not shuffled. The loader passes over the
    source `epochs` times, or without end. `drop_last` omits a last batch that is not full. `transform` is applied to
    the rows of this process, as NumPy arrays. A thread reads and places `prefetch` batches ahead; 0 uses no thread.

    `state()` and `restore(state)` resume at a step, for example from a checkpoint; `step` counts batches.
    Raises ValueError for a source with less than one batch, for a batch that the sharding cannot split, and for the
    state of other data; TypeError for an invalid source.

    >>> loader = weft.data.Loader({"x": np.arange(8.0)}, batch_size=4, seed=0)
    >>> first, state, second = next(loader), loader.state(), next(loader)
    >>> again = weft.data.Loader({"x": np.arange(8.0)}, batch_size=4, seed=0).restore(state)
    >>> bool((next(again)["x"] == second["x"]).all()), state
    (True, {'step': 1, 'seed': 0, 'batch_size': 4, 'rows': 8, 'shuffle': 1})
    """

    @api_boundary
    def __init__(
        self,
        source: Any,
        batch_size: int,
        *,
        sharding: Any = None,
        seed: int = 0,
        shuffle: bool | None = None,
        epochs: int | None = None,
        drop_last: bool = True,
        transform: Callable[[Any], Any] | None = None,
        prefetch: int = 2,
    ):
        rows_source = make_source(source)
        if batch_size < 1 or prefetch < 0 or (epochs is not None and epochs < 1):
            raise ValueError(
                f"data.Loader: batch_size and epochs are at least 1, prefetch at least 0; got {batch_size}, {epochs}, "
                f"{prefetch}."
            )
        if isinstance(rows_source, Stream) and shuffle:
            raise ValueError(
                "data.Loader: records of an iterable come in its order; shuffle them there, or give a sequence."
            )
        if rows_source.size is not None and rows_source.size < (batch_size if drop_last else 1):
            raise ValueError(
                f"data.Loader: the source has {quantity(rows_source.size, 'row')}, and a batch has {batch_size}."
            )
        shuffle = not isinstance(rows_source, Stream) if shuffle is None else shuffle
        self._plan = _LoaderPlan(
            rows_source, batch_size, sharding, seed, shuffle, epochs, drop_last, transform
        )
        self._prefetch = prefetch
        self.step = 0
        self._batches: Iterator[Any] | None = None
        self._stop: Callable[[], Any] | None = None

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> Any:
        if self._batches is None:
            self._batches = self._start()
        try:
            batch = next(self._batches)
        except StopIteration:
            raise
        except BaseException:
            self.close()  # the next call starts again
            raise
        self.step += 1
        return batch

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0. Raises ValueError for an iterable, whose number of rows is unknown."""
        rows = self._plan.source.size
        if rows is None:
            raise ValueError(
                "data.Loader: an iterable has an unknown number of rows and hence no epoch number."
            )
        return self.step // self._plan.steps_of(rows)

    def state(self) -> dict[str, int]:
        """Return the position as a dict of integers: the next step and the parameters of the order. A checkpoint can store it."""
        plan = self._plan
        return {
            "step": self.step,
            "seed": plan.seed,
            "batch_size": plan.batch_size,
            "rows": -1 if plan.source.size is None else plan.source.size,
            "shuffle": int(plan.shuffle),
        }

    @api_boundary
    def restore(self, state: dict[str, int]) -> Loader:
        """Resume at the position of a loader of the same data, with any number of processes. Raise ValueError for other data."""
        mine = self.state()
        other = [
            (name, f"here {mine[name]}", f"in the state {state.get(name)}")
            for name in mine
            if name != "step" and mine[name] != int(state.get(name, -2))
        ]
        if other or "step" not in state:
            raise ValueError(
                describe(
                    "data.Loader.restore",
                    "the state belongs to other batches.",
                    other,
                    rule="A step is the same data only for the same rows, batch size and seed.",
                )
            )
        self.close()
        self.step = int(state["step"])
        return self

    def close(self) -> None:
        """End the thread; prefetched batches are read again if the loader is used further."""
        if self._stop is not None:
            self._stop()
        self._batches = self._stop = None

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _start(self) -> Iterator[Any]:
        batches = _batches(self._plan, self.step)
        if not self._prefetch:
            self._stop = batches.close
            return batches
        prefetcher = _Prefetcher(batches, self._prefetch)
        self._stop = weakref.finalize(self, prefetcher.stop)
        prefetcher.thread.start()
        return prefetcher.drain()


class _Prefetcher:
    """A thread that computes batches ahead, and the queue of batches that are ready."""

    def __init__(self, batches: Generator[Any, None, None], most: int):
        self._batches = batches
        self._ready: queue.Queue = queue.Queue(most)
        self._stopped = threading.Event()
        self.thread = threading.Thread(target=self._fill, name="weft reads data", daemon=True)

    def _fill(self) -> None:
        """Put batches into the queue, then the end or the error; the target of the thread."""
        try:
            for batch in self._batches:
                if not self._put(batch, None):
                    return
            self._put(_END, None)
        except BaseException as error:
            self._put(_END, error)
        finally:
            self._batches.close()

    def _put(self, batch: Any, error: BaseException | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._ready.put((batch, error), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def drain(self) -> Iterator[Any]:
        """Yield the batches from the queue; raise the error of the thread at its place."""
        while True:
            try:
                batch, error = self._ready.get(timeout=1.0)
            except queue.Empty:
                if self.thread.is_alive() or not self._ready.empty():
                    continue
                raise RuntimeError(
                    "data.Loader: the thread that reads data is gone: this process is a fork of the one that made it. "
                    "Call close() here first."
                ) from None
            if batch is not _END:
                yield batch
                continue
            if error is not None:
                raise error
            return

    def stop(self) -> None:
        """Stop the thread and wait for it to end, unless it is blocked in a stream."""
        self._stopped.set()
        while True:
            try:
                self._ready.get_nowait()
            except queue.Empty:
                break
        if self.thread.ident is not None and self.thread is not threading.current_thread():
            self.thread.join(1.0)


# ---- batches


def _batches(plan: _LoaderPlan, step: int) -> Generator[Any, None, None]:
    """Yield the batches from number `step` on."""
    if isinstance(plan.source, Stream):
        yield from _of_stream(plan, plan.source, step)
        return
    per_epoch = plan.steps_of(plan.source.size)
    while plan.epochs is None or step < plan.epochs * per_epoch:
        epoch, within = divmod(step, per_epoch)
        start = within * plan.batch_size
        yield _batch(
            plan, plan.source, start, min(plan.batch_size, plan.source.size - start), epoch
        )
        step += 1


def _batch(plan: _LoaderPlan, source: Arrays | Records, start: int, count: int, epoch: int) -> Any:
    """Return the batch of rows `start` to `start + count` in the order of an epoch."""
    mine = _local_row_ranges(plan.shardings, count)
    positions = start + np.concatenate([np.arange(a, b) for a, b in mine])
    numbers = (
        permute_positions(positions, source.size, plan.seed, epoch) if plan.shuffle else positions
    )
    return _place_batch(plan, source.rows(numbers), mine, count)


def _of_stream(plan: _LoaderPlan, source: Stream, step: int) -> Iterator[Any]:
    epoch, skip = 0, step * plan.batch_size
    while plan.epochs is None or epoch < plan.epochs:
        if epoch and not source.can_begin_again:
            return
        num_seen, rows = 0, []
        for record_ in source.records(0):
            num_seen += 1
            if num_seen <= skip:  # batches that were returned earlier
                continue
            rows.append(record_)
            if len(rows) == plan.batch_size:
                yield _of_records(plan, rows)
                rows = []
        if not num_seen:
            return
        if rows and not plan.drop_last:
            yield _of_records(plan, rows)
        skip = max(skip - plan.steps_of(num_seen) * plan.batch_size, 0)
        epoch += 1


def _of_records(plan: _LoaderPlan, rows: list[Any]) -> Any:
    mine = _local_row_ranges(plan.shardings, len(rows))
    return _place_batch(
        plan, stack_records([rows[i] for a, b in mine for i in range(a, b)]), mine, len(rows)
    )


def _local_row_ranges(shardings: Any, count: int) -> list[tuple[int, int]]:
    """Return the rows of a batch that this process needs, as sorted, disjoint ranges."""
    if shardings is None:
        here = processes.current()
        if here is None:
            return [(0, count)]
        if count % here.size:
            raise ValueError(
                f"data.Loader: {quantity(here.size, 'process')} cannot share a batch of {quantity(count, 'row')} evenly."
            )
        part = count // here.size
        return [(here.rank * part, (here.rank + 1) * part)]
    ranges = set()
    for sharding in tree.tree_leaves(shardings, is_leaf=lambda x: isinstance(x, Sharding)):
        # only the first dim matters
        shape = (
            count,
            *sharding.splits(max(len(getattr(sharding, "spec", ())), 1))[1:],
        )
        for index in sharding.addressable_devices_indices_map(shape).values():
            ranges.add(index[0].indices(count)[:2])
    joined: list[tuple[int, int]] = []
    for a, b in sorted(ranges):
        if joined and a <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(b, joined[-1][1]))
        else:
            joined.append((a, b))
    return joined


def _place_batch(plan: _LoaderPlan, rows: Any, mine: list[tuple[int, int]], count: int) -> Any:
    """Return a global batch of `count` rows from the rows of this process, after the transform."""
    here = sum(b - a for a, b in mine)
    if plan.transform is not None:
        rows = plan.transform(rows)
        bad = [
            (tree.keystr(path) or "the array", list(np.shape(x)))
            for path, x in tree.tree_leaves_with_path(rows)
            if np.shape(x)[:1] != (here,)
        ]
        if bad:
            raise ValueError(
                describe(
                    "data.Loader",
                    f"transform changed the number of rows, which is {here}.",
                    bad[:8],
                    rule="It must return as many rows as it receives: the rows of this process.",
                )
            )
    if plan.shardings is None:
        return rows
    shardings = plan.shardings
    if not isinstance(shardings, Sharding):
        shardings = tree.broadcast_prefix(
            shardings, rows, is_leaf=lambda x: isinstance(x, Sharding)
        )
    leaves, structure = tree.tree_flatten(rows)
    leaf_shardings = [shardings] * len(leaves) if isinstance(shardings, Sharding) else shardings
    return tree.tree_unflatten(
        structure,
        [
            _global(np.asarray(leaf), sharding, mine, count)
            for leaf, sharding in zip(leaves, leaf_shardings)
        ],
    )


def _global(rows: np.ndarray, sharding: Sharding, mine: list[tuple[int, int]], count: int) -> Any:
    def part(index: tuple[slice, ...]) -> np.ndarray:
        start, stop, _ = index[0].indices(count)
        before = 0
        for a, b in mine:
            if a <= start and stop <= b:
                return rows[(slice(before + start - a, before + stop - a), *index[1:])]
            before += b - a
        raise AssertionError(f"rows {start} to {stop} are not rows of this process: {mine}")

    return make_array_from_callback((count, *rows.shape[1:]), sharding, part)
