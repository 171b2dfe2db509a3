"""StableHLO: a module as MLIR that its parser accepts.

In:   a global jaxpr, before it is partitioned; the shardings of its arguments and results (None
      where unspecified); which arguments are donated.
Out:  a module of functions in the dialects `stablehlo`, `chlo` (functions that StableHLO lacks),
      `sdy` (shardings over named axes) and `func`.
Laws: a donated argument names the result that takes its memory (`tf.aliasing_output`), or is only
      marked as donated where the sharding of results is not known yet (`jax.buffer_donor`). With
      `debug_info` every operation has its place in the user's program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from weft._engine.hlo.lowering import HloLowering, symbol
from weft._engine.hlo.ops import (
    HloBlock,
    HloFunction,
    HloOp,
    HloValue,
    dtype_kind,
    is_uniform,
    metadata_texts,
)
from weft._engine.hlo.rules import arrays, elementwise, products, reductions, regions  # noqa: F401  (fill the table of rules)
from weft._engine.hlo.sharding_text import attribute, axes_text, donation_aliases, type_attribute
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.symbolic import SymbolicDim, has_names
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.contraction import DotAlgorithmPreset
from weft._engine.transforms.key_physicalization import physicalize
from weft._engine.util import dtypes

#: the maximal number of elements of an array constant that is written as decimal numbers
_MOST_NUMBERS = 32


def stablehlo_text(
    jaxpr: Jaxpr,
    name: str,
    in_shardings: Sequence = (),
    out_shardings: Sequence = (),
    donated: Sequence[bool] = (),
    debug_info: bool = False,
    chlo: bool = True,
    arg_names: Sequence[str] = (),
    result_paths: Sequence[str] = (),
    attributes: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the program as a StableHLO module.

    Without `chlo`, functions that StableHLO lacks are written as their formulas. `arg_names` names
    the arguments; `result_paths` are the paths of results in the returned tree. `attributes` are
    added to the module's attributes.
    """
    jaxpr = physicalize(jaxpr)
    lowering = HloLowering(name, None if chlo else ())
    main = lowering.function(jaxpr, "main", public=True)
    ins = [*in_shardings, *[None] * (len(jaxpr.invars) - len(in_shardings))]
    outs = [*out_shardings, *[None] * (len(jaxpr.outvars) - len(out_shardings))]
    main.arg_attrs = [attribute(lowering, s, x.ndim) for s, x in zip(ins, main.body.args)]
    main.result_attrs = [
        attribute(lowering, s, x.ndim) or type_attribute(lowering, v.aval.explicit, x.ndim)
        for s, x, v in zip(outs, main.body.results, jaxpr.outvars)
    ]
    counted = {
        s.num_devices for s in (*ins, *outs) if s is not None and not isinstance(s, NamedSharding)
    }
    devices = max(counted | set(lowering.sizes), default=1)
    if any(donated):
        _donate(main, donated, devices > 1)
    main.arg_names = list(arg_names)
    if result_paths:
        main.result_attrs = [
            {"jax.result_info": quote(path), **attrs}
            for path, attrs in zip(result_paths, main.result_attrs)
        ]
    module_attributes = {
        **attributes,
        "mhlo.num_partitions": f"{devices} : i32",
        "mhlo.num_replicas": "1 : i32",
    }
    return module_text(f"jit_{name}", module_attributes, lowering, debug_info)


def module_text(
    name: str, attributes: Mapping[str, str], lowering: HloLowering, debug_info: bool = False
) -> str:
    """Return the module `name` as text."""
    lines = [f"module @{symbol(name)} attributes {_attributes(attributes)} {{"]
    lines += [f"  sdy.mesh @{label} = <{mesh}>" for mesh, label in lowering.meshes.items()]
    places = _LocationTable() if debug_info else None
    for function in lowering.functions.values():
        lines += _StablehloPrinter(places).function(function)
    return "\n".join([*lines, "}", *(places.lines if places else ()), ""])


