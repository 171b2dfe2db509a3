"""Native dispatch: calls that run no Python function, their objects and memory, and errors."""

import gc
import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.backends.cpu import buffer, native_entries as dispatch
from weft._engine.runtime.array import Array

needs_native = pytest.mark.skipif(not weft.config.cpython_internals, reason="needs native dispatch")


def refuse(*args, **kwargs):
    raise AssertionError("this call should not have needed Python")


def install_native_entries(function, *args, **kwargs):
    """Return the jitted `function` after calls that install native entries for these arguments; a
    further call through Python fails."""
    jitted = weft.jit(function)
    native = dispatch.install(type(jitted), Array)
    for _ in range(3):
        jitted(*args, **kwargs)
    if native:
        jitted._slow = refuse
    return jitted


def more(tree):
    return weft.tree.map(lambda x: x + 1, tree)


def values(tree):
    return weft.tree.map(np.asarray, tree)


X = np.arange(6, dtype=np.float32)
TREES = {
    "an array": lambda x: x,
    "a tuple": lambda x: (x, x),
    "a list": lambda x: [x, x, x],
    "a dict": lambda x: {"b": x, "a": x},
    "nothing": lambda x: (),
    "None": lambda x: [None, x, None],
    "empty containers": lambda x: [(), [], {}, x],
    "three levels": lambda x: {"w": [(x, {"deep": x}), x], "b": (x, [x, None])},
    "a dict of a hundred": lambda x: {f"p{i * 37 % 100}": x for i in range(100)},
    "keys of other types": lambda x: {3: x, 1: (x,)},
    "three hundred": lambda x: [x] * 300,
}


@pytest.mark.parametrize("kind", TREES)
def test_trees_come_out_as_they_went_in(kind):
    tree = TREES[kind](wnp.asarray(X))
    f = install_native_entries(more, tree)
    assert repr(values(f(tree))) == repr(values(TREES[kind](X + 1)))
    again = f(f(tree)) if kind != "an array" else f(tree)  # results as arguments
    assert weft.tree.structure(again) == weft.tree.structure(tree)


def test_a_dict_in_another_order_with_other_keys_that_are_equal():
    x, y = wnp.asarray(X), wnp.asarray(2 * X)
    f = install_native_entries(lambda d: d["first"] - d["second"], {"first": x, "second": y})
    for d in ({"second": y, "first": x}, {"".join(["fi", "rst"]): x, "".join(["sec", "ond"]): y}):
        np.testing.assert_array_equal(f(d), -X)


def test_a_dict_that_lost_keys():
    x, y = wnp.asarray(X), wnp.asarray(2 * X)
    f = install_native_entries(lambda d: d["first"] - d["second"], {"first": x, "second": y})
    d = {"gone": x, "first": x, "other": y, "second": y}
    del d["gone"], d["other"]
    np.testing.assert_array_equal(f(d), -X)


def test_another_structure_is_left_to_python():
    f = weft.jit(lambda t: t["a"][0] + 1)
    x = wnp.asarray(X)
    for _ in range(3):
        f({"a": [x]})
    with pytest.raises(KeyError):
        f({"b": [x]})
    with pytest.raises(TypeError, match=r"t\['a'\]\[0\]"):
        f({"a": ["text"]})
    np.testing.assert_array_equal(f({"a": (x,)}), X + 1)
    np.testing.assert_array_equal(f({"a": [x, None]}), X + 1)
    assert f({"a": [x[:3]]}).shape == (3,)
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        f({"a": [x]})


@weft.tree_util.register_pytree_node_class
class Pair:
    def __init__(self, first, second, name="pair"):
        self.first, self.second, self.name = first, second, name

    def tree_flatten(self):
        return (self.first, self.second), self.name

    @classmethod
    def tree_unflatten(cls, name, children):
        return cls(*children, name)


def fast_paths(jitted):
    """Return the leaf functions that have native entries of a jitted function. They fail if they
    run in Python."""
    known = list(jitted._cache.fast_paths.values())
    for quick in known:
        quick._slow = refuse
    return known


def test_user_nodes_flatten_in_python_and_run_natively():
    x, y = wnp.asarray(X), wnp.asarray(2 * X)
    f = weft.jit(lambda p, n: Pair(p.first + n, [p.second], p.name), static_argnums=1)
    for _ in range(3):
        f(Pair(x, y), 1)
    if dispatch.can_dispatch(type(f)):
        assert len(fast_paths(f)) == 1
    out = f(Pair(y, x), 1)
    assert (type(out), type(out.second), out.name) == (Pair, list, "pair")
    np.testing.assert_array_equal((out.first, out.second[0]), (2 * X + 1, X))
    assert f(Pair(x, y, "other"), 1).name == "other"  # other static data: the call runs in Python
    np.testing.assert_array_equal(f(Pair(x, y), 2).first, X + 2)


