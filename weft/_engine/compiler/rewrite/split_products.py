"""Split products: float32 matmuls and convolutions as products of bfloat16 parts, for a tile unit.

In:   a product of float32 numbers whose precision is BF16_BF16_F32_X3, _X6 or _X9.
Out:  `split_matmul(eqn)` and `split_convolution(eqn)`, functions that compute its result.
How:  x = h + m + l: each part is the remainder rounded to bfloat16. The operands of one new product
      hold a part of lhs and a part of rhs for each product of parts, side by side along a contracted
      dim: hl, lh and hh for X3, in the order of their magnitudes. The largest products are added last.
Laws: three parts hold all 24 bits of a normal number, two parts hold 16. In units of 2^-24 |lhs| |rhs|,
      X3 omits at most 768, X6 at most 2 and X9 nothing. Infinities and NaN of operands occur in hh only,
      where they meet the same numbers as in a float32 product, but for denormal ones. hh overflows up
      to 1 % below the largest number, because h may exceed x. The unit flushes parts below 2^-126.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from weft._engine.compiler.rewrite.concatenations import copying_concatenate
from weft._engine.core.trace import typeof
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ops.arithmetic import sub
from weft._engine.ops.casting import convert_element_type
from weft._engine.ops.comparison import clamp, select_n
from weft._engine.ops.elementwise import is_finite
from weft._engine.ops.layout import full
from weft._engine.ops.precision import reduce_precision

#: minimal number of products that each element takes part in, over the square of the number of products of parts. Below it, making the
#: parts takes longer than the unit saves. Estimated for a unit with six times the rate of float32 instructions, and 0.8 ns for three parts
_USES_PER_SQUARE = 32

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
#: the largest finite bfloat16 number; rounding larger float32 numbers would give infinity
_LARGEST = np.float32(ml_dtypes.finfo(_BFLOAT16).max)


def split_matmul(eqn: Eqn, rows: int, columns: int) -> Callable[..., list[Any]] | None:
    """Return a function that multiplies parts of the operands of a matmul; None if the matmul stays whole.

    `rows` and `columns` are the sizes of one matrix of the result.
    """
    if not _pays(eqn, rows, columns):
        return None
    (lhs_dims, rhs_dims), _ = eqn.params["dimension_numbers"]
    # The longest contracted dim gives the longest runs of each part.
    at = max(range(len(lhs_dims)), key=lambda i: eqn.invars[0].aval.shape[lhs_dims[i]])
    return _multiply_parts(eqn, lhs_dims[at], rhs_dims[at])


def split_convolution(eqn: Eqn) -> Callable[..., list[Any]]:
    """Return a function that convolves parts of the operands side by side in the dim of features, or whole operands.

    The parts of windows would take as many times the memory as a window has elements.
    """
    (_, image_features, *_), (out_features, features, *spatial), _ = eqn.params["dimension_numbers"]
    kernel = eqn.invars[1].aval.shape
    is_grouped = eqn.params["feature_group_count"] > 1 or eqn.params["batch_group_count"] > 1
    places = eqn.outvars[0].aval.size // max(1, kernel[out_features])
    image_uses = kernel[out_features] * math.prod(kernel[d] for d in spatial)
    if is_grouped or not _pays(eqn, image_uses, places):
        return lambda lhs, rhs: [eqn.primitive.bind(lhs, rhs, **{**eqn.params, "precision": None})]
    return _multiply_parts(eqn, image_features, features)


def _pays(eqn: Eqn, lhs_uses: int, rhs_uses: int) -> bool:
    """Return whether float32 operands have parts, given the number of products of each element of lhs and rhs."""
    count = eqn.params["precision"].bf16_products
    is_float32 = all(a.aval.dtype == np.float32 for a in (*eqn.invars, *eqn.outvars))
    return is_float32 and min(lhs_uses, rhs_uses) >= count**2 * _USES_PER_SQUARE


def _multiply_parts(eqn: Eqn, lhs_dim: int, rhs_dim: int) -> Callable[..., list[Any]]:
    """Return a function that computes `eqn` from parts side by side along a contracted dim of each operand."""
    pairs = part_pairs(eqn.params["precision"].bf16_products)
    params = {**eqn.params, "precision": None, "preferred_element_type": np.dtype(np.float32)}

    def multiply(lhs: Any, rhs: Any) -> list[Any]:
        left = _join_parts(lhs, [i for i, _ in pairs], lhs_dim)
        right = _join_parts(rhs, [j for _, j in pairs], rhs_dim)
        return [eqn.primitive.bind(left, right, **params)]

    return multiply


def part_pairs(count: int) -> list[tuple[int, int]]:
    """Return the parts of both operands in each of `count` products, the smallest products first.

    >>> part_pairs(3)
    [(0, 1), (1, 0), (0, 0)]
    """
    parts = range(2 if count == 3 else 3)
    pairs = sorted(itertools.product(parts, parts), key=lambda pair: -sum(pair))
    return pairs[-count:]


def _join_parts(x: Any, parts: Sequence[int], dim: int):
    """Return parts of `x` side by side along `dim`; the last one holds the infinities and NaN."""
    finite = is_finite(x)
    zero = full(typeof(x).shape, 0, np.float32)
    first = _round(select_n(finite, x, clamp(-_LARGEST, x, _LARGEST)))
    rest = select_n(finite, zero, sub(x, first))
    pieces = [select_n(finite, zero, first)]
    for _ in range(max(parts)):
        pieces.append(_round(rest))
        rest = sub(rest, pieces[-1])
    joined = [*[pieces[i] for i in parts[:-1]], first]
    # One kernel writes all parts, which are copied: a kernel that selects a part for each element takes three times as long.
    return copying_concatenate().bind(
        *[convert_element_type(part, _BFLOAT16) for part in joined], dimension=dim
    )


def _round(x: Any):
    """Round to bfloat16, in float32. A conversion to bfloat16 and back might be omitted by a fused kernel."""
    return reduce_precision(x, 8, 7)
