"""Events for the profiler, log messages, and public names under the JAX shim.

An event is (kind, name, start, end, facts), for compilations and runs of programs; without listeners nothing is measured. Times are
nanoseconds of `time.perf_counter_ns`.

Log messages are about tracing, lowering, compilation and their reasons, and about guarded transfers. They are records of the logger
`weft.<topic>`: warnings if a setting requests them, otherwise debug messages. The settings `logging_level` and `debug_log_modules`
act as if the program had set the levels of these loggers. `logging` is not imported before the first message.

Names in messages, and the `__module__` of array and tracer classes, are JAX's names while `import jax` means weft.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from weft._engine import hooks
from weft._engine.util.config import config

#: functions that are called with every event, in the thread of the event
listeners: list[Callable[[str, str, int, int, dict], None]] = []

#: functions that return the program to run for an executable while steps are recorded; the last one is called
step_recorders: list[Callable[[Any], Any]] = []


def emit(kind: str, name: str, start: int, end: int, **facts: object) -> None:
    """Report an event that took from `start` to `end` to all listeners."""
    for listener in tuple(listeners):
        listener(kind, name, start, end, facts)


# ---- reports

#: the name of a logger whose handlers also get the messages: "jax" while `import jax` means weft
above: list[str] = []


def spell_names(text: str) -> str:
    """Return a message with the public names as the calling program spells them: `jax.vmap` if it imported jax, else `weft.vmap`."""
    return hooks.user_spelling(text) if above else text


C = TypeVar("C", bound=type)

#: class -> (its module in weft, the module that it reports under the shim)
_classes: dict[type, tuple[str, str]] = {}


def reports_as(module: str) -> Callable[[C], C]:
    """Return a class decorator: the class has `__module__` `module` while `import jax` means weft.

    Libraries use the first part of it as the name of the package whose functions compute with the objects.

    >>> @reports_as("jax.core")
    ... class Traced: ...
    >>> report_jax(True)
    >>> Traced.__module__
    'jax.core'
    >>> report_jax(False)
    """

    def register(cls: C) -> C:
        _classes[cls] = cls.__module__, module
        if above:
            cls.__module__ = module
        return cls

    return register


def report_jax(is_jax: bool) -> None:
    """Use the names of JAX's modules, or of weft's modules, in log messages, error messages and classes."""
    above[:] = ["jax"] if is_jax else []
    for cls, (own, public) in _classes.items():
        cls.__module__ = public if is_jax else own


_applied: tuple = ("NOTSET", "")
_changed: list[
    tuple[Any, Any]
] = []  # loggers whose levels the settings changed, and their handlers


def report(topic: str, asked: bool, message: str, *args: object) -> None:
    """Log `message % args` in `weft.<topic>`."""
    settings = (config.logging_level or "NOTSET", config.debug_log_modules)
    if not asked and settings == _applied == ("NOTSET", "") and "logging" not in sys.modules:
        return
    import logging  # takes longer than loading a small compiled program from disk

    logging.getLogger("weft").parent = logging.getLogger(above[-1] if above else None)
    if settings != _applied:
        _apply(*settings)
    logging.getLogger(f"weft.{topic}").log(
        logging.WARNING if asked else logging.DEBUG, message, *args
    )


def _apply(level: str, modules: str) -> None:
    """Set the levels of loggers by the settings, and add a handler if messages would otherwise not be shown."""
    import logging

    global _applied
    for logger, handler in _changed:
        logger.setLevel(logging.NOTSET)
        logger.removeHandler(handler)
    _applied = level, modules
    levels = {"weft": level} if level != "NOTSET" else {}
    for name in filter(None, (part.strip() for part in modules.split(","))):
        levels["weft" if name.split(".")[0] == "jax" else name] = (
            "DEBUG"  # JAX's modules have no loggers here
        )
    _changed[:] = [(logging.getLogger(name), logging.StreamHandler()) for name in levels]
    for (logger, handler), chosen in zip(_changed, levels.values(), strict=True):
        handler.setFormatter(
            logging.Formatter("{levelname}:{asctime}:{name}:{lineno}: {message}", style="{")
        )
        logger.setLevel(chosen)
        logger.addHandler(handler)
