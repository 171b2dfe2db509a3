"""Threads whose start nobody waits for."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from weft.util.threads import DaemonThread

SCRIPT = """
import os, signal, time
from weft.util.threads import DaemonThread
signal.signal(signal.SIGINT, signal.default_int_handler)         # which a shell may have children ignore
done = []
"""


def run(script: str) -> str:
    script = SCRIPT + textwrap.dedent(script)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60).stdout


def test_what_it_did_is_there_after_its_end():
    done: list[int] = []
    others = [DaemonThread(done.append, i) for i in range(20)]
    for other in others:
        other.join()
        other.join()
    assert sorted(done) == list(range(20)) and not any(other.is_alive() for other in others)


def test_an_interrupt_of_waiting_comes_after_its_end():
    assert run("""
        other = DaemonThread(lambda: (time.sleep(0.5), done.append(1)))
        DaemonThread(lambda: (time.sleep(0.1), os.kill(os.getpid(), signal.SIGINT), time.sleep(0.1), os.kill(os.getpid(), signal.SIGINT)))
        try:
            other.join()
        except KeyboardInterrupt:
            print(done, other.is_alive())
    """) == "[1] False\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_none():
    assert run("""
        other = DaemonThread(time.sleep, 0.5)
        child = os.fork()
        if child == 0:
            other.join()
            os._exit(other.is_alive())
        print(os.waitpid(child, 0)[1], other.is_alive())
    """) == "0 True\n"


def test_a_process_ends_without_it():
    assert run("""
        DaemonThread(time.sleep, 600)
        print("over")
    """) == "over\n"
