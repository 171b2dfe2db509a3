"""Primitives: an operation, its attributes and its rules, in one object.

In:   a name and the attributes of a family, then rules, stated where the op is (`ops`, `control`).
Out:  `bind`, which applies the op under the current trace; attributes and rules, which traces and passes read.
Laws: passes dispatch on the class of a primitive, one per family, and on declared attributes, never on names. An attribute that
      passes read of any op stands on `Primitive`, others on the family. Programs that are compiled hold no op of a library.
Next: `OpRules`, the rules of an op; `core.pass_rules`, the rules that a pass adds to ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NoReturn,
    Self,
    TypeVar,
    dataclass_transform,
)

from weft._engine.ir.factors import FactorRule
from weft._engine.ir.registry import registry
from weft._engine.ir.types import ShapedArray
from weft._engine.util.errors import MissingRuleError
from weft._engine.util.jax_versions import jax_behavior
from weft._engine.util.record import record

if TYPE_CHECKING:
    from weft._engine.core.trace import Trace


class Unsupported:
    """A rule that does not exist on purpose, for `reason`. A call raises MissingRuleError."""

    __slots__ = ("op", "reason", "slot")

    def __init__(self, reason: str, op: str = "", slot: str = ""):
        self.reason, self.op, self.slot = reason, op, slot

    def __set_name__(self, owner: type, name: str) -> None:
        self.slot = name

    def __get__(self, op: Any, owner: Any = None) -> Unsupported:
        """The rule of an op whose class states it."""
        return self if op is None else Unsupported(self.reason, op.name, self.slot)

    def __call__(self, *_args: Any, **_params: Any) -> NoReturn:
        slot = self.slot
        raise MissingRuleError(f"{slot}: primitive {self.op!r} has no {slot} rule: {self.reason}.")


def unsupported(reason: str) -> Unsupported:
    return Unsupported(reason)


@record
class BatchAxis:
    """The axis that `vmap` (or the stacking of mesh axes: then it is `of_mesh`) adds: its size, its name or None, the
    explicit mesh axes that split it, and those over which the user asks to spread it."""

    size: int
    name: Any = None
    splits: tuple[Any, ...] = ()
    of_mesh: bool = False
    spread: tuple[Any, ...] = ()

    @property
    def spmd_name(self) -> Any:
        """The mesh axes to spread over, as JAX's rules know them."""
        return self.spread[0] if len(self.spread) == 1 else self.spread or None

    @property
    def explicit_mesh_axis(self) -> Any:
        """The explicit mesh axes that split the axis, as JAX's rules know them."""
        return self.splits or None


class OpRules:
    """The rules of an op. A required rule that is absent is `Unsupported`; an optional one is None."""

    #: (*avals, **params) -> aval, or a list of them if `multiple_results`; raises ShapeError and the like
    type: Callable[..., Any]
    #: (*numpy_arrays, **params) -> numpy array(s): the meaning, slow
    reference: Callable[..., Any]
    #: (primals, tangents, **params) -> (primal_out, tangent_out); tangents may be `Zero`
    jvp: Callable[..., tuple[Any, Any]]
    #: (ct, *args, **params) -> one cotangent (or None) per argument; linear arguments come as `UndefPrimal`, and `ct` is a list
    #: of cotangents, each perhaps `Zero`, if `multiple_results`
    transpose: Callable[..., Sequence[Any]]
    #: (axis: BatchAxis, args, dims, **params) -> (out, out_dim) or (outs, out_dims); a dim is an int or None
    batch: Callable[..., tuple[Any, Any]]
    #: (in_avals, out_avals, **params) -> the FactorRule
    factors: Callable[..., FactorRule]
    #: the lowering: a function of positions, or one of `ops.lowering_specs`; its type depends on the family
    lower: Any

    #: (trace, args, params) -> results, for ops that hold programs, as the next six are (`control`)
    partial_eval: Callable[..., Any] | None
    #: (eqn, unknown) -> known equations, unknown equation, unknown variables
    partial_eval_eqn: Callable[..., Any] | None
    #: `partial_eval_eqn` under a policy
    partial_eval_saveable: Callable[..., Any] | None
    #: params -> whether residuals may be saved inside
    saved_inside: Callable[..., Any] | None
    #: (eqn, used) -> the equation without unused results
    dce: Callable[..., Any] | None
    #: (on, operands, params) -> results, zeros unless `on`
    guard: Callable[..., Any] | None
    #: params -> types of the operands inside
    in_avals: Callable[..., Any] | None
    #: eqn -> the program whose equations replace a call, if it is not params["jaxpr"]
    in_place: Callable[[Any], Any] | None
    #: eqn -> groups of values inside and outside that are one value or share a layout, each with its number of leading loop dims
    links: Callable[[Any], Any] | None
    #: (params, in_avals, out_avals) -> params for operands and results of local shapes, where params carry sizes
    localize: Callable[..., dict[str, Any]] | None
    #: the `ir.collective_spec.CollectiveSpec` of a collective
    collective: Any
    #: a collective over several axes at once
    several: Callable[..., Any] | None
    #: (devices, operands, **params) -> results: how the reference backend runs all devices at once, with one list of values
    #: per device (`core.interpret.lockstep_rule`)
    lockstep: Callable[..., Any] | None


