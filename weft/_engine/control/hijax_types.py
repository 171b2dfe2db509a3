"""Types of values that consist of arrays: `HiType`, whose values are user-defined objects, and the
operations on them.

In:   classes of values, each registered with a function from a value to its type
      (`register_hitype`), and classes of types.
Out:  `flatten`, by which `jit` takes and returns such values: a program holds the arrays of a
      value, and user code sees a value raised from tracers. The base classes of types and of
      effects.
Laws: programs and transformations contain arrays only. A type defines how values are lowered to
      arrays and raised from them. A mutable argument is a copy inside a program, whose last results
      are the new arrays of the original; a mutable value that is closed over is read and written
      through references to its arrays.
Next: `experimental.hijax`, which defines the operations.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft._engine.control.ref import _FREED, AbstractRef, Ref, _Writable, free
from weft._engine.core.trace import (
    EvalTrace,
    Tracer,
    eval_trace,
    set_trace,
    trace_state,
    typeof,
)
from weft._engine.hooks import hi_types
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.layout import broadcast_in_dim
from weft._engine.util import tree
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import record
from weft._engine.util.source import function_name


class _AnyType(type):
    """The metaclass that makes array and reference types instances of `AbstractValue`."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(cls, instance) or (
            cls is AbstractValue and isinstance(instance, (ShapedArray, AbstractRef))
        )

    def __subclasscheck__(cls, subclass: type) -> bool:
        return type.__subclasscheck__(cls, subclass) or (
            cls is AbstractValue and issubclass(subclass, (ShapedArray, AbstractRef))
        )


class AbstractValue(metaclass=_AnyType):
    """The type of a traced value; `ShapedArray` is the type of arrays.

    >>> from weft.experimental.hijax import AbstractValue
    >>> isinstance(weft.typeof(1.0), AbstractValue)
    True
    """

    __module__ = "weft.extend.core"


