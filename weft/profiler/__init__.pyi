"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft.profiler.comparison import ProfileComparison, StepDifference, compare
from weft.profiler.memory import device_memory_profile, save_device_memory_profile
from weft.profiler.profile import LineTotal, Profile, StepEvent, StepTotal
from weft.profiler.recording import record
from weft.profiler.tracing import (
    ProfileOptions, StepTraceAnnotation, TraceAnnotation, annotate_function, start_server,
    start_trace, stop_server, stop_trace, trace,
)

__all__ = [
    "LineTotal", "Profile", "ProfileComparison", "ProfileOptions", "StepDifference", "StepEvent",
    "StepTotal", "StepTraceAnnotation", "TraceAnnotation", "annotate_function", "compare",
    "device_memory_profile", "record", "save_device_memory_profile", "start_server", "start_trace",
    "stop_server", "stop_trace", "trace",
]
