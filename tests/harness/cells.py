"""Pages that are written as cells: Python blocks that run in order, each followed by a text block with its output.

A block that raises ends in the error, as a traceback prints it. `python -m tests.harness.cells PAGES` records the output of
each block on the pages; recorded output that still matches, also where `...` stands for a part of it, is kept.
"""

import ast
import codeop
import contextlib
import doctest
import io
import linecache
import os
import re
import sys
import textwrap
import traceback
from dataclasses import dataclass
from pathlib import Path

import weft
from tests.harness.settings import restored_settings
from weft._engine.util.config import Override

WIDTH = 88
CELL = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?", re.DOTALL | re.MULTILINE
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass
class Cell:
    """A Python block of a page, and the output shown after it."""

    code: str
    shown: str
    printed: str = ""

    def is_as_shown(self) -> bool:
        """Return whether the output of the last run is the output shown, except for line breaks."""
        return doctest.OutputChecker().check_output(self.shown, self.printed, FLAGS)


def cells(path: Path) -> list[Cell]:
    """Return the cells of a page in order."""
    return [Cell(cell["code"], cell["shown"] or "") for cell in CELL.finditer(path.read_text())]


def run_cells(path: Path, session: dict[str, object] | None = None) -> list[Cell]:
    """Run the cells of a page as one session and return them with what they printed.

    `session` receives the variables of the page.
    """
    page = cells(path)
    script = f"{path.stem}.py"
    source = "".join(cell.code for cell in page)
    linecache.cache[script] = (len(source), None, source.splitlines(True), script)
    scope: dict[str, object] = {} if session is None else session
    scope["__name__"] = "__main__"
    start = 0
    try:
        with restored_settings(), Override(traceback="full"):
            for cell in page:
                cell.printed = _run(cell.code, script, start, scope)
                start += cell.code.count("\n")
    finally:
        weft.set_mesh(None)
        del linecache.cache[script]
    return page


def _run(code: str, script: str, start: int, scope: dict[str, object]) -> str:
    """Run a cell whose first line is line `start` of the script; return what the interactive shell prints."""
    tree = ast.increment_lineno(ast.Interactive(ast.parse(code).body), start)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(tree, script, "single"), scope)
        except Exception as error:
            weft.effects_barrier()
            print("".join(traceback.format_exception_only(error)), end="")
        weft.effects_barrier()
    return printed.getvalue()


def is_pasteable(code: str) -> bool:
    """Return whether Python's interactive shell accepts a block line by line."""
    pending: list[str] = []
    for line in [*code.splitlines(), ""]:
        pending.append(line)
        try:
            if codeop.compile_command("\n".join(pending), symbol="single") is not None:
                pending = []
        except SyntaxError:
            return False
    return not "".join(pending)


def wrapped(output: str) -> str:
    """Return output with lines of at most WIDTH columns."""
    lines: list[str] = []
    for line in re.sub(r" at 0x[0-9a-f]+", " at ...", output).splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        lines += (
            textwrap.wrap(
                line,
                WIDTH,
                subsequent_indent=indent,
                drop_whitespace=True,
                break_long_words=False,
                break_on_hyphens=False,
            )
            if len(line) > WIDTH
            else [line.rstrip()]
        )
    return "".join(f"{line.lstrip() if len(line) > WIDTH else line}\n" for line in lines)


def record(path: Path) -> None:
    """Write the output of each cell into the page."""
    page = iter(run_cells(path))

    def replace(_: re.Match[str]) -> str:
        cell = next(page)
        output = cell.shown if cell.is_as_shown() else wrapped(cell.printed)
        return f"```python\n{cell.code}```\n" + (f"\n```text\n{output}```\n" if output else "")

    path.write_text(CELL.sub(replace, path.read_text()))


if __name__ == "__main__":
    os.environ.setdefault("WEFT_NUM_DEVICES", "8")
    for name in sys.argv[1:]:
        record(Path(name))
        print(name)
