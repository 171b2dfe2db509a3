"""Restoring: a stored tree, onto any devices of any number of processes.

In:   a folder; a tree with the requested structure and layouts, or the shardings of its arrays.
Out:  the tree: arrays where shardings are specified, else NumPy arrays.
Laws: a process reads the blocks that overlap its own shards, each once, and verifies their checksums. Mismatches of all leaves are
      reported at once, before any values are read.
Next: `layout` describes the stored tree, `store` reads arrays.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft import random
from weft._engine.api.placement.assembly import make_array_from_callback
from weft._engine.api.struct import ShapeDtypeStruct
from weft._engine.backends.formats import Format, Layout
from weft._engine.ir.shardings import Sharding
from weft._engine.runtime.array import Array, default_sharding
from weft._engine.util import dtypes, tree
from weft._engine.util.errors import CheckpointError, describe
from weft._engine.util.messages.progress import show_progress
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import record
from weft._engine.util.source import api_boundary
from weft.checkpoint import arguments, layout, listing, ranks, store
from weft.checkpoint.layout import StoredTree, TreeEntry

Box = tuple[slice, ...]
#: the tree of a step, its strings, and its folder
_OpenedStep = tuple[StoredTree, dict[str, str], Path]


@record(eq=False)
class _LeafRequest:
    """The requested sharding, dtype and memory layout of a leaf; `plain` is the Python type to convert it to."""

    sharding: Sharding | None = None
    dtype: Any = None
    plain: type | None = None
    layout: Layout | None = None


@api_boundary
def restore(
    path: str | os.PathLike,
    like: Any = None,
    *,
    step: int | None = None,
    shardings: Any = None,
    item: str | None = None,
) -> Any:
    """Return the tree that was saved in the folder `path`: its newest step, or `step`.

    `like` is a tree of the requested structure: each array gets the sharding and dtype of the array, or of the `ShapeDtypeStruct` with a
    sharding, at its place, whatever mesh and number of processes it was saved from; NumPy arrays, numbers and strings keep their kind.
    It may be a part of the stored tree. Without `like` the result consists of dicts and lists.
    `shardings`, a sharding or a prefix of the tree, places arrays; without it and `like` they are NumPy arrays. Numbers stay numbers.
    Checkpoints of orbax can be read too: `path` may be a folder of steps, one step, or one item; `item` selects one of several.
    Raises FileNotFoundError if there is no such step, ValueError for shapes, dtypes or leaves that do not fit `like`, and
    `CheckpointError` for damaged files.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = weft.checkpoint.save(folder, {"w": wnp.arange(3.0)}, step=1).wait()
    ...     weft.checkpoint.restore(folder, {"w": wnp.zeros(3)})
    {'w': Array([0., 1., 2.], dtype=float32)}
    """
    call = "checkpoint.restore(path, like, step=...)"
    with show_progress(f"restoring {arguments.absolute_path(call, path)}"):
        return _restore(_open(path, step, item, call), like, shardings)


def _restore(opened: _OpenedStep, like: Any, shardings: Any) -> Any:
    stored, texts, folder = opened
    by_names = {entry.names: entry for entry in stored.entries}
    if like is None:
        targets = _wanted_by_shardings(stored, shardings)
        values = _read(folder, stored, list(zip(stored.entries, targets)), texts)
        return layout.build_tree(stored.entries, values)
    leaves = layout.named_leaves("checkpoint.restore", like)
    missing = [
        TreeEntry(names, kinds, "")
        for names, kinds, value in leaves
        if names not in by_names and not layout.is_leaf(value)
    ]
    if missing:
        _raise_missing(missing, stored, folder)
    requested = [(names, value) for names, _, value in leaves if not layout.is_leaf(value)]
    targets = [wanted_like(value) for _, value in requested]
    if shardings is not None:
        targets = [
            target
            if target.plain is not None or sharding is None
            else _LeafRequest(sharding, target.dtype)
            for target, sharding in zip(targets, _prefix(shardings, like))
        ]
    entries = [by_names[names] for names, _ in requested]
    values = _read(
        folder, stored, list(zip(entries, targets)), texts, [value for _, value in requested]
    )
    return tree.tree_unflatten(tree.tree_structure(like), values)


@api_boundary
def metadata(path: str | os.PathLike, *, step: int | None = None, item: str | None = None) -> Any:
    """Return the stored tree with the types of its arrays, `ShapeDtypeStruct`s, as leaves. Raises FileNotFoundError for an absent step.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = weft.checkpoint.save(folder, {"w": wnp.arange(3.0)}, step=1).wait()
    ...     weft.checkpoint.metadata(folder)
    {'w': ShapeDtypeStruct(shape=(3,), dtype=float32)}
    """
    stored, _, folder = _open(path, step, item, "checkpoint.metadata(path, step=...)")
    reader = store.ArrayReader(folder, stored.ocdbt, stored.zarr3, stored.complete)
    generators = layout.read_generators(folder)
    values = []
    for entry, future in [
        (e, None if e.is_empty or e.value == "string" else reader.open(e.name))
        for e in stored.entries
    ]:
        if future is None:
            values.append(str if entry.value == "string" else layout.EMPTY[entry.value])
            continue
        opened = reader.result(str(entry), future)
        struct = ShapeDtypeStruct(tuple(opened.shape), store.numpy_dtype(opened))
        generator = generators.get(entry.name)
        if generator is not None:
            struct = ShapeDtypeStruct(struct.shape[:-1], random.key_dtype(generator))
        values.append(struct)
    return layout.build_tree(stored.entries, values)


@api_boundary
def verify(path: str | os.PathLike, *, step: int | None = None, item: str | None = None) -> None:
    """Read all of a stored tree and verify its checksums. Raises `CheckpointError`, which names the damaged file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = weft.checkpoint.save(folder, {"w": wnp.arange(3.0)}, step=1).wait()
    ...     weft.checkpoint.verify(folder)
    """
    stored, texts, folder = _open(path, step, item, "checkpoint.verify(path, step=...)")
    for _ in _values(folder, stored, [(entry, _LeafRequest()) for entry in stored.entries], texts):
        pass


# ---- locating


def _open(path: str | os.PathLike, step: int | None, item: str | None, call: str) -> _OpenedStep:
    """Return the stored tree, the strings, and the folder of the item; `call` is the public function with its arguments, for errors."""
    root = arguments.absolute_path(call, path)
    if step is not None:
        arguments.check_integer(call, "step", step, 0)
    store.tensorstore()
    folder = _find(root, step, item, call.partition("(")[0])
    layout.check_sums(folder)
    stored = layout.read_tree(folder)
    texts = layout.read_strings(folder)
    if (
        stored.ocdbt
        and any(_is_array(entry) for entry in stored.entries)
        and not (folder / layout.MANIFEST).exists()
    ):
        raise layout.make_damage_error(folder / layout.MANIFEST, "it is not there")
    return stored, texts, folder


def _find(root: Path, step: int | None, item: str | None, api: str) -> Path:
    if not root.is_dir():
        raise FileNotFoundError(f"{api}: there is no folder {root}.")
    if step is None:
        if layout.is_item(root):
            return root
        items = layout.items_of(root)
        if items:
            return _item(root, items, item, api)
    existing = listing.folders(root)
    if step is None and not existing and (lost := layout.find_lost_tree(root)) is not None:
        raise layout.make_damage_error(lost, "it is not there")
    if step is None:
        group = ranks.JointStages(f"checkpoint {root}", "restoring")
        newest = group.run_stage("newest", lambda: str(max(existing, default="")))
        step = int(newest[0]) if newest[0] else None
    if step is None or step not in existing:
        absent = "no complete step" if step is None else f"no step {step}"
        raise FileNotFoundError(f"{api}: {root} has {absent}; there are {list(existing)}.")
    return _item(existing[step], layout.items_of(existing[step]), item, api)


def _item(folder: Path, items: Sequence[Path], item: str | None, api: str) -> Path:
    named = {part.name: part for part in items}
    if item is not None:
        if item not in named:
            raise FileNotFoundError(
                f"{api}: {folder} has no item {item!r}; there are {sorted(named)}."
            )
        return named[item]
    if layout.ITEM in named or len(items) == 1:
        return named.get(layout.ITEM, items[0] if items else folder)
    if not items:
        if (lost := layout.find_lost_tree(folder)) is not None:
            raise layout.make_damage_error(lost, "it is not there")
        raise CheckpointError(
            describe(
                api,
                "a step has no tree.",
                [("folder", str(folder))],
                remedy="Restore another step (weft.checkpoint.steps lists them).",
            )
        )
    raise ValueError(f"{api}: {folder} has the items {sorted(named)}; choose one by item=.")


def _raise_missing(missing: Sequence[TreeEntry], stored: StoredTree, folder: Path) -> None:
    missing_text = map(str, missing[:6])
    stored_text = ", ".join(str(entry) for entry in stored.entries[:6]) + (
        ", …" if len(stored.entries) > 6 else ""
    )
    raise ValueError(
        describe(
            "checkpoint.restore",
            f"the checkpoint does not have {quantity(len(missing), 'leaf')} of `like`.",
            [
                ("missing", ", ".join(missing_text)),
                ("stored", stored_text),
                ("folder", str(folder)),
            ],
            remedy="weft.checkpoint.metadata(path) returns the stored tree.",
        )
    )


# ---- requested leaves


def wanted_like(value: Any) -> _LeafRequest:
    if type(value) is Array or isinstance(value, ShapeDtypeStruct):
        sharding = value.sharding
        return _LeafRequest(
            default_sharding() if sharding is None else sharding,
            value.dtype,
            None,
            value.format.layout,
        )
    if isinstance(value, np.ndarray):
        return _LeafRequest(None, value.dtype)
    if isinstance(value, (bool, int, float, complex, str, np.generic)):
        return _LeafRequest(None, None, type(value))
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _LeafRequest(default_sharding(), np.dtype(value.dtype))
    raise TypeError(
        f"checkpoint.restore: a leaf of `like` is a {type(value).__name__}; arrays, ShapeDtypeStructs, NumPy arrays, numbers "
        "and strings can be restored."
    )


def _wanted_by_shardings(stored: StoredTree, shardings: Any) -> list[_LeafRequest]:
    plain = layout.build_tree(stored.entries, range(len(stored.entries)))
    targets = [_LeafRequest() for _ in stored.entries]
    for place, sharding in zip(tree.tree_leaves(plain), _prefix(shardings, plain)):
        if stored.entries[place].value != "scalar":
            targets[place] = _LeafRequest(sharding)
    return targets


def _prefix(shardings: Any, full: Any) -> list[Any]:
    if shardings is None or isinstance(shardings, Sharding):
        return [shardings] * len(tree.tree_leaves(full))
    leaves = tree.broadcast_prefix(
        shardings, full, is_leaf=lambda x: x is None or isinstance(x, Sharding)
    )
    bad = next((x for x in leaves if x is not None and not isinstance(x, Sharding)), None)
    if bad is not None:
        raise TypeError(
            f"checkpoint.restore: shardings must be a tree of shardings and None, got a leaf of type {type(bad).__name__}."
        )
    return leaves


# ---- reading


def _is_array(entry: TreeEntry) -> bool:
    return not entry.is_empty and entry.value != "string"


def _read(
    folder: Path,
    stored: StoredTree,
    requests: Sequence[tuple[TreeEntry, _LeafRequest]],
    texts: dict[str, str],
    like: Sequence[Any] | None = None,
) -> list[Any]:
    return list(_values(folder, stored, requests, texts, like))


def _values(
    folder: Path,
    stored: StoredTree,
    requests: Sequence[tuple[TreeEntry, _LeafRequest]],
    texts: dict[str, str],
    like: Sequence[Any] | None = None,
) -> Iterator[Any]:
    """Yield the values of entries, in order; reads run ahead of placement."""
    reader = store.ArrayReader(folder, stored.ocdbt, stored.zarr3, stored.complete)
    generators = layout.read_generators(folder)
    opened = {entry.names: reader.open(entry.name) for entry, _ in requests if _is_array(entry)}
    ready = {names: reader.result(".".join(names), future) for names, future in opened.items()}
    _check(requests, ready, generators, like)
    pending: deque[_PendingRead] = deque()
    pending_bytes = 0
    for entry, target in requests:
        reading = _PendingRead(
            entry, target, ready.get(entry.names), generators.get(entry.name), texts
        )
        pending.append(reading)
        pending_bytes += reading.bytes
        while pending and pending_bytes > store.PENDING_READ_BYTES:
            first = pending.popleft()
            pending_bytes -= first.bytes
            yield first.value(reader)
    for reading in pending:
        yield reading.value(reader)


def _check(
    requests: Sequence[tuple[TreeEntry, _LeafRequest]],
    ready: dict[tuple[str, ...], Any],
    generators: dict[str, str],
    like: Sequence[Any] | None,
) -> None:
    """Raise ValueError for all leaves whose shape or dtype does not fit the request."""
    bad = []
    for i, (entry, target) in enumerate(requests):
        like_leaf = like[i] if like is not None else None
        if entry.is_empty or entry.value == "string" or target.plain is str:
            kind = str if entry.value == "string" else type(layout.EMPTY.get(entry.value, 0.0))
            if like_leaf is not None and not isinstance(like_leaf, kind):
                asked_for = f"requested: {type(like_leaf).__name__}"
                bad.append((str(entry), f"stored: {entry.value}", asked_for))
        else:
            misfit = _describe_mismatch(
                target, like_leaf, ready[entry.names], generators.get(entry.name)
            )
            if misfit is not None:
                bad.append((str(entry), *misfit))
    if bad:
        raise ValueError(
            describe(
                "checkpoint.restore",
                f"{len(bad)} of the leaves do not fit the stored tree.",
                bad[:8],
                rule="Shapes are equal; a dtype may be another of the same kind, as float32 for bfloat16.",
            )
        )


def _describe_mismatch(
    want: _LeafRequest, asked: Any, opened: Any, generator: str | None
) -> tuple[str, str] | None:
    """Return the stored and the requested type of an array, if they do not fit; else None."""
    shape: tuple[int, ...] = tuple(opened.shape)
    dtype: Any = store.numpy_dtype(opened)
    if generator is not None:
        shape, dtype = shape[:-1], random.key_dtype(generator)
    requested = shape if asked is None else tuple(getattr(asked, "shape", shape))
    as_ = want.dtype
    if want.plain is not None:
        requested, as_ = (), np.dtype(want.plain)
    if requested == shape and _castable(dtype, as_):
        return None
    asked_for = f"{getattr(as_, 'name', as_) or 'any dtype'}{list(requested)}"
    return f"stored: {getattr(dtype, 'name', dtype)}{list(shape)}", f"requested: {asked_for}"


def _castable(have: Any, want: Any) -> bool:
    """Return whether values may be cast to another dtype: within a kind, or to a greater kind (bool, integer, float, complex)."""
    if want is None or have == want:
        return True
    if dtypes.is_extended(have) or dtypes.is_extended(want):
        return False
    kinds = [np.bool_, np.integer, np.floating, np.complexfloating]
    rank = lambda dtype: next(
        (i for i, kind in enumerate(kinds) if dtypes.issubdtype(dtype, kind)), None
    )
    mine, other = rank(have), rank(want)
    return mine is not None and other is not None and mine <= other


class _PendingRead:
    """A leaf whose reads have started."""

    def __init__(
        self,
        entry: TreeEntry,
        want: _LeafRequest,
        opened: Any,
        generator: str | None,
        texts: dict[str, str],
    ):
        self.entry, self.want, self._opened, self._generator, self._texts = (
            entry,
            want,
            opened,
            generator,
            texts,
        )
        self._futures: dict[tuple[tuple[int, int], ...], Any] = {}
        self._whole: tuple[Box, Any] | None = None
        self.bytes = 0
        if opened is None:
            return
        shape, size = tuple(opened.shape), store.numpy_dtype(opened).itemsize
        # it applies to random keys too: their stored bits have one more dim, which is not split
        sharding = want.sharding
        boxes = (
            _boxes(sharding, shape) if sharding is not None else [tuple(slice(0, n) for n in shape)]
        )
        covered = [_volume(_align(box, store.chunk_shape(opened), shape)) for box in boxes]
        around = _around(boxes)
        # if blocks are larger than shards, read the bounding box, so that each block is decoded once
        if len(boxes) > 1 and sum(covered) > 2 * max(_volume(around), 1):
            self._whole = (around, opened[around].read())
            self.bytes = 2 * _volume(around) * size
        else:
            self._futures = {_corner(box): opened[box].read() for box in boxes}
            self.bytes = 2 * sum(_volume(box) for box in boxes) * size

    def value(self, reader: store.ArrayReader) -> Any:
        """Wait for the reads, and return the value."""
        if self._opened is None:
            if self.entry.value == "string":
                return self._texts.get(self.entry.name, "")
            return layout.EMPTY[self.entry.value]
        target, sharding, generator = self.want, self.want.sharding, self._generator
        read = self._part_reader(reader)
        shape = tuple(self._opened.shape)
        if sharding is not None:
            placed = sharding
            if target.layout is not None and generator is None:
                placed = Format(target.layout, sharding)
            value = make_array_from_callback(shape, placed, lambda index: read(_box(index, shape)))
        else:
            value = read(tuple(slice(0, n) for n in shape))
        if generator is not None:
            return random.wrap_key_data(value, impl=generator)
        if sharding is not None:
            return value
        if target.plain is not None:
            return target.plain(value.item())
        return value.item() if self.entry.value == "scalar" and target.dtype is None else value

    def _part_reader(self, reader: store.ArrayReader) -> Callable[[Box], np.ndarray]:
        """Return a function that returns a box of the array in the requested dtype."""
        what = f"the array {self.entry}"
        dtype = store.numpy_dtype(self._opened)
        if self._generator is None and self.want.dtype is not None:
            dtype = np.dtype(self.want.dtype)
        if self.want.sharding is not None:
            dtype = dtypes.canonicalize_dtype(dtype)
        whole = None
        if self._whole is not None:
            whole = (self._whole[0], np.asarray(reader.result(what, self._whole[1])))

        def read(box: Box) -> np.ndarray:
            if whole is None:
                part = np.asarray(reader.result(what, self._futures[_corner(box)]))
            else:
                around, values = whole
                part = values[
                    tuple(slice(b.start - a.start, b.stop - a.start) for a, b in zip(around, box))
                ]
            return _cast(part, dtype, self.entry)

        return read


def _cast(values: np.ndarray, dtype: Any, entry: TreeEntry) -> np.ndarray:
    """Return values cast to another dtype; raise ValueError if integers do not fit into it."""
    if values.dtype == dtype:
        return values
    cast = values.astype(dtype)
    if (
        np.issubdtype(values.dtype, np.integer)
        and np.issubdtype(dtype, np.integer)
        and not np.array_equal(cast, values)
    ):
        raise ValueError(
            f"checkpoint.restore: {entry} has integers that do not fit into {np.dtype(dtype).name}: it is stored as "
            f"{values.dtype.name}. Restore it as that dtype, with weft.enable_x64 if it has 64 bits."
        )
    return cast


def _boxes(sharding: Sharding, shape: Sequence[int]) -> list[Box]:
    """Return the distinct boxes of an array that devices of this process hold."""
    boxes = {}
    for index in sharding.addressable_devices_indices_map(tuple(shape)).values():
        box = _box(index, shape)
        boxes.setdefault(_corner(box), box)
    return list(boxes.values())


def _box(index: Sequence[slice], shape: Sequence[int]) -> Box:
    return tuple(slice(*s.indices(n)[:2]) for s, n in zip(index, shape))


def _corner(box: Box) -> tuple[tuple[int, int], ...]:
    return tuple((s.start, s.stop) for s in box)


def _volume(box: Iterable[slice]) -> int:
    return math.prod(max(s.stop - s.start, 0) for s in box)


def _align(box: Box, block: Sequence[int], shape: Sequence[int]) -> Box:
    """Return the smallest union of whole blocks that contains a box."""
    return tuple(
        slice(s.start // n * n, min(-(-s.stop // n) * n, size))
        for s, n, size in zip(box, block, shape)
    )


def _around(boxes: Sequence[Box]) -> Box:
    return tuple(
        slice(min(s.start for s in dims), max(s.stop for s in dims)) for dims in zip(*boxes)
    )
