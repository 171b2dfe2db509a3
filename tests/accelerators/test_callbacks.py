"""Python functions that programs on a plugin call: values, order, meshes, failures, the end of a process."""

import gc
import os
import signal
import threading
import time
import weakref

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.accelerators.plugin import run_on_plugin
from weft import lax
from weft.errors import CallbackError
from weft.experimental import io_callback
from weft.sharding import NamedSharding, PartitionSpec as P

X = np.arange(8, dtype=np.float32).reshape(4, 2)
show = weft.debug.print


@pytest.fixture
def grid(devices):
    """Return a mesh of 2 by 2 devices."""
    return weft.make_mesh((2, 2), ("i", "j"), devices=devices[:4])


@pytest.fixture
def lines(capsys):
    """Return a function that returns the lines printed since the start; lines of one array are
    joined."""

    def read():
        weft.effects_barrier()
        return capsys.readouterr().out.replace("\n ", " ").splitlines()

    return read


def on(device, function):
    """Return `function` compiled for one device of the plugin."""
    compiled = weft.jit(function)
    return lambda *args: compiled(*[weft.device_put(x, device) for x in args])


def double(v):
    return np.asarray(v) * 2


def whole(function, like):
    return weft.pure_callback(function, weft.ShapeDtypeStruct(like.shape, like.dtype), like)


def on_each(mesh, body, spec, out=None, **options):
    """Return `body` as a compiled program of the devices of `mesh`."""
    specs = {"in_specs": spec, "out_specs": spec if out is None else out}
    return weft.jit(weft.shard_map(body, mesh=mesh, **specs, **options))


# --- one device -------------------------------------------------------------------------------------------------------


def looped(x):
    def body(carry, row):
        return carry + whole(double, row), io_callback(double, row, row + carry)

    return lax.scan(body, x[0], x)


VALUES = {
    "pure": lambda x: whole(double, x + 1),
    "io": lambda x: io_callback(double, x, x, ordered=True) + 1,
    "transposed operand": lambda x: (
        whole(np.cumsum, x.T.reshape(-1)).reshape(2, 4) + whole(double, x.T)
    ),
    "scan": looped,
    "while": lambda x: lax.while_loop(
        lambda v: weft.pure_callback(np.sum, v[0, 0], v) < 99,
        lambda v: whole(double, v),
        x,
    ),
    "cond": lambda x: lax.cond(
        x[0, 0] > 1, lambda: whole(double, x), lambda: whole(np.negative, x)
    ),
    "vmap": lambda x: weft.vmap(
        lambda row: weft.pure_callback(double, row, row, vmap_method="sequential")
    )(x),
    "several results": lambda x: weft.pure_callback(lambda v: (v.sum(), v), (x[0, 0], x), x),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_those_of_the_cpu(name, devices):
    want = weft.tree.leaves(weft.jit(VALUES[name])(X))
    got = weft.tree.leaves(on(devices[1], VALUES[name])(X))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)


DTYPES = ["bool", "int8", "uint16", "int32", "float16", "bfloat16", "complex64", "float8_e4m3fn"]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_of_all_dtypes_arrive(dtype, shape, devices):
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(wnp.dtype(dtype))
    seen = []

    def keep(v):
        seen.append(np.asarray(v))
        return v

    f = on(devices[0], lambda x: io_callback(keep, x.T, x.T))
    np.testing.assert_array_equal(f(x), x.T)
    np.testing.assert_array_equal(seen[0], x.T)
    assert (seen[0].dtype, seen[0].shape) == (x.dtype, x.T.shape)


def test_numbers_of_4_bits_are_refused(devices):
    f = on(devices[0], lambda x: whole(np.asarray, x))
    with pytest.raises(NotImplementedError, match=r"pure_callback: .*packs numbers of int4"):
        f(wnp.arange(3).astype("int4"))


