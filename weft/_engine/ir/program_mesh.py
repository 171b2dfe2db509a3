"""The mesh of a program: one mesh whose axes express all shardings of the program.

In:   the shardings in one program (arguments, constraints, results).
Out:  one `Mesh`, and for each sharding its `Spec` (a tuple of axis names per dim) on this mesh.
Laws: all shardings of a program have the same devices in the same order. If a mesh of the program's NamedShardings expresses all
      shardings, it is the program's mesh. Otherwise the number of devices is factored into axes such that the splits of each
      sharding are products of axes. A sharding that no factoring expresses has no spec (`to_spec` returns None); its value
      is resharded at the program's boundary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeGuard

import numpy as np

from weft._engine.ir.explicit import on_devices
from weft._engine.ir.jaxpr import Eqn, Jaxpr, subjaxprs
from weft._engine.ir.mesh import AbstractMesh, Mesh, concrete_mesh
from weft._engine.ir.rewrite import map_jaxprs, substitute
from weft._engine.ir.shardings import (
    NamedSharding,
    PositionalSharding,
    Sharding,
    ShardLayout,
    layout_of,
)
from weft._engine.ir.specs import PartitionSpec, Spec, grid_of_dims, spec_of_dims
from weft._engine.util.errors import ShardingError
from weft._engine.util.messages.quantities import quantity

#: sizes of the digits of a device number in mixed radix, major to minor; each digit is an axis of the program's mesh
Digits = tuple[int, ...]


def constraint_shardings(jaxpr: Jaxpr) -> tuple[Sharding, ...]:
    """Return every sharding in constraints and calls of the program, including nested programs, once."""
    return tuple(operations_by_sharding(jaxpr))


def operations_by_sharding(jaxpr: Jaxpr) -> dict[Sharding, str]:
    """Return the shardings of `constraint_shardings`, each with the name of the first operation that has it; outer ones come first."""

    def make():
        operations: dict[Sharding, str] = {}
        for eqn in jaxpr.eqns:
            name = eqn.primitive.name
            if eqn.primitive.per_device:  # the inner program may use every axis of the mesh
                mesh = eqn.params["mesh"]
                for axis in mesh.axis_names:
                    operations.setdefault(NamedSharding(mesh, PartitionSpec(axis)), name)
            named = (eqn.params["sharding"],) if eqn.primitive.is_constraint else ()
            for s in (
                *named,
                *eqn.params.get("in_shardings", ()),
                *eqn.params.get("out_shardings", ()),
            ):
                if isinstance(s, Sharding) and not is_abstract(s):
                    operations.setdefault(s.without_partial_axes, name)
            for _, inner in subjaxprs(eqn.params):
                for s, inside in operations_by_sharding(inner).items():
                    operations.setdefault(s, inside)
        return operations

    return jaxpr.memo("constraints", make)


def devices_of_types(jaxpr: Jaxpr) -> tuple[Any, ...] | None:
    """Return the devices of the mesh in the explicit types of a program's variables, or None."""
    for v in (*jaxpr.invars, *(v for eqn in jaxpr.eqns for v in eqn.outvars)):
        if v.aval.explicit is not None:
            mesh = concrete_mesh(v.aval.explicit.mesh)
            return None if mesh is None else mesh.flat_devices
    return None


def is_abstract(sharding: Sharding) -> TypeGuard[NamedSharding]:
    """Return whether a sharding is over an abstract mesh, as the shardings in types are."""
    return isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh)


def with_devices(jaxpr: Jaxpr, devices: tuple[Any, ...]) -> Jaxpr:
    """Put every shard_map over an abstract mesh in `jaxpr` on the given devices. Raise ShardingError if their number differs."""

    def changed(eqn: Eqn) -> Eqn:
        params = map_jaxprs(eqn.params, lambda inner: with_devices(inner, devices))
        mesh = params.get("mesh")
        if eqn.primitive.per_device and isinstance(mesh, AbstractMesh):
            if mesh.size != len(devices):
                raise ShardingError(
                    f"shard_map: {mesh} has no devices, and the computation runs on {len(devices)}.\n"
                    f"  Pass arrays on a mesh of {quantity(mesh.size, 'device')}, or enter a mesh with these axes (`with mesh:`)."
                )
            params = {
                **params,
                "mesh": on_devices(NamedSharding(mesh, PartitionSpec()), devices).mesh,
            }
        return eqn if params is eqn.params else eqn.replace(params=params)

    if not has_shard_map(jaxpr):
        return jaxpr
    eqns = [changed(eqn) for eqn in jaxpr.eqns]
    return jaxpr if all(a is b for a, b in zip(eqns, jaxpr.eqns)) else jaxpr.replace(eqns=eqns)


