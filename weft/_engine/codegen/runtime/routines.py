"""Native routines of one kind, by name: compiled once per machine, linked once per process.

In:   a function from a routine's name to its modules, each after the modules that it calls.
Out:  `ensure`, the routine's address; `requests`, the objects to compile before; `stored`, the keys
      of its objects on disk.
Laws: an address stays valid. A draft is not optimized and computes the same bits. Modules that
      several routines share are linked once. `Routines` makes sorts and Fourier transforms;
      `codegen.gemm.gemm` makes matmuls. Both are a `RoutineMaker`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain import target
from weft._engine.codegen.toolchain.native_library import LibraryModule, is_on_disk, link, request
from weft._engine.codegen.toolchain.objects import ObjectRequest


class RoutineMaker(Protocol):
    """The maker of one kind of routines. A routine may have optional functions: it gets the
    functions `needed`, or all (None)."""

    def requests(
        self, name: str, /, needed: frozenset[str] | None = None, draft: bool = False
    ) -> list[ObjectRequest]:
        """Return the objects to prepare before `ensure` is called."""
        ...

    def ensure(
        self, name: str, /, needed: frozenset[str] | None = None, draft: bool = False
    ) -> int:
        """Return the address of a routine, or of its draft; compile and link it if necessary. The
        address stays valid."""
        ...

    def stored_object_keys(
        self, name: str, /, needed: frozenset[str] | None = None, draft: bool = False
    ) -> list[str]:
        """Return the keys of the objects of a routine that `ensure` has linked."""
        ...


class Routine(NamedTuple):
    """A native routine that a program calls: a matmul with some of its optional functions, a sort
    or a Fourier transform."""

    symbol: str
    made_by: RoutineMaker
    needed: frozenset[str] | None  # the optional functions of a matmul
    draft: bool

    def requests(self) -> list[ObjectRequest]:
        return self.made_by.requests(self.symbol, self.needed, self.draft)

    def address(self) -> int:
        return self.made_by.ensure(self.symbol, self.needed, self.draft)

    def stored_object_keys(self) -> list[str]:
        return self.made_by.stored_object_keys(self.symbol, self.needed, self.draft)


class Routines:
    """Routines without optional functions. `parts(name, draft)` lists a routine's modules; the last
    one exports the routine."""

    def __init__(self, parts: Callable[[str, bool], list[LibraryModule]], libc: Sequence[str] = ()):
        self.parts = parts
        self.libc = libc
        # routine addresses by name, target and draft flag
        self._addresses: dict[tuple[str, str, bool], int] = {}
        # exported addresses of linked modules, by the same key
        self._linked: dict[tuple[str, str, bool], dict[str, int]] = {}

    def requests(
        self, name: str, needed: frozenset[str] | None = None, draft: bool = False
    ) -> list[ObjectRequest]:
        missing = self._unlinked_modules(name, draft)
        return [*pool.requests(), *map(request, missing)] if missing else []

    def ensure(self, name: str, needed: frozenset[str] | None = None, draft: bool = False) -> int:
        missing = self._unlinked_modules(name, draft)
        if missing:
            imports = pool.symbols()
            for part in self.parts(name, draft):
                imports = imports | self._linked.get(_key(part.name, draft), {})
            linked = link(missing, imports, self.libc)
            # set before `_linked`, because other threads take a linked routine as complete
            self._addresses[_key(name, draft)] = linked[name]
            self._linked.update(
                {
                    _key(part.name, draft): {symbol: linked[symbol] for symbol in part.exports}
                    for part in missing
                }
            )
        return self._addresses[_key(name, draft)]

    def stored_object_keys(
        self, name: str, needed: frozenset[str] | None = None, draft: bool = False
    ) -> list[str]:
        return [request(part).key for part in self.parts(name, draft)]

    def is_ready(self, name: str) -> bool:
        """Return whether the optimized routine is linked or on disk."""
        return _key(name, False) in self._addresses or all(map(is_on_disk, self.parts(name, False)))

    def _unlinked_modules(self, name: str, draft: bool) -> list[LibraryModule]:
        """Return the modules that this process has not linked."""
        if _key(name, draft) in self._addresses:
            return []
        return [
            part for part in self.parts(name, draft) if _key(part.name, draft) not in self._linked
        ]


def _key(name: str, draft: bool) -> tuple[str, str, bool]:
    return name, target.current().identity, draft
