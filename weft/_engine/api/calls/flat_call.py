"""The arguments of one call of a jitted function, taken apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from weft._engine.api.calls.call_cache import CallCache
from weft._engine.api.calls.options import JitOptions


class FlatCall(NamedTuple):
    """The arguments of one call, and taken apart: static values, and the leaves of the others with their structure."""

    args: tuple
    kwargs: dict
    statics: tuple
    leaves: Sequence
    in_tree: Any


class Jitted(Protocol):
    """The part of `JitFunction` that calls with references use."""

    fun: Callable
    options: JitOptions
    is_threaded: bool
    traced_once: list
    _cache: CallCache

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def trace(self, *args: Any, **kwargs: Any) -> Any: ...
    def _flatten(self, args: tuple, kwargs: dict) -> FlatCall: ...
    def _rebuild(self, statics: tuple, in_tree: Any, leaves: Sequence) -> tuple[tuple, dict]: ...
    def _leaf_names(self, in_tree: Any) -> list[str]: ...
    def _variant(self, fun: Callable, **changes: Any) -> Jitted: ...
