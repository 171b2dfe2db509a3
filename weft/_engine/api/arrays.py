"""Moving arrays and looking at programs: device_put, device_get, block_until_ready, make_jaxpr, eval_shape and their kin."""

from __future__ import annotations

import copy
import functools
import gc
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft._engine import processes
from weft._engine.api.execute import relayout, to_array
from weft._engine.api.flat import FlatFunction, aval_of
from weft._engine.api.jit import JitFunction, check_output
from weft._engine.api.layouts import as_sharding
from weft._engine.api.struct import ShapeDtypeStruct
from weft._engine.backends.array_spec import ArraySpec, _specs
from weft._engine.backends.formats import Format, Layout, order_of
from weft._engine.control.hitypes import (
    flatten,
    flatten_linear,
    is_mutable,
    is_value,
    on_copies,
    taken_apart,
)
from weft._engine.control.ref import Threaded, any_refs, is_ref, retried
from weft._engine.core.extension import ExtensionPrimitive
from weft._engine.core.interpret import evaluate
from weft._engine.core.stage import StageTrace, hoist_tracers, is_staged, record_constant, stage
from weft._engine.core.trace import (
    Trace,
    Tracer,
    Zero,
    any_tracers,
    current_trace,
    eval_trace,
    extend_axis_env,
    set_trace,
    typeof,
)
from weft._engine.cpython.references import is_held_at_most
from weft._engine.hooks import PENDING_BUFFER_TYPES, hi_types
from weft._engine.ir.explicit import on_devices, type_sharding
from weft._engine.ir.jaxpr import Jaxpr, OpenJaxpr
from weft._engine.ir.mesh import Mesh, concrete_mesh, unplaced
from weft._engine.ir.program_mesh import is_abstract
from weft._engine.ir.shardings import MemorySpace, NamedSharding, Sharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ir.types import ShapedArray, _interned
from weft._engine.ops.placement import layout_constraint, reshard, sharding_constraint
from weft._engine.runtime import parts, transfers
from weft._engine.runtime.array import Array
from weft._engine.runtime.device import Device
from weft._engine.util import dtypes, tree
from weft._engine.util.errors import ShardingError, UnexpectedTracerError, describe
from weft._engine.util.source import (
    api_boundary,
    check_callable,
    function_name,
    joined,
    scope,
    user_frame,
    wraps,
)
from weft._engine.util.state import clearers

# ---- placement


def _is_placement(x) -> bool:
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
    """`x` (a tree of arrays) on a device, or laid out as a sharding; the result is committed if a placement is given.

    A `Format` says in which order dims are stored, too; otherwise arrays keep theirs.
    `device` may be a tree of devices, shardings, formats and memory spaces that is a prefix of `x`. The result shares memory
    with `x` where layouts allow, unless `may_alias` is False. With `donate` (a bool, or a tree of them that is a prefix of `x`), `x` must
    not be used again. `src`, a prefix of `x` like `device`, says what an array knows: its devices.
    Raises ShardingError if a dim does not divide, ValueError for a tree of devices that does not match, for what is no placement, and for
    both `may_alias` and `donate`.

    >>> weft.device_put(wnp.ones(3), weft.devices()[0]).committed
    True
    """
    flat, structure = tree.tree_flatten(x)
    if hi_types and any(map(is_value, flat)):
        raise NotImplementedError(
            "device_put does not yet support values of hi types: put the arrays that they consist of."
        )
    if may_alias and any(tree.tree_leaves(donate)):
        raise ValueError(
            "device_put: may_alias and donate cannot be True at the same time. Memory that is given away is not shared."
        )
    if _is_placement(device):
        targets = [device] * len(flat)
    else:
        try:
            targets = tree.broadcast_prefix(device, x, is_leaf=_is_placement)
        except ValueError as error:
            raise ValueError(
                f"device_put device specification must be a tree prefix of the corresponding value; {error}"
            ) from None
    if src is not None and not _is_placement(src):
        try:
            tree.broadcast_prefix(src, x, is_leaf=_is_placement)
        except ValueError as error:
            raise ValueError(
                f"device_put source specification must be a tree prefix of the corresponding value; {error}"
            ) from None
    if processes.current() is not None:
        _check_equal(flat, targets)
    with transfers.Passing(transfers.EXPLICIT), unplaced():
        put = [_put(leaf, t, x, i) for i, (leaf, t) in enumerate(zip(flat, targets))]
    if may_alias is False:
        put = [copy.deepcopy(y) if type(y) is Array else y for y in put]
    for leaf, y, given in zip(
        flat,
        put,
        [donate] * len(flat) if isinstance(donate, bool) else tree.broadcast_prefix(donate, x),
    ):
        if given and type(leaf) is Array and leaf is not y:
            leaf.delete()
    if is_staged(current_trace()):
        put = [
            record_constant(y) if type(y) is Array and not dtypes.is_strings(y.dtype) else y
            for y in put
        ]
    return tree.tree_unflatten(structure, put)


