"""The files of a checkpoint: their names, and the JSON that lists its arrays. The layout is orbax's.

    root/weft_claim.3                   the group of processes that saves here: its token, 3, and its identity (`claims`)
    root/7/                             a step; while it is written, root/7.orbax-checkpoint-tmp-3/, with the token of its writers
      _CHECKPOINT_METADATA              the items of the step, and the time when it was written
      commit_success.txt
      default/                          an item: one tree
        _METADATA                       the leaves: the path of each, and the kind of its value
        _sharding, _strings.json        the shardings of arrays; leaves that are strings
        array_metadatas/process_0       the block shapes of arrays, and the generators of random keys
        weft_sums.json                  sizes and CRC-32 of the files above
        manifest.ocdbt, d/…             the values: zarr arrays, named by the paths of leaves, in one OCDBT database

In:   trees of values, folders.
Out:  `TreeEntry`s, one for each leaf; JSON texts, and the inverse.
Laws: this module does not need tensorstore. Orbax writes items in four ways (zarr 2 or 3, with OCDBT or a folder per array): all can be
      read.
Next: `store` reads and writes arrays, `saving` and `restoring` combine the parts.
"""

from __future__ import annotations

import base64
import json
import os
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft._engine.ir.mesh import Mesh
from weft._engine.ir.shardings import NamedSharding, Sharding, SingleDeviceSharding
from weft._engine.util import tree
from weft._engine.util.errors import CheckpointError, describe
from weft._engine.util.record import record
from weft._engine.util.trees.keypath import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    KeyPath,
    SequenceKey,
)

TEMPORARY = ".orbax-checkpoint-tmp"
CLAIM = "weft_claim."
STEP = "_CHECKPOINT_METADATA"
COMMITTED = "commit_success.txt"
TREE = "_METADATA"
SHARDINGS = "_sharding"
STRINGS = "_strings.json"
ARRAYS = "array_metadatas"
SUMS = "weft_sums.json"
MANIFEST = "manifest.ocdbt"
ITEM = "default"
_MSGPACK_FILE = "checkpoint"  # the single msgpack file of old orbax versions
_NAME = re.compile(r"(?:[A-Za-z]\w*_)?(\d+)")

SEQUENCE, DICT = 1, 2  # orbax's kinds of keys
EMPTY: dict[str, Any] = {"None": None, "Dict": {}, "List": [], "Tuple": (), "NamedTuple": None}


@record
class TreeEntry:
    """A leaf of a stored tree: its path, the kinds of its keys, and the kind of its value (`jax.Array`, `np.ndarray`, `scalar`, `string`,
    or an empty container)."""

    names: tuple[str, ...]
    kinds: tuple[int, ...]
    value: str
    write_shape: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        """The name of the array in the store."""
        return ".".join(self.names)

    @property
    def is_empty(self) -> bool:
        """Whether the leaf is None or an empty container, which has no stored value."""
        return self.value in EMPTY

    def __str__(self) -> str:
        return (
            "".join(
                f"[{name}]" if kind == SEQUENCE else f"[{name!r}]"
                for name, kind in zip(self.names, self.kinds)
            )
            or "the tree"
        )


# ---- paths of leaves


def is_leaf(value: Any) -> bool:
    """Return whether a node without leaves has an entry: None and empty containers."""
    return value is None or (isinstance(value, (list, tuple, dict)) and not value)


def empty_kind(value: Any) -> str:
    """Return the stored kind of None or an empty container. Empty namedtuples are restored as None."""
    if value is None or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return "None"
    return "Dict" if isinstance(value, dict) else "List" if isinstance(value, list) else "Tuple"


