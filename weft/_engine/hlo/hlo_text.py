"""HLO: a module as the text that XLA's parser reads.

In:   a module of functions, made of a global program (`lowered_text`) or of the program of one device (`fused`).
Out:  computations, each after those that it names; the entry is the last.
Laws: nothing is read across computations: a region that reads values around it gets them in a tuple, and constants are written again.
      Devices are numbered by their position in the mesh, and `known_trip_count` says how often a loop runs, so that communication can be
      counted from the text alone.
Next: `fused` writes the kernels of a compiled program, `cost` counts what a module does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from weft._engine.hlo.layouts import tiles_text, usable
from weft._engine.hlo.lowering import Lowering, symbol
from weft._engine.hlo.ops import (
    Block,
    Function,
    Op,
    Value,
    array_type,
    dtype_kind,
    is_uniform,
    metadata_texts,
)
from weft._engine.hlo.rules import arrays, elementwise, products, reductions, regions  # noqa: F401  (fill the table of rules)
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ir.types import ShapedArray
from weft._engine.transforms.physical import physicalize
from weft._engine.util import dtypes
from weft._engine.util.record import record

#: functions that HLO has, by the names that CHLO has for them
FUNCTIONS = frozenset(
    f"chlo.{name}" for name in ("acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh", "erf")
)
#: elements up to which an array is written number by number; longer ones are left out, as XLA leaves them out
_MOST_NUMBERS = 1 << 16


def lowered(jaxpr: Jaxpr, name: str) -> Lowering:
    """A global program as a module for HLO."""
    made = Lowering(name, FUNCTIONS)
    made.function(physicalize(jaxpr), "main", public=True)
    return made


def lowered_text(
    jaxpr: Jaxpr,
    name: str,
    in_shardings: Sequence = (),
    out_shardings: Sequence = (),
    donated: Sequence[bool] = (),
    places: bool = True,
) -> str:
    """A global program, before it is partitioned, as HLO; the shardings of its arguments and results are None where nothing is said.
    With `places` every instruction has its place in the user's program.
    """
    module = lowered(jaxpr, name)
    main = module.functions["main"].body
    tiles = lambda shardings, values: [
        "" if s is None else tiles_text(s, x.ndim) for s, x in zip(shardings, values)
    ]
    devices = max(
        {s.num_devices for s in (*in_shardings, *out_shardings) if s is not None}
        | set(module.sizes),
        default=1,
    )
    ins, outs = tiles(in_shardings, main.args), tiles(out_shardings, main.results)
    shared = {
        result: arg
        for arg, result in usable(main, donated, ins, outs).items()
        if result is not None
    }
    return module_text(module, f"jit_{name}", devices, shared, ins, outs, places=places)


def module_text(
    module: Lowering,
    name: str,
    devices: int = 1,
    aliases: Mapping[int, int] | None = None,
    in_tiles: Sequence[str] = (),
    out_tiles: Sequence[str] = (),
    facts: str = "",
    places: bool = True,
) -> str:
    """A module as HLO. `facts` are attributes of the whole."""
    writer = _Module(module, places)
    main = module.functions["main"].body
    entry = writer.computation("main", main, head="ENTRY ", in_tiles=in_tiles, out_tiles=out_tiles)
    place = lambda i: f"{{{i}}}" if len(main.results) != 1 else "{}"
    shared = ", ".join(
        f"{place(i)}: ({arg}, {{}}, may-alias)" for i, arg in sorted((aliases or {}).items())
    )
    layout = f"({', '.join(hlo_type(x.type) for x in main.args)})->{_result_type(main.results)}"
    header = [
        f"HloModule {symbol(name)}",
        *([facts] if facts else []),
        *([f"input_output_alias={{ {shared} }}"] if shared else []),
        f"entry_computation_layout={{{layout}}}",
        *([f"num_partitions={devices}"] if devices > 1 else []),
    ]
    return "\n\n".join([", ".join(header), *writer.texts, entry]) + "\n"


# --- types and literals -----------------------------------------------------------------------------------------------


@record
class StoredType:
    """The type of an argument or a result whose dims are stored in `order`, the slowest first."""

    shape: tuple[int, ...]
    dtype: Any
    order: tuple[int, ...]

    ndim = property(lambda self: len(self.shape))


def hlo_type(type_: ShapedArray | StoredType) -> str:
    """A type as HLO writes it, with the order of its dims in memory.

    >>> hlo_type(ShapedArray((2, 3), np.dtype("int32"))), hlo_type(ShapedArray((), np.dtype("bool")))
    ('s32[2,3]{1,0}', 'pred[]')
    """
    short = dtypes.short_name(type_.dtype)
    element = (
        "pred"
        if short == "bool"
        else short.replace("_", "")
        if "_" in short
        else short.replace("i", "s")
    )
    slowest_first = type_.order if isinstance(type_, StoredType) else range(type_.ndim)
    order = f"{{{','.join(str(d) for d in reversed(slowest_first))}}}" if type_.ndim else ""
    return f"{element}[{','.join(map(str, type_.shape))}]{order}"


def _result_type(values: Sequence[Value], as_tuple: bool = False) -> str:
    if len(values) == 1 and not as_tuple:
        return hlo_type(values[0].type)
    return f"({', '.join(hlo_type(x.type) for x in values)})"


def _numbers(value: np.ndarray) -> str:
    if value.ndim:
        return f"{{{', '.join(map(_numbers, value))}}}"
    x, kind = value[()], dtype_kind(value.dtype)
    if kind == "c":
        return f"({_numbers(x.real)}, {_numbers(x.imag)})"
    if kind == "b":
        return "true" if x else "false"
    return (
        str(int(x)) if kind != "f" else str(x if x.dtype in (np.float32, np.float64) else float(x))
    )


def _braces(values: Iterable) -> str:
    return (
        "{" + ",".join(_braces(v) if isinstance(v, (list, tuple)) else str(v) for v in values) + "}"
    )


#: groups or pairs of devices, of which many collectives have the same
_device_braces = lru_cache(maxsize=256)(_braces)


def _flag(value: Any) -> str:
    return "true" if value else "false"


# --- computations -----------------------------------------------------------------------------------------------------

_OPCODES = {
    "broadcast_in_dim": "broadcast",
    "dot_general": "dot",
    "case": "conditional",
    "func.call": "call",
    "optimization_barrier": "opt-barrier",
    "ragged_all_to_all": "ragged-all-to-all",
}


class _Module:
    """The computations of a module that are finished, and the names in it."""

    def __init__(self, lowering: Lowering, places: bool):
        self.lowering = lowering
        self.places = places
        self.texts: list[str] = []
        self.constants: dict[Value, Op] = {}
        self._counts: dict[str, int] = {}
        self._functions: dict[str, str] = {}
        self._combiners: dict[str, str] = {}

    def free(self, base: str) -> str:
        """A name that is not taken: `%base.1`, `%base.2`, ..."""
        self._counts[base] = self._counts.get(base, 0) + 1
        return f"%{base}.{self._counts[base]}"

    def called(self, callee: str) -> str:
        """The name of a function's computation, which is written when it is first called."""
        if callee not in self._functions:
            name = self.free(callee)
            self.texts.append(self.computation(name[1:], self.lowering.functions[callee].body))
            self._functions[callee] = name
        return self._functions[callee]

    def combiner(self, block: Block) -> str:
        """The name of the computation that combines scalars; one of a single operation is written once."""
        (op,) = block.ops if len(block.ops) == 1 else (None,)
        simple = (
            op is not None
            and op.operands == tuple(block.args)
            and tuple(block.results) == op.results
            and not op.attrs
        )
        key = f"{op.name}_{hlo_type(op.results[0].type)[:-2]}" if simple else ""
        if key not in self._combiners or not key:
            name = self._combiners[key] = self.free(key or "region")
            self.texts.append(self.computation(name[1:], block))
        return self._combiners[key]

    def inner(
        self,
        base: str,
        block: Block,
        captured: Sequence[Value] = (),
        carried: Sequence[Value] | None = None,
    ) -> str:
        """The name of the computation of a region that takes a tuple: `carried`, or the block's arguments, then what it reads around it."""
        name = self.free(base)
        self.texts.append(
            self.computation(name[1:], block, tupled=[*block.args, *captured], given=carried)
        )
        return name

    def computation(
        self,
        name: str,
        block: Block,
        head: str = "",
        tupled: Sequence[Value] | None = None,
        given: Sequence[Value] | None = None,
        in_tiles: Sequence[str] = (),
        out_tiles: Sequence[str] = (),
    ) -> str:
        """A computation with a parameter for each argument, or one for `tupled` values; it gives a tuple of the results and of `given`
        values where that is not None, else a tuple where there are not just one."""
        writer = _Computation(self)
        if tupled is not None:
            whole = writer.line(self.free("param"), _result_type(tupled, True), "parameter(0)")
            shown = f"{whole[1:]}: {_result_type(tupled, True)}"
            writer.spread(whole, tupled)
        else:
            for i, x in enumerate(block.args):
                tiles = f", sharding={in_tiles[i]}" if i < len(in_tiles) and in_tiles[i] else ""
                writer.names[x] = writer.line(
                    self.free("param"), hlo_type(x.type), f"parameter({i}){tiles}"
                )
            shown = ", ".join(f"{writer.names[x][1:]}: {hlo_type(x.type)}" for x in block.args)
        for op in block.ops:
            writer.operation(op)
        results = [*block.results, *(given or ())]
        as_tuple = given is not None or len(results) != 1
        root = writer.tuple(results) if as_tuple else writer.ref(results[0])
        if all(out_tiles) and out_tiles:
            tiles = ", ".join(out_tiles)
            if as_tuple:
                writer.lines[root] += f", sharding={{{tiles}}}"
            else:
                what = f'custom-call({root}), custom_call_target="Sharding", sharding={tiles}'
                root = writer.line(self.free("custom-call"), hlo_type(results[0].type), what)
        lines = [f"  {'ROOT ' if key == root else ''}{text}" for key, text in writer.lines.items()]
        return "\n".join(
            [f"{head}%{name} ({shown}) -> {_result_type(results, as_tuple)} {{", *lines, "}"]
        )


