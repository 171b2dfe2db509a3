"""MPI without a launcher: the PMI server for the library, the start of MPI, and errors where it
cannot start."""

import os
import socket
import threading

import pytest

from tests.processes.ranks import run_ranks
from weft._engine.processes import mpi, pmi
from weft._engine.util.errors import ProcessFailureError

MPI = {"WEFT_PROCESS_TRANSPORT": "mpi"}


def asked(server, line):
    """Return the reply that the library reads after it has written a line."""
    with socket.socket(fileno=os.dup(int(server.environment["PMI_FD"]))) as end:
        end.sendall(f"{line}\n".encode())
        end.settimeout(60)
        return end.recv(4096).decode()


def test_keys_travel_with_the_next_barrier():
    brought, all_came = {}, threading.Barrier(2)

    def exchange_of(rank):
        def exchange(new):
            brought[rank] = new
            all_came.wait(60)
            results = [brought[0], brought[1]]
            all_came.wait(60)
            return results

        return exchange

    servers = [
        pmi.PMIServer("job", rank, 2, "(vector,(0,2,1))", exchange_of(rank)) for rank in (0, 1)
    ]
    assert "rc=0" in asked(servers[0], "cmd=init pmi_version=1 pmi_subversion=1")
    assert (
        asked(servers[0], "cmd=put kvsname=job key=a value=x=1 y z")
        == "cmd=put_result rc=0 msg=success\n"
    )
    assert "rc=-1" in asked(servers[1], "cmd=get kvsname=job key=a")
    first = threading.Thread(target=asked, args=(servers[0], "cmd=barrier_in"))
    first.start()
    assert asked(servers[1], "cmd=barrier_in") == "cmd=barrier_out rc=0\n"
    first.join()
    assert asked(servers[1], "cmd=get kvsname=job key=a").endswith(
        "value=x=1 y z\n"
    ) and brought == {0: {"a": "x=1 y z"}, 1: {}}
    assert asked(servers[0], "cmd=get kvsname=job key=PMI_process_mapping").endswith(
        "value=(vector,(0,2,1))\n"
    )
    assert asked(servers[0], "cmd=spawn") == "cmd=spawn_result rc=-1 msg=not_supported\n"
    for server in servers:
        server.close()


def test_a_failed_barrier_is_not_answered():
    def exchange(new):
        raise LookupError("a process has failed")

    server = pmi.PMIServer("job", 0, 2, "", exchange)
    with socket.socket(fileno=os.dup(int(server.environment["PMI_FD"]))) as end:
        end.sendall(b"cmd=barrier_in\ncmd=get_maxes\n")
        end.settimeout(1)
        with pytest.raises(TimeoutError):
            end.recv(1)
    assert isinstance(server.error, LookupError)
    server.close()


@pytest.mark.parametrize(
    "hosts, order, mapping",
    [
        ("a", (0,), "(vector,(0,1,1))"),
        ("aaa", (0, 1, 2), "(vector,(0,1,3))"),
        ("abc", (0, 1, 2), "(vector,(0,3,1))"),
        ("abab", (0, 2, 1, 3), "(vector,(0,2,2))"),
        ("abbca", (0, 4, 1, 2, 3), "(vector,(0,2,2),(2,1,1))"),
        ("ab" * 512, (*range(0, 1024, 2), *range(1, 1024, 2)), "(vector,(0,2,512))"),
    ],
)
def test_ranks_of_a_host_follow_each_other(hosts, order, mapping):
    assert pmi.sort_ranks_by_host(hosts) == order
    assert pmi.format_process_mapping([hosts[rank] for rank in order]) == mapping


def test_variables_of_launchers_are_hidden_for_a_block(monkeypatch):
    monkeypatch.setenv("PMIX_RANK", "3")
    monkeypatch.setenv("PMI_SIZE", "7")
    monkeypatch.delenv("PMI_FD", raising=False)
    with pmi.set_variables({"PMI_FD": "5", "PMI_SIZE": "2"}):
        assert (os.environ["PMI_FD"], os.environ["PMI_SIZE"]) == (
            "5",
            "2",
        ) and "PMIX_RANK" not in os.environ
    assert (os.environ["PMIX_RANK"], os.environ["PMI_SIZE"]) == (
        "3",
        "7",
    ) and "PMI_FD" not in os.environ


