"""User-defined attributes of operations, which appear in the texts of lowered and compiled programs.

In:   attributes by key, and a context, values, or a function.
Out:  operations with these attributes: `mhlo.frontend_attributes = {key = "value"}` in StableHLO, `frontend_attributes={key="value"}` in HLO.
Laws: attributes change neither results nor kernels. A cached trace is specific to the attributes of its context. Equations
      store the attributes of a context with their source lines (`util.source`), and transformations preserve both.
      See `weft.experimental.scheduling_groups` for functions whose calls carry attributes.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import weft.numpy as wnp
from weft._engine.control.call_rules import ProgramCallOp
from weft._engine.control.hijax_types import flatten
from weft._engine.control.ref import lift_refs, thread_refs
from weft._engine.control.staged_body import adapt_function, runs_in_python, stage_body
from weft._engine.core.trace import Tracer, trace_state, typeof, with_source
from weft._engine.ops.layout import xla_metadata_value
from weft._engine.util import tree
from weft._engine.util.config import Override, config
from weft._engine.util.source import Metadata, api_boundary, with_metadata, wraps

#: params: jaxpr, xla_metadata (pairs of key and value)
xla_metadata_call_p = ProgramCallOp("xla_metadata_call", multiple_results=True)

#: methods of a jitted function that trace it
_TRACING = ("trace", "lower", "eval_shape")


def _pairs(api: str, metadata: dict[str, Any], removable: bool = False) -> Metadata:
    """Return attributes as pairs sorted by key. TypeError unless values are strings, numbers or bools, or None if `removable`."""
    for key, value in metadata.items():
        if not isinstance(value, (str, bool, int, float)) and not (removable and value is None):
            raise TypeError(
                f"{api}: metadata values must be strings, bools, ints or floats{', or None to remove a key' * removable}; got "
                f"{value!r} of type {type(value).__name__} for {key!r}. Pass str(value) for its text."
            )
    return tuple(sorted(metadata.items()))


class _MetadataContext:
    """A context, and a decorator of functions, that gives attributes to the operations traced inside."""

    __slots__ = ("_entered", "_pairs")

    def __init__(self, pairs: Metadata):
        self._pairs = pairs
        self._entered: dict[int, list[Any]] = {}  # by thread

    @contextmanager
    def _block(self) -> Iterator[None]:
        line = trace_state.source  # the source of an equation whose rule is traced
        with (
            Override(xla_metadata=with_metadata(config.xla_metadata, self._pairs)),
            with_source(line and line.tag(self._pairs)),
        ):
            yield

    def __enter__(self) -> None:
        block = self._block()
        block.__enter__()
        self._entered.setdefault(threading.get_ident(), []).append(block)

    def __exit__(self, *error: Any) -> None:
        self._entered[threading.get_ident()].pop().__exit__(*error)

    def __call__(self, fun: Callable) -> Callable:
        def inside(method: Callable) -> Callable:
            @functools.wraps(method)
            def call(*args: Any, **kwargs: Any) -> Any:
                with self._block():
                    return method(*args, **kwargs)

            return call

        wrapped = wraps(fun)(inside(fun))
        for name in _TRACING:
            if hasattr(fun, name):
                setattr(wrapped, name, inside(getattr(fun, name)))
        return wrapped


def set_xla_metadata(x: Any = None, **kwargs: Any) -> Any:
    """Give operations attributes: strings, bools, ints and floats by key; None removes an attribute of an enclosing context.

    `with set_xla_metadata(key="value"): ...` applies to all operations traced in the block, including called functions;
    `@set_xla_metadata(key="value")` to the operations of a function. `set_xla_metadata(x, key="value")` returns the tree of
    values `x`, whose defining operations have the attributes; arguments of a program have no such operation. Texts of
    programs show attributes; results do not depend on them. Raises TypeError for other values.

    >>> from weft.experimental.xla_metadata import set_xla_metadata
    >>> def f(x):
    ...     with set_xla_metadata(layer=3): y = wnp.sin(x)
    ...     return set_xla_metadata(y * 2, kind="double")
    >>> text = weft.jit(f).lower(1.0).as_text()
    >>> 'stablehlo.sine %arg0 {mhlo.frontend_attributes = {layer = "3"}}' in text, 'frontend_attributes = {kind = "double"}' in text
    (True, True)
    """
    pairs = _pairs("set_xla_metadata", kwargs, removable=x is None)
    if x is None:
        return _MetadataContext(pairs)
    return tree.tree_map(
        lambda leaf: (
            xla_metadata_value(leaf, pairs)
            if isinstance(leaf, Tracer) and pairs
            else wnp.asarray(leaf)
        ),
        x,
    )


def _with_keywords(fun: Callable, args: tuple, kwargs: dict) -> Any:
    return fun(*args, **kwargs)


def xla_metadata_call(f: Callable | None = None, /, **meta: Any) -> Callable:
    """Return `f` as one call operation with the attributes; inlining moves them to the operations of `f`. Can be used as a decorator.

    Derivatives of `f` are such calls too, and equal programs are one function in texts. Raises TypeError for attributes
    that are not strings, bools, ints or floats.

    >>> from weft.experimental.xla_metadata import xla_metadata_call
    >>> @xla_metadata_call(inlineable="false")
    ... def f(x): return x * 2
    >>> 'call @xla_metadata_call(%arg0) {mhlo.frontend_attributes = {inlineable = "false"}}' in weft.jit(f).lower(1.0).as_text()
    True
    """
    pairs = _pairs("xla_metadata_call", meta)
    if f is None:
        return lambda fun: _called(fun, pairs)
    return _called(f, pairs)


def _called(fun: Callable, pairs: Metadata) -> Callable:
    if not callable(fun):
        raise TypeError(f"xla_metadata_call: expected a callable, got {fun!r}.")

    def with_refs(_: Callable, first: Any, args: tuple, kwargs: dict) -> Any:
        return lift_refs(
            first,
            "xla_metadata_call",
            (args, kwargs),
            [functools.partial(_with_keywords, fun)],
            lambda funs, values, given: _called(
                lambda values, given: funs[0].call(values, given), pairs
            )(values, given),
        )

    @thread_refs(with_refs)
    def bind(args: tuple, kwargs: dict) -> Any:
        leaves, in_tree = flatten((args, kwargs), "xla_metadata_call")
        name = xla_metadata_call_p.name
        body = stage_body(
            adapt_function(fun, _with_keywords), in_tree, [typeof(x) for x in leaves], name, name
        )
        return tree.tree_unflatten(
            body.out_tree,
            xla_metadata_call_p.bind(*body.consts, *leaves, jaxpr=body.jaxpr, xla_metadata=pairs),
        )

    @wraps(fun)
    @api_boundary
    def called(*args: Any, **kwargs: Any) -> Any:
        return fun(*args, **kwargs) if runs_in_python() else bind(args, kwargs)

    return called
