"""Rules for products, convolutions, transforms and factorizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._engine.control.scan import scan
from weft._engine.core.primitive import CallbackOp, ContractOp, LibraryOp
from weft._engine.hlo.lowering import result_types, rule
from weft._engine.hlo.ops import HloBlock, HloValue, array_type, dtype_kind
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ops.arithmetic import add
from weft._engine.ops.comparison import eq, select
from weft._engine.ops.contraction import DotAlgorithmPreset, Precision, ProductPrecision
from weft._engine.ops.families import move_dim
from weft._engine.ops.fft import FftType
from weft._engine.ops.layout import broadcast_in_dim, broadcasted_iota
from weft._engine.ops.ragged import grouped_in_full
from weft._engine.ops.reduce import reduce_sum


def _same_dtype(b: HloBlock, eqn: Eqn, x: HloValue, y: HloValue) -> tuple[HloValue, HloValue]:
    """Return operands of a product in one dtype; products of bools are counted."""
    dtype = x.dtype if x.dtype == y.dtype else eqn.outvars[0].aval.dtype
    dtype = np.dtype(np.int32) if dtype_kind(dtype) == "b" else dtype
    return b.convert(x, dtype), b.convert(y, dtype)


def _product(
    b: HloBlock, eqn: Eqn, name: str, shape: Sequence[int], x: HloValue, y: HloValue, **attrs: Any
) -> HloValue:
    (out,) = result_types(eqn)
    x, y = _same_dtype(b, eqn, x, y)
    dtype = np.dtype(np.int32) if dtype_kind(out.dtype) == "b" else out.dtype
    return b.convert(b.op(name, x, y, type=array_type(shape, dtype), **attrs), out.dtype)


def _operand_precisions(precision: ProductPrecision) -> list[str]:
    """Return the precision of each operand; six or nine products of bfloat16 parts are as precise as float32."""
    if isinstance(precision, DotAlgorithmPreset):
        one = Precision.HIGH if precision.bf16_products == 3 else Precision.HIGHEST
        precision = one, one
    return [p.name for p in precision or [Precision.DEFAULT] * 2]


@rule(ContractOp)
def _dot_general(b: HloBlock, eqn: Eqn, x: HloValue, y: HloValue) -> HloValue:
    """Write a product; the compiler's products may have result dims in another order.

    Only products of float32 numbers by parts have an algorithm.
    """
    contracting, batching = eqn.params["dimension_numbers"]
    order, precision = eqn.params.get("permutation"), eqn.params["precision"]
    (out,) = result_types(eqn)
    shape = out.shape if order is None else [out.shape[order.index(d)] for d in range(out.ndim)]
    algorithm = None
    if isinstance(precision, DotAlgorithmPreset):
        is_float32 = all(v.dtype == np.float32 for v in (x, y, out))
        algorithm, precision = precision if is_float32 else None, None
    product = _product(
        b,
        eqn,
        "dot_general",
        shape,
        x,
        y,
        contracting=contracting,
        batching=batching,
        precision=_operand_precisions(precision),
        algorithm=algorithm,
    )
    return product if order is None else b.transpose(product, order)


@rule("grouped_dot")
def _grouped_dot(b: HloBlock, eqn: Eqn, *args: HloValue) -> list[HloValue]:
    return b.context.inline_function(b, lambda *xs: [grouped_in_full(*xs, **eqn.params)], args)


@rule("conv_general_dilated")
def _convolution(b: HloBlock, eqn: Eqn, x: HloValue, y: HloValue) -> HloValue:
    p = eqn.params
    return _product(
        b,
        eqn,
        "convolution",
        result_types(eqn)[0].shape,
        x,
        y,
        numbers=p["dimension_numbers"],
        strides=p["window_strides"],
        padding=p["padding"],
        lhs_dilation=p["lhs_dilation"],
        rhs_dilation=p["rhs_dilation"],
        feature_group_count=p["feature_group_count"],
        batch_group_count=p["batch_group_count"],
        precision=_operand_precisions(p["precision"]),
    )


# --- transforms

#: the most dims of one XLA transform
_MOST_DIMS = 3


@rule("fft")
def _fft(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    kind, lengths = eqn.params["fft_type"], eqn.params["fft_lengths"]
    x = b.convert(x, eqn.outvars[0].aval.dtype) if kind is FftType.FFT else x
    last = lengths[-_MOST_DIMS:]
    outer = range(x.ndim - len(lengths), x.ndim - len(last))
    whole = FftType.IFFT if kind in (FftType.IFFT, FftType.IRFFT) else FftType.FFT
    if kind is FftType.IRFFT:
        x = _transform_dims(b, x, outer, whole)
    x = b.op(
        "fft",
        x,
        type=array_type(
            (*x.shape[: x.ndim - len(last)], *eqn.outvars[0].aval.shape[x.ndim - len(last) :]),
            eqn.outvars[0].aval.dtype,
        ),
        kind=kind.name,
        lengths=tuple(last),
    )
    return x if kind is FftType.IRFFT else _transform_dims(b, x, outer, whole)


def _transform_dims(b: HloBlock, x: HloValue, dims: range, kind: FftType) -> HloValue:
    """Write complex transforms along each of `dims`, one after the other."""
    for d in dims:
        order = [k for k in range(x.ndim) if k != d] + [d]
        moved = b.transpose(x, order)
        moved = b.op("fft", moved, kind=kind.name, lengths=(x.shape[d],))
        x = b.transpose(moved, [order.index(k) for k in range(x.ndim)])
    return x


# --- matrices


@rule("cholesky")
def _cholesky(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    """Write a Cholesky factorization and zero the undefined upper triangle."""
    factor, (rows, columns) = (
        b.op("cholesky", x, lower=True),
        (b.iota(x.shape, np.int32, x.ndim - k) for k in (2, 1)),
    )
    return b.op("select", b.compare("GE", rows, columns), factor, b.like(factor, 0), type=x.type)


@rule("triangular_solve")
def _triangular_solve(b: HloBlock, eqn: Eqn, a: HloValue, y: HloValue) -> HloValue:
    p = dict(eqn.params)
    transposes, conjugates = p.pop("transpose_a"), p.pop("conjugate_a")
    if conjugates and not transposes:
        a = b.op("complex", b.real(a), b.op("negate", b.real(a, "imag")), type=a.type)
    transpose = (
        "ADJOINT" if transposes and conjugates else "TRANSPOSE" if transposes else "NO_TRANSPOSE"
    )
    return b.op("triangular_solve", a, y, type=y.type, transpose=transpose, **p)


@rule("lu_pivots_to_permutation")
def _permutation(b: HloBlock, eqn: Eqn, pivots: HloValue) -> list[HloValue]:
    """Write the permutation that results from exchanging rows one after the other."""
    (out,) = result_types(eqn)

    def exchanged(pivots):
        def step(places, pivot):
            i, permutation = places
            here, there = eq(at, i), eq(at, spread(pivot))
            first, second = (
                spread(reduce_sum(select(where, permutation, 0), (permutation.ndim - 1,)))
                for where in (here, there)
            )
            return (add(i, 1), select(here, second, select(there, first, permutation))), None

        at = broadcasted_iota(out.dtype, out.shape, out.ndim - 1)
        spread = lambda x: broadcast_in_dim(x, out.shape, tuple(range(out.ndim - 1)))
        return [
            scan(step, (np.zeros((), out.dtype), at), move_dim(pivots, pivots.ndim - 1, 0))[0][1]
        ]

    return b.context.inline_function(b, exchanged, [pivots])


@rule("lu", "qr", "eigh", "svd")
@rule(LibraryOp, CallbackOp)
def _custom_call(b: HloBlock, eqn: Eqn, *args: HloValue) -> list[HloValue]:
    """Write a custom call for a computation of a library or of the host."""
    backend_config = {k: v for k, v in eqn.params.items() if isinstance(v, (bool, int, str))}
    # a function of another language
    named = getattr(getattr(eqn.params.get("callback"), "fun", None), "target", None)
    return b.emit(
        "custom_call",
        args,
        result_types(eqn),
        target=named or f"weft_{eqn.primitive.name}",
        backend_config=backend_config,
        has_side_effect=bool(eqn.effects),
    )
