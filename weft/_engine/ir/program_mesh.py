"""The mesh of a program: one set of axes in which every sharding of the program can be written.

In:   the shardings met by one program (arguments, constraints, results).
Out:  one `Mesh`, and for each sharding its `Spec` (per-dim tuples of axis names) on it.
Laws: all shardings of a program have the same devices in the same order; NamedShardings over one mesh use it as it is;
      otherwise the flat device order is factored until every sharding's splits are products of whole axes. A sharding
      that no factoring fits has no spec (`to_spec` gives None): its value is resharded where it enters.
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
    Layout,
    NamedSharding,
    PositionalSharding,
    Sharding,
    layout_of,
)
from weft._engine.ir.specs import PartitionSpec, Spec, grid_of_dims, spec_of_dims
from weft._engine.util.errors import ShardingError

Digits = tuple[int, ...]  # sizes of the digits of the flat device number, major to minor


def constraint_shardings(jaxpr: Jaxpr) -> tuple[Sharding, ...]:
    """Every sharding that a constraint or a call in the program names, nested programs included, each once."""
    return tuple(operations_that_name(jaxpr))


def operations_that_name(jaxpr: Jaxpr) -> dict[Sharding, str]:
    """The same shardings, each with the name of the operation that names it first, the outermost before those inside."""

    def make():
        found: dict[Sharding, str] = {}
        for eqn in jaxpr.eqns:
            name = eqn.primitive.name
            if eqn.primitive.per_device:  # its program names every axis of its mesh
                mesh = eqn.params["mesh"]
                for axis in mesh.axis_names:
                    found.setdefault(NamedSharding(mesh, PartitionSpec(axis)), name)
            named = (eqn.params["sharding"],) if eqn.primitive.is_constraint else ()
            for s in (
                *named,
                *eqn.params.get("in_shardings", ()),
                *eqn.params.get("out_shardings", ()),
            ):
                if isinstance(s, Sharding) and not is_abstract(s):
                    found.setdefault(s.settled, name)
            for _, inner in subjaxprs(eqn.params):
                for s, inside in operations_that_name(inner).items():
                    found.setdefault(s, inside)
        return found

    return jaxpr.memo("constraints", make)


def typed_devices(jaxpr: Jaxpr) -> tuple[Any, ...] | None:
    """The devices that explicitly sharded types of a program's variables mention, or None."""
    for v in (*jaxpr.invars, *(v for eqn in jaxpr.eqns for v in eqn.outvars)):
        if v.aval.explicit is not None:
            mesh = concrete_mesh(v.aval.explicit.mesh)
            return None if mesh is None else mesh.flat_devices
    return None


def is_abstract(sharding: Sharding) -> TypeGuard[NamedSharding]:
    """Whether a sharding names axes without devices, as types do."""
    return isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh)


