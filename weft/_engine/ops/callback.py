"""Callbacks: operations that call Python on the host while a program runs.

`pure_callback` computes values and may run any number of times. `io_callback`, `debug_callback` and
`debug_print` (`debug_callback` with a format) have an effect: they run exactly once per execution,
in program order, whether their results are used or not.

In:   operands `[guard], [mesh positions...], values...`. `callback(position, *arrays)` returns a
      list of results; `position` is a tuple of (axis name, index) pairs that identifies the device
      of a mesh.
Laws: a mapped callback is one equation that calls the function once per example, in the order of
      the examples (the parameter `mapped`). A callback in a program that the compiler splits over
      devices reads the blocks on their devices and assembles them on the host (the parameter
      `layout`), so that observing a value moves nothing between devices. If the guard is false,
      the function is not called and results are zeros.

Parameters that only transformations set are absent until then: mapped=(), layout=None, guarded=False, axes=().
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import CallbackOp, Primitive, declare_unsupported, registry
from weft._engine.core.trace import typeof
from weft._engine.ir.specs import Spec
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.families import joined_vma, move_dim
from weft._engine.ops.lowering_specs import HostLowering
from weft._engine.util import events
from weft._engine.util.errors import CallbackError, describe
from weft._engine.util.record import record, replace
from weft._engine.util.source import user_frame

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis
    from weft._engine.ops.rule_types import Avals, BatchDims, Ints, NumPyArray, Value, Values

#: modes of `vmap` of a pure callback: sequential calls, or one call on operands with a leading dim
VMAP_METHODS = (
    "sequential",
    "sequential_unrolled",
    "expand_dims",
    "broadcast_all",
    "legacy_vectorized",
)


@record
class MappedAxis:
    """An axis that a callback is mapped over.

    `operands` tells for each operand whether it has a leading dim for the axis; outer axes come
    first.
    """

    size: int
    name: Any
    operands: tuple[bool, ...]


@record
class CallbackSharding:
    """The sharding of the operands of a callback over the mesh `axes` of the compiler.

    `specs` has the mesh axes of each dim of each operand, `shapes` the global shapes; the last
    blocks of a dim may have padding. With `per_block` the blocks are not assembled: the function is
    called for each block, with its position on the mesh. The last `inner` mapped axes were mapped
    before and are ordinary dims here, whatever their names.
    """

    specs: tuple[Spec, ...]
    shapes: tuple[tuple[int, ...], ...]
    axes: frozenset[Any]
    per_block: bool = False
    inner: int = 0

    def splits(self, name: Any) -> bool:
        """Return whether some operand is split over axis `name`."""
        return any(name in dim for spec in self.specs for dim in spec)

    def of_mesh(self, mapped: tuple[MappedAxis, ...]) -> list[bool]:
        """Return for each mapped axis whether it is a mesh axis."""
        outer = len(mapped) - self.inner
        return [i < outer and m.name in self.axes for i, m in enumerate(mapped)]


# --- semantics


def run_callback(
    callback: Any,
    operands: Sequence[np.ndarray],
    result_avals: Avals,
    mapped: tuple[Any, ...] = (),
    layout: CallbackSharding | None = None,
    guarded: bool = False,
    axes: tuple[Any, ...] = (),
) -> list[np.ndarray]:
    """Call `callback` once per example; return its results, stacked like the operands."""
    if layout is not None and not layout.per_block:
        operands, mapped = _assemble_blocks(operands, mapped, layout)
    sizes = tuple(m.size for m in mapped)
    results = [np.zeros((*sizes, *a.shape), a.dtype) for a in result_avals]
    for at, mine in _examples(operands, mapped, sizes):
        if guarded:
            on, *mine = mine
            if not on:
                continue
        position = (
            []
            if layout is None or not layout.per_block
            else [(m.name, i) for i, m, mesh in zip(at, mapped, layout.of_mesh(mapped)) if mesh]
        )
        position += [(name, int(i)) for name, i in zip(axes, mine)]
        values = _through.call(callback, tuple(position), mine[len(axes) :])
        for i, (result, value, aval) in enumerate(zip(results, values, result_avals, strict=True)):
            _check_promise(callback, i, value, aval)
            result[at] = value
    return results


class _CallbackRunner(threading.local):
    """The function that this thread uses to run callbacks."""

    def call(
        self, callback: Any, position: tuple[Any, ...], operands: Sequence[Any]
    ) -> Sequence[Any]:
        return callback(position, *operands)


_through = _CallbackRunner()


@contextlib.contextmanager
def run_callbacks_by(
    call: Callable[[Any, tuple[Any, ...], Sequence[Any]], Sequence[Any]],
) -> Generator[None]:
    """Run the callbacks of this thread by `call(callback, position, operands)` inside the context."""
    outer = vars(_through).get("call")
    vars(_through)["call"] = call
    try:
        yield
    finally:
        del vars(_through)["call"]
        if outer is not None:
            vars(_through)["call"] = outer


def wrap_reference(primitive: Primitive, source: Any) -> Callable[..., Any]:
    """Return the reference of a callback with errors as CallbackErrors.

    These name the user's line `source`.
    """
    reference = primitive.reference

    def call(*args: Any, **params: Any):
        with convert_errors(primitive, params["callback"], source):
            return reference(*args, **params)

    return call


@contextlib.contextmanager
def convert_errors(primitive: Primitive, callback: Any, source: Any) -> Generator[None]:
    """Turn exceptions of `callback` into CallbackErrors that name the line `source`."""
    try:
        yield
    except Exception as error:
        api = getattr(callback, "api", primitive.name)
        _log_failure(api, error)
        raise CallbackError(
            describe(
                api,
                f"{callback!r} raised {type(error).__name__}: {error}",
                (),
                source,
                "The program was stopped there and gives no results; arrays and compiled functions stay usable.",
            )
        ) from error


def _log_failure(api: str, error: Exception) -> None:
    """Log a failed callback to the logger that JAX programs filter, if `import jax` means weft."""
    import logging  # a first result does without both
    import traceback

    logger = logging.getLogger("jax._src.callback" if events.above else "weft.callback")
    if logger.isEnabledFor(logging.ERROR):
        record = logger.makeRecord(
            logger.name, logging.ERROR, __file__, 0, "jax.%s failed", (api,), None
        )
        # a record with the exception itself would keep its frames, and their arrays, alive
        record.exc_text = "".join(traceback.format_exception(error)).rstrip()
        logger.handle(record)


def _check_promise(callback: Any, i: int, value: np.ndarray, aval: ShapedArray) -> None:
    if value.shape != aval.shape or value.dtype != aval.dtype:
        got = ShapedArray(value.shape, value.dtype).str_short()
        raise TypeError(
            f"{callback!r} returned {got} as result {i}, promised was {aval.str_short()}. Return arrays of exactly "
            "the promised shapes and dtypes."
        )


def _examples(
    operands: Sequence[np.ndarray], mapped: tuple[Any, ...], sizes: tuple[Any, ...]
) -> Iterator[tuple[tuple[Any, ...], list[Any]]]:
    """Yield every position on the mapped axes, with the operands at that position."""
    for at in np.ndindex(*sizes):
        yield (
            at,
            [
                x[(*(i for i, m in zip(at, mapped) if m.operands[k]), ...)]
                for k, x in enumerate(operands)
            ],
        )


def _assemble_blocks(
    operands: Sequence[np.ndarray], mapped: tuple[Any, ...], layout: CallbackSharding
) -> tuple[list[np.ndarray], tuple[Any, ...]]:
    """Return operands assembled from their blocks along the layout's axes.

    Also return the other mapped axes.
    """
    whole: list[NumPyArray] = []
    mesh = layout.of_mesh(mapped)
    for k, x in enumerate(operands):
        lead = [(m.name, of_mesh) for m, of_mesh in zip(mapped, mesh) if m.operands[k]][
            : x.ndim - len(layout.specs[k])
        ]
        place = {name: i for i, (name, of_mesh) in enumerate(lead) if of_mesh}
        order = [i for i, (_, of_mesh) in enumerate(lead) if not of_mesh]
        shape = [x.shape[i] for i in order]
        for d, names in enumerate(layout.specs[k], len(lead)):
            blocks = math.prod(x.shape[place[name]] for name in names if name in place) * x.shape[d]
            repeats = -(-layout.shapes[k][d - len(lead)] // blocks) if blocks else 1
            split: list[int] = []
            for name in names:
                if name in place:
                    split.append(place[name])
                elif repeats > 1:  # not mapped over the axis, so all blocks are equal
                    split.append(x.ndim)
                    x, repeats = np.broadcast_to(x[..., None], (*x.shape, repeats)), 1
            order += [*split, d]
            shape.append(math.prod(x.shape[i] for i in split) * x.shape[d])
        padded = x.transpose(order).reshape(shape)
        whole.append(padded[(..., *(slice(n) for n in layout.shapes[k]))])
    return whole, tuple(m for m, of_mesh in zip(mapped, mesh) if not of_mesh)


# --- the rules --------------------------------------------------------------------------------------------------------


def _callback_primitive(name: str, effect: str | None = None) -> Primitive:
    """Return a primitive with the rules common to all callbacks;

    `effect` names its effect, if any.
    """
    primitive = CallbackOp(name, multiple_results=True)

    @primitive.def_type
    def type_rule(
        *avals: ShapedArray,
        result_avals: Avals = (),
        mapped: tuple[MappedAxis, ...] = (),
        layout: CallbackSharding | None = None,
        **_: Any,
    ):
        mesh = (
            [False] * len(mapped) if layout is None or layout.per_block else layout.of_mesh(mapped)
        )
        sizes = tuple(m.size for m, of_mesh in zip(mapped, mesh) if not of_mesh)
        vma = joined_vma(avals)
        return [ShapedArray((*sizes, *a.shape), a.dtype, False, None, vma) for a in result_avals]

    @primitive.def_reference
    def reference(
        *args: NumPyArray,
        callback: Callable[..., Any],
        result_avals: Avals = (),
        mapped: tuple[MappedAxis, ...] = (),
        layout: CallbackSharding | None = None,
        guarded: bool = False,
        axes: Ints = (),
        **_: Any,
    ):
        return run_callback(callback, args, result_avals, mapped, layout, guarded, axes)

    @primitive.def_batch
    def batch(axis: BatchAxis, args: Values, dims: BatchDims, **params: Any):
        return map_calls(primitive, axis, args, dims, params)

    @primitive.def_transpose
    def transpose(*_: Value, **__: Any):
        kind = "IO" if effect else "Pure"
        raise ValueError(
            f"{primitive.name}: {kind} callbacks do not support transpose: what Python does with a value has no adjoint."
        )

    primitive.define(
        factors=declare_unsupported("operands are read on their devices and assembled on the host"),
        lower=HostLowering(),
    )
    if effect is not None:
        primitive.ref_effects = lambda params: frozenset(
            {f"ordered {effect}" if params["ordered"] else effect}
        )
    return primitive


def map_calls(
    primitive: Primitive,
    axis: Any,
    args: Sequence[Any],
    dims: Sequence[Any],
    params: dict[str, Any],
) -> tuple[list[Any], list[Any]]:
    """Batch a callback by one call per example."""
    layout: CallbackSharding | None = params.get("layout") if axis.of_mesh else None
    automatic = layout if layout is not None and axis.name in layout.axes else None
    if automatic is not None and not automatic.splits(axis.name):
        # rows that the compiler knows to be equal: any one of them will do
        outs = primitive.bind(
            *[x if d is None else _first(x, d) for x, d in zip(args, dims)], **params
        )
        return outs, [None] * len(outs)
    over = MappedAxis(axis.size, axis.name, tuple(d is not None for d in dims))
    fronted = [x if d is None else move_dim(x, d, 0) for x, d in zip(args, dims)]
    outs = primitive.bind(*fronted, **{**params, "mapped": (over, *params.get("mapped", ()))})
    return outs, [None if automatic is not None and not automatic.per_block else 0] * len(outs)


def guard_calls(
    primitive: Primitive, on: Any, operands: Sequence[Any], params: dict[str, Any]
) -> list[Any]:
    """Bind a callback that calls only where the boolean scalar `on` holds."""
    if params.get("guarded"):
        return primitive.bind(registry["and"].bind(on, operands[0]), *operands[1:], **params)
    layout = params.get("layout")
    if layout is not None:
        params = {
            **params,
            "layout": replace(layout, specs=((), *layout.specs), shapes=((), *layout.shapes)),
        }
    mapped = tuple(replace(m, operands=(False, *m.operands)) for m in params.get("mapped", ()))
    return primitive.bind(
        on, *operands, **{**params, "guarded": True, **({"mapped": mapped} if mapped else {})}
    )


def _first(x: Any, dim: int) -> Any:
    shape = typeof(x).shape
    row = registry["slice"].bind(
        x,
        start_indices=(0,) * len(shape),
        strides=None,
        limit_indices=tuple(1 if d == dim else n for d, n in enumerate(shape)),
    )
    return registry["squeeze"].bind(row, dimensions=(dim,))


#: params: callback, ordered, partitioned
debug_callback_p = _callback_primitive("debug_callback", "debug")
#: params: fmt, callback, ordered, partitioned
debug_print_p = _callback_primitive("debug_print", "debug")
#: params: callback, result_avals, ordered, sharding
io_callback_p = _callback_primitive("io_callback", "io")
#: params: callback, result_avals, vmap_method, sharding
pure_callback_p = _callback_primitive("pure_callback")


def _observe_primals(primitive: Primitive) -> None:
    """Define the derivative of an op that only observes: apply it to the primals.

    It has no tangents.
    """

    @primitive.def_jvp
    def jvp(primals: Values, tangents: Values, **params: Any) -> tuple[Value, list[Value]]:
        no_results: list[Value] = []
        return primitive.bind(*primals, **params), no_results


_observe_primals(debug_callback_p)
_observe_primals(debug_print_p)


def _refuse_derivative(primitive: Primitive, kind: str) -> None:
    @primitive.def_jvp
    def jvp(primals: Values, tangents: Values, **params: Any):
        raise ValueError(
            describe(
                primitive.name,
                f"cannot be differentiated. {kind} callbacks do not support JVP.",
                (),
                user_frame(),
                "What Python computes is not known to the derivative rules.",
                "Give the surrounding function a rule with weft.custom_jvp or weft.custom_vjp, or stop the "
                "gradient of the operands with weft.lax.stop_gradient.",
            )
        )


_refuse_derivative(io_callback_p, "IO")
_refuse_derivative(pure_callback_p, "Pure")


@io_callback_p.def_batch
def _batch_io(axis: BatchAxis, args: Values, dims: BatchDims, **params: Any):
    if params["ordered"] and not axis.of_mesh:
        raise ValueError(
            describe(
                "io_callback",
                "Cannot `vmap` an ordered callback whose operands are mapped.",
                (),
                user_frame(),
                "The examples of a batch have no order among each other that all calls could keep.",
                "Use ordered=False, which calls once per example, or lax.map instead of vmap.",
            )
        )
    return map_calls(io_callback_p, axis, args, dims, params)


@pure_callback_p.def_batch
def _batch_pure(axis: BatchAxis, args: Values, dims: BatchDims, **params: Any):
    method = params["vmap_method"]
    if method in ("sequential", "sequential_unrolled") or axis.of_mesh or params.get("mapped"):
        return map_calls(pure_callback_p, axis, args, dims, params)
    if method is None:
        raise NotImplementedError(
            describe(
                "pure_callback",
                "vmap is only supported where vmap_method says how to call it on a batch.",
                (),
                user_frame(),
                f"vmap_method is one of {', '.join(map(repr, VMAP_METHODS))}.",
                "With 'sequential' it is called once per example; with 'expand_dims' once, on operands with a leading dim.",
            )
        )
    operands = [_with_leading(x, d, axis.size, method) for x, d in zip(args, dims)]
    avals = tuple(a.update(shape=(axis.size, *a.shape)) for a in params["result_avals"])
    outs = pure_callback_p.bind(*operands, **{**params, "result_avals": avals})
    return outs, [0] * len(outs)


def _with_leading(x: Any, dim: int | None, size: int, method: str) -> Any:
    """Return an operand in the form that a method with one call needs."""
    if dim is not None:
        return move_dim(x, dim, 0)
    if method == "legacy_vectorized":
        return x
    shape = typeof(x).shape
    leading = 1 if method == "expand_dims" else size
    return registry["broadcast_in_dim"].bind(
        x, shape=(leading, *shape), broadcast_dimensions=tuple(range(1, len(shape) + 1))
    )


# --- observing shardings

#: params: callback, called with the sharding of the operand while the program is compiled
inspect_sharding_p = CallbackOp("inspect_sharding", multiple_results=True, inspects_sharding=True)


@inspect_sharding_p.def_type
def _inspect_type(aval: ShapedArray, *, callback: Callable[..., Any]) -> list[ShapedArray]:
    return []


@inspect_sharding_p.def_reference
def _inspect_reference(x: NumPyArray, *, callback: Callable[..., Any]) -> list[NumPyArray]:
    return []


@inspect_sharding_p.def_batch
def _inspect_batch(
    axis: BatchAxis, args: Values, dims: BatchDims, *, callback: Callable[..., Any]
) -> tuple[Values, list[int]]:
    return inspect_sharding_p.bind(*args, callback=callback), []


_observe_primals(inspect_sharding_p)
inspect_sharding_p.define(
    factors=declare_unsupported("it observes the sharding of its operand and requires none"),
    transpose=declare_unsupported("it gives no value"),
    lower=HostLowering(),
)
inspect_sharding_p.ref_effects = lambda params: frozenset({"inspect"})
