"""Jaxpr: the program representation of all stages from trace to fusion, for global, per-device and stacked programs.

A `Jaxpr` is typed, closed (it contains the values of its constants) and pure, in SSA form:
inputs `invars` (after `constvars`, whose values are `consts`), equations in order, outputs `outvars`.
`OpenJaxpr` is the same without the values of its constants, for user code that reads and builds jaxprs as with JAX.
Laws: every variable is bound once, before its uses. The results of an equation have the types that its primitive's type rule returns.
`ir.check` verifies these laws, `ir.text` prints and parses programs, `ir.rewrite` contains the rewrites that all stages share.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence, Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeVar, Union, final

from weft._engine.ir.types import ShapedArray
from weft._engine.util.config import Override, config
from weft._engine.util.messages.notebook import NotebookDisplay
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import Metadata, SourceLine
from weft._engine.util.trees.narrowing import class_of

T = TypeVar("T")


class Var:
    """A variable, identified by the object itself; `aval` is its type.

    `initial_qdd` and `final_qdd` must be None: types do not change within a program.
    """

    __module__ = "weft.extend.core"

    __slots__ = ("aval",)
    unused = False

    def __init__(self, aval: ShapedArray, initial_qdd: Any = None, final_qdd: Any = None):
        if initial_qdd is not None or final_qdd is not None:
            raise NotImplementedError(
                "Var: initial_qdd and final_qdd are not supported: types do not change within a program."
            )
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var(id={id(self):#x}):{self.aval.str_short(True)}"


class DropVar(Var):
    """An unused result of an equation; printed as `_`."""

    __module__ = "weft.extend.core"

    __slots__ = ()
    unused = True


@final
class Literal:
    """A scalar constant as an operand. `val` is a Python or NumPy scalar of `aval`'s dtype; `aval` has rank 0."""

    __module__ = "weft.extend.core"

    __slots__ = ("val", "aval")

    def __init__(self, val: Any, aval: ShapedArray):
        self.val = val
        self.aval = aval

    def __repr__(self) -> str:
        return f"Literal({self.val})"


Atom = Union[Var, Literal]


_NO_EFFECTS: frozenset[Any] = frozenset()


class Eqn:
    """An equation `outvars = primitive[params] invars`.

    `source` is the line of the user's program, or None. `effects` is a set of names such as "print" and "ordered", which is empty for
    pure equations; it is copied.
    """

    __slots__ = ("primitive", "invars", "outvars", "params", "source", "effect_set")

    def __init__(
        self,
        primitive: Any,  # a `core.primitive.Primitive`; its module imports this package
        invars: Iterable[Atom],
        outvars: Iterable[Var],
        params: dict[str, Any],
        source: SourceLine | None = None,
        effects: AbstractSet[Any] = frozenset(),
    ):
        self.primitive = primitive
        self.invars = list(invars)
        self.outvars = list(outvars)
        self.params = params
        self.source = source
        self.effect_set = frozenset(effects)

    def replace(self, **changes: Any) -> "Eqn":
        get = changes.get
        return Eqn(
            get("primitive", self.primitive),
            get("invars", self.invars),
            get("outvars", self.outvars),
            get("params", self.params),
            get("source", self.source),
            get("effects", self.effect_set),
        )

    @property
    def effects(self) -> set[Any]:
        """The effects, as a new set."""
        return set(self.effect_set)

    @property
    def source_info(self) -> SourceLine | None:
        """The user's line, under JAX's name."""
        return self.source

    @property
    def ctx(self) -> "EqnContext":
        """The trace-time context of the equation: its XLA metadata. All other settings are in its parameters."""
        return (
            EqnContext(self.source.metadata)
            if self.source is not None and self.source.metadata
            else EQN_CONTEXT
        )

    def __repr__(self) -> str:
        from weft._engine.ir.text.jaxpr import eqn_text

        return eqn_text(self)


class EqnContext:
    """The context under which an equation is bound again: the current settings with the equation's XLA metadata."""

    __slots__ = ("_metadata",)

    def __init__(self, metadata: Metadata = ()):
        self._metadata = metadata

    @property
    def xla_metadata(self) -> dict[str, Any] | None:
        """The metadata of the equation from `set_xla_metadata`, or None."""
        return dict(self._metadata) or None

    @property
    def manager(self) -> AbstractContextManager[Any]:
        """A context manager that gives all operations inside it the same metadata."""
        return (
            Override(xla_metadata=self._metadata)
            if self._metadata != config.xla_metadata
            else nullcontext()
        )

    def __repr__(self) -> str:
        return f"EqnContext(xla_metadata={self.xla_metadata})" if self._metadata else "EqnContext()"


