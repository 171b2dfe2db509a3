"""Matrix products of narrow types on weft and on one or more versions of JAX, and the share of the machine's limits.

    python benchmarks/matrix_units.py --peer PYTHON [--peer PYTHON ...] [--openvino PYTHON] [--quick] [--only TEXT ...]
                                      [--rounds N] [--seconds S] [--cpu-time] [--json FILE]

In:  Python interpreters that have JAX, and one that has OpenVINO (and ml_dtypes), which runs square products of one type only.
Out: a table. A ratio is the time of the peer divided by weft's: the median of the ratios of all rounds, and in parentheses the
     ratio of the best times. Below 1, weft is slower. The share of a limit is the median over rounds of best rates.
     The geometric mean counts the rows of bfloat16 and int8. The exit status is 1 if results differ by more than rounding.
How: `suite.py` has the cases. Each engine runs in a process of its own, one after the other in every round. A third process
     measures the limits in the same rounds: a plain stream of reads over the bytes of the operands for products of few rows, and a
     loop of tile products on registers for large products, if weft uses the tile unit. All operands are random.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from report import seconds as duration
from run import Failed, Process, peer_python

_SIZES = (256, 512, 1024, 2048, 4096)
#: largest difference of results, as a fraction of the norm of each result
_EXACT, _SUMS, _ROUNDED, _STEP = 0.0, 1e-4, 1e-2, 0.2


@dataclass(frozen=True)
class Row:
    """A row of the table: a case of the suite and the limit that it is compared with."""

    case: str
    tolerance: float
    narrow: bool = False  # counts in the geometric mean
    limit: str = ""  # of `limits.Limits`
    work: float = 0.0  # floating-point operations, or bytes for a limit of memory
    product: tuple[int, int, int, str] | None = None  # rows, k, columns, type: for OpenVINO
    quick: bool = False


@dataclass
class Result:
    """The measurements of a row: seconds per call by engine, and rates of its limit."""

    case: str
    narrow: bool
    times: dict[str, list[float]] = field(default_factory=dict)  # a median per round
    best: dict[str, list[float]] = field(default_factory=dict)  # the least per round
    first: dict[str, float] = field(default_factory=dict)
    limits: list[float] = field(default_factory=list)  # the limit's best rate per round
    rate: float = 0.0  # of weft, in GF/s or GB/s
    share: float = 0.0  # of the limit: the median of the rounds
    difference: float = 0.0
    agrees: bool = True
    errors: dict[str, str] = field(default_factory=dict)

    def ratio(self, peer: str) -> float:
        """Return the median of the rounds' ratios."""
        pairs = zip(self.times[peer], self.times["weft"], strict=True)
        return statistics.median([theirs / ours for theirs, ours in pairs])


def square(name: str, size: int, tolerance: float, kind: str = "", limit: str = "") -> Row:
    return Row(
        f"matmul {name} {size}",
        tolerance,
        narrow=bool(limit),
        limit=limit,
        work=2.0 * size**3,
        product=(size, size, size, kind) if kind else None,
        quick=size == 1024,
    )


def few_rows(count: int, name: str, in_bytes: int, out_bytes: int, tolerance: float) -> Row:
    moved = 4096 * (4096 * in_bytes + count * (in_bytes + out_bytes))
    case = f"matmul {count} x 4096 x 4096 {name}"
    return Row(case, tolerance, narrow=True, limit="read", work=moved, quick=count in (1, 8))


