"""Collectives by MPI, for processes on several hosts.

In:   plans; the MPI library that mpi4py loads, of any vendor; native code from `codegen.library.process_calls`.
Out:  requests. Every collective is MPI's nonblocking one; `codegen/runtime/mpi.ll` starts and tests it.
How:  `join` starts the library: through the launcher if all processes came from a launcher that it understands, otherwise through `pmi`.
Laws: see `transport`. Blocking functions of MPI (the start, and the creation of a communicator) run in a thread of their own, which the
      caller abandons if a process fails. After a failure the former communicators are not used, and MPI is not finalized, which would
      wait for the failed ranks: the survivors create new communicators from the communicator of all processes (`_shrink_communicator`).
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from weft._engine.processes import failures, pmi
from weft._engine.processes.collective_plan import CollectiveKind, CollectivePlan
from weft._engine.processes.shared_memory import NativeFunctions
from weft._engine.processes.transport import DONE, FAILED, WAIT, Transport
from weft._engine.util.errors import ProcessFailureError, describe
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import record
from weft._engine.util.threads import DaemonThread
from weft._version import DISTRIBUTION_NAME

_MAX_COUNT = (1 << 31) - 1  # counts are 32-bit integers
_REDUCE, _GATHER, _BROADCAST, _PERMUTE = range(4)
_KINDS = {
    "all_reduce": (_REDUCE, "MPI_Iallreduce"),
    "reduce_scatter": (_REDUCE, "MPI_Ireduce_scatter_block"),
    "all_gather": (_GATHER, "MPI_Iallgather"),
    "all_to_all": (_GATHER, "MPI_Ialltoall"),
    "broadcast": (_BROADCAST, "MPI_Ibcast"),
    "permute": (_PERMUTE, "MPI_Isend"),
}
_TYPES = {
    "int8": "INT8_T",
    "int16": "INT16_T",
    "int32": "INT32_T",
    "int64": "INT64_T",
    "uint8": "UINT8_T",
    "uint16": "UINT16_T",
    "uint32": "UINT32_T",
    "uint64": "UINT64_T",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "complex64": "C_FLOAT_COMPLEX",
    "complex128": "C_DOUBLE_COMPLEX",
    "bool": "UINT8_T",
}
_OPS = {
    "sum": "SUM",
    "prod": "PROD",
    "max": "MAX",
    "min": "MIN",
    "and": "BAND",
    "or": "BOR",
    "xor": "BXOR",
}
_INSTALL = f"pip install '{DISTRIBUTION_NAME}[mpich]'"
#: not UCX, MPICH's other network layer, which crashes the survivors of a killed process; in libfabric ("ofi"), not "sockets",
#: the slowest provider
_NETWORK_LAYER = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "^sockets"}
_PROGRESS_US = 2000
#: minimum bytes of a block in a ring all_reduce, and maximum bytes of a segment
_RING_BLOCK, _RING_SEGMENT = 1 << 16, 1 << 19
#: seconds without an error after which messages to and from lost processes count as finished
_QUIET_S = 0.2
#: maximum seconds until a function of MPI has reached the point where it waits for others
_STUCK_S = 2.0
_NEVER_SENT = 32500  # a tag
_LAUNCHERS = re.compile(r"hydra|mpiexec|mpirun|prte|orte|pmi_proxy")


# ---- the library


@record
class MpiLibrary:
    """The MPI library of this process. `kind` is "mpich", also for libraries derived from it, or "openmpi"."""

    name: str
    path: str
    kind: str

    @property
    def is_openmpi(self) -> bool:
        """True for Open MPI, which can shrink a job only with its fault tolerance enabled."""
        return self.kind.startswith("openmpi")


def find_library() -> MpiLibrary | None:
    """Load MPI without starting it; None if mpi4py or a library is missing."""
    if find_spec("mpi4py") is None:
        return None
    try:
        MPI = _module()
    except (ImportError, RuntimeError):  # mpi4py raises the latter if there is no library
        return None
    name, version = MPI.get_vendor()
    kind = "openmpi" if name == "Open MPI" else "mpich"  # all others are derived from MPICH
    return MpiLibrary(f"{name} {'.'.join(map(str, version))}", str(_library_of(MPI)._name), kind)


def describe_library() -> str:
    """Return the library and its path as a line for `weft info`."""
    library = find_library()
    return f"none ({_INSTALL})" if library is None else f"{library.name}, {library.path}"


def _module() -> Any:
    """Import and return mpi4py's module, set so that it neither starts nor ends MPI by itself."""
    import mpi4py

    if "mpi4py.MPI" in sys.modules:  # the program has started it
        return sys.modules["mpi4py.MPI"]
    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    if "MPI4PY_LIBMPI" not in os.environ and (path := _library_of_launcher()):
        os.environ["MPI4PY_LIBMPI"] = path
        try:
            from mpi4py import MPI
        finally:
            del os.environ["MPI4PY_LIBMPI"]
    else:
        from mpi4py import MPI
    return MPI


