"""First calls run drafts, which are optimized when a program is called again: bits, time, and
replacement."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.harness.tuning import tune
from weft import lax, nn
from weft._engine import hooks
from weft._engine.codegen.gemm import gemm
from weft._engine.codegen.library import fft, sort
from weft._engine.codegen.program import program, tiered_compilation
from weft._engine.codegen.toolchain import loader
from weft._engine.runtime.executable import Executable
from weft._engine.util import cache

PATIENCE_S = 60


@pytest.fixture(autouse=True)
def nothing_compiled(tmp_path, monkeypatch):
    """Use no code in memory or on disk, as in a new process on a new machine."""
    # What an earlier test has optimized would be linked afterwards, without its objects in this cache.
    assert tiered_compilation._idle.wait(PATIENCE_S)
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(program, "_kernels", {})
    monkeypatch.setattr(program, "_drafts", {})
    linked = [
        (routines, name)
        for routines in (sort.ROUTINES, fft.ROUTINES)
        for name in ("_addresses", "_linked")
    ]
    for place, name in (*linked, (gemm, "_linked_matmuls"), (gemm, "_drafts")):
        monkeypatch.setattr(place, name, {})
    before = weft.config.verify
    weft.config.update("verify", False)  # else programs are not kept on disk
    yield
    weft.config.update("verify", before)


@pytest.fixture
def compiled_programs(monkeypatch):
    """Record the created executables."""
    executables: list[Executable] = []
    monkeypatch.setattr(hooks, "after_compilation", [executables.append])
    return executables


def optimized(executable: Executable) -> bool:
    """Return whether a draft was replaced within the time limit."""
    end = time.monotonic() + PATIENCE_S
    while executable.loaded.native.draft is not None and time.monotonic() < end:
        time.sleep(0.005)
    return executable.loaded.native.draft is None


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


FUNCTIONS = {
    "sin": wnp.sin,
    "log": lambda x: wnp.log(wnp.abs(x) + 1),
    "pow": lambda x: wnp.abs(x) ** 1.7,
    "erf": lax.erf,
    "gelu": nn.gelu,
    "softmax": nn.softmax,
    "sum": lambda x: x.sum(0),
    "sum all": wnp.sum,
    "variance": lambda x: x.var(1),
    "running": lambda x: wnp.cumsum(x, 1),
    "contracts nothing": lambda x: x * x + x * 3 - x * x * x,
    "complex": lambda x: wnp.abs((x + 1j * x) * (x - 2j)),
    "halves": lambda x: nn.silu(x.astype("bfloat16")),
    "gradient": weft.grad(lambda x: wnp.sum(wnp.tanh(x) * wnp.sin(x * x))),
    "tail": lambda x: wnp.tanh(x @ x.T),
    "matrix by vector": lambda x: x @ x[0],
    "complex matmul": lambda x: wnp.abs((x + 1j * x) @ (x.T - 1j)),
    "halves, turned": lambda x: x.astype("bfloat16").T @ x.astype("bfloat16"),
    "bytes": lambda x: x.astype("int8").T @ x.astype("int8"),
    "a few turns of a loop": lambda x: lax.fori_loop(0, 3, lambda i, y: wnp.tanh(y @ y), x[:71]),
    "sort": lambda x: wnp.sort(x, 1),
    "order": lambda x: wnp.argsort(x, 1),
    "greatest": lambda x: lax.top_k(x, 3)[0],
    "transform": lambda x: wnp.fft.rfft(x[:, :66]),
    "transform of an odd length": lambda x: wnp.fft.fft(x[:, :69]),
    "transform of columns": wnp.fft.ifft2,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_draft_gives_the_same_bits(name, compiled_programs):
    fun = weft.jit(FUNCTIONS[name])
    x = wnp.asarray(values(97, 71))
    first = np.asarray(fun(x))
    assert compiled_programs[-1].loaded.native.draft is not None
    fun(x)
    assert optimized(compiled_programs[-1])
    for _ in range(3):
        assert np.asarray(fun(x)).tobytes() == first.tobytes()


def test_one_call_has_nothing_optimized(compiled_programs):
    fun, x = weft.jit(lambda x: wnp.sin(x) + 1), wnp.asarray(values(300))
    fun(x)
    assert (
        not tiered_compilation._waiting
        and not program._kernels
        and compiled_programs[-1].loaded.native.draft is not None
    )
    fun(x)
    assert optimized(compiled_programs[-1]) and program._kernels


def test_native_entries_go_to_the_new_code(compiled_programs):
    fun, x = weft.jit(lambda x: wnp.sin(x) + 2), wnp.asarray(values(300))
    expected = np.asarray(fun(x))
    old = compiled_programs[-1].loaded.native.entry
    for _ in range(50):
        fun(x)
    assert optimized(compiled_programs[-1]) and compiled_programs[-1].loaded.native.entry != old
    fun(x)
    assert {entry.words[4] for entry in fun._entries.values()} <= {
        compiled_programs[-1].loaded.native.entry
    }
    np.testing.assert_array_equal(fun(x), expected)


@pytest.mark.parametrize(
    "name,fun",
    [
        ("many turns of a loop", lambda x: lax.fori_loop(0, 5000, lambda i, y: wnp.tanh(y @ y), x)),
        (
            "unknown",
            lambda x: lax.while_loop(lambda y: y[0, 0] < 1, lambda y: wnp.tanh(y @ y), x),
        ),
        (
            "in a branch",
            lambda x: lax.cond(
                x[0, 0] > 0,
                lambda x: lax.while_loop(lambda y: y[0, 0] < 1, lambda y: wnp.tanh(y @ y), x),
                lambda x: x,
                x,
            ),
        ),
        ("few turns", lambda x: wnp.sin(x[0, :3])),
        (
            "calls Python",
            lambda x: wnp.sin(
                weft.pure_callback(lambda x: x, weft.ShapeDtypeStruct((71, 71), "float32"), x)
            ),
        ),
    ],
)
def test_what_runs_long_or_is_small_has_no_draft(name, fun, compiled_programs):
    weft.jit(fun).lower(wnp.asarray(values(71, 71))).compile()
    assert compiled_programs[-1].loaded.native.draft is None


def test_large_kernels_have_no_draft(compiled_programs, monkeypatch):
    tune(monkeypatch, draft_iterations=1000)
    tune(monkeypatch, draft_sort_elements=1000)
    weft.jit(lambda x: wnp.sin(x) * 3)(wnp.asarray(values(1001)))
    assert compiled_programs[-1].loaded.native.draft is None
    weft.jit(wnp.sort)(wnp.asarray(values(1001)))
    assert compiled_programs[-1].loaded.native.draft is None
    tune(monkeypatch, draft_fft_elements=1000)
    weft.jit(wnp.fft.rfft)(wnp.asarray(values(1000)))
    assert compiled_programs[-1].loaded.native.draft is not None
    weft.jit(wnp.fft.rfft)(wnp.asarray(values(2, 1000)))
    assert compiled_programs[-1].loaded.native.draft is None


def test_a_kernel_that_is_optimized_serves_later_programs(compiled_programs):
    x = wnp.asarray(values(300))
    for _ in range(2):
        fun = weft.jit(lambda x: wnp.sin(x) + 4)
        fun(x), fun(x)
        assert optimized(compiled_programs[-1])
    weft.jit(lambda x: wnp.sin(x) + 4)(x)
    assert compiled_programs[-1].loaded.native.draft is None


@pytest.mark.skipif(not loader.supports_machine(), reason="programs on disk want our linker")
def test_drafts_stay_on_disk_until_optimized(compiled_programs, monkeypatch):
    monkeypatch.setattr(tiered_compilation, "FROM_DISK_S", 0.0)
    x = wnp.asarray(values(300))
    kinds = []
    for calls in (1, 1, 2, 1):
        fun = weft.jit(lambda x: wnp.sin(x) + 5)
        results = [np.asarray(fun(x)) for _ in range(calls)]
        kinds.append(compiled_programs[-1].loaded.native.draft is not None)
        assert calls == 1 or optimized(compiled_programs[-1])
        np.testing.assert_allclose(results[-1], np.sin(values(300)) + 5, rtol=1e-6)
        assert tiered_compilation._idle.wait(PATIENCE_S)  # until it has written its program
        cache.flush()
        weft.clear_caches()
    assert kinds[0] and kinds[1] and not kinds[3]


def test_what_cannot_be_optimized_stays_a_draft(compiled_programs, monkeypatch):
    def fail(*args):
        raise MemoryError

    monkeypatch.setattr(program, "improve", fail)
    fun, x = weft.jit(lambda x: wnp.sin(x) + 6), wnp.asarray(values(300))
    results = [np.asarray(fun(x)) for _ in range(9)]
    assert (
        tiered_compilation._idle.wait(PATIENCE_S)
        and compiled_programs[-1].loaded.native.draft is not None
    )
    assert all(r.tobytes() == results[0].tobytes() for r in (*results, np.asarray(fun(x))))


def test_many_threads_have_a_program_optimized_once():
    asked, answers = [], []

    def give():
        asked.append(1)
        raise MemoryError

    draft = tiered_compilation.Draft(give)
    draft.then.append(answers.append)
    draft.note_call()
    barrier = threading.Barrier(8)
    improve = tiered_compilation._schedule_optimization
    threads = [
        threading.Thread(target=lambda: (barrier.wait(), draft.note_call(), improve(draft, 0.0)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (
        tiered_compilation._idle.wait(PATIENCE_S)
        and asked == [1]
        and not answers
        and not draft.then
    )


def test_process_exit_does_not_wait_for_code_generation():
    code = """
