"""`compat_suites/run.py`: random samples of a suite, and time limits."""

import sys
from pathlib import Path

import pytest

from tests.harness.scripts import load_script

TESTS = """
import pytest

@pytest.mark.parametrize("number", range(30))
def test_number(number):
    assert number >= 0
"""


@pytest.fixture(scope="module")
def suites():
    return load_script("compat_suites/run.py")


@pytest.mark.parametrize(
    ("files", "tests", "drawn", "per_file"), [(50, 100, 10, 10), (4, 100, 4, 25), (3, 1, 1, 1)]
)
def test_sizes_of_samples(suites, files, tests, drawn, per_file):
    paths = [Path(f"test_{number}.py") for number in range(files)]
    sample = suites.Sample.draw(paths, tests, 36)
    assert len(set(sample.files) & set(paths)) == drawn
    assert sample.per_file == per_file
    assert sample == suites.Sample.draw(paths, tests, 36)


def test_seeds_draw_different_tests(suites, tmp_path):
    (tmp_path / "test_numbers.py").write_text(TESTS)
    suite = suites.Suite(("test_*.py",))
    drawn = []
    for seed in (1, 1, 2):
        sample = suites.Sample.draw(suites.files_of(suite, tmp_path), 8, seed)
        result = suites.run_suite(Path(sys.executable), suite, tmp_path, 1, 100, [], sample)
        assert [status for status, _ in result["tests"].values()] == ["passed"] * 8
        drawn.append(set(result["tests"]))
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_time_limit_keeps_the_tests_that_ended(suites, tmp_path):
    (tmp_path / "test_slow.py").write_text(
        "def test_fast(): pass\ndef test_slow(): __import__('time').sleep(600)\n"
    )
    result = suites.run_suite(
        Path(sys.executable), suites.Suite(("test_*.py",)), tmp_path, 1, 10, []
    )
    assert {test.rpartition("::")[2]: status for test, (status, _) in result["tests"].items()}[
        "test_fast"
    ] == "passed"
    assert not any(
        test.endswith("test_slow") and status == "passed"
        for test, (status, _) in result["tests"].items()
    )
