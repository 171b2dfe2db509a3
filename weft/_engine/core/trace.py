"""Traces and tracers: the interpretation of bound primitives.

Each thread has one *current trace*. `Primitive.bind` passes (primitive, args, params) to its `process` method. A transformation
creates its own `Trace` with a reference to the parent trace. Its `process` unwraps its own tracers, treats every other value as a
constant, and binds primitives under the parent (`with set_trace(parent)`). The outermost trace is `EvalTrace`, which computes.

Laws: a tracer belongs to exactly one trace. A trace never reads the contents of another trace's tracers. Use of a tracer after its
      trace has finished is a leak; the error names the line that created the tracer.
"""

from __future__ import annotations

import functools
import gc
import inspect
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, NoReturn, Self, SupportsIndex, final

import numpy as np

from weft._engine import hooks
from weft._engine.core.array_methods import ArrayMethods
from weft._engine.hooks import hi_types
from weft._engine.ir.registry import registry
from weft._engine.ir.symbolic import SymbolicDim
from weft._engine.ir.types import ManualAxisType, ShapedArray, check_number
from weft._engine.util import dtypes, errors
from weft._engine.util.config import config
from weft._engine.util.events import reports_as, spell_names
from weft._engine.util.source import SourceLine, user_frame
from weft._engine.util.trees.narrowing import class_of
from weft._engine.util.user_code_suspension import enclose_handlers, release_handlers