def _donate(main: HloFunction, donated: Sequence[bool], sharded: bool) -> None:
    """Add the attribute that names the result of each donated argument."""
    for arg, result in donation_aliases(
        main.body, donated, main.arg_attrs, main.result_attrs
    ).items():
        if result is not None:
            main.arg_attrs[arg]["tf.aliasing_output"] = f"{result} : i32"
        elif sharded:
            main.arg_attrs[arg]["jax.buffer_donor"] = "true"


# --- types and literals -----------------------------------------------------------------------------------------------

_ELEMENTS = {
    "bool": "i1",
    "u2": "ui2",
    "u4": "ui4",
    "u8": "ui8",
    "u16": "ui16",
    "u32": "ui32",
    "u64": "ui64",
    "c64": "complex<f32>",
    "c128": "complex<f64>",
}


def tensor_type(type_: ShapedArray) -> str:
    """Return a type as StableHLO writes it; a symbolic size becomes `?`."""
    short = dtypes.short_name(type_.dtype)
    element = _ELEMENTS.get(short) or (
        short.replace("_", "").upper().replace("F", "f", 1) if "_" in short else short
    )
    return f"tensor<{''.join('?x' if isinstance(n, SymbolicDim) else f'{n}x' for n in type_.shape)}{element}>"


def dense(value: np.ndarray) -> str:
    """Return the elements of an array as a `dense` attribute.

    >>> dense(np.array([1.5, np.inf], np.float32)), dense(np.zeros((2, 3), bool)), dense(np.complex64(1j))
    ('dense<[1.500000e+00, 0x7F800000]>', 'dense<false>', 'dense<(0.000000e+00,1.000000e+00)>')
    """
    value = np.asarray(value)
    if not value.size:
        return "dense<>"
    if is_uniform(value):
        return f"dense<{_number(value.flat[0])}>"
    if (
        value.size <= _MOST_NUMBERS
        or dtype_kind(value.dtype) == "b"
        or dtypes.itemsize_bits(value.dtype) < 8
    ):
        return f"dense<{_numbers(value)}>"
    return f'dense<"0x{value.tobytes().hex().upper()}">'


def _numbers(value: np.ndarray) -> str:
    return (
        "[" + ", ".join(_numbers(row) for row in value) + "]" if value.ndim else _number(value[()])
    )


def _number(x: Any) -> str:
    kind = dtype_kind(x.dtype)
    if kind == "b":
        return "true" if x else "false"
    if kind == "c":
        return f"({_number(x.real)},{_number(x.imag)})"
    if kind != "f":
        return str(int(x))
    if not np.isfinite(x):
        return "0x" + bytes(reversed(np.asarray(x).tobytes())).hex().upper()
    text = ""
    for digits in (6, 8, 17):
        text = f"{float(x):.{digits}e}"
        if float(text) == float(x) or (digits == 8 and x.dtype == np.float32):
            break
    return text


def _array(values: Iterable, element: str = "i64") -> str:
    values = ", ".join(str(v).lower() for v in values)
    return f"array<{element}: {values}>" if values else f"array<{element}>"


def _list(values: Iterable) -> str:
    return "[" + ", ".join(str(v) for v in values) + "]"


def _rows(rows: Sequence[Sequence[int]], width: int = 0) -> str:
    width = len(rows[0]) if rows else width
    are_equal_lengths = len({n for row in rows for n in row}) == 1
    return f"dense<{rows[0][0] if are_equal_lengths else _list(_list(row) for row in rows) if rows else ''}> : tensor<{len(rows)}x{width}xi64>"


@lru_cache(maxsize=256)
def _rows_of_devices(groups: tuple[tuple[int, ...], ...]) -> str:
    """Return groups or pairs of devices as text; many collectives have the same groups."""
    return _rows(groups, 2)


