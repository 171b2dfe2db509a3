"""Programs on a mesh of eight devices and their results, run by one process or by several with the
same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax
from weft.sharding import NamedSharding, PartitionSpec as P

PROGRAMS: dict[str, Callable[[], Any]] = {}


def program(run: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[run.__name__] = run
    return run


def mesh(*sizes: int) -> Any:
    return weft.make_mesh(sizes, tuple("xyz"[: len(sizes)]))


def sharding(grid: Any, *entries: Any) -> NamedSharding:
    return NamedSharding(grid, P(*entries))


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    array = np.random.default_rng(seed).normal(size=shape)
    return (array * 10).astype(dtype) if np.dtype(dtype).kind in "iu" else array.astype(dtype)


def mapped(f: Callable, grid: Any, ins: Any, outs: Any, *args: Any) -> Any:
    """Map `f` over all devices."""
    return weft.jit(weft.shard_map(f, mesh=grid, in_specs=ins, out_specs=outs, check_vma=False))(
        *args
    )


@program
def elementwise() -> Any:
    rows = sharding(mesh(8), "x")
    return weft.jit(lambda x: wnp.sin(x) * 2 + 1, in_shardings=rows, out_shardings=rows)(
        numbers(16, 5)
    )


@program
def matmuls() -> Any:
    grid = mesh(4, 2)
    x, w = sharding(grid, "x"), sharding(grid, None, "y")
    f = weft.jit(lambda a, b: (a @ b, (a @ b).sum(0), a.T @ a), in_shardings=(x, w))
    return f(numbers(8, 6), numbers(6, 4, seed=1))


@program
def reductions() -> Any:
    grid = mesh(4, 2)
    f = weft.jit(
        lambda x: (
            x.sum(),
            x.max(0),
            x.min(1),
            x.prod(1),
            wnp.argmax(x, 0),
            (x > 0).any(1),
            wnp.sort(x, 0),
            wnp.cumsum(x, 0),
        ),
        in_shardings=sharding(grid, "y", "x"),
    )
    return f(numbers(8, 12))


@program
def dtypes() -> Any:
    grid = mesh(8)
    total = lambda x: (x.sum(0), x.max(0) if x.dtype.kind != "c" else x.mean(0))
    arrays = [
        numbers(16, 3, dtype=t)
        for t in ("int8", "uint16", "int32", "float16", "float32", "complex64")
    ] + [numbers(16, 3) > 0]
    return [weft.jit(total, in_shardings=sharding(grid, "x"))(x) for x in arrays] + [
        weft.jit(total, in_shardings=sharding(grid, "x"))(
            weft.numpy.asarray(numbers(16, 3)).astype("bfloat16")
        )
    ]


def _each(grid: Any, axes: Any, x: np.ndarray, **collectives: Callable) -> dict:
    names = tuple("xyz"[: len(grid.axis_sizes)])
    return {name: mapped(f, grid, P(names), P(names), x) for name, f in collectives.items()}


def _collectives(grid: Any, axes: Any) -> dict:
    n = int(np.prod([dict(grid.shape)[a] for a in ([axes] if isinstance(axes, str) else axes)]))
    x = numbers(8 * 8 * 2, 3)
    return _each(
        grid,
        axes,
        x,
        psum=lambda v: lax.psum(v, axes),
        pmax=lambda v: lax.pmax(v, axes),
        pmin=lambda v: lax.pmin(v, axes),
        pmean=lambda v: lax.pmean(v, axes),
        gather=lambda v: lax.all_gather(v, axes).sum(0) * 2,
        gathered=lambda v: lax.all_gather(v, axes, axis=1, tiled=True),
        gather_last=lambda v: lax.all_gather(v, axes, axis=2).reshape(16, -1),
        scatter=lambda v: lax.psum_scatter(v, axes, scatter_dimension=0, tiled=True),
        scatter_whole=lambda v: lax.psum_scatter(v[:n], axes, scatter_dimension=0)[None],
        exchange=lambda v: lax.all_to_all(v, axes, split_axis=0, concat_axis=1, tiled=True),
        exchange_back=lambda v: lax.all_to_all(v.T, axes, split_axis=1, concat_axis=0, tiled=True),
        shift=lambda v: lax.ppermute(v, axes, [(i, (i + 1) % n) for i in range(n)]),
        shift_three=lambda v: lax.ppermute(v, axes, [(i, (i + 3) % n) for i in range(n)]),
        partly=lambda v: lax.ppermute(v, axes, [(i, i + 1) for i in range(n - 1)]),
        reverse=lambda v: lax.ppermute(v, axes, [(i, n - 1 - i) for i in range(n)]),
        kept=lambda v: lax.ppermute(v, axes, [(i, i) for i in range(0, n, 2)]),
        shuffled=lambda v: lax.pshuffle(
            v, axes, [(i * 3 + 1) % n if n % 3 else i for i in range(n)]
        ),
        broadcast=lambda v: lax.pbroadcast(v, axes, n - 1),
        index=lambda v: v * 0 + lax.axis_index(axes),
    )


@program
def collectives_over_one() -> Any:
    return _collectives(mesh(8), "x")


@program
def collectives_over_first() -> Any:
    return _collectives(mesh(4, 2), "x")


@program
def collectives_over_last() -> Any:
    return _collectives(mesh(2, 4), "y")


@program
def collectives_over_several() -> Any:
    return _collectives(mesh(2, 2, 2), ("x", "z")), _collectives(mesh(2, 4), ("y", "x"))


@program
def groups() -> Any:
    x = numbers(64, 3)
    tables = {}
    for name, members in (
        ("neighbours", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("halves", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("strides", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("mixed", [[0, 3, 5, 6], [1, 2, 4, 7]]),
    ):
        options = {"axis_index_groups": members}
        k = len(members[0])
        values = _each(
            mesh(8),
            "x",
            x,
            psum=lambda v, o=options: lax.psum(v, "x", **o),
            pmax=lambda v, o=options: lax.pmax(v, "x", **o),
            gather=lambda v, o=options: lax.all_gather(v, "x", **o).sum(0),
            scatter=lambda v, o=options: lax.psum_scatter(v, "x", tiled=True, **o),
            exchange=lambda v, o=options, k=k: lax.all_to_all(v, "x", 0, 0, tiled=True, **o),
        )
        tables.update({f"{name} {kind}": value for kind, value in values.items()})
    return tables


@program
def resharding() -> Any:
    """Reshard between any two of these layouts."""
    grids = mesh(4, 2), mesh(2, 2, 2)
    x = numbers(16, 24)
    results = []
    for grid, entries in (
        (
            grids[0],
            [
                (),
                ("x",),
                ("y",),
                (None, "x"),
                ("x", "y"),
                ("y", "x"),
                (("x", "y"),),
                (None, ("y", "x")),
            ],
        ),
        (grids[1], [("x", "y"), ("z", "x"), (("z", "x"), "y"), ("y", ("z", "x"))]),
    ):
        for a in entries:
            for b in entries:
                move = weft.jit(
                    lambda v: v + 1,
                    in_shardings=sharding(grid, *a),
                    out_shardings=sharding(grid, *b),
                )
                results.append(move(x))
    return results


@program
def uneven() -> Any:
    grid = mesh(8)
    rows, cols = sharding(grid, "x"), sharding(grid, None, "x")

    def f(v):
        e = lax.with_sharding_constraint(wnp.exp(v), rows)
        c = lax.with_sharding_constraint(e.T, cols)
        return (e * e).sum(axis=0), e[3:].max(1), c @ e, e[::-1]

    return weft.jit(f, in_shardings=sharding(grid))(numbers(61, 5))


@program
def halos() -> Any:
    rows = sharding(mesh(8), "x")
    image = sharding(mesh(8), None, None, "x")
    f = weft.jit(
        lambda v: ((v[2:] - 2 * v[1:-1] + v[:-2]) ** 2, wnp.roll(v, 3, 0), wnp.diff(v, axis=0)),
        in_shardings=rows,
    )
    g = weft.jit(
        lambda v, k: lax.conv_general_dilated(v, k, (1, 1), "SAME"), in_shardings=(image, None)
    )
    return f(numbers(64, 4)), g(numbers(1, 3, 32, 16), numbers(3, 3, 3, 3))


@program
def scans() -> Any:
    rows = sharding(mesh(4, 2), "x", "y")

    def step(c, x):
        c = wnp.tanh(c @ c.T @ c / 16 + x)
        return c, c.sum()

    return weft.jit(lambda c, xs: lax.scan(step, c, xs), in_shardings=(rows, None))(
        numbers(8, 8), numbers(5)
    )


@program
def loops_in_shard_map() -> Any:
    def f(v):
        def turn(i, c):
            return lax.ppermute(c, "x", [(k, (k + 1) % 8) for k in range(8)]) + i

        def step(c, _):
            return c * 0.5 + lax.psum(c, "x"), lax.pmax(c, "x").sum()

        w, s = lax.scan(step, v, None, length=4)
        u = lax.while_loop(
            lambda c: lax.psum(c.sum(), "x") < 100,
            lambda c: c * 1.5 + lax.pmean(wnp.abs(c), "x"),
            wnp.abs(v),
        )
        k = lax.cond(
            lax.psum(v.sum(), "x") > 0, lambda v: lax.psum(v, "x"), lambda v: -lax.pmax(v, "x"), v
        )
        return lax.fori_loop(0, 11, turn, v), w, u, k, s[None]

    return mapped(f, mesh(8), P("x"), P("x"), numbers(16, 3))


@program
def loops() -> Any:
    rows = sharding(mesh(8), "x")

    def f(v):
        u = lax.while_loop(lambda c: c.sum() < 1000, lambda c: c * 1.5 + c.mean(0), wnp.abs(v))
        k = lax.cond(v.sum() > 0, lambda v: v - v.max(0), lambda v: v + v.min(0), v)
        w = lax.fori_loop(0, 5, lambda i, c: wnp.roll(c, 1, 0) + c.mean() * i, v)
        return u, k, w

    return weft.jit(f, in_shardings=rows)(numbers(16, 4))


@program
def random_numbers() -> Any:
    rows = sharding(mesh(8), "x")
    f = weft.jit(
        lambda key: (
            weft.random.normal(key, (16, 6)),
            weft.random.randint(key, (24,), 0, 1000),
            weft.random.permutation(key, 16),
        ),
        out_shardings=(rows, rows, rows),
    )
    return f(weft.random.key(7))


@program
def gradients() -> Any:
    grid = mesh(4, 2)

    def loss(params, x):
        for w, b in params:
            x = wnp.tanh(x @ w + b)
        return (x**2).mean()

    params = [(numbers(8, 8, seed=i), numbers(8, seed=9 + i)) for i in range(3)]
    whole = sharding(grid)
    laid = [
        (sharding(grid, None, "y"), sharding(grid, "y")),
        (sharding(grid, "y"), whole),
        (sharding(grid, "x", "y"), whole),
    ]
    return weft.jit(weft.value_and_grad(loss), in_shardings=(laid, sharding(grid, "x")))(
        params, numbers(16, 8)
    )


@program
def ragged() -> Any:
    sizes = np.array([[1 + (i + j) % 2 for j in range(8)] for i in range(8)], np.int32)
    begins = np.cumsum(sizes, 1) - sizes
    places = (np.cumsum(sizes, 0) - sizes).astype(np.int32)

    def f(v, s, b, p, r):
        return lax.ragged_all_to_all(
            v, wnp.zeros((16, 2)), b[0].astype("int32"), s[0], p[0], r[0], axis_name="x"
        )

    return mapped(
        f,
        mesh(8),
        P("x"),
        P("x"),
        numbers(8 * 16, 2),
        sizes,
        begins.astype(np.int32),
        places,
        sizes.T.copy(),
    )


@program
def indexing() -> Any:
    grid = mesh(4, 2)
    rows = sharding(grid, "x", "y")
    at = np.array([3, 1, 15, 7, 7, 0], np.int32)
    f = weft.jit(
        lambda v, at: (
            v[at],
            v.at[at].add(1.0),
            wnp.take_along_axis(v, wnp.argsort(v, 0), 0),
            v[5],
            lax.dynamic_slice(v, (at[1], 0), (4, 3)),
        ),
        in_shardings=(rows, None),
    )
    return f(numbers(16, 6), at)


@program
def whole_values() -> Any:
    """Combine arguments of one process and results that all have."""
    grid = mesh(8)
    f = weft.jit(lambda a, b, c: (a + b, c), out_shardings=(sharding(grid, "x"), sharding(grid)))
    return f(np.float32(2), numbers(8), wnp.arange(5))


@program
def donated() -> Any:
    rows = sharding(mesh(8), "x")
    f = weft.jit(lambda x, y: (x + y.sum(0), y * 2), in_shardings=(rows, rows), donate_argnums=0)
    x = weft.jit(lambda x: x * 1, in_shardings=rows, out_shardings=rows)(numbers(16, 4))
    return f(x, numbers(16, 4, seed=1))


@program
def callbacks() -> Any:
    """Run callbacks: whole values are passed in one process, blocks in the process of their device;
    results reach all processes."""
    grid = mesh(4, 2)
    rows, calls = sharding(grid, "x", "y"), []

    def host(x: np.ndarray) -> np.ndarray:
        calls.append(x.shape)
        return np.sort(np.asarray(x), 0) * 2

    like = weft.ShapeDtypeStruct((16, 6), np.float32)
    f = weft.jit(lambda x: weft.pure_callback(host, like, wnp.sin(x)) + x, in_shardings=rows)
    y = f(numbers(16, 6))
    own = lambda v: (
        weft.pure_callback(lambda b: np.asarray(b) + 1, weft.ShapeDtypeStruct(v.shape, v.dtype), v)
        * 2
    )
    each = mapped(own, grid, P("x", "y"), P("x", "y"), numbers(16, 6))
    seen = []
    g = weft.jit(
        lambda x: (weft.debug.callback(lambda a: seen.append(np.asarray(a).sum()), x * 2), x.sum())[
            1
        ],
        in_shardings=rows,
    )
    total = g(numbers(16, 6))
    weft.effects_barrier()
    assert (calls, len(seen)) == (([(16, 6)], 1) if weft.process_index() == 0 else ([], 0)), (
        calls,
        seen,
    )
    return y, each, total


def values(tree: Any) -> list[np.ndarray]:
    """Return all leaves as values on the host."""
    arrays = []
    for x in weft.tree.leaves(tree):
        if len(x.sharding.device_set) > 1:
            x = weft.jit(lambda v: v, out_shardings=NamedSharding(x.sharding.mesh, P()))(x)
        arrays.append(np.asarray(x.astype("float32") if x.dtype.name == "bfloat16" else x))
    return arrays


def results(names: list[str] | None = None) -> dict[str, np.ndarray]:
    """Return all leaves of the results of these programs, by name and number."""
    return {
        f"{name}/{i}": value
        for name in names or PROGRAMS
        for i, value in enumerate(values(PROGRAMS[name]()))
    }


def write(path: str, names: list[str]) -> None:
    """Write the results of rank 0 into a file."""
    arrays = results(names)
    if weft.process_index() == 0:
        np.savez(path, **arrays)
