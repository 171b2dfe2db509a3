"""Texts of all programs, read and executed by the peer. Run with `-m oracle` and WEFT_ORACLE_PYTHON set."""

import json
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest

import weft
from tests.hlo.programs import PROGRAMS, Program
from weft._engine.hlo.text.hlo_proto import module_text
from weft._engine.hlo.text.stablehlo import stablehlo_text
from weft._engine.util import dtypes

pytestmark = pytest.mark.oracle

AXES = (["a", "b"], [4, 2])
#: texts that the peer reads but cannot execute
NOT_EXECUTED = {
    "factorizations": "calls of libraries",
    "forms_and_reflectors": "calls of libraries",
    "incomplete_beta": "calls of libraries",
    "distributions": "calls of libraries",
    "callbacks": "calls of Python",
    "ragged_exchange": "XLA has it as a call of its own, on GPUs",
    "broadcast_collective": "XLA has no collective-broadcast on CPUs",
    "tiled": "a call that says how devices hold tiles, of the time before named axes",
}
#: characters of HLO from which on reading is enough: formulas compile for minutes
_LONG = 40_000


def plain(x: np.ndarray) -> np.ndarray:
    """Return the array in a dtype that `.npz` files can store."""
    return x.astype(np.float32) if x.dtype == dtypes.bfloat16 else x


def raw(x):
    """Return an argument for a text: random keys become their words."""
    return weft.random.key_data(x) if dtypes.is_extended(x.dtype) else x


def texts_of(program: Program) -> dict[str, str]:
    """Return the texts of a program for the peer, by the suffix of the program's name."""
    lowered = program.lower()
    texts = {"": lowered.as_text(), " with places": lowered.as_text(debug_info=True)}
    if "chlo." in texts[""]:
        texts[" spelled out"] = stablehlo_text(lowered._traced.jaxpr, program.name, chlo=False)
        assert "chlo." not in texts[" spelled out"]
    compiled = lowered.compile().as_text()
    calls = re.sub(
        r" fusion\((.*), kind=\w+, calls=", r" call(\1, to_apply=", compiled
    )  # the peer executes no HLO with fusions
    return texts | {
        " as HLO": lowered.as_text("hlo"),
        " compiled": compiled,
        " compiled, with calls": calls,
    }


def executes(program: Program, which: str, text: str) -> bool:
    """Return whether the peer can execute a text. It only reads HLO for several devices, and cannot translate some functions."""
    if program.name in NOT_EXECUTED or which in (" with places", " compiled"):
        return False
    lacks = (
        any(f" {op}(" in text for op in ("sinh", "cosh", "asinh", "acosh", "atanh", "custom-call"))
        or "num_partitions=" in text
    )
    return not text.startswith("HloModule") or not (lacks or len(text) > _LONG)


@pytest.fixture(scope="module")
def peer(request, tmp_path_factory) -> tuple[dict[str, str], pathlib.Path]:
    """Return the peer's error for each refused text, and the folder of results."""
    python = os.environ.get("WEFT_ORACLE_PYTHON")
    if not python:
        pytest.skip("WEFT_ORACLE_PYTHON is not set")
    folder = tmp_path_factory.mktemp("stablehlo")
    todo, chosen = (
        [],
        {item.callspec.id for item in request.session.items if item.module is request.module},
    )
    for p in [p for p in PROGRAMS if p.name in chosen]:
        with weft.enable_x64(p.x64):
            texts = texts_of(p)
            constants = (
                p.lower().compile()._consts
            )  # which a compiled program takes before its arguments
        for which, text in texts.items():
            devices = 8 if "num_partitions = 8" in text else 1
            specs = None if p.specs is None else [list(s) for s in p.specs]
            todo.append(
                [
                    p.name + which,
                    text,
                    devices,
                    AXES if devices == 8 else None,
                    specs,
                    executes(p, which, text),
                ]
            )
            inputs = [*(constants if "compiled" in which else ()), *p.args]
            np.savez(
                folder / f"{p.name + which}.npz",
                **{f"{i:03}": np.asarray(raw(x)) for i, x in enumerate(inputs)},
            )
    (folder / "todo.json").write_text(json.dumps(todo))
    env = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    script = pathlib.Path(__file__).with_name("peer.py")
    subprocess.run([python, str(script), str(folder)], env=env, check=True, timeout=900)
    return json.loads((folder / "failed.json").read_text()), folder


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_the_peer_reads_it_and_computes_the_same(program: Program, peer):
    failed, folder = peer
    assert {
        name: why for name, why in failed.items() if name.partition(" ")[0] == program.name
    } == {}
    with weft.enable_x64(program.x64):
        expected = [
            np.asarray(y)
            for y in weft.tree.leaves(weft.jit(program.fn, **program.placement())(*program.args))
        ]
        executed = [
            program.name + which
            for which, text in texts_of(program).items()
            if executes(program, which, text)
        ]
    for name in executed:
        compare(folder / f"{name}.out.npz", expected, program.tolerance)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_serialized_hlo_prints_as_the_peer_prints_it(program: Program, peer):
    lines = lambda text: sorted(
        text.replace(", has_dynamic_root=false", "").splitlines()
    )  # computations may stand in another order
    for which in (" as HLO", " compiled"):
        path = peer[1] / f"{program.name}{which}.pb"
        printed = re.sub(
            r", num_partitions=\d+", "", path.with_suffix(".txt").read_text(), count=1
        )  # the serialized module has no such field
        assert lines(module_text(path.read_bytes()).rstrip()) == lines(printed.rstrip())


def compare(path: pathlib.Path, wanted: list[np.ndarray], tolerance: float) -> None:
    """Assert that the results in a file are near `wanted`."""
    with np.load(path) as results:
        results = [results[k] for k in results]
    assert len(results) == len(wanted)
    for i, (x, y) in enumerate(zip(results, wanted)):
        assert x.shape == y.shape, i
        if y.dtype == bool or dtypes.issubdtype(y.dtype, np.integer):
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y, err_msg=str(i))
        else:
            finite = plain(y)[np.isfinite(plain(y))]
            least = tolerance * max(float(np.abs(finite).max(initial=0)), 1e-30)
            np.testing.assert_allclose(x, plain(y), rtol=tolerance, atol=least, err_msg=str(i))
