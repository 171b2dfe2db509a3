"""Prime factors of small numbers."""

from __future__ import annotations


def prime_factors(n: int) -> list[int]:
    """The primes whose product is `n`, in order.

    >>> prime_factors(360), prime_factors(1)
    ([2, 2, 2, 3, 3, 5], [])
    """
    found, p = [], 2
    while n > 1:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
        if p * p > n > 1:
            p = n
    return found
