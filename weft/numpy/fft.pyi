"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001, E501
# fmt: off

from collections.abc import Sequence
from weft._engine.backends.base import Device
from weft._engine.ir.shardings import Sharding
from weft._engine.runtime.array import Array
from weft.typing import ArrayLike, DTypeLike

def fft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    r"""Return the transform along one axis, cut or padded to `n` values."""
def fft2(a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = ..., norm: str | None = None) -> Array:
    r"""Return the transform over two axes."""
def fftfreq(n: int, d: ArrayLike = ..., *, dtype: DTypeLike | None = None, device: Device | Sharding | None = None) -> Array:
    r"""Return the frequencies of the results of `fft` for `n` samples at distance `d`."""
def fftn(a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    r"""Return the transform over several axes, all by default."""
def fftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    r"""Return `x` with the zero frequency moved to the middle."""
def hfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    r"""Return the real transform of values that are Hermitian in time."""
def ifft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    r"""Return the inverse transform along one axis."""
def ifft2(a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = ..., norm: str | None = None) -> Array:
    r"""Return the inverse transform over two axes."""
def ifftn(a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    r"""Return the inverse transform over several axes."""
def ifftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    r"""Return the inverse of `fftshift`."""
def ihfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    r"""Return the inverse of `hfft`."""
def irfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    r"""Return the inverse of `rfft`: `n` real values, by default 2 * (m - 1) for m frequencies."""
def irfft2(a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = ..., norm: str | None = None) -> Array:
    r"""Return the inverse of `rfft2`."""
def irfftn(a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    r"""Return the inverse of `rfftn`."""
def rfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    r"""Return the transform of real values along one axis: the n // 2 + 1 independent frequencies."""
def rfft2(a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = ..., norm: str | None = None) -> Array:
    r"""Return the transform of real values over two axes."""
def rfftfreq(n: int, d: ArrayLike = ..., *, dtype: DTypeLike | None = None, device: Device | Sharding | None = None) -> Array:
    r"""Return the frequencies of the results of `rfft`."""
def rfftn(a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    r"""Return the transform of real values over several axes."""

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]