SLOTS = ("type", "reference", "jvp", "transpose", "batch", "factors", "lower")
OPTIONAL_SLOTS = tuple(slot for slot in OpRules.__annotations__ if slot not in SLOTS)
_SLOTS = frozenset(OpRules.__annotations__)
R = TypeVar("R")


def has_rule(rule: Callable[..., Any] | None) -> bool:
    """Whether a rule of an op exists."""
    return callable(rule) and not isinstance(rule, Unsupported)


@dataclass_transform(eq_default=False)
class _Declared(OpRules):
    """The constructor of primitives: keyword arguments set attributes that the class declares."""

    def __init__(
        self,
        name: str,
        multiple_results: bool = False,
        register: bool = True,
        fill: Callable[..., dict[str, Any]] | None = None,
        **attributes: Any,
    ):
        for attribute in attributes:
            if not hasattr(type(self), attribute):
                raise TypeError(f"{type(self).__name__}: {attribute!r} is not a declared attribute")
        self.__dict__.update(attributes)
        self.name, self.multiple_results, self.fill = name, multiple_results, fill
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
    #: gives the rules on first use of one; those of most ops are never used
    fill: Callable[..., dict[str, Any]] | None = None

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
    #: results are never rounded
    is_exact: bool = True
    #: results are elements of operands up to a sign, so that no NaN arises
    passes_nans: bool = False
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
    ref_effects: Callable[[dict[str, Any]], frozenset[Any]] | None = None

    #: the name of the family in texts
    kind: ClassVar[str] = "custom"
    #: whether the first argument of `bind` is a function; libraries read these
    call_primitive: ClassVar[bool] = False
    map_primitive: ClassVar[bool] = False

    def __getattr__(self, name: str) -> Any:
        """The rule `name` on first use."""
        if name not in _SLOTS:
            raise AttributeError(f"primitive {self.name!r} has no attribute {name!r}")
        if (fill := self.fill) is not None:
            for slot, rule in fill(self).items():
                self.__dict__.setdefault(slot, self._bound(slot, rule))
            self.fill = None
            return getattr(self, name)
        return self.__dict__.setdefault(name, self.missing_rule(name))

    def missing_rule(self, slot: str) -> Unsupported | None:
        """Stands for a rule that is absent."""
        return Unsupported("no rule was given", self.name, slot) if slot in SLOTS else None

    def _bound(self, slot: str, rule: Any) -> Any:
        return Unsupported(rule.reason, self.name, slot) if isinstance(rule, Unsupported) else rule

    def sources(self) -> Iterator[str]:
        """The modules of its rules, or of the function that gives them."""
        if self.fill is not None:
            return iter([getattr(self.fill, "func", self.fill).__module__])
        rules = (self.__dict__.get(s) or getattr(type(self), s, None) for s in _SLOTS)
        return (rule.__module__ for rule in rules if rule is not None)

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply to values under the current trace; gives a value, or a list of values if `multiple_results`."""
        return trace_state.trace.process(self, args, params)

    def bind_with_trace(self, trace: Trace, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Apply under `trace`, as `bind` does under the current one."""
        return trace.process(self, args, params)

    @property
    def impl(self) -> Callable[..., Any]:
        """What computes the operation on values, where nothing is traced: `impl(*values, **params)`.

        >>> registry["sin"].impl(wnp.float32(0.0))
        Array(0., dtype=float32)
        """
        return implementation(self)

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: replace `impl`. Programs that are compiled compute what they did before."""
        implement(self, impl)
        return impl

    def get_bind_params(
        self, params: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]] | dict[str, Any]:
        """What to bind an equation again with: functions that come before the operands, and parameters. Where `weft.config.jax_api` is
        0.9.2 or newer the functions, if there are any, are the parameter `subfuns` of one dict.

        >>> registry["sin"].get_bind_params({})
        ([], {})
        """
        functions, rest = self.functions_apart(params)
        if not jax_behavior().functions_in_bind_params:
            return functions, rest
        return {**rest, "subfuns": tuple(functions)} if functions else rest

    def functions_apart(self, params: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The functions that an equation was bound with, and its other parameters."""
        return [], dict(params)

    def effects_of(self, params: dict[str, Any], avals: Sequence[ShapedArray]) -> frozenset[Any]:
        """The effects of an application to operands of these types."""
        return frozenset() if self.ref_effects is None else self.ref_effects(params)

    def abstract(
        self, avals: Sequence[ShapedArray], params: dict[str, Any]
    ) -> tuple[ShapedArray, ...]:
        """Output types, always as a tuple."""
        out = self.type(*avals, **params)
        return tuple(out) if self.multiple_results else (out,)

    def define(self, **rules: Any) -> Self:
        """State several rules at once; the others stay."""
        for slot, rule in rules.items():
            if slot not in _SLOTS:
                raise TypeError(f"primitive {self.name!r}: {slot!r} is not a rule")
            self.__dict__[slot] = self._bound(slot, rule)
        return self

    def def_type(self, rule: R) -> R:
        """Decorator: state the type rule."""
        self.define(type=rule)
        return rule

    def def_reference(self, rule: R) -> R:
        """Decorator: state `reference`."""
        self.define(reference=rule)
        return rule

    def def_jvp(self, rule: R) -> R:
        """Decorator: state `jvp`."""
        self.define(jvp=rule)
        return rule

    def def_transpose(self, rule: R) -> R:
        """Decorator: state `transpose`."""
        self.define(transpose=rule)
        return rule

    def def_batch(self, rule: R) -> R:
        """Decorator: state `batch`."""
        self.define(batch=rule)
        return rule

    def def_factors(self, rule: R) -> R:
        """Decorator: state `factors`."""
        self.define(factors=rule)
        return rule

    def def_lower(self, rule: R) -> R:
        """Decorator: state `lower`."""
        self.define(lower=rule)
        return rule

    def def_partial_eval(self, rule: R) -> R:
        """Decorator: state `partial_eval`."""
        self.define(partial_eval=rule)
        return rule

    def def_dce(self, rule: R) -> R:
        """Decorator: state `dce`."""
        self.define(dce=rule)
        return rule

    def def_localize(self, rule: R) -> R:
        """Decorator: state `localize`."""
        self.define(localize=rule)
        return rule

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], Primitive], tuple[str]]:
        return _lookup, (self.name,)


