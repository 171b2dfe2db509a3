"""Groups: the roots of one depth that share a kernel.

In:   a `FusionGraph` and the roots of one depth.
Out:  `KernelGroup`s: roots with the same loop nest and shared inputs, and column reductions that join a kernel over rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from weft._engine.compiler.fusion.classify import LoweringKind, lowering_kind
from weft._engine.compiler.fusion.column_reduction import (
    ColumnReduction,
    before_reshape,
    column_reduction_of,
)
from weft._engine.compiler.fusion.graph import (
    FusionGraph,
    FusionRule,
    decide,
)
from weft._engine.compiler.fusion.reduction_domain import (
    Domain,
    fits_domain,
    is_trailing,
    may_follow,
)
from weft._engine.ir.jaxpr import Eqn, Literal, Var
from weft._engine.util.record import field, record

# thresholds, measured on several machines
#: maximal number of results of one kernel
MOST_ROOTS = 12


@record(frozen=False)
class KernelGroup:
    """The equations of one kernel: the stored values (`roots`), the loaded values (`leaves`) and the shape of the loop nest.

    `domain` is the reduction domain, or None without reductions. A group with a `dot` is the epilogue of that matmul, whose result
    is a leaf that is not in memory. With `parts`, some roots are column reductions, each over the given number of parts of the rows.
    Nothing joins a group that `is_full`: it has many roots or much code.
    """

    roots: list[Var]
    shape: tuple[int, ...]
    domain: Domain | None
    depth: int
    leaves: dict[Var, None] = field(default_factory=dict)
    dot: Eqn | None = None
    parts: int = 0
    is_full: bool = False

    def add(self, root: Var, leaves: Iterable[Var], parts: int) -> None:
        """Add a root that loads `leaves`; with `parts`, it is a column reduction over as many parts."""
        self.roots.append(root)
        self.parts = self.parts or parts
        self.leaves.update(dict.fromkeys(leaves))


class JoinCandidate(NamedTuple):
    """A candidate: a group, and the loop nest of a root with shared inputs."""

    group: KernelGroup
    shape: tuple[int, ...]
    domain: Domain | None
    parts: int


#: rules that decide whether a root joins a group with shared inputs
GROUP_RULES: list[FusionRule] = [
    FusionRule(
        "full kernels",
        "each result is a stream to memory, and the compile time of LLVM grows faster than the size of a kernel",
        lambda join: join.group.is_full,
        False,
    ),
    FusionRule(
        "shares of rows",
        "a kernel has one task for each part of the rows",
        lambda join: join.parts > 0 and join.group.parts not in (0, join.parts),
        False,
    ),
    FusionRule(
        "reduction domains",
        "a kernel passes over the rows of one domain",
        lambda join: join.domain is not None,
        lambda join: join.group.domain == join.domain,
    ),
    FusionRule(
        "loop nests",
        "the results of a kernel have one shape, and reductions are over trailing dims",
        lambda join: True,
        lambda join: (
            join.group.shape == join.shape
            and (join.group.domain is None or is_trailing(*join.group.domain))
        ),
    ),
]


def groups_of(graph: FusionGraph, roots: list[Var], depth: int) -> list[KernelGroup]:
    """Group the roots of one depth that have the same loop nest and shared inputs."""
    groups: list[KernelGroup] = []
    owners: dict[tuple, KernelGroup] = {}
    # roots with a reduction domain first, so that others of the same shape may join them
    for root in sorted(roots, key=lambda v: (v not in graph.domain, graph.order[v])):
        domain = graph.domain.get(root)
        shape = root.aval.shape if domain is None else domain[0]
        parts = graph.column_reductions[root].parts if root in graph.column_reductions else 0
        leaves, inlined = _kernel_loads(graph, root, depth)
        large = [
            ("leaf", v, shape) for v in leaves if v.aval.size * 2 > root.aval.size and v.aval.ndim
        ] + [("root", v, shape) for v in (root, *inlined)]
        owner = next(
            (
                owners[key]
                for key in large
                if key in owners
                and decide(GROUP_RULES, JoinCandidate(owners[key], shape, domain, parts))
            ),
            None,
        )
        if owner is None:
            owner = KernelGroup([], shape, domain, depth)
            groups.append(owner)
        owner.add(root, leaves, parts)
        owner.is_full = len(owner.roots) >= MOST_ROOTS or graph.has_much_code(owner.roots)
        for key in large:
            if key not in owners or owners[key].is_full:
                owners[key] = owner
    groups = _join_column_reductions(graph, groups)
    for group in groups:
        group.roots.sort(key=graph.order.__getitem__)
    return groups


def _join_column_reductions(graph: FusionGraph, groups: list[KernelGroup]) -> list[KernelGroup]:
    """Merge groups that consist of column reductions into groups that pass over the same large rows."""
    merged: list[KernelGroup] = []
    readers: dict[Var, dict[int, KernelGroup]] = {}  # the groups that load each value, by number
    for number, group in enumerate(groups):
        for leaf in group.leaves:
            readers.setdefault(leaf, {})[number] = group
    for group in groups:
        sums = _column_reductions(graph, group)
        others = (
            {n: g for leaf in group.leaves for n, g in readers[leaf].items() if g is not group}
            if sums
            else {}
        )
        for number in sorted(others):
            other = others[number]
            domain = _domain_for(other, group, sums)
            if domain is not None:
                break
        else:
            merged.append(group)
            continue
        for leaf in group.leaves:
            readers[leaf][number] = other
        for out, reduction in sums.items():
            graph.add_column_reduction(out, reduction, domain)
            other.parts = reduction.parts
        other.roots += group.roots
        other.leaves.update(group.leaves)
    return merged


def _column_reductions(graph: FusionGraph, group: KernelGroup) -> dict[Var, ColumnReduction]:
    """Return the roots of a group as column reductions; empty unless all of them are."""
    sums: dict[Var, ColumnReduction] = {}
    for root in group.roots:
        reduction = _column_reduction(graph, root, group)
        if reduction is None:
            return {}
        sums[root] = reduction
    return sums


def _column_reduction(graph: FusionGraph, root: Var, group: KernelGroup) -> ColumnReduction | None:
    """Return the root as a column reduction of a value computed from memory only; None if it is not one."""
    eqn = graph.producer[root]
    if (
        group.domain is None
        or is_trailing(*group.domain)
        or lowering_kind(eqn) is not LoweringKind.REDUCE
    ):
        return None
    atom = eqn.invars[0]
    if type(atom) is Literal:
        return None
    source = before_reshape(atom, graph.producer.get(atom))
    return (
        None
        if source in graph.domain and not graph.loads(source, group.depth)
        else column_reduction_of(eqn, source)
    )


def _domain_for(
    other: KernelGroup, group: KernelGroup, sums: dict[Var, ColumnReduction]
) -> Domain | None:
    """Return the reduction domain of `other` if its kernel can also compute `sums`, the roots of `group`; else None."""
    domain = other.domain
    if domain is None or len(other.roots) + len(group.roots) > MOST_ROOTS or not may_follow(domain):
        return None
    shared = any(v.aval.shape == other.shape and v in other.leaves for v in group.leaves)
    fits = shared and all(
        s.source.aval.shape == other.shape
        and fits_domain(s, domain)
        and other.parts in (0, s.parts)
        for s in sums.values()
    )
    return domain if fits else None


def _kernel_loads(graph: FusionGraph, root: Var, depth: int) -> tuple[dict[Var, None], list[Var]]:
    """Return the values that a kernel of `depth` loads to compute `root`, and the other roots that it inlines."""
    leaves: dict[Var, None] = {}
    inlined: list[Var] = []
    seen = {root}
    stack = [root]
    while stack:
        for atom in graph.producer[stack.pop()].invars:
            if type(atom) is Literal or atom in seen:
                continue
            seen.add(atom)
            if graph.loads(atom, depth):
                leaves[atom] = None
            else:
                if atom in graph.roots:
                    inlined.append(atom)
                stack.append(atom)
    return leaves, inlined
