"""Asynchronous dispatch: calls that wait for queued programs, errors, effects, donated memory, bounds, interrupts, ends.

A gate is a program that waits in a callback until it is opened; programs queued behind it are not computed before.
"""

from __future__ import annotations

import copy
import gc
import io
import pickle
import textwrap
import threading
import time

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.runtime.test_pool_stress import output, start
from weft import lax
from weft._engine.backends.cpu import buffer, native_entries as dispatch
from weft._engine.codegen.runtime import pool, queue
from weft._engine.runtime.array import Array
from weft.errors import CallbackError
from weft.sharding import NamedSharding, PartitionSpec as P

X = np.arange(6, dtype=np.float32)
CAPACITY = 32


@pytest.fixture(autouse=True)
def everything_is_queued():
    if not pool.futex() or not dispatch.install(type(weft.jit(abs)), Array):
        pytest.skip("no queue here")
    before = weft.config.async_dispatch_bytes
    weft.config.update("async_dispatch_bytes", 0)
    yield
    weft.config.update("async_dispatch_bytes", before)
    weft.effects_barrier()


class Gate:
    """`gate(x)` is x, once `open` was called."""

    def __init__(self):
        self.event = threading.Event()
        self.open = self.event.set
        self.call = weft.jit(lambda x: weft.pure_callback(self._pass, x, x))

    def _pass(self, x):
        assert self.event.wait(20)
        return np.asarray(x)

    def __call__(self, x):
        return self.call(x)


@pytest.fixture
def gate():
    opened = Gate()
    yield opened
    opened.open()


def taught(function, *args, **options):
    """Return the jitted `function`, after calls on copies of `args` that let native dispatch take over."""
    f = weft.jit(function, **options)
    for _ in range(3):
        weft.block_until_ready(f(*[wnp.array(x, copy=True) for x in args]))
    return f


def test_a_call_returns_before_its_program_runs(gate):
    f = taught(lambda x: x * 2 + 1, X)
    x = gate(wnp.asarray(X))
    y = f(x)
    z = f(y)
    assert not x.is_ready() and not y.is_ready() and not z.is_ready()
    assert z.shape == (6,) and z.dtype == np.float32 and z.sharding == y.sharding
    gate.open()
    assert z.block_until_ready() is z and x.is_ready() and y.is_ready() and z.is_ready()
    np.testing.assert_array_equal(z, 4 * X + 3)


def test_short_programs_queue_behind_their_arguments(gate):
    f, g = taught(lambda x: x * 2, X), taught(lambda x, n: x + n, X, 1)
    x = gate(wnp.asarray(X))
    weft.config.update("async_dispatch_bytes", -1)
    for add in (g, weft.jit(lambda x, n: x + n)):
        y = add(f(x), 3)  # numbers, too, are kept until it runs
        assert not y.is_ready()
    eager = (x + 1)[2:] * 2
    assert not eager.is_ready()
    assert g(wnp.asarray(X), 1).is_ready()
    gate.open()
    np.testing.assert_array_equal(y, 2 * X + 3)
    np.testing.assert_array_equal(eager, 2 * (X + 1)[2:])


def saved(x):
    file = io.BytesIO()
    wnp.save(file, x)
    file.seek(0)
    return np.load(file)


READERS = {
    "asarray": np.asarray,
    "array": np.array,
    "tolist": wnp.ndarray.tolist,
    "iteration": lambda x: [float(v) for v in x],
    "dlpack": np.from_dlpack,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "device_get": weft.device_get,
    "block": weft.block_until_ready,
    "save": saved,
    "repr": lambda x: eval(repr(x), {"Array": lambda v, dtype: v, "float32": None}),
    "item": lambda x: [x.item(i) for i in range(6)],
    "bytes": lambda x: np.frombuffer(x.tobytes(), np.float32),
    "shards": lambda x: x.addressable_shards[0].data,
    "device_put": lambda x: weft.device_put(x, weft.devices()[1]),
    "format": lambda x: eval(f"{x}".replace(".", ".,")),
    "reference": lambda x: weft.jit(lambda x: x + 0, backend="reference")(x),
    "scalar": lambda x: [float(x[i]) for i in range(6)],
    "a NumPy function": lambda x: np.add(np.zeros(6), x),
    "another thread": lambda x: in_thread(lambda: np.asarray(x)),
}


def in_thread(work):
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


@pytest.mark.parametrize("name", READERS)
def test_who_looks_at_values_waits(gate, name):
    x = weft.jit(lambda x: x + 1)(gate(wnp.asarray(X)))
    assert not x.is_ready()
    threading.Timer(0.01, gate.open).start()
    np.testing.assert_array_equal(READERS[name](x), X + 1)
    assert x.is_ready()


