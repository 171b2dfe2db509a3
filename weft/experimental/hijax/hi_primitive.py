"""`HiPrimitive`: operations on values of hijax types, implemented by operations on their arrays."""

from __future__ import annotations

from typing import Any

from weft._engine.control.custom_rules import custom_jvp
from weft._engine.control.hijax_types import is_mutable, on_contents, register_created_value
from weft._engine.control.ref import is_ref
from weft._engine.core.trace import EvalTrace, trace_state, typeof
from weft.experimental.hijax.values import lower_values, raise_values, tangent_type


class HiPrimitive:
    """A base class of operations on arrays and values of hijax types; `bind(*args, **params)` applies one.

    The methods to write: `to_lojax(*args, **params)`, the implementation, which unpacks and constructs hijax values;
    `abstract_eval(*types, **params)`, which returns the type of the result (a list of types with `multiple_results`) and a
    set of effects, and is called inside transformations; `jvp(primals, tangents, **params)`, the derivative, by default
    the derivative of `to_lojax`. Reverse mode transposes the operations in `jvp`. On mutable values `to_lojax` runs at the
    call, under any transformation. Inside transformations, NotImplementedError is raised for other operations with
    effects, and under differentiation for types whose tangents do not consist of the tangents of their arrays.

    >>> import dataclasses
    >>> from weft.experimental.hijax import HiPrimitive
    >>> class Cube(HiPrimitive):
    ...     def abstract_eval(self, x): return x, set()
    ...     def to_lojax(self, x): return x ** 3
    ...     def jvp(self, primals, tangents): return self.bind(*primals), 3 * primals[0] ** 2 * tangents[0]
    >>> float(weft.grad(Cube("cube").bind)(2.0))
    12.0
    """

    multiple_results = False

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def is_high(self, *avals, **params) -> bool:
        """Return True if `to_lojax` lowers the operation."""
        return True

    def is_effectful(self, params) -> bool:
        """Return True if the operation has effects."""
        return False

    def _missing(self, method: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} ({self.name}) must implement `{method}`."
        )

    def abstract_eval(self, *arg_avals, **params):
        """Return the type of the result, and the effects."""
        raise self._missing("abstract_eval")

    def to_lojax(self, *args, **params):
        """Compute the result by operations on the arrays of the arguments."""
        raise self._missing("to_lojax")

    def jvp(self, primals, tangents, **params):
        """Return `(result, tangent of the result)`."""
        raise self._missing("jvp")

    def transpose(self, *args, **params):
        """Return the transpose of a linear operation."""
        raise self._missing("transpose")

    def bind(self, *args, **params):
        """Apply the operation to these arguments."""
        if any(map(is_mutable, args)):  # mutable arguments: run now, on their present content
            return on_contents(lambda *xs: self.to_lojax(*xs, **params), args)
        if type(trace_state.trace) is EvalTrace:
            return self.to_lojax(*args, **params)
        avals = [x.type if is_ref(x) else typeof(x) for x in args]
        out_types, effects = self.abstract_eval(*avals, **params)
        if not self.multiple_results and out_types.is_high and out_types.has_qdd:
            return register_created_value(self.to_lojax(*args, **params))
        if effects:
            raise NotImplementedError(
                f"{self.name}: operations of hi types with effects ({', '.join(map(repr, effects))}) are not "
                "supported inside of transformations."
            )
        out_avals = list(out_types) if self.multiple_results else [out_types]
        as_list = lambda out: list(out) if self.multiple_results else [out]

        def flat(*xs):
            return lower_values(
                self.name, out_avals, as_list(self.to_lojax(*raise_values(avals, xs), **params))
            )

        def flat_jvp(primals, tangents):
            tangent_avals, out_tangent_avals = [
                [tangent_type(self.name, a) for a in types] for types in (avals, out_avals)
            ]
            out, out_tangents = self.jvp(
                raise_values(avals, primals), raise_values(tangent_avals, tangents), **params
            )
            return lower_values(self.name, out_avals, as_list(out)), lower_values(
                self.name, out_tangent_avals, as_list(out_tangents)
            )

        flat.__name__ = self.name
        call: Any = flat
        if type(self).jvp is not HiPrimitive.jvp:
            call = custom_jvp(flat)
            call.defjvp(flat_jvp)
        outs = raise_values(out_avals, call(*lower_values(self.name, avals, args)))
        return outs if self.multiple_results else outs[0]