def test_prints_keep_the_order_of_the_program(devices, lines):
    def f(x):
        show("first {}", x)
        x = lax.fori_loop(0, 2, lambda i, v: (show("loop {}", i), v + 1)[1], x)
        lax.cond(x > 3, lambda: show("branch {}", x), lambda: None)
        lax.while_loop(
            lambda v: (show("test {}", v), v < 5)[1], lambda v: (show("body"), v + 1)[1], x
        )
        show("last")

    f = on(devices[0], f)
    for _ in range(3):
        f(np.float32(2))
        expected = ["first 2.0", "loop 0", "loop 1", "branch 4.0", "test 4.0", "body", "test 5.0"]
        assert lines() == [*expected, "last"]


def test_programs_call_one_after_another(devices):
    seen = []

    def note(i):
        time.sleep(0.002)
        seen.append(int(i))

    programs = [on(d, lambda i: io_callback(note, None, i)) for d in devices[:3]]
    for i in range(30):
        programs[i % 3](i)
    weft.effects_barrier()
    assert seen == list(range(30))


def test_settings_of_the_program_hold_in_callbacks(devices):
    seen = []

    def note(v):
        seen.append(v.dtype)
        return v * 2

    with weft.enable_x64():
        f = on(devices[0], lambda x: weft.pure_callback(note, x, x))
        assert f(np.float64(0.1)).dtype == np.float64
    assert seen == [np.float64]


def test_functions_compute_on_the_cpu(devices, lines):
    inner = weft.jit(lambda v: (show("inner {}", v.sum()), v * 2)[1])
    seen = []

    def outer(v):
        show("eager {}", v.sum())
        weft.effects_barrier()
        seen.append(inner(v).devices())
        return np.asarray(inner(v))

    f = on(devices[0], lambda x: io_callback(outer, x, x) + 1)
    np.testing.assert_array_equal(f(X), X * 2 + 1)
    assert seen == [{weft.devices("cpu")[0]}]
    assert lines() == ["eager 28.0", "inner 28.0", "inner 28.0"]


def test_functions_run_programs_of_one_other_device(devices, mesh):
    inner = on(devices[1], lambda v: whole(double, v) + 1)
    f = on(devices[0], lambda x: whole(lambda v: np.asarray(inner(np.asarray(v))), x))
    np.testing.assert_array_equal(f(X), X * 2 + 1)
    sharded = weft.device_put(X, NamedSharding(mesh, P("a")))
    refused = on(devices[0], lambda x: whole(lambda v: np.asarray(sharded + 1), x))
    with pytest.raises(CallbackError, match="A callback called a program on 8 devices of PJRT"):
        refused(X).block_until_ready()


def test_threads_call_side_by_side(devices):
    f = on(devices[0], lambda x: whole(double, x).sum())
    sums = []
    threads = [
        threading.Thread(target=lambda i=i: sums.extend(float(f(X + i)) for _ in range(20)))
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sums) == sorted(20 * [float((X + i).sum() * 2) for i in range(4)])


@pytest.mark.parametrize("sharded", [False, True], ids=["one device", "mesh"])
def test_eigenvalues_are_computed_on_the_host(sharded, devices, mesh):
    matrices = np.random.default_rng(0).normal(size=(8, 3, 3)).astype(np.float32)
    spec = NamedSharding(mesh, P(("a", "b"))) if sharded else devices[0]
    values, vectors = weft.jit(wnp.linalg.eig)(weft.device_put(matrices, spec))
    np.testing.assert_allclose(matrices @ vectors, vectors * values[:, None, :], atol=1e-5)
    t, z = on(devices[0], weft.scipy.linalg.schur)(matrices[0])
    np.testing.assert_allclose(z @ t @ z.T, matrices[0], atol=1e-5)


