"""More ops of random chains: convolutions, pooling, FFT, loops, random numbers, linear algebra.

In:   a `ChainBody` and the value to apply an op to.
Out:  entries of `chain_ops.OPS`.
"""

from __future__ import annotations

import math

from tests.fuzz.chain_body import ChainBody, ChainValue, Shape, replace_dim
from tests.fuzz.chain_ops import OPS, op
from tests.fuzz.chain_sums import weight

MOST_PRODUCTS = 1 << 23  # of a convolution, so that the reference backend takes milliseconds

# ---- convolutions


def _layout(b: ChainBody, spatial: str, common: tuple[str, str, str]) -> tuple[str, str, str]:
    """Return dimension numbers: the common layout, channels last, or dims in random order."""
    choice = b.r.random()
    if choice < 0.3:
        return common
    if choice < 0.55:
        return f"N{spatial}C", f"{spatial}IO", f"N{spatial}C"
    if choice < 0.7:
        return common[0], common[1], f"N{spatial}C"
    first, second, third = ("".join(b.r.sample(word, len(word))) for word in common)
    return first, second, third


def _window(b: ChainBody, n: int) -> dict[str, int]:
    """Draw the window of one spatial dim of n elements; `out` is the number of its results."""
    k = b.r.choice((1, 2, 3, 3, 4, 5))
    stride, dilation = b.r.choice((1, 1, 2, 3)), b.r.choice((1, 1, 2))
    spread = b.r.choice((1, 1, 1, 2))
    low, high = b.r.choice((0, 0, 1, 2, -1)), b.r.choice((0, 0, 1, 2))
    room = (n - 1) * spread + 1 + low + high - ((k - 1) * dilation + 1)
    return {
        "k": k, "stride": stride, "dilation": dilation, "spread": spread, "low": low, "high": high,
        "out": room // stride + 1,
    }  # fmt: skip


def _divisor(b: ChainBody, n: int) -> int:
    return b.r.choice([d for d in (1, 1, 2, 3, 4, n) if n % d == 0])


