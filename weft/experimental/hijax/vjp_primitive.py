"""`VJPHiPrimitive`, and the two ops that represent its calls and their derivatives in programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.api.vmap import vmap
from weft._engine.control.call_rules import WholeCall
from weft._engine.control.custom_rules import custom_lin_p
from weft._engine.control.hijax_types import arrays_of, flatten, is_linear
from weft._engine.core.primitive import BatchAxis
from weft._engine.core.stage import StageTrace, hoist_tracers, stage
from weft._engine.core.trace import (
    Trace,
    Zero,
    any_tracers,
    is_undef,
    set_trace,
    trace_state,
    typeof,
)
from weft._engine.hooks import hi_types
from weft._engine.ops.elementwise import convert_element_type
from weft._engine.ops.reduce import reduce_sum
from weft._engine.transforms.batch import BatchTrace, move_dim
from weft._engine.transforms.jvp import JVPTrace, instantiate
from weft._engine.transforms.linearize import LinearTrace
from weft._engine.util import dtypes, tree
from weft.experimental.hijax.accumulators import NO_COTANGENT, ValAccum
from weft.experimental.hijax.values import (
    instantiate_zeros,
    lower_values,
    raise_values,
    tangent_type,
)

#: params: jaxpr (the traced `expand`), num_consts, prim (the object), name
call_hi_primitive_p = WholeCall(
    "call_hi_primitive",
    multiple_results=True,
    only_derivatives=("prim",),
    is_high=True,
)
#: the derivative of a call; operands: residuals, tangents; params: jaxpr, bwd (residuals, cotangents -> cotangents), num_res, name
hi_linearized_p = WholeCall(
    "call_hi_primitive_linearized",
    multiple_results=True,
    only_derivatives=("bwd",),
    is_high=True,
)


class VJPHiPrimitive:
    """A base class of operations whose rules are methods.

    `__init__` of a subclass sets `in_avals` (a tuple with a type, or a tree of types, per argument), `out_aval` (a type,
    or a tree of types) and `params` (a dict of hashable settings, which become attributes), and then calls
    `super().__init__()`, which raises AttributeError if one is missing. Calls raise TypeError for arguments of other
    structures, shapes or dtypes. The methods to write: `expand(*args)`, the implementation;
    `vjp_fwd(nzs_in, *args)` and `vjp_bwd_retval(res, ct)` or `vjp_bwd(res, ct, *accums)` for reverse mode; `jvp(primals, tangents)` for
    forward mode; `lin(nzs_in, *args)` and `linearized(res, *tangents)`, for both; `batch_dim_rule(axis_data, dims)` or
    `batch(axis_data, args, dims)` for vmap; `transpose(ct, *accums)` where it is linear.

    >>> from weft.experimental.hijax import VJPHiPrimitive
    >>> class Square(VJPHiPrimitive):
    ...     def __init__(self, aval):
    ...         self.in_avals, self.out_aval, self.params = (aval,), aval, {}
    ...         super().__init__()
    ...     def expand(self, x): return x * x
    ...     def vjp_fwd(self, nzs_in, x): return self(x), x
    ...     def vjp_bwd_retval(self, x, ct): return (2 * x * ct,)
    >>> float(weft.grad(lambda x: Square(weft.typeof(x))(x))(3.0))
    6.0
    """

    in_avals: tuple
    out_aval: Any
    params: dict[str, Any]
    effects: frozenset = frozenset()

    def __init__(self):
        for name in ("in_avals", "out_aval", "params"):
            if not hasattr(self, name):
                raise AttributeError(
                    f"{type(self).__name__}.__init__ must set self.{name} before it calls super().__init__()."
                )
        if self._has("vjp_bwd") and self._has("vjp_bwd_retval"):
            raise AttributeError(
                f"{type(self).__name__} must not override both vjp_bwd and vjp_bwd_retval: they are two forms of one rule."
            )
        self.in_avals_flat, self.in_tree = tree.tree_flatten(tuple(self.in_avals))
        self.out_avals_flat, self.out_tree = tree.tree_flatten(self.out_aval)
        self.__dict__.update(self.params)
        self.check(*self.in_avals)

    def _has(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(VJPHiPrimitive, method)

    def _missing(self, transformation: str, *methods: str) -> NotImplementedError:
        return NotImplementedError(
            f"for {transformation} support, {type(self).__name__} must implement {' or '.join(methods)}."
        )

    # the implementation and type checks
    def expand(self, *args):
        """Compute the result by existing operations."""
        raise self._missing("evaluation", "`expand`")

    def check(self, *arg_tys):
        """Raise an error if the arguments' types are invalid."""

    # reverse mode
    def vjp_fwd(self, nzs_in, /, *args):
        """Return `(result, residuals)`; `nzs_in` has True for each differentiated argument."""
        raise self._missing(
            "grad",
            "`vjp_fwd`",
            "set `vjp_fwd, vjp_bwd_retval = vjp_from_jvp` (or vjp_from_lin)",
            "for linearize alone set `lin, linearized = linearize_from_jvp`",
        )

    def vjp_bwd(self, res, outgrad, /, *arg_accums):
        """Add the cotangent of each argument to its accumulator."""
        tree.tree_map(
            lambda accum, ct: accum.accum(ct),
            tuple(arg_accums),
            _expand_cotangents(arg_accums, self.vjp_bwd_retval(res, outgrad)),
        )

    def vjp_bwd_retval(self, res, outgrad, /):
        """Return the cotangents of all arguments."""
        raise self._missing(
            "grad",
            "`vjp_bwd_retval`",
            "`vjp_bwd`",
            "set `vjp_fwd, vjp_bwd_retval = vjp_from_jvp` (or vjp_from_lin)",
        )

    # forward mode
    def jvp(self, primals, tangents):
        """Return `(result, tangent of the result)`."""
        raise self._missing("jvp", "`jvp`")

    def lin(self, nzs_in, *primals):
        """Return `(result, residuals)` for the derivative."""
        raise self._missing(
            "linearize", "`lin` and `linearized`", "set `lin, linearized = linearize_from_jvp`"
        )

    def linearized(self, residuals, *tangents):
        """Return the tangent of the result, which is linear in the tangents."""
        raise self._missing(
            "linearize", "`lin` and `linearized`", "set `lin, linearized = linearize_from_jvp`"
        )

    def transpose(self, out_ct, *maybe_accums):
        """Add the cotangents of the linear arguments to their accumulators; the other arguments are values."""
        raise self._missing("transpose", "`transpose`")

    # vmap
    def batch(self, axis_data, args, dims):
        """Return `(result, dims of the result)` for arguments mapped over `dims`."""
        out_dims = self.batch_dim_rule(axis_data, dims)
        return _MappedPrimitive(self, axis_data, dims, out_dims)(*args), out_dims

    def batch_dim_rule(self, axis_data, dims, /):
        """Return the mapped dims of the result, so that `vmap` can map the other rules."""
        raise self._missing("vmap", "`batch`", "`batch_dim_rule`")

    def __call__(self, *args):
        leaves, structure = tree.tree_flatten(args)
        if structure != self.in_tree:
            raise TypeError(
                f"{type(self).__name__}: the arguments must have the structure of in_avals, {self.in_tree}, got {structure}."
                f"{tree.describe_difference(self.in_tree, structure, 'in_avals', 'arguments')}"
            )
        for x, expected in zip(leaves, self.in_avals_flat):
            got = typeof(x)
            if expected.is_high:
                if got != expected:
                    raise TypeError(
                        f"{type(self).__name__}: an argument of type {got} was passed where in_avals says {expected}."
                    )
                continue
            if got.shape != expected.shape or (got.dtype != expected.dtype and not got.weak_type):
                raise TypeError(
                    f"{type(self).__name__}: an argument of type {got.str_short()} was passed where in_avals says "
                    f"{expected.str_short()}."
                )
        return tree.tree_unflatten(self.out_tree, _dispatch(trace_state.trace, self, leaves))

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self.params}]"

    def __hash__(self) -> int:
        return hash((type(self), tuple(self.params.items())))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, VJPHiPrimitive)
            and type(self) is type(other)
            and self.params == other.params
            and self.in_avals == other.in_avals
        )


