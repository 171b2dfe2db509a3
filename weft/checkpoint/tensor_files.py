"""Trees of arrays in one safetensors file, a format that other systems read.

In:   a file, a tree of arrays.
Out:  the file, or the arrays by name.
Laws: names are paths joined by dots, as in checkpoints. The library `safetensors` reads and writes; a process reads only what its shards
      need.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft._engine.api.placement.assembly import make_array_from_callback
from weft._engine.ir.shardings import Sharding
from weft._engine.runtime.array import Array
from weft._engine.util import dtypes
from weft._engine.util.errors import CheckpointError
from weft._engine.util.source import api_boundary
from weft.checkpoint import arguments, layout

#: dtype -> its name in the format
_NAMES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "complex64": "C64",
}
_DTYPES = {there: here for here, there in _NAMES.items()}


@api_boundary
def export_safetensors(
    file: str | os.PathLike, tree: Any, *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write the arrays of a tree into one safetensors file, under their paths joined by dots; `metadata` are texts stored in the file.

    The file appears when it is complete. Leaves are arrays and numbers. Raises TypeError for other leaves, NotImplementedError for dtypes
    that the format lacks, and `CheckpointError` if the file cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     weft.checkpoint.export_safetensors(f"{folder}/model.safetensors", {"layer": [wnp.ones(2), wnp.zeros(1)]})
    ...     weft.checkpoint.import_safetensors(f"{folder}/model.safetensors")
    {'layer.0': array([1., 1.], dtype=float32), 'layer.1': array([0.], dtype=float32)}
    """
    from safetensors.numpy import save_file

    path = arguments.absolute_path("checkpoint.export_safetensors(file, tree)", file)
    tensors = {}
    for names, kinds, value in layout.named_leaves("checkpoint.export_safetensors", tree):
        if layout.is_leaf(value):
            continue
        entry = layout.TreeEntry(names, kinds, "")
        plain = isinstance(value, (Array, np.ndarray, np.generic, bool, int, float))
        if not plain or dtypes.is_extended(getattr(value, "dtype", np.float32)):
            raise TypeError(
                f"checkpoint.export_safetensors: {entry} is a {type(value).__name__}; the format has arrays only."
            )
        contiguous = np.ascontiguousarray(np.asarray(value)).reshape(np.shape(value))
        if contiguous.dtype.name not in _NAMES:
            raise NotImplementedError(
                f"checkpoint.export_safetensors: {entry} is {contiguous.dtype.name}, which the format lacks."
            )
        tensors[entry.name] = contiguous
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(tensors, str(temporary), dict(metadata or {}))
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        temporary.rename(path)
        layout.sync_folder(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, Exception):
            raise CheckpointError(
                f"checkpoint.export_safetensors: {path} was not written: {error}"
            ) from error
        raise


@api_boundary
def import_safetensors(
    file: str | os.PathLike,
    like: Any = None,
    *,
    shardings: Sharding | Mapping[str, Sharding] | None = None,
) -> Any:
    """Return the arrays of a safetensors file by name: NumPy arrays, or arrays with `shardings` (one, or one for each name).

    With `like`, a tree of arrays or `ShapeDtypeStruct`s, return a tree of that structure, with their shardings: a process reads what its
    shards need. Raises FileNotFoundError, ValueError for names or shapes that do not fit, `CheckpointError` for a damaged file.
    """
    from safetensors import SafetensorError, safe_open

    from weft._engine.util import tree as trees
    from weft.checkpoint.restoring import wanted_like

    path = arguments.absolute_path("checkpoint.import_safetensors(file, like)", file)
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint.import_safetensors: there is no file {path}.")
    try:
        with safe_open(str(path), framework="numpy") as opened:
            stored_names = list(opened.keys())
            if like is None:
                pick = shardings.get if isinstance(shardings, Mapping) else lambda _: shardings
                return {name: _read(opened, name, pick(name), None) for name in stored_names}
            arrays = []
            for names, _, value in layout.named_leaves("checkpoint.import_safetensors", like):
                if layout.is_leaf(value):
                    continue
                name = ".".join(names)
                if name not in stored_names:
                    raise ValueError(
                        f"checkpoint.import_safetensors: {path} has no {name!r}; it has {stored_names[:8]}."
                    )
                shape = tuple(opened.get_slice(name).get_shape())
                if shape != np.shape(value):
                    raise ValueError(
                        f"checkpoint.import_safetensors: {name!r} has shape {list(shape)}, but the requested shape is "
                        f"{list(np.shape(value))}."
                    )
                target = wanted_like(value)
                arrays.append(_read(opened, name, target.sharding, target.dtype))
            return trees.tree_unflatten(trees.tree_structure(like), arrays)
    except (SafetensorError, OSError) as error:
        raise layout.make_damage_error(path, str(error)) from error


def _read(opened: Any, name: str, sharding: Sharding | None, dtype: Any) -> Any:
    part = opened.get_slice(name)
    shape, stored = tuple(part.get_shape()), part.get_dtype()
    if stored not in _DTYPES:
        raise NotImplementedError(
            f"checkpoint.import_safetensors: {name!r} is of {stored}, which weft lacks."
        )

    def read(index: tuple[slice, ...]) -> np.ndarray:
        box = tuple(slice(*s.indices(n)[:2]) for s, n in zip(index, shape))
        values = np.asarray(part[box] if shape else opened.get_tensor(name))
        return values if dtype is None else values.astype(dtype, copy=False)

    if sharding is None:
        return read(tuple(slice(0, n) for n in shape))
    cache: dict[str, np.ndarray] = {}
    return make_array_from_callback(
        shape, sharding, lambda index: cache.setdefault(str(index), read(index))
    )
