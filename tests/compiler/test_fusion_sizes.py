"""The size of kernels is bounded, whatever movements of elements are inlined, and values are the
same."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.machine import check
from weft import lax, nn
from weft._engine.compiler.fusion import groups
from weft._engine.compiler.fusion.fuse import Fusion
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.compiler.schedule.schedule import schedule
from weft._engine.ir.loops_text import print_kernel


def values(*shape):
    return np.sin(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)


def joined(x):
    return wnp.repeat(wnp.concatenate([x, 2 * x, -x], 0), 2, 0)


def scan_gradient(x):
    """Each level of the scan adds pairs of rows of a repeated concatenation."""
    return weft.grad(lambda x: wnp.sum(wnp.sin(lax.associative_scan(wnp.add, joined(x)))))(x)


def pair_sums(x):
    return functools.reduce(lambda y, _: y[::2] + y[1::2], range(7), joined(x))


def padded_pair_sums(x):
    for _ in range(7):
        x = wnp.pad(x, ((1, 1), (0, 0)))
        x = x[:-2] + x[2:]
    return x


def phase_sums(x, count):
    """Return results of one shape, each a sum of rows of a repeated concatenation."""
    x = joined(x)
    rows = x.shape[0] - 16 * count
    return [
        functools.reduce(wnp.add, [x[i : rows + i : 16] for i in range(16 * j, 16 * j + 16)])
        for j in range(count)
    ]


def kernel_sizes(function, x):
    """Return the number of operations of each kernel."""
    kernels = schedule(simplify(weft.make_jaxpr(function)(x))).kernels
    return [len(re.findall(r"\w+\.\w+\(", print_kernel(kernel))) for kernel in kernels]


def group_sizes(function, *args):
    """Return the number of results of each kernel."""
    items = Fusion(simplify(weft.make_jaxpr(function)(*args))).items
    return [len(item.roots) for item in items if isinstance(item, groups.KernelGroup)]


LARGEST = 1000
PROGRAMS = {
    "scan gradient": (scan_gradient, values(256, 5)),
    "pair sums": (pair_sums, values(256, 5)),
    "padded pair sums": (padded_pair_sums, values(256, 5)),
    "phase sums": (lambda x: phase_sums(x, 12), values(200, 3)),
}


@pytest.mark.parametrize("function, x", PROGRAMS.values(), ids=PROGRAMS)
def test_kernels_are_small_and_correct(function, x):
    check(weft.make_jaxpr(function)(x), x, native=False)
    assert 60 < max(kernel_sizes(function, x)) < LARGEST


def test_code_of_a_scan_gradient_grows_with_its_depth():
    small, large = (kernel_sizes(scan_gradient, values(n, 5)) for n in (64, 1024))
    assert sum(large) < 2 * sum(small) and len(large) < 2 * len(small)  # 14 levels for 10


def test_results_with_much_code_have_several_kernels():
    assert group_sizes(lambda x: phase_sums(x, 12), values(400, 6)) == [5, 5, 2]


def test_a_full_kernel_is_followed_by_another():
    results = lambda x: [x * float(k + 2) for k in range(3 * groups.MOST_ROOTS)]
    assert group_sizes(results, values(8, 8)) == [groups.MOST_ROOTS] * 3


def softmax(x, times):
    for _ in range(times):  # each step reads its input three times, at one position
        x = nn.softmax(x, axis=1)
    return x


def test_values_read_at_one_position_count_once():
    x, counts = values(64, 32), []
    for times in range(1, 5):
        fusion = Fusion(simplify(weft.make_jaxpr(functools.partial(softmax, times=times))(x)))
        assert len(fusion.items) == 1
        counts.append(fusion.statement_count(*fusion.jaxpr.outvars))
    assert len(set(np.diff(counts))) == 1
