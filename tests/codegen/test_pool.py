"""The thread pool: every task runs once, from any thread, nested, after a fork, and at process
exit."""

import ctypes
import os
import random
import signal
import sys
import textwrap
import threading

import pytest

from tests.harness.processes import run_python
from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain.native_library import LibraryModule, link

TASKS = """
declare void @weft_parallel_for(ptr, ptr, i64)
declare ptr @weft_scratch_take(i64)
declare void @weft_scratch_give(ptr)

define void @count(ptr %c, i64 %task, i64 %wid) {
  %p = getelementptr i64, ptr %c, i64 %task
  %o = atomicrmw add ptr %p, i64 1 monotonic
  ret void
}
; row `task` of an 8-column table is counted by a call inside the call
define void @nested(ptr %c, i64 %task, i64 %wid) {
  %at = mul i64 %task, 8
  %p = getelementptr i64, ptr %c, i64 %at
  call void @weft_parallel_for(ptr @count, ptr %p, i64 8)
  ret void
}
define void @whose(ptr %c, i64 %task, i64 %wid) {
  %p = getelementptr i64, ptr %c, i64 %task
  %w = add i64 %wid, 1
  store i64 %w, ptr %p
  ret void
}
; a worker writes to address 0, and the caller waits
define void @fault(ptr %c, i64 %task, i64 %wid) {
entry:
  br label %spin
spin:
  %caller = icmp eq i64 %wid, 0
  br i1 %caller, label %spin, label %crash
crash:
  store volatile i32 1, ptr null
  ret void
}
; slot `wid` must be ours alone while the task runs: word 0 of the table counts the times it was not
define void @own(ptr %c, i64 %task, i64 %wid) {
entry:
  %w = add i64 %wid, 1
  %p = getelementptr i64, ptr %c, i64 %w
  %o = atomicrmw add ptr %p, i64 1 seq_cst
  br label %spin
spin:
  %k = phi i64 [ 0, %entry ], [ %k1, %spin ]
  %v = load atomic i64, ptr %p seq_cst, align 8
  %k1 = add i64 %k, 1
  %m = icmp ult i64 %k1, 200
  br i1 %m, label %spin, label %end
end:
  %q = atomicrmw sub ptr %p, i64 1 seq_cst
  %shared = icmp ne i64 %q, 1
  %add = zext i1 %shared to i64
  %r = atomicrmw add ptr %c, i64 %add seq_cst
  ret void
}
"""


@pytest.fixture(scope="module")
def tasks():
    return link(
        [LibraryModule("tasks", lambda: TASKS, ("count", "nested", "own", "whose"))], pool.symbols()
    )


def table(n):
    return (ctypes.c_int64 * n)()


def count_calls(address, rounds, seed):
    """Run jobs of random sizes and return those whose tasks did not all run exactly once."""
    pick = random.Random(seed)
    wrong = []
    for _ in range(rounds):
        n = pick.choice((0, 1, 2, 3, 7, 64, 255, 700))
        counts = table(n)
        pool.parallel_for(address, ctypes.addressof(counts), n)
        if any(c != 1 for c in counts):
            wrong.append((n, list(counts)))
    return wrong


def test_every_task_runs_once(tasks):
    assert count_calls(tasks["count"], 3000, 0) == []


@pytest.mark.parametrize("n", [65_535, 65_536, 65_537, 200_000])
def test_many_tasks_run_once(tasks, n):
    """Exceeds the number of tasks that each half of a ticket can count."""
    counts = table(n)
    pool.parallel_for(tasks["count"], ctypes.addressof(counts), len(counts))
    assert set(counts) == {1}


def test_the_caller_takes_front_tasks_and_workers_back_tasks(tasks):
    """A thread then reads the memory that it wrote in the job before."""
    for n in [2, 7, 255, 65_535] * 50:
        who = table(n)
        pool.parallel_for(tasks["whose"], ctypes.addressof(who), n)
        odd = [(w - 1) % 2 for w in who]
        assert odd == sorted(odd) and min(who) > 0


