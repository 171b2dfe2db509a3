"""`pmap`: map a function over a dim of its arguments, one device per index.

In:   a function, the dims of arguments and results to map over, devices.
Out:  a function that runs compiled: one `shard_map` over a mesh of one axis, so that collectives inside have their usual
      semantics and cost. Results have one slice per device, and a NamedSharding over the mesh.
Laws: pmap(f) computes what vmap(f) computes. Inside another pmap all devices are in use, and it is vmap. With several processes each
      passes the slices for its own devices and gets theirs back, as local arrays; collectives span the devices of all processes.
"""

from __future__ import annotations

import copy
import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft._engine import processes
from weft._engine.api.calls.call_cache import cache_of_function, parameters_key
from weft._engine.api.calls.options import JitOptions
from weft._engine.api.execute import to_array
from weft._engine.api.flat import FlatFunction, signature_of
from weft._engine.api.jit import JitFunction
from weft._engine.api.mapped import check_mapped_size, resolve_mapped_dims, result_dims
from weft._engine.api.placement.device_put import device_put
from weft._engine.api.shard_map import shard_map
from weft._engine.api.struct import ShapeDtypeStruct
from weft._engine.api.vmap import vmap
from weft._engine.backends.array_spec import ArraySpec
from weft._engine.core.trace import any_tracers, typeof
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.families import move_dim
from weft._engine.ops.layout import expand_dims, squeeze
from weft._engine.runtime.array import Array
from weft._engine.runtime.device import devices as all_devices, local_devices, process_indices
from weft._engine.util import tree
from weft._engine.util.dtypes import float0
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import api_boundary, check_callable, function_name

#: the axis of the mesh if the user does not name one
UNNAMED = "pmap_axis"


def pmap(
    fun: Callable,
    axis_name: Any = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: int | Iterable[int] = (),
    devices: Sequence | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Iterable[int] = (),
    global_arg_shapes: Any = None,
) -> Callable:
    """Map `fun` over the dims `in_axes` of its arguments, each index on its own device; results are stacked along `out_axes`.

    Mapped dims have one size, which is at most the number of devices (`devices`, or all of `backend`); the first ones are
    used. An argument with None in `in_axes` is passed whole to all devices; a result with None in `out_axes` must be equal
    on all and is returned once. Keyword arguments are mapped over dim 0. `axis_name` lets collectives inside name the mapped
    axis. Arguments at `static_broadcasted_argnums` are Python values, known while tracing; those at `donate_argnums` must
    not be used afterwards.
    Raises ValueError if mapped dims differ in size, there are fewer devices, or `in_axes` does not match.

    >>> weft.pmap(lambda x: x / weft.lax.psum(x, 'i'), axis_name='i')(wnp.array([1., 3.])[:len(weft.devices())]).sum().item()
    1.0
    """
    check_callable("pmap", fun)
    if global_arg_shapes is not None:
        raise NotImplementedError(
            "pmap: global_arg_shapes is not supported. Arguments are global arrays; their shapes are known."
        )
    if devices is not None and backend is not None:
        raise ValueError("pmap: pass devices or backend, not both.")
    if devices is not None and not len(devices):
        raise ValueError("pmap: `devices` is empty. Give at least one device, or None for all.")
    if devices is not None and not all(hasattr(d, "is_addressable") for d in devices):
        raise TypeError(f"pmap: `devices` must be a sequence of devices, got {devices!r:.60}.")
    return PmapFunction(
        fun,
        axis_name,
        in_axes,
        out_axes,
        _numbers(static_broadcasted_argnums),
        devices,
        backend,
        axis_size,
        _numbers(donate_argnums),
    )


def _numbers(argnums: int | Iterable[int]) -> tuple[int, ...]:
    return (argnums,) if isinstance(argnums, int) else tuple(argnums)


class _PmapThreadState(threading.local):
    depth = 0  # number of pmap bodies that this thread is tracing


_thread_state = _PmapThreadState()