EQN_CONTEXT = EqnContext()


class DebugInfo(NamedTuple):
    """The origin of a program: the transformation that traced it, the function, and names of its arguments and results."""

    __module__ = "weft.extend.core"

    traced_for: str
    func_src_info: str
    arg_names: tuple[str, ...] | None = None
    result_paths: Any = None

    @property
    def func_name(self) -> str:
        return self.func_src_info.partition(" ")[0]

    def with_unknown_names(self) -> "DebugInfo":
        return self._replace(arg_names=None, result_paths=None)


class Jaxpr(NotebookDisplay):
    """A closed program. It is not modified after its creation; transformations create new programs.

    It contains the values of its constants. `.jaxpr` is the program without them, which `weft.eval_jaxpr` and others take together
    with the values.

    >>> program = weft.make_jaxpr(lambda x: 2 * x + 1)(3.0)
    >>> len(program.eqns), program.in_avals, program.out_avals, program.effects
    (2, [ShapedArray(float32[], weak_type=True)], [ShapedArray(float32[], weak_type=True)], set())
    >>> program.eqns[0].outvars == program.eqns[1].invars[:1], program.invars[0].aval, len(program.outvars)
    (True, ShapedArray(float32[], weak_type=True), 1)
    >>> program.replace(eqns=program.eqns[:1], outvars=program.eqns[0].outvars).pretty_print()
    '{ lambda ; a:f32[]. let b:f32[] = mul 2.0:f32[] a in (b,) }'
    """

    __slots__ = (
        "constvars",
        "consts",
        "invars",
        "outvars",
        "eqns",
        "effect_set",
        "name",
        "__weakref__",
        "_cache",
    )

    @property
    def effects(self) -> set[Any]:
        """The effects, as a new set."""
        return set(self.effect_set)

    def __init__(
        self,
        constvars: Sequence[Var],
        consts: Sequence[Any],
        invars: Sequence[Var],
        outvars: Sequence[Atom],
        eqns: Sequence[Eqn],
        effects: AbstractSet[Any] | None = None,
        name: str = "",
    ):
        assert len(constvars) == len(consts)
        self.constvars = list(constvars)
        self.consts = list(consts)
        self.invars = list(invars)
        self.outvars = list(outvars)
        self.eqns = list(eqns)
        if effects is None:
            effects = _NO_EFFECTS.union(*[e.effect_set for e in self.eqns if e.effect_set])
        self.effect_set = frozenset(effects)
        self.name = name
        #: transformation -> its result for this program; freed with the program
        self._cache: dict[Any, Any] = {}

    @property
    def jaxpr(self) -> "OpenJaxpr":
        return self.memo("open", lambda: OpenJaxpr.of(self))

    @property
    def debug_info(self) -> DebugInfo:
        return DebugInfo("trace", self.name or "<unknown>")

    @property
    def is_high(self) -> bool:
        """Whether it contains, at any depth, an operation on user-defined types (`experimental.hijax`)."""
        return self.memo("is high", lambda: _any_high(self.eqns))

    def map_jaxpr(self, f: Callable[[OpenJaxpr], OpenJaxpr]) -> "Jaxpr":
        """Return the program with `f` applied to its open jaxpr, and the same constants."""
        return f(self.jaxpr).closed(self.consts)

    @property
    def literals(self) -> list[Any]:
        return self.consts

    @property
    def in_avals(self) -> list[ShapedArray]:
        return [v.aval for v in self.invars]

    @property
    def out_avals(self) -> list[ShapedArray]:
        return [v.aval for v in self.outvars]

    def replace(self, **changes: Any) -> "Jaxpr":
        get = changes.get
        if "jaxpr" in changes:
            return changes["jaxpr"].closed(get("consts", self.consts))
        effects = get("effects", None if "eqns" in changes else self.effects)
        return Jaxpr(
            get("constvars", self.constvars),
            get("consts", self.consts),
            get("invars", self.invars),
            get("outvars", self.outvars),
            get("eqns", self.eqns),
            effects,
            get("name", self.name),
        )

    def memo(self, key: Any, make: Callable[[], T]) -> T:
        """Return the cached result of the transformation `key` of this program; call `make` if there is none."""
        try:
            return self._cache[key]
        except KeyError:
            result = self._cache[key] = make()
            return result

    def pretty_print(
        self,
        *,
        source_info: bool = False,
        print_shapes: bool = True,
        print_effects: bool = False,
        width: int = 80,
        custom_pp_eqn_rules: bool = True,
        **_options: Any,
    ) -> str:
        """Return the program as text in JAX's format; without `custom_pp_eqn_rules`, in the exact format that `ir.text.parse` reads."""
        from weft._engine.ir.text.jaxpr import jax_style_text, jaxpr_text

        if not custom_pp_eqn_rules:
            return jaxpr_text(self)
        return jax_style_text(
            self,
            source_info=source_info,
            print_shapes=print_shapes,
            print_effects=print_effects,
            width=width,
        )

    def __repr__(self) -> str:
        return self.pretty_print()

    __str__ = __repr__


