"""The program of one device as text that users of XLA can read.

In:   a local Jaxpr with its collectives, and the axes of the mesh that it runs on.
Out:  an HLO-style module. It is for people, and for programs that search it ("all-reduce", "collective-permute"); it is not
      parsed again. Devices are numbered by their position in the mesh: `replica_groups` and `source_target_pairs` use these numbers,
      and `known_trip_count` tells how often a loop's body runs, so communication can be counted from the text alone.
Next: `hlo.stablehlo` writes the program before it is partitioned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir.collective_spec import COLLECTIVES, collective_axes, spec_of
from weft.ir.jaxpr import Eqn, Jaxpr, Literal, subjaxprs
from weft.ir.registry import functions
from weft.ir.types import ShapedArray
from weft.util import dtypes

Mesh = Sequence[tuple[Any, int]]

#: primitive -> HLO name, where they differ by more than underscores
_HLO = {
    "mul": "multiply", "sub": "subtract", "div": "divide", "neg": "negate", "max": "maximum", "min": "minimum", "rem": "remainder",
    "integer_pow": "power", "select_n": "select", "convert_element_type": "convert", "bitcast_convert_type": "bitcast-convert",
    "broadcast_in_dim": "broadcast", "rev": "reverse", "dot_general": "dot", "conv_general_dilated": "convolution",
    "lt": "compare", "le": "compare", "gt": "compare", "ge": "compare", "eq": "compare",
    "ne": "compare", "threefry2x32": "rng-bit-generator", "cumsum": "reduce-window", "squeeze": "reshape",
    "expand_dims": "reshape", "sharding_constraint": "custom-call", "scatter_add": "scatter", "scatter-add": "scatter",
    "while": "while", "scan": "while", "cond": "conditional", "jit": "call",
}
_DIRECTIONS = {"lt": "LT", "le": "LE", "gt": "GT", "ge": "GE", "eq": "EQ", "ne": "NE"}


def operands_of(eqn: Eqn) -> Sequence:
    """The operands in HLO's order: its select takes the case of a true predicate first, `select_n` that of a false one."""
    if eqn.primitive.name == "select_n" and len(eqn.invars) == 3:
        which, false, true = eqn.invars
        return which, true, false
    return eqn.invars


def hlo_name(primitive: str) -> str:
    """The HLO name of a primitive.

    >>> hlo_name('psum'), hlo_name('dot_general'), hlo_name('dynamic_slice')
    ('all-reduce', 'dot', 'dynamic-slice')
    """
    if primitive in COLLECTIVES:
        return COLLECTIVES[primitive].hlo
    if primitive.startswith("reduce_"):
        return "reduce"
    function = functions.get(primitive)
    return (function.hlo if function else "") or _HLO.get(primitive, primitive.replace("_", "-"))


def _hlo_type(aval: ShapedArray) -> str:
    name = {"bool": "pred", "i8": "s8", "i16": "s16", "i32": "s32", "i64": "s64"}.get(
        dtypes.short_name(aval.dtype), dtypes.short_name(aval.dtype))
    order = "{" + ",".join(str(d) for d in reversed(range(aval.ndim))) + "}" if aval.ndim else ""
    return f"{name}[{','.join(map(str, aval.shape))}]{order}"


class _Names:
    """A name per variable, numbered by kind of operation."""

    def __init__(self):
        self.names: dict = {}
        self.count = 0

    def new(self, var, base: str) -> str:
        self.count += 1
        name = f"%{base}.{self.count}"
        self.names[var] = name
        return name

    def __getitem__(self, atom) -> str:
        if type(atom) is Literal:
            return f"{_hlo_type(atom.aval)} constant({atom.val})"
        return self.names.get(atom, "%_")


def hlo_text(jaxpr: Jaxpr, name: str, mesh: Mesh = ()) -> str:
    """The program as an HLO-style module, with the user's line at every instruction; `mesh` has the axes and their sizes."""
    label = name.replace("(", "_").replace(")", "").replace("-", "_")
    ins = ", ".join(_hlo_type(a) for a in jaxpr.in_avals)
    outs = ", ".join(_hlo_type(a) for a in jaxpr.out_avals)
    outs = outs if len(jaxpr.out_avals) == 1 else f"({outs})"
    module = _Module(mesh)
    main = module.computation(jaxpr, "main", "ENTRY ")
    devices = f", num_partitions={math.prod(n for _, n in mesh)}" if mesh else ""
    header = f"HloModule {label}, is_scheduled=true, entry_computation_layout={{({ins})->{outs}}}{devices}\n"
    return "\n".join([header, *module.bodies, main])


