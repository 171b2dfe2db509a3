"""A convolutional network.

Classify images of digits with a small convolutional network, data parallel on eight
devices.

python examples/gallery/cnn.py
"""

# %%
# 1,797 images of 8 x 8 pixels, from a checkout of weft; 1,536 to train, the last 256 to
# test.
from pathlib import Path

import numpy as np

import weft
import weft.numpy as wnp
from weft.sharding import NamedSharding, PartitionSpec as P

weft.config.update("num_cpu_devices", 8)
folder = Path(weft.__file__).parents[1] / "examples" / "data"
with np.load(folder / "digits.npz") as file:
    order = np.random.default_rng(0).permutation(len(file["labels"]))
    images = file["images"].reshape(-1, 8, 8, 1)[order].astype(np.float32) / 16
    labels = file["labels"][order].astype(np.int32)


# %%
# Two convolutions with pooling, and a linear layer. Arrays are (batch, row, column, channel).
def init(key):
    keys = weft.random.split(key, 3)
    scale = weft.nn.initializers.he_normal()
    return {
        "first": scale(keys[0], (3, 3, 1, 16)),
        "second": scale(keys[1], (3, 3, 16, 32)),
        "out": scale(keys[2], (2 * 2 * 32, 10)),
        "bias": wnp.zeros(10),
    }


def convolve(x, kernel):
    layout = ("NHWC", "HWIO", "NHWC")
    x = weft.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=layout
    )
    size, zero = (1, 2, 2, 1), wnp.float32(0)
    return weft.lax.reduce_window(
        weft.nn.relu(x), zero, weft.lax.max, size, size, "VALID"
    )


def predict(params, images):
    x = convolve(convolve(images, params["first"]), params["second"])
    return x.reshape(len(x), -1) @ params["out"] + params["bias"]


def loss(params, images, labels):
    scores = weft.nn.log_softmax(predict(params, images))
    return -wnp.take_along_axis(scores, labels[:, None], 1).mean()


# %%
# The batch is sharded, the parameters are on every device; the compiler adds the sum of
# gradients.
mesh = weft.make_mesh((8,), ("batch",))
rows, everywhere = NamedSharding(mesh, P("batch")), NamedSharding(mesh, P())


@weft.jit
def train_step(params, momentum, images, labels):
    value, grads = weft.value_and_grad(loss)(params, images, labels)
    momentum = weft.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    params = weft.tree.map(lambda p, m: p - 0.05 * m, params, momentum)
    return params, momentum, value


params = weft.device_put(init(weft.random.key(0)), everywhere)
momentum = weft.tree.map(wnp.zeros_like, params)
losses = []
for _ in range(10):
    for start in range(0, 1536, 128):
        batch = (images[start : start + 128], labels[start : start + 128])
        batch = weft.device_put(batch, rows)
        params, momentum, value = train_step(params, momentum, *batch)
        losses.append(float(value))
print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}")
print(
    "collectives of a step", weft.explain(train_step, params, momentum, *batch).counts
)

# %%
# The accuracy on images that were not used for training.
test_images, test_labels = weft.device_put((images[-256:], labels[-256:]), rows)
scores = weft.jit(predict)(params, test_images)
print(f"accuracy {(scores.argmax(1) == test_labels).mean():.0%}")
