"""`Ref`: a reference to an array that is read and written in place, and programs that use
references.

In:   indexed reads and writes of a reference.
Out:  values. A `Ref` holds a value that a write replaces, so that transformations process values
      only. A program that is being traced holds the reference's value itself: its first read
      becomes an input, its last write a result (`lift_refs`).
Laws: a written value must belong to the trace of the reference or to an enclosing trace: values
      that `vmap` maps or `grad` differentiates do not escape through outer references. Writes keep
      shape and dtype.
Next: `core.stage`, which rejects programs whose references are not passed through them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft._engine.control.ref_index import has_slices, is_basic, read, write
from weft._engine.core.interpret import evaluate
from weft._engine.core.sealed_classes import Sealed
from weft._engine.core.stage import ClosedOverRefsError, StageTrace, StageTracer
from weft._engine.core.trace import EvalTrace, Trace, Tracer, trace_state, typeof
from weft._engine.ir.jaxpr import Var
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.casting import convert_element_type
from weft._engine.ops.layout import broadcast_in_dim
from weft._engine.util import dtypes, tree
from weft._engine.util.config import config
from weft._engine.util.errors import UnexpectedTracerError
from weft._engine.util.events import reports_as
from weft._engine.util.record import record
from weft._engine.util.source import function_name, positional_names, user_frame


@record
class AbstractRef:
    """The type of a reference, given by the type of its array.

    >>> weft.typeof(weft.new_ref(wnp.zeros(3)))
    Ref{float32[3]}
    """

    inner_aval: ShapedArray
    memory_space: Any = None
    kind: Any = None  # part of the type, for libraries with their own kinds; None in weft

    shape = property(lambda self: self.inner_aval.shape)
    dtype = property(lambda self: self.inner_aval.dtype)
    ndim = property(lambda self: self.inner_aval.ndim)
    size = property(lambda self: self.inner_aval.size)
    sharding = property(lambda self: self.inner_aval.sharding)
    explicit = property(lambda self: self.inner_aval.explicit)
    weak_type = is_high = has_qdd = False

    def str_short(self, short_dtypes: bool = False) -> str:
        """Return the type as programs print it: `Ref{f32[3]}`."""
        return f"Ref{{{self.inner_aval.str_short(short_dtypes)}}}"

    def __repr__(self) -> str:
        return self.str_short()


class _Cell:
    """The value of a reference inside a program that is being traced."""

    __slots__ = ("ref", "value", "written", "var")

    def __init__(self, ref: Ref, value: Any, var: Var | None = None):
        self.ref, self.value, self.written, self.var = ref, value, False, var


def _program_trace() -> StageTrace:
    """Return the innermost trace that records a program."""
    trace: Trace | None = trace_state.trace
    while trace is not None and type(trace) is not StageTrace:
        trace = trace.parent
    assert trace is not None
    return trace


class _Writable:
    """The writing methods of references and of parts of references, which define `_store`."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError

    def _store(self, index: Any, value: Any, mode: str) -> None:
        raise NotImplementedError

    def set(self, value: Any, *, idx: Any = ...) -> None:
        """Set `ref[idx] = value`."""
        self._store(idx, value, "set")

    def swap(self, value: Any, *, idx: Any = ...) -> Any:
        """Set `ref[idx] = value` and return the previous value."""
        old = self[idx]
        self._store(idx, value, "set")
        return old

    def addupdate(self, value: Any, *, idx: Any = ...) -> None:
        """Add `value` to `ref[idx]`; repeated indices accumulate."""
        self._store(idx, value, "add")


