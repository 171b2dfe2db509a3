"""Change thresholds for one test, so that small arrays take the paths of large ones."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from weft._engine.util.machine_model import MODEL, MachineModel

PACKAGE = Path(__file__).parents[2] / "weft"


def tune(monkeypatch: pytest.MonkeyPatch, **thresholds: object) -> None:
    """Override fields of the machine model and constants of passes until the test ends.

    `split_segment` is the field of that name, or the constant `SPLIT_SEGMENT` or `_SPLIT_SEGMENT`
    in every module that has it.
    """
    for name, value in thresholds.items():
        if name in vars(MachineModel)["__slots__"]:
            monkeypatch.setattr(MODEL, name, value)
            continue
        constants = list(_constants(name.upper()))
        assert constants, f"no module has the threshold {name}"
        for module, constant in constants:
            monkeypatch.setattr(module, constant, value)


def _constants(name: str) -> Iterator[tuple[ModuleType, str]]:
    """Return (module, name) of every constant of that name, defined there or imported."""
    for path in (PACKAGE / "_engine").rglob("*.py"):
        if re.search(rf"\b_?{name}\b", path.read_text()):
            module = importlib.import_module(
                ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            )
            for constant in (name, f"_{name}"):
                if hasattr(module, constant):
                    yield module, constant
