"""Processes that users start without a launcher: addresses of both families, and secrets."""

import socket

import pytest

from tests.processes.hosts import hosts, needs_hosts
from tests.processes.ranks import free_port, run_ranks


def meet():
    import warnings

    import numpy as np

    import weft
    from weft.experimental.multihost_utils import process_allgather

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        weft.distributed.initialize(initialization_timeout=100)
    total = np.asarray(process_allgather(np.int32(weft.process_index()))).tolist()
    print(total, [str(one.message)[:20] for one in caught], flush=True)


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def run(address, **variables):
    environment = {"WEFT_COORDINATOR_ADDRESS": address, "WEFT_COORDINATOR_BIND_ADDRESS": ""}
    return run_ranks(
        2, meet, initialize=False, environment={**environment, **variables}, check=False
    )


HOSTS = {
    "127.0.0.1": "",
    "localhost": "",
    "own name": "",
    "[::1]": "" if has_ipv6() else "no IPv6",
}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("secret", ["", "a secret of this job"])
def test_processes_of_a_machine_meet_at(host, secret):
    if HOSTS[host]:
        pytest.skip(HOSTS[host])
    name = socket.gethostname() if host == "own name" else host
    ranks = run(f"{name}:{free_port()}", WEFT_JOB_SECRET=secret)
    assert [rank.out for rank in ranks] == ["[0, 1] []\n"] * 2, ranks


def test_different_secrets_are_named_by_both():
    environments = [{"WEFT_JOB_SECRET": text * 16} for text in ("a", "b")]
    address = f"127.0.0.1:{free_port()}"
    shared = {"WEFT_COORDINATOR_ADDRESS": address, "WEFT_COORDINATOR_BIND_ADDRESS": address}
    program = "import weft\nweft.distributed.initialize(initialization_timeout=5)\n"
    ranks = run_ranks(
        2, program, initialize=False, environment=shared, environments=environments, check=False
    )
    assert [rank.exit_code for rank in ranks] == [1, 1]
    assert "not all processes arrived within 5 seconds" in ranks[0].err
    assert "process 1 and the coordinator have different secrets." in ranks[1].err


def test_an_open_coordinator_is_warned_of():
    address = f"127.0.0.1:{free_port()}"
    ranks = run(
        address,
        WEFT_COORDINATOR_BIND_ADDRESS=address.replace("127.0.0.1", "0.0.0.0"),
        WEFT_INSECURE="1",
    )
    assert [rank.out for rank in ranks] == ["[0, 1] ['WEFT_INSECURE is set']\n", "[0, 1] []\n"], (
        ranks
    )


@needs_hosts
def test_processes_of_several_machines_need_a_secret():
    """Host 0 may serve processes of its own machine without one: it waits for them, and prints a
    notice."""
    import os
    import subprocess
    import sys

    program = "import weft; weft.distributed.initialize(initialization_timeout=4)"
    with hosts(2) as machines:
        shared = {
            **os.environ,
            "WEFT_COORDINATOR_ADDRESS": f"{machines.addresses[0]}:4000",
            "WEFT_NUM_PROCESSES": "2",
        }
        started = [
            subprocess.Popen(
                machines.command(rank, [sys.executable, "-c", program]),
                env={**shared, "WEFT_PROCESS_ID": str(rank)},
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        errors = [process.communicate(timeout=60)[1] for process in started]
    assert "accepts only processes of this machine" in errors[0]
    assert "processes on several machines need the secret of their job" in errors[1]
