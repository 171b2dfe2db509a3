"""Asynchronous storage of sharded arrays in tensorstore formats, each array under its own path or spec.

In:   arrays, and a tensorstore spec for each (`get_tensorstore_spec`). Reading takes the sharding of each array.
Out:  `GlobalAsyncCheckpointManager`, `run_serialization` and `run_deserialization`, and the coroutines they consist of.
Laws: each shard is written once, by the process that holds its first replica. `serialize` returns when the values are
      copied; the program may donate the arrays then. The next call raises the error of a failed save.

Whole trees, with checksums and in fewer files, are saved by `weft.checkpoint`.
"""

from __future__ import annotations

import abc
import asyncio
import concurrent.futures
import itertools
import os
import posixpath
import re
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np

from weft._engine import processes
from weft._engine.api.placement.assembly import make_array_from_callback
from weft._engine.api.struct import ShapeDtypeStruct
from weft._engine.backends.formats import Format
from weft._engine.runtime.array import Array
from weft._engine.util import dtypes
from weft.checkpoint.store import tensorstore

__all__ = [
    "AsyncManager",
    "GlobalAsyncCheckpointManager",
    "GlobalAsyncCheckpointManagerBase",
    "async_deserialize",
    "async_serialize",
    "get_tensorstore_spec",
    "is_remote_storage",
    "run_deserialization",
    "run_serialization",
]

_REMOTE = {"gs": "gcs", "s3": "s3"}  # URL scheme -> name of the tensorstore driver


def get_tensorstore_spec(
    ckpt_path: str | os.PathLike[str],
    *,
    ocdbt: bool = False,
    process_idx: int | None = None,
    arr: Any = None,
    driver: str = "zarr",
) -> dict[str, Any]:
    """Return the tensorstore spec of an array's location: a folder, or a `gs://` or `s3://` address.

    With `ocdbt`, the folder is a database and the last part of the path is the array's name in it. `process_idx` inserts a
    folder for each process. `arr` defines shape and blocks. Raises ValueError for an `ocdbt` path without a folder.

    >>> get_tensorstore_spec("/data/weights", ocdbt=True)["kvstore"]
    {'driver': 'ocdbt', 'base': {'driver': 'file', 'path': '/data'}, 'path': 'weights'}
    """
    scheme, separator, rest = os.fspath(ckpt_path).partition("://")
    if not separator:
        scheme, rest = "", os.path.normpath(os.fspath(ckpt_path))
    elif scheme not in _REMOTE:
        raise ValueError(
            f"get_tensorstore_spec: addresses begin with {' or '.join(f'{s}://' for s in _REMOTE)}, got {ckpt_path!r}."
        )
    folder, name = posixpath.split(rest)
    if ocdbt and not folder:
        raise ValueError(
            f"get_tensorstore_spec: with ocdbt the path is a folder and a name in it, got {os.fspath(ckpt_path)!r}."
        )
    if process_idx is not None:
        folder = posixpath.join(folder, f"process_{process_idx}")
    place = folder if ocdbt else posixpath.join(folder, name)
    if scheme:
        bucket, _, place = place.partition("/")
        base = {"driver": _REMOTE[scheme], "bucket": bucket, "path": place}
    else:
        base = {"driver": "file", "path": place}
    spec = {
        "driver": driver,
        "kvstore": {"driver": "ocdbt", "base": base, "path": name} if ocdbt else base,
    }
    if arr is not None:
        spec["metadata"] = _metadata(arr, driver)
    return spec


def _shard_shape(arr: Any) -> tuple[int, ...]:
    return tuple(arr.sharding.shard_shape(tuple(arr.shape)))


def _metadata(arr: Any, driver: str) -> dict[str, Any]:
    """Return the shape and the blocks, one block for each shard."""
    shape, block = [int(n) for n in arr.shape], [max(int(n), 1) for n in _shard_shape(arr)]
    if driver == "zarr3":
        return {
            "codecs": [],
            "shape": shape,
            "data_type": np.dtype(arr.dtype).name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": block}},
        }
    return {"compressor": {"id": "zstd"}, "shape": shape, "chunks": block}


