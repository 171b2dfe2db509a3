"""Records for the lowering slot of ops that are not functions of positions: the kind of kernel of
an op.

Next: `compiler.fusion.classify` reads them; `families` fills the slot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from weft._engine.util.record import record


@record
class ReduceSpec:
    """Lowering of a reduction over params['axes'].

    `combine` is add mul max min and or xor argmax argmin; `identity(dtype)` is its neutral Python
    value (unused for argmax and argmin).
    """

    combine: str
    identity: Callable[[Any], Any]


@record
class ScanSpec:
    """Lowering of a running reduction along params['axis'], from the end if params['reverse'].

    Without `combine`, params['combine'] combines scalars, and there is no neutral element.
    """

    combine: str | None
    identity: Callable[[Any], Any] | None


@record
class ScatterSpec:
    """Lowering of a scatter: updates are combined into the operand by `combine` (None: they replace it)."""

    combine: str | None


@record
class ContractSpec:
    """Lowering of a contraction, described by its dimension_numbers."""


@record
class GroupedSpec:
    """Lowering of a matmul for each group of rows, or of summed products (see `ops.ragged`)."""


@record
class JoinSpec:
    """Lowering of a concatenation along params['dimension'] by copies of operands in memory."""


@record
class HostLowering:
    """Lowering of an op that runs on the host.

    The host calls its own reference, or `into(*operands, *results, **params)`.

    `into` writes results in place. The reference of an `elementwise` one may run on parts of its
    operands in parallel.
    """

    into: Callable[..., None] | None = None
    elementwise: bool = False


@record
class SortSpec:
    """Lowering of an op on rows along the last dim, of a kind listed in `ir.program.Sort`."""

    kind: Literal["values", "order", "top"]


@record
class FftSpec:
    """Lowering of Fourier transforms over the last dims.

    Without native steps `into` writes the result, as in `HostLowering`.
    """

    into: Callable[..., None]


@record
class LibrarySpec:
    """Lowering of an op that is one library call per matrix, selected by its parameters."""


@record
class ExchangeSpec:
    """Lowering of an exchange with other processes or of its helpers (`ops.exchange`).

    The helpers are the position of this process along an axis and the mark where the result is
    needed.
    """

    role: Literal["exchange", "position", "done"]


@record
class ExpandSpec:
    """Lowering of a composite: `fn(*args, **params)` rebuilds it from other primitives."""

    fn: Callable[..., Any]
