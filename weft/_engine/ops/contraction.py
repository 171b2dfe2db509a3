"""Contraction: the primitive dot_general of all matrix products, and the functions dot and
batch_matmul.

Numbers: products are computed and added in a dtype that holds both operands, and rounded once:
bfloat16, float16 and float8 in float32, integers and floats of 32 bits or more in float64. Integer
results wrap.

Law: the result has the batch dims in the order of dimension_numbers, then the free dims of lhs in
its order, then the free dims of rhs in its order.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, Union

import numpy as np

from weft._engine.core.primitive import ContractOp
from weft._engine.core.trace import is_undef, typeof
from weft._engine.ir.factors import RuleBuilder
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.casting import convert_element_type, convert_element_type_p
from weft._engine.ops.families import (
    ANY,
    INEXACT,
    INTEGER,
    check_dtype,
    dtype_in,
    joined_vma,
    match_dtypes,
    operand_table,
    shape_error,
)
from weft._engine.ops.layout import transpose
from weft._engine.ops.lowering_specs import ContractSpec
from weft._engine.ops.placement import OUT_SHARDING, with_out_sharding
from weft._engine.ops.rule_helpers import aval_of, inverse, multilinear, shift_dims
from weft._engine.util import dtypes
from weft._engine.util.config import config
from weft._engine.util.promotion import sum_dtype

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis
    from weft._engine.ops.rule_types import (
        Array,
        ArrayLike,
        Avals,
        BatchDims,
        NumPyArray,
        Value,
        Values,
    )

dot_general_p = ContractOp("dot_general", out_sharding=OUT_SHARDING)

Dims = tuple[int, ...]
DotDimensionNumbers = tuple[
    tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]
]
#: canonical `DotDimensionNumbers`: tuples of nonnegative dims
DotNumbers = tuple[tuple[Dims, Dims], tuple[Dims, Dims]]


class Precision(enum.Enum):
    """Precision of the products in a contraction.

    On CPU all choices are exact in the operands' dtype; a `DotAlgorithmPreset` is followed.

    >>> Precision.HIGHEST
    Precision.HIGHEST
    """

    __module__ = "weft.lax"

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    def __repr__(self) -> str:
        return f"Precision.{self.name}"

    def __str__(self) -> str:
        return self.name


_PRECISION_NAMES = {
    "default": Precision.DEFAULT,
    "fastest": Precision.DEFAULT,
    "bfloat16": Precision.DEFAULT,
    "high": Precision.HIGH,
    "bfloat16_3x": Precision.HIGH,
    "tensorfloat32": Precision.HIGH,
    "highest": Precision.HIGHEST,
    "float32": Precision.HIGHEST,
}


class DotAlgorithm(NamedTuple):
    """The dtypes of the operands and sums of a matrix product.

    It also has the number of parts of each operand.

    Floating-point operands of other dtypes are converted first. Three, six or nine products of
    bfloat16 parts are the algorithm BF16_BF16_F32_X3, _X6 or _X9 of `DotAlgorithmPreset`; other
    operands are multiplied whole.

    >>> float(dot(np.array([1.0, 2.0]), np.array([3.0, 4.0]), precision=DotAlgorithm("bfloat16", "bfloat16", "float32")))
    11.0
    """

    __module__ = "weft.lax"

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


class DotAlgorithmPreset(enum.Enum):
    """Algorithms named by the dtypes of `lhs`, of `rhs` and of the sums.

    Floating-point operands of other dtypes are converted first. With BF16_BF16_F32_X3, _X6 and
    _X9, a processor with a matrix unit multiplies float32 operands as sums of bfloat16 parts; the
    number counts the products of parts. Other processors multiply them whole. The other algorithms
    with X3 always multiply whole.

    >>> DotAlgorithmPreset["BF16_BF16_F32"].accumulation_type
    dtype('float32')
    """

    __module__ = "weft.lax"

    DEFAULT = enum.auto()
    ANY_F8_ANY_F8_F32 = enum.auto()
    ANY_F8_ANY_F8_F32_FAST_ACCUM = enum.auto()
    ANY_F8_ANY_F8_ANY = enum.auto()
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = enum.auto()
    F16_F16_F16 = enum.auto()
    F16_F16_F32 = enum.auto()
    BF16_BF16_BF16 = enum.auto()
    BF16_BF16_F32 = enum.auto()
    BF16_BF16_F32_X3 = enum.auto()
    BF16_BF16_F32_X6 = enum.auto()
    BF16_BF16_F32_X9 = enum.auto()
    TF32_TF32_F32 = enum.auto()
    TF32_TF32_F32_X3 = enum.auto()
    F32_F32_F32 = enum.auto()
    F64_F64_F64 = enum.auto()

    def __repr__(self) -> str:
        return f"DotAlgorithmPreset.{self.name}"

    def __str__(self) -> str:
        return self.name

    @property
    def bf16_products(self) -> int:
        """The number of products of bfloat16 parts of float32 operands; 0 if there are no parts.

        >>> DotAlgorithmPreset.BF16_BF16_F32_X6.bf16_products
        6
        """
        return _BF16_PRODUCTS.get(self.name, 0)

    @property
    def accumulation_type(self) -> np.dtype | None:
        """The dtype of the sums, or None if any dtype may be used."""
        last = self.name.split("_FAST")[0].split("_X")[0].split("_")[-1]
        return dtypes.canonicalize_dtype(_NAMES[last]) if last in _NAMES else None

    @property
    def supported_lhs_types(self) -> tuple[np.dtype, ...] | None:
        """The dtypes to which `lhs` may be converted, or None if any dtype may be used."""
        first = self.name.split("_")[0]
        if first == "ANY":
            return tuple(dtypes.canonicalize_dtype(name) for name in _FLOAT8)
        if first == "DEFAULT":
            return None
        # operands in parts, and TF32 operands of 19 bits, are float32 here
        accepts_f32 = "_X" in self.name or first == "TF32"
        return (dtypes.canonicalize_dtype("float32" if accepts_f32 else _NAMES[first]),)

    @property
    def supported_rhs_types(self) -> tuple[np.dtype, ...] | None:
        """The dtypes to which `rhs` may be converted, or None if any dtype may be used."""
        return self.supported_lhs_types


_FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_NAMES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}
_BF16_PRODUCTS = {"BF16_BF16_F32_X3": 3, "BF16_BF16_F32_X6": 6, "BF16_BF16_F32_X9": 9}
PrecisionLike = Union[None, str, Precision, DotAlgorithm, DotAlgorithmPreset, tuple[Any, ...]]
PrecisionLike.__doc__ = "The precision of a product: a name, a `Precision`, a dot algorithm, or two of them for the operands."
#: the parameter `precision` of products: values for both operands, or an algorithm by parts
ProductPrecision = Union[tuple[Precision, Precision], DotAlgorithmPreset, None]


def _algorithm_of(precision: PrecisionLike) -> DotAlgorithm | DotAlgorithmPreset | None:
    """Return the dot algorithm that `precision` is or names, or None.

    Without `precision`, the setting default_matmul_precision may name it.
    """
    if precision is None:
        precision = config.default_matmul_precision
    if isinstance(precision, str):
        return DotAlgorithmPreset.__members__.get(precision)
    if isinstance(precision, DotAlgorithm):
        return _preset_by_parts(precision) or precision
    return precision if isinstance(precision, DotAlgorithmPreset) else None


def _preset_by_parts(algorithm: DotAlgorithm) -> DotAlgorithmPreset | None:
    """Return the preset of an algorithm that multiplies bfloat16 parts, or None."""
    types = [dtypes.check_dtype(t, "DotAlgorithm").name for t in algorithm[:3]]
    preset = DotAlgorithmPreset.__members__.get(
        f"BF16_BF16_F32_X{algorithm.num_primitive_operations}"
    )
    return preset if types == ["bfloat16", "bfloat16", "float32"] else None


def algorithm_by_casts(
    precision: PrecisionLike, lhs: Value, rhs: Value
) -> DotAlgorithm | DotAlgorithmPreset | None:
    """Return the dot algorithm that converts the operands of a product, or None.

    Algorithms by parts keep their operands: `canonical_precision` returns them. Operands that are
    not real floating-point numbers have no algorithm.
    """
    algorithm = _algorithm_of(precision)
    if algorithm is None or algorithm is DotAlgorithmPreset.DEFAULT or _is_by_parts(algorithm):
        return None
    return algorithm if dtypes.kind_of(dtypes.result_type(lhs, rhs)) == "f" else None


def _is_by_parts(
    algorithm: DotAlgorithm | DotAlgorithmPreset | None,
) -> TypeGuard[DotAlgorithmPreset]:
    return isinstance(algorithm, DotAlgorithmPreset) and algorithm.bf16_products > 0


def multiply_by_algorithm(
    lhs: Value,
    rhs: Value,
    algorithm: DotAlgorithm | DotAlgorithmPreset,
    preferred: Any,
    multiply: Callable[[Value, Value, np.dtype[Any] | None], Value],
):
    """Return the product computed by an algorithm, in dtype `preferred`.

    `multiply` computes it from converted operands in a given dtype. Without `preferred`, the result
    has the operands' common dtype.
    """
    if isinstance(algorithm, DotAlgorithm):
        types = [(dtypes.check_dtype(t, "DotAlgorithm"),) for t in algorithm[:2]]
        total = dtypes.check_dtype(algorithm.accumulation_type, "DotAlgorithm")
    else:
        types, total = (
            [algorithm.supported_lhs_types, algorithm.supported_rhs_types],
            algorithm.accumulation_type,
        )
    out_dtype = (
        dtypes.result_type(lhs, rhs)
        if preferred is None
        else dtypes.check_dtype(preferred, "dot_general")
    )
    for name, x, allowed in zip(("lhs", "rhs"), (lhs, rhs), types):
        if allowed and allowed[0].itemsize == 1 and typeof(x).dtype not in allowed:
            raise ValueError(
                f"The dot algorithm {algorithm!r} takes {name} in {' or '.join(t.name for t in allowed)}, "
                f"got {typeof(x).dtype.name}. Cast it first."
            )
    lhs, rhs = [
        x if not allowed or typeof(x).dtype in allowed else convert_element_type(x, allowed[0])
        for x, allowed in zip((lhs, rhs), types)
    ]
    return convert_element_type(multiply(lhs, rhs, total), out_dtype)


def canonical_precision(precision: PrecisionLike) -> ProductPrecision:
    """Return `precision` as one value per operand, as an algorithm by parts, or None.

    None also stands for the algorithms that convert operands.

    >>> canonical_precision("highest"), canonical_precision("BF16_BF16_F32_X3")
    ((Precision.HIGHEST, Precision.HIGHEST), DotAlgorithmPreset.BF16_BF16_F32_X3)
    """
    algorithm = _algorithm_of(precision)
    if _is_by_parts(algorithm):
        return algorithm
    if algorithm is not None:
        return None
    if precision is None:
        precision = config.default_matmul_precision
        if precision not in _PRECISION_NAMES:
            return None
    if isinstance(precision, (tuple, list)):
        if len(precision) != 2:
            raise ValueError(f"precision: needs one value, or one per operand, got {precision!r}.")
        lhs, rhs = (_one_precision(p) for p in precision)
        return lhs, rhs
    one = _one_precision(precision)
    return one, one


def _one_precision(value: Any) -> Precision:
    if value is None:
        return Precision.DEFAULT
    if isinstance(value, Precision):
        return value
    if isinstance(value, str) and value.lower() in _PRECISION_NAMES:
        return _PRECISION_NAMES[value.lower()]
    raise ValueError(
        f"precision: {value!r} is not understood. Use lax.Precision, or one of {', '.join(_PRECISION_NAMES)}."
    )


# --- the functions


def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: DotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """Return the sum of products of `lhs` and `rhs` over contracting dims.

    There is a sum for each index of the batch dims.

    `dimension_numbers` is ((lhs contracting, rhs contracting), (lhs batch, rhs batch)). The result
    has the batch dims, then the other dims of `lhs`, then the other dims of `rhs`. Its dtype is
    `preferred_element_type` or else the promoted dtype of the operands. `out_sharding` is the
    sharding of the result; it is required if explicitly sharded dims are contracted. Raise
    ShapeError if paired dims differ in size, TypeError for dtypes without a common dtype.

    >>> dot_general(np.ones((2, 3)), np.ones((3, 4)), (((1,), (0,)), ((), ()))).shape
    (2, 4)
    """
    if out_sharding is not None:
        plain: Callable[[], Value] = lambda: dot_general(
            lhs, rhs, dimension_numbers, precision, preferred_element_type
        )
        return with_out_sharding(out_sharding, "dot_general", plain, lhs, rhs, contracts=True)
    algorithm = algorithm_by_casts(precision, lhs, rhs)
    if algorithm is not None:
        multiply: Callable[[Value, Value, Any], Value] = lambda x, y, dtype: dot_general(
            x, y, dimension_numbers, DotAlgorithmPreset.DEFAULT, dtype
        )
        return multiply_by_algorithm(lhs, rhs, algorithm, preferred_element_type, multiply)
    lhs, rhs = match_dtypes(lhs, rhs)
    (lc, rc), (lb, rb) = dimension_numbers
    left, right = typeof(lhs).ndim, typeof(rhs).ndim
    numbers = ((_dims(lc, left), _dims(rc, right)), (_dims(lb, left), _dims(rb, right)))
    left, right = typeof(lhs).dtype, typeof(rhs).dtype
    params = {"dimension_numbers": numbers, "precision": canonical_precision(precision)}
    if preferred_element_type is None:
        out_dtype = None if left == right else product_dtype(left, right)
        return dot_general_p.bind(lhs, rhs, **params, preferred_element_type=out_dtype)
    preferred = dtypes.check_dtype(preferred_element_type, "dot_general")
    if is_whole(left, right, preferred):
        return dot_general_p.bind(lhs, rhs, **params, preferred_element_type=preferred)
    acc_dtype = sum_dtype(left, right, preferred)
    return convert(
        dot_general_p.bind(lhs, rhs, **params, preferred_element_type=acc_dtype), preferred
    )


def product_dtype(lhs: np.dtype, rhs: np.dtype) -> np.dtype:
    """Return the dtype of the product of two dtypes.

    It is the dtype of larger range, then of more precision, then of more bits, then the signed one.

    >>> product_dtype(np.dtype("int8"), np.dtype("uint8")), product_dtype(np.dtype("int32"), np.dtype("float16"))
    (dtype('int8'), dtype('float16'))
    """
    return max(lhs, rhs, key=_rank)


@functools.cache
def _rank(dtype: np.dtype) -> tuple[Any, ...]:
    if dtypes.is_extended(dtype):
        return ()
    kind = dtypes.kind_of(dtype)
    if kind in "fc":
        limits = dtypes.finfo(dtype)
        return kind == "c", math.frexp(float(limits.max))[1], limits.nmant, dtype.itemsize, False
    return False, -1, -1, 0 if kind == "b" else dtypes.iinfo(dtype).bits, kind == "i"


def is_whole(lhs: np.dtype, rhs: np.dtype, out: np.dtype) -> bool:
    """Return whether partial contractions can be added in dtype `out` without rounding each."""
    integers = all(dtypes.kind_of(x) in "biu" for x in (lhs, rhs)) and dtypes.kind_of(out) in "iu"
    return lhs == rhs == out or integers or sum_dtype(lhs, rhs, out) == out


def convert(x: Value, dtype: np.dtype):
    """Return `x` in another dtype, which may have 64 bits even without x64."""
    if typeof(x).dtype == dtype:
        return x
    return convert_element_type_p.bind(x, new_dtype=dtype, weak_type=False, sharding=None)


def dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    dimension_numbers: DotDimensionNumbers | None = None,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Return the product of vectors, matrices, or one of each.

    The last dim of `lhs` is contracted with the first dim of `rhs`.

    >>> float(dot(np.array([1.0, 2.0]), np.array([3.0, 4.0])))
    11.0
    """
    if dimension_numbers is None:
        left, right = typeof(lhs), typeof(rhs)
        if not (1 <= left.ndim <= 2 and 1 <= right.ndim <= 2):
            raise shape_error(
                "dot",
                "takes vectors and matrices.",
                operand_table((left, right)),
                "",
                "Use dot_general, or weft.numpy.matmul for stacks of matrices.",
            )
        dimension_numbers = (((left.ndim - 1,), (0,)), ((), ()))
    return dot_general(
        lhs, rhs, dimension_numbers, precision, preferred_element_type, out_sharding=out_sharding
    )


