"""The program of one device as a StableHLO module that PJRT plugins compile.

In:   a local program, whose collectives name axes of its mesh.
Out:  a module in the form of replicas: each position of the mesh, in row-major order, is a replica,
      and groups of collectives are groups of replicas. The main function takes all arguments of the
      program in order.
Laws: equal programs give equal texts, but for the numbers of host calls. A donated argument names the result that takes its memory
      (`tf.aliasing_output`), or leaves the choice among results of equal size to the plugin
      (`jax.buffer_donor`). No other argument may be overwritten: its array is kept.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

from weft._engine.hlo.host_call_meetings import mark_meetings
from weft._engine.hlo.ops import HloBlock, HloValue, array_type
from weft._engine.hlo.replicas import HostNumber, ReplicaLowering
from weft._engine.hlo.rules import beta_functions, plugins  # noqa: F401  (fill the tables of rules)
from weft._engine.hlo.text.stablehlo import module_text, quote
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.types import ShapedArray

#: the default memory space of arrays on a device
_DEFAULT_MEMORY = "device"


class DeviceProgram(Protocol):
    """A program of one device: a `LocalProgram` of the backends."""

    @property
    def name(self) -> str: ...

    @property
    def jaxpr(self) -> Jaxpr: ...

    @property
    def mesh(self) -> tuple[tuple[Any, int], ...]: ...

    @property
    def ins(self) -> tuple[Any, ...]: ...

    @property
    def outs(self) -> tuple[Any, ...]: ...

    @property
    def donated(self) -> tuple[int, ...]: ...


def replica_program_text(
    program: DeviceProgram, host: HostNumber | None = None, platform: str = ""
) -> str:
    """Return `program` as a StableHLO module of replicas.

    `platform` names the plugin's platform, as `cuda` or `tpu`; without it, the module has only
    operations that all platforms have.

    `host(eqn)` returns a number, by which a custom call has the host compute `eqn` by its
    `reference`: a callback, `eig` or `schur`. Callbacks have another operand and another result
    before the others, the position of the device, a scalar uint32. Without `host` such equations
    are refused.

    Raises NotImplementedError, which names the primitive and the user's line, for an equation that
    has no form on a plugin.
    """
    lowering = ReplicaLowering(program.name, program.mesh, host, platform)
    differing = [frozenset([name for dim in x.dims for name in dim]) for x in program.ins]
    jaxpr = mark_meetings(program.jaxpr, program.mesh, differing)
    kinds = [[_memory_kind(x) for x in blocks] for blocks in (program.ins, program.outs)]

    def fill(b: HloBlock, *args: HloValue) -> list[HloValue]:
        placed = [
            _move_to_memory(b, x, kind and _DEFAULT_MEMORY) for x, kind in zip(args, kinds[0])
        ]
        results = lowering.inline(b, jaxpr, placed)
        return [_move_to_memory(b, x, kind) for x, kind in zip(results, kinds[1])]

    types = [array_type(a.shape, a.dtype) for a in jaxpr.in_avals]
    main = lowering.add_function("main", types, fill, public=True)
    attributes = [
        [{"mhlo.memory_kind": quote(kind)} if kind else {} for kind in side] for side in kinds
    ]
    main.arg_attrs, main.result_attrs = attributes
    for i, result in donations(program).items():
        main.arg_attrs[i].update(_donation(result))
    replicas = math.prod(size for _, size in program.mesh)
    module_attributes = {"mhlo.num_partitions": "1 : i32", "mhlo.num_replicas": f"{replicas} : i32"}
    return module_text(program.name.rstrip(")"), module_attributes, lowering)


def _donation(result: int | None) -> dict[str, str]:
    """Return the attributes of an argument whose memory `result` takes; None leaves the choice open."""
    if result is None:
        return {"jax.buffer_donor": "true"}
    return {"tf.aliasing_output": f"{result} : i32"}


def _memory_kind(block: Any) -> str:
    """Return the memory of an argument or a result; an empty text is the default memory."""
    kind = block.spec.sharding.memory_kind
    return "" if kind in (None, _DEFAULT_MEMORY) else kind


def _move_to_memory(b: HloBlock, x: HloValue, kind: str) -> HloValue:
    """Return `x` in another memory; itself without a `kind`."""
    if not kind:
        return x
    call = {"target": "annotate_device_placement", "backend_config": {}, "has_side_effect": True}
    placed = b.op("custom_call", x, **call)
    b.tag(placed, (("_xla_buffer_placement", kind),))
    return placed


def donations(program: DeviceProgram) -> dict[int, int | None]:
    """Return the donated arguments whose memory results take, with the result of each.

    It is the first free result of equal type, splits and memory kind. None stands for a result of
    equal size that has another type. Donated arguments without either are kept.
    """
    free = [k for k, x in enumerate(program.outs) if x.blocks is None]
    donated_results: dict[int, int | None] = {}
    for form in (_exact_form, _size):
        results = {k: form(program.outs[k], program.jaxpr.outvars[k].aval) for k in free}
        for i in program.donated:
            argument_form = form(program.ins[i], program.jaxpr.invars[i].aval)
            result = next((k for k in free if results[k] == argument_form), None)
            if i not in donated_results and result is not None:
                free.remove(result)
                donated_results[i] = result if form is _exact_form else None
    return donated_results


def _exact_form(block: Any, aval: ShapedArray) -> tuple:
    return aval.shape, aval.dtype, tuple(block.spec.splits), block.spec.sharding.memory_kind


def _size(block: Any, aval: ShapedArray) -> tuple:
    spec = block.spec
    return aval.size, spec.storage_dtype.itemsize, math.prod(spec.splits), spec.sharding.memory_kind
