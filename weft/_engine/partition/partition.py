"""The entry point of partitioning: a global program becomes the local program that one device runs.

In:   a Jaxpr on global shapes, a mesh, the given specs of inputs and outputs (None: to be determined).
Out:  a `PartitionResult`: the local Jaxpr with explicit collectives, the specs of all inputs and outputs, and a record per collective.
Law:  the assembled results of the local program on all devices equal the results of the global program.
Next: `propagate`, `reshard` and `spmd` do the work here; `partition.stack` maps the local program over the mesh.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from weft._engine.core.trace import current_trace
from weft._engine.ir.explicit import auto_part, has_explicit_axes, on_devices, with_axis_types
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var
from weft._engine.ir.mesh import AxisType, Mesh
from weft._engine.ir.program_mesh import (
    common_mesh,
    constraint_shardings,
    has_shard_map,
    sharding_of_spec,
    to_spec,
)
from weft._engine.ir.shardings import NamedSharding, Sharding
from weft._engine.ir.specs import DimSpec, PartitionSpec, Spec, axis_parts
from weft._engine.ir.types import ShapedArray
from weft._engine.partition.alternatives import Choices, search_alternatives
from weft._engine.partition.cost import DEFAULT, CollectiveRecord, CostModel
from weft._engine.partition.propagation.propagate import ConflictRule, Propagation, propagate
from weft._engine.partition.reshard import Placement
from weft._engine.partition.rules.dim_moves import match_moves
from weft._engine.partition.shard_check import PartitionedProgram, check_partitioned
from weft._engine.partition.spmd import partition_program
from weft._engine.partition.values import FormSchedule, PlacedEqn
from weft._engine.util.errors import ShardingError
from weft._engine.util.record import record, replace

#: other layouts are tried for a way of resolving conflicts if its first program sends at most this times the fewest bytes
LEAD = 1.1

#: slices are split by the axes of sliced dims only if a program would otherwise send more than this times the bytes
SLICES_LEAD = 2


@record
class PartitionResult:
    """A partitioned program. A spec has a tuple of axes of `mesh` for each dim; `mesh` may be finer than the given mesh."""

    jaxpr: Jaxpr
    in_specs: tuple[Spec, ...]
    out_specs: tuple[Spec, ...]
    records: tuple[CollectiveRecord, ...]
    mesh: Mesh
    in_shardings: tuple[Sharding, ...] = ()
    out_shardings: tuple[Sharding, ...] = ()
    # (callback of `inspect_sharding`, layout of its value)
    layout_callbacks: tuple[tuple[Callable[..., Any], Spec], ...] = ()
    # the numbers of storage blocks per dim of results that are computed whole; None for others
    out_blocks: tuple[tuple[int, ...] | None, ...] = ()
    # the global program; `placed_eqns` has the placements of its equations' results
    program: Jaxpr | None = None
    placed_eqns: tuple[PlacedEqn, ...] = ()
    programs: tuple[PartitionedProgram, ...] = ()  # for the check of shards, then empty
    work: float = 0.0  # time of the local computations, in the unit of bytes sent

    @property
    def axes(self) -> tuple[tuple[Any, int], ...]:
        """The (name, size) pairs of the mesh axes, in order."""
        return self.mesh.shape_tuple

    @property
    def owners(self) -> np.ndarray | None:
        """The process of each device of the mesh; None if there is one process."""
        if not self.mesh.is_multi_process:
            return None
        return np.array([d.process_index for d in self.mesh.flat_devices]).reshape(
            self.mesh.axis_sizes
        )

    def text(self) -> str:
        """Return the text for dumps: the mesh, the layouts, each collective with its cause, and the program of one device."""
        sizes = ", ".join(f"{name}={size}" for name, size in self.axes)

        def show(specs: Sequence[Spec]) -> str:
            return "  ".join(
                str(tuple("·".join(map(str, axes)) or "-" for axes in spec)) for spec in specs
            )

        lines = [
            f"mesh {sizes}",
            f"inputs   {show(self.in_specs)}",
            f"outputs  {show(self.out_specs)}",
        ]
        return "\n".join([*lines, *map(str, self.records), str(self.jaxpr)]) + "\n"

    @property
    def bytes_sent(self) -> int:
        """The number of bytes that a device sends."""
        return sum(r.bytes_per_device * r.count for r in self.records)

    @property
    def moves(self) -> bool:
        """True if values are moved to other layouts, not counting the sums of ops."""
        return any(r.cause in ("operand", "loop", "output") for r in self.records)

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of collectives by kind."""
        counts: dict[str, int] = {}
        for r in self.records:
            counts[r.kind] = counts.get(r.kind, 0) + r.count
        return counts