def quote(text: str) -> str:
    """Return a text as an MLIR string."""
    return (
        '"'
        + "".join(
            c
            if c.isprintable() and c not in '"\\'
            else "".join(f"\\{byte:02X}" for byte in c.encode())
            for c in text
        )
        + '"'
    )


def _attributes(attrs: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{k} = {v}" for k, v in attrs.items()) + "}"


def _flag(value: Any) -> str:
    return "true" if value else "false"


# --- source places ----------------------------------------------------------------------------


class _LocationTable:
    """The source places of a program, by name; they are listed after the module."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def name(self, text: str) -> str:
        """Return the name of the place that MLIR writes as `text`."""
        return self.names.setdefault(text, f"#loc{len(self.names) + 1}")

    def of(self, op: HloOp) -> str:
        """Return the location that follows an operation."""
        if op.place is None:
            return " loc(unknown)"
        source, label = op.place
        file = (
            self.name(f"{quote(source.file)}:{source.line}:{source.column}")
            if source is not None
            else self.name("unknown")
        )
        return f" loc({self.name(f'{quote(label)}({file})')})"

    @property
    def lines(self) -> list[str]:
        """Return the definitions of all places."""
        return [f"{name} = loc({text})" for text, name in self.names.items()]


# --- functions and operations -----------------------------------------------------------------------------------------


class _StablehloPrinter:
    """The lines of a function; the numbering of names continues inside regions."""

    def __init__(self, places: _LocationTable | None):
        self.places = places
        self.names: dict[HloValue, str] = {}
        self.results = self.args = 0
        self.constants: dict[str, int] = {}
        self.lines: list[str] = []
        self.indent = "  "

    def function(self, f: HloFunction) -> list[str]:
        """Return the lines of a function of the module."""
        show = lambda attrs: f" {_attributes(attrs)}" if attrs else ""
        padded = lambda attrs, values: [*attrs, *[{}] * (len(values) - len(attrs))]
        places = [f" loc({quote(name)})" for name in f.arg_names] if self.places else []
        places += [""] * (len(f.body.args) - len(places))
        params = [
            f"{self.argument(x)}: {tensor_type(x.type)}{show(a)}{place}"
            for x, a, place in zip(f.body.args, padded(f.arg_attrs, f.body.args), places)
        ]
        results = [
            tensor_type(x.type) + show(a)
            for x, a in zip(f.body.results, padded(f.result_attrs, f.body.results))
        ]
        returned = f" -> ({', '.join(results)})" if results else ""
        self.add(
            f"func.func {'public' if f.public else 'private'} @{f.name}({', '.join(params)}){returned} {{"
        )
        self.block(f.body, "return")
        self.add("}")
        return self.lines

    def add(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def argument(self, x: HloValue) -> str:
        """Give an argument the next free name; return it."""
        self.names[x] = f"%arg{self.args}"
        self.args += 1
        return self.names[x]

    def block(self, block: HloBlock, end: str) -> None:
        """Write the operations of a block, and its terminator `end`."""
        self.indent += "  "
        for op in block.ops:
            self.operation(op)
        terminator_operands = (
            f" {self.refs(block.results)} : {self.types(block.results)}" if block.results else ""
        )
        self.add(end + terminator_operands)
        self.indent = self.indent[:-2]

    def operation(self, op: HloOp) -> None:
        """Write the lines of an operation."""
        if has_names([value for key, value in op.attrs.items() if key != "groups"]):
            # groups hold numbers of devices, not sizes
            raise NotImplementedError(
                f"as_text: {op.name} in the program needs constant sizes; its attributes are {op.attrs}."
            )
        text = self.text(op)
        prefix = ""
        if op.name == "constant":
            prefix = f"{self.constant(op.results[0])} = "
        elif op.results:
            name, many = f"%{self.results}", len(op.results) > 1
            self.results += 1
            for i, v in enumerate(op.results):
                self.names[v] = f"{name}#{i}" if many else name
            prefix = f"{name}{f':{len(op.results)}' if many else ''} = "
        self.add(prefix + text + (self.places.of(op) if self.places else ""))

    def constant(self, x: HloValue) -> str:
        """Return the name of a constant, as MLIR would choose it."""
        base = "%cst" if dtype_kind(x.dtype) in "fc" else "%c"
        self.names[x] = (
            base
            if base not in self.constants
            else f"{base}_{sum(self.constants.values()) - len(self.constants)}"
        )
        self.constants[base] = self.constants.get(base, 0) + 1
        return self.names[x]

    def text(self, op: HloOp) -> str:
        """Return the text of an operation after the names of its results."""
        form = _FORMS.get(op.name)
        if form is not None:
            return form(self, op)
        name = op.name if "." in op.name else f"stablehlo.{op.name}"
        if op.name.startswith("chlo."):
            return f"{name} {self.refs(op.operands)}{self.format_signature(op, op.operands)} -> {self.types(op.results)}"
        same = {v.type for v in (*op.operands, *op.results)}
        return f"{name} {self.refs(op.operands)}{self.format_signature(op, op.results if len(same) == 1 else None)}"

    def refs(self, values: Iterable[HloValue]) -> str:
        return ", ".join(self.names[v] for v in values)

    def types(self, values: Iterable[HloValue]) -> str:
        return ", ".join(tensor_type(v.type) for v in values)

    def signature(self, op: HloOp) -> str:
        """Return `(types) -> type`, or `-> (types)` if there are several results."""
        results = self.types(op.results)
        return (
            f"({self.types(op.operands)}) -> {results if len(op.results) == 1 else f'({results})'}"
        )

    def user_attributes(self, op: HloOp) -> dict[str, str]:
        """Return the attributes that the user gave an operation."""
        quoted = {
            key if re.fullmatch(r"[A-Za-z_][\w$.]*", key, re.ASCII) else quote(key): quote(text)
            for key, text in metadata_texts(op).items()
        }
        return {"mhlo.frontend_attributes": _attributes(quoted)} if quoted else {}

    def format_signature(self, op: HloOp, values: Iterable[HloValue] | None = None) -> str:
        """Return the end of an operation: the user's attributes, and types or a signature."""
        attributes = f" {_attributes(self.user_attributes(op))}" if op.metadata else ""
        return f"{attributes} : {self.signature(op) if values is None else self.types(values)}"

    def region(self, block: HloBlock, end: str = "stablehlo.return") -> list[str]:
        """Return the lines inside a region; names defined in it are free again after it."""
        outer, known = self.lines, (self.results, self.args, dict(self.constants))
        self.lines = []
        self.block(block, end)
        lines, self.lines = self.lines, outer
        self.results, self.args, self.constants = known
        return lines

    def arguments(self, values: Iterable[HloValue]) -> list[str]:
        """Return the arguments of a region with their types."""
        return [f"{self.argument(x)}: {tensor_type(x.type)}" for x in values]

    def bodies(self, op: HloOp) -> str:
        """Return the regions of an operation, in braces."""
        texts = []
        for block in op.regions:
            before = self.args
            head = (
                [f"{self.indent}^bb0({', '.join(self.arguments(block.args))}):"]
                if block.args
                else []
            )
            texts.append("\n".join(["{", *head, *self.region(block), f"{self.indent}}}"]))
            self.args = before
        return f" ({', '.join(texts)})" if texts else ""

    def generic(self, op: HloOp, **attrs: str) -> str:
        """Return the generic form of an operation; an attribute without a value is a flag."""
        attribute_text = ", ".join(f"{k} = {v}" if v else k for k, v in sorted(attrs.items()))
        return (
            f'"stablehlo.{op.name}"({self.refs(op.operands)}){f" <{{{attribute_text}}}>" if attribute_text else ""}{self.bodies(op)}'
            f"{self.format_signature(op)}"
        )


