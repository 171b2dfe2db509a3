"""The byte format of exported programs.

In:   an `Exported`.
Out:  a magic number, the version of the format, and the program with its types and trees.
Laws: reading calls only constructors of values, types and programs of weft and NumPy, and rejects bytes that refer to
      anything else. Ops are found by name. A program that holds Python functions cannot be written.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, Var
from weft._engine.runtime.array import Array
from weft._engine.util.trees import plain, treedef
from weft._engine.util.trees.treedef import PyTreeDef
from weft._former_modules import current_name

MAGIC = b"weft-exported\x00"
VERSION = 3
#: the oldest readable format; it has no programs for symbolic sizes, which were traces at sample sizes at that time
OLDEST = 2

#: module -> names that a program may refer to; a module without names allows all of its plain data classes
_ALLOWED = {
    "builtins": {"frozenset", "set", "complex", "slice", "range", "bytearray"},
    "collections": {"OrderedDict", "defaultdict"},
    "weft": {"Device", "Shard", "ShapeDtypeStruct"},
    "weft.dtypes": {"extended", "prng_key"},
    "weft.export": {"SymbolicScope"},
    "weft.extend.core": {"DebugInfo", "DropVar", "Literal", "ShapedArray", "Token", "Var"},
    "weft.lax": {
        "AccuracyMode",
        "ConvDimensionNumbers",
        "DotAlgorithm",
        "DotAlgorithmPreset",
        "FftType",
        "GatherDimensionNumbers",
        "GatherScatterMode",
        "Precision",
        "RaggedDotDimensionNumbers",
        "RandomAlgorithm",
        "RoundingMethod",
        "ScatterDimensionNumbers",
        "Tolerance",
    },
    "weft.lax.linalg": {"EigImplementation", "EighImplementation", "SvdAlgorithm"},
    "weft.sharding": {
        "AbstractDevice",
        "AbstractMesh",
        "AxisType",
        "ManualAxisType",
        "MemorySpace",
        "Mesh",
        "NamedSharding",
        "PartitionSpec",
        "PositionalSharding",
        "SingleDeviceSharding",
        "UnreducedKind",
    },
    "numpy": {"dtype", "ndarray"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.core.numeric": {"_frombuffer"},
}
_OWN = (
    "weft._engine.ir.",
    "weft._engine.ops.",
    "weft._engine.control.",
    "weft._engine.util.dtype",
    "weft._engine.util.record",
    "weft._engine.util.source",
    "weft.random",
    "weft._engine.core.primitive",
    "weft._engine.runtime.device",
    "weft._engine.backends.base",
)


class _ExportPickler(pickle.Pickler):
    def __init__(self, out: io.BytesIO, api: str, lines: bool):
        super().__init__(out, protocol=4)
        self.api, self.lines = api, lines

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Jaxpr):
            return _jaxpr, (
                obj.constvars,
                [np.asarray(c) for c in obj.consts],
                obj.invars,
                obj.outvars,
                obj.eqns,
                obj.effects,
                obj.name,
            )
        if isinstance(obj, Eqn):
            fields = (obj.primitive, obj.invars, obj.outvars, obj.params, obj.effects)
            keeps_line = obj.source is not None and (self.lines or obj.source.metadata)
            return _eqn, (*fields, obj.source) if keeps_line else fields
        if isinstance(obj, Var):
            return _var, (obj.aval,), None
        if isinstance(obj, Literal):
            return _literal, (obj.val, obj.aval)
        if isinstance(obj, Array):
            return _array, (np.asarray(obj),)
        if isinstance(obj, type) and issubclass(obj, np.generic):
            return _scalar_type, (np.dtype(obj).name,)
        if callable(obj) and not isinstance(obj, type):
            self._check_function(obj)
        return NotImplemented

    def _check_function(self, obj: Any) -> None:
        """Raise ValueError for a function that is not part of weft's programs."""
        name = getattr(obj, "__qualname__", getattr(obj, "__name__", type(obj).__name__))
        if not _is_allowed(getattr(obj, "__module__", None) or "", name):
            raise ValueError(
                f"{self.api}: the program holds a Python function ({name or obj!r}), as callbacks do, and a function "
                "has no bytes. Export the part without it."
            )


def _jaxpr(
    constvars: Any, consts: Any, invars: Any, outvars: Any, eqns: Any, effects: Any, name: str
) -> Jaxpr:
    return Jaxpr(constvars, consts, invars, outvars, eqns, effects, name)


def _eqn(
    primitive: Any, invars: Any, outvars: Any, params: Any, effects: Any, source: Any = None
) -> Eqn:
    return Eqn(primitive, invars, outvars, params, source, effects)


def _var(aval: Any) -> Var:
    return Var(aval)


def _literal(val: Any, aval: Any) -> Literal:
    return Literal(val, aval)


def _array(values: np.ndarray) -> np.ndarray:
    return values


def _scalar_type(name: str) -> type:
    from weft._engine.util import dtypes

    return dtypes.canonicalize_dtype(name).type


