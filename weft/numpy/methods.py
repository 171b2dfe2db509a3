"""Methods and operators of arrays: attached to `Array` and `Tracer` when the numpy face is loaded."""

from __future__ import annotations

import builtins
from collections.abc import Callable

import numpy as np

from weft.core.trace import Tracer
from weft.numpy import creation, eager, eager_index, indexing, manipulation, products, reductions, sorting, ufuncs
from weft.numpy.promote import is_arraylike
from weft.runtime.array import Array


def _operator(fun: Callable, swapped: bool = False) -> Callable:
    """A binary operator: other types get their chance through NotImplemented."""
    if swapped:
        def method(self, other):
            return fun(other, self) if type(other) in _KNOWN or is_arraylike(other) else NotImplemented
    else:
        def method(self, other):
            return fun(self, other) if type(other) in _KNOWN or is_arraylike(other) else NotImplemented
    return method


_KNOWN = frozenset({Array, float, int, bool})


def _getitem(self, index):
    return eager_index.getitem(self, index)


def _setitem(self, index, values):
    raise TypeError(f"{type(self).__name__} objects are immutable: x[index] = y cannot change them. "
                    "Use x = x.at[index].set(y), or another method of x.at.")


def _reshape(self, *shape, order: str = "C", **kwargs):
    """See `weft.numpy.reshape`; the shape may be given as one tuple or as separate integers."""
    shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    return eager.eager(manipulation.reshape)(self, eager.same(shape), order, **kwargs)


def _transpose(self, *axes):
    """See `weft.numpy.transpose`."""
    axes = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))) else axes or None
    return eager.eager(manipulation.transpose)(self, axes)


