"""Overlap of exchanges between processes with computation, by the order of items.

In:   the fused program of one process, whose exchanges are equations (`ops.exchange`).
Out:  its items in an order that overlaps exchanges with computation, with a `done` equation before the first use of each result.
Laws: the order depends on the program only, so that all processes start the same exchanges in the same order. The program that
      starts an exchange also waits for it. The `done` equation reads the operand and the result, so that both stay live.
How:  an exchange starts as soon as its operand is computed. Among other items that are ready, operands of later exchanges come
      first, then items that do not wait for an exchange, then items that do.
Next: `exchange_steps` makes steps of exchanges and of their ends.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft._engine.compiler.fusion.fuse import Fusion
from weft._engine.compiler.fusion.groups import Group
from weft._engine.ir.jaxpr import Eqn, Literal, Var, subjaxprs
from weft._engine.ops.exchange import exchange_done_p, role_of


def overlapped(graph: Fusion) -> list[Group | Eqn]:
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
        self.under_way: dict[int, Eqn] = {}
        self.out: list[Group | Eqn] = []

    def run(self) -> list[Group | Eqn]:
        readers: list[list[int]] = [[] for _ in self.items]
        for i, needed in enumerate(self.needs):
            for n in needed:
                readers[n].append(i)
        missing = [len(needed) for needed in self.needs]
        ready = {i for i, count in enumerate(missing) if not count}
        while ready:
            chosen = min(ready, key=self.rank)
            self.start(chosen)
            ready.remove(chosen)
            for i in readers[chosen]:
                missing[i] -= 1
                if not missing[i]:
                    ready.add(i)
        self.wait(self.under_way)
        return self.out

    def rank(self, i: int) -> tuple[int, int]:
        if not self.needs[i].isdisjoint(self.under_way):
            return 3, i
        return (0 if self.starts[i] else 1 if self.leads[i] else 2), i

    def start(self, i: int) -> None:
        """Wait for the exchanges that an item depends on, then append it."""
        self.wait(self.needs[i] & self.under_way.keys())
        item = self.items[i]
        self.out.append(item)
        if self.starts[i] and type(item) is Eqn:
            self.under_way[i] = item

    def wait(self, exchanges: Iterable[int]) -> None:
        """Append the `done` equations of exchanges."""
        for n in sorted(exchanges):
            eqn = self.under_way.pop(n)
            operands = [*eqn.invars, *eqn.outvars]
            self.out.append(Eqn(exchange_done_p, operands, [], {}, eqn.source))


def is_exchange(item: Group | Eqn) -> bool:
    """Return whether an item starts an exchange."""
    return type(item) is Eqn and role_of(item) == "exchange" and item.outvars[0].aval.size > 0


def _needs(graph: Fusion) -> list[set[int]]:
    """Return the positions of the items that each item depends on: producers of its operands, and the preceding effect.

    Loops and branches keep their order among each other, because they may contain exchanges."""
    makers: dict[Var, int] = {}
    needs: list[set[int]] = []
    effect = inside = -1
    for i, item in enumerate(graph.items):
        if isinstance(item, Group):
            reads, makes = graph.read_by(item), item.roots
        else:
            reads = [graph.memory_of(a) for a in item.invars if type(a) is not Literal]
            makes = item.outvars
        mine = {makers[v] for v in reads if v in makers}
        if not isinstance(item, Group):
            if item.effects:
                mine |= {effect} - {-1}
                effect = i
            if any(subjaxprs(item.params)):
                mine |= {inside} - {-1}
                inside = i
        makers.update((v, i) for v in makes)
        needs.append(mine)
    return needs
