"""Random programs as text: `api` is the system under test, `xp` its NumPy, `lax` and `nn` its other faces.

`make(choose)` builds one program by asking `choose(options)` for every decision, so that hypothesis can shrink it and a
seeded generator can replay it. The text defines `f`, built of elementwise, reducing, contracting, indexing and shape
operations, and `main`, which is `f` under a composition of jit, grad, jvp and vmap. No choice depends on computed floats, but
through continuous operations, so two right implementations agree to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

SIZES = (1, 2, 3, 4, 8)
UNARY = (
    "xp.sin({0})",
    "xp.cos({0})",
    "xp.tanh({0})",
    "xp.exp(-xp.abs({0}))",
    "xp.log1p(xp.square({0}))",
    "xp.sqrt({0} * {0} + 1)",
    "-{0}",
    "xp.abs({0})",
    "{0} * 0.5",
    "1.5 - {0}",
    "{0} / 3",
    "nn.sigmoid({0})",
    "nn.relu({0})",
    "nn.gelu({0})",
    "xp.clip({0}, -1.0, 1.0)",
    "xp.arctan({0})",
    "xp.expm1(-xp.abs({0}))",
    "{0} ** 2",
    "xp.reciprocal(1.0 + {0} * {0})",
    "xp.sinh(xp.clip({0}, -2, 2))",
    "lax.rsqrt(1.0 + {0} * {0})",
    "lax.logistic({0})",
    "nn.softplus({0})",
    "xp.sign({0}) * 0.1 + {0}",
)
BINARY = (
    "{0} + {1}",
    "{0} - {1}",
    "{0} * {1}",
    "xp.maximum({0}, {1})",
    "xp.minimum({0}, {1})",
    "{0} / (2.0 + xp.abs({1}))",
    "xp.where(m0, {0}, {1})",
    "xp.arctan2({0}, 1.5 + xp.abs({1}))",
    "xp.logaddexp({0}, {1})",
    "xp.hypot({0}, 1 + xp.abs({1}))",
)
REDUCE = (
    "xp.sum({0}, axis={d}{k})",
    "xp.mean({0}, axis={d}{k})",
    "xp.max({0}, axis={d}{k})",
    "xp.min({0}, axis={d}{k})",
    "nn.logsumexp({0}, axis={d}{k})",
    "xp.var({0}, axis={d}{k})",
    "xp.linalg.norm(1.0 + xp.abs({0}), axis={d}{k})",
)
ALONG = (
    "nn.softmax({0}, axis={d})",
    "xp.cumsum({0}, axis={d})",
    "xp.flip({0}, axis={d})",
    "xp.roll({0}, 1, axis={d})",
    "nn.log_softmax({0}, axis={d})",
    "xp.sort({0}, axis={d})",
    "{0} - xp.mean({0}, axis={d}, keepdims=True)",
    "xp.cumprod(xp.tanh({0}), axis={d})",
)
TRANSFORMS = (
    "{f}",
    "api.jit({f})",
    "api.jit({f}, static_argnums=())",
    "api.jit(api.jit({f}))",
    "api.checkpoint({f})",
    "api.jit(api.checkpoint({f}))",
)


@dataclass(frozen=True)
class Program:
    """Text that defines `main`, and the shapes of the float arrays that it takes."""

    text: str
    shapes: tuple[tuple[int, ...], ...]

    def arguments(self, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [rng.normal(size=s).astype(np.float32) for s in self.shapes]

    def load(self, **names) -> Callable:
        """Return `main`, with the system's modules under the given names."""
        scope = dict(names)
        exec(self.text, scope)
        return scope["main"]


class _Body:
    """Lines of `f` so far, and the shape of each float value in scope."""

    def __init__(self, choose: Callable, shapes: Sequence[tuple[int, ...]]):
        self.choose = choose
        self.lines: list[str] = []
        self.values: list[tuple[str, tuple[int, ...]]] = [
            (f"a{i}", s) for i, s in enumerate(shapes)
        ]

    def add(self, text: str, shape: tuple[int, ...]) -> None:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        self.values.append((name, tuple(shape)))

    def add_one(self, ways: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        """Add one of several expressions with their shapes, no large one if it can be helped."""
        small = [w for w in ways if np.prod(w[1]) <= 256]
        self.add(*self.choose(small or [min(ways, key=lambda w: np.prod(w[1]))]))

    def pick(self, test: Callable = lambda s: True):
        candidates = [v for v in self.values if test(v[1])]
        return self.choose(candidates[-6:]) if candidates else None


def _unary(b: _Body) -> None:
    x, s = b.pick()
    b.add(b.choose(UNARY).format(x), s)


def _binary(b: _Body) -> None:
    x, s = b.pick()
    y, t = b.pick(lambda t: _fits(s, t))
    text = b.choose(BINARY).format(x, y)
    b.add(
        text.replace(
            "m0",
            f"xp.arange({_joint(s, t)[-1] if _joint(s, t) else 1}) % 2 == 0"
            if _joint(s, t)
            else "xp.array(True)",
        ),
        _joint(s, t),
    )


def _fits(s, t) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(s[::-1], t[::-1]))


