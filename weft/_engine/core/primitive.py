"""Primitives: an operation and its rules, in one object.

A primitive's slots are filled where the op is stated (`ops/*`, `control/*`), by decorator or by a family's defaults:

  type        fn(*avals, **params) -> aval (a tuple of them if `multiple_results`); raises ShapeError and the like
  reference   fn(*numpy_arrays, **params) -> numpy array(s): the meaning, slow
  jvp         fn(primals, tangents, **params) -> (primal_out, tangent_out); tangents may be `Zero`
  transpose   fn(ct, *args, **params) -> one cotangent (or None) per arg; linear args come as `UndefPrimal`, ct may be a list of
              cotangents (each maybe `Zero`) if `multiple_results`
  batch       fn(axis, args, dims, **params) -> (out, out_dim), or (outs, out_dims); `axis` is a BatchAxis, dims are int | None
  factors     fn(in_avals, out_avals, **params) -> FactorRule
  lower       meaning for the compiler, by kind; see `ops.families` and `compiler.lowering.lower`

Some ops have more, `OPTIONAL_SLOTS`:

  partial_eval, partial_eval_eqn, partial_eval_saveable, saved_inside, dce, guard, in_avals   transformations of ops that hold jaxprs
              (`control`)
  in_place    fn(eqn) -> the program whose equations take the place of a call, where that is not the one it holds
  links       fn(eqn) -> groups of values inside and outside that are one value or of one layout, each with its number of
              leading loop dims: of ops that hold jaxprs
  localize    fn(params, in_avals, out_avals) -> params for operands and results of local shapes, where params carry sizes
  lockstep    fn(devices, operands, **params) -> results: how the reference backend runs all devices at once, one list of values
              per device (`core.interpret.lockstep_rule`)
  split       an `ops.split_rule.SplitRule`: how it runs when a special factor is split
  collective  the `ir.collective_spec.CollectiveSpec` of a collective; `several` is how it works over several axes at once

A slot may hold `unsupported("why")`, which raises MissingRuleError when asked for. `kind` is what passes dispatch on:
elementwise layout slice index reduce contract conv ragged sort scan scatter random collective region library constraint callback custom
(a function that partitions itself); terms (of a sum, which devices hold); exchange (a collective between processes); and extension for
those that libraries define (`core.extension`), which programs that are compiled hold no more.

Within a kind they ask for facts of the operation, given to the constructor and kept in `attrs`:

  computes       elementwise: the operation of Loops that makes an element, or "select", "cast", "bitcast", "square", "copy"
  jumps          elementwise without `computes`: close operands may have results that are not close
  neutral        elementwise: the second operand that leaves the first as it is, to the bit; the other way round if it `commutes`
  is_involution  elementwise: applied twice it gives its operand
  same_as        elementwise: fn(**params) -> the name and the parameters of a simpler operation that does the same, or None
  cost           elementwise: of one element, in simple vector instructions, where it is more than one
  compiled       library: fn(eqn) -> a function that gives its results in compiled programs, or None where that is the library's
  on_complex     elementwise: the function of `ops.complex_functions` that composes it for complex numbers from other operations
  moves          layout, slice: "permute", "reshape" (the order of elements stays), "repeat", "pad", "concatenate", "iota"
  takes_slice    slice, index: the result is a part of the first operand, whose dims have the same order
  overwrites     index: the result is the first operand, but for a window
  casts          collective, elementwise: the result is the operand, under another type or with something said of it
  per_device     region: its program is that of one device, on blocks (shard_map)
  batched_always extension, region: its batching rule is asked for values that are not mapped, too
  asks_layout    callback: it gets the layout of its operand as a parameter, and runs when the program is compiled
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from weft._engine.ir.registry import registry
from weft._engine.util.config import api_version
from weft._engine.util.errors import MissingRuleError
from weft._engine.util.record import record

SLOTS = ("type", "reference", "jvp", "transpose", "batch", "factors", "lower")
OPTIONAL_SLOTS = (
    "partial_eval",
    "partial_eval_eqn",
    "partial_eval_saveable",
    "saved_inside",
    "dce",
    "guard",
    "in_avals",
    "in_place",
    "links",
    "localize",
    "split",
    "collective",
    "several",
    "lockstep",
)


@record
class Unsupported:
    """Fills a slot on purpose: the rule does not exist, and `reason` says why."""

    reason: str


def unsupported(reason: str) -> Unsupported:
    return Unsupported(reason)


@record
class BatchAxis:
    """The axis that `vmap` (or the stacking of mesh axes: then it is `of_mesh`) adds: its size, its name or None, the
    explicit mesh axes that split it, and those over which the user asks to spread it."""

    size: int
    name: Any = None
    splits: tuple = ()
    of_mesh: bool = False
    spread: tuple = ()

    @property
    def spmd_name(self) -> Any:
        """The mesh axes to spread over, as JAX's rules know them."""
        return self.spread[0] if len(self.spread) == 1 else self.spread or None

    @property
    def explicit_mesh_axis(self) -> Any:
        """The explicit mesh axes that split the axis, as JAX's rules know them."""
        return self.splits or None


