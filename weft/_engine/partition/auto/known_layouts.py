"""Well-known ways to train in parallel: data parallelism, and the same with less and less of the state on each device.

In:   a program, the results that replace arguments (its state), the sizes of mesh axes.
Out:  specs of arguments by name; and `KnownLayout`s, which also have the layouts of all values inside, from fast to small.
How:  the batch is split as in data parallelism, and so is all that is computed from it. Of the state, the largest arguments are split
      at rest: first those of the optimizer (ZeRO-1), then parameters (FSDP), whose gradients are split as soon as they are made. Last,
      gathered parameters are dropped after the forward pass and gathered again (ZeRO-3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from weft._engine.core.primitive import ElementwiseOp, LayoutOp
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.specs import Spec
from weft._engine.partition.auto.graph import DecisionGraph, GivenSpecs
from weft._engine.partition.cost import CostModel
from weft._engine.partition.partition import ValueLayouts, partition
from weft._engine.partition.reshard import is_even
from weft._engine.util.record import record

#: parts of the parameters that are split at rest, and parts of the gathered ones that are gathered again
SHARES = (0.25, 0.5, 0.75, 1.0)


def known_specs(
    program: Jaxpr, state: Collection[int], sizes: Mapping[Any, int]
) -> dict[str, Sequence[Spec]]:
    """Return the specs of arguments of well-known ways to train in parallel, by name.

    The state is what a result replaces (donated arguments); the rest is the batch. Parameters are the part of the state that
    products and lookups read; the rest is the optimizer's. A program without a state has only `replicated` and
    `data parallel`.
    """
    axes = tuple(sizes)
    whole: list[Spec] = [((),) * v.aval.ndim for v in program.invars]
    rows = [_split_first(v, axes, sizes, dims=1) for v in program.invars]
    split = [_split_first(v, axes, sizes) for v in program.invars]
    batch = [whole[i] if i in state else spec for i, spec in enumerate(rows)]
    layouts: dict[str, Sequence[Spec]] = {"replicated": whole, "data parallel": batch}
    if state:
        optimizer = optimizer_state(program, state)
        layouts["ZeRO-1"] = [split[i] if i in optimizer else s for i, s in enumerate(batch)]
        layouts["FSDP"] = [split[i] if i in state else s for i, s in enumerate(batch)]
    return layouts


def optimizer_state(program: Jaxpr, state: Collection[int]) -> list[int]:
    """Return the arguments of the state that only elementwise operations and changes of layout read."""
    read: set[Var] = set()
    for eqn in program.eqns:
        if not isinstance(eqn.primitive, (ElementwiseOp, LayoutOp)):
            read |= {a for a in eqn.invars if isinstance(a, Var)}
    return [i for i in sorted(state) if program.invars[i] not in read]


def _split_first(
    var: Any, axes: tuple[Any, ...], sizes: Mapping[Any, int], dims: int | None = None
) -> Spec:
    """Return `var` split by as many axes as possible along the first of its first `dims` dims that they divide; else whole."""
    shape = var.aval.shape
    for count in range(len(axes), 0, -1):
        for d in range(len(shape) if dims is None else min(dims, len(shape))):
            if shape[d] and is_even(shape[d], axes[:count], sizes):
                return tuple(axes[:count] if k == d else () for k in range(len(shape)))
    return ((),) * len(shape)


@record
class KnownLayout:
    """A way to train in parallel: specs of arguments and results, and layouts of all values inside."""

    in_specs: tuple[Spec, ...]
    out_specs: tuple[Spec | None, ...]
    layouts: ValueLayouts


def known_layouts(
    graph: DecisionGraph, given_specs: GivenSpecs, mesh: Mesh, cost: CostModel
) -> Iterator[KnownLayout]:
    """Yield data parallelism, then layouts with less and less of the state on each device. Given specs are kept."""
    ladder = _StateLadder(graph, given_specs, mesh, cost)
    optimizer, parameters = ladder.optimizer, ladder.parameters
    yield ladder.layout(())
    if optimizer:
        yield ladder.layout(optimizer)
    for share in SHARES if parameters else ():
        yield ladder.layout([*optimizer, *_part(parameters, share)])
    for share in SHARES if parameters else ():
        yield ladder.layout([*optimizer, *parameters], _part(parameters, share))


class _StateLadder:
    """The layouts of values for each part of the state that is split."""

    def __init__(self, graph: DecisionGraph, given_specs: GivenSpecs, mesh: Mesh, cost: CostModel):
        self.graph, self.given_specs = graph, given_specs
        self.program = program = graph.jaxpr
        state = set(given_specs.ties.values())
        specs = known_specs(program, state, dict(mesh.shape))
        self.whole, self.batch = specs["replicated"], specs["data parallel"]
        self.split = specs.get("FSDP", self.batch)
        self.optimizer = self._largest_first(optimizer_state(program, state))
        self.parameters = self._largest_first(state - set(self.optimizer))
        ins = self._ins(())
        outs = self._result_specs(ins)
        base = partition(program, mesh, ins, outs, cost)
        is_refined = dict(base.mesh.shape) != dict(mesh.shape)
        #: layouts of values in data parallelism
        self.values: dict[Var, Spec] = {
            var: place.dims
            for placed in base.placed_eqns
            for var, place in zip(placed.eqn.outvars, placed.placements)
            if var in graph.maker and not (place.partial or is_refined)
        }

    def layout(self, split: Sequence[int], dropped: Sequence[int] = ()) -> KnownLayout:
        """Return the layout with the arguments `split` at rest; those `dropped` are gathered twice."""
        ins = self._ins(split)
        values = dict(self.values)
        # a parameter is updated where its optimizer's state is, and gathered once if it is whole at rest
        updated = {*split, *self.parameters} if self.optimizer and split else set(split)
        for out, argument in self.given_specs.ties.items():
            if argument in updated:
                updates = self._updates(self.program.outvars[out], self.program.invars[argument])
                given_spec = self.given_specs.in_specs[argument]
                spec = self.split[argument] if given_spec is None else given_spec
                values.update(dict.fromkeys(updates, spec))
        again: dict[Eqn, list[tuple[Var, Spec]]] = {}
        for i in dropped:
            var = self.program.invars[i]
            eqn = self.graph.last_early_reader(var)
            if eqn is not None:
                again.setdefault(eqn, []).append((var, self.whole[i]))
        return KnownLayout(ins, self._result_specs(ins), ValueLayouts(values, again))

    def _largest_first(self, arguments: Collection[int]) -> list[int]:
        return sorted(arguments, key=lambda i: (-self.program.invars[i].aval.nbytes, i))

    def _ins(self, split: Sequence[int]) -> tuple[Spec, ...]:
        open_specs = [self.split[i] if i in split else s for i, s in enumerate(self.batch)]
        return tuple(
            spec if given_spec is None else given_spec
            for spec, given_spec in zip(open_specs, self.given_specs.in_specs)
        )

    def _result_specs(self, ins: Sequence[Spec]) -> tuple[Spec | None, ...]:
        ties = self.given_specs.ties
        return tuple(
            ins[ties[i]] if i in ties else given_spec
            for i, given_spec in enumerate(self.given_specs.out_specs)
        )

    def _updates(self, result: Any, argument: Var) -> Iterator[Var]:
        """Yield the values of the shape of an argument from which its update is computed, back to its gradient."""
        stack: list[Any] = [result]
        seen: set[Var] = set()
        while stack:
            var = stack.pop()
            if not isinstance(var, Var) or var in seen or var.aval.shape != argument.aval.shape:
                continue
            seen.add(var)
            node = self.graph.maker.get(var)
            for eqn in () if node is None else node.eqns:
                if var in eqn.outvars:
                    yield var
                    stack += eqn.invars if isinstance(eqn.primitive, ElementwiseOp) else ()


def _part(arguments: Sequence[int], share: float) -> Sequence[int]:
    """Return a share of arguments, at least one."""
    return arguments[: max(1, round(share * len(arguments)))]
