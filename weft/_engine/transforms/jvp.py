"""Forward-mode differentiation: propagate tangents together with values.

Law: for `y, ty = jvp(f)(x, tx)`, `y` is `f(x)` and `ty` is the directional derivative of f at x along tx.
Zero tangents stay symbolic (`Zero`). The rule of an op is called only if one of its tangents is not symbolic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.core.annotations import cast_in_trace
from weft._engine.core.interpret import evaluate
from weft._engine.core.pair_trace import PairTrace, run_pairs
from weft._engine.core.primitive import Primitive
from weft._engine.core.sharded_types import check
from weft._engine.core.stage import StageTracer, stage
from weft._engine.core.trace import Trace, Tracer, Zero, current_trace, derived_trace, typeof
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ops.families import zeros
from weft._engine.util.errors import CustomVJPException


class JVPTracer(Tracer):
    """A value with its tangent."""

    __slots__ = ("aval", "primal", "tangent")

    def __init__(self, trace: "JVPTrace", primal: Any, tangent: Any):
        self.owning_trace = trace
        self.aval = typeof(primal)
        self.primal = primal
        self.tangent = tangent

    carries_derivative = True
    out_of_place = CustomVJPException
    why_no_value = "its derivative would be lost: it is being differentiated"

    def concrete(self) -> Any:
        if isinstance(self.primal, Tracer):
            return self.primal.concrete()
        return self.primal

    def __repr__(self) -> str:
        if (
            type(self.tangent) is StageTracer
            and self.owning_trace.parent is self.tangent.owning_trace
        ):
            # the tangent is a value of the linear program that is being staged
            return f"GradTracer(primal={self.primal}, typeof(tangent)={typeof(self.tangent).str_short(True, kinds=True)})"
        return f"JVPTracer(primal={self.primal}, tangent={self.tangent})"

    def describe(self) -> str:
        return f"a value under differentiation of type {self.aval.str_short()}"


class JVPTrace(PairTrace):
    """A trace that computes primals and tangents. `tag` identifies the transformation if a library passes one."""

    __slots__ = ("tag",)

    def __init__(self, parent_trace: Trace, tag: Any = None):
        super().__init__(parent_trace)
        self.tag = tag

    def split(self, x: Any) -> tuple[Any, Any]:
        """Return the pair (primal, tangent) of any value."""
        if type(x) is JVPTracer and x.owning_trace is self:
            return x.primal, x.tangent
        return x, Zero(typeof(x).to_tangent_aval())

    def join(self, first: Any, second: Any) -> Any:
        """Return the tracer of a primal and a tangent. The tangent is cast to vary over the axes of its primal."""
        if type(second) is Zero:
            return first
        axes = typeof(first).vma
        return JVPTracer(self, first, cast_in_trace(self.outer, second, axes) if axes else second)

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        primals: list[Any] = []
        tangents: list[Any] = []
        constant = True
        for x in args:
            primal, tangent = self.split(x)
            primals.append(primal)
            tangents.append(tangent)
            constant = constant and type(tangent) is Zero
        if constant:
            return self.outer.process(primitive, primals, params)
        rule = primitive.jvp
        check(primitive, primals, params)
        with derived_trace(self.outer):
            primal_out, tangent_out = rule(primals, tangents, **params)
        if primitive.multiple_results:
            return [self.join(p, t) for p, t in zip(primal_out, tangent_out)]
        return self.join(primal_out, tangent_out)


def jvp_flat(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Return the values and tangents of the flat function `fun`. Tangents of arguments and results may be `Zero`."""
    return run_pairs(JVPTrace(current_trace()), fun, primals, tangents)


def instantiate(tangent: Any) -> Any:
    """Return a symbolic zero as an array of zeros, and other tangents unchanged."""
    if type(tangent) is not Zero:
        return tangent
    return zeros(tangent.aval)


def jvp_jaxpr(
    jaxpr: Jaxpr, nonzero: tuple[bool, ...], instantiate_outs: bool | tuple[bool, ...] = False
) -> tuple[Jaxpr, tuple[bool, ...]]:
    """Return the forward-mode program of `jaxpr`, and for each result whether it has a nonzero tangent.

    The inputs of the program are all primals, then the tangents of the inputs marked in `nonzero`. Its results are all primal results,
    then the nonzero tangents. `instantiate_outs` marks results (True: all) whose tangents are returned even if they are zero.
    """
    if isinstance(instantiate_outs, bool):
        instantiate_outs = (instantiate_outs,) * len(jaxpr.outvars)

    def make():
        out_nonzero: list[bool] = []
        n = len(jaxpr.invars)

        def run(*args: Any) -> list[Any]:
            nonzero_tangents = iter(args[n:])
            tangents = [
                next(nonzero_tangents) if nz else Zero(v.aval.to_tangent_aval())
                for nz, v in zip(nonzero, jaxpr.invars)
            ]
            outs, out_tangents = jvp_flat(lambda *xs: evaluate(jaxpr, *xs), args[:n], tangents)
            out_tangents = [
                instantiate(t) if force else t for t, force in zip(out_tangents, instantiate_outs)
            ]
            out_nonzero.extend(type(t) is not Zero for t in out_tangents)
            return [*outs, *(t for t in out_tangents if type(t) is not Zero)]

        in_avals = [
            *jaxpr.in_avals,
            *(v.aval.to_tangent_aval() for v, nz in zip(jaxpr.invars, nonzero) if nz),
        ]
        return stage(run, in_avals, jaxpr.name), tuple(out_nonzero)

    return jaxpr.memo(("jvp", nonzero, instantiate_outs), make)
