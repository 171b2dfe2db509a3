"""Jaxpr: the one program representation, from trace to fusion; global, per-device and stacked programs alike.

A `Jaxpr` is typed, closed (its constants travel with it) and pure, in SSA form:
inputs `invars` (after `constvars`, whose values are `consts`), equations in order, outputs `outvars`.
`OpenJaxpr` is the same without the values of its constants, for programs that read and build jaxprs as JAX's users do.
Laws: every variable is bound once, before use; each equation's outputs have the types its primitive's type rule gives.
`ir.check` verifies them, `ir.text` prints and parses, `ir.rewrite` holds the rewrites that all stages share.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence, Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeVar, Union, final

from weft._engine.ir.types import ShapedArray
from weft._engine.util.config import Override, config
from weft._engine.util.source import Metadata, SourceLine
from weft._engine.util.trees.narrowing import class_of

T = TypeVar("T")


class Var:
    """A variable: identity is the name; `aval` is the type.

    `initial_qdd` and `final_qdd` are refused: types of weft change only through references.
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
    """An output that is not read; printed as `_`."""

    __module__ = "weft.extend.core"

    __slots__ = ()
    unused = True


@final
class Literal:
    """A scalar constant written in place. `val` is a Python or NumPy scalar of `aval`'s dtype; `aval` has rank 0."""

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
    """`outvars = primitive[params] invars`. `source` is where the user wrote it (or None); `effects` is a set of
    names (e.g. "print", "ordered"), empty for pure ones; the set is a copy."""

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
        """The effects, as a set of the caller's own."""
        return set(self.effect_set)

    @property
    def source_info(self) -> SourceLine | None:
        """The user's line, under the name programs know."""
        return self.source

    @property
    def ctx(self) -> "EqnContext":
        """What else held where the equation was traced: its attributes, for all other things are in the parameters."""
        return (
            EqnContext(self.source.metadata)
            if self.source is not None and self.source.metadata
            else EQN_CONTEXT
        )

    def __repr__(self) -> str:
        from weft._engine.ir.text.jaxpr import eqn_text

        return eqn_text(self)


class EqnContext:
    """The settings under which an equation is bound again: those in force, and its attributes."""

    __slots__ = ("_metadata",)

    def __init__(self, metadata: Metadata = ()):
        self._metadata = metadata

    @property
    def xla_metadata(self) -> dict[str, Any] | None:
        """The attributes that `set_xla_metadata` gave the equation, or None."""
        return dict(self._metadata) or None

    @property
    def manager(self) -> AbstractContextManager[Any]:
        """A block in which operations get the same attributes."""
        return (
            Override(xla_metadata=self._metadata)
            if self._metadata != config.xla_metadata
            else nullcontext()
        )

    def __repr__(self) -> str:
        return f"EqnContext(xla_metadata={self.xla_metadata})" if self._metadata else "EqnContext()"


EQN_CONTEXT = EqnContext()


class DebugInfo(NamedTuple):
    """Where a program comes from: the transformation that traced it, its function, and names of its arguments and results."""

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


class Jaxpr:
    """A closed program. Immutable by convention; transformations build new ones.

    Its constants travel with it. `.jaxpr` is the program without their values, which `weft.eval_jaxpr` and others take apart from them.

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
        """The effects, as a set of the caller's own."""
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
        self._cache: dict[
            Any, Any
        ] = {}  # per-program memo of transformations (freed with the program)

    @property
    def jaxpr(self) -> "OpenJaxpr":
        return self.memo("open", lambda: OpenJaxpr.of(self))

    @property
    def debug_info(self) -> DebugInfo:
        return DebugInfo("trace", self.name or "<unknown>")

    @property
    def is_high(self) -> bool:
        """Whether an operation of a class of users (`experimental.hijax`) is in it, at any depth."""
        return self.memo("is high", lambda: _any_high(self.eqns))

    def map_jaxpr(self, f: Callable[[OpenJaxpr], OpenJaxpr]) -> "Jaxpr":
        """The program with `f` of its open jaxpr, and the same constants."""
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
        """The cached result of transformation `key` on this program, made on first use."""
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
        """The program as text, as JAX writes it; without `custom_pp_eqn_rules` to the letter, as `ir.text.parse` reads it."""
        from weft._engine.ir.text.jaxpr import jaxpr_text, shown_text

        if not custom_pp_eqn_rules:
            return jaxpr_text(self)
        return shown_text(
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
    """A program without the values of its constants, which are inputs of their own (`constvars`).

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
        """The effects, as a set of the caller's own."""
        return set(self.effect_set)

    @property
    def is_high(self) -> bool:
        """Whether an operation of a class of users is in it, at any depth."""
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
        """The open jaxpr of a closed one."""
        made = cls(
            closed.constvars,
            closed.invars,
            closed.outvars,
            closed.eqns,
            closed.effects,
            closed.debug_info,
        )
        made._closed = weakref.ref(closed)
        return made

    def closed(self, consts: Sequence[Any]) -> Jaxpr:
        """The program with values of its constants; the one that it was taken from, if they are the same."""
        found = None if self._closed is None else self._closed()
        if (
            found is not None
            and len(found.consts) == len(consts)
            and all(a is b for a, b in zip(found.consts, consts))
        ):
            return found
        if len(consts) != len(self.constvars):
            raise TypeError(
                f"ClosedJaxpr: the jaxpr has {len(self.constvars)} constants, got {len(consts)} values of them."
            )
        name = self.debug_info.func_name
        made = Jaxpr(
            self.constvars,
            consts,
            self.invars,
            self.outvars,
            self.eqns,
            self.effects or None,
            name if name.isidentifier() else "",
        )
        if found is None:
            self._closed = weakref.ref(made)
        return made

    in_avals = Jaxpr.in_avals
    out_avals = Jaxpr.out_avals

    def replace(self, **changes: Any) -> "OpenJaxpr":
        """A copy with some of constvars, invars, outvars, eqns, effects, debug_info replaced."""
        fields = ("constvars", "invars", "outvars", "eqns", "effects", "debug_info")
        unknown = [name for name in changes if name not in (*fields, "is_high")]
        if unknown:
            raise ValueError(
                f"Jaxpr.replace: there is no field {unknown[0]!r}; there are {', '.join(fields)}."
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
    """The jaxprs among an equation's parameters, with their parameter names (tuples of jaxprs are walked too)."""
    for key, value in params.items():
        if isinstance(value, Jaxpr):
            yield key, value
        elif issubclass(class_of(value), tuple):
            for item in value:
                if isinstance(item, Jaxpr):
                    yield key, item
