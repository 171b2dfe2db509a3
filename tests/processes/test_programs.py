"""Programs over several processes agree with one process: some programs of `table` always, all of
them with `-m mpi`."""

import numpy as np
import pytest

from tests.processes import programs, table
from tests.processes.ranks import MPIEXEC, run_ranks

RUN = "import sys\nfrom tests.processes import table\ntable.write(sys.argv[1], sys.argv[2:])\n"
SOME = [
    "elementwise",
    "gradients",
    "loops_in_shard_map",
    "random_numbers",
    "whole_values",
    "donated",
]
#: relative tolerances for programs with coarser dtypes
COARSE = ("dtypes",)
#: programs with bitwise equal results: no sum spans devices
EXACT = ("elementwise", "random_numbers", "resharding", "indexing")


def check(names, processes, devices, folder, **how):
    file = folder / "results.npz"
    run_ranks(processes, RUN, devices, arguments=[str(file), *names], **how)
    results, expected = dict(np.load(file)), table.results(names)
    assert results.keys() == expected.keys()
    for name, value in expected.items():
        assert results[name].shape == value.shape and results[name].dtype == value.dtype, name
        rounded = 2e-2 if name.startswith(COARSE) else 0 if name.startswith(EXACT) else 2e-5
        np.testing.assert_allclose(results[name], value, rounded, rounded, err_msg=name)


def test_some_programs_on_two_processes(tmp_path):
    check(SOME, 2, 4, tmp_path)


def test_random_programs():
    assert programs.faults(programs.draw_programs(3, 40), [(2, 4)]) == []


@pytest.mark.mpi
@pytest.mark.parametrize("processes, devices", [(2, 4), (4, 2), (8, 1)])
def test_all_programs(processes, devices, tmp_path):
    check(list(table.PROGRAMS), processes, devices, tmp_path)


@pytest.mark.mpi
@pytest.mark.skipif(not MPIEXEC.exists(), reason="the folder of this Python has no mpiexec")
@pytest.mark.parametrize("processes, devices", [(2, 4), (4, 2)])
def test_all_programs_by_mpi(processes, devices, tmp_path):
    check(
        list(table.PROGRAMS),
        processes,
        devices,
        tmp_path,
        launcher="mpiexec",
        environment={"WEFT_PROCESS_TRANSPORT": "mpi"},
    )