def _check_equal(flat: Sequence, targets: Sequence) -> None:
    """Check that all processes put the same values on devices of all of them."""
    from weft._engine.runtime import exchange

    n_all, given = exchange.shared().size, []
    for x, target in zip(flat, targets):
        target = target.sharding if isinstance(target, Format) else target
        if (
            isinstance(target, (Sharding, PartitionSpec))
            and not isinstance(x, Tracer)
            and not (type(x) is Array and x._spec.by_process is not None)
        ):
            sharding = as_sharding(target, "device_put")
            there = {d.process_index for d in sharding.device_assignment}
            exchange.check_present("device_put", sharding, there)
            if len(there) == n_all:
                given.append(np.asarray(to_array(x)._numpy()))
    if not given:
        return
    types = ", ".join(f"{value.dtype}{list(value.shape)}" for value in given)
    digests = exchange.agree("device_put", types, exchange.digest(given))
    different = [rank for rank, theirs in enumerate(digests) if theirs != digests[0]]
    if different:
        raise AssertionError(
            describe(
                "device_put",
                "the value is not the same on each process.",
                [("values", types), ("differ from process 0", str(different))],
                user_frame(),
                "Every process gives the same value when it lays one out over all processes.",
                "Use weft.make_array_from_process_local_data where each has a part.",
            )
        )


def _put(x, target, whole, i: int):
    """Leaf `x`, number `i` of the tree `whole`, at its target."""
    if isinstance(target, Format) and (
        target.layout is Layout.AUTO or (target.sharding is None and target.layout is not None)
    ):
        raise ValueError(
            f"device_put: the sharding and layout of {target} should be concrete.\n"
            "  AUTO stands for a layout that a compiler chooses; give Format(layout, sharding), or the sharding alone."
        )
    if isinstance(target, MemorySpace):
        if target is MemorySpace.Any:
            raise ValueError(
                "device_put: MemorySpace.Any is no place for an array. Give MemorySpace.Device or MemorySpace.Host."
            )
        if isinstance(
            x, Tracer
        ):  # a program is computed in one memory; shardings of its results name others
            return x
        target = to_array(x).sharding.with_memory_kind(target.value)
    given = target if isinstance(target, Format) else None
    try:
        sharding = as_sharding(target if given is None else given.sharding, "device_put")
    except TypeError as error:
        raise ValueError(f"device_put: Received invalid value. {error}") from None
    if given is not None:
        order = order_of(given.layout, typeof(x).ndim, "device_put")
        if isinstance(given.layout, Layout) and (
            isinstance(x, Tracer) or isinstance(current_trace(), StageTrace)
        ):
            return layout_constraint(_put(x, sharding, whole, i), given.layout.major_to_minor)
    else:  # an array keeps its order; of unreduced ones there is one
        order = (
            x._spec.order
            if type(x) is Array and sharding is not None and not sharding.unreduced
            else None
        )
    if (
        sharding is not None
        and is_abstract(sharding)
        and not isinstance(x, Tracer)
        and current_trace() is eval_trace
    ):
        sharding = _where_it_lies(x, sharding)
    if isinstance(x, Tracer) or (sharding is not None and is_abstract(sharding)):
        if sharding is not None:
            _check_fits(sharding, typeof(x).shape, whole, i)
        source = _elsewhere(x, sharding)
        if source is not None:
            return _moved_p.bind(x, sharding=sharding, source=source)
        if sharding is None or (not is_abstract(sharding) and len(sharding.device_assignment) == 1):
            return x
        typed = (
            typeof(x).explicit is not None or type_sharding(sharding, typeof(x).ndim) is not None
        )
        return reshard(x, sharding) if typed else sharding_constraint(x, sharding)
    staged = isinstance(
        current_trace(), StageTrace
    )  # a program runs on the devices of its arguments: one device is no placement in it
    if sharding is None or (
        staged and len(sharding.device_assignment) == 1 and not isinstance(x, Array)
    ):
        return to_array(x)
    array = x if type(x) is np.ndarray and x.ndim else to_array(x)
    _check_fits(sharding, array.shape, whole, i)
    if type(array) is np.ndarray and not sharding.unreduced:
        return to_array(array, sharding, order)
    array = to_array(array)
    if transfers.guarded():
        transfers.between_devices([array._spec], [ArraySpec(array.aval, sharding, True)])
    return relayout(array, sharding, order=order)


