#!/usr/bin/env python3
"""Training steps of programs for flax, equinox and optax on weft and on JAX: the first call, and steps in turn.

    python benchmarks/libraries.py --weft ENV/bin/python --jax OTHER/bin/python [CASE ...]

In:  two environments with the libraries, the first with weft in place of jax (`weft shim install`), the second with JAX.
Out: a table: the first call (initialization and first step, imports left out) with an empty disk cache, from the disk cache, and on JAX;
     a step on each, the least and the median of blocks that the two processes run alternately.
Next to read: examples/ecosystem, whose programs some of the cases are.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "ecosystem"


# ---- cases: each initializes, and returns a function that makes one step and waits for it


def _example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _filtered_step(model, loss, data, optimizer):
    """Steps of an equinox model."""
    import equinox as eqx

    @eqx.filter_jit
    def train_step(model, state, *data):
        value, grads = eqx.filter_value_and_grad(loss)(model, *data)
        updates, state = optimizer.update(grads, state, model)
        return eqx.apply_updates(model, updates), state, value

    kept = [model, optimizer.init(eqx.filter(model, eqx.is_inexact_array))]

    def step():
        *kept[:], value = train_step(*kept, *data)
        return value.block_until_ready()

    return step


def equinox_mlp():
    """A small network and Adam."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax

    model = eqx.nn.MLP(in_size=8, out_size=1, width_size=64, depth=3, key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (128, 8))
    return _filtered_step(
        model,
        lambda model, x, y: jnp.mean((jax.vmap(model)(x) - y) ** 2),
        (x, jnp.sin(x.sum(1, keepdims=True))),
        optax.adam(1e-3),
    )


def equinox_ode_scan():
    """The example equinox_ode: Runge-Kutta steps in a scan."""
    import jax

    example = _example("equinox_ode")
    starts = jax.random.uniform(jax.random.key(2), (64, 2), minval=-1.0)

    def loss(model, starts, paths):
        return ((jax.vmap(model)(starts) - paths) ** 2).mean()

    return _filtered_step(
        example.Flow(jax.random.key(1)),
        loss,
        (starts, jax.vmap(example.observed)(starts)),
        example.optimizer,
    )


def equinox_ode_while():
    """A neural differential equation by equinox's checkpointed while loop, whose number of steps depends on the data."""
    import equinox as eqx
    import equinox.internal as eqxi
    import jax
    import jax.numpy as jnp
    import optax

    def solve(model, start, end):
        def body(carry):
            t, y = carry
            k1 = model(y)
            return t + 0.1, y + 0.1 * model(y + 0.05 * k1)

        return eqxi.while_loop(
            lambda carry: carry[0] < end, body, (0.0, start), kind="checkpointed", max_steps=16
        )[1]

    model = eqx.nn.MLP(
        in_size=2, out_size=2, width_size=32, depth=2, activation=jnp.tanh, key=jax.random.key(0)
    )
    starts = jax.random.normal(jax.random.key(1), (32, 2))

    def loss(model, starts, end):
        return jnp.mean(jax.vmap(lambda start: solve(model, start, end))(starts) ** 2)

    return _filtered_step(model, loss, (starts, jnp.asarray(0.95)), optax.adam(1e-3))


def adjoint_ode():
    """A neural differential equation by lax.while_loop, its gradient by a custom rule that integrates backwards."""
    import jax
    import jax.numpy as jnp
    import optax
    from jax import lax

    def field(params, y):
        return jnp.tanh(y @ params["w1"] + params["b1"]) @ params["w2"]

    def integrate(slope, y, end):
        def body(carry):
            t, y = carry
            k1 = slope(y)
            k2 = slope(jax.tree.map(lambda a, k: a + 0.05 * k, y, k1))
            return t + 0.1, jax.tree.map(lambda a, k: a + 0.1 * k, y, k2)

        return lax.while_loop(lambda carry: carry[0] < end, body, (0.0, y))[1]

    @jax.custom_vjp
    def solve(params, y, end):
        return integrate(lambda y: field(params, y), y, end)

    def forward(params, y, end):
        final = solve(params, y, end)
        return final, (params, final, end)

    def backward(saved, cotangent):
        params, final, end = saved

        def slope(state):
            y, a, _ = state
            value, pull = jax.vjp(lambda p, y: field(p, y), params, y)
            of_params, of_y = pull(a)
            return -value, of_y, of_params

        zeros = jax.tree.map(jnp.zeros_like, params)
        _, of_start, of_params = integrate(slope, (final, cotangent, zeros), end)
        return of_params, of_start, None

    solve.defvjp(forward, backward)
    keys = jax.random.split(jax.random.key(0), 3)
    params = {
        "w1": 0.5 * jax.random.normal(keys[0], (2, 32)),
        "b1": jnp.zeros(32),
        "w2": 0.2 * jax.random.normal(keys[1], (32, 2)),
    }
    starts, optimizer = jax.random.normal(keys[2], (64, 2)), optax.adam(1e-3)

    @jax.jit
    def train_step(params, state, starts, end):
        value, grads = jax.value_and_grad(lambda params: jnp.mean(solve(params, starts, end) ** 2))(
            params
        )
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), state, value

    kept = [params, optimizer.init(params)]

    def step():
        *kept[:], value = train_step(*kept, starts, 0.95)
        return value.block_until_ready()

    return step


