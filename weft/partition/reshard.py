"""Resharding: the cheapest sequence of collectives between two layouts of one value.

In:   a source `Placement` (which axes split each dim, over which axes it is a partial sum), a target, shape, item size.
Out:  `Step`s, each a local slice or one collective. Law: doing them moves exactly the source layout to the target one.
How:  a shortest-path search over placements; edges are the steps that can help, weighted by the bytes a device sends.
      A dim is split by its axes major to minor, so slices append a minor axis and gathers remove minor axes.
Uneven dims: a dim of s elements in n blocks has blocks of ceil(s / n); the last ones are padded, with anything. A dim
      may be split finer, or less fine, in one step only if the borders of the coarse blocks are borders of fine ones.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from weft.ir.collective_spec import COLLECTIVES, collective_bytes
from weft.ir.specs import Spec, joined
from weft.partition.cost import DEFAULT
from weft.util.record import record

Sizes = tuple[tuple[Any, int], ...]


@record
class Placement:
    """How a value is placed on the mesh: axes per dim, and the axes over which it must still be summed."""
    dims: Spec
    partial: frozenset = frozenset()

    @property
    def axes(self) -> frozenset:
        """The axes that split some dim."""
        return frozenset(itertools.chain.from_iterable(self.dims))

    def with_dim(self, d: int, axes: tuple) -> Placement:
        return Placement((*self.dims[:d], axes, *self.dims[d + 1:]), self.partial)

    def __str__(self) -> str:
        body = ", ".join("*".join(map(str, joined(axes))) if axes else "-" for axes in self.dims)
        return f"[{body}]" + (f" + partial {{{', '.join(joined(sorted(map(str, self.partial))))}}}" if self.partial else "")


@record
class Step:
    """One move. `dim` is the dim concerned; all_to_all gathers `dim` and splits `target`."""
    kind: str                            # own_slice all_gather all_to_all ppermute reduce_scatter psum
    axes: tuple[Any, ...]
    dim: int = -1
    target: int = -1
    perm: tuple[tuple[int, int], ...] = ()
    nbytes: int = 0                      # that a device sends


def local_shape(shape: tuple[int, ...], dims: Spec, sizes: Mapping[Any, int]) -> tuple[int, ...]:
    """Shape of one shard; that of a dim which does not divide is padded.

    >>> local_shape((8, 6), (('x',), ()), {'x': 4}), local_shape((9, 6), (('x',), ()), {'x': 4})
    ((2, 6), (3, 6))
    """
    return tuple(-(-s // math.prod([sizes[a] for a in axes])) if axes else s for s, axes in zip(shape, dims))


def is_even(size: int, axes: tuple, sizes: Mapping[Any, int]) -> bool:
    """Whether `axes` cut a dim of `size` into equal blocks."""
    return size % math.prod([sizes[a] for a in axes]) == 0


def plan(source: Placement, target: Placement, shape: tuple[int, ...], itemsize: int, sizes: Mapping[Any, int],
         latency: int = DEFAULT.latency) -> tuple[tuple[Step, Placement], ...]:
    """The cheapest steps from `source` to `target` for a value of global `shape`, each with its result.

    >>> one = Placement((('x',), ())); other = Placement(((), ('x',)))
    >>> [step.kind for step, after in plan(one, other, (8, 8), 4, {'x': 4})]
    ['all_to_all']
    """
    return () if source == target else _search(source, target, shape, itemsize, tuple(sizes.items()), latency)[0]


def plan_cost(source: Placement, target: Placement, shape: tuple[int, ...], itemsize: int, sizes: Mapping[Any, int],
              latency: int = DEFAULT.latency) -> int:
    """Bytes that a device sends in the cheapest plan, with a latency term per collective."""
    return 0 if source == target else _search(source, target, shape, itemsize, tuple(sizes.items()), latency)[1]


@lru_cache(maxsize=4096)
def finer_axes(source: Placement, target: Placement, shape: tuple[int, ...], itemsize: int, sizes_key: Sizes, latency: int
               ) -> dict[Any, int]:
    """The axes that have to be cut in two for devices to send less than in `plan`, with the sizes of their major parts.

    >>> grid = {'a': 4, 'b': 2}
    >>> finer_axes(Placement((('b',), ('a',))), Placement((('a',), ('b',))), (64, 64), 4, tuple(grid.items()), 64)
    {'a': 2}
    """
    used = source.axes | target.axes | source.partial
    parts = {a: [((a, i), p) for i, p in enumerate(prime_factors(n))] if a in used else [(a, n)] for a, n in sizes_key}
    fine = lambda place: Placement(tuple(tuple(part for a in axes for part, _ in parts[a]) for axes in place.dims),
                                   frozenset(part for a in place.partial for part, _ in parts[a]))
    plans = [_search(source, target, shape, itemsize, sizes_key, latency)[0],
             _search(fine(source), fine(target), shape, itemsize, tuple(part for some in parts.values() for part in some), latency)[0]]
    coarse, finer = (sum(step.nbytes for step, _ in steps) for steps in plans)
    if finer >= coarse:
        return {}
    apart = lambda axes, a: 0 < sum(part in axes for part, _ in parts[a]) < len(parts[a])
    return {a: parts[a][0][1] for a in parts if len(parts[a]) > 1
            and any(apart(axes, a) for _, place in plans[1] for axes in (*place.dims, place.partial))}


def prime_factors(n: int) -> list[int]:
    """The prime factors of `n`, the least first.

    >>> prime_factors(12), prime_factors(1)
    ([2, 2, 3], [])
    """
    found, p = [], 2
    while n > 1:
        if n % p:
            p += 1
        else:
            found.append(p)
            n //= p
    return found


@lru_cache(maxsize=65536)
def _search(source: Placement, target: Placement, shape: tuple[int, ...], itemsize: int, sizes_key: Sizes, latency: int
            ) -> tuple[tuple[tuple[Step, Placement], ...], int]:
    """Dijkstra's algorithm over placements."""
    if not target.partial <= source.partial:
        raise ValueError(f"cannot make a partial sum over {set(target.partial - source.partial)} of a whole value")
    space = _SearchSpace(target, shape, itemsize, dict(sizes_key))
    order = itertools.count()
    queue: list[tuple] = [(0, next(order), source, ())]
    done: set[Placement] = set()
    while queue:
        cost, _, place, steps = heapq.heappop(queue)
        if place == target:
            return steps, cost
        if place in done:
            continue
        done.add(place)
        for step, after in space.steps(place):
            if after not in done:
                weight = step.nbytes + (1 if COLLECTIVES[step.kind].is_local else latency)
                heapq.heappush(queue, (cost + weight, next(order), after, (*steps, (step, after))))
    raise AssertionError(f"no plan from {source} to {target} for shape {shape}")


