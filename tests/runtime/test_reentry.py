"""Programs that user code calls in the midst of a first call: from import hooks, trace functions, handlers of signals and finalizers.

Each case is a separate process. Its first calls, of programs that need different parts of the package, run while `hook` calls other
programs at every event, or at a limited number of events. All results equal the results of NumPy.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import builtins, gc, os, signal, sys, time, weakref
import numpy as np
from numpy import testing
import weft, weft.numpy as wnp
from weft import lax

PACKAGE = os.path.dirname(weft.__file__)
x = np.linspace(0, 4, 200 * 64, dtype=np.float32).reshape(200, 64)
v = np.linspace(0, 1, 500, dtype=np.float32)

def close(got, want):
    testing.assert_allclose(np.asarray(got), want, rtol=2e-3, atol=1e-4)

first_calls = [
    (weft.jit(lambda x: (wnp.sin(x) * 3).sum(0) @ wnp.tanh(x).T), lambda: (np.sin(x) * 3).sum(0) @ np.tanh(x).T),
    (weft.jit(lambda x: lax.scan(lambda c, r: (c + r, wnp.sort(c * r)), x[0], x)[0]), lambda: x[0] + x.sum(0)),
    (weft.jit(lambda x: weft.vmap(weft.grad(lambda r: (wnp.cos(r) * r[::-1]).sum()))(x)),
     lambda: -np.sin(x) * x[:, ::-1] + np.cos(x)[:, ::-1]),
    (weft.jit(lambda x: wnp.abs(wnp.fft.fft(x[:, 0])) + wnp.cumsum(x[:, 1])),
     lambda: np.abs(np.fft.fft(x[:, 0])) + np.cumsum(x[:, 1])),
]
other = weft.jit(lambda x: wnp.sort(wnp.cos(x) * 2, axis=0).sum(1))
split = weft.sharding.NamedSharding(weft.make_mesh((2,), ("i",)), weft.sharding.PartitionSpec("i"))
sharded = weft.jit(lambda v: wnp.flip(v) * 2, in_shardings=split, out_shardings=split)

def call_same():
    function, want = first_calls[state.number]
    close(function(x), want())

def call_fresh():
    n = state.calls
    close(weft.jit(lambda v: (wnp.log1p(v) * n).sum())(v), (np.log1p(v) * n).sum())

KINDS = [
    call_same,
    lambda: close(other(x), np.sort(np.cos(x) * 2, axis=0).sum(1)),
    lambda: close(wnp.arctan(wnp.asarray(v)).cumsum(), np.arctan(v).cumsum()),
    lambda: close(weft.grad(lambda v: wnp.exp(v).sum() + v[0] * 2)(v), np.exp(v) + 2 * (np.arange(500) == 0)),
    lambda: close(sharded(v), v[::-1] * 2),
    call_fresh,
]

class state:
    number = calls = events = 0
    is_inside = False
    errors = []

def call_programs(is_trace_context_own=False):
    "Call a program of the next kind, unless this is such a call."
    if state.is_inside or state.errors:
        return
    state.is_inside = True
    try:
        if is_trace_context_own:
            KINDS[state.calls % len(KINDS)]()
        else:
            with weft.ensure_compile_time_eval():
                KINDS[state.calls % len(KINDS)]()
    except BaseException as error:
        state.errors.append(error)
    finally:
        state.calls += 1
        state.is_inside = False

def hook(every=1):
    "Call programs at the first 200 events, then now and then."
    state.events += 1
    if state.events % every == 0 and (state.events < 200 * every or state.events % (every * 25) == 0):
        call_programs()

def check_collector():
    "The collector of garbage runs again, as soon as no other thread pauses it."
    deadline = time.monotonic() + 20
    while not gc.isenabled():
        assert time.monotonic() < deadline
        time.sleep(0.01)

def run(least, begin=lambda: None, end=lambda: None):
    "The first calls. The minimal number of programs that are called meanwhile."
    for state.number, (function, want) in enumerate(first_calls):
        begin()
        try:
            first, second = function(x), function(x)
        finally:
            end()
        if state.errors:
            raise state.errors[0]
        close(first, want())
        close(second, want())
    assert state.calls >= least, state.calls
"""

