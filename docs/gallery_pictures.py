"""The pictures of the gallery, from the variables of the programs after a run."""

from collections.abc import Callable
from typing import Any

import numpy as np
from svg_plots import array_tiles, image, plot

Variables = dict[str, Any]


def host(value: Any) -> np.ndarray:
    """Return an array as a NumPy array."""
    return np.asarray(value, dtype=np.float64)


def loss_plot(v: Variables) -> str:
    """Return the losses of a training loop."""
    return plot({"loss": (np.arange(len(v["losses"])), v["losses"])})


def gpt(v: Variables) -> str:
    """Return the losses of both runs."""
    steps = np.arange(80)
    resumed = (steps[40:], v["resumed"])
    return plot({"4 x 2 mesh": (steps, v["losses"])}, {"resumed on 2 x 4": resumed})


def ring_attention(v: Variables) -> str:
    """Return the sequence dim of an array as the devices hold it."""
    query = v["query"]
    return array_tiles({"query": query.reshape(query.shape[0], -1)}, scale=14)


def clusters(v: Variables) -> str:
    """Return the first two features of every third image, colored by the digit."""
    features, labels = host(v["features"])[::3], np.asarray(v["labels"])[::3]
    groups = {f"digit {digit}": features[labels == digit, :2].T for digit in range(0, 10, 2)}
    return plot(points={name: (xs, ys) for name, (xs, ys) in groups.items()})


def gaussian_process(v: Variables) -> str:
    """Return the data, the posterior mean and two deviations around it."""
    grid, mean, width = host(v["grid"]), host(v["mean"]), 2 * host(v["deviation"])
    lines, points = {"posterior mean": (grid, mean)}, {"data": (host(v["x"]), host(v["y"]))}
    return plot(lines, points, band=(grid, mean - width, mean + width))


def hmc(v: Variables) -> str:
    """Return some of the samples."""
    first, second = host(v["later"])[::32].T
    return plot(points={"samples": (first, second)})


def neural_ode(v: Variables) -> str:
    """Return the angles of the data and of the fitted paths."""
    times, paths, fitted = host(v["times"]), host(v["paths"]), host(v["fitted"])
    lines = {f"fit {i + 1}": (times, path[:, 0]) for i, path in enumerate(fitted)}
    data = (np.tile(times, len(paths)), paths[:, :, 0].reshape(-1))
    return plot(lines, {"data": data})


DRAW: dict[str, Callable[[Variables], str]] = {
    "gpt": gpt,
    "moe": loss_plot,
    "ring_attention": ring_attention,
    "cnn": loss_plot,
    "kmeans_pca": clusters,
    "conjugate_gradients": lambda v: image(host(v["solution"]), "the solution"),
    "gaussian_process": gaussian_process,
    "hmc": hmc,
    "neural_ode": neural_ode,
    "pallas_kernel": lambda v: image(host(v["counts"])[::3, ::3], "steps before escape", 300),
}
