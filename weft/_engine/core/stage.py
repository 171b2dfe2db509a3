"""Staging: run a Python function on tracers and record what it binds, giving a Jaxpr.

In:   a function of flat values, and the types of its arguments.
Out:  a Jaxpr whose inputs are those arguments; every concrete array met on the way becomes a constant of the program,
      every value of an enclosing trace too (the caller passes those on as arguments).
Next: `core.interpret` runs the result, `transforms` rewrite it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.core.annotations import annotated_types, check_same_axes
from weft._engine.core.primitive import Primitive
from weft._engine.core.scalars import Typed
from weft._engine.core.sealed import Sealed
from weft._engine.core.sharded_types import sharded_types
from weft._engine.core.trace import (
    Trace,
    Tracer,
    any_tracers,
    check_leaks,
    conversion,
    escaped_tracer,
    set_trace,
    trace_state,
    tracer_out_of_place,
    typeof,
)
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft._engine.ir.registry import registry
from weft._engine.ir.types import ShapedArray
from weft._engine.util import dtypes
from weft._engine.util.config import config
from weft._engine.util.source import SourceLine, scope, user_frame
from weft._engine.util.state import guard
from weft._engine.util.trees.narrowing import class_of

NO_EFFECTS: frozenset[Any] = frozenset()
_PYTHON_SCALARS = frozenset({bool, int, float, complex})


class UsesRefs(NotImplementedError):
    """A program was traced that reads or writes mutable arrays from outside; `refs` are the references to them, `program` takes their
    values first and gives their last values last. `fun` is the function that was traced, and `out_tree` the tree of its results."""

    def __init__(self, refs: list[Any], name: str, program: Jaxpr):
        types = ", ".join([str(r.type) for r in refs])
        super().__init__(
            f"{name or 'a traced function'} uses a reference to a mutable array, {types}, from outside of the program that is "
            "traced, where references cannot be threaded through. Pass its value, ref[...], and return the new one."
        )
        self.refs, self.program = refs, program
        self.fun: Any = None
        self.out_tree: Any = None


class StageTracer(Tracer, metaclass=Sealed):
    """A value of the program being staged."""

    _made_by = "transformations that trace a function"
    __slots__ = ("aval", "variable", "source")

    def __init__(self, trace: "StageTrace", aval: ShapedArray, var: Var, source: SourceLine | None):
        self.owning_trace = trace
        self.aval = aval
        self.variable = var
        self.source = source

    def describe(self) -> str:
        return f"a traced value of type {self.aval.str_short()}"


#: `StageTracer.make` without its frame: tracing creates one for each result
_new_tracer = functools.partial(type.__call__, StageTracer)


def _check_numbers(aval: ShapedArray) -> None:
    """TypeError for the type of an array of strings."""
    if type(aval) is ShapedArray and dtypes.is_strings(aval.dtype):
        raise TypeError(
            f"Argument of type {aval.str_short()} is not a valid JAX type. Programs compute with numbers; arrays of strings "
            "are held and moved, and device_get reads them."
        )


def staging(trace: Trace | None) -> StageTrace | None:
    """What records a program: `trace`, or the nearest one that it began within, if there is one."""
    while trace is not None and not isinstance(trace, StageTrace):
        trace = trace.parent
    return trace


def is_staged(trace: Trace | None) -> bool:
    """Whether operations on constants are recorded by `trace`, or by one that it began within, and not evaluated."""
    return _recorder(trace) is not None


def _recorder(trace: Trace | None) -> StageTrace | None:
    """The innermost trace, from `trace` outward, that records operations on constants."""
    while trace is not None and not trace.evaluates_constants:
        if isinstance(trace, StageTrace) and trace.records_constants:
            return trace
        trace = trace.parent
    return None


def record_constant(x: Any) -> Any:
    """`x` as a value of the program that is being recorded; `x` itself where operations on constants are evaluated."""
    recorder = _recorder(trace_state.trace)
    return x if recorder is None else recorder.constant(x)


def _same_bytes(x: np.ndarray, y: np.ndarray) -> bool:
    return np.array_equal(_bytes_of(x), _bytes_of(y))


def _bytes_of(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


class StageTrace(Trace):
    """Records bound primitives as equations. Equations with no outputs in use are kept; `ir.rewrite.dce` drops them."""

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
    records_constants = True  # also operations on values that do not depend on the program's inputs

    def __init__(self, parent: Trace, name: str = ""):
        super().__init__(parent)
        self.eqns: list[Eqn] = []
        self.constvars: list[Var] = []
        self.consts: list[Any] = []
        self._const_ids: dict[int, Var] = {}
        self._casts: dict[tuple[Any, ...], Var] = {}
        self._arrays: dict[int, tuple[Any, ...]] = {}
        self.name = name
        self.refs: dict[
            int, Any
        ] = {}  # the values of references from outside (`control.ref`), by their identity
        self.bound: dict[int, Any] = {}  # those of them that are threaded through this program

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]):
        atoms = [self.atom(x) for x in args]
        avals = [a.aval for a in atoms]
        if [a for a in avals if a.vma or a.explicit is not None]:
            out_avals, atoms = self.annotated(primitive, atoms, params)
        else:
            out_avals = primitive.abstract(avals, params)
        source = trace_state.source or user_frame()
        outs = [_new_tracer(self, aval, Var(aval), source) for aval in out_avals]
        effects = (
            NO_EFFECTS if primitive.ref_effects is None else primitive.effects_of(params, avals)
        )
        self.eqns.append(Eqn(primitive, atoms, [t.variable for t in outs], params, source, effects))
        return outs if primitive.multiple_results else outs[0]

    def annotated(
        self, primitive: Primitive, atoms: list[Any], params: dict[str, Any]
    ) -> tuple[Sequence[ShapedArray], list[Any]]:
        """Types of the results where operands' types have varying axes or shardings, and the operands, cast as needed."""
        avals = [a.aval for a in atoms]
        if any(a.vma for a in avals):
            out_avals, wanted = annotated_types(primitive, avals, params)
            if not config.auto_pcast:
                check_same_axes(
                    primitive,
                    [a.aval for a in atoms if type(a) is not Literal and a not in self.constvars],
                )
            atoms = [
                self.cast_atom(a, axes) if axes != a.aval.vma else a
                for a, axes in zip(atoms, wanted)
            ]
        else:
            out_avals = primitive.abstract(avals, params)
        if any(a.explicit is not None for a in avals):
            out_avals = sharded_types(primitive, avals, out_avals, params)
        return out_avals, atoms

    def atom(self, x: Any) -> Atom:
        """The variable or literal that stands for value `x` in the program."""
        if type(x) is StageTracer and x.owning_trace is self:
            return x.variable
        if isinstance(x, Tracer):
            if id(x) not in self._const_ids and not self.within(x.owning_trace):
                raise escaped_tracer(x) if x.owning_trace.finished else tracer_out_of_place(x)
            return self.const(x, x.aval)
        if type(x) in _PYTHON_SCALARS:
            return Literal(x, typeof(x))
        convert = conversion(x)
        if convert is not None:
            return self.atom(convert())
        aval = typeof(x)
        _check_numbers(aval)
        if isinstance(x, Typed):
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
        """The variable of `atom` typed as varying over `axes`, made once; constants stay as they are."""
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
        given = self.atom(x)
        atom = self.cast_atom(given, axes | typeof(x).vma)
        return super().cast(x, axes) if atom is given else _new_tracer(self, atom.aval, atom, None)

    def const(self, x: Any, aval: ShapedArray) -> Var:
        """The constant variable of value `x`; one per object."""
        var = self._const_ids.get(id(x))
        if var is None:
            var = self._const_ids[id(x)] = Var(aval)
            self.constvars.append(var)
            self.consts.append(x)
        return var

    def constant(self, x: Any) -> StageTracer:
        """The constant `x` as a value of the program."""
        atom = self.atom(x)
        return _new_tracer(self, atom.aval, atom, None)

    def array_of(self, x: np.ndarray, convert: Callable[..., Any]) -> Any:
        """The array that `convert` makes of `x`: one constant of the program for all uses between which `x` keeps its values."""
        found = self._arrays.get(id(x))
        if (
            found is None
            or typeof(x) != found[1].aval
            or not _same_bytes(np.asarray(found[1]), np.asarray(x, found[1].dtype))
        ):
            found = self._arrays[id(x)] = (x, convert(x))
        return found[1]

    def new_arg(self, aval: ShapedArray) -> StageTracer:
        _check_numbers(aval)
        return _new_tracer(self, aval, Var(aval), None)

    def to_jaxpr(self, in_tracers: Sequence[StageTracer], outs: Sequence[Any]) -> Jaxpr:
        """Close the trace: no tracer of it may be used afterwards."""
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
            raise UsesRefs([cell.ref for cell in cells], self.name, program)
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
    """Trace flat `fun(*args) -> sequence` on arguments of types `in_avals`.

    >>> from weft._engine.ops.elementwise import sin
    >>> stage(lambda x: [sin(x)], [ShapedArray((3,), np.dtype("float32"))]).out_avals
    [ShapedArray(float32[3])]
    """
    trace = StageTrace(trace_state.trace, name)
    guard[0] += 1
    outer, scope.name = scope.name, ""  # names are those within the program: others may call it
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
    """`jaxpr` with those constants that are tracers of enclosing transformations turned into leading inputs, and their values."""
    if not any_tracers(jaxpr.consts):
        return jaxpr, []
    pairs = list(zip(jaxpr.constvars, jaxpr.consts))
    outer = [(v, c) for v, c in pairs if isinstance(c, Tracer)]
    kept = [(v, c) for v, c in pairs if not isinstance(c, Tracer)]
    hoisted = Jaxpr(
        [v for v, _ in kept],
        [c for _, c in kept],
        [*(v for v, _ in outer), *jaxpr.invars],
        jaxpr.outvars,
        jaxpr.eqns,
        jaxpr.effects,
        jaxpr.name,
    )
    return hoisted, [c for _, c in outer]


def hoist_together(jaxprs: Sequence[Jaxpr]) -> tuple[list[Jaxpr], list[Any]]:
    """Programs of the same inputs with all their constants that are tracers as leading inputs, the same for each, and the values."""
    pairs = [hoist_tracers(j) for j in jaxprs]
    values = {id(c): c for _, consts in pairs for c in consts}
    made: list[Jaxpr] = []
    for jaxpr, consts in pairs:
        mine = {id(c): v for c, v in zip(consts, jaxpr.invars)}
        made.append(
            jaxpr.replace(
                invars=[
                    *[mine.get(i) or Var(c.aval) for i, c in values.items()],
                    *jaxpr.invars[len(consts) :],
                ]
            )
        )
    return made, list(values.values())
