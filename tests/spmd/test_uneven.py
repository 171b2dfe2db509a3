"""Dims that their axes do not divide: padded inside of programs, masked where padding would show, even at the edges."""

import numpy as np
import pytest

from tests.spmd.harness import P, check, make, random
from tests.spmd.test_halo import gradients
from weft._engine.core.trace import typeof
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ops import (
    arithmetic,
    comparison,
    functions,
    indexing,
    layout,
    reduce,
    slicing,
    sorting,
)
from weft._engine.ops.contraction import dot_general
from weft._engine.ops.dynamic_slicing import dynamic_slice, dynamic_update_slice
from weft._engine.ops.indexing import GatherDimensionNumbers, ScatterDimensionNumbers
from weft._engine.ops.placement import sharding_constraint

LINE = make(x=8)
GRID = make(a=4, b=2)
TALL = random(61, 6)


def laid(x, mesh, spec):
    return sharding_constraint(x, NamedSharding(mesh, spec))


def dot(x, y):
    return dot_general(x, y, (((0,), (0,)), ((), ())))


def total(x):
    return reduce.reduce_sum(arithmetic.mul(x, x), tuple(range(typeof(x).ndim)))


ROWS = GatherDimensionNumbers((1,), (0,), (0,))
INDEX = np.array([[3], [60], [0], [-1], [61], [63], [17]], np.int32)
LOG = lambda x: functions.log(arithmetic.abs(x))  # of padding: minus infinity

#: name -> function of a [61, 6] value whose rows are split unevenly
OPS = {
    "elementwise": lambda x: functions.sin(LOG(x)),
    "sum": lambda x: reduce.reduce_sum(LOG(x), (0,)),
    "sum of columns": lambda x: reduce.reduce_sum(LOG(x), (1,)),
    "max": lambda x: reduce.reduce_max(arithmetic.sub(np.float32(-9), arithmetic.abs(x)), (0,)),
    "min": lambda x: reduce.reduce_min(arithmetic.add(np.float32(9), arithmetic.abs(x)), (0,)),
    "product": lambda x: reduce.reduce_prod(
        arithmetic.add(arithmetic.mul(x, np.float32(0.1)), np.float32(1)), (0,)
    ),
    "any": lambda x: reduce.reduce_or(comparison.lt(x, np.float32(-9)), (0,)),
    "all": lambda x: reduce.reduce_and(comparison.ne(x, np.float32(0)), (0,)),
    "dot": lambda x: arithmetic.mul(dot(LOG(x), LOG(x)), np.float32(0.01)),
    "argmax": lambda x: reduce.argmax(
        arithmetic.sub(np.float32(-9), arithmetic.abs(x)), 0, np.int32
    ),
    "argmin": lambda x: reduce.argmin(
        arithmetic.add(np.float32(9), arithmetic.abs(x)), 0, np.int32
    ),
    "cumsum": lambda x: reduce.cumsum(x, 0),
    "cumsum, reversed": lambda x: reduce.cumsum(arithmetic.add(x, np.float32(1)), 0, True),
    "cummax, reversed": lambda x: reduce.cummax(
        arithmetic.sub(np.float32(-9), arithmetic.abs(x)), 0, True
    ),
    "top_k": lambda x: sorting.top_k(arithmetic.sub(np.float32(-9), arithmetic.abs(x)), 10, axis=0)[
        0
    ],
    "sort": lambda x: sorting.sort_p.bind(x, dimension=0, is_stable=True, num_keys=1)[0],
    "transpose": lambda x: layout.transpose(LOG(x), (1, 0)),
    "reshape": lambda x: layout.reshape(x, (61 * 6,)),
    "reshape, with ones": lambda x: layout.reshape(x, (61, 1, 6, 1)),
    "broadcast": lambda x: layout.broadcast_in_dim(x, (3, 61, 6), (1, 2)),
    "iota": lambda x: arithmetic.add(x, layout.broadcasted_iota(np.float32, (61, 6), 0)),
    "rev": lambda x: layout.rev(x, (0, 1)),
    "tail": lambda x: slicing.slice(x, (1, 0), (61, 6)),
    "head": lambda x: slicing.slice(x, (0, 0), (60, 6)),
    "difference": lambda x: arithmetic.sub(
        slicing.slice(x, (1, 0), (61, 6)), slicing.slice(x, (0, 0), (60, 6))
    ),
    "stride": lambda x: slicing.slice(x, (2, 0), (61, 6), (3, 1)),
    "few": lambda x: slicing.slice(x, (50, 0), (61, 6)),
    "pad": lambda x: slicing.pad(x, np.float32(2), [(2, 1, 0), (0, 1, 0)]),
    "pad to an even size": lambda x: slicing.pad(x, np.float32(2), [(1, 2, 0), (0, 0, 0)]),
    "cut": lambda x: slicing.pad(x, np.float32(2), [(-3, -2, 0), (0, 0, 0)]),
    "spread": lambda x: slicing.pad(x, np.float32(2), [(1, 0, 1), (0, 0, 0)]),
    "concatenate": lambda x: slicing.concatenate([x, arithmetic.neg(x), x], 0),
    "roll": lambda x: slicing.concatenate(
        [slicing.slice(x, (9, 0), (61, 6)), slicing.slice(x, (0, 0), (9, 6))], 0
    ),
    "gather": lambda x: indexing.gather(x, INDEX, ROWS, (1, 6), mode="fill"),
    "gather, clipped": lambda x: indexing.gather(x, INDEX, ROWS, (1, 6), mode="clip"),
    "scatter": lambda x: indexing.scatter_add(
        x,
        INDEX,
        np.ones((7, 6), np.float32),
        ScatterDimensionNumbers((1,), (0,), (0,)),
        mode="drop",
    ),
    "dynamic_slice": lambda x: dynamic_slice(x, (np.int32(58), np.int32(0)), (5, 6)),
    "dynamic_update_slice": lambda x: dynamic_update_slice(
        x, np.ones((5, 3), np.float32), (np.int32(58), np.int32(1))
    ),
}