def is_remote_storage(tspec: dict[str, Any] | str) -> bool:
    """Return True if a spec or address names remote storage, judging by its text.

    >>> is_remote_storage("gs://bucket/x"), is_remote_storage(get_tensorstore_spec("/data/x"))
    (True, False)
    """
    if isinstance(tspec, str):
        return re.match(r"(gs|s3)://", tspec) is not None
    inner = [tspec[key] for key in ("base", "kvstore") if key in tspec]
    return tspec.get("driver") in _REMOTE.values() or any(is_remote_storage(each) for each in inner)


class _Budget:
    """A limit on the bytes in flight; a request larger than the limit waits until it is the only one."""

    def __init__(self, most: int) -> None:
        self.limit, self.used, self.changed = most, 0, asyncio.Condition()

    async def take(self, size: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: not self.used or self.used + size <= self.limit)
            self.used += size

    async def give(self, size: int) -> None:
        async with self.changed:
            self.used -= size
            self.changed.notify_all()


async def async_serialize(
    arr_inp: Array,
    tensorstore_spec: Any,
    commit_future: list | None = None,
    context: Any = None,
    chunk_layout: Any = None,
    primary_host: int | None = None,
    replica_id: int = 0,
    transaction: Any = None,
) -> None:
    """Write the shards of an array that this process holds as replica `replica_id`.

    With a list `commit_future`, append the futures of the writes and return when the values are copied; otherwise return
    when they are written. Raises TypeError for random keys, and tensorstore's ValueError if another array is stored there.
    """
    if not isinstance(arr_inp, Array) or dtypes.is_extended(arr_inp.dtype):
        raise TypeError(
            f"async_serialize: takes arrays of numbers, got {type(arr_inp).__name__}. The data of random keys are "
            "random.key_data(keys)."
        )
    ts = tensorstore()
    spec = (
        tensorstore_spec
        if isinstance(tensorstore_spec, ts.Spec)
        else ts.Spec(
            {
                **(
                    {"metadata": {"compressor": {"id": "zstd"}}}
                    if tensorstore_spec.get("driver") == "zarr"
                    else {}
                ),
                **tensorstore_spec,
            }
        )
    )
    layout = {} if chunk_layout is None else {"chunk_layout": chunk_layout}
    if not layout and spec.chunk_layout.read_chunk.shape is None:
        layout = {
            "chunk_layout": ts.ChunkLayout(chunk_shape=[max(n, 1) for n in _shard_shape(arr_inp)])
        }
    opened = await ts.open(
        spec,
        create=True,
        open=True,
        dtype=ts.dtype(np.dtype(arr_inp.dtype)),
        shape=arr_inp.shape,
        context=context,
        transaction=transaction,
        **layout,
    )
    commits = []
    for shard in arr_inp.addressable_shards:
        if shard.replica_id == replica_id:
            writing = opened[shard.index].write(np.asarray(shard.data))
            await writing.copy
            commits.append(writing.commit)
    if commit_future is None:
        for commit in commits:
            await commit
    else:
        commit_future += commits


async def async_deserialize(
    in_type: Any,
    tensorstore_spec: Any,
    global_shape: Sequence[int] | None = None,
    dtype: Any = None,
    byte_limiter: Any = None,
    context: Any = None,
    chunk_layout: Any = None,
    assume_metadata: bool = False,
) -> Array:
    """Read an array with the sharding of `in_type`: a sharding, a format or a ShapeDtypeStruct with one.

    If `global_shape` differs from the stored shape, the array is truncated or padded with zeros at the ends of its dims.
    Raises ValueError if nothing is stored, and for an `in_type` without a sharding.
    """
    if isinstance(in_type, ShapeDtypeStruct):
        global_shape = in_type.shape if global_shape is None else global_shape
        dtype, in_type = in_type.dtype if dtype is None else dtype, in_type.sharding
    sharding = in_type.sharding if isinstance(in_type, Format) else in_type
    if sharding is None:
        raise ValueError(
            "async_deserialize: in_type has no sharding. Give a sharding, or a ShapeDtypeStruct that has one."
        )
    ts = tensorstore()
    opened = await ts.open(
        ts.Spec(tensorstore_spec),
        open=True,
        context=context,
        assume_metadata=assume_metadata,
        **({} if chunk_layout is None else {"chunk_layout": chunk_layout}),
    )
    shape = tuple(opened.shape) if global_shape is None else tuple(global_shape)
    if len(shape) != len(opened.shape):
        raise ValueError(
            f"async_deserialize: the stored array has shape {tuple(opened.shape)}; {shape} has another rank."
        )
    parts: dict[str, np.ndarray] = {}
    for index in sharding.addressable_devices_indices_map(shape).values():
        if str(index) not in parts:
            spans = [s.indices(n)[:2] for s, n in zip(index, shape)]
            parts[str(index)] = await _read_part(opened, spans, dtype, byte_limiter)
    return make_array_from_callback(shape, in_type, lambda index: parts[str(index)])


