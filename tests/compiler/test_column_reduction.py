"""Column sums computed by a kernel that iterates over the rows, and sums from which factors are
extracted."""

import ml_dtypes
import numpy as np
import pytest

import weft
import weft._engine.ops.elementwise as E
import weft._engine.ops.layout as L
import weft._engine.ops.reduce as R
import weft._engine.ops.slicing as S
from tests.compiler.machine import check
from tests.compiler.test_fusion import softmax, spread, staged, values
from tests.harness.tuning import tune
from weft._engine.ir.loops import For, Prefetch
from weft._engine.ir.loops_text import print_kernel
from weft._engine.ops.casting import convert_element_type

BF16 = np.dtype(ml_dtypes.bfloat16)


def centred(x):
    rows = x.ndim - 1
    mean = E.div(R.reduce_sum(x, axes=(rows,)), float(x.shape[rows]))
    return E.sub(x, spread(mean, x.shape, tuple(range(rows))))


def outer(x, combine=R.reduce_sum):
    return combine(x, axes=tuple(range(x.ndim - 1)))


def bits(x):
    return convert_element_type(E.mul(x, 100.0), np.dtype(np.int32))


def scaled(x):
    total = R.reduce_max(E.abs(x), axes=(1,))
    y = E.div(x, spread(total, x.shape, (0,)))
    return [R.reduce_sum(E.mul(y, y), axes=(1,)), total]


def softmax_gradient(x, ct):
    e = E.exp(E.sub(x, spread(R.reduce_max(x, axes=(1,)), x.shape, (0,))))
    s = spread(R.reduce_sum(e, axes=(1,)), x.shape, (0,))
    dot = R.reduce_sum(E.neg(E.mul(ct, E.div(E.div(e, s), s))), axes=(1,))
    return [E.mul(E.add(E.div(ct, s), spread(dot, x.shape, (0,))), e)]


SWEEPS = [
    # name, function, shapes, kernels: one over the rows and, where it has several parts, one that
    # adds the parts
    ("small", lambda x: [outer(centred(x))], [(30, 70)], 1),
    ("large", lambda x: [outer(centred(x))], [(512, 300)], 2),
    ("with the rows themselves", lambda x: [centred(x), outer(centred(x))], [(512, 300)], 2),
    ("rows of two dims", lambda x: [centred(x), outer(E.mul(centred(x), x))], [(16, 32, 300)], 2),
    ("greatest", lambda x: [outer(E.tanh(centred(x)), R.reduce_max)], [(256, 513)], 2),
    ("of an operand", lambda x, y: [E.mul(centred(x), y), outer(y)], [(512, 300), (512, 300)], 2),
    (
        "of what is computed from an operand",
        lambda x, y: [E.mul(centred(x), y), outer(E.mul(y, 2.0)), outer(centred(x))],
        [(512, 300), (512, 300)],
        3,
    ),
    (
        "of truths, beside truths of rows",
        lambda x: [outer(E.lt(x, 2.0), R.reduce_and), R.reduce_or(E.lt(x, -2.0), axes=(1,))],
        [(512, 300)],
        2,
    ),
    (
        "of bits, beside bits of rows",
        lambda x: [outer(bits(x), R.reduce_or), R.reduce_and(bits(x), axes=(1,))],
        [(512, 300)],
        2,
    ),
    ("over some of the rows", lambda x: [R.reduce_sum(centred(x), axes=(1,))], [(8, 40, 300)], 2),
    ("not over the outermost", lambda x: [R.reduce_sum(centred(x), axes=(0,))], [(40, 8, 300)], 3),
    ("of narrow rows", lambda x: [outer(centred(x))], [(9000, 20)], 3),
    ("of another shape", lambda x: [outer(L.reshape(centred(x), (1024, 150)))], [(512, 300)], 3),
    (
        "read by a deeper kernel",
        lambda x: [E.mul(centred(x), spread(outer(centred(x)), x.shape, (1,)))],
        [(512, 300)],
        3,
    ),
]


@pytest.mark.parametrize("name, fn, shapes, kernels", SWEEPS, ids=[c[0] for c in SWEEPS])
def test_sums_over_rows(name, fn, shapes, kernels):
    assert check(staged(fn, shapes), *values(shapes), rtol=1e-3).kernel_count == kernels


def test_what_the_loops_say():
    _, fn, shapes, kernels = SWEEPS[0]
    assert (
        check(staged(fn, shapes), *values(shapes), native=False, rtol=1e-4).kernel_count == kernels
    )


@pytest.mark.parametrize("columns", [64, 65, 79, 95, 127, 131])
def test_tails_of_rows(columns):
    shapes = [(17, columns), (17, columns)]
    check(
        staged(lambda x, y: [E.mul(centred(x), y), outer(y), outer(centred(E.exp(x)))], shapes),
        *values(shapes),
        rtol=1e-4,
    )


def test_halves_are_summed_in_float32():
    fn = lambda x: [outer(E.exp(centred(x)))]
    assert check(staged(fn, [(512, 300)], BF16), *values([(512, 300)])).kernel_count == 2


def passes(scheduled):
    return sum(
        stmt.kind == "vector"
        for k in scheduled.kernels
        for loop in k.body
        for row in loop.body
        if hasattr(row, "body")
        for stmt in row.body
        if hasattr(stmt, "kind")
    )


