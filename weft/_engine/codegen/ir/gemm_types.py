"""Number types and machine properties that decide how a matmul is generated.

In:   the type names of a `Gemm` step and the features of the target.
Out:  a `GemmTypes`: the packing of operands, the accumulator type and the shape of the register tile.
Words: a *lane* is one accumulator of a vector. A *step* is the range of k that one packed element
       of A covers: one k, or several packed side by side for a matrix unit. A *k step*
       is one multiply-add of the kernel; complex numbers take two k steps per step. With *quads*, a
       step is four k side by side in the vector: four lanes of the register add up to one sum, so
       that a narrow C still fills vectors.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from weft._engine.codegen.ir.scalar_types import MEMORY
from weft._engine.codegen.toolchain import loader, target
from weft._engine.ir import loops
from weft._engine.util.machine_model import MATRIX_UNITS, MODEL, MatrixUnit
from weft._engine.util.record import record

INTEGERS = (*sorted(loops.INTEGERS), "bool")
FLOATS = ("bf16", "f16", "f32", "f64")
TYPES = (*INTEGERS, *FLOATS, *loops.REAL_OF)


def nbytes(type: str) -> int:
    """Return the size of one element in memory.

    >>> nbytes("bf16"), nbytes("c64"), nbytes("bool")
    (2, 8, 1)
    """
    return loops.ITEMSIZE[type]


def real_of(type: str) -> str:
    """Return the type of a real or imaginary part; a real type is its own real type."""
    return loops.REAL_OF.get(type, type)


def llvm_type(type: str) -> str:
    """Return the LLVM type of an element as loaded from memory."""
    return MEMORY[type]


@record
class VectorUnit:
    """The vector unit: the size and number of its registers, and the instructions that it has."""

    vector_bytes: int
    registers: int
    masks: bool = False
    f16: bool = False
    matrix_units: tuple[MatrixUnit, ...] = ()

    @staticmethod
    def of(
        features: Iterable[str], arch: str, matrix_units: tuple[MatrixUnit, ...] = MATRIX_UNITS
    ) -> VectorUnit:
        """Return the machine with `features`, LLVM feature names without a sign, and the
        `matrix_units` of these features.

        >>> VectorUnit.of(["avx512f", "avx512bw", "avx512dq", "avx512vl", "f16c", "fma"], "x86_64").vector_bytes
        64
        >>> [unit.instruction for unit in VectorUnit.of(["sse2"], "x86_64").matrix_units]
        ['vpmaddwd']
        """
        have = set(features)
        units = tuple([unit for unit in matrix_units if unit.feature in have and unit.speed > 1])
        if arch == "aarch64":
            return VectorUnit(16, 32, False, True, units)
        if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= have:
            return VectorUnit(64, 32, True, True, units)
        if {"avx2", "fma"} <= have:
            return VectorUnit(32, 16, False, "f16c" in have, units)
        return VectorUnit(16, 16, False, False, units)

    @property
    def tile_speeds(self) -> dict[str, int]:
        """Types of operands that a matrix unit multiplies in tiles of several rows, and its speed."""
        tiled = [unit for unit in self.matrix_units if unit.rows > 1]
        return {type: unit.speed for unit in tiled for type in unit.in_types}


def machine() -> VectorUnit:
    """Return the vector unit of the compilation target."""
    return _machine(target.current().features)


@functools.cache
def _machine(features: str) -> VectorUnit:
    have = [name[1:] for name in features.split(",") if name.startswith("+")]
    return VectorUnit.of(have, loader.architecture(), MODEL.matrix_units)


@functools.cache
def _find_unit(machine: VectorUnit, in_type: str, sum_type: str, tiles: bool) -> MatrixUnit | None:
    """Return the first matrix unit for operands and sums, with tiles of several rows or without."""
    fits = sum_type == ("f32" if in_type in FLOATS else "i32")
    units = [
        unit
        for unit in machine.matrix_units
        if fits and in_type in unit.in_types and (unit.rows > 1) == tiles
    ]
    return units[0] if units else None


@record
class GemmTypes:
    """The types of a matmul and the way one machine multiplies them."""

    in_type: str
    acc_type: str
    out_type: str
    machine: VectorUnit
    quads: bool = False
    tiles: bool = False  # a matrix unit with tiles of several rows multiplies

    def __post_init__(self) -> None:
        kinds = [_kind(t) for t in (self.in_type, self.acc_type, self.out_type)]
        fits = kinds[0] == kinds[1] or (kinds[0], kinds[1]) == ("int", "float")
        fits = fits and (kinds[2] == kinds[1] or (kinds[1], kinds[2]) == ("int", "float"))
        if not fits:
            raise NotImplementedError(
                f"matmul from {self.in_type} accumulated in {self.acc_type} to {self.out_type}: the accumulator and "
                "the result must be of the input's kind, or floats if the input is an integer; cast one of them"
            )
        if "c64" in (self.in_type, self.acc_type) and self.in_type != self.acc_type:
            raise NotImplementedError(
                f"matmul from {self.in_type} accumulated in {self.acc_type}: complex operands accumulate in their own "
                "type; cast the operands"
            )

    @property
    def name(self) -> str:
        return (
            f"{self.in_type}_{self.acc_type}_{self.out_type}"
            + "_quads" * self.quads
            + "_tiles" * self.tiles
        )

    @property
    def is_complex(self) -> bool:
        return self.acc_type in loops.REAL_OF

    @property
    def acc(self) -> str:
        """Real type of the accumulators: f32 for half precision, i32 for bool and narrow integers,
        which wrap alike."""
        if self.acc_type in INTEGERS and nbytes(self.acc_type) < 4:
            return "i32"
        return "f32" if self.acc_type in ("bf16", "f16") else real_of(self.acc_type)

    @property
    def packed_type(self) -> str:
        """Type of one step of packed A, if the step is a single number."""
        return self.acc_type if self.is_complex else self.acc

    @property
    def acc_bytes(self) -> int:
        return nbytes(self.acc)

    @property
    def is_float(self) -> bool:
        return self.acc in FLOATS

    @property
    def unit(self) -> MatrixUnit | None:
        """The matrix unit that multiplies joined elements; None if each has its own lane."""
        return None if self.quads else _find_unit(self.machine, self.in_type, self.acc, self.tiles)

    @property
    def has_tile_registers(self) -> bool:
        """True if tiles are in registers of their own, which a task configures."""
        unit = self.unit
        return unit is not None and unit.is_configured

    @property
    def multiplies_pairs(self) -> bool:
        """True if an instruction multiplies two rows of A by two columns of B, in vector registers."""
        return self.tiles and not self.has_tile_registers

    @property
    def k_per_step(self) -> int:
        """Number of consecutive k in a step: 4 with quads, else the products that one instruction
        adds in a lane."""
        unit = self.unit
        return 4 if self.quads else unit.k_per_step(nbytes(self.joined_type)) if unit else 1

    @property
    def joined_type(self) -> str:
        """Type of the elements that a step joins side by side; empty if each has its own lane."""
        unit = self.unit
        return (unit.packed_type or self.in_type) if unit else ""

    @property
    def flips_signs(self) -> bool:
        """True if the instruction multiplies signed by unsigned numbers, so that A is packed with
        flipped sign bits.

        The flip adds 128 (or -128) times the column sums of B to every row of C; the last row of a
        panel of B holds the correction.
        """
        unit = self.unit
        return unit is not None and unit.mixed_signs

    @property
    def tile_steps(self) -> int:
        """Number of steps that one instruction on tiles takes; packed blocks are padded to whole
        tiles."""
        unit = self.unit
        return unit.row_bytes // unit.k_bytes if unit and self.tiles else 1

    @property
    def k_steps_per_step(self) -> int:
        return 2 if self.is_complex else 1

    @property
    def real_parts(self) -> int:
        """Number of real columns per column of C."""
        return 2 if self.is_complex else 1

    @property
    def lanes(self) -> int:
        """Number of sums in a vector."""
        return self.machine.vector_bytes // self.acc_bytes // (4 if self.quads else 1)

    @property
    def half_lanes(self) -> int:
        """Lanes of half a vector; 0 if halves gain nothing. The widest vectors often take as long
        as two halves."""
        return (
            self.lanes // 2
            if self.machine.vector_bytes == 64 and not self.joined_type and not self.quads
            else 0
        )

    @property
    def in_bytes(self) -> int:
        return nbytes(self.in_type)

    @property
    def out_bytes(self) -> int:
        return nbytes(self.out_type)

    @property
    def step_bytes(self) -> int:
        """Bytes of packed A per row and step."""
        if unit := self.unit:
            return unit.k_bytes
        return self.acc_bytes * self.real_parts * (4 if self.quads else 1)

    @property
    def can_read_a_in_place(self) -> bool:
        """True if the kernel may read A in place: its bits equal the packed form. Tiles of several
        steps are packed, since the last steps would be read beyond A."""
        return (
            self.joined_type == self.in_type and not self.flips_signs and self.tile_steps == 1
        ) or self.in_type == self.acc_type == self.packed_type

    @property
    def can_read_b_in_place(self) -> bool:
        return (
            self.in_type == self.acc_type == self.packed_type
            and not self.is_complex
            and not self.quads
        )

    @property
    def multiplies_by_element(self) -> bool:
        """True if an instruction can multiply by one element of a register (NEON), so that A need
        not be broadcast."""
        return (self.machine.vector_bytes, self.machine.registers) == (16, 32)

    @property
    def vectors_along_b_row(self) -> int:
        """Vectors read along each row of an unpacked B: one per k of a joined step, or as many as
        registers allow."""
        return (
            self.k_per_step
            if self.joined_type
            else 2
            if self.machine.registers == 32 and not self.multiplies_by_element
            else 1
        )

    @property
    def cols_along_b_row(self) -> int:
        return self.vectors_along_b_row * self.lanes

    @property
    def rows(self) -> int:
        """Number of rows of the register tile."""
        if self.has_tile_registers and (unit := self.unit):
            return unit.side * unit.rows
        return 8 if self.multiplies_by_element else 6

    @property
    def vectors(self) -> int:
        """Number of vectors per row of the register tile."""
        if self.has_tile_registers and (unit := self.unit):
            return unit.side
        return 3 if self.multiplies_by_element else 4 if self.machine.registers == 32 else 2

    @property
    def panel_lanes(self) -> int:
        return self.vectors * self.lanes

    @property
    def panel_cols(self) -> int:
        """Number of columns of C that one panel of B covers."""
        return self.panel_lanes // self.real_parts

    @property
    def sums_row_bytes(self) -> int:
        """Bytes of a row of sums in scratch memory, for all columns of a panel."""
        return self.vectors * self.machine.vector_bytes

    @property
    def column_bytes(self) -> int:
        """Bytes of a column of B in one packed k step, without quads."""
        unit = self.unit
        return unit.k_bytes if unit else self.acc_bytes * self.real_parts

    @property
    def panel_row_bytes(self) -> int:
        """Bytes of one k step of a packed panel of B."""
        unit = self.unit
        return self.sums_row_bytes * (unit.k_bytes // self.acc_bytes if unit else 1)


def _kind(type: str) -> str:
    return "int" if type in INTEGERS else "complex" if type in loops.REAL_OF else "float"
