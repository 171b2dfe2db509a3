"""Lifetimes of a program's values in memory: a stored value lives from the first to the last kernel that uses it.

In:   a global program.
Out:  a `Storage`: the times of equations, and the lifetimes of the values that are stored between them.
How:  the program is fused as the compiler fuses the program of a device, which differs by collectives alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft._engine.compiler.fusion.fuse import Fusion
from weft._engine.compiler.fusion.groups import KernelGroup
from weft._engine.compiler.schedule.buffer_aliasing import LEAST_IN_PLACE
from weft._engine.core.primitive import RegionOp
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, Var, subjaxprs
from weft._engine.partition.auto.memory import Storage


def storage_of(program: Jaxpr) -> Storage:
    """Return when the values of a program are in memory."""
    return _StorageBuilder(program).storage()


class _StorageBuilder:
    """Counts time over the kernels of a program and of the programs inside it."""

    def __init__(self, program: Jaxpr):
        self.program, self.time = program, 0
        self.first: dict[Var, int] = {}
        self.last: dict[Var, int] = {}
        self.times: dict[Eqn, int] = {}
        self.elsewhere: set[Var] = set()  # arguments, and values that have the memory of results

    def storage(self) -> Storage:
        self._walk(self.program, is_whole=True)
        lifetimes = {
            v: (first, self.last.get(v, first))
            for v, first in self.first.items()
            if v not in self.elsewhere
        }
        return Storage(lifetimes, self.times, self.time + 1)

    def _walk(self, jaxpr: Jaxpr, is_whole: bool = False) -> None:
        graph = Fusion(jaxpr)
        results = [graph.memory_of(a) for a in jaxpr.outvars if type(a) is not Literal]
        self.elsewhere.update(jaxpr.invars)
        if is_whole:
            self.elsewhere.update(results)
        kernels: list[tuple[int, KernelGroup]] = []
        for item in graph.items:
            self.time += 1
            if isinstance(item, KernelGroup):
                kernels.append((self.time, item))
                self.times.update(dict.fromkeys(_equations(graph, item), self.time))
                self._use(item.roots, graph.read_by(item), self.time)
            else:
                self._equation(graph, item)
        self.last.update(dict.fromkeys(results, self.time + 1))
        for time, group in kernels:
            self._reuse_operands(group, time)

    def _equation(self, graph: Fusion, eqn: Eqn) -> None:
        begin = self.times[eqn] = self.time
        is_local = isinstance(eqn.primitive, RegionOp) and eqn.primitive.per_device
        for _, inner in () if is_local else subjaxprs(eqn.params):
            self._walk(inner)
            self.time += 1
        reads = [graph.memory_of(a) for a in eqn.invars if type(a) is not Literal]
        self._use(eqn.outvars, reads, begin)

    def _use(self, makes: Sequence[Var], reads: Sequence[Var], begin: int) -> None:
        self.first.update((v, begin) for v in makes)
        self.last.update(dict.fromkeys(reads, self.time))

    def _reuse_operands(self, group: KernelGroup, time: int) -> None:
        """End the life of operands that die in a kernel before it, where a result takes their memory."""
        operands = [v for v in group.leaves if self.last.get(v) == time and v in self.first]
        for root in group.roots:
            nbytes = root.aval.nbytes
            same = [v for v in operands if v.aval.nbytes == nbytes and v not in self.elsewhere]
            if same and nbytes >= LEAST_IN_PLACE:
                operands.remove(same[0])
                self.last[same[0]] = time - 1


def _equations(graph: Fusion, group: KernelGroup) -> Iterator[Eqn]:
    """Yield the equations that a kernel computes."""
    if group.dot is not None:
        yield group.dot
    seen: set[Var] = set()
    stack = list(group.roots)
    while stack:
        var = stack.pop()
        eqn = graph.producer.get(var)
        if eqn is None or var in seen or eqn is group.dot:
            continue
        seen.add(var)
        yield eqn
        stack += [a for a in eqn.invars if type(a) is not Literal and a not in group.leaves]
