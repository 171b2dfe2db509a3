"""The gallery: programs in `examples/gallery` as pages and notebooks, with recorded output and a picture.

    python docs/gallery.py [NAME...]     # run programs; write their output, picture and notebook

In:  programs, made of a docstring (title, one sentence, how to run it) and cells that begin with `# %%` and a comment.
Out: `docs/gallery/*.rst`, which git ignores; on request `examples/gallery/output/*.txt`, `examples/gallery/notebooks/*.ipynb` and
     `docs/pictures/gallery-*.svg`.
Law: a notebook has the text and the code of its program, and no output. The programs print the same on every run.
"""

import ast
import contextlib
import io
import json
import os
import runpy
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
CELL = "# %%\n"
DEVICES = "8"

#: programs in the order of the gallery
PROGRAMS = (
    "gpt",
    "moe",
    "ring_attention",
    "cnn",
    "kmeans_pca",
    "conjugate_gradients",
    "gaussian_process",
    "hmc",
    "neural_ode",
    "pallas_kernel",
)


class Cell(NamedTuple):
    """Text and code of one cell of a program."""

    text: str
    code: str


class Program(NamedTuple):
    """A program of the gallery."""

    name: str
    title: str
    sentence: str
    command: str
    cells: list[Cell]


def read_program(path: Path) -> Program:
    """Return the parts of a program."""
    source = path.read_text()
    title, sentence, command = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")
    cells = [read_cell(part) for part in source.split(CELL)[1:]]
    return Program(path.stem, title.rstrip("."), " ".join(sentence.split()), command.strip(), cells)


def read_cell(part: str) -> Cell:
    """Split a cell into the comment that it begins with and its code."""
    lines = part.strip("\n").splitlines()
    count = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    text = " ".join(line.removeprefix("#").strip() for line in lines[:count])
    return Cell(text, "\n".join(lines[count:]).strip("\n"))


def notebook(program: Program) -> str:
    """Return a program as a Jupyter notebook without outputs."""
    cells = []

    def add(kind: str, text: str, **fields: object) -> None:
        source = text.splitlines(keepends=True)
        cell = {"cell_type": kind, "id": f"cell-{len(cells)}", "metadata": {}}
        cells.append(cell | {"source": source} | fields)

    add("markdown", f"# {program.title}\n\n{program.sentence}")
    for cell in program.cells:
        if cell.text:
            add("markdown", cell.text)
        if cell.code:
            add("code", cell.code, execution_count=None, outputs=[])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    document = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def page(program: Program, output: str) -> str:
    """Return the page of a program."""
    folder = "../../examples/gallery"
    lines = [
        program.title,
        "=" * len(program.title),
        "",
        code_text(program.sentence),
        "",
        f".. image:: /pictures/gallery-{program.name}.svg",
        f"   :alt: {program.title}",
        "   :class: picture",
        "",
        f":download:`Notebook <{folder}/notebooks/{program.name}.ipynb>` · "
        f":download:`Program <{folder}/{program.name}.py>`. Run it:",
        "",
        ".. code-block:: console",
        "",
        f"   {program.command}",
        "",
    ]
    for cell in program.cells:
        lines += [code_text(cell.text), ""]
        if cell.code:
            lines += [".. code-block:: python", "", *indented(cell.code), ""]
    lines += ["Output", "------", "", ".. code-block:: text", "", *indented(output), ""]
    return "\n".join(lines)


def code_text(text: str) -> str:
    """Return text with its code in the markup of reStructuredText."""
    return text.replace("`", "``")


def indented(text: str) -> list[str]:
    """Return lines as the content of a directive."""
    return [f"   {line}" if line else "" for line in text.splitlines()]


def index(programs: list[Program]) -> str:
    """Return the first page of the gallery: a card for each program."""
    lines = [
        "Gallery",
        "=======",
        "",
        "Whole programs, each with its output, a picture and a notebook.",
        "More ways of parallelizing a model are in :doc:`/strategies`;",
        "models written with libraries for JAX are in :doc:`/ecosystem`.",
        "",
        ".. grid:: 1 2 2 2",
        "   :gutter: 3",
        "",
    ]
    for program in programs:
        lines += [
            f"   .. grid-item-card:: {program.title}",
            f"      :link: {program.name}",
            "      :link-type: doc",
            f"      :img-bottom: /pictures/gallery-{program.name}.svg",
            "",
            f"      {code_text(program.sentence)}",
            "",
        ]
    lines += [".. toctree::", "   :hidden:", "", *(f"   {p.name}" for p in programs), ""]
    return "\n".join(lines)


def write(root: Path, folder: Path) -> None:
    """Write the pages of the gallery below `folder`."""
    source = root / "examples" / "gallery"
    programs = [read_program(source / f"{name}.py") for name in PROGRAMS]
    pages = {"index": index(programs)}
    for program in programs:
        output = (source / "output" / f"{program.name}.txt").read_text()
        pages[program.name] = page(program, output)
    target = folder / "gallery"
    target.mkdir(exist_ok=True)
    for old in {*target.glob("*.rst")} - {target / f"{name}.rst" for name in pages}:
        old.unlink()
    for name, text in pages.items():
        (target / f"{name}.rst").write_text(text)


def run(path: Path) -> tuple[str, dict]:
    """Run a program in this process; return its output and its variables."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        session = runpy.run_path(str(path), run_name="__main__")
    return printed.getvalue(), session


def record(name: str) -> None:
    """Run a program, and write its output, picture and notebook."""
    from gallery_pictures import DRAW  # imports weft, which the devices must precede

    path = ROOT / "examples" / "gallery" / f"{name}.py"
    output, session = run(path)
    (path.parent / "output").mkdir(exist_ok=True)
    (path.parent / "notebooks").mkdir(exist_ok=True)
    (path.parent / "output" / f"{name}.txt").write_text(output)
    (path.parent / "notebooks" / f"{name}.ipynb").write_text(notebook(read_program(path)))
    (ROOT / "docs" / "pictures" / f"gallery-{name}.svg").write_text(DRAW[name](session))
    print(f"{name}:\n{output}")


if __name__ == "__main__":
    os.environ["WEFT_NUM_DEVICES"] = DEVICES
    sys.path.insert(0, str(ROOT))
    for program_name in sys.argv[1:] or PROGRAMS:
        record(program_name)
