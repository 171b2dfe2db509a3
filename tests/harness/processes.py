"""Separate Python processes that use this weft."""

import os
import subprocess
import sys
from pathlib import Path

import weft

ROOT = Path(weft.__file__).parents[1]


def run_python(*words, cwd=None, timeout=300, **variables) -> subprocess.CompletedProcess:
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


def run_weft(*words, **options) -> subprocess.CompletedProcess:
    """Run the command `weft WORDS` as `run_python` does."""
    return run_python("-m", "weft", *words, **options)
