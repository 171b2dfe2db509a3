"""Lowering of random keys: convert a program on typed keys to a program on uint32 arrays.

Law: an array of keys of shape S becomes a uint32 array of shape S + key_shape, where key_shape is (2,) for threefry. An operation that
moves keys becomes the same operation, batched over the words of a key. Keys whose key_shape is not one-dimensional are reshaped
to one dim of words for this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft._engine.core.interpret import evaluate_with
from weft._engine.core.primitive import BatchAxis, LayoutOp, registry
from weft._engine.core.stage import stage
from weft._engine.core.trace import eval_trace, set_trace, typeof
from weft._engine.ir.jaxpr import Eqn, Jaxpr, subjaxprs
from weft._engine.ir.rewrite import map_jaxprs
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.layout import reshape
from weft._engine.util import dtypes


def is_key(aval: ShapedArray) -> bool:
    return dtypes.is_extended(aval.dtype)


def has_keys(jaxpr: Jaxpr) -> bool:
    """Return whether a value of the program, at any depth, has a key type."""

    def make() -> bool:
        avals = [*jaxpr.in_avals, *jaxpr.out_avals, *(v.aval for v in jaxpr.constvars)]
        avals += [v.aval for e in jaxpr.eqns for v in e.outvars]
        return any(map(is_key, avals)) or any(
            has_keys(j) for e in jaxpr.eqns for _, j in subjaxprs(e.params)
        )

    return jaxpr.memo("has keys", make)


def _key_shape(aval: ShapedArray) -> tuple[int, ...]:
    """Return the shape of the integer array that represents one key of type `aval`."""
    dtype: Any = aval.dtype  # a `dtypes.KeyDType`
    return dtype.impl.key_shape


def physical_aval(aval: ShapedArray) -> ShapedArray:
    """Return the type of the uint32 array that represents keys of type `aval`, with the keys' sharding. Return other types unchanged."""
    if not is_key(aval):
        return aval
    sharding = aval.explicit
    key_shape = _key_shape(aval)
    for d in range(len(key_shape)):
        sharding = sharding and sharding.with_dim(aval.ndim + d, ())
    return ShapedArray(aval.shape + key_shape, "uint32", sharding=sharding)


def physicalize(jaxpr: Jaxpr) -> Jaxpr:
    """Replace the keys in `jaxpr` by uint32 arrays; return `jaxpr` itself if it has none."""
    return jaxpr.memo("physical", lambda: _physicalize(jaxpr)) if has_keys(jaxpr) else jaxpr


def _physicalize(jaxpr: Jaxpr) -> Jaxpr:
    with set_trace(eval_trace):
        # constants are concrete, even while a caller of this program is traced
        rows = [
            registry["random_unwrap"].bind(c) if is_key(v.aval) else c
            for v, c in zip(jaxpr.constvars, jaxpr.consts)
        ]

    def run(*args: Any) -> list[Any]:
        return evaluate_with(_run_eqn, jaxpr.replace(consts=rows), args)

    return stage(run, [physical_aval(a) for a in jaxpr.in_avals], jaxpr.name)


def _run_eqn(eqn: Eqn, args: Sequence[Any]) -> list[Any]:
    primitive, params = eqn.primitive, map_jaxprs(eqn.params, physicalize)
    if isinstance(primitive, LayoutOp) and primitive.converts_keys:
        return [args[0]]
    has_no_keys = not any(is_key(a.aval) for a in (*eqn.invars, *eqn.outvars))
    if has_no_keys or any(True for _ in subjaxprs(params)):
        outs = primitive.bind(*args, **params)
        return outs if primitive.multiple_results else [outs]
    return _batch_over_words(eqn, args, params)


def _batch_over_words(eqn: Eqn, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Return the results of an op that moves keys: the op batched over the words of the keys."""
    from weft._engine.transforms.batch import to_dim  # most programs have no keys

    primitive = eqn.primitive
    key_shape = next(_key_shape(a.aval) for a in (*eqn.invars, *eqn.outvars) if is_key(a.aval))
    axis, is_flat = BatchAxis(math.prod(key_shape)), len(key_shape) == 1
    rows: list[Any] = []
    dims: list[int | None] = []
    for x, a in zip(args, eqn.invars):
        is_row = is_key(a.aval)
        if is_row and not is_flat:
            x = reshape(x, (*a.aval.shape, axis.size))
        rows.append(x)
        dims.append(typeof(x).ndim - 1 if is_row else None)
    outs, out_dims = primitive.batch(axis, rows, dims, **params)
    if not primitive.multiple_results:
        outs, out_dims = [outs], [out_dims]
    results: list[Any] = []
    for x, d, v in zip(outs, out_dims, eqn.outvars):
        if is_key(v.aval):
            x = to_dim(x, d, axis, v.aval.ndim)
            x = x if is_flat else reshape(x, (*v.aval.shape, *key_shape))
        results.append(x)
    return results