# --- meshes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [("i", "j"), ("j",), (("i", "j"), None), (None, "i"), ()], ids=str)
def test_automatic_code_calls_once_with_whole_values(spec, grid):
    shapes = []

    def reverse(v):
        shapes.append(v.shape)
        return np.asarray(v)[::-1]

    def f(x):
        rows = lax.map(lambda row: io_callback(double, row, row), x)
        return whole(reverse, x * 2) + io_callback(reverse, x, x) + rows

    x = weft.device_put(X, NamedSharding(grid, P(*spec)))
    np.testing.assert_array_equal(weft.jit(f)(x), X[::-1] * 3 + X * 2)
    assert shapes == [(4, 2)] * 2


def test_devices_call_in_the_order_of_the_mesh(grid, lines):
    def body(x):
        show("{}", x[0])
        total = lax.psum(x.sum(), ("i", "j"))
        lax.cond(total > 0, lambda: show("{}", total), lambda: None)
        return x + whole(double, x)

    f = on_each(grid, body, P("i", "j"))
    places = ["[i=0 j=0]", "[i=0 j=1]", "[i=1 j=0]", "[i=1 j=1]"]
    blocks = ["[0.]", "[1.]", "[4.]", "[5.]"]
    expected = [f"{p} {b}" for p, b in zip(places, blocks)] + [f"{p} 28.0" for p in places]
    for _ in range(5):
        np.testing.assert_array_equal(f(X), X * 3)
        assert lines() == expected


def test_some_devices_call_before_all_communicate(grid, lines):
    def body(x):
        here = lax.axis_index("i") * 2 + lax.axis_index("j")
        x = lax.cond(here == 1, lambda: (show("{}", x[0, 0]), whole(double, x))[1], lambda: x)
        x = lax.fori_loop(0, here, lambda i, v: (show("{} {}", here, i), v + 1)[1], x)
        return lax.psum(x, ("i", "j")) + lax.all_gather(x, "i").sum(0)

    f = on_each(grid, body, P("i", "j"), out=P("i", "j"), check_vma=False)
    blocks = np.stack([X[:2, :1], X[:2, 1:] * 2 + 1, X[2:, :1] + 2, X[2:, 1:] + 3])
    sums = [[blocks[j] + blocks[2 + j] for j in (0, 1)]] * 2
    want = np.block(sums) + np.tile(blocks.sum(0), (2, 2))
    for _ in range(5):
        np.testing.assert_array_equal(f(X), want)
        loops = {f"[i={k // 2} j={k % 2}] {k} {i}" for k in range(4) for i in range(k)}
        printed = lines()
        assert set(printed) == {"[i=0 j=1] 1.0", *loops} and len(printed) == 7


def test_whole_values_meet_in_branches_of_other_axes(grid, lines):
    def body(x):
        return lax.cond(
            lax.axis_index("i") == 1, lambda: (show("{}", x.sum(0)), whole(double, x))[1], lambda: x
        )

    f = on_each(grid, body, P("i"), axis_names={"i"}, check_vma=False)
    x = weft.device_put(X, NamedSharding(grid, P("i", "j")))
    np.testing.assert_array_equal(f(x), np.concatenate([X[:2], X[2:] * 2]))
    assert lines() == ["[i=1] [10. 12.]"]