def linen_step():
    """The example linen_classifier: one step of 64 points."""
    import jax

    example = _example("linen_classifier")
    return _linen(example, jax.jit(example.train_step), 64, lambda x: x)


def linen_epoch():
    """The example linen_classifier: fifty steps in a scan."""
    example = _example("linen_classifier")
    return _linen(example, example.train, 64 * 50, lambda x: x.reshape(50, 64, *x.shape[1:]))


def _linen(example, train, points, batched):
    import jax
    import optax

    x, labels = example.spirals(jax.random.key(1), points, 3)
    model = example.Classifier(hidden=64, classes=3)
    params = model.init(jax.random.key(0), x[:1], train=False)["params"]
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(1e-2, 50))
    )
    kept = [
        example.State.create(
            apply_fn=model.apply, params=params, tx=optimizer, key=jax.random.key(2)
        )
    ]
    batches = batched(x), batched(labels)

    def step():
        kept[0], losses = train(kept[0], batches)
        return losses.block_until_ready()

    return step


def nnx_step():
    """The example nnx_autoencoder: an ensemble with batch normalization by nnx.vmap."""
    import jax
    import optax
    from flax import nnx

    example = _example("nnx_autoencoder")
    model = example.ensemble(jax.random.split(jax.random.key(2), example.MEMBERS))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    x = jax.random.normal(jax.random.key(3), (128, example.FEATURES))
    return lambda: example.train_step(model, optimizer, x).block_until_ready()


CASES = {
    case.__name__: case
    for case in (
        equinox_mlp,
        equinox_ode_scan,
        equinox_ode_while,
        adjoint_ode,
        linen_step,
        linen_epoch,
        nnx_step,
    )
}


# ---- the process on each system


def work(name: str) -> None:
    """Make the case, print the seconds of its first call, then the seconds of each block that is asked for."""
    import equinox  # noqa: F401  (imports are not part of the first call)
    import flax.linen  # noqa: F401
    import flax.nnx  # noqa: F401
    import jax
    import optax  # noqa: F401

    jax.random.key(0)
    start = time.perf_counter()
    step = CASES[name]()
    step()
    print(time.perf_counter() - start, flush=True)
    for line in sys.stdin:
        count = int(line)
        start = time.perf_counter()
        for _ in range(count):
            step()
        print((time.perf_counter() - start) / count, flush=True)


class Worker:
    """A process that has made its first call."""

    def __init__(self, python: str, case: str, cache: str) -> None:
        self._process = subprocess.Popen(
            [python, __file__, "--work", case],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "WEFT_CACHE_DIR": cache},
        )
        self.first = float(self._process.stdout.readline())

    def block(self, count: int) -> float:
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def race(case: str, weft: str, jax: str, rounds: int, seconds: float) -> dict:
    with tempfile.TemporaryDirectory() as cache:
        cold = Worker(weft, case, cache)
        cold.end()
        ours = Worker(weft, case, cache)
        theirs = Worker(jax, case, cache)
        times: dict = {"weft": [], "jax": []}
        count = max(1, int(seconds / max(ours.block(3), theirs.block(3))))
        for _ in range(rounds):
            times["weft"].append(ours.block(count))
            times["jax"].append(theirs.block(count))
        ours.end()
        theirs.end()
    return {
        "case": case,
        "first": cold.first,
        "cached": ours.first,
        "first on jax": theirs.first,
        "least": [min(times["weft"]), min(times["jax"])],
        "median": [statistics.median(times["weft"]), statistics.median(times["jax"])],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--weft", help="the Python of the environment with weft as jax")
    parser.add_argument("--jax", help="the Python of the environment with JAX")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.2, help="the length of a block")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", choices=CASES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(args.work)
        return
    if not (args.weft and args.jax):
        parser.error("name --weft and --jax")
    rows = []
    print(
        "| step | first call | from the cache | on JAX | a step (least, median), ms | on JAX, ms | ratio of least, of medians |"
    )
    print("|---|---|---|---|---|---|---|")
    for case in args.cases or CASES:
        rows.append(row := race(case, args.weft, args.jax, args.rounds, args.seconds))
        (a, b), (c, d) = row["least"], row["median"]
        print(
            f"| {case} | {row['first']:.2f} s | {row['cached']:.2f} s | {row['first on jax']:.2f} s | {1e3 * a:.3f}, {1e3 * c:.3f} |"
            f" {1e3 * b:.3f}, {1e3 * d:.3f} | {a / b:.2f}, {c / d:.2f} |",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
