"""Looking at programs while they run: where arrays lie, and (inside traced functions) prints and callbacks.

The pictures are drawn by `weft.debug.visualize`. What needs effects inside compiled programs is not built yet and
says so when it is called.
"""

from collections.abc import Callable
from typing import Any, NoReturn

from weft.debug.visualize import visualize_array_sharding as visualize_array_sharding, visualize_sharding as visualize_sharding

__all__ = [
    "breakpoint",
    "callback",
    "inspect_array_sharding",
    "print",
    "visualize_array_sharding",
    "visualize_sharding",
]


def inspect_array_sharding(value: Any, *, callback: Callable[[Any], None]) -> None:
    """Call `callback` with the sharding of `value`; at once for an array, which is the only case served today."""
    sharding = getattr(value, "sharding", None)
    if sharding is None or not hasattr(sharding, "devices_indices_map"):
        raise NotImplementedError(
            "debug.inspect_array_sharding: inside a traced function the sharding is known only after compilation, "
            "and callbacks from compiled programs are not built yet. Call it on a concrete array."
        )
    callback(sharding)


def print(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> NoReturn:
    """Print formatted values from inside a compiled program; not built yet."""
    raise _needs_effects("print")


def callback(callback: Callable[..., None], *args: Any, ordered: bool = False, **kwargs: Any) -> NoReturn:
    """Call a Python function from inside a compiled program; not built yet."""
    raise _needs_effects("callback")


def breakpoint(**kwargs: Any) -> NoReturn:
    """Stop inside a compiled program; not built yet."""
    raise _needs_effects("breakpoint")


def _needs_effects(name: str) -> NotImplementedError:
    return NotImplementedError(f"debug.{name}: effects inside compiled programs are not built yet")