def captured(blocks: Iterable[Block], constants: Container[Value]) -> list[Value]:
    """Values that regions read and do not make, but for constants."""
    made: set[Value] = set()
    read: dict[Value, None] = {}

    def visit(block: Block) -> None:
        made.update(block.args)
        for op in block.ops:
            read.update(dict.fromkeys(op.operands))
            made.update(op.results)
            for region in op.regions:
                visit(region)
        read.update(dict.fromkeys(block.results))

    for block in blocks:
        visit(block)
    return [v for v in read if v not in made and v not in constants]


class _Computation:
    """The lines of a computation, by the names that they define."""

    def __init__(self, module: _Module):
        self.module = module
        self.names: dict[Value, str] = {}
        self.members: dict[Value, tuple[str, int]] = {}
        self.lines: dict[str, str] = {}
        self.place: tuple[Any, str] | None = None
        self.given = ""  # the user's attributes of the operation that is written

    def line(self, name: str, type_: str, what: str) -> str:
        """Add `name = type what` with its attributes and its place; gives the name."""
        metadata = self.given
        if self.place is not None:
            source, label = self.place
            where = (
                f" source_file={json.dumps(source.file)} source_line={source.line}"
                if source is not None
                else ""
            )
            metadata += f", metadata={{op_name={json.dumps(label)}{where}}}"
        self.lines[name] = f"{name} = {type_} {what}{metadata}"
        return name

    def ref(self, x: Value) -> str:
        """The name of a value; constants and members of tuples are written when they are first asked for."""
        if x not in self.names:
            outer, self.place, self.given = (self.place, self.given), None, ""
            if x in self.members:
                whole, i = self.members[x]
                what = f"get-tuple-element({whole}), index={i}"
                self.names[x] = self.line(
                    self.module.free("get-tuple-element"), hlo_type(x.type), what
                )
            else:
                self.constant(x)
            self.place, self.given = outer
        return self.names[x]

    def refs(self, values: Iterable[Value]) -> str:
        return ", ".join([self.ref(v) for v in values])

    def constant(self, x: Value) -> None:
        """A constant; one of equal elements is a number that is spread."""
        value = self.module.constants[x].attrs["value"]
        same = value.ndim and (not value.size or is_uniform(value))
        number = (
            (value[(0,) * value.ndim] if value.size else np.zeros((), value.dtype))
            if same
            else value
        )
        text = _numbers(np.asarray(number)) if np.size(number) <= _MOST_NUMBERS else "{...}"
        type_ = array_type(np.shape(number), value.dtype)
        name = self.line(self.module.free("constant"), hlo_type(type_), f"constant({text})")
        if same:
            name = self.line(
                self.module.free("broadcast"),
                hlo_type(x.type),
                f"broadcast({name}), dimensions={{}}",
            )
        self.names[x] = name

    def tuple(self, values: Sequence[Value]) -> str:
        """A tuple of values."""
        refs = self.refs(values)
        return self.line(self.module.free("tuple"), _result_type(values, True), f"tuple({refs})")

    def spread(self, whole: str, values: Iterable[Value]) -> None:
        """Let `values` be the members of the tuple called `whole`."""
        self.members |= {x: (whole, i) for i, x in enumerate(values)}

    def operation(self, op: Op) -> None:
        """The lines of an operation."""
        if op.name == "constant":
            self.module.constants[op.results[0]] = op
            return
        self.place = op.place if self.module.places else None
        given = ",".join([f"{key}={json.dumps(text)}" for key, text in metadata_texts(op).items()])
        self.given = f", frontend_attributes={{{given}}}" if given else ""
        rewrite = _REWRITTEN.get(op.name)
        other = rewrite and rewrite(self, op)
        if other is None:
            self.plain(op)
        else:
            for inner in other.ops:
                if inner.name == "constant":
                    self.module.constants[inner.results[0]] = inner
                else:
                    self.plain(inner)
            self.names |= zip(op.results, [self.ref(x) for x in other.results])
        self.place, self.given = None, ""

    def plain(self, op: Op) -> None:
        """The line of an operation that HLO has, and those of its results."""
        opcode = _OPCODES.get(op.name) or op.name.removeprefix("chlo.").replace("_", "-")
        form = _FORMS.get(op.name)
        operands, attrs = self.refs(op.operands), ()
        if form is not None:
            attrs = form(self, op)
            if isinstance(attrs, tuple):
                operands, attrs = attrs
        as_tuple = op.name in ("while", "case")
        base = f"{op.attrs['label']}_fusion" if op.name == "fusion" else opcode
        whole = self.line(
            self.module.free(base),
            _result_type(op.results, as_tuple),
            ", ".join([f"{opcode}({operands})", *attrs]),
        )
        if len(op.results) == 1 and not as_tuple:
            self.names[op.results[0]] = whole
        else:
            self.spread(whole, op.results)


