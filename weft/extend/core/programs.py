"""The class of custom primitives, and constructors of programs with JAX's signatures.

In:   names, variables, equations.
Out:  objects of `weft._engine.core` and `weft._engine.ir.jaxpr`: `ClosedJaxpr(jaxpr, consts)` has the class of the
      result of `weft.make_jaxpr`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from weft._engine.control.call_rules import ProgramCallOp
from weft._engine.core import extension
from weft._engine.core.interpret import evaluate
from weft._engine.core.primitive import Primitive as _Primitive
from weft._engine.core.stage import hoist_tracers, stage
from weft._engine.core.trace import typeof
from weft._engine.ir import check, jaxpr as ir
from weft._engine.ir.jaxpr import Atom as Atom, DebugInfo, OpenJaxpr, Var
from weft._engine.ir.types import ShapedArray
from weft._engine.util.source import user_frame

ParamDict = dict[str, Any]


class _AliasMeta(type):
    """A metaclass for a class that stands for a weft class of another name: `isinstance` tests the weft class."""

    stands_for: tuple[type, ...]

    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(cls, instance) or isinstance(
            instance, cls.__dict__.get("stands_for", ())
        )


class Primitive(extension.ExtensionPrimitive, metaclass=_AliasMeta):
    """A custom operation: `Primitive(name)`. Its attributes and rules define its behavior.

    `multiple_results`     True if it returns a list of results; set it on the object
    `def_impl`             the implementation outside of traces
    `def_abstract_eval`    the type rule, which tracing applies
    `weft.interpreters.ad.primitive_jvps`, `primitive_transposes`, `weft.interpreters.batching.primitive_batchers`
                           the derivative, transpose and batching rules
    `weft.interpreters.mlir.register_lowering`
                           the implementation in compiled programs, in terms of weft operations
    A missing rule raises NotImplementedError on use. Several primitives may have the same name.

    >>> from weft.interpreters import ad, batching, mlir
    >>> twice_p = Primitive("twice")
    >>> _ = twice_p.def_impl(lambda x: 2 * x), twice_p.def_abstract_eval(lambda x: x)
    >>> mlir.register_lowering(twice_p, mlir.lower_fun(lambda x: 2 * x, multiple_results=False))
    >>> ad.deflinear2(twice_p, lambda ct, x: [twice_p.bind(ct)])
    >>> batching.defvectorized(twice_p)
    >>> weft.vmap(weft.grad(weft.jit(lambda x: twice_p.bind(x) ** 2)))(wnp.arange(3.))
    Array([ 0.,  8., 16.], dtype=float32)
    """

    stands_for = (_Primitive,)


class CallPrimitive(ProgramCallOp):
    """An operation that calls a function: `bind(fun, *args, **params)` or `bind(*args, subfuns=(fun,), **params)`, where
    `fun` is a `WrappedFun` of flat values.

    Transformations apply to the function; compilation inlines it. The parameter `jaxpr` of the equation is its program.

    >>> from weft.extend import linear_util
    >>> run_p = CallPrimitive("run")
    >>> run_p.bind(linear_util.wrap_init(lambda x: [x + 1]), 2)
    [Array(3, dtype=int32, weak_type=True)]
    """

    call_primitive = True

    def __init__(self, name: str):
        super().__init__(name, multiple_results=True, register=False)

    def bind(self, *args: Any, subfuns: Sequence[Any] = (), **params: Any) -> list:
        if "jaxpr" in params:  # an equation of the primitive is evaluated
            return super().bind(*args, **params)
        fun, *values = (*subfuns, *args)
        jaxpr, consts = hoist_tracers(
            stage(fun.call_wrapped, [typeof(x) for x in values], self.name)
        )
        return super().bind(*consts, *values, jaxpr=jaxpr, **{"name": self.name, **params})


def call_impl(f: Any, *args: Any, **_params: Any) -> Any:
    """Return the results of a wrapped function: the implementation of a call primitive."""
    return f.call_wrapped(*args)


# --- programs -----------------------------------------------------------------------------------------------------------


class Jaxpr(OpenJaxpr, metaclass=_AliasMeta):
    """A program without values of its constants: `Jaxpr(constvars, invars, outvars, eqns, effects=(), debug_info=None)`.

    >>> x = Var(weft.typeof(1.0))
    >>> y = Var(weft.typeof(1.0))
    >>> from weft.extend.core.primitives import sin_p
    >>> jaxpr = Jaxpr([], [x], [y], [new_jaxpr_eqn([x], [y], sin_p, {"accuracy": None}, set())])
    >>> weft.eval_jaxpr(jaxpr, [], 0.0)
    [Array(0., dtype=float32, weak_type=True)]
    """

    stands_for = (OpenJaxpr,)

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return OpenJaxpr(*args, **kwargs)


class ClosedJaxpr(ir.Jaxpr, metaclass=_AliasMeta):
    """A program with values of its constants: `ClosedJaxpr(jaxpr, consts)`, the class of the result of `weft.make_jaxpr`.

    Raises TypeError if the numbers of constants differ.

    >>> program = weft.make_jaxpr(lambda x: x + 1)(2)
    >>> ClosedJaxpr(program.jaxpr, program.consts) is program, isinstance(program, ClosedJaxpr), isinstance(program, Jaxpr)
    (True, True, False)
    """

    stands_for = (ir.Jaxpr,)

    def __new__(cls, jaxpr: Any, consts: Sequence[Any]) -> Any:
        return jaxpr.closed(consts)


class JaxprEqn(ir.Eqn, metaclass=_AliasMeta):
    """An equation of a program: `JaxprEqn(invars, outvars, primitive, params, effects, source_info, ctx)`."""

    stands_for = (ir.Eqn,)

    def __new__(
        cls,
        invars: Iterable[Atom],
        outvars: Iterable[Var],
        primitive: Any,
        params: dict,
        effs: Iterable,
        source_info: Any,
        ctx: Any = None,
    ) -> Any:
        return new_jaxpr_eqn(invars, outvars, primitive, params, effs, source_info, ctx)


def new_jaxpr_eqn(
    invars: Iterable[Atom],
    outvars: Iterable[Var],
    primitive: Any,
    params: dict,
    effects: Iterable,
    source_info: Any = None,
    ctx: Any = None,
) -> ir.Eqn:
    """Return an equation. Without `source_info`, its source line is the caller's."""
    return ir.Eqn(
        primitive,
        invars,
        outvars,
        params,
        user_frame() if source_info is None else source_info,
        frozenset(effects),
    )


