#!/usr/bin/env python3
"""Run the test suite of a library, unmodified, on weft and on JAX, and compare.

    python compat_suites/run.py optax --source CHECKOUT --weft ENV/bin/python --jax OTHER/bin/python --json optax.json
    python compat_suites/run.py --table optax.json chex.json        # the rows of docs/ecosystem.md

In:  a checkout of the library's repository at the tag of the installed release, and one or two Python environments that hold the
     library, pytest and what its tests need: one with weft (`weft shim install`), one with JAX. Nothing is fetched.
Out: the result of each test on each system, as a table and as JSON.

Each test file runs in a process of its own, so that one that dies or hangs costs its own tests alone: tests without a result have not
passed. A file that reaches its time limit is interrupted; the tests that ended before are counted.
The figure is the share of the tests passing on JAX that pass on weft, too.
`--sample N --seed S` runs about N tests of a large suite, the same ones on both systems.
Next to read: docs/ecosystem.md.
"""

import argparse
import concurrent.futures
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Suite:
    """Where the tests of a library lie in its repository, and what they are run with."""
    tests: tuple[str, ...]
    folder: str = "."                     # the folder that pytest starts in
    leave: tuple[str, ...] = ()           # parts of paths of files that are left out: they need other frameworks, downloads, or hardware
    env: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()         # options of pytest
    holding: str = ""                     # only files that contain this text
    before: str = ""                      # what the process of a file runs before pytest; {port} is a port that is free


@dataclass(frozen=True)
class Sample:
    """A random part of a suite: some of its files, and of each file at most `per_file` tests."""
    files: tuple[Path, ...]
    per_file: int
    seed: int

    @staticmethod
    def draw(files: list[Path], tests: int, seed: int) -> "Sample":
        """Draw about `tests` tests: 10 from each drawn file, or more where the suite has too few files."""
        count = min(len(files), math.ceil(tests / 10))
        return Sample(tuple(sorted(random.Random(seed).sample(files, count))), math.ceil(tests / count), seed)


# A pytest plugin that keeps the tests whose names have the least hashes; {per_file} and {seed} are filled in.
SAMPLER = """
import hashlib
class Sampler:
    @pytest.hookimpl(trylast=True)         # of the tests that options select
    def pytest_collection_modifyitems(self, items):
        def rank(item):
            return hashlib.sha256(("{seed} " + item.nodeid.partition("::")[2]).encode()).digest()
        sample = set(sorted(items, key=rank)[:{per_file}])
        items[:] = [item for item in items if item in sample]
plugins.append(Sampler())
"""
EIGHT_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "WEFT_NUM_DEVICES": "8"}
SUITES = {
    "optax": Suite(("optax/**/*_test.py",)),
    "chex": Suite(("chex/**/*_test.py",), env={"CHEX_N_CPU_DEVICES": "8"}),
    "equinox": Suite(("tests/test_*.py",), leave=("test_tpu",)),
    "flax": Suite(("tests/**/*_test.py", "tests/**/test_*.py"), leave=("tensorboard", "import_test", "/colab")),
    "jaxtyping": Suite(("test/test_*.py",), leave=("test_tf_dtype", "test_torch", "test_mlx")),
    "einops": Suite(("einops/tests/test_*.py",), env={"EINOPS_TEST_BACKENDS": "numpy,jax"}, leave=("test_notebooks",)),
    "orbax": Suite(("checkpoint/orbax/checkpoint/**/*_test.py",), folder="checkpoint", env=EIGHT_DEVICES,
                   leave=("/experimental/", "/benchmarks/", "multiprocess", "tpu", "gcs", "pathways"),
                   before="import jax; jax.distributed.initialize('localhost:{port}', 1, 0)"),
    "jmp": Suite(("jmp/**/*_test.py",)),
    "jraph": Suite(("jraph/**/*_test.py",), leave=("/examples/", "/ogb_examples/")),
    "haiku": Suite(("haiku/**/*_test.py",), leave=("/integration/", "jax2tf")),
    "distrax": Suite(("distrax/**/*_test.py",), env=EIGHT_DEVICES),
    "rlax": Suite(("rlax/**/*_test.py",)),
    "lineax": Suite(("tests/test_*.py",)),
    "optimistix": Suite(("tests/test_*.py",)),
    "diffrax": Suite(("test/test_*.py",)),
    "jaxopt": Suite(("tests/*_test.py",), leave=("cvxpy",)),
    "numpyro": Suite(("test/**/test_*.py",), leave=("test_examples", "pyroapi", "test_funsor", "test_nested_sampling", "test_nn")),
    "mctx": Suite(("mctx/**/*_test.py",)),
    "kfac-jax": Suite(("tests/test_*.py",)),
    "flowjax": Suite(("tests/**/test_*.py",)),
    "e3nn-jax": Suite(("tests/**/*_test.py", "tests/**/test_*.py")),
    "quax": Suite(("tests/test_*.py",)),
    "blackjax": Suite(("tests/**/test_*.py",)),
    "orthax": Suite(("tests/test_*.py",)),
    "quadax": Suite(("tests/test_*.py",)),
    "pytensor": Suite(("tests/link/jax/**/test_*.py",)),
    "pennylane": Suite(("tests/**/test_*.py",), leave=("capture",), holding="mark.jax", options=("-m", "jax and not capture")),
    "netket": Suite(("test/**/test_*.py",), leave=("test/sharding/",)),
    "dynamiqs": Suite(("tests/**/test_*.py",)),
    "s2fft": Suite(("tests/test_*.py",), leave=("test_torch", "fourier_wigner")),
    "scico": Suite(("scico/test/**/test_*.py",), leave=("/ray/",)),
    "qiskit-dynamics": Suite(("test/dynamics/**/test_*.py",)),
    "jaxls": Suite(("tests/test_*.py",), leave=("test_viz",)),
    "tinygp": Suite(("tests/**/test_*.py",)),
    "interpax": Suite(("tests/test_*.py",)),
    "jaxlie": Suite(("tests/test_*.py",), before="import sys; sys.path.append('tests')"),
    "evosax": Suite(("tests/**/test_*.py",)),
    "ott-jax": Suite(("tests/**/*_test.py",)),
    "keras": Suite(tuple(f"keras/src/{part}" for part in ("applications", "export", "layers", "ops", "trainers")),
                   env={"KERAS_BACKEND": "jax", "PYTEST_ADDOPTS": "--continue-on-collection-errors"}),
    "tensorflow-probability": Suite(tuple(f"tensorflow_probability/substrates/jax/{part}/**/*_test.py"
                                          for part in ("bijectors", "distributions", "mcmc"))),
    "brax": Suite(("brax/**/*_test.py",)),
    "mujoco-mjx": Suite(("mjx/mujoco/mjx/**/*_test.py",), folder="mjx"),
    "jaxley": Suite(("tests/**/test_*.py",)),
    "jumanji": Suite(("jumanji/**/*_test.py",)),
    "dynamax": Suite(("dynamax/**/*_test.py",)),
}


