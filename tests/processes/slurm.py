"""Run programs of weft under a real Slurm of two nodes on this machine: `python -m
tests.processes.slurm`.

Needs root and Debian's slurm-wlm, munge, libpmix-dev and iproute2. Each node is a network namespace
with its own host name, joined to this machine by a bridge. Prints one row of a table per case; the
exit status is 1 if a case failed. All processes, files and namespaces of the run are removed at the
end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.processes.ranks import ROOT

NODES = {"n1": "10.79.0.1", "n2": "10.79.0.2"}
CONTROLLER = "10.79.0.254"
PREFIX = "weftsl"
CONF = """\
ClusterName=weft
SlurmctldHost={controller}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
{extra}
"""
PROGRAM = """
import os, sys, time
import numpy as np
import weft
import weft.numpy as wnp
from weft._engine import processes
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

me, what = weft.process_index(), sys.argv[1] if sys.argv[1:] else "sum"
count = weft.device_count()
x = weft.device_put(wnp.arange(4.0 * count), NamedSharding(Mesh(np.array(weft.devices()), ("x",)), P("x")))
total = float(weft.jit(lambda x: x.sum())(x))
address = processes.current().client.address if processes.current() else ""
print(f"rank {me} of {weft.process_count()} on {os.uname().nodename}: sum {total} by {address}", flush=True)
if what == "kill" and me == 1:
    os.kill(os.getpid(), 9)
if what == "kill":
    processes.current().barrier("never")
if what == "slow":
    time.sleep(3)
