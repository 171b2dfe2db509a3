"""Column reductions that join a kernel over rows, such as the gradient of a norm's scale.

In:   a reduction whose reduced dims are adjacent in memory, and the rows of a kernel.
Out:  `ColumnReduction`: how the reduction maps to the rows, or None if the kernel cannot compute it.

Each task of such a kernel has an equal share of the rows and a private row of partial results, to which it adds every row. The
shares are those of the split reduction (`compiler.rewrite.decompose`), so results do not depend on the number of threads.
"""

from __future__ import annotations

import math

from weft._engine.compiler.fusion.classify import is_dense, view_of
from weft._engine.ir.build import type_name
from weft._engine.ir.jaxpr import Eqn, Literal, Var
from weft._engine.util.machine_model import MODEL
from weft._engine.util.record import record

# thresholds, measured on several machines
#: parts that keep threads busy
_COLUMN_REDUCTION_PARTS = 4
#: results of a part: fewer are better kept in registers
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
    """Return the value of which `var` is only another shape."""
    if producer is None or (view := view_of(producer)) is None:
        return var
    source = producer.invars[0]
    is_reshape = source.aval.size == var.aval.size and is_dense(view, var.aval.shape)
    return source if is_reshape and type(source) is not Literal else var


def column_reduction_of(eqn: Eqn, source: Var) -> ColumnReduction | None:
    """The reduction `eqn` of `source` in terms of rows, whatever shape it gives the source."""
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
