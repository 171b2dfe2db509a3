"""Rewrites of jaxprs and their verifier."""

import numpy as np
import pytest

import weft._engine.ops.elementwise as E
from weft._engine.core.stage import stage
from weft._engine.ir.check import check_jaxpr
from weft._engine.ir.jaxpr import DropVar, Eqn, Jaxpr, Var
from weft._engine.ir.rewrite import cse, dce, substitute, used_vars
from weft._engine.ir.types import ShapedArray
from weft._engine.util.errors import ProgramTypeError

X = ShapedArray((3,), np.dtype("f4"))


def program(fn, n=1):
    return stage(lambda *xs: list(fn(*xs)), [X] * n)


def test_dce_drops_unread_equations_and_constants():
    jaxpr = program(lambda x: (E.add(x, np.ones(3, "f4")), E.sin(x)))
    small = dce(jaxpr, [False, True])
    assert [e.primitive.name for e in small.eqns] == ["sin"]
    assert not small.consts and len(small.outvars) == 1 and small.invars == jaxpr.invars
    assert dce(small) is small


def test_dce_keeps_effects():
    jaxpr = program(lambda x: (E.sin(x), x))
    noisy = jaxpr.replace(eqns=[e.replace(effects=frozenset({"print"})) for e in jaxpr.eqns])
    assert len(dce(noisy, [False, True]).eqns) == 1


def test_dce_marks_unread_results():
    from weft._engine.ops.rng import threefry2x32

    word = ShapedArray((3,), np.dtype("u4"))
    jaxpr = stage(lambda k: [threefry2x32(k, k, k, k)[1]], [word])
    (eqn,) = dce(jaxpr).eqns
    assert [type(v) is DropVar for v in eqn.outvars] == [True, False]


def test_cse_compares_parameters_and_literals():
    jaxpr = program(lambda x: (E.add(E.mul(x, 2.0), E.mul(x, 2.0)), E.mul(x, 3.0)))
    assert [e.primitive.name for e in cse(jaxpr).eqns] == ["mul", "add", "mul"]


def test_cse_leaves_effects_alone():
    jaxpr = program(lambda x: (E.sin(x), E.sin(x)))
    noisy = jaxpr.replace(eqns=[e.replace(effects=frozenset({"print"})) for e in jaxpr.eqns])
    assert len(cse(noisy).eqns) == 2


def test_substitute_and_used():
    jaxpr = program(lambda x, y: (E.sin(x),), 2)
    x, y = jaxpr.invars
    (eqn,) = substitute(jaxpr.eqns, {x: y})
    assert eqn.invars == [y] and used_vars(jaxpr) == {x, jaxpr.outvars[0]}


def test_the_verifier_finds_broken_programs():
    jaxpr = program(lambda x: (E.sin(x),))
    assert check_jaxpr(jaxpr) is jaxpr
    (eqn,) = jaxpr.eqns
    stray = Var(X)
    cases = [
        (Jaxpr((), (), jaxpr.invars, [stray], [eqn]), "reads .* before it is bound"),
        (Jaxpr((), (), jaxpr.invars, jaxpr.outvars, [eqn, eqn]), "bound twice"),
        (
            Jaxpr((), (), jaxpr.invars, [stray], [eqn.replace(invars=[stray], outvars=[Var(X)])]),
            "before it is bound",
        ),
        (
            Jaxpr(
                (),
                (),
                jaxpr.invars,
                [],
                [Eqn(eqn.primitive, eqn.invars, [Var(X.update(shape=(4,)))], {})],
            ),
            "its type rule gives",
        ),
    ]
    for broken, message in cases:
        with pytest.raises(ProgramTypeError, match=message):
            check_jaxpr(broken, "testing")