#: the attributes of an operation, or (operands, attributes)
_FORMS: dict[str, Callable[[_Computation, Op], Any]] = {}
#: another form of an operation, or None where it is one of HLO
_REWRITTEN: dict[str, Callable[[_Computation, Op], Block | None]] = {}


def _form(*names: str) -> Callable[[Callable], Callable]:
    return lambda fn: _FORMS.update(dict.fromkeys(names, fn)) or fn


def _rewritten(*names: str) -> Callable[[Callable], Callable]:
    return lambda fn: _REWRITTEN.update(dict.fromkeys(names, fn)) or fn


# --- elements and dims


@_form("compare")
def _compare(c: _Computation, op: Op) -> list[str]:
    return [
        f"direction={op.attrs['direction']}",
        *(["type=TOTALORDER"] if op.attrs["kind"] == "TOTALORDER" else []),
    ]


@_form("reduce_precision")
def _reduce_precision(c: _Computation, op: Op) -> list[str]:
    return [f"{k}={op.attrs[k]}" for k in ("exponent_bits", "mantissa_bits")]


@_form("iota")
def _iota(c: _Computation, op: Op) -> list[str]:
    return [f"iota_dimension={op.attrs['dim']}"]


@_form("broadcast_in_dim", "transpose", "reverse")
def _of_dims(c: _Computation, op: Op) -> list[str]:
    return [f"dimensions={_braces(op.attrs['dims'])}"]


