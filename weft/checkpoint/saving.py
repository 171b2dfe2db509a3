"""Saving: a step is written in a temporary folder, which is renamed when it is complete.

In:   a folder, a tree of arrays and other values, the number of a step.
Out:  a `Save`, which reports its progress; the files that `layout` lists.
Laws: the saved values are those at the time of the call, whatever the program does with its arrays afterwards: arrays are kept alive, not
      copied; NumPy arrays are copied. One thread writes. One rename gives a folder the name of its step, after all its contents are
      on disk: at any time a step is complete or absent. Of equal shards one is written, by the process with the least to write.
      A group of processes claims the folder at its first save, and commits only while its claim holds (`claims`).
      All processes save the same tree; otherwise all of them raise an error.
Next: `store` writes arrays, `listing` lists and removes steps.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft import random
from weft._engine.ir.shardings import Sharding
from weft._engine.runtime.array import Array
from weft._engine.util import dtypes
from weft._engine.util.errors import (
    CheckpointError,
    CheckpointSupersededError,
    TracerError,
    describe,
)
from weft._engine.util.messages.progress import show_progress
from weft._engine.util.record import record
from weft._engine.util.source import api_boundary, user_frame
from weft.checkpoint import arguments, layout, listing, ranks, store
from weft.checkpoint.claims import Claim, own_claims
from weft.checkpoint.layout import TreeEntry

_SCALARS = (bool, int, float, complex)
_CALL = "checkpoint.save(path, tree, step)"


@record(eq=False)
class _ArrayToSave:
    """An array to save: its entry, its global shape, and the blocks that this process writes, with their start indices."""

    entry: TreeEntry
    shape: tuple[int, ...]
    dtype: np.dtype
    block: tuple[int, ...]
    generator: str | None
    sharding: Sharding | None
    parts: list[tuple[tuple[int, ...], np.ndarray]]


class Save:
    """A step that is being saved; `wait` blocks until it is on disk.

    `step` and `path` are its number and folder; `written` and `total` count bytes of arrays of this process.
    """

    def __init__(self, path: Path, step: int, total: int):
        self.path, self.step, self.total = path, step, total
        self._writer: store.ArrayWriter | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def written(self) -> int:
        """The bytes of arrays written so far."""
        return 0 if self._writer is None else self._writer.written

    @property
    def done(self) -> bool:
        """Whether the save has ended, successfully or not."""
        return self._thread is not None and not self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> Save:
        """Block until the step is on disk; raise the error of the save, or TimeoutError after `timeout` seconds."""
        if self._thread is not None:
            finished = lambda: self.written / max(self.total, 1)
            with show_progress(f"saving step {self.step}", finished):
                self._thread.join(timeout)
            if self._thread.is_alive():
                raise TimeoutError(
                    f"checkpoint.save: step {self.step} is not written after {timeout:g} s: {self!r}"
                )
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self

    def __repr__(self) -> str:
        state = (
            "failed"
            if self._error is not None
            else "done"
            if self.done
            else f"{self.written >> 20} of {self.total >> 20} MiB"
        )
        return f"Save(step={self.step}, path={str(self.path)!r}, {state})"


_last: list[Save] = []  # the most recent save, whose error must be raised or reported


@api_boundary
def save(
    path: str | os.PathLike,
    tree: Any,
    step: int,
    *,
    keep: int | None = None,
    keep_every: int | None = None,
    overwrite: bool = False,
    compress: bool = False,
) -> Save:
    """Save `tree` as `step` in the folder `path` asynchronously; call `.wait()` on the result to wait for the end.

    Leaves are arrays of any sharding, random keys, NumPy arrays, numbers, strings and None. Their values at the time of the call are saved,
    even if the program donates or changes them afterwards. Every process calls this with the same arguments, and writes its own shards.
    A step is visible only when it is complete. Afterwards the folder keeps the newest `keep` steps, and steps divisible by `keep_every`.
    `overwrite` allows replacing a step; `compress` trades time for disk space.
    Raises TypeError for leaves that cannot be saved and for swapped arguments. Later errors are raised by `wait`, by the next `save` and by
    `weft.checkpoint.wait`: FileExistsError for an existing step, `CheckpointError` for a full disk,
    `CheckpointSupersededError` if other processes have since begun to save in the folder. Earlier steps remain unchanged.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = weft.checkpoint.save(folder, {"w": wnp.arange(3.0), "epoch": 4}, step=100).wait()
    ...     weft.checkpoint.latest_step(folder), weft.checkpoint.restore(folder)
    (100, {'epoch': 4, 'w': array([0., 1., 2.], dtype=float32)})
    """
    wait()  # one step at a time; raises the error of the previous save
    store.tensorstore()
    group = ranks.JointStages("checkpoint.save", f"saving step {step}")
    root = _check_arguments(path, step, keep, keep_every)
    started = time.time_ns()
    arrays, others, strings = _snapshot(tree, group)
    saving = Save(
        root / str(step), step, sum(part.nbytes for array in arrays for _, part in array.parts)
    )
    where = user_frame()

    def run() -> None:
        try:
            writer = _StepWriter(saving, group, root, (arrays, others, strings), where)
            claim = writer.write(started, overwrite, compress)
            if group.rank == 0:
                listing.prune(claim, keep, keep_every)
        except BaseException as error:
            saving._error = _make_save_error(error, saving, root, where)

    saving._thread = threading.Thread(target=run, name=f"weft saves step {step}")
    if not _last:
        atexit.register(_report_at_exit)
    _last[:] = [saving]
    saving._thread.start()
    return saving


@api_boundary
def wait() -> None:
    """Block until every started save has ended; raise the error of the last one, unless its `wait` has raised it.

    >>> weft.checkpoint.wait()
    """
    if _last:
        _last[0].wait()


def _report_at_exit() -> None:
    """Print the error of a save on standard error, if the program ends without waiting for it."""
    if _last and _last[0]._error is not None:
        print(f"weft: {_last[0]._error}", file=sys.stderr)


def _check_arguments(
    path: str | os.PathLike, step: int, keep: int | None, keep_every: int | None
) -> Path:
    root = arguments.absolute_path(_CALL, path)
    arguments.check_integer(_CALL, "step", step, 0)
    for name, value in (("keep", keep), ("keep_every", keep_every)):
        if value is not None:
            arguments.check_integer(_CALL, name, value, 1)
    return root


def _make_save_error(error: BaseException, save: Save, root: Path, where: Any) -> BaseException:
    """Return the error to raise for a failed save, with the facts; errors other than OSError are returned unchanged."""
    if not isinstance(error, OSError) or isinstance(error, CheckpointSupersededError):
        return error
    try:
        existing = listing.steps(root)
    except OSError:
        existing = []
    table = [
        ("step", save.step),
        ("folder", str(root)),
        ("reason", str(error)),
        ("written", f"{save.written} of {save.total} bytes"),
        ("existing steps", ", ".join(map(str, existing[-4:])) or "none"),
    ]
    reported = (FileExistsError if isinstance(error, FileExistsError) else CheckpointError)(
        describe(
            "checkpoint.save",
            "a step was not saved.",
            table,
            where,
            "A step that is incomplete is not visible; the other steps are unchanged.",
        )
    )
    reported.__cause__ = error
    return reported


# ---- contents of a step


def _snapshot(
    tree: Any, group: ranks.JointStages
) -> tuple[list[_ArrayToSave], list[TreeEntry], dict[str, str]]:
    """Return the arrays to save, the entries without arrays, and the strings."""
    leaves = layout.named_leaves("checkpoint.save", tree)
    _check_leaves(leaves)
    loads = [0] * group.size
    arrays, others, strings = [], [], {}
    for names, kinds, value in leaves:
        if layout.is_leaf(value):
            others.append(TreeEntry(names, kinds, layout.empty_kind(value)))
        elif isinstance(value, str):
            others.append(TreeEntry(names, kinds, "string"))
            strings[".".join(names)] = value
        elif type(value) is Array:
            arrays.append(_array(names, kinds, value, loads, group.rank))
        else:
            arrays.append(_host_value(names, kinds, value, loads, group.rank))
    return arrays, others, strings


def _check_leaves(leaves: Iterable[tuple[tuple[str, ...], tuple[int, ...], Any]]) -> None:
    bad = []
    for names, kinds, value in leaves:
        if (
            layout.is_leaf(value)
            or type(value) is Array
            or isinstance(value, (str, *_SCALARS, np.generic))
        ):
            continue
        if getattr(type(value), "_is_tracer", False):
            raise TracerError(
                f"checkpoint.save: {TreeEntry(names, kinds, '')} is traced: values are saved outside of jit and grad."
            )
        if not isinstance(value, np.ndarray) or value.dtype.kind in "OUSMm":
            dtype = f" of {value.dtype}" if isinstance(value, np.ndarray) else ""
            bad.append(
                (
                    str(TreeEntry(names, kinds, "")),
                    f"{type(value).__module__}.{type(value).__name__}{dtype}",
                )
            )
    if bad:
        raise TypeError(
            describe(
                "checkpoint.save",
                "the tree has leaves that cannot be saved.",
                bad[:8],
                rule="Leaves are arrays, random keys, NumPy arrays of numbers, numbers, strings and None.",
            )
        )


def _array(
    names: Sequence[str], kinds: Sequence[int], value: Array, loads: list[int], rank: int
) -> _ArrayToSave:
    generator = None
    dtype: Any = value.dtype
    if dtypes.is_extended(dtype):
        generator = dtype.impl.name
        value = random.key_data(value)
    value.block_until_ready()
    sharding = value.sharding
    local, splits = sharding.shard_shape(value.shape), sharding.splits(value.shape)
    holders: dict[tuple[int, ...], list[int]] = {}
    for device, position in zip(sharding.device_assignment, sharding.shard_of_device(value.ndim)):
        holders.setdefault(position, []).append(device.process_index)
    size = int(np.prod(local, dtype=np.int64)) * value.dtype.itemsize
    own_starts = set()
    for position, holding in holders.items():
        writer = (
            min(holding, key=lambda process: (loads[process], process)) if len(loads) > 1 else 0
        )
        loads[writer] += size
        if writer == rank:
            own_starts.add(tuple(p * n for p, n in zip(position, local)))
    parts = {}
    for shard in value.addressable_shards:
        start = tuple(s.start or 0 for s in shard.index)
        if start in own_starts and start not in parts and shard.data is not None:
            parts[start] = shard.data._numpy()
    entry = TreeEntry(tuple(names), tuple(kinds), "jax.Array", local)
    return _ArrayToSave(
        entry,
        value.shape,
        value.dtype,
        store.block_shape(local, splits, value.dtype.itemsize),
        generator,
        sharding,
        list(parts.items()),
    )


def _host_value(
    names: Sequence[str], kinds: Sequence[int], value: Any, loads: list[int], rank: int
) -> _ArrayToSave:
    """Return the record of a NumPy array or a number, which process 0 writes."""
    copied = np.array(value, order="C")  # a copy, because the program may change the original
    if copied.dtype == object:
        raise TypeError(
            f"checkpoint.save: {TreeEntry(tuple(names), tuple(kinds), '')} is an integer of more than 64 bits: {value}."
        )
    if not copied.dtype.isnative:
        copied = copied.astype(copied.dtype.newbyteorder("="))
    loads[0] += copied.nbytes
    block = store.block_shape(copied.shape, (1,) * copied.ndim, copied.dtype.itemsize)
    plain = isinstance(value, _SCALARS) and not isinstance(value, np.generic)
    entry = TreeEntry(tuple(names), tuple(kinds), "scalar" if plain else "np.ndarray")
    return _ArrayToSave(
        entry,
        copied.shape,
        copied.dtype,
        block,
        None,
        None,
        [((0,) * copied.ndim, copied)] if rank == 0 else [],
    )


# ---- writing


class _StepWriter:
    """A writer of one step, together with all other processes; every stage ends on all of them, or fails on all."""

    def __init__(
        self,
        save: Save,
        group: ranks.JointStages,
        root: Path,
        what: tuple[list[_ArrayToSave], list[TreeEntry], dict[str, str]],
        where: Any,
    ):
        self.save, self.group, self.root, self.where = save, group, root, where
        self.arrays, self.others, self.strings = what
        self.claim: Claim | None = None

    def write(self, started: int, overwrite: bool, compress: bool) -> Claim:
        """Write the step, and return the group's claim."""
        group = self.group
        try:
            texts = group.run_stage(
                "begins", self._check_claim_on_error(lambda: self._begin(overwrite))
            )
            beginnings = [json.loads(text) for text in texts]
            claim = self.claim = Claim(self.root, *beginnings[0][1:])
            self._check_digests([digest for digest, *_ in beginnings])
            group.run_stage(
                "has written",
                self._check_claim_on_error(lambda: self._write_parts(claim, compress)),
            )
            group.run_stage(
                "is named",
                self._check_claim_on_error(lambda: self._commit(claim, started, overwrite)),
            )
        except BaseException:
            if self.claim is not None and group.rank == 0:
                folder = listing.temporary_folder(self.claim, self.save.step)
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return claim

    def _check_claim_on_error(self, work: Callable[[], str]) -> Callable[[], str]:
        """Wrap `work` so that its OSErrors are reported as a lost claim if another group has claimed the folder and removed files."""

        def run() -> str:
            try:
                return work()
            except CheckpointSupersededError:
                raise
            except OSError:
                if self.claim is not None:
                    self.claim.check(self.where)
                raise

        return run

    def _begin(self, overwrite: bool) -> str:
        token, identity, save = 0, "", self.save
        own_claims.enter_group()
        if self.group.rank == 0:
            self.root.mkdir(parents=True, exist_ok=True)
            claim = self.claim = own_claims.acquire(self.root, self.where)
            token, identity = claim.token, claim.identity
            if save.path.exists() and not overwrite:
                raise FileExistsError(f"{save.path} exists; overwrite=True replaces it")
            listing.sweep(claim)
            (listing.temporary_folder(claim, save.step) / layout.ITEM).mkdir(parents=True)
        return json.dumps([_digest(self.arrays, self.others), token, identity])

    @staticmethod
    def _check_digests(digests: list[str]) -> None:
        other = next((r for r, digest in enumerate(digests) if digest != digests[0]), None)
        if other is not None:
            raise CheckpointError(
                f"processes 0 and {other} save different trees: paths, shapes, dtypes or shardings are not equal"
            )

    def _write_parts(self, claim: Claim, compress: bool) -> str:
        group, save = self.group, self.save
        item = listing.temporary_folder(claim, save.step) / layout.ITEM
        if not item.is_dir():
            raise CheckpointError(
                f"process {group.rank} does not see {item}, which process 0 created: the folder is not shared"
            )
        folder = item if group.size == 1 else item / f"ocdbt.process_{group.rank}"
        folder.mkdir(exist_ok=True)
        writer = save._writer = store.ArrayWriter(folder, compress)
        for array in self.arrays:
            for start, part in array.parts:
                writer.add(array.entry.name, array.shape, array.dtype, array.block, start, part)
                group.report_progress(f"{writer.written >> 20} of {save.total >> 20} MiB")
        writer.finish()
        return ""

    def _commit(self, claim: Claim, started: int, overwrite: bool) -> str:
        if self.group.rank == 0:
            temporary = listing.temporary_folder(claim, self.save.step)
            item = temporary / layout.ITEM
            if self.group.size > 1:
                parts = sorted(item.glob("ocdbt.process_*"))
                store.merge(item, [part for part in parts if (part / layout.MANIFEST).exists()])
            _write_texts(temporary, self.arrays, self.others, self.strings, started)
            claim.check(self.where)
            listing.commit(temporary, self.save.path, overwrite)
        return ""


