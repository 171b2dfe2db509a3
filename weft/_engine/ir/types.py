"""Types of values: `ShapedArray` (aval). Types are interned: equal types are the same object, so `is` compares them."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any

import numpy as np

from weft._engine import hooks
from weft._engine.ir.explicit import type_sharding, typed_axes
from weft._engine.ir.mesh import AbstractMesh, AxisType, Mesh, get_abstract_mesh
from weft._engine.ir.shardings import MemorySpace, NamedSharding
from weft._engine.ir.specs import PartitionSpec, spec_of_dims
from weft._engine.ir.symbolic import SymbolicDim
from weft._engine.util import dtypes
from weft._engine.util.config import config
from weft._engine.util.errors import OutOfMemoryError
from weft._engine.util.jax_versions import jax_behavior
from weft._engine.util.record import record, replace

_MAX_BYTES = (1 << 63) - 1
_interned: dict[tuple[Any, ...], "ShapedArray"] = {}
_manual_axis_types: dict[tuple[Any, ...], "ManualAxisType"] = {}
_SAME = object()


@record
class ManualAxisType:
    """The manual axes of a type: those over which a value varies, is unreduced (terms of a sum), or is reduced (equal copies).

    Equal instances are one object.

    >>> ManualAxisType(varying=frozenset("a"))
    ManualAxisType(varying=frozenset({'a'}), unreduced=frozenset(), reduced=frozenset())
    """

    __module__ = "weft.sharding"

    varying: frozenset[Any] = frozenset()
    unreduced: frozenset[Any] = frozenset()
    reduced: frozenset[Any] = frozenset()

    def __new__(
        cls, varying: Any = frozenset(), unreduced: Any = frozenset(), reduced: Any = frozenset()
    ) -> "ManualAxisType":
        key = frozenset(varying), frozenset(unreduced), frozenset(reduced)
        interned = _manual_axis_types.get(key)
        if interned is None:
            interned = _manual_axis_types[key] = object.__new__(cls)
        return interned

    def __post_init__(self) -> None:
        for name in ("varying", "unreduced", "reduced"):
            object.__setattr__(self, name, frozenset(getattr(self, name)))

    @property
    def empty(self) -> bool:
        """Whether it has no axes."""
        return not (self.varying or self.unreduced or self.reduced)

    @property
    def vur(self) -> frozenset[Any]:
        """All axes: varying, unreduced and reduced."""
        return self.varying | self.unreduced | self.reduced

    def invarying(self, mesh: Any) -> frozenset[Any]:
        """Return the other manual axes of `mesh`, along which the value is the same on all devices."""
        return frozenset(mesh.manual_axes) - self.vur

    def update(self, **changes: frozenset[Any]) -> "ManualAxisType":
        """Return a copy with some fields replaced."""
        return replace(self, **changes)


def _kind_text(kind: str, axes: frozenset[Any]) -> str:
    """Return `V:a` or `V:(a,b)`; an empty text for no axes."""
    names = ",".join(sorted(map(str, axes)))
    return names and (f"{kind}:{names}" if len(axes) == 1 else f"{kind}:({names})")


@cache
def _replicated(mesh: AbstractMesh, ndim: int) -> NamedSharding:
    """Return the replicated sharding over a mesh."""
    return NamedSharding(mesh, PartitionSpec(*[None] * ndim))


@lru_cache(maxsize=4096)
def _explicit_sharding(
    sharding: Any, shape: tuple[int, ...], without_ones: bool
) -> NamedSharding | None:
    """Return the explicit part of a sharding for a type of the given shape, or None if there is none.

    `without_ones` is a cache key: the setting that `type_sharding` reads. Raise ShardingError if the axes do not divide the shape.
    """
    explicit = type_sharding(sharding, len(shape))
    if (
        explicit is not None
        and explicit.spec.axes
        and not any(isinstance(n, SymbolicDim) for n in shape)
    ):
        explicit.check_shape(shape)
    return explicit


def _canonical_shape(shape: Any) -> tuple[Any, ...]:
    return tuple(d if isinstance(d, SymbolicDim) else int(d) for d in shape)


def _exceeds_memory(shape: tuple[Any, ...], dtype: np.dtype) -> bool:
    """Return whether a value has more than 2**63 - 1 bytes, for all values of its symbolic sizes."""
    known = [d for d in shape if not isinstance(d, SymbolicDim)]
    return math.prod(known) * dtype.itemsize > _MAX_BYTES or any(d > _MAX_BYTES for d in known)


class ShapedArray:
    """The type of an array: shape, dtype, weak-type flag, sharding, manual axes and memory space.

    `vma` are the manual axes along which devices may hold different values. Over its subset `vma_unreduced` these are terms of a sum;
    over its subset `vma_reduced` they are equal copies whose cotangents are terms of a sum.

    `explicit` is the sharding over the explicit axes of a mesh, or None. ShardingError is raised if the axes do not divide the shape.
    With `kept_sharding`, the sharding is copied from another type and not checked: type rules may copy an operand's sharding to a result
    of another shape, before `core.sharded_types` replaces it.
    `memory_space` is set in types that describe a program to users; types of traced values have `MemorySpace.Device`.
    Instances are interned: equal types are one object, and equality and hashes use its identity.

    >>> ShapedArray((8, 2), np.dtype("float32")) is ShapedArray((8, 2), np.dtype("float32"))
    True
    >>> ShapedArray((8, 2), np.dtype("float32"))
    ShapedArray(float32[8,2])
    """

    __module__ = "weft.extend.core"

    __slots__ = (
        "shape",
        "dtype",
        "weak_type",
        "explicit",
        "vma",
        "vma_unreduced",
        "vma_reduced",
        "memory_space",
        "ndim",
        "size",
        "__weakref__",
    )

    shape: tuple[int, ...]
    dtype: np.dtype
    weak_type: bool
    explicit: NamedSharding | None
    vma: frozenset[Any]
    vma_unreduced: frozenset[Any]
    vma_reduced: frozenset[Any]
    memory_space: MemorySpace
    ndim: int
    size: int

    def __new__(
        cls,
        shape: Any,
        dtype: Any,
        weak_type: bool = False,
        sharding: Any = None,
        vma: frozenset[Any] = frozenset(),
        manual_axis_type: ManualAxisType | None = None,
        vma_unreduced: frozenset[Any] = frozenset(),
        vma_reduced: frozenset[Any] = frozenset(),
        memory_space: MemorySpace = MemorySpace.Device,
        kept_sharding: bool = False,
    ):
        if manual_axis_type is not None:
            vma, vma_unreduced, vma_reduced = (
                manual_axis_type.vur,
                manual_axis_type.unreduced,
                manual_axis_type.reduced,
            )
        if vma_unreduced or vma_reduced:
            vma = frozenset(vma)
            vma_unreduced, vma_reduced = vma & vma_unreduced, vma & vma_reduced - vma_unreduced
        if sharding is not None and not kept_sharding:
            sharding = _explicit_sharding(
                sharding, tuple(shape), config.remove_size_one_mesh_axis_from_type
            )
        # equal shardings may differ in trailing Nones of their specs: P('x') and P('x', None)
        entries = None if sharding is None else len(sharding.spec)
        key = (
            shape,
            dtype,
            weak_type,
            sharding,
            vma,
            vma_unreduced,
            vma_reduced,
            memory_space,
            entries,
        )
        try:
            return _interned[key]
        except (KeyError, TypeError):
            pass
        shape = _canonical_shape(shape)
        if not dtypes.is_extended(dtype):
            dtype = np.dtype(dtype)
        dtypes.check_held(dtype)
        key = (
            shape,
            dtype,
            bool(weak_type),
            sharding,
            frozenset(vma),
            vma_unreduced,
            vma_reduced,
            MemorySpace(memory_space),
            entries,
        )
        interned = _interned.get(key)
        if interned is not None:
            return interned
        self = object.__new__(cls)
        set_ = object.__setattr__
        set_(self, "shape", shape)
        set_(self, "dtype", dtype)
        set_(self, "weak_type", key[2])
        set_(self, "explicit", sharding)
        set_(self, "vma", key[4])
        set_(self, "vma_unreduced", vma_unreduced)
        set_(self, "vma_reduced", vma_reduced)
        set_(self, "memory_space", key[7])
        set_(self, "ndim", len(shape))
        set_(self, "size", math.prod(shape))
        if _exceeds_memory(shape, dtype):
            raise OutOfMemoryError(
                f"a value of type {self.str_short()} is larger than the address space"
            )
        return _interned.setdefault(key, self)

    @property
    def sharding(self) -> NamedSharding:
        """The sharding over the explicit axes of a mesh.

        A type without an explicit sharding is replicated over the context mesh, if a program is being traced or the mesh has
        axes of type Auto, and over a mesh without axes otherwise.

        >>> ShapedArray((2,), np.dtype("float32")).sharding.mesh.empty
        True
        """
        if self.explicit is not None:
            return self.explicit
        mesh = get_abstract_mesh()
        return _replicated(
            mesh if mesh.auto_axes or hooks.in_program() else AbstractMesh((), ()), self.ndim
        )

    def __setattr__(self, name: str, value: Any):
        raise AttributeError("ShapedArray is immutable; use .update(...)")

    def __reduce__(self):
        return ShapedArray, (
            self.shape,
            self.dtype,
            self.weak_type,
            self.explicit,
            self.vma,
            None,
            self.vma_unreduced,
            self.vma_reduced,
            self.memory_space,
        )

    def update(
        self,
        shape: Any = None,
        dtype: Any = None,
        weak_type: bool | None = None,
        sharding: Any = _SAME,
        vma: frozenset[Any] | None = None,
        manual_axis_type: ManualAxisType | None = None,
        vma_unreduced: frozenset[Any] | None = None,
        vma_reduced: frozenset[Any] | None = None,
        memory_space: MemorySpace | None = None,
    ) -> "ShapedArray":
        """Return a copy with some of shape, dtype, weak_type, sharding, vma (or manual_axis_type) and memory_space replaced.

        >>> ShapedArray((2,), np.dtype("float32")).update(shape=(3,))
        ShapedArray(float32[3])
        """
        return ShapedArray(
            self.shape if shape is None else shape,
            self.dtype if dtype is None else dtype,
            self.weak_type if weak_type is None else weak_type,
            self.explicit if sharding is _SAME else sharding,
            self.vma if vma is None else vma,
            manual_axis_type,
            self.vma_unreduced if vma_unreduced is None else vma_unreduced,
            self.vma_reduced if vma_reduced is None else vma_reduced,
            self.memory_space if memory_space is None else memory_space,
            sharding is _SAME,
        )

    def without_dim(self, dim: int) -> "ShapedArray":
        """Return the type of one entry along `dim`."""
        sharding = None if self.explicit is None else self.explicit.without_dim(dim)
        return self.update(shape=self.shape[:dim] + self.shape[dim + 1 :], sharding=sharding)

    def with_dim(self, dim: int, size: int, axes: tuple[Any, ...] = ()) -> "ShapedArray":
        """Return the type of `size` values of this type, stacked along a new dim `dim` that is sharded over the mesh axes `axes`."""
        sharding = None if self.explicit is None else self.explicit.with_dim(dim, axes)
        return self.update(shape=(*self.shape[:dim], size, *self.shape[dim:]), sharding=sharding)

    @property
    def nbytes(self) -> int:
        """Size of the global value in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def manual_axis_type(self) -> ManualAxisType:
        """The manual axes of the type, as a record."""
        return ManualAxisType(
            self.vma - self.vma_unreduced - self.vma_reduced, self.vma_unreduced, self.vma_reduced
        )

    mat = manual_axis_type
    is_high = False
    has_qdd = False

    def update_manual_axis_type(self, mat: ManualAxisType) -> "ShapedArray":
        return self.update(manual_axis_type=mat)

    def update_weak_type(self, weak_type: bool) -> "ShapedArray":
        return self.update(weak_type=weak_type)

    def at_least_vspace(self) -> "ShapedArray":
        """Return the type of tangents of values of this type."""
        return self.to_tangent_aval()

    def normalize(self) -> "ShapedArray":
        return self.strip_weak_type()

    def lo_ty(self) -> list["ShapedArray"]:
        """Return the types of the arrays that represent a value: this type. (`HiType` overrides this method and the next ones.)"""
        return [self]

    def lower_val(self, value: Any) -> list[Any]:
        """Return the arrays that represent a value: the value itself."""
        return [value]

    def raise_val(self, value: Any) -> Any:
        """Return the value that an array represents: the array itself."""
        return value

    def dec_rank(self, size: int | None, spec: Any) -> "ShapedArray":
        """Return the type of one element of a value that is mapped over dim `spec` (None: not mapped)."""
        return self if spec is None else self.without_dim(spec)

    def inc_rank(self, size: int, spec: int | None) -> "ShapedArray":
        """Return the type of `size` values, stacked along dim `spec` (None: all values are the same)."""
        return self if spec is None else self.with_dim(spec, size)

    def leading_axis_spec(self) -> int:
        """Return the spec with which a value is mapped over its leading axis."""
        return 0

    def vspace_add(self, x: Any, y: Any) -> Any:
        """Return the sum of two values of this type."""
        return x + y

    def shard(
        self, mesh: Mesh, manual_axes: Any, check_vma: bool, spec: PartitionSpec
    ) -> "ShapedArray":
        """Return the type of one device's block of a value. Explicit axes that are not manual shard the block further."""
        shape = tuple(
            n // math.prod(mesh.shape[a] for a in axes)
            for n, axes in zip(self.shape, spec.dims(self.ndim))
        )
        inside = mesh.update(
            axis_types=tuple(
                AxisType.Manual if n in manual_axes else t
                for n, t in zip(mesh.axis_names, mesh.axis_types)
            )
        ).abstract_mesh
        sharding = None
        if (
            self.explicit is not None
            and inside.explicit_axes
            and self.explicit.mesh.shape_tuple == inside.shape_tuple
        ):
            sharding = NamedSharding(
                inside,
                spec_of_dims(
                    tuple(
                        tuple(a for a in axes if a in inside.explicit_axes)
                        for axes in self.explicit.spec_dims(self.ndim)
                    )
                ),
            )
        vma = self.vma | typed_axes(spec.axes, mesh) if check_vma else self.vma
        return self.update(shape=shape, sharding=sharding, vma=vma)

    def unshard(self, mesh: Mesh, check_vma: bool, spec: PartitionSpec) -> "ShapedArray":
        """Return the type of a value whose blocks have this type."""
        shape = tuple(
            n * math.prod(mesh.shape[a] for a in axes)
            for n, axes in zip(self.shape, spec.dims(self.ndim))
        )
        sharding = NamedSharding(mesh.abstract_mesh, spec) if mesh.explicit_axes else None
        return self.update(shape=shape, sharding=sharding, vma=frozenset())

    def strip_weak_type(self) -> "ShapedArray":
        return self.update(weak_type=False) if self.weak_type else self

    def to_tangent_aval(self) -> "ShapedArray":
        """Return the type of tangents of a value: this type if its dtype is inexact, else `float0`."""
        if dtypes.issubdtype(self.dtype, np.inexact):
            return self.strip_weak_type()
        return ShapedArray(self.shape, dtypes.float0, False, None, self.vma)

    def to_ct_aval(self) -> "ShapedArray":
        """Return the type of cotangents of a value: unreduced over its reduced axes, and reduced over its unreduced axes."""
        tangent = self.to_tangent_aval().update(
            vma_unreduced=self.vma_reduced, vma_reduced=self.vma_unreduced
        )
        explicit = tangent.explicit
        if explicit is None or not explicit.spec.is_partial:
            return tangent
        spec = explicit.spec
        dual = PartitionSpec(*spec.partitions, unreduced=spec.reduced, reduced=spec.unreduced)
        return tangent.update(sharding=explicit.with_spec(dual))

    def str_short(self, short_dtypes: bool = False, kinds: bool = False) -> str:
        """Return a text such as `float32[8,2]`, or `f32[8,2]` with `short_dtypes`; manual axes follow in braces, as `{V:a}` with `kinds`."""
        name = (
            dtypes.short_name(self.dtype)
            if short_dtypes or self.dtype == dtypes.float0
            else self.dtype.name
        )
        if self.explicit is not None:
            inner = self.explicit.format_dims(self.shape)
        else:
            inner = ",".join(map(str, self.shape))
        unreduced, reduced = self.vma_unreduced, self.vma_reduced
        varying = self.vma - unreduced - reduced
        if self.explicit is not None and self.explicit.spec.is_partial:
            unreduced, reduced = (
                unreduced | self.explicit.spec.unreduced,
                reduced | self.explicit.spec.reduced,
            )
        if kinds or unreduced or reduced:
            texts = [
                _kind_text(kind, axes)
                for kind, axes in (("V", varying), ("U", unreduced), ("R", reduced))
            ]
            vary = ", ".join([text for text in texts if text])
        else:
            vary = ",".join(sorted(map(str, varying)))
        vary = vary and f"{{{vary}}}"
        weak = "~" if self.weak_type and not short_dtypes else ""
        space = (
            "" if self.memory_space is MemorySpace.Device else f"<{self.memory_space.name.lower()}>"
        )
        return f"{weak}{name}{space}[{inner}]{vary}"

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.str_short().lstrip('~')}{weak})"

    def __str__(self) -> str:
        """Return the text that the version of JAX in `config.jax_api` prints: short from 0.9 on."""
        return self.str_short(kinds=True) if jax_behavior().short_type_names else repr(self)


def check_number(aval: Any, use: str) -> None:
    """Raise unless a concrete array of type `aval` can be converted to a Python "int", "float", "complex", "bool" or "index" (`use`).

    Raise TypeError for other ranks, and for an index of another dtype. Raise ValueError for a "bool" of zero or several elements.

    >>> check_number(ShapedArray((), np.dtype("float32")), "float")
    """
    if not isinstance(aval, ShapedArray):
        return
    if use == "index":
        if aval.shape or not np.issubdtype(aval.dtype, np.integer):
            raise TypeError(
                f"Only integer scalar arrays can be converted to a scalar index. Got {aval.str_short()}."
            )
    elif dtypes.is_extended(aval.dtype):
        raise TypeError(
            f"{use}: random keys are not numbers, got {aval.str_short()}. Use weft.random.key_data(keys)."
        )
    elif use != "bool":
        if aval.shape:
            raise TypeError(
                f"Only scalar arrays can be converted to Python scalars; got {aval.str_short()}."
            )
    elif 0 in aval.shape:
        raise ValueError("The truth value of an empty array is ambiguous. Use a.size > 0.")
    elif any(not isinstance(n, SymbolicDim) and n > 1 for n in aval.shape):
        raise ValueError(
            "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()."
        )