@reports_as("jax.ref")
class Ref(_Writable, metaclass=Sealed):
    """A reference to a mutable array, made by `new_ref`: `ref[index]` reads, `ref[index] = value` and `ref[index] += value` write in place.

    Indices have the same forms as for arrays. A reference is not an array: read it to compute with
    its value. It may be closed over by, or passed to, functions under `jit`, `scan`, `while_loop`,
    `cond` and `checkpoint`, and passed through `vmap` and `shard_map`; it may not be returned.
    Writes with a shape other than the index's, or another dtype, raise ValueError.

    >>> total = weft.new_ref(wnp.zeros(3))
    >>> @weft.jit
    ... def add(x): total[1:] += x
    >>> add(2.0); add(1.0)
    >>> total
    Ref([0., 3., 3.], dtype=float32)
    """

    __module__ = "weft"

    _created_by = "weft.new_ref"
    __slots__ = (
        "type",
        "made_under",
        "source",
        "argument_name",
        "original",
        "no_grad",
        "_value",
        "__weakref__",
    )
    __array_priority__ = 1000
    __hash__ = object.__hash__
    _is_ref = True

    def __init__(
        self,
        value: Any,
        argument_name: str = "",
        no_grad: bool = False,
        original: Ref | None = None,
    ):
        aval = typeof(value).strip_weak_type()
        self.type = AbstractRef(aval)
        self.made_under: Trace = trace_state.trace
        self.source = user_frame()
        self.no_grad = no_grad  # whether writes drop derivatives
        self.argument_name = argument_name  # its name as an argument of the traced function
        # the original reference, for derivative rules that run after the call
        self.original = original
        self._value = value

    shape = property(lambda self: self.type.shape)
    dtype = property(lambda self: self.type.dtype)
    ndim = property(lambda self: self.type.ndim)
    size = property(lambda self: self.type.size)
    weak_type = False
    sharding = property(lambda self: self._read().sharding)
    at = property(lambda self: RefIndexer(self))

    # ---- where the value is
    def _cell(self) -> _Cell | Ref:
        """Return the holder of the value in the current trace.

        It is the reference itself, or its cell in the innermost program.
        """
        if self._value is _FREED:
            raise ValueError(
                f"{self.type} was freed or frozen and can no longer be used.{self._origin()}"
            )
        trace, program = trace_state.trace, None
        while trace is not self.made_under:
            if type(trace) is StageTrace and program is None:
                program = trace
            if trace.parent is None:
                if self.original is not None:
                    return self.original._cell()
                raise UnexpectedTracerError(
                    f"{self.type} was used outside the transformed function that created it."
                    f"{self._origin()}\n  References cannot leave the function that made them."
                )
            trace = trace.parent
        if program is None:
            return self
        cell = program.refs.get(id(self))
        if cell is None:
            var = Var(self.type.inner_aval)
            cell = program.refs[id(self)] = _Cell(
                self, StageTracer.make(program, var.aval, var, None), var
            )
        return cell

    def _origin(self) -> str:
        if self.argument_name:
            return f"\n  It was passed in as the argument {self.argument_name}."
        return "" if self.source is None else f"\n  It was created on line {self.source}."

    def _read(self) -> Any:
        cell = self._cell()
        return cell._value if isinstance(cell, Ref) else cell.value

    def _write(self, value: Any) -> None:
        """Replace the whole value by a value of the same type."""
        cell = self._cell()
        if isinstance(cell, Ref):
            owner = cell.made_under
        else:
            owner = _program_trace()
        while (
            self.no_grad
            and getattr(value, "carries_derivative", False)
            and not owner.is_nested_in(value.owning_trace)
        ):
            value = value.primal
        if isinstance(value, Tracer) and not owner.is_nested_in(value.owning_trace):
            raise ValueError(_why_not_writable(value, self))
        if isinstance(cell, Ref):
            cell._value = value
        else:
            cell.value, cell.written = value, True

    # ---- access
    def __getitem__(self, index: Any) -> Any:
        value = self._read()
        return value if _is_whole(index) else read(value, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._store(index, value, "set")

    def _store(self, index: Any, value: Any, mode: str) -> None:
        current = self._read()
        shape = self.shape if _is_whole(index) else typeof(read(current, index)).shape
        value = self._cast_to_array(value, shape)
        if mode == "set" and _is_whole(index) and not isinstance(value, (np.ndarray, np.generic)):
            self._write(value)
        else:
            self._write(write(current, index, value, mode))

    def _cast_to_array(self, value: Any, shape: tuple[int, ...]) -> Any:
        """Return `value` with the array's dtype and the given shape.

        Raise ValueError if it does not fit.
        """
        if getattr(value, "_is_ref", False):
            raise ValueError(
                f"Cannot store a Ref into another Ref: {value.type} into {self.type}. References hold arrays. Read it first: "
                "ref[...]."
            )
        aval = typeof(value)
        if aval.dtype != self.dtype:
            joined = None
            if aval.weak_type and not dtypes.is_extended(self.dtype):
                joined, _ = dtypes.join_dtypes(((self.dtype, False), (aval.dtype, True)))
            if joined != self.dtype:
                raise ValueError(
                    f"invalid dtype: a value of type {aval.str_short()} cannot be stored in {self.type}, whose dtype stays "
                    f"{self.dtype}. Cast it with .astype first."
                )
        if aval.dtype != self.dtype or aval.weak_type:
            value = convert_element_type(value, self.dtype)
        if aval.shape == shape:
            return value
        n = len(shape) - aval.ndim
        if n < 0 or any(have not in (1, size) for have, size in zip(aval.shape, shape[n:])):
            raise ValueError(
                f"invalid shape: a value of type {aval.str_short()} cannot be stored in a part of {self.type} of shape "
                f"{shape}."
            )
        dims = [d for d in range(aval.ndim) if aval.shape[d] == shape[n + d]]
        value = value.reshape([aval.shape[d] for d in dims])
        return broadcast_in_dim(value, shape, tuple([n + d for d in dims]))

    def get(self) -> Any:
        """Return the whole value."""
        return self._read()

    # ---- other array methods
    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"len() of {self.type}, which has no dims.")
        return self.shape[0]

    def __iter__(self):
        raise TypeError(f"{self.type} cannot be iterated over. Read it first: ref[...].")

    def __array__(self, *args, **kwargs):
        raise TypeError(_NOT_AN_ARRAY.format(self.type))

    def __repr__(self) -> str:
        value = self._value if self.made_under is trace_state.trace else None
        if value is None or value is _FREED or isinstance(value, Tracer):
            return repr(self.type)
        text = np.array2string(np.asarray(value), separator=", ", prefix="Ref(")
        return f"Ref({text}, dtype={self.dtype})"

    __str__ = __repr__

    def __getattr__(self, name: str) -> Any:
        if name in (
            "unsafe_buffer_pointer",
            "committed",
            "format",
            "devices",
            "addressable_shards",
            "is_fully_addressable",
            "nbytes",
            "itemsize",
            "block_until_ready",
            "device",
        ):
            return getattr(self._read(), name)
        raise AttributeError(
            f"{self.type} has no attribute {name!r}: a reference is read as ref[...], and what is read is an array."
        )


