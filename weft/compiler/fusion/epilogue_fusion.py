"""Epilogue fusion: which kernels a matmul absorbs, namely those that visit its result once, element by element.

In:   a `Graph` and its `Group`s.
Out:  groups whose `dot` is set; `compiler.kernels.kernel_epilogue` writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.compiler.fusion.classify import LoweringKind, is_dense, lowering_kind, view_of
from weft.compiler.fusion.groups import Group
from weft.ir.jaxpr import Literal, Var
from weft.ir.program import MOST_TAIL_ARGS

if TYPE_CHECKING:
    from weft.compiler.fusion.fuse import Graph


def attach_tails(graph: Graph, groups: list[Group]) -> None:
    """Let matmuls finish their results themselves: a group that goes over a result once becomes the matmul's tail.

    A matmul with a tail stands half a step below the depth of that tail. All else that the tail reads must be made
    before that, so that order by depth, and with it freedom from cycles, remains.
    """
    readers: dict[Var, list] = {}
    for group in groups:
        for leaf in group.leaves:
            readers.setdefault(leaf, []).append(group)
    for atom in (*(a for _, eqn in graph.hard for a in eqn.invars), *graph.jaxpr.outvars):
        if type(atom) is not Literal:
            readers.setdefault(graph.memory_of(atom), []).append(None)
    late: set[Var] = set()       # results of matmuls that have a tail
    for _, eqn in graph.hard:
        if lowering_kind(eqn) is not LoweringKind.CONTRACT:
            continue
        result = eqn.outvars[0]
        mine = readers.get(result, ())
        for group in mine:
            if group is not None and _is_tail(graph, group, result, late):
                group.dot = eqn
                late.add(result)
                if len(mine) > 1:
                    group.roots.append(result)
                    graph.stored[result] = None
                break


def _is_tail(graph: Graph, group: Group, result: Var, late: set[Var]) -> bool:
    depth, size = graph.depth[result], result.aval.size
    if group.dot is not None or group.context is not None or group.depth != depth + 1 or size < 2:
        return False
    if len(group.leaves) + len(group.roots) > MOST_TAIL_ARGS or any(v.aval.size != size for v in group.roots):
        return False
    if any(graph.depth[v] >= depth + (v not in late) for v in group.leaves if v is not result):
        return False
    return all(_goes_along(graph, root, result, group.depth) for root in group.roots)


def _goes_along(graph: Graph, root: Var, result: Var, depth: int) -> bool:
    """Whether `root` reads `result` only at its own flat position."""
    along: dict[Var, bool] = {result: True}
    _depends(graph, root, depth, along)
    seen, stack = {root}, [root]
    while stack:
        var = stack.pop()
        if var is result or not along[var]:
            continue
        eqn = graph.producer[var]
        view = view_of(eqn)
        for atom in eqn.invars:
            if type(atom) is Literal or not along[atom]:
                continue
            even = atom.aval.shape == var.aval.shape and eqn.primitive.kind == "elementwise"
            if not even and (view is None or atom.aval.size != var.aval.size or not is_dense(view, var.aval.shape)):
                return False
            if atom not in seen:
                seen.add(atom)
                stack.append(atom)
    return True


def _depends(graph: Graph, root: Var, depth: int, along: dict[Var, bool]) -> None:
    """Add to `along`, for all that a kernel of `depth` inlines to compute `root`, whether it depends on what is true there."""
    stack = [root]
    while stack:
        var = stack[-1]
        if var in along:
            stack.pop()
            continue
        if var is not root and graph.loads(var, depth):
            along[var] = False
            continue
        atoms = [a for a in graph.producer[var].invars if type(a) is not Literal]
        waiting = [a for a in atoms if a not in along]
        if waiting:
            stack.extend(waiting)
        else:
            along[var] = any(along[a] for a in atoms)
