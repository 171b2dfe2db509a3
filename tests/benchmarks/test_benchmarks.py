"""The benchmark suite itself: its cases load on weft, a worker responds, and reports have the right
content."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft

HOME = Path(weft.__file__).parents[1] / "benchmarks"
GROUPS = {
    "start",
    "dispatch",
    "eager",
    "first calls",
    "tracing",
    "elementwise",
    "reductions",
    "norms",
    "scans and sorts",
    "data movement",
    "random",
    "matmul",
    "linear algebra",
    "convolution",
    "attention",
    "steps",
    "resharding",
    "collectives",
    "transfers",
    "scale",
    "tutorial",
    "whole programs",
    "library",
    "simulators",
}


SCRIPT = "report"


@pytest.fixture(scope="module")
def report(script):
    return script


def ask(engine, *requests):
    """Return the responses of a worker process."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(
        [sys.executable, str(HOME / "worker.py"), engine, "8"],
        input=lines,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(HOME.parent)},
        timeout=120,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_subject_has_cases_and_a_worker_answers():
    cases, setup, times, memory, wrong = ask(
        "weft",
        {"do": "list"},
        {"do": "setup", "case": "eager x + x"},
        {"do": "round", "seconds": 0.001},
        {"do": "close"},
        {"do": "setup", "case": "no such case"},
    )
    assert {case["group"] for case in cases} == GROUPS
    assert all(case["script"] for case in cases if case["kind"] == "process")
    assert len([case for case in cases if case["group"] == "resharding"]) == 9 * 8
    assert setup["first"] > 0 and setup["read"] == 32 and setup["written"] == 32
    assert times["times"] and min(times["times"]) > 0
    assert memory["base_mib"] > 0
    assert wrong["error"].startswith("KeyError")


def test_limits_are_rates():
    answers = ask(
        "limits",
        *(
            {"do": "round", "what": what, "seconds": 0.0}
            for what in ("copy", "read", "write", "float32", "bfloat16")
        ),
    )
    assert all(answer["rate"] > 0 for answer in answers), answers


def step(name="exp", ratio=0.5, **more):
    best = {"weft": 1e-3 * ratio, "peer": 1e-3}
    return {
        "name": name,
        "group": "elementwise",
        "kind": "step",
        "date": "2026-01-01",
        "best": best,
        "ratio": ratio,
        "median_ratio": ratio,
        **more,
    }


@pytest.mark.parametrize(
    ("row", "missed"),
    [
        (step(), []),
        (step(ratio=1.5), ["1.50 of JAX's time"]),
        (step(bound="copy", rate=70.0, limit=100.0), ["70 % of the copy limit"]),
        (step(bound="copy", rate=85.0, limit=100.0), []),
        (
            step(group="matmul", bound="float32", rate=800.0, limit=1000.0),
            ["80 % of the multiply-add rate"],
        ),
        (
            step(group="matmul", bound="float32", rate=80.0, limit=1000.0),
            [],
        ),  # smaller than 512 cubed
        (step(peak_mib={"weft": 200.0, "peer": 100.0}), ["peak memory 200 MiB, JAX 100"]),
        (step(kind="first", ratio=0.5, cached_ratio=0.05), ["cold 0.50 of JAX's time"]),
        (
            step(kind="process", ratio=0.1, cached_ratio=0.3),
            ["from the disk cache 0.30 of JAX's time"],
        ),
        ({"name": "exp", "error": "weft: NotImplementedError"}, ["weft: NotImplementedError"]),
    ],
)
def test_targets_missed(report, row, missed):
    assert report.missed(row) == missed


def test_summary_names_what_is_slower(report):
    lines = report.summary([step(), step("sin", 2.0), {"name": "cos", "error": "weft: ValueError"}])
    assert "1.000 (2 cases)" in lines[0]
    assert lines[1] == "Slower than JAX: sin (2.00)."
    assert lines[2] == "Failed: cos (weft)."


def test_summary_compares_whole_processes(report):
    rows = [
        step(process_mib={"weft": 100.0, "peer": 200.0}),
        step("sin", process_mib={"weft": 200.0, "peer": 100.0}),
    ]
    assert (
        "Peak memory of whole processes, ratio to JAX: 1.000 (2 cases); at most 2.00 (sin)."
        in report.summary(rows)
    )


def test_new_results_replace_rows_of_the_same_name(report, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "HERE", tmp_path)
    report.write([step(), step("sin", 0.25)], "1.0")
    report.write([step("sin", 0.125)], "1.0")
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| exp | 500 µs | 1 ms | 0.500 |" in text
    assert "| sin | 125 µs | 1 ms | 0.125 |" in text and "0.250 |" not in text