def _expand_cotangents(arguments: Any, cts: Any) -> tuple:
    """Return cotangents of arguments, with None for each leaf of a tree whose cotangent is None or a Zero."""
    whole = tuple(arguments)
    flat = tree.broadcast_prefix(tuple(cts), whole, is_leaf=lambda x: x is None or type(x) is Zero)
    return tree.tree_unflatten(
        tree.tree_structure(whole),
        [NO_COTANGENT if x is None or type(x) is Zero else x for x in flat],
    )


def _flat_results(prim: VJPHiPrimitive, out: Any, what: str) -> list:
    leaves, structure = tree.tree_flatten(out, is_leaf=lambda x: type(x) is Zero)
    if structure != prim.out_tree:
        raise TypeError(
            f"{type(prim).__name__}: {what} must have the structure of out_aval, {prim.out_tree}, got {structure}."
            f"{tree.describe_difference(prim.out_tree, structure, 'out_aval', 'result')}"
        )
    return list(map(instantiate_zeros, leaves))


def flat_tangents(prim: VJPHiPrimitive, tangents: Any, what: str) -> list:
    """Return flat tangents; a tangent of dtype float0 is zero for any primal."""
    leaves = _flat_results(prim, tangents, what)
    avals = [a.to_tangent_aval() for a in prim.out_avals_flat]
    return [
        Zero(a) if not a.is_high and typeof(t).dtype == dtypes.float0 else t
        for a, t in zip(avals, leaves)
    ]


