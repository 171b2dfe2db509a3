"""Agreement between processes: equal versions at startup, equal programs at compile time.

In:   the program that a process is about to compile: its fingerprint, its lines on demand, values for the other ranks; the plugin versions.
Out:  the values of all ranks; or, on every rank, the same error with the versions or the first lines that differ.
Laws: versions are facts that all processes exchange and compare when they join. A set of ranks compares its programs in the order of their
      compilation, before any rank waits in a collective of the program. A rank that does not arrive makes the barrier raise an error
      that names it. Programs with equal lines are equal.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np

from weft import _version as weft_version
from weft._engine.processes import failures
from weft._engine.processes.current_processes import held
from weft._engine.util.errors import ProcessFailureError, describe

_RULE = "All processes must run the same programs, in the same order, on arrays of the same types and layouts."
_REMEDY = (
    "Look for what differs between them where the program is traced: the process index, random seeds, the order of sets, "
    "the environment, sizes of data."
)


def collect_versions(plugins: Mapping[str, str]) -> dict[str, str]:
    """Return the names and versions of the software that all processes must have in common."""
    python = ".".join(map(str, sys.version_info[:3]))
    return {
        "weft": weft_version.__version__,
        "Python": f"{sys.implementation.name} {python}",
        "numpy": np.__version__,
        "ml_dtypes": ml_dtypes.__version__,
        **{f"plugin {name}": version for name, version in plugins.items()},
    }


def check_versions(versions: Sequence[Mapping[str, str] | None], hosts: Sequence[str]) -> None:
    """Raise ProcessFailureError if versions of the processes differ; its `ranks` are the minority."""
    tables = [dict(one or {}) for one in versions]
    rows: list[Any] = []
    different: set[int] = set()
    for name in dict.fromkeys(name for table in tables for name in table):
        ranks_by_version: dict[str, list[int]] = {}
        for rank, table in enumerate(tables):
            ranks_by_version.setdefault(table.get(name, "none"), []).append(rank)
        if len(ranks_by_version) == 1:
            continue
        most = max(ranks_by_version.values(), key=len)
        for version, ranks in ranks_by_version.items():
            different |= set(ranks) - set(most)
            where = ", ".join(list(dict.fromkeys(hosts[rank] for rank in ranks))[:4])
            rows.append(
                (
                    name,
                    version,
                    f"process{'es' * (len(ranks) > 1)} {failures._format_ranks(ranks)} on {where}",
                )
            )
    if rows:
        raise ProcessFailureError(
            describe(
                "distributed.initialize",
                "the processes run different versions.",
                rows,
                None,
                "All processes of a program must run the same versions; otherwise they compile and exchange different things.",
                "Install the same versions on all hosts; `weft info` prints the versions of one host.",
            ),
            sorted(different),
        )


def check_program(
    ranks: Sequence[int],
    fingerprint: str,
    lines: Callable[[], list[tuple[str, str]]],
    value: Any = None,
) -> list[Any]:
    """Return the value `value` of each of `ranks`, in order, once all ranks have the same fingerprint.

    `lines()` returns pairs of a line of the program and its source location. Raises ProcessFailureError on all ranks if fingerprints differ.
    """
    shared = _current_processes()
    place = tuple(ranks)
    number = shared.next_number(place)
    ranks_id = hashlib.md5(repr(place).encode(), usedforsecurity=False).hexdigest()[:8]

    def meet(stage: str, what: Any) -> list[Any]:
        name = f"program {number} of {ranks_id}{stage}"
        return shared.client.barrier(name, shared.collective_timeout, ranks, what) or [what]

    replies = meet("", [fingerprint, value])
    if len({one for one, _ in replies}) > 1:
        mine = lines()
        hashes = meet(", hashes", [_hash_line(text) for text, _ in mine])
        if any(one != hashes[0] for one in hashes):
            raise _make_difference_error(place, hashes, mine, lambda what: meet(", lines", what))
    return [one for _, one in replies]


def _current_processes() -> Any:
    if not held:
        raise RuntimeError("weft.distributed: there is one process")
    return held[0]


def _hash_line(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:16]


def _make_difference_error(
    ranks: tuple[int, ...],
    hashes: list[list[str]],
    mine: list[tuple[str, str]],
    meet: Callable[[Any], list[Any]],
) -> ProcessFailureError:
    """Return the error that shows the first line that differs from the majority's program."""
    common = Counter(map(tuple, hashes)).most_common(1)[0][0]
    others = [one for one in hashes if tuple(one) != common]
    at = min(
        next((i for i, (a, b) in enumerate(zip(one, common)) if a != b), min(len(one), len(common)))
        for one in others
    )
    lines_at = meet(list(mine[at]) if at < len(mine) else ["(the program ends)", ""])
    by_text: dict[tuple[str, str], list[int]] = {}
    for rank, (text, where) in zip(ranks, lines_at):
        by_text.setdefault((text, where), []).append(rank)
    table = []
    for (text, where), some in by_text.items():
        table.append(
            (
                f"rank{'s' * (len(some) > 1)} {', '.join(map(str, some))}",
                text if len(text) < 400 else f"{text[:400]} ...",
            )
        )
        table += [("", f"at {where}")] if where else []
    differ = tuple(rank for rank, one in zip(ranks, hashes) if tuple(one) != common)
    message = describe(
        f"compiling {mine[0][0]}",
        "the processes traced different programs.",
        table,
        None,
        _RULE,
        _REMEDY,
    )
    return ProcessFailureError(message, differ)


def report_progress(text: str) -> Any:
    """Return a context manager that reports `text` to ranks that wait for this process, so that they keep waiting."""
    return _current_processes().report_busy(text)


@contextmanager
def elect_compiler(leader: int, key: str) -> Iterator[bool]:
    """Yield True if this process must compile the program `key`; other ranks wait until `leader` has compiled it or failed."""
    shared = _current_processes()
    name = f"weft/compiled/{key}"
    if shared.rank != leader:
        _await_leader(shared, leader, name)
        yield False
        return
    try:
        yield True
    finally:
        shared.client.put(name, b"done")


def _await_leader(shared: Any, leader: int, name: str) -> None:
    """Wait until `leader` has put the key `name`; extend the limit while it reports that it is busy."""
    clock = shared.clock(shared.collective_timeout)
    while True:
        try:
            shared.client.get(name, shared.collective_timeout)
            return
        except ProcessFailureError:
            shared.check()  # raises unless the limit alone has passed
            if clock.is_over([leader]):
                report = shared.client.query_stacks([leader])
                raise failures.of_absence(
                    f"the program that process {leader} compiles for all processes",
                    shared.collective_timeout,
                    [shared.rank],
                    [leader],
                    report=report,
                ) from None