def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike = None) -> Array:
    """Return products of the matrices in the last two dims.

    All dims before them are batch dims of equal sizes.
    """
    n = typeof(lhs).ndim
    batch = tuple(range(n - 2))
    return dot_general(lhs, rhs, (((n - 1,), (n - 2,)), (batch, batch)), precision)


def _dims(dims: Sequence[int], ndim: int) -> Dims:
    return tuple(int(d) + ndim if -ndim <= d < 0 else int(d) for d in dims)


# --- rules


def _free(ndim: int, *used_dims: Dims) -> Dims:
    """Return the dims of an operand that are neither contracted nor batch dims."""
    used = {d for dims in used_dims for d in dims}
    return tuple(d for d in range(ndim) if d not in used)


@dot_general_p.def_type
def _dot_type(
    lhs: ShapedArray,
    rhs: ShapedArray,
    *,
    dimension_numbers: DotNumbers,
    precision: ProductPrecision,
    preferred_element_type: np.dtype[Any] | None,
):
    (lc, rc), (lb, rb) = dimension_numbers
    _check_numbers(lhs, rhs, lc, rc, lb, rb)
    for left, right, role in ((lc, rc, "contract"), (lb, rb, "batch")):
        for i, j in zip(left, right):
            if lhs.shape[i] != rhs.shape[j]:
                what = "contracted" if role == "contract" else "batch"
                verb = "contracts dim" if role == "contract" else "batches over dim"
                raise shape_error(
                    "dot_general",
                    f"{what} dims differ in size.",
                    [
                        ("lhs", lhs.str_short(), f"{verb} {i}, size {lhs.shape[i]}"),
                        ("rhs", rhs.str_short(), f"{verb} {j}, size {rhs.shape[j]}"),
                    ],
                    f"{what.capitalize()} dims must have equal size.",
                    _transpose_hint(lhs, rhs, i, j, lb),
                )
    if lhs.dtype != rhs.dtype and preferred_element_type is None:
        raise TypeError(
            "dot_general: requires arguments to have the same dtypes, got "
            f"{lhs.dtype.name}, {rhs.dtype.name}.\n  Cast one with .astype, or give preferred_element_type."
        )
    for i, aval in enumerate((lhs, rhs)):
        check_dtype("dot_general", aval, ANY, i)
    dtype = lhs.dtype if preferred_element_type is None else preferred_element_type
    shape = [lhs.shape[d] for d in lb]
    shape += [lhs.shape[d] for d in _free(lhs.ndim, lc, lb)]
    shape += [rhs.shape[d] for d in _free(rhs.ndim, rc, rb)]
    weak = lhs.weak_type and rhs.weak_type and preferred_element_type is None
    return ShapedArray(tuple(shape), dtype, weak, None, joined_vma((lhs, rhs)))


