"""First calls (tracing and compiling) of small and large programs, and tracing alone."""

import jax
import jax.numpy as jnp
import programs
from suite import Case, Step, add, layout, normal, program


def first_gpt(layers, scanned, devices=1):
    def setup():
        step, (state, tokens) = programs.gpt_step(layers, 64, 256, 32, 8, scanned)
        if devices > 1:
            put = layout((devices,), ())
            state = jax.device_put(state, put)
            tokens = jax.device_put(tokens, layout((devices,), ("a",)))
        else:
            state, tokens = jax.tree_util.tree_map(jnp.asarray, (state, tokens))
        return Step(jax.jit(step), (state, tokens))

    return setup


def trace_gpt(layers, scanned):
    def setup():
        step, args = programs.gpt_step(layers, 64, 256, 32, 8, scanned)
        return lambda: jax.make_jaxpr(lambda *a: step(*a))(*args)

    return setup


for _layers in (12, 48):
    for _scanned in (False, True):
        _how = f"{_layers} layers, {'scanned' if _scanned else 'unrolled'}"
        add(
            Case(
                f"first GPT step {_how}",
                "first calls",
                first_gpt(_layers, _scanned),
                kind="first",
                quick=_layers == 12 and _scanned,
                budget_s=90 if _layers == 48 else 30,
            )
        )
        add(
            Case(
                f"trace GPT step {_how}",
                "tracing",
                trace_gpt(_layers, _scanned),
                quick=_layers == 12 and not _scanned,
            )
        )
for _scanned in (False, True):
    add(
        Case(
            f"first GPT step 12 layers, {'scanned' if _scanned else 'unrolled'}, data parallel on 8",
            "first calls",
            first_gpt(12, _scanned, 8),
            kind="first",
            devices=8,
            budget_s=60,
        )
    )


def chain(x):
    for i in range(100):
        x = jnp.sin(x) * (1.0 + i)
    return x


def first(name, function, *inputs, **facts):
    program(f"first {name}", "first calls", function, *inputs, kind="first", **facts)


first("200-op chain", chain, normal(1000), quick=True)
first("x + 1", lambda x: x + 1, normal(1000), quick=True)
first("sum", lambda x: x.sum(0), normal(100, 100))
first("softmax", lambda x: jax.nn.softmax(x), normal(100, 100))
first("matmul", lambda x: x @ x, normal(128, 128), quick=True)
first("matmul bfloat16", lambda x: x @ x, normal(128, 128, dtype="bfloat16"))
first("sort", lambda x: jnp.sort(x), normal(1000))
first("cumsum", lambda x: jnp.cumsum(x), normal(1000))
first("conv", lambda x, w: programs.conv(x, w), normal(8, 16, 16, 8), normal(3, 3, 8, 8))
first("gather", lambda x: x[jnp.arange(50) * 2], normal(100, 100))
first(
    "MLP gradient",
    lambda p, b: jax.grad(programs.mlp_loss)(p, b),
    [
        (normal(64, 128), normal(128)),
        (normal(128, 128), normal(128)),
        (normal(128, 10), normal(10)),
    ],
    (normal(32, 64), normal(32, 10)),
    quick=True,
)
first("Hessian", lambda x: jax.hessian(lambda x: jnp.sum(jnp.sin(x) * x[::-1] ** 2))(x), normal(16))
first("random normal", lambda: jax.random.normal(jax.random.PRNGKey(0), (100,)))
first(
    "while loop",
    lambda x: jax.lax.while_loop(lambda x: x.sum() > 1, lambda x: x * 0.5, x),
    normal(100, positive=True),
)
first("cholesky", lambda x: jnp.linalg.cholesky(x @ x.T + 10 * jnp.eye(10)), normal(10, 10))
first("sum over 8", lambda x: x.sum(0), normal(64, 64, on=((8,), ("a",))), devices=8)
first(
    "matmul on 4x2",
    lambda x, y: x @ y,
    normal(64, 64, on=((4, 2), ("a", None))),
    normal(64, 64, on=((4, 2), (None, "b"))),
    devices=8,
)
program(
    "trace 200-op chain",
    "tracing",
    lambda x: jax.make_jaxpr(lambda x: chain(x))(x),
    normal(8),
    jit=False,
)