Form = Callable[[_StablehloPrinter, HloOp], str]
_FORMS: dict[str, Form] = {}


def _form(*names: str) -> Callable[[Form], Form]:
    return lambda fn: _FORMS.update(dict.fromkeys(names, fn)) or fn


@_form("constant")
def _constant(p: _StablehloPrinter, op: HloOp) -> str:
    return f"stablehlo.constant {dense(op.attrs['value'])} : {tensor_type(op.results[0].type)}"


@_form("compare")
def _compare(p: _StablehloPrinter, op: HloOp) -> str:
    return f"stablehlo.compare {op.attrs['direction']}, {p.refs(op.operands)}, {op.attrs['kind']}{p.format_signature(op)}"


@_form("select")
def _select(p: _StablehloPrinter, op: HloOp) -> str:
    return f"stablehlo.select {p.refs(op.operands)}{p.format_signature(op, op.operands[:2])}"


@_form("complex")
def _complex(p: _StablehloPrinter, op: HloOp) -> str:
    return f"stablehlo.complex {p.refs(op.operands)}{p.format_signature(op, op.results)}"


@_form("reduce_precision")
def _reduce_precision(p: _StablehloPrinter, op: HloOp) -> str:
    return (
        f"stablehlo.reduce_precision {p.refs(op.operands)}, format = e{op.attrs['exponent_bits']}m{op.attrs['mantissa_bits']}"
        f"{p.format_signature(op, op.results)}"
    )


