"""Execution of the local program on all devices in lockstep: equation by equation, and device by device for each.

In:   a local program, and for each of its inputs the values of all devices.
Out:  for each result the values of all devices.
How:  an ordinary equation runs on each device by its `reference` rule; a collective is evaluated between the devices of each group by its
      spec (`ir.collective_spec`); an operation that holds programs has a rule `lockstep`, which runs them on the participating devices.
Laws: devices that have the same object for every operand get the same object as the result. So a value that does not vary over an axis
      is computed once, and a callback that receives it is called once, as on any backend.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft._engine.backends.array_spec import to_blocks
from weft._engine.backends.base import BlockLayout
from weft._engine.core.interpret import reference_results
from weft._engine.core.primitive import CallbackOp, CollectiveOp, RegionOp
from weft._engine.core.trace import eval_trace, set_trace
from weft._engine.ir.collective_spec import collective_axes, evaluate_collective, spec_of
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal
from weft._engine.ops.callback import MappedAxis
from weft._engine.util.errors import MissingRuleError, describe

#: the value of one variable on each participating device
Values = Sequence[Any]


class Lockstep:
    """Devices in row-major order of the mesh `axes`, (name, size) each; `members` are the numbers of the participating devices."""

    def __init__(self, axes: Sequence[tuple[Any, int]]):
        self.axes = tuple(axes)
        self.names = [name for name, _ in axes]
        self.shape = tuple(size for _, size in axes)
        self.places = list(itertools.product(*map(range, self.shape)))
        self.members = list(range(len(self.places)))

    def __len__(self) -> int:
        return len(self.members)

    def distribute_argument(
        self, x: BlockLayout, shards: Mapping[tuple[int, ...], np.ndarray]
    ) -> Values:
        """Return each device's value of an argument, given the shards by position."""
        return [shards[at] for at in self._positions(x)]

    def collect_result(self, x: BlockLayout, values: Values) -> dict[tuple[int, ...], np.ndarray]:
        """Return the shards of a result by position, from the values of the devices."""
        if x.blocks is None:
            return dict(zip(self._positions(x), values))
        whole = to_blocks(values[0], x.spec)  # every device has the whole value
        return {at: whole[at] for at in np.ndindex(*x.spec.splits)}

    def _positions(self, x: BlockLayout) -> list[tuple[int, ...]]:
        """Return the position of each device's shard."""
        trailing = (0,) * (len(x.spec.splits) - len(x.dims))
        return [
            tuple(self.position(member, axes) for axes in x.dims) + trailing
            for member in self.members
        ]

    def run(self, jaxpr: Jaxpr, operands: Sequence[Values]) -> list[Values]:
        """Return the results of `jaxpr` on all members."""
        with set_trace(eval_trace):
            return self._run(jaxpr, operands)

    def _run(self, jaxpr: Jaxpr, operands: Sequence[Values]) -> list[Values]:
        n = len(self)
        env: dict = {v: [np.asarray(c)] * n for v, c in zip(jaxpr.constvars, jaxpr.consts)}
        env.update(zip(jaxpr.invars, operands, strict=True))
        read = lambda a: [np.asarray(a.val, a.aval.dtype)] * n if type(a) is Literal else env[a]
        for eqn in jaxpr.eqns:
            for var, values in zip(
                eqn.outvars, self.step(eqn, [read(a) for a in eqn.invars]), strict=True
            ):
                for value in values:
                    if value.shape != var.aval.shape or value.dtype != var.aval.dtype:
                        raise AssertionError(
                            f"{eqn.primitive} returned {value.dtype}{list(value.shape)}, but its type rule says "
                            f"{var.aval.str_short()}"
                        )
                env[var] = values
        return [read(a) for a in jaxpr.outvars]

    def each(self, fn: Callable[..., Sequence], operands: Sequence[Values]) -> list[Values]:
        """Return the results of `fn` on the operands of every member; it is called once per distinct tuple of objects."""
        results_by_operands: dict[tuple, list] = {}
        results = []
        for mine in zip(*operands) if operands else [()] * len(self):
            key = tuple(map(id, mine))
            if key not in results_by_operands:
                results_by_operands[key] = [np.asarray(y) for y in fn(*mine)]
            results.append(results_by_operands[key])
        return [list(values) for values in zip(*results)]

    def run_on(
        self, chosen: Sequence[int], jaxpr: Jaxpr, operands: Sequence[Values]
    ) -> list[Values]:
        """Return the results of `jaxpr` on the members with the indices `chosen`; the others do not participate."""
        runner = copy.copy(self)
        runner.members = [self.members[i] for i in chosen]
        return runner.run(jaxpr, [[x[i] for i in chosen] for x in operands])

    def position(self, member: int, axes: Sequence[Any]) -> int:
        """Return the number of a device along `axes`, major axis first."""
        place, number = self.places[member], 0
        for axis in axes:
            i = self.names.index(axis)
            number = number * self.shape[i] + place[i]
        return number

    def step(self, eqn: Eqn, ins: list[Values]) -> list[Values]:
        """Return the results of one equation on all members."""
        primitive, params = eqn.primitive, eqn.params
        if isinstance(primitive, CollectiveOp):
            return self._collective(eqn, ins)
        if isinstance(primitive, CallbackOp):
            return self._callback(eqn, ins)
        if isinstance(primitive, RegionOp):
            if primitive.is_call:
                return self.run(params["jaxpr"], ins)
            if primitive.lockstep is None:
                raise MissingRuleError(
                    f"{primitive.name}: the primitive has no lockstep rule. The reference backend needs one for operations that hold "
                    "programs. Define it with `Primitive.define(lockstep=...)`."
                )
            return primitive.lockstep(self, ins, **params)
        return self.each(lambda *xs: reference_results(eqn, xs), ins)

    # ---- between devices
    def _groups(self, axes: Sequence[Any]) -> list[list[int]]:
        """Return the groups of devices that exchange values along `axes`, each in order of the number along them."""
        groups: dict[tuple, list[int]] = {}
        other_axes = [i for i, name in enumerate(self.names) if name not in axes]
        for member in range(len(self.places)):
            groups.setdefault(tuple(self.places[member][i] for i in other_axes), []).append(member)
        return [
            sorted(group, key=lambda member: self.position(member, axes))
            for group in groups.values()
        ]

    def _collective(self, eqn: Eqn, ins: list[Values]) -> list[Values]:
        at = {member: i for i, member in enumerate(self.members)}
        results: list = [None] * len(self)
        known: dict[tuple, list] = {}
        for group in self._groups(collective_axes(eqn.params)):
            present = [member for member in group if member in at]
            if not present:
                continue
            self._check_present(eqn, group, present)
            operands = [[x[at.get(member, at[present[0]])] for x in ins] for member in group]
            key = tuple(id(x) for mine in operands for x in mine) if ins else tuple(group)
            if key not in known:
                known[key] = evaluate_collective(eqn.primitive, operands, eqn.params)
            for member, mine in zip(group, known[key]):
                if member in at:
                    results[at[member]] = mine
        return [list(values) for values in zip(*results)]

    @staticmethod
    def _check_present(eqn: Eqn, group: list[int], present: list[int]) -> None:
        """Raise RuntimeError if some but not all devices of a group reach a collective."""
        if len(present) == len(group) or spec_of(eqn.primitive).is_local:
            return
        absent = sorted(set(group) - set(present))
        raise RuntimeError(
            describe(
                "reference",
                f"{eqn.primitive.name} is reached by the devices {present} only; {absent} do not take part.",
                (),
                eqn.source,
                "All devices of an axis must take part in its collectives.",
            )
        )

    # ---- callbacks
    def _callback(self, eqn: Eqn, ins: list[Values]) -> list[Values]:
        """Call Python with the mesh axes over which operands vary as mapped axes, as if operands were stacked."""
        layout = eqn.params.get("layout")
        if len(self) < len(self.places) or not self.axes:
            return self._callback_of_some(eqn, ins, layout)
        varies = [self._find_varying_axes(x) for x in ins]
        if layout is not None:
            self._follow_layout(layout, varies)
        over = [i for i, mine in enumerate(zip(*varies)) if any(mine)]
        params = eqn.params
        if over:
            axes = [
                MappedAxis(self.shape[i], self.names[i], tuple(v[i] for v in varies)) for i in over
            ]
            params = {**params, "mapped": (*axes, *params.get("mapped", ()))}
        operands = [self._stack_devices(x, mine) for x, mine in zip(ins, varies)]
        outs = reference_results(eqn.replace(params=params), operands)
        if layout is not None and not layout.per_block:
            is_whole = layout.of_mesh(params.get("mapped", ()))
            over = [i for i, whole in zip(over, is_whole) if not whole]
        return [self._split_along_axes(np.asarray(y), over) for y in outs]

    def _split_along_axes(self, value: np.ndarray, axes: list[int]) -> Values:
        """Return each device's part of a value with a leading dim for each of these axes."""
        parts = {at: value[at] for at in np.ndindex(*[self.shape[i] for i in axes])}
        return [parts[tuple(place[i] for i in axes)] for place in self.places]

    def _find_varying_axes(self, values: Values) -> list[bool]:
        """Return for each mesh axis whether the devices along it have different objects."""
        grid = np.array([id(v) for v in values]).reshape(self.shape)
        return [bool((grid != grid.take([0], i)).any()) for i in range(grid.ndim)]

    def _follow_layout(self, layout: Any, varies: list[list[bool]]) -> None:
        """Replace the variation observed along automatic axes by what the partitioner has decided."""
        for i, name in enumerate(self.names):
            if name not in layout.axes:
                continue
            for k, mine in enumerate(varies):
                if not layout.splits(name):
                    mine[i] = False  # the partitioner knows that these values are equal
                elif not layout.per_block:
                    # blocks are joined, even if they are equal or the axis has one block
                    mine[i] = any(name in dim for dim in layout.specs[k])

    def _callback_of_some(self, eqn: Eqn, ins: list[Values], layout: Any) -> list[Values]:
        """Call Python once for each group of devices that differ only along automatic axes."""
        automatic = [layout is not None and name in layout.axes for name in self.names]
        if not any(automatic):
            return self.each(lambda *xs: reference_results(eqn, xs), ins)
        groups: dict[tuple, list[int]] = {}
        for i, member in enumerate(self.members):
            place = tuple([p for p, whole in zip(self.places[member], automatic) if not whole])
            groups.setdefault(place, []).append(i)
        part = Lockstep([axis for axis, whole in zip(self.axes, automatic) if whole])
        results: list = [None] * len(self)
        for chosen in groups.values():
            if len(chosen) < len(part):
                raise NotImplementedError(
                    f"{eqn.primitive.name} needs a whole value, but only some of its devices take part."
                )
            outs = part._callback(eqn, [[x[i] for i in chosen] for x in ins])
            for i, mine in zip(chosen, zip(*outs) if outs else [()] * len(chosen)):
                results[i] = mine
        return [list(values) for values in zip(*results)]

    def _stack_devices(self, values: Values, varies: Sequence[bool]) -> np.ndarray:
        """Return the values of all devices with a leading dim for each axis over which they vary."""
        chosen = [
            v
            for v, place in zip(values, self.places)
            if all(p == 0 for p, mine in zip(place, varies) if not mine)
        ]
        lead = [n for n, mine in zip(self.shape, varies) if mine]
        return np.stack(chosen).reshape(*lead, *chosen[0].shape) if lead else chosen[0]
