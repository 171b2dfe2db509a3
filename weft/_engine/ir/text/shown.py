"""Equations as JAX writes them: its names of operations and parameters, its way to broadcast.

In:   equations, known by their attributes.
Out:  `Line`s, which the printer writes. They say what the equations say, in other words:
      - parameters that JAX has and weft does not need are given the value they would have (`_FORMS`), others are left out;
      - operands that weft repeats to the shape of a result are written with dims of size 1 where JAX leaves the repetition to the
        operation; cases of `select_n` that are scalars here are arrays there, and numbers vary in a `shard_map` only by `pvary`.
What weft computes by other operations than JAX stays as it is.
"""

from __future__ import annotations

import enum
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from weft._engine.ir.mesh import Mesh
from weft._engine.ir.registry import find
from weft._engine.ir.shardings import NamedSharding
from weft._engine.util.trees.narrowing import class_of, is_list, is_tuple

Params = dict[str, Any]


class Equation(Protocol):
    """An equation of a program, or one that only the text has."""

    @property
    def outvars(self) -> Sequence[Any]: ...
    @property
    def primitive(self) -> Any: ...
    @property
    def params(self) -> Params: ...
    @property
    def invars(self) -> Sequence[Any]: ...
    @property
    def source(self) -> Any: ...


class Program(Protocol):
    """A program, or one that only the text has."""

    @property
    def invars(self) -> Sequence[Any]: ...
    @property
    def outvars(self) -> Sequence[Any]: ...
    @property
    def eqns(self) -> Sequence[Equation]: ...
    @property
    def constvars(self) -> Sequence[Any]: ...
    @property
    def effects(self) -> Iterable[Any]: ...


#: the parameters of an equation as JAX has them
Form = Callable[[Equation, Params], Params]


class Line(NamedTuple):
    """An equation as it is written."""

    outvars: Sequence[Any]
    name: str
    params: Sequence[tuple[str, Any]]
    invars: Sequence[Any]
    source: Any = None


class _Value:
    """A variable that only the text has."""

    unused = False

    def __init__(self, aval: Any):
        self.aval = aval


class _Number(NamedTuple):
    """A number that only the text has."""

    val: Any
    aval: Any


class _Program(NamedTuple):
    """A program that only the text has."""

    invars: Sequence[Any]
    outvars: Sequence[Any]
    eqns: Sequence[Equation]
    constvars: Sequence[Any] = ()
    effects: Iterable[Any] = ()


class _Equation(NamedTuple):
    """An equation that only the text has."""

    outvars: Sequence[Any]
    primitive: Any
    params: Params
    invars: Sequence[Any]
    source: Any = None


def held(line: Line) -> list[Program]:
    """The programs among the parameters of an equation."""
    found: list[Program] = []
    for _, value in line.params:
        found += [
            v for v in (value if class_of(value) is tuple else (value,)) if hasattr(v, "eqns")
        ]
    return found


_ADDRESS = re.compile(" at 0x[0-9a-f]+")  # equal programs have equal texts


def shown_value(value: Any) -> str:
    """A parameter as text."""
    return value if isinstance(value, str) else _repr(value)


def _repr(value: Any) -> str:
    if isinstance(value, np.dtype):
        return value.name
    if class_of(value) is tuple:
        return f"({', '.join(map(_repr, value))}{',' if len(value) == 1 else ''})"
    if is_list(value):
        return f"[{', '.join(map(_repr, value))}]"
    if issubclass(class_of(value), frozenset):
        return f"frozenset({{{', '.join(sorted(map(_repr, value)))}}})"
    if issubclass(class_of(value), np.generic):
        return repr(value.item())
    if isinstance(value, Mesh):
        return str(value)
    if isinstance(value, enum.IntEnum):
        return str(int(value))
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    return _ADDRESS.sub("", repr(value))


# --- parameters -------------------------------------------------------------------------------------------------------


def _with(**more: Any) -> Form:
    """Parameters that weft does not need, at the values they always have."""
    return lambda eqn, p: {**p, **more}


def _without(*names: str) -> Form:
    return lambda eqn, p: {k: v for k, v in p.items() if k not in names}


