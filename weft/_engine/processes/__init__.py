"""The processes that run one program: their coordinator, their failures and their collectives.

`current()` is None in a single process. Otherwise a `Processes` has a client of the coordinator (keys
and values, barriers, heartbeats, failures) and a transport, which carries out `CollectivePlan`s.
Nothing waits forever: every wait has a deadline, and ends at once where a process is known to have
failed, with a `ProcessFailureError` that names it. A single process imports nothing of this package
but this file and `present`.

| modules | subject |
|---|---|
| `state`, `launchers`, `preemption`, `agreement` | joining and leaving, what launchers say, common decisions |
| `coordinator`, `client`, `connections`, `wire` | the control plane: requests, connections, authenticated frames |
| `job_secret`, `addresses`, `liveness`, `host_identity` | what connections need: secrets, addresses, signs of life |
| `store` | keys and values of programs |
| `plans`, `routes`, `shared_memory`, `mpi`, `pmi`, `transport` | the data plane: windows within a host, MPI between hosts |
| `failures` | error texts |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft._engine.processes.present import held

if TYPE_CHECKING:
    from weft._engine.processes.state import Processes


def current() -> Processes | None:
    """What this process shares with others; None in a single process.

    >>> current() is None
    True
    """
    return held[0] if held else None
