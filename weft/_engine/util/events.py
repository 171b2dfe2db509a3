"""What weft reports: events for the profiler, and reports by Python's logging.

An event is (kind, name, start, end, facts): compilations and runs of programs; without listeners nothing is measured. Times are
nanoseconds of `time.perf_counter_ns`.

A report says what is traced, lowered and compiled, and why, or which transfers a guard noticed. It is a record of the logger
`weft.<topic>`: a warning if a setting asks for it, else for debugging. The settings `logging_level` and `debug_log_modules` act as if a
program had set the levels of these loggers. Without reports logging is not imported.

Names in messages, and the `__module__` of array and tracer classes, are JAX's where `import jax` means weft.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from weft._engine.util.config import config

#: called with every event, in the thread in which it happened
listeners: list[Callable[[str, str, int, int, dict], None]] = []


def emit(kind: str, name: str, start: int, end: int, **facts: object) -> None:
    """Report what took from `start` to `end` to all listeners."""
    for listener in tuple(listeners):
        listener(kind, name, start, end, facts)


# ---- reports

#: a logger whose handlers see these reports too: "jax" where `import jax` means weft
above: list[str] = []


def public_name(path: str) -> str:
    """A public name as a program writes it: `weft.numpy.sum` for "numpy.sum", or with jax in front where `import jax` means weft."""
    return f"{above[-1] if above else 'weft'}.{path}"


def numpy_name(name: str) -> str:
    """A function of `weft.numpy` as programs usually write it: `wnp.sum`, or `jnp.sum` where `import jax` means weft."""
    return f"{'jnp' if above else 'wnp'}.{name}"


C = TypeVar("C", bound=type)

#: class -> (its module in weft, the module that it reports under the shim)
_classes: dict[type, tuple[str, str]] = {}


def reports_as(module: str) -> Callable[[C], C]:
    """Decorate a class: its `__module__` is `module` while `import jax` means weft. Libraries take the first part of it for the package
    whose functions compute with its objects.

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
    """Name JAX's modules, or weft's own, in reports, messages and classes."""
    above[:] = ["jax"] if is_jax else []
    for cls, (own, public) in _classes.items():
        cls.__module__ = public if is_jax else own


_applied: tuple = ("NOTSET", "")
_changed: list[
    tuple[Any, Any]
] = []  # loggers whose level the settings changed, and the handler they got


def report(topic: str, asked: bool, message: str, *args: object) -> None:
    """Log `message % args` in `weft.<topic>`."""
    settings = (config.logging_level or "NOTSET", config.debug_log_modules)
    if not asked and settings == _applied == ("NOTSET", "") and "logging" not in sys.modules:
        return
    import logging  # takes longer than compiling a small program from disk

    logging.getLogger("weft").parent = logging.getLogger(above[-1] if above else None)
    if settings != _applied:
        _apply(*settings)
    logging.getLogger(f"weft.{topic}").log(
        logging.WARNING if asked else logging.DEBUG, message, *args
    )


def _apply(level: str, modules: str) -> None:
    """Give loggers the levels that the settings name, and a handler where that shows more than without one."""
    import logging

    global _applied
    for logger, handler in _changed:
        logger.setLevel(logging.NOTSET)
        logger.removeHandler(handler)
    _applied = level, modules
    wanted = {"weft": level} if level != "NOTSET" else {}
    for name in filter(None, (part.strip() for part in modules.split(","))):
        wanted["weft" if name.split(".")[0] == "jax" else name] = (
            "DEBUG"  # JAX's modules have no loggers here
        )
    _changed[:] = [(logging.getLogger(name), logging.StreamHandler()) for name in wanted]
    for (logger, handler), chosen in zip(_changed, wanted.values(), strict=True):
        handler.setFormatter(
            logging.Formatter("{levelname}:{asctime}:{name}:{lineno}: {message}", style="{")
        )
        logger.setLevel(chosen)
        logger.addHandler(handler)
