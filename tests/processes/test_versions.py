"""Processes that cannot run one program together all fail at once, and name both values and both
processes."""

import re
import time

import pytest

from tests.processes.ranks import run_ranks
from weft._engine.processes import agreement
from weft.errors import ProcessFailureError


def joins():
    import os
    import sys

    import ml_dtypes
    import numpy as np

    import weft
    import weft.distributed
    from weft import _version
    from weft.errors import ProcessFailureError

    other = sys.argv[1] if os.environ["WEFT_PROCESS_ID"] == "2" else ""
    if other == "weft":
        _version.__version__ = "0.0.9"
    if other == "Python":
        sys.version_info = (3, 99, 1)
    if other == "numpy":
        np.__version__ = "1.0.0"
    if other == "ml_dtypes":
        ml_dtypes.__version__ = "0.0.1"
    if sys.argv[1].startswith("plugin"):
        with open(f"{sys.argv[2]}/{len(other)}.so", "w") as file:
            file.write("a library" + other)
        os.environ["PJRT_NAMES_AND_LIBRARY_PATHS"] = f"fake:{file.name}"
    count = {"size": 8, "smaller": 3}.get(other)
    try:
        weft.distributed.initialize(num_processes=count, initialization_timeout=200)
        print("joined")
    except (ProcessFailureError, ValueError) as error:
        print(getattr(error, "ranks", ()), error)


def said_by_all(what, *words):
    began = time.monotonic()
    platforms = dict.fromkeys(
        ("WEFT_PLATFORMS", "JAX_PLATFORMS", "WEFT_BACKEND"), ""
    )  # programs of other tests may set them
    outcomes = run_ranks(
        4, joins, initialize=False, arguments=[what, *map(str, words)], environment=platforms
    )
    assert time.monotonic() - began < 60
    texts = {re.sub(r"initialize of \d processes", "initialize", rank.out) for rank in outcomes}
    assert len(texts) == 1, texts
    return texts.pop()


@pytest.mark.parametrize(
    "what, other",
    [
        ("weft", "0.0.9"),
        ("Python", "cpython 3.99.1"),
        ("numpy", "1.0.0"),
        ("ml_dtypes", "0.0.1"),
        ("plugin fake", "11.so"),
    ],
)
def test_different_versions_are_named_everywhere(tmp_path, what, other):
    head, *rows = said_by_all(what, tmp_path).splitlines()
    assert head == "(2,) distributed.initialize: the processes run different versions."
    ours, theirs = rows[:2]
    assert ours.split()[0] == theirs.split()[0] == what.split()[0]
    assert (
        "processes 0-1, 3 on " in ours
        and other not in ours
        and other in theirs
        and " process 2 on " in theirs
    )
    assert "Install the same versions on all hosts" in rows[-1]


def test_equal_versions_join():
    assert said_by_all("nothing") == "joined\n"


@pytest.mark.parametrize("what, count", [("size", 8), ("smaller", 3)])
def test_another_number_of_processes_is_named_everywhere(what, count):
    output = said_by_all(what)
    assert f"process 2 of {count} (" in output and "the coordinator serves 4 processes" in output


def test_a_version_that_a_process_does_not_tell_is_none():
    hosts = ["a", "b", "b"]
    agreement.check_versions([{"weft": "1"}] * 3, hosts)
    with pytest.raises(
        ProcessFailureError, match=r"(?s)weft +none +process 0 on a.*weft +1 +processes 1-2 on b"
    ) as caught:
        agreement.check_versions([None, {"weft": "1"}, {"weft": "1"}], hosts)
    assert caught.value.ranks == (0,)
