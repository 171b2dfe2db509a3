"""Meshes over several processes: the split of axes, the remaining collectives, and their transport.
No process is started."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.compiler.schedule.schedule import schedule
from weft._engine.ir import program as P
from weft._engine.ir.program import iterate_steps
from weft._engine.partition.exchanges import exchanges_of, link_bytes, program_of_process
from weft._engine.partition.process_axes import process_axes
from weft._engine.util.errors import ShardingError
from weft.sharding import NamedSharding, PartitionSpec


@pytest.mark.parametrize(
    "mesh, ranks, parts, order",
    [
        ([("x", 8)], np.arange(8) // 2, [("x.0", 4, True), ("x.1", 2, False)], (0, 1, 2, 3)),
        ([("x", 8)], np.arange(8) % 4, [("x.0", 2, False), ("x.1", 4, True)], (0, 1, 2, 3)),
        ([("x", 8)], np.arange(8), [("x", 8, True)], tuple(range(8))),
        ([("x", 6)], np.arange(6) // 2, [("x.0", 3, True), ("x.1", 2, False)], (0, 1, 2)),
        ([("x", 12)], np.arange(12) // 4, [("x.0", 3, True), ("x.1", 4, False)], (0, 1, 2)),
        (
            [("x", 8)],
            np.arange(8) // 2 % 2,
            [("x.0", 2, False), ("x.1", 2, True), ("x.2", 2, False)],
            (0, 1),
        ),
        (
            [("x", 4), ("y", 2)],
            np.arange(8).reshape(4, 2) // 2,
            [("x", 4, True), ("y", 2, False)],
            (0, 1, 2, 3),
        ),
        (
            [("x", 4), ("y", 2)],
            np.arange(8).reshape(2, 4).T // 2,
            [("x.0", 2, True), ("x.1", 2, False), ("y", 2, True)],
            (0, 2, 1, 3),
        ),
        ([("x", 2), ("y", 1)], np.array([[3], [1]]), [("x", 2, True), ("y", 1, False)], (3, 1)),
    ],
)
def test_axes_divide_into_parts_between_and_within_processes(mesh, ranks, parts, order):
    axes = process_axes(mesh, ranks.reshape([size for _, size in mesh]))
    assert [(p.name, p.size, p.is_process) for p in axes.all_parts] == parts and axes.ranks == order


@pytest.mark.parametrize("ranks", [[0, 0, 0, 1], [0, 1, 1, 0], [0, 0, 1, 2]])
def test_devices_without_a_pattern_are_an_error_that_shows_them(ranks):
    with pytest.raises(ShardingError, match="no regular pattern"):
        process_axes([("x", 4)], np.array(ranks))


def of_process(f, *args, processes=2):
    """Return the program of one of several processes that share the eight devices."""
    stages = weft.jit(f).lower(*args).compile().stages
    partition = stages.partition
    program = program_of_process(
        stages.local,
        partition.axes,
        (np.arange(8) * processes // 8).reshape(partition.mesh.axis_sizes),
        partition.in_specs,
        partition.out_specs,
    )
    return simplify(program)


def placed(shape, sizes, *entries):
    mesh = weft.make_mesh(sizes, tuple("xyz"[: len(sizes)]))
    return weft.device_put(np.ones(shape, np.float32), NamedSharding(mesh, PartitionSpec(*entries)))


def test_sums_are_taken_within_a_process_first():
    (exchange,) = exchanges_of(
        of_process(lambda x: x.sum(0), placed((16, 6), (8,), "x"), processes=4)
    )
    assert (exchange.kind, exchange.op, exchange.operand.shape, exchange.groups) == (
        "all_reduce",
        "sum",
        (6,),
        ((0, 1, 2, 3),),
    )
    assert exchange.bytes == 2 * 24 * 3 // 4 and exchange.messages == 6


def test_small_reductions_of_equal_ranks_are_combined():
    def f(x):
        return (
            x.sum(0),
            (x * x).sum(0)[:2],
            wnp.cos(x.sum(0) - (x * x).sum(0)[0]).sum(),
            x.max(0),
            (x[:, :1] * x).sum(0),
        )

    exchanges = exchanges_of(of_process(f, placed((16, 6), (8,), "x")))
    assert sorted((r.op, r.operand.shape) for r in exchanges) == [("max", (6,)), ("sum", (18,))]


def test_axes_within_a_process_exchange_nothing():
    x = placed((16, 8), (2, 4), "x", "y")
    assert exchanges_of(of_process(lambda x: x.sum(1), x)) == []
    assert len(exchanges_of(of_process(lambda x: x.sum(0), x))) == 1


def test_bytes_between_processes_and_between_hosts():
    x = placed((64, 32), (8,), "x")
    whole = NamedSharding(x.sharding.mesh, PartitionSpec())
    gathered = exchanges_of(
        of_process(lambda x: lax.with_sharding_constraint(x * 2, whole), x, processes=4)
    )
    assert [(r.kind, r.bytes) for r in gathered] == [("all_gather", 64 * 32 * 4 // 4 * 3)]
    assert link_bytes(gathered, lambda rank: rank // 2) == {(0, 1): 6144, (1, 0): 6144}
    columns = NamedSharding(x.sharding.mesh, PartitionSpec(None, "x"))
    turned = exchanges_of(
        of_process(lambda x: lax.with_sharding_constraint(x * 2, columns), x, processes=4)
    )
    assert [(r.kind, r.bytes) for r in turned] == [("all_to_all", 64 * 32 * 4 // 4 * 3 // 4)]
    assert sum(link_bytes(turned, lambda rank: rank).values()) == 4 * turned[0].bytes


def test_loops_count_their_iterations():
    def f(x):
        return lax.fori_loop(0, 5, lambda i, c: c - c.mean(0), x), lax.while_loop(
            lambda c: c.sum() < 9, lambda c: c * 2, x
        )

    exchanges = exchanges_of(of_process(f, placed((16, 6), (8,), "x")))
    assert [(r.count, r.open_ended) for r in exchanges] == [(5, False), (1, True)]


def steps_of(f, *args, processes=2):
    scheduled = schedule(of_process(f, *args, processes=processes))
    return scheduled, list(iterate_steps(scheduled.program.steps))


def test_an_exchange_starts_early_and_is_waited_for_late():
    def f(x, w):
        total = (x * 3).sum(0)
        for _ in range(3):
            w = wnp.tanh(w @ w)
        return wnp.sin(total), w

    _, steps = steps_of(f, placed((16, 6), (8,), "x"), placed((16, 16), (8,)))
    kinds = [type(s).__name__ for s in steps]
    start, wait = kinds.index("Start"), kinds.index("Wait")
    assert kinds[start + 1 : wait].count("Gemm") == 3 and "Gemm" not in kinds[:start]


@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
def test_repeated_gathers_start_shortly_before_use(again):
    """Gathers start at once, unless shards are gathered again to save memory."""
    weights = [placed((64, 64), (8,), "x") for _ in range(8)]
    whole = NamedSharding(weights[0].sharding.mesh, PartitionSpec())

    def f(x, weights):
        for _ in range(1 + again):
            for w in weights:
                x = wnp.tanh(x @ lax.with_sharding_constraint(w, whole))
            weights = [lax.optimization_barrier(w) for w in weights]
        return x

    _, steps = steps_of(f, placed((8, 64), (8,)), weights)
    kinds = [type(s).__name__ for s in steps]
    products_before = [kinds[:n].count("Gemm") for n, kind in enumerate(kinds) if kind == "Start"]
    ahead = [n - products for n, products in enumerate(products_before)]
    if again:
        assert len(ahead) == 16 and min(ahead) >= 0 and 1 <= max(ahead) <= 2
    else:
        assert ahead == [*range(8)]


def test_operands_of_reduce_scatters_do_not_pile_up():
    x, weights = placed((512, 64), (8,), "x"), [placed((64, 64), (8,)) for _ in range(6)]
    split = NamedSharding(x.sharding.mesh, PartitionSpec("x"))

    def f(x, weights):
        shards = [lax.with_sharding_constraint(x.T @ wnp.tanh(x @ w), split) for w in weights]
        return [wnp.sin(shard) for shard in shards]

    _, steps = steps_of(f, x, weights)
    under_way = [0]
    for step in steps:
        kind = type(step).__name__
        under_way.append(under_way[-1] + (kind == "Start") - (kind == "Wait"))
    assert max(under_way) == 2


def test_buffers_live_from_start_to_wait():
    def f(x):
        first = x.sum(0)
        rows = wnp.sort(x, 1) * 2
        return first, rows, rows.max(0)

    scheduled, steps = steps_of(f, placed((64, 256), (8,), "x"))
    slots = scheduled.program.slots
    for n, step in enumerate(steps):
        if not isinstance(step, P.Start):
            continue
        done = next(
            k
            for k in range(n, len(steps))
            if isinstance(steps[k], P.Wait) and steps[k].request == step.request
        )
        held = [
            (slots[r.slot], r)
            for r in (step.source, step.out, step.request)
            if slots[r.slot].kind == "temp"
        ]
        for other in steps[n + 1 : done]:
            written = other.args[-1] if isinstance(other, P.Launch) else getattr(other, "out", None)
            if written is not None and slots[written.slot].kind == "temp":
                mine = slots[written.slot]
                assert all(
                    mine.offset + mine.nbytes <= s.offset or s.offset + s.nbytes <= mine.offset
                    for s, _ in held
                )
    assert (
        scheduled.words[:2] == (("start",), ("wait",))
        and sum(w[0] == "plan" for w in scheduled.words) == 2
    )