class PmapFunction:
    """A function mapped by `pmap`. Calling it runs the compiled function; `trace`, `lower`, `eval_shape` stop at earlier stages."""

    def __init__(
        self,
        fun: Callable,
        axis_name: Any,
        in_axes: Any,
        out_axes: Any,
        static: tuple[int, ...],
        devices: Sequence | None,
        backend: str | None,
        axis_size: int | None,
        donated: tuple[int, ...],
    ):
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.name = f"pmap({function_name(fun)})"
        self.axis_name = UNNAMED if axis_name is None else axis_name
        self.in_axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        self.out_axes = tuple(out_axes) if isinstance(out_axes, list) else out_axes
        self.static, self.donated = static, donated
        self.devices, self.backend, self.axis_size = devices, backend, axis_size
        in_both = sorted(set(static) & set(donated))
        if in_both:
            raise ValueError(
                f"{self.name}: arguments {in_both} are both static and donated; a static argument has no buffer."
            )
        if not all(
            isinstance(d, int) and not isinstance(d, bool)
            for d in tree.tree_leaves((self.in_axes, self.out_axes))
        ):
            raise TypeError(
                f"{self.name}: in_axes and out_axes must be an int, None, or a container of them, got {in_axes!r} and "
                f"{out_axes!r}."
            )
        key = parameters_key(
            "pmap", axis_name, in_axes, out_axes, static, devices, backend, axis_size, donated
        )
        # compiled functions by mesh; and for arguments that need not be moved, by their tree, types and layouts
        self._compiled, self._ready = cache_of_function(fun, key, lambda: ({}, {}))

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<weft.pmap of {self.fun!r}>"

    @api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _thread_state.depth:
            return self._on_one_device(args, kwargs)
        leaves, in_tree = tree.tree_flatten((args, kwargs))
        if processes.current() is not None:
            return self._call_across_processes(args, kwargs)
        key = (in_tree, tuple([x._spec if type(x) is Array else None for x in leaves]))
        run = self._ready.get(key)
        if run is None:
            original = leaves
            run, args, kwargs = self._place_and_compile(args, kwargs)
            if None not in key[1] and all(
                x is y for x, y in zip(tree.tree_leaves((args, kwargs)), original)
            ):
                self._ready[key] = run
        return run(*args, **kwargs)

    def _call_across_processes(self, args: tuple, kwargs: dict) -> Any:
        """Call on the devices of all processes; each process passes the slices for its own devices."""
        flat, dims = self._flat(args, kwargs)
        if any_tracers(flat.leaves):
            raise NotImplementedError(
                f"{self.name}: a call while another function is traced, in a program of several processes.\n"
                "  Call it outside, or use shard_map."
            )
        static = {i % len(args) for i in self.static}
        local_mesh = self._mesh(check_mapped_size(self.name, flat, dims, self.axis_size))
        everywhere = self._mesh_of_all(local_mesh)
        leaves = [
            _change_devices(
                self._put(to_array(x), d, local_mesh), NamedSharding(everywhere, self._spec(d))
            )
            for x, d in zip(flat.leaves, dims)
        ]
        dynamic, kwargs = tree.tree_unflatten(flat.in_tree, leaves)
        run = self._compiled.get(everywhere)
        if run is None:
            run = self._compiled[everywhere] = JitFunction(
                self._on(everywhere),
                JitOptions(static_argnums=self.static, donate_argnums=self.donated),
            )
        values = iter(dynamic)
        outs = run(*[x if i in static else next(values) for i, x in enumerate(args)], **kwargs)
        return tree.tree_map(
            lambda y: _change_devices(y, NamedSharding(local_mesh, y.sharding.spec)), outs
        )

    def _mesh_of_all(self, here: Mesh) -> Mesh:
        """Return the mesh of the devices that all processes use: of each, as many as `here` has, in order."""
        if self.devices is not None:
            return Mesh(np.array(self.devices), (self.axis_name,))
        devices = [
            device
            for i in process_indices(self.backend)
            for device in local_devices(i, self.backend)[: here.size]
        ]
        return Mesh(np.array(devices), (self.axis_name,))

    # ---- earlier stages
    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """Trace for these arguments (arrays, ShapeDtypeStructs or types); see `stages.Traced`."""
        args, kwargs = tree.tree_map(
            lambda x: ShapeDtypeStruct.like(x) if isinstance(x, ShapedArray) else x, (args, kwargs)
        )
        run, args, kwargs = self._place_and_compile(args, kwargs)
        return run.trace(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Trace and lower for these arguments; see `stages.Lowered`."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the types of the results, without computing them."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Drop all traces and executables."""
        self._compiled.clear()
        self._ready.clear()

    # ---- arguments
    def _flat(self, args: tuple, kwargs: dict) -> tuple[FlatFunction, list]:
        """Return the function of the leaves of the nonstatic arguments, and their mapped dims."""
        static = tuple(i % len(args) for i in self.static if -len(args) <= i < len(args))
        if len(static) != len(self.static):
            raise ValueError(
                f"{self.name}: static_broadcasted_argnums {self.static} name arguments that a call with {len(args)} "
                "positional arguments does not have. Pass them by position."
            )
        in_axes = self.in_axes
        if isinstance(in_axes, tuple):
            if len(in_axes) != len(args):
                raise ValueError(
                    f"{self.name}: in_axes must be an int, None, or a tuple with one entry per positional argument: "
                    f"got {quantity(len(in_axes), 'entry')} for {quantity(len(args), 'argument')}."
                )
            in_axes = tuple(d for i, d in enumerate(in_axes) if i not in static)
        flat = FlatFunction(self.fun, args, kwargs, static)
        dynamic = tuple(x for i, x in enumerate(args) if i not in static)
        return flat, resolve_mapped_dims(in_axes, dynamic, kwargs, flat.leaves, self.name)

    def _place_and_compile(self, args: tuple, kwargs: dict) -> tuple[JitFunction, tuple, dict]:
        """Return the compiled function for these arguments, and the arguments placed on its devices."""
        flat, dims = self._flat(args, kwargs)
        static = {i % len(args) for i in self.static}
        mesh = self._mesh(check_mapped_size(self.name, flat, dims, self.axis_size))
        leaves = [self._put(x, d, mesh) for x, d in zip(flat.leaves, dims)]
        dynamic, kwargs = tree.tree_unflatten(flat.in_tree, leaves)
        values = iter(dynamic)
        run = self._compiled.get(mesh)
        if run is None:
            run = self._compiled[mesh] = JitFunction(
                self._on(mesh), JitOptions(static_argnums=self.static, donate_argnums=self.donated)
            )
        return run, tuple(x if i in static else next(values) for i, x in enumerate(args)), kwargs

    def _mesh(self, size: int) -> Mesh:
        """Return a mesh of the first `size` devices in a row."""
        candidates = self.devices if self.devices is not None else all_devices(self.backend)
        local = [d for d in candidates if d.is_addressable]
        if not size:
            raise ValueError(
                f"{self.name}: the mapped axis has size 0, and there is no device to map over.\n"
                "  Each index of the mapped axis runs on its own device. Map over at least one index."
            )
        if size > len(local):
            raise ValueError(
                f"{self.name}: the mapped axis has size {size}, but there are {quantity(len(local), 'device')}: {list(local)}.\n"
                "  One device takes one index of the mapped axis. Reshape the dim to (devices, rest) and vmap over "
                "the rest, use more virtual devices (WEFT_NUM_DEVICES), or jit with a sharded argument."
            )
        return Mesh(np.array(local[:size]), (self.axis_name,))

    def _spec(self, dim: int | None) -> PartitionSpec:
        return PartitionSpec() if dim is None else PartitionSpec(*[None] * dim, self.axis_name)

    def _put(self, x: Any, dim: int | None, mesh: Mesh) -> Any:
        """Return a concrete array resharded so that dim `dim` is mapped over `mesh`; other values unchanged."""
        if type(x) is not Array:
            return x
        target = NamedSharding(mesh, self._spec(dim))
        return x if x.sharding.is_equivalent_to(target, x.ndim) else device_put(x, target)

    # ---- the program
    def _on(self, mesh: Mesh) -> Callable:
        """Return the function to compile for `mesh`."""
        # the cache of the function holds the result: a strong reference would form a cycle that keeps both alive
        me, fun = copy.copy(self), weakref.proxy(self.fun)
        me.fun = lambda *args, **kwargs: fun(*args, **kwargs)

        def run(*args, **kwargs):
            return me._run(mesh, args, kwargs)

        for it in (functools.update_wrapper(run, self.fun), me):
            vars(it).pop("__wrapped__")
        run.__signature__ = signature_of(self.fun)
        return run

    def _run(self, mesh: Mesh, args: tuple, kwargs: dict) -> Any:
        """Run the function on the slices of all devices. Float0 values (tangents of integers) have no bytes and are not transferred."""
        flat, dims = self._flat(args, kwargs)
        avals = list(map(typeof, flat.leaves))
        has_bytes = [a.dtype != float0 for a in avals]
        out_dims: list[int | None] = []
        empty: list[np.ndarray | None] = []

        def on_device(*slices):
            values = iter(slices)
            outs = self._on_slices(
                flat,
                [
                    _example(next(values), d) if is_passed else _empty_example(a, d)
                    for a, d, is_passed in zip(avals, dims, has_bytes)
                ],
            )
            out_dims[:] = result_dims(self.out_axes, flat, len(outs), self.name)
            empty[:] = [_empty_result(y, d, mesh.size) for y, d in zip(outs, out_dims)]
            kept_outs = [(y, d) for y, d, none in zip(outs, out_dims, empty) if none is None]
            mapped = [expand_dims(y, (0,)) for y, d in kept_outs if d is not None]
            return mapped, [y for y, d in kept_outs if d is None]

        one = shard_map(
            on_device,
            mesh=mesh,
            in_specs=tuple([self._spec(d) for d, is_passed in zip(dims, has_bytes) if is_passed]),
            out_specs=(self._spec(0), PartitionSpec()),
            check_vma=False,
        )
        mapped, same = map(
            iter, one(*[x for x, is_passed in zip(flat.leaves, has_bytes) if is_passed])
        )
        outs: list[Any] = []
        for d, none in zip(out_dims, empty):
            if none is not None:
                outs.append(none)
            else:
                outs.append(next(same) if d is None else self._move_mapped_dim(next(mapped), d))
        return flat.unflatten(outs)

    def _on_slices(self, flat: FlatFunction, examples: list) -> list:
        """Return the results of the function on the slices of one index."""
        _thread_state.depth += 1
        try:
            return flat(*examples)
        finally:
            _thread_state.depth -= 1

    def _move_mapped_dim(self, y: Any, dim: int) -> Any:
        """Return a result with its mapped dim moved from the front to `dim`."""
        ndim = typeof(y).ndim
        if not -ndim <= dim < ndim:
            raise ValueError(
                f"{self.name}: out_axes={dim} is out of range for a result of rank {ndim} with the mapped axis."
            )
        return move_dim(y, 0, dim % ndim)

    def _on_one_device(self, args: tuple, kwargs: dict) -> Any:
        """Run the function by vmap, without devices."""
        static = {i % len(args): args[i] for i in self.static}

        def call(*dynamic, **kw):
            values = iter(dynamic)
            return self.fun(
                *[static[i] if i in static else next(values) for i in range(len(args))], **kw
            )

        pick = lambda xs: tuple(x for i, x in enumerate(xs) if i not in static)
        in_axes = pick(self.in_axes) if isinstance(self.in_axes, tuple) else self.in_axes
        return vmap(call, in_axes, self.out_axes, self.axis_name, self.axis_size)(
            *pick(args), **kwargs
        )


def _example(x: Any, dim: int | None) -> Any:
    """Return one index of an argument, without the mapped dim."""
    return x if dim is None else squeeze(x, (dim,))


def _empty_example(aval: Any, dim: int | None) -> np.ndarray:
    """Return one index of a float0 argument."""
    whole = np.zeros(aval.shape, float0)
    return whole if dim is None else whole[(*[slice(None)] * dim, 0)]


def _empty_result(y: Any, dim: int | None, size: int) -> Any:
    """Return a float0 result with its mapped dim; None for other results."""
    if typeof(y).dtype != float0:
        return None
    return y if dim is None else np.stack([y] * size, dim)


def _change_devices(x: Array, sharding: NamedSharding) -> Array:
    """Return the local memory as an array with another sharding, over more or fewer devices, with the same shards in this process."""
    have = x._spec
    factor = sharding.mesh.size / have.sharding.mesh.size
    shape = tuple(
        int(n * factor) if entry is not None else n
        for n, entry in zip(x.shape, (*sharding.spec, *[None] * x.ndim))
    )
    return Array(
        ArraySpec(have.aval.update(shape=shape, sharding=None), sharding, True, have.order),
        x._live(),
    )


class PmapSharding:
    """The layouts of pmap: one slice of a dim per device. `PmapSharding.default(...)` returns such a NamedSharding."""

    __module__ = "weft.sharding"

    def __new__(cls, devices: Any, sharding_spec: Any) -> NamedSharding:
        raise NotImplementedError(
            "PmapSharding: made from a sharding spec it is not supported. Use PmapSharding.default(shape), or "
            "NamedSharding over a mesh of one axis."
        )

    @staticmethod
    def default(
        shape: Sequence[int], sharded_dim: int | None = 0, devices: Sequence | None = None
    ) -> NamedSharding:
        """Return the sharding of an array of `shape` with one slice of dim `sharded_dim` per device; replicated on all `devices` if None.

        >>> PmapSharding.default((1, 3)).spec
        P('pmap_axis',)
        """
        chosen = list(local_devices() if devices is None else devices)
        if sharded_dim is None:
            return NamedSharding(Mesh(np.array(chosen), (UNNAMED,)), PartitionSpec())
        size = shape[sharded_dim]
        if size > len(chosen):
            raise ValueError(
                f"PmapSharding.default: dim {sharded_dim} of shape {tuple(shape)} has size {size}, but there are "
                f"{quantity(len(chosen), 'device')}."
            )
        return NamedSharding(
            Mesh(np.array(chosen[:size]), (UNNAMED,)),
            PartitionSpec(*[None] * (sharded_dim % len(shape)), UNNAMED),
        )
