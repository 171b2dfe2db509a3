"""Arrays in files: what tensorstore is asked for.

In:   the folder of an item, names of arrays, NumPy values and places in arrays.
Out:  `Writer`, which writes blocks of arrays in batches; `Reader`, which starts reads and gives NumPy arrays.
Laws: tensorstore is imported on first use. A block is written with its CRC-32C, which is checked when it is read; the tables of the
      database carry their own. Blocks divide shards, so that no two processes write one block. Memory in flight is bounded.
Next: `layout` names the files.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from weft._engine.util.errors import CheckpointError
from weft._version import DISTRIBUTION_NAME
from weft.checkpoint.layout import damaged

BLOCK_BYTES = 8 << 20  # a stored block has at most so many, where the sizes of dims permit
BATCH_BYTES = (
    128 << 20
)  # what is written in one transaction, of which each needs its flush to the disk
FLIGHT_BYTES = 256 << 20  # what is read ahead of what has been placed


@functools.cache
def tensorstore() -> ModuleType:
    """The library. ImportError that says how to get it."""
    try:
        import tensorstore as found
    except ImportError as error:
        raise ImportError(
            "weft.checkpoint needs tensorstore, which is not installed: "
            f"pip install '{DISTRIBUTION_NAME}[checkpoint]'."
        ) from error
    return found


def block_shape(
    shard: Sequence[int], splits: Sequence[int], itemsize: int, limit: int | None = None
) -> tuple[int, ...]:
    """The shape of the blocks in which shards are stored: at most `limit` bytes (`BLOCK_BYTES`), cut along leading dims first. Along a
    dim that is split blocks divide shards.

    >>> block_shape((4096, 4096), (1, 1), 4), block_shape((6, 5), (2, 1), 4, limit=40), block_shape((7, 4), (2, 1), 4, limit=40)
    ((512, 4096), (2, 5), (1, 4))
    """
    limit = BLOCK_BYTES if limit is None else limit
    shape = [max(size, 1) for size in shard]
    for dim, size in enumerate(shape):
        over = math.prod(shape) * itemsize / limit
        if over <= 1:
            break
        part = max(int(size / over), 1)
        if splits[dim] > 1:
            part = next(n for n in range(part, 0, -1) if size % n == 0)
        shape[dim] = part
    return tuple(shape)


def pieces(
    start: Sequence[int],
    shape: Sequence[int],
    block: Sequence[int],
    itemsize: int,
    limit: int = BATCH_BYTES,
) -> Iterator[tuple[slice, ...]]:
    """A box cut along its leading dims into boxes of at most `limit` bytes, at borders of blocks; as slices relative to `start`.

    >>> [*pieces((0, 0), (4, 2), (1, 2), 4, limit=16)]
    [(slice(0, 2, None), slice(0, 2, None)), (slice(2, 4, None), slice(0, 2, None))]
    """
    size = math.prod(shape) * itemsize
    dim = next((d for d in range(len(shape)) if shape[d] > block[d]), None)
    if size <= limit or dim is None:
        yield tuple(slice(0, n) for n in shape)
        return
    rows = max(int(limit * shape[dim] // size) // block[dim], 1) * block[dim]
    for first in range(0, shape[dim], rows):
        count = min(rows, shape[dim] - first)
        inner = [*shape[:dim], count, *shape[dim + 1 :]]
        for piece in pieces(start, inner, block, itemsize, limit):
            yield tuple(
                slice(p.start + first, p.stop + first) if d == dim else p
                for d, p in enumerate(piece)
            )


def _kvstore(folder: Path, name: str | None, ocdbt: bool) -> dict[str, Any]:
    if not ocdbt:
        return {"driver": "file", "path": f"{folder}/" if name is None else f"{folder / name}/"}
    base = {"driver": "file", "path": f"{folder}/"}
    # files of data have names of their own and are read only once a manifest names them: only that one is replaced at once
    found: dict[str, Any] = {
        "driver": "ocdbt",
        "base": {**base, "file_io_locking": {"mode": "non_atomic"}},
        "manifest": base,
        "cache_pool": "cache_pool#tables",
    }
    if name is not None:
        found["path"] = f"{name}/"
    return found


def _context() -> Any:
    return tensorstore().Context(
        {
            "cache_pool#tables": {"total_bytes_limit": 100_000_000},
            "file_io_concurrency": {"limit": 32},
        }
    )


_FILE = re.compile(r'local file "((?:[^"\\]|\\.)+)"')
_KEY = re.compile(r'Error reading "((?:[^"\\]|\\.)*)" in OCDBT database')


def _reason(error: BaseException) -> str:
    """The first line of a message of tensorstore, without the specification of what was opened."""
    return (
        str(error)
        .split(" [tensorstore_spec=")[0]
        .split(" [source locations=")[0]
        .split("\n")[0]
        .strip()
    )


def _unquoted(text: str) -> str:
    """A name as it was before tensorstore escaped its bytes."""
    return (
        text.encode("latin-1", "replace")
        .decode("unicode_escape")
        .encode("latin-1")
        .decode("utf-8", "replace")
    )


def _damaged_file(folder: Path, message: str) -> Path:
    """The file that a message of tensorstore is about: the one that it names, else the one that holds the key that it names."""
    if files := [name for name in _FILE.findall(message) if not name.endswith("/")]:
        return Path(_unquoted(files[-1]))
    if key := _KEY.search(message):
        return _file_of_key(folder, _unquoted(key[1])) or folder
    return folder


def _file_of_key(folder: Path, key: str) -> Path | None:
    """The data file of the database in `folder` that holds the value of a key; None if the tables do not tell."""
    ts = tensorstore()
    rest = key.encode()
    try:
        base = ts.KvStore.open({"driver": "file", "path": f"{folder}/"}).result()
        root = ts.ocdbt.dump(base).result()["versions"][-1]
        node = root["root"]["location"]
        for _ in range(root["root_height"]):
            child = [
                entry
                for entry in ts.ocdbt.dump(base, node).result()["entries"]
                if entry["key"] <= rest
            ][-1]
            node, rest = child["location"], rest.removeprefix(child["subtree_common_prefix"])
        values = {entry["key"]: entry for entry in ts.ocdbt.dump(base, node).result()["entries"]}
        _, part, file = values[rest]["indirect_value"].rsplit(":", 2)[0].split(":", 2)
        return folder / part / file
    except (ValueError, OSError, KeyError, IndexError):
        return None


class Writer:
    """Writes blocks of arrays into the database in `folder`. `add` batches them, `finish` writes what remains."""

    def __init__(self, folder: Path, compress: bool = False):
        self._folder, self._compress = folder, compress
        self._context = _context()
        self._batch: list[tuple[dict[str, Any], tuple[slice, ...], np.ndarray]] = []
        self._bytes = 0
        self.written = 0

    def add(
        self,
        name: str,
        shape: Sequence[int],
        dtype: np.dtype,
        block: Sequence[int],
        start: Sequence[int],
        value: np.ndarray,
    ) -> None:
        """Write `value` at `start` of the array `name`; the array stays unchanged in memory until `finish` returns."""
        spec = self._spec(name, shape, dtype, block)
        for piece in pieces(start, value.shape, block, value.itemsize):
            part = value[piece]
            self._batch.append(
                (spec, tuple(slice(s + p.start, s + p.stop) for s, p in zip(start, piece)), part)
            )
            self._bytes += part.nbytes
            if self._bytes >= BATCH_BYTES:
                self.flush()

    def _spec(
        self, name: str, shape: Sequence[int], dtype: np.dtype, block: Sequence[int]
    ) -> dict[str, Any]:
        config = {
            "max_inline_value_bytes": 1024,
            "max_decoded_node_bytes": 100_000_000,
            "manifest_kind": "single",
        }
        kvstore = {
            **_kvstore(self._folder, name, ocdbt=True),
            "config": config,
            "assume_config": True,
            "target_data_file_size": 1 << 31,
        }
        codecs: list[dict[str, Any]] = [{"name": "bytes", "configuration": {"endian": "little"}}]
        if self._compress:
            codecs.append({"name": "zstd", "configuration": {"level": 1}})
        codecs.append({"name": "crc32c"})
        try:
            kind = tensorstore().dtype(dtype).name
        except (TypeError, ValueError):
            raise NotImplementedError(
                f"checkpoint.save: arrays of {dtype.name} cannot be stored: tensorstore has no such type. "
                "Save it as another dtype, or its bits (x.view)."
            ) from None
        grid = {"name": "regular", "configuration": {"chunk_shape": list(block)}}
        metadata = {"shape": list(shape), "data_type": kind, "chunk_grid": grid, "codecs": codecs}
        return {
            "driver": "zarr3",
            "kvstore": kvstore,
            "metadata": metadata,
            "store_data_equal_to_fill_value": True,
        }

    def flush(self) -> None:
        """Write the batch, in one transaction."""
        batch, self._batch = self._batch, []
        if not batch:
            return
        ts = tensorstore()
        try:
            transaction = ts.Transaction(atomic=False)
            opened = {}
            for spec, _, _ in batch:
                name = spec["kvstore"]["path"]
                if name not in opened:
                    opened[name] = ts.open(
                        spec, open=True, create=True, context=self._context, transaction=transaction
                    )
            staged = [
                opened[spec["kvstore"]["path"]]
                .result()[where]
                .write(part, can_reference_source_data_indefinitely=True)
                for spec, where, part in batch
            ]
            for write in staged:
                write.copy.result()
            transaction.commit_sync()
        except (ValueError, OSError) as error:
            raise CheckpointError(_reason(error)) from error
        self.written += self._bytes
        self._bytes = 0

    def finish(self) -> None:
        """Write what remains."""
        self.flush()


def open_database(folder: Path, context: Any = None) -> Any:
    """The database of a folder, as a store of bytes. Databases refer to the files of others of one `context`."""
    ts = tensorstore()
    return ts.KvStore.open(
        {
            **_kvstore(folder, None, ocdbt=True),
            "config": {
                "max_inline_value_bytes": 1024,
                "max_decoded_node_bytes": 100_000_000,
                "manifest_kind": "single",
            },
            "assume_config": True,
            "target_data_file_size": 1 << 31,
        },
        context=context or _context(),
    ).result()


def merge(folder: Path, parts: Sequence[Path]) -> None:
    """Make the database of `folder` from those of folders in it, whose files it goes on to use."""
    ts = tensorstore()
    try:
        transaction = ts.Transaction(atomic=True)
        context = _context()
        whole = open_database(folder, context).with_transaction(transaction)
        for copy in [
            open_database(part, context).experimental_copy_range_to(whole) for part in parts
        ]:
            copy.result()
        transaction.commit_sync()
    except (ValueError, OSError) as error:
        raise CheckpointError(_reason(error)) from error


class Reader:
    """Reads arrays of the item in `folder`."""

    def __init__(self, folder: Path, ocdbt: bool, zarr3: bool, complete: bool):
        self._folder, self._ocdbt, self._zarr3, self._complete = folder, ocdbt, zarr3, complete
        self._context = _context()

    def open(self, name: str) -> Any:
        """Start to open an array; the result has `shape`, `dtype`, and `chunk_shape`."""
        spec: dict[str, Any] = {
            "driver": "zarr3" if self._zarr3 else "zarr",
            "kvstore": _kvstore(self._folder, name, self._ocdbt),
        }
        if self._complete:
            spec["fill_missing_data_reads"] = False
        return tensorstore().open(spec, open=True, read=True, context=self._context)

    def result(self, what: str, future: Any) -> Any:
        """What a read gives. CheckpointError that names `what` and the file that is damaged."""
        try:
            return future.result()
        except (ValueError, OSError, KeyError) as error:
            raise damaged(
                _damaged_file(self._folder, str(error)), f"{what} cannot be read: {_reason(error)}"
            ) from error


def chunk_shape(opened: Any) -> tuple[int, ...]:
    """The shape of the blocks that can be read apart."""
    return tuple(opened.chunk_layout.read_chunk.shape or opened.shape)


def numpy_dtype(opened: Any) -> np.dtype:
    """The dtype of an open array."""
    return opened.dtype.numpy_dtype