def _check_numbers(
    lhs: ShapedArray, rhs: ShapedArray, lc: Dims, rc: Dims, lb: Dims, rb: Dims
) -> None:
    for name, aval, contract, batch in (("lhs", lhs, lc, lb), ("rhs", rhs, rc, rb)):
        if any(not 0 <= d < aval.ndim for d in (*contract, *batch)):
            raise shape_error(
                "dot_general",
                f"dimension_numbers name a dim that {name} does not have.",
                [(name, aval.str_short(), f"contracting {contract}, batch {batch}")],
            )
        if len({*contract, *batch}) != len(contract) + len(batch):
            raise shape_error(
                "dot_general",
                f"dimension_numbers use a dim of {name} twice.",
                [(name, aval.str_short(), f"contracting {contract}, batch {batch}")],
            )
    if len(lc) != len(rc) or len(lb) != len(rb):
        raise shape_error(
            "dot_general",
            "needs as many contracting and batch dims in lhs as in rhs.",
            [
                ("lhs", lhs.str_short(), f"contracting {lc}, batch {lb}"),
                ("rhs", rhs.str_short(), f"contracting {rc}, batch {rb}"),
            ],
        )


def _transpose_hint(lhs: Value, rhs: Value, i: int, j: int, batch: Dims) -> str:
    if lhs.ndim == rhs.ndim == 2 and not batch and lhs.shape[i] == rhs.shape[1 - j]:
        return "Did you mean the transpose of rhs (rhs.T)?"
    return ""


