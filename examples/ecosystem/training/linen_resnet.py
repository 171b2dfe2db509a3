"""Image classification with a flax.linen ResNet: batch normalization, momentum, a cosine schedule.

python examples/ecosystem/training/linen_resnet.py [STEPS]
"""

import functools
import sys
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training import train_state


class TrainState(train_state.TrainState):
    batch_stats: Any


class Block(nn.Module):
    features: int
    strides: int = 1

    @nn.compact
    def __call__(self, x, train: bool):
        norm = functools.partial(nn.BatchNorm, use_running_average=not train, momentum=0.9)
        conv = functools.partial(nn.Conv, use_bias=False)
        y = conv(self.features, (3, 3), strides=self.strides)(x)
        y = conv(self.features, (3, 3))(nn.relu(norm()(y)))
        y = norm(scale_init=nn.initializers.zeros)(y)
        if x.shape != y.shape:
            x = norm()(conv(self.features, (1, 1), strides=self.strides)(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    classes: int
    widths: tuple[int, ...] = (32, 64, 128)

    @nn.compact
    def __call__(self, x, train: bool = True):
        x = nn.Conv(self.widths[0], (3, 3), use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(x))
        for i, width in enumerate(self.widths):
            x = Block(width, strides=1 if i == 0 else 2)(x, train)
        return nn.Dense(self.classes)(x.mean((1, 2)))


def train_step(state, images, labels):
    def loss_fn(params):
        variables = {"params": params, "batch_stats": state.batch_stats}
        logits, updates = state.apply_fn(variables, images, train=True, mutable=["batch_stats"])
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
        return loss, (logits, updates)

    (loss, (logits, updates)), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    state = state.apply_gradients(grads=grads, batch_stats=updates["batch_stats"])
    return state, {"loss": loss, "accuracy": jnp.mean(logits.argmax(-1) == labels)}


def main(steps):
    model = ResNet(classes=100)
    image_key, label_key, key = jax.random.split(jax.random.key(0), 3)
    images = jax.random.normal(image_key, (64, 32, 32, 3))
    labels = jax.random.randint(label_key, (64,), 0, 100)
    variables = model.init(key, images[:1], train=False)
    schedule = optax.cosine_decay_schedule(0.1, 100)
    state = TrainState.create(
        apply_fn=model.apply,
        params=variables["params"],
        batch_stats=variables["batch_stats"],
        tx=optax.chain(optax.add_decayed_weights(1e-4), optax.sgd(schedule, momentum=0.9)),
    )
    step_fn = jax.jit(train_step, donate_argnums=0)
    for step in range(steps):
        state, metrics = step_fn(state, images, labels)
        print(f"step {step} loss {metrics['loss']:.4f} accuracy {metrics['accuracy']:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
