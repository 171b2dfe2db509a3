"""Background threads that start without blocking, and forks that wait for critical sections of
other threads."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from weft._engine.util import threads
from weft._engine.util.threads import Background, DaemonThread

SCRIPT = """
import os, signal, time
from weft._engine.util.threads import DaemonThread
signal.signal(signal.SIGINT, signal.default_int_handler)         # which a shell may have children ignore
done = []
"""


def run(script: str) -> str:
    script = SCRIPT + textwrap.dedent(script)
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_what_it_did_is_there_after_its_end():
    done: list[int] = []
    others = [DaemonThread(done.append, i) for i in range(20)]
    for other in others:
        other.join()
        other.join()
    assert sorted(done) == list(range(20)) and not any(other.is_alive() for other in others)


def test_an_interrupt_of_waiting_comes_after_its_end():
    assert (
        run("""
        other = DaemonThread(lambda: (time.sleep(0.5), done.append(1)))
        DaemonThread(lambda: (time.sleep(0.1), os.kill(os.getpid(), signal.SIGINT), time.sleep(0.1), os.kill(os.getpid(), signal.SIGINT)))
        try:
            other.join()
        except KeyboardInterrupt:
            print(done, other.is_alive())
    """)
        == "[1] False\n"
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_none():
    assert (
        run("""
        other = DaemonThread(time.sleep, 0.5)
        child = os.fork()
        if child == 0:
            other.join()
            os._exit(other.is_alive())
        print(os.waitpid(child, 0)[1], other.is_alive())
    """)
        == "0 True\n"
    )


def test_a_process_ends_without_it():
    assert (
        run("""
        DaemonThread(time.sleep, 600)
        print("over")
    """)
        == "over\n"
    )


# ---- forks


def child(work) -> bool:
    """Return whether `work` succeeds in a forked process, which ends itself if it hangs."""
    pid = os.fork()
    if not pid:
        import signal

        signal.alarm(30)
        os._exit(0 if work() else 1)
    return os.waitpid(pid, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_has_whole_modules(tmp_path, monkeypatch):
    (tmp_path / "slow_to_import.py").write_text(
        "import time; began = True; time.sleep(0.3); answer = 42"
    )
    monkeypatch.syspath_prepend(tmp_path)
    thread = threading.Thread(target=__import__, args=("slow_to_import",))
    thread.start()
    while not hasattr(sys.modules.get("slow_to_import"), "began"):
        time.sleep(0.001)
    assert child(lambda: __import__("slow_to_import").answer == 42)
    thread.join()
    del sys.modules["slow_to_import"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_module_may_fork_while_it_is_imported(tmp_path, monkeypatch):
    (tmp_path / "forks.py").write_text(
        "import os\npid = os.fork()\nif not pid: os._exit(7)\nstatus = os.waitpid(pid, 0)[1]"
    )
    monkeypatch.syspath_prepend(tmp_path)
    start = time.monotonic()
    assert os.waitstatus_to_exitcode(__import__("forks").status) == 7
    assert time.monotonic() - start < threads._MAX_WAIT_S
    del sys.modules["forks"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_finds_locks_free():
    lock, over = threads.hold_during_fork(threading.Lock()), threading.Event()

    def work():
        while not over.is_set():
            with lock:
                time.sleep(0.002)

    thread = threading.Thread(target=work)
    thread.start()
    assert all(child(lambda: lock.acquire(timeout=5)) for _ in range(5))
    over.set()
    thread.join()
    assert lock.acquire(timeout=5)
    lock.release()  # forks of other threads would wait for this lock


def test_shared_work_raises_after_all_of_it_has_ended():
    done = []

    def work(k):
        if k == 1:
            raise KeyError(k)
        time.sleep(0.02)
        done.append(k)

    with pytest.raises(KeyError):
        threads.share_work(work, [(k,) for k in range(3)])
    assert sorted(done) == [0, 2]


def test_work_in_the_background_is_done_once_where_nothing_fails():
    done = []
    works = [Background(functools.partial(done.append, k)) for k in range(3)]
    for work in [*works, *works]:
        work.finish()
    assert sorted(done) == [0, 1, 2]


def test_failed_background_work_runs_again_on_demand():
    tried = []

    def work():
        tried.append(threading.current_thread())
        if len(tried) < 3:
            raise KeyError(len(tried))

    begun = Background(work)
    with pytest.raises(KeyError, match="2"):
        begun.finish()
    begun.finish()
    begun.finish()
    assert len(tried) == 3 and tried[1:] == [threading.main_thread()] * 2


def test_one_thread_does_its_work_when_it_is_wanted(monkeypatch):
    monkeypatch.setenv("WEFT_NUM_THREADS", "1")
    done = []
    work = Background(lambda: done.append(threading.current_thread()))
    assert not done
    work.finish()
    assert done == [threading.main_thread()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_does_what_a_thread_of_its_parent_had_begun():
    go, done = threading.Event(), []

    def work():
        if not done and threading.current_thread() is not threading.main_thread():
            go.wait()
        done.append(1)

    begun = Background(work)

    def in_child():
        begun.finish()
        return done == [1]

    assert child(in_child)
    go.set()
    begun.finish()
    assert done == [1]