async def _read_part(
    opened: Any, spans: list[tuple[int, int]], dtype: Any, byte_limiter: Any
) -> np.ndarray:
    """Read from `first` to `last` of each dim, with zeros beyond the ends of the stored array."""
    inside = tuple(
        slice(min(first, n), min(last, n)) for (first, last), n in zip(spans, opened.shape)
    )
    size = int(np.prod([s.stop - s.start for s in inside])) * opened.dtype.numpy_dtype.itemsize
    if byte_limiter is not None:
        await byte_limiter.take(size)
    try:
        part = await opened[inside].read()
    finally:
        if byte_limiter is not None:
            await byte_limiter.give(size)
    part = part if dtype is None else part.astype(dtype)
    missing = [(0, last - first - n) for (first, last), n in zip(spans, part.shape)]
    return np.pad(part, missing) if missing else part  # np.pad does not accept scalars


def run_serialization(arrays: Sequence[Array], tensorstore_specs: Sequence[Any]) -> None:
    """Write arrays, each to the location in its spec, and wait for completion."""
    _check_lengths("run_serialization", arrays=arrays, tensorstore_specs=tensorstore_specs)

    async def write() -> None:
        await asyncio.gather(
            *[async_serialize(x, spec) for x, spec in zip(arrays, tensorstore_specs)]
        )

    _run(write())


def run_deserialization(
    shardings: Sequence[Any],
    tensorstore_specs: Sequence[Any],
    global_shapes: Sequence[Sequence[int]] | None = None,
    dtypes: Sequence[Any] | None = None,
    concurrent_gb: int = 32,
) -> list[Array]:
    """Read arrays with `shardings`, with at most `concurrent_gb` times 10^9 bytes in flight; see `async_deserialize`."""
    count = len(shardings)
    shapes = [None] * count if global_shapes is None else global_shapes
    target_dtypes = [None] * count if dtypes is None else dtypes
    _check_lengths(
        "run_deserialization",
        shardings=shardings,
        tensorstore_specs=tensorstore_specs,
        global_shapes=shapes,
        dtypes=target_dtypes,
    )

    async def read() -> list[Array]:
        limiter = _Budget(concurrent_gb * 10**9)
        return await asyncio.gather(
            *[
                async_deserialize(*each, byte_limiter=limiter)
                for each in zip(shardings, tensorstore_specs, shapes, target_dtypes)
            ]
        )

    return _run(read())


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine; use a new thread if an event loop is running, as in notebooks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _check_lengths(api: str, **sequences: Sequence[Any]) -> None:
    if len({len(values) for values in sequences.values()}) > 1:
        raise ValueError(
            f"{api}: one of each is needed for every array, got {', '.join(f'{len(v)} {k}' for k, v in sequences.items())}."
        )


class GlobalAsyncCheckpointManagerBase(abc.ABC):
    """The interface of managers of asynchronous checkpoints, for subclasses and `isinstance` tests in libraries.

    >>> issubclass(GlobalAsyncCheckpointManagerBase, abc.ABC)
    True
    """

    @abc.abstractmethod
    def check_for_errors(self) -> None:
        """Raise the error of an earlier save, if any."""

    @abc.abstractmethod
    def wait_until_finished(self) -> None:
        """Wait until all saves have ended."""

    @abc.abstractmethod
    def serialize(
        self,
        arrays: Any,
        tensorstore_specs: Any,
        *,
        on_commit_callback: Any = None,
        transaction: Any = None,
    ) -> None:
        """Start to save arrays to stores."""

    @abc.abstractmethod
    def deserialize(
        self,
        shardings: Any,
        tensorstore_specs: Any,
        global_shapes: Any = None,
        dtypes: Any = None,
        concurrent_gb: int = 32,
    ) -> Any:
        """Read arrays with `shardings`."""