def _library_of_launcher() -> str:
    """Return the path of the launcher's MPI library, from a loaded environment module or next to its program; "" if there is none."""
    if not any(
        name in os.environ
        for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PALS_RANKID")
    ):
        return ""
    folders = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    program = _launcher_program()
    if program:
        prefix = os.path.dirname(os.path.dirname(program))
        folders += [os.path.join(prefix, name) for name in ("lib", "lib64")]
    candidates = [
        os.path.join(folder, name)
        for folder in folders
        for name in ("libmpi.so.12", "libmpi.so.40", "libmpi.so")
    ]
    return next(filter(os.path.exists, candidates), "")


def _launcher_program() -> str:
    """Return the path of the launcher's program on this host: the nearest ancestor process that is an MPI launcher; "" if none."""
    pid = os.getppid()
    while pid > 1:
        try:
            program = os.readlink(f"/proc/{pid}/exe")
            with open(f"/proc/{pid}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            return ""
        if _LAUNCHERS.search(os.path.basename(program)):
            return program
        pid = parent
    return ""


def _library_of(MPI: Any) -> ctypes.CDLL:
    """Return the MPI library that mpi4py has loaded."""
    with open("/proc/self/maps") as file:
        for line in file:
            path = line.split()[-1]
            if re.search(r"/libmpi[^/]*\.so[^/]*$", path) and "mpi4py" not in path:
                library = ctypes.CDLL(path)
                if hasattr(library, "MPI_Iallreduce"):
                    return library
    return ctypes.CDLL(MPI.__file__)


# ---- the start


class MpiJob:
    """MPI in this process; `world` is its communicator of all processes.

    A thread makes progress: MPICH needs it to deliver sent messages while this process does something else.
    """

    def __init__(self, MPI: Any, is_own: bool, natives: NativeFunctions) -> None:
        self.MPI, self.world = MPI, MPI.COMM_WORLD
        #: True if weft started MPI, so that no launcher waits for its end
        self.is_own = is_own
        #: True if no process of the job has failed
        self.is_whole = True
        #: number of joins of its processes; it distinguishes the communicators of different joins
        self.joins = 0
        #: the LLVM type of MPI's handles
        self.handle = "i32" if MPI._sizeof(MPI.Comm) == 4 else "ptr"
        self.library = _library_of(MPI)
        self.has_completion = hasattr(self.library, "MPIX_Request_is_complete")
        #: a receive from this process itself that never completes: testing it makes progress
        self.progress = self.world.Irecv(bytearray(1), self.world.Get_rank(), _NEVER_SENT)
        self._run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
            natives.mpi(self.handle)["weft_mpi_progress"]
        )
        self._words: Any = None
        self._thread: DaemonThread | None = None

    def address(self, function: str) -> int:
        """Return the address of a function of the library."""
        return ctypes.cast(getattr(self.library, function), ctypes.c_void_p).value or 0

    def begin_progress(self) -> None:
        """Start the progress thread."""
        if self._thread is None and self.has_completion:
            self._words = (ctypes.c_int64 * 4)(
                0, self.address("MPI_Test"), self.MPI._addressof(self.progress), _PROGRESS_US
            )
            self._thread = DaemonThread(self._run, ctypes.addressof(self._words))

    def end_progress(self) -> None:
        """End the progress thread: it would crash a process that exits."""
        if self._thread is not None:
            self._words[0] = 1
            self._thread.join()
            self._thread = None

    def drain_errors(self) -> None:
        """Wait for late messages, and for errors of messages to and from lost processes; each error fails the next MPI call."""
        quiet, end = time.monotonic() + _QUIET_S, time.monotonic() + 20 * _QUIET_S
        while time.monotonic() < min(quiet, end):
            try:
                self.progress.Test()
            except self.MPI.Exception:
                quiet = time.monotonic() + _QUIET_S
            time.sleep(0.001)

    def finalize(self, processes: Any) -> None:
        """Finalize MPI."""
        self.progress.Cancel()
        self.progress.Wait()
        with contextlib.suppress(ProcessFailureError):
            # mpi4py's Finalize would hold the GIL
            call_with_timeout(processes, self.library.MPI_Finalize, "the end of MPI")