@_rewritten("broadcast_in_dim")
def _broadcast(c: _Computation, op: Op) -> Block | None:
    """Dims of one element are not stretched: they are taken away before."""
    (x,), out, dims = op.operands, op.results[0].type, op.attrs["dims"]
    kept = [i for i, d in enumerate(dims) if x.shape[i] == out.shape[d]]
    if len(kept) == x.ndim:
        return None
    b = Block(c.module.lowering)
    found = b.reshape(x, [x.shape[i] for i in kept])
    b.results = [b.op("broadcast_in_dim", found, type=out, dims=tuple([dims[i] for i in kept]))]
    return b


@_form("concatenate")
def _concatenate(c: _Computation, op: Op) -> list[str]:
    return [f"dimensions={{{op.attrs['dim']}}}"]


@_form("slice")
def _slice(c: _Computation, op: Op) -> list[str]:
    bounds = zip(op.attrs["starts"], op.attrs["limits"], op.attrs["strides"])
    return [
        f"slice={{{', '.join(f'[{lo}:{hi}' + (f':{step}]' if step != 1 else ']') for lo, hi, step in bounds)}}}"
    ]


@_form("pad")
def _pad(c: _Computation, op: Op) -> list[str]:
    return [
        "padding="
        + "x".join(
            f"{lo}_{hi}_{gap}"
            for lo, hi, gap in zip(*(op.attrs[k] for k in ("low", "high", "interior")))
        )
    ]


