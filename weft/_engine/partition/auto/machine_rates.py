"""Machines: rates, bandwidths, latencies and memory sizes, and the seconds that an operation takes.

In:   the constants of a device, of the links inside a node and of the network between nodes; or the name of a preset.
Out:  `Machine`; seconds of a collective (`collective_seconds`), of a matmul (`matmul_seconds`) and of memory traffic
      (`stream_seconds`).
Laws: a machine is immutable and hashable. Seconds never grow with a bandwidth or a rate, and never shrink with bytes.

A *node* is the set of devices that the fast links connect: a server of GPUs, or a pod of TPUs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, cast

from weft._engine.util.machine_model import machine_model
from weft._engine.util.record import record, replace

CollectiveKind = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute"
]
#: number of times that the buffer crosses the links: an all_reduce is a reduce_scatter and an all_gather
_CROSSINGS: dict[str, int] = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
_KINDS = (*_CROSSINGS, "all_to_all", "collective_permute")
#: elements of the contraction that a matmul unit needs to fill and drain its pipeline
_RAMP = 32


@record
class Machine:
    """One kind of device, and the links between devices.

    Parameters, with their units:

    - `peak_flops`: peak FLOP/s of matmuls by dtype name, as a mapping or as pairs.
    - `memory_bandwidth` (bytes/s) and `memory` (bytes) of a device.
    - `link_bandwidth`: bytes/s, one way, that a device exchanges with the others of its node in one collective.
    - `devices_per_node`: devices that these links connect.
    - `network_bandwidth`: bytes/s, one way, of a whole node to other nodes.
    - `link_latency` and `network_latency`: seconds to start a collective inside a node, and per doubling of the number
      of nodes between them.
    - `launch`: seconds to start a kernel.
    - the four efficiencies: attainable shares of the peak, the memory, the links and the network.
    - `tile` and `units`: rows and columns of a block of a matmul's result, and how many of them a device computes at
      a time. A device with one unit has no waves: it only pads to whole tiles.
    - `torus_dims`: dims of the torus that links form; 0 where a switch connects all pairs.
    - `overlap`: share of the seconds of a collective that computation hides, if its operand is ready early or its result is
      needed late. Only automatic sharding uses it; the planner's layouts state their own shares.

    A rate, bandwidth, size or efficiency that is not positive, and a negative latency, raise `ValueError`.

    >>> Machine("mine", {"float32": 1e12}, 1e11, 8e9, 1e10).flops("float32")
    1000000000000.0
    """

    __module__ = "weft.auto"

    name: str
    peak_flops: Mapping[str, float] | tuple[tuple[str, float], ...]
    memory_bandwidth: float
    memory: float
    link_bandwidth: float
    devices_per_node: int = 8
    network_bandwidth: float = 100e9
    link_latency: float = 10e-6
    network_latency: float = 20e-6
    launch: float = 4e-6
    matmul_efficiency: float = 0.8
    memory_efficiency: float = 0.8
    link_efficiency: float = 0.75
    network_efficiency: float = 0.8
    tile: tuple[int, int] = (128, 256)
    units: int = 1
    torus_dims: int = 0
    overlap: float = 0.0

    def __post_init__(self) -> None:
        stated = self.peak_flops
        rates = tuple(sorted(stated.items() if isinstance(stated, Mapping) else stated))
        object.__setattr__(self, "peak_flops", rates)
        facts = {f"peak_flops[{dtype!r}]": rate for dtype, rate in rates} | {
            name: cast(float, getattr(self, name)) for name in _POSITIVE
        }
        wrong = [f"{name} = {value!r}" for name, value in facts.items() if not value > 0]
        wrong += [
            f"{name} = {getattr(self, name)!r}"
            for name in _NOT_NEGATIVE
            if not getattr(self, name) >= 0
        ]
        wrong += [
            f"{name} = {getattr(self, name)!r}"
            for name in (*_SHARES, "overlap")
            if getattr(self, name) > 1
        ]
        if wrong or not rates:
            raise ValueError(
                f"Machine {self.name!r}: {', '.join(wrong) or 'peak_flops is empty'}. Rates, bandwidths and sizes are "
                "positive, latencies and the overlap are not negative, and efficiencies and the overlap are at most 1."
            )

    def flops(self, dtype: str) -> float:
        """Return the peak FLOP/s of matmuls of `dtype`; for a dtype that is not listed, the lowest peak.

        >>> MACHINES["a100"].flops("bfloat16"), MACHINES["a100"].flops("complex64")
        (312000000000000.0, 9700000000000.0)
        """
        rates = dict(self.peak_flops)
        return rates[dtype] if dtype in rates else min(rates.values())


_SHARES = ("matmul_efficiency", "memory_efficiency", "link_efficiency", "network_efficiency")
_NOT_NEGATIVE = ("link_latency", "network_latency", "launch", "overlap")
_POSITIVE = (
    "memory_bandwidth",
    "memory",
    "link_bandwidth",
    "devices_per_node",
    "network_bandwidth",
    *_SHARES,
    "units",
)


# ---- seconds


def collective_seconds(
    machine: Machine, kind: CollectiveKind, nbytes: float, count: int, stride: int = 1
) -> float:
    """Return the seconds of one collective over `count` devices whose numbers are `stride` apart.

    `nbytes` is the whole buffer: the operand of `all_reduce` and `reduce_scatter`, the result of `all_gather`, and the
    bytes that one device holds for `all_to_all` and sends in `collective_permute`. Groups that span nodes work in two
    levels, inside the nodes and between them at the same time; all groups of the machine communicate at once, so a
    group gets its share of the network of a node. Another `kind` raises `ValueError`.

    >>> h100 = MACHINES["h100"]
    >>> near = collective_seconds(h100, "all_reduce", 1e9, 8)
    >>> far = collective_seconds(h100, "all_reduce", 1e9, 8, stride=8)
    >>> f"{near * 1e3:.1f} ms, {far * 1e3:.1f} ms"
    '5.2 ms, 43.9 ms'
    """
    if kind not in _KINDS:
        raise ValueError(f"collective_seconds: {kind!r} is not one of {', '.join(_KINDS)}.")
    if count <= 1 or not nbytes:
        return 0.0
    inside = max(1, min(count, machine.devices_per_node // stride))
    outside = -(-count // inside)
    link = machine.link_bandwidth * machine.link_efficiency
    groups = max(1, machine.devices_per_node // inside)
    network = machine.network_bandwidth * machine.network_efficiency / groups
    network_latency = machine.network_latency * math.log2(max(2, outside))
    if kind == "collective_permute":
        if outside > 1:
            return nbytes / (network / inside) + machine.network_latency
        return nbytes / link + machine.link_latency
    if kind == "all_to_all":
        near = (count - 1) / count * nbytes * _torus_hops(machine, inside) / link
        far = (outside - 1) / outside * nbytes * inside / network
        crossings = 1
    else:
        members = count if outside > 1 else inside
        near = (members - 1) / members * nbytes / link if inside > 1 else 0.0
        far = (outside - 1) / outside * nbytes / network
        crossings = _CROSSINGS[kind]
    seconds = crossings * machine.link_latency if inside > 1 else 0.0
    if outside > 1:
        return seconds + max(crossings * (far + network_latency), crossings * near)
    return seconds + crossings * near


def _torus_hops(machine: Machine, count: int) -> float:
    """Return how often a link carries each byte of an all_to_all among `count` devices.

    On a ring of r devices a byte crosses r/4 links on average, half of them in each direction.
    """
    if not machine.torus_dims:
        return 1.0
    return max(1.0, count ** (1 / machine.torus_dims) / 4)


def matmul_seconds(
    machine: Machine, m: float, n: float, k: float, batch: float = 1, dtype: str = "bfloat16"
) -> float:
    """Return the seconds of `batch` products of an m×k and a k×n matrix in `dtype`.

    The larger of two times: whole tiles, computed in waves by the machine's units, and the traffic of the three
    matrices. Matmuls whose tiles do not fill a wave, or whose contraction is short, get a smaller share of the peak.

    >>> a100 = MACHINES["a100"]
    >>> flops = 2 * 8192**3
    >>> share = flops / matmul_seconds(a100, 8192, 8192, 8192) / a100.flops("bfloat16")
    >>> f"{share:.2f}"
    '0.81'
    """
    rows, columns = machine.tile
    tiles = batch * math.ceil(m / rows) * math.ceil(n / columns)
    waves = math.ceil(tiles / machine.units)
    depth = max(k, 1) + _RAMP * min(1.0, k / (2 * _RAMP))
    flops = waves * machine.units * 2 * rows * columns * depth
    compute = flops / (machine.flops(dtype) * machine.matmul_efficiency)
    traffic = batch * itemsize(dtype) * (m * k + k * n + m * n)
    memory = traffic / (machine.memory_bandwidth * machine.memory_efficiency)
    return max(compute, memory) + machine.launch


def stream_seconds(machine: Machine, nbytes: float) -> float:
    """Return the seconds of one kernel that reads and writes `nbytes` in total.

    >>> f"{stream_seconds(MACHINES['a100'], 1e9) * 1e3:.2f} ms"
    '0.60 ms'
    """
    return nbytes / (machine.memory_bandwidth * machine.memory_efficiency) + machine.launch


def itemsize(dtype: str) -> int:
    """Return the bytes of an element of a dtype, by name.

    >>> itemsize("bfloat16"), itemsize("float8_e4m3fn"), itemsize("float32")
    (2, 1, 4)
    """
    bits = {"bfloat16": 16, "bool": 8, "complex64": 64, "complex128": 128}.get(dtype)
    if bits is None:
        digits = dtype.partition("_")[0].lstrip("abcdefghijklmnopqrstuvwxyz")
        if not digits.isdigit():
            raise ValueError(f"itemsize: {dtype!r} is not the name of a dtype with a size.")
        bits = int(digits)
    return max(1, bits // 8)


# ---- presets


#: share of a collective that accelerators hide: 90 % of it runs behind computation, which loses 20 % of that time to it.
#: With these two shares the planner's model of a step meets published step times of FSDP on A100, H100 and TPU v5e
#: (`planner.search`, `planner.layer_cost`, `tests/planner`). Backends of the processor do not overlap.
_ACCELERATOR_OVERLAP = 0.72

_A100 = Machine(
    # NVIDIA A100 datasheet (2021): SXM 80 GB, dense rates; float32 without the tensor cores. NVLink 3: 600 GB/s both
    # ways. Network: eight 200 Gb/s adapters in a DGX A100. Efficiencies of matmuls and memory: measured on an ND A100 v4
    # (Azure AI-benchmarking-guide 2024: 254 TFLOP/s at 8192, 1.70 TB/s in Triad).
    "a100",
    {"bfloat16": 312e12, "float16": 312e12, "int8": 624e12, "float32": 19.5e12, "float64": 9.7e12},
    memory_bandwidth=2.039e12,
    memory=80 * 2**30,
    link_bandwidth=300e9,
    devices_per_node=8,
    network_bandwidth=200e9,
    matmul_efficiency=0.82,
    memory_efficiency=0.82,
    units=108,
    overlap=_ACCELERATOR_OVERLAP,
)
_H100 = Machine(
    # NVIDIA H100 datasheet (2023): SXM 80 GB, dense rates; float32 without the tensor cores. NVLink 4: 900 GB/s both
    # ways. Network: eight 400 Gb/s adapters in a DGX H100. Efficiencies: measured on an ND H100 v5 (Azure
    # AI-benchmarking-guide 2024: 8-bit floats 1290 to 1377 TFLOP/s from 8192 on, 2.90 TB/s in Copy).
    "h100",
    {
        "float8_e4m3fn": 1979e12,
        "float8_e5m2": 1979e12,
        "bfloat16": 989e12,
        "float16": 989e12,
        "int8": 1979e12,
        "float32": 67e12,
        "float64": 34e12,
    },
    memory_bandwidth=3.35e12,
    memory=80 * 2**30,
    link_bandwidth=450e9,
    devices_per_node=8,
    network_bandwidth=400e9,
    matmul_efficiency=0.68,
    memory_efficiency=0.87,
    units=132,
    overlap=_ACCELERATOR_OVERLAP,
)
#: TPUs multiply float32 in one bfloat16 pass at the default precision. Links of a torus: a mesh axis uses two dims of a
#: three-dimensional torus and one dim of a two-dimensional one, in both directions.
_TPU = Machine(
    "tpu",
    {"bfloat16": 275e12, "float32": 275e12},
    memory_bandwidth=1.2e12,
    memory=32 * 2**30,
    link_bandwidth=180e9,
    devices_per_node=4096,
    link_latency=2e-6,
    link_efficiency=0.8,
    tile=(128, 128),
    units=1,
    torus_dims=3,
    overlap=_ACCELERATOR_OVERLAP,
)

#: the presets, by name: published constants, and the efficiencies that the planner's tests measure
MACHINES: Mapping[str, Machine] = MappingProxyType(
    {
        machine.name: machine
        for machine in (
            # One core of a Zen 5 server with 64-byte vectors: `benchmarks/fma_rate.py` and copies of memory
            # (`benchmarks/notes.md`). Collectives copy memory. Network: 10 Gb/s Ethernet.
            Machine(
                "cpu",
                {"bfloat16": 256e9, "float32": 256e9, "float64": 128e9},
                memory_bandwidth=28e9,
                memory=8e9,
                link_bandwidth=14e9,
                devices_per_node=8,
                network_bandwidth=1.25e9,
                link_latency=10e-6,
                network_latency=100e-6,
                launch=1e-6,
                tile=(16, 64),
                units=1,
            ),
            _A100,
            _H100,
            # Google Cloud, "TPU v4" (2024) and Jouppi et al. 2023 (arXiv:2304.01433): 6 links of 50 GB/s each way, a
            # pod of 4096 chips. Network: 3.3 GB/s a chip between pods (Chowdhery et al. 2022, section 4).
            replace(_TPU, name="tpu-v4", network_bandwidth=4096 * 3.3e9),
            # Google Cloud, "TPU v5e" (2024): 400 GB/s over 4 links both ways, a pod of 256 chips. Networks of this and
            # the next two: Austin et al. 2025, "How to scale your model", chapter 2.
            replace(
                _TPU,
                name="tpu-v5e",
                peak_flops={"bfloat16": 197e12, "float32": 197e12, "int8": 393e12},
                memory_bandwidth=0.819e12,
                memory=16 * 2**30,
                link_bandwidth=90e9,
                devices_per_node=256,
                network_bandwidth=256 * 3.125e9,
                torus_dims=2,
            ),
            # Google Cloud, "TPU v5p" (2024): 1200 GB/s over 6 links both ways, a pod of 8960 chips.
            replace(
                _TPU,
                name="tpu-v5p",
                peak_flops={"bfloat16": 459e12, "float32": 459e12, "int8": 918e12},
                memory_bandwidth=2.765e12,
                memory=95 * 2**30,
                link_bandwidth=360e9,
                devices_per_node=8960,
                network_bandwidth=8960 * 6.25e9,
            ),
            # Google Cloud, "TPU v6e" (2024): 800 GB/s over 4 links both ways, a pod of 256 chips.
            replace(
                _TPU,
                name="tpu-v6e",
                peak_flops={"bfloat16": 918e12, "float32": 918e12, "int8": 1836e12},
                memory_bandwidth=1.64e12,
                memory=32 * 2**30,
                link_bandwidth=180e9,
                devices_per_node=256,
                network_bandwidth=256 * 12.5e9,
                tile=(256, 256),
                torus_dims=2,
            ),
        )
    }
)


def find_machine(name: str) -> Machine:
    """Return a preset by its name; "cpu" is the machine of this process. Another name raises `ValueError`.

    >>> find_machine("h100").memory
    85899345920
    """
    if name not in MACHINES:
        raise ValueError(
            f"unknown machine {name!r}. The presets are {', '.join(MACHINES)}; a `Machine` describes any other."
        )
    machine = MACHINES[name]
    return this_cpu() if machine is MACHINES["cpu"] else machine


def this_cpu() -> Machine:
    """Return the machine that this process runs on; a device is a core.

    Cores, vector width and memory are the system's; clock rate, memory bandwidth and efficiencies are those in the preset "cpu".

    >>> this_cpu().name, this_cpu().devices_per_node >= 1
    ('cpu', True)
    """
    preset = MACHINES["cpu"]
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    width = machine_model().vector_bytes / 64
    rates = {dtype: rate * width for dtype, rate in dict(preset.peak_flops).items()}
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / cores
    except (AttributeError, ValueError, OSError):  # Windows
        memory = preset.memory
    return replace(preset, peak_flops=rates, memory=memory, devices_per_node=cores)