def test_the_structure_of_results_may_depend_on_types():
    f = weft.jit(lambda p: [p.first] if p.first.dtype == np.float32 else (p.first, p.second))
    x, i = wnp.asarray(X), wnp.arange(6)
    for _ in range(3):
        assert [type(f(Pair(v, v))) for v in (x, i, x)] == [list, tuple, list]
    weft.clear_caches()
    assert not f._cache.fast_paths and type(f(Pair(i, i))) is tuple


def test_results_may_have_static_data_that_cannot_be_compared():
    f = weft.jit(lambda x: Pair(x + 1, x, np.arange(3)))
    for _ in range(3):
        assert [f(wnp.ones(n)).first.shape for n in (2, 3)] == [(2,), (3,)]


def no_structures(monkeypatch):
    """Make any computation of the arguments' structure fail."""
    monkeypatch.setattr(weft._engine.api.jit.JitFunction, "_flatten", refuse)


def test_nodes_of_expected_structures_are_flattened_once(monkeypatch):
    flattened = []

    class Counted(Pair):
        pass

    weft.tree_util.register_pytree_node(
        Counted, lambda p: flattened.append(p) or p.tree_flatten(), Counted.tree_unflatten
    )
    x, y = wnp.asarray(X), wnp.asarray(2 * X)
    f = weft.jit(
        lambda p, n, *, more: [Counted(p.first + n, p.second), *more.values()], static_argnums=1
    )
    g = weft.jit(
        lambda ps, mode, *, scale: [p.first * scale if mode == "double" else p.second for p in ps],
        static_argnums=(1,),
        static_argnames="scale",
    )
    for _ in range(24):
        f(Counted(x, y), 1, more={"x": x})
        g([Pair(x, y), Pair(y, x)], "double", scale=2)
    if not dispatch.can_dispatch(type(f)):
        pytest.skip("no native dispatch")
    with monkeypatch.context() as patched:
        no_structures(patched)
        flattened.clear()
        out = f(Counted(y, x), 1, more={"x": y})
        assert len(flattened) == 1
        np.testing.assert_array_equal((out[0].first, out[0].second, out[1]), (2 * X + 1, X, 2 * X))
        np.testing.assert_array_equal(
            g([Pair(y, x), Pair(x, y)], "double", scale=2), (4 * X, 2 * X)
        )
        for other in (
            lambda: f(Counted(y, x), 2, more={"x": y}),
            lambda: f(Counted(y, x, "name"), 1, more={"x": y}),
            lambda: f(Counted(y, x), 1, more={"y": y}),
            lambda: f(Counted(y, None), 1, more={"x": y}),
            lambda: f(Counted(y, (x,)), 1, more={"x": y}),
            lambda: f(Counted(y, "text"), 1, more={"x": y}),
            lambda: f(Pair(y, x), 1, more={"x": y}),
            lambda: f(Counted(y, x), True, more={"x": y}),
            lambda: g([Pair(y, x), Pair(x, y)], "double", scale=2.0),
            lambda: g([Pair(y, x)], "double", scale=2),
        ):
            with pytest.raises(AssertionError, match="should not have needed"):
                other()
    np.testing.assert_array_equal(g([Pair(y, x), Pair(x, y)], "other", scale=2), (X, 2 * X))
    np.testing.assert_array_equal(f(Counted(y, (x,)), 1, more={"x": y})[0].second[0], X)
    with pytest.raises(TypeError, match="text"):
        f(Counted(y, "text"), 1, more={"x": y})


def test_an_expected_structure_under_other_settings():
    x, seen = wnp.asarray(X), []
    f = weft.jit(lambda p: seen.append(type(p.first)) or Pair(p.first + 1, p.second))
    for _ in range(24):
        f(Pair(x, x))
    assert len(seen) == 1
    with weft.disable_jit():
        f(Pair(x, x))
    assert len(seen) == 2 and seen[1] is Array
    np.testing.assert_array_equal(weft.vmap(f)(Pair(x, x)).first, X + 1)
    np.testing.assert_array_equal(weft.grad(lambda x: f(Pair(x, x)).first.sum())(x), np.ones(6))
    weft.clear_caches()
    assert f._cache.expected is None
    f(Pair(x, x))
    assert sum(kind is Array for kind in seen) == 1


