"""Factories of op families; facts that all members of a family share are stated here.

In:   the facts that distinguish an op (its dtypes, its NumPy reference, its derivative, its scalar
      code).
Out:  a `Primitive` with every slot filled.
Laws: an elementwise op takes operands of one shape or of rank 0; its results are weakly typed only
      if all operands are. Per-operand rules never receive symbolic zeros. A linear op states its
      transpose next to its jvp. This module imports no op: the few that rules need
      (`broadcast_in_dim`, `reduce_sum`, ...) are bound by name.

The lower slot holds a function of positions (elementwise, layout, slice, index, random), or a
record of `lowering_specs`.

Next: `axis_families`, ops along dims.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeAlias

import numpy as np

from weft._engine.core.annotations import cast
from weft._engine.core.primitive import (
    ElementwiseOp,
    Primitive,
    declare_unsupported,
    registry,
)
from weft._engine.core.trace import UndefPrimal, Zero, typeof
from weft._engine.core.typed_scalars import scalar_of_dtype
from weft._engine.cpython.code_objects import caller_globals, rename
from weft._engine.ir.factors import FactorRule, elementwise_rule
from weft._engine.ir.registry import ScalarFunction, functions
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.placement import reshard_like
from weft._engine.util import dtypes
from weft._engine.util.dispatch_state import on_clear_caches
from weft._engine.util.errors import ShapeError, describe
from weft._engine.util.lazy import scipy_module
from weft._engine.util.source import user_frame
from weft._engine.util.trees.narrowing import class_of, is_numpy_scalar

if TYPE_CHECKING:
    from types import EllipsisType

    from weft._engine.core.primitive import BatchAxis
    from weft._engine.ir.build import LoopsBuilder
    from weft._engine.ops.rule_types import (
        Array,
        ArrayLike,
        Avals,
        BatchDims,
        ElementIndex,
        ElementReader,
        Emit,
        Ints,
        NumPyArray,
        OperandRule,
        Reference,
        Value,
        Values,
    )

# --- what the compiler reads ------------------------------------------------------------------------------------------


# --- dtype groups -----------------------------------------------------------------------------------------------------

Group = Literal["bool", "integer", "unsigned", "signed", "floating", "complex"]

BOOL: tuple[Group, ...] = ("bool",)
INTEGER: tuple[Group, ...] = ("integer",)
FLOATING: tuple[Group, ...] = ("floating",)
COMPLEX: tuple[Group, ...] = ("complex",)
INEXACT: tuple[Group, ...] = ("floating", "complex")
REAL: tuple[Group, ...] = ("integer", "floating")
NUMBER: tuple[Group, ...] = ("integer", "floating", "complex")
BOOL_OR_INTEGER: tuple[Group, ...] = ("bool", "integer")
ORDERED: tuple[Group, ...] = ("bool", "integer", "floating")
ANY: tuple[Group, ...] = ("bool", "integer", "floating", "complex")

_ABSTRACT = {
    "bool": np.bool_,
    "integer": np.integer,
    "unsigned": np.unsignedinteger,
    "signed": np.signedinteger,
    "floating": np.floating,
    "complex": np.complexfloating,
}


@functools.cache
def dtype_in(dtype: dtypes.DTypeLike, groups: tuple[Group, ...]) -> bool:
    """Return whether `dtype` belongs to one of `groups`.

    >>> dtype_in(np.dtype("int8"), REAL), dtype_in(np.dtype("bool"), REAL)
    (True, False)
    """
    return any(dtypes.issubdtype(dtype, _ABSTRACT[g]) for g in groups)


def check_dtype(
    name: str, aval: ShapedArray, groups: tuple[Group, ...], position: int | None = None
) -> None:
    """Raise TypeError unless the operand's dtype is one that op `name` accepts."""
    if dtype_in(aval.dtype, groups):
        return
    if aval.dtype == dtypes.float0:
        raise TypeError(
            f"{name}: float0s do not support any operations by design: they are the derivatives with respect to integers, "
            f"zeros without a meaning, got {aval.str_short()}."
        )
    where = "" if position is None else f" at position {position}"
    raise TypeError(
        describe(
            name,
            f"does not accept dtype {aval.dtype.name}{where}.",
            [("operand", aval.str_short())],
            user_frame(),
            f"Accepted are dtypes of kind {', '.join(groups)}.",
            "Cast with convert_element_type or .astype.",
        )
    )


