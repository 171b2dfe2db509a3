"""Types of values: `ShapedArray` (aval), interned, so equal types are the same object and `is` compares them."""

from __future__ import annotations

import math

import numpy as np

from weft.util import dtypes
from weft.util.errors import OutOfMemoryError

_MAX_BYTES = (1 << 63) - 1
_interned: dict[tuple, "ShapedArray"] = {}


class ShapedArray:
    """Type of an array value: shape, dtype, weak-type flag, sharding (explicit mode only) and varying manual axes.

    Instances are interned: two equal types are one object, hence hashing and equality are by identity.

    >>> ShapedArray((8, 2), np.dtype("float32")) is ShapedArray((8, 2), np.dtype("float32"))
    True
    >>> ShapedArray((8, 2), np.dtype("float32"))
    ShapedArray(float32[8,2])
    """

    __slots__ = ("shape", "dtype", "weak_type", "sharding", "vma", "ndim", "size", "__weakref__")

    shape: tuple[int, ...]
    dtype: np.dtype
    weak_type: bool
    vma: frozenset
    ndim: int
    size: int

    def __new__(cls, shape, dtype, weak_type: bool = False, sharding=None, vma: frozenset = frozenset()):
        key = (shape, dtype, weak_type, sharding, vma)
        try:
            return _interned[key]
        except (KeyError, TypeError):
            pass
        shape = tuple(int(d) for d in shape)
        if not dtypes.is_extended(dtype):
            dtype = np.dtype(dtype)
        dtypes.check_held(dtype)
        key = (shape, dtype, bool(weak_type), sharding, frozenset(vma))
        found = _interned.get(key)
        if found is not None:
            return found
        self = object.__new__(cls)
        set_ = object.__setattr__
        set_(self, "shape", shape)
        set_(self, "dtype", dtype)
        set_(self, "weak_type", key[2])
        set_(self, "sharding", sharding)
        set_(self, "vma", key[4])
        set_(self, "ndim", len(shape))
        set_(self, "size", math.prod(shape))
        if self.size * dtype.itemsize > _MAX_BYTES or any(d > _MAX_BYTES for d in shape):
            raise OutOfMemoryError(f"a value of type {self.str_short()} has more bytes than memory has addresses")
        return _interned.setdefault(key, self)

    def __setattr__(self, name, value):
        raise AttributeError("ShapedArray is immutable; use .update(...)")

    def __reduce__(self):
        return ShapedArray, (self.shape, self.dtype, self.weak_type, self.sharding, self.vma)

    def update(self, **changes) -> "ShapedArray":
        """A copy with some of shape, dtype, weak_type, sharding, vma replaced."""
        return ShapedArray(
            changes.get("shape", self.shape), changes.get("dtype", self.dtype),
            changes.get("weak_type", self.weak_type), changes.get("sharding", self.sharding),
            changes.get("vma", self.vma))

    def without_dim(self, dim: int) -> "ShapedArray":
        """The type of one entry along `dim`."""
        sharding = None if self.sharding is None else self.sharding.without_dim(dim)
        return self.update(shape=self.shape[:dim] + self.shape[dim + 1:], sharding=sharding)

    def with_dim(self, dim: int, size: int, axes: tuple = ()) -> "ShapedArray":
        """The type of `size` such values stacked along a new `dim`, which mesh axes `axes` split."""
        sharding = None if self.sharding is None else self.sharding.with_dim(dim, axes)
        return self.update(shape=(*self.shape[:dim], size, *self.shape[dim:]), sharding=sharding)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole value."""
        return self.size * self.dtype.itemsize

    def strip_weak_type(self) -> "ShapedArray":
        return self.update(weak_type=False) if self.weak_type else self

    def to_tangent_aval(self) -> "ShapedArray":
        """Type of tangents and cotangents of such a value: itself if inexact, else `float0`."""
        if dtypes.issubdtype(self.dtype, np.inexact):
            return self.strip_weak_type()
        return ShapedArray(self.shape, dtypes.float0, False, None, self.vma)

    def str_short(self, short_dtypes: bool = False, kinds: bool = False) -> str:
        """`float32[8,2]`, or `f32[8,2]` as jaxprs print it; varying axes follow in braces, as `{V:a}` if their kind is asked for."""
        name = dtypes.short_name(self.dtype) if short_dtypes or self.dtype == dtypes.float0 else self.dtype.name
        if self.sharding is not None:
            inner = self.sharding.format_dims(self.shape)
        else:
            inner = ",".join(map(str, self.shape))
        vary = ",".join(sorted(map(str, self.vma)))
        if kinds and vary:
            vary = f"V:{vary}" if len(self.vma) == 1 else f"V:({vary})"
        vary = vary and f"{{{vary}}}"
        weak = "~" if self.weak_type and not short_dtypes else ""
        return f"{weak}{name}[{inner}]{vary}"

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.str_short().lstrip('~')}{weak})"
