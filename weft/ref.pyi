"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft.api.refs import addupdate, empty_ref, free_ref, freeze, get, new_ref, set, swap
from weft.control.ref import AbstractRef, Ref

__all__ = [
    "AbstractRef", "Ref", "addupdate", "empty_ref", "free_ref", "freeze", "get", "new_ref", "set", "swap",
]
