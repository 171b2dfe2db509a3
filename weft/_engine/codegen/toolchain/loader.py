"""A linker for the relocatable objects that our code generator emits on x86-64 Linux.

In:   ELF objects of the large code model, and addresses for the symbols they import.
Out:  `link(objects)`, an `Image`: all objects laid out from address 0, with a list of the words
      that depend on the final address. An image is plain data and can be stored on disk.
      `place(image, address)` loads it as `LinkedObject`: the addresses of its global symbols, valid as
      long as this object lives. `load` does both.
Laws: an imported name refers to the last earlier object that exports it, else to the process. An
      object with anything but five kinds of relocations raises `UnsupportedObjectError`, and `target.link`
      uses LLVM's linker. Code is never writable while it can run; a forked child has its own data.
      Images without writable data share a few mappings (`_Pages`), and their pages are reused once
      the `LinkedObject` is gone.

A process that finds all its objects on disk needs only this file, and does not load LLVM.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from weft._engine.util.errors import refuse
from weft._engine.util.machine import architecture

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_PROGBITS, _SYMTAB, _RELA, _NOBITS = 1, 2, 4, 8
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
# Relocations: absolute address; relative to the place; offset from the address table; slot in the
# address table; the table itself.
_ABS64, _PC64, _GOTOFF64, _GOT64, _GOTPC64 = 1, 24, 25, 27, 29
_PAGE, _LINE = mmap.PAGESIZE, 64


class UnsupportedObjectError(Exception):
    """The object contains something that this linker does not support."""


class _ObjectSection(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class LinkedObject:
    """A linked object: `loaded[name]` is the address of a global symbol."""

    __slots__ = ("_memory", "_symbols")

    def __init__(self, memory: mmap.mmap | _Pages, symbols: dict[str, int]):
        self._memory = memory
        self._symbols = symbols

    def __getitem__(self, name: str) -> int:
        return self._symbols[name]


def supports_machine() -> bool:
    """Return whether the linker supports this machine."""
    return sys.platform == "linux" and architecture() == "x86_64" and sys.maxsize > 1 << 32


@functools.cache
def process() -> ctypes.CDLL:
    """Return the symbols that the process has loaded, including the C library."""
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def _system(name: str) -> Callable[..., int]:
    """Return a system call for memory management."""
    function = getattr(process(), name)
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long][
        : 6 if name == "mmap" else 3
    ]
    function.restype = ctypes.c_void_p if name == "mmap" else ctypes.c_int
    return function


def _protect(address: int, size: int, rights: int) -> None:
    if _system("mprotect")(address, size, rights):
        raise UnsupportedObjectError("memory cannot be made executable")


# ---- memory that many images share

_ARENA = 16 << 20
_MADV_DONTNEED = 4
# size in bytes -> addresses of freed pages (Python integers would take memory)
_unused: dict[int, array[int]] = {}
_fresh: list[tuple[int, int]] = []  # (begin, end) of unused pages
# No lock: `pop` of a list is atomic among threads, finalizers and signal handlers.


class _Pages:
    """Pages with code and constants in a shared arena; the system joins neighbors with equal rights
    into one mapping."""

    __slots__ = ("address", "size")

    def __init__(self, contents: Callable[[int], bytes], size: int):
        self.size, size = 0, -(-size // _PAGE) * _PAGE
        self.address = _unused_pages(size) or _new_pages(size)
        self.size, code = size, contents(self.address)
        _protect(self.address, self.size, mmap.PROT_READ | mmap.PROT_WRITE)
        ctypes.memmove(self.address, code, len(code))
        _protect(self.address, self.size, mmap.PROT_READ | mmap.PROT_EXEC)

    def __del__(self, over: Callable[[], bool] = sys.is_finalizing) -> None:
        if self.size and not over():  # at exit threads may still run the code
            _system("madvise")(self.address, self.size, _MADV_DONTNEED)
            _unused.setdefault(self.size, array("Q")).append(self.address)


def _new_pages(size: int) -> int:
    """Return the address of new pages, which are not accessible yet."""
    try:
        begin, end = _fresh.pop()
    except IndexError:
        begin = end = 0
    if end - begin < size:
        more = max(size, _ARENA)
        mapping = _system("mmap")(None, more, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if mapping in (None, ctypes.c_void_p(-1).value):
            raise refuse(more, "compiled code")
        begin, end = mapping, mapping + more
    if end - begin > size:
        _fresh.append((begin + size, end))
    return begin


def _unused_pages(size: int) -> int:
    """Return the address of freed pages of this size; 0 if there are none."""
    try:
        return _unused[size].pop()
    except LookupError:
        return 0


class Image(NamedTuple):
    """Linked objects that are not loaded yet.

    The image has `size` bytes: `memory`, then zeros. The first `code_size` bytes are read-only and
    begin with the code; `code_size` equals `size` if no object has variables.

    The u64 at `places[i]` is relative to target `targets[i]`, whose address is added on loading: 0
    is the image itself, n > 0 is `imports[n - 1]` (both arrays are the bytes of u32). `exports`
    maps global symbols to their offsets in the image.
    """

    memory: bytes
    code_size: int
    size: int
    places: bytes
    targets: bytes
    imports: tuple[str, ...]
    exports: dict[str, int]


def load(data: bytes, imports: Mapping[str, int], shared: Mapping[str, int]) -> LinkedObject:
    """Link an object; imported symbols are looked up in `imports`, then in `shared`."""
    return place(link([data]), lambda name: imports.get(name) or shared.get(name))


def place(image: Image, address: Callable[[str], int | None]) -> LinkedObject:
    """Load an image into memory; `address` maps imported symbols to addresses."""
    addresses = [0]
    for symbol in image.imports:
        start = address(symbol)
        if not start:
            raise RuntimeError(
                f"codegen: compiled code refers to {symbol!r}, a symbol that this process does not define"
            )
        addresses.append(start)

    def at(base: int) -> bytes:
        """Return the contents for an image at address `base`."""
        contents = np.zeros(image.size, np.uint8)
        contents[: len(image.memory)] = np.frombuffer(image.memory, np.uint8)
        if image.places:
            # an overlapping word at every byte
            words = np.ndarray((image.size - 7,), "<u8", contents, strides=(1,))
            addresses[0] = base
            words[np.frombuffer(image.places, np.uint32)] += np.array(addresses, np.uint64)[
                np.frombuffer(image.targets, np.uint32)
            ]
        return contents.tobytes()

    if image.code_size == image.size:
        memory = _Pages(at, image.size)
        base = memory.address
    else:
        try:
            memory = mmap.mmap(-1, image.size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise refuse(image.size, "compiled code") from error
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        memory[:] = at(base)
        if image.code_size:
            _protect(base, image.code_size, mmap.PROT_READ | mmap.PROT_EXEC)
    return LinkedObject(memory, {name: base + at for name, at in image.exports.items()})


def link(objects: Sequence[bytes]) -> Image:
    """Lay objects out one after another, and resolve their references to each other."""
    parsed = [_Object(data) for data in objects]
    code_size, size = _layout(parsed)
    exports: dict[str, int] = {}
    linked = _Linked(-(-size // 8) * 8)
    for one in parsed:
        one.copy_to(linked.memory)
        linked.relocate(one, [_target(one, symbol, exports) for symbol in one.symbols])
        exports |= {
            one.names[s[0]]: one.places[s[3]] + s[4]
            for s in one.symbols
            if s[1] >> 4 and s[3] in one.places
        }
    return linked.image(code_size, exports)


#: the target of a symbol: the name of an import, or empty for the image; and an offset in bytes
_Target = tuple[str, int]


def _target(one: _Object, symbol: tuple, exports: dict[str, int]) -> _Target | None:
    """Return the target of a symbol; None if it is in a section that is not in memory."""
    name, _, _, section, value, _ = symbol
    if section:
        return ("", one.places[section] + value) if section in one.places else None
    title = one.names[name]
    return ("", exports[title]) if title in exports else (title, 0)


class _Object:
    """A parsed object file; `places` maps section numbers to addresses once they are laid out."""

    def __init__(self, data: bytes):
        if data[:6] != b"\x7fELF\x02\x01" or data[16:20] != b"\x01\x00\x3e\x00":
            raise UnsupportedObjectError("not a relocatable x86-64 object")
        start, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
        self.data = data
        self.sections = [
            _ObjectSection(*_SECTION.unpack_from(data, start + 64 * i)) for i in range(count)
        ]
        table = next((s for s in self.sections if s.type == _SYMTAB), None)
        if table is None:
            raise UnsupportedObjectError("no symbols")
        self.symbols = list(_SYMBOL.iter_unpack(data[table.offset : table.offset + table.size]))
        self.names = _SymbolNames(data, self.sections[table.link])
        # of the sections
        self.titles = _SymbolNames(data, self.sections[struct.unpack_from("<H", data, 62)[0]])
        self.places: dict[int, int] = {}

    def is_variable(self, s: _ObjectSection) -> bool:
        """Return whether a section is writable at run time; constants with addresses are writable
        only for the linker."""
        return bool(s.flags & _ALLOC and s.flags & _WRITE and s.size) and not self.titles[
            s.name
        ].startswith(".data.rel.ro")

    def allocated_sections(self, is_code: bool) -> Iterator[tuple[int, _ObjectSection]]:
        """Yield the numbers and headers of nonempty code sections, or of data sections."""
        for i, s in enumerate(self.sections):
            in_memory = s.type in (_PROGBITS, _NOBITS) and s.flags & _ALLOC and s.size
            if in_memory and bool(s.flags & _EXECUTE) == is_code:
                yield i, s

    def empty_sections(self) -> list[int]:
        """Return the numbers of empty sections."""
        return [
            i
            for i, s in enumerate(self.sections)
            if s.type == _PROGBITS and s.flags & _ALLOC and not s.size
        ]

    def copy_to(self, memory: bytearray) -> None:
        """Copy the contents of the sections into memory."""
        for i, at in self.places.items():
            s = self.sections[i]
            if s.type == _PROGBITS:
                memory[at : at + s.size] = self.data[s.offset : s.offset + s.size]

    def relocations(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (place in memory, kind, symbol, addend) of every relocation of loaded sections."""
        for s in self.sections:
            if s.type == _RELA and s.info in self.places:
                start = self.places[s.info]
                for offset, info, addend in _RELOCATION.iter_unpack(
                    self.data[s.offset : s.offset + s.size]
                ):
                    yield start + offset, info & 0xFFFFFFFF, info >> 32, addend