def _check_fwd_result(prim: VJPHiPrimitive, result: Any, what: str) -> tuple[list, Any]:
    """Return the flat result and the residuals of `vjp_fwd` or `lin`; flags of nonzero results are ignored."""
    if not isinstance(result, tuple) or not 2 <= len(result) <= 3:
        raise NotImplementedError(
            f"{type(prim).__name__}.{what} must return (result, residuals), or these and what is nonzero; got "
            f"{result!r}."
        )
    return _flat_results(prim, result[0], f"the result of {what}"), result[1]


def _has_unknowns(trace: LinearTrace, args: Sequence) -> bool:
    parts = [(x, *(arrays_of(x) if type(x) in hi_types else ())) for x in args]
    return any(trace.is_unknown(a) for arrays in parts for a in arrays)


def _dispatch(trace: Trace | None, prim: VJPHiPrimitive, args: Sequence) -> list:
    """Expand the call, apply the rule for `trace`, or record the call."""
    assert trace is not None  # the outermost is an EvalTrace
    if not isinstance(trace, (StageTrace, JVPTrace, BatchTrace)):
        # eager: outside of transformations, or on device blocks
        with set_trace(trace):
            return _flat_results(
                prim, prim.expand(*tree.tree_unflatten(prim.in_tree, args)), "the result of expand"
            )
    if isinstance(trace, LinearTrace) and not _has_unknowns(trace, args):
        return _dispatch(trace.parent, prim, args)
    if isinstance(trace, (JVPTrace, BatchTrace)):
        parent = trace.parent
        assert parent is not None
        firsts, seconds = zip(*[_split(trace, x) for x in args]) if args else ((), ())
        if all(type(t) is Zero or t is None for t in seconds):
            return _dispatch(parent, prim, firsts)
        with set_trace(parent):
            outs, more = (
                _apply_batch(prim, trace.axis, firsts, seconds)
                if isinstance(trace, BatchTrace)
                else _apply_jvp(prim, firsts, seconds)
            )
        return [_join(trace, o, m) for o, m in zip(outs, more)]
    name, ins, outs = type(prim).__name__, prim.in_avals_flat, prim.out_avals_flat

    def flat(*arrays):
        result = prim.expand(*tree.tree_unflatten(prim.in_tree, raise_values(ins, arrays)))
        return lower_values(name, outs, _flat_results(prim, result, "the result of expand"))

    arrays = lower_values(name, ins, args)
    jaxpr, consts = hoist_tracers(stage(flat, [typeof(x) for x in arrays], name))
    params = {"jaxpr": jaxpr, "num_consts": len(consts), "prim": prim, "name": name}
    result: Any = trace.process(call_hi_primitive_p, [*consts, *arrays], params)
    return raise_values(outs, result)


