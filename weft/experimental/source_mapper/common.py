"""Passes: stages of compilation whose texts have source maps, and the registry of passes.

In:   two functions: one runs a function and its arguments up to a stage, and the other writes the text of the stage and its map.
Out:  the passes, by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.util.record import record
from weft._engine.util.source import guard_all
from weft.experimental.source_mapper.source_maps import SourceMap


@record
class SourceMapDump:
    """A text, its source map, and the name of the pass that wrote it."""

    source_map: SourceMap
    generated_code: str
    pass_name: str


@record
class Pass:
    """A stage of compilation: `compile_fn(work_dir, f, f_args, f_kwargs, **options)` returns the stage, and
    `generate_dump(stage, **options)` returns its `SourceMapDump`. Both receive the options of all passes."""

    name: str
    compile_fn: Callable[..., Any]
    generate_dump: Callable[..., SourceMapDump]


_passes: dict[str, Pass] = {}


def register_pass(pass_: Pass) -> None:
    """Register a pass. ValueError if the name is already registered."""
    if pass_.name in _passes:
        raise ValueError(
            f"register_pass: Pass {pass_.name} already registered; give it another name."
        )
    _passes[pass_.name] = pass_


def all_passes() -> Sequence[Pass]:
    """Return all passes, in the order of compilation, followed by those registered by users.

    >>> from weft.experimental import source_mapper
    >>> [p.name for p in source_mapper.all_passes()][:4]
    ['jaxpr', 'hlo:stable-hlo', 'hlo:original', 'hlo:optimized']
    """
    return list(_passes.values())


def filter_passes(regex: str) -> Sequence[Pass]:
    """Return the passes whose names match a regular expression at their beginning.

    >>> from weft.experimental import source_mapper
    >>> [p.name for p in source_mapper.filter_passes("hlo:o")]
    ['hlo:original', 'hlo:optimized']
    """
    return [p for name, p in _passes.items() if re.match(regex, name)]


guard_all(globals())
