"""Differentiation for users: grad, value_and_grad, vjp, jvp, linearize, linear_transpose, jacobians, hessian."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.api.differentiation.reverse import vjp_with_aux
from weft._engine.api.differentiation.values import (
    as_cotangent,
    as_derivative,
    aux_of,
    check_cotangent,
    flat_with_aux,
    is_same_kind,
)
from weft._engine.api.execute import to_array
from weft._engine.api.flat import FlatFunction, argument_names, aval_of, signature_of
from weft._engine.api.jit import function_name, jit
from weft._engine.api.vmap import vmap
from weft._engine.control.custom_rules import custom_vjp
from weft._engine.control.hijax_types import flatten_linear, of_tangents
from weft._engine.control.ref import is_ref
from weft._engine.core.interpret import evaluate
from weft._engine.core.stage import hoist_tracers, stage
from weft._engine.core.trace import UndefPrimal, Zero, eval_trace, trace_state, typeof
from weft._engine.ir.symbolic import SymbolicDim
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.casting import size_as
from weft._engine.ops.elementwise import add, convert_element_type, eq
from weft._engine.ops.layout import broadcasted_iota, reshape
from weft._engine.ops.slicing import slice_in_dim
from weft._engine.runtime.array import from_numpy
from weft._engine.transforms.jvp import instantiate, jvp_flat
from weft._engine.transforms.linearize import linearize_flat
from weft._engine.transforms.transpose import backward_pass
from weft._engine.util import dtypes, tree
from weft._engine.util.errors import ShapeError
from weft._engine.util.source import api_boundary, check_callable, transformed_scope, wraps


def check_argnums(argnums, n: int, api: str) -> tuple[int, ...]:
    """Return `argnums` as nonnegative positions among `n` arguments."""
    try:
        nums = (argnums,) if isinstance(argnums, (int, np.integer)) else tuple(argnums)
        if not all(isinstance(k, (int, np.integer)) for k in nums):
            raise TypeError
    except TypeError:
        raise TypeError(
            f"{api}: argnums must be an integer or several, got {argnums!r:.60}."
        ) from None
    for k in nums:
        if not -n <= k < n:
            needed = max(i + 1 if i >= 0 else -i for i in nums)
            raise TypeError(
                f"{api}: differentiating with respect to argnums={argnums} requires at least {needed} positional arguments, "
                f"got only {n} positional arguments."
            )
    positions = tuple(int(k) % n for k in nums)
    if len(set(positions)) < len(positions):
        raise ValueError(f"{api}: argnums={argnums} names an argument twice.")
    return positions


def _with_args(fun: Callable, args: Sequence, kwargs: dict, nums: Sequence[int]) -> Callable:
    def partial(*chosen):
        full = list(args)
        for k, x in zip(nums, chosen):
            full[k] = x
        return fun(*full, **kwargs)

    partial.__name__ = function_name(fun)  # for messages
    return partial


def _check_input(x, api: str, name: Callable[[], str], holomorphic: bool, allow_int: bool) -> None:
    aval = typeof(x)
    dtype = aval.to_tangent_aval().dtype if aval.is_high else aval.dtype
    if holomorphic:
        if not dtypes.issubdtype(dtype, np.complexfloating):
            raise TypeError(
                f"{api} with holomorphic=True requires inputs with complex dtype, but got {dtype.name} at argument {name()}."
            )
        return
    if dtypes.is_extended(dtype) or dtypes.issubdtype(dtype, np.integer) or dtype == np.bool_:
        if not allow_int:
            raise TypeError(
                f"{api} requires real- or complex-valued inputs (input dtype that is a sub-dtype of np.inexact), but got "
                f"{dtype.name} at argument {name()}. "
                "If you want to differentiate with respect to integers (with zero derivative), use allow_int=True; "
                "else choose the arguments with argnums or make the value a float."
            )
    elif dtypes.issubdtype(dtype, np.complexfloating) and api == "jacfwd":
        raise TypeError(
            f"{api} requires real-valued inputs (input dtype that is a sub-dtype of np.floating), but got {dtype.name} at "
            f"argument {name()}; use holomorphic=True for holomorphic "
            "functions."
        )


def _check_inputs(fun, args, nums, api, holomorphic, allow_int) -> None:
    for k in nums:
        for i, leaf in enumerate(flatten_linear(args[k])[0]):
            name = lambda k=k, i=i: argument_names(signature_of(fun), args, {})[
                tree.tree_structure(args[:k]).num_leaves + i
            ]
            if is_ref(leaf):
                raise TypeError(
                    f"{api}: argument {name()} is a reference of type {leaf.type}; its gradient must be accumulated into a "
                    "ref. Use weft.vjp and its with_refs. (References in other arguments than argnums are allowed.)"
                )
            try:
                is_number = typeof(leaf).is_high or not dtypes.is_strings(typeof(leaf).dtype)
            except TypeError:
                is_number = False
            if not is_number:
                raise TypeError(
                    f"{api}: Argument {name()}: {leaf!r} of type {type(leaf)} is not a valid JAX type."
                )
            _check_input(leaf, api, name, holomorphic, allow_int)


@api_boundary
def vjp(fun: Callable, *primals, has_aux: bool = False, reduce_axes=(), saveable_args: Any = True):
    """Return `fun(*primals)` and the function that maps a cotangent of the output to cotangents of the inputs.

    With `has_aux`, `fun` returns `(out, aux)` and the result is `(out, pullback, aux)`. The pullback raises ValueError for a
    cotangent of another structure, shape or dtype than the output. It saves the residuals it needs (see `Pullback.args_res`); arguments
    are saved only if `saveable_args` is true: a bool, or nested tuples of bools that match the children of the arguments.

    >>> y, pull = weft.vjp(wnp.sin, 0.0)
    >>> float(pull(2.0)[0])
    2.0
    """
    _check_reduce_axes("vjp", reduce_axes)
    return vjp_with_aux(fun, primals, has_aux, "vjp", saveable_args)


def _check_reduce_axes(api: str, axes) -> None:
    """Raise NotImplementedError for axes over which cotangents should be summed."""
    if axes:
        raise NotImplementedError(
            f"{api}: reduce_axes={axes!r} is not supported. Sum the cotangents with lax.psum(ct, {axes!r})."
        )


def value_and_grad(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes=(),
) -> Callable:
    """Return a function that computes `fun` and its gradient: `(value, gradient)`, or `((value, aux), gradient)` with `has_aux`.

    It has the shapes, dtypes and errors of `grad`: it raises TypeError if the output is not a real scalar.

    >>> value, slope = weft.value_and_grad(lambda x: x ** 2)(3.0)
    >>> float(value), float(slope)
    (9.0, 6.0)
    """
    check_callable("value_and_grad", fun)
    _check_reduce_axes("grad", reduce_axes)

    @wraps(
        fun,
        "Value and gradient of {} with respect to the arguments that `argnums` names; it takes the same arguments.",
    )
    @functools.partial(api_boundary, name="grad")
    def value_and_grad_f(*args, **kwargs):
        return _value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, args, kwargs)

    return value_and_grad_f


def _value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, args, kwargs):
    nums = check_argnums(argnums, len(args), "grad")
    chosen = [args[k] for k in nums]
    _check_inputs(fun, args, nums, "grad", holomorphic, allow_int)
    result = vjp_with_aux(_with_args(fun, args, kwargs, nums), chosen, has_aux, "grad")
    value, pullback = result[0], result[1]
    _check_scalar(fun, value, holomorphic)
    aval = typeof(value)
    one = np.ones((), aval.dtype)[()]
    if typeof(one).dtype != aval.dtype:  # `fun` enables x64 internally
        one = from_numpy(one, ShapedArray((), aval.dtype))
    grads = pullback(one)
    grads = grads[0] if isinstance(argnums, (int, np.integer)) else tuple(grads)
    return ((value, result[2]) if has_aux else value), grads


def _check_scalar(fun, value, holomorphic: bool) -> None:
    try:
        aval = typeof(value)
    except TypeError:
        raise TypeError(
            f"Gradient only defined for scalar-output functions. Output was {value!r} (grad of {function_name(fun)}). "
            "Use has_aux=True to return more than the scalar."
        ) from None
    if aval.shape != ():
        raise TypeError(
            f"Gradient only defined for scalar-output functions. Output had shape: {aval.shape} (grad of "
            f"{function_name(fun)}). "
            "Sum it, or use weft.jacrev / weft.vjp."
        )
    if holomorphic:
        if not dtypes.issubdtype(aval.dtype, np.complexfloating):
            raise TypeError(
                f"grad with holomorphic=True requires outputs with dtype that is a sub-dtype of np.complexfloating, but got "
                f"{aval.dtype.name}."
            )
    elif not dtypes.issubdtype(aval.dtype, np.floating):
        raise TypeError(
            "grad requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got "
            f"{aval.dtype.name} from "
            f"{function_name(fun)}. "
            "For complex outputs use weft.vjp, or holomorphic=True."
        )


def grad(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes=(),
) -> Callable:
    """Return a function that computes the gradient of a scalar-valued `fun` with respect to its arguments `argnums`.

    The gradient has their structure, shapes and dtypes. With `has_aux` the result is `(gradient, aux)`. Raises TypeError if the output is
    not a real scalar or an input is not inexact (unless `holomorphic` or `allow_int` permits it).

    >>> float(weft.grad(wnp.tanh)(0.0))
    1.0
    """
    check_callable("grad", fun)
    _check_reduce_axes("grad", reduce_axes)

    @wraps(
        fun,
        "Gradient of {} with respect to the arguments that `argnums` names; it takes the same arguments.",
    )
    @functools.partial(api_boundary, name="grad")
    def grad_f(*args, **kwargs):
        value, grads = _value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, args, kwargs)
        return (grads, value[1]) if has_aux else grads

    return grad_f


@api_boundary
def jvp(fun: Callable, primals: Sequence, tangents: Sequence, has_aux: bool = False):
    """Return `fun(*primals)` and its directional derivative along `tangents`, which have the primals' structure, shapes and dtypes.

    The dtype of an integer's tangent is `float0`. With `has_aux` the result is `(out, tangent, aux)`.
    Raises TypeError for tangents of another structure, shape or dtype.

    >>> y, t = weft.jvp(wnp.sin, (0.0,), (2.0,))
    >>> float(y), float(t)
    (0.0, 2.0)
    """
    flat, in_tree = _check_pairs(primals, tangents)
    flat_tangents, _ = flatten_linear(tuple(tangents))
    checked = list(map(_check_tangent, flat, flat_tangents))
    flat_fun, trees = flat_with_aux(fun, in_tree, has_aux, "jvp")
    with transformed_scope("jvp"):
        outs, out_tangents = jvp_flat(flat_fun, flat, checked)
    n = trees[0].num_leaves
    tangents_out = list(map(_result_tangent, outs, out_tangents[:n]))
    result = (
        tree.tree_unflatten(trees[0], outs[:n]),
        tree.tree_unflatten(of_tangents(trees[0]), tangents_out),
    )
    return (*result, aux_of(trees, outs[n:])) if has_aux else result


def _check_pairs(primals: Sequence, tangents: Sequence) -> tuple[list, Any]:
    """Return the leaves of primals and their structure; raise TypeError unless tangents have the same structure."""
    for x in (primals, tangents):
        if not isinstance(x, (tuple, list)):
            raise TypeError(
                f"primal and tangent arguments to weft.jvp must be tuples or lists; found {type(primals).__name__} and "
                f"{type(tangents).__name__}."
            )
    flat, in_tree = flatten_linear(tuple(primals))
    tangent_tree = flatten_linear(tuple(tangents))[1]
    is_same = in_tree == tangent_tree or tangent_tree == of_tangents(in_tree)
    if not is_same or isinstance(primals, tuple) != isinstance(tangents, tuple):
        trees = tree.tree_structure(primals), tree.tree_structure(tangents)
        raise TypeError(
            "primal and tangent arguments to weft.jvp must have the same tree structure; primals have "
            f"{trees[0]}, tangents {trees[1]}.{tree.describe_difference(*trees, 'primals', 'tangents')}"
        )
    return flat, in_tree


def _check_tangent(p: Any, t: Any) -> Any:
    """Return the tangent of primal `p` in the type that the program expects; raise TypeError if its type does not fit."""
    expected, got = typeof(p).to_tangent_aval(), typeof(t)
    are_inexact = all(dtypes.issubdtype(d, np.inexact) for d in (expected.dtype, got.dtype))
    is_fitting = expected.dtype == got.dtype or (got.weak_type and are_inexact)
    if expected.shape != got.shape or not is_fitting:
        facts = f"the tangent of a primal of type {typeof(p).str_short()} must be of type {expected.str_short()}, got {got.str_short()}."
        if expected.shape != got.shape:
            raise ShapeError(f"jvp called with different primal and tangent shapes: {facts}")
        raise TypeError(f"primal and tangent arguments to weft.jvp do not match: {facts}")
    if expected.dtype == dtypes.float0:
        return Zero(expected)
    if type(p) in (float, complex) and type(t) is type(p):
        return t  # Python scalars stay Python scalars, as in the call of `fun`
    return as_cotangent(t, typeof(p))


def _result_tangent(out: Any, t: Any) -> Any:
    """Return the tangent of a result in the form for the user."""
    tangent = as_derivative(t, typeof(out))
    is_new_scalar = type(tangent) in (float, complex) and type(out) not in (float, complex)
    return to_array(tangent) if is_new_scalar and trace_state.trace is eval_trace else tangent


@api_boundary
def linearize(fun: Callable, *primals, has_aux: bool = False):
    """Return `fun(*primals)` and its derivative there: a linear function of tangents. `fun` runs once.

    Tangents have the structure, shapes and dtypes of the primals. The linear function raises ValueError for others.

    >>> y, f_lin = weft.linearize(wnp.sin, 0.0)
    >>> float(f_lin(3.0))
    3.0
    """
    flat, in_tree = flatten_linear(tuple(primals))
    flat_fun, trees = flat_with_aux(fun, in_tree, has_aux, "linearize")
    in_avals = [typeof(x) for x in flat]
    differentiable = [a.to_tangent_aval().dtype != dtypes.float0 for a in in_avals]
    with transformed_scope("jvp"):
        outs, program, nonzero = linearize_flat(flat_fun, flat, differentiable)
    n = trees[0].num_leaves
    avals = [typeof(o) for o in outs[:n]]

    def f_jvp(linear, residuals, *tangents):
        leaves, structure = flatten_linear(tuple(tangents))
        if structure != in_tree and structure != of_tangents(in_tree):
            raise TypeError(
                f"linearize: tangents must have the structure of the primals, {in_tree}, got {structure}."
                f"{tree.describe_difference(in_tree, structure, 'primals', 'tangents')}"
            )
        for t, a in zip(leaves, in_avals):
            _check_linear_tangent(t, a)
        leaves = [as_cotangent(t, a) for t, a, d in zip(leaves, in_avals, differentiable) if d]
        results = iter(evaluate(linear, *residuals, *leaves))
        tangents_out = [next(results) if nz else None for nz in nonzero][:n]
        tangents_out = [
            Zero(a.to_tangent_aval()) if t is None else t for t, a in zip(tangents_out, avals)
        ]
        return tree.tree_unflatten(
            of_tangents(trees[0]), [as_derivative(t, a) for t, a in zip(tangents_out, avals)]
        )

    out = tree.tree_unflatten(trees[0], outs[:n])
    linear = program.replace(constvars=[], consts=[], invars=[*program.constvars, *program.invars])
    f_jvp = tree.Partial(functools.partial(f_jvp, linear), program.consts)
    return (out, f_jvp, aux_of(trees, outs[n:])) if has_aux else (out, f_jvp)


def _check_linear_tangent(t: Any, aval: ShapedArray) -> None:
    """Raise ValueError for a tangent that does not fit a primal of type `aval`."""
    got = typeof(t)
    if got.shape != aval.shape or not is_same_kind(got, aval.to_tangent_aval()):
        raise ValueError(
            "linearize: linearized function called on tangent values inconsistent with the original primal values: "
            f"a tangent of type {got.str_short()} for a primal of type {aval.str_short()}."
        )
    if got.vma - aval.vma:
        axes = tuple(sorted(got.vma - aval.vma, key=str))
        raise ValueError(
            f"linearize: a tangent of type {got.str_short()} for a primal of type {aval.str_short()}: it varies over {axes} and "
            "the primal does not.\n  A tangent varies as its primal does. This might be fixed by applying "
            f"`weft.lax.pcast(..., {axes}, to='varying')` to the primal value passed to linearize."
        )


def linear_transpose(fun: Callable, *primals, reduce_axes=()) -> Callable:
    """Return the transpose of a linear `fun`: it maps a cotangent of the output to cotangents of the inputs.

    `primals` only provide types (arrays or ShapeDtypeStructs). The transpose is a pytree of the traced values that `fun` closes over: it
    may be a result and an argument of transformed functions.

    >>> float(weft.linear_transpose(lambda x: 3.0 * x, 1.0)(2.0)[0])
    6.0
    """
    _check_reduce_axes("linear_transpose", reduce_axes)
    flat = FlatFunction(fun, primals, flatten=flatten_linear)
    avals = [aval_of(x) for x in flat.leaves]
    program, values = hoist_tracers(stage(flat, avals, function_name(fun)))
    kinds = [[a.dtype for a in types] for types in (avals, program.out_avals)]
    if not any(
        all(dtypes.issubdtype(d, kind) for of in kinds for d in of)
        for kind in (np.inexact, np.integer)
    ):
        signature = " -> ".join(str([d.name for d in of]) for of in kinds)
        raise TypeError(
            "linear_transpose only supports functions from inexact to inexact values and from integers to integers, got "
            f"{signature} for {function_name(fun)}."
        )

    @functools.partial(api_boundary, name="linear_transpose")
    def transposed(*values_and_ct):
        *values, ct = values_and_ct
        cts, structure = flatten_linear(ct)
        if structure != flat.out_tree:
            raise TypeError(
                f"linear_transpose: the cotangent tree does not match that of the output: it must be {flat.out_tree}, got "
                f"{structure}."
                f"{tree.describe_difference(flat.out_tree, structure, 'output', 'cotangent')}"
            )
        for c, aval in zip(cts, program.out_avals):
            check_cotangent(c, aval, "linear_transpose", TypeError)
        in_cts = backward_pass(program, [*values, *(UndefPrimal(a) for a in avals)], cts)[
            len(values) :
        ]
        args, _ = tree.tree_unflatten(flat.in_tree, [instantiate(x) for x in in_cts])
        return args

    return tree.Partial(transposed, *values)


def jacfwd(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable:
    """Return a function that computes the Jacobian of `fun` by forward mode: one column per input element.

    Each leaf has shape `output.shape + input.shape` and the dtype of the output. Raises TypeError if an input is not a real float (see
    `holomorphic`).

    >>> weft.jacfwd(lambda x: x ** 2)(wnp.arange(3.)).shape
    (3, 3)
    """
    check_callable("jacfwd", fun)

    @wraps(
        fun,
        "Jacobian of {} with respect to the arguments that `argnums` names; it takes the same arguments.",
    )
    @functools.partial(api_boundary, name="jacfwd")
    def jacobian(*args, **kwargs):
        nums = check_argnums(argnums, len(args), "jacfwd")
        chosen = tuple(args[k] for k in nums)
        _check_inputs(fun, args, nums, "jacfwd", holomorphic, False)
        partial = _with_args(fun, args, kwargs, nums)
        flat, in_tree = tree.tree_flatten(chosen)
        if not flat:
            raise ValueError(
                f"jacfwd: the arguments that argnums={argnums} names hold no arrays, and a Jacobian has a column for each "
                "element."
            )

        def push(basis):
            return jvp(partial, chosen, tree.tree_unflatten(in_tree, basis), has_aux=has_aux)

        out = vmap(push, out_axes=(None, -1, None) if has_aux else (None, -1))(_basis(flat))
        value, columns = out[0], out[1]
        result = tree.tree_map(
            lambda y, c: _split_columns(c, flat, in_tree, y, argnums), value, columns
        )
        return (result, out[2]) if has_aux else result

    return jacobian


def jacrev(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable:
    """Return a function that computes the Jacobian of `fun` by reverse mode: one row per output element.

    Each leaf has shape `output.shape + input.shape` and the dtype of the input. Raises TypeError if an input or output is not inexact (see
    `holomorphic` and `allow_int`).

    >>> weft.jacrev(lambda x: x.sum())(wnp.arange(3.)).tolist()
    [1.0, 1.0, 1.0]
    """
    check_callable("jacrev", fun)

    @wraps(
        fun,
        "Jacobian of {} with respect to the arguments that `argnums` names; it takes the same arguments.",
    )
    @functools.partial(api_boundary, name="jacrev")
    def jacobian(*args, **kwargs):
        nums = check_argnums(argnums, len(args), "jacrev")
        chosen = tuple(args[k] for k in nums)
        _check_inputs(fun, args, nums, "jacrev", holomorphic, allow_int)
        result = vjp_with_aux(_with_args(fun, args, kwargs, nums), chosen, has_aux, "jacrev")
        value, pullback = result[0], result[1]
        flat_out, out_tree = tree.tree_flatten(value)
        if not flat_out:
            raise ValueError(
                "jacrev: the result of `fun` holds no arrays, and a Jacobian has a row for each element."
            )
        for y in flat_out:
            _check_real_output(typeof(y).dtype, holomorphic)
        rows = vmap(lambda basis: pullback(tree.tree_unflatten(out_tree, basis)))(_basis(flat_out))
        rows = rows[0] if isinstance(argnums, (int, np.integer)) else tuple(rows)
        leaves, rows_tree = tree.tree_flatten(rows)
        parts = [_split_rows(r, flat_out) for r in leaves]
        outs = [tree.tree_unflatten(rows_tree, [p[i] for p in parts]) for i in range(len(flat_out))]
        jac = tree.tree_unflatten(out_tree, outs)
        return (jac, result[2]) if has_aux else jac

    return jacobian


jacobian = jacrev


def _check_real_output(dtype, holomorphic: bool) -> None:
    if holomorphic and not dtypes.issubdtype(dtype, np.complexfloating):
        raise TypeError(
            "jacrev with holomorphic=True requires outputs with dtype that is a sub-dtype of np.complexfloating, but got "
            f"{dtype.name}."
        )
    if not holomorphic and not dtypes.issubdtype(dtype, np.floating):
        raise TypeError(
            "jacrev requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got "
            f"{dtype.name}. For complex outputs use weft.vjp, or holomorphic=True."
        )


def hessian(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable:
    """Return a function that computes the Hessian of `fun`, forward over reverse.

    >>> weft.hessian(lambda x: (x ** 3).sum())(wnp.ones(2)).shape
    (2, 2)
    """
    check_callable("hessian", fun)
    return jacfwd(
        jacrev(fun, argnums, has_aux=has_aux, holomorphic=holomorphic),
        argnums,
        has_aux=has_aux,
        holomorphic=holomorphic,
    )


def _basis(flat) -> list:
    """Return the standard basis of the direct sum of `flat`, stacked along dim 0 of each leaf."""
    avals = [typeof(x) for x in flat]
    total = sum(a.size for a in avals)
    eye, start = [], 0
    for a in avals:
        dtype = a.to_tangent_aval().dtype
        if isinstance(total, SymbolicDim):
            rows, columns = (broadcasted_iota(np.int32, (total, a.size), d) for d in (0, 1))
            block = convert_element_type(
                eq(rows, add(columns, size_as(start, np.int32))),
                np.bool_ if dtype == dtypes.float0 else dtype,
            )
            eye.append(reshape(block, (total, *a.shape)))
            start += a.size
            continue
        block = np.zeros((total, a.size), np.bool_ if dtype == dtypes.float0 else dtype)
        block[start : start + a.size] = np.eye(a.size, dtype=block.dtype)
        eye.append(block.reshape((total, *a.shape)))
        start += a.size
    return eye


def _split_columns(columns, flat, in_tree, value, argnums):
    """Return columns stacked in the last dim as one leaf of shape value.shape + input.shape per input."""
    shape, parts, start = typeof(value).shape, [], 0
    for x in flat:
        aval = typeof(x)
        part = slice_in_dim(columns, start, start + aval.size, axis=len(shape))
        parts.append(reshape(part, shape + aval.shape))
        start += aval.size
    result = tree.tree_unflatten(in_tree, parts)
    return result[0] if isinstance(argnums, (int, np.integer)) else result


def _split_rows(rows, flat_out) -> list:
    shape, parts, start = typeof(rows).shape[1:], [], 0
    for y in flat_out:
        aval = typeof(y)
        parts.append(
            np.zeros(aval.shape + shape, dtypes.float0)
            if typeof(rows).dtype == dtypes.float0
            else reshape(slice_in_dim(rows, start, start + aval.size, axis=0), aval.shape + shape)
        )
        start += aval.size
    return parts


def fwd_and_bwd(
    fun: Callable, argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True
) -> tuple[Callable, Callable]:
    """Return the two halves of reverse mode as functions, each compiled once (unless `jitted` is False).

    `fwd(*args)` returns `(out, residuals)`, or `(out, residuals, aux)` with `has_aux`; `bwd(residuals, ct)` returns the cotangent
    of argument `argnums`, or a tuple of them.

    >>> fwd, bwd = weft.fwd_and_bwd(lambda x, y: x * wnp.sin(y), argnums=(0, 1))
    >>> out, residuals = fwd(2.0, 0.0)
    >>> [float(ct) for ct in bwd(residuals, 1.0)]
    [0.0, 2.0]
    """

    def fwd(*args, **kwargs):
        nums = check_argnums(argnums, len(args), "fwd_and_bwd")
        return vjp_with_aux(
            _with_args(fun, args, kwargs, nums), [args[k] for k in nums], has_aux, "fwd_and_bwd"
        )

    def bwd(residuals, ct):
        cts = residuals(ct)
        return cts[0] if isinstance(argnums, (int, np.integer)) else cts

    return (jit(fwd), jit(bwd)) if jitted else (fwd, bwd)


def custom_gradient(fun: Callable) -> Callable:
    """Return a function with a custom gradient from `fun`, which returns `(out, vjp)`.

    `vjp(ct)` returns the cotangents of its arguments (a single one, or a tuple).

    >>> @weft.custom_gradient
    ... def square(x): return x * x, lambda ct: 10.0 * ct * x
    >>> float(square(3.0)), float(weft.grad(square)(3.0))
    (9.0, 30.0)
    """

    def value_and_vjp(*args):
        result = fun(*args)
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise TypeError(
                f"custom_gradient: {function_name(fun)} must return a pair (output, vjp), got {type(result)}."
            )
        return result

    @custom_vjp
    def wrapped(*args):
        return value_and_vjp(*args)[0]

    def fwd(*args):
        out, rule = value_and_vjp(*args)
        flat, out_tree = flatten_linear(out)
        results: list = []

        def flat_rule(*cts):
            in_cts = rule(tree.tree_unflatten(of_tangents(out_tree), cts))
            leaves, structure = flatten_linear(in_cts if isinstance(in_cts, tuple) else (in_cts,))
            results[:] = [structure]
            return leaves

        program = stage(flat_rule, [typeof(x).to_tangent_aval() for x in flat], function_name(fun))
        call = lambda consts, cts: tree.tree_unflatten(
            results[0], evaluate(program.replace(consts=consts), *cts)
        )
        return out, tree.Partial(call, program.consts)

    def bwd(pullback, ct):
        return pullback(flatten_linear(ct)[0])

    wrapped.defvjp(fwd, bwd)
    return functools.update_wrapper(wrapped, fun, updated=())
