"""What the README shows is what happens."""

import os
import re
import subprocess
import sys

import pytest

from tests.harness.pages import ROOT, blocks, needs_pages


@needs_pages
def test_the_program_draws_the_picture(tmp_path):
    (program,), (picture,) = blocks("README.md"), blocks("README.md", "text")
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "-m", "weft", "run", "--devices", "8", "program.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == picture, done.stderr


@needs_pages
@pytest.mark.parametrize("path", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))])
def test_links_lead_somewhere(path):
    page = ROOT / path
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
