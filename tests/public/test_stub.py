"""The stubs for type checkers agree with the tables of lazily loaded names."""

import importlib
import json
from pathlib import Path

import pytest

import weft.numpy as wnp
from tests.harness.processes import run_python
from weft import lax
from weft._engine.util import lazy

#: the texts of a fresh process: names that other tests have loaded may be found elsewhere
_PROGRAM = """
import importlib
import json
from weft.tools.stubs.public_modules import stubs
print(json.dumps({str(path): text for path, text in stubs().items()}))
"""
STUBS = {Path(path): text for path, text in json.loads(run_python("-c", _PROGRAM).stdout).items()}


@pytest.mark.parametrize("path", sorted(STUBS), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_stubs_are_current(path):
    assert path.read_text() == STUBS[path], "run: python -m weft.tools.stubs"


def test_a_stub_has_every_public_name():
    (text,) = [
        text for path, text in STUBS.items() if str(path).endswith("weft/numpy/__init__.pyi")
    ]
    assert all(f'"{name}"' in text and hasattr(wnp, name) for name in wnp.__all__)
    assert (
        "from weft._engine.runtime.array import Array, Array as ndarray\n" in text
        and "pi: float\n" in text
        and "newaxis: None\n" in text
    )


def test_lazy_names_are_found_and_listed():
    for name in ("weft.lax", "weft.random", "weft.nn"):
        importlib.import_module(name)
    assert {"weft.lax", "weft.random", "weft.nn"} <= set(lazy.tables)
    assert dir(lax) == lax.__all__ == sorted(lazy.tables["weft.lax"])
    assert lax.reduce.__name__ == "reduce" and lax.linalg.__name__ == "weft.lax.linalg"
    with pytest.raises(AttributeError, match=r"module 'weft\.lax' has no attribute 'sinus'"):
        lax.sinus
