"""Fourier transforms of a few long rows of lengths with large prime factors, as convolutions whose transforms are of matrices.

In:   an `fft` equation along one dim (see `fft_plan.is_matrix_convolution`).
Out:  `convolution_of(eqn)`, a function that gives its results by transforms of a padded length; None where these are not of matrices.
Laws: `ir.fft` says what is convolved. Of real values half the results, and of half spectra half the operands, need a shorter convolution.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from weft.compiler.kernels import fft_plan
from weft.core.trace import typeof
from weft.ir import fft as passes
from weft.ir.jaxpr import Eqn
from weft.ops.arithmetic import mul
from weft.ops.casting import complex as complex_, conj, convert_element_type, imag, real
from weft.ops.fft import FftType, fft
from weft.ops.layout import broadcast_in_dim, rev
from weft.ops.slicing import concatenate, pad, slice_in_dim


def convolution_of(eqn: Eqn) -> Callable | None:
    """A function of the operand that gives the results."""
    kind, lengths = eqn.params["fft_type"], eqn.params["fft_lengths"]
    source, target = eqn.invars[0].aval, eqn.outvars[0].aval
    if not target.size:
        return None
    (n,), last = lengths, source.ndim - 1
    is_real = source.dtype.kind == "f"
    taken, given = source.shape[-1], n // 2 + 1 if is_real else target.shape[-1]
    m = fft_plan.matrix_length(taken + given - 1)
    if m is None:
        return None
    dtype = np.result_type(source.dtype, np.complex64)

    def times(x, factors: np.ndarray):
        return mul(x, broadcast_in_dim(factors.astype(typeof(x).dtype), (*source.shape[:-1], len(factors)), (last,)))

    def transform(x):
        before, between, after = _factors(n, taken, given, m, kind)
        padded = pad(times(convert_element_type(x, dtype), before), np.zeros((), dtype)[()], [(0, 0, 0)] * last + [(0, m - taken, 0)])
        turned = fft(times(conj(fft(padded, FftType.FFT, (m,))), between), FftType.FFT, (m,))
        out = times(conj(slice_in_dim(turned, 0, given, axis=last)), after)
        if kind is FftType.IRFFT:
            return [real(out)]
        if is_real:                              # the first frequency, and the middle one, are real, and the others mirror each other
            k = np.arange(given)
            out = complex_(real(out), times(imag(out), np.where((k == 0) | (2 * k == n), 0, 1)))
            if kind is FftType.FFT:
                out = concatenate([out, conj(rev(slice_in_dim(out, 1, n - given + 1, axis=last), (last,)))], last)
        return [out]

    return transform


@functools.lru_cache(16)
def _factors(n: int, taken: int, given: int, m: int, kind: FftType) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What operands, the conjugate of their transform, and the conjugate of the transform of that are multiplied by. The division by m
    comes first, and operands are an eighth of what they are, so that nothing overflows that is finite in the end."""
    inverse = kind in (FftType.IFFT, FftType.IRFFT)
    k = np.arange(max(taken, given), dtype=np.int64)
    chirp = passes.twiddles(2 * n, np.dtype(np.float64))[k * k % (2 * n)]
    chirp = chirp.conj() if inverse else chirp
    convolved = np.zeros(m, np.complex128)
    convolved[:given] = chirp[:given].conj()
    convolved[m - taken + 1:] = chirp[taken - 1:0:-1].conj()
    before = chirp[:taken] / (8 * n if inverse else 8)
    if kind is FftType.IRFFT:        # each frequency but the first, and the middle one, stands for its mirror image, too
        before = before * np.where((k[:taken] == 0) | (2 * k[:taken] == n), 1, 2)
    return before, np.fft.fft(convolved).conj() / m, 8 * chirp[:given]
