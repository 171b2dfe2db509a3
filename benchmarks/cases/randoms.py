"""Random numbers."""

import jax
import jax.numpy as jnp
from suite import normal, program

N = 4096
KEY = (0, 7)


def draw(name, function, quick=False):
    import numpy as np

    program(name, "random", lambda key: function(key), np.array(KEY, np.uint32), quick=quick)


draw("random bits", lambda k: jax.random.bits(k, (N, N)), quick=True)
draw("random uniform", lambda k: jax.random.uniform(k, (N, N)), quick=True)
draw("random normal", lambda k: jax.random.normal(k, (N, N)), quick=True)
draw("random normal bfloat16", lambda k: jax.random.normal(k, (N, N), jnp.bfloat16))
draw("random bernoulli", lambda k: jax.random.bernoulli(k, 0.3, (N, N)))
draw("random randint", lambda k: jax.random.randint(k, (N, N), 0, 100))
draw("random exponential", lambda k: jax.random.exponential(k, (2048, N)))
draw("random gumbel", lambda k: jax.random.gumbel(k, (2048, N)))
draw("random truncated_normal", lambda k: jax.random.truncated_normal(k, -2, 2, (2048, N)))
draw("random permutation", lambda k: jax.random.permutation(k, 1 << 18), quick=True)
draw("random categorical", lambda k: jax.random.categorical(k, jnp.zeros((1024, 1024))))
draw("random gamma", lambda k: jax.random.gamma(k, 2.0, (65536,)))
draw("random split 1000", lambda k: jax.random.split(k, 1000))
program(
    "dropout",
    "random",
    lambda x: jnp.where(jax.random.bernoulli(jax.random.PRNGKey(0), 0.9, x.shape), x / 0.9, 0),
    normal(N, N),
)
program(
    "random normal 64 x 64",
    "random",
    lambda x: jax.random.normal(jax.random.PRNGKey(0), (64, 64)) + x,
    normal(64, 64),
)
