"""Ops of random chains that combine elements: sorting, sums, softmax, norms, contractions, triangles.

In:   a `ChainBody` and the value to apply an op to.
Out:  entries of `chain_ops.OPS`.
"""

from __future__ import annotations

import math

from tests.fuzz.chain_body import ChainBody, ChainValue, Shape, replace_dim
from tests.fuzz.chain_ops import OPS, ChainOp, op

# ---- sorting


@op("sort", "if", least_rank=1)
def sort(b: ChainBody, x: ChainValue) -> ChainValue:
    descending = ", descending=True" if b.r.random() < 0.3 else ""
    return b.like(f"xp.sort({x.name}, {b.axis(x)}{descending})", x, True)


@op("sort", "if", least_rank=1, exact_operand=True)
def argsort(b: ChainBody, x: ChainValue) -> ChainValue:
    return b.like(f"xp.argsort({x.name}, {b.axis(x)}).astype(xp.int32)", x, True, dtype="int32")


@op("sort", "if", least_rank=1, exact_operand=True)
def sort_pairs(b: ChainBody, x: ChainValue) -> ChainValue:
    y = b.partner(x)
    text = f"lax.sort(({x.name}, {y.name}), dimension={b.axis(x)}, num_keys=1)[1]"
    return b.add(text, x.shape, x.dtype, True, x, y)


@op("sort", "if", least_rank=1)
def top_k(b: ChainBody, x: ChainValue) -> ChainValue:
    k = b.r.randint(1, x.shape[-1])
    return b.like(f"lax.top_k({x.name}, {k})[0]", x, True, (*x.shape[:-1], k))


@op("sort", "if", least_rank=1, exact_operand=True)
def top_k_indices(b: ChainBody, x: ChainValue) -> ChainValue:
    k = b.r.randint(1, x.shape[-1])
    return b.like(f"lax.top_k({x.name}, {k})[1]", x, True, (*x.shape[:-1], k), "int32")


@op("sort", "f", least_rank=1)
def median(b: ChainBody, x: ChainValue) -> ChainValue:
    d = b.axis(x)
    return b.like(f"xp.median({x.name}, {d})", x, False, replace_dim(x.shape, d))


@op("sort", "if", least_rank=1, exact_operand=True)
def searchsorted(b: ChainBody, x: ChainValue) -> ChainValue:
    text = f"xp.searchsorted(xp.sort(xp.ravel({x.name})), xp.ravel({x.name})).astype(xp.int32)"
    return b.like(text, x, True, (x.size,), "int32")


# ---- cumulative ops


def _cumulative(name: str, template: str, kinds: str, exact: bool) -> None:
    def build(b: ChainBody, x: ChainValue) -> ChainValue:
        reverse = b.one("True", "False")
        text = template.format(x.name, d=b.axis(x), reverse=reverse)
        text = f"({text}).astype(xp.{x.dtype})" if x.kind == "i" else text
        return b.like(text, x, exact or x.kind == "i")

    OPS[name] = ChainOp(name, "cumulative", build, kinds, 1)


for _row in (
    ("cumsum", "xp.cumsum(near({0}), {d})", "ifc", False),
    ("cumsum_reverse", "lax.cumsum(near({0}), {d}, reverse={reverse})", "if", False),
    ("cumprod", "xp.cumprod(xp.tanh({0}), {d})", "f", False),
    ("cummax", "lax.cummax({0}, {d}, reverse={reverse})", "if", True),
    ("cummin", "lax.cummin({0}, {d}, reverse={reverse})", "if", True),
    ("cumlogsumexp", "lax.cumlogsumexp({0}, {d}, reverse={reverse})", "f", False),
    ("associative_scan", "lax.associative_scan(xp.add, near({0}), axis={d})", "if", False),
):
    _cumulative(*_row)


# ---- reductions


def _reduction(name: str, template: str, kinds: str, exact: bool, masked: bool, dtype: str) -> None:
    def build(b: ChainBody, x: ChainValue) -> ChainValue:
        axes = b.axes(x)
        keep = b.r.random() < 0.3
        shape = [1 if k in axes else n for k, n in enumerate(x.shape) if keep or k not in axes]
        named = axes if len(axes) > 1 or b.r.random() < 0.5 else axes[0]
        text = template.format(x.name, d=named, keep=f"keepdims={keep}")
        result = dtype or x.dtype
        text = f"({text}).astype(xp.{result})" if x.kind in "bi" else text
        return b.like(text, x, exact or x.kind in "bi", shape, result)

    OPS[name] = ChainOp(name, "reduce", build, kinds, 1, masked=masked)


