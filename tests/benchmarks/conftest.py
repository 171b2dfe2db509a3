"""The modules of the benchmarks, which are scripts in one folder and not a package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import weft


@pytest.fixture(scope="module")
def script(request):
    """Yield the benchmark module that a test module names in `SCRIPT`."""
    home = str(Path(weft.__file__).parents[1] / "benchmarks")
    sys.path.insert(0, home)
    try:
        yield importlib.import_module(request.module.SCRIPT)
    finally:
        sys.path.remove(home)
