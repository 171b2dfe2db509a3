"""Simulators and samplers: scans over bodies of hundreds of small ops, for one system and for batches."""

import jax
import jax.numpy as jnp
import numpy as np
import simulators
from suite import Case, Step, add, integers, normal

GROUP = "simulators"


def case(name, make, **facts):
    def setup():
        function, args = make()
        return Step(jax.jit(function), jax.tree_util.tree_map(jnp.asarray, args))

    add(Case(name, GROUP, setup, **facts))


def legged(count, steps):
    def make():
        shape = (steps, 8) if count == 1 else (steps, count, 8)
        actions = np.tanh(normal(*shape).numpy())
        if count == 1:
            return simulators.legged_run, (simulators.MODEL, simulators.legged_state(), actions)
        return jax.vmap(simulators.legged_run, (None, 0, 1)), (
            simulators.MODEL,
            simulators.legged_state(count),
            actions,
        )

    return make


def hmc(points, features, draws, chains):
    def make():
        def sample(key, weights, x, y):
            return simulators.hmc(key, weights, x, y, draws)

        data = normal(points, features).numpy(), integers(2, points).numpy().astype(np.float32)
        key = jax.random.PRNGKey(0)
        if chains == 1:
            return sample, (key, np.zeros(features, np.float32), *data)
        starts = np.zeros((chains, features), np.float32)
        return jax.vmap(sample, (0, 0, None, None)), (jax.random.split(key, chains), starts, *data)

    return make


for _count, _steps in ((1, 100), (64, 20), (512, 5)):
    case(
        f"legged body, {_steps} control steps of {_count}",
        legged(_count, _steps),
        quick=_count == 64,
    )
for _points, _features, _draws, _chains in ((100, 5, 300, 1), (1000, 20, 100, 1), (100, 5, 50, 64)):
    case(
        f"HMC, {_draws} draws, {_points} x {_features}, {_chains} {'chain' if _chains == 1 else 'chains'}",
        hmc(_points, _features, _draws, _chains),
        quick=_points == 1000,
    )
