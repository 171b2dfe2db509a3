"""Dumps of compiled programs to numbered files.

`WEFT_DUMP=dir` (or `XLA_FLAGS=--xla_dump_to=dir`) writes the program after every stage, in one folder per compiled function, and into
`dir` the HLO text before and after optimizations. `JAX_DUMP_IR_TO=dir` writes only the program before compilation.
"""

from __future__ import annotations

import itertools
import os
import re
from typing import Any

from weft._engine.ir.text.jaxpr import jaxpr_text

_counter = itertools.count()
_folders: dict[int, str] = {}
_counters = {"stablehlo": itertools.count(), "jaxpr": itertools.count()}


def write(root: str, name: str, number: int, title: str, thing: Any) -> None:
    """Write `thing` (a program, or an object with a method `text`) as `<root>/<nnnn>_<name>/<number>_<title>.txt`."""
    if number == 0:
        _folders[os.getpid()] = f"{next(_counter):04d}_{_clean(name)}"
    _write(
        os.path.join(root, _folders.get(os.getpid(), _clean(name))),
        f"{number:02d}_{_clean(title)}.txt",
        _text(thing),
    )


def write_module(root: str, name: str, time: str, text: str) -> None:
    """Write a text of the module whose stages were written last, as `<root>/module_<nnnn>.jit_<name>.<time>_optimizations.txt`."""
    number = _folders.get(os.getpid(), "0000")[:4]
    _write(root, f"module_{number}.{module_name(name)}.{time}_optimizations.txt", text)


def write_lowered(root: str, mode: str, name: str, text: str) -> None:
    """Write a program before compilation, with JAX's file names; `mode` is `stablehlo` or `jaxpr`."""
    number, module = next(_counters[mode]), module_name(name)
    title = (
        f"jax_ir{number:04d}_{module}_compile.mlir"
        if mode == "stablehlo"
        else f"jax_{number:06d}_{module[4:]}.jaxpr.txt"
    )
    _write(root, title, text)


def module_name(name: str) -> str:
    """Return the name of the module of a compiled function.

    >>> module_name("jit(f)"), module_name("jit(<lambda>)"), module_name("sin")
    ('jit_f', 'jit__lambda', 'jit_sin')
    """
    return "jit_" + re.sub(r"\W", "_", name.removeprefix("jit(").removesuffix(")")).rstrip("_")


def _write(folder: str, title: str, text: str) -> None:
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, title), "w") as file:
        file.write(text)


def _clean(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name) or "program"


def _text(thing: Any) -> str:
    text = getattr(thing, "text", None)
    if callable(text):
        return str(text())
    return f"{jaxpr_text(thing) if hasattr(thing, 'eqns') else thing}\n"
