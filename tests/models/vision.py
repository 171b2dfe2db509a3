"""Models of images: MLP, CNN in two layouts, ResNet block, ViT, U-Net."""

from __future__ import annotations

import weft
import weft.numpy as jnp
from tests.models.layers import (
    block,
    cross_entropy,
    dense,
    init_block,
    init_dense,
    init_mlp,
    init_norm,
    layer_norm,
    mlp,
)
from tests.models.optimizers import adam, sgd
from tests.models.record import Model, Size, sizes
from weft import image, lax, nn, random

CLASSES = 5


def _images(key, s, layout="NHWC"):
    """Return random images and labels."""
    image_key, label_key = random.split(key)
    shape = (s.batch, s.image, s.image, 3) if layout == "NHWC" else (s.batch, 3, s.image, s.image)
    images = random.normal(image_key, shape)
    return {"image": images, "label": random.randint(label_key, (s.batch,), 0, CLASSES)}


def _init_conv(key, shape, n_in):
    return random.normal(key, shape) * jnp.sqrt(2.0 / (shape[0] * shape[1] * n_in))


# ---- MLP


def _init_mlp(key, s):
    return init_mlp(key, [s.image * s.image * 3, s.hidden, s.hidden, CLASSES])


def _mlp_loss(params, batch):
    x = batch["image"].reshape(batch["image"].shape[0], -1)
    logits = mlp(params, x, nn.relu)
    decay = sum(jnp.sum(layer["w"] ** 2) for layer in params)
    return cross_entropy(logits, batch["label"]).mean() + 1e-4 * decay


# ---- CNN


def _init_cnn(key, s, layout):
    k1, k2, k3 = random.split(key, 3)
    kernel1 = _init_conv(k1, (3, 3, 3, s.channels), 3)
    kernel2 = _init_conv(k2, (3, 3, s.channels, 2 * s.channels), s.channels)
    if layout == "NCHW":
        kernel1, kernel2 = kernel1.transpose(3, 2, 0, 1), kernel2.transpose(3, 2, 0, 1)
    features = 2 * s.channels * (s.image // 4) ** 2
    head = init_dense(k3, features, CLASSES)
    biases = jnp.zeros(s.channels), jnp.zeros(2 * s.channels)
    return {"conv1": kernel1, "b1": biases[0], "conv2": kernel2, "b2": biases[1], "head": head}


def _cnn_logits(params, x, layout):
    numbers = ("NHWC", "HWIO", "NHWC") if layout == "NHWC" else ("NCHW", "OIHW", "NCHW")
    window = (1, 2, 2, 1) if layout == "NHWC" else (1, 1, 2, 2)
    spread = (lambda b: b) if layout == "NHWC" else (lambda b: b[:, None, None])
    x = lax.conv_general_dilated(x, params["conv1"], (1, 1), "SAME", dimension_numbers=numbers)
    x = nn.relu(x + spread(params["b1"]))
    x = lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")
    x = lax.conv_general_dilated(x, params["conv2"], (1, 1), "SAME", dimension_numbers=numbers)
    x = x if layout == "NHWC" else x.transpose(0, 2, 3, 1)  # the head has channels last
    x = _average_pool(nn.relu(x + params["b2"]))
    return dense(params["head"], x.reshape(x.shape[0], -1))


def _cnn(layout):
    """Return the model with images and kernels in a layout."""
    return Model(
        f"cnn_{layout.lower()}",
        lambda key, s: _init_cnn(key, s, layout),
        lambda key, s: _images(key, s, layout),
        lambda params, batch: cross_entropy(
            _cnn_logits(params, batch["image"], layout), batch["label"]
        ).mean(),
        _sizes,
        sgd(0.05, momentum=0.9),
    )


# ---- ResNet block with batch norm: the running statistics are a part of the state


def _init_resnet(key, s):
    keys = random.split(key, 5)
    c = s.channels
    norms = {f"norm{i}": init_norm(n) for i, n in enumerate((c, 2 * c, 2 * c))}
    return {
        "stem": _init_conv(keys[0], (3, 3, 3, c), 3),
        "conv1": _init_conv(keys[1], (3, 3, c, 2 * c), c),
        "conv2": _init_conv(keys[2], (3, 3, 2 * c, 2 * c), 2 * c),
        "skip": _init_conv(keys[3], (1, 1, c, 2 * c), c),
        "head": init_dense(keys[4], 2 * c, CLASSES),
        **norms,
    }


def _conv(x, kernel, stride=1):
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (stride,) * 2, "SAME", dimension_numbers=numbers)


def _batch_norm(params, x):
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    y = (x - mean) * lax.rsqrt(variance + 1e-5) * params["scale"] + params["shift"]
    return y, (mean, variance)


def _resnet_forward(params, batch):
    """Return the loss and the statistics of the batch."""
    x, stats0 = _batch_norm(params["norm0"], _conv(batch["image"], params["stem"]))
    x = nn.relu(x)
    y, stats1 = _batch_norm(params["norm1"], _conv(x, params["conv1"], 2))
    y, stats2 = _batch_norm(params["norm2"], _conv(nn.relu(y), params["conv2"]))
    x = nn.relu(y + _conv(x, params["skip"], 2)).mean((1, 2))
    loss = cross_entropy(dense(params["head"], x), batch["label"]).mean()
    return loss, (stats0, stats1, stats2)


_resnet_optimizer = sgd(0.1, momentum=0.9)


def _init_resnet_state(params):
    widths = [params[f"norm{i}"]["scale"] for i in range(3)]
    running = tuple((jnp.zeros_like(w), jnp.ones_like(w)) for w in widths)
    return _resnet_optimizer.init(params), running


