"""Shardings in types: explicit mesh axes in the types of values, and the rule for the types of results.

A type's sharding is a NamedSharding over an AbstractMesh that names explicit axes only; None means that nothing was said
(a new constant, a value whose layout the compiler finds). `type_sharding` reads it off a placement, `on_devices` gives it
devices again.

`result_dims` is the rule for every operation, by its factors: operands that are split must agree, factors of the results
keep their axes, reduced ones lose them. What the operands do not determine, or what could only be had by moving operands,
is a `Conflict`.
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
    """Facts about an op that its factors do not state.

    is_product    a sum over a dim that several operands split can have more than one layout
    split_alike   each dim of a result that is the op's own is split as that of the operand
    """

    is_elementwise: bool = False
    is_layout: bool = False
    is_product: bool = False
    split_alike: bool = False


def type_sharding(sharding: Sharding, ndim: int) -> NamedSharding | None:
    """What the type of a value of rank `ndim` placed as `sharding` says: its explicit axes, or those of more than one device, as the
    setting says; None if its mesh has none.

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


def told_axes(axes: Iterable[Any], mesh: Any) -> frozenset[Any]:
    """Those of `axes` that types tell: all, or those of more than one device, as the setting says."""
    if not config.remove_size_one_mesh_axis_from_type:
        return frozenset(axes)
    return frozenset(a for a in axes if mesh.shape.get(a) != 1)


def _with_terms(
    spec: PartitionSpec, said: PartitionSpec, explicit: frozenset[Any]
) -> PartitionSpec:
    """`spec` with what `said` says of unreduced and reduced axes that are explicit."""
    terms = said.unreduced & explicit
    return spec.update(
        unreduced=terms,
        reduced=said.reduced & explicit,
        unreduced_kind=said.unreduced_kind if terms else None,
    )


def is_partial(aval: Any) -> bool:
    """Whether a type says that values are terms of a sum, or that their cotangents are."""
    return aval.explicit is not None and aval.explicit.spec.is_partial


def dual(sharding: NamedSharding | None) -> NamedSharding | None:
    """The sharding in the type of cotangents of values of that sharding: those of terms of a sum are equal on all devices (reduced),
    those of reduced values are terms of a sum.

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
    """What a sharding says of axes that are not explicit, for values of rank `ndim`: UNCONSTRAINED in other dims; None if it
    names none of them."""
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
    """A sharding over an abstract mesh, on these devices in order."""
    if not isinstance(sharding.mesh, AbstractMesh):
        return sharding
    mesh = sharding.mesh
    if mesh.size != len(devices):
        raise ShardingError(
            f"a value typed {sharding.spec!r} over {mesh} meets a computation on {len(devices)} "
            f"devices.\n  All values of a computation must be on the same devices. Move one with weft.device_put."
        )
    grid = np.array(devices, object).reshape(mesh.axis_sizes)
    made = Mesh(grid, mesh.axis_names, axis_types=mesh.axis_types)
    return NamedSharding(made, sharding.spec, memory_kind=sharding.memory_kind)


def has_explicit_axes(sharding: Sharding) -> bool:
    """Whether values with this placement have a sharding in their type."""
    return isinstance(sharding, NamedSharding) and bool(sharding.mesh.explicit_axes)


def says_all(sharding: NamedSharding | None) -> bool:
    """Whether a type's sharding leaves nothing to the compiler: all axes of its mesh are explicit."""
    return sharding is not None and sharding.mesh.are_all_axes_explicit


def retyped(mesh: Any, axes: Sequence[Any], kind: AxisType) -> Any:
    """`mesh` with the axes `axes` of another type."""
    return mesh.update(
        axis_types=tuple(kind if n in axes else t for n, t in zip(mesh.axis_names, mesh.axis_types))
    )


@record
class Conflict:
    """Why the operands' types do not determine the results'."""

    what: str  # the fact, in one line
    notes: Mapping[int, str] = field(default_factory=dict)  # what to say of operand i
    rule: str = ""
    operand: int = 0  # the operand to reshard as `wanted`, where that would help
    wanted: Spec | None = None
    verb: str = ""  # what follows the name of the operation, before the fact


