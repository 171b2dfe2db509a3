"""The collectives of a compiled program with their costs and causes, as data and as text.

In:  a compiled function, as returned by `weft.jit(f).lower(*args).compile()`.
Out: one `Collective` for each collective of the local program, in program order.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from weft._engine.ir.specs import join_axis_parts
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import field, record, replace
from weft.tools.advice import advise, spell_placement

LINE = 110


@record
class Collective:
    """One communication between devices. `bytes` is the number of bytes that one device sends in a
    call, over all `count` runs.

    `cause` is one of `weft._engine.partition.cost.CAUSES`. If a value is resharded, `before` and
    `after` are its layouts, and `argument` is the name of the argument that moves, if any. If
    `open_ended`, the collective is in a while loop, and `count` is per iteration.
    """

    kind: str
    axes: tuple[str, ...]
    bytes: int
    count: int
    source: str
    reason: str
    operands: tuple[str, ...] = ()
    equation: str = ""
    cause: str = ""
    before: str = ""
    after: str = ""
    argument: str = ""
    suggestion: str = ""
    open_ended: bool = False
    lines: tuple[str, ...] = field(default=(), compare=False)

    @property
    def title(self) -> str:
        """The kind, axes and bytes."""
        times = f"{self.count} x " if self.count != 1 else ""
        return f"{times}{self.kind} over {', '.join(self.axes)}  {self.bytes:,} B{' per iteration' if self.open_ended else ''}"

    def facts(self) -> list[tuple[str, str]]:
        """Return the details, as (label, text)."""
        moved = f"{self.before} -> {self.after}" if self.before else ""
        facts = [
            ("moves", _some(self.operands)),
            ("layout", f"{self.argument}: {moved}" if self.argument else moved),
            ("for", self.equation),
            ("at", "\n".join(self.lines or (self.source,))),
            ("because", self.reason),
            ("instead", self.suggestion),
        ]
        return [(what, text) for what, text in facts if text]


@record
class Exchange:
    """One exchange between processes: the part of a collective that crosses processes. `bytes` and
    `messages` count what a process sends in a call, over all `count` runs; `links` maps pairs of
    host numbers to the bytes between them."""

    kind: str
    operand: str
    processes: int
    bytes: int
    messages: int
    count: int
    source: str
    links: dict[tuple[int, int], int]
    open_ended: bool = False

    @property
    def title(self) -> str:
        """The kind, operand and bytes."""
        times = f"{self.count} x " if self.count != 1 else ""
        each = " per iteration" if self.open_ended else ""
        return f"{times}{self.kind} of {self.operand} between {quantity(self.processes, 'process')}  {self.bytes:,} B{each}"


def exchanges_of(executable: Any) -> list[Exchange]:
    """Return the exchanges of a program between processes, in program order; none if there is one
    process."""
    if not getattr(executable.loaded, "exchanges", False):
        return []
    from weft._engine.partition import exchanges

    host_of = (
        executable.in_specs[0].backend.host_of
        if executable.in_specs
        else executable.out_specs[0].backend.host_of
    )
    return [
        Exchange(
            f"{r.kind} {r.op}" if r.op else r.kind,
            r.operand.str_short(),
            r.size,
            r.bytes,
            r.messages,
            r.count,
            str(r.source or ""),
            exchanges.link_bytes([r], host_of),
            r.open_ended,
        )
        for r in exchanges.exchanges_of(executable.stages.lowered.stacked)
    ]


def exchanges_text(exchanges: Sequence[Exchange]) -> str:
    """Return the text of the totals, then of each exchange with its line.

    >>> print(exchanges_text([Exchange("all_reduce sum", "float32[8]", 4, 48, 6, 1, "train.py:7", {(0, 1): 48, (1, 0): 48})]))
    1 exchange, 48 B sent by each process, 48 B from host 0 to host 1, 48 B from host 1 to host 0
      all_reduce sum of float32[8] between 4 processes  48 B
        at       train.py:7
    """
    n_runs = sum(r.count for r in exchanges)
    links: dict[tuple[int, int], int] = {}
    for r in exchanges:
        for ends, nbytes in r.links.items():
            links[ends] = links.get(ends, 0) + nbytes
    totals = [
        f"{n_runs} exchange{'s'[: n_runs != 1]}",
        f"{sum(r.bytes for r in exchanges):,} B sent by each process",
        *[f"{nbytes:,} B from host {a} to host {b}" for (a, b), nbytes in sorted(links.items())],
    ]
    lines = [", ".join(totals)]
    for r in exchanges:
        lines.append(f"  {r.title}")
        lines += [f"    at       {r.source}"] if r.source else []
    return "\n".join(lines)


def collectives(compiled: Any) -> list[Collective]:
    """Return the collectives of a compiled function, in program order."""
    return collectives_of(compiled.runtime_executable())


def collectives_of(executable: Any) -> list[Collective]:
    """Return the collectives of an executable, in program order; arguments are named by key paths,
    such as `params['up']`."""
    return [collective_of(r, executable.arg_names) for r in executable.stages.collectives]


def collective_of(r: Any, arg_names: Sequence[str]) -> Collective:
    """Return the collective of a record of the partitioner; `arg_names` are the names of the
    program's arguments."""
    lines = tuple(map(str, r.sources))
    name = "" if r.argument is None else str(arg_names[r.argument])
    parts = r.parts or (r,)
    equations = tuple(dict.fromkeys(spell_equation(p.eqn) for p in parts if p.eqn is not None))
    return Collective(
        r.kind,
        tuple(map(str, join_axis_parts(r.axes))),
        r.bytes_per_device * r.count,
        r.count,
        ", ".join(lines),
        r.reason,
        tuple(f"{p.dtype}[{','.join(map(str, p.shape))}]" for p in parts),
        _some(equations),
        r.cause,
        spell_placement(r.before) if r.before is not None else "",
        spell_placement(r.after) if r.after is not None else "",
        name,
        advise(r, name),
        r.open_ended,
        lines,
    )


