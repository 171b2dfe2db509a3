"""Several processes, weft beside JAX with gloo: `python benchmarks/processes.py --jax PYTHON [--ranks 2] [CASE...]`.

Starts as many ranks of each system in turn, each with one device and its share of the cores, and prints a row per case: the best round of
both systems, as rank 0 measures it, the ratio of these, and the ratio of the medians, which other work on the machine changes more. `start`
is the time from starting the ranks to the first result of an all-reduce on the last of them, with an empty folder of compiled programs and
with a full one.

With `--hosts N` each rank runs on a host of its own, which are network namespaces of this machine (needs root); `--rate 1gbit` limits the
links between them, and `--delay 0.2ms` delays messages where the kernel can. Then the last column is weft's share of the line: of the
bytes that every host has to send and receive.

    rank SYSTEM NUMBER SIZE ADDRESS CASE...     one rank of them: prints lines of JSON
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
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
        f = jax.jit(
            jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
        )
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
    batch = tuple(
        jax.make_array_from_process_local_data(
            lay("x"), random.standard_normal((128, n)).astype(np.float32)
        )
        for n in (784, 10)
    )

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


BETWEEN_HOSTS = {
    "all-reduce 4 B": 4,
    "all-reduce 1 MiB": 1 << 20,
    "all-reduce 64 MiB": 1 << 26,
}  # case -> bytes
CASES: dict[str, Callable] = {
    "all-reduce 4 B": all_reduce(1),
    "all-reduce 64 KiB": all_reduce(1 << 14),
    "all-reduce 1 MiB": all_reduce(1 << 18),
    "all-reduce 64 MiB": all_reduce(1 << 24),
    "MLP step": mlp_step,
    "GPT step": gpt_step,
}


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


def run(
    python: str, system: str, size: int, cases: list[str], cache: str, hosts: Any = None
) -> list[list[dict]]:
    """What each rank printed."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    address = f"{hosts.addresses[0] if hosts else '127.0.0.1'}:{port}"
    threads = str(max(1, (os.cpu_count() or 1) // size))
    env = {
        **os.environ,
        "PYTHONPATH": f"{HERE.parent}:{HERE}" if system == "weft" else str(HERE),
        "WEFT_NUM_DEVICES": "1",
        "WEFT_NUM_THREADS": threads,
        "WEFT_CACHE_DIR": cache,
        "WEFT_JOB_SECRET": "a secret of this benchmark",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={'true' if threads != '1' else 'false'} intra_op_parallelism_threads={threads}",
    }
    if system == "weft":
        del env["XLA_FLAGS"]
    for name in ("WEFT_VERIFY", "PYTHONDONTWRITEBYTECODE"):
        env.pop(name, None)
    commands = [
        [python, str(HERE / "processes.py"), "rank", system, str(n), str(size), address, *cases]
        for n in range(size)
    ]
    if hosts:
        commands = [hosts.command(n, words) for n, words in enumerate(commands)]
    started = [
        subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for words in commands
    ]
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


def main(options: argparse.Namespace) -> None:
    compileall.compile_dir(
        HERE.parent / "weft", quiet=1
    )  # an installed package has its bytecode, as the peer has
    with tempfile.TemporaryDirectory() as cache, contextlib.ExitStack() as stack:
        size, hosts = options.hosts or options.ranks, None
        where = f"{size} ranks"
        if options.hosts:
            sys.path.insert(0, str(HERE.parent))
            from tests.processes.hosts import hosts as made

            hosts = stack.enter_context(made(size, options.rate, options.delay))
            delay = f" with a delay of {hosts.delay}" if hosts.delay else ""
            where += f" on as many hosts, {f'links of {options.rate}' if options.rate else 'unlimited links'}{delay}"
        print(f"{where}, {os.cpu_count()} cores, {REPETITIONS} runs of each system in turn\n")
        print(f"| case | weft | JAX | ratio | of medians |{' of the line |' * bool(options.rate)}")
        print(f"|---|---|---|---|---|{'---|' * bool(options.rate)}")
        cases = options.cases or list(BETWEEN_HOSTS if options.hosts else [*CASES, "start"])
        if "start" in cases:
            _starts(options.jax, size, cache, hosts)
        for case in cases:
            if case == "start":
                continue
            found: dict[str, list[float]] = {"weft": [], "jax": []}
            for _ in range(REPETITIONS):
                for system, python in (("weft", sys.executable), ("jax", options.jax)):
                    found[system] += run(python, system, size, [case], cache, hosts)[0][0][
                        "seconds"
                    ]
            share = ""
            if options.rate and case in BETWEEN_HOSTS:
                bits = 8 * BETWEEN_HOSTS[case] * 2 * (size - 1) / size
                share = f" {bits / _bits_per_second(options.rate) / statistics.median(found['weft']):.0%} |"
            _row(case, found["weft"], found["jax"], 1e6, "µs", share)


def _starts(peer: str, size: int, cache: str, hosts: Any) -> None:
    times: dict[str, list[float]] = {"weft, empty": [], "weft": [], "jax": []}
    for n in range(REPETITIONS):
        for label, found in times.items():
            system, python = ("jax", peer) if label == "jax" else ("weft", sys.executable)
            begin = time.time()
            found.append(
                max(
                    lines[0]["first"]
                    for lines in run(python, system, size, ["start"], f"{cache}/{n}", hosts)
                )
                - begin
            )
    for label in ("weft, empty", "weft"):
        empty = ", nothing compiled before" * ("empty" in label)
        _row(f"start to first result{empty}", times[label], times["jax"], 1, "s")


def _bits_per_second(rate: str) -> float:
    """Of a rate as tc writes it.

    >>> _bits_per_second("1gbit"), _bits_per_second("200mbit")
    (1000000000.0, 200000000.0)
    """
    scale = {"gbit": 1e9, "mbit": 1e6, "kbit": 1e3}
    return next(
        float(rate.removesuffix(unit)) * factor
        for unit, factor in scale.items()
        if rate.endswith(unit)
    )


def _row(
    case: str, ours: list[float], theirs: list[float], scale: float, unit: str, last: str = ""
) -> None:
    digits = 1 if scale > 1 else 2
    best, medians = min(ours) / min(theirs), statistics.median(ours) / statistics.median(theirs)
    times = f"{scale * min(ours):,.{digits}f} {unit} | {scale * min(theirs):,.{digits}f} {unit}"
    print(f"| {case} | {times} | {best:.3f} | {medians:.3f} |{last}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], sys.argv[6:])
    else:
        parser = argparse.ArgumentParser(
            description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.add_argument("--jax", required=True, metavar="PYTHON")
        parser.add_argument("--ranks", type=int, default=2)
        parser.add_argument("--hosts", type=int, default=0)
        parser.add_argument("--rate", default="")
        parser.add_argument("--delay", default="0ms")
        parser.add_argument("cases", nargs="*", metavar="CASE")
        main(parser.parse_args())
