"""Whole processes from start to a first result, with and without a filled disk cache."""

from suite import script

script("import", "start", "import jax\n", quick=True)
script(
    "start to sin",
    "start",
    "import jax, jax.numpy as jnp\nprint(float(jnp.sin(jnp.ones(3)).sum()))\n",
    quick=True,
)
script(
    "start to jit grad",
    "start",
    """
import jax, jax.numpy as jnp
f = jax.jit(jax.grad(lambda w, x: jnp.tanh(x @ w).sum()))
print(float(f(jnp.ones((64, 64)), jnp.ones((8, 64)))[0, 0]))
""",
    quick=True,
)
script(
    "start to random",
    "start",
    "import jax\nprint(jax.random.normal(jax.random.PRNGKey(0), (1000,))[0])\n",
)
script(
    "start to sharded sum on 8",
    "start",
    """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.sharding.Mesh(jax.devices(), 'x')
x = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, P('x')))
print(float(jax.jit(lambda x: (x * 2).sum())(x)))
""",
    devices=8,
)