def shape_error(
    name: str, what: str, table: Sequence[tuple[Any, ...]], rule: str = "", remedy: str = ""
) -> ShapeError:
    """Return a ShapeError in the usual layout, with the user's line."""
    return ShapeError(describe(name, what, table, user_frame(), rule, remedy))


def operand_table(avals: Avals) -> list[tuple[str, str]]:
    """Return table rows with operand types, for an error message."""
    names = ["operand"] if len(avals) == 1 else ["lhs", "rhs"] if len(avals) == 2 else None
    return [(names[i] if names else f"operand {i}", a.str_short()) for i, a in enumerate(avals)]


def canonical_dims(name: str, dims: Sequence[SupportsIndex], ndim: int) -> tuple[int, ...]:
    """Return dims as non-negative ints; raise ShapeError if one is out of range or repeated."""
    out: list[int] = []
    for d in dims:
        try:
            at = operator.index(d)
        except TypeError as error:
            raise TypeError(f"{name}: got {d!r} among the dims {tuple(dims)}: {error}.") from None
        if not -ndim <= at < ndim:
            raise shape_error(
                name, f"axis {at} is out of bounds for an operand of rank {ndim}.", ()
            )
        out.append(at + ndim if at < 0 else at)
    if len(set(out)) != len(out):
        raise shape_error(name, f"duplicate value in 'axes' {tuple(dims)}.", ())
    return tuple(out)


_NO_AXES: frozenset[Any] = frozenset()


def joined_vma(avals: Avals) -> frozenset[Any]:
    """Return the manual mesh axes over which any of the operands varies."""
    return _NO_AXES.union(*(a.vma for a in avals))


# --- helpers for rules


def full(shape: Sequence[int], fill: Any, dtype: Any) -> Any:
    """Return an array of `shape` filled with `fill`."""
    return broadcast(np.asarray(fill, dtype)[()], tuple(shape))


def zeros(aval: ShapedArray) -> Any:
    """Return zeros of type `aval`."""
    if aval.dtype == dtypes.float0:
        return np.zeros(aval.shape, dtypes.float0)
    blank = reshard_like(broadcast(scalar_of_dtype(0, aval.dtype), aval.shape), aval)
    return cast(blank, aval.vma) if aval.vma else blank


zeros_like_aval = zeros


def instantiate(tangent: Any) -> Any:
    """Return a symbolic zero as an array of zeros, and other tangents unchanged."""
    return zeros(tangent.aval) if type(tangent) is Zero else tangent


def zero_tangent(out: Any) -> Zero:
    """Return the symbolic zero tangent of `out`."""
    return Zero(typeof(out).to_tangent_aval())


def add_tangents(x: Any, y: Any) -> Any:
    """Return the sum of two tangents (or cotangents); either may be a symbolic zero."""
    if type(x) is Zero:
        return y
    return x if type(y) is Zero else registry["add_any"].bind(x, y)


def broadcast(x: Any, shape: Ints) -> Any:
    """Repeat a rank-0 `x` to `shape`; return an array of that shape unchanged."""
    if typeof(x).shape == shape:
        return x
    return registry["broadcast_in_dim"].bind(x, shape=shape, broadcast_dimensions=())


def move_dim(x: Any, source: int, target: int) -> Any:
    """Move dim `source` of `x` to position `target`; the other dims keep their order."""
    if source == target:
        return x
    order = [d for d in range(typeof(x).ndim) if d != source]
    order.insert(target, source)
    return registry["transpose"].bind(x, permutation=tuple(order))


def match_dtypes(*args: Any) -> tuple[Any, ...]:
    """Give weak rank-0 operands the dtype of the others. Python numbers stay Python numbers if all operands are weak.

    >>> match_dtypes(np.ones(2, np.float32), 2.0)[1].dtype
    dtype('float32')
    """
    return _match_dtypes(args, [typeof(x) for x in args])