def _check_fits(sharding: Sharding, shape: tuple, whole: Any, i: int) -> None:
    """ShardingError, which names leaf number `i` of the tree `whole`, if a value of that shape cannot be laid out so."""
    try:
        sharding.check_value(shape, "")
    except ShardingError:
        path = tree.keystr(tree.tree_flatten_with_path(whole)[0][i][0])
        sharding.check_value(shape, f"the value{path and ' ' + path} given to device_put")


def _where_it_lies(x: Any, sharding: NamedSharding) -> NamedSharding:
    """A sharding over a mesh without devices, on those of an array or of the mesh last made with its explicit axes; ValueError if there are
    none, or another number."""
    made = concrete_mesh(sharding.mesh)
    devices = x.sharding.device_assignment if type(x) is Array else ()
    devices = (
        made.flat_devices if made is not None and len(devices) != sharding.mesh.size else devices
    )
    if len(devices) != sharding.mesh.size:
        raise ValueError(
            f"device_put: {sharding!r} has no devices, and the value, of type {typeof(x).str_short()}, lies on "
            f"{len(devices) or 'none'}.\n  Give a Mesh of devices, or enter one with these axes (weft.set_mesh)."
        )
    return on_devices(sharding, devices)


def _elsewhere(x: Any, sharding: Sharding | None) -> Sharding | None:
    """Where the value of a tracer lies, if it has one, and is to be put on other devices."""
    value = x.concrete() if isinstance(x, Tracer) else None
    if value is None or sharding is None or is_abstract(sharding):
        return None
    source = to_array(value).sharding
    return source if source.device_assignment != sharding.device_assignment else None


#: params: sharding, source. A value that is differentiated, on other devices than those of `source`, to which its cotangent returns. In a
#: program, which runs on the devices of its arguments, it is nothing.
_moved_p = ExtensionPrimitive("device_put")
_moved_p.def_impl(lambda x, *, sharding, source: relayout(to_array(x), sharding))
_moved_p.def_abstract_eval(
    lambda aval, *, sharding, source: aval.update(sharding=type_sharding(sharding, aval.ndim))
)
_moved_p.define(
    expand=lambda xs, avals, promised, params: [
        xs[0] if promised[0].explicit is None else reshard(xs[0], promised[0].explicit)
    ],
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
            f"device_put_sharded: {len(shards)} shards for {len(devices)} devices; there must be one each."
        )
    _check_devices("device_put_sharded", devices)
    mesh = Mesh(np.array(devices), ("devices",))
    stacked = tree.tree_map(lambda *xs: np.stack([np.asarray(x) for x in xs]), *shards)
    return tree.tree_map(
        lambda x: device_put(x, NamedSharding(mesh, PartitionSpec("devices"))), stacked
    )


