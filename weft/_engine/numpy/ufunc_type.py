"""The class of NumPy's universal functions: elementwise functions with reduce, accumulate,
reduceat, outer and at.

In:   functions of `weft.numpy` (`eager` makes ufuncs of those in `IDENTITIES`), or a Python
      function of scalars (`frompyfunc`).
Out:  `ufunc`, a public function that is called like any other, natively on values.

Law: reductions combine from left to right, as NumPy's; a ufunc with a corresponding reduction uses
it, others scan.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft._engine.api.jit import EagerJit
from weft._engine.numpy import promote
from weft._engine.util import dtypes
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import api_boundary

#: the ufuncs of `weft.numpy` and their identities, if any
IDENTITIES: dict[str, Any] = {
    "add": 0,
    "multiply": 1,
    "subtract": None,
    "negative": None,
    "maximum": None,
    "minimum": None,
    "bitwise_and": -1,
    "bitwise_or": 0,
    "bitwise_xor": 0,
    "logical_and": True,
    "logical_or": False,
    "logical_xor": False,
    "logaddexp": -math.inf,
    "logaddexp2": -math.inf,
}
#: the reduction in `weft.numpy`, the running reduction, and the update of `x.at` of a ufunc
_REDUCTIONS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}
_RUNNING = {"add": "cumsum", "multiply": "cumprod"}
_UPDATES = {"add": "add", "multiply": "multiply", "maximum": "max", "minimum": "min"}


def _numpy(name: str) -> Callable:
    return getattr(importlib.import_module("weft.numpy"), name)


class ufunc(EagerJit):
    """A function of single elements that broadcasts its arguments.

    It has the methods of NumPy's ufuncs: reduce, accumulate, at and others.

    `func` takes `nin` scalars and returns `nout`; `identity`, if there is one, is the result of a
    reduction of no elements. The methods are those of NumPy's ufuncs; arrays cannot be changed, so
    `at` returns the updated array and needs `inplace=False`. Functions of whole arrays may be
    passed for a call (`call`) and for the methods `reduce`, `accumulate`, `at` and `reduceat`, with
    their arguments. Raises ValueError if `nargs` is not `nin`.

    >>> wnp.add.reduce(wnp.array([[1, 2], [3, 4]]))
    Array([4, 6], dtype=int32)
    >>> wnp.frompyfunc(lambda x, y: x - y, 2, 1).accumulate(wnp.array([9, 2, 3]))
    Array([9, 7, 4], dtype=int32)
    """

    __module__ = "weft.numpy"

    def __init__(
        self,
        func: Callable,
        /,
        nin: int,
        nout: int,
        *,
        name: str | None = None,
        nargs: int | None = None,
        identity: Any = None,
        call: Callable | None = None,
        reduce: Callable | None = None,
        accumulate: Callable | None = None,
        at: Callable | None = None,
        reduceat: Callable | None = None,
    ) -> None:
        if not callable(func):
            raise TypeError(f"ufunc: func must be a function, got {func!r}.")
        for parameter, count in (("nin", nin), ("nout", nout)):
            if not isinstance(count, (int, np.integer)) or count < 0:
                raise TypeError(
                    f"ufunc: `{parameter}` must be an integer of at least 0, got {count!r:.60}."
                )
        if nargs not in (None, nin):
            raise ValueError(f"ufunc: nargs is the number of arguments, {nin}; got {nargs}.")
        methods = {"reduce": reduce, "accumulate": accumulate, "at": at, "reduceat": reduceat}
        self._overrides = {method: fun for method, fun in methods.items() if fun is not None}
        self._facts = func, nin, nout, identity
        if getattr(func, "__module__", "") == "weft._engine.numpy.ufuncs":
            super().__init__(func, range(nin))
        else:
            super().__init__(call or _over_elements(func, nin), ())
        self.name = self.__name__ = self.__qualname__ = name or getattr(func, "__name__", "ufunc")
        self.__doc__ = getattr(func, "__doc__", None)

    def __getattr__(self, name: str) -> Any:
        if name != "__signature__":
            return super().__getattr__(name)
        signature = inspect.signature(self.fun)
        options = [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=None)
            for option in ("out", "where")
        ]
        return signature.replace(parameters=[*signature.parameters.values(), *options])

    @property
    def _func(self) -> Callable:
        return self._facts[0]

    @property
    def nin(self) -> int:
        """The number of arguments."""
        return self._facts[1]

    @property
    def nout(self) -> int:
        """The number of results."""
        return self._facts[2]

    @property
    def nargs(self) -> int:
        """The number of arguments that a call takes."""
        return self._facts[1]

    @property
    def identity(self) -> Any:
        """The identity element, or None."""
        return self._facts[3]

    def __repr__(self) -> str:
        return f"<weft.numpy.ufunc '{self.name}'>"

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, ufunc) and (self._facts, self.name) == (other._facts, other.name)
        )

    def __hash__(self) -> int:
        return hash((self._facts, self.name))

    def _bind_keywords(self, kwargs: dict) -> dict:
        if kwargs.pop("out", None) is not None or kwargs.pop("where", None) is not None:
            raise NotImplementedError(
                f"{self.name}: out and where are not supported, arrays cannot be changed. Use weft.numpy.where."
            )
        return kwargs

    @property
    def _has_own(self) -> bool:
        """Return whether this is the function of that name in `weft.numpy`."""
        return getattr(self._func, "__module__", "") == "weft._engine.numpy.ufuncs"

    def _binary(self, method: str, out: Any = None) -> None:
        if (self.nin, self.nout) != (2, 1):
            raise ValueError(
                f"{method} is for functions of two arguments with one result; {self.name} has {self.nin} and {self.nout}."
            )
        if out is not None:
            raise NotImplementedError(
                f"{self.name}.{method}: out is not supported, arrays cannot be changed. Use the result."
            )

    def _operand(self, a: Any, dtype: Any, method: str) -> Any:

        a = promote.array_of(f"{self.name}.{method}", a)
        return (
            a
            if dtype is None
            else promote.cast(a, dtypes.check_dtype(dtype, f"{self.name}.{method}"))
        )

    def _truths(self, a: Any) -> Any:
        """Return `a`, or a mask of nonzero elements for a function of truth values."""
        return _numpy("astype")(a, bool) if self._has_own and self.name.startswith("logical") else a

    def _along(self, a: Any, axis: Any, method: str) -> tuple[Any, int]:

        if isinstance(axis, (tuple, list)):
            raise NotImplementedError(
                f"{self.name}.{method}: one axis, or None for all elements in a row, got {axis!r}."
            )
        return promote.flatten_for_axis(f"{self.name}.{method}", a, axis)

    @api_boundary
    def reduce(
        self, a, axis=0, dtype=None, out=None, keepdims: bool = False, initial=None, where=None
    ):
        """Return the elements along `axis` (None: all) combined from left to right.

        The combination begins with `initial`.

        `where` selects elements.

        Raises ValueError for no elements, or `where`, without an identity or `initial`;
        NotImplementedError for several axes of a function without a corresponding reduction.
        """
        self._binary("reduce", out)
        options = {"dtype": dtype, "initial": initial, "where": where}
        if "reduce" in self._overrides:
            return self._overrides["reduce"](a, axis=axis, keepdims=keepdims, **options)
        has_no_start = self.identity is None and initial is None
        if where is not None and has_no_start:
            raise ValueError(
                f"{self.name}.reduce: where needs an identity, which {self.name} does not have, or initial=."
            )
        a = self._operand(a, dtype, "reduce")
        if self.name in _REDUCTIONS and self._has_own:
            return self._reduce_by_name(a, axis, keepdims, options)
        rank = a.ndim
        rows, dim = self._along(self._truths(a), axis, "reduce")
        n = rows.shape[dim]
        if not n and has_no_start:
            raise ValueError(
                f"{self.name}.reduce: {self.name} has no identity for an axis of size 0."
            )
        rows = _numpy("moveaxis")(rows, dim, 0)
        mask = None if where is None else _mask_rows(where, tuple(a.shape), axis, dim)
        if initial is None and mask is None and n:
            first, rows = rows[0], rows[1:]
        else:
            first = self._start(self.identity if initial is None else initial, rows)
        result = self._fold(first, rows, mask)[0]
        if not keepdims:
            return result
        return _numpy("expand_dims")(result, tuple(range(rank)) if axis is None else dim)

    def _reduce_by_name(self, a, axis, keepdims: bool, options: dict[str, Any]):
        """Reduce by the equivalent function of `weft.numpy`, such as `sum` for `add`."""
        name, initial = _REDUCTIONS[self.name], options["initial"]
        has_initial = name not in ("all", "any")
        if name not in ("sum", "prod"):
            del options["dtype"]
        if not has_initial:
            del options["initial"]
        options = {key: x for key, x in options.items() if x is not None}
        result = _numpy(name)(a, axis, keepdims=keepdims, **options)
        return result if has_initial or initial is None else self(result, initial)

    def _start(self, value: Any, rows: Any) -> Any:
        """Return `value` in the shape of a row, in the dtype of the results."""
        value = _numpy("asarray")(value)
        dtype = rows.dtype if self._is_bool_too(rows) else dtypes.result_type(rows, value)
        return _numpy("full")(rows.shape[1:], value if dtype != np.bool_ else value != 0, dtype)

    def _is_bool_too(self, rows: Any) -> bool:
        return rows.dtype == np.bool_ and type(self.identity) is int

    def _fold(self, first: Any, rows: Any, mask: Any = None) -> tuple[Any, Any]:
        """Combine the rows with `first` in order; return the total and all partial results."""
        from weft._engine.api.arrays import eval_shape
        from weft._engine.control.scan import scan

        dtype = eval_shape(self, first, rows[0] if rows.shape[0] else first).dtype
        first = _numpy("astype")(first, dtype)

        def step(carry, row):
            new = self(carry, _numpy("astype")(row[0], dtype) if dtype != np.bool_ else row[0])
            if mask is not None:
                new = _numpy("where")(row[1], new, carry)
            return new, new

        return scan(step, first, (rows,) if mask is None else (rows, mask))

    @api_boundary
    def accumulate(self, a, axis: int = 0, dtype=None, out=None):
        """Return all prefixes along `axis`, combined from left to right.

        Raises ValueError unless the function has two arguments and one result, or without an axis.
        """
        self._binary("accumulate", out)
        if "accumulate" in self._overrides:
            return self._overrides["accumulate"](a, axis=axis, dtype=dtype)
        if axis is None or isinstance(axis, (tuple, list)):
            raise ValueError(f"{self.name}.accumulate runs along one axis, got {axis!r}.")
        a = self._operand(a, dtype, "accumulate")
        if self.name in _RUNNING and self._has_own:
            return _numpy(_RUNNING[self.name])(a, axis, dtype)
        a, dim = self._along(self._truths(a), axis, "accumulate")
        if not a.shape[dim]:
            return a
        rows = _numpy("moveaxis")(a, dim, 0)
        _, later = self._fold(rows[0], rows[1:])
        return _numpy("moveaxis")(
            _numpy("concatenate")([_numpy("astype")(rows[:1], later.dtype), later]), 0, dim
        )

    @api_boundary
    def reduceat(self, a, indices, axis: int = 0, dtype=None, out=None):
        """Return the elements from each index to the next one, combined from left to right.

        If the next index is not greater, the result is the element itself.

        Raises ValueError unless the function has two arguments and one result, or without an axis.
        """
        self._binary("reduceat", out)
        if "reduceat" in self._overrides:
            return self._overrides["reduceat"](a, indices, axis=axis, dtype=dtype)
        if axis is None or isinstance(axis, (tuple, list)):
            raise ValueError(f"{self.name}.reduceat runs along one axis, got {axis!r}.")
        a, dim = self._along(self._operand(a, dtype, "reduceat"), axis, "reduceat")
        rows, at = _numpy("moveaxis")(self._truths(a), dim, 0), _numpy("asarray")(indices)
        if at.ndim != 1:
            raise ValueError(
                f"{self.name}.reduceat: indices must be a vector, got shape {tuple(at.shape)}."
            )
        if not at.shape[0]:
            return _numpy("moveaxis")(_numpy("astype")(rows[:0], a.dtype), 0, dim)
        n = rows.shape[0]
        ends = _numpy("append")(at[1:], np.array([n], at.dtype))
        numbers = np.arange(n, dtype=at.dtype)[:, None]
        inside = _numpy("logical_and")(numbers > at[None], numbers < ends[None]).reshape(
            n, at.shape[0], *(1,) * (rows.ndim - 1)
        )
        result = self._fold(rows[at], rows[:, None], inside)[0]
        return _numpy("moveaxis")(_numpy("astype")(result, a.dtype), 0, dim)

    @api_boundary
    def outer(self, A, B, /):  # noqa: N803
        """Return the function of all pairs of an element of `A` and one of `B`.

        The result has the dims of `A`, then the dims of `B`.
        """
        self._binary("outer")
        A, B = self._operand(A, None, "outer"), self._operand(B, None, "outer")  # noqa: N806
        return self(A.reshape(*A.shape, *(1,) * B.ndim), B.reshape(*(1,) * A.ndim, *B.shape))

    @api_boundary
    def at(self, a, indices, b=None, /, *, inplace: bool = True):
        """Return `a` with the elements at `indices` replaced by the function of them (and `b`).

        The function is applied once for each occurrence of an index.

        Raises NotImplementedError unless `inplace` is False: arrays cannot be changed.
        """
        if inplace:
            raise NotImplementedError(
                f"{self.name}.at: arrays cannot be changed in place. Call it with inplace=False, and use the result."
            )
        if "at" in self._overrides:
            return self._overrides["at"](a, indices, *(() if b is None else (b,)))
        if (b is None) != (self.nin == 1) or self.nout != 1:
            raise ValueError(
                f"{self.name}.at: the function takes {quantity(self.nin, 'argument')} and gives {quantity(self.nout, 'result')}; "
                f"{'no' if b is None else 'an'} operand b is given."
            )
        a = self._operand(a, None, "at")
        if self.name in _UPDATES and a.dtype != np.bool_ and self._has_own:
            return getattr(a.at[indices], _UPDATES[self.name])(b)
        from weft._engine.control.scan import scan

        places = np.arange(a.size, dtype=np.int32).reshape(a.shape)
        places = _numpy("asarray")(places)[indices]
        others = () if b is None else (_numpy("broadcast_to")(b, places.shape).reshape(-1),)

        def step(flat, row):
            place, *other = row
            return flat.at[place].set(_numpy("astype")(self(flat[place], *other), a.dtype)), None

        return scan(step, a.reshape(-1), (places.reshape(-1), *others))[0].reshape(a.shape)


def _mask_rows(where: Any, shape: tuple[int, ...], axis: int | None, dim: int) -> Any:
    """Return the mask `where` of an array of `shape` with the reduced dim first."""
    mask = _numpy("broadcast_to")(where, shape).reshape(-1 if axis is None else shape)
    return _numpy("moveaxis")(mask, dim, 0)


def _over_elements(func: Callable, nin: int) -> Callable:
    """Return `func` of scalars as a function of arrays of one shape after broadcasting."""
    from weft._engine.numpy.vectorizing import vectorize

    mapped = vectorize(func)

    def call(*args):
        if len(args) != nin:
            raise TypeError(
                f"{getattr(func, '__name__', 'ufunc')} takes {quantity(nin, 'argument')}, got {len(args)}."
            )
        promote.check_arraylike(getattr(func, "__name__", "ufunc"), *args)
        return mapped(*args)

    return call


def frompyfunc(func: Callable, /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """Return a Python function of `nin` scalars with `nout` results as a `ufunc`.

    It broadcasts over arrays and has reduce, accumulate and so on.

    Raises TypeError unless `func` is a function.

    >>> wnp.frompyfunc(lambda x, y: 10 * x + y, 2, 1).reduce(wnp.array([1, 2, 3]))
    Array(123, dtype=int32)
    """
    return ufunc(func, nin, nout, identity=identity)