def _split(trace: JVPTrace | BatchTrace, x: Any) -> tuple:
    """Return a value and its tangent or mapped dims; the arrays of a hijax value may have their own."""
    if type(x) not in hi_types:
        return trace.split(x)
    aval, arrays = typeof(x), arrays_of(x)
    if not any_tracers(arrays):
        return trace.split(x)
    firsts, seconds = zip(*map(trace.split, arrays))
    if all(type(t) is Zero or t is None for t in seconds):
        return trace.split(x)
    if isinstance(trace, BatchTrace):
        raise NotImplementedError(
            f"vmap: a value of type {aval} was made of mapped arrays, and an operation with rules is applied to it: "
            "nothing says how it is mapped as a whole. Make it by an operation that has a rule for vmap."
        )
    return aval.raise_val(*firsts), tangent_type("grad", aval).raise_val(*map(instantiate, seconds))


def _join(trace: JVPTrace | BatchTrace, value: Any, more: Any) -> Any:
    """Combine a value with its tangent or mapped dims; a hijax value holds arrays with tangents if its tangent consists of theirs."""
    if isinstance(trace, BatchTrace):
        return trace.join(value, more)
    if type(more) is Zero or type(value) not in hi_types or not is_linear(typeof(value)):
        return trace.join(value, more)
    aval = typeof(value)
    parts = zip(aval.lower_val(value), aval.to_tangent_aval().lower_val(more))
    return aval.raise_val(
        *[x if typeof(t).dtype == dtypes.float0 else trace.join(x, t) for x, t in parts]
    )


def _apply_batch(
    prim: VJPHiPrimitive, axis: BatchAxis, args: Sequence, dims: Sequence
) -> tuple[list, list]:
    unflatten = lambda xs: tree.tree_unflatten(prim.in_tree, xs)
    out, out_dims = prim.batch(axis, unflatten(args), unflatten(dims))
    flat = tree.broadcast_prefix(out_dims, out, is_leaf=lambda d: d is None)
    return _flat_results(prim, out, "the result of batch"), flat


def _apply_jvp(prim: VJPHiPrimitive, primals: Sequence, tangents: Sequence) -> tuple[list, list]:
    """Return results and tangents, under the parent of the differentiating trace;
    use the reverse mode rules if they may be needed later."""
    nonzero = [type(t) is not Zero for t in tangents]
    unflatten = lambda xs: tree.tree_unflatten(prim.in_tree, xs)
    args = unflatten(primals)
    later = isinstance(trace_state.trace, StageTrace)  # the tangents are staged
    if later and prim._has("vjp_fwd"):
        outs, residuals = _check_fwd_result(
            prim, prim.vjp_fwd(unflatten(nonzero), *args), "vjp_fwd"
        )
        return outs, _linear_call(
            prim, args, residuals, list(map(instantiate_zeros, tangents)), outs
        )
    full = unflatten(list(map(instantiate_zeros, tangents)))
    if prim._has("jvp") and not (type(trace_state.trace) is LinearTrace and not prim._has("lin")):
        out, out_tangents = prim.jvp(args, full)
        return _flat_results(prim, out, "the result of jvp"), flat_tangents(
            prim, out_tangents, "the tangent of jvp"
        )
    if prim._has("lin"):
        outs, residuals = _check_fwd_result(prim, prim.lin(unflatten(nonzero), *args), "lin")
        return outs, flat_tangents(
            prim, prim.linearized(residuals, *full), "the result of linearized"
        )
    prim.vjp_fwd(unflatten(nonzero), *args) if later else prim.jvp(args, full)
    raise AssertionError("a rule that is not there was called")


