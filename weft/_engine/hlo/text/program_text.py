"""A program as text, with the methods that JAX users call on modules of other compilers."""

from __future__ import annotations

from typing import Any

from weft._engine.hlo.lowering import symbol


class ProgramText(str):
    """A text with a `name`, and the same program with source places, if that is another text."""

    name: str
    placed: str | None

    def __new__(cls, text: str, name: str, placed: str | None = None) -> ProgramText:
        text_object = super().__new__(cls, text)
        text_object.name, text_object.placed = symbol(name), placed
        return text_object

    def to_string(self, *_options: Any) -> str:
        """The text."""
        return str(self)

    as_hlo_text = to_string

    def as_hlo_module(self) -> ProgramText:
        """Return the module, which prints with source places."""
        return self if self.placed is None else ProgramText(self.placed, self.name)
