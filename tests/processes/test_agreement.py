"""Processes compare programs before they run them, and compile each once where they share the
compilation cache."""

from tests.processes.ranks import run_ranks


def different():
    import numpy as np

    import weft
    import weft.numpy as wnp
    from weft.errors import ProcessFailureError
    from weft.sharding import NamedSharding, PartitionSpec as P

    rows = NamedSharding(weft.make_mesh((3,), ("x",)), P("x"))

    def loss(x):
        y = wnp.sin(x)
        if weft.process_index() == 1:
            y = y * 3
        return (y**2).sum()

    assert float(weft.jit(lambda x: x.sum(), in_shardings=rows)(np.ones((6, 2), np.float32))) == 12
    try:
        weft.jit(loss, in_shardings=rows)(np.ones((6, 2), np.float32))
    except ProcessFailureError as error:
        print(error.ranks, error)


def test_ranks_that_traced_different_programs_are_told_the_line():
    outputs = [rank.out for rank in run_ranks(3, different)]
    assert outputs[0] == outputs[1] == outputs[2]
    head, *rows = outputs[0].splitlines()
    assert head == "(1,) compiling jit(loss): the processes traced different programs."
    assert "ranks 0, 2" in rows[0] and "integer_pow" in rows[0] and "return (y**2).sum()" in rows[1]
    assert "rank 1" in rows[2] and "mul" in rows[2] and "3.0" in rows[2] and "y = y * 3" in rows[3]


def compiles():
    import sys

    import numpy as np

    import weft
    from weft.sharding import NamedSharding, PartitionSpec as P

    rows = NamedSharding(weft.make_mesh((4,), ("x",)), P("x"))
    f = weft.jit(lambda x, c: (x * c).sum(0), in_shardings=(rows, None))
    print(
        np.asarray(f(np.arange(8, dtype=np.float32).reshape(4, 2), np.float32(2))).tolist(),
        "weft._engine.pipeline" in sys.modules,
    )


def test_one_process_compiles_for_those_that_share_its_folder(tmp_path):
    shared = {"WEFT_CACHE_DIR": str(tmp_path / "shared"), "WEFT_VERIFY": "0"}
    assert [rank.out.split("] ")[1] for rank in run_ranks(2, compiles, 2, environment=shared)] == [
        "True\n",
        "False\n",
    ]
    assert {rank.out for rank in run_ranks(2, compiles, 2, environment=shared)} == {
        "[24.0, 32.0] False\n"
    }


def compiles_slowly():
    import contextlib
    import sys
    import time

    import weft
    from weft._engine.processes import agreement

    try:
        with agreement.elect_compiler(0, "a program") as is_mine:
            if is_mine:
                with (
                    agreement.report_progress("compiling it")
                    if sys.argv[1] == "busy"
                    else contextlib.nullcontext()
                ):
                    time.sleep(6)
        print("compiled", is_mine)
    except weft.errors.ProcessFailureError as error:
        print(error.ranks, error)


def test_a_process_that_compiles_long_is_waited_for():
    shared = {"WEFT_COLLECTIVE_TIMEOUT": "2"}
    outcomes = run_ranks(2, compiles_slowly, environment=shared, arguments=["busy"])
    assert [rank.out for rank in outcomes] == ["compiled True\n", "compiled False\n"]
    _, other = run_ranks(2, compiles_slowly, environment=shared, arguments=["silent"], check=False)
    assert other.out.startswith(
        "(0,) distributed: the program that process 0 compiles for all processes: not all processes arrived within 2 seconds."
    )
    assert "WEFT_COLLECTIVE_TIMEOUT" in other.out and "time.sleep(6)" in other.out