def rows() -> Iterator[Row]:
    """Yield the rows of the table."""
    of_bfloat16, of_int8 = "tiles of bfloat16", "tiles of int8"
    for name, tolerance, kind, limit in (
        ("bfloat16", _ROUNDED, "bf16", of_bfloat16),
        ("bfloat16 to float32", _SUMS, "", of_bfloat16),
        ("int8 to int32", _EXACT, "", of_int8),
        ("float32", _SUMS, "f32", ""),
    ):
        for size in _SIZES:
            yield square(name, size, tolerance, kind, limit)
    for size in (512, 1024):
        yield square("float16 to float32", size, _SUMS)
    yield Row("attention 512 bfloat16", 2 * _ROUNDED, narrow=True, quick=True)
    yield Row("attention 512 float32", _SUMS, quick=True)
    yield Row("MLP block bfloat16", _ROUNDED, narrow=True, quick=True)
    yield Row("MLP block bfloat16 gradient", 2 * _ROUNDED, narrow=True)
    yield Row("conv channels first 3x3 bfloat16", _ROUNDED, narrow=True)
    yield Row("conv 3x3 bfloat16", _ROUNDED, narrow=True, quick=True)
    for count in (1, 2, 4, 8, 16):
        yield few_rows(count, "bfloat16", 2, 2, _ROUNDED)
    for count in (1, 2, 4, 8, 16):
        yield few_rows(count, "int8 to int32", 1, 4, _EXACT)
    yield Row("GPT step bfloat16, one device", _STEP, narrow=True)
    yield Row("ResNet step bfloat16, one device", _STEP, narrow=True)


class Contest:
    """The processes of all engines, which take turns."""

    def __init__(self, peers: list[str], openvino: str | None, cache: str) -> None:
        self.workers = {"weft": Process(sys.executable, "weft", cache=cache)}
        self.limits = Process(sys.executable, "limits", cache=cache)
        for python in peers:
            worker = Process(python, "peer")
            self.workers[f"JAX {worker.ask('ready')['version']}"] = worker
        self.products_only = set()
        if openvino:
            worker = Process(openvino, "openvino")
            name = f"OpenVINO {worker.ask('ready')['version']}"
            self.workers[name] = worker
            self.products_only.add(name)
        self.peers = [name for name in self.workers if name != "weft"]
        self.machine = self.limits.ask("ready")

    def close(self) -> None:
        for worker in (*self.workers.values(), self.limits):
            worker.stop()

    def run(self, row: Row, rounds: int, seconds: float, folder: Path) -> Result:
        """Time a row on all engines that can run it, and compare the results of JAX with weft's."""
        result = Result(row.case, row.narrow)
        engines = self._set_up(row, result)
        limit = row.limit if row.limit == "read" or self.machine["unit"] == "amx" else ""
        stream = {"nbytes": int(row.work)} if limit == "read" else {}
        for _ in range(rounds):
            for name, worker in engines.items():
                samples = worker.ask("round", seconds=seconds)["times"]
                result.times[name].append(statistics.median(samples))
                result.best[name].append(min(samples))
            if limit:
                rate = self.limits.ask("round", what=limit, seconds=0.05, **stream)["rate"]
                result.limits.append(rate)
        if row.work and "weft" in engines:
            work = 1e-9 * row.work
            result.rate = work / statistics.median(result.times["weft"])
            pairs = zip(result.best["weft"], result.limits)
            result.share = statistics.median([work / time / rate for time, rate in pairs] or [0.0])
        self._compare(row, result, engines, folder)
        return result

    def _set_up(self, row: Row, result: Result) -> dict[str, Process]:
        """Make the first call of each engine that can run the row, and return their processes."""
        engines = {}
        for name, worker in self.workers.items():
            request = {"product": row.product} if name in self.products_only else {}
            if request and not row.product:
                continue
            try:
                answer = worker.ask("setup", case=row.case, **request)
            except Failed as error:
                result.errors[name] = str(error)
                continue
            engines[name], result.times[name], result.best[name] = worker, [], []
            result.first[name] = answer["first"]
        return engines

    def _compare(self, row: Row, result: Result, engines: dict[str, Process], folder: Path) -> None:
        """Compare the results of the engines that run the suite's cases with weft's."""
        files = {}
        for i, name in enumerate(engines):
            if name not in self.products_only:
                files[name] = folder / f"{i}.npz"
                engines[name].ask("save", path=str(files[name]))
        if "weft" in files:
            reference = files.pop("weft")
            differences = [difference(reference, path) for path in files.values()]
            result.difference = max(differences, default=0.0)
            result.agrees = result.difference <= row.tolerance


