"""The values of a program that depend on the process that runs it: the words of one of its constants.

In:   the entries that `compiler.schedule.exchange_steps` requests, equal in all processes.
Out:  their values in this process: addresses of the transport's functions, handles of plans, positions of this process.
Laws: all processes plan the collectives of a program in the same order, at its first run: a transport may have to connect to others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._engine import processes
from weft._engine.processes.collective_plan import CollectivePlan


def process_words(entries: Sequence[tuple]) -> np.ndarray:
    """Return the value of the constant."""
    job = processes.current()
    if job is None:
        raise RuntimeError("a program for several processes was loaded in a single one")
    points = job.transport.entry_points()
    words = []
    for kind, *facts in entries:
        if kind == "plan":
            words.append(job.transport.plan(CollectivePlan(*facts)))
        else:
            words.append(dict(facts)[job.rank] if kind == "position" else points[kind])
    return np.array(words, np.int64)