@op("conv", "fc", least_rank=3)
def convolve(b: ChainBody, x: ChainValue) -> ChainValue | None:
    spatial = "DHW"[3 - (x.rank - 2) :]
    spec = _layout(b, spatial, (f"NC{spatial}", f"OI{spatial}", f"NC{spatial}"))
    size = dict(zip(spec[0], x.shape))
    windows = {c: _window(b, size[c]) for c in spatial}
    if min(w["out"] for w in windows.values()) < 1:
        return None
    groups = _divisor(b, size["C"]) if b.r.random() < 0.4 else 1
    features = groups * b.r.choice((1, 2, 3, 8))
    kernel = {"O": features, "I": size["C"] // groups, **{c: w["k"] for c, w in windows.items()}}
    results = {"N": size["N"], "C": features, **{c: w["out"] for c, w in windows.items()}}
    terms = kernel["I"] * math.prod(w["k"] for w in windows.values())
    shape = tuple(results[c] for c in spec[2])
    if math.prod(shape) * terms > MOST_PRODUCTS or math.prod(shape) > b.limit:
        return None
    w = weight(b, x, tuple(kernel[c] for c in spec[1]), terms)
    get = lambda name: tuple(windows[c][name] for c in spec[1] if c in spatial)
    padding = list(zip(get("low"), get("high")))
    text = (
        f"lax.conv_general_dilated({x.name}, {w.name}, {get('stride')}, {padding}, "
        f"{get('spread')}, {get('dilation')}, {spec}, feature_group_count={groups})"
    )
    return b.add(text, shape, x.dtype, False, x, w)


@op("conv", "f", least_rank=3)
def convolve_same(b: ChainBody, x: ChainValue) -> ChainValue | None:
    """Convolve as layers do: SAME, and one of the two common layouts."""
    spatial = "DHW"[3 - (x.rank - 2) :]
    last = b.r.random() < 0.5
    layout = f"N{spatial}C" if last else f"NC{spatial}"
    channels = x.shape[-1] if last else x.shape[1]
    k, features = b.r.choice((1, 3, 3, 5)), b.r.choice((1, 4, 8, 16))
    out = tuple({**dict(zip(layout, x.shape)), "C": features}[c] for c in layout)
    if math.prod(out) * channels * k ** len(spatial) > MOST_PRODUCTS:
        return None
    terms = channels * k ** len(spatial)
    w = weight(b, x, (*[k] * len(spatial), channels, features), terms)
    text = (
        f"lax.conv_general_dilated({x.name}, {w.name}, {(1,) * len(spatial)}, 'SAME', "
        f"dimension_numbers={(layout, spatial + 'IO', layout)})"
    )
    return b.add(text, out, x.dtype, False, x, w)


@op("conv", "f", least_rank=3)
def convolve_transposed(b: ChainBody, x: ChainValue) -> ChainValue | None:
    spatial = "DHW"[3 - (x.rank - 2) :]
    stride, k, features = b.r.choice((1, 2, 3)), b.r.choice((2, 3)), b.r.choice((1, 3, 8))
    channels, strides = x.shape[-1], (stride,) * len(spatial)
    shape = (x.shape[0], *(n * stride for n in x.shape[1:-1]), features)
    if math.prod(shape) * channels * k ** len(spatial) > MOST_PRODUCTS:
        return None
    terms = channels * k ** len(spatial)
    w = weight(b, x, (*[k] * len(spatial), channels, features), terms)
    numbers = (f"N{spatial}C", spatial + "IO", f"N{spatial}C")
    text = f"lax.conv_transpose({x.name}, {w.name}, {strides}, 'SAME', dimension_numbers={numbers})"
    return b.add(text, shape, x.dtype, False, x, w)


@op("conv", "f", least_rank=1)
def convolve_vectors(b: ChainBody, x: ChainValue) -> ChainValue | None:
    if x.rank != 1:
        return None
    k, mode = b.r.choice((1, 3, 8)), b.one("full", "same", "valid")
    longest, shortest = max(x.size, k), min(x.size, k)
    n = {"full": x.size + k - 1, "same": longest, "valid": longest - shortest + 1}[mode]
    w = weight(b, x, (k,), k)
    text = f"xp.convolve({x.name}, {w.name}, {mode!r})"
    return b.add(text, (n,), x.dtype, False, x, w)


# ---- pooling


def _pool(b: ChainBody, x: ChainValue, text: str, exact: bool) -> ChainValue | None:
    window, strides, shape, padding = [], [], [], []
    for n in x.shape:
        k = b.r.choice((1, 1, 2, 3)) if n > 2 else 1
        stride, low = b.r.choice((1, 1, 2)) if k > 1 else 1, b.r.choice((0, 0, 1)) if k > 1 else 0
        window.append(k)
        strides.append(stride)
        padding.append((low, 0))
        shape.append((n + low - k) // stride + 1)
    text = text.format(x.name, tuple(window), tuple(strides), padding, size=math.prod(window))
    return b.like(text, x, exact, shape)


@op("pool", "f", least_rank=1)
def max_pool(b: ChainBody, x: ChainValue) -> ChainValue | None:
    name, value = b.r.choice((("max", "-xp.inf"), ("min", "xp.inf")))
    init = f"xp.asarray({value}, {x.name}.dtype)"
    return _pool(
        b, x, "lax.reduce_window({0}, " + init + f", lax.{name}, {{1}}, {{2}}, {{3}})", True
    )


@op("pool", "f", least_rank=1)
def mean_pool(b: ChainBody, x: ChainValue) -> ChainValue | None:
    call = "lax.reduce_window({0}, xp.asarray(0, {0}.dtype), lax.add, {1}, {2}, {3})"
    return _pool(b, x, f"{call} / {{size}}", False)


# ---- Fourier transforms


@op("fft", "fc", least_rank=1)
def fft(b: ChainBody, x: ChainValue) -> ChainValue | None:
    if x.dtype not in ("float32", "float64", "complex64", "complex128"):
        return None
    wide = "complex128" if x.dtype in ("float64", "complex128") else "complex64"
    d = b.axis(x)
    n = x.shape[d]
    if x.kind == "f" and b.r.random() < 0.4:
        shape = replace_dim(x.shape, d, n // 2 + 1)
        return b.like(f"xp.fft.rfft({x.name}, axis={d}, norm='ortho')", x, False, shape, wide)
    name = b.one("fft", "ifft")
    return b.like(f"xp.fft.{name}({x.name}, axis={d}, norm='ortho')", x, False, dtype=wide)


@op("fft", "c", least_rank=1)
def irfft(b: ChainBody, x: ChainValue) -> ChainValue | None:
    d = b.axis(x)
    n = 2 * x.shape[d] - 1
    dtype = "float32" if x.dtype == "complex64" else "float64"
    text = f"xp.fft.irfft({x.name}, {n}, {d}, norm='ortho')"
    return b.like(text, x, False, replace_dim(x.shape, d, n), dtype)


# ---- loops and calls

_STEP = {
    "f": ("xp.sin({0})", "0.5 * {0} + 1", "nn.relu({0}) - 0.25", "{0} / (1 + xp.abs({0}))"),
    "i": ("{0} ^ {t}(5)", "-{0}", "{0} * {t}(3)"),
}


def _step(b: ChainBody, x: ChainValue) -> str:
    return b.one(*_STEP[x.kind]).replace("{0}", "c").replace("{t}", f"xp.{x.dtype}")


@op("loop", "fi", empty=True)
def fori_loop(b: ChainBody, x: ChainValue) -> ChainValue:
    text = f"lax.fori_loop(0, {b.r.randint(0, 4)}, lambda i, c: {_step(b, x)}, {x.name})"
    return b.like(text, x, x.kind == "i")


@op("while", "fi", empty=True)
def while_loop(b: ChainBody, x: ChainValue) -> ChainValue | None:
    if b.differentiable:
        return None
    body = f"lambda s: (s[0] + 1, (lambda c: {_step(b, x)})(s[1]))"
    text = f"lax.while_loop(lambda s: s[0] < {b.r.randint(0, 4)}, {body}, (0, {x.name}))[1]"
    return b.like(text, x, x.kind == "i")


@op("scan", "fi", least_rank=1)
def scan(b: ChainBody, x: ChainValue) -> ChainValue:
    """Scan over the first dim: a moving average, or a running sum with different results."""
    t = f"xp.{x.dtype}"
    half = f"c * {t}(0.5)" if x.kind == "f" else f"c ^ {t}(3)"
    result = b.one("c", "s", f"c + {t}(2) * s", "c - s")
    text = (
        f"lax.scan(lambda c, s: (({half}) + s, {result}), xp.zeros_like({x.name}[0]), "
        f"{x.name}, reverse={b.one('True', 'False')}, unroll={b.r.choice((1, 1, 2))})[1]"
    )
    return b.like(text, x, x.kind == "i")


@op("scan", "f", least_rank=1)
def scan_matmul(b: ChainBody, x: ChainValue) -> ChainValue | None:
    """Scan a linear recurrence over the first dim."""
    if x.rank < 2 or x.shape[-1] > 64:
        return None
    w = b.partner(x, (x.shape[-1], x.shape[-1]))
    text = (
        f"lax.scan(lambda c, s: (xp.tanh(c @ {w.name} * 0.2 + s),) * 2, "
        f"xp.zeros_like({x.name}[0]), {x.name})[1]"
    )
    return b.add(text, x.shape, x.dtype, False, x, w)


@op("branch", "fi", empty=True)
def cond(b: ChainBody, x: ChainValue) -> ChainValue:
    flag = b.argument((), "bool")
    text = f"lax.cond({flag.name}, lambda c: {_step(b, x)}, lambda c: -c, {x.name})"
    return b.add(text, x.shape, x.dtype, x.kind == "i", x, flag)


@op("branch", "fi", empty=True)
def switch(b: ChainBody, x: ChainValue) -> ChainValue:
    which = b.argument((), "int32")
    branches = f"[lambda c: c, lambda c: {_step(b, x)}, lambda c: -c]"
    text = f"lax.switch({which.name}, {branches}, {x.name})"
    return b.add(text, x.shape, x.dtype, x.kind == "i", x, which)


@op("map", "fi", least_rank=1)
def map_rows(b: ChainBody, x: ChainValue) -> ChainValue:
    how = b.one("lax.map(lambda c: {s}, {0})", "lax.map(lambda c: {s}, {0}, batch_size=2)")
    return b.like(how.format(x.name, s=_step(b, x)), x, x.kind == "i")


@op("map", "fi", least_rank=2)
def vmap_inside(b: ChainBody, x: ChainValue) -> ChainValue:
    """Apply vmap with different dims of the operand and the result."""
    i, j = b.axis(x), b.axis(x)
    shape = list(x.shape)
    shape.insert(j, shape.pop(i))
    d = b.r.randrange(x.rank - 1)
    inner = b.one(_step(b, x), f"lax.cummax(c, {d})", f"xp.flip(c, {d})")
    exact = x.kind == "i" or "lax.cum" in inner or "flip" in inner
    return b.like(f"api.vmap(lambda c: {inner}, {i}, {j})({x.name})", x, exact, shape)


@op("call", "fi", empty=True)
def call(b: ChainBody, x: ChainValue) -> ChainValue:
    how = b.one("api.jit", "api.checkpoint")
    return b.like(f"{how}(lambda c: {_step(b, x)})({x.name})", x, x.kind == "i")


# ---- random numbers


def _random_text(b: ChainBody, shape: Shape, dtype: str) -> tuple[str, bool]:
    key = f"api.random.key({b.r.randrange(99)})"
    name = b.one("uniform", "normal", "gumbel", "exponential")
    return f"api.random.{name}({key}, {shape}, xp.{dtype})", name == "uniform"


@op("random", "f")
def add_noise(b: ChainBody, x: ChainValue) -> ChainValue:
    text, _ = _random_text(b, x.shape, x.dtype)
    return b.like(f"{x.name} + {text}", x, False)


@op("random", "f")
def dropout(b: ChainBody, x: ChainValue) -> ChainValue:
    key = f"api.random.key({b.r.randrange(99)})"
    keep = f"api.random.bernoulli({key}, xp.float32(0.7), {x.shape})"
    return b.like(f"xp.where({keep}, {x.name}, 0)", x, True)


@op("random", least_rank=1)
def shuffle_rows(b: ChainBody, x: ChainValue) -> ChainValue:
    key = f"api.random.key({b.r.randrange(99)})"
    return b.like(f"api.random.permutation({key}, {x.name})", x, True)


@op("random", "i")
def random_int(b: ChainBody, x: ChainValue) -> ChainValue:
    key = f"api.random.key({b.r.randrange(99)})"
    text = f"{x.name} ^ api.random.randint({key}, {x.shape}, 0, 50, xp.{x.dtype})"
    return b.like(text, x, True)


# ---- linear algebra


def _positive_definite(x: ChainValue) -> str:
    n = x.shape[-1]
    unit = f"xp.tanh({x.name})"
    return f"({unit}.swapaxes(-1, -2) @ {unit} / {n} + 2 * xp.eye({n}, dtype=xp.{x.dtype}))"


def _linalg(name: str, template: str, drop: int) -> None:
    def build(b: ChainBody, x: ChainValue) -> ChainValue | None:
        n = x.shape[-1]
        if x.dtype not in ("float32", "float64") or n > 20 or x.shape[-2] > 64 or x.size > 1 << 13:
            return None
        text = template.format(_positive_definite(x), x.name, scale=0.3**n)
        shape = {0: (*x.shape[:-2], n, n), 1: (*x.shape[:-2], n), 2: x.shape[:-2]}[drop]
        return b.like(text, x, False, shape)

    op("linalg", "f", least_rank=2)(_named(build, name))


def _named(build, name: str):
    build.__name__ = name
    return build


for _row in (
    ("cholesky", "xp.linalg.cholesky({0})", 0),
    ("inverse", "xp.linalg.inv({0})", 0),
    ("solve", "xp.linalg.solve({0}, xp.swapaxes({0}, -1, -2))", 0),
    ("triangular_solve", "api.scipy.linalg.solve_triangular({0}, {0}, lower=True)", 0),
    (
        "qr",
        "xp.abs(xp.linalg.qr({0})[1])",
        0,
    ),  # a row changes its sign where the rest of a column rounds to zero
    ("eigvalsh", "xp.linalg.eigvalsh({0})", 1),
    ("svdvals", "xp.linalg.svd({0}, compute_uv=False)", 1),
    ("det", "xp.linalg.det({0}) * {scale}", 2),
    ("slogdet", "xp.linalg.slogdet({0})[1]", 2),
):
    _linalg(*_row)

FAMILIES = sorted({entry.family for entry in OPS.values()})