@_form("dynamic_slice")
def _dynamic_slice(c: _Computation, op: Op) -> list[str]:
    return [f"dynamic_slice_sizes={_braces(op.attrs['sizes'])}"]


def _numbered(op: Op, names: Sequence[str]) -> list[str]:
    """Dimension numbers of a gather or a scatter."""
    last = f"index_vector_dim={op.operands[1].ndim - 1}"
    shown = [
        f"{k}={_braces(v)}"
        for k, v in zip(names, op.attrs["numbers"])
        if v or not k.endswith("batching_dims")
    ]
    return [
        *shown,
        last,
        *[f"{k}=true" for k in ("indices_are_sorted", "unique_indices") if op.attrs.get(k)],
    ]


@_form("gather")
def _gather(c: _Computation, op: Op) -> list[str]:
    names = (
        "offset_dims",
        "collapsed_slice_dims",
        "start_index_map",
        "operand_batching_dims",
        "start_indices_batching_dims",
    )
    return [*_numbered(op, names), f"slice_sizes={_braces(op.attrs['sizes'])}"]


@_form("scatter")
def _scatter(c: _Computation, op: Op) -> list[str]:
    names = (
        "update_window_dims",
        "inserted_window_dims",
        "scatter_dims_to_operand_dims",
        "input_batching_dims",
        "scatter_indices_batching_dims",
    )
    return [*_numbered(op, names), _to_apply(c, op)]


# --- regions


def _to_apply(c: _Computation, op: Op) -> str:
    return f"to_apply={c.module.combiner(op.regions[0])}"


@_form("reduce")
def _reduce(c: _Computation, op: Op) -> list[str]:
    return [f"dimensions={_braces(op.attrs['dims'])}", _to_apply(c, op)]


def _window(
    sizes: Sequence[int],
    strides: Sequence[int],
    padding: Sequence,
    lhs: Sequence[int],
    rhs: Sequence[int],
) -> list[str]:
    by = lambda values: "x".join(map(str, values))
    if not sizes:
        return []
    return [
        f"window={{size={by(sizes)} stride={by(strides)} pad={by(f'{lo}_{hi}' for lo, hi in padding)} lhs_dilate={by(lhs)} "
        f"rhs_dilate={by(rhs)}}}"
    ]


@_form("reduce_window")
def _reduce_window(c: _Computation, op: Op) -> list[str]:
    a = op.attrs
    return [
        *_window(
            a["window"], a["strides"], a["padding"], a["base_dilations"], a["window_dilations"]
        ),
        _to_apply(c, op),
    ]


@_form("sort")
def _sort(c: _Computation, op: Op) -> list[str]:
    return [
        f"dimensions={{{op.attrs['dim']}}}",
        *(["is_stable=true"] if op.attrs["is_stable"] else []),
        _to_apply(c, op),
    ]


@_form("case")
def _case(c: _Computation, op: Op) -> tuple[str, list[str]]:
    """Every branch takes a tuple of what it reads."""
    reads = [captured([r], c.module.constants) for r in op.regions]
    operands = [c.ref(op.operands[0]), *[c.tuple(values) for values in reads]]
    labels = [
        c.module.inner("branch", r, values, carried=()) for r, values in zip(op.regions, reads)
    ]
    return ", ".join(operands), [f"branch_computations={{{', '.join(labels)}}}"]


