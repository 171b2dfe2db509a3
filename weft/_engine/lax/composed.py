"""Functions composed of operations: prefix scans, trees of arrays, constraints on shardings, broadcasting helpers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine import backends
from weft._engine.api.callbacks import debug_callback
from weft._engine.api.execute import to_array
from weft._engine.api.jit import jit
from weft._engine.api.layouts import flat_layouts, flat_shardings
from weft._engine.api.placement.device_put import device_put
from weft._engine.backends.formats import Layout, is_layout, order_of
from weft._engine.core.trace import Tracer, current_trace, eval_trace, typeof
from weft._engine.ir.explicit import determines_placement, type_sharding
from weft._engine.ir.mesh import current_mesh, spec_mesh
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import UNCONSTRAINED, spec_of_dims
from weft._engine.ir.symbolic import SymbolicDim, as_size
from weft._engine.ops import (
    arithmetic,
    comparison,
    indexing,
    layout,
    prefix_scans,
    reduce,
    slicing,
    sorting,
)
from weft._engine.ops.casting import size_as
from weft._engine.ops.families import canonical_dims
from weft._engine.ops.placement import (
    layout_constraint,
    optimization_barrier as barrier,
    sharding_constraint,
    takes_out_sharding,
)
from weft._engine.runtime.array import Array
from weft._engine.util import dtypes, tree
from weft._engine.util.errors import (
    ShapeError,
    ShardingAssertionError,
    ShardingError,
    ShardingTypeError,
    UnexpectedTracerError,
    describe,
)
from weft._engine.util.jax_versions import jax_behavior
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import named, user_frame


def _scanned_dim(xs: list, axis: int) -> int:
    """Return the nonnegative dim of a scan.

    Raise ValueError unless all arrays have this dim, with one size.
    """
    for x in xs:
        if not -x.ndim <= axis < x.ndim:
            raise ValueError(
                f"associative_scan: axis {axis} is out of bounds for an array of shape {tuple(x.shape)}."
            )
    axis = axis % xs[0].ndim
    if len({x.shape[axis] for x in xs}) > 1:
        shapes = [tuple(x.shape) for x in xs]
        raise ValueError(
            f"associative_scan: arrays must have the same first dimension, the size of axis {axis}, got {shapes}."
        )
    return axis


def associative_scan(fn: Callable, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Return all prefixes of `elems` along `axis`, combined by an associative function.

    The function is `fn(earlier, later)` of trees of arrays.

    An elementwise function becomes one operation with one pass over memory. For any other function,
    the work grows with the number of elements, the depth with its logarithm.

    >>> associative_scan(lambda x, y: x + y, np.arange(5)).tolist()
    [0, 1, 3, 6, 10]
    """
    flat, structure = tree.tree_flatten(elems)
    flat = [x if isinstance(x, Tracer) else to_array(x) for x in flat]
    if not flat:
        return elems
    axis = _scanned_dim(flat, axis)

    def combine(xs, ys):
        pair = [tree.tree_unflatten(structure, v) for v in (xs, ys)]
        return [x if isinstance(x, Tracer) else to_array(x) for x in tree.tree_leaves(fn(*pair))]

    elementwise = prefix_scans.combination(combine, [typeof(x) for x in flat])
    if elementwise is not None:
        return tree.tree_unflatten(
            structure, prefix_scans.associative_scan(elementwise, flat, axis, bool(reverse))
        )
    if reverse:
        flat = [layout.rev(x, (axis,)) for x in flat]
    out = prefix_scans.prefixes(flat, combine, axis)
    if reverse:
        out = [layout.rev(x, (axis,)) for x in out]
    return tree.tree_unflatten(structure, out)


def stop_gradient(x: Any) -> Any:
    """Return `x`, a tree of arrays, with derivatives of zero.

    Random keys have no derivatives in any case.
    """
    return tree.tree_map(_stop, x)


def _stop(leaf: Any) -> Any:
    unchanged = type(leaf) in (bool, int, float, complex) or isinstance(
        getattr(leaf, "dtype", None), dtypes.ExtendedDType
    )
    return leaf if unchanged else arithmetic.stop_gradient(leaf)


def optimization_barrier(operand: Any) -> Any:
    """Return `operand`, a tree of arrays, hidden from simplification."""
    flat, structure = tree.tree_flatten(operand)
    return tree.tree_unflatten(structure, barrier(flat))


def _drop(*_: Any) -> None:
    """Read values and discard them."""


