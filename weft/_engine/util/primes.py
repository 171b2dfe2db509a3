"""Prime factors of small numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def prime_factors(n: int) -> list[int]:
    """Return the prime factors of `n` in ascending order.

    >>> prime_factors(360), prime_factors(1)
    ([2, 2, 2, 3, 3, 5], [])
    """
    factors, p = [], 2
    while n > 1:
        while n % p == 0:
            factors.append(p)
            n //= p
        p += 1
        if p * p > n > 1:
            p = n
    return factors


def distinct_orders(factors: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield every order of `factors` once, in lexicographic order.

    >>> list(distinct_orders([2, 2, 3]))
    [(2, 2, 3), (2, 3, 2), (3, 2, 2)]
    """
    if not factors:
        yield ()
    for first in sorted({*factors}):
        remaining = list(factors)
        remaining.remove(first)
        for order in distinct_orders(remaining):
            yield first, *order