def device_put_replicated(x: Any, devices: Sequence) -> Any:
    """Copies of the tree `x` along a new leading dim, one on each of `devices`.

    >>> weft.device_put_replicated(3.0, weft.devices()[:2]).tolist()
    [3.0, 3.0]
    """
    _check_devices("device_put_replicated", devices)
    return device_put_sharded([x] * len(devices), devices)


def _check_devices(api: str, devices: Any) -> None:
    """TypeError unless `devices` is a sequence of devices."""
    if not isinstance(devices, Sequence) or not all(isinstance(d, Device) for d in devices):
        raise TypeError(f"{api}: `devices` must be a sequence of devices, got {devices!r:.80}.")


def device_get(x: Any) -> Any:
    """The tree `x` with its arrays as (read-only) NumPy arrays; random keys and other leaves stay as they are.

    >>> device_get({"x": wnp.arange(3), "n": 2})
    {'n': 2, 'x': array([0, 1, 2], dtype=int32)}
    """
    return tree.tree_map(
        lambda leaf: (
            leaf._numpy() if type(leaf) is Array and not dtypes.is_extended(leaf.dtype) else leaf
        ),
        x,
    )


def block_until_ready(x: Any) -> Any:
    """The tree `x`, once all arrays in it are computed.

    >>> block_until_ready([wnp.ones(2).sum(), "a"])
    [Array(2., dtype=float32), 'a']
    """
    _wait((x,))
    return x


def _wait(xs) -> None:
    """Wait for the trees `xs`. Those of the usual containers are not flattened: steps are timed with this call in them."""
    for x in xs:
        kind = type(x)
        if kind is Array:
            if type(x._buffer) in PENDING_BUFFER_TYPES:
                x.block_until_ready()
        elif kind is tuple or kind is list:
            _wait(x)
        elif kind is dict:
            _wait(x.values())
        elif (wait := getattr(x, "block_until_ready", None)) is not None:
            wait()
        elif len(leaves := tree.tree_leaves(x)) != 1 or leaves[0] is not x:
            _wait(leaves)


def copy_to_host_async(x: Any) -> Any:
    """The tree `x`, whose arrays may be copied to the host from now on; they are there already.

    >>> copy_to_host_async([wnp.ones(2).sum(), "a"])
    [Array(2., dtype=float32), 'a']
    """
    for leaf in tree.tree_leaves(x):
        start = getattr(leaf, "copy_to_host_async", None)
        if start is not None:
            try:
                start()
            except Exception as error:
                error._inside = False  # type: ignore[attr-defined]  # the method's own, which reaches the caller as it is
                raise
    return x


def make_array_from_callback(
    shape, sharding: Sharding | Format, data_callback: Callable, dtype=None
) -> Array:
    """An array of global `shape` laid out as `sharding`, which may be a Format; `data_callback(index)` gives each distinct shard that is on
    this process.

    `index` is a tuple of slices into the global array. `dtype` is needed where this process has none of the devices. ValueError if a shard
    has not the shape that the sharding asks for or another dtype, UnexpectedTracerError for a value that is traced.

    >>> whole = np.arange(4.0, dtype=np.float32)
    >>> make_array_from_callback((4,), weft.sharding.SingleDeviceSharding(weft.devices()[0]), lambda index: whole[index])
    Array([0., 1., 2., 3.], dtype=float32)
    """
    api, shape = "make_array_from_callback", tuple(int(n) for n in shape)
    sharding, order = _placement_to_make(api, sharding, len(shape))
    whole = (slice(None),) * len(shape)
    given = parts.each_block(
        sharding,
        shape,
        lambda index: data_callback(whole if sharding.is_fully_replicated else index),
    )
    for part in given.values():
        if isinstance(part, Tracer):
            raise UnexpectedTracerError(
                f"{api}: the callback gave a traced value, {part!r:.80}.\n"
                f"  jax.{api} cannot be called within a traced context."
            )
    if given and dtypes.is_extended(typeof(next(iter(given.values()))).dtype):
        keys = {position: to_array(part) for position, part in given.items()}
        kept = parts.only_dtype(api, [x.dtype for x in keys.values()], dtype)
        values = {position: x._numpy() for position, x in keys.items()}
    else:
        wanted = None if dtype is None else dtypes.canonicalize_dtype(dtype)
        arrays = {position: np.asarray(part) for position, part in given.items()}
        found = [dtypes.canonicalize_dtype(typeof(part).dtype) for part in given.values()]
        kept = parts.only_dtype(api, found, wanted)
        values = {position: part.astype(kept, copy=False) for position, part in arrays.items()}
    made = parts.assembled(api, ShapedArray(shape, kept), sharding, values, order)
    if transfers.guarded():
        transfers.to_device(made.aval, sharding)
    return made


