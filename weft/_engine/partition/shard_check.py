"""Checks of a partitioned program: the types of shards, and the agreement of the participants of collectives.

In:   a `PartitionedProgram` for each program and each inner program; the exchanges of a program of one process.
Out:  None, or a `PartitionError` that names the op and the user's line.
How:  the global type and the placement of a value determine the type of its shards, which each local form must have. All devices
      run the same local program, so the participants of a collective agree on its dtype and shapes if its equation has the
      types of its type rule, and on its groups if these contain every position exactly once.
      The check runs on every compilation, since a wrong shard would cause wrong values or corrupt memory.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from weft._engine.core.primitive import CollectiveOp
from weft._engine.core.trace import typeof
from weft._engine.ir.collective_spec import collective_axes
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.exchange import role_of
from weft._engine.partition.reshard import Placement, local_shape
from weft._engine.util.record import record

Sizes = Mapping[Any, int]

_RULE = "\n  The compiled program would be wrong: this is a fault of weft."


class PartitionError(AssertionError):
    """A local result that is not the shard of its value, or a collective whose participants disagree: an error in the partitioner."""


@record
class PartitionedProgram:
    """One program, with its local program: `values` has the `partition.values.LocalValue` of each variable, `makers` the equation of each
    result, `places` the placements of the program's results."""

    program: Jaxpr
    local: Jaxpr
    places: tuple[Placement, ...]
    values: Mapping[Var, Any]
    makers: Mapping[Var, Eqn]


def check_partitioned(programs: Iterable[PartitionedProgram], sizes: Sizes) -> None:
    """Raise PartitionError for the first local value that is not a shard of its variable, or collective whose participants disagree."""
    for one in programs:
        for var, value in one.values.items():
            for place, local in value.forms.items():
                check_shard(var.aval, place, typeof(local), sizes, one.makers.get(var))
        check_collectives(one.local.eqns, sizes)
        check_results(one.program, one.places, one.local, sizes)


def check_results(program: Jaxpr, places: Iterable[Placement], local: Jaxpr, sizes: Sizes) -> None:
    """Raise PartitionError for the first result of the local program that is not a shard of the result of `program`."""
    makers = {v: eqn for eqn in program.eqns for v in eqn.outvars}
    for atom, place, shard in zip(program.outvars, places, local.out_avals):
        check_shard(atom.aval, place, shard, sizes, makers.get(atom) if type(atom) is Var else None)


def check_memory(local: Jaxpr, blocks: Iterable[tuple[tuple[int, ...], Any]]) -> None:
    """Raise PartitionError for the first result of a local program whose shape and dtype differ from its block of memory."""
    makers = {v: eqn for eqn in local.eqns for v in eqn.outvars}
    for atom, (shape, dtype) in zip(local.outvars, blocks):
        if atom.aval.shape != shape or atom.aval.dtype != dtype:
            eqn = makers.get(atom) if type(atom) is Var else None
            raise PartitionError(
                f"partition: {_subject(eqn)} is {atom.aval.str_short()} on each device.\n  Its memory holds {dtype.name}{[*shape]}.{_RULE}"
            )


def check_shard(
    aval: ShapedArray, place: Placement, local: ShapedArray, sizes: Sizes, eqn: Eqn | None
) -> None:
    """Raise PartitionError unless `local` has the dtype and shape of the shard of `aval` placed as `place`. The error names `eqn`."""
    shape = local_shape(aval.shape, place.dims, sizes)
    if local.dtype != aval.dtype or local.shape != shape:
        raise PartitionError(
            f"partition: {_subject(eqn)} is {local.str_short()} on each device.\n"
            f"  The shard of {aval.str_short()}, placed as {place}, is {aval.dtype.name}{[*shape]}.{_RULE}"
        )


def check_collectives(eqns: Iterable[Eqn], sizes: Sizes) -> None:
    """Raise PartitionError for the first collective among `eqns` whose participants disagree on types or groups."""
    for eqn in eqns:
        if isinstance(eqn.primitive, CollectiveOp):
            _raise_if(_fault_of_axes(eqn.params, sizes) or _fault_of_types(eqn), eqn, eqn.source)


