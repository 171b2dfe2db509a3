"""What the models share: random parameters, layers as plain functions, and optimizer steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax, nn
from weft.util.record import record


@record
class Model:
    """A training program: `example(size, seed)` returns the arguments of `step`, which returns new
    parameters and state, and the loss."""

    name: str
    example: Callable[[str, int], tuple]
    step: Callable[..., tuple]


class Draws:
    """Random inputs and parameters as NumPy arrays of type float32 or int32."""

    def __init__(self, size: str, seed: int) -> None:
        self.is_small, self.rng = size == "small", np.random.default_rng(seed)

    def pick(self, small: int, large: int) -> int:
        """Return the dimension for the size of the example."""
        return small if self.is_small else large

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return (self.rng.normal(size=shape) * scale).astype(np.float32)

    def uniform(self, *shape: int) -> np.ndarray:
        return self.rng.uniform(size=shape).astype(np.float32)

    def integers(self, high: int, *shape: int) -> np.ndarray:
        return self.rng.integers(high, size=shape).astype(np.int32)

    def dense(self, n_in: int, n_out: int) -> dict:
        return {"w": self.normal(n_in, n_out, scale=n_in**-0.5), "b": self.normal(n_out, scale=0.1)}

    def mlp(self, *widths: int) -> list:
        return [self.dense(a, b) for a, b in itertools.pairwise(widths)]

    def conv(self, n_in: int, n_out: int, window: int = 3, layout: str = "NHWC") -> dict:
        w = self.normal(window, window, n_in, n_out, scale=(window * window * n_in) ** -0.5)
        w = w if layout == "NHWC" else np.ascontiguousarray(w.transpose(3, 2, 0, 1))
        return {"w": w, "b": self.normal(n_out, scale=0.1)}

    def norm(self, n: int) -> dict:
        return {"scale": 1 + self.normal(n, scale=0.1), "bias": self.normal(n, scale=0.1)}

    def block(self, n: int) -> dict:
        """Return the parameters of a transformer block."""
        return {
            "norm1": self.norm(n), "qkv": self.dense(n, 3 * n), "out": self.dense(n, n),
            "norm2": self.norm(n), "mlp": self.mlp(n, 2 * n, n),
        }


# ---- layers


def dense(p: dict, x: Any) -> Any:
    return x @ p["w"] + p["b"]


def mlp(layers: list, x: Any, activation: Callable = nn.relu) -> Any:
    for p in layers[:-1]:
        x = activation(dense(p, x))
    return dense(layers[-1], x)


def conv(p: dict, x: Any, stride: int = 1, padding: Any = "SAME", layout: str = "NHWC") -> Any:
    kernel = "HWIO" if layout == "NHWC" else "OIHW"
    dims = (layout, kernel, layout)
    y = lax.conv_general_dilated(x, p["w"], (stride, stride), padding, dimension_numbers=dims)
    return y + (p["b"] if layout == "NHWC" else p["b"][:, None, None])


def layer_norm(p: dict, x: Any) -> Any:
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * p["scale"] + p["bias"]


def attention(p: dict, x: Any, heads: int, mask: Any = None) -> Any:
    b, t, n = x.shape
    q, k, v = wnp.split(dense(p["qkv"], x).reshape(b, t, heads, -1), 3, axis=-1)
    scores = wnp.einsum("bqhd,bkhd->bhqk", q, k) / (n // heads) ** 0.5
    if mask is not None:
        scores = wnp.where(mask, scores, -wnp.inf)
    weights = nn.softmax(scores, axis=-1)
    return dense(p["out"], wnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(b, t, n))


def transformer_block(p: dict, x: Any, heads: int, mask: Any = None) -> Any:
    x = x + attention(p, layer_norm(p["norm1"], x), heads, mask)
    return x + mlp(p["mlp"], layer_norm(p["norm2"], x), nn.gelu)


def cross_entropy(logits: Any, labels: Any) -> Any:
    logp = nn.log_softmax(logits, axis=-1)
    return -wnp.take_along_axis(logp, labels[..., None], axis=-1).mean()


# ---- optimizers


def zeros_like(params: Any) -> Any:
    """Return the velocity before the first step."""
    return weft.tree.map(np.zeros_like, params)


def adam_state(params: Any) -> dict:
    """Return a state as after some steps, at which updates are smooth functions of gradients."""
    v = weft.tree.map(lambda x: np.full_like(x, 0.01), params)
    return {"m": zeros_like(params), "v": v, "count": np.int32(10)}


def sgd(params: Any, velocity: Any, grads: Any, rate: float = 0.05) -> tuple:
    velocity = weft.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
    return weft.tree.map(lambda p, v: p - rate * v, params, velocity), velocity


def adam(params: Any, state: dict, grads: Any, rate: float = 0.01) -> tuple:
    count = state["count"] + 1
    m = weft.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], grads)
    v = weft.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, state["v"], grads)
    scale = rate * wnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    params = weft.tree.map(lambda p, m, v: p - scale * m / (wnp.sqrt(v) + 1e-8), params, m, v)
    return params, {"m": m, "v": v, "count": count}


def train_step(loss: Callable, update: Callable = adam) -> Callable:
    """Return the step (params, state, *batch) -> ((params, state), loss)."""

    def step(params: Any, state: Any, *batch: Any) -> tuple:
        value, grads = weft.value_and_grad(loss)(params, *batch)
        return update(params, state, grads), value

    return step
