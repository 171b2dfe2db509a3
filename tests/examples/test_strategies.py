"""Every strategy, run as its first lines say, has the results of one device and sends the bytes listed here."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import weft

FOLDER = Path(weft.__file__).parents[1] / "examples" / "strategies"

#: program -> case -> runs of collectives by kind, bytes that a device sends
EXPECTED = {
    "data_parallel": {"data_parallel": ({"psum": 1}, 188_279)},
    "fsdp": {"fsdp": ({"all_gather": 8, "psum": 1, "reduce_scatter": 4}, 172_039)},
    "tensor_parallel": {"tensor_parallel": ({"psum": 4}, 122_884)},
    "pipeline_parallel": {"pipeline_parallel": ({"ppermute": 46, "psum": 1}, 23_559)},
    "ring_attention": {"ring_attention": ({"ppermute": 28, "psum": 1}, 229_383)},
    "expert_parallel": {"expert_parallel": ({"all_to_all": 4, "psum": 1}, 32_263)},
    "collective_matmul": {
        "gathered": ({"all_gather": 1}, 28_672),
        "gathered_ring": ({"ppermute": 7}, 28_672),
        "gathered_two_rings": ({"ppermute": 14}, 28_672),
        "scattered": ({"reduce_scatter": 1}, 21_504),
        "scattered_ring": ({"ppermute": 7}, 21_504),
        "scattered_two_rings": ({"ppermute": 14}, 21_504),
    },
}  # fmt: skip


def run(command, name, **variables):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | variables
    done = subprocess.run([*command], env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, f"{name}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def test_no_strategy_is_left_out():
    assert {path.stem for path in FOLDER.glob("*.py")} == {*EXPECTED, "strategy"}


@pytest.mark.parametrize("name", EXPECTED)
def test_strategies_agree_with_one_device_and_send_known_bytes(name):
    command = [sys.executable, "-m", "weft", "run", str(FOLDER / f"{name}.py"), "--devices", "8"]
    text = run(command, name, PYTHONPATH=str(FOLDER.parents[1]))
    cases = re.split(r"^(\w+): differs from one device by \S+\n", text, flags=re.MULTILINE)[1:]
    counts = {}
    for case, expected in zip(cases[::2], cases[1::2]):
        kinds = {}
        for times, kind in re.findall(r"^ +(?:(\d+) x )?(\w+) over ", expected, flags=re.MULTILINE):
            kinds[kind] = kinds.get(kind, 0) + int(times or 1)
        counts[case] = (
            kinds,
            int(re.search(r"([\d,]+) B sent by each device", expected)[1].replace(",", "")),
        )
    assert counts == EXPECTED[name]


@pytest.mark.oracle
@pytest.mark.parametrize("name", EXPECTED)
def test_the_same_program_runs_on_the_other_system(name):
    python = os.environ.get("WEFT_ORACLE_PYTHON")
    if not python:
        pytest.skip("WEFT_ORACLE_PYTHON is not set")
    text = run(
        [python, str(FOLDER / f"{name}.py")],
        name,
        XLA_FLAGS="--xla_force_host_platform_device_count=8",
        JAX_PLATFORMS="cpu",
    )
    assert text.count("differs from one device") == len(EXPECTED[name])
