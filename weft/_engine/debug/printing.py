"""`print`, `log` and `callback`: show the values of a program while it runs.

Formats are checked while tracing, when the user's line is known; values are formatted like arrays,
by NumPy's print options at that time. Inside `shard_map` every device prints its own block with its
position, in mesh order; a global value is printed once, whatever its sharding. Under the `import
jax` shim the position is omitted, as programs written for JAX expect.
"""

from __future__ import annotations

import builtins
import functools
import logging
import string
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft._engine.api.callbacks import HostFunction, bind_observer, debug_callback
from weft._engine.control.ref import is_ref
from weft._engine.ops.callback import debug_print_p
from weft._engine.util import events, tree
from weft._engine.util.source import api_boundary

_formatter = string.Formatter()


@api_boundary
def print(
    fmt: str | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    _use_logging: bool = False,
    **kwargs: Any,
) -> Any:
    """Print `fmt.format(*args, **kwargs)` with the run-time values of traced arguments.

    It prints in eager and compiled code, once per iteration of a loop and once per example under
    `vmap`, always in program order, even without `ordered`. With `partitioned`, a value that is
    split over devices is printed block by block. The format must be a plain string, not an
    f-string. Without `fmt`, return a function that prints with these settings.

    >>> @weft.jit
    ... def f(x):
    ...     weft.debug.print("x = {}, its sum = {s:.2f}", x, s=x.sum())
    ...     return x + 1
    >>> _ = f(wnp.arange(3.0))
    x = [0. 1. 2.], its sum = 3.00
    """
    if fmt is None:
        _check_two_calls("debug_print", args, kwargs)
        return lambda fmt, /, *args, **kwargs: _print(
            fmt, args, kwargs, ordered, partitioned, skip_format_check, _use_logging
        )
    return _print(fmt, args, kwargs, ordered, partitioned, skip_format_check, _use_logging)


def _print(
    fmt: str,
    args: tuple,
    kwargs: dict,
    ordered: bool,
    partitioned: bool,
    skip_format_check: bool,
    use_logging: bool,
) -> None:
    if not isinstance(fmt, str):
        raise TypeError(
            f"debug.print: the format must be a string, got {fmt!r} of type {type(fmt)}. To print one value write "
            "debug.print('{}', x)."
        )
    if not skip_format_check:
        check_format(fmt, args, kwargs)
    leaves, in_tree = tree.tree_flatten((args, kwargs))
    leaves = [x[...] if is_ref(x) else x for x in leaves]
    function = PrintCallback(fmt, leaves, in_tree, use_logging)
    bind_observer(debug_print_p, function, leaves, ordered, partitioned, fmt=fmt)


log = functools.partial(print, _use_logging=True)


class PrintCallback(HostFunction):
    """The callback of `print`."""

    __slots__ = ("fmt", "options", "to_log")

    def __init__(self, fmt: str, leaves: list, in_tree: Any, to_log: bool):
        super().__init__("debug.print", print, leaves, in_tree)
        self.fmt, self.to_log, self.options = fmt, to_log, np.get_printoptions()
        self._key = (*self._key, fmt, to_log, repr(self.options))

    def __call__(self, position: tuple, *arrays: Any) -> list:
        args, kwargs = self.arguments(arrays)
        with np.printoptions(**self.options):
            text = (
                self.fmt.format(*args, **kwargs)
                if _has_fields(self.fmt)
                else " ".join([self.fmt, *map(str, args)])
            )
        if position and not events.above:
            text = f"[{' '.join(f'{name}={i}' for name, i in position)}] {text}"
        if self.to_log:
            # under the `import jax` shim, programs handle the records of the "jax" logger, whatever
            # its level
            logger = logging.getLogger("jax._src.debugging" if events.above else "weft.debug")
            if events.above or logger.isEnabledFor(logging.INFO):
                logger.handle(
                    logger.makeRecord(logger.name, logging.INFO, __file__, 0, text, (), None)
                )
        else:
            builtins.print(text)
        return []

    def __repr__(self) -> str:
        return f"the format {self.fmt!r}"


@api_boundary
def callback(
    callback: Callable[..., None] | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    **kwargs: Any,
) -> Any:
    """Call `callback(*args, **kwargs)` with the run-time values of traced arguments.

    The result is dropped. It is called once per iteration of a loop and once per example under
    `vmap`, in program order. Without `callback`, return a function that calls with these settings.

    >>> seen = []
    >>> f = weft.jit(lambda x: weft.debug.callback(lambda v: seen.append(v.tolist()), x))
    >>> f(wnp.arange(2)); seen
    [[0, 1]]
    """
    if callback is None:
        _check_two_calls("debug_callback", args, kwargs)
        return functools.partial(globals()["callback"], ordered=ordered, partitioned=partitioned)
    debug_callback(callback, *args, ordered=ordered, partitioned=partitioned, **kwargs)
    return None


def _check_two_calls(name: str, args: tuple, kwargs: dict) -> None:
    """Raise TypeError if a call that sets only options has values."""
    if args or kwargs:
        raise TypeError(
            f"{name} received unexpected arguments in the two-call form: {args} and {kwargs}. The first call takes settings "
            "alone, the second what is to be shown."
        )


# --- formats ----------------------------------------------------------------------------------------------------------


def check_format(fmt: str, args: tuple, kwargs: dict) -> None:
    """Raise the error of `fmt.format(*args, **kwargs)` about its fields.

    Raise ValueError for unused arguments.
    """
    used = set(_fields(fmt))
    for name in used:
        if isinstance(name, int) and name >= len(args):
            raise IndexError(
                f"debug.print: the format {fmt!r} asks for positional argument {name}, there are {len(args)}."
            )
        if isinstance(name, str) and name not in kwargs:
            raise KeyError(
                f"debug.print: the format {fmt!r} asks for {name!r}, which is not among the keyword arguments."
            )
    spare = [i for i in range(len(args)) if i not in used]
    if spare:
        raise ValueError(
            f"debug.print: Unused positional arguments: {[args[i] for i in spare]}. The format {fmt!r} does not "
            "mention them; if it is an f-string, make it a plain string."
        )
    unknown = [name for name in kwargs if name not in used]
    if unknown:
        raise ValueError(
            f"debug.print: Unused keyword arguments: {unknown}. The format {fmt!r} does not mention them; if it "
            "is an f-string, make it a plain string."
        )


def _fields(fmt: str, counter: list[int] | None = None) -> Iterable[int | str]:
    """Yield positions and names of the arguments that a format uses, including nested specs."""
    counter = [0] if counter is None else counter
    for _, field, spec, _ in _formatter.parse(fmt):
        if field is None:
            continue
        first = field.partition(".")[0].partition("[")[0]
        if first == "":
            yield counter[0]
            counter[0] += 1
        else:
            yield int(first) if first.isdigit() else first
        if spec:
            yield from _fields(spec, counter)


def _has_fields(fmt: str) -> bool:
    try:
        return any(field is not None for _, field, _, _ in _formatter.parse(fmt))
    except ValueError:  # not a format: printed verbatim
        return False
