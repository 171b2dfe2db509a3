"""The Python frames and calls of one first call, counted in a new process with an empty disk cache."""

import pytest

from benchmarks.calls import measure

#: metric -> its upper bound
LIMITS = {
    "record_op": 9,
    "record_stack": 13,
    "compile": 9,
    "calls": 8200,
    "files": 150,
}


@pytest.fixture(scope="module")
def metrics():
    return measure()[0]


@pytest.mark.parametrize("metric", LIMITS)
def test_first_call_stays_within_its_count(metrics, metric):
    assert 0 < metrics[metric] <= LIMITS[metric]
