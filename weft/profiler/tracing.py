"""Traces: the times at which programs compile and run, and regions named by the user, as files for
trace viewers.

Between `start_trace` and `stop_trace` a `recording.Recorder` is active: every call of a compiled
program takes the Python path, and records its steps. A trace is written to two files:
HOST.trace.json.gz in Chrome's trace format, for chrome://tracing and Perfetto, and HOST.xplane.pb
for TensorBoard's profile plugin. Both are in the folder that the plugin reads:
DIR/plugins/profile/TIME.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from weft._engine.util import events
from weft._engine.util.refusals import refusal
from weft.profiler.recording import Recorder
from weft.profiler.trace_events import trace_events
from weft.profiler.xplane import TraceSpan, encode

_lock = threading.RLock()
_session: _Session | None = None


class ProfileOptions:
    """The options of `start_trace`: with `host_tracer_level` 0 nothing is recorded, with
    `device_tracer_level` 0 calls of programs are recorded as a whole, without their steps.

    `python_tracer_level` has no effect: calls of Python functions are not recorded.

    >>> options = ProfileOptions()
    >>> options.host_tracer_level = 0
    """

    def __init__(self) -> None:
        self.host_tracer_level, self.python_tracer_level, self.device_tracer_level = 2, 0, 1


class _Session:
    """A trace being recorded."""

    def __init__(
        self, directory: str | os.PathLike, perfetto: bool, options: ProfileOptions | None
    ):
        self.directory, self.perfetto = os.fspath(directory), perfetto
        self.recorded = options is None or options.host_tracer_level > 0
        self.recorder = Recorder(options is None or options.device_tracer_level > 0)

    def start(self) -> None:
        """Begin to record."""
        if self.recorded:
            self.recorder.start()

    def stop(self) -> None:
        """Record no more."""
        if self.recorded:
            self.recorder.stop()

    def write(self) -> None:
        """Write the recorded events."""
        profile = self.recorder.profile
        trace = trace_events(profile)
        text = json.dumps({"displayTimeUnit": "ms", "traceEvents": trace}, default=str)
        where = os.path.join(
            self.directory, "plugins", "profile", time.strftime("%Y_%m_%d_%H_%M_%S")
        )
        os.makedirs(where, exist_ok=True)
        host = platform.node() or "host"
        for name in [
            f"{host}.trace.json.gz",
            *(["perfetto_trace.json.gz"] if self.perfetto else []),
        ]:
            with gzip.open(os.path.join(where, name), "wt", encoding="utf-8") as file:
                file.write(text)
        spans = [
            TraceSpan(
                e["name"], max(0, int(e["ts"] * 1e3)), int(e["dur"] * 1e3), e["tid"], e["args"]
            )
            for e in trace
            if e["ph"] == "X" and e["pid"] == os.getpid()
        ]
        names = {e["tid"]: e["args"]["name"] for e in trace if e["name"] == "thread_name"}
        with open(os.path.join(where, f"{host}.xplane.pb"), "wb") as file:
            file.write(encode(spans, profile.time, host, names))


def start_trace(
    log_dir: str | os.PathLike,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: Any = None,
) -> None:
    """Start recording compilations, program runs and named regions; `stop_trace` writes them under
    `log_dir`.

    `profiler_options` must be `ProfileOptions`; otherwise TypeError is raised.
    """
    if create_perfetto_link:
        raise NotImplementedError(
            "profiler.start_trace: create_perfetto_link is not supported; create_perfetto_trace writes the file "
            "that ui.perfetto.dev opens."
        )
    if not isinstance(profiler_options, ProfileOptions | None):
        raise TypeError(
            f"profiler.start_trace: profiler_options are weft.profiler.ProfileOptions, got {profiler_options!r:.80}."
        )
    global _session
    with _lock:
        if _session is not None:
            raise RuntimeError(
                "profiler.start_trace: a trace is being recorded already; call stop_trace first."
            )
        _session = _Session(log_dir, create_perfetto_trace, profiler_options)
        _session.start()


def stop_trace() -> None:
    """End the trace and write it; see `start_trace`."""
    global _session
    with _lock:
        session, _session = _session, None
        if session is None:
            raise RuntimeError(
                "profiler.stop_trace: no trace is being recorded; call start_trace first."
            )
        session.stop()
    session.write()


@contextmanager
def trace(
    log_dir: str | os.PathLike,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: Any = None,
) -> Iterator[None]:
    """Record a trace of the block and write it under `log_dir`.

    >>> import os, tempfile, weft
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with weft.profiler.trace(folder):
    ...         _ = weft.jit(lambda x: x + 1)(1.0)
    ...     os.listdir(folder)
    ['plugins']
    """
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


class TraceAnnotation:
    """A named region of a trace, as a context manager; `metadata` is shown with it.

    >>> with TraceAnnotation("load", batch=3):
    ...     pass
    """

    def __init__(self, name: str, **metadata: Any):
        self.name, self.metadata = name, metadata

    def __enter__(self) -> TraceAnnotation:
        self._start = time.perf_counter_ns()
        return self

    def __exit__(self, *exc: object) -> None:
        if events.listeners:
            events.emit(
                "annotation", self.name, self._start, time.perf_counter_ns(), **self.metadata
            )


class StepTraceAnnotation(TraceAnnotation):
    """A step of a training loop in a trace, with the number `step_num`.

    >>> with StepTraceAnnotation("train", step_num=0):
    ...     pass
    """


def annotate_function(func: Callable, name: str | None = None, **decorator_kwargs: Any) -> Callable:
    """Return `func` as a function whose calls are named regions of a trace.

    >>> annotate_function(len)([1, 2])
    2
    """
    label = name or getattr(func, "__qualname__", type(func).__name__)

    @functools.wraps(func)
    def annotated(*args: Any, **kwargs: Any) -> Any:
        with TraceAnnotation(label, **decorator_kwargs):
            return func(*args, **kwargs)

    return annotated


def start_server(port: int, requires_backend: bool = True) -> NoReturn:
    """Raise an error: a server that records traces on request is not supported."""
    raise refusal("weft.profiler", "start_server")


def stop_server() -> NoReturn:
    """Raise ValueError: no server can be active; see `start_server`."""
    raise ValueError(
        "profiler.stop_server: there is no active profiler server. Traces are stopped by stop_trace."
    )
