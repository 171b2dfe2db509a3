"""Halos: the rows of a split dim that a device needs from other devices, their cost, and their exchange.

An op that reads neighboring positions along a dim (slice, pad, concatenate, convolution, reversal) states per operand the rows that
device p needs: a `Window` of `span` rows from row `first + p * advance` on. If windows advance by the size of a block, as in a
convolution or `x[1:] - x[:-1]`, all devices need the same rows of the same neighbors: these are sent and concatenated with the
own block. Otherwise the dim is redistributed by tables of transfers.

Laws: only rows that other devices need are sent; in a round every device sends at most once and receives at most once.
      Rows outside of the dim are never sent; the caller masks the values in their place.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ops import arithmetic, bitwise, comparison, layout, slicing
from weft._engine.ops.dynamic_slicing import dynamic_slice_p
from weft._engine.util import dtypes
from weft._engine.util.record import record


@record
class Window:
    """The rows that device p needs: `span` rows from row `first + p * advance` on; on a `ring` the last row precedes the first.

    With a `step`, rows are at every `step`-th position, and the first row is the next one from position `first + p * advance` on.
    """

    first: int
    advance: int
    span: int
    ring: bool = False
    step: int = 1

    def of(self, p: int) -> int:
        """Return the first row that device `p` needs.

        >>> [Window(-1, 3, 2, step=2).of(p) for p in range(4)]
        [0, 1, 3, 4]
        """
        return -(-(self.first + p * self.advance) // self.step)


@lru_cache(maxsize=256)
def first_rows(window: Window, n: int) -> tuple[int, ...]:
    """Return the first row that each of `n` devices needs.

    >>> first_rows(Window(-1, 3, 2, step=2), 4)
    (0, 1, 3, 4)
    """
    return tuple([-(-(window.first + p * window.advance) // window.step) for p in range(n)])


@record
class Halo:
    """The rows of dim `dim` of operand `operand` that every device along `axes` needs, of `size` rows in all."""

    operand: int
    dim: int
    axes: tuple[Any, ...]
    size: int
    window: Window


@record
class HaloTransfer:
    """A transfer of `count` rows, from row `at` of device `source`'s block to row `place` of the rows that `target` needs."""

    source: int
    at: int
    count: int
    target: int
    place: int


@record
class TransferRound:
    """Simultaneous transfers as tables by device: the first sent row, the position of the received rows, and their number."""

    pairs: tuple[tuple[int, int], ...]  # senders and receivers
    count: int  # maximal number of rows that a device sends
    starts: tuple[int, ...]
    places: tuple[int, ...]
    counts: tuple[int, ...]


