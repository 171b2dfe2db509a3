"""Profiling: the memory of each device (`memory`), and the times at which programs compile and run
(`tracing`)."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft.profiler.memory": "device_memory_profile save_device_memory_profile",
        "weft.profiler.tracing": "ProfileOptions StepTraceAnnotation TraceAnnotation annotate_function start_server start_trace "
        "stop_server stop_trace trace",
    },
)
