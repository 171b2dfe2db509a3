"""Random chains: programs of two to eight ordinary ops, as text.

In:   a seed, or the number of a pair of families with a dim permutation between them.
Out:  a `Chain`, the same for the same seed: statements, arguments, a transformation, a mesh.
Laws: the text uses `api`, `xp`, `lax`, `nn` and `near`, as the programs of `programs` do.
Next: `chain_judge` runs a chain in several ways and compares the results.
"""

from __future__ import annotations

import itertools
import math
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.fuzz.chain_body import (
    FLOATS,
    WIDE,
    ChainArgument,
    ChainBody,
    ChainValue,
    Shape,
    Statement,
)
from tests.fuzz.chain_ops import OPS, ChainOp
from tests.fuzz.chain_windows import FAMILIES

BLOCK = 125  # seeds that run in one process, with one value of WEFT_CPU_FEATURES
LEVELS = ("", "avx2", "", "generic", "avx512-plain", "")
DTYPES = ("float32",) * 11 + ("bfloat16",) * 2 + ("float16",) * 2 + ("float64", "float64")
DTYPES += ("complex64", "complex64", "complex128", "int32", "int32", "int8", "uint16", "bool")
DIMS = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 48, 64, 65, 100, 127, 128, 129)
DIMS += (250, 256, 257, 512, 513, 1000, 1024, 1025, 2049)
#: numbers of elements, least and greatest, and their share: below and above a cache line, a page,
#: padding by copies (2^13 floats), a task (2^14), serial loops (2^15), the caches (2^16 to 2^18),
#: parallel copies (2^18) and split reductions (2^20)
BUCKETS = (
    (1, 1 << 7, 34),
    (1 << 5, 1 << 10, 30),
    (1 << 9, 1 << 12, 14),
    (1 << 12, 1 << 14, 10),
    (1 << 13, 1 << 16, 8),
    (1 << 16, 1 << 18, 3),
    (1 << 18, 1 << 20, 1),
)
TRANSFORMATIONS = ("none",) * 9 + ("vmap", "grad", "jvp", "scan", "remat") * 2 + ("grad of vmap",)
DIFFERENTIATING = ("grad", "jvp", "remat", "grad of vmap")
MESHES = ((8,), (4, 2), (2, 2, 2), (2,), (4,), (3,), (5,), (1, 4), (2, 3))
#: families with separate kernels, and families that change the order of dims after them
FREQUENT = ("conv",) * 4
FREQUENT += ("contract", "softmax", "norm", "scan", "scan", "pad", "transpose", "concatenate")
#: families that choose the dim order of their results, and families that change it
KERNELS = {"conv", "contract", "softmax", "norm", "scan", "sort", "cumulative", "fft"}
KERNELS |= {"pool", "pad"}
LAYOUTS = ("transpose", "transpose", "reshape", "concatenate", "stack", "slice", "pad")
#: families whose results have the same bits for any number of threads
BITWISE = {
    "elementwise", "rounding", "binary", "compare", "select", "cast", "transpose", "reshape",
    "broadcast", "reverse", "concatenate", "stack", "pad", "slice", "gather", "sort", "triangle",
    "random", "call", "branch", "map",
}  # fmt: skip


@dataclass(frozen=True)
class Chain:
    """A random program: what it computes, on which arguments, and how it is transformed."""

    arguments: tuple[ChainArgument, ...]
    statements: tuple[Statement, ...]
    results: tuple[ChainValue, ...]
    transformation: str = "none"
    batch: int = 1
    axes: tuple[int | None, ...] = ()  # batched dim of each argument, of vmap and scan
    mesh: tuple[int, ...] = ()
    specs: tuple[tuple, ...] = ()
    donated: tuple[int, ...] = ()
    x64: bool = False
    seed: int = 0
    origin: str = field(default="chains", compare=False)

    @property
    def ops(self) -> list[str]:
        return [s.op for s in self.statements]

    @property
    def largest(self) -> int:
        """Return the number of elements of the largest value."""
        sizes = [a.size for a in (*(s.result for s in self.statements), *self.results)]
        return self.batch * max([math.prod(a.shape) for a in self.arguments] + sizes, default=1)

    @property
    def is_bitwise(self) -> bool:
        """Return whether the bits must be equal for any number of threads."""
        families = {OPS[name].family if name in OPS else "" for name in self.ops}
        return families <= BITWISE and self.keeps_exactness

    @property
    def keeps_exactness(self) -> bool:
        """Return whether the results of `main` are exact if the results of the chain are."""
        return self.transformation in ("none", "vmap", "scan")

    @property
    def inner_text(self) -> str:
        names = ", ".join(a.name for a in self.arguments)
        lines = "".join(f"    {s.line}\n" for s in self.statements)
        results = "".join(f"{v.name}, " for v in self.results)
        return f"def f({names}):\n{lines}    return [{results}]\n"

    @property
    def text(self) -> str:
        """Return source that defines `main`."""
        return self.inner_text + _main_text(self)

    def shapes(self) -> list[Shape]:
        """Return the shapes of the arguments of `main`."""
        if not self.axes:
            return [a.shape for a in self.arguments]
        return [
            a.shape if d is None else (*a.shape[:d], self.batch, *a.shape[d:])
            for a, d in zip(self.arguments, self.axes)
        ]

    def arrays(self) -> list[np.ndarray]:
        return [
            _array(np.random.default_rng((self.seed, k)), shape, a)
            for k, (shape, a) in enumerate(zip(self.shapes(), self.arguments))
        ]


