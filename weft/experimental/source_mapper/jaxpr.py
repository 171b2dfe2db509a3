"""The jaxpr of a function with a source map from equations to Python expressions."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import weft
from weft._engine.ir.text.jaxpr import shown_text_with_positions
from weft._engine.util.source import guard_all
from weft.experimental.source_mapper.common import Pass, SourceMapDump, register_pass
from weft.experimental.source_mapper.source_maps import map_of


def canonicalize_filename(file_name: str) -> str:
    """Return the file name in the form of source maps, with `/` as separator.

    >>> canonicalize_filename("/src/train.py")
    '/src/train.py'
    """
    return file_name.replace(os.sep, "/")


def compile_jaxpr(work_dir: str, f: Callable, f_args: tuple, f_kwargs: dict, **_: Any) -> Any:
    """Return the jaxpr of `f`."""
    trace = getattr(f, "trace", None)
    if trace is None:
        return weft.make_jaxpr(f)(*f_args, **f_kwargs)
    return trace(*f_args, **f_kwargs).jaxpr


def make_jaxpr_dump(jaxpr: Any, **_: Any) -> SourceMapDump:
    """Return the text of a jaxpr and its source map.

    >>> make_jaxpr_dump(weft.make_jaxpr(lambda x: x + 1)(1.0)).pass_name
    'jaxpr'
    """
    text, marks = shown_text_with_positions(jaxpr)
    places = [
        (line, column, canonicalize_filename(source.file), source.line - 1, source.column)
        for line, column, source in marks
        if source is not None
    ]
    return SourceMapDump(map_of(text.count("\n") + 1, places), text, "jaxpr")


register_pass(Pass("jaxpr", compile_jaxpr, make_jaxpr_dump))
guard_all(globals())
