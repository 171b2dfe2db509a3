"""Ranks on several hosts, which are network namespaces of this machine."""

import signal
import subprocess
import sys
import time

import pytest

from tests.processes import test_failures, test_programs, test_transport
from tests.processes.hosts import hosts, needs_hosts
from tests.processes.ranks import ROOT, ranks, run_ranks


def said_by(network, host, program):
    return subprocess.run(
        network.command(host, [sys.executable, "-c", program]),
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


@needs_hosts
def test_hosts_differ_and_reach_each_other():
    with hosts(2, "100mbit", "0ms") as network:
        machines = [
            said_by(
                network, host, "from weft._engine.processes.state import machine; print(machine())"
            )
            for host in (0, 0, 1)
        ]
        assert machines[0] == machines[1] != machines[2] and machines[0].startswith(
            f"{network.addresses[0]} "
        )
        listen = "import socket; s = socket.create_server(('', 4000)); print('up', flush=True); c, _ = s.accept(); print(len(c.recv(9)))"
        listening = subprocess.Popen(
            network.command(0, [sys.executable, "-c", listen]), stdout=subprocess.PIPE, text=True
        )
        assert listening.stdout.readline() == "up\n"
        before = network.bytes_sent(1)
        said_by(
            network,
            1,
            f"import socket; socket.create_connection(({network.addresses[0]!r}, 4000)).send(bytes(9))",
        )
        assert listening.communicate(timeout=60)[0] == "9\n" and network.bytes_sent(1) > before


@needs_hosts
def test_hosts_end_with_their_block():
    with pytest.raises(LookupError), hosts(1) as machines:
        holder = machines._hosts[0].holder
        raise LookupError("a test fails")
    assert holder.returncode is not None


@needs_hosts
@pytest.mark.parametrize("on", [(0, 1), (0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 2)])
def test_collectives_give_what_numpy_gives(on):
    with hosts(max(on) + 1) as machines:
        before = machines.bytes_sent(0)
        for rank in run_ranks(len(on), test_transport.collectives, hosts=machines, on=on):
            assert rank.out.startswith("collectives ")
        assert machines.bytes_sent(0) - before > 4 * 2_100_001


@needs_hosts
@pytest.mark.parametrize("processes, devices", [(2, 4), pytest.param(4, 2, marks=pytest.mark.slow)])
def test_some_programs(processes, devices, tmp_path):
    with hosts(2) as machines:
        test_programs.check(
            test_programs.SOME,
            processes,
            devices,
            tmp_path,
            hosts=machines,
            on=[rank % 2 for rank in range(processes)],
        )


def chooses():
    from weft._engine import processes
    from weft._engine.processes.collective_plan import CollectivePlan

    shared = processes.current()
    chosen = [
        shared.transport.transport_of(CollectivePlan("all_gather", "int8", 1, None, groups)).name
        for groups in (((0, 1, 2, 3),), ((0, 1), (2, 3)), ((0, 2), (1, 3)))
    ]
    with open("/proc/self/maps") as file:
        segments = [line.strip() for line in file if "/dev/shm/mpich" in line]
    assert segments and all(line.endswith("(deleted)") for line in segments), (
        segments
    )  # nothing remains of a killed process
    chosen += [
        shared.transport.transport_of(CollectivePlan("permute", "int8", 1, None, (), pairs)).name
        for pairs in (((0, 1), (1, 0)), ((1, 2),))
    ]
    print(chosen)


@needs_hosts
def test_plans_within_a_host_use_shared_memory():
    expected = ["mpi", "shared_memory", "mpi", "shared_memory", "mpi"]
    with hosts(2) as machines:
        assert [rank.out for rank in run_ranks(4, chooses, hosts=machines, on=(0, 0, 1, 1))] == [
            f"{expected}\n"
        ] * 4


@needs_hosts
def test_mpi_uses_the_interface_of_the_coordinator():
    """Both hosts have a second interface with the same address, as container bridges do."""
    with hosts(2) as machines:
        for host in (0, 1):
            machines.run(host, "ip link add bridge0 type bridge")
            machines.run(host, "ip addr add 10.0.0.1/8 dev bridge0")
            machines.run(host, "ip link set bridge0 up")
        for rank in run_ranks(2, test_transport.collectives, hosts=machines):
            assert rank.out.startswith("collectives ")


@needs_hosts
def test_several_hosts_need_a_library(tmp_path):
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("class rc:\n    pass\n")
    path = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    with hosts(2) as machines:
        outcomes = run_ranks(2, "", environment=path, hosts=machines, check=False)
    for rank in outcomes:
        assert (
            rank.exit_code == 1
            and "processes on 2 hosts exchange data by MPI, and a process has no MPI library."
            in rank.err
        )
        assert "process 0  none" in rank.err and "pip install 'weft-arrays[mpich]'" in rank.err


@needs_hosts
@pytest.mark.parametrize("what", ["steps", "large"])
def test_survivors_of_a_killed_rank_raise(what):
    with (
        hosts(3) as machines,
        ranks(3, test_failures.victims, arguments=[what], hosts=machines) as running,
    ):
        for rank in range(3):
            running.wait_for("ready", rank)
        time.sleep(0.2)
        running.kill(1)
        killed = time.time()
        outcomes = running.finish()
    assert outcomes[1].exit_code == -signal.SIGKILL
    for rank in (outcomes[0], outcomes[2]):
        assert (
            rank.exit_code == 1 and test_failures.raised_at(rank) - killed < test_failures.KILLED_S
        ), rank
        assert "process 1 has ended, or was killed." in rank.err


@needs_hosts
def test_who_does_not_come_is_named_with_its_stack():
    with hosts(3) as machines:
        outcomes = run_ranks(
            3,
            test_failures.victims,
            arguments=["absent"],
            check=False,
            environment=test_failures.SHORT,
            hosts=machines,
        )
    assert [rank.exit_code for rank in outcomes] == [1, 1, 1]
    first = next(
        rank
        for rank in (outcomes[0], outcomes[2])
        if "not all processes arrived within 2 s" in rank.out
    )
    for text in (
        "arrived  processes 0, 2",
        "absent   processes 1",
        "time.sleep(40)",
        "at train.py:7 in step",
    ):
        assert text in first.out