def numpy_dtype(name: str) -> np.dtype:
    """Return a NumPy dtype by name, bfloat16 included."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)


def _array(rng: np.random.Generator, shape: Shape, a: ChainArgument) -> np.ndarray:
    dtype = numpy_dtype(a.dtype)
    if a.dtype == "bool":
        return rng.random(shape) < 0.5
    if "int" in a.dtype:
        return rng.integers(0 if a.dtype[0] == "u" else -9, 40, shape).astype(dtype)
    x = rng.normal(size=shape) * a.scale
    if "complex" in a.dtype:
        x = x + 1j * rng.normal(size=shape) * a.scale
    if a.values == "whole":
        x = np.round(2 * x)
    if a.values == "mask":
        x = np.where(rng.random(shape) < 0.3, -np.inf, x)
    return x.astype(dtype)


# ---- the text of `main`


def _main_text(chain: Chain) -> str:
    names = ", ".join(a.name for a in chain.arguments)
    kind = chain.transformation
    if kind == "none":
        return "main = f\n"
    if kind == "vmap":
        return f"main = api.vmap(f, in_axes={chain.axes})\n"
    if kind == "scan":
        pairs = [(a.name, d) for a, d in zip(chain.arguments, chain.axes) if d is not None]
        inputs = ", ".join(f"xp.moveaxis({name}, {d}, 0)" for name, d in pairs)
        scanned = "".join(f"{name}, " for name, _ in pairs)
        return (
            f"def main({names}):\n    def step(c, s):\n        {scanned}= s\n"
            f"        return c + 1, f({names})\n    return lax.scan(step, 0, ({inputs},))[1]\n"
        )
    wrt = differentiated(chain)
    terms = " + ".join(
        f"near(xp.sum(near(xp.sin(xp.real(o[{i}]).astype(xp.float32)))))"
        for i, v in enumerate(chain.results)
        if v.kind in "fc"
    )
    text = f"def loss({names}):\n    o = f({names})\n    return {terms}\n"
    if kind == "grad":
        return text + f"main = api.grad(loss, {wrt})\n"
    if kind == "remat":
        return text + f"main = api.value_and_grad(api.checkpoint(loss), {wrt})\n"
    if kind == "grad of vmap":
        batched = f"xp.sum(api.vmap(loss, in_axes={chain.axes})({names}))"
        return text + f"main = api.grad(lambda {names}: {batched}, {wrt})\n"
    moved = ", ".join(f"z{i}" for i in wrt)
    inside = ", ".join(f"z{i}" if i in wrt else a.name for i, a in enumerate(chain.arguments))
    primals = "".join(f"a{i}, " for i in wrt)
    tangents = "".join(f"xp.cos(a{i}), " for i in wrt)
    return (
        f"main = lambda {names}: api.jvp(lambda {moved}: f({inside}), ({primals}), ({tangents}))\n"
    )


def differentiated(chain: Chain) -> tuple[int, ...]:
    """Return the positions of at most two float arguments."""
    return tuple(
        i for i, a in enumerate(chain.arguments) if a.dtype in FLOATS and a.values != "mask"
    )[:2]


# ---- drawing a chain


def level_of(seed: int) -> str:
    """Return the value of WEFT_CPU_FEATURES for a seed; "" is the machine's own."""
    return LEVELS[(seed // BLOCK) % len(LEVELS)]


def draw_shape(r: random.Random, least: int, most: int) -> Shape:
    """Return a shape of rank 0 to 5 with `least` to `most` elements, if 30 tries find one."""
    shape: Shape = ()
    for _ in range(30):
        rank = r.choice((0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5))
        share = max(2.0, 3 * most ** (1 / max(rank, 1)))
        dims = [n for n in DIMS if n <= share]
        shape = tuple(r.choice(dims) for _ in range(rank))
        if least <= math.prod(shape) <= most:
            return shape
    return shape if math.prod(shape) <= most else shape[:1]


def make(seed: int, without: Sequence[str] = ()) -> Chain:
    """Return the chain number `seed`, without the ops of some families."""
    r = random.Random(seed)
    kind, dtype = r.choice(TRANSFORMATIONS), r.choice(DTYPES)
    extra = 8 if kind in DIFFERENTIATING else 0  # their steps without a kernel begin at 2^13
    least, most, _ = r.choices(BUCKETS, [b[2] + extra * (b[0] > 1 << 9) for b in BUCKETS])[0]
    if kind in DIFFERENTIATING and dtype not in FLOATS:
        dtype = "float32"
    on_mesh = r.random() < 0.14
    body = ChainBody(r, max(64, 4 * most), kind in DIFFERENTIATING, on_mesh)
    body.last_chance = r.choice((0.95, 0.6))
    pool = [entry for entry in OPS.values() if entry.family not in without]
    families = sorted({entry.family for entry in pool})
    families += [name for name in FREQUENT if name in families]
    if "conv" in families and dtype in FLOATS and r.random() < 0.12:
        body.argument(_draw_image(r, most), dtype)
        _draw_op(body, [e for e in pool if e.family == "conv"], ("conv",))
    _draw_arguments(body, dtype, least, most)
    length = r.choice((2, 3, 3, 4, 4, 5, 6, 7, 8))
    for _ in range(12 * length):
        if len(body.statements) == length:
            break
        newest = body.statements[-1] if body.statements else None
        if newest and OPS[newest.op].family in KERNELS and r.random() < 0.4:
            _draw_op(body, [e for e in pool if e.family in LAYOUTS], LAYOUTS, newest.result)
        elif newest and r.random() < 0.3:
            _draw_op(body, pool, families, newest.result)
        else:
            _draw_op(body, pool, families)
    return _finish(body, r, kind, seed, dtype)


def _draw_image(r: random.Random, most: int) -> Shape:
    """Return a shape with a batch dim, channels and one to three spatial dims."""
    rank, side = r.choice((3, 4, 4, 4, 5)), r.choice((5, 8, 9, 14))
    channels, batch = r.choice((1, 2, 3, 8, 16)), r.choice((1, 2, 3))
    if batch * channels * side ** (rank - 2) > max(most, 1 << 10):
        rank, side, batch = 4, 5, 1
    spatial = [max(1, side + r.choice((0, 0, -1, 1))) for _ in range(rank - 2)]
    return r.choice(((batch, channels, *spatial), (batch, *spatial, channels)))


def _draw_arguments(body: ChainBody, dtype: str, least: int, most: int) -> None:
    r = body.r
    first: Shape = ()
    for i in range(r.choice((1, 1, 2, 2, 3))):
        shape = first if i and r.random() < 0.7 else draw_shape(r, least if not i else 1, most)
        if r.random() < 0.01 and shape:
            shape = (*shape[:-1], 0)
        first = first or shape
        values, scale = "normal", r.choice((1.0, 1.0, 1.0, 1.0, 1e-3, 30.0, 300.0, 1e4))
        if dtype == "float16":
            scale = min(scale, 30.0)
        if r.random() < 0.2:
            values, scale = "whole", min(scale, 30.0)
        elif i == 0 and dtype in FLOATS and r.random() < 0.06 and not body.differentiable:
            values, scale = "mask", r.choice((1.0, 30.0, 100.0))
        body.argument(shape, dtype, values, scale)


def _draw_op(
    body: ChainBody,
    pool: Sequence[ChainOp],
    families: Sequence[str],
    x: ChainValue | None = None,
) -> None:
    """Add an op: of a random family, or any op with the same probability."""
    r = body.r
    family = r.choice(families) if r.random() < 0.7 else None
    entry = r.choice([e for e in pool if family is None or e.family == family])
    for _ in range(3):
        if entry.apply(body, x) is not None:
            return


def _finish(body: ChainBody, r: random.Random, kind: str, seed: int, dtype: str) -> Chain:
    """Choose results, the transformation's batch dims, the mesh and donated arguments."""
    read = {name for s in body.statements for name in s.reads}
    unread = [s.result for s in body.statements if s.result.name not in read]
    results = unread[-3:] or [v for v in body.values if not v.masked][-1:] or body.values[-1:]
    if r.random() < 0.15:
        results = [*results, r.choice(body.values)]
    used = {name for s in body.statements for name in s.reads} | {v.name for v in results}
    arguments = tuple(body.arguments)
    x64 = dtype in WIDE or any(a.dtype in WIDE for a in arguments) or r.random() < 0.04
    chain = Chain(arguments, tuple(body.statements), tuple(results), seed=seed, x64=x64)
    if kind in DIFFERENTIATING and not (
        differentiated(chain) and any(v.kind in "fc" for v in results)
    ):
        kind = "none"
    parts: dict = {"transformation": kind}
    if kind in ("vmap", "scan", "grad of vmap"):
        parts.update(batch=r.choice((1, 2, 3, 5)), axes=_draw_axes(r, chain, kind))
    chain = _with(chain, **parts)
    if body.on_mesh:
        mesh = r.choice(MESHES)
        chain = _with(chain, mesh=mesh, specs=tuple(_draw_spec(r, s, mesh) for s in chain.shapes()))
    if kind in ("none", "vmap", "scan") and r.random() < 0.2:
        chosen = tuple(i for i, a in enumerate(arguments) if a.name in used and r.random() < 0.5)
        chain = _with(chain, donated=chosen)
    return chain


def _with(chain: Chain, **parts) -> Chain:
    return Chain(**{**chain.__dict__, **parts})


def _draw_axes(r: random.Random, chain: Chain, kind: str) -> tuple[int | None, ...]:
    count = len(chain.arguments)
    first = differentiated(chain)[0] if kind == "grad of vmap" else r.randrange(count)
    return tuple(
        r.randint(0, len(a.shape)) if i == first or r.random() < 0.5 else None
        for i, a in enumerate(chain.arguments)
    )


def _draw_spec(r: random.Random, shape: Shape, mesh: tuple[int, ...]) -> tuple:
    """Return the mesh axes of each dim, only such as divide it."""
    free = list(range(len(mesh)))
    r.shuffle(free)
    entries: list = []
    for n in shape:
        fits = [k for k in free if n and n % mesh[k] == 0]
        if fits and r.random() < 0.7:
            free.remove(fits[0])
            entries.append("xyz"[fits[0]])
        else:
            entries.append(None)
    return tuple(entries)


# ---- pairs of families

PERMUTATIONS = [p for rank in (2, 3, 4) for p in itertools.permutations(range(rank))]
PAIRS = [(a, b) for a in FAMILIES for b in FAMILIES]


def count_pairs() -> int:
    """Return the number of pairs of op families with a permutation between them."""
    return len(PAIRS) * len(PERMUTATIONS)


def make_pair(number: int, without: Sequence[str] = ()) -> Chain | None:
    """Return op, transpose, op of the pair `number`; None where no op of a family fits the rank."""
    pair, which = divmod(number, len(PERMUTATIONS))
    (first, second), perm = PAIRS[pair], PERMUTATIONS[which]
    if first in without or second in without:
        return None
    for attempt in range(60):
        r = random.Random(number * 1000 + attempt)
        body = ChainBody(r, 1 << 12)
        dtype = r.choice(("float32", "float32", "int32", "bool", "complex64"))
        shape = tuple(
            r.choice((2, 3, 4, 5, 7, 8)) for _ in range(r.choice((len(perm), 1, 2, 3, 4)))
        )
        x = body.argument(shape, dtype)
        y = r.choice([e for e in OPS.values() if e.family == first]).apply(body, x)
        if y is None or y.rank != len(perm):
            continue
        body.op = "transpose"
        z = body.like(f"xp.transpose({y.name}, {perm})", y, True, [y.shape[k] for k in perm])
        w = r.choice([e for e in OPS.values() if e.family == second]).apply(body, z)
        if w is None:
            continue
        results = (w, z) if r.random() < 0.1 else (w,)
        return Chain(
            tuple(body.arguments), tuple(body.statements), results, seed=number, origin="pairs"
        )
    return None


def environment_of(seed: int) -> dict[str, str]:
    """Return the environment of the process that runs a seed."""
    threads = os.environ.get("WEFT_NUM_THREADS", "4")
    variables = {"WEFT_NUM_DEVICES": "8", "WEFT_NUM_THREADS": threads, "WEFT_CACHE_DIR": "off"}
    if level_of(seed):
        variables["WEFT_CPU_FEATURES"] = level_of(seed)
    return variables