def files_of(suite: Suite, source: Path) -> list[Path]:
    """The test files, each once, in order."""
    matches = {path for pattern in suite.tests for path in source.glob(pattern)}
    files = sorted(path for path in matches if not any(part in str(path.relative_to(source)) for part in suite.leave))
    return [path for path in files if not suite.holding or suite.holding in path.read_text()]


def select(files: Sequence[Path], only: Sequence[str]) -> list[Path]:
    """Return the files whose paths contain a part in `only`; all files if it is empty."""
    return [path for path in files if not only or any(part in str(path) for part in only)]


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def run_file(python: Path, suite: Suite, source: Path, path: Path, limit: float,
             sample: Sample | None = None) -> tuple[dict[str, list[str]], float]:
    """The tests of a file: id -> [status, first line of the message]; and the seconds they took."""
    folder = source / suite.folder
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.xml")
        sampler = SAMPLER.format(per_file=sample.per_file, seed=sample.seed) if sample else ""
        before = suite.before.format(port=free_port())
        program = f"{before}\nimport sys, pytest\nplugins = []\n{sampler}\nsys.exit(pytest.main(plugins=plugins))"
        command = [str(python), "-c", program, "-q", "--tb=short", "-p", "no:cacheprovider", f"--junitxml={report}",
                   "--import-mode=importlib", "-W", "ignore", "-o", "addopts=", *suite.options, str(path.relative_to(folder))]
        environment = {**os.environ, "PYTHONPATH": "", "TMPDIR": scratch, **suite.env}
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   start_new_session=True)
        try:
            output, _ = process.communicate(timeout=limit)
            ended = f"the process ended with status {process.returncode}"
        except subprocess.TimeoutExpired:
            output = interrupt(process)
            ended = f"no end after {limit:.0f} s"
        seconds = time.perf_counter() - start
        name = str(path.relative_to(source))
        if not report.exists():
            return {f"{name}::": ["crashed", f"{ended}: {output.strip().splitlines()[-1] if output.strip() else ''}"]}, seconds
        return read_report(report, name), seconds