_FREED: Any = object()
_NOT_AN_ARRAY = (
    "{} is a reference to a mutable array, not an array. Read its value first: ref[...]."
)


class RefIndexer:
    """`ref.at[index]`: a part of a reference, which is read and written like a reference."""

    __slots__ = ("ref", "outer")

    def __init__(self, ref: Ref, outer: tuple = ()):
        self.ref, self.outer = ref, outer

    def __getitem__(self, index: Any) -> TransformedRef:
        return TransformedRef(self.ref, (*self.outer, index))


class TransformedRef(_Writable):
    """The part of a reference that the indices `transforms` select, applied one after the other."""

    __slots__ = ("ref", "transforms")

    def __init__(self, ref: Ref, transforms: tuple):
        self.ref, self.transforms = ref, transforms

    at = property(lambda self: RefIndexer(self.ref, self.transforms))
    shape = property(lambda self: typeof(self[...]).shape)
    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: typeof(self[...]).size)
    dtype = property(lambda self: self.ref.dtype)

    def _positions(self, index: Any) -> Any:
        """Return the flat positions of the elements that an index of this part selects."""
        where = np.arange(self.ref.size, dtype=np.int32).reshape(self.ref.shape)
        for i in (*self.transforms, index):
            if isinstance(where, np.ndarray) and (has_slices(i) or not _is_static(i)):
                where = _array(where)
            where = read(where, i)
        return where

    def __getitem__(self, index: Any) -> Any:
        value = self.ref[...]
        for i in (*self.transforms, index):
            value = value if _is_whole(i) else read(value, i)
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        self._store(index, value, "set")

    def _store(self, index: Any, value: Any, mode: str) -> None:
        if all(map(_is_whole, self.transforms[1:])) and _is_whole(index):
            self.ref._store(self.transforms[0], value, mode)
            return
        if all(map(is_basic, self.transforms)):
            self._store_inside(self.ref[...], [*self.transforms, index], value, mode)
            return
        where = self._positions(index)
        shape = np.shape(where) if isinstance(where, np.ndarray) else typeof(where).shape
        value = self.ref._cast_to_array(value, shape)
        flat = self.ref[...].reshape(-1)
        self.ref._write(getattr(flat.at[where], mode)(value).reshape(self.ref.shape))

    def _store_inside(self, whole: Any, indices: list, value: Any, mode: str) -> None:
        """Write into parts without overlaps, from the innermost outward."""
        parts = [whole]
        for i in indices[:-1]:
            parts.append(parts[-1] if _is_whole(i) else read(parts[-1], i))
        last = indices[-1]
        value = self.ref._cast_to_array(
            value, typeof(parts[-1] if _is_whole(last) else read(parts[-1], last)).shape
        )
        for part, i in zip(reversed(parts), reversed(indices)):
            value, mode = (
                (value if _is_whole(i) and mode == "set" else write(part, i, value, mode)),
                "set",
            )
        self.ref._write(value)

    def get(self) -> Any:
        """Return the value of the part."""
        return self[...]

    def __repr__(self) -> str:
        return f"{self.ref.type}.at" + "".join(f"[{i}]" for i in self.transforms)


