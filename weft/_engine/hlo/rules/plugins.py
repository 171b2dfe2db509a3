"""Rules in plain operations for primitives that PJRT plugins lack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.core.primitive import (
    CallbackOp,
    CollectiveOp,
    ConstraintOp,
    ElementwiseOp,
    ScanOp,
    SortOp,
)
from weft._engine.core.trace import typeof
from weft._engine.hlo.factorizations import banded, jacobi, lu, reflectors
from weft._engine.hlo.lowering import Rule, result_types, rule_of
from weft._engine.hlo.ops import HloBlock, HloValue, array_type, dtype_kind
from weft._engine.hlo.replicas import HOST_TARGET, ReplicaLowering, plugin_rule, refuse
from weft._engine.hlo.rules.elementwise import compute_in_wide_types
from weft._engine.hlo.rules.regions import participant_groups
from weft._engine.ir.collective_spec import collective_axes, spec_of
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.collective_blocks import axes_size
from weft._engine.ops.collective_rules import position, ppermute_p
from weft._engine.ops.comparison import select
from weft._engine.ops.dynamic_slicing import dynamic_index_in_dim
from weft._engine.ops.layout import broadcast_in_dim
from weft._engine.util import dtypes


def _common_rule(eqn: Eqn) -> Rule:
    """Return the rule of readable texts for an equation."""
    write = rule_of(eqn.primitive)
    if write is None:
        refuse(eqn, "has no form that a plugin compiles.")
    return write


def _module(b: HloBlock) -> ReplicaLowering:
    """Return the module that a block is part of."""
    assert isinstance(b.context, ReplicaLowering)
    return b.context


# --- shardings and layouts --------------------------------------------------------------------


@plugin_rule(ConstraintOp)
def _same(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    """Ignore a sharding: the program of one device is already partitioned."""
    return x


@plugin_rule("layout_constraint")
def _own_layout(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    """Ignore a layout: the plugin chooses the layouts of values inside a program."""
    return x


# --- narrow dtypes ----------------------------------------------------------------------------------------------------

#: exact elementwise operations, which every compiler has for all dtypes
_EXACT = frozenset(
    "copy name stop_gradient xla_metadata_value convert_element_type bitcast_convert_type select_n "
    "clamp eq ne lt le gt ge max min neg abs sign is_finite nextafter".split()
)


@plugin_rule(ElementwiseOp, ScanOp, SortOp)
def _of_any_dtype(b: HloBlock, eqn: Eqn, *args: HloValue) -> HloValue | list[HloValue]:
    """Compute functions of narrow floats in a wider dtype and round once.

    Integers of a few bits are sorted as bytes.
    """
    write = _common_rule(eqn)
    if any(_is_widened(eqn.primitive, x.dtype) for x in args):
        return compute_in_wide_types(b, eqn, args, write)
    return write(b, eqn, *args)


def _is_widened(primitive: Any, dtype: np.dtype) -> bool:
    kind, bits = dtype_kind(dtype), dtypes.itemsize_bits(dtype)
    if kind == "f":
        return bits <= 8 and primitive.name not in _EXACT
    return kind in "iu" and bits < 8 and isinstance(primitive, (ScanOp, SortOp))


@plugin_rule("argmax", "argmin")
def _arg_reduce(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue | list[HloValue]:
    write = _common_rule(eqn)
    if dtypes.itemsize_bits(x.dtype) < 8:
        return compute_in_wide_types(b, eqn, [x], write)
    return write(b, eqn, x)


# --- matrices ---------------------------------------------------------------------------------------------------------


def _composite_rule(fn: Callable) -> Callable:
    """Return a rule that writes `fn`, made of other primitives, as a function of the module."""

    def rule(b: HloBlock, eqn: Eqn, *args: HloValue) -> list[HloValue]:
        has_multiple_results = eqn.primitive.multiple_results
        run = lambda *xs: (
            list(fn(*xs, **eqn.params)) if has_multiple_results else [fn(*xs, **eqn.params)]
        )
        write = lambda block, *xs: block.context.inline_function(block, run, xs)
        key = tuple(sorted(eqn.params.items()))
        return b.context.call_shared(b, eqn.primitive.name, key, args, write)

    return rule


plugin_rule("lu")(_composite_rule(lu.lu))
plugin_rule("qr")(_composite_rule(reflectors.qr))
plugin_rule("eigh")(_composite_rule(jacobi.eigh))
plugin_rule("svd")(_composite_rule(jacobi.svd))
plugin_rule("hessenberg")(_composite_rule(reflectors.hessenberg))
plugin_rule("tridiagonal")(_composite_rule(reflectors.tridiagonal))
plugin_rule("ormqr")(_composite_rule(reflectors.ormqr))
plugin_rule("tridiagonal_solve")(_composite_rule(banded.tridiagonal_solve))


@plugin_rule("geqrf")
def _geqrf(b: HloBlock, eqn: Eqn, x: HloValue) -> list[HloValue]:
    types = result_types(eqn)
    if not x.type.size:
        return [b.full(t.shape, 0, t.dtype) for t in types]
    return _expand(b, "Qr", [x], types)


@plugin_rule("householder_product")
def _householder_product(b: HloBlock, eqn: Eqn, a: HloValue, taus: HloValue) -> HloValue:
    missing = a.shape[-1] - taus.shape[-1]
    if not a.type.size:
        return a
    if missing:
        none = (0,) * (taus.ndim - 1)
        full = array_type((*taus.shape[:-1], a.shape[-1]), taus.dtype)
        zero = b.constant(0, taus.dtype)
        taus = b.op(
            "pad", taus, zero, type=full, low=(*none, 0), high=(*none, missing), interior=(*none, 0)
        )
    return _expand(b, "ProductOfElementaryHouseholderReflectors", [a, taus], [a.type])[0]


def _expand(b: HloBlock, target: str, args: Sequence[HloValue], types: Sequence) -> list[HloValue]:
    """Write a custom call that XLA's compilers expand into operations."""
    return b.emit(
        "custom_call", args, types, target=target, backend_config={}, has_side_effect=False
    )


