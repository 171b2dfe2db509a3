"""`device_put`: placing values on devices, or sharding them over several.

In:   a tree of values, and a placement, or a tree of placements that is a prefix of it.
Out:  arrays that share memory with the values if layouts allow it; in programs, constraints on the values.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._engine import processes
from weft._engine.api.execute import move_to_layout, to_array
from weft._engine.api.layouts import as_sharding
from weft._engine.backends.array_spec import ArraySpec
from weft._engine.backends.formats import Format, Layout, order_of
from weft._engine.control.hijax_types import is_value
from weft._engine.core.extension import ExtensionPrimitive
from weft._engine.core.stage import StageTrace, is_staged, record_constant
from weft._engine.core.trace import Tracer, Zero, current_trace, eval_trace, typeof
from weft._engine.hooks import hi_types
from weft._engine.ir.explicit import on_devices, type_sharding
from weft._engine.ir.mesh import Mesh, concrete_mesh, use_default_device
from weft._engine.ir.program_mesh import is_abstract
from weft._engine.ir.shardings import MemorySpace, NamedSharding, Sharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ops.placement import layout_constraint, reshard, sharding_constraint
from weft._engine.runtime import transfer_guards
from weft._engine.runtime.array import Array
from weft._engine.runtime.device import Device
from weft._engine.util import dtypes, tree
from weft._engine.util.errors import ShardingError, describe
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import api_boundary, user_frame


def is_placement(x: Any) -> bool:
    return x is None or isinstance(x, (Sharding, Device, PartitionSpec, Format, MemorySpace))


@api_boundary
def device_put(
    x: Any,
    device: Any = None,
    *,
    src: Any = None,
    donate: Any = False,
    may_alias: bool | None = None,
) -> Any:
    """Put `x` (a tree of arrays) on a device, or shard it; the result is committed if a placement is specified.

    A `Format` also specifies the dim order; otherwise arrays keep theirs.
    `device` may be a tree of devices, shardings, formats and memory spaces that is a prefix of `x`. The result shares memory
    with `x` if layouts allow it, unless `may_alias` is False. With `donate` (a bool, or a tree of them that is a prefix of `x`), `x`
    must not be used again. `src`, the current placement, is accepted and not needed: arrays know their devices.
    Raises ShardingError if a dim is not divisible, ValueError for a tree of devices that does not match, for an invalid placement, and if
    both `may_alias` and `donate` are True.

    >>> weft.device_put(wnp.ones(3), weft.devices()[0]).committed
    True
    """
    flat, structure = tree.tree_flatten(x)
    if hi_types and any(map(is_value, flat)):
        raise NotImplementedError(
            "device_put does not yet support values of hijax types: put the arrays that they consist of."
        )
    if may_alias and any(tree.tree_leaves(donate)):
        raise ValueError(
            "device_put: may_alias and donate cannot be True at the same time. Donated memory is not shared."
        )
    targets = _per_leaf(device, x, len(flat), "device")
    _per_leaf(src, x, len(flat), "source")
    if processes.current() is not None:
        _check_equal(flat, targets)
    with transfer_guards.AllowTransfers(transfer_guards.EXPLICIT), use_default_device():
        put = [_put(leaf, target, x, i) for i, (leaf, target) in enumerate(zip(flat, targets))]
    if may_alias is False:
        put = [copy.deepcopy(y) if type(y) is Array else y for y in put]
    donated = [donate] * len(flat)
    if not isinstance(donate, bool):
        donated = tree.broadcast_prefix(donate, x)
    for leaf, y, is_donated in zip(flat, put, donated):
        if is_donated and type(leaf) is Array and leaf is not y:
            leaf.delete()
    if is_staged(current_trace()):
        put = list(map(_record_constant, put))
    return tree.tree_unflatten(structure, put)


def _per_leaf(placement: Any, x: Any, count: int, what: str) -> Sequence:
    """Return the placement of each of the `count` leaves of `x`."""
    if is_placement(placement):
        return [placement] * count
    try:
        return tree.broadcast_prefix(placement, x, is_leaf=is_placement)
    except ValueError as error:
        raise ValueError(
            f"device_put {what} specification must be a tree prefix of the corresponding value; {error}"
        ) from None


def _record_constant(y: Any) -> Any:
    """Return an array as a constant of the program being traced."""
    return record_constant(y) if type(y) is Array and not dtypes.is_strings(y.dtype) else y


def _check_equal(flat: Sequence, targets: Sequence) -> None:
    """Check that all processes put equal values when they place them on devices of all processes."""
    from weft._engine.runtime import exchange

    n_all, values = exchange.require_processes().size, []
    for x, target in zip(flat, targets):
        target = target.sharding if isinstance(target, Format) else target
        if (
            isinstance(target, (Sharding, PartitionSpec))
            and not isinstance(x, Tracer)
            and not (type(x) is Array and x._spec.by_process is not None)
        ):
            sharding = as_sharding(target, "device_put")
            ranks = {d.process_index for d in sharding.device_assignment}
            exchange.check_present("device_put", sharding, ranks)
            if len(ranks) == n_all:
                values.append(np.asarray(to_array(x)._numpy()))
    if not values:
        return
    types = ", ".join(f"{value.dtype}{list(value.shape)}" for value in values)
    digests = exchange.agree("device_put", types, exchange.digest(values))
    different = [rank for rank, theirs in enumerate(digests) if theirs != digests[0]]
    if different:
        raise AssertionError(
            describe(
                "device_put",
                "the value is not the same on each process.",
                [("values", types), ("differ from process 0", str(different))],
                user_frame(),
                "Every process passes the same value when it shards a value over all processes.",
                "Use weft.make_array_from_process_local_data if each process has a part.",
            )
        )


def _put(x: Any, target: Any, whole: Any, i: int) -> Any:
    """Return leaf `x`, number `i` of the tree `whole`, at its target placement."""
    is_traced = isinstance(x, Tracer)
    if isinstance(target, MemorySpace):
        if target is MemorySpace.Any:
            raise ValueError(
                "device_put: MemorySpace.Any is not a placement. Pass MemorySpace.Device or MemorySpace.Host."
            )
        if is_traced:  # a program computes in one memory; only shardings of its results name others
            return x
        target = to_array(x).sharding.with_memory_kind(target.value)
    sharding, order, layout = _resolve_target(x, target)
    if layout is not None and (is_traced or isinstance(current_trace(), StageTrace)):
        return layout_constraint(_put(x, sharding, whole, i), layout.major_to_minor)
    if sharding is not None and is_abstract(sharding):
        if is_traced or current_trace() is not eval_trace:
            return _constrain(x, sharding, whole, i)
        sharding = _with_devices_of(x, sharding)
    if is_traced:
        return _constrain(x, sharding, whole, i)
    return _place(x, sharding, order, whole, i)


def _resolve_target(
    x: Any, target: Any
) -> tuple[Sharding | None, tuple[int, ...] | None, Layout | None]:
    """Return the sharding of a target, the dim order in memory, and the layout if a Format has one."""
    if not isinstance(target, Format):
        sharding = _as_sharding(target)
        # an array keeps its dim order, except that unreduced arrays are always row-major
        keeps_order = type(x) is Array and sharding is not None and not sharding.unreduced
        return sharding, x._spec.order if keeps_order else None, None
    layout = target.layout
    if layout is Layout.AUTO or (target.sharding is None and layout is not None):
        raise ValueError(
            f"device_put: the sharding and layout of {target} should be concrete.\n"
            "  AUTO stands for a layout that a compiler chooses; pass Format(layout, sharding), or the sharding alone."
        )
    sharding = _as_sharding(target.sharding)
    order = order_of(layout, typeof(x).ndim, "device_put")
    return sharding, order, layout if isinstance(layout, Layout) else None


def _as_sharding(target: Any) -> Sharding | None:
    try:
        return as_sharding(target, "device_put")
    except TypeError as error:
        raise ValueError(f"device_put: Received invalid value. {error}") from None


def _constrain(x: Any, sharding: Sharding | None, whole: Any, i: int) -> Any:
    """Return a traced value with a constraint on its sharding, or moved to other devices if it is concrete."""
    if sharding is None:
        return x
    _check_fits(sharding, typeof(x).shape, whole, i)
    source = _source_elsewhere(x, sharding)
    if source is not None:
        return _moved_p.bind(x, sharding=sharding, source=source)
    if not is_abstract(sharding) and len(sharding.device_assignment) == 1:
        return x
    ndim = typeof(x).ndim
    is_typed = typeof(x).explicit is not None or type_sharding(sharding, ndim) is not None
    if is_typed and isinstance(sharding, NamedSharding):
        return reshard(x, sharding)
    return sharding_constraint(x, sharding)


def _place(
    x: Any, sharding: Sharding | None, order: tuple[int, ...] | None, whole: Any, i: int
) -> Array:
    """Return a concrete value as an array with the given sharding and dim order."""
    if sharding is None:
        return to_array(x)
    if not isinstance(x, Array) and len(sharding.device_assignment) == 1:
        if isinstance(current_trace(), StageTrace):  # a single device does not constrain a program
            return to_array(x)
    array = x if type(x) is np.ndarray and x.ndim else to_array(x)
    _check_fits(sharding, array.shape, whole, i)
    if type(array) is np.ndarray and not sharding.unreduced:
        return to_array(array, sharding, order)
    array = to_array(array)
    if transfer_guards.has_guard():
        transfer_guards.between_devices([array._spec], [ArraySpec(array.aval, sharding, True)])
    return move_to_layout(array, sharding, order=order)


def _check_fits(sharding: Sharding, shape: tuple, whole: Any, i: int) -> None:
    """Raise ShardingError, naming leaf number `i` of the tree `whole`, if the sharding does not fit the shape."""
    try:
        return sharding.check_value(shape, "")
    except ShardingError:
        path = tree.keystr(tree.tree_flatten_with_path(whole)[0][i][0])
    sharding.check_value(shape, f"the value{path and ' ' + path} given to device_put")


def _with_devices_of(x: Any, sharding: NamedSharding) -> NamedSharding:
    """Return a sharding over an abstract mesh with the devices of an array, or of the last created mesh with its explicit axes.

    Raises ValueError if there are none, or another number of devices.
    """
    concrete = concrete_mesh(sharding.mesh)
    devices = x.sharding.device_assignment if type(x) is Array else ()
    devices = (
        concrete.flat_devices
        if concrete is not None and len(devices) != sharding.mesh.size
        else devices
    )
    if len(devices) != sharding.mesh.size:
        raise ValueError(
            f"device_put: {sharding!r} has no devices, and the value, of type {typeof(x).str_short()}, is on "
            f"{len(devices) or 'none'}.\n  Pass a Mesh of devices, or enter one with these axes (weft.set_mesh)."
        )
    return on_devices(sharding, devices)


def _source_elsewhere(x: Any, sharding: Sharding) -> Sharding | None:
    """Return the sharding of a tracer's concrete value if it is on other devices than `sharding`, else None."""
    value = x.concrete() if isinstance(x, Tracer) else None
    if value is None or is_abstract(sharding):
        return None
    source = to_array(value).sharding
    return source if source.device_assignment != sharding.device_assignment else None