def _flatten_view(view: TransformedRef) -> tuple[tuple, tuple]:
    """Return the reference and the arrays among the indices.

    Also return the other indices in hashable form.
    """
    arrays: list = []

    def entry(i: Any) -> tuple:
        if type(i) is slice:
            return ("slice", i.start, i.stop, i.step)
        if hasattr(i, "shape") and hasattr(i, "dtype"):
            arrays.append(i)
            return ("array",)
        return ("as it is", i)

    transforms = tuple(
        (type(index), tuple(map(entry, index if type(index) is tuple else (index,))))
        for index in view.transforms
    )
    return (view.ref, *arrays), transforms


def _unflatten_view(rest: tuple, children: Iterable) -> TransformedRef:
    ref, *arrays = children
    arrays_iter = iter(arrays)
    builders = {
        "slice": lambda *ends: slice(*ends),
        "array": lambda: next(arrays_iter),
        "as it is": lambda i: i,
    }
    parts = [(kind, [builders[what](*facts) for what, *facts in entries]) for kind, entries in rest]
    return TransformedRef(
        ref, tuple(tuple(payload) if kind is tuple else payload[0] for kind, payload in parts)
    )


tree.register_pytree_node(TransformedRef, _flatten_view, _unflatten_view)


def _is_static(index: Any) -> bool:
    return not any(isinstance(i, Tracer) for i in (index if isinstance(index, tuple) else (index,)))


def _array(x: np.ndarray) -> Any:
    """Return a constant as an array that accepts traced indices."""
    return broadcast_in_dim(x, x.shape, tuple(range(x.ndim)))


def _is_whole(index: Any) -> bool:
    """Return True if an index selects everything, in order."""
    if isinstance(index, tuple):
        return all(i is Ellipsis or (type(i) is slice and i == slice(None)) for i in index)
    return index is Ellipsis or (type(index) is slice and index == slice(None))


def _why_not_writable(value: Tracer, ref: Ref) -> str:
    kind = type(value).__name__
    if kind == "BatchTracer":
        return (
            f"vmap: a mapped value of type {value.aval.str_short()} (per example) is written to an unbatched array reference of type "
            f"{ref.type}: it cannot hold the values of all examples.{ref._origin()}\n"
            "  Pass the reference to the mapped function, with a mapped dim (in_axes), or write a value that is not mapped."
        )
    if kind == "JVPTracer":
        return (
            f"grad, jvp: a value that is being differentiated, of type {value.aval.str_short()}, is written to {ref.type}, which is "
            f"not.{ref._origin()}\n  Move the array reference to be an argument of the differentiated function, make it inside, or "
            "write lax.stop_gradient(value)."
        )
    return (
        f"a traced value of type {value.aval.str_short()} is written to {ref.type}, which lives longer than the program that is traced."
        f"{ref._origin()}"
    )


def free(ref: Ref) -> Any:
    """Return the value of a reference and invalidate it.

    Raise ValueError if it was created by another function.
    """
    if ref.argument_name or ref._cell() is not ref:
        raise ValueError(
            f"freeze: {ref.type} can only be frozen or freed in the function that created it.{ref._origin()}"
        )
    value, ref._value = ref._value, _FREED
    return value


# ---- programs with references as programs of values


def is_ref(x: Any) -> bool:
    """Return True if `x` is a reference."""
    return type(x) is Ref


def any_refs(leaves: Iterable) -> bool:
    """Return True if a reference is among the leaves."""
    return Ref in map(type, leaves)


