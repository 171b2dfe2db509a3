"""Mesh axes across processes: each axis is divided into parts between processes and parts within each process.

In:   a local program, the sizes of its mesh axes, and the process of each device of the mesh.
Out:  `ProcessAxes`: every axis as parts, major to minor, some of them *process parts*; the program on these parts.
Laws: devices along a local part belong to one process; each position along the process parts is another process. A collective
      treats several axes as one, so an axis can be replaced by its parts everywhere. All processes get the same program.
Next: `exchanges` maps that program over the local parts and turns the remaining collectives into exchanges.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft._engine.core.interpret import evaluate
from weft._engine.core.primitive import CallbackOp, CollectiveOp, Primitive, RegionOp
from weft._engine.core.stage import stage
from weft._engine.core.trace import (
    InnerTrace,
    Trace,
    current_trace,
    derived_trace,
    extend_axis_env,
    set_trace,
    typeof,
)
from weft._engine.ir.collective_spec import collective_axes
from weft._engine.ir.jaxpr import Jaxpr, subjaxprs
from weft._engine.ir.rewrite import map_jaxprs
from weft._engine.ir.specs import DimSpec, Spec
from weft._engine.ops.callback import guard_calls
from weft._engine.ops.collective_blocks import axes_size
from weft._engine.ops.collective_groups import bind_over
from weft._engine.ops.collective_rules import (
    all_gather_p,
    axis_index_p,
    pbroadcast_p,
    position,
)
from weft._engine.ops.elementwise import eq
from weft._engine.util.errors import ShardingError, describe
from weft._engine.util.primes import distinct_orders, prime_factors
from weft._engine.util.record import field, record, replace


@record
class AxisPart:
    """A part of a mesh axis: its name, its size, and whether it is between processes."""

    name: Any
    size: int
    is_process: bool


@record
class ProcessAxes:
    """The parts of all axes, in the order of the mesh. `ranks` are the processes in row-major order of the process parts."""

    parts: Mapping[Any, tuple[AxisPart, ...]]
    ranks: tuple[int, ...]
    # cached groups and positions, by axes
    known: dict[tuple[Any, ...], tuple[Any, ...]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def all_parts(self) -> list[AxisPart]:
        """The parts of all axes, in order."""
        return [part for parts in self.parts.values() for part in parts]

    @property
    def local(self) -> list[tuple[Any, int]]:
        """(name, size) of the local parts."""
        return [(part.name, part.size) for part in self.all_parts if not part.is_process]

    @property
    def between(self) -> list[tuple[Any, int]]:
        """(name, size) of the process parts."""
        return [(part.name, part.size) for part in self.all_parts if part.is_process]

    def names(self, axes: Sequence[Any]) -> tuple[Any, ...]:
        """Return the parts of `axes`; parts are unchanged."""
        return tuple(
            name
            for axis in axes
            for name in ([p.name for p in self.parts[axis]] if axis in self.parts else [axis])
        )

    def local_spec(self, spec: Spec) -> Spec:
        """Return the part of `spec` that is within a process: its local axis parts."""
        inside = {name for name, _ in self.local}
        return tuple(tuple(name for name in self.names(axes) if name in inside) for axes in spec)

    def groups(self, axes: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
        """Return the groups of ranks that exchange values along the process parts `axes`, in order of their positions."""
        groups = self.known.get(("groups", *axes))
        if groups is None:
            groups = self.known["groups", *axes] = self._groups(axes)
        return groups

    def _groups(self, axes: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
        names = [name for name, _ in self.between]
        grid = np.array(self.ranks).reshape([size for _, size in self.between])
        order = [i for i, name in enumerate(names) if name not in axes] + [
            names.index(axis) for axis in axes
        ]
        size = math.prod(grid.shape[names.index(axis)] for axis in axes)
        return tuple(map(tuple, grid.transpose(order).reshape(-1, size).tolist()))

    def positions(self, axis: Any) -> tuple[tuple[int, int], ...]:
        """Return (rank, position) pairs of all ranks along a process part."""
        positions = self.known.get(("positions", axis))
        if positions is None:
            pairs = [(rank, i) for group in self.groups((axis,)) for i, rank in enumerate(group)]
            positions = self.known["positions", axis] = tuple(sorted(pairs))
        return positions


def process_axes(
    mesh: Sequence[tuple[Any, int]], owners: np.ndarray, fine: bool = False
) -> ProcessAxes:
    """Return the division of the axes (name, size) of a mesh into parts; `owners` has the process of each device.

    With `fine`, the sizes of parts are prime. Raises ShardingError if the processes of the devices have no regular pattern.

    >>> found = process_axes([("x", 4), ("y", 2)], np.array([[0, 0], [0, 0], [1, 1], [1, 1]]))
    >>> [(part.name, part.size, part.is_process) for part in found.all_parts]
    [('x.0', 2, True), ('x.1', 2, False), ('y', 2, False)]
    """
    parts: dict[Any, tuple[AxisPart, ...]] = {}
    for i, (name, _) in enumerate(mesh):
        rows = np.moveaxis(owners, i, 0).reshape(owners.shape[i], -1)
        digits = max(
            _digits(rows),
            key=lambda found: math.prod(size for size, is_process in found if not is_process),
        )
        joined = digits if fine else _join(digits)
        labels = [name] if len(joined) == 1 else [f"{name}.{k}" for k in range(len(joined))]
        parts[name] = tuple(
            AxisPart(label, size, is_process) for label, (size, is_process) in zip(labels, joined)
        )
    flat = [part for axis_parts in parts.values() for part in axis_parts]
    grid = owners.reshape([part.size for part in flat])
    ranks = grid[tuple(slice(None) if part.is_process else 0 for part in flat)].ravel()
    if len(set(ranks.tolist())) != ranks.size:
        raise ShardingError(
            describe(
                "mesh",
                "its processes have no regular pattern.",
                [("axes", dict(mesh)), ("process of each device", owners.tolist())],
                None,
                "Every process must have the same number of devices of the mesh, and be a block or a stride of each axis.",
                "Make the mesh with weft.make_mesh, or order its devices by process.",
            )
        )
    return ProcessAxes(parts, tuple(map(int, ranks)))


def _digits(rows: np.ndarray) -> Iterator[list[tuple[int, bool]]]:
    """Yield the decompositions of a position along an axis into digits of prime size, with flags for digits between processes.

    `rows[i]` has the processes at position i of the axis."""
    n = len(rows)
    primes = prime_factors(n)
    for order in distinct_orders(primes):
        digits: list[tuple[int, bool]] = []
        stride = n
        for size in order:
            stride //= size
            blocks = rows.reshape(-1, size, stride, rows.shape[1])
            digits.append((size, bool((blocks != blocks[:, :1]).any())))
        yield digits or [(1, False)]


def _join(digits: Sequence[tuple[int, bool]]) -> list[tuple[int, bool]]:
    """Merge adjacent digits of one kind."""
    return [
        (math.prod(size for size, _ in some), is_process)
        for is_process, some in (
            (kind, list(some))
            for kind, some in itertools.groupby(digits, key=lambda digit: digit[1])
        )
    ]


@record
class Positioned:
    """A callback of blocks that receives its position on the mesh: along the local parts as an argument, and along the process parts as
    the first operands."""

    callback: Any
    parts: tuple[tuple[Any, tuple[AxisPart, ...]], ...]
    between: tuple[Any, ...]

    def __call__(self, position: tuple[Any, ...], *arrays: np.ndarray) -> list[Any]:
        positions = dict(position)
        numbers: list[tuple[Any, int]] = []
        for axis, parts in self.parts:
            if any(part.name in positions for part in parts):
                index = 0
                for part in parts:
                    index = index * part.size + positions.pop(part.name, 0)
                numbers.append((axis, index))
        return self.callback((*numbers, *positions.items()), *arrays)


def _with_numbers(params: dict[str, Any], names: tuple[Any, ...]) -> dict[Any, Any]:
    """Return the parameters of a callback whose first operands are positions along the axes `names`."""
    mapped = tuple(
        replace(m, operands=(False,) * len(names) + m.operands) for m in params.get("mapped", ())
    )
    return {
        **params,
        "axes": (*names, *params.get("axes", ())),
        **({"mapped": mapped} if mapped else {}),
    }


# ---- the program on parts of axes


def on_parts(local: Jaxpr, axes: ProcessAxes) -> Jaxpr:
    """Return the local program with every axis replaced by its parts."""

    def run(*args: Any):
        with set_trace(_AxisPartTrace(current_trace(), axes)):
            return evaluate(local, *args)

    with extend_axis_env([(part.name, part.size) for part in axes.all_parts]):
        return stage(run, local.in_avals, local.name)


class _AxisPartTrace(InnerTrace):
    """A trace that binds collectives on parts of axes, on values of the parent trace."""

    __slots__ = ("axes",)

    def __init__(self, parent: Trace, axes: ProcessAxes):
        super().__init__(parent)
        self.axes = axes

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        with derived_trace(self.outer):
            if isinstance(primitive, CollectiveOp):
                return self._collective(primitive, args, params)
            if isinstance(primitive, RegionOp):
                params = map_jaxprs(params, lambda inner: on_parts(inner, self.axes))
            if isinstance(primitive, CallbackOp) and params.get("layout") is not None:
                return self._callback(primitive, args, params)
            return primitive.bind(*args, **params)

    # ---- callbacks
    def _callback(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Bind a callback. A callback of blocks runs in the process of each block; a callback of whole values runs in the first process
        along the auto axes, where they are gathered, and its results are sent to all."""
        layout = params["layout"]
        split = {axis for spec in layout.specs for dim in spec for axis in dim}
        inside = tuple(self.axes.local_spec(spec) for spec in layout.specs)
        if layout.per_block:
            whole = [axis for axis in layout.axes if axis not in split]
            spread = self._process_parts(split)
            callback = Positioned(params["callback"], tuple(self.axes.parts.items()), spread)
            args = [*[bind_over(axis_index_p, axis_name=name) for name in spread], *args]
            specs, shapes = ((),) * len(spread) + inside, ((),) * len(spread) + layout.shapes
            params = _with_numbers({**params, "callback": callback}, spread)
        else:
            whole, specs, shapes = list(layout.axes), inside, layout.shapes
            gathered = [self._gather(x, spec) for x, spec in zip(args, layout.specs)]
            args, specs = [x for x, _ in gathered], tuple(spec for _, spec in gathered)
        params["layout"] = replace(
            layout,
            specs=specs,
            shapes=shapes,
            axes=frozenset(self.axes.names(sorted(layout.axes, key=str))),
        )
        between = self._process_parts(whole)
        if not between:
            return primitive.bind(*args, **params)
        first = eq(position(between), np.int32(0))
        outs = guard_calls(primitive, first, args, params)
        return [pbroadcast_p.bind(y, axis_name=between, source=0) for y in outs]

    def _process_parts(self, axes: Collection[Any]) -> tuple[Any, ...]:
        """Return the names of the parts of axes that are split over processes, in the order of the mesh."""
        parts = [p for axis, parts in self.axes.parts.items() if axis in axes for p in parts]
        return tuple([p.name for p in parts if p.is_process])

    def _gather(self, x: Any, spec: Spec) -> tuple[Any, Spec]:
        """Gather an operand along the dims that process parts split; return it and the local parts that split other dims."""
        dims: list[DimSpec] = []
        for d, axes in enumerate(spec, typeof(x).ndim - len(spec)):
            names = self.axes.names(axes)
            if any(part.is_process for axis in axes for part in self.axes.parts[axis]):
                x = all_gather_p.bind(
                    x,
                    all_gather_dimension=d,
                    axis_name=names,
                    axis_size=axes_size(names),
                    tiled=True,
                    axis_index_groups=None,
                )
                names = ()
            dims.append(names)
        return x, tuple(dims)

    def _collective(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        key = "axes" if "axes" in params else "axis_name"
        names = self.axes.names(collective_axes(params))
        if (single := primitive.combines) is not None:
            return [bind_over(single, x, **{**params, key: names}) for x in args]
        if not args:  # the position along the axes
            return bind_over(primitive, **{key: names if len(names) != 1 else names[0]})
        groups = params.get("axis_index_groups")
        if groups is not None and (along := self._find_group_parts(names, groups)) is not None:
            names, params = along, {**params, "axis_index_groups": None}
        return bind_over(primitive, *args, **{**params, key: names})

    def _find_group_parts(
        self, names: Sequence[Any], groups: tuple[Any, ...]
    ) -> tuple[Any, ...] | None:
        """Return the parts along which groups of positions extend, if each group has all positions along them in order; otherwise None."""
        sizes = {part.name: part.size for part in self.axes.all_parts}
        shape = [sizes[name] for name in names]
        grid = np.arange(math.prod(shape)).reshape(shape)
        for k in range(len(names) + 1):
            for chosen in itertools.combinations(range(len(names)), k):
                if math.prod(shape[i] for i in chosen) != len(groups[0]):
                    continue
                others = [i for i in range(len(names)) if i not in chosen]
                rows = grid.transpose([*others, *chosen]).reshape(-1, len(groups[0]))
                if {tuple(map(int, row)) for row in rows} == set(groups):
                    return tuple(names[i] for i in chosen) or None
        return None


def has_groups(jaxpr: Jaxpr) -> bool:
    """Return whether any collective in the program has groups of positions."""
    return any(
        eqn.params.get("axis_index_groups") is not None
        for eqn in jaxpr.eqns
        if isinstance(eqn.primitive, CollectiveOp)
    ) or any(has_groups(inner) for eqn in jaxpr.eqns for _, inner in subjaxprs(eqn.params))
