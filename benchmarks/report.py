"""Format results: a line per row, a summary, the missed targets, and benchmarks/RESULTS.md.

results.json holds the newest row of each case, and RESULTS.md is generated from it. notes.md is written by hand.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
STREAMS = ("copy", "read", "write")
STREAM_SHARE, FMA_SHARE, FMA_FROM = 0.80, 0.90, 2.0 * 512**3
EVEN, FIRST, FIRST_CACHED, PEAK_SLACK_MIB = 0.95, 1 / 3, 1 / 10, 16.0


def seconds(value: float) -> str:
    """A time in seconds, ms or µs."""
    unit, scale = next(
        ((u, s) for u, s in (("s", 1.0), ("ms", 1e3)) if value * s >= 1), ("µs", 1e6)
    )
    return f"{value * scale:.3g} {unit}"


def unit(bound: str) -> str:
    return "GB/s" if bound in STREAMS else "GF/s"


def share(row: dict) -> str:
    """The achieved rate and its share of the limit."""
    if "bound" not in row:
        return ""
    return f"{row['rate']:.0f} {unit(row['bound'])} ({100 * row['rate'] / row['limit']:.0f} %)"


def failure(row: dict) -> str:
    """The error of a failed row, by the engine's name."""
    return row["error"].replace("peer:", "JAX:", 1)


def missed(row: dict) -> list[str]:
    """The targets that a row misses."""
    if "error" in row:
        return [failure(row)]
    found = []
    if row["ratio"] > EVEN and row["kind"] == "step":
        found.append(f"{row['ratio']:.2f} of JAX's time")
    if row["kind"] != "step" and row["ratio"] > FIRST:
        found.append(f"cold {row['ratio']:.2f} of JAX's time")
    if row.get("cached_ratio", 0) > (FIRST_CACHED if row["kind"] == "first" else 1 / 5):
        found.append(f"from the disk cache {row['cached_ratio']:.2f} of JAX's time")
    part = row["rate"] / row["limit"] if "bound" in row else 1
    if row.get("bound") in STREAMS and part < STREAM_SHARE:
        found.append(f"{100 * part:.0f} % of the {row['bound']} limit")
    large = (
        row.get("bound") == "float32"
        and row["group"] == "matmul"
        and row["rate"] * 1e9 * row["best"]["weft"] >= FMA_FROM
    )
    if large and part < FMA_SHARE:
        found.append(f"{100 * part:.0f} % of the multiply-add rate")
    peak = row.get("peak_mib")
    if peak and peak["weft"] > peak["peer"] + PEAK_SLACK_MIB:
        found.append(f"peak memory {peak['weft']:.0f} MiB, JAX {peak['peer']:.0f}")
    return found


def line(row: dict) -> str:
    """A row as one line for the terminal."""
    if "error" in row:
        return f"{row['name']:45s} FAILED {failure(row)}"
    cached = f"  cached {row['cached_ratio']:.3f}" if "cached_ratio" in row else ""
    first = f"  first {row['first']['weft'] / row['first']['peer']:.2f}" if "first" in row else ""
    peak = (
        f"  {row['peak_mib']['weft']:.0f}/{row['peak_mib']['peer']:.0f} MiB"
        if "peak_mib" in row
        else ""
    )
    return (
        f"{row['name']:45s} weft {seconds(row['best']['weft']):>8s}  JAX {seconds(row['best']['peer']):>8s}  "
        f"ratio {row['ratio']:.3f} (median {row['median_ratio']:.3f}){cached}{first}{peak}  {share(row)}"
    )


def mean(ratios: Sequence[float]) -> str:
    """Geometric mean."""
    return (
        f"{math.exp(statistics.fmean(map(math.log, ratios))):.3f} ({len(ratios)} cases)"
        if ratios
        else "none"
    )