@_form("while")
def _while(c: _Computation, op: Op) -> tuple[str, list[str]]:
    """The state is a tuple of what is carried and of what the regions read around them."""
    cond, body = op.regions
    reads = captured(op.regions, c.module.constants)
    state = c.tuple([*op.operands, *reads])
    given = [
        f"condition={c.module.inner('condition', cond, reads)}",
        f"body={c.module.inner('body', body, reads, carried=reads)}",
    ]
    trips = op.attrs.get("trip_count")
    return state, [
        *given,
        *(
            [f'backend_config={{"known_trip_count":{{"n":"{trips}"}}}}']
            if trips is not None
            else []
        ),
    ]


@_form("func.call")
def _call(c: _Computation, op: Op) -> list[str]:
    return [f"to_apply={c.module.called(op.attrs['callee'])}"]


@_form("fusion")
def _fusion(c: _Computation, op: Op) -> list[str]:
    name = c.module.free("fused_computation")
    c.module.texts.append(c.module.computation(name[1:], op.regions[0]))
    return [f"kind={op.attrs['kind']}", f"calls={name}"]


@_form("optimization_barrier")
def _barrier(c: _Computation, op: Op) -> tuple[str, list[str]] | list[str]:
    return (c.tuple(op.operands), []) if len(op.operands) != 1 else []


# --- products and what libraries compute


def _precision(op: Op) -> list[str]:
    kinds = [str(p).lower() for p in op.attrs["precision"]]
    return [f"operand_precision={_braces(kinds)}"] if set(kinds) != {"default"} else []


@_form("dot_general")
def _dot(c: _Computation, op: Op) -> list[str]:
    (lb, rb), (lc, rc) = op.attrs["batching"], op.attrs["contracting"]
    batch = [f"lhs_batch_dims={_braces(lb)}", f"rhs_batch_dims={_braces(rb)}"] if lb else []
    return [
        *batch,
        f"lhs_contracting_dims={_braces(lc)}",
        f"rhs_contracting_dims={_braces(rc)}",
        *_precision(op),
    ]


@_form("convolution")
def _convolution(c: _Computation, op: Op) -> list[str]:
    a = op.attrs

    def labels(dims: Sequence[int], letters: str) -> str:
        named = {d: (*letters, *range(len(dims) - 2))[i] for i, d in enumerate(dims)}
        return "".join(str(named[d]) for d in range(len(dims)))

    lhs, rhs, out = a["numbers"]
    sizes = [op.operands[1].shape[d] for d in rhs[2:]]
    counts = [f"{k}={a[k]}" for k in ("feature_group_count", "batch_group_count") if a[k] != 1]
    return [
        *_window(sizes, a["strides"], a["padding"], a["lhs_dilation"], a["rhs_dilation"]),
        f"dim_labels={labels(lhs, 'bf')}_{labels(rhs, 'oi')}->{labels(out, 'bf')}",
        *counts,
        *_precision(op),
    ]


@_form("fft")
def _fft(c: _Computation, op: Op) -> list[str]:
    return [f"fft_type={op.attrs['kind']}", f"fft_length={_braces(op.attrs['lengths'])}"]


@_form("cholesky")
def _cholesky(c: _Computation, op: Op) -> list[str]:
    return [f"lower={_flag(op.attrs['lower'])}"]


@_form("triangular_solve")
def _triangular_solve(c: _Computation, op: Op) -> list[str]:
    a = op.attrs
    return [
        *[f"{k}={_flag(a[k])}" for k in ("left_side", "lower", "unit_diagonal")],
        f"transpose_a={a['transpose']}",
    ]


@_form("custom_call")
def _custom_call(c: _Computation, op: Op) -> list[str]:
    a = op.attrs
    attributes = [
        f"custom_call_target={json.dumps(a['target'])}",
        *(["custom_call_has_side_effect=true"] if a["has_side_effect"] else []),
    ]
    attributes += [f"sharding={a['sharding']}"] if "sharding" in a else []
    return [
        *attributes,
        *(
            [f"backend_config={json.dumps(json.dumps(a['backend_config']))}"]
            if a["backend_config"]
            else []
        ),
    ]


