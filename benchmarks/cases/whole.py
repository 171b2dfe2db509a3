"""Whole programs as users run them, from the start of the process to its exit."""

from suite import script

script(
    "first lines of an eager session",
    "whole programs",
    """
import jax, jax.numpy as jnp
x = jnp.arange(10)
print(x * 2, x.sum(), x.mean(), x[2:5], x[::-1])
key = jax.random.PRNGKey(0)
for n in (3, 5, 7, 11, 13, 17):
    key, sub = jax.random.split(key)
    a = jax.random.normal(sub, (n, n))
    b = a @ a.T + jnp.eye(n)
    print(n, float(jnp.linalg.norm(b)), float(jnp.trace(b)), jnp.argmax(b), jnp.where(b > 0, b, 0).sum())
    print(jnp.concatenate([a, b]).shape, jnp.stack([a, b]).mean(axis=0)[0, 0], jnp.exp(a).max(), jnp.sort(a[0]))
""",
    quick=True,
)

script(
    "MLP trained for five epochs",
    "whole programs",
    """
import jax, jax.numpy as jnp, numpy as np
def predict(params, x):
    *hidden, (w, b) = params
    for u, c in hidden:
        x = jnp.tanh(x @ u + c)
    return x @ w + b
def loss(params, x, y):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(predict(params, x)), y[:, None], 1))
@jax.jit
def step(params, x, y):
    return jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x, y))
rng = np.random.RandomState(0)
x = rng.randn(2000, 64).astype("f")
y = (x @ rng.randn(64, 10)).argmax(1)
sizes = [64, 128, 128, 10]
keys = jax.random.split(jax.random.PRNGKey(0), 3)
params = [(jax.random.normal(k, (m, n)) * 0.1, jnp.zeros(n)) for k, m, n in zip(keys, sizes, sizes[1:])]
for epoch in range(5):
    for i in range(0, 2000, 100):
        params = step(params, x[i:i + 100], y[i:i + 100])
    print(epoch, float(jnp.mean(jnp.argmax(predict(params, x), 1) == y)))
""",
)

script(
    "RNN trained with Adam",
    "whole programs",
    """
import jax, jax.numpy as jnp
from jax import lax
def loss(p, xs, ys):
    def body(h, x):
        h = jnp.tanh(x @ p["wx"] + h @ p["wh"] + p["b"])
        return h, h
    return jnp.mean((lax.scan(body, jnp.zeros((16, 32)), xs)[1] @ p["wo"] - ys) ** 2)
@jax.jit
def step(p, m, v, t, xs, ys):
    value, g = jax.value_and_grad(loss)(p, xs, ys)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
    update = lambda p, m, v: p - 1e-2 * (m / (1 - 0.9 ** t)) / (jnp.sqrt(v / (1 - 0.999 ** t)) + 1e-8)
    return jax.tree.map(update, p, m, v), m, v, value
k = jax.random.split(jax.random.key(1), 5)
p = {"wx": jax.random.normal(k[0], (8, 32)) * 0.3, "wh": jax.random.normal(k[1], (32, 32)) * 0.1,
     "b": jnp.zeros(32), "wo": jax.random.normal(k[2], (32, 4)) * 0.1}
xs = jax.random.normal(k[3], (20, 16, 8))
ys = jnp.cumsum(xs, 0)[..., :4]
m, v = jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p)
for t in range(1, 301):
    p, m, v, value = step(p, m, v, float(t), xs, ys)
print(value)
""",
)

script(
    "small conv net, 30 steps",
    "whole programs",
    """
import jax, jax.numpy as jnp
from jax import lax
def conv(x, w, s=1):
    return jax.nn.relu(lax.conv_general_dilated(x, w, (s, s), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
k = jax.random.split(jax.random.PRNGKey(0), 5)
p = [jax.random.normal(k[0], (3, 3, 3, 16)) * 0.2, jax.random.normal(k[1], (3, 3, 16, 32)) * 0.1,
     jax.random.normal(k[2], (3, 3, 32, 64)) * 0.1, jax.random.normal(k[3], (64, 10)) * 0.1]
x, y = jax.random.normal(k[4], (32, 32, 32, 3)), jnp.arange(32) % 10
def loss(p):
    logits = conv(conv(conv(x, p[0]), p[1], 2), p[2], 2).mean((1, 2)) @ p[3]
    return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(32), y])
@jax.jit
def step(p):
    value, g = jax.value_and_grad(loss)(p)
    return [a - 0.1 * b for a, b in zip(p, g)], value
for i in range(30):
    p, value = step(p)
print(value)
""",
)

script(
    "Newton's method, Hessian and eigh in float64",
    "whole programs",
    """
import jax, jax.numpy as jnp
from jax import lax
jax.config.update("jax_enable_x64", True)
f = lambda x: jnp.sum(jnp.sin(x) * jnp.exp(-x ** 2)) + x[0] * x[1] ** 3
x = jnp.linspace(0.0, 1.0, 8)
print(jax.grad(f)(x), jax.hessian(f)(x)[0], jax.jacfwd(jax.grad(f))(x).trace())
def newton(x):
    def iteration(s):
        return s[0] - jnp.linalg.solve(jax.hessian(f)(s[0]) + 3 * jnp.eye(8), jax.grad(f)(s[0])), s[1] + 1
    return lax.while_loop(lambda s: (s[1] < 20) & (jnp.linalg.norm(jax.grad(f)(s[0])) > 1e-8), iteration, (x, 0))
print(jax.jit(newton)(x), jax.vmap(jax.grad(f))(jnp.stack([x, x + 1, x - 1])).sum())
print(jnp.linalg.eigh(jax.hessian(f)(x))[0], jnp.fft.fft(x).real, jnp.interp(0.3, x, x ** 2), jnp.polyfit(x, x ** 2, 2))
""",
)

script(
    "tensor parallel layers on 4x2",
    "whole programs",
    """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
put = lambda x, *axes: jax.device_put(x, NamedSharding(mesh, P(*axes)))
x = put(np.ones((256, 128), "f"), "data")
w1, w2 = put(np.full((128, 512), 0.01, "f"), None, "model"), put(np.full((512, 64), 0.01, "f"), "model", None)
f = jax.jit(lambda x, w1, w2: jax.nn.relu(x @ w1) @ w2)
y = f(x, w1, w2)
print(y.sharding, float(y.sum()))
print(jax.tree.map(jnp.sum, jax.jit(jax.grad(lambda w1, w2: f(x, w1, w2).sum(), (0, 1)))(w1, w2)))
total = jax.jit(jax.shard_map(lambda a: lax.psum(a, "data"), mesh=mesh, in_specs=P("data", None), out_specs=P(None, None)))
print(total(x).shape)
""",
    devices=8,
)
