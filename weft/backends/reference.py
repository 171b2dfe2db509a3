"""The reference backend: every device runs its own program on NumPy, in step with the others.

In:   a local program.
Out:  a program that computes by the `reference` rule of each operation and carries out collectives by their records. Nothing of the
      compiler, and no memory that devices share, is behind it: it is the oracle for other backends, and shows which stage is at fault,
      since everything up to the local program is the same.
Laws: a buffer is a grid of NumPy arrays, one for each distinct shard. Slow and simple.
Next: `lockstep` runs the programs; docs/adding-a-backend.md builds on this one.

`WEFT_BACKEND=reference` runs everything on it, `jit(..., backend="reference")` one function.
"""

from __future__ import annotations

import numpy as np

from weft.backends.base import Backend, BlockLayout, Loaded, LocalProgram, Stage
from weft.backends.lockstep import Lockstep, Values
from weft.core.trace import eval_trace, set_trace
from weft.ir.array_spec import ArraySpec, from_blocks, to_blocks


class ReferenceBackend(Backend):
    """Virtual devices, each with a memory of its own, that compute with NumPy."""
    platform = "reference"

    def put(self, value: np.ndarray, spec: ArraySpec, copy: bool = True) -> np.ndarray:
        blocks = to_blocks(value, spec)
        return _grid(spec, {at: np.array(blocks[at]) for at in np.ndindex(*spec.splits)})

    def get(self, buffer: np.ndarray, spec: ArraySpec) -> np.ndarray:
        blocks = np.stack(list(buffer.flat)).reshape(spec.storage_shape)
        return from_blocks(blocks, spec).reshape(spec.global_shape)

    def same_memory(self, have: ArraySpec, want: ArraySpec) -> bool:
        return have.splits == want.splits

    def compile(self, program: LocalProgram, lowered: None, stage: Stage) -> ReferenceProgram:
        return ReferenceProgram(program)


def _grid(spec: ArraySpec, shards: dict[tuple[int, ...], np.ndarray]) -> np.ndarray:
    """A buffer from shards by their position."""
    grid = np.empty(spec.splits, object)
    for at, shard in shards.items():
        grid[at] = shard
    return grid


class ReferenceProgram(Loaded):
    """A program that NumPy runs on every device."""

    def __init__(self, program: LocalProgram):
        self.program = program
        self.machine = Lockstep(program.mesh)

    def run(self, buffers: list[np.ndarray]) -> list[np.ndarray]:
        """The results for these arguments."""
        program = self.program
        operands = [[buffer[at] for at in self._positions(x)] for buffer, x in zip(buffers, program.ins)]
        with set_trace(eval_trace):
            outs = self.machine.run(program.jaxpr, operands)
        return [self._result(x, values) for x, values in zip(program.outs, outs)]

    def _positions(self, x: BlockLayout) -> list[tuple[int, ...]]:
        """Which shard each device holds, by its position in the grid."""
        rest = (0,) * (len(x.spec.splits) - len(x.dims))
        return [tuple(self.machine.position(member, axes) for axes in x.dims) + rest for member in self.machine.members]

    def _result(self, x: BlockLayout, values: Values) -> np.ndarray:
        if x.blocks is not None:                        # every device has all of it
            return _grid(x.spec, {at: to_blocks(values[0], x.spec)[at] for at in np.ndindex(*x.spec.splits)})
        return _grid(x.spec, dict(zip(self._positions(x), values)))