def partition(
    jaxpr: Jaxpr,
    mesh: Mesh,
    in_specs: Sequence[Spec | None],
    out_specs: Sequence[Spec | None],
    cost: CostModel = DEFAULT,
    keeps_targets: bool = False,
) -> PartitionResult:
    """Partition `jaxpr` over `mesh`, given some specs of its inputs and outputs.

    With `keeps_targets`, outputs without a given spec have the spec from propagation; otherwise the cheapest."""
    _check_given(jaxpr.invars, in_specs, mesh, "input")
    _check_given(jaxpr.outvars, out_specs, mesh, "output")
    result, request, cuts = _partition(
        _PartitionAttempt(
            match_moves(jaxpr), mesh, tuple(in_specs), tuple(out_specs), cost, mesh, keeps_targets
        )
    )
    while cuts:  # finer axes permit cheaper moves
        other, request, cuts = _partition(request.refine(cuts))
        if other.bytes_sent >= result.bytes_sent:
            break
        result = other
    check_partitioned(result.programs, result.mesh.shape)
    return replace(result, programs=())


@record
class ValueLayouts:
    """Layouts of variables inside a program: their specs, and forms that are dropped after an equation."""

    specs: Mapping[Var, Spec]
    dropped: Mapping[Eqn, Sequence[tuple[Var, Spec]]] = MappingProxyType({})


def partition_with_layouts(
    jaxpr: Jaxpr,
    mesh: Mesh,
    in_specs: Sequence[Spec | None],
    out_specs: Sequence[Spec | None],
    layouts: ValueLayouts,
    cost: CostModel = DEFAULT,
) -> PartitionResult:
    """Partition `jaxpr`, given specs of arguments and results, and layouts of variables inside.

    Values are moved to their layouts when they are computed. The layouts determine whether all devices compute a sum, so repeated
    computation costs as much as any other.
    """
    cost = replace(cost, repeated_latency=0)
    request = _PartitionAttempt(
        jaxpr,
        mesh,
        tuple(in_specs),
        tuple(out_specs),
        cost,
        mesh,
        False,
        layouts=layouts.specs,
        dropped=layouts.dropped,
    )
    request, program, target_specs = _propagate(request)
    result = _Attempts(request, program, target_specs, early=layouts.specs).first
    check_partitioned(result.programs, result.mesh.shape)
    return replace(result, programs=())


@record
class _PartitionAttempt:
    """A program to partition, a mesh, the given specs, and options."""

    program: Jaxpr
    mesh: Mesh
    in_specs: tuple[Spec | None, ...]
    out_specs: tuple[Spec | None, ...]
    cost: CostModel
    user_mesh: Mesh  # the user's mesh; `mesh` refines it
    keeps_targets: bool  # True if outputs without a given spec have their target spec
    settling: ConflictRule = ConflictRule.BY_SIZE
    splits_slices: bool = False  # True if axes of sliced dims split other dims of the slices
    layouts: Mapping[Var, Spec] = MappingProxyType({})  # additional layouts of inner variables
    #: forms of variables that are dropped after an equation
    dropped: Mapping[Eqn, Sequence[tuple[Var, Spec]]] = MappingProxyType({})

    def refine(self, cuts: Mapping[Any, int]) -> _PartitionAttempt:
        """Return the request with each axis of `cuts` split into a major part of the given size and the rest."""
        mesh, parts = _refined_mesh(self.mesh, cuts)
        ins, outs = (
            tuple(_on_refined_axes(s, parts) for s in specs)
            for specs in (self.in_specs, self.out_specs)
        )
        layouts = {v: _on_refined_axes(s, parts) for v, s in self.layouts.items()}
        return replace(self, mesh=mesh, in_specs=ins, out_specs=outs, layouts=layouts)