def spell_equation(eqn: Any) -> str:
    """Return the operation and types of an equation as text."""
    ins, outs = (" ".join(a.aval.str_short() for a in atoms) for atoms in (eqn.invars, eqn.outvars))
    return (
        f"{eqn.primitive} {ins} -> {outs}"
        if len(ins) + len(outs) <= LINE
        else f"{eqn.primitive} of {quantity(len(eqn.invars), 'operand')}"
    )


def _some(texts: Sequence[str]) -> str:
    """Return the first three texts, and the number of the others."""
    num_hidden = len(texts) - 3
    return ", ".join(texts[:3]) + (f" and {num_hidden} more" if num_hidden > 0 else "")


def merge_equal(records: Sequence[Collective]) -> list[Collective]:
    """Return the collectives with equal consecutive ones merged into one of higher count."""
    merged: list[Collective] = []
    for r in records:
        last = merged[-1] if merged else None
        if last is not None and replace(last, bytes=0, count=0) == replace(r, bytes=0, count=0):
            merged[-1] = replace(last, bytes=last.bytes + r.bytes, count=last.count + r.count)
        else:
            merged.append(r)
    return merged


def as_text(records: Sequence[Collective]) -> str:
    """Return the text of the totals, then of each record with its details.

    >>> print(as_text([Collective("psum", ("model",), 1024, 1, "train.py:7", "a sum over a split dim")]))
    1 collective, 1,024 B sent by each device
      psum over model  1,024 B
        at       train.py:7
        because  a sum over a split dim
    """
    n_runs = sum(r.count for r in records)
    lines = [
        f"{n_runs} collective{'s'[: n_runs != 1]}, {sum(r.bytes for r in records):,} B sent by each device"
    ]
    for r in merge_equal(records):
        lines.append(f"  {r.title}")
        for what, text in r.facts():
            broken = [
                line
                for paragraph in text.splitlines()
                for line in wrap(paragraph, LINE, break_long_words=False)
            ]
            lines += [f"    {what if not i else '':9}{line}" for i, line in enumerate(broken)]
    return "\n".join(lines)
