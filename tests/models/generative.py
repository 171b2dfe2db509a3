"""Models of distributions: VAE, diffusion step, GAN step, contrastive loss, normalizing flow.

The noise of an example comes from its seed in the batch, so that a sharded batch has equal noise.
"""

from __future__ import annotations

import weft
import weft.numpy as jnp
from tests.models.layers import dense, init_dense, init_mlp, mlp
from tests.models.optimizers import adam, sgd
from tests.models.record import Model, Size, sizes
from weft import nn, random


def _vectors(key, s):
    """Return examples with a seed each."""
    data_key, seed_key = random.split(key)
    return {
        "x": random.normal(data_key, (s.batch, s.width)),
        "seed": random.randint(seed_key, (s.batch,), 0, 1 << 30),
    }


def _noise(seeds, *shape):
    """Return normal numbers of `shape` for each seed."""
    return weft.vmap(lambda seed: random.normal(random.key(seed), shape))(seeds)


# ---- VAE


def _init_vae(key, s):
    encoder_key, decoder_key = random.split(key)
    return {
        "encoder": init_mlp(encoder_key, [s.width, s.hidden, 2 * s.latent]),
        "decoder": init_mlp(decoder_key, [s.latent, s.hidden, s.width]),
    }


def _vae_loss(params, batch):
    """Return the negative evidence lower bound for binarized data."""
    x = (batch["x"] > 0).astype(jnp.float32)
    mean, log_var = jnp.split(mlp(params["encoder"], x, nn.elu), 2, axis=-1)
    z = mean + jnp.exp(0.5 * log_var) * _noise(batch["seed"], mean.shape[-1])
    logits = mlp(params["decoder"], z, nn.elu)
    reconstruction = jnp.sum(nn.softplus(logits) - x * logits, axis=-1)
    divergence = 0.5 * jnp.sum(jnp.exp(log_var) + mean**2 - 1 - log_var, axis=-1)
    return jnp.mean(reconstruction + divergence)


# ---- diffusion


def _init_diffusion(key, s):
    keys = random.split(key, 3)
    return {
        "time": init_dense(keys[0], 8, s.hidden),
        "in": init_dense(keys[1], s.width, s.hidden),
        "out": init_dense(keys[2], s.hidden, s.width),
    }


def _time_embedding(t):
    angles = t[:, None] * jnp.exp(-jnp.arange(4) * 1.5)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def _diffusion_loss(params, batch):
    """Return the error of the predicted noise at a random time of a linear schedule."""
    signal = jnp.cumprod(1 - jnp.linspace(1e-3, 0.1, 50))
    t = batch["seed"] % 50
    noise = _noise(batch["seed"], batch["x"].shape[-1])
    level = signal[t][:, None]
    noisy = jnp.sqrt(level) * batch["x"] + jnp.sqrt(1 - level) * noise
    embedded = dense(params["time"], _time_embedding(t.astype(jnp.float32)))
    hidden = nn.silu(dense(params["in"], noisy) + embedded)
    predicted = dense(params["out"], hidden)
    weight = jnp.minimum(level / (1 - level), 5.0)
    return jnp.mean(weight * (predicted - noise) ** 2)


# ---- GAN: the discriminator and then the generator take a step


def _init_gan(key, s):
    generator_key, discriminator_key = random.split(key)
    return {
        "generator": init_mlp(generator_key, [s.latent, s.hidden, s.width]),
        "discriminator": init_mlp(discriminator_key, [s.width, s.hidden, 1]),
    }


def _generate(generator, seeds):
    return mlp(generator, _noise(seeds, generator[0]["w"].shape[0]), nn.relu)


def _score(discriminator, x):
    return mlp(discriminator, x, nn.leaky_relu)[:, 0]


def _discriminator_loss(discriminator, generator, batch):
    fake = weft.lax.stop_gradient(_generate(generator, batch["seed"]))
    real = nn.softplus(-_score(discriminator, batch["x"]))
    return jnp.mean(real + nn.softplus(_score(discriminator, fake)))


