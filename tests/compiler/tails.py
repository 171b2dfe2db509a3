"""One program for each kernel family on arrays of any two sizes, with NumPy references in wide
types."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import weft
import weft.numpy as wnp
from weft import lax

FLOATS = ("float32", "float64", "bfloat16", "float16")
TYPES = (*FLOATS, "int32", "int8", "uint16", "int64")


def _places(x) -> np.ndarray:
    """Return rows to gather and scatter: some repeat, and an empty array has none."""
    return np.arange(9 if x.shape[0] else 0) * 5 % max(x.shape[0], 1)


def _scattered(x):
    y = np.array(x)
    np.add.at(y, _places(x), np.ones_like(x[_places(x)]))
    return y


def _softmax(x):
    e = np.exp(x - x.max(1, keepdims=True, initial=-1e30))
    return e / e.sum(1, keepdims=True)


def _normed(xp, x):
    return (x - x.mean(1, keepdims=True)) / xp.sqrt(x.var(1, keepdims=True) + 1)


def _conv(x):
    """Convolve: each output channel is a window of two along the rows; see `_weights`."""
    w = _weights(x).astype(x.dtype)
    shifted = np.pad(x, ((0, 0), (1, 0)))[:, : x.shape[1]]
    return w[:, :, 0] @ shifted + w[:, :, 1] @ x


def _weights(x) -> np.ndarray:
    return (np.arange(3 * x.shape[0] * 2).reshape(3, x.shape[0], 2) % 5 - 2).astype(x.dtype)


def _moved(xp, x):
    return xp.concatenate([x[:, ::-1], x[1:], xp.pad(x, ((1, 2), (0, 0)))], axis=0)[::2]


#: family -> (types, weft function, NumPy function in float64 or int64)
FAMILIES = {
    "elementwise": (
        TYPES,
        lambda x: wnp.where(x > 1, x * 3 - 1, -x),
        lambda x: np.where(x > 1, x * 3 - 1, -x),
    ),
    "functions": (FLOATS, lambda x: wnp.exp(x) + wnp.sin(x), lambda x: np.exp(x) + np.sin(x)),
    "sums": (
        TYPES,
        lambda x: (x.sum(0), x.sum(1), x.sum()),
        lambda x: (x.sum(0), x.sum(1), x.sum()),
    ),
    "extremes": (
        TYPES,
        lambda x: (x.max(0, initial=1), x.min(1, initial=2)),
        lambda x: (x.max(0, initial=1), x.min(1, initial=2)),
    ),
    "scan": (
        TYPES,
        lambda x: (wnp.cumsum(x, 0), wnp.cumsum(x, 1)),
        lambda x: (np.cumsum(x, 0), np.cumsum(x, 1)),
    ),
    "transpose": (TYPES, lambda x: (x.T, x[::-1].T[::-1]), lambda x: (x.T, x[::-1].T[::-1])),
    "moves": (TYPES, lambda x: _moved(wnp, x), lambda x: _moved(np, x)),
    "slices": (TYPES, lambda x: (x[1:, ::3], x[::-2, 2:-1]), lambda x: (x[1:, ::3], x[::-2, 2:-1])),
    "gather": (TYPES, lambda x: x[_places(x)], lambda x: x[_places(x)]),
    "scatter": (TYPES, lambda x: x.at[_places(x)].add(1), _scattered),
    "sort": (
        TYPES,
        lambda x: (wnp.sort(x, 0), wnp.sort(x, 1)),
        lambda x: (np.sort(x, 0), np.sort(x, 1)),
    ),
    "softmax": (FLOATS, lambda x: weft.nn.softmax(x, axis=1), _softmax),
    "norm": (
        FLOATS,
        lambda x: _normed(wnp, x) if x.size else x,
        lambda x: _normed(np, x) if x.size else x,
    ),
    "matmul": (TYPES, lambda x: x @ x.T, lambda x: x @ x.T),
    "vectors": (
        FLOATS,
        lambda x: (x.T @ x[:, 0], x @ x[0]) if x.size else x,
        lambda x: (x.T @ x[:, 0], x @ x[0]) if x.size else x,
    ),
    "convolution": (
        FLOATS,
        lambda x: lax.conv_general_dilated(x[None], _weights(x), (1,), [(1, 0)])[0],
        _conv,
    ),
}


def shapes() -> list[tuple[int, int]]:
    """Return shapes with each size from 0 to 70 once per dim, small sizes paired with large and
    with small ones."""
    return [(k, k * 30 % 71) for k in range(71)]


def arrays(family: str, chosen: list[tuple[int, int]]) -> list[np.ndarray]:
    """Return arrays of small integers, which every type represents and whose sums are exact; types
    alternate."""
    types = FAMILIES[family][0]
    rng = np.random.default_rng(5)
    first = list(FAMILIES).index(family)
    dtypes = [np.dtype(getattr(ml_dtypes, name, name)) for name in types]
    return [
        rng.integers(0, 4, shape).astype(dtypes[(first + k) % len(types)])
        for k, shape in enumerate(chosen)
    ]


def program(family: str):
    """Return one program that applies the family to each of its arguments."""
    on_weft = FAMILIES[family][1]
    return weft.jit(lambda *xs: [on_weft(x) for x in xs])


def compare(family: str, chosen: list[tuple[int, int]]) -> None:
    """Assert that the compiled program agrees with NumPy."""
    xs = arrays(family, chosen)
    with weft.enable_x64():
        results = program(family)(*xs)
    for x, got in zip(xs, results):
        wide = np.int64 if x.dtype.kind in "iu" else np.float64
        want = FAMILIES[family][2](x.astype(wide))
        for y, exact in zip(weft.tree.leaves(got), want if isinstance(want, tuple) else (want,)):
            rounded = exact.astype(y.dtype)
            tolerance = 0 if y.dtype.kind in "iu" else 8 * float(ml_dtypes.finfo(y.dtype).eps)
            assert y.shape == rounded.shape
            np.testing.assert_allclose(
                np.asarray(y).astype(wide),
                rounded.astype(wide),
                tolerance,
                tolerance,
                err_msg=f"{x.shape} {x.dtype}",
            )