def _is_allowed(module: str, name: str) -> bool:
    """Return True if this function or class may construct a part of a program."""
    if (module, name) == ("weft._engine.util.source", "SourceLine.at"):
        return True
    own = (
        module == __name__
        or module.startswith((*_OWN, "ml_dtypes"))
        or (module == "numpy.dtypes" and name.endswith("DType"))
    )
    return name in _ALLOWED.get(module, ()) or ("." not in name.replace("<locals>", ".") and own)


class _ExportUnpickler(pickle.Unpickler):
    def __init__(
        self, data: io.BytesIO, version: int, device_of_id: Callable[[int, str], Any] | None
    ):
        super().__init__(data)
        self.version, self.device_of_id = version, device_of_id

    def find_class(self, module: str, name: str) -> Any:
        module = current_name(module)
        if self.device_of_id is not None and (module, name) == (
            "weft._engine.backends.base",
            "_device_of_id",
        ):
            return self.device_of_id
        if self.version < VERSION and (module, name) == ("weft._engine.ir.symbolic.sizes", "_dim"):
            raise ValueError(
                f"deserialize: the bytes have format {self.version} and symbolic sizes; this weft reads symbolic sizes of "
                f"format {VERSION}. Export the function again."
            )
        if _is_allowed(module, name):
            return super().find_class(module, name)
        raise ValueError(
            f"deserialize: the bytes ask for {module}.{name}, which is not part of exported programs."
        )


def to_bytes(
    parts: dict[str, Any],
    magic: bytes = MAGIC,
    api: str = "Exported.serialize",
    lines: bool = False,
) -> bytearray:
    """Return plain data, types and programs as bytes that begin with `magic`, with or without source `lines`; errors name `api`."""
    out = io.BytesIO()
    try:
        _ExportPickler(out, api, lines).dump(parts)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(f"{api}: the program holds something that has no bytes: {error}") from None
    return bytearray(magic + bytes([VERSION]) + out.getvalue())


def from_bytes(
    data: bytes | bytearray,
    magic: bytes = MAGIC,
    what: str = "an exported program",
    device_of_id: Callable[[int, str], Any] | None = None,
) -> dict[str, Any]:
    """Return the argument of `to_bytes`, with the devices that `device_of_id(id, platform)` returns. ValueError for other bytes."""
    data = bytes(data)
    if not data.startswith(magic):
        raise ValueError(
            f"deserialize: these are not bytes of {what} of weft: they begin with {data[:12]!r}."
        )
    version = data[len(magic)]
    if not OLDEST <= version <= VERSION:
        raise ValueError(
            f"deserialize: the bytes have format {version}; this weft reads formats {OLDEST} to {VERSION}."
        )
    try:
        return _ExportUnpickler(io.BytesIO(data[len(magic) + 1 :]), version, device_of_id).load()
    except (
        pickle.UnpicklingError,
        EOFError,
        AttributeError,
        ImportError,
        IndexError,
        KeyError,
        TypeError,
    ) as error:
        raise ValueError(
            f"deserialize: the bytes are damaged, or come from another version of weft: {error}"
        ) from error


# ---- trees

_names: dict[type, str] = {}
_nodes: dict[str, tuple[type, Callable[[bytes], Any] | None]] = {}
_to_aux: dict[type, Callable[[Any], bytes]] = {}


def register(
    nodetype: type,
    name: str,
    serialize_aux: Callable[[Any], bytes] | None,
    deserialize_aux: Callable[[bytes], Any] | None,
) -> None:
    """Register a type of tree nodes for serialization under a name."""
    if nodetype in _names:
        raise ValueError(
            f"Duplicate serialization registration for type `{nodetype}`; it is registered as {_names[nodetype]!r}."
        )
    if name in _nodes or name in plain.BUILTIN:
        raise ValueError(
            f"Duplicate serialization registration for name `{name}`, which stands for {_nodes.get(name, (name,))[0]}."
        )
    _names[nodetype], _nodes[name] = name, (nodetype, deserialize_aux)
    if serialize_aux is not None:
        _to_aux[nodetype] = serialize_aux


def tree_to_plain(structure: PyTreeDef) -> Any:
    """Return a structure as nested lists of names."""

    def registered(kind: Any, aux: Any, parts: list) -> list:
        if kind not in _names:
            raise ValueError(
                f"Exported.serialize: cannot serialize a tree with nodes of type {kind}: it has not been registered.\n  Use "
                "export.register_pytree_node_serialization, or register_namedtuple_serialization for a namedtuple."
            )
        return [_names[kind], _to_aux[kind](aux) if kind in _to_aux else None, parts]

    return plain.to_plain(structure.spec, registered)


def tree_from_plain(written: Any) -> PyTreeDef:
    """Return the structure that `tree_to_plain` converted."""

    def registered(name: Any, aux: Any, children: tuple) -> tuple:
        if name not in _nodes:
            raise ValueError(
                f"deserialize: the type of nodes registered as {name!r} is not registered in this process."
            )
        kind, from_aux = _nodes[name]
        if from_aux is not None:
            return kind, from_aux(aux), children
        return kind, treedef.flatten(kind(*range(len(children))))[1].spec[1], children

    return PyTreeDef.from_spec(plain.from_plain(written, registered))
