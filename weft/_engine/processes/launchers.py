"""Detection of the launcher: the rank of this process, the number of processes and the coordinator's address.

In:   explicit arguments, environment variables.
Out:  `ClusterEnvironment`: the coordinator's address, the number of processes and the rank of this one; unknown values are None.
How:  `DETECTED` lists the launchers in order of precedence. If a launcher provides no address that all ranks can know, the ranks of one
      machine derive a port from the launcher process that is their common ancestor, and ranks of several machines share one through MPI.
Laws: reading the environment imports only the standard library; mpi4py is imported only if ranks of several machines have no other way,
      or if it is requested.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
import warnings
from collections.abc import Callable, Iterator

from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import record
from weft._version import DISTRIBUTION_NAME

#: exit status of a process that saved its state and ended on request, so that another start continues: EX_TEMPFAIL of sysexits.h
PREEMPTED = 75

#: ports that are derived from a job's number, above the ephemeral ports of operating systems
_FIRST_PORT, _PORTS = 61440, 4096
_KUBERNETES_PORT = 55527


@record
class ClusterEnvironment:
    """The coordinator's address, the number of processes and the rank of this one, as far as they are known."""

    address: str | None = None
    size: int | None = None
    rank: int | None = None
    is_served: bool = False  # the launcher runs the coordinator
    #: sends the address that process 0 passes to all ranks and returns it; process 0 chooses the port
    share: Callable[[str | None], str] | None = None
    launcher: str = ""
    #: the launcher's unique name of this start of the program, which distinguishes it from others that may use the same port; else ""
    start: str = ""


def detect_environment(
    method: str | None = None,
    address: str | None = None,
    size: int | None = None,
    rank: int | None = None,
) -> ClusterEnvironment:
    """Return the explicit arguments, completed from weft's variables, then from a launcher's (`method` selects the launcher).

    Raises ValueError for an unknown method, or if its launcher did not start this process.
    """
    own = ClusterEnvironment(
        _text("COORDINATOR_ADDRESS"), _number("NUM_PROCESSES"), _number("PROCESS_ID")
    )
    served = bool(os.environ.get("WEFT_COORDINATOR_SERVED")) and address in (None, own.address)
    known = ClusterEnvironment(
        own.address if address is None else address,
        own.size if size is None else size,
        own.rank if rank is None else rank,
        served,
        None,
        "weft" if own.rank is not None else "",
    )
    if method == "deactivate" or None not in (known.address, known.size, known.rank):
        return known
    launched = _detect_launcher(method)
    if launched is None:
        _warn_of_batch_step()
        return known
    return ClusterEnvironment(
        known.address or launched.address,
        launched.size if known.size is None else known.size,
        launched.rank if known.rank is None else known.rank,
        served,
        None if known.address else launched.share,
        launched.launcher,
        launched.start,
    )


def detected_size() -> int:
    """Return the number of processes according to the environment; 1 if it has none."""
    own = _number("NUM_PROCESSES")
    if own is not None and _number("PROCESS_ID") is not None:
        return own
    for name in DETECTED:
        if name != "mpi4py" and _IS_PRESENT[name]():
            return _SIZES[name]()
    _warn_of_batch_step()
    return 1


def _detect_launcher(method: str | None) -> ClusterEnvironment | None:
    if method is not None:
        if method not in DETECTED:
            raise ValueError(
                f"initialize: cluster_detection_method must be one of {', '.join(DETECTED)} or deactivate, got {method!r}."
            )
        if not _IS_PRESENT[method]():
            raise ValueError(
                f"initialize: cluster_detection_method={method!r}, but its variables are not in the environment: "
                "that launcher did not start this process."
            )
        return DETECTED[method]()
    return next(
        (DETECTED[name]() for name in DETECTED if name != "mpi4py" and _IS_PRESENT[name]()), None
    )


# ---- launchers


def _slurm() -> ClusterEnvironment:
    step = os.environ.get("SLURM_STEP_ID") or os.environ.get("SLURM_STEPID") or "0"
    job = f"{_int('SLURM_JOB_ID')}.{step}"
    reserved = re.match(r"\d+", os.environ.get("SLURM_STEP_RESV_PORTS", ""))
    port = (
        int(reserved.group())
        if reserved
        else port_of_step(_int("SLURM_JOB_ID"), int(step) if step.isdecimal() else 0)
    )
    host = first_host(os.environ["SLURM_STEP_NODELIST"])
    return ClusterEnvironment(
        f"{host}:{port}",
        _size_of_slurm(),
        _int("SLURM_PROCID"),
        launcher="slurm",
        start=f"slurm {job}",
    )


