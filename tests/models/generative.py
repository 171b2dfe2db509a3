"""Generative models."""

import numpy as np

import weft
import weft.numpy as wnp
from tests.models.layers import (
    Draws,
    Model,
    adam,
    adam_state,
    conv,
    dense,
    layer_norm,
    mlp,
    sgd,
    train_step,
    zeros_like,
)
from weft import lax, nn, random

# ---- variational autoencoder


def vae_example(size, seed):
    d = Draws(size, seed)
    batch, n, latent = d.pick(6, 128), d.pick(12, 80), 3
    params = {"encoder": d.mlp(n, 16, 2 * latent), "decoder": d.mlp(latent, 16, n)}
    return params, adam_state(params), d.uniform(batch, n), d.normal(batch, latent)


def vae_loss(params, x, noise):
    mean, log_var = wnp.split(mlp(params["encoder"], x, nn.elu), 2, axis=-1)
    z = mean + wnp.exp(0.5 * log_var) * noise
    logits = mlp(params["decoder"], z, nn.elu)
    likelihood = (x * nn.log_sigmoid(logits) + (1 - x) * nn.log_sigmoid(-logits)).sum(-1)
    divergence = -0.5 * (1 + log_var - mean**2 - wnp.exp(log_var)).sum(-1)
    return (divergence - likelihood).mean()


# ---- diffusion


def diffusion_example(size, seed):
    d = Draws(size, seed)
    side, n = d.pick(6, 32), 8
    params = {
        "in": d.conv(3, n), "time": d.mlp(n, 16, 2 * n), "norm": d.norm(n),
        "middle": d.conv(n, n), "out": d.conv(n, 3),
    }
    key, images = np.uint32([0, seed]), d.normal(4, side, side, 3)
    return params, adam_state(params), params, key, images, d.integers(100, 4)


