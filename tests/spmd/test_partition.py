"""Partitioning for the placements of arguments: program meshes, uncommitted arguments, constraints, shown shardings."""

from types import SimpleNamespace

import numpy as np
import pytest

import weft
import weft.debug
import weft.lax
from tests.spmd.harness import P, check, make, random
from tests.spmd.lockstep import Lockstep
from weft._engine.core.interpret import run_reference
from weft._engine.core.stage import stage
from weft._engine.core.trace import typeof
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.shardings import NamedSharding, PositionalSharding, SingleDeviceSharding
from weft._engine.ops import arithmetic, functions, layout, slicing
from weft._engine.ops.contraction import dot_general
from weft._engine.ops.placement import sharding_constraint
from weft._engine.partition.partition import partition_for
from weft._engine.runtime.device import devices

GRID = make(a=4, b=2)
SQUARE = random(16, 16)


def dot(x, y):
    return dot_general(x, y, (((1,), (0,)), ((), ())))


def check_for(fun, args, shardings, out_shardings=None):
    """Partition for arguments with the given shardings (None: uncommitted) and compare with the whole."""
    jaxpr = stage(fun, [typeof(a) for a in args])
    home = SingleDeviceSharding(devices()[0])
    specs = [
        SimpleNamespace(aval=typeof(a), sharding=s or home, committed=s is not None)
        for a, s in zip(args, shardings)
    ]
    assignment = next((s for s in shardings if s), (out_shardings or [None])[0]).device_assignment
    result = partition_for(jaxpr, specs, out_shardings or [None] * len(jaxpr.outvars), assignment)
    lockstep = Lockstep(result.axes)
    outs = lockstep.run(
        result.jaxpr, [lockstep.scatter(a, s) for a, s in zip(args, result.in_specs)]
    )
    for got, want, spec, sharding in zip(
        outs, run_reference(jaxpr, *args), result.out_specs, result.out_shardings
    ):
        np.testing.assert_allclose(lockstep.gather(got, spec), want, rtol=1e-5, atol=1e-5)
        assert sharding.splits(want.shape) == tuple(
            w // g for w, g in zip(want.shape, got[0].shape)
        )
    return result


def test_positional_shardings_of_the_arguments():
    four = PositionalSharding(devices()).reshape(4, 2)
    result = check_for(
        lambda x, y: [dot(x, y)], [SQUARE, SQUARE], [four.replicate(1), four.replicate(0)]
    )
    assert not result.records
    assert isinstance(result.out_shardings[0], PositionalSharding)
    assert result.out_shardings[0].is_equivalent_to(four, 2)
    same = check_for(lambda x: [functions.sin(x)], [SQUARE], [four])
    assert same.out_shardings[0] is same.in_shardings[0] or same.out_shardings[0] == four


def test_lower_rank_values_take_the_last_dims():
    four = PositionalSharding(devices()).reshape(4, 2)
    bias = lambda x, b: [arithmetic.add(x, layout.broadcast_in_dim(b, (16, 16), (1,)))]
    assert not check_for(bias, [SQUARE, random(16)], [four, four.replicate(0)]).records


def test_uncommitted_arguments_follow():
    four = PositionalSharding(devices()).reshape(4, 2)
    result = check_for(lambda x, y: [arithmetic.add(x, y)], [SQUARE, SQUARE], [four, None])
    assert not result.records and result.in_shardings[1].is_equivalent_to(four, 2)


def test_reshape_between_the_devices_of_one_axis():
    line = make(x=8)
    split = NamedSharding(line, P("x"))
    result = check_for(lambda x: [layout.reshape(x, (4, 16))], [random(64)], [split])
    assert not result.records and result.mesh.axis_sizes == (4, 2)
    assert result.in_shardings[0] == split
    back = check_for(
        lambda x: [functions.sin(layout.reshape(layout.reshape(x, (4, 16)), (64,)))],
        [random(64)],
        [split],
    )
    assert not back.records and back.out_shardings[0] == split


def test_different_factorings_of_the_same_devices():
    eight = PositionalSharding(devices())
    shardings = [eight.reshape(4, 2), eight.reshape(2, 4)]
    result = check_for(lambda x, y: [arithmetic.add(x, y)], [SQUARE, SQUARE], shardings)
    assert result.mesh.axis_sizes == (2, 2, 2)
    assert all(r.kind != "all_gather" or r.bytes_per_device <= 512 for r in result.records)


def test_constraints():
    eight = PositionalSharding(devices())
    f = lambda x: [sharding_constraint(arithmetic.add(x, np.float32(1)), eight.reshape(2, 4))]
    result = check_for(f, [SQUARE], [eight.reshape(4, 2)])
    assert result.out_shardings[0].is_equivalent_to(eight.reshape(2, 4), 2)
    f = lambda x: [sharding_constraint(arithmetic.add(x, np.float32(1)), eight.replicate())]
    result = check_for(f, [SQUARE], [eight.reshape(4, 2)])
    assert result.out_shardings[0].is_fully_replicated and set(result.counts) == {"all_gather"}


