"""The result of one trace of a jitted function, and the executables for it.

In:   a jaxpr, the structure of arguments and results, and the options that concern them.
Out:  a `TracedProgram`; `constrained` is its program with shardings as constraints, for calls inside of transformations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft._engine.api.calls.build import ProgramOptions
from weft._engine.backends.formats import Layout
from weft._engine.core.interpret import evaluate
from weft._engine.core.stage import stage
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.program_mesh import is_abstract
from weft._engine.ir.shardings import Sharding
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.placement import layout_constraint, sharding_constraint
from weft._engine.runtime.executable import Executable
from weft._engine.util import tree
from weft._engine.util.dtypes import float0
from weft._engine.util.record import record


@record(frozen=False, eq=False)
class TracedProgram:
    """One trace of a jitted function: its program, and the structure of its arguments and results.

    in_layouts, out_layouts   empty where no format states one
    empty                     results without bytes, the tangents of integers: NumPy arrays, as no array has such a dtype
    fast_path_attempts        how often the backend may still try to make calls bypass Python
    needs_leaves              whether Python has to flatten the arguments or build the results
    """

    jaxpr: Jaxpr
    consts: list
    in_tree: Any
    out_tree: Any
    in_shardings: tuple[Sharding | None, ...]
    out_shardings: tuple[Sharding | None, ...]
    donated: tuple[bool, ...]
    arg_names: Sequence[str]
    name: str
    in_avals: Sequence[ShapedArray]
    in_layouts: tuple = ()
    out_layouts: tuple = ()
    empty: Sequence[int] = ()
    fast_path_attempts: int = 16
    needs_leaves: bool = False

    def __post_init__(self) -> None:
        self.empty = [i for i, a in enumerate(self.jaxpr.out_avals) if a.dtype == float0]
        if self.empty:
            self.fast_path_attempts = 0
        self.needs_leaves = not (self.in_tree.is_builtin() and self.out_tree.is_builtin())

    @property
    def places_arguments(self) -> bool:
        """Whether `in_shardings` states where an argument is."""
        return any(s is not None for s in self.in_shardings)

    def options(self, backend: str | None) -> ProgramOptions:
        """Return what `prepare` must know besides the program and its arguments."""
        return ProgramOptions(
            f"jit({self.name})",
            self.arg_names,
            self.in_shardings,
            self.out_shardings,
            [i for i, is_donated in enumerate(self.donated) if is_donated],
            backend,
            self.in_layouts,
            self.out_layouts,
        )

    def results(self, outs: list) -> Any:
        """Return the tree of results that the function gives, from the arrays of its program."""
        for i in self.empty:
            outs[i] = np.zeros(outs[i].shape, float0)
        return tree.tree_unflatten(self.out_tree, outs)

    def constrained(self) -> Jaxpr:
        """Return the program with its shardings as constraints, which stay with its values when the call is transformed or inlined."""
        count = len(self.consts)
        ins = tuple(map(_as_constraint, self.in_shardings, self.jaxpr.in_avals[count:]))
        outs = tuple(map(_as_constraint, self.out_shardings, self.jaxpr.out_avals))
        layouts = self.out_layouts
        if not any((*ins, *outs)) and not any(isinstance(layout, Layout) for layout in layouts):
            return self.jaxpr

        def flat_fun(*xs):
            results = evaluate(self.jaxpr, *xs[:count], *_constrain(xs[count:], ins))
            results = _constrain(results, outs)
            return list(map(_store, results, layouts)) if layouts else results

        return self.jaxpr.memo(
            ("constrained", ins, outs, layouts),
            lambda: stage(flat_fun, self.jaxpr.in_avals, self.name),
        )


class CompiledCall(NamedTuple):
    """The executable for arguments of one placement."""

    executable: Executable
    traced: TracedProgram
    places_arguments: bool


def _as_constraint(sharding: Sharding | None, aval: ShapedArray) -> Sharding | None:
    """Return the constraint to add inside the program; None if the type implies it."""
    if sharding is None or aval.explicit is not None or is_abstract(sharding):
        return None
    return sharding if len(sharding.device_assignment) > 1 else None


def _constrain(xs: Sequence, shardings: Sequence[Sharding | None]) -> list:
    return [x if s is None else sharding_constraint(x, s) for x, s in zip(xs, shardings)]


def _store(x: Any, layout: Any) -> Any:
    return layout_constraint(x, layout.major_to_minor) if isinstance(layout, Layout) else x
