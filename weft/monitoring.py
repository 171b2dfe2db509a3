"""Listeners for events, durations, time spans and scalars, recorded by programs and by weft's own compilations.

In:  calls of `record_event` and similar functions by libraries; compilations of programs, which weft reports itself as
     `/jax/core/compile/backend_compile_duration`.
Out: calls of the registered listeners, in the recording thread, in the order of registration.
Laws: without listeners nothing is measured. A listener receives the name first, then the values, then the metadata as keywords.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft._engine.util import events
from weft._engine.util.source import guard_all

__all__ = [
    "clear_event_listeners", "record_event", "record_event_duration_secs", "record_event_time_span", "record_scalar",
    "register_event_duration_secs_listener", "register_event_listener", "register_event_time_span_listener", "register_scalar_listener",
    "unregister_event_duration_listener", "unregister_event_listener", "unregister_event_time_span_listener", "unregister_scalar_listener",
]  # fmt: skip

COMPILATION = "/jax/core/compile/backend_compile_duration"

_Listener = Callable[..., None]
_events: list[_Listener] = []
_durations: list[_Listener] = []
_spans: list[_Listener] = []
_scalars: list[_Listener] = []


def record_event(event: str, **kwargs: str | int) -> None:
    """Notify the event listeners of `event`; `kwargs` are its metadata.

    >>> seen = []
    >>> weft.monitoring.register_event_listener(lambda event, **facts: seen.append((event, facts)))
    >>> weft.monitoring.record_event("/app/restored", step=3)
    >>> weft.monitoring.clear_event_listeners()
    >>> seen
    [('/app/restored', {'step': 3})]
    """
    for listener in tuple(_events):
        listener(event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: str | int) -> None:
    """Notify the duration listeners that `event` took `duration` seconds."""
    for listener in tuple(_durations):
        listener(event, duration, **kwargs)


def record_event_time_span(
    event: str, start_time: float, end_time: float, **kwargs: str | int
) -> None:
    """Notify the time span listeners that `event` lasted from `start_time` to `end_time`, in seconds of one clock."""
    for listener in tuple(_spans):
        listener(event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float | int, **kwargs: str | int) -> None:
    """Notify the scalar listeners of the value of `event`."""
    for listener in tuple(_scalars):
        listener(event, value, **kwargs)


def register_event_listener(callback: _Listener) -> None:
    """Register `callback`, which is called as `callback(event, **metadata)` for every event."""
    _events.append(callback)


def register_event_duration_secs_listener(callback: _Listener) -> None:
    """Register `callback`, which is called as `callback(event, seconds, **metadata)` for every duration."""
    _durations.append(callback)
    _follow_compilations()


def register_event_time_span_listener(callback: _Listener) -> None:
    """Register `callback`, which is called as `callback(event, start, end, **metadata)` for every time span."""
    _spans.append(callback)
    _follow_compilations()


def register_scalar_listener(callback: _Listener) -> None:
    """Register `callback`, which is called as `callback(event, value, **metadata)` for every scalar."""
    _scalars.append(callback)


def unregister_event_listener(callback: _Listener) -> None:
    """Undo `register_event_listener`; ValueError if the callback is not registered."""
    _remove(_events, callback, "unregister_event_listener")


def unregister_event_duration_listener(callback: _Listener) -> None:
    """Undo `register_event_duration_secs_listener`; ValueError if the callback is not registered."""
    _remove(_durations, callback, "unregister_event_duration_listener")


def unregister_event_time_span_listener(callback: _Listener) -> None:
    """Undo `register_event_time_span_listener`; ValueError if the callback is not registered."""
    _remove(_spans, callback, "unregister_event_time_span_listener")


def unregister_scalar_listener(callback: _Listener) -> None:
    """Undo `register_scalar_listener`; ValueError if the callback is not registered."""
    _remove(_scalars, callback, "unregister_scalar_listener")


def clear_event_listeners() -> None:
    """Remove all listeners of every kind."""
    for listeners in (_events, _durations, _spans, _scalars):
        listeners.clear()
    _follow_compilations()


def _remove(listeners: list[_Listener], callback: _Listener, name: str) -> None:
    if callback not in listeners:
        raise ValueError(
            f"{name}: callback {callback!r} is not registered; {len(listeners)} listeners of this kind are."
        )
    listeners.remove(callback)
    _follow_compilations()


def _follow_compilations() -> None:
    """Subscribe to weft's own compilation events while a listener is registered here."""
    if _durations or _spans:
        if _on_event not in events.listeners:
            events.listeners.append(_on_event)
    elif _on_event in events.listeners:
        events.listeners.remove(_on_event)


def _on_event(kind: str, name: str, start: int, end: int, _facts: dict[str, Any]) -> None:
    if kind == "compile":
        record_event_duration_secs(COMPILATION, (end - start) / 1e9, fun_name=name)
        record_event_time_span(COMPILATION, start / 1e9, end / 1e9, fun_name=name)


guard_all(globals())
