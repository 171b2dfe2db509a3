"""Source maps of programs: the line of the user's Python for each line of a compiler's text.

In:   a function, its arguments, and passes: stages of compilation with a text.
Out:  for each pass its text and a source map of version 3, the format that editors and browsers read.
See `common` for passes, `source_maps` for the format, `jaxpr`, `mlir` and `hlo` for the texts.
"""

from weft.experimental.source_mapper.common import (
    Pass,
    SourceMapDump,
    all_passes,
    filter_passes,
    register_pass,
)
from weft.experimental.source_mapper.generate_map import generate_sourcemaps
from weft.experimental.source_mapper.jaxpr import canonicalize_filename
from weft.experimental.source_mapper.mlir import create_mlir_sourcemap
from weft.experimental.source_mapper.source_maps import MappingsGenerator, SourceMap

__all__ = [
    "MappingsGenerator", "Pass", "SourceMap", "SourceMapDump", "all_passes", "canonicalize_filename", "create_mlir_sourcemap",
    "filter_passes", "generate_sourcemaps", "register_pass",
]  # fmt: skip
