"""The benchmark of matrix units: its rows are cases of the suite, and its table reports differences."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.harness import tile_machine

SCRIPT = "matrix_units"


def result(script, name="matmul int8 to int32 256", narrow=True, **times):
    return script.Result(name, narrow, times, best=times, first=dict.fromkeys(times, 0.01))


def test_rows_are_cases_of_the_suite(script):
    worker = Path(script.__file__).with_name("worker.py")
    done = subprocess.run(
        [sys.executable, worker, "weft", "1"],
        input='{"do": "list"}\n',
        capture_output=True,
        text=True,
        check=True,
    )
    cases = {case["name"] for case in json.loads(done.stdout)}
    rows = list(script.rows())
    assert {row.case for row in rows} <= cases
    assert len(rows) == len({row.case for row in rows})
    assert [row.case for row in rows if row.quick and row.product] == [
        "matmul bfloat16 1024",
        "matmul float32 1024",
    ]


def test_ratio_is_the_median_of_the_ratios_of_rounds(script):
    timed = result(script, weft=[1.0, 2.0, 10.0], JAX=[2.0, 1.0, 30.0])
    assert timed.ratio("JAX") == 2.0


def test_summary_names_slower_rows_and_the_mean(script):
    rows = [
        result(script, weft=[1.0], JAX=[4.0]),
        result(script, weft=[1.0], JAX=[1.0]),
        result(script, "matmul float32 256", False, weft=[1.0], JAX=[0.5]),
    ]
    assert list(script.summary(rows, ["JAX"])) == [
        "JAX: geometric mean of 2 rows of bfloat16 and int8 2.00",
        "JAX: below 1: matmul float32 256 0.50",
    ]


@pytest.mark.parametrize(("change", "expected"), [(0.0, 0.0), (5.0, 1.0)])
def test_difference_is_relative_to_the_norm(script, tmp_path, change, expected):
    x = np.array([3.0, 4.0], np.float32)
    np.savez(tmp_path / "a.npz", np.int32(7), x)
    np.savez(tmp_path / "b.npz", np.int32(7), x + np.array([0, change], np.float32))
    error = script.difference(tmp_path / "b.npz", tmp_path / "a.npz")
    assert error == pytest.approx(expected)


def test_line_marks_results_that_differ(script):
    row = result(script, weft=[1e-3], JAX=[2e-3])
    row.difference, row.agrees = 0.5, False
    assert script.line(row, ["JAX"]).endswith("| 2 ms, 2.00 (2.00) | 10 | 5.0e-01 DIFFERS |")


@pytest.mark.skipif(bool(tile_machine.reason()), reason=tile_machine.reason())
@pytest.mark.parametrize(("rate", "dtype"), [("bfloat16", np.uint16), ("int8", np.int8)])
def test_loop_of_tile_products_multiplies(script, monkeypatch, rate, dtype):
    limits = importlib.import_module("limits")
    tile_machine.use(monkeypatch)
    monkeypatch.setattr(limits, "ITERATIONS", 3)
    measured = limits.Limits()
    assert measured.ready()["unit"] == "amx"
    assert measured.round(f"tiles of {rate}", seconds=0)["rate"] > 0
    memory = measured.operands[rate]
    a, b = memory[64 : 64 + 4096].view(dtype).reshape(2, 32, -1)
    if rate == "bfloat16":
        a, b = ((x.astype(np.uint32) << 16).view(np.float32) for x in (a, b))
    per = 2 if rate == "bfloat16" else 4  # k side by side
    b = b.reshape(2, 16, 16, per).transpose(1, 3, 0, 2).reshape(-1, 32)
    sums = memory[64 + 4096 : 64 + 8192].view(np.float32 if per == 2 else np.int32)
    sums = sums.reshape(2, 2, 16, 16).transpose(0, 2, 1, 3).reshape(32, 32)
    np.testing.assert_allclose(sums, 3 * (a.astype(np.float64) @ b), rtol=1e-4, atol=1e-4)