def _view(self, dtype=None, type=None):
    """The same bits as another dtype."""
    from weft.ops.elementwise import bitcast_convert_type
    if dtype is None:
        return self
    target = np.dtype(dtype)
    if self.dtype.itemsize == target.itemsize:
        return bitcast_convert_type(self, target)
    *lead, last = self.shape if self.ndim else (1,)
    if self.dtype.itemsize > target.itemsize:
        out = bitcast_convert_type(self, target)
        return out.reshape(*lead, last * (self.dtype.itemsize // target.itemsize))
    ratio = target.itemsize // self.dtype.itemsize
    if last % ratio:
        raise ValueError(f"view: a last dim of size {last} of {self.dtype.name} does not divide into elements of {target.name}.")
    return bitcast_convert_type(self.reshape(*lead, last // ratio, ratio), target)


def _compress(self, condition, axis: int | None = None, *, out=None, size: int | None = None, fill_value=0):
    """See `weft.numpy.compress`."""
    return sorting.compress(condition, self, axis, size=size, fill_value=fill_value)


def _round(self, ndigits: int | None = None):
    """As of Python numbers: to integers, or to `ndigits` places in the same dtype."""
    if ndigits is not None or np.issubdtype(self.dtype, np.integer):
        return products.round(self, ndigits or 0)
    return creation.astype(products.round(self), int)


def _astype(self, dtype, copy: bool = False, device=None):
    """See `weft.numpy.astype`."""
    return eager.eager(creation.astype)(self, dtype, copy=copy, device=device)


def _tracer_iter(self):
    if not self.ndim:
        raise TypeError("iteration over a 0-d array")
    return (self[i] for i in range(self.shape[0]))


def _tracer_len(self):
    if not self.ndim:
        raise TypeError("len() of unsized object")
    return self.shape[0]


def _to_device(self, device, *, stream=None):
    """The array on another device."""
    from weft.api.arrays import device_put
    return device_put(self, device)


OPERATORS = {
    "add": ufuncs.add, "sub": ufuncs.subtract, "mul": ufuncs.multiply, "truediv": ufuncs.true_divide,
    "floordiv": ufuncs.floor_divide, "mod": ufuncs.remainder, "pow": ufuncs.power, "matmul": products.matmul,
    "and": ufuncs.bitwise_and, "or": ufuncs.bitwise_or, "xor": ufuncs.bitwise_xor, "lshift": ufuncs.left_shift,
    "rshift": ufuncs.right_shift, "divmod": ufuncs.divmod,
}
COMPARISONS = {"eq": ufuncs.equal, "ne": ufuncs.not_equal, "lt": ufuncs.less, "le": ufuncs.less_equal, "gt": ufuncs.greater,
               "ge": ufuncs.greater_equal}
METHODS = {
    "all": reductions.all, "any": reductions.any, "argmax": reductions.argmax, "argmin": reductions.argmin,
    "argpartition": sorting.argpartition, "argsort": sorting.argsort, "clip": manipulation.clip, "conj": ufuncs.conjugate,
    "conjugate": ufuncs.conjugate, "copy": creation.copy, "cumprod": reductions.cumprod, "cumsum": reductions.cumsum,
    "diagonal": manipulation.diagonal, "dot": products.dot, "max": reductions.max, "mean": reductions.mean,
    "min": reductions.min, "nonzero": sorting.nonzero, "partition": sorting.partition, "prod": reductions.prod,
    "ptp": reductions.ptp, "ravel": manipulation.ravel, "flatten": manipulation.ravel, "repeat": manipulation.repeat,
    "round": products.round, "searchsorted": sorting.searchsorted, "sort": sorting.sort, "squeeze": manipulation.squeeze,
    "std": reductions.std, "sum": reductions.sum, "swapaxes": manipulation.swapaxes, "take": manipulation.take,
    "trace": manipulation.trace, "var": reductions.var, "choose": sorting.choose,
}
PROPERTIES = {
    "T": lambda self: eager.eager(manipulation.transpose)(self), "mT": lambda self: manipulation.matrix_transpose(self),
    "real": lambda self: ufuncs.real(self), "imag": lambda self: ufuncs.imag(self),
    "flat": lambda self: iter(manipulation.ravel(self)), "at": indexing._AtHelper,
}


def _method(fun: Callable) -> Callable:
    def method(self, *args, **kwargs):
        return fun(self, *args, **kwargs)
    method.__name__, method.__doc__ = fun.__name__, fun.__doc__
    return method


def attach(cls: type) -> None:
    """Give `cls` the operators and methods of arrays."""
    for name, fun in OPERATORS.items():
        fun = eager.power if fun is ufuncs.power else eager.eager(fun, (0, 1))
        setattr(cls, f"__{name}__", _operator(fun))
        setattr(cls, f"__r{name}__", _operator(fun, swapped=True))
    for name, fun in COMPARISONS.items():
        setattr(cls, f"__{name}__", _operator(eager.eager(fun, (0, 1))))
    for name, fun in METHODS.items():
        setattr(cls, name, _method(eager.wrapped(name, fun)))
    for name, get in PROPERTIES.items():
        setattr(cls, name, property(get))
    cls.__neg__ = lambda self: eager.eager(ufuncs.negative)(self)
    cls.__pos__ = lambda self: ufuncs.positive(self)
    cls.__abs__ = lambda self: eager.eager(ufuncs.abs)(self)
    cls.__invert__ = lambda self: ufuncs.invert(self)
    cls.__round__ = _round
    cls.__getitem__ = _getitem
    cls.__setitem__ = _setitem
    cls.compress = _compress
    cls.reshape, cls.transpose, cls.view, cls.astype, cls.to_device = _reshape, _transpose, _view, _astype, _to_device
    cls.__array_namespace__ = lambda self, /, *, api_version=None: __import__("weft.numpy").numpy


attach(Array)
attach(Tracer)
Tracer.__iter__ = _tracer_iter
Tracer.__len__ = _tracer_len
Tracer.nbytes = builtins.property(lambda self: self.aval.nbytes)
Tracer.itemsize = builtins.property(lambda self: self.aval.dtype.itemsize)