def test_structures_that_alternate_are_not_expected():
    x = wnp.asarray(X)
    f = weft.jit(lambda p: p.first + 1)
    for _ in range(24):
        for name in ("one", "other"):
            f(Pair(x, x, name))
            assert f._cache.expected is None
    assert len(f._cache.fast_paths) in (0, 2)


def test_donated_leaves_of_nodes_are_deleted():
    f = weft.jit(lambda p: Pair(p.first + 1, p.second), donate_argnums=0)
    p = Pair(wnp.asarray(X), wnp.asarray(X))
    for k in range(4):
        before, p = p, f(p)
        assert before.first.is_deleted() and float(p.first[0]) == k + 1
    with pytest.raises(RuntimeError, match="deleted"):
        f(before)


def test_numbers_among_arrays_and_by_name():
    x = wnp.asarray(X)
    f = install_native_entries(
        lambda x, t, *, scale, shift: (x * scale + t[0] - shift, t[1]),
        x,
        (2, True),
        shift=x,
        scale=0.5,
    )
    for n in (0, -1, 2**31 - 1, -(2**31)):
        out, flag = f(x, (n, n > 0), shift=x, scale=1.5)
        np.testing.assert_array_equal(out, X * np.float32(1.5) + np.float32(n) - X)
        assert bool(flag) == (n > 0)


NUMPY = {
    "float32": np.arange(12, dtype=np.float32).reshape(3, 4),
    "float64": np.linspace(-3, 3, 21).reshape(3, 7) * 1e30,
    "int64": np.arange(-9, 9) * (1 << 29),
    "no dims": np.array(2.5),
    "one": np.ones((1, 1, 1), np.int8),
    "bool": np.eye(3, dtype=bool),
    "bfloat16": np.arange(5).astype(weft.numpy.bfloat16),
    "complex": np.arange(5) * np.complex64(1j),
    "complex128": np.arange(5) * 2j,
    "uint64": np.arange(19, dtype=np.uint64) << np.uint64(30),
    "half": np.ones(9, np.float16),
    "large": np.arange(1 << 16, dtype=np.float32),
    "a number": np.float32(1.5),
    "a wide number": np.float64(1e300),
    "a wide int": np.int64(1 << 40),
    "a byte": np.uint8(200),
    "a truth": np.bool_(True),
    "a half": np.float16(-0.5),
}


@pytest.mark.parametrize("kind", NUMPY)
def test_arrays_and_numbers_of_numpy(kind):
    x, one = NUMPY[kind], wnp.asarray(X)
    f = install_native_entries(
        lambda x, t: (x * 2 if x.dtype != bool else ~x, t[1] + 1), x, (x, one)
    )
    with weft.disable_jit(), np.errstate(over="ignore"):
        want = wnp.asarray(x) * 2 if x.dtype != bool else ~wnp.asarray(x)
    out, other = f(x, (x, one))
    assert out.dtype == want.dtype and out.weak_type == want.weak_type
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(other, X + 1)


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x.T,
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, 0)[::2],
        lambda x: x.astype(np.float64),
        lambda x: x[None],
        lambda x: x[:3],
        lambda x: x.astype(">f4"),
        lambda x: x.astype(np.int32),
        lambda x: np.ma.array(x, mask=False).data,
        lambda x: (
            np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
        ),
        lambda x: x.view(np.recarray),
    ],
)
def test_other_arrays_of_numpy_are_left_to_python_or_match(other):
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    f = weft.jit(lambda x: x + 1)
    for _ in range(4):
        f(x)
    np.testing.assert_array_equal(f(other(x)), other(x) + 1)
    np.testing.assert_array_equal(f(x), x + 1)


def test_arrays_of_numpy_are_copied():
    x = np.arange(6, dtype=np.float32)
    f = install_native_entries(lambda x: (x, x[::2] + 0), x)
    value, _ = f(x)
    x[:] = -1
    np.testing.assert_array_equal(value, np.arange(6))
    n = 700
    a, scale = wnp.ones((n, n)), np.ones(n, np.float32)

    def long(a, scale):
        for _ in range(20):
            a = a @ a / n
        return a * scale

    g = weft.jit(long)
    results = []
    for k in range(6):  # also queued ones
        scale[:] = k
        results.append(g(a, scale))
    scale[:] = -1
    for k, result in enumerate(results):
        np.testing.assert_allclose(result, np.full((n, n), k), rtol=1e-5)


def test_donated_arrays_of_numpy_stay_as_they_are():
    x = np.arange(6, dtype=np.float32)
    f = weft.jit(lambda x, t: (x + 1, t * 2), donate_argnums=(0, 1))
    for _ in range(4):
        y, _ = f(x, 1.5)
        np.testing.assert_array_equal(y, np.arange(6) + 1)
        np.testing.assert_array_equal(x, np.arange(6))


