"""`weft.auto.measure`: rates that fit measured times, and a machine for plans."""

import itertools
import math
import pickle

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.partition.auto.machine_rates import (
    MACHINES,
    Machine,
    collective_seconds,
    matmul_seconds,
    stream_seconds,
)
from weft._engine.util.record import replace
from weft.sharding import AbstractMesh, AxisType
from weft.tools.automatic.machine_fit import (
    CollectiveTime,
    MachineTimes,
    MatmulTime,
    StreamTime,
    fit_machine,
    fit_ones,
)

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute")
FITTED = ("memory_bandwidth", "link_bandwidth", "link_latency", "launch")
PLAIN = Machine(
    "plain",
    {"float32": 2e12, "bfloat16": 9e12},
    memory_bandwidth=1e12,
    memory=1e9,
    link_bandwidth=70e9,
    link_latency=3e-6,
    launch=2e-6,
    matmul_efficiency=1.0,
    memory_efficiency=1.0,
    link_efficiency=1.0,
)


def times_on(machine, groups=((8, 1), (4, 2))):
    """The times that a machine would measure."""
    collectives = [
        CollectiveTime(
            kind, nbytes, *group, collective_seconds(machine, kind, float(nbytes), *group)
        )
        for kind, nbytes, group in itertools.product(KINDS, (1 << 8, 1 << 14, 1 << 20), groups)
    ]
    matmuls = [
        MatmulTime(size, dtype, matmul_seconds(machine, size, size, size, dtype=dtype))
        for dtype, size in itertools.product(dict(machine.peak_flops), (2048, 4096))
    ]
    streams = [StreamTime(n, stream_seconds(machine, n)) for n in (1 << 10, 1 << 22)]
    return MachineTimes(collectives, matmuls, streams)


def rates(machine):
    return {name: getattr(machine, name) for name in FITTED} | dict(machine.peak_flops)


@pytest.mark.parametrize(
    "machine", [PLAIN, replace(PLAIN, units=10, tile=(64, 64)), replace(PLAIN, torus_dims=2)]
)
def test_known_rates_are_recovered(machine):
    base = replace(MACHINES["cpu"], tile=machine.tile, units=machine.units)
    base = replace(base, torus_dims=machine.torus_dims)
    assert rates(fit_machine(times_on(machine), base)) == pytest.approx(rates(machine), rel=1e-9)


def test_fit_reports_attainable_rates():
    fitted = fit_machine(times_on(replace(PLAIN, link_efficiency=0.5)), PLAIN)
    assert fitted.link_bandwidth == pytest.approx(PLAIN.link_bandwidth / 2)
    assert fitted.link_efficiency == 1.0


def test_fit_keeps_what_is_not_measured():
    base = replace(MACHINES["h100"], name="measured", memory=5e9)
    fitted = fit_machine(times_on(PLAIN), base)
    unfitted = ("name", "memory", "tile", "units", "network_bandwidth", "network_efficiency")
    assert [getattr(fitted, name) for name in unfitted] == [
        getattr(base, name) for name in unfitted
    ]


def test_noise_moves_rates_by_its_size():
    times = times_on(PLAIN)
    noisy = [
        replace(t, seconds=t.seconds * (1 + 0.1 * (-1) ** i))
        for i, t in enumerate(times.collectives)
    ]
    fitted = fit_machine(replace(times, collectives=noisy), PLAIN)
    assert fitted.link_bandwidth == pytest.approx(PLAIN.link_bandwidth, rel=0.1)
    assert fitted.link_latency == pytest.approx(PLAIN.link_latency, rel=0.1)


@pytest.mark.parametrize(
    "seconds",
    [(1.0, 1.0, 1.0), (3.0, 2.0, 1.0), (1e-9, 1.0, 1e3)],
    ids=["flat", "falling", "steep"],
)
def test_any_times_give_positive_rates(seconds):
    work = np.array([1.0, 2.0, 3.0])
    x, y = fit_ones(1 / np.array(seconds), work / np.array(seconds))
    assert x >= 0 and 0 < y < math.inf


@pytest.fixture(scope="module", params=["8", "4x2"])
def measured(request):
    shape = tuple(map(int, request.param.split("x")))
    mesh = weft.make_mesh(shape, ("x", "y")[: len(shape)])
    return mesh, weft.auto.measure(mesh)


def test_measured_rates_are_positive_and_finite(measured):
    _, machine = measured
    assert machine.name == "measured" and machine.devices_per_node == 8
    assert set(dict(machine.peak_flops)) == {"float32", "bfloat16"}
    values = [*rates(machine).values(), machine.memory]
    assert all(0 <= value < math.inf for value in values)
    assert machine.link_bandwidth > 0 and machine.memory_bandwidth > 0


def test_plan_for_a_measured_machine_keeps_values(measured):
    mesh, machine = measured
    random = np.random.default_rng(0)
    args = [random.normal(size=s).astype("f") for s in ((64, 128), (128, 256), (256, 32))]

    def f(x, up, down):
        return wnp.tanh(x @ up) @ down

    plan = weft.auto.shardings(f, *args, mesh=mesh, machine=machine)
    assert plan.cost.unit == "s" and plan.cost.price > 0
    np.testing.assert_allclose(plan.jit()(*plan.place(args)), f(*args), rtol=1e-4, atol=1e-4)


def test_measured_machine_is_text_and_can_be_pickled(measured):
    _, machine = measured
    assert eval(repr(machine), {"Machine": Machine}) == machine
    assert pickle.loads(pickle.dumps(machine)) == machine


def test_explicit_axes_are_measured():
    mesh = weft.make_mesh((2,), ("x",), (AxisType.Explicit,))
    assert weft.auto.measure(mesh).devices_per_node == 2


@pytest.mark.parametrize(
    "mesh, error, message",
    [
        (lambda: AbstractMesh((8,), ("x",)), TypeError, "a Mesh of devices, got AbstractMesh"),
        (lambda: "8", TypeError, "a Mesh of devices, got str"),
        (lambda: weft.make_mesh((1,), ("x",)), ValueError, "at least 2 devices"),
    ],
    ids=["abstract", "text", "one_device"],
)
def test_what_cannot_be_measured_is_refused(mesh, error, message):
    with pytest.raises(error, match=message):
        weft.auto.measure(mesh())
