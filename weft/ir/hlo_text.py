"""Programs as the texts that users of XLA know how to read: StableHLO-style and HLO-style.

The texts are for people and for programs that search them ("all-reduce", "collective-permute"); they are not parsed again.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.jaxpr import Eqn, Jaxpr, Literal, subjaxprs
from weft.ir.types import ShapedArray
from weft.util import dtypes

#: primitive -> HLO name, where they differ by more than underscores
_HLO = {
    "mul": "multiply", "sub": "subtract", "div": "divide", "neg": "negate", "max": "maximum", "min": "minimum", "rem": "remainder",
    "pow": "power", "integer_pow": "power", "exp": "exponential", "expm1": "exponential-minus-one", "log1p": "log-plus-one",
    "sin": "sine", "cos": "cosine", "select_n": "select", "convert_element_type": "convert", "bitcast_convert_type": "bitcast-convert",
    "broadcast_in_dim": "broadcast", "rev": "reverse", "dot_general": "dot", "conv_general_dilated": "convolution",
    "psum": "all-reduce", "pmax": "all-reduce", "pmin": "all-reduce", "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter", "all_to_all": "all-to-all", "ppermute": "collective-permute", "axis_index": "partition-id",
    "own_slice": "dynamic-slice", "lt": "compare", "le": "compare", "gt": "compare", "ge": "compare", "eq": "compare",
    "ne": "compare", "threefry2x32": "rng-bit-generator", "logistic": "logistic", "cumsum": "reduce-window", "squeeze": "reshape",
    "expand_dims": "reshape", "sharding_constraint": "custom-call", "scatter_add": "scatter", "scatter-add": "scatter",
    "while": "while", "scan": "while", "cond": "conditional", "jit": "call",
}
_DIRECTIONS = {"lt": "LT", "le": "LE", "gt": "GT", "ge": "GE", "eq": "EQ", "ne": "NE"}


def hlo_name(primitive: str) -> str:
    """The HLO name of a primitive.

    >>> hlo_name('psum'), hlo_name('dot_general'), hlo_name('dynamic_slice')
    ('all-reduce', 'dot', 'dynamic-slice')
    """
    if primitive.startswith("reduce_") and primitive != "reduce_scatter":
        return "reduce"
    return _HLO.get(primitive, primitive.replace("_", "-"))


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


def hlo_text(jaxpr: Jaxpr, name: str) -> str:
    """The program as an HLO-style module, with the user's line at every instruction."""
    module = name.replace("(", "_").replace(")", "").replace("-", "_")
    ins = ", ".join(_hlo_type(a) for a in jaxpr.in_avals)
    outs = ", ".join(_hlo_type(a) for a in jaxpr.out_avals)
    outs = outs if len(jaxpr.out_avals) == 1 else f"({outs})"
    parts = [f"HloModule {module}, is_scheduled=true, entry_computation_layout={{({ins})->{outs}}}\n"]
    bodies: list[str] = []
    main = _computation(jaxpr, "main", "ENTRY ", bodies)
    return "\n".join(parts + bodies + [main])


def _computation(jaxpr: Jaxpr, name: str, prefix: str, bodies: list[str]) -> str:
    names = _Names()
    lines = []
    for i, var in enumerate((*jaxpr.constvars, *jaxpr.invars)):
        lines.append(f"  {names.new(var, 'param')} = {_hlo_type(var.aval)} parameter({i})")
    for eqn in jaxpr.eqns:
        lines += _instruction(eqn, names, bodies)
    outs = ", ".join(names[a] for a in jaxpr.outvars)
    types = ", ".join(_hlo_type(a) for a in jaxpr.out_avals)
    lines.append(f"  ROOT %tuple.{names.count + 1} = ({types}) tuple({outs})")
    params = ", ".join(f"{names[v][1:]}: {_hlo_type(v.aval)}" for v in (*jaxpr.constvars, *jaxpr.invars))
    return f"{prefix}%{name} ({params}) -> ({types}) {{\n" + "\n".join(lines) + "\n}\n"


def _instruction(eqn: Eqn, names: _Names, bodies: list[str]) -> list[str]:
    op = "custom-call" if eqn.primitive.kind == "callback" else hlo_name(eqn.primitive.name)
    operands = ", ".join(names[a] for a in eqn.invars)
    called = []
    for key, body in subjaxprs(eqn.params):
        label = f"{key}.{len(bodies)}"
        bodies.append(_computation(body, label, "", bodies))
        called.append(f"{key}=%{label}")
    extra = "".join(f", {x}" for x in (*called, *_attributes(eqn)))
    if len(eqn.outvars) == 1:
        var = eqn.outvars[0]
        return [f"  {names.new(var, op)} = {_hlo_type(var.aval)} {op}({operands}){extra}"]
    types = ", ".join(_hlo_type(v.aval) for v in eqn.outvars)
    whole = names.new(object(), op)
    lines = [f"  {whole} = ({types}) {op}({operands}){extra}"]
    for i, var in enumerate(eqn.outvars):
        lines.append(f"  {names.new(var, 'get-tuple-element')} = {_hlo_type(var.aval)} get-tuple-element({whole}), index={i}")
    return lines