# --- collectives ------------------------------------------------------------------------------------------------------

#: platforms whose compilers have ragged exchanges between replicas; the CPU and TPU compilers abort
_RAGGED = ("cuda", "rocm")


@plugin_rule(CollectiveOp)
def _collective(b: HloBlock, eqn: Eqn, *args: HloValue) -> list[HloValue]:
    """Write a collective in a dtype that all platforms exchange, add, multiply and compare."""
    write = _common_rule(eqn)
    if not args:
        return [write(b, eqn)]
    types = result_types(eqn)
    if not any(t.size for t in types):  # StableHLO has no gathers along empty dims
        return [b.full(t.shape, 0, t.dtype) for t in types]
    carrier = _carrier(args[0].dtype, spec_of(eqn.primitive).reduces)
    results = write(b, eqn, *[b.convert(x, carrier) for x in args])
    results = [results] if isinstance(results, HloValue) else results
    return [b.convert(x, t.dtype) for x, t in zip(results, types)]


def _carrier(dtype: np.dtype, reduces: bool) -> np.dtype:
    """Return the dtype that a collective uses to carry elements of `dtype`.

    Elements of fewer than 8 bits are carried in whole bytes. Dtypes that some platform does not
    reduce are reduced in 32 bits; integer wraparound is the same.
    """
    kind, bits = dtype_kind(dtype), dtypes.itemsize_bits(dtype)
    if kind == "b":
        return np.dtype(np.uint32 if reduces else np.bool_)
    if kind in "iu" and (bits < 8 or (reduces and bits == 16)):
        return np.dtype(f"{kind}{4 if reduces else 1}")
    if kind == "f" and (bits < 8 or (reduces and bits == 8)):
        return np.dtype(np.float32 if reduces else np.float16)
    return dtype


@plugin_rule("pbroadcast")
def _broadcast(b: HloBlock, eqn: Eqn, x: HloValue) -> list[HloValue]:
    """Write a broadcast as permutations; each one doubles the number of positions with the value."""
    return b.context.inline_function(b, lambda x: [_broadcast_in_groups(x, **eqn.params)], [x])


def _broadcast_in_groups(
    x: Any, *, source: int, axis_name: Any, axis_index_groups: Any = None, **_: Any
) -> Any:
    """Return the value at position `source` of each group."""
    axes = collective_axes({"axis_name": axis_name})
    groups = axis_index_groups or [range(axes_size(axes))]
    orders = [[*group[source:], *group[:source]] for group in groups]
    here = position(axes)
    have = 1
    while have < len(orders[0]):
        sent = [
            (order[k], order[k + have])
            for order in orders
            for k in range(min(have, len(order) - have))
        ]
        came = ppermute_p.bind(x, axis_name=axes, perm=tuple(sent))
        receives = np.zeros(sum(map(len, orders)), np.bool_)
        receives[[to for _, to in sent]] = True
        mine = dynamic_index_in_dim(receives, here, 0, keepdims=False)
        x = select(broadcast_in_dim(mine, typeof(x).shape, ()), came, x)
        have *= 2
    return x


@plugin_rule("ragged_all_to_all")
def _ragged(b: HloBlock, eqn: Eqn, *args: HloValue) -> list[HloValue]:
    """Write one exchange where the platform has it; else all rows are sent to all positions."""
    if _module(b).platform not in _RAGGED:
        exchange = eqn.primitive.several
        return b.context.inline_function(b, lambda *xs: [exchange(*xs, **eqn.params)], args)
    b.context.channels += 1
    return b.emit(
        "custom_call",
        args,
        result_types(eqn),
        target="ragged_all_to_all",
        backend_config={},
        has_side_effect=False,
        groups=participant_groups(eqn, b.context.mesh.shape_tuple),
        channel=b.context.channels,
    )


# --- the host ---------------------------------------------------------------------------------------------------------


@plugin_rule("eig", "schur")
def _on_host(b: HloBlock, eqn: Eqn, *args: HloValue) -> list[HloValue]:
    """Write a call of the host, which computes the equation by its `reference`."""
    return _call_host(b, eqn, args, result_types(eqn))


@plugin_rule(CallbackOp)
def _callback(b: HloBlock, eqn: Eqn, *args: HloValue) -> list[HloValue]:
    """Write a call of the host, with the position of the device as first operand and first result.

    The result is the first operand of the next such call, so that calls run in program order.
    """
    (position,) = b.context.chain
    types = [position.type, *result_types(eqn)]
    position, *results = _call_host(b, eqn, [position, *args], types)
    b.context.chain = (position,)
    return results


def _call_host(
    b: HloBlock, eqn: Eqn, args: Sequence[HloValue], types: Sequence[ShapedArray]
) -> list[HloValue]:
    number_of = _module(b).host
    if number_of is None:
        refuse(eqn, "is computed on the host, which programs of this plugin do not call.")
    number, has_effect = number_of(eqn), bool(eqn.effects)
    return b.emit(
        "custom_call", args, types, target=HOST_TARGET, number=number, has_side_effect=has_effect
    )