def _resnet_update(state, batch):
    params, (velocity, running) = state
    (loss, stats), grads = weft.value_and_grad(_resnet_forward, has_aux=True)(params, batch)
    params, velocity = _resnet_optimizer.update(grads, velocity, params)
    running = weft.tree.map(lambda old, new: 0.9 * old + 0.1 * new, running, stats)
    return (params, (velocity, running)), loss


# ---- ViT


def _init_vit(key, s):
    keys = random.split(key, 4 + s.layers)
    patches = (s.image // s.patch) ** 2
    return {
        "patch": _init_conv(keys[0], (s.width, 3, s.patch + 2, s.patch + 2), 3),
        "class": random.normal(keys[1], (s.width,)) * 0.02,
        "position": random.normal(keys[2], (patches + 1, s.width)) * 0.02,
        "blocks": [init_block(k, s.width, 2 * s.width) for k in keys[4:]],
        "norm": init_norm(s.width),
        "head": init_dense(keys[3], s.width, CLASSES),
    }


def _vit_logits(params, x):
    """Return the logits of images in NCHW; patches overlap by one pixel on each side."""
    size = params["patch"].shape[-1] - 2
    x = lax.conv_general_dilated(x, params["patch"], (size, size), ((1, 1), (1, 1)))
    batch, width = x.shape[:2]
    x = x.transpose(0, 2, 3, 1).reshape(batch, -1, width)
    first = jnp.broadcast_to(params["class"], (batch, 1, width))
    x = jnp.concatenate([first, x], axis=1) + params["position"]
    for layer in params["blocks"]:
        x = block(layer, x, heads=2)
    return dense(params["head"], layer_norm(params["norm"], x)[:, 0])


def _vit_loss(params, batch):
    smooth = 0.9 * nn.one_hot(batch["label"], CLASSES) + 0.1 / CLASSES
    log_probs = nn.log_softmax(_vit_logits(params, batch["image"]))
    return -jnp.mean(jnp.sum(smooth * log_probs, axis=-1))


# ---- U-Net


def _init_unet(key, s):
    keys = random.split(key, 6)
    c = s.channels
    return {
        "down1": _init_conv(keys[0], (3, 3, 3, c), 3),
        "down2": _init_conv(keys[1], (3, 3, c, 2 * c), c),
        "middle": _init_conv(keys[2], (3, 3, 2 * c, 2 * c), 2 * c),
        "up2": _init_conv(keys[3], (2, 2, 2 * c, c), 2 * c),
        "join": _init_conv(keys[4], (3, 3, 3 * c, c), 3 * c),
        "head": _init_conv(keys[5], (1, 1, 2 * c, 1), 2 * c),
    }


def _average_pool(x):
    window = (1, 2, 2, 1)
    return lax.reduce_window(x, 0.0, lax.add, window, window, "VALID") / 4


def _unet_logits(params, x):
    high = nn.silu(_conv(x, params["down1"]))
    low = nn.silu(_conv(_average_pool(high), params["down2"]))
    middle = nn.silu(_conv(_average_pool(low), params["middle"]))
    numbers = ("NHWC", "HWIO", "NHWC")
    up = lax.conv_transpose(middle, params["up2"], (2, 2), "SAME", dimension_numbers=numbers)
    up = nn.silu(_conv(jnp.concatenate([up, low], axis=-1), params["join"]))
    batch, height, width, channels = up.shape
    up = image.resize(up, (batch, 2 * height, 2 * width, channels), "nearest")
    return _conv(jnp.concatenate([up, high], axis=-1), params["head"])[..., 0]


def _unet_batch(key, s):
    image_key, mask_key = random.split(key)
    mask = random.bernoulli(mask_key, 0.3, (s.batch, s.image, s.image))
    images = random.normal(image_key, (s.batch, s.image, s.image, 3))
    return {"image": images, "mask": mask.astype(jnp.float32)}


def _unet_loss(params, batch):
    """Return the binary cross entropy of all pixels plus the Dice loss of each image."""
    logits, mask = _unet_logits(params, batch["image"]), batch["mask"]
    entropy = jnp.mean(nn.softplus(logits) - mask * logits)
    probs = nn.sigmoid(logits)
    overlap = (probs * mask).sum((1, 2))
    dice = 1 - (2 * overlap + 1) / (probs.sum((1, 2)) + mask.sum((1, 2)) + 1)
    return entropy + dice.mean()


_sizes = sizes(
    Size(batch=8, image=16, channels=4, hidden=16),
    Size(batch=16, image=32, channels=16, hidden=128),
)
_vit_sizes = sizes(
    Size(batch=8, image=16, patch=2, width=8, layers=1),
    Size(batch=16, image=32, patch=4, width=32, layers=2),
)

MODELS = [
    Model("mlp", _init_mlp, _images, _mlp_loss, _sizes, sgd(0.1)),
    _cnn("NCHW"),
    _cnn("NHWC"),
    Model(
        "resnet_block",
        _init_resnet,
        _images,
        lambda params, batch: _resnet_forward(params, batch)[0],
        _sizes,
        _resnet_optimizer._replace(init=_init_resnet_state),
        _resnet_update,
    ),
    Model(
        "vit",
        _init_vit,
        lambda key, s: _images(key, s, "NCHW"),
        _vit_loss,
        _vit_sizes,
        adam(1e-2, decay=1e-2),
    ),
    Model("unet", _init_unet, _unet_batch, _unet_loss, _sizes, adam()),
]
