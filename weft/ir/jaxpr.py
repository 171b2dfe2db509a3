"""Jaxpr: the one program representation, from trace to fusion; global, per-device and stacked programs alike.

A `Jaxpr` is typed, closed (its constants travel with it) and pure, in SSA form:
inputs `invars` (after `constvars`, whose values are `consts`), equations in order, outputs `outvars`.
Laws: every variable is bound once, before use; each equation's outputs have the types its primitive's type rule gives.
`ir.check` verifies them, `ir.text` prints and parses, `ir.rewrite` holds the rewrites that all stages share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Union

from weft.ir.types import ShapedArray


class Var:
    """A variable: identity is the name; `aval` is the type."""
    __slots__ = ("aval",)
    unused = False

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var(id={id(self):#x}):{self.aval.str_short(True)}"


class DropVar(Var):
    """An output that is not read; printed as `_`."""
    __slots__ = ()
    unused = True


class Literal:
    """A scalar constant written in place. `val` is a Python or NumPy scalar of `aval`'s dtype; `aval` has rank 0."""
    __slots__ = ("val", "aval")

    def __init__(self, val: Any, aval: ShapedArray):
        self.val = val
        self.aval = aval

    def __repr__(self) -> str:
        return f"Literal({self.val})"


Atom = Union[Var, Literal]


class Eqn:
    """`outvars = primitive[params] invars`. `source` is where the user wrote it (or None); `effects` is a frozenset of
    names (e.g. "print", "ordered"), empty for pure ones."""
    __slots__ = ("primitive", "invars", "outvars", "params", "source", "effects")

    def __init__(self, primitive, invars: Iterable[Atom], outvars: Iterable[Var], params: dict, source=None,
                 effects: frozenset = frozenset()):
        self.primitive = primitive
        self.invars = tuple(invars)
        self.outvars = tuple(outvars)
        self.params = params
        self.source = source
        self.effects = effects

    def replace(self, **changes) -> "Eqn":
        get = changes.get
        return Eqn(get("primitive", self.primitive), get("invars", self.invars), get("outvars", self.outvars),
                   get("params", self.params), get("source", self.source), get("effects", self.effects))

    @property
    def source_info(self):
        """The user's line, under the name programs know."""
        return self.source

    def __repr__(self) -> str:
        from weft.ir.text.jaxpr import eqn_text
        return eqn_text(self)


class Jaxpr:
    """A closed program. Immutable by convention; transformations build new ones.

    Programs written for older generations distinguish an open jaxpr from a closed one; here `.jaxpr` is the program itself.

    >>> program = weft.make_jaxpr(lambda x: 2 * x + 1)(3.0)
    >>> len(program.eqns), program.in_avals, program.out_avals, program.effects
    (2, (ShapedArray(float32[], weak_type=True),), (ShapedArray(float32[], weak_type=True),), frozenset())
    >>> program.eqns[0].outvars == program.eqns[1].invars[:1], program.invars[0].aval, len(program.outvars)
    (True, ShapedArray(float32[], weak_type=True), 1)
    >>> program.replace(eqns=program.eqns[:1], outvars=program.eqns[0].outvars).pretty_print()
    '{ lambda ; a:f32[]. let b:f32[] = mul 2.0:f32[] a in (b,) }'
    """
    __slots__ = ("constvars", "consts", "invars", "outvars", "eqns", "effects", "name", "__weakref__", "_cache")

    def __init__(self, constvars: Sequence[Var], consts: Sequence[Any], invars: Sequence[Var], outvars: Sequence[Atom],
                 eqns: Sequence[Eqn], effects: frozenset | None = None, name: str = ""):
        assert len(constvars) == len(consts)
        self.constvars = tuple(constvars)
        self.consts = tuple(consts)
        self.invars = tuple(invars)
        self.outvars = tuple(outvars)
        self.eqns = tuple(eqns)
        if effects is None:
            effects = frozenset().union(*(e.effects for e in self.eqns if e.effects))
        self.effects = effects
        self.name = name
        self._cache: dict = {}          # per-program memo of transformations (freed with the program)

    @property
    def jaxpr(self) -> "Jaxpr":
        return self

    @property
    def literals(self) -> tuple:
        return self.consts

    @property
    def in_avals(self) -> tuple[ShapedArray, ...]:
        return tuple(v.aval for v in self.invars)

    @property
    def out_avals(self) -> tuple[ShapedArray, ...]:
        return tuple(v.aval for v in self.outvars)

    def replace(self, **changes) -> "Jaxpr":
        get = changes.get
        effects = get("effects", None if "eqns" in changes else self.effects)
        return Jaxpr(get("constvars", self.constvars), get("consts", self.consts), get("invars", self.invars),
                     get("outvars", self.outvars), get("eqns", self.eqns), effects, get("name", self.name))

    def memo(self, key, make):
        """The cached result of transformation `key` on this program, made on first use."""
        try:
            return self._cache[key]
        except KeyError:
            result = self._cache[key] = make()
            return result

    def pretty_print(self, *, source_info: bool = False, print_shapes: bool = True, print_effects: bool = False, width: int = 80,
                     custom_pp_eqn_rules: bool = True, **_options) -> str:
        """The program as text, as JAX writes it; without `custom_pp_eqn_rules` to the letter, as `ir.text.parse` reads it."""
        from weft.ir.text.jaxpr import jaxpr_text, shown_text
        if not custom_pp_eqn_rules:
            return jaxpr_text(self)
        return shown_text(self, source_info=source_info, print_shapes=print_shapes, print_effects=print_effects, width=width)

    def __repr__(self) -> str:
        return self.pretty_print()

    __str__ = __repr__


ClosedJaxpr = Jaxpr


def subjaxprs(params: dict) -> Iterable[tuple[str, Jaxpr]]:
    """The jaxprs among an equation's parameters, with their parameter names (tuples of jaxprs are walked too)."""
    for key, value in params.items():
        if isinstance(value, Jaxpr):
            yield key, value
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, Jaxpr):
                    yield key, item