def move_to_devices(jaxpr: Jaxpr, devices: tuple[Any, ...] | None) -> Jaxpr:
    """Replace the devices of all shardings in `jaxpr` by `devices`, in order; with None the devices stay.

    Constraints with a sharding on one device are removed, because a program may run on any device.
    """

    def place(s: Sharding | None) -> Sharding | None:
        if not isinstance(s, Sharding) or is_abstract(s):
            return s
        return None if s.num_devices == 1 else s if devices is None else s.on_devices(devices)

    env: dict[Any, Any] = {}
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        eqn = substitute([eqn], env)[0] if env else eqn
        params = map_jaxprs(eqn.params, lambda inner: move_to_devices(inner, devices))
        eqn = eqn if params is eqn.params else eqn.replace(params=params)
        changed = _place_params(eqn, place, devices)
        sharding = params["sharding"] if eqn.primitive.is_constraint else None
        if sharding is not None and changed["sharding"] is None:
            if eqn.invars[0].aval is eqn.outvars[0].aval:
                env[eqn.outvars[0]] = eqn.invars[0]
                continue
        eqns.append(eqn.replace(params={**params, **changed}) if changed else eqn)
    return jaxpr.replace(eqns=eqns, outvars=[env.get(v, v) for v in jaxpr.outvars])


def _place_params(
    eqn: Eqn, place: Callable[[Any], Sharding | None], devices: tuple[Any, ...] | None
) -> dict[str, Any]:
    """Return the parameters of an equation that contain shardings or a mesh, on other devices."""
    params = eqn.params
    changed: dict[str, Any] = {
        name: tuple(map(place, params[name]))
        for name in ("in_shardings", "out_shardings")
        if name in params
    }
    if eqn.primitive.is_constraint:
        changed["sharding"] = place(params["sharding"])
    if eqn.primitive.per_device and devices is not None:
        mesh = params["mesh"]
        if isinstance(mesh, Mesh) and mesh.size > 1:
            changed["mesh"] = NamedSharding(mesh, PartitionSpec()).on_devices(devices).mesh
    return changed


def without_devices(sharding: Sharding, ndim: int) -> NamedSharding:
    """Return a sharding of values of rank `ndim` as a NamedSharding over an abstract mesh, without axes for a single device.

    >>> without_devices(PositionalSharding(weft.devices()[:2]).reshape(1, 2), 2).spec
    P(None, 'd0')
    """
    kind = sharding.memory_kind
    if isinstance(sharding, NamedSharding):
        return NamedSharding(sharding.mesh.abstract_mesh, sharding.spec, memory_kind=kind)
    if sharding.num_devices == 1:
        return NamedSharding(AbstractMesh((), ()), PartitionSpec(*[None] * ndim), memory_kind=kind)
    mesh = common_mesh([sharding])
    dims = to_spec(sharding, mesh, ndim)
    assert dims is not None
    return NamedSharding(mesh.abstract_mesh, spec_of_dims(dims), memory_kind=kind)


def express_on_mesh(sharding: NamedSharding, mesh: Mesh | AbstractMesh, ndim: int) -> NamedSharding:
    """Return an equivalent sharding of values of rank `ndim` over another mesh, which may have other axis names and sizes.

    Raise ShardingError if the mesh has another number of devices, or if its axes do not express the sharding.
    """
    kind = sharding.memory_kind
    if not sharding.spec.axes:
        return NamedSharding(mesh, PartitionSpec(*[None] * ndim), memory_kind=kind)
    if (
        all(mesh.shape.get(a) == n for a, n in sharding.mesh.shape_tuple)
        and mesh.size == sharding.mesh.size
    ):
        return NamedSharding(mesh, sharding.spec, memory_kind=kind)
    if mesh.size == sharding.mesh.size:
        places = tuple(range(mesh.size))  # in place of devices
        stand_in = Mesh(np.array(places, object).reshape(mesh.axis_sizes), mesh.axis_names)
        dims = to_spec(sharding.on_devices(places), stand_in, ndim)
        if dims is not None:
            return NamedSharding(mesh, spec_of_dims(dims).without_trailing(), memory_kind=kind)
    raise ShardingError(
        f"{sharding!r} has no equivalent over {mesh}.\n  Pass a mesh of {quantity(sharding.mesh.size, 'device')} whose axes can express the "
        "sharding."
    )


def has_shard_map(jaxpr: Jaxpr) -> bool:
    """Return whether the program contains a shard_map, at any depth."""
    return jaxpr.memo(
        "has shard_map",
        lambda: any(
            e.primitive.per_device or any(has_shard_map(j) for _, j in subjaxprs(e.params))
            for e in jaxpr.eqns
        ),
    )