def _linear_call(
    prim: VJPHiPrimitive, args: tuple, residuals: Any, tangents: list, outs: Sequence
) -> list:
    """Return the result tangents as one op that `vjp_bwd` transposes, and that `jvp` or `lin`, if defined, computes."""
    name, is_forward = type(prim).__name__, prim._has("jvp") or prim._has("lin")
    saved, kept_tree = flatten((residuals, args if is_forward else ()), name)
    n = len(saved)
    in_types, out_types = (
        [a.to_tangent_aval() for a in prim.in_avals_flat],
        [typeof(o).to_tangent_aval() for o in outs],
    )
    tangents = lower_values(name, in_types, tangents)

    def bwd(res, cts):
        accums = [ValAccum(a) for a in in_types]
        cts = tree.tree_unflatten(
            prim.out_tree, raise_values(out_types, list(map(instantiate, cts)))
        )
        prim.vjp_bwd(
            tree.tree_unflatten(kept_tree, res)[0], cts, *tree.tree_unflatten(prim.in_tree, accums)
        )
        return [ct for a in accums for ct in _cotangents(name, a)]

    def forward(*xs):
        _, primals = tree.tree_unflatten(kept_tree, xs[:n])
        tangents_in = tree.tree_unflatten(prim.in_tree, raise_values(in_types, xs[n:]))
        if prim._has("jvp"):
            return lower_values(
                name,
                out_types,
                flat_tangents(prim, prim.jvp(primals, tangents_in)[1], "the tangent of jvp"),
            )
        _, residuals = _check_fwd_result(
            prim, prim.lin(tree.tree_map(lambda _: True, primals), *primals), "lin"
        )
        return lower_values(
            name,
            out_types,
            flat_tangents(
                prim, prim.linearized(residuals, *tangents_in), "the result of linearized"
            ),
        )

    bwd.__name__ = name
    out_avals = tuple([lo for a in out_types for lo in a.lo_ty()])
    if not is_forward:
        linear_outs = custom_lin_p.bind(
            *saved, *tangents, bwd=bwd, num_res=n, out_avals=out_avals, name=name
        )
    else:
        jaxpr, consts = hoist_tracers(
            stage(forward, [typeof(x) for x in (*saved, *tangents)], name)
        )
        lead = len(consts)
        shifted = lambda res, cts: bwd(res[lead:], cts)
        linear_outs = hi_linearized_p.bind(
            *consts, *saved, *tangents, jaxpr=jaxpr, bwd=shifted, num_res=lead + n, name=name
        )
    return _typed_tangents(out_types, out_avals, linear_outs)


def _typed_tangents(types: list, avals: tuple, tangents: Sequence) -> list:
    """Return the tangents of results in their tangent types; tangents of integers are zero."""
    lowered = [
        instantiate(Zero(a)) if a.dtype == dtypes.float0 else t for a, t in zip(avals, tangents)
    ]
    return [
        Zero(a) if not a.is_high and a.dtype == dtypes.float0 else t
        for a, t in zip(types, raise_values(types, lowered))
    ]


def _cotangents(name: str, accum: ValAccum) -> list:
    """Return the arrays of a sum of cotangents; None if there is nothing to propagate."""
    types = accum.aval.lo_ty()
    if accum.val is None:
        return [None] * len(types)
    return [
        None if a.dtype == dtypes.float0 else ct
        for a, ct in zip(types, lower_values(name, [accum.aval], [accum.val]))
    ]


for _p in (call_hi_primitive_p, hi_linearized_p):
    # ops with tangents are not split by partial evaluation
    _p.define(partial_eval=None, partial_eval_eqn=None)
_batch_program = call_hi_primitive_p.batch