class _Module:
    """The computations of a module, those inside others first."""

    def __init__(self, mesh: Mesh):
        self.mesh, self.bodies, self.count = mesh, [], 0

    def computation(self, jaxpr: Jaxpr, name: str, prefix: str = "") -> str:
        names = _Names()
        lines = []
        for i, var in enumerate((*jaxpr.constvars, *jaxpr.invars)):
            lines.append(f"  {names.new(var, 'param')} = {_hlo_type(var.aval)} parameter({i})")
        for eqn in jaxpr.eqns:
            lines += self.instruction(eqn, names)
        outs = ", ".join(names[a] for a in jaxpr.outvars)
        types = ", ".join(_hlo_type(a) for a in jaxpr.out_avals)
        lines.append(f"  ROOT %tuple.{names.count + 1} = ({types}) tuple({outs})")
        params = ", ".join(f"{names[v][1:]}: {_hlo_type(v.aval)}" for v in (*jaxpr.constvars, *jaxpr.invars))
        return f"{prefix}%{name} ({params}) -> ({types}) {{\n" + "\n".join(lines) + "\n}\n"

    def called(self, eqn: Eqn) -> list[str]:
        """The computations that an instruction calls, as its attributes say."""
        found: dict[str, list[str]] = {}
        for key, body in subjaxprs(eqn.params):
            self.count += 1
            role = _ROLES.get((eqn.primitive.name, key), "to_apply")
            label = f"{role.removesuffix('_computations')}.{self.count}"
            self.bodies.append(self.computation(body, label))
            found.setdefault(role, []).append(f"%{label}")
        return [f"{role}={{{', '.join(labels)}}}" if role == "branch_computations" else f"{role}={labels[0]}"
                for role, labels in found.items()]

    def instruction(self, eqn: Eqn, names: _Names) -> list[str]:
        op = "custom-call" if eqn.primitive.kind == "callback" else hlo_name(eqn.primitive.name)
        operands = ", ".join(names[a] for a in operands_of(eqn))
        extra = "".join(f", {x}" for x in (*self.called(eqn), *attributes(eqn, self.mesh)))
        if len(eqn.outvars) == 1:
            var = eqn.outvars[0]
            return [f"  {names.new(var, op)} = {_hlo_type(var.aval)} {op}({operands}){extra}"]
        types = ", ".join(_hlo_type(v.aval) for v in eqn.outvars)
        whole = names.new(object(), op)
        lines = [f"  {whole} = ({types}) {op}({operands}){extra}"]
        for i, var in enumerate(eqn.outvars):
            lines.append(f"  {names.new(var, 'get-tuple-element')} = {_hlo_type(var.aval)} get-tuple-element({whole}), index={i}")
        return lines


#: what a program inside an operation is to it
_ROLES = {("scan", "jaxpr"): "body", ("while", "body_jaxpr"): "body", ("while", "cond_jaxpr"): "condition",
          ("cond", "branches"): "branch_computations"}


def groups(axes: Sequence, mesh: Mesh) -> list[list[int]]:
    """The numbers of the devices of each group along `axes`, in the order of their positions there.

    >>> groups(("b",), (("a", 2), ("b", 2))), groups(("b", "a"), (("a", 2), ("b", 2)))
    ([[0, 1], [2, 3]], [[0, 2, 1, 3]])
    """
    names = [name for name, _ in mesh]
    numbers = np.arange(math.prod(n for _, n in mesh)).reshape([n for _, n in mesh])
    along = [names.index(a) for a in axes if a in names]
    rest = [d for d in range(len(names)) if d not in along]
    count = math.prod(mesh[d][1] for d in along)
    return numbers.transpose(rest + along).reshape(-1, count).tolist()


def meeting(eqn: Eqn, mesh: Mesh) -> list[list[int]]:
    """The groups of devices that exchange values in a collective, `axis_index_groups` included."""
    found = groups(collective_axes(eqn.params), mesh)
    parts = eqn.params.get("axis_index_groups")
    return [[group[i] for i in part] for group in found for part in parts] if parts else found


def pairs(eqn: Eqn, mesh: Mesh) -> list[tuple[int, int]]:
    """The numbers of the devices that send to each other in a permutation."""
    found = groups(collective_axes(eqn.params), mesh)
    return sorted((group[s], group[t]) for group in found for s, t in eqn.params["perm"])


def braces(items: Sequence) -> str:
    """Numbers, or lists of them, in braces."""
    return "{" + ",".join(braces(x) if isinstance(x, (list, tuple)) else str(x) for x in items) + "}"


def attributes(eqn: Eqn, mesh: Mesh) -> list[str]:
    """The attributes of an instruction."""
    params, out = eqn.params, []
    kind, name = eqn.primitive.kind, eqn.primitive.name
    if kind == "collective":
        out += _collective_attributes(eqn, mesh)
    elif kind == "callback":
        out.append(f'custom_call_target="weft_{name}"')
        if eqn.effects:
            out.append("custom_call_has_side_effect=true")
    elif name == "scan":
        out.append(f'backend_config={{"known_trip_count":{{"n":"{params["length"]}"}}}}')
    elif name in _DIRECTIONS:
        out.append(f"direction={_DIRECTIONS[name]}")
    elif kind == "contract":
        (lc, rc), (lb, rb) = params["dimension_numbers"]
        if lb:
            out += [f"lhs_batch_dims={braces(lb)}", f"rhs_batch_dims={braces(rb)}"]
        out += [f"lhs_contracting_dims={braces(lc)}", f"rhs_contracting_dims={braces(rc)}"]
    else:
        key = next((k for k in ("axes", "broadcast_dimensions", "permutation", "dimension", "dimensions") if k in params), None)
        if key is not None:
            value = params[key]
            out.append(f"dimensions={braces(value if isinstance(value, (tuple, list)) else (value,))}")
    if eqn.source is not None:
        out.append(f'metadata={{op_name="{eqn.primitive.name}" source_file="{eqn.source.file}" source_line={eqn.source.line}}}')
    return out


def _collective_attributes(eqn: Eqn, mesh: Mesh) -> list[str]:
    params, spec, out = eqn.params, spec_of(eqn.primitive), []
    out.append("mesh_axes={" + ",".join(map(str, collective_axes(params))) + "}")
    if mesh and "perm" in params:
        out.append(f"source_target_pairs={braces(pairs(eqn, mesh))}")
    elif mesh and not spec.is_local:
        out += [f"replica_groups={braces(meeting(eqn, mesh))}", "use_global_device_ids=true"]
    if spec.dims and not spec.is_local:
        out.append(f"dimensions={{{params[spec.dims[0]]}}}")
    if spec.to_apply:
        out.append(f"to_apply=%{spec.to_apply}")
    return out
