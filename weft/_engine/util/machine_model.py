"""The machine model: facts that differ between machines and determine how code is generated.

In:   the name of this kind of machine (`util.machine`).
Out:  `MODEL`, the `MachineModel` that all passes read; `measured()`, the model with the cache sizes that the system reports.
Laws: fields depend on the kind of machine, not on the individual machine, so that equal processors get equal kernels. A threshold
      that is the same on all machines is a constant of the pass that reads it. `l3_bytes`, `vector_bytes` and
      `vector_registers` are for reports; passes read the other fields.

To tune a machine, measure a better value and add it to `_KNOWN`. A constant that differs between machines becomes a field.
"""

from __future__ import annotations

import math
import os
from typing import Any, cast

from weft._engine.util import machine
from weft._engine.util.record import record, replace, values_of


@record(eq=False)
class MatrixUnit:
    """An instruction that adds products of two tiles of narrow numbers to a tile of wide sums.

    A tile of A has `rows` rows of `row_bytes` of k, a tile of B as many bytes of k of each column,
    `k_bytes` of them side by side, and sums take `rows` rows of `row_bytes`. An instruction on vectors
    that multiplies them lane by lane has tiles of one row.
    """

    instruction: str
    feature: str  # LLVM's name of the processor's feature
    in_types: tuple[str, ...]
    # multiply-adds per cycle, relative to vectors of the type of the sums; not used unless greater than 1
    speed: int
    rows: int = 1
    row_bytes: int = 64
    k_bytes: int = 4  # bytes of k that are packed side by side for each column
    registers: int = 32  # number of tiles that operands and sums take together
    is_configured: bool = False  # True if tiles have registers of their own, whose sizes are set
    packed_type: str = ""  # type to which operands are converted; empty if to none
    adds: bool = True  # False if an instruction of its own adds the products to the sums
    mixed_signs: bool = False  # True if signed numbers are multiplied by unsigned ones

    def k_per_step(self, in_bytes: int) -> int:
        """Return the number of k side by side, of operands of `in_bytes` in memory or packed."""
        return self.k_bytes // in_bytes

    @property
    def side(self) -> int:
        """Number of tiles along each side of the largest square of sums that registers hold, with the
        tiles of A and of B that it takes."""
        return math.isqrt(self.registers + 1) - 1


#: the matrix units of all processors; the first one that a processor has and that multiplies an operand's type is used
MATRIX_UNITS = (
    MatrixUnit("tdpbf16ps", "amx-bf16", ("bf16",), 16, rows=16, registers=8, is_configured=True),
    MatrixUnit("tdpbssd", "amx-int8", ("i8",), 32, rows=16, registers=8, is_configured=True),
    MatrixUnit("tdpbuud", "amx-int8", ("u8",), 32, rows=16, registers=8, is_configured=True),
    # not faster than 1, so not used, until a test has run on Granite Rapids
    MatrixUnit("tdpfp16ps", "amx-fp16", ("f16",), 1, rows=16, registers=8, is_configured=True),
    # A vector register holds two rows of A, two columns of B, or 2 by 2 sums. Neoverse V1 issues as many
    # of these per cycle as multiply-adds of four numbers (LLVM's scheduling model; not measured).
    MatrixUnit("bfmmla", "bf16", ("bf16",), 4, rows=2, row_bytes=8, k_bytes=8),
    MatrixUnit("smmla", "i8mm", ("i8",), 8, rows=2, row_bytes=8, k_bytes=8),
    MatrixUnit("ummla", "i8mm", ("u8",), 8, rows=2, row_bytes=8, k_bytes=8),
    MatrixUnit("vdpbf16ps", "avx512bf16", ("bf16",), 2),
    MatrixUnit("vpdpbusd", "avx512vnni", ("i8", "u8"), 4, mixed_signs=True),
    MatrixUnit("vpdpwssd", "avx512vnni", ("i16",), 2),
    *[
        MatrixUnit(
            "vpmaddwd",
            feature,
            ("i8", "u8", "i16"),
            2,
            row_bytes=width,
            packed_type="i16",
            adds=False,
        )
        for feature, width in (("avx512bw", 64), ("avx2", 32), ("sse2", 16))
    ],
)