def test_a_guard_of_transfers_sees_arrays_of_numpy():
    x = np.arange(6, dtype=np.float32)
    f = install_native_entries(lambda x: x + 1, x)
    f._slow = type(f)(lambda x: x)._slow
    with (
        weft.transfer_guard("disallow"),
        pytest.raises(RuntimeError, match="Disallowed host-to-device transfer"),
    ):
        f(x)
    np.testing.assert_array_equal(f(x), X + 1)


def test_calls_with_arrays_of_numpy_leave_nothing_behind():
    x, number = np.arange(1000.0), np.float32(3)
    f = install_native_entries(lambda x, t, n: (x + n, t), x, (x,), number)
    static = weft.jit(lambda x, n: x + n, static_argnums=1)
    for n in (1, 2):
        static(x, n)
    f(x, (x,), number)
    gc.collect()
    before = buffer.allocated_bytes(), sys.getrefcount(x), sys.getrefcount(number)
    for _ in range(20_000):
        f(x, (x,), number)
        static(x, 2)
    gc.collect()
    assert (buffer.allocated_bytes(), sys.getrefcount(x), sys.getrefcount(number)) == before


def test_a_hundred_thousand_calls_leave_nothing_behind():
    x = wnp.asarray(X) + 0
    key = "a key of its own"
    tree = {key: [x, (x, None)], "other": x}
    f = install_native_entries(more, tree)
    result = f(tree)
    held = (x, x._spec, x._buffer, key, tree, f, type(x))
    for _ in range(2):  # the first round fills the free lists
        weft.block_until_ready(f(result))
        gc.collect()
        before = (
            [sys.getrefcount(h) for h in held],
            buffer.allocated_bytes(),
            len(weft.live_arrays()),
        )
        for _call in range(50_000):
            result = f(tree)
            f(result)
        weft.block_until_ready(f(result))
        gc.collect()
        after = (
            [sys.getrefcount(h) for h in held],
            buffer.allocated_bytes(),
            len(weft.live_arrays()),
        )
    assert after == before
    del result
    assert buffer.allocated_bytes() == before[1] - 3 * X.nbytes


def test_more_arrays_die_at_once_than_are_kept():
    x = wnp.asarray(X)
    f = install_native_entries(lambda x: [x + i for i in range(50)], x)
    weft.block_until_ready(f(x))
    type_references, before = sys.getrefcount(Array), buffer.allocated_bytes()
    held = [f(x) for _ in range(200)]
    weft.block_until_ready(held)
    assert buffer.allocated_bytes() == before + 200 * 50 * X.nbytes
    del held
    assert buffer.allocated_bytes() == before
    assert type_references <= sys.getrefcount(Array) <= type_references + 10_000
    np.testing.assert_array_equal(f(x)[49], X + 49)


def test_what_refers_to_a_dying_array():
    x = wnp.asarray(X)
    f = install_native_entries(lambda x: x + 1, x)
    died = []
    out = f(x)
    reference = weakref.ref(out, died.append)
    view, shard = (
        out.__array__(),
        out.addressable_shards[0].data,
    )  # from Python 3.12 on a buffer of `out` would keep it
    assert any(a is out for a in weft.live_arrays()) and gc.is_tracked(out)
    del out
    assert died == [reference] and reference() is None
    for _ in range(10):
        assert f(x) is not None  # none of them reuses the memory
    np.testing.assert_array_equal(view, X + 1)
    np.testing.assert_array_equal(shard, X + 1)
    fresh = f(x)
    assert (
        not hasattr(fresh, "_view")
        and not hasattr(fresh, "_parts")
        and weakref.getweakrefcount(fresh) == 0
    )


def test_an_array_of_a_subclass_dies_as_well():
    class Named(Array):
        __slots__ = ("name", "__dict__")

    x = wnp.asarray(X)
    f = install_native_entries(lambda x: x + 1, x)
    references = sys.getrefcount(Named)
    for i in range(100):
        named = Named(x._spec, f(x)._live())
        named.name = named.more = str(i)
        np.testing.assert_array_equal(named, X + 1)
        watcher = weakref.ref(named)
        del named
        assert watcher() is None
    assert sys.getrefcount(Named) == references


def test_arrays_half_made():
    for _ in range(100):
        empty = Array.__new__(Array)
        del empty
    f = install_native_entries(lambda x: x + 1, wnp.asarray(X))
    np.testing.assert_array_equal(f(wnp.asarray(X)), X + 1)