def _only(p: Params, default: Any, *names: str) -> Params:
    """Without those of `names` that have their default in all places."""

    def plain(v: Any) -> bool:
        return all(x == default for x in v) if is_tuple(v) else v == default

    return {k: v for k, v in p.items() if k not in names or not plain(v)}


def _broadcast_in_dim(eqn: Equation, p: Params) -> Params:
    dims = p["broadcast_dimensions"]
    return {"broadcast_dimensions": dims} if dims else {}


def _dot_general(eqn: Equation, p: Params) -> Params:
    contract, batch = p["dimension_numbers"]
    numbers = tuple(tuple(map(list, pair)) for pair in (contract, batch))
    return {k: v for k, v in {**p, "dimension_numbers": numbers}.items() if v is not None}


def _jit(eqn: Equation, p: Params) -> Params:
    shardings = {
        k: tuple(_Unspecified() if s is None else s for s in p[k])
        for k in ("in_shardings", "out_shardings")
        if any(s is not None for s in p[k])
    }
    more = {"donated_invars": p["donated"]} if any(p["donated"]) else {}
    more |= {"keep_unused": True} if p["keep_unused"] else {}
    return {"name": p["name"], "jaxpr": p["jaxpr"], **shardings, **more}


class _Unspecified:
    def __repr__(self) -> str:
        return "UnspecifiedValue"


def _custom_jvp(eqn: Equation, p: Params) -> Params:
    return {
        "name": p["name"],
        "call_jaxpr": p["jaxpr"],
        "jvp": _name(p["jvp"]),
        "symbolic_zeros": False,
        **_only({"num_consts": p["num_consts"]}, 0, "num_consts"),
    }


def _custom_vjp(eqn: Equation, p: Params) -> Params:
    rules = p["rules"]
    return {
        "name": p["name"],
        "bwd": _name(rules.bwd),
        "call_jaxpr": p["jaxpr"],
        "fwd": _name(rules.fwd),
        "symbolic_zeros": False,
        **_only({"num_consts": p["num_consts"]}, 0, "num_consts"),
    }


def _name(fun: Any) -> str:
    return getattr(fun, "__name__", type(fun).__name__)


def _checkpoint(eqn: Equation, p: Params) -> Params:
    barred = p["prevent_cse"]
    apart = any(barred) if p["differentiated"] and is_tuple(barred) else barred
    return {
        "differentiated": p["differentiated"],
        "jaxpr": p["jaxpr"],
        "policy": p["policy"],
        "prevent_cse": apart,
    }


def _scatter(eqn: Equation, p: Params) -> Params:
    return {**p, "update_consts": (), "update_jaxpr": _update(eqn)}


def _update(eqn: Equation) -> _Program | None:
    """The program that puts an update and an element together."""
    primitive = find(eqn.primitive.name.removeprefix("scatter-"))
    if eqn.primitive.name == "scatter" or primitive is None:
        return None
    scalar = eqn.outvars[0].aval.update(shape=(), weak_type=False)
    if (primitive, scalar) not in _updates:
        one, other, result = _Value(scalar), _Value(scalar), _Value(scalar)
        _updates[primitive, scalar] = _Program(
            (one, other), (result,), (_Equation((result,), primitive, {}, (one, other)),)
        )
    return _updates[primitive, scalar]


_updates: dict[tuple[Any, ...], _Program] = {}


def _psum(eqn: Equation, p: Params) -> Params:
    return {"axes": p["axes"]} if _is_invariant(eqn) else p


def _is_invariant(eqn: Equation) -> bool:
    return bool(eqn.invars and eqn.invars[0].aval.vma) and not eqn.params.get("axis_index_groups")


def _all_to_all(eqn: Equation, p: Params) -> Params:
    axes = p["axis_name"]
    return {
        **{k: v for k, v in p.items() if k != "axis_size"},
        "axis_name": axes[0] if len(axes) == 1 else axes,
    }


def _shard_map(eqn: Equation, p: Params) -> Params:
    return {
        **{k: v for k, v in p.items() if k != "manual_axes"},
        "newly_manual_axes": frozenset(p["manual_axes"]),
    }


