"""Time weft and JAX (from PyPI, in a virtual environment of its own) side by side in one run.

    python benchmarks/run.py [--quick] [--only TEXT ...] [--group GROUP ...] [--list] [--write] [--rounds N] [--cpu-time]
                             [--avx2 | --avx512] [--peer PYTHON]

Each case runs in one process per engine (calls that take microseconds share a process). Both processes are alive at the same
time and run alternately, A B A B; a third one measures the machine's limits in the same rounds. A ratio below 1 means that weft
is faster. weft starts with an empty disk cache; first calls and whole processes are timed again with the filled cache. `--write`
puts the rows into benchmarks/results.json and regenerates benchmarks/RESULTS.md. `--cpu-time` is for a machine that others use: repeated
calls run on one CPU and are timed by processor time, which has nothing of the time that others take, but counts the threads that wait in
a loop. `--avx2` restricts both engines to AVX2 and FMA,
`--avx512` to AVX-512 without its newer instructions.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import report

HERE = Path(__file__).resolve().parent
PATIENCE_S = 120  # timeout of one request
END_S = 10  # timeout of a worker's exit
_FLAGS = os.environ.get("XLA_FLAGS", "")
#: the variables that keep processes from newer instructions. YNNPACK, which multiplies matrices for JAX, takes what it finds: with AVX2
#: JAX's own kernels do that. With AVX-512 it stays, since float32 needs nothing newer; products of narrower types cannot be compared there.
RESTRICTIONS = {
    "avx2": {
        "weft": {"WEFT_CPU_FEATURES": "avx2"},
        "limits": {"WEFT_CPU_FEATURES": "avx2"},
        "peer": {
            "XLA_FLAGS": f"{_FLAGS} --xla_cpu_max_isa=AVX2 --xla_cpu_experimental_ynn_fusion_type=",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
        },
    },
    "avx512": {
        "weft": {"WEFT_CPU_FEATURES": "avx512-plain"},
        "limits": {"WEFT_CPU_FEATURES": "avx512-plain"},
        "peer": {
            "XLA_FLAGS": f"{_FLAGS} --xla_cpu_max_isa=AVX512",
            "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        },
    },
}
_restrictions: dict[str, dict[str, str]] = {}


def peer_python(given: str | None) -> str:
    """A Python that has JAX; its environment is created on first use."""
    if given:
        return given
    home = HERE.parent / ".venv-peer"
    python = home / "bin" / "python"
    if not python.exists():
        print("creating JAX's environment in .venv-peer ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "jax"],
            check=True,
        )
    return str(python)


def add_restrictions(parser: argparse.ArgumentParser) -> None:
    """Options that restrict both engines."""
    for level, text in (("avx2", "beyond AVX2 and FMA"), ("avx512", "newer than plain AVX-512")):
        parser.add_argument(
            f"--{level}",
            dest="restriction",
            action="store_const",
            const=level,
            help=f"no instructions {text}, on both sides",
        )


def restrict(level: str | None) -> None:
    """No newer instructions in the processes that are started from now on."""
    _restrictions.update(RESTRICTIONS[level] if level else {})


def environment(engine: str) -> dict[str, str]:
    """The variables of an engine's processes."""
    return {**os.environ, **_restrictions.get(engine, {})}


class Failed(Exception):
    """A case raised or timed out on one engine."""


