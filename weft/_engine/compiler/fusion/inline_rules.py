"""The rules that decide what a kernel computes inside itself, and what it reads from memory.

In:   a `graph.Use`: an equation, and an operand that some equation computes.
Out:  `INLINE_RULES`: of these the first that applies decides whether the equation computes the operand in its own kernel. What is not
      inlined is stored, and the equation runs in a later kernel.
Laws: a rule asks for kinds and costs, never for names of operations. To add one, see `docs/adding-a-fusion-rule.md`.
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
    Use,
)
from weft._engine.compiler.fusion.reduction_domain import is_trailing, reduced_dims
from weft._engine.compiler.fusion.window_analysis import WIDEST_WINDOW
from weft._engine.core.primitive import IndexOp, MovementOp
from weft._engine.util.machine_model import MODEL

# thresholds, measured on several machines
#: most cost of all dilated values that are added up
_MOST_SPREAD_SUM = 512
#: most cost of a part of a concatenated row that is computed where it is read
_MOST_CONCATENATED = 20
#: cost of the code of one value with all that is inlined into it
_LARGEST_CODE = 384
#: columns from which what is computed once a row costs little
_ONCE_PER_ROW_COLUMNS = 16


def _reduces(use: Use) -> bool:
    return lowering_kind(use.eqn) is LoweringKind.REDUCE


def _reduces_stored_columns(use: Use) -> bool:
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
        v in kept for v in same for kept in (graph.materialized, graph.demanded, graph.roots)
    )


def _is_expensive(use: Use) -> bool:
    return use.graph.costs[use.operand].cost >= EXPENSIVE


def _reads_little_again(use: Use) -> bool:
    """Whether a view repeats no work: it shows no element twice, or repeats what is cheap, or one element along a row."""
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


def _is_long_when_dilated(use: Use) -> bool:
    cost = use.graph.costs[use.operand].dilated_cost
    return use.dilated_cost + cost > _MOST_SPREAD_SUM or (use.in_domain and cost >= EXPENSIVE)


def _is_narrow_window(use: Use) -> bool:
    graph, operand = use.graph, use.operand
    return (
        dilation_of(use.eqn) > 1
        and graph.windows[use.eqn.outvars[0]] <= WIDEST_WINDOW
        and graph.costs[operand].dilated_cost + graph.distinct_cost(operand) <= MOST_SPREAD
    )


def _is_cheap_part_of_rows(use: Use) -> bool:
    return (
        joins_rows(use.eqn)
        and use.eqn.outvars[0] not in use.graph.reduction_inputs
        and use.graph.distinct_cost(use.operand) < _MOST_CONCATENATED
    )


def _has_much_code(use: Use) -> bool:
    """Whether the code of an operand has grown too large; its cost, which counts shared values again, is never below."""
    limit, operand = _LARGEST_CODE, use.operand
    return use.graph.costs[operand].cost >= limit and use.graph.code_size(operand) >= limit


def _joins_many(use: Use) -> bool:
    """Whether a kernel would concatenate more operands than it should, because one of them is a concatenation."""
    maker = use.graph.producer[use.operand]
    return (
        use.eqn.primitive.moves == moves(maker) == "concatenate"
        and len(use.eqn.invars) * len(maker.invars) > MOST_JOINED
    )


def _repeats_work(use: Use) -> bool:
    """Whether elements of something costly, or of something gathered, may be read more than once."""
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
        "the time of LLVM grows faster than a kernel",
        lambda use: use.graph.costs[use.operand].inlined >= LONGEST_CHAIN,
        False,
    ),
    FusionRule(
        "much code",
        "views of one value that meet in a kernel compute it once each, so that code doubles with every pair",
        _has_much_code,
        False,
    ),
    FusionRule("many operands", "the time of LLVM grows faster than a kernel", _joins_many, False),
    FusionRule(
        "dilated operands",
        "elements between others have code of their own, in each pass over a row",
        lambda use: use.graph.costs[use.operand].dilation > 1 and _is_long_when_dilated(use),
        False,
    ),
    FusionRule(
        "reduction domains",
        "what follows a reduction stays in its kernel while it is read row by row",
        lambda use: use.operand in use.graph.domain,
        lambda use: use.alignment is not None,
    ),
    FusionRule(
        "pointwise",
        "every element is read where it is needed, once",
        lambda use: use.pointwise,
        True,
    ),
    FusionRule(
        "reduced columns in memory",
        "a sum over outer dims is a kernel of its own: it reads what is stored anyway",
        _reduces_stored_columns,
        False,
    ),
    FusionRule("reductions", "every element is read once", _reduces, True),
    FusionRule(
        "values in memory",
        "what is stored for another reader is loaded",
        lambda use: use.operand in use.graph.demanded,
        False,
    ),
    FusionRule(
        "views",
        "a view is an address, unless it repeats costly work",
        lambda use: use.view is not None,
        _reads_little_again,
    ),
    FusionRule(
        "narrow windows",
        "the gradient of a window computes each element from the few windows that it is in",
        _is_narrow_window,
        lambda use: dilation_of(use.eqn) * use.graph.costs[use.operand].dilation <= UNROLLED_ROWS,
    ),
    FusionRule(
        "parts of rows",
        "loops are cut where parts begin, so that each part computes its own elements only",
        _is_cheap_part_of_rows,
        True,
    ),
    FusionRule(
        "repeated work",
        "what is costly is computed once, and stored",
        _repeats_work,
        lambda use: use.operand.aval.size == 1,
    ),
    FusionRule("cheap work", "computing it again costs less than memory", lambda use: True, True),
]