def test_constraint_with_an_open_dim():
    open_dim = NamedSharding(GRID, P("b", P.UNCONSTRAINED))
    result = check(
        lambda x: [sharding_constraint(functions.sin(x), open_dim)], [SQUARE], GRID, [P(None, "a")]
    )
    assert result.out_specs == ((("b",), ("a",)),) and not result.records


def test_an_open_dim_does_not_take_the_axes_that_are_asked_for():
    constrained = lambda x: weft.numpy.sin(
        weft.lax.with_sharding_constraint(weft.numpy.stack([x, x], -1), NamedSharding(GRID, P("a")))
    )
    gradient = weft.grad(lambda x: weft.vmap(constrained)(x).sum())
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_allclose(
        weft.jit(gradient)(weft.device_put(x, NamedSharding(GRID, P(None)))),
        2 * np.cos(x),
        rtol=1e-5,
    )


def test_constraints_reach_backwards():
    inside = NamedSharding(GRID, P("a"))
    result = check(
        lambda x: [
            sharding_constraint(functions.sin(layout.full((16, 16), 1.0, np.float32)), inside)
        ],
        [SQUARE],
        GRID,
        [None],
    )
    assert not result.records and result.out_specs == (P("a").dims(2),)


def test_requested_outputs():
    want = NamedSharding(GRID, P("b", "a"))
    result = check_for(
        lambda x: [functions.sin(x)], [SQUARE], [NamedSharding(GRID, P("a", "b"))], [want]
    )
    assert result.out_shardings == (want,) and result.records


def test_outputs_of_arguments_and_literals():
    result = check_for(lambda x: [x, x, np.float32(2)], [SQUARE], [NamedSharding(GRID, P("a"))])
    assert result.out_specs == (P("a").dims(2), P("a").dims(2), ())


def test_parts_stay_split():
    thirds = lambda x: [slicing.slice(x, (0, 16 * i), (16, 16 * i + 16)) for i in range(3)]
    result = check(thirds, [random(16, 48)], make(x=8), [P(None, "x")])
    assert result.out_specs == (P(None, "x").dims(2),) * 3
    join = check(lambda x: [slicing.concatenate([x, x], 0)], [SQUARE], make(x=8), [P("x")])
    assert join.out_specs == (P(None, "x").dims(2),) and join.counts == {
        "all_to_all": 1
    }  # one from and to rows: two


def test_a_given_spec_must_divide():
    with pytest.raises(ValueError, match="dim 1 has size 6"):
        check(lambda x: [x], [random(4, 6)], GRID, [P(None, "a")])


def test_output_sharding_shares_no_axes_with_other_values():
    six = np.array(devices()[:6], object)
    rows = NamedSharding(Mesh(six.reshape(2, 3), ("x", "y")), P("x", "y"))
    for other in (
        NamedSharding(Mesh(six.reshape(3, 2), ("p", "q")), P("p", "q")),
        NamedSharding(Mesh(six.reshape(3, 2), ("p", "q")), P(("q", "p"))),
        PositionalSharding(six).reshape(3, 2),
    ):
        x = random(6, 12)
        outs = weft.jit(lambda v: (v * 2, v + 1), out_shardings=(other, rows))(
            weft.device_put(x, rows)
        )
        for out, want, sharding in zip(outs, (x * 2, x + 1), (other, rows)):
            assert out.sharding == sharding
            for shard in out.addressable_shards:
                np.testing.assert_array_equal(np.asarray(shard.data), want[shard.index])
        np.testing.assert_array_equal(np.asarray(weft.jit(lambda v: v.T)(outs[0])), (x * 2).T)


def test_an_uneven_constraint_inside_of_a_program():
    line = make(x=8)
    split = NamedSharding(line, P("x"))
    x = weft.device_put(random(61, 3), NamedSharding(line, P()))
    f = weft.jit(lambda v: weft.lax.with_sharding_constraint(v * 2, split).sum(0))
    np.testing.assert_allclose(np.asarray(f(x)), np.asarray(x).sum(0) * 2, rtol=1e-5, atol=1e-5)
    assert [r.kind for r in f.lower(x).compile().stages.collectives] == ["psum"]
    same = weft.jit(lambda v: weft.lax.with_sharding_constraint(v * 2, split))(x)
    assert same.sharding.is_fully_replicated
    with pytest.raises(ValueError, match="61 is not divisible by 8"):
        weft.lax.with_sharding_constraint(x, split)


def test_callbacks_read_uneven_values_whole():
    line = make(x=8)
    seen = []

    def f(v):
        v = weft.lax.with_sharding_constraint(v, NamedSharding(line, P("x")))
        weft.debug.callback(lambda a: seen.append(np.array(a)), v)
        return v.sum()

    x = random(13, 2)
    weft.jit(f)(weft.device_put(x, NamedSharding(line, P()))).block_until_ready()
    weft.effects_barrier()
    assert len(seen) == 1 and seen[0].shape == x.shape
    np.testing.assert_array_equal(seen[0], x)
