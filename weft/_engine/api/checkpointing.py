"""`checkpoint`: recomputation of intermediate values in the backward pass, and the policies that select the values to save.

A policy is called with a primitive, the types of its operands and its parameters; it returns whether the results may be saved.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from weft._engine.api.calls.call_cache import cache_of_function
from weft._engine.api.flat import FlatFunction, check_argnames, check_static_argnums
from weft._engine.control.hijax_types import flatten
from weft._engine.control.ref import lift_refs, thread_refs
from weft._engine.control.remat import Offloadable, Recompute, Saveable, origin, remat_p
from weft._engine.core.context import current_context
from weft._engine.core.primitive import ContractOp, ProductOp, RaggedOp
from weft._engine.core.stage import hoist_tracers, stage
from weft._engine.core.trace import Tracer, typeof
from weft._engine.ir.jaxpr import Atom, Eqn
from weft._engine.ir.rewrite import inline_calls
from weft._engine.ops.layout import name as named, name_p
from weft._engine.transforms.linearize import linearize_flat
from weft._engine.util import tree
from weft._engine.util.config import config
from weft._engine.util.source import api_boundary, check_callable, function_name, wraps

Policy = Callable[..., Any]  # a bool, Saveable, Recompute or an Offloadable


def checkpoint(
    fun: Callable | None = None,
    *,
    prevent_cse: Any = True,
    policy: Callable | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    concrete: bool = False,
) -> Any:
    """Return `fun` with intermediate values that reverse mode recomputes instead of saving them.

    `policy(primitive, *avals, **params) -> bool` selects the equations whose results may be saved
    (`weft.checkpoint_policies` has common ones).
    A barrier keeps the recomputation from being merged with the original computation, unless `prevent_cse` is false: a bool, or a tree of
    bools that is a prefix of the tuple of arguments, to apply the barrier only to values computed from some of these.
    It has the shapes, dtypes and errors of `fun`.

    >>> float(weft.grad(weft.checkpoint(lambda x: wnp.sin(wnp.sin(x))))(0.0))
    1.0
    """
    if fun is None:
        return functools.partial(
            checkpoint,
            prevent_cse=prevent_cse,
            policy=policy,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
        )
    check_callable("checkpoint", fun)
    if policy is not None:
        check_callable("checkpoint: policy", policy)
    if concrete:
        raise NotImplementedError("checkpoint: concrete=True was removed; use static_argnums.")

    names = check_argnames(static_argnames, "checkpoint", "static_argnames")

    @wraps(fun)
    @functools.partial(api_boundary, name="checkpoint")
    def checkpointed(*args, **kwargs):
        return call(args, kwargs)

    def with_refs(_, first, args, kwargs):
        static = (static_argnums,) if isinstance(static_argnums, int) else static_argnums
        check_static_argnums(static, len(args))
        fixed = {k % len(args): args[k % len(args)] for k in static}
        dynamic = [x for i, x in enumerate(args) if i not in fixed]

        def on_dynamic(dynamic, kwargs):
            remaining = iter(dynamic)
            return fun(
                *[fixed[i] if i in fixed else next(remaining) for i in range(len(args))], **kwargs
            )

        on_values = checkpoint(
            lambda f, values, args: f.call(values, args),
            prevent_cse=prevent_cse,
            policy=policy,
            static_argnums=0,
        )
        return lift_refs(
            first,
            "checkpoint",
            (dynamic, kwargs),
            [functools.update_wrapper(on_dynamic, fun)],
            lambda funs, values, args: on_values(funs[0], values, args),
        )

    @thread_refs(with_refs)
    def call(args, kwargs):
        fixed = {k: kwargs[k] for k in names if k in kwargs}
        on_rest = functools.partial(fun, **fixed) if fixed else fun
        flat = FlatFunction(
            on_rest,
            args,
            {k: x for k, x in kwargs.items() if k not in fixed},
            static_argnums,
            flatten=lambda x: flatten(x, "checkpoint"),
        )
        jaxpr, consts = _trace_cached(flat, fun, fixed)
        barred = (
            prevent_cse
            if isinstance(prevent_cse, bool)
            else (True,) * len(consts) + _of_leaves(prevent_cse, flat)
        )
        outs = remat_p.bind(
            *consts,
            *flat.leaves,
            jaxpr=jaxpr,
            prevent_cse=barred,
            policy=policy,
            name=function_name(fun),
            differentiated=False,
        )
        return flat.unflatten(outs)

    return checkpointed


remat = checkpoint


def _of_leaves(prevent_cse: Any, flat: FlatFunction) -> tuple[bool, ...]:
    """Return one bool per leaf of the arguments, from a prefix tree for the positional ones."""
    args, kwargs = tree.tree_unflatten(flat.in_tree, flat.leaves)
    try:
        flags = tree.broadcast_prefix(prevent_cse, args)
    except ValueError as error:
        raise ValueError(
            f"checkpoint: prevent_cse must be a bool, or a tree that is a prefix of the tuple of arguments: {error}"
        ) from None
    return (*map(bool, flags), *(True for _ in tree.tree_leaves(kwargs)))


def _trace_cached(flat: FlatFunction, fun: Callable, fixed: dict) -> tuple:
    """Return the program of `flat` and its constants that are tracers; it is traced once per types, static values and settings.

    Functions that close over tracers or have effects, and calls with unhashable static values, are traced each time.
    """
    avals = [typeof(x) for x in flat.leaves]
    trace = lambda: hoist_tracers(stage(flat, avals, function_name(fun)))
    key = (flat.in_tree, tuple(avals), flat.statics, tuple(fixed.items()), current_context())
    known = cache_of_function(fun, "checkpoint", dict)
    try:
        cached = known.get(key)
    except TypeError:  # a static value that is not hashable
        return trace()
    if cached is not None:
        jaxpr, flat.out_tree = cached
        return jaxpr, []
    jaxpr, consts = trace()
    if not consts and not jaxpr.effects and not config.check_tracer_leaks:
        known[key] = jaxpr, flat.out_tree
    return jaxpr, consts


def checkpoint_name(x: Any, name: str) -> Any:
    """Return a copy of `x` (a tree of arrays) with a name for checkpoint policies.

    >>> from weft._engine.api.checkpointing import checkpoint_name
    >>> policy = weft.checkpoint_policies.save_only_these_names("s")
    >>> float(weft.grad(weft.checkpoint(lambda x: wnp.sin(checkpoint_name(wnp.sin(x), "s")), policy=policy))(0.0))
    1.0
    """
    return tree.tree_map(lambda leaf: named(leaf, name) if isinstance(leaf, Tracer) else leaf, x)


def print_saved_residuals(fun: Callable, *args, **kwargs) -> None:
    """Print the values that reverse mode of `fun` would save between its passes.

    A line has the type, and the argument or source line; arguments come first, then results in program order.
    """
    flat = FlatFunction(fun, args, kwargs)

    def forward(*xs):
        program = linearize_flat(flat, xs)[1]
        return [c for c in program.consts if isinstance(c, Tracer)]

    jaxpr = inline_calls(stage(forward, [typeof(x) for x in flat.leaves], function_name(fun)))
    eqn_of: dict[Atom, Eqn] = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}
    arguments: dict[Atom, str] = dict(zip(jaxpr.invars, flat.names()))
    place = {atom: i for i, atom in enumerate([*arguments, *eqn_of])}
    for atom in sorted(dict.fromkeys(jaxpr.outvars), key=lambda atom: place.get(atom, 0)):
        producer = eqn_of.get(atom)
        if producer is None:
            source = (
                f"from the argument {arguments[atom]}" if atom in arguments else "from a constant"
            )
        else:
            source = origin(producer)
        print(atom.aval.str_short(True), source)


def everything_saveable(*_, **__) -> bool:
    """Save everything, as without `checkpoint`."""
    return True


def nothing_saveable(*_, **__) -> bool:
    """Save only the inputs; the default."""
    return False


def dots_saveable(primitive, *_, **__) -> bool:
    """Save the results of contractions and convolutions, the most expensive ones to recompute."""
    return isinstance(primitive, ProductOp)


def dots_with_no_batch_dims_saveable(primitive, *avals, **params) -> bool:
    """Save the results of contractions without batch dims: those with weights, but not those among activations."""
    if isinstance(primitive, RaggedOp):
        return avals[0].ndim == 2
    if not isinstance(primitive, ContractOp):
        return False
    _, (lhs_batch, rhs_batch) = params["dimension_numbers"]
    return not lhs_batch and not rhs_batch


def _names(primitive, params) -> str | None:
    return params["name"] if primitive is name_p else None


def save_only_these_names(*names: str) -> Policy:
    """Save only the values with one of these names of `checkpoint_name`."""

    def policy(primitive, *_, **params) -> bool:
        return _names(primitive, params) in names

    return policy


def save_any_names_but_these(*names: str) -> Policy:
    """Save only the values with a name of `checkpoint_name` other than these."""

    def policy(primitive, *_, **params) -> bool:
        name = _names(primitive, params)
        return name is not None and name not in names

    return policy


def save_anything_except_these_names(*names: str) -> Policy:
    """Save everything except the values with one of these names of `checkpoint_name`."""

    def policy(primitive, *_, **params) -> bool:
        return _names(primitive, params) not in names

    return policy


def save_and_offload_only_these_names(
    *, names_which_can_be_saved, names_which_can_be_offloaded, offload_src: str, offload_dst: str
) -> Policy:
    """Save the values of these names, and offload the second group.

    Offloaded values are moved to memory of the kind `offload_dst`. CPUs have one memory, so they stay in place. Raises ValueError if a name
    is in both groups.
    """
    saved, offloaded = frozenset(names_which_can_be_saved), frozenset(names_which_can_be_offloaded)
    if saved & offloaded:
        raise ValueError(
            f"save_and_offload_only_these_names: the names should be exclusive, and {sorted(saved & offloaded)} are both "
            "to be saved and to be offloaded."
        )

    def policy(primitive, *_, **params) -> Any:
        name = _names(primitive, params)
        return (
            Saveable
            if name in saved
            else Offloadable(offload_src, offload_dst)
            if name in offloaded
            else Recompute
        )

    return policy


def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
    """Save like `dots_with_no_batch_dims_saveable`, in memory of the kind `offload_dst`: see `save_and_offload_only_these_names`."""

    def policy(primitive, *avals, **params) -> Any:
        return (
            Offloadable(offload_src, offload_dst)
            if dots_with_no_batch_dims_saveable(primitive, *avals, **params)
            else Recompute
        )

    return policy


def save_from_both_policies(policy_1: Policy, policy_2: Policy) -> Policy:
    """Save what either policy saves. Both must return bools: ValueError for other results."""

    def policy(primitive, *avals, **params) -> bool:
        answers = [
            bool(a) if isinstance(a, np.bool_) else a
            for a in (one(primitive, *avals, **params) for one in (policy_1, policy_2))
        ]
        if not all(isinstance(a, bool) for a in answers):
            raise ValueError(
                f"save_from_both_policies: The return value of the policies should be a boolean. Got: {answers[0]} and "
                f"{answers[1]}. Write a policy of your own."
            )
        return any(answers)

    return policy


#: the policies under JAX's names
checkpoint_policies = SimpleNamespace(
    everything_saveable=everything_saveable,
    nothing_saveable=nothing_saveable,
    dots_saveable=dots_saveable,
    checkpoint_dots=dots_saveable,
    dots_with_no_batch_dims_saveable=dots_with_no_batch_dims_saveable,
    checkpoint_dots_with_no_batch_dims=dots_with_no_batch_dims_saveable,
    offload_dot_with_no_batch_dims=offload_dot_with_no_batch_dims,
    save_only_these_names=save_only_these_names,
    save_any_names_but_these=save_any_names_but_these,
    save_anything_except_these_names=save_anything_except_these_names,
    save_and_offload_only_these_names=save_and_offload_only_these_names,
    save_from_both_policies=save_from_both_policies,
)