def _sharding_constraint(eqn: Equation, p: Params) -> Params:
    free: frozenset[int] = (
        p["sharding"].spec.unconstrained_dims()
        if isinstance(p["sharding"], NamedSharding)
        else frozenset()
    )
    return {
        "context_mesh": _EmptyMesh(),
        "layout": None,
        "sharding": p["sharding"],
        "unconstrained_dims": free,
    }


class _EmptyMesh:
    def __repr__(self) -> str:
        return "Mesh()"


#: operation -> its parameters as JAX has them, where they are others than here
_FORMS: dict[str, Form] = {
    "all_to_all": _all_to_all,
    "broadcast_in_dim": _broadcast_in_dim,
    "checkpoint": _checkpoint,
    "conj": lambda eqn, p: {"input_dtype": eqn.invars[0].aval.dtype},
    "conv_general_dilated": _with(out_sharding=None),
    "convert_element_type": _without("sharding"),
    "custom_jvp_call": _custom_jvp,
    "custom_vjp_call": _custom_vjp,
    "dot_general": _dot_general,
    "eigh": _with(algorithm=None, subset_by_index=None),
    "iota": _with(sharding=None),
    "jit": _jit,
    "psum": _psum,
    "qr": _with(use_magma=None),
    "random_wrap": lambda eqn, p: {"impl": p["impl"].tag},
    "reduce_sum": _with(out_sharding=None),
    "reshape": _with(dimensions=None, sharding=None),
    "scan": _without("linear"),
    "scatter": _scatter,
    "scatter-add": _scatter,
    "scatter-max": _scatter,
    "scatter-min": _scatter,
    "scatter-mul": _scatter,
    "shard_map": _shard_map,
    "sharding_constraint": _sharding_constraint,
    "svd": _with(algorithm=None, subset_by_index=None),
    "xla_metadata_call": lambda eqn, p: {**dict(p["xla_metadata"]), "jaxpr": p["jaxpr"]},
}


def _shown_name(eqn: Equation) -> str:
    name = eqn.primitive.name
    if eqn.primitive.kind == "extension":
        return name
    return (
        "remat2"
        if name == "checkpoint"
        else _reduction(eqn)
        if name in ("psum", "reduce_scatter")
        else name
    )


def _reduction(eqn: Equation) -> str:
    """What a sum over devices is called by the type of its operand: over axes along which that is unreduced, or varies."""
    name = eqn.primitive.name
    axes = frozenset(eqn.params["axes"] if name == "psum" else eqn.params["axis_name"])
    if eqn.invars and axes <= eqn.invars[0].aval.vma_unreduced:
        return f"unreduced_{name}"
    return "psum_invariant" if name == "psum" and _is_invariant(eqn) else name


def _line(eqn: Equation, outvars: Sequence[Any], invars: Sequence[Any]) -> Line:
    operation = eqn.params.get("name")
    if operation is not None and hasattr(operation, "shown") and eqn.primitive.kind == "region":
        return Line(outvars, operation, operation.shown, invars, eqn.source)
    form = _FORMS.get(eqn.primitive.name) if eqn.primitive.kind != "extension" else None
    implied = eqn.primitive.implied
    params = (
        {k: v for k, v in eqn.params.items() if k not in implied}
        if form is None
        else form(eqn, eqn.params)
    )
    named = {"name"} if eqn.primitive.kind == "region" else ()
    return Line(
        outvars,
        _shown_name(eqn),
        sorted(params.items(), key=lambda kv: (kv[0] not in named, kv[0])),
        invars,
        eqn.source,
    )


# --- broadcasting -----------------------------------------------------------------------------------------------------


def lines_of(
    eqns: Sequence[Equation], outvars: Sequence[Any] = ()
) -> tuple[list[Line], dict[Any, Any]]:
    """Equations of one program as they are written, and what stands for values that are not; `outvars` are the program's results."""
    return _Broadcasts(eqns, outvars).lines()


