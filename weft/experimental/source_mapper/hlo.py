"""StableHLO and HLO of a function with source maps, before and after compilation."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable
from typing import Any

import weft
from weft._engine.util.source import guard_all
from weft.experimental.source_mapper.common import Pass, SourceMapDump, register_pass
from weft.experimental.source_mapper.jaxpr import canonicalize_filename
from weft.experimental.source_mapper.mlir import create_mlir_sourcemap
from weft.experimental.source_mapper.source_maps import SourceMap, map_of


class HloPass(enum.Enum):
    """The names of passes: the program as StableHLO, as HLO, and its kernels as HLO."""

    STABLE_HLO = "hlo:stable-hlo"
    ORIGINAL = "hlo:original"
    OPTIMIZED = "hlo:optimized"


#: the source location of an instruction
METADATA_REGEX = re.compile(
    r'metadata=\{(?:.*?op_name="(?P<scope>(?:[^"\\]|\\.)*)")?.*?source_file="(?P<src_file>(?:[^"\\]|\\.)*)" source_line=(?P<src_line>\d+)'
)
#: a source location by number, and the tables before the computations in XLA's text: a frame names a location, which names a file
_FRAME = re.compile(r"metadata=\{.*?stack_frame_id=(\d+)")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_ROW = re.compile(r'^(\d+) (?:"(.*)"|\{(.*)\})$')


def parse_hlo_dump(text: str) -> SourceMap:
    """Return the source map of an HLO module, from the source locations in the metadata of instructions.

    >>> parse_hlo_dump('  a = f32[] add(b, c), metadata={op_name="add" source_file="f.py" source_line=3}').positions()
    [(0, 2, 'f.py', 2, 0)]
    """
    lines = text.split("\n")
    tables, places = _tables(lines), []
    for number, line in enumerate(lines):
        column = len(line) - len(line.lstrip())
        metadata, frame = METADATA_REGEX.search(line), _FRAME.search(line)
        if metadata is not None:
            place = json.loads(f'"{metadata["src_file"]}"'), int(metadata["src_line"]), 0
        elif frame is not None:
            place = _frame_place(tables, frame[1])
        else:
            continue
        if place is not None:
            places.append((number, column, canonicalize_filename(place[0]), place[1] - 1, place[2]))
    return map_of(len(lines), places)


def _tables(lines: list[str]) -> dict[str, dict[str, Any]]:
    """Return the rows of the tables by number; each row is a name, or a dict from names to numbers."""
    tables: dict[str, dict[str, Any]] = {name: {} for name in _TABLES}
    rows: dict[str, Any] = {}
    for line in lines:
        row = _ROW.match(line)
        if line in tables:
            rows = tables[line]
        elif row is None:
            rows = {}
        else:
            rows[row[1]] = (
                row[2] if row[3] is None else dict(fact.split("=") for fact in row[3].split())
            )
    return tables


def _frame_place(tables: dict[str, dict[str, Any]], frame: str) -> tuple[str, int, int] | None:
    location = tables["FileLocations"].get(
        tables["StackFrames"].get(frame, {}).get("file_location_id")
    )
    file = None if location is None else tables["FileNames"].get(location["file_name_id"])
    return (
        None
        if location is None or file is None
        else (file, int(location["line"]), int(location.get("column", 0)))
    )


def trace_and_lower(
    work_dir: str, f: Callable, f_args: tuple, f_kwargs: dict, **_: Any
) -> tuple[Any, str]:
    """Return `f` lowered for its arguments, and the folder."""
    lower = getattr(f, "lower", None) or weft.jit(f).lower
    return lower(*f_args, **f_kwargs), work_dir


def stable_hlo_generate_dump(args: tuple[Any, str], **_: Any) -> SourceMapDump:
    """Return the lowered program as StableHLO, with its source locations, and its source map."""
    text = args[0].as_text(debug_info=True)
    return SourceMapDump(create_mlir_sourcemap(text), text, HloPass.STABLE_HLO.value)


def original_hlo_generate_dump(args: tuple[Any, str], **_: Any) -> SourceMapDump:
    """Return the lowered program as HLO, and its source map."""
    text = args[0].as_text("hlo", debug_info=True)
    return SourceMapDump(parse_hlo_dump(text), text, HloPass.ORIGINAL.value)


def optimized_generate_dump(
    args: tuple[Any, str], xla_compiler_flags: dict[str, Any] | None = None, **_: Any
) -> SourceMapDump:
    """Return the compiled program as HLO, whose fusions are kernels, and its source map; `xla_compiler_flags` are options of `compile`."""
    text = args[0].compile(xla_compiler_flags).as_text()
    return SourceMapDump(parse_hlo_dump(text), text, HloPass.OPTIMIZED.value)


for _name, _dump in (
    (HloPass.STABLE_HLO, stable_hlo_generate_dump),
    (HloPass.ORIGINAL, original_hlo_generate_dump),
    (HloPass.OPTIMIZED, optimized_generate_dump),
):
    register_pass(Pass(_name.value, trace_and_lower, _dump))
guard_all(globals())
