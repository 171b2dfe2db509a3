"""The report of planted faults, as a page of tables."""

from __future__ import annotations

import datetime
import os
import platform
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.planted.faults import FAULTS


def machine() -> str:
    """Return the processor's name and the number of CPUs."""
    name = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        name = next((x.partition(":")[2].strip() for x in lines if x.startswith("model n")), name)
    return f"{name}, {os.cpu_count()} CPUs"


def write_report(results: dict[str, Any], path: Path, checks: Sequence[str]) -> None:
    """Write the results as Markdown."""
    faults, mutants = results["faults"], results["mutants"]
    text = [
        "# Planted faults",
        "",
        f"Written by `make planted` on {datetime.date.today()}: {machine()}. Each fault is planted",
        "in a copy of the sources; parts of the test suite run in turn until a test fails.",
        "",
        *named_faults(faults),
        "",
        *random_mutants(mutants, results.get("seed")),
        "",
        *check_times(results["baseline"], checks),
    ]
    path.write_text("\n".join(text) + "\n")


def named_faults(faults: dict[str, Any]) -> list[str]:
    """Return the table of named faults."""
    caught = sum(record["result"] == "caught" for record in faults.values())
    lines = [
        "## Named faults",
        "",
        f"{len(faults)} of {len(FAULTS)} planted, {caught} caught.",
        "",
        "| fault | what it does | caught by | seconds |",
        "|---|---|---|---|",
    ]
    for fault in FAULTS:
        record = faults.get(fault.name)
        if record is not None:
            by = f"{record['check']}: `{record['test']}`" if "check" in record else record["result"]
            lines.append(f"| {fault.name} | {fault.note} | {by} | {record['seconds']} |")
    return lines


def random_mutants(mutants: dict[str, Any], seed: int | None) -> list[str]:
    """Return the counts of mutants, and the survivors."""
    counts = Counter(record["result"] for record in mutants.values())
    changing = counts["caught"] + counts["other values"]
    lines = ["## Random mutants", ""]
    if not mutants:
        return [*lines, "None were drawn."]
    share = f" ({100 * counts['caught'] / changing:.0f} %)" if changing else ""
    lines += [
        f"{len(mutants)} drawn with seed {seed}; {counts['caught']} of the {changing} that change",
        f"a result are caught{share}. The others pass the tests of their package and were compared",
        "with the compiler without a fault on the corpus of `benchmarks/replay.py`: "
        + ", ".join(f"{counts[k]} {k}" for k in ("equal", "other code", "other rounding"))
        + ".",
        "",
        "| not caught | change | replay |",
        "|---|---|---|",
    ]
    for name, record in sorted(mutants.items(), key=lambda item: item[1]["result"], reverse=True):
        if record["result"] != "caught":
            note = record["note"].replace("|", "\\|")
            lines.append(f"| `{name}` | `{note}` | {record['result']} |")
    return lines


def check_times(baseline: dict[str, Any], checks: Sequence[str]) -> list[str]:
    """Return what each check takes without a fault."""
    lines = ["## Checks without a fault", "", "| check | seconds | left out |", "|---|---|---|"]
    for name in checks:
        if name in baseline:
            row = baseline[name]
            lines.append(f"| {name} | {row['seconds']} | {len(row['failed'])} |")
    return lines
