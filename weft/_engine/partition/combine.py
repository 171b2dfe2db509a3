"""Combining: independent reductions over the same axes become one collective of several values.

In:   the equations of a local program, and the records of the collectives that partitioning added.
Out:  the same program with fewer, wider reductions; a combined record contains the records of its parts.
Laws: values do not change; there are no cycles, because reductions are combined only if their longest paths to the results have
      equal numbers of reductions; equations with effects keep their order.
How:  reductions are combined as late as possible. The gradients of a data-parallel step are needed only at its end, so they are
      reduced together; a reduction whose result another layer needs is not moved.

`separate_reductions` reverses this for virtual devices, where a sum is cheapest directly after its terms are computed.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Mapping, Sequence
from typing import Any

from weft._engine.core.primitive import BatchAxis, CollectiveOp, Primitive, RegionOp
from weft._engine.ir.collective_spec import spec_of
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, Var
from weft._engine.ir.rewrite import map_jaxprs
from weft._engine.ir.types import ShapedArray
from weft._engine.partition.cost import CollectiveRecord
from weft._engine.util.record import replace

#: maximal bytes per device in one combined collective; larger ones would delay results for little gain
MOST_BYTES = 32 << 20


@functools.cache
def combined_reduction(single: Primitive) -> Primitive:
    """Return the primitive that applies the reduction `single` to several values."""
    p = CollectiveOp(single.name, multiple_results=True, register=False, combines=single)
    p.define(collective=spec_of(single))

    @p.def_type
    def types(*avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        return [single.abstract([a], params)[0] for a in avals]

    @p.def_batch
    def batch(
        axis: BatchAxis, args: Sequence[Any], dims: Sequence[int | None], **params: Any
    ) -> tuple[list[Any], list[int | None]]:
        batched = [single.batch(axis, (x,), (d,), **params) for x, d in zip(args, dims)]
        return [x for x, _ in batched], [d for _, d in batched]

    return p


def combine_reductions(
    eqns: Sequence[Eqn], records: list[CollectiveRecord | None], index: Mapping[Eqn, int]
) -> list[Eqn]:
    """Return `eqns` with reductions combined. Combine their `records` at `index` too; records of removed equations become None."""
    groups = _groups(eqns, index)
    if not groups:
        return list(eqns)
    new: dict[Eqn, Eqn] = {}
    for group in groups:
        first = group[0]
        combined = first.replace(
            primitive=combined_reduction(first.primitive),
            invars=[e.invars[0] for e in group],
            outvars=[e.outvars[0] for e in group],
        )
        new.update(dict.fromkeys(group, combined))
        positions = sorted(index[e] for e in group)
        parts = tuple([r for i in positions if (r := records[i]) is not None])
        reasons = "; ".join(dict.fromkeys(r.reason for r in parts))
        records[positions[0]] = replace(
            parts[0],
            bytes_per_device=sum(r.bytes_per_device for r in parts),
            reason=reasons,
            parts=parts,
        )
        for i in positions[1:]:
            records[i] = None
    return topological([new.get(e, e) for e in eqns])


def _groups(eqns: Sequence[Eqn], index: Mapping[Eqn, int]) -> list[list[Eqn]]:
    """Return groups of at least two reductions that can be combined."""
    later = later_collectives(eqns, index)
    groups: dict[tuple[Any, ...], list[Eqn]] = {}
    for eqn in eqns:
        known = (
            eqn in index and isinstance(eqn.primitive, CollectiveOp) and type(eqn.invars[0]) is Var
        )
        if known and spec_of(eqn.primitive).completes:
            aval = eqn.invars[0].aval
            groups.setdefault(
                (eqn.primitive, eqn.params["axes"], aval.dtype, later[eqn]), []
            ).append(eqn)
    return [part for group in groups.values() for part in _within_size(group) if len(part) > 1]


def later_collectives(eqns: Sequence[Eqn], index: Mapping[Eqn, int]) -> dict[Eqn, int]:
    """Return the maximal number of collectives on a path from each equation to the end of the program."""
    after: dict[Var, int] = {}
    later: dict[Eqn, int] = {}
    for eqn in reversed(eqns):
        mine = later[eqn] = max((after.get(v, 0) for v in eqn.outvars), default=0)
        mine += eqn in index
        for a in eqn.invars:
            if type(a) is not Literal:
                after[a] = max(after.get(a, 0), mine)
    return later


def _within_size(group: list[Eqn]) -> list[list[Eqn]]:
    """Split `group` into runs of at most `MOST_BYTES`."""
    runs: list[list[Eqn]] = [[]]
    group_bytes = 0
    for eqn in group:
        nbytes = eqn.invars[0].aval.nbytes
        if runs[-1] and group_bytes + nbytes > MOST_BYTES:
            runs.append([])
            group_bytes = 0
        runs[-1].append(eqn)
        group_bytes += nbytes
    return runs


def topological(eqns: Sequence[Eqn]) -> list[Eqn]:
    """Return each equation once, after the producers of its operands, and otherwise in the order of `eqns`."""
    last = {eqn: i for i, eqn in enumerate(eqns)}
    makers = {v: eqn for eqn in last for v in eqn.outvars}
    needs: dict[Eqn, int] = {}
    readers: dict[Eqn, list[Eqn]] = {}
    effect: Eqn | None = None
    for eqn in last:
        sources = {makers[a] for a in eqn.invars if type(a) is not Literal and a in makers}
        if eqn.effects:
            sources |= {effect} if effect is not None else set()
            effect = eqn
        needs[eqn] = len(sources)
        for source in sources:
            readers.setdefault(source, []).append(eqn)
    ready = [(i, eqn) for eqn, i in last.items() if not needs[eqn]]
    heapq.heapify(ready)
    done: list[Eqn] = []
    while ready:
        _, eqn = heapq.heappop(ready)
        done.append(eqn)
        for reader in readers.get(eqn, ()):
            needs[reader] -= 1
            if not needs[reader]:
                heapq.heappush(ready, (last[reader], reader))
    return done


def separate_reductions(jaxpr: Jaxpr) -> Jaxpr:
    """Return `jaxpr` with each combined reduction split, each part directly after its operand is computed; also in inner programs."""
    parts: dict[Any, list[Eqn]] = {}  # operand -> the reductions that read it
    for eqn in jaxpr.eqns:
        if _is_combined(eqn):
            for a, v in zip(eqn.invars, eqn.outvars):
                single = eqn.replace(primitive=eqn.primitive.combines, invars=[a], outvars=[v])
                parts.setdefault(a, []).append(single)
    eqns: list[Eqn] = []

    def add(new_eqns: Sequence[Any]) -> None:
        for part in (part for v in new_eqns for part in parts.get(v, ())):
            eqns.append(part)
            add(part.outvars)

    add([*jaxpr.constvars, *jaxpr.invars])
    for eqn in jaxpr.eqns:
        if not _is_combined(eqn):
            eqns.append(_separated_inside(eqn))
            add(eqn.outvars)
    return jaxpr if all(a is b for a, b in zip(eqns, jaxpr.eqns)) else jaxpr.replace(eqns=eqns)


def _is_combined(eqn: Eqn) -> bool:
    return isinstance(eqn.primitive, CollectiveOp) and eqn.primitive.combines is not None


def _separated_inside(eqn: Eqn) -> Eqn:
    """Return `eqn` with the reductions in its programs separated."""
    if not isinstance(eqn.primitive, RegionOp):
        return eqn
    params = map_jaxprs(eqn.params, separate_reductions)
    return eqn if params is eqn.params else eqn.replace(params=params)
