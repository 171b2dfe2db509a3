"""The reference backend: every device runs its program on NumPy, in lockstep with the others.

In:   a local program.
Out:  a program that evaluates the `reference` rule of each operation, and collectives by their specs. It uses neither the compiler nor
      memory shared between devices: it is the oracle for other backends. Everything up to the local program is the same for all backends,
      so that a difference shows which stage is at fault.
Laws: a buffer has a NumPy array for each distinct shard, by its position in the grid of shards. It is slow and simple.
Next: `lockstep` runs the programs; docs/adding-a-backend.md builds on this one.

`WEFT_BACKEND=reference` selects it for everything, `jit(..., backend="reference")` for one function.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._engine.backends.array_spec import ArraySpec, from_blocks, to_blocks
from weft._engine.backends.base import Backend, LoadedLocalProgram, LocalProgram, Stage
from weft._engine.backends.lockstep import Lockstep

Shards = dict[tuple[int, ...], np.ndarray]


class ReferenceBackend(Backend):
    """Virtual devices with separate memories that compute with NumPy."""

    platform = "reference"

    def string_backend(self) -> Backend:
        from weft._engine.backends.string_arrays import string_backend_for

        return string_backend_for(self)

    def put(self, value: np.ndarray, spec: ArraySpec, copy: bool = True) -> Shards:
        blocks = to_blocks(value, spec)
        return {at: np.array(blocks[at]) for at in np.ndindex(*spec.splits)}

    def get(self, buffer: Shards, spec: ArraySpec) -> np.ndarray:
        blocks = np.stack([buffer[at] for at in np.ndindex(*spec.splits)]).reshape(
            spec.storage_shape
        )
        return from_blocks(blocks, spec).reshape(spec.global_shape)

    def same_memory(self, have: ArraySpec, want: ArraySpec) -> bool:
        return have.splits == want.splits

    def compile(self, program: LocalProgram, lowered: None, stage: Stage) -> ReferenceProgram:
        return ReferenceProgram(program)


class ReferenceProgram(LoadedLocalProgram):
    """A program that runs on NumPy on every device."""

    def __init__(self, program: LocalProgram):
        self.program = program
        self.devices = Lockstep(program.mesh)

    def run(self, buffers: list[Shards]) -> list[Shards]:
        """Return the results for these arguments."""
        program, devices = self.program, self.devices
        operands = [
            devices.distribute_argument(x, buffer) for x, buffer in zip(program.ins, buffers)
        ]
        results = devices.run(program.jaxpr, operands)
        return [devices.collect_result(x, values) for x, values in zip(program.outs, results)]


def run_on_devices(program: LocalProgram, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the results of a local program for NumPy arguments, run on all devices in lockstep."""
    backend = ReferenceBackend()
    specs = [[x.spec.stored for x in some] for some in (program.ins, program.outs)]
    shards = ReferenceProgram(program).run(
        [backend.put(x, spec) for x, spec in zip(args, specs[0])]
    )
    return [np.array(backend.get(x, spec)) for x, spec in zip(shards, specs[1])]
