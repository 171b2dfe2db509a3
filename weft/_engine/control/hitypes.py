"""Types of values that consist of arrays: `HiType`, whose values are objects of users, and the operations on them.

In:   classes of values, each registered with the function that gives the type of a value (`register_hitype`), and of their types.
Out:  `flatten`, by which `jit` takes and returns such values: a program holds the arrays that a value consists of, and user code sees the
      value, raised from tracers. The bases of types and of effects.
Laws: programs and transformations know arrays alone. A type says how values are lowered to arrays and raised from them. A mutable value
      that is passed is a copy inside of a program, whose last arrays are results that the value is set to afterwards; one that is closed
      over is read and written as references to its arrays are.
Next: `experimental.hijax`, with the operations.
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
from weft._engine.util.record import record
from weft._engine.util.source import function_name


class _AnyType(type):
    """`isinstance(x, AbstractValue)` holds for the types of arrays and of references, which have no base class."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(cls, instance) or (
            cls is AbstractValue and isinstance(instance, (ShapedArray, AbstractRef))
        )

    def __subclasscheck__(cls, subclass: type) -> bool:
        return type.__subclasscheck__(cls, subclass) or (
            cls is AbstractValue and issubclass(subclass, (ShapedArray, AbstractRef))
        )


class AbstractValue(metaclass=_AnyType):
    """The type of a value that is traced; `ShapedArray` is the one for arrays.

    >>> from weft.experimental.hijax import AbstractValue
    >>> isinstance(weft.typeof(1.0), AbstractValue)
    True
    """

    __module__ = "weft.extend.core"


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
    weak_type = False
    vma: frozenset = (
        frozenset()
    )  # the axes over which arrays of this type would vary inside of shard_map

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
    ...     of: weft._engine.core.ShapedArray
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
        """The type of one element of a value that is mapped as `spec`, a `MappingSpec`, says."""
        raise NotImplementedError(
            f"vmap requires {type(self).__name__} to implement the `dec_rank` method, and so does scan."
        )

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
    """The base of types of mutable values, to derive from: `lo_ty_qdd`, `new_from_loval`, `read_loval` and `update_from_loval` say how what
    a value holds, `value.cur_qdd()`, and arrays are one. Values are made, read and written by operations (`HiPrimitive`). They can be
    passed to `jit` and `grad`, and closed over by what these and control flow trace; a program that closes over one keeps the shapes and
    dtypes of what it holds."""

    has_qdd = True
    is_writer = False

    def lo_ty(self) -> list:
        """What a mutable value consists of depends on its state: see `lo_ty_qdd`."""
        raise NotImplementedError(
            f"{type(self).__name__}.lo_ty: what a mutable value consists of depends on its state; use lo_ty_qdd."
        )

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


def _mutable_type(value: Any) -> MutableHiType:
    """Return the type of a mutable value."""
    return hi_types[type(value)](value)


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

    def __init__(self, aval: HiType | ShapedArray, arrays: list):
        self.aval, self.arrays = aval, arrays

    def __repr__(self) -> str:
        return repr(self.aval)


def _raised(aval: HiType, arrays: Any) -> Any:
    """The value; or, where the leaves of a tree are other things than arrays, a node again."""
    if all(isinstance(x, (Tracer, np.ndarray)) or hasattr(x, "__array__") for x in arrays):
        return aval.raise_val(*arrays)
    return _Lowered(aval, list(arrays))


tree.register_pytree_node(_Lowered, lambda x: (x.arrays, x.aval), _raised)


def lowered(x: Any, where: str) -> list:
    """The arrays that a value of a hi type consists of."""
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
    got, want = list(map(typeof, arrays)), list(aval.lo_ty())
    if [(a.shape, a.dtype) for a in got] != [(a.shape, a.dtype) for a in want]:
        raise TypeError(
            f"{type(aval).__name__}.lower_val gave arrays of types {got}, where lo_ty says {want}."
        )
    return arrays


def arrays_of(x: Any) -> Sequence:
    """The arrays that a value of a hi type consists of, as far as its type says: none of a mutable value."""
    aval = hi_types[type(x)](x)
    return () if aval.has_qdd or type(aval).lower_val is HiType.lower_val else aval.lower_val(x)


