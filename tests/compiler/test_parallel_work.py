"""Kernels and batches of matrices stay on one thread if synchronization costs more than it
saves."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.codegen.library import lapack
from weft._engine.ir.program import Launch, LibraryCall, iterate_steps
from weft._engine.util.lapack import thread_control
from weft._engine.util.machine_model import MODEL


def steps(f, *args):
    return list(iterate_steps(weft.jit(f).lower(*args).compile().stages.scheduled.program.steps))


def most_tasks(f, *args):
    return max(step.kernel.parallel_extent for step in steps(f, *args) if isinstance(step, Launch))


FUNCTIONS = {
    "elementwise": lambda x: x * 2.0 + 1.0,
    "transpose": lambda x: wnp.sin(x).T + 1.0,
    "rows": lambda x: (x * x).sum(1),
    "columns": lambda x: (x * x).sum(0),
    "softmax": lambda x: weft.nn.softmax(x),
    "in a loop": lambda x: lax.fori_loop(0, 3, lambda _, x: wnp.cos(x), x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_small_kernels_have_one_task(name):
    assert most_tasks(FUNCTIONS[name], np.ones((64, 48), np.float32)) == 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_large_kernels_share_their_work(name):
    assert most_tasks(FUNCTIONS[name], np.ones((1024, 1024), np.float32)) >= 8


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_parallel_kernels_have_tasks_to_balance(dtype):
    with weft.enable_x64(True):
        counts = {
            most_tasks(FUNCTIONS["elementwise"], np.ones(1 << n, dtype)) for n in range(8, 22)
        }
    least = MODEL.parallel_work // MODEL.task_bytes
    assert {1, MODEL.most_tasks} & counts and all(
        count == 1 or count >= least for count in counts
    ), counts


ROUTINES = {
    "cholesky": lambda a, b: wnp.linalg.cholesky(a),
    "solve_triangular": lambda a, b: weft.scipy.linalg.solve_triangular(a, b, lower=True),
    "lu": lambda a, b: lax.linalg.lu(a)[0],
}


def library_tasks(name, size, count):
    a, b = np.ones((count, size, size), np.float32), np.ones((count, size, size), np.float32)
    return max(
        lapack.tasks(step) for step in steps(ROUTINES[name], a, b) if isinstance(step, LibraryCall)
    )


@pytest.mark.skipif(
    thread_control() is None, reason="a LAPACK without threads of its own takes no locks"
)
@pytest.mark.parametrize("name", ROUTINES)
@pytest.mark.parametrize("size", [10, 14, 20])
def test_small_matrices_stay_on_one_thread(name, size):
    assert library_tasks(name, size, 100) == 1


@pytest.mark.parametrize("name", ROUTINES)
def test_large_matrices_are_shared(name):
    assert library_tasks(name, 96, 100) > 1