@needs_native
def test_no_memory_for_the_objects_of_a_result():
    _testcapi = pytest.importorskip("_testcapi")
    x = wnp.asarray(X)
    tree = [(x, {"a": x, "b": [x] * 40}), [x] * 40]
    f = install_native_entries(more, tree)
    outputs = [
        f(tree) for _ in range(40)
    ]  # arrays and small containers from the free lists are in use
    before, arrays = buffer.allocated_bytes(), len(weft.live_arrays())
    failures = 0
    for start in range(120):
        _testcapi.set_nomemory(start, start + 1)
        try:
            out = f(tree)
        except MemoryError:
            out = None
        finally:
            _testcapi.remove_mem_hooks()  # before the next allocation
        if out is None:
            failures += 1
        else:
            outputs.append(out)
        del out
    added = len(outputs) - 40
    assert failures > 20
    assert buffer.allocated_bytes() == before + added * 82 * X.nbytes
    assert len(weft.live_arrays()) == arrays + added * 82


def test_a_host_call_that_raises_frees_the_results():
    fail = []

    def look(x):
        if fail:
            raise ValueError("the host says no")
        return np.asarray(x)

    def program(t):
        seen = weft.pure_callback(look, weft.ShapeDtypeStruct((6,), np.float32), t[0])
        return [x + seen for x in t]

    tree = [wnp.asarray(X)] * 20
    f = weft.jit(program)
    for _ in range(3):
        weft.block_until_ready(f(tree))
    gc.collect()
    before = buffer.allocated_bytes()
    fail.append(True)
    for _ in range(20):
        with pytest.raises(Exception, match="the host says no"):
            weft.block_until_ready(f(tree))
    gc.collect()
    assert buffer.allocated_bytes() == before
    fail.clear()
    np.testing.assert_array_equal(f(tree)[19], 2 * X)


def test_a_call_holds_an_entry_that_is_forgotten_meanwhile():
    held = []

    def forget(x):
        if held:
            entry = weakref.ref(*jitted._entries.values())
            jitted.clear_cache()
            held.append(entry)
            assert entry() is not None
        return x * 2

    jitted = install_native_entries(
        lambda x: weft.pure_callback(forget, weft.ShapeDtypeStruct((3,), "float32"), x) + 1,
        wnp.arange(3.0),
    )
    if not jitted._entries:
        pytest.skip("no native dispatch here")
    held.append(None)
    np.testing.assert_array_equal(jitted(wnp.arange(3.0)), [1, 3, 5])
    assert held[1]() is None


def test_threads_call_one_function():
    leaves = [wnp.asarray(X + i) for i in range(8)]
    f = install_native_entries(more, [leaves[0]] * 30)
    wrong = []

    def work(i):
        for _ in range(3000):
            out = f([leaves[i]] * 30)
            if not (np.asarray(out[29]) == X + i + 1).all():
                wrong.append(i)

    weft.block_until_ready(f([leaves[0]] * 30))
    before = buffer.allocated_bytes()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert buffer.allocated_bytes() == before


def test_a_forked_child_calls_on():
    code = """
import os, sys
import numpy as np, weft, weft.numpy as wnp
f = weft.jit(lambda t: [x + 1 for x in t])
tree = [wnp.arange(6.0)] * 30
for _ in range(3): out = f(tree)
child = os.fork()
for _ in range(1000): out = f(out)
assert (np.asarray(out[29]) == np.arange(6) + 1001).all()
if not child: os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@needs_native
@pytest.mark.parametrize("broken", [False, True], ids=["sound", "that thread fails"])
def test_calls_go_on_in_python_while_native_dispatch_is_compiled(tmp_path, broken):
    code = f"""
import threading
import weft, weft.numpy as wnp
from weft._engine.backends.cpu import native_entries as dispatch
from weft._engine.codegen.toolchain import target
go, emit = threading.Event(), target.emit_in_background
def emit_late(*module):
    go.wait()
    if {broken}: raise OSError("no memory")
    return emit(*module)
target.emit_in_background = emit_late
f = weft.jit(lambda x: x + 1)
x = wnp.arange(6.0)
for k in range(40):                       # more calls than an entry is tried for
    x = f(x)
assert not dispatch.can_dispatch(type(f))
go.set()
while not dispatch.can_dispatch(type(f)): x, k = f(x), k + 1
f._slow = None                            # the next one is past Python
x, k = f(x), k + 1
assert x.tolist() == [i + k + 1 for i in range(6)]
"""
    env = dict(os.environ, WEFT_CACHE_DIR=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, timeout=120, capture_output=True, text=True
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
