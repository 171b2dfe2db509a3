"""The types of the fields of programs and equations: lists and sets, as programs that read jaxprs expect."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.extend import core

X = np.arange(3, dtype=np.float32)

PROGRAMS = {
    "plain": lambda x: wnp.sin(x) * 2,
    "constant": lambda x: x + np.ones(3, np.float32),
    "jit": lambda x: weft.jit(lambda y: wnp.sin(y) * 2)(x),
    "scan": lambda x: lax.scan(lambda c, a: (c + a, c), 0.0, x),
    "cond": lambda x: lax.cond(x.sum() > 0, wnp.sin, wnp.cos, x),
    "while": lambda x: lax.while_loop(lambda x: x.sum() < 9, lambda x: x + 1, x),
    "effect": lambda x: weft.debug.print("{}", x),
    "gradient": lambda x: weft.grad(lambda x: wnp.sum(weft.nn.relu(x)))(x),
}


def _programs(jaxpr):
    """Yield the program, and all programs in its equations."""
    yield jaxpr
    for eqn in jaxpr.eqns:
        for _, inner in weft._engine.ir.jaxpr.subjaxprs(eqn.params):
            yield from _programs(inner)


@pytest.mark.parametrize("name", PROGRAMS)
def test_fields_are_lists_and_sets(name):
    for closed in _programs(weft.make_jaxpr(PROGRAMS[name])(X)):
        lists = [closed.consts, closed.literals, closed.in_avals, closed.out_avals, closed.eqns]
        for program in (closed, closed.jaxpr):
            lists += [
                program.constvars,
                program.invars,
                program.outvars,
                program.eqns,
                program.in_avals,
                program.out_avals,
            ]
            assert type(program.effects) is set
        for eqn in closed.eqns:
            lists += [eqn.invars, eqn.outvars, eqn.replace(invars=tuple(eqn.invars)).invars]
            assert type(eqn.effects) is set and type(eqn.params) is dict
        assert all(type(field) is list for field in lists)


def test_effects_are_copies():
    jaxpr = weft.make_jaxpr(PROGRAMS["effect"])(X)
    (eqn,) = [eqn for eqn in jaxpr.eqns if eqn.effects]
    expected = set(eqn.effects)
    for program in (eqn, jaxpr, jaxpr.jaxpr):
        program.effects.clear()
        assert program.effects == expected


def test_equations_do_not_share_their_lists():
    jaxpr = weft.make_jaxpr(PROGRAMS["plain"])(X)
    copies = [jaxpr.replace(), jaxpr.jaxpr, jaxpr.jaxpr.replace(), jaxpr.eqns[0].replace()]
    for copy in copies:
        copy.invars.clear()
        copy.outvars.clear()
    assert len(jaxpr.invars) == len(jaxpr.outvars) == len(jaxpr.eqns[0].invars) == 1


def test_equations_are_made_of_any_sequence():
    eqn = weft.make_jaxpr(PROGRAMS["plain"])(X).eqns[0]
    copy = core.new_jaxpr_eqn(
        tuple(eqn.invars), iter(eqn.outvars), eqn.primitive, eqn.params, frozenset()
    )
    assert (copy.invars, copy.outvars, copy.effects) == (eqn.invars, eqn.outvars, set())
