"""The structure of a program as bytes: a canonical serialization for cache keys. Programs with equal bytes compile to the same code.

In:   a jaxpr, and the other inputs of its compilation: types, shardings, settings.
Out:  bytes that depend on every value, every parameter and every use of a variable; `Unserializable` if an object has no such bytes.
Laws: the bytes depend only on the program: not on addresses, the order of sets or names of functions.
      Numbers of different types, 0.0 and -0.0, and NaNs with different bits have different bytes. Unknown objects raise an error and
      are never skipped. Objects of weft's classes are written as the arguments of their `__reduce__`. Source lines, names of programs,
      and parameters that only derivatives read (`only_derivatives` of a primitive) are omitted.

Values are converted to plain data, which `marshal` writes in one call. A tuple of the program becomes a list; tuples in the plain data
start with the kind of the described object. Objects that occur many times (types, shardings, programs) are written once, in a table.
"""

from __future__ import annotations

import enum
import functools
import marshal
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from weft._engine.ir.jaxpr import Atom, DropVar, Eqn, Jaxpr, Literal, Var
from weft._engine.ir.registry import registry
from weft._engine.ir.types import ShapedArray
from weft._engine.util import dtypes
from weft._engine.util.trees.narrowing import class_of, is_tuple

#: the version of `marshal` whose bytes do not depend on which objects are shared
_MARSHAL_VERSION = 2
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})
_PACKAGE = "weft"


class Unserializable(Exception):
    """The error for an object in a program that cannot be identified by bytes."""


def serialize_structure(*parts: Any) -> bytes:
    """Return the bytes of values, parameters, types, shardings and programs.

    >>> serialize_structure((1, 2)) == serialize_structure((1, 2))
    True
    >>> serialize_structure(0.0) == serialize_structure(-0.0) or serialize_structure(1) == serialize_structure(True)
    False
    """
    writer = _StructureWriter()
    written = [writer.value(part) for part in parts]
    try:
        return marshal.dumps((writer.table, written), _MARSHAL_VERSION)
    except ValueError as error:  # nested too deeply
        raise Unserializable(str(error)) from None