# --- the needed rows ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def transfers_of(
    window: Window, n: int, size: int
) -> tuple[tuple[HaloTransfer, ...], tuple[tuple[HaloTransfer, ...], ...]]:
    """Return transfers within devices, and rounds of transfers between devices, for a dim of `size` rows on `n` devices.

    >>> kept, rounds = transfers_of(Window(1, 2, 2), 4, 8)
    >>> [(transfer.source, transfer.at, transfer.count, transfer.target) for transfer in rounds[0]]
    [(1, 0, 1, 0), (2, 0, 1, 1), (3, 0, 1, 2)]
    """
    needed: list[HaloTransfer] = []
    rounds: list[list[HaloTransfer]] = []
    senders: list[set[int]] = []
    receivers: list[set[int]] = []
    for transfer in _transfers(window, n, size, -(-size // n)):
        source, target = transfer.source, transfer.target
        if source == target:
            needed.append(transfer)
            continue
        k = 0
        while k < len(rounds) and (source in senders[k] or target in receivers[k]):
            k += 1
        if k == len(rounds):
            rounds.append([])
            senders.append(set())
            receivers.append(set())
        rounds[k].append(transfer)
        senders[k].add(source)
        receivers[k].add(target)
    return tuple(needed), tuple(map(tuple, rounds))


@lru_cache(maxsize=256)
def _rounds_of(
    window: Window, n: int, size: int
) -> tuple[TransferRound | None, tuple[TransferRound, ...]]:
    """Return the results of `transfers_of` as tables; None if there are no transfers within devices."""
    local, rounds = transfers_of(window, n, size)
    return _tables(local, n) if local else None, tuple(
        [_tables(transfers, n) for transfers in rounds]
    )


def _tables(transfers: Sequence[HaloTransfer], n: int) -> TransferRound:
    starts, places, counts = [0] * n, [0] * n, [0] * n
    for transfer in transfers:
        starts[transfer.source] = transfer.at
        places[transfer.target], counts[transfer.target] = transfer.place, transfer.count
    return TransferRound(
        tuple([(t.source, t.target) for t in transfers]),
        max([t.count for t in transfers]),
        tuple(starts),
        tuple(places),
        tuple(counts),
    )


def _transfers(window: Window, n: int, size: int, local: int) -> list[HaloTransfer]:
    transfers: list[HaloTransfer] = []
    for p, first in enumerate(first_rows(window, n)):
        begin, end = (
            (first, first + window.span)
            if window.ring
            else (max(first, 0), min(first + window.span, size))
        )
        for q in range(begin // local, -(-end // local)) if end > begin else ():
            a, b = max(begin, q * local), min(end, (q + 1) * local)
            transfers.append(HaloTransfer(q % n, a - q * local, b - a, p, a - first))
    return transfers


def rows_sent(window: Window, n: int, size: int) -> list[int]:
    """Return the number of rows that a device sends in each round."""
    if window.advance == -(-size // n) and window.step == 1:
        return [count for _, _, count in _neighbours(window, n, window.advance)]
    return [transfers.count for transfers in _rounds_of(window, n, size)[1]]


def _neighbours(window: Window, n: int, local: int) -> list[tuple[int, int, int]]:
    """Return (distance in devices, first row there, number of rows) of the needed rows in other devices' blocks."""
    return [
        (q, at, count)
        for q, at, count in _blocks(window, local)
        if q and (window.ring or -n < q < n)
    ]


def _blocks(window: Window, local: int) -> list[tuple[int, int, int]]:
    """Return the same as `_neighbours`, including the own block (distance 0) and nonexistent blocks."""
    first, end = window.first, window.first + window.span
    return [
        (q, max(first - q * local, 0), min(end, (q + 1) * local) - max(first, q * local))
        for q in range(first // local, -(-end // local))
    ]


# --- the exchange -----------------------------------------------------------------------------------------------------


def fetch_rows(ctx: Any, x: Any, halo: Halo, is_split: bool = True) -> Any:
    """Return the rows that this device needs, of a dim that is split by the axes of `halo`, or that all devices have."""
    n, dim, window = ctx.size(halo.axes), halo.dim, halo.window
    if not is_split:
        return _rows_of_whole(ctx, x, halo)
    if window.advance == typeof(x).shape[dim] and window.step == 1:
        return _rows_with_neighbor_rows(ctx, x, halo, n)
    own_rows, rounds = transfers_of(window, n, halo.size)
    if (
        not rounds
        and len({(transfer.at, transfer.place) for transfer in own_rows}) == 1
        and own_rows[0].place == 0
    ):
        at = own_rows[0].at
        return slice_along(
            pad_along(x, 0, max(0, at + window.span - typeof(x).shape[dim]), dim),
            at,
            window.span,
            dim,
        )
    return _by_transfers(ctx, x, halo, *_rounds_of(window, n, halo.size))


def _rows_of_whole(ctx: Any, x: Any, halo: Halo) -> Any:
    """Return the needed rows of a value that all devices have."""
    window, n = halo.window, ctx.size(halo.axes)
    starts = first_rows(window, n)
    before, after = max(0, -min(starts)), max(0, max(starts) + window.span - halo.size)
    start = table_entry(ctx, halo.axes, [s + before for s in starts])
    return dynamic_slice_along(pad_along(x, before, after, halo.dim), start, window.span, halo.dim)


def _rows_with_neighbor_rows(ctx: Any, x: Any, halo: Halo, n: int) -> Any:
    """Return the needed rows if all devices need the same rows of the same neighbors.

    Rows of these neighbors that other equations need are fetched together, and reused by these equations.
    """
    window, dim, local = halo.window, halo.dim, typeof(x).shape[halo.dim]
    if 0 <= window.first and window.first + window.span <= local:
        return slice_along(x, window.first, window.span, dim)
    if window.ring:
        return _joined_with_neighbours(ctx, x, halo, n, window)
    first, span = window.first, window.span
    fetched = ctx.fetched_rows(x, halo)
    if (
        fetched is None
        or first < fetched[0].first
        or first + span > fetched[0].first + fetched[0].span
    ):
        common = ctx.common_window(halo)
        fetched = ctx.keep_rows(x, halo, common, _joined_with_neighbours(ctx, x, halo, n, common))
    return slice_along(fetched[1], first - fetched[0].first, span, dim)


def _joined_with_neighbours(ctx: Any, x: Any, halo: Halo, n: int, window: Window) -> Any:
    """Return the rows of `window` from the own block and its neighbors."""
    dim, aval = halo.dim, typeof(x)
    parts: list[Any] = []
    for q, at, count in _blocks(window, aval.shape[dim]):
        if not window.ring and not -n < q < n:
            shape = tuple(count if d == dim else s for d, s in enumerate(aval.shape))
            parts.append(layout.full(shape, additive_identity(aval.dtype), aval.dtype))
            continue
        part = slice_along(x, at, count, dim)
        if q and (q % n or not window.ring):
            part = ctx.ppermute(part, halo.axes, _shift(q, n, window.ring))
        parts.append(part)
    return slicing.concatenate(parts, dim)


@lru_cache(maxsize=256)
def _shift(q: int, n: int, ring: bool) -> tuple[tuple[int, int], ...]:
    """Return the (from, to) pairs that send each device's block to the device `q` positions before it."""
    return tuple([((p + q) % n, p) for p in range(n) if ring or 0 <= p + q < n])


def _by_transfers(
    ctx: Any, x: Any, halo: Halo, own_round: TransferRound | None, rounds: Sequence[TransferRound]
) -> Any:
    """Return the needed rows, assembled from transfers by tables of the rows that each device sends and receives."""
    dim, axes, span = halo.dim, halo.axes, halo.window.span
    aval = typeof(x)
    shape = tuple(span if d == dim else s for d, s in enumerate(aval.shape))
    out = layout.full(shape, 0, aval.dtype)
    row = layout.broadcasted_iota(np.int32, shape, dim)
    for transfers in (*(() if own_round is None else (own_round,)), *rounds):
        start = table_entry(ctx, axes, transfers.starts)
        sent = dynamic_slice_along(
            pad_along(x, 0, transfers.count, dim), start, transfers.count, dim
        )
        if transfers is not own_round:
            sent = ctx.ppermute(sent, axes, transfers.pairs)
        place = table_entry(ctx, axes, transfers.places)
        end = arithmetic.add(place, table_entry(ctx, axes, transfers.counts))
        shifted = dynamic_slice_along(
            pad_along(sent, span, span, dim), arithmetic.sub(np.int32(span), place), span, dim
        )
        here = bitwise.bitwise_and(comparison.ge(row, place), comparison.lt(row, end))
        out = comparison.select_n(here, out, shifted)
    return out


def mask_outside(ctx: Any, x: Any, halo: Halo, fill: Any) -> Any:
    """Return the needed rows `x` with scalar `fill` in place of rows outside of the dim."""
    n, window, dim = ctx.size(halo.axes), halo.window, halo.dim
    first, last = window.of(0), window.of(n - 1)
    shape = typeof(x).shape
    start = table_entry(ctx, halo.axes, first_rows(window, n))
    place = arithmetic.add(layout.broadcasted_iota(np.int32, shape, dim), start)
    inside = None
    if min(first, last) < 0:
        inside = comparison.ge(place, np.int32(0))
    if max(first, last) + window.span > halo.size:
        here = comparison.lt(place, np.int32(halo.size))
        inside = here if inside is None else bitwise.bitwise_and(inside, here)
    return (
        x
        if inside is None
        else comparison.select_n(inside, layout.broadcast_in_dim(fill, shape, ()), x)
    )


def select_reached(ctx: Any, halo: Halo, x: Any, before: Any) -> Any:
    """Return `x` on devices whose window has reached the first row of its operand, and `before` on others."""
    place = layout.broadcasted_iota(np.int32, typeof(x).shape, halo.dim)
    first = arithmetic.add(ctx.start(halo.axes, halo.window.advance), np.int32(halo.window.first))
    return comparison.select_n(comparison.ge(arithmetic.add(place, first), np.int32(0)), before, x)


# --- helpers ----------------------------------------------------------------------------------------------------------


def additive_identity(dtype: Any) -> Any:
    """Return the number that does not change sums: negative zero (in both parts if complex), or the integer 0."""
    return (
        np.negative(np.zeros((), dtype))
        if dtypes.issubdtype(dtype, np.inexact)
        else np.zeros((), dtype)[()]
    )


def slice_along(x: Any, start: int, size: int, dim: int, stride: int = 1) -> Any:
    """Return every `stride`-th of `size` elements of `x` along `dim` from `start` on."""
    shape = typeof(x).shape
    first = tuple(start if d == dim else 0 for d in range(len(shape)))
    last = tuple(start + (size - 1) * stride + 1 if d == dim else n for d, n in enumerate(shape))
    steps = tuple(stride if d == dim else 1 for d in range(len(shape)))
    return slicing.slice(x, first, last, steps)


def pad_along(x: Any, before: int, after: int, dim: int) -> Any:
    """Pad `x` with the additive identity along `dim`."""
    aval = typeof(x)
    config = [(before, after, 0) if d == dim else (0, 0, 0) for d in range(aval.ndim)]
    return slicing.pad(x, additive_identity(aval.dtype), config)


def table_entry(ctx: Any, axes: tuple[Any, ...], table: Sequence[int]) -> Any:
    """Return this device's entry of a table by device number."""
    steps = {*map(operator.sub, table[1:], table)}
    if len(steps) <= 1:
        step = max(steps, default=0)
        return (
            arithmetic.add(ctx.start(axes, step), np.int32(table[0]))
            if step
            else np.int32(table[0])
        )
    entry = dynamic_slice_p.bind(np.array(table, np.int32), ctx.start(axes, 1), slice_sizes=(1,))
    return layout.reshape(entry, ())


def dynamic_slice_along(x: Any, start: Any, count: int, dim: int) -> Any:
    """Return `count` elements along `dim` from the run-time index `start` on."""
    starts = [start if d == dim else np.int32(0) for d in range(typeof(x).ndim)]
    sizes = tuple(count if d == dim else s for d, s in enumerate(typeof(x).shape))
    return dynamic_slice_p.bind(x, *starts, slice_sizes=sizes)
