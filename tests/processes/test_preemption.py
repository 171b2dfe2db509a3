"""SIGTERM in one process: all save at the same step and end as preempted; a restart continues with
equal results."""

import os
import signal
import time

import pytest

import weft
from tests.processes.ranks import ranks


def until_told():
    import sys
    import time

    import weft
    from weft.experimental.multihost_utils import reached_preemption_sync_point, sync_global_devices

    rank, stride = weft.process_index(), int(sys.argv[1])
    for step in range(0, 100000, stride):
        if reached_preemption_sync_point(step):
            print("saves at", step, flush=True)
            assert not reached_preemption_sync_point(step + stride)
            sys.exit(weft.distributed.PREEMPTED)
        if step == 20:
            sync_global_devices("all have begun")
            print("is under way", flush=True)
        time.sleep(0.004 * (rank + 1))


@pytest.mark.parametrize(
    "n, stride, victims",
    [(1, 1, [0]), (1, 5, [0, 0]), (3, 1, [2]), (2, 10, [0, 1]), (2, 1, [1] * 5)],
)
def test_all_save_at_one_step_and_end_as_preempted(n, stride, victims):
    with ranks(n, until_told, initialize=n > 1, arguments=[str(stride)]) as running:
        running.wait_for("is under way", n - 1)
        for victim in victims:
            running.kill(victim, signal.SIGTERM)
        outcomes = running.finish()
        steps = {int(rank.out.split("saves at")[-1]) for rank in outcomes}
        assert len(steps) == 1 and steps.pop() >= 20, running.shown()
        assert (
            {rank.exit_code for rank in outcomes}
            == {75}
            == {weft.distributed.PREEMPTED, os.EX_TEMPFAIL}
        )


def late():
    import sys
    import time

    import weft
    from weft.experimental.multihost_utils import reached_preemption_sync_point

    rank, seconds = weft.process_index(), float(sys.argv[1])
    for step in range(100000):
        if rank == 0 or step > 0:
            if reached_preemption_sync_point(step):
                sys.exit(weft.distributed.PREEMPTED)
            print("begun", flush=True)
        else:
            time.sleep(seconds)  # as if it compiled
        time.sleep(0.01)


def test_a_process_that_begins_late_is_waited_for():
    with ranks(2, late, arguments=["3"]) as running:
        running.wait_for("begun")
        running.kill(0, signal.SIGTERM)
        assert [rank.exit_code for rank in running.finish()] == [75, 75]


def test_a_process_that_never_asks_is_named():
    with ranks(2, late, arguments=["300"], environment={"WEFT_COLLECTIVE_TIMEOUT": "2"}) as running:
        running.wait_for("begun")
        running.kill(0, signal.SIGTERM)
        outcomes = running.finish()
        assert all(rank.exit_code not in (0, 75) for rank in outcomes), running.shown()
        assert (
            "weft/preemption/steps" in outcomes[0].err and "absent   processes 1" in outcomes[0].err
        ), running.shown()


def computes():
    from weft.experimental.multihost_utils import reached_preemption_sync_point, sync_global_devices

    assert not reached_preemption_sync_point(0)
    sync_global_devices("all have begun")
    print("computes", flush=True)
    while True:
        pass  # does not wait


def test_remote_failures_interrupt_a_computing_process():
    with ranks(2, computes) as running:
        for rank in range(2):
            running.wait_for("computes", rank)
        running.kill(1)
        began = time.monotonic()
        outcomes = running.finish(60)
        assert "ProcessFailureError" in outcomes[0].err and time.monotonic() - began < 30, (
            running.shown()
        )


def shrinks():
    import sys
    import time

    import weft
    import weft.distributed
    from weft.experimental.multihost_utils import reached_preemption_sync_point, sync_global_devices

    def step(number):
        if reached_preemption_sync_point(number):
            print("saves at", number, flush=True)
            sys.exit(weft.distributed.PREEMPTED)
        time.sleep(0.01)

    try:
        number = 0
        while True:
            step(number)
            number += 1
            if number == 5:
                print("begun", flush=True)
            sync_global_devices("step")
    except weft.errors.ProcessFailureError:
        weft.distributed.shrink()
    for number in range(1000, 100000):
        step(number)
        if number == 1010:
            print("went on", flush=True)
    assert False


def test_survivors_agree_anew():
    with ranks(3, shrinks) as running:
        for rank in range(3):
            running.wait_for("begun", rank)
        running.kill(2)
        for rank in range(2):
            running.wait_for("went on", rank)
        running.kill(1, signal.SIGTERM)
        outcomes = running.finish()
        assert [rank.exit_code for rank in outcomes] == [75, 75, -9], running.shown()
        assert len({rank.out.split("saves at")[1] for rank in outcomes[:2]}) == 1
