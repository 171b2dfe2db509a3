"""Broken networks between hosts: at most one group of processes continues, and the others report
why they stop. Needs root."""

import contextlib
import os
import subprocess
import sys
import time

import pytest

from tests.processes.hosts import hosts, needs_hosts
from tests.processes.ranks import ROOT

HEARTBEAT_S = 3

PROGRAM = """
import sys, time
import weft
from weft._engine import processes
from weft.errors import ProcessFailureError

weft.distributed.initialize(initialization_timeout=60)
first, left, steps = weft.process_index(), None, 0
print("ready", flush=True)
while left is None or steps < 40:
    shared = processes.current()
    try:
        shared.barrier(f"step {steps}", 60.0)
        time.sleep(0.05)
        steps += 1
    except ProcessFailureError as error:
        print("failed", flush=True)
        try:
            left, steps = weft.distributed.shrink(), 0
        except ProcessFailureError as minority:
            print("stops:", minority, flush=True)
            sys.exit(3)
        print("continues with", list(left), flush=True)
print("done", flush=True)
weft.distributed.shutdown()
"""


class Job:
    """A job with one rank on each host; the outputs of the ranks are files."""

    def __init__(self, made, folder):
        self.made, self.folder = made, folder
        (folder / "program.py").write_text(PROGRAM)
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "WEFT_JOB_SECRET": "a secret of this test",
            "PYTHONUNBUFFERED": "1",
            "WEFT_COORDINATOR_ADDRESS": f"{made.addresses[0]}:4000",
            "WEFT_NUM_PROCESSES": str(len(made)),
            "WEFT_HEARTBEAT_TIMEOUT": str(HEARTBEAT_S),
            "WEFT_NUM_DEVICES": "1",
            "WEFT_COLLECTIVE_TIMEOUT": "30",
        }
        self.processes = []
        for rank in range(len(made)):
            with open(folder / f"{rank}.txt", "wb") as out:
                words = made.command(rank, [sys.executable, str(folder / "program.py")])
                self.processes.append(
                    subprocess.Popen(
                        words,
                        env={**environment, "WEFT_PROCESS_ID": str(rank)},
                        stdout=out,
                        stderr=out,
                        start_new_session=True,
                    )
                )

    def output(self, rank):
        return (self.folder / f"{rank}.txt").read_text()

    def wait_for(self, text, ranks, seconds=60.0):
        until = time.monotonic() + seconds
        for rank in ranks:
            while text not in self.output(rank):
                assert time.monotonic() < until and self.processes[rank].poll() is None, (
                    self.shown()
                )
                time.sleep(0.02)

    def wait(self, seconds=90.0):
        """Return the exit codes of all ranks."""
        until = time.monotonic() + seconds
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        return [process.poll() for process in self.processes]

    def shown(self):
        return "".join(
            f"---- rank {rank}\n{self.output(rank)}" for rank in range(len(self.processes))
        )

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def block(network, host, others, rule="drop", ways=("input", "output")):
    """Drop or reject packets between a host and others."""
    network.run(host, "nft add table ip broken")
    addresses = ", ".join(network.addresses[other] for other in others)
    for way in ways:
        side = "saddr" if way == "input" else "daddr"
        network.run(
            host, f"nft add chain ip broken {way} {{ type filter hook {way} priority 0 ; }}"
        )
        network.run(host, f"nft add rule ip broken {way} ip {side} {{ {addresses} }} {rule}")


def heal(network, host):
    network.run(host, "nft flush ruleset")


def others_of(network, host):
    return [other for other in range(len(network)) if other != host]


BREAKS = {
    "link down": lambda made, host: made.link(host, "down"),
    "packets dropped": lambda made, host: block(made, host, others_of(made, host)),
    "packets rejected": lambda made, host: block(
        made, host, others_of(made, host), "ip protocol tcp reject with tcp reset"
    ),
    "cannot receive": lambda made, host: block(made, host, others_of(made, host), ways=("input",)),
    "cannot send": lambda made, host: block(made, host, others_of(made, host), ways=("output",)),
}


def start(stack, size, folder):
    machines = stack.enter_context(hosts(size))
    job = Job(machines, folder)
    stack.callback(job.end)
    job.wait_for("ready", range(size))
    time.sleep(0.5)
    return machines, job


def assert_one_group(job, codes, goes_on, stops):
    """Check that the ranks `goes_on` continued together and ended well, and that the others stopped
    with an error."""
    for rank in goes_on:
        assert codes[rank] == 0 and f"continues with {goes_on}\ndone" in job.output(rank), (
            job.shown()
        )
    for rank in stops:
        assert (
            codes[rank] in (1, 3)
            and "continues with [" not in job.output(rank)
            and "stops: " in job.output(rank)
        ), job.shown()


@needs_hosts
@pytest.mark.parametrize("size", [3, 4])
@pytest.mark.parametrize("host", ["first", "last"])
@pytest.mark.parametrize("kind", BREAKS)
def test_an_isolated_host_stops_and_the_others_go_on(kind, host, size, tmp_path):
    alone = 0 if host == "first" else size - 1
    with contextlib.ExitStack() as stack:
        network, job = start(stack, size, tmp_path)
        BREAKS[kind](network, alone)
        codes = job.wait()
        majority = [rank for rank in range(size) if rank != alone]
        assert_one_group(job, codes, majority, [alone])


@needs_hosts
@pytest.mark.parametrize("kind", ["drop", "reject with tcp reset"])
def test_no_half_goes_on(kind, tmp_path):
    with contextlib.ExitStack() as stack:
        network, job = start(stack, 4, tmp_path)
        rule = kind if kind == "drop" else f"ip protocol tcp {kind}"
        for host in (0, 1):
            block(network, host, (2, 3), rule)
        assert_one_group(job, job.wait(), [], [0, 1, 2, 3])


@needs_hosts
@pytest.mark.parametrize("host", [0, 2])
def test_a_network_that_heals_makes_no_second_group(host, tmp_path):
    """The network heals while the isolated rank, which has failed for the others, is still
    deciding."""
    with contextlib.ExitStack() as stack:
        network, job = start(stack, 3, tmp_path)
        block(network, host, others_of(network, host))
        job.wait_for("failed", [host], 30.0)
        time.sleep(1.0)
        heal(network, host)
        codes = job.wait()
        groups = {
            line
            for rank in range(3)
            for line in job.output(rank).splitlines()
            if line.startswith("continues with [")
        }
        assert len(groups) <= 1 and set(codes) <= {0, 1, 3}, job.shown()


@needs_hosts
def test_a_short_break_is_not_noticed(tmp_path):
    with contextlib.ExitStack() as stack:
        network, job = start(stack, 3, tmp_path)
        network.link(2, "down")
        time.sleep(HEARTBEAT_S / 3)
        network.link(2, "up")
        time.sleep(2 * HEARTBEAT_S)
        assert (
            all(process.poll() is None for process in job.processes) and "failed" not in job.shown()
        ), job.shown()