@pytest.mark.parametrize(
    "mesh, spec", [(LINE, P("x")), (GRID, P(("a", "b"))), (GRID, P("a", "b")), (make(x=6), P("x"))]
)
@pytest.mark.parametrize("name", OPS)
def test_an_unevenly_split_value(name, mesh, spec):
    fun = OPS[name]
    check(lambda x: [fun(laid(functions.tanh(x), mesh, spec))], [TALL], mesh, [P()])
    check(
        lambda x: [
            functions.sin(v) if typeof(v).dtype == np.float32 else v
            for v in [fun(laid(x, mesh, spec))]
        ],
        [TALL],
        mesh,
        [P()],
    )


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 9, 17])
def test_fewer_elements_than_devices(size):
    x = random(size, 3)
    for fun in (
        lambda v: reduce.reduce_sum(v, (0,)),
        lambda v: dot(v, v),
        lambda v: reduce.cumsum(v, 0, True),
        lambda v: reduce.argmin(v, 0, np.int32),
        lambda v: slicing.pad(v, np.float32(1), [(1, 2, 0), (0, 0, 0)]),
        lambda v: slicing.concatenate([v, v], 0),
        lambda v: layout.rev(v, (0,)),
    ):
        check(lambda x, fun=fun: [fun(laid(functions.sin(x), LINE, P("x")))], [x], LINE, [P()])


def test_sums_over_uneven_dims_move_only_the_sum():
    result = check(
        lambda x: [reduce.reduce_sum(laid(functions.sin(x), LINE, P("x")), (0,))],
        [TALL],
        LINE,
        [P()],
    )
    assert result.counts == {"psum": 1} and result.records[0].shape == (6,)


def test_a_difference_of_neighbours_stays_split():
    f = lambda x: [
        total(arithmetic.sub(slicing.slice(x, (1, 0), (64, 4)), slicing.slice(x, (0, 0), (63, 4))))
    ]
    result = check(f, [random(64, 4)], LINE, [P("x")])
    assert result.counts == {"ppermute": 1, "psum": 1}
    edge, whole = result.records
    assert edge.shape == (1, 4) and edge.bytes_per_device == 16 and whole.shape == ()


def test_a_grid_with_one_point_more():
    """From 64 cells to 65 borders and back: a staggered grid."""

    def f(cells):
        borders = slicing.pad(cells, np.float32(0), [(1, 1, 0), (0, 0, 0)])
        flux = arithmetic.sub(
            slicing.slice(borders, (1, 0), (66, 4)), slicing.slice(borders, (0, 0), (65, 4))
        )
        return [
            arithmetic.sub(
                slicing.slice(flux, (1, 0), (65, 4)), slicing.slice(flux, (0, 0), (64, 4))
            )
        ]

    result = check(f, [random(64, 4)], LINE, [P("x")])
    assert "all_gather" not in result.counts and result.out_specs == (P("x").dims(2),)


@pytest.mark.parametrize("size", [2, 5, 9, 10, 14, 18])
@pytest.mark.parametrize(
    "mesh, spec", [(LINE, P("x")), (GRID, P("a")), (GRID, P(("b", "a")))], ids=["8", "4", "2x4"]
)
def test_rotations_where_devices_hold_nothing_but_padding(size, mesh, spec):
    """10 rows over 8 devices are 5 whole blocks of 2, and 3 of padding."""

    def turned(x, start):
        whole = laid(
            slicing.concatenate(
                [slicing.slice(x, (start, 0), (size, 3)), slicing.slice(x, (0, 0), (start, 3))], 0
            ),
            mesh,
            P(),
        )
        return arithmetic.mul(whole, np.float32(2))

    for start in range(1, size):
        check(
            lambda x, start=start: [turned(laid(functions.sin(x), mesh, spec), start)],
            [random(size, 3)],
            mesh,
            [P()],
        )