def _digest(arrays: Iterable[_ArrayToSave], others: Iterable[TreeEntry]) -> str:
    """Return a hash of everything that must be equal in all processes."""
    lines = [
        f"{a.entry.names} {a.entry.kinds} {a.entry.value} {a.shape} {a.dtype.name} {a.block} {a.generator}"
        for a in arrays
    ]
    return hashlib.sha256("\n".join([*lines, *map(repr, others)]).encode()).hexdigest()


def _write_texts(
    temporary: Path,
    arrays: Sequence[_ArrayToSave],
    others: Sequence[TreeEntry],
    strings: dict[str, str],
    started: int,
) -> None:
    item = temporary / layout.ITEM
    (item / layout.ARRAYS).mkdir()
    entries = sorted([*(array.entry for array in arrays), *others], key=lambda entry: entry.names)
    shared = [array for array in arrays if array.sharding is not None]
    texts = {
        layout.TREE: layout.tree_text(entries),
        layout.SHARDINGS: layout.shardings_text(
            {array.entry.name: array.sharding for array in shared if array.sharding is not None}
        ),
        f"{layout.ARRAYS}/process_0": layout.arrays_text(
            (array.entry.name, array.entry.write_shape or (), array.block, array.generator)
            for array in shared
        ),
    }
    if strings:
        texts[layout.STRINGS] = layout.strings_text(strings)
    for name, text in texts.items():
        layout.write_text(item / name, text)
    layout.write_text(item / layout.SUMS, layout.sums_text(item, texts))
    layout.write_text(item / layout.COMMITTED, "whole\n")
    layout.write_text(
        temporary / layout.STEP, layout.step_text([layout.ITEM], started, time.time_ns())
    )
    layout.write_text(temporary / layout.COMMITTED, "whole\n")
    for folder, _, _ in os.walk(temporary, topdown=False):
        layout.sync_folder(Path(folder))