def _partition(
    request: _PartitionAttempt,
) -> tuple[PartitionResult, _PartitionAttempt, dict[Any, int]]:
    """Return the partitioned program that sends least, the request on its mesh, and axes whose refinement would reduce communication.

    Each way of resolving conflicts of layouts yields another program, and so does each treatment of the axes of sliced dims.
    """
    ways = _ways(request)
    fewest_bytes = min(way.first.bytes_sent for way in ways)
    promising = [way for way in ways if way.first.bytes_sent <= LEAD * fewest_bytes]
    best, way = min(((way.best(), way) for way in promising), key=lambda pair: pair[0].bytes_sent)
    return best, way.request, way.cuts


def _ways(request: _PartitionAttempt) -> list[_Attempts]:
    """Return the attempts for each way of propagation that leads to different layouts.

    Slices are split by the axes of sliced dims only if that saves most of the bytes, because results would be split by them, too.
    """
    request = replace(request, settling=ConflictRule.BY_SIZE, splits_slices=False)
    first = _Attempts(*_propagate(request))
    ways, requests = [first], [request]
    if first.target_specs.conflicts:
        requests.append(replace(request, settling=ConflictRule.BY_REACH))
        _add_way(ways, requests[1])
    fewest_bytes = min(way.first.bytes_sent for way in ways)
    if fewest_bytes and first.target_specs.slices_split:
        for other in requests:
            _add_way(ways, replace(other, splits_slices=True), fewest_bytes / SLICES_LEAD)
    return ways


def _add_way(ways: list[_Attempts], request: _PartitionAttempt, most: float = math.inf) -> None:
    """Add the attempts for `request`, if its layouts are new and its first program sends less than `most` bytes."""
    propagated = _propagate(request, ways[0])
    if all(
        propagated[0].mesh != way.request.mesh or propagated[2].dims != way.target_specs.dims
        for way in ways
    ):
        attempts = _Attempts(*propagated, ways[0])
        if attempts.first.bytes_sent < most:
            ways.append(attempts)


