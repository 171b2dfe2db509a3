"""Elements computed together in one loop iteration: gradients of pooling and of strided values."""

import itertools
import re

import numpy as np
import pytest

import weft._engine.ops.elementwise as E
import weft._engine.ops.layout as L
import weft._engine.ops.reduce as R
import weft._engine.ops.slicing as S
from tests.compiler.machine import check
from tests.compiler.test_fusion import staged, values
from weft._engine.ir.loops import For, Interleave
from weft._engine.ir.loops_text import print_kernel


def strided(x, dim, first, step):
    limits = [
        n if d != dim else first + (n - step) // step * step + 1 for d, n in enumerate(x.shape)
    ]
    return S.slice_p.bind(
        x,
        start_indices=tuple([first * (d == dim) for d in range(x.ndim)]),
        limit_indices=tuple(limits),
        strides=tuple([step if d == dim else 1 for d in range(x.ndim)]),
    )


def put_back(x, dim, first, step):
    config = [(first, step - 1 - first, step - 1) if d == dim else (0, 0, 0) for d in range(x.ndim)]
    return S.pad(x, np.float32(0), config)


def pool_gradient(x, dims, width):
    """Return the gradient of the sum of squares of the window maxima; among equal elements the
    first gets it."""
    if not dims:
        return E.mul(x, 2.0)
    parts = [strided(x, dims[0], k, width) for k in range(width)]
    best = parts[0]
    for part in parts[1:]:
        best = E.max(best, part)
    gradient, total, zero = pool_gradient(best, dims[1:], width), None, E.mul(best, 0.0)
    for k, part in enumerate(parts):
        here = E.eq(part, best)
        mine = put_back(E.select_n(here, zero, gradient), dims[0], k, width)
        gradient = E.select_n(here, gradient, zero)
        total = mine if total is None else E.add(total, mine)
    return total


POOLS = [
    # shape, dims, width, kernels
    ((4, 8, 12, 32), (2, 1), 2, 1),
    ((4, 9, 12, 17), (2, 1), 3, 1),
    ((2, 8, 16, 70), (1, 2), 4, 1),
    ((6, 40), (0,), 2, 1),
    ((2, 4, 4, 6, 16), (3, 2, 1), 2, 1),
    ((3, 8, 8, 8), (2, 1), 2, 3),
    ((1000,), (0,), 2, 1),
    ((1000,), (0,), 5, 1),
    ((5, 96), (1,), 3, 1),
    ((4, 8, 64), (1, 2), 2, 1),
    ((2, 12, 96), (2, 1), 3, 1),
    ((3, 64, 1), (1,), 2, 1),
    ((9 * 32,), (0,), 9, 2),  # (nine elements per row are too many)
]


@pytest.mark.parametrize("shape, dims, width, kernels", POOLS, ids=[str(case[0]) for case in POOLS])
@pytest.mark.parametrize("native", [True, False])
def test_a_pool_and_its_gradient(shape, dims, width, kernels, native):
    x = np.round(values([shape])[0] * 2)  # many are equal
    scheduled = check(staged(lambda x: [pool_gradient(x, dims, width)], [shape]), x, native=native)
    assert scheduled.kernel_count == kernels
    if kernels == 1:
        assert " ? " not in print_kernel(scheduled.kernels[0])  # no guards remain in a row


def test_rows_that_do_not_end_with_a_turn():
    padded = lambda x: [S.pad(E.exp(x), np.float32(1), [(1, 3, 1), (0, 0, 0)])]
    for rows in (5, 6, 7):
        check(staged(padded, [(rows, 33)]), *values([(rows, 33)]), rtol=1e-6)


def sum_of_windows(x, steps, reach, post):
    """Return each window element times the window sum, accumulated at the position of the element.
    Windows are `steps` apart."""
    total, whole, parts = None, None, []
    for first in itertools.product(*[range(n) for n in reach]):
        limits = [n - (r - 1 - a) for n, r, a in zip(x.shape, reach, first)]
        part = S.slice_p.bind(
            x, start_indices=first, limit_indices=tuple(limits), strides=tuple(steps)
        )
        parts.append((first, part))
        whole = part if whole is None else E.add(whole, part)
    for first, part in parts:
        config = [
            (a, n - a - (m - 1) * s - 1, s - 1)
            for n, m, a, s in zip(x.shape, part.shape, first, steps)
        ]
        padded = S.pad(E.mul(part, whole), np.float32(0), config)
        total = padded if total is None else E.add(total, padded)
    return post(total)