class EffectTypeSet:
    """A set of classes of effects.

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


#: the effects of users that loops and branches may have; weft's own effects are always allowed
control_flow_allowed_effects = EffectTypeSet()


@record
class aval_property:
    """An attribute of a type that appears as a property of its values: `fget(value)`."""

    fget: Callable


@record
class aval_method:
    """An attribute of a type that appears as a method of its values: `fun(value, *args)`."""

    fun: Callable


# ---- types


class _UserType(AbstractValue):
    """The base class of immutable and mutable user-defined types."""

    is_high = True
    has_qdd = False
    weak_type = False
    # the axes over which arrays of this type would vary inside of shard_map
    vma: frozenset = frozenset()

    def _missing(self, method: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} must implement `{method}`.")

    def __hash__(self) -> int:
        raise self._missing("__hash__")

    def __eq__(self, other: object) -> bool:
        raise self._missing("__eq__")

    def __getattr__(self, name: str) -> Any:
        if name not in ("shape", "dtype", "ndim", "size"):  # which a subclass may have as fields
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise NotImplementedError(
            f"a value of type {self.str_short()} was passed where an array is needed: its type has no {name}. Values "
            "of hi types can be passed to jit, to control flow and to operations on hi types; apply one that gives "
            "arrays."
        )

    def str_short(self, short_dtypes: bool = False, **_: Any) -> str:
        """Return the type as messages show it."""
        return type(self).__name__

    def __repr__(self) -> str:
        return self.str_short()

    def to_tangent_aval(self) -> Any:
        """Return the type of tangents."""
        raise self._missing("to_tangent_aval")

    def to_ct_aval(self) -> Any:
        """Return the type of cotangents: the type of tangents unless overridden."""
        return self.to_tangent_aval()


class HiType(_UserType):
    """Base class for types of immutable values that consist of arrays.

    Subclasses define `__hash__`, `__eq__`; `lo_ty()`, the types of the arrays; `lower_val(value)`,
    the arrays; `raise_val(*arrays)`, the value; `to_tangent_aval()`, for differentiation. A missing
    method raises NotImplementedError when it is needed.

    >>> import dataclasses
    >>> from weft.experimental.hijax import HiType, ShapedArray, register_hitype
    >>> @dataclasses.dataclass
    ... class Scaled: values: weft.Array; scale: weft.Array
    >>> @dataclasses.dataclass(frozen=True)
    ... class ScaledType(HiType):
    ...     of: ShapedArray
    ...     def lo_ty(self): return [self.of, self.of.update(shape=())]
    ...     def lower_val(self, x): return [x.values, x.scale]
    ...     def raise_val(self, values, scale): return Scaled(values, scale)
    >>> register_hitype(Scaled, lambda x: ScaledType(weft.typeof(x.values)))
    >>> weft.jit(lambda x: Scaled(x.values, 2 * x.scale))(Scaled(wnp.ones(2), wnp.ones(()))).scale.tolist()
    2.0
    """

    def lo_ty(self) -> list:
        """Return the types of the arrays of a value."""
        raise self._missing("lo_ty")

    def lower_val(self, hi_val: Any) -> list:
        """Return the arrays of `hi_val`."""
        raise self._missing("lower_val")

    def raise_val(self, *lo_vals: Any) -> Any:
        """Return the value that consists of these arrays."""
        raise self._missing("raise_val")

    def vspace_zero(self) -> Any:
        """Return the zero of this type, if it is a type of tangents."""
        raise self._missing("vspace_zero")

    def vspace_add(self, x: Any, y: Any) -> Any:
        """Return the sum of two values of this type, if it is a type of tangents."""
        raise self._missing("vspace_add")

    def dec_rank(self, size: int | None, spec: Any) -> HiType:
        """Return the type of one element of a value that is mapped by `spec`, a `MappingSpec`."""
        raise NotImplementedError(
            f"vmap requires {type(self).__name__} to implement the `dec_rank` method, and so does scan."
        )

    def inc_rank(self, size: int | None, spec: Any) -> HiType:
        """Return the type of `size` stacked values."""
        raise self._missing("inc_rank")

    def leading_axis_spec(self) -> Any:
        """Return the mapping spec of a value over its leading axis."""
        raise self._missing("leading_axis_spec")

    def shard(self, mesh: Any, manual_axes: frozenset, check_vma: bool, spec: HiPspec) -> HiType:
        """Return the type of one shard."""
        raise self._missing("shard")

    def unshard(self, mesh: Any, check_vma: bool, spec: HiPspec) -> HiType:
        """Return the type of the whole value, given the type of a shard."""
        raise self._missing("unshard")

    def nospec(self, mesh: Any, check_vma: bool, all_names: tuple) -> HiPspec:
        """Return the split of a value without a spec."""
        raise self._missing("nospec")


class HiPspec:
    """Base class for the ways in which values of a `HiType` are split over a mesh."""

    def to_lo(self) -> tuple:
        """Return the `PartitionSpec` of each array of a value."""
        raise NotImplementedError(f"{type(self).__name__} must implement `to_lo`.")

    def to_tangent_spec(self) -> HiPspec:
        """Return the split of tangents."""
        raise NotImplementedError(f"{type(self).__name__} must implement `to_tangent_spec`.")

    def to_ct_spec(self) -> HiPspec:
        """Return the split of cotangents."""
        raise NotImplementedError(f"{type(self).__name__} must implement `to_ct_spec`.")


class MutableHiType(_UserType):
    """Base class for types of mutable values.

    Subclasses define `lo_ty_qdd`, `new_from_loval`, `read_loval` and `update_from_loval`, which
    convert between arrays and the state of a value, `value.cur_qdd()`. Operations (`HiPrimitive`)
    make, read and write values. Values can be passed to `jit` and `grad`, and closed over by the
    functions that these and control flow trace. A program that closes over a value cannot change
    the shapes and dtypes of its arrays.
    """

    has_qdd = True
    is_writer = False

    def lo_ty(self) -> list:
        """Raise NotImplementedError: the arrays depend on the state, see `lo_ty_qdd`."""
        raise NotImplementedError(
            f"{type(self).__name__}.lo_ty: what a mutable value consists of depends on its state; use lo_ty_qdd."
        )

    def lo_ty_qdd(self, state: Any, /) -> list:
        """Return the types of the arrays of a value in the given state."""
        raise self._missing("lo_ty_qdd")

    def new_from_loval(self, state: Any, /, *vals: Any) -> Any:
        """Return a new value that consists of these arrays."""
        raise self._missing("new_from_loval")

    def read_loval(self, state: Any, val: Any, /) -> list:
        """Return the arrays of a value."""
        raise self._missing("read_loval")

    def update_from_loval(self, state: Any, val: Any, /, *lo_vals: Any) -> None:
        """Replace the arrays of a value."""
        raise self._missing("update_from_loval")

    @aval_method
    def type_state(self) -> Any:
        """Return the state of the value at present."""
        return cur_qdd(self)


def _mutable_type(value: Any) -> MutableHiType:
    """Return the type of a mutable value."""
    return hi_types[type(value)](value)


def cur_qdd(x: Any) -> Any:
    """Return the state of the mutable value `x` at present, `x.cur_qdd()`."""
    return x.cur_qdd()


@record
class AvalQDD:
    """A mutable type, and the state of one of its values."""

    aval: Any
    qdd: Any
    is_high = True
    has_qdd = True


@record
class AvalMutableQDD:
    """A mutable type and the state of a value, for operations that change it."""

    aval: Any
    mutable_qdd: Any


def register_hitype(val_cls: type, typeof_fn: Callable[[Any], Any]) -> None:
    """Register `val_cls` as a class of values of the (mutable) hi type `typeof_fn(value)`."""
    hi_types[val_cls] = typeof_fn


# ---- values among the leaves of trees


class _LoweredHiValue:
    """A value of a hi type as a pytree node of arrays."""

    def __init__(self, aval: HiType | ShapedArray, arrays: list):
        self.aval, self.arrays = aval, arrays

    def __repr__(self) -> str:
        return repr(self.aval)


def _raise_value(aval: HiType, arrays: Any) -> Any:
    """Return the value, or a node if the leaves are not arrays."""
    if all(isinstance(x, (Tracer, np.ndarray)) or hasattr(x, "__array__") for x in arrays):
        return aval.raise_val(*arrays)
    return _LoweredHiValue(aval, list(arrays))


tree.register_pytree_node(_LoweredHiValue, lambda x: (x.arrays, x.aval), _raise_value)


def lower_value(x: Any, where: str) -> list:
    """Return the arrays of a value of a hi type."""
    if type(x) not in hi_types:
        raise NotImplementedError(
            f"{where}: a traced value of the type {typeof(x)}, which vmap maps or grad differentiates as a whole, "
            "cannot be taken apart. Apply operations on it that have a rule for this (VJPHiPrimitive)."
        )
    aval = hi_types[type(x)](x)
    if aval.has_qdd:
        raise NotImplementedError(
            f"{where}: a value of the mutable type {aval} cannot be taken apart here. Pass it to a jitted "
            "function, or pass what it holds."
        )
    arrays = list(aval.lower_val(x))
    got, expected = list(map(typeof, arrays)), list(aval.lo_ty())
    if [(a.shape, a.dtype) for a in got] != [(a.shape, a.dtype) for a in expected]:
        raise TypeError(
            f"{type(aval).__name__}.lower_val gave arrays of types {got}, where lo_ty says {expected}."
        )
    return arrays


def arrays_of(x: Any) -> Sequence:
    """Return the arrays of a value of a hi type: none for a mutable value."""
    aval = hi_types[type(x)](x)
    return () if aval.has_qdd or type(aval).lower_val is HiType.lower_val else aval.lower_val(x)


def flatten(x: Any, where: str) -> tuple[list, Any]:
    """Return the arrays in a tree, and the structure that `tree_unflatten` takes."""
    return tree.tree_flatten(replace_hi_values(x, where))


def replace_hi_values(x: Any, where: str) -> Any:
    """Return `x` with values of hi types as nodes of arrays; rebuilding the tree restores them."""
    if not hi_types:
        return x
    return tree.tree_map(
        lambda leaf: (
            _LoweredHiValue(typeof(leaf), lower_value(leaf, where)) if is_value(leaf) else leaf
        ),
        x,
    )


def is_linear(aval: Any) -> bool:
    """Return True if tangents of values of the hi type `aval` consist of tangents of arrays."""
    if aval.has_qdd:
        return False
    tangent = aval.to_tangent_aval()
    return tangent.is_high and list(tangent.lo_ty()) == [a.to_tangent_aval() for a in aval.lo_ty()]


def flatten_linear(x: Any, symbolic_zeros: bool = False) -> tuple[list, Any]:
    """Return the leaves and structure of a tree; linear values of hi types become arrays."""
    return tree.tree_flatten(linear_parts(x, symbolic_zeros))


def linear_parts(x: Any, symbolic_zeros: bool = False) -> Any:
    """Return the tree `x` with nodes in place of values of hi types for which `is_linear` holds.

    Raise NotImplementedError for other values whose arrays are differentiated, and for all values
    if rules use symbolic zeros.
    """
    if not hi_types:
        return x

    def part(leaf: Any) -> Any:
        if type(leaf) not in hi_types:
            return leaf
        aval = typeof(leaf)
        if symbolic_zeros:
            raise NotImplementedError(
                f"symbolic_zeros=True: a value of type {aval} cannot mark which of its parts have no "
                "tangents. Define the rule without symbolic_zeros."
            )
        if is_linear(aval):
            return _LoweredHiValue(aval, lower_value(leaf, "differentiation"))
        if any(type(a).__name__ == "JVPTracer" for a in arrays_of(leaf)):
            raise NotImplementedError(
                f"a value of type {aval} was made of arrays that are differentiated; its tangents, of type "
                f"{aval.to_tangent_aval()}, do not consist of theirs. Make it by an operation that has a rule."
            )
        return leaf

    return tree.tree_map(part, x)


def has_hi_values(structure: Any) -> bool:
    """Return True if `structure` has nodes of values of hi types."""
    if not hi_types:
        return False
    is_node = lambda x: type(x) is _LoweredHiValue
    return any(
        map(
            is_node,
            tree.tree_leaves(
                tree.tree_unflatten(structure, range(structure.num_leaves)), is_leaf=is_node
            ),
        )
    )


def of_tangents(structure: Any) -> Any:
    """Return the structure of tangents of a tree whose structure `flatten_linear` returned."""
    if not hi_types:
        return structure
    is_node = lambda x: type(x) is _LoweredHiValue
    marks = tree.tree_unflatten(structure, range(structure.num_leaves))
    return tree.tree_structure(
        tree.tree_map(
            lambda x: _LoweredHiValue(x.aval.to_tangent_aval(), x.arrays) if is_node(x) else x,
            marks,
            is_leaf=is_node,
        )
    )


def is_value(x: Any) -> bool:
    """Return True if `x` is a value of a hi type, or a tracer of one."""
    return type(x) in hi_types or (isinstance(x, Tracer) and x.aval.is_high)


def check_slices(x: Any, size: int) -> None:
    """Raise NotImplementedError unless elements of hi-type leaves are slices along dim 0."""
    for leaf in tree.tree_leaves(x) if hi_types else ():
        if type(leaf) in hi_types:
            aval = typeof(leaf)
            element = aval.dec_rank(size, aval.leading_axis_spec())
            if [(a.shape, a.dtype) for a in element.lo_ty()] != [
                (a.shape[1:], a.dtype) for a in aval.lo_ty()
            ]:
                raise NotImplementedError(
                    f"scan: an element of a value of type {aval}, of type {element}, does not consist of slices "
                    "along dim 0 of the arrays that the value consists of."
                )


# ---- references to values


class ValueRef(_Writable):
    """A reference to a value of the hi type `type.inner_aval`.

    The value is read and written as a whole. The reference is a pytree node of the references to its arrays, `parts`.
    """

    __slots__ = ("parts", "type")

    def __init__(self, aval: Any, parts: Iterable[Ref]):
        self.type, self.parts = AbstractRef(aval), tuple(parts)

    shape = property(lambda self: self.type.shape)
    dtype = property(lambda self: self.type.dtype)
    ndim = property(lambda self: self.type.ndim)

    def _check(self, index: Any) -> None:
        """Raise NotImplementedError unless an index selects the whole value."""
        shape = getattr(type(self.type.inner_aval), "shape", None) or vars(
            self.type.inner_aval
        ).get("shape", ())
        indices = index if isinstance(index, tuple) else (index,)
        ends = (
            zip(indices, shape)
            if isinstance(shape, tuple) and len(indices) == len(shape)
            else [(i, None) for i in indices]
        )
        if not all(
            i is Ellipsis
            or (
                type(i) is slice
                and (i == slice(None) or (n is not None and i.indices(n) == (0, n, 1)))
            )
            for i, n in ends
        ):
            raise NotImplementedError(
                f"{self.type} is read and written as a whole, ref[...], not by the index {index!r}."
            )

    def __getitem__(self, index: Any) -> Any:
        self._check(index)
        return self.type.inner_aval.raise_val(*[r[...] for r in self.parts])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._store(index, value, "set")

    def _store(self, index: Any, value: Any, mode: str) -> None:
        self._check(index)
        if mode != "set":
            raise NotImplementedError(
                f"{self.type}: values of hi types cannot be added in place. Read the value, and write the sum."
            )
        if typeof(value) != self.type.inner_aval:
            raise ValueError(f"a value of type {typeof(value)} cannot be stored in {self.type}.")
        for r, x in zip(self.parts, lower_value(value, "a write to a reference")):
            r[...] = x

    def get(self) -> Any:
        """Return the value."""
        return self[...]

    def free(self) -> Any:
        """Return the value and invalidate the reference."""
        return self.type.inner_aval.raise_val(*map(free, self.parts))

    def __repr__(self) -> str:
        return repr(self.type)


tree.register_pytree_node(ValueRef, lambda ref: (ref.parts, ref.type.inner_aval), ValueRef)


# ---- mutable values inside of traced programs


class _MutableValueRef(Ref):
    """A reference to one array of a mutable value: writes to it change the value."""

    __slots__ = ("owner",)

    def __init__(self, value: Any, owner: _TracedMutableValue):
        super().__init__(value)
        self.owner = owner

    def _write(self, value: Any) -> None:
        super()._write(value)
        if self._cell() is self:
            self.owner.refresh()


class _TracedMutableValue:
    """A mutable value, and the trace in which it was created. Programs that are traced inside that
    trace access its arrays through references."""

    __slots__ = ("value", "trace", "state", "parts", "is_busy", "__weakref__")

    def __init__(self, value: Any, trace: Any):
        self.value, self.trace, self.state = value, trace, None
        # True while methods of the type run, which may apply operations to the value
        self.is_busy = False
        self.parts: list[_MutableValueRef] = []

    def references(self) -> list[_MutableValueRef]:
        """Return references to the arrays of the value."""
        state = self.value.cur_qdd()
        if self.state is None:
            with set_trace(self.trace):
                arrays = [
                    x
                    if hasattr(x, "aval")
                    else broadcast_in_dim(x, np.shape(x), tuple(range(np.ndim(x))))
                    for x in _mutable_type(self.value).read_loval(state, self.value)
                ]
                self.parts = [_MutableValueRef.make(x, self) for x in arrays]
            self.state = state
        return self.parts

    def refresh(self) -> None:
        """Update the value from its references."""
        self.is_busy = True
        try:
            with set_trace(self.trace):
                _mutable_type(self.value).update_from_loval(
                    self.state, self.value, *[r._value for r in self.parts]
                )
        finally:
            self.is_busy = False

    def note_change(self) -> None:
        """Record that the value changed under its own trace; its references keep their types."""
        if self.state is None or self.is_busy:
            return
        self.is_busy = True
        try:
            state = self.value.cur_qdd()
            arrays = _mutable_type(self.value).read_loval(state, self.value)
        finally:
            self.is_busy = False
        if [(a.shape, a.dtype) for a in map(typeof, arrays)] != [
            (r.shape, r.dtype) for r in self.parts
        ]:
            for r in self.parts:
                r._value = _FREED
            self.state, self.parts = None, []
            return
        self.state = state
        for r, x in zip(self.parts, arrays):
            r._value = r._cast_to_array(x, r.shape)


#: mutable values used by programs, by identity; values from outside programs remain while their
#: arrays are referenced
_all_tracked: weakref.WeakValueDictionary[int, _TracedMutableValue] = weakref.WeakValueDictionary()
#: records of values that were created inside a program, until its trace ends
_inner_tracked: list[_TracedMutableValue] = []


def _tracked_of(value: Any) -> _TracedMutableValue:
    tracked = _all_tracked.get(id(value))
    if tracked is None or tracked.value is not value:
        tracked = _all_tracked[id(value)] = _TracedMutableValue(value, eval_trace)
    return tracked


def register_created_value(value: Any) -> Any:
    """Return a mutable value created by the program that is being traced."""
    if type(trace_state.trace) is not EvalTrace:
        if len(_inner_tracked) >= 256:
            _inner_tracked[:] = [
                tracked for tracked in _inner_tracked if not tracked.trace.pop_typed_cotangent
            ]
        tracked = _all_tracked[id(value)] = _TracedMutableValue(value, trace_state.trace)
        _inner_tracked.append(tracked)
    return value


def is_mutable(x: Any) -> bool:
    """Return True if `x` is a value of a mutable type."""
    return type(x) in hi_types and hi_types[type(x)](x).has_qdd


def contents(value: Any) -> tuple[Any, list]:
    """Return the state of a mutable value in the current trace, and its arrays."""
    tracked = _tracked_of(value)
    if tracked.trace is trace_state.trace:
        state = value.cur_qdd()
        return state, list(_mutable_type(value).read_loval(state, value))
    return value.cur_qdd(), [r[...] for r in tracked.references()]


def set_contents(value: Any, state: Any, arrays: Sequence) -> None:
    """Replace the arrays of a mutable value.

    Raise ValueError if the value belongs to an outer program and the shapes or dtypes of the arrays
    change.
    """
    tracked = _tracked_of(value)
    if tracked.trace is trace_state.trace:
        _mutable_type(value).update_from_loval(state, value, *arrays)
        tracked.note_change()
        return
    parts = tracked.references()
    if len(parts) != len(arrays):
        raise ValueError(
            f"a value of the mutable type {typeof(value)} consists of {quantity(len(parts), 'array')}, and cannot be changed to one of "
            f"{len(arrays)} in a program that closes over it. Pass it as an argument."
        )
    for r, x in zip(parts, arrays):
        r[...] = x


def on_contents(fun: Callable, args: Sequence) -> Any:
    """Return `fun(*args)`, called with copies of outer mutable values, which are written back."""
    foreign = {
        id(x): x for x in args if is_mutable(x) and _tracked_of(x).trace is not trace_state.trace
    }
    copies = {}
    for key, x in foreign.items():
        state, arrays = contents(x)
        copies[key] = (
            register_created_value(_mutable_type(x).new_from_loval(state, *arrays)),
            arrays,
        )
    out = fun(*[copies[id(x)][0] if id(x) in copies else x for x in args])
    for key, x in foreign.items():
        copy, before = copies[key]
        state = copy.cur_qdd()
        after = list(_mutable_type(copy).read_loval(state, copy))
        if len(after) != len(before) or any(a is not b for a, b in zip(after, before)):
            set_contents(x, state, after)
    for x in args:
        if id(x) in _all_tracked and id(x) not in foreign:
            _tracked_of(x).note_change()
    return out


class Contents:
    """A mutable value in a tree of arguments or results, as its arrays.

    `number` identifies the value; if it is passed more than once, later occurrences have no arrays.
    """

    __slots__ = ("arrays", "aval", "number", "state")

    def __init__(self, number: int, aval: Any, state: Any, arrays: Iterable):
        self.number, self.aval, self.state, self.arrays = number, aval, state, tuple(arrays)


tree.register_pytree_node(
    Contents,
    lambda x: (x.arrays, (x.number, _AvalKey(x.aval), x.state)),
    lambda aux, arrays: Contents(aux[0], aux[1].aval, aux[2], arrays),
)


class _AvalKey:
    """A type as part of a cache key, even if its class does not define equality."""

    __slots__ = ("aval",)

    def __init__(self, aval: Any):
        self.aval = aval

    def __hash__(self) -> int:
        return hash(type(self.aval))

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is _AvalKey
            and type(self.aval) is type(other.aval)
            and repr(self.aval) == repr(other.aval)
        )


def extract_mutable_values(args: Any) -> tuple[Any, list]:
    """Return `args` with `Contents` in place of mutable values, and the distinct values."""
    values: list = []

    def swap(x: Any) -> Any:
        if not is_mutable(x):
            return x
        for i, known in enumerate(values):
            if known is x:
                return Contents(i, None, None, ())
        values.append(x)
        state, arrays = contents(x)
        return Contents(len(values) - 1, typeof(x), state, arrays)

    return tree.tree_map(swap, args), values


def on_copies(fun: Callable, args: Sequence, kwargs: dict) -> tuple[Any, list]:
    """Call `fun` on copies of its mutable arguments; return its result and the final contents."""
    values: dict[int, Any] = {}

    def raised(x: Any) -> Any:
        if type(x) is not Contents:
            return x
        if x.number not in values:
            values[x.number] = register_created_value(x.aval.new_from_loval(x.state, *x.arrays))
        return values[x.number]

    args, kwargs = tree.tree_map(
        raised, (tuple(args), kwargs), is_leaf=lambda x: type(x) is Contents
    )
    out = fun(*args, **kwargs)
    for x in tree.tree_leaves(out):
        if is_mutable(x):
            raise NotImplementedError(
                f"{function_name(fun)} returns a value of the mutable type {typeof(x)}. Return the contents of the value, or "
                "pass a mutable value as an argument and change it."
            )
    return out, [Contents(i, typeof(x), *contents(x)) for i, x in sorted(values.items())]


def write_back_contents(values: Sequence, contents: Sequence[Contents]) -> None:
    """Update mutable values with the final contents from `on_copies`."""
    for x, new in zip(values, contents):
        set_contents(x, new.state, new.arrays)
