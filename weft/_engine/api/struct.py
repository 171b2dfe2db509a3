"""`ShapeDtypeStruct`: shape, dtype and sharding of an array that need not exist."""

from __future__ import annotations

import operator
from typing import Any

from weft._engine.api.layouts import as_sharding
from weft._engine.backends.formats import Format, Layout, order_of
from weft._engine.core.trace import typeof
from weft._engine.ir.explicit import type_sharding
from weft._engine.ir.mesh import current_mesh
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ir.symbolic import SymbolicDim
from weft._engine.ir.types import ManualAxisType, ShapedArray
from weft._engine.util import dtypes
from weft._engine.util.errors import ShardingError, ShardingTypeError


def _size(size: Any) -> Any:
    """Return a size as an int; symbolic sizes, and other objects that libraries put into shapes, are kept."""
    return (
        operator.index(size)
        if hasattr(size, "__index__") and not isinstance(size, SymbolicDim)
        else size
    )


class ShapeDtypeStruct:
    """Shape, dtype and sharding of an array that need not exist; `eval_shape` returns it and `lower` accepts it.

    `sharding` may be a Format, whose layout is kept, or a PartitionSpec over the context mesh of the read: ShardingTypeError if there is
    none, ShardingError for one without the axes. Raises TypeError for Layout.AUTO, ValueError for a layout that does not fit.

    >>> struct = ShapeDtypeStruct((2, 3), 'float32')
    >>> struct
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    >>> struct.shape, struct.dtype.name, struct.sharding, struct.ndim, struct.size, struct.weak_type, struct.update(shape=(4,)).shape
    ((2, 3), 'float32', None, 2, 6, False, (4,))
    """

    __module__ = "weft"

    __slots__ = ("shape", "dtype", "_sharding", "layout", "weak_type", "vma", "is_ref")

    def __init__(
        self,
        shape,
        dtype,
        *,
        sharding=None,
        weak_type: bool = False,
        vma=None,
        is_ref: bool = False,
        manual_axis_type: ManualAxisType | None = None,
    ):
        if manual_axis_type is not None:
            vma = manual_axis_type.varying
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified.")
        self.shape = tuple(map(_size, shape))
        self.dtype = dtypes.as_dtype(dtype)
        if isinstance(sharding, PartitionSpec) and len(sharding) > len(self.shape):
            raise ShardingError(
                f"ShapeDtypeStruct: Sharding {sharding} is only valid for values of rank at least {len(sharding)}, but was "
                f"applied to a value of rank {len(self.shape)}."
            )
        self.layout = None  # the dim order in memory, if a Format specifies it
        if isinstance(sharding, Format):
            if sharding.layout is Layout.AUTO:
                raise TypeError(
                    "ShapeDtypeStruct: `Layout.AUTO` cannot be used in place of a device-local layout in a `ShapeDtypeStruct`: "
                    "a compiler chooses it. Take one of jit(f).lower(...).compile().input_formats."
                )
            order_of(sharding.layout, len(self.shape), "ShapeDtypeStruct")
            self.layout, sharding = sharding.layout, sharding.sharding
        if isinstance(sharding, NamedSharding):
            sharding.check_compatible_aval(self.shape)
        self._sharding = sharding
        self.weak_type = weak_type
        self.vma = frozenset(vma or ())
        # whether it represents a reference to a mutable array of this type
        self.is_ref = bool(is_ref)

    @classmethod
    def like(cls, x) -> "ShapeDtypeStruct":
        """Return the struct of an array, a number, or any object with a shape and a dtype: its shape, dtype, sharding and weak type.

        Raises TypeError for other objects.

        >>> ShapeDtypeStruct.like(1.0), ShapeDtypeStruct.like(np.ones(3, np.float32))
        (ShapeDtypeStruct(shape=(), dtype=float32, weak_type=True), ShapeDtypeStruct(shape=(3,), dtype=float32))
        """
        if isinstance(x, ShapedArray):
            return cls(x.shape, x.dtype, sharding=x.explicit, weak_type=x.weak_type, vma=x.vma)
        aval = x.aval if isinstance(x, cls) else typeof(x)
        placed = getattr(x, "committed", False) or isinstance(x, cls)
        ordered = placed and order_of(x.format.layout, aval.ndim, "ShapeDtypeStruct") is not None
        sharding = x.format if ordered else x.sharding if placed else aval.explicit
        return cls(
            aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type, vma=aval.vma
        )

    @property
    def sharding(self) -> Any:
        """The sharding, or None if unspecified; a PartitionSpec is over the context mesh of this read."""
        if not isinstance(self._sharding, PartitionSpec):
            return self._sharding
        if current_mesh() is None:
            raise ShardingTypeError(
                f"ShapeDtypeStruct: sharding is the PartitionSpec {self._sharding}, and the context mesh cannot be "
                "empty where it is read.\n  Set a mesh with weft.set_mesh(mesh), or pass NamedSharding(mesh, spec)."
            )
        return as_sharding(self._sharding, "ShapeDtypeStruct")

    manual_axis_type = property(lambda self: ManualAxisType(self.vma) if self.vma else None)
    size = property(lambda self: self.aval.size)
    format = property(lambda self: Format(self.layout, self.sharding))
    ndim = property(lambda self: len(self.shape))

    @property
    def aval(self) -> ShapedArray:
        """The type, with the dtype that the 64-bit setting allows."""
        sharding = self.sharding
        explicit = None if sharding is None else type_sharding(sharding, len(self.shape))
        return ShapedArray(
            self.shape, dtypes.canonicalize_dtype(self.dtype), self.weak_type, explicit, self.vma
        )

    def update(self, **changes) -> "ShapeDtypeStruct":
        """Return a copy with some fields replaced; raise ValueError for a sharding that would drop the layout of a format."""
        if (
            self.layout is not None
            and changes.get("sharding") is not None
            and not isinstance(changes["sharding"], Format)
        ):
            raise ValueError(
                f"updating ShapeDtypeStruct: it has the layout {self.layout}, but the new sharding has none. Pass "
                "Format(layout, sharding)."
            )
        return ShapeDtypeStruct(
            changes.get("shape", self.shape),
            changes.get("dtype", self.dtype),
            sharding=changes.get(
                "sharding", self._sharding if self.layout is None else self.format
            ),
            weak_type=changes.get("weak_type", self.weak_type),
            vma=changes.get("vma", self.vma),
            is_ref=changes.get("is_ref", self.is_ref),
        )

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __eq__(self, other) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self):
        return (
            self.shape,
            self.dtype,
            self._sharding,
            self.layout,
            self.weak_type,
            self.vma,
            self.is_ref,
        )

    def __repr__(self) -> str:
        sharding = f", sharding={self._sharding}" if self._sharding is not None else ""
        sharding += f", format={self.layout}" if self.layout is not None else ""
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{sharding}{weak}{', is_ref=True' * self.is_ref})"


def is_ref_struct(x: object) -> bool:
    """Return whether `x` is a struct that represents a reference to a mutable array."""
    return type(x) is ShapeDtypeStruct and x.is_ref
