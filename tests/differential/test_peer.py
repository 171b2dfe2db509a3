"""The same program text on weft and on the peer: equal values to rounding, equal types. Run with `-m oracle`.

The peer's Python is named by WEFT_PEER_PYTHON or WEFT_ORACLE_PYTHON, else it is .venv-peer/bin/python of this checkout.
"""

from __future__ import annotations

import os
import pathlib
import pickle
import random
import subprocess

import numpy as np
import pytest

import weft
from tests.differential.programs import Program, make
from weft import lax, nn, numpy as wnp, random as weft_random

pytestmark = pytest.mark.oracle
ROOT = pathlib.Path(__file__).resolve().parents[2]
COUNT = int(os.environ.get("WEFT_PEER_PROGRAMS", "150"))


def peer_python() -> str:
    named = [os.environ.get(name) for name in ("WEFT_PEER_PYTHON", "WEFT_ORACLE_PYTHON")]
    for candidate in (*named, str(ROOT / ".venv-peer/bin/python")):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    pytest.skip("no environment with the peer: set WEFT_PEER_PYTHON, or make .venv-peer")


@pytest.fixture(scope="session")
def ask(tmp_path_factory):
    """Return `ask(tasks)`, which runs (text, arrays) pairs on the peer in one process."""
    python, folder = peer_python(), tmp_path_factory.mktemp("peer")

    def run(tasks: list) -> list:
        (folder / "in").write_bytes(pickle.dumps(tasks))
        env = dict(os.environ, JAX_PLATFORMS="cpu", PYTHONPATH="")
        subprocess.run(
            [python, pathlib.Path(__file__).with_name("peer.py"), folder / "in", folder / "out"],
            check=True,
            env=env,
            timeout=900,
        )
        return pickle.loads((folder / "out").read_bytes())

    return run


def ours(text: str, arrays: list) -> list:
    scope: dict = {"api": weft, "xp": wnp, "lax": lax, "nn": nn, "random": weft_random}
    exec(text, scope)
    results = [wnp.asarray(x) for x in weft.tree.leaves(scope["main"](*map(wnp.asarray, arrays)))]
    return [(np.asarray(x), x.dtype.name, x.weak_type) for x in results]


def difference(got: list, want: list | str, rtol: float = 3e-4) -> str | None:
    """Return a line that names the first difference, or None."""
    if isinstance(want, str):
        return f"the peer raises {want[:200]}"
    if len(got) != len(want):
        return f"{len(got)} results, the peer gives {len(want)}"
    for i, ((x, dtype, weak), (y, peer_dtype, peer_weak)) in enumerate(zip(got, want)):
        if dtype == "bool":  # a weak bool promotes as any bool does
            weak = peer_weak
        if (dtype, weak, x.shape) != (peer_dtype, peer_weak, y.shape):
            return f"result {i} is {dtype}{x.shape} weak={weak}, the peer's is {peer_dtype}{y.shape} weak={peer_weak}"
        wide = np.complex128 if np.iscomplexobj(y) else np.float64
        x, y = x.astype(wide), y.astype(wide)
        step = {"bfloat16": 2e-2, "float16": 3e-3}.get(dtype, rtol)
        scale = max(1.0, float(np.max(np.abs(y), initial=0, where=np.isfinite(y))))
        if not np.allclose(x, y, rtol=step, atol=step * scale, equal_nan=True):
            return f"result {i} differs by {np.max(np.abs(x - y))} at scale {scale}"
    return None


def compare(tasks: list, ask) -> None:
    wrong = []
    for (text, arrays), want in zip(tasks, ask(tasks)):
        try:
            what = difference(ours(text, arrays), want)
        except Exception as error:
            what = f"{type(error).__name__}: {error}" if not isinstance(want, str) else None
        if what is not None:
            wrong.append(f"{what}\n{text}")
    assert not wrong, f"{len(wrong)} of {len(tasks)} programs differ:\n" + "\n".join(wrong)


def test_random_programs(ask):
    programs: list[Program] = [make(random.Random(seed).choice) for seed in range(COUNT)]
    compare([(p.text, p.arguments()) for p in programs], ask)


VALUES = ["a", "b", "c", "h", "u", "t", "2", "2.5", "True", "a[0]"]
OPERATIONS = [
    "{0} + {1}",
    "{0} * {1}",
    "{0} / {1}",
    "{0} - {1}",
    "{0} ** {1}",
    "xp.maximum({0}, {1})",
    "xp.where(t, {0}, {1})",
    "{0} < {1}",
    "xp.arctan2({0}, {1})",
    "xp.floor_divide({0}, {1})",
]


def test_types_of_binary_operations(ask):
    """dtype and weak type of every pair of kinds of operands, and their values."""
    arrays = [
        np.array([1.5, -2.0], np.float32),
        np.array([0.5, 3.0], np.float16),
        np.array([2, 3], np.int32),
        np.array([1.25, 2.0], np.float32),
        np.array([7, 9], np.uint8),
        np.array([True, False]),
    ]
    tasks = []
    for operation in OPERATIONS:
        for x in VALUES:
            for y in VALUES:
                if (x[0].isalpha() or y[0].isalpha()) and not (
                    operation.startswith("{0} -") and {x, y} <= {"t", "True"}
                ):
                    body = operation.format(x, y)
                    tasks.append(
                        (
                            f"def main(a, b, c, h, u, t):\n    h = h.astype(xp.bfloat16)\n    return {body}\n",
                            arrays,
                        )
                    )
    compare(tasks, ask)