def diffusion_loss(params, key, images, times):
    """Predict noise, which is drawn in float32, on a cosine schedule."""
    noise = random.normal(key, images.shape, wnp.float32).astype(images.dtype)
    level = wnp.cos(times * (wnp.pi / 200))[:, None, None, None].astype(images.dtype)
    noisy = level * images + wnp.sqrt(1 - level**2) * noise
    n = params["norm"]["scale"].shape[0]
    frequencies = wnp.exp(-wnp.arange(n // 2) * 1.5).astype(images.dtype)
    angles = times[:, None] * frequencies
    embedded = wnp.concatenate([wnp.sin(angles), wnp.cos(angles)], axis=-1)
    scale, shift = wnp.split(mlp(params["time"], embedded, nn.silu), 2, axis=-1)
    x = nn.silu(conv(params["in"], noisy))
    y = layer_norm(params["norm"], x) * (1 + scale[:, None, None]) + shift[:, None, None]
    x = x + conv(params["middle"], nn.silu(y))
    return ((conv(params["out"], x) - noise) ** 2).mean()


def diffusion_step(params, state, average, key, images, times):
    loss, grads = weft.value_and_grad(diffusion_loss)(params, key, images, times)
    params, state = adam(params, state, grads)
    average = weft.tree.map(lambda a, p: 0.99 * a + 0.01 * p, average, params)
    return (params, state, average), loss


# ---- generative adversarial network


def gan_example(size, seed):
    d = Draws(size, seed)
    batch, n, latent = d.pick(6, 128), d.pick(8, 72), 4
    params = {"generator": d.mlp(latent, 16, n), "critic": d.mlp(n, 16, 1)}
    return params, adam_state(params), d.normal(batch, n), d.normal(batch, latent)


def gan_step(params, state, x, noise):
    """Return simultaneous updates of both networks; the critic has a gradient penalty."""

    def score(critic, x):
        return mlp(critic, x, lambda x: nn.leaky_relu(x, 0.2))[..., 0]

    def generator_loss(generator, critic):
        return nn.softplus(-score(critic, wnp.tanh(mlp(generator, noise)))).mean()

    def critic_loss(critic, generator):
        fake = lax.stop_gradient(wnp.tanh(mlp(generator, noise)))
        slopes = weft.vmap(weft.grad(score, argnums=1), (None, 0))(critic, x)
        penalty = (slopes**2).sum(-1).mean()
        losses = nn.softplus(-score(critic, x)) + nn.softplus(score(critic, fake))
        return losses.mean() + 0.5 * penalty

    generator, critic = params["generator"], params["critic"]
    loss, generator_grads = weft.value_and_grad(generator_loss)(generator, critic)
    other, critic_grads = weft.value_and_grad(critic_loss)(critic, generator)
    grads = {"generator": generator_grads, "critic": critic_grads}
    return adam(params, state, grads), loss + other


# ---- normalizing flow


def flow_example(size, seed):
    d = Draws(size, seed)
    batch, n = d.pick(8, 256), d.pick(4, 40)
    params = [d.mlp(n // 2, 12, n) for _ in range(4)]
    return params, adam_state(params), d.normal(batch, n)


def flow_loss(params, x):
    """Map data to noise by affine couplings with the halves swapped between them."""
    log_det = 0.0
    for layers in params:
        kept, changed = wnp.split(x, 2, axis=-1)
        shift, log_scale = wnp.split(mlp(layers, kept, wnp.tanh), 2, axis=-1)
        log_scale = wnp.tanh(log_scale)
        log_det = log_det + log_scale.sum(-1)
        x = wnp.concatenate([changed * wnp.exp(log_scale) + shift, kept], axis=-1)
    log_prior = -0.5 * (x**2 + wnp.log(2 * wnp.pi)).sum(-1)
    return -(log_prior + log_det).mean()


# ---- quantized network


@weft.custom_vjp
def int8_matmul(x, w):
    """Multiply in integers of 8 bits, with a scale for x and one for each column of w."""
    x_scale, w_scale = wnp.abs(x).max() / 127, wnp.abs(w).max(0) / 127
    x_int = wnp.round(x / x_scale).astype(wnp.int8)
    w_int = wnp.round(w / w_scale).astype(wnp.int8)
    product = lax.dot(x_int, w_int, preferred_element_type=wnp.int32)
    return product.astype(x.dtype) * (x_scale * w_scale)


def int8_forward(x, w):
    return int8_matmul(x, w), (x, w)


def int8_backward(operands, g):
    """Return the gradients of the product without rounding."""
    x, w = operands
    return g @ w.T, x.T @ g


int8_matmul.defvjp(int8_forward, int8_backward)


def quantized_example(size, seed):
    d = Draws(size, seed)
    batch, n = d.pick(8, 128), d.pick(12, 96)
    params = d.mlp(10, n, n, 2)
    return params, zeros_like(params), d.normal(batch, 10), d.normal(batch, 2)


def quantized_loss(params, x, y):
    for p in params[:-1]:
        x = nn.relu(int8_matmul(x, p["w"]) + p["b"])
    return ((int8_matmul(x, params[-1]["w"]) + params[-1]["b"] - y) ** 2).mean()


# ---- low-rank adaptation with per-example gradients


def lora_example(size, seed):
    d = Draws(size, seed)
    batch, n, rank = d.pick(5, 32), d.pick(8, 96), 2
    base = d.mlp(n, n, n)
    adapters, noise = (
        [{"a": d.normal(n, rank, scale=scale), "b": d.normal(rank, n, scale=scale)} for _ in base]
        for scale in (0.3, 0.01)
    )
    return adapters, zeros_like(adapters), base, d.normal(batch, n), d.normal(batch, n), noise


def lora_step(adapters, velocity, base, x, y, noise):
    """Clip the gradient of each example and add noise to their mean."""

    def loss(adapters, x, y):
        for p, q in zip(base, adapters):
            x = wnp.tanh(dense(p, x) + (x @ q["a"]) @ q["b"])
        return ((x - y) ** 2).mean()

    losses, grads = weft.vmap(weft.value_and_grad(loss), (None, 0, 0))(adapters, x, y)
    squares = sum((g**2).sum((1, 2)) for g in weft.tree.leaves(grads))
    factors = wnp.minimum(1, 0.5 / wnp.sqrt(squares))

    def clipped_mean(g, noise):
        return wnp.einsum("b,bij->ij", factors, g) / len(x) + noise

    return sgd(adapters, velocity, weft.tree.map(clipped_mean, grads, noise)), losses.mean()


MODELS = [
    Model("vae", vae_example, train_step(vae_loss)),
    Model("diffusion", diffusion_example, diffusion_step),
    Model("gan", gan_example, gan_step),
    Model("normalizing_flow", flow_example, train_step(flow_loss)),
    Model("quantized_mlp", quantized_example, train_step(quantized_loss, sgd)),
    Model("lora", lora_example, lora_step),
]
