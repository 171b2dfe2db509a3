"""A variational autoencoder with flax.linen: a PRNG key is an argument of the step, and a new one is its result.

python examples/ecosystem/training/linen_vae.py [STEPS]
"""

import sys

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

LATENT = 64


class Encoder(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.gelu(nn.Dense(2048, name="hidden")(x))
        return nn.Dense(LATENT, name="mean")(x), nn.Dense(LATENT, name="logvar")(x)


class Decoder(nn.Module):
    pixels: int

    @nn.compact
    def __call__(self, z):
        z = nn.gelu(nn.Dense(2048, name="hidden")(z))
        return nn.Dense(self.pixels, name="out")(z)


class VAE(nn.Module):
    pixels: int

    def setup(self):
        self.encoder = Encoder()
        self.decoder = Decoder(self.pixels)

    def __call__(self, x, key):
        mean, logvar = self.encoder(x)
        z = mean + jnp.exp(logvar / 2) * jax.random.normal(key, mean.shape)
        return self.decoder(z), mean, logvar


model = VAE(pixels=784)
optimizer = optax.adam(1e-3)


def elbo_loss(params, images, key):
    logits, mean, logvar = model.apply(params, images, key)
    likelihood = optax.sigmoid_binary_cross_entropy(logits, images).sum(-1)
    divergence = 0.5 * jnp.sum(jnp.exp(logvar) + mean**2 - 1 - logvar, -1)
    return jnp.mean(likelihood + divergence)


@jax.jit
def update(params, opt_state, key, images):
    key, noise_key = jax.random.split(key)
    loss, grads = jax.value_and_grad(elbo_loss)(params, images, noise_key)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, key, loss


def main(steps):
    key = jax.random.PRNGKey(0)
    images = jax.random.bernoulli(jax.random.key(1), 0.2, (512, 784)).astype(jnp.float32)
    params = model.init(key, images[:1], key)
    opt_state = optimizer.init(params)
    for step in range(steps):
        params, opt_state, key, loss = update(params, opt_state, key, images)
        print(f"step {step} loss {loss:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