class bind_ref_values:
    """Context manager that gives `refs` these values in the traced program.

    On exit, `values` holds the last writes.
    """

    __slots__ = ("refs", "values", "cells", "written")

    def __init__(self, refs: Sequence[Ref], values: Sequence):
        self.refs, self.values = refs, list(values)

    def __enter__(self) -> bind_ref_values:
        self.cells = []
        if not self.refs:
            return self
        trace = _program_trace()
        self.cells = [_Cell(r, v) for r, v in zip(self.refs, self.values)]
        trace.bound.update({id(c.ref): c for c in self.cells})
        trace.refs.update({id(c.ref): c for c in self.cells})
        return self

    def __exit__(self, *exc) -> None:
        self.values = [c.value for c in self.cells]
        self.written = [c.written for c in self.cells]


def call_on_values(refs: Sequence[Ref], call: Callable, operands: Sequence) -> list:
    """Call a program on the values of `refs`, and write their last values back.

    The program takes these values first and returns their last values last.
    """
    outs = call(*[r[...] for r in refs], *operands)
    n = len(outs) - len(refs)
    for r, value in zip(refs, outs[n:]):
        r._write(value)
    return outs[:n]


def trace_with_refs(
    run: Callable[[list[Ref]], Any],
    refs: Sequence[Ref] = (),
    passed: Sequence[Ref] = (),
    fun: Callable | None = None,
    api: str = "",
    names: Sequence[str] = (),
) -> Any:
    """Return `run(refs)`, where `refs` grows to all references that the traced programs close over:
    `run` is called again when tracing meets a new one. Raise ValueError if one of them is among
    `passed`, the arguments called `names`."""
    known: list[Ref] = []
    new = list(refs)
    while True:
        for r in new:
            for other, name in zip(passed, names):
                if r is other:
                    raise ValueError(
                        f"{_trace_with_refs(fun, api)}: the reference {r.type} is closed over and passed as the argument {name}."
                        f"{r._origin()}\n{_ONE_NAME}"
                    )
        known += new
        try:
            return run(known)
        except ClosedOverRefsError as used:
            new = [r for r in used.refs if not any(r is k for k in known)]
            if not new:
                raise


_ONE_NAME = "  Inside a traced function a mutable array has one name: pass each reference once, or close over it."


def _trace_with_refs(fun: Callable | None, api: str) -> str:
    return f"{function_name(fun)} traced for {api}" if fun is not None else api


def check_aliases(fun: Callable, api: str, passed: Sequence[Ref], names: Sequence[str]) -> None:
    """Raise ValueError if a reference is passed twice."""
    seen: dict[int, str] = {}
    for r, name in zip(passed, names):
        if id(r) in seen:
            raise ValueError(
                f"{_trace_with_refs(fun, api)}: only one reference to a mutable array may be passed as an argument, but {r.type} "
                f"appeared at both {seen[id(r)]} and {name}.\n{_ONE_NAME}"
            )
        seen[id(r)] = name


def check_returned(fun: Callable, api: str, outs: Sequence) -> None:
    """Raise ValueError if a reference is among the results."""
    for r in outs:
        if type(r) is Ref:
            where = (
                f"It was passed in as the argument {r.argument_name}."
                if r.argument_name
                else f"It was created on line {r.source}."
                if r.source is not None
                else ""
            )
            raise ValueError(
                f"{_trace_with_refs(fun, api)} returned a mutable array reference of type {r.type}, which no program can give.\n\n"
                f"  {where} Return its value, ref[...]."
            )


def call_with_refs(fun: Callable, api: str, args: Sequence) -> Any:
    """Return `fun(*args)`. Raise ValueError if a reference is passed twice or returned."""
    leaves = tree.tree_leaves(args)
    if any_refs(leaves):
        check_aliases(
            fun,
            api,
            *zip(*[(x, name) for x, name in zip(leaves, names_of(fun, args)) if is_ref(x)]),
        )
    out = fun(*args)
    check_returned(fun, api, (out,))
    return out


def names_of(fun: Callable, args: Sequence) -> list[str]:
    """Return the names of the flat positional arguments of a call."""
    try:
        named = positional_names(inspect.signature(fun))
    except (ValueError, TypeError):
        named = []
    roots = [(named[i] if i < len(named) else f"args[{i}]", x) for i, x in enumerate(args)]
    return [
        root + tree.keystr(path)
        for root, x in roots
        for path, _ in tree.tree_flatten_with_path(x)[0]
    ]


