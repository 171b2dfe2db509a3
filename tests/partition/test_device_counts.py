"""Compiling for many devices takes as much work as compiling for few: Python calls are counted, not seconds."""

import cProfile
import itertools
from functools import partial

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax, nn
from weft._engine.backends.base import LoadedLocalProgram
from weft._engine.backends.planned_devices import PlannedBackend
from weft._engine.hlo.replica_program import replica_program_text
from weft._engine.hlo.text import stablehlo
from weft._engine.partition import reshard
from weft._engine.partition.reshard import Placement, finer_axes, permutation, plan
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

AXES = ("a", "b", "c")


class PartitionOnly(PlannedBackend):
    """Devices whose programs are only partitioned."""

    def lower(self, program, stage):
        self.program = program

    def compile(self, program, lowered, stage):
        return LoadedLocalProgram()


def mesh_of(*sizes: int) -> Mesh:
    devices = PartitionOnly(1, int(np.prod(sizes)), 1).devices()
    return Mesh(np.array(devices).reshape(sizes), AXES[: len(sizes)])


def like(mesh: Mesh, shape: tuple, *entries, dtype=np.float32) -> weft.ShapeDtypeStruct:
    return weft.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*entries)))


def count_calls(fun, *args) -> int:
    """Return the number of Python calls of `fun(*args)`."""
    profile = cProfile.Profile(builtins=False)
    profile.runcall(fun, *args)
    return sum(entry.callcount for entry in profile.getstats())


# ---- programs: each makes a function and its arguments for a mesh


def training_step(mesh: Mesh):
    """Attention and a feed-forward layer: batch split by the first axis, weights by the last."""
    first, last = mesh.axis_names[0], mesh.axis_names[-1]

    def step(params, tokens):
        def loss(params):
            x = params["emb"][tokens]
            qkv = wnp.split(x @ params["qkv"], 3, -1)
            q, k, v = (z.reshape(*z.shape[:-1], 64, 64).swapaxes(-2, -3) for z in qkv)
            a = nn.softmax(q @ k.swapaxes(-1, -2), -1) @ v
            x = x + a.swapaxes(-2, -3).reshape(x.shape) @ params["proj"]
            x = x + nn.gelu(x @ params["up"]) @ params["down"]
            return (nn.log_softmax(x @ params["out"], -1) ** 2).mean()

        return weft.tree.map(lambda p, g: p - 0.1 * g, params, weft.grad(loss)(params))

    d = 4096
    shapes = {
        "emb": (8192, d),
        "qkv": (d, 3 * d),
        "proj": (d, d),
        "up": (d, 4 * d),
        "down": (4 * d, d),
        "out": (d, 8192),
    }
    params = {name: like(mesh, shape, None, last) for name, shape in shapes.items()}
    return step, (params, like(mesh, (4096, 32), first, dtype=np.int32))


def sharded_parameters(mesh: Mesh):
    """Weights split by all axes, gathered where they are used."""

    def step(params, x):
        loss = lambda params: wnp.tanh(wnp.tanh(x @ params[0]) @ params[1]).sum()
        return weft.tree.map(lambda p, g: p - 0.1 * g, params, weft.grad(loss)(params))

    params = [like(mesh, (4096, 4096), mesh.axis_names) for _ in range(2)]
    return step, (params, like(mesh, (4096, 4096), mesh.axis_names))


def rows_of_neighbors(mesh: Mesh):
    """Operations that need rows of other blocks."""

    def fun(x):
        return (
            x[1:] - x[:-1],
            x[::3],
            x[::-1],
            wnp.roll(x, 5, 0),
            wnp.pad(x, ((3, 5), (0, 0))),
            wnp.concatenate([x, 2 * x]),
        )

    return fun, (like(mesh, (8192, 4), mesh.axis_names),)


def changes_of_layout(mesh: Mesh):
    """Constraints that ask for another layout each."""
    names = mesh.axis_names
    specs = [
        (names,),
        (None, names),
        (names[::-1],),
        (names[-1], names[0]) if len(names) > 1 else (),
        (None, None, names),
    ]

    def fun(x):
        for spec in specs:
            x = wnp.sin(lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec))))
        return x

    return fun, (like(mesh, (4096, 4096, 4096), *names),)


def collectives(mesh: Mesh):
    """A shard_map that permutes, sums, gathers and scatters."""
    first = mesh.axis_names[0]

    @partial(weft.shard_map, mesh=mesh, in_specs=P(mesh.axis_names), out_specs=P(mesh.axis_names))
    def fun(x):
        x = x + lax.psum(x, mesh.axis_names)
        gathered = lax.all_gather(x, first, axis=0, tiled=True)
        return lax.psum_scatter(gathered, first, scatter_dimension=0, tiled=True) + lax.axis_index(
            mesh.axis_names
        )

    return fun, (like(mesh, (4096 * 64, 4), mesh.axis_names),)


PROGRAMS = [training_step, sharded_parameters, rows_of_neighbors, changes_of_layout, collectives]
MESHES = {"1-D": ((64,), (4096,)), "2-D": ((8, 8), (64, 64)), "3-D": ((4, 4, 4), (16, 16, 16))}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dims", MESHES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_calls_do_not_grow_with_devices(program, dims):
    def compile_for(sizes):
        fun, args = program(mesh_of(*sizes))
        lowered = weft.jit(fun).lower(*args)
        return count_calls(lowered.compile)

    few, many = MESHES[dims]
    compile_for((2,) * len(few))  # modules and caches loaded afterwards do not count
    calls = compile_for(few), compile_for(many)
    assert calls[1] <= 1.5 * calls[0], calls


