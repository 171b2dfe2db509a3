"""What a program costs by its operations alone, as XLA counts it.

In:   a module, before or after fusion.
Out:  floating point operations, transcendental functions apart from them, and bytes that operations read and write.
Laws: a fusion reads and writes its operands and results; what it computes inside touches no memory. A loop counts as often as it is known
      to run.
"""

from __future__ import annotations

import math

import numpy as np

from weft._engine.hlo.lowering import Lowering
from weft._engine.hlo.ops import Block, Op, Value
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
#: operations that arrange elements, or say where they are
_MOVES = frozenset(
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
#: operations that read as much of their first operand as their result has
_PARTS = frozenset(("slice", "dynamic_slice", "gather"))
#: operations whose cost is that of the blocks in them
_HOLDERS = frozenset(("while", "case", "func.call", "sdy.manual_computation"))


def module_cost(module: Lowering) -> dict[str, float]:
    """`flops`, `transcendentals` and `bytes accessed` of one run.

    >>> from weft._engine.hlo.hlo_text import lowered
    >>> module_cost(lowered(weft.make_jaxpr(lambda x: wnp.sin(x @ x))(wnp.ones((4, 4))), "f"))
    {'flops': 128.0, 'transcendentals': 16.0, 'bytes accessed': 320.0}
    """
    flops, functions, nbytes = _Counter(module).block(module.functions["main"].body)
    return {
        "flops": float(flops),
        "transcendentals": float(functions),
        "bytes accessed": float(nbytes),
    }


class _Counter:
    """Counts (flops, transcendentals, bytes)."""

    def __init__(self, module: Lowering):
        self.module = module

    def block(self, block: Block) -> np.ndarray:
        """The cost of all operations of a block."""
        return sum([self.op(op) for op in block.ops], np.zeros(3))

    def op(self, op: Op) -> np.ndarray:
        """The cost of an operation."""
        if op.name == "func.call":
            return self.block(self.module.functions[op.attrs["callee"]].body)
        inner = [self.block(r) for r in op.regions]
        if op.name == "case":
            return np.max(inner, axis=0)
        if op.name in _HOLDERS:
            return sum(inner, np.zeros(3)) * (op.attrs.get("trip_count") or 1)
        if op.name == "fusion":
            return np.array([*inner[0][:2], _bytes(op)])
        flops, functions = self.work(op, inner[0] if inner else np.array([1.0, 0.0, 0.0]))
        return np.array([flops, functions, _bytes(op)])

    def work(self, op: Op, each: np.ndarray) -> tuple[float, float]:
        """Floating point operations and transcendental functions; `each` is the cost of what combines two elements."""
        out = op.results[0].type.size if op.results else 0
        if op.name in _MOVES:
            return 0, 0
        if op.name in _TRANSCENDENTAL:
            return 0, out
        if op.name == "dot_general":
            (_, _), (contracted, _) = op.attrs["batching"], op.attrs["contracting"]
            return 2 * out * math.prod(op.operands[0].shape[d] for d in contracted), 0
        if op.name == "convolution":
            return 2 * _taps(op), 0
        if op.name == "fft":
            lengths = math.prod(op.attrs["lengths"])
            return 5 * out * math.log2(max(lengths, 2)), 0
        if op.name == "sort":
            n = op.operands[0].shape[op.attrs["dim"]]
            return op.operands[0].type.size * max(math.ceil(math.log2(max(n, 1))), 0), 0
        times = out
        if op.name == "reduce":
            times = op.operands[0].type.size - out
        elif op.name == "reduce_window":
            times = out * (math.prod(op.attrs["window"]) - 1)
        elif op.name == "scatter":
            times = op.operands[2].type.size
        return times * each[0], times * each[1]


def _taps(op: Op) -> int:
    """The products that a convolution adds up; those with padding are not counted."""
    a, (x, w), out = op.attrs, op.operands, op.results[0]
    x_dims, w_dims, out_dims = a["numbers"]
    taps = out.shape[out_dims[0]] * out.shape[out_dims[1]] * w.shape[w_dims[1]]
    for k, (low, _) in enumerate(a["padding"]):
        n, size, places = x.shape[x_dims[2 + k]], w.shape[w_dims[2 + k]], out.shape[out_dims[2 + k]]
        taps *= products_along(
            n, size, places, low, a["strides"][k], a["lhs_dilation"][k], a["rhs_dilation"][k]
        )
    return taps


def _bytes(op: Op) -> int:
    """Bytes that an operation reads and writes."""
    if op.name in ("constant", "optimization_barrier"):
        return 0
    total = lambda values: sum(_nbytes(v) for v in values)
    if op.name in _PARTS:
        return 2 * total(op.results) + total(op.operands[1:])
    if op.name == "dynamic_update_slice":
        return 2 * _nbytes(op.operands[1]) + total(op.operands[2:])
    return total(op.operands) + total(op.results)


def _nbytes(x: Value) -> int:
    return x.type.nbytes
