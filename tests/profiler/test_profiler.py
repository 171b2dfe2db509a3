"""Memory profiles, read back by a small reader of pprof files, and traces."""

from __future__ import annotations

import gc
import glob
import gzip
import json
import os
import threading
from collections import Counter

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.profiler import pprof
from weft.sharding import NamedSharding, PartitionSpec as P

# --- a reader of pprof ------------------------------------------------------------------------------------------------


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def fields(data: bytes) -> list:
    """Return pairs of field number and int or bytes of a message."""
    pairs, at = [], 0
    while at < len(data):
        key, at = varint(data, at)
        assert key & 7 in (0, 2)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        pairs.append((key >> 3, value))
    return pairs


def numbers(data: bytes) -> list[int]:
    values, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


def read(profile: bytes) -> tuple[list, list]:
    """Return the types, and the samples as (stack, values, labels)."""
    message = fields(gzip.decompress(profile))
    texts = [v.decode() for n, v in message if n == 6]
    assert texts[0] == ""
    named = {dict(fields(v))[1]: texts[dict(fields(v))[2]] for n, v in message if n == 5}
    places = {
        dict(fields(v))[1]: named[dict(fields(dict(fields(v))[4]))[1]] for n, v in message if n == 4
    }
    types = [tuple(texts[t] for _, t in fields(v)) for n, v in message if n == 1]
    samples = []
    for data in (v for n, v in message if n == 2):
        parts = fields(data)
        stack = [places[i] for n, v in parts if n == 1 for i in numbers(v)]
        values = [i for n, v in parts if n == 2 for i in numbers(v)]
        labels = {texts[dict(fields(v))[1]]: texts[dict(fields(v))[2]] for n, v in parts if n == 3}
        samples.append((stack, values, labels))
    return types, samples


def held(profile: bytes, what: str) -> dict[str, tuple[int, int]]:
    """Count and bytes of arrays of type `what`, by device."""
    types, samples = read(profile)
    assert types == [("allocations", "count"), ("space", "bytes")]
    assert all(labels["kind"] == "buffer" for _, _, labels in samples)
    return {labels["device"]: tuple(values) for stack, values, labels in samples if stack == [what]}


def test_the_writer_and_large_numbers():
    profile = pprof.encode(
        [("a", "b")],
        [pprof.Sample(("f", "g"), (0,), {}), pprof.Sample(("g",), (1 << 40,), {"k": "ü"})],
    )
    assert read(profile) == ([("a", "b")], [(["f", "g"], [0], {}), (["g"], [1 << 40], {"k": "ü"})])


# --- memory -----------------------------------------------------------------------------------------------------------


