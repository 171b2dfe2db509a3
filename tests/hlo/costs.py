"""Programs whose costs are compared: `python costs.py` prints the peer's counts before and after optimization as JSON."""

import json

import numpy as np

PROGRAMS = {
    "elementwise": "lambda x, y: np.sin(x) * y + np.exp(x) / 2",
    "product": "lambda x, y: np.tanh(x @ y.T + 1)",
    "reduction": "lambda x, y: (x * y).sum(0) + np.log1p(x * x).max(0)",
    "layout": "lambda x, y: np.concatenate([x[1:3], y.T.reshape(4, 8)[:2]], 0)",
    "softmax": "lambda x, y: np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)",
    "gradient": "lambda x, y: lax_grad(lambda x: (np.tanh(x) ** 2 * y).sum())(x)",
    "convolution": "lambda x, y: lax.conv(x[None, None], y[None, None, :3, :3], (1, 1), 'SAME')",
}
X = np.linspace(0.1, 1, 32, dtype=np.float32).reshape(4, 8)


def costs(xp, lax, jit, grad) -> dict[str, list[list[float]]]:
    """Return (flops, transcendentals, bytes) of each program before and after optimization."""
    table = {}
    for name, text in PROGRAMS.items():
        lowered = jit(eval(text, {"np": xp, "lax": lax, "lax_grad": grad})).lower(X, X[::-1])
        both = lowered.cost_analysis(), lowered.compile().cost_analysis()
        table[name] = [
            [cost.get(k, 0.0) for k in ("flops", "transcendentals", "bytes accessed")]
            for cost in both
        ]
    return table


if __name__ == "__main__":
    import jax

    print(json.dumps(costs(jax.numpy, jax.lax, jax.jit, jax.grad)))