def common_mesh(shardings: Sequence[Sharding]) -> Mesh:
    """Return the mesh whose axes express all `shardings` of one program, as far as possible.

    >>> four = PositionalSharding(weft.devices()[:4])
    >>> common_mesh([four.reshape(2, 2), four.reshape(4, 1)])
    Mesh(axis_sizes=(2, 2), axis_names=('d0', 'd1'), axis_types=(Auto, Auto))
    """
    check_same_devices(shardings)
    return _common_mesh(tuple(dict.fromkeys(shardings)))


def check_same_devices(
    shardings: Sequence[Sharding], name_of: Callable[[int], str] = "value {}".format
) -> None:
    """Raise ValueError unless all shardings have the same devices in the same order.

    `name_of(i)` returns the name of the value with sharding i for the message, such as "argument x of f with shape float32[8]".
    """
    for i, sharding in enumerate(shardings):
        expected, devices = shardings[0].device_assignment, sharding.device_assignment
        if devices is not expected and devices != expected:
            ids = [[d.id for d in s.device_assignment] for s in (shardings[0], sharding)]
            of = [
                f"{name_of(k)} and device ids {numbers} on platform {shardings[k].device_assignment[0].platform.upper()}"
                for k, numbers in zip((0, i), ids)
            ]
            why = (
                "The devices are the same, but their order differs."
                if set(ids[0]) == set(ids[1])
                else "The devices differ."
            )
            raise ValueError(
                f"Received incompatible devices for jitted computation. Got {of[0]} and {of[1]}.\n"
                f"  {why} All committed arguments of a computation must be on the same devices in the same order. "
                "Move one with weft.device_put(x, other.sharding)."
            )


@lru_cache(maxsize=1024)
def _common_mesh(shardings: tuple[Sharding, ...]) -> Mesh:
    named = list(dict.fromkeys(s.mesh for s in shardings if isinstance(s, NamedSharding)))
    devices = shardings[0].device_assignment
    for mesh in named:
        if all(_is_expressible(s, mesh) for s in shardings):
            return mesh
    layouts = [layout_of(s, _natural_rank(s)) for s in shardings]
    digits = _best_digits(layouts, len(devices), [m.axis_sizes for m in named])
    digits = _merge_digits(digits, layouts, named[0].axis_sizes if named else ())
    names = _digit_names(digits, named[0] if named else None)
    return Mesh(np.array(devices, object).reshape(digits), names)


def _is_expressible(sharding: Sharding, mesh: Mesh) -> bool:
    """Return whether the axes of `mesh` express `sharding`."""
    named = isinstance(sharding, NamedSharding) and sharding.mesh is mesh
    return named or _dims_on(layout_of(sharding, _natural_rank(sharding)), mesh) is not None


def _natural_rank(sharding: Sharding) -> int:
    """Return the lowest rank of a value that uses all parts of `sharding`."""
    if isinstance(sharding, NamedSharding):
        return len(sharding.spec)
    return sharding.ndim if isinstance(sharding, PositionalSharding) else 0


def to_spec(sharding: Sharding, mesh: Mesh, ndim: int) -> Spec | None:
    """Return the axes of `mesh` per dim that express `sharding` for values of rank `ndim`, or None if that is impossible.

    >>> four = PositionalSharding(weft.devices()[:4])
    >>> mesh = common_mesh([four.reshape(2, 2), four.reshape(4, 1)])
    >>> to_spec(four.reshape(4, 1), mesh, 2)
    (('d0', 'd1'), ())
    """
    if is_abstract(sharding):
        sharding = on_devices(sharding, mesh.flat_devices)
    if isinstance(sharding, NamedSharding) and sharding.mesh is mesh:
        return sharding.spec_dims(ndim)
    return _dims_on(layout_of(sharding, ndim), mesh)


@lru_cache(maxsize=4096)
def _dims_on(layout: ShardLayout, mesh: Mesh) -> Spec | None:
    if layout.devices != mesh.flat_devices:
        return None
    dims = _digits_of_dims(layout, mesh.axis_sizes)
    return None if dims is None else tuple(tuple(mesh.axis_names[j] for j in dim) for dim in dims)


def _digits_of_dims(layout: ShardLayout, digits: Digits) -> tuple[tuple[int, ...], ...] | None:
    """Return for each dim the indices of the digits (major to minor) whose mixed-radix value is the block position, or None.

    A dim must use whole digits, and two dims must not use the same digit.
    """
    n = math.prod(digits)
    positions = np.array(layout.positions, int).reshape(n, len(layout.splits))
    grid = positions.reshape(*digits, -1)
    used: set[int] = set()
    dims: list[tuple[int, ...]] = []
    for d, split in enumerate(layout.splits):
        weights = {
            j: int(grid[(0,) * j + (1,) + (0,) * (len(digits) - j - 1) + (d,)])
            for j, size in enumerate(digits)
            if size > 1
        }
        dim_digits = tuple(sorted((j for j, w in weights.items() if w), key=lambda j: -weights[j]))
        if used & set(dim_digits) or math.prod(digits[j] for j in dim_digits) != split:
            return None
        used |= set(dim_digits)
        dims.append(dim_digits)
    names = tuple(range(len(digits)))
    if grid_of_dims(tuple(dims), names, digits)[1] != layout.shard_ids:
        return None
    return tuple(dims)


