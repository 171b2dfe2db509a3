"""Computations of an HLO module as text, written line by line.

In:   blocks of operations.
Out:  `HloModule.computation` writes one computation. The tables `FORMS` and `REWRITTEN`, which
      `hlo_forms` fills, say how each operation is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from weft._engine.hlo.lowering import HloLowering
from weft._engine.hlo.ops import (
    HloBlock,
    HloOp,
    HloValue,
    array_type,
    dtype_kind,
    is_uniform,
    metadata_texts,
)
from weft._engine.hlo.rules import arrays, elementwise, products, reductions, regions  # noqa: F401  (fill the table of rules)
from weft._engine.ir.types import ShapedArray
from weft._engine.util import dtypes

#: functions that are HLO instructions, by their names in CHLO
FUNCTIONS = frozenset(
    f"chlo.{name}" for name in ("acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh", "erf")
)
#: the most elements that an array is written with; longer arrays are elided, as XLA elides them
_MOST_NUMBERS = 1 << 16


class StoredValue(HloValue):
    """An argument or a result whose dims are stored in `order`, the slowest first."""

    __slots__ = ("order",)

    def __init__(self, type_: ShapedArray, order: tuple[int, ...]):
        super().__init__(type_)
        self.order = order


def value_type(x: HloValue) -> str:
    """Return the type of a value as HLO writes it."""
    return hlo_type(x.type, x.order if isinstance(x, StoredValue) else None)


def hlo_type(type_: ShapedArray, order: Sequence[int] | None = None) -> str:
    """Return a type as HLO writes it, with the order of its dims in memory, the slowest first.

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
    slowest_first = range(type_.ndim) if order is None else order
    layout = f"{{{','.join(str(d) for d in reversed(slowest_first))}}}" if type_.ndim else ""
    return f"{element}[{','.join(map(str, type_.shape))}]{layout}"


def result_type(values: Sequence[HloValue], as_tuple: bool = False) -> str:
    if len(values) == 1 and not as_tuple:
        return value_type(values[0])
    return f"({', '.join(map(value_type, values))})"


def numbers_text(value: np.ndarray) -> str:
    if value.ndim:
        return f"{{{', '.join(map(numbers_text, value))}}}"
    x, kind = value[()], dtype_kind(value.dtype)
    if kind == "c":
        return f"({numbers_text(np.real(x))}, {numbers_text(np.imag(x))})"
    if kind == "b":
        return "true" if x else "false"
    return (
        str(int(x)) if kind != "f" else str(x if x.dtype in (np.float32, np.float64) else float(x))
    )


def braces(values: Iterable) -> str:
    return (
        "{" + ",".join(braces(v) if isinstance(v, (list, tuple)) else str(v) for v in values) + "}"
    )


#: text of groups or pairs of devices; many collectives have the same ones
device_braces = lru_cache(maxsize=256)(braces)


def flag(value: Any) -> str:
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