class _StructureWriter:
    """Converts values to plain data. `numbers` contains the indices of objects in `table`, by their identity."""

    def __init__(self) -> None:
        self.table: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.alive: list[Any] = []  # keeps objects alive, so that their ids are not reused
        self.omitted_params: dict[Any, tuple[Any, ...]] = {}  # primitive -> parameters to omit

    def value(self, x: Any) -> Any:
        """Return plain data for a value in a program."""
        kind = class_of(x)
        if kind in _PLAIN:
            return x
        if kind is tuple:
            return [v if type(v) in _PLAIN else self.value(v) for v in x]
        make = _CONVERTERS.get(kind)
        return self.other_value(x) if make is None else make(self, x)

    def other_value(self, x: Any) -> Any:
        """Return plain data for a value whose class is not in `_CONVERTERS`."""
        if issubclass(class_of(x), np.dtype):
            return _dtype(x)
        if issubclass(class_of(x), np.generic):
            return "number", _dtype(x.dtype), x.tobytes()
        cls = class_of(x)
        if cls.__module__.partition(".")[0] != _PACKAGE:
            raise Unserializable(f"a value of type {cls.__module__}.{cls.__qualname__}")
        if isinstance(x, enum.Enum):
            return "choice", cls.__qualname__, x.name
        if is_tuple(x):
            return "named", cls.__module__, cls.__qualname__, [self.value(v) for v in x]
        return self.write_reference(x, self.write_weft_object)

    def write_reference(self, x: Any, make: Callable[[Any], Any]) -> tuple[str, int]:
        """Return a reference to an object in the table. Add the object, converted by `make`, if it is not there."""
        number = self.numbers.get(id(x))
        if number is None:
            data = make(x)  # may add other objects first
            number = self.numbers[id(x)] = len(self.table)
            self.table.append(data)
            self.alive.append(x)
        return "#", number

    def write_weft_object(self, x: Any) -> tuple[Any, ...]:
        """Return plain data for an object of a class of weft: the function and arguments of its `__reduce__`."""
        if type(x).__reduce__ is object.__reduce__:
            raise Unserializable(f"an object of {type(x).__qualname__}")
        reduced = x.__reduce__()
        if isinstance(reduced, str):
            return "one", type(x).__module__, reduced
        maker, args = reduced
        return "made", maker.__module__, maker.__qualname__, [self.value(v) for v in args]

    def array(self, x: np.ndarray) -> tuple[Any, ...]:
        if x.dtype.hasobject:
            return "objects", list(x.shape), [self.value(v) for v in x.flat]
        return "array", _dtype(x.dtype), list(x.shape), np.ascontiguousarray(x).tobytes()

    def type(self, x: ShapedArray) -> tuple[str, int]:
        return self.write_reference(
            x,
            lambda x: (
                "type",
                list(x.shape),
                self.value(x.dtype),
                x.weak_type,
                self.value(x.explicit),
                self.value(x.vma),
            ),
        )

    def unordered(self, x: frozenset[Any]) -> tuple[Any, ...]:
        return "set", sorted([marshal.dumps(self.value(v), _MARSHAL_VERSION) for v in x])

    def write_mapping(self, x: dict[Any, Any]) -> tuple[Any, ...]:
        return "dict", [[self.value(k), self.value(v)] for k, v in x.items()]

    # ---- programs

    def program(self, x: Jaxpr) -> tuple[str, int]:
        return self.write_reference(x, self.equations)

    def equations(self, x: Jaxpr) -> tuple[Any, ...]:
        """Return plain data for a program. Variables are numbered in binding order."""
        variables: dict[Var, int] = {}
        binders = [self.bind(v, variables) for v in (*x.constvars, *x.invars)]
        try:
            eqns = [self.equation(eqn, variables) for eqn in x.eqns]
            outs = [self.read(a, variables) for a in x.outvars]
        except KeyError as error:
            raise Unserializable(f"an unbound variable: {error}") from None
        return (
            "program",
            len(x.constvars),
            binders,
            [self.value(c) for c in x.consts],
            eqns,
            outs,
            self.value(frozenset(x.effects)),
        )

    def equation(self, eqn: Eqn, variables: dict[Var, int]) -> list[Any]:
        primitive = eqn.primitive
        unread, effects = self.omitted_params.get(primitive), eqn.effects
        if unread is None:
            unread = self.check(primitive)
        ins = [self.read(a, variables) if type(a) is Literal else variables[a] for a in eqn.invars]
        outs = [self.bind(v, variables) for v in eqn.outvars]
        params = [
            v if type(v) in _PLAIN else self.value(v)
            for name, v in eqn.params.items()
            if name not in unread
        ]
        return [
            primitive.name,
            ins,
            outs,
            [*eqn.params],
            params,
            self.value(frozenset(effects)) if effects else None,
        ]

    def read(self, a: Atom, variables: dict[Var, int]) -> Any:
        return (
            ("literal", self.value(a.val), self.type(a.aval))
            if type(a) is Literal
            else variables[a]
        )

    def bind(self, v: Var, variables: dict[Var, int]) -> int:
        """Number a new variable; return the index of its type in the table, inverted (`~index`) for a DropVar."""
        number = self.numbers.get(id(v.aval))
        if number is None:
            _, number = self.type(v.aval)
        if type(v) is DropVar:
            return ~number
        variables[v] = len(variables)
        return number

    def check(self, primitive: Any) -> tuple[Any, ...]:
        """Return the parameters of an operation to omit.

        Raise Unserializable unless the operation is registered and all its rules are defined by weft or NumPy, so that its name
        identifies it.
        """
        known = registry.get(primitive.name) is primitive
        if not known or not all(
            module.partition(".")[0] in (_PACKAGE, "numpy") for module in primitive.rule_modules()
        ):
            raise Unserializable(f"operation {primitive.name}, which is not weft's")
        unread = self.omitted_params[primitive] = primitive.only_derivatives
        return unread


@functools.cache
def _dtype(x: np.dtype) -> tuple[str, str, str]:
    if x.hasobject or (x.fields is not None and x != dtypes.float0):
        raise Unserializable(f"dtype {x}")
    return "dtype", x.name, x.str


def _unserializable(writer: _StructureWriter, x: Any) -> Any:
    raise Unserializable(f"the function {getattr(x, '__qualname__', x)}")


_CONVERTERS: dict[type, Callable[[_StructureWriter, Any], Any]] = {
    ShapedArray: _StructureWriter.type,
    Jaxpr: _StructureWriter.program,
    np.ndarray: _StructureWriter.array,
    frozenset: _StructureWriter.unordered,
    dict: _StructureWriter.write_mapping,
    list: lambda writer, x: ("list", [writer.value(v) for v in x]),
    FunctionType: _unserializable,
}
