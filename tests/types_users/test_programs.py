"""Types of users' programs: pyright finds no error in correct ones, and each planted error at its line."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.pages import needs_pages
from tests.types_users.programs import (
    PROGRAMS,
    ROOT,
    planted_errors,
    reported_errors,
    write_programs,
    write_stubs,
)

CORRECT = sorted((PROGRAMS / "correct").glob("*.py"))


@needs_pages
def test_pyright_finds_the_planted_errors_alone(tmp_path):
    """With `import weft`, and with `import jax` and the stubs of the shim."""
    paths = write_programs(tmp_path)
    write_stubs(tmp_path / "site")
    settings = {"include": ["weft", "jax"], "extraPaths": ["site", str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [Path(sys.executable).parent / "pyright", "--pythonpath", sys.executable]
    done = subprocess.run([*command, "--project", tmp_path], capture_output=True, text=True)
    planted = planted_errors(tmp_path, paths)
    assert len(planted) == 2 * (len(list((PROGRAMS / "wrong").glob("*.py"))) + 3) >= 46
    errors = "\n".join(line for line in done.stdout.splitlines() if " - error: " in line)
    assert reported_errors(errors) == planted, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("path", CORRECT, ids=lambda path: path.stem)
def test_correct_programs_run(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
