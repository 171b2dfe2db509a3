"""The kinds of lowering of equations, determined by their `lower` slots, and the address maps of layout ops."""

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
from weft._engine.ir.build import KERNEL_DTYPES, LoopsBuilder
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
    HostLowering,
    JoinSpec,
    LibrarySpec,
    ReduceSpec,
    ScanSpec,
    ScatterSpec,
    SortSpec,
)
from weft._engine.util.record import record

# thresholds, measured on several machines
#: cost of a gathered element
_INDEX_COST = 6
#: number of statements that select an operand of a concatenation or the operand of a pad
_SELECTED_STATEMENTS = 4
#: maximal number of operands that one kernel concatenates
MOST_JOINED = 128
#: minimal extent of a vector dim that contains short inner dims
VECTOR_OUTER_ITERATIONS = 16
#: maximal number of rows in an unrolled iteration
UNROLLED_ROWS = 16
#: maximal number of adjacent elements per row in an unrolled iteration
UNROLLED_ELEMENTS = 8
#: minimal number of iterations of an unrolled loop
_UNROLLED_ITERATIONS = 4
#: minimal size of results whose guards cost more than compiling several loops
SPLIT_FROM_BYTES = 1 << 20
#: maximal number of splits of a loop
SPLIT_PLACES = 8
#: minimal number of elements of a segment, on average
SPLIT_SEGMENT = 64
#: minimal extent of each side of a tiled operand
TILE_LEAST_SIDE = 16


class LoweringKind(enum.Enum):
    """The way an equation is lowered. `PULL` and `REDUCE` are fused; `PULL` can compute any element of the result by its index."""

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
    HostLowering: LoweringKind.HOST,
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
# the kind, and whether a generated kernel computes it
_kinds: dict[Primitive, tuple[LoweringKind, bool]] = {}


def lowering_kind(eqn: Eqn) -> LoweringKind:
    """Return the way the compiler lowers an equation."""
    primitive = eqn.primitive
    cached = _kinds.get(primitive)
    if cached is None:
        kind = _lowering_kind(primitive)
        cached = _kinds[primitive] = kind, kind in _IN_KERNELS
    kind, in_kernel = cached
    if kind is LoweringKind.UPDATE and eqn.invars[0].aval.size <= eqn.invars[1].aval.size:
        kind = LoweringKind.PULL  # the update replaces the whole operand
    if in_kernel:
        for atom in (*eqn.invars, *eqn.outvars):  # all() of a generator takes twice as long
            if not KERNEL_DTYPES[atom.aval.dtype]:
                return LoweringKind.HOST  # ml_dtypes computes floats of at most 8 bits
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
    """Return the name of the scalar operation of an elementwise equation (see `core.primitive`); None for other equations."""
    return None if eqn is None else eqn.primitive.computes


def moves(eqn: Eqn | None) -> str | None:
    """Return the name of the movement of elements by an equation (see `core.primitive`); None for other equations."""
    return None if eqn is None else eqn.primitive.moves


def is_sum(eqn: Eqn | None) -> bool:
    """Return whether an equation sums elements along dims."""
    return (
        eqn is not None
        and isinstance(eqn.primitive, ReduceOp)
        and eqn.primitive.lower.combine == "add"
    )


def loop_of(eqn: Eqn) -> LoopLike | None:
    """Return the primitive of an equation if it is a loop; otherwise None."""
    return eqn.primitive if isinstance(eqn.primitive, LoopLike) else None


def eqn_cost(eqn: Eqn) -> int:
    """Return the approximate cost of one element, in simple vector instructions."""
    primitive = eqn.primitive
    if primitive.cost:
        return primitive.cost
    if isinstance(primitive, IndexOp):
        return _INDEX_COST
    return 0 if isinstance(primitive, MovementOp) else 1


def eqn_statements(eqn: Eqn, view: View | None) -> int:
    """Return the approximate number of statements that compute one element from the operands' elements.

    A view is an address. Any other movement selects one of its operands: it subtracts an offset, compares twice and selects."""
    if not isinstance(eqn.primitive, MovementOp):
        return eqn_cost(eqn)
    return _SELECTED_STATEMENTS * len(eqn.invars) if view is None else 1