@_form("iota")
def _iota(p: _StablehloPrinter, op: HloOp) -> str:
    return f"stablehlo.iota dim = {op.attrs['dim']}{p.format_signature(op, op.results)}"


@_form("dynamic_iota", "get_dimension_size")
def _of_dim(p: _StablehloPrinter, op: HloOp) -> str:
    return f"stablehlo.{op.name} {p.refs(op.operands)}, dim = {op.attrs['dim']}{p.format_signature(op)}"


@_form("partition_id", "replica_id")
def _device_number(p: _StablehloPrinter, op: HloOp) -> str:
    return f"stablehlo.{op.name}{p.format_signature(op, op.results)}"


@_form("broadcast_in_dim", "dynamic_broadcast_in_dim", "transpose", "reverse")
def _of_dims(p: _StablehloPrinter, op: HloOp) -> str:
    types = p.format_signature(op, op.results if op.name == "reverse" else None)
    return f"stablehlo.{op.name} {p.refs(op.operands)}, dims = {_list(op.attrs['dims'])}{types}"


@_form("concatenate")
def _concatenate(p: _StablehloPrinter, op: HloOp) -> str:
    return f"stablehlo.concatenate {p.refs(op.operands)}, dim = {op.attrs['dim']}{p.format_signature(op)}"


@_form("slice")
def _slice(p: _StablehloPrinter, op: HloOp) -> str:
    a = op.attrs
    dims = [
        f"{lo}:{hi}" + (f":{step}" if step != 1 else "")
        for lo, hi, step in zip(a["starts"], a["limits"], a["strides"])
    ]
    return f"stablehlo.slice {p.refs(op.operands)} {_list(dims)}{p.format_signature(op)}"


@_form("pad")
def _pad(p: _StablehloPrinter, op: HloOp) -> str:
    dims = ", ".join(f"{k} = {_list(op.attrs[k])}" for k in ("low", "high", "interior"))
    return f"stablehlo.pad {p.refs(op.operands)}, {dims}{p.format_signature(op)}"


@_form("dynamic_slice")
def _dynamic_slice(p: _StablehloPrinter, op: HloOp) -> str:
    return f"stablehlo.dynamic_slice {p.refs(op.operands)}, sizes = {_list(op.attrs['sizes'])}{p.format_signature(op)}"


@_form("dynamic_update_slice")
def _dynamic_update_slice(p: _StablehloPrinter, op: HloOp) -> str:
    return f"stablehlo.dynamic_update_slice {p.refs(op.operands)}{p.format_signature(op)}"


