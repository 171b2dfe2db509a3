"""NumPy arrays and Python numbers as arguments, and results back in NumPy."""

import numpy as np

import weft
import weft.numpy as wnp


def normalize(x: weft.Array | np.ndarray) -> weft.Array:
    centered = wnp.asarray(x) - wnp.mean(x, axis=0, keepdims=True)
    return centered / (wnp.std(x, axis=0) + 1e-6)


data = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
result = normalize(data)
back: np.ndarray = np.asarray(result)
mixed = result + data * 2
scaled = 2 * result - np.float32(1) + True
largest = max(float(v) for v in np.abs(back).max(axis=0))
print(back.dtype, mixed.dtype == np.float32, scaled.shape, largest < 10)
print(wnp.maximum(result, 0).sum().item(), wnp.dot(data.T, result).shape)
print(np.allclose(np.asarray(wnp.array(data)), data), int(wnp.argmax(result)))
