"""Objects into memory: a linker for the relocatable files that our code generator writes on x86-64 Linux.

In:   an ELF object of the large code model, and addresses for the symbols it imports.
Out:  `Loaded`: the addresses of its global symbols; the code stays in memory as long as this object does.
Laws: everything beyond what our objects hold (five kinds of relocations) raises `Unsupported`, and `target.link` lets LLVM
      do it. Code is never writable while it can run; a forked child has data of its own.

A process that finds all its objects on disk needs no more of LLVM than this file, which saves its start-up.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import struct
import sys
from collections.abc import Mapping
from typing import NamedTuple

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_PROGBITS, _SYMTAB, _RELA, _NOBITS = 1, 2, 4, 8
_ALLOC, _EXECUTE = 2, 4
_FIRST_SPECIAL = 0xFF00  # section numbers from here on are not sections
# relocations: absolute; relative to the place; offset from the table of addresses; place in that table; the table itself
_ABS64, _PC64, _GOTOFF64, _GOT64, _GOTPC64 = 1, 24, 25, 27, 29
_PAGE = mmap.PAGESIZE


class Unsupported(Exception):
    """The object holds something that this linker does not know."""


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class Loaded:
    """A linked object: `loaded[name]` is the address of a global symbol."""
    __slots__ = ("_memory", "_symbols")

    def __init__(self, memory: mmap.mmap, symbols: dict[str, int]):
        self._memory = memory
        self._symbols = symbols

    def __getitem__(self, name: str) -> int:
        return self._symbols[name]


def architecture() -> str:
    """What `platform.machine()` says, without the time that importing it takes where the system can be asked."""
    if hasattr(os, "uname"):
        return os.uname().machine
    import platform

    return platform.machine()


def works_here() -> bool:
    """Whether this machine is one that the linker is for."""
    return sys.platform == "linux" and architecture() == "x86_64" and sys.maxsize > 1 << 32


@functools.cache
def _mprotect() -> ctypes._CFuncPtr:
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


def load(data: bytes, imports: Mapping[str, int], shared: Mapping[str, int]) -> Loaded:
    """Link an object; imported symbols are looked up in `imports`, then in `shared`."""
    if data[:6] != b"\x7fELF\x02\x01" or data[16:20] != b"\x01\x00\x3e\x00":
        raise Unsupported("not a relocatable x86-64 object")
    start, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    sections = [_Section(*_SECTION.unpack_from(data, start + 64 * i)) for i in range(count)]
    table = next((s for s in sections if s.kind == _SYMTAB), None)
    if table is None:
        raise Unsupported("no symbols")
    symbols = list(_SYMBOL.iter_unpack(data[table.offset:table.offset + table.size]))
    names = _Names(data, sections[table.link])
    places, code_size, size = _layout(sections)
    relocations = _relocations(data, sections, places)
    indirect = {symbol: 8 * i for i, symbol in enumerate(dict.fromkeys(s for _, kind, s, _ in relocations if kind == _GOT64))}
    at_table = -(-size // 8) * 8
    memory = mmap.mmap(-1, max(at_table + 8 * len(indirect), 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for i, place in places.items():
        if sections[i].kind == _PROGBITS:
            memory[place:place + sections[i].size] = data[sections[i].offset:sections[i].offset + sections[i].size]

    @functools.cache
    def address(number: int) -> int:
        name, _, _, section, value, _ = symbols[number]
        if section == 0:
            found = imports.get(names[name]) or shared.get(names[name])
            if not found:
                raise RuntimeError(f"codegen: nothing is called {names[name]!r}, which compiled code refers to")
            return found
        if section not in places:
            raise Unsupported(f"symbol {names[name]!r} in section {section}")
        return base + places[section] + value

    got = base + at_table
    for symbol, slot in indirect.items():
        struct.pack_into("<Q", memory, at_table + slot, address(symbol))
    for place, kind, symbol, addend in relocations:
        if kind == _GOT64:
            value = indirect[symbol] + addend
        elif kind == _GOTPC64:
            value = got + addend - (base + place)
        else:
            value = address(symbol) + addend - {_ABS64: 0, _PC64: base + place, _GOTOFF64: got}[kind]
        struct.pack_into("<Q", memory, place, value & 0xFFFFFFFFFFFFFFFF)
    if code_size and _mprotect()(base, code_size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise Unsupported("memory cannot be made executable")
    return Loaded(memory, {names[s[0]]: address(i) for i, s in enumerate(symbols) if s[1] >> 4 and 0 < s[3] < _FIRST_SPECIAL})


class _Names(dict):
    """The string table: name of the symbol whose name begins at a byte."""

    def __init__(self, data: bytes, section: _Section):
        super().__init__()
        self.data, self.start = data, section.offset

    def __missing__(self, offset: int) -> str:
        begin = self.start + offset
        name = self[offset] = self.data[begin:self.data.index(b"\0", begin)].decode()
        return name


def _layout(sections: list[_Section]) -> tuple[dict[int, int], int, int]:
    """The place of each section in memory: code, then from a new page on data; the bytes of code pages and of all."""
    places: dict[int, int] = {}
    at = code_size = 0
    for wanted in (_EXECUTE, 0):
        for i, s in enumerate(sections):
            if s.kind in (_PROGBITS, _NOBITS) and s.flags & _ALLOC and s.flags & _EXECUTE == wanted and s.size:
                places[i] = at = -(-at // max(s.align, 1)) * max(s.align, 1)
                at += s.size
        if wanted:
            at = code_size = -(-at // _PAGE) * _PAGE
    for i, s in enumerate(sections):  # empty sections may still be named
        if i not in places and s.kind == _PROGBITS and s.flags & _ALLOC and not s.size:
            places[i] = at
    return places, code_size, at


def _relocations(data: bytes, sections: list[_Section], places: dict[int, int]) -> list[tuple[int, int, int, int]]:
    """(place in memory, kind, symbol, addend) of every relocation of a section that is in memory."""
    found = []
    for s in sections:
        if s.kind == _RELA and s.info in places:
            start = places[s.info]
            for offset, info, addend in _RELOCATION.iter_unpack(data[s.offset:s.offset + s.size]):
                kind = info & 0xFFFFFFFF
                if kind not in (_ABS64, _PC64, _GOTOFF64, _GOT64, _GOTPC64):
                    raise Unsupported(f"relocation {kind}")
                found.append((start + offset, kind, info >> 32, addend))
    return found
