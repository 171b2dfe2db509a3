"""The program of one device as XLA operations, with the compiler's kernels as fusions.

In:   a simplified local program with its collectives, and the axes of the mesh that it runs on.
Out:  a module whose `fusion` operations contain the equations of each kernel: from arrays in memory
      to the arrays that the kernel stores.
Laws: `compiler.fusion` decides which equations share a kernel, also in bodies of loops and
      branches. A view of an array in memory is written at its reader. On the CPU the devices of a
      mesh share kernels that have a dim for each axis; the text shows the kernels of one device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from weft._engine.compiler.fusion.classify import LoweringKind, lowering_kind
from weft._engine.compiler.fusion.fuse import Fusion
from weft._engine.compiler.fusion.groups import KernelGroup
from weft._engine.compiler.rewrite.decompose import expand
from weft._engine.hlo.lowering import HloLowering
from weft._engine.hlo.ops import HloBlock, HloOp, HloValue, array_type
from weft._engine.hlo.text.computation import FUNCTIONS, StoredValue, captured_values
from weft._engine.hlo.text.hlo_text import module_text
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var


def fused_module(stages: Any) -> HloLowering:
    """Return the program of one device of `pipeline.Stages` as a module."""
    module = _FusedLowering(
        stages.name, stages.partition.axes if stages.partition is not None else ()
    )
    module.function(
        expand(stages.local if stages.local is not None else stages.simplified), "main", public=True
    )
    return module


def compiled_text(executable: Any, keep_unused: bool = False) -> str:
    """Return the program of one device of a `runtime.Executable` as HLO text.

    The text is the backend's if it has one. Otherwise unread arguments are omitted, unless
    `keep_unused`.
    """
    optimized = executable.loaded.text()
    if optimized is not None:
        return optimized
    module = fused_module(executable.stages)
    main = module.functions["main"].body
    read = {x for op in main.ops for x in (*op.operands, *captured_values(op.regions, ()))}.union(
        main.results
    )
    used = [keep_unused or x in read for x in main.args]
    numbers = np.cumsum(used) - 1
    main.args = [x for x, keep in zip(main.args, used) if keep]
    _show_orders(
        main,
        [s.order for s, keep in zip(executable.in_specs, used) if keep],
        [s.order for s in executable.out_specs],
    )
    shared = {result: int(numbers[arg]) for result, arg in executable.aliases.items() if used[arg]}
    devices = math.prod(n for _, n in module.mesh.shape_tuple) if module.mesh is not None else 1
    return module_text(
        module, executable.name.rstrip(")"), devices, shared, facts="is_scheduled=true"
    )


def _show_orders(
    main: HloBlock, ins: Sequence[tuple[int, ...] | None], outs: Sequence[tuple[int, ...] | None]
) -> None:
    """Give arguments and results with a dim order the user's types.

    The program reads and writes views of them.
    """

    def viewed(x: HloValue, order: tuple[int, ...]) -> HloValue:
        order = (*order, *range(len(order), x.ndim))
        place = sorted(range(x.ndim), key=order.__getitem__)
        return StoredValue(array_type([x.shape[d] for d in place], x.dtype), order)

    bitcast = lambda x, y: HloOp("bitcast", (x,), (y,), {}, (), None)
    for i, order in enumerate(ins):
        if order is not None:
            inner, main.args[i] = main.args[i], viewed(main.args[i], order)
            main.ops.insert(0, bitcast(main.args[i], inner))
    for i, order in enumerate(outs):
        if order is not None:
            main.results[i], inner = viewed(main.results[i], order), main.results[i]
            main.ops.append(bitcast(inner, main.results[i]))


class _FusedLowering(HloLowering):
    """A module that is written kernel by kernel."""

    def __init__(self, name: str, axes: Sequence[tuple[Any, int]]):
        super().__init__(name, FUNCTIONS)
        self.path = f"{name}/"
        self.mesh = SimpleNamespace(shape_tuple=tuple(axes)) if axes else None
        self.in_kernel = False

    def inline(self, b: HloBlock, jaxpr: Jaxpr, args: Sequence[HloValue]) -> list[HloValue]:
        if self.in_kernel:
            return super().inline(b, jaxpr, args)
        graph, env = Fusion(jaxpr), self.bind_arguments(b, jaxpr, args)
        for item in graph.items:
            if not isinstance(item, Eqn):
                self._kernel(b, graph, item, env)
                continue
            views, leaves = graph.producers_and_leaves(item.invars, env.__contains__)
            # a contraction reads views by their strides
            if views and lowering_kind(item) is LoweringKind.CONTRACT:
                self._fusion(b, [*views, item], leaves, item.outvars, "kOutput", env)
            else:
                self._write(b, [*views, item], env)
        self._write(b, graph.producers_and_leaves(jaxpr.outvars, env.__contains__)[0], env)
        return [self.read(b, a, env) for a in jaxpr.outvars]

    def _write(self, b: HloBlock, eqns: Sequence[Eqn], env: dict) -> None:
        for eqn in eqns:
            self.write(b, eqn, env)

    def _kernel(self, b: HloBlock, graph: Fusion, group: KernelGroup, env: dict) -> None:
        """Write the equations of a kernel; a single equation is written without a fusion."""
        roots = [v for v in group.roots if v in graph.stored]
        own = {*roots, *(group.dot.outvars if group.dot is not None else ())}
        eqns, leaves = graph.producers_and_leaves(
            roots,
            lambda v: v not in own and (graph.loads(v, group.depth) or v in env),
            group.dot,
        )
        self._write(b, graph.producers_and_leaves(leaves, env.__contains__)[0], env)
        reduces = any(lowering_kind(eqn) is LoweringKind.REDUCE for eqn in eqns)
        self._fusion(
            b,
            eqns,
            leaves,
            roots,
            "kOutput" if group.dot is not None else "kInput" if reduces else "kLoop",
            env,
        )

    def _fusion(
        self,
        b: HloBlock,
        eqns: Sequence[Eqn],
        leaves: Sequence[Var],
        roots: Sequence[Var],
        kind: str,
        env: dict,
    ) -> None:
        """Write the equations of one kernel as a fusion."""

        def fill(r: HloBlock, *args: HloValue) -> list[HloValue]:
            inner = dict(zip(leaves, args))
            self._write(r, eqns, inner)
            return [inner[v] for v in roots]

        self.in_kernel = True
        if len(eqns) == 1:
            self._write(b, eqns, env)
        else:
            region = b.region([env[v].type for v in leaves], fill)
            last = next(eqn for eqn in reversed(eqns) if roots[-1] in eqn.outvars)
            outer = self.place, self.metadata
            self.place, self.metadata = (
                self.place_of(last),
                last.source.metadata if last.source is not None else (),
            )
            outputs = b.emit(
                "fusion",
                [env[v] for v in leaves],
                [x.type for x in region.results],
                [region],
                kind=kind,
                label=last.primitive.name.replace("-", "_"),
            )
            self.place, self.metadata = outer
            env.update(zip(roots, outputs))
        self.in_kernel = False
