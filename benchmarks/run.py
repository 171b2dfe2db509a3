"""Race weft and the peer (JAX from the registry, in a virtual environment of its own), side by side in one run.

    python benchmarks/run.py [--quick] [--only TEXT] [--write] [--peer PYTHON] [--rounds N]

Every case runs in processes of its own, alternating A B A B; best and median over all rounds, and ratios (below 1: weft is
faster). `--write` puts the table into benchmarks/RESULTS.md. The machine's limits are measured in the same run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import cases  # noqa: E402


def peer_python(given: str | None) -> str:
    """The peer's interpreter; its environment is made on first use."""
    if given:
        return given
    home = HERE.parent / ".venv-peer"
    python = home / "bin" / "python"
    if not python.exists():
        print("setting up the peer's environment in .venv-peer ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "jax"], check=True)
    return str(python)


def run_case(python: str, engine: str, name: str, rounds: int) -> dict | None:
    command = [python, str(HERE / "worker.py"), engine, name, str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=HERE.parent)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT"):
            return json.loads(line.removeprefix("RESULT"))
    print(done.stderr[-2000:], file=sys.stderr)
    return None


def race(pythons: dict[str, str], name: str, rounds: int) -> dict[str, dict]:
    """Both engines on one case, A B A B."""
    found: dict[str, dict] = {}
    for _ in range(2):
        for engine, python in pythons.items():
            result = run_case(python, engine, name, rounds)
            if result is None:
                continue
            if engine in found:
                found[engine]["seconds"] += result["seconds"]
                found[engine]["first"] = min(found[engine]["first"], result["first"])
                found[engine]["peak_mib"] = max(found[engine]["peak_mib"], result["peak_mib"])
            else:
                found[engine] = result
    return found


def run_script(python: str, engine: str, script: str, cold: bool) -> float:
    """Seconds of a whole process, or what it prints as TIME. `cold` starts from an empty kernel cache."""
    env = dict(os.environ)
    env["PYTHONPATH"] = str(HERE.parent)
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages, the peer among them, have their bytecode
    prefix = "import weft.compat\nweft.compat.install_as_jax()\n" if engine == "weft" else ""
    with tempfile.TemporaryDirectory() as scratch:
        if engine == "weft" and cold:
            env["WEFT_CACHE_DIR"] = scratch
        path = Path(scratch) / "script.py"
        path.write_text(prefix + script)
        start = time.perf_counter()
        done = subprocess.run([python, str(path)], capture_output=True, text=True, env=env, timeout=300)
        total = time.perf_counter() - start
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
    for line in done.stdout.splitlines():
        if line.startswith("TIME"):
            return float(line.split()[1])
    return total


def race_scripts(pythons: dict[str, str], rounds: int) -> list[dict]:
    rows = []
    for name, script in cases.SCRIPTS.items():
        times: dict[str, list[float]] = {"weft cold": [], "weft": [], "peer": []}
        for _ in range(rounds):
            times["weft cold"].append(run_script(pythons["weft"], "weft", script, True))
            times["peer"].append(run_script(pythons["peer"], "peer", script, False))
            times["weft"].append(run_script(pythons["weft"], "weft", script, False))
        rows.append({"name": name, **{k: min(v) for k, v in times.items()}})
        row = rows[-1]
        print(f"{name:32s} weft cold {seconds(row['weft cold']):>9s}  cached {seconds(row['weft']):>9s}  peer {seconds(row['peer']):>9s}"
              f"  ratio {row['weft cold'] / row['peer']:.3f} / {row['weft'] / row['peer']:.3f}", flush=True)
    return rows


def limits(python: str) -> dict[str, float]:
    """Stream bandwidth (GB/s: read one array, write another) and matmul rate (GF/s of the BLAS) of this machine, now."""
    code = """
import numpy as np, time
def best(f, n=7):
    out = []
    for _ in range(n):
        t = time.perf_counter(); f(); out.append(time.perf_counter() - t)
    return min(out)
import weft, weft.numpy as wnp
x = wnp.ones((8192, 8192)); f = weft.jit(lambda x: x + 1.0); y = f(x); del y
def copy():
    f(x)
copy()
n = 2048; a = np.ones((n, n), 'f4')
print(2 * x.nbytes / best(copy) / 1e9, 2 * n ** 3 / best(lambda: a @ a, 3) / 1e9)
"""
    env = dict(os.environ, PYTHONPATH=str(HERE.parent))
    out = subprocess.run([python, "-c", code], capture_output=True, text=True, env=env, check=True).stdout.split()
    return {"stream": float(out[0]), "blas": float(out[1])}


def seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * scale >= 1 or unit == "µs":
            return f"{value * scale:.3g} {unit}"
    return f"{value} s"


def share(chosen: cases.Case, best: float, limit: dict[str, float]) -> str:
    if chosen.bytes:
        return f"{chosen.bytes / best / 1e9:.0f} GB/s ({100 * chosen.bytes / best / 1e9 / limit['stream']:.0f} %)"
    if chosen.flops:
        return f"{chosen.flops / best / 1e9:.0f} GF/s"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the quick subset")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--write", action="store_true", help="write benchmarks/RESULTS.md")
    parser.add_argument("--peer", default=os.environ.get("WEFT_PEER_PYTHON"), help="a Python that has jax")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    pythons = {"weft": sys.executable, "peer": peer_python(args.peer)}
    version = subprocess.run([pythons["peer"], "-c", "import jax; print(jax.__version__)"], capture_output=True, text=True,
                             check=True).stdout.strip()
    limit = limits(pythons["weft"])
    print(f"stream {limit['stream']:.0f} GB/s, BLAS float32 {limit['blas']:.0f} GF/s, peer JAX {version}")
    scripts = race_scripts(pythons, 3) if not args.only or args.only in " ".join(cases.SCRIPTS) else []
    rows = []
    for name, chosen in cases.CASES.items():
        if args.only not in name or (args.quick and not chosen.quick):
            continue
        found = race(pythons, name, args.rounds)
        if len(found) < 2:
            print(f"{name:32s} failed: {sorted(set(pythons) - set(found))}", flush=True)
            continue
        best = {k: min(v["seconds"]) for k, v in found.items()}
        median = {k: statistics.median(v["seconds"]) for k, v in found.items()}
        rows.append({"name": name, "group": chosen.group, "best": best, "median": median,
                     "ratio": best["weft"] / best["peer"], "median_ratio": median["weft"] / median["peer"],
                     "first": {k: v["first"] for k, v in found.items()}, "peak": {k: v["peak_mib"] for k, v in found.items()},
                     "share": share(chosen, best["weft"], limit)})
        r = rows[-1]
        print(f"{name:32s} weft {seconds(best['weft']):>9s}  peer {seconds(best['peer']):>9s}  ratio {r['ratio']:.3f} "
              f"(median {r['median_ratio']:.3f})  {r['share']}", flush=True)
    if rows:
        mean = math.exp(statistics.fmean(math.log(r["ratio"]) for r in rows))
        print(f"geometric mean of ratios {mean:.3f} over {len(rows)} cases; slower than the peer: "
              f"{[r['name'] for r in rows if r['ratio'] > 1] or 'none'}")
    if args.write:
        write(rows, scripts, limit, version)


