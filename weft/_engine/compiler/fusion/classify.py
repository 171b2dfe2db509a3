"""How an equation is lowered, by its `lower` slot, and how layout ops map addresses."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable

from weft._engine.core.primitive import (
    CollectiveOp,
    IndexOp,
    LoopLike,
    MovementOp,
    Primitive,
    ReduceOp,
    RegionOp,
    SliceOp,
    has_rule,
)
from weft._engine.ir.build import KERNEL_DTYPES, Builder
from weft._engine.ir.jaxpr import Eqn, Literal
from weft._engine.ir.loops import Const, Expr
from weft._engine.ir.rewrite import params_key
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.lowering_specs import (
    ContractSpec,
    ExchangeSpec,
    ExpandSpec,
    FftSpec,
    GroupedSpec,
    HostSpec,
    JoinSpec,
    LibrarySpec,
    ReduceSpec,
    ScanSpec,
    ScatterSpec,
    SortSpec,
)
from weft._engine.util.record import record

# thresholds, measured on several machines
#: cost of an element that is gathered
_INDEX_COST = 6
#: operands that one kernel concatenates
MOST_JOINED = 128
#: elements of a dim that is worth being the vector dim, or of one that has a short dim inside
VECTOR_OUTER_ITERATIONS = 16
#: rows that an unrolled iteration computes
UNROLLED_ROWS = 16
#: most adjacent elements that an unrolled iteration computes per row
UNROLLED_ELEMENTS = 8
#: fewest iterations of an unrolled loop
_UNROLLED_ITERATIONS = 4
#: results from which guards cost more than compiling several loops
SPLIT_FROM_BYTES = 1 << 20
#: where a loop is split, at most
SPLIT_PLACES = 8
#: elements of the mean segment
SPLIT_SEGMENT = 64
#: elements that a side of a tiled operand has
TILE_LEAST_SIDE = 16


class LoweringKind(enum.Enum):
    """What becomes of an equation. The first two are fused: `PULL` computes any element of the result when it is asked for."""

    PULL = "pull"
    REDUCE = "reduce"
    SCAN = "scan"
    SCATTER = "scatter"
    UPDATE = "update"
    CONTRACT = "contract"
    GROUPED = "grouped"
    JOIN = "join"
    SORT = "sort"
    LIBRARY = "library"
    FFT = "fft"
    HOST = "host"
    EXPAND = "expand"
    REGION = "region"
    COLLECTIVE = "collective"  # before stacking only
    EXCHANGE = "exchange"  # with other processes


_BY_SPEC = {
    ReduceSpec: LoweringKind.REDUCE,
    ScanSpec: LoweringKind.SCAN,
    ScatterSpec: LoweringKind.SCATTER,
    ContractSpec: LoweringKind.CONTRACT,
    HostSpec: LoweringKind.HOST,
    SortSpec: LoweringKind.SORT,
    LibrarySpec: LoweringKind.LIBRARY,
    FftSpec: LoweringKind.FFT,
    ExpandSpec: LoweringKind.EXPAND,
    ExchangeSpec: LoweringKind.EXCHANGE,
    GroupedSpec: LoweringKind.GROUPED,
    JoinSpec: LoweringKind.JOIN,
}
_IN_KERNELS = frozenset(
    {
        LoweringKind.PULL,
        LoweringKind.REDUCE,
        LoweringKind.SCAN,
        LoweringKind.SCATTER,
        LoweringKind.UPDATE,
        LoweringKind.CONTRACT,
        LoweringKind.GROUPED,
        LoweringKind.SORT,
    }
)
_kinds: dict[Primitive, tuple[LoweringKind, bool]] = {}  # and whether a kernel of ours does it


def lowering_kind(eqn: Eqn) -> LoweringKind:
    """What the compiler does with an equation."""
    primitive = eqn.primitive
    found = _kinds.get(primitive)
    if found is None:
        kind = _lowering_kind(primitive)
        found = _kinds[primitive] = kind, kind in _IN_KERNELS
    kind, in_kernel = found
    if kind is LoweringKind.UPDATE and eqn.invars[0].aval.size <= eqn.invars[1].aval.size:
        kind = LoweringKind.PULL  # nothing is left of the operand
    if in_kernel:
        for atom in (*eqn.invars, *eqn.outvars):  # all() of a generator takes twice as long
            if not KERNEL_DTYPES[atom.aval.dtype]:
                return LoweringKind.HOST  # 8-bit and narrower numbers: their meaning is ml_dtypes'
    return kind


def _lowering_kind(primitive: Primitive) -> LoweringKind:
    if isinstance(primitive, RegionOp):
        return LoweringKind.REGION
    if isinstance(primitive, CollectiveOp):
        return LoweringKind.COLLECTIVE
    if primitive.overwrites:
        return LoweringKind.UPDATE
    spec = primitive.lower
    if type(spec) in _BY_SPEC:
        return _BY_SPEC[type(spec)]
    if has_rule(spec):
        return LoweringKind.PULL
    if has_rule(primitive.reference):
        return LoweringKind.HOST
    raise NotImplementedError(
        f"compile: primitive {primitive.name!r} has neither a lower rule nor a reference."
    )


def computes(eqn: Eqn | None) -> str | None:
    """The operation on scalars that an elementwise equation is (see `core.primitive`)."""
    return None if eqn is None else eqn.primitive.computes


def moves(eqn: Eqn | None) -> str | None:
    """How an equation moves elements (see `core.primitive`)."""
    return None if eqn is None else eqn.primitive.moves


def is_sum(eqn: Eqn | None) -> bool:
    """Whether an equation adds up elements along dims."""
    return (
        eqn is not None
        and isinstance(eqn.primitive, ReduceOp)
        and eqn.primitive.lower.combine == "add"
    )


def loop_of(eqn: Eqn) -> LoopLike | None:
    """The op of an equation that is a loop."""
    return eqn.primitive if isinstance(eqn.primitive, LoopLike) else None


def eqn_cost(eqn: Eqn) -> int:
    """Return the rough cost of one element, in simple vector instructions."""
    primitive = eqn.primitive
    if primitive.cost:
        return primitive.cost
    if isinstance(primitive, IndexOp):
        return _INDEX_COST
    return 0 if isinstance(primitive, MovementOp) else 1


@record
class View:
    """Element i of the result is element `offset + sum(i[d] * strides[d])` of the operand, counted row-major.

    `maps[k]` gives index k of the operand: a constant and (result dim, coefficient) pairs; None where it is not affine.
    """

    offset: int
    strides: tuple[int, ...]
    maps: tuple[tuple[int, tuple[tuple[int, int], ...]] | None, ...]

    def over(self, inner: "View") -> "View | None":
        """This view of what `inner` shows, as one view; None if it is not one."""
        offset, strides = inner.offset, [0] * len(self.strides)
        for step, found in zip(inner.strides, self.maps):
            if step == 0:
                continue
            if found is None:
                return None
            offset += step * found[0]
            for d, coefficient in found[1]:
                strides[d] += step * coefficient
        return View(offset, tuple(strides), (None,) * len(inner.maps))

    def after_dense(self, offset: int) -> "View":
        """This view of an array that begins at element `offset` of a longer one."""
        return View(self.offset + offset, self.strides, (None,))


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a dense array.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def merged(entries: list[tuple]) -> list[tuple]:
    """Dims, (extent, strides...) each, outermost first: neighbours that advance together are one."""
    out: list[tuple] = []
    for entry in entries:
        if entry[0] == 1:
            continue
        if out and all(big == small * entry[0] for big, small in zip(out[-1][1:], entry[1:])):
            out[-1] = (out[-1][0] * entry[0], *entry[1:])
        else:
            out.append(entry)
    return out


def flat_index(b: Builder, index: Iterable, strides: Iterable[int], first: Expr | int = 0) -> Expr:
    """Return the element at an index of an array with these strides, whose first element is `first`."""
    return b.linear([(first, 1), *zip(index, strides)])


def index_variables(b: Builder, shape: tuple[int, ...]) -> list[Expr]:
    """Return the loop variable of each dim; zero for dims of size 1."""
    return [b.const(0, "i64") if n == 1 else b.index(f"i{d}", n, d) for d, n in enumerate(shape)]


def is_dense(view: View, shape: tuple[int, ...]) -> bool:
    """Whether a view of `shape` is stored as a dense array would be."""
    return all(n == 1 or s == want for n, s, want in zip(shape, view.strides, row_major(shape)))


_views: dict = {}


def view_of(eqn: Eqn) -> View | None:
    """How a layout or slice op renames addresses, found by asking its lower rule; None if it does more than that."""
    if not isinstance(eqn.primitive, MovementOp) or len(eqn.invars) != 1 or len(eqn.outvars) != 1:
        return None
    operand, result = eqn.invars[0], eqn.outvars[0]
    if type(operand) is Literal or not has_rule(eqn.primitive.lower):
        return None
    params = params_key(eqn.params)
    if params is None:
        return _probe(eqn, operand.aval, result.aval)
    key = (
        eqn.primitive,
        params,
        operand.aval.shape,
        result.aval.shape,
        operand.aval.dtype == result.aval.dtype,
    )
    if key not in _views:
        if len(_views) > 10000:
            _views.clear()
        _views[key] = _probe(eqn, operand.aval, result.aval)
    return _views[key]


class _ReadRecorder:
    """Stands for the operand of a lower rule, and records the index of each element read."""

    def __init__(self, b: Builder) -> None:
        self.mark = b.ref("operand", "i64")
        self.reads: list[tuple[tuple[Expr | int, ...], Expr | None]] = []

    def __call__(self, index: Iterable[Expr | int], guard: Expr | None = None) -> Expr:
        self.reads.append((tuple(index), guard))
        return self.mark

    def only_index(self, out: object) -> tuple[Expr | int, ...] | None:
        """Return the index of the element that a result is, if the rule read no other one and always this one."""
        if isinstance(out, list | tuple):
            out = out[0]
        if out is not self.mark or len(self.reads) != 1 or self.reads[0][1] is not None:
            return None
        return self.reads[0][0]


def _probe(eqn: Eqn, operand: ShapedArray, result: ShapedArray) -> View | None:
    if operand.size == 0 or result.size == 0 or operand.dtype != result.dtype:
        return None
    b = Builder()
    index = tuple(
        b.const(0, "i64") if n == 1 else b.index(f"i{d}", n) for d, n in enumerate(result.shape)
    )
    read = _ReadRecorder(b)
    out = eqn.primitive.lower(b, index, read, in_avals=[operand], out_avals=[result], **eqn.params)
    element = read.only_index(out)
    if element is None:
        return None
    of_dim = {id(x): d for d, x in enumerate(index) if not isinstance(x, Const)}
    form = b.affine(flat_index(b, element, row_major(operand.shape)))
    if form is None or any(k not in of_dim for k in form[0]):
        return None
    strides = [0] * len(result.shape)
    for k, c in form[0].items():
        strides[of_dim[k]] = c
    return View(form[1], tuple(strides), tuple([_index_map(b, i, of_dim) for i in element]))


def _index_map(
    b: Builder, index: Expr | int, of_dim: dict[int, int]
) -> tuple[int, tuple[tuple[int, int], ...]] | None:
    """Return an index as a constant and (result dim, coefficient) pairs; None if it is not affine in result dims."""
    form = ({}, index) if isinstance(index, int) else b.affine(index)
    if form is None or any(k not in of_dim for k in form[0]):
        return None
    return form[1], tuple((of_dim[k], c) for k, c in form[0].items())


def dilation_of(eqn: Eqn) -> int:
    """How many elements of the result there are for each of the operand, if it is padded between its elements; else 1."""
    if not isinstance(eqn.primitive, SliceOp) or moves(eqn) != "pad":
        return 1
    dims = [
        (n, inner + 1)
        for n, (_, _, inner) in zip(eqn.outvars[0].aval.shape, eqn.params["padding_config"])
        if n > 1
    ]
    if (
        not dims
        or dims[-1][1] > UNROLLED_ELEMENTS
        or dims[-1][0]
        < (VECTOR_OUTER_ITERATIONS if dims[-1][1] == 1 else _UNROLLED_ITERATIONS * dims[-1][1])
    ):
        return 1
    return math.prod([step for _, step in dims])


def joins_rows(eqn: Eqn) -> bool:
    """Whether it puts long parts into rows: loops over these are cut where parts begin and end, so that each element computes its own."""
    if not isinstance(eqn.primitive, SliceOp) or moves(eqn) not in ("concatenate", "pad"):
        return False
    out = eqn.outvars[0].aval
    if out.nbytes < SPLIT_FROM_BYTES:
        return False
    if moves(eqn) == "concatenate":
        d, parts = eqn.params["dimension"], eqn.invars
    else:
        padded = [d for d, config in enumerate(eqn.params["padding_config"]) if config != (0, 0, 0)]
        if len(padded) != 1 or eqn.params["padding_config"][padded[0]][2]:
            return False
        d, parts = padded[0], eqn.invars[:1]
    return (
        math.prod(out.shape[d + 1 :]) == 1
        and len(parts) <= SPLIT_PLACES
        and all(x.aval.shape[d] >= SPLIT_SEGMENT for x in parts)
    )