@record
class MachineModel:
    """The facts about one kind of machine."""

    name: str

    # ---- facts of the machine
    l1_bytes: int = 32 << 10  # first-level data cache of a core
    l2_bytes: int = 256 << 10  # second-level cache of a core
    l3_bytes: int = 8 << 20  # last-level cache, shared by cores
    cache_ways: int = 8  # associativity of the first-level and the second-level cache
    vector_bytes: int = 32  # width of a vector register
    vector_registers: int = 16

    # ---- memory
    cache_line: int = 64  # bytes
    buffer_alignment: int = 64  # bytes
    huge_page: int = 2 << 20  # bytes
    stream_bytes: int = 1 << 25  # results of at least this size are stored past the caches

    # ---- tasks
    parallel_work: int = 1 << 19  # minimal bytes of traffic for a second thread, about 10 µs
    task_bytes: int = 1 << 16  # bytes of traffic of one task, small enough to balance threads
    most_tasks: int = 256  # maximal number of tasks of one kernel
    serial_elements: int = 1 << 15  # maximal number of elements for a single task
    parallel_bytes: int = 1 << 17  # minimal size of an update for several tasks

    # ---- matrix products
    matrix_units: tuple[MatrixUnit, ...] = MATRIX_UNITS

    # ---- costs of matrix products, in cycles for 64 bytes
    gemm_pack_copy: int = 2  # copying an operand into its packed form
    # additional cost if source or target is outside of the core's own caches
    gemm_pack_far: int = 5

    # ---- thread pool
    pool_spin_hints: int = 3000  # pause instructions of a worker before it sleeps, about 50 µs


#: products of bfloat16 pairs are one in two cycles, of float32 two in one
_INTEL_UNITS = tuple(
    [replace(unit, speed=1) if unit.feature == "avx512bf16" else unit for unit in MATRIX_UNITS]
)

#: differences from the defaults, by name of model
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
        "matrix_units": _INTEL_UNITS,
    },
    "sapphire-rapids": {
        "l1_bytes": 48 << 10,
        "l2_bytes": 2 << 20,
        "l3_bytes": 32 << 20,
        "vector_bytes": 64,
        "vector_registers": 32,
        # a store to a line outside of the L2 cache takes twice as long if the line is read first
        "stream_bytes": 1 << 24,
        "matrix_units": _INTEL_UNITS,
    },
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


def find_model(name: str) -> MachineModel:
    """Return the model of the given name; raise ValueError for an unknown name.

    >>> find_model("zen3").l2_bytes, find_model("zen3").cache_line
    (524288, 64)
    """
    if name not in _KNOWN:
        raise ValueError(f"WEFT_MACHINE_MODEL: {name!r} is not one of {', '.join(_KNOWN)}.")
    return MachineModel(name, **_KNOWN[name])


_current: MachineModel | None = None


def machine_model() -> MachineModel:
    """Return the model of this machine."""
    global _current
    if _current is None:
        _current = find_model(machine.name())
    return _current


class _DetectedMachine:
    """The model of this machine, determined on first use."""

    def __getattr__(self, name: str) -> Any:
        model = machine_model()
        self.__dict__.update(values_of(model))
        return getattr(model, name)


#: the model that passes read
MODEL: MachineModel = cast(MachineModel, _DetectedMachine())


def measured() -> MachineModel:
    """Return the model of this machine, with cache sizes from the system if it reports them."""
    folder, sizes = "/sys/devices/system/cpu/cpu0/cache", {}
    try:
        for index in os.listdir(folder):
            level, kind, size = [
                _line(f"{folder}/{index}/{fact}") for fact in ("level", "type", "size")
            ]
            if kind in ("Data", "Unified") and level in "123" and size.endswith("K"):
                sizes[f"l{level}_bytes"] = int(size[:-1]) << 10
    except OSError:
        pass
    return replace(machine_model(), **sizes)


def _line(path: str) -> str:
    with open(path) as file:
        return file.read().strip()
