"""Ranks on several hosts, which are network namespaces of this machine."""

import subprocess
import sys

import pytest

from tests.processes.hosts import hosts, needs_hosts


def said_by(made, host, program):
    return subprocess.run(made.command(host, [sys.executable, "-c", program]), check=True, capture_output=True, text=True).stdout.strip()


@needs_hosts
def test_hosts_differ_and_reach_each_other():
    with hosts(2, "100mbit", "0ms") as made:
        machines = [said_by(made, host, "from weft.processes.state import machine; print(machine())") for host in (0, 0, 1)]
        assert machines[0] == machines[1] != machines[2] and machines[0].startswith("host0 ")
        listen = "import socket; s = socket.create_server(('', 4000)); print('up', flush=True); c, _ = s.accept(); print(len(c.recv(9)))"
        listening = subprocess.Popen(made.command(0, [sys.executable, "-c", listen]), stdout=subprocess.PIPE, text=True)
        assert listening.stdout.readline() == "up\n"
        before = made.sent(1)
        said_by(made, 1, f"import socket; socket.create_connection(({made.addresses[0]!r}, 4000)).send(bytes(9))")
        assert listening.communicate(timeout=60)[0] == "9\n" and made.sent(1) > before


@needs_hosts
def test_hosts_end_with_their_block():
    with pytest.raises(LookupError), hosts(1) as made:
        holder = made._hosts[0].holder
        raise LookupError("a test fails")
    assert holder.returncode is not None
