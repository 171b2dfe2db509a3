"""Shardings in types: explicit mesh axes in the types of values, and the rule for the types of results.

The sharding in a type is a NamedSharding over an AbstractMesh whose spec names explicit axes only. It is None for a new constant
and for a value whose sharding the compiler chooses. `type_sharding` computes it from a placement; `on_devices` replaces the abstract
mesh by a mesh of devices.

`result_dims` computes the shardings of results for every operation by its factors: operands that shard a factor must use the same
axes, factors of results keep their axes, and reduced factors lose them. A `Conflict` describes results that the operands do not
determine, or that would require resharding an operand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from weft._engine.ir.factors import FactorRule, axes_of_factors, dims_of_factors
from weft._engine.ir.mesh import AbstractMesh, AxisType, Mesh
from weft._engine.ir.shardings import NamedSharding, Sharding, SingleDeviceSharding
from weft._engine.ir.specs import DimSpec, PartitionSpec, Spec, entry_axes, spec_of_dims
from weft._engine.util.config import config
from weft._engine.util.errors import ShardingError
from weft._engine.util.record import field, record


@record
class OpTraits:
    """The properties of an op, in addition to its factor rule, that determine result shardings.

    is_elementwise        errors use JAX's message for broadcasting
    is_layout             the op rearranges elements: dims with several factors may be sharded over the axes of all of them
    is_product            a sum over a dim that several operands shard is ambiguous: the result may be replicated or sharded
    shards_like_operands  a result dim whose factor is not a factor of an operand is sharded like the operand's dim
    """

    is_elementwise: bool = False
    is_layout: bool = False
    is_product: bool = False
    shards_like_operands: bool = False


def type_sharding(sharding: Sharding, ndim: int) -> NamedSharding | None:
    """Return the sharding in the type of a value of rank `ndim` that is placed with `sharding`, or None if its mesh has no explicit axes.

    Axes of size 1 are omitted if the setting `remove_size_one_mesh_axis_from_type` is on.

    >>> mesh = AbstractMesh((2, 2), ('x', 'y'), (AxisType.Explicit, AxisType.Auto))
    >>> type_sharding(NamedSharding(mesh, spec_of_dims((('x',), ('y',)))), 2).spec
    P('x', None)
    """
    if type(sharding) is SingleDeviceSharding:
        return None
    return _type_sharding(sharding, ndim, config.remove_size_one_mesh_axis_from_type)


@lru_cache(maxsize=4096)
def _type_sharding(sharding: Sharding, ndim: int, without_ones: bool) -> NamedSharding | None:
    if not isinstance(sharding, NamedSharding) or not sharding.mesh.explicit_axes:
        return None
    mesh = sharding.mesh.abstract_mesh
    named = frozenset(a for a in mesh.explicit_axes if mesh.shape[a] > 1 or not without_ones)
    spec = spec_of_dims(
        tuple(tuple(a for a in axes if a in named) for axes in sharding.spec_dims(ndim))
    )
    if sharding.spec.is_partial:
        spec = _with_terms(spec, sharding.spec, named)
    return NamedSharding(mesh, spec)


def typed_axes(axes: Iterable[Any], mesh: Any) -> frozenset[Any]:
    """Return the axes that types contain: all axes, or only axes of size > 1 if `remove_size_one_mesh_axis_from_type` is on."""
    if not config.remove_size_one_mesh_axis_from_type:
        return frozenset(axes)
    return frozenset(a for a in axes if mesh.shape.get(a) != 1)


def _with_terms(
    spec: PartitionSpec, source: PartitionSpec, explicit: frozenset[Any]
) -> PartitionSpec:
    """Return `spec` with the explicit axes among the unreduced and reduced axes of `source`."""
    terms = source.unreduced & explicit
    return spec.update(
        unreduced=terms,
        reduced=source.reduced & explicit,
        unreduced_kind=source.unreduced_kind if terms else None,
    )


def is_partial(aval: Any) -> bool:
    """Return whether a type has unreduced or reduced explicit axes."""
    return aval.explicit is not None and aval.explicit.spec.is_partial


def dual(sharding: NamedSharding | None) -> NamedSharding | None:
    """Return the sharding in the type of cotangents: unreduced and reduced axes are exchanged.

    >>> mesh = AbstractMesh((2,), ('x',), (AxisType.Explicit,))
    >>> dual(NamedSharding(mesh, PartitionSpec(None, unreduced={'x'}))).spec
    P(None, reduced={'x'})
    """
    if sharding is None or not sharding.spec.is_partial:
        return sharding
    spec = sharding.spec
    return sharding.with_spec(
        PartitionSpec(*spec.partitions, unreduced=spec.reduced, reduced=spec.unreduced)
    )


def auto_part(sharding: NamedSharding, ndim: int) -> NamedSharding | None:
    """Return the constraint on dims that are sharded over axes that are not explicit, for values of rank `ndim`.

    Other dims are UNCONSTRAINED. Return None if the spec has no such axes.
    """
    explicit = sharding.mesh.explicit_axes
    if all(a in explicit for a in sharding.spec.axes):
        return None
    free = PartitionSpec.UNCONSTRAINED
    entries = [
        e if any(a not in explicit for a in entry_axes(e)) else free
        for e in sharding.spec.partitions
    ]
    return sharding.with_spec([*entries, *[free] * (ndim - len(entries))])


@lru_cache(maxsize=4096)
def on_devices(sharding: NamedSharding, devices: tuple[Any, ...]) -> NamedSharding:
    """Return a sharding over an abstract mesh as a sharding on the given devices. Return other shardings unchanged."""
    if not isinstance(sharding.mesh, AbstractMesh):
        return sharding
    mesh = sharding.mesh
    if mesh.size != len(devices):
        raise ShardingError(
            f"a value of type {sharding.spec!r} over {mesh} is used in a computation on {len(devices)} "
            f"devices.\n  All values of a computation must be on the same devices. Move one with weft.device_put."
        )
    grid = np.array(devices, object).reshape(mesh.axis_sizes)
    concrete_mesh = Mesh(grid, mesh.axis_names, axis_types=mesh.axis_types)
    return NamedSharding(concrete_mesh, sharding.spec, memory_kind=sharding.memory_kind)


def has_explicit_axes(sharding: Sharding) -> bool:
    """Return whether values with this placement have a sharding in their type."""
    return isinstance(sharding, NamedSharding) and bool(sharding.mesh.explicit_axes)


def determines_placement(sharding: NamedSharding | None) -> bool:
    """Return whether all axes of the mesh are explicit, so that the type determines the placement."""
    return sharding is not None and sharding.mesh.are_all_axes_explicit


def with_axis_types(mesh: Any, axes: Sequence[Any], kind: AxisType) -> Any:
    """Return `mesh` with the axis type `kind` for the given axes."""
    return mesh.update(
        axis_types=tuple(kind if n in axes else t for n, t in zip(mesh.axis_names, mesh.axis_types))
    )


@record
class Conflict:
    """The reason why the operands' types do not determine the results' types, as the parts of an error message."""

    fact: str  # the fact, in one line
    notes: Mapping[int, str] = field(default_factory=dict)  # operand -> the fact about it
    rule: str = ""
    operand: int = 0  # the operand to reshard to `target`, if that resolves the conflict
    target: Spec | None = None
    verb: str = ""  # the text between the name of the operation and the fact


class _ShardingInference:
    """The result shardings by one factor rule, and the first conflict."""

    def __init__(
        self,
        rule: FactorRule,
        op: OpTraits,
        ins: Sequence[Spec],
        sizes: Mapping[Any, int],
    ):
        self.rule, self.op, self.ins, self.sizes = rule, op, ins, sizes
        self.in_results = {f for out in rule.outs for dim in out for f in dim}
        self.conflict: Conflict | None = None
        self.axes: dict[int, DimSpec] = {}  # factor -> axes
        self.carriers: dict[int, list[tuple[int, DimSpec]]] = {}

    def record_conflict(
        self,
        what: str,
        notes: Mapping[int, str],
        rule: str,
        operand: int = 0,
        target: Spec | None = None,
        verb: str = "",
    ) -> None:
        if self.conflict is None:
            self.conflict = Conflict(what, notes, rule, operand, target, verb)

    def dim_of_factor(self, f: int, i: int) -> int:
        """Return the dim of operand i that has factor f."""
        return next(d for d, fs in enumerate(self.rule.ins[i]) if f in fs)

    def without_dim_axes(self, i: int, dim: int) -> Spec:
        """Return the dims of operand i with dim `dim` not sharded."""
        return tuple(() if d == dim else axes for d, axes in enumerate(self.ins[i]))

    def collect_axes(self) -> None:
        """Collect the axes of every factor from the operands."""
        for i, (factors, dims) in enumerate(zip(self.rule.ins, self.ins)):
            if not any(dims):
                continue
            axes_of, _ = axes_of_factors(factors, dims, self.rule, self.sizes)
            for f, factor_axes in axes_of.items():
                self.carriers.setdefault(f, []).append((i, factor_axes))
            for d, (fs, axes) in enumerate(zip(factors, dims)):
                missed = len(axes) - sum(len(axes_of.get(f, ())) for f in fs)
                if (
                    missed
                    and not self.result_follows(i)
                    and not all(f in self.rule.reduced for f in fs)
                ):
                    self.record_conflict(
                        f"the split of dim {d} cannot be carried over to the result.",
                        {i: f"dim {d} is split by {_text(axes)}"},
                        "Each shard of an operand must become one shard of the result.",
                        i,
                        self.without_dim_axes(i, d),
                    )

    def is_whole(self, axes: DimSpec) -> bool:
        """Return whether a dim sharded over these axes is whole on every device: all axes have size 1."""
        return all(self.sizes[a] == 1 for a in axes)

    def result_follows(self, i: int) -> bool:
        """Return whether the result is sharded like operand 0 for any sharding of operand i, as if operand i updates a part of it."""
        return i > 0 and self.rule.ins[:1] == self.rule.outs[:1]

    def agree(self) -> None:
        """Choose the axes of each factor, and record a conflict if operands shard it differently."""
        for f, operand_axes in self.carriers.items():
            (first, axes), *others = operand_axes
            for i, other_axes in others:
                if other_axes != axes:
                    self.record_conflict(
                        "the operands are split differently.",
                        {
                            first: f"dim {self.dim_of_factor(f, first)} is split by {_text(axes)}",
                            i: f"dim {self.dim_of_factor(f, i)} is split by {_text(other_axes)}",
                        },
                        "Corresponding dims of operands must be split by the same axes or not at all.",
                        i,
                        self.resharded_operand(i, f, axes),
                        " got incompatible shardings for broadcasting"
                        if self.op.is_elementwise
                        else "",
                    )
            if (
                others
                and f in self.rule.reduced
                and f not in self.in_results
                and self.op.is_product
            ):
                self.record_conflict(
                    "the contracted dims are split, so the result could be sharded in more than one way.",
                    {
                        i: f"contracts dim {self.dim_of_factor(f, i)}, split by {_text(other_axes)}"
                        for i, other_axes in operand_axes
                    },
                    "A sum over split dims can be replicated or split again.",
                )
            self.axes[f] = axes
        self.check_special()

    def resharded_operand(self, i: int, f: int, axes: DimSpec) -> Spec:
        """Return the dims of operand i with the dim of factor f sharded over `axes`, and these axes removed from other dims."""
        dim = self.dim_of_factor(f, i)
        return tuple(
            axes if d == dim else tuple(a for a in mine if a not in axes)
            for d, mine in enumerate(self.ins[i])
        )

    def check_special(self) -> None:
        """Record conflicts for sharded dims that the operation needs whole, and for sharded dims that are not dims of the result."""
        for f, axes in list(self.axes.items()):
            mark = self.rule.special.get(f)
            i, d = self.carriers[f][0][0], self.dim_of_factor(f, self.carriers[f][0][0])
            if f in self.in_results:
                if mark == "replicate" and not self.op.is_layout and not self.is_whole(axes):
                    self.record_conflict(
                        f"dim {d} is split, but it is needed whole.",
                        {i: f"dim {d} is split by {_text(axes)}"},
                        "Every device needs all elements along this dim.",
                        i,
                        self.without_dim_axes(i, d),
                    )
                    del self.axes[f]
            elif (
                f not in self.rule.reduced
                and not self.result_follows(i)
                and not self.infer_extended_dim(f, i, d, axes)
            ):
                if self.is_whole(axes):
                    continue
                self.record_conflict(
                    f"dim {d} is split, and the sharding of the result is not given.",
                    {i: f"dim {d} is split by {_text(axes)}"},
                    "The result of a lookup or slice along a split dim can be sharded in more than one way.",
                    i,
                    self.without_dim_axes(i, d),
                )

    def infer_extended_dim(self, f: int, i: int, d: int, axes: DimSpec) -> bool:
        """Return whether dim d of the result is a part or an extension of the operand's dim d, as for slice, pad and conv.

        Shard it over the operand's axes if these divide its size. A result dim that is at most one shard long is not sharded.
        """
        rule, done = self.rule, False
        for outs in rule.outs:
            if len(outs) != len(rule.ins[i]) or len(outs[d]) != 1:
                continue
            (g,) = outs[d]
            marks = {rule.special.get(f), rule.special.get(g)}
            own = not any(g in dim for factors in rule.ins for dim in factors)
            if not own or not (marks <= {"halo", "index"} or self.op.shards_like_operands):
                continue
            parts = math.prod(self.sizes[a] for a in axes)
            if rule.sizes[g] % parts == 0:
                done = self.axes.setdefault(g, axes) == axes
            else:  # a slice that is at most one shard long is replicated
                done = rule.sizes[g] * parts <= rule.sizes[f]
        return done

    def results(self) -> list[Spec]:
        """Return the dims of the results. If several dims of a result have the same axis, only the first dim gets it."""
        result_dims: list[Spec] = []
        for factors in self.rule.outs:
            dims = dims_of_factors(factors, self.axes, self.rule, self.sizes)
            if self.op.is_layout:
                dims = tuple(self.merge_axes(dim, axes) for dim, axes in zip(factors, dims))
            result_axes = {a for axes in dims for a in axes}
            lost = [
                (f, a)
                for dim in factors
                for f in dim
                for a in self.axes.get(f, ())
                if a not in result_axes
            ]
            if lost:
                f, axis = lost[0]
                i = next((i for i, _ in self.carriers.get(f, ())), 0)
                d = self.dim_of_factor(f, i)
                self.record_conflict(
                    f"the split of dim {d} cannot be carried over to the result.",
                    {i: f"dim {d} is split by {_text((axis,))}"},
                    "Each shard of an operand must become one shard of the result.",
                    i,
                    self.without_dim_axes(i, d),
                )
            result_dims.append(self.remove_duplicate_axes(dims))
        return result_dims

    def merge_axes(self, factors: Sequence[int], axes: DimSpec) -> DimSpec:
        """Return the axes of a dim with several factors: the axes of all factors, if only leading factors are sharded.

        Resharding the operand may require communication. Return `axes` in other cases, and if the axes do not divide the size of the dim.
        """
        axes_of_factors = [self.axes.get(f, ()) for f in factors]
        all_axes = tuple(a for mine in axes_of_factors for a in mine)
        leading = all(
            mine or not any(axes_of_factors[k:]) for k, mine in enumerate(axes_of_factors)
        )
        size, parts = (
            math.prod(self.rule.sizes[f] for f in factors),
            math.prod(self.sizes[a] for a in all_axes),
        )
        return all_axes if leading and len(all_axes) > len(axes) and size % parts == 0 else axes

    def remove_duplicate_axes(self, dims: Spec) -> Spec:
        """Return `dims` with each axis used by one dim; record a conflict if two dims have the same axis."""
        seen: set[Any] = set()
        distinct_dims: list[DimSpec] = []
        for axes in dims:
            if seen & set(axes):
                self.record_conflict(
                    f"dims of the result would both be split by {_text(tuple(seen & set(axes)))}: {_text_of(dims)}.",
                    {i: "" for i in range(len(self.ins)) if any(self.ins[i])},
                    "A mesh axis splits at most one dim of a value.",
                )
                axes = ()
            seen.update(axes)
            distinct_dims.append(axes)
        return tuple(distinct_dims)


def result_dims(
    rule: FactorRule,
    op: OpTraits,
    ins: Sequence[Spec],
    sizes: Mapping[Any, int],
) -> tuple[list[Spec], Conflict | None]:
    """Return the dims of an op's results, and a conflict if the operands do not determine them.

    With a conflict, the dims are a proposal.
    """
    inference = _ShardingInference(rule, op, ins, sizes)
    inference.collect_axes()
    inference.agree()
    return inference.results(), inference.conflict


def _text(axes: Sequence[Any]) -> str:
    return " and ".join(repr(a) for a in axes)


def _text_of(dims: Spec) -> str:
    return spec_text(dims)


def spec_text(dims: Spec) -> str:
    """Return dims as a user writes a spec: `P('x', None)`."""
    return f"P({', '.join(repr(e) for e in spec_of_dims(dims))})"
