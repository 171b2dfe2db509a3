"""The laws that every function of arrays obeys under the transformations, checked on one set of arguments."""

from __future__ import annotations

import numpy as np

import weft
import weft.numpy as wnp
from weft._engine.core.interpret import run_reference
from weft._engine.util import tree


def close(got, want, tolerance: float = 1e-4) -> None:
    """Assert that trees have equal structure and close values."""
    got_leaves, got_tree = tree.tree_flatten(got)
    want_leaves, want_tree = tree.tree_flatten(want)
    assert got_tree == want_tree
    for g, w in zip(got_leaves, want_leaves):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=tolerance, atol=tolerance)


def arrays(*shapes, seed: int = 0, scale: float = 1.0):
    rng = np.random.default_rng(seed)
    return tuple(wnp.asarray((scale * rng.standard_normal(s)).astype(np.float32)) for s in shapes)


def same_on_all_engines(f, *args, tolerance: float = 1e-5) -> None:
    """Assert that eager execution, the compiled program and the NumPy references agree."""
    want = f(*args)
    close(weft.jit(f)(*args), want, tolerance)
    flat = [np.asarray(x) for x in tree.tree_leaves(args)]
    close(run_reference(weft.make_jaxpr(f)(*args), *flat), tree.tree_leaves(want), tolerance)


def tangents_of(args, seed: int = 1):
    return arrays(*[np.shape(a) for a in args], seed=seed)


def forward_is_a_finite_difference(f, *args, tolerance: float = 2e-2, eps: float = 1e-2) -> None:
    tangents = tangents_of(args)
    at = lambda h: np.asarray(f(*[a + h * t for a, t in zip(args, tangents)]), np.float64)
    slope = (8 * (at(eps) - at(-eps)) - (at(2 * eps) - at(-2 * eps))) / (12 * eps)
    for g in (f, weft.jit(f)):
        out, tangent = weft.jvp(g, args, tangents)
        close(out, f(*args))
        close(tangent, slope, tolerance)


def reverse_is_the_adjoint(f, *args, tolerance: float = 2e-3) -> None:
    tangents = tangents_of(args)
    for g in (f, weft.jit(f)):
        out, tangent = weft.jvp(g, args, tangents)
        ct = arrays(out.shape, seed=2)[0]
        value, pullback = weft.vjp(g, *args)
        close(value, out)
        left = np.vdot(np.asarray(tangent, np.float64), ct)
        right = sum(np.vdot(np.asarray(c, np.float64), t) for c, t in zip(pullback(ct), tangents))
        np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)
        close(weft.linearize(g, *args)[1](*tangents), tangent)
    close(weft.jit(lambda *xs: weft.vjp(f, *xs)[1](ct))(*args), pullback(ct))


def vmap_is_a_loop(f, in_axes, *args) -> None:
    mapped = weft.vmap(f, in_axes=in_axes)
    size = next(np.shape(a)[d] for a, d in zip(args, in_axes) if d is not None)
    rows = [
        f(*[a if d is None else wnp.take(a, i, axis=d) for a, d in zip(args, in_axes)])
        for i in range(size)
    ]
    want = tree.tree_map(lambda *xs: np.stack([np.asarray(x) for x in xs]), *rows)
    close(mapped(*args), want)
    close(weft.jit(mapped)(*args), want)


def all_laws(f, *args) -> None:
    same_on_all_engines(f, *args)
    forward_is_a_finite_difference(f, *args)
    reverse_is_the_adjoint(f, *args)
    batched = tuple(wnp.stack([a, 0.5 * a, a + 1]) for a in args)
    vmap_is_a_loop(f, (0,) * len(args), *batched)
    vmap_is_a_loop(f, (0,) + (None,) * (len(args) - 1), batched[0], *args[1:])
    loss = lambda *xs: (f(*xs) ** 2).sum()
    grads = weft.grad(loss)
    close(
        weft.vmap(grads)(*batched),
        np.stack([np.asarray(grads(*[b[i] for b in batched])) for i in range(3)]),
        1e-3,
    )
    close(weft.grad(weft.checkpoint(loss))(*args), grads(*args), 1e-3)