def _require_array_types(
    prim: VJPHiPrimitive, transformation: str, can_be: Callable[[Any], bool] = lambda aval: False
) -> None:
    """Raise NotImplementedError for a call in a program, which holds only the arrays of hijax values, if a rule needs the
    values and the arrays do not determine them."""
    if not all(not a.is_high or can_be(a) for a in (*prim.in_avals_flat, *prim.out_avals_flat)):
        raise NotImplementedError(
            f"{transformation} of a program with {type(prim).__name__}, an operation on values of hi types: apply "
            f"jit to what {transformation} gives, not {transformation} to what jit gives."
        )


@call_hi_primitive_p.def_jvp
def _call_jvp(primals: Sequence, tangents: Sequence, *, jaxpr, num_consts, prim, name):
    _require_array_types(prim, "grad", is_linear)
    ins, outs = prim.in_avals_flat, prim.out_avals_flat
    lo_tangents, in_tangents = iter(tangents[num_consts:]), []
    for a in ins:
        arrays = [next(lo_tangents) for _ in a.lo_ty()]
        zero = all(type(t) is Zero for t in arrays)
        in_tangents += (
            [Zero(a.to_tangent_aval())]
            if zero
            else raise_values([a.to_tangent_aval()], list(map(instantiate, arrays)))
        )
    results, result_tangents = _apply_jvp(
        prim, raise_values(ins, primals[num_consts:]), in_tangents
    )
    out_tangents = []
    for a, t in zip(outs, result_tangents):
        tangent = a.to_tangent_aval()
        out_tangents += [
            Zero(x) if type(t) is Zero or x.dtype == dtypes.float0 else y
            for x, y in zip(
                tangent.lo_ty(),
                [t] if not a.is_high else lower_values(name, [tangent], [instantiate_zeros(t)]),
            )
        ]
    return lower_values(name, outs, results), out_tangents


@call_hi_primitive_p.def_batch
def _call_batch(axis: BatchAxis, args: Sequence, dims: Sequence, *, jaxpr, num_consts, prim, name):
    if axis.of_mesh:  # device blocks, not a vmap axis
        return _batch_program(
            axis, args, dims, jaxpr=jaxpr, num_consts=num_consts, prim=prim, name=name
        )
    _require_array_types(prim, "vmap")
    return _apply_batch(prim, axis, args[num_consts:], dims[num_consts:])


@call_hi_primitive_p.def_transpose
def _call_transpose(cts: Sequence, *args, jaxpr, num_consts, prim, name):
    arrays, operands = iter(args[num_consts:]), []
    for a in prim.in_avals_flat:
        parts = [next(arrays) for _ in a.lo_ty()]
        operands += (
            [ValAccum(a.to_tangent_aval())]
            if any(map(is_undef, parts))
            else raise_values([a], parts)
        )
    outs = [a.to_tangent_aval() for a in prim.out_avals_flat]
    prim.transpose(
        tree.tree_unflatten(prim.out_tree, raise_values(outs, list(map(instantiate, cts)))),
        *tree.tree_unflatten(prim.in_tree, operands),
    )
    cotangents = [
        _cotangents(name, x) if type(x) is ValAccum else [None] * len(a.lo_ty())
        for a, x in zip(prim.in_avals_flat, operands)
    ]
    return [None] * num_consts + [ct for cts in cotangents for ct in cts]


@hi_linearized_p.def_transpose
def _linearized_transpose(cts: Sequence, *args, jaxpr, bwd, num_res, name):
    cotangents = bwd(list(args[:num_res]), list(cts))
    fit = lambda ct, x: (
        ct
        if ct is None or typeof(ct).dtype == x.aval.dtype
        else convert_element_type(ct, x.aval.dtype)
    )
    return [None] * num_res + [
        fit(ct, x) if is_undef(x) else None for ct, x in zip(cotangents, args[num_res:])
    ]


