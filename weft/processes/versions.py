"""The versions that the processes of a program have in common: of weft, Python, and the libraries that its values depend on.

In:   the plugins that this process may use.
Out:  `collect`, facts that each process tells the others when it joins; `check`, an error where they differ.
Laws: every process compares the same facts, so that all of them raise the same error at once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from weft import _version
from weft.processes.failures import _listed as format_ranks
from weft.util.errors import ProcessFailureError, describe


def collect(plugins: Mapping[str, str]) -> dict[str, str]:
    """Return the name and the version of each thing that all processes need to have in common."""
    python = ".".join(map(str, sys.version_info[:3]))
    return {"weft": _version.__version__, "Python": f"{sys.implementation.name} {python}", "numpy": np.__version__,
            "ml_dtypes": ml_dtypes.__version__, **{f"plugin {name}": version for name, version in plugins.items()}}


def check(versions: Sequence[Mapping[str, str] | None], hosts: Sequence[str]) -> None:
    """Raise ProcessFailureError if versions of the processes differ; its `ranks` are those that differ from most others."""
    tables = [dict(one or {}) for one in versions]
    rows: list[Any] = []
    different: set[int] = set()
    for name in dict.fromkeys(name for table in tables for name in table):
        ranks_by_version: dict[str, list[int]] = {}
        for rank, table in enumerate(tables):
            ranks_by_version.setdefault(table.get(name, "none"), []).append(rank)
        if len(ranks_by_version) == 1:
            continue
        most = max(ranks_by_version.values(), key=len)
        for version, ranks in ranks_by_version.items():
            different |= set(ranks) - set(most)
            where = ", ".join(list(dict.fromkeys(hosts[rank] for rank in ranks))[:4])
            rows.append((name, version, f"process{'es' * (len(ranks) > 1)} {format_ranks(ranks)} on {where}"))
    if rows:
        raise ProcessFailureError(describe(
            "distributed.initialize", "the processes run different versions.", rows, None,
            "All processes of a program run the same versions, or they would compile and exchange different things.",
            "Install the same versions on all hosts; `weft info` prints those of one."), sorted(different))