def _definer(slot: str) -> Callable:
    """The decorator method that fills `slot`."""

    def def_slot(self, fn):
        self.rules[slot] = fn
        return fn

    def_slot.__name__ = f"def_{slot}"
    def_slot.__doc__ = f"Decorator: fill the `{slot}` slot."
    return def_slot


class Primitive:
    """An operation. `bind` applies it under the current trace."""

    __slots__ = (
        "name",
        "kind",
        "multiple_results",
        "rules",
        "attrs",
        "ref_effects",
        "_family",
        "__weakref__",
    )
    #: what libraries ask of a primitive before they bind it: whether its first argument is a function
    call_primitive = map_primitive = False

    def __init__(
        self,
        name: str,
        kind: str,
        multiple_results: bool = False,
        register: bool = True,
        family: tuple | None = None,
        **attrs,
    ):
        """`family` is (fn, *facts): `fn(self, to, *facts)` fills the slots, those of `to`, when one is first asked for: most never are."""
        self.name = name
        self.kind = kind
        self.multiple_results = multiple_results
        self._family = family
        if family is None:
            self.rules: dict[str, Any] = {}
        self.attrs = attrs
        self.ref_effects: Callable | None = None  # params -> frozenset of effect names
        if register:
            if name in registry:
                raise ValueError(f"primitive {name!r} is already defined")
            registry[name] = self

    def __getattr__(self, name: str) -> Any:
        """The slots, before they are there."""
        if name != "rules":
            raise AttributeError(f"primitive {self.name!r} has no attribute {name!r}")
        made = Primitive(self.name, self.kind, register=False)
        self._family[0](self, made, *self._family[1:])
        self.rules = made.rules
        return self.rules

    def sources(self) -> Iterator[str]:
        """The modules of its rules, or of the function that will fill them."""
        try:
            rules = Primitive.rules.__get__(self)
        except AttributeError:
            return iter([self._family[0].__module__])
        return (rule.__module__ for rule in rules.values())

    def bind(self, *args, **params):
        """Apply to values under the current trace; gives a value, or a list of values if `multiple_results`."""
        return _state.trace.process(self, args, params)

    def bind_with_trace(self, trace, args, params):
        """Apply under `trace`, as `bind` does under the current one."""
        return trace.process(self, args, params)

    @property
    def impl(self) -> Callable:
        """What computes the operation on values, where nothing is traced: `impl(*values, **params)`.

        >>> registry["sin"].impl(wnp.float32(0.0))
        Array(0., dtype=float32)
        """
        return implementation(self)

    def def_impl(self, impl: Callable) -> Callable:
        """Decorator: replace `impl`. Programs that are compiled compute what they did before."""
        implement(self, impl)
        return impl

    def get_bind_params(self, params: dict) -> tuple[list, dict] | dict:
        """What to bind an equation again with: functions that come before the operands, and parameters. Where `weft.config.jax_api` is
        0.9.2 or newer the functions, if there are any, are the parameter `subfuns` of one dict.

        >>> registry["sin"].get_bind_params({})
        ([], {})
        """
        functions, rest = self.functions_apart(params)
        if api_version() < (0, 9, 2):
            return functions, rest
        return {**rest, "subfuns": tuple(functions)} if functions else rest

    def functions_apart(self, params: dict) -> tuple[list, dict]:
        """The functions that an equation was bound with, and its other parameters."""
        return [], dict(params)

    def effects_of(self, params: dict, avals) -> frozenset:
        """The effects of an application to operands of these types."""
        return frozenset() if self.ref_effects is None else self.ref_effects(params)

    def rule(self, slot: str) -> Callable:
        """The function in `slot`, or MissingRuleError that says why there is none."""
        found = self.rules.get(slot)
        if callable(found):
            return found
        reason = found.reason if isinstance(found, Unsupported) else "no rule was given"
        raise MissingRuleError(f"{slot}: primitive {self.name!r} has no {slot} rule: {reason}.")

    def has(self, slot: str) -> bool:
        return callable(self.rules.get(slot))

    def abstract(self, avals, params):
        """Output types, always as a tuple."""
        out = self.rules["type"](*avals, **params)
        return tuple(out) if self.multiple_results else (out,)

    def define(self, **slots) -> "Primitive":
        """Fill several slots at once."""
        self.rules.update(slots)
        return self

    def_type = _definer("type")
    def_reference = _definer("reference")
    def_jvp = _definer("jvp")
    def_transpose = _definer("transpose")
    def_batch = _definer("batch")
    def_factors = _definer("factors")
    def_lower = _definer("lower")
    def_partial_eval = _definer("partial_eval")
    def_dce = _definer("dce")

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self):
        return _lookup, (self.name,)


def _lookup(name: str) -> Primitive:
    return registry[name]


from weft._engine.core.trace import _state, implement, implementation  # noqa: E402  (bind is the hottest line of tracing: no indirection)