def test_a_sum_does_not_wait_for_its_factors():
    shapes = [(300, 501)] * 2
    assert passes(check(staged(softmax_gradient, shapes), *values(shapes), rtol=1e-5)) == 3


@pytest.mark.parametrize(
    "rows, fetches", [(1024, [False, True, False]), (512, [False, False, False])]
)
def test_the_next_row_is_fetched_while_a_row_is_worked_on(rows, fetches):
    (kernel,) = check(staged(softmax, [(rows, 300)]), *values([(rows, 300)]), rtol=1e-5).kernels
    loops = [s for s in kernel.body[0].body[-1].body if isinstance(s, For)]
    assert [any(isinstance(s, Prefetch) for s in loop.body) for loop in loops] == fetches


def test_the_pass_that_computes_most_fetches():
    def both(x):
        top = R.reduce_max(x, axes=(1,))
        return [top, R.reduce_sum(E.exp(E.sub(x, spread(top, x.shape, (0,)))), axes=(1,))]

    (kernel,) = check(staged(both, [(1024, 300)]), *values([(1024, 300)]), rtol=1e-5).kernels
    loops = [s for s in kernel.body[0].body[-1].body if isinstance(s, For)]
    assert [any(isinstance(s, Prefetch) for s in loop.body) for loop in loops] == [False, True]


@pytest.mark.parametrize("rows, fetches", [(4099, 1), (259, 0)])
def test_what_comes_into_a_window_is_fetched(rows, fetches):
    def blurred(x):
        rows = [
            S.slice_p.bind(
                x,
                start_indices=(k, 0),
                limit_indices=(x.shape[0] - 2 + k, x.shape[1]),
                strides=None,
            )
            for k in range(3)
        ]
        return [E.add(E.add(rows[0], rows[2]), E.add(rows[1], rows[1]))]

    (kernel,) = check(staged(blurred, [(rows, 67)]), *values([(rows, 67)]), rtol=1e-5).kernels
    assert print_kernel(kernel).count("prefetch") == fetches


@pytest.mark.parametrize(
    "rows, reduce, fetches",
    [(4099, R.reduce_max, 1), (4099, R.reduce_sum, 0), (259, R.reduce_max, 0)],
)
def test_what_is_reduced_to_its_extremes_is_fetched(rows, reduce, fetches):
    shapes = [(rows, 515)]
    (kernel,) = check(
        staged(lambda x: [reduce(x, axes=(1,))], shapes), *values(shapes), rtol=1e-3
    ).kernels
    assert print_kernel(kernel).count("prefetch") == fetches


def test_parts_put_together_otherwise_are_no_window():
    def turned(x):
        cut = lambda a, b: S.slice_p.bind(x, start_indices=(a,), limit_indices=(b,), strides=None)
        return [S.concatenate([cut(1 << 20, 1 << 21), cut(0, 1 << 20)], 0)]

    (kernel,) = check(staged(turned, [(1 << 21,)]), *values([(1 << 21,)])).kernels
    assert "prefetch" not in print_kernel(kernel)


@pytest.mark.parametrize(
    "function, count, rows, fetches",
    [
        (lambda x: [E.exp(x)], 1, 4099, 1),
        (lambda x: [E.exp(x)], 1, 259, 0),
        (lambda x, y: [E.add(x, y)], 2, 4099, 0),
    ],
)
def test_the_only_stream_of_what_goes_past_the_caches_is_fetched(
    function, count, rows, fetches, monkeypatch
):
    tune(monkeypatch, stream_bytes=1 << 20)
    shapes = [(rows, 67)] * count
    (kernel,) = check(staged(function, shapes), *values(shapes), rtol=1e-5).kernels
    assert print_kernel(kernel).count("prefetch") == fetches


@pytest.mark.parametrize("rows, fetches", [(2048, True), (64, False)])
def test_lines_of_tiles_that_near_caches_lack_are_fetched(rows, fetches):
    shapes = [(rows, 128), (128, rows)]
    (kernel,) = check(
        staged(lambda x, y: [E.add(L.transpose(x, permutation=(1, 0)), y)], shapes), *values(shapes)
    ).kernels
    assert ("prefetch x0" in print_kernel(kernel)) is fetches


@pytest.mark.parametrize("columns", [256, 2048])
def test_rows_that_follow_on_each_other_are_not_fetched(columns):
    shape = (1 << 19) // columns, columns
    first = check(staged(lambda x: [outer(x)], [shape]), *values([shape]), rtol=1e-3).kernels[0]
    assert "prefetch" not in print_kernel(first)


def test_rows_of_narrow_strips_are_prefetched():
    x = np.zeros((4096, 4096), np.float32)
    (kernel,) = weft.jit(lambda x: x / x.sum(0)).lower(x).compile().stages.scheduled.kernels
    assert [part.count("prefetch") for part in print_kernel(kernel).split("serial")[1:]] == [8, 1]


def test_squares_of_scaled_values_stay_scaled():
    x = (values([(300, 501)])[0] * np.float32(1e25)).astype("f4")
    check(staged(scaled, [x.shape]), x, rtol=1e-5)
