"""Inline rules: the rules that decide whether a kernel computes an operand itself or loads it.

In:   a `graph.FusionUse`: an equation, and an operand with a producer.
Out:  `INLINE_RULES`: the first rule that applies decides whether the equation computes the operand in its own kernel. Other
      operands are stored, and the equation runs in a later kernel.
Laws: a rule depends on kinds and costs, never on names of operations. To add a rule, see `docs/adding-a-fusion-rule.md`.
"""

from __future__ import annotations

from weft._engine.compiler.fusion.classify import (
    MOST_JOINED,
    UNROLLED_ROWS,
    LoweringKind,
    dilation_of,
    joins_rows,
    lowering_kind,
    moves,
)
from weft._engine.compiler.fusion.column_reduction import before_reshape
from weft._engine.compiler.fusion.graph import (
    EXPENSIVE,
    LONGEST_CHAIN,
    MOST_SPREAD,
    FusionRule,
    FusionUse,
)
from weft._engine.compiler.fusion.reduction_domain import is_trailing, reduced_dims
from weft._engine.compiler.fusion.window_analysis import WIDEST_WINDOW
from weft._engine.core.primitive import IndexOp, MovementOp
from weft._engine.util.machine_model import MODEL

# thresholds, measured on several machines
#: maximal total cost of dilated values that are inlined into one value
_MOST_SPREAD_SUM = 512
#: maximal cost of an inlined part of a concatenated row
_MOST_CONCATENATED = 20
#: minimal number of columns at which the cost of a value computed once per row is negligible
_ONCE_PER_ROW_COLUMNS = 16


def _reduces(use: FusionUse) -> bool:
    return lowering_kind(use.eqn) is LoweringKind.REDUCE


def _reduces_stored_columns(use: FusionUse) -> bool:
    graph, shape, axes = (
        use.graph,
        use.operand.aval.shape,
        reduced_dims(use.eqn) if _reduces(use) else (),
    )
    if (
        not axes
        or use.operand in graph.domain
        or is_trailing(shape, axes)
        or use.operand.aval.size <= MODEL.serial_elements
    ):
        return False
    same = use.operand, before_reshape(use.operand, graph.producer[use.operand])
    return any(
        v in stored for v in same for stored in (graph.materialized, graph.demanded, graph.roots)
    )


def _is_expensive(use: FusionUse) -> bool:
    return use.graph.costs[use.operand].cost >= EXPENSIVE


def _repeats_little_work(use: FusionUse) -> bool:
    """Return whether a view repeats little work: it shows no element twice, repeats a cheap value, or repeats one element per row."""
    out, size = use.eqn.outvars[0].aval, use.operand.aval.size
    strides = () if use.view is None else use.view.strides
    inner, extent = next(
        ((s, n) for s, n in zip(reversed(strides), reversed(out.shape)) if n > 1), (0, 1)
    )
    return (
        not _is_expensive(use)
        or size == 1
        or out.size <= size
        or (inner == 0 and extent >= _ONCE_PER_ROW_COLUMNS)
    )


def _is_long_when_dilated(use: FusionUse) -> bool:
    cost = use.graph.costs[use.operand].dilated_cost
    return use.dilated_cost + cost > _MOST_SPREAD_SUM or (use.in_domain and cost >= EXPENSIVE)


def _is_narrow_window(use: FusionUse) -> bool:
    graph, operand = use.graph, use.operand
    return (
        dilation_of(use.eqn) > 1
        and graph.windows[use.eqn.outvars[0]] <= WIDEST_WINDOW
        and graph.costs[operand].dilated_cost + graph.distinct_cost(operand) <= MOST_SPREAD
    )


def _is_cheap_part_of_rows(use: FusionUse) -> bool:
    return (
        joins_rows(use.eqn)
        and use.eqn.outvars[0] not in use.graph.reduction_inputs
        and use.graph.distinct_cost(use.operand) < _MOST_CONCATENATED
    )


def _has_much_code(use: FusionUse) -> bool:
    """Return whether a kernel that computes the operand is large. The parts of a concatenation are few and cheap by other rules."""
    others = use.inlined if use.pointwise else ()
    return use.graph.has_much_code([*others, use.operand])


def _joins_many(use: FusionUse) -> bool:
    """Return whether inlining a concatenation into another would concatenate too many operands."""
    producer = use.graph.producer[use.operand]
    return (
        use.eqn.primitive.moves == moves(producer) == "concatenate"
        and len(use.eqn.invars) * len(producer.invars) > MOST_JOINED
    )


def _repeats_work(use: FusionUse) -> bool:
    """Return whether elements of a costly or gathered operand may be read more than once."""
    each_once = (
        isinstance(use.eqn.primitive, MovementOp)
        and use.eqn.outvars[0].aval.size < 2 * use.operand.aval.size
    )
    return _is_expensive(use) or (
        isinstance(use.graph.producer[use.operand].primitive, IndexOp) and not each_once
    )


INLINE_RULES: list[FusionRule] = [
    FusionRule(
        "long chains",
        "the compile time of LLVM grows faster than the size of a kernel",
        lambda use: use.graph.costs[use.operand].inlined >= LONGEST_CHAIN,
        False,
    ),
    FusionRule(
        "much code",
        "each view of a value computes it again, so code doubles where two views meet in a kernel, and the compile time of LLVM "
        "grows faster than the size of a kernel",
        _has_much_code,
        False,
    ),
    FusionRule(
        "many operands",
        "the compile time of LLVM grows faster than the size of a kernel",
        _joins_many,
        False,
    ),
    FusionRule(
        "dilated operands",
        "padding elements have separate code, which each pass over a row repeats",
        lambda use: use.graph.costs[use.operand].dilation > 1 and _is_long_when_dilated(use),
        False,
    ),
    FusionRule(
        "reduction domains",
        "values that follow a reduction stay in its kernel if they are read row by row",
        lambda use: use.operand in use.graph.domain,
        lambda use: use.alignment is not None,
    ),
    FusionRule(
        "pointwise",
        "every element is read once, by the element at its position",
        lambda use: use.pointwise,
        True,
    ),
    FusionRule(
        "reduced columns in memory",
        "a reduction over outer dims is a separate kernel if its operand is stored anyway",
        _reduces_stored_columns,
        False,
    ),
    FusionRule("reductions", "every element is read once", _reduces, True),
    FusionRule(
        "values in memory",
        "a value that is stored for another reader is loaded",
        lambda use: use.operand in use.graph.demanded,
        False,
    ),
    FusionRule(
        "views",
        "a view is an address, unless it repeats costly work",
        lambda use: use.view is not None,
        _repeats_little_work,
    ),
    FusionRule(
        "narrow windows",
        "in the gradient of a window, each element is in a few windows only",
        _is_narrow_window,
        lambda use: dilation_of(use.eqn) * use.graph.costs[use.operand].dilation <= UNROLLED_ROWS,
    ),
    FusionRule(
        "parts of rows",
        "loops are split where parts begin, so that each segment computes its own part only",
        _is_cheap_part_of_rows,
        True,
    ),
    FusionRule(
        "repeated work",
        "a costly value is computed once and stored",
        _repeats_work,
        lambda use: use.operand.aval.size == 1,
    ),
    FusionRule(
        "cheap work", "recomputing it costs less than memory traffic", lambda use: True, True
    ),
]
