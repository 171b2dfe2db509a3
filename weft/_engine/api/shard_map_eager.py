"""Execution of a shard_map operation by operation, on the blocks of all devices at once.

In:   the user's function, concrete arguments, their specs.
Out:  arrays with the shardings of the result specs.
How:  a value inside is stacked over the manual axes along which it varies, under the batching of `vmap`. On top of that a
      `ManualTrace` gives it its type, with the axes over which it varies, and prints it per device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.api.execute import move_to_layout, to_array
from weft._engine.backends.array_spec import ArraySpec
from weft._engine.control.shard_map import (
    block_aval,
    manual_scope,
    mesh_inside,
    whole_aval,
    whole_sharding,
)
from weft._engine.core.annotations import annotate_types, check_same_axes
from weft._engine.core.extension import ExtensionPrimitive, expand_primitive
from weft._engine.core.interpret import evaluate
from weft._engine.core.primitive import BatchAxis, RegionOp
from weft._engine.core.sharded_types import infer_sharded_types
from weft._engine.core.trace import (
    Trace,
    Tracer,
    current_trace,
    derived_trace,
    eval_trace,
    set_trace,
    trace_state,
    typeof,
)
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ir.types import ShapedArray
from weft._engine.partition.stack import from_storage, mapped_over, to_storage
from weft._engine.runtime.array import Array, default_sharding
from weft._engine.runtime.placement import all_blocks, as_blocks, of_blocks
from weft._engine.transforms.batch import BatchTrace, to_dim
from weft._engine.transforms.erase_varying_axes import erase_params
from weft._engine.util import dtypes, tree
from weft._engine.util.config import config
from weft._engine.util.dispatch_state import guard
from weft._engine.util.errors import describe
from weft._engine.util.source import user_frame


class ManualTracer(Tracer):
    """A value inside an eager shard_map: its type, and the stacked blocks of all devices."""

    __slots__ = ("aval", "value")
    why_no_value = "it may differ from device to device"

    def __init__(self, trace: ManualTrace, aval: ShapedArray, value: Any):
        self.owning_trace = trace
        self.aval = aval
        self.value = value

    def describe(self) -> str:
        return f"a value inside shard_map of type {self.aval.str_short()} (per device)"

    def concrete(self):
        """Return the value if it is the same on all devices, else None."""
        return (
            self.owning_trace.blocks(self.value)[(0,) * len(self.owning_trace.axes)]
            if self.owning_trace.is_same_everywhere(self)
            else None
        )

    def __str__(self) -> str:
        return self.owning_trace.show(self)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


class ManualTrace(Trace):
    """A trace that types values as the body of a shard_map sees them, and computes on stacked blocks."""

    __slots__ = ("axes", "below", "mesh", "tracked")

    def __init__(self, parent: Trace, mesh: Mesh, axes: Sequence[tuple[Any, int]], tracked: bool):
        super().__init__(parent)
        self.mesh, self.axes, self.tracked = mesh, tuple(axes), tracked
        self.below = trace_state.axis_env  # the names in scope, none of them tracked

    def process(self, primitive, args, params):
        avals = [typeof(x) for x in args]
        if any(a.vma for a in avals):
            out_avals, _ = annotate_types(primitive, avals, params)
            if not config.auto_pcast:
                check_same_axes(primitive, [x.aval for x in args if type(x) is ManualTracer])
        else:
            out_avals = primitive.abstract(avals, params)
        if any(a.explicit is not None for a in avals):
            out_avals = infer_sharded_types(primitive, avals, out_avals, params)
        values = [self.value(x) for x in args]
        if (
            isinstance(primitive, ExtensionPrimitive)
            and not out_avals
            and not primitive.effects_of(params, avals)
        ):
            return []  # it has neither results nor effects, and needs no lowering
        outs = values if primitive.casts else self.compute(primitive, values, params)
        tracers = [ManualTracer(self, aval, out) for aval, out in zip(out_avals, outs)]
        return tracers if primitive.multiple_results else tracers[0]

    def compute(self, primitive, values: Sequence, params: dict) -> list:
        """Return the results on stacked values, whose types do not mention manual axes."""
        if isinstance(primitive, RegionOp):
            params = erase_params(params)
        saved, trace_state.axis_env = trace_state.axis_env, self.below
        try:
            # types of blocks were checked; stacked values have other types
            with derived_trace(self.parent):
                if isinstance(primitive, ExtensionPrimitive):  # evaluate its expansion per device
                    return evaluate(
                        expand_primitive(primitive, [typeof(x) for x in values], params), *values
                    )
                out = self.parent.process(primitive, values, params)
        finally:
            trace_state.axis_env = saved
        return list(out) if primitive.multiple_results else [out]

    def value(self, x: Any) -> Any:
        """Return the representation of `x` for computing: stacked values, or a constant on the default device."""
        if type(x) is ManualTracer and x.owning_trace is self:
            return x.value
        if type(x) is Array and x.committed:
            self.check_devices(x)
        if type(x) is Array and len(x.sharding.device_set) > 1:
            return move_to_layout(_fetch_whole_value(x), default_sharding(), committed=False)
        return x

    def check_devices(self, x: Array) -> None:
        """Check that a committed array that the function closes over is on the devices of the mesh, like its arguments."""
        if x.sharding.device_set == set(self.mesh.flat_devices):
            return
        ids = lambda devices: sorted(d.id for d in devices)
        raise ValueError(
            describe(
                "shard_map",
                f"an array inside is not on the devices of the mesh: got device ids {ids(x.sharding.device_set)}.",
                [
                    ("array", x.aval.str_short()),
                    ("mesh devices", f"ids {ids(self.mesh.flat_devices)}"),
                ],
                user_frame(),
                "Inside, every device has its own values; committed arrays are not moved silently.",
                "Leave the device out of device_put, or pass the array as an argument.",
            )
        )

    def blocks(self, value: Any) -> np.ndarray:
        """Return the blocks of all devices: [manual axes..., block dims...]."""
        trace = self.parent
        for name, size in reversed(self.axes):
            assert isinstance(trace, BatchTrace)
            value, dim = trace.split(value)
            with derived_trace(trace.parent):  # stacked values have no mesh
                value = to_dim(value, dim, BatchAxis(size, name), 0)
            trace = trace.parent
        return np.asarray(value)

    def is_same_everywhere(self, tracer: ManualTracer) -> bool:
        """Return whether the type implies that all devices have this value, and its blocks can be read."""
        return (
            self.tracked
            and not tracer.aval.vma
            and not self.finished
            and not dtypes.is_extended(tracer.aval.dtype)
        )

    def show(self, tracer: ManualTracer) -> str:
        """Return the value of each device as text, with the device's coordinates in the mesh."""
        if self.finished or dtypes.is_extended(tracer.aval.dtype):
            return tracer.describe()
        blocks = self.blocks(tracer.value)
        names = self.mesh.axis_names
        whole = self.mesh.devices.ndim
        manual = [i for i, n in enumerate(names) if n in dict(self.axes)]
        label = f"({', '.join(str(names[i]) for i in manual)},)"
        texts = []
        for place in np.ndindex(*(size for _, size in self.axes)):
            at = [0] * whole
            for i, k in zip(manual, place):
                at[i] = k
            device = self.mesh.devices[tuple(at)]
            texts.append(
                f"On {device.older_name} at mesh coordinates {label} = {place}:\n{blocks[place]}\n"
            )
        return "\n".join(texts)