class LiftedRefs:
    """A function that takes or closes over references, as a function of values.

    `call(values, args)`, with arrays in `args` in place of references, returns the results, the
    last values of the closed-over `refs`, and the last values of the references among the
    arguments.
    """

    __slots__ = ("fun", "api", "refs", "names", "first", "passed")

    def __init__(
        self,
        fun: Callable,
        api: str,
        refs: Sequence[Ref],
        positions: Sequence[int],
        names: Sequence[str],
        first: ClosedOverRefsError | None = None,
        passed: Sequence[Ref] = (),
    ):
        """`first` is an earlier trace of the function, used once. `passed` are the references among
        the arguments, for derivative rules that may run after the call."""
        self.fun, self.api, self.refs, self.names = fun, api, list(refs), names
        self.first = first
        self.passed = dict(zip(positions, passed)) if passed else dict.fromkeys(positions)

    def call(self, values: Sequence, args: Sequence) -> tuple[Any, list, list]:
        leaves, structure = tree.tree_flatten(tuple(args))
        first, self.first = self.first, None
        if first is not None and [typeof(x) for x in leaves] == list(
            first.program.in_avals[len(self.refs) :]
        ):
            outs = evaluate(first.program, *values, *leaves)
            n = len(outs) - len(self.refs)
            return tree.tree_unflatten(first.out_tree, outs[:n]), outs[n:], []
        inner_refs = {
            i: Ref.make(leaves[i], self.names[i], r is not None and r.no_grad, r)
            for i, r in self.passed.items()
        }
        leaves = [inner_refs.get(i, x) for i, x in enumerate(leaves)]
        with bind_ref_values(self.refs, values) as state:
            out = self.fun(*tree.tree_unflatten(structure, leaves))
        check_returned(self.fun, self.api, tree.tree_leaves(out))
        return out, state.values, [inner_refs[i]._read() for i in sorted(inner_refs)]


def lift_refs(
    first: ClosedOverRefsError | None,
    api: str,
    args: Sequence,
    funs: Sequence[Callable],
    run: Callable,
) -> Any:
    """Call `run(functions, values, args)` with references replaced by values.

    References are in `funs` and `args`; their values are written back.

    `run` returns (result, last values of closed-over references, last values of references in
    `args`). `first` is the trace of a first attempt, or None.
    """
    leaves, structure = tree.tree_flatten(tuple(args))
    positions = [i for i, x in enumerate(leaves) if type(x) is Ref]
    passed = [leaves[i] for i in positions]
    names = names_of(funs[0], args)
    check_aliases(funs[0], api, passed, [names[i] for i in positions])

    def attempt(refs: list[Ref]) -> Any:
        values = [r._read() for r in refs]
        arguments = tree.tree_unflatten(
            structure, [x._read() if type(x) is Ref else x for x in leaves]
        )
        is_traced = lambda f: (
            first is not None
            and f is first.fun
            and first.out_tree is not None
            and not positions
            and [*map(id, refs)] == [*map(id, first.refs)]
        )
        lifted = [
            LiftedRefs(f, api, refs, positions, names, first if is_traced(f) else None, passed)
            for f in funs
        ]
        result, closed, passed_values = run(lifted, values, arguments)
        for r, value in zip([*refs, *passed], [*closed, *passed_values]):
            r._write(value)
        return result

    return trace_with_refs(
        attempt,
        () if first is None else first.refs,
        passed,
        funs[0],
        api,
        [names[i] for i in positions],
    )


def thread_refs(call_with_refs: Callable) -> Callable:
    """Return a decorator for functions that trace user functions.

    If these or the arguments contain references, `call_with_refs(fun, first, *args, **kwargs)` is called instead and passes
    the values of the references explicitly; `first` is the trace of a first attempt.
    """

    def decorate(fun: Callable) -> Callable:
        @functools.wraps(fun)
        def call(*args, **kwargs):
            first = None
            in_python = config.disable_jit and type(trace_state.trace) is EvalTrace
            if in_python or not any_refs(tree.tree_leaves((args, kwargs))):
                try:
                    return fun(*args, **kwargs)
                except ClosedOverRefsError as used:
                    first = used
            return call_with_refs(fun, first, *args, **kwargs)

        return call

    return decorate