def _placement_to_make(api: str, given: Any, ndim: int) -> tuple[Sharding, tuple[int, ...] | None]:
    """The sharding of an array of `ndim` dims that is made of parts, and the order of its dims."""
    sharding, layout = (
        (given.sharding, given.layout) if isinstance(given, Format) else (given, None)
    )
    if layout is Layout.AUTO:
        raise TypeError(
            f"{api}: `Layout.AUTO` cannot be used in place of a device-local layout, got {given}. No compiler is asked where "
            "an array is made of its parts; give the layout, or the sharding alone."
        )
    if not isinstance(sharding, Sharding):
        raise TypeError(
            f"{api}: sharding should be an instance of `jax.sharding`. Got {given!r:.80} of type {type(given)}."
        )
    return sharding, order_of(layout, ndim, api)


def make_array_from_single_device_arrays(
    shape, sharding: Sharding, arrays: Sequence, *, dtype=None
) -> Array:
    """An array of global `shape` from one array per device of `sharding` that this process drives, in any order.

    `dtype` is needed where it drives none. ValueError if one is missing or misshapen, of another dtype or on several devices.

    >>> x = weft.device_put(wnp.ones(2), weft.devices()[0])
    >>> make_array_from_single_device_arrays((2,), x.sharding, [x])
    Array([1., 1.], dtype=float32)
    """
    api, shape = "make_array_from_single_device_arrays", tuple(int(n) for n in shape)
    if (
        isinstance(arrays, Tracer)
        or not isinstance(arrays, Sequence)
        or not all(isinstance(a, Array) for a in arrays)
    ):
        raise TypeError(
            f"{api}: jax.{api} `arrays` argument must be a list or tuple of arrays, but got {type(arrays)}: {arrays!r:.80}."
        )
    sharding, order = _placement_to_make(api, sharding, len(shape))
    for a in arrays:
        if isinstance(a, Tracer):
            raise ValueError(
                f"{api}: one of the arrays is traced, {a!r:.80}.\n  jax.{api} requires a list of concrete arrays as input."
            )
        if len(a.sharding.device_assignment) != 1:
            raise ValueError(
                f"{api}: {a.aval.str_short()} lies on several devices.\n"
                "  When making an array from single-device arrays the input arrays must have one shard each. "
                f"An argument array had {len(a.sharding.device_assignment)} shard(s)."
            )
    mine = [d for d in sharding.device_assignment if d.is_addressable]
    wanted = (
        dtype if dtype is None or dtypes.is_extended(dtype) else dtypes.canonicalize_dtype(dtype)
    )
    kept = parts.only_dtype(api, [a.dtype for a in arrays], wanted)
    by_device = {a.device: a for a in arrays}
    missing = [d for d in mine if d not in by_device]
    if missing or len(arrays) != len(mine):
        raise ValueError(
            describe(
                api,
                f"no array lies on {missing}."
                if missing
                else f"{len(arrays)} arrays were given for {len(mine)} devices.",
                [
                    ("devices of this process", str([d.id for d in mine])),
                    ("arrays lie on devices", str([a.device.id for a in arrays])),
                ],
                None,
                "There must be one array per addressable device of the sharding.",
            )
        )
    if any(not device.client.has_values for device in mine):
        spec = ArraySpec(ShapedArray(shape, kept), sharding, True, order)
        return Array(spec, spec.backend.allocate(spec.stored))
    aval, held = (
        ShapedArray(shape, kept),
        {device: np.asarray(array._numpy()) for device, array in by_device.items()},
    )
    if sharding.unreduced:
        return _of_terms(api, aval, sharding, held)
    values = {
        position: held[device]
        for position, device in parts.blocks_here(sharding, len(shape)).items()
    }
    return parts.assembled(api, aval, sharding, values, order)


