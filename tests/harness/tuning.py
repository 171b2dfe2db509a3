"""Other thresholds for one test, so that small arrays take the paths of large ones."""

from __future__ import annotations

import pytest

from weft._engine.util.machine_model import MODEL


def tune(monkeypatch: pytest.MonkeyPatch, **fields: object) -> None:
    """Give fields of the machine model other values until the test ends."""
    for name, value in fields.items():
        monkeypatch.setattr(MODEL, name, value)