@record
class View:
    """An affine map from elements of a result to elements of its operand.

    Element i of the result is element `offset + sum(i[d] * strides[d])` of the operand in row-major order. `maps[k]` is index k
    of the operand as a constant and (result dim, coefficient) pairs; None if it is not affine.
    """

    offset: int
    strides: tuple[int, ...]
    maps: tuple[tuple[int, tuple[tuple[int, int], ...]] | None, ...]

    def compose(self, inner: "View") -> "View | None":
        """Return the composition of this view with the view `inner` of another array; None if it is not affine."""
        offset, strides = inner.offset, [0] * len(self.strides)
        for step, index_map in zip(inner.strides, self.maps):
            if step == 0:
                continue
            if index_map is None:
                return None
            offset += step * index_map[0]
            for d, coefficient in index_map[1]:
                strides[d] += step * coefficient
        return View(offset, tuple(strides), (None,) * len(inner.maps))

    def after_dense(self, offset: int) -> "View":
        """Return this view as a view of an array that contains the operand at element `offset`."""
        return View(self.offset + offset, self.strides, (None,))


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a dense array.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def merge_adjacent_dims(entries: list[tuple]) -> list[tuple]:
    """Merge dims, given as (extent, strides...) outermost first, where adjacent dims are contiguous under all strides."""
    out: list[tuple] = []
    for entry in entries:
        if entry[0] == 1:
            continue
        if out and all(big == small * entry[0] for big, small in zip(out[-1][1:], entry[1:])):
            out[-1] = (out[-1][0] * entry[0], *entry[1:])
        else:
            out.append(entry)
    return out


def flat_index(
    b: LoopsBuilder, index: Iterable, strides: Iterable[int], first: Expr | int = 0
) -> Expr:
    """Return the flat index of the element at `index` of an array with the given strides that begins at element `first`."""
    return b.linear([(first, 1), *zip(index, strides)])


def index_variables(b: LoopsBuilder, shape: tuple[int, ...]) -> list[Expr]:
    """Return the loop variable of each dim; zero for dims of size 1."""
    return [b.const(0, "i64") if n == 1 else b.index(f"i{d}", n, d) for d, n in enumerate(shape)]


def is_dense(view: View, shape: tuple[int, ...]) -> bool:
    """Return whether a view of `shape` has the strides of a dense array."""
    return all(
        n == 1 or s == dense_stride
        for n, s, dense_stride in zip(shape, view.strides, row_major(shape))
    )


_views: dict = {}


def view_of(eqn: Eqn) -> View | None:
    """Return the address map of a layout or slice op, recorded from its lower rule; None if the op is more than a view."""
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
    """A stand-in for the operand of a lower rule that records the index of each element read."""

    def __init__(self, b: LoopsBuilder) -> None:
        self.mark = b.ref("operand", "i64")
        self.reads: list[tuple[tuple[Expr | int, ...], Expr | None]] = []

    def __call__(self, index: Iterable[Expr | int], guard: Expr | None = None) -> Expr:
        self.reads.append((tuple(index), guard))
        return self.mark

    def only_index(self, out: object) -> tuple[Expr | int, ...] | None:
        """Return the index of the operand's element that is the result; None if the rule read others or under a guard."""
        if isinstance(out, list | tuple):
            out = out[0]
        if out is not self.mark or len(self.reads) != 1 or self.reads[0][1] is not None:
            return None
        return self.reads[0][0]


def _probe(eqn: Eqn, operand: ShapedArray, result: ShapedArray) -> View | None:
    if operand.size == 0 or result.size == 0 or operand.dtype != result.dtype:
        return None
    b = LoopsBuilder()
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
    b: LoopsBuilder, index: Expr | int, of_dim: dict[int, int]
) -> tuple[int, tuple[tuple[int, int], ...]] | None:
    """Return an index as a constant and (result dim, coefficient) pairs; None if it is not affine in result dims."""
    form = ({}, index) if isinstance(index, int) else b.affine(index)
    if form is None or any(k not in of_dim for k in form[0]):
        return None
    return form[1], tuple((of_dim[k], c) for k, c in form[0].items())


def dilation_of(eqn: Eqn) -> int:
    """Return the number of result elements per operand element of an interior padding that is unrolled; otherwise 1."""
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
    """Return whether an equation concatenates or pads long parts of rows.

    Loops over such rows are split at the boundaries of the parts, so that each segment computes only its own part.
    """
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
