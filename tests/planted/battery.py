"""The checks that may catch a planted fault: parts of the test suite, and a replay of a corpus.

In:   a copy of the tree with a fault.
Out:  `Battery.run(checks)`, the first check that fails; `Battery.replay()`, how results differ from
      the results of the tree without the fault.
Laws: each run has an empty disk cache. A test that fails without a fault is excluded; a failing
      test is also run on the tree without a fault.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.planted.tree import ROOT

SEED = "34"  # of the chains: equal for all faults
REPLAYED = 150  # programs
LEAST_S, FACTOR = 120.0, 6.0  # the time limit of a check, as a multiple of its time without a fault
TRIES = 3  # of a check whose failing test also fails without a fault
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?::[^\n]*?)(?: - |$)", re.MULTILINE)


@dataclass(frozen=True)
class BatteryCheck:
    """A part of the test suite."""

    name: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Catch:
    """The check that caught a fault, and its first failing test."""

    check: str
    test: str
    seconds: float


CHECKS = (
    BatteryCheck("pipeline", ("tests/pipeline",)),
    BatteryCheck("spmd", ("tests/spmd", "tests/partition")),
    BatteryCheck("compiler", ("tests/compiler",)),
    BatteryCheck("codegen", ("tests/codegen",)),
    BatteryCheck("models", ("tests/models",)),
    BatteryCheck("chains", ("tests/fuzz/test_chains.py",)),
    BatteryCheck("checks", ("tests/verification",)),
    BatteryCheck("ops", ("tests/ops", "tests/control", "tests/lax", "tests/transforms")),
    BatteryCheck("numpy", ("tests/numpy", "tests/random", "tests/nn", "tests/scipy")),
    BatteryCheck("runtime", ("tests/runtime", "tests/faults", "tests/api")),
)
#: the checks that catch most faults of a package in the least time
FIRST = {
    "weft/_engine/partition": "spmd",
    "weft/_engine/codegen": "codegen",
    "weft/_engine/compiler": "compiler",
    "weft/_engine/ops": "ops",
}


def order_checks(path: str) -> list[BatteryCheck]:
    """Return the checks for a fault of this file, in running order."""
    first = next((name for prefix, name in FIRST.items() if path.startswith(prefix)), "")
    present = [c for c in CHECKS if any((ROOT / p).exists() for p in c.paths)]
    return sorted(present, key=lambda check: check.name != first)


class Battery:
    """Runs checks on a copy of the tree with a fault, and on one without, which is `clean`.

    `baseline` has the seconds and the failing tests of checks without a fault.
    """

    def __init__(self, tree: Path, clean: Path, baseline: dict[str, Any], workers: int) -> None:
        self.tree = tree
        self.clean = clean
        self.baseline = baseline
        self.workers = workers

    def measure(self, check: BatteryCheck) -> None:
        """Run a check on the tree without a fault, once."""
        if check.name not in self.baseline:
            seconds, output, _ = self._pytest(self.clean, check, [], 3600.0)
            failed = sorted(set(FAILED.findall(output)))
            self.baseline[check.name] = {"seconds": round(seconds, 1), "failed": failed}

    def run(self, checks: Sequence[BatteryCheck]) -> Catch | None:
        """Return the first of these checks that fails with the planted fault."""
        seconds = 0.0
        for check in checks:
            self.measure(check)
            left_out = list(self.baseline[check.name]["failed"])
            for _ in range(TRIES):
                taken, test = self._first_failure(check, left_out)
                seconds += taken
                if test is None:
                    break
                if "::" not in test or not self._fails(self.clean, test):
                    return Catch(check.name, test, round(seconds, 1))
                left_out.append(test)  # it sometimes fails without the fault, too
        return None

    def _first_failure(
        self, check: BatteryCheck, left_out: Sequence[str]
    ) -> tuple[float, str | None]:
        """Return the seconds of a check with the fault, and the first test that fails."""
        limit = max(LEAST_S, FACTOR * self.baseline[check.name]["seconds"])
        options = ["-x", *[f"--deselect={test}" for test in left_out]]
        seconds, output, code = self._pytest(self.tree, check, options, limit)
        if code == 0:
            return seconds, None
        if code is None:
            return seconds, f"no end after {limit:.0f} s"
        failed = FAILED.search(output)
        return seconds, failed[1] if failed else _last_line(output)

    def _fails(self, tree: Path, test: str) -> bool:
        """Return whether a test fails on a tree."""
        alone = BatteryCheck("one test", (test.partition("::")[0],))
        _, output, code = self._pytest(tree, alone, [], 600.0)
        return code != 0 and test in FAILED.findall(output)

    def _pytest(
        self, tree: Path, check: BatteryCheck, options: Sequence[str], limit: float
    ) -> tuple[float, str, int | None]:
        """Return seconds, output and exit code of a check, None if it did not end."""
        paths = [path for path in check.paths if (tree / path).exists()]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no"]
        command += ["-n", str(self.workers), *options, *paths]
        with tempfile.TemporaryDirectory(prefix="planted-cache-") as cache:
            variables = os.environ | {
                "PYTHONPATH": str(tree),
                "WEFT_CACHE_DIR": cache,
                "WEFT_FUZZ_SEED": SEED,
            }
            start = time.perf_counter()
            with tempfile.TemporaryFile("w+") as output:
                code = run_group(command, tree, variables, output, limit)
                output.seek(0)
                return time.perf_counter() - start, output.read(), code

    def replay(self, records: Path) -> str:
        """Compare the programs of a corpus with the programs of the tree without a fault.

        The answer is "equal", "other code", "other rounding" or "other values".
        """
        sys.path.insert(0, str(ROOT / "benchmarks"))
        try:
            import replay
        finally:
            sys.path.remove(str(ROOT / "benchmarks"))
        entries = replay.choose(replay.list_corpus(self.clean, self.clean), REPLAYED)
        if not records.exists():
            replay.compile_corpus(self.clean, self.clean, entries, records)
        worst = "equal"
        with tempfile.TemporaryDirectory(prefix="planted-replay-") as scratch:
            mine = Path(scratch)

            def stop_at_values(entry: Any) -> bool:
                nonlocal worst
                if replay.compare(entry, records, mine) is not None:
                    pair = [replay.read_record(p, entry.name) for p in (records, mine)]
                    worst = max(worst, classify(*pair), key=CLASSES.index)
                return worst != CLASSES[-1]

            replay.compile_corpus(self.tree, self.clean, entries, mine, stop_at_values)
        return worst


CLASSES = ("equal", "other code", "other rounding", "other values")


def classify(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Return how the results of a program differ, by the elements that its record holds."""
    if old["results"] == new["results"]:
        return "other code"
    a, b = old.get("values"), new.get("values")
    if not a or not b or [len(x) for x in a] != [len(x) for x in b]:
        return "other values"
    for xs, ys in zip(a, b):
        size = max([abs(x) for x in xs if abs(x) < float("inf")], default=0.0)
        for x, y in zip(xs, ys):
            if x != y and (x == x or y == y) and not abs(x - y) <= 1e-2 * size:
                return "other values"
    return "other rounding"


def run_group(
    command: Sequence[str], folder: Path, variables: dict[str, str], output: Any, limit: float
) -> int | None:
    """Run a command in a separate process group; return None if it did not end and was killed."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=variables,
        stdout=output,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):  # a worker may remain
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_line(output: str) -> str:
    lines = [line for line in output.strip().splitlines() if line.strip()]
    return lines[-1][:100] if lines else "no output"
