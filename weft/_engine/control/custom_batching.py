"""`custom_vmap`: functions with a custom batching rule.

In:   a function, and a rule on its batched arguments.
Out:  outside `vmap`, a call of the function; under `vmap`, the result of the rule.
Laws: forward-mode differentiation keeps the rule: the derivative is batched by the derivative of
      the rule. Reverse mode is refused, since the rule cannot be split into values and a linear
      part. (A `custom_vjp` around the function has both.)
Next: `custom_rules`, whose calls are dispatched in the same way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.control.call import jit_p
from weft._engine.control.call_rules import WholeCall, plain_params
from weft._engine.control.custom_rules import attribute_of_wrapped
from weft._engine.control.custom_values import to_front
from weft._engine.control.hijax_types import flatten_linear, has_hi_values
from weft._engine.control.loops import map as map_in_loop
from weft._engine.control.staged_body import bind_arguments
from weft._engine.core.primitive import BatchAxis
from weft._engine.core.stage import hoist_tracers, stage
from weft._engine.core.trace import EvalTrace, set_trace, trace_state, typeof
from weft._engine.transforms.batch import BatchTrace, batch_flat, batch_jaxpr, move_dim
from weft._engine.transforms.jvp import instantiate, jvp_flat, jvp_jaxpr
from weft._engine.util import tree
from weft._engine.util.source import function_name

#: params: jaxpr, rule ((axis size, flags, batched flat values) -> (results, flags)), num_consts,
#: name
custom_vmap_call_p = WholeCall(
    "custom_vmap_call", multiple_results=True, only_derivatives=("rule",)
)


class custom_vmap:
    """A function with a custom rule for `vmap`, set by `def_vmap`.

    Reverse-mode differentiation is refused; wrap it in a `custom_vjp`.

    >>> @weft.custom_batching.custom_vmap
    ... def f(x, y): return x + y
    >>> @f.def_vmap
    ... def f_vmap(axis_size, in_batched, xs, ys): return xs * ys, True
    >>> weft.vmap(f)(wnp.arange(3), wnp.arange(3)).tolist()
    [0, 1, 4]
    """

    __module__ = "weft.custom_batching"

    def __init__(self, fun: Callable):
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.vmap_rule: Callable | None = None
        self.draws_together = False  # whether batched keys draw from the first key

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        return attribute_of_wrapped(self, name)

    def def_vmap(self, vmap_rule: Callable) -> Callable:
        """Set the rule `vmap_rule(axis_size, in_batched, *args) -> (out, out_batched)`, and return it.

        Mapped arguments have their mapped dim first; `in_batched` is a list of trees of bool that
        mark the mapped leaves. `out_batched` marks the mapped leaves of `out`. Raises ValueError if
        their structures differ from the function's result.
        """
        self.vmap_rule = vmap_rule
        return vmap_rule

    def __call__(self, *args, **kwargs):
        name, vmap_rule = function_name(self.fun), self.vmap_rule
        if vmap_rule is None:
            raise AttributeError(
                f"No batching rule defined for custom_vmap function {name} using def_vmap."
            )
        try:
            args = bind_arguments(self.fun, args, kwargs)
        except TypeError as error:
            raise TypeError(
                f"The input arguments to the custom_vmap-decorated function {name} cannot be resolved to positions, which "
                f"its rule needs.\n{error}"
            ) from None
        if type(trace_state.trace) is EvalTrace:
            return self.fun(*args)
        flat, in_tree = flatten_linear(tuple(args))
        out_tree: list = []

        def flat_fun(*xs):
            outs, structure = flatten_linear(self.fun(*tree.tree_unflatten(in_tree, xs)))
            out_tree[:] = [structure]
            return outs

        def rule(size, flags, values):
            if has_hi_values(in_tree):
                raise NotImplementedError(
                    f"custom_vmap: the rule of {name} takes values of hi types, whose mapped parts `in_batched` cannot mark."
                )
            result = vmap_rule(
                size,
                list(tree.tree_unflatten(in_tree, flags)),
                *tree.tree_unflatten(in_tree, values),
            )
            if not isinstance(result, (tuple, list)) or len(result) != 2:
                raise TypeError(
                    f"custom_vmap: the rule of {name} must return a pair (output, out_batched), got {result!r}."
                )
            (outs, structure), (batched, batched_tree) = map(tree.tree_flatten, result)
            if structure != batched_tree:
                raise ValueError(
                    f"custom_vmap: structure of output value and output batching specification returned by custom vmap rule "
                    f"({function_name(vmap_rule)}) do not match: {structure} and {batched_tree}."
                    f"{tree.describe_difference(structure, batched_tree, 'output', 'out_batched')}"
                )
            if out_tree and structure != out_tree[0]:
                raise ValueError(
                    f"custom_vmap: structure of output returned by custom vmap rule ({function_name(vmap_rule)}) "
                    "does not "
                    f"match that of original custom-vmapped function {name}: {structure}, not {out_tree[0]}."
                    f"{tree.describe_difference(out_tree[0], structure, 'function', 'rule')}"
                )
            for x, is_batched in zip(outs, batched):
                if is_batched and typeof(x).shape[:1] != (size,):
                    raise ValueError(
                        f"custom_vmap: the rule of {name} must give batched outputs the mapped dim, of size {size}, first; "
                        f"got one of type {typeof(x).str_short()}."
                    )
            out_tree[:] = [structure]
            return outs, list(batched)

        rule.__name__ = function_name(vmap_rule)
        rule.__dict__["draws_together"] = self.draws_together
        outs = _dispatch(trace_state.trace, flat_fun, rule, flat, name)
        return tree.tree_unflatten(out_tree[0], outs)


def _dispatch(trace, fun: Callable, rule: Callable, args: Sequence, name: str) -> list:
    """Run `fun`, or the rule if `trace` maps an argument, or record the call."""
    if type(trace) is EvalTrace:
        with set_trace(trace):
            return fun(*args)
    # the results of the rule are checked against this structure
    jaxpr, consts = hoist_tracers(stage(fun, [typeof(x) for x in args], name))
    if type(trace) is BatchTrace:
        pairs = [trace.split(x) for x in args]
        if all(d is None for _, d in pairs) and not consts:
            return _dispatch(trace.parent, fun, rule, args, name)
    return custom_vmap_call_p.bind_with_trace(
        trace,
        [*consts, *args],
        {"jaxpr": jaxpr, "rule": rule, "num_consts": len(consts), "name": name},
    )


@custom_vmap_call_p.def_batch
def _batch(axis: BatchAxis, args: Sequence, dims: Sequence, *, jaxpr, rule, num_consts, name):
    args, flags = to_front(args, dims)
    if any(flags[:num_consts]):
        raise NotImplementedError(
            f"vmap: {name}, a custom_vmap function, closes over a value that is mapped, which its rule does not get. "
            "Pass the value as an argument."
        )
    if not any(flags):  # the program names the axis
        outs, batched = batch_jaxpr(jaxpr, axis, tuple(flags))
        return jit_p.bind(*args, **plain_params(outs, name)), [0 if b else None for b in batched]
    outs, batched = rule(axis.size, flags[num_consts:], args[num_consts:])
    return outs, [0 if b else None for b in batched]


@custom_vmap_call_p.def_jvp
def _jvp(primals: Sequence, tangents: Sequence, *, jaxpr, rule, num_consts, name):
    n = len(primals)
    jvp_program, _ = jvp_jaxpr(jaxpr, (True,) * n, True)
    operands = [*primals, *map(instantiate, tangents)]
    order = [
        *range(num_consts),
        *range(n, n + num_consts),
        *range(num_consts, n),
        *range(n + num_consts, 2 * n),
    ]
    jvp_program = jvp_program.replace(invars=[jvp_program.invars[i] for i in order])
    outs = custom_vmap_call_p.bind(
        *[operands[i] for i in order],
        jaxpr=jvp_program,
        rule=_rule_of_jvp(rule),
        num_consts=2 * num_consts,
        name=name,
    )
    half = len(outs) // 2
    return outs[:half], outs[half:]


def _rule_of_jvp(rule: Callable) -> Callable:
    """Return the batching rule of the derivative: the derivative of a batching rule.

    `rule` sees an argument as mapped if its value and its tangent are mapped; if only some of them
    are, the derivative of the rule is itself mapped over these.
    """

    def jvp_rule(size: int, flags: Sequence[bool], values: Sequence) -> tuple[list, list]:
        n = len(values) // 2
        common = [p and t for p, t in zip(flags[:n], flags[n:])]
        dims = [0 if f and not c else None for f, c in zip(flags, [*common, *common])]
        batched: list[bool] = []

        def run(*xs):
            def ruled(*primals):
                outs, out_flags = rule(size, common, primals)
                batched[:] = out_flags
                return outs

            outs, out_tangents = jvp_flat(ruled, xs[:n], xs[n:])
            return [*outs, *map(instantiate, out_tangents)]

        outs, out_dims = batch_flat(run, BatchAxis(size), values, dims)
        flags_out = [b or d is not None for b, d in zip([*batched, *batched], out_dims)]
        return [x if d is None else move_dim(x, d, 0) for x, d in zip(outs, out_dims)], flags_out

    jvp_rule.__name__ = function_name(rule)
    return jvp_rule


def _refuse(*_: Any):
    raise ValueError(
        "custom_vmap functions do not have reverse-mode derivatives: the rule for vmap cannot be split into a part that "
        "computes values and a linear part. Put a custom_vjp around the custom_vmap function, with a rule for both."
    )


custom_vmap_call_p.define(partial_eval=_refuse, partial_eval_eqn=_refuse)


def sequential_vmap(f: Callable) -> custom_vmap:
    """Return `f` as a function that `vmap` applies to one example after another, in a loop.

    >>> @weft.custom_batching.sequential_vmap
    ... def largest(x): return x.max()
    >>> weft.vmap(largest)(wnp.arange(6).reshape(2, 3)).tolist()
    [2, 5]
    """
    mapped = custom_vmap(f)

    def rule(axis_size, in_batched, *args):
        leaves, structure = tree.tree_flatten(args)
        flags = tree.tree_leaves(in_batched)

        def call_example(given):
            rest = iter(given)
            return mapped(
                *tree.tree_unflatten(
                    structure, [next(rest) if f else x for x, f in zip(leaves, flags)]
                )
            )

        out = map_in_loop(call_example, [x for x, f in zip(leaves, flags) if f])
        return out, tree.tree_map(lambda _: True, out)

    mapped.def_vmap(rule)
    return mapped
