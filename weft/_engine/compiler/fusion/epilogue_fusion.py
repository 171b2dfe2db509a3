"""Epilogue fusion: kernels that read a matmul's result once, element by element, become part of the matmul.

In:   a `FusionGraph` and its `KernelGroup`s.
Out:  groups whose `dot` is set; `compiler.kernels.kernel_epilogue` lowers them.
"""

from __future__ import annotations

from typing import NamedTuple

from weft._engine.compiler.fusion.classify import LoweringKind, is_dense, lowering_kind, view_of
from weft._engine.compiler.fusion.graph import FusionGraph, FusionRule, decide
from weft._engine.compiler.fusion.groups import KernelGroup
from weft._engine.core.primitive import ElementwiseOp
from weft._engine.ir.jaxpr import Literal, Var
from weft._engine.ir.program import MOST_EPILOGUE_ARGS


class EpilogueCandidate(NamedTuple):
    """A candidate: a group and the result of the matmul whose epilogue it may become. `late`: results of matmuls with epilogues."""

    graph: FusionGraph
    group: KernelGroup
    result: Var
    late: set[Var]


def _reads_later_values(epilogue: EpilogueCandidate) -> bool:
    graph, group, result, late = epilogue
    return any(
        graph.depth[v] >= graph.depth[result] + (v not in late)
        for v in group.leaves
        if v is not result
    )


#: rules that decide whether a group becomes the epilogue of a matmul
EPILOGUE_RULES: list[FusionRule] = [
    FusionRule(
        "one matmul",
        "a group can be the epilogue of one matmul only",
        lambda e: e.group.dot is not None,
        False,
    ),
    FusionRule(
        "no reductions",
        "a tile of the result does not contain whole rows",
        lambda e: e.group.domain is not None,
        False,
    ),
    FusionRule(
        "next kernels",
        "a matmul with an epilogue runs directly before it in the order of depths",
        lambda e: e.group.depth != e.graph.depth[e.result] + 1,
        False,
    ),
    FusionRule(
        "scalars", "a result with one element has no tiles", lambda e: e.result.aval.size < 2, False
    ),
    FusionRule(
        "arguments",
        "the matmul's routine passes at most this number of arguments to its epilogue",
        lambda e: len(e.group.leaves) + len(e.group.roots) > MOST_EPILOGUE_ARGS,
        False,
    ),
    FusionRule(
        "sizes",
        "each element of the matmul's result yields one element of each result",
        lambda e: any(v.aval.size != e.result.aval.size for v in e.group.roots),
        False,
    ),
    FusionRule(
        "later operands",
        "all other operands must be computed before the matmul begins",
        _reads_later_values,
        False,
    ),
    FusionRule(
        "element by element",
        "an epilogue can only read the current element of the matmul's result",
        lambda e: True,
        lambda e: all(
            _reads_own_element(e.graph, root, e.result, e.group.depth) for root in e.group.roots
        ),
    ),
]


def fuse_epilogues(graph: FusionGraph, groups: list[KernelGroup]) -> None:
    """Set `dot` of each group that becomes the epilogue of a matmul.

    A matmul with an epilogue runs between its own depth and the depth of the epilogue. All other operands of the epilogue must be
    computed before, so that the order by depth has no cycles.
    """
    readers: dict[Var, list] = {}
    for group in groups:
        for leaf in group.leaves:
            readers.setdefault(leaf, []).append(group)
    for atom in (*(a for _, eqn in graph.non_fusible for a in eqn.invars), *graph.jaxpr.outvars):
        if type(atom) is not Literal:
            readers.setdefault(graph.memory_of(atom), []).append(None)
    late: set[Var] = set()
    for _, eqn in graph.non_fusible:
        if lowering_kind(eqn) is not LoweringKind.CONTRACT:
            continue
        result = eqn.outvars[0]
        mine = readers.get(result, ())
        for group in mine:
            if group is not None and decide(
                EPILOGUE_RULES, EpilogueCandidate(graph, group, result, late)
            ):
                group.dot = eqn
                late.add(result)
                if len(mine) > 1:
                    group.roots.append(result)
                    graph.stored[result] = None
                break


def _reads_own_element(graph: FusionGraph, root: Var, result: Var, depth: int) -> bool:
    """Return whether `root` reads `result` only at its own flat position."""
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
            even = atom.aval.shape == var.aval.shape and isinstance(eqn.primitive, ElementwiseOp)
            if not even and (
                view is None
                or atom.aval.size != var.aval.size
                or not is_dense(view, var.aval.shape)
            ):
                return False
            if atom not in seen:
                seen.add(atom)
                stack.append(atom)
    return True


def _depends(graph: FusionGraph, root: Var, depth: int, along: dict[Var, bool]) -> None:
    """Add to `along` all values that a kernel of `depth` inlines to compute `root`: True if they depend on a value that is True there."""
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
