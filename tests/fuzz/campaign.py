"""Run many random calls or programs in worker processes, and write down which were run and what was wrong.

    python -m tests.fuzz.campaign --calls 2000                  # go on after the seeds that are recorded
    python -m tests.fuzz.campaign --seeds 100:200               # these, whether recorded or not
    python -m tests.fuzz.campaign --show 137                    # one call, in this process
    python -m tests.fuzz.campaign --what programs --calls 500   # programs on sharded arrays, each run in several ways
    python -m tests.fuzz.campaign --what chains --calls 5000    # chains of ordinary ops, compiled and op by op
    python -m tests.fuzz.campaign --what pairs --seeds 0:39200  # op, transpose, op: all pairs of families and permutations
    python -m tests.fuzz.campaign --what chains --minimize 137  # one of them, with fewer ops and smaller sizes, as a script
    python -m tests.fuzz.campaign --what peer --calls 100       # such programs beside the peer, whose Python WEFT_ORACLE_PYTHON names

A worker that hangs or dies is replaced, and its call is written down; the campaign goes on with the next. The record is a text
file: a line `seeds FIRST:LAST COMMIT` for each range that was run to its end, a line `fault SEED KIND TEXT` for each fault,
`explained` where op-by-op execution has the same rounding error.
With `--minutes` no new range begins after that time.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import itertools
import os
import re
import resource
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.fuzz import chains

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / ".fuzz"
#: the kinds of campaigns: seconds for one case, and the number of cases that a worker runs
KINDS = {
    "calls": (30.0, 250),
    "programs": (180.0, 50),
    "peer": (180.0, 50),
    "chains": (60.0, chains.BLOCK),
    "pairs": (60.0, 4 * chains.BLOCK),
}
CHAINS = ("chains", "pairs")
MEMORY = 8 << 30  # of a worker, as addresses: what would fill them is refused, and is not a hang
STARTING = 60.0  # seconds more before the first call


class Fault(NamedTuple):
    seed: int
    kind: str  # "crash", "hang", "error", "explained" (rounding) or "refused" (by each backend)
    text: str


def run(
    first: int,
    last: int,
    seconds: float = KINDS["calls"][0],
    what: str = "calls",
    without: str = "",
) -> list[Fault]:
    """Run the calls with seeds `first` to `last` (exclusive) in a separate process, or in several
    if some die."""
    faults: list[Fault] = []
    while first < last:
        seen, ended = first, None
        options = [
            "--what",
            what,
            *(["--without", without] if without else []),
            "--worker",
            f"{first}:{last}",
        ]
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.campaign", *options],
            cwd=ROOT,
            env={**os.environ, **_variables(what, first)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for line in _lines(worker, seconds):
            word, _, rest = line.partition(" ")
            if word == "call":
                seen = int(rest.split(" ")[0])
                ended = rest.partition(" ")[2]
            elif word in ("fault", "explained", "refused"):
                faults.append(Fault(seen, "error" if word == "fault" else word, rest))
        if worker.poll() is None:
            worker.kill()
            faults.append(Fault(seen, "hang", ended or "before the first call"))
        elif worker.wait() != 0:
            faults.append(
                Fault(
                    seen, "crash", f"exit {worker.returncode}: {ended or 'before the first call'}"
                )
            )
        else:
            seen = last - 1
        worker.wait()
        worker.stdout.close()  # type: ignore[union-attr]
        first = seen + 1
    return faults


def _variables(what: str, first: int) -> dict[str, str]:
    """Return the environment of a worker; chains of one block share the instruction set."""
    own = (
        chains.environment_of(first - first % KINDS[what][1])
        if what in CHAINS
        else {"WEFT_NUM_DEVICES": "8"}
    )
    return {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", **own}


def _lines(worker: subprocess.Popen, seconds: float) -> Iterator[str]:
    """Yield the lines that a worker writes, until it ends or is silent for too long."""
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


def _work(what: str, first: int, last: int, without: list[str]) -> None:
    """Run a worker: announce each call, make it, and report its fault."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # calls may print
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if what == "calls":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for seed in range(first, last):
        said, run_it = _chain_case(what, seed, without) if what in CHAINS else _case(what, seed)
        out.write(f"call {seed} {said}\n")
        fault = run_it()
        if fault is not None:
            out.write(
                f"{'' if fault.startswith(('explained ', 'refused ')) else 'fault '}{fault}  <- {said}\n"
            )
    out.flush()
    if what in CHAINS:
        from tests.fuzz import chain_judge

        chain_judge.close()
    elif what != "calls":
        from tests.fuzz import judge

        judge.close()
    os._exit(0)


