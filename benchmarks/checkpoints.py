#!/usr/bin/env python3
"""Seconds to save and restore a tree of 256 MiB on eight devices, by weft.checkpoint and, in another environment, by orbax on JAX.

    python benchmarks/checkpoints.py [--peer OTHER/bin/python] [--folder ON_THE_DISK] [--rounds 5]

In:   the Python of an environment with JAX and orbax; a folder on the disk to be measured.
Out:  a table of medians: how long the program is kept from computing, the whole save, a restore as it was, a restore onto another layout.
Rounds alternate between the systems, in processes that stay: the disk is no better for one of them.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

ARRAYS, ROWS, COLUMNS = 64, 1024, 1024


def sharded(numpy, jax, spec, mesh):
    rng = numpy.random.default_rng(0)
    where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
    return {
        f"w{i}": jax.device_put(rng.standard_normal((ROWS, COLUMNS), dtype=numpy.float32), where)
        for i in range(ARRAYS)
    }, where


def serve(system: str) -> None:
    """Answers each line, the name of a folder, with the seconds of one round."""
    import numpy

    if system == "weft":
        import weft as jax
        from weft import checkpoint
    else:
        import jax
        import orbax.checkpoint as orbax
    mesh = jax.make_mesh((4, 2), ("a", "b"))
    tree, rows = sharded(numpy, jax, ("a", "b"), mesh)
    columns = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, ("a", "b")))
    jax.block_until_ready(tree)
    wanted = [
        {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where) for name, x in tree.items()}
        for where in (rows, columns)
    ]
    for line in sys.stdin:
        folder = Path(line.strip())
        start = time.perf_counter()
        if system == "weft":
            saving = checkpoint.save(folder, tree, 1)
            blocked = time.perf_counter()
            saving.wait()
            saved = time.perf_counter()
            restores = [partial(checkpoint.restore, folder, want) for want in wanted]
        else:
            saver = orbax.AsyncCheckpointer(orbax.StandardCheckpointHandler())
            saver.save(folder / "1", args=orbax.args.StandardSave(tree))
            blocked = time.perf_counter()
            saver.wait_until_finished()
            saved = time.perf_counter()
            restores = [
                partial(saver.restore, folder / "1", args=orbax.args.StandardRestore(want))
                for want in wanted
            ]
        seconds = [blocked - start, saved - start]
        for restore in restores:
            began = time.perf_counter()
            found = restore()
            jax.block_until_ready(found)
            seconds.append(time.perf_counter() - began)
            assert numpy.array_equal(numpy.asarray(found["w3"]), numpy.asarray(tree["w3"]))
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        print(json.dumps([*seconds, size]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer", help="the Python of an environment with JAX and orbax")
    parser.add_argument("--folder", help="where to save; a temporary folder by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", choices=("weft", "jax"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args.serve)
    environment = {
        **os.environ,
        "WEFT_NUM_DEVICES": "8",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    systems = {"weft": sys.executable, **({"jax": args.peer} if args.peer else {})}
    workers = {
        name: subprocess.Popen(
            [python, __file__, "--serve", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment if name == "weft" else {**environment, "PYTHONPATH": ""},
        )
        for name, python in systems.items()
    }
    found: dict[str, list[list[float]]] = {name: [] for name in systems}
    with tempfile.TemporaryDirectory(dir=args.folder) as root:
        for number in range(args.rounds + 1):
            for name, worker in workers.items():
                folder = Path(root, f"{name}{number}")
                worker.stdin.write(f"{folder}\n")
                worker.stdin.flush()
                answer = json.loads(worker.stdout.readline())
                shutil.rmtree(folder)
                if number:  # the first round warms both
                    found[name].append(answer)
    for worker in workers.values():
        worker.stdin.close()
        worker.wait()
    print(
        "| | the program waits | saved | restored | onto another layout | MB on the disk |\n|---|--:|--:|--:|--:|--:|"
    )
    for name, rounds in found.items():
        *seconds, size = (statistics.median(column) for column in zip(*rounds))
        print(
            f"| {'orbax on JAX' if name == 'jax' else name} | "
            + " | ".join(f"{s * 1e3:.0f} ms" for s in seconds)
            + f" | {size / 1e6:.0f} |"
        )


if __name__ == "__main__":
    main()
