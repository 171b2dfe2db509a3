"""Lowering of jaxprs to XLA operations by rules for each primitive.

In:   a jaxpr, and its mesh if it is the program of one device.
Out:  the operations of its equations in a block, and the functions that they call.
Laws: a rule `fn(b, eqn, *operands)` writes to block `b` and returns the results. It is looked up by
      the name of the primitive, then by its kind, then by the kind of its `lower` slot; a composite
      is written as the operations of its definition. A result whose type has a sharding is
      constrained to it, and so are operands of an elementwise equation whose sharding differs.
      has a sharding is constrained to it; so are the operands of an elementwise equation that are split otherwise.
Next: the rules, in `hlo.rules`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np

from weft._engine.core.pass_rules import PassRules
from weft._engine.core.primitive import ElementwiseOp
from weft._engine.core.stage import stage
from weft._engine.core.trace import with_source
from weft._engine.hlo.ops import HloBlock, HloContext, HloFunction, HloValue, array_type
from weft._engine.hlo.sharding_text import constrain_to_type
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal
from weft._engine.ir.rewrite import dce
from weft._engine.ir.symbolic import SymbolicDim, is_variable, names_in
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.lowering_specs import ExpandSpec
from weft._engine.util.source import join, with_metadata

Rule = Callable[..., Any]

RULES: PassRules[Rule] = PassRules("texts of XLA")
rule = RULES.add


def rule_of(primitive: Any) -> Rule | None:
    """Return the rule that writes equations of `primitive`, or None."""
    own = RULES.of_primitive(primitive)
    if own is None and isinstance(primitive.lower, ExpandSpec):
        return _composite
    return own or RULES.of_class(primitive)


class HloLowering(HloContext):
    """A module under construction."""

    def __init__(self, name: str = "", chlo: Container[str] | None = None):
        super().__init__(chlo)
        self.path = f"jit({name})/"  # prefix of operation names
        self.functions: dict[str, HloFunction] = {}
        self._named: dict[Any, str] = {}
        self._named_jaxprs: list[Any] = []  # jaxprs whose ids are keys of `_named`

    def rule_for(self, primitive: Any) -> Rule | None:
        """Return the rule that writes equations of `primitive`, or None."""
        return rule_of(primitive)

    def function(self, jaxpr: Jaxpr, name: str, public: bool = False) -> HloFunction:
        """Return `jaxpr` as a function of the module."""
        types = [array_type(a.shape, a.dtype) for a in jaxpr.in_avals]

        def fill(b: HloBlock, *args: HloValue) -> list[HloValue]:
            if public:
                self.variables = _size_variables(b, args)
            return self.inline(b, jaxpr, args)

        return self.add_function(name, types, fill, public)

    def add_function(
        self,
        name: str,
        types: Sequence[ShapedArray],
        fill: Callable[..., Sequence[HloValue]],
        public: bool = False,
    ) -> HloFunction:
        """Add a function whose body `fill(block, *args)` writes.

        Attributes that the user gave the call are not given to the operations in it.
        """
        function = HloFunction(self._free(name), HloBlock(self, types), public)
        self.functions[function.name] = function
        outer, self.metadata, self.around = (self.metadata, self.around), (), ()
        function.body.results = list(fill(function.body, *function.body.args))
        self.metadata, self.around = outer
        return function

    def _free(self, name: str) -> str:
        label, n = symbol(name), 0
        while label in self.functions:
            label, n = f"{symbol(name)}_{n}", n + 1
        return label

    def call(
        self, b: HloBlock, jaxpr: Jaxpr, name: str, args: Sequence[HloValue]
    ) -> list[HloValue]:
        if self.variables:
            return self.inline(b, jaxpr, args)
        key = (id(jaxpr), self.mesh)
        if key not in self._named:
            self._named_jaxprs.append(jaxpr)
            path, self.path = self.path, f"jit({name})/"
            self._named[key] = self.function(jaxpr, name).name
            self.path = path
        return self._emit_call(b, self._named[key], args)

    def call_shared(
        self,
        b: HloBlock,
        name: str,
        key: Any,
        args: Sequence[HloValue],
        fill: Callable[..., Sequence[HloValue]],
    ) -> list[HloValue]:
        if self.variables:
            return list(fill(b, *args))
        key = (name, key, tuple([x.type for x in args]))
        if key not in self._named:
            self._named[key] = self.add_function(name, [x.type for x in args], fill).name
        return self._emit_call(b, self._named[key], args)

    def _emit_call(self, b: HloBlock, name: str, args: Sequence[HloValue]) -> list[HloValue]:
        return b.emit(
            "func.call", args, [v.type for v in self.functions[name].body.results], callee=name
        )

    def inline(self, b: HloBlock, jaxpr: Jaxpr, args: Sequence[HloValue]) -> list[HloValue]:
        env = self.bind_arguments(b, jaxpr, args)
        for eqn in jaxpr.eqns:
            self.write(b, eqn, env)
        return [self.read(b, a, env) for a in jaxpr.outvars]

    def bind_arguments(self, b: HloBlock, jaxpr: Jaxpr, args: Sequence[HloValue]) -> dict:
        """Return the environment of a jaxpr: values of its arguments and constants."""
        consts = [b.constant(np.asarray(value)) for value in jaxpr.consts]
        return dict(zip((*jaxpr.invars, *jaxpr.constvars), (*args, *consts)))

    def read(self, b: HloBlock, atom: Any, env: dict) -> HloValue:
        """Return the value of an atom."""
        return (
            env[atom]
            if type(atom) is not Literal
            else b.full(atom.aval.shape, atom.val, array_type((), atom.aval.dtype).dtype)
        )

    def write(self, b: HloBlock, eqn: Eqn, env: dict) -> None:
        """Write the operations of an equation and add its results to `env`."""
        place, path, metadata = self.place, self.path, self.metadata
        self.place = self.place_of(eqn)
        if eqn.source is not None:
            self.metadata = with_metadata(self.around, eqn.source.metadata)
        self.path = f"{self.place[1]}/"
        results = self.equation(
            b, eqn, self.reshard_operands(b, eqn, [self.read(b, a, env) for a in eqn.invars])
        )
        env.update(
            (v, constrain_to_type(b, x, v.aval.explicit)) for v, x in zip(eqn.outvars, results)
        )
        self.place, self.path, self.metadata = place, path, metadata

    def reshard_operands(self, b: HloBlock, eqn: Eqn, operands: list[HloValue]) -> list[HloValue]:
        """Return operands of an elementwise equation with the sharding of the result.

        Scalars are broadcast to the result's shape.
        """
        if not isinstance(eqn.primitive, ElementwiseOp) or len(operands) < 2:
            return operands
        aval = eqn.outvars[0].aval
        sharding = aval.explicit
        if sharding is None or sharding.spec.is_partial:
            return operands
        return [
            x
            if a.aval.explicit == sharding
            else constrain_to_type(b, b.broadcast(x, aval.shape), sharding)
            for x, a in zip(operands, eqn.invars)
        ]

    def place_of(self, eqn: Eqn) -> tuple[Any, str]:
        """Return the user's source line, and the enclosing names joined by slashes."""
        scope = "" if eqn.source is None else eqn.source.scope
        if eqn.primitive.is_call and "name" in eqn.params:
            in_place = eqn.primitive.only_derivatives
            return eqn.source, self.path + join(
                scope, eqn.primitive.name if in_place else f"jit({eqn.params['name']})"
            )
        return eqn.source, self.path + (f"{scope}/" if scope else "") + eqn.primitive.name

    def equation(self, b: HloBlock, eqn: Eqn, args: Sequence[HloValue]) -> list[HloValue]:
        """Write an equation; return its results."""
        write = self.rule_for(eqn.primitive)
        if write is None:
            raise NotImplementedError(
                f"as_text: {eqn.primitive.name} cannot be written as XLA operations."
            )
        results = write(b, eqn, *args)
        return [results] if isinstance(results, HloValue) else list(results)

    def inline_function(
        self, b: HloBlock, fn: Callable[..., Sequence], args: Sequence[HloValue]
    ) -> list[HloValue]:
        source = self.place[0] if self.place is not None else None
        with with_source(source and source.unnamed()):
            program = dce(stage(fn, [x.type for x in args]))
        return self.inline(b, program, args)


