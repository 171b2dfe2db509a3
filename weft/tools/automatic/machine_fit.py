"""Fit the rates of a machine to measured times.

In:   the seconds of collectives, matmuls and memory traffic, and a machine with the constants that are not fitted.
Out:  a `Machine` with fitted rates and latencies.
How:  the formulas of `partition.auto.machine_rates` are linear in latencies and in seconds per byte or FLOP. The coefficients are
      the times on machines in which one of these is 1 and the others are 0. Relative errors are fitted by least squares.
Laws: rates are positive and finite, whatever the times are. Times that follow the formulas are reproduced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from weft._engine.partition.auto.machine_rates import (
    CollectiveKind,
    Machine,
    collective_seconds,
    matmul_seconds,
    stream_seconds,
)
from weft._engine.util.record import record, replace

FloatArray = npt.NDArray[np.float64]


class MeasuredTime(Protocol):
    """The measured seconds of an operation, and the seconds that it takes on a machine."""

    @property
    def seconds(self) -> float: ...
    def predict(self, machine: Machine) -> float: ...


@record
class CollectiveTime:
    """The seconds of a collective over `count` devices, `stride` apart; `nbytes` are as in `collective_seconds`."""

    kind: CollectiveKind
    nbytes: float
    count: int
    stride: int
    seconds: float

    def predict(self, machine: Machine) -> float:
        """Return the seconds on a machine."""
        return collective_seconds(machine, self.kind, self.nbytes, self.count, self.stride)


@record
class MatmulTime:
    """The seconds of a product of square matrices with `size` rows."""

    size: int
    dtype: str
    seconds: float

    def predict(self, machine: Machine) -> float:
        """Return the seconds on a machine."""
        return matmul_seconds(machine, self.size, self.size, self.size, dtype=self.dtype)


@record
class StreamTime:
    """The seconds of a kernel that reads and writes `nbytes` in total."""

    nbytes: float
    seconds: float

    def predict(self, machine: Machine) -> float:
        """Return the seconds on a machine."""
        return stream_seconds(machine, self.nbytes)


@record
class MachineTimes:
    """The times to which a machine is fitted: at least one of each kind. Collectives stay inside a node."""

    collectives: Sequence[CollectiveTime]
    matmuls: Sequence[MatmulTime]
    streams: Sequence[StreamTime]


def fit_machine(times: MachineTimes, base: Machine) -> Machine:
    """Return `base` with rates and latencies that fit the times; the rates are attainable, so efficiencies are 1.

    The network between nodes comes from `base`.

    >>> from weft.tools.automatic.machine_fit import CollectiveTime, MachineTimes, MatmulTime, StreamTime
    >>> times = MachineTimes(
    ...     [CollectiveTime("all_gather", n, 4, 1, 1e-5 + 0.75 * n / 1e10) for n in (1e4, 1e6)],
    ...     [MatmulTime(512, "float32", 1e-3)],
    ...     [StreamTime(n, 1e-6 + n / 2e10) for n in (1e4, 1e6)],
    ... )
    >>> machine = fit_machine(times, weft.auto.MACHINES["cpu"])
    >>> f"{machine.link_bandwidth:.3g} {machine.link_latency:.3g} {machine.memory_bandwidth:.3g} {machine.launch:.3g}"
    '1e+10 1e-05 2e+10 1e-06'
    """
    idle = _idle_machine(base)
    link_latency, seconds_per_byte = _fit(
        times.collectives, replace(idle, link_latency=1.0), replace(idle, link_bandwidth=1.0)
    )
    launching = replace(idle, launch=1.0)
    launch, seconds_per_access = _fit(times.streams, launching, replace(idle, memory_bandwidth=1.0))
    flops: dict[str, float] = {}
    for dtype in dict.fromkeys(t.dtype for t in times.matmuls):
        products = [t for t in times.matmuls if t.dtype == dtype]
        _, seconds_per_flop = _fit(products, launching, replace(idle, peak_flops={dtype: 1.0}))
        flops[dtype] = 1 / seconds_per_flop
    return replace(
        idle,
        peak_flops=flops,
        memory_bandwidth=1 / seconds_per_access,
        link_bandwidth=1 / seconds_per_byte,
        link_latency=link_latency,
        launch=launch,
        network_bandwidth=base.network_bandwidth,
        network_latency=base.network_latency,
        network_efficiency=base.network_efficiency,
    )


def _idle_machine(base: Machine) -> Machine:
    """Return a machine with the structure of `base`, on which everything takes 0 seconds."""
    return replace(
        base,
        peak_flops={"float32": math.inf},
        memory_bandwidth=math.inf,
        link_bandwidth=math.inf,
        network_bandwidth=math.inf,
        link_latency=0.0,
        network_latency=0.0,
        launch=0.0,
        matmul_efficiency=1.0,
        memory_efficiency=1.0,
        link_efficiency=1.0,
        network_efficiency=1.0,
    )


def _fit(times: Sequence[MeasuredTime], starting: Machine, working: Machine) -> tuple[float, float]:
    """Return the seconds to start and the seconds of a unit of work; the machines have one of them at 1."""
    seconds = np.array([t.seconds for t in times])
    starts = np.array([t.predict(starting) for t in times]) / seconds
    work = np.array([t.predict(working) for t in times]) / seconds
    return fit_ones(starts, work)


def fit_ones(first: FloatArray, second: FloatArray) -> tuple[float, float]:
    """Return x >= 0 and y > 0 with the least squares of `first * x + second * y - 1`; `second` is positive.

    Where the best y is not positive, x is 0.

    >>> x, y = fit_ones(np.array([0.5, 0.1]), np.array([0.25, 0.45]))
    >>> f"{x:.3f} {y:.3f}"
    '1.000 2.000'
    """
    alone = 0.0, float(np.sum(second) / np.sum(second**2))
    if len(first) < 2:
        return alone
    solution: Any = np.linalg.lstsq(np.stack([first, second], 1), np.ones(len(first)), rcond=None)
    x, y = map(float, solution[0])
    return (x, y) if x >= 0 and y > 0 else alone