CASES = {
    "an import hook before modules": """
        class Finder:
            def find_spec(name, path=None, target=None):
                hook()
        run(0, lambda: sys.meta_path.insert(0, Finder), lambda: sys.meta_path.remove(Finder))
    """,
    "an import hook that wraps loaders": """
        import importlib.machinery, importlib.util
        class Loader:
            def __init__(self, loader): self.loader = loader
            def create_module(self, spec): hook()
            def exec_module(self, module):
                hook()
                self.loader.exec_module(module)
                hook()
        class Finder:
            def find_spec(name, path=None, target=None):
                hook()
                spec = importlib.machinery.PathFinder.find_spec(name, path)
                if spec is not None and name.startswith("weft."):
                    spec.loader = Loader(spec.loader)
                    return spec
        run(0, lambda: sys.meta_path.insert(0, Finder), lambda: sys.meta_path.remove(Finder))
    """,
    "a function in the place of __import__": """
        original = builtins.__import__
        def importer(name, *rest):
            hook()
            module = original(name, *rest)
            hook()
            return module
        def begin(): builtins.__import__ = importer
        def end(): builtins.__import__ = original
        run(3, begin, end)
    """,
    "a trace function at calls": """
        def trace(frame, event, arg):
            if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
                hook(every=3)
        run(100, lambda: sys.settrace(trace), lambda: sys.settrace(None))
    """,
    "a trace function at lines": """
        def trace(frame, event, arg):
            if not frame.f_code.co_filename.startswith(PACKAGE) or state.is_inside:
                return None
            if event == "line":
                hook(every=5)
            return trace
        run(200, lambda: sys.settrace(trace), lambda: sys.settrace(None))
    """,
    "a trace function at the lines of modules": """
        def trace(frame, event, arg):
            if not frame.f_code.co_filename.startswith(PACKAGE) or frame.f_code.co_name != "<module>":
                return None
            hook()
            return trace
        run(0, lambda: sys.settrace(trace), lambda: sys.settrace(None))
        assert not state.calls                      # no module is executed where programs could be called
    """,
    "a profile function": """
        def profile(frame, event, arg):
            if event in ("call", "c_return") and frame.f_code.co_filename.startswith(PACKAGE):
                hook(every=3)
        run(200, lambda: sys.setprofile(profile), lambda: sys.setprofile(None))
    """,
    "handlers of signals": """
        def handle(*_):
            call_programs(is_trace_context_own=True)
            begin()
        def begin(): signal.setitimer(signal.ITIMER_REAL, 0.002)
        def end(): signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handle)
        run(3, begin, end)
        end()
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
    """,
    "finalizers and callbacks of weak references": """
        class Garbage:
            def __init__(self):
                self.me = self
            def __del__(self):
                if not is_over:                     # the end of the process ends threads that have locks
                    call_programs(is_trace_context_own=True)
                    again()
        def called(_):
            if not is_over:
                call_programs(is_trace_context_own=True)
        garbage = []
        def again():
            garbage[:] = [weakref.ref(Garbage(), called)]
        is_over = []
        gc.set_threshold(50, 2, 2)
        run(3, again)
        is_over.append(1)
        check_collector()
    """,
    "interrupts": """
        function, want = first_calls[0]
        begun, interrupts = time.monotonic(), 0
        delay = 0.001
        calling = []
        def interrupt(*_):                          # the system may deliver a signal late
            if calling:
                raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        while True:
            signal.setitimer(signal.ITIMER_REAL, delay)
            try:
                try:
                    calling.append(1)
                    got = function(x)
                finally:
                    calling.clear()
                    signal.setitimer(signal.ITIMER_REAL, 0)
                break
            except KeyboardInterrupt:
                interrupts, delay = interrupts + 1, delay * 1.3
        close(got, want())
        close(function(x), want())
        assert interrupts > 3
        check_collector()
        run(0)
    """,
}


def start(body: str, cache: str) -> subprocess.Popen:
    env = {
        **os.environ,
        "WEFT_NUM_THREADS": "2",
        "WEFT_NUM_DEVICES": "2",
        "WEFT_CACHE_DIR": cache,
        "PYTHONWARNINGS": "ignore",
        "WEFT_VERIFY": "0",
    }
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(body)],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


#: what Python prints of an interrupt within a finalizer, where it cannot raise it
_UNRAISABLE = re.compile(
    r"Exception ignored in: [^\n]*\nTraceback [^\n]*\n(?:[ \n][^\n]*\n|\n)*KeyboardInterrupt: ?\n"
)


def finish(process: subprocess.Popen, allows_unraisable_interrupts: bool = False) -> None:
    try:
        out, error = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, error
    if allows_unraisable_interrupts:
        error = _UNRAISABLE.sub("", error)
    assert (out, error) == ("", "")


@pytest.mark.skipif(
    not hasattr(__import__("signal"), "setitimer"), reason="needs timers that send signals"
)
@pytest.mark.parametrize("name", CASES)
def test_programs_called_within_first_calls(name):
    finish(start(CASES[name], "off"), name == "interrupts")


@pytest.mark.parametrize(
    "name", ["a trace function at calls", "a function in the place of __import__"]
)
def test_programs_called_while_programs_load(name, tmp_path):
    finish(start("run(0)", str(tmp_path)))
    finish(start(CASES[name], str(tmp_path)))


AT_ONE_POINT = """
    import random, traceback
    function, want = first_calls[0]
    child_of_event = None

    def count():
        "The number of events of a first call, which a child makes."
        read, write = os.pipe()
        if os.fork() == 0:
            number = [0]
            def trace(frame, event, arg):
                number[0] += frame.f_code.co_filename.startswith(PACKAGE)
            sys.settrace(trace)
            function(x), function(x)
            sys.settrace(None)
            os.write(write, str(number[0]).encode())
            os._exit(0)
        os.wait()
        return int(os.read(read, 100))

    total = count()
    early = random.Random(1).sample(range(1, total // 8), 24)         # tracing, imports
    points = {*early, *random.Random(2).sample(range(total // 8, total * 9 // 10), 16)}

    def at_point():
        global child_of_event
        pid = os.fork()
        if pid == 0:
            sys.settrace(None)
            signal.alarm(30)
            child_of_event, state.calls = state.events, state.events
            call_programs()
        else:
            assert os.waitpid(pid, 0)[1] == 0

    def trace(frame, event, arg):
        if child_of_event is None and frame.f_code.co_filename.startswith(PACKAGE):
            state.events += 1
            if state.events in points:
                at_point()

    sys.settrace(trace)
    try:
        got = function(x), function(x)
        sys.settrace(None)
        for result in got:
            close(result, want())
        if state.errors:
            raise state.errors[0]
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    if child_of_event is not None:
        KINDS[state.events % len(KINDS)]()
        os._exit(0)
    reached = len([point for point in points if point <= state.events])
    assert reached >= 24, (reached, total, state.events)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_a_program_called_at_one_point_of_a_first_call():
    finish(start(AT_ONE_POINT, "off"))
