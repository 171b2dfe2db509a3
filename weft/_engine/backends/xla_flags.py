"""Checks of XLA flags, in `XLA_FLAGS` and in `compiler_options`: one warning names each flag that weft does not implement.

In:   the environment; a dict of options.
Laws: a name that XLA does not know is an error in options, and a warning with the nearest name in the environment. Values are
      checked by the flag's type. `xla_flags.txt` lists the flags that XLA knows.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any

from weft._engine.util.config import config
from weft._engine.util.errors import DeviceRuntimeError
from weft._engine.util.source import warn_user

IMPLEMENTED = frozenset(
    {"xla_force_host_platform_device_count", "xla_dump_to", "xla_dump_hlo_as_text"}
)
#: options of a build that are not flags
_BUILD_OPTIONS = {
    "exec_time_optimization_effort": "float",
    "memory_fitting_effort": "float",
    "optimization_level": "int32",
    "memory_fitting_level": "int32",
}
_PARSERS = {
    "int32": int,
    "int64": int,
    "float": float,
    "bool": lambda text: {"true": True, "false": False, "1": True, "0": False}[text],
}
_warned_flags: set[str] = set()  # flags that a warning has named already


@functools.cache
def known_flags() -> dict[str, str]:
    """Return the flags of XLA: name -> type."""
    with open(os.path.join(os.path.dirname(__file__), "xla_flags.txt")) as file:
        return dict(line.split() for line in file)


def parse_flags(text: str) -> dict[str, str]:
    """Return the flags in the text of `XLA_FLAGS`; a flag without a value is true.

    >>> parse_flags("--xla_dump_to=dumps --xla_dump_hlo_as_text")
    {'xla_dump_to': 'dumps', 'xla_dump_hlo_as_text': 'true'}
    """
    flags: dict[str, str] = {}
    name = ""
    for word in text.split():
        if word.startswith("-"):
            name, sign, value = word.lstrip("-").partition("=")
            flags[name] = value if sign else "true"
        elif name:
            flags[name] = word
        else:
            raise ValueError(
                f"XLA_FLAGS is {text!r}; flags begin with two hyphens, as in --xla_dump_to=folder."
            )
    return flags


def check_environment() -> None:
    """Check `XLA_FLAGS`: raise ValueError for an invalid value of an implemented flag; warn of all others, which are ignored."""
    flags = parse_flags(os.environ.get("XLA_FLAGS", ""))
    for name in IMPLEMENTED & set(flags):
        if not _is_valid(known_flags()[name], flags[name]) or (
            name == "xla_dump_to" and flags[name] in ("", "true")
        ):
            raise ValueError(
                f"XLA_FLAGS: --{name} has the value {flags[name]!r}; it takes a value of type {known_flags()[name]}."
            )
    _warn("XLA_FLAGS", [name for name in flags if name not in IMPLEMENTED])


def check_are_options(api: str, options: Any) -> None:
    """Raise TypeError unless `compiler_options` is a dict with string keys."""
    if options is not None and (
        not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options)
    ):
        raise TypeError(
            f"{api}: compiler_options must be a dict from names of options to values, got {options!r}."
        )


def check_options(api: str, options: Mapping[str, Any] | None) -> None:
    """Check `compiler_options`: raise TypeError unless it is a dict by names, DeviceRuntimeError for a name or value that XLA refuses."""
    check_are_options(api, options)
    if options is None:
        return
    for name, value in options.items():
        kind = _BUILD_OPTIONS.get(name) or known_flags().get(name)
        if kind is None:
            raise DeviceRuntimeError(
                f"INVALID_ARGUMENT: No such compile option: {name!r}{_hint(name)}"
            )
        if not _is_valid(kind, str(value).lower() if isinstance(value, bool) else str(value)):
            raise DeviceRuntimeError(
                f"INVALID_ARGUMENT: While setting option {name}, {str(value)!r} is not a valid {kind} value."
            )
    _warn(f"{api}: compiler_options", [name for name in options if name not in config.values])


def _is_valid(kind: str, text: str) -> bool:
    try:
        _PARSERS.get(kind, str)(text)
    except (ValueError, KeyError):
        return False
    return True


def _hint(name: str) -> str:
    if name in known_flags():
        return ""
    import difflib  # only for messages

    near = difflib.get_close_matches(name, known_flags(), n=1, cutoff=0.75)
    return f" (did you mean {near[0]}?)" if near else ""


def _warn(where: str, names: list[str]) -> None:
    """Emit one warning of all flags that no earlier warning has named."""
    new_names = [name for name in names if name not in _warned_flags]
    _warned_flags.update(new_names)
    if new_names:
        warn_user(
            f"{where}: weft does not implement {', '.join(name + _hint(name) for name in new_names)}, and ignores it.",
            UserWarning,
        )
