"""Objects for the refused names of JAX: programs can import, compare and store them; using one raises NotImplementedError.

In:   the module and the name in JAX, the kind of its object there, and the reason for the refusal.
Out:  a function, class, exception, module, primitive or value that raises NotImplementedError with the name and the reason.
Laws: a primitive has one object under all its modules, so tables with the primitive as key work; no program of weft contains it. A
      refused class can be subclassed and tested with `isinstance`; neither it nor a subclass can be instantiated.

Next to read: `missing` (the table of the names and their reasons).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn

from weft._engine.core.primitive import Primitive
from weft._engine.util.refusals import refused_function


def _refuse(message: str) -> NoReturn:
    raise NotImplementedError(message)


def _is_special(name: str) -> bool:
    """Return True if Python itself looks the attribute up, as `copy` and `inspect` do
    (`_partialmethod`)."""
    return name.startswith("_")


class RefusedType(type):
    """The type of refused classes."""

    refusal: str

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(cls.refusal)

    def __getattr__(cls, name: str) -> Any:
        if _is_special(name):
            raise AttributeError(name)
        _refuse(cls.refusal)


class RefusedModule(ModuleType):
    """A module without contents: attributes raise NotImplementedError."""

    refusal: str

    def __getattr__(self, name: str) -> Any:
        if _is_special(name):
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self
            )
        _refuse(self.refusal)


class RefusedPrimitive(Primitive):
    """A primitive that weft does not bind. Rules can be defined but are never used; `bind` raises
    NotImplementedError."""

    kind = "refused"

    def __init__(self, module: str, name: str, reason: str):
        super().__init__(name.removesuffix("_p"), register=False)
        self._origin, self.refusal = (
            (module, name, "primitive", reason),
            f"{module}.{name}: {reason}.",
        )

    def bind(self, *args: Any, **params: Any) -> NoReturn:
        _refuse(self.refusal)

    def bind_with_trace(self, trace: Any, args: Any, params: Any) -> NoReturn:
        _refuse(self.refusal)

    @property
    def impl(self) -> NoReturn:
        _refuse(self.refusal)

    def __reduce__(self) -> Any:
        return refused_object, self._origin


class RefusedValue:
    """A constant or a table: reading or changing it raises NotImplementedError."""

    def __init__(self, fullname: str, refusal: str):
        self.__dict__.update(_fullname=fullname, _refusal=refusal)

    def __getattr__(self, name: str) -> Any:
        if _is_special(name):
            raise AttributeError(name)
        _refuse(self._refusal)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        _refuse(self._refusal)

    def _use(self, *args: Any) -> NoReturn:
        _refuse(self._refusal)

    __getitem__ = __setitem__ = __delitem__ = __contains__ = __iter__ = __len__ = __bool__ = (
        __index__
    ) = __int__ = _use

    def __repr__(self) -> str:
        return f"<{self._fullname}, which weft refuses>"


#: name -> its object
_primitives: dict[str, RefusedPrimitive] = {}


def _primitive(module: str, name: str, reason: str) -> RefusedPrimitive:
    """Return the only object of a primitive; its message names the module of the first access."""
    if name not in _primitives:
        _primitives.setdefault(name, RefusedPrimitive(module, name, reason))
    return _primitives[name]


def refused_object(module: str, name: str, kind: str, reason: str) -> Any:
    """Return the object of `kind`: "class", "exception", "function", "module", "primitive" or
    "value".

    >>> refused_object("jax.ffi", "include_dir", "function", "there are no headers")()
    Traceback (most recent call last):
    NotImplementedError: jax.ffi.include_dir: there are no headers.
    """
    fullname = f"{module}.{name}"
    message = f"{fullname}: {reason}."
    if kind == "primitive":
        return _primitive(module, name, reason)
    if kind == "function":
        return refused_function(module, name, message)
    if kind == "value":
        return RefusedValue(fullname, message)
    if kind == "module":
        placeholder = RefusedModule(fullname, message)
        placeholder.refusal = message
        return placeholder
    bases = (Exception,) if kind == "exception" else ()
    return RefusedType(name, bases, {"__module__": module, "__doc__": message, "refusal": message})
