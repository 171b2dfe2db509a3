"""The errors of the other ranks when a rank is killed, stopped, raises, leaves, is interrupted or
does not start: prompt and in all processes."""

import signal
import time

import pytest

from tests.processes.ranks import ranks, run_ranks

#: the seconds within which survivors notice a killed process
KILLED_S = 5.0
SHORT = {"WEFT_COLLECTIVE_TIMEOUT": "2"}


def victims():
    """Run each rank until something happens, in the way that the argument names, and print the
    exception."""
    import sys
    import time

    import numpy as np

    import weft
    from weft._engine import processes
    from weft._engine.processes.collective_plan import CollectivePlan

    shared, what = processes.current(), sys.argv[1]
    count = {"large": 3_000_000}.get(what, 100)
    x, y = np.ones(count, np.float32), np.zeros(count, np.float32)
    everybody = (tuple(range(shared.size)),)
    handle = shared.transport.plan(
        CollectivePlan(
            "all_reduce", "float32", count, "sum", everybody, origin="train.py:7 in step"
        )
    )

    def step():
        shared.transport.wait(shared.transport.start(handle, x.ctypes.data, y.ctypes.data))

    step()
    print("ready", flush=True)
    try:
        if what == "sleep":
            while True:
                time.sleep(50)
        if what == "compute":
            while True:
                sum(range(1000))
        if what == "barrier":
            for i in range(1_000_000):
                shared.barrier(f"number {i}")
                time.sleep(0.001)
        if what == "raise" and shared.rank == 1:
            time.sleep(1)  # by then the others are in the next step, and wait for this rank
            raise LookupError("a bad batch")
        if what == "absent" and shared.rank == 1:
            time.sleep(40)
        if what == "leave" and shared.rank == 1:
            sys.exit(0)
        if what == "busy":
            with shared.report_busy("compiling step"):
                time.sleep(5 * (shared.rank == 1))
            step()
            print("went on", flush=True)
            sys.exit(0)
        while True:
            step()
    except weft.errors.ProcessFailureError as error:
        print("raised", error.ranks, time.time(), flush=True)
        print(error, flush=True)
        if what == "stay":
            time.sleep(2)
        raise


def raised_at(rank):
    return float(rank.out.partition("raised (1,) ")[2].split()[0])


@pytest.mark.parametrize(
    ("what", "transport"),
    [
        ("steps", "auto"),
        ("steps", "mpi"),
        ("sleep", "auto"),
        *[
            pytest.param(what, "auto", marks=pytest.mark.slow)
            for what in ("large", "barrier", "compute")
        ],
    ],
)
def test_survivors_of_a_killed_rank_raise(what, transport):
    with ranks(
        3, victims, arguments=[what], environment={"WEFT_PROCESS_TRANSPORT": transport}
    ) as running:
        for rank in range(3):
            running.wait_for("ready", rank)
        time.sleep(0.2)
        running.kill(1)
        killed = time.time()
        outcomes = running.finish()
    assert outcomes[1].exit_code == -signal.SIGKILL
    for rank in (outcomes[0], outcomes[2]):
        assert rank.exit_code == 1 and raised_at(rank) - killed < KILLED_S
        assert "process 1 has ended, or was killed." in rank.err


def test_the_end_of_the_coordinators_rank_is_noticed():
    with ranks(3, victims, arguments=["steps"]) as running:
        for rank in range(3):
            running.wait_for("ready", rank)
        running.kill(0)
        outcomes = running.finish()
    assert [rank.exit_code for rank in outcomes] == [-signal.SIGKILL, 1, 1]
    assert all(
        "raised (0,)" in rank.out and "process 0 has ended, or was killed." in rank.err
        for rank in outcomes[1:]
    )


def test_a_stopped_rank_fails_when_it_resumes():
    with ranks(
        3, victims, arguments=["stay"], environment={"WEFT_HEARTBEAT_TIMEOUT": "4"}
    ) as running:
        for rank in range(3):
            running.wait_for("ready", rank)
        running.kill(1, signal.SIGSTOP)
        stopped = time.time()
        for rank in (0, 2):
            running.wait_for("raised", rank)
        running.kill(1, signal.SIGCONT)
        outcomes = running.finish()
    assert all(
        rank.exit_code == 1 and raised_at(rank) - stopped < 4 + KILLED_S for rank in outcomes
    )
    assert all("process 1 was silent for 4." in rank.err for rank in outcomes)


def holds_the_interpreter():
    """Keep one rank in a host function for twice the heartbeat timeout, while no other thread of it
    can run Python."""
    import ctypes
    import sys
    import time

    import numpy as np

    import weft
    from weft.experimental.multihost_utils import process_allgather

    if weft.process_index() == int(sys.argv[1]):
        began = time.monotonic()
        ctypes.PyDLL(None).usleep(ctypes.c_uint(8_000_000))  # a PyDLL keeps the interpreter lock
        assert time.monotonic() - began > 7.9
    print(np.asarray(process_allgather(np.int32(weft.process_index()))).tolist(), flush=True)


@pytest.mark.parametrize("busy", [0, 1])
def test_a_rank_in_a_long_host_function_is_waited_for(busy):
    outcomes = run_ranks(
        2, holds_the_interpreter, arguments=[str(busy)], environment={"WEFT_HEARTBEAT_TIMEOUT": "4"}
    )
    assert [rank.out for rank in outcomes] == ["[0, 1]\n"] * 2


def test_a_rank_that_is_stopped_for_a_moment_is_waited_for():
    with ranks(
        2, victims, arguments=["barrier"], environment={"WEFT_HEARTBEAT_TIMEOUT": "6"}
    ) as running:
        for rank in range(2):
            running.wait_for("ready", rank)
        running.kill(1, signal.SIGSTOP)
        time.sleep(3.5)
        running.kill(1, signal.SIGCONT)
        time.sleep(4)
        assert all(process.poll() is None for process in running.processes), running.shown()


