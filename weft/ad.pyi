"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft._engine.api.differentiation.reverse import DidntWant, DontWant, GradRef, GradValue
from weft._engine.transforms.pullback import NotNeeded, NotSaveable

__all__ = [
    "DidntWant", "DontWant", "GradRef", "GradValue", "NotNeeded", "NotSaveable",
]
