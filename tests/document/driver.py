"""Run the code cells of a notebook document in order in this process, and record what came of each.

    python driver.py DOCUMENT RECORD [--size N] [--checks FILE]

In:  a document with ```{code-cell} blocks; FILE, a JSON list of [cell number, expression].
Out: RECORD, a JSON file: for every cell its output, its final value, its error if any, its seconds, and
     the values of the expressions asked for after it; at the end the peak memory.

`--size N` stands in for the document's 8192, so that a run is quick. `%timeit` lines become a few plain runs.
"""

import argparse
import ast
import contextlib
import io
import json
import re
import resource
import time
import traceback
from pathlib import Path

FULL_SIZE = 8192
_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_TIMEIT = re.compile(r"^([ \t]*)%timeit((?: -\w+ \d+)*) (.*)$", re.MULTILINE)


def cells_of(text):
    """Return the code of every cell."""
    return [match[1].strip("\n") for match in _CELL.finditer(text)]


def rewrite(code, size):
    """Return the code as plain Python with the given size."""
    return _TIMEIT.sub(r"\1for _ in range(3): \3", code).replace(str(FULL_SIZE), str(size))


def run_cell(code, number, scope):
    """Execute a cell as a notebook would; returns the text of the value that it ends in."""
    tree = ast.parse(code, f"<cell {number}>")
    ends_in_value = bool(tree.body) and isinstance(tree.body[-1], ast.Expr)
    last = ast.Expression(tree.body.pop().value) if ends_in_value else None
    exec(compile(tree, f"<cell {number}>", "exec"), scope)
    if last is None:
        return None
    value = eval(compile(last, f"<cell {number}>", "eval"), scope)
    return None if value is None else repr(value)


def layout_of(array):
    """Return the device ids of an array's tiles: commas within a tile, spaces between columns, slashes between rows."""
    from weft._engine.debug.device_tiles import tile

    tiling = tile(array.shape, array.sharding)
    counts = (1,) * (2 - len(array.shape)) + tiling.counts
    rows = []
    for row in range(counts[0]):
        tiles = [(row, column)[2 - len(array.shape) :] for column in range(counts[1])]
        rows.append(" ".join(",".join(map(str, tiling.holders[tile])) for tile in tiles))
    return "/".join(rows)


def evaluate(expression, scope):
    """Return the value of a check as JSON can hold it, or the error that it raised."""
    try:
        value = eval(expression, scope | {"layout_of": layout_of})
        return {"value": value.tolist() if hasattr(value, "tolist") else value}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def run(text, size, checks):
    """Run all cells and return the record."""
    from weft.compat import install_as_jax

    install_as_jax()
    scope = {"__name__": "__main__"}
    records = []
    for number, code in enumerate(cells_of(text)):
        record = {"code": code, "error": None, "value": None}
        printed = io.StringIO()
        start = time.perf_counter()
        try:
            with contextlib.redirect_stdout(printed):
                record["value"] = run_cell(rewrite(code, size), number, scope)
        except Exception:
            record["error"] = traceback.format_exc()
        record["seconds"] = time.perf_counter() - start
        record["printed"] = printed.getvalue()
        record["checks"] = {e: evaluate(e, scope) for at, e in checks if at == number}
        records.append(record)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "size": size,
        "cells": records,
        "peak_GiB": peak,
        "seconds": sum(r["seconds"] for r in records),
    }


def main():
    parser = argparse.ArgumentParser(
        description="Run the code cells of a notebook document on weft."
    )
    parser.add_argument("document", type=Path)
    parser.add_argument("record", type=Path)
    parser.add_argument("--size", type=int, default=FULL_SIZE)
    parser.add_argument("--checks", type=Path)
    options = parser.parse_args()
    checks = json.loads(options.checks.read_text()) if options.checks else []
    record = run(options.document.read_text(), options.size, checks)
    options.record.write_text(json.dumps(record, indent=1))
    failed = [number for number, cell in enumerate(record["cells"]) if cell["error"]]
    print(
        f"{len(record['cells'])} cells at size {options.size} in {record['seconds']:.1f} s, peak memory"
    )
    print(f"{record['peak_GiB']:.2f} GiB; failed: {failed or 'none'}")


if __name__ == "__main__":
    main()
