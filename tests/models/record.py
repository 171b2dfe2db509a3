"""The record of a training model.

In:   the functions of a model, written with public names only.
Out:  a `Model` with example arguments and a step that `jit` takes.
Laws: equal seeds give equal arguments. `step` is pure: (state, batch) -> (state, loss).
Next: `registry` has all models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace as Size
from typing import Any

import weft
from tests.models.optimizers import Optimizer
from weft import random


def sizes(small: Size, large: Size) -> dict[str, Size]:
    """Return the dims of a model's two sizes by name."""
    return {"small": small, "large": large}


@dataclass(frozen=True)
class Model:
    """A training model.

    `sizes` has the dims "small" and "large". `update(state, batch)` replaces the step of gradient
    and optimizer. With `is_batched`, dim 0 of every leaf of a batch counts the examples.
    """

    name: str
    init: Callable[[Any, Size], Any]
    batch: Callable[[Any, Size], Any]
    loss: Callable[[Any, Any], Any]
    sizes: Mapping[str, Size]
    optimizer: Optimizer
    update: Callable[[Any, Any], Any] | None = None
    is_batched: bool = True

    def arguments(self, size: str = "small", seed: int = 0) -> tuple[Any, Any]:
        """Return the arguments of `loss`: parameters and a batch."""
        dims = self.sizes[size]
        init_key, batch_key = random.split(random.key(seed))
        return self.init(init_key, dims), self.batch(batch_key, dims)

    def example(self, size: str = "small", seed: int = 0) -> tuple[Any, Any]:
        """Return the arguments of `step`: parameters with the optimizer's state, and a batch."""
        params, batch = self.arguments(size, seed)
        return (params, self.optimizer.init(params)), batch

    def step(self, state: Any, batch: Any) -> Any:
        """Return the state after one optimizer step, and the loss before it."""
        if self.update is not None:
            return self.update(state, batch)
        params, optimizer_state = state
        loss, grads = weft.value_and_grad(self.loss)(params, batch)
        return self.optimizer.update(grads, optimizer_state, params), loss
