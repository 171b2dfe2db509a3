"""Recorded steps of compiled programs: counts, results, names, lines, memory, and files."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.profiler.test_profiler import events_of
from weft._engine.codegen.program import profiled_entry
from weft._engine.ir import program as P
from weft.profiler import Profile, record
from weft.sharding import NamedSharding, PartitionSpec

X = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)


def with_loop(x):
    y = wnp.tanh(x @ x) + x

    def body(carry, row):
        return carry @ x + row, carry.sum()

    last, sums = weft.lax.scan(body, y, wnp.stack([x, y, x]))
    return wnp.sort(last, axis=0), sums


def with_branch(x):
    return weft.lax.cond(x.sum() > 1e9, lambda: wnp.cumsum(x, 0), lambda: x @ wnp.sin(x))


def with_library(x):
    return wnp.linalg.cholesky(x @ x.T + 100 * wnp.eye(64)), wnp.fft.fft(x)


def with_task_loop(x):
    return weft.lax.map(lambda row: wnp.sort(row)[:7] @ x[:7], wnp.tile(x, (8, 1)))


PROGRAMS = [with_loop, with_branch, with_library, with_task_loop]


def executable_of(jitted, *args):
    return jitted.lower(*args).compile().runtime_executable()


def runs_of(steps, times=1) -> list[int]:
    """Return the expected number of runs of all steps of a schedule without branches and while loops."""
    counts = []
    for step in steps:
        counts.append(times)
        if isinstance(step, P.Loop):
            inner = 0 if step.tasks else times * step.extent
            counts += runs_of(step.body, inner)
    return counts


@pytest.mark.parametrize("fun", PROGRAMS, ids=lambda f: f.__name__)
def test_recorded_results_are_bitwise_equal(fun):
    jitted = weft.jit(fun)
    expected = weft.tree.leaves(jitted(X))
    with record() as profile:
        results = weft.tree.leaves(jitted(X))
    assert [np.asarray(x).tobytes() for x in results] == [np.asarray(x).tobytes() for x in expected]
    assert len(profile.calls) == 1 and profile.dropped == 0


@pytest.mark.parametrize("fun", [with_loop, with_library, with_task_loop], ids=lambda f: f.__name__)
def test_each_step_of_the_schedule_is_recorded(fun):
    jitted = weft.jit(fun)
    program = executable_of(jitted, X).stages.scheduled.program
    expected = runs_of(program.steps)
    with record() as profile:
        for _ in range(3):
            jitted(X)
    assert [step.runs for step in profile.steps()] == [3 * count for count in expected]
    rows = Counter(event.facts.number for event in profile.events() if not event.tasks)
    assert rows == {i: 3 * count for i, count in enumerate(expected) if count}


def test_only_the_chosen_branch_runs():
    jitted = weft.jit(with_branch)
    with record() as profile:
        jitted(X)
    inside = {s.facts.equations: s.runs for s in profile.steps() if s.facts.parent >= 0}
    assert sorted(inside.values())[0] == 0 and max(inside.values()) == 1
    assert all(runs == 0 for eqns, runs in inside.items() if any("cum" in e for e in eqns))


def test_tasks_of_threads_add_up():
    jitted = weft.jit(lambda x: wnp.sin(x) * 2)
    x = np.ones((512, 1024), np.float32)
    kernel = executable_of(jitted, x).stages.scheduled.kernels[0]
    with record() as profile:
        jitted(x)
    (step,) = profile.steps()
    parts = [event for event in profile.events() if event.tasks]
    whole = [event for event in profile.events() if not event.tasks]
    assert step.runs == 1 and len(whole) == 1
    assert sum(event.tasks for event in parts) == kernel.parallel_extent > 1
    assert len({event.worker for event in parts}) == len(parts)
    assert all(whole[0].begin <= e.begin <= e.end <= whole[0].end for e in parts)


def test_matmuls_record_their_tasks():
    jitted = weft.jit(lambda x: x @ x)
    x = np.ones((512, 512), np.float32)
    with record() as profile:
        jitted(x)
        jitted(x)
    whole = [event for event in profile.events() if not event.tasks]
    parts = [event for event in profile.events() if event.tasks]
    assert [event.facts.kind for event in whole] == ["matmul"] * 2
    counts = [
        sum(e.tasks for e in parts if call.begin <= e.begin <= e.end <= call.end) for call in whole
    ]
    assert counts[0] == counts[1] > 1 and sum(counts) == sum(e.tasks for e in parts)


def test_steps_have_kinds_lines_and_costs():
    with record() as profile:
        weft.jit(with_loop)(X)
    (program,) = profile.programs
    steps = {step.kind: step for step in program.steps}
    assert {"matmul", "loop", "sort"} <= steps.keys()
    first = program.steps[0]
    line = with_loop.__code__.co_firstlineno + 1
    assert first.kind == "matmul" and first.line == f"test_recording.py:{line}"
    assert first.text == "y = wnp.tanh(x @ x) + x"
    assert first.flops == 2 * 64**3 + 2 * 64 * 64  # the product, tanh and the sum
    assert first.bytes == 2 * X.nbytes
    assert first.name.startswith("matmul 64x64x64 f32")


@pytest.mark.parametrize("fun", PROGRAMS, ids=lambda f: f.__name__)
def test_peak_of_memory_is_the_planned_one(fun):
    jitted = weft.jit(fun)
    executable = executable_of(jitted, X)
    with record() as profile:
        jitted(X)
    (program,) = profile.programs
    assert program.peak_bytes == executable.peak_bytes - executable.loaded.constant_bytes
    analysis = jitted.lower(X).compile().memory_analysis()
    assert program.peak_bytes == analysis.peak_memory_in_bytes
    trace = profile.to_json()["traceEvents"]
    assert max(e["args"]["bytes"] for e in trace if e["ph"] == "C") == program.peak_bytes
    assert program.peak_buffers[0].bytes == max(b.bytes for b in program.peak_buffers)


def test_collectives_are_marked_on_each_device():
    mesh = weft.make_mesh((8,), ("x",))
    put = lambda *spec: weft.device_put(X, NamedSharding(mesh, PartitionSpec(*spec)))
    jitted = weft.jit(lambda a, b: (a @ b).sum())
    a, b = put(None, "x"), put("x")
    with record() as profile:
        jitted(a, b)
    kinds = [step.collective for step in profile.programs[-1].steps]
    assert [r.kind for r in executable_of(jitted, a, b).stages.collectives] == ["psum"]
    (step,) = [step for step in profile.programs[-1].steps if step.collective == "psum"]
    assert step.reason == "dot_general sums over a dim that is split over x"
    assert profile.programs[-1].devices == tuple(range(8))
    for device in range(8):
        assert len([*profile.events(device)]) == len(kinds)
    assert [*profile.events(device=8)] == []


def test_donated_memory_is_reused():
    jitted = weft.jit(lambda x: x * 2 + 1, donate_argnums=0)
    x = weft.device_put(X)
    with record() as profile:
        y = jitted(x)
    assert x.is_deleted() and np.array_equal(y, X * 2 + 1)
    assert profile.programs[-1].result_bytes == 0


def test_dropped_events_are_counted(monkeypatch):
    monkeypatch.setattr(profiled_entry, "MOST_RECORDS", 4)
    jitted = weft.jit(with_loop)
    steps = runs_of(executable_of(jitted, X).stages.scheduled.program.steps)
    with record() as profile:
        jitted(X)
    assert len(profile.calls[0].records.rows) == 4
    whole = sum(steps)
    assert profile.dropped >= whole - 4
    assert [step.runs for step in profile.steps()] == steps
    assert f"{profile.dropped} events did not fit" in str(profile)


def test_code_of_other_programs_stays_the_same():
    jitted = weft.jit(with_loop)
    executable = executable_of(jitted, X)
    before = executable.loaded.native.build_record
    texts, stored = before.entry_texts, before.stored
    jitted(X)
    with record():
        jitted(X)
    assert executable.loaded.native.build_record.entry_texts == texts
    assert not any("weft_record" in text or "clock_gettime" in text for text in texts)
    again = weft.jit(lambda x: with_loop(x))
    assert executable_of(again, X).loaded.native.build_record.entry_texts == texts
    assert set(stored) & set(executable_of(again, X).loaded.native.build_record.stored)


def test_each_thread_has_its_name_and_its_calls():
    jitted = weft.jit(lambda x: wnp.sin(x) @ x)
    jitted(X)
    with record() as profile:
        threads = [
            threading.Thread(target=lambda: [jitted(X) for _ in range(5)], name=f"reader {i}")
            for i in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    calls = Counter(profile.threads[call.thread] for call in profile.calls)
    assert calls == {f"reader {i}": 5 for i in range(3)}
    assert {step.runs for step in profile.steps()} == {15}
    names = [e for e in profile.to_json()["traceEvents"] if e["name"] == "thread_name"]
    assert {"reader 0", "reader 1", "reader 2"} <= {e["args"]["name"] for e in names}


def test_errors_of_callbacks_pass_through():
    def fail(x):
        raise ValueError("no")

    jitted = weft.jit(
        lambda x: weft.pure_callback(fail, weft.ShapeDtypeStruct(x.shape, x.dtype), x)
    )
    with record() as profile, pytest.raises(Exception, match="no"):
        weft.block_until_ready(jitted(X))
    assert len(profile.calls) == 1
    with record() as profile:
        weft.jit(lambda x: x + 1)(X)
    assert len(profile.calls) == 1


def test_perfetto_events_nest(tmp_path):
    with record() as profile:
        weft.jit(with_loop)(X)
    profile.save(tmp_path / "trace.json")
    data = json.loads((tmp_path / "trace.json").read_text())
    tracks: dict[tuple, list] = {}
    for event in data["traceEvents"]:
        assert event["ph"] in "XCM" and isinstance(event["pid"], int)
        if event["ph"] == "X":
            begin, end = round(1e3 * event["ts"]), round(1e3 * (event["ts"] + event["dur"]))
            tracks.setdefault((event["pid"], event["tid"]), []).append((begin, -end))
    assert len(tracks) >= 2  # the thread of the call, and a device
    for spans in tracks.values():
        open_ends: list[int] = []
        for begin, end in sorted(spans):
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            assert not open_ends or -end <= open_ends[-1]
            open_ends.append(-end)


@pytest.mark.parametrize("name", ["p.json", "p.json.gz"])
def test_saved_profiles_load(tmp_path, name):
    with record() as profile:
        weft.jit(with_loop)(X)
    profile.save(tmp_path / name)
    loaded = Profile.load(tmp_path / name)
    assert str(loaded) == str(profile) and loaded.programs == profile.programs
    assert [e.begin for e in loaded.events()] == [e.begin for e in profile.events()]
    assert loaded.threads == profile.threads


def test_other_files_are_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"traceEvents": []}')
    with pytest.raises(ValueError, match=r"has no profile of version 1\. Write one with"):
        Profile.load(tmp_path / "x.json")


def test_traces_have_the_steps(tmp_path):
    with weft.profiler.trace(tmp_path):
        weft.jit(lambda x: with_loop(x))(X)
    events = events_of(tmp_path)
    kinds = {event.get("cat") for event in events}
    assert {"compile", "run", "call", "matmul", "sort", "loop"} <= kinds
    options = weft.profiler.ProfileOptions()
    options.device_tracer_level = 0
    with weft.profiler.trace(tmp_path / "calls", profiler_options=options):
        weft.jit(with_loop)(X)
    kinds = {event.get("cat") for event in events_of(tmp_path / "calls")}
    assert "run" in kinds and "matmul" not in kinds


def test_profiles_print_the_longest_steps_first():
    with record() as profile:
        weft.jit(with_loop)(X)
    lines = str(profile).splitlines()
    assert lines[0].startswith("1 call of 1 compiled program, ")
    times = [float(line.split()[0]) for line in lines[2:]]
    assert times == sorted(times, reverse=True) and len(times) == len(profile.steps())
    assert os.path.basename(__file__) in lines[2]
    assert sum(total.share for total in profile.lines()) == pytest.approx(1)