class HloModule:
    """The finished computations of a module, and the names in it."""

    def __init__(self, lowering: HloLowering, places: bool):
        self.lowering = lowering
        self.places = places
        self.texts: list[str] = []
        self.constants: dict[HloValue, HloOp] = {}
        self._counts: dict[str, int] = {}
        self._functions: dict[str, str] = {}
        self._combiners: dict[str, str] = {}

    def unique_name(self, base: str) -> str:
        """Return an unused name: `%base.1`, `%base.2`, ..."""
        self._counts[base] = self._counts.get(base, 0) + 1
        return f"%{base}.{self._counts[base]}"

    def callee_computation(self, callee: str) -> str:
        """Return the name of a function's computation; write it at the first call."""
        if callee not in self._functions:
            name = self.unique_name(callee)
            self.texts.append(self.computation(name[1:], self.lowering.functions[callee].body))
            self._functions[callee] = name
        return self._functions[callee]

    def combiner(self, block: HloBlock) -> str:
        """Return the name of the computation that combines scalars.

        A computation of a single operation is written once.
        """
        key = ""
        for op in block.ops if len(block.ops) == 1 else ():
            is_combiner = op.operands == tuple(block.args) and op.results == tuple(block.results)
            if is_combiner and not op.attrs:
                key = f"{op.name}_{value_type(op.results[0])[:-2]}"
        if key not in self._combiners or not key:
            name = self._combiners[key] = self.unique_name(key or "region")
            self.texts.append(self.computation(name[1:], block))
        return self._combiners[key]

    def region_computation(
        self,
        base: str,
        block: HloBlock,
        captured: Sequence[HloValue] = (),
        carried: Sequence[HloValue] | None = None,
    ) -> str:
        """Return the name of the computation of a region with one tuple as argument.

        The tuple holds the arguments of the block, then the values `captured` from outside. The
        result is a tuple; `carried` values are appended to the results if given.
        """
        name = self.unique_name(base)
        self.texts.append(
            self.computation(name[1:], block, tupled=[*block.args, *captured], appended=carried)
        )
        return name

    def computation(
        self,
        name: str,
        block: HloBlock,
        head: str = "",
        tupled: Sequence[HloValue] | None = None,
        appended: Sequence[HloValue] | None = None,
        in_tiles: Sequence[str] = (),
        out_tiles: Sequence[str] = (),
    ) -> str:
        """Return the text of a computation.

        It has a parameter for each argument, or one parameter for `tupled` values. The result is a
        tuple of the results and `appended` values if `appended` is not None; else a tuple unless there is
        exactly one result.
        """
        writer = Computation(self)
        if tupled is not None:
            whole = writer.line(
                self.unique_name("param"), result_type(tupled, True), "parameter(0)"
            )
            signature = f"{whole[1:]}: {result_type(tupled, True)}"
            writer.register_members(whole, tupled)
        else:
            for i, x in enumerate(block.args):
                tiles = f", sharding={in_tiles[i]}" if i < len(in_tiles) and in_tiles[i] else ""
                writer.names[x] = writer.line(
                    self.unique_name("param"), value_type(x), f"parameter({i}){tiles}"
                )
            signature = ", ".join(f"{writer.names[x][1:]}: {value_type(x)}" for x in block.args)
        for op in block.ops:
            writer.operation(op)
        results = [*block.results, *(appended or ())]
        as_tuple = appended is not None or len(results) != 1
        root = writer.tuple(results) if as_tuple else writer.ref(results[0])
        if all(out_tiles) and out_tiles:
            tiles = ", ".join(out_tiles)
            if as_tuple:
                writer.lines[root] += f", sharding={{{tiles}}}"
            else:
                what = f'custom-call({root}), custom_call_target="Sharding", sharding={tiles}'
                root = writer.line(self.unique_name("custom-call"), value_type(results[0]), what)
        lines = [f"  {'ROOT ' if key == root else ''}{text}" for key, text in writer.lines.items()]
        return "\n".join(
            [f"{head}%{name} ({signature}) -> {result_type(results, as_tuple)} {{", *lines, "}"]
        )


def captured_values(blocks: Iterable[HloBlock], constants: Container[HloValue]) -> list[HloValue]:
    """Return the values that regions read but do not define, without constants."""
    defined: set[HloValue] = set()
    read: dict[HloValue, None] = {}

    def visit(block: HloBlock) -> None:
        defined.update(block.args)
        for op in block.ops:
            read.update(dict.fromkeys(op.operands))
            defined.update(op.results)
            for region in op.regions:
                visit(region)
        read.update(dict.fromkeys(block.results))

    for block in blocks:
        visit(block)
    return [v for v in read if v not in defined and v not in constants]


