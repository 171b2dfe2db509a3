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

A slot may hold `unsupported("why")`, which raises MissingRuleError on use.

Passes dispatch on the class of a primitive, one per family, and on the attributes that the classes declare with their types. An
attribute that passes read of any op stands on `Primitive`, others on their family. The keyword arguments of a constructor set them.
Programs that are compiled hold no op of a library (`core.extension`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal, dataclass_transform

from weft._engine.ir.registry import registry
from weft._engine.util.errors import MissingRuleError
from weft._engine.util.jax_versions import jax_behavior
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


@dataclass_transform(eq_default=False)
class _Declared:
    """The constructor of primitives: keyword arguments set attributes that the class declares."""

    def __init__(
        self,
        name: str,
        multiple_results: bool = False,
        register: bool = True,
        family: tuple | None = None,
        **attributes: Any,
    ):
        for attribute in attributes:
            if not hasattr(type(self), attribute):
                raise TypeError(f"{type(self).__name__}: {attribute!r} is not a declared attribute")
        self.__dict__.update(attributes)
        self.name, self.multiple_results, self.family = name, multiple_results, family
        if family is None:
            self.rules = {}
        if register:
            if name in registry:
                raise ValueError(f"primitive {name!r} is already defined")
            registry[name] = self


class Primitive(_Declared):
    """An operation. `bind` applies it under the current trace."""

    name: str
    multiple_results: bool = False
    #: whether `registry` lists it
    register: bool = True
    #: (fn, *facts): `fn(self, to, *facts)` fills the slots, those of `to`, on first use of one; few are ever used
    family: tuple | None = None

    #: the operation of Loops that computes an element, or "select", "cast", "bitcast", "square", "copy"
    computes: str | None = None
    #: how elements move: the order of elements stays in "reshape"
    moves: Literal["permute", "reshape", "repeat", "pad", "concatenate", "iota"] | None = None
    #: the result is a part of the first operand, whose dims have the same order
    takes_slice: bool = False
    #: the result is the first operand except for a window
    overwrites: bool = False
    #: the result is the operand with another type or annotation
    casts: bool = False
    #: the inner program is that of one device, on blocks (shard_map)
    per_device: bool = False
    #: params["sharding"] is the sharding of the result
    is_constraint: ClassVar[bool] = False
    #: calls the program params["jaxpr"]
    is_call: bool = False
    #: parameters of a call that only its derivatives and other transformations read
    only_derivatives: tuple[str, ...] = ()
    #: the call has a form in simpler types, into which it expands
    is_high: bool = False
    #: the batching rule also applies to values that are not mapped
    batched_always: bool = False
    #: parameters that the types of the results imply
    implied: tuple[str, ...] = ()
    #: how a user chooses the sharding of the result, with a `{}` for the spec
    out_sharding: str = ""
    #: simple vector instructions per element; 0 if the family says it
    cost: int = 0
    #: functions that come before the operands when an equation is bound again (`functions_apart`)
    n_functions: int = 0
    #: results along marked factors are split as the operands are
    split_alike: bool = False
    #: params -> names of effects
    ref_effects: Callable[[dict], frozenset] | None = None

    #: the name of the family in texts
    kind: ClassVar[str] = "custom"
    rules: ClassVar[dict[str, Any]]
    #: whether the first argument of `bind` is a function; libraries read these
    call_primitive: ClassVar[bool] = False
    map_primitive: ClassVar[bool] = False

    def __getattr__(self, name: str) -> Any:
        """The slots, before they are there."""
        if name != "rules":
            raise AttributeError(f"primitive {self.name!r} has no attribute {name!r}")
        filled = Primitive(self.name, register=False)
        self.family[0](self, filled, *self.family[1:])
        self.rules = filled.rules
        return self.rules

    def sources(self) -> Iterator[str]:
        """The modules of its rules, or of the function that will fill them."""
        rules = self.__dict__.get("rules")
        if rules is None:
            return iter([self.family[0].__module__])
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
        if not jax_behavior().functions_in_bind_params:
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


# --- families ---------------------------------------------------------------------------------------------------------


class ElementwiseOp(Primitive):
    """Each element of the result from the elements of the operands at the same position."""

    kind = "elementwise"
    #: close operands may have results that are not close (an op without `computes`)
    jumps: bool = False
    #: the second operand that leaves the first unchanged to the bit; also the first operand if the op `commutes`
    neutral: float | None = None
    commutes: bool = False
    #: applied twice it gives its operand
    is_involution: bool = False
    #: params -> the name and the parameters of a simpler op that does the same, or None
    same_as: Callable[..., tuple[str, dict] | None] | None = None
    #: the function of `ops.complex_functions` that composes the op on complex numbers
    on_complex: str = ""
    #: attaches metadata of params["xla_metadata_kvs"] to the op that computes the operand
    tags: bool = False


class MovementOp(Primitive):
    """Moves elements and computes nothing."""


class LayoutOp(MovementOp):
    """Rearranges or repeats the elements of one operand, or numbers positions."""

    kind = "layout"


class SliceOp(MovementOp):
    """Cuts out, pads or joins at positions that are fixed."""

    kind = "slice"


class IndexOp(Primitive):
    """Reads or overwrites at positions that are values."""

    kind = "index"


class ReduceOp(Primitive):
    """Reduces over the dims params["axes"]."""

    kind = "reduce"


class ProductOp(Primitive):
    """Sums products of elements of two operands."""


class ContractOp(ProductOp):
    """A contraction by params["dimension_numbers"]."""

    kind = "contract"


class ConvolutionOp(ProductOp):
    """A convolution."""

    kind = "conv"


class RaggedOp(ProductOp):
    """A contraction in groups of rows."""

    kind = "ragged"


class SortOp(Primitive):
    """Orders elements, or computes whole rows in sequence."""

    kind = "sort"


class ScanOp(Primitive):
    """A running reduction along one dim."""

    kind = "scan"


class ScatterOp(Primitive):
    """Combines updates into an operand at positions that are values."""

    kind = "scatter"


class CollectiveOp(Primitive):
    """Communicates over mesh axes."""

    kind = "collective"
    #: the collective on one value that this one does to several at once
    combines: Primitive | None = None


class RegionOp(Primitive):
    """Holds programs in its parameters."""

    kind = "region"


class CallLike(RegionOp):
    """Calls the program params["jaxpr"] once."""

    is_call = True


class LibraryOp(Primitive):
    """A routine of a library, on the host or compiled."""

    kind = "library"
    #: eqn -> a function that computes its results in compiled programs, or None to run the library
    compiled: Callable[..., Callable | None] | None = None


class ConstraintOp(Primitive):
    """Constrains the sharding of its operand."""

    kind = "constraint"
    is_constraint = True
    #: needs no constraint inside the program if the type of its result is explicit
    leaves_auto: bool = False


class CallbackOp(Primitive):
    """Calls Python on the host."""

    kind = "callback"
    #: has the layout of its operand as a parameter and runs during compilation
    asks_layout: bool = False


class CustomOp(Primitive):
    """A function that partitions itself."""


class TermsOp(Primitive):
    """Marks the terms of a sum that devices hold."""

    kind = "terms"


class ExchangeOp(Primitive):
    """A collective between processes."""

    kind = "exchange"


class BarrierOp(Primitive):
    """Keeps optimizations from crossing it."""

    kind = "barrier"


from weft._engine.core.trace import _state, implement, implementation  # noqa: E402  (bind is the hottest line of tracing: no indirection)
