"""Costs of programs, counted from their traces: operations, memory, network, and peak memory."""

import itertools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.core.trace import extend_axis_env
from weft._engine.ops.conv_products import out_size, products_along
from weft._engine.ops.ragged import ragged_dot
from weft.experimental import roofline as package
from weft.experimental.roofline import (
    RooflineResult,
    RooflineShape,
    register_roofline,
    register_standard_roofline,
    roofline,
    roofline_and_grad,
)
from weft.extend.core import Primitive
from weft.sharding import PartitionSpec as P

F4 = 4


def cost(f, *args, **options):
    return roofline(f, **options)(*args)[1]


def work(f, *args):
    estimate = cost(f, *args)
    return estimate.unfused_flops, estimate.unfused_hbm_bytes


def struct(*shape, dtype=np.float32):
    return weft.ShapeDtypeStruct(shape, dtype)


@pytest.fixture
def mesh():
    return weft.make_mesh((2, 4), ("x", "y"), devices=weft.devices()[:8])


# ---- computation

X, X8 = struct(3, 8), struct(8)


@pytest.mark.parametrize(
    "f, flops, elements",
    [
        (wnp.tanh, 24, 48),
        (lambda x: x + 1, 24, 49),
        (lambda x: x > 0, 24, 25 + 24 / F4),
        (lambda x: x.astype(np.int32), 0, 0),
        (lambda x: x.T.reshape(-1), 0, 0),
        (lambda x: x.sum(0), 16, 32),
        (lambda x: lax.reduce_max(x, (0, 1)), 23, 25),
        (lambda x: lax.cumsum(x, axis=1), 8, 48),
        (lambda x: lax.cumlogsumexp(x, axis=1), 16, 48),
        (lambda x: lax.dynamic_slice(x, (0, 0), (2, 2)), 0, 8 + 2),
        (lambda x: lax.dynamic_update_slice(x, np.zeros((2, 2), np.float32), (0, 0)), 0, 8 + 2),
        (lambda x: lax.sort(x, dimension=1), 24 * 3, 48),
        (lambda x: lax.fft(x.astype(np.complex64), "FFT", (8,)), 5 * 24 * 3, 96),
        (lambda x: lax.select(np.ones((3, 8), bool), x, x), 24, 24 / F4 + 24),
    ],
    ids=[
        "unary",
        "scalar",
        "compare",
        "cast",
        "layout",
        "sum",
        "max",
        "cumsum",
        "cumlogsumexp",
        "slice",
        "update",
        "sort",
        "fft",
        "select",
    ],
)
def test_kinds_of_operations(f, flops, elements):
    assert work(f, X) == (flops, elements * F4)
    assert (cost(f, X).flops, cost(f, X).hbm_bytes) == (0, 0)


def test_products_count_fused_too():
    estimate = cost(
        lambda x, w: wnp.einsum("bij,bjk->bik", x, w) + 1, struct(2, 3, 4), struct(2, 4, 5)
    )
    assert estimate.flops == 2 * 2 * 3 * 4 * 5 and estimate.unfused_flops == estimate.flops + 30
    assert estimate.hbm_bytes == F4 * (24 + 40 + 30)


@pytest.mark.parametrize(
    "options, elements",
    [
        ({"pin_lhs_in_vmem": True}, 40),
        ({"pin_rhs_in_vmem": True}, 24 + 15),
        ({"pin_lhs_in_vmem": True, "pin_rhs_in_vmem": True}, 0),
    ],
)
def test_pinned_operands_have_no_traffic(options, elements):
    assert (
        cost(lambda x, w: x @ w, struct(3, 8), struct(8, 5), **options).hbm_bytes == F4 * elements
    )


def test_each_row_meets_one_matrix_of_a_group():
    ints = lambda n: struct(n, dtype=np.int32)
    f = lambda x, w, *places: ragged_dot(x, w, *places, False)
    estimate = cost(f, struct(3, 8), struct(2, 8, 5), ints(2), ints(2), ints(3))
    assert (estimate.flops, estimate.hbm_bytes) == (2 * 24 * 5, F4 * (24 + 80 + 7 + 15))