AFTER = {
    "nothing": lambda x: x,
    "one more": lambda x: E.exp(x),
    "the other way": lambda x: L.rev(x, (x.ndim - 1,)),
    "a sum": lambda x: R.reduce_sum(x, (x.ndim - 1,)),
}


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    "shape, steps, reach",
    [
        ((67,), (2,), (5,)),
        ((200,), (3,), (4,)),
        ((101,), (2,), (2,)),
        ((70,), (4,), (9,)),
        ((70,), (1,), (3,)),
        ((7, 67), (2, 2), (3, 3)),
        ((6, 40), (1, 2), (1, 3)),
        ((7, 40), (3, 1), (4, 2)),
        ((5, 9, 35), (2, 2, 1), (3, 2, 1)),
        ((3, 7, 67), (1, 2, 2), (1, 3, 2)),
        ((2, 5, 5, 33), (1, 3, 2, 2), (1, 2, 2, 2)),
    ],
)
def test_windows_that_lie_over_one_another(shape, steps, reach, after, native):
    x = values([shape])[0]
    scheduled = check(
        staged(lambda x: [sum_of_windows(x, steps, reach, AFTER[after])], [shape]),
        x,
        native=native,
        rtol=2e-5,
    )
    if after == "nothing":
        assert scheduled.kernel_count == 1 and scheduled.program.arena_bytes == 0


def test_long_rows_ask_nothing_but_where_they_begin_and_end():
    n = 1 << 19
    scheduled = check(
        staged(lambda x: [sum_of_windows(x, (2,), (5,), AFTER["nothing"])], [(n,)]),
        values([(n,)])[0],
        rtol=2e-5,
    )
    begin, inner, *_ = print_kernel(scheduled.kernels[0]).split("vector j")[2:]
    assert " ? " in begin and " ? " not in inner and "select" not in inner


def test_short_rows_keep_their_guards_only_where_the_array_ends():
    """One element is read under several guards; without guards it is read once."""
    scheduled = check(
        staged(lambda x: [sum_of_windows(x, (1, 2, 2), (1, 3, 3), AFTER["nothing"])], [(3, 9, 67)]),
        values([(3, 9, 67)])[0],
        rtol=2e-5,
    )
    bare, guarded, *_ = print_kernel(scheduled.kernels[0]).split("vector j")[1:]
    assert " ? " not in bare and " ? " in guarded
    assert (
        len({*re.findall(r"x0\[[^]]*]", bare)}) == bare.count("x0[") == 5 * 5
    )  # the elements in all four windows


def test_what_counts_on_zeros_gets_them_without_guards():
    """Windows of a reversed array: guarded elements are read backwards, and zero is added where
    there are none."""
    shape = (13, 57)
    pads = lambda x: [
        L.rev(
            E.add(
                S.pad(x, np.float32(0), [(0, 0, 0), (3, 0, 0)]),
                S.pad(x, np.float32(0), [(0, 0, 0), (0, 3, 0)]),
            ),
            (1,),
        )
    ]
    check(staged(pads, [shape]), *values([shape]))


def test_lanes_go_along_another_dim_than_turns():
    """A transposed result is interleaved in rows, and vector lanes run along columns."""
    parts = lambda x: [
        L.transpose(
            E.add(
                S.pad(E.exp(x), np.float32(0), [(6, 7, 1), (2, 0, 0)]),
                S.pad(E.sin(x), np.float32(0), [(3, 10, 1), (2, 0, 0)]),
            ),
            (1, 0),
        )
    ]
    check(staged(parts, [(20, 14)]), *values([(20, 14)]), rtol=1e-6)


@pytest.mark.parametrize("dims", [(2,), (0, 1), (0, 1, 2)])
def test_sums_read_what_turns_have_stored(dims):
    """A kernel that iterates over rows is not unrolled, because it would recompute the windows for
    each element."""
    shape = (6, 12, 40)
    scheduled = check(
        staged(lambda x: [R.reduce_sum(pool_gradient(x, (2, 1), 2), dims)], [shape]),
        *values([shape]),
        rtol=1e-4,
    )
    assert "interleave" in print_kernel(scheduled.kernels[0]) and scheduled.kernel_count == 2


def test_what_goes_over_rows_reads_what_turns_have_stored():
    shape = (6, 12, 40)
    norm = lambda x: [
        (lambda r, s: E.mul(r, L.broadcast_in_dim(s, shape, (0, 1))))(
            pool_gradient(x, (2, 1), 2), R.reduce_sum(x, (2,))
        )
    ]
    scheduled = check(staged(norm, [shape]), *values([shape]), rtol=1e-4)
    assert "interleave" in print_kernel(scheduled.kernels[0])


