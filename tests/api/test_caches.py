"""The caches of traces and programs: hits, sharing, and memory freed when they are cleared."""

from __future__ import annotations

import functools
import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine import hooks
from weft._engine.api.calls import call_cache
from weft._engine.runtime.array import Array
from weft.sharding import NamedSharding, PartitionSpec as P


@pytest.fixture
def program_names(monkeypatch):
    """Return the names of the compiled programs."""
    names: list[str] = []
    monkeypatch.setattr(
        hooks, "after_compilation", [lambda executable: names.append(executable.name)]
    )
    return names


def counted(traces):
    def g(x, n=2):
        traces.append(n)
        return x * n

    return g


def rows():
    return NamedSharding(weft.make_mesh((8,), ("i",)), P("i"))


#: parameters of jit, newly created by each call
PARAMETERS = {
    "none": dict,
    "static number": lambda: {"static_argnums": 1},
    "static list": lambda: {"static_argnums": [1]},
    "static names": lambda: {"static_argnames": ["n"]},
    "donated": lambda: {"donate_argnums": (0,)},
    "shardings": lambda: {"in_shardings": [rows()], "out_shardings": rows()},
    "kept": lambda: {"keep_unused": True},
    "backend": lambda: {"backend": "reference"},
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_jits_of_one_function_share_traces_and_programs(name, program_names):
    traces: list = []
    g = counted(traces)
    for i in range(5):
        assert weft.jit(g, **PARAMETERS[name]())(wnp.arange(8.0) + i).tolist() == [
            2.0 * (i + k) for k in range(8)
        ]
    assert len(traces) == 1 and program_names.count("jit(g)") == 1


def test_jits_with_other_parameters_or_functions_share_nothing(program_names):
    traces: list = []
    for make in PARAMETERS.values():
        for g in (counted(traces), counted(traces)):
            weft.jit(g, **make())(wnp.arange(8.0))
    assert len(traces) == 2 * len(PARAMETERS)
    g, again = counted(traces), counted(traces)
    assert (
        weft.jit(functools.partial(g, n=3))(1.0) == 3
        and weft.jit(functools.partial(g, n=4))(1.0) == 4
    )
    wrapped = functools.wraps(g)(lambda x: again(x, 7))
    assert weft.jit(g)(1.0) == 2 and weft.jit(wrapped)(1.0) == 7


def test_what_a_loop_makes_anew_reaches_native_dispatch():
    def g(x):
        return x + 1

    x = wnp.arange(3.0)
    for _ in range(4):
        weft.jit(g)(x)
    assert (
        weft.jit(g)._head is weft.jit(g)._head
        and len(weft.jit(g)._entries) == len(weft.jit(g)._entries) > 0
    )


def test_pmaps_of_one_function_share_traces_and_programs(program_names):
    traces: list = []
    g = counted(traces)
    for _ in range(5):
        assert weft.pmap(g, in_axes=(0,))(wnp.arange(8.0)).tolist() == [2.0 * k for k in range(8)]
    assert len(traces) == 1 and len([name for name in program_names if "(g)" in name]) == 1
    assert (
        weft.pmap(g, axis_name="i", in_axes=(0,))(wnp.arange(8.0)).tolist()
        == [2.0 * k for k in range(8)]
        and len(traces) == 2
    )


@pytest.mark.parametrize("transform", [weft.jit, weft.pmap])
def test_functions_are_not_kept(transform):
    def g(x):
        return x * 3

    transform(g)(wnp.arange(8.0))
    transform(g).lower(wnp.arange(8.0))
    assert id(g) in call_cache._of_functions
    ref = weakref.ref(g)
    del g
    gc.collect()
    assert ref() is None


@pytest.mark.parametrize("calls", [[()], [(1.0,), (wnp.ones(3),)] * 3, [(np.ones(3),), ([1.0],)]])
def test_functions_go_with_their_last_reference(calls):
    """Without the garbage collector: values that a jitted function closes over are freed with it."""
    held = wnp.ones(3)
    jitted = weft.jit(
        (lambda held: lambda *args: held + sum(map(wnp.sum, weft.tree.leaves(args))))(held)
    )
    array, function = weakref.ref(held), weakref.ref(jitted)
    gc.collect()
    gc.disable()
    try:
        for args in calls:
            jitted(*args)
            jitted.__call__(*args)
        del held
        assert array() is not None
        del jitted
        assert array() is None and function() is None
    finally:
        gc.enable()


def test_the_cache_of_functions_in_their_own_results_is_bounded(monkeypatch):
    monkeypatch.setattr(call_cache, "_of_functions", {})
    monkeypatch.setattr(call_cache, "_MAX_FUNCTIONS", 3)

    def make(i):
        def g(x):
            return weft.pure_callback(lambda x: (g, x)[1], x, x) + i

        return g

    for i in range(6):
        assert weft.jit(make(i))(1.0) == 1 + i
        assert len(call_cache._of_functions) <= 3


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x):
        return x + 5