class Process:
    """A worker process of one engine; requests and answers are lines of JSON."""

    def __init__(
        self,
        python: str,
        engine: str,
        devices: int = 1,
        cache: str | None = None,
        x64: bool = False,
    ) -> None:
        env = dict(environment(engine), PYTHONPATH=str(HERE.parent), JAX_ENABLE_X64=str(int(x64)))
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        if cache:
            env["WEFT_CACHE_DIR"] = cache
        self.engine = engine
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [python, str(HERE / "worker.py"), engine, str(devices)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=env,
            cwd=HERE.parent,
        )

    def ask(self, do: str, **request: Any) -> Any:
        """The worker's answer, or `Failed`."""
        assert self.process.stdin and self.process.stdout
        alarm = threading.Timer(PATIENCE_S, self.process.kill)
        alarm.start()
        try:
            print(json.dumps({"do": do, **request}), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            alarm.cancel()
        answer = json.loads(line) if line else {"error": self._death()}
        if "error" in answer:
            raise Failed(f"{self.engine}: {answer['error']}")
        return answer

    def _death(self) -> str:
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return f"no answer within {PATIENCE_S} s, or out of memory"
        self.errors.seek(0)
        return f"died with {code}: {self.errors.read()[-300:].strip()}"

    def stop(self) -> None:
        """Let the worker exit normally, so that it finishes its writes; kill it after a timeout."""
        with suppress(OSError, subprocess.TimeoutExpired):
            assert self.process.stdin
            self.process.stdin.close()
            self.process.wait(END_S)
        self.process.kill()
        self.process.wait()


class Race:
    """Runs cases on both engines and measures the machine's limits."""

    def __init__(self, pythons: dict[str, str], rounds: int, quick: bool) -> None:
        self.pythons, self.rounds = pythons, rounds
        self.effort, self.passes = (0.5, 1) if quick else (1.0, 3)
        self.limits = Process(pythons["weft"], "limits")
        asked = [
            pythons["peer"],
            "-c",
            "from importlib.metadata import version; print(version('jax'))",
        ]
        self.peer_version = subprocess.run(
            asked, capture_output=True, text=True, check=True
        ).stdout.strip()
        self.shared: tuple[Any, dict[str, Process]] = (None, {})

    def list(self) -> list[dict]:
        worker = Process(self.pythons["weft"], "weft")
        try:
            return worker.ask("list")
        finally:
            worker.stop()

    def close(self) -> None:
        self._drop_shared()
        self.limits.stop()

    def run(self, case: dict) -> dict:
        """One row of results."""
        row = {k: case[k] for k in ("name", "group", "kind", "devices")} | {
            "date": str(datetime.date.today())
        }
        try:
            row |= {"process": self._whole, "first": self._first, "step": self._step}[case["kind"]](
                case
            )
        except Failed as error:
            row["error"] = str(error).splitlines()[0][:300]
            if case["shared"]:
                self._drop_shared()
        return row

    # -- repeated calls

    @contextmanager
    def _workers(self, case: dict) -> Iterator[dict[str, Process]]:
        """The worker processes of a case: new ones, or those shared by its group."""
        kind = (case["group"], case["devices"], case["x64"])
        if case["shared"] and self.shared[0] == kind:
            yield self.shared[1]
            return
        self._drop_shared()
        with tempfile.TemporaryDirectory() as cache:
            workers = {
                name: Process(python, name, case["devices"], cache, case["x64"])
                for name, python in self.pythons.items()
            }
            for worker in workers.values():  # no first call while the other engine starts
                worker.ask("ready")
            if case["shared"]:
                self.shared = kind, workers
                yield workers
                return
            try:
                yield workers
            finally:
                for worker in workers.values():
                    worker.stop()

    def _drop_shared(self) -> None:
        for worker in self.shared[1].values():
            worker.stop()
        self.shared = None, {}

    def _step(self, case: dict) -> dict:
        with self._workers(case) as workers:
            setups = {
                name: worker.ask("setup", case=case["name"]) for name, worker in workers.items()
            }
            read, written = setups["weft"]["read"], setups["weft"]["written"]
            bounds = report.STREAMS if case["memory"] else (case["rate"],) if case["flops"] else ()
            times: dict[str, list[float]] = {name: [] for name in workers}
            limits = dict.fromkeys(bounds, 0.0)
            for _ in range(self.rounds):
                for name, worker in workers.items():
                    times[name] += worker.ask(
                        "round", seconds=self.effort * case["budget_s"] / self.rounds
                    )["times"]
                for what in bounds:
                    limits[what] = max(limits[what], self.limits.ask("round", what=what)["rate"])
            row = self._compare(times) | {"first": {name: s["first"] for name, s in setups.items()}}
            if not case["shared"]:
                row |= _memory({name: worker.ask("close") for name, worker in workers.items()})
        if bounds:
            amounts = (
                {"copy": read + written, "read": read, "write": written}
                if case["memory"]
                else {case["rate"]: case["flops"]}
            )
            bound = max(bounds, key=lambda what: amounts[what] / limits[what])
            row |= {
                "bound": bound,
                "rate": amounts[bound] / row["best"]["weft"] / 1e9,
                "limit": limits[bound],
            }
        return row

    def _compare(self, times: dict[str, list[float]]) -> dict:
        best = {name: min(values) for name, values in times.items()}
        median = {name: statistics.median(values) for name, values in times.items()}
        return {
            "best": best,
            "median": median,
            "ratio": best["weft"] / best["peer"],
            "median_ratio": median["weft"] / median["peer"],
        }

    # -- first calls: weft with an empty disk cache, JAX, weft with the cache just filled

    def _first(self, case: dict) -> dict:
        times: dict[str, list[float]] = {"weft": [], "peer": [], "cached": []}
        closed: dict[str, dict[str, float]] = {}
        begun = time.perf_counter()
        while len(times["weft"]) < self.passes and (
            not times["weft"] or time.perf_counter() - begun < case["budget_s"] / 3 + 10
        ):
            with tempfile.TemporaryDirectory() as cache:
                for name in ("weft", "peer", "cached"):
                    engine = "peer" if name == "peer" else "weft"
                    worker = Process(
                        self.pythons[engine], engine, case["devices"], cache, case["x64"]
                    )
                    try:
                        times[name].append(worker.ask("setup", case=case["name"])["first"])
                        closed[name] = max(
                            closed.get(name, {}),
                            worker.ask("close"),
                            key=lambda m: m.get("peak_mib", 0.0),
                        )
                    finally:
                        worker.stop()
        return (
            self._compare(times)
            | {"cached_ratio": min(times["cached"]) / min(times["peer"])}
            | _memory(closed)
        )

    # -- whole processes

    def _whole(self, case: dict) -> dict:
        times: dict[str, list[float]] = {"weft": [], "peer": [], "cached": []}
        for _ in range(self.passes):
            with tempfile.TemporaryDirectory() as cache:
                for name in ("weft", "peer", "cached"):
                    times[name].append(
                        self._script("peer" if name == "peer" else "weft", case, cache)
                    )
        return self._compare(times) | {"cached_ratio": min(times["cached"]) / min(times["peer"])}

    def _script(self, engine: str, case: dict, cache: str) -> float:
        env = dict(
            environment(engine),
            PYTHONPATH=str(HERE.parent),
            WEFT_CACHE_DIR=cache,
            WEFT_NUM_DEVICES=str(case["devices"]),
            XLA_FLAGS=f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={case['devices']}",
        )
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        text = (
            "import weft.compat\nweft.compat.install_as_jax()\n" * (engine == "weft")
            + case["script"]
        )
        start = time.perf_counter()
        try:
            done = subprocess.run(
                [self.pythons[engine], "-c", text],
                capture_output=True,
                text=True,
                env=env,
                timeout=PATIENCE_S,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"{engine}: no exit within {PATIENCE_S} s") from None
        seconds = time.perf_counter() - start
        if done.returncode:
            raise Failed(f"{engine}: {done.stderr.strip().splitlines()[-1:]}")
        return seconds


def _memory(closed: dict[str, dict[str, float]]) -> dict:
    """Per engine: peak memory above what its process held before, and of the whole process."""
    return {
        "peak_mib": {name: memory["peak_mib"] for name, memory in closed.items()},
        "process_mib": {
            name: memory["base_mib"] + memory["peak_mib"] for name, memory in closed.items()
        },
    }


def chosen(case: dict, args: argparse.Namespace) -> bool:
    return (
        (not args.quick or case["quick"])
        and (not args.only or any(text in case["name"] for text in args.only))
        and (not args.group or case["group"] in args.group)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a quick subset")
    parser.add_argument(
        "--only", action="append", default=[], help="cases whose name contains this text"
    )
    parser.add_argument("--group", action="append", default=[], help="cases of this group")
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    parser.add_argument("--write", action="store_true", help="update results.json and RESULTS.md")
    parser.add_argument(
        "--peer", default=os.environ.get("WEFT_PEER_PYTHON"), help="a Python that has jax"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds per case and engine")
    parser.add_argument(
        "--cpu-time", action="store_true", help="repeated calls on one CPU, by processor time"
    )
    add_restrictions(parser)
    args = parser.parse_args()
    restrict(args.restriction)
    if args.cpu_time:
        os.environ.update(BENCH_CPU_TIME="1", WEFT_NUM_THREADS="1")
    race = Race({"weft": sys.executable, "peer": peer_python(args.peer)}, args.rounds, args.quick)
    try:
        cases = [case for case in race.list() if chosen(case, args)]
        if args.list:
            print("\n".join(f"{case['group']:18s} {case['name']}" for case in cases))
            return
        rows = []
        for case in cases:
            rows.append(race.run(case))
            print(report.line(rows[-1]), flush=True)
            if args.write:  # immediately: a long run may be interrupted
                report.write(rows[-1:], race.peer_version)
        print("\n".join(report.summary(rows)))
    finally:
        race.close()


if __name__ == "__main__":
    main()
