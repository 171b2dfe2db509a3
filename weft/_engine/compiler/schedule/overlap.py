"""Overlap of exchanges between processes with computation, by the order of items.

In:   the fused program of one process, whose exchanges are equations (`ops.exchange`).
Out:  its items in an order that overlaps exchanges with computation, with a `done` equation before the first use of each result.
Laws: the order depends on the program only, so that all processes start the same exchanges in the same order. The program that
      starts an exchange also waits for it. The `done` equation reads the operand and the result, so that both stay live.
How:  an exchange starts as soon as its operand is computed. Among other items that are ready, operands of later exchanges come
      first, then items that do not wait for an exchange, then items that do. A program that gathers a shard again to save memory
      starts gathers shortly before they are read. Operands of reduce-scatters do not pile up.
Next: `exchange_steps` makes steps of exchanges and of their ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from weft._engine.compiler.fusion.fuse import Fusion
from weft._engine.compiler.fusion.groups import KernelGroup
from weft._engine.ir.jaxpr import Eqn, Literal, Var, subjaxprs
from weft._engine.ops.exchange import exchange_done_p, role_of

#: bytes of gathered values that are not read yet, or of operands of reduce-scatters under way; relative to the largest one
WINDOW = 2
#: maximal number of items between the start of a bounded gather and its first reader
ITEMS_AHEAD = 4


def schedule_overlap(graph: Fusion) -> list[KernelGroup | Eqn]:
    """Return the items in an order that overlaps exchanges, with a `done` equation before the first reader of each result."""
    return _OverlapScheduler(graph).run()


class _OverlapScheduler:
    """A list scheduler: the next item is the one of lowest rank among all ready items."""

    def __init__(self, graph: Fusion) -> None:
        self.items, self.needs = graph.items, _needs(graph)
        self.starts = [is_exchange(item) for item in self.items]
        #: True for items on which an exchange depends
        self.leads = list(self.starts)
        for i in reversed(range(len(self.items))):
            if self.leads[i]:
                for n in self.needs[i]:
                    self.leads[n] = True
        self.readers: list[list[int]] = [[] for _ in self.items]
        for i, needed in enumerate(self.needs):
            for n in needed:
                self.readers[n].append(i)
        exchanges = {i: e for i, e in enumerate(self.items) if self.starts[i] and type(e) is Eqn}
        self.gathered = _bytes_gathered(graph, exchanges)
        self.reduced = {i: n for i, n in _bytes_reduced(exchanges).items() if self.needs[i]}
        self.first_reader = [min(readers, default=len(self.items)) for readers in self.readers]
        #: number of items before each item, without exchanges
        self.before = [*itertools.accumulate((not start for start in self.starts), initial=0)]
        self.computed = 0  # of these items so far
        self.unread: set[int] = set()  # bounded gathers that no item has read
        self.under_way: dict[int, Eqn] = {}
        self.out: list[KernelGroup | Eqn] = []

    def run(self) -> list[KernelGroup | Eqn]:
        missing = [len(needed) for needed in self.needs]
        ready = {i for i, count in enumerate(missing) if not count}
        while ready:
            chosen = min(ready, key=self.rank)
            self.start(chosen)
            ready.remove(chosen)
            for i in self.readers[chosen]:
                missing[i] -= 1
                if not missing[i]:
                    ready.add(i)
        self.wait(sorted(self.under_way))
        return self.out

    def rank(self, i: int) -> tuple[int, int]:
        if not self.needs[i].isdisjoint(self.under_way):
            return 3, i
        if i in self.gathered and not self.is_timely(i):
            return 4, i
        return (0 if self.starts[i] else 1 if self.leads[i] else 2), i

    def is_timely(self, gather: int) -> bool:
        """Whether a bounded gather is read soon, and few others are unread."""
        distance = self.before[self.first_reader[gather]] - self.computed
        return distance <= ITEMS_AHEAD and _fits(self.gathered, self.unread, gather)

    def start(self, i: int) -> None:
        """Wait for the exchanges that an item depends on, then append it."""
        self.wait(sorted(self.needs[i] & self.under_way.keys()))
        self.unread -= self.needs[i]
        item = self.items[i]
        if self.starts[i] and type(item) is Eqn:
            if i in self.reduced:
                self.make_space(i)
            if i in self.gathered:
                self.unread.add(i)
            self.under_way[i] = item
        else:
            self.computed += 1
        self.out.append(item)

    def make_space(self, reduction: int) -> None:
        """Wait for the oldest reduce-scatters until the operand of another one fits."""
        pending = [n for n in self.under_way if n in self.reduced]
        while pending and not _fits(self.reduced, pending, reduction):
            self.wait([pending.pop(0)])

    def wait(self, exchanges: Iterable[int]) -> None:
        """Append the `done` equations of exchanges."""
        for n in exchanges:
            eqn = self.under_way.pop(n)
            operands = [*eqn.invars, *eqn.outvars]
            self.out.append(Eqn(exchange_done_p, operands, [], {}, eqn.source))


def _bytes_gathered(graph: Fusion, exchanges: Mapping[int, Eqn]) -> dict[int, int]:
    """Return the bytes of gathered values by item if the program gathers a shard again to save memory; else nothing."""
    gathers = {i: eqn for i, eqn in exchanges.items() if _growth(eqn) > 0}
    operands = [
        graph.memory_of(a) for e in gathers.values() for a in e.invars if isinstance(a, Var)
    ]
    if len(set(operands)) == len(operands):
        return {}
    return {i: eqn.outvars[0].aval.nbytes for i, eqn in gathers.items()}


def _bytes_reduced(exchanges: Mapping[int, Eqn]) -> dict[int, int]:
    """Return the bytes of the operands of reduce-scatters by item."""
    return {i: eqn.invars[0].aval.nbytes for i, eqn in exchanges.items() if _growth(eqn) < 0}


def _growth(exchange: Eqn) -> int:
    """Return by how many bytes the result of an exchange is larger than its operand."""
    return exchange.outvars[0].aval.nbytes - exchange.invars[0].aval.nbytes


def _fits(nbytes: Mapping[int, int], exchanges_in_flight: Iterable[int], other: int) -> bool:
    """Whether the bytes of an exchange fit in the window of those held."""
    return sum(nbytes[n] for n in exchanges_in_flight) + nbytes[other] <= WINDOW * max(
        nbytes.values()
    )


def is_exchange(item: KernelGroup | Eqn) -> bool:
    """Return whether an item starts an exchange."""
    return type(item) is Eqn and role_of(item) == "exchange" and item.outvars[0].aval.size > 0


def _needs(graph: Fusion) -> list[set[int]]:
    """Return the positions of the items that each item depends on: producers of its operands, and the preceding effect.

    Loops and branches keep their order among each other, because they may contain exchanges."""
    makers: dict[Var, int] = {}
    needs: list[set[int]] = []
    effect = inside = -1
    for i, item in enumerate(graph.items):
        if isinstance(item, KernelGroup):
            reads, makes = graph.read_by(item), item.roots
        else:
            reads = [graph.memory_of(a) for a in item.invars if type(a) is not Literal]
            makes = item.outvars
        mine = {makers[v] for v in reads if v in makers}
        if not isinstance(item, KernelGroup):
            if item.effects:
                mine |= {effect} - {-1}
                effect = i
            if any(subjaxprs(item.params)):
                mine |= {inside} - {-1}
                inside = i
        makers.update((v, i) for v in makes)
        needs.append(mine)
    return needs