def port_of_step(job: int, step: int) -> int:
    """Return a port for a step without ports reserved by Slurm.

    Steps of one job have different ports. Jobs with consecutive numbers, which often run at once, are far apart.

    >>> port_of_step(7, 1) - port_of_step(7, 0), abs(port_of_step(8, 0) - port_of_step(7, 0)) > 1000
    (1, True)
    """
    # multiples of the golden ratio fill a range evenly
    spread = (job * 2654435769) % 2**32 * _PORTS >> 32
    return _port(spread + step)


def _size_of_slurm() -> int:
    return (
        _int("SLURM_STEP_NUM_TASKS")
        if os.environ.get("SLURM_STEP_NUM_TASKS")
        else _int("SLURM_NTASKS")
    )


def _warn_of_batch_step() -> None:
    """Warn if sbatch started this process alone, where srun would have started several."""
    tasks = os.environ.get("SLURM_NTASKS", "")
    is_batch_step = _has("SLURM_JOB_ID", "SLURM_PROCID") and not _has("SLURM_STEP_NODELIST")
    if is_batch_step and tasks.isdecimal() and int(tasks) > 1 and not _has("WEFT_PROCESS_ID"):
        warnings.warn(
            f"This process was started inside a Slurm job of {quantity(tasks, 'task')} without srun: it runs alone, on "
            f"{os.environ.get('SLURMD_NODENAME', 'the first node')}. Start it as: srun python -m weft run PROGRAM",
            stacklevel=3,
        )


def first_host(nodes: str) -> str:
    """Return the first host of a host list of Slurm.

    >>> first_host("node001"), first_host("n[7-9,12],m3"), first_host("a-[03]-b,c"), first_host("gpu1,gpu2")
    ('node001', 'n7', 'a-03-b', 'gpu1')
    """
    return next(_iterate_hosts(nodes))


def hosts_of(nodes: str) -> list[str]:
    """Return all hosts of a host list of Slurm, in its order; raise ValueError if it is malformed.

    >>> hosts_of("n[1-3,07],m[2,4]-x,login"), hosts_of("rack[1-2]n[08-10]")[2:4]
    (['n1', 'n2', 'n3', 'n07', 'm2-x', 'm4-x', 'login'], ['rack1n10', 'rack2n08'])
    """
    return list(_iterate_hosts(nodes))


def split_hosts(nodes: str) -> list[str]:
    """Return the parts of a host list between its commas; commas in brackets do not split.

    >>> split_hosts("n[1-3,07],m:4")
    ['n[1-3,07]', 'm:4']
    """
    return re.findall(r"(?:\[[^\]]*\]|[^,])+", nodes)


def _iterate_hosts(nodes: str) -> Iterator[str]:
    parts = split_hosts(nodes)
    if not parts or ",".join(parts) != nodes or not all(map(_HOSTS.fullmatch, parts)):
        raise ValueError(f"a list of hosts is written as in n[1-3,07],m2, got {nodes!r}")
    for part in parts:
        pieces = [
            _numbers(piece[1:-1]) if piece[0] == "[" else [piece]
            for piece in re.findall(r"\[.*?\]|[^\[]+", part)
        ]
        yield from map("".join, itertools.product(*pieces))


_HOSTS = re.compile(r"([^\[\],]|\[\d+(-\d+)?(,\d+(-\d+)?)*\])+")


def _numbers(text: str) -> Iterator[str]:
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield str(number).zfill(len(first))