def difference(path: Path, other: Path) -> float:
    """Return the largest norm of the difference of two saved results, as a fraction of the result's norm."""
    largest = 0.0
    with np.load(path) as ours, np.load(other) as theirs:
        for name in ours.files:
            x, y = (arrays[name].astype(np.float64).ravel() for arrays in (ours, theirs))
            largest = max(largest, float(np.linalg.norm(x - y) / max(np.linalg.norm(y), 1e-30)))
    return largest


def line(result: Result, peers: list[str]) -> str:
    """Return a row of the Markdown table."""
    if "weft" not in result.times:
        return f"| {result.case} | {result.errors['weft']} |"
    cells = [result.case, duration(statistics.median(result.times["weft"]))]
    cells += [f"{result.rate:.0f}" if result.rate else ""]
    cells += [f"{result.share:.0%}" if result.share else ""]
    for peer in peers:
        if peer in result.times:
            best = min(result.best[peer]) / min(result.best["weft"])
            cells.append(
                f"{duration(statistics.median(result.times[peer]))}, {result.ratio(peer):.2f} ({best:.2f})"
            )
        else:
            cells.append("")
    cells.append(f"{1e3 * result.first['weft']:.0f}")
    cells.append(f"{result.difference:.1e}{'' if result.agrees else ' DIFFERS'}")
    return f"| {' | '.join(cells)} |"


def summary(results: list[Result], peers: list[str]) -> Iterator[str]:
    """Yield the geometric mean of the narrow rows, and all ratios below 1, for each peer."""
    for peer in peers:
        done = [r for r in results if peer in r.times and "weft" in r.times]
        narrow = [r.ratio(peer) for r in done if r.narrow]
        if narrow:
            mean = statistics.geometric_mean(narrow)
            yield f"{peer}: geometric mean of {len(narrow)} rows of bfloat16 and int8 {mean:.2f}"
        slower = [f"{r.case} {r.ratio(peer):.2f}" for r in done if r.ratio(peer) < 1]
        yield f"{peer}: below 1: {', '.join(slower) or 'none'}"
    for r in results:
        for engine, error in r.errors.items():
            yield f"{r.case}: {engine}: {error}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", action="append", default=[], help="a Python that has jax")
    parser.add_argument("--openvino", help="a Python that has OpenVINO")
    parser.add_argument("--quick", action="store_true", help="a quick subset")
    parser.add_argument("--only", action="append", default=[], help="cases that contain this text")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each engine in a round")
    parser.add_argument("--cpu-time", action="store_true", help="one thread, by processor time")
    parser.add_argument("--json", type=Path, help="write all measurements to this file")
    args = parser.parse_args()
    if args.cpu_time:
        os.environ.update(BENCH_CPU_TIME="1", WEFT_NUM_THREADS="1")
    chosen = [
        row
        for row in rows()
        if (row.quick or not args.quick)
        and (not args.only or any(text in row.case for text in args.only))
    ]
    results = []
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as folder:
        contest = Contest(args.peer or [peer_python(None)], args.openvino, cache)
        try:
            print("unit {unit}, {threads} threads".format(**contest.machine))
            heads = ["case", "weft", "GF/s or GB/s", "of limit", *contest.peers, "first call, ms"]
            print(f"| {' | '.join([*heads, 'difference'])} |\n{'|---' * (len(heads) + 1)}|")
            for row in chosen:
                results.append(contest.run(row, args.rounds, args.seconds, Path(folder)))
                print(line(results[-1], contest.peers), flush=True)
        finally:
            contest.close()
    print("\n".join(summary(results, contest.peers)))
    if args.json:
        record = {"machine": contest.machine, "results": [asdict(r) for r in results]}
        args.json.write_text(json.dumps(record, indent=1))
    return int(not all(r.agrees for r in results))


if __name__ == "__main__":
    sys.exit(main())
