"""Expansion: replace operations of libraries by the operations that their lowering rules apply.

In, out: jaxprs that compute the same values. The result, with its nested programs, has no `ExtensionPrimitive`.
Laws: the compiler, the partitioner and the printers receive programs of weft's own operations only. So the cache key of a program
      on disk determines its computation. An equation of the expansion keeps its own source line if it has one, else it gets the
      line of the replaced operation. Varying manual axes are removed from all types.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from weft._engine.core.extension import ExtensionPrimitive, expand_primitive
from weft._engine.core.trace import extend_axis_env
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var, subjaxprs
from weft._engine.ir.rewrite import dce, map_jaxprs
from weft._engine.transforms.erase_varying_axes import erase


def has_extensions(jaxpr: Jaxpr) -> bool:
    """Return whether the program, at any depth, has an operation of a library."""
    return jaxpr.memo(
        "has extensions",
        lambda: any(
            isinstance(eqn.primitive, ExtensionPrimitive)
            or any(has_extensions(inner) for _, inner in subjaxprs(eqn.params))
            for eqn in jaxpr.eqns
        ),
    )


def expand(jaxpr: Jaxpr) -> Jaxpr:
    """Replace operations of libraries in `jaxpr`; return `jaxpr` itself if it has none.

    Raise NotImplementedError for an operation that has no lowering and whose results are used.
    """
    return (
        jaxpr.memo("expanded", lambda: _expand(dce(erase(jaxpr))))
        if has_extensions(jaxpr)
        else jaxpr
    )


def _expand(jaxpr: Jaxpr) -> Jaxpr:
    consts = dict(zip(jaxpr.constvars, jaxpr.consts))
    eqns: list[Eqn] = []
    env: dict[Var, Atom] = {}

    def read(a: Atom) -> Atom:
        return a if type(a) is Literal else env.get(a, a)

    for eqn in jaxpr.eqns:
        eqn = eqn.replace(invars=[read(a) for a in eqn.invars])
        if isinstance(eqn.primitive, ExtensionPrimitive):
            inner, outs = _inline_expansion(eqn, consts)
            eqns += inner
            env.update(zip(eqn.outvars, outs))
        else:
            with _axes_of(eqn):
                eqns.append(eqn.replace(params=map_jaxprs(eqn.params, expand)))
    outvars = [read(a) for a in jaxpr.outvars]
    return Jaxpr(list(consts), list(consts.values()), jaxpr.invars, outvars, eqns, name=jaxpr.name)


def _inline_expansion(eqn: Eqn, consts: dict[Var, Any]) -> tuple[list[Eqn], list[Atom]]:
    """Return the equations that compute a library's op, and their results. Add their constants to `consts`."""
    program = expand(
        expand_primitive(eqn.primitive, tuple([a.aval for a in eqn.invars]), eqn.params)
    )
    names: dict[Var, Atom] = dict(zip(program.invars, eqn.invars))
    for var, value in zip(program.constvars, program.consts):
        names[var] = new_var = Var(var.aval)
        consts[new_var] = value

    def rename(a: Atom) -> Atom:
        return a if type(a) is Literal else names[a]

    metadata = eqn.source.metadata if eqn.source is not None else ()
    eqns: list[Eqn] = []
    for inner in program.eqns:
        source = inner.source and inner.source.with_outer_name("", metadata)
        outs = [type(v)(v.aval) for v in inner.outvars]
        operands = [rename(a) for a in inner.invars]
        names.update(zip(inner.outvars, outs))
        eqns.append(inner.replace(invars=operands, outvars=outs, source=source or eqn.source))
    return eqns, [rename(a) for a in program.outvars]


def _axes_of(eqn: Eqn) -> AbstractContextManager[None]:
    """Return a context manager that brings the manual axes of a `shard_map` equation into scope for its inner program."""
    if not eqn.primitive.per_device:
        return nullcontext()
    manual = eqn.params["manual_axes"]
    return extend_axis_env(
        [(name, size) for name, size in eqn.params["mesh"].shape_tuple if name in manual],
        frozenset(),
    )