def flatten(x: Any, where: str) -> tuple[list, Any]:
    """The arrays in a tree, and a structure by which `tree_unflatten` raises the values of hi types that are its leaves."""
    return tree.tree_flatten(in_parts(x, where))


def in_parts(x: Any, where: str) -> Any:
    """The tree `x` with nodes, whose children are arrays, in the place of values of hi types; a tree that is rebuilt has values again."""
    if not hi_types:
        return x
    return tree.tree_map(
        lambda leaf: _Lowered(typeof(leaf), lowered(leaf, where)) if is_value(leaf) else leaf, x
    )


def is_linear(aval: Any) -> bool:
    """Whether the tangents of values of the hi type `aval` consist of the tangents of the arrays of such values."""
    if aval.has_qdd:
        return False
    tangent = aval.to_tangent_aval()
    return tangent.is_high and list(tangent.lo_ty()) == [a.to_tangent_aval() for a in aval.lo_ty()]


def flatten_linear(x: Any, symbolic_zeros: bool = False) -> tuple[list, Any]:
    """The leaves of a tree that is differentiated, and its structure: values of hi types for which `is_linear` holds are taken apart."""
    return tree.tree_flatten(linear_parts(x, symbolic_zeros))


def linear_parts(x: Any, symbolic_zeros: bool = False) -> Any:
    """The tree `x` with nodes in the place of values of hi types for which `is_linear` holds. NotImplementedError for others that consist
    of what is differentiated, and for all where rules are to learn which leaves have no tangents."""
    if not hi_types:
        return x

    def part(leaf: Any) -> Any:
        if type(leaf) not in hi_types:
            return leaf
        aval = typeof(leaf)
        if symbolic_zeros:
            raise NotImplementedError(
                f"symbolic_zeros=True: the rule cannot be told which parts of a value of type {aval} have no "
                "tangents. Set the rule without it."
            )
        if is_linear(aval):
            return _Lowered(aval, lowered(leaf, "differentiation"))
        if any(type(a).__name__ == "JVPTracer" for a in arrays_of(leaf)):
            raise NotImplementedError(
                f"a value of type {aval} was made of arrays that are differentiated; its tangents, of type "
                f"{aval.to_tangent_aval()}, do not consist of theirs. Make it by an operation that has a rule."
            )
        return leaf

    return tree.tree_map(part, x)


def holds_values(structure: Any) -> bool:
    """Whether values of hi types were taken apart in what has this structure."""
    if not hi_types:
        return False
    is_node = lambda x: type(x) is _Lowered
    return any(
        map(
            is_node,
            tree.tree_leaves(
                tree.tree_unflatten(structure, range(structure.num_leaves)), is_leaf=is_node
            ),
        )
    )


def of_tangents(structure: Any) -> Any:
    """The structure of tangents of what has a structure that `flatten_linear` gave."""
    if not hi_types:
        return structure
    is_node = lambda x: type(x) is _Lowered
    marks = tree.tree_unflatten(structure, range(structure.num_leaves))
    return tree.tree_structure(
        tree.tree_map(
            lambda x: _Lowered(x.aval.to_tangent_aval(), x.arrays) if is_node(x) else x,
            marks,
            is_leaf=is_node,
        )
    )


def is_value(x: Any) -> bool:
    """Whether `x` is a value of a hi type, or stands for one in a trace."""
    return type(x) in hi_types or (isinstance(x, Tracer) and x.aval.is_high)


