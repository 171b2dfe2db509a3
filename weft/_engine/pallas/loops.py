"""Programs of kernels over their grids, in weft's own operations.

In:   a `BlockKernel` and its operands.
Out:  its results. If the index maps prove that blocks are independent, the iterations that own a
      block each are steps of a loop without carry, which is compiled to parallel tasks; the other
      grid axes are an inner loop, which carries the block. Otherwise one loop runs over the whole
      grid, with the arrays carried and updated in place.
Laws: an array is padded if its last block exceeds it. Uninitialized memory holds NaN, or the least
      integer. References of inputs may be written too: then all iterations see the change, and the
      grid is one loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.control.call import jit_p
from weft._engine.control.cond import cond_p
from weft._engine.control.loops import fori_loop
from weft._engine.control.scan import scan
from weft._engine.core.interpret import evaluate, evaluate_with
from weft._engine.core.primitive import ElementwiseOp
from weft._engine.core.stage import stage
from weft._engine.core.trace import Tracer, typeof
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var
from weft._engine.ir.rewrite import dce, is_call, used_vars
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.arithmetic import div, mul, rem
from weft._engine.ops.casting import convert_element_type_p
from weft._engine.ops.dynamic_slicing import dynamic_slice_p, dynamic_update_slice_p
from weft._engine.ops.layout import broadcast_in_dim, reshape, squeeze, transpose
from weft._engine.ops.slicing import pad, slice as slice_p
from weft._engine.pallas.blocks import BlockKernel, BlockMapping
from weft._engine.pallas.inside import blank_value
from weft._engine.pallas.specs import Blocked, Squeezed, block_size
from weft._engine.util import dtypes
from weft._engine.util.record import record

ZERO = np.int32(0)


def program_of(kernel: BlockKernel, avals: Sequence[ShapedArray]) -> Jaxpr:
    """Return the program that runs a kernel on operands of these types."""
    return stage(
        lambda *operands: run(kernel, operands),
        [ShapedArray(a.shape, a.dtype) for a in avals],
        kernel.name,
    )


def run(kernel: BlockKernel, operands: Sequence[Any]) -> list:
    """Return the results of a kernel.

    Operands are the traced grid sizes, the prefetched scalars and the inputs.
    """
    traced = sum(n is None for n in kernel.grid)
    sizes = iter(operands[:traced])
    grid = [next(sizes) if n is None else n for n in kernel.grid]
    scalars, ins = operands[traced : traced + kernel.scalars], operands[traced + kernel.scalars :]
    first = {out: ins[i - kernel.scalars] for i, out in kernel.aliases}
    ins = [_pad(m, x, kernel.blank) for m, x in zip(kernel.ins, ins)]
    plan = None if traced else _independent(kernel)
    if plan is not None:
        outs = _run_tiles(kernel, plan, scalars, ins, first)
    else:
        outs = [
            _pad(m, first[i], kernel.blank)
            if i in first
            else blank_value(_padded_type(m), kernel.blank)
            for i, m in enumerate(kernel.outs)
        ]
        outs = _run_in_order(kernel, grid, scalars, ins, outs)
    return [_trim(m, y) for m, y in zip(kernel.outs, outs)]


# ---- blocks


def _padded_type(m: BlockMapping) -> ShapedArray:
    return ShapedArray(
        tuple([n + low + high for n, (low, high) in zip(m.aval.shape, m.padding)]), m.aval.dtype
    )


def _pad(m: BlockMapping, x: Any, blank: str) -> Any:
    if all(p == (0, 0) for p in m.padding):
        return x
    return pad(x, blank_value(ShapedArray((), m.aval.dtype), blank), [(*p, 0) for p in m.padding])


def _trim(m: BlockMapping, x: Any) -> Any:
    """Return `x` without the padding."""
    if typeof(x).shape == m.aval.shape:
        return x
    begins = [low for low, _ in m.padding]
    return slice_p(x, begins, [b + n for b, n in zip(begins, m.aval.shape)])


def _starts(m: BlockMapping, ids: Sequence[Any], mapped: int, scalars: Sequence[Any]) -> list:
    """Return the start of the block of an iteration."""

    numbers = evaluate(m.index, *ids[mapped:], *scalars)
    starts = [ids[axis] for axis in m.lead]
    for dim, number in zip(m.dims, numbers):
        size = block_size(dim)
        if isinstance(dim, Blocked) and size != 1:
            number = (
                np.int32(number * size)
                if isinstance(number, (int, np.integer))
                else mul(number, np.int32(size))
            )
        starts.append(number)
    return starts


def _read_block(m: BlockMapping, x: Any, starts: Sequence[Any]) -> Any:
    """Return the block of `x` that begins at `starts`, as the kernel sees it."""
    if m.sizes != typeof(x).shape:
        x = dynamic_slice_p.bind(
            x, *_in_range(starts, typeof(x).shape, m.sizes), slice_sizes=m.sizes
        )
    return _view_block(m, x)


def _view_block(m: BlockMapping, x: Any) -> Any:
    gone = (
        *range(len(m.lead)),
        *(len(m.lead) + d for d, dim in enumerate(m.dims) if isinstance(dim, Squeezed)),
    )
    return squeeze(x, gone) if gone else x


def _write_block(m: BlockMapping, x: Any, block: Any, starts: Sequence[Any]) -> Any:
    """Return `x` with the block at `starts` replaced."""
    kept_dims = [len(m.lead) + d for d, dim in enumerate(m.dims) if not isinstance(dim, Squeezed)]
    if len(kept_dims) != len(m.sizes):
        block = broadcast_in_dim(block, m.sizes, tuple(kept_dims))
    return (
        block
        if m.sizes == typeof(x).shape
        else dynamic_update_slice_p.bind(x, block, *_in_range(starts, typeof(x).shape, m.sizes))
    )


def _in_range(starts: Sequence[Any], shape: Sequence[int], sizes: Sequence[int]) -> list:
    """Return the starts of a window; 0 along dims that it fills."""
    return [
        ZERO if n == size else np.int32(s) if isinstance(s, int) else s
        for s, n, size in zip(starts, shape, sizes)
    ]


def _unravel(number: Any, sizes: Sequence[Any]) -> list:
    """Return the grid indices of iteration `number`; the last axis is the fastest."""

    ids: list = []
    for n, size in enumerate(reversed(list(sizes))):
        if isinstance(size, int) and size == 1:
            ids.append(ZERO)
            continue
        of_type = np.int32(size) if isinstance(size, int) else size
        ids.append(number if n == len(sizes) - 1 else rem(number, of_type))
        number = div(number, of_type)
    return ids[::-1]


# ---- one iteration after another


def _step(
    kernel: BlockKernel,
    ids: Sequence[Any],
    grid: Sequence[Any],
    scalars: Sequence[Any],
    ins: Sequence[Any],
    outs: Sequence[Any],
    scratch: Sequence[Any],
) -> list[list]:
    """Run the kernel on blocks. Return the new scalars, blocks and scratch memory."""
    sizes = [np.int32(n) if isinstance(n, int) else n for n in grid[kernel.mapped :]]
    after = _evaluate_known(
        kernel.body, *ids[kernel.mapped :], *sizes, *scalars, *ins, *outs, *scratch
    )
    parts, at = [], 0
    for part in (scalars, ins, outs, scratch):
        parts.append(after[at : at + len(part)])
        at += len(part)
    return parts


def _evaluate_known(jaxpr: Jaxpr, *args: Any) -> list:
    """Evaluate a program with constant folding.

    Known conditions select their branch while tracing.
    """
    return evaluate_with(_bind_known, jaxpr, args)


def _bind_known(eqn: Eqn, args: list) -> Sequence:
    primitive, params = eqn.primitive, eqn.params
    if is_call(eqn) and primitive is jit_p:
        return _evaluate_known(params["jaxpr"], *args)
    if primitive is cond_p and not isinstance(args[0], Tracer):
        branches = params["branches"]
        return _evaluate_known(branches[min(max(int(args[0]), 0), len(branches) - 1)], *args[1:])
    if isinstance(primitive, ElementwiseOp) and not any(
        isinstance(x, Tracer) or np.ndim(x) for x in args
    ):
        avals = [a.aval for a in eqn.invars]
        if not any(dtypes.is_extended(a.dtype) for a in avals):
            computed = primitive.reference(
                *[np.asarray(x, a.dtype) for x, a in zip(args, avals)], **params
            )
            return [np.asarray(computed, eqn.outvars[0].aval.dtype)[()]]
    outs = primitive.bind(*args, **params)
    return outs if primitive.multiple_results else [outs]


def _scratch(kernel: BlockKernel) -> list:
    return [
        blank_value(aval, "zero" if is_zero else kernel.blank) for aval, is_zero in kernel.scratch
    ]


def _find_written_operands(kernel: BlockKernel) -> tuple[list[bool], list[bool]]:
    """Return which prefetched scalars and which inputs the kernel writes."""
    lead = 2 * (len(kernel.grid) - kernel.mapped)
    operand_vars = kernel.body.invars[lead : lead + kernel.scalars + len(kernel.ins)]
    changed = [out is not var for var, out in zip(operand_vars, kernel.body.outvars)]
    return changed[: kernel.scalars], changed[kernel.scalars :]


def _run_in_order(
    kernel: BlockKernel,
    grid: Sequence[Any],
    scalars: Sequence[Any],
    ins: Sequence[Any],
    outs: Sequence[Any],
) -> list:
    """Run the grid as one loop that carries whole arrays."""
    wrote_scalars, wrote_ins = _find_written_operands(kernel)

    def step(number: Any, state: tuple) -> tuple:
        scalars, ins, outs, scratch = state
        ids = _unravel(number, grid)
        in_starts, out_starts = (
            [_starts(m, ids, kernel.mapped, scalars) for m in some]
            for some in (kernel.ins, kernel.outs)
        )
        blocks = [_read_block(m, x, s) for m, x, s in zip(kernel.ins, ins, in_starts)]
        targets = [_read_block(m, y, s) for m, y, s in zip(kernel.outs, outs, out_starts)]
        new_scalars, blocks, targets, scratch = _step(
            kernel, ids, grid, scalars, blocks, targets, scratch
        )
        new_ins = [
            _write_block(m, x, b, s) if w else x
            for m, x, b, s, w in zip(kernel.ins, ins, blocks, in_starts, wrote_ins)
        ]
        outs = [
            _write_block(m, y, b, s) for m, y, b, s in zip(kernel.outs, outs, targets, out_starts)
        ]
        return (
            [new if w else old for new, old, w in zip(new_scalars, scalars, wrote_scalars)],
            new_ins,
            outs,
            scratch,
        )

    if all(isinstance(n, int) for n in grid):
        return _repeat(
            math.prod(grid), step, (list(scalars), list(ins), list(outs), _scratch(kernel))
        )[2]
    count: Any = np.int32(1)
    for n in grid:
        count = count * n
    return fori_loop(
        np.int32(0), count, step, (list(scalars), list(ins), list(outs), _scratch(kernel))
    )[2]


def _repeat(count: int, step: Callable, state: Any) -> Any:
    """Apply `step(number, state)` for all numbers below `count`, and return the last state."""
    if count == 1:
        return step(ZERO, state)
    return fori_loop(np.int32(0), np.int32(count), step, state)


# ---- independent blocks


@record(eq=False)
class _GridPlan:
    """Grid axes whose iterations own a block each, and the other axes.

    It has also the axis, or None, that indexes each dim of each output.
    """

    own: tuple[int, ...]
    rest: tuple[int, ...]
    indexed: tuple[tuple[int | None, ...], ...]


def _independent(kernel: BlockKernel) -> _GridPlan | None:
    """Return the division of the grid into independent parts, or None."""
    if kernel.body.effects or any(map(any, _find_written_operands(kernel))) or not kernel.outs:
        return None
    axes = [_indexed_by(kernel, m) for m in kernel.outs]
    aliased = {out for _, out in kernel.aliases}
    own = []
    for axis, size in enumerate(kernel.grid):
        if size > 1 and all(
            _owns(m, dims, axis, size, i in aliased)
            for i, (m, dims) in enumerate(zip(kernel.outs, axes))
        ):
            own.append(axis)
    other_axes = tuple([axis for axis in range(len(kernel.grid)) if axis not in own])
    if not own or not _is_scratch_private(kernel, own, other_axes):
        return None
    return _GridPlan(
        tuple(own),
        other_axes,
        tuple([tuple([d if d in own else None for d in dims]) for dims in axes]),
    )


def _indexed_by(kernel: BlockKernel, m: BlockMapping) -> tuple[int | None, ...]:
    """Return, for each dim of an array, the grid axis that is its block number, or None."""
    numbers = {
        v: kernel.mapped + i
        for i, v in enumerate(m.index.invars[: len(kernel.grid) - kernel.mapped])
    }
    for eqn in m.index.eqns:
        if eqn.primitive is convert_element_type_p and eqn.invars[0] in numbers:
            numbers[eqn.outvars[0]] = numbers[eqn.invars[0]]
    of_dims = [
        numbers.get(a) if isinstance(a, Var) and isinstance(dim, (Blocked, Squeezed)) else None
        for a, dim in zip(m.index.outvars, m.dims)
    ]
    return (*m.lead, *of_dims)


def _owns(m: BlockMapping, dims: Sequence[int | None], axis: int, size: int, aliased: bool) -> bool:
    """Return True if each index along a grid axis has its own blocks."""
    if list(dims).count(axis) != 1:
        return False
    dim = list(dims).index(axis)
    blocks = _padded_type(m).shape[dim] // m.sizes[dim]
    return size == blocks or (size < blocks and not aliased)


def _is_scratch_private(kernel: BlockKernel, own: Sequence[int], rest: Sequence[int]) -> bool:
    """Return True if scratch memory passes no value between parts.

    The user declares it, or the first iteration of a part does not read it.
    """
    if not kernel.scratch or set(own) <= kernel.parallel:
        return True
    body, n = kernel.body, len(kernel.grid) - kernel.mapped
    free = [i for i in range(n) if kernel.mapped + i in own]

    def first(*args: Any) -> list:
        ids: list = [ZERO] * n
        for i, x in zip(free, args):
            ids[i] = x
        sizes = [np.int32(size) for size in kernel.grid[kernel.mapped :]]
        return _evaluate_known(body, *ids, *sizes, *args[len(free) :])

    avals = body.in_avals
    known = dce(stage(first, [*[avals[i] for i in free], *avals[2 * n :]], kernel.name))
    memory = known.invars[len(known.invars) - len(kernel.scratch) :]
    return not used_vars(known).intersection(memory)


def _fixed_inputs(kernel: BlockKernel, plan: _GridPlan, rest_count: int) -> list[bool]:
    """Return for each input whether its block is the same for a whole part of the grid."""
    axes = [a - kernel.mapped for a in plan.rest]
    return [rest_count == 1 or not _depends(m, axes) for m in kernel.ins]


def _with_indices(ids: list, axes: Sequence[int], number: Any, sizes: list[int]) -> list:
    """Return `ids` with the indices along `axes` of the part `number` of a grid of `sizes`."""
    result = list(ids)
    for axis, index in zip(axes, _unravel(number, sizes)):
        result[axis] = index
    return result


def _slab_starts(starts: Sequence, dims: Sequence) -> list:
    """Return the starts of a block within its slab, which begins at the block along indexed dims."""
    return [ZERO if d is not None else s for s, d in zip(starts, dims)]


def _run_tiles(
    kernel: BlockKernel,
    plan: _GridPlan,
    scalars: Sequence[Any],
    ins: Sequence[Any],
    first: dict[int, Any],
) -> list:
    """Run the grid as a loop over independent parts.

    In each part, an inner loop runs over the other axes.
    """
    grid = kernel.grid
    own_sizes, rest_sizes = [grid[a] for a in plan.own], [grid[a] for a in plan.rest]
    rest_count = math.prod(rest_sizes)
    shapes = [_slab(m, dims) for m, dims in zip(kernel.outs, plan.indexed)]
    initial = {i: _pad(kernel.outs[i], x, kernel.blank) for i, x in first.items()}
    fixed = _fixed_inputs(kernel, plan, rest_count)

    def part(_: Any, number: Any) -> tuple[None, list]:
        ids = _with_indices([ZERO] * len(grid), plan.own, number, own_sizes)
        blocks = [
            _read_block(m, x, _starts(m, ids, kernel.mapped, scalars)) if f else None
            for m, x, f in zip(kernel.ins, ins, fixed)
        ]
        slabs = [
            _initial_slab(initial.get(i), shape, m, dims, ids, kernel.blank)
            for i, (m, shape, dims) in enumerate(zip(kernel.outs, shapes, plan.indexed))
        ]

        def step(number: Any, state: tuple) -> tuple:
            slabs, scratch = state
            here = _with_indices(ids, plan.rest, number, rest_sizes)
            sources = [
                _read_block(m, x, _starts(m, here, kernel.mapped, scalars)) if b is None else b
                for m, x, b in zip(kernel.ins, ins, blocks)
            ]
            starts = [
                _slab_starts(_starts(m, here, kernel.mapped, scalars), dims)
                for m, dims in zip(kernel.outs, plan.indexed)
            ]
            targets = [_read_block(m, y, s) for m, y, s in zip(kernel.outs, slabs, starts)]
            _, _, targets, scratch = _step(kernel, here, grid, scalars, sources, targets, scratch)
            return [
                _write_block(m, y, b, s) for m, y, b, s in zip(kernel.outs, slabs, targets, starts)
            ], scratch

        return None, _repeat(rest_count, step, (slabs, _scratch(kernel)))[0]

    _, parts = scan(part, None, np.arange(math.prod(own_sizes), dtype=np.int32))
    return [
        _assemble(y, m, dims, plan.own, own_sizes, kernel.blank)
        for y, m, dims in zip(parts, kernel.outs, plan.indexed)
    ]


def _slab(m: BlockMapping, dims: Sequence[int | None]) -> tuple[int, ...]:
    """Return the shape of the slab of an array that one part owns."""
    return tuple(
        [
            size if axis is not None else n
            for n, size, axis in zip(_padded_type(m).shape, m.sizes, dims)
        ]
    )


def _initial_slab(
    x: Any,
    shape: tuple[int, ...],
    m: BlockMapping,
    dims: Sequence[int | None],
    ids: Sequence[Any],
    blank: str,
) -> Any:
    """Return the initial slab of an array for a part: from an aliased input, or uninitialized."""

    if x is None:
        return blank_value(ShapedArray(shape, m.aval.dtype), blank)
    starts = [
        ZERO if axis is None else mul(ids[axis], np.int32(size))
        for axis, size in zip(dims, m.sizes)
    ]
    return dynamic_slice_p.bind(x, *starts, slice_sizes=shape)


def _assemble(
    y: Any,
    m: BlockMapping,
    dims: Sequence[int | None],
    own: Sequence[int],
    sizes: Sequence[int],
    blank: str,
) -> Any:
    """Return the array, given the stacked slabs of its parts."""
    slab = typeof(y).shape[1:]
    y = reshape(y, (*sizes, *slab))
    order, shape = [], []
    for d, (axis, n) in enumerate(zip(dims, slab)):
        if axis is not None:
            order.append(list(own).index(axis))
        order.append(len(own) + d)
        shape.append(n if axis is None else n * sizes[list(own).index(axis)])
    y = reshape(transpose(y, tuple(order)) if order != sorted(order) else y, tuple(shape))
    missing = [(0, whole - n, 0) for whole, n in zip(_padded_type(m).shape, shape)]
    return (
        pad(y, blank_value(ShapedArray((), m.aval.dtype), blank), missing)
        if any(high for _, high, _ in missing)
        else y
    )


def _depends(m: BlockMapping, axes: Sequence[int]) -> bool:
    """Return True if the start of a block depends on these grid axes, not counting mapped ones."""
    read = used_vars(dce(m.index)) | {a for a in m.index.outvars if isinstance(a, Var)}
    return any(m.index.invars[a] in read for a in axes if a >= 0)
