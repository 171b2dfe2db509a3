"""Benchmark cases: ordinary programs that say `import jax`, so the same file runs on weft and on the peer.

A case is a function that sets up and returns a thunk to be timed (it must wait for its results), or, for cases of whole
processes, a script. `work` gives bytes or floating point operations of one run, for the share of the machine's limit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    name: str
    setup: Callable[[], Callable[[], object]]
    group: str
    inner: int = 1                 # runs per timing: short ones are repeated
    quick: bool = True             # part of the quick subset
    bytes: float = 0.0
    flops: float = 0.0


CASES: dict[str, Case] = {}


def case(name: str, group: str, **facts):
    def register(setup):
        CASES[name] = Case(name, setup, group, **facts)
        return setup
    return register


def _jax():
    import jax
    import jax.numpy as jnp
    return jax, jnp


def _wait(x):
    import jax
    return jax.block_until_ready(x)


def _mesh(shape, names):
    import jax
    import numpy as np
    from jax.sharding import Mesh
    return Mesh(np.array(jax.devices()).reshape(shape), names)


def _put(x, mesh, *spec):
    import jax
    from jax.sharding import NamedSharding, PartitionSpec
    return jax.device_put(x, NamedSharding(mesh, PartitionSpec(*spec)))


# ---- the tutorial's own timings

def _square(n):
    jax, _ = _jax()
    return _wait(jax.random.normal(jax.random.PRNGKey(0), (n, n)))


def _sin(n, devices):
    def setup():
        _, jnp = _jax()
        x = _square(n)
        if devices == 8:
            x = _put(x, _mesh((4, 2), ("a", "b")), "a", "b")
        return lambda: _wait(jnp.sin(x))
    return setup


def _dot(n, devices):
    def setup():
        _, jnp = _jax()
        x = y = _square(n)
        if devices == 8:
            mesh = _mesh((4, 2), ("a", "b"))
            x, y = _put(x, mesh, "a", None), _put(y, mesh, None, "b")
        return lambda: _wait(jnp.dot(x, y))
    return setup


for _n in (4096, 8192):
    for _d in (1, 8):
        case(f"sin {_n} on {_d}", "tutorial", bytes=8.0 * _n * _n, quick=_n == 4096)(_sin(_n, _d))
        case(f"dot {_n} on {_d}", "tutorial", flops=2.0 * _n ** 3, quick=False)(_dot(_n, _d))


def _mlp(width, batch, how):
    def setup():
        jax, jnp = _jax()
        sizes = [784, width, width, width, 10]

        def predict(params, inputs):
            for W, b in params:
                outputs = jnp.dot(inputs, W) + b
                inputs = jnp.maximum(outputs, 0)
            return outputs

        def loss(params, batch):
            inputs, targets = batch
            return jnp.mean(jnp.sum((predict(params, inputs) - targets) ** 2, axis=-1))

        def init_layer(key, n_in, n_out):
            k1, k2 = jax.random.split(key)
            return jax.random.normal(k1, (n_in, n_out)) / jnp.sqrt(n_in), jax.random.normal(k2, (n_out,))

        key, *keys = jax.random.split(jax.random.PRNGKey(0), len(sizes))
        params = list(map(init_layer, keys, sizes[:-1], sizes[1:]))
        key, *keys = jax.random.split(key, 3)
        data = jax.random.normal(keys[0], (batch, 784)), jax.random.normal(keys[1], (batch, 10))
        if how == "data":
            mesh = _mesh((8,), ("batch",))
            data = tuple(_put(x, mesh, "batch", None) for x in data)
            params = [(_put(w, mesh), _put(b, mesh)) for w, b in params]
        elif how == "4x2":
            mesh = _mesh((4, 2), ("batch", "model"))
            data = tuple(_put(x, mesh, "batch", None) for x in data)
            specs = [(None, None), (None, "model"), ("model", None), (None, None)]
            params = [(_put(w, mesh, *s), _put(b, mesh, "model") if s == (None, "model") else _put(b, mesh))
                      for (w, b), s in zip(params, specs)]
        step = jax.jit(jax.grad(loss))
        return lambda: _wait(step(params, data))
    return setup


for _how in ("one", "data", "4x2"):
    case(f"MLP gradient 1024 {_how}", "tutorial", flops=6.0 * 1024 * (784 * 1024 + 2 * 1024 * 1024 + 10240))(_mlp(1024, 1024, _how))
    case(f"MLP gradient 4096 {_how}", "tutorial", quick=False,
         flops=6.0 * 4096 * (784 * 4096 + 2 * 4096 * 4096 + 40960))(_mlp(4096, 4096, _how))


# ---- dispatch and eager operations

def _tree(jnp, n):
    x = jnp.ones(4)
    return {"a": [x] * (n // 4), "b": {"c": (x,) * (n // 2), "d": [x] * (n - n // 4 - n // 2)}}


def _dispatch(what, devices=1):
    def setup():
        jax, jnp = _jax()
        if what == "array":
            x = jnp.ones(8)
            if devices > 1:
                x = _put(x, _mesh((devices,), ("d",)), "d")
            f = jax.jit(lambda x: x + 1)
            return functools.partial(f, x)
        tree = _tree(jnp, what)
        f = jax.jit(lambda t: jax.tree_util.tree_map(lambda v: v + 1, t))
        return functools.partial(f, tree)
    return setup


case("dispatch one array on 1", "dispatch", inner=2000)(_dispatch("array"))
case("dispatch one array on 8", "dispatch", inner=500)(_dispatch("array", 8))
case("dispatch 20 arrays", "dispatch", inner=500)(_dispatch(20))
case("dispatch 200 arrays", "dispatch", inner=50)(_dispatch(200))


def _eager(make):
    def setup():
        _, jnp = _jax()
        return make(jnp, jnp.ones(8))
    return setup


case("eager x + x", "dispatch", inner=1000)(_eager(lambda jnp, x: lambda: x + x))
case("eager x * 2.0", "dispatch", inner=1000)(_eager(lambda jnp, x: lambda: x * 2.0))
case("eager x[3]", "dispatch", inner=300)(_eager(lambda jnp, x: lambda: x[3]))
case("eager x[1:5]", "dispatch", inner=300)(_eager(lambda jnp, x: lambda: x[1:5]))
case("eager x.at[3].set", "dispatch", inner=300)(_eager(lambda jnp, x: lambda: x.at[3].set(1.0)))
case("eager x.sum()", "dispatch", inner=500)(_eager(lambda jnp, x: lambda: x.sum()))


# ---- memory-bound kernels

def _kernel(shape, make):
    def setup():
        jax, jnp = _jax()
        x = _wait(jax.random.normal(jax.random.PRNGKey(0), shape))
        f = jax.jit(make(jnp))
        return lambda: _wait(f(x))
    return setup


_N = 4096
for _name, _make, _traffic in [
    ("tanh(x*w+b)", lambda jnp: lambda x: jnp.tanh(x * x[0] + x[1]), 2),
    ("exp", lambda jnp: jnp.exp, 2),
    ("log1p(|x|)", lambda jnp: lambda x: jnp.log1p(jnp.abs(x)), 2),
    ("sum all", lambda jnp: lambda x: x.sum(), 1),
    ("sum dim 0", lambda jnp: lambda x: x.sum(0), 1),
    ("sum dim 1", lambda jnp: lambda x: x.sum(1), 1),
    ("softmax", lambda jnp: lambda x: jnp.exp(x - x.max(-1, keepdims=True)) / jnp.exp(x - x.max(-1, keepdims=True)).sum(
        -1, keepdims=True), 2),
    ("layer norm", lambda jnp: lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5), 2),
    ("argmax", lambda jnp: lambda x: jnp.argmax(x, -1), 1),
    ("cumsum dim 1", lambda jnp: lambda x: jnp.cumsum(x, 1), 2),
    ("transpose", lambda jnp: lambda x: x.T + 1.0, 2),
]:
    case(f"{_name} {_N}", "kernels", bytes=4.0 * _traffic * _N * _N)(_kernel((_N, _N), _make))


@case(f"random normal {_N}", "kernels", bytes=4.0 * _N * _N)
def _normal():
    jax, _ = _jax()
    f = jax.jit(lambda k: jax.random.normal(k, (_N, _N)))
    key = jax.random.PRNGKey(0)
    return lambda: _wait(f(key))


def _matmul(n, dtype):
    def setup():
        jax, jnp = _jax()
        x = _wait(jax.random.normal(jax.random.PRNGKey(0), (n, n)).astype(dtype))
        f = jax.jit(jnp.dot)
        return lambda: _wait(f(x, x))
    return setup


for _n, _inner in ((128, 50), (512, 5), (1024, 1)):
    case(f"matmul float32 {_n}", "matmul", inner=_inner, flops=2.0 * _n ** 3)(_matmul(_n, "float32"))
    case(f"matmul bfloat16 {_n}", "matmul", inner=_inner, flops=2.0 * _n ** 3)(_matmul(_n, "bfloat16"))


# ---- whole processes: start-up and first calls; `TIME` lines are read by the runner

SCRIPTS = {
    "import": "import jax\n",
    "start to first result": "import jax, jax.numpy as jnp\nprint(float(jnp.sin(jnp.ones(3)).sum()))\n",
    "first call: MLP gradient": """
import time
import jax, jax.numpy as jnp
sizes = [64, 128, 128, 128, 10]
key = jax.random.PRNGKey(0)
params = [(jnp.ones((a, b)) * 0.01, jnp.zeros(b)) for a, b in zip(sizes, sizes[1:])]
def loss(params, x, y):
    for W, b in params:
        out = jnp.dot(x, W) + b
        x = jnp.maximum(out, 0)
    return jnp.mean(jnp.sum((out - y) ** 2, axis=-1))
step = jax.jit(jax.grad(loss))
x, y = jnp.ones((32, 64)), jnp.ones((32, 10))
jax.block_until_ready((params, x, y))
start = time.perf_counter()
jax.block_until_ready(step(params, x, y))
print("TIME", time.perf_counter() - start)
""",
    "first call: 200-op chain": """
import time
import jax, jax.numpy as jnp
def chain(x):
    for i in range(100):
        x = jnp.sin(x) * (1.0 + i)
    return x
x = jnp.ones(1000)
f = jax.jit(chain)
jax.block_until_ready(x)
start = time.perf_counter()
jax.block_until_ready(f(x))
print("TIME", time.perf_counter() - start)
""",
}