def gensym(_suffix: str = "") -> Callable[[ShapedArray], Var]:
    """Return a function that creates a new variable of a given type.

    >>> gensym()(weft.typeof(1)).aval
    ShapedArray(int32[], weak_type=True)
    """
    return Var


def jaxpr_as_fun(closed_jaxpr: ir.Jaxpr, *args: Any) -> Any:
    """Return the program as a function from flat values to a list of results; with `args`, return the results.

    >>> jaxpr_as_fun(weft.make_jaxpr(lambda x: x + 1)(2))(5)
    [Array(6, dtype=int32, weak_type=True)]
    """
    if args:
        return evaluate(closed_jaxpr, *args)
    return lambda *values: evaluate(closed_jaxpr, *values)


def jaxprs_in_params(params: dict) -> Iterator[OpenJaxpr]:
    """Iterate over the programs among the parameters of an equation, without their constants.

    >>> program = weft.make_jaxpr(weft.jit(lambda x: x + 1))(2)
    >>> [len(inner.eqns) for inner in jaxprs_in_params(program.eqns[0].params)]
    [1]
    """
    for value in params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, (ir.Jaxpr, OpenJaxpr)):
                yield item.jaxpr if isinstance(item, ir.Jaxpr) else item


def subjaxprs(jaxpr: Any) -> Iterator[OpenJaxpr]:
    """Iterate over the programs directly inside the equations of a program, without deeper ones."""
    for eqn in jaxpr.eqns:
        yield from jaxprs_in_params(eqn.params)


def check_jaxpr(jaxpr: Any) -> None:
    """Raise JaxprTypeError if a program reads an unbound variable or has inconsistent types."""
    if isinstance(jaxpr, OpenJaxpr):
        jaxpr = ir.Jaxpr((), (), [*jaxpr.constvars, *jaxpr.invars], jaxpr.outvars, jaxpr.eqns)
    check.check_jaxpr(jaxpr)


__all__ = [
    "Atom",
    "CallPrimitive",
    "ClosedJaxpr",
    "DebugInfo",
    "Jaxpr",
    "JaxprEqn",
    "ParamDict",
    "Primitive",
    "call_impl",
    "check_jaxpr",
    "gensym",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "new_jaxpr_eqn",
    "subjaxprs",
]
