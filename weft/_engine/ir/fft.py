"""Fourier transforms as passes of small ones: what the compiler plans and the code generator writes.

In:   a kind (see `ir.program.Fft`), and a length.
Out:  `Passes`: how many complex numbers are worked on, and the radix of each pass; `tables`: all factors that a transform needs,
      one after the other, at `offsets`.
Laws: every angle is reduced as an integer before it is one. A pass of radix r goes from m*s groups to r times as many
      (Stockham's order: Van Loan, Computational Frameworks for the FFT, 1.7): of p < m and q < s it takes elements
      q + s*(p + m*j), j < r, and leaves their transform, multiplied by the twiddle factors exp(-2 pi i p k / (r m)), at
      q + s*(r*p + k). n = r*m, then m of the next.
How:  An even number of real values is half as many complex ones, and a step that takes the two apart. An odd number begins with
      a pass of real values, which leaves the first half of its frequencies; the others mirror them.
      A length with a large prime factor is a convolution (L. Bluestein, "A linear filtering approach to the computation of discrete
      Fourier transform", IEEE Transactions on Audio and Electroacoustics 18 (1970)): j k = (j^2 + k^2 - (j - k)^2) / 2, so that the
      transform is a product with the chirp exp(-pi i k^2 / n), a convolution with its conjugate, and another product. Squares are
      reduced modulo 2 n as integers before they are angles.
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

#: the largest prime factor that a pass takes, whose work is that of a matrix; the largest for which it is faster than a convolution; and
#: the longest rows that are convolved: longer ones have passes
MOST_PRIME, MOST_DIRECT, MOST_CONVOLVED = 509, 199, 1 << 13
#: radices that are written out; those from here on are loops over a table
WRITTEN_OUT = 11
#: the largest radix of that kind that takes what is left of an odd length, too: one pass instead of two
_MOST_JOINED = 35
_COMPOSITE = (10, 9, 8, 6, 4)
#: factors that are transformed here; of more, NumPy's import takes less time than it saves
_BY_NUMPY = 1 << 13
#: numbers that are computed together: what is between them stays in memory that the process has
_BLOCK = 1 << 11
#: factors that are worth a thread that computes them, and the alignment of memory that programs take as it is, in bytes
_WORTH_A_THREAD, _ALIGNMENT = 1 << 17, 64

#: kinds of which one long row is a matrix: they transform its rows after its columns have been
CROSSED = ("cross", "uncross")
#: kinds that transform columns, and the one of which the function does so, too
PARTNERS = {"down": "cross", "undown": "uncross"}


def is_crossed(kind: str) -> bool:
    """Return whether a kind transforms the rows of a matrix that is one long row."""
    return kind in CROSSED


class Factors(NamedTuple):
    """Numbers that a transform needs: `array`, once what makes it, if anything does, has finished."""

    array: np.ndarray
    made_by: Background | None

    def ready(self) -> np.ndarray:
        """The numbers, after waiting for them."""
        if self.made_by is not None:
            self.made_by.finish()
        return self.array


class Convolution(NamedTuple):
    """A transform whose passes are those of a convolution: how many numbers it takes and gives, and the length of the passes."""

    taken: int
    length: int
    given: int


@record
class Passes:
    """`points` numbers, complex but for the first pass if `real_first`; `halves` if they are the two halves of real values.
    `passes` are (radix, m, s): those of the points, or of what these are convolved with."""

    points: int
    passes: tuple[tuple[int, int, int], ...]
    real_first: bool
    halves: bool
    convolution: Convolution | None = None

    @property
    def length(self) -> int:
        """How many complex numbers the passes work on."""
        return self.convolution.length if self.convolution else self.points


def can_pass(n: int, most: int | None = None) -> bool:
    """Whether a length has passes: its prime factors are at most `most`, by default where they are better than a convolution.

    >>> can_pass(1), can_pass(2 * 199), can_pass(211)
    (False, True, False)
    """
    if most is None:
        most = MOST_DIRECT if n <= MOST_CONVOLVED else MOST_PRIME
    return n > 1 and prime_factors(n)[-1] <= most


@functools.cache
def radices(n: int) -> tuple[int, ...]:
    """The radices whose product is n: few passes, and similar ones.

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
    """The best radices of n up to `most`, ascending, after their cost: how many they are, and their sum."""
    if n == 1:
        return (0, 0), ()
    found: list[tuple[tuple[int, int], tuple[int, ...]]] = []
    for r in (*_COMPOSITE, 7, 5, 3, 2):
        if r <= most and n % r == 0:
            (count, total), rest = _split(n // r, r)
            found.append(((count + 1, total + r), (*rest, r)))
    return min(found, default=((1 << 30, 0), ()))


@functools.cache
def padded(n: int) -> tuple[int, ...]:
    """The radices of a convolution of at least n numbers: one or two different ones, since each takes LLVM milliseconds.

    >>> padded(1041), padded(2017)
    ((5, 6, 6, 6), (5, 5, 9, 9))
    """
    found: list[tuple[int, ...]] = []
    for r, other in itertools.combinations((4, 5, 6, 7, 8, 9, 10), 2):
        for count in range(round(math.log(n, other)) + 2):
            rest = -(-n // other**count)
            more = next(i for i in itertools.count() if r**i >= rest)
            found.append((r,) * more + (other,) * count)
    return min(found, key=lambda chosen: (math.prod(chosen) * len(chosen), sum(chosen)))


def longest(n: int) -> int:
    """How many numbers the passes of a transform of n work on at most."""
    return n if n == 1 or can_pass(n) else math.prod(padded(2 * n - 1))


@functools.cache
def passes(kind: str, n: int) -> Passes:
    """The passes of a transform of this kind and length."""
    real = kind in ("half", "all", "real")
    halves = real and n % 2 == 0
    points = n // 2 if halves else n
    if points > 1 and not can_pass(
        points, MOST_PRIME if PARTNERS.get(kind, kind) in CROSSED else None
    ):
        half = real and not halves
        taken, given = (
            n // 2 + 1 if half and kind == "real" else points,
            n // 2 + 1 if half and kind != "real" else points,
        )
        chosen = padded(taken + given - 1)
        m = math.prod(chosen)
        return Passes(points, _placed(m, chosen), False, halves, Convolution(taken, m, given))
    real_first = kind in ("half", "all") and not halves
    chosen = radices(points)
    if real_first:
        first = max(prime_factors(points))
        chosen = (first, *(radices(points // first) if points > first else ()))
    return Passes(points, _placed(points, chosen, real_first), real_first, halves)


def _placed(
    n: int, chosen: tuple[int, ...], real_first: bool = False
) -> tuple[tuple[int, int, int], ...]:
    """The passes of chosen radices."""
    found: list[tuple[int, int, int]] = []
    m, s = n, 1
    for place, r in enumerate(chosen):
        m //= r
        found.append((r, m, s))
        s *= (r + 1) // 2 if real_first and place == 0 else r
    return tuple(found)


def _roots_of_unity(n: int, dtype: np.dtype) -> np.ndarray:
    """All exp(-2 pi i k / n), real parts and imaginary ones: from the cosines and sines of an eighth of them, by symmetry."""
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
    """The roots of unity as complex numbers."""
    return (
        np.ascontiguousarray(_roots_of_unity(n, dtype).T)
        .view(np.result_type(dtype, np.complex64))
        .ravel()
    )


def twiddle(k: int, n: int) -> tuple[float, float]:
    """exp(-2 pi i k / n) as a pair: from an angle of at most pi / 4 from the nearest quarter.

    >>> twiddle(5, 4)
    (0.0, -1.0)
    """
    k %= n
    quarter = (8 * k // n + 1) // 2
    angle = (4 * k - quarter * n) * (math.pi / (2 * n))
    cos, sin = math.cos(angle), math.sin(angle)
    return ((cos, -sin, -cos, sin)[quarter % 4] + 0.0, -(sin, cos, -sin, -cos)[quarter % 4])


@functools.lru_cache(64)
def _parts(kind: str, n: int, dtype: np.dtype) -> tuple[np.ndarray, ...]:
    plan = passes(kind, n)
    found: list[np.ndarray] = []
    for r, m, _ in plan.passes:
        if r >= WRITTEN_OUT:
            half = np.arange(1, r // 2 + 1)
            found.append(twiddles(r, dtype)[-np.outer(half, half) % r])
        if m > 1:
            found.append(twiddles(r * m, dtype)[np.outer(np.arange(m), np.arange(1, r))])
    if plan.convolution:
        found += _factors(plan.points, plan.convolution, kind == "real" and not plan.halves, dtype)
    if plan.halves:
        found.append(twiddles(n, dtype)[: plan.points // 2 + 1])
    return tuple([part.ravel().view(dtype) for part in found])


def _factors(n: int, sizes: Convolution, mirrored: bool, dtype: np.dtype) -> list[np.ndarray]:
    """What the numbers of a transform are multiplied by, the frequencies of a convolution, and its results. After each of the first two
    products real and imaginary parts change places, which is i times the conjugate: a transform of conjugates is an inverse one. Numbers
    are an eighth of what they are meanwhile, so that nothing overflows that is finite in the end. If they are `mirrored`, each but the
    first stands for another, too."""
    re, im = chirp = _chirp(n, max(sizes.taken, sizes.given))
    before = np.stack([im, re], 1)[: sizes.taken] * [-1 / 8, 1 / 8]
    if mirrored:
        before[1:] *= 2
    parts = (
        before,
        np.stack(_frequencies(chirp, sizes, dtype), 1),
        8 * np.stack([re, im], 1)[: sizes.given],
    )
    return [part.astype(dtype).view(np.result_type(dtype, np.complex64)) for part in parts]


def _chirp(n: int, count: int) -> np.ndarray:
    """exp(-pi i k^2 / n) for `count` k, at most n, real parts and imaginary ones: an angle is at most pi / 4 from the nearest quarter, as
    in `twiddle`."""
    found, half = np.empty((2, count)), min(count, n // 2 + 1)
    for first in range(0, half, _BLOCK):
        k = np.arange(first, min(first + _BLOCK, half), dtype=np.int64)
        square = k * k % (2 * n)
        quarter = (4 * square // n + 1) // 2
        angle = (square - quarter * (n / 2)) * (np.pi / n)
        cos, sin, odd = np.cos(angle), np.sin(angle), quarter % 2 > 0
        re, im = found[:, first : first + len(k)]
        np.multiply(np.where(odd, sin, cos), np.array([1, -1, -1, 1])[quarter % 4], out=re)
        np.multiply(np.where(odd, cos, sin), np.array([-1, -1, 1, 1])[quarter % 4], out=im)
    if (rest := count - half) > 0:  # (n - k)^2 = n^2 + k^2 modulo 2 n
        np.multiply(
            found[:, (n - 1) // 2 : (n - 1) // 2 - rest : -1],
            -1 if n % 2 else 1,
            out=found[:, half:],
        )
    return found


def _frequencies(
    chirp: np.ndarray, sizes: Convolution, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """What the transform of products with the chirp is multiplied by: i times that of the chirp, over its length, real and imaginary
    parts. What is the same from the front and from the back has such a transform, and the parts of that are real ones'."""
    m, taken, given = sizes.length, sizes.taken, sizes.given
    if taken == given and m > _BY_NUMPY:
        x, found = np.zeros(m), np.empty((2, m), dtype)
        for part, whole in zip((-chirp[1], chirp[0]), found):
            x[:given], x[m - taken + 1 :] = part, part[taken - 1 : 0 : -1]
            np.divide(np.fft.rfft(x).real, m, out=whole[: m // 2 + 1], casting="unsafe")
            whole[m // 2 + 1 :] = whole[m - m // 2 - 1 : 0 : -1]
        return found[0], found[1]
    x = np.zeros(m, np.complex128)
    for part, values in zip((x.real, x.imag), chirp):
        part[:given], part[m - taken + 1 :] = values[:given], values[taken - 1 : 0 : -1]
    spectrum = _transformed(x)
    return (np.imag(spectrum) / -m).astype(dtype), (np.real(spectrum) / m).astype(dtype)


def products(
    n: int, sizes: Convolution, column: int, scale: float, dtype: np.dtype
) -> list[Factors]:
    """The factors of a convolution whose numbers are a matrix with columns of a length (see `ir.program.FftPart`): of its operand, of
    which the parts have changed places, of its frequencies, before they do, and of its results, times a scale."""
    counts = [(sizes.taken, sizes.length // column), (sizes.length, column), (sizes.given, column)]
    tables = [
        _aligned(-(-count // inner) * inner * 2, dtype).reshape(-1, 2, inner)
        for count, inner in counts
    ]

    def fill() -> None:
        re, im = chirp = _chirp(n, max(sizes.taken, sizes.given))
        values = ((im, re), -1 / 8), (_frequencies(chirp, sizes, dtype), 1), ((re, im), 8 * scale)
        for (parts, factor), table, (count, inner) in zip(values, tables, counts):
            full, rest = divmod(count, inner)
            for part, numbers in enumerate(parts):
                np.multiply(
                    numbers[: full * inner].reshape(full, inner),
                    factor,
                    out=table[:full, part],
                    casting="unsafe",
                )
                table[full:, part, :rest] = numbers[full * inner : count] * factor
                table[full:, part, rest:] = 0

    made_by = _begun(fill, sum([table.size for table in tables]))
    return [Factors(table.ravel(), made_by) for table in tables]


def _aligned(count: int, dtype: np.dtype) -> np.ndarray:
    """Memory that a program takes as a constant without copying it."""
    memory = np.empty(count + _ALIGNMENT // dtype.itemsize, dtype)
    return memory[-memory.ctypes.data % _ALIGNMENT // dtype.itemsize :][:count]


def _begun(fill: Callable[[], object], count: int) -> Background | None:
    """What makes so many factors; few are made at once."""
    if count >= _WORTH_A_THREAD:
        return Background(fill)
    fill()
    return None


def _transformed(x: np.ndarray) -> np.ndarray:
    """The transform of complex numbers: of a few thousand by passes, since importing NumPy's would take longer."""
    if x.size > _BY_NUMPY:
        return np.fft.fft(x)
    for r, m, _ in _placed(x.size, radices(x.size)):
        roots, k = twiddles(r * m, np.dtype(np.float64)), np.arange(r)
        x = np.einsum("kj,jpq->pkq", roots[m * np.outer(k, k) % (r * m)], x.reshape(r, m, -1))
        x = (x * roots[np.outer(np.arange(m), k)][:, :, None]).ravel()
    return x


def tables(kind: str, n: int, inner: int, dtype: np.dtype) -> Factors:
    """All factors of a transform: of each pass the cosines and sines of a radix that is a loop (j by k), then, if m > 1, the twiddle
    factors of its results (p by k >= 1); those of a convolution; and those that separate two halves. Where columns are crossed with
    rows, for each number of a row the real parts of its twiddle factors, for all rows, and then the imaginary ones."""
    plan, crossed = passes(kind, n), 2 * n * inner * (kind in CROSSED)
    size = offsets(kind, n)[-1] + plan.halves * 2 * (plan.points // 2 + 1)
    found = _aligned(size + crossed + 1, dtype)

    def fill() -> None:
        found[:size], found[-1] = np.concatenate([*_parts(kind, n, dtype), found[:0]]), 0
        if crossed:
            _fill_crossed(found[size:-1].reshape(n, 2, inner))

    return Factors(found, _begun(fill, found.size))


def _fill_crossed(crossed: np.ndarray) -> None:
    n, _, inner = crossed.shape
    if crossed.itemsize < 8:
        _fill_by_products(crossed)
        return
    roots = _roots_of_unity(n * inner, crossed.dtype)
    crossed[0] = roots[:, :1]
    for number in range(1, n):  # every `number`th root of unity
        crossed[number] = roots[:, : number * inner : number]


def _fill_by_products(crossed: np.ndarray) -> None:
    """The factors of crossed rows as products of two each, in doubles: such a block is in the caches, and the roots far apart are not."""
    shape: tuple[int, ...] = crossed.shape
    n, _, inner = shape
    step = math.isqrt(n)

    def factors(numbers: np.ndarray) -> np.ndarray:
        angle = np.outer(numbers, np.arange(inner)) * (-2 * np.pi / (n * inner))
        return np.cos(angle) + 1j * np.sin(angle)

    few = factors(np.arange(step))
    for first, row in zip(range(0, n, step), factors(np.arange(0, n, step))):
        block = few[: n - first] * row
        crossed[first : first + step, 0], crossed[first : first + step, 1] = block.real, block.imag


def offsets(kind: str, n: int) -> list[int]:
    """Where in `tables` the factors of each pass begin, the three of a convolution, and those of the halves or of crossed rows."""
    plan, at = passes(kind, n), 0
    found: list[int] = []
    sizes = [
        2 * (r // 2) ** 2 * (r >= WRITTEN_OUT) + (2 * m * (r - 1) if m > 1 else 0)
        for r, m, _ in plan.passes
    ]
    for size in (*sizes, *(2 * size for size in plan.convolution or ())):
        found.append(at)
        at += size
    return [*found, at]
