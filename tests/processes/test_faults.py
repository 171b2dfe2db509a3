"""A sample of the faults of `faults.py`; `make mpi` runs more of them."""

from tests.harness.processes import run_python
from tests.processes import faults
from tests.processes.ranks import PATIENCE_S


def test_faults_are_answered_in_time():
    done = run_python(
        "-m",
        "tests.processes.faults",
        "--seed",
        3,
        "--count",
        5,
        cwd=faults.ROOT,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0 and done.stdout.startswith("5 faults, 0 not answered"), (
        done.stdout + done.stderr
    )


def test_the_cases_are_of_all_kinds():
    cases = [faults.case(seed) for seed in range(1000)]
    assert {(place, fault) for _, place, fault, *_ in cases} == {
        (place, fault) for place in faults.PLACES for fault in faults.FAULTS
    }
    assert {victim for _, _, _, victim, _ in cases} == {0, 1, 2, 3} and faults.case(
        7
    ) == faults.case(7)