def _open_mpi() -> ClusterEnvironment:
    size, rank = _int("OMPI_COMM_WORLD_SIZE"), _int("OMPI_COMM_WORLD_RANK")
    uri = os.environ.get("OMPI_MCA_orte_hnp_uri", "")
    host = re.search(r"tcp://(.+?)[,:]|tcp6://\[(.+?)[,\]]", uri)
    if os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == str(size):
        job = (
            os.environ.get("PMIX_NAMESPACE")
            or uri.partition(".")[0]
            or str(_find_launcher_process())
        )
        return ClusterEnvironment(
            f"127.0.0.1:{_port(sum(map(ord, job)) + 31 * int(re.sub(r'[^0-9]', '', job)[-9:] or 0))}",
            size,
            rank,
            launcher="ompi",
        )
    if host:
        address = host.group(1) or host.group(2)
        return ClusterEnvironment(
            f"{address}:{_port(int(uri.partition('.')[0]) // 4096)}", size, rank, launcher="ompi"
        )
    return ClusterEnvironment(None, size, rank, share=_share_by_mpi, launcher="ompi")


def _pmi() -> ClusterEnvironment:
    size, rank = _int("PMI_SIZE"), _int("PMI_RANK")
    if os.environ.get("MPI_LOCALNRANKS") == str(size):
        return ClusterEnvironment(
            f"127.0.0.1:{_port(_find_launcher_process())}", size, rank, launcher="pmi"
        )
    return ClusterEnvironment(None, size, rank, share=_share_by_mpi, launcher="pmi")


def _mpi4py() -> ClusterEnvironment:
    from mpi4py import MPI

    return ClusterEnvironment(
        None,
        MPI.COMM_WORLD.Get_size(),
        MPI.COMM_WORLD.Get_rank(),
        share=_share_by_mpi,
        launcher="mpi4py",
    )


def _kubernetes() -> ClusterEnvironment:
    job, dash, index = socket.gethostname().rpartition("-")
    address = None
    if dash and index == os.environ["JOB_COMPLETION_INDEX"]:
        domain = socket.getfqdn().partition(".")[2]
        address = f"{job}-0{'.' + domain if domain else ''}:{_KUBERNETES_PORT}"
    return ClusterEnvironment(
        address, _number("NUM_PROCESSES"), _int("JOB_COMPLETION_INDEX"), launcher="k8s"
    )


DETECTED: dict[str, Callable[[], ClusterEnvironment]] = {
    "slurm": _slurm,
    "ompi": _open_mpi,
    "pmi": _pmi,
    "k8s": _kubernetes,
    "mpi4py": _mpi4py,
}
_IS_PRESENT: dict[str, Callable[[], bool]] = {
    "slurm": lambda: _has(
        "SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"
    ),
    "ompi": lambda: _has("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    "pmi": lambda: _has("PMI_SIZE", "PMI_RANK"),
    "k8s": lambda: _has("KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"),
    "mpi4py": lambda: True,
}
_SIZES: dict[str, Callable[[], int]] = {
    "slurm": _size_of_slurm,
    "ompi": lambda: _int("OMPI_COMM_WORLD_SIZE"),
    "pmi": lambda: _int("PMI_SIZE"),
    "k8s": lambda: _number("NUM_PROCESSES") or 1,
}


def _share_by_mpi(address: str | None) -> str:
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ValueError(
            "initialize: this launcher does not provide the address of process 0. Pass coordinator_address with a port, or install "
            f"mpi4py ({error}): pip install '{DISTRIBUTION_NAME}[mpi]'."
        ) from None
    return MPI.COMM_WORLD.bcast(address, root=0)


# ---- the environment


def _has(*names: str) -> bool:
    return all(name in os.environ for name in names)


def _int(name: str) -> int:
    text = os.environ[name]
    if not text.isdecimal():
        raise ValueError(f"the environment variable {name} must be a number, got {text!r}")
    return int(text)


def _text(name: str) -> str | None:
    return os.environ.get(f"WEFT_{name}") or os.environ.get(f"JAX_{name}") or None


def _number(name: str) -> int | None:
    text = _text(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise ValueError(
            f"the environment variable WEFT_{name} (or JAX_{name}) must be a number, got {text!r}"
        )
    return int(text)


def _port(number: int) -> int:
    return _FIRST_PORT + number % _PORTS


def _find_launcher_process() -> int:
    """Return the id of the launcher process that is the ancestor of all ranks of this machine; the parent if none is recognized."""
    pid = os.getppid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/stat") as file:
                head, _, fields = file.read().rpartition(")")
        except OSError:
            break
        if re.search(r"hydra|mpi|pmi|prte|orte", head.partition("(")[2]):
            return pid
        pid = int(fields.split()[1])
    return os.getppid()
