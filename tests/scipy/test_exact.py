"""`weft.scipy`'s functions and their slopes against mpmath; a sample by default, all types and more points with `-m exhaustive`."""

from __future__ import annotations

import os
import pathlib
import pickle
import subprocess

import numpy as np
import pytest

from tests.differential.test_peer import peer_python
from tests.scipy.exact import CASES, PAGE, TYPES, arguments, shares

#: What is above the bound somewhere. The first two are no worse than JAX's errors; of the others JAX's results are infinite, NaN or zero
#: where they are worst.
KNOWN = {name: reason for reason, names in {
    "slopes that are a difference of nearly equal values, as they are in JAX": "special.expit special.i0e special.i1e",
    "the ratio of gamma functions by their logarithms, and a slope of the least size that is lost with a power, as they are in JAX":
        "special.poch stats.geom.pmf",
    "differences of logarithms and exponentials of them, a few times the bound": """
        stats.betabinom.pmf stats.truncnorm.cdf stats.truncnorm.sf stats.truncnorm.logcdf stats.truncnorm.logsf""",
    "the slope by beta close to zero, where the change of the order and of the power cancel": "stats.gennorm.cdf",
}.items() for name in names.split()}
SLOW = ("special.betainc", "stats.betabinom.logpmf", "stats.betabinom.pmf")         # of which mpmath takes long
QUICK = [pytest.param(name, ("f32", "f64")[k % 2], 4, id=f"{name}-{('f32', 'f64')[k % 2]}")
         for k, name in enumerate(CASES) if name not in SLOW]
DENSE = [pytest.param(name, type_, 40, id=f"{name}-{type_}-dense", marks=pytest.mark.exhaustive) for name in CASES for type_ in TYPES]


@pytest.mark.parametrize("name, type_, count", [*QUICK, *DENSE])
def test_errors_are_those_of_the_condition(name, type_, count):
    parts = ("value", *[f"slope by argument {i}" for i in CASES[name].by])
    for part, found in zip(parts, shares(name, type_, count)):
        share = found.median if name in KNOWN else found.share
        assert share <= 1, f"{part}: {found.share:.3g} of what is allowed at {found.args}: {found.got}, exact {found.exact}"


@pytest.mark.oracle
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_what_is_above_the_bound_is_no_worse_than_the_peer(type_, tmp_path):
    """The peer computes the same in its own environment; where it is infinitely wrong, nothing is said."""
    names = [name for name in CASES if name in KNOWN]
    tasks = [(name, [np.asarray(x, np.float64) for x in arguments(name, type_, 12)], TYPES[type_].__name__, *CASES[name][2:])
             for name in names]
    (tmp_path / "in").write_bytes(pickle.dumps(tasks))
    subprocess.run([peer_python(), pathlib.Path(__file__).with_name("peer.py"), tmp_path / "in", tmp_path / "out"], check=True,
                   env=dict(os.environ, JAX_PLATFORMS="cpu", PYTHONPATH=""), timeout=1800)
    worse = []
    for name, theirs in zip(names, pickle.loads((tmp_path / "out").read_bytes())):
        for part, (ours, peer) in enumerate(zip(shares(name, type_, 12), shares(name, type_, 12, theirs))):
            if ours.share > max(1, 1.05 * peer.share):
                worse.append(f"{name} {part}: {ours.share:.3g}, the peer {peer.share:.3g} at {ours.args}")
    assert not worse, "\n".join(worse)


def test_the_page_names_no_other_functions():
    told = {line.split("`")[1] for line in PAGE.read_text().splitlines() if line.startswith(("| `special.", "| `stats."))}
    assert told and told <= set(CASES)