def test_convolutions_leave_padding_out():
    f = lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME")
    assert work(f, struct(2, 3, 4, 4), struct(5, 3, 3, 3)) == (
        2 * 2 * 3 * 5 * 10 * 10,
        F4 * (96 + 135 + 160),
    )


def test_products_along_a_dim_are_those_that_a_walk_finds():
    for n, k, lo, hi, stride, gap, spread in itertools.product(
        (0, 1, 5), (1, 3), (-1, 0, 2), (0, 3), (1, 2, 3), (1, 2, 4), (1, 2)
    ):
        places = out_size(n, lo, hi, gap, k, spread, stride)
        at = np.arange(places)[:, None] * stride - lo + np.arange(k) * spread
        met = (at >= 0) & (at <= (n - 1) * gap) & (at % gap == 0)
        assert products_along(n, k, places, lo, stride, gap, spread) == met.sum()


def test_gather_and_scatter_touch_what_they_pick():
    x, i, u = struct(9, 3), np.zeros((2, 1), np.int32), struct(2, 3)
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
    picked = lambda mode: lambda x, i: lax.gather(x, i, numbers, (1, 3), mode=mode)
    assert work(picked("clip"), x, i) == (0, F4 * (6 + 6 + 2))
    assert work(picked("fill"), x, i) == (4 * 2 + 6, F4 * (6 + 6 + 2))
    into = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    assert work(lambda x, i, u: lax.scatter_add(x, i, u, into), x, i, u) == (6, F4 * (3 * 6 + 2))
    assert work(lambda x, i, u: lax.scatter(x, i, u, into), x, i, u) == (0, F4 * (3 * 6 + 2))


def test_generators_of_random_bits_cost_nothing():
    assert work(lambda key: weft.random.split(key, 64), weft.random.key(0)) == (0, 0)


def test_callbacks_cost_their_transfers():
    assert work(lambda x: weft.pure_callback(np.sin, x, x), wnp.ones(6)) == (0, 2 * 6 * F4)
    assert work(lambda x: weft.debug.callback(print, x), wnp.ones(6)) == (0, 6 * F4)


# ---- programs in programs


def test_calls_are_looked_into():
    sin = custom = weft.custom_jvp(wnp.sin)
    custom.defjvp(lambda p, t: (sin(*p), t[0]))
    for f in (weft.jit(wnp.sin), weft.checkpoint(wnp.sin), custom, weft.vmap(wnp.sin)):
        assert work(f, X) == (24, 2 * 24 * F4)


def test_loops_count_as_often_as_they_run():
    square = lambda x, _=None: (x @ x, None)
    x = struct(4, 4)
    assert cost(lambda x: lax.scan(square, x, None, length=7)[0], x) == RooflineResult(
        flops=7 * 128,
        unfused_flops=7 * 128,
        hbm_bytes=7 * 3 * 64,
        unfused_hbm_bytes=7 * 3 * 64,
        peak_hbm_bytes=64,
    )
    assert cost(lambda x: lax.while_loop(lambda x: x[0, 0] < 9, lambda x: x @ x, x), x).flops == 128
    assert (
        cost(lambda p, x: lax.cond(p, lambda x: x, lambda x: x @ x, x), struct(dtype=bool), x).flops
        == 128
    )


def test_the_peak_is_what_is_alive_at_once():
    def f(x):  # x, y and z are alive until both of 30 elements are there
        y = wnp.sin(x)
        z = wnp.cos(y)
        return wnp.concatenate([x, y, z]) + wnp.concatenate([z, y, x])

    assert cost(f, struct(10)).peak_hbm_bytes == F4 * (30 + 30)
    assert cost(lambda x: wnp.sum(wnp.sin(x) * wnp.cos(x)), struct(10)).peak_hbm_bytes == F4 * 20
    assert cost(lambda x: x * x, struct(10)).peak_hbm_bytes == F4 * 10


