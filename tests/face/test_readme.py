"""What the README shows is what happens."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import weft

ROOT = Path(weft.__file__).parents[1]
README = ROOT / "README.md"


@pytest.mark.skipif(not README.exists(), reason="weft is installed without its README")
def test_the_program_draws_the_picture(tmp_path):
    text = README.read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (picture,) = re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "-m", "weft", "run", "--devices", "8", "program.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == picture, done.stderr


@pytest.mark.skipif(not README.exists(), reason="weft is installed without its README")
@pytest.mark.parametrize("path", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))])
def test_links_lead_somewhere(path):
    page = ROOT / path
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
