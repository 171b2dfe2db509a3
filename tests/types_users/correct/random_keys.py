"""Random keys: splitting, folding, distributions, and a Monte Carlo estimate."""

import weft
import weft.numpy as wnp
from weft import random


def estimate(key: weft.Array, samples: int) -> weft.Array:
    point = random.uniform(key, (samples, 2))
    inside = wnp.sum(point**2, axis=1) < 1
    return 4 * wnp.mean(inside)


def walk(key: weft.Array, steps: int = 10) -> weft.Array:
    return wnp.cumsum(random.choice(key, wnp.array([-1, 1]), (steps,)))


root = random.key(42)
a, b, c = random.split(root, 3)
estimates = weft.vmap(lambda key: estimate(key, 100))(random.split(a, 8))
normal = random.normal(b, shape=(2, 3), dtype=wnp.float32)
gamma = random.gamma(random.fold_in(c, 1), 2.0, (3,))
labels = random.categorical(random.fold_in(c, 2), wnp.zeros((4, 5)), axis=-1)
coins = random.bernoulli(random.fold_in(c, 3), p=0.3, shape=(6,))
order = random.permutation(random.fold_in(c, 4), 5)
print(estimates.shape, walk(c, steps=4).shape, normal.mean().shape, gamma.min() > 0)
print(labels.max() < 5, coins.dtype, sorted(order.tolist()), random.key_data(root).shape)
legacy = random.PRNGKey(0)
print(legacy.dtype, random.truncated_normal(legacy, -1.0, 1.0, (2,)).shape)