def _of_terms(
    api: str, aval: ShapedArray, sharding: NamedSharding, held: dict[Any, np.ndarray]
) -> Array:
    """The array with unreduced axes whose term on each device is `held[device]`."""
    memory = ShapedArray((sharding.num_terms, *aval.shape), aval.dtype)
    placed = parts.blocks_here(sharding.stored, memory.ndim)
    stored = parts.assembled(
        api,
        memory,
        sharding.stored,
        {position: held[device][None] for position, device in placed.items()},
    )
    return Array(ArraySpec(aval, sharding, True), stored._live())


def make_array_from_process_local_data(
    sharding: Any, local_data: Any, global_shape: Any = None
) -> Any:
    """Arrays from what this process has of them: a tree of them, and shardings or Formats and shapes (or None) that are prefixes of it.

    Along each dim the data has the blocks that are on devices of this process, in the order of the whole array, or all of it.
    Without `global_shape` it has the former along every dim, and the global shape follows. With one process the data is the whole array.
    ValueError for data that does not fit, TypeError for what is not a sharding.

    >>> one = weft.sharding.SingleDeviceSharding(weft.devices()[0])
    >>> make_array_from_process_local_data(one, np.ones(2, np.float32)).committed
    True
    """
    api = "make_array_from_process_local_data"
    flat, structure = tree.tree_flatten(local_data)
    shardings = tree.broadcast_prefix(sharding, local_data, is_leaf=_is_placement)
    shapes = tree.broadcast_prefix(
        global_shape, local_data, is_leaf=lambda x: x is None or _is_shape(x)
    )
    return tree.tree_unflatten(
        structure, [_from_local(api, *each) for each in zip(flat, shardings, shapes)]
    )


def _is_shape(x: Any) -> bool:
    return isinstance(x, (tuple, list)) and all(isinstance(n, (int, np.integer)) for n in x)


def _from_local(api: str, data: Any, placement: Any, global_shape: Any) -> Array:
    given = placement if isinstance(placement, Format) else as_sharding(placement, api)
    sharding, order = _placement_to_make(api, given, np.ndim(data))
    if sharding.is_fully_addressable:
        if global_shape is not None and tuple(global_shape) != np.shape(data):
            raise ValueError(
                f"{api}: this process drives all devices, so that the local data is the global array: shape "
                f"{np.shape(data)}, global_shape {tuple(global_shape)}.\n"
                "  global_shape should be None or equal to local_data.shape."
            )
        return device_put(data, given)
    array = to_array(data)
    shape = (
        parts.whole_shape(sharding, array.shape) if global_shape is None else tuple(global_shape)
    )
    if len(shape) != array.ndim:
        raise ValueError(
            f"{api}: local data of shape {array.shape} and global_shape {shape} differ in rank."
        )
    return parts.from_part(api, array._numpy(), ShapedArray(shape, array.dtype), sharding, order)


# ---- looking at programs


