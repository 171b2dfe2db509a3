#!/usr/bin/env python3
"""Run the code cells of a folder of pages, unmodified, on weft and on JAX, and compare.

    python compat_suites/pages.py FOLDER --weft ENV/bin/python --jax OTHER/bin/python --json pages.json
    python compat_suites/pages.py FOLDER --weft ENV/bin/python --json pages.json --only pallas/    # some pages again

In:  a folder of pages, and one or two Python environments: one in which weft is importable, one with JAX. Nothing is fetched.
Out: what became of each cell on each system, as a table and as JSON.

Cells are: in a Markdown page (MyST) its `{code-cell}` blocks; in a notebook the cells of code; in a page of reStructuredText the blocks
`code-block:: python`, `testcode` and `code`, and the statements behind `>>>`. A notebook beside a page of the same name is the same page
and is left out. The cells of a page run in order in one process, as a notebook runs them, each with a limit of time; a cell that raises
is no end to its page. What counts is the cells that run on JAX, and those marked `raises-exception` that raise there.
Next to read: docs/ecosystem.md.
"""

import argparse
import ast
import json
import linecache
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

EIGHT_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu", "MPLBACKEND": "Agg"}
SUFFIXES = (".md", ".ipynb", ".rst")


@dataclass
class Cell:
    code: str
    raises: bool = False  # the page says that it raises


def pages_of(folder: Path) -> list[Path]:
    """The pages that have cells, in order, of twins the first of `SUFFIXES`."""
    found: dict[Path, Path] = {}
    for suffix in SUFFIXES:
        for path in sorted(folder.rglob(f"*{suffix}")):
            found.setdefault(path.with_suffix(""), path)
    return sorted(path for path in found.values() if cells_of(path))


def cells_of(page: Path) -> list[Cell]:
    text = page.read_text(encoding="utf-8")
    return {".md": _markdown_cells, ".ipynb": _notebook_cells, ".rst": _rst_cells}[page.suffix](text)


def _markdown_cells(text: str) -> list[Cell]:
    cells = []
    for match in re.finditer(r"^(`{3,})\{code-cell\}[^\n]*\n(.*?)^\1`*\s*$", text, re.M | re.S):
        body = match.group(2)
        options = re.match(r"---\n(.*?)^---\n|((?::[\w-]+:[^\n]*\n)+)", body, re.M | re.S)
        head = options.group(0) if options else ""
        cells.append(Cell(body[len(head):].strip("\n"), "raises-exception" in head))
    return cells


def _notebook_cells(text: str) -> list[Cell]:
    return [Cell("".join(cell["source"]), "raises-exception" in cell.get("metadata", {}).get("tags", []))
            for cell in json.loads(text)["cells"] if cell["cell_type"] == "code" and cell["source"]]


def _rst_cells(text: str) -> list[Cell]:
    cells, lines, at = [], text.splitlines(), 0
    while at < len(lines):
        directive = re.match(r"(\s*)\.\. (?:code-block:: *(?:python|pycon|ipython3?)?|testcode::|code:: *python|doctest::)\s*$", lines[at])
        if directive:
            end = at + 1
            while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > len(directive.group(1))):
                end += 1
            body = [line for line in lines[at + 1:end] if not re.match(r"\s*:[\w-]+:", line)]
            statements = _prompted(body)
            code = statements if statements else [textwrap.dedent("\n".join(body)).strip("\n")]
            at = end
        elif lines[at].lstrip().startswith(">>>"):
            end = at
            while end < len(lines) and lines[end].strip():
                end += 1
            code = _prompted(lines[at:end])
            at = end
        else:
            at += 1
            continue
        cells += [Cell(each) for each in code if each.strip()]
    return cells


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _prompted(lines: list[str]) -> list[str]:
    """The statements of an interactive session, each on its own; empty where there is no `>>>`."""
    statements: list[str] = []
    for line in map(str.strip, lines):
        if line.startswith(">>>"):
            statements.append(line[4:])
    if not statements:
        return []
    statements, inside = [], False
    for line in (line.lstrip() for line in lines):
        if line.startswith(">>>"):
            statements.append(line[4:])
            inside = True
        elif line.startswith("...") and inside:
            statements[-1] += "\n" + line[4:]
        else:
            inside = False
    return statements


def plain(code: str) -> str:
    """The code without what only IPython understands: commands of the shell go, `%time x` and `%timeit x` become `x`."""
    kept = []
    for line in code.splitlines():
        stripped = line.lstrip()
        space = line[:len(line) - len(stripped)]
        timed = re.match(r"%time(?:it)?(?:\s+-\w+\s*\d*)*\s+(.*)", stripped)
        if stripped.startswith("%%time"):
            continue
        if timed:
            kept.append(space + timed.group(1))
        elif stripped.startswith(("!", "%")):
            kept.append(f"{space}pass")
        else:
            kept.append(line)
    return "\n".join(kept)


class OutOfTime(BaseException):
    """A cell had no end; no `except Exception` of a page catches it."""


