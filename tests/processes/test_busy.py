"""A process that reports that it is busy extends the others' waiting time while it is busy, and no
longer."""

from tests.processes.ranks import run_ranks


def meets():
    import sys
    import time

    import numpy as np

    import weft
    from weft import checkpoint
    from weft._engine import processes
    from weft.checkpoint import store
    from weft.sharding import NamedSharding, PartitionSpec as P

    shared, me = processes.current(), weft.process_index()
    rows = NamedSharding(weft.make_mesh((2,), ("x",)), P("x"))
    array = weft.make_array_from_callback((8,), rows, lambda index: np.arange(8.0)[index])
    if sys.argv[1] == "saves" and me == 1:
        finish = store.ArrayWriter.finish
        store.ArrayWriter.finish = lambda self: (time.sleep(7), finish(self))
    began = time.monotonic()
    try:
        if sys.argv[1] == "works" and me == 1:
            with shared.report_busy("reading data"):
                time.sleep(7)
        checkpoint.save(sys.argv[2], {"array": array}, 1).wait()
        if sys.argv[1] == "is absent after a save" and me == 1:
            time.sleep(15)
        shared.barrier("all")
        print("met")
    except weft.errors.ProcessFailureError as error:
        print(
            "absent" if "absent   processes 1" in str(error) else error,
            round(time.monotonic() - began),
        )


def said(what, folder):
    outcomes = run_ranks(
        2,
        meets,
        environment={"WEFT_COLLECTIVE_TIMEOUT": "3"},
        arguments=[what, str(folder)],
        check=False,
    )
    return [rank.out for rank in outcomes]


def test_a_long_save_of_one_process_is_waited_for(tmp_path):
    assert said("saves", tmp_path) == ["met\n"] * 2


def test_long_work_of_one_process_is_waited_for(tmp_path):
    assert said("works", tmp_path) == ["met\n"] * 2


def test_a_process_that_has_saved_is_not_busy_any_more(tmp_path):
    first, _ = said("is absent after a save", tmp_path)
    what, seconds = first.split()
    assert what == "absent" and 3 <= int(seconds) < 12