_saves = itertools.count()  # all processes save in the same order, so barrier names agree


class AsyncManager:
    """A thread that waits for saves and then calls the callback: on the first process, after all processes have finished."""

    def __init__(self, timeout_secs: float = 300) -> None:
        self._timeout_secs, self._thread, self._error = timeout_secs, None, None
        self._commits: list[Any] = []

    def _add_futures(self, futures: Sequence[Any]) -> None:
        self._commits = list(futures)

    def _start_async_commit(self, on_commit_callback: Callable[[], None] | None) -> None:
        commits, self._commits, group, number = self._commits, [], processes.current(), next(_saves)

        def finish() -> None:
            try:
                for commit in commits:
                    commit.result()
                if group is not None:
                    group.barrier(f"array_serialization/{number}", self._timeout_secs)
                if on_commit_callback is not None and (group is None or group.rank == 0):
                    on_commit_callback()
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=finish, name="array_serialization", daemon=False)
        self._thread.start()

    def check_for_errors(self) -> None:
        """Raise the error of the last save, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def wait_until_finished(self) -> None:
        """Wait until the last save has ended. Raises its error."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check_for_errors()


class GlobalAsyncCheckpointManager(AsyncManager, GlobalAsyncCheckpointManagerBase):
    """A manager that saves arrays in the background, one save at a time, and reads them.

    A process waits for the others for at most `timeout_secs`. Needs tensorstore.
    """

    def serialize(
        self,
        arrays: Sequence[Array],
        tensorstore_specs: Sequence[Any],
        *,
        on_commit_callback: Callable[[], None] | None = None,
        transaction: Any = None,
    ) -> None:
        """Start to save arrays, each to the location in its spec; return when their values are copied.

        `on_commit_callback` is called when all arrays are written. Waits for the previous save and raises its error; raises
        ValueError if the numbers of arrays and specs differ.
        """
        _check_lengths("serialize", arrays=arrays, tensorstore_specs=tensorstore_specs)
        self.wait_until_finished()
        commits: list[Any] = []

        async def copy() -> None:
            await asyncio.gather(
                *[
                    async_serialize(x, spec, commit_future=commits, transaction=transaction)
                    for x, spec in zip(arrays, tensorstore_specs)
                ]
            )

        _run(copy())
        self._add_futures(commits)
        self._start_async_commit(on_commit_callback)

    def serialize_with_paths(
        self,
        arrays: Sequence[Array],
        paths: Sequence[str],
        *,
        on_commit_callback: Callable[[], None] | None = None,
        transaction: Any = None,
    ) -> None:
        """Save arrays like `serialize`, each to a folder."""
        self.serialize(
            arrays,
            [get_tensorstore_spec(path) for path in paths],
            on_commit_callback=on_commit_callback,
            transaction=transaction,
        )

    def deserialize(
        self,
        shardings: Sequence[Any],
        tensorstore_specs: Sequence[Any],
        global_shapes: Sequence[Any] | None = None,
        dtypes: Sequence[Any] | None = None,
        concurrent_gb: int = 32,
    ) -> list[Array]:
        """Read arrays after the previous save has ended; see `run_deserialization`."""
        self.wait_until_finished()
        return run_deserialization(
            shardings, tensorstore_specs, global_shapes, dtypes, concurrent_gb
        )

    def deserialize_with_paths(
        self,
        shardings: Sequence[Any],
        paths: Sequence[str],
        global_shapes: Sequence[Any] | None = None,
        dtypes: Sequence[Any] | None = None,
        concurrent_gb: int = 32,
    ) -> list[Array]:
        """Read arrays like `deserialize`, each from a folder."""
        return self.deserialize(
            shardings,
            [get_tensorstore_spec(path) for path in paths],
            global_shapes,
            dtypes,
            concurrent_gb,
        )
