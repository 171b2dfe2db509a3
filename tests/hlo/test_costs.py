"""Costs of programs, compared with the peer's counts. Run with `-m oracle` and WEFT_ORACLE_PYTHON
set."""

import json
import os
import subprocess

import pytest

import weft
import weft.lax as lax
from tests.hlo import costs

pytestmark = pytest.mark.oracle


def test_costs_are_those_that_the_peer_counts():
    python = os.environ.get("WEFT_ORACLE_PYTHON")
    if not python:
        pytest.skip("WEFT_ORACLE_PYTHON is not set")
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [python, costs.__file__], env=env, check=True, capture_output=True, timeout=300
    )
    theirs, ours = json.loads(done.stdout), costs.costs(weft.numpy, lax, weft.jit, weft.grad)
    for name in set(costs.PROGRAMS) - {
        "gradient"
    }:  # which is another program before it is optimized
        assert ours[name][0][:2] == theirs[name][0][:2], name
    for name in (
        "elementwise",
        "reduction",
        "convolution",
    ):  # the others transpose and broadcast otherwise
        assert ours[name][0][2] == theirs[name][0][2], name
    for name in ("elementwise", "reduction"):
        assert ours[name][1] == theirs[name][1], name
    assert ours["gradient"][1][1:] == theirs["gradient"][1][1:]
