"""Ordinary functions whose kernels the check `maps` must accept, and their argument shapes."""

import itertools

import weft
import weft.numpy as wnp
from weft import lax, nn

A = (6, 7, 8)


def _causal(x):
    n = x.shape[-1]
    mask = lax.broadcasted_iota("int32", (n, n), 0) >= lax.broadcasted_iota("int32", (n, n), 1)
    return nn.softmax(wnp.where(mask, x, -wnp.inf), axis=-1)


def _normed(x, scale):
    centered = x - x.mean(-1, keepdims=True)
    return centered * lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * scale


def _reversed_rows(x, scale):
    scaled = x[:3] * scale
    return (scaled - wnp.concatenate([scaled[:1] * 2, scaled[1:][::-1]])).T


def _pooled(x):
    return lax.reduce_window(x, -wnp.inf, lax.max, (1, 2, 2), (1, 2, 2), "VALID")


#: name -> function, shapes of its float32 arguments
FLOAT_PROGRAMS = {
    "add": (lambda x, y: x + y, (A, A)),
    "broadcast_row": (lambda x, y: x * y, (A, (8,))),
    "broadcast_column": (lambda x, y: x * y[:, None], ((33, 17), (33,))),
    "scalar": (lambda x, y: x * y + 1, (A, ())),
    "transpose_2d": (lambda x: wnp.exp(x.T), ((64, 48),)),
    "transpose_odd": (lambda x: wnp.exp(x.T), ((37, 53),)),
    "add_transpose": (lambda x: x + x.T, ((40, 40),)),
    "reshape": (lambda x: wnp.sin(x.reshape(7, 48)) + 1, (A,)),
    "pad": (lambda x: wnp.exp(wnp.pad(x, ((1, 2), (0, 0), (3, 1)))), (A,)),
    "pad_interior": (lambda x: lax.pad(x * 2, 1.0, ((1, 2, 2), (0, 1, 1))), ((9, 11),)),
    "pad_negative": (lambda x: lax.pad(x * 2, 1.0, ((-1, 2, 0), (0, -3, 0))), ((9, 11),)),
    "concatenate_rows": (lambda x, y: wnp.concatenate([x * 2, y + 1], 0), ((5, 9), (3, 9))),
    "concatenate_columns": (lambda x, y: wnp.concatenate([x * 2, y + 1], 1), ((5, 9), (5, 4))),
    "stack": (lambda x, y: wnp.stack([x, x * y, y], 1), ((5, 9), (5, 9))),
    "roll": (lambda x: wnp.roll(x * 2, 3, 1), ((5, 9),)),
    "strided_slice": (lambda x: x[::2, 1::3] * 2, ((11, 13),)),
    "reverse": (lambda x: x[::-1, ::-1] + x, ((11, 13),)),
    "tile": (lambda x: wnp.tile(x * 2, (2, 3)), ((5, 7),)),
    "repeat": (lambda x: wnp.repeat(x * 2, 3, 1), ((5, 7),)),
    "difference": (lambda x: x[1:] - x[:-1], ((100,),)),
    "shifted_mask": (lambda x: wnp.where(wnp.arange(50) < 20, x, 0) * 2, ((50,),)),
    "causal_softmax": (_causal, ((3, 12, 12),)),
    "triangle": (lambda x: wnp.tril(x) + wnp.triu(x, 2), ((12, 12),)),
    "diagonal": (lambda x: wnp.diagonal(x) * 2, ((12, 12),)),
    "layer_norm": (_normed, ((13, 40), (40,))),
    "layer_norm_gradient": (
        lambda x, s: weft.grad(lambda x, s: (_normed(x, s) ** 2).sum(), (0, 1))(x, s),
        ((64, 128), (128,)),
    ),
    "standardize": (lambda x: (x - x.mean(0)) / x.std(0), ((40, 13),)),
    "logsumexp_last": (lambda x: nn.logsumexp(x * 2, 1), ((7, 300),)),
    "logsumexp_first": (lambda x: nn.logsumexp(x * 2, 0), ((300, 7),)),
    "argmax_last": (lambda x: wnp.argmax(x, -1), ((7, 30),)),
    "argmin_first": (lambda x: wnp.argmin(x * 2, 0), ((7, 30),)),
    "sum_and_max": (lambda x: (x.sum(1), x.max(1), x * x.sum(1, keepdims=True)), ((7, 30),)),
    "sum_columns": (lambda x: wnp.exp(x).sum(0), ((200, 40),)),
    "max_pool": (_pooled, ((3, 8, 10),)),
    "mean_pool": (lambda x: x.reshape(3, 4, 2, 5, 2).mean((2, 4)), ((3, 8, 10),)),
    "pixel_shuffle": (
        lambda x: (x * 2).reshape(4, 2, 2, 5, 5).transpose(0, 3, 1, 4, 2).reshape(4, 10, 10),
        ((16, 5, 5),),
    ),
    "cumulative_sum": (lambda x: wnp.cumsum(x * 2, 1) + 1, ((7, 30),)),
    "complex": (lambda x, y: wnp.abs(lax.complex(x, y)), (A, A)),
    "one_hot": (lambda x: nn.one_hot(wnp.argmax(x, -1), 9) + 1, ((6, 9),)),
    "static_take": (lambda x: x[wnp.array([3, 1, 1, 0])] * 2, ((6, 9),)),
    "reversed_rows": (_reversed_rows, ((4, 6), (3, 1))),
    "power_of_zero": (lambda x: x**0 + lax.integer_pow(x, 0), ((6, 9),)),
    "large_sum": (lambda x: wnp.exp(x).sum(), ((300_000,),)),
    "large_elementwise": (lambda x, y: wnp.tanh(x) * y, ((512, 600), (600,))),
    "large_transpose": (lambda x: wnp.exp(x).T, ((700, 600),)),
    "large_softmax": (lambda x: nn.softmax(x, -1), ((300, 1000),)),
    "attention_transpose": (
        lambda x: (x * 2).reshape(2, 30, 4, 16).transpose(0, 2, 1, 3) + 1,
        ((2, 30, 64),),
    ),
    "scan": (lambda x: lax.scan(lambda c, v: (c * 0.9 + v, c.sum()), x[0], x), ((20, 9),)),
}
for _axes in itertools.chain.from_iterable(itertools.combinations(range(3), n) for n in (1, 2, 3)):
    FLOAT_PROGRAMS[f"sum_{_axes}"] = (lambda x, axes=_axes: wnp.sum(x * 2, axes), (A,))
    FLOAT_PROGRAMS[f"mean_removed_{_axes}"] = (
        lambda x, axes=_axes: x - x.mean(axes, keepdims=True),
        (A,),
    )
    FLOAT_PROGRAMS[f"softmax_{_axes}"] = (lambda x, axes=_axes: nn.softmax(x * 2, axes), (A,))

