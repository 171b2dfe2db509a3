"""Programs on several devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import weft
import weft.lax as lax
import weft.numpy as wnp
from tests.hlo import program_list
from tests.hlo.program_list import f32, program
from weft._engine.ops import collective_rules
from weft.experimental.layout import Layout, with_layout_constraint
from weft.sharding import NamedSharding, PartitionSpec as P, PositionalSharding


@program(f32(8, 16), f32(16, 8), specs=(P("a", "b"), P("b")))
def sharded(x, w):
    y = with_layout_constraint(x * 2, Layout((1, 0)))
    y = lax.with_sharding_constraint(
        y, NamedSharding(program_list.mesh(), P(("a", "b"), P.UNCONSTRAINED))
    )
    return y @ w, weft.jit(wnp.sin, out_shardings=NamedSharding(program_list.mesh(), P("b")))(x)


def _positional(fn):
    tiles = PositionalSharding(weft.devices()[:8]).reshape(4, 2)
    return lambda x: fn(lax.with_sharding_constraint(x, tiles))


@program(f32(8, 4))
def tiled(x):
    return _positional(wnp.sin)(x)


def _mapped(fn: Callable, ins: Sequence, outs) -> Callable:
    return lambda *xs: weft.shard_map(
        fn, mesh=program_list.mesh(), in_specs=tuple(ins), out_specs=outs, check_vma=False
    )(*xs)


@program(f32(8, 16), specs=(P("a", "b"),))
def reducing_collectives(x):
    def fn(u):
        return (
            lax.psum(u, "a"),
            lax.pmax(u, "b"),
            lax.pmin(u, ("a", "b")),
            lax.psum_scatter(u, "b", scatter_dimension=1, tiled=True),
            lax.psum_scatter(lax.all_gather(u, "a"), "a"),
            lax.pmean(u, ("b", "a")),
        )

    return _mapped(fn, [P("a", "b")], (P(None, "b"), P("a"), P(), P("a", "b"), P("a", "b"), P()))(x)


@program(f32(8, 16), specs=(P("a", "b"),))
def moving_collectives(x):
    def fn(u):
        return (
            lax.all_gather(u, "b", axis=1, tiled=True),
            lax.all_gather(u, ("b", "a")),
            lax.all_to_all(u, "b", 1, 0, tiled=True),
            lax.ppermute(u, "a", [(0, 1), (1, 2), (3, 0)]),
            u + lax.axis_index("a") * 10 + lax.axis_index(("a", "b")),
            collective_rules.own_slice_p.bind(u, axis_name=("b",), axis_size=2, dim=1),
            lax.psum(u, "a", axis_index_groups=[[0, 3], [1, 2]]),
        )

    return _mapped(
        fn,
        [P("a", "b")],
        (P("a"), P(), P(("a", "b")), P("a", "b"), P("a", "b"), P("a", "b"), P("a", "b")),
    )(x)


@program(f32(8, 16), specs=(P("a", "b"),))
def broadcast_collective(x):
    return _mapped(lambda u: lax.pbroadcast(u, "a", 2), [P("a", "b")], P(None, "b"))(x)


@program(f32(8, 16), f32(16, 4), specs=(P("a"), P(None, "b")))
def gradient_in_shard_map(x, w):
    fn = weft.shard_map(
        lambda u, v: lax.psum((wnp.tanh(u @ v) ** 2).sum(), ("a", "b")),
        mesh=program_list.mesh(),
        in_specs=(P("a"), P(None, "b")),
        out_specs=P(),
    )
    return (
        weft.grad(fn, argnums=(0, 1))(x, w),
        weft.shard_map(
            lambda u: lax.all_gather_invariant(u, "a", tiled=True),
            mesh=program_list.mesh(),
            in_specs=P("a"),
            out_specs=P(),
        )(x),
        weft.shard_map(
            lambda u: u + lax.pvary(wnp.float32(1), "a"),
            mesh=program_list.mesh(),
            in_specs=P("a"),
            out_specs=P("a"),
        )(x),
    )


@program(f32(8, 4), specs=(P("a"),))
def ragged_exchange(x):
    def fn(u):
        ones, places = wnp.ones(4, np.int32), wnp.arange(4, dtype=np.int32) % 2
        return lax.ragged_all_to_all(
            u, wnp.zeros((4, 4)), places, ones, lax.axis_index("a") * ones, ones, axis_name="a"
        )

    return _mapped(fn, [P("a")], P("a"))(x)


def _explicit(x):
    with weft.sharding.use_mesh(
        weft.make_mesh((4, 2), ("a", "b"), axis_types=(weft.sharding.AxisType.Explicit,) * 2)
    ):
        y = weft.sharding.reshard(x, P("a", "b"))
        return weft.sharding.auto_axes(wnp.sin, out_sharding=P("a", "b"))(
            y
        ) + weft.sharding.reshard(y, P("a", "b"))


@program(f32(8, 4), specs=(P("a", "b"),))
def explicit_types(x):
    return _explicit(x)
