"""`generate_sourcemaps`: the texts of a function's compilation with their source maps."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.util.source import guard_all, wraps
from weft.experimental.source_mapper import hlo, jaxpr  # noqa: F401  (register their passes)
from weft.experimental.source_mapper.common import Pass, SourceMapDump


def generate_sourcemaps(
    f: Callable, passes: Sequence[Pass], **pass_kwargs: Any
) -> Callable[..., Sequence[SourceMapDump]]:
    """Return a function that returns a `SourceMapDump` for each pass, given the arguments of `f`. `pass_kwargs` are options of the passes.

    >>> from weft.experimental import source_mapper
    >>> f = lambda x: wnp.sin(x) + 1
    >>> (dump,) = source_mapper.generate_sourcemaps(f, source_mapper.filter_passes("jaxpr"))(1.0)
    >>> print(dump.generated_code)
    { lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = add b 1.0:f32[] in (c,) }
    >>> [(line, column) for line, column, *_ in dump.source_map.positions()], len(dump.source_map.sources)
    ([(0, 24), (0, 41)], 1)
    """

    @wraps(f)
    def mapped(*args: Any, **kwargs: Any) -> Sequence[SourceMapDump]:
        dumps = []
        for p in passes:
            with tempfile.TemporaryDirectory() as folder:
                dumps.append(
                    p.generate_dump(
                        p.compile_fn(folder, f, args, kwargs, **pass_kwargs), **pass_kwargs
                    )
                )
        return dumps

    return mapped


guard_all(globals())
