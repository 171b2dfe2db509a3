"""Primitives: an operation, its attributes and its rules, in one object.

In:   a name and the attributes of a family; then rules, which the op's own module defines (`ops`, `control`).
Out:  `bind`, which applies the op under the current trace; attributes and rules, which traces and passes read.
Laws: passes dispatch on the class of a primitive, one class per family, and on declared attributes, never on names. Attributes
      that passes read for any op are declared on `Primitive`, others on the family's class. Programs passed to the compiler
      contain no primitives of libraries (`core.extension`).
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


class UnsupportedRule:
    """A placeholder for a rule that an op intentionally lacks, for `reason`. A call raises MissingRuleError."""

    __slots__ = ("op", "reason", "slot")

    def __init__(self, reason: str, op: str = "", slot: str = ""):
        self.reason, self.op, self.slot = reason, op, slot

    def __set_name__(self, owner: type, name: str) -> None:
        self.slot = name

    def __get__(self, op: Any, owner: Any = None) -> UnsupportedRule:
        """Return the placeholder with the name of `op`, for a class attribute read through an instance."""
        return self if op is None else UnsupportedRule(self.reason, op.name, self.slot)

    def __call__(self, *_args: Any, **_params: Any) -> NoReturn:
        slot = self.slot
        raise MissingRuleError(f"{slot}: primitive {self.op!r} has no {slot} rule: {self.reason}.")


def declare_unsupported(reason: str) -> UnsupportedRule:
    """Return a placeholder for a rule that an op intentionally lacks."""
    return UnsupportedRule(reason)


@record
class BatchAxis:
    """The axis that batching adds to values.

    size            the size of the axis
    name            `axis_name` of vmap, or None
    explicit_axes   the explicit mesh axes that shard it
    of_mesh         whether it is a mesh axis that the compiler stacks, not an axis of vmap
    spmd_axes       `spmd_axis_name` of vmap: the mesh axes over which to shard it
    """

    size: int
    name: Any = None
    explicit_axes: tuple[Any, ...] = ()
    of_mesh: bool = False
    spmd_axes: tuple[Any, ...] = ()

    @property
    def spmd_name(self) -> Any:
        """`spmd_axes` in the form that batching rules written for JAX expect: one name, a tuple of names, or None."""
        return self.spmd_axes[0] if len(self.spmd_axes) == 1 else self.spmd_axes or None

    @property
    def explicit_mesh_axis(self) -> Any:
        """`explicit_axes` in the form that batching rules written for JAX expect: a tuple of names, or None."""
        return self.explicit_axes or None


class OpRules:
    """The rules of an op. A required rule that is absent is `UnsupportedRule`; an optional one is None."""

    #: (*avals, **params) -> aval, or a list of avals if `multiple_results`; raises ShapeError and similar errors
    type: Callable[..., Any]
    #: (*numpy_arrays, **params) -> numpy array(s): the definition of the op's values, without regard to speed
    reference: Callable[..., Any]
    #: (primals, tangents, **params) -> (primal_out, tangent_out); tangents may be `Zero`
    jvp: Callable[..., tuple[Any, Any]]
    #: (ct, *args, **params) -> one cotangent (or None) per argument; linear arguments are `UndefPrimal`. If `multiple_results`,
    #: `ct` is a list of cotangents; some may be `Zero`
    transpose: Callable[..., Sequence[Any]]
    #: (axis: BatchAxis, args, dims, **params) -> (out, out_dim) or (outs, out_dims); a dim is an int or None
    batch: Callable[..., tuple[Any, Any]]
    #: (in_avals, out_avals, **params) -> the FactorRule
    factors: Callable[..., FactorRule]
    #: the lowering: a function of element positions, or a record of `ops.lowering_specs`; its type depends on the family
    lower: Any

    # The next seven rules are for ops with inner programs (`control`).
    #: (trace, args, params) -> results
    partial_eval: Callable[..., Any] | None
    #: (eqn, unknown) -> known equations, unknown equation, unknown variables
    partial_eval_eqn: Callable[..., Any] | None
    #: `partial_eval_eqn` under a policy
    partial_eval_saveable: Callable[..., Any] | None
    #: params -> whether residuals may be saved inside
    saved_inside: Callable[..., Any] | None
    #: (eqn, used) -> the equation without unused results
    dce: Callable[..., Any] | None
    #: (on, operands, params) -> results, which are zeros if `on` is false
    guard: Callable[..., Any] | None
    #: params -> types of the inner program's inputs
    in_avals: Callable[..., Any] | None
    #: eqn -> the program to inline for a call, if it is not params["jaxpr"]
    in_place: Callable[[Any], Any] | None
    #: eqn -> groups of inner and outer values that are equal or share a sharding, each with its number of leading loop dims
    links: Callable[[Any], Any] | None
    #: (params, in_avals, out_avals) -> params for operands and results of local shapes; only for params that contain sizes
    localize: Callable[..., dict[str, Any]] | None
    #: the `ir.collective_spec.CollectiveSpec` of a collective
    collective: Any
    #: (*args, **params) -> results: express a collective over several mesh axes by other operations
    several: Callable[..., Any] | None
    #: (devices, operands, **params) -> results: run the op on all devices at once in the reference backend; operands and results
    #: are lists of one value per device (`core.interpret.lockstep_rule`)
    lockstep: Callable[..., Any] | None


SLOTS = ("type", "reference", "jvp", "transpose", "batch", "factors", "lower")
OPTIONAL_SLOTS = tuple(slot for slot in OpRules.__annotations__ if slot not in SLOTS)
_SLOTS = frozenset(OpRules.__annotations__)
R = TypeVar("R")


def has_rule(rule: Callable[..., Any] | None) -> bool:
    """Return whether a rule of an op exists."""
    return callable(rule) and not isinstance(rule, UnsupportedRule)


@dataclass_transform(eq_default=False)
class _PrimitiveBase(OpRules):
    """The constructor of primitives. Keyword arguments set attributes that the class declares."""

    def __init__(
        self,
        name: str,
        multiple_results: bool = False,
        register: bool = True,
        make_rules: Callable[..., dict[str, Any]] | None = None,
        **attributes: Any,
    ):
        for attribute in attributes:
            if not hasattr(type(self), attribute):
                raise TypeError(f"{type(self).__name__}: {attribute!r} is not a declared attribute")
        self.__dict__.update(attributes)
        self.name, self.multiple_results, self.make_rules = name, multiple_results, make_rules
        if register:
            if name in registry:
                raise ValueError(f"primitive {name!r} is already defined")
            registry[name] = self


class Primitive(_PrimitiveBase):
    """An operation. `bind` applies it under the current trace."""

    name: str
    multiple_results: bool = False
    #: whether `registry` contains the primitive
    register: bool = True
    #: returns the rules when one is first read; in most processes most ops are never used
    make_rules: Callable[..., dict[str, Any]] | None = None

    #: the operation of the Loops IR that computes an element, or "select", "cast", "bitcast", "square", "copy"
    computes: str | None = None
    #: the movement of elements; "reshape" keeps their order
    moves: Literal["permute", "reshape", "repeat", "pad", "concatenate", "iota"] | None = None
    #: the result is a part of the first operand, with dims in the same order
    takes_slice: bool = False
    #: the result is the first operand except for a window
    overwrites: bool = False
    #: the result is the operand with another type or annotation
    casts: bool = False
    #: the inner program is the program of one device, on shards (shard_map)
    per_device: bool = False
    #: params["sharding"] is the sharding of the result
    is_constraint: ClassVar[bool] = False
    #: calls the program params["jaxpr"]
    is_call: bool = False
    #: parameters of a call that are read only by differentiation and other transformations
    only_derivatives: tuple[str, ...] = ()
    #: an op on user-defined high-level types (`HiType`) that expands into ops on arrays
    is_high: bool = False
    #: the batching rule also applies to values that are not mapped
    batched_always: bool = False
    #: results are never rounded
    is_exact: bool = True
    #: results are elements of operands up to a sign, so the op creates no NaNs
    passes_nans: bool = False
    #: parameters that the types of the results imply
    implied: tuple[str, ...] = ()
    #: the argument with which a user chooses the sharding of the result, with `{}` in place of the spec
    out_sharding: str = ""
    #: simple vector instructions per element; 0 if the family determines the number
    cost: int = 0
    #: number of function arguments before the operands when an equation is bound again (`split_functions`)
    n_functions: int = 0
    #: along marked factors, results are sharded like the operands
    shards_like_operands: bool = False
    #: params -> names of effects
    ref_effects: Callable[[dict[str, Any]], frozenset[Any]] | None = None

    #: the name of the family in printed texts
    kind: ClassVar[str] = "custom"
    # Libraries read these two: whether the first argument of `bind` is a function.
    call_primitive: ClassVar[bool] = False
    map_primitive: ClassVar[bool] = False

    def __getattr__(self, name: str) -> Any:
        """Return the rule `name`, and store it as an attribute, when it is first read."""
        if name not in _SLOTS:
            raise AttributeError(f"primitive {self.name!r} has no attribute {name!r}")
        if (make_rules := self.make_rules) is not None:
            for slot, rule in make_rules(self).items():
                self.__dict__.setdefault(slot, self._bind_rule(slot, rule))
            self.make_rules = None
            return getattr(self, name)
        return self.__dict__.setdefault(name, self.missing_rule(name))

    def missing_rule(self, slot: str) -> UnsupportedRule | None:
        """Return the value of an absent rule: an `UnsupportedRule` for required rules, None for optional ones."""
        return UnsupportedRule("no rule was given", self.name, slot) if slot in SLOTS else None

    def _bind_rule(self, slot: str, rule: Any) -> Any:
        return (
            UnsupportedRule(rule.reason, self.name, slot)
            if isinstance(rule, UnsupportedRule)
            else rule
        )

    def rule_modules(self) -> Iterator[str]:
        """Return the modules that define the rules, or the module of `make_rules` if the rules have not been read."""
        if self.make_rules is not None:
            return iter([getattr(self.make_rules, "func", self.make_rules).__module__])
        rules = (self.__dict__.get(s) or getattr(type(self), s, None) for s in _SLOTS)
        return (rule.__module__ for rule in rules if rule is not None)

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply the op under the current trace. Return a value, or a list of values if `multiple_results`."""
        return trace_state.trace.process(self, args, params)

    def bind_with_trace(self, trace: Trace, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Apply the op under `trace` instead of the current trace."""
        return trace.process(self, args, params)

    @property
    def impl(self) -> Callable[..., Any]:
        """The function `impl(*values, **params)` that computes the operation on concrete values.

        >>> registry["sin"].impl(wnp.float32(0.0))
        Array(0., dtype=float32)
        """
        return get_implementation(self)

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: replace `impl`. Compiled programs do not use it."""
        set_implementation(self, impl)
        return impl

    def get_bind_params(
        self, params: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]] | dict[str, Any]:
        """Return the arguments with which to bind an equation again: functions before the operands, and parameters.

        If `weft.config.jax_api` is 0.9.2 or newer, return one dict, with the functions, if any, under the key `subfuns`.

        >>> registry["sin"].get_bind_params({})
        ([], {})
        """
        functions, other_params = self.split_functions(params)
        if not jax_behavior().functions_in_bind_params:
            return functions, other_params
        return {**other_params, "subfuns": tuple(functions)} if functions else other_params

    def split_functions(self, params: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Split the parameters of an equation into the functions that `bind` takes before the operands and the other parameters."""
        return [], dict(params)

    def effects_of(self, params: dict[str, Any], avals: Sequence[ShapedArray]) -> frozenset[Any]:
        """Return the effects of an application to operands of these types."""
        return frozenset() if self.ref_effects is None else self.ref_effects(params)

    def abstract(
        self, avals: Sequence[ShapedArray], params: dict[str, Any]
    ) -> tuple[ShapedArray, ...]:
        """Return the types of the results, as a tuple also if there is one result."""
        out = self.type(*avals, **params)
        return tuple(out) if self.multiple_results else (out,)

    def define(self, **rules: Any) -> Self:
        """Set the given rules and keep the others."""
        for slot, rule in rules.items():
            if slot not in _SLOTS:
                raise TypeError(f"primitive {self.name!r}: {slot!r} is not a rule")
            self.__dict__[slot] = self._bind_rule(slot, rule)
        return self

    def def_type(self, rule: R) -> R:
        """Decorator: set the rule `type`."""
        self.define(type=rule)
        return rule

    def def_reference(self, rule: R) -> R:
        """Decorator: set the rule `reference`."""
        self.define(reference=rule)
        return rule

    def def_jvp(self, rule: R) -> R:
        """Decorator: set the rule `jvp`."""
        self.define(jvp=rule)
        return rule

    def def_transpose(self, rule: R) -> R:
        """Decorator: set the rule `transpose`."""
        self.define(transpose=rule)
        return rule

    def def_batch(self, rule: R) -> R:
        """Decorator: set the rule `batch`."""
        self.define(batch=rule)
        return rule

    def def_factors(self, rule: R) -> R:
        """Decorator: set the rule `factors`."""
        self.define(factors=rule)
        return rule

    def def_lower(self, rule: R) -> R:
        """Decorator: set the rule `lower`."""
        self.define(lower=rule)
        return rule

    def def_partial_eval(self, rule: R) -> R:
        """Decorator: set the rule `partial_eval`."""
        self.define(partial_eval=rule)
        return rule

    def def_dce(self, rule: R) -> R:
        """Decorator: set the rule `dce`."""
        self.define(dce=rule)
        return rule

    def def_localize(self, rule: R) -> R:
        """Decorator: set the rule `localize`."""
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
    """Computes each element of the result from the elements of the operands at the same position."""

    kind = "elementwise"
    is_exact: bool = False
    #: the op is discontinuous: close operands may have distant results (an op without `computes`)
    is_discontinuous: bool = False
    #: a second operand that makes the result bit-identical to the first operand; works on either side if the op `commutes`
    neutral: float | None = None
    commutes: bool = False
    #: the op is its own inverse
    is_involution: bool = False
    #: params -> the name and the parameters of a simpler, equivalent op, or None
    same_as: Callable[..., tuple[str, dict[str, Any]] | None] | None = None
    #: the function of `ops.complex_functions` that expresses the op on complex numbers by real ops
    on_complex: str = ""
    #: the op attaches the metadata params["xla_metadata_kvs"] to the op that computes its operand
    tags: bool = False


class MovementOp(Primitive):
    """Moves elements and computes nothing."""


class LayoutOp(MovementOp):
    """Rearranges or repeats the elements of one operand, or numbers positions."""

    kind = "layout"
    #: the op converts between random keys and the integer arrays that represent them
    converts_keys: bool = False


class SliceOp(MovementOp):
    """Slices, pads or concatenates at static positions."""

    kind = "slice"


class IndexOp(Primitive):
    """Reads or overwrites elements at positions that are computed at run time."""

    kind = "index"


class ReduceOp(Primitive):
    """Reduces over the dims `params["axes"]`."""

    kind = "reduce"
    is_exact: bool = False


class ProductOp(Primitive):
    """Sums products of elements of two operands."""

    is_exact: bool = False


class ContractOp(ProductOp):
    """Contracts two operands by `params["dimension_numbers"]`, as `dot_general` does."""

    kind = "contract"


class ConvolutionOp(ProductOp):
    """Convolves two operands."""

    kind = "conv"


class RaggedOp(ProductOp):
    """Contracts two operands in groups of rows, as `ragged_dot` does."""

    kind = "ragged"


class SortOp(Primitive):
    """Sorts elements, or computes whole rows sequentially."""

    kind = "sort"


class ScanOp(Primitive):
    """Computes a cumulative reduction along one dim."""

    kind = "scan"
    is_exact: bool = False


class ScatterOp(Primitive):
    """Combines updates into an operand at positions that are computed at run time."""

    kind = "scatter"
    is_exact: bool = False


class CollectiveOp(Primitive):
    """Communicates over mesh axes."""

    kind = "collective"
    is_exact: bool = False
    #: the collective for one value that this one applies to several values at once
    combines: Primitive | None = None


class RegionOp(Primitive):
    """An op with inner programs in its parameters."""

    kind = "region"


class CallLike(RegionOp):
    """Calls the program `params["jaxpr"]` once."""

    is_call = True


class LoopLike(RegionOp):
    """Repeats a program. The first results are the carried values."""

    #: the name of the parameter with the program of one iteration
    body: str = "jaxpr"
    #: the name of the parameter with the number of loop-invariant operands
    constants: str = "num_consts"
    #: the name of the parameter with the number of operands of the condition, which precede the loop-invariant ones
    cond_constants: str | None = None
    #: the name of the parameter with the number of carried values; None if all results of an iteration are carried
    carried: str | None = None
    #: the loop has `params["length"]` iterations, and it may slice inputs and stack outputs, as `scan` does
    counted: bool = False

    def first_constant(self, params: dict[str, Any]) -> int:
        """Return the position of the first loop-invariant operand."""
        return params[self.cond_constants] if self.cond_constants else 0

    def first_carried(self, params: dict[str, Any]) -> int:
        """Return the position of the first carried operand."""
        return self.first_constant(params) + params[self.constants]

    def carried_count(self, params: dict[str, Any]) -> int:
        """Return the number of carried values."""
        return params[self.carried] if self.carried else len(params[self.body].outvars)


class BranchLike(RegionOp):
    """Runs one of the programs `params["branches"]` on the other operands; the first operand is its index."""


class LibraryOp(Primitive):
    """Calls a routine of a host library such as LAPACK, or compiled code for it."""

    kind = "library"
    is_exact: bool = False
    #: the results are mathematically unique, without a free sign or order
    is_unique: bool = True
    #: eqn -> a function that computes the results in compiled programs, or None to call the library
    compiled: Callable[..., Callable[..., Any] | None] | None = None


class ConstraintOp(Primitive):
    """Constrains the sharding of its operand."""

    kind = "constraint"
    is_constraint = True
    #: the op adds no constraint if the type of its result has an explicit sharding
    leaves_auto: bool = False


class CallbackOp(Primitive):
    """Calls a Python function on the host."""

    kind = "callback"
    #: the callback takes the sharding of the operand and runs during compilation
    inspects_sharding: bool = False


class CustomOp(Primitive):
    """Calls a function with a user-defined partitioning (`custom_partitioning`)."""


class PartialTermsOp(Primitive):
    """Returns the terms of a partial sum along a new first dim, one entry per device."""

    kind = "terms"


class ExchangeOp(Primitive):
    """Communicates between processes, as the process part of a collective."""

    kind = "exchange"


class BarrierOp(Primitive):
    """Prevents optimizations across it."""

    kind = "barrier"


from weft._engine.core.trace import get_implementation, set_implementation, trace_state  # noqa: E402  (bind is the hottest line of tracing: no indirection)
