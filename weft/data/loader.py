"""`Loader`: an iterator of global batches.

In:   a source, the size of the global batch, the sharding of batches, a seed.
Out:  batches, as arrays on devices or as the rows of this process.
Laws: batch number n is the same whatever the number of processes: positions of the whole batch are computed everywhere, and a process
      reads the rows that its devices hold. What is read ahead does not count: `state` is that of the batches that were handed out. An
      error of the source is raised where its batch would have come. The thread ends with the loader, or with `close`.
Next: `sources` gives rows, `order` the order.
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
from weft._engine.util.record import record
from weft._engine.util.source import api_boundary
from weft.data.order import permuted
from weft.data.sources import Arrays, Records, Source, Stream, source_of, stacked

_END = object()


@record(eq=False)
class _Plan:
    """What the batches are: all that the thread needs, without the loader."""

    source: Source
    batch_size: int
    shardings: Any
    seed: int
    shuffle: bool
    epochs: int | None
    drop_last: bool
    transform: Callable[[Any], Any] | None

    def steps_of(self, rows: int) -> int:
        """Batches of an epoch."""
        return rows // self.batch_size if self.drop_last else -(-rows // self.batch_size)


class Loader:
    """An iterator of global batches of `batch_size` rows of `source`, a new order in each epoch.

    `source` is a tree of arrays with equal first dims (NumPy arrays, memory maps), an object with `len` and `[]` that gives records, an
    iterable of records, or a function that gives one for each epoch. `sharding`, one for all arrays or a prefix of the tree, lays batches
    out: each process reads the rows that its devices hold. Without it a batch is NumPy arrays, of several processes the part of this one.
    The order depends on `seed` and the epoch alone, not on the number of processes; `shuffle` is off for iterables. There are `epochs`
    passes over the source, or no end. A last batch that is not full is left out with `drop_last`. `transform` is applied to the rows of
    this process, as NumPy arrays. A thread reads `prefetch` batches ahead and places them; 0 does without it.

    `state()` and `restore(state)` go on at a step, from a checkpoint, say; `step` counts batches.
    Raises ValueError for a source without a whole batch, for a batch that the sharding cannot split, and for a foreign state; TypeError
    for what is not a source.

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
        found = source_of(source)
        if batch_size < 1 or prefetch < 0 or (epochs is not None and epochs < 1):
            raise ValueError(
                f"data.Loader: batch_size and epochs are at least 1, prefetch at least 0; got {batch_size}, {epochs}, "
                f"{prefetch}."
            )
        if isinstance(found, Stream) and shuffle:
            raise ValueError(
                "data.Loader: records of an iterable come in its order; shuffle them there, or give a sequence."
            )
        if found.size is not None and found.size < (batch_size if drop_last else 1):
            raise ValueError(
                f"data.Loader: the source has {found.size} rows, and a batch has {batch_size}."
            )
        shuffle = not isinstance(found, Stream) if shuffle is None else shuffle
        self._plan = _Plan(found, batch_size, sharding, seed, shuffle, epochs, drop_last, transform)
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
            self.close()  # the next call tries again
            raise
        self.step += 1
        return batch

    @property
    def epoch(self) -> int:
        """The pass over the source that the next batch belongs to; of an iterable only it knows."""
        rows = self._plan.source.size
        if rows is None:
            raise ValueError(
                "data.Loader: the number of rows of an iterable is not known, nor therefore its epoch."
            )
        return self.step // self._plan.steps_of(rows)

    def state(self) -> dict[str, int]:
        """Where it is, as numbers: the next batch, and what the order depends on. They can stand in a checkpoint."""
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
        """Go on where a loader of the same data was, with any number of processes. ValueError for a state of other data."""
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
        """End the thread; what was read ahead is read again if the loader goes on."""
        if self._stop is not None:
            self._stop()
        self._batches = self._stop = None

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _start(self) -> Iterator[Any]:
        made = _batches(self._plan, self.step)
        if not self._prefetch:
            self._stop = made.close
            return made
        prefetcher = _Prefetcher(made, self._prefetch)
        self._stop = weakref.finalize(self, prefetcher.stop)
        prefetcher.thread.start()
        return prefetcher.drain()