#: the same with an argument of int32 indices first
INDEX_PROGRAMS = {
    "take_rows": (lambda i, x: wnp.take(x, i, 0) * 2, (5,), ((9, 8),)),
    "take_columns": (lambda i, x: wnp.take(x, i, 1) * 2, (5,), ((9, 8),)),
    "take_along_axis": (lambda i, x: wnp.take_along_axis(x, i, 1) + 1, (9, 3), ((9, 8),)),
    "embed": (lambda i, x: x[i].sum(1), (4, 6), ((20, 8),)),
    "take_wrap": (lambda i, x: wnp.take(x, i, 1, mode="wrap"), (5,), ((9, 8),)),
    "take_sorted": (lambda i, x: wnp.sort(x * 2, 0)[wnp.argsort(i)], (9,), ((9, 8),)),
    "dynamic_slice": (lambda i, x: lax.dynamic_slice(x, (i[0], i[1]), (2, 3)) * 2, (2,), ((9, 8),)),
    "dynamic_update": (
        lambda i, x, y: lax.dynamic_update_slice(x, y * 2, (i[0], i[1])) + 1,
        (2,),
        ((9, 8), (2, 3)),
    ),
    "length_mask": (
        lambda i, x: wnp.where(wnp.arange(8) < i[:, None], x, 0).sum(1),
        (9,),
        ((9, 8),),
    ),
    "remainder": (lambda i, x: (i % 3 * x).astype("float32"), (9,), ((9,),)),
}
