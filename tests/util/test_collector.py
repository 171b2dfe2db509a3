"""Pauses of the garbage collector."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import weft
from weft._engine.util.user_code_suspension import paused


@pytest.fixture(params=[True, False])
def enabled(request):
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_pauses_nest_and_leave_the_collector_as_it_was(enabled):
    with paused:
        with paused:
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() == enabled
    with pytest.raises(KeyError), paused:
        raise KeyError
    assert gc.isenabled() == enabled


def test_pauses_of_threads_overlap(enabled):
    inside, leave = threading.Event(), threading.Event()

    def other():
        with paused:
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with paused:
        thread.start()
        assert inside.wait(60)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled() == enabled


def test_compiling_leaves_the_collector_as_it_was(enabled):
    assert weft.jit(lambda x: x * 3 + 1)(np.float32(2)) == 7
    assert gc.isenabled() == enabled
