"""Types of values that consist of arrays: `HiType`, whose values are objects of users, and the operations on them.

In:   classes of values, each registered with the function that gives the type of a value (`register_hitype`), and of their types.
Out:  `flatten`, by which `jit` takes and returns such values: a program holds the arrays that a value consists of, and user code sees the
      value, raised from tracers. The bases of types and of effects.
Laws: programs and transformations know arrays alone. A type says how values are lowered to arrays and raised from them. Mutable types
      are usable outside of transformations; inside, they raise NotImplementedError.
Next: `experimental.hijax`, with the operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.control.ref import AbstractRef
from weft.core.trace import Tracer, hi_types, typeof
from weft.ir.types import ShapedArray
from weft.util import tree
from weft.util.record import record


class _AnyType(type):
    """`isinstance(x, AbstractValue)` holds for the types of arrays and of references, which have no base class."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(cls, instance) or (cls is AbstractValue and isinstance(instance, (ShapedArray, AbstractRef)))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return type.__subclasscheck__(cls, subclass) or (cls is AbstractValue and issubclass(subclass, (ShapedArray, AbstractRef)))


class AbstractValue(metaclass=_AnyType):
    """The type of a value that is traced; `ShapedArray` is the one for arrays.

    >>> from weft.experimental.hijax import AbstractValue
    >>> isinstance(weft.typeof(1.0), AbstractValue)
    True
    """


class EffectTypeSet:
    """Classes of effects.

    >>> from weft.experimental.hijax import control_flow_allowed_effects
    >>> class Printing: pass
    >>> control_flow_allowed_effects.add_type(Printing)
    >>> control_flow_allowed_effects.contains(Printing())
    True
    """

    def __init__(self) -> None:
        self._classes: list[type] = []

    def add_type(self, effect_type: type) -> None:
        self._classes.append(effect_type)

    def contains(self, effect: Any) -> bool:
        return isinstance(effect, tuple(self._classes))

    def filter_in(self, effects: Any) -> list:
        return [e for e in effects if self.contains(e)]

    def filter_not_in(self, effects: Any) -> list:
        return [e for e in effects if not self.contains(e)]


#: the effects that loops and branches may have; those of weft may have any
control_flow_allowed_effects = EffectTypeSet()


@record
class aval_property:
    """An attribute of a type that is a property of its values: `fget(value)`."""
    fget: Callable


@record
class aval_method:
    """An attribute of a type that is a method of its values: `fun(value, *args)`."""
    fun: Callable


# ---- types

class _UserType(AbstractValue):
    """What immutable and mutable types share."""
    is_high = True
    has_qdd = False

    def _missing(self, method: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} must implement `{method}`.")

    def __hash__(self) -> int:
        raise self._missing("__hash__")

    def __eq__(self, other: object) -> bool:
        raise self._missing("__eq__")

    def _no_array(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"a value of type {self.str_short()} was passed where an array is needed: its type has no {what}. "
                                   "Values of hi types can be passed to jit and to a HiPrimitive; apply an operation that gives arrays.")

    @property
    def shape(self) -> tuple[int, ...]:
        raise self._no_array("shape")

    @property
    def dtype(self) -> np.dtype:
        raise self._no_array("dtype")

    @property
    def ndim(self) -> int:
        raise self._no_array("ndim")

    @property
    def size(self) -> int:
        raise self._no_array("size")

    def str_short(self, short_dtypes: bool = False, **_: Any) -> str:
        """The type in messages."""
        return type(self).__name__

    def __repr__(self) -> str:
        return self.str_short()

    def to_tangent_aval(self) -> Any:
        """The type of tangents."""
        raise self._missing("to_tangent_aval")

    def to_ct_aval(self) -> Any:
        """The type of cotangents; that of tangents unless overridden."""
        return self.to_tangent_aval()


class HiType(_UserType):
    """The base of types of immutable values that consist of arrays, to derive from.

    The methods to write: `__hash__`, `__eq__`; `lo_ty()`, the types of the arrays; `lower_val(value)`, the arrays; `raise_val(*arrays)`,
    the value; `to_tangent_aval()`, for differentiation. A method that is missing raises NotImplementedError when it is needed.

    >>> import dataclasses
    >>> from weft.experimental.hijax import HiType, register_hitype
    >>> @dataclasses.dataclass
    ... class Scaled: values: weft.Array; scale: weft.Array
    >>> @dataclasses.dataclass(frozen=True)
    ... class ScaledType(HiType):
    ...     of: weft.core.ShapedArray
    ...     def lo_ty(self): return [self.of, self.of.update(shape=())]
    ...     def lower_val(self, x): return [x.values, x.scale]
    ...     def raise_val(self, values, scale): return Scaled(values, scale)
    >>> register_hitype(Scaled, lambda x: ScaledType(weft.typeof(x.values)))
    >>> weft.jit(lambda x: Scaled(x.values, 2 * x.scale))(Scaled(wnp.ones(2), wnp.ones(()))).scale.tolist()
    2.0
    """

    def lo_ty(self) -> list:
        """The types of the arrays that a value consists of."""
        raise self._missing("lo_ty")

    def lower_val(self, hi_val: Any) -> list:
        """The arrays that `hi_val` consists of."""
        raise self._missing("lower_val")

    def raise_val(self, *lo_vals: Any) -> Any:
        """The value that consists of these arrays."""
        raise self._missing("raise_val")

    def vspace_zero(self) -> Any:
        """Zero, of a type of tangents."""
        raise self._missing("vspace_zero")

    def vspace_add(self, x: Any, y: Any) -> Any:
        """A sum, of a type of tangents."""
        raise self._missing("vspace_add")

    def dec_rank(self, size: int | None, spec: Any) -> HiType:
        """The type of one element of a mapped value."""
        raise self._missing("dec_rank")

    def inc_rank(self, size: int | None, spec: Any) -> HiType:
        """The type of `size` values, stacked."""
        raise self._missing("inc_rank")

    def leading_axis_spec(self) -> Any:
        """How a value is mapped over its leading axis."""
        raise self._missing("leading_axis_spec")

    def shard(self, mesh: Any, manual_axes: frozenset, check_vma: bool, spec: HiPspec) -> HiType:
        """The type of one shard."""
        raise self._missing("shard")

    def unshard(self, mesh: Any, check_vma: bool, spec: HiPspec) -> HiType:
        """The type of a whole value by that of a shard."""
        raise self._missing("unshard")

    def nospec(self, mesh: Any, check_vma: bool, all_names: tuple) -> HiPspec:
        """How a value is split for which nothing is said."""
        raise self._missing("nospec")


