"""Detection of the process number from each launcher's variables, alone and with bare processes
that have them."""

import itertools
import os
import socket

import pytest

from tests.processes.ranks import free_port, ranks, run_ranks
from weft._engine.processes import launchers

CASES = {
    "slurm": (
        {
            "SLURM_JOB_ID": "1234",
            "SLURM_STEP_ID": "2",
            "SLURM_STEP_NODELIST": "node[07-09],m1",
            "SLURM_NTASKS": "8",
            "SLURM_PROCID": "3",
            "SLURM_LOCALID": "1",
        },
        f"node07:{launchers.port_of_step(1234, 2)}",
        8,
        3,
    ),
    "slurm, a step of fewer tasks": (
        {
            "SLURM_JOB_ID": "1",
            "SLURM_STEP_NODELIST": "a",
            "SLURM_NTASKS": "8",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_PROCID": "1",
            "SLURM_LOCALID": "1",
        },
        f"a:{launchers.port_of_step(1, 0)}",
        2,
        1,
    ),
    "slurm, ports that it reserves": (
        {
            "SLURM_JOB_ID": "1",
            "SLURM_STEP_NODELIST": "a",
            "SLURM_NTASKS": "2",
            "SLURM_PROCID": "1",
            "SLURM_LOCALID": "1",
            "SLURM_STEP_RESV_PORTS": "20003-20005",
        },
        "a:20003",
        2,
        1,
    ),
    "Open MPI 4": (
        {
            "OMPI_COMM_WORLD_SIZE": "16",
            "OMPI_COMM_WORLD_RANK": "5",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "8",
            "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
        },
        f"10.96.0.1:{61440 + 1531576320 // 4096 % 4096}",
        16,
        5,
    ),
    "Kubernetes": (
        {
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            "JOB_COMPLETION_INDEX": "2",
            "WEFT_NUM_PROCESSES": "4",
        },
        "train-0.pods.default.svc.cluster.local:55527",
        4,
        2,
    ),
    "weft's own": (
        {
            "WEFT_COORDINATOR_ADDRESS": "h:1",
            "WEFT_NUM_PROCESSES": "2",
            "WEFT_PROCESS_ID": "1",
            "PMI_SIZE": "9",
            "PMI_RANK": "3",
        },
        "h:1",
        2,
        1,
    ),
    "JAX's": (
        {"JAX_COORDINATOR_ADDRESS": "h:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0"},
        "h:1",
        2,
        0,
    ),
    "none": ({}, None, None, None),
}


@pytest.fixture
def environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith(
            (
                "SLURM_",
                "OMPI_",
                "PMI",
                "MPI_",
                "KUBERNETES_",
                "JOB_",
                "JAX_",
                "WEFT_NUM_P",
                "WEFT_COORD",
                "WEFT_PROC",
            )
        ):
            monkeypatch.delenv(name)
    return lambda variables: [monkeypatch.setenv(name, value) for name, value in variables.items()]


@pytest.mark.parametrize("name", CASES)
def test_what_a_launcher_says(name, environment, monkeypatch):
    variables, address, size, rank = CASES[name]
    environment(variables)
    monkeypatch.setattr(socket, "gethostname", lambda: "train-2")
    monkeypatch.setattr(socket, "getfqdn", lambda: "train-2.pods.default.svc.cluster.local")
    cluster = launchers.detect_environment()
    assert (cluster.address, cluster.size, cluster.rank) == (address, size, rank)
    assert launchers.detected_size() == (size or 1)


def test_ports_of_steps_and_of_jobs_that_run_at_once_differ():
    for job in (1, 4096, 999_999_999):
        assert len({launchers.port_of_step(job, step) for step in range(1000)}) == 1000
        at_once = sorted({launchers.port_of_step(number, 0) for number in range(job, job + 200)})
        assert len(at_once) == 200 and 61440 <= at_once[0] and at_once[-1] < 65536
        assert min(b - a for a, b in itertools.pairwise(at_once)) >= 5  # neighboring steps


def test_a_start_is_told_from_others(environment):
    environment(CASES["slurm"][0])
    assert (
        launchers.detect_environment().start
        == launchers.detect_environment("slurm").start
        == "slurm 1234.2"
    )
    environment({"SLURM_STEP_ID": "3"})
    assert launchers.detect_environment().start == "slurm 1234.3"


@pytest.mark.parametrize(
    ("nodes", "hosts"),
    [
        ("a", "a"),
        ("a,b-1.c", "a b-1.c"),
        ("n[1-3,07],m[2,4]-x", "n1 n2 n3 n07 m2-x m4-x"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("r[1-2]n[3-4]e", "r1n3e r1n4e r2n3e r2n4e"),
        ("[1-2]", "1 2"),
        ("n[5]", "n5"),
        ("n[0-0]", "n0"),
    ],
)
def test_lists_of_nodes(nodes, hosts):
    assert launchers.hosts_of(nodes) == hosts.split()
    assert launchers.first_host(nodes) == hosts.split()[0]


@pytest.mark.parametrize(
    "nodes", ["", "n[1-3", "n1-3]", "n[a-b]", "n[]", "n[1-]", "a,,b", "a,", "n[1,]", "n[1-2-3]"]
)
def test_lists_of_nodes_that_are_none(nodes):
    with pytest.raises(ValueError, match="a list of hosts is written as in"):
        launchers.hosts_of(nodes)


BATCH = {
    "SLURM_JOB_ID": "4",
    "SLURM_NTASKS": "3",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_NODELIST": "n[1-2]",
    "SLURMD_NODENAME": "n1",
}


def test_a_process_of_sbatch_without_srun_is_warned(environment):
    environment(BATCH)
    with pytest.warns(
        UserWarning,
        match=r"job of 3 tasks without srun: it runs alone, on n1\. Start it as: srun python -m weft run",
    ):
        assert launchers.detected_size() == 1
    with pytest.warns(UserWarning, match="without srun"):
        assert launchers.detect_environment() == launchers.ClusterEnvironment()


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_NTASKS": "1"},
        {"SLURM_STEP_NODELIST": "n[1-2]"},
        {"WEFT_PROCESS_ID": "0", "WEFT_NUM_PROCESSES": "2", "WEFT_COORDINATOR_ADDRESS": "a:1"},
    ],
)
def test_processes_that_are_not_alone_are_not_warned(variables, environment):
    environment({**BATCH, **variables})  # warnings are errors here
    launchers.detected_size()
    launchers.detect_environment()