# ---- moves


def place(*dims: str, partial: str = "") -> Placement:
    return Placement(tuple(tuple(d) for d in dims), frozenset(partial))


MOVES = [
    (place("a", "b"), place("b", "a")),
    (place("ab", ""), place("ba", "")),
    (place("", "ab"), place("b", "a")),
    (place("", "", partial="a"), place("ab", "")),
    (place("b", "", partial="a"), place("", "")),
    (place("", "b"), place("a", "")),
]


@pytest.mark.parametrize("source, target", MOVES, ids=str)
def test_plans_for_many_devices_have_the_same_steps(source, target):
    kinds = [
        [step.kind for step, _ in plan(source, target, (4096, 4096), 4, {"a": n, "b": n})]
        for n in (4, 64)
    ]
    assert kinds[0] == kinds[1]
    key = (("a", 64), ("b", 64))
    assert finer_axes(source, target, (4096, 4096), 4, key, 64) == {}


def test_axes_are_cut_where_another_axis_fits():
    cuts = finer_axes(place("b", "a"), place("a", "b"), (4096, 4096), 4, (("a", 512), ("b", 8)), 64)
    assert cuts == {"a": 8}
    assert finer_axes(
        place("b", "a"), place("a", "b"), (4096, 4096), 4, (("a", 4), ("b", 2)), 64
    ) == {"a": 2}


def test_axes_are_cut_where_a_dim_is_full():
    """A dim of 16 takes the part of 16, or what another such part leaves of the axis."""
    parts = partial(reshard._parts, "a", place("", "a"), place("", ""))
    assert parts((16, 4096), {"a": 64}) == [4, 4, 4]
    assert parts((64, 4096), {"a": 64}) == [64] and parts((7, 4096), {"a": 64}) == [64]


def search_without_bounds(
    source: Placement, target: Placement, shape: tuple, sizes: dict
) -> tuple[list, int]:
    """Return the cheapest steps and their cost, by trying placements in the order of their cost."""
    space = reshard._SearchSpace(target, shape, 4, sizes, 64)
    reached = [(0, 0, source, ())]
    numbers, done = itertools.count(1), set()
    while True:
        entry = min(reached, key=lambda entry: entry[:2])
        reached.remove(entry)
        cost, _, at, steps = entry
        if at == target:
            return list(steps), cost
        if at not in done:
            done.add(at)
            for step, after, weight in space.weighted_steps(at):
                reached.append((cost + weight, next(numbers), after, (*steps, (step.kind, after))))


def all_placements(axes: str, partial: bool) -> list[Placement]:
    meshes = []
    for owners in itertools.product(
        (None, 0, 1, *(["partial"] if partial else [])), repeat=len(axes)
    ):
        for order in itertools.permutations(range(len(axes))):
            dims = [tuple(axes[i] for i in order if owners[i] == d) for d in (0, 1)]
            meshes.append(
                Placement(tuple(dims), frozenset(a for a, o in zip(axes, owners) if o == "partial"))
            )
    return list(dict.fromkeys(meshes))


@pytest.mark.parametrize("shape", [(16, 16), (16, 6), (7, 16)], ids=str)
def test_bounds_leave_out_no_cheapest_plan(shape):
    sizes = {"a": 4, "b": 2}
    for source, target in itertools.product(
        all_placements("ab", True), all_placements("ab", False)
    ):
        if source == target or any(
            n < np.prod([sizes[a] for a in axes])
            for p in (source, target)
            for n, axes in zip(shape, p.dims)
        ):
            continue
        steps, cost = reshard._search(source, target, shape, 4, tuple(sizes.items()), 64)
        expected = search_without_bounds(source, target, shape, sizes)
        assert ([(step.kind, after) for step, after in steps], cost) == expected
        space = reshard._SearchSpace(target, shape, 4, sizes, 64)
        assert space.lower_bound(source) <= cost
        assert space.bytes_bound(source) <= sum(step.nbytes for step, _ in steps) + len(steps)


def test_equal_moves_share_their_pairs():
    sizes = {"a": 64, "b": 64}
    moves = [plan(place("a", ""), place("b", ""), (4096, n), 4, sizes) for n in (16, 32)]
    (first, _), (second, _) = (steps[0] for steps in moves)
    assert (
        first.perm is second.perm is permutation((("a",), ()), (("b",), ()), sizes)[1]
        and len(first.perm) == 4096
    )


# ---- texts


def test_texts_write_equal_groups_once():
    mesh = mesh_of(64, 64)

    @partial(weft.shard_map, mesh=mesh, in_specs=P("a", "b"), out_specs=P("a", "b"))
    def fun(x):
        for _ in range(20):
            x = wnp.sin(lax.psum(x, "a")) + lax.ppermute(
                x, "a", [(i, (i + 1) % 64) for i in range(64)]
            )
        return x

    weft.jit(fun).lower(like(mesh, (64, 64), "a", "b")).compile()
    stablehlo._rows_of_devices.cache_clear()
    text = replica_program_text(mesh.devices[0, 0].client.program)
    written = stablehlo._rows_of_devices.cache_info()
    assert text.count("stablehlo.all_reduce") == text.count("stablehlo.collective_permute") == 20
    assert (written.misses, written.hits) == (2, 38)