def check_slices(x: Any, size: int) -> None:
    """NotImplementedError unless the elements of each value of a hi type among the leaves, as its type says, consist of slices of its
    arrays along dim 0."""
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
    """A reference to a value of the hi type `type.inner_aval`, which is read and written as a whole: a reference for each of its arrays,
    `parts`. In trees it is a node of these."""

    __slots__ = ("parts", "type")

    def __init__(self, aval: Any, parts: Iterable[Ref]):
        self.type, self.parts = AbstractRef(aval), tuple(parts)

    shape = property(lambda self: self.type.shape)
    dtype = property(lambda self: self.type.dtype)
    ndim = property(lambda self: self.type.ndim)

    def _check(self, index: Any) -> None:
        """NotImplementedError unless an index selects the whole value."""
        shape = getattr(type(self.type.inner_aval), "shape", None) or vars(
            self.type.inner_aval
        ).get("shape", ())
        given = index if isinstance(index, tuple) else (index,)
        ends = (
            zip(given, shape)
            if isinstance(shape, tuple) and len(given) == len(shape)
            else [(i, None) for i in given]
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

    def _store(self, index: Any, value: Any, how: str) -> None:
        self._check(index)
        if how != "set":
            raise NotImplementedError(
                f"{self.type}: nothing says how a value of a hi type is added. Read it, and write the sum."
            )
        if typeof(value) != self.type.inner_aval:
            raise ValueError(f"a value of type {typeof(value)} cannot be stored in {self.type}.")
        for r, x in zip(self.parts, lowered(value, "a write to a reference")):
            r[...] = x

    def get(self) -> Any:
        """The value."""
        return self[...]

    def free(self) -> Any:
        """The value of the reference, which cannot be used any more."""
        return self.type.inner_aval.raise_val(*map(free, self.parts))

    def __repr__(self) -> str:
        return repr(self.type)


tree.register_pytree_node(ValueRef, lambda ref: (ref.parts, ref.type.inner_aval), ValueRef)


# ---- mutable values inside of traced programs


class _Part(Ref):
    """One array of a mutable value, as a reference: what is written reaches the value."""

    __slots__ = ("owner",)

    def __init__(self, value: Any, owner: _Tracked):
        super().__init__(value)
        self.owner = owner

    def _write(self, value: Any) -> None:
        super()._write(value)
        if self._cell() is self:
            self.owner.refresh()


class _Tracked:
    """A mutable value, and the trace in which it was made. Programs that are traced further inside see its arrays as references, so they
    are threaded through as those are."""

    __slots__ = ("value", "trace", "state", "parts", "is_busy", "__weakref__")

    def __init__(self, value: Any, trace: Any):
        self.value, self.trace, self.state = value, trace, None
        self.is_busy = (
            False  # the methods of the type, which may apply operations to the value, are running
        )
        self.parts: list[_Part] = []

    def references(self) -> list[_Part]:
        """The arrays of the value."""
        state = self.value.cur_qdd()
        if self.state is None:
            with set_trace(self.trace):
                arrays = [
                    x
                    if hasattr(x, "aval")
                    else broadcast_in_dim(x, np.shape(x), tuple(range(np.ndim(x))))
                    for x in _mutable_type(self.value).read_loval(state, self.value)
                ]
                self.parts = [_Part.make(x, self) for x in arrays]
            self.state = state
        return self.parts

    def refresh(self) -> None:
        """Set the value to what its references hold."""
        self.is_busy = True
        try:
            with set_trace(self.trace):
                _mutable_type(self.value).update_from_loval(
                    self.state, self.value, *[r._value for r in self.parts]
                )
        finally:
            self.is_busy = False

    def changed(self) -> None:
        """Note that the value was changed under its own trace; its references keep their types."""
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
            r._value = r._fitting(x, r.shape)


#: the mutable values that programs met, by their identity; those made outside of programs as long as something refers to their arrays
_all_tracked: weakref.WeakValueDictionary[int, _Tracked] = weakref.WeakValueDictionary()
#: records of the values that were made inside of a program, until it is traced
_inner_tracked: list[_Tracked] = []


def _tracked_of(value: Any) -> _Tracked:
    found = _all_tracked.get(id(value))
    if found is None or found.value is not value:
        found = _all_tracked[id(value)] = _Tracked(value, eval_trace)
    return found


def made_here(value: Any) -> Any:
    """A mutable value that the program which is being traced has made."""
    if type(trace_state.trace) is not EvalTrace:
        if len(_inner_tracked) >= 256:
            _inner_tracked[:] = [
                tracked for tracked in _inner_tracked if not tracked.trace.finished
            ]
        tracked = _all_tracked[id(value)] = _Tracked(value, trace_state.trace)
        _inner_tracked.append(tracked)
    return value


def is_mutable(x: Any) -> bool:
    """Whether `x` is a value of a mutable type."""
    return type(x) in hi_types and hi_types[type(x)](x).has_qdd


def contents(value: Any) -> tuple[Any, list]:
    """What a mutable value holds here, and its arrays."""
    tracked = _tracked_of(value)
    if tracked.trace is trace_state.trace:
        state = value.cur_qdd()
        return state, list(_mutable_type(value).read_loval(state, value))
    return value.cur_qdd(), [r[...] for r in tracked.references()]


def set_contents(value: Any, state: Any, arrays: Sequence) -> None:
    """Let a mutable value hold these arrays. ValueError if it lives outside of the program that is being traced, and the arrays are not of
    the shapes and dtypes of those that it holds."""
    tracked = _tracked_of(value)
    if tracked.trace is trace_state.trace:
        _mutable_type(value).update_from_loval(state, value, *arrays)
        tracked.changed()
        return
    parts = tracked.references()
    if len(parts) != len(arrays):
        raise ValueError(
            f"a value of the mutable type {typeof(value)} consists of {len(parts)} arrays, and cannot be changed to one of "
            f"{len(arrays)} in a program that closes over it. Pass it as an argument."
        )
    for r, x in zip(parts, arrays):
        r[...] = x


def on_contents(fun: Callable, args: Sequence) -> Any:
    """`fun(*args)`, where mutable values that live outside of the program that is being traced are replaced by copies, and written back."""
    foreign = {
        id(x): x for x in args if is_mutable(x) and _tracked_of(x).trace is not trace_state.trace
    }
    copies = {}
    for key, x in foreign.items():
        state, arrays = contents(x)
        copies[key] = made_here(_mutable_type(x).new_from_loval(state, *arrays)), arrays
    out = fun(*[copies[id(x)][0] if id(x) in copies else x for x in args])
    for key, x in foreign.items():
        copy, before = copies[key]
        state = copy.cur_qdd()
        after = list(_mutable_type(copy).read_loval(state, copy))
        if len(after) != len(before) or any(a is not b for a, b in zip(after, before)):
            set_contents(x, state, after)
    for x in args:
        if id(x) in _all_tracked and id(x) not in foreign:
            _tracked_of(x).changed()
    return out


class Contents:
    """A mutable value in a tree of arguments or results, as its arrays; `number` says which of the values it is, as one may be passed
    more than once: the later ones are given without their arrays."""

    __slots__ = ("arrays", "aval", "number", "state")

    def __init__(self, number: int, aval: Any, state: Any, arrays: Iterable):
        self.number, self.aval, self.state, self.arrays = number, aval, state, tuple(arrays)


tree.register_pytree_node(
    Contents,
    lambda x: (x.arrays, (x.number, _Said(x.aval), x.state)),
    lambda aux, arrays: Contents(aux[0], aux[1].aval, aux[2], arrays),
)


class _Said:
    """A type as a part of a key, whether or not its class says which types are equal."""

    __slots__ = ("aval",)

    def __init__(self, aval: Any):
        self.aval = aval

    def __hash__(self) -> int:
        return hash(type(self.aval))

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is _Said
            and type(self.aval) is type(other.aval)
            and repr(self.aval) == repr(other.aval)
        )


def taken_apart(args: Any) -> tuple[Any, list]:
    """The tree `args` with `Contents` for the mutable values in it, and these values, each once."""
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
    """`fun` on arguments that `taken_apart` gave, with values made of their arrays; its result, and what the values hold in the end."""
    values: dict[int, Any] = {}

    def raised(x: Any) -> Any:
        if type(x) is not Contents:
            return x
        if x.number not in values:
            values[x.number] = made_here(x.aval.new_from_loval(x.state, *x.arrays))
        return values[x.number]

    args, kwargs = tree.tree_map(
        raised, (tuple(args), kwargs), is_leaf=lambda x: type(x) is Contents
    )
    out = fun(*args, **kwargs)
    for x in tree.tree_leaves(out):
        if is_mutable(x):
            raise NotImplementedError(
                f"{function_name(fun)} returns a value of the mutable type {typeof(x)}. Return what it holds, or "
                "change one that is passed."
            )
    return out, [Contents(i, typeof(x), *contents(x)) for i, x in sorted(values.items())]


def put_back(values: Sequence, found: Sequence[Contents]) -> None:
    """Let mutable values hold what `on_copies` found in their copies."""
    for x, new in zip(values, found):
        set_contents(x, new.state, new.arrays)