_jobs: list[MpiJob] = []
#: kept forever: the library would end this process if its server were closed
_servers: list[pmi.PMIServer] = []


def join(processes: Any) -> tuple[MpiJob, tuple[int, ...]]:
    """Start MPI in all processes together, once; return the job and the MPI rank of each process.

    Raises RuntimeError in all processes if one has no library, or none that can be started here. After processes were lost, the survivors
    continue with the running MPI; raises ProcessFailureError if the library cannot do that.
    """
    is_first = not _jobs
    if is_first:
        _jobs.append(_start(processes))
    job = _jobs[0]
    if not job.is_whole:
        _shrink_communicator(job, processes)
    job.joins += 1
    places = processes.client.barrier(
        "weft/mpi",
        processes.collective_timeout,
        value=[job.world.Get_size(), job.world.Get_rank()],
    )
    sizes, ranks = zip(*places)
    if (
        len(set(sizes)) > 1
        or len(set(ranks)) < processes.size
        or (is_first and sizes[0] != processes.size)
    ):
        raise RuntimeError(
            describe(
                "distributed.initialize",
                f"MPI has {quantity(min(sizes), 'process')}, and weft {processes.size}.",
                [],
                None,
                "All processes of a program are one MPI job.",
                "Call weft.distributed.initialize() before anything that starts MPI, such as importing mpi4py.MPI. Start the processes by the "
                "mpiexec of the library that `weft info` names, or without any MPI launcher.",
            )
        )
    return job, ranks


def _start(processes: Any) -> MpiJob:
    library = find_library()
    kind = library.kind if library is not None else ""
    brings = [
        library.name if library is not None else "",
        kind,
        _is_launched(kind, processes.size),
        os.urandom(8).hex(),
    ]
    libraries = processes.client.barrier(
        "weft/mpi/library", processes.collective_timeout, value=brings
    )
    is_own = not all(launched for _, _, launched, _ in libraries)
    _check_libraries(libraries, is_own, processes.hosts)
    MPI = _module()
    if not MPI.Is_initialized():
        start = ctypes.CFUNCTYPE(
            ctypes.c_int, *[ctypes.c_void_p] * 2, ctypes.c_int, ctypes.c_void_p
        )(("MPI_Init_thread", _library_of(MPI)))
        provided = ctypes.c_int()
        call = lambda: start(None, None, MPI.THREAD_MULTIPLE, ctypes.addressof(provided))
        try:
            if is_own:
                _start_without_launcher(processes, f"weft-{libraries[0][3]}", call)
            else:
                call_with_timeout(processes, call, "the start of MPI")
            processes.barrier("weft/mpi/started")
        finally:
            _unlink_segments()
    # errors of calls without a communicator are reported on COMM_SELF
    for communicator in (MPI.COMM_WORLD, MPI.COMM_SELF):
        communicator.Set_errhandler(MPI.ERRORS_RETURN)
    return MpiJob(MPI, is_own, processes.natives)