def key_of(path: KeyPath) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the names along a path, and their kinds. A tree that is a single leaf has the name "".

    >>> key_of((DictKey("w"), SequenceKey(2), GetAttrKey("mean")))
    (('w', '2', 'mean'), (2, 1, 2))
    """
    names, kinds = [], []
    for key in path:
        match key:
            case SequenceKey(place) | FlattenedIndexKey(place):
                names.append(str(place))
                kinds.append(SEQUENCE)
            case DictKey(name) | GetAttrKey(name):
                names.append(str(name))
                kinds.append(DICT)
            case _:
                names.append(str(key))
                kinds.append(DICT)
    return tuple(names), tuple(kinds)


def named_leaves(api: str, values: Any) -> list[tuple[tuple[str, ...], tuple[int, ...], Any]]:
    """Return names, kinds and value of every leaf and empty container; raise ValueError if two leaves have one stored name."""
    leaves, seen = [], {}
    for path, value in tree.tree_leaves_with_path(values, is_leaf=is_leaf):
        names, kinds = key_of(path)
        clash = seen.setdefault(".".join(names), path)
        if clash is not path:
            raise ValueError(
                describe(
                    api,
                    "two leaves of the tree have the same name in a checkpoint.",
                    [(tree.keystr(clash), ".".join(names)), (tree.keystr(path), ".".join(names))],
                    rule="The name of a leaf is its path, joined by dots.",
                    remedy="Rename one of the keys.",
                )
            )
        leaves.append((names, kinds, value))
    return leaves


def build_tree(entries: Iterable[TreeEntry], values: Iterable[Any]) -> Any:
    """Return the tree of dicts and lists that entries describe, with these values as leaves.

    >>> weights = [TreeEntry(("w", i), (2, 1), "scalar") for i in ("0", "1")]
    >>> build_tree([*weights, TreeEntry(("b",), (2,), "scalar")], [1, 2, 3])
    {'w': [1, 2], 'b': 3}
    """
    root: dict = {}
    for entry, value in zip(entries, values):
        if not entry.names:
            return value
        node = root
        for name, kind in zip(entry.names[:-1], entry.kinds[:-1]):
            node = node.setdefault((kind, name), {})
        node[entry.kinds[-1], entry.names[-1]] = _TreeLeaf(value)
    return _to_containers(root)


class _TreeLeaf:
    """A wrapper that distinguishes a leaf from the dicts that represent the tree."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value


def _to_containers(node: Any) -> Any:
    if isinstance(node, _TreeLeaf):
        return node.value
    if node and all(kind == SEQUENCE for kind, _ in node):
        return [_to_containers(node[key]) for key in sorted(node, key=lambda key: int(key[1]))]
    return {name: _to_containers(value) for (_, name), value in node.items()}


# ---- JSON


def tree_text(entries: Iterable[TreeEntry], ocdbt: bool = True, zarr3: bool = True) -> str:
    """Return the text of the file `_METADATA`."""
    leaves = {}
    for entry in entries:
        value: dict[str, Any] = {"value_type": entry.value, "skip_deserialize": entry.is_empty}
        if entry.write_shape is not None:
            value["write_shape"] = list(entry.write_shape)
        keys = [{"key": name, "key_type": kind} for name, kind in zip(entry.names, entry.kinds)]
        leaves[str(entry.names)] = {"key_metadata": keys, "value_metadata": value}
    return json.dumps(
        {
            "tree_metadata": leaves,
            "use_ocdbt": ocdbt,
            "use_zarr3": zarr3,
            "store_array_data_equal_to_fill_value": True,
            "custom_metadata": None,
        }
    )


@record
class StoredTree:
    """The contents of `_METADATA`: the leaves, and how arrays are stored."""

    entries: tuple[TreeEntry, ...]
    ocdbt: bool
    zarr3: bool
    complete: bool  # blocks equal to the fill value are stored too, so that an absent block is missing data


