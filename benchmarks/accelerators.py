"""Race weft and JAX on one accelerator through the same PJRT plugin.

    python benchmarks/accelerators.py [--jax PYTHON] [--rounds 5] [--write]

Runs the same programs in two processes, which take turns: dispatch of small programs, transfers,
matrix products, attention, a training step of a transformer, and first calls. Prints weft's time
divided by JAX's (below 1 weft is faster), and the largest difference of results. `--write` updates
benchmarks/ACCELERATORS.md. Needs JAX with the plugin of the accelerator and weft's requirements in
one environment (or two: `--jax` names the other's Python), no network, and 8 minutes at most.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
LIMIT_S = 450.0


# --- programs, in the names that weft and JAX share


def make_cases(api: Any, jnp: Any) -> dict[str, tuple[Any, tuple, int]]:
    """Return name -> (function, arguments on the host, calls per measurement)."""
    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.standard_normal(shape, np.float32)

    def attention(q, k, v):
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(q.shape[-1])
        return jnp.einsum("bhqk,bhkd->bhqd", api.nn.softmax(scores, -1), v)

    def loss(params, tokens):
        x = params["embed"][tokens[:, :-1]]
        for layer in params["layers"]:
            q, k, v = [
                (x @ layer[name]).reshape(*x.shape[:2], 8, -1).transpose(0, 2, 1, 3)
                for name in ("q", "k", "v")
            ]
            mixed = attention(q, k, v).transpose(0, 2, 1, 3).reshape(x.shape)
            x = x + mixed @ layer["o"]
            x = x + api.nn.gelu(x @ layer["up"]) @ layer["down"]
        log_p = api.nn.log_softmax(x @ params["embed"].T, -1)
        return -jnp.take_along_axis(log_p, tokens[:, 1:, None], -1).mean()

    def step(params, tokens):
        value, grads = api.value_and_grad(loss)(params, tokens)
        return value, api.tree.map(lambda p, g: p - 1e-3 * g, params, grads)

    width = 512
    layer = lambda: {
        **{name: normal(width, width) / 30 for name in ("q", "k", "v", "o")},
        "up": normal(width, 4 * width) / 30,
        "down": normal(4 * width, width) / 60,
    }
    params = {"embed": normal(8192, width) / 30, "layers": [layer() for _ in range(4)]}
    tokens = rng.integers(0, 8192, (8, 257)).astype(np.int32)
    small = normal(16)
    qkv = tuple(normal(4, 8, 512, 64) for _ in range(3))
    half = lambda f: lambda *xs: f(*[x.astype(jnp.bfloat16) for x in xs]).astype(jnp.float32)
    product = lambda x, y: x @ y
    cases: dict[str, tuple[Any, tuple, int]] = {
        "dispatch of x + 1": (lambda x: x + 1, (small,), 500),
        "dispatch with 20 arguments and results": (
            lambda xs: [x * 2 for x in xs],
            ([small] * 20,),
            200,
        ),
        "sum of 16 million": (lambda x: x.sum(), (normal(4096, 4096),), 10),
        "softmax (4096, 4096)": (lambda x: api.nn.softmax(x, -1), (normal(4096, 4096),), 10),
        "scan of 1000 steps": (
            lambda x: api.lax.scan(lambda c, _: (c * 0.999 + x, c.sum()), x, None, length=1000)[1],
            (small,),
            3,
        ),
        "attention 4x8x512x64, float32": (attention, qkv, 5),
        "attention 4x8x512x64, bfloat16": (half(attention), qkv, 5),
        "transformer training step": (step, (params, tokens), 2),
    }
    for n in (512, 2048):
        pair = (normal(n, n), normal(n, n))
        cases[f"product {n}, float32"] = (product, pair, 5)
        cases[f"product {n}, bfloat16"] = (half(product), pair, 5)
    return cases


def work(system: str) -> None:
    """Measure what each line of the input names; answer with a line of JSON."""
    start = time.perf_counter()
    if system == "weft":
        import weft as api
        import weft.numpy as jnp
    else:
        import jax as api
        import jax.numpy as jnp
    device = api.devices()[0]
    cases = make_cases(api, jnp)
    jitted: dict[str, Any] = {}
    answer = lambda **facts: print(json.dumps(facts), flush=True)
    answer(device=str(device.device_kind), start=time.perf_counter() - start)
    for line in sys.stdin:
        name = line.strip()
        if name.startswith("transfer"):
            answer(seconds=_measure_transfer(api, device, name))
            continue
        function, host_args, calls = cases[name]
        begin = time.perf_counter()
        if name not in jitted:
            args = api.tree.map(lambda x: api.device_put(x, device), host_args)
            run = api.jit(function)
            out = api.block_until_ready(run(*args))
            jitted[name] = run, args
            flat = np.concatenate([np.ravel(np.asarray(x))[:64] for x in api.tree.leaves(out)])
            first = time.perf_counter() - begin
            answer(first=first, values=flat.astype(np.float64).tolist()[:2048])
            continue
        run, args = jitted[name]
        begin = time.perf_counter()
        for _ in range(calls):
            out = run(*args)
        api.block_until_ready(out)
        answer(seconds=(time.perf_counter() - begin) / calls)


def _measure_transfer(api: Any, device: Any, name: str) -> float:
    """Return the seconds of a copy of 64 MiB to the device, or from it."""
    value = np.zeros(1 << 24, np.float32)
    begin = time.perf_counter()
    on_device = api.block_until_ready(api.device_put(value, device))
    to_device = time.perf_counter() - begin
    fresh = api.block_until_ready(on_device + 1)
    begin = time.perf_counter()
    np.asarray(fresh)
    return to_device if name.endswith("to the device") else time.perf_counter() - begin


# --- the race


class Worker:
    """A process that measures one system."""

    def __init__(self, system: str, python: str) -> None:
        env = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "2"}
        env["PYTHONPATH"] = str(HERE.parent) if system == "weft" else ""
        command = [python, str(HERE / "accelerators.py"), "--worker", system]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env)
        self.facts = self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a worker has ended; its error is above")
        return json.loads(line)

    def ask(self, name: str) -> dict[str, Any]:
        """Return the worker's answer for a case."""
        assert self.process.stdin is not None
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        return self._read()


