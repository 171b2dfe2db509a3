"""The examples of the README run and print the output shown."""

import re

import pytest

from tests.harness.pages import blocks, needs_pages
from tests.harness.processes import ROOT, run_weft


@needs_pages
def test_the_program_draws_the_picture(tmp_path):
    (program,), (picture,) = blocks("README.md"), blocks("README.md", "text")
    (tmp_path / "program.py").write_text(program)
    done = run_weft("run", "--devices", "8", "program.py", cwd=tmp_path)
    assert done.stdout == picture, done.stderr


@needs_pages
@pytest.mark.parametrize(
    "path", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))]
)
def test_links_lead_somewhere(path):
    page = ROOT / path
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