def read_tree(item: Path) -> StoredTree:
    """Read the leaves of an item. Raises CheckpointError for an unreadable file, NotImplementedError for orbax's old form."""
    file = item / TREE
    if not file.exists() and (item / _MSGPACK_FILE).is_file():
        raise NotImplementedError(
            f"checkpoint.restore: {item} was written by an old orbax, which kept all values in one msgpack file.\n"
            "  Save it again with an orbax of 2023 or later."
        )
    metadata = read_json(file)
    try:
        leaves = metadata["tree_metadata"]
        entries = tuple(
            _entry(leaf["key_metadata"], leaf["value_metadata"]) for leaf in leaves.values()
        )
        ocdbt = metadata.get("use_ocdbt")
        return StoredTree(
            entries,
            (item / MANIFEST).exists() if ocdbt is None else bool(ocdbt),
            bool(metadata.get("use_zarr3", False)),
            bool(metadata.get("store_array_data_equal_to_fill_value", False)),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise make_damage_error(file, f"it is not the description of a tree: {error!r}") from error


def _entry(keys: Sequence[Mapping], value: Mapping) -> TreeEntry:
    shape = value.get("write_shape")
    return TreeEntry(
        tuple(str(key["key"]) for key in keys),
        tuple(int(key["key_type"]) for key in keys),
        value["value_type"],
        None if shape is None else tuple(shape),
    )


def step_text(items: Sequence[str], started: int, committed: int) -> str:
    """Return the text of the file `_CHECKPOINT_METADATA` of a step; times are in nanoseconds since 1970."""
    handler = "orbax.checkpoint._src.handlers.standard_checkpoint_handler.StandardCheckpointHandler"
    return json.dumps(
        {
            "item_handlers": dict.fromkeys(items, handler),
            "metrics": {},
            "performance_metrics": {},
            "init_timestamp_nsecs": started,
            "commit_timestamp_nsecs": committed,
            "custom_metadata": {},
        }
    )


def arrays_text(blocks: Iterable[tuple[str, Sequence[int], Sequence[int], str | None]]) -> str:
    """Return the text of `array_metadatas/process_0` for (name, shard shape, block shape, generator of random keys) of each array."""
    return json.dumps(
        {
            "array_metadatas": [
                {
                    "array_metadata": {
                        "param_name": name,
                        "write_shape": list(shard),
                        "chunk_shape": list(chunk),
                        "ext_metadata": None
                        if generator is None
                        else {"random_key_impl": generator},
                    }
                }
                for name, shard, chunk, generator in blocks
            ]
        }
    )


def read_generators(item: Path) -> dict[str, str]:
    """Read the generators of stored random keys: array name -> generator."""
    generators = {}
    for file in sorted((item / ARRAYS).glob("process_*")):
        try:
            for entry in read_json(file).get("array_metadatas", ()):
                about = entry["array_metadata"]
                if (
                    generator := (about.get("ext_metadata") or {}).get("random_key_impl")
                ) is not None:
                    generators[about["param_name"]] = generator
        except (KeyError, TypeError, AttributeError) as error:
            raise make_damage_error(file, f"it is not a list of arrays: {error!r}") from error
    return generators


def read_strings(item: Path) -> dict[str, str]:
    """Read the leaves that are strings: name -> string."""
    if not (item / STRINGS).exists():
        return {}
    strings = read_json(item / STRINGS)
    if not isinstance(strings, dict):
        raise make_damage_error(
            item / STRINGS,
            f"it is not a table of names and strings, but a {type(strings).__name__}",
        )
    return strings


def strings_text(strings: Mapping[str, str]) -> str:
    """Return the text of the file `_strings.json`: name -> string."""
    return json.dumps(dict(strings))


def shardings_text(shardings: Mapping[str, Sharding]) -> str:
    """Return the text of the file `_sharding`; only SingleDeviceSharding and NamedSharding are stored."""
    texts = {name: _sharding_json(sharding) for name, sharding in shardings.items()}
    return json.dumps(
        {
            base64.b64encode(name.encode()).decode(): json.dumps(text)
            for name, text in texts.items()
            if text is not None
        }
    )


def _sharding_json(sharding: Sharding) -> dict | None:
    if isinstance(sharding, SingleDeviceSharding):
        return {
            "sharding_type": "SingleDeviceSharding",
            "device_str": f"cpu:{sharding.device_assignment[0].id}",
        }
    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, Mesh):
        return None
    mesh = sharding.mesh
    return {
        "sharding_type": "NamedSharding",
        "shape": list(mesh.axis_sizes),
        "axis_names": list(mesh.axis_names),
        "axis_types": [f"AxisType.{kind.name}" for kind in mesh.axis_types],
        "partition_spec": [
            list(entry) if isinstance(entry, tuple) else entry for entry in sharding.spec
        ],
        "device_mesh": {"mesh": _ids(mesh.devices.tolist())},
    }


