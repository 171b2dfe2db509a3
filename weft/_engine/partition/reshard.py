"""Resharding: the cheapest sequence of collectives between two layouts of one value.

In:   a source `Placement` (the axes that split each dim, the axes of a partial sum), a target, shape, item size.
Out:  `ReshardStep`s, each a local slice or one collective. Law: the steps convert the source layout exactly into the target layout.
How:  a shortest-path search over placements; edges are useful steps, weighted by the bytes that a device sends. No data per
      device is computed, except the pairs of a permutation after the search.
      A dim is split by its axes major to minor, so slices append a minor axis and gathers remove minor axes.
Uneven dims: a dim of s elements in n blocks has blocks of ceil(s / n); the last blocks are padded with arbitrary values. A
      step may refine or coarsen the split of a dim only if the borders of coarse blocks are borders of fine blocks.
"""

from __future__ import annotations

import heapq
import itertools
import math
import operator
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from weft._engine.ir.collective_spec import COLLECTIVES, collective_bytes
from weft._engine.ir.specs import DimSpec, Spec, join_axis_parts
from weft._engine.partition.cost import DEFAULT
from weft._engine.util.primes import prime_factors
from weft._engine.util.record import record, replace

Sizes = tuple[tuple[Any, int], ...]


@record
class Placement:
    """The placement of a value on the mesh: axes per dim, and the axes over which it is a partial sum."""

    dims: Spec
    partial: frozenset[Any] = frozenset()

    @property
    def axes(self) -> frozenset[Any]:
        """The axes that split some dim."""
        return frozenset(itertools.chain.from_iterable(self.dims))

    def with_dim(self, d: int, axes: tuple[Any, ...]) -> Placement:
        return Placement((*self.dims[:d], axes, *self.dims[d + 1 :]), self.partial)

    def __str__(self) -> str:
        body = ", ".join(
            "*".join(map(str, join_axis_parts(axes))) if axes else "-" for axes in self.dims
        )
        return f"[{body}]" + (
            f" + partial {{{', '.join(join_axis_parts(sorted(map(str, self.partial))))}}}"
            if self.partial
            else ""
        )


@record
class ReshardStep:
    """One step of a plan. `dim` is the affected dim; all_to_all gathers `dim` and splits `target`."""

    kind: str  # own_slice all_gather all_to_all ppermute reduce_scatter psum
    axes: tuple[Any, ...]
    dim: int = -1
    target: int = -1
    perm: tuple[tuple[int, int], ...] = ()
    nbytes: int = 0  # bytes that a device sends