def can_run_eagerly(flat: Sequence, mesh: Mesh) -> bool:
    """Return whether a call on these values can run eagerly: nothing is traced, all have values, and none is a random key."""
    if isinstance(mesh, Mesh) and not mesh.flat_devices[0].client.has_values:
        return False
    return current_trace() is eval_trace and not any(
        isinstance(x, Tracer) or dtypes.is_extended(typeof(x).dtype) for x in flat
    )


def run_eagerly(
    f: Callable,
    flat: Sequence,
    in_tree: Any,
    specs: Sequence[PartitionSpec],
    specs_of_results: Callable,
    params: dict,
) -> tuple[list[Array], Any]:
    """Run `f` on the blocks of `flat`; return its results, assembled by the specs `specs_of_results(outs, tree)`, and their tree."""
    mesh, tracked = params["mesh"], params["check_vma"]
    axes = [(name, size) for name, size in mesh.shape_tuple if name in params["manual_axes"]]
    names, sizes = [n for n, _ in axes], dict(axes)
    arrays = [to_array(x) for x in flat]
    blocks = [_block(x, spec, mesh) for x, spec in zip(arrays, specs)]
    values = [
        from_storage(b, s.dims(x.ndim), names, sizes) for b, s, x in zip(blocks, specs, arrays)
    ]
    result_axes: list[frozenset] = []
    results: list = []

    def run(*stacked):
        trace = ManualTrace(current_trace(), mesh, axes, tracked)
        guard[0] += 1
        try:
            args = [
                ManualTracer(trace, block_aval(x.aval, s, params), v)
                for x, s, v in zip(arrays, specs, stacked)
            ]
            with set_trace(trace), manual_scope(params), mesh_inside(mesh, params["manual_axes"]):
                outs, out_tree = tree.tree_flatten(f(*tree.tree_unflatten(in_tree, args)))
                out_specs = specs_of_results(outs, out_tree)
            results[:] = [out_tree, out_specs, [typeof(o) for o in outs]]
            result_axes[:] = [frozenset(s.axes) for s in out_specs]
            return [trace.value(o) for o in outs]
        finally:
            guard[0] -= 1
            trace.finished = True

    outs = mapped_over(run, axes, [frozenset(s.axes) for s in specs], result_axes)(*values)
    out_tree, out_specs, avals = results
    return [
        _array(o, a, s, mesh, names, sizes) for o, a, s in zip(outs, avals, out_specs)
    ], out_tree


def _block(x: Array, spec: PartitionSpec, mesh: Mesh) -> Array:
    """Return the blocks of `x` under `spec` as one array: [splits..., block dims...]."""
    x, sharding = _fetch_whole_value(x), NamedSharding(mesh, spec)
    return (
        as_blocks(move_to_layout(x, sharding))
        if sharding.is_fully_addressable
        else all_blocks(x, sharding)
    )


def _fetch_whole_value(x: Array) -> Array:
    """Return `x`, or its gathered value as a local array if it spans processes."""
    if x._spec.by_process is None:
        return x
    from weft._engine.runtime.exchange import gather_value

    return to_array(gather_value(x, "shard_map"))


def _array(
    out: Any, aval: ShapedArray, spec: PartitionSpec, mesh: Mesh, names: Sequence, sizes: dict
) -> Array:
    """Return the array with the sharding `spec` from stacked blocks of type `aval`."""
    with derived_trace(eval_trace):  # stacked values have no mesh
        block = to_array(to_storage(out, spec.dims(aval.ndim), names, sizes))
    blocks = aval.update(sharding=None)
    whole = ArraySpec(whole_aval(blocks, spec, mesh, names), NamedSharding(mesh, spec), True)
    array = of_blocks(move_to_layout(block, default_sharding(), committed=False), whole)
    return (
        array if aval.explicit is None else move_to_layout(array, whole_sharding(aval, spec, mesh))
    )