def _case(what: str, seed: int) -> tuple[str, Callable[[], str | None]]:
    """Return the text of the case number `seed`, and the function that runs it and returns its
    fault."""
    if what == "calls":
        from tests.fuzz.calls import call_of, fault_of

        call = call_of(seed)

        def of_call() -> str | None:
            fault = fault_of(call)
            return fault and f"{call.name}: {fault}"

        return re.sub(r"\s+", " ", str(call))[:300], of_call
    from tests.fuzz import judge, programs

    program = programs.make(seed)

    def of_program() -> str | None:
        try:
            return (
                judge.fault_of(program) if what == "programs" else judge.compare_with_peer(program)
            )
        except Exception as error:
            return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"

    return f"program {seed}", of_program


def make_chain(what: str, seed: int, without: list[str]) -> chains.Chain | None:
    """Return the chain or the pair number `seed`; None for a pair that no op of a family fits."""
    return chains.make(seed, without) if what == "chains" else chains.make_pair(seed, without)


def _chain_case(what: str, seed: int, without: list[str]) -> tuple[str, Callable[[], str | None]]:
    """Return the description of a chain, and the function that runs it."""
    from tests.fuzz import chain_judge

    chain = make_chain(what, seed, without)
    if chain is None:
        return f"pair {seed}", lambda: None

    def of_chain() -> str | None:
        verdict = chain_judge.judge_chain(chain)
        chain_judge.forget(seed)
        return {"ok": None, "fault": verdict.text}.get(
            verdict.kind, f"{verdict.kind} {verdict.text}"
        )

    return f"{chain.transformation} {' '.join(chain.ops)}", of_chain


def recorded(path: Path) -> list[tuple[int, int]]:
    """Return the ranges of seeds that were run."""
    lines = path.read_text().splitlines() if path.exists() else []
    return sorted(
        tuple(map(int, line.split(" ")[1].split(":")))
        for line in lines
        if line.startswith("seeds ")
    )  # type: ignore[misc]


def missing(
    done: list[tuple[int, int]], calls: int, chunk: int = KINDS["calls"][1]
) -> list[tuple[int, int]]:
    """Return the first `calls` seeds that are in no range of `done`, in chunks."""
    chunks, at = [], 0
    for first, last in [*done, (sys.maxsize, sys.maxsize)]:
        while at < first and calls:
            n = min(chunk - at % chunk, first - at, calls)
            chunks.append((at, at + n))
            at, calls = at + n, calls - n
        at = max(at, last)
    return chunks


def sample_seed(size: int) -> int:
    """Return the first seed of the commit's sample of `size`; WEFT_FUZZ_SEED or, without Git, a fixed one."""
    if "WEFT_FUZZ_SEED" in os.environ:
        return int(os.environ["WEFT_FUZZ_SEED"])
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True
        ).stdout
    except OSError:
        commit = ""
    return size * (int(commit[:6], 16) if commit.strip() else 34)