def _generator_loss(generator, discriminator, batch):
    return jnp.mean(nn.softplus(-_score(discriminator, _generate(generator, batch["seed"]))))


def _gan_loss(params, batch):
    """Return both losses; each has the gradient of one network only."""
    generator, discriminator = params["generator"], params["discriminator"]
    fixed = weft.lax.stop_gradient
    return _discriminator_loss(discriminator, generator, batch) + _generator_loss(
        generator, fixed(discriminator), batch
    )


_gan_adam = adam(2e-3, b1=0.5)


def _init_gan_state(params):
    return {name: _gan_adam.init(params[name]) for name in params}


def _gan_update(state, batch):
    params, states = state
    generator, discriminator = params["generator"], params["discriminator"]
    first, grads = weft.value_and_grad(_discriminator_loss)(discriminator, generator, batch)
    discriminator, states_d = _gan_adam.update(grads, states["discriminator"], discriminator)
    second, grads = weft.value_and_grad(_generator_loss)(generator, discriminator, batch)
    generator, states_g = _gan_adam.update(grads, states["generator"], generator)
    params = {"generator": generator, "discriminator": discriminator}
    return (params, {"generator": states_g, "discriminator": states_d}), (first, second)


# ---- contrastive loss


def _init_contrastive(key, s):
    return {"encoder": init_mlp(key, [s.width, s.hidden, s.latent]), "scale": jnp.array(4.6)}


def _contrastive_loss(params, batch):
    """Return the cross entropy of finding the other view of an example in the batch."""
    noise = _noise(batch["seed"], 2, batch["x"].shape[-1])
    views = batch["x"][:, None] + noise
    features = mlp(params["encoder"], views.transpose(1, 0, 2).reshape(-1, views.shape[-1]))
    features = features / jnp.linalg.norm(features, axis=-1, keepdims=True)
    count = features.shape[0]
    scores = features @ features.T * jnp.exp(params["scale"])
    scores = jnp.where(jnp.eye(count, dtype=bool), -jnp.inf, scores)
    partner = jnp.roll(jnp.arange(count), count // 2)
    log_probs = nn.log_softmax(scores, axis=0)
    return -jnp.mean(log_probs[partner, jnp.arange(count)])


# ---- normalizing flow: affine couplings with a fixed permutation between them


def _init_flow(key, s):
    keys = random.split(key, s.couplings)
    half = s.width // 2
    return [init_mlp(k, [half, s.hidden, 2 * (s.width - half)]) for k in keys]


def _flow_loss(params, batch):
    """Return the negative log-likelihood under a standard normal base."""
    x = batch["x"]
    half, log_det = x.shape[-1] // 2, jnp.zeros(x.shape[0])
    for coupling in params:
        fixed, changed = x[:, :half], x[:, half:]
        log_scale, shift = jnp.split(mlp(coupling, fixed), 2, axis=-1)
        log_scale = jnp.tanh(log_scale)
        x = jnp.concatenate([fixed, changed * jnp.exp(log_scale) + shift], axis=-1)[:, ::-1]
        log_det = log_det + log_scale.sum(-1)
    log_base = -0.5 * jnp.sum(x**2 + jnp.log(2 * jnp.pi), axis=-1)
    return -jnp.mean(log_base + log_det) / x.shape[-1]


_sizes = sizes(
    Size(batch=8, width=6, hidden=8, latent=3, couplings=3),
    Size(batch=256, width=48, hidden=64, latent=16, couplings=4),
)

MODELS = [
    Model("vae", _init_vae, _vectors, _vae_loss, _sizes, adam()),
    Model("diffusion", _init_diffusion, _vectors, _diffusion_loss, _sizes, adam()),
    Model(
        "gan",
        _init_gan,
        _vectors,
        _gan_loss,
        _sizes,
        _gan_adam._replace(init=_init_gan_state),
        _gan_update,
    ),
    Model("contrastive", _init_contrastive, _vectors, _contrastive_loss, _sizes, sgd(0.1)),
    Model("normalizing_flow", _init_flow, _vectors, _flow_loss, _sizes, adam()),
]
