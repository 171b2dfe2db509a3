"""The record of each collective: it is complete, and its NumPy meaning agrees with the model of
devices."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import weft._engine.ops.ragged_all_to_all
from tests.ops.collective_programs import CASES, MESH, expected, members, sample
from tests.ops.test_collectives_ragged import data, expected as expected_ragged, lists
from weft import lax
from weft._engine.core.primitive import registry
from weft._engine.core.stage import stage
from weft._engine.core.trace import extend_axis_env, typeof
from weft._engine.ir.collective_spec import (
    COLLECTIVES,
    COMPLETED_BY,
    collective_axes,
    evaluate_collective,
    spec_of,
)
from weft._engine.ir.jaxpr import Literal

PLACES = list(itertools.product(*[range(n) for _, n in MESH]))


def run_on_devices(jaxpr, args):
    """Return the results of a local program on all devices in lockstep, `args` by position;
    collectives are executed by their records."""
    consts = dict(zip(jaxpr.constvars, jaxpr.consts))
    env = {place: consts | dict(zip(jaxpr.invars, operands)) for place, operands in args.items()}
    read = lambda place, a: np.asarray(a.val, a.aval.dtype) if type(a) is Literal else env[place][a]
    for eqn in jaxpr.eqns:
        for place in PLACES:
            if eqn.primitive.kind == "collective":
                group = members(place, collective_axes(eqn.params))
                operands = [[read(other, a) for a in eqn.invars] for other in group]
                outs = evaluate_collective(eqn.primitive, operands, eqn.params)[group.index(place)]
            else:
                out = eqn.primitive.reference(*[read(place, a) for a in eqn.invars], **eqn.params)
                outs = out if eqn.primitive.multiple_results else [out]
            env[place].update(zip(eqn.outvars, map(np.asarray, outs)))
            assert [(y.shape, y.dtype) for y in map(np.asarray, outs)] == [
                (v.aval.shape, v.aval.dtype) for v in eqn.outvars
            ]
    return {place: [read(place, a) for a in jaxpr.outvars] for place in PLACES}


@pytest.mark.parametrize("dtype", [np.float32, np.int8, ml_dtypes.bfloat16, np.complex64])
def test_exchange_is_the_meaning(dtype):
    used = set()
    for name, case in CASES.items():
        if np.dtype(dtype).kind == "c" and not case.linear:
            continue
        x = sample(case, dtype)
        with extend_axis_env(list(MESH)):
            jaxpr = stage(lambda v, case=case: [case.run(lax, v)], [typeof(x[0, 0])])
        used |= {eqn.primitive.name for eqn in jaxpr.eqns if eqn.primitive.kind == "collective"}
        got = run_on_devices(jaxpr, {place: [x[place]] for place in PLACES})
        want = expected(case, x)
        np.testing.assert_array_equal(
            np.stack([got[p][0] for p in PLACES]).reshape(want.shape), want, err_msg=name
        )
    others = {"pvary", "pcast", "own_slice", "ragged_all_to_all"} | (
        {"axis_index", "pmax", "pmin"} if np.dtype(dtype).kind == "c" else set()
    )
    assert set(COLLECTIVES) - used <= others | {"all_gather_invariant"}


@pytest.mark.parametrize("per_target", [1, 2])
def test_ragged_exchange(per_target):
    args = (*data(1, 2), *lists(0, per_target))
    params = {"axis_name": ("i",), "axis_index_groups": None}
    got = evaluate_collective(
        lax.ragged_all_to_all_p, [[x[i] for x in args] for i in range(len(args[0]))], params
    )
    np.testing.assert_array_equal([y for (y,) in got], expected_ragged(*args))


def test_values_that_travel_together():
    from weft._engine.partition.combine import combined_reduction

    operands = [[np.float32(i), np.arange(2) + i] for i in range(3)]
    got = evaluate_collective(
        combined_reduction(lax.psum_p), operands, {"axes": ("i",), "axis_index_groups": None}
    )
    assert [(float(x), y.tolist()) for x, y in got] == [(3.0, [3, 6])] * 3


def test_local_ones():
    x = np.arange(4.0)
    params = {"axis_name": ("i",), "axis_size": 2, "dim": 0}
    slices = evaluate_collective(registry["own_slice"], [[x], [-x]], params)
    assert [y.tolist() for (y,) in slices] == [[0.0, 1.0], [-2.0, -3.0]]
    assert [
        float(y)
        for (y,) in evaluate_collective(
            lax.pvary_p, [[np.float32(1)], [np.float32(2)]], {"axes": ("i",)}
        )
    ] == [1.0, 2.0]


def test_every_collective_has_a_record():
    assert weft._engine.ops.ragged_all_to_all is not None
    primitives = [p for p in registry.values() if p.kind == "collective"]
    assert {p.name for p in primitives} == set(COLLECTIVES)
    for p in primitives:
        spec = spec_of(p)
        assert (
            spec is COLLECTIVES[p.name]
            and callable(spec.exchange)
            and callable(spec.stacked)
            and spec.hlo
        )
        assert spec.bytes is None or spec.bytes(64, 4) > 0
    assert {combine: spec.name for combine, spec in COMPLETED_BY.items()} == {
        "add": "psum", "max": "pmax", "or": "pmax", "min": "pmin", "and": "pmin"}  # fmt: skip