def test_references_are_as_large_as_what_they_hold():
    def f(x):
        ref = weft.new_ref(x)
        ref[...] = wnp.sin(ref[...])
        return ref[...]

    assert cost(f, struct(10)).unfused_flops == 10


# ---- devices


def over(mesh, f, x, spec, to):
    return cost(f, x, mesh=mesh, in_specs=spec, out_specs=to)


@pytest.mark.parametrize(
    "f, to, sent, hops",
    [
        (
            lambda x: lax.all_gather(x, "y", axis=1, tiled=True),
            P("x", "y"),
            {"y": 64 * 3},
            {"y": 4},
        ),
        (lambda x: lax.psum(x, "y"), P("x"), {"y": 2 * 16 * 3}, {"y": 8}),
        (
            lambda x: lax.psum(x, ("x", "y")),
            P(),
            dict.fromkeys("xy", 2 * (4 * 3 + 16)),
            dict.fromkeys("xy", 16),
        ),
        (
            lambda x: lax.psum_scatter(x, "y", scatter_dimension=0, tiled=True),
            P(("x", "y")),
            {"y": 16 * 3},
            {"y": 4},
        ),
        (lambda x: lax.pmax(x, "y"), P("x"), {"y": F4 * 3}, {"y": 4}),
        (
            lambda x: lax.all_to_all(x, "y", 0, 1, tiled=True),
            P(("x", "y")),
            {"y": 64 * 4 // 2 // 2},
            {"y": 2},
        ),
        (
            lambda x: lax.ppermute(x, "y", [(i, (i + 1) % 4) for i in range(4)]),
            P("x", "y"),
            {"y": 64},
            {"y": 1},
        ),
        (lambda x: lax.ppermute(x, "y", [(0, 2), (1, 3)]), P("x", "y"), {"y": 128}, {"y": 2}),
        (lambda x: x + lax.axis_index("y"), P("x", "y"), {}, {}),
    ],
    ids=[
        "all_gather",
        "psum",
        "psum2",
        "reduce_scatter",
        "pmax",
        "all_to_all",
        "rotation",
        "contended",
        "index",
    ],
)
def test_collectives(mesh, f, to, sent, hops):
    estimate = over(mesh, f, struct(8, 16), P("x", "y"), to)  # blocks of 64 bytes
    assert (estimate.ici_bytes, estimate.ici_latency) == (sent, hops)


def test_an_axis_of_one_device_is_free():
    mesh = weft.make_mesh((1,), ("x",), devices=weft.devices()[:1])
    assert over(mesh, lambda x: lax.psum(x, "x"), struct(8, 8), P("x"), P()).ici_bytes == {"x": 0}


def test_a_shard_map_brings_its_mesh(mesh):
    f = weft.shard_map(
        lambda x: lax.psum(x, "y"), mesh=mesh, in_specs=P("x", "y"), out_specs=P("x")
    )
    types, estimate = roofline(weft.jit(f))(struct(8, 16))
    assert estimate.ici_bytes == {"y": 96} and types.shape == (8, 4)


def test_types_of_results_have_their_shardings(mesh):
    types, _ = roofline(lambda x: {"sum": x + 1}, mesh, P("x"), P("x"))(struct(8, 16))
    assert types["sum"].sharding == weft.sharding.NamedSharding(mesh, P("x"))


def test_a_collective_needs_a_mesh():
    with pytest.raises(
        ValueError, match=r"psum over 'i' needs a mesh; pass `mesh`, or call it inside `shard_map`"
    ):
        with extend_axis_env([("i", 2)]):
            cost(lambda x: lax.psum(x, "i"), X)


def test_the_backward_pass(mesh):
    gathered = lambda x, w: lax.all_gather(x, "y", axis=1, tiled=True) @ w
    types, forward, backward = roofline_and_grad(gathered, mesh, (P("x", "y"), P()), P("x", "y"))(
        struct(8, 16), struct(16, 4)
    )
    assert (
        types.shape == (8, 16)
        and forward.flops == 2 * 4 * 16 * 4
        and backward.flops == 2 * forward.flops
    )
    assert backward.hbm_bytes == 2 * 2 * (
        4 * 16 + 16 * 4 + 4 * 4
    )  # two products, of two bytes an element


def test_integers_are_no_obstacle_to_the_backward_pass(mesh):
    picked = lambda x, i: (x * i, i)
    _, _, backward = roofline_and_grad(picked, mesh, (P("x"), P("x")), (P("x"), P("x")))(
        struct(8), struct(8, dtype=np.int32)
    )
    assert backward.unfused_flops > 0


def test_backward_pass_results_are_argument_cotangents(mesh):
    f = lambda x, y, z: (x * y, z)
    types, _ = roofline(f, mesh, (P("x"), P("x"), P("y")), (P("x"), P("y")), vjp=True)(X8, X8, X8)
    assert [t.sharding.spec for t in types] == [P("x"), P("x"), P("y")]


# ---- rules of users


def operation(name):
    primitive = Primitive(name)
    primitive.def_abstract_eval(lambda x, **params: x)
    return primitive


def test_a_rule_gets_context_shapes_and_parameters():
    op, seen = operation("tripled"), []

    @register_roofline(op)
    def rule(ctx, x, *, by):
        seen.append(
            (
                ctx.primitive,
                [a.shape for a in ctx.avals_in],
                [a.shape for a in ctx.avals_out],
                ctx.mesh,
                x,
            )
        )
        return RooflineResult(flops=by * x.size)

    assert cost(lambda x: op.bind(x, by=3), X).flops == 72
    assert seen == [
        (op, [(3, 8)], [(3, 8)], None, RooflineShape(shape=(3, 8), dtype=np.dtype(np.float32)))
    ]


def test_an_operation_without_a_rule_is_named(caplog):
    op = operation("unknown_work")
    assert work(lambda x: wnp.sin(op.bind(x)), X) == (24, 192)
    assert "nothing is known of what unknown_work costs" in caplog.text
    caplog.clear()
    register_standard_roofline(op)
    assert work(op.bind, X) == (0, 0) and not caplog.text


def test_a_rule_takes_the_place_of_the_one_of_its_kind(monkeypatch):
    monkeypatch.setattr("weft.experimental.roofline.rooflines._GIVEN", {})
    register_roofline(lax.sin_p)(lambda ctx, x: RooflineResult(unfused_flops=20 * x.size))
    assert cost(wnp.sin, X).unfused_flops == 480


# ---- records


def test_results_add_up_and_repeat():
    a = RooflineResult(flops=1, ici_bytes={"x": 4}, peak_hbm_bytes=7)
    b = RooflineResult(flops=2, ici_bytes={"x": 1, "y": 3}, peak_hbm_bytes=5)
    assert a + b == RooflineResult(flops=3, ici_bytes={"x": 5, "y": 3}, peak_hbm_bytes=7)
    assert (
        1.5 * b == b * 1.5 == RooflineResult(flops=3, ici_bytes={"x": 1, "y": 4}, peak_hbm_bytes=7)
    )
    assert a + RooflineResult.zeros() == a


def test_shapes_are_of_arrays():
    assert RooflineShape.from_aval(weft.typeof(weft.random.key(0))).bytes == 8
    with pytest.raises(TypeError, match=r"expected the type of an array, a ShapedArray, got str"):
        RooflineShape.from_aval("f32[3]")


def test_the_program_can_be_printed(capsys):
    cost(wnp.sin, X, print_jaxpr=True)
    assert "sin" in capsys.readouterr().out


def test_the_function_has_the_name_of_its_module():
    import weft.experimental.roofline.roofline as module

    assert callable(module) and package.roofline is roofline
