"""Collectives between processes against NumPy: every kind, many dtypes, groups, and native calls of
their entry points."""

import numpy as np
import pytest

from tests.processes.ranks import MPIEXEC, run_ranks, source_of
from weft._engine.processes.collective_plan import OPS, CollectivePlan, evaluate, reduce


def collectives():
    import itertools

    import numpy as np

    from weft._engine import processes
    from weft._engine.processes.collective_plan import CollectivePlan, evaluate
    from weft._engine.processes.transport import DONE, START, WAIT

    shared = processes.current()
    transport, rank, size = shared.transport, shared.rank, shared.size
    entries = transport.entry_points()
    native_start, native_wait = START(entries["start"]), WAIT(entries["wait"])
    groups = [(tuple(range(size)),)]
    if size == 4:
        groups += [((0, 2), (1, 3)), ((3, 2, 1, 0),), ((0,), (1,), (2,), (3,))]

    def value(member, plan):
        rng = np.random.default_rng([member, plan.count])
        if plan.dtype == "bool":
            return rng.random(plan.input_count) < 0.5
        return rng.integers(0, 2 if plan.dtype == "uint2" else 5, plan.input_count).astype(
            plan.numpy_dtype
        )

    def cases():
        for group, dtype, count in itertools.product(groups, ("float32", "bool"), (0, 1, 12, 4000)):
            for kind in ("all_gather", "broadcast"):
                yield CollectivePlan(kind, dtype, count, None, group)
            if count % len(group[0]) == 0:
                yield CollectivePlan("all_to_all", dtype, count, None, group)
        for dtype, op in itertools.product(
            (
                "float64",
                "float32",
                "bfloat16",
                "float16",
                "int8",
                "uint16",
                "int32",
                "uint32",
                "int64",
                "complex64",
            ),
            ("sum", "prod", "max", "min"),
        ):
            if dtype != "complex64" or op in ("sum", "prod"):
                yield CollectivePlan("all_reduce", dtype, 37, op, groups[0])
        for dtype, op in itertools.product(
            ("int4", "uint2", "float8_e4m3fn", "float8_e5m2"), ("sum", "max")
        ):
            yield CollectivePlan("all_reduce", dtype, 37, op, groups[0])
            yield CollectivePlan("reduce_scatter", dtype, 5, op, groups[-1])
        for dtype, op in itertools.product(
            ("bool", "int32", "uint8"), ("and", "or", "xor", "max", "min", "sum")
        ):
            yield CollectivePlan("all_reduce", dtype, 5, op, groups[-1])
        for group, kind, count in itertools.product(
            groups, ("all_reduce", "reduce_scatter"), (1, 3, 70_000, 2_100_001)
        ):
            yield CollectivePlan(kind, "float32", count, "sum", group)
        large = (
            ("bfloat16", "max", 200_003),
            ("complex64", "sum", 300_001),
            ("int8", "prod", 262_147),
            ("bool", "or", 400_000),
            ("float8_e5m2", "min", 300_000),
            ("float64", "sum", 65_536 * size + 1),
        )
        for dtype, op, count in large:
            yield CollectivePlan(
                "all_reduce", dtype, count, op, groups[-1] if size != 4 else groups[1]
            )
        yield CollectivePlan(
            "permute", "float32", 9, None, (), tuple((r, (r + 1) % size) for r in range(size))
        )
        yield CollectivePlan("permute", "int32", 9, None, (), ((0, 1),))
        yield CollectivePlan("permute", "int32", 100_000, None, (), ((0, 1), (1, 0)))

    started, number = [], 0
    for number, plan in enumerate(cases(), 1):
        group = plan.group_of(rank)
        operands = {member: value(member, plan) for member in group or (rank,)}
        out = np.full(plan.output_count, 3).astype(plan.numpy_dtype)
        request = native_start(transport.plan(plan), operands[rank].ctypes.data, out.ctypes.data)
        assert request >= 0, plan
        expected = (
            evaluate(plan, group, operands, rank)
            if group
            else np.zeros(plan.output_count, plan.numpy_dtype)
        )
        started.append((plan, request, operands[rank], out, expected))
        if number % 3:  # several in progress at once
            continue
        for plan, request, _, out, expected in started:
            assert native_wait(request) == DONE, plan
            np.testing.assert_array_equal(out, expected, err_msg=str(plan))
        started.clear()
    for _, request, *_ in started:
        transport.wait(request)
    print("collectives", number)


WITHOUT_MPI = """
import sys
from weft._engine import processes

{collectives}
assert "mpi4py" not in sys.modules and [part.name for part in processes.current().transport.components()] == ["shared_memory"]
"""


@pytest.mark.parametrize("size", [2, 4])
def test_collectives_of_one_host_need_no_mpi(size):
    for rank in run_ranks(size, WITHOUT_MPI.format(collectives=source_of(collectives))):
        assert rank.out.startswith("collectives ")


