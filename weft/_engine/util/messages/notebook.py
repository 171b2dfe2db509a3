"""The base class of objects that notebooks show as HTML."""

from __future__ import annotations

from weft._engine.hooks import notebook_html


class NotebookDisplay:
    """A class whose objects notebooks show as HTML; `weft._engine.debug.notebook` writes it."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        """Return HTML for notebooks; None for the text of `repr`."""
        return notebook_html(self)
