"""`custom_jvp` and `custom_vjp`: functions with custom derivative rules.

A call runs the function, or its rule under differentiation. In a staged program, the call is an
equation that holds the function's program and the rules as Python callables on flat values.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from weft._engine.control.call_rules import WholeCall, remat_opt_p
from weft._engine.control.custom_values import (
    CustomVJPPrimal,
    DifferentiableArguments,
    SymbolicZero,
    VjpRules,
    batch_jvp,
    batch_vjp,
    check_outputs,
    check_tangents,
    flatten_cts,
    from_user_tangent,
    map_over_axis,
    to_front,
    to_user_tangents,
)
from weft._engine.control.hijax_types import flatten, flatten_linear, of_tangents
from weft._engine.control.ref import (
    any_refs,
    bind_ref_values,
    call_with_refs,
    check_aliases,
    check_returned,
    is_ref,
    names_of,
    trace_with_refs,
)
from weft._engine.control.staged_body import bind_positions
from weft._engine.core.interpret import evaluate
from weft._engine.core.primitive import BatchAxis, Primitive, RegionOp, declare_unsupported
from weft._engine.core.stage import ClosedOverRefsError, hoist_shared_tracers, hoist_tracers, stage
from weft._engine.core.trace import (
    EvalTrace,
    Zero,
    any_tracers,
    is_undef,
    set_trace,
    trace_state,
    typeof,
    use_stack_lines,
)
from weft._engine.core.typed_scalars import with_array_attributes
from weft._engine.ops.casting import in_dtype
from weft._engine.ops.elementwise import add
from weft._engine.transforms.batch import BatchTrace
from weft._engine.transforms.jvp import JVPTrace, instantiate
from weft._engine.util import dtypes, tree
from weft._engine.util.errors import CustomVJPException, UnexpectedTracerError, describe
from weft._engine.util.source import api_boundary, function_name


class Subfunction:
    """A function of flat values among an operation's parameters.

    `get_bind_params` takes it from them; `rule` is the operation's own record of it.
    """

    __slots__ = ("call_wrapped", "rule")

    def __init__(self, call_wrapped: Callable, rule: Any = None):
        self.call_wrapped, self.rule = call_wrapped, rule

    f = property(lambda self: self.call_wrapped)
    __name__ = property(lambda self: function_name(self.call_wrapped))


class _RuledCall(WholeCall):
    """A call with a derivative rule, bound with its program or the results of `get_bind_params`."""

    batched_always = True
    rules_apart: ClassVar[Callable[[dict], list[Subfunction]]]
    apply: ClassVar[Callable[..., list]]

    def bind(self, *args: Any, subfuns: Sequence = (), **params: Any) -> list:
        if args and hasattr(args[0], "call_wrapped"):
            subfuns, args = args[: self.n_functions], args[self.n_functions :]
        if not subfuns:
            return super().bind(*args, **params)
        return self.apply(
            trace_state.trace, subfuns, [with_array_attributes(x) for x in args], params["name"]
        )

    def split_functions(self, params: dict) -> tuple[list, dict]:
        jaxpr = params["jaxpr"]
        call = Subfunction(lambda *xs: evaluate(jaxpr, *xs))
        return [call, *self.rules_apart(params)], {"name": params["name"]}


def _jvp_apart(params: dict) -> list[Subfunction]:
    jvp, n_consts = params["jvp"], params["num_consts"]

    def rule(primals, tangents):
        return jvp(primals[n_consts:], tangents[n_consts:])

    def run(*xs):
        outs, tangents = rule(list(xs[: len(xs) // 2]), list(xs[len(xs) // 2 :]))
        return [*outs, *map(instantiate, tangents)]

    return [Subfunction(run, rule)]


def _apply_jvp(trace: Any, subfuns: Sequence, args: list, name: str) -> list:
    fun, jvp = subfuns
    rule = getattr(jvp, "rule", None)

    def run(primals, tangents):
        results = jvp.call_wrapped(*primals, *map(instantiate, tangents))
        return results[: len(results) // 2], results[len(results) // 2 :]

    ruled = FunctionWithJvp(fun.call_wrapped, run if rule is None else rule, name)
    return apply_ruled(trace, ruled, args)


def _vjp_apart(params: dict) -> list[Subfunction]:
    rules, n_consts = params["rules"], params["num_consts"]
    count: list[int] = []

    def fwd(args, perturbed):
        outs, residuals = rules.fwd(args[n_consts:], perturbed[n_consts:])
        count[:] = [len(residuals)]
        return outs, residuals

    def run_fwd(*xs):
        outs, residuals = fwd(list(xs), [True] * len(xs))
        return [*residuals, *outs]

    def bwd(residuals, cts):
        return [None] * n_consts + list(rules.bwd(residuals, cts))

    fwd.__name__, bwd.__name__ = function_name(rules.fwd), function_name(rules.bwd)
    whole = VjpRules(fwd, bwd, rules.fun)
    return [
        Subfunction(run_fwd, whole),
        Subfunction(lambda *xs: bwd(list(xs[: count[0]]), list(xs[count[0] :])), whole),
    ]


def _apply_vjp(trace: Any, subfuns: Sequence, args: list, name: str) -> list:
    fun, fwd, bwd = subfuns
    rules = getattr(fwd, "rule", None)
    if rules is None or getattr(bwd, "rule", None) is not rules:
        raise NotImplementedError(
            f"custom_vjp_call: {name} is bound with rules that get_bind_params did not give. Bind the pair fwd and "
            "bwd as it came; the function itself may be another."
        )
    return apply_ruled(trace, FunctionWithVjp(fun.call_wrapped, rules, name), args)


class _JvpCall(_RuledCall):
    n_functions = 2
    only_derivatives = ("jvp",)
    rules_apart = staticmethod(_jvp_apart)
    apply = staticmethod(_apply_jvp)


class _VjpCall(_RuledCall):
    n_functions = 3
    only_derivatives = ("rules",)
    rules_apart = staticmethod(_vjp_apart)
    apply = staticmethod(_apply_vjp)


#: params: jaxpr, jvp (flat primals, flat tangents -> outs, out tangents), num_consts, name
custom_jvp_call_p = _JvpCall("custom_jvp_call", multiple_results=True)
#: params: jaxpr, rules (a VjpRules on flat values), num_consts, name
custom_vjp_call_p = _VjpCall("custom_vjp_call", multiple_results=True)
#: the derivative of a custom_vjp function: linear in its last operands; params: bwd, num_res, out_avals, name
custom_lin_p = RegionOp("custom_lin", multiple_results=True)


def _flat_call(fun: Callable, split: DifferentiableArguments, out_tree: list, api: str) -> Callable:
    def flat_fun(*flat):
        outs, structure = flatten_linear(fun(*split.rebuild(flat)))
        check_returned(fun, api, outs)
        out_tree[:] = [structure, *map(typeof, outs)]
        return outs

    return flat_fun


def attribute_of_wrapped(wrapper: Any, name: str) -> Any:
    """Return a rule setter of the wrapped function, such as `def_vmap` of a custom_vmap."""
    if not name.startswith("def"):
        raise AttributeError(
            f"{type(wrapper).__name__!r} object has no attribute {name!r}", name=name, obj=wrapper
        )
    return getattr(wrapper.__dict__["fun"], name)


class _CustomFunction:
    """A function with a custom rule and nondifferentiable arguments."""

    def __init__(
        self, fun: Callable, nondiff_argnums: Sequence[int], nondiff_argnames: str | Sequence[str]
    ):
        functools.update_wrapper(self, fun)
        self.fun = fun
        names = (
            (nondiff_argnames,) if isinstance(nondiff_argnames, str) else tuple(nondiff_argnames)
        )
        if names:
            parameters = list(inspect.signature(fun).parameters)
            nondiff_argnums = (*nondiff_argnums, *(parameters.index(n) for n in names))
        self.nondiff_argnums = tuple(nondiff_argnums)

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        return attribute_of_wrapped(self, name)

    if TYPE_CHECKING:

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


class custom_jvp(_CustomFunction):
    """A function with a custom forward-mode rule, which reverse mode uses too.

    `nondiff_argnums` are passed to the rule first and never differentiated.

    >>> @weft.custom_jvp
    ... def f(x): return wnp.sin(x)
    >>> @f.defjvp
    ... def f_jvp(primals, tangents): return f(*primals), 2. * tangents[0]
    >>> float(weft.grad(f)(1.0))
    2.0
    """

    __module__ = "weft"

    def __init__(
        self,
        fun: Callable,
        nondiff_argnums: Sequence[int] = (),
        nondiff_argnames: Sequence[str] = (),
    ):
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.jvp: Callable | None = None
        self.symbolic_zeros = False

    def defjvp(self, jvp: Callable, symbolic_zeros: bool = False) -> Callable:
        """Set the rule `jvp(*nondiff, primals, tangents) -> (out, tangent_out)`.

        With `symbolic_zeros`, a tangent that is known to be zero is a `custom_derivatives.SymbolicZero`; the rule may return such, too.
        """
        self.jvp = jvp
        self.symbolic_zeros = symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable | None) -> None:
        """Set one rule per argument: `jvp_i(tangent_i, out, *primals)`; the contributions are added.

        The rule of an argument that is constant is not called: where its slope is infinite, its contribution would be NaN.
        """
        if self.nondiff_argnums:
            raise TypeError("defjvps: cannot be used with nondiff_argnums; use defjvp.")

        def jvp(primals, tangents):
            out = self(*primals)
            moving = [
                not all(type(leaf) is SymbolicZero for leaf in tree.tree_leaves(t))
                for t in tangents
            ]
            tangents = tree.tree_map(
                lambda t: instantiate(Zero(t.aval)) if type(t) is SymbolicZero else t, tangents
            )
            parts = [
                rule(t, out, *primals)
                for rule, t, moves in zip(jvps, tangents, moving)
                if rule is not None and moves
            ]
            if not parts:
                return out, tree.tree_map(
                    lambda x: instantiate(Zero(typeof(x).to_tangent_aval())), out
                )
            total = parts[0]
            for part in parts[1:]:
                total = tree.tree_map(add, total, part)
            return out, total

        self.defjvp(jvp, symbolic_zeros=True)

    @functools.partial(api_boundary, name="custom_jvp")
    def __call__(self, *args, **kwargs):
        name, jvp = function_name(self.fun), self.jvp
        if jvp is None:
            raise AttributeError(f"No JVP defined for custom_jvp function {name} using defjvp.")
        args = bind_positions("custom_jvp", self.fun, args, kwargs)
        if type(trace_state.trace) is EvalTrace:
            return self.fun(*args)
        split = DifferentiableArguments(args, self.nondiff_argnums, self.symbolic_zeros)
        out_tree: list = []

        def flat_jvp(primals, tangents):
            tangents = to_user_tangents(tangents, self.symbolic_zeros)
            if split.refs:
                primals, tangents = map(split.with_refs, (primals, tangents))
            primals_in, tangents_in = (
                tree.tree_unflatten(split.tree, primals),
                tree.tree_unflatten(of_tangents(split.tree), tangents),
            )
            with use_stack_lines():
                pair = jvp(*split.nondiff_values(), primals_in, tangents_in)
            rule = f"Custom JVP rule {function_name(jvp)}"
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise TypeError(
                    f"{rule} for function {name} must produce a pair (list or tuple of "
                    f"length two) representing primal and tangent outputs, but got {pair!r}."
                )
            (outs, structure), (tangent_outs, tangent_structure) = map(flatten_linear, pair)
            if structure != tangent_structure != of_tangents(structure):
                raise TypeError(
                    f"{rule} for function {name} must produce primal and tangent outputs "
                    f"with equal container (pytree) structures, but got {structure} and {tangent_structure} respectively."
                    f"{tree.describe_difference(structure, tangent_structure, 'primal output', 'tangent output')}"
                )
            check_outputs(rule, name, out_tree, [structure, *map(typeof, outs)])
            tangent_outs = list(map(from_user_tangent, tangent_outs))
            check_tangents(name, outs, tangent_outs)
            return outs, tangent_outs

        flat_jvp.__name__ = function_name(jvp)
        fun = _flat_call(self.fun, split, out_tree, "custom_jvp")
        outs = apply_ruled(trace_state.trace, FunctionWithJvp(fun, flat_jvp, name), split.take())
        return tree.tree_unflatten(out_tree[0], outs)


class RuledFunction:
    """A function of flat values with a derivative rule, while it is applied."""

    def __init__(self, fun: Callable, rule: Any, name: str):
        self.fun, self.rule, self.name = fun, rule, name

    def differentiate(self, primals: list, tangents: list) -> tuple[Sequence, Sequence]:
        """Return results and their tangents by the rule."""
        raise NotImplementedError

    def map(self, axis: BatchAxis, flags: Sequence[bool], once: list[bool]) -> RuledFunction:
        """Return the function and its rule mapped over dim 0 of the flagged arguments (see `map_over_axis`)."""
        raise NotImplementedError

    def with_refusing_rule(self, fun: Callable) -> RuledFunction:
        """Return `fun` with a rule that refuses differentiation."""
        raise NotImplementedError

    def equation(self) -> tuple[Primitive, dict]:
        """Return the op that records an application, and its parameters of the rule."""
        raise NotImplementedError


class FunctionWithJvp(RuledFunction):
    """A function whose rule is `jvp(primals, tangents)`."""

    def differentiate(self, primals, tangents):
        return self.rule(primals, tangents)

    def map(self, axis, flags, once):
        fun = map_over_axis(self.fun, axis, flags, once)
        return FunctionWithJvp(fun, batch_jvp(self.rule, axis, flags, once), self.name)

    def with_refusing_rule(self, fun):
        return FunctionWithJvp(fun, _refuse(self.name), self.name)

    def equation(self):
        return custom_jvp_call_p, {"jvp": self.rule}


class FunctionWithVjp(RuledFunction):
    """A function whose rule is a `VjpRules`."""

    def differentiate(self, primals, tangents):
        return _vjp_forward(self.rule, primals, tangents, self.name)

    def map(self, axis, flags, once):
        fun = map_over_axis(self.fun, axis, flags, once)
        return FunctionWithVjp(fun, batch_vjp(self.rule, axis, flags, once), self.name)

    def with_refusing_rule(self, fun):
        return FunctionWithVjp(fun, VjpRules(_refuse(self.name), _refuse(self.name)), self.name)

    def equation(self):
        return custom_vjp_call_p, {"rules": self.rule}


def apply_ruled(trace: Any, ruled: RuledFunction, args: Sequence) -> list:
    """Run the function, or its rule if `trace` differentiates, or record it."""
    kind = type(trace)
    if kind is EvalTrace:
        with set_trace(trace):
            return ruled.fun(*args)
    if (processing := trace.processing_trace(args)) is not trace:
        return apply_ruled(processing, ruled, args)
    if kind is JVPTrace:
        pairs = [trace.split(x) for x in args]
        primals, tangents = [with_array_attributes(p) for p, _ in pairs], [t for _, t in pairs]
        with set_trace(trace.parent):
            if all(type(t) is Zero for t in tangents):
                return apply_ruled(trace.parent, ruled, primals)
            outs, tangent_outs = ruled.differentiate(primals, tangents)
        return [trace.join(o, t) for o, t in zip(outs, tangent_outs)]
    if kind is BatchTrace:
        # with no mapped argument, too: the function and its rule may close over mapped values
        values, flags = to_front(*zip(*map(trace.split, args))) if args else ([], [])
        once: list[bool] = []
        mapped = ruled.map(trace.axis, flags, once)
        with set_trace(trace.parent):
            outs = apply_ruled(trace.parent, mapped, values)
        return [trace.join(o, None if once[0] else 0) for o in outs]
    return _record(trace, ruled, args)


def _record(trace: Any, ruled: RuledFunction, args: Sequence) -> list:
    """Record an application in the program of `trace`."""
    try:
        jaxpr, consts = hoist_tracers(stage(ruled.fun, [typeof(x) for x in args], ruled.name))
    except ClosedOverRefsError as used:
        apply = lambda fun, xs: apply_ruled(trace, ruled.with_refusing_rule(fun), xs)
        return _with_refs(used.refs, ruled.fun, args, apply)
    primitive, rule = ruled.equation()
    params = {"jaxpr": jaxpr, **rule, "num_consts": len(consts), "name": ruled.name}
    return trace.process(primitive, [*consts, *args], params)


def _with_refs(refs: Sequence, fun: Callable, args: Sequence, apply: Callable) -> list:
    """Call a function that uses references, inside a program, as a function of their values."""

    def attempt(known):
        n = len(known)

        def on_values(*xs):
            with bind_ref_values(known, xs[:n]) as state:
                outs = fun(*xs[n:])
            return [*outs, *state.values]

        return [*known], apply(on_values, [*(r[...] for r in known), *args])

    met, outs = trace_with_refs(attempt, refs)
    n = len(outs) - len(met)
    for r, value in zip(met, outs[n:]):
        r._write(value)
    return outs[:n]


def _refuse(name: str) -> Callable:
    def rule(*_):
        raise NotImplementedError(
            f"{name}, which has a derivative rule of its own and uses a reference to a mutable array, is "
            "differentiated as a part of a loop, branch or checkpointed function. Differentiate inside of it, or "
            "pass values."
        )

    return rule


@custom_jvp_call_p.def_jvp
def _custom_jvp_jvp(primals, tangents, *, jaxpr, jvp, num_consts, name):
    outs, tangent_outs = jvp(list(primals[num_consts:]), list(tangents[num_consts:]))
    return outs, tangent_outs


@custom_jvp_call_p.def_batch
def _custom_jvp_batch(axis, args, dims, *, jaxpr, jvp, num_consts, name):
    args, flags = to_front(args, dims)
    once: list[bool] = []
    mapped_jvp = batch_jvp(jvp, axis, flags[num_consts:], once)
    new, consts = hoist_tracers(
        stage(
            map_over_axis(lambda *xs: evaluate(jaxpr, *xs), axis, flags, once),
            [typeof(x) for x in args],
            name,
        )
    )
    outs = custom_jvp_call_p.bind(
        *consts, *args, jaxpr=new, jvp=mapped_jvp, num_consts=num_consts + len(consts), name=name
    )
    return outs, [None if once[0] else 0] * len(outs)


class custom_vjp(_CustomFunction):
    """A function with a custom reverse-mode rule: `fwd(*args) -> (out, residuals)`, `bwd(residuals, ct) -> cts of args`.

    Forward-mode differentiation of it is refused. `nondiff_argnums` are passed to `bwd` first.

    >>> @weft.custom_vjp
    ... def clip_gradient(x): return x
    >>> clip_gradient.defvjp(lambda x: (x, None), lambda _, ct: (wnp.clip(ct, -1., 1.),))
    >>> float(weft.grad(lambda x: 10. * clip_gradient(x))(1.0))
    1.0
    """

    __module__ = "weft"

    def __init__(
        self,
        fun: Callable,
        nondiff_argnums: Sequence[int] = (),
        nondiff_argnames: Sequence[str] = (),
    ):
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.fwd: Callable | None = None
        self.bwd: Callable | None = None
        self.symbolic_zeros = self.optimize_remat = False

    def defvjp(
        self,
        fwd: Callable,
        bwd: Callable,
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Set the rule's halves.

        With `symbolic_zeros`, `fwd` gets each argument as a `custom_derivatives.CustomVJPPrimal(value, perturbed)`, and a cotangent that
        is known to be zero reaches `bwd` as a `custom_derivatives.SymbolicZero`. With `optimize_remat`, the function itself runs
        instead of `fwd` where `checkpoint` computes its results and drops the residuals. Both at once raise NotImplementedError.
        """
        if symbolic_zeros and optimize_remat:
            raise NotImplementedError(
                "custom_vjp.defvjp: symbolic_zeros and optimize_remat cannot be combined; leave one of them out."
            )
        self.fwd, self.bwd = fwd, bwd
        self.symbolic_zeros, self.optimize_remat = symbolic_zeros, optimize_remat

    @functools.partial(api_boundary, name="custom_vjp")
    def __call__(self, *args, **kwargs):
        name, fwd, bwd = function_name(self.fun), self.fwd, self.bwd
        if fwd is None or bwd is None:
            raise AttributeError(f"No VJP defined for custom_vjp function {name} using defvjp.")
        args = bind_positions("custom_vjp", self.fun, args, kwargs)
        if type(trace_state.trace) is EvalTrace:
            return call_with_refs(self.fun, "custom_vjp", args)
        split = DifferentiableArguments(args, self.nondiff_argnums, self.symbolic_zeros)
        if any_tracers(tree.tree_leaves(split.nondiff)):
            raise UnexpectedTracerError(
                f"custom_vjp: an argument of {name} in nondiff_argnums holds a traced value: {split.nondiff}. Take "
                "it out of nondiff_argnums, and return None as its cotangent."
            )
        if split.refs:
            self._check_refs(split, args)
        rule = _AppliedVjp(fwd, bwd, self.symbolic_zeros, split, name)
        fun = _flat_call(self.fun, split, rule.out_tree, "custom_vjp")
        trace, flat = trace_state.trace, split.take()
        # the references may hold differentiated values although no argument of the rule is differentiated
        if (
            split.refs
            and type(trace) is JVPTrace
            and all(type(trace.split(x)[1]) is Zero for x in flat)
        ):
            outs = fun(*flat)
        else:
            rules = rule.rules(fun if self.optimize_remat else None)
            outs = apply_ruled(trace, FunctionWithVjp(fun, rules, name), flat)
        return tree.tree_unflatten(rule.out_tree[0], outs)

    def _check_refs(self, split: DifferentiableArguments, args: Sequence) -> None:
        """Check that references among the arguments differ, and read them."""
        if self.nondiff_argnums:
            names = list(map(str, range(split.tree.num_leaves)))
        else:
            names = names_of(self.fun, [args[i] for i in split.positions])
        refs = list(split.refs.values())
        check_aliases(self.fun, "custom_vjp", refs, [names[i] for i in split.refs])
        for r in refs:
            r.get()  # registers the reference with the current trace: the rule may write to it


