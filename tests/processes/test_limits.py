"""The error of a limit that has passed names the setting of the limit."""

import signal

import pytest

from tests.harness.processes import run_python
from tests.processes.ranks import free_port, ranks, run_ranks


def waits():
    import os
    import sys
    import time

    import weft
    import weft.distributed
    from weft._engine import processes

    weft.distributed.initialize(initialization_timeout=200, shutdown_timeout_seconds=2)
    print("begun", flush=True)
    if weft.process_index() == 1:
        time.sleep(12)
        os._exit(3)
    if sys.argv[1] == "collective":
        processes.current().barrier("all")
    if sys.argv[1] == "heartbeat":
        time.sleep(100)
    weft.distributed.shutdown()


@pytest.mark.parametrize(
    "limit, setting",
    [("collective", "WEFT_COLLECTIVE_TIMEOUT sets"), ("shutdown", "shutdown_timeout_seconds sets")],
)
def test_an_absent_process_is_told_with_the_limit(limit, setting):
    outcomes = run_ranks(
        2,
        waits,
        initialize=False,
        arguments=[limit],
        environment={"WEFT_COLLECTIVE_TIMEOUT": "2"},
        check=False,
    )
    assert "absent   processes 1" in outcomes[0].err and setting in outcomes[0].err, outcomes[0].err


def test_a_silent_process_is_told_with_the_limit():
    with ranks(
        2,
        waits,
        initialize=False,
        arguments=["heartbeat"],
        environment={"WEFT_HEARTBEAT_TIMEOUT": "3"},
    ) as running:
        for rank in range(2):
            running.wait_for("begun", rank)
        running.kill(1, signal.SIGSTOP)
        assert running.processes[0].wait(60) is not None
        assert "process 1 was silent" in running.output(
            0, "err"
        ) and "WEFT_HEARTBEAT_TIMEOUT sets" in running.output(0, "err")


@pytest.mark.parametrize(
    "rank, text", [(0, "absent   processes 1"), (1, "cannot reach the coordinator")]
)
def test_a_late_start_is_told_with_the_limit(rank, text):
    program = f"import weft.distributed as d; d.initialize('127.0.0.1:{free_port()}', 2, {rank}, initialization_timeout=1)"
    done = run_python("-c", program)
    assert (
        done.returncode != 0
        and text in done.stderr
        and "initialization_timeout sets" in done.stderr
    ), done.stderr