@api_boundary
def make_jaxpr(
    fun: Callable,
    static_argnums: int | Sequence[int] = (),
    axis_env=None,
    return_shape: bool = False,
    abstracted_axes=None,
) -> Callable:
    """The function that gives the program of `fun` for arguments of the types it is called with.

    With `return_shape` it gives the program and the results' ShapeDtypeStructs. `axis_env` lists (name, size) pairs of the
    named axes that collectives inside may use.
    Raises TypeError for arguments and results that are not arrays or numbers.

    >>> print(weft.make_jaxpr(lambda x: x * 2)(wnp.ones(3)))
    { lambda ; a:f32[3]. let b:f32[3] = mul a 2.0:f32[] in (b,) }
    """
    if abstracted_axes is not None:
        raise NotImplementedError("make_jaxpr: abstracted_axes is not supported yet.")
    check_callable("make_jaxpr", fun)

    @wraps(fun)
    @functools.partial(api_boundary, name="make_jaxpr")
    def jaxpr_maker(*args, **kwargs):
        flat = FlatFunction(
            fun, args, kwargs, static_argnums, flatten=lambda x: flatten(x, "make_jaxpr")
        )
        with extend_axis_env(list(axis_env or ())):
            jaxpr = retried(lambda refs: _program(flat, refs))
        if return_shape:
            return jaxpr, flat.unflatten([_struct(a) for a in jaxpr.out_avals])
        return jaxpr

    jaxpr_maker.__name__ = f"make_jaxpr({function_name(fun)})"
    jaxpr_maker.__qualname__ = f"make_jaxpr({getattr(fun, '__qualname__', function_name(fun))})"
    return jaxpr_maker


def _program(flat: FlatFunction, refs: list) -> Jaxpr:
    """The program of a function; the values of the references that it closes over, `refs`, come first and, with those of references that
    it is passed, last."""
    if not refs and not any_refs(flat.leaves):
        return stage(flat, [aval_of(x) for x in flat.leaves], function_name(flat.fun))
    at = [i for i, x in enumerate(flat.leaves) if is_ref(x)]
    threaded = Threaded(lambda *xs: flat.unflatten(flat(*xs)), "make_jaxpr", refs, at, flat.names())

    def on_values(*xs):
        out, state, lent = threaded.call(xs[: len(refs)], xs[len(refs) :])
        return [*tree.tree_leaves(out), *state, *lent]

    avals = [x.type.inner_aval if is_ref(x) else aval_of(x) for x in (*refs, *flat.leaves)]
    return stage(on_values, avals, function_name(flat.fun))


def _struct(aval: ShapedArray) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(
        aval.shape, aval.dtype, sharding=aval.explicit, weak_type=aval.weak_type, vma=aval.vma
    )


@api_boundary
def eval_shape(fun: Callable, *args, **kwargs) -> Any:
    """Shapes and dtypes of the results of `fun`, without computing anything; of a jitted function with the shardings and formats that its
    `out_shardings` say.

    Raises what tracing `fun` raises: TypeError or ShapeError for arguments that do not fit.

    >>> weft.eval_shape(lambda x: x @ x.T, wnp.ones((2, 3)))
    ShapeDtypeStruct(shape=(2, 2), dtype=float32)
    """
    has_mutable = hi_types and any(map(is_mutable, tree.tree_leaves((args, kwargs))))
    if isinstance(fun, JitFunction):
        if fun.options.out_shardings is not None and not has_mutable:
            return fun.eval_shape(*args, **kwargs)
        fun = fun.fun
    if has_mutable:
        (args, kwargs), _ = taken_apart((args, kwargs))
        return eval_shape(lambda *args, **kwargs: on_copies(fun, args, kwargs)[0], *args, **kwargs)
    flat = FlatFunction(fun, args, kwargs, flatten=lambda x: flatten(x, "eval_shape"))

    def checked(*leaves):
        outs = flat(*leaves)
        for i, out in enumerate(outs):
            check_output(out, "eval_shape", fun, flat.out_tree, i)
        return outs

    jaxpr = stage(checked, [aval_of(x) for x in flat.leaves], function_name(fun))
    return flat.unflatten([_struct(a) for a in jaxpr.out_avals])


