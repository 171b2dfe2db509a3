"""Plans and tables of fast Fourier transforms: the passes of a transform, and the factors that it reads.

In:   a kind (see `ir.program.Fft`), and a length.
Out:  `FftPlan`, the number of complex numbers and the radix of each pass; `tables`, all factors of a transform in one array, at
      `offsets`.
Laws: every angle is reduced as an integer before its conversion to a float. Passes use Stockham's order (Van Loan, Computational
      Frameworks for the FFT, 1.7). A pass (r, m, s) reads, for p < m and q < s, the elements q + s*(p + m*j) for j < r. It
      multiplies frequency k of their transform by the twiddle factor exp(-2 pi i p k / (r m)) and writes it to q + s*(r*p + k).
      r*m is the length n for the first pass, and m of the previous pass for the others.
How:  An even number of real values is transformed as half as many complex numbers, whose transforms are then separated. For an odd
      number the first pass takes real values and computes the first half of the frequencies; the others are their conjugates.
      A length with a large prime factor is computed as a convolution (L. Bluestein, "A linear filtering approach to the computation of
      discrete Fourier transform", IEEE Transactions on Audio and Electroacoustics 18 (1970)): j k = (j^2 + k^2 - (j - k)^2) / 2, so
      the transform is a product with the chirp exp(-pi i k^2 / n), a convolution with the conjugate chirp, and another product.
      Squares are reduced modulo 2 n as integers.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from weft._engine.util.primes import prime_factors
from weft._engine.util.record import record
from weft._engine.util.threads import Background

#: the largest prime radix of a pass; the largest prime radix that is faster than a convolution; the largest length for which a
#: convolution is used although passes are possible
MOST_PRIME, MOST_DIRECT, MOST_CONVOLVED = 509, 199, 1 << 13
#: passes of smaller radices are unrolled; passes of this or a larger radix are loops over a table
WRITTEN_OUT = 11
#: the largest radix into which the smallest large prime factor and all small factors of an odd length are joined, to save a pass
_MOST_JOINED = 35
_COMPOSITE = (10, 9, 8, 6, 4)
#: transforms of tables of more numbers use `numpy.fft`; for fewer numbers, importing it takes longer than `_fft_small`
_BY_NUMPY = 1 << 13
#: numbers that are computed together, so that temporary arrays are small
_BLOCK = 1 << 11
#: the minimal number of factors that are computed on a thread; the alignment, in bytes, of constants that programs use without a copy
_WORTH_A_THREAD, _ALIGNMENT = 1 << 17, 64

#: kinds that treat one long row as a matrix: they transform the rows of the matrix after its columns
CROSSED = ("cross", "uncross")
#: kind that transforms columns -> kind with the same generated function
PARTNERS = {"down": "cross", "undown": "uncross"}


def is_crossed(kind: str) -> bool:
    """Return whether a kind treats one long row as a matrix."""
    return kind in CROSSED


class FftFactors(NamedTuple):
    """Factors of a transform. `array` is complete after the background computation `made_by`, if any, has finished."""

    array: np.ndarray
    made_by: Background | None

    def ready(self) -> np.ndarray:
        """Wait for the computation of the factors, and return them."""
        if self.made_by is not None:
            self.made_by.finish()
        return self.array


class Convolution(NamedTuple):
    """The sizes of a transform by convolution: the numbers that it reads, the length of its passes, and the numbers that it writes."""

    in_count: int
    length: int
    out_count: int


@record
class FftPlan:
    """The plan of a transform.

    points        the number of complex numbers
    passes        (radix, m, s) of each pass; the passes of the convolution if there is one
    real_first    whether the first pass takes real numbers
    halves        whether the complex numbers are pairs of real numbers, so that there are twice as many real numbers
    convolution   the sizes of the convolution, or None
    """

    points: int
    passes: tuple[tuple[int, int, int], ...]
    real_first: bool
    halves: bool
    convolution: Convolution | None = None

    @property
    def length(self) -> int:
        """The number of complex numbers in the passes."""
        return self.convolution.length if self.convolution else self.points


def can_pass(n: int, most: int | None = None) -> bool:
    """Return whether a length is transformed by passes: its prime factors are at most `most`.

    By default, `most` is the largest prime factor that passes handle better than a convolution.

    >>> can_pass(1), can_pass(2 * 199), can_pass(211)
    (False, True, False)
    """
    if most is None:
        most = MOST_DIRECT if n <= MOST_CONVOLVED else MOST_PRIME
    return n > 1 and prime_factors(n)[-1] <= most


@functools.cache
def radices(n: int) -> tuple[int, ...]:
    """Return radices whose product is n: few and similar radices.

    >>> radices(1024), radices(1000), radices(31 * 33)
    ((4, 4, 8, 8), (10, 10, 10), (31, 33))
    """
    large = sorted([p for p in prime_factors(n) if p >= WRITTEN_OUT], reverse=True)
    for p in large:
        n //= p
    if large and n % 2 and large[-1] * n <= _MOST_JOINED:
        return (*large[:-1], large[-1] * n)
    return (*large, *_split(n, WRITTEN_OUT)[1])


@functools.cache
def _split(n: int, most: int) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Return the cost (count, sum) and the cheapest radices of n, ascending and at most `most`."""
    if n == 1:
        return (0, 0), ()
    candidates: list[tuple[tuple[int, int], tuple[int, ...]]] = []
    for r in (*_COMPOSITE, 7, 5, 3, 2):
        if r <= most and n % r == 0:
            (count, total), smaller = _split(n // r, r)
            candidates.append(((count + 1, total + r), (*smaller, r)))
    return min(candidates, default=((1 << 30, 0), ()))


@functools.cache
def convolution_radices(n: int) -> tuple[int, ...]:
    """Return the radices of a convolution of at least n numbers.

    At most two different radices are used, because LLVM takes milliseconds to compile each.

    >>> convolution_radices(1041), convolution_radices(2017)
    ((5, 6, 6, 6), (5, 5, 9, 9))
    """
    candidates: list[tuple[int, ...]] = []
    for r, other in itertools.combinations((4, 5, 6, 7, 8, 9, 10), 2):
        for count in range(round(math.log(n, other)) + 2):
            remaining = -(-n // other**count)
            more = next(i for i in itertools.count() if r**i >= remaining)
            candidates.append((r,) * more + (other,) * count)
    return min(candidates, key=lambda choice: (math.prod(choice) * len(choice), sum(choice)))


def max_points(n: int) -> int:
    """Return the maximal number of complex numbers in the passes of a transform of n numbers."""
    return n if n == 1 or can_pass(n) else math.prod(convolution_radices(2 * n - 1))


@functools.cache
def plan_fft(kind: str, n: int) -> FftPlan:
    """Return the plan of a transform of the given kind and length."""
    real = kind in ("half", "all", "real")
    halves = real and n % 2 == 0
    points = n // 2 if halves else n
    if points > 1 and not can_pass(
        points, MOST_PRIME if PARTNERS.get(kind, kind) in CROSSED else None
    ):
        half = real and not halves
        num_inputs, num_outputs = (
            n // 2 + 1 if half and kind == "real" else points,
            n // 2 + 1 if half and kind != "real" else points,
        )
        chosen = convolution_radices(num_inputs + num_outputs - 1)
        m = math.prod(chosen)
        return FftPlan(
            points,
            _passes_of_radices(m, chosen),
            False,
            halves,
            Convolution(num_inputs, m, num_outputs),
        )
    real_first = kind in ("half", "all") and not halves
    chosen = radices(points)
    if real_first:
        first = max(prime_factors(points))
        chosen = (first, *(radices(points // first) if points > first else ()))
    return FftPlan(points, _passes_of_radices(points, chosen, real_first), real_first, halves)


def _passes_of_radices(
    n: int, chosen: tuple[int, ...], real_first: bool = False
) -> tuple[tuple[int, int, int], ...]:
    """Return the passes (radix, m, s) of the radices `chosen`, whose product is n."""
    result: list[tuple[int, int, int]] = []
    m, s = n, 1
    for place, r in enumerate(chosen):
        m //= r
        result.append((r, m, s))
        s *= (r + 1) // 2 if real_first and place == 0 else r
    return tuple(result)


def _roots_of_unity(n: int, dtype: np.dtype) -> np.ndarray:
    """Return all exp(-2 pi i k / n) as an array of real parts and imaginary parts. Symmetry is used to compute an eighth of them."""
    if n % 4:
        more = 4 // math.gcd(4, n)
        return _roots_of_unity(n * more, dtype)[:, ::more]
    quarter, eighth = n // 4, -(-n // 8)
    angle = np.arange(quarter // 2 + 1) * (2 * np.pi / n)
    cos, sin = np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)
    mirrored = slice(quarter - eighth, 0, -1)
    re = np.concatenate([cos[:eighth], sin[mirrored]])
    im = -np.concatenate([sin[:eighth], cos[mirrored]])
    return np.concatenate([re, im, -re, -im, im, -re, -im, re]).reshape(2, n)


def twiddles(n: int, dtype: np.dtype) -> np.ndarray:
    """Return the n-th roots of unity exp(-2 pi i k / n) as complex numbers."""
    return (
        np.ascontiguousarray(_roots_of_unity(n, dtype).T)
        .view(np.result_type(dtype, np.complex64))
        .ravel()
    )


def twiddle(k: int, n: int) -> tuple[float, float]:
    """Return exp(-2 pi i k / n) as a pair. It is computed from an angle of at most pi / 4, relative to the nearest quarter turn.

    >>> twiddle(5, 4)
    (0.0, -1.0)
    """
    k %= n
    quarter = (8 * k // n + 1) // 2
    angle = (4 * k - quarter * n) * (math.pi / (2 * n))
    cos, sin = math.cos(angle), math.sin(angle)
    return ((cos, -sin, -cos, sin)[quarter % 4] + 0.0, -(sin, cos, -sin, -cos)[quarter % 4])


@functools.lru_cache(64)
def _table_parts(kind: str, n: int, dtype: np.dtype) -> tuple[np.ndarray, ...]:
    """Return the parts of `tables` without the factors of crossed rows."""
    plan = plan_fft(kind, n)
    result: list[np.ndarray] = []
    for r, m, _ in plan.passes:
        if r >= WRITTEN_OUT:
            half = np.arange(1, r // 2 + 1)
            result.append(twiddles(r, dtype)[-np.outer(half, half) % r])
        if m > 1:
            result.append(twiddles(r * m, dtype)[np.outer(np.arange(m), np.arange(1, r))])
    if plan.convolution:
        result += _factors(plan.points, plan.convolution, kind == "real" and not plan.halves, dtype)
    if plan.halves:
        result.append(twiddles(n, dtype)[: plan.points // 2 + 1])
    return tuple([part.ravel().view(dtype) for part in result])


def _factors(n: int, sizes: Convolution, mirrored: bool, dtype: np.dtype) -> list[np.ndarray]:
    """Return the factors of the three products of a transform by convolution: of its operand, its frequencies and its results.

    After each of the first two products, real and imaginary parts are exchanged: the result is i times the conjugate, and the transform
    of conjugates is an inverse transform. Intermediate numbers are scaled by 1/8, so that they do not overflow if the results are
    finite. If the operand is `mirrored`, each number except the first also represents its conjugate at the mirrored position.
    """
    re, im = chirp = _chirp(n, max(sizes.in_count, sizes.out_count))
    before = np.stack([im, re], 1)[: sizes.in_count] * [-1 / 8, 1 / 8]
    if mirrored:
        before[1:] *= 2
    parts = (
        before,
        np.stack(_frequencies(chirp, sizes, dtype), 1),
        8 * np.stack([re, im], 1)[: sizes.out_count],
    )
    return [part.astype(dtype).view(np.result_type(dtype, np.complex64)) for part in parts]


def _chirp(n: int, count: int) -> np.ndarray:
    """Return exp(-pi i k^2 / n) for k < `count`, at most n, as an array of real parts and imaginary parts.

    They are computed from angles of at most pi / 4, relative to the nearest quarter turn, as in `twiddle`.
    """
    chirp, half = np.empty((2, count)), min(count, n // 2 + 1)
    for first in range(0, half, _BLOCK):
        k = np.arange(first, min(first + _BLOCK, half), dtype=np.int64)
        square = k * k % (2 * n)
        quarter = (4 * square // n + 1) // 2
        angle = (square - quarter * (n / 2)) * (np.pi / n)
        cos, sin, odd = np.cos(angle), np.sin(angle), quarter % 2 > 0
        re, im = chirp[:, first : first + len(k)]
        np.multiply(np.where(odd, sin, cos), np.array([1, -1, -1, 1])[quarter % 4], out=re)
        np.multiply(np.where(odd, cos, sin), np.array([-1, -1, 1, 1])[quarter % 4], out=im)
    if (remaining := count - half) > 0:  # (n - k)^2 = n^2 + k^2 modulo 2 n
        np.multiply(
            chirp[:, (n - 1) // 2 : (n - 1) // 2 - remaining : -1],
            -1 if n % 2 else 1,
            out=chirp[:, half:],
        )
    return chirp


def _frequencies(
    chirp: np.ndarray, sizes: Convolution, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors of the frequencies of a convolution: i times the transform of the chirp, divided by its length.

    The result are real parts and imaginary parts. The extended chirp is even, so its transform is even, and real transforms of its
    real and imaginary part suffice.
    """
    m, num_inputs, written = sizes.length, sizes.in_count, sizes.out_count
    if num_inputs == written and m > _BY_NUMPY:
        x, parts = np.zeros(m), np.empty((2, m), dtype)
        for part, whole in zip((-chirp[1], chirp[0]), parts):
            x[:written], x[m - num_inputs + 1 :] = part, part[num_inputs - 1 : 0 : -1]
            np.divide(np.fft.rfft(x).real, m, out=whole[: m // 2 + 1], casting="unsafe")
            whole[m // 2 + 1 :] = whole[m - m // 2 - 1 : 0 : -1]
        return parts[0], parts[1]
    x = np.zeros(m, np.complex128)
    for part, values in zip((x.real, x.imag), chirp):
        part[:written], part[m - num_inputs + 1 :] = (
            values[:written],
            values[num_inputs - 1 : 0 : -1],
        )
    spectrum = _fft_small(x)
    return (np.imag(spectrum) / -m).astype(dtype), (np.real(spectrum) / m).astype(dtype)


def convolution_factors(
    n: int, sizes: Convolution, column: int, scale: float, dtype: np.dtype
) -> list[FftFactors]:
    """Return the factors of a convolution whose numbers are a matrix with columns of length `column` (see `ir.program.FftConvolutionPart`).

    They are the factors of the operand after the exchange of its real and imaginary parts, of the frequencies before this
    exchange, and of the results, multiplied by `scale`.
    """
    counts = [
        (sizes.in_count, sizes.length // column),
        (sizes.length, column),
        (sizes.out_count, column),
    ]
    tables = [
        _align(-(-count // inner) * inner * 2, dtype).reshape(-1, 2, inner)
        for count, inner in counts
    ]

    def fill() -> None:
        re, im = chirp = _chirp(n, max(sizes.in_count, sizes.out_count))
        values = ((im, re), -1 / 8), (_frequencies(chirp, sizes, dtype), 1), ((re, im), 8 * scale)
        for (parts, factor), table, (count, inner) in zip(values, tables, counts):
            full, remaining = divmod(count, inner)
            for part, numbers in enumerate(parts):
                np.multiply(
                    numbers[: full * inner].reshape(full, inner),
                    factor,
                    out=table[:full, part],
                    casting="unsafe",
                )
                table[full:, part, :remaining] = numbers[full * inner : count] * factor
                table[full:, part, remaining:] = 0

    made_by = _start_fill(fill, sum([table.size for table in tables]))
    return [FftFactors(table.ravel(), made_by) for table in tables]


def _align(count: int, dtype: np.dtype) -> np.ndarray:
    """Return an uninitialized array that is aligned so that programs use it as a constant without a copy."""
    memory = np.empty(count + _ALIGNMENT // dtype.itemsize, dtype)
    return memory[-memory.ctypes.data % _ALIGNMENT // dtype.itemsize :][:count]


def _start_fill(fill: Callable[[], object], count: int) -> Background | None:
    """Call `fill`, which computes `count` factors: in a thread, which is returned, if there are many; else immediately."""
    if count >= _WORTH_A_THREAD:
        return Background(fill)
    fill()
    return None


def _fft_small(x: np.ndarray) -> np.ndarray:
    """Return the transform of complex numbers. Small transforms do not use `numpy.fft`, because importing it takes longer."""
    if x.size > _BY_NUMPY:
        return np.fft.fft(x)
    for r, m, _ in _passes_of_radices(x.size, radices(x.size)):
        roots, k = twiddles(r * m, np.dtype(np.float64)), np.arange(r)
        x = np.einsum("kj,jpq->pkq", roots[m * np.outer(k, k) % (r * m)], x.reshape(r, m, -1))
        x = (x * roots[np.outer(np.arange(m), k)][:, :, None]).ravel()
    return x


def tables(kind: str, n: int, inner: int, dtype: np.dtype) -> FftFactors:
    """Return all factors of a transform in one array.

    For each pass these are the cosines and sines of its radix if the pass is a loop (j by k), then, if m > 1, the twiddle factors of its
    results (p by k >= 1). The factors of a convolution and the factors that separate two halves follow. For crossed kinds, the
    twiddle factors of the rows follow: for each number of a row the real parts for all rows, then the imaginary parts.
    """
    plan, crossed = plan_fft(kind, n), 2 * n * inner * (kind in CROSSED)
    size = offsets(kind, n)[-1] + plan.halves * 2 * (plan.points // 2 + 1)
    factors = _align(size + crossed + 1, dtype)

    def fill() -> None:
        factors[:size], factors[-1] = (
            np.concatenate([*_table_parts(kind, n, dtype), factors[:0]]),
            0,
        )
        if crossed:
            _fill_crossed(factors[size:-1].reshape(n, 2, inner))

    return FftFactors(factors, _start_fill(fill, factors.size))


def _fill_crossed(crossed: np.ndarray) -> None:
    n, _, inner = crossed.shape
    if crossed.itemsize < 8:
        _fill_by_products(crossed)
        return
    roots = _roots_of_unity(n * inner, crossed.dtype)
    crossed[0] = roots[:, :1]
    for number in range(1, n):  # roots of unity in steps of `number`
        crossed[number] = roots[:, : number * inner : number]


def _fill_by_products(crossed: np.ndarray) -> None:
    """Compute the factors of crossed rows as products of two factors, in float64.

    These blocks are in the caches, and reading roots of unity with large strides would be slower.
    """
    shape: tuple[int, ...] = crossed.shape
    n, _, inner = shape
    step = math.isqrt(n)

    def factors(numbers: np.ndarray) -> np.ndarray:
        angle = np.outer(numbers, np.arange(inner)) * (-2 * np.pi / (n * inner))
        return np.cos(angle) + 1j * np.sin(angle)

    first_factors = factors(np.arange(step))
    for first, row in zip(range(0, n, step), factors(np.arange(0, n, step))):
        block = first_factors[: n - first] * row
        crossed[first : first + step, 0], crossed[first : first + step, 1] = block.real, block.imag


def offsets(kind: str, n: int) -> list[int]:
    """Return the offsets in `tables` of the factors of each pass, of the three products of a convolution, and of the last factors."""
    plan, at = plan_fft(kind, n), 0
    result: list[int] = []
    sizes = [
        2 * (r // 2) ** 2 * (r >= WRITTEN_OUT) + (2 * m * (r - 1) if m > 1 else 0)
        for r, m, _ in plan.passes
    ]
    for size in (*sizes, *(2 * size for size in plan.convolution or ())):
        result.append(at)
        at += size
    return [*result, at]