for _row in (
    ("sum", "xp.sum(near({0}), {d}, {keep})", "ifc", False, False, ""),
    ("mean", "xp.mean(near({0}), {d}, {keep})", "fc", False, False, ""),
    ("max", "xp.max({0}, {d}, {keep})", "if", True, True, ""),
    ("min", "xp.min({0}, {d}, {keep})", "if", True, False, ""),
    ("prod", "xp.prod(xp.tanh({0}), {d}, {keep})", "f", False, False, ""),
    ("var", "xp.var(near({0}), {d}, {keep})", "f", False, False, ""),
    ("std", "xp.std(near(1 + {0}), {d}, {keep}, ddof=0)", "f", False, False, ""),
    ("norm", "xp.sqrt(1 + xp.sum(near(xp.square({0})), {d}, {keep}))", "f", False, False, ""),
    ("logsumexp", "nn.logsumexp({0}, {d}, {keep})", "f", False, True, ""),
    ("any", "xp.any({0}, {d}, {keep})", "b", True, False, ""),
    ("all", "xp.all({0}, {d}, {keep})", "b", True, False, ""),
    ("count_nonzero", "xp.count_nonzero({0}, {d}, {keep})", "bi", True, False, "int32"),
):
    _reduction(*_row)


@op("argmax", "if", least_rank=1, exact_operand=True, masked=True)
def argmax(b: ChainBody, x: ChainValue) -> ChainValue:
    d, which = b.axis(x), b.one("argmax", "argmin")
    text = f"xp.{which}({x.name}, {d}).astype(xp.int32)"
    return b.like(text, x, True, replace_dim(x.shape, d), "int32")


@op("softmax", "f", least_rank=1, masked=True)
def softmax(b: ChainBody, x: ChainValue) -> ChainValue:
    return b.like(f"nn.softmax({x.name}, {b.axes(x)})", x, False)


@op("softmax", "f", least_rank=1)
def log_softmax(b: ChainBody, x: ChainValue) -> ChainValue:
    return b.like(f"nn.log_softmax({x.name}, {b.axes(x)})", x, False)


@op("softmax", "f", least_rank=1)
def masked_softmax(b: ChainBody, x: ChainValue) -> ChainValue:
    mask = b.argument(x.shape, "bool")
    text = f"nn.softmax({x.name}, {b.axis(x)}, where={mask.name})"
    text = f"xp.where(xp.isfinite({text}), {text}, 0)"
    return b.add(text, x.shape, x.dtype, False, x, mask)


@op("norm", "f", least_rank=1)
def layer_norm(b: ChainBody, x: ChainValue) -> ChainValue:
    axes = b.axes(x)  # the variance without cancellation, which may be negative
    variance = f"xp.var({x.name}, {axes}, keepdims=True)"
    text = f"nn.standardize({x.name}, axis={axes}, variance={variance}, epsilon=0.1)"
    return b.like(text, x, False)


@op("norm", "f", least_rank=1)
def rms_norm(b: ChainBody, x: ChainValue) -> ChainValue:
    power = f"xp.mean(xp.square({x.name}), {b.axes(x)}, keepdims=True)"
    return b.like(f"{x.name} * lax.rsqrt({power} + xp.asarray(0.1, {x.name}.dtype))", x, False)


@op("norm", "f", least_rank=1)
def center(b: ChainBody, x: ChainValue) -> ChainValue:
    return b.like(f"{x.name} - xp.mean({x.name}, {b.axes(x)}, keepdims=True)", x, False)


# ---- contractions


def weight(b: ChainBody, x: ChainValue, shape: Shape, terms: int) -> ChainValue:
    """Return the second operand of a sum of `terms` products: mostly a new, scaled argument."""
    if x.kind == "i" or b.r.random() < 0.25:
        return b.partner(x, shape)
    return b.argument(shape, x.dtype, scale=1 / math.sqrt(max(1, terms)))


def product(x: ChainValue, text: str) -> str:
    """Return the text of a sum of products in the operand's dtype."""
    return f"({text}).astype(xp.{x.dtype})" if x.kind == "i" else text


@op("contract", "ifc", least_rank=1)
def matmul(b: ChainBody, x: ChainValue) -> ChainValue:
    k, m = x.shape[-1], b.r.choice((1, 3, 8, 17, 33))
    batch = x.shape[:-2] if b.r.random() < 0.4 else ()
    w = weight(b, x, (*batch, k, m), k)
    text = product(x, f"{x.name} @ {w.name}")
    return b.add(text, (*x.shape[:-1], m), x.dtype, x.kind == "i", x, w)


