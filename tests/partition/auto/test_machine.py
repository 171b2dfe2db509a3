"""Machines and the seconds of their collectives, matmuls and memory traffic."""

import math

import pytest

from weft._engine.partition.auto.machine_rates import (
    MACHINES,
    Machine,
    collective_seconds,
    find_machine,
    itemsize,
    matmul_seconds,
    stream_seconds,
    this_cpu,
)
from weft._engine.planner.layer_cost import CONTENTION
from weft._engine.planner.search import SEARCH_OVERLAP
from weft._engine.util.record import replace

PLAIN = Machine(
    "plain",
    {"float32": 1e12},
    memory_bandwidth=1e12,
    memory=1e9,
    link_bandwidth=100e9,
    devices_per_node=4,
    network_bandwidth=40e9,
    link_latency=0.0,
    network_latency=0.0,
    launch=0.0,
    matmul_efficiency=1.0,
    memory_efficiency=1.0,
    link_efficiency=1.0,
    network_efficiency=1.0,
    tile=(64, 64),
)
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute")


@pytest.mark.parametrize(
    "kind, count, stride, seconds",
    [
        ("all_gather", 4, 1, 0.75 * 1e9 / 100e9),
        ("reduce_scatter", 4, 1, 0.75 * 1e9 / 100e9),
        ("all_reduce", 4, 1, 2 * 0.75 * 1e9 / 100e9),
        ("all_to_all", 4, 1, 0.75 * 1e9 / 100e9),
        ("collective_permute", 4, 1, 1e9 / 100e9),
        ("all_gather", 2, 4, 0.5 * 1e9 / 10e9),  # one device a node: a quarter of its network
        ("all_gather", 2, 2, 0.5 * 1e9 / 100e9),
        ("all_gather", 4, 2, 0.5 * 1e9 / 20e9),  # two a node and two groups: half of its network
        ("all_gather", 8, 1, 0.5 * 1e9 / 40e9),  # the network is slower than the links
        ("all_gather", 32, 2, 15 / 16 * 1e9 / 20e9),
        ("all_to_all", 8, 1, 0.5 * 4e9 / 40e9),
        ("collective_permute", 8, 4, 1e9 / 10e9),
        ("all_reduce", 1, 1, 0.0),
    ],
)
def test_seconds_of_collectives(kind, count, stride, seconds):
    assert collective_seconds(PLAIN, kind, 1e9, count, stride) == pytest.approx(seconds)


def test_latency_grows_with_the_number_of_nodes():
    slow = replace(PLAIN, network_latency=1e-3, network_bandwidth=1e15, link_bandwidth=1e15)
    assert [
        round(collective_seconds(slow, "all_gather", 8, 4 * nodes) * 1e3) for nodes in (1, 2, 4, 16)
    ] == [0, 1, 2, 4]


def test_an_empty_buffer_costs_nothing():
    assert {collective_seconds(MACHINES["a100"], kind, 0, 64) for kind in KINDS} == {0.0}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MACHINES)
def test_seconds_grow_with_bytes_and_fall_with_bandwidth(name, kind):
    machine = MACHINES[name]
    faster = replace(
        machine,
        link_bandwidth=2 * machine.link_bandwidth,
        network_bandwidth=2 * machine.network_bandwidth,
    )
    for count in (2, 8, 12, 64, 512):
        for stride in (1, 2, 8, 300):
            one, two = (
                collective_seconds(machine, kind, nbytes, count, stride) for nbytes in (1e6, 2e6)
            )
            assert 0 < one < two
            assert collective_seconds(faster, kind, 1e6, count, stride) < one


def test_an_all_to_all_on_a_large_torus_crosses_more_links():
    v5e = MACHINES["tpu-v5e"]
    switched = replace(v5e, torus_dims=0)
    for count, ratio in ((16, 1), (256, 4)):
        assert collective_seconds(v5e, "all_to_all", 1e9, count) == pytest.approx(
            ratio * collective_seconds(switched, "all_to_all", 1e9, count), rel=0.01
        )


def test_matmuls_compute_whole_tiles():
    full, partial, more = (matmul_seconds(PLAIN, m, 64, 6400, dtype="float32") for m in (64, 1, 65))
    assert full == partial and more == 2 * full
    assert full == pytest.approx(2 * 64 * 64 * 6432 / 1e12)


def test_matmuls_compute_whole_waves():
    machine = replace(PLAIN, units=10)
    seconds = [
        matmul_seconds(machine, 64 * tiles, 64, 6400, dtype="float32") for tiles in (1, 10, 11)
    ]
    assert seconds[0] == seconds[1] and seconds[2] == 2 * seconds[1]


def test_a_thin_matmul_takes_the_time_of_its_traffic():
    assert matmul_seconds(PLAIN, 1, 1 << 14, 1 << 14, dtype="float32") > 2**28 * 4 / 1e12
    slow = replace(PLAIN, memory_bandwidth=1e9)
    assert matmul_seconds(slow, 64, 64, 64, dtype="float32") == pytest.approx(3 * 64**2 * 4 / 1e9)


def test_a_stream_takes_the_time_of_its_bytes_and_a_launch():
    assert stream_seconds(replace(PLAIN, launch=0.5), 1e12) == 1.5


@pytest.mark.parametrize(
    "dtype, nbytes",
    [
        ("bfloat16", 2),
        ("float8_e5m2", 1),
        ("int4", 1),
        ("float64", 8),
        ("complex64", 8),
        ("bool", 1),
    ],
)
def test_sizes_of_dtypes(dtype, nbytes):
    assert itemsize(dtype) == nbytes


def test_an_unlisted_dtype_has_the_lowest_rate():
    assert MACHINES["h100"].flops("complex64") == 34e12


def test_presets_are_finite_and_named_by_their_key():
    for name, machine in MACHINES.items():
        assert machine.name == name and hash(machine) == hash(replace(machine))
        assert machine.flops("bfloat16") >= machine.flops("float32")
        assert math.isfinite(collective_seconds(machine, "all_reduce", 1e9, 1024))


def test_accelerators_overlap_as_in_the_planner():
    share = SEARCH_OVERLAP.data * (1 - CONTENTION)
    shares = [machine.overlap for machine in MACHINES.values() if machine.name != "cpu"]
    assert shares == pytest.approx([share] * len(shares))
    assert find_machine("cpu").overlap == 0.0


def test_this_cpu_has_the_memory_and_cores_of_the_system():
    machine = find_machine("cpu")
    assert machine == this_cpu()
    assert machine.memory > 1e8 and machine.devices_per_node >= 1


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"memory_bandwidth": 0}, "memory_bandwidth = 0"),
        ({"peak_flops": {"float32": -1.0}}, "peak_flops\\['float32'\\] = -1.0"),
        ({"peak_flops": {}}, "peak_flops is empty"),
        ({"launch": -1}, "launch = -1"),
        ({"link_efficiency": 1.5}, "link_efficiency = 1.5"),
        ({"memory": float("nan")}, "memory = nan"),
        ({"overlap": -0.1}, "overlap = -0.1"),
        ({"overlap": 1.1}, "overlap = 1.1"),
    ],
)
def test_impossible_constants_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        replace(PLAIN, **fields)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"unknown machine 'b9000'. The presets are cpu, a100"):
        find_machine("b9000")
    with pytest.raises(ValueError, match="'psum' is not one of all_reduce"):
        collective_seconds(PLAIN, "psum", 1, 2)
    with pytest.raises(ValueError, match="'float'"):
        itemsize("float")
