"""Typed random keys: their dtype, and the two ops that convert between keys and their raw data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import LayoutOp, declare_unsupported
from weft._engine.core.trace import Zero, typeof
from weft._engine.ir.factors import RuleBuilder
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.layout import transpose
from weft._engine.util import dtypes
from weft._engine.util.errors import ShapeError
from weft._engine.util.record import record

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis, Primitive
    from weft._engine.ops.rule_types import Avals, NumPyArray, Value, Values


@record
class Generator:
    """A generator of random bits.

    It has a name, the tag of its dtype, and the shape of a key's raw data.

    `serial` distinguishes the generators of libraries; it is 0 for weft's.
    """

    name: str
    tag: str
    key_shape: tuple[int, ...]
    serial: int = 0

    @property
    def public(self) -> Any:
        """Return its `weft.extend.random.PRNGImpl`, the form that libraries use."""
        return public_forms[self]


#: the `weft.extend.random.PRNGImpl` of each generator, the form that libraries use
public_forms: dict[Generator, Any] = {}

THREEFRY = Generator("threefry2x32", "fry", (2,))

random_wrap_p = LayoutOp("random_wrap", converts_keys=True)
#: params: uses: the keys are consumed; expects: the keys that a check must find consumed (a shape
#: and its bools). Either may be absent
random_unwrap_p = LayoutOp("random_unwrap", converts_keys=True)


def random_wrap(raw: Value, generator: Generator):
    """Return typed keys from raw data, uint32[..., *key_shape]."""
    return random_wrap_p.bind(raw, impl=generator)


def random_unwrap(keys: Value, uses: bool = False):
    """Return the raw data of typed keys, uint32[..., *key_shape].

    `uses` marks the keys as consumed, for the check of key reuse.
    """
    return random_unwrap_p.bind(keys, **{"uses": True} if uses else {})


def generator_of(keys: Any) -> Generator:
    """Return the generator of typed keys."""
    dtype: Any = typeof(keys).dtype
    return dtype.impl


@random_wrap_p.def_type
def _wrap_type(aval: ShapedArray, *, impl: Generator):
    n = len(impl.key_shape)
    if aval.dtype != np.uint32 or aval.shape[aval.ndim - n :] != impl.key_shape:
        raise ShapeError(
            f"random_wrap: raw data of {impl.name} keys is uint32[..., {', '.join(map(str, impl.key_shape))}], got "
            f"{aval.str_short()}."
        )
    return ShapedArray(aval.shape[: aval.ndim - n], dtypes.KeyDType(impl))


@random_unwrap_p.def_type
def _unwrap_type(aval: ShapedArray, *, uses: bool = False, expects: Any = None):
    dtype: Any = aval.dtype
    if not dtypes.is_extended(dtype):
        raise TypeError(f"random_unwrap: expected typed keys, got {aval.str_short()}.")
    return ShapedArray(aval.shape + dtype.impl.key_shape, np.uint32)


def _front(args: Values, dims: Sequence[int]):

    x, d = args[0], dims[0]
    return x if d == 0 else transpose(x, (d, *(k for k in range(x.aval.ndim) if k != d)))


def _factors(in_avals: Avals, out_avals: Avals, **_: Any):
    b = RuleBuilder()
    small, large = sorted((in_avals[0].shape, out_avals[0].shape), key=len)
    shared = b.add_factors(small)
    other_factors = b.add_factors(large[len(small) :])
    special = dict.fromkeys(other_factors, "replicate")
    ins, outs = [
        shared + (other_factors if len(a.shape) > len(small) else [])
        for a in (in_avals[0], out_avals[0])
    ]
    return b.rule([ins], [outs], special=special)


def _same(x: NumPyArray, **_: Any) -> NumPyArray:
    return x


def _wrap_batch(
    axis: BatchAxis, args: Values, dims: Sequence[int], *, impl: Generator
) -> tuple[Value, int]:
    return random_wrap_p.bind(_front(args, dims), impl=impl), 0


def _unwrap_batch(
    axis: BatchAxis, args: Values, dims: Sequence[int], **marks: Any
) -> tuple[Value, int]:
    return random_unwrap_p.bind(_front(args, dims), **marks), 0


def _zero_jvp(primitive: Primitive) -> Callable[..., tuple[Value, Zero]]:
    def jvp(primals: Values, tangents: Values, **params: Any) -> tuple[Value, Zero]:
        out = primitive.bind(*primals, **params)
        return out, Zero(out.aval.to_tangent_aval())

    return jvp


_MEMORY = declare_unsupported(
    "keys become rows of uint32 before lowering (see transforms.key_physicalization)"
)
for _p in (random_wrap_p, random_unwrap_p):
    _p.define(
        jvp=_zero_jvp(_p),
        transpose=declare_unsupported("random keys have no derivative"),
        factors=_factors,
        lower=_MEMORY,
    )
random_wrap_p.define(
    reference=_same,
    batch=_wrap_batch,
)
random_unwrap_p.define(
    reference=_same,
    batch=_unwrap_batch,
)
