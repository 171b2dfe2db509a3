"""Rewrites of jaxprs that all stages share: substitution, dead code elimination, inlining, common subexpression elimination.

In, out: jaxprs. No rewrite changes the results of a program or the order of its effects. All take time linear in its size.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

from weft._engine.ir.jaxpr import Atom, DropVar, Eqn, Jaxpr, Literal, Var
from weft._engine.util.source import Metadata, with_metadata
from weft._engine.util.trees.narrowing import is_tuple


def used_vars(jaxpr: Jaxpr) -> set[Var]:
    """Return the variables that an equation or a result reads."""
    used: set[Var] = {a for eqn in jaxpr.eqns for a in eqn.invars if type(a) is not Literal}
    used.update(a for a in jaxpr.outvars if type(a) is not Literal)
    return used


def dce(jaxpr: Jaxpr, used_outputs: Sequence[bool] | None = None) -> Jaxpr:
    """Remove equations without effects whose results are not used, and unused constants. Inputs stay.

    `used_outputs` marks the results to keep; the others are removed. The `dce` rule of an op with inner jaxprs,
    `fn(eqn, used: list[bool]) -> Eqn | None`, removes unused parts of the op.
    """
    outvars = jaxpr.outvars
    if used_outputs is not None:
        outvars = tuple(itertools.compress(outvars, used_outputs))
    live: set[Var] = {a for a in outvars if type(a) is not Literal}
    live_eqns: list[Eqn] = []
    for eqn in reversed(jaxpr.eqns):
        used = [v in live for v in eqn.outvars]
        needed = _needed_part(eqn, used) if True in used or eqn.effects else None
        if needed is not None:
            live_eqns.append(needed)
            live.update([a for a in needed.invars if type(a) is not Literal])
    live_eqns.reverse()
    consts = [(v, c) for v, c in zip(jaxpr.constvars, jaxpr.consts) if v in live]
    same_size = len(live_eqns) == len(jaxpr.eqns) and len(consts) == len(jaxpr.consts)
    if same_size and outvars == jaxpr.outvars and all(map(operator.is_, live_eqns, jaxpr.eqns)):
        return jaxpr
    constvars, values = [v for v, _ in consts], [c for _, c in consts]
    return Jaxpr(constvars, values, jaxpr.invars, outvars, live_eqns, name=jaxpr.name)


def _needed_part(eqn: Eqn, used: list[bool]) -> Eqn | None:
    """Return the equation without its unused results, or None if its `dce` rule removes it."""
    shrink = eqn.primitive.dce
    if callable(shrink):
        return cast("Eqn | None", shrink(eqn, used))
    if False not in used:
        return eqn
    outvars = [v if u or type(v) is DropVar else DropVar(v.aval) for v, u in zip(eqn.outvars, used)]
    return eqn.replace(outvars=outvars)


def substitute(eqns: Iterable[Eqn], env: dict[Var, Atom]) -> list[Eqn]:
    """Return the equations with operands replaced by `env`. The variables of their results stay."""
    return [
        eqn.replace(invars=[a if type(a) is Literal else env.get(a, a) for a in eqn.invars])
        for eqn in eqns
    ]


def use_counts(jaxpr: Jaxpr) -> dict[Var, int]:
    """Return how often the equations and the results of a program use each variable."""
    uses: dict[Var, int] = {}
    for atom in (*(a for e in jaxpr.eqns for a in e.invars), *jaxpr.outvars):
        if type(atom) is not Literal:
            uses[atom] = uses.get(atom, 0) + 1
    return uses


def map_jaxprs(params: dict[str, Any], change: Callable[[Jaxpr], Jaxpr]) -> dict[str, Any]:
    """Apply `change` to the jaxprs among parameters, also in tuples. Return `params` itself if every jaxpr is unchanged."""
    new_params: dict[str, Any] = {}
    is_unchanged = True

    def apply(value: Any) -> Any:
        nonlocal is_unchanged
        if is_tuple(value) and any(isinstance(v, Jaxpr) for v in value):
            return tuple([apply(v) for v in value])
        result = change(value) if isinstance(value, Jaxpr) else value
        is_unchanged = is_unchanged and result is value
        return result

    for key, value in params.items():
        new_params[key] = apply(value)
    return params if is_unchanged else new_params


def is_call(eqn: Eqn) -> bool:
    """Return whether the equation calls the program in its parameter `jaxpr` once, as jit does."""
    return eqn.primitive.is_call and isinstance(eqn.params.get("jaxpr"), Jaxpr)


def inlined_program(eqn: Eqn) -> Jaxpr:
    """Return the program whose equations replace a call when it is inlined."""
    rule = eqn.primitive.in_place
    return eqn.params["jaxpr"] if rule is None else rule(eqn)


def is_transparent(eqn: Eqn) -> bool:
    """Return whether the equation is a call without parameters for differentiation, so that it can be inlined before it."""
    return is_call(eqn) and not eqn.primitive.only_derivatives


def inline_hijax_ops(jaxpr: Jaxpr) -> Jaxpr:
    """Inline the operations of `jaxpr` on user-defined types, and the custom derivative calls that contain such operations."""
    if not jaxpr.is_high:
        return jaxpr
    flat = inline_calls(
        jaxpr,
        lambda eqn: (
            eqn.primitive.is_high or (eqn.primitive.n_functions and eqn.params["jaxpr"].is_high)
        ),
    )
    return flat.replace(
        eqns=[eqn.replace(params=map_jaxprs(eqn.params, inline_hijax_ops)) for eqn in flat.eqns]
    )


def inline_calls(jaxpr: Jaxpr, should_inline: Callable[[Eqn], bool] = is_call) -> Jaxpr:
    """Replace calls by the equations of the called programs, at every depth of calls (not inside scan, while, cond)."""
    if not any(should_inline(eqn) for eqn in jaxpr.eqns):
        return jaxpr
    inliner = _Inliner(jaxpr, should_inline)
    env: dict[Var, Atom] = {}
    inliner.walk(jaxpr, env, _CallSite())
    outvars = [a if type(a) is Literal else env.get(a, a) for a in jaxpr.outvars]
    return Jaxpr(
        inliner.constvars,
        inliner.consts,
        jaxpr.invars,
        outvars,
        inliner.eqns,
        jaxpr.effects,
        jaxpr.name,
    )


class _CallSite(NamedTuple):
    """The call that contains inlined equations (None at the top), and the scope and metadata that it adds to their sources."""

    call: Eqn | None = None
    scope: str = ""
    metadata: Metadata = ()


class _Inliner:
    """The result of `inline_calls` under construction: the equations and constants."""

    def __init__(self, jaxpr: Jaxpr, should_inline: Callable[[Eqn], bool]):
        self.should_inline = should_inline
        self.constvars, self.consts = list(jaxpr.constvars), list(jaxpr.consts)
        self.const_ids = {id(c): v for v, c in zip(self.constvars, self.consts)}
        self.eqns: list[Eqn] = []

    def const(self, var: Var, value: Any) -> Var:
        """Return the variable of a constant of a callee. The same object has one variable."""
        known = self.const_ids.get(id(value))
        if known is None:
            known = self.const_ids[id(value)] = Var(var.aval)
            self.constvars.append(known)
            self.consts.append(value)
        return known

    def walk(self, program: Jaxpr, env: dict[Var, Atom], site: _CallSite) -> None:
        for eqn in program.eqns:
            ins = [a if type(a) is Literal else env.get(a, a) for a in eqn.invars]
            if (site.scope or site.metadata) and eqn.source is not None:
                eqn = eqn.replace(source=eqn.source.with_outer_name(site.scope, site.metadata))
            if self.should_inline(eqn):
                self.inline(eqn, ins, env, site)
            elif site.call is None:
                self.eqns.append(eqn.replace(invars=ins))
            else:
                outs = [DropVar(v.aval) if type(v) is DropVar else Var(v.aval) for v in eqn.outvars]
                env.update(zip(eqn.outvars, outs))
                source = site.call.source if eqn.source is None else eqn.source
                self.eqns.append(eqn.replace(invars=ins, outvars=outs, source=source))

    def inline(self, eqn: Eqn, ins: list[Atom], env: dict[Var, Atom], site: _CallSite) -> None:
        """Add the equations of the callee of `eqn`, and set its results in `env`."""
        callee = inlined_program(eqn)
        inner: dict[Var, Atom] = dict(zip(callee.invars, ins))
        for var, value in zip(callee.constvars, callee.consts):
            inner[var] = self.const(var, value)
        outer = eqn if site.call is None or eqn.source is not None else site.call
        own = eqn.params.get("xla_metadata", ())
        if own and outer.source is not None:
            outer = outer.replace(source=outer.source.tag(own))
        scope = outer.source.scope if outer.source is not None else ""
        self.walk(callee, inner, _CallSite(outer, scope, with_metadata(site.metadata, own)))
        for var, atom in zip(eqn.outvars, callee.outvars):
            env[var] = atom if type(atom) is Literal else inner.get(atom, atom)


def atom_key(atom: Atom):
    """Return a hashable key of a value. Values with equal keys are equal."""
    if type(atom) is Literal:
        return (repr(atom.val), atom.aval)
    return atom


def params_key(params: dict[str, Any]):
    """Return a hashable key of an equation's parameters, or None if one of them is not hashable.

    Printed text is not a valid key: different large arrays and programs with different constants may print the same. The key contains
    the text of floats in addition to their values, because 0.0 == -0.0.
    """
    key = tuple(sorted(params.items()))  # names differ, so values are never compared
    floats = [repr(value) for _, value in key if isinstance(value, float)]
    if floats:
        key += tuple(floats)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _value_key(eqn: Eqn) -> tuple[Any, ...] | None:
    """Return a key, or None. Equations with the same key have equal results."""
    params = params_key(eqn.params) if eqn.params else ()
    return None if params is None else (eqn.primitive, params, *map(atom_key, eqn.invars))


def _has_results_of(first: Eqn, eqn: Eqn) -> bool:
    """Return whether `first` binds every result that `eqn` binds."""
    return all(
        type(b) is not DropVar or type(a) is DropVar for a, b in zip(eqn.outvars, first.outvars)
    )


def cse(jaxpr: Jaxpr) -> Jaxpr:
    """Eliminate common subexpressions. Equations with effects are not merged."""
    env: dict[Var, Atom] = {}
    seen: dict[tuple[Any, ...], Eqn] = {}
    eqns: list[Eqn] = []
    changed = False
    for eqn in jaxpr.eqns:
        if env:
            ins = [a if type(a) is Literal else env.get(a, a) for a in eqn.invars]
            eqn = eqn.replace(invars=ins)
        key = None if eqn.effects else _value_key(eqn)
        if key is not None:
            first = seen.get(key)
            if first is not None and _has_results_of(first, eqn):
                env.update(zip(eqn.outvars, first.outvars))
                changed = True
                continue
            seen[key] = eqn
        eqns.append(eqn)
    if not changed:
        return jaxpr
    outvars = [a if type(a) is Literal else env.get(a, a) for a in jaxpr.outvars]
    return jaxpr.replace(eqns=eqns, outvars=outvars)