def race(python: str, rounds: int) -> tuple[str, list[tuple[str, float, float, str]]]:
    """Return the device, and rows (case, weft's seconds, JAX's seconds, difference of results)."""
    begin = time.perf_counter()
    workers = [Worker("weft", sys.executable), Worker("jax", python)]
    rows = [("process start to devices", *[w.facts["start"] for w in workers], "")]
    names = [
        *make_case_names(),
        "transfer of 64 MiB to the device",
        "transfer of 64 MiB to the host",
    ]
    for name in names:
        if time.perf_counter() - begin > LIMIT_S:
            print(f"left out for want of time: {name}")
            continue
        if not name.startswith("transfer"):
            first = [worker.ask(name) for worker in workers]
            a, b = [np.array(answer["values"]) for answer in first]
            scale = max(float(np.abs(b).max()), 1e-30)
            difference = f"{float(np.abs(a - b).max()) / scale:.1e}"
            rows.append((f"{name}: first call", first[0]["first"], first[1]["first"], ""))
        else:
            difference = ""
        best = [float("inf")] * 2
        for turn in range(rounds):
            for i in (0, 1) if turn % 2 else (1, 0):
                best[i] = min(best[i], workers[i].ask(name)["seconds"])
        rows.append((name, best[0], best[1], difference))
    for worker in workers:
        worker.process.terminate()
    return workers[0].facts["device"], rows


def make_case_names() -> list[str]:
    """Return the names of all cases, without an array system."""

    class Anything:
        def __getattr__(self, name: str) -> Any:
            return self

        def __call__(self, *args: Any) -> Any:
            return self

    return list(make_cases(Anything(), Anything()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--jax", default=sys.executable, help="the Python that has JAX")
    parser.add_argument("--rounds", type=int, default=5, help="measurements; the shortest counts")
    parser.add_argument("--write", action="store_true", help="update benchmarks/ACCELERATORS.md")
    parser.add_argument("--worker", choices=["weft", "jax"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker)
        return
    device, rows = race(options.jax, options.rounds)
    lines = ["| case | weft | JAX | ratio | difference |", "|---|--:|--:|--:|--:|"]
    for name, ours, theirs, difference in rows:
        lines.append(
            f"| {name} | {1e6 * ours:,.1f} µs | {1e6 * theirs:,.1f} µs | {ours / theirs:.2f} | {difference} |"
        )
    table = "\n".join(lines)
    print(f"{device}\n\n{table}")
    if options.write:
        day = datetime.date.today().isoformat()
        head = (
            f"# Accelerators\n\n`python benchmarks/accelerators.py --write`, {day}, {device}.\n\n"
        )
        (HERE / "ACCELERATORS.md").write_text(f"{head}{table}\n")


if __name__ == "__main__":
    main()
