"""Specs in the lowering slot of ops that are not functions of positions: the kind of kernel that the compiler writes for an op.

Next: `compiler.fusion.classify` reads them; `families` fills the slot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from weft._engine.util.record import record


@record
class ReduceSpec:
    """Lowering of a reduction over params['axes']: `combine` is add mul max min and or xor argmax argmin;
    `identity(dtype)` is its neutral Python value (of no use for argmax and argmin)."""

    combine: str
    identity: Callable[[Any], Any]


@record
class ScanSpec:
    """Lowering of a running reduction along params['axis'], from the end if params['reverse']. Without `combine`, it is what
    params['combine'] does to scalars, and nothing is known to be neutral."""

    combine: str | None
    identity: Callable[[Any], Any] | None


@record
class ScatterSpec:
    """Lowering of a scatter: updates are combined into the operand by `combine` (None: they replace it)."""

    combine: str | None


@record
class ContractSpec:
    """Lowering of a contraction, which its dimension_numbers describe."""


@record
class GroupedSpec:
    """Lowering of a matmul for each group of rows, or of summed products (see `ops.ragged`)."""


@record
class JoinSpec:
    """Lowering of a concatenation along params['dimension'] by copies, of operands that are in memory."""


@record
class HostSpec:
    """Lowering of an op that runs its own reference on the host, or `into(*operands, *results, **params)` where it knows
    how to write its results in place. The reference of one that is `elementwise` may run on parts of its operands at once."""

    into: Callable[..., None] | None = None
    elementwise: bool = False


@record
class SortSpec:
    """Lowering of an op on rows along the last dim, of a kind that `ir.program.Sort` lists."""

    kind: Literal["values", "order", "top"]


@record
class FftSpec:
    """Lowering of Fourier transforms over the last dims; what has no native steps is written by `into`, as in `HostSpec`."""

    into: Callable[..., None]


@record
class LibrarySpec:
    """Lowering of an op that is one call of a library's routine per matrix, which its parameters choose."""


@record
class ExchangeSpec:
    """Lowering of an exchange with other processes, or of what belongs to one (`ops.exchange`): the number of this process along an
    axis, or the mark where the result of an exchange is needed."""

    role: Literal["exchange", "position", "done"]


@record
class ExpandSpec:
    """Lowering of a composite: `fn(*args, **params)` rebuilds it from other primitives."""

    fn: Callable[..., Any]