def _numbers_text(kind: str, names: Sequence[str], op: HloOp) -> str:
    """Return the dimension numbers of a gather or a scatter, without empty ones."""
    values = dict(zip(names, op.attrs["numbers"]))
    texts = [f"{k} = {_list(v)}" for k, v in values.items() if v]
    return (
        f"#stablehlo.{kind}<{', '.join([*texts, f'index_vector_dim = {op.operands[1].ndim - 1}'])}>"
    )


_GATHER_NUMBERS = (
    "offset_dims",
    "collapsed_slice_dims",
    "start_index_map",
    "operand_batching_dims",
    "start_indices_batching_dims",
)


@_form("gather")
def _gather(p: _StablehloPrinter, op: HloOp) -> str:
    return p.generic(
        op,
        dimension_numbers=_numbers_text("gather", _GATHER_NUMBERS, op),
        slice_sizes=_array(op.attrs["sizes"]),
        indices_are_sorted=_flag(op.attrs["indices_are_sorted"]),
    )


@_form("dynamic_gather")
def _dynamic_gather(p: _StablehloPrinter, op: HloOp) -> str:
    return p.generic(
        op,
        dimension_numbers=_numbers_text("gather", _GATHER_NUMBERS, op),
        indices_are_sorted=_flag(op.attrs["indices_are_sorted"]),
    )


@_form("scatter")
def _scatter(p: _StablehloPrinter, op: HloOp) -> str:
    names = (
        "update_window_dims",
        "inserted_window_dims",
        "scatter_dims_to_operand_dims",
        "input_batching_dims",
        "scatter_indices_batching_dims",
    )
    return p.generic(
        op,
        scatter_dimension_numbers=_numbers_text("scatter", names, op),
        indices_are_sorted=_flag(op.attrs["indices_are_sorted"]),
        unique_indices=_flag(op.attrs["unique_indices"]),
    )


@_form("reduce")
def _reduce(p: _StablehloPrinter, op: HloOp) -> str:
    n, (body,) = len(op.results), op.regions
    pairs = ", ".join(
        f"({p.names[x]} init: {p.names[i]})" for x, i in zip(op.operands[:n], op.operands[n:])
    )
    dims = f"across dimensions = {_list(op.attrs['dims'])}{p.format_signature(op)}"
    (first, *rest) = body.ops
    if (
        n == 1
        and not rest
        and first.operands == tuple(body.args)
        and tuple(body.results) == first.results
        and first.name != "compare"
    ):
        return f"stablehlo.reduce{pairs} applies stablehlo.{first.name} {dims}"
    before, named = p.args, p.arguments(body.args)
    arguments = " ".join(f"({x}, {y})" for x, y in zip(named[:n], named[n:]))
    lines = p.region(body)
    p.args = before
    return "\n".join(
        [
            f"stablehlo.reduce{pairs} {dims}",
            f"{p.indent} reducer{arguments} {{",
            *lines,
            f"{p.indent}}}",
        ]
    )


@_form("reduce_window")
def _reduce_window(p: _StablehloPrinter, op: HloOp) -> str:
    a = op.attrs
    return p.generic(
        op,
        window_dimensions=_array(a["window"]),
        window_strides=_array(a["strides"]),
        base_dilations=_array(a["base_dilations"]),
        window_dilations=_array(a["window_dilations"]),
        padding=_rows(a["padding"], 2),
    )


@_form("sort")
def _sort(p: _StablehloPrinter, op: HloOp) -> str:
    return p.generic(
        op, dimension=f"{op.attrs['dim']} : i64", is_stable=_flag(op.attrs["is_stable"])
    )


@_form("case")
def _case(p: _StablehloPrinter, op: HloOp) -> str:
    return p.generic(op)