def test_copy_to_host_async_does_not_wait(gate):
    x = gate(wnp.asarray(X))
    x.copy_to_host_async()
    weft.copy_to_host_async([x, 1])
    assert not x.is_ready()


def refuse(v):
    raise ValueError("seven is not allowed")


@pytest.mark.parametrize("sharded", [False, True])
def test_errors_are_raised_where_results_are_asked_for(gate, sharded):
    f = weft.jit(
        lambda x, late: (
            weft.pure_callback(refuse, weft.ShapeDtypeStruct((), "float32"), x.sum() + late) + x
        )
    )
    g = taught(lambda x: (x + 1, x.sum()), X)
    base = wnp.asarray(X[:4])
    if sharded:
        base = weft.device_put(base, NamedSharding(weft.make_mesh((4,), ("i",)), P("i")))
    for _ in range(3):  # by way of Python, and of native dispatch
        gate.event.clear()
        bad = f(base, gate(wnp.float32(0)))
        y, total = g(bad)
        z, _ = g(y)
        good, _ = g(base)
        gate.open()
        for wait in (weft.block_until_ready, np.asarray, repr, weft.block_until_ready):
            for x in (z, total, y, bad):
                with pytest.raises(CallbackError, match="seven is not allowed") as caught:
                    wait(x)
                assert isinstance(caught.value.__cause__, ValueError)
        with pytest.raises(CallbackError, match="seven"):
            weft.block_until_ready(g(bad))
        np.testing.assert_array_equal(good, np.asarray(base) + 1)
    del bad, y, z, total, good, x, caught, _
    gc.collect()
    weft.effects_barrier()  # all errors were already raised


def test_failed_programs_keep_no_memory():
    f = weft.jit(
        lambda x: weft.pure_callback(refuse, weft.ShapeDtypeStruct((), "float32"), x.sum()) + x
    )
    x, live = wnp.asarray(X), []
    for _ in range(8):
        with pytest.raises(CallbackError):
            y = f(f(x))
            y.block_until_ready()
        y = None
        gc.collect()
        live.append(buffer.allocated_bytes())
    assert live[4:] == live[4:5] * 4


def test_an_unread_error_is_raised_by_the_barrier():
    f = weft.jit(lambda x: weft.debug.callback(refuse, x))
    f(wnp.asarray(X))
    with pytest.raises(CallbackError, match="seven"):
        weft.effects_barrier()
    weft.effects_barrier()