"""


def run_checked(*words: str, **options) -> subprocess.CompletedProcess:
    """Run a command that must succeed."""
    return subprocess.run(words, check=True, capture_output=True, text=True, **options)


class Cluster:
    """Two running nodes; `run` and `batch` start programs on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PYTHONPATH": str(ROOT),
            "WEFT_NUM_DEVICES": "2",
            "WEFT_NUM_THREADS": "1",
            "WEFT_JOB_SECRET": secrets.token_hex(32),
        }
        folder.joinpath("program.py").write_text(PROGRAM)

    def command(self, what: str) -> list[str]:
        return [sys.executable, "-m", "weft", "run", str(self.folder / "program.py"), what]

    def run(self, *words: str, timeout: float = 120.0, **variables: str) -> tuple[int, str, float]:
        """Run a command, and return its exit status, its output and its duration."""
        began = time.monotonic()
        done = subprocess.run(
            words,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=self.folder,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr, time.monotonic() - began

    def srun(self, what: str, *words: str, **variables: str) -> tuple[int, str, float]:
        return self.run(
            "srun", "-N2", "-n4", "--overcommit", *words, *self.command(what), **variables
        )

    def batch(self, script: str, *words: str) -> str:
        """Run a batch script to its end, and return its output."""
        path = self.folder / f"batch-{secrets.token_hex(4)}"
        path.write_text(f"#!/bin/bash\n{script}\n")
        self.run(
            "sbatch",
            "--wait",
            "-N2",
            "-n4",
            "--overcommit",
            f"--output={path}.out",
            *words,
            str(path),
        )
        return Path(f"{path}.out").read_text()


@contextlib.contextmanager
def cluster(reserves_ports: bool = False) -> Iterator[Cluster]:
    """Start Slurm for the duration of a block; stop it at the end and remove its files."""
    folder = Path(tempfile.mkdtemp(prefix="weft-slurm-"))
    folder.chmod(0o755)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        _make_network(stack)
        _configure(folder, reserves_ports)
        started = Cluster(folder)
        stack.callback(_stop, folder)
        _start(folder, started.environment)
        yield started


def _make_network(stack: contextlib.ExitStack) -> None:
    bridge = f"{PREFIX}br"
    stack.callback(subprocess.run, ["ip", "link", "del", bridge], capture_output=True, check=False)
    run_checked("ip", "link", "add", bridge, "type", "bridge")
    run_checked("ip", "addr", "add", f"{CONTROLLER}/24", "dev", bridge)
    run_checked("ip", "link", "set", bridge, "up")
    for i, (node, address) in enumerate(NODES.items()):
        namespace = f"{PREFIX}-{node}"
        hosts = Path("/etc/netns", namespace)
        stack.callback(shutil.rmtree, hosts, ignore_errors=True)
        stack.callback(
            subprocess.run, ["ip", "netns", "del", namespace], capture_output=True, check=False
        )
        hosts.mkdir(parents=True)
        lines = ["127.0.0.1 localhost", *[f"{where} {name}" for name, where in NODES.items()]]
        hosts.joinpath("hosts").write_text("\n".join(lines) + "\n")
        run_checked("ip", "netns", "add", namespace)
        run_checked(
            "ip",
            "link",
            "add",
            f"{PREFIX}v{i}",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            namespace,
        )
        run_checked("ip", "link", "set", f"{PREFIX}v{i}", "master", bridge, "up")
        for words in (
            ("addr", "add", f"{address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            run_checked("ip", "-n", namespace, *words)


def _configure(folder: Path, reserves_ports: bool) -> None:
    extra = [
        f"NodeName={node} NodeAddr={address} CPUs=8 RealMemory=1000"
        for node, address in NODES.items()
    ]
    extra += [
        "PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES"
    ]
    extra += ["MpiParams=ports=20000-20999"] if reserves_ports else []
    conf = CONF.format(
        folder=folder, controller=socket.gethostname(), address=CONTROLLER, extra="\n".join(extra)
    )
    folder.joinpath("slurm.conf").write_text(conf)
    version = "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1"
    folder.joinpath("cgroup.conf").write_text(f"CgroupPlugin=cgroup/{version}\n")
    folder.joinpath("mpi.conf").write_text(f"PMIxCliTmpDirBase={folder}/pmix\n")
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    for name in (
        "state",
        "pmix",
        *[f"{kind}/{node}" for kind in ("spool", "pmix-of") for node in NODES],
    ):
        folder.joinpath(name).mkdir(parents=True)


def _start(folder: Path, environment: dict[str, str]) -> None:
    own = [
        f"--{name}={folder}/munge.{suffix}"
        for name, suffix in (("key-file", "key"), ("socket", "socket"), ("log-file", "log"))
    ]
    run_checked(
        "munged",
        "--force",
        *own,
        f"--pid-file={folder}/munged.pid",
        f"--seed-file={folder}/munge.seed",
    )
    run_checked("slurmctld", "-f", str(folder / "slurm.conf"), env=environment)
    for node in NODES:
        # the nodes share this machine's files, so the files private to each node are mounted
        # separately
        script = f"hostname {node} && mount --bind {folder}/pmix-of/{node} {folder}/pmix && exec slurmd -f {folder}/slurm.conf"
        run_checked(
            "ip",
            "netns",
            "exec",
            f"{PREFIX}-{node}",
            "unshare",
            "--uts",
            "--mount",
            "sh",
            "-c",
            script,
            env=environment,
        )
    until = time.monotonic() + 60
    while (
        "idle" not in (states := run_checked("sinfo", "-h", "-o", "%t %D", env=environment).stdout)
        or "idle 2" not in states
    ):
        if time.monotonic() > until:
            raise RuntimeError(
                f"the nodes do not start: {states}\n"
                + folder.joinpath("slurmd-n1.log").read_text()[-2000:]
            )
        time.sleep(0.2)


def _stop(folder: Path) -> None:
    """End the daemons of this run by their process ids, and the processes that they started by
    their namespaces."""
    for path in [*folder.glob("slurmd-*.pid"), folder / "slurmctld.pid", folder / "munged.pid"]:
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(path.read_text()), signal.SIGTERM)
    until = time.monotonic() + 10
    while time.monotonic() < until and any(folder.glob("slurm*.pid")):
        time.sleep(0.1)
    for node in NODES:
        left = subprocess.run(
            ["ip", "netns", "pids", f"{PREFIX}-{node}"], capture_output=True, text=True, check=False
        ).stdout.split()
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)


# ---- cases: each returns a description of the failure, or ""


def sums(output: str, size: int = 4, devices: int = 2) -> str:
    """Return the problem in the output of a program, or ""."""
    total = float(sum(range(4 * devices * size)))  # each device has four numbers
    matches = re.findall(rf"rank (\d+) of {size} on (n\d): sum {total} ", output)
    if sorted(int(rank) for rank, _ in matches) == list(range(size)):
        return ""
    return "not all ranks printed the sum: " + output[-1500:]


def by_srun(mpi: str) -> Callable[[Cluster], str]:
    def case(slurm: Cluster) -> str:
        status, output, _ = slurm.srun("sum", f"--mpi={mpi}")
        return sums(output) or (f"exit status {status}" if status else "")

    return case


def two_steps_at_once(slurm: Cluster) -> str:
    words = " ".join(slurm.command("slow"))
    output = slurm.batch(
        f"srun --overlap --mem=0 -n4 --overcommit {words} &\nsrun --overlap --mem=0 -n4 --overcommit {words} &\nwait"
    )
    ports = set(re.findall(r"by \S+:(\d+)", output))
    count = len(re.findall(rf"rank \d of 4 on n\d: sum {float(sum(range(8 * 4)))} ", output))
    return (
        ""
        if count == 8 and len(ports) == 2
        else f"{count} ranks at ports {ports}: {output[-1500:]}"
    )


def two_steps_with_one_port(slurm: Cluster) -> str:
    """One of them runs; the other uses the same address, and none of its processes joins the first."""
    words = " ".join(slurm.command("slow"))
    step = f"timeout 30 srun --overlap --mem=0 -n4 --overcommit --kill-on-bad-exit=1 {words}"
    output = slurm.batch(f"export WEFT_COORDINATOR_ADDRESS=n1:61500\n{step} &\n{step} &\nwait")
    count = len(re.findall(rf"rank \d of 4 on n\d: sum {float(sum(range(8 * 4)))} ", output))
    named = (
        "cannot use the address 10.79.0.1:61500" in output
        or "another job uses this address" in output
    )
    return "" if count == 4 and named else f"{count} ranks: {output[-1500:]}"


def two_jobs_at_once(slurm: Cluster) -> str:
    script = f"srun --overcommit {' '.join(slurm.command('slow'))}"
    paths = []
    for i in range(2):
        path = slurm.folder / f"job{i}"
        path.write_text(f"#!/bin/bash\n{script}\n")
        slurm.run(
            "sbatch",
            "-N2",
            "-n4",
            "--overcommit",
            "--oversubscribe",
            f"--output={path}.out",
            str(path),
        )
        paths.append(Path(f"{path}.out"))
    until, at_once = time.monotonic() + 120, 0
    while time.monotonic() < until and (states := slurm.run("squeue", "-h", "-o", "%t")[1].split()):
        at_once = max(at_once, states.count("R"))
        time.sleep(0.2)
    outputs = [path.read_text() if path.exists() else "" for path in paths]
    ports = {port for output in outputs for port in re.findall(r"by \S+:(\d+)", output)}
    wrong = "" if len(ports) == at_once == 2 else f"{at_once} at once, at ports {ports}"
    return sums(outputs[0]) or sums(outputs[1]) or wrong


def a_killed_rank(slurm: Cluster) -> str:
    status, output, seconds = slurm.srun("kill", "--mpi=none", "--kill-on-bad-exit=0")
    errors = len(re.findall(r"ProcessFailureError: distributed: process 1 has ended", output))
    return (
        ""
        if status and errors == 3 and seconds < 60
        else f"status {status}, {errors} errors reported, {seconds:.0f} s: {output[-1500:]}"
    )


def batch_without_srun(slurm: Cluster) -> str:
    output = slurm.batch(" ".join(slurm.command("sum")))
    return (
        ""
        if "without srun: it runs alone, on n1" in output and "rank 0 of 1" in output
        else output[-1500:]
    )


def a_taken_port(slurm: Cluster) -> str:
    """Another program has the port that the step derives: process 0 reports it, and no process
    joins the other program."""
    script = "import socket, time; s = socket.socket(); s.bind(('0.0.0.0', {port})); s.listen(); print('taken', flush=True); time.sleep(60)"
    output = slurm.batch(
        f"port=$({sys.executable} -c 'from weft._engine.processes.launchers import port_of_step; import os; "
        f'print(port_of_step(int(os.environ["SLURM_JOB_ID"]), 0))\')\n'
        f'{sys.executable} -c "{script.format(port="$port")}" & sleep 2\n'
        f"timeout 20 srun -n4 --overcommit --kill-on-bad-exit=1 {' '.join(slurm.command('sum'))}\nkill %1"
    )
    return (
        ""
        if "the coordinator cannot use the address" in output
        and "rank" not in output.replace("ranks", "")
        else output[-1500:]
    )


def launch_in_an_allocation(slurm: Cluster) -> str:
    """Run `weft launch --hosts` with srun in place of ssh."""
    script = slurm.folder / "ssh.sh"
    script.write_text(
        "#!/bin/sh\nhost=$1; shift\n"
        'exec srun --unbuffered --overlap --mem=0 -N1 -n1 --mpi=none --export=PATH -w $host sh -c "$*"\n'
    )
    script.chmod(0o755)
    output = slurm.batch(
        f"{sys.executable} -m weft launch --hosts n1:2,n2:2 --ssh {script} {slurm.folder}/program.py sum"
    )
    return sums(output)


def example(name: str, size: int, devices: int) -> Callable[[Cluster], str]:
    """Run a file of examples/cluster on fewer nodes and processors than it requests."""

    def case(slurm: Cluster) -> str:
        script = slurm.folder / name
        text = ROOT.joinpath("examples", "cluster", name).read_text()
        script.write_text(re.sub(r"\bpython ", f"{sys.executable} ", text))
        shutil.copy(slurm.folder / "program.py", slurm.folder / "train.py")
        slurm.run(
            "sbatch", "--wait", "-N2", "--cpus-per-task=1", f"--output={script}.out", str(script)
        )
        return sums(Path(f"{script}.out").read_text(), size, devices)

    return case


CASES: dict[str, Callable[[Cluster], str]] = {
    "srun --mpi=none": by_srun("none"),
    "srun --mpi=pmi2": by_srun("pmi2"),
    "srun --mpi=pmix": by_srun("pmix"),
    "two steps of a job at once": two_steps_at_once,
    "two steps of a job with one port": two_steps_with_one_port,
    "two jobs at once": two_jobs_at_once,
    "a rank is killed": a_killed_rank,
    "sbatch without srun": batch_without_srun,
    "the port is taken": a_taken_port,
    "weft launch --hosts in an allocation": launch_in_an_allocation,
    "examples/cluster/train.slurm": example("train.slurm", 2, 8),
    "examples/cluster/elastic.slurm": example("elastic.slurm", 8, 2),
}
#: run again where Slurm reserves ports
WITH_PORTS = ("srun --mpi=none", "two steps of a job at once")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-k", dest="only", default="", help="only cases whose name contains this")
    only = parser.parse_args().only
    missing = [
        name
        for name in ("slurmctld", "slurmd", "munged", "srun", "ip")
        if shutil.which(name) is None
    ]
    if os.geteuid() or missing:
        print(
            f"this needs root and Debian's slurm-wlm, munge, libpmix-dev and iproute2; missing: {missing}",
            file=sys.stderr,
        )
        return 2
    failed = 0
    print("| Slurm | result | seconds |\n|---|---|---|")
    for reserves_ports in (False, True):
        names = [name for name in (WITH_PORTS if reserves_ports else CASES) if only in name]
        if not names:
            continue
        with cluster(reserves_ports) as slurm:
            for name in names:
                began = time.monotonic()
                wrong = CASES[name](slurm)
                failed += bool(wrong)
                label = name + (", ports reserved by Slurm" if reserves_ports else "")
                print(
                    f"| {label} | {'fails' if wrong else 'passes'} | {time.monotonic() - began:.0f} |",
                    flush=True,
                )
                if wrong:
                    print(wrong, file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