def _best_digits(layouts: Sequence[ShardLayout], n: int, meshes: Sequence[Digits]) -> Digits:
    """Return the ordered prime factorization of `n` devices that refines most of `meshes`, and then expresses most layouts."""

    def score(digits: Digits) -> int:
        return sum(_refines(digits, m) for m in meshes) * 1000 + sum(
            _digits_of_dims(layout, digits) is not None for layout in layouts
        )

    return max(_ordered_prime_factorings(n), key=score)


def _ordered_prime_factorings(n: int) -> Iterator[Digits]:
    from weft._engine.util.primes import distinct_orders, prime_factors

    return distinct_orders(prime_factors(n))


def _strides(digits: Sequence[int]) -> tuple[int, ...]:
    """Return for each digit the product of the sizes of the digits after it."""
    return tuple(math.prod(digits[j + 1 :]) for j in range(len(digits)))


def _refines(digits: Digits, sizes: Digits) -> bool:
    """Return whether axes of the given sizes are groups of adjacent `digits`."""
    return {s for s, size in zip(_strides(sizes), sizes) if size > 1} <= set(_strides(digits)) | {1}


def _merge_digits(digits: Digits, layouts: Sequence[ShardLayout], keep: Digits) -> Digits:
    """Merge adjacent digits that every layout uses together, but not across the boundaries of axes of the sizes `keep`."""
    expressible = [layout for layout in layouts if _digits_of_dims(layout, digits) is not None]
    boundaries = set(_strides(keep))
    j = 0
    while j + 1 < len(digits):
        boundary = math.prod(digits[j + 1 :])
        merged = (*digits[:j], digits[j] * digits[j + 1], *digits[j + 2 :])
        if boundary not in boundaries and all(
            _digits_of_dims(layout, merged) is not None for layout in expressible
        ):
            digits = merged
        else:
            j += 1
    return digits or (1,)


def _digit_names(digits: Digits, mesh: Mesh | None) -> tuple[str, ...]:
    """Return the names of the digits as axes: the name of the mesh axis, `axis.k` for part k of it, or `d0`, `d1`, ..."""
    if mesh is None or not _refines(digits, mesh.axis_sizes):
        return tuple(f"d{j}" for j in range(len(digits)))
    names: list[str] = []
    strides = _strides(digits)
    for axis, size, stride in zip(mesh.axis_names, mesh.axis_sizes, _strides(mesh.axis_sizes)):
        parts = [j for j, s in enumerate(strides) if stride <= s < stride * size]
        names += [axis] if len(parts) == 1 else [f"{axis}.{k}" for k in range(len(parts))]
    return tuple(names)


def sharding_of_spec(spec: Spec, mesh: Mesh, known: Sequence[Sharding] = ()) -> Sharding:
    """Return the public sharding of a value that is sharded by `spec`.

    It is an equivalent sharding among `known` that fits the rank, or a PositionalSharding if all of `known` are. Otherwise it is a
    NamedSharding on `mesh`; its spec has an entry per dim if the axes of `spec` are explicit, as specs in types have.
    """
    entries, explicit = spec_of_dims(spec), mesh.explicit_axes
    typed = bool(explicit) and all(a in explicit for axes in spec for a in axes)
    named = NamedSharding(mesh, entries if typed else entries.without_trailing())
    ndim = len(spec)
    for other in known:
        # a sharding with unconstrained dims is a constraint and no placement
        if isinstance(other, NamedSharding) and other.spec.unconstrained_dims():
            continue
        try:
            other.check_compatible_aval((0,) * ndim)
            if other.is_equivalent_to(named, ndim):
                return other
        except ShardingError:
            continue
    if known and all(isinstance(s, PositionalSharding) for s in known) and ndim:
        return _positional(layout_of(named, ndim))
    return named


def _positional(layout: ShardLayout) -> PositionalSharding:
    ids = np.empty(layout.num_shards, object)
    for shard in range(layout.num_shards):
        ids[shard] = frozenset(i for i, s in enumerate(layout.shard_ids) if s == shard)
    return PositionalSharding(layout.devices).with_sets(ids.reshape(layout.splits))
