"""Separate Python processes that use this weft."""

import os
import subprocess
import sys
from pathlib import Path

import weft

ROOT = Path(weft.__file__).parents[1]


def run_python(
    *words: object, cwd: str | Path | None = None, timeout: float = 300, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS` with these additional environment variables, and return its output as
    text."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def run_weft(
    *words: object, cwd: str | Path | None = None, timeout: float = 300, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command `weft WORDS` as `run_python` does."""
    return run_python("-m", "weft", *words, cwd=cwd, timeout=timeout, **variables)