@pytest.mark.parametrize("size", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_mpi_without_a_launcher(size):
    for rank in run_ranks(size, collectives, environment={"WEFT_PROCESS_TRANSPORT": "mpi"}):
        assert rank.out.startswith("collectives ")


@pytest.mark.skipif(not MPIEXEC.exists(), reason="the folder of this Python has no mpiexec")
@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_mpi_gives_what_numpy_gives(size):
    (outcomes,) = run_ranks(
        size, collectives, launcher="mpiexec", environment={"WEFT_PROCESS_TRANSPORT": "mpi"}
    )
    assert outcomes.out.count("collectives") == size


def meet():
    import weft
    from weft._engine import processes

    shared = processes.current()
    assert (weft.process_count(), weft.process_index(), weft.process_indices()) == (
        3,
        shared.rank,
        [0, 1, 2],
    )
    assert weft.device_count() == 6 and weft.local_device_count() == 2
    assert [d.id for d in weft.local_devices()] == [2 * shared.rank, 2 * shared.rank + 1]
    assert [d.process_index for d in weft.devices()] == [0, 0, 1, 1, 2, 2]
    assert [d.local_hardware_id for d in weft.devices()] == [0, 1] * 3
    assert (
        weft.local_devices(1) == weft.devices()[2:4]
        and not weft.devices()[2 * shared.rank - 1].is_addressable
    )
    assert float(weft.numpy.arange(4.0).sum()) == 6.0  # unplaced arrays are local
    client = shared.client
    client.put(f"name/{shared.rank}", bytes([shared.rank]))
    assert client.get(f"name/{(shared.rank + 1) % 3}", 10) == bytes([(shared.rank + 1) % 3])
    assert client.barrier("all", 10, value=shared.rank) == [0, 1, 2]
    if shared.rank != 1:
        assert client.barrier("some", 10, ranks=(0, 2)) == []
    assert client.keys("name/") == ["name/0", "name/1", "name/2"] and client.find("missing") is None
    client.barrier("read", 10)
    if shared.rank == 0:
        assert client.delete("name") == 3 and client.keys("name/") == []
    import weft.distributed

    try:
        weft.distributed.initialize()
    except RuntimeError as error:
        assert "once" in str(error)
    weft.distributed.shutdown()
    assert not weft.distributed.is_initialized()
    print("met")


def test_processes_meet_and_share_their_devices():
    assert [rank.out for rank in run_ranks(3, meet, devices_per_process=2)] == ["met\n"] * 3


@pytest.mark.parametrize("op", sorted(OPS))
def test_reductions_keep_the_order_and_the_dtype(op):
    parts = [
        np.array([1, 2, 3], np.int32),
        np.array([4, 1, 3], np.int32),
        np.array([2, 2, 2], np.int32),
    ]
    expected = {
        "sum": [7, 5, 8],
        "prod": [8, 4, 18],
        "max": [4, 2, 3],
        "min": [1, 1, 2],
        "and": [0, 0, 2],
        "or": [7, 3, 3],
        "xor": [7, 1, 2],
    }[op]
    result = reduce(op, parts)
    assert result.tolist() == expected and result.dtype == np.int32


def test_small_floats_are_added_in_32_bits():
    parts = [np.array([x], np.float16) for x in (2048.0, 1.0, 1.0)]
    assert reduce("sum", parts).tolist() == [2050.0]  # in 16 bits 2048 + 1 is 2048


@pytest.mark.parametrize(
    "fields",
    [
        ("gather", "float32", 1),
        ("all_reduce", "float32", 1),
        ("all_gather", "float32", 1, "sum"),
        ("all_reduce", "float32", 1, "mean"),
        ("all_reduce", "float32", 1, "xor"),
        ("all_reduce", "complex64", 1, "max"),
        ("all_gather", "float32", 1, None, ((0, 1), (2,))),
        ("all_gather", "float32", 1, None, ((0, 1), (1, 2))),
        ("all_to_all", "float32", 3, None, ((0, 1),)),
        ("permute", "float32", 3, None, (), ((0, 1), (0, 2))),
    ],
)
def test_plans_that_mean_nothing_are_refused(fields):
    with pytest.raises(ValueError, match="CollectivePlan"):
        CollectivePlan(*fields)


def test_what_a_rank_gets():
    operands = {0: np.array([1, 2, 3, 4]), 1: np.array([5, 6, 7, 8])}

    def got(kind, count, op=None):
        plan = CollectivePlan(kind, "int64", count, op, ((0, 1),))
        return [evaluate(plan, (0, 1), operands, rank).tolist() for rank in (0, 1)]

    assert got("all_gather", 4) == [[1, 2, 3, 4, 5, 6, 7, 8]] * 2
    assert got("reduce_scatter", 2, "sum") == [[6, 8], [10, 12]]
    assert got("all_to_all", 4) == [[1, 2, 5, 6], [3, 4, 7, 8]]
    assert got("broadcast", 4) == [[1, 2, 3, 4]] * 2
