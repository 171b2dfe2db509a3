"""The scalar types of Loops and matmuls in LLVM, vector types, and suffixes of intrinsics.

Laws: half precision is computed in f32 registers; bfloat16 is loaded and stored as its bits, bool
      as a byte. Complex numbers are pairs of real numbers and not in the table; `ir.loops.ITEMSIZE`
      has the sizes of all types.
"""

from __future__ import annotations

from typing import NamedTuple


class LLVMScalar(NamedTuple):
    """Bits of information in a type, and its LLVM types in registers and in memory."""

    bits: int
    register: str
    memory: str


SCALARS = {
    "bool": LLVMScalar(1, "i1", "i8"),
    "i8": LLVMScalar(8, "i8", "i8"),
    "u8": LLVMScalar(8, "i8", "i8"),
    "i16": LLVMScalar(16, "i16", "i16"),
    "u16": LLVMScalar(16, "i16", "i16"),
    "i32": LLVMScalar(32, "i32", "i32"),
    "u32": LLVMScalar(32, "i32", "i32"),
    "i64": LLVMScalar(64, "i64", "i64"),
    "u64": LLVMScalar(64, "i64", "i64"),
    "f16": LLVMScalar(16, "float", "half"),
    "bf16": LLVMScalar(16, "float", "i16"),
    "f32": LLVMScalar(32, "float", "float"),
    "f64": LLVMScalar(64, "double", "double"),
}
BITS = {name: scalar.bits for name, scalar in SCALARS.items()}
REGISTER = {name: scalar.register for name, scalar in SCALARS.items()}
MEMORY = {name: scalar.memory for name, scalar in SCALARS.items()}

_SPELLINGS = {"float": "f32", "double": "f64", "half": "f16"}
_mangled: dict[str, str] = {}


def mangle(type_: str) -> str:
    """Return the suffix of a type in an overloaded intrinsic name.

    >>> mangle("<16 x float>"), mangle("i32")
    ('v16f32', 'i32')
    """
    text = _mangled.get(type_)
    if text is None:
        if type_.startswith("<"):
            count, element = type_[1:-1].split(" x ")
            text = f"v{count}{_SPELLINGS.get(element, element)}"
        else:
            text = _SPELLINGS.get(type_, type_)
        _mangled[type_] = text
    return text


_vectors: dict[tuple[str, int], str] = {}


def vector(element: str, lanes: int) -> str:
    """Return the LLVM type of `lanes` elements; one lane is the scalar type itself."""
    if lanes == 1:
        return element
    text = _vectors.get((element, lanes))
    if text is None:
        text = _vectors[element, lanes] = f"<{lanes} x {element}>"
    return text