def test_calls_between_many_collectives_do_not_block(mesh):
    def body(x):
        total = x.sum()
        for k in range(8):
            total += lax.psum(wnp.sin(x * k).sum(), ("a", "b")) + whole(double, x + k).sum()
            some = lax.axis_index("a") + lax.axis_index("b") == k % 4
            total = lax.cond(some, lambda t: t + whole(double, t), lambda t: t, total)
        return lax.psum(total, ("a", "b"))

    def run(mesh):
        return on_each(mesh, body, P("a", "b"), out=P(), check_vma=False)

    x = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
    cpu = weft.make_mesh((4, 2), ("a", "b"), devices=weft.devices("cpu"))
    want, f = float(run(cpu)(x)), run(mesh)
    results = []
    threads = [threading.Thread(target=lambda: results.append(float(f(x)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    results += [float(f(x)) for _ in range(5)]
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(results, [want] * 8, rtol=1e-5)


def test_looking_adds_no_collective(mesh):
    f = weft.jit(lambda x: (show("{}", x), whole(double, x.T), x * 2)[2])
    lowered = f.lower(weft.device_put(np.zeros((8, 8)), NamedSharding(mesh, P("a", "b"))))
    assert lowered.compile().stages.collectives == []


# --- failures ---------------------------------------------------------------------------------------------------------


def fail(v):
    raise OverflowError("too much")


def test_a_failure_stops_the_program_of_one_device(devices):
    calls = []

    def f(x):
        x = io_callback(fail, x, x)
        weft.debug.callback(calls.append, x)
        return x * 2

    f = on(devices[0], f)
    for _ in range(2):
        for read in (np.asarray, weft.block_until_ready):
            with pytest.raises(CallbackError, match="OverflowError: too much") as caught:
                read(f(X))
            assert isinstance(caught.value.__cause__, OverflowError)
            assert "test_callbacks.py:" in str(caught.value)
    weft.effects_barrier()
    assert not calls
    np.testing.assert_array_equal(on(devices[0], lambda x: whole(double, x))(X), X * 2)


def test_a_failure_on_a_mesh_lets_the_others_communicate(grid):
    calls = []

    def body(x, limit):
        here = lax.axis_index("i") + lax.axis_index("j")
        check = lambda v, limit: fail(v) if v.max() >= limit else v
        x = lax.cond(here == 2, lambda: io_callback(check, x, x, limit), lambda: x)
        x = lax.psum(x, ("i", "j"))
        io_callback(lambda v: calls.append(v), None, x)
        return lax.fori_loop(0, 3, lambda i, v: lax.psum(whole(double, v), "i") + i, x)

    specs = (P("i", "j"), P())
    f = on_each(grid, body, specs, out=P("i", "j"), check_vma=False)
    for _ in range(3):
        failed = f(X, 7)
        for read in (weft.block_until_ready, np.asarray, lambda x: (x + 1).block_until_ready()):
            with pytest.raises(CallbackError, match="OverflowError: too much"):
                read(failed)
    assert not calls
    f(X, 8).block_until_ready()
    assert len(calls) == 4


def test_the_barrier_raises_unseen_failures_once(grid):
    f = on_each(grid, lambda x: (weft.debug.callback(fail, x), x * 2)[1], P("i", "j"))
    f(X)
    with pytest.raises(CallbackError, match="too much"):
        weft.effects_barrier()
    weft.effects_barrier()
    result = f(X)
    with pytest.raises(CallbackError, match="too much"):
        result.block_until_ready()
    weft.effects_barrier()


def test_many_failures_on_all_devices(mesh):
    f = on_each(mesh, lambda x: (weft.debug.callback(fail, x), x * 2)[1], P("a", "b"))
    x = weft.device_put(np.zeros((4, 2), np.float32), NamedSharding(mesh, P("a", "b")))
    for _ in range(200):
        with pytest.raises(CallbackError):
            f(x).block_until_ready()


def test_requests_to_stop_pass_unchanged(devices, grid):
    def stop(v):
        raise KeyboardInterrupt

    def f(x):
        weft.debug.callback(stop, x)
        return x * 2

    for run in (on(devices[0], f), on_each(grid, f, P("i", "j"))):
        with pytest.raises(KeyboardInterrupt):
            run(X).block_until_ready()


@pytest.mark.parametrize("inline", [False, True], ids=["plugin's thread", "caller's thread"])
def test_an_interrupt_leaves_programs_usable(inline, devices):
    def slow(v):
        time.sleep(0.3)
        return np.asarray(v) + 1

    big = lambda x: x if inline else lax.fori_loop(0, 9, lambda i, y: wnp.sin(y @ y), x)
    f = on(devices[0], lambda x: whole(slow, big(x)).sum())
    x = np.ones((300, 300), np.float32)
    want = float(f(x))
    timer = threading.Timer(0.15, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        f(x).block_until_ready()
        time.sleep(1)
    weft.effects_barrier()
    assert float(f(x)) == want


def test_failures_keep_no_arrays(devices):
    class Array(np.ndarray):
        """An array to which weak references are possible."""

    alive = []

    def keep(v):
        local = np.zeros(10).view(Array)
        alive.append(weakref.ref(local))
        raise ValueError(local.size)

    f = on(devices[0], lambda x: (weft.debug.callback(keep, x), x)[1])
    for _ in range(3):
        with pytest.raises(CallbackError):
            f(X).block_until_ready()
    gc.collect()
    assert [ref() for ref in alive] == [None] * 3


def test_a_plugin_without_the_extension_refuses_by_name(devices, monkeypatch):
    monkeypatch.setattr(devices[0].client.client.library, "extensions", {})
    programs = {
        "debug_print: the format '{}'": lambda x: show("{}", x),
        "pure_callback: <function double>": lambda x: whole(double, x),
        "io_callback: <function double>": lambda x: io_callback(double, x, x),
        "eig: 'eig'": lambda x: wnp.linalg.eig(x[:2]),
    }
    for text, f in programs.items():
        with pytest.raises(NotImplementedError, match=text) as caught:
            on(devices[0], f)(X)
        assert "PJRT plugin 'xla' has no FFI extension" in str(caught.value)
        assert "test_callbacks.py:" in str(caught.value)


# --- processes --------------------------------------------------------------------------------------------------------

SLOW = """
import time, numpy as np, weft
from weft import lax
def slow(v):
    time.sleep(0.3); print("done", flush=True)
    {then}
    return np.asarray(v)
x = np.ones((200, 200), np.float32)
big = lambda x: lax.fori_loop(0, 3, lambda i, y: weft.numpy.sin(y @ y), x)
f = weft.jit(lambda x: weft.pure_callback(slow, x, big(x)))
y = f(x)
print("end", flush=True)
"""


def test_the_end_of_a_process_waits_for_callbacks():
    run = run_on_plugin("-c", SLOW.format(then=""))
    assert (run.returncode, run.stdout.split()) == (0, ["end", "done"]), run.stderr
    run = run_on_plugin("-c", SLOW.format(then="raise ValueError('never read')"))
    assert run.stdout.split() == ["end", "done"] and "never read" in run.stderr


def test_callbacks_compute_on_the_cpu_with_hidden_devices():
    code = """
import numpy as np, weft
def f(v):
    y = weft.jit(lambda v: v * 2)(v)
    print(v.device, y.device)
    return np.asarray(y)
print(weft.jit(lambda x: weft.pure_callback(f, x, x))(np.float32(3)))
try: weft.devices("cpu")
except RuntimeError: print("hidden")
"""
    run = run_on_plugin("-c", code)
    assert run.stdout.splitlines() == ["cpu:0 cpu:0", "6.0", "hidden"], run.stderr


def test_programs_with_callbacks_are_not_kept_on_disk(tmp_path):
    script = """
import numpy as np, weft
f = weft.jit(lambda x: weft.pure_callback(lambda v: np.asarray(v) + ADD, x, x) * 2)
print(float(f(np.float32(1))), float(weft.jit(lambda x: x + 1)(np.float32(1))))
"""
    for add, result in ((1, "4.0"), (2, "6.0")):
        code = f"ADD = {add}\n{script}"
        run = run_on_plugin("-c", code, WEFT_CACHE_DIR=str(tmp_path))
        assert run.stdout.split() == [result, "2.0"], run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("file", ["debug/test_callbacks.py", "debug/test_callbacks_on_meshes.py"])
def test_the_suites_of_callbacks_pass(file):
    # texts are the plugin's; where only some devices call, their order is open
    others = "not texts_show and not reference and not cpu and not some and not positions"
    words = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/{file}", "-k", others)
    run = run_on_plugin(*words)
    assert run.returncode == 0, run.stdout[-3000:]