class Uncopied(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def test_what_cannot_be_copied_is_raised_all_the_same():
    failure = queue.QueuedFailure(Uncopied(1, 2))
    with pytest.raises(Uncopied, match="1 2"):
        failure.throw()
    with pytest.raises(RuntimeError, match="Uncopied: 1 2"):
        failure.throw()


def root(x):
    return wnp.log(x - 3) + 1  # the line


@pytest.mark.parametrize("name", ["block", "asarray", "repr", "item", "device_put", "pickle"])
@pytest.mark.parametrize("options", [{}, {"donate_argnums": 0}])
def test_nans_are_raised_where_results_are_asked_for(gate, name, options):
    f, double = weft.jit(root, **options), taught(lambda x: x * 2, X)
    for _ in range(2):
        gate.event.clear()
        x, fine = gate(wnp.asarray(X)), gate(wnp.asarray(X + 4))
        with weft.debug_nans(True):
            y, z = f(x), f(fine)
            x.delete()
            after = double(y)
        assert fine.is_deleted() is bool(options)
        assert not y.is_ready() and not after.is_ready()
        gate.open()
        for bad in (after, y, after):
            with pytest.raises(
                FloatingPointError, match=r"invalid value \(nan\) encountered in log\n"
            ) as caught:
                READERS[name](bad)
            assert "test_queue.py" in str(
                caught.value
            ) and "in root:  return wnp.log(x - 3) + 1  # the line" in str(caught.value)
        np.testing.assert_allclose(z, np.log(X + 1) + 1, rtol=1e-6)


def test_nans_of_operations_are_found_on_the_line_of_the_call(gate):
    x = gate(wnp.asarray(X)) - 3
    with weft.debug_nans(True):
        y = wnp.sqrt(x)  # here
    with weft.enable_x64(True):  # settings after the call do not matter
        gate.open()
        with pytest.raises(FloatingPointError, match="sqrt") as caught:
            y.block_until_ready()
    assert "y = wnp.sqrt(x)  # here" in str(caught.value)


def test_unread_nans_are_raised_by_the_barrier(gate):
    x = gate(wnp.asarray(X))
    with weft.debug_nans(True):
        weft.jit(root)(x)
    gate.open()
    with pytest.raises(FloatingPointError, match="log"):
        weft.effects_barrier()
    weft.effects_barrier()


def test_an_error_comes_before_the_look_for_nans(gate):
    f = weft.jit(lambda x: weft.pure_callback(refuse, x, x) * np.nan)
    weft.config.update("debug_nans", True)
    try:
        y = f(gate(wnp.asarray(X)))
    finally:
        weft.config.update("debug_nans", False)
    assert not y.is_ready()
    gate.open()
    with pytest.raises(CallbackError, match="seven"):
        y.block_until_ready()


def test_searched_programs_keep_no_memory():
    f, x, live = weft.jit(root), wnp.asarray(X), []
    with weft.debug_nans(True):
        for _ in range(8):
            with pytest.raises(FloatingPointError):
                f(f(x)).block_until_ready()
            gc.collect()
            live.append(buffer.allocated_bytes())
    assert live[4:] == live[4:5] * 4


def test_effects_stay_in_order(gate):
    seen = []

    def noting(tag):
        note = lambda v: seen.append((tag, float(v)))
        return weft.jit(
            lambda x: (weft.experimental.io_callback(note, None, x[0], ordered=True), x + 1)[1]
        )

    f, g = noting("f"), noting("g")
    for round_ in range(4):
        gate.event.clear()
        weft.config.update("async_dispatch_bytes", 0)
        x = f(gate(wnp.zeros(3)))
        weft.config.update("async_dispatch_bytes", -1)  # short ones come behind
        g(wnp.full(3, 7.0))
        x = g(x)
        if round_ < 3:
            gate.open()
        else:
            threading.Timer(0.01, gate.open).start()
        weft.debug.callback(lambda: seen.append("eager"))
        assert seen == [("f", 0.0), ("g", 7.0), ("g", 1.0), "eager"]
        seen.clear()


def test_pending_donated_arrays_provide_their_memory(gate):
    step = taught(lambda x: x * 2 + 1, wnp.ones(1000), donate_argnums=0)
    shift = taught(lambda x, late: x + late, wnp.ones(1000), 0.0)
    ones = wnp.ones(1000).block_until_ready()
    gate.open()
    shift(ones, gate(wnp.float32(0))).block_until_ready()
    before = buffer.allocated_bytes()
    gate.event.clear()
    x = shift(ones, gate(wnp.float32(0)))
    for _ in range(10):
        y = step(x)
        assert x.is_deleted()
        x = y
    assert (
        before + 4000 <= buffer.allocated_bytes() < before + 8000
    )  # all of them use the memory of the first
    gate.open()
    np.testing.assert_array_equal(x, np.full(1000, 2047))
    assert buffer.allocated_bytes() == before + 4000


@pytest.mark.parametrize("looked_at", [False, True])
def test_queued_readers_keep_the_values_of_donated_arrays(gate, looked_at):
    read, step = taught(lambda x, y: x + y, X, X), taught(lambda x: x * 2, X, donate_argnums=0)
    for native in (False, True):
        gate.event.clear()
        x = taught(lambda x: x + 1, X)(X) if native else wnp.asarray(X + 1) + 0
        if looked_at:
            np.asarray(x)
        late = gate(wnp.zeros(6))
        sums = [read(x, late), read(late, x)]
        y = step(x)
        assert x.is_deleted()
        gate.open()
        for s in sums:
            np.testing.assert_array_equal(s, X + 1)
        np.testing.assert_array_equal(y, 2 * X + 2)


def test_a_short_program_leaves_donated_memory_to_queued_readers(gate):
    read, step = taught(lambda x, y: x + y, X, X), taught(lambda x: x * 2, X, donate_argnums=0)
    x = taught(lambda x: x + 1, X)(X).block_until_ready()
    late = read(x, gate(wnp.zeros(6)))
    weft.config.update("async_dispatch_bytes", -1)
    step = taught(lambda x: x * 2, X, donate_argnums=0)
    y = step(x)
    gate.open()
    np.testing.assert_array_equal(late, X + 1)
    np.testing.assert_array_equal(y, 2 * X + 2)


def test_views_keep_the_values_of_donated_arrays(gate):
    step = taught(lambda x: x * 2, X, donate_argnums=0)
    x = wnp.asarray(X) + 1
    view = np.asarray(x)
    gate(wnp.zeros(6))
    y = step(x)
    gate.open()
    np.testing.assert_array_equal(y, 2 * X + 2)
    np.testing.assert_array_equal(view, X + 1)


def test_arguments_may_be_deleted_and_die_meanwhile(gate):
    f = taught(lambda xs: [x + 1 for x in xs], [X, X])
    late = gate(wnp.asarray(X))
    dead, deleted = late + 1, late + 2
    out = f([dead, deleted])
    del dead
    deleted.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(deleted)
    others = [wnp.full(6, 9.0) for _ in range(50)]  # which would take the memory
    gate.open()
    np.testing.assert_array_equal(out, [X + 2, X + 3])
    np.testing.assert_array_equal(others[0], np.full(6, 9))


def test_results_may_die_unseen():
    f = taught(lambda x: x + 1, X)
    x = wnp.asarray(X)
    weft.block_until_ready(f(x))
    before = buffer.allocated_bytes()
    for _ in range(1000):
        f(x)
    weft.block_until_ready(f(x))
    assert buffer.allocated_bytes() == before


@pytest.mark.parametrize("native", [True, False])
def test_the_queue_is_bounded(gate, native):
    f = taught(lambda x: x + 1, X) if native else weft.jit(lambda x: x + 1)
    outs = [gate(wnp.asarray(X))]
    worker = threading.Thread(
        target=lambda: [outs.append(f(outs[-1])) for _ in range(3 * CAPACITY)]
    )
    worker.start()
    deadline = time.monotonic() + 30
    while len(outs) < CAPACITY and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    assert len(outs) == CAPACITY and worker.is_alive()
    gate.open()
    worker.join()
    np.testing.assert_array_equal(outs[-1], X + 3 * CAPACITY)


def test_the_bytes_in_the_queue_are_bounded(gate):
    running = queue.current()
    f = taught(lambda x: x + 1, X)
    outs = [gate(wnp.asarray(X))]
    most, running.limit.value = running.limit.value, 4 * X.nbytes
    try:
        worker = threading.Thread(target=lambda: [outs.append(f(outs[-1])) for _ in range(9)])
        worker.start()
        deadline = time.monotonic() + 30
        while len(outs) < 4 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.02)
        assert len(outs) == 4 and worker.is_alive()
        gate.open()
        worker.join()
    finally:
        running.limit.value = most
    np.testing.assert_array_equal(outs[-1], X + 9)