class _Attempts:
    """Attempts to partition a program with the target specs of one propagation."""

    def __init__(
        self,
        request: _PartitionAttempt,
        program: Jaxpr,
        target_specs: Propagation,
        earlier: _Attempts | None = None,
        early: Mapping[Var, Spec] = MappingProxyType({}),
    ):
        self.request, self.program, self.target_specs = request, program, target_specs
        #: strategies, shared by all attempts with these rules
        self.strategies: dict[tuple[Any, ...], list[Any]] = {}
        if (
            earlier is not None
            and target_specs.rules is earlier.target_specs.rules
            and request.mesh == earlier.request.mesh
        ):
            self.strategies = earlier.strategies
        self.cuts: dict[Any, int] = {}  # axes whose refinement would reduce communication
        self.repeatable: list[Eqn] = []
        self.first = self.partition(early=early)

    def best(self) -> PartitionResult:
        """Return the attempt that sends least, after trying alternatives that may send less than the first."""
        weight, best = 1.0, self.first
        if best.moves:
            # other weights of target specs that were not requested may reduce communication
            weighted = {1.0: best, 0.5: self.partition(0.5), 2.0: self.partition(2.0)}
            weight = min(weighted, key=lambda weight: weighted[weight].bytes_sent)
            best = search_alternatives(
                weighted[weight],
                self.target_specs,
                lambda choices: self.with_choices(choices, weight),
            )
        if self.repeatable:
            # computing sums on all devices may help if no other sums are combined with them
            other = self.partition(cost=replace(self.request.cost, repeated_latency=0))
            has_no_parts = not any(r.parts for r in best.records)
            if other.bytes_sent < best.bytes_sent and (
                has_no_parts or sum(other.counts.values()) <= sum(best.counts.values())
            ):
                best = other
        return best

    def partition(
        self,
        target_weight: float = 1.0,
        cost: CostModel | None = None,
        target_specs: Propagation | None = None,
        early: Mapping[Var, Spec] = MappingProxyType({}),
    ) -> PartitionResult:
        """Return the program partitioned under `cost`, with target specs that were not requested weighted by `target_weight`."""
        request, program, target_specs = (
            self.request,
            self.program,
            target_specs or self.target_specs,
        )
        ins = tuple(target_specs.spec(v) for v in program.invars)
        requested = zip(request.out_specs, program.outvars)
        kept_vars = program.outvars if request.keeps_targets else target_specs.explicit
        result_specs = tuple(
            target_specs.spec(v) if s is None and v in kept_vars else s for s, v in requested
        )
        local, outs, out_places = partition_program(
            program,
            target_specs,
            [Placement(s) for s in ins],
            result_specs,
            constraint_reader(request.mesh),
            current_trace(),
            cost or request.cost,
            target_weight,
            FormSchedule(early, request.dropped),
            self.strategies,
        )
        self.cuts.update(out_places.finer_axes)
        self.repeatable.extend(out_places.repeatable)
        records = tuple(r for r in out_places.records if r is not None)
        return PartitionResult(
            local,
            ins,
            tuple(outs),
            records,
            request.mesh,
            layout_callbacks=tuple(out_places.layout_callbacks),
            program=program,
            placed_eqns=tuple(out_places.placed_eqns),
            programs=tuple(out_places.programs),
            work=sum(out_places.work),
        )

    def with_choices(self, choices: Choices, target_weight: float) -> PartitionResult | None:
        """Return the program partitioned with some chosen layouts; None if that requires finer axes."""
        specs = self.target_specs
        if choices.layouts:
            specs = _target_specs(
                self.request, self.program, choices.layouts.items(), self.target_specs
            )
        return (
            None
            if specs.cuts
            else self.partition(target_weight, target_specs=specs, early=choices.early)
        )


def _propagate(
    request: _PartitionAttempt, earlier: _Attempts | None = None
) -> tuple[_PartitionAttempt, Jaxpr, Propagation]:
    """Propagate; return the request and the program on the final axes, and the propagation.

    Axes are refined if a reshape splits a dim between the devices of one axis. The program of `earlier` attempts and its rules are
    reused on the same mesh.
    """
    while True:
        mesh = request.mesh
        known = earlier if earlier is not None and earlier.request.mesh == mesh else None
        jaxpr = known.program if known else _on_mesh(request.program, mesh)
        like = known.target_specs if known else None
        target_specs = _target_specs(request, jaxpr, like=like)
        # of several cuts of an axis, the smallest is kept
        cuts = dict(sorted(target_specs.cuts, key=lambda cut: -cut[1]))
        if not cuts:
            return request, jaxpr, target_specs
        request = request.refine(cuts)


def _target_specs(
    request: _PartitionAttempt,
    program: Jaxpr,
    layouts: Iterable[tuple[Var, Spec]] = (),
    like: Propagation | None = None,
) -> Propagation:
    """Return the propagation of `program` on the request's mesh, with additional `layouts`.

    `like` is an earlier propagation of `program`, whose rules are reused.
    """
    mesh = request.mesh
    return propagate(
        program,
        dict(mesh.shape),
        request.in_specs,
        request.out_specs,
        constraint_reader(mesh),
        _type_reader(mesh),
        (mesh, request.user_mesh),
        [*request.layouts.items(), *layouts],
        request.settling,
        request.splits_slices,
        like,
    )


def _on_mesh(program: Jaxpr, mesh: Mesh) -> Jaxpr:
    """Return `program` with the programs of its shard_maps on the axes of `mesh`."""
    if not has_shard_map(program):
        return program
    from weft._engine.partition.nested_shard_map import on_mesh  # most programs have no shard_map

    return on_mesh(program, mesh)