class _Linked:
    """Memory followed by an address table, and the words that depend on final addresses."""

    def __init__(self, table: int):
        self.memory = bytearray(table)
        self.table = table
        self.slots: dict[_Target, int] = {}  # target -> offset in the table
        self.open: list[tuple[int, str]] = []  # (place, name of the target)

    def relocate(self, one: _Object, targets: Sequence[_Target | None]) -> None:
        """Apply an object's relocations."""
        for place, kind, number, addend in one.relocations():
            target = targets[number]
            if target is None:
                raise UnsupportedObjectError(
                    f"symbol {one.names[one.symbols[number][0]]!r} in section {one.symbols[number][3]}"
                )
            which, at = target
            if kind == _GOT64:
                value = self.slots.setdefault(target, 8 * len(self.slots))
            elif kind == _GOTPC64:
                value = self.table - place
            elif kind == _ABS64:
                value = at
                self.open.append((place, which))
            elif kind in (_PC64, _GOTOFF64) and not which:
                value = at - (place if kind == _PC64 else self.table)
            else:
                raise UnsupportedObjectError(f"relocation {kind}")
            struct.pack_into("<Q", self.memory, place, (value + addend) & 0xFFFFFFFFFFFFFFFF)

    def image(self, code_size: int | None, exports: dict[str, int]) -> Image:
        """Return the memory and the address table as an image."""
        table = struct.pack(f"<{len(self.slots)}Q", *[at for _, at in self.slots])
        self.open += [(self.table + slot, which) for (which, _), slot in self.slots.items()]
        numbers = {"": 0}
        words = np.array(
            [(place, numbers.setdefault(which, len(numbers))) for place, which in self.open],
            np.uint32,
        ).reshape(-1, 2)
        memory = bytes(self.memory) + table
        size = max(len(memory), 8)
        return Image(
            memory.rstrip(b"\0"),
            size if code_size is None else code_size,
            size,
            words[:, 0].tobytes(),
            words[:, 1].tobytes(),
            tuple(numbers)[1:],
            exports,
        )


class _SymbolNames(dict):
    """The string table: maps the offset of a name to the name."""

    def __init__(self, data: bytes, section: _ObjectSection):
        super().__init__()
        self.data, self.start = data, section.offset

    def __missing__(self, offset: int) -> str:
        begin = self.start + offset
        name = self[offset] = self.data[begin : self.data.index(b"\0", begin)].decode()
        return name


def _layout(objects: Sequence[_Object]) -> tuple[int | None, int]:
    """Place each section in memory: code first, then data, on a new page if some data are writable.

    Return the size of the read-only pages, None if no data are writable, and the total size.
    """
    at, code_size = 0, None
    has_variables = any(one.is_variable(s) for one in objects for s in one.sections)
    unit = _PAGE if has_variables else _LINE
    for is_code in (True, False):
        for one in objects:
            for i, s in one.allocated_sections(is_code):
                one.places[i] = at = -(-at // max(s.align, 1)) * max(s.align, 1)
                at += s.size
        if is_code:
            at = -(-at // unit) * unit
            code_size = at if has_variables else None
    for one in objects:
        for i in one.empty_sections():  # relocations may refer to them
            one.places[i] = at
    return code_size, at