import threading, time
from weft._engine.codegen.program import tiered_compilation
begun = threading.Event()
def never():
    begun.set()
    while True:
        time.sleep(0.001)
draft = tiered_compilation.Draft(never)
draft.note_call(), draft.note_call()
begun.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0 and not done.stderr


ENDING = """
import os, sys, time
import numpy as np
import weft, weft.numpy as wnp
x = wnp.asarray(np.ones(3000, np.float32))
funs = [weft.jit(lambda x, k=k: wnp.sin(x) * k + wnp.cos(x)) for k in range(6)]
for fun in funs * 2:
    fun(x)
time.sleep(float(sys.argv[1]))
if sys.argv[2] == "fork":
    child = os.fork()
    for fun in funs * 3:
        assert float(fun(x)[0]) == float(fun(x)[1])
    if not child:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
print(float(funs[1](x)[0]))
"""


@pytest.mark.parametrize("wait", [0, 0.03, 0.06, 0.1])
@pytest.mark.parametrize("way", ["end", "fork"])
def test_processes_end_and_fork_while_a_draft_is_optimized(tmp_path, wait, way):
    env = dict(os.environ, WEFT_CACHE_DIR=str(tmp_path))
    command = [sys.executable, "-W", "ignore", "-c", ENDING, str(wait), way]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(np.sin(1) + np.cos(1), rel=1e-6)
