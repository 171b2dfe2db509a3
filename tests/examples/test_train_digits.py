"""The digits example, run as a newcomer runs it, only shorter."""

import re

import pytest

from tests.harness.processes import ROOT, run_weft

SCRIPT = ROOT / "examples" / "train_digits.py"


def run(*arguments):
    done = run_weft("run", SCRIPT, "--devices", "8", *arguments, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(text):
    return [float(word) for word in re.findall(r"loss ([\d.]+)", text)]


def accuracy(text):
    return float(re.search(r"held-out accuracy ([\d.]+)%", text)[1])


def test_a_short_run_learns_and_reports():
    text = run("--epochs", "5")
    first, last = losses(text)
    assert last < first / 5
    assert accuracy(text) > 94
    assert "w1 float32[64,512]" in text and "│" in text and "CPU 0,2,4,6" in text
    assert re.search(r"time per step +[\d.]+ ms on one device, [\d.]+ ms on 8", text)
    assert re.search(r"compile time +[\d.]+ s", text)
    lines = [line for line in text.splitlines() if " B  over " in line]
    assert lines and all("train_digits.py:" in line for line in lines)
    # One sum over 'model' closes each pair of layers forward.
    forward = [line for line in lines if "over model" in line and ("w2" in line or "w4" in line)]
    assert len(forward) == 2 and all(line.split()[0] == "psum" for line in forward)


@pytest.mark.slow
def test_a_whole_run_reaches_its_accuracy():
    text = run()
    values = losses(text)
    assert values == sorted(values, reverse=True)
    assert accuracy(text) >= 97


def test_a_number_of_devices_that_does_not_fit_is_said_in_a_line():
    done = run_weft("run", "--devices", "7", SCRIPT)
    assert done.returncode == 1 and "evenly over devices, eight at best; there are 7" in done.stderr


@pytest.mark.parametrize("processes, devices", [(2, None), (4, 2)])
def test_processes_learn_the_same(processes, devices):
    options = [] if devices is None else ["--devices-per-process", devices]
    done = run_weft("launch", "-n", processes, *options, SCRIPT, "--epochs", "5", timeout=200)
    assert done.returncode == 0, done.stderr
    first, last = losses(done.stdout)
    assert last < first / 5 and accuracy(done.stdout) > 94 and done.stdout.count("held-out") == 1
    assert f"{processes} processes" in done.stdout and "CPU 0" in done.stdout