@_form("while")
def _while(p: _StablehloPrinter, op: HloOp) -> str:
    """Write a loop; both regions have the same arguments, which are named before them."""
    before = p.args
    names = [p.argument(x) for x in op.regions[0].args]
    p.names |= zip(op.regions[1].args, names)
    pairs = ", ".join(f"{name} = {p.names[x]}" for name, x in zip(names, op.operands))
    cond, body = map(p.region, op.regions)
    p.args = before
    head = f"stablehlo.while({pairs})" + (f" : {p.types(op.operands)}" if op.operands else "")
    head += f" attributes {_attributes(p.user_attributes(op))}" if op.metadata else ""
    return "\n".join(
        [head, f"{p.indent}cond {{", *cond, f"{p.indent}}} do {{", *body, f"{p.indent}}}"]
    )


@_form("func.call")
def _call(p: _StablehloPrinter, op: HloOp) -> str:
    return f"func.call @{op.attrs['callee']}({p.refs(op.operands)}){p.format_signature(op)}"


@_form("optimization_barrier")
def _barrier(p: _StablehloPrinter, op: HloOp) -> str:
    attributes = f" {_attributes(p.user_attributes(op))}" if op.metadata else ""
    return (
        f"stablehlo.optimization_barrier{attributes} {p.refs(op.operands)} : {p.types(op.operands)}"
    )


@_form("dot_general")
def _dot_general(p: _StablehloPrinter, op: HloOp) -> str:
    a = op.attrs
    pair = lambda dims: f"{_list(dims[0])} x {_list(dims[1])}"
    batching = f"batching_dims = {pair(a['batching'])}, " if a["batching"][0] else ""
    return (
        f"stablehlo.dot_general {p.refs(op.operands)}, {batching}contracting_dims = {pair(a['contracting'])}, "
        f"precision = {_list(a['precision'])}{_algorithm(a['algorithm'])}{p.format_signature(op)}"
    )


def _algorithm(algorithm: DotAlgorithmPreset | None) -> str:
    if algorithm is None:
        return ""
    types = "lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32"
    counts = "lhs_component_count = 1, rhs_component_count = 1"
    counts = f"{counts}, num_primitive_operations = {algorithm.bf16_products}"
    return f", algorithm = <{types}, {counts}, allow_imprecise_accumulation = false>"


@_form("convolution")
def _convolution(p: _StablehloPrinter, op: HloOp) -> str:
    a = op.attrs

    def spec(dims: Sequence[int], letters: str) -> str:
        named = {d: (*letters, *range(len(dims) - 2))[i] for i, d in enumerate(dims)}
        return _list(named[d] for d in range(len(dims)))

    lhs, rhs, out = a["numbers"]
    window = (
        f"stride = {_list(a['strides'])}, pad = {_list(_list(x) for x in a['padding'])}, lhs_dilate = {_list(a['lhs_dilation'])}, "
        f"rhs_dilate = {_list(a['rhs_dilation'])}, reverse = {_list(['false'] * len(a['strides']))}"
    )
    attributes = {k: f"{a[k]} : i64" for k in ("batch_group_count", "feature_group_count")}
    attributes["precision_config"] = _list(f"#stablehlo<precision {x}>" for x in a["precision"])
    return (
        f"stablehlo.convolution({p.refs(op.operands)}) dim_numbers = {spec(lhs, 'bf')}x{spec(rhs, 'oi')}->{spec(out, 'bf')}, "
        f"window = {{{window}}} {_attributes(attributes | p.user_attributes(op))} : {p.signature(op)}"
    )


@_form("fft")
def _fft(p: _StablehloPrinter, op: HloOp) -> str:
    return f"stablehlo.fft {p.refs(op.operands)}, type = {op.attrs['kind']}, length = {_list(op.attrs['lengths'])}{p.format_signature(op)}"


@_form("cholesky")
def _cholesky(p: _StablehloPrinter, op: HloOp) -> str:
    return f"stablehlo.cholesky {p.refs(op.operands)}, lower = {_flag(op.attrs['lower'])}{p.format_signature(op, op.results)}"