class Computation:
    """The lines of a computation, by the names that they define."""

    def __init__(self, module: HloModule):
        self.module = module
        self.names: dict[HloValue, str] = {}
        self.members: dict[HloValue, tuple[str, int]] = {}
        self.lines: dict[str, str] = {}
        self.place: tuple[Any, str] | None = None
        self.frontend_attributes = ""  # the user's attributes of the current operation

    def line(self, name: str, type_: str, what: str) -> str:
        """Add `name = type what` with its attributes and source place; return the name."""
        metadata = self.frontend_attributes
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

    def ref(self, x: HloValue) -> str:
        """Return the name of a value.

        Constants and members of tuples are written when they are first referenced.
        """
        if x not in self.names:
            outer, self.place, self.frontend_attributes = (
                (self.place, self.frontend_attributes),
                None,
                "",
            )
            if x in self.members:
                whole, i = self.members[x]
                what = f"get-tuple-element({whole}), index={i}"
                self.names[x] = self.line(
                    self.module.unique_name("get-tuple-element"), value_type(x), what
                )
            else:
                self.constant(x)
            self.place, self.frontend_attributes = outer
        return self.names[x]

    def refs(self, values: Iterable[HloValue]) -> str:
        return ", ".join([self.ref(v) for v in values])

    def constant(self, x: HloValue) -> None:
        """Write a constant; an array of equal elements is written as a broadcast scalar."""
        value = self.module.constants[x].attrs["value"]
        is_uniform_value = value.ndim and (not value.size or is_uniform(value))
        number = (
            (value[(0,) * value.ndim] if value.size else np.zeros((), value.dtype))
            if is_uniform_value
            else value
        )
        text = numbers_text(np.asarray(number)) if np.size(number) <= _MOST_NUMBERS else "{...}"
        type_ = array_type(np.shape(number), value.dtype)
        name = self.line(self.module.unique_name("constant"), hlo_type(type_), f"constant({text})")
        if is_uniform_value:
            name = self.line(
                self.module.unique_name("broadcast"),
                value_type(x),
                f"broadcast({name}), dimensions={{}}",
            )
        self.names[x] = name

    def tuple(self, values: Sequence[HloValue]) -> str:
        """Write a tuple of values; return its name."""
        refs = self.refs(values)
        return self.line(
            self.module.unique_name("tuple"), result_type(values, True), f"tuple({refs})"
        )

    def register_members(self, whole: str, values: Iterable[HloValue]) -> None:
        """Register `values` as the members of the tuple called `whole`."""
        self.members |= {x: (whole, i) for i, x in enumerate(values)}

    def operation(self, op: HloOp) -> None:
        """Write the lines of an operation, after rewriting it if HLO lacks it."""
        if op.name == "constant":
            self.module.constants[op.results[0]] = op
            return
        self.place = op.place if self.module.places else None
        texts = ",".join([f"{key}={json.dumps(text)}" for key, text in metadata_texts(op).items()])
        self.frontend_attributes = f", frontend_attributes={{{texts}}}" if texts else ""
        rewrite = REWRITTEN.get(op.name)
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
        self.place, self.frontend_attributes = None, ""

    def plain(self, op: HloOp) -> None:
        """Write the line of an operation that HLO has; register the names of its results."""
        opcode = _OPCODES.get(op.name) or op.name.removeprefix("chlo.").replace("_", "-")
        form = FORMS.get(op.name)
        operands, attrs = self.refs(op.operands), ()
        if form is not None:
            attrs = form(self, op)
            if isinstance(attrs, tuple):
                operands, attrs = attrs
        as_tuple = op.name in ("while", "case")
        base = f"{op.attrs['label']}_fusion" if op.name == "fusion" else opcode
        whole = self.line(
            self.module.unique_name(base),
            result_type(op.results, as_tuple),
            ", ".join([f"{opcode}({operands})", *attrs]),
        )
        if len(op.results) == 1 and not as_tuple:
            self.names[op.results[0]] = whole
        else:
            self.register_members(whole, op.results)


#: functions that return the attributes of an operation, or (operands, attributes)
FORMS: dict[str, Callable[[Computation, HloOp], Any]] = {}
#: functions that return operations to write in place of one, or None where HLO has the operation
REWRITTEN: dict[str, Callable[[Computation, HloOp], HloBlock | None]] = {}


def form(*names: str) -> Callable[[Callable], Callable]:
    return lambda fn: FORMS.update(dict.fromkeys(names, fn)) or fn


def rewrite(*names: str) -> Callable[[Callable], Callable]:
    return lambda fn: REWRITTEN.update(dict.fromkeys(names, fn)) or fn
