"""Native routines of one kind, by name: compiled once per machine, linked once per process.

In:   a function from a routine's name to its modules, each after those that it calls.
Out:  `ensure`, the routine's address; `requests` and `stored`, what to compile before and which objects on disk hold it.
Laws: an address stays valid. A draft is not optimized, and has the same bits. Modules that several routines share are linked once.
      All native routines are made by a `RoutineMaker`: sorts and Fourier transforms by `Routines`, matmuls by `codegen.gemm.gemm`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain import target
from weft._engine.codegen.toolchain.native_library import LibraryModule, is_kept, link, request
from weft._engine.codegen.toolchain.objects import ObjectRequest


class RoutineMaker(Protocol):
    """What makes the routines of one kind. A routine may have optional functions, of which it gets those `wanted`, or all (None)."""

    def requests(
        self, name: str, /, wanted: frozenset[str] | None = None, draft: bool = False
    ) -> list[ObjectRequest]:
        """What to prepare before `ensure` is called."""
        ...

    def ensure(
        self, name: str, /, wanted: frozenset[str] | None = None, draft: bool = False
    ) -> int:
        """The address of a routine, or of a draft of it; it stays valid."""
        ...

    def stored(
        self, name: str, /, wanted: frozenset[str] | None = None, draft: bool = False
    ) -> list[str]:
        """The keys of the objects of a routine that `ensure` gave."""
        ...


class Routines:
    """Routines without optional functions, whose modules `parts(name, draft)` lists; the last one exports the routine itself."""

    def __init__(self, parts: Callable[[str, bool], list[LibraryModule]], libc: Sequence[str] = ()):
        self.parts = parts
        self.libc = libc
        self._addresses: dict[
            tuple[str, str, bool], int
        ] = {}  # of routines, by name, machine and whether it is a draft
        self._linked: dict[
            tuple[str, str, bool], dict[str, int]
        ] = {}  # of what their modules export

    def requests(
        self, name: str, wanted: frozenset[str] | None = None, draft: bool = False
    ) -> list[ObjectRequest]:
        missing = self._missing(name, draft)
        return [*pool.requests(), *map(request, missing)] if missing else []

    def ensure(self, name: str, wanted: frozenset[str] | None = None, draft: bool = False) -> int:
        missing = self._missing(name, draft)
        if missing:
            known = pool.symbols()
            for part in self.parts(name, draft):
                known = known | self._linked.get(_key(part.name, draft), {})
            found = link(missing, known, self.libc)
            self._addresses[_key(name, draft)] = found[
                name
            ]  # before `_linked`, after which nothing is missing
            self._linked.update(
                {
                    _key(part.name, draft): {symbol: found[symbol] for symbol in part.exports}
                    for part in missing
                }
            )
        return self._addresses[_key(name, draft)]

    def stored(
        self, name: str, wanted: frozenset[str] | None = None, draft: bool = False
    ) -> list[str]:
        return [request(part).key for part in self.parts(name, draft)]

    def is_ready(self, name: str) -> bool:
        """Whether the optimized routine is linked or on disk."""
        return _key(name, False) in self._addresses or all(map(is_kept, self.parts(name, False)))

    def _missing(self, name: str, draft: bool) -> list[LibraryModule]:
        """The modules that this process has not linked."""
        if _key(name, draft) in self._addresses:
            return []
        return [
            part for part in self.parts(name, draft) if _key(part.name, draft) not in self._linked
        ]


def _key(name: str, draft: bool) -> tuple[str, str, bool]:
    return name, target.current().identity, draft
