"""Compare random programs on several processes with one process: `python -m
tests.processes.programs COUNT [FIRST SEED]`.

In:   the programs of `tests.fuzz.programs` on meshes of eight devices.
Out:  the programs whose results differ between one process with eight devices, two with four, and
      four with two: exact results in any bit, others by more than rounding allows (`tests.fuzz.judge`).
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz import programs, runner

SPLITS = ((2, 4), (4, 2))
#: a rank runs the tasks in one file, and writes the results into the other
RUN = (
    "import sys\nfrom tests.processes import programs\nprograms.answer(sys.argv[1], sys.argv[2])\n"
)


def draw_programs(count: int, first: int = 0) -> list[programs.Program]:
    """Return `count` programs on eight devices."""
    tasks = []
    while len(tasks) < count:
        program = programs.make(first)
        first += 1
        if int(np.prod(program.sizes)) == 8:
            tasks.append(program)
    return tasks


def results(task: runner.Task) -> list[np.ndarray] | str:
    """Return the whole results of the program, or its error."""
    import weft
    from weft.sharding import NamedSharding, PartitionSpec as P

    weft.config.update("jax_enable_x64", task.x64)
    try:
        arrays = []
        for x in weft.tree.leaves(runner._run(weft, task, "split", None, {})):
            if not x.is_fully_addressable and not x.is_fully_replicated:
                mesh = weft.sharding.Mesh(np.array(x.sharding.device_assignment), ("all",))
                x = weft.jit(lambda v: v, out_shardings=NamedSharding(mesh, P()))(x)
            arrays.append(np.asarray(x))
        return arrays
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        weft.config.update("jax_enable_x64", False)


def answer(tasks: str, answers: str) -> None:
    """Run the tasks as one rank."""
    import weft

    answers_of_tasks = [
        results(runner.Task(*task)) for task in pickle.loads(Path(tasks).read_bytes())
    ]
    if weft.process_index() == 0:
        Path(answers).write_bytes(pickle.dumps(answers_of_tasks))


def faults(some: list[programs.Program], splits: Any = SPLITS, timeout: float = 300.0) -> list[str]:
    """Return the differences, one line each."""
    from tests.fuzz import judge
    from tests.processes.ranks import run_ranks

    tasks = [runner.task_of(program) for program in some]
    expected = [results(task) for task in tasks]
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        task_file, got = Path(folder, "tasks"), Path(folder, "answers")
        task_file.write_bytes(pickle.dumps([tuple(task) for task in tasks]))
        for processes, devices in splits:
            run_ranks(
                processes, RUN, devices, timeout=timeout, arguments=[str(task_file), str(got)]
            )
            for program, task, want, have in zip(
                some, tasks, expected, pickle.loads(got.read_bytes()), strict=True
            ):
                if isinstance(have, str) or isinstance(want, str):
                    message = (
                        ""
                        if isinstance(have, str) and isinstance(want, str)
                        else f"{have!s:.300} instead of {want!s:.100}"
                    )
                else:
                    message = judge.difference(
                        have, want, program.exact, judge.tolerance_of(program, task, want)
                    )
                if message:
                    wrong.append(f"seed {program.seed} on {processes} x {devices}: {message}")
    return wrong


if __name__ == "__main__":
    os.environ["WEFT_NUM_DEVICES"] = "8"  # for one process; each of several gets its own number
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    some = draw_programs(count, first)
    failures = [
        line for i in range(0, count, 20) for line in faults(some[i : i + 20], timeout=600.0)
    ]
    print(
        "\n".join(failures)
        or f"{count} programs give the same on {len(SPLITS)} splits into processes."
    )