class _AppliedVjp:
    """The rule of a custom_vjp function in one application, on flat values."""

    def __init__(
        self,
        fwd: Callable,
        bwd: Callable,
        symbolic_zeros: bool,
        split: DifferentiableArguments,
        name: str,
    ):
        self.fwd, self.bwd, self.symbolic_zeros = fwd, bwd, symbolic_zeros
        self.split, self.name = split, name
        self.avals = [typeof(x) for x in split.flat]
        self.out_tree: list = []
        self.res_tree: Any = None
        self.res_refs: dict = {}

    def rules(self, fun: Callable | None) -> VjpRules:
        """Return the two halves, with the names of the user's functions."""

        def fwd(flat, perturbed):
            return self.forward(flat, perturbed)

        def bwd(residuals, cts):
            return self.backward(residuals, cts)

        fwd.__name__, bwd.__name__ = function_name(self.fwd), function_name(self.bwd)
        return VjpRules(fwd, bwd, fun)

    def forward(self, flat: Sequence, perturbed: Sequence[bool]) -> tuple[list, Sequence]:
        """Return results and residuals."""
        name = self.name
        if self.symbolic_zeros:
            flat = list(map(CustomVJPPrimal, flat, perturbed))
        with use_stack_lines():
            pair = self.fwd(*self.split.rebuild(flat))
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(
                f"custom_vjp: fwd of {name} must return a pair (output, residuals), got {pair!r}."
            )
        outs, structure = flatten_linear(pair[0])
        residuals, self.res_tree = flatten(pair[1], f"the residuals of {name}")
        rule = f"Custom VJP fwd rule {function_name(self.fwd)}"
        check_outputs(rule, name, self.out_tree, [structure, *map(typeof, outs)])
        if any_refs(residuals):
            residuals = _keep_refs(name, residuals, self.split, self.res_refs)
        return outs, residuals

    def backward(self, residuals: Sequence, cts: Sequence) -> Sequence:
        """Return the cotangents of the flat arguments that are no references."""
        name, split = self.name, self.split
        if res_refs := self.res_refs:
            residuals_iter = iter(residuals)
            count = self.res_tree.num_leaves
            residuals = [
                res_refs[i] if i in res_refs else next(residuals_iter) for i in range(count)
            ]
        res = tree.tree_unflatten(self.res_tree, residuals)
        cts = to_user_tangents(cts, self.symbolic_zeros)
        with use_stack_lines():
            result = self.bwd(
                *split.nondiff_values(),
                res,
                tree.tree_unflatten(of_tangents(self.out_tree[0]), cts),
            )
        if not isinstance(result, (tuple, list)) or len(result) != len(split.positions):
            raise TypeError(
                f"Custom VJP bwd rule {function_name(self.bwd)} of {name} must produce a tuple with one cotangent per "
                f"differentiable argument ({len(split.positions)}), got {result!r}."
            )
        refs, own_avals = split.refs, iter(self.avals)
        avals = [
            refs[i].type.inner_aval if i in refs else next(own_avals)
            for i in range(split.tree.num_leaves)
        ]
        flat = flatten_cts(name, tuple(result), split.tree, avals)
        return [ct for i, ct in enumerate(flat) if i not in refs] if refs else flat


