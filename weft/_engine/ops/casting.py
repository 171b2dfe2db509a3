"""Casts and complex parts: convert_element_type, bitcast_convert_type, real, imag, complex, conj.

Law of value casts: float to integer truncates toward zero and saturates, NaN becomes 0; anything to
bool is `!= 0`; complex to real takes the real part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import registry
from weft._engine.core.trace import Zero, typeof
from weft._engine.core.typed_scalars import scalar_of_dtype
from weft._engine.ir.symbolic import SymbolicDim
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import families
from weft._engine.ops.families import (
    ANY,
    COMPLEX,
    FLOATING,
    dtype_in,
    elementwise,
    match,
    shape_error,
    unary,
)
from weft._engine.util import dtypes
from weft._engine.util.trees.narrowing import class_of

if TYPE_CHECKING:
    from weft._engine.core.primitive import Primitive
    from weft._engine.core.trace import UndefPrimal
    from weft._engine.ir.build import LoopsBuilder
    from weft._engine.ir.loops import Expr
    from weft._engine.ir.shardings import NamedSharding
    from weft._engine.ops.rule_types import (
        Array,
        ArrayLike,
        Avals,
        ElementIndex,
        ElementReader,
        NumPyArray,
        Value,
        Values,
    )

# --- convert_element_type ---------------------------------------------------------------------------------------------


def _convert_type(
    aval: ShapedArray, *, new_dtype: np.dtype[Any], weak_type: bool, sharding: NamedSharding | None
) -> ShapedArray:
    families.check_dtype("convert_element_type", aval, ANY)
    return ShapedArray(aval.shape, new_dtype, weak_type, sharding, aval.vma)


def _convert_reference(
    x: NumPyArray, *, new_dtype: np.dtype[Any], weak_type: bool, sharding: NamedSharding | None
):
    if x.dtype == new_dtype:
        return x
    if new_dtype == np.bool_:
        return x != 0
    if dtype_in(x.dtype, COMPLEX) and not dtype_in(new_dtype, COMPLEX):
        x = np.real(x)
    if dtype_in(x.dtype, FLOATING) and dtype_in(new_dtype, families.INTEGER):
        return _saturate(x, new_dtype)
    if families.is_narrow(x.dtype) or families.is_narrow(new_dtype):
        # through float32, the one type to which all narrow floats convert
        x = x if x.dtype == np.float64 else x.astype(np.float32)
    elif x.dtype.itemsize == 1:
        x = x.astype(np.int32)  # narrow integers have no casts to one another
    return x.astype(new_dtype)


def _saturate(x: NumPyArray, new_dtype: np.dtype[Any]):
    info = dtypes.iinfo(new_dtype)
    x64 = x.astype(np.float64)
    low, high = x64 <= float(info.min), x64 >= float(info.max)
    inside = np.where(low | high | np.isnan(x64), 0.0, np.trunc(x64)).astype(
        np.int64 if info.min < 0 else np.uint64
    )
    ends = np.where(low, np.array(info.min, inside.dtype), np.array(info.max, inside.dtype))
    return np.where(low | high, ends, inside).astype(new_dtype)


def _convert_emit(
    b: LoopsBuilder,
    x: Expr,
    *,
    new_dtype: np.dtype[Any],
    weak_type: bool,
    sharding: NamedSharding | None,
):
    target = b.type_of(ShapedArray((), new_dtype))
    if target == x.type:
        return x
    if x.type in ("c64", "c128"):
        if target == "bool":
            zero = b.const(0.0, _part(x.type))
            return b.logical_or(
                b.op("ne", b.op("real", x, type=_part(x.type)), zero),
                b.op("ne", b.op("imag", x, type=_part(x.type)), zero),
            )
        if target in ("c64", "c128"):
            re, im = (
                b.cast(b.op(part, x, type=_part(x.type)), _part(target))
                for part in ("real", "imag")
            )
            return b.op("complex", re, im, type=target)
        return b.cast(b.op("real", x, type=_part(x.type)), target)
    if target in ("c64", "c128"):
        return b.op("complex", b.cast(x, _part(target)), b.const(0.0, _part(target)), type=target)
    if target == "bool":
        return b.op("ne", x, b.const(0, x.type))
    return b.cast(x, target)


def _part(complex_type: str) -> str:
    """Return the Loops type of the parts of a complex number."""
    return {"c64": "f32", "c128": "f64"}[complex_type]


def _keeps_sums(in_avals: Avals, out_avals: Avals, **params: Any) -> tuple[int, ...]:
    """Return the operands whose partial sums pass a cast: casts that lose nothing."""
    source, target = in_avals[0].dtype, out_avals[0].dtype
    if source == target:
        return (0,)
    widens = target.itemsize > source.itemsize and all(
        dtype_in(d, families.INEXACT) for d in (source, target)
    )
    return (0,) if widens else ()


def _convert_tangent(t: Value, out: Value, x: Value, **params: Any) -> Value:
    return in_dtype(t, typeof(out).dtype)


def _convert_cotangent(ct: Value, x: UndefPrimal, **params: Any) -> Value:
    return in_dtype(ct, x.aval.dtype)


convert_element_type_p: Primitive = elementwise(
    "convert_element_type",
    ANY,
    _convert_reference,
    type_rule=_convert_type,
    emit=_convert_emit,
    widen=False,
    computes="cast",
    jvp=[_convert_tangent],
    transpose=[_convert_cotangent],
    linear_ins=_keeps_sums,
)


def in_dtype(operand: Value, dtype: np.dtype) -> Any:
    """Return `operand` in the dtype of an existing value; 64-bit dtypes are kept even without x64."""
    if dtype == dtypes.canonicalize_dtype(dtype):
        return convert_element_type(operand, dtype)
    has_dtype = typeof(operand).dtype == dtype and not typeof(operand).weak_type
    return (
        operand
        if has_dtype
        else convert_element_type_p.bind(operand, new_dtype=dtype, weak_type=False, sharding=None)
    )


def convert_element_type(
    operand: ArrayLike,
    new_dtype: dtypes.DTypeLike,
    weak_type: bool = False,
    sharding: NamedSharding | None = None,
) -> Array:
    """Convert the elements of `operand` to `new_dtype`; the shape is unchanged.

    Floats are truncated toward zero on the way to integers and clamped to their range; integers
    wrap around. With `weak_type` the dtype gives way in promotion. Raise TypeError for a
    `new_dtype` that is not a dtype.

    >>> np.asarray(convert_element_type(np.array([-1.5, 300.0]), np.uint8)).tolist()
    [0, 255]
    """
    aval = typeof(operand)
    target = (
        aval.dtype if new_dtype is None else dtypes.check_dtype(new_dtype, "convert_element_type")
    )
    if type(operand) is int and not -(2**31) <= operand < 2**31:
        if dtypes.issubdtype(target, np.inexact):
            operand = float(operand)  # may be beyond the range of every integer dtype
        elif dtypes.issubdtype(target, np.integer) and -(2**63) <= operand < 2**64:
            # wraps around, as 64-bit arrays do
            operand = np.uint64(operand % 2**64).astype(target)
        aval = typeof(operand)
    if (
        aval.dtype == target
        and aval.weak_type == weak_type
        and sharding is None
        and hasattr(class_of(operand), "aval")
    ):
        return operand
    if aval.dtype != target and (dtypes.is_extended(aval.dtype) or dtypes.is_extended(target)):
        raise TypeError(
            f"convert_element_type: random keys and numbers do not become each other, got {aval.str_short()} and "
            f"`new_dtype` {target}. Use random.key_data or random.wrap_key_data."
        )
    return convert_element_type_p.bind(
        operand, new_dtype=target, weak_type=bool(weak_type), sharding=sharding
    )


# --- bitcast ----------------------------------------------------------------------------------------------------------


def _bitcast_type(aval: ShapedArray, *, new_dtype: np.dtype[Any]) -> ShapedArray:
    families.check_dtype("bitcast_convert_type", aval, ANY)
    if aval.dtype.itemsize != np.dtype(new_dtype).itemsize:
        raise shape_error(
            "bitcast_convert_type", f"widths of {aval.dtype.name} and {new_dtype} differ.", ()
        )
    return ShapedArray(aval.shape, new_dtype, False, None, aval.vma)


def _bitcast_reference(x: NumPyArray, *, new_dtype: np.dtype[Any]) -> NumPyArray:
    return np.ascontiguousarray(x).reshape(x.shape).view(new_dtype)


bitcast_convert_type_p = elementwise(
    "bitcast_convert_type",
    ANY,
    _bitcast_reference,
    type_rule=_bitcast_type,
    widen=False,
    jvp="zero",
    computes="bitcast",
    is_exact=True,
)


@bitcast_convert_type_p.def_lower
def _bitcast_lower(
    b: LoopsBuilder,
    index: ElementIndex,
    x: ElementReader,
    *,
    in_avals: Avals,
    out_avals: Avals,
    new_dtype: np.dtype[Any],
):
    # the builder computes narrow floats in float32, so it needs the type of the bits
    return b.bitcast(x(index), b.type_of(out_avals[0]), b.type_of(in_avals[0]))


def bitcast_convert_type(operand: ArrayLike, new_dtype: dtypes.DTypeLike) -> Array:
    """Return the bits of `operand` reinterpreted as `new_dtype`.

    A narrower dtype adds a last dim of parts, lowest bits first; a wider one removes it.

    >>> hex(bitcast_convert_type(np.float32(1.0), np.uint32))
    '0x3f800000'
    """
    aval, target = typeof(operand), dtypes.check_dtype(new_dtype, "bitcast_convert_type")
    if aval.dtype == target:
        return convert_element_type(operand, target)
    for name, dtype in (("operand", aval.dtype), ("new_dtype", target)):
        if dtype == dtypes.float0 or dtypes.is_extended(dtype):
            raise TypeError(
                f"bitcast_convert_type: `{name}` must be of numbers, got {dtype if dtypes.is_extended(dtype) else 'float0'}."
            )
    old, new = dtypes.itemsize_bits(aval.dtype), dtypes.itemsize_bits(target)
    if dtypes.is_complex(aval.dtype):
        return _bitcast_complex(operand, aval, target)
    if dtypes.is_complex(target) and old < new:
        return _complex_together(operand, aval, target)
    if old == new and not dtypes.is_complex(target):
        return bitcast_convert_type_p.bind(operand, new_dtype=target)
    if old == new:
        return bitcast_convert_type(bitcast_convert_type(operand, _uint(old // 2)), target)
    return (
        _bits_apart(operand, aval, target) if old > new else _bits_together(operand, aval, target)
    )


def _uint(bits: int) -> np.dtype[Any]:
    return dtypes.as_dtype(f"uint{bits}")


def _bits_dtype(bits: int) -> np.dtype:
    """Return the unsigned integer dtype that holds `bits`; it has at least 8 bits."""
    return _uint(max(bits, 8))


def _cast(x: Value, dtype: dtypes.DType) -> Value:
    return convert_element_type_p.bind(x, new_dtype=dtype, weak_type=False, sharding=None)


def _bits_apart(x: Value, aval: ShapedArray, target: np.dtype[Any]) -> Value:
    old, new = dtypes.itemsize_bits(aval.dtype), dtypes.itemsize_bits(target)
    shape, bits_dtype = (*aval.shape, old // new), _bits_dtype(old)
    whole = _cast(bitcast_convert_type(x, _uint(old)), bits_dtype)
    bits = registry["broadcast_in_dim"].bind(
        whole, shape=shape, broadcast_dimensions=tuple(range(aval.ndim))
    )
    part = _cast(
        registry["shift_right_logical"].bind(bits, _offsets(shape, bits_dtype, new)),
        _bits_dtype(new),
    )
    if new < 8:
        part = _cast(registry["and"].bind(part, np.uint8((1 << new) - 1)), _uint(new))
    return bitcast_convert_type(part, target)


def _check_parts(aval: ShapedArray, target: np.dtype[Any]) -> None:
    count = dtypes.itemsize_bits(target) // dtypes.itemsize_bits(aval.dtype)
    if not aval.ndim or aval.shape[-1] != count:
        raise shape_error(
            "bitcast_convert_type",
            f"{count} elements of {aval.dtype.name} make one of {target.name}.",
            [("operand", aval.str_short())],
            f"The last dim must have size {count}.",
        )


def _bitcast_complex(x: Value, aval: ShapedArray, target: np.dtype[Any]) -> Value:
    """Split complex numbers through integers as wide as a part.

    No integer may be as wide as the whole.
    """
    half = _uint(aval.dtype.itemsize * 4)
    parts = [
        registry["reshape"].bind(bitcast_convert_type(part(x), half), new_sizes=(*aval.shape, 1))
        for part in (real, imag)
    ]
    bits = registry["concatenate"].bind(*parts, dimension=aval.ndim)
    if dtypes.itemsize_bits(target) > dtypes.itemsize_bits(aval.dtype):
        _check_parts(aval, target)
        bits = registry["reshape"].bind(bits, new_sizes=(*aval.shape[:-1], 2 * aval.shape[-1]))
    out = bitcast_convert_type(bits, target)
    count = dtypes.itemsize_bits(aval.dtype) // dtypes.itemsize_bits(target)
    return registry["reshape"].bind(out, new_sizes=(*aval.shape, count)) if count > 1 else out


def _complex_together(x: Value, aval: ShapedArray, target: np.dtype[Any]) -> Value:
    _check_parts(aval, target)
    half, count = (
        dtypes.to_real_dtype(target),
        dtypes.itemsize_bits(target) // dtypes.itemsize_bits(aval.dtype) // 2,
    )
    parts: list[Value] = []
    for k in range(2):
        start = (*[0] * (aval.ndim - 1), k * count)
        part = registry["slice"].bind(
            x, start_indices=start, limit_indices=(*aval.shape[:-1], (k + 1) * count), strides=None
        )
        if count == 1:
            part = registry["reshape"].bind(part, new_sizes=aval.shape[:-1])
        parts.append(bitcast_convert_type(part, half))
    return complex(*parts)


def _bits_together(x: Value, aval: ShapedArray, target: np.dtype[Any]) -> Value:
    old, new = dtypes.itemsize_bits(aval.dtype), dtypes.itemsize_bits(target)
    _check_parts(aval, target)
    bits = _cast(_cast(bitcast_convert_type(x, _uint(old)), _bits_dtype(old)), _bits_dtype(new))
    shifted = registry["shift_left"].bind(bits, _offsets(aval.shape, _bits_dtype(new), old))
    whole = registry["reduce_or"].bind(shifted, axes=(aval.ndim - 1,))
    return bitcast_convert_type(_cast(whole, _uint(new)), target)


def _offsets(shape: Sequence[int], wide: np.dtype, bits: int):
    """Return the bit offsets of the parts of `bits` along the last dim."""
    part = registry["iota"].bind(dtype=wide, shape=shape, dimension=len(shape) - 1)
    return registry["mul"].bind(part, scalar_of_dtype(bits, wide))


# --- complex numbers --------------------------------------------------------------------------------------------------


def _real_of(dtype: dtypes.DType, **_: Any):
    return dtypes.to_real_dtype(dtype)


def _neg(x: Value) -> Value:
    return registry["neg"].bind(x)


def _zero_like(x: Value) -> Value:
    return scalar_of_dtype(0, typeof(x).dtype)


real_p = elementwise(
    "real",
    COMPLEX,
    np.real,
    result=_real_of,
    jvp="linear",
    linear_ins=(0,),
    emit=lambda b, x: b.op("real", x, type=_part(x.type)),
    transpose=[lambda ct, x: complex(ct, _zero_like(ct))],
    is_exact=True,
    passes_nans=True,
)
imag_p = elementwise(
    "imag",
    COMPLEX,
    np.imag,
    result=_real_of,
    jvp="linear",
    linear_ins=(0,),
    emit=lambda b, x: b.op("imag", x, type=_part(x.type)),
    transpose=[lambda ct, x: complex(_zero_like(ct), _neg(ct))],
    is_exact=True,
    passes_nans=True,
)
conj_p = elementwise(
    "conj",
    COMPLEX,
    np.conj,
    jvp="linear",
    linear_ins=(0,),
    is_involution=True,
    emit=lambda b, x: b.op("conj", x, type=x.type),
    transpose=[lambda ct, x: conj(ct)],
    is_exact=True,
    passes_nans=True,
)


def _complex_type(*avals: ShapedArray):
    families.same_dtypes("complex", avals)
    for i, aval in enumerate(avals):
        if aval.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise TypeError(
                f"complex: parts must be float32 or float64, got {aval.str_short()} at position {i}."
            )
    return ShapedArray(
        families.broadcast_shapes("complex", avals),
        dtypes.to_complex_dtype(avals[0].dtype),
        all(a.weak_type for a in avals),
        None,
        families.joined_vma(avals),
    )


def _complex_reference(re: NumPyArray, im: NumPyArray):
    out = np.empty(np.broadcast_shapes(re.shape, im.shape), dtypes.to_complex_dtype(re.dtype))
    out.real, out.imag = re, im  # re + 1j*im would spoil infinities and signed zeros
    return out


complex_p = elementwise(
    "complex",
    FLOATING,
    _complex_reference,
    type_rule=_complex_type,
    jvp="linear",
    linear_ins=(0, 1),
    additive=True,
    transpose=[lambda ct, x, y: real(ct), lambda ct, x, y: imag(_neg(ct))],
    emit=lambda b, re, im: b.op("complex", re, im, type={"f32": "c64", "f64": "c128"}[re.type]),
    is_exact=True,
    passes_nans=True,
)


@complex_p.def_jvp
def _complex_jvp(primals: Values, tangents: Values):
    out = complex_p.bind(*primals)
    if all(type(t) is Zero for t in tangents):
        return out, families.zero_tangent(out)
    re, im = (_zero_like(x) if type(t) is Zero else t for x, t in zip(primals, tangents))
    return out, families.broadcast_like(complex_p.bind(re, im), out)


real = unary(real_p, "Return the real part of complex `x`.")
imag = unary(imag_p, "Return the imaginary part of complex `x`.")


def complex(x: ArrayLike, y: ArrayLike) -> Array:
    """Return the complex number `x + iy`, elementwise.

    >>> complex(np.float32(1), np.float32(2)).item()
    (1+2j)
    """
    return complex_p.bind(*match(x, y))


def conj(x: ArrayLike) -> Array:
    """Return the complex conjugate of `x`; a real `x` becomes complex."""
    if not dtype_in(typeof(x).dtype, COMPLEX):
        return complex_p.bind(x, 0.0 if isinstance(x, float) else _zero_like(x))
    return conj_p.bind(x)


def size_as(n: Value, dtype: dtypes.DType):
    """Return a size as a scalar of a dtype.

    It is a NumPy number, or the traced value of a symbolic size.
    """
    if isinstance(n, SymbolicDim):
        return registry["dim_as_value"].bind(size=n, dtype=np.dtype(dtype))
    return np.asarray(n).astype(dtype)[()]
