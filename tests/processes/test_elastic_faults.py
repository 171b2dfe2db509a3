"""A sample of the faults of `elastic_faults.py`, one of each kind; `make mpi` runs random ones."""

import pytest

from tests.harness.processes import run_python
from tests.processes import elastic_faults
from tests.processes.ranks import PATIENCE_S, ROOT

#: faults that end within seconds; the others wait for limits
QUICK = ("kill", "preemption", "reset", "short loss", "garbage", "successor", "full disk")


CASES = [
    pytest.param(fault, marks=() if fault in QUICK else pytest.mark.slow)
    for fault in elastic_faults.FAULTS
]


@pytest.mark.parametrize("fault", CASES)
def test_training_survives_the_fault(fault):
    done = run_python(
        "-m",
        "tests.processes.elastic_faults",
        "--seed",
        0,
        "--count",
        1,
        "--fault",
        fault,
        cwd=ROOT,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0 and done.stdout == "1 fault, 0 not answered as promised\n", (
        done.stdout + done.stderr
    )


def test_the_cases_are_of_all_kinds():
    cases = [elastic_faults.case(seed) for seed in range(2000)]
    kinds = {(case.fault, case.serves, case.shrinks) for case in cases}
    assert kinds == {
        (fault, serves, shrinks)
        for fault in elastic_faults.FAULTS
        for serves in (True, False)
        for shrinks in (True, False)
    }
    assert {(case.size, case.victim) for case in cases} == {
        (size, victim) for size in (2, 3, 4) for victim in range(size)
    }
