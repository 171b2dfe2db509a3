"""Models of images."""

import numpy as np

import weft
import weft.numpy as wnp
from tests.models.layers import (
    Draws,
    Model,
    adam_state,
    conv,
    cross_entropy,
    dense,
    layer_norm,
    mlp,
    sgd,
    train_step,
    transformer_block,
    zeros_like,
)
from weft import lax, nn

# ---- multilayer perceptron


def mlp_example(size, seed):
    d = Draws(size, seed)
    batch, width = d.pick(8, 128), d.pick(16, 96)
    params = d.mlp(12, width, width, 5)
    return params, adam_state(params), d.normal(batch, 12), d.integers(5, batch)


def mlp_loss(params, x, labels):
    return cross_entropy(mlp(params, x), labels)


# ---- convolutional network in both layouts


def cnn_example(layout):
    def example(size, seed):
        d = Draws(size, seed)
        side = d.pick(8, 32)
        params = {
            "conv1": d.conv(3, 8, layout=layout),
            "conv2": d.conv(8, 12, layout=layout),
            "head": d.dense(12 * (side // 4) ** 2, 10),
        }
        shape = (4, side, side, 3) if layout == "NHWC" else (4, 3, side, side)
        return params, zeros_like(params), d.normal(*shape), d.integers(10, 4)

    return example


def cnn_loss(layout):
    window = (1, 2, 2, 1) if layout == "NHWC" else (1, 1, 2, 2)

    def pool(x):
        return lax.reduce_window(x, -wnp.inf, lax.max, window, window, "VALID")

    def loss(params, x, labels):
        x = pool(nn.relu(conv(params["conv1"], x, layout=layout)))
        x = pool(nn.relu(conv(params["conv2"], x, layout=layout)))
        return cross_entropy(dense(params["head"], x.reshape(x.shape[0], -1)), labels)

    return loss


# ---- residual block with batch norm


def resnet_example(size, seed):
    d = Draws(size, seed)
    side = d.pick(8, 32)
    params = {
        "conv1": d.conv(4, 8), "norm1": d.norm(8), "conv2": d.conv(8, 8), "norm2": d.norm(8),
        "skip": d.conv(4, 8, 1), "head": d.dense(8, 5),
    }
    stats = {
        name: {"mean": d.normal(8, scale=0.1), "var": 1 + d.uniform(8)}
        for name in ("norm1", "norm2")
    }
    return params, stats, zeros_like(params), d.normal(4, side, side, 4), d.integers(5, 4)


def batch_norm(p, stats, x):
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    y = (x - mean) / wnp.sqrt(var + 1e-5) * p["scale"] + p["bias"]
    new = {"mean": 0.9 * stats["mean"] + 0.1 * mean, "var": 0.9 * stats["var"] + 0.1 * var}
    return y, new


def resnet_loss(params, stats, x, labels):
    y, stats1 = batch_norm(params["norm1"], stats["norm1"], conv(params["conv1"], x, stride=2))
    y = conv(params["conv2"], nn.relu(y))
    y, stats2 = batch_norm(params["norm2"], stats["norm2"], y)
    y = nn.relu(y + conv(params["skip"], x, stride=2))
    logits = dense(params["head"], y.mean((1, 2)))
    return cross_entropy(logits, labels), {"norm1": stats1, "norm2": stats2}


def resnet_step(params, stats, velocity, x, labels):
    gradient = weft.value_and_grad(resnet_loss, has_aux=True)
    (loss, stats), grads = gradient(params, stats, x, labels)
    params, velocity = sgd(params, velocity, grads)
    return (params, stats, velocity), loss


# ---- vision transformer


def vit_example(size, seed):
    d = Draws(size, seed)
    side, patch, n = d.pick(8, 32), 4, d.pick(8, 32)
    params = {
        "patches": d.conv(3, n, patch, layout="NCHW"), "token": d.normal(1, 1, n),
        "position": d.normal((side // patch) ** 2 + 1, n, scale=0.1),
        "blocks": [d.block(n) for _ in range(2)], "norm": d.norm(n), "head": d.dense(n, 5),
    }
    return params, adam_state(params), d.normal(3, 3, side, side), d.integers(5, 3)


def vit_loss(params, x, labels):
    x = conv(params["patches"], x, stride=4, padding="VALID", layout="NCHW")
    b, n = x.shape[:2]
    x = x.reshape(b, n, -1).transpose(0, 2, 1)
    token = wnp.broadcast_to(params["token"], (b, 1, n))
    x = wnp.concatenate([token, x], axis=1) + params["position"]
    for block in params["blocks"]:
        x = transformer_block(block, x, heads=2)
    return cross_entropy(dense(params["head"], layer_norm(params["norm"], x[:, 0])), labels)


# ---- U-Net


def unet_example(size, seed):
    d = Draws(size, seed)
    side = d.pick(8, 32)
    params = {
        "down1": d.conv(2, 6), "down2": d.conv(6, 8), "bottom": d.conv(8, 8),
        "up2": d.conv(16, 6), "up1": d.conv(12, 6), "head": d.conv(6, 3, 1),
    }
    return params, adam_state(params), d.normal(2, side, side, 2), d.integers(3, 2, side, side)


def unet_loss(params, x, labels):
    def halve(x):
        b, h, w, c = x.shape
        return x.reshape(b, h // 2, 2, w // 2, 2, c).max((2, 4))

    def double(x):
        return wnp.repeat(wnp.repeat(x, 2, axis=1), 2, axis=2)

    one = nn.silu(conv(params["down1"], x))
    two = nn.silu(conv(params["down2"], halve(one)))
    y = nn.silu(conv(params["bottom"], halve(two)))
    y = nn.silu(conv(params["up2"], wnp.concatenate([double(y), two], -1)))
    y = nn.silu(conv(params["up1"], wnp.concatenate([double(y), one], -1)))
    return cross_entropy(conv(params["head"], y), labels)


# ---- contrastive loss


def contrastive_example(size, seed):
    d = Draws(size, seed)
    batch, n = d.pick(6, 64), d.pick(8, 64)
    params = d.mlp(10, n, n)
    x = d.normal(batch, 10)
    views = [x + d.normal(batch, 10, scale=0.1) for _ in range(2)]
    return params, zeros_like(params), np.stack(views)


def contrastive_loss(params, views):
    z = mlp(params, views.reshape(-1, views.shape[-1]), nn.gelu)
    z = z / wnp.linalg.norm(z, axis=-1, keepdims=True)
    count = z.shape[0]
    logits = wnp.where(wnp.eye(count, dtype=bool), -wnp.inf, z @ z.T / 0.2)
    labels = (wnp.arange(count) + count // 2) % count
    return cross_entropy(logits, labels)


MODELS = [
    Model("mlp", mlp_example, train_step(mlp_loss)),
    Model("cnn_nchw", cnn_example("NCHW"), train_step(cnn_loss("NCHW"), sgd)),
    Model("cnn_nhwc", cnn_example("NHWC"), train_step(cnn_loss("NHWC"), sgd)),
    Model("resnet_block", resnet_example, resnet_step),
    Model("vit", vit_example, train_step(vit_loss)),
    Model("unet", unet_example, train_step(unet_loss)),
    Model("contrastive", contrastive_example, train_step(contrastive_loss, sgd)),
]