class Trace:
    """An interpretation of primitives. Subclasses implement `process`."""

    __module__ = "weft.extend.core"

    __slots__ = ("parent", "finished", "__weakref__")
    evaluates_constants = False  # whether constants are evaluated even inside of a recording trace

    #: the enclosing trace; None for the outermost trace and for the trace that starts a program
    parent: Trace

    def __init__(self, parent: Any = None):
        self.parent = parent
        self.finished = False

    def process(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        if type(self).process_primitive is Trace.process_primitive:
            raise NotImplementedError(
                f"{type(self).__name__}: a trace must define process_primitive(primitive, tracers, params)."
            )
        return self.process_primitive(primitive, args, params)

    def process_primitive(self, primitive: Any, tracers: Sequence[Any], params: dict[str, Any]):
        """Call `process`. User-defined traces override this name, as in JAX."""
        return self.process(primitive, tracers, params)

    @property
    def main(self) -> "Trace":
        """The trace itself; JAX programs compare traces by this attribute."""
        return self

    @property
    def parent_trace(self) -> "Trace | None":
        return self.parent

    def processing_trace(self, args: Sequence[Any]) -> "Trace":
        """Return the trace that processes a call with these arguments: this one, or an enclosing one if no argument is this trace's."""
        return self

    def full_raise(self, x: Any) -> Any:
        """Return `x` unchanged: values need no conversion to a tracer of this trace."""
        return x

    def is_valid(self) -> bool:
        """Return whether the tracers of this trace may still be used."""
        return not self.finished

    def invalidate(self) -> None:
        """End the trace. Its tracers may not be used afterwards."""
        self.finished = True

    @property
    def level(self) -> Any:
        """An object shared by all traces of one transformation; rules of custom derivatives are mapped in separate traces."""
        return self

    def is_nested_in(self, trace: "Trace") -> bool:
        """Return whether `trace`, or a trace of its level, is this trace or encloses it. Only then are its values usable here."""
        here: Trace | None = self
        level = trace.level
        while here is not None and here.level is not level:
            here = here.parent_trace
        return here is not None

    def cast(self, x: Any, axes: frozenset[Any]) -> Any:
        """Return `x` with a type that also varies over `axes`; its type must not vary over them yet."""
        return self.process(registry["pvary"], [x], {"axes": tuple(sorted(axes, key=str))})


class EvalTrace(Trace):
    """The outermost trace: it computes immediately, by the implementation set with `set_implementation` or else by a compiled program."""

    __slots__ = ()

    def process(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        for x in args:
            if isinstance(x, Tracer):
                has_escaped = x.owning_trace.finished
                raise escaped_tracer_error(x) if has_escaped else misplaced_tracer_error(x)
        if implementations and primitive in implementations:
            return implementations[primitive](*args, **params)
        return hooks.evaluate(primitive, args, params)


class InnerTrace(Trace):
    """A trace that binds its operations under its parent trace `outer`."""

    __slots__ = ("outer",)

    def __init__(self, parent: Trace):
        super().__init__(parent)
        self.outer = parent


def any_tracers(leaves: Iterable[Any]) -> bool:
    """Return whether a leaf is a tracer."""
    # one test per type: the leaves have few distinct types
    return any(issubclass(cls, Tracer) for cls in {*map(type, leaves)})


@reports_as("jax.core")
class Tracer(ArrayMethods):
    """A value inside a transformation. `weft.numpy` attaches the array methods and operators."""

    __slots__ = ("owning_trace", "__weakref__")
    __array_priority__ = 1000
    _is_tracer = True

    aval: ShapedArray
    #: the exception class for a tracer that is used outside of its transformation
    out_of_place: type[errors.UnexpectedTracerError] = errors.UnexpectedTracerError

    def __init_subclass__(cls) -> None:
        if cls.__module__.partition(".")[0] == "weft":
            reports_as("jax.core")(cls)

    def __init__(self, trace: Trace, aval: ShapedArray | None = None):
        self.owning_trace = trace
        if aval is not None:
            self.aval = aval

    @property
    def _trace(self) -> Trace:
        """The trace of the tracer; libraries read and set it by this name."""
        return self.owning_trace

    @_trace.setter
    def _trace(self, trace: Trace) -> None:
        self.owning_trace = trace

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        return self.aval.ndim

    @property
    def size(self) -> int:
        return self.aval.size

    @property
    def nbytes(self) -> int:
        return self.aval.nbytes

    @property
    def itemsize(self) -> int:
        return self.aval.dtype.itemsize

    @property
    def sharding(self) -> NoReturn:
        raise AttributeError(
            f"{self.describe()} has no `sharding`: only concrete arrays have one. Read the sharding of its type with typeof(x).sharding."
        )

    @property
    def weak_type(self) -> bool:
        return self.aval.weak_type

    @property
    def mat(self) -> ManualAxisType:
        return self.aval.manual_axis_type

    def describe(self) -> str:
        """Return one line that describes the tracer in error messages."""
        return f"{type(self).__name__}<{self.aval.str_short()}>"

    why_no_value = "it has no value while the program is being traced"
    #: whether conversion to a number or NumPy array would silently lose a derivative
    carries_derivative = False

    def concrete(self) -> Any:
        """Return the concrete value if the trace has one, else None."""
        return None

    def __repr__(self) -> str:
        return f"JitTracer({self.aval.str_short(kinds=True)})"

    def __bool__(self) -> bool:
        check_number(self.aval, "bool")
        return bool(
            _concrete_value(
                self,
                errors.TracerBoolConversionError,
                "as a boolean (if, while, and, or, not)",
                loses_derivative=False,
            )
        )

    def __int__(self) -> int:
        check_number(self.aval, "int")
        return int(
            _concrete_value(
                self,
                errors.ConcretizationTypeError,
                "with int(...)",
                "",
                _CAST.format("int"),
                False,
            )
        )

    def __float__(self) -> float:
        check_number(self.aval, "float")
        return float(
            _concrete_value(
                self,
                errors.ConcretizationTypeError,
                "with float(...)",
                remedy=_CAST.format("float"),
            )
        )

    def __complex__(self) -> complex:
        check_number(self.aval, "complex")
        return complex(
            _concrete_value(
                self,
                errors.ConcretizationTypeError,
                "with complex(...)",
                remedy=_CAST.format("complex"),
            )
        )

    def __index__(self) -> int:
        check_number(self.aval, "index")
        return int(
            _concrete_value(
                self,
                errors.TracerIntegerConversionError,
                "as a Python integer index or size",
                loses_derivative=False,
            )
        )

    def item(self, *args: Any) -> Any:
        return np.asarray(
            _concrete_value(
                self, errors.ConcretizationTypeError, "by the item() method", loses_derivative=False
            )
        ).item(*args)

    def tolist(self) -> Any:
        return np.asarray(_concrete_value_for_method(self, "tolist")).tolist()

    def tobytes(self, order: Literal["C", "F", "A"] = "C") -> bytes:
        return np.asarray(_concrete_value_for_method(self, "tobytes")).tobytes(order)

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        value = _concrete_value(
            self,
            errors.ConcretizationTypeError,
            "by pickling, or by another function that serializes objects",
        )
        return value.__reduce_ex__(protocol)

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray[Any, np.dtype[Any]]:
        value = _concrete_value(
            self,
            errors.TracerArrayConversionError,
            "as a NumPy array (numpy.asarray or a numpy function)",
        )
        return np.asarray(value, *args, **kwargs)

    __hash__ = None  # type: ignore[assignment]  # arrays are not hashable

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def block_until_ready(self) -> Self:
        return self


_CONTROL = (
    "Python control flow cannot depend on traced values. Use weft.lax.cond, weft.lax.while_loop or weft.numpy.where, or "
    "make the argument static (static_argnums / static_argnames of jit)."
)
_STATIC = (
    "A shape, index or size must be known while tracing. Make the argument static (static_argnums / static_argnames of "
    "jit), or use weft.numpy functions that take traced indices."
)
_CAST = "For an array of another dtype, try using `x.astype({})`. " + _STATIC
_REMEDIES: dict[type[Exception], str] = {
    errors.TracerBoolConversionError: _CONTROL,
    errors.ConcretizationTypeError: _STATIC,
    errors.TracerIntegerConversionError: _STATIC,
    errors.TracerArrayConversionError: "Use weft.numpy functions on traced values, or move the NumPy work out of the traced function "
    "(weft.pure_callback runs it at run time).",
}

_HEADS: dict[type[Exception], str] = {
    errors.TracerBoolConversionError: "Attempted boolean conversion of traced array with shape {}",
    errors.ConcretizationTypeError: "Abstract tracer value encountered where concrete value is expected",
    errors.TracerIntegerConversionError: "The __index__() method was called on traced array with shape {}",
    errors.TracerArrayConversionError: "The numpy.ndarray conversion method __array__() was called on traced array with shape {}",
}


def _concrete_value(
    tracer: Tracer,
    error: type[Exception],
    use: str,
    head: str = "",
    remedy: str = "",
    loses_derivative: bool = True,
) -> Any:
    value = tracer.concrete()
    if value is not None and not (loses_derivative and tracer.carries_derivative):
        return value
    origin = getattr(tracer, "source", None)
    created = f"\n  The value was created at {origin}" if origin is not None else ""
    line = user_frame()
    used = f"\n  at {line}" if line is not None else ""
    message = (
        f"{(head or _HEADS[error]).format(tracer.aval.str_short())}: {tracer.describe()} was used {use}, but {tracer.why_no_value}."
        f"{used}{created}\n  {remedy or _REMEDIES[error]}"
    )
    raise error(spell_names(message))


def _concrete_value_for_method(tracer: Tracer, method: str) -> Any:
    """Return the concrete value for an array method that returns Python objects; raise ConcretizationTypeError if there is none."""
    return _concrete_value(
        tracer,
        errors.ConcretizationTypeError,
        f"by the {method}() method",
        f"The {method}() method was called on traced array with shape {{}}",
    )


#: (name, size, tracked) of named axes, innermost last
AxisEnv = tuple[tuple[Any, int, bool | None], ...]


class _ThreadState(threading.local):
    def __init__(self) -> None:
        self.trace: Trace = eval_trace
        #: (name, size, tracked) of the named axes in scope, innermost last
        self.axis_env: tuple[Any, ...] = ()
        #: the line of the current equation while a program is evaluated
        self.source: SourceLine | None = None
        #: True while derived operations are bound: undetermined shardings stay open
        self.allows_unspecified = False
        #: the axes over which sums are left unreduced
        self.unreduced_axes: frozenset[Any] = frozenset()


eval_trace = EvalTrace()
trace_state = _ThreadState()


#: primitive -> the user's implementation on concrete values, which replaces the compiled one
implementations: dict[Any, Callable[..., Any]] = {}


class _CompiledImplementation:
    """The compiled implementation of a primitive."""

    __slots__ = ("primitive",)

    def __init__(self, primitive: Any):
        self.primitive = primitive

    def __call__(self, *args: Any, **params: Any) -> Any:
        return hooks.evaluate(self.primitive, args, params)


def get_implementation(primitive: Any) -> Callable[..., Any]:
    """Return the function `impl(*values, **params)` that computes a primitive on concrete values."""
    return implementations.get(primitive) or _CompiledImplementation(primitive)


def set_implementation(primitive: Any, impl: Callable[..., Any]) -> None:
    """Make `impl(*values, **params)` the function that computes a primitive on concrete values."""
    if isinstance(impl, _CompiledImplementation) and impl.primitive is primitive:
        implementations.pop(primitive, None)
    else:
        implementations[primitive] = impl


def current_trace() -> Trace:
    return trace_state.trace


class set_trace:
    """Context manager: make `trace` current in this thread."""

    __slots__ = ("trace", "saved", "enclosed")

    def __init__(self, trace: Trace):
        self.trace = trace

    def __enter__(self) -> Trace:
        self.saved = trace_state.trace
        self.enclosed = None
        if self.saved is eval_trace and self.trace is not eval_trace:
            _enclose_collections()
            self.enclosed = enclose_handlers()
        trace_state.trace = self.trace
        return self.trace

    def __exit__(self, *exc: object) -> None:
        trace_state.trace = self.saved
        if self.enclosed is not None:
            release_handlers(self.enclosed)
            _release_collections()


class UntracedContext:
    """Context manager for code that interrupts a trace of this thread, such as a signal handler. The code is not traced."""

    __slots__ = ("saved",)

    def __enter__(self) -> None:
        self.saved = trace_state.__dict__.copy()
        trace_state.__init__()

    def __exit__(self, *exc: object) -> None:
        trace_state.__dict__.update(self.saved)


#: `current`: the `UntracedContext` of the garbage collection that runs in this thread
_collections = threading.local()


def _enclose_finalizers(
    phase: str, info: dict[Any, Any], context: Any = _collections, make: type = UntracedContext
) -> None:
    """Run the finalizers that the garbage collector calls in their own context. A collection may start at any statement of a trace."""
    if phase == "start":
        context.current = make()
        context.current.__enter__()
    elif (current := context.__dict__.pop("current", None)) is not None:
        current.__exit__()


#: one entry per outermost trace of a thread; not a lock, because finalizers could run while it is held
_outermost: list[None] = []


def _enclose_collections() -> None:
    """Register `_enclose_finalizers` as a callback of the garbage collector for the time of a trace."""
    _outermost.append(None)
    if _enclose_finalizers not in gc.callbacks:
        gc.callbacks.append(_enclose_finalizers)


def _release_collections() -> None:
    _outermost.pop()
    if not _outermost:
        with suppress(ValueError):
            gc.callbacks.remove(_enclose_finalizers)
        # another thread may have started a trace in the meantime
        if _outermost and _enclose_finalizers not in gc.callbacks:
            gc.callbacks.append(_enclose_finalizers)


class leave_unreduced:
    """Context manager: sums over dims that are sharded over `axes` have types that are unreduced over `axes`."""

    __slots__ = ("axes", "saved")

    def __init__(self, axes: frozenset[Any]):
        self.axes = axes

    def __enter__(self) -> None:
        self.saved = trace_state.unreduced_axes
        trace_state.unreduced_axes = self.axes

    def __exit__(self, *exc: object) -> None:
        trace_state.unreduced_axes = self.saved


class allow_open_shardings:
    """Context manager for operations that were checked before or are derived by a rule.

    Result shardings that the operands' types do not determine are left open. With `flag=False` they are errors again, for the trace
    of a user's function inside of such a context.
    """

    __slots__ = ("flag", "saved")

    def __init__(self, flag: bool = True):
        self.flag = flag

    def __enter__(self) -> None:
        self.saved = trace_state.allows_unspecified
        trace_state.allows_unspecified = self.flag

    def __exit__(self, *exc: object) -> None:
        trace_state.allows_unspecified = self.saved


class derived_trace(set_trace):
    """Context manager: make `trace` current for operations that a rule derives, with `allow_open_shardings` on."""

    __slots__ = ("previous",)

    def __enter__(self) -> Trace:
        self.previous = trace_state.allows_unspecified
        trace_state.allows_unspecified = True
        return super().__enter__()

    def __exit__(self, *exc: object) -> None:
        trace_state.allows_unspecified = self.previous
        super().__exit__(*exc)


class with_source:
    """Context manager: recorded operations get the user's line `source`. With None, the line in force stays."""

    __slots__ = ("source", "saved")

    def __init__(self, source: SourceLine | None):
        self.source = source

    def __enter__(self) -> None:
        self.saved = trace_state.source
        if self.source is not None:
            trace_state.source = self.source

    def __exit__(self, *exc: object) -> None:
        trace_state.source = self.saved


class use_stack_lines:
    """Context manager for the call of a user's function by a transformation.

    Operations get the lines of that function from the Python stack, not the line of the equation that is being evaluated.
    """

    __slots__ = ("saved",)

    def __enter__(self) -> None:
        self.saved, trace_state.source = trace_state.source, None

    def __exit__(self, *exc: object) -> None:
        trace_state.source = self.saved


@contextmanager
def extend_axis_env(
    axes: Sequence[tuple[Any, int]], tracked: frozenset[Any] | None = None
) -> Generator[None]:
    """Context manager: bring named axes, pairs (name, size), of a vmap or shard_map into scope.

    `tracked` is None for a vmap; for a shard_map it is the set of axes over which types record varying values.
    """
    saved = trace_state.axis_env
    trace_state.axis_env = saved + tuple(
        [(name, size, None if tracked is None else name in tracked) for name, size in axes]
    )
    try:
        yield
    finally:
        trace_state.axis_env = saved


def axis_env() -> AxisEnv:
    """Return the named axes in scope as (name, size, tracked), innermost last. Every key of a cached trace contains them."""
    return trace_state.axis_env


def find_tracked_axes() -> frozenset[Any]:
    """Return the axes in scope over which types record varying values: the manual axes of a shard_map with `check_vma`."""
    return (
        frozenset([name for name, _, tracked in trace_state.axis_env if tracked])
        if trace_state.axis_env
        else frozenset()
    )


def manual_axes() -> tuple[Any, ...]:
    """Return the manual axes of the shard_maps in scope, outermost first."""
    return (
        tuple(
            dict.fromkeys(name for name, _, tracked in trace_state.axis_env if tracked is not None)
        )
        if trace_state.axis_env
        else ()
    )


def axis_env_size(name: Any) -> int:
    """Return the size of the named axis `name`; raise UnboundAxisError, a NameError, if it is not in scope."""
    for axis, size, _ in reversed(trace_state.axis_env):
        if axis == name:
            return size
    known = ", ".join(map(repr, dict.fromkeys(n for n, *_ in trace_state.axis_env))) or "none"
    raise errors.UnboundAxisError(
        f"Found an unbound axis name: {name}. Axes in scope: {known}. "
        "Name the axis with vmap(..., axis_name=...), or call the function under `weft.shard_map`."
    )


def check_leaks(trace: Trace) -> None:
    """Raise UnexpectedTracerError if an object still refers to a tracer of the finished `trace` (`config.check_tracer_leaks`)."""
    gc.collect()
    leaked = [
        t for t in gc.get_referrers(trace) if isinstance(t, Tracer) and t.owning_trace is trace
    ]
    if leaked:
        rows = [(tracer.describe(), _describe_referrers(tracer, leaked)) for tracer in leaked[:4]]
        origin = getattr(leaked[0], "source", None)
        raise errors.UnexpectedTracerError(
            errors.describe(
                "checking_leaks",
                "Leaked trace: values of a transformed function outlived its call.",
                rows,
                origin,
                "A value computed inside a transformed function (jit, grad, vmap, ...) must leave it through its return value.",
                "Return the value, or delete the reference to it before the function returns.",
            )
        )


def _describe_referrers(tracer: Tracer, leaked: list[Tracer]) -> str:
    """Return a text that names the types of the objects that refer to `tracer`."""
    kinds = {
        type(x).__name__
        for x in gc.get_referrers(tracer)
        if x is not leaked and not inspect.isframe(x)
    }
    return f"held by: {', '.join(sorted(kinds)) or 'a running function'}"


def escaped_tracer_error(tracer: Tracer) -> errors.UnexpectedTracerError:
    """Return the error for a tracer that is used after its trace has finished."""
    origin, line = getattr(tracer, "source", None), user_frame()
    used = f"\n  at {line}" if line is not None else ""
    created = f"\n  It was created on line {origin}" if origin is not None else ""
    return errors.UnexpectedTracerError(
        f"Encountered an unexpected tracer: {tracer.describe()} was used after the transformation that created it had ended.{used}{created}\n"
        "  A value computed inside a transformed function (jit, grad, vmap, ...) must leave it through its return value, "
        "not through global state, an attribute or a closure. Return it, or use weft.checking_leaks() to find where it leaks."
    )


def misplaced_tracer_error(tracer: Tracer) -> errors.UnexpectedTracerError:
    """Return the error for a tracer that is used outside of its transformation, which has not ended."""
    line = user_frame()
    here = f"\n  at {line}" if line is not None else ""
    return tracer.out_of_place(
        f"Encountered an unexpected tracer: {tracer.describe()} was used outside of the transformation that created it.{here}\n"
        "  This happens if a function with custom derivatives (custom_vjp, custom_jvp), or its derivative rule, closes over a value "
        "that is being differentiated or mapped. Pass the value as an argument."
    )


_SCALARS = (bool, int, float, complex)


def typeof(x: Any) -> ShapedArray:
    """Return the type of a tracer, an Array, a NumPy array or scalar, or a Python scalar (weakly typed).

    Raise TypeError for other values.

    >>> typeof(2.0)
    ShapedArray(float32[], weak_type=True)
    """
    if hi_types and type(x) in hi_types:
        return hi_types[type(x)](x)
    aval = getattr(x, "aval", None)
    if aval is not None:
        return aval
    kind = class_of(x)
    if kind in _SCALARS:
        return _scalar_aval(kind, config.enable_x64)
    if issubclass(kind, np.generic):
        return _numpy_scalar_aval(x.dtype, config.enable_x64)
    if issubclass(kind, np.ndarray):
        check_unmasked(x)
        return ShapedArray(x.shape, dtypes.canonicalize_dtype(x.dtype))
    if isinstance(x, _SCALARS):
        return _scalar_aval(next(t for t in kind.__mro__ if t in _SCALARS), config.enable_x64)
    if type(x) in hooks.type_makers:
        return hooks.type_makers[type(x)](x)
    convert = array_converter(x)
    if convert is not None:
        return typeof(convert())
    if getattr(x, "_is_ref", False):
        raise TypeError(
            f"{x.type} is a reference to a mutable array, not an array. Read its value first: ref[...]."
        )
    raise TypeError(
        f"Value {x!r} of type {type(x)} is not a valid JAX type: it is neither an array nor a number."
    )


def check_unmasked(x: np.ndarray | np.generic) -> None:
    """Raise ValueError for a masked array of NumPy."""
    if type(x) is not np.ndarray and isinstance(x, np.ma.MaskedArray):
        raise ValueError(
            "numpy masked arrays are not supported: arrays have no masks, so masked elements would be used. Use "
            "x.filled(value), or pass x.data and x.mask."
        )


def array_converter(x: Any) -> Callable[[], Any] | None:
    """Return the function that converts `x` to an array: its method `__weft_array__` or `__jax_array__`, or the one in
    `hooks.array_makers` for its type. Return None if there is none."""
    method = getattr(x, "__weft_array__", None) or getattr(x, "__jax_array__", None)
    if method is None and type(x) in hooks.array_makers:
        return functools.partial(hooks.array_makers[type(x)], x)
    return method


@functools.cache
def _scalar_aval(kind: type, x64_enabled: bool) -> ShapedArray:
    """Return the type of Python numbers of type `kind`. `x64_enabled` is a cache key: the value of `enable_x64`."""
    dtype = {bool: np.bool_, int: np.int64, float: np.float64, complex: np.complex128}[kind]
    return ShapedArray((), dtypes.canonicalize_dtype(dtype), kind is not bool)


hooks.type_makers[SymbolicDim] = lambda size: _scalar_aval(int, config.enable_x64)


@functools.lru_cache(maxsize=256)
def _numpy_scalar_aval(dtype: np.dtype, x64_enabled: bool) -> ShapedArray:
    """Return the type of NumPy scalars of a dtype. `x64_enabled` is a cache key: the value of `enable_x64`."""
    return ShapedArray((), dtypes.canonicalize_dtype(dtype))


@final
class Zero:
    """A symbolic zero tangent or cotangent of type `aval`, without an array. `instantiate()` returns an array of zeros."""

    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    def instantiate(self) -> Any:
        """Return an array of zeros of the type."""
        return hooks.instantiate_zero(self)

    def __repr__(self) -> str:
        return f"Zero({self.aval.str_short()})"


@final
class UndefPrimal:
    """A placeholder in a transpose rule for a linear input; it has a type and no value."""

    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    def __repr__(self) -> str:
        return f"UndefPrimal({self.aval.str_short()})"


def is_undef(x: Any) -> bool:
    return type(x) is UndefPrimal
