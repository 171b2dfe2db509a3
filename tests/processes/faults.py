"""Kill, stop, interrupt or fail processes of a program at random moments, and check that the others
report it in time, that no process remains, and that no checkpoint is lost.

    python -m tests.processes.faults --count 100          continue after .faults/seeds.txt
    python -m tests.processes.faults --seed 17 --count 1  repeat one case

A seed determines a case: the number of ranks, the activity of the program, the faulty rank, the
fault and its time. The record is cumulative: seed, fault, activity, the seconds until the last
survivor ended, and whether all requirements held. Ranks are forked from this process (`forks`).
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections import Counter

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process with threads cannot be forked
import numpy as np

from tests.processes.forks import folder_of_this_process, forked_ranks
from tests.processes.ranks import ROOT, Running

RECORD = ROOT / ".faults" / "seeds.txt"
HEARTBEAT_S = 4.0
#: the seconds within which survivors must end after a killed rank, an exception or an interrupt;
#: for a stopped rank, the heartbeat timeout is added
BOUND_S = 5.0
#: the number of restarts of a case that fails before its fault, on a machine too busy for
#: heartbeats
STARTS = 5


def bound() -> float:
    """Return `BOUND_S`, multiplied where this machine has more runnable processes than cores."""
    return BOUND_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute", "broadcast")
PLACES = (
    *COLLECTIVES,
    "large",
    "mpi",
    "barrier",
    "sleep",
    "compute",
    "compile",
    "program",
    "loop",
    "save",
    "train",
    "restore",
)
FAULTS = ("kill", "stop", "interrupt", "interrupt all", "raise")
ROWS = 1 << 14
MULTIPLIER = np.uint32(3)


def value_at(step: int) -> np.ndarray:
    """Return the state of the program after a number of steps, computed by NumPy. It consists of
    integers, so the bits do not depend on the number of ranks."""
    x = np.arange(ROWS, dtype=np.uint32)
    for _ in range(step):
        x = x * MULTIPLIER + x.sum(dtype=np.uint32)
    return x


class Fault(BaseException):
    """The exception that a signal raises at any point of the code. It does not derive from
    `Exception`, so code that handles errors does not catch it."""


class Rank:
    """The program of one rank: it repeats one activity until it fails."""

    def __init__(self, folder: str) -> None:
        import weft
        import weft.numpy as wnp
        from weft import checkpoint
        from weft._engine import processes
        from weft.sharding import NamedSharding, PartitionSpec as P

        self.shared, self.folder, self.checkpoint, self.weft = (
            processes.current(),
            folder,
            checkpoint,
            weft,
        )
        self.mesh = weft.make_mesh((weft.device_count(),), ("i",))
        self.rows = NamedSharding(self.mesh, P("i"))
        self.step = weft.jit(
            lambda x: x * MULTIPLIER + wnp.sum(x, dtype=wnp.uint32), out_shardings=self.rows
        )

    def state(self, step: int):
        """Return the state of a step, sharded over the largest number of ranks that divides it."""
        return self.weft.make_array_from_callback(
            (ROWS,), self.rows, lambda index: value_at(step)[index]
        )

    def saved(self, x, step: int) -> None:
        self.checkpoint.save(self.folder, {"x": x, "step": step}, step, keep=2).wait()
        print("saved", step, flush=True)

    def collective(self, place: str):
        from weft._engine.processes.collective_plan import CollectivePlan

        size = self.shared.size
        kind = place if place in COLLECTIVES else "all_reduce"
        count = 2_000_000 if place == "large" else 120
        groups = () if kind == "permute" else (tuple(range(size)),)
        pairs = tuple((r, (r + 1) % size) for r in range(size)) if kind == "permute" else ()
        op = "sum" if kind in ("all_reduce", "reduce_scatter") else None
        plan = CollectivePlan(kind, "float32", count, op, groups, pairs, origin="faults.py")
        x, y = np.ones(plan.input_count, np.float32), np.zeros(plan.output_count, np.float32)
        handle = self.shared.transport.plan(plan)
        expected = size if op else 1

        def turn(number: int) -> None:
            self.shared.transport.wait(
                self.shared.transport.start(handle, x.ctypes.data, y.ctypes.data)
            )
            assert y[-1] == expected

        return turn

    def activity_step(self, place: str):
        """Return the function that is called repeatedly for an activity; its argument is the
        iteration number, from 1."""
        weft, wnp = self.weft, self.weft.numpy
        if place in (*COLLECTIVES, "large", "mpi"):
            return self.collective(place)
        if place == "barrier":
            return lambda turn: self.shared.barrier(f"turn {turn}")
        if place == "sleep":
            return lambda turn: time.sleep(100)
        if place == "compute":
            return lambda turn: sum(range(1000))
        if place == "compile":
            return lambda turn: weft.jit(lambda x: wnp.sin(x * turn).sum())(1.0)
        x = self.state(0)
        if place == "program":
            return lambda turn: self.step(x).block_until_ready()
        if place == "loop":
            many = weft.jit(lambda x: weft.lax.fori_loop(0, 20, lambda i, x: self.step(x), x))
            return lambda turn: many(x).block_until_ready()
        if place == "restore":
            self.saved(self.state(5), 5)
            return lambda turn: self.checkpoint.restore(self.folder, like={"x": x, "step": 0})
        if place == "save":
            return lambda turn: self.saved(x, turn)
        self.now = x  # train

        def train(turn: int) -> None:
            self.now = self.step(self.now)
            self.saved(self.now, turn)

        return train

    def run(self, place: str) -> None:
        """Repeat the activity forever; raise where a signal requests it."""

        def fail(number, frame):
            raise Fault("a fault")

        def fail_again(what):
            """Raise the exception again: Python ignores exceptions in a finalizer."""
            if not isinstance(what.exc_value, Fault):
                return ignored(what)
            signal.setitimer(signal.ITIMER_REAL, 0.05)

        ignored, sys.unraisablehook = sys.unraisablehook, fail_again
        for number in (signal.SIGUSR1, signal.SIGALRM):
            signal.signal(number, fail)
        turn, do = 1, self.activity_step(place)
        if place not in ("sleep", "compile"):
            do(turn)
        self.shared.barrier("begin")
        print("ready", flush=True)
        while True:
            turn += 1
            do(turn)

    def resume(self) -> None:
        """Continue from the last checkpoint for some steps."""
        like = {"x": self.state(0), "step": 0}
        restored = self.checkpoint.restore(self.folder, like=like)
        step, x = int(restored["step"]), restored["x"]
        print("resumed", step, self.is_at(x, step), flush=True)
        for _ in range(3):
            x = self.step(x)
        print("went on", self.is_at(x, step + 3), flush=True)

    def is_at(self, x, step: int) -> bool:
        return all(
            np.array_equal(np.asarray(shard.data), value_at(step)[shard.index])
            for shard in x.addressable_shards
        )


def case(seed: int) -> tuple[int, str, str, int, float]:
    """Return the case of a seed: the number of ranks, the activity, the fault, the faulty rank, and
    the seconds until the fault."""
    draw = random.Random(seed)
    size = draw.choice((2, 2, 4))
    return size, draw.choice(PLACES), draw.choice(FAULTS), draw.randrange(size), draw.random() * 0.4


class NotStarted(Exception):
    """The ranks did not reach the point of the fault."""


def run(seed: int, times: list[float]) -> str:
    """Run a case. Return "" if all requirements hold, else a description of the violation; append
    the seconds until the last survivor ended to `times`."""
    size, place, fault, victim, delay = case(seed)
    settings = {
        "heartbeat_timeout": HEARTBEAT_S,
        "process_transport": "mpi" if place == "mpi" else "auto",
    }
    with folder_of_this_process() as folder:
        with forked_ranks(size, lambda: Rank(folder).run(place), {}, settings) as running:
            failure = _faulted(running, size, fault, victim, delay, times)
            saved = [
                int(line.split()[1])
                for rank in range(size)
                for line in running.output(rank).splitlines()
                if line.startswith("saved")
            ]
        if failure or place not in ("train", "restore"):
            return failure or (_lost(folder, saved) if place == "save" else "")
        survivors = max(n for n in (1, 2) if n < size)
        with forked_ranks(survivors, lambda: Rank(folder).resume(), {}, {}) as running:
            outcomes = running.finish()
            good = all(
                rank.exit_code == 0 and f"resumed {_latest(folder)} True\nwent on True" in rank.out
                for rank in outcomes
            )
            return _lost(folder, saved) or (
                "" if good else f"{survivors} ranks did not resume\n{running.shown()}"
            )


def _latest(folder: str) -> int:
    from weft import checkpoint

    return checkpoint.latest_step(folder) or 0


def _lost(folder: str, saved: list[int]) -> str:
    there = _latest(folder)
    return (
        ""
        if there >= max(saved, default=0)
        else f"step {max(saved)} was saved, and {there} is the last that is there"
    )


def _faulted(
    running: Running, size: int, fault: str, victim: int, delay: float, times: list[float]
) -> str:
    try:
        for rank in range(size):
            running.wait_for("ready", rank)
    except AssertionError as error:
        raise NotStarted(str(error)) from None
    time.sleep(delay)
    number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "raise": signal.SIGUSR1}.get(
        fault, signal.SIGINT
    )
    for rank in range(size) if fault == "interrupt all" else [victim]:
        running.kill(rank, number)
    began = time.monotonic()
    until = began + bound() + (HEARTBEAT_S if fault == "stop" else 0.0)
    survivors = [rank for rank in range(size) if rank != victim]
    while (
        any(running.processes[rank].poll() is None for rank in survivors)
        and time.monotonic() < until
    ):
        time.sleep(0.01)
    times.append(time.monotonic() - began)
    late = [rank for rank in survivors if running.processes[rank].poll() is None]
    if late:
        return f"ranks {late} did not end in time\n{running.shown()}"
    if fault == "stop":
        running.kill(victim, signal.SIGCONT)
    if running.processes[victim].wait(bound()) is None:
        return f"rank {victim}, the victim, did not end\n{running.shown()}"
    for rank in survivors:
        errors = running.output(rank, "err")
        if running.processes[rank].returncode == 0 or not (
            "ProcessFailureError" in errors or "KeyboardInterrupt" in errors
        ):
            return f"rank {rank} ended with {running.processes[rank].returncode}, and said no reason\n{running.shown()}"
    return ""


def import_everything() -> None:
    """Import all modules that ranks need, so that forked ranks share them."""
    import weft._engine.backends.cpu.compile
    import weft._engine.backends.cpu.process_constants
    import weft._engine.codegen.library.process_calls
    import weft._engine.codegen.library.process_reduction
    import weft._engine.partition.exchanges
    import weft._engine.partition.partition
    import weft._engine.pipeline
    import weft._engine.processes.agreement
    import weft._engine.processes.state  # noqa: F401
    from weft.checkpoint import store

    store.tensorstore()


def _run(seed: int) -> tuple[str, float]:
    """Run the case until a start reaches its fault, and return the result of `run` and the seconds."""
    for _ in range(STARTS):
        times: list[float] = []
        try:
            return run(seed, times), times[0]
        except NotStarted as error:
            violation = str(error)
    return violation, 0.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument(
        "--seed", type=int, help="the first seed; by default the one after those recorded"
    )
    options = parser.parse_args()
    import_everything()
    done = (
        [int(line.split()[0]) for line in RECORD.read_text().splitlines()]
        if RECORD.exists()
        else []
    )
    first = options.seed if options.seed is not None else max(done, default=-1) + 1
    bad, kinds = 0, Counter()
    for seed in range(first, first + options.count):
        violation, took = _run(seed)
        size, place, fault, victim, _ = case(seed)
        kinds[fault, place] += 1
        if violation:
            bad += 1
            print(
                f"seed {seed}: {fault} of rank {victim} of {size} in {place}: {violation}",
                flush=True,
            )
        if options.seed is None:
            RECORD.parent.mkdir(exist_ok=True)
            with RECORD.open("a") as file:
                file.write(
                    f"{seed} {fault.replace(' ', '_')} {place} {took:.2f} {'bad' if violation else 'good'}\n"
                )
    print(
        f"{options.count} faults, {bad} not answered as promised; {len(done) + (options.seed is None) * options.count} recorded"
    )
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