def _ids(devices: Any) -> Any:
    return [_ids(row) for row in devices] if isinstance(devices, list) else {"id": devices.id}


# ---- files


def write_text(file: Path, text: str) -> None:
    """Write a file; it is on disk when this returns."""
    with open(file, "w", encoding="utf-8") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())


def sync_folder(folder: Path) -> None:
    """Sync a folder: the names of its files are on disk when this returns."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_json(file: Path) -> Any:
    """Return the value of a JSON file; raise CheckpointError if the file is missing or malformed."""
    try:
        return json.loads(file.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(
            describe(
                "checkpoint",
                f"{file.parent} is not a checkpoint, or has lost files.",
                [("missing", str(file))],
            )
        ) from None
    except ValueError as error:
        raise make_damage_error(file, f"it is not JSON: {error}") from error


def make_damage_error(file: Path | str, why: str, rule: str = "") -> CheckpointError:
    """Return the error for a file whose contents have changed since it was written."""
    return CheckpointError(
        describe(
            "checkpoint",
            "a file is damaged.",
            [("file", str(file)), ("found", why)],
            rule=rule,
            remedy="Restore another step (weft.checkpoint.steps lists them).",
        )
    )


def sums_text(item: Path, files: Iterable[str]) -> str:
    """Return the text of `weft_sums.json`: size and CRC-32 of files of an item, and the CRC-32 of that table itself."""
    sums = {
        name: [(item / name).stat().st_size, zlib.crc32((item / name).read_bytes())]
        for name in files
    }
    return json.dumps({"files": sums, "crc32": _sum_of(sums)})


def _sum_of(sums: Any) -> int:
    return zlib.crc32(json.dumps(sums).encode())


def check_sums(item: Path) -> None:
    """Raise CheckpointError if a file listed in `weft_sums.json` has changed. Checkpoints of orbax have no such file."""
    if not (item / SUMS).exists():
        return
    table = read_json(item / SUMS)
    try:
        sums = {name: (size, sum_) for name, (size, sum_) in table["files"].items()}
        is_whole = "crc32" not in table or table["crc32"] == _sum_of(table["files"])
        # older versions of weft wrote tables without a checksum
        if not is_whole or not set(table) <= {"files", "crc32"}:
            raise ValueError("its checksum has changed since it was written")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise make_damage_error(item / SUMS, f"it is not a table of checksums: {error}") from error
    for name, (size, sum_) in sums.items():
        try:
            contents = (item / name).read_bytes()
        except FileNotFoundError:
            raise make_damage_error(item / name, "it is not there") from None
        if len(contents) != size:
            raise make_damage_error(
                item / name, f"it has {len(contents)} bytes, and was written with {size}"
            )
        if zlib.crc32(contents) != sum_:
            raise make_damage_error(item / name, "its checksum has changed since it was written")


def step_of(folder: Path) -> int | None:
    """Return the step number in the name of a folder, which may have a prefix; None for another folder.

    >>> step_of(Path("runs/7")), step_of(Path("ckpt_00012")), step_of(Path("7.orbax-checkpoint-tmp"))
    (7, 12, None)
    """
    match = _NAME.fullmatch(folder.name)
    return int(match[1]) if match else None


def is_item(folder: Path) -> bool:
    """Return whether a folder holds a tree."""
    return (folder / TREE).is_file() or (folder / _MSGPACK_FILE).is_file()


def items_of(folder: Path) -> list[Path]:
    """Return the items of a step."""
    return (
        [folder]
        if is_item(folder)
        else sorted(part for part in folder.iterdir() if part.is_dir() and is_item(part))
    )


def find_lost_tree(folder: Path) -> Path | None:
    """Return the path of a missing tree description, if a step or an item has other files; None for another folder."""
    for part in (folder, *sorted(part for part in folder.iterdir() if part.is_dir())):
        if any((part / name).exists() for name in (SUMS, MANIFEST, SHARDINGS, ARRAYS)):
            return part / TREE
    return None