class _Inference:
    """The dims of results by one rule, and the first conflict met."""

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

    def blame(
        self,
        what: str,
        notes: Mapping[int, str],
        rule: str,
        operand: int = 0,
        wanted: Spec | None = None,
        verb: str = "",
    ) -> None:
        if self.conflict is None:
            self.conflict = Conflict(what, notes, rule, operand, wanted, verb)

    def place(self, f: int, i: int) -> int:
        """The dim of operand i that has factor f."""
        return next(d for d, fs in enumerate(self.rule.ins[i]) if f in fs)

    def without(self, i: int, dim: int) -> Spec:
        """The layout of operand i with one dim whole."""
        return tuple(() if d == dim else axes for d, axes in enumerate(self.ins[i]))

    def read(self) -> None:
        """Collect the axes of every factor from the operands."""
        for i, (factors, dims) in enumerate(zip(self.rule.ins, self.ins)):
            if not any(dims):
                continue
            found, _ = axes_of_factors(factors, dims, self.rule, self.sizes)
            for f, mine in found.items():
                self.carriers.setdefault(f, []).append((i, mine))
            for d, (fs, axes) in enumerate(zip(factors, dims)):
                missed = len(axes) - sum(len(found.get(f, ())) for f in fs)
                if (
                    missed
                    and not self.result_follows(i)
                    and not all(f in self.rule.reduced for f in fs)
                ):
                    self.blame(
                        f"dim {d} is split in a way that the result cannot follow.",
                        {i: f"dim {d} is split by {_text(axes)}"},
                        "The parts of a split dim must stay together.",
                        i,
                        self.without(i, d),
                    )

    def is_whole(self, axes: DimSpec) -> bool:
        """Whether every device holds all of a dim with these axes, which are all of size 1."""
        return all(self.sizes[a] == 1 for a in axes)

    def result_follows(self, i: int) -> bool:
        """Whether the result is laid out as operand 0 whatever operand i is (updates of parts)."""
        return i > 0 and self.rule.ins[:1] == self.rule.outs[:1]

    def agree(self) -> None:
        """One choice of axes per factor."""
        for f, found in self.carriers.items():
            (first, axes), *others = found
            for i, mine in others:
                if mine != axes:
                    self.blame(
                        "the operands are split differently.",
                        {
                            first: f"dim {self.place(f, first)} is split by {_text(axes)}",
                            i: f"dim {self.place(f, i)} is split by {_text(mine)}",
                        },
                        "Dims that belong together must be split alike or not at all.",
                        i,
                        self.alike(i, f, axes),
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
                self.blame(
                    "the contracted dims are split, so the result could be sharded in more than one way.",
                    {
                        i: f"contracts dim {self.place(f, i)}, split by {_text(mine)}"
                        for i, mine in found
                    },
                    "A sum over split dims can be replicated or split again.",
                )
            self.axes[f] = axes
        self.check_special()

    def alike(self, i: int, f: int, axes: DimSpec) -> Spec:
        """The layout of operand i with the dim of factor f split by `axes`, which no other dim then has."""
        dim = self.place(f, i)
        return tuple(
            axes if d == dim else tuple(a for a in mine if a not in axes)
            for d, mine in enumerate(self.ins[i])
        )

    def check_special(self) -> None:
        """Dims that the operation needs whole, and dims whose factor is not the result's."""
        for f, axes in list(self.axes.items()):
            mark = self.rule.special.get(f)
            i, d = self.carriers[f][0][0], self.place(f, self.carriers[f][0][0])
            if f in self.in_results:
                if mark == "replicate" and not self.op.is_layout and not self.is_whole(axes):
                    self.blame(
                        f"dim {d} is split, but it is needed whole.",
                        {i: f"dim {d} is split by {_text(axes)}"},
                        "Every device would need all of that dim.",
                        i,
                        self.without(i, d),
                    )
                    del self.axes[f]
            elif (
                f not in self.rule.reduced
                and not self.result_follows(i)
                and not self.extended(f, i, d, axes)
            ):
                if self.is_whole(axes):
                    continue
                self.blame(
                    f"dim {d} is split, and the sharding of the result is not given.",
                    {i: f"dim {d} is split by {_text(axes)}"},
                    "What is looked up or sliced out of a split dim can be sharded in more than one way.",
                    i,
                    self.without(i, d),
                )

    def extended(self, f: int, i: int, d: int, axes: DimSpec) -> bool:
        """Whether the result's dim d is a part or an extension of the operand's, and so is split like it (slice, pad, conv), or
        is a cut so short that it is whole."""
        rule, done = self.rule, False
        for outs in rule.outs:
            if len(outs) != len(rule.ins[i]) or len(outs[d]) != 1:
                continue
            (g,) = outs[d]
            marks = {rule.special.get(f), rule.special.get(g)}
            own = not any(g in dim for factors in rule.ins for dim in factors)
            if not own or not (marks <= {"halo", "index"} or self.op.split_alike):
                continue
            parts = math.prod(self.sizes[a] for a in axes)
            if rule.sizes[g] % parts == 0:
                done = self.axes.setdefault(g, axes) == axes
            else:  # a cut no longer than one shard is whole on all devices
                done = rule.sizes[g] * parts <= rule.sizes[f]
        return done

    def results(self) -> list[Spec]:
        """Layouts of the results; an axis is used once, by the first dim that has it."""
        found: list[Spec] = []
        for factors in self.rule.outs:
            dims = dims_of_factors(factors, self.axes, self.rule, self.sizes)
            if self.op.is_layout:
                dims = tuple(self.merged(dim, axes) for dim, axes in zip(factors, dims))
            kept = {a for axes in dims for a in axes}
            lost = [
                (f, a)
                for dim in factors
                for f in dim
                for a in self.axes.get(f, ())
                if a not in kept
            ]
            if lost:
                f, axis = lost[0]
                i = next((i for i, _ in self.carriers.get(f, ())), 0)
                d = self.place(f, i)
                self.blame(
                    f"dim {d} is split in a way that the result cannot follow.",
                    {i: f"dim {d} is split by {_text((axis,))}"},
                    "The parts of a split dim must stay together.",
                    i,
                    self.without(i, d),
                )
            found.append(self.distinct(dims))
        return found

    def merged(self, factors: Sequence[int], axes: DimSpec) -> DimSpec:
        """The axes of a dim that several make, of which the first are split: all of theirs, though that moves data."""
        each = [self.axes.get(f, ()) for f in factors]
        all_axes = tuple(a for mine in each for a in mine)
        leading = all(mine or not any(each[k:]) for k, mine in enumerate(each))
        size, parts = (
            math.prod(self.rule.sizes[f] for f in factors),
            math.prod(self.sizes[a] for a in all_axes),
        )
        return all_axes if leading and len(all_axes) > len(axes) and size % parts == 0 else axes

    def distinct(self, dims: Spec) -> Spec:
        seen: set[Any] = set()
        kept: list[DimSpec] = []
        for axes in dims:
            if seen & set(axes):
                self.blame(
                    f"dims of the result would both be split by {_text(tuple(seen & set(axes)))}: {_text_of(dims)}.",
                    {i: "" for i in range(len(self.ins)) if any(self.ins[i])},
                    "A mesh axis splits at most one dim of a value.",
                )
                axes = ()
            seen.update(axes)
            kept.append(axes)
        return tuple(kept)


def result_dims(
    rule: FactorRule,
    op: OpTraits,
    ins: Sequence[Spec],
    sizes: Mapping[Any, int],
) -> tuple[list[Spec], Conflict | None]:
    """Return the layouts of an op's results, and the conflict of its operands if they do not determine the layouts.

    With a conflict, the layouts are a proposal.
    """
    inference = _Inference(rule, op, ins, sizes)
    inference.read()
    inference.agree()
    return inference.results(), inference.conflict


def _text(axes: Sequence[Any]) -> str:
    return " and ".join(repr(a) for a in axes)


def _text_of(dims: Spec) -> str:
    return spec_text(dims)


def spec_text(dims: Spec) -> str:
    """How a user writes a layout: `P('x', None)`."""
    return f"P({', '.join(repr(e) for e in spec_of_dims(dims))})"
