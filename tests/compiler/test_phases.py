"""Rows of a turn that are computed in ways of their own: gradients of pools and of what is strided."""

import numpy as np
import pytest

import weft.ops.elementwise as E
import weft.ops.slicing as S
from tests.compiler.machine import check
from tests.compiler.test_fusion import staged, values
from weft.ir.loops_text import print_kernel


def strided(x, dim, first, step):
    limits = [n if d != dim else first + (n - step) // step * step + 1 for d, n in enumerate(x.shape)]
    return S.slice_p.bind(x, start_indices=tuple([first * (d == dim) for d in range(x.ndim)]), limit_indices=tuple(limits),
                          strides=tuple([step if d == dim else 1 for d in range(x.ndim)]))


def put_back(x, dim, first, step):
    config = [(first, step - 1 - first, step - 1) if d == dim else (0, 0, 0) for d in range(x.ndim)]
    return S.pad(x, np.float32(0), config)


def pool_gradient(x, dims, width):
    """The gradient of the sum of squares of the largest of each window, which goes to the first of equal ones."""
    if not dims:
        return E.mul(x, 2.0)
    parts = [strided(x, dims[0], k, width) for k in range(width)]
    best = parts[0]
    for part in parts[1:]:
        best = E.max(best, part)
    rest, total, zero = pool_gradient(best, dims[1:], width), None, E.mul(best, 0.0)
    for k, part in enumerate(parts):
        here = E.eq(part, best)
        mine = put_back(E.select_n(here, zero, rest), dims[0], k, width)
        rest = E.select_n(here, rest, zero)
        total = mine if total is None else E.add(total, mine)
    return total


POOLS = [
    # shape, dims, width, kernels
    ((4, 8, 12, 32), (2, 1), 2, 1), ((4, 9, 12, 17), (2, 1), 3, 2), ((2, 8, 16, 70), (1, 2), 4, 3), ((6, 40), (0,), 2, 1),
    ((2, 4, 4, 6, 16), (3, 2, 1), 2, 2), ((3, 8, 8, 8), (2, 1), 2, 3),
]


@pytest.mark.parametrize("shape, dims, width, kernels", POOLS, ids=[str(case[0]) for case in POOLS])
@pytest.mark.parametrize("native", [True, False])
def test_a_pool_and_its_gradient(shape, dims, width, kernels, native):
    x = np.round(values([shape])[0] * 2)        # many are equal
    found = check(staged(lambda x: [pool_gradient(x, dims, width)], [shape]), x, native=native)
    assert found.kernel_count == kernels
    if kernels == 1:
        assert " ? " not in print_kernel(found.kernels[0])      # nothing is left to ask of a row


def test_rows_that_do_not_end_with_a_turn():
    padded = lambda x: [S.pad(E.exp(x), np.float32(1), [(1, 3, 1), (0, 0, 0)])]
    for rows in (5, 6, 7):
        check(staged(padded, [(rows, 33)]), *values([(rows, 33)]), rtol=1e-6)


@pytest.mark.parametrize("columns", [*range(16, 34), 63, 64, 65, 70])
def test_tails_of_rows(columns):
    check(staged(lambda x: [pool_gradient(x, (0,), 2)], [(10, columns)]), *values([(10, columns)]))


def test_all_rows_of_a_large_array_are_shared_out():
    shape = (64, 64, 64, 16)
    found = check(staged(lambda x: [pool_gradient(x, (2, 1), 2)], [shape]), *values([shape]))
    assert found.kernels[0].parallel_extent > 1 and found.kernel_count == 1
