"""Users' programs for type checkers, with `import weft` and, by replacing names, with `import jax`.

Programs in `correct` have no error. Each one in `wrong` has one, in the line that ends with `# error`. The program of docs/types.md is
among the wrong ones, with the lines that the page says checkers report.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tests.harness.pages import blocks
from weft.tools.stubs.jax_modules import jax_stubs

PROGRAMS = Path(__file__).parent
ROOT = PROGRAMS.parents[1]
_KINDS = ("correct", "wrong")
_NAMES = {"weft": "jax", "wnp": "jnp"}
#: a position in the output of a checker
_POSITION = re.compile(r"((?:weft|jax)/(?:correct|wrong)/\w+\.py):(\d+)")


def write_programs(folder: Path) -> list[str]:
    """Write the programs in both forms below a folder, and return their paths in it."""
    sources = sorted(path for kind in _KINDS for path in (PROGRAMS / kind).glob("*.py"))
    texts = {f"{path.parent.name}/{path.name}": path.read_text() for path in sources}
    texts["wrong/page.py"] = _program_of_page()
    paths = []
    for name, text in texts.items():
        in_jax = re.sub(r"\b(weft|wnp)\b", lambda match: _NAMES[match[0]], text)
        for form, written in (("weft", text), ("jax", in_jax)):
            path = f"{form}/{name}"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(written)
            paths.append(path)
    return paths


def _program_of_page() -> str:
    """Return the program on the page, and each line that it calls wrong as a planted error."""
    (program,), (wrong,) = blocks("types.md"), blocks("types.md", "text")
    return program + "".join(f"{line} # error\n" for line in wrong.splitlines())


def write_stubs(folder: Path) -> None:
    """Write the stubs of jax below a folder, as `weft shim install` does in an environment."""
    for path, text in jax_stubs().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def planted_errors(folder: Path, paths: Iterable[str]) -> set[str]:
    """Return the lines with planted errors, as `path:line`."""
    return {
        f"{path}:{number}"
        for path in paths
        for number, line in enumerate((folder / path).read_text().splitlines(), 1)
        if line.endswith("# error")
    }


def reported_errors(output: str) -> set[str]:
    """Return the lines that the output of a checker names, as `path:line`."""
    return {f"{path}:{line}" for path, line in _POSITION.findall(output)}