def match(*args: Any) -> tuple[Any, ...]:
    """Return operands with matching dtypes (see `match_dtypes`) and repeated dims of size 1."""
    avals = [typeof(x) for x in args]
    shape = avals[0].shape
    if [a for a in avals if a.shape != shape and len(a.shape) == len(shape)]:
        sizes = [set(dims) - {1} or {1} for dims in zip(*[a.shape for a in avals if a.shape])]
        if (
            all(len(size) == 1 for size in sizes)
            and len({len(a.shape) for a in avals if a.shape}) == 1
        ):
            # otherwise the type rule reports the shapes
            shape = tuple([n for size in sizes for n in size])
            return match_dtypes(*[_stretch(x, a.shape, shape) for x, a in zip(args, avals)])
    return _match_dtypes(args, avals)


def _stretch(x: Any, have: Ints, shape: Ints) -> Any:
    if not have or have == shape:
        return x
    dims = tuple(d for d, n in enumerate(have) if n == shape[d])
    flat = registry["reshape"].bind(x, new_sizes=tuple(have[d] for d in dims))
    return registry["broadcast_in_dim"].bind(flat, shape=shape, broadcast_dimensions=dims)


def _match_dtypes(args: tuple[Any, ...], avals: list[ShapedArray]) -> tuple[Any, ...]:
    first = avals[0]
    if not [a for a in avals if a.dtype != first.dtype or a.weak_type != first.weak_type]:
        return args
    adapts = [a.weak_type and a.ndim == 0 for a in avals]
    fixed = [a for a, flexible in zip(avals, adapts) if not flexible]
    if any(a.dtype != fixed[0].dtype for a in fixed):
        return _match_numpy_scalars(args, avals)
    if fixed:
        target = next((a for a in fixed if not a.weak_type), fixed[0])
    else:
        target = max(avals, key=lambda a: _rank(a.dtype))
    return tuple(
        _adopt(x, a, target) if flexible else x for x, a, flexible in zip(args, avals, adapts)
    )


def _match_numpy_scalars(args: tuple[Any, ...], avals: list[ShapedArray]) -> tuple[Any, ...]:
    """Match operands of different dtypes if NumPy scalars keep theirs.

    Without x64, 64-bit scalars count as 32-bit ones, but not among 64-bit arrays. If nothing
    matches, the type rule reports the dtypes.
    """
    whole: list[Any] = [
        scalar_of_dtype(x, x.dtype) if is_numpy_scalar(x) and x.dtype != a.dtype else x
        for x, a in zip(args, avals)
    ]
    return match_dtypes(*whole) if any(x is not y for x, y in zip(args, whole)) else args


_RANKS = ("bool", "integer", "floating", "complex")
_PYTHON_NUMBERS = (bool, int, float, complex)  # same order as _RANKS


@functools.lru_cache(maxsize=256)
def _rank(dtype: Any) -> int:
    return next((i for i, group in enumerate(_RANKS) if dtype_in(dtype, (group,))), -1)


def _adopt(x: Any, aval: ShapedArray, target: ShapedArray) -> Any:
    rank = _rank(target.dtype)
    if _rank(aval.dtype) > rank or (
        aval.dtype == target.dtype and (target.weak_type or type(x) not in _PYTHON_NUMBERS)
    ):
        return x  # the type rule reports a loss of information; or the dtype matches already
    if type(x) in _PYTHON_NUMBERS:
        weak = _PYTHON_NUMBERS[rank](x) if target.weak_type else x
        return (
            weak
            if target.weak_type and typeof(weak).dtype == target.dtype
            else scalar_of_dtype(x, target.dtype)
        )
    return registry["convert_element_type"].bind(
        x, new_dtype=target.dtype, weak_type=target.weak_type, sharding=None
    )


# --- NumPy references


def is_narrow(dtype: Any) -> bool:
    """Return whether references compute this dtype in float32 and round at the end."""
    return dtype.itemsize <= 2 and dtypes.kinds[dtype] == "f"


