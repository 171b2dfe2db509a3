"""The roofline analysis: trace functions and add up the costs of their equations.

In:   a function, the types of its arguments, and optionally a mesh with specs.
Out:  the types of the results, and a `RooflineResult`.
Laws: a scan counts each iteration. A `while` counts one iteration, because their number is unknown, and a `cond` counts its
      most expensive branch. If a program has a `shard_map`, only the last one counts, for one device.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from weft._engine.api.arrays import make_jaxpr
from weft._engine.api.autodiff import vjp
from weft._engine.api.shard_map import shard_map
from weft._engine.api.struct import ShapeDtypeStruct
from weft._engine.core.primitive import RegionOp
from weft._engine.ir.jaxpr import Atom, DropVar, Eqn, Jaxpr, Literal, subjaxprs
from weft._engine.ir.rewrite import dce
from weft._engine.ir.shardings import NamedSharding
from weft._engine.util import dtypes, tree
from weft._engine.util.source import api_boundary, wraps
from weft.experimental.roofline.records import (
    RooflineResult,
    RooflineRuleContext,
    RooflineShape,
    largest,
)
from weft.experimental.roofline.rooflines import (
    given_rule,
    kind_rule,
    register_roofline,
    register_standard_roofline,
)

__all__ = [
    "RooflineResult",
    "RooflineRuleContext",
    "RooflineShape",
    "register_roofline",
    "register_standard_roofline",
    "roofline",
    "roofline_and_grad",
]

_log = logging.getLogger(__name__)


def roofline(
    f: Callable,
    mesh: Any = None,
    in_specs: Any = None,
    out_specs: Any = None,
    *,
    pin_lhs_in_vmem: bool = False,
    pin_rhs_in_vmem: bool = False,
    vjp: bool = False,
    print_jaxpr: bool = False,
) -> Callable[..., tuple[Any, RooflineResult]]:
    """Return a function that computes the cost of `f`: the types of its results, as ShapeDtypeStructs, and a `RooflineResult`.

    Its arguments are arrays or ShapeDtypeStructs; `f` is traced, not run. With `mesh`, `in_specs` and `out_specs`, `f` is a
    function of blocks, as for `shard_map`, and the cost is for one device. `pin_lhs_in_vmem` and `pin_rhs_in_vmem` omit
    the memory traffic of the first operand and the result, or of the second operand, of every matrix product. `vjp`
    analyzes the backward pass of `f` instead, whose results are cotangents of the arguments; `print_jaxpr` prints the
    analyzed program.

    >>> types, cost = roofline(lambda x, w: wnp.sin(x @ w))(wnp.ones((8, 16)), wnp.ones((16, 4)))
    >>> types.shape, cost.flops, cost.hbm_bytes
    ((8, 4), 1024, 896)
    >>> cost.unfused_flops, cost.unfused_hbm_bytes
    (1056, 1152)
    """
    backward, specs = vjp, in_specs if vjp else out_specs

    def analyzed(*args):
        fun = f
        if mesh is not None and in_specs is not None and out_specs is not None:
            fun = shard_map(fun, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
        if backward:
            fun = _backward(fun)
        jaxpr, types = make_jaxpr(fun, return_shape=True)(*args)
        if mesh is not None and specs is not None:
            leaves, structure = tree.tree_flatten(types)
            types = structure.unflatten(
                [
                    ShapeDtypeStruct(t.shape, t.dtype, sharding=NamedSharding(mesh, spec))
                    for t, spec in zip(leaves, tree.broadcast_prefix(specs, types))
                ]
            )
        jaxpr, on = dce(jaxpr), mesh
        for eqn in jaxpr.eqns:
            if eqn.primitive.per_device:
                jaxpr, on = eqn.params["jaxpr"], mesh or eqn.params["mesh"]
        if print_jaxpr:
            print(jaxpr)
        return types, _Analysis(pin_lhs_in_vmem, pin_rhs_in_vmem).program(jaxpr, on)

    return wraps(f)(api_boundary(analyzed, "roofline"))


def roofline_and_grad(
    f: Callable,
    mesh: Any,
    in_specs: Any,
    out_specs: Any,
    *,
    pin_lhs_in_vmem: bool = False,
    pin_rhs_in_vmem: bool = False,
    print_jaxpr: bool = False,
) -> Callable[..., tuple[Any, RooflineResult, RooflineResult]]:
    """Return a function that computes the costs of `f` and of its backward pass: result types, and two `RooflineResult`s.

    The arguments are the arguments of `roofline`. The backward pass is analyzed for arguments in bfloat16, except int32
    arguments, and with the results as cotangents. Without a mesh it includes the forward pass, which computes them.

    >>> mesh, spec = weft.make_mesh((1,), ("x",), devices=weft.devices()[:1]), weft.P("x")
    >>> types, forward, backward = roofline_and_grad(lambda x, w: x @ w, mesh, (spec, spec), spec)(wnp.ones((8, 8)), wnp.ones((8, 8)))
    >>> forward.flops, backward.flops
    (1024, 2048)
    """
    options: dict[str, Any] = {
        "pin_lhs_in_vmem": pin_lhs_in_vmem,
        "pin_rhs_in_vmem": pin_rhs_in_vmem,
        "print_jaxpr": print_jaxpr,
    }

    def analyzed(*args):
        types, forward = roofline(f, mesh, in_specs, out_specs, **options)(*args)
        halved = tree.tree_map(
            lambda x: ShapeDtypeStruct(
                x.shape,
                x.dtype if x.dtype == np.int32 else dtypes.bfloat16,
                sharding=getattr(x, "sharding", None),
            ),
            args,
        )
        return (
            types,
            forward,
            roofline(f, mesh, in_specs, out_specs, vjp=True, **options)(*halved)[1],
        )

    return wraps(f)(api_boundary(analyzed, "roofline_and_grad"))


def _backward(f: Callable) -> Callable:
    """Return the function from the results, used as cotangents, to the cotangents of the arguments of `f`."""

    def pulled(*args):
        results: Any
        pull: Any
        results, pull = vjp(f, *args)[:2]
        return pull(
            tree.tree_map(
                lambda x: (
                    x
                    if dtypes.issubdtype(x.dtype, np.inexact)
                    else np.zeros(x.shape, dtypes.float0)
                ),
                results,
            )
        )

    return pulled


class _Analysis:
    """The sum of the costs of the equations of a program, including nested programs."""

    def __init__(self, pin_lhs: bool, pin_rhs: bool):
        self.pin_lhs, self.pin_rhs = pin_lhs, pin_rhs
        self.unknown: set[Any] = set()  # operations that were already reported as without a rule

    def program(self, jaxpr: Jaxpr, mesh: Any) -> RooflineResult:
        """Return the cost of a program. Its peak is the maximum over its own values and its nested programs."""
        last = {
            atom: i
            for i, eqn in enumerate(jaxpr.eqns)
            for atom in eqn.invars
            if type(atom) is not Literal
        }
        last.update((atom, len(jaxpr.eqns)) for atom in jaxpr.outvars if type(atom) is not Literal)
        alive = sum(map(_nbytes, (*jaxpr.constvars, *jaxpr.invars)))
        total = RooflineResult(peak_hbm_bytes=alive)
        for i, eqn in enumerate(jaxpr.eqns):
            total += self.equation(eqn, mesh)
            alive += sum(_nbytes(v) for v in eqn.outvars if type(v) is not DropVar)
            alive -= sum(
                _nbytes(v)
                for v in {v for v in eqn.invars if type(v) is not Literal}
                if last[v] == i
            )
            total += RooflineResult(peak_hbm_bytes=alive)
        return total

    def equation(self, eqn: Eqn, mesh: Any) -> RooflineResult:
        """Return the cost of an equation."""
        rule = given_rule(eqn.primitive)
        if rule is None and isinstance(eqn.primitive, RegionOp):
            return self.region(eqn, mesh)
        rule = rule or kind_rule(eqn.primitive)
        if rule is None:
            if eqn.primitive not in self.unknown:
                _log.warning(
                    "roofline: nothing is known of what %s costs; it counts as nothing. Give it a rule with register_roofline.",
                    eqn.primitive.name,
                )
                self.unknown.add(eqn.primitive)
            return RooflineResult()
        context = RooflineRuleContext(
            name_stack=getattr(eqn.source_info, "name_stack", ""),
            primitive=eqn.primitive,
            avals_in=[_type(x) for x in eqn.invars],
            avals_out=[_type(x) for x in eqn.outvars],
            jaxpr_eqn_ctx=eqn.ctx,
            mesh=mesh,
            pin_lhs_in_vmem=self.pin_lhs,
            pin_rhs_in_vmem=self.pin_rhs,
        )
        return rule(context, *map(RooflineShape.from_aval, context.avals_in), **eqn.params)

    def region(self, eqn: Eqn, mesh: Any) -> RooflineResult:
        """Return the cost of the programs in an equation; programs other than `jaxpr` are derivative rules and do not count."""
        params = eqn.params
        if "branches" in params:
            return largest(self.program(branch, mesh) for branch in params["branches"])
        if "jaxpr" in params:
            once = self.program(
                params["jaxpr"], params["mesh"] if eqn.primitive.per_device else mesh
            )
            return replace(params.get("length", 1) * once, peak_hbm_bytes=once.peak_hbm_bytes)
        return sum((self.program(inner, mesh) for _, inner in subjaxprs(params)), RooflineResult())


def _type(x: Atom) -> Any:
    """Return the type of a value; for a reference, the type of its content."""
    return getattr(x.aval, "inner_aval", x.aval)


def _nbytes(v: Atom) -> int:
    return RooflineShape.from_aval(_type(v)).bytes