def round_values(sums: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return NumPy's sums of products in the dtype of the result."""
    return convert_element_type_p.reference(
        sums, new_dtype=np.dtype(dtype), weak_type=False, sharding=None
    )


@dot_general_p.def_reference
def _dot_reference(
    lhs: NumPyArray,
    rhs: NumPyArray,
    *,
    dimension_numbers: DotNumbers,
    precision: ProductPrecision,
    preferred_element_type: np.dtype[Any] | None,
):
    (lc, rc), (lb, rb) = dimension_numbers
    lf, rf = _free(lhs.ndim, lc, lb), _free(rhs.ndim, rc, rb)
    out_dtype = lhs.dtype if preferred_element_type is None else np.dtype(preferred_element_type)
    accumulate = sum_dtype(lhs.dtype, rhs.dtype, out_dtype)
    sizes: Callable[[NumPyArray, Dims], list[int]] = lambda x, dims: [x.shape[d] for d in dims]
    count: Callable[[NumPyArray, Dims], int] = lambda x, dims: int(
        np.prod(sizes(x, dims), dtype=np.int64)
    )
    a = (
        lhs.astype(accumulate)
        .transpose(lb + lf + lc)
        .reshape(count(lhs, lb), count(lhs, lf), count(lhs, lc))
    )
    b = (
        rhs.astype(accumulate)
        .transpose(rb + rc + rf)
        .reshape(count(rhs, rb), count(rhs, rc), count(rhs, rf))
    )
    return round_values(np.matmul(a, b), out_dtype).reshape(
        sizes(lhs, lb) + sizes(lhs, lf) + sizes(rhs, rf)
    )


multilinear(dot_general_p, (0, 1))


@dot_general_p.def_transpose
def _dot_transpose(
    ct: Value,
    lhs: Value,
    rhs: Value,
    *,
    dimension_numbers: DotNumbers,
    precision: ProductPrecision,
    preferred_element_type: np.dtype[Any] | None,
):
    (lc, rc), (lb, rb) = dimension_numbers
    if is_undef(lhs):
        return [
            _operand_ct(
                ct, lhs.aval, rhs, lc, rc, lb, rb, precision, preferred_element_type, swapped=False
            ),
            None,
        ]
    return [
        None,
        _operand_ct(
            ct,
            rhs.aval,
            lhs,
            rc,
            lc,
            rb,
            lb,
            swap_precision(precision),
            preferred_element_type,
            swapped=True,
        ),
    ]


def swap_precision(precision: ProductPrecision) -> ProductPrecision:
    """Return the precision of a product with exchanged operands."""
    return (precision[1], precision[0]) if isinstance(precision, tuple) else precision


def _operand_ct(
    ct: Value,
    aval: ShapedArray,
    other: Value,
    contract: Dims,
    other_contract: Dims,
    batch: Dims,
    other_batch: Dims,
    precision: ProductPrecision,
    preferred: np.dtype[Any] | None,
    swapped: bool,
):
    """Return the cotangent of the operand of type `aval`, from the other operand `other`.

    `swapped` tells that the linear operand is rhs.
    """
    free = _free(aval.ndim, contract, batch)
    other_free = _free(aval_of(other).ndim, other_contract, other_batch)
    # ct has the dims batch, lhs free, rhs free: contract the free dims of `other`
    first = len(batch) + (0 if swapped else len(free))
    ct_contract = tuple(range(first, first + len(other_free)))
    out = _mixed_dot(
        ct,
        other,
        ((ct_contract, other_free), (tuple(range(len(batch))), other_batch)),
        precision,
        aval.dtype,
        preferred,
    )
    # out has the dims batch, free dims of the operand, contracted dims in the order of `other`
    by_other = sorted(range(len(contract)), key=lambda k: other_contract[k])
    have = (*batch, *free, *(contract[k] for k in by_other))
    return transpose(out, inverse(have))


def _mixed_dot(
    x: Value,
    y: Value,
    numbers: DotDimensionNumbers,
    precision: ProductPrecision,
    dtype: np.dtype[Any],
    preferred: np.dtype[Any] | None = None,
):
    """Return dot_general of operands of possibly different dtypes, with a result of `dtype`."""
    # The setting default_matmul_precision took effect when the product was recorded.
    recorded = DotAlgorithmPreset.DEFAULT if precision is None else precision
    a, b = typeof(x).dtype, typeof(y).dtype
    if a != b:
        acc_dtype = sum_dtype(a, b, dtype)
        return convert(
            dot_general(convert(x, acc_dtype), convert(y, acc_dtype), numbers, recorded), dtype
        )
    return dot_general(x, y, numbers, recorded, None if dtype == a and preferred is None else dtype)


@dot_general_p.def_batch
def _dot_batch(
    axis: BatchAxis,
    args: Values,
    dims: BatchDims,
    *,
    dimension_numbers: DotNumbers,
    precision: ProductPrecision,
    preferred_element_type: np.dtype[Any] | None,
):
    (lhs, rhs), (left, right) = args, dims
    (lc, rc), (lb, rb) = dimension_numbers
    if left is not None:
        lc, lb = shift_dims(lc, left), shift_dims(lb, left)
    if right is not None:
        rc, rb = shift_dims(rc, right), shift_dims(rb, right)
    if left is not None and right is not None:
        lb, rb = (left, *lb), (right, *rb)
        out_dim = 0
    elif left is not None:  # one batched operand: its batch dim becomes a free dim
        out_dim = len(lb) + _free(typeof(lhs).ndim, lc, lb).index(left)
    else:
        lhs_free = _free(typeof(lhs).ndim, lc, lb)
        out_dim = len(lb) + len(lhs_free) + _free(typeof(rhs).ndim, rc, rb).index(right)
    out = dot_general_p.bind(
        lhs,
        rhs,
        dimension_numbers=((lc, rc), (lb, rb)),
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
    return out, out_dim


def sums_of_products(
    summed: Sequence[int], dtypes_in: Sequence[np.dtype], out: np.dtype
) -> dict[str, Any]:
    """Return the facts of a `FactorRule` about factors `summed` over products of two operands, for a result of dtype `out`.

    Shards of these factors give sums in the dtype of the result, which are added. They cannot be split if converting to that dtype is
    not linear: from inexact numbers to integers, and from numbers to bools.
    """
    if out == np.bool_:
        adds = all(d == np.bool_ for d in dtypes_in)
    else:
        adds = dtype_in(out, INEXACT) or not any(dtype_in(d, INEXACT) for d in dtypes_in)
    if not adds:
        return {"special": dict.fromkeys(summed, "replicate")}
    linear = tuple(i for i, d in enumerate(dtypes_in) if _keeps_sums(d, out))
    return {"reduced": dict.fromkeys(summed, "add"), "linear_ins": linear}


def _keeps_sums(operand: np.dtype, out: np.dtype) -> bool:
    """Return whether partial sums of an operand give partial sums of the result.

    Bools are joined by "or", and integers wrap.
    """
    if dtype_in(out, INTEGER):
        return dtype_in(operand, INTEGER) and dtypes.itemsize_bits(operand) >= dtypes.itemsize_bits(
            out
        )
    return operand == out if out == np.bool_ else dtype_in(operand, INEXACT)


@dot_general_p.def_factors
def _dot_factors(
    in_avals: Avals,
    out_avals: Avals,
    *,
    dimension_numbers: DotNumbers,
    precision: ProductPrecision,
    preferred_element_type: np.dtype[Any] | None,
):
    (lc, rc), (lb, rb) = dimension_numbers
    lhs, rhs = in_avals
    b = RuleBuilder()
    left: list[Any] = [None] * lhs.ndim
    right: list[Any] = [None] * rhs.ndim
    for i, j in zip((*lb, *lc), (*rb, *rc)):
        left[i] = right[j] = b.new(lhs.shape[i])
    lf, rf = _free(lhs.ndim, lc, lb), _free(rhs.ndim, rc, rb)
    for d in lf:
        left[d] = b.new(lhs.shape[d])
    for d in rf:
        right[d] = b.new(rhs.shape[d])
    out = [left[d] for d in lb] + [left[d] for d in lf] + [right[d] for d in rf]
    return b.rule(
        [left, right],
        [out],
        **sums_of_products([left[d] for d in lc], (lhs.dtype, rhs.dtype), out_avals[0].dtype),
    )


dot_general_p.define(lower=ContractSpec())
