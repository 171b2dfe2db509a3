"""The parallelism strategies over processes: results equal the results of one device, and each
process sends the listed bytes."""

import re

import pytest

from tests.processes.ranks import ROOT, run_ranks

FOLDER = ROOT / "examples" / "strategies"

#: program -> bytes that a process sends in the first case, of 2 x 4 and of 4 x 2 devices
EXPECTED = {
    "data_parallel": (107_588, 161_382),
    "fsdp": (98_308, 147_462),
    "tensor_parallel": (196_612, 147_460),
    "pipeline_parallel": (23_556, 23_558),
    "ring_attention": (229_380, 229_382),
    "expert_parallel": (67_588, 52_230),
    "collective_matmul": (16_384, 24_576),
}

PROGRAM = f"""
import runpy, sys

from weft.compat import install_as_jax

install_as_jax()
sys.path.insert(0, {str(FOLDER)!r})
for name in {list(EXPECTED)!r}:
    print("program", name)
    runpy.run_path(f"{FOLDER}/{{name}}.py", run_name="__main__")
"""


@pytest.mark.parametrize("processes", [2, 4])
def test_results_are_those_of_one_device_and_messages_are_known(processes):
    text = run_ranks(processes, PROGRAM, 8 // processes)[0].out
    programs = re.split(r"^program (\w+)\n", text, flags=re.MULTILINE)[1:]
    sent = {
        name: int(re.search(r"([\d,]+) B sent by each process", expected)[1].replace(",", ""))
        for name, expected in zip(programs[::2], programs[1::2])
    }
    assert sent == {name: counts[processes == 4] for name, counts in EXPECTED.items()}
    assert text.count("differs from one device by") == 12


COUNTED = f"""
import ctypes, importlib, sys

import weft
from weft._engine import processes
from weft.compat import install_as_jax
from weft._engine.processes.transport import START

install_as_jax()
sys.path.insert(0, {str(FOLDER)!r})
shared = processes.current()
routes, sent = shared.transport, [0]
points = routes.entry_points()
start = START(points["start"])

def bytes_of(plan):
    group = plan.group_of(shared.rank)
    if plan.kind == "permute":
        others = sum(source == shared.rank != target for source, target in plan.pairs)
    elif plan.kind == "broadcast":
        others = (len(group) - 1) * (group[:1] == (shared.rank,))
    else:
        others = len(group) - 1
    return others * plan.count * plan.numpy_dtype.itemsize // (len(group) if plan.kind == "all_to_all" else 1)

def counted(handle, given, out):
    sent[0] += next(bytes_of(plan) for plan, known in routes._handles.items() if known == handle)
    return start(handle, given, out)

callback = START(counted)
routes.entry_points = lambda: {{**points, "start": ctypes.cast(callback, ctypes.c_void_p).value}}
for name in sys.argv[1:]:
    for case in importlib.import_module(name).cases():
        planned = weft.explain(case.step, *case.arguments).process_bytes
        sent[0] = 0
        weft.block_until_ready(case.step(*case.arguments))
        assert sent[0] == planned > 0, (name, sent, planned)
print("counted")
"""


@pytest.mark.parametrize(
    "names",
    [
        ["data_parallel"],
        pytest.param(sorted({*EXPECTED} - {"pipeline_parallel"}), marks=pytest.mark.slow),
    ],
)
def test_as_many_bytes_travel_as_were_planned(names):
    """Counted where programs start collectives. (A pipeline sends in one direction at a time, and
    the plan has the bytes of the sender.)"""
    outcomes = run_ranks(2, COUNTED, 4, arguments=names)
    assert [rank.out for rank in outcomes] == ["counted\n"] * 2
