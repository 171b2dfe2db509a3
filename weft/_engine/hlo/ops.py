"""XLA operations as data, and the blocks that hold them.

In:   calls from the rules in `weft._engine.hlo.rules`.
Out:  a `HloBlock` of `HloOp`s on typed `HloValue`s. Regions of operations are blocks too, and may read
      values of the enclosing blocks.
Laws: names follow StableHLO; a prefix (`chlo.erf_inv`, `func.call`) names another dialect.
      Attributes are Python values, which each text format prints in its own way.
Next: `lowering` builds modules from jaxprs; `stablehlo` and `hlo_text` print them.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import numpy as np

from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.symbolic import SymbolicDim
from weft._engine.ir.symbolic.polynomials import Atom, Polynomial
from weft._engine.ir.types import ShapedArray
from weft._engine.util import dtypes
from weft._engine.util.record import field, record
from weft._engine.util.source import Metadata, with_metadata

_BOOL = np.dtype(np.bool_)


def array_type(shape: Sequence[int], dtype: Any) -> ShapedArray:
    """Return the type of a value: shape and dtype alone.

    Types without values, such as tangents of integers, become bools.
    """
    return ShapedArray(tuple(shape), _BOOL if dtype == dtypes.float0 else dtype)


def is_static(sizes: Iterable[Any]) -> bool:
    """Return whether no size is symbolic."""
    return not any(isinstance(n, SymbolicDim) for n in sizes)


class HloValue:
    """A result of an operation, or an argument of a block."""

    __slots__ = ("type",)

    def __init__(self, type_: ShapedArray):
        self.type = type_

    shape = property(lambda self: self.type.shape)
    dtype = property(lambda self: self.type.dtype)
    ndim = property(lambda self: self.type.ndim)


@record(eq=False)
class HloOp:
    """`results = name[attrs] operands {regions}`.

    `place` is the origin in the program: (source line, name of the primitive). `metadata` holds the
    attributes that the user gave the operation.
    """

    name: str
    operands: tuple[HloValue, ...]
    results: tuple[HloValue, ...]
    attrs: dict[str, Any]
    regions: tuple[HloBlock, ...]
    place: tuple[Any, str] | None
    metadata: Metadata = ()


@record(eq=False, frozen=False)
class HloFunction:
    """A function of a module; attributes of arguments and results are texts by name."""

    name: str
    body: HloBlock
    public: bool = False
    arg_attrs: list[dict[str, str]] = field(default_factory=list)
    result_attrs: list[dict[str, str]] = field(default_factory=list)
    arg_names: list[str] = field(default_factory=list)


class HloContext(ABC):
    """State that the blocks of a module share.

    It holds the place and attributes of the current operation, the set of operations that the text
    format has, and the functions of the module. `mesh` is the mesh of the enclosing manual axes, or
    None.
    """

    def __init__(self, chlo: Container[str] | None = None):
        self.place: tuple[Any, str] | None = None
        self.metadata: Metadata = ()
        self._chlo = chlo  # the CHLO functions that the text format has; None: all
        self.meshes: dict[str, str] = {}  # the names of meshes in the module, by their texts
        self.sizes: list[int] = []  # number of devices of each mesh in `meshes`
        # the names in symbolic sizes, as scalars of the main function
        self.variables: dict[str, HloValue] = {}
        self.around: Metadata = ()  # attributes of enclosing calls that are inlined
        self.channels = 0
        self.mesh: Any = None  # sizes of its axes: `shape_tuple`
        # the value that orders host calls, if any; regions with such calls carry it
        self.chain: tuple[HloValue, ...] = ()

    def device_number(self, b: HloBlock) -> HloValue:
        """Write the number of the device that runs the program, a scalar uint32."""
        return b.emit("partition_id", (), [array_type((), np.uint32)])[0]

    def next_channel(self) -> int | None:
        """Return the channel of a new collective, or None where collectives have no channels."""
        self.channels += 1
        return self.channels

    def chain_in(self, programs: Iterable[Jaxpr]) -> tuple[HloValue, ...]:
        """Return the chain if calls of the host are ordered and one of `programs` has such calls."""
        return ()

    @abstractmethod
    def call(
        self, b: HloBlock, jaxpr: Jaxpr, name: str, args: Sequence[HloValue]
    ) -> list[HloValue]:
        """Write a call of `jaxpr` as a function; the function is written once.

        With symbolic sizes the program is inlined, because its sizes are values of the caller.
        """

    @abstractmethod
    def call_shared(
        self,
        b: HloBlock,
        name: str,
        key: Any,
        args: Sequence[HloValue],
        fill: Callable[..., Sequence[HloValue]],
    ) -> list[HloValue]:
        """Call a function that `fill(block, *args)` writes once for each `key` and argument types."""

    @abstractmethod
    def inline(self, b: HloBlock, jaxpr: Jaxpr, args: Sequence[HloValue]) -> list[HloValue]:
        """Write the operations of `jaxpr` in block `b`; return its results."""

    @abstractmethod
    def inline_function(
        self, b: HloBlock, fn: Callable[..., Sequence], args: Sequence[HloValue]
    ) -> list[HloValue]:
        """Write the operations that `fn` binds on values typed like `args`, for the current equation."""

    def has(self, name: str) -> bool:
        """Return whether the text format has this operation."""
        return self._chlo is None or not name.startswith("chlo.") or name in self._chlo


class HloBlock:
    """Operations in order, with their arguments and results."""

    def __init__(self, context: HloContext, args: Sequence[ShapedArray] = ()):
        self.context = context
        self.args = [HloValue(t) for t in args]
        self.ops: list[HloOp] = []
        self.results: list[HloValue] = []

    # --- operations

    def emit(
        self,
        name: str,
        operands: Sequence[HloValue],
        types: Sequence[ShapedArray],
        regions: Sequence[HloBlock] = (),
        **attrs: Any,
    ) -> list[HloValue]:
        """Append an operation; return its results."""
        results = tuple([HloValue(t) for t in types])
        metadata = self.context.metadata if name != "constant" else ()
        self.ops.append(
            HloOp(
                name, tuple(operands), results, attrs, tuple(regions), self.context.place, metadata
            )
        )
        return list(results)

    def tag(self, x: HloValue, metadata: Metadata) -> None:
        """Add attributes to the operation of this block whose result is `x`, if there is one."""
        for i, op in reversed(list(enumerate(self.ops))):
            if x in op.results:
                self.ops[i] = HloOp(
                    op.name,
                    op.operands,
                    op.results,
                    op.attrs,
                    op.regions,
                    op.place,
                    with_metadata(op.metadata, metadata),
                )
                return

    def op(
        self, name: str, *operands: HloValue, type: ShapedArray | None = None, **attrs: Any
    ) -> HloValue:
        """Append an operation with one result, by default of the first operand's type."""
        if name in ("maximum", "minimum") and dtype_kind(operands[0].dtype) == "c":
            return self._complex_extremum(name, *operands)
        return self.emit(name, operands, [operands[0].type if type is None else type], **attrs)[0]

    def _complex_extremum(self, name: str, x: HloValue, y: HloValue) -> HloValue:
        """Select by the real part, and among equal real parts by the imaginary part.

        XLA's own operation compares real parts alone.
        """
        sign = "GT" if name == "maximum" else "LT"
        part = array_type(x.shape, np.float64 if x.dtype.itemsize == 16 else np.float32)
        re, im = [[self.op(name, z, type=part) for z in (x, y)] for name in ("real", "imag")]
        is_first = self.op(
            "select", self.compare("EQ", *re), self.compare(sign, *im), self.compare(sign, *re)
        )
        return self.op("select", is_first, x, y, type=x.type)

    def region(
        self, types: Sequence[ShapedArray], fill: Callable[..., Sequence[HloValue] | HloValue]
    ) -> HloBlock:
        """Return a region whose arguments have `types` and that `fill(block, *args)` writes.

        Attributes that the user gave the operation are not given to the operations in its regions.
        """
        block = HloBlock(self.context, types)
        outer, self.context.metadata = self.context.metadata, ()
        results = fill(block, *block.args)
        self.context.metadata = outer
        block.results = [results] if isinstance(results, HloValue) else list(results)
        return block

    # --- helpers for rules

    def constant(self, value: Any, dtype: Any = None) -> HloValue:
        """Return a constant array."""
        value = np.asarray(value) if dtype is None else np.asarray(value).astype(dtype)
        return self.emit("constant", (), [array_type(value.shape, value.dtype)], value=value)[0]

    def full(self, shape: Sequence[int], value: Any, dtype: Any) -> HloValue:
        """Return an array of equal elements."""
        if not is_static(shape):
            return self.broadcast(self.constant(value, dtype), shape, ())
        return self.constant(np.broadcast_to(np.asarray(value).astype(dtype), shape))

    def like(self, x: HloValue, value: Any) -> HloValue:
        """Return `value` in the type of `x`."""
        return self.full(x.shape, value, x.dtype)

    def convert(self, x: HloValue, dtype: Any) -> HloValue:
        """Return `x` in another dtype; as bool, nonzero elements are True."""
        if x.dtype == dtype:
            return x
        if np.dtype(dtype) == _BOOL:
            return self.compare("NE", x, self.like(x, 0))
        if dtypes.is_complex(x.dtype) and not dtypes.is_complex(np.dtype(dtype)):
            x = self.real(x)
        return self.op("convert", x, type=array_type(x.shape, dtype)) if x.dtype != dtype else x

    def real(self, x: HloValue, part: str = "real") -> HloValue:
        """Return the real or imaginary part of a complex value."""
        return self.op(part, x, type=array_type(x.shape, dtypes.to_real_dtype(x.dtype)))

    def compare(self, direction: str, x: HloValue, y: HloValue, *, total: bool = False) -> HloValue:
        """Compare elements; floats in their total order if `total`."""
        kind = {"f": "FLOAT", "c": "FLOAT", "i": "SIGNED"}.get(dtype_kind(x.dtype), "UNSIGNED")
        return self.op(
            "compare",
            x,
            y,
            type=array_type(x.shape, _BOOL),
            direction=direction,
            kind="TOTALORDER" if total else kind,
        )

    def broadcast(
        self, x: HloValue, shape: Sequence[int], dims: Sequence[int] | None = None
    ) -> HloValue:
        """Broadcast `x` with its dims at `dims` of `shape`, by default at the last ones."""
        shape = tuple(shape)
        dims = tuple(range(len(shape) - x.ndim, len(shape))) if dims is None else tuple(dims)
        if shape == x.shape and dims == tuple(range(x.ndim)):
            return x
        type_ = array_type(shape, x.dtype)
        if not is_static(shape):
            return self.op(
                "dynamic_broadcast_in_dim", x, self.size_vector(shape), type=type_, dims=dims
            )
        return self.op("broadcast_in_dim", x, type=type_, dims=dims)

    def reshape(self, x: HloValue, shape: Sequence[int]) -> HloValue:
        if x.shape == tuple(shape):
            return x
        if not is_static(shape):
            return self.op(
                "dynamic_reshape", x, self.size_vector(shape), type=array_type(shape, x.dtype)
            )
        return self.op("reshape", x, type=array_type(shape, x.dtype))

    def transpose(self, x: HloValue, permutation: Sequence[int]) -> HloValue:
        shape = tuple(x.shape[d] for d in permutation)
        return self.op("transpose", x, type=array_type(shape, x.dtype), dims=tuple(permutation))

    def iota(self, shape: Sequence[int], dtype: Any, dim: int) -> HloValue:
        if not is_static(shape):
            return self.op(
                "dynamic_iota", self.size_vector(shape), type=array_type(shape, dtype), dim=dim
            )
        return self.emit("iota", (), [array_type(shape, dtype)], dim=dim)[0]

    def slice(
        self,
        x: HloValue,
        starts: Sequence[int],
        limits: Sequence[int],
        strides: Sequence[int] | None = None,
    ) -> HloValue:
        steps = (1,) * x.ndim if strides is None else tuple(strides)
        shape = tuple(-(-(hi - lo) // s) for lo, hi, s in zip(starts, limits, steps))
        if not is_static((*starts, *limits)):
            bounds = [self.size_vector(sizes) for sizes in (starts, limits, steps)]
            return self.op("real_dynamic_slice", x, *bounds, type=array_type(shape, x.dtype))
        return self.op(
            "slice",
            x,
            type=array_type(shape, x.dtype),
            starts=tuple(starts),
            limits=tuple(limits),
            strides=steps,
        )

    def reduce(
        self, xs: Sequence[HloValue], inits: Sequence[HloValue], axes: Sequence[int], fill: Callable
    ) -> list[HloValue]:
        """Combine `xs` along `axes` by the region that `fill(block, *earlier, *later)` writes."""
        types = [array_type((), x.dtype) for x in xs]
        shape = tuple(n for d, n in enumerate(xs[0].shape) if d not in axes)
        return self.emit(
            "reduce",
            (*xs, *inits),
            [array_type(shape, x.dtype) for x in xs],
            [self.region((*types, *types), fill)],
            dims=tuple(axes),
        )

    # --- sizes, constant or symbolic

    def size(self, n: Any, dtype: Any = np.int64) -> HloValue:
        """Return a size as a scalar."""
        return (
            self.convert(self._polynomial(n.expression), dtype)
            if isinstance(n, SymbolicDim)
            else self.constant(n, dtype)
        )

    def size_vector(self, sizes: Sequence[Any], dtype: Any = np.int64) -> HloValue:
        """Return sizes as a vector."""
        if is_static(sizes):
            return self.constant(np.array(sizes, np.int64), dtype)
        parts = [self.reshape(self.size(n, dtype), (1,)) for n in sizes]
        return (
            parts[0]
            if len(parts) == 1
            else self.op("concatenate", *parts, type=array_type((len(parts),), dtype), dim=0)
        )

    def _polynomial(self, polynomial: Polynomial) -> HloValue:
        """Return a polynomial of sizes in 64 bits.

        `mod(n, 2**32)` occurs in programs that split a size into two words.
        """
        total = None
        for monomial, factor in polynomial:
            values = [self._atom(atom) for atom, power in monomial for _ in range(power)]
            if factor != 1 or not values:
                values.append(self.constant(factor, np.int64))
            term = functools.reduce(lambda x, y: self.op("multiply", x, y), values)
            total = term if total is None else self.op("add", total, term)
        return self.constant(0, np.int64) if total is None else total

    def _atom(self, atom: Atom) -> HloValue:
        if isinstance(atom, str):
            return self.context.variables[atom]
        name, x, y = atom[0], self._polynomial(atom[1]), self._polynomial(atom[2])
        if name in ("max", "min"):
            return self.op(f"{name}imum", x, y)
        # has the sign of the divisor
        remainder = self.op("remainder", self.op("add", self.op("remainder", x, y), y), y)
        return (
            remainder if name == "mod" else self.op("divide", self.op("subtract", x, remainder), y)
        )


def metadata_texts(op: HloOp) -> dict[str, str]:
    """Return the attributes that the user gave an operation, as texts by key."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in op.metadata
    }


def dtype_kind(dtype: Any) -> str:
    """Return the kind `b`, `i`, `u`, `f` or `c` of a dtype, also of narrow dtypes."""
    if dtypes.issubdtype(dtype, np.floating):
        return "f"
    if dtypes.issubdtype(dtype, np.unsignedinteger):
        return "u"
    return "i" if dtypes.issubdtype(dtype, np.signedinteger) else np.dtype(dtype).kind


def is_uniform(value: np.ndarray) -> bool:
    """Return whether all elements have the same bits."""
    # drop dims of stride 0, whose elements are the same memory
    value = value[tuple([slice(None) if step else slice(1) for step in value.strides])]
    raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8).reshape(value.size, -1)
    return bool((raw == raw[0]).all())
