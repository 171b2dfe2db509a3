"""Targets of ahead-of-time compilation by short names: `v5p:8x8x8`, `h100:8`.

In:   a name: the kind of devices and their number, or their number along each dim.
Out:  `DeviceTarget`: the plugin that compiles for it, and the plugin's arguments.
Source: the vendors' public data sheets; for GPUs also the CUDA C++ Programming Guide, table of
      technical specifications per compute capability.
"""

from __future__ import annotations

import math
from typing import Any

from weft._engine.util.record import field, record

#: number of GPUs per host, if a target has more than one host
_GPUS_PER_HOST = 8


@record
class DeviceTarget:
    """A set of devices to compile for: its plugin's platform, its name there, and the plugin's options."""

    name: str
    platform: str
    topology: str
    options: dict[str, Any] = field(default_factory=dict)


@record
class TpuKind:
    """A generation of TPUs, which are linked along `dims` dims."""

    dims: int
    options: dict[str, Any] = field(default_factory=dict)


@record
class GpuKind:
    """An NVIDIA GPU. Sizes are in bytes; a core is a streaming multiprocessor."""

    description: str
    capability: tuple[int, int]
    cores: int
    fpus_per_core: int
    clock_ghz: float
    memory: int
    memory_bandwidth: float
    l2_cache: int
    shared_memory_per_core: int
    shared_memory_per_block: int


TPU_KINDS = {
    "v4": TpuKind(3, {"chip_config_name": "megacore"}),  # both cores of a chip are one device
    "v5e": TpuKind(2),
    "v5p": TpuKind(3),
    "v6e": TpuKind(2),
    "tpu7x": TpuKind(3),
}

GPU_KINDS = {
    "a100": GpuKind(
        "NVIDIA A100-SXM4-80GB",
        (8, 0),
        108,
        64,
        1.41,
        80 << 30,
        2039e9,
        40 << 20,
        164 << 10,
        163 << 10,
    ),
    "h100": GpuKind(
        "NVIDIA H100 80GB HBM3",
        (9, 0),
        132,
        128,
        1.98,
        80 << 30,
        3352e9,
        50 << 20,
        228 << 10,
        227 << 10,
    ),
    "h200": GpuKind(
        "NVIDIA H200", (9, 0), 132, 128, 1.98, 141 << 30, 4800e9, 50 << 20, 228 << 10, 227 << 10
    ),
    "b200": GpuKind(
        "NVIDIA B200", (10, 0), 148, 128, 1.965, 180 << 30, 8000e9, 126 << 20, 228 << 10, 227 << 10
    ),
}


def parse_target(name: str) -> DeviceTarget:
    """Return the target with a name; raise ValueError for an unknown name.

    >>> parse_target("v5p:8x8x8").topology, parse_target("h100:16").topology
    ('v5p:8x8x8', '1x2x8')
    """
    kind, _, sizes_text = name.partition(":")
    sizes = sizes_text.split("x")
    if kind not in TPU_KINDS and kind not in GPU_KINDS:
        raise ValueError(
            f"target {name!r}: unknown kind of devices {kind!r}. {_describe_targets()}"
        )
    if not all(size.isdecimal() and int(size) > 0 for size in sizes):
        raise ValueError(
            f"target {name!r}: {sizes_text!r} is not a number of devices. {_describe_targets()}"
        )
    counts = [*map(int, sizes)]
    if kind in GPU_KINDS:
        return _gpu_target(name, kind, counts)
    dims = TPU_KINDS[kind].dims
    if len(counts) != dims:
        example = "x".join(["4"] * dims)
        raise ValueError(
            f"target {name!r}: {kind} chips are linked along {dims} dims, got {len(counts)}. "
            f"Name the number of chips along each, as in {kind}:{example}."
        )
    return DeviceTarget(name, "tpu", name, TPU_KINDS[kind].options)


def _describe_targets() -> str:
    tpus = [f"{kind}:{'x'.join('XYZ'[: spec.dims])}" for kind, spec in TPU_KINDS.items()]
    return f"Targets are {', '.join([*tpus, *[f'{kind}:N' for kind in GPU_KINDS]])}."


def _gpu_target(name: str, kind: str, counts: list[int]) -> DeviceTarget:
    """Return a target of N GPUs, or of hosts by GPUs per host."""
    if len(counts) == 1:
        (count,) = counts
        counts = [count // _GPUS_PER_HOST, _GPUS_PER_HOST] if count > _GPUS_PER_HOST else [1, count]
        if math.prod(counts) != count:
            raise ValueError(
                f"target {name!r}: more than {_GPUS_PER_HOST} GPUs must be whole hosts of "
                f"{_GPUS_PER_HOST}, got {count}. Name other hosts as {kind}:HOSTSxGPUS."
            )
    if len(counts) != 2:
        raise ValueError(f"target {name!r}: give {kind}:GPUS or {kind}:HOSTSxGPUS.")
    shape = f"1x{counts[0]}x{counts[1]}"  # slices, hosts, devices of a host
    options = {"topology": shape, "target_config": target_config(GPU_KINDS[kind])}
    return DeviceTarget(name, "cuda", shape, options)


def target_config(gpu: GpuKind) -> str:
    """Return XLA's GpuTargetConfigProto of a GPU as text."""
    info = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 48 << 10,
        "shared_memory_per_core": gpu.shared_memory_per_core,
        "threads_per_core_limit": 2048,
        "core_count": gpu.cores,
        "fpus_per_core": gpu.fpus_per_core,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 2**16 - 1,
        "block_dim_limit_z": 2**16 - 1,
        "memory_bandwidth": int(gpu.memory_bandwidth),
        "l2_cache_size": gpu.l2_cache,
        "clock_rate_ghz": gpu.clock_ghz,
        "device_memory_size": gpu.memory,
        "shared_memory_per_block_optin": gpu.shared_memory_per_block,
        "registers_per_core_limit": 1 << 16,
        "registers_per_block_limit": 1 << 16,
    }
    fields = " ".join(f"{name}: {value}" for name, value in info.items())
    major, minor = gpu.capability
    capability = f"cuda_compute_capability {{ major: {major} minor: {minor} }}"
    return (
        f"gpu_device_info {{ {fields} {capability} }}\n"
        'platform_name: "CUDA"\n'
        "dnn_version_info { major: 9 minor: 10 patch: 0 }\n"
        "runtime_version { major: 12 minor: 8 }\n"
        f'device_description_str: "{gpu.description}"\n'
    )
