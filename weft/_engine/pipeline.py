"""The compilation pipeline: trace → simplify → propagate → partition → simplify → compile by a backend.

In:   a `CompileRequest`: a Jaxpr (from `core.stage`), the shardings of its inputs and outputs, the devices, and a backend.
Out:  an `Executable` that runs the program on all these devices.

`partition` converts a program for many devices into the program of one device, with explicit collectives. The backend (`backends`)
compiles the latter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from weft._engine.backends.array_spec import ArraySpec, from_blocks, to_blocks, with_backend_devices
from weft._engine.backends.base import (
    BlockLayout,
    LocalProgram,
    RemoteProgram,
    are_all_remote,
)
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.core.primitive import ConstraintOp, ElementwiseOp
from weft._engine.ir.jaxpr import Jaxpr, Var
from weft._engine.ir.program_mesh import constraint_shardings, has_shard_map
from weft._engine.ir.shardings import NamedSharding, Sharding, SingleDeviceSharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ir.types import ShapedArray
from weft._engine.runtime.executable import CompileRequest, Executable
from weft._engine.runtime.placement import is_compatible
from weft._engine.transforms.erase_varying_axes import erase
from weft._engine.transforms.key_physicalization import is_key, physicalize
from weft._engine.util.config import config
from weft._engine.util.events import report
from weft._engine.util.record import field, record, replace
from weft._engine.util.user_code_suspension import paused

if TYPE_CHECKING:
    from weft._engine.partition.auto.partitioning import Decision
    from weft._engine.partition.partition import Partitioning, PartitionResult

T = TypeVar("T")


@record(frozen=False)
class Stages:
    """The program after every stage of one compilation. `partition` contains the collectives, `lowered` the backend's own stages."""

    name: str
    traced: Jaxpr
    physical: Jaxpr | None = None  # the traced program on stored arguments and results
    simplified: Jaxpr | None = None
    local: Jaxpr | None = None
    partition: PartitionResult | None = None
    program: LocalProgram | None = None
    lowered: Any = None
    decision: Decision | None = None  # of the search for automatic shardings
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def collectives(self) -> list:
        return list(self.partition.records) if self.partition is not None else []

    def run_local(self, jaxpr: Jaxpr, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run `jaxpr` on NumPy in place of the program of one device, on all devices; return the values of the results."""
        from weft._engine.backends.reference import run_on_devices  # only checks need it

        assert self.program is not None
        return run_on_devices(replace(self.program, jaxpr=jaxpr), args)

    def to_memory(self, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the stored form of arguments: arrays of their shards."""
        assert self.program is not None
        return [
            np.ascontiguousarray(to_blocks(x, block.spec.stored))
            for x, block in zip(args, self.program.ins)
        ]

    def from_memory(self, memory: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the values of results, given their stored form."""
        assert self.program is not None
        specs = [block.spec.stored for block in self.program.outs]
        return [
            from_blocks(x.reshape(s.storage_shape), s).reshape(s.global_shape)
            for x, s in zip(memory, specs)
        ]

    @property
    def scheduled(self) -> Any:
        """The kernels and steps of the program, or None if the backend does not have them."""
        return getattr(self.lowered, "scheduled", None)


def compile_request(request: CompileRequest) -> Executable:
    """Compile a program by all passes of the pipeline and by the backend. Write its stages to files if `config.dump` is set."""
    start = time.perf_counter()
    stages, program = lower(request)
    report(
        "compilation",
        config.log_compiles,
        "Finished lowering %s in %.9f sec",
        request.name,
        time.perf_counter() - start,
    )
    in_specs, out_specs = [x.spec for x in program.ins], [x.spec for x in program.outs]
    if are_all_remote(request.assignment):
        loaded = RemoteProgram(out_specs)
    else:
        loaded = request.backend.compile(program, stages.lowered, _Timer(stages))
    stages.seconds["total"] = time.perf_counter() - start
    executable = Executable(
        request.name,
        loaded,
        in_specs,
        out_specs,
        request.donated,
        len(stages.collectives),
        stages,
    )
    if config.dump:
        from weft._engine.hlo.compiled_hlo import compiled_text
        from weft._engine.hlo.text.hlo_text import lowered_text
        from weft._engine.ir import stage_dump

        stage_dump.write_module(
            config.dump,
            request.name,
            "before",
            lowered_text(stages.traced, stage_dump.module_name(request.name)[4:]),
        )
        stage_dump.write_module(
            config.dump, request.name, "after", compiled_text(executable, keep_unused=True)
        )
    return executable


def lower(request: CompileRequest) -> tuple[Stages, LocalProgram]:
    """Run all passes before code generation; return the stages and the program of one device."""
    lowering = LoweringState(request)
    for run_pass in PASSES:
        run_pass(lowering)
    assert lowering.stages.program is not None
    return lowering.stages, lowering.stages.program


class LoweringState:
    """The state of a program between the passes of `lower`.

    jaxpr           the traced program
    program         the result of the last pass
    partial_specs   per result, its spec if that has unreduced or reduced axes, else None
    in_specs        the types and shardings of arguments
    out_shardings   the requested shardings of results (None: not requested); after `lay_out`, the shardings of all results
    memory          the storage of arguments and results on one device
    """

    def __init__(self, request: CompileRequest):
        self.request, self.backend = request, request.backend
        self.jaxpr = self.program = request.jaxpr
        self.stages = Stages(request.name, request.jaxpr)
        self.run = _Timer(self.stages)
        self.in_specs: Sequence[ArraySpec] = request.in_specs
        self.out_shardings: Sequence[Sharding | None] = request.out_shardings
        self.partial_specs: list[PartitionSpec | None] = []
        self.memory = StackedMemoryLayout((), (), ())

    def is_partial(self, i: int) -> bool:
        """Return whether result `i` has unreduced axes."""
        spec = self.partial_specs[i]
        return spec is not None and bool(spec.unreduced)


@record
class StackedMemoryLayout:
    """The storage of the arguments and results of a local program.

    axes         the mesh axes of the program
    in_dims      per argument, the mesh axes that are its leading dims in memory
    out_dims     per result, the same
    out_blocks   per result, the blocks that devices store if these are larger than the shards, else None
    owners       the process of each device of a mesh over several processes, else None
    """

    axes: Any
    in_dims: Sequence
    out_dims: Sequence
    out_blocks: Sequence = ()
    owners: Any = None


def drop_debug_checks(lowering: LoweringState) -> None:
    """Remove debug checks, which compiled programs do not perform."""
    if "debug_check" in lowering.jaxpr.effects:
        from weft._engine.control.checks import without_checks

        lowering.jaxpr = without_checks(lowering.jaxpr, frozenset(["debug_check"]))


def erase_annotations(lowering: LoweringState) -> None:
    """Remove the annotations of types and operations that only transformations need."""
    lowering.program = erase(lowering.jaxpr)
    avals = lowering.jaxpr.out_avals
    lowering.partial_specs = list(map(_partial_spec, lowering.request.out_shardings, avals))


def separate_terms(lowering: LoweringState) -> None:
    """Convert unreduced arguments and results to arrays of their terms."""
    request, specs = lowering.request, lowering.in_specs
    outs: list[Sharding | None] = list(request.out_shardings)
    partial = [i for i in range(len(outs)) if lowering.is_partial(i)]
    if not partial and all(s.stored is s for s in specs):
        return
    from weft._engine.transforms.unreduced_arguments import lower_unreduced

    for i in partial:
        if outs[i] is None:
            outs[i] = lowering.jaxpr.out_avals[i].explicit
    lowering.program = lowering.run(
        "terms",
        lower_unreduced,
        lowering.program,
        [s.stored.aval for s in specs],
        [s.sharding for s in specs],
        outs,
    )


def physicalize_keys(lowering: LoweringState) -> None:
    """Replace random keys by integer arrays."""
    lowering.program = lowering.run("physicalize", physicalize, lowering.program)
    lowering.stages.physical = lowering.program


def simplify_program(lowering: LoweringState) -> None:
    """Simplify the program of all devices."""
    lowering.program = lowering.run("simplify", simplify, lowering.program)
    lowering.stages.simplified = lowering.program


def lay_out(lowering: LoweringState) -> None:
    """Convert the program of all devices into the program of one device."""
    if len(lowering.request.assignment) > 1 or has_shard_map(lowering.program):
        _partition(lowering)
    else:
        _place_on_one_device(lowering)


def _partition(lowering: LoweringState) -> None:
    """Partition a program over several devices, with explicit collectives."""
    from weft._engine.partition import partition

    request, backend, jaxpr = lowering.request, lowering.backend, lowering.jaxpr
    requested = request.out_shardings
    result = lowering.run(
        "partition",
        partition.partition_for,
        lowering.program,
        [s.stored for s in lowering.in_specs],
        [s and s.storage_sharding for s in requested],
        request.assignment,
        request.in_context,
        _choose_partitioning(lowering),
    )
    lowering.stages.partition = result
    for callback, sharding in result.layout_callbacks:
        callback(with_backend_devices(sharding, backend))
    lowering.program = lowering.run("simplify local", simplify, result.jaxpr)
    lowering.stages.local = lowering.program
    logical = map(_key_sharding, result.out_shardings, jaxpr.out_avals)
    lowering.out_shardings = [
        _public_sharding(sharding, spec) if request_sharding is None else request_sharding
        for request_sharding, sharding, spec in zip(requested, logical, lowering.partial_specs)
    ]
    in_shardings = [
        _key_sharding(s, x.aval) for s, x in zip(result.in_shardings, lowering.in_specs)
    ]
    lowering.in_specs = [
        ArraySpec(
            s.aval,
            with_backend_devices(
                s.sharding if s.sharding.without_partial_axes is not s.sharding else sharding,
                backend,
            ),
            s.committed,
        )
        for s, sharding in zip(lowering.in_specs, in_shardings)
    ]
    missing = len(jaxpr.outvars) - len(result.out_blocks)
    lowering.memory = StackedMemoryLayout(
        result.axes,
        result.in_specs,
        result.out_specs,
        (*result.out_blocks, *[None] * missing),
        result.owners,
    )


def _choose_partitioning(lowering: LoweringState) -> Partitioning:
    """Return the partitioning method of a program: propagation, or the search for its automatic shardings."""
    from weft._engine.partition.partition import PropagatingPartitioning

    request, cost = lowering.request, lowering.backend.cost_model
    if request.automatic is None:
        return PropagatingPartitioning(cost)
    if request.automatic.method is not None:
        return request.automatic.method.with_ties(_state_ties(lowering))
    from weft._engine.partition.auto.partitioning import LayoutSearch  # few programs use it

    keep = partial(setattr, lowering.stages, "decision")
    mesh, ties = request.automatic.mesh, _state_ties(lowering)
    return LayoutSearch(mesh, ties=ties, cost=cost, report=keep)


def _state_ties(lowering: LoweringState) -> tuple[tuple[int, int], ...]:
    """Return pairs (result, donated argument) of equal shape and dtype: the result replaces the argument. Each argument has one pair."""
    free = list(lowering.request.donated)
    program, ties = lowering.program, []
    for out, atom in enumerate(program.outvars):
        for i in free:
            aval = program.invars[i].aval
            if (aval.shape, aval.dtype) == (atom.aval.shape, atom.aval.dtype):
                ties.append((out, i))
                free.remove(i)
                break
    return tuple(ties)


def _place_on_one_device(lowering: LoweringState) -> None:
    """Place the arguments and results of a program on its only device."""
    request, backend = lowering.request, lowering.backend
    here = with_backend_devices(SingleDeviceSharding(request.assignment[0]), backend)
    if "inspect" in lowering.program.effects:
        from weft._engine.compiler.rewrite.remove_inspection import without_inspections

        program, callbacks = without_inspections(lowering.program)
        for callback in callbacks:
            callback(here)
        lowering.program = lowering.run("simplify without inspections", simplify, program)
    specs = lowering.in_specs
    names = _reported_shardings(lowering.jaxpr, specs, here)
    lowering.out_shardings = [
        with_backend_devices(name, backend) if requested is None else requested
        for requested, name in zip(request.out_shardings, names)
    ]
    placed = [ArraySpec(s.aval, here, s.committed) for s in specs]
    lowering.in_specs = [
        s if is_compatible(s, p) or s.stored is not s else p for s, p in zip(specs, placed)
    ]
    count = len(lowering.out_shardings)
    lowering.memory = StackedMemoryLayout((), [()] * len(specs), [()] * count, (None,) * count)


def make_local_program(lowering: LoweringState) -> None:
    """Create the `LocalProgram` for the backend, and check the shapes and dtypes of its results against their shards."""
    request, backend, memory = lowering.request, lowering.backend, lowering.memory
    committed = (
        len(request.assignment) > 1
        or any(s.committed for s in lowering.in_specs)
        or any(s is not None for s in request.out_shardings)
        or any(isinstance(s, NamedSharding) for s in lowering.out_shardings)
    )
    out_specs = [
        ArraySpec(aval, with_backend_devices(sharding, backend), committed)
        for aval, sharding in zip(lowering.jaxpr.out_avals, lowering.out_shardings)
    ]
    local = LocalProgram(
        request.name,
        lowering.program,
        memory.axes,
        tuple(map(BlockLayout, lowering.in_specs, memory.in_dims)),
        tuple(map(BlockLayout, out_specs, memory.out_dims, memory.out_blocks)),
        tuple(request.donated),
        tuple([device.id for device in request.assignment]),
        memory.owners,
    )
    lowering.stages.program = local
    if lowering.stages.partition is not None:
        from weft._engine.partition.shard_check import check_memory

        shapes = [
            x.spec.local_shape if x.blocks is None else x.spec.global_shape for x in local.outs
        ]
        dtypes = [x.spec.storage_dtype for x in local.outs]
        check_memory(lowering.program, list(zip(shapes, dtypes)))


def lower_for_backend(lowering: LoweringState) -> None:
    """Run the backend's own stages."""
    program = lowering.stages.program
    assert program is not None
    lowering.stages.lowered = lowering.backend.lower(program, lowering.run)


#: the passes of `lower`, in order
PASSES: tuple[Callable[[LoweringState], None], ...] = (
    drop_debug_checks,
    erase_annotations,
    separate_terms,
    physicalize_keys,
    simplify_program,
    lay_out,
    make_local_program,
    lower_for_backend,
)


def _partial_spec(sharding: Sharding | None, aval: ShapedArray) -> PartitionSpec | None:
    """Return the spec of a result if it has unreduced or reduced axes, else None."""
    actual = aval.explicit if sharding is None else sharding
    return actual.spec if isinstance(actual, NamedSharding) and actual.spec.is_partial else None


def _key_sharding(sharding: Sharding, aval: ShapedArray) -> Sharding:
    """Return the sharding of random keys, given the sharding of their integer arrays. Return other shardings unchanged."""
    if (
        not isinstance(sharding, NamedSharding)
        or not is_key(aval)
        or len(sharding.spec) <= aval.ndim
    ):
        return sharding
    return sharding.with_spec(sharding.spec.partitions[: aval.ndim])


def _public_sharding(memory: Sharding, spec: PartitionSpec | None) -> Sharding:
    """Return the public sharding of a result that is stored with sharding `memory`: the dim of terms is replaced by unreduced axes."""
    if spec is None or not isinstance(memory, NamedSharding):
        return memory
    return memory.with_spec(spec.update(memory.spec.partitions[bool(spec.unreduced) :]))


def _reported_shardings(
    jaxpr: Jaxpr, in_specs: Sequence[ArraySpec], here: Sharding
) -> list[Sharding]:
    """Return the shardings to report for the results of a program on one device, where all shardings are equivalent.

    Without a NamedSharding among committed inputs and constraints it is `here`. Otherwise shardings propagate through constraints and
    elementwise operations, and other results are replicated over the mesh.
    """
    committed = [
        s.sharding for s in in_specs if s.committed and isinstance(s.sharding, NamedSharding)
    ]
    inside = [s for s in constraint_shardings(jaxpr) if isinstance(s, NamedSharding)]
    mesh = next((s.mesh for s in (*committed, *inside)), None)
    if mesh is None:
        return [here] * len(jaxpr.outvars)
    names: dict[Var, Sharding] = {
        v: s.sharding
        for v, s in zip(jaxpr.invars, in_specs)
        if isinstance(s.sharding, NamedSharding)
    }
    for eqn in jaxpr.eqns:
        if isinstance(eqn.primitive, ConstraintOp):
            names[eqn.outvars[0]] = eqn.params.get("sharding", here)
        elif isinstance(eqn.primitive, ElementwiseOp):
            same = [
                names[v]
                for v in eqn.invars
                if v in names and v.aval.shape == eqn.outvars[0].aval.shape
            ]
            names.update(zip(eqn.outvars, same))
    whole = NamedSharding(mesh, PartitionSpec())
    return [
        sharding if isinstance(sharding := names.get(v, whole), NamedSharding) else whole
        for v in jaxpr.outvars
    ]


class _Timer:
    """A callable that runs one stage: it measures its time, and checks and dumps its result if the settings say so."""

    def __init__(self, stages: Stages):
        self.stages = stages
        self.number = len(stages.seconds)

    def __call__(self, title: str, run: Callable[..., T], *args: Any) -> T:
        start = time.perf_counter()
        with paused:
            result = run(*args)
        self.stages.seconds[title] = time.perf_counter() - start
        if config.check and config.checks.types and isinstance(result, Jaxpr):
            from weft._engine.ir import check

            check.check_jaxpr(result)
        if config.dump:
            from weft._engine.ir import stage_dump

            stage_dump.write(config.dump, self.stages.name, self.number, title, result)
        self.number += 1
        return result
