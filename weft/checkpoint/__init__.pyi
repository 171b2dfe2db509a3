"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft.checkpoint.listing import delete, latest_step, steps
from weft.checkpoint.restoring import metadata, restore, verify
from weft.checkpoint.saving import Save, save, wait
from weft.checkpoint.tensor_files import export_safetensors, import_safetensors

__all__ = [
    "Save", "delete", "export_safetensors", "import_safetensors", "latest_step", "metadata",
    "restore", "save", "steps", "verify", "wait",
]
