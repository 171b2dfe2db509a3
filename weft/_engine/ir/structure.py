"""The structure of a program as bytes: programs with equal bytes are one program to the compiler, in any process.

In:   a jaxpr, and whatever else says how to compile it: types, shardings, settings.
Out:  bytes that every value, every parameter and every use of a variable has gone into; `Unserializable` where something has
      no such bytes.
Laws: what is written depends only on the program: no address, no order of a set, no name of a function.
      Numbers of different types, 0.0 and -0.0, and two NaNs of different bits differ. What is not known is refused, never
      skipped; an object of weft's own is what its `__reduce__` makes it from. Left out on purpose are source lines, names of
      programs, and parameters that only derivatives read (`only_derivatives` of a primitive).

Values become plain data, which `marshal` writes at once: a tuple of the program becomes a list, so that a tuple begins with
the name of what it describes. Objects that occur again and again (types, shardings, programs) are written once, in a table.
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
    """Something in a program that no bytes identify."""


def structure(*parts: Any) -> bytes:
    """The bytes of values, parameters, types, shardings and programs.

    >>> structure((1, 2)) == structure((1, 2)), structure(0.0) == structure(-0.0), structure(1) == structure(True)
    (True, False, False)
    """
    writer = _Writer()
    written = [writer.value(part) for part in parts]
    try:
        return marshal.dumps((writer.table, written), _MARSHAL_VERSION)
    except ValueError as error:  # nested too deeply
        raise Unserializable(str(error)) from None


class _Writer:
    """Makes plain data of values. `numbers` are the places in `table` of objects that are there, by identity."""

    def __init__(self) -> None:
        self.table: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.alive: list[Any] = []  # else another object could take the identity of one
        self.unread: dict[Any, tuple[Any, ...]] = {}  # parameters of primitives that are left out

    def value(self, x: Any) -> Any:
        """Plain data for anything that a program may hold."""
        kind = class_of(x)
        if kind in _PLAIN:
            return x
        if kind is tuple:
            return [v if type(v) in _PLAIN else self.value(v) for v in x]
        make = _MAKERS.get(kind)
        return self.rare(x) if make is None else make(self, x)

    def rare(self, x: Any) -> Any:
        """What has no maker of its own."""
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
        return self.once(x, self.ours)

    def once(self, x: Any, make: Callable[[Any], Any]) -> tuple[str, int]:
        """A reference to an object in the table, where it is put first if it is not there."""
        number = self.numbers.get(id(x))
        if number is None:
            made = make(x)  # may put others there
            number = self.numbers[id(x)] = len(self.table)
            self.table.append(made)
            self.alive.append(x)
        return "#", number

    def ours(self, x: Any) -> tuple[Any, ...]:
        """An object of a class of weft, by what would make it again."""
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
        return self.once(
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

    def mapping(self, x: dict[Any, Any]) -> tuple[Any, ...]:
        return "dict", [[self.value(k), self.value(v)] for k, v in x.items()]

    # ---- programs

    def program(self, x: Jaxpr) -> tuple[str, int]:
        return self.once(x, self.equations)

    def equations(self, x: Jaxpr) -> tuple[Any, ...]:
        """A program. Variables go by the order in which they are bound, and need not be named where they are."""
        variables: dict[Var, int] = {}
        binders = [self.bind(v, variables) for v in (*x.constvars, *x.invars)]
        try:
            eqns = [self.equation(eqn, variables) for eqn in x.eqns]
            outs = [self.read(a, variables) for a in x.outvars]
        except KeyError as error:
            raise Unserializable(f"a variable that nothing binds: {error}") from None
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
        unread, effects = self.unread.get(primitive), eqn.effects
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
        """The place of a new variable's type in the table; that of a variable without a name is negative."""
        number = self.numbers.get(id(v.aval))
        if number is None:
            _, number = self.type(v.aval)
        if type(v) is DropVar:
            return ~number
        variables[v] = len(variables)
        return number

    def check(self, primitive: Any) -> tuple[Any, ...]:
        """The parameters of an operation to leave out; `Unserializable` unless its meaning is in the sources of weft and NumPy, so that its
        name stands for it."""
        known = registry.get(primitive.name) is primitive
        if not known or not all(
            module.partition(".")[0] in (_PACKAGE, "numpy") for module in primitive.sources()
        ):
            raise Unserializable(f"operation {primitive.name}, which is not weft's")
        unread = self.unread[primitive] = primitive.only_derivatives
        return unread


@functools.cache
def _dtype(x: np.dtype) -> tuple[str, str, str]:
    if x.hasobject or (x.fields is not None and x != dtypes.float0):
        raise Unserializable(f"dtype {x}")
    return "dtype", x.name, x.str


def _unserializable(writer: _Writer, x: Any) -> Any:
    raise Unserializable(f"the function {getattr(x, '__qualname__', x)}")


_MAKERS: dict[type, Callable[[_Writer, Any], Any]] = {
    ShapedArray: _Writer.type,
    Jaxpr: _Writer.program,
    np.ndarray: _Writer.array,
    frozenset: _Writer.unordered,
    dict: _Writer.mapping,
    list: lambda writer, x: ("list", [writer.value(v) for v in x]),
    FunctionType: _unserializable,
}
