"""Compiled programs from many threads, nested, across forks, under interrupts and at the end of the process.

Each case is a separate process with a deadline, so that a program that hangs fails.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)         # which a shell may have children ignore
import numpy as np
import weft, weft.numpy as wnp
from weft import lax

x = np.linspace(0, 4, 300 * 257, dtype=np.float32).reshape(300, 257)
f = weft.jit(lambda x: (wnp.sin(x) * 3).sum(0) @ wnp.tanh(x).T)
g = weft.jit(lambda x: lax.scan(lambda c, r: (c + r, wnp.sort(c * r)), x[0], x)[1])
h = weft.jit(lambda x, k: weft.nn.softmax(x * k, axis=1))

def bits(k=2.0):
    return [np.asarray(y).tobytes() for y in (f(x), g(x), h(x, k))]

def together(*works):
    "Run all at once; an exception of one is one of the caller."
    failed = []
    def guarded(work):
        try:
            work()
        except BaseException as error:
            failed.append(error)
    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    if failed: raise failed[0]

def child(work):
    "Whether `work` holds in a forked process."
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1] == 0
"""


def start(body: str, threads: int = 3) -> subprocess.Popen:
    env = {
        **os.environ,
        "WEFT_NUM_THREADS": str(threads),
        "WEFT_VERIFY": "0",
        "PYTHONWARNINGS": "ignore",
    }
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(body)],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def output(process: subprocess.Popen, deadline: float = 60) -> str:
    try:
        out, err = process.communicate(timeout=deadline)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, "")
    return out


