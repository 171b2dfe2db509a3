"""Checks of shards and collectives at the end of partitioning: planted faults are found, named, and nothing runs."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.core.primitive import registry
from weft._engine.core.stage import stage
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.exchange import exchange_p
from weft._engine.partition import (
    combine,
    local_equations,
    partition,
    partitioner,
    shard_check,
    split_context,
)
from weft._engine.partition.partitioner import Partitioner
from weft._engine.partition.shard_check import (
    PartitionError,
    check_collectives,
    check_exchanges,
    check_memory,
)
from weft._engine.util.config import Override
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

SIZES = {"x": 4, "y": 2}


@pytest.fixture(autouse=True)
def compiled():
    """Run every stage, even if an equal program was compiled before."""
    with Override(check="types"):
        yield


def mesh():
    return Mesh(np.array(weft.devices()).reshape(4, 2), ("x", "y"))


def laid(shape, *spec, dtype=np.float32):
    return weft.device_put(np.ones(shape, dtype), NamedSharding(mesh(), P(*spec)))


def aval(*shape, dtype=np.float32):
    return ShapedArray(shape, np.dtype(dtype))


# --- faults of the partitioner


def sums_in_int32(monkeypatch):
    original = local_equations.emit_step

    def counted(step, x, n, after, selects=False):
        return original(
            step,
            x.astype(np.int32) if step.kind in ("psum", "reduce_scatter") else x,
            n,
            after,
            selects,
        )

    monkeypatch.setattr(local_equations, "emit_step", counted)


def rows_of_windows_are_missing(monkeypatch):
    from weft._engine.partition.rules import windows as local_windows

    original = local_windows.fetch_rows
    short = lambda ctx, x, halo, *split: local_windows.slicing.slice_in_dim(
        original(ctx, x, halo, *split), 1, None, 1, halo.dim
    )
    monkeypatch.setattr(local_windows, "fetch_rows", short)


def gathers_are_not_cut(monkeypatch):
    monkeypatch.setattr(local_equations, "_cut_to", lambda x, dim, size: x)


def loops_give_another_dtype(monkeypatch):
    original = Partitioner.close

    def close(self, args, results, jaxpr, places):
        return original(
            self,
            args,
            [*results[:-1], results[-1].astype(np.int8) if self.depth else results[-1]],
            jaxpr,
            places,
        )

    monkeypatch.setattr(Partitioner, "close", close)


def combined_sums_are_swapped(monkeypatch):
    original = combine.combine_reductions

    def swapped(*args):
        eqns = original(*args)
        return [
            e.replace(outvars=e.outvars[::-1]) if getattr(e.primitive, "combines", None) else e
            for e in eqns
        ]

    monkeypatch.setattr(partitioner, "combine_reductions", swapped)


def rings_have_two_senders(monkeypatch):
    ring = lambda x, axes, perm: registry["ppermute"].bind(x, axis_name=axes, perm=((0, 1), (0, 2)))
    monkeypatch.setattr(split_context.collectives, "bind_ppermute", ring)


def scanned(x, y):
    return lax.scan(lambda c, row: (wnp.tanh(c @ y), row.sum()), x, x)


def flipped(x, y):
    return lax.with_sharding_constraint(wnp.flip(x, 0), NamedSharding(mesh(), P("x")))


PLANTED = {
    "dtype of a sum": (
        sums_in_int32,
        lambda x, y: x @ y,
        ("x",),
        ("y",),
        "result of dot_general at .* is int32",
        np.int8,
    ),
    "shape of windows": (
        rows_of_windows_are_missing,
        flipped,
        ("x",),
        ("x",),
        r"result of rev at .*is float32\[1,8\]",
        None,
    ),
    "padding that remains": (
        gathers_are_not_cut,
        lambda x, y: (x[:7] * 2, x[:7].sum(0)),
        ("x",),
        (),
        "test_shard_check.py",
        None,
    ),
    "results of a loop": (
        loops_give_another_dtype,
        scanned,
        (None, "x"),
        (),
        "result of reduce_sum at .* is int8",
        None,
    ),
    "combined sums": (
        combined_sums_are_swapped,
        lambda x, y: (x.sum(0), (y @ y).sum(0) + x.sum(), (x * y).sum()),
        ("x",),
        ("x",),
        "psum at .* its type rule gives",
        None,
    ),
    "two messages of one device": (
        rings_have_two_senders,
        lambda x, y: x[1:] - x[:-1],
        ("x",),
        (),
        "position 0 sends 2 times",
        None,
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_fault_is_named(name, monkeypatch):
    plant, fun, left, right, message, dtype = PLANTED[name]
    args = (
        laid((8, 8), *left, dtype=dtype or np.float32),
        laid((8, 8), *right, dtype=dtype or np.float32),
    )
    weft.jit(fun).lower(*args).compile()
    plant(monkeypatch)
    with pytest.raises(PartitionError, match=f"(?s){message}.*this is a fault of weft"):
        weft.jit(lambda x, y: fun(x, y)).lower(*args).compile()


def test_a_fault_names_the_users_line(monkeypatch):
    sums_in_int32(monkeypatch)
    x, y = laid((8, 8), None, "x", dtype=np.int8), laid((8, 8), "x", dtype=np.int8)

    def fun(x, y):
        total = x + 1
        return total @ y  # the line at fault

    with pytest.raises(PartitionError, match="the line at fault"):
        weft.jit(fun)(x, y)


# --- participants of collectives

GATHER = {
    "all_gather_dimension": 0,
    "axis_name": ("x",),
    "axis_size": 4,
    "tiled": True,
    "axis_index_groups": None,
}
COLLECTIVES = {
    "axis of another mesh": (
        "psum",
        {"axes": ("z",), "axis_index_groups": None},
        aval(2),
        "not distinct axes of the mesh",
    ),
    "axis named twice": (
        "psum",
        {"axes": ("x", "x"), "axis_index_groups": None},
        aval(2),
        "not distinct axes of the mesh",
    ),
    "position in no group": (
        "psum",
        {"axes": ("x",), "axis_index_groups": ((0, 1), (2, 2))},
        aval(2),
        "each of 4 positions once",
    ),
    "positions left out": (
        "psum",
        {"axes": ("x",), "axis_index_groups": ((0, 1),)},
        aval(2),
        "each of 4 positions once",
    ),
    "groups of other sizes": (
        "psum",
        {"axes": ("x",), "axis_index_groups": ((0, 1, 2), (3,))},
        aval(2),
        "differ in size",
    ),
    "dtype": (
        "psum",
        {"axes": ("x",), "axis_index_groups": None},
        aval(2, dtype=np.int32),
        "its type rule gives float32",
    ),
    "shape": ("all_gather", GATHER, aval(4), r"its type rule gives float32\[8\]"),
    "size of the axis": (
        "all_gather",
        {**GATHER, "axis_size": 2},
        aval(4),
        "its axis size is 2, but 4 devices take part",
    ),
    "two receivers": (
        "ppermute",
        {"axis_name": ("x",), "perm": ((0, 1), (2, 1))},
        aval(2),
        "position 1 receives 2 times",
    ),
    "sender outside": (
        "ppermute",
        {"axis_name": ("x",), "perm": ((4, 1),)},
        aval(2),
        "name other positions",
    ),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_disagreement_is_named(name):
    primitive, params, result, message = COLLECTIVES[name]
    eqn = Eqn(registry[primitive], [Var(aval(2))], [Var(result)], params)
    with pytest.raises(PartitionError, match=f"partition: {primitive}: .*{message}"):
        check_collectives([eqn], SIZES)


RANKS = (4, 5, 6, 7)
EXCHANGES = {
    "rank in no group": (
        "all_reduce",
        "sum",
        ((4, 5), (6, 6)),
        (),
        aval(2),
        aval(2),
        "each of 4 positions once",
    ),
    "rank of others": (
        "all_gather",
        None,
        ((0, 1, 2, 3),),
        (),
        aval(2),
        aval(4, 2),
        "each of 4 positions once",
    ),
    "rows": (
        "reduce_scatter",
        "sum",
        ((4, 5, 6, 7),),
        (),
        aval(2, 3),
        aval(3),
        "one row for each of 4 ranks",
    ),
    "result": (
        "all_gather",
        None,
        ((4, 5), (6, 7)),
        (),
        aval(2),
        aval(4, 2),
        r"its type rule gives float32\[2,2\]",
    ),
    "two senders": (
        "permute",
        None,
        (),
        ((4, 6), (5, 6)),
        aval(2),
        aval(2),
        "position 6 receives 2 times",
    ),
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_disagreement_of_processes_is_named(name):
    kind, op, groups, pairs, operand, result, message = EXCHANGES[name]
    eqn = Eqn(
        exchange_p,
        [Var(operand)],
        [Var(result)],
        {"kind": kind, "op": op, "groups": groups, "pairs": pairs, "source": "train.py:7"},
    )
    with pytest.raises(PartitionError, match=f"partition: exchange at train.py:7: .*{message}"):
        check_exchanges([eqn], RANKS)


def test_agreeing_exchanges_pass():
    params = {
        "kind": "all_gather",
        "op": None,
        "groups": ((4, 5), (6, 7)),
        "pairs": (),
        "source": None,
    }
    check_exchanges([Eqn(exchange_p, [Var(aval(2))], [Var(aval(2, 2))], params)], RANKS)


# --- results in memory, cost


def test_results_fill_their_memory():
    local = stage(lambda x: [x * 2], [aval(2, 3)])
    assert isinstance(local, Jaxpr)
    check_memory(local, [((2, 3), np.dtype(np.float32))])
    for block in (((2, 4), np.dtype(np.float32)), ((2, 3), np.dtype(np.bool_))):
        with pytest.raises(PartitionError, match=r"result of mul.* is float32\[2,3\]"):
            check_memory(local, [block])


def test_every_compilation_is_checked_once(monkeypatch):
    checked = []
    for module, name in ((partition, "check_partitioned"), (shard_check, "check_memory")):
        original = getattr(module, name)
        monkeypatch.setattr(
            module,
            name,
            lambda *args, name=name, original=original: (checked.append(name), original(*args))[1],
        )
    weft.jit(lambda x: wnp.tanh(x @ x.T) @ x + 31)(laid((8, 8), "x", "y"))
    assert checked == ["check_partitioned", "check_memory"]