#: params: sharding, source. Moves a value that is being differentiated from the devices of `source`; its cotangent moves back. In a
#: staged program, which runs on the devices of its arguments, it is the identity.
_moved_p = ExtensionPrimitive("device_put")
_moved_p.def_impl(lambda x, *, sharding, source: move_to_layout(to_array(x), sharding))
_moved_p.def_abstract_eval(
    lambda aval, *, sharding, source: aval.update(sharding=type_sharding(sharding, aval.ndim))
)
_moved_p.expand = lambda xs, avals, promised, params: [
    xs[0] if promised[0].explicit is None else reshard(xs[0], promised[0].explicit)
]
_moved_p.define(
    jvp=lambda primals, tangents, **params: (
        _moved_p.bind(*primals, **params),
        tangents[0] if type(tangents[0]) is Zero else _moved_p.bind(*tangents, **params),
    ),
    transpose=lambda ct, x, *, sharding, source: (
        _moved_p.bind(ct, sharding=source, source=sharding),
    ),
    batch=lambda axis, args, dims, *, sharding, source: (
        _moved_p.bind(
            *args, sharding=sharding.with_free_dim(dims[0]), source=source.with_free_dim(dims[0])
        ),
        dims[0],
    ),
)


def device_put_sharded(shards: Sequence, devices: Sequence) -> Any:
    """Stack `shards` (trees of arrays of one structure) along a new leading dim, shard i on `devices[i]`.

    >>> weft.device_put_sharded([1.0, 2.0], weft.devices()[:2]).shape
    (2,)
    """
    if len(shards) != len(devices):
        raise ValueError(
            f"device_put_sharded: {len(shards)} shards for {quantity(len(devices), 'device')}; there must be one each."
        )
    _check_devices("device_put_sharded", devices)
    mesh = Mesh(np.array(devices), ("devices",))
    stacked = tree.tree_map(lambda *xs: np.stack([np.asarray(x) for x in xs]), *shards)
    return tree.tree_map(
        lambda x: device_put(x, NamedSharding(mesh, PartitionSpec("devices"))), stacked
    )


def device_put_replicated(x: Any, devices: Sequence) -> Any:
    """Stack copies of the tree `x` along a new leading dim, one on each of `devices`.

    >>> weft.device_put_replicated(3.0, weft.devices()[:2]).tolist()
    [3.0, 3.0]
    """
    _check_devices("device_put_replicated", devices)
    return device_put_sharded([x] * len(devices), devices)


def _check_devices(api: str, devices: Any) -> None:
    """Raise TypeError unless `devices` is a sequence of devices."""
    if not isinstance(devices, Sequence) or not all(isinstance(d, Device) for d in devices):
        raise TypeError(f"{api}: `devices` must be a sequence of devices, got {devices!r:.80}.")
