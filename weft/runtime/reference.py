"""The reference engine: runs stacked programs on NumPy, operation by operation, by each primitive's `reference` rule.

Slow and simple; `WEFT_ENGINE=numpy` chooses it. It is the oracle that compiled programs are compared with, and it shows which
stage is at fault: everything before fusion is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.core.interpret import run_reference
from weft.core.trace import eval_trace, set_trace
from weft.ir.jaxpr import Jaxpr
from weft.runtime.array import Array, ArraySpec, relaid
from weft.runtime.buffer import Buffer


class ReferenceExecutable:
    """A program that NumPy runs. It has the interface of `Executable` as far as Python uses it."""
    kernel_count = collective_count = 0
    arena_bytes = 0
    aliases: dict[int, int] = {}
    is_long = True

    def __init__(self, program: Jaxpr, in_specs: Sequence[ArraySpec], out_specs: Sequence[ArraySpec], donated: Sequence[int],
                 stages):
        self.program = program
        self.in_specs, self.out_specs = tuple(in_specs), tuple(out_specs)
        self.donated = tuple(donated)
        self.stages, self.name = stages, stages.name
        self.const_inputs: list[Array] = []
        self.consts: list = []
        self.arg_names: Sequence[str] = ()
        self.check: Callable | None = None

    @property
    def peak_bytes(self) -> int:
        return sum(s.nbytes for s in (*self.in_specs, *self.out_specs))

    def __call__(self, args: Sequence[Array]) -> list[Array]:
        blocks = []
        for array, spec, var in zip(args, self.in_specs, self.program.invars):
            if array._spec is not spec and array._spec.splits != spec.splits:
                array = relaid(array, spec.sharding)
            blocks.append(array._storage().reshape(var.aval.shape))
        with set_trace(eval_trace):
            outs = run_reference(self.program, *blocks)
        results = [Array(spec, Buffer.from_numpy(np.array(out).reshape(spec.storage_shape), copy=True))
                   for spec, out in zip(self.out_specs, outs)]
        if self.check is not None:
            self.check(self.stages.name, self.stages.simplified, args, results)
        for i in self.donated:
            args[i].delete()
        return results
