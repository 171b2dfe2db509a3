"""Discrete Fourier transforms over the last dims: native steps where `compiler.kernels.fft_plan` is faster, else SciPy.

Laws: `fft_lengths` are the sizes of the transformed dims in the time domain; the last dim of a real
      transform has half as many frequencies plus one. All four are linear; the complex ones equal
      their own transposes. The parameter `kept` is internal: for one dim, the number of results to
      keep, from an input that may be shorter than its length and is continued by zeros.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import LibraryOp
from weft._engine.core.trace import typeof
from weft._engine.ir.factors import RuleBuilder
from weft._engine.ir.symbolic import SymbolicDim, as_int
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import families
from weft._engine.ops.arithmetic import div, mul
from weft._engine.ops.axis_families import unary_transpose
from weft._engine.ops.bitwise import bitwise_or
from weft._engine.ops.casting import conj, convert_element_type, real, size_as
from weft._engine.ops.comparison import eq, select_n
from weft._engine.ops.families import COMPLEX, FLOATING, INEXACT, dtype_in, shape_error
from weft._engine.ops.layout import broadcast_in_dim, full, iota
from weft._engine.ops.lowering_specs import FftSpec
from weft._engine.ops.rule_helpers import aval_of, batch_dim_to_front
from weft._engine.ops.slicing import pad
from weft._engine.util import dtypes, fft_engine

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis
    from weft._engine.core.trace import UndefPrimal
    from weft._engine.ops.rule_types import Avals, BatchDims, Ints, NumPyArray, Value, Values

fft_p = LibraryOp("fft", shards_like_operands=True)


class FftType(enum.IntEnum):
    """The kind of transform: forward or inverse, of complex or of real values (FFT takes either)."""

    __module__ = "weft.lax"

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3

    @classmethod
    def from_any(cls, value: Any) -> "FftType":
        """Return the type for a name or a number."""
        names = list(cls.__members__)
        if isinstance(value, str):
            if value.upper() not in names:
                raise ValueError(f"fft_type must be one of {', '.join(names)}, got {value!r}.")
            return cls[value.upper()]
        return cls(value)


def fft(x: Any, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Any:
    """Return the discrete Fourier transform of the last `len(fft_lengths)` dims.

    Without dims the result is the operand.

    >>> np.asarray(fft(np.ones(4, np.complex64), "FFT", (4,))).real.tolist()
    [4.0, 0.0, 0.0, 0.0]
    """
    kind = FftType.from_any(fft_type)
    lengths = tuple([as_int(n) for n in fft_lengths])
    dtype = typeof(x).dtype
    takes_real = kind == FftType.RFFT or (
        kind == FftType.FFT and dtype_in(dtype, FLOATING) and dtype.itemsize >= 4
    )
    if not takes_real and not dtype_in(dtype, COMPLEX):
        x = convert_element_type(x, dtypes.to_complex_dtype(dtype))
    return fft_p.bind(x, fft_type=kind, fft_lengths=lengths) if lengths else x


@fft_p.def_type
def _fft_type(
    aval: ShapedArray, *, fft_type: FftType, fft_lengths: Ints, kept: int | None = None
) -> ShapedArray:
    takes = {FftType.RFFT: FLOATING, FftType.FFT: INEXACT}.get(fft_type, COMPLEX)
    families.check_dtype("fft", aval, takes)
    if kept is not None:
        return ShapedArray((*aval.shape[:-1], kept), aval.dtype, False, None, aval.vma)
    name = fft_type.name
    if dtype_in(aval.dtype, FLOATING) and aval.dtype.itemsize < 4:
        raise ValueError(f"fft: {name} input must be float32 or float64, got {aval.dtype.name}.")
    fail: Callable[[str], Exception] = lambda what: shape_error(
        "fft",
        f"{name} input shape {aval.shape} {what}",
        [("operand", aval.str_short())],
        "Pad or slice the operand to the lengths first.",
    )
    if not 0 < len(fft_lengths) <= aval.ndim:
        raise fail(
            f"must have at least as many input dimensions as fft_lengths {fft_lengths}, and these at least one."
        )
    n = len(fft_lengths)
    half = (*fft_lengths[:-1], fft_lengths[-1] // 2 + 1)
    before = half if fft_type == FftType.IRFFT else fft_lengths
    after = half if fft_type == FftType.RFFT else fft_lengths
    if fft_type == FftType.IRFFT and aval.shape[aval.ndim - n : -1] != before[:-1]:
        raise fail(
            f"minor dimensions must be equal to all except the last fft_length, got {fft_lengths=}."
        )
    if aval.shape[aval.ndim - n :] != before:
        raise fail(
            f"minor dimensions must be equal to fft_lengths {fft_lengths}"
            + (
                "."
                if before == fft_lengths
                else f" but for the last, which is {before[-1]} for {fft_lengths[-1]}."
            )
        )
    dtype = (dtypes.to_real_dtype if fft_type == FftType.IRFFT else dtypes.to_complex_dtype)(
        aval.dtype
    )
    return ShapedArray(aval.shape[: aval.ndim - n] + after, dtype, False, None, aval.vma)


@fft_p.def_reference
def _fft_reference(x: NumPyArray, *, kept: int | None = None, **params: Any):
    if kept is not None:
        x = np.concatenate(
            [x, np.zeros((*x.shape[:-1], params["fft_lengths"][0] - x.shape[-1]), x.dtype)], -1
        )
    aval = _fft_type(ShapedArray(x.shape, x.dtype), **params)
    out = np.empty(aval.shape, aval.dtype)
    _fft_into(np.ascontiguousarray(x), out, **params)
    return out[..., :kept]


def _fft_into(x: NumPyArray, out: NumPyArray, *, fft_type: FftType, fft_lengths: Ints) -> None:
    """Write the transform to `out`."""
    if not x.size:
        out[...] = 0
        return
    run = {
        FftType.FFT: fft_engine.forward,
        FftType.IFFT: fft_engine.backward,
        FftType.RFFT: fft_engine.forward_of_real,
        FftType.IRFFT: fft_engine.backward_to_real,
    }[fft_type]
    run(x, range(x.ndim - len(fft_lengths), x.ndim), out)


def _fft_transpose(ct: Value, x: UndefPrimal, *, fft_type: FftType, fft_lengths: Ints):
    if fft_type in (FftType.FFT, FftType.IFFT):
        back = fft(ct, fft_type, fft_lengths)
        return back if dtype_in(aval_of(x).dtype, COMPLEX) else real(back)
    aval = typeof(ct)
    if fft_type == FftType.RFFT:  # the first half of the full transform of the real values
        missing = fft_lengths[-1] - aval.shape[-1]
        padded = pad(
            ct, np.zeros((), aval.dtype)[()], [(0, 0, 0)] * (aval.ndim - 1) + [(0, missing, 0)]
        )
        return real(fft(padded, FftType.FFT, fft_lengths))
    # each frequency except the first (and the middle one) represents itself and its mirror image
    out = conj(fft(ct, FftType.RFFT, fft_lengths))
    shape, dtype = typeof(out).shape, typeof(out).dtype
    length, size = fft_lengths[-1], math.prod(fft_lengths)
    if isinstance(size, SymbolicDim):
        places = iota(np.int32, shape[-1])
        is_own_negative = bitwise_or(
            eq(places, np.int32(0)), eq(mul(places, np.int32(2)), size_as(length, np.int32))
        )
        weights = select_n(is_own_negative, full(shape[-1:], 2, dtype), full(shape[-1:], 1, dtype))
        return div(
            mul(out, broadcast_in_dim(weights, shape, (len(shape) - 1,))), size_as(size, dtype)
        )
    weights = np.full(length // 2 + 1, 2.0)
    weights[0] = 1
    if length % 2 == 0:
        weights[-1] = 1
    scale = (weights / size).astype(dtype)
    return mul(out, broadcast_in_dim(scale, shape, (len(shape) - 1,)))


@fft_p.def_batch
def _fft_batch(axis: BatchAxis, args: Values, dims: BatchDims, **params: Any):
    return fft_p.bind(batch_dim_to_front(args[0], dims[0], axis.size), **params), 0


@fft_p.def_factors
def _fft_factors(in_avals: Avals, out_avals: Avals, *, fft_type: FftType, fft_lengths: Ints):
    b = RuleBuilder()
    n = len(fft_lengths)
    lead = b.add_factors(in_avals[0].shape[:-n])
    ins, outs = b.add_factors(in_avals[0].shape[-n:]), b.add_factors(out_avals[0].shape[-n:])
    return b.rule(
        [[*lead, *ins]],
        [[*lead, *outs]],
        special=dict.fromkeys([*ins, *outs], "replicate"),
        linear_ins=(0,),
    )


fft_p.define(
    jvp=families.linear_jvp(fft_p),
    transpose=unary_transpose(_fft_transpose),
    lower=FftSpec(into=_fft_into),
)