@pytest.mark.parametrize("dims, width", [((2, 1), 5), ((1, 2), 8), ((0, 1, 2), 3), ((2,), 12)])
def test_wide_windows_are_stored_in_parts(dims, width):
    """The code of an iteration grows with the window: LLVM took 28 s for one of 8 x 8."""
    shape = (15, 40, 48)
    shape = tuple([n // width * width for n in shape])
    scheduled = check(staged(lambda x: [pool_gradient(x, dims, width)], [shape]), *values([shape]))
    assert (
        scheduled.kernel_count > 1
        and max([len(print_kernel(kernel)) for kernel in scheduled.kernels]) < 40_000
    )


@pytest.mark.parametrize("columns", [*range(16, 34), 63, 64, 65, 70])
def test_tails_of_rows(columns):
    check(staged(lambda x: [pool_gradient(x, (0,), 2)], [(10, columns)]), *values([(10, columns)]))


@pytest.mark.parametrize("count", [*range(32, 70, 3), 127, 128, 129])
@pytest.mark.parametrize("step", [2, 3, 4])
def test_tails_of_what_lies_between(count, step):
    n = count * step // 2
    check(
        staged(lambda x: [sum_of_windows(x, (step,), (step,), AFTER["nothing"])], [(n,)]),
        *values([(n,)]),
        rtol=2e-5,
    )


def test_all_rows_of_a_large_array_are_shared_out():
    shape = (64, 64, 64, 16)
    scheduled = check(staged(lambda x: [pool_gradient(x, (2, 1), 2)], [shape]), *values([shape]))
    assert scheduled.kernels[0].parallel_extent > 1 and scheduled.kernel_count == 1


def stepped(x, y, dims, width):
    return E.sub(x, E.mul(pool_gradient(y, dims, width), np.float32(0.1)))


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    "shape, dims, width",
    [((4, 8, 12, 32), (2, 1), 2), ((6, 400), (1,), 2), ((402,), (0,), 3), ((5, 12, 66), (2, 1), 3)],
)
def test_a_turn_overwrites_what_it_has_read(shape, dims, width, native):
    """A step of gradient descent writes its parameters in place, although an iteration reads
    several of their elements."""
    x, y = values([shape, shape])
    other = check(
        staged(lambda x, y: [stepped(x, y, dims, width)], [shape, shape]),
        x,
        y,
        native=native,
        donated=(0,),
        rtol=1e-6,
    )
    same = check(
        staged(lambda x: [stepped(x, x, dims, width)], [shape]),
        x,
        native=native,
        donated=(0,),
        rtol=1e-6,
    )
    assert other.aliases == same.aliases == {0: 0}


@pytest.mark.parametrize("native", [True, False])
def test_a_turn_that_others_read_from_overwrites_nothing(native):
    """With overlapping windows, an iteration reads elements that the previous one has written."""
    step = lambda x: [E.sub(x, sum_of_windows(x, (2,), (3,), AFTER["nothing"]))]
    assert not check(
        staged(step, [(401,)]), *values([(401,)]), native=native, donated=(0,), rtol=2e-5
    ).aliases
    short = lambda x, row: [E.mul(x, L.broadcast_in_dim(row, (300, 3), (1,)))]
    assert check(
        staged(short, [(300, 3), (3,)]), *values([(300, 3), (3,)]), native=native, donated=(0,)
    ).aliases == {0: 0}


def rows_stored_together(stmts):
    """Return the number of values that each statement stores together."""
    nested = [n for stmt in stmts if isinstance(stmt, For) for n in rows_stored_together(stmt.body)]
    return [len(stmt.values) for stmt in stmts if isinstance(stmt, Interleave)] + nested


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    "lead, m, n, adjacent",
    [
        ((300,), 2, 2, 4),
        ((301,), 3, 4, 12),
        ((300,), 4, 4, 16),
        ((300,), 8, 2, 16),
        ((7, 40), 2, 3, 6),
        ((40, 2), 2, 3, 6),
        ((300,), 5, 4, 0),
        ((300,), 1, 3, 3),
        ((15,), 2, 2, 0),
    ],
)
def test_short_inner_dims_are_stored_together(lead, m, n, adjacent, native):
    """Outer products along the last dims: an iteration stores all elements of one product, up to a
    limit."""
    k = len(lead)
    spread = lambda x, dim: L.broadcast_in_dim(x, (*lead, m, n), (*range(k), dim))
    outer = lambda a, b: [E.mul(spread(a, k), spread(b, k + 1))]
    shapes = [(*lead, m), (*lead, n)]
    (kernel,) = check(staged(outer, shapes), *values(shapes), native=native).kernels
    assert rows_stored_together(kernel.body) == ([adjacent] if adjacent else [])
