"""The difference between a product on a tile unit and the same product in float32, beyond rounding.

In:   a product whose operands the tile unit of the target multiplies, with its operands. These are
      bfloat16 numbers, or float32 numbers by bfloat16 parts.
Out:  a bound for each result.

Flushing: a unit takes operands, products and sums below t = 2^-126 as zero. A bfloat16 operand changes
by less than t. A float32 operand of three parts changes by less than 2 t: if its first part is not
flushed, only the two others can be. With 2 t in place of the change of each operand, a sum of k
products a b changes by at most 2 t (sum |a| + sum |b|). Each product and each sum loses less than t
again, which is 2 t k in total, once for each product of parts.

Rounding: each part is rounded to 8 bits, so that it leaves at most 2^-8 of the number before it. X3
has two parts: the remainders of a and of b, 2^-16 of each, and the product of the second parts are
omitted, at most 3 * 2^-16 |a| |b|. X6 omits 2 * 2^-24 |a| |b|, which is rounding in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._engine.codegen.ir.gemm_types import machine
from weft._engine.core.interpret import rule_results
from weft._engine.core.primitive import ProductOp
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ops.contraction import DotAlgorithmPreset
from weft._engine.util import dtypes
from weft._engine.verification.tolerance import terms_of

#: the least normal number of bfloat16 and float32
_LEAST = 2.0**-126
#: relative error of a product of two float32 numbers of two parts
_TWO_PARTS = 3 * 2.0**-16


def tile_error_bound(eqn: Eqn, ins: Sequence[Any]) -> np.ndarray | None:
    """Return the largest error of each result by the unit; None if the unit does not compute `eqn`.

    A product whose matrices are too small for the unit has a bound, too.
    """
    count = _count_products(eqn)
    if not count:
        return None

    def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        (out,) = rule_results(eqn, [left, right, *ins[2:]])
        return np.asarray(out).astype(np.float64)

    left, right = [np.abs(np.asarray(x)) for x in ins[:2]]
    changes = [np.full_like(x, 2 * _LEAST) for x in (left, right)]
    with np.errstate(all="ignore"):
        bound = product(changes[0], right) + product(left, changes[1])
        bound += 2 * _LEAST * count * terms_of(eqn)
        if count == 3:
            bound += _TWO_PARTS * product(left, right)
    return np.where(np.isfinite(bound), bound, 0.0)


def _count_products(eqn: Eqn) -> int:
    """Return the number of products of parts that the unit computes for an equation; 0 if there are none."""
    speed = machine().tile_speeds.get("bf16", 0)
    if not isinstance(eqn.primitive, ProductOp) or not speed:
        return 0
    algorithm, operands = eqn.params["precision"], {a.aval.dtype for a in eqn.invars[:2]}
    if operands == {dtypes.bfloat16}:
        return 1
    if operands == {np.dtype(np.float32)} and isinstance(algorithm, DotAlgorithmPreset):
        return algorithm.bf16_products if algorithm.bf16_products < speed else 0
    return 0
