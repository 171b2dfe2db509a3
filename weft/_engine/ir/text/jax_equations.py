"""Equations in JAX's notation: its names of operations and parameters, and its broadcasting.

In:   equations; only their attributes are used.
Out:  `TextLine`s for the printer, which describe the same computation with these differences:
      - parameters that JAX has and weft does not are added with the value that they would have (`_FORMS`); parameters that JAX
        does not have are omitted;
      - operands that weft broadcasts to the shape of the result have dims of size 1 if JAX's operation broadcasts them; scalar
        cases of `select_n` are arrays; in a `shard_map`, numbers become varying by an explicit `pvary`.
Computations that weft and JAX express with different operations are printed unchanged.
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


class EquationLike(Protocol):
    """An equation of a program, or an equation that exists in the text only."""

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


class ProgramLike(Protocol):
    """A program, or a program that exists in the text only."""

    @property
    def invars(self) -> Sequence[Any]: ...
    @property
    def outvars(self) -> Sequence[Any]: ...
    @property
    def eqns(self) -> Sequence[EquationLike]: ...
    @property
    def constvars(self) -> Sequence[Any]: ...
    @property
    def effects(self) -> Iterable[Any]: ...


#: a function that returns the parameters of an equation in JAX's form
Form = Callable[[EquationLike, Params], Params]


class TextLine(NamedTuple):
    """An equation in its printed form."""

    outvars: Sequence[Any]
    name: str
    params: Sequence[tuple[str, Any]]
    invars: Sequence[Any]
    source: Any = None


class _TextVariable:
    """A variable that exists in the text only."""

    unused = False

    def __init__(self, aval: Any):
        self.aval = aval


class _Number(NamedTuple):
    """A literal that exists in the text only."""

    val: Any
    aval: Any


class _TextProgram(NamedTuple):
    """A program that exists in the text only."""

    invars: Sequence[Any]
    outvars: Sequence[Any]
    eqns: Sequence[EquationLike]
    constvars: Sequence[Any] = ()
    effects: Iterable[Any] = ()


class _TextEquation(NamedTuple):
    """An equation that exists in the text only."""

    outvars: Sequence[Any]
    primitive: Any
    params: Params
    invars: Sequence[Any]
    source: Any = None


def inner_programs(line: TextLine) -> list[ProgramLike]:
    """Return the programs among the parameters of an equation."""
    programs: list[ProgramLike] = []
    for _, value in line.params:
        programs += [
            v for v in (value if class_of(value) is tuple else (value,)) if hasattr(v, "eqns")
        ]
    return programs


_ADDRESS = re.compile(" at 0x[0-9a-f]+")  # removed, so that equal programs have equal texts


def value_text(value: Any) -> str:
    """Return a parameter as text; JAX writes a parameter by `str`, and the elements of tuples by `repr`."""
    if isinstance(value, enum.Enum) and not isinstance(value, enum.IntEnum):
        return str(value)
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
    """Return a form that adds parameters with constant values."""
    return lambda eqn, p: {**p, **more}


def _without(*names: str) -> Form:
    """Return a form that removes parameters."""
    return lambda eqn, p: {k: v for k, v in p.items() if k not in names}


def _only(p: Params, default: Any, *names: str) -> Params:
    """Remove the parameters in `names` whose value, or each element of a tuple value, is the default."""

    def plain(v: Any) -> bool:
        return all(x == default for x in v) if is_tuple(v) else v == default

    return {k: v for k, v in p.items() if k not in names or not plain(v)}


def _broadcast_in_dim(eqn: EquationLike, p: Params) -> Params:
    dims = p["broadcast_dimensions"]
    return {"broadcast_dimensions": dims} if dims else {}


def _dot_general(eqn: EquationLike, p: Params) -> Params:
    contract, batch = p["dimension_numbers"]
    numbers = tuple(tuple(map(list, pair)) for pair in (contract, batch))
    return {k: v for k, v in {**p, "dimension_numbers": numbers}.items() if v is not None}


def _jit(eqn: EquationLike, p: Params) -> Params:
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


def _custom_jvp(eqn: EquationLike, p: Params) -> Params:
    return {
        "name": p["name"],
        "call_jaxpr": p["jaxpr"],
        "jvp": _name(p["jvp"]),
        "symbolic_zeros": False,
        **_only({"num_consts": p["num_consts"]}, 0, "num_consts"),
    }


def _custom_vjp(eqn: EquationLike, p: Params) -> Params:
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


def _checkpoint(eqn: EquationLike, p: Params) -> Params:
    barred = p["prevent_cse"]
    prevents_cse = any(barred) if p["differentiated"] and is_tuple(barred) else barred
    return {
        "differentiated": p["differentiated"],
        "jaxpr": p["jaxpr"],
        "policy": p["policy"],
        "prevent_cse": prevents_cse,
    }


def _scatter(eqn: EquationLike, p: Params) -> Params:
    return {**p, "update_consts": (), "update_jaxpr": _update(eqn)}


def _update(eqn: EquationLike) -> _TextProgram | None:
    """Return the program that combines an element and an update; None if the update replaces the element."""
    primitive = find(eqn.primitive.name.removeprefix("scatter-"))
    if eqn.primitive.name == "scatter" or primitive is None:
        return None
    scalar = eqn.outvars[0].aval.update(shape=(), weak_type=False)
    if (primitive, scalar) not in _updates:
        one, other, result = _TextVariable(scalar), _TextVariable(scalar), _TextVariable(scalar)
        _updates[primitive, scalar] = _TextProgram(
            (one, other), (result,), (_TextEquation((result,), primitive, {}, (one, other)),)
        )
    return _updates[primitive, scalar]


_updates: dict[tuple[Any, ...], _TextProgram] = {}


def _psum(eqn: EquationLike, p: Params) -> Params:
    return {"axes": p["axes"]} if _is_invariant(eqn) else p


def _is_invariant(eqn: EquationLike) -> bool:
    return bool(eqn.invars and eqn.invars[0].aval.vma) and not eqn.params.get("axis_index_groups")


def _all_to_all(eqn: EquationLike, p: Params) -> Params:
    axes = p["axis_name"]
    return {
        **{k: v for k, v in p.items() if k != "axis_size"},
        "axis_name": axes[0] if len(axes) == 1 else axes,
    }


def _shard_map(eqn: EquationLike, p: Params) -> Params:
    return {
        **{k: v for k, v in p.items() if k != "manual_axes"},
        "newly_manual_axes": frozenset(p["manual_axes"]),
    }


def _sharding_constraint(eqn: EquationLike, p: Params) -> Params:
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


#: operation -> its form, if its parameters in JAX differ
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


def _shown_name(eqn: EquationLike) -> str:
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


def _reduction(eqn: EquationLike) -> str:
    """Return JAX's name of a sum over devices, which depends on whether the operand is unreduced or varies over the axes."""
    name = eqn.primitive.name
    axes = frozenset(eqn.params["axes"] if name == "psum" else eqn.params["axis_name"])
    if eqn.invars and axes <= eqn.invars[0].aval.vma_unreduced:
        return f"unreduced_{name}"
    return "psum_invariant" if name == "psum" and _is_invariant(eqn) else name


