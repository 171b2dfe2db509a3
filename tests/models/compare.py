"""Comparison of a model's compiled programs with op-by-op execution and with float64.

In:   a model and a size.
Out:  for each program ("forward", "gradient", "step"), the first mismatch as text, or None.
How:  a program is traced once. The compiled program, each op of the jaxpr as a separate program,
      and the jaxpr in float64 on NumPy get the same arguments. `weft._engine.verification.tolerance` states
      how far they may differ: units of the coarsest dtype, and a multiple of what noise changes.
Laws: results are compared relative to their own magnitude, so that small gradients count, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
from tests.models.double_precision import evaluate_in_float64
from tests.models.record import Model
from weft._engine.core.interpret import evaluate
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.transforms.key_physicalization import physicalize
from weft._engine.verification.evaluation import op_by_op
from weft._engine.verification.tolerance import (
    NOISE_FACTOR,
    ResultTolerance,
    difference,
    precisions,
)
from weft.sharding import NamedSharding, PartitionSpec

COPIES = 3  # batches that vmap takes at once


def programs_of(model: Model, size: str, seed: int = 0) -> dict[str, tuple[Callable, tuple]]:
    """Return the programs of a model with their arguments."""
    params, batch = model.arguments(size, seed)
    state, _ = model.example(size, seed)
    return {
        "forward": (model.loss, (params, batch)),
        "gradient": (weft.value_and_grad(model.loss), (params, batch)),
        "step": (model.step, (state, batch)),
    }


def arrays_of(tree: Any) -> list[np.ndarray]:
    """Return the leaves as NumPy arrays."""
    return [np.asarray(x) for x in weft.tree.leaves(tree)]


class Comparison:
    """One program, traced, and what its results may be."""

    def __init__(self, function: Callable, args: tuple) -> None:
        self.function, self.args = function, args
        self.jaxpr: Jaxpr = weft.make_jaxpr(function)(*args)
        self.leaves = arrays_of(args)
        self.without_keys = physicalize(self.jaxpr)  # NumPy has no typed keys

    def differ(self, got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> str | None:
        """Return the first element of `got` that differs from `want` by more than rounding."""
        want = [w.astype(g.dtype) for g, w in zip(got, want, strict=True)]
        mismatch = difference(got, want, self.tolerance(want))
        return None if mismatch is None else f"{mismatch} (allowed {mismatch.allowed:.3g})"

    def tolerance(self, want: Sequence[np.ndarray]) -> ResultTolerance:
        return ResultTolerance(want, precisions(self.jaxpr), self.repeat)

    def largest_allowed(self) -> float:
        """Return the largest difference that any result may have, relative to its magnitude."""
        want = [x.astype(v.aval.dtype) for x, v in zip(self.float64(), self.jaxpr.outvars)]
        tolerance, largest = self.tolerance(want), 0.0
        for i, x in enumerate(want):
            if x.dtype.kind == "f" and x.any():
                spread, _ = tolerance.widen(i)
                allowed = tolerance.at(i) + NOISE_FACTOR * np.max(spread, initial=0)
                largest = max(largest, float(allowed / np.abs(x).max()))
        return largest

    def repeat(self, number: int) -> list[np.ndarray]:
        """Evaluate the program with noise."""
        return op_by_op(self.without_keys, self.leaves, noise=number)

    def compiled(self) -> list[np.ndarray]:
        return arrays_of(weft.jit(self.function)(*self.args))

    def one_op_at_a_time(self) -> list[np.ndarray]:
        """Run each op as a separate program; a loop is one op."""
        return arrays_of(evaluate(self.jaxpr, *weft.tree.leaves(self.args)))

    def float64(self) -> list[np.ndarray]:
        return evaluate_in_float64(self.without_keys, self.leaves)


def mismatches(function: Callable, args: tuple) -> list[str]:
    """Return how a compiled program differs from both other ways."""
    comparison = Comparison(function, args)
    got = comparison.compiled()
    ways = {"op by op": comparison.one_op_at_a_time, "float64": comparison.float64}
    texts = {way: comparison.differ(got, run()) for way, run in ways.items()}
    return [f"compiled against {way}: {text}" for way, text in texts.items() if text]


def check_model(model: Model, size: str, seed: int = 0) -> list[str]:
    """Return the mismatches of forward, gradient and step."""
    texts = []
    for name, (function, args) in programs_of(model, size, seed).items():
        texts += [f"{model.name}, {name}: {text}" for text in mismatches(function, args)]
    return texts


# ---- several examples at once


def check_vmap(model: Model, size: str, seed: int = 0) -> list[str]:
    """Compare the gradients of several batches under vmap with one gradient per batch."""
    params, _ = model.arguments(size, seed)
    batches = [model.arguments(size, seed + copy)[1] for copy in range(COPIES)]
    stacked = weft.tree.map(lambda *xs: weft.numpy.stack(xs), *batches)
    gradient = weft.value_and_grad(model.loss)
    comparison = Comparison(weft.vmap(gradient, in_axes=(None, 0)), (params, stacked))
    alone = [arrays_of(weft.jit(gradient)(params, batch)) for batch in batches]
    text = comparison.differ(comparison.compiled(), [np.stack(xs) for xs in zip(*alone)])
    return [f"{model.name}, gradients of {COPIES} batches under vmap: {text}"] if text else []


def check_mesh(model: Model, size: str, seed: int = 0) -> list[str]:
    """Compare a step on 8 devices, the examples split, with the step on one."""
    state, batch = model.example(size, seed)
    comparison = Comparison(model.step, (state, batch))
    mesh = weft.make_mesh((8,), ("data",))
    split, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))
    args = weft.device_put(state, whole), weft.device_put(batch, split)
    got = arrays_of(weft.jit(model.step)(*args))
    text = comparison.differ(got, comparison.compiled())
    return [f"{model.name}, a step on 8 devices: {text}"] if text else []