@pytest.mark.parametrize(
    "kind, variables, launched",
    [
        ("mpich", {}, False),
        ("mpich", {"PMI_SIZE": "2", "PMI_FD": "5"}, True),
        ("mpich", {"PMI_SIZE": "2", "PMI_PORT": "a:1"}, True),
        ("mpich", {"PMI_SIZE": "1", "PMI_FD": "5"}, False),
        ("mpich", {"PMIX_RANK": "0", "PMIX_NAMESPACE": "slurm.1"}, False),
        ("mpich", {"PALS_RANKID": "0"}, True),
        ("openmpi", {"PMIX_RANK": "0"}, True),
        ("openmpi", {"PMI_SIZE": "2", "PMI_FD": "5"}, False),
        ("openmpi", {"PMIX_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, False),
    ],
)
def test_which_launchers_a_library_understands(monkeypatch, kind, variables, launched):
    for name in [*os.environ]:
        if name.startswith(("PMI", "PALS", "OMPI")):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert mpi._is_launched(kind, 2) is launched


@pytest.mark.parametrize(
    "libraries, is_own, message",
    [
        ([("Open MPI 5.0.8", "openmpi")] * 2, True, "without its own launcher"),
        ([("MPICH 5.0.2", "mpich"), ("", "")], True, "process 1  none"),
        (
            [("MPICH 5.0.2", "mpich"), ("Open MPI 5.0.8", "openmpi")],
            False,
            "their libraries differ",
        ),
    ],
)
def test_libraries_that_cannot_start(libraries, is_own, message):
    with pytest.raises(RuntimeError) as error:
        mpi._check_libraries([[*library, False, ""] for library in libraries], is_own, ("a", "b"))
    assert message in str(error.value) and "processes on 2 hosts exchange data by MPI" in str(
        error.value
    )
    assert ("pip install 'weft-arrays[mpich]'" in str(error.value)) == ("differ" not in message)


def test_open_mpi_cannot_go_on_without_ulfm(monkeypatch):
    monkeypatch.delenv("OMPI_MCA_mpi_ft_enable", raising=False)
    monkeypatch.setattr(
        mpi,
        "find_library",
        lambda: mpi.MpiLibrary("Open MPI 5.0.8", "/lib/libmpi.so.40", "openmpi"),
    )
    with pytest.raises(ProcessFailureError, match="weft launch --restarts"):
        mpi._shrink_communicator(None, None)


def test_a_library_of_the_launcher_wins(monkeypatch, tmp_path):
    (tmp_path / "libmpi.so.12").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path}")
    for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PALS_RANKID"):
        monkeypatch.delenv(name, raising=False)
    assert mpi._library_of_launcher() == ""
    monkeypatch.setenv("PMI_RANK", "0")
    assert mpi._library_of_launcher() == str(tmp_path / "libmpi.so.12")


def adds():
    import os

    import numpy as np

    from weft._engine import processes
    from weft._engine.processes.collective_plan import CollectivePlan

    shared = processes.current()
    x, y = np.full(8, shared.rank + 1, np.float32), np.zeros(8, np.float32)
    handle = shared.transport.plan(
        CollectivePlan("all_reduce", "float32", 8, "sum", (tuple(range(shared.size)),))
    )
    shared.transport.wait(shared.transport.start(handle, x.ctypes.data, y.ctypes.data))
    assert shared.transport.transport_of(CollectivePlan("all_gather", "int8", 1)).name == "mpi"
    print(y[0], sorted(name for name in os.environ if name.startswith(("PMI_", "PMIX_"))))


def test_mpi_ignores_variables_of_an_unsupported_launcher():
    outcomes = run_ranks(
        2,
        adds,
        environment={
            **MPI,
            "PMIX_RANK": "0",
            "PMIX_NAMESPACE": "slurm.1.0",
            "PMIX_SERVER_URI2": "tcp4://none:1",
        },
    )
    assert [rank.out for rank in outcomes] == [
        "3.0 ['PMIX_NAMESPACE', 'PMIX_RANK', 'PMIX_SERVER_URI2']\n"
    ] * 2


def test_a_process_without_a_library_is_named(tmp_path):
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("class rc:\n    pass\n")
    path = {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}:{os.getcwd()}"}
    outcomes = run_ranks(2, adds, environment=MPI, environments=[{}, path], check=False)
    for rank in outcomes:
        assert (
            rank.exit_code == 1
            and "process 1  none" in rank.err
            and "pip install 'weft-arrays[mpich]'" in rank.err
        ), rank.err


STARTED_BEFORE = """
from mpi4py import MPI
import weft.distributed
weft.distributed.initialize()
"""


def test_mpi_that_was_started_before_is_an_error():
    outcomes = run_ranks(2, STARTED_BEFORE, environment=MPI, initialize=False, check=False)
    assert all(
        rank.exit_code == 1 and "MPI has 1 process, and weft 2" in rank.err for rank in outcomes
    ), outcomes


ENDS_AS_MPI_STARTS = """
import os, signal
import weft.distributed
from weft._engine.processes import pmi
if os.environ["WEFT_PROCESS_ID"] == "1":
    pmi.PMIServer = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
weft.distributed.initialize()
"""


def test_the_end_of_a_process_while_mpi_starts_is_known():
    outcomes = run_ranks(3, ENDS_AS_MPI_STARTS, environment=MPI, initialize=False, check=False)
    assert [rank.exit_code for rank in outcomes] == [1, -9, 1]
    assert all(
        "process 1 has ended, or was killed." in rank.err for rank in (outcomes[0], outcomes[2])
    ), outcomes


def test_tcp_is_no_transport_any_more():
    from weft._engine.util.config import config

    with pytest.raises(ValueError, match="transport 'tcp' is not supported"):
        config.update("process_transport", "tcp")
    with pytest.raises(
        ValueError, match="must be one of 'auto', 'shared_memory', 'mpi', got 'gloo'"
    ):
        config.update("process_transport", "gloo")
    assert config.process_transport == "auto"
