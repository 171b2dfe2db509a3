"""The processes that run one program: who there is, what they tell each other, and how their collectives travel.

In:   a coordinator's address, the number of processes, and the number of this one (`launchers` finds them in the environment).
Out:  `current()`, which is None in a single process; a `Processes` has a client of the coordinator (keys and values, barriers, beats,
      progress, failures) and a transport, which carries out `CollectivePlan`s.
Laws: nothing waits forever. Every wait has a deadline, and ends at once where a process is known to have failed; the error is a
      `ProcessFailureError` that names who is awaited. A single process imports nothing of this package but this file and `present`.
Next: `state` joins and leaves; `coordinator` and `client` are the two ends of a connection; `store` is what programs
      may tell each other; `plans` says what collectives mean; `routes` chooses their transport.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.processes.present import held

if TYPE_CHECKING:
    from weft.processes.state import Processes

def current() -> Processes | None:
    """What this process shares with others; None in a single process.

    >>> current() is None
    True
    """
    return held[0] if held else None
