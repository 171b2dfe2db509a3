"""The fused program: the kernels of a jaxpr, their equations and their order.

In:   a simplified jaxpr.
Out:  `Fusion`: kernels (`KernelGroup`) and other equations in order, and a key for equal kernels.
"""

from __future__ import annotations

import itertools

from weft._engine.compiler.fusion.epilogue_fusion import fuse_epilogues
from weft._engine.compiler.fusion.graph import FusionGraph
from weft._engine.compiler.fusion.groups import KernelGroup, groups_of
from weft._engine.compiler.fusion.inline_rules import INLINE_RULES
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, Var
from weft._engine.ir.rewrite import params_key


class Fusion(FusionGraph):
    """The fused program. `items` are its kernels and other equations, each after the producers of its operands."""

    def __init__(self, jaxpr: Jaxpr):
        super().__init__(jaxpr, INLINE_RULES)
        self.items = self._order_items(self._groups())

    def _groups(self) -> list[KernelGroup]:
        """Return the kernels, deepest first, so that the values loaded by a kernel are known when shallower kernels are formed."""
        by_depth: dict[int, list[Var]] = {}
        deepest = max((self.depth[v] for v in self.roots), default=-1)
        groups: list[KernelGroup] = []
        for root in self.demanded:
            by_depth.setdefault(self.depth[root], []).append(root)
        for depth in range(deepest, -1, -1):
            roots = by_depth.get(depth)
            if not roots:
                continue
            for group in groups_of(self, sorted(roots, key=self.order.__getitem__), depth):
                groups.append(group)
                for leaf in group.leaves:
                    if leaf in self.producer and leaf not in self.demanded:
                        self.demanded[leaf] = None
                        by_depth.setdefault(self.depth[leaf], []).append(leaf)
        self.stored = self.demanded
        fuse_epilogues(self, groups)
        return groups

    def _order_items(self, groups: list[KernelGroup]) -> list[KernelGroup | Eqn]:
        """Return kernels and other equations in program order, except that each follows the items it depends on."""
        inside = {id(g.dot) for g in groups}
        jobs: list[tuple[int, KernelGroup | Eqn]] = [
            (min(self.order[v] for v in g.roots), g) for g in groups
        ]
        jobs += [job for job in self.non_fusible if id(job[1]) not in inside]
        jobs.sort(key=lambda job: job[0])
        items = [job for _, job in jobs]
        needs = _ItemDependencies(self, groups, items)
        done: set[int] = set()
        out: list[KernelGroup | Eqn] = []
        for item in items:
            stack = [(item, False)]
            while stack:
                current, ready = stack.pop()
                if id(current) in done:
                    continue
                if ready:
                    done.add(id(current))
                    out.append(current)
                else:
                    stack.append((current, True))
                    stack.extend((n, False) for n in needs.of(current) if id(n) not in done)
        return out

    def read_by(self, group: KernelGroup) -> list[Var]:
        """Return the stored values that a kernel reads, including the operands of its matmul."""
        if group.dot is None:
            return list(group.leaves)
        result = group.dot.outvars[0]
        operands = [self.memory_of(a) for a in group.dot.invars if type(a) is not Literal]
        return [*(v for v in group.leaves if v is not result), *operands]

    def signature(self, group: KernelGroup) -> tuple[tuple | None, list[Var]]:
        """Return a key that is equal for equal kernels of any program, and the leaves in the order of the key.

        The key is None if a parameter cannot be compared."""
        numbers: dict[Var, int] = {}
        leaves: dict[Var, None] = {}
        parts: list = [group.shape, group.domain, group.parts, len(group.roots)]
        done: set[int] = set()
        stack = list(reversed(group.roots))
        own = set(group.roots)
        while stack:
            var = stack.pop()
            if group.dot is not None and var is group.dot.outvars[0]:
                leaves[var] = None
                # its type may appear nowhere else in the key
                parts.append((numbers.setdefault(var, len(numbers)), var.aval))
                continue
            eqn = self.producer[var]
            if id(eqn) in done:
                continue
            done.add(id(eqn))
            params = params_key(eqn.params) if eqn.params else ()
            if params is None:
                return None, []
            parts.append(eqn.primitive)
            parts.append(params)
            for var in eqn.outvars:
                parts.append((numbers.setdefault(var, len(numbers)), var in own))
            for atom in eqn.invars:
                if type(atom) is Literal:
                    parts.append((repr(atom.val), atom.aval))
                    continue
                number = numbers.setdefault(atom, len(numbers))
                if atom not in own and self.loads(atom, group.depth):
                    leaves[atom] = None
                    parts.append((number, atom.aval))
                else:
                    parts.append(number)
                    stack.append(atom)
        parts.extend(numbers[v] for v in group.roots)
        return tuple(parts), list(leaves)


class _ItemDependencies:
    """The dependencies of the items of a program: producers of operands, and the preceding effect."""

    def __init__(
        self, graph: Fusion, groups: list[KernelGroup], items: list[KernelGroup | Eqn]
    ) -> None:
        self.graph = graph
        self.makers: dict[Var, KernelGroup | Eqn] = {**graph.non_fusible_outs}
        self.makers.update((v, g) for g in groups for v in g.roots)
        effects = [item for item in items if isinstance(item, Eqn) and item.effects]
        self.previous = {id(later): earlier for earlier, later in itertools.pairwise(effects)}

    def of(self, item: KernelGroup | Eqn) -> list[KernelGroup | Eqn]:
        if isinstance(item, KernelGroup):
            needed, reads = [], self.graph.read_by(item)
        else:
            previous = self.previous.get(id(item))
            needed = [] if previous is None else [previous]
            reads = [self.graph.memory_of(a) for a in item.invars if type(a) is not Literal]
        makers = [self.makers.get(var) for var in reads]
        return needed + [maker for maker in makers if maker is not None and maker is not item]
