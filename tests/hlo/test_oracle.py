"""Texts of all programs, read and executed by the peer. Run with `-m oracle` and WEFT_ORACLE_PYTHON set."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

import weft
from tests.hlo.programs import PROGRAMS, Program
from weft.util import dtypes

pytestmark = pytest.mark.oracle

AXES = (["a", "b"], [4, 2])
#: what the peer reads and does not execute, besides calls of what only weft has
NOT_EXECUTED = {"broadcast_collective": "XLA has no collective-broadcast on CPUs"}


def leaves(program: Program, results) -> list[np.ndarray]:
    return [np.asarray(y) for y in weft.tree.leaves(results)]


def plain(x: np.ndarray) -> np.ndarray:
    """An array of a dtype that files know."""
    return x.astype(np.float32) if x.dtype == dtypes.bfloat16 else x


@pytest.fixture(scope="module")
def peer(tmp_path_factory) -> tuple[dict[str, str], pathlib.Path]:
    """What the peer said of each program that it refuses, and the folder of its results."""
    python = os.environ.get("WEFT_ORACLE_PYTHON")
    if not python:
        pytest.skip("WEFT_ORACLE_PYTHON is not set")
    folder = tmp_path_factory.mktemp("stablehlo")
    todo = []
    for p in PROGRAMS:
        with weft.enable_x64(p.x64):
            lowered = p.lower()
            text = lowered.as_text()
            kept = [x for x, keep in zip(p.args, lowered._traced._kept(lowered._traced._program.jaxpr)[1]) if keep]
        devices = 8 if "num_partitions = 8" in text else 1
        np.savez(folder / f"{p.name}.npz", **{f"{i:03}": np.asarray(x) for i, x in enumerate(kept)})
        specs = None if p.specs is None else [list(s) for s in p.specs]
        todo.append([p.name, text, devices, AXES if devices == 8 else None, specs, executes(p, text)])
        todo.append([f"{p.name} with places", lowered.as_text(debug_info=True), devices, None, None, False])
    (folder / "todo.json").write_text(json.dumps(todo))
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    script = pathlib.Path(__file__).with_name("peer.py")
    subprocess.run([python, str(script), str(folder)], env=env, check=True, timeout=600)
    return json.loads((folder / "failed.json").read_text()), folder


def executes(program: Program, text: str) -> bool:
    """Whether the peer can execute it."""
    return "custom_call" not in text and program.name not in NOT_EXECUTED


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_the_peer_reads_it_and_computes_the_same(program: Program, peer):
    failed, folder = peer
    assert failed.get(program.name) is None and failed.get(f"{program.name} with places") is None
    path = folder / f"{program.name}.out.npz"
    if not path.exists():
        return
    with weft.enable_x64(program.x64):
        wanted = leaves(program, weft.jit(program.fn, **program.placement())(*program.args))
    with np.load(path) as found:
        found = [found[k] for k in found]
    assert len(found) == len(wanted)
    for i, (x, y) in enumerate(zip(found, wanted)):
        assert x.shape == y.shape, i
        if y.dtype == bool or dtypes.issubdtype(y.dtype, np.integer):
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y, err_msg=str(i))
        else:
            close(x, plain(y), program.tolerance, i)


def close(x: np.ndarray, y: np.ndarray, tolerance: float, i: int) -> None:
    finite = y[np.isfinite(y)]
    scale = float(np.abs(finite).max()) if finite.size else 1.0
    np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * max(scale, 1e-30), err_msg=str(i))