class _MappedPrimitive(VJPHiPrimitive):
    """An operation whose rules are the mapped rules of another operation."""

    axis: BatchAxis
    in_dims: Any
    out_dims: Any

    def __init__(self, prim: VJPHiPrimitive, axis: BatchAxis, in_dims: Any, out_dims: Any):
        self.prim = prim
        none = lambda d: d is None
        add = lambda d, a: (
            a
            if d is None
            else a.inc_rank(axis.size, d)
            if a.is_high
            else a.with_dim(d, axis.size, axis.explicit_axes)
        )
        ins = tree.broadcast_prefix(in_dims, prim.in_avals, is_leaf=none)
        outs = tree.broadcast_prefix(out_dims, prim.out_aval, is_leaf=none)
        self.in_avals = tree.tree_unflatten(prim.in_tree, list(map(add, ins, prim.in_avals_flat)))
        self.out_aval = tree.tree_unflatten(
            prim.out_tree, list(map(add, outs, prim.out_avals_flat))
        )
        self.params = {"prim": prim, "axis": axis, "in_dims": in_dims, "out_dims": out_dims}
        self._dims_flat = ins
        super().__init__()

    def __hash__(self) -> int:
        return hash((self.prim, self.axis, tuple(self._dims_flat)))

    def _has(self, method: str) -> bool:
        return self.prim._has(method)

    def _map(self, fun: Callable, in_axes: Any, out_axes: Any) -> Callable:
        return vmap(
            fun,
            in_axes=in_axes,
            out_axes=out_axes,
            axis_name=self.axis.name,
            axis_size=self.axis.size,
        )

    def expand(self, *args):
        return self._map(self.prim.expand, self.in_dims, self.out_dims)(*args)

    def jvp(self, primals, tangents):
        return self._map(
            self.prim.jvp, (self.in_dims, self.in_dims), (self.out_dims, self.out_dims)
        )(tuple(primals), tuple(tangents))

    def vjp_fwd(self, nzs_in, *args):
        fwd = lambda *xs: self.prim.vjp_fwd(nzs_in, *xs)[:2]
        return self._map(fwd, self.in_dims, (self.out_dims, 0))(*args)

    def vjp_bwd(self, res, outgrad, *arg_accums):
        present: list[bool] = []

        def bwd(res, ct):
            accums = [ValAccum(a.to_tangent_aval()) for a in self.prim.in_avals_flat]
            self.prim.vjp_bwd(res, ct, *tree.tree_unflatten(self.prim.in_tree, accums))
            present[:] = [a.val is not None for a in accums]
            return [a.val for a, p in zip(accums, present) if p]

        mapped_cts = iter(self._map(bwd, (0, self.out_dims), 0)(res, outgrad))
        for accum, has_ct, d in zip(tree.tree_leaves(arg_accums), list(present), self._dims_flat):
            if has_ct:
                ct = next(mapped_cts)
                accum.accum(reduce_sum(ct, (0,)) if d is None else move_dim(ct, 0, d))

    def lin(self, nzs_in, *primals):
        lin = lambda *xs: self.prim.lin(nzs_in, *xs)[:2]
        return self._map(lin, self.in_dims, (self.out_dims, 0))(*primals)

    def linearized(self, residuals, *tangents):
        return self._map(
            lambda res, *ts: self.prim.linearized(res, *ts), (0, *self.in_dims), self.out_dims
        )(residuals, *tangents)

    def batch_dim_rule(self, axis_data, dims):
        none = lambda d: d is None
        inside = lambda d, own: d if d is None or own is None else d - (own < d)
        dims_flat = tree.broadcast_prefix(dims, self.in_avals, is_leaf=none)
        out = self.prim.batch_dim_rule(
            axis_data,
            tree.tree_unflatten(self.in_tree, list(map(inside, dims_flat, self._dims_flat))),
        )
        outs = tree.broadcast_prefix(out, self.prim.out_aval, is_leaf=none)
        own = tree.broadcast_prefix(self.out_dims, self.prim.out_aval, is_leaf=none)
        outside = lambda d, own: d if d is None or own is None else d + (own <= d)
        return tree.tree_unflatten(self.out_tree, list(map(outside, outs, own)))
