"""A sample of the faults of `faults.py`; `make mpi` runs more of them."""

import pytest

from tests.processes import faults


@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20)]])
def test_faults_are_answered_in_time(seed):
    assert faults.run(seed) == ""


def test_the_cases_are_of_all_kinds():
    cases = [faults.case(seed) for seed in range(400)]
    assert {(place, fault) for _, place, fault, *_ in cases} == {(place, fault) for place in faults.PLACES for fault in faults.FAULTS}
    assert {victim for _, _, _, victim, _ in cases} == {0, 1, 2} and faults.case(7) == faults.case(7)