def test_ten_thousand_calls():
    f = taught(lambda x: x + 1, X)
    x = wnp.asarray(X)
    weft.block_until_ready(f(x))
    gc.collect()
    buffer.reset_peak()
    before = buffer.allocated_bytes()
    for _ in range(10_000):
        x = f(x)
    np.testing.assert_array_equal(x, X + 10_000)
    assert buffer.peak_bytes() <= before + (CAPACITY + 2) * X.nbytes


def test_threads_call_at_once():
    f = taught(lambda x: x * 2 - 1, X)

    def work(i):
        x = wnp.asarray(X + i)
        for _ in range(400):
            x = f(x) * 0.5 + 0.5
        return np.asarray(x)

    results = [None] * 6
    threads = [
        threading.Thread(target=lambda i=i: results.__setitem__(i, work(i))) for i in range(6)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, x in enumerate(results):
        np.testing.assert_allclose(x, X + i, rtol=1e-5)


def test_callbacks_may_compute_and_wait():
    f = taught(lambda x: x * 2, X)
    ready = f(wnp.asarray(X))

    def work(v):
        return np.asarray(f(f(v)) + ready)

    g = weft.jit(lambda x: weft.pure_callback(work, x, x) + 1)
    for _ in range(3):
        y = g(f(wnp.asarray(X)))
        z = f(y)
        np.testing.assert_array_equal(z, 2 * (8 * X + 2 * X + 1))


def test_a_callback_that_waits_for_itself_fails():
    late, go = [], threading.Event()

    def work(v):
        assert go.wait(60)
        return np.asarray(late[0])

    y = weft.jit(lambda x: weft.pure_callback(work, x, x))(wnp.asarray(X))
    late.append(y)
    go.set()
    with pytest.raises(CallbackError, match="waits for an array of the program that called it"):
        y.block_until_ready()


def test_arrays_on_many_devices(gate):
    mesh = weft.make_mesh((4, 2), ("a", "b"))
    sharded = lambda x, *spec: weft.device_put(x, NamedSharding(mesh, P(*spec)))
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    f = taught(lambda x, y, z: (x @ y + z.sum(), x), *[sharded(x, "a", "b")] * 3)
    late = gate(wnp.ones(()))
    y, operand = f(sharded(x, "a", "b"), sharded(x, "a", "b") + late, sharded(x, "a", "b"))
    assert not y.is_ready() and operand.sharding.spec == P("a", "b")
    gate.open()
    np.testing.assert_array_equal(y, x @ (x + 1) + x.sum())
    np.testing.assert_array_equal(operand.addressable_shards[3].data, x[2:4, 4:])


def test_a_setting_lets_every_call_wait(gate):
    f = taught(lambda x: x * 2, X)
    gate.open()
    weft.config.update("jax_cpu_enable_async_dispatch", False)
    try:
        for _ in range(4):
            assert f(wnp.asarray(X)).is_ready() and gate(wnp.asarray(X)).is_ready()
    finally:
        weft.config.update("jax_cpu_enable_async_dispatch", True)


def test_what_takes_long_is_queued():
    weft.config.update("async_dispatch_bytes", -1)
    is_queued = lambda f, *xs: (
        weft.jit(f).lower(*xs).compile().runtime_executable().loaded.is_queued
    )
    spec = weft.ShapeDtypeStruct((1500, 1500), "float32")
    assert is_queued(lambda x: x @ x, spec) and is_queued(
        lambda x: lax.fori_loop(0, 1000, lambda i, x: x + 1, x), spec
    )
    assert not is_queued(lambda x: x + 1, wnp.ones(4)) and not is_queued(
        lambda x: x @ x, wnp.ones((64, 64))
    )
    assert not is_queued(lambda x: lax.while_loop(lambda v: v < 2, lambda v: v + 1, x), 1.0)


# ---- what takes a process

PRELUDE = """
weft.config.update("async_dispatch_bytes", 0)
go = threading.Event()
def wait(v):
    go.wait()
    return np.asarray(v)
gate = weft.jit(lambda x: weft.pure_callback(wait, x, x))
step = weft.jit(lambda x: x + 1)
for_ever = weft.jit(lambda x: lax.while_loop(lambda v: v[0] < 2, lambda v: wnp.cos(v), x))
small = np.ones(4, np.float32)
for _ in range(3): weft.block_until_ready(step(small))
for_ever.lower(small).compile()
"""

CASES = {
    "an interrupt ends a wait, not the program": """
        x = step(gate(small))
        while step(x).is_ready(): pass
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        holder = threading.Thread(target=lambda: weft.block_until_ready(x)); holder.start()      # runs it; here we only wait
        time.sleep(0.02)
        try:
            x.block_until_ready()
            print("went on")
        except KeyboardInterrupt:
            go.set()
            np.testing.assert_array_equal(x, small + 1)
        holder.join()
    """,
    "a second interrupt ends the program": """
        x = for_ever(small)
        y = step(x)
        time.sleep(0.05)                                     # the runner has it
        for _ in range(2):
            try:
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
                y.block_until_ready()
                print("went on")
            except KeyboardInterrupt:
                pass
        for z in (x, y):
            try:
                z.block_until_ready()
                print("has a value")
            except RuntimeError as error:
                assert "interrupt" in str(error)
        np.testing.assert_array_equal(step(small), 2)
    """,
    "an interrupt while a call waits for memory": """
        x = for_ever(small)
        try:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            for _ in range(100): x = step(x)
            print("went on")
        except KeyboardInterrupt:
            pass
    """,
    "the end stops what is queued": """
        x = for_ever(small)
        for _ in range(20): x = step(x)
    """,
    "a child has what its parent queued": """
        go.set()
        x = gate(small)
        for _ in range(20): x = step(x)
        assert child(lambda: (np.asarray(x) == 21).all() and (np.asarray(step(x)) == 22).all())
        np.testing.assert_array_equal(step(x), 22)
    """,
    "forks while other threads queue": """
        def work():
            x = small
            for _ in range(300): x = step(x)
            np.testing.assert_array_equal(x, 301)
        def forks():
            for _ in range(5): assert child(lambda: (np.asarray(step(step(small))) == 3).all())
        together(work, forks, work)
    """,
}


@pytest.mark.parametrize("name", CASES)
def test_processes(name):
    assert output(start(PRELUDE + textwrap.dedent(CASES[name]))) == ""


def test_effects_happen_before_the_process_ends():
    body = """
        late = weft.jit(lambda x: (weft.debug.callback(lambda v: (time.sleep(0.05), print("seen", float(v))), x[0]), x + 1)[1])
        for i in range(3): late(step(small) * i)
    """
    assert output(start(PRELUDE + textwrap.dedent(body))) == "seen 0.0\nseen 2.0\nseen 4.0\n"
