"""`weft launch --hosts` over real ssh to hosts in a separate network: links that go down and
come up again."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes.hosts import hosts, needs_hosts
from tests.processes.ranks import PATIENCE_S
from tests.processes.test_launch import Launched, gone

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
CONF = """\
Port 22
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
"""
SSH = "ssh -F none -i {folder}/key -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
needs_sshd = pytest.mark.skipif(
    not Path(SSHD).exists(), reason="hosts need Debian's openssh-server"
)


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Two hosts that run sshd, and a third host for the launcher."""
    Path("/run/sshd").mkdir(exist_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True
    )
    Path(tmp_path, "conf").write_text(CONF.format(folder=tmp_path))
    with hosts(3) as machines:
        servers = [
            subprocess.Popen(
                machines.command(i, [SSHD, "-D", "-e", "-f", str(tmp_path / "conf")]),
                stderr=subprocess.DEVNULL,
            )
            for i in range(2)
        ]
        monkeypatch.setenv("WEFT_SSH", SSH.format(folder=tmp_path))
        monkeypatch.setenv("WEFT_HEARTBEAT_TIMEOUT", "5")
        try:
            yield machines
        finally:
            for server in servers:
                sessions = (
                    Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
                )
                server.terminate()
                server.wait()
                for pid in sessions:  # of a link that is down: they would wait for a long time
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)


def launch(network, folder, *words, program):
    names = ",".join(f"{address}:2" for address in network.addresses[:2])
    command = network.command(2, [sys.executable, "-m", "weft", "launch", "--hosts", names, *words])
    return Launched(
        folder,
        *command,
        command=("-c", "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"),
        program=program,
    )


SUM = """
import os
import numpy as np
import weft
import weft.numpy as wnp
from weft._engine import processes
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

count = weft.device_count()
x = weft.device_put(wnp.arange(4.0 * count), NamedSharding(Mesh(np.array(weft.devices()), ("x",)), P("x")))
total = float(weft.jit(lambda x: x.sum())(x))
print(f"rank {weft.process_index()} on {os.uname().nodename}: sum {total} by {processes.current().client.address}", flush=True)
"""


@needs_hosts
@needs_sshd
def test_ranks_of_two_hosts_compute_together(cluster, tmp_path):
    launched = launch(cluster, tmp_path, "program.py", program=SUM)
    assert launched.wait() == 0, launched.err
    matches = sorted(re.findall(r"rank (\d) on ([\d.]+): sum 120.0 by ([\d.]+):\d+", launched.out))
    assert matches == [
        (str(rank), cluster.addresses[rank // 2], cluster.addresses[2]) for rank in range(4)
    ]


#: runs until four processes have met after a shrink to two
ELASTIC = """
import os, signal, time
import weft
from weft._engine import processes
me, shared = weft.process_index(), processes.current()
print(f"rank {me} of {shared.size} starts, pid {os.getpid()} pid {os.getppid()}", flush=True)
was_small, ends = os.path.exists("small"), []
if shared.size == 2:
    open("small", "w").close()
signal.signal(signal.SIGTERM, lambda *_: ends.append(1))
for step in range(100 if was_small and shared.size == 4 else 100000):
    ending = shared.client.barrier(f"step {step}", 60.0, value=bool(ends))
    time.sleep(0.02)
    if any(ending):
        shared.barrier("saved")
        weft.distributed.shutdown()
        os._exit(75)
print(f"done {me}", flush=True)
"""


@needs_hosts
@needs_sshd
def test_a_host_whose_link_goes_down_is_left_out_until_it_is_up(cluster, tmp_path):
    launched = launch(
        cluster,
        tmp_path,
        "--min",
        "2",
        "--restarts",
        "1",
        "--grace",
        "5",
        "program.py",
        program=ELASTIC,
    )
    launched.wait_for(4)
    lost = [int(pid) for pid in re.findall(r"rank [23] of 4 starts, pid (\d+)", launched.out)]
    cluster.link(1, "down")
    launched.wait_for(6)
    assert "starting again with 2 processes" in launched.err
    assert not any(os.path.exists(f"/proc/{pid}") for pid in lost)  # their agent ended them
    cluster.link(1, "up")
    assert launched.wait() == 0, launched.err
    assert re.findall(r"of (\d) starts", launched.out) == ["4"] * 4 + ["2"] * 2 + ["4"] * 4
    assert gone(launched)


@needs_hosts
@needs_sshd
def test_ranks_end_when_the_launcher_is_cut_off(cluster, tmp_path):
    launched = launch(cluster, tmp_path, "--grace", "5", "program.py", program=ELASTIC)
    launched.wait_for(4)
    cluster.link(2, "down")
    assert launched.wait() != 0, launched.err
    until = time.monotonic() + PATIENCE_S
    while not gone(launched, within=1.0):
        assert time.monotonic() < until, launched.out
    assert len(re.findall(r"host [\d.]+: no answer|was silent|was lost", launched.err)) > 0
