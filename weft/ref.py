"""References to mutable arrays: their types, and functions that read and write."""

from weft.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft.api.refs": "addupdate empty_ref free_ref freeze get new_ref set swap",
        "weft.control.ref": "AbstractRef Ref",
    },
)
