"""Several processes on one machine, weft beside JAX with gloo: `python benchmarks/processes.py PEER_PYTHON [--ranks 2] [CASE...]`.

Starts as many ranks of each system in turn, each with one device and its share of the cores, and prints a row per case: the best round of
both systems, as rank 0 measures it, the ratio of these, and the ratio of the medians, which other work on the machine changes more. `start`
is the time from starting the ranks to the first result of an all-reduce on the last of them, with an empty folder of compiled programs and
with a full one.

    rank SYSTEM NUMBER SIZE ADDRESS CASE...     one rank of them: prints lines of JSON
"""

from __future__ import annotations

import compileall
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROUND_S, ROUNDS = 0.5, 5
REPETITIONS = 3


# ---- one rank

def all_reduce(elements: int) -> Callable:
    def make(jax: Any, layout: Callable) -> tuple[Callable, tuple]:
        import numpy as np
        from jax.sharding import PartitionSpec as P

        mesh, lay = layout
        f = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
        local = np.ones((elements * len(jax.local_devices()),), np.float32)
        return f, (jax.make_array_from_process_local_data(lay("x"), local),)
    return make


def mlp_step(jax: Any, layout: tuple) -> tuple[Callable, tuple]:
    """Data parallel, gradient descent, as the tutorial's network."""
    import numpy as np
    import programs

    _, lay = layout
    params = jax.device_put(programs.mlp_params([784, 512, 512, 10]), lay())
    random = np.random.default_rng(jax.process_index())
    batch = tuple(jax.make_array_from_process_local_data(lay("x"), random.standard_normal((128, n)).astype(np.float32)) for n in (784, 10))

    @jax.jit
    def step(params, batch):
        grads = jax.grad(programs.mlp_loss)(params, batch)
        return jax.tree_util.tree_map(lambda p, g: p - 0.01 * g, params, grads)
    return step, (params, batch)


def gpt_step(jax: Any, layout: tuple) -> tuple[Callable, tuple]:
    """Data parallel, Adam."""
    import programs

    _, lay = layout
    step, (state, tokens) = programs.gpt_step(4, 256, 1024, 128, 8, False)
    return jax.jit(step), (jax.device_put(state, lay()), jax.device_put(tokens, lay("x")))


CASES: dict[str, Callable] = {"all-reduce 4 B": all_reduce(1), "all-reduce 64 KiB": all_reduce(1 << 14),
                              "all-reduce 64 MiB": all_reduce(1 << 24), "MLP step": mlp_step, "GPT step": gpt_step}


def rank(system: str, number: int, size: int, address: str, cases: list[str]) -> None:
    if system == "weft":
        import weft.compat

        weft.compat.install_as_jax()
    import jax

    if system != "weft":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, size, number)
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    mesh = Mesh(np.array(jax.devices()), ("x",))
    layout = mesh, lambda *entries: NamedSharding(mesh, P(*entries))
    if cases == ["start"]:
        f, args = all_reduce(1)(jax, layout)
        jax.block_until_ready(f(*args))
        print(json.dumps({"first": time.time()}), flush=True)
        return
    for case in cases:
        f, args = CASES[case](jax, layout)
        call = lambda f=f, args=args: jax.block_until_ready(f(*args))
        for _ in range(3):
            call()
        time.sleep(0.3)
        begin = time.perf_counter()
        for _ in range(3):
            call()
        # all ranks must call equally often: the first says how often
        each = (time.perf_counter() - begin) / 3
        count = max(3, int(ROUND_S / each))
        counts = jax.make_array_from_process_local_data(layout[1]("x"), np.array([count], np.int32))
        count = int(jax.jit(lambda x: x.min(), out_shardings=layout[1]())(counts))
        rounds = []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            for _ in range(count):
                call()
            rounds.append((time.perf_counter() - begin) / count)
        print(json.dumps({"case": case, "seconds": rounds}), flush=True)


# ---- all of them

def run(python: str, system: str, size: int, cases: list[str], cache: str) -> list[list[dict]]:
    """What each rank printed."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    threads = str(max(1, (os.cpu_count() or 1) // size))
    env = {**os.environ, "PYTHONPATH": f"{HERE.parent}:{HERE}" if system == "weft" else str(HERE), "WEFT_NUM_DEVICES": "1",
           "WEFT_NUM_THREADS": threads, "WEFT_CACHE_DIR": cache, "JAX_PLATFORMS": "cpu",
           "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={'true' if threads != '1' else 'false'} intra_op_parallelism_threads={threads}"}
    if system == "weft":
        del env["XLA_FLAGS"]
    for name in ("WEFT_VERIFY", "PYTHONDONTWRITEBYTECODE"):
        env.pop(name, None)
    started = [subprocess.Popen([python, __file__, "rank", system, str(n), str(size), address, *cases], env=env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True) for n in range(size)]
    said = []
    try:
        for process in started:
            out, err = process.communicate(timeout=600)
            if process.returncode:
                raise SystemExit(f"{system}: a rank ended with {process.returncode}\n{err[-3000:]}")
            said.append([json.loads(line) for line in out.splitlines() if line.startswith("{")])
    finally:
        for process in started:
            process.kill()
    return said


def main(peer: str, size: int, cases: list[str]) -> None:
    print(f"{size} ranks, {os.cpu_count()} cores, {REPETITIONS} runs of each system in turn\n")
    print("| case | weft | JAX | ratio | of medians |\n|---|---|---|---|---|")
    compileall.compile_dir(HERE.parent / "weft", quiet=1)     # an installed package has its bytecode, as the peer has
    with tempfile.TemporaryDirectory() as cache:
        if "start" in cases:
            cases = [case for case in cases if case != "start"]
            times: dict[str, list[float]] = {"weft, empty": [], "weft": [], "jax": []}
            for n in range(REPETITIONS):
                for label, found in times.items():
                    system, python = ("jax", peer) if label == "jax" else ("weft", sys.executable)
                    begin = time.time()
                    found.append(max(lines[0]["first"] for lines in run(python, system, size, ["start"], f"{cache}/{n}")) - begin)
            for label in ("weft, empty", "weft"):
                empty = ", nothing compiled before" * ("empty" in label)
                _row(f"start to first result{empty}", times[label], times["jax"], 1, "s")
        for case in cases:
            found: dict[str, list[float]] = {"weft": [], "jax": []}
            for _ in range(REPETITIONS):
                for system, python in (("weft", sys.executable), ("jax", peer)):
                    found[system] += run(python, system, size, [case], cache)[0][0]["seconds"]
            _row(case, found["weft"], found["jax"], 1e6, "µs")


def _row(case: str, ours: list[float], theirs: list[float], scale: float, unit: str) -> None:
    digits = 1 if scale > 1 else 2
    best, medians = min(ours) / min(theirs), statistics.median(ours) / statistics.median(theirs)
    print(f"| {case} | {scale * min(ours):,.{digits}f} {unit} | {scale * min(theirs):,.{digits}f} {unit} | {best:.3f} | {medians:.3f} |",
          flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        rank(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], sys.argv[6:])
    else:
        words = sys.argv[2:]
        ranks = int(words.pop(words.index("--ranks") + 1)) if "--ranks" in words else 2
        main(sys.argv[1], ranks, [word for word in words if word != "--ranks"] or [*CASES, "start"])