@pytest.mark.parametrize(
    "mesh, spec",
    [(LINE, P("x")), (make(a=2, b=3), P(("b", "a"), None)), (make(a=2, b=3), P("b", "a"))],
)
@pytest.mark.parametrize("size", [2, 4, 8, 11])
def test_results_without_elements(mesh, spec, size):
    """Operations that select rows by position accept arrays without rows."""

    def nothing(x):
        x = laid(functions.sin(x), mesh, spec)
        results = [
            slicing.slice(x, (1, 0), (1, 4), (4, 1)),
            slicing.pad(x, np.float32(0), [(1, -size - 1, 0), (0, 0, 0)]),
        ]
        return [laid(y, mesh, spec) for y in (*results, *sorting.top_k(x, 0, axis=0))]

    check(nothing, [random(size, 4)], mesh, [None])


def test_results_are_even():
    for spec, shape in [(P("x"), (61, 6)), (P(None, "x"), (6, 61))]:
        result = check(
            lambda x, spec=spec: [laid(functions.sin(x), LINE, spec)],
            [random(*shape)],
            LINE,
            [None],
        )
        assert result.out_specs == (P().dims(2),)
    result = check(
        lambda x: [laid(functions.sin(x), GRID, P(("a", "b")))], [random(12, 3)], GRID, [None]
    )
    assert result.out_specs == (P("a").dims(2),)


def test_moves_between_uneven_layouts():
    layouts = [
        P("a"),
        P("b"),
        P(("a", "b")),
        P(("b", "a")),
        P(None, "a"),
        P("a", "b"),
        P("b", "a"),
        P(None, ("b", "a")),
        P(),
    ]
    for shape in [(10, 7), (5, 3), (17, 30)]:
        for first in layouts:
            for second in layouts:
                f = lambda x, first=first, second=second: [
                    functions.sin(
                        laid(functions.cos(laid(functions.sin(x), GRID, first)), GRID, second)
                    )
                ]
                check(f, [random(*shape)], GRID, [P()])


def test_a_pending_sum_is_scattered_unevenly():
    product = lambda x, y: dot_general(x, y, (((1,), (0,)), ((), ())))
    f = lambda x, y: [total(laid(product(x, y), LINE, P("x")))]
    result = check(f, [random(21, 16), random(16, 5)], LINE, [P(None, "x"), P("x")])
    assert result.counts == {"reduce_scatter": 1, "psum": 1}


def random_program(rng, mesh):
    """A chain of operations on values whose sizes and layouts are random."""
    names = list(mesh.axis_names)

    def spec(ndim):
        axes = list(rng.permutation(names))
        return P(
            *[
                tuple(axes.pop() for _ in range(int(rng.integers(0, len(axes) + 1))))
                for _ in range(ndim)
            ]
        )

    steps = [(int(rng.integers(11)), spec(2), int(rng.integers(1, 5))) for _ in range(6)]

    def run(x):
        for kind, layout_, k in steps:
            n = typeof(x).shape[0]
            k = min(k, n - 1)
            if kind < 4:
                x = laid(x, mesh, layout_)
            elif kind == 4:
                x = arithmetic.sub(
                    slicing.slice(x, (k, 0), typeof(x).shape),
                    slicing.slice(x, (0, 0), (n - k, typeof(x).shape[1])),
                )
            elif kind == 5:
                x = slicing.pad(x, np.float32(0.5), [(k, 1, 0), (0, 0, 0)])
            elif kind == 6:
                x = slicing.concatenate(
                    [functions.sin(x), slicing.slice(x, (0, 0), (k, typeof(x).shape[1]))], 0
                )
            elif kind == 7:
                x = layout.transpose(x, (1, 0))
            elif kind == 8:
                x = functions.tanh(dot_general(x, x, (((1,), (1,)), ((), ()))))
            elif kind == 9:
                x = layout.rev(
                    reduce.cumsum(arithmetic.mul(x, np.float32(0.1)), 0, bool(k % 2)), (0,)
                )
            else:
                x = slicing.slice(x, (0, 0), typeof(x).shape, (max(1, min(k, 2)), 1))
        return [x, reduce.reduce_max(x, (0,)), total(functions.tanh(x))]

    return run


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed):
    rng = np.random.default_rng(1000 + seed)
    mesh = [LINE, GRID, make(a=2, b=3), make(a=5)][int(rng.integers(4))]
    shape = tuple(int(s) for s in rng.integers(2, 24, 2))
    program, x = random_program(rng, mesh), random(*shape, seed=seed)
    check(program, [x], mesh, [None], tolerance=1e-4)
    check(lambda v: gradients(lambda u: program(u)[2], [v]), [x], mesh, [None], tolerance=1e-3)
