"""Debugging of running programs: prints, callbacks, breakpoints, and pictures of shardings."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft._engine.debug.debugger": "breakpoint",
        "weft._engine.debug.inspect_sharding": "inspect_array_sharding",
        "weft._engine.debug.printing": "callback log print",
        "weft._engine.debug.visualize": "visualize_array_sharding visualize_sharding",
    },
)