def with_devices(jaxpr: Jaxpr, devices: tuple[Any, ...]) -> Jaxpr:
    """`jaxpr` with every shard_map over an abstract mesh on these devices; ShardingError if they are not as many as its mesh has."""

    def changed(eqn: Eqn) -> Eqn:
        params = map_jaxprs(eqn.params, lambda inner: with_devices(inner, devices))
        mesh = params.get("mesh")
        if eqn.primitive.per_device and isinstance(mesh, AbstractMesh):
            if mesh.size != len(devices):
                raise ShardingError(
                    f"shard_map: {mesh} has no devices, and the computation runs on {len(devices)}.\n  Pass arrays "
                    f"laid out on a mesh of {mesh.size} devices, or enter a mesh with these axes (`with mesh:`)."
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


def moved(jaxpr: Jaxpr, devices: tuple[Any, ...] | None) -> Jaxpr:
    """`jaxpr` with its shardings on `devices`, as many as they name, in order; None leaves those where they are. Shardings over one device
    say nothing of a program, which may run on any: constraints by them are left out."""

    def place(s: Sharding | None) -> Sharding | None:
        if not isinstance(s, Sharding) or is_abstract(s):
            return s
        return None if s.num_devices == 1 else s if devices is None else s.on_devices(devices)

    env: dict[Any, Any] = {}
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        eqn = substitute([eqn], env)[0] if env else eqn
        params = map_jaxprs(eqn.params, lambda inner: moved(inner, devices))
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
    """Return the parameters of an equation that name shardings or devices, on other devices."""
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
    """The layout of values of rank `ndim` over the axes of a mesh without devices; over none for a sharding of one device.

    >>> from weft._engine.runtime.device import devices
    >>> without_devices(PositionalSharding(devices()[:2]).reshape(1, 2), 2).spec
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


def over_mesh(sharding: NamedSharding, mesh: Mesh | AbstractMesh, ndim: int) -> NamedSharding:
    """The same layout of values of rank `ndim` by the axes of another mesh, which may be named and cut otherwise. ShardingError if the mesh
    has another number of devices, or no axes that cut it so."""
    kind = sharding.memory_kind
    if not sharding.spec.axes:
        return NamedSharding(mesh, PartitionSpec(*[None] * ndim), memory_kind=kind)
    if (
        all(mesh.shape.get(a) == n for a, n in sharding.mesh.shape_tuple)
        and mesh.size == sharding.mesh.size
    ):
        return NamedSharding(mesh, sharding.spec, memory_kind=kind)
    if mesh.size == sharding.mesh.size:
        places = tuple(range(mesh.size))  # stand for devices
        stand_in = Mesh(np.array(places, object).reshape(mesh.axis_sizes), mesh.axis_names)
        dims = to_spec(sharding.on_devices(places), stand_in, ndim)
        if dims is not None:
            return NamedSharding(mesh, spec_of_dims(dims).without_trailing(), memory_kind=kind)
    raise ShardingError(
        f"{sharding!r} has no equal over {mesh}.\n  Give a mesh of {sharding.mesh.size} devices, in whose axes its blocks "
        "can be written."
    )


def has_shard_map(jaxpr: Jaxpr) -> bool:
    """Whether there is a shard_map anywhere in the program."""
    return jaxpr.memo(
        "has shard_map",
        lambda: any(
            e.primitive.per_device or any(has_shard_map(j) for _, j in subjaxprs(e.params))
            for e in jaxpr.eqns
        ),
    )


def common_mesh(shardings: Sequence[Sharding]) -> Mesh:
    """The mesh on which all `shardings` of one program are expressed.

    >>> from weft._engine.runtime.device import devices
    >>> four = PositionalSharding(devices()[:4])
    >>> common_mesh([four.reshape(2, 2), four.reshape(4, 1)])
    Mesh(axis_sizes=(2, 2), axis_names=('d0', 'd1'), axis_types=(Auto, Auto))
    """
    check_same_devices(shardings)
    return _common_mesh(tuple(dict.fromkeys(shardings)))


def check_same_devices(
    shardings: Sequence[Sharding], name_of: Callable[[int], str] = "value {}".format
) -> None:
    """Raise ValueError unless all shardings have the same devices in the same order.

    `name_of(i)` says in the error what sharding i belongs to, as "argument x of f with shape float32[8]".
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
    digits = _merged(digits, layouts, named[0].axis_sizes if named else ())
    names = _digit_names(digits, named[0] if named else None)
    return Mesh(np.array(devices, object).reshape(digits), names)


def _is_expressible(sharding: Sharding, mesh: Mesh) -> bool:
    """Whether axes of `mesh` express `sharding`."""
    named = isinstance(sharding, NamedSharding) and sharding.mesh is mesh
    return named or _dims_on(layout_of(sharding, _natural_rank(sharding)), mesh) is not None


def _natural_rank(sharding: Sharding) -> int:
    """A rank at which all that `sharding` says is visible."""
    if isinstance(sharding, NamedSharding):
        return len(sharding.spec)
    return sharding.ndim if isinstance(sharding, PositionalSharding) else 0


def to_spec(sharding: Sharding, mesh: Mesh, ndim: int) -> Spec | None:
    """Per-dim tuples of axes of `mesh` that express `sharding` for values of rank `ndim`, or None if none do.

    >>> from weft._engine.runtime.device import devices
    >>> four = PositionalSharding(devices()[:4])
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
def _dims_on(layout: Layout, mesh: Mesh) -> Spec | None:
    if layout.devices != mesh.flat_devices:
        return None
    dims = _digits_of_dims(layout, mesh.axis_sizes)
    return None if dims is None else tuple(tuple(mesh.axis_names[j] for j in dim) for dim in dims)


def _digits_of_dims(layout: Layout, digits: Digits) -> tuple[tuple[int, ...], ...] | None:
    """For each dim the digit numbers (major to minor) whose mixed-radix value is the block position, or None.

    Each split dim's position must be read off whole digits, and no digit may be used by two dims.
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
        chosen = tuple(sorted((j for j, w in weights.items() if w), key=lambda j: -weights[j]))
        if used & set(chosen) or math.prod(digits[j] for j in chosen) != split:
            return None
        used |= set(chosen)
        dims.append(chosen)
    names = tuple(range(len(digits)))
    if grid_of_dims(tuple(dims), names, digits)[1] != layout.shard_ids:
        return None
    return tuple(dims)


def _best_digits(layouts: Sequence[Layout], n: int, meshes: Sequence[Digits]) -> Digits:
    """The ordered prime factoring of `n` devices that keeps the named meshes whole and fits most layouts."""

    def served(digits: Digits) -> int:
        return sum(_refines(digits, m) for m in meshes) * 1000 + sum(
            _digits_of_dims(layout, digits) is not None for layout in layouts
        )

    return max(_ordered_prime_factorings(n), key=served)


def _ordered_prime_factorings(n: int) -> Iterator[Digits]:
    from weft._engine.util.primes import distinct_orders, prime_factors

    return distinct_orders(prime_factors(n))


def _strides(digits: Sequence[int]) -> tuple[int, ...]:
    """Product of the sizes after each digit."""
    return tuple(math.prod(digits[j + 1 :]) for j in range(len(digits)))


def _refines(digits: Digits, sizes: Digits) -> bool:
    """Whether axes of `sizes` are groups of neighbouring `digits`."""
    return {s for s, size in zip(_strides(sizes), sizes) if size > 1} <= set(_strides(digits)) | {1}


def _merged(digits: Digits, layouts: Sequence[Layout], keep: Digits) -> Digits:
    """Unite neighbouring digits that every layout uses together, but for the boundaries of the axes `keep`."""
    served = [layout for layout in layouts if _digits_of_dims(layout, digits) is not None]
    kept = set(_strides(keep))
    j = 0
    while j + 1 < len(digits):
        boundary = math.prod(digits[j + 1 :])
        merged = (*digits[:j], digits[j] * digits[j + 1], *digits[j + 2 :])
        if boundary not in kept and all(
            _digits_of_dims(layout, merged) is not None for layout in served
        ):
            digits = merged
        else:
            j += 1
    return digits or (1,)


def _digit_names(digits: Digits, mesh: Mesh | None) -> tuple[str, ...]:
    """Names of refined axes: that of the mesh axis they are, or `axis.k` for part k of it, or `d0`, `d1`, ..."""
    if mesh is None or not _refines(digits, mesh.axis_sizes):
        return tuple(f"d{j}" for j in range(len(digits)))
    names: list[str] = []
    strides = _strides(digits)
    for axis, size, stride in zip(mesh.axis_names, mesh.axis_sizes, _strides(mesh.axis_sizes)):
        parts = [j for j, s in enumerate(strides) if stride <= s < stride * size]
        names += [axis] if len(parts) == 1 else [f"{axis}.{k}" for k in range(len(parts))]
    return tuple(names)


def sharding_of_spec(spec: Spec, mesh: Mesh, known: Sequence[Sharding] = ()) -> Sharding:
    """The sharding to show users for a value split by `spec`.

    Return an equivalent sharding among `known` that fits the rank, or a PositionalSharding if all of `known` are. Otherwise return a
    NamedSharding on `mesh`; its spec has an entry per dim if the axes of `spec` are explicit, which makes it the spec of the type.
    """
    entries, explicit = spec_of_dims(spec), mesh.explicit_axes
    typed = bool(explicit) and all(a in explicit for axes in spec for a in axes)
    named = NamedSharding(mesh, entries if typed else entries.without_trailing())
    ndim = len(spec)
    for other in known:
        if (
            isinstance(other, NamedSharding) and other.spec.unconstrained_dims()
        ):  # a constraint, not a layout
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


def _positional(layout: Layout) -> PositionalSharding:
    ids = np.empty(layout.num_shards, object)
    for shard in range(layout.num_shards):
        ids[shard] = frozenset(i for i, s in enumerate(layout.shard_ids) if s == shard)
    return PositionalSharding(layout.devices).with_sets(ids.reshape(layout.splits))
