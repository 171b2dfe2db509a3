"""The records of a roofline analysis: the shape of a value, the context of a rule, and a cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from weft._engine.core.primitive import Primitive
from weft._engine.ir.types import ShapedArray

__all__ = ["RooflineResult", "RooflineRuleContext", "RooflineShape"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineShape:
    """Shape and dtype of a value.

    >>> shape = RooflineShape.from_aval(weft.typeof(wnp.ones((3, 4))))
    >>> shape.size, shape.bytes
    (12, 48)
    """

    shape: tuple[int, ...]
    dtype: Any

    @classmethod
    def from_aval(cls, aval: Any) -> RooflineShape:
        """Return the shape of values of type `aval`; TypeError if it is not an array type."""
        if not isinstance(aval, ShapedArray):
            raise TypeError(
                f"RooflineShape.from_aval: expected the type of an array, a ShapedArray, got {type(aval).__name__}."
            )
        return cls(shape=aval.shape, dtype=aval.dtype)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Number of bytes of a value."""
        return self.size * self.dtype.itemsize

    @classmethod
    def total_bytes(cls, avals: Iterable[Any]) -> int:
        """Return the number of bytes of one value of each type.

        >>> RooflineShape.total_bytes([weft.typeof(wnp.ones(3)), weft.typeof(wnp.ones((), np.int8))])
        13
        """
        return sum(cls.from_aval(aval).bytes for aval in avals)


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineRuleContext:
    """The context of an operation for a rule, in addition to its parameters.

    `primitive`: the operation. `avals_in`, `avals_out`: types of its operands and results. `mesh`: the mesh of its axes, or
    None. `pin_lhs_in_vmem`, `pin_rhs_in_vmem`: True if the first operand and the result, or the second operand, of matrix
    products stay on the chip. `name_stack`: the names of the enclosing functions. `jaxpr_eqn_ctx`: settings of the trace.
    """

    name_stack: Any
    primitive: Primitive
    avals_in: list[Any]
    avals_out: list[Any]
    jaxpr_eqn_ctx: Any
    mesh: Any
    pin_lhs_in_vmem: bool
    pin_rhs_in_vmem: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineResult:
    """The cost of a program. Results can be added, and multiplied by a factor.

    `flops`, `hbm_bytes`: operations of matrix products, and the bytes of memory that they read and write, assuming that all
    other operations are fused into them. `unfused_flops`, `unfused_hbm_bytes`: the same for all operations, each run alone.
    `ici_bytes`, `ici_latency`: by mesh axis, the bytes over the busiest link, and the number of consecutive hops.
    `peak_hbm_bytes`: the maximum of the bytes of live values between operations: a result may reuse an operand's memory.

    >>> a = RooflineResult(flops=3, ici_bytes={"x": 8}, peak_hbm_bytes=16)
    >>> b = a + 2 * RooflineResult(flops=5, ici_bytes={"x": 1, "y": 2}, peak_hbm_bytes=4)
    >>> b.flops, sorted(b.ici_bytes.items()), b.peak_hbm_bytes
    (13, [('x', 10), ('y', 4)], 16)
    """

    flops: int = 0
    unfused_flops: int = 0
    ici_bytes: dict[str, int] = field(default_factory=dict)
    ici_latency: dict[str, int] = field(default_factory=dict)
    hbm_bytes: int = 0
    peak_hbm_bytes: int = 0
    unfused_hbm_bytes: int = 0

    @classmethod
    def zeros(cls) -> RooflineResult:
        """Return a zero cost."""
        return cls()

    def __add__(self, other: RooflineResult) -> RooflineResult:
        """Return the cost of one program after the other; the peak is the maximum."""
        return _join(self, other, lambda a, b: a + b)

    def __mul__(self, constant: int | float) -> RooflineResult:
        """Return all figures times `constant`, rounded toward zero."""
        times = lambda figure: int(figure * constant)
        by_axis = lambda figures: {axis: times(figure) for axis, figure in figures.items()}
        return RooflineResult(
            flops=times(self.flops),
            unfused_flops=times(self.unfused_flops),
            ici_bytes=by_axis(self.ici_bytes),
            ici_latency=by_axis(self.ici_latency),
            hbm_bytes=times(self.hbm_bytes),
            peak_hbm_bytes=times(self.peak_hbm_bytes),
            unfused_hbm_bytes=times(self.unfused_hbm_bytes),
        )

    __rmul__ = __mul__


def largest(results: Iterable[RooflineResult]) -> RooflineResult:
    """Return the maximum of each figure: an upper bound on the cost of alternatives."""
    maximum = RooflineResult()
    for result in results:
        maximum = _join(maximum, result, max)
    return maximum


def _join(x: RooflineResult, y: RooflineResult, join: Callable[[int, int], int]) -> RooflineResult:
    by_axis = lambda a, b: {axis: join(a.get(axis, 0), b.get(axis, 0)) for axis in {**a, **b}}
    return RooflineResult(
        flops=join(x.flops, y.flops),
        unfused_flops=join(x.unfused_flops, y.unfused_flops),
        ici_bytes=by_axis(x.ici_bytes, y.ici_bytes),
        ici_latency=by_axis(x.ici_latency, y.ici_latency),
        hbm_bytes=join(x.hbm_bytes, y.hbm_bytes),
        peak_hbm_bytes=max(x.peak_hbm_bytes, y.peak_hbm_bytes),
        unfused_hbm_bytes=join(x.unfused_hbm_bytes, y.unfused_hbm_bytes),
    )
