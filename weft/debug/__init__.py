"""Debugging of running programs: prints, callbacks, breakpoints, and pictures of shardings."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft.debug.debugger": "breakpoint",
        "weft.debug.inspecting": "inspect_array_sharding",
        "weft.debug.printing": "callback log print",
        "weft.debug.visualize": "visualize_array_sharding visualize_sharding",
    },
)
