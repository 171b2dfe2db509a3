"""Functions that are exported with symbolic sizes, by name: each with the shapes of its arguments and the constraints it needs.

A shape is a text as `export.symbolic_shape` takes it; ":i" behind it stands for integers, ":b" for booleans. Sizes are `n`, `m` and `k`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
import weft.scipy.fft
from weft import lax, nn, segment_ops
from weft.extend.core import max_dim, min_dim

KEY = np.array([1, 2], np.uint32)
key = lambda: weft.random.wrap_key_data(wnp.asarray(KEY))


@dataclass(frozen=True)
class Program:
    name: str
    function: Callable[..., Any]
    shapes: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    smallest: int = 1
    #: whether the function has a derivative that is not zero, which is compared
    smooth: bool = True


PROGRAMS: list[Program] = []


def add(
    name: str,
    function: Callable[..., Any],
    *shapes: str,
    constraints: tuple[str, ...] = (),
    smallest: int = 1,
    smooth: bool = True,
):
    PROGRAMS.append(Program(name, function, shapes, constraints, smallest, smooth))


vector = lambda name, f, **options: add(name, f, "n", **options)
matrix = lambda name, f, **options: add(name, f, "n, 3", **options)
wide = lambda name, f, **options: add(name, f, "n, m", **options)
square = lambda name, f, **options: add(name, f, "n, n", **options)
image = lambda name, f, **options: add(name, f, "2, 3, n, m", **options)

# ---- indexing
vector("first", lambda x: x[0] * x)
vector("last", lambda x: x[-1] * x)
vector("third or fill", lambda x: wnp.nan_to_num(x[2]))
vector("third, known", lambda x: x[2], constraints=("n >= 3",), smallest=3)
vector("head", lambda x: x[:5])
vector("tail", lambda x: x[5:])
vector("last three", lambda x: x[-3:])
vector("all but last three", lambda x: x[:-3])
vector("inner", lambda x: x[1:-1])
vector("narrow window", lambda x: x[2:4])
vector("window from the end", lambda x: x[-4:-2])
vector("every second", lambda x: x[::2])
vector("every third from the second", lambda x: x[1::3])
vector("reversed", lambda x: x[::-1] * x)
vector("reversed in steps", lambda x: x[::-2])
vector("reversed from the fifth", lambda x: x[4::-1])
vector("reversed in threes from the end", lambda x: x[-2::-3])
vector("first half", lambda x: x[: x.shape[0] // 2])
vector("second half", lambda x: x[x.shape[0] // 2 :])
vector("middle", lambda x: x[x.shape[0] // 2])
vector("from n minus one", lambda x: x[x.shape[0] - 1 :])
vector("differences", lambda x: x[1:] - x[:-1])
matrix("column", lambda x: x[:, 1])
matrix("row of columns", lambda x: x[0, ::2])
matrix("new axes", lambda x: x[:, None, :, None] * 2)
matrix("ellipsis", lambda x: x[..., -1] + x[..., 0])
matrix("list of rows", lambda x: x[wnp.array([0, 0])])
matrix("rows and columns", lambda x: x[wnp.array([[0], [0]]), wnp.array([0, 2])])
matrix("traced row", lambda x: x[wnp.argmax(x[:, 0])])
matrix("traced rows", lambda x: x[wnp.argsort(x[:, 1])])
matrix("row index and slice", lambda x: x[wnp.array([0]), 1:])
wide("both reversed", lambda x: x[::-1, ::-1])
wide("corner", lambda x: x[:2, -2:])
wide("positions times columns", lambda x: x[wnp.arange(x.shape[0]), 0])
wide("where mask", lambda x: wnp.where(x > 0, x, 0))
vector("take", lambda x: wnp.take(x, wnp.arange(x.shape[0]) // 2))
vector("take clipped", lambda x: wnp.take(x, wnp.array([0, 7]), mode="clip"))
matrix("take along axis", lambda x: wnp.take_along_axis(x, wnp.argsort(x, 0), 0))
vector("gather of a range", lambda x: x[wnp.arange(x.shape[0] - 1)])
vector("dynamic slice", lambda x: lax.dynamic_slice(x, (wnp.argmax(x),), (1,)))
vector("dynamic slice of n minus one", lambda x: lax.dynamic_slice_in_dim(x, 1, x.shape[0] - 1))
wide("dynamic rows", lambda x: lax.dynamic_slice(x, (wnp.argmax(x[:, 0]), 0), (1, x.shape[1])))
vector("dynamic index", lambda x: lax.dynamic_index_in_dim(x, -1, keepdims=False))
matrix("slice in dim", lambda x: lax.slice_in_dim(x, 0, x.shape[0], 2, 0))

# ---- updates
vector("set third", lambda x: x.at[2].set(9.0))
vector("add to the last two", lambda x: x.at[-2:].add(9.0))
vector("set from second", lambda x: x.at[1:].set(0.0))
vector("set every second", lambda x: x.at[::2].set(1.0))
vector("multiply reversed", lambda x: x.at[::-1].multiply(2.0))
vector(
    "multiply reversed in steps", lambda x: x.at[::-2].add(wnp.arange((x.shape[0] + 1) // 2) * 1.0)
)
matrix("set column", lambda x: x.at[:, 1].set(x[:, 0]))
matrix("max at rows", lambda x: x.at[wnp.array([0, 0])].max(1.0))
wide("set corner", lambda x: x.at[:1, :1].set(5.0))
wide("set a row at a place", lambda x: x.at[wnp.argmax(x[:, 0])].set(0.0))
vector("dynamic update", lambda x: lax.dynamic_update_slice(x, x[:1] * 3, (wnp.argmin(x),)))
matrix("dynamic update of a row", lambda x: lax.dynamic_update_index_in_dim(x, wnp.ones(3), 0, 0))
add("scatter rows", lambda x, i: wnp.zeros((x.shape[0], 3)).at[i].add(x), "n, 3", "n:i")
add("segment sum", lambda x, i: segment_ops.segment_sum(x, i, 4), "n, 3", "n:i")

# ---- making arrays
vector("arange", lambda x: x + wnp.arange(x.shape[0]))
vector("arange from two", lambda x: wnp.arange(2, x.shape[0]).sum() + x)
vector("arange in steps", lambda x: wnp.arange(0, x.shape[0], 3) * x[0])
vector("arange down", lambda x: wnp.arange(x.shape[0], 0, -2) * x[0])
vector("arange between", lambda x: wnp.arange(x.shape[0], 2 * x.shape[0] + 1) * x[0])
vector("linspace", lambda x: wnp.linspace(0.0, 1.0, x.shape[0]) * x)
vector("linspace without end", lambda x: wnp.linspace(x[0], 2.0, x.shape[0], endpoint=False))
vector("linspace to the size", lambda x: wnp.linspace(0.0, x.shape[0], 5) * x[0])
vector("logspace", lambda x: wnp.logspace(0.0, 1.0, x.shape[0]) * x)
vector("eye", lambda x: wnp.eye(x.shape[0]) * x)
wide("eye of two sizes", lambda x: wnp.eye(*x.shape) * x)
wide("eye off diagonal", lambda x: wnp.eye(*x.shape, k=1) + x)
wide("tri", lambda x: wnp.tri(*x.shape) * x)
wide("tril", lambda x: wnp.tril(x))
wide("triu", lambda x: wnp.triu(x, 1))
vector("zeros", lambda x: wnp.zeros((x.shape[0], 2)) + x[:, None])
vector("ones of a product", lambda x: wnp.ones(x.shape[0] * 2) * x.sum())
vector("full with the size", lambda x: wnp.full(3, x.shape[0]) * x[0])
vector("like", lambda x: wnp.zeros_like(x) + wnp.full_like(x, 3) + x)
vector("empty", lambda x: wnp.zeros((0, x.shape[0])).sum(0) + x)
wide(
    "meshgrid",
    lambda x: (
        wnp.stack(wnp.meshgrid(wnp.arange(x.shape[0]), wnp.arange(x.shape[1]), indexing="ij")) * x
    ),
)
wide("indices", lambda x: wnp.indices(x.shape).sum(0) * x)
vector(
    "broadcasted iota", lambda x: lax.broadcasted_iota("float32", (x.shape[0], 2), 0) * x[:, None]
)
vector("diag", lambda x: wnp.diag(x))
vector("diag above", lambda x: wnp.diag(x, 1))
wide("diagonal", lambda x: wnp.diagonal(x))
wide("diagonal below", lambda x: wnp.diagonal(x, -1))
wide("trace", lambda x: wnp.trace(x) * x)
vector(
    "from function", lambda x: wnp.fromfunction(lambda i, j: i + j, (x.shape[0], 3)) * x[:, None]
)
vector("vander", lambda x: wnp.vander(x / 10, 3))
vector("outer", lambda x: wnp.outer(x, x))

# ---- shapes
matrix("flatten", lambda x: x.reshape(-1))
matrix("ravel", lambda x: wnp.ravel(x * 2))
add("unflatten", lambda x: x.reshape(-1, 3), "3*n")
add("reshape to size", lambda x: x.reshape(x.shape[0] // 3, 3), "3*n")
add("merge dims", lambda x: x.reshape(x.shape[0] * x.shape[1], -1), "n, m, 2")
add("split a dim", lambda x: x.reshape(2, -1, x.shape[1]), "2*n, m")
matrix("transpose", lambda x: x.T * 2)
wide("swap", lambda x: wnp.swapaxes(x, 0, 1) @ x)
add("move axis", lambda x: wnp.moveaxis(x, 0, -1), "n, m, 2")
vector("expand and squeeze", lambda x: wnp.squeeze(x[None, :, None], (0, 2)))
vector("broadcast to", lambda x: wnp.broadcast_to(x, (4, x.shape[0])))
vector("broadcast to itself", lambda x: wnp.broadcast_to(x[:, None], (x.shape[0], x.shape[0])))
wide("broadcast arrays", lambda x: sum(wnp.broadcast_arrays(x, x[:1], x[:, :1])))
vector("concatenate", lambda x: wnp.concatenate([x, x[::-1], wnp.ones(2)]))
wide("concatenate columns", lambda x: wnp.concatenate([x, 2 * x], 1))
vector("stack", lambda x: wnp.stack([x, x * x], -1))
wide("hstack and vstack", lambda x: wnp.vstack([wnp.hstack([x, x]), wnp.hstack([x, -x])]))
vector("append", lambda x: wnp.append(x, 1.0))
matrix("split", lambda x: wnp.split(x, 3, axis=1)[1] * x)
add("split symbolic", lambda x: wnp.split(x, 2)[0] - wnp.split(x, 2)[1], "2*n")
vector("split at", lambda x: wnp.split(x, [1])[0] * x)
vector("split at sizes", lambda x: wnp.split(x, [x.shape[0] // 2, x.shape[0] - 1]))
vector(
    "split a multiple", lambda x: sum(wnp.split(x, 4)), constraints=("mod(n, 4) == 0",), smallest=4
)
matrix("unstack", lambda x: wnp.unstack(x, axis=1)[2])
vector("tile", lambda x: wnp.tile(x, 3))
wide("tile both", lambda x: wnp.tile(x, (2, 2)))
vector("tile by the size", lambda x: wnp.tile(x[:1], x.shape[0]))
vector("repeat", lambda x: wnp.repeat(x, 2))
wide("repeat rows", lambda x: wnp.repeat(x, 3, axis=0))
vector("repeat by the size", lambda x: wnp.repeat(x[:1], x.shape[0]) * x)
vector("roll", lambda x: wnp.roll(x, 1))
vector("roll far", lambda x: wnp.roll(x, -7))
wide("roll columns", lambda x: wnp.roll(x, 2, axis=1))
wide("roll both", lambda x: wnp.roll(x, (1, -1), (0, 1)))
vector("flip", lambda x: wnp.flip(x) * x)
wide("rot90", lambda x: wnp.rot90(x))
vector("pad", lambda x: wnp.pad(x, (1, 2)))
vector("pad edge", lambda x: wnp.pad(x, (1, 2), mode="edge"))
vector("pad to twice", lambda x: wnp.pad(x, (0, x.shape[0])))
vector("lax pad inside", lambda x: lax.pad(x, 0.0, [(1, 1, 2)]))
vector("lax pad cutting", lambda x: lax.pad(x, 0.0, [(-1, 1, 0)]))
vector("pad to eight", lambda x: wnp.pad(x, (0, max_dim(8 - x.shape[0], 0))))
vector("at most four", lambda x: x[: min_dim(x.shape[0], 4)])
matrix("atleast", lambda x: wnp.atleast_3d(x) + 1)

# ---- reductions and scans along a dim
matrix("sum", lambda x: x.sum(0) * x)
matrix("mean", lambda x: x - x.mean(0))
matrix("variance", lambda x: x.var(0) + x.std())
vector("sum over the size", lambda x: x.sum() / x.shape[0])
vector("size as a number", lambda x: x * x.shape[0] + x.size)
vector(
    "size in functions", lambda x: x * wnp.sqrt(x.shape[0]) + 2.0 ** x.shape[0] / 3.0 ** x.shape[0]
)
matrix("max", lambda x: x.max(0) - x.min(1, keepdims=True))
matrix("argmax", lambda x: wnp.argmax(x, 0) + wnp.argmin(x), smooth=False)
matrix("product", lambda x: wnp.prod(x * 0.5, axis=0))
matrix("any and all", lambda x: wnp.any(x > 0, 0) & wnp.all(x > 0), smooth=False)
vector("cumsum", lambda x: wnp.cumsum(x))
matrix("cumprod", lambda x: wnp.cumprod(x / 4, axis=0))
matrix("cummax", lambda x: lax.cummax(x, 0))
matrix("reversed cumsum", lambda x: lax.cumsum(x, 0, reverse=True))
vector("logsumexp", lambda x: nn.logsumexp(x) * x)
matrix("norm", lambda x: x / wnp.linalg.norm(x, axis=0))
vector("median", lambda x: wnp.median(x))
vector("percentile", lambda x: wnp.quantile(x, 0.25))
matrix("average", lambda x: wnp.average(x, axis=0, weights=wnp.arange(x.shape[0]) + 1.0))
vector("sort", lambda x: wnp.sort(x))
matrix("sort rows", lambda x: wnp.sort(x, 0)[::-1])
vector("argsort", lambda x: x[wnp.argsort(-x)])
vector("lexsort", lambda x: x[wnp.lexsort((x, wnp.arange(x.shape[0]) % 2))])
vector("top one", lambda x: lax.top_k(x, 1)[0])
vector("top half", lambda x: lax.top_k(x, (x.shape[0] + 1) // 2)[0])
vector("searchsorted", lambda x: wnp.searchsorted(wnp.sort(x), 0.5) + x)
vector("diff", lambda x: wnp.diff(x))
vector("ediff", lambda x: wnp.ediff1d(x))
vector("gradient", lambda x: wnp.gradient(x), smallest=2, constraints=("n >= 2",))
vector("trapezoid", lambda x: wnp.trapezoid(x))
vector("interp", lambda x: wnp.interp(wnp.array([0.3, 1.2]), wnp.arange(x.shape[0]) * 1.0, x))
vector("bincount", lambda x: wnp.bincount(wnp.arange(x.shape[0]) % 3, length=3) * x[0])
vector("histogram", lambda x: wnp.histogram(x, bins=4, range=(-2.0, 2.0))[0] * 1.0, smooth=False)
vector("count nonzero", lambda x: wnp.count_nonzero(x > 0) * x)
vector("nonzero of size", lambda x: x[wnp.nonzero(x > 0, size=2, fill_value=0)[0]])
vector("unique of size", lambda x: wnp.unique(wnp.round(x), size=3, fill_value=0.0), smooth=False)
matrix("associative scan", lambda x: lax.associative_scan(lambda a, b: a * b + a + b, x / 4))

# ---- products
add("matmul", lambda x, y: x @ y, "n, m", "m, k")
add("batched matmul", lambda x, y: x @ y, "n, m, 2", "n, 2, k")
add("dot", lambda x, y: wnp.dot(x, y), "n", "n")
add("einsum", lambda x, y: wnp.einsum("bij,bkj->bik", x, y), "n, m, 2", "n, k, 2")
add("einsum of three", lambda x, y: wnp.einsum("ij,jk,ik->i", x, y, x @ y), "n, m", "m, k")
add("einsum trace", lambda x: wnp.einsum("ii->i", x), "n, n")
add("tensordot", lambda x, y: wnp.tensordot(x, y, 1), "n, m, 2", "2, k")
add("kron", lambda x, y: wnp.kron(x, y), "n, 2", "m, 2")
vector("inner product", lambda x: wnp.inner(x, x))
wide("gram", lambda x: x.T @ x)
add(
    "attention",
    lambda q, k: nn.softmax(wnp.einsum("nd,md->nm", q, k) / k.shape[0], -1) @ k,
    "n, 4",
    "m, 4",
)
add(
    "causal attention",
    lambda q: nn.softmax(wnp.where(wnp.tri(q.shape[0], dtype=bool), q @ q.T, -1e9)) @ q,
    "n, 4",
)
add(
    "dot product attention",
    lambda q: nn.dot_product_attention(q, q, q, is_causal=True),
    "n, m, 2, 4",
)
square("matrix power", lambda x: wnp.linalg.matrix_power(x / 10, 3))
square("solve", lambda x: wnp.linalg.solve(x + 20 * wnp.eye(x.shape[0]), x))
square("inverse", lambda x: wnp.linalg.inv(x + 20 * wnp.eye(x.shape[0])))
square("cholesky", lambda x: wnp.linalg.cholesky(x @ x.T + 5 * wnp.eye(x.shape[0])))
square("determinant", lambda x: wnp.linalg.det(x / 8 + wnp.eye(x.shape[0])))
add("batched solve", lambda x: wnp.linalg.solve(x + 9 * wnp.eye(2), x), "n, 2, 2")
vector("convolve", lambda x: wnp.convolve(x, wnp.array([1.0, 2.0, 1.0])))
vector(
    "correlate same",
    lambda x: wnp.convolve(x, wnp.ones(3), mode="same"),
    smallest=3,
    constraints=("n >= 3",),
)

# ---- convolutions and windows
kernel = np.arange(36, dtype=np.float32).reshape(2, 3, 2, 3) / 20
image("conv same", lambda x: lax.conv_general_dilated(x, kernel, (1, 1), "SAME"))
image("conv same with strides", lambda x: lax.conv_general_dilated(x, kernel, (2, 2), "SAME"))
image(
    "conv valid",
    lambda x: lax.conv_general_dilated(x, kernel, (1, 1), "VALID"),
    constraints=("n >= 2", "m >= 3"),
    smallest=3,
)
image("conv padded", lambda x: lax.conv_general_dilated(x, kernel, (1, 2), [(1, 1), (2, 2)]))
image(
    "conv dilated",
    lambda x: lax.conv_general_dilated(x, kernel, (1, 1), [(2, 2), (4, 4)], rhs_dilation=(2, 2)),
)
image(
    "conv transposed",
    lambda x: lax.conv_transpose(wnp.moveaxis(x, 1, -1), wnp.ones((2, 2, 3, 2)), (2, 2), "SAME"),
)
add(
    "conv in one dim",
    lambda x: lax.conv_general_dilated(x, np.ones((4, 2, 3), np.float32), (2,), "SAME"),
    "n, 2, m",
)
image(
    "max pool",
    lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
)
image(
    "max pool same",
    lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "SAME"),
)
image(
    "mean pool",
    lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 1, 3, 2), (1, 1, 1, 1), "SAME") / 6,
)
image("global pool", lambda x: lax.reduce_window(x, 0.0, lax.add, x.shape, (1,) * 4, "VALID"))
vector("wide window", lambda x: lax.reduce_window(x, 0.0, lax.add, (11,), (1,), [(5, 5)]))
vector(
    "window by another function",
    lambda x: lax.reduce_window(x, 0.0, lambda a, b: a + b + a * b / 9, (2,), (1,), "VALID"),
)
vector(
    "reduce by another function",
    lambda x: lax.reduce(x / 10, np.float32(0), lambda a, b: a + b - a * b, (0,)),
)
image("resize", lambda x: weft.image.resize(x, (2, 3, 2 * x.shape[2], x.shape[3] + 1), "bilinear"))
image("resize nearest", lambda x: weft.image.resize(x, (2, 3, 5, 2 * x.shape[3]), "nearest"))
image("resize cubic", lambda x: weft.image.resize(x, (2, 3, 4, x.shape[3]), "bicubic"))

# ---- control
matrix("scan over rows", lambda x: lax.scan(lambda c, a: (c + a, c * a), x[0] * 0, x)[1])
matrix(
    "reversed scan",
    lambda x: lax.scan(lambda c, a: (c * 0.5 + a, c), wnp.zeros(3), x, reverse=True),
)
wide("scan over columns", lambda x: lax.scan(lambda c, a: (c + a, a.sum()), x[:, 0] * 0, x.T))
vector(
    "scan of a length",
    lambda x: lax.scan(lambda c, _: (c * 1.1, c[0]), x, None, length=x.shape[0])[1],
)
vector("map", lambda x: lax.map(lambda a: a * a + 1, x))
vector("fori", lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c.at[i].set(c[i] * i), x))
vector(
    "while",
    lambda x: lax.while_loop(lambda c: c[0] < x.shape[0], lambda c: (c[0] + 1, c[1] * 0.5), (0, x))[
        1
    ],
    smooth=False,
)
vector("cond", lambda x: lax.cond(x[0] > 0, lambda x: x * 2, lambda x: x[::-1], x))
vector(
    "cond on the size",
    lambda x: lax.cond(wnp.asarray(x.shape[0]) > 3, lambda x: x * 2, lambda x: x - 1, x),
)
vector(
    "switch",
    lambda x: lax.switch(wnp.argmax(x) % 2, [lambda x: x, lambda x: x + wnp.arange(x.shape[0])], x),
)
vector("checkpoint", lambda x: weft.checkpoint(lambda x: wnp.sin(x).sum() * x)(x))
wide("vmap inside", lambda x: weft.vmap(lambda r: r / (1 + r @ r))(x))
wide("vmap over columns", lambda x: weft.vmap(wnp.cumsum, in_axes=1, out_axes=1)(x))
vector("grad inside", lambda x: weft.grad(lambda x: (x[1:] * x[:-1]).sum())(x))
vector(
    "jit inside",
    lambda x: weft.jit(lambda y: y * y.shape[0])(x) + weft.jit(lambda y: y[1:].sum())(x),
)
vector("jacobian inside", lambda x: weft.jacfwd(lambda x: x * x.sum())(x))
vector("linearize inside", lambda x: weft.jvp(lambda x: wnp.cumsum(x * x), (x,), (x,))[1])
vector("custom jvp", lambda x: nn.relu(x) + nn.silu(x))

# ---- networks and random numbers
add("one hot", lambda x, i: nn.one_hot(i, x.shape[0]) @ x, "n, 3", "m:i")
wide("softmax", lambda x: nn.softmax(x, 0) + nn.log_softmax(x, 1))
wide(
    "layer norm",
    lambda x: (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5),
)
wide("standardize", lambda x: nn.standardize(x, axis=0))
wide("gelu and glu", lambda x: nn.gelu(x) * nn.sigmoid(x))
add("embedding", lambda w, i: w[i] + wnp.arange(i.shape[0])[:, None], "5, 3", "n:i")
vector("uniform", lambda x: x * weft.random.uniform(key(), x.shape))
wide("normal", lambda x: x + weft.random.normal(key(), x.shape))
wide("dropout", lambda x: wnp.where(weft.random.bernoulli(key(), 0.5, x.shape), x, 0))
wide("categorical", lambda x: weft.random.categorical(key(), x), smooth=False)
vector("randint", lambda x: weft.random.randint(key(), x.shape, 0, 9) * x)
vector(
    "split keys",
    lambda x: weft.vmap(lambda k: weft.random.uniform(k))(weft.random.split(key(), x.shape[0])) * x,
)
vector(
    "gumbel and exponential",
    lambda x: x + weft.random.gumbel(key(), x.shape) + weft.random.exponential(key(), x.shape),
)
vector("truncated normal", lambda x: x + weft.random.truncated_normal(key(), -1.0, 1.0, x.shape))
vector("bits", lambda x: weft.random.bits(key(), x.shape), smooth=False)
add(
    "two sizes",
    lambda x, y: (
        x[:, None] * y[None, :]
        + wnp.arange(x.shape[0] * y.shape[0]).reshape(x.shape[0], y.shape[0])
    ),
    "n",
    "m",
)
add("sum of sizes", lambda x, y: wnp.concatenate([x, y])[: x.shape[0]] * x, "n", "m")
add("related sizes", lambda x, y: x[:-1] * y, "n + 1", "n")
add(
    "multiple of four",
    lambda x: x.reshape(-1, 4).sum(1),
    "n",
    constraints=("mod(n, 4) == 0",),
    smallest=4,
)

# ---- transforms, windows, distributions, shuffles
vector("fft", lambda x: wnp.abs(wnp.fft.fft(x)), smooth=False)
vector("rfft there and back", lambda x: wnp.fft.irfft(wnp.fft.rfft(x), n=x.shape[0]))
vector("fft of another length", lambda x: wnp.fft.rfft(x, 4).real)
wide(
    "cosine transform",
    lambda x: weft.scipy.fft.dct(x, axis=0) + weft.scipy.fft.dctn(x, norm="ortho"),
)
wide(
    "inverse cosine transform",
    lambda x: weft.scipy.fft.idctn(x) - weft.scipy.fft.idct(x, axis=0, norm="ortho"),
)
vector("frequencies", lambda x: wnp.fft.fftfreq(x.shape[0]) * x + wnp.fft.rfftfreq(x.shape[0])[0])
vector("fft shift", lambda x: wnp.fft.fftshift(x) - wnp.fft.ifftshift(x))
vector(
    "windows",
    lambda x: wnp.hanning(x.shape[0]) * x + wnp.kaiser(x.shape[0], 2.0) + wnp.bartlett(x.shape[0]),
)
vector("geomspace", lambda x: wnp.geomspace(1.0, 8.0, x.shape[0]) * x)
vector("permutation", lambda x: weft.random.permutation(key(), x))
wide("permutation of rows", lambda x: weft.random.permutation(key(), x, axis=1))
wide("independent permutation", lambda x: weft.random.permutation(key(), x, independent=True))
vector("permutation of the size", lambda x: x[weft.random.permutation(key(), x.shape[0])])
vector(
    "choice",
    lambda x: weft.random.choice(key(), x, (3,)) * weft.random.choice(key(), x.shape[0], (3,)),
)
vector("choice without replacement", lambda x: weft.random.choice(key(), x, (1,), replace=False))
vector("gamma", lambda x: weft.random.gamma(key(), 2.0, x.shape) * x)
vector("poisson", lambda x: weft.random.poisson(key(), 3.0, x.shape) * x)
vector("pad wrap", lambda x: wnp.pad(x, (1, 1), mode="wrap"))
vector("pad reflect", lambda x: wnp.pad(x, (2, 3), mode="reflect"))
vector("pad symmetric", lambda x: wnp.pad(x, (2, 3), mode="symmetric"))
vector("pad oddly reflected", lambda x: wnp.pad(x, (2, 3), mode="reflect", reflect_type="odd"))
wide(
    "pad oddly symmetric",
    lambda x: wnp.pad(x, ((0, 9), (5, 1)), mode="symmetric", reflect_type="odd"),
)
vector(
    "pad oddly by the size",
    lambda x: wnp.pad(x, (x.shape[0] - 1, 1), mode="reflect", reflect_type="odd"),
)
vector("pad mean", lambda x: wnp.pad(x, 1, mode="mean"))
vector("insert and delete", lambda x: wnp.insert(wnp.delete(x, 0), 0, 5.0) * x)
vector("array split", lambda x: wnp.array_split(x, 3)[1])
vector("packed bits", lambda x: wnp.packbits(x > 0), smooth=False)
wide("unravel", lambda x: wnp.unravel_index(wnp.argmax(x), x.shape)[1] * x)
wide(
    "flat positions",
    lambda x: wnp.ravel_multi_index((wnp.array([0, 9]), wnp.array([0, 9])), x.shape, mode="clip"),
    smooth=False,
)
square("lower triangle", lambda x: x[wnp.tril_indices_from(x)])
square("upper triangle", lambda x: x[wnp.triu_indices(x.shape[0], 1)])
wide(
    "triangles of a rectangle",
    lambda x: (x[wnp.tril_indices(x.shape[0], -2, x.shape[1])], x[wnp.triu_indices_from(x, 1)]),
)
square("diagonal positions", lambda x: x[wnp.diag_indices_from(x)])
wide("fill diagonal", lambda x: wnp.fill_diagonal(x, 0.0, inplace=False))
wide("singular values", lambda x: wnp.linalg.svd(x, compute_uv=False), smooth=False)
wide("pseudoinverse", lambda x: wnp.linalg.pinv(x), smooth=False)
square("eigenvalues", lambda x: wnp.linalg.eigvalsh(x + x.T), smooth=False)
square(
    "triangular solve", lambda x: weft.scipy.linalg.solve_triangular(x + 9 * wnp.eye(x.shape[0]), x)
)
vector("toeplitz", lambda x: weft.scipy.linalg.toeplitz(x))
vector("map coordinates", lambda x: weft.scipy.ndimage.map_coordinates(x, [wnp.array([0.3])], 1))
wide("covariance", lambda x: wnp.cov(x, bias=True), constraints=("n >= 2",), smallest=2)
wide("ranks", lambda x: weft.scipy.stats.rankdata(x[:, 0]) * x[:, 0])
vector("hessian inside", lambda x: weft.hessian(lambda x: (x**3).sum())(x))
vector(
    "transpose of a linear function",
    lambda x: weft.linear_transpose(lambda y: y[1:] - y[:-1], x)(x[1:])[0],
)
vector("cumlogsumexp", lambda x: lax.cumlogsumexp(x))
add(
    "recurrence",
    lambda x: lax.scan(
        lambda c, a: (wnp.tanh(a @ wnp.ones((3, 4)) + c), c),
        wnp.zeros((x.shape[0], 4)),
        wnp.swapaxes(x, 0, 1),
    )[0],
    "n, m, 3",
)
add("patches", lambda x: lax.conv_general_dilated_patches(x, (2,), (1,), "SAME"), "n, 2, m")
add(
    "kernel of symbolic size",
    lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME"),
    "n, 2, m",
    "4, 2, k",
)
add(
    "local attention",
    lambda q: nn.dot_product_attention(q, q, q, local_window_size=1),
    "n, m, 2, 4",
)
