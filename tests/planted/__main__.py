"""Plant faults in copies of the compiler, and record which check catches each.

    python -m tests.planted                           the 20 named faults
    python -m tests.planted --mutants 100 --seed 34   and 100 random mutants
    python -m tests.planted --report                  only write the report

Results are stored in `.planted/results.json` after each fault, so that an interrupted run resumes;
a change of the package or of the tests starts over. `--report`, and a complete run, write
`benchmarks/planted.md`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.planted import mutants, tree
from tests.planted.battery import CHECKS, Battery, order_checks
from tests.planted.faults import FAULTS
from tests.planted.report import write_report
from tests.planted.tree import ROOT, PlantedChange

STATE = ROOT / ".planted"
RESULTS = STATE / "results.json"
REPORT = ROOT / "benchmarks" / "planted.md"


def load_results(identity: str) -> dict[str, Any]:
    """Return the results of an interrupted run on the same sources, else empty ones."""
    if RESULTS.exists():
        results = json.loads(RESULTS.read_text())
        if results["tree"] == identity:
            return results
        print("the sources have changed: beginning anew")
        shutil.rmtree(STATE)
    return {"tree": identity, "baseline": {}, "faults": {}, "mutants": {}}


def save_results(results: dict[str, Any]) -> None:
    STATE.mkdir(exist_ok=True)
    partial = RESULTS.with_suffix(".partial")
    partial.write_text(json.dumps(results, indent=1))
    partial.replace(RESULTS)


def try_change(copy: Path, change: PlantedChange, battery: Battery, kind: str) -> dict[str, Any]:
    """Plant one change, and return the result.

    A mutant that passes the tests of its package, and whose results on the corpus have the same
    bits, counts as one that changes no result; the other checks do not run.
    """
    start = time.perf_counter()
    checks = order_checks(change.path)
    stages = [checks] if kind == "faults" else [checks[:1], checks[1:]]
    result = ""
    with tree.plant(copy, change):
        record = {"note": change.note, "path": change.path}
        for stage in stages:
            catch = battery.run(stage)
            if catch is not None:
                seconds = round(time.perf_counter() - start, 1)
                return {**record, **asdict(catch), "result": "caught", "seconds": seconds}
            result = result or battery.replay(STATE / "replay")
            if result in ("equal", "other code"):
                break
    return {**record, "result": result, "seconds": round(time.perf_counter() - start, 1)}


def run_changes(kind: str, changes: list[Any], results: dict[str, Any], workers: int) -> None:
    """Try every change that has no result yet."""
    waiting = [change for change in changes if change.name not in results[kind]]
    if not waiting:
        return
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy, clean = [tree.copy_tree(Path(folder) / name) for name in ("faulty", "clean")]
        battery = Battery(copy, clean, results["baseline"], workers)
        for change in waiting:
            record = results[kind][change.name] = try_change(copy, change, battery, kind)
            save_results(results)
            where = (
                f" by {record['check']}: {record['test']}" if record["result"] == "caught" else ""
            )
            print(f"{change.name}: {record['result']}{where} ({record['seconds']} s)", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Which checks catch faults in the compiler.")
    parser.add_argument("--only", help="named faults whose name contains this text")
    parser.add_argument("--mutants", type=int, default=0, help="the number of random mutants")
    parser.add_argument("--seed", type=int, default=34, help="of the mutants")
    parser.add_argument("--workers", type=int, default=2, help="processes of pytest")
    parser.add_argument("--report", action="store_true", help="write the report, run nothing")
    options = parser.parse_args()
    results = load_results(tree.tree_id())
    if not options.report:
        faults = [f for f in FAULTS if not options.only or options.only in f.name]
        run_changes("faults", faults, results, options.workers)
        if options.mutants:
            drawn = mutants.draw(ROOT, options.mutants, options.seed)
            results["seed"] = options.seed
            run_changes("mutants", drawn, results, options.workers)
    if options.report or not options.only:
        write_report(results, REPORT, [check.name for check in CHECKS])
    caught = [record["result"] == "caught" for record in results["faults"].values()]
    return 0 if all(caught) else 1


if __name__ == "__main__":
    raise SystemExit(main())
