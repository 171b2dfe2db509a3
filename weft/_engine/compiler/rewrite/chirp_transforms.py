"""Chirp transforms: FFTs of real rows whose lengths have large prime factors, as complex transforms by convolution.

In:   an `fft` equation along one dim (see `fft_plan.is_matrix_convolution`) from or to real numbers.
Out:  `complex_transform(eqn)`, a function that computes its results; None if rows are too long for matrices.
Laws: only half the results of a real transform, or half the operands of an inverse one, are convolved, so convolutions are shorter.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft._engine.compiler.kernels import fft_plan
from weft._engine.core.trace import typeof
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ops.arithmetic import mul
from weft._engine.ops.casting import complex as complex_, conj, convert_element_type, imag, real
from weft._engine.ops.fft import FftType, fft_p
from weft._engine.ops.layout import broadcast_in_dim, rev
from weft._engine.ops.slicing import concatenate, slice_in_dim


def complex_transform(eqn: Eqn) -> Callable | None:
    """Return a function of the operand that computes the results, as a list; None if rows are too long."""
    kind, (n,) = eqn.params["fft_type"], eqn.params["fft_lengths"]
    source, target = eqn.invars[0].aval, eqn.outvars[0].aval
    last = source.ndim - 1
    in_length, out_length = (n // 2 + 1, n) if kind is FftType.IRFFT else (n, n // 2 + 1)
    if not target.size or fft_plan.convolution_matrix_sides(in_length + out_length - 1) is None:
        return None
    k = np.arange(n // 2 + 1)
    is_own_negative = (k == 0) | (2 * k == n)  # frequencies that equal their negatives

    def times(x, factors: np.ndarray):
        return mul(
            x,
            broadcast_in_dim(
                factors.astype(typeof(x).dtype), (*source.shape[:-1], len(factors)), (last,)
            ),
        )

    def to_real(x):
        x = complex_(real(x), times(imag(x), np.where(is_own_negative, 0, 1)))
        return [
            real(
                fft_p.bind(
                    times(x, np.where(is_own_negative, 1, 2)),
                    fft_type=FftType.IFFT,
                    fft_lengths=(n,),
                    kept=n,
                )
            )
        ]

    def of_real(x):
        x = convert_element_type(x, np.result_type(source.dtype, np.complex64))
        out = fft_p.bind(x, fft_type=FftType.FFT, fft_lengths=(n,), kept=out_length)
        out = complex_(real(out), times(imag(out), np.where(is_own_negative, 0, 1)))
        if kind is FftType.FFT:
            out = concatenate(
                [out, conj(rev(slice_in_dim(out, 1, n - out_length + 1, axis=last), (last,)))], last
            )
        return [out]

    return to_real if kind is FftType.IRFFT else of_real
