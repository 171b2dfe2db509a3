"""The survivors of a failure continue in place: arrays are restored from replicas, and lost arrays
are named."""

import pytest

from tests.processes.hosts import hosts, needs_hosts
from tests.processes.ranks import IS_OPEN_MPI, ranks
from tests.processes.test_launch import Launched, gone


def goes_on():
    import os
    import signal

    import numpy as np

    import weft
    import weft.numpy as wnp
    from weft.experimental.multihost_utils import process_allgather, sync_global_devices
    from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

    me, value = weft.process_index(), np.arange(48, dtype=np.float32).reshape(24, 2)
    own, step = weft.local_devices(), weft.jit(lambda x: wnp.sum(x, axis=0))
    mesh = Mesh(np.array(weft.devices()).reshape(2, -1), ("replica", "rows"))
    twice, once, whole = (
        weft.device_put(value, NamedSharding(mesh, spec))
        for spec in (P("rows"), P(("replica", "rows")), P())
    )
    here = weft.device_put(np.ones(3, np.float32), own[0])
    np.testing.assert_array_equal(np.asarray(step(twice)), value.sum(0))

    def lose(victim, x):
        """Kill one process, and return the survivors that `shrink` reports."""
        try:
            sync_global_devices("all are there")
            if weft.process_index() == victim:
                os.kill(os.getpid(), signal.SIGKILL)
            while True:
                step(x).block_until_ready()
        except weft.errors.ProcessFailureError as error:
            assert error.ranks == (victim,), error
        return weft.distributed.shrink()

    assert lose(3, twice) == (0, 1, 2) and (weft.process_index(), weft.process_count()) == (me, 3)
    assert (
        [d.id for d in weft.devices()] == list(range(6))
        and weft.local_devices() == own
        and all(d.is_addressable for d in own)
    )
    rows = NamedSharding(weft.make_mesh((6,), ("rows",)), P("rows"))
    for x in (twice, whole):
        moved = weft.device_put(x, rows)
        np.testing.assert_array_equal(process_allgather(moved, tiled=True), value)
        np.testing.assert_array_equal(np.asarray(step(moved)), value.sum(0))
    np.testing.assert_array_equal(process_allgather(twice, tiled=True), value)
    np.testing.assert_array_equal(np.asarray(whole), value)
    assert float(wnp.sum(here + 1)) == 6
    for kind, text, call in (
        (
            weft.errors.ProcessFailureError,
            "lost 2 of its 8 blocks",
            lambda: weft.device_put(once, rows),
        ),
        (weft.errors.ProcessFailureError, "some of which were lost", lambda: step(twice)),
        (ValueError, "were removed", lambda: weft.jit(lambda x: x * 2)(twice)),
        (ValueError, "from before", lambda: weft.device_put(value, once.sharding)),
    ):
        try:
            call()
        except kind as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)

    assert (
        lose(0, moved) == (1, 2) and weft.process_index() == me - 1
    )  # the process that also ran the coordinator
    assert [d.id for d in weft.devices()] == [2, 3, 4, 5] and [
        d.process_index for d in weft.devices()
    ] == [0, 0, 1, 1]
    rows = NamedSharding(weft.make_mesh((4,), ("rows",)), P("rows"))
    moved = weft.device_put(weft.device_put(whole, NamedSharding(rows.mesh, P())), rows)
    np.testing.assert_array_equal(process_allgather(moved, tiled=True), value)
    assert weft.local_devices() == own
    assert lose(1, moved) == (0,) and weft.process_count() == 1 and weft.devices() == own
    np.testing.assert_array_equal(np.asarray(weft.device_put(whole, own[1])), value)
    print("went on alone")


def test_those_who_are_left_go_on_until_one_is_alone():
    with ranks(4, goes_on, 2) as running:
        outcomes = running.finish()
        assert [rank.exit_code for rank in outcomes] == [
            -9,
            0,
            -9,
            -9,
        ] and "went on alone" in outcomes[1].out, running.shown()


@pytest.mark.mpi
@pytest.mark.skipif(not IS_OPEN_MPI, reason="the MPI of this Python is not Open MPI")
def test_those_who_are_left_go_on_under_open_mpi():
    with ranks(4, goes_on, 2, "mpiexec", environment={"WEFT_PROCESS_TRANSPORT": "mpi"}) as running:
        running.wait_for("went on alone")
        running.finish()