def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    """Keep the computation of `val` even if no result depends on it.

    `val` is a tree of arrays; each run reads it.

    It is an effect, as printing is, so that no pass removes the values; `prevent_mlir_dce` changes
    nothing.

    >>> def f(x):
    ...     weft.lax.dce_sink(wnp.sin(x))
    ...     return x
    >>> [eqn.primitive.name for eqn in weft.make_jaxpr(f)(1.0).eqns]
    ['sin', 'debug_callback']
    """
    debug_callback(_drop, val)


def full_like(
    x: Any,
    fill_value: Any,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    *,
    sharding: Any = None,
) -> Any:
    """Return an array filled with `fill_value`.

    It has the shape, dtype, weak type and placement of `x` where none are given.

    Inside `shard_map` it varies over the axes of `x`. With another shape it has the placement of
    `x` if `x` is not split.

    >>> full_like(np.zeros(2, np.int8), 3)
    Array([3, 3], dtype=int8)
    """
    out = layout.full_like(x, fill_value, dtype, shape, sharding=sharding)
    if (
        sharding is None
        and type(out) is Array
        and getattr(x, "committed", False)
        and out.sharding == x.sharding
    ):
        return device_put(out, x.sharding)
    return out


def broadcast_to_rank(x: Any, rank: int) -> Any:
    """Return `x` with leading dims of size one added up to `rank`."""
    missing = rank - typeof(x).ndim
    if missing < 0:
        raise ValueError(
            f"broadcast_to_rank: an array of rank {typeof(x).ndim} does not fit in rank {rank}."
        )
    return layout.expand_dims(x, tuple(range(missing)))


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape to which all of `shapes` broadcast by NumPy's rule.

    Raise ShapeError if there is none.

    >>> broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    sizes = [tuple([_size(n, shape) for n in shape]) for shape in shapes]
    try:
        return np.broadcast_shapes(*sizes)
    except ValueError:
        raise ShapeError(
            f"broadcast_shapes: Incompatible shapes for broadcasting: shapes={sizes}.\n"
            "  Trailing dims must be equal, or one of them 1."
        ) from None


def _size(n: Any, shape: Any) -> Any:
    size = as_size(n)
    if not isinstance(size, SymbolicDim) and size < 0:
        raise TypeError(
            f"broadcast_shapes: the shape {tuple(shape)} has the size {n}. A size is a count and never negative."
        )
    return size


def tile(operand: Any, reps: Sequence[int]) -> Any:
    """Return `operand` repeated `reps[d]` times along dim d.

    >>> tile(np.arange(2), (2,)).tolist()
    [0, 1, 0, 1]
    """
    shape = typeof(operand).shape
    if len(reps) != len(shape):
        raise ValueError(
            f"tile: reps {tuple(reps)} must have one entry per dim of the operand, shape {shape}."
        )
    repeated = layout.broadcast_in_dim(
        operand, [n for pair in zip(reps, shape) for n in pair], range(1, 2 * len(shape), 2)
    )
    return layout.reshape(repeated, [r * n for r, n in zip(reps, shape)])