class _Prefetcher:
    """Batches between the thread that makes them and the one that asks."""

    def __init__(self, batches: Generator[Any, None, None], most: int):
        self._batches = batches
        self._ready: queue.Queue = queue.Queue(most)
        self._stopped = threading.Event()
        self.thread = threading.Thread(target=self._fill, name="weft reads data", daemon=True)

    def _fill(self) -> None:
        """What the thread does: puts batches, then the end or the error."""
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
        """What the thread puts, in order, to the end or the error."""
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
        """Have the thread end, and wait for it, unless it waits for a source of its own."""
        self._stopped.set()
        while True:
            try:
                self._ready.get_nowait()
            except queue.Empty:
                break
        if self.thread.ident is not None and self.thread is not threading.current_thread():
            self.thread.join(1.0)


# ---- batches


def _batches(plan: _Plan, step: int) -> Generator[Any, None, None]:
    """The batches from number `step` on."""
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


def _batch(plan: _Plan, source: Arrays | Records, start: int, count: int, epoch: int) -> Any:
    """Rows `start` to `start + count` of the order of an epoch."""
    mine = _rows_here(plan.shardings, count)
    positions = start + np.concatenate([np.arange(a, b) for a, b in mine])
    numbers = permuted(positions, source.size, plan.seed, epoch) if plan.shuffle else positions
    return _placed(plan, source.rows(numbers), mine, count)


def _of_stream(plan: _Plan, source: Stream, step: int) -> Iterator[Any]:
    epoch, skip = 0, step * plan.batch_size
    while plan.epochs is None or epoch < plan.epochs:
        if epoch and not source.can_begin_again:
            return
        seen, rows = 0, []
        for record_ in source.records(0):
            seen += 1
            if seen <= skip:  # batches that were handed out before
                continue
            rows.append(record_)
            if len(rows) == plan.batch_size:
                yield _of_records(plan, rows)
                rows = []
        if not seen:
            return
        if rows and not plan.drop_last:
            yield _of_records(plan, rows)
        skip = max(skip - plan.steps_of(seen) * plan.batch_size, 0)
        epoch += 1


def _of_records(plan: _Plan, rows: list[Any]) -> Any:
    mine = _rows_here(plan.shardings, len(rows))
    return _placed(plan, stacked([rows[i] for a, b in mine for i in range(a, b)]), mine, len(rows))


def _rows_here(shardings: Any, count: int) -> list[tuple[int, int]]:
    """The rows of a batch that this process needs, as ranges in order that do not touch."""
    if shardings is None:
        here = processes.current()
        if here is None:
            return [(0, count)]
        if count % here.size:
            raise ValueError(
                f"data.Loader: {here.size} processes cannot share a batch of {count} rows evenly."
            )
        part = count // here.size
        return [(here.rank * part, (here.rank + 1) * part)]
    found = set()
    for sharding in tree.tree_leaves(shardings, is_leaf=lambda x: isinstance(x, Sharding)):
        shape = (
            count,
            *sharding.splits(max(len(getattr(sharding, "spec", ())), 1))[1:],
        )  # other dims are no matter
        for index in sharding.addressable_devices_indices_map(shape).values():
            found.add(index[0].indices(count)[:2])
    joined: list[tuple[int, int]] = []
    for a, b in sorted(found):
        if joined and a <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(b, joined[-1][1]))
        else:
            joined.append((a, b))
    return joined


def _placed(plan: _Plan, rows: Any, mine: list[tuple[int, int]], count: int) -> Any:
    """The rows of this process, transformed, as a global batch of `count`."""
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
                    rule="It is given the rows of this process, and gives as many.",
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
    each = [shardings] * len(leaves) if isinstance(shardings, Sharding) else shardings
    return tree.tree_unflatten(
        structure,
        [_global(np.asarray(leaf), sharding, mine, count) for leaf, sharding in zip(leaves, each)],
    )


def _global(rows: np.ndarray, sharding: Sharding, mine: list[tuple[int, int]], count: int) -> Any:
    def part(index: tuple[slice, ...]) -> np.ndarray:
        start, stop, _ = index[0].indices(count)
        before = 0
        for a, b in mine:
            if a <= start and stop <= b:
                return rows[(slice(before + start - a, before + stop - a), *index[1:])]
            before += b - a
        raise AssertionError(f"rows {start} to {stop} are not among those of this process: {mine}")

    return make_array_from_callback((count, *rows.shape[1:]), sharding, part)