def _joint(s, t) -> tuple[int, ...]:
    return np.broadcast_shapes(s, t)


def _reduce(b: _Body) -> None:
    operand = b.pick(len)
    if operand is None:
        return _unary(b)
    x, s = operand
    d, keep = b.choose(range(len(s))), b.choose([False, True])
    shape = (
        [n for k, n in enumerate(s) if k != d]
        if not keep
        else [1 if k == d else n for k, n in enumerate(s)]
    )
    b.add(
        b.choose(REDUCE).format(
            x, d=b.choose([d, d - len(s)]), k=", keepdims=True" if keep else ""
        ),
        tuple(shape),
    )


def _along(b: _Body) -> None:
    operand = b.pick(len)
    if operand is None:
        return _unary(b)
    x, s = operand
    b.add(b.choose(ALONG).format(x, d=b.choose(range(len(s)))), s)


def _matmul(b: _Body) -> None:
    operand = b.pick(lambda s: len(s) == 2)
    if operand is None:
        return _reshape(b)
    x, s = operand
    y, t = b.pick(lambda t: len(t) == 2) or (x, s)
    ways = [
        ("xp.einsum('ij,kj->ik', {0}, {1})", s[1] == t[1], (s[0], t[0])),
        ("{0}.T @ {1}", s[0] == t[0], (s[1], t[1])),
        ("{0} @ {1}", s[1] == t[0], (s[0], t[1])),
        ("xp.einsum('ij,kl->jl', {0}, {1})", True, (s[1], t[1])),
        ("xp.outer({0}[0], {1}[:, 0])", True, (s[1], t[0])),
    ]
    text, _, shape = b.choose([w for w in ways if w[1]])
    b.add(f"0.25 * ({text.format(x, y)})", shape)


