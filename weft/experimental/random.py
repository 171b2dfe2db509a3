"""Random numbers from a stateful generator, as in `numpy.random.default_rng`.

In:   a seed.
Out:  a generator whose methods draw arrays and advance its state. The state is a key and a mutable counter of draws, so
      that a generator may be closed over or passed to `jit`.
Laws: draw number n uses the key that `fold_in` derives from the seed's key and n: the numbers depend only on the seed and
      the order of draws.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import random
from weft._engine.control.ref import is_ref
from weft._engine.core.trace import EvalTrace, trace_state
from weft._engine.transforms.batch import BatchTrace
from weft._engine.util import dtypes
from weft._engine.util.tree import register_pytree_node


class StatefulPRNG:
    """A random number generator with a counter of its draws; `stateful_rng` creates one.

    >>> from weft.experimental.random import stateful_rng
    >>> rng = stateful_rng(0)
    >>> rng.normal(size=3).shape, bool(rng.random() == rng.random())
    ((3,), False)
    """

    __slots__ = ("_base_key", "_counter")

    def __init__(self, _base_key: Any, _counter: Any):
        if not dtypes.is_extended(getattr(_base_key, "dtype", None)):
            raise ValueError(
                f"StatefulPRNG: Expected base_key to be a typed PRNG key (weft.random.key); got {_base_key!r}."
            )
        if not is_ref(_counter):
            raise ValueError(
                f"StatefulPRNG: Expected counter to be a scalar integer ref (weft.new_ref); got {_counter!r}."
            )
        self._base_key, self._counter = _base_key, _counter

    def __repr__(self) -> str:
        return f"StatefulPRNG(_base_key={self._base_key}, _counter={self._counter})"

    def key(self, shape: int | Sequence[int] = ()) -> Any:
        """Return a new key, or an array of keys. A generator that was split has one key per part, and `shape` must be ().

        ValueError if a function under `vmap` draws from a generator that is not mapped: all examples would draw the same.
        """
        base, counter = self._base_key, self._counter
        _check_mapped(counter)
        if base.shape:
            if shape != ():
                raise ValueError(
                    f"StatefulPRNG.key: a generator that is split into {base.shape} parts has one key each; got {shape=}."
                )
            fold = random.fold_in
            for _ in base.shape:
                fold = weft.vmap(fold)
            new_keys = fold(base, counter[...])
        else:
            new_keys = random.fold_in(base, counter[...])
        counter[...] = counter[...] + 1
        return new_keys if shape == () else random.split(new_keys, shape)

    def random(self, size: int | Sequence[int] | None = None, dtype: Any = float) -> Any:
        """Draw uniform numbers in [0, 1)."""
        return self.uniform(size=size, dtype=dtype)

    def uniform(
        self,
        low: Any = 0,
        high: Any = 1,
        size: int | Sequence[int] | None = None,
        *,
        dtype: Any = float,
    ) -> Any:
        """Draw uniform numbers in [low, high)."""
        return random.uniform(self.key(), _shape(size, low, high), dtype, low, high)

    def normal(
        self,
        loc: Any = 0,
        scale: Any = 1,
        size: int | Sequence[int] | None = None,
        *,
        dtype: Any = float,
    ) -> Any:
        """Draw normal numbers with mean `loc` and standard deviation `scale`."""
        drawn = random.normal(self.key(), _shape(size, loc, scale), dtype)
        return drawn * wnp.asarray(scale, drawn.dtype) + wnp.asarray(loc, drawn.dtype)

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: int | Sequence[int] | None = None,
        *,
        dtype: Any = int,
    ) -> Any:
        """Draw integers in [low, high), or in [0, low) without `high`."""
        low, high = (0, low) if high is None else (low, high)
        return random.randint(self.key(), _shape(size, low, high), low, high, dtype)

    def split(self, num: int | Sequence[int]) -> StatefulPRNG:
        """Return a generator with leading dims `num`, so that `vmap` over them uses one part for each example."""
        keys = random.split(self.key(), num)
        return StatefulPRNG(keys, weft.new_ref(wnp.zeros(keys.shape, wnp.int32)))

    def spawn(self, n_children: int) -> list[StatefulPRNG]:
        """Return several generators that are independent of each other and of this one."""
        return [
            StatefulPRNG(key, weft.new_ref(wnp.zeros((), wnp.int32)))
            for key in random.split(self.key(), operator.index(n_children))
        ]


def _unflatten(_: None, parts: Iterable) -> StatefulPRNG:
    """Return a generator of two leaves of any types: trees may hold other values than keys and references."""
    rng = object.__new__(StatefulPRNG)
    rng._base_key, rng._counter = parts
    return rng


register_pytree_node(StatefulPRNG, lambda rng: ((rng._base_key, rng._counter), None), _unflatten)


def _check_mapped(counter: Any) -> None:
    """Raise ValueError if `vmap` maps the running function but not the generator."""
    trace: Any = trace_state.trace
    while trace is not None and trace is not counter.made_under:
        if isinstance(trace, BatchTrace) and not trace.axis.of_mesh:
            raise ValueError(
                f"StatefulPRNG: performing an addupdate operation with vmapped value on an unbatched array reference of type "
                f"{counter.type}: all examples would draw the same numbers. Pass vmap one generator for each, rng.split(n)."
            )
        trace = trace.parent


def _shape(size: Any, *parameters: Any) -> tuple[int, ...]:
    if size is None:
        return np.broadcast_shapes(*map(np.shape, parameters))
    return tuple(size) if np.ndim(size) else (operator.index(size),)


def stateful_rng(seed: Any = None, *, impl: Any = None) -> StatefulPRNG:
    """Return a stateful random number generator; without a seed, its seed is random.

    TypeError for a seed that is not an integer, and for a missing seed while tracing.

    >>> from weft.experimental.random import stateful_rng
    >>> bool((stateful_rng(7).uniform(size=4) == stateful_rng(7).uniform(size=4)).all())
    True
    """
    if seed is None:
        if not isinstance(trace_state.trace, EvalTrace):
            raise TypeError(
                "stateful_rng: When used within transformed code, it needs a seed: a program draws none when it runs."
            )
        import secrets

        seed = secrets.randbits(31)
    if math.prod(np.shape(seed)) != 1 or not np.issubdtype(wnp.asarray(seed).dtype, np.integer):
        raise TypeError(f"stateful_rng: the seed must be an integer, got {seed!r}.")
    return StatefulPRNG(random.key(seed, impl=impl), weft.new_ref(wnp.zeros((), wnp.int32)))
