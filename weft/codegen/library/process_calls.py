"""Native code for collectives between processes: their entry points, the exchange through shared memory, and reductions.

In:   nothing; for a reduction its name and dtype.
Out:  `symbols()`, the functions of `windows.ll`; `mpi_symbols()`, those of `mpi.ll`; `combine(op, dtype)`, void (ptr out,
      ptr addresses, i64 n, i64 count): element by element the reduction of `n` arrays, in their order; and the same in the form
      of MPI's reductions.
Laws: as `processes.plans.reduce`: integers wrap around, maxima and minima are NaN where an operand is, small floats are added in 32 bits
      and rounded once.
"""

from __future__ import annotations

import functools
import string

from weft.codegen.runtime import pool
from weft.codegen.toolchain.native_library import LibraryModule, link, text_of
from weft.util.machine_model import MODEL

_EXPORTS = ("weft_collective_start", "weft_collective_wait", "weft_window_start", "weft_window_wait")
_LIBC = ("malloc", "free", "memcpy", "memset", "sched_yield", "usleep", "clock_gettime")


def _filled(name: str, **words: str) -> str:
    """The text of a file of LLVM IR for this architecture."""
    machine = pool.of_architecture(pool.architecture())
    return string.Template(text_of(name)).safe_substitute(machine, spins=MODEL.exchange_spin_hints, **words)


@functools.cache
def symbols() -> dict[str, int]:
    """Name -> address of the functions of `windows.ll`; compiled on the first call."""
    return link([LibraryModule("windows", lambda: _filled("windows.ll"), _EXPORTS)], libc=_LIBC)


@functools.cache
def mpi_symbols(handle: str) -> dict[str, int]:
    """Name -> address of the functions of `mpi.ll`, for an MPI whose handles have the type `handle`: i32 or ptr."""
    module = LibraryModule(f"mpi {handle}", lambda: _filled("mpi.ll", handle=handle), ("weft_mpi_start", "weft_mpi_wait"))
    return link([module], libc=_LIBC)


#: dtype -> type in memory, type in registers; of complex numbers the parts
_TYPES = {
    "bool": ("i8", "i8"), "int8": ("i8", "i8"), "int16": ("i16", "i16"), "int32": ("i32", "i32"), "int64": ("i64", "i64"),
    "uint8": ("i8", "i8"), "uint16": ("i16", "i16"), "uint32": ("i32", "i32"), "uint64": ("i64", "i64"),
    "float16": ("half", "float"), "bfloat16": ("i16", "float"), "float32": ("float", "float"), "float64": ("double", "double"),
    "complex64": ("float", "float"), "complex128": ("double", "double"),
}
_BYTES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "half": 2, "float": 4, "double": 8}


def can_combine(op: str, dtype: str) -> bool:
    """Whether there is native code for a reduction."""
    if dtype not in _TYPES:
        return False
    is_float = _TYPES[dtype][1] in ("float", "double")
    return not (is_float and op in ("and", "or", "xor")) and not (dtype.startswith("complex") and op != "sum")


@functools.cache
def combine(op: str, dtype: str) -> dict[str, int]:
    """The addresses of a reduction: `plain`, `stream` for large results, and `mpi`, as MPI calls it; compiled on the first call."""
    name = f"weft_combine_{op}_{dtype}"
    names = {"plain": name, "stream": f"{name}_stream", "mpi": f"{name}_mpi"}
    found = link([LibraryModule(name, lambda: _combine_text(name, op, dtype), tuple(names.values()))])
    return {kind: found[symbol] for kind, symbol in names.items()}


def _combine_text(name: str, op: str, dtype: str) -> str:
    width = 256 // _BYTES[_TYPES[dtype][1]]
    align = _BYTES[_TYPES[dtype][0]]
    blocks = "\n".join([_block(op, dtype, width, "wide", str(align)), _block(op, dtype, 1, "single", str(align)),
                        _block(op, dtype, width, "stream", "64, !nontemporal !0")])
    parts = 2 if dtype.startswith("complex") else 1
    return string.Template(text_of("combine.ll")).substitute(name=name, blocks=blocks, parts=parts, width=width)


def _block(op: str, dtype: str, width: int, kind: str, store: str) -> str:
    memory, register = _TYPES[dtype]
    return string.Template(text_of("combine_block.ll")).substitute(
        kind=kind, store=store, width=width, memory=memory, register=register, align=_BYTES[memory],
        widen_first=_widen(dtype, "%m0", "%first", width), widen=_widen(dtype, "%m", "%b", width),
        operation=_operation(op, dtype, f"<{width} x {register}>", width), narrow=_narrow(dtype, width))


def _splat(width: int, type_: str, value: str) -> str:
    return f"<{', '.join([f'{type_} {value}'] * width)}>"


def _widen(dtype: str, x: str, y: str, w: int) -> str:
    if dtype == "float16":
        return f"  {y} = fpext <{w} x half> {x} to <{w} x float>"
    if dtype == "bfloat16":
        return f"""  {y}.z = zext <{w} x i16> {x} to <{w} x i32>
  {y}.s = shl <{w} x i32> {y}.z, {_splat(w, "i32", "16")}
  {y} = bitcast <{w} x i32> {y}.s to <{w} x float>"""
    memory, register = _TYPES[dtype]
    return f"  {y} = bitcast <{w} x {memory}> {x} to <{w} x {register}>"


def _narrow(dtype: str, w: int) -> str:
    if dtype == "float16":
        return f"  %r = fptrunc <{w} x float> %a to <{w} x half>"
    if dtype == "bfloat16":                     # to the nearest, ties to even; a NaN stays one
        i32 = f"<{w} x i32>"
        return f"""  %bits = bitcast <{w} x float> %a to {i32}
  %high = lshr {i32} %bits, {_splat(w, "i32", "16")}
  %odd = and {i32} %high, {_splat(w, "i32", "1")}
  %bias = add {i32} %odd, {_splat(w, "i32", "32767")}
  %sum = add {i32} %bits, %bias
  %near = lshr {i32} %sum, {_splat(w, "i32", "16")}
  %quiet = or {i32} %high, {_splat(w, "i32", "64")}
  %nan = fcmp uno <{w} x float> %a, %a
  %chosen = select <{w} x i1> %nan, {i32} %quiet, {i32} %near
  %r = trunc {i32} %chosen to <{w} x i16>"""
    memory, register = _TYPES[dtype]
    return f"  %r = bitcast <{w} x {register}> %a to <{w} x {memory}>"


def _operation(op: str, dtype: str, reg: str, w: int) -> str:
    is_float = _TYPES[dtype][1] in ("float", "double")
    if dtype == "bool":
        op = {"sum": "or", "max": "or", "prod": "and", "min": "and"}.get(op, op)
    if op in ("max", "min"):
        if is_float:                            # the first operand where it is greater, or NaN
            return f"""  %g = fcmp {'ogt' if op == 'max' else 'olt'} {reg} %a, %b
  %u = fcmp uno {reg} %a, %a
  %gu = or <{w} x i1> %g, %u
  %c = select <{w} x i1> %gu, {reg} %a, {reg} %b"""
        sign = "u" if dtype.startswith("uint") else "s"
        return f"  %g = icmp {sign}{'gt' if op == 'max' else 'lt'} {reg} %a, %b\n  %c = select <{w} x i1> %g, {reg} %a, {reg} %b"
    word = {"sum": "fadd" if is_float else "add", "prod": "fmul" if is_float else "mul"}.get(op, op)
    return f"  %c = {word} {reg} %a, %b"