def in_float32(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fn` on NumPy values; floats of at most 16 bits are computed in float32."""

    @functools.wraps(fn)
    def call(*xs: Any, **params: Any):
        narrow = next((x.dtype for x in xs if is_narrow(x.dtype)), None)
        with np.errstate(all="ignore"):
            if narrow is None:
                return fn(*xs, **params)
            out = np.asarray(
                fn(*[x.astype(np.float32) if is_narrow(x.dtype) else x for x in xs], **params)
            )
            return out.astype(narrow) if out.dtype == np.float32 else out

    return call


# --- elementwise ------------------------------------------------------------------------------------------------------


def broadcast_shapes(name: str, avals: Avals) -> tuple[int, ...]:
    """Return the common shape of elementwise operands; rank-0 operands fit any shape."""
    shape = next((a.shape for a in avals if a.ndim), ())
    if any(a.ndim and a.shape != shape for a in avals):
        raise shape_error(
            name,
            "got operands of different shapes.",
            operand_table(avals),
            "Operands of an elementwise operation need equal shapes (or rank 0).",
            "Broadcast them first, or use weft.numpy, which broadcasts.",
        )
    return shape


def same_dtypes(name: str, avals: Avals) -> None:
    """Raise TypeError unless all operands have one dtype."""
    if all(a.dtype == avals[0].dtype for a in avals):
        return
    raise TypeError(
        describe(
            name,
            "requires arguments to have the same dtypes, got "
            f"{', '.join(a.dtype.name for a in avals)}.",
            operand_table(avals),
            user_frame(),
            "Operations of lax do not promote.",
            "Cast one with .astype, or use weft.numpy, which promotes.",
        )
    )


def elementwise_type(
    name: str, groups: tuple[Group, ...], result: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Return the type rule of an elementwise op on operands of one dtype.

    `result(dtype, **params)` returns the dtype of the result if it differs.
    """

    @functools.lru_cache(maxsize=256)  # long programs repeat the same types
    def of(*avals: ShapedArray):
        return compute(avals, {})

    def compute(avals: Avals, params: dict[str, Any]):
        for i, aval in enumerate(avals):
            check_dtype(name, aval, groups, i if len(avals) > 1 else None)
        same_dtypes(name, avals)
        shape = broadcast_shapes(name, avals)
        dtype = avals[0].dtype if result is None else result(avals[0].dtype, **params)
        return ShapedArray(shape, dtype, all(a.weak_type for a in avals), None, joined_vma(avals))

    on_clear_caches(of.cache_clear)
    return lambda *avals, **params: compute(avals, params) if params else of(*avals)


def batch_elementwise(primitive: Primitive) -> Callable[..., Any]:
    """Return the batch rule: batch dims are aligned; unbatched operands with dims are repeated."""

    def batch(axis: BatchAxis, args: Values, dims: BatchDims, **params: Any):
        ranks = [typeof(x).ndim - (d is not None) for x, d in zip(args, dims)]
        rank = max(ranks)
        at = next((d for d, r in zip(dims, ranks) if d is not None and r == rank), 0)
        full_shape = _batched_shape(axis.size, args, dims, ranks, rank, at)
        args = [_align(x, d, r, rank, at, full_shape) for x, d, r in zip(args, dims, ranks)]
        out = primitive.bind(*args, **params)
        return (out, [at] * len(out)) if primitive.multiple_results else (out, at)

    return batch


def _batched_shape(
    size: int, args: Values, dims: BatchDims, ranks: Sequence[int], rank: int, at: int
) -> tuple[int, ...]:
    i = ranks.index(rank)
    shape = list(typeof(args[i]).shape)
    if (dim := dims[i]) is not None:
        del shape[dim]
    shape.insert(at, size)
    return tuple(shape)


def _align(x: Value, dim: int | None, rank: int, out_rank: int, at: int, shape: Ints):
    if dim is None and rank == 0:
        return x
    if dim is not None and rank == out_rank:
        return move_dim(x, dim, at)
    operand_dims = (at,) if rank == 0 else tuple(d for d in range(len(shape)) if d != at)
    return registry["broadcast_in_dim"].bind(x, shape=shape, broadcast_dimensions=operand_dims)


def unbroadcast(ct: Any, aval: ShapedArray) -> Any:
    """Return the cotangent of an operand of type `aval`: a sum of `ct` if it was repeated."""
    shape = typeof(ct).shape
    if aval.ndim or not shape:
        return ct
    return registry["reduce_sum"].bind(ct, axes=tuple(range(len(shape))))


def _transpose_rule(per_operand: Sequence[OperandRule | EllipsisType | None]) -> Callable[..., Any]:
    def transpose(ct: Value, *args: Value, **params: Any) -> list[Value]:
        if type(ct) is Zero:
            return [
                Zero(x.aval.to_tangent_aval()) if type(x) is UndefPrimal else None for x in args
            ]
        out: list[Value] = []
        for x, rule in zip(args, _expand_rules(per_operand, len(args))):
            if type(x) is not UndefPrimal:
                out.append(None)
                continue
            if rule is None:
                raise NotImplementedError("this operation is not linear in that operand")
            out.append(unbroadcast(broadcast_like(rule(ct, *args, **params), ct), x.aval))
        return out

    return transpose


def broadcast_like(x: Any, y: Any) -> Any:
    """Repeat a rank-0 `x` to the shape of `y`."""
    return broadcast(x, typeof(y).shape)


def _expand_rules(rules: Sequence[Any], count: int) -> Sequence[Callable[..., Any] | None]:
    """Expand a rule list that ends in `...`, which repeats its last rule."""
    if rules and rules[-1] is Ellipsis:
        rules = list(rules[:-1])
        return rules + [rules[-1]] * (count - len(rules))
    return rules


def _jvp_rule(
    primitive: Primitive, per_operand: Sequence[OperandRule | EllipsisType | None]
) -> Callable[..., Any]:
    def jvp(primals: Values, tangents: Values, **params: Any):
        out = primitive.bind(*primals, **params)
        total: Any = zero_tangent(out)
        if total.aval.dtype == dtypes.float0:
            return out, total
        shape = typeof(out).shape
        for t, rule in zip(tangents, _expand_rules(per_operand, len(primals))):
            if type(t) is not Zero and rule is not None:
                term = rule(t, out, *primals, **params)
                if type(term) is not Zero:
                    total = add_tangents(total, broadcast(term, shape))
        return out, total

    return jvp


def linear_jvp(primitive: Primitive) -> Callable[..., Any]:
    """Return the jvp of an op linear in all operands together: the op applied to the tangents."""

    def jvp(primals: Values, tangents: Values, **params: Any):
        out = primitive.bind(*primals, **params)
        if all(type(t) is Zero for t in tangents):
            return out, zero_tangent(out)
        return out, primitive.bind(*map(instantiate, tangents), **params)

    return jvp


def zero_jvp(primitive: Primitive) -> Callable[..., Any]:
    """Return the jvp of an op whose derivative is zero wherever it exists."""

    def jvp(primals: Values, tangents: Values, **params: Any):
        out = primitive.bind(*primals, **params)
        if primitive.multiple_results:
            return out, [zero_tangent(o) for o in out]
        return out, zero_tangent(out)

    return jvp


NOT_LINEAR = "is not linear in any operand"


def elementwise(
    name: str,
    dtypes: tuple[Group, ...],
    reference: Reference,
    *,
    jvp: Sequence[OperandRule | EllipsisType | None] | str,
    transpose: Sequence[OperandRule | EllipsisType | None] | None = None,
    emit: str | Emit | None = None,
    lower: Any = None,
    result: Callable[[np.dtype[Any]], np.dtype[Any]] | None = None,
    type_rule: Callable[..., Any] | None = None,
    linear_ins: Ints | Callable[[Avals, Avals], Ints] | Callable[..., Ints] = (),
    additive: bool = False,
    widen: bool = True,
    op_class: type[Primitive] = ElementwiseOp,
    **attrs: Any,
) -> Primitive:
    """Make an elementwise primitive; `attrs` are attributes of `op_class`.

    jvp        per operand `fn(t, out, *primals, **params)` or None (a final `...` repeats the last); "linear"; "zero"
    transpose  per operand `fn(ct, *args, **params)` or None, for ops that are linear in some operand
    emit       name of the scalar op, or `fn(b, *exprs, **params)`; by default the op of the same name
    lower      what is in the slot where that is not scalar code
    result     `fn(dtype, **params)` -> dtype of the result, if it is not the operands'
    linear_ins operands through which partial sums may pass, or `fn(in_avals, out_avals, **params)` giving them
    widen      whether the reference sees 16-bit and smaller floats as float32
    """
    computes = None if lower or callable(emit) else emit or name

    def rules(p: Primitive) -> dict[str, Any]:
        return {
            "type": type_rule or elementwise_type(name, dtypes, result),
            "reference": in_float32(reference) if widen else reference,
            "batch": batch_elementwise(p),
            "factors": _elementwise_factors(linear_ins, additive),
            "lower": lower or elementwise_lowering(emit or name),
            "jvp": jvp_of(p, jvp, _jvp_rule),
            "transpose": declare_unsupported(NOT_LINEAR)
            if transpose is None
            else _transpose_rule(transpose),
        }

    attrs.setdefault("computes", computes)
    return op_class(name, make_rules=rules, **attrs)


def jvp_of(
    p: Primitive, rule: Any, make: Callable[[Primitive, Any], Callable[..., Any]]
) -> Callable[..., Any]:
    """Return the jvp of an op: for "linear", for derivative "zero", or `make(rule)`."""
    if rule == "zero":
        return zero_jvp(p)
    return linear_jvp(p) if rule == "linear" else make(p, rule)


def _elementwise_factors(
    linear_ins: Ints | Callable[..., tuple[int, ...]], additive: bool
) -> Callable[..., Any]:
    def factors(in_avals: Avals, out_avals: Avals, **params: Any) -> FactorRule:
        linear = linear_ins(in_avals, out_avals, **params) if callable(linear_ins) else linear_ins
        return elementwise_rule(in_avals, out_avals, linear_ins=linear, additive=additive)

    return factors


def elementwise_lowering(emit: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return the lowering of an elementwise op: scalar code on elements at one position."""

    def lower(
        b: LoopsBuilder,
        index: ElementIndex,
        *inputs: ElementReader,
        in_avals: Avals,
        out_avals: Avals,
        **params: Any,
    ):
        xs = [x(index if a.ndim else ()) for x, a in zip(inputs, in_avals)]
        return b.op(emit, *xs) if isinstance(emit, str) else emit(b, *xs, **params)

    return lower


def function(
    dtypes: tuple[Group, ...] | None,
    reference: Reference,
    *,
    jvp: Sequence[OperandRule | EllipsisType | None] | str = (),
    result: Callable[[np.dtype[Any]], np.dtype[Any]] | None = None,
    type_rule: Callable[..., Any] | None = None,
    emit: Emit | None = None,
    widen: bool = True,
    cost: int = 20,
    numpy: str = "",
    on_complex: str = "",
    is_exact: bool = False,
    passes_nans: bool = False,
    **facts: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that defines an elementwise function from its formula, `fn(f, *values)`.

    The result is the function of programs, with a primitive of the formula's name. See
    `elementwise` for the rules, `ir.registry.ScalarFunction` for the other facts.

    Without `dtypes` there is no primitive: only kernels have the function.
    """

    def state(formula: Callable[..., Any]) -> Callable[..., Any]:
        name, code = formula.__name__.strip("_"), formula.__code__
        operands, op = code.co_varnames[1 : code.co_argcount], None
        if dtypes is not None:
            op = _apply(
                elementwise(
                    name,
                    dtypes,
                    reference,
                    jvp=jvp,
                    result=result,
                    type_rule=type_rule,
                    emit=emit,
                    widen=widen,
                    cost=cost,
                    on_complex=on_complex,
                    is_exact=is_exact,
                    passes_nans=passes_nans,
                ),
                name,
                operands,
                formula.__doc__,
                formula.__globals__,
            )
        functions[name] = ScalarFunction(
            name,
            len(operands),
            formula,
            reference,
            op,
            cost,
            test=result is not None,
            widen=widen,
            numpy=tuple(numpy.split()),
            **facts,
        )
        return op or formula

    return state


#: functions whose callers may request an accuracy
_CHOOSE_ACCURACY = frozenset(
    "cbrt cos exp exp2 expm1 log log1p logistic rsqrt sin sqrt tan tanh".split()
)


def unary(primitive: Primitive, text: str, name: str = "") -> Callable[..., Any]:
    """Return the public function of one operand that applies `primitive`, with its docstring."""
    return _apply(primitive, name or primitive.name, ("x",), text, caller_globals())


def binary(primitive: Primitive, text: str, name: str = "") -> Callable[..., Any]:
    """Return the public function of two operands, with matched dtypes, that applies `primitive`."""
    return with_matching_kinds(
        _apply(primitive, name or primitive.name, ("x", "y"), text, caller_globals())
    )


def with_matching_kinds(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fun` of two operands with a public form that refuses Python numbers of two kinds.

    Neither number has a dtype that the other could take. Formulas of weft's own, which receive
    numbers in place of arrays, call `fun` itself.
    """
    name, numbers = fun.__name__, frozenset(_PYTHON_NUMBERS)

    @functools.wraps(fun)
    def public(x: Value, y: Value, **kwargs: Any):
        kind, other = class_of(x), class_of(y)
        if kind is not other and kind in numbers and other in numbers:
            same_dtypes(name, (typeof(x), typeof(y)))
        return fun(x, y, **kwargs)

    fun.public = public  # type: ignore[attr-defined]
    return fun


def _apply(
    primitive: Primitive,
    name: str,
    operands: tuple[str, ...],
    text: str | None,
    module: dict[str, Any],
) -> Callable[..., Any]:
    bind, matched = primitive.bind, match

    def apply_to_array(x: ArrayLike) -> Array:
        return bind(x)

    def one_of_accuracy(x: ArrayLike, *, accuracy: Any = None) -> Array:
        if accuracy is not None:
            from weft._engine.ops.accuracy import check_accuracy

            check_accuracy(name, accuracy)
        return bind(x)

    def two(x: ArrayLike, y: ArrayLike) -> Array:
        return bind(*matched(x, y))

    public = (
        two
        if len(operands) == 2
        else one_of_accuracy
        if name in _CHOOSE_ACCURACY
        else apply_to_array
    )
    public = rename(public, operands, name, module)
    public.__annotations__ = dict.fromkeys(operands, "ArrayLike") | {"return": "Array"}
    public.__doc__ = text
    return public


def scipy_special(name: str) -> Callable[..., NumPyArray]:
    """Return a function of scipy.special."""
    return getattr(scipy_module("special"), name)


if TYPE_CHECKING:
    _NearZero: TypeAlias = (
        Callable[[NumPyArray], NumPyArray] | Callable[[NumPyArray, NumPyArray], NumPyArray]
    )

#: the first argument below which SciPy's functions are replaced by their limits at zero, which have
#: full precision there
_NEAR_ZERO = 1e-150


def of_scipy(
    name: str,
    wide: bool = False,
    odd: bool = False,
    near_zero: Callable[[NumPyArray], NumPyArray]
    | Callable[[NumPyArray, NumPyArray], NumPyArray]
    | None = None,
) -> Callable[..., Any]:
    """Return a reference in scipy.special, imported on first use; `wide` computes in float64.

    `odd` functions keep the sign of zero. `near_zero`, a function of the same arguments, replaces
    values where the first argument is so small that SciPy's function overflows or underflows before
    the result does.
    """

    def reference(*xs: NumPyArray):
        args = [np.asarray(x, np.float64) for x in xs] if wide else xs
        with np.errstate(all="ignore"):
            out = np.asarray(scipy_special(name)(*args))
            if near_zero is not None:
                out = np.where(
                    (np.abs(args[0]) < _NEAR_ZERO) & (args[0] != 0), near_zero(*args), out
                )
            out = np.copysign(out, args[0]) if odd else out
            return out.astype(xs[-1].dtype)

    return reference


def no_derivative(name: str, operand: str) -> Callable[..., Any]:
    """Return a derivative rule that raises NotImplementedError."""

    def rule(t: Value, out: Value, *primals: Value):
        raise NotImplementedError(
            f"{name}: the derivative by {operand} is not supported yet; keep {operand} constant "
            "(weft.lax.stop_gradient)."
        )

    return rule


# --- reductions -------------------------------------------------------------------------------------------------------


# --- running reductions -----------------------------------------------------------------------------------------------


# --- layout -----------------------------------------------------------------------------------------------------------
