"""Every operation on explicitly sharded operands: the result's type follows from the factor rule, and its value is the whole's."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft
from tests.explicit.cases import CASES, Case
from weft._engine.core.primitive import has_rule, registry
from weft._engine.core.stage import stage
from weft._engine.core.trace import typeof
from weft.errors import ShardingTypeError
from weft.sharding import AxisType, NamedSharding, P

MESH = weft.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Explicit, AxisType.Explicit))
#: kinds whose types are not derived from factor rules
EXCEPT = {"region", "collective", "callback", "constraint", "custom", "terms"}


def layouts(arg: np.ndarray) -> list[P]:
    """Return a few layouts of an operand: whole, by each axis along each dim, by both."""
    n = arg.ndim
    one = [
        P(*[None] * d, axes)
        for d in range(n)
        for axes in ("a", "b", ("a", "b"))
        if arg.shape[d] % (4 if isinstance(axes, tuple) else 2) == 0
    ]
    two = [P("a", "b"), P(None, "b", "a")] if n > 1 else []
    return [
        P(),
        *one,
        *[s for s in two if len(s) <= n and all(arg.shape[d] % 2 == 0 for d in range(len(s)))],
    ]


def combinations(case: Case) -> list[tuple]:
    """Return layouts of all operands: each operand's in turn with the others unsplit or alike, and a sample of all."""
    choices = [layouts(a) for a in case.args]
    alike = [(spec,) * len(choices) for spec in choices[0] if all(spec in c for c in choices)]
    whole = (P(),) * len(choices)
    single = [
        (*whole[:k], spec, *whole[k + 1 :])
        for k in reversed(range(len(choices)))
        for spec in choices[k]
        if spec != P()
    ]
    total = math.prod(map(len, choices))  # of ten operands there are too many to list
    sample = [
        tuple(c[i] for c, i in zip(choices, np.unravel_index(n, [len(c) for c in choices])))
        for n in range(0, total, max(1, total // 12))
    ]
    return list(dict.fromkeys([*alike, *single, *sample]))


def typed(arg: np.ndarray, spec: P):
    return typeof(arg).update(sharding=NamedSharding(MESH.abstract_mesh, spec))


def program(case: Case, specs: tuple):
    """Return the program on operands of these types, or None where they do not determine the result."""
    outs = lambda *xs: weft.tree.leaves(case.run(*xs))
    try:
        return stage(outs, [typed(a, s) for a, s in zip(case.args, specs)])
    except ShardingTypeError as error:
        assert "reshard" in str(error) or "out_sharding" in str(error)
        return None


def by_factors(eqn) -> list | None:
    """Return the result's layout by the factor rule if it has one factor per dim, else None."""
    rule = eqn.primitive.factors(
        [a.aval for a in eqn.invars], [v.aval for v in eqn.outvars], **eqn.params
    )
    axes: dict = {}
    for atom, factors in zip(eqn.invars, rule.ins):
        if atom.aval.explicit is None:
            continue
        for dim, fs in zip(atom.aval.explicit.spec_dims(atom.aval.ndim), factors):
            if dim and (len(fs) != 1 or rule.special.get(fs[0]) in ("halo", "index")):
                return None
            if dim:
                axes[fs[0]] = dim
    if eqn.primitive.shards_like_operands:
        axes |= {
            f: axes[e] for dims in rule.ins for (e,), (f,) in zip(dims, rule.outs[0]) if e in axes
        }
    return [
        P(*[axes.get(fs[0]) if len(fs) == 1 else None for fs in factors]) for factors in rule.outs
    ]


def test_the_table_is_complete():
    without = {"iota", "dim_as_value", "threefry_sequence"}  # no operand that is split
    expected = {
        p.name for p in registry.values() if p.kind not in EXCEPT and has_rule(p.factors)
    } - without
    assert expected <= {c.name for c in CASES}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_types_follow_the_factor_rule(case):
    count = 0
    for specs in combinations(case):
        jaxpr = program(case, specs)
        for eqn in jaxpr.eqns if jaxpr is not None else ():
            assert all(v.aval.explicit is not None for v in eqn.outvars)
            plain = by_factors(eqn)
            if plain is not None:
                assert [v.aval.explicit.spec for v in eqn.outvars] == plain, (specs, eqn)
                count += 1
    assert count


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_equal_the_whole_and_lie_as_typed(case):
    expected = [np.asarray(x) for x in weft.tree.leaves(weft.jit(case.run)(*case.args))]
    split = [c for c in combinations(case) if any(s != P() for s in c)]
    good = [(c, p) for c in split if (p := program(case, c)) is not None]
    assert good
    for specs, jaxpr in good[:: max(1, (len(good) + 1) // 2)]:
        args = [weft.device_put(a, NamedSharding(MESH, s)) for a, s in zip(case.args, specs)]
        for got, want, aval in zip(
            weft.tree.leaves(weft.jit(case.run)(*args)), expected, jaxpr.out_avals
        ):
            assert got.aval.explicit is aval.explicit or got.aval.explicit == aval.explicit
            assert got.sharding == NamedSharding(MESH, aval.explicit.spec)
            np.testing.assert_allclose(np.asarray(got), want, rtol=2e-5, atol=2e-5)
