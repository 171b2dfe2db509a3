"""Composable transformations of functions of flat values, for custom interpreters.

In:   a function, wrapped once (`wrap_init`).
Out:  a `WrappedFun`; each transformation wraps a function around it, and may write auxiliary output, such as the
      structure of the results, into a `Store` while the function runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any
from weakref import WeakKeyDictionary

from weft._engine.ir.jaxpr import DebugInfo
from weft._engine.util.source import function_name


class StoreException(Exception):
    """The error of reading a store before it is written, or of writing it twice."""


_EMPTY = object()


class Store:
    """A cell that is written once."""

    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value: Any = _EMPTY

    @property
    def val(self) -> Any:
        if self._value is _EMPTY:
            raise StoreException("Store empty: the function has not run.")
        return self._value

    def store(self, value: Any) -> None:
        if self._value is not _EMPTY:
            raise StoreException("Store occupied: the function has run before.")
        self._value = value

    def reset(self) -> None:
        self._value = _EMPTY

    def __bool__(self) -> bool:
        return self._value is not _EMPTY


class EqualStore(Store):
    """A store that may be written several times with equal values."""

    __slots__ = ()

    def store(self, value: Any) -> None:
        if self and self._value != value:
            raise StoreException(
                f"Store occupied with not-equal values: {self._value!r} and {value!r}."
            )
        self._value = value


class WrappedFun:
    """A function with transformations around it; two with equal functions and transformations are equal.

    `f` is the original function; `call_wrapped` runs it with all transformations.
    """

    __slots__ = (
        "f",
        "f_transformed",
        "transforms",
        "stores",
        "params",
        "in_type",
        "debug_info",
        "__weakref__",
    )

    def __init__(
        self,
        f: Callable,
        f_transformed: Callable,
        transforms: tuple,
        stores: tuple,
        params: tuple,
        in_type: Any,
        debug_info: DebugInfo,
    ):
        self.f, self.f_transformed, self.transforms, self.stores = (
            f,
            f_transformed,
            transforms,
            stores,
        )
        self.params, self.in_type, self.debug_info = params, in_type, debug_info

    @property
    def __name__(self) -> str:
        return function_name(self.f)

    def wrap(
        self,
        gen: Callable,
        gen_static_args: tuple,
        out_store: Store | None,
        transformed: Callable | None = None,
    ) -> "WrappedFun":
        """Return this function with the transformation `transformed`, or the transformation `gen`, around it."""
        around = (
            functools.partial(gen, self.f_transformed, *gen_static_args)
            if transformed is None
            else transformed
        )
        return WrappedFun(
            self.f,
            around,
            ((gen, gen_static_args), *self.transforms),
            (out_store, *self.stores),
            self.params,
            None,
            self.debug_info,
        )

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """Return the results of the function with its transformations."""
        return self.f_transformed(*args, **kwargs)

    def populate_stores(self, stores: tuple) -> None:
        """Write the auxiliary outputs of another run of an equal function."""
        for mine, its in zip(self.stores, stores):
            if mine is not None and its is not None:
                mine.store(its.val)

    def replace_debug_info(self, debug_info: DebugInfo) -> "WrappedFun":
        """Return the same function with other debug info."""
        return WrappedFun(
            self.f,
            self.f_transformed,
            self.transforms,
            self.stores,
            self.params,
            self.in_type,
            debug_info,
        )

    def with_unknown_names(self) -> "WrappedFun":
        """Return the same function without the names of its arguments and results."""
        return self.replace_debug_info(self.debug_info.with_unknown_names())

    def _key(self) -> tuple:
        return self.f, self.transforms, self.params, self.in_type

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WrappedFun) and self._key() == other._key()

    def __repr__(self) -> str:
        around = "".join(f"{function_name(gen)}{args} " for gen, args in self.transforms)
        return f"Wrapped function: {around}{self.__name__}"


def wrap_init(
    f: Callable, params: dict[str, Hashable] | None = None, *, debug_info: DebugInfo | None = None
) -> WrappedFun:
    """Wrap a function of flat values, to be called with `params` as well.

    >>> wrap_init(lambda x, n: x + n, {"n": 2}).call_wrapped(1)
    3
    """
    items = tuple(sorted((params or {}).items()))
    call = functools.partial(f, **params) if params else f
    info = debug_info if debug_info is not None else DebugInfo("unknown", function_name(f))
    return WrappedFun(f, call, (), (), items, None, info)


def transformation2(
    gen: Callable, fun: WrappedFun | None = None, *gen_static_args: Hashable
) -> Any:
    """Wrap `fun` in `gen(f, *static, *args)`, which calls `f`. Without `fun`, return the transformation.

    >>> @transformation2
    ... def doubled(f, *args): return 2 * f(*args)
    >>> doubled(wrap_init(lambda x: x + 1)).call_wrapped(3)
    8
    """
    if fun is None:
        return functools.partial(transformation2, gen)
    return fun.wrap(gen, gen_static_args, None)


def transformation_with_aux2(
    gen: Callable,
    fun: WrappedFun | None = None,
    *gen_static_args: Hashable,
    use_eq_store: bool = False,
    unk_names: bool = False,
) -> Any:
    """Wrap `fun` in `gen(f, store, *static, *args)`, which may write auxiliary output; also return a function that returns the output."""
    if fun is None:
        return functools.partial(
            transformation_with_aux2, gen, use_eq_store=use_eq_store, unk_names=unk_names
        )
    store = EqualStore() if use_eq_store else Store()
    wrapped = fun.wrap(
        gen,
        gen_static_args,
        store,
        functools.partial(gen, fun.f_transformed, store, *gen_static_args),
    )
    return wrapped.with_unknown_names() if unk_names else wrapped, lambda: store.val


def transformation(gen: Callable, fun: WrappedFun | None = None, *gen_static_args: Hashable) -> Any:
    """Wrap `fun` in a generator: `gen(*static, *args)` yields arguments and keyword arguments, receives the results, and
    yields its own results.

    >>> @transformation
    ... def doubled(x):
    ...     result = yield (x,), {}
    ...     yield 2 * result
    >>> doubled(wrap_init(lambda x: x + 1)).call_wrapped(3)
    8
    """
    if fun is None:
        return functools.partial(transformation, gen)
    return fun.wrap(
        gen, gen_static_args, None, functools.partial(_run, gen, fun.f_transformed, gen_static_args)
    )


def transformation_with_aux(
    gen: Callable, fun: WrappedFun | None = None, *gen_static_args: Hashable
) -> Any:
    """Wrap `fun` in a generator whose last yield is a pair of results and auxiliary output; also return a function that returns the latter."""
    if fun is None:
        return functools.partial(transformation_with_aux, gen)
    store = Store()

    def run(*args: Any, **kwargs: Any) -> Any:
        out, aside = _run(gen, fun.f_transformed, gen_static_args, *args, **kwargs)
        store.store(aside)
        return out

    return fun.wrap(gen, gen_static_args, store, run), lambda: store.val


def _run(gen: Callable, f: Callable, static: tuple, *args: Any, **kwargs: Any) -> Any:
    steps = gen(*static, *args, **kwargs)
    inner, inner_kwargs = next(steps)
    result = steps.send(f(*inner, **inner_kwargs))
    steps.close()
    return result


def merge_linear_aux(aux1: Callable, aux2: Callable) -> tuple[bool, Any]:
    """Return the auxiliary output of the one of two transformations that ran: True if it was the first, and the value."""
    outputs = []
    for first, aux in ((True, aux1), (False, aux2)):
        try:
            outputs.append((first, aux()))
        except StoreException:
            pass
    if len(outputs) != 1:
        raise StoreException("neither store occupied" if not outputs else "both stores occupied")
    return outputs[0]


def cache(call: Callable, *, explain: Callable | None = None) -> Callable:
    """Return `call(fun, *args)` with a cache over equal functions and arguments; a hit also restores the auxiliary outputs.

    >>> runs = []
    >>> run = cache(lambda fun, x: runs.append(x) or fun.call_wrapped(x))
    >>> f = lambda x: x + 1
    >>> run(wrap_init(f), 1), run(wrap_init(f), 1), runs
    (2, 2, [1])
    """
    known: WeakKeyDictionary[Callable, dict] = WeakKeyDictionary()

    @functools.wraps(call, updated=())
    def cached(fun: WrappedFun, *args: Hashable) -> Any:
        mine = known.setdefault(fun.f, {})
        key = (fun.transforms, fun.params, fun.in_type, args)
        entry = mine.get(key)
        if entry is None:
            result = call(fun, *args)
            mine[key] = result, fun.stores
            return result
        result, stores = entry
        fun.populate_stores(stores)
        return result

    cached.__dict__["cache_clear"] = known.clear
    return cached
