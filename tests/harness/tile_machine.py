"""A processor with AMX: this one if it has it, else this one with an emulator of the tile instructions.

In:   a processor with AVX-512.
Out:  `use(monkeypatch)` until a test ends, or `use()` for the rest of a process: weft then compiles for
      `WEFT_CPU_FEATURES=amx`. `reason` says why a machine cannot.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness import tile_emulator
from weft._engine.codegen.toolchain import target, tile_permission

_FEATURES = ("amx-tile", "amx-bf16", "amx-int8")


def reason() -> str:
    """Return why this machine cannot run code for AMX, even emulated; empty if it can."""
    if has_tiles():
        return ""
    return tile_emulator.obstacle() or (
        "for processors with AVX-512" if target._make(None).level != "avx512" else ""
    )


@functools.cache
def has_tiles() -> bool:
    """Return whether this processor has AMX, and the system grants it; then nothing is emulated or counted."""
    return all(f"+{name}," in target._host()[1] for name in _FEATURES) and tile_permission.request()


def use(monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    """Compile for AMX from now on, until the test of `monkeypatch` ends."""
    put: Callable[[Any, str, object], None] = monkeypatch.setattr if monkeypatch else setattr
    if not has_tiles():
        tile_emulator.install()
        cpu, features = target._host()
        for name in _FEATURES:
            features = features.replace(f"-{name},", f"+{name},")
        put(target, "_host", lambda: (cpu, features))
        put(tile_permission, "request", lambda: True)
    put(target, "_make", functools.cache(target._make.__wrapped__))
    if monkeypatch:
        monkeypatch.setenv("WEFT_CPU_FEATURES", "amx")
    else:
        os.environ["WEFT_CPU_FEATURES"] = "amx"