def run_page(page: Path, system: str, limit: float, out: Path) -> None:
    """Run the cells of a page in this process, and append a line to `out` for each."""
    if system == "weft":
        from weft.compat import install_as_jax

        install_as_jax("0.10.2")
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.path.insert(0, str(page.parent))
    report = open(out, "a", encoding="utf-8", buffering=1)
    signal.signal(signal.SIGALRM, _out_of_time)
    for number, cell in enumerate(cells_of(page)):
        start = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, limit)
        try:
            run_cell(plain(cell.code), f"<{page.name} cell {number}>", module.__dict__)
            status, message = "ran", ""
        except OutOfTime:
            status, message = "timeout", f"no end after {limit:.0f} s"
        except SystemExit as error:
            status, message = "raised", repr(error)
        except BaseException as error:  # a page may raise anything
            status, message = "raised", f"{type(error).__name__}: {str(error)[:300]}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        report.write(json.dumps([number, status, message, round(time.perf_counter() - start, 2), cell.raises]) + "\n")


def _out_of_time(signum: int, frame: object) -> None:
    raise OutOfTime


def run_cell(code: str, name: str, namespace: dict) -> None:
    """Run the statements; the value of a last expression is shown, which is to say that its `repr` is made."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), namespace)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
        if value is not None:
            repr(value)


def run_folder(python: Path, system: str, folder: Path, pages: list[Path], limit: float, results: dict[str, list], save: Callable) -> None:
    """Put the results of the pages into `results`: name -> [number, status, message, seconds, marked as raising] for each cell."""
    for page in pages:
        name = str(page.relative_to(folder))
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch, "out.jsonl")
            out.touch()
            command = [str(python), __file__, str(folder), "--page", name, "--system", system, "--limit", str(limit), "--out", str(out)]
            count = len(cells_of(page))
            process = subprocess.Popen(command, cwd=scratch, env={**os.environ, **EIGHT_DEVICES}, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
            try:
                _, errors = process.communicate(timeout=limit * min(count, 10) + 60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                _, errors = process.communicate()
            rows = [json.loads(line) for line in out.read_text().splitlines()]
            last = errors.strip().splitlines()[-1] if errors.strip() else ""
            rows += [[number, "crashed", f"the process ended with status {process.returncode}: {last}"[:300], 0.0, False]
                     for number in range(len(rows), count)]
        results[name] = rows
        save()
        ran = sum(row[1] == "ran" or row[4] for row in rows)
        print(f"  {name}: {ran} of {count} in {sum(row[3] for row in rows):.0f} s", file=sys.stderr, flush=True)


def compare(result: dict) -> tuple[list[str], list[str]]:
    """A row of the table for each page, and the cells that count and do not run on weft."""
    rows, failed = [], []
    for page, cells in sorted(result["jax"].items()):
        counted = [cell for cell in cells if cell[1] == "ran" or (cell[1] == "raised" and cell[4])]
        here = {cell[0]: cell for cell in result["weft"].get(page, [])}
        good = 0
        for number, status, *_ in counted:
            cell = here.get(number, [number, "missing", "", 0, False])
            if cell[1] == status:
                good += 1
            else:
                failed.append(f"{page}[{number}] {cell[1]}: {cell[2]}".replace("\n", " ")[:240])
        if counted:
            rows.append(f"| {page} | {len(cells)} | {len(counted)} | {good} |")
    return rows, failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--weft", type=Path, help="the Python of an environment with weft")
    parser.add_argument("--jax", type=Path, help="the Python of an environment with JAX")
    parser.add_argument("--only", nargs="*", default=[], metavar="PART", help="pages whose path contains one of these")
    parser.add_argument("--limit", type=float, default=120, help="seconds that a cell may take")
    parser.add_argument("--json", type=Path, help="where to keep the results; pages and systems that do not run keep those there")
    parser.add_argument("--page", help=argparse.SUPPRESS)
    parser.add_argument("--system", choices=("jax", "weft"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    folder = args.folder.resolve()
    if args.page:
        run_page(folder / args.page, args.system, args.limit, args.out)
        return
    pages = [page for page in pages_of(folder) if not args.only or any(part in str(page.relative_to(folder)) for part in args.only)]
    result = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    for system in ("jax", "weft"):
        if python := getattr(args, system):
            print(f"{len(pages)} pages on {system}", file=sys.stderr)
            save = lambda: args.json and args.json.write_text(json.dumps(result, indent=1))
            run_folder(python.absolute(), system, folder, pages, args.limit, result.setdefault(system, {}), save)
    if "jax" in result and "weft" in result:
        rows, failed = compare(result)
        print("\n".join(failed))
        print("| page | cells | run on JAX | of these on weft |\n|---|---|---|---|")
        print("\n".join(rows))
        counted, good = (sum(int(row.split("|")[column]) for row in rows) for column in (3, 4))
        print(f"{good} of {counted} cells that run on JAX run on weft ({100 * good / max(counted, 1):.1f} %)")


if __name__ == "__main__":
    main()