def _keep_refs(name: str, residuals: Sequence, split: DifferentiableArguments, kept: dict) -> list:
    """Return the residuals except references, which must be arguments; `kept` records these."""
    kept.clear()
    kept.update({i: x for i, x in enumerate(residuals) if is_ref(x)})
    for r in kept.values():
        if not any(r is known for known in split.refs.values()):
            raise ValueError(
                f"custom_vjp fwd function of {name} returned, as a residual, the mutable array reference {r.type}, which is "
                "none of its arguments. References that fwd and bwd share are arguments that fwd returns."
            )
    return [x for x in residuals if not is_ref(x)]


def _vjp_forward(rules: VjpRules, primals, tangents, name):
    perturbed = [type(t) is not Zero for t in tangents]
    fwd = rules.fwd if rules.fun is None else _fwd_or_fun(rules.fwd, rules.fun, name)
    outs, residuals = fwd(primals, perturbed)
    out_avals = tuple([typeof(o).to_tangent_aval() for o in outs])
    tangent_outs = custom_lin_p.bind(
        *residuals,
        *map(instantiate, tangents),
        bwd=rules.bwd,
        num_res=len(residuals),
        out_avals=out_avals,
        name=name,
    )
    return outs, [
        Zero(a) if a.dtype == dtypes.float0 else t for a, t in zip(out_avals, tangent_outs)
    ]