def summary(rows: Sequence[dict]) -> list[str]:
    """Geometric means, cases slower than JAX, peak memory, failures."""
    good = [row for row in rows if "error" not in row]
    slower = sorted((row for row in good if row["ratio"] > 1), key=lambda row: -row["ratio"])
    lines = [
        f"Geometric mean of the ratios: {mean([row['ratio'] for row in good])}; "
        f"repeated calls {mean([row['ratio'] for row in good if row['kind'] == 'step'])}, "
        f"their first calls {mean([row['first']['weft'] / row['first']['peer'] for row in good if 'first' in row])}; "
        f"first-call cases {mean([row['ratio'] for row in good if row['kind'] == 'first'])}, "
        f"from the disk cache {mean([row['cached_ratio'] for row in good if row['kind'] == 'first'])}.",
        "Slower than JAX: "
        + (", ".join(f"{row['name']} ({row['ratio']:.2f})" for row in slower) or "none")
        + ".",
    ]
    whole = [
        (row["process_mib"]["weft"] / row["process_mib"]["peer"], row["name"])
        for row in good
        if "process_mib" in row
    ]
    if whole:
        lines.append(
            f"Peak memory of whole processes, ratio to JAX: {mean([ratio for ratio, _ in whole])}; "
            "at most {:.2f} ({}).".format(*max(whole))
        )
    failed = [row for row in rows if "error" in row]
    if failed:
        lines.append(
            "Failed: "
            + ", ".join(f"{row['name']} ({failure(row).partition(':')[0]})" for row in failed)
            + "."
        )
    return lines


def table(rows: Sequence[dict]) -> list[str]:
    """Markdown rows of one group."""
    heads = [
        "case",
        "weft",
        "JAX",
        "ratio",
        "median ratio",
        "disk cache",
        "first call",
        "peak MiB, weft / JAX",
        "rate (of limit)",
    ]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in rows:
        name = row["name"].replace("|", "\\|")
        if "error" in row:
            lines.append(f"| {name} | {failure(row).replace('|', '/')} |" + " |" * (len(heads) - 2))
            continue
        cells = [
            name,
            seconds(row["best"]["weft"]),
            seconds(row["best"]["peer"]),
            f"{row['ratio']:.3f}",
            f"{row['median_ratio']:.3f}",
            f"{row['cached_ratio']:.3f}" if "cached_ratio" in row else "",
            f"{row['first']['weft'] / row['first']['peer']:.2f}" if "first" in row else "",
            f"{row['peak_mib']['weft']:.0f} / {row['peak_mib']['peer']:.0f}"
            if "peak_mib" in row
            else "",
            share(row),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def write(rows: Sequence[dict], version: str) -> None:
    """Merge rows into results.json and regenerate RESULTS.md."""
    store = HERE / "results.json"
    kept = {row["name"]: row for row in json.loads(store.read_text())} if store.exists() else {}
    kept |= {row["name"]: row for row in rows}
    store.write_text(
        "[\n"
        + ",\n".join(json.dumps(_short(row), ensure_ascii=False) for row in kept.values())
        + "\n]\n"
    )
    (HERE / "RESULTS.md").write_text("\n".join(page(list(kept.values()), version)) + "\n")


def _short(value: object) -> object:
    """The same value with floats rounded to four digits."""
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def page(rows: Sequence[dict], version: str) -> list[str]:
    """RESULTS.md, line by line."""
    facts = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next(
        (text.split(":")[1].strip() for text in facts if text.startswith("model name")),
        platform.processor(),
    )
    dates = sorted({row["date"] for row in rows})
    limits = {
        row["bound"]: row["limit"]
        for row in sorted((r for r in rows if "bound" in r), key=lambda r: r["limit"])
    }
    lines = [
        "# Results",
        "",
        f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}, {cpu}, {os.cpu_count()} cores, Python {platform.python_version()}; "
        f"JAX {version} on the same machine, the two processes of each case in turn. "
        "Generated by `make bench`. [Conditions, reasons and other measurements](notes.md) are a page of their own.",
        "Times are the best of all rounds; a ratio below 1 means that weft is faster. Highest limits measured in the same rounds: "
        + (", ".join(f"{k} {v:.0f} {unit(k)}" for k, v in sorted(limits.items())) or "none")
        + ".",
        "",
        *summary(rows),
        "",
    ]
    for group in dict.fromkeys(row["group"] for row in rows):
        inside = [row for row in rows if row["group"] == group]
        lines += [
            f"## {group.capitalize()}",
            "",
            f"Geometric mean {mean([r['ratio'] for r in inside if 'ratio' in r])}.",
            "",
            *table(inside),
            "",
        ]
    lines += ["## Targets missed", ""]
    lines += [f"- {row['name']}: {'; '.join(missed(row))}" for row in rows if missed(row)]
    return lines
