"""What depends on the process that runs a program: the words of one of its constants.

In:   the entries that `compiler.schedule.exchange_steps` asked for, which are the same in all processes.
Out:  their values here: addresses of the functions of the transport, handles of plans, positions of this process.
Laws: all processes plan the collectives of a program in the same order, when it first runs: a transport may have to connect to the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._engine import processes
from weft._engine.processes.plans import CollectivePlan


def filled(entries: Sequence[tuple]) -> np.ndarray:
    """The value of the constant."""
    here = processes.current()
    if here is None:
        raise RuntimeError("a program for several processes was loaded in a single one")
    points = here.transport.entry_points()
    found = []
    for kind, *facts in entries:
        if kind == "plan":
            found.append(here.transport.plan(CollectivePlan(*facts)))
        else:
            found.append(dict(facts)[here.rank] if kind == "position" else points[kind])
    return np.array(found, np.int64)
