"""Programs that only some devices run: branches and loop bodies under a condition that varies over
manual axes.

In:   a staged program, and the axes over which the condition varies.
Out:  the program with all values, inputs included, varying over these axes. Values that are equal
      on all devices are cast before the branch, so that their cotangents are summed by all devices
      after the branch, not by some of them in it.
Law:  the program has no collective over these axes: it would wait forever for the devices that do
      not run it.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft._engine.core.primitive import CollectiveOp, RegionOp
from weft._engine.ir.collective_spec import collective_axes, spec_of
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var, subjaxprs
from weft._engine.ops.collective_rules import pvary_p
from weft._engine.util.errors import ShardingError, describe


def cast_program_to_vary(jaxpr: Jaxpr, axes: frozenset) -> Jaxpr:
    """Return `jaxpr` with all values varying over `axes`, along which only some devices run it."""
    return jaxpr.memo(("diverging", axes), lambda: _retype(jaxpr, axes))


def _retype(jaxpr: Jaxpr, axes: frozenset) -> Jaxpr:
    env: dict[Var, Atom] = {v: v for v in jaxpr.constvars}

    def varying(var: Var) -> Var:
        env[var] = typed = Var(var.aval.update(vma=var.aval.vma | axes))
        return typed

    invars, eqns = [varying(v) for v in jaxpr.invars], []
    for eqn in jaxpr.eqns:
        operands = [a if type(a) is Literal else env[a] for a in eqn.invars]
        if eqn.primitive is pvary_p and axes <= operands[0].aval.vma:
            uniform_axes = tuple(a for a in eqn.params["axes"] if a not in axes)
            if not uniform_axes:
                env[eqn.outvars[0]] = operands[0]
                continue
            eqn = eqn.replace(params={"axes": uniform_axes})
        eqns.append(
            eqn.replace(
                invars=operands,
                outvars=[varying(v) for v in eqn.outvars],
                params=_params(eqn, axes),
            )
        )
    outs = [a if type(a) is Literal else env[a] for a in jaxpr.outvars]
    return jaxpr.replace(invars=invars, eqns=eqns, outvars=outs)


def _params(eqn: Eqn, axes: frozenset) -> dict:
    if not isinstance(eqn.primitive, RegionOp) or eqn.primitive.per_device:
        return eqn.params
    inside = lambda v: (
        cast_program_to_vary(v, axes)
        if isinstance(v, Jaxpr)
        else tuple(map(inside, v))
        if type(v) is tuple and any(isinstance(x, Jaxpr) for x in v)
        else v
    )
    return {name: inside(value) for name, value in eqn.params.items()}


def check_no_collective(api: str, programs: Iterable[Jaxpr], axes: frozenset) -> None:
    """Raise ShardingError if a program has a collective over `axes`.

    Only some devices along `axes` run the program.
    """
    for eqn in (eqn for program in programs for eqn in _collectives(program)):
        shared = [a for a in collective_axes(eqn.params) if a in axes]
        if shared:
            raise ShardingError(
                describe(
                    api,
                    f"{eqn.primitive.name} over {shared[0]!r} occurs where only some devices along {shared[0]!r} run.",
                    [
                        ("condition", f"varies over {', '.join(sorted(map(repr, axes)))}"),
                        (eqn.primitive.name, f"takes {eqn.invars[0].aval.str_short()}"),
                    ],
                    eqn.source,
                    "All devices of an axis must take part in its collectives; otherwise they would wait forever for the missing devices.",
                    "Move the collective out of it, or make the condition the same for all (lax.pmax of it).",
                )
            )


def _collectives(program: Jaxpr) -> Iterable[Eqn]:
    for eqn in program.eqns:
        if isinstance(eqn.primitive, CollectiveOp) and not spec_of(eqn.primitive).is_local:
            yield eqn
        for _, inner in subjaxprs(eqn.params):
            yield from _collectives(inner)