def _lookup(name: str) -> Primitive:
    return registry[name]


# --- families ---------------------------------------------------------------------------------------------------------


class ElementwiseOp(Primitive):
    """Each element of the result from the elements of the operands at the same position."""

    kind = "elementwise"
    is_exact: bool = False
    #: close operands may have results that are not close (an op without `computes`)
    jumps: bool = False
    #: the second operand that leaves the first unchanged to the bit; also the first operand if the op `commutes`
    neutral: float | None = None
    commutes: bool = False
    #: applied twice it gives its operand
    is_involution: bool = False
    #: params -> the name and the parameters of a simpler op that does the same, or None
    same_as: Callable[..., tuple[str, dict[str, Any]] | None] | None = None
    #: the function of `ops.complex_functions` that composes the op on complex numbers
    on_complex: str = ""
    #: attaches metadata of params["xla_metadata_kvs"] to the op that computes the operand
    tags: bool = False


class MovementOp(Primitive):
    """Moves elements and computes nothing."""


class LayoutOp(MovementOp):
    """Rearranges or repeats the elements of one operand, or numbers positions."""

    kind = "layout"
    #: converts between keys and their rows of integers
    converts_keys: bool = False


class SliceOp(MovementOp):
    """Cuts out, pads or joins at positions that are fixed."""

    kind = "slice"


class IndexOp(Primitive):
    """Reads or overwrites at positions that are values."""

    kind = "index"


class ReduceOp(Primitive):
    """Reduces over the dims params["axes"]."""

    kind = "reduce"
    is_exact: bool = False


class ProductOp(Primitive):
    """Sums products of elements of two operands."""

    is_exact: bool = False


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
    is_exact: bool = False


class ScatterOp(Primitive):
    """Combines updates into an operand at positions that are values."""

    kind = "scatter"
    is_exact: bool = False


class CollectiveOp(Primitive):
    """Communicates over mesh axes."""

    kind = "collective"
    is_exact: bool = False
    #: the collective on one value that this one does to several at once
    combines: Primitive | None = None


class RegionOp(Primitive):
    """Holds programs in its parameters."""

    kind = "region"


class CallLike(RegionOp):
    """Calls the program params["jaxpr"] once."""

    is_call = True


class LoopLike(RegionOp):
    """Repeats a program. The results begin with the carried values."""

    #: the parameter that holds the program of an iteration
    body: str = "jaxpr"
    #: the parameter that counts the operands that are the same in all iterations
    constants: str = "num_consts"
    #: the parameter that counts the operands before those, which are the condition's
    before: str | None = None
    #: the parameter that counts the carried values; by default an iteration returns nothing else
    carried: str | None = None
    #: has params["length"], and slices and stacks besides what it carries
    counted: bool = False

    def first_constant(self, params: dict[str, Any]) -> int:
        """Return the position of the first operand that is the same in all iterations."""
        return params[self.before] if self.before else 0

    def first_carried(self, params: dict[str, Any]) -> int:
        """Return the position of the first carried value among the operands."""
        return self.first_constant(params) + params[self.constants]

    def carried_count(self, params: dict[str, Any]) -> int:
        """Return the number of carried values."""
        return params[self.carried] if self.carried else len(params[self.body].outvars)


class BranchLike(RegionOp):
    """Runs the one of params["branches"] whose number the first operand is, on the other operands."""


class LibraryOp(Primitive):
    """A routine of a library, on the host or compiled."""

    kind = "library"
    is_exact: bool = False
    #: the results have no free signs or order
    is_unique: bool = True
    #: eqn -> a function that computes its results in compiled programs, or None to run the library
    compiled: Callable[..., Callable[..., Any] | None] | None = None


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


from weft._engine.core.trace import implement, implementation, trace_state  # noqa: E402  (bind is the hottest line of tracing: no indirection)
