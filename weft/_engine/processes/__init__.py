"""The processes that run one program: their coordinator, their failures and their collectives.

`current()` is None in a single process. Otherwise a `Processes` has a client of the coordinator (keys
and values, barriers, heartbeats, failures) and a transport, which executes `CollectivePlan`s. No wait
is unbounded: each has a deadline, and ends immediately with a `ProcessFailureError` if a process that
it needs is known to have failed. A single process imports only this file and `current_processes` from this
package.

| modules | subject |
|---|---|
| `state`, `launchers`, `preemption`, `agreement` | joining and leaving, launchers, common decisions |
| `coordinator`, `client`, `connections`, `wire` | the control plane: requests, connections, authenticated frames |
| `job_secret`, `addresses`, `liveness`, `host_identity` | secrets, addresses, probes, machine identities |
| `store` | keys and values of programs |
| `collective_plan`, `transport_routes`, `shared_memory`, `mpi`, `pmi`, `transport` | the data plane: windows within a host, MPI between hosts |
| `failures` | error texts |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft._engine.processes.current_processes import held

if TYPE_CHECKING:
    from weft._engine.processes.state import Processes


def current() -> Processes | None:
    """Return the state that this process shares with the other processes; None in a single process.

    >>> current() is None
    True
    """
    return held[0] if held else None