def _number_of_candidates(
    shape: Sequence[int], k: int, axis: int, recall_target: float, whole: int
) -> int:
    """Return how many values along dim `axis` to keep as candidates for the `k` largest.

    They contain the `k` largest with probability `recall_target`.

    Each value is the largest of a part of the dim, which is one part of `whole` elements. The
    number is a multiple of the size of a TPU's registers.
    """
    n, unit = shape[axis], 1024 if len(shape) == 1 else 128
    if n <= unit:
        return n
    if k == 1:
        return unit
    needed = max(unit, (1 - k) / math.log(recall_target)) if recall_target < 1 else math.inf
    halvings = int(math.log2(whole / needed)) if needed < whole else 0
    if not halvings:
        return n
    parts = -(-n // unit)
    return min(n, math.ceil(parts / 2 ** min(halvings, (n // unit - 1).bit_length())) * unit)


def _approximate(
    api: str, operand: Any, k: int, axis: int, recall_target: float, whole: int, aggregate: bool
) -> list:
    shape = typeof(operand).shape
    if not dtypes.issubdtype(typeof(operand).dtype, np.floating):
        raise ValueError(
            f"{api}: the operand must be of a floating type, got {typeof(operand).str_short()}. See lax.top_k for integers."
        )
    if not 0 < recall_target <= 1:
        raise ValueError(
            f"{api}: recall_target must be a share, above 0 and at most 1, got {recall_target}."
        )
    (axis,) = canonical_dims(api, [axis], len(shape))
    if 0 <= whole < shape[axis]:
        raise ValueError(
            f"{api}: reduction_input_size_override={whole} is less than the size {shape[axis]} of dim {axis}, a part of the "
            "whole."
        )
    if not aggregate and k <= shape[axis]:
        k = _number_of_candidates(
            shape, k, axis, recall_target, shape[axis] if whole < 0 else whole
        )
    return list(sorting.top_k(operand, k, axis=axis))


def approx_max_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list:
    """Return the `k` largest values along a dim and their positions; the results are exact here.

    Without `aggregate_to_topk` return as many of the largest values as a TPU has candidates; their
    number grows with `recall_target`. With `reduction_input_size_override` the dim is one part of
    that many elements, and these are its candidates. Raise ValueError for dtypes that are not
    floating, for a `recall_target` outside of (0, 1], and for fewer elements than the dim has.

    >>> values, positions = weft.lax.approx_max_k(wnp.arange(4096.), 4, aggregate_to_topk=False)
    >>> values.shape, values[:2].tolist()
    ((1024,), [4095.0, 4094.0])
    """
    return _approximate(
        "approx_max_k",
        operand,
        k,
        reduction_dimension,
        recall_target,
        reduction_input_size_override,
        aggregate_to_topk,
    )


def approx_min_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list:
    """Return the `k` smallest values along a dim and their positions; the results are exact here.

    Errors are as in `approx_max_k`.
    """
    values, positions = _approximate(
        "approx_min_k",
        arithmetic.neg(operand),
        k,
        reduction_dimension,
        recall_target,
        reduction_input_size_override,
        aggregate_to_topk,
    )
    return [arithmetic.neg(values), positions]


def platform_dependent(
    *args: Any, default: Callable | None = None, **per_platform: Callable
) -> Any:
    """Return the result of the function for the default platform on `args`.

    Keywords are cpu, cuda, rocm, tpu or gpu.

    The default platform at trace time decides, even if the arguments are on another one.
    """
    backend = backends.get()
    fun = per_platform.get(backend.lowering_platform) or per_platform.get(backend.platform, default)
    if fun is None:
        raise NotImplementedError(
            f"platform_dependent: no function for {backend.lowering_platform!r} among {sorted(per_platform)}, and "
            "no default."
        )
    return fun(*args)


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """Return `x`, a tree of arrays, constrained to `shardings`.

    These are shardings, specs under a mesh, formats, or a prefix tree of them.

    The dim order of a format applies to values that are results of the program. Shapes and dtypes
    do not change. Inside a program a dim need not divide: its last blocks are padded. Over explicit
    axes a constraint only asserts the type's sharding; `weft.sharding.reshard` changes it. Raises
    ShardingAssertionError if it differs from the type, ShardingError if a dim of an array outside
    of programs does not divide.

    >>> from weft.sharding import NamedSharding, PartitionSpec as P
    >>> rows = NamedSharding(weft.make_mesh((2,), ("i",), devices=weft.devices()[:2]), P("i"))
    >>> weft.jit(lambda x: with_sharding_constraint(x * 2, rows))(wnp.ones(4)).sharding.spec
    P('i',)
    """
    leaves, treedef = tree.tree_flatten(x)
    if shardings is None and leaves:
        raise ValueError(
            "One of with_sharding_constraint arguments got sharding None which is not allowed: give a sharding or a spec."
        )
    traced = [isinstance(leaf, Tracer) for leaf in leaves]
    avals = [typeof(leaf) for leaf in leaves]
    targets = flat_shardings(
        shardings, treedef, avals, "with_sharding_constraint", padded=traced, mesh_of=current_mesh
    )
    placed = [leaf if to is None else _constrain(leaf, to) for leaf, to in zip(leaves, targets)]
    if layouts := flat_layouts(shardings, treedef, "with_sharding_constraint"):
        placed = [
            _constrain_layout("with_sharding_constraint", y, layout)
            for y, layout in zip(placed, layouts)
        ]
    return tree.tree_unflatten(treedef, placed)


def _constrain(x: Any, sharding: Any) -> Any:
    """Return `x`, constrained over automatic axes.

    Over explicit axes the sharding must equal its type.
    """
    aval = typeof(x)
    _refuse_explicit_axes(sharding)
    if aval.explicit is None:
        placed = sharding_constraint(x, sharding)
        is_free = type(placed) is Array and not placed.committed
        # a program of one device has no placements
        is_single_device = is_free and len(sharding.device_assignment) == 1
        return device_put(placed, sharding) if is_single_device else placed
    free: frozenset = frozenset()
    if isinstance(sharding, NamedSharding):
        free = sharding.spec.unconstrained_dims()
        sharding = _with_typed_axes(sharding, aval, free)
    typed_sharding = type_sharding(sharding, aval.ndim)
    if typed_sharding is None or not _agree(typed_sharding, aval, free):
        raise ShardingAssertionError(
            describe(
                "with_sharding_constraint",
                "the explicit axes split the value differently.",
                [
                    ("value", aval.str_short()),
                    (
                        "constraint",
                        f"{sharding.spec!r}" if typed_sharding is not None else f"{sharding!r}",
                    ),
                ],
                user_frame(),
                "Over explicit axes a constraint only asserts what the type says.",
                "Use weft.sharding.reshard to change the sharding of the value.",
            )
        )
    return x if determines_placement(aval.explicit) else sharding_constraint(x, sharding)


def _refuse_explicit_axes(sharding: Any) -> None:
    """Raise ShardingError for a constraint over explicit axes.

    Only some versions of JAX refuse them.
    """
    context = spec_mesh()
    asserts = context is not None and context.are_all_axes_explicit
    if asserts or not jax_behavior().constraints_refuse_explicit_axes:
        return
    if not isinstance(sharding, NamedSharding):
        return
    explicit = [a for a in sharding.spec.axes if a in sharding.mesh.explicit_axes]
    if explicit:
        raise ShardingError(
            f"with_sharding_constraint: the constraint {sharding.spec} can only refer to Auto axes of the mesh, and "
            f"{explicit[0]!r} is Explicit in {sharding.mesh}.\n"
            "  Use weft.sharding.reshard to change how explicit axes split a value."
        )


def _with_typed_axes(sharding: NamedSharding, aval: Any, free: frozenset) -> NamedSharding:
    """Return a constraint over automatic axes with the axes of the type added.

    The constraint must not repeat axes of the type.
    """
    mesh = sharding.mesh
    if mesh.are_all_axes_explicit or set(sharding.spec.axes) & set(mesh.explicit_axes):
        return sharding
    splits = zip(aval.explicit.spec_dims(aval.ndim), sharding.spec_dims(aval.ndim))
    return sharding.with_spec(
        [
            UNCONSTRAINED if d in free else (*typed, *more) or None
            for d, (typed, more) in enumerate(splits)
        ]
    )


def _agree(sharding: NamedSharding, aval: Any, free: frozenset) -> bool:
    """Return whether a type has these axes in all dims except the free ones."""
    pairs = zip(sharding.spec_dims(aval.ndim), aval.explicit.spec_dims(aval.ndim))
    return all(one == other for d, (one, other) in enumerate(pairs) if d not in free)


def _constrain_layout(name: str, x: Any, layout: Any) -> Any:
    """Return `x`, stored with `layout` if it is a result of the program."""
    if layout is Layout.AUTO:
        raise ValueError(
            f"{name}: AUTO leaves a layout open, and a constraint says one: layouts must be of type `Layout`."
        )
    if not isinstance(layout, Layout | None):
        raise TypeError(f"{name}: `layouts` must be of type Layout, got {layout!r:.60}.")
    return x if layout is None else layout_constraint(x, layout.major_to_minor)


def with_layout_constraint(x: Any, layouts: Any) -> Any:
    """Return `x`, a tree of arrays, with the memory layouts `layouts`.

    They apply to arrays that are results of the program.

    `layouts` is a prefix tree of `Layout`s.

    Raises ValueError for a layout that does not fit, or is AUTO, NotImplementedError for one with tiles.

    >>> from weft.experimental.layout import Layout
    >>> weft.jit(lambda x: with_layout_constraint(x * 2, Layout((1, 0))))(wnp.ones((2, 3))).format.layout.major_to_minor
    (1, 0)
    """
    leaves, structure = tree.tree_flatten(x)
    layout_tree = tree.broadcast_prefix(layouts, x, is_leaf=is_layout)
    for leaf, one in zip(leaves, layout_tree):
        order_of(one, typeof(leaf).ndim, "with_layout_constraint")
    return tree.tree_unflatten(
        structure,
        [
            _constrain_layout("with_layout_constraint", leaf, one)
            for leaf, one in zip(leaves, layout_tree)
        ],
    )


def sort_key_val(
    keys: Any, values: Any, dimension: int = -1, is_stable: bool = True
) -> tuple[Any, Any]:
    """Sort `keys` along `dimension`, and permute `values` alike."""
    sorted_keys, sorted_values = sorting.sort(
        (keys, values), dimension=dimension, is_stable=is_stable, num_keys=1
    )
    return sorted_keys, sorted_values


def stack(operands: Sequence[Any], axis: int = 0) -> Any:
    """Join arrays of equal shape along a new dim."""
    operands = list(operands)
    if not operands:
        raise ValueError("stack: `operands` must hold at least one array.")
    (axis,) = canonical_dims("stack", (axis,), typeof(operands[0]).ndim + 1)
    return slicing.concatenate([layout.expand_dims(x, (axis,)) for x in operands], axis)


def unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    """Return the slices of an array along one dim, without the dim."""
    (axis,) = canonical_dims("unstack", (axis,), typeof(x).ndim)
    return tuple(
        slicing.index_in_dim(x, i, axis, keepdims=False) for i in range(typeof(x).shape[axis])
    )


def stage(x: Any, /) -> Any:
    """Return a number or NumPy array as a value of the program being traced.

    Outside of traces it is an Array.

    >>> stage(np.float32(2.0))
    Array(2., dtype=float32)
    """
    x = x if isinstance(x, Tracer) else to_array(x)
    return x if current_trace() is eval_trace else layout.copy(x)


def _cumulative_extremum(combine: Callable, plain: Callable) -> Callable:
    def cumulate(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
        if dtypes.is_complex(typeof(operand).dtype):
            return associative_scan(combine, operand, reverse, axis)
        return plain(operand, axis, reverse)

    doc = f"{plain.__doc__} Complex numbers are ordered by their real parts, then by their imaginary parts."
    return named(cumulate, plain.__name__, doc)


cummax = _cumulative_extremum(arithmetic.max, reduce.cummax)
cummin = _cumulative_extremum(arithmetic.min, reduce.cummin)


def clamp(min: Any, x: Any, max: Any) -> Any:  # noqa: A002
    """Limit `x` to the range from `min` to `max`; NaN stays NaN.

    Complex numbers are ordered by their real parts, then by their imaginary parts.

    >>> np.asarray(clamp(0, np.array([-1, 2, 9]), 5)).tolist()
    [0, 2, 5]
    """
    if dtypes.is_complex(typeof(x).dtype):
        return arithmetic.min(arithmetic.max(min, x), max)
    return comparison.clamp(min, x, max)


def dtype(x: Any) -> Any:
    """Return the dtype of a value, or the dtype that a dtype or type denotes."""
    return (
        dtypes.canonicalize_dtype(x)
        if isinstance(x, (np.dtype, type, str, dtypes.ExtendedDType))
        else typeof(x).dtype
    )


@takes_out_sharding
def empty(shape: Sequence[int], dtype: Any) -> Any:
    """Return an array with unspecified values; they are zeros."""
    return layout.full(shape, 0, dtype)


def broadcast_like(arr: Any, like_arr: Any) -> Any:
    """Return `arr` broadcast to the shape of `like_arr` by NumPy's rule.

    It adds leading dims and repeats dims of size one.

    Explicit axes split the result like `like_arr`. Raises ShapeError if the shapes do not fit,
    ShardingTypeError if explicit axes split a dim of `arr` and of `like_arr` differently.

    >>> broadcast_like(np.arange(3), np.zeros((2, 3))).shape
    (2, 3)
    """
    shape, have = tuple(typeof(like_arr).shape), tuple(typeof(arr).shape)
    lead = len(shape) - len(have)
    if lead < 0 or any(n not in (1, shape[lead + d]) for d, n in enumerate(have)):
        raise ShapeError(
            describe(
                "broadcast_like",
                f"an array of shape {have} does not broadcast to shape {shape}.",
                (),
                user_frame(),
                "Trailing dims must be equal, or 1 in arr.",
            )
        )
    dims, like_sharding, arr_sharding = (
        tuple(range(lead, len(shape))),
        typeof(like_arr).explicit,
        typeof(arr).explicit,
    )
    if like_sharding is None:
        return layout.broadcast_in_dim(arr, shape, dims)
    splits = like_sharding.spec_dims(len(shape))
    if arr_sharding is not None and any(
        axes not in ((), splits[lead + d])
        for d, axes in enumerate(arr_sharding.spec_dims(len(have)))
    ):
        raise ShardingTypeError(
            describe(
                "broadcast_like",
                "Incompatible shardings for broadcasting: explicit axes split a dim of both arrays differently.",
                [("arr", typeof(arr).str_short()), ("like_arr", typeof(like_arr).str_short())],
                user_frame(),
                "The result is split like like_arr.",
                "Move one with weft.sharding.reshard.",
            )
        )
    return layout.broadcast_in_dim(
        arr, shape, dims, out_sharding=like_sharding.with_spec(spec_of_dims(splits))
    )


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Any:
    """Return the slices of `src` at index vectors `idxs`, one for each of `axes`.

    The result has a dim for the number of slices, then the other dims.

    Positions out of bounds are clipped. Raises ValueError unless there is a vector of equal size
    for each axis.

    >>> index_take(np.arange(6).reshape(2, 3), (np.array([0, 1]), np.array([2, 0])), (0, 1)).tolist()
    [2, 3]
    """
    shape, axes = (
        tuple(typeof(src).shape),
        canonical_dims("index_take", tuple(axes), typeof(src).ndim),
    )
    vectors = [x if isinstance(x, Tracer) else to_array(x) for x in idxs]
    if (
        len(vectors) != len(axes)
        or {x.ndim for x in vectors} - {1}
        or len({x.shape[0] for x in vectors}) > 1
    ):
        raise ValueError(
            f"index_take: {quantity(len(axes), 'axis')} need as many vectors of indices of equal size, got shapes "
            f"{[tuple(x.shape) for x in vectors]}."
        )
    if not axes:
        return layout.broadcast_in_dim(src, (1, *shape), tuple(range(1, len(shape) + 1)))
    starts = slicing.concatenate([layout.reshape(x, (x.shape[0], 1)) for x in vectors], 1)
    other_dims = tuple(d for d in range(len(shape)) if d not in axes)
    numbers = indexing.GatherDimensionNumbers(
        offset_dims=tuple(range(1, len(other_dims) + 1)),
        collapsed_slice_dims=tuple(sorted(axes)),
        start_index_map=axes,
    )
    sizes = tuple(1 if d in axes else n for d, n in enumerate(shape))
    return indexing.gather(src, starts, numbers, sizes, mode=indexing.GatherScatterMode.CLIP)


def shape_as_value(shape: Sequence[int]) -> Any:
    """Return the sizes of `shape` as a vector of integers.

    >>> shape_as_value((2, 3)).tolist()
    [2, 3]
    """
    dtype = dtypes.default_int_dtype()
    if any(isinstance(n, SymbolicDim) for n in shape):
        return slicing.concatenate(
            [layout.broadcast_in_dim(size_as(n, dtype), (1,), ()) for n in shape], 0
        )
    return to_array(np.asarray(tuple(shape), dtype).reshape(-1))


def composite(decomposition: Callable, name: str, version: int = 0) -> Callable:
    """Return `decomposition` as one operation `name`.

    It is traced separately, and program texts show this name.

    Keyword arguments are its attributes: numbers, strings and tuples of them, constant during
    tracing. Raises UnexpectedTracerError for arrays among them.

    >>> tangent = composite(lambda x, *, scale=1.0: scale * x / (1 + x), "my.ratio")
    >>> float(tangent(3.0, scale=2.0))
    1.5
    """

    if not callable(decomposition):
        raise TypeError(
            f"composite: `decomposition` must be a function, got {decomposition!r:.60}."
        )
    if not isinstance(name, str) or not isinstance(version, (int, np.integer)):
        raise TypeError(
            f"composite: `name` must be a string and `version` an integer, got {name!r:.60} and {version!r:.60}."
        )

    def call(*args: Any, **attributes: Any) -> Any:
        for key, value in attributes.items():
            if hasattr(type(value), "aval") or isinstance(value, Tracer):
                raise UnexpectedTracerError(
                    f"composite: attribute {key} of {name} is an array. Pass arrays as positional arguments. "
                    "If you are passing arrays as attributes, use numpy arrays instead."
                )

        def body(*xs: Any) -> Any:
            return decomposition(*xs, **attributes)

        body.__name__ = body.__qualname__ = f"{name}.v{version}" if version else name
        return jit(body)(*args)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = decomposition.__doc__
    return call