class Slotted:
    __slots__ = ()

    def __call__(self, x):
        return x + 6


def test_callables_of_every_kind():
    for _ in range(2):
        assert weft.jit(Unhashable())(1.0) == 6 and weft.jit(Slotted())(1.0) == 7
        assert weft.jit(abs)(-1.0) == 1 and weft.jit(Unhashable().__call__)(1.0) == 6


def test_clearing_is_for_all_who_share():
    traces: list = []
    g = counted(traces)
    first, second = weft.jit(g), weft.jit(g)
    for clear in (first.clear_cache, weft.clear_caches):
        first(1.0), second(1.0), second(1.0)
        before = len(traces)
        clear()
        assert first._cache_size() == second._cache_size() == 0
        assert second(1.0) == 2 and first(1.0) == 2 and len(traces) == before + 1


def test_what_compile_gave_and_what_runs_outlives_clearing():
    x = wnp.arange(100.0)
    compiled = weft.jit(lambda x: wnp.sin(x) * 2).lower(x).compile()
    expected = np.asarray(compiled(x))
    weft.clear_caches()
    for i in range(20):  # other programs use the freed pages
        weft.jit(lambda x: x * 3 - i)(x)  # noqa: B023
    assert np.array_equal(compiled(x), expected)

    def clears(v):
        weft.clear_caches()
        return v + 1

    f = weft.jit(lambda x: wnp.sin(weft.pure_callback(clears, x, wnp.cos(x))))
    for _ in range(3):
        assert np.allclose(f(x), np.sin(np.cos(x) + 1), atol=1e-5)


def test_threads_may_run_what_another_clears():
    f, x, over, wrong = (
        weft.jit(lambda x: wnp.sin(x).sum() + x[0]),
        wnp.arange(70000.0),
        threading.Event(),
        [],
    )
    expected = float(f(x))

    def work():
        while not over.is_set():
            if float(f(x)) != expected:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(6):
        weft.clear_caches()
        float(weft.jit(lambda x: x * 2 + 1)(x)[3])
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_array_that_is_being_made_is_not_alive():
    unborn = Array.__new__(Array)  # what other threads see of one
    assert all(x is not unborn for x in weft.live_arrays())


def test_caches_are_cleared_while_other_threads_make_functions():
    over, wrong = threading.Event(), []

    def work():
        jitted = []
        while not over.is_set():
            jitted = [*jitted[-50:], weft.jit(lambda x: x)]

    def clear():
        try:
            for _ in range(50):
                call_cache._clear_all()
        except RuntimeError as error:
            wrong.append(error)
        over.set()

    functions = [weft.jit(lambda x: x) for _ in range(3000)]
    threads = [threading.Thread(target=f) for f in (work, work, clear)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert functions and not wrong


MANY = """
    import os, weft, weft.numpy as wnp, numpy as np
    def mappings(): return len(open("/proc/self/maps").readlines())
    def resident(): return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    f = weft.jit(lambda x: wnp.sin(x) * 2 + 1)
    def shapes(some):
        for n in some:
            f(np.ones(n, np.float32))
    shapes(range(1, 20))
    weft.clear_caches()
    before = mappings(), resident()
    shapes(range(20, 220))
    grown = mappings() - before[0]
    weft.clear_caches()
    print(grown, mappings() - before[0], resident() - before[1], f._cache_size())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="no list of mappings")
def test_many_shapes_use_few_mappings_and_free_memory(tmp_path):
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MANY)],
        capture_output=True,
        text=True,
        check=True,
        # so that the first shapes load the compiler, with its memory, rather than programs on disk
        env={**os.environ, "WEFT_CACHE_DIR": str(tmp_path)},
    )
    grown, live, mib, entries = map(float, process.stdout.split())
    assert grown < 30 and live < 30 and mib < 8 and entries == 0