def test_callers_on_several_threads(tasks):
    wrong = []
    threads = [
        threading.Thread(target=lambda k=k: wrong.extend(count_calls(tasks["count"], 2000, k)))
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_nested_calls_run_inline(tasks):
    for _ in range(200):
        counts = table(16 * 8)
        pool.parallel_for(tasks["nested"], ctypes.addressof(counts), 16)
        assert list(counts) == [1] * 128


def test_worker_ids_are_small_and_not_shared(tasks):
    slots = table(1 + pool.num_threads())
    for _ in range(200):
        pool.parallel_for(tasks["own"], ctypes.addressof(slots), 64)
    assert list(slots) == [0] * (1 + pool.num_threads())


def test_wakes_after_sleeping(tasks):
    pause = threading.Event()
    for _ in range(5):
        pause.wait(0.01)
        assert count_calls(tasks["count"], 5, 1) == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_child_has_its_own_workers(tasks):
    assert count_calls(tasks["count"], 50, 2) == []
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if count_calls(tasks["count"], 500, 3) == [] else 2
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert count_calls(tasks["count"], 500, 4) == []


def run_script(body, **env):
    script = "import ctypes, os, signal, sys, threading, time\nfrom weft._engine.codegen.runtime import pool\n"
    script += (
        "from weft._engine.codegen.toolchain.native_library import LibraryModule, link\n"
        + textwrap.dedent(body)
    )
    return run_python("-c", script, timeout=60, **{"TASKS": TASKS, **env})


START = (
    "a = link([LibraryModule('tasks', lambda: os.environ['TASKS'], ('count', 'nested', 'own', 'fault'))], pool.symbols())\n"
    "b = (ctypes.c_int64 * 64)()\n"
)
RUN = "pool.parallel_for(a['count'], ctypes.addressof(b), 64)\n"


def test_exit_while_another_thread_runs_jobs():
    body = START + (
        "def forever():\n"
        "    while True: pool.parallel_for(a['count'], ctypes.addressof(b), 64)\n"
        "threading.Thread(target=forever, daemon=True).start()\n"
        "time.sleep(0.05)\n"
        "print('leaving')\n"
    )
    done = run_script(body)
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaving\n", "")


def test_jobs_at_exit_still_run():
    body = "import atexit\n" + START + f"atexit.register(lambda: print(sum(b)))\n{RUN}"
    body += "pool._stop_at_exit()\n" + RUN
    done = run_script(body)
    assert (done.returncode, done.stdout, done.stderr) == (0, "128\n", "")


def test_signals_reach_python():
    body = START + (
        "seen = []\n"
        "signal.signal(signal.SIGALRM, lambda *_: seen.append(threading.current_thread() is threading.main_thread()))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n"
        "end = time.monotonic() + 0.3\n"
        "n = 0\n"
        "while time.monotonic() < end:\n"
        f"    {RUN}"
        "    n += 1\n"
        "    if n % 50 == 0: time.sleep(0.002)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "print(bool(seen) and all(seen), set(b) == {n})\n"
    )
    done = run_script(body)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True True\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="there are workers on Linux only")
def test_faulthandler_reports_crashes_of_workers():
    body = "import faulthandler\nfaulthandler.enable()\n" + START
    done = run_script(body + RUN.replace("count", "fault"), WEFT_NUM_THREADS="2")
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_number_of_threads_is_configurable(threads):
    body = START + f"for _ in range(300):\n    {RUN}print(pool.num_threads(), set(b))\n"
    done = run_script(body, WEFT_NUM_THREADS=threads)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{threads} {{300}}\n", "")


def test_fork_while_another_thread_runs_jobs():
    body = START + (
        "import os\n"
        "def forever():\n"
        "    c = (ctypes.c_int64 * 64)()\n"
        "    while True: pool.parallel_for(a['count'], ctypes.addressof(c), 64)\n"
        "threading.Thread(target=forever, daemon=True).start()\n"
        "time.sleep(0.02)\n"
        "alive = ctypes.c_int32.from_address(pool._addresses()['weft_pool_alive'])\n"
        "for _ in range(20):\n"
        "    time.sleep(0.001)\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        none = alive.value\n"
        f"        {RUN}"
        "        os._exit(0 if (none, set(b), alive.value) == (0, {1}, 2) else 1)\n"
        "    if os.waitpid(pid, 0)[1]: print('wrong')\n"
        "print('done')\n"
    )
    done = run_script(body, WEFT_NUM_THREADS="3")
    assert (done.returncode, done.stdout) == (0, "done\n")


def test_bad_number_of_threads():
    done = run_script("pool.num_threads()", WEFT_NUM_THREADS="none")
    assert "WEFT_NUM_THREADS must be a positive integer, got 'none'" in done.stderr


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_source_parses_for_each_architecture(machine):
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(pool.source(machine))
    module.verify()
    assert {"weft_parallel_for", "weft_scratch_take"} <= {f.name for f in module.functions}


def test_scratch_blocks_are_kept():
    take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(pool.symbols()["weft_scratch_take"])
    give = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(pool.symbols()["weft_scratch_give"])
    a = take(5 << 20)
    b = take(5 << 20)
    assert a % 64 == 0 and abs(a - b) >= 5 << 20
    ctypes.memset(a, 1, 5 << 20)
    give(a)
    assert take(100) == a
    give(a)
    give(b)


@pytest.mark.skipif(
    sys.platform != "linux", reason="asks the kernel which pages are advised to be huge"
)
def test_only_large_scratch_asks_for_huge_pages():
    body = textwrap.dedent("""
        def advised():
            with open("/proc/self/smaps") as lines:
                return sum(line.startswith("VmFlags") and " hg" in line for line in lines)

        take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(pool.symbols()["weft_scratch_take"])
        little = [take(n) for n in (1, 65536, 500_000)]
        print([at % 4096 for at in little], advised())
        large = [take(n) for n in (524_288, 5 << 20)]
        print([at % (2 << 20) for at in large], advised() > 0)
    """)
    assert run_script(body).stdout.splitlines() == ["[64, 64, 64] 0", "[64, 64] True"]