def test_ranks_of_one_launcher_derive_the_same_port(environment):
    environment({"PMI_SIZE": "2", "PMI_RANK": "1", "MPI_LOCALNRANKS": "2"})
    cluster = launchers.detect_environment()
    host, port = cluster.address.split(":")
    assert (host, cluster.size, cluster.rank, cluster.share) == (
        "127.0.0.1",
        2,
        1,
        None,
    ) and 61440 <= int(port) < 65536
    environment(
        {
            "OMPI_COMM_WORLD_SIZE": "4",
            "OMPI_COMM_WORLD_RANK": "1",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
            "PMIX_NAMESPACE": "prterun-9@1",
        }
    )
    assert (
        launchers.detect_environment("ompi").address
        == launchers.detect_environment("ompi").address
        != cluster.address
    )
    environment(
        {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    )  # on several machines, where only MPI has the address
    assert (
        launchers.detect_environment("ompi").address is None
        and launchers.detect_environment("ompi").share is not None
    )


def test_what_is_given_goes_before_what_is_found(environment):
    environment(CASES["slurm"][0])
    cluster = launchers.detect_environment(None, "h:9", None, 0)
    assert (cluster.address, cluster.size, cluster.rank) == ("h:9", 8, 0)
    assert launchers.detect_environment("deactivate") == launchers.ClusterEnvironment()


def test_wrong_settings_are_named(environment):
    with pytest.raises(
        ValueError, match="one of slurm, ompi, pmi, k8s, mpi4py or deactivate, got 'lsf'"
    ):
        launchers.detect_environment("lsf")
    with pytest.raises(ValueError, match="that launcher did not start this process"):
        launchers.detect_environment("slurm")
    environment({"PMI_SIZE": "two", "PMI_RANK": "0"})
    with pytest.raises(ValueError, match="PMI_SIZE must be a number, got 'two'"):
        launchers.detect_environment()


def say():
    import weft

    print(weft.process_index(), weft.process_count(), weft.device_count())


def say_when_a_file_exists():
    import os
    import time

    import weft

    print(weft.process_index(), weft.process_count(), weft.device_count())
    while not os.path.exists(os.environ["TEST_END"]):
        time.sleep(0.01)


def test_steps_that_use_one_port_refuse_each_other(tmp_path):
    """The second process of each step finds the coordinator of the first step, which runs until then."""
    end = tmp_path / "end"
    address = f"localhost:{free_port()}"
    shared = {
        "TEST_END": str(end),
        "WEFT_COORDINATOR_ADDRESS": address,
        "WEFT_COORDINATOR_BIND_ADDRESS": "",
        "WEFT_NUM_PROCESSES": "",
        "WEFT_PROCESS_ID": "",
        "WEFT_JOB_SECRET": "a secret of both steps",
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "2",
    }
    each = [
        {"SLURM_STEP_ID": step, "SLURM_PROCID": rank, "SLURM_LOCALID": rank}
        for step, rank in (("0", "0"), ("0", "1"), ("1", "1"))
    ]
    with ranks(3, say_when_a_file_exists, environment=shared, environments=each) as running:
        running.processes[2].wait(120)
        end.touch()
        outcomes = running.finish()
    assert [rank.out for rank in outcomes] == ["0 2 2\n", "1 2 2\n", ""]
    assert "see also whether another job uses this address" in outcomes[2].err


@pytest.mark.parametrize("launcher", ["slurm", "Kubernetes"])
def test_processes_with_the_variables_of_a_launcher_meet(launcher):
    """Bare processes with the variables only; the address is replaced by this machine's."""
    job, port = free_port(), free_port()
    own = {
        "WEFT_COORDINATOR_ADDRESS": "",
        "WEFT_PROCESS_ID": "",
        "WEFT_COORDINATOR_BIND_ADDRESS": "",
    }
    if launcher == "slurm":
        shared = {
            **own,
            "WEFT_NUM_PROCESSES": "",
            "SLURM_JOB_ID": str(job),
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_NTASKS": "2",
        }
        each = [{"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(2)]
    else:  # the names of the pods cannot be resolved here, so the address is explicit
        shared = {
            **own,
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            "WEFT_NUM_PROCESSES": "2",
            "WEFT_COORDINATOR_ADDRESS": f"localhost:{port}",
        }
        each = [{"JOB_COMPLETION_INDEX": str(rank)} for rank in range(2)]
    outcomes = run_ranks(2, say, environment=shared, environments=each)
    assert [rank.out for rank in outcomes] == ["0 2 2\n", "1 2 2\n"]