def loses_one():
    """Three processes sum until one is killed; the others shrink, and continue with sums, gathers
    and large messages."""
    import os
    import signal
    import sys

    import numpy as np

    import weft
    import weft.numpy as wnp
    from weft.experimental.multihost_utils import process_allgather
    from weft.sharding import NamedSharding, PartitionSpec as P

    victim, me, turn = int(sys.argv[1]), weft.process_index(), 0
    value = np.arange(24 * 200, dtype=np.float32).reshape(24, 200)
    step = weft.jit(lambda x: wnp.sum(x * 2, axis=0) + wnp.max(x))

    def layouts():
        mesh = weft.make_mesh((weft.device_count(),), ("i",))
        return NamedSharding(mesh, P()), NamedSharding(mesh, P("i"))

    everywhere, rows = layouts()
    whole, x = weft.device_put(value, everywhere), weft.device_put(value, rows)
    expected = (value * 2).sum(0) + value.max()
    try:
        while True:
            if me == victim and turn == 20:
                os.kill(os.getpid(), signal.SIGKILL)
            np.testing.assert_allclose(np.asarray(step(x)), expected, rtol=1e-6)
            turn += 1
    except weft.errors.ProcessFailureError as error:
        assert error.ranks == (victim,), error
    assert weft.distributed.shrink() == tuple(rank for rank in range(3) if rank != victim)
    everywhere, rows = layouts()
    x = weft.device_put(whole, rows)
    for _ in range(50):
        np.testing.assert_allclose(np.asarray(step(x)), expected, rtol=1e-6)
    np.testing.assert_array_equal(process_allgather(x, tiled=True), value)
    count = weft.device_count()
    large = weft.device_put(np.ones((count, 1 << 20), np.float32), rows)
    assert np.asarray(step(large)).tolist() == [2.0 * count + 1] * (1 << 20)
    print("went on", flush=True)


@needs_hosts
@pytest.mark.parametrize("victim", [2, 1, 0])
@pytest.mark.parametrize("on", [(0, 1, 2), (0, 1, 1)], ids=["three hosts", "two hosts"])
def test_those_who_are_left_go_on_between_hosts(victim, on):
    """Without a launcher, MPI creates communicators of the survivors; shared memory suffices if
    they are on one host."""
    with (
        hosts(max(on) + 1) as machines,
        ranks(3, loses_one, 2, arguments=[str(victim)], hosts=machines, on=on) as running,
    ):
        outcomes = running.finish()
        assert [rank.exit_code for rank in outcomes] == [
            -9 if rank == victim else 0 for rank in range(3)
        ], running.shown()
        assert [rank.out for rank in outcomes] == [
            "" if rank == victim else "went on\n" for rank in range(3)
        ]


TRAINS = """
import os, signal
import numpy as np
import weft, weft.numpy as wnp
from weft.experimental.multihost_utils import process_allgather
from weft.sharding import NamedSharding, PartitionSpec as P

def layouts():
    mesh = weft.make_mesh((weft.device_count(),), ("data",))
    return NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))

@weft.jit
def train(w, batch):
    return w - 0.1 * wnp.mean(w - batch, axis=0)

print(f"pid {os.getpid()}", flush=True)
victim, step, lost = weft.process_index() == 0, 0, []
everywhere, rows = layouts()
states = {0: weft.device_put(np.zeros(3, np.float32), everywhere)}         # of the last step, and of the one before
while step < 20:
    try:
        if victim and step == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        batch = weft.device_put(np.full((12, 3), step, np.float32), rows)
        states[step + 1] = train(states[step], batch).block_until_ready()
        step += 1
        states.pop(step - 2, None)
    except weft.errors.ProcessFailureError as error:
        lost += [error.ranks, weft.distributed.shrink()]
        everywhere, rows = layouts()
        step = int(process_allgather(np.int32(step)).min())
        states = {step: weft.device_put(states[step], everywhere)}
w = np.zeros(3, np.float32)
for i in range(20):
    w = w - np.float32(0.1) * (w - i)
assert np.allclose(np.asarray(states[20]), w), (states[20], w)
print("trained", lost, flush=True)
"""


def test_training_continues_when_the_first_process_is_lost(tmp_path):
    launched = Launched(tmp_path, "-n", "3", "program.py", program=TRAINS)
    assert launched.wait() == 0, launched.err
    assert launched.out.count("trained [(0,), (1, 2)]") == 2, launched.out + launched.err
    assert "process 0 was killed by signal 9 (SIGKILL); 2 processes go on without 0" in launched.err
    assert gone(launched)