# --- several devices


def _custom(
    b: Block, x: Value, target: str, sharding: str, type_: ShapedArray | None = None
) -> Value:
    return b.op(
        "custom_call",
        x,
        type=type_,
        target=target,
        backend_config={},
        sharding=sharding,
        has_side_effect=False,
    )


@_rewritten("sdy.sharding_constraint")
def _constraint(c: _Computation, op: Op) -> Block:
    b = Block(c.module.lowering)
    b.results = [_custom(b, op.operands[0], "Sharding", op.attrs["tiles"])]
    return b


@_rewritten("sdy.manual_computation")
def _manual(c: _Computation, op: Op) -> Block:
    """A call between what takes arrays apart and what puts them together."""
    b, (body,), mesh = Block(c.module.lowering), op.regions, op.attrs["mesh"]

    def tiles(spec: PartitionSpec, ndim: int) -> str:
        return (
            tiles_text(NamedSharding(mesh, spec), ndim) if isinstance(mesh, Mesh) else "{unknown}"
        )

    shards = [
        _custom(
            b,
            _custom(b, x, "Sharding", tiles(spec, x.ndim)),
            "SPMDFullToShardShape",
            "{manual}",
            inner.type,
        )
        for x, inner, spec in zip(op.operands, body.args, op.attrs["in_specs"])
    ]
    around = captured([body], c.module.constants)
    function = Function(c.module.free("shmap_body")[1:], Block(c.module.lowering))
    function.body.args, function.body.ops, function.body.results = (
        [*body.args, *around],
        body.ops,
        body.results,
    )
    c.module.lowering.functions[function.name] = function
    made = b.emit(
        "func.call", [*shards, *around], [x.type for x in body.results], callee=function.name
    )
    b.results = [
        _custom(
            b,
            _custom(b, y, "Sharding", "{manual}"),
            "SPMDShardToFullShape",
            tiles(spec, y.ndim),
            out.type,
        )
        for y, out, spec in zip(made, op.results, op.attrs["out_specs"])
    ]
    return b


@_form(
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "collective_permute",
    "collective_broadcast",
    "ragged_all_to_all",
)
def _collective(c: _Computation, op: Op) -> list[str]:
    a, permuted = op.attrs, op.name == "collective_permute"
    attributes = [f"channel_id={a['channel']}"] if "channel" in a else []
    attributes.append(
        f"{'source_target_pairs' if permuted else 'replica_groups'}={_device_braces(a['groups'])}"
    )
    if op.name in ("all_reduce", "all_gather", "reduce_scatter"):
        attributes.append("use_global_device_ids=true")
    return [
        *attributes,
        *([f"dimensions={{{a['dim']}}}"] if "dim" in a else []),
        *([_to_apply(c, op)] if op.regions else []),
    ]


@_rewritten("all_to_all")
def _all_to_all(c: _Computation, op: Op) -> Block | None:
    """Devices exchange the parts of one dim; those of another one are moved there and back."""
    a, (x,) = op.attrs, op.operands
    if "split" not in a:
        return None
    split, concat, count = a["split"], a["concat"], a["count"]
    b = Block(c.module.lowering)
    facts = {"channel": a["channel"], "groups": a["groups"]}
    if split == concat:
        b.results = [b.op("all_to_all", x, dim=split, **facts)]
        return b
    parts = b.reshape(x, (*x.shape[:split], count, x.shape[split] // count, *x.shape[split + 1 :]))
    got = b.op("all_to_all", parts, dim=split, **facts)
    order = [d for d in range(got.ndim) if d != split]
    order.insert(concat, split)
    b.results = [b.reshape(b.transpose(got, order), op.results[0].shape)]
    return b


@_rewritten("custom_call")
def _ragged(c: _Computation, op: Op) -> Block | None:
    """HLO has an instruction for what is a call in StableHLO."""
    if op.attrs["target"] != "ragged_all_to_all":
        return None
    b = Block(c.module.lowering)
    b.results = b.emit(
        "ragged_all_to_all", op.operands, [x.type for x in op.results], groups=op.attrs["groups"]
    )
    return b
