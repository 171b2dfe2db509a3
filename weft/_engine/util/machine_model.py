"""The machine model: what differs between machines and decides how code is generated.

In:   the name of this kind of machine (`util.machine`).
Out:  `MODEL`, the `MachineModel` that all passes read; `measured()`, the same with the system's cache sizes.
Laws: fields depend on the kind of machine, never on the single one: equal processors get equal kernels. A threshold that is the
      same on all machines is a constant of the pass that reads it. `l3_bytes`, `vector_bytes` and `vector_registers` are for
      reports; passes read the rest.

To tune a machine, measure a better value and add it to `_KNOWN`. A constant that turns out to differ becomes a field.
"""

from __future__ import annotations

import os
from typing import Any, cast

from weft._engine.util import machine
from weft._engine.util.record import record, replace, values_of


@record
class MachineModel:
    """One kind of machine."""

    name: str

    # ---- facts of the machine
    l1_bytes: int = 32 << 10  # data cache of a core
    l2_bytes: int = 256 << 10  # second-level cache of a core
    l3_bytes: int = 8 << 20  # last-level cache, shared by cores
    cache_ways: int = 8  # lines with the same place in the first-level cache, or in the second
    vector_bytes: int = 32  # width of a register
    vector_registers: int = 16

    # ---- memory
    cache_line: int = 64  # bytes
    buffer_alignment: int = 64  # bytes
    huge_page: int = 2 << 20  # bytes
    stream_bytes: int = 1 << 25  # results from this size on are stored past the caches

    # ---- tasks
    parallel_work: int = 1 << 19  # bytes of traffic that are worth a second thread, some 10 µs
    task_bytes: int = 1 << 16  # traffic of one task: few threads then finish together
    most_tasks: int = 256  # of one kernel
    serial_elements: int = 1 << 15  # elements that one task may process alone
    parallel_bytes: int = 1 << 17  # an update of this size is worth several tasks

    # ---- matrix products
    gemm_bf16_dots: bool = True  # products of bfloat16 pairs are faster than those of float32

    # ---- costs of matrix products, in cycles for 64 bytes
    gemm_pack_copy: int = 2  # to copy an operand into its packed form
    gemm_pack_far: int = 5  # extra where it leaves, or comes from beyond, the core's own caches

    # ---- thread pool
    pool_spin_hints: int = 3000  # pauses of a worker before it sleeps, some 50 µs


#: what differs from the defaults on the machines we know
_KNOWN: dict[str, dict[str, Any]] = {
    "zen3": {"l2_bytes": 512 << 10, "l3_bytes": 32 << 20, "gemm_pack_copy": 8, "gemm_pack_far": 16},
    "zen4": {"l2_bytes": 1 << 20, "l3_bytes": 32 << 20, "vector_bytes": 64, "vector_registers": 32},
    "zen5": {
        "l1_bytes": 48 << 10,
        "l2_bytes": 1 << 20,
        "l3_bytes": 32 << 20,
        "vector_bytes": 64,
        "vector_registers": 32,
    },
    "intel-avx512": {
        "l2_bytes": 1 << 20,
        "l3_bytes": 16 << 20,
        "vector_bytes": 64,
        "vector_registers": 32,
        "gemm_bf16_dots": False,
    },  # one in two cycles, of float32 two in one
    "avx2": {},
    "neoverse": {
        "l1_bytes": 64 << 10,
        "l2_bytes": 1 << 20,
        "l3_bytes": 32 << 20,
        "vector_bytes": 16,
        "vector_registers": 32,
        "pool_spin_hints": 50_000,
    },  # its hint takes a cycle
    "generic": {"vector_bytes": 16},
}


def known(name: str) -> MachineModel:
    """The model of that name.

    >>> known("zen3").l2_bytes, known("zen3").cache_line
    (524288, 64)
    """
    if name not in _KNOWN:
        raise ValueError(f"WEFT_MACHINE_MODEL: {name!r} is not one of {', '.join(_KNOWN)}.")
    return MachineModel(name, **_KNOWN[name])


_current: MachineModel | None = None


def machine_model() -> MachineModel:
    """The model of this machine."""
    global _current
    if _current is None:
        _current = known(machine.name())
    return _current


class _AtHand:
    """The model of this machine, determined on first use."""

    def __getattr__(self, name: str) -> Any:
        model = machine_model()
        self.__dict__.update(values_of(model))
        return getattr(model, name)


#: what passes read
MODEL: MachineModel = cast(MachineModel, _AtHand())


def measured() -> MachineModel:
    """The model of this machine with the cache sizes that its system reports, where it does."""
    folder, found = "/sys/devices/system/cpu/cpu0/cache", {}
    try:
        for index in os.listdir(folder):
            level, kind, size = [
                _line(f"{folder}/{index}/{fact}") for fact in ("level", "type", "size")
            ]
            if kind in ("Data", "Unified") and level in "123" and size.endswith("K"):
                found[f"l{level}_bytes"] = int(size[:-1]) << 10
    except OSError:
        pass
    return replace(machine_model(), **found)


def _line(path: str) -> str:
    with open(path) as file:
        return file.read().strip()