def local_shape(shape: tuple[int, ...], dims: Spec, sizes: Mapping[Any, int]) -> tuple[int, ...]:
    """Return the shape of one block; a dim that does not divide evenly is padded.

    >>> local_shape((8, 6), (('x',), ()), {'x': 4}), local_shape((9, 6), (('x',), ()), {'x': 4})
    ((2, 6), (3, 6))
    """
    return tuple(
        -(-s // math.prod([sizes[a] for a in axes])) if axes else s for s, axes in zip(shape, dims)
    )


def is_even(size: int, axes: tuple[Any, ...], sizes: Mapping[Any, int]) -> bool:
    """Return whether `axes` split a dim of `size` into equal blocks."""
    return size % math.prod([sizes[a] for a in axes]) == 0


def plan(
    source: Placement,
    target: Placement,
    shape: tuple[int, ...],
    itemsize: int,
    sizes: Mapping[Any, int],
    latency: int = DEFAULT.latency,
) -> tuple[tuple[ReshardStep, Placement], ...]:
    """Return the cheapest steps from `source` to `target` for a value of global `shape`, each with the resulting placement.

    >>> one = Placement((('x',), ())); other = Placement(((), ('x',)))
    >>> [step.kind for step, after in plan(one, other, (8, 8), 4, {'x': 4})]
    ['all_to_all']
    """
    return (
        ()
        if source == target
        else _search(source, target, shape, itemsize, tuple(sizes.items()), latency)[0]
    )


def plan_cost(
    source: Placement,
    target: Placement,
    shape: tuple[int, ...],
    itemsize: int,
    sizes: Mapping[Any, int],
    latency: int = DEFAULT.latency,
) -> int:
    """Return the bytes that a device sends in the cheapest plan, with a latency term per collective."""
    return (
        0
        if source == target
        else _search(source, target, shape, itemsize, tuple(sizes.items()), latency)[1]
    )


@lru_cache(maxsize=4096)
def finer_axes(
    source: Placement,
    target: Placement,
    shape: tuple[int, ...],
    itemsize: int,
    sizes_key: Sizes,
    latency: int,
) -> dict[Any, int]:
    """Return the axes whose refinement into two parts lets devices send less than in `plan`, with the sizes of the major parts.

    >>> grid = {'a': 4, 'b': 2}
    >>> finer_axes(Placement((('b',), ('a',))), Placement((('a',), ('b',))), (64, 64), 4, tuple(grid.items()), 64)
    {'a': 2}
    """
    steps = _search(source, target, shape, itemsize, sizes_key, latency)[0]
    coarse, sizes = sum(step.nbytes for step, _ in steps), dict(sizes_key)
    if coarse <= _SearchSpace(target, shape, itemsize, sizes, latency).bytes_bound(source):
        return {}
    used = source.axes | target.axes | source.partial
    cuts = {
        a: [((a, i), p) for i, p in enumerate(_parts(a, source, target, shape, sizes))]
        for a in sizes
        if a in used
    }
    cuts = {a: parts for a, parts in cuts.items() if len(parts) > 1}
    if not cuts:
        return {}
    fine, fine_sizes = partial(_on_parts, cuts=cuts), _parts_of_mesh(sizes_key, cuts)
    steps = _search(fine(source), fine(target), shape, itemsize, fine_sizes, latency)[0]
    if sum(step.nbytes for step, _ in steps) >= coarse:
        return {}
    return {
        a: parts[0][1]
        for a, parts in cuts.items()
        if any(_are_apart(parts, axes) for _, p in steps for axes in (*p.dims, p.partial))
    }


#: axis -> its parts and their sizes
_Cuts = Mapping[Any, Sequence[tuple[Any, int]]]


def _parts_of_mesh(sizes: Sizes, cuts: _Cuts) -> Sizes:
    """Return the axes of a mesh with their sizes, after some axes are divided into parts."""
    return tuple(part for a, n in sizes for part in cuts.get(a, ((a, n),)))


def _on_parts(place: Placement, cuts: _Cuts) -> Placement:
    """Return a placement on the axes of `_parts_of_mesh`."""

    def names(axes: Iterable[Any]) -> Iterator[Any]:
        return (part for a in axes for part, _ in cuts.get(a, ((a, 0),)))

    return Placement(
        tuple(tuple(names(axes)) for axes in place.dims), frozenset(names(place.partial))
    )


def _are_apart(parts: Sequence[tuple[Any, int]], axes: Collection[Any]) -> bool:
    """Return whether some, but not all, of the parts of an axis are among `axes`."""
    return 0 < sum(part in axes for part, _ in parts) < len(parts)


def _parts(
    axis: Any,
    source: Placement,
    target: Placement,
    shape: tuple[int, ...],
    sizes: Mapping[Any, int],
) -> list[int]:
    """Return the possible sizes of the major part of an axis whose parts may be moved separately.

    Other sizes bring no gain: a part must replace another axis, or split the remainder of a dim after other axes.
    """
    n = sizes[axis]
    fits: set[int] = set()
    for other in source.axes | target.axes | source.partial:
        fits.add(math.gcd(n, sizes[other]))
    for dims in (source.dims, target.dims):
        for size, axes in zip(shape, dims):
            for k in range(axes.index(axis) if axis in axes else len(axes) + 1):
                part_size, uneven = divmod(size, math.prod([sizes[a] for a in axes[:k]]))
                if not uneven:
                    fits.add(math.gcd(n, part_size))
    ends = [
        end
        for end in itertools.accumulate(prime_factors(n), operator.mul)
        if end == n or end in fits or n // end in fits
    ]
    return [end // begin for begin, end in itertools.pairwise([1, *ends])]


@lru_cache(maxsize=65536)
def _search(
    source: Placement,
    target: Placement,
    shape: tuple[int, ...],
    itemsize: int,
    sizes_key: Sizes,
    latency: int,
) -> tuple[tuple[tuple[ReshardStep, Placement], ...], int]:
    """Search for the cheapest plan by Dijkstra's algorithm over placements; return the plan and its cost.

    Placements that are not on any cheapest plan are skipped; A* computes the lowest cost first. This does not change the order of
    the other placements, so the plan is the same as without skipping.
    """
    if not target.partial <= source.partial:
        raise ValueError(
            f"cannot make a partial sum over {set(target.partial - source.partial)} of a whole value"
        )
    space = _SearchSpace(target, shape, itemsize, dict(sizes_key), latency)
    least = space.least_cost(source)
    order = itertools.count()
    queue: list[tuple[Any, ...]] = [(0, next(order), source, ())]
    done: set[Placement] = set()
    while queue:
        cost, _, place, steps = heapq.heappop(queue)
        if place == target:
            return tuple(
                [(space.with_pairs(step, before, after), after) for before, step, after in steps]
            ), cost
        if place in done:
            continue
        done.add(place)
        for step, after, weight in space.weighted_steps(place):
            if after not in done and cost + weight + space.lower_bound(after) <= least:
                heapq.heappush(
                    queue, (cost + weight, next(order), after, (*steps, (place, step, after)))
                )
    raise AssertionError(f"no plan from {source} to {target} for shape {shape}")


class _SearchSpace:
    """The space of one search: the steps between placements, their costs, and lower bounds."""

    def __init__(
        self,
        target: Placement,
        shape: tuple[int, ...],
        itemsize: int,
        sizes: dict[Any, Any],
        latency: int,
    ):
        self.target, self.shape, self.itemsize, self.sizes, self.latency = (
            target,
            shape,
            itemsize,
            sizes,
            latency,
        )
        self._counts: dict[tuple[Any, ...], int] = {}
        self._steps: dict[Placement, list[tuple[ReshardStep, Placement, int]]] = {}
        self._bounds: dict[Placement, int] = {}
        self.prefixes = [
            [(axes[:k], self.count(axes[:k])) for k in range(len(axes) + 1)] for axes in target.dims
        ]
        self.is_target_even = all(n % self.count(axes) == 0 for n, axes in zip(shape, target.dims))
        self.whole_bytes = math.prod(shape) * itemsize
        # on average
        self.target_bytes = self.whole_bytes // math.prod([sizes[a] for a in target.axes])

    def count(self, axes: tuple[Any, ...]) -> int:
        """Return the number of blocks into which `axes` split a dim."""
        count = self._counts.get(axes)
        if count is None:
            count = self._counts[axes] = math.prod([self.sizes[a] for a in axes])
        return count

    def block(self, d: int, axes: tuple[Any, ...]) -> int:
        """Return the size of the blocks into which `axes` split dim `d`; the last blocks may be padded."""
        return -(-self.shape[d] // self.count(axes))

    def weighted_steps(self, place: Placement) -> list[tuple[ReshardStep, Placement, int]]:
        """Return the steps from `place`, with the resulting placements and costs."""
        steps = self._steps.get(place)
        if steps is None:
            steps = self._steps[place] = [
                (
                    step,
                    after,
                    step.nbytes + (1 if COLLECTIVES[step.kind].is_local else self.latency),
                )
                for step, after in self.steps(place)
            ]
        return steps

    def least_cost(self, source: Placement) -> int:
        """Return the cost of the cheapest plan by the A* algorithm."""
        costs = {source: 0}
        order = itertools.count()
        queue: list[tuple[int, int, int, Placement]] = [
            (self.lower_bound(source), 0, next(order), source)
        ]
        while queue:
            # of equal estimates the furthest first
            _, negative_cost, _, place = heapq.heappop(queue)
            cost = -negative_cost
            if place == self.target:
                return cost
            if cost > costs[place]:
                continue
            for _, after, weight in self.weighted_steps(place):
                reached = cost + weight
                if reached < costs.get(after, math.inf):
                    costs[after] = reached
                    heapq.heappush(
                        queue, (reached + self.lower_bound(after), -reached, next(order), after)
                    )
        raise AssertionError(f"no plan from {source} to {self.target} for shape {self.shape}")

    def lower_bound(self, place: Placement) -> int:
        """Return a lower bound of the cost of all plans from `place`."""
        bound = self._bounds.get(place)
        if bound is None:
            nbytes = self.bytes_bound(place)
            slices = len(self.target.axes - place.axes)
            if not self.is_target_even:
                slices = min(slices, 1)  # one may be over several axes
            # a step may round down by less than a byte, and also costs a latency
            bound = self._bounds[place] = max(
                nbytes + self.latency - 1 if nbytes else 0, min(slices, self.latency)
            )
        return bound

    def bytes_bound(self, place: Placement) -> int:
        """Return a lower bound of the bytes sent in all plans from `place`.

        A device must receive the elements of its target block that it does not have. A sum of n terms requires n - 1 sends to one
        device, and one more for each other device whose target block contains it.
        """
        n = math.prod([self.sizes[a] for a in place.partial - self.target.partial])
        if n == 1:
            return max(self.target_bytes - self.overlap_bytes(place), 0)
        if self.target.partial:
            return self.target_bytes
        devices = math.prod([self.sizes[a] for a in place.axes | self.target.axes | place.partial])
        copies = devices // math.prod([self.sizes[a] for a in self.target.axes])
        return self.whole_bytes * (n - 2 + copies) // devices

    def overlap_bytes(self, place: Placement) -> int:
        """Return the minimal bytes of its target block that a device already has; an upper bound of it if dims are uneven."""
        overlap, splits_alike, is_even = self.itemsize, True, self.is_target_even
        for d, (axes, target) in enumerate(zip(place.dims, self.target.dims)):
            overlap *= min(self.block(d, axes), self.block(d, target))
            is_even = is_even and self.shape[d] % self.count(axes) == 0
            if splits_alike and axes[: len(target)] != target[: len(axes)]:
                have, target_axes = (
                    [a for a in some if self.sizes[a] > 1] for some in (axes, target)
                )
                splits_alike = have[: len(target_axes)] == target_axes[: len(have)]
        # if two axes split a dim next, a device first along one and last along the other has one end and needs the other
        return overlap if splits_alike or not is_even else 0

    def is_aligned(self, d: int, coarse: tuple[Any, ...], fine: tuple[Any, ...]) -> bool:
        """Return whether each block of dim `d` by `coarse` consists of whole blocks by `fine`, which begins with `coarse`."""
        return not coarse or self.block(d, fine) * self.count(fine[len(coarse) :]) == self.block(
            d, coarse
        )

    def may_split(self, d: int, coarse: tuple[Any, ...], fine: tuple[Any, ...]) -> bool:
        """Return whether dim `d` may be split from `coarse` into `fine` blocks; uneven blocks only as prefixes of the target."""
        known = self.shape[d] % self.count(fine) == 0 or self.target.dims[d][: len(fine)] == fine
        return known and self.is_aligned(d, coarse, fine)

    def nbytes(self, place: Placement) -> int:
        """Return the bytes that a device has under a placement."""
        return math.prod([self.block(d, axes) for d, axes in enumerate(place.dims)]) * self.itemsize

    def step(self, kind: str, place: Placement, axes: tuple[Any, ...], **kw: Any) -> ReshardStep:
        return ReshardStep(
            kind, axes, nbytes=collective_bytes(kind, self.nbytes(place), self.count(axes)), **kw
        )

    def steps(self, place: Placement) -> Iterator[tuple[ReshardStep, Placement]]:
        yield from self._sums(place)
        yield from self._slices(place)
        yield from self._gathers(place)
        yield from self._exchanges(place)
        yield from self._permutations(place)

    def _sums(self, place: Placement) -> Iterator[tuple[ReshardStep, Placement]]:
        unwanted_partial = place.partial - self.target.partial
        if not unwanted_partial:
            return
        ordered = tuple(a for a in self.sizes if a in unwanted_partial)
        for group in dict.fromkeys((ordered, *((a,) for a in ordered))):
            yield self.step("psum", place, group), Placement(place.dims, place.partial - set(group))
        for a in ordered:
            for d in range(len(self.shape)):
                if a in self.target.axes:
                    yield from self._reduce_scatter_steps(place, d, (a,))
        for d, target_axes in enumerate(self.target.dims):
            begin = len(place.dims[d])
            end = begin + sum(
                1 for _ in itertools.takewhile(unwanted_partial.__contains__, target_axes[begin:])
            )
            if target_axes[:begin] == place.dims[d] and end > begin + 1:
                yield from self._reduce_scatter_steps(place, d, target_axes[begin:end])

    def _reduce_scatter_steps(
        self, place: Placement, d: int, axes: tuple[Any, ...]
    ) -> Iterator[tuple[ReshardStep, Placement]]:
        """Yield the step that sums over `axes` and splits dim `d` by them, if it is possible."""
        after = (*place.dims[d], *axes)
        if self.may_split(d, place.dims[d], after):
            dims = (*place.dims[:d], after, *place.dims[d + 1 :])
            step = self.step("reduce_scatter", place, axes, dim=d)
            yield step, Placement(dims, place.partial - set(axes))

    def _slices(self, place: Placement) -> Iterator[tuple[ReshardStep, Placement]]:
        used = place.axes | place.partial
        for a in (a for a in self.sizes if a in self.target.axes and a not in used):
            for d in range(len(self.shape)):
                if self.may_split(d, place.dims[d], (*place.dims[d], a)):
                    yield (
                        self.step("own_slice", place, (a,), dim=d),
                        place.with_dim(d, (*place.dims[d], a)),
                    )
        for d, target_axes in enumerate(self.target.dims):
            if (
                not place.dims[d]
                and len(target_axes) > 1
                and not used & set(target_axes)
                and not is_even(self.shape[d], target_axes, self.sizes)
            ):
                yield (
                    self.step("own_slice", place, target_axes, dim=d),
                    place.with_dim(d, target_axes),
                )

    def _gathers(self, place: Placement) -> Iterator[tuple[ReshardStep, Placement]]:
        for d, axes in enumerate(place.dims):
            for k in range(len(axes)):
                if self.is_aligned(d, axes[:k], axes):
                    yield (
                        self.step("all_gather", place, axes[k:], dim=d),
                        place.with_dim(d, axes[:k]),
                    )

    def _exchanges(self, place: Placement) -> Iterator[tuple[ReshardStep, Placement]]:
        for d, axes in enumerate(place.dims):
            for k in (k for k in range(len(axes)) if self.is_aligned(d, axes[:k], axes)):
                moved = axes[k:]
                for t, there in enumerate(place.dims):
                    if (
                        t != d
                        and set(moved) <= set(self.target.dims[t])
                        and self.may_split(t, there, (*there, *moved))
                    ):
                        after = place.with_dim(d, axes[:k]).with_dim(t, (*place.dims[t], *moved))
                        yield self.step("all_to_all", place, moved, dim=d, target=t), after

    def _permutations(self, place: Placement) -> Iterator[tuple[ReshardStep, Placement]]:
        """Yield permutations to placements with equally many splits per dim whose axes begin like the target's; axes that the target
        lacks are minor, so that they can be gathered. `with_pairs` adds axes and pairs to the final plan."""
        if place.partial:
            return
        counts, strides, nbytes = (
            [self.count(axes) for axes in place.dims],
            self._strides(place.dims),
            self.nbytes(place),
        )
        options = [
            [(axes, n // k) for axes, k in prefixes if n % k == 0]
            for n, prefixes in zip(counts, self.prefixes)
        ]
        for new_dims in itertools.product(*options):
            dims = self._extend_axes(place.dims, new_dims)
            if dims is not None and dims != place.dims:
                yield (
                    ReshardStep(
                        "ppermute", (), nbytes=nbytes if strides != self._strides(dims) else 0
                    ),
                    Placement(dims),
                )

    def _strides(self, dims: Spec) -> dict[Any, int]:
        """Return the number of blocks between neighbors along each axis; blocks are numbered in row-major order."""
        strides: dict[Any, int] = {}
        stride = 1
        for a in reversed(list(itertools.chain.from_iterable(dims))):
            if self.sizes[a] > 1:
                strides[a] = stride
                stride *= self.sizes[a]
        return strides

    def with_pairs(self, step: ReshardStep, before: Placement, after: Placement) -> ReshardStep:
        """Return `step` with the axes and pairs of its permutation."""
        if step.kind != "ppermute":
            return step
        axes, perm = permutation(before.dims, after.dims, self.sizes)
        return replace(step, axes=axes, perm=perm)

    def _extend_axes(
        self, have: Spec, axes_and_sizes: Sequence[tuple[tuple[Any, ...], int]]
    ) -> Spec | None:
        """Return the axes in `axes_and_sizes`, per dim, with minor axes that split the dim by the additional factor; None if there are none.

        Axes that split the dim under `have` are preferred.
        """
        used_axes = {a for axes, _ in axes_and_sizes for a in axes}
        free = [a for a, size in self.sizes.items() if size > 1 and a not in used_axes]
        filled: list[DimSpec] = []
        for own, (axes, n) in zip(have, axes_and_sizes):
            more: list[Any] = []
            for a in (
                [*[a for a in free if a in own], *[a for a in free if a not in own]]
                if n > 1
                else ()
            ):
                if n % self.sizes[a] == 0:
                    more.append(a)
                    n //= self.sizes[a]
            if n > 1:
                return None
            free = [a for a in free if a not in more]
            filled.append((*axes, *more))
        return tuple(filled)


def permutation(
    source: Spec, target: Spec, sizes: Mapping[Any, int]
) -> tuple[tuple[Any, ...], tuple[tuple[int, int], ...]]:
    """Return axes, and (from, to) pairs of flat positions along them, of the permutation from `source` to `target`.

    Both layouts have equally many splits per dim; replicas are matched in order; a device that has its target block keeps it.
    """
    axes = tuple(a for a in sizes if any(a in t for t in (*source, *target)))
    return axes, _pairs(source, target, tuple((a, sizes[a]) for a in axes))


@lru_cache(maxsize=256)
def _pairs(source: Spec, target: Spec, sizes_key: Sizes) -> tuple[tuple[int, int], ...]:
    """Return the pairs of a permutation; cached, so that all moved values share one object."""
    sizes = dict(sizes_key)
    counts = tuple(sizes.values())
    coords = dict(zip(sizes, np.indices(counts).reshape(len(counts), -1)))

    def blocks(dims: Spec) -> list[int]:
        number = np.zeros(math.prod(counts), int)
        for a in itertools.chain.from_iterable(dims):
            number = number * sizes[a] + coords[a]
        return number.tolist()

    have, target_blocks = blocks(source), blocks(target)
    holders: dict[int, deque[int]] = {}
    for i, (block, other) in enumerate(zip(have, target_blocks)):
        if block != other:
            holders.setdefault(block, deque()).append(i)
    return tuple(
        [
            (i if block == other else holders[other].popleft(), i)
            for i, (block, other) in enumerate(zip(have, target_blocks))
        ]
    )