def _commit() -> str:
    """Return the commit of this checkout according to Git, with a `+` if files were changed."""
    git = lambda *words: subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (
        "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Random calls of public functions, or random programs, in processes of their own."
    )
    parser.add_argument("--what", choices=tuple(KINDS), default="calls")
    parser.add_argument(
        "--calls",
        type=int,
        default=2000,
        help="how many calls or programs, after those that are recorded",
    )
    parser.add_argument("--seeds", help="FIRST:LAST, instead of those that are missing")
    parser.add_argument(
        "--show",
        type=int,
        help="one of them: make the call here and raise what it raises; print the program and judge it",
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, help="for one call or program")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="after which no further range begins"
    )
    parser.add_argument("--record", type=Path)
    parser.add_argument(
        "--without", default="", help="families of ops that chains do without: conv,linalg"
    )
    parser.add_argument(
        "--minimize", type=int, help="a chain that fails: print a smaller one as a script"
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    seconds, chunk = KINDS[options.what]
    seconds = options.seconds or seconds
    without = [name for name in options.without.split(",") if name]
    path = options.record or RECORDS / f"{'-without-'.join([options.what, *without])}.txt"
    if options.worker:
        first, last = map(int, options.worker.split(":"))
        _work(options.what, first, last, without)
    if options.what in CHAINS and (options.show is not None or options.minimize is not None):
        return _show_chain(options.what, options.show, options.minimize, without)
    if options.show is not None:
        return _show(options.what, options.show)
    if options.seeds:
        first, last = map(int, options.seeds.split(":"))
        starts = [first, *range(first - first % chunk + chunk, last, chunk), last]
        ranges = list(itertools.pairwise(starts))
    else:
        ranges = missing(recorded(path), options.calls, chunk)
    path.parent.mkdir(parents=True, exist_ok=True)
    kinds: collections.Counter[str] = collections.Counter()
    began, calls, commit = time.perf_counter(), 0, _commit()
    enough = lambda: time.perf_counter() - began > 60 * options.minutes
    with (
        concurrent.futures.ThreadPoolExecutor(options.workers) as pool,
        open(path, "a", buffering=1) as record,
    ):
        jobs = {
            pool.submit(
                lambda a, b: (
                    None if enough() else run(a, b, seconds, options.what, options.without)
                ),
                a,
                b,
            ): (a, b)
            for a, b in ranges
        }
        for job in concurrent.futures.as_completed(jobs):
            first, last = jobs[job]
            faults = job.result()
            if faults is None:
                continue
            for fault in faults:
                kinds[fault.kind] += 1
                word = (
                    f"explained {fault.seed}"
                    if fault.kind == "explained"
                    else f"fault {fault.seed} {fault.kind}"
                )
                record.write(f"{word} {fault.text}\n")
                print(f"{fault.seed} {fault.kind}: {fault.text}", flush=True)
            record.write(f"seeds {first}:{last} {commit}\n")
            calls += last - first
    print(
        f"{calls} {'calls' if options.what == 'calls' else 'programs'} in {time.perf_counter() - began:.0f} s: {kinds['crash']} crashes, "
        f"{kinds['hang']} hangs, {kinds['error']} {'errors from inside' if options.what == 'calls' else 'mismatches and errors'}; "
        f"{kinds['explained']} explained, {kinds['refused']} refused; recorded in {path}"
    )
    return 1 if set(kinds) - {"explained"} else 0


def _show_chain(what: str, seed: int | None, minimize: int | None, without: list[str]) -> int:
    """Print a chain and judge it, or print a smaller one."""
    number = seed if minimize is None else minimize
    assert number is not None
    os.environ.update(_variables(what, number))
    from tests.fuzz import chain_judge

    chain = make_chain(what, number, without)
    assert chain is not None, "no op of a family fits this rank"
    if minimize is not None:
        from tests.fuzz import chain_shrink

        print(chain_shrink.script(chain_shrink.shrink(chain), f"{what} {number}"))
        return 0
    print(chain.text)
    print(
        *[
            f"{name}: {value}"
            for name, value in vars(chain).items()
            if name not in ("statements", "results")
        ],
        sep="\n",
    )
    verdict = chain_judge.judge_chain(chain, thorough=True)
    chain_judge.close()
    print(verdict.kind, verdict.text)
    return int(verdict.kind not in ("ok", "explained"))


def _show(what: str, seed: int) -> int:
    os.environ.setdefault("WEFT_NUM_DEVICES", "8")
    if what == "calls":
        from tests.fuzz.calls import call_of

        print(call := call_of(seed))
        print(call())
        return 0
    from tests.fuzz import judge, programs

    program = programs.make(seed)
    print(program.text)
    print(
        *[f"{name}: {value}" for name, value in program._asdict().items() if name != "text"],
        sep="\n",
    )
    fault = (
        judge.fault_of(program, thorough=True)
        if what == "programs"
        else judge.compare_with_peer(program)
    )
    judge.close()
    print(fault or "no fault")
    return int(fault is not None)


if __name__ == "__main__":
    sys.exit(main())
