"""Which roots of one depth share a kernel.

In:   a `Graph` and the roots of one depth.
Out:  `Group`s: roots with the same loop nest and shared inputs, and the column reductions that join a kernel over rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.compiler.fusion.classify import LoweringKind, lowering_kind
from weft.compiler.fusion.column_reduction import Sweep, sweep_of, unfolded
from weft.compiler.fusion.reduction_domain import Context, is_trailing, may_follow, rides
from weft.ir.jaxpr import Eqn, Literal, Var
from weft.util.record import field, record

if TYPE_CHECKING:
    from weft.compiler.fusion.fuse import Graph

MOST_ROOTS = 12            # of a kernel


@record(frozen=False)
class Group:
    """A kernel to be: the values it stores, and the nest it runs (`context` is None if nothing is reduced).

    With a `dot`, it is the tail of that matmul: its result is one of the leaves, but is not in memory.
    With `parts`, some roots are sums over as many shares of the rows.
    """
    roots: list[Var]
    shape: tuple[int, ...]
    context: Context | None
    depth: int
    leaves: dict[Var, None] = field(default_factory=dict)
    dot: Eqn | None = None
    parts: int = 0


def groups_of(graph: Graph, roots: list[Var], depth: int) -> list[Group]:
    """Roots of one depth that run the same nest and share what they read become one kernel."""
    groups: list[Group] = []
    owners: dict[tuple, Group] = {}
    # roots with a row context first, so that others of the same shape may join them
    for root in sorted(roots, key=lambda v: (v not in graph.context, graph.order[v])):
        context = graph.context.get(root)
        shape = root.aval.shape if context is None else context[0]
        parts = graph.swept[root].parts if root in graph.swept else 0
        leaves, inlined = _reads(graph, root, depth)
        large = [("leaf", v, shape) for v in leaves if v.aval.size * 2 > root.aval.size and v.aval.ndim] + [
            ("root", v, shape) for v in (root, *inlined)]
        found = None
        for key in large:
            group = owners.get(key)
            if group is not None and _joins(group, context, shape, parts):
                found = group
                break
        if found is None:
            found = Group([], shape, context, depth)
            groups.append(found)
        found.roots.append(root)
        found.parts = found.parts or parts
        found.leaves.update(dict.fromkeys(leaves))
        for key in large:
            owners.setdefault(key, found)
    groups = _join_sums(graph, groups)
    for group in groups:
        group.roots.sort(key=graph.order.__getitem__)
    return groups


def _join_sums(graph: Graph, groups: list[Group]) -> list[Group]:
    """Let sums over rows that have a kernel of their own ride on a kernel that goes over the same large rows."""
    kept = []
    for group in groups:
        sums = {v: _sweep_of_leaves(graph, v, group) for v in group.roots}
        host = next((g for g in groups if g is not group and _hosts(g, group, sums)), None)
        if host is None:
            kept.append(group)
            continue
        for out, sweep in sums.items():
            graph.sweeps(out, sweep, host.context)
            host.parts = sweep.parts
        host.roots += group.roots
        host.leaves.update(group.leaves)
    return kept


def _sweep_of_leaves(graph: Graph, root: Var, group: Group) -> Sweep | None:
    """The root as a sum over rows of something computed from memory alone."""
    eqn = graph.producer[root]
    if group.context is None or is_trailing(*group.context) or lowering_kind(eqn) is not LoweringKind.REDUCE:
        return None
    atom = eqn.invars[0]
    source = unfolded(atom, graph.producer.get(atom))
    return None if source in graph.context and not graph.loads(source, group.depth) else sweep_of(eqn, source)


def _hosts(host: Group, group: Group, sums: dict[Var, Sweep | None]) -> bool:
    if host.context is None or len(host.roots) + len(group.roots) > MOST_ROOTS or not may_follow(host.context):
        return False
    shared = any(v.aval.shape == host.shape and v in host.leaves for v in group.leaves)
    return shared and all(
        s is not None and s.source.aval.shape == host.shape and rides(s, host.context) and host.parts in (0, s.parts)
        for s in sums.values())


def _joins(group: Group, context: Context | None, shape: tuple[int, ...], parts: int) -> bool:
    if len(group.roots) >= MOST_ROOTS or (parts and group.parts and parts != group.parts):
        return False
    if context is not None:
        return group.context == context
    return group.shape == shape and (group.context is None or is_trailing(*group.context))


def _reads(graph: Graph, root: Var, depth: int) -> tuple[dict[Var, None], list[Var]]:
    """What a kernel of `depth` loads to compute `root`, and the other roots it inlines."""
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