def write(rows: list[dict], scripts: list[dict], limit: dict[str, float], version: str) -> None:
    """Put the tables into RESULTS.md."""
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    mean = math.exp(statistics.fmean(math.log(r["ratio"]) for r in rows)) if rows else float("nan")
    lines = [
        "# Results", "",
        f"{datetime.date.today()}, {cpu}, {os.cpu_count()} cores, Python {platform.python_version()}, peer: JAX {version} on the "
        "same machine in the same run, processes alternating. Made by `make bench`.",
        f"Limits in this run: stream {limit['stream']:.0f} GB/s (weft's x + 1 on 256 MiB), BLAS float32 {limit['blas']:.0f} GF/s. "
        f"Geometric mean of all ratios: {mean:.3f} (below 1: weft is faster).", "",
        "## Processes", "", "| what | weft, cold cache | weft | JAX | ratio cold | ratio |", "|---|---|---|---|---|---|"]
    lines += [f"| {r['name']} | {seconds(r['weft cold'])} | {seconds(r['weft'])} | {seconds(r['peer'])} | "
              f"{r['weft cold'] / r['peer']:.3f} | {r['weft'] / r['peer']:.3f} |" for r in scripts]
    for group in dict.fromkeys(r["group"] for r in rows):
        lines += ["", f"## {group.capitalize()}", "",
                  "| case | weft best | JAX best | ratio | ratio of medians | first call ratio | peak MiB weft / JAX | weft's rate |",
                  "|---|---|---|---|---|---|---|---|"]
        lines += [f"| {r['name']} | {seconds(r['best']['weft'])} | {seconds(r['best']['peer'])} | {r['ratio']:.3f} | "
                  f"{r['median_ratio']:.3f} | {r['first']['weft'] / r['first']['peer']:.2f} | "
                  f"{r['peak']['weft']:.0f} / {r['peak']['peer']:.0f} | {r['share']} |" for r in rows if r["group"] == group]
    (HERE / "RESULTS.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
