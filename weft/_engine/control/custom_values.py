"""Arguments, symbolic zeros and cotangents of custom derivative rules, and batched rules on flat
values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.control.hijax_types import flatten_linear, linear_parts, of_tangents
from weft._engine.control.ref import any_refs, is_ref
from weft._engine.core.primitive import BatchAxis
from weft._engine.core.trace import Zero, typeof
from weft._engine.core.typed_scalars import with_array_attributes
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.layout import broadcast_in_dim
from weft._engine.ops.reduce import reduce_sum
from weft._engine.transforms.batch import batch_flat, move_dim, to_dim
from weft._engine.transforms.jvp import instantiate
from weft._engine.util import dtypes, tree
from weft._engine.util.config import config
from weft._engine.util.record import record
from weft._engine.util.source import function_name
from weft._engine.util.tree import tree_flatten, tree_unflatten


@record
class SymbolicZero:
    """A tangent or cotangent that is known to be zero.

    It is passed to rules with `symbolic_zeros=True`; `aval` is its type.

    >>> zero = SymbolicZero(weft.typeof(wnp.ones((2, 3))))
    >>> zero.shape, zero.dtype.name
    ((2, 3), 'float32')
    """

    aval: ShapedArray

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)
    weak_type = property(lambda self: self.aval.weak_type)

    def __repr__(self) -> str:
        return f"SymbolicZero({self.aval.str_short()})"


@record
class CustomVJPPrimal:
    """An argument of `fwd` with `symbolic_zeros=True`.

    It has its value, and True if it is differentiated.
    """

    value: Any
    perturbed: bool


def custom_vjp_primal_tree_values(tree: Any) -> Any:
    """Return a tree of `CustomVJPPrimal`s as a tree of their values.

    Raise TypeError for other leaves.

    >>> custom_vjp_primal_tree_values({"x": CustomVJPPrimal(2.0, True)})
    {'x': 2.0}
    """
    leaves, structure = tree_flatten(tree)
    for x in leaves:
        if type(x) is not CustomVJPPrimal:
            raise TypeError(
                f"custom_vjp_primal_tree_values: every leaf must be a CustomVJPPrimal, got {type(x)}. Give it the arguments "
                "that `fwd` of a rule with symbolic_zeros=True was called with."
            )
    return tree_unflatten(structure, [x.value for x in leaves])


def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """Return zero tangents for the values in the tree `val`: arrays of zeros, or `SymbolicZero`s.

    >>> float(zero_from_primal(2.0)), zero_from_primal(2.0, symbolic_zeros=True)
    (0.0, SymbolicZero(float32[]))
    """

    def zero(x: Any) -> Any:
        aval = typeof(x).to_tangent_aval()
        return SymbolicZero(aval) if symbolic_zeros else instantiate(Zero(aval))

    return tree.tree_map(zero, val)


def to_user_tangents(tangents: Sequence, symbolic_zeros: bool) -> list:
    """Return tangents or cotangents in the form that user rules take."""
    if symbolic_zeros:
        return [SymbolicZero(t.aval) if type(t) is Zero else t for t in tangents]
    return [_as_array(instantiate(t)) for t in tangents]


def _as_array(x: Any) -> Any:
    """Return a NumPy value as an array, which has the methods of arrays."""
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype != dtypes.float0:
        return broadcast_in_dim(x, x.shape, tuple(range(x.ndim)))
    return x


def from_user_tangent(tangent: Any) -> Any:
    """Return a tangent or cotangent of a user rule in internal form."""
    return Zero(tangent.aval) if type(tangent) is SymbolicZero else tangent


class DifferentiableArguments:
    """The flattened differentiable arguments of a call.

    It has also the structure from which all arguments are rebuilt.
    """

    def __init__(self, args: Sequence, nondiff_argnums: Sequence[int], symbolic_zeros: bool):
        n = len(args)
        self.nondiff = {i % n: args[i % n] for i in nondiff_argnums}
        self.positions = [i for i in range(n) if i not in self.nondiff]
        self.n = n
        flat, self.tree = flatten_linear(tuple(args[i] for i in self.positions), symbolic_zeros)
        # rules read the shapes and dtypes of numbers
        self.flat = [with_array_attributes(x) for x in flat]
        #: references to mutable arrays among the flat arguments: passed along, but not
        #: differentiated
        self.refs = (
            {i: x for i, x in enumerate(self.flat) if is_ref(x)} if any_refs(self.flat) else {}
        )
        if self.refs:
            self.flat = [x for x in self.flat if not is_ref(x)]

    def take(self) -> list:
        """Return the flat arguments and drop them here.

        The rules keep this object after the call.
        """
        flat, self.flat = self.flat, []
        return flat

    def rebuild(self, flat: Sequence) -> list:
        if self.refs:
            flat = self.with_refs(flat)
        args = [None] * self.n
        for i, x in self.nondiff.items():
            args[i] = x
        for i, x in zip(self.positions, tree.tree_unflatten(self.tree, flat)):
            args[i] = x
        return args

    def with_refs(self, flat: Sequence) -> list:
        """Return all flat arguments, given those that are not references."""
        rest = iter(flat)
        return [self.refs[i] if i in self.refs else next(rest) for i in range(self.tree.num_leaves)]

    def nondiff_values(self) -> list:
        return [self.nondiff[i] for i in sorted(self.nondiff)]


def check_outputs(rule: str, name: str, expected_outputs: list, outputs: list) -> None:
    """Raise TypeError if a rule's results (`outputs`) differ from its function's (`expected_outputs`).

    They differ in structure, shapes or dtypes.
    """
    if expected_outputs and expected_outputs[0] != outputs[0]:
        raise TypeError(
            f"{rule} for function {name} must produce a pair (list or tuple of length two) whose first element has the "
            f"structure of the output of {name}, {expected_outputs[0]}, got {outputs[0]}."
            f"{tree.describe_difference(expected_outputs[0], outputs[0], 'output', 'first element')}"
        )
    for expected, got in zip(expected_outputs[1:], outputs[1:]):
        if not (expected.is_high or got.is_high) and (
            expected.shape != got.shape or (expected.dtype != got.dtype and not got.weak_type)
        ):
            raise TypeError(
                f"{rule} for function {name} must produce a pair whose first element has leaves of the shapes and dtypes of "
                f"the output of {name}: got rule output type {got.str_short()} which doesn't match {expected.str_short()}."
            )
    expected_outputs[:] = outputs


def check_tangents(name, outs, tangents) -> None:
    for o, t in zip(outs, tangents):
        expected, got = typeof(o).to_tangent_aval(), t.aval if type(t) is Zero else typeof(t)
        if expected.shape != got.shape or (
            expected.dtype != got.dtype and expected.dtype != dtypes.float0 and not got.weak_type
        ):
            raise TypeError(
                f"Custom JVP rule must produce primal and tangent outputs with corresponding shapes and dtypes. Expected "
                f"{expected.str_short()} (tangent type of {typeof(o).str_short()}) but got {got.str_short()}, of {name}."
            )


def flatten_cts(name: str, result: tuple, structure, avals: Sequence[ShapedArray]) -> list:
    """Return cotangents in the order of the flat arguments.

    None stands for zeros of a whole subtree.
    """
    try:
        whole = tree.tree_unflatten(of_tangents(structure), avals)
        flat = tree.broadcast_prefix(linear_parts(result), whole, is_leaf=lambda x: x is None)
    except ValueError as error:
        raise TypeError(
            f"custom_vjp: bwd of {name} must return cotangents of the structure of the arguments: {error}"
        ) from None
    for ct, aval in zip(flat, avals):
        ct_aval = aval.to_tangent_aval()
        if (
            ct is not None
            and ct_aval.dtype != dtypes.float0
            and typeof(ct).shape != ct_aval.shape
            and not config.disable_bwd_checks
        ):
            raise ValueError(
                f"custom_vjp: bwd of {name} must return cotangents of the arguments' shapes: an argument of type "
                f"{aval.str_short()} got a cotangent of type {typeof(ct).str_short()}. Consider just returning a None here."
            )
        extra = tuple(sorted(typeof(ct).vma - ct_aval.vma, key=str)) if ct is not None else ()
        if extra:
            raise ValueError(
                f"custom_vjp: bwd of {name} must return cotangents that vary as the arguments do: an argument of type "
                f"{aval.str_short()} got a cotangent of type {typeof(ct).str_short()}.\n  The argument is one value "
                f"for all devices along {extra}, so their cotangents add up: return lax.psum(ct, {extra})."
            )
    dropped = lambda ct, aval: (
        type(ct) is SymbolicZero or aval.to_tangent_aval().dtype == dtypes.float0
    )
    return [None if dropped(ct, aval) else ct for ct, aval in zip(flat, avals)]


def to_front(args, dims):
    """Return batched operands with their batch dim at 0, and the mask of batched operands."""
    return [x if d is None else move_dim(x, d, 0) for x, d in zip(args, dims)], [
        d is not None for d in dims
    ]


def leave_zeros(values: Sequence, flags: Sequence[bool]) -> tuple[list, Callable[[Sequence], list]]:
    """Return the nonzero (co)tangents, and a function that merges batched results with the zeros.

    The flagged values are batched at dim 0.
    """
    zeros = [
        None if type(t) is not Zero else Zero(t.aval.without_dim(0)) if f else t
        for t, f in zip(values, flags)
    ]

    def fill(cotangents):
        rest = iter(cotangents)
        return [next(rest) if z is None else z for z in zeros]

    return [t for t, z in zip(values, zeros) if z is None], fill


def check_unbatched_agree(
    once: list[bool], dims: Sequence, flags: Sequence[bool], axis: BatchAxis
) -> bool:
    """Return True if the results of a mapped call are equal for all examples.

    Then neither an argument (`flags`) nor a result (`dims`) is mapped. A function and its rules share the list `once`, which records the
    first answer. Raise ValueError if a later one differs.
    """
    unmapped = all(d is None for d in dims)
    once[:] = once or [unmapped and not any(flags)]
    if once[0] and not unmapped:
        raise ValueError(
            f"vmap: a custom derivative rule returns values that depend on the mapped axis {axis.name}, but the "
            "results of its function do not. Make the function's results depend on the same mapped values."
        )
    return once[0]


def map_over_axis(
    fun: Callable, axis: BatchAxis, flags: Sequence[bool], once: list[bool] | None = None
) -> Callable:
    """Return flat `fun` mapped over dim 0 of the flagged arguments.

    Either all results are batched at dim 0, or none is (see `check_unbatched_agree`).
    """

    def mapped(*args):
        outs, dims = batch_flat(
            lambda *xs: [instantiate(o) for o in fun(*xs)],
            axis,
            args,
            [0 if f else None for f in flags],
        )
        if once is not None and check_unbatched_agree(once, dims, flags, axis):
            return outs
        return [to_dim(o, d, axis, 0) for o, d in zip(outs, dims)]

    return mapped


def unbatch_ct(ct, whole: bool):
    """Return the cotangent of an argument, summed over the batch if needed.

    It is summed if the argument is unbatched and the cotangent is batched.
    """
    if whole:
        return ct
    return reduce_sum(ct, (0,))


@record
class VjpRules:
    """A custom reverse-mode rule on flat values.

    fwd(args, perturbed) -> (outs, residuals);  bwd(residuals, cts) -> one cotangent (or None) per argument; cts may be `Zero`
    `fun` is the function itself if it may replace `fwd` (`optimize_remat`), else None.
    """

    fwd: Callable
    bwd: Callable
    fun: Callable | None = None


def batch_jvp(jvp: Callable, axis: BatchAxis, flags: Sequence[bool], once: list[bool]) -> Callable:
    """Return a rule mapped over dim 0 of the flagged arguments. Results are batched as in `map_over_axis`."""

    def rule(primals, tangents):
        n = len(primals)
        nonzero_tangents, fill = leave_zeros(tangents, flags)
        nonzero: list[bool] = []

        def value_and_tangent(*xs):
            outs, out_tangents = jvp(list(xs[:n]), fill(xs[n:]))
            nonzero[:] = [type(t) is not Zero for t in out_tangents]
            return [*outs, *(t for t in out_tangents if type(t) is not Zero)]

        results = map_over_axis(
            value_and_tangent,
            axis,
            [*flags, *(f for f, t in zip(flags, tangents) if type(t) is not Zero)],
            once,
        )(*primals, *nonzero_tangents)
        outs, tangents_out = results[: len(nonzero)], iter(results[len(nonzero) :])
        return outs, [
            next(tangents_out) if nz else Zero(typeof(o).to_tangent_aval())
            for o, nz in zip(outs, nonzero)
        ]

    rule.__name__ = function_name(jvp)
    return rule


def batch_vjp(
    rules: VjpRules, axis: BatchAxis, flags: Sequence[bool], once: list[bool]
) -> VjpRules:
    """Return rules mapped over dim 0 of the flagged arguments.

    Results are batched as in `map_over_axis`, residuals if they differ along the axis.
    """
    differ: list[bool] = []

    def fwd(args, perturbed):
        split_at: list = []

        def fwd_with_residuals(*xs):
            outs, residuals = rules.fwd(xs, perturbed)
            split_at[:] = [len(outs)]
            return [*map(instantiate, outs), *residuals]

        results, dims = batch_flat(
            fwd_with_residuals, axis, args, [0 if f else None for f in flags]
        )
        n = split_at[0]
        differ[:] = [d is not None for d in dims[n:]]
        whole = 0 if check_unbatched_agree(once, dims[:n], flags, axis) else n
        results = [
            x if k >= whole and d is None else to_dim(x, d, axis, 0)
            for k, (x, d) in enumerate(zip(results, dims))
        ]
        return results[:n], results[n:]

    bwd = _batch_bwd(rules, axis, flags, once, differ)
    fwd.__name__, bwd.__name__ = function_name(rules.fwd), function_name(rules.bwd)
    fun = None if rules.fun is None else map_over_axis(rules.fun, axis, flags, once)
    return VjpRules(fwd, bwd, fun)


def _batch_bwd(
    rules: VjpRules,
    axis: BatchAxis,
    flags: Sequence[bool],
    once: list[bool],
    differ: Sequence[bool],
) -> Callable:
    """Return the backward half mapped over dim 0 of the residuals that `differ` and of the cotangents of mapped results."""

    def bwd(residuals, cts):
        present: list[bool] = []
        split = not once[0]
        mapped_cts, fill = leave_zeros(cts, [split] * len(cts))

        def run(*xs):
            result = rules.bwd(list(xs[: len(residuals)]), fill(xs[len(residuals) :]))
            present[:] = [ct is not None for ct in result]
            return [ct for ct in result if ct is not None]

        unmapped: list[bool] = []
        mapped = [*differ, *[split] * len(mapped_cts)]
        batched = map_over_axis(run, axis, mapped, None if split else unmapped)
        results = iter(batched(*residuals, *mapped_cts))
        return [
            unbatch_ct(next(results), f or unmapped == [True]) if p else None
            for p, f in zip(present, flags)
        ]

    return bwd
