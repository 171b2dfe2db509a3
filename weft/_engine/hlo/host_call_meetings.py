"""Marks for host callbacks: the mesh axes along which all devices reach the same callback.

In:   the program of one device of a mesh, and the axes along which its arguments differ.
Out:  the same program, whose callbacks have the parameter `meets`: the axes of the mesh along which
      all devices reach the callback. Devices that differ along these axes alone can wait there for
      each other. A program on several devices ends with `program_end` twice: all meet at the first,
      and at the second each device learns whether the program failed.
Laws: devices reach a callback along the axes of the compiler, and along others unless a condition
      around it may differ there. An axis that is missing in `meets` costs order alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft._engine.core.primitive import BranchLike, CallbackOp, CollectiveOp, LoopLike
from weft._engine.ir.collective_spec import collective_axes, spec_of
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Var, subjaxprs
from weft._engine.ir.rewrite import inline_calls, map_jaxprs

#: the end of a program whose devices call the host; its operands are the results
program_end_p = CallbackOp("program_end", multiple_results=True, register=False)

#: collectives whose result is the same on all devices of a group
_SAME_RESULT = ("all-reduce", "all-gather", "collective-broadcast")

#: axes of a mesh along which devices differ
Axes = frozenset


def calls_host(jaxpr: Jaxpr) -> bool:
    """Return whether a program has callbacks, inside of loops and branches too."""

    def find() -> bool:
        inner = [body for eqn in jaxpr.eqns for _, body in subjaxprs(eqn.params)]
        return any(isinstance(e.primitive, CallbackOp) for e in jaxpr.eqns) or any(
            map(calls_host, inner)
        )

    return jaxpr.memo("calls host", find)


def mark_meetings(
    jaxpr: Jaxpr, mesh: Sequence[tuple[Any, int]], differing: Sequence[Axes]
) -> Jaxpr:
    """Set the parameter `meets` of the callbacks of a program, if it has any.

    `differing` has the axes along which each argument differs.
    """
    if not calls_host(jaxpr):
        return jaxpr
    jaxpr, names = _without_calls(jaxpr), Axes([name for name, _ in mesh])
    values = _DeviceVariance(names)
    values.follow(jaxpr, differing)
    jaxpr = _mark_callbacks(jaxpr, values, Axes())
    if math.prod(size for _, size in mesh) == 1:
        return jaxpr
    ends = [
        Eqn(program_end_p, jaxpr.outvars, [], {"meets": axes}, effects={"io"})
        for axes in (names, Axes())
    ]
    return jaxpr.replace(eqns=[*jaxpr.eqns, *ends], effects={*jaxpr.effects, "io"})


def _without_calls(jaxpr: Jaxpr) -> Jaxpr:
    """Write called programs in place, inside of loops and branches too."""
    jaxpr = inline_calls(jaxpr)
    eqns = [eqn.replace(params=map_jaxprs(eqn.params, _without_calls)) for eqn in jaxpr.eqns]
    return jaxpr.replace(eqns=eqns)


def _mark_callbacks(jaxpr: Jaxpr, values: _DeviceVariance, around: Axes) -> Jaxpr:
    """Mark callbacks of a program where devices differ along `around` in whether they run it."""
    eqns = []
    for eqn in jaxpr.eqns:
        params, primitive = eqn.params, eqn.primitive
        if isinstance(eqn.primitive, CallbackOp):
            params = {**params, "meets": values.names - (around - _automatic(eqn))}
        elif any(calls_host(body) for _, body in subjaxprs(params)):
            inside = around
            if isinstance(primitive, BranchLike):
                inside = around | values.axes_of(eqn.invars[0])
            elif isinstance(primitive, LoopLike) and not primitive.counted:
                inside = around | values.axes_of(params["cond_jaxpr"].outvars[0])
            params = map_jaxprs(
                params, lambda body, inside=inside: _mark_callbacks(body, values, inside)
            )
        eqns.append(eqn.replace(params=params))
    return jaxpr.replace(eqns=eqns)


def _automatic(eqn: Eqn) -> Axes:
    """Return the axes along which the compiler split the operands of a callback."""
    layout = eqn.params.get("layout")
    return Axes() if layout is None else layout.axes


class _DeviceVariance:
    """The axes, among `names`, along which the values of a program may differ between devices."""

    def __init__(self, names: Axes) -> None:
        self.names = names
        self._axes: dict[Atom, Axes] = {}

    def axes_of(self, atom: Atom) -> Axes:
        """Return the axes of a value."""
        return self._axes.get(atom, Axes())

    def _note(self, variables: Sequence[Var], axes: Sequence[Axes]) -> None:
        for variable, more in zip(variables, axes):
            self._axes[variable] = self.axes_of(variable) | more

    def follow(self, jaxpr: Jaxpr, operands: Sequence[Axes]) -> list[Axes]:
        """Return the axes of the results of a program; record the axes of all its values."""
        self._note(jaxpr.invars, operands)
        for eqn in jaxpr.eqns:
            self._note(eqn.outvars, self._results(eqn, [self.axes_of(x) for x in eqn.invars]))
        return [self.axes_of(x) for x in jaxpr.outvars]

    def _results(self, eqn: Eqn, operands: list[Axes]) -> Sequence[Axes]:
        params, primitive = eqn.params, eqn.primitive
        axes = Axes().union(*operands)
        if isinstance(primitive, BranchLike):
            branches = [self.follow(branch, operands[1:]) for branch in params["branches"]]
            return [operands[0].union(*results) for results in zip(*branches)]
        if isinstance(primitive, LoopLike):
            return self._loop(primitive, params, operands)
        if isinstance(eqn.primitive, CollectiveOp):
            over = Axes(collective_axes(params))
            is_same_result = spec_of(eqn.primitive).hlo in _SAME_RESULT and not params.get(
                "axis_index_groups"
            )
            axes = axes - over if is_same_result else axes | over
        elif isinstance(eqn.primitive, CallbackOp):
            axes = self.names - _automatic(eqn)
        elif any(True for _ in subjaxprs(params)):
            axes = self.names
        return [axes] * len(eqn.outvars)

    def _loop(self, loop: LoopLike, params: dict, operands: list[Axes]) -> list[Axes]:
        at, count = loop.first_carried(params), loop.carried_count(params)
        constants, scanned = operands[loop.first_constant(params) : at], operands[at + count :]
        carried, before, results = operands[at : at + count], None, []
        while carried != before:
            before, chosen = carried, Axes()
            if not loop.counted:
                known = operands[: params["cond_nconsts"]]
                (chosen,) = self.follow(params["cond_jaxpr"], [*known, *carried])
            results = self.follow(params[loop.body], [*constants, *carried, *scanned])
            carried = [old | new | chosen for old, new in zip(carried, results)]
        return [*carried, *results[count:]]
