"""Processes of a program are killed, stopped, interrupted or raise at random moments; the others must answer in time, and nobody remain.

    python -m tests.processes.faults --count 100          goes on after the seeds that .faults/seeds.txt records
    python -m tests.processes.faults --seed 17 --count 1  one of them again

Each seed is a case: how many ranks, what they are doing, who meets with which fault, and when. What is recorded is cumulative.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections import Counter

from tests.processes.ranks import HOUSE, ranks

RECORD = HOUSE / ".faults" / "seeds.txt"
HEARTBEAT_S = 2.0
#: what survivors of a killed rank, of an exception and of an interrupt may take; of a stopped one the silence comes on top
BOUND_S = 5.0
PLACES = ("small", "large", "tcp", "barrier", "sleep", "compute", "compile", "program")
FAULTS = ("kill", "stop", "interrupt", "interrupt all", "raise")


def busy():
    """Go on for ever in one place; raise where a signal asks for it."""
    import signal
    import sys
    import time

    import numpy as np

    import weft
    import weft.numpy as wnp
    from weft import processes
    from weft.processes.plans import CollectivePlan

    shared, place = processes.current(), sys.argv[1]

    def fail(number, frame):
        raise LookupError("a fault")

    signal.signal(signal.SIGUSR1, fail)
    group = (tuple(range(shared.size)),)
    count = 2_000_000 if place == "large" else 100
    x, y = np.ones(count, np.float32), np.zeros(count, np.float32)
    handle = shared.transport.plan(CollectivePlan("all_reduce", "float32", count, "sum", group, what="faults.py"))
    mesh = weft.make_mesh((weft.device_count(),), ("i",))
    spec = weft.NamedSharding(mesh, weft.P("i"))
    step = weft.jit(lambda: wnp.sum(wnp.cos(weft.lax.with_sharding_constraint(wnp.arange(4096.0), spec))))
    if place == "program":
        step().block_until_ready()
    shared.barrier("begin")
    print("ready", flush=True)
    turn = 0
    while True:
        turn += 1
        if place in ("small", "large", "tcp"):
            shared.transport.wait(shared.transport.start(handle, x.ctypes.data, y.ctypes.data))
            assert y[-1] == shared.size
        elif place == "barrier":
            shared.barrier(f"turn {turn}")
        elif place == "sleep":
            time.sleep(100)
        elif place == "compute":
            sum(range(1000))
        elif place == "compile":
            weft.jit(lambda x, turn=turn: wnp.sin(x * turn).sum())(1.0)
        else:
            step().block_until_ready()


def case(seed: int) -> tuple[int, str, str, int, float]:
    """The case of a seed: the number of ranks, the place, the fault, the rank that meets it, and the seconds until then."""
    draw = random.Random(seed)
    size = draw.choice((2, 2, 3))
    return size, draw.choice(PLACES), draw.choice(FAULTS), draw.randrange(size), draw.random() * 0.4


def run(seed: int) -> str:
    """Run a case. "" if all went as promised, else what did not."""
    size, place, fault, victim, delay = case(seed)
    environment = {"WEFT_HEARTBEAT_TIMEOUT": str(HEARTBEAT_S), "WEFT_PROCESS_TRANSPORT": "tcp" if place == "tcp" else "auto"}
    with ranks(size, busy, arguments=[place], environment=environment) as running:
        for rank in range(size):
            running.wait_for("ready", rank)
        time.sleep(delay)
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "raise": signal.SIGUSR1}.get(fault, signal.SIGINT)
        for rank in range(size) if fault == "interrupt all" else [victim]:
            running.kill(rank, number)
        until = time.monotonic() + BOUND_S + (HEARTBEAT_S if fault == "stop" else 0.0)
        survivors = [rank for rank in range(size) if rank != victim]
        while any(running.processes[rank].poll() is None for rank in survivors) and time.monotonic() < until:
            time.sleep(0.01)
        late = [rank for rank in survivors if running.processes[rank].poll() is None]
        if fault == "stop":
            running.kill(victim, signal.SIGCONT)
        elif not late:
            running.processes[victim].wait(BOUND_S)
        if late:
            return f"ranks {late} did not end in time\n{running.shown()}"
        for rank in survivors:
            said = running.output(rank, "err")
            if running.processes[rank].returncode == 0 or not ("ProcessFailureError" in said or "KeyboardInterrupt" in said):
                return f"rank {rank} ended with {running.processes[rank].returncode}, and said no reason\n{running.shown()}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, help="the first seed; by default the one after those recorded")
    options = parser.parse_args()
    done = [int(line.split()[0]) for line in RECORD.read_text().splitlines()] if RECORD.exists() else []
    first = options.seed if options.seed is not None else max(done, default=-1) + 1
    bad, kinds = 0, Counter()
    for seed in range(first, first + options.count):
        said = run(seed)
        size, place, fault, victim, _ = case(seed)
        kinds[fault, place] += 1
        if said:
            bad += 1
            print(f"seed {seed}: {fault} of rank {victim} of {size} in {place}: {said}", flush=True)
        if options.seed is None:
            RECORD.parent.mkdir(exist_ok=True)
            with RECORD.open("a") as file:
                file.write(f"{seed} {fault.replace(' ', '_')} {place} {'bad' if said else 'good'}\n")
    print(f"{options.count} faults, {bad} not answered as promised; {len(done) + (options.seed is None) * options.count} recorded")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