@pytest.mark.parametrize("victim", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_stopped_rank_does_not_outlive_the_others(victim):
    with ranks(
        2, victims, arguments=["steps"], environment={"WEFT_HEARTBEAT_TIMEOUT": "2"}
    ) as running:
        for rank in range(2):
            running.wait_for("ready", rank)
        running.kill(victim, signal.SIGSTOP)
        outcomes = running.finish(60)
    assert [rank.exit_code for rank in outcomes] == (
        [-signal.SIGKILL, 1] if victim == 0 else [1, -signal.SIGKILL]
    )


@pytest.mark.parametrize("everybody", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_interrupt_ends_all(everybody):
    with ranks(3, victims, arguments=["steps"]) as running:
        for rank in range(3):
            running.wait_for("ready", rank)
        for rank in range(3) if everybody else [1]:
            running.kill(rank, signal.SIGINT)
        outcomes = running.finish()
    assert all(rank.exit_code for rank in outcomes) and "KeyboardInterrupt" in outcomes[1].err
    if not everybody:
        assert all(
            "what it raised:" in rank.err and "KeyboardInterrupt" in rank.err
            for rank in (outcomes[0], outcomes[2])
        )


def interrupted_as_it_reports():
    """Rank 0 raises; the news that rank 1 was killed arrives by signal at the first line of the
    hook for its exception."""
    import os
    import signal
    import sys
    import time

    from weft._engine import processes
    from weft._engine.processes import state

    shared = processes.current()
    if shared.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while shared.client.failure is None:
        time.sleep(0.01)
    came = []

    def news(frame, event, arg):
        if frame.f_code is state._report_exception.__code__ and not came:
            came.append(frame)
            print("news", shared.client.is_failure_seen, flush=True)
            signal.raise_signal(state._interrupt_signals[0])

    sys.settrace(news)
    raise LookupError("a bad batch")


def test_news_does_not_interrupt_the_report_of_an_exception():
    outcomes = run_ranks(2, interrupted_as_it_reports, check=False)
    assert [rank.exit_code for rank in outcomes] == [1, -signal.SIGKILL] and outcomes[
        0
    ].out == "news False\n", outcomes
    assert "LookupError: a bad batch" in outcomes[0].err and "excepthook" not in outcomes[0].err, (
        outcomes[0].err
    )


def interrupted_in_a_finalizer():
    import signal
    import time
    import weakref

    from weft._engine import processes

    if processes.current().rank == 0:
        canary = set()
        watched = weakref.ref(canary, lambda _: signal.raise_signal(signal.SIGINT))
        del canary
        assert watched() is None
        print("ignored", flush=True)
    time.sleep(100)


def test_an_interrupt_that_python_ignores_comes_again():
    outcomes = run_ranks(2, interrupted_in_a_finalizer, check=False)
    assert [(rank.exit_code, rank.out) for rank in outcomes] == [
        (-signal.SIGINT, "ignored\n"),
        (1, ""),
    ], outcomes
    assert (
        "process 0 raised an exception." in outcomes[1].err
        and "KeyboardInterrupt" in outcomes[1].err
    ), outcomes[1].err


def test_the_exception_of_one_rank_reaches_all():
    outcomes = run_ranks(3, victims, arguments=["raise"], check=False)
    assert [rank.exit_code for rank in outcomes] == [1, 1, 1]
    for rank in (outcomes[0], outcomes[2]):
        assert (
            "process 1 raised an exception." in rank.out and "LookupError: a bad batch" in rank.out
        )
        assert "awaited here" in rank.out and "at train.py:7 in step" in rank.out


@pytest.mark.parametrize("transport", ["auto", pytest.param("mpi", marks=pytest.mark.slow)])
def test_who_does_not_come_is_named_with_its_stack(transport):
    outcomes = run_ranks(
        3,
        victims,
        arguments=["absent"],
        check=False,
        environment={**SHORT, "WEFT_PROCESS_TRANSPORT": transport},
    )
    assert [rank.exit_code for rank in outcomes] == [1, 1, 1]
    first = next(
        rank
        for rank in (outcomes[0], outcomes[2])
        if "all_reduce sum of float32[100]: not all processes arrived within 2 s" in rank.out
    )
    for text in (
        "arrived  processes 0, 2",
        "absent   processes 1",
        "time.sleep(40)",
        "at train.py:7 in step",
    ):
        assert text in first.out
    assert "ProcessFailureError" in outcomes[1].err  # though it was only asleep


def test_who_leaves_is_not_waited_for():
    outcomes = run_ranks(3, victims, arguments=["leave"], check=False)
    assert outcomes[0].exit_code == outcomes[2].exit_code == 1
    assert any(
        "process 1 has left the program, and others wait for it." in rank.out for rank in outcomes
    )


@pytest.mark.slow
def test_who_is_busy_is_waited_for():
    outcomes = run_ranks(3, victims, arguments=["busy"], environment=SHORT)
    assert all(rank.out.endswith("went on\n") for rank in outcomes)


def test_who_does_not_start_is_named():
    begin = "import weft.distributed\nweft.distributed.initialize(initialization_timeout=8)\n"
    with ranks(
        3, begin, environments=[{}, {}, {"WEFT_PROCESS_ID": "0"}], initialize=False
    ) as running:
        outcomes = running.finish()
    assert all(rank.exit_code == 1 for rank in outcomes)
    assert any("there is a process 0 already" in rank.err for rank in outcomes) or any(
        "cannot use the address" in rank.err for rank in outcomes
    )
