"""Training steps of real models on one device and on eight: data parallel, tensor parallel, both, and FSDP."""

import jax
import jax.numpy as jnp
import numpy as np
import programs
from jax import lax
from suite import Case, Step, add, layout, normal, program


def step(name, make, devices=1, **facts):
    def setup():
        function, args = make()
        args = jax.tree_util.tree_map(jnp.asarray, args) if devices == 1 else args
        return Step(jax.jit(function), args)

    add(Case(name, "steps", setup, devices=devices, **facts))


# ---- the tutorial's MLP

MLP_LAYOUTS = {
    "one device": None,
    "data parallel on 8": ((8,), ("a", None), [()] * 4),
    "data and tensor parallel on 4x2": ((4, 2), ("a", None), [(), (None, "b"), ("b", None), ()]),
}


def mlp(width, how):
    def make():
        params = programs.mlp_params([784, width, width, width, 10])
        batch = np.resize(normal(width, 784).numpy(), (width, 784)), normal(width, 10).numpy()
        if MLP_LAYOUTS[how]:
            shape, data, specs = MLP_LAYOUTS[how]
            batch = tuple(jax.device_put(x, layout(shape, data)) for x in batch)
            params = [
                (jax.device_put(w, layout(shape, s)), jax.device_put(b, layout(shape, s[1:])))
                for (w, b), s in zip(params, specs)
            ]
        return jax.grad(programs.mlp_loss), (params, batch)

    return make


for _how in MLP_LAYOUTS:
    for _width in (256, 1024, 4096):
        step(
            f"MLP gradient {_width}, {_how}",
            mlp(_width, _how),
            1 if _how == "one device" else 8,
            quick=_width == 1024,
            flops=6.0 * _width * (784 * _width + 2 * _width * _width + 10 * _width),
            budget_s=1.0 if _width == 4096 else 0.5,
        )


_BLOCK = (
    normal(512, 1024, dtype="bfloat16"),
    normal(1024, 4096, dtype="bfloat16", seed=1, scale=1 / 32),
    normal(4096, dtype="bfloat16", seed=2),
    normal(4096, 1024, dtype="bfloat16", seed=3, scale=1 / 64),
)
program(
    "MLP block bfloat16",
    "steps",
    programs.mlp_block,
    *_BLOCK,
    flops=4.0 * 512 * 1024 * 4096,
    rate="bfloat16",
)
program(
    "MLP block bfloat16 gradient",
    "steps",
    jax.grad(
        lambda *block: programs.mlp_block(*block).astype(jnp.float32).sum(), argnums=(0, 1, 2, 3)
    ),
    *_BLOCK,
    flops=12.0 * 512 * 1024 * 4096,
    rate="bfloat16",
)

# ---- a GPT-style transformer with Adam

GPT_MESHES = {
    "data parallel on 8": (8, 1),
    "tensor parallel on 8": (1, 8),
    "data and tensor parallel on 4x2": (4, 2),
    "FSDP on 8": (8, 1),
}
TENSOR = {
    "qkv": (None, "b"),
    "out": ("b", None),
    "up": (None, "b"),
    "down": ("b", None),
    "bias_up": ("b",),
}


def gpt(how, scanned=False):
    def make():
        function, (state, tokens) = programs.gpt_step(4, 256, 1024, 128, 8, scanned)
        if how == "one device":
            return function, (state, tokens)
        shape = GPT_MESHES[how]

        def place(path, x):
            spec = ()
            if "tensor" in how:
                spec = TENSOR.get(getattr(path[-1], "key", None), ())
            elif "FSDP" in how and x.ndim:
                spec = ("a",)
            return jax.device_put(x, layout(shape, spec))

        state = jax.tree_util.tree_map_with_path(place, state)
        return function, (state, jax.device_put(tokens, layout(shape, ("a", None))))

    return make


step("GPT step, one device", gpt("one device"), quick=True)
step("GPT step scanned, one device", gpt("one device", True))
step(
    "GPT step bfloat16, one device",
    lambda: programs.gpt_step(4, 512, 2048, 128, 8, False, programs.in_bfloat16(programs.gpt_loss)),
    budget_s=2.0,
)
for _how in GPT_MESHES:
    step(f"GPT step, {_how}", gpt(_how), 8, quick="4x2" in _how)


# ---- a small ResNet


