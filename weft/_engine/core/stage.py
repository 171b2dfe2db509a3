"""Staging: run a Python function on tracers and record the primitives that it binds as a Jaxpr.

In:   a function of flat values, and the types of its arguments.
Out:  a Jaxpr whose inputs are these arguments. Concrete arrays and values of enclosing traces that the function uses become
      constants of the program. `hoist_tracers` turns the latter into inputs.
Next: `core.interpret` runs the result, `transforms` rewrite it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.core.annotations import annotate_types, check_same_axes
from weft._engine.core.primitive import Primitive
from weft._engine.core.sealed_classes import Sealed
from weft._engine.core.sharded_types import infer_sharded_types
from weft._engine.core.trace import (
    Trace,
    Tracer,
    any_tracers,
    array_converter,
    check_leaks,
    escaped_tracer_error,
    misplaced_tracer_error,
    set_trace,
    trace_state,
    typeof,
)
from weft._engine.core.typed_scalars import TypedScalar
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft._engine.ir.registry import registry
from weft._engine.ir.types import ShapedArray
from weft._engine.util import dtypes
from weft._engine.util.config import config
from weft._engine.util.dispatch_state import guard
from weft._engine.util.source import SourceLine, scope, user_frame
from weft._engine.util.trees.narrowing import class_of

NO_EFFECTS: frozenset[Any] = frozenset()
_PYTHON_SCALARS = frozenset({bool, int, float, complex})


class ClosedOverRefsError(NotImplementedError):
    """The error for a traced program that uses mutable arrays from outside of it.

    refs       the references to these arrays
    program    the program with their values as first inputs and their final values as last results
    fun        the traced function
    out_tree   the tree structure of its results
    """

    def __init__(self, refs: list[Any], name: str, program: Jaxpr):
        types = ", ".join([str(r.type) for r in refs])
        super().__init__(
            f"{name or 'a traced function'} uses a reference to a mutable array, {types}, from outside of the program that is "
            "traced. References are not supported as implicit inputs here. Pass the value, ref[...], and return the new value."
        )
        self.refs, self.program = refs, program
        self.fun: Any = None
        self.out_tree: Any = None


class StageTracer(Tracer, metaclass=Sealed):
    """A value of the program being staged."""

    _created_by = "transformations that trace a function"
    __slots__ = ("aval", "variable", "source")

    def __init__(self, trace: "StageTrace", aval: ShapedArray, var: Var, source: SourceLine | None):
        self.owning_trace = trace
        self.aval = aval
        self.variable = var
        self.source = source

    def describe(self) -> str:
        return f"a traced value of type {self.aval.str_short()}"


#: the constructor of `StageTracer` without the call of its metaclass: tracing creates a tracer for each result
_new_tracer = functools.partial(type.__call__, StageTracer)


def _check_numbers(aval: ShapedArray) -> None:
    """Raise TypeError for the type of an array of strings."""
    if type(aval) is ShapedArray and dtypes.is_strings(aval.dtype):
        raise TypeError(
            f"Argument of type {aval.str_short()} is not a valid JAX type. Programs compute with numbers. Arrays of strings "
            "can only be stored, copied, and read with device_get."
        )


def innermost_stage_trace(trace: Trace | None) -> StageTrace | None:
    """Return the innermost StageTrace among `trace` and its parents, or None."""
    while trace is not None and not isinstance(trace, StageTrace):
        trace = trace.parent
    return trace


def is_staged(trace: Trace | None) -> bool:
    """Return whether `trace` or one of its parents records operations on constants instead of evaluating them."""
    return _recording_trace(trace) is not None


def _recording_trace(trace: Trace | None) -> StageTrace | None:
    """Return the innermost trace among `trace` and its parents that records operations on constants, or None."""
    while trace is not None and not trace.evaluates_constants:
        if isinstance(trace, StageTrace) and trace.records_constants:
            return trace
        trace = trace.parent
    return None


def record_constant(x: Any) -> Any:
    """Return `x` as a value of the program that is being recorded, or `x` itself if operations on constants are evaluated."""
    recorder = _recording_trace(trace_state.trace)
    return x if recorder is None else recorder.constant(x)


def _same_bytes(x: np.ndarray, y: np.ndarray) -> bool:
    return np.array_equal(_bytes_of(x), _bytes_of(y))


def _bytes_of(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


class StageTrace(Trace):
    """A trace that records bound primitives as equations. It keeps equations with unused results; `ir.rewrite.dce` removes them."""

    __slots__ = (
        "eqns",
        "constvars",
        "consts",
        "_const_ids",
        "_casts",
        "_arrays",
        "name",
        "refs",
        "bound",
    )
    #: whether operations are recorded if no operand depends on the program's inputs
    records_constants = True

    def __init__(self, parent: Trace, name: str = ""):
        super().__init__(parent)
        self.eqns: list[Eqn] = []
        self.constvars: list[Var] = []
        self.consts: list[Any] = []
        self._const_ids: dict[int, Var] = {}
        self._casts: dict[tuple[Any, ...], Var] = {}
        self._arrays: dict[int, tuple[Any, ...]] = {}
        self.name = name
        # id of a reference from outside (`control.ref`) -> its current value
        self.refs: dict[int, Any] = {}
        # the entries of `refs` that are inputs and results of this program
        self.bound: dict[int, Any] = {}

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]):
        atoms = [self.atom(x) for x in args]
        avals = [a.aval for a in atoms]
        if [a for a in avals if a.vma or a.explicit is not None]:
            out_avals, atoms = self.annotate_types(primitive, atoms, params)
        else:
            out_avals = primitive.abstract(avals, params)
        source = trace_state.source or user_frame()
        outs = [_new_tracer(self, aval, Var(aval), source) for aval in out_avals]
        effects = (
            NO_EFFECTS if primitive.ref_effects is None else primitive.effects_of(params, avals)
        )
        self.eqns.append(Eqn(primitive, atoms, [t.variable for t in outs], params, source, effects))
        return outs if primitive.multiple_results else outs[0]

    def annotate_types(
        self, primitive: Primitive, atoms: list[Any], params: dict[str, Any]
    ) -> tuple[Sequence[ShapedArray], list[Any]]:
        """Return the types of the results and the operands, cast if needed, for operands with varying axes or explicit shardings."""
        avals = [a.aval for a in atoms]
        if any(a.vma for a in avals):
            out_avals, in_axes = annotate_types(primitive, avals, params)
            if not config.auto_pcast:
                check_same_axes(
                    primitive,
                    [a.aval for a in atoms if type(a) is not Literal and a not in self.constvars],
                )
            atoms = [
                self.cast_atom(a, axes) if axes != a.aval.vma else a
                for a, axes in zip(atoms, in_axes)
            ]
        else:
            out_avals = primitive.abstract(avals, params)
        if any(a.explicit is not None for a in avals):
            out_avals = infer_sharded_types(primitive, avals, out_avals, params)
        return out_avals, atoms

    def atom(self, x: Any) -> Atom:
        """Return the variable or literal of value `x` in the program."""
        if type(x) is StageTracer and x.owning_trace is self:
            return x.variable
        if isinstance(x, Tracer):
            if id(x) not in self._const_ids and not self.is_nested_in(x.owning_trace):
                raise (
                    escaped_tracer_error(x)
                    if x.owning_trace.finished
                    else misplaced_tracer_error(x)
                )
            return self.const(x, x.aval)
        if type(x) in _PYTHON_SCALARS:
            return Literal(x, typeof(x))
        convert = array_converter(x)
        if convert is not None:
            return self.atom(convert())
        aval = typeof(x)
        _check_numbers(aval)
        if isinstance(x, TypedScalar):
            return Literal(x.plain, aval)
        if issubclass(class_of(x), np.generic) and x.dtype == aval.dtype:
            return Literal(x, aval)
        if (
            aval.ndim == 0
            and isinstance(x, (np.generic, np.ndarray))
            and not dtypes.is_extended(aval.dtype)
        ):
            return Literal(np.asarray(x, aval.dtype)[()], aval)
        return self.const(x, aval)

    def cast_atom(self, atom: Atom, axes: frozenset[Any]) -> Atom:
        """Return `atom` cast to a type that varies over `axes`. Casts are cached; constants are returned unchanged."""
        if type(atom) is Literal or (atom in self.constvars and not atom.aval.vma):
            return atom
        out = self._casts.get((atom, axes))
        if out is None:
            missing = tuple(sorted(axes - atom.aval.vma, key=str))
            out = self._casts[atom, axes] = Var(atom.aval.update(vma=axes))
            self.eqns.append(
                Eqn(
                    registry["pvary"],
                    [atom],
                    [out],
                    {"axes": missing},
                    trace_state.source or user_frame(),
                )
            )
        return out

    def cast(self, x: Any, axes: frozenset[Any]) -> Any:
        operand = self.atom(x)
        atom = self.cast_atom(operand, axes | typeof(x).vma)
        return (
            super().cast(x, axes) if atom is operand else _new_tracer(self, atom.aval, atom, None)
        )

    def const(self, x: Any, aval: ShapedArray) -> Var:
        """Return the constant variable of value `x`. Each object has one variable."""
        var = self._const_ids.get(id(x))
        if var is None:
            var = self._const_ids[id(x)] = Var(aval)
            self.constvars.append(var)
            self.consts.append(x)
        return var

    def constant(self, x: Any) -> StageTracer:
        """Return the constant `x` as a value of the program."""
        atom = self.atom(x)
        return _new_tracer(self, atom.aval, atom, None)

    def array_of(self, x: np.ndarray, convert: Callable[..., Any]) -> Any:
        """Return `convert(x)` as an array. It is cached, and so is one constant of the program, until the contents of `x` change."""
        cached = self._arrays.get(id(x))
        if (
            cached is None
            or typeof(x) != cached[1].aval
            or not _same_bytes(np.asarray(cached[1]), np.asarray(x, cached[1].dtype))
        ):
            cached = self._arrays[id(x)] = (x, convert(x))
        return cached[1]

    def new_arg(self, aval: ShapedArray) -> StageTracer:
        _check_numbers(aval)
        return _new_tracer(self, aval, Var(aval), None)

    def to_jaxpr(self, in_tracers: Sequence[StageTracer], outs: Sequence[Any]) -> Jaxpr:
        """Finish the trace and return its program. Its tracers may not be used afterwards. Raise UsesRefs for mutable arrays of outside."""
        if len(self.refs) > len(self.bound):
            cells = [cell for key, cell in self.refs.items() if key not in self.bound]
            out_atoms = [self.atom(x) for x in (*outs, *(cell.value for cell in cells))]
            program = Jaxpr(
                self.constvars,
                self.consts,
                [*(cell.var for cell in cells), *(t.variable for t in in_tracers)],
                out_atoms,
                self.eqns,
                name=self.name,
            )
            raise ClosedOverRefsError([cell.ref for cell in cells], self.name, program)
        out_atoms = [self.atom(x) for x in outs]
        self.finished = True
        return Jaxpr(
            self.constvars,
            self.consts,
            [t.variable for t in in_tracers],
            out_atoms,
            self.eqns,
            name=self.name,
        )


def is_tracing() -> bool:
    """Return whether this thread records operations on constants."""
    return is_staged(trace_state.trace)


def stage(fun: Callable[..., Any], in_avals: Sequence[ShapedArray], name: str = "") -> Jaxpr:
    """Trace the flat function `fun(*args) -> sequence` on arguments of types `in_avals`, and return its program.

    >>> from weft._engine.ops.elementwise import sin
    >>> stage(lambda x: [sin(x)], [ShapedArray((3,), np.dtype("float32"))]).out_avals
    [ShapedArray(float32[3])]
    """
    trace = StageTrace(trace_state.trace, name)
    guard[0] += 1
    # the program may have several callers, so its names do not include the caller's
    outer, scope.name = scope.name, ""
    try:
        with set_trace(trace):
            args = [trace.new_arg(a) for a in in_avals]
            outs = fun(*args)
            jaxpr = trace.to_jaxpr(args, outs)
    finally:
        guard[0] -= 1
        trace.finished = True
        scope.name = outer
    if config.check_tracer_leaks:
        del args, outs
        check_leaks(trace)
    return jaxpr


def hoist_tracers(jaxpr: Jaxpr) -> tuple[Jaxpr, list[Any]]:
    """Turn the constants of `jaxpr` that are tracers of enclosing transformations into leading inputs; return it and their values."""
    if not any_tracers(jaxpr.consts):
        return jaxpr, []
    pairs = list(zip(jaxpr.constvars, jaxpr.consts))
    outer = [(v, c) for v, c in pairs if isinstance(c, Tracer)]
    concrete = [(v, c) for v, c in pairs if not isinstance(c, Tracer)]
    hoisted = Jaxpr(
        [v for v, _ in concrete],
        [c for _, c in concrete],
        [*(v for v, _ in outer), *jaxpr.invars],
        jaxpr.outvars,
        jaxpr.eqns,
        jaxpr.effects,
        jaxpr.name,
    )
    return hoisted, [c for _, c in outer]


def hoist_shared_tracers(jaxprs: Sequence[Jaxpr]) -> tuple[list[Jaxpr], list[Any]]:
    """Apply `hoist_tracers` to programs with the same inputs so that they have the same leading inputs; return them and the values.

    The leading inputs are the tracers among the constants of all programs.
    """
    pairs = [hoist_tracers(j) for j in jaxprs]
    values = {id(c): c for _, consts in pairs for c in consts}
    hoisted: list[Jaxpr] = []
    for jaxpr, consts in pairs:
        own_inputs = {id(c): v for c, v in zip(consts, jaxpr.invars)}
        hoisted.append(
            jaxpr.replace(
                invars=[
                    *[own_inputs.get(i) or Var(c.aval) for i, c in values.items()],
                    *jaxpr.invars[len(consts) :],
                ]
            )
        )
    return hoisted, list(values.values())
