"""The gallery: its notebooks are the programs without output, and print what is recorded."""

import os

import pytest

from tests.harness.processes import ROOT
from tests.harness.scripts import load_script

gallery = load_script("docs/gallery.py")
FOLDER = ROOT / "examples" / "gallery"
#: programs whose notebooks run by default; `make notebooks` runs all
QUICK = ("kmeans_pca", "pallas_kernel", "ring_attention")
PROGRAMS = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in gallery.PROGRAMS
]


def test_gallery_lists_every_program():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(gallery.PROGRAMS)


@pytest.mark.parametrize("name", gallery.PROGRAMS)
def test_notebook_is_the_program_without_output(name):
    notebook = (FOLDER / "notebooks" / f"{name}.ipynb").read_text()
    assert notebook == gallery.notebook(gallery.read_program(FOLDER / f"{name}.py"))


@pytest.mark.parametrize("name", gallery.PROGRAMS)
def test_programs_are_short_and_have_a_picture(name):
    program = gallery.read_program(FOLDER / f"{name}.py")
    code = [line for cell in program.cells for line in cell.code.splitlines()]
    assert len(code) <= 120
    assert max(map(len, code)) <= 88
    assert program.title and program.sentence.endswith(".")
    assert program.command == f"python examples/gallery/{name}.py"
    assert (ROOT / "docs" / "pictures" / f"gallery-{name}.svg").read_text().startswith("<svg")
    page = gallery.page(program, (FOLDER / "output" / f"{name}.txt").read_text())
    assert all(f"   {line}" in page for line in code if line)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")  # of the libraries that run notebooks
def test_notebooks_print_the_recorded_output(name):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(FOLDER / "notebooks" / f"{name}.ipynb", as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3")
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    client.execute(env={**os.environ, "PYTHONPATH": paths})
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    printed = "".join(out.get("text", "") for out in outputs if out.get("name") == "stdout")
    assert printed == (FOLDER / "output" / f"{name}.txt").read_text()