class _Broadcasts:
    """Which values are repeated by the operations that read them, and the equations without what repeats them here."""

    def __init__(self, eqns: Sequence[Equation], outvars: Sequence[Any]):
        self.eqns = eqns
        self.makers = {v: eqn for eqn in eqns for v in eqn.outvars}
        self.readers: dict[Any, list[Equation]] = defaultdict(list)
        for eqn in eqns:
            for atom in eqn.invars:
                if not hasattr(atom, "val"):
                    self.readers[atom].append(eqn)
        self.results = {a for a in outvars if not hasattr(a, "val")}
        self.small: dict[Any, tuple[Any, ...]] = {
            v: shape for v, shape in map(self.candidate, eqns) if shape is not None
        }
        while self.small:  # what some operation needs whole is whole
            wrong = {
                a for eqn in eqns for a in eqn.invars if a in self.small and not self.repeats(eqn)
            }
            if not wrong:
                break
            for v in wrong:
                del self.small[v]

    def candidate(self, eqn: Equation) -> tuple[Any, tuple[Any, ...] | None]:
        """The result of an equation, and its shape before it is repeated."""
        if not eqn.outvars:
            return None, None
        out = eqn.outvars[0]
        if (
            eqn.primitive.kind != "layout"
            or eqn.primitive.name != "broadcast_in_dim"
            or out in self.results
            or not self.readers[out]
        ):
            return out, None
        dims, have = eqn.params["broadcast_dimensions"], eqn.invars[0].aval.shape
        if not dims or out.aval.explicit is not None:
            return out, None
        sizes = dict(zip(dims, have))
        return out, tuple([sizes.get(d, 1) for d in range(out.aval.ndim)])

    def repeats(self, eqn: Equation) -> bool:
        """Whether an operation gives its result from operands of these shapes."""
        if (
            eqn.primitive.kind != "elementwise"
            or eqn.primitive.computes == "select"
            or eqn.primitive.name == "clamp"
        ):
            return False
        shapes = [self.shape_of(a) for a in eqn.invars]
        shape = eqn.outvars[0].aval.shape
        return (
            all(len(s) in (0, len(shape)) for s in shapes) and np.broadcast_shapes(*shapes) == shape
        )

    def shape_of(self, atom: Any) -> tuple[int, ...]:
        """Return the shape of a value before it is repeated."""
        if hasattr(atom, "val"):
            return ()
        return self.small[atom] if atom in self.small else atom.aval.shape

    def lines(self) -> tuple[list[Line], dict[Any, Any]]:
        lines: list[Line] = []
        other: dict[Any, Any] = {}  # what stands for a value in the text
        for eqn in self.eqns:
            ins = [a if hasattr(a, "val") else other.get(a, a) for a in eqn.invars]
            if not self.is_replaced(eqn, ins, lines, other):
                lines.append(_line(eqn, eqn.outvars, self.operands(eqn, ins, lines)))
        return lines, other

    def is_replaced(
        self, eqn: Equation, ins: list[Any], lines: list[Line], other: dict[Any, Any]
    ) -> bool:
        """Write an equation as other lines, or as none, where JAX has no such equation."""
        if not eqn.outvars:
            return False
        out, primitive = eqn.outvars[0], eqn.primitive
        if out in self.small:
            other[out] = ins[0]
            if ins[0].aval.shape != self.small[out]:
                other[out] = _Value(out.aval.update(shape=self.small[out]))
                lines.append(_line(eqn, [other[out]], ins))
            return True
        if primitive.computes == "cast" and ins[0].aval.update(weak_type=True) is out.aval:
            other[out] = ins[0]  # a derivative is as weak as its primal
            return True
        return (
            bool(primitive.overwrites)
            and all(hasattr(a, "val") and a.aval.weak_type for a in ins[2:])
            and self.scattered(eqn, ins, lines)
        )

    def operands(self, eqn: Equation, ins: list[Any], lines: list[Line]) -> list[Any]:
        """Return the operands that JAX has for an equation, after the lines that compute them."""
        primitive, aval = eqn.primitive, eqn.outvars[0].aval if eqn.outvars else None
        if primitive.name == "cond" and primitive.kind == "region" and not self.asks_bool(eqn):
            return [self.clamped(ins[0], len(eqn.params["branches"]) - 1, lines, eqn), *ins[1:]]
        if aval is None:
            return ins
        if primitive.computes == "select" and aval.shape:
            ins = [ins[0], *[self.whole(a, aval.shape, lines, eqn) for a in ins[1:]]]
        if primitive.kind == "elementwise" and aval.vma:
            ins = [self.varying(a, aval.vma, lines, eqn) for a in ins]
        return ins

    def whole(self, atom: Any, shape: tuple[int, ...], lines: list[Line], eqn: Equation) -> Any:
        if atom.aval.shape == shape:
            return atom
        made = _Value(atom.aval.update(shape=shape))
        lines.append(Line([made], "broadcast_in_dim", [], [atom], eqn.source))
        return made

    def scattered(self, eqn: Equation, ins: list[Any], lines: list[Line]) -> bool:
        """Write an update at Python integers, `x.at[0].set(y)`, as the scatter that it is for JAX; whether that was done."""
        x, block, *starts = ins
        shape, sizes, values = x.aval.shape, block.aval.shape, block
        made = (
            lines[-1]
            if lines
            and lines[-1].outvars
            and lines[-1].outvars[0] is block
            and lines[-1].name == "reshape"
            else None
        )
        if made is not None:
            values = made.invars[0]
        indexed = [d for d, start in enumerate(starts) if start.val or sizes[d] != shape[d]]
        points = sorted(range(len(sizes)), key=lambda d: (sizes[d] != 1, d not in indexed, d))[
            : len(sizes) - values.aval.ndim
        ]
        if tuple(n for d, n in enumerate(sizes) if d not in points) != values.aval.shape:
            return False
        if made is not None:
            lines.pop()
        moved: list[
            Line
        ] = []  # JAX gives the values their type and shape after it has made the positions
        while (
            lines
            and lines[-1].name in ("broadcast_in_dim", "convert_element_type")
            and lines[-1].outvars[0] is (moved[0].invars[0] if moved else values)
        ):
            moved.insert(0, lines.pop())
        indexed = sorted({*indexed, *points})
        one = starts[0].aval.update(shape=(1,), weak_type=False)
        parts = [_Value(one) for _ in indexed]
        lines += [
            Line([part], "broadcast_in_dim", [], [starts[d]], eqn.source)
            for part, d in zip(parts, indexed)
        ]
        if len(parts) != 1:
            parts.append(_Value(one.update(shape=(len(parts),))))
            lines.append(
                Line(parts[-1:], "concatenate", [("dimension", 0)], parts[:-1], eqn.source)
            )
        numbers = (
            f"ScatterDimensionNumbers(update_window_dims={tuple(range(values.aval.ndim))}, "
            f"inserted_window_dims={tuple(sorted(points))}, scatter_dims_to_operand_dims={tuple(indexed)}, "
            "operand_batching_dims=(), scatter_indices_batching_dims=())"
        )
        params = [
            ("dimension_numbers", numbers),
            ("indices_are_sorted", True),
            ("mode", "GatherScatterMode.FILL_OR_DROP"),
            ("unique_indices", True),
            ("update_consts", ()),
            ("update_jaxpr", None),
        ]
        lines += [*moved, Line(eqn.outvars, "scatter", params, [x, parts[-1], values], eqn.source)]
        return True

    def asks_bool(self, eqn: Equation) -> bool:
        """Whether the branch of a `cond` is chosen by a bool; other numbers are moved into bounds by the operation."""
        atom = eqn.invars[0]
        maker = None if hasattr(atom, "val") else self.makers.get(atom)
        return (
            maker is not None
            and maker.primitive.computes == "cast"
            and maker.invars[0].aval.dtype == np.bool_
        )

    def clamped(self, atom: Any, last: int, lines: list[Line], eqn: Equation) -> Any:
        made = _Value(atom.aval)
        lines.append(
            Line(
                [made],
                "clamp",
                [],
                [_Number(0, atom.aval), atom, _Number(last, atom.aval)],
                eqn.source,
            )
        )
        return made

    def varying(self, atom: Any, axes: frozenset[Any], lines: list[Line], eqn: Equation) -> Any:
        if not hasattr(atom, "val"):
            return atom
        made = _Value(atom.aval.update(vma=axes))
        lines.append(
            Line([made], "pvary", [("axes", tuple(sorted(axes, key=str)))], [atom], eqn.source)
        )
        return made
