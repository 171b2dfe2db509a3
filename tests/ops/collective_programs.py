"""Programs of one collective each, with a NumPy model: the result of every device from the values
of all.

The programs take `lax` as an argument, so that the same text runs on weft and, by `python
collective_programs.py`, on the peer. Positions of a group are numbered along the axes of the
collective, the first being the major one.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

MESH = (("a", 2), ("b", 4))
SIZES = dict(MESH)
NAMES = tuple(SIZES)
GROUPS = {4: ((0, 3), (2, 1)), 8: ((0, 3, 5, 6), (7, 2, 1, 4))}


@dataclass(frozen=True)
class Case:
    """`run(lax, x)` on a local `shape`; `meaning(values, i)` is the result of position i from its
    group's values in order.
    `same`: all positions along the axes get one value; `linear`: the collective is linear in x.
    """

    axes: tuple[str, ...]
    shape: tuple[int, ...]
    run: Callable
    meaning: Callable
    same: bool = False
    linear: bool = True
    peer: bool = True


def block(x, dim, n, i):
    return np.split(x, n, dim)[i]


def within(meaning, groups):
    """Apply `meaning` among the members of each group."""

    def grouped(values, i):
        members = next(g for g in groups if i in g)
        return meaning([values[k] for k in members], members.index(i))

    return grouped


def total(values):
    counts = values[0].dtype == bool
    return np.sum(values, axis=0, dtype=np.int32 if counts else values[0].dtype)


def mean(values):
    exact = np.sum([np.asarray(v, np.complex128) for v in values], 0) / len(values)
    kind = values[0].dtype
    kind = (
        np.dtype(np.float32)
        if kind.kind in "biu" and kind.itemsize < 8
        else np.dtype(float)
        if kind.kind in "iu"
        else kind
    )
    return (exact if kind.kind == "c" else exact.real).astype(kind)


def grouped_cases(axes, groups):
    """Return the collectives with groups, over all positions (groups None) or within each group."""
    n = len(groups[0]) if groups else math.prod(SIZES[a] for a in axes)
    g = {"axis_index_groups": groups}
    own = (lambda m: within(m, groups)) if groups else (lambda m: m)
    same = groups is None
    yield (
        "psum",
        Case(axes, (3,), lambda lax, x: lax.psum(x, axes, **g), own(lambda vs, i: total(vs)), same),
    )
    yield (
        "pmean",
        Case(axes, (3,), lambda lax, x: lax.pmean(x, axes, **g), own(lambda vs, i: mean(vs)), same),
    )
    yield (
        "pmax",
        Case(
            axes,
            (3,),
            lambda lax, x: lax.pmax(x, axes, **g),
            own(lambda vs, i: np.max(vs, 0)),
            same,
            False,
        ),
    )
    yield (
        "pmin",
        Case(
            axes,
            (3,),
            lambda lax, x: lax.pmin(x, axes, **g),
            own(lambda vs, i: np.min(vs, 0)),
            same,
            False,
        ),
    )
    for d in (0, 1, 2):
        yield (
            f"all_gather {d}",
            Case(
                axes,
                (2, 3),
                lambda lax, x, d=d: lax.all_gather(x, axes, axis=d, **g),
                own(lambda vs, i, d=d: np.stack(vs, d)),
            ),
        )
    for d in (0, 1):
        shape = (2 * n, 3) if d == 0 else (3, 2 * n)
        yield (
            f"all_gather tiled {d}",
            Case(
                axes,
                (2, 3),
                lambda lax, x, d=d: lax.all_gather(x, axes, axis=d, tiled=True, **g),
                own(lambda vs, i, d=d: np.concatenate(vs, d)),
            ),
        )
        yield (
            f"psum_scatter tiled {d}",
            Case(
                axes,
                shape,
                lambda lax, x, d=d: lax.psum_scatter(x, axes, scatter_dimension=d, tiled=True, **g),
                own(lambda vs, i, d=d: block(total(vs), d, n, i)),
            ),
        )
        yield (
            f"psum_scatter {d}",
            Case(
                axes,
                (n, 3) if d == 0 else (3, n),
                lambda lax, x, d=d: lax.psum_scatter(x, axes, scatter_dimension=d, **g),
                own(lambda vs, i, d=d: total(vs).take(i, d)),
            ),
        )
        for e in (0, 1):
            yield (
                f"all_to_all tiled {d} {e}",
                Case(
                    axes,
                    shape,
                    lambda lax, x, d=d, e=e: lax.all_to_all(x, axes, d, e, tiled=True, **g),
                    own(lambda vs, i, d=d, e=e: np.concatenate([block(v, d, n, i) for v in vs], e)),
                ),
            )
            yield (
                f"all_to_all {d} {e}",
                Case(
                    axes,
                    (n, 3) if d == 0 else (3, n),
                    lambda lax, x, d=d, e=e: lax.all_to_all(x, axes, d, e, **g),
                    own(lambda vs, i, d=d, e=e: np.stack([v.take(i, d) for v in vs], e)),
                ),
            )
    yield (
        "pswapaxes",
        Case(
            axes,
            (2, n),
            lambda lax, x: lax.pswapaxes(x, axes, 1, **g),
            own(lambda vs, i: np.stack([v[:, i] for v in vs], 1)),
        ),
    )


def other_cases(axes):
    """Return the collectives without groups."""
    n = math.prod(SIZES[a] for a in axes)
    in_order = axes == tuple(
        sorted(axes)
    )  # the peer permutes by the order of the mesh, and not by its own axis_index
    perms = {
        "ring": [(i, (i + 1) % n) for i in range(n)],
        "back": [(i, n - 1 - i) for i in range(n)],
        "some": [(0, n - 1), (n - 1, n - 2)],
        "none": [],
    }
    for name, perm in perms.items():
        yield (
            f"ppermute {name}",
            Case(
                axes,
                (2,),
                lambda lax, x, perm=perm: lax.ppermute(x, axes, perm),
                lambda vs, i, perm=perm: next(
                    (vs[s] for s, d in perm if d == i), np.zeros_like(vs[0])
                ),
                peer=in_order,
            ),
        )
    yield (
        "pshuffle",
        Case(
            axes,
            (2,),
            lambda lax, x: lax.pshuffle(x, axes, [(i + 2) % n for i in range(n)]),
            lambda vs, i: vs[(i + 2) % n],
            peer=in_order,
        ),
    )
    # the peer has no pbroadcast on CPU, and its versions name invariant gathers differently
    yield (
        "pbroadcast",
        Case(
            axes,
            (2,),
            lambda lax, x: lax.pbroadcast(x, axes, n - 1),
            lambda vs, i: vs[n - 1],
            peer=False,
        ),
    )
    yield (
        "all_gather_invariant",
        Case(
            axes,
            (2, 3),
            lambda lax, x: lax.all_gather_invariant(x, axes, axis=1, tiled=True),
            lambda vs, i: np.concatenate(vs, 1),
            True,
            peer=False,
        ),
    )
    yield (
        "all_gather_invariant new",
        Case(
            axes,
            (2, 3),
            lambda lax, x: lax.all_gather(x, axes, axis=-1, to="invarying"),
            lambda vs, i: np.stack(vs, -1),
            True,
            peer=False,
        ),
    )
    yield (
        "axis_index",
        Case(
            axes, (), lambda lax, x: lax.axis_index(axes), lambda vs, i: np.int32(i), linear=False
        ),
    )
    yield (
        "axis_size",
        Case(
            axes,
            (),
            lambda lax, x: x + x * 0 if n == lax.axis_size(axes) else None,
            lambda vs, i: vs[i],
        ),
    )
    yield (
        "psum with a dim",
        Case(
            axes,
            (2, 3),
            lambda lax, x: lax.psum(x, (*axes, 1)),
            lambda vs, i: total(vs).sum(1, dtype=total(vs).dtype),
            True,
            peer=False,
        ),
    )


def table():
    """Return all cases by name."""
    cases = {}
    for axes in (("a",), ("b",), ("a", "b"), ("b", "a")):
        label = "".join(axes)
        n = math.prod(SIZES[a] for a in axes)
        cases |= {
            f"{label} {name}": case
            for name, case in (*grouped_cases(axes, None), *other_cases(axes))
        }
        if n in GROUPS:
            cases |= {
                f"{label} {name} in groups": case for name, case in grouped_cases(axes, GROUPS[n])
            }
    return cases


CASES = table()


def members(place, axes):
    """Return the positions that differ from `place` only along `axes`, in order."""
    positions = []
    for along in itertools.product(*[range(SIZES[a]) for a in axes]):
        other = list(place)
        for a, i in zip(axes, along):
            other[NAMES.index(a)] = i
        positions.append(tuple(other))
    return positions


def expected(case, x):
    """Return the results of all devices: [a, b, local dims...] from [a, b, local dims...]."""
    rows = []
    for place in itertools.product(*[range(n) for _, n in MESH]):
        group = members(place, case.axes)
        rows.append(np.asarray(case.meaning([x[m] for m in group], group.index(place))))
    return np.stack(rows).reshape(*SIZES.values(), *rows[0].shape)


def sample(case, dtype, seed=0):
    """Return small integers: sums and means are exact in every dtype."""
    rng = np.random.default_rng(seed)
    shape = (*SIZES.values(), *case.shape)
    x = rng.integers(0, 2 if np.dtype(dtype).kind == "b" else 4, shape)
    if np.dtype(dtype).kind not in "bu":
        x = x - 1
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.integers(0, 4, shape)
    return x.astype(dtype)


def on_peer(path):
    """Run the cases on the peer under shard_map and write the results to `path`."""
    import jax
    from jax.sharding import PartitionSpec as P

    mesh = jax.make_mesh(
        tuple(SIZES.values()), NAMES, axis_types=(jax.sharding.AxisType.Auto,) * len(NAMES)
    )
    results = {}
    for name, case in CASES.items():
        if case.peer:
            local = lambda x, case=case: case.run(jax.lax, x[0, 0])[None, None]
            fun = jax.shard_map(
                local, mesh=mesh, in_specs=P(*NAMES), out_specs=P(*NAMES), check_vma=False
            )
            results[name] = np.asarray(jax.jit(fun)(sample(case, np.float32)))
    np.savez(path, **results)


if __name__ == "__main__":
    on_peer(sys.argv[1])