class _SearchSpace:
    """The moves of one search."""

    def __init__(self, target: Placement, shape: tuple[int, ...], itemsize: int, sizes: dict):
        self.target, self.shape, self.itemsize, self.sizes = target, shape, itemsize, sizes
        self.prefixes = [[axes[:k] for k in range(len(axes) + 1)] for axes in target.dims]

    def aligned(self, d: int, coarse: tuple, fine: tuple) -> bool:
        """Whether each block of dim `d` by `coarse` consists of blocks by `fine`, which begins with `coarse`."""
        block, small = (-(-self.shape[d] // math.prod(self.sizes[a] for a in axes)) for axes in (coarse, fine))
        return not coarse or small * math.prod(self.sizes[a] for a in fine[len(coarse):]) == block

    def may_split(self, d: int, coarse: tuple, fine: tuple) -> bool:
        """Whether dim `d` may be cut from `coarse` blocks into `fine` ones: uneven ones only on the way to the target."""
        known = is_even(self.shape[d], fine, self.sizes) or self.target.dims[d][:len(fine)] == fine
        return known and self.aligned(d, coarse, fine)

    def local(self, place: Placement) -> tuple[int, ...]:
        return local_shape(self.shape, place.dims, self.sizes)

    def nbytes(self, place: Placement) -> int:
        return math.prod(self.local(place)) * self.itemsize

    def step(self, kind: str, place: Placement, axes: tuple, **kw: Any) -> Step:
        n = math.prod(self.sizes[a] for a in axes)
        return Step(kind, axes, nbytes=collective_bytes(kind, self.nbytes(place), n), **kw)

    def steps(self, place: Placement) -> Iterator[tuple[Step, Placement]]:
        yield from self._sums(place)
        yield from self._slices(place)
        yield from self._gathers(place)
        yield from self._exchanges(place)
        yield from self._permutations(place)

    def _sums(self, place: Placement) -> Iterator[tuple[Step, Placement]]:
        rest = place.partial - self.target.partial
        if not rest:
            return
        ordered = tuple(a for a in self.sizes if a in rest)
        for group in dict.fromkeys((ordered, *((a,) for a in ordered))):
            yield self.step("psum", place, group), Placement(place.dims, place.partial - set(group))
        for a in ordered:
            for d in range(len(self.shape)):
                if a in self.target.axes and self.may_split(d, place.dims[d], (*place.dims[d], a)):
                    after = Placement((*place.dims[:d], (*place.dims[d], a), *place.dims[d + 1:]), place.partial - {a})
                    yield self.step("reduce_scatter", place, (a,), dim=d), after

    def _slices(self, place: Placement) -> Iterator[tuple[Step, Placement]]:
        used = place.axes | place.partial
        for a in (a for a in self.sizes if a in self.target.axes and a not in used):
            for d in range(len(self.shape)):
                if self.may_split(d, place.dims[d], (*place.dims[d], a)):
                    yield self.step("own_slice", place, (a,), dim=d), place.with_dim(d, (*place.dims[d], a))
        for d, wanted in enumerate(self.target.dims):
            if not place.dims[d] and len(wanted) > 1 and not used & set(wanted) and not is_even(self.shape[d], wanted, self.sizes):
                yield self.step("own_slice", place, wanted, dim=d), place.with_dim(d, wanted)

    def _gathers(self, place: Placement) -> Iterator[tuple[Step, Placement]]:
        for d, axes in enumerate(place.dims):
            for k in range(len(axes)):
                if self.aligned(d, axes[:k], axes):
                    yield self.step("all_gather", place, axes[k:], dim=d), place.with_dim(d, axes[:k])

    def _exchanges(self, place: Placement) -> Iterator[tuple[Step, Placement]]:
        for d, axes in enumerate(place.dims):
            for k in (k for k in range(len(axes)) if self.aligned(d, axes[:k], axes)):
                moved = axes[k:]
                for t, there in enumerate(place.dims):
                    if t != d and set(moved) <= set(self.target.dims[t]) and self.may_split(t, there, (*there, *moved)):
                        after = place.with_dim(d, axes[:k]).with_dim(t, (*place.dims[t], *moved))
                        yield self.step("all_to_all", place, moved, dim=d, target=t), after

    def _permutations(self, place: Placement) -> Iterator[tuple[Step, Placement]]:
        """Steps to placements with as many splits per dim, whose axes begin as the target's do; what the target lacks is minor,
        so that it can be gathered."""
        if place.partial:
            return
        for wanted in itertools.product(*self.prefixes):
            dims = self._filled(place.dims, wanted)
            if dims is not None and dims != place.dims:
                axes, perm = permutation(place.dims, dims, self.sizes)
                moved = any(s != t for s, t in perm)
                yield Step("ppermute", axes, perm=perm, nbytes=self.nbytes(place) if moved else 0), Placement(dims)

    def _filled(self, have: Spec, wanted: Spec) -> Spec | None:
        """`wanted` with minor axes that give each dim as many splits as it has under `have`; None if no axes do."""
        counts = [math.prod(self.sizes[a] for a in axes) for axes in have]
        if any(n % math.prod(self.sizes[a] for a in axes) for n, axes in zip(counts, wanted)):
            return None
        free = [a for a in self.sizes if not any(a in axes for axes in wanted)]
        found = []
        for n, own, axes in zip(counts, have, wanted):
            n //= math.prod(self.sizes[a] for a in axes)
            more: list = []
            for a in sorted(free, key=lambda a: a not in own):
                if n % self.sizes[a] == 0 and self.sizes[a] > 1:
                    more.append(a)
                    n //= self.sizes[a]
            if n > 1:
                return None
            free = [a for a in free if a not in more]
            found.append((*axes, *more))
        return tuple(found)


def permutation(source: Spec, target: Spec, sizes: Mapping[Any, int]) -> tuple[tuple, tuple[tuple[int, int], ...]]:
    """Axes, and (from, to) pairs of their flat numbers, that give every device its block under `target`.

    Both layouts have equally many splits per dim; replicas are matched in order; a device with its block keeps it.
    """
    axes = tuple(a for a in sizes if any(a in t for t in (*source, *target)))
    counts = [sizes[a] for a in axes]
    coords = dict(zip(axes, np.indices(counts).reshape(len(axes), -1)))

    def blocks(dims: Spec) -> list[int]:
        number = np.zeros(math.prod(counts), int)
        for a in itertools.chain.from_iterable(dims):
            number = number * sizes[a] + coords[a]
        return [int(i) for i in number]

    have, want = blocks(source), blocks(target)
    stay = {i for i, (h, w) in enumerate(zip(have, want)) if h == w}
    holders: dict[int, list[int]] = {}
    for i, block in enumerate(have):
        if i not in stay:
            holders.setdefault(block, []).append(i)
    pairs = [(i, i) if i in stay else (holders[block].pop(0), i) for i, block in enumerate(want)]
    return axes, tuple(pairs)
