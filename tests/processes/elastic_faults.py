"""Inject random faults into elastic training, and check that a program that saves and resumes ends
with the parameters of an undisturbed run.

    python -m tests.processes.elastic_faults --count 100          continue after .faults/elastic.txt
    python -m tests.processes.elastic_faults --seed 17 --count 1  repeat one case
    python -m tests.processes.elastic_faults --table              summarize the record by kind of fault

A seed determines a case: the number of ranks, whether the coordinator runs in rank 0 or outside,
whether survivors continue in place (`shrink`) or end and are restarted, the fault, its victim, and
its time. `FAULTS` states the required outcome of each fault. In every case:
- all processes end within a deadline, with the parameters of an undisturbed run or with a specific
  error;
- at most one group of processes finishes; a program started afterwards finishes with the parameters
  of an undisturbed run;
- every step that was reported as saved exists and is complete, unless a newer one does;
- no process and no shared memory remains.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process with threads cannot be forked
import numpy as np

from tests.processes import faults
from tests.processes.forks import folder_of_this_process, forked_ranks
from tests.processes.network import Network
from tests.processes.ranks import ROOT, Running, free_port

RECORD = ROOT / ".faults" / "elastic.txt"
STEPS, SAVE_EVERY = 60, 2
ROWS = 3 << 14  # divisible by every number of ranks
MULTIPLIER = np.uint32(3)
HEARTBEAT_S, COLLECTIVE_S = 4.0, 12.0
#: the maximum seconds from a fault to the end of all processes on an idle machine: the limits of
#: heartbeats and collectives, the remaining training, and the limit of a new agreement
BOUND_S = HEARTBEAT_S + 2 * COLLECTIVE_S + 12.0
#: bytes of files that a rank may write on a full disk: more than its outputs, less than its part
#: of a step
FULL_BYTES = 20_000
SECRET = "0123456789abcdef" * 4
PREEMPTED = 75
NAMED = (
    "ProcessFailureError",
    "CheckpointError",
    "CheckpointSupersededError",
    "KeyboardInterrupt",
    "Fault: a fault",
)


def value_at(step: int) -> np.ndarray:
    """Return the parameters after a number of steps, computed by NumPy. They are integers, so the
    bits do not depend on the number of ranks."""
    x = np.arange(ROWS, dtype=np.uint32)
    for _ in range(step):
        x = x * MULTIPLIER + x.sum(dtype=np.uint32)
    return x


# ---- the program of a rank


class Trainer:
    """The program of a rank: it resumes, trains, saves, and continues in place after failures if
    `shrink` is set."""

    def __init__(self, folder: str, shrinks: bool) -> None:
        import weft
        from weft import checkpoint
        from weft._engine import processes
        from weft.experimental import multihost_utils

        self.weft, self.checkpoint, self.multihost, self.processes = (
            weft,
            checkpoint,
            multihost_utils,
            processes,
        )
        self.folder, self.shrinks = folder, shrinks
        self.group = [weft.process_index()]
        self._lay_out()

    def _lay_out(self) -> None:
        from weft.sharding import NamedSharding, PartitionSpec as P

        weft, wnp = self.weft, self.weft.numpy
        shared = self.processes.current()
        self.group = list(shared.first_numbers) if shared is not None else [0]
        size = len(self.group)
        mesh = weft.make_mesh((size,), ("i",))
        self.whole, self.rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("i"))

        def step(x):
            x = weft.lax.with_sharding_constraint(x, self.rows)
            return x * MULTIPLIER + wnp.sum(x, dtype=wnp.uint32)

        self.step = weft.jit(step, out_shardings=self.whole)

    def place(self, x):
        return self.weft.make_array_from_callback((ROWS,), self.whole, lambda index: x[index])

    def run(self) -> None:
        """Train to the end."""
        signal.signal(signal.SIGUSR1, _raise)
        signal.signal(signal.SIGUSR2, _fill_disk)
        step, states = 0, {0: self.place(value_at(0))}
        if self.checkpoint.latest_step(self.folder) is not None:
            restored = self.checkpoint.restore(self.folder, like={"x": states[0], "step": 0})
            step, states = restored["step"], {restored["step"]: restored["x"]}
        while True:
            try:
                if step == STEPS:
                    self.multihost.sync_global_devices("finished")
                    break
                step = self.advance(step, states)
            except self.weft.errors.ProcessFailureError:
                if not self.shrinks:
                    raise
                step = self.shrink(states)
        equal = np.array_equal(np.asarray(states[step].addressable_data(0)), value_at(STEPS))
        print("finished", equal, self.group, flush=True)

    def advance(self, step: int, states: dict) -> int:
        """Run one step, and save after every other step."""
        if self.multihost.reached_preemption_sync_point(step):
            self.save(step, states[step])
            sys.exit(self.weft.distributed.PREEMPTED)
        states[step + 1] = self.weft.block_until_ready(self.step(states[step]))
        states.pop(step - 1, None)
        time.sleep(0.01)
        if (step + 1) % SAVE_EVERY == 0:
            self.save(step + 1, states[step + 1])
        return step + 1

    def save(self, step: int, x) -> None:
        tree = {"x": self.weft.device_put(x, self.rows), "step": step}
        self.checkpoint.save(self.folder, tree, step, keep=3, overwrite=True).wait()
        print("saved", step, flush=True)

    def shrink(self, states: dict) -> int:
        """Continue with the survivors from the newest step that all of them have finished."""
        with contextlib.suppress(
            self.weft.errors.ProcessFailureError, self.weft.errors.CheckpointError
        ):
            self.checkpoint.wait()
        self.weft.distributed.shrink()
        self._lay_out()
        step = int(self.multihost.process_allgather(np.int32(max(states))).min())
        x = self.weft.device_put(states[step], self.whole)
        states.clear()
        states[step] = x
        return step


def _raise(number, frame):
    raise faults.Fault("a fault")


def _fill_disk(number, frame):
    resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_BYTES, FULL_BYTES))


# ---- faults


@dataclass
class Case:
    """The parameters of one run."""

    seed: int
    size: int
    serves: bool  # rank 0 serves the coordinator
    shrinks: bool
    fault: str
    victim: int
    step: int  # the step after which the fault happens
    delay: float  # seconds between that step and the fault
    seconds: float  # seconds that the fault lasts
    draw: random.Random


@dataclass
class Scene:
    """A run in progress."""

    case: Case
    running: Running
    network: Network
    folder: str

    def signal(self, number: int) -> None:
        self.running.kill(self.case.victim, number)

    def links(self) -> list[int]:
        """Return the ranks whose links are affected by a fault of the victim's network: all others
        if the victim serves the coordinator."""
        case = self.case
        return list(range(1, case.size)) if case.serves and case.victim == 0 else [case.victim]

    def link(self, op: str, **options) -> None:
        for rank in self.links():
            self.network.do(rank, op, **options)

    def last(self) -> None:
        time.sleep(self.case.seconds)


def _hold(scene: Scene, directions: list[str], heals: bool) -> None:
    scene.link("hold", directions=directions)
    if heals:
        scene.last()
        scene.link("hold", directions=[])


def _pause(scene: Scene, heals: bool = True) -> None:
    scene.signal(signal.SIGSTOP)
    if heals:
        scene.last()
        scene.signal(signal.SIGCONT)


def _long_pause(scene: Scene) -> None:
    scene.signal(signal.SIGSTOP)
    time.sleep(2.5 * HEARTBEAT_S)
    scene.signal(signal.SIGCONT)


def _reset(scene: Scene) -> None:
    for _ in range(scene.case.draw.randint(1, 5)):
        scene.link("reset")
        time.sleep(scene.case.draw.random() * 0.3)


def _slow(scene: Scene) -> None:
    scene.link("delay", seconds=0.05 + scene.case.draw.random() * 0.4)
    time.sleep(2 * scene.case.seconds)
    scene.link("delay", seconds=0.0)


def _garbage(scene: Scene) -> None:
    """Send foreign data to the coordinator's port: random bytes, frames of absurd lengths, deep
    JSON, half a frame, silent connections."""
    draw, opened = scene.case.draw, []
    texts = [
        draw.randbytes(3000),
        struct.pack("<II", 0xFFFFFFFF, 0xFFFFFFFF),
        struct.pack("<II", 2000, 0) + b"[" * 2000,
        struct.pack("<I", 100) + b"{",
        b"GET / HTTP/1.1\r\n\r\n",
        b"",
        struct.pack("<II", 30, 0) + b'{"op": "join", "rank": 1e999}',
        b"\0" * 5000,
    ]
    for _ in range(draw.randint(5, 90)):
        with contextlib.suppress(OSError):
            one = socket.create_connection(("127.0.0.1", scene.network.port), timeout=0.5)
            opened.append(one)
            one.sendall(draw.choice(texts))
    time.sleep(min(scene.case.seconds, 1.0))
    for one in opened:
        one.close()


def _preempt(scene: Scene) -> None:
    for _ in range(scene.case.draw.choice((1, 1, 3))):
        scene.signal(signal.SIGTERM)


def _replace(scene: Scene) -> None:
    """Stop the processes, as in a job that is believed dead, while a successor trains to the end in
    the same folder."""
    for process in scene.running.processes:
        process.send_signal(signal.SIGSTOP)
    try:
        if not _restart_and_check(scene.folder, scene.case.size, scene.case):
            raise NotStarted("the successor did not finish")
    finally:
        for process in scene.running.processes:
            process.send_signal(signal.SIGCONT)


#: fault -> its action and the required outcome: "unseen" (all finish), "failure" (an error, or
#: survivors continue), "any" of the two, "preempted", "replaced" (an error in all)
FAULTS: dict[str, tuple[Callable[[Scene], None], str]] = {
    "kill": (lambda scene: scene.signal(signal.SIGKILL), "failure"),
    "stop": (lambda scene: _pause(scene, heals=False), "failure"),
    "pause": (_pause, "unseen"),
    "long pause": (_long_pause, "any"),
    "interrupt": (lambda scene: scene.signal(signal.SIGINT), "failure"),
    "exception": (lambda scene: scene.signal(signal.SIGUSR1), "failure"),
    "preemption": (_preempt, "preempted"),
    "reset": (_reset, "unseen"),
    "refusal": (lambda scene: scene.link("refuse"), "failure"),
    "delay": (_slow, "unseen"),
    "short loss": (lambda scene: _hold(scene, ["up", "down"], heals=True), "unseen"),
    "short loss up": (lambda scene: _hold(scene, ["up"], heals=True), "unseen"),
    "short loss down": (lambda scene: _hold(scene, ["down"], heals=True), "unseen"),
    "partition": (lambda scene: _hold(scene, ["up", "down"], heals=False), "failure"),
    "loss up": (lambda scene: _hold(scene, ["up"], heals=False), "failure"),
    "loss down": (lambda scene: _hold(scene, ["down"], heals=False), "failure"),
    "damaged bytes": (
        lambda scene: scene.link("corrupt", directions=[scene.case.draw.choice(["up", "down"])]),
        "unseen",
    ),
    "garbage": (_garbage, "unseen"),
    "successor": (_replace, "replaced"),
    "full disk": (lambda scene: scene.signal(signal.SIGUSR2), "failure"),
}


def case(seed: int) -> Case:
    """Return the case of a seed."""
    draw = random.Random(seed)
    size, fault = draw.choice((2, 3, 4)), draw.choice(tuple(FAULTS))
    return Case(
        seed,
        size,
        draw.random() < 0.5,
        draw.random() < 0.5,
        fault,
        draw.randrange(size),
        draw.randrange(2, STEPS // 2, 2),
        draw.random() * 0.1,
        0.2 + draw.random() * 0.25 * HEARTBEAT_S,
        draw,
    )


def bound() -> float:
    """Return `BOUND_S`, multiplied where this machine has more runnable processes than cores."""
    return BOUND_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


# ---- a run


class NotStarted(Exception):
    """The ranks did not reach the point of the fault."""


@contextlib.contextmanager
def start_ranks(
    folder: str, size: int, serves: bool, shrinks: bool
) -> Iterator[tuple[Running, Network]]:
    """Start the program on `size` ranks that are connected through a network."""
    port = free_port()
    network = Network(size, port, not serves, HEARTBEAT_S, SECRET.encode())
    try:
        own = [{"WEFT_COORDINATOR_ADDRESS": address} for address in network.addresses]
        if serves:
            own[0] = {
                "WEFT_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
                "WEFT_COORDINATOR_BIND_ADDRESS": f"127.0.0.1:{port}",
            }
        shared = {"WEFT_JOB_SECRET": SECRET, **({} if serves else {"WEFT_COORDINATOR_SERVED": "1"})}
        settings = {"heartbeat_timeout": HEARTBEAT_S, "collective_timeout": COLLECTIVE_S}
        with forked_ranks(
            size, lambda: Trainer(folder, shrinks).run(), shared, settings, own
        ) as running:
            yield running, network
    finally:
        network.close()


def await_end(running: Running, ranks: list[int], seconds: float) -> list[int]:
    """Wait for the end of ranks, and return the ranks that are still running."""
    until = time.monotonic() + seconds
    while (
        any(running.processes[rank].poll() is None for rank in ranks) and time.monotonic() < until
    ):
        time.sleep(0.02)
    return [rank for rank in ranks if running.processes[rank].poll() is None]


def run(seed: int, times: list[float]) -> str:
    """Run a case. Return "" if all requirements hold, else a description of the violation; append
    the seconds from the fault to the end of the last process to `times`."""
    this = case(seed)
    with folder_of_this_process() as folder:
        before = set(os.listdir("/dev/shm"))
        with start_ranks(folder, this.size, this.serves, this.shrinks) as (running, network):
            wrong = _disturbed(Scene(this, running, network, folder), times) or _orphans(
                running.pids()
            )
            shown = running.shown() if wrong else ""
            saved, pids = _saved(running, this.size), running.pids()
        wrong = wrong or _check_saved_steps(folder, saved) or _find_leaked_segments(pids, before)
        for attempt in range(1, 4):
            if wrong or _restart_and_check(folder, max(1, this.size - attempt % 2), this):
                break
        else:
            wrong = "no later start finished"
        return f"{wrong}\n{shown}" if wrong else ""


def _saved(running: Running, size: int) -> list[int]:
    return [
        int(line.split()[1])
        for rank in range(size)
        for line in running.output(rank).splitlines()
        if line.startswith("saved")
    ]


def _disturbed(scene: Scene, times: list[float]) -> str:
    """Trigger the fault, and check how the processes end."""
    this, running = scene.case, scene.running
    try:
        for rank in range(this.size):
            running.wait_for(f"saved {this.step}\n", rank)
    except AssertionError as error:
        raise NotStarted(str(error)) from None
    time.sleep(this.delay)
    do, outcome = FAULTS[this.fault]
    do(scene)
    began = time.monotonic()
    others = [rank for rank in range(this.size) if rank != this.victim or this.fault != "stop"]
    late = await_end(running, others, bound())
    times.append(time.monotonic() - began)
    if late:
        return f"ranks {late} did not end in time"
    if this.fault == "stop":
        running.kill(this.victim, signal.SIGCONT)
        if await_end(running, [this.victim], bound()):
            return f"rank {this.victim}, which was stopped, did not end"
    return _compare_with_outcome(running, this, outcome)


def _compare_with_outcome(running: Running, this: Case, outcome: str) -> str:
    """Return the differences between the processes' exits and the required outcome of the fault."""
    codes = [process.returncode for process in running.processes]
    groups = set()
    for rank, code in enumerate(codes):
        out, err = running.output(rank), running.output(rank, "err")
        if code == 0:
            line = next((line for line in out.splitlines() if line.startswith("finished")), "")
            if not line.startswith("finished True"):
                return f"rank {rank} ended with {line!r}"
            groups.add(line)
        elif code == PREEMPTED:
            if outcome != "preempted":
                return f"rank {rank} was preempted"
        elif code == -signal.SIGKILL:
            if rank != this.victim or outcome == "unseen":
                return f"rank {rank} was killed"
        elif not any(name in err for name in NAMED):
            return f"rank {rank} ended with {code}, and told no reason"
        elif outcome in ("unseen", "preempted"):
            return f"rank {rank} ended with {code}"
        elif outcome == "replaced" and not any(
            name in err for name in ("CheckpointSupersededError", "ProcessFailureError")
        ):
            return f"rank {rank}, which was replaced, did not say so"
    if len(groups) > 1:
        return f"several groups have finished: {groups}"
    if outcome == "preempted" and codes != [PREEMPTED] * this.size:
        return f"exit codes {codes}"
    if outcome == "replaced" and groups:
        return f"a group has finished that was replaced: {groups}"
    if outcome == "failure" and codes == [0] * this.size:
        return "the fault was not seen"
    return ""


