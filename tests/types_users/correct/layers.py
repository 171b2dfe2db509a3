"""A perceptron of several layers: lists of tuples, vmap over the batch, a keyword argument."""

import weft
import weft.numpy as wnp
from weft import nn, random

Layer = tuple[weft.Array, weft.Array]


def init(key: weft.Array, sizes: list[int]) -> list[Layer]:
    layers: list[Layer] = []
    for k, fan_in, fan_out in zip(random.split(key, len(sizes) - 1), sizes[:-1], sizes[1:]):
        w = random.normal(k, (fan_in, fan_out), dtype=wnp.float32) / wnp.sqrt(fan_in)
        layers.append((w, wnp.zeros(fan_out)))
    return layers


def forward(layers: list[Layer], x: weft.Array, *, slope: float = 0.1) -> weft.Array:
    for w, b in layers[:-1]:
        x = nn.leaky_relu(x @ w + b, negative_slope=slope)
    w, b = layers[-1]
    return nn.log_softmax(x @ w + b)


def cross_entropy(layers: list[Layer], images: weft.Array, labels: weft.Array) -> weft.Array:
    scores = weft.vmap(lambda image: forward(layers, image, slope=0.2))(images)
    return -wnp.mean(wnp.sum(scores * nn.one_hot(labels, 4), axis=-1))


layers = init(random.key(1), [8, 16, 4])
images = random.uniform(random.key(2), (5, 8), minval=-1.0, maxval=1.0)
labels = wnp.array([0, 1, 2, 3, 0])
gradients = weft.jit(weft.grad(cross_entropy))(layers, images, labels)
first_w, first_b = gradients[0]
print(first_w.shape, first_b.sum().item())