def _is_launched(kind: str, size: int) -> bool:
    """Return whether the environment identifies a launcher that the library understands and that started `size` processes."""
    if kind == "openmpi":
        return (
            os.environ.get("OMPI_COMM_WORLD_SIZE", str(size)) == str(size)
            and "PMIX_RANK" in os.environ
        )
    if "PALS_RANKID" in os.environ:
        return True
    return os.environ.get("PMI_SIZE") == str(size) and (
        "PMI_FD" in os.environ or "PMI_PORT" in os.environ
    )


def _check_libraries(libraries: list[list[Any]], is_own: bool, hosts: tuple[str, ...]) -> None:
    names = [name or "none" for name, *_ in libraries]
    rows = [(f"process {names.index(name)}", name) for name in dict.fromkeys(names)]
    where = f"{quantity(len(set(hosts)), 'host')}" if len(set(hosts)) > 1 else "one host, by MPI,"
    fact = f"processes on {where} exchange data by MPI, and"
    if "none" in names:
        raise RuntimeError(
            describe(
                "distributed.initialize",
                f"{fact} a process has no MPI library.",
                rows,
                None,
                "Every process needs mpi4py and an MPI library.",
                f"Install them: {_INSTALL}",
            )
        )
    if len({kind for _, kind, *_ in libraries}) > 1:
        raise RuntimeError(
            describe(
                "distributed.initialize",
                f"{fact} their libraries differ.",
                rows,
                None,
                "All processes use the same MPI library.",
                "",
            )
        )
    if is_own and libraries[0][1] != "mpich":
        raise RuntimeError(
            describe(
                "distributed.initialize",
                f"{fact} this library cannot start without its own launcher.",
                rows,
                None,
                "Without mpiexec or `srun --mpi=pmix`, MPICH is needed, or a library with its interface.",
                f"Start the processes by that launcher, or install MPICH: {_INSTALL}",
            )
        )


def _start_without_launcher(processes: Any, job: str, call: Callable[[], object]) -> None:
    client, hosts = processes.client, processes.hosts
    order = pmi.sort_ranks_by_host(hosts)
    exchange = lambda new: client.barrier("weft/mpi/keys", processes.collective_timeout, value=new)
    server = pmi.PMIServer(
        job,
        order.index(processes.rank),
        processes.size,
        pmi.format_process_mapping([hosts[rank] for rank in order]),
        exchange,
    )
    _servers.append(server)
    network = {**_NETWORK_LAYER, **_interface(processes)}
    own = {name: value for name, value in network.items() if name not in os.environ}
    with pmi.set_variables({**server.environment, **own}):
        call_with_timeout(processes, call, "the start of MPI", lambda: server.error is not None)


def _unlink_segments() -> None:
    """Unlink the shared memory that MPICH has mapped, which it would do only at its end: killed processes then leave nothing behind."""
    with open("/proc/self/maps") as file:
        paths = {line.split()[-1] for line in file if "/dev/shm/mpich_shm_" in line}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _interface(processes: Any) -> dict[str, str]:
    """Return the variables that name the network interface for MPICH's layers: the one that leads to the coordinator; on the
    coordinator's own host, the one that leads to another host."""
    hosts = processes.hosts
    addresses = [
        where.rpartition(":")[0].strip("[]") for where in processes.client.facts["successor"]
    ]
    outside = [
        address
        for address in addresses
        if not ipaddress.ip_address(address.partition("%")[0]).is_loopback
    ]
    own = addresses[processes.rank]
    if own not in outside:
        remote = [
            where
            for where, host in zip(addresses, hosts)
            if host != hosts[processes.rank] and where in outside
        ]
        own = pmi.find_source_address(remote[0]) if remote else ""
    name = pmi.find_interface(own) if own else ""
    return {"FI_TCP_IFACE": name} if name not in ("", "lo") else {}