def _size_variables(b: HloBlock, args: Sequence[HloValue]) -> dict[str, HloValue]:
    """Return the names in symbolic sizes of arguments as scalars.

    Raise NotImplementedError for a name that occurs only inside expressions.
    """
    variables: dict[str, HloValue] = {}
    for x in args:
        for d, n in enumerate(x.shape):
            if isinstance(n, SymbolicDim) and is_variable(n.expression) and str(n) not in variables:
                variables[str(n)] = b.convert(
                    b.op("get_dimension_size", x, type=array_type((), np.int32), dim=d), np.int64
                )
    unknown = names_in([n for x in args for n in x.shape]) - set(variables)
    if unknown:
        raise NotImplementedError(
            f"as_text: the symbolic sizes {', '.join(sorted(unknown))} occur only in expressions of sizes. Each one "
            "must be the size of a dim of an argument."
        )
    return variables


def _composite(b: HloBlock, eqn: Eqn, *args: HloValue) -> list[HloValue]:
    """Write a composite as the operations of its definition."""
    fn, has_multiple_results = eqn.primitive.lower.fn, eqn.primitive.multiple_results
    return b.context.inline_function(
        b,
        lambda *xs: fn(*xs, **eqn.params) if has_multiple_results else [fn(*xs, **eqn.params)],
        args,
    )


def symbol(name: str) -> str:
    """Return `name` as a valid name of a function or a module.

    >>> symbol("<lambda>"), symbol("layer.0")
    ('_lambda_', 'layer.0')
    """
    label = re.sub(r"[^\w.]", "_", name, flags=re.ASCII)
    return label if re.match(r"[A-Za-z_]", label) else f"_{label}"


def result_types(eqn: Eqn) -> list[ShapedArray]:
    """Return the types of an equation's results."""
    return [array_type(v.aval.shape, v.aval.dtype) for v in eqn.outvars]
