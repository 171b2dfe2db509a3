"""Cost of a program, counted over its operations as XLA counts it.

In:   a module, before or after fusion.
Out:  floating-point operations, transcendental functions (counted separately) and the bytes that
      operations read and write.
Laws: a fusion reads its operands and writes its results; values inside it touch no memory. A loop
      body counts once for each known trip, or once if the trip count is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from weft._engine.hlo.lowering import HloLowering
from weft._engine.hlo.ops import HloBlock, HloOp, HloValue
from weft._engine.ops.conv_products import products_along

_TRANSCENDENTAL = frozenset(
    (
        "exponential",
        "exponential_minus_one",
        "log",
        "log_plus_one",
        "logistic",
        "power",
        "sqrt",
        "rsqrt",
        "cbrt",
        "tanh",
        "sine",
        "cosine",
        "tan",
        "atan2",
        "chlo.acos",
        "chlo.acosh",
        "chlo.asin",
        "chlo.asinh",
        "chlo.atanh",
        "chlo.cosh",
        "chlo.sinh",
        "chlo.erf",
    )
)
#: operations that only move elements or compute positions
_FREE_OPS = frozenset(
    (
        "constant",
        "broadcast_in_dim",
        "reshape",
        "transpose",
        "reverse",
        "iota",
        "slice",
        "pad",
        "concatenate",
        "dynamic_slice",
        "dynamic_update_slice",
        "gather",
        "bitcast_convert",
        "real",
        "imag",
        "complex",
        "partition_id",
        "optimization_barrier",
        "custom_call",
        "all_gather",
        "all_to_all",
        "collective_permute",
        "collective_broadcast",
        "sdy.sharding_constraint",
        "triangular_solve",
        "cholesky",
    )
)


def module_cost(module: HloLowering) -> dict[str, float]:
    """Return the `flops`, `transcendentals` and `bytes accessed` of one run.

    >>> from weft._engine.hlo.text.hlo_text import lower_global
    >>> module_cost(lower_global(weft.make_jaxpr(lambda x: wnp.sin(x @ x))(wnp.ones((4, 4))), "f"))
    {'flops': 128.0, 'transcendentals': 16.0, 'bytes accessed': 320.0}
    """
    flops, functions, nbytes = _Counter(module).block(module.functions["main"].body)
    return {
        "flops": float(flops),
        "transcendentals": float(functions),
        "bytes accessed": float(nbytes),
    }


class _Counter:
    """A counter of (flops, transcendentals, bytes) over the blocks of a module."""

    def __init__(self, module: HloLowering):
        self.module = module

    def block(self, block: HloBlock) -> np.ndarray:
        """Return the cost of all operations of a block."""
        return sum([self.op(op) for op in block.ops], np.zeros(3))

    def op(self, op: HloOp) -> np.ndarray:
        """Return the cost of one operation."""
        inner = [self.block(region) for region in op.regions]
        combine = _COMBINED.get(op.name)
        if combine is not None:
            return combine(self, op, inner)
        flops, functions = work(op, inner[0] if inner else np.array([1.0, 0.0, 0.0]))
        return np.array([flops, functions, _bytes(op)])


def _of_callee(counter: _Counter, op: HloOp, inner: list[np.ndarray]) -> np.ndarray:
    return counter.block(counter.module.functions[op.attrs["callee"]].body)


def _of_trips(counter: _Counter, op: HloOp, inner: list[np.ndarray]) -> np.ndarray:
    return sum(inner, np.zeros(3)) * (op.attrs.get("trip_count") or 1)


#: operations whose cost combines the costs of their regions or callees
_COMBINED: dict[str, Callable[[_Counter, HloOp, list[np.ndarray]], np.ndarray]] = {
    "func.call": _of_callee,
    "case": lambda counter, op, inner: np.max(inner, axis=0),
    "while": _of_trips,
    "sdy.manual_computation": _of_trips,
    "fusion": lambda counter, op, inner: np.array([*inner[0][:2], _bytes(op)]),
}


def work(op: HloOp, each: np.ndarray) -> tuple[float, float]:
    """Return floating-point operations and transcendental functions; `each` is the cost of combining two elements."""
    out = op.results[0].type.size if op.results else 0
    weights = _PER_ELEMENT.get(op.name)
    if weights is not None:
        return weights[0] * out, weights[1] * out
    flops = _FLOPS.get(op.name)
    if flops is not None:
        return flops(op), 0
    combinations = _COMBINATIONS.get(op.name)
    times = out if combinations is None else combinations(op)
    return times * each[0], times * each[1]


def _dot_flops(op: HloOp) -> float:
    contracted, _ = op.attrs["contracting"]
    return 2 * op.results[0].type.size * math.prod(op.operands[0].shape[d] for d in contracted)


def _fft_flops(op: HloOp) -> float:
    return 5 * op.results[0].type.size * math.log2(max(math.prod(op.attrs["lengths"]), 2))


def _sort_flops(op: HloOp) -> float:
    n = op.operands[0].shape[op.attrs["dim"]]
    return op.operands[0].type.size * max(math.ceil(math.log2(max(n, 1))), 0)


#: floating-point operations and transcendental functions for each element of a result
_PER_ELEMENT: dict[str, tuple[int, int]] = dict.fromkeys(_FREE_OPS, (0, 0))
_PER_ELEMENT |= dict.fromkeys(_TRANSCENDENTAL, (0, 1))
#: formulas for operations whose cost is not a constant per element
_FLOPS: dict[str, Callable[[HloOp], float]] = {
    "dot_general": _dot_flops,
    "convolution": lambda op: 2 * _taps(op),
    "fft": _fft_flops,
    "sort": _sort_flops,
}
#: the number of element combinations, where it is not the number of result elements
_COMBINATIONS: dict[str, Callable[[HloOp], int]] = {
    "reduce": lambda op: op.operands[0].type.size - op.results[0].type.size,
    "reduce_window": lambda op: op.results[0].type.size * (math.prod(op.attrs["window"]) - 1),
    "scatter": lambda op: op.operands[2].type.size,
}


def _taps(op: HloOp) -> int:
    """Return the number of products that a convolution adds up, without products with padding."""
    a, (x, w), out = op.attrs, op.operands, op.results[0]
    x_dims, w_dims, out_dims = a["numbers"]
    taps = out.shape[out_dims[0]] * out.shape[out_dims[1]] * w.shape[w_dims[1]]
    for k, (low, _) in enumerate(a["padding"]):
        n, size, places = x.shape[x_dims[2 + k]], w.shape[w_dims[2 + k]], out.shape[out_dims[2 + k]]
        taps *= products_along(
            n, size, places, low, a["strides"][k], a["lhs_dilation"][k], a["rhs_dilation"][k]
        )
    return taps


def _bytes(op: HloOp) -> int:
    """Return the bytes that an operation reads and writes."""
    count = _BYTES.get(op.name)
    return _total(op.operands) + _total(op.results) if count is None else count(op)


def _total(values: Sequence[HloValue]) -> int:
    return sum(map(_nbytes, values))


def _part_bytes(op: HloOp) -> int:
    return 2 * _total(op.results) + _total(op.operands[1:])


#: byte counts of operations that do not read and write all of their operands and results
_BYTES: dict[str, Callable[[HloOp], int]] = {
    "constant": lambda op: 0,
    "optimization_barrier": lambda op: 0,
    "slice": _part_bytes,
    "dynamic_slice": _part_bytes,
    "gather": _part_bytes,
    "dynamic_update_slice": lambda op: 2 * _nbytes(op.operands[1]) + _total(op.operands[2:]),
}


def _nbytes(x: HloValue) -> int:
    return x.type.nbytes
