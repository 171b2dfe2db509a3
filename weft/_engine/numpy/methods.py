"""Methods and operators of arrays, attached to `Array` and `Tracer` when `weft.numpy` is loaded.

In:   the namespace of the public functions: `weft.numpy`, which calls `attach` when it is loaded.
      Most methods are such functions, listed in tables here; they are created, and their modules
      loaded, at first use.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from weft._engine.core.trace import Tracer
from weft._engine.numpy import eager
from weft._engine.numpy.promote import is_arraylike
from weft._engine.runtime.array import Array
from weft._engine.util import dtypes, events
from weft._engine.util.source import array_method, clean_method_error

#: the namespace of the public functions, set by `attach`
wnp: Any = None


def _operator(name: str) -> Callable:
    """Return a binary operator.

    For other types it returns NotImplemented, so that their own operators are tried.
    """
    fun = getattr(wnp, name)

    def method(self, other):
        if type(other) not in _KNOWN and not is_arraylike(other):
            return NotImplemented
        try:
            return fun(self, other)
        except Exception as error:
            clean_method_error(error)
            raise

    return method


def _equality(name: str) -> Callable:
    """Return a comparison that refuses Python containers.

    Python would fall back to identity for them.
    """
    fun, sign = getattr(wnp, name), "==" if name == "equal" else "!="

    def method(self, other):
        try:
            if type(other) in _KNOWN or is_arraylike(other):
                return fun(self, other)
            if isinstance(other, (list, tuple, set, dict)):
                raise TypeError(
                    f"unsupported operand type(s) for {sign}: {type(self).__name__!r} and {type(other).__name__!r}. "
                    "Convert one: weft.numpy.asarray(values), or x.tolist()."
                )
        except Exception as error:
            clean_method_error(error)
            raise
        return NotImplemented

    return method


def _reflect(name: str) -> Callable:
    """Return a binary operator whose second operand is the array."""
    fun = getattr(wnp, name)

    def method(self, other):
        if type(other) not in _KNOWN and not is_arraylike(other):
            return NotImplemented
        try:
            return fun(other, self)
        except Exception as error:
            clean_method_error(error)
            raise

    return method


_KNOWN = frozenset({Array, float, int, bool})


@array_method
def _setitem(self, index, values):
    name = "Traced array" if isinstance(self, Tracer) else type(self).__name__
    raise TypeError(
        f"{name} objects are immutable: x[index] = y cannot change them. "
        "Use x = x.at[index].set(y), or another method of x.at."
    )


def _reshape(self, *shape, order: str = "C", **kwargs):
    """Reshape as `weft.numpy.reshape`; the shape may be one tuple or separate integers."""
    try:
        shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return wnp.reshape(self, eager.same(shape), order, **kwargs)
    except Exception as error:
        clean_method_error(error)
        raise


def _transpose(self, *axes):
    """See `weft.numpy.transpose`."""
    try:
        axes = axes[0] if len(axes) == 1 and (axes[0] is None or np.ndim(axes[0])) else axes or None
        return wnp.transpose(self, axes)
    except Exception as error:
        clean_method_error(error)
        raise


@array_method
def _view(self, dtype=None, type=None):
    """Return the same bits as another dtype; elements of another size change the last dim."""
    from weft._engine.ops.elementwise import bitcast_convert_type

    if dtype is None:
        return self
    target = dtypes.check_dtype(dtype, "view")
    if target != self.dtype and (dtypes.is_extended(self.dtype) or dtypes.is_extended(target)):
        raise TypeError(
            f"view: random keys and numbers are no views of each other, got {self.dtype.name} and {target.name}. Use "
            "random.key_data or random.wrap_key_data."
        )
    old, new = dtypes.itemsize_bits(self.dtype), dtypes.itemsize_bits(target)
    if old == new:
        return bitcast_convert_type(self, target)
    if not self.ndim:
        raise ValueError(
            f"view: a 0-d array of {self.dtype.name} cannot be viewed as {target.name}, whose elements have another size. "
            "Add a dim first, as in x.reshape(1)."
        )
    *lead, last = self.shape
    if old > new:
        return bitcast_convert_type(self, target).reshape(*lead, last * (old // new))
    ratio = new // old
    if last % ratio:
        raise ValueError(
            f"view: a last dim of size {last} of {self.dtype.name} does not divide into elements of {target.name}."
        )
    return bitcast_convert_type(self.reshape(*lead, last // ratio, ratio), target)


@array_method
def _compress(
    self, condition, axis: int | None = None, *, out=None, size: int | None = None, fill_value=0
):
    """See `weft.numpy.compress`."""
    return wnp.compress(condition, self, axis, size=size, fill_value=fill_value, out=out)


def _array_namespace(self, /, *, api_version: str | None = None):
    """Return the namespace of the Python array API.

    It is `weft.numpy`, or `jax.numpy` where that means weft. Raise ValueError for another version.
    """
    if api_version not in (None, wnp.__array_api_version__):
        raise ValueError(
            f"__array_namespace__: the version of the array API is {wnp.__array_api_version__!r}, got {api_version!r}."
        )
    return importlib.import_module("jax.numpy") if events.above else wnp


@array_method
def _round(self, ndigits: int | None = None):
    """Round as Python numbers do: to integers, or to `ndigits` places in the same dtype."""
    if ndigits is not None or np.issubdtype(self.dtype, np.integer):
        return wnp.round(self, ndigits or 0)
    return wnp.astype(wnp.round(self), int)


def _astype(self, dtype, copy: bool = False, device=None):
    """See `weft.numpy.astype`."""
    try:
        return wnp.astype(self, dtype, copy=copy, device=device)
    except Exception as error:
        clean_method_error(error)
        raise


def _tracer_iter(self):
    if not self.ndim:
        raise TypeError("iteration over a 0-d array")
    return (self[i] for i in range(self.shape[0]))


def _tracer_len(self):
    if not self.ndim:
        raise TypeError("len() of unsized object")
    return self.shape[0]


@array_method
def _contains(self, element):
    """Return whether a vector has an element equal to a number."""
    if not is_arraylike(element):
        raise TypeError(
            f"Array.__contains__: unsupported operand type {type(element)}; the elements of an array are numbers."
        )
    if np.ndim(element):
        raise ValueError(
            f"Array.__contains__: query value must be a scalar, got shape {np.shape(element)}."
        )
    if self.ndim != 1:
        raise ValueError(
            f"Array.__contains__: search array must be one-dimensional, got shape {tuple(self.shape)}."
        )
    return bool((self == element).any())


@array_method
def _byteswap(self):
    """Return the elements with their byte order reversed; the dtype is unchanged."""
    from weft._engine.ops.elementwise import complex as complex_of

    if self.dtype.itemsize == 1 or self.dtype == np.bool_:
        return self
    if dtypes.issubdtype(self.dtype, np.complexfloating):
        return complex_of(wnp.real(self).byteswap(), wnp.imag(self).byteswap())
    return wnp.flip(_view(self[..., None], np.uint8), -1).view(self.dtype)[..., 0]


@array_method
def _to_device(self, device, *, stream=None):
    """Return the array on another device."""
    from weft._engine.api.placement.device_put import device_put

    return device_put(self, device)


#: the public function of each method, by the name without underscores
OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
    "divmod": "divmod",
}
COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
UNARY = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "invert"}
METHODS = """all any argmax argmin argpartition argsort choose clip conj conjugate copy cumprod cumsum diagonal dot max mean min nonzero
partition prod ptp ravel repeat round searchsorted sort squeeze std sum swapaxes take trace var""".split()
PROPERTIES = {"T": "transpose", "mT": "matrix_transpose", "real": "real", "imag": "imag"}


class _LazyAttribute:
    """An attribute of arrays, created at first use.

    `make(*facts)` creates it; it then replaces this object.
    """

    __slots__ = ("name", "make", "facts")

    def __init__(self, name: str, make: Callable[..., Any], *facts: str):
        self.name, self.make, self.facts = name, make, facts

    def __get__(self, instance: Any, owner: type) -> Any:
        attribute = self.make(*self.facts)
        for cls in (Array, Tracer):
            setattr(cls, self.name, attribute)
        return attribute.__get__(instance, owner)


def _method(name: str) -> Callable:
    fun = getattr(wnp, name)

    def method(self, *args, **kwargs):
        try:
            return fun(self, *args, **kwargs)
        except Exception as error:
            clean_method_error(error)
            raise

    method.__name__, method.__doc__ = fun.__name__, fun.__doc__
    return method


def _of_self(name: str) -> Callable:
    fun = getattr(wnp, name)

    def method(self):
        try:
            return fun(self)
        except Exception as error:
            clean_method_error(error)
            raise

    return method


def _property(name: str) -> property:
    return property(_of_self(name), doc=f"`weft.numpy.{name}` of the array.")


def _getitem() -> Callable:
    from weft._engine.numpy.eager_index import getitem

    def method(self, index):
        try:
            return getitem(self, index)
        except Exception as error:
            clean_method_error(error)
            raise

    return method


def _at() -> property:
    from weft._engine.numpy.indexed_update import AtHelper

    return property(AtHelper)


def attach(namespace: Any) -> None:
    """Attach operators and methods, which are functions of `array_api_info`, to arrays."""
    global wnp
    wnp = namespace
    for cls in (Array, Tracer):
        _attach_to(cls)
    Tracer.__iter__ = _tracer_iter
    Tracer.__len__ = _tracer_len


def _attach_to(cls: type) -> None:
    def lazy(name: str, make: Callable[..., Any], *facts: str) -> None:
        setattr(cls, name, _LazyAttribute(name, make, *facts))

    lazy("__getitem__", _getitem)
    lazy("at", _at)
    lazy("flatten", _method, "ravel")
    for name, fun in OPERATORS.items():
        lazy(f"__{name}__", _operator, fun)
        lazy(f"__r{name}__", _reflect, fun)
    for name, fun in COMPARISONS.items():
        lazy(f"__{name}__", _equality if name in ("eq", "ne") else _operator, fun)
    for name, fun in UNARY.items():
        lazy(f"__{name}__", _of_self, fun)
    for name in METHODS:
        lazy(name, _method, name)
    for name, fun in PROPERTIES.items():
        lazy(name, _property, fun)
    cls.__round__ = _round
    cls.__setitem__ = _setitem
    cls.flat = property(
        lambda self: iter(self.ravel()), doc="An iterator over the elements, in row-major order."
    )
    cls.compress, cls.byteswap, cls.__contains__ = _compress, _byteswap, _contains
    cls.reshape, cls.transpose, cls.view, cls.astype, cls.to_device = (
        _reshape,
        _transpose,
        _view,
        _astype,
        _to_device,
    )
    cls._impl = property(
        lambda self: self.dtype.impl.public,
        doc="The generator of keys, under the name that libraries use.",
    )
    cls.__array_namespace__ = _array_namespace
