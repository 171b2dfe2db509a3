"""Install PJRT plugins into a separate environment, and run the tests of accelerators on each.

    python -m tests.accelerators.run [--quick] [--workers N]

Runs the tests on XLA's CPU client with two versions of the C API, and compiles programs ahead of
time for 8 H100; WEFT_LIBTPU=path compiles for TPUs too. `--quick`, for CI, runs the newer CPU plugin
without slow tests. A plugin that cannot be installed is reported, and is no failure.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".accelerators"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
CPU_PLUGINS = {
    "lammps-jax-pjrt-cpu": "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so",
    "xla-cpu-pjrt": "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so",
}
CUDA_PLUGIN = ("jax-cuda13-pjrt", "jax_plugins/xla_cuda13/xla_cuda_plugin.so")


def install_plugin(name: str, library: str) -> Path | None:
    """Return the path of a plugin's library, installed if it is absent; None if that fails."""
    path = FOLDER / name / library
    if path.exists():
        return path
    line = next(line for line in REQUIREMENTS.read_text().splitlines() if line.startswith(name))
    FOLDER.mkdir(exist_ok=True)
    requirement = FOLDER / f"{name}.txt"
    requirement.write_text(line + "\n")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--require-hashes", "--only-binary=:all:", "--target"]
    done = subprocess.run(
        [*command, str(FOLDER / name), "-r", str(requirement)], capture_output=True, text=True
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        print(f"accelerators: {name} cannot be installed, its tests do not run: {reason}")
        return None
    return path


def run_tests(title: str, workers: int, paths: list[str], **variables: str) -> bool:
    """Run tests with variables of the environment; return whether all passed."""
    print(f"accelerators: {title}", flush=True)
    start = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), *paths]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables})
    print(f"accelerators: {title} took {time.monotonic() - start:.0f} s", flush=True)
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Test the backend of PJRT plugins.")
    parser.add_argument("--quick", action="store_true", help="the part for CI")
    parser.add_argument("--part", metavar="K/N", help="only the tests K, K + N, ...")
    parser.add_argument("--workers", type=int, default=2, help="processes of pytest")
    options = parser.parse_args()
    names = list(CPU_PLUGINS)[:1] if options.quick else list(CPU_PLUGINS)
    marks = ["-m", "not slow"] if options.quick else ["-m", "slow or exhaustive or not slow"]
    marks += ["--part", options.part] if options.part else []
    passed = []
    for name in names:
        library = install_plugin(name, CPU_PLUGINS[name])
        if library is not None:
            variables = {"WEFT_TEST_PJRT_PLUGIN": str(library)}
            passed.append(
                run_tests(name, options.workers, [*marks, "tests/accelerators"], **variables)
            )
    ahead = {}
    if not options.quick:
        cuda = install_plugin(*CUDA_PLUGIN)
        ahead |= {} if cuda is None else {"WEFT_TEST_CUDA_PLUGIN": str(cuda)}
        tpu = os.environ.get("WEFT_LIBTPU", "")
        ahead |= {"WEFT_TEST_LIBTPU": tpu} if tpu else {}
    if ahead:
        paths = [*marks, "tests/accelerators/test_topologies.py"]
        passed.append(run_tests("programs compiled ahead of time", 1, paths, **ahead))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    raise SystemExit(main())