def resnet(how, loss=programs.resnet_loss, widths=(16, 32, 64)):
    def make():
        params = programs.resnet_params(widths)
        batch = normal(32, 32, 32, 3).numpy(), (np.arange(32) % 10).astype(np.int32)
        state = programs.adam_state(params)
        if how == "data":
            batch = tuple(jax.device_put(x, layout((8,), ("a",))) for x in batch)
            state = jax.device_put(state, layout((8,), ()))
        return programs.adam(loss), (state, batch)

    return make


step("ResNet step, one device", resnet("one device"), quick=True)
step("ResNet step, data parallel on 8", resnet("data"), 8)
step(
    "ResNet step bfloat16, one device",
    resnet("one device", programs.in_bfloat16(programs.resnet_loss), (64, 128, 256)),
    budget_s=2.0,
)


# ---- recurrent, per-example, second order, solvers


def rnn(how):
    def make():
        state, xs = programs.adam_state(programs.rnn_params(256, 64)), normal(64, 32, 64).numpy()
        if how == "data":
            state, xs = (
                jax.device_put(state, layout((8,), ())),
                jax.device_put(xs, layout((8,), (None, "a"))),
            )
        return programs.adam(programs.lstm_loss), (state, xs)

    return make


step("LSTM step by scan, one device", rnn("one device"), quick=True)
step("LSTM step by scan, data parallel on 8", rnn("data"), 8)


def per_example(how):
    def make():
        params = programs.mlp_params([64, 128, 128, 10])
        batch = normal(256, 64).numpy(), normal(256, 10).numpy()
        if how == "data":
            params, batch = (
                jax.device_put(params, layout((8,), ())),
                jax.device_put(batch, layout((8,), ("a",))),
            )
        return jax.vmap(jax.grad(programs.mlp_loss), (None, 0)), (params, batch)

    return make


step("per-example gradients, one device", per_example("one device"), quick=True)
step("per-example gradients, data parallel on 8", per_example("data"), 8)

program(
    "Hessian of 64",
    "steps",
    jax.hessian(
        lambda w, x, y: jnp.mean(jnp.log1p(jnp.exp(-y * (jnp.tanh(x @ w.reshape(8, 8)).sum(1)))))
    ),
    normal(64),
    normal(512, 8),
    normal(512),
    quick=True,
)
program(
    "Jacobian of 256",
    "steps",
    jax.jacrev(lambda x, w: jnp.tanh(w @ x)),
    normal(256),
    normal(256, 256),
)


def conjugate_gradient(a, b):
    """Solve (a a' / n + 1) x = b to a fixed residual norm."""

    def multiply(x):
        return a @ (a.T @ x) / a.shape[0] + x

    def body(state):
        x, r, p, rr = state
        ap = multiply(p)
        alpha = rr / (p @ ap)
        r = r - alpha * ap
        new = r @ r
        return x + alpha * p, r, r + new / rr * p, new

    zero = jnp.zeros_like(b)
    return lax.while_loop(lambda s: s[3] > 1e-6, body, (zero, b, b, b @ b))[0]


program("while-loop solver", "steps", conjugate_gradient, normal(512, 512), normal(512), quick=True)
program(
    "while-loop solver on 8",
    "steps",
    conjugate_gradient,
    normal(512, 512, on=((8,), ("a",))),
    normal(512, on=((8,), ())),
    devices=8,
)
program(
    "fori_loop, 1000 small iterations",
    "steps",
    lambda x: lax.fori_loop(0, 1000, lambda i, x: jnp.sin(x) + 0.1 * i, x),
    normal(16),
)
program(
    "scan, 1000 small iterations",
    "steps",
    lambda x: lax.scan(lambda c, _: (c * 0.99 + 1, c.sum()), x, None, length=1000),
    normal(16),
)
program(
    "stencil, 100 iterations",
    "steps",
    lambda x: lax.fori_loop(
        0,
        100,
        lambda i, x: (
            0.25 * (jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1))
        ),
        x,
    ),
    normal(512, 512),
)
program(
    "Mandelbrot",
    "steps",
    lambda re, im: lax.fori_loop(
        0,
        50,
        lambda i, s: (
            jnp.clip(s[0] * s[0] - s[1] * s[1] + re[None], -9, 9),
            jnp.clip(2 * s[0] * s[1] + im[:, None], -9, 9),
        ),
        (jnp.zeros((512, 512)), jnp.zeros((512, 512))),
    ),
    normal(512),
    normal(512),
)