def _reshape(b: _Body) -> None:
    x, s = b.pick()
    n = int(np.prod(s))
    shapes = [
        t
        for t in [(n,), (n, 1), (2, n // 2), (n // 2, 2), (4, n // 4), (2, 2, n // 4)]
        if int(np.prod(t)) == n
    ]
    ways = [(f"{x}.reshape({t})", t) for t in shapes]
    if len(s) > 1:
        ways += [
            (f"{x}.T", s[::-1]),
            (f"xp.swapaxes({x}, 0, -1)", (s[-1], *s[1:-1], s[0])),
            (f"xp.ravel({x})", (n,)),
        ]
    if len(s) < 3:
        ways += [
            (f"{x}[None]", (1, *s)),
            (f"xp.broadcast_to({x}, {(2, *s)})", (2, *s)),
            (f"xp.stack([{x}, -{x}])", (2, *s)),
        ]
    if s:
        ways += [
            (f"xp.tile({x}, 2)", (*s[:-1], 2 * s[-1])),
            (f"xp.repeat({x}, 2, axis=0)", (2 * s[0], *s[1:])),
        ]
    b.add_one(ways)


def _index(b: _Body) -> None:
    operand = b.pick(lambda s: s and s[0] > 1)
    if operand is None:
        return _reshape(b)
    x, s = operand
    n, trailing_dims = s[0], s[1:]
    y = b.pick(lambda t: t == s)[0]
    ways = [
        (f"{x}[{b.choose(range(-n, n))}]", trailing_dims),
        (f"{x}[1:]", (n - 1, *trailing_dims)),
        (f"{x}[::-1]", s),
        (f"{x}[::2]", ((n + 1) // 2, *trailing_dims)),
        (f"{x}[xp.array([0, {n - 1}, 0])]", (3, *trailing_dims)),
        (f"{x}.at[0].set(0.5)", s),
        (f"{x}.at[1:].add({x}[:-1])", s),
        (f"{x}.at[xp.array([0, 0])].add(1.0)", s),
        (f"{x}.at[{n - 1}].multiply(2.0)", s),
        (f"xp.take({x}, xp.array([{n - 1}, 0]), axis=0)", (2, *trailing_dims)),
        (f"xp.concatenate([{x}, {y}])", (2 * n, *trailing_dims)),
        (f"xp.pad({x}, [(1, 1)] + [(0, 0)] * {len(trailing_dims)})", (n + 2, *trailing_dims)),
        (
            f"lax.dynamic_slice_in_dim({x}, {n // 2}, {max(n // 2, 1)}, 0)",
            (max(n // 2, 1), *trailing_dims),
        ),
        (f"lax.dynamic_update_slice_in_dim({x}, {y}[:1] * 2, 1, 0)", s),
        (
            f"xp.where(xp.arange({n}).reshape({(n,) + (1,) * len(trailing_dims)}) % 2 == 0, {x}, {y})",
            s,
        ),
        (f"{x}[..., None]", (*s, 1)) if len(s) < 3 else (f"{x}[0]", trailing_dims),
    ]
    b.add_one(ways)


STEPS = (_unary, _unary, _binary, _binary, _reduce, _along, _matmul, _reshape, _index, _index)


def make(choose: Callable, steps: int = 8) -> Program:
    """Return one program. `choose(options)` picks one of a non-empty sequence."""
    rank = lambda: choose((1, 2, 2, 2, 3, 0))
    first = tuple(choose(SIZES) for _ in range(choose((1, 2, 2, 3))))
    shapes = [first] + [
        choose((first, first[-1:], first[::-1], tuple(choose(SIZES) for _ in range(rank()))))
        for _ in range(choose((1, 2)))
    ]
    b = _Body(choose, shapes)
    for _ in range(choose(range(2, steps + 1))):
        choose(STEPS)(b)
    result, _ = b.values[-1]
    names = [f"a{i}" for i in range(len(shapes))]
    scalar = f"xp.sum(xp.sin({result}))"
    text = (
        f"def f({', '.join(names)}):\n"
        + "".join(f"    {line}\n" for line in b.lines)
        + f"    return {result}\n"
    )
    text += (
        f"def s({', '.join(names)}):\n    {result} = f({', '.join(names)})\n    return {scalar}\n"
    )
    return _transformed(choose, text, names, shapes)


def _transformed(choose: Callable, text: str, names, shapes) -> Program:
    """Return the program with `main` appended: `f` under a composition of transformations."""
    n = len(shapes)
    kind = choose(
        (
            "plain",
            "plain",
            "grad",
            "value_and_grad",
            "jvp",
            "vmap",
            "vmap of grad",
            "grad of vmap",
            "vjp",
            "jacfwd",
            "hvp",
        )
    )
    wrt = choose(range(n))
    batched = [choose((True, False)) for _ in range(n)]
    batched[0] = batched[0] or not any(batched)
    size = choose((2, 4, 8))
    axes = [choose((0, len(s))) if on else None for on, s in zip(batched, shapes)]
    wide = [s if a is None else (*s[:a], size, *s[a:]) for a, s in zip(axes, shapes)]
    args = ", ".join(names)
    mains = {
        "plain": ("f", shapes),
        "grad": (f"api.grad(s, {wrt})", shapes),
        "value_and_grad": (f"api.value_and_grad(s, argnums=tuple(range({n})))", shapes),
        "jvp": (
            f"lambda {args}: api.jvp(f, ({args},), ({''.join(f'xp.cos({a}), ' for a in names)}))",
            shapes,
        ),
        "vjp": (f"lambda {args}: (lambda y, back: back(xp.cos(y)))(*api.vjp(f, {args}))", shapes),
        "vmap": (f"api.vmap(f, in_axes={tuple(axes)})", wide),
        "vmap of grad": (f"api.vmap(api.grad(s, {wrt}), in_axes={tuple(axes)})", wide),
        "grad of vmap": (
            f"api.grad(lambda {args}: xp.sum(api.vmap(s, in_axes={tuple(axes)})({args})), {wrt})",
            wide,
        ),
        "jacfwd": (f"api.jacfwd(lambda {args}: xp.ravel(f({args}))[:4], {wrt})", shapes),
        "hvp": (
            f"lambda {args}: api.jvp(lambda z: api.grad(s, 0)(z, {', '.join(names[1:])}), ({names[0]},), (xp.sin({names[0]}),))[1]",
            shapes,
        ),
    }
    main, taken = mains[kind]
    text += f"main = {choose(TRANSFORMS).format(f='(' + main + ')')}\n"
    return Program(text, tuple(tuple(s) for s in taken))
