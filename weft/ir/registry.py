"""Every primitive by its name: what `core.primitive` registers and the text of programs is read with."""

from typing import Any

registry: dict[str, Any] = {}