def _fwd_or_fun(fwd: Callable, fun: Callable, name: str) -> Callable:
    """Return the forward half as one operation, which also holds `fun` to compute results only."""

    def run(primals, perturbed):
        n_out: list[int] = []

        def value_and_tangent(*xs):
            outs, residuals = fwd(xs, perturbed)
            n_out[:] = [len(outs)]
            return [*outs, *residuals]

        avals = [typeof(x) for x in primals]
        (whole, plain), consts = hoist_shared_tracers(
            [stage(value_and_tangent, avals, name), stage(fun, avals, name)]
        )
        outs = remat_opt_p.bind(*consts, *primals, jaxpr=whole, fun=plain, name=name)
        return outs[: n_out[0]], outs[n_out[0] :]

    return run


@custom_vjp_call_p.def_jvp
def _custom_vjp_jvp(primals, tangents, *, jaxpr, rules, num_consts, name):
    closed_over = [
        typeof(x).str_short() for x, t in zip(primals[:num_consts], tangents) if type(t) is not Zero
    ]
    if closed_over:
        raise CustomVJPException(
            describe(
                "custom_vjp",
                f"{name} is differentiated by values that it closes over, of types {', '.join(closed_over)}.",
                rule="Its rule gives the derivatives by its arguments alone.",
                remedy="Make them arguments of the function, of fwd and of bwd (weft.closure_convert finds them), or use stop_gradient.",
            )
        )
    return _vjp_forward(rules, list(primals[num_consts:]), list(tangents[num_consts:]), name)


