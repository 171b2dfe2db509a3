"""A program as text, with the methods that programs call on modules of other compilers."""

from __future__ import annotations

from typing import Any

from weft.hlo.lowering import symbol


class ProgramText(str):
    """A text with a `name`."""
    name: str

    def __new__(cls, text: str, name: str) -> ProgramText:
        made = super().__new__(cls, text)
        made.name = symbol(name)
        return made

    def to_string(self, *_options: Any) -> str:
        """The text."""
        return str(self)

    as_hlo_text = to_string

    def as_hlo_module(self) -> ProgramText:
        """Itself."""
        return self
