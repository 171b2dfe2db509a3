"""Programs for runtimes behind the IFRT interface, of which weft has none: its names can be imported, and say so when they are called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

_NAMES = (
    "make_hlo_program",
    "make_colocated_python_program",
    "make_plugin_program",
    "make_xla_compile_options",
    "make_colocated_python_compile_options",
    "make_plugin_compile_options",
)


def _missing(name: str) -> Any:
    def refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"ifrt_programs.{name}: weft's backends run programs in this process, and have no IFRT interface."
        )

    refuse.__name__ = name
    return refuse


ifrt_programs = SimpleNamespace(**{name: _missing(name) for name in _NAMES})