@op("contract", "ifc", least_rank=2)
def matmul_left(b: ChainBody, x: ChainValue) -> ChainValue:
    k, m = x.shape[-2], b.r.choice((1, 3, 8, 17, 33))
    w = weight(b, x, (m, k), k)
    text = product(x, f"{w.name} @ {x.name}")
    return b.add(text, (*x.shape[:-2], m, x.shape[-1]), x.dtype, x.kind == "i", x, w)


@op("contract", "ifc", least_rank=2)
def gram(b: ChainBody, x: ChainValue) -> ChainValue:
    y = weight(b, x, x.shape, x.shape[-1])
    text = product(x, f"{x.name} @ xp.swapaxes({y.name}, -1, -2)")
    return b.add(text, (*x.shape[:-1], x.shape[-2]), x.dtype, x.kind == "i", x, y)


@op("contract", "ifc", least_rank=1)
def einsum(b: ChainBody, x: ChainValue) -> ChainValue:
    """Contract random dims with a second operand whose dims stand in random order."""
    letters = "abcde"[: x.rank]
    shared = b.r.sample(letters, b.r.randint(1, x.rank))
    summed = shared[: b.r.randint(0 if len(shared) > 1 else 1, len(shared))]
    own = "z" if b.r.random() < 0.6 else ""
    size = {**dict(zip(letters, x.shape)), "z": b.r.choice((1, 2, 5, 9))}
    second = b.r.sample([*shared, *own], len(shared) + len(own))
    rest = [c for c in [*letters, *own] if c not in summed]
    b.r.shuffle(rest)
    y = weight(b, x, tuple(size[c] for c in second), math.prod(size[c] for c in summed))
    names = f"{letters},{''.join(second)}->{''.join(rest)}"
    text = product(x, f"xp.einsum({names!r}, {x.name}, {y.name})")
    return b.add(text, [size[c] for c in rest], x.dtype, x.kind == "i", x, y)


@op("contract", "ifc", least_rank=2)
def dot_general(b: ChainBody, x: ChainValue) -> ChainValue:
    dims = b.r.sample(range(x.rank), x.rank)
    batch, contracted = dims[: b.r.choice((0, 1))], dims[-1:]
    m = b.r.choice((1, 4, 9))
    sizes = [x.shape[k] for k in (*batch, *contracted)]
    y = weight(b, x, (*sizes, m), x.shape[contracted[0]])
    numbers = ((contracted, [len(batch)]), (batch, list(range(len(batch)))))
    text = product(x, f"lax.dot_general({x.name}, {y.name}, {numbers})")
    free = [n for k, n in enumerate(x.shape) if k not in (*batch, *contracted)]
    shape = [*(x.shape[k] for k in batch), *free, m]
    return b.add(text, shape, x.dtype, x.kind == "i", x, y)


@op("contract", "f", least_rank=1)
def attend(b: ChainBody, x: ChainValue) -> ChainValue | None:
    """Compute softmax(x xᵀ) x."""
    if x.rank < 2 or x.shape[-2] ** 2 * math.prod(x.shape[:-2]) > b.limit:
        return None
    scores = f"{x.name} @ xp.swapaxes({x.name}, -1, -2) / {max(1, x.shape[-1])}"
    return b.like(f"nn.softmax({scores}, -1) @ {x.name}", x, False)


@op("contract", "fc", least_rank=1)
def outer(b: ChainBody, x: ChainValue) -> ChainValue:
    y = b.partner(x, (b.r.choice((2, 5)),))
    text = f"{x.name}[..., None] * {y.name}"
    return b.add(text, (*x.shape, *y.shape), x.dtype, False, x, y)


# ---- matrices as arrays


@op("triangle", "ifc", least_rank=2)
def triangle(b: ChainBody, x: ChainValue) -> ChainValue:
    return b.like(f"xp.{b.one('tril', 'triu')}({x.name}, {b.r.choice((-1, 0, 1))})", x, True)


@op("triangle", "ifc", least_rank=2)
def diagonal(b: ChainBody, x: ChainValue) -> ChainValue:
    i, j = b.r.sample(range(x.rank), 2)
    shape = [n for k, n in enumerate(x.shape) if k not in (i, j)]
    text = f"xp.diagonal({x.name}, 0, {i}, {j})"
    return b.like(text, x, True, (*shape, min(x.shape[i], x.shape[j])))


@op("triangle", "ifc", least_rank=1)
def times_iota(b: ChainBody, x: ChainValue) -> ChainValue:
    iota = f"lax.broadcasted_iota(xp.int32, {x.shape}, {b.axis(x)}) % 7"
    return b.like(f"{x.name} * ({iota}).astype({x.name}.dtype)", x, x.kind == "i")
