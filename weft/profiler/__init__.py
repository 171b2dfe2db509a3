"""Profiling: the memory of each device (`memory`), the steps of compiled programs (`recording`), and
traces for trace viewers (`tracing`)."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft.profiler.memory": "device_memory_profile save_device_memory_profile",
        "weft.profiler.comparison": "ProfileComparison StepDifference compare",
        "weft.profiler.profile": "LineTotal Profile StepEvent StepTotal",
        "weft.profiler.recording": "record",
        "weft.profiler.tracing": "ProfileOptions StepTraceAnnotation TraceAnnotation annotate_function start_server start_trace "
        "stop_server stop_trace trace",
    },
)
