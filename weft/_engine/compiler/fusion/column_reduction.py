"""Column reductions that join a kernel over rows, such as the gradient of the scale of a layer norm.

In:   a reduction whose reduced dims are adjacent in memory, and the rows of a kernel.
Out:  `ColumnReduction`: the reduction in terms of rows, or None if the kernel cannot compute it.

Each task of such a kernel has an equal share of the rows and a private row of partial results, to which it adds every row. The
shares are the parts of the split reduction (`compiler.rewrite.decompose`), so results do not depend on the number of threads.
"""

from __future__ import annotations

import math

from weft._engine.compiler.fusion.classify import is_dense, view_of
from weft._engine.ir.build import type_name
from weft._engine.ir.jaxpr import Eqn, Literal, Var
from weft._engine.util.machine_model import MODEL
from weft._engine.util.record import record

# thresholds, measured on several machines
#: minimal number of parts, so that threads are busy
_COLUMN_REDUCTION_PARTS = 4
#: minimal number of results of a part; fewer are faster in registers
_COLUMN_REDUCTION_SHORTEST = 64


_ARITHMETIC, _LOGIC = frozenset({"add", "mul", "min", "max"}), frozenset({"and", "or"})
_COMBINES = (
    {"bool": _LOGIC}
    | dict.fromkeys(("i32", "u32", "i64", "u64"), _ARITHMETIC | _LOGIC)
    | dict.fromkeys(("f32", "f64"), _ARITHMETIC)
)


@record
class ColumnReduction:
    """`parts` results of `columns` elements, each combined from `rows` successive rows of `source`."""

    source: Var
    parts: int
    rows: int
    columns: int


def before_reshape(var: Var, producer: Eqn | None) -> Var:
    """Return the operand of the reshape that produces `var`, or `var` itself."""
    if producer is None or (view := view_of(producer)) is None:
        return var
    source = producer.invars[0]
    is_reshape = source.aval.size == var.aval.size and is_dense(view, var.aval.shape)
    return source if is_reshape and type(source) is not Literal else var


def column_reduction_of(eqn: Eqn, source: Var) -> ColumnReduction | None:
    """Return the reduction `eqn` of `source`, or of a reshape of it, in terms of rows; None if it has no such form or is too small."""
    operand, axes = eqn.invars[0].aval, tuple(sorted(eqn.params["axes"]))
    if (
        not axes
        or eqn.primitive.lower.combine not in _COMBINES.get(type_name(operand.dtype), ())
        or any(operand.shape[d] > 1 for d in range(axes[0], axes[-1]) if d not in axes)
    ):
        return None
    parts, columns = math.prod(operand.shape[: axes[0]]), math.prod(operand.shape[axes[-1] + 1 :])
    rows = operand.size // (parts * columns) if operand.size else 0
    if (
        rows < 2
        or columns < _COLUMN_REDUCTION_SHORTEST
        or (operand.size > MODEL.serial_elements and parts < _COLUMN_REDUCTION_PARTS)
    ):
        return None
    return ColumnReduction(source, parts, rows, columns)