class OpenJaxpr:
    """A program without the values of its constants, which are separate inputs (`constvars`).

    >>> program = weft.make_jaxpr(lambda x: np.ones(2, np.float32) + x)(np.float32(3))
    >>> program.jaxpr, len(program.jaxpr.constvars), program.jaxpr.closed(program.consts) is program
    ({ lambda a:f32[2]; b:f32[]. let c:f32[2] = add a b in (c,) }, 1, True)
    """

    __slots__ = (
        "constvars",
        "invars",
        "outvars",
        "eqns",
        "effect_set",
        "debug_info",
        "_closed",
        "__weakref__",
    )

    @property
    def effects(self) -> set[Any]:
        """The effects, as a new set."""
        return set(self.effect_set)

    @property
    def is_high(self) -> bool:
        """Whether it contains, at any depth, an operation on user-defined types."""
        return _any_high(self.eqns)

    def __init__(
        self,
        constvars: Sequence[Var],
        invars: Sequence[Var],
        outvars: Sequence[Atom],
        eqns: Sequence[Eqn],
        effects: Iterable[Any] = frozenset(),
        debug_info: DebugInfo | None = None,
        is_high: bool = False,
    ):
        self.constvars, self.invars, self.outvars, self.eqns = (
            list(constvars),
            list(invars),
            list(outvars),
            list(eqns),
        )
        self.effect_set = frozenset(effects)
        self.debug_info = (
            debug_info if debug_info is not None else DebugInfo("unknown", "<unknown>")
        )
        self._closed: weakref.ref[Jaxpr] | None = None

    @classmethod
    def of(cls, closed: Jaxpr) -> "OpenJaxpr":
        """Return the open jaxpr of a closed one."""
        open_jaxpr = cls(
            closed.constvars,
            closed.invars,
            closed.outvars,
            closed.eqns,
            closed.effects,
            closed.debug_info,
        )
        open_jaxpr._closed = weakref.ref(closed)
        return open_jaxpr

    def closed(self, consts: Sequence[Any]) -> Jaxpr:
        """Return the closed program with values for its constants. Return the original closed program if it has the same values."""
        original = None if self._closed is None else self._closed()
        if (
            original is not None
            and len(original.consts) == len(consts)
            and all(a is b for a, b in zip(original.consts, consts))
        ):
            return original
        if len(consts) != len(self.constvars):
            raise TypeError(
                f"ClosedJaxpr: the jaxpr has {quantity(len(self.constvars), 'constant')}, got {quantity(len(consts), 'value')} for them."
            )
        name = self.debug_info.func_name
        closed_jaxpr = Jaxpr(
            self.constvars,
            consts,
            self.invars,
            self.outvars,
            self.eqns,
            self.effects or None,
            name if name.isidentifier() else "",
        )
        if original is None:
            self._closed = weakref.ref(closed_jaxpr)
        return closed_jaxpr

    in_avals = Jaxpr.in_avals
    out_avals = Jaxpr.out_avals

    def replace(self, **changes: Any) -> "OpenJaxpr":
        """Return a copy with some of constvars, invars, outvars, eqns, effects, debug_info replaced."""
        fields = ("constvars", "invars", "outvars", "eqns", "effects", "debug_info")
        unknown = [name for name in changes if name not in (*fields, "is_high")]
        if unknown:
            raise ValueError(
                f"Jaxpr.replace: there is no field {unknown[0]!r}. The fields are {', '.join(fields)}."
            )
        return OpenJaxpr(*[changes.get(name, getattr(self, name)) for name in fields])

    pretty_print = Jaxpr.pretty_print
    __repr__ = __str__ = Jaxpr.__repr__


def _any_high(eqns: Iterable[Eqn]) -> bool:
    return any(
        eqn.primitive.is_high or any(inner.is_high for _, inner in subjaxprs(eqn.params))
        for eqn in eqns
    )


def subjaxprs(params: dict[str, Any]) -> Iterable[tuple[str, Jaxpr]]:
    """Yield (parameter name, jaxpr) for each jaxpr among an equation's parameters, also for jaxprs in tuples."""
    for key, value in params.items():
        if isinstance(value, Jaxpr):
            yield key, value
        elif issubclass(class_of(value), tuple):
            for item in value:
                if isinstance(item, Jaxpr):
                    yield key, item
