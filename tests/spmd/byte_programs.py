"""Programs on a 4 x 2 mesh whose communication is compared with a peer's; it runs them too: only NumPy is imported."""

import numpy as np

ROWS = (("a", "b"),)


def programs(xp, grad, lax, checkpoint):
    """Return name -> (function of arrays that uses `xp`, `lax` and these transformations, shapes, specs)."""
    square = (64, 64)

    def loss(w1, b1, w2, b2, x, t):
        hidden = xp.maximum(x @ w1 + b1, 0)
        d = hidden @ w2 + b2 - t
        return xp.mean(xp.sum(d * d, -1))

    def step(*args):
        return [p - 0.1 * g for p, g in zip(args, grad(loss, argnums=(0, 1, 2, 3))(*args))]

    def softmax(x):
        e = xp.exp(x - xp.max(x, -1, keepdims=True))
        return e / xp.sum(e, -1, keepdims=True)

    def attention(q, k, v):
        e = xp.exp(xp.einsum("bthk,bshk->bhts", q, k))
        return xp.einsum("bhts,bshk->bthk", e / xp.sum(e, -1, keepdims=True), v)

    def cross_entropy(z, t):
        z = z - xp.log(xp.sum(xp.exp(z), -1, keepdims=True))
        return -xp.mean(xp.take_along_axis(z, t.astype(int)[:, None], 1))

    def embedding_gradient(table, i):
        return grad(lambda e: xp.sum(e[i.astype(int)] ** 2))(table)

    def conv(strides, padding, **more):
        return lambda x, k: lax.conv_general_dilated(x, k, strides, padding, **more)

    def conv_gradient(x, k):
        return list(
            grad(lambda x, k: xp.sum(conv((1, 1), "SAME")(x, k) ** 2), argnums=(0, 1))(x, k)
        )

    def pool(strides, width, padding):
        return lambda x: lax.reduce_window(
            x, -np.inf, lax.max, (1, 1, width, width), (1, 1, *strides), padding
        )

    def steps(x):
        for _ in range(3):
            x = x + 0.1 * (xp.roll(x, 1, 0) + xp.roll(x, -1, 0) - 2 * x)
        return x

    def bounded_steps(x):
        for _ in range(3):
            wide = xp.pad(x, ((1, 1), (0, 0)))
            x = x + 0.1 * (wide[2:] + wide[:-2] - 2 * x)
        return x

    def residual(x, w, v):
        return x + xp.maximum(x @ w, 0) @ v

    def recomputed(layer):
        def total(weights, x):
            for w, v in zip(weights[::2], weights[1::2]):
                x = checkpoint(layer)(x, w, v)
            return xp.mean(x**2)

        return lambda x, *weights: list(grad(total)(weights, x))

    model = [(32, 64), (64,), (64, 16), (16,), (64, 32), (64, 16)]
    large = [*model[:4], (512, 32), (512, 16)]
    add, dot = lambda x, y: x + y, lambda x, y: x @ y
    heads = [(8, 16, 4, 8)] * 3
    image, kernel = (2, 4, 64, 16), (4, 4, 3, 3)
    pixels, over_rows, over_both = (
        [image, kernel],
        [(None, None, ("a", "b")), ()],
        [(None, None, "a", "b"), ()],
    )
    cases = {
        "add": (add, [square] * 2, [("a",), (None, "a")]),
        "add_swapped": (add, [square] * 2, [("a", "b"), ("b", "a")]),
        "where": (lambda x, y: xp.where(x > 0, x, y), [square] * 2, [("a", "b"), ("b", "a")]),
        "dot_ab_ab": (dot, [square] * 2, [("a", "b"), ("a", "b")]),
        "dot_ab_ba": (dot, [square] * 2, [("a", "b"), ("b", "a")]),
        "dot_a_a": (dot, [square] * 2, [("a",), ("a",)]),
        "dot_contracted": (dot, [square] * 2, [(None, "a"), ("a",)]),
        "dot_contracted_apart": (dot, [square] * 2, [(None, "a"), ("b",)]),
        "dot_tall": (dot, [(512, 64), (64, 16)], [("a", "b"), ()]),
        "dot_wide": (dot, [(16, 64), (64, 512)], [("a",), ("a",)]),
        "vector_dot": (dot, [(64,), square], [("a",), ("a", "b")]),
        "gram": (lambda x: x.T @ x, [square], [ROWS]),
        "two_terms": (lambda x, y, z: x @ y + x @ z, [square] * 3, [(None, "a"), ("a",), ("a",)]),
        "chain": (lambda x, y, z: (x @ y) @ z, [square] * 3, [("a",), (None, "b"), ("b",)]),
        "outer": (lambda x, y: x[:, None] * y[None, :], [(64,)] * 2, [("a",), ("a",)]),
        "batched": (
            lambda x, y: xp.einsum("bij,bjk->bik", x, y),
            [(8, 16, 16)] * 2,
            [("a",), ("b",)],
        ),
        "cumsum": (lambda x: xp.cumsum(x, 0), [square], [ROWS]),
        "argmax": (lambda x: xp.argmax(x, 0), [square], [ROWS]),
        "max": (lambda x: xp.max(x, 0), [square], [ROWS]),
        "sort": (lambda x: xp.sort(x, 0), [square], [ROWS]),
        "take": (lambda x: x[xp.array([1, 5, 9])], [square], [ROWS]),
        "row": (lambda x: x[3], [square], [ROWS]),
        "few_rows": (lambda x: x[2:7], [square], [ROWS]),
        "half": (lambda x: x[:32], [square], [ROWS]),
        "stride": (lambda x: x[::2], [square], [ROWS]),
        "set_rows": (lambda x: x.at[0:3].set(1.0), [square], [ROWS]),
        "add_rows": (
            lambda x, y: x.at[xp.array([1, 3, 9])].add(y),
            [square, (3, 64)],
            [("a", "b"), (None, "b")],
        ),
        "concatenate": (lambda x: xp.concatenate([x, x]), [square], [ROWS]),
        "difference": (lambda x: x[1:] - x[:-1], [square], [ROWS]),
        "roll": (lambda x: xp.roll(x, 1, 0), [square], [ROWS]),
        "flip": (lambda x: x[::-1], [square], [ROWS]),
        "pad": (lambda x: xp.pad(x, ((1, 1), (0, 0))), [square], [ROWS]),
        "tile": (lambda x: xp.tile(x, (2, 1)), [square], [("a", "b")]),
        "reshape_rows": (lambda x: x.reshape(4, 16, 64), [square], [ROWS]),
        "reshape_flat": (lambda x: x.reshape(64 * 64), [square], [("a", "b")]),
        "transpose": (lambda x: x.T + x, [square], [("a", "b")]),
        "normalize": (
            lambda x: (x - xp.mean(x, 0)) / xp.sqrt(xp.mean(x * x, 0)),
            [square],
            [("a", "b")],
        ),
        "variance": (lambda x: xp.var(x, 1), [square], [("a", "b")]),
        "softmax": (softmax, [square], [("a", "b")]),
        "trace": (lambda x: xp.trace(x), [square], [("a", "b")]),
        "attention_heads": (attention, heads, [("a", None, "b")] * 3),
        "attention_time": (attention, heads, [("b", "a")] * 3),
        "embedding": (lambda e, i: e[i.astype(int)], [(64, 32), (16,)], [("a",), ("b",)]),
        "embedding_gradient": (embedding_gradient, [(64, 32), (16, 8)], [("b",), ("a",)]),
        "cross_entropy": (cross_entropy, [(64, 32), (64,)], [("a", "b"), ("a",)]),
        "residual": (residual, [(64, 32), (32, 64), (64, 32)], [("a",), (None, "b"), ("b",)]),
        "residual_split": (
            residual,
            [(64, 32), (32, 64), (64, 32)],
            [("a", "b"), (None, "b"), ("b",)],
        ),
        "data_parallel": (step, model, [(), (), (), (), ROWS, ROWS]),
        "data_parallel_small": (
            step,
            [(64, 64), (64,), (64, 64), (64,), (8, 64), (8, 64)],
            [(), (), (), (), ROWS, ROWS],
        ),
        "tensor_parallel": (step, model, [(None, "b"), ("b",), ("b",), (), ("a",), ("a",)]),
        "fully_sharded": (step, large, [("a",)] * 6),
        "mixed": (step, model, [("a", "b"), ("b",), ("b", "a"), ("a",), ("a",), ("a",)]),
        "recomputed_pairs": (
            recomputed(lambda x, w, v: xp.tanh(x @ w) @ v),
            [(128, 64), *[(64, 128), (128, 64)] * 2],
            [("a",), *[(None, "b"), ("b",)] * 2],
        ),
        "recomputed_columns": (
            recomputed(lambda x, w, v: xp.tanh(x @ w) @ v),
            [(128, 64), *[(64, 128), (128, 64)] * 2],
            [("a",), *[(None, "b")] * 4],
        ),
        "difference_summed": (lambda x: xp.sum((x[1:] - x[:-1]) ** 2), [square], [ROWS]),
        "second_difference_summed": (
            lambda x: xp.sum((x[2:] - 2 * x[1:-1] + x[:-2]) ** 2),
            [square],
            [ROWS],
        ),
        "difference_gradient": (grad(lambda x: xp.sum((x[1:] - x[:-1]) ** 2)), [square], [ROWS]),
        "diff_of_diff": (lambda x: xp.sum(xp.diff(x, 2, 0) ** 2), [square], [ROWS]),
        "pad_even": (lambda x: xp.pad(x, ((4, 4), (0, 0))), [square], [ROWS]),
        "pad_summed": (lambda x: xp.sum(xp.pad(x, ((1, 1), (0, 0))) ** 2), [square], [ROWS]),
        "shift": (lambda x: xp.concatenate([xp.zeros((1, 64)), x[:-1]]), [square], [ROWS]),
        "concatenate_summed": (lambda x: xp.sum(xp.concatenate([x, x[:9]]) ** 2), [square], [ROWS]),
        "halves_swapped": (lambda x: xp.concatenate([x[32:], x[:32]]), [square], [ROWS]),
        "stencil_steps": (steps, [square], [ROWS]),
        "bounded_stencil_steps": (bounded_steps, [square], [ROWS]),
        "conv": (conv((1, 1), "SAME"), pixels, over_rows),
        "conv_both": (conv((1, 1), "SAME"), pixels, over_both),
        "conv_valid": (conv((1, 1), "VALID"), pixels, over_rows),
        "conv_valid_summed": (
            lambda x, k: xp.sum(conv((1, 1), "VALID")(x, k) ** 2),
            pixels,
            over_rows,
        ),
        "conv_strides": (conv((2, 2), "SAME"), pixels, over_rows),
        "conv_atrous": (conv((1, 1), "SAME", rhs_dilation=(2, 2)), pixels, over_rows),
        "conv_transposed": (conv((1, 1), ((1, 2), (1, 2)), lhs_dilation=(2, 2)), pixels, over_rows),
        "conv_features": (conv((1, 1), "SAME"), pixels, [(None, "a"), (None, "a")]),
        "conv_gradient": (conv_gradient, pixels, over_rows),
        "conv_batch_gradient": (conv_gradient, [(8, 4, 16, 16), kernel], [("a",), ()]),
        "pool": (pool((2, 2), 2, "VALID"), [image], over_rows[:1]),
        "pool_overlapping": (pool((1, 1), 3, "SAME"), [image], over_rows[:1]),
        "pool_strides": (pool((2, 2), 3, "SAME"), [image], over_rows[:1]),
        "average_pool": (
            lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 1, 4, 4), (1, 1, 1, 1), "SAME"),
            [image],
            over_rows[:1],
        ),
    }
    return {
        name: (f, shapes, [tuple(s) for s in specs]) for name, (f, shapes, specs) in cases.items()
    }


def flat(fun):
    """Return `fun` with its results in a list."""

    def run(*args):
        out = fun(*args)
        return list(out) if isinstance(out, (list, tuple)) else [out]

    return run


DTYPE = np.dtype(np.float32)
