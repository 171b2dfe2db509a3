"""Other Python threads get the GIL while one thread calls programs, also where calls are short or
bypass native dispatch."""

import threading
import time

import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.backends.cpu import native_entries

TURNS = 10


class Other(threading.Thread):
    """A thread that gives the GIL up and asks for it a few times."""

    def __init__(self, begin: threading.Event):
        super().__init__(daemon=True)
        self.begin, self.turns = begin, 0
        self.start()

    def run(self):
        self.begin.wait()
        while self.turns < TURNS:
            time.sleep(0)
            self.turns += 1


@pytest.mark.parametrize("leaves", [1, 300])
@pytest.mark.parametrize("native", [False, True])
def test_short_calls_without_a_pause_leave_others_their_turns(native, leaves, monkeypatch):
    if not native:
        monkeypatch.setattr(native_entries, "add_entry", lambda *a: None)
    f, x = (
        weft.jit(lambda t: weft.tree.leaves(t)[0] + 1),
        {f"p{i}": wnp.ones(4) for i in range(leaves)},
    )
    for _ in range(3):
        f(x)
    begin = threading.Event()
    other, until = Other(begin), time.monotonic() + 30
    begin.set()
    while other.is_alive() and time.monotonic() < until:
        f(x)
    assert other.turns == TURNS


def test_a_loop_over_few_bytes_leaves_others_their_turns(monkeypatch):
    """The loop may take long: its number of iterations is unknown."""
    monkeypatch.setattr(native_entries, "add_entry", lambda *a: None)
    weft.config.update("jax_cpu_enable_async_dispatch", False)
    f = weft.jit(lambda n: lax.while_loop(lambda i: i < n, lambda i: i + 1, 0))
    f(3)
    begin = threading.Event()
    other = Other(begin)
    begin.set()
    try:
        f((1 << 31) - 1)
    finally:
        weft.config.update("jax_cpu_enable_async_dispatch", True)
    assert other.turns == TURNS