@_form("triangular_solve")
def _triangular_solve(p: _StablehloPrinter, op: HloOp) -> str:
    a = op.attrs
    return p.generic(
        op,
        left_side=_flag(a["left_side"]),
        lower=_flag(a["lower"]),
        unit_diagonal=_flag(a["unit_diagonal"]),
        transpose_a=f"#stablehlo<transpose {a['transpose']}>",
    )


@_form("custom_call")
def _custom_call(p: _StablehloPrinter, op: HloOp) -> str:
    a, attributes = op.attrs, {}
    if a["has_side_effect"]:
        attributes["has_side_effect"] = "true"
    if "groups" in a:
        channel = f", channel_id = {a['channel']} : i64" if "channel" in a else ""
        attributes |= {
            "api_version": "4 : i32",
            "backend_config": f"{{replica_groups = {_rows(a['groups'])}{channel}}}",
        }
    elif "number" in a:
        row_major = lambda x: (
            f"dense<{_list(reversed(range(x.ndim))) if x.ndim else ''}> : tensor<{x.ndim}xindex>"
        )
        attributes |= {
            "api_version": "4 : i32",
            "backend_config": f"{{number = {a['number']} : i64}}",
            "operand_layouts": _list(map(row_major, op.operands)),
            "result_layouts": _list(map(row_major, op.results)),
        }
    elif a["backend_config"]:
        attributes["backend_config"] = quote(json.dumps(a["backend_config"]))
    if "sharding" in a:
        attributes["mhlo.sharding"] = quote(a["sharding"])
    attributes |= p.user_attributes(op)
    extra = f" {_attributes(attributes)}" if attributes else ""
    return f"stablehlo.custom_call @{a['target']}({p.refs(op.operands)}){extra} : {p.signature(op)}"


# --- several devices --------------------------------------------------------------------------------------------------


@_form("sdy.sharding_constraint")
def _constraint(p: _StablehloPrinter, op: HloOp) -> str:
    return f"sdy.sharding_constraint {p.refs(op.operands)} {op.attrs['sharding']}{p.format_signature(op, op.results)}"


@_form("sdy.manual_computation")
def _manual(p: _StablehloPrinter, op: HloOp) -> str:
    (body,) = op.regions
    before, argument_text = p.args, ", ".join(p.arguments(body.args))
    lines = p.region(body, "sdy.return")
    p.args = before
    return "\n".join(
        [
            f"sdy.manual_computation({p.refs(op.operands)}) in_shardings={_list(op.attrs['in_shardings'])} "
            f"out_shardings={_list(op.attrs['out_shardings'])} manual_axes={axes_text(op.attrs['axes'])} ({argument_text}) {{",
            *lines,
            f"{p.indent}}}{p.format_signature(op)}",
        ]
    )


@_form(
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "collective_permute",
    "collective_broadcast",
)
def _collective(p: _StablehloPrinter, op: HloOp) -> str:
    a = op.attrs
    dims = {
        "all_gather": {"all_gather_dim": "dim"},
        "reduce_scatter": {"scatter_dimension": "dim"},
        "all_to_all": {
            "split_dimension": "split",
            "concat_dimension": "concat",
            "split_count": "count",
        },
    }.get(op.name, {})
    attributes = {k: f"{a[v]} : i64" for k, v in dims.items()}
    groups = "source_target_pairs" if op.name == "collective_permute" else "replica_groups"
    attributes[groups] = _rows_of_devices(a["groups"])
    if a["channel"] is not None:  # without one, groups are of replicas
        attributes["channel_handle"] = (
            f"#stablehlo.channel_handle<handle = {a['channel']}, type = 1>"
        )
        if op.name in ("all_reduce", "all_gather", "reduce_scatter"):
            attributes["use_global_device_ids"] = ""
    return p.generic(op, **attributes)
