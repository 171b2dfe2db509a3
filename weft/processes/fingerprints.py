"""The same program everywhere: ranks compare fingerprints before they run a program for the first time.

In:   a name, a fingerprint, and a function that describes the program line by line.
Out:  nothing, or an error on every rank that says which function differs, where and how.
Laws: ranks come here in the same order, each the same number of times. Where all agree only fingerprints travel.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.util.errors import ProcessFailureError, describe

#: a line of a program: its text, and the user's line that it comes from, or ""
Line = tuple[str, str]


class Fingerprints:
    """The comparisons of one process, counted for each set of ranks."""

    def __init__(self, processes: Any) -> None:
        self._processes = processes
        self._counts: dict[tuple[int, ...], int] = {}

    def check(self, name: str, fingerprint: str, lines: Callable[[], Iterable[str | Line]], ranks: Sequence[int] | None = None) -> None:
        """Compare with the others; ProcessFailureError where one differs. `lines` is called only then."""
        own = self._processes
        members = tuple(ranks) if ranks is not None else tuple(range(own.size))
        if len(members) < 2:
            return
        number = self._counts[members] = self._counts.get(members, 0) + 1
        key = f"weft/program/{'.'.join(map(str, members)) if ranks is not None else 'all'}/{number}"
        said = own.client.barrier(key, own.collective_timeout, members, brings=[name, fingerprint])
        others = [rank for rank, (_, found) in zip(members, said) if found != said[0][1]]
        if not others:
            return
        own.client.put(f"{key}/{own.rank}", json.dumps([_line(line) for line in lines()]).encode())
        other = others[0] if own.rank == members[0] or own.rank not in others else members[0]
        mine, theirs = (json.loads(own.client.get(f"{key}/{rank}", 60.0)) for rank in (own.rank, other))
        names = dict(zip(members, [found for found, _ in said]))
        raise ProcessFailureError(difference(own.rank, other, names[own.rank], names[other], mine, theirs), others)


def _line(line: str | Line) -> list[str]:
    return [line, ""] if isinstance(line, str) else [line[0], str(line[1])]


def difference(rank: int, other: int, name: str, other_name: str, mine: Sequence[Sequence[str]], theirs: Sequence[Sequence[str]]) -> str:
    """Where two programs part, as text.

    >>> print(difference(0, 1, "f", "f", [["a = sin b", "t.py:3"]], [["a = cos b", "t.py:5"]]))
    jit(f): process 1 runs another program than process 0.
        line 1 in process 0  a = sin b  at t.py:3
        line 1 in process 1  a = cos b  at t.py:5
      Every process traces the same program. What differs between them (process_index, the time, the order of a set) must not change it.
    """
    at = next((i for i, (a, b) in enumerate(zip(mine, theirs)) if a[0] != b[0]), min(len(mine), len(theirs)))
    table = [("its name", f"jit({name}) in process {rank}", f"jit({other_name}) in process {other}")] if name != other_name else []
    for who, lines in ((rank, mine), (other, theirs)):
        text, where = lines[at] if at < len(lines) else ("(it ends before)", "")
        table.append((f"line {at + 1} in process {who}", text, f"at {where}" if where else ""))
    if at == len(mine) == len(theirs):
        table = [*table[:-2], "the lines are equal; shardings, settings or devices differ"]
    return describe(f"jit({name})", f"process {other} runs another program than process {rank}.", table, None,
                    "Every process traces the same program.",
                    "What differs between them (process_index, the time, the order of a set) must not change it.")
