"""Memory of one device: the buffers of a partitioned program, as they are assigned before code is generated.

In:   a partitioned program and the arguments whose memory results take.
Out:  most bytes that a device holds: arguments, results that are no arguments' memory, constants, temporaries.
How:  the program is scheduled for planned devices, one in each process, so that nothing is shared between devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from weft._engine.backends.array_spec import ArraySpec
from weft._engine.backends.base import BlockLayout, LocalProgram
from weft._engine.backends.planned_devices import PlannedProgram, planned_devices
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.program_mesh import sharding_of_spec
from weft._engine.ir.specs import Spec
from weft._engine.partition.partition import PartitionResult
from weft._engine.partition.reshard import local_shape


def device_peak(result: PartitionResult, donated: Collection[int]) -> int:
    """Return the most bytes that a device holds while it runs a partitioned program."""
    assert result.program is not None  # partitioned programs have it
    names, sizes = zip(*result.axes)
    devices = planned_devices(math.prod(sizes))
    mesh = Mesh(np.array(devices, object).reshape(sizes), names)
    program = result.program
    ins = tuple(_block(v.aval, spec, mesh) for v, spec in zip(program.invars, result.in_specs))
    outs = tuple(_block(a.aval, spec, mesh) for a, spec in zip(program.outvars, result.out_specs))
    local = LocalProgram(
        "plan",
        simplify(result.jaxpr),
        result.axes,
        ins,
        outs,
        tuple(sorted(donated)),
        tuple(d.id for d in devices),
        np.arange(len(devices)).reshape(sizes),
    )
    backend = devices[0].client
    loaded = PlannedProgram(local, backend.lower(local, _run))
    live_bytes = [_local_bytes(x, mesh) for x in ins]
    live_bytes += [_local_bytes(x, mesh) for i, x in enumerate(outs) if i not in loaded.aliases]
    return sum(live_bytes) + loaded.constant_bytes + loaded.temporary_bytes


def measured_peak(result: PartitionResult, ties: Mapping[int, int]) -> int:
    """Return the most bytes of a device, for results that replace arguments as `ties` says."""
    return device_peak(result, ties.values())


def _run(title: str, run: Callable[..., Any], *args: Any) -> Any:
    return run(*args)


def _block(aval: Any, spec: Spec, mesh: Mesh) -> BlockLayout:
    return BlockLayout(ArraySpec(aval, sharding_of_spec(spec, mesh), True), spec)


def _local_bytes(block: BlockLayout, mesh: Mesh) -> int:
    aval = block.spec.aval
    return math.prod(local_shape(aval.shape, block.dims, dict(mesh.shape))) * aval.dtype.itemsize