def _line(eqn: EquationLike, outvars: Sequence[Any], invars: Sequence[Any]) -> TextLine:
    operation = eqn.params.get("name")
    if operation is not None and hasattr(operation, "shown") and eqn.primitive.kind == "region":
        return TextLine(outvars, operation, operation.shown, invars, eqn.source)
    form = _FORMS.get(eqn.primitive.name) if eqn.primitive.kind != "extension" else None
    implied = eqn.primitive.implied
    params = (
        {k: v for k, v in eqn.params.items() if k not in implied}
        if form is None
        else form(eqn, eqn.params)
    )
    named = {"name"} if eqn.primitive.kind == "region" else ()
    return TextLine(
        outvars,
        _shown_name(eqn),
        sorted(params.items(), key=lambda kv: (kv[0] not in named, kv[0])),
        invars,
        eqn.source,
    )


# --- broadcasting -----------------------------------------------------------------------------------------------------


def printed_lines(
    eqns: Sequence[EquationLike], outvars: Sequence[Any] = ()
) -> tuple[list[TextLine], dict[Any, Any]]:
    """Return the equations of one program as lines, and value -> replacement for values that are not printed.

    `outvars` are the results of the program.
    """
    return _BroadcastRemoval(eqns, outvars).lines()


class _BroadcastRemoval:
    """The conversion of the equations of one program: values that JAX's operations broadcast are not broadcast by equations."""

    def __init__(self, eqns: Sequence[EquationLike], outvars: Sequence[Any]):
        self.eqns = eqns
        self.makers = {v: eqn for eqn in eqns for v in eqn.outvars}
        self.readers: dict[Any, list[EquationLike]] = defaultdict(list)
        for eqn in eqns:
            for atom in eqn.invars:
                if not hasattr(atom, "val"):
                    self.readers[atom].append(eqn)
        self.results = {a for a in outvars if not hasattr(a, "val")}
        self.small: dict[Any, tuple[Any, ...]] = {
            v: shape for v, shape in map(self.candidate, eqns) if shape is not None
        }
        # keep the broadcast of values that an operation needs in full shape
        while self.small:
            needed = {
                a for eqn in eqns for a in eqn.invars if a in self.small and not self.repeats(eqn)
            }
            if not needed:
                break
            for v in needed:
                del self.small[v]

    def candidate(self, eqn: EquationLike) -> tuple[Any, tuple[Any, ...] | None]:
        """Return the result of an equation, and its shape before broadcasting if the equation may be omitted, else None."""
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

    def repeats(self, eqn: EquationLike) -> bool:
        """Return whether JAX's operation broadcasts its operands, in their shapes before broadcasting, to the result's shape."""
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
        """Return the shape of a value before broadcasting."""
        if hasattr(atom, "val"):
            return ()
        return self.small[atom] if atom in self.small else atom.aval.shape

    def lines(self) -> tuple[list[TextLine], dict[Any, Any]]:
        lines: list[TextLine] = []
        other: dict[Any, Any] = {}  # value -> its replacement in the text
        for eqn in self.eqns:
            ins = [a if hasattr(a, "val") else other.get(a, a) for a in eqn.invars]
            if not self.is_replaced(eqn, ins, lines, other):
                lines.append(_line(eqn, eqn.outvars, self.operands(eqn, ins, lines)))
        return lines, other

    def is_replaced(
        self, eqn: EquationLike, ins: list[Any], lines: list[TextLine], other: dict[Any, Any]
    ) -> bool:
        """Write an equation that JAX does not have as other lines, or omit it; return whether this was done."""
        if not eqn.outvars:
            return False
        out, primitive = eqn.outvars[0], eqn.primitive
        if out in self.small:
            other[out] = ins[0]
            if ins[0].aval.shape != self.small[out]:
                other[out] = _TextVariable(out.aval.update(shape=self.small[out]))
                lines.append(_line(eqn, [other[out]], ins))
            return True
        if primitive.computes == "cast" and ins[0].aval.update(weak_type=True) is out.aval:
            other[out] = ins[0]  # JAX's tangents have the weak type of their primals
            return True
        return (
            bool(primitive.overwrites)
            and all(hasattr(a, "val") and a.aval.weak_type for a in ins[2:])
            and self.scatter(eqn, ins, lines)
        )

    def operands(self, eqn: EquationLike, ins: list[Any], lines: list[TextLine]) -> list[Any]:
        """Return the operands of an equation in JAX's form; append the lines that compute them."""
        primitive, aval = eqn.primitive, eqn.outvars[0].aval if eqn.outvars else None
        if (
            primitive.name == "cond"
            and primitive.kind == "region"
            and not self.selects_by_bool(eqn)
        ):
            return [self.clamp(ins[0], len(eqn.params["branches"]) - 1, lines, eqn), *ins[1:]]
        if aval is None:
            return ins
        if primitive.computes == "select" and aval.shape:
            ins = [ins[0], *[self.whole(a, aval.shape, lines, eqn) for a in ins[1:]]]
        if primitive.kind == "elementwise" and aval.vma:
            ins = [self.varying(a, aval.vma, lines, eqn) for a in ins]
        return ins

    def whole(
        self, atom: Any, shape: tuple[int, ...], lines: list[TextLine], eqn: EquationLike
    ) -> Any:
        if atom.aval.shape == shape:
            return atom
        broadcasted = _TextVariable(atom.aval.update(shape=shape))
        lines.append(TextLine([broadcasted], "broadcast_in_dim", [], [atom], eqn.source))
        return broadcasted

    def scatter(self, eqn: EquationLike, ins: list[Any], lines: list[TextLine]) -> bool:
        """Write an update at Python integers, `x.at[0].set(y)`, as a scatter, as in JAX; return whether this was possible."""
        x, block, *starts = ins
        shape, sizes, values = x.aval.shape, block.aval.shape, block
        reshape_line = (
            lines[-1]
            if lines
            and lines[-1].outvars
            and lines[-1].outvars[0] is block
            and lines[-1].name == "reshape"
            else None
        )
        if reshape_line is not None:
            values = reshape_line.invars[0]
        indexed = [d for d, start in enumerate(starts) if start.val or sizes[d] != shape[d]]
        points = sorted(range(len(sizes)), key=lambda d: (sizes[d] != 1, d not in indexed, d))[
            : len(sizes) - values.aval.ndim
        ]
        if tuple(n for d, n in enumerate(sizes) if d not in points) != values.aval.shape:
            return False
        if reshape_line is not None:
            lines.pop()
        # JAX converts the values after it has computed the positions
        moved: list[TextLine] = []
        while (
            lines
            and lines[-1].name in ("broadcast_in_dim", "convert_element_type")
            and lines[-1].outvars[0] is (moved[0].invars[0] if moved else values)
        ):
            moved.insert(0, lines.pop())
        indexed = sorted({*indexed, *points})
        start_aval = starts[0].aval.update(shape=(1,), weak_type=False)
        parts = [_TextVariable(start_aval) for _ in indexed]
        lines += [
            TextLine([part], "broadcast_in_dim", [], [starts[d]], eqn.source)
            for part, d in zip(parts, indexed)
        ]
        if len(parts) != 1:
            parts.append(_TextVariable(start_aval.update(shape=(len(parts),))))
            lines.append(
                TextLine(parts[-1:], "concatenate", [("dimension", 0)], parts[:-1], eqn.source)
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
        lines += [
            *moved,
            TextLine(eqn.outvars, "scatter", params, [x, parts[-1], values], eqn.source),
        ]
        return True

    def selects_by_bool(self, eqn: EquationLike) -> bool:
        """Return whether a bool selects the branch of a `cond`. JAX clamps other indices with a separate equation."""
        atom = eqn.invars[0]
        maker = None if hasattr(atom, "val") else self.makers.get(atom)
        return (
            maker is not None
            and maker.primitive.computes == "cast"
            and maker.invars[0].aval.dtype == np.bool_
        )

    def clamp(self, atom: Any, last: int, lines: list[TextLine], eqn: EquationLike) -> Any:
        clamped_index = _TextVariable(atom.aval)
        lines.append(
            TextLine(
                [clamped_index],
                "clamp",
                [],
                [_Number(0, atom.aval), atom, _Number(last, atom.aval)],
                eqn.source,
            )
        )
        return clamped_index

    def varying(
        self, atom: Any, axes: frozenset[Any], lines: list[TextLine], eqn: EquationLike
    ) -> Any:
        if not hasattr(atom, "val"):
            return atom
        varied = _TextVariable(atom.aval.update(vma=axes))
        lines.append(
            TextLine(
                [varied], "pvary", [("axes", tuple(sorted(axes, key=str)))], [atom], eqn.source
            )
        )
        return varied