def _orphans(pids: list[int]) -> str:
    """Return the processes that remain in the sessions of ranks that have ended."""
    orphans = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                state, _, _, session = (
                    folder.joinpath("stat").read_text().rpartition(")")[2].split()[:4]
                )
                if int(session) in pids and state not in "ZX":
                    orphans.append(int(folder.name))
    return f"processes {orphans} are left" if orphans else ""


def _find_leaked_segments(pids: list[int], before: set[str]) -> str:
    """Return the shared memory segments that ranks did not remove. MPI names its segments by
    process, and other programs may use MPI here."""
    new = set(os.listdir("/dev/shm")) - before
    segments = {
        name for name in new if "weft" in name or any(f"{pid:x}" in name.split("_") for pid in pids)
    }
    return f"shared memory is left: {segments}" if segments else ""


def _check_saved_steps(folder: str, saved: list[int]) -> str:
    """Check the steps in the folder in a separate process, and return the problems."""
    program = (
        "import sys; import numpy as np; from weft import checkpoint; from tests.processes.elastic_faults import value_at\n"
        "steps = checkpoint.steps(sys.argv[1])\n"
        "values = [checkpoint.restore(sys.argv[1], step=step)['x'] for step in steps]\n"
        "print(max(steps, default=0), all(map(np.array_equal, values, map(value_at, steps))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, folder],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    newest, _, equal = done.stdout.partition(" ")
    if done.returncode or equal != "True\n":
        return f"the steps cannot be read, or differ from an undisturbed run: {done.stdout}{done.stderr[-2000:]}"
    return (
        ""
        if int(newest) >= max(saved, default=0)
        else f"step {max(saved)} was saved, and {newest} is the last that is there"
    )


def _restart_and_check(folder: str, size: int, this: Case) -> bool:
    """Restart the program undisturbed, and return whether it finishes with the right parameters."""
    with start_ranks(folder, size, this.serves, False) as (running, _):
        late = await_end(running, list(range(size)), bound())
        return not late and all(
            "finished True" in running.output(rank) and process.returncode == 0
            for rank, process in enumerate(running.processes)
        )


def run_until_met(seed: int) -> tuple[str, float]:
    """Run the case until a start reaches its fault, and return the result of `run` and the seconds."""
    why = ""
    for _ in range(faults.STARTS):
        times: list[float] = []
        try:
            return run(seed, times), times[0] if times else 0.0
        except NotStarted as error:
            why = str(error)
    return f"never started: {why}", 0.0


def table() -> str:
    """Return the record as a table: for each fault the number of runs, the number of failures, and
    the seconds until the end."""
    rows = defaultdict(list)
    for line in RECORD.read_text().splitlines():
        _, fault, *_, seconds, how = line.split()
        rows[fault.replace("_", " ")].append((float(seconds), how))
    lines = [
        "| fault | what has to come of it | runs | as promised | seconds to the end, median and most |",
        "|---|---|---|---|---|",
    ]
    for fault, (_, outcome) in FAULTS.items():
        seconds = sorted(one for one, _ in rows[fault]) or [0.0]
        good = sum(how == "good" for _, how in rows[fault])
        lines.append(
            f"| {fault} | {outcome} | {len(rows[fault])} | {good} | {seconds[len(seconds) // 2]:.1f}, {seconds[-1]:.1f} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument(
        "--seed", type=int, help="the first seed; by default the one after those recorded"
    )
    parser.add_argument("--fault", help="only cases of this fault")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        print(table())
        return 0
    faults.import_everything()
    import weft._engine.processes.preemption  # noqa: F401

    done = (
        [int(line.split()[0]) for line in RECORD.read_text().splitlines()]
        if RECORD.exists()
        else []
    )
    first = options.seed if options.seed is not None else max(done, default=-1) + 1
    bad = count = 0
    seed = first - 1
    while count < options.count:
        seed += 1
        this = case(seed)
        if options.fault not in (None, this.fault):
            continue
        count += 1
        wrong, seconds = run_until_met(seed)
        where = f"{this.size} ranks, coordinator {'in rank 0' if this.serves else 'outside'}, {'shrink' if this.shrinks else 'restart'}"
        if wrong:
            bad += 1
            print(
                f"seed {seed}: {this.fault} of rank {this.victim} after step {this.step}; {where}: {wrong}",
                flush=True,
            )
        if options.seed is None and options.fault is None:
            RECORD.parent.mkdir(exist_ok=True)
            with RECORD.open("a") as file:
                how = f"{this.size} {'rank0' if this.serves else 'outside'} {'shrink' if this.shrinks else 'restart'}"
                file.write(
                    f"{seed} {this.fault.replace(' ', '_')} {how} {seconds:.2f} {'bad' if wrong else 'good'}\n"
                )
    print(f"{count} fault{'s' * (count != 1)}, {bad} not answered as promised")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