def interrupt(process: subprocess.Popen, grace: float = 30) -> str:
    """End a process group and return its output. An interrupted pytest still reports the tests that ended."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        return process.communicate(timeout=grace)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]


def read_report(report: Path, name: str) -> dict[str, list[str]]:
    results = {}
    for case in ElementTree.parse(report).iter("testcase"):
        outcome = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        status = "passed" if outcome is None else {"failure": "failed", "error": "error", "skipped": "skipped"}[outcome.tag]
        message = "" if outcome is None else (outcome.get("message") or outcome.text or "").strip().split("\n")[0][:300]
        group = case.get("classname", "").rpartition(".")[2]
        results[f"{name}::{group}::{case.get('name')}"] = [status, message]
    return results


def run_suite(python: Path, suite: Suite, source: Path, jobs: int, limit: float, only: list[str],
              sample: Sample | None = None) -> dict:
    files = sample.files if sample else files_of(suite, source)
    paths = select(files, only)
    tests: dict[str, list[str]] = {}
    seconds = 0.0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for path, (results, took) in zip(paths, pool.map(lambda path: run_file(python, suite, source, path, limit, sample), paths)):
            tests.update(results)
            seconds += took
            passed = sum(status == "passed" for status, _ in results.values())
            print(f"  {path.relative_to(source)}: {passed} of {len(results)} in {took:.0f} s", file=sys.stderr, flush=True)
    return {"tests": tests, "seconds": round(seconds)}


def versions(python: Path, library: str) -> str:
    """The versions of the library and of jax in an environment."""
    distribution = {"haiku": "dm-haiku", "orbax": "orbax-checkpoint"}.get(library, library)
    program = f"from importlib.metadata import version; print(version({distribution!r}), version('jax'))"
    return subprocess.run([str(python), "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def row(result: dict) -> str:
    """A row of the table: the library, tests that pass on JAX, of these on weft, share, seconds on each."""
    jax, weft = result["jax"], result["weft"]
    counted = [test for test, (status, _) in jax["tests"].items() if status == "passed"]
    passed = sum(weft["tests"].get(test, ["missing"])[0] == "passed" for test in counted)
    share = f"{100 * passed / len(counted):.1f} %" if counted else "none"
    return f"| {result['library']} {result['version']} | {len(counted)} | {passed} | {share} | {jax['seconds']} | {weft['seconds']} |"


def failures(result: dict) -> list[str]:
    """Tests that pass on JAX and not on weft, with the message."""
    found = []
    for test, (status, _) in result["jax"]["tests"].items():
        status_here, message = result["weft"]["tests"].get(test, ["missing", ""])
        if status == "passed" and status_here != "passed":
            found.append(f"{status_here:8} {test}  {message}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", nargs="?", choices=SUITES, metavar="LIBRARY", help=", ".join(SUITES))
    parser.add_argument("--source", type=Path, help="the checkout of its repository")
    parser.add_argument("--weft", type=Path, help="the Python of the environment with weft as jax")
    parser.add_argument("--jax", type=Path, help="the Python of the environment with JAX")
    parser.add_argument("--only", nargs="*", default=[], metavar="PART", help="files whose path contains one of these")
    parser.add_argument("--sample", type=int, metavar="N", help="run about N tests, drawn at random")
    parser.add_argument("--seed", type=int, default=36, help="the seed of the sample")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=900, help="seconds that a file may take")
    parser.add_argument("--json", type=Path, help="where to keep the results; a system that is not named keeps those there")
    parser.add_argument("--table", nargs="+", type=Path, metavar="JSON", help="print the table of earlier results")
    args = parser.parse_args()
    if args.table:
        print("| library | passed on JAX | of these on weft | share | seconds on JAX | seconds on weft |\n|---|---|---|---|---|---|")
        print("\n".join(row(json.loads(path.read_text())) for path in args.table))
        return
    if not args.name or not args.source or not (args.weft or args.jax):
        parser.error("name a library, --source, and --weft or --jax")
    suite, source = SUITES[args.name], args.source.resolve()
    result = json.loads(args.json.read_text()) if args.json and args.json.exists() else {"library": args.name}
    sample = Sample.draw(select(files_of(suite, source), args.only), args.sample, args.seed) if args.sample else None
    for system in ("jax", "weft"):
        python = getattr(args, system)
        if python is None:
            continue
        python = python.absolute()
        result["version"] = versions(python, args.name).split()[0]
        print(f"{args.name} on {system}", file=sys.stderr)
        outcome = run_suite(python, suite, source, args.jobs, args.limit, args.only, sample)
        if args.only and system in result:
            result[system]["tests"].update(outcome["tests"])
        else:
            result[system] = outcome
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))
    if "jax" in result and "weft" in result:
        print("\n".join(failures(result)))
        print(row(result))


if __name__ == "__main__":
    main()