def _shrink_communicator(job: MpiJob, processes: Any) -> None:
    """Let MPI continue without the failed processes. ULFM shrinks the communicator of all (Open MPI under `mpiexec --with-ft ulfm`);
    in MPICH the survivors create communicators of their own from it."""
    if "OMPI_MCA_mpi_ft_enable" in os.environ and os.environ["OMPI_MCA_mpi_ft_enable"] not in (
        "",
        "0",
        "false",
    ):
        processes.barrier("weft/mpi/shrink")  # no process uses the old communicator afterwards
        job.world.Revoke()
        job.world = job.world.Shrink()
        job.world.Set_errhandler(job.MPI.ERRORS_RETURN)
        job.is_whole = True
    elif (library := find_library()) is not None and library.is_openmpi:
        raise ProcessFailureError(
            describe(
                "distributed.shrink",
                "this MPI library cannot continue after a process has failed.",
                [("library", library.name)],
                None,
                "Open MPI needs `mpiexec --with-ft ulfm`.",
                "Start again from the last checkpoint: weft launch --restarts.",
            )
        )
    else:
        processes.barrier("weft/mpi/drain")
        job.drain_errors()
        processes.barrier("weft/mpi/drained")


def call_with_timeout(
    processes: Any,
    function: Callable[[], Any],
    what: str,
    is_stuck: Callable[[], bool] = lambda: True,
) -> Any:
    """Return the result of a function that may block forever. It runs in a thread, which is abandoned if a process fails or time runs
    out. Code that still runs would crash a process that exits, so the thread is abandoned only once `is_stuck()` is true."""
    done, results, errors = threading.Event(), [], []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    DaemonThread(run)
    until = time.monotonic() + processes.collective_timeout
    try:
        while not done.wait(0.05):
            processes.check()
            if time.monotonic() > until:
                raise ProcessFailureError(
                    f"distributed: {what} took more than {processes.collective_timeout:g} seconds."
                )
    except BaseException:
        until = time.monotonic() + _STUCK_S
        while not (done.wait(0.01) or is_stuck() or time.monotonic() > until):
            pass
        raise
    if errors:
        raise errors[0]
    return results[0]


# ---- the transport