@custom_vjp_call_p.def_batch
def _custom_vjp_batch(axis, args, dims, *, jaxpr, rules, num_consts, name):
    args, flags = to_front(args, dims)
    once: list[bool] = []
    mapped = map_over_axis(lambda *xs: evaluate(jaxpr, *xs), axis, flags, once)
    mapped_rules = batch_vjp(rules, axis, flags[num_consts:], once)
    new, consts = hoist_tracers(stage(mapped, [typeof(x) for x in args], name))
    outs = custom_vjp_call_p.bind(
        *consts,
        *args,
        jaxpr=new,
        rules=mapped_rules,
        num_consts=num_consts + len(consts),
        name=name,
    )
    return outs, [None if once[0] else 0] * len(outs)


@custom_lin_p.def_type
def _custom_lin_type(*avals, out_avals, **_):
    return out_avals


@custom_lin_p.def_transpose
def _custom_lin_transpose(cts, *args, bwd, num_res, out_avals, name):
    result = bwd(list(args[:num_res]), list(cts))
    result = [
        ct if ct is None or not is_undef(x) else _match(ct, x.aval)
        for ct, x in zip(result, args[num_res:])
    ]
    return [None] * num_res + result


def _match(ct, aval):
    """Return `ct` in the argument's dtype; rules may return other precisions or Python scalars."""
    if aval.dtype == dtypes.float0:
        return None
    got = typeof(ct)
    if got.dtype == aval.dtype and not isinstance(ct, (int, float, complex, np.ndarray)):
        return ct
    return in_dtype(ct, aval.dtype)


_FORWARD = (
    "can't apply forward-mode autodiff (jvp) to a custom_vjp function. Use custom_jvp, which serves both modes, or jacrev and "
    "the like"
)
custom_lin_p.define(
    in_avals=lambda params: None,
    jvp=declare_unsupported(_FORWARD),
    reference=declare_unsupported(_FORWARD),
    batch=declare_unsupported(_FORWARD),
    factors=declare_unsupported(_FORWARD),
    lower=declare_unsupported(_FORWARD),
    lockstep=declare_unsupported(_FORWARD),
)