CASES = {
    "threads share functions": """
        want = bits()
        def work():
            for _ in range(30): assert bits() == want
        together(*[work] * 6)
    """,
    "threads meet at the first call": """
        results = []
        together(*[lambda: results.append(tuple(bits()))] * 6)
        assert len(results) == 6 and len(set(results)) == 1
    """,
    "threads trace and compile different programs": """
        def work(k):
            def run():
                for n in range(1, 5):
                    y = weft.jit(lambda v: wnp.cos(v * k).sum() + n)(x)
                    np.testing.assert_allclose(y, np.cos(x * k).sum() + n, rtol=1e-4)
            return run
        together(*[work(k) for k in range(1, 6)])
    """,
    "short-lived threads": """
        want = bits()
        def work(): assert bits() == want
        for _ in range(40): together(*[work] * 4)
        assert threading.active_count() == 1
    """,
    "a callback calls compiled programs": """
        inner = weft.jit(lambda v: wnp.sort(wnp.sin(v) * 2, axis=0))
        outer = weft.jit(lambda v: weft.pure_callback(lambda u: np.asarray(inner(u)), v, v * 1.5).sum(0) + v[0])
        want = np.asarray(outer(x)).tobytes()
        def work():
            for _ in range(10): assert np.asarray(outer(x)).tobytes() == want
        together(*[work] * 4)
    """,
    "a callback inside a callback inside a loop": """
        double = weft.jit(lambda v: v * 2)
        twice = weft.jit(lambda v: weft.pure_callback(lambda u: np.asarray(double(u)), v, v) + 1)
        loop = weft.jit(lambda v: lax.fori_loop(
            0, 5, lambda i, c: weft.pure_callback(lambda u: np.asarray(twice(u)), c, c), v))
        def work(): np.testing.assert_array_equal(loop(np.ones(5000, np.float32)), 63)
        together(*[work] * 4)
    """,
    "a fork in the midst of other threads": """
        want, stop = bits(), []
        def work():
            while not stop: assert bits() == want
        def forks():
            try:
                for k in range(6):
                    assert child(lambda: bits() == want)
                    assert child(lambda: float(weft.jit(lambda v: v.sum() * (k + 1))(np.ones(9000))) == 9000 * (k + 1))
            finally:
                stop.append(1)
        together(forks, work, work)
    """,
    "forks while another thread compiles its first program": """
        os.environ["WEFT_CACHE_DIR"] = "off"
        thread = threading.Thread(target=bits)
        thread.start()
        held = []
        for k in range(8):
            held.append(child(lambda: float(weft.jit(lambda v: v.sum() * (k + 1))(np.ones(90))) == 90 * (k + 1)))
            time.sleep(0.01)
        thread.join()
        assert all(held)
    """,
    "forks of forks": """
        want = bits()
        assert child(lambda: bits() == want and child(lambda: bits() == want and child(lambda: bits() == want)))
        assert bits() == want
    """,
    "multiprocessing by forking": """
        import multiprocessing
        want = bits()
        def work(k): return bits() == want
        with multiprocessing.get_context("fork").Pool(3) as pool:
            assert all(pool.map(work, range(12)))
        assert bits() == want
    """,
    "exit while threads run": """
        bits()
        def forever():
            while True: bits()
        for _ in range(3): threading.Thread(target=forever, daemon=True).start()
        time.sleep(0.1)
    """,
    "exit while a long program runs": """
        loop = weft.jit(lambda v: lax.fori_loop(0, 10**12, lambda i, c: wnp.sin(c) + 0.1, v))
        loop.lower(x).compile()
        threading.Thread(target=loop, args=(x,), daemon=True).start()
        time.sleep(0.2)
    """,
    "programs at exit": """
        import atexit
        want = bits()
        atexit.register(lambda: print("same" if bits() == want else "different"))
    """,
    "signal handlers that call programs": """
        want, seen, rung = bits(), [], []
        def ring(*_):
            rung.append(1)
            nested = len(rung) < 4                 # inside of one another, but not without end on a slow machine
            if nested: again()
            seen.append(bits() == want)
            if not nested: again()
        def again(): signal.setitimer(signal.ITIMER_REAL, 0.005)
        signal.signal(signal.SIGALRM, ring)
        again()
        for _ in range(100): assert bits() == want
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        assert seen and all(seen)
    """,
    "arrays die on other threads": """
        def work():
            for k in range(60):
                arrays = [wnp.asarray(x) * k for _ in range(4)]
                threads = [threading.Thread(target=arrays.pop) for _ in range(3)]
                for thread in threads: thread.start()
                assert float(arrays[0][0, 1]) == float(np.float32(x[0, 1] * np.float32(k)))
                for thread in threads: thread.join()
        together(work, work)
    """,
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
@pytest.mark.parametrize("name", CASES)
def test_stress(name):
    out = output(start(CASES[name]))
    assert out == ("same\n" if name == "programs at exit" else "")


def test_interrupts_while_other_threads_run():
    process = start("""
        want, stop = bits(), []
        def work():
            while not stop: assert bits() == want
        loop = weft.jit(lambda v: lax.fori_loop(0, 10**12, lambda i, c: wnp.sin(c) + 0.1, v))
        loop.lower(x).compile()
        def main():
            for _ in range(3):
                print("ready", flush=True)
                try:
                    weft.block_until_ready(loop(x))
                except KeyboardInterrupt:
                    print("interrupted", flush=True)
        others = [threading.Thread(target=work) for _ in range(2)]
        for other in others: other.start()
        main()
        stop.append(1)
        for other in others: other.join()
        assert bits() == want
    """)
    try:
        for _ in range(3):
            assert process.stdout.readline() == "ready\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.15)
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
    finally:
        output(process)


DIGESTS = """
import hashlib, weft.segment_ops
key = weft.random.key(3)
a = np.random.default_rng(0).normal(size=(700, 129)).astype(np.float32)
w = np.random.default_rng(1).normal(size=(129, 300)).astype(np.float32)
places = wnp.asarray(np.random.default_rng(2).integers(0, 1 << 17, 70001))
parts = wnp.asarray(np.random.default_rng(3).normal(size=(8, 70001)).astype(np.float32))
rows = wnp.asarray(np.random.default_rng(4).normal(size=(9000, 128)).astype(np.float32))
programs = {
    "elementwise": lambda: wnp.exp(a) * wnp.sin(a) + wnp.tanh(a),
    "random bits": lambda: weft.random.normal(key, (501, 77)),
    "permutation": lambda: weft.random.permutation(key, 5001),
    "moves": lambda: wnp.concatenate([a.T[::-1], wnp.pad(a, ((0, 0), (1, 2)))[:129]], axis=1),
    "maximum": lambda: (wnp.max(a, 0), wnp.max(a, 1), wnp.max(a), wnp.argmax(a, 0), wnp.argmin(a)),
    "sort": lambda: (wnp.sort(a, 0), wnp.argsort(a.ravel())),
    "gather": lambda: wnp.asarray(a)[wnp.arange(5000) * 7 % 700],
    "scatter integers": lambda: wnp.zeros((50, 129), int).at[wnp.arange(700) % 50].add(wnp.asarray(a).astype(int)),
    "integer sums": lambda: (wnp.asarray(a) * 100).astype(int).sum(0),
    "softmax": lambda: weft.nn.softmax(a, axis=1),
    "sums of rows": lambda: a @ wnp.ones(129) + wnp.sum(a, 1),
    "sums of columns": lambda: wnp.sum(a, 0),
    "sum": lambda: wnp.sum(a),
    "matmul": lambda: a @ w,
    "deep matmul": lambda: a.T @ a,
    "cumsum": lambda: wnp.cumsum(a, 0),
    "scatter floats": lambda: wnp.zeros((50, 129)).at[wnp.arange(700) % 50].add(a),
    "scatter onto few places": lambda: wnp.zeros(1000).at[places % 1000].add(parts[0]),
    "scatter of pairs onto few places": lambda: wnp.zeros((500, 2)).at[places % 500].add(parts.T[:, :2]),
    "scatter onto many places": lambda: wnp.zeros(1 << 17).at[places].add(parts[0]),
    "products at many places": lambda: wnp.ones(1 << 17).at[places].multiply(parts[0]),
    "last of many at a place": lambda: wnp.zeros(1 << 17).at[places % 5000].set(parts[0]),
    "scatter of rows onto rows": lambda: wnp.zeros((5000, 8)).at[places % 5000].add(parts.T),
    "scatter of rows in their order": lambda: wnp.zeros((3000, 128)).at[places[:9000] % 3000].add(rows),
    "scatter of sorted rows": lambda: wnp.zeros((3000, 128)).at[wnp.sort(places[:9000] % 3000)].add(rows, indices_are_sorted=True),
    "scatter of wide windows": lambda: wnp.zeros((5, 9000)).at[places[:128] % 5].add(rows.reshape(128, 9000)),
    "scatter of bfloat16": lambda: wnp.zeros(1 << 17, "bfloat16").at[places].add(parts[0].astype("bfloat16")),
    "sums of segments": lambda: weft.segment_ops.segment_sum(rows, places[:9000] % 700, 700),
    "counts": lambda: (wnp.bincount(places % 300, parts[0], length=300), wnp.histogram(parts[0], 40)[0]),
    "gradient of rows looked up": lambda: weft.grad(lambda t: (t[places[:9000] % 3000] * rows).sum())(rows[:3000]),
    "gradient": lambda: weft.grad(lambda w: (wnp.tanh(a @ w) ** 2).sum())(w),
}
for name, program in programs.items():
    leaves = weft.tree.leaves(weft.jit(program)())
    print(name, hashlib.sha256(b"".join(np.asarray(y).tobytes() for y in leaves)).hexdigest()[:16], sep=": ")
"""


def test_results_do_not_depend_on_the_number_of_threads():
    results = {
        n: dict(line.split(": ") for line in output(start(DIGESTS, n)).splitlines())
        for n in (1, 2, 3, 7)
    }
    assert len(results[1]) == 31
    different = {
        name
        for values in results.values()
        for name in results[1]
        if values[name] != results[1][name]
    }
    assert different == set()