class MpiTransport(Transport):
    """The transport of the processes of a job; `rank_of` has the rank of each process in MPI's communicator of all."""

    name = "mpi"

    def __init__(
        self, processes: Any, natives: NativeFunctions, job: MpiJob, rank_of: tuple[int, ...]
    ) -> None:
        self._processes, self._natives, self._mpi, self._job, self._rank_of = (
            processes,
            natives,
            job.MPI,
            job,
            rank_of,
        )
        self._tag = job.joins
        self._comms: dict[tuple[int, ...], Any] = {}
        self._counts: dict[tuple[int, ...], ctypes.c_int64] = {}
        self._ops: dict[tuple[str, str], Any] = {}
        self._handles: dict[CollectivePlan, int] = {}
        self._planned: dict[int, tuple[CollectivePlan, Any, Any]] = {}
        self._lock = threading.Lock()
        self._wait_callback = WAIT(self._while_waiting)
        self._clocks: dict[int, tuple[Any, float]] = {}
        self._awaits = ("", 0.0)
        self.deadline: float | None = None
        self._is_reported = False
        job.begin_progress()

    def supports(self, plan: CollectivePlan) -> bool:
        """Return whether this transport can execute the plan; all ranks return the same."""
        return (
            plan.count <= _MAX_COUNT
            if plan.op is not None
            else _unit_size(_message_count(plan)) > 0
        )

    def plan(self, plan: CollectivePlan) -> int:
        with self._lock:
            handle = self._handles.get(plan)
            if handle is None:
                handle = self._handles[plan] = self._make_native_plan(plan)
            return handle

    def _make_native_plan(self, plan: CollectivePlan) -> int:
        MPI, rank, symbols = self._mpi, self._processes.rank, self._natives.mpi(self._job.handle)
        group = plan.group_of(rank)
        kind, function = _KINDS[plan.kind]
        words = (ctypes.c_int64 * 29)(symbols["weft_mpi_start"], symbols["weft_mpi_wait"], kind)
        size = plan.numpy_dtype.itemsize
        references: list[Any] = []
        if plan.op is not None:
            count = plan.count
            kind_of_data, op = self._reduction(plan.op, plan.dtype, size)
            words[5] = MPI._handleof(op)
            references.append(op)
        else:
            count = _message_count(plan)
            parts = _unit_size(count)
            count //= parts
            kind_of_data = MPI.BYTE.Create_contiguous(parts * size).Commit()
        comm = self._comm(group or (rank,))
        words[3], words[4], words[6] = count, MPI._handleof(kind_of_data), MPI._handleof(comm)
        words[7], words[8], words[14] = (
            self._job.address(function),
            self._job.address("MPI_Test"),
            self._job.address("MPI_Irecv"),
        )
        words[9] = ctypes.addressof(self._processes.failed_word)
        words[10] = ctypes.cast(self._wait_callback, ctypes.c_void_p).value or 0
        words[11], words[15] = plan.count * size, plan.output_count * size
        if self._job.has_completion:
            words[16], words[17] = (
                self._job.address("MPIX_Request_is_complete"),
                MPI._addressof(self._job.progress),
            )
            words[18] = self._job.address("MPI_Wait")
        words[12] = words[13] = -1
        if plan.kind is CollectiveKind.BROADCAST:
            words[13] = group.index(rank) if group else 0
        for source, target in plan.pairs:
            if target == rank:
                words[12] = group.index(source)
            if source == rank:
                words[13] = group.index(target)
        if self._is_ring(plan):
            self._fill_ring(words, plan, comm)
            kind_of_data = MPI.BYTE
        handle = ctypes.addressof(words)
        self._planned[handle] = (plan, words, (references, kind_of_data, comm))
        return handle

    def _is_ring(self, plan: CollectivePlan) -> bool:
        """Return whether a plan is an all_reduce that is large enough for a ring."""
        large = plan.kind is CollectiveKind.ALL_REDUCE and plan.group_size > 1
        return (
            large
            and self._job.has_completion
            and plan.count * plan.numpy_dtype.itemsize >= _RING_BLOCK * plan.group_size
        )

    def _fill_ring(self, words: Any, plan: CollectivePlan, comm: Any) -> None:
        """Fill in the words of an all_reduce in a ring; processes of one host are consecutive in it."""
        group, size = plan.group_of(self._processes.rank), plan.numpy_dtype.itemsize
        ring = sorted(range(len(group)), key=lambda member: self._rank_of[group[member]])
        position = ring.index(group.index(self._processes.rank))
        block = -(-plan.count // len(group))
        segment = min(_RING_SEGMENT, block * size // 2) // size
        words[0] = self._natives.mpi(self._job.handle)["weft_ring_start"]
        words[4], words[7] = self._mpi._handleof(self._mpi.BYTE), self._job.address("MPI_Isend")
        words[19], words[20], words[21], words[22], words[23] = (
            block,
            segment,
            -(-block // segment),
            len(group),
            position,
        )
        words[24], words[25] = ring[position - 1], ring[(position + 1) % len(group)]
        words[26], words[27] = self._natives.combine(plan.op or "", plan.dtype), size
        words[28] = ctypes.addressof(self._counts.setdefault(group, ctypes.c_int64()))

    def _reduction(self, op: str, dtype: str, size: int) -> tuple[Any, Any]:
        """Return MPI's datatype and reduction. Native functions replace MPI's maxima, which drop NaNs, and reductions of small floats."""
        MPI = self._mpi
        if _has_mpi_reduction(op, dtype):
            name = (
                {"sum": "or", "max": "or", "prod": "and", "min": "and"}.get(op, op)
                if dtype == "bool"
                else op
            )
            return getattr(MPI, _TYPES[dtype]), getattr(MPI, _OPS[name])
        if (op, dtype) not in self._ops:
            data = MPI.BYTE.Create_contiguous(size).Commit()
            op_handle = MPI.Op()
            create = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(
                self._job.address("MPI_Op_create")
            )
            create(self._natives.combine(op, dtype, "mpi"), 1, MPI._addressof(op_handle))
            self._ops[op, dtype] = (data, op_handle)
        return self._ops[op, dtype]

    def _comm(self, ranks: tuple[int, ...]) -> Any:
        comm = self._comms.get(ranks)
        if comm is None:
            if len(ranks) > 1:  # so that no rank waits in MPI for an absent one
                self._processes.barrier(f"weft/mpi/{'.'.join(map(str, ranks))}", ranks=ranks)
            world = self._job.world
            group = world.Get_group().Incl([self._rank_of[rank] for rank in ranks])
            make = lambda: world.Create_group(group, self._tag)
            comm = self._comms[ranks] = call_with_timeout(
                self._processes, make, "making a communicator of MPI"
            )
            comm.Set_errhandler(self._mpi.ERRORS_RETURN)
        return comm

    def entry_points(self) -> dict[str, int]:
        symbols = self._natives.mpi(self._job.handle)
        return {"start": symbols["weft_mpi_start"], "wait": symbols["weft_mpi_wait"]}

    def close(self) -> None:
        """Finalize MPI if a launcher waits for that and no process has failed."""
        self._job.end_progress()
        if self._processes.failed_word.value:
            self._job.is_whole = False
        if self._job.is_whole and not self._job.is_own and not self._mpi.Is_finalized():
            self._job.finalize(self._processes)

    # ---- while a rank waits
    def _while_waiting(self, request: int) -> int:
        try:
            return self._check_wait(request, (ctypes.c_int64 * 8).from_address(request))
        except BaseException as error:  # KeyboardInterrupt among them
            self._processes.set_failure(error)
            if isinstance(error, ProcessFailureError) and not self._is_reported:
                self._is_reported = True
                self._job.drain_errors()  # while the caller still owns the memory that late messages are written to
            return FAILED

    def _check_wait(self, request: int, words: Any) -> int:
        """Raise if a collective can no longer complete: after a failure, or past the time limit."""
        plan, error, step = self._planned[words[1]][0], words[2], words[6]
        if error and not words[7] and not self._job.is_whole:
            self._processes.check()
            return DONE  # a late error about a process that was lost earlier
        group = plan.group_of(self._processes.rank)
        others = [rank for rank in group if rank != self._processes.rank]
        self._awaits = (f"{plan} at {plan.origin}" if plan.origin else str(plan), time.monotonic())
        if error:
            self._processes.await_failure_report()
            text = self._mpi.Get_error_string(error)
            raise ProcessFailureError(
                f"distributed: {plan}: MPI reports {text!r}\n  at {plan.origin}"
            )
        self._processes.check(others, plan)
        limit = self._processes.collective_timeout if self.deadline is None else self.deadline
        if self._clocks.get(request, (None, -1.0))[1] != step:
            self._clocks[request] = (self._processes.clock(limit), step)
        if self._clocks[request][0].is_over(others):
            raise self._absence_error(plan, limit, others)
        return DONE

    def _absence_error(
        self, plan: CollectivePlan, limit: float, others: Sequence[int]
    ) -> ProcessFailureError:
        """Return the error that names the ranks that are not in the collective."""
        report = self._processes.client.query_stacks(others)
        at = {rank: facts["at"] for rank, facts in report.items()}
        absent = [rank for rank in others if str(plan) not in at.get(rank, "")] or others
        arrived = [r for r in plan.group_of(self._processes.rank) if r not in absent]
        report = {rank: facts for rank, facts in report.items() if rank in absent}
        return failures.of_absence(str(plan), limit, arrived, absent, plan.origin, report)

    def awaits(self) -> str:
        """Return a description of the collective that this rank waits for; "" if none."""
        text, seen = self._awaits
        return text if time.monotonic() - seen < 0.3 else ""


def _has_mpi_reduction(op: str, dtype: str) -> bool:
    is_float = dtype.startswith(("float", "bfloat", "complex"))
    return dtype in _TYPES and not (is_float and op not in ("sum", "prod"))


def _message_count(plan: CollectivePlan) -> int:
    """Return the number of elements in one message of MPI."""
    parts = max(plan.group_size, 1) if plan.kind is CollectiveKind.ALL_TO_ALL else 1
    return plan.count // parts


def _unit_size(count: int) -> int:
    """Return the number of elements per unit, so that 32 bits can count the units; 0 if there is no such number.

    >>> _unit_size(1000), _unit_size(3 << 31), _unit_size((1 << 31) + 11)
    (1, 4, 0)
    """
    return next(
        (parts for parts in range(1, 4097) if count % parts == 0 and count // parts <= _MAX_COUNT),
        0,
    )