def test_each_device_is_charged_for_its_shards():
    mesh = weft.make_mesh((4, 2), ("i", "j"))
    put = lambda *spec: weft.device_put(
        np.zeros((8, 1237), np.float32), NamedSharding(mesh, P(*spec))
    )
    x, y = put("i"), put()
    whole = 8 * 1237 * 4
    profile = weft.profiler.device_memory_profile()
    assert held(profile, "float32[8,1237]") == {
        f"cpu:{i}": (2, whole // 4 + whole) for i in range(8)
    }
    z = weft.device_put(np.zeros(1239, np.int8), weft.devices()[3])
    del x, y
    gc.collect()
    profile = weft.profiler.device_memory_profile()
    assert held(profile, "float32[8,1237]") == {} and held(profile, "int8[1239]") == {
        "cpu:3": (1, 1239)
    }
    z.delete()
    assert held(weft.profiler.device_memory_profile(), "int8[1239]") == {}


def test_results_of_native_dispatch_and_shared_memory_are_seen():
    f = weft.jit(lambda x: x + 1)
    x = wnp.zeros(1241)
    results = [f(x) for _ in range(5)]
    shared = weft.device_put(x, x.sharding)
    assert held(weft.profiler.device_memory_profile(), "float32[1241]") == {
        "cpu:0": (6, 6 * 1241 * 4)
    }
    alive = weft.live_arrays()
    assert all(any(a is b for b in alive) for a in [x, shared, *results])
    results[0].delete()
    assert not any(a is results[0] for a in weft.live_arrays("cpu"))


def test_watching_from_a_thread_as_memory_inspectors_do(tmp_path):
    """A thread repeatedly writes the profile to another file and renames it while programs run."""
    target, stop = tmp_path / "memory.prof", threading.Event()
    failures = []

    def watch():
        while not stop.is_set():
            try:
                weft.profiler.save_device_memory_profile(f"{target}.new")
                os.rename(f"{target}.new", target)
            except BaseException as error:
                failures.append(error)
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    f = weft.jit(lambda x: wnp.sin(x) + 1)
    x = wnp.zeros(1 << 17)
    for _ in range(200):
        x = f(x)
    stop.set()
    thread.join(30)
    assert not failures and not thread.is_alive()
    weft.profiler.save_device_memory_profile(str(target))
    assert held(target.read_bytes(), f"float32[{1 << 17}]")["cpu:0"] == (1, 1 << 19)


def test_an_unknown_backend_is_refused():
    for call in (weft.profiler.device_memory_profile, weft.live_arrays):
        with pytest.raises(RuntimeError, match="quantum"):
            call("quantum")


# --- traces -----------------------------------------------------------------------------------------------------------


def events_of(folder) -> list[dict]:
    (path,) = glob.glob(f"{folder}/plugins/profile/*/*.trace.json.gz")
    with gzip.open(path) as file:
        return json.load(file)["traceEvents"]


def test_a_trace_has_compilations_runs_and_names(tmp_path):
    def step(x):
        return wnp.sin(x)

    f = weft.jit(step)
    named = weft.profiler.annotate_function(f, name="call")
    with weft.profiler.trace(tmp_path):
        for i in range(3):
            with weft.profiler.StepTraceAnnotation("train", step_num=i):
                named(wnp.ones(3))
    f(wnp.ones(3))  # not watched any more
    spans = [e for e in events_of(tmp_path) if e["ph"] == "X"]
    counts = Counter((e["cat"], e["name"]) for e in spans)
    assert counts["compile", "jit(step)"] == 1 and counts["run", "jit(step)"] == 3
    assert counts["annotation", "train"] == counts["annotation", "call"] == 3
    steps = [e for e in spans if e["name"] == "train"]
    assert [e["args"]["step_num"] for e in steps] == [0, 1, 2]
    runs = [e for e in spans if e["cat"] == "run" and e["name"] == "jit(step)"]
    assert all(
        s["ts"] <= r["ts"] and r["ts"] + r["dur"] <= s["ts"] + s["dur"] for s, r in zip(steps, runs)
    )


def test_one_trace_at_a_time(tmp_path):
    with pytest.raises(RuntimeError, match="no trace"):
        weft.profiler.stop_trace()
    weft.profiler.start_trace(tmp_path, create_perfetto_trace=True)
    with pytest.raises(RuntimeError, match="already"):
        weft.profiler.start_trace(tmp_path)
    weft.profiler.stop_trace()
    assert len(glob.glob(f"{tmp_path}/plugins/profile/*/perfetto_trace.json.gz")) == 1


def test_no_server_is_active():
    with pytest.raises(ValueError, match="no active profiler server"):
        weft.profiler.stop_server()


@pytest.mark.parametrize(
    "call",
    [
        lambda: weft.profiler.start_server(9999),
        lambda: weft.profiler.start_trace("x", create_perfetto_link=True),
    ],
)
def test_what_is_not_there_says_so(call):
    with pytest.raises(NotImplementedError, match="profiler"):
        call()


def test_the_profile_plugin_gets_the_same_events(tmp_path):
    with weft.profiler.trace(tmp_path), weft.profiler.TraceAnnotation("loading", batch=3):
        weft.jit(lambda x: x * 3)(1.0)
    (file,) = glob.glob(os.path.join(tmp_path, "plugins/profile/*/*.xplane.pb"))
    with open(file, "rb") as opened:
        space = fields(opened.read())
    (plane,) = [fields(v) for n, v in space if n == 1]
    assert dict(plane)[2] == b"/host:CPU" and [n for n, _ in space] == [1, 4]
    names, stats = (
        {
            dict(fields(dict(fields(v))[2]))[1]: dict(fields(dict(fields(v))[2]))[2].decode()
            for n, v in plane
            if n == field
        }
        for field in (4, 5)
    )
    events = [fields(e) for n, v in plane if n == 3 for k, e in fields(v) if k == 4]
    (loading,) = [e for e in events if names[dict(e)[1]] == "loading"]
    others = [e for e in events if e is not loading]
    assert others and all(
        dict(e).get(2, 0) + dict(e)[3] <= dict(loading).get(2, 0) + dict(loading)[3] for e in others
    )
    (fact,) = [fields(v) for n, v in loading if n == 4]
    assert (stats[dict(fact)[1]], dict(fact)[5]) == ("batch", b"3")


def test_options_of_traces(tmp_path):
    options = weft.profiler.ProfileOptions()
    options.host_tracer_level = 0
    with weft.profiler.trace(tmp_path, profiler_options=options):
        weft.jit(lambda x: x * 5)(1.0)
    (file,) = glob.glob(os.path.join(tmp_path, "plugins/profile/*/*.trace.json.gz"))
    with gzip.open(file) as opened:
        assert [e["ph"] for e in json.load(opened)["traceEvents"]] == ["M"]
    with pytest.raises(TypeError, match="ProfileOptions"):
        weft.profiler.start_trace(tmp_path, profiler_options={})
