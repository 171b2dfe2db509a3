"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft._engine.api.refs import addupdate, empty_ref, free_ref, freeze, get, new_ref, set, swap
from weft._engine.control.ref import AbstractRef, Ref

__all__ = [
    "AbstractRef", "Ref", "addupdate", "empty_ref", "free_ref", "freeze", "get", "new_ref", "set",
    "swap",
]
