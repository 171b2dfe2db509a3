"""References to mutable arrays: their types, and functions that read and write."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft._engine.api.refs": "addupdate empty_ref free_ref freeze get new_ref set swap",
        "weft._engine.control.ref": "AbstractRef Ref",
    },
)
