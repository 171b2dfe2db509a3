"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft.api.autodiff import DidntWant, DontWant, GradRef, GradValue
from weft.transforms.pullback import NotNeeded, NotSaveable

__all__ = [
    "DidntWant", "DontWant", "GradRef", "GradValue", "NotNeeded", "NotSaveable",
]