def check_exchanges(eqns: Iterable[Eqn], ranks: tuple[int, ...]) -> None:
    """Raise PartitionError for the first exchange among `eqns` whose `ranks` disagree on types or groups."""
    for eqn in eqns:
        if role_of(eqn) == "exchange":
            _raise_if(
                _fault_of_exchange(eqn, ranks) or _fault_of_types(eqn), eqn, eqn.params["source"]
            )


def _raise_if(fault: str, eqn: Eqn, source: Any) -> None:
    if fault:
        raise PartitionError(f"partition: {_title(eqn, source)}: {fault}.{_RULE}")


def _fault_of_axes(params: Mapping[str, Any], sizes: Sizes) -> str:
    axes, groups = collective_axes(params), params.get("axis_index_groups")
    if len({*axes}) != len(axes) or any(a not in sizes for a in axes):
        return f"its axes {axes} are not distinct axes of the mesh, which has {tuple(sizes)}"
    n = math.prod(sizes[a] for a in axes)
    members = len(groups[0]) if groups else n
    if params.get("axis_size", members) != members:
        return f"its axis size is {params['axis_size']}, but {members} devices take part"
    return _fault_of_groups(groups, range(n)) or _fault_of_pairs(params.get("perm", ()), range(n))


@lru_cache(maxsize=256)
def _fault_of_groups(
    groups: tuple[tuple[int, ...], ...] | None, positions: range | tuple[int, ...]
) -> str:
    """Return the error in groups, or ''. Each position must be in one group, and all groups must have the same size."""
    if groups is None:
        return ""
    if sorted(itertools.chain.from_iterable(groups)) != sorted(positions):
        return f"its groups {groups} do not contain each of {len(positions)} positions once"
    return (
        "" if len({len(group) for group in groups}) == 1 else f"its groups {groups} differ in size"
    )


@lru_cache(maxsize=256)
def _fault_of_pairs(pairs: tuple[tuple[int, int], ...], positions: range | tuple[int, ...]) -> str:
    """Return the error in pairs of a sender and a receiver, or ''. Each position may send once and receive once."""
    for verb, members in zip(("sends", "receives"), zip(*pairs)):
        position, count = Counter(members).most_common(1)[0]
        if count > 1:
            return f"position {position} {verb} {count} times"
        if not {*members}.issubset(positions):
            return f"its pairs {pairs} name other positions than its {len(positions)}"
    return ""


def _fault_of_exchange(eqn: Eqn, ranks: tuple[int, ...]) -> str:
    kind, groups, aval = eqn.params["kind"], eqn.params["groups"], eqn.invars[0].aval
    if kind == "permute":
        return _fault_of_pairs(eqn.params["pairs"], ranks)
    fault = _fault_of_groups(groups, ranks)
    if (
        not fault
        and kind in ("reduce_scatter", "all_to_all")
        and aval.shape[:1] != (len(groups[0]),)
    ):
        return f"its operand {aval.str_short()} does not have one row for each of {len(groups[0])} ranks"
    return fault


def _fault_of_types(eqn: Eqn) -> str:
    """Return the difference between the results of an equation and its type rule, or ''."""
    types = eqn.primitive.abstract([a.aval for a in eqn.invars], eqn.params)
    if len(types) != len(eqn.outvars):
        return f"it has {len(eqn.outvars)} results, its type rule gives {len(types)}"
    for var, aval in zip(eqn.outvars, types):
        if var.aval.dtype != aval.dtype or var.aval.shape != aval.shape:
            return f"its result is {var.aval.str_short()}, its type rule gives {aval.str_short()}"
    return ""


def _subject(eqn: Eqn | None) -> str:
    return "an argument or constant" if eqn is None else f"the result of {_title(eqn)}"


def _title(eqn: Eqn, source: Any = None) -> str:
    """Return the op and the user's line."""
    source = source or eqn.source
    return eqn.primitive.name if source is None else f"{eqn.primitive.name} at {source}"
