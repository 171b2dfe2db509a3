"""SPMD partitioning: a global program and target specs of its variables become the program that one device runs.

In:   a global Jaxpr, the result of `propagate`, the placements of its inputs.
Out:  a Jaxpr on local shapes with explicit collectives for all communication, and a record of each.
Laws: the assembled results of the local program on all devices equal the results of the global program; only the collectives
      that the partitioner adds communicate.
Next: `partitioner` partitions one equation after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.core.stage import StageTracer
from weft._engine.core.trace import extend_axis_env, set_trace
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var
from weft._engine.ir.specs import Spec
from weft._engine.partition.cost import CostModel
from weft._engine.partition.padding import evenly_split
from weft._engine.partition.partial_sums import variables
from weft._engine.partition.partitioner import Partitioner
from weft._engine.partition.propagation.propagate import Propagation
from weft._engine.partition.reshard import Placement
from weft._engine.partition.values import FormSchedule, LocalTrace, LocalValue

NOTHING_SCHEDULED = FormSchedule()


def partition_program(
    jaxpr: Jaxpr,
    target_specs: Propagation,
    ins: Sequence[Placement],
    outs: Sequence[Spec | None],
    constraint_spec: Callable[..., Any],
    parent: Any,
    cost: CostModel,
    target_weight: float = 1.0,
    schedule: FormSchedule = NOTHING_SCHEDULED,
    strategies: dict[tuple[Any, ...], list[Any]] | None = None,
) -> tuple[Jaxpr, list[Spec], Partitioner]:
    """Return the local program of a whole `jaxpr`, the specs of its results (given by `outs`, or chosen), and the partitioner.

    `target_weight` scales the cost of moving a result to its target spec if the user did not request that spec.
    Forms of values are created and dropped according to `schedule`. Calls with the same `target_specs` may share `strategies`.
    """
    trace = LocalTrace(parent, jaxpr.name)
    partitioner = Partitioner(
        target_specs,
        constraint_spec,
        trace,
        _special,
        cost=cost,
        target_weight=target_weight,
        schedule=schedule,
        strategy_lists={} if strategies is None else strategies,
    )
    partitioner.fixed_results.update(
        variables([a for a, spec in zip(jaxpr.outvars, outs) if spec is not None])
    )
    with extend_axis_env(list(target_specs.sizes.items())), set_trace(trace):
        args: list[StageTracer] = [
            trace.new_arg(partitioner.local_aval(v.aval, p)) for v, p in zip(jaxpr.invars, ins)
        ]
        values = partitioner.run(
            jaxpr,
            [
                LocalValue(v.aval, p, x, argument=i)
                for i, (v, p, x) in enumerate(zip(jaxpr.invars, ins, args))
            ],
        )
        makers = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}
        results: list[Any] = []
        places: list[Placement] = []
        for i, (value, spec, atom) in enumerate(zip(values, outs, jaxpr.outvars)):
            partitioner.eqn = makers.get(atom) if type(atom) is Var else None
            trace.source = partitioner.eqn and partitioner.eqn.source
            place = (
                partitioner.result_placement(atom, value.placement)
                if spec is None
                else Placement(spec)
            )
            place = Placement(evenly_split(atom.aval.shape, place.dims, target_specs.sizes))
            results.append(
                partitioner.materialize(
                    value, place, "output", f"output {i} is laid out as {place}"
                )
            )
            places.append(place)
        local = partitioner.close(args, results, jaxpr, places)
        return local, [place.dims for place in places], partitioner


def _special(partitioner: Partitioner, eqn: Eqn) -> list[LocalValue]:
    from weft._engine.partition import regions  # rarely needed

    return regions.compute(partitioner, eqn)
