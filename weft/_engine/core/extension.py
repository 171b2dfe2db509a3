"""Primitives that libraries define, and their expansion before compilation.

In:   a name, then rules in the calling conventions of JAX's public extension API: an implementation on values, a type rule, and
      (set through `weft.interpreters`) rules for differentiation, transposition, batching and lowering.
Out:  a primitive that traces handle like weft's own primitives. Its lowering rule is a function of values. Before compilation
      (`transforms.expand_library_ops`) the rule is traced, and its operations replace the equation.
Laws: primitives are compared by identity. Names are for printing only: two primitives may have the same name.
The packages `interpreters` (tables of rules) and `extend` (public names) use this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from weft._engine.core.interpret import run_reference
from weft._engine.core.primitive import OPTIONAL_SLOTS, Primitive, UnsupportedRule
from weft._engine.core.stage import stage
from weft._engine.core.trace import derived_trace, eval_trace, implementations, typeof
from weft._engine.core.typed_scalars import with_array_attributes
from weft._engine.ir.jaxpr import Jaxpr, subjaxprs
from weft._engine.ir.types import ShapedArray
from weft._engine.util.errors import describe
from weft._engine.util.source import user_frame

NO_EFFECTS: frozenset[Any] = frozenset()

#: slot -> JAX's error message for a missing rule, and the remedy
_MISSING = {
    "type": (
        "Abstract evaluation for {} not implemented",
        "Give it a type rule with {}.def_abstract_eval.",
    ),
    "impl": (
        "Evaluation rule for {} not implemented",
        "Give it an implementation with {}.def_impl.",
    ),
    "expand": (
        "MLIR translation rule for primitive {} not found for platform cpu",
        "Define its computation with weft.interpreters.mlir.register_lowering({}, weft.interpreters.mlir.lower_fun(fun)). An "
        "implementation (def_impl) is not used in compiled programs.",
    ),
    "jvp": (
        "Differentiation rule for {} not implemented",
        "Set weft.interpreters.ad.primitive_jvps[{}].",
    ),
    "transpose": (
        "Transpose rule (for reverse-mode differentiation) for {} not implemented",
        "Set weft.interpreters.ad.primitive_transposes[{}].",
    ),
    "batch": (
        "Batching rule for {} not implemented",
        "Set weft.interpreters.batching.primitive_batchers[{}].",
    ),
}


class _MissingRule(UnsupportedRule):
    """A placeholder for a rule that a library did not define. A call raises NotImplementedError."""

    def __call__(self, *_args: Any, **_params: Any) -> NoReturn:
        fact, remedy = _MISSING.get(self.slot, (f"{self.slot} rule for {{}} not implemented", ""))
        raise NotImplementedError(
            describe(
                "",
                fact.format(repr(self.op)) + ".",
                (),
                user_frame(),
                remedy.format(f"{self.op}_p"),
            )
        )


class ExtensionPrimitive(Primitive):
    """An operation that a library defines: see `weft.extend.core.Primitive`."""

    kind = "extension"
    #: (*values, **params) -> results, for concrete values outside of a trace
    implementation: Callable[..., Any] | None = None
    #: (values, avals, result avals, params) -> results, in terms of operations that can be compiled
    expand: Callable[..., Any] | None = None
    #: (*avals, **params) -> types and effects
    effectful_type: Callable[..., tuple[Any, Any]] | None = None

    def __init__(self, name: str):
        self.name = name
        self.reference = self._reference
        self.lowerings: dict[str | None, Callable[..., Any]] = {}  # by platform
        if type(self).abstract_eval is not ExtensionPrimitive.abstract_eval:
            # a subclass of a library defines rules as methods
            self.def_effectful_abstract_eval(self.abstract_eval)
        if type(self).impl is not ExtensionPrimitive.impl:
            self.def_impl(self.impl)

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: set the implementation on concrete values, `impl(*values, **params)`."""
        self.implementation = impl
        return impl

    def def_abstract_eval(self, abstract_eval: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: set the type rule, `abstract_eval(*avals, **params)`. It returns a type, or a list if `multiple_results`."""
        self.type, self.effectful_type = abstract_eval, None
        self.ref_effects = None
        return abstract_eval

    def def_effectful_abstract_eval(self, abstract_eval: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: set the type rule of an operation with effects. It returns the types and a set of effects."""
        self.effectful_type = abstract_eval
        self.type = lambda *avals, **params: abstract_eval(*avals, **params)[0]
        self.ref_effects = abstract_eval
        return abstract_eval

    def def_effectful_abstract_eval2(self, abstract_eval: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: set the type rule of an operation that must not be removed or repeated, and has no other effects."""
        self.def_effectful_abstract_eval(
            lambda *avals, **params: (
                abstract_eval(*avals, **params),
                frozenset({f"{self.name} ran"}),
            )
        )
        return abstract_eval

    def def_bind_with_trace(self, bind_with_trace: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: set the function that applies the operation under a trace, `bind_with_trace(trace, args, params)`."""
        self.bind_with_trace = bind_with_trace
        return bind_with_trace

    # `Primitive.impl` is a property; subclasses of libraries define a method
    def impl(self, *args: Any, **params: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Compute the operation on values with its implementation. Raise NotImplementedError if there is none."""
        return (self.implementation or self.missing_rule("impl"))(*args, **params)

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> tuple[Any, Any]:
        """Return the types of the results and the effects."""
        if self.effectful_type is not None:
            return self.effectful_type(*avals, **params)
        return self.type(*avals, **params), NO_EFFECTS

    def abstract(
        self, avals: Sequence[ShapedArray], params: dict[str, Any]
    ) -> tuple[ShapedArray, ...]:
        out = self.type(*avals, **params)
        if isinstance(out, (tuple, list)) != self.multiple_results:
            raise ValueError(
                f"{self.name}.abstract_eval() method should return a tuple or a list of types if the primitive has "
                f"multiple_results, else one type: got {out!r} where multiple_results is {self.multiple_results}."
            )
        return tuple(out) if self.multiple_results else (out,)

    def effects_of(self, params: dict[str, Any], avals: Sequence[ShapedArray]) -> frozenset[Any]:
        return frozenset(self.abstract_eval(*avals, **params)[1])

    def missing_rule(self, slot: str) -> Any:
        return None if slot in OPTIONAL_SLOTS else _MissingRule("", self.name, slot)

    def bind(self, *args: Any, **params: Any) -> Any:
        return self.bind_with_trace(
            trace_state.trace, [with_array_attributes(x) for x in args], params
        )

    def _reference(self, *args: Any, **params: Any) -> Any:

        out = run_reference(expand_primitive(self, tuple(map(typeof, args)), params), *args)
        return out if self.multiple_results else out[0]

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"primitive {self.name!r} was defined by a library, and its name does not identify it: it cannot be pickled."
        )

    def __deepcopy__(self, memo: dict[Any, Any]) -> "ExtensionPrimitive":
        return self


def expand_primitive(
    primitive: ExtensionPrimitive, avals: Sequence[ShapedArray], params: dict[str, Any]
) -> Jaxpr:
    """Trace the lowering rule of a library's primitive on operands of types `avals`, and return the program.

    Raise NotImplementedError if there is no such rule, and TypeError if the results do not have the types of its type rule.
    """
    lower = primitive.expand or primitive.missing_rule("expand")
    promised = primitive.abstract(avals, params)
    with derived_trace(eval_trace):
        program = stage(lambda *xs: lower(xs, avals, promised, params), avals, primitive.name)
    wrong = [
        (f"result {i}", f"promised {a.str_short()}", f"computed {b.str_short()}")
        for i, (a, b) in enumerate(zip(promised, program.out_avals))
        if a.shape != b.shape or a.dtype != b.dtype
    ]
    if wrong or len(promised) != len(program.out_avals):
        rows = wrong or [
            ("results", f"promised {len(promised)}", f"computed {len(program.out_avals)}")
        ]
        raise TypeError(
            describe(
                primitive.name,
                "the lowering rule and the abstract evaluation rule return results of different types.",
                rows,
                user_frame(),
                "The two rules of an operation must return the same types. Correct one of them.",
            )
        )
    return program


def has_python_implementation(jaxpr: Jaxpr) -> bool:
    """Return whether `jaxpr` has an operation that is implemented by a Python function only, which compiled programs cannot call."""
    return any(
        e.primitive in implementations
        or (
            isinstance(e.primitive, ExtensionPrimitive)
            and e.primitive.implementation is not None
            and e.primitive.expand is None
        )
        or any(has_python_implementation(inner) for _, inner in subjaxprs(e.params))
        for e in jaxpr.eqns
    )


from weft._engine.core.trace import trace_state  # noqa: E402  (as in `core.primitive`)
