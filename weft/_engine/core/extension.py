"""Primitives that libraries define, and what becomes of them when a program is compiled.

In:   a name, then rules, each in the calling convention of JAX's public extension API: an implementation on values, a type
      rule, and through `weft.interpreters` rules of differentiation, transposition, batching and lowering.
Out:  a primitive that every trace takes like one of weft's own. Its lowering rule is a function of values: the operations
      that it applies are traced and take the place of the equation (`transforms.expand`) before anything is compiled.
Laws: the object is the identity. Names are for texts: two libraries may give the same one, which may also be a name of weft's.
The packages `interpreters` (tables of rules) and `extend` (public names) stand above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from weft._engine.core.interpret import run_reference
from weft._engine.core.primitive import OPTIONAL_SLOTS, Primitive, Unsupported
from weft._engine.core.scalars import typed
from weft._engine.core.stage import stage
from weft._engine.core.trace import derived_trace, eval_trace, implementations, typeof
from weft._engine.ir.jaxpr import Jaxpr, subjaxprs
from weft._engine.ir.types import ShapedArray
from weft._engine.util.errors import describe
from weft._engine.util.source import user_frame

NO_EFFECTS: frozenset[Any] = frozenset()

#: slot -> what JAX's users know a missing rule by, and what defines it
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
        "Say what it computes with weft.interpreters.mlir.register_lowering({}, weft.interpreters.mlir.lower_fun(fun)); an "
        "implementation (def_impl) serves only where nothing is compiled.",
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


class _MissingRule(Unsupported):
    """A rule that a library did not give. A call raises NotImplementedError."""

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
    #: (*values, **params) -> results, where nothing is traced
    implementation: Callable[..., Any] | None = None
    #: (values, avals, result avals, params) -> results, in operations that are compiled
    expand: Callable[..., Any] | None = None
    #: (*avals, **params) -> types and effects
    effectful_type: Callable[..., tuple[Any, Any]] | None = None

    def __init__(self, name: str):
        self.name = name
        self.reference = self._reference
        self.lowerings: dict[str | None, Callable[..., Any]] = {}  # by platform
        if (
            type(self).abstract_eval is not ExtensionPrimitive.abstract_eval
        ):  # a library's class states rules as methods
            self.def_effectful_abstract_eval(self.abstract_eval)
        if type(self).impl is not ExtensionPrimitive.impl:
            self.def_impl(self.impl)

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: what the operation computes where nothing is traced, `impl(*values, **params)`."""
        self.implementation = impl
        return impl

    def def_abstract_eval(self, abstract_eval: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the type rule, `abstract_eval(*avals, **params)`; it gives a type, or several with `multiple_results`."""
        self.type, self.effectful_type = abstract_eval, None
        self.ref_effects = None
        return abstract_eval

    def def_effectful_abstract_eval(self, abstract_eval: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the type rule of an operation with effects; it gives types and a set of effects."""
        self.effectful_type = abstract_eval
        self.type = lambda *avals, **params: abstract_eval(*avals, **params)[0]
        self.ref_effects = abstract_eval
        return abstract_eval

    def def_effectful_abstract_eval2(self, abstract_eval: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the type rule, for an operation whose one effect is that it must not be dropped or repeated."""
        self.def_effectful_abstract_eval(
            lambda *avals, **params: (
                abstract_eval(*avals, **params),
                frozenset({f"{self.name} ran"}),
            )
        )
        return abstract_eval

    def def_bind_with_trace(self, bind_with_trace: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: how the operation is applied under a trace, `bind_with_trace(trace, args, params)`, in place of the rules."""
        self.bind_with_trace = bind_with_trace
        return bind_with_trace

    # a property of other primitives; classes of libraries define it as a method
    def impl(self, *args: Any, **params: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The operation on values: by its implementation, else compiled from its lowering."""
        return (self.implementation or self.missing_rule("impl"))(*args, **params)

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> tuple[Any, Any]:
        """Types of the results, and the effects."""
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
        return self.bind_with_trace(trace_state.trace, [typed(x) for x in args], params)

    def _reference(self, *args: Any, **params: Any) -> Any:

        out = run_reference(expansion(self, tuple(map(typeof, args)), params), *args)
        return out if self.multiple_results else out[0]

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"primitive {self.name!r} was defined by a program, and its name does not tell which it is: it cannot be pickled."
        )

    def __deepcopy__(self, memo: dict[Any, Any]) -> "ExtensionPrimitive":
        return self


def expansion(
    primitive: ExtensionPrimitive, avals: Sequence[ShapedArray], params: dict[str, Any]
) -> Jaxpr:
    """What an operation of a library computes, as a program of the operations that its lowering rule applies.

    Raises NotImplementedError without such a rule, TypeError if results are not of the types that its type rule promises.
    """
    lower = primitive.expand or primitive.missing_rule("expand")
    promised = primitive.abstract(avals, params)
    with derived_trace(eval_trace):
        made = stage(lambda *xs: lower(xs, avals, promised, params), avals, primitive.name)
    wrong = [
        (f"result {i}", f"promised {a.str_short()}", f"computed {b.str_short()}")
        for i, (a, b) in enumerate(zip(promised, made.out_avals))
        if a.shape != b.shape or a.dtype != b.dtype
    ]
    if wrong or len(promised) != len(made.out_avals):
        rows = wrong or [
            ("results", f"promised {len(promised)}", f"computed {len(made.out_avals)}")
        ]
        raise TypeError(
            describe(
                primitive.name,
                "the lowering gives results of other types than the abstract evaluation rule.",
                rows,
                user_frame(),
                "Both describe one operation: make them agree.",
            )
        )
    return made


def implemented_apart(jaxpr: Jaxpr) -> bool:
    """Return whether an operation of `jaxpr` is computed by a Python function, which no compiled program calls."""
    return any(
        e.primitive in implementations
        or (
            isinstance(e.primitive, ExtensionPrimitive)
            and e.primitive.implementation is not None
            and e.primitive.expand is None
        )
        or any(implemented_apart(inner) for _, inner in subjaxprs(e.params))
        for e in jaxpr.eqns
    )


from weft._engine.core.trace import trace_state  # noqa: E402  (as in `core.primitive`)
