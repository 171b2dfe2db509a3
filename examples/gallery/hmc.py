"""Hamiltonian Monte Carlo.

Sample a curved density with 64 chains at once: `vmap` over chains, which are sharded over
eight devices.

python examples/gallery/hmc.py
"""

# %%
# Eight virtual devices, and a mesh with one axis.
import weft
import weft.numpy as wnp
from weft.sharding import NamedSharding, PartitionSpec as P

weft.config.update("num_cpu_devices", 8)
mesh = weft.make_mesh((8,), ("chain",))


# %%
# The logarithm of the density, up to a constant: a Gaussian bent along a parabola.
def log_density(position):
    first, second = position
    return -0.5 * first**2 / 4 - 0.5 * (second - first**2 / 2) ** 2


# %%
# One step: follow the gradient with random momentum, and accept by the change in energy.
def leapfrog(state, _):
    position, momentum = state
    momentum = momentum + 0.05 * weft.grad(log_density)(position)
    position = position + 0.1 * momentum
    return (position, momentum + 0.05 * weft.grad(log_density)(position)), None


def step(position, key):
    key_momentum, key_accept = weft.random.split(key)
    momentum = weft.random.normal(key_momentum, (2,))
    (new, new_momentum), _ = weft.lax.scan(leapfrog, (position, momentum), length=20)
    gain = log_density(new) - log_density(position)
    gain = gain + 0.5 * (momentum @ momentum - new_momentum @ new_momentum)
    accepted = wnp.log(weft.random.uniform(key_accept)) < gain
    position = wnp.where(accepted, new, position)
    return position, (position, accepted)


# %%
# All chains: the keys are sharded, and with them all values of the program.
@weft.jit
def sample(keys):
    def chain(key):
        start, key = wnp.zeros(2), weft.random.split(key, 500)
        return weft.lax.scan(step, start, key)[1]

    return weft.vmap(chain)(keys)


keys = weft.random.split(weft.random.key(1), 64)
keys = weft.device_put(keys, NamedSharding(mesh, P("chain")))
samples, accepted = sample(keys)
print("samples", samples.shape, samples.sharding.spec)
print("collectives", weft.explain(sample, keys).counts)

# %%
# The first 100 steps of each chain are left out. The true moments are 0, 2 and 4.
later = samples[:, 100:].reshape(-1, 2)
print(f"accepted {accepted.mean():.0%}")
print(f"means {later[:, 0].mean():.1f} and {later[:, 1].mean():.1f}")
print(f"variance of the first coordinate {later[:, 0].var():.1f}")