def _attributes(eqn: Eqn) -> list[str]:
    params, out = eqn.params, []
    kind, name = eqn.primitive.kind, eqn.primitive.name
    if kind == "collective":
        axes = params.get("axes", params.get("axis_name"))
        axes = axes if isinstance(axes, (tuple, list)) else (axes,)
        out.append("mesh_axes={" + ",".join(map(str, axes)) + "}")
        if name in ("psum", "pmax", "pmin"):
            out.append("to_apply=%" + {"psum": "add", "pmax": "maximum", "pmin": "minimum"}[name])
        if "perm" in params:
            out.append("source_target_pairs={" + ",".join(f"{{{s},{t}}}" for s, t in params["perm"]) + "}")
        for key in ("all_gather_dimension", "scatter_dimension", "split_axis", "concat_axis"):
            if key in params:
                out.append(f"{key}={params[key]}")
    elif kind == "callback":
        out.append(f'custom_call_target="weft_{name}"')
        if eqn.effects:
            out.append("custom_call_has_side_effect=true")
    elif name in _DIRECTIONS:
        out.append(f"direction={_DIRECTIONS[name]}")
    elif kind == "contract":
        (lc, rc), (lb, rb) = params["dimension_numbers"]
        braces = lambda ds: "{" + ",".join(map(str, ds)) + "}"
        if lb:
            out += [f"lhs_batch_dims={braces(lb)}", f"rhs_batch_dims={braces(rb)}"]
        out += [f"lhs_contracting_dims={braces(lc)}", f"rhs_contracting_dims={braces(rc)}"]
    else:
        for key, label in (("axes", "dimensions"), ("broadcast_dimensions", "dimensions"), ("permutation", "dimensions"),
                           ("dimension", "dimensions"), ("dimensions", "dimensions")):
            if key in params:
                value = params[key] if isinstance(params[key], (tuple, list)) else (params[key],)
                out.append(f"{label}={{{','.join(map(str, value))}}}")
                break
    if eqn.source is not None:
        out.append(f'metadata={{op_name="{eqn.primitive.name}" source_file="{eqn.source.file}" source_line={eqn.source.line}}}')
    return out


# ---- StableHLO-style

def _tensor(aval: ShapedArray) -> str:
    name = {"bool": "i1", "u8": "ui8", "u16": "ui16", "u32": "ui32", "u64": "ui64", "c64": "complex<f32>", "c128": "complex<f64>"}.get(
        dtypes.short_name(aval.dtype), dtypes.short_name(aval.dtype))
    return f"tensor<{''.join(f'{n}x' for n in aval.shape)}{name}>"


def _sharding_attribute(sharding) -> str:
    return "" if sharding is None else f' {{weft.sharding = "{sharding}"}}'


def stablehlo_text(jaxpr: Jaxpr, name: str, in_shardings: Sequence = (), out_shardings: Sequence = ()) -> str:
    """The global program as a StableHLO-style module, shardings as attributes."""
    in_shardings = list(in_shardings) + [None] * (len(jaxpr.invars) - len(in_shardings))
    out_shardings = list(out_shardings) + [None] * (len(jaxpr.outvars) - len(out_shardings))
    lines = [f"module @jit_{name} {{"]
    lines += _function(jaxpr, "main", "public ", in_shardings, out_shardings)
    lines.append("}\n")
    return "\n".join(lines)


def _function(jaxpr: Jaxpr, name: str, visibility: str, in_shardings, out_shardings) -> list[str]:
    env: dict = {}
    every = (*jaxpr.constvars, *jaxpr.invars)
    shardings = [None] * len(jaxpr.constvars) + list(in_shardings)
    for i, v in enumerate(every):
        env[v] = f"%arg{i}"
    params = ", ".join(f"{env[v]}: {_tensor(v.aval)}{_sharding_attribute(s)}" for v, s in zip(every, shardings))
    results = ", ".join(f"{_tensor(a)}{_sharding_attribute(s)}" for a, s in zip(jaxpr.out_avals, out_shardings))
    lines = [f"  func.func {visibility}@{name}({params}) -> ({results}) {{"]
    counter = [0]

    def read(atom) -> str:
        if type(atom) is Literal:
            known = f"%cst_{counter[0]}"
            counter[0] += 1
            lines.append(f"    {known} = stablehlo.constant dense<{atom.val}> : {_tensor(atom.aval)}")
            return known
        return env[atom]

    nested: list[list[str]] = []
    for eqn in jaxpr.eqns:
        args = [read(a) for a in eqn.invars]
        types = ", ".join(_tensor(a.aval) for a in eqn.invars)
        outs = ", ".join(_tensor(v.aval) for v in eqn.outvars)
        result = f"%{counter[0]}"
        counter[0] += 1
        many = len(eqn.outvars) > 1
        for i, v in enumerate(eqn.outvars):
            env[v] = f"{result}#{i}" if many else result
        op = hlo_name(eqn.primitive.name).replace("-", "_").replace("dot", "dot_general", 1)
        if eqn.primitive.kind == "callback":
            op = f"custom_call @weft_{eqn.primitive.name}"
        bodies = list(subjaxprs(eqn.params))
        calls = []
        for key, body in bodies:
            label = f"{eqn.params.get('name', key)}_{counter[0]}_{len(nested)}"
            nested.append(_function(body, label, "private ", [None] * len(body.invars), [None] * len(body.outvars)))
            calls.append(f"@{label}")
        extra = [*calls, *(x for x in _attributes(eqn) if not x.startswith("metadata"))]
        if eqn.primitive.kind == "constraint":
            extra.append(f'sharding = "{eqn.params["sharding"]}"')
        attributes = f" {{{', '.join(extra)}}}" if extra else ""
        count = f":{len(eqn.outvars)}" if many else ""
        given = f"{result}{count} = " if eqn.outvars else ""
        lines.append(f"    {given}stablehlo.{op} {', '.join(args)}{attributes} : ({types}) -> ({outs})")
    lines.append(f"    return {', '.join(read(a) for a in jaxpr.outvars)} : {', '.join(_tensor(a) for a in jaxpr.out_avals)}")
    lines.append("  }")
    for body in nested:
        lines += body
    return lines