def _refined_mesh(mesh: Mesh, cuts: Mapping[Any, int]) -> tuple[Mesh, dict[Any, tuple[Any, ...]]]:
    """Return `mesh` with each axis of `cuts` split into a major part of the given size and the rest; and the parts of each axis."""
    parts = {name: axis_parts(name) if name in cuts else (name,) for name in mesh.axis_names}
    sizes = [
        n
        for name, size in mesh.shape_tuple
        for n in ((cuts[name], size // cuts[name]) if name in cuts else (size,))
    ]
    names = [n for name in mesh.axis_names for n in parts[name]]
    return Mesh(np.array(mesh.devices).reshape(sizes), names), parts


def _on_refined_axes(spec: Spec | None, parts: Mapping[Any, tuple[Any, ...]]) -> Spec | None:
    return (
        None if spec is None else tuple(tuple(p for a in axes for p in parts[a]) for axes in spec)
    )


def _check_given(atoms: Sequence[Any], specs: Sequence[Spec | None], mesh: Mesh, what: str) -> None:
    sizes = mesh.shape
    for i, (atom, spec) in enumerate(zip(atoms, specs)):
        for d, axes in enumerate(spec or ()):
            n = int(np.prod([sizes[a] for a in axes], dtype=int))
            if atom.aval.shape[d] % n:
                raise ShardingError(
                    f"partition: cannot split {what} {i} of type {atom.aval.str_short()} as {spec}.\n"
                    f"    dim {d} has size {atom.aval.shape[d]}, mesh axes {axes} have size {n}\n"
                    "  A dim must divide by the mesh axes that split it. Pad it, or leave it unsplit."
                )


def constraint_reader(mesh: Mesh) -> Callable[[Eqn], Sequence[DimSpec | None]]:
    """Return a function from constraint equations to the requested axes of each dim, None for dims left open."""

    def read(eqn: Eqn) -> Sequence[DimSpec | None]:
        sharding, ndim = eqn.params["sharding"], eqn.invars[0].aval.ndim
        if eqn.primitive.leaves_auto and eqn.outvars[0].aval.explicit is not None:
            sharding = auto_part(sharding, ndim)  # explicit axes are in the variable's type
        if sharding is None or (isinstance(sharding, NamedSharding) and sharding.mesh.empty):
            return (None,) * ndim
        spec = to_spec(sharding, mesh, ndim)
        if spec is None:
            return (None,) * ndim
        free = sharding.spec.unconstrained_dims() if isinstance(sharding, NamedSharding) else ()
        return tuple(None if d in free else axes for d, axes in enumerate(spec))

    return read


def _type_reader(
    mesh: Mesh,
) -> Callable[[ShapedArray], tuple[Spec, frozenset[Any], frozenset[Any]]]:
    """Return a function from explicitly sharded types to (layout, explicit axes of `mesh`, unreduced axes)."""

    def read(aval: ShapedArray) -> tuple[Spec, frozenset[Any], frozenset[Any]]:
        sharding = aval.explicit
        if sharding is None:
            return ((),) * aval.ndim, frozenset(), frozenset()
        explicit_spec = to_spec(sharding.with_spec((sharding.mesh.explicit_axes,)), mesh, 1)
        spec = to_spec(sharding.without_partial_axes, mesh, aval.ndim)
        if explicit_spec is None or spec is None:
            # axes of other shardings of the program refine these axes differently
            return ((),) * aval.ndim, frozenset(), frozenset()
        terms = (
            to_spec(sharding.with_spec(sharding.storage_sharding.spec.partitions[:1]), mesh, 1)
            if sharding.unreduced
            else None
        )
        return (
            spec,
            frozenset(explicit_spec[0]),
            frozenset() if terms is None else frozenset(terms[0]),
        )

    return read


@record
class PartitionRequest:
    """A program to partition over a mesh, and the given specs of its arguments and results (None: open).

    keeps_targets   True if results without a given spec have the spec from propagation instead of the cheapest
    """

    jaxpr: Jaxpr
    mesh: Mesh
    in_specs: tuple[Spec | None, ...]
    out_specs: tuple[Spec | None, ...]
    keeps_targets: bool = False


class Partitioning(Protocol):
    """A method of partitioning a program, given some specs. `mesh` is the mesh that it requires, or None."""

    @property
    def mesh(self) -> Mesh | None: ...

    def with_ties(self, ties: tuple[tuple[int, int], ...]) -> Partitioning:
        """Return the same for a program with pairs of a result and the argument that it replaces."""
        ...

    def partition(self, request: PartitionRequest) -> PartitionResult:
        """Return the partitioned program."""
        ...


@record
class PropagatingPartitioning:
    """The partitioning whose specs are propagated from the given specs."""

    cost: CostModel = DEFAULT

    @property
    def mesh(self) -> None:
        return None

    def with_ties(self, ties: tuple[tuple[int, int], ...]) -> PropagatingPartitioning:
        """Return the same: propagation needs no ties."""
        return self

    def partition(self, request: PartitionRequest) -> PartitionResult:
        """Return the partitioned program."""
        specs = request.in_specs, request.out_specs
        return partition(request.jaxpr, request.mesh, *specs, self.cost, request.keeps_targets)


#: the default partitioning, with the cost model of virtual devices
PROPAGATING = PropagatingPartitioning()


def partition_for(
    jaxpr: Jaxpr,
    in_specs: Sequence[Any],
    out_shardings: Sequence[Sharding | None],
    assignment: Sequence[Any],
    in_context: bool = False,
    method: Partitioning = PROPAGATING,
) -> PartitionResult:
    """Partition a program for its arguments: `in_specs[i]` has a `sharding` and is `committed` or not; `in_context` is true if a mesh is
    in context.

    Propagation determines the layouts of uncommitted arguments, and of outputs without a sharding. The result's `in_shardings` and
    `out_shardings` are the shardings of the program's arguments and results. If the axes of the common mesh cannot express the sharding
    of an output, it is computed whole and split into its blocks at the end.
    """
    assignment = tuple(assignment)
    committed = _committed_shardings(in_specs, assignment)
    asked = None if method.mesh is None else NamedSharding(method.mesh, PartitionSpec())
    all_given = (asked, *committed, *out_shardings, *constraint_shardings(jaxpr))
    given_shardings = [s for s in all_given if s is not None]
    mesh = (
        common_mesh(given_shardings)
        if given_shardings
        else Mesh(np.array(assignment, object), ("d0",))
    )
    requested, foreign = _requested_results(jaxpr, out_shardings, mesh)
    known = [s for s in dict.fromkeys(given_shardings) if s.memory_kind == "device"]
    has_types = any(aval.explicit is not None for aval in jaxpr.in_avals)
    untyped_mesh = _mesh_of_untyped_results(mesh, known, in_context)
    in_wanted = _specs_on(mesh, committed, jaxpr.invars)
    keeps_targets = bool(untyped_mesh.explicit_axes)
    request = PartitionRequest(jaxpr, mesh, tuple(in_wanted), tuple(requested), keeps_targets)
    result = method.partition(request)
    user = _UserShardings(result.mesh, mesh, known, untyped_mesh, has_types, assignment)
    shown = zip(foreign, result.out_specs, out_shardings, jaxpr.out_avals)
    return replace(
        result,
        in_shardings=tuple(map(user.of, result.in_specs, committed)),
        out_shardings=tuple(
            other or user.of_result(spec, asked, aval) for other, spec, asked, aval in shown
        ),
        layout_callbacks=tuple(
            (callback, user.of(spec, None)) for callback, spec in result.layout_callbacks
        ),
        out_blocks=tuple(s and s.splits(a.aval.shape) for s, a in zip(foreign, jaxpr.outvars)),
    )


def _committed_shardings(
    in_specs: Sequence[Any], assignment: tuple[Any, ...]
) -> list[Sharding | None]:
    """Return the shardings of the arguments that are committed to the devices; None for others."""
    return [
        s.sharding.without_partial_axes
        if s.committed and s.sharding.device_assignment == assignment
        else None
        for s in in_specs
    ]


def _specs_on(mesh: Mesh, shardings: Sequence[Any], atoms: Sequence[Any]) -> list[Spec | None]:
    """Return the specs of shardings on a mesh; None if there is no sharding or the axes cannot express it."""
    return [None if s is None else to_spec(s, mesh, a.aval.ndim) for s, a in zip(shardings, atoms)]


def _requested_results(
    jaxpr: Jaxpr, shardings: Sequence[Sharding | None], mesh: Mesh
) -> tuple[list[Spec | None], list[Sharding | None]]:
    """Return the specs of results, and the shardings that the axes of the mesh cannot express; such results are computed whole."""
    specs = _specs_on(mesh, shardings, jaxpr.outvars)
    foreign = [s if spec is None else None for s, spec in zip(shardings, specs)]
    out_specs: list[Spec | None] = [
        spec if s is None else ((),) * a.aval.ndim
        for s, spec, a in zip(foreign, specs, jaxpr.outvars)
    ]
    return out_specs, foreign


class _UserShardings:
    """The shardings of arguments and results, on the user's meshes where possible."""

    def __init__(
        self,
        fine: Mesh,
        mesh: Mesh,
        known: Sequence[Sharding],
        untyped_mesh: Mesh,
        has_types: bool,
        assignment: tuple[Any, ...],
    ):
        self.fine, self.mesh, self.untyped_mesh = fine, mesh, untyped_mesh
        self.has_types, self.assignment = has_types, assignment
        # over explicit axes the type determines the spec
        self.untyped = [s for s in known if not has_explicit_axes(s)]
        self.has_explicit = len(self.untyped) < len(known)

    def of(self, spec: Spec, asked: Sharding | None) -> Sharding:
        """Return the sharding of a value that is split by `spec`; `asked` is the user's sharding, if any."""
        known = self.untyped if asked is None else [asked, *self.untyped]
        return _user_sharding(spec, self.fine, self.mesh, known)

    def of_result(self, spec: Spec, asked: Sharding | None, aval: ShapedArray) -> Sharding:
        """Return the sharding of a result, on the mesh whose axis types can express the result's type."""
        if asked is not None or not self.has_explicit:
            return self.of(spec, asked)
        explicit = aval.explicit
        own = self.untyped_mesh if explicit is None else on_devices(explicit, self.assignment).mesh
        alike = [
            s
            for s in self.untyped
            if isinstance(s, NamedSharding) and s.mesh.axis_types == own.axis_types
        ]
        user_sharding = _user_sharding(spec, self.fine, own, alike)
        return (
            user_sharding
            if self.has_types or explicit is not None
            else _without_trailing_none(user_sharding)
        )


def _mesh_of_untyped_results(mesh: Mesh, known: Sequence[Sharding], in_context: bool) -> Mesh:
    """Return the mesh of results whose types have no sharding: `mesh`, with auto axes if a mesh in context or a value may have
    them."""
    automatic = with_axis_types(mesh, mesh.explicit_axes, AxisType.Auto)
    is_used = in_context or any(
        isinstance(s, NamedSharding) and s.mesh.axis_types == automatic.axis_types for s in known
    )
    return automatic if is_used else mesh


def _without_trailing_none(sharding: Sharding) -> Sharding:
    if not isinstance(sharding, NamedSharding):
        return sharding
    entries = list(sharding.spec.partitions)
    while entries and entries[-1] is None:
        entries.pop()
    return sharding.with_spec(entries)


def _user_sharding(spec: Spec, mesh: Mesh, coarse: Mesh, known: Sequence[Sharding]) -> Sharding:
    """Return the sharding of a value that is split by `spec`, on the user's mesh where possible."""
    if mesh is not coarse:
        on_coarse = to_spec(sharding_of_spec(spec, mesh), coarse, len(spec))
        if on_coarse is not None:
            return sharding_of_spec(on_coarse, coarse, known)
    return sharding_of_spec(spec, mesh, known)
