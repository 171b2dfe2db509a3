"""Lowering rules of primitives, for compilation.

In:   a primitive and a rule, `rule(ctx, *values, **params) -> results`. weft does not compile with MLIR: the values are
      tracers, and the rule runs once for each combination of operand types. `lower_fun` turns a function of arrays into
      a rule; a rule may also call such rules, constants and callbacks itself.
Out:  the operations that the rule applies replace the primitive (`transforms.expand_library_ops`): after differentiation, and before
      partitioning, fusion and the disk cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from weft._engine.api.callbacks import io_callback, pure_callback
from weft._engine.api.struct import ShapeDtypeStruct
from weft._engine.control.hijax_types import EffectTypeSet
from weft._engine.core.extension import ExtensionPrimitive
from weft._engine.core.interpret import evaluate
from weft._engine.core.primitive import Primitive
from weft._engine.core.sealed_classes import Sealed
from weft._engine.ir.jaxpr import Jaxpr, OpenJaxpr
from weft._engine.ir.mesh import Mesh as Mesh
from weft._engine.ir.types import ShapedArray
from weft._engine.util import tree
from weft._engine.util.record import record, replace
from weft.interpreters import stablehlo_ops as hlo

LoweringRule = Callable[..., Any]
Value = Any

#: the platforms whose lowering rules are used
PLATFORMS = ("cpu",)
#: the platforms that rules may be registered for
KNOWN_PLATFORMS = ("cpu", "cuda", "gpu", "oneapi", "rocm", "tpu")


class ModuleContext(metaclass=Sealed):
    """Information on the enclosing program for lowering rules: the platforms of the compilation."""

    _created_by = "lowering, which passes them to rules as `ctx.module_context`"
    platforms: Sequence[str] = PLATFORMS

    def add_keepalive(self, keepalive: Any) -> None:
        """Do nothing: a program keeps its functions alive."""

    def add_host_callback(self, host_callback: Any) -> None:
        """Nothing, likewise."""

    def get_backend(self, optional: bool = False) -> Any:
        from weft._engine import backends

        return backends.get()


class TokenSet:
    """The tokens of effects. weft orders effects without tokens, so rules receive an empty set."""

    def __init__(self, tokens: Mapping[Any, Any] = MappingProxyType({})):
        self._tokens = dict(tokens)

    def get(self, effect: Any) -> Any:
        """Return the token of an effect, or None."""
        return self._tokens.get(effect)

    def effects(self) -> set:
        """Return the effects that have tokens."""
        return set(self._tokens)

    def items(self) -> tuple[tuple[Any, Any], ...]:
        """Return the pairs of effects and tokens."""
        return tuple(self._tokens.items())

    def update_tokens(self, tokens: "TokenSet") -> "TokenSet":
        """Return these tokens updated by `tokens`."""
        return TokenSet({**self._tokens, **tokens._tokens})


@record
class LoweringRuleContext:
    """The context of a lowering rule: the primitive and the types of its operands and results."""

    primitive: Primitive | None
    avals_in: Sequence[ShapedArray]
    avals_out: Sequence[ShapedArray]
    module_context: ModuleContext = ModuleContext.make()
    tokens_in: TokenSet = TokenSet()
    platforms: Sequence[str] | None = PLATFORMS
    name_stack: Any = None
    dim_var_values: Sequence = ()

    def set_tokens_out(self, tokens_out: TokenSet) -> None:
        """Do nothing: weft orders effects itself."""

    def replace(self, **changes: Any) -> "LoweringRuleContext":
        """Return a copy with some fields replaced."""
        return replace(self, **changes)

    def is_forward_compat(self) -> bool:
        return False


def register_lowering(
    prim: Primitive,
    rule: LoweringRule,
    platform: str | None = None,
    inline: bool = True,
    cacheable: bool = True,
) -> None:
    """Register the lowering rule of a custom primitive. A rule for `platform` is preferred there to a rule for all platforms.

    Raises NotImplementedError for weft's own primitives and for an unknown platform.

    >>> from weft.extend.core import Primitive
    >>> p = Primitive("add_two")
    >>> _ = p.def_abstract_eval(lambda x: x)
    >>> register_lowering(p, lower_fun(lambda x: x + 2, multiple_results=False))
    >>> weft.jit(p.bind)(1.0)
    Array(3., dtype=float32, weak_type=True)
    """
    if platform is not None and platform not in KNOWN_PLATFORMS:
        raise NotImplementedError(
            f"Registering an MLIR lowering rule for primitive {prim} for an unknown platform {platform}. Known "
            f"platforms are: {', '.join(KNOWN_PLATFORMS)}."
        )
    if not isinstance(prim, ExtensionPrimitive):
        raise NotImplementedError(
            f"register_lowering: {prim!r} is an operation of weft's own, which is compiled as weft says. Define a "
            "primitive with weft.extend.core.Primitive(name)."
        )
    if not callable(rule):
        raise TypeError(
            f"register_lowering: the rule of {prim!r} must be a function, got {rule!r}."
        )
    prim.lowerings[platform] = rule
    chosen = next((prim.lowerings[p] for p in (*PLATFORMS, None) if p in prim.lowerings), None)
    if chosen is not None:
        prim.expand = _make_expansion_rule(prim, chosen)


def _make_expansion_rule(prim: Primitive, rule: LoweringRule) -> Callable:
    """Return the lowering of a primitive as a function of tracers, types and parameters."""

    def expand(
        values: Sequence,
        avals: Sequence[ShapedArray],
        promised: Sequence[ShapedArray],
        params: dict,
    ) -> list:
        out = rule(LoweringRuleContext(prim, avals, promised), *values, **params)
        return [
            x.result if isinstance(x, hlo.StablehloOperation) else x for x in tree.tree_leaves(out)
        ]

    return expand


def lower_fun(fun: Callable, multiple_results: bool = True) -> LoweringRule:
    """Return a lowering rule that computes `fun(*arrays, **params)`, in operations of `weft.numpy` and `weft.lax`."""

    def rule(ctx: LoweringRuleContext, *values: Any, **params: Any) -> list:
        out = fun(*values, **params)
        return tree.tree_leaves(out) if multiple_results else [out]

    return rule


def emit_python_callback(
    ctx: LoweringRuleContext,
    callback: Callable,
    token: Any,
    operands: Sequence,
    operand_avals: Sequence[ShapedArray],
    result_avals: Sequence[ShapedArray],
    *,
    has_side_effect: bool,
    returns_token: bool = True,
    partitioned: bool = False,
    sharding: Any = None,
) -> tuple[list, Any, Any]:
    """Call `callback(*numpy_arrays)`, which returns one array for each result, when the program runs. Return the results,
    the token and None.

    With `has_side_effect` it is called exactly once, otherwise any number of times. `partitioned` calls are not
    supported: the callback receives global arrays.
    """
    if partitioned:
        raise NotImplementedError(
            "emit_python_callback: partitioned=True is not supported; weft.debug.callback has it."
        )
    structs = [ShapeDtypeStruct(a.shape, a.dtype) for a in result_avals]
    host = lambda *xs: [
        np.asarray(y, s.dtype) for y, s in zip(callback(*map(np.asarray, xs)), structs)
    ]
    call = io_callback if has_side_effect else pure_callback
    return list(call(host, structs, *operands)), token, None


def ir_constant(val: Any, *, const_lowering: Any = None, aval: Any = None) -> Any:
    """Return a constant as an operand of other rules."""
    return val


def ir_constants(val: Any, *, const_lowering: Any = None, aval: Any = None) -> tuple:
    """Return a constant as a tuple of operands of other rules."""
    return (val,)


def jaxpr_subcomp(
    ctx: Any,
    jaxpr: OpenJaxpr,
    name_stack: Any,
    tokens: TokenSet,
    consts_for_constvars: Sequence,
    *args: Any,
    dim_var_values: Sequence = (),
    const_lowering: Any = None,
    outer_traceback: Any = None,
) -> tuple[list, TokenSet]:
    """Return the results of a program applied to values of its constants and inputs, and the tokens."""
    return evaluate(jaxpr.closed(list(consts_for_constvars)), *args), tokens


def core_call_lowering(
    ctx: LoweringRuleContext,
    *args: Any,
    name: str,
    call_jaxpr: Jaxpr | OpenJaxpr,
    backend: Any = None,
) -> list:
    """Lower a primitive that calls the program in its parameter `call_jaxpr`."""
    return evaluate(
        call_jaxpr.closed([]) if isinstance(call_jaxpr, OpenJaxpr) else call_jaxpr, *args
    )


#: effects that compiled programs may have; weft compiles programs with any effect
lowerable_effects = EffectTypeSet()

#: kinds of host-device exchanges, by the numbers of XLA's channels
DEVICE_TO_DEVICE_TYPE, SEND_TO_HOST_TYPE, RECV_FROM_HOST_TYPE = 1, 2, 3
