"""Storage of arrays through tensorstore.

In:   the folder of an item, names of arrays, NumPy values and their start indices.
Out:  `ArrayWriter`, which writes blocks of arrays in batches; `ArrayReader`, which starts reads and returns NumPy arrays.
Laws: tensorstore is imported on first use. A block is written with its CRC-32C, which is verified when it is read; the tables of the
      database carry their own. Blocks divide shards, so that no two processes write one block. The bytes of pending reads and writes are
      bounded.
Next: `layout` defines the names of files.
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
from weft.checkpoint.layout import make_damage_error

BLOCK_BYTES = 8 << 20  # maximum size of a stored block, if the sizes of dims permit
BATCH_BYTES = 128 << 20  # size of one transaction; each transaction needs a flush to disk
PENDING_READ_BYTES = 256 << 20  # maximum size of reads that run ahead of placement


@functools.cache
def tensorstore() -> ModuleType:
    """Import and return tensorstore; raise ImportError with instructions if it is not installed."""
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
    """Return the shape of the blocks of a shard: at most `limit` bytes (`BLOCK_BYTES`), split along leading dims first. Along a split dim
    blocks divide shards evenly.

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


def split_box(
    start: Sequence[int],
    shape: Sequence[int],
    block: Sequence[int],
    itemsize: int,
    limit: int = BATCH_BYTES,
) -> Iterator[tuple[slice, ...]]:
    """Split a box along its leading dims into boxes of at most `limit` bytes, at block borders; yield slices relative to `start`.

    >>> [*split_box((0, 0), (4, 2), (1, 2), 4, limit=16)]
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
        for piece in split_box(start, inner, block, itemsize, limit):
            yield tuple(
                slice(p.start + first, p.stop + first) if d == dim else p
                for d, p in enumerate(piece)
            )


def _kvstore(folder: Path, name: str | None, ocdbt: bool) -> dict[str, Any]:
    if not ocdbt:
        return {"driver": "file", "path": f"{folder}/" if name is None else f"{folder / name}/"}
    base = {"driver": "file", "path": f"{folder}/"}
    # data files have unique names and are read only once the manifest names them: only the manifest needs atomic replacement
    kvstore: dict[str, Any] = {
        "driver": "ocdbt",
        "base": {**base, "file_io_locking": {"mode": "non_atomic"}},
        "manifest": base,
        "cache_pool": "cache_pool#tables",
    }
    if name is not None:
        kvstore["path"] = f"{name}/"
    return kvstore


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
    """Return the first line of a tensorstore message, without its specification of the array."""
    return (
        str(error)
        .split(" [tensorstore_spec=")[0]
        .split(" [source locations=")[0]
        .split("\n")[0]
        .strip()
    )


def _unquote(text: str) -> str:
    """Undo tensorstore's escaping of the bytes of a name."""
    return (
        text.encode("latin-1", "replace")
        .decode("unicode_escape")
        .encode("latin-1")
        .decode("utf-8", "replace")
    )


def _damaged_file(folder: Path, message: str) -> Path:
    """Return the file that a tensorstore message is about: the file that it names, else the data file of the key that it names."""
    if files := [name for name in _FILE.findall(message) if not name.endswith("/")]:
        return Path(_unquote(files[-1]))
    if key := _KEY.search(message):
        return _file_of_key(folder, _unquote(key[1])) or folder
    return folder


def _file_of_key(folder: Path, key: str) -> Path | None:
    """Return the data file of the database in `folder` that stores the value of a key; None if the tables are unreadable."""
    ts = tensorstore()
    key_suffix = key.encode()
    try:
        base = ts.KvStore.open({"driver": "file", "path": f"{folder}/"}).result()
        root = ts.ocdbt.dump(base).result()["versions"][-1]
        node = root["root"]["location"]
        for _ in range(root["root_height"]):
            child = [
                entry
                for entry in ts.ocdbt.dump(base, node).result()["entries"]
                if entry["key"] <= key_suffix
            ][-1]
            node, key_suffix = (
                child["location"],
                key_suffix.removeprefix(child["subtree_common_prefix"]),
            )
        values = {entry["key"]: entry for entry in ts.ocdbt.dump(base, node).result()["entries"]}
        _, part, file = values[key_suffix]["indirect_value"].rsplit(":", 2)[0].split(":", 2)
        return folder / part / file
    except (ValueError, OSError, KeyError, IndexError):
        return None


class ArrayWriter:
    """A writer of blocks of arrays into the database in `folder`. `add` batches them, `finish` writes the last batch."""

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
        """Write `value` at `start` of the array `name`; the caller must not change `value` until `finish` returns."""
        spec = self._spec(name, shape, dtype, block)
        for piece in split_box(start, value.shape, block, value.itemsize):
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
        """Write the last batch."""
        self.flush()


def open_database(folder: Path, context: Any = None) -> Any:
    """Return the database of a folder as a key-value store. Databases with one `context` may refer to each other's files."""
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
    """Create the database of `folder` from the databases of its subfolders, whose data files it continues to use."""
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


class ArrayReader:
    """A reader of arrays of the item in `folder`."""

    def __init__(self, folder: Path, ocdbt: bool, zarr3: bool, complete: bool):
        self._folder, self._ocdbt, self._zarr3, self._complete = folder, ocdbt, zarr3, complete
        self._context = _context()

    def open(self, name: str) -> Any:
        """Start to open an array; return a future of an object with `shape`, `dtype`, and `chunk_shape`."""
        spec: dict[str, Any] = {
            "driver": "zarr3" if self._zarr3 else "zarr",
            "kvstore": _kvstore(self._folder, name, self._ocdbt),
        }
        if self._complete:
            spec["fill_missing_data_reads"] = False
        return tensorstore().open(spec, open=True, read=True, context=self._context)

    def result(self, what: str, future: Any) -> Any:
        """Wait for a read and return its result; raise CheckpointError that names `what` and the damaged file."""
        try:
            return future.result()
        except (ValueError, OSError, KeyError) as error:
            raise make_damage_error(
                _damaged_file(self._folder, str(error)), f"{what} cannot be read: {_reason(error)}"
            ) from error


def chunk_shape(opened: Any) -> tuple[int, ...]:
    """Return the shape of the blocks that can be read separately."""
    return tuple(opened.chunk_layout.read_chunk.shape or opened.shape)


def numpy_dtype(opened: Any) -> np.dtype:
    """Return the NumPy dtype of an open array."""
    return opened.dtype.numpy_dtype
