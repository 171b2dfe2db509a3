"""A program as text, with the methods that programs call on modules of other compilers."""

from __future__ import annotations

from typing import Any

from weft._engine.hlo.lowering import symbol


class ProgramText(str):
    """A text with a `name`, and the same program with its places in the user's program, if that is another text."""

    name: str
    placed: str | None

    def __new__(cls, text: str, name: str, placed: str | None = None) -> ProgramText:
        made = super().__new__(cls, text)
        made.name, made.placed = symbol(name), placed
        return made

    def to_string(self, *_options: Any) -> str:
        """The text."""
        return str(self)

    as_hlo_text = to_string

    def as_hlo_module(self) -> ProgramText:
        """The module, which prints with places."""
        return self if self.placed is None else ProgramText(self.placed, self.name)