class HiPspec:
    """The base of what says how a value of a `HiType` is split over a mesh."""

    def to_lo(self) -> tuple:
        """The `PartitionSpec` of each array that a value consists of."""
        raise NotImplementedError(f"{type(self).__name__} must implement `to_lo`.")

    def to_tangent_spec(self) -> HiPspec:
        """How tangents are split."""
        raise NotImplementedError(f"{type(self).__name__} must implement `to_tangent_spec`.")

    def to_ct_spec(self) -> HiPspec:
        """How cotangents are split."""
        raise NotImplementedError(f"{type(self).__name__} must implement `to_ct_spec`.")


class MutableHiType(_UserType):
    """The base of types of mutable values. They can be made, read and written outside of transformations; a `HiPrimitive` that is applied
    to one inside of a transformation raises NotImplementedError, and so does passing one to `jit`."""
    has_qdd = True
    is_writer = False

    def lo_ty(self) -> list:
        """What a mutable value consists of depends on its state: see `lo_ty_qdd`."""
        raise NotImplementedError(f"{type(self).__name__}.lo_ty: what a mutable value consists of depends on its state; use lo_ty_qdd.")

    def lo_ty_qdd(self, state: Any, /) -> list:
        """The types of the arrays that a value in that state consists of."""
        raise self._missing("lo_ty_qdd")

    def new_from_loval(self, state: Any, /, *vals: Any) -> Any:
        """A new value of these arrays."""
        raise self._missing("new_from_loval")

    def read_loval(self, state: Any, val: Any, /) -> list:
        """The arrays that a value consists of."""
        raise self._missing("read_loval")

    def update_from_loval(self, state: Any, val: Any, /, *lo_vals: Any) -> None:
        """Set a value to these arrays."""
        raise self._missing("update_from_loval")

    @aval_method
    def type_state(self) -> Any:
        """What a mutable value holds at present."""
        return cur_qdd(self)


def cur_qdd(x: Any) -> Any:
    """What the mutable value `x` holds at present, as `x.cur_qdd()` says."""
    return x.cur_qdd()


@record
class AvalQDD:
    """A mutable type, and what a value of it holds."""
    aval: Any
    qdd: Any
    is_high = True
    has_qdd = True


@record
class AvalMutableQDD:
    """A mutable type, and what a value of it holds, for operations that change it."""
    aval: Any
    mutable_qdd: Any


def register_hitype(val_cls: type, typeof_fn: Callable[[Any], Any]) -> None:
    """Say that instances of `val_cls` are values of the type `typeof_fn(value)`, a `HiType` or a `MutableHiType`."""
    hi_types[val_cls] = typeof_fn


# ---- values among the leaves of trees

class _Lowered:
    """A value of a hi type as a tree of arrays."""

    def __init__(self, aval: HiType, arrays: list):
        self.aval, self.arrays = aval, arrays


def _raised(aval: HiType, arrays: Any) -> Any:
    """The value; or, where the leaves of a tree are other things than arrays, a node again."""
    if all(isinstance(x, (Tracer, np.ndarray)) or hasattr(x, "__array__") for x in arrays):
        return aval.raise_val(*arrays)
    return _Lowered(aval, list(arrays))


tree.register_pytree_node(_Lowered, lambda x: (x.arrays, x.aval), _raised)


def lowered(x: Any, where: str) -> list:
    """The arrays that a value of a hi type consists of."""
    aval = hi_types[type(x)](x)
    if aval.has_qdd:
        raise NotImplementedError(f"{where}: a value of the mutable type {aval.str_short()} was passed; mutable hi types are supported "
                                  "outside of transformations alone. Pass what it holds, and set it to what comes back.")
    arrays = list(aval.lower_val(x))
    got, want = list(map(typeof, arrays)), list(aval.lo_ty())
    if [(a.shape, a.dtype) for a in got] != [(a.shape, a.dtype) for a in want]:
        raise TypeError(f"{type(aval).__name__}.lower_val gave arrays of types {got}, where lo_ty says {want}.")
    return arrays


def flatten(x: Any, where: str) -> tuple[list, Any]:
    """The arrays in a tree, and a structure by which `tree_unflatten` raises the values of hi types that are its leaves."""
    leaves, structure = tree.tree_flatten(x)
    if hi_types and any(type(leaf) in hi_types for leaf in leaves):
        nodes = [_Lowered(typeof(leaf), lowered(leaf, where)) if type(leaf) in hi_types else leaf for leaf in leaves]
        return tree.tree_flatten(tree.tree_unflatten(structure, nodes))
    return leaves, structure
