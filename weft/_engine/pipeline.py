"""The whole compiler on one screen: trace → simplify → propagate → partition → simplify → compile by a backend.

In:   a request: a Jaxpr (made by `core.stage`), how its inputs and outputs are laid out over devices, and a backend.
Out:  an `Executable` that runs the program on all these devices.

A program for many devices becomes the program of one (`partition`), with explicit collectives. What becomes of that is the business of
the backend (`backends`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.backends.array_spec import ArraySpec, from_blocks, on_backend, to_blocks
from weft._engine.backends.base import (
    Backend,
    BlockLayout,
    LoadedElsewhere,
    LocalProgram,
    is_elsewhere,
)
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.ir.jaxpr import Jaxpr, Var
from weft._engine.ir.program_mesh import constraint_shardings, has_shard_map
from weft._engine.ir.shardings import NamedSharding, Sharding, SingleDeviceSharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ir.types import ShapedArray
from weft._engine.runtime.executable import Executable
from weft._engine.runtime.placement import fits
from weft._engine.transforms.erase import erase
from weft._engine.transforms.physical import is_key, physicalize
from weft._engine.util.config import config
from weft._engine.util.events import report
from weft._engine.util.record import field, record, replace
from weft._engine.util.user_code import paused

if TYPE_CHECKING:
    from weft._engine.partition.partition import PartitionResult


@record
class Request:
    """What is to be compiled: a program without constants, for inputs laid out as `in_specs` say, on the devices `assignment`, whose
    layouts may be named by other devices than those of the backend: its devices have the same ids.

    Outputs without a sharding get the one that propagation finds. On a mesh with explicit axes, outputs without a sharding in their types
    keep these axes; with a mesh in context (`in_context`), such axes of theirs are automatic. Uncommitted inputs may be moved; committed
    ones are read where they are.
    """

    jaxpr: Jaxpr
    in_specs: Sequence[ArraySpec]
    out_shardings: Sequence[Sharding | None]
    donated: Sequence[int]
    name: str
    assignment: tuple
    in_context: bool
    backend: Backend


@record(frozen=False)
class Stages:
    """The program at every stage of one compilation; `partition` has the collectives, `lowered` the backend's own stages."""

    name: str
    traced: Jaxpr
    physical: Jaxpr | None = None  # as traced, on the memory of arguments and results
    simplified: Jaxpr | None = None
    local: Jaxpr | None = None
    partition: PartitionResult | None = None
    program: LocalProgram | None = None
    lowered: Any = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def collectives(self) -> list:
        return list(self.partition.records) if self.partition is not None else []

    def run_local(self, jaxpr: Jaxpr, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the values that `jaxpr`, in the place of the program of one device, gives for values, on NumPy."""
        from weft._engine.backends.reference import run_on_devices  # what checks alone need

        assert self.program is not None
        return run_on_devices(replace(self.program, jaxpr=jaxpr), args)

    def to_memory(self, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the memory of arguments: the grids of their shards."""
        assert self.program is not None
        return [
            np.ascontiguousarray(to_blocks(x, block.spec.stored))
            for x, block in zip(args, self.program.ins)
        ]

    def from_memory(self, memory: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the values of results, of the grids of their shards."""
        assert self.program is not None
        specs = [block.spec.stored for block in self.program.outs]
        return [
            from_blocks(x.reshape(s.storage_shape), s).reshape(s.global_shape)
            for x, s in zip(memory, specs)
        ]

    @property
    def scheduled(self) -> Any:
        """The kernels and steps of the program, if the backend has such."""
        return getattr(self.lowered, "scheduled", None)


def compile_request(request: Request) -> Executable:
    """Compile a program."""
    start = time.perf_counter()
    stages, program = lower(request)
    report(
        "compilation",
        config.log_compiles,
        "Finished lowering %s in %.9f sec",
        request.name,
        time.perf_counter() - start,
    )
    specs = [[x.spec for x in some] for some in (program.ins, program.outs)]
    if is_elsewhere(request.assignment):
        loaded = LoadedElsewhere(specs[1])
    else:
        loaded = request.backend.compile(program, stages.lowered, _Timer(stages))
    stages.seconds["total"] = time.perf_counter() - start
    executable = Executable(
        request.name, loaded, *specs, request.donated, len(stages.collectives), stages
    )
    if config.dump:
        from weft._engine.hlo.fused import compiled_text
        from weft._engine.hlo.hlo_text import lowered_text
        from weft._engine.ir import dump

        dump.write_module(
            config.dump,
            request.name,
            "before",
            lowered_text(stages.traced, dump.module_name(request.name)[4:]),
        )
        dump.write_module(
            config.dump, request.name, "after", compiled_text(executable, keep_unused=True)
        )
    return executable


def lower(request: Request) -> tuple[Stages, LocalProgram]:
    """All stages before code is generated, and the program of one device."""
    jaxpr, in_specs, assignment, backend = (
        request.jaxpr,
        request.in_specs,
        request.assignment,
        request.backend,
    )
    stages = Stages(request.name, jaxpr)
    timer = _Timer(stages)
    if "debug_check" in jaxpr.effects:
        from weft._engine.control.checks import without_checks

        jaxpr = without_checks(jaxpr, frozenset(["debug_check"]))
    program, wanted = erase(jaxpr), [*request.out_shardings]
    public = [_partial_spec(s, a) for s, a in zip(wanted, jaxpr.out_avals)]
    if any(s.stored is not s for s in in_specs) or any(
        spec is not None and spec.unreduced for spec in public
    ):
        from weft._engine.transforms.terms import on_memory

        outs = [
            s if s is not None or spec is None or not spec.unreduced else a.explicit
            for s, spec, a in zip(wanted, public, jaxpr.out_avals)
        ]
        program = timer(
            "terms",
            on_memory,
            program,
            [s.stored.aval for s in in_specs],
            [s.sharding for s in in_specs],
            outs,
        )
    program = stages.physical = timer("physicalize", physicalize, program)
    program = stages.simplified = timer("simplify", simplify, program)
    if len(assignment) > 1 or has_shard_map(program):
        from weft._engine.partition import partition

        result = stages.partition = timer(
            "partition",
            partition.partition_for,
            program,
            [s.stored for s in in_specs],
            [s and s.stored for s in wanted],
            assignment,
            request.in_context,
            backend.cost_model,
        )
        for callback, sharding in result.layout_callbacks:
            callback(on_backend(sharding, backend))
        program = stages.local = timer("simplify local", simplify, result.jaxpr)
        logical = [_of_keys(s, a) for s, a in zip(result.out_shardings, jaxpr.out_avals)]
        shardings = [
            _in_public(s, spec) if want is None else want
            for want, s, spec in zip(wanted, logical, public)
        ]
        mesh, dims = result.axes, (result.in_specs, result.out_specs)
        owners = result.owners
        blocks = (*result.out_blocks, *[None] * (len(jaxpr.outvars) - len(result.out_blocks)))
        in_specs = [
            ArraySpec(
                s.aval,
                on_backend(
                    s.sharding if s.sharding.settled is not s.sharding else sharding, backend
                ),
                s.committed,
            )
            for s, sharding in zip(
                in_specs, [_of_keys(s, x.aval) for s, x in zip(result.in_shardings, in_specs)]
            )
        ]
    else:
        here = on_backend(SingleDeviceSharding(assignment[0]), backend)
        if "inspect" in program.effects:
            from weft._engine.compiler.rewrite.inspection import without_inspections

            program, callbacks = without_inspections(program)
            for callback in callbacks:
                callback(here)
            program = timer("simplify without inspections", simplify, program)
        shardings = [
            on_backend(named, backend) if want is None else want
            for want, named in zip(
                request.out_shardings, _names_on_one_device(jaxpr, in_specs, here)
            )
        ]
        mesh, owners, dims = (), None, ([()] * len(in_specs), [()] * len(shardings))
        blocks = (None,) * len(shardings)
        placed = [ArraySpec(s.aval, here, s.committed) for s in in_specs]
        in_specs = [s if fits(s, p) or s.stored is not s else p for s, p in zip(in_specs, placed)]
    committed = (
        len(assignment) > 1
        or any(s.committed for s in in_specs)
        or any(s is not None for s in request.out_shardings)
        or (any(isinstance(s, NamedSharding) for s in shardings))
    )
    out_specs = [
        ArraySpec(a, on_backend(s, backend), committed) for a, s in zip(jaxpr.out_avals, shardings)
    ]
    local = LocalProgram(
        request.name,
        program,
        mesh,
        tuple(map(BlockLayout, in_specs, dims[0])),
        tuple(map(BlockLayout, out_specs, dims[1], blocks)),
        tuple(request.donated),
        tuple([device.id for device in assignment]),
        owners,
    )
    stages.program = local
    if stages.partition is not None:
        from weft._engine.partition.shard_check import check_memory

        check_memory(
            program,
            [
                (
                    x.spec.local_shape if x.blocks is None else x.spec.global_shape,
                    x.spec.storage_dtype,
                )
                for x in local.outs
            ],
        )
    stages.lowered = backend.lower(local, timer)
    return stages, local


def _partial_spec(sharding: Sharding | None, aval: ShapedArray) -> PartitionSpec | None:
    """The spec of a result that has unreduced or reduced axes."""
    found = aval.explicit if sharding is None else sharding
    return found.spec if isinstance(found, NamedSharding) and found.spec.is_partial else None


def _of_keys(sharding: Sharding, aval: ShapedArray) -> Sharding:
    """The sharding of keys from the sharding of their rows in memory; other shardings are returned unchanged."""
    if (
        not isinstance(sharding, NamedSharding)
        or not is_key(aval)
        or len(sharding.spec) <= aval.ndim
    ):
        return sharding
    return sharding.with_spec(sharding.spec.partitions[: aval.ndim])


def _in_public(memory: Sharding, spec: PartitionSpec | None) -> Sharding:
    """What the user sees of a result whose memory lies as `memory`: unreduced axes do not split a dim."""
    if spec is None or not isinstance(memory, NamedSharding):
        return memory
    return memory.with_spec(spec.update(memory.spec.partitions[bool(spec.unreduced) :]))


def _names_on_one_device(
    jaxpr: Jaxpr, in_specs: Sequence[ArraySpec], here: Sharding
) -> list[Sharding]:
    """How the results of a program of one device are called: by the mesh of that device if an input or a constraint names one. All
    layouts are one there, so a result keeps the name that came through elementwise operations, and else is called replicated."""
    given = [s.sharding for s in in_specs if s.committed and isinstance(s.sharding, NamedSharding)]
    inside = [s for s in constraint_shardings(jaxpr) if isinstance(s, NamedSharding)]
    mesh = next((s.mesh for s in (*given, *inside)), None)
    if mesh is None:
        return [here] * len(jaxpr.outvars)
    names: dict[Var, Sharding] = {
        v: s.sharding
        for v, s in zip(jaxpr.invars, in_specs)
        if isinstance(s.sharding, NamedSharding)
    }
    for eqn in jaxpr.eqns:
        if eqn.primitive.kind == "constraint":
            names[eqn.outvars[0]] = eqn.params.get("sharding", here)
        elif eqn.primitive.kind == "elementwise":
            same = [
                names[v]
                for v in eqn.invars
                if v in names and v.aval.shape == eqn.outvars[0].aval.shape
            ]
            names.update(zip(eqn.outvars, same))
    whole = NamedSharding(mesh, PartitionSpec())
    return [
        found if isinstance(found := names.get(v, whole), NamedSharding) else whole
        for v in jaxpr.outvars
    ]


class _Timer:
    """Runs one stage after another: measures, verifies and dumps between them."""

    def __init__(self, stages: Stages):
        self.stages = stages
        self.number = len(stages.seconds)

    def __call__(self, title: str, run, *args):
        start = time.perf_counter()
        with paused:
            result = run(*args)
        self.stages.seconds[title] = time.perf_counter() - start
        if config.check and config.checks.types and isinstance(result, Jaxpr):
            from weft._engine.ir import check

            check.check_jaxpr(result)
        if config.dump:
            from weft._engine.ir import dump

            dump.write(config.dump, self.stages.name, self.number, title, result)
        self.number += 1
        return result
