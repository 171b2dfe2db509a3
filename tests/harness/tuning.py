"""Other thresholds for one test, so that small arrays take the paths of large ones."""

from __future__ import annotations

import pytest

from weft.util import machine_model
from weft.util.record import replace


def tune(monkeypatch: pytest.MonkeyPatch, **fields: object) -> None:
    """Give fields of the machine model other values until the test ends."""
    monkeypatch.setattr(machine_model, "_current", replace(machine_model.machine_model(), **fields))