def eval_jaxpr(
    jaxpr: Jaxpr | OpenJaxpr, consts: Sequence, *args, propagate_source_info: bool = True
) -> list:
    """The flat results of a program on flat arguments, one operation after another; `consts` are the values of its constants.

    >>> jaxpr = weft.make_jaxpr(lambda x: x + 1.0)(2.0)
    >>> [float(y) for y in weft.eval_jaxpr(jaxpr, jaxpr.consts, 2.0)]
    [3.0]
    """
    closed = jaxpr.closed(consts) if isinstance(jaxpr, OpenJaxpr) else jaxpr.replace(consts=consts)
    return evaluate(closed, *args)


@contextmanager
def ensure_compile_time_eval():
    """Inside, operations on known values are computed at once even while a function is being traced.

    >>> @weft.jit
    ... def f(x):
    ...     with weft.ensure_compile_time_eval():
    ...         n = int(wnp.arange(4).sum())
    ...     return x * n
    >>> float(f(2.0))
    12.0
    """
    outer = current_trace()
    with set_trace(outer if outer is eval_trace else _KnownTrace(outer)):
        yield


class _KnownTrace(Trace):
    """Computes what known values determine; what involves traced ones is left to the trace around it."""

    __slots__ = ()
    evaluates_constants = True

    def serving(self, args):
        return self.parent if any_tracers(args) else eval_trace

    def process(self, primitive, args, params):
        trace = self.serving(args)
        with set_trace(trace):
            return trace.process(primitive, args, params)


def named_call(fun: Callable, *, name: str | None = None) -> Callable:
    """`fun` under a name that shows in program texts.

    >>> named_call(lambda x: x, name="same").__name__
    'same'
    """

    @wraps(fun)
    @api_boundary
    def called(*args, **kwargs):
        with named_scope(called.__name__):
            return fun(*args, **kwargs)

    called.__name__ = function_name(fun)
    if name is not None:
        called.__name__ = name
    return called


@contextmanager
def named_scope(name: str):
    """A name for the operations inside, which the texts of programs show. TypeError if it is not a string.

    >>> def f(x):
    ...     with named_scope("layer"):
    ...         return wnp.sin(x)
    >>> 'op_name="jit(f)/layer/sin"' in weft.jit(f).lower(1.0).as_text("hlo", debug_info=True)
    True
    """
    if not isinstance(name, str):
        raise TypeError(f"named_scope: the name must be a string, got {name!r}.")
    outer = scope.name
    scope.name = joined(outer, name)
    try:
        yield
    finally:
        scope.name = outer


def closure_convert(fun: Callable, *example_args) -> tuple[Callable, list]:
    """`fun` with the traced values it closes over as extra arguments: `(converted, values)`, where
    `converted(*args, *values) == fun(*args)`.

    >>> converted, values = closure_convert(lambda x: 2.0 * x, 1.0)
    >>> float(converted(3.0, *values)), values
    (6.0, [])
    """
    flat = FlatFunction(fun, example_args, flatten=flatten_linear)
    jaxpr, consts = hoist_tracers(stage(flat, [typeof(x) for x in flat.leaves], function_name(fun)))

    def converted(*args):
        n = len(args) - len(consts)
        leaves, structure = flatten_linear((tuple(args[:n]), {}))
        if structure != flat.in_tree:
            raise TypeError(
                "The inputs to the closure produced by closure_convert must have the structure of its example arguments, "
                f"{flat.in_tree.children()[0]}, followed by {len(consts)} values, got {structure.children()[0]}."
            )
        return flat.unflatten(evaluate(jaxpr, *args[n:], *leaves))

    return converted, consts


def clear_caches() -> None:
    """Forget what was traced and compiled, and give its memory back. What runs, and what `compile` gave, stays.

    >>> clear_caches()
    """
    for clear in clearers:
        clear()
    gc.collect()  # programs and their parts refer to each other
    for pruned in (_specs, _interned):
        for key in list(pruned):
            known = pruned.get(key)
            if known is not None and is_held_at_most(known, 2):  # by the table, and here
                pruned.pop(key, None)
                if not is_held_at_most(known, 1):  # another thread has just asked for it
                    pruned.setdefault(key, known)
    gc.collect()  # also empties the interpreter's lists of free objects, which would hold its memory
