"""Checkpoints between weft and orbax itself, in both directions. Run with `-m oracle` and WEFT_ORACLE_PYTHON set to a Python that has
JAX and orbax."""

import json
import os
import subprocess

import numpy as np
import pytest

import weft
from weft import checkpoint
from weft.sharding import NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.oracle

VALUES = {
    "w": np.arange(24 * 8, dtype=np.float32).reshape(24, 8),
    "b": np.arange(6, dtype=np.int16),
    "deep": [{"x": np.ones(3)}],
    "n": 7,
    "f": 2.5,
}

RESTORES = """
import json, sys
import jax, numpy as np, orbax.checkpoint as orbax
jax.config.update("jax_enable_x64", True)
manager = orbax.CheckpointManager(sys.argv[1])
mesh = jax.make_mesh((8,), ("x",))
rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
like = {"w": jax.ShapeDtypeStruct((24, 8), np.float32, sharding=rows), "b": np.zeros(6, np.int16), "deep": [{"x": np.zeros(3)}], "n": 0,
        "f": 0.0}
step = manager.latest_step()
restored = manager.restore(step, args=orbax.args.StandardRestore(like))
assert restored["w"].sharding == rows, restored["w"].sharding
plain = manager.restore(step, args=orbax.args.StandardRestore())
same = jax.tree.all(jax.tree.map(lambda x, y: bool(np.array_equal(x, y)), restored, plain))
print(json.dumps({"step": step, "steps": manager.all_steps(), "same": same, "w": np.asarray(restored["w"]).tolist(),
                  "b": np.asarray(restored["b"]).tolist(), "x": np.asarray(restored["deep"][0]["x"]).tolist(), "n": restored["n"],
                  "f": restored["f"]},
                 default=lambda x: np.asarray(x).tolist()))
"""

SAVES = """
import sys
import jax, numpy as np, orbax.checkpoint as orbax
jax.config.update("jax_enable_x64", True)
mesh = jax.make_mesh((8,), ("x",))
rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
tree = {"w": jax.device_put(np.arange(24 * 8, dtype=np.float32).reshape(24, 8), rows), "b": np.arange(6, dtype=np.int16),
        "deep": [{"x": np.ones(3)}], "n": 7, "f": 2.5}
folder, way = sys.argv[1:]
if way == "manager":
    with orbax.CheckpointManager(folder) as manager:
        manager.save(5, args=orbax.args.StandardSave(tree))
else:
    handler = orbax.PyTreeCheckpointHandler(use_ocdbt="ocdbt" in way, use_zarr3="zarr3" in way)
    with orbax.Checkpointer(handler) as saver:
        saver.save(folder + "/one", args=orbax.args.PyTreeSave(tree))
"""


def peer(program, *words):
    python = os.environ.get("WEFT_ORACLE_PYTHON")
    if not python:
        pytest.skip("WEFT_ORACLE_PYTHON is not set")
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [python, "-c", program, *map(str, words)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_orbax_restores_ours(tmp_path):
    sharded = NamedSharding(weft.make_mesh((4, 2), ("x", "y")), P("x", "y"))
    for step in (3, 8):
        checkpoint.save(
            tmp_path, {**VALUES, "w": weft.device_put(VALUES["w"] + step, sharded)}, step
        ).wait()
    report = json.loads(peer(RESTORES, tmp_path).splitlines()[-1])
    assert report == {
        "step": 8,
        "steps": [3, 8],
        "same": True,
        "w": (VALUES["w"] + 8).tolist(),
        "b": VALUES["b"].tolist(),
        "x": [1.0] * 3,
        "n": 7,
        "f": 2.5,
    }


@pytest.mark.parametrize("way", ["manager", "zarr2", "zarr2 ocdbt", "zarr3", "zarr3 ocdbt"])
def test_orbaxs_are_read(tmp_path, way):
    peer(SAVES, tmp_path, way)
    restored = checkpoint.restore(tmp_path if way == "manager" else tmp_path / "one")
    assert restored["n"] == 7 and restored["f"] == 2.5
    np.testing.assert_array_equal(restored["w"], VALUES["w"])
    np.testing.assert_array_equal(restored["b"], VALUES["b"])
    columns = NamedSharding(weft.make_mesh((2,), ("z",)), P(None, "z"))
    like = {"w": weft.ShapeDtypeStruct((24, 8), np.float32, sharding=columns)}
    placed = checkpoint.restore(tmp_path if way == "manager" else tmp_path / "one", like)["w"]
    assert placed.sharding == columns
    np.testing.assert_array_equal(placed, VALUES["w"])
