"""Records: small classes of named fields, created in microseconds.

In:   a class whose annotations name its fields, in order, with defaults as class attributes or `field(...)`.
Out:  the same class with slots and with `__init__`, `__repr__`, `__eq__` and `__hash__` over the fields; frozen by default.
Laws: a record is final and its only attributes are its fields; a `__post_init__` may check them. `__init__` is generated after
      16 objects: most of the dozens of record classes of a process have few objects or none. (The standard library's
      dataclasses generate all methods at once, which takes half a millisecond per class.)
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform, overload

_T = TypeVar("_T")
_MISSING: Any = object()


class _Field:
    """One field: its default, and whether comparison and repr include it."""

    __slots__ = ("default", "factory", "compare", "repr")

    def __init__(self, default: Any, factory: Any, compare: bool, repr: bool):
        self.default, self.factory, self.compare, self.repr = default, factory, compare, repr


class _Record:
    """The fields of a class, and the number of objects created before its `__init__` is generated."""

    __slots__ = ("fields", "object_count")

    def __init__(self, fields: dict[str, _Field]):
        self.fields, self.object_count = fields, 0


def field(
    *,
    default: Any = _MISSING,
    default_factory: Any = _MISSING,
    compare: bool = True,
    repr: bool = True,
) -> Any:
    """Declare a field with a default from `default_factory`, or one that comparison or repr excludes."""
    return _Field(default, default_factory, compare, repr)


@overload
def record(cls: type[_T]) -> type[_T]: ...
@overload
def record(*, frozen: bool = True, eq: bool = True) -> Callable[[type[_T]], type[_T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: Any = None, *, frozen: bool = True, eq: bool = True) -> Any:
    """Make a class a record; `eq=False` keeps the identity of objects.

    >>> @record
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, 0), {Point(1): "found"}[Point(1)]
    (Point(x=1, y=0), True, 'found')
    """
    return (
        functools.partial(_record, frozen=frozen, eq=eq)
        if cls is None
        else _record(cls, frozen, eq)
    )


def replace(old: _T, **changes: Any) -> _T:
    """Return a copy of a record with some fields changed.

    >>> @record
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> replace(Point(1, 2), x=3)
    Point(x=3, y=2)
    """
    return type(old)(**values_of(old) | changes)


def values_of(one: Any) -> dict[str, Any]:
    """Return the fields of a record by name."""
    return {name: getattr(one, name) for name in type(one).__slots__}


def _record(cls: type, frozen: bool, eq: bool) -> type:
    names: tuple[str, ...] = tuple(getattr(cls, "__annotations__", ()))
    fields: dict[str, _Field] = {
        name: _describe_fields(cls.__dict__.get(name, _MISSING)) for name in names
    }
    members = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in names and name not in ("__dict__", "__weakref__")
    }
    own = {"__slots__": names, "__match_args__": names, "__record__": _Record(fields)}
    return type(cls)(
        cls.__name__, cls.__bases__, {**_methods(fields, frozen, eq), **members, **own}
    )


_PLAIN = _Field(_MISSING, _MISSING, True, True)


def _describe_fields(default: Any) -> _Field:
    return (
        _PLAIN
        if default is _MISSING
        else default
        if type(default) is _Field
        else _Field(default, _MISSING, True, True)
    )


def _repr(self: Any) -> str:
    field_names = [name for name, one in self.__record__.fields.items() if one.repr]
    return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in field_names])})"


def _reduce(self: Any) -> tuple:
    return type(self), tuple([getattr(self, name) for name in self.__slots__])


def _methods(fields: dict[str, _Field], frozen: bool, eq: bool) -> dict[str, Any]:
    """Return the methods of a record. Methods that need not be fast are shared by all classes, which saves objects."""
    methods: dict[str, Any] = {
        "__init__": _init_while_few,
        "__repr__": _repr,
        "__reduce__": _reduce,
    }
    if eq:
        values = _getter([name for name, one in fields.items() if one.compare])

        def __eq__(self, other) -> bool:
            return (
                self is other or values(self) == values(other)
                if type(self) is type(other)
                else NotImplemented
            )

        methods |= {
            "__eq__": __eq__,
            "__hash__": (lambda self: hash(values(self))) if frozen else None,
        }
    if frozen:
        methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
    return methods


def _getter(names) -> Callable[[Any], Any]:
    return operator.attrgetter(*names) if names else lambda self: ()


def _refuse(self, name: str, *value: Any) -> None:
    raise AttributeError(
        f"{type(self).__name__} is frozen: cannot change {name!r}. Create a changed copy with `replace`."
    )


#: number of objects of a class after which generating its `__init__` pays
_MANY = 16


def _init_while_few(self: Any, *args: Any, **kwargs: Any) -> None:
    """Store the fields of an object. The generated `__init__` reports arguments that do not match."""
    cls, about = type(self), self.__record__
    about.object_count += 1
    fits = about.object_count <= _MANY and len(args) <= len(about.fields)
    count, named = len(args), 0
    for i, (name, one) in enumerate((about.fields if fits else {}).items()):
        if i < count:
            value = args[i]
        elif name in kwargs:
            value, named = kwargs[name], named + 1
        elif one.factory is not _MISSING:
            value = one.factory()
        else:
            value = one.default
        if value is _MISSING:
            break
        cls.__dict__[name].__set__(self, value)
    else:
        if fits and named == len(kwargs):
            if hasattr(cls, "__post_init__"):
                self.__post_init__()
            return
    cls.__init__ = written = _init(cls, about.fields)
    written(self, *args, **kwargs)


def _init(cls: type, fields: dict[str, _Field]) -> Callable[..., None]:
    """Return a generated `__init__` with a parameter for each field, which the setter of its slot stores."""
    known: dict[str, Any] = {"_missing": _MISSING}
    parameters, body = ["self"], []
    for name, one in fields.items():
        known[f"_set_{name}"] = cls.__dict__[name].__set__
        value, default = name, ""
        if one.factory is not _MISSING:
            known[f"_make_{name}"] = one.factory
            value, default = f"_make_{name}() if {name} is _missing else {name}", "=_missing"
        elif one.default is not _MISSING:
            known[f"_default_{name}"] = one.default
            default = f"=_default_{name}"
        parameters.append(name + default)
        body.append(f"    _set_{name}(self, {value})\n")
    if hasattr(cls, "__post_init__"):
        body.append("    self.__post_init__()\n")
    exec(f"def __init__({', '.join(parameters)}):\n{''.join(body) or '    pass'}", known)
    known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return known["__init__"]
