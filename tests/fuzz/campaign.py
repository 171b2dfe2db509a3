"""Run many random calls in worker processes, and write down which were run and what was wrong.

    python -m tests.fuzz.campaign --calls 2000          # go on after the seeds that are recorded
    python -m tests.fuzz.campaign --seeds 100:200       # these, whether recorded or not
    python -m tests.fuzz.campaign --show 137            # one call, in this process

A worker that hangs or dies is replaced, and its call is written down; the campaign goes on with the next. The record is a text
file: a line `seeds FIRST:LAST` for each range that was run to its end, a line `fault SEED KIND TEXT` for each fault.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import os
import re
import resource
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / ".fuzz" / "calls.txt"
SECONDS = 30.0                  # for one call
MEMORY = 12 << 30               # of a worker, as addresses
CHUNK = 250
STARTING = 60.0                 # seconds more before the first call


class Fault(NamedTuple):
    seed: int
    kind: str                   # "crash", "hang" or "error"
    text: str


def run(first: int, last: int, seconds: float = SECONDS) -> list[Fault]:
    """Run the calls with seeds `first` to `last` (exclusive) in a process of their own, or in several if some die."""
    faults: list[Fault] = []
    while first < last:
        seen, ended = first, None
        worker = subprocess.Popen([sys.executable, "-m", "tests.fuzz.campaign", "--worker", f"{first}:{last}"], cwd=ROOT,
                                  env={**os.environ, "PYTHONPATH": str(ROOT), "WEFT_NUM_DEVICES": "8", "PYTHONWARNINGS": "ignore"},
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in _lines(worker, seconds):
            word, _, rest = line.partition(" ")
            if word == "call":
                seen = int(rest.split(" ")[0])
                ended = rest.partition(" ")[2]
            elif word == "fault":
                faults.append(Fault(seen, "error", rest))
        if worker.poll() is None:
            worker.kill()
            faults.append(Fault(seen, "hang", ended or "before the first call"))
        elif worker.wait() != 0:
            faults.append(Fault(seen, "crash", f"exit {worker.returncode}: {ended or 'before the first call'}"))
        else:
            seen = last - 1
        worker.wait()
        worker.stdout.close()  # type: ignore[union-attr]
        first = seen + 1
    return faults


def _lines(worker: subprocess.Popen, seconds: float) -> Iterator[str]:
    """The lines that a worker writes, until it ends or is silent for too long."""
    assert worker.stdout is not None
    selector, rest = selectors.DefaultSelector(), ""
    limit = seconds + STARTING
    with selector:
        selector.register(worker.stdout, selectors.EVENT_READ)
        while selector.select(limit):
            text = os.read(worker.stdout.fileno(), 1 << 16).decode(errors="replace")
            if not text:
                worker.wait()
                return
            *lines, rest = (rest + text).split("\n")
            yield from lines
            limit = seconds


def _work(first: int, last: int) -> None:
    """What a worker does: say which call comes, make it, and say what was wrong."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)                                        # calls may print
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from tests.fuzz.calls import call_of, fault_of
    for seed in range(first, last):
        call = call_of(seed)
        said = re.sub(r"\s+", " ", str(call))[:300]
        out.write(f"call {seed} {said}\n")
        fault = fault_of(call)
        if fault is not None:
            out.write(f"fault {call.name}: {fault}  <- {said}\n")
    out.flush()
    os._exit(0)


def recorded(path: Path) -> list[tuple[int, int]]:
    """The ranges of seeds that were run."""
    lines = path.read_text().splitlines() if path.exists() else []
    return sorted(tuple(map(int, line.split(" ")[1].split(":"))) for line in lines if line.startswith("seeds "))  # type: ignore[misc]


def missing(done: list[tuple[int, int]], calls: int) -> list[tuple[int, int]]:
    """The first `calls` seeds that are in no range of `done`, in chunks."""
    found, at = [], 0
    for first, last in [*done, (sys.maxsize, sys.maxsize)]:
        while at < first and calls:
            n = min(CHUNK, first - at, calls)
            found.append((at, at + n))
            at, calls = at + n, calls - n
        at = max(at, last)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Random calls of public functions, in processes of their own.")
    parser.add_argument("--calls", type=int, default=2000, help="how many calls, after those that are recorded")
    parser.add_argument("--seeds", help="FIRST:LAST, instead of those that are missing")
    parser.add_argument("--show", type=int, help="make one call here and raise what it raises")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for one call")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _work(*map(int, options.worker.split(":")))
    if options.show is not None:
        from tests.fuzz.calls import call_of
        print(call := call_of(options.show))
        print(call())
        return 0
    if options.seeds:
        first, last = map(int, options.seeds.split(":"))
        ranges = [(a, min(a + CHUNK, last)) for a in range(first, last, CHUNK)]
    else:
        ranges = missing(recorded(options.record), options.calls)
    options.record.parent.mkdir(parents=True, exist_ok=True)
    kinds: collections.Counter[str] = collections.Counter()
    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(options.workers) as pool, open(options.record, "a", buffering=1) as record:
        jobs = {pool.submit(run, a, b, options.seconds): (a, b) for a, b in ranges}
        for job in concurrent.futures.as_completed(jobs):
            first, last = jobs[job]
            for fault in job.result():
                kinds[fault.kind] += 1
                record.write(f"fault {fault.seed} {fault.kind} {fault.text}\n")
                print(f"{fault.seed} {fault.kind}: {fault.text}", flush=True)
            record.write(f"seeds {first}:{last}\n")
    calls = sum(b - a for a, b in ranges)
    print(f"{calls} calls in {time.perf_counter() - began:.0f} s: {kinds['crash']} crashes, {kinds['hang']} hangs, "
          f"{kinds['error']} errors from inside; recorded in {options.record}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
