"""Conversion of serialized HLO modules of other compilers to the text that XLA prints.

In:   a serialized HloModuleProto, as PJRT plugins return optimized programs.
Out:  the module as HLO text.
Laws: instructions are in the order of the schedule if the module has one. Fields with unknown
      meaning are omitted; opcodes, operands, types and called computations are always complete.
Source: xla/service/hlo.proto and xla/xla_data.proto (field numbers below).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft._engine.util import dtypes

#: the most elements that an array is written with, as in XLA
_MOST_NUMBERS = 10

#: element types: number, name in texts, name of the dtype, field of LiteralProto
_ELEMENTS: dict[int, tuple[str, str, int]] = {
    int(number): (name, dtype, int(field))
    for number, name, dtype, field in (
        line.split()
        for line in """\
1 pred bool 2
26 s2 int2 26
21 s4 int4 21
2 s8 int8 15
3 s16 int16 17
4 s32 int32 4
5 s64 int64 5
27 u2 uint2 27
22 u4 uint4 22
6 u8 uint8 3
7 u16 uint16 16
8 u32 uint32 6
9 u64 uint64 7
10 f16 float16 11
11 f32 float32 8
12 f64 float64 9
16 bf16 bfloat16 13
15 c64 complex64 12
18 c128 complex128 18
19 f8e5m2 float8_e5m2 19
28 f8e4m3 float8_e4m3 28
20 f8e4m3fn float8_e4m3fn 20
23 f8e4m3b11fnuz float8_e4m3b11fnuz 23
29 f8e3m4 float8_e3m4 29
24 f8e5m2fnuz float8_e5m2fnuz 24
25 f8e4m3fnuz float8_e4m3fnuz 25
32 f4e2m1fn float4_e2m1fn 32
33 f8e8m0fnu float8_e8m0fnu 33""".splitlines()
    )
}
_PRED, _TUPLE, _OPAQUE, _TOKEN = 1, 13, 14, 17
# other dtypes are stored as bytes in memory order
_VARINT_LITERALS = frozenset(["bool", "int32", "int64", "uint32", "uint64"])


# ---- protocol buffers


class Message:
    """A decoded message: the values of each field, as numbers or bytes."""

    def __init__(self, data: bytes | memoryview = b"") -> None:
        self._fields: dict[int, list[Any]] = {}
        for field, value in _fields_of(memoryview(data)):
            self._fields.setdefault(field, []).append(value)

    def __contains__(self, field: int) -> bool:
        return field in self._fields

    def number(self, field: int) -> int:
        """Return a signed number, or 0 if the field is absent."""
        values = self._fields.get(field)
        return _sign(values[-1]) if values else 0

    def numbers(self, field: int) -> list[int]:
        """Return the numbers of a repeated field, packed or not."""
        numbers = []
        for value in self._fields.get(field, ()):
            numbers += [value] if isinstance(value, int) else _varints(value)
        return [_sign(n) for n in numbers]

    def data(self, field: int) -> bytes:
        """Return bytes, concatenated over all occurrences, as packed fields may come in pieces."""
        return b"".join(map(bytes, self._fields.get(field, ())))

    def text(self, field: int) -> str:
        """Return a string field."""
        return self.data(field).decode(errors="replace")

    def values(self, field: int) -> list[Any]:
        """Return the values of a repeated field."""
        return self._fields.get(field, [])

    def message(self, field: int) -> Message:
        """Return a message, or an empty one if the field is absent."""
        return Message(self._fields[field][-1]) if field in self else Message()

    def messages(self, field: int) -> list[Message]:
        """Return the messages of a repeated field."""
        return [Message(data) for data in self._fields.get(field, ())]


def _sign(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number at an offset, and the offset after it."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


def _varints(data: memoryview) -> Iterator[int]:
    at = 0
    while at < len(data):
        number, at = _varint(data, at)
        yield number


def _fields_of(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield field number and value of each field of a message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(kind)
            if size is None:
                size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        yield key >> 3, value


# ---- types and values


def _braces(values: Sequence[Any]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def _shape_text(shape: Message, with_layout: bool = True) -> str:
    """Return a ShapeProto as text, such as `f32[2,3]{1,0}`."""
    element = shape.number(2)
    if element == _TUPLE:
        return f"({_list_items([_shape_text(part, with_layout) for part in shape.messages(4)])})"
    if element in (_OPAQUE, _TOKEN):
        return "opaque[]" if element == _OPAQUE else "token[]"
    dynamic = shape.numbers(6) or [0] * len(shape.numbers(3))
    sizes = [f"{'<=' * is_open}{n}" for n, is_open in zip(shape.numbers(3), dynamic)]
    name = _ELEMENTS[element][0] if element in _ELEMENTS else f"type{element}"
    return f"{name}[{','.join(sizes)}]{_layout_text(shape.message(5)) if with_layout else ''}"


def _list_items(texts: Sequence[str]) -> str:
    """Join texts with commas; every fifth one is preceded by its index, as in XLA's texts."""
    return ", ".join(
        [f"/*index={i}*/{text}" if i and i % 5 == 0 else text for i, text in enumerate(texts)]
    )


def _layout_text(layout: Message) -> str:
    """Return a LayoutProto as text: the order of dims, then tiles, element size, memory space."""
    tiles = [_braces(tile.numbers(1))[1:-1] for tile in layout.messages(6)]
    facts = "".join([f"({tile})" for tile in tiles])
    facts = f"T{facts}" if facts else ""
    for field, label, usual in ((16, "L", 1), (7, "E", 0), (8, "S", 0)):
        if layout.number(field) not in (0, usual):
            facts += f"{label}({layout.number(field)})"
    order = ",".join(map(str, layout.numbers(1)))
    return f"{{{order}{':' * bool(facts)}{facts}}}" if order or facts else ""


def _literal(literal: Message) -> str:
    """Return a LiteralProto as text; `{...}` if it has many elements."""
    shape = literal.message(1)
    if shape.number(2) == _TUPLE:
        return f"( {', '.join(_literal(part) for part in literal.messages(10))} )"
    sizes = shape.numbers(3)
    if math.prod(sizes) > _MOST_NUMBERS or shape.number(2) not in _ELEMENTS:
        return "{...}"
    _, name, field = _ELEMENTS[shape.number(2)]
    dtype = dtypes.as_dtype(name)
    values = (
        np.array(literal.numbers(field), object).astype(dtype)
        if name in _VARINT_LITERALS
        else np.frombuffer(literal.data(field), dtype)
    )
    return _values(values.reshape(sizes))


def _values(values: np.ndarray) -> str:
    """Return the elements of an array as text; in arrays, bools are 0 and 1."""
    if not values.ndim:
        return _number(values[()])
    if values.dtype == np.bool_:
        values = values.astype(np.uint8)
    if values.ndim == 1:
        return f"{{{', '.join(map(_number, values))}}}"
    return _rows(values)


def _rows(values: np.ndarray) -> str:
    if values.shape == (1,):
        return f"{{{_number(values[0])}}}"
    parts = map(_rows, values) if values.ndim > 1 else map(_number, values)
    return f"{{ {', '.join(parts)} }}"


def _number(value: Any) -> str:
    """Return a number in as few digits as XLA takes to read the same number."""
    dtype = np.dtype(value.dtype)
    if dtype == np.bool_:
        return _flag(value)
    if dtype.kind == "c":
        return f"({_number(value.real)}, {_number(value.imag)})"
    if dtypes.issubdtype(dtype, np.integer):
        return str(int(value))
    number = float(value)
    if not math.isfinite(number):
        return "nan" if math.isnan(number) else f"{'-' * (number < 0)}inf"
    short, exact = {4: (6, 9), 8: (15, 17)}.get(dtype.itemsize, (5, 5))
    text = f"{number:.{short}g}"
    return text if dtype.type(float(text)) == value else f"{number:.{exact}g}"


# ---- attributes of instructions


def _flag(value: Any) -> str:
    return "true" if value else "false"


def _map_text(attributes: Message) -> str:
    """Return a FrontendAttributes message as text."""
    entries = sorted((entry.text(1), entry.text(2)) for entry in attributes.messages(1))
    return "{" + ",".join(f"{key}={json.dumps(value)}" for key, value in entries) + "}"


def _window(window: Message) -> str:
    dims = window.messages(1)
    column = lambda field: [dim.number(field) for dim in dims]
    facts = [f"size={'x'.join(map(str, column(1)))}"]
    pads = list(zip(column(3), column(4)))
    for label, values, usual in (
        ("stride", column(2), 1),
        ("pad", [f"{low}_{high}" for low, high in pads], "0_0"),
        ("lhs_dilate", column(6), 1),
        ("rhs_dilate", column(5), 1),
        ("rhs_reversal", column(7), 0),
    ):
        if any(value != usual for value in values):
            facts.append(f"{label}={'x'.join(map(str, values))}")
    return f"{{{' '.join(facts)}}}"


def _dim_labels(numbers: Message) -> str:
    """Return the dims of a convolution, such as `bf01_oi01->bf01`."""

    def labels(first: tuple[int, str], second: tuple[int, str], spatial: int) -> str:
        by_dim = {numbers.number(field): letter for field, letter in (first, second)}
        by_dim |= {dim: str(i) for i, dim in enumerate(numbers.numbers(spatial))}
        return "".join(by_dim[dim] for dim in sorted(by_dim))

    arguments = labels((7, "b"), (8, "f"), 11), labels((3, "i"), (4, "o"), 6)
    return f"{'_'.join(arguments)}->{labels((9, 'b'), (10, 'f'), 12)}"


def _dims(numbers: Message, fields: str) -> str:
    """Return dimension numbers, named as `name:field`; those with `?` are omitted if empty."""
    texts = []
    for entry in fields.split():
        name, _, field = entry.rstrip("?").partition(":")
        values = numbers.numbers(int(field))
        if values or not entry.endswith("?"):
            texts.append(f"{name}={_braces(values)}")
    return ", ".join(texts)


def _devices(devices: Message) -> str:
    """Return the groups of a CollectiveDeviceListProto: lists, or a reshaped and transposed iota."""
    iota = devices.message(2)
    if not iota.number(1):
        return _braces([_braces(group.numbers(1)) for group in devices.messages(1)])
    sizes, order = iota.numbers(3), iota.numbers(4)
    text = f"[{iota.number(1)},{iota.number(2)}]<=[{','.join(map(str, sizes))}]"
    turned = order and order != sorted(order)
    return f"{text}T({','.join(map(str, order))})" if turned else text


def _tiles(sharding: Message) -> str:
    """Return an OpSharding as text."""
    kind = sharding.number(1)
    if kind == 2:
        return f"{{{_list_items([*map(_tiles, sharding.messages(5))])}}}"
    names = {0: "replicated", 4: "manual", 5: "unknown", 6: "unreduced"}
    if kind in names:
        return f"{{{names[kind]}}}"
    devices = ",".join(map(str, sharding.numbers(4)))
    if kind == 1:
        return f"{{maximal device={devices}}}"
    if not devices:
        devices = f"<=[{','.join(map(str, sharding.numbers(9)))}]"
        order = sharding.numbers(10)
        devices += f"T({','.join(map(str, order))})" if order != sorted(order) else ""
    grid = ",".join(map(str, sharding.numbers(3)))
    last = [names.get(kind, "") for kind in sharding.numbers(8)]
    facts = f" last_tile_dims={{{', '.join(last)}}}" if last else ""
    facts += " last_tile_dim_replicate" if sharding.number(6) else ""
    return f"{{devices=[{grid}]{devices}{facts}}}"


def _precision(config: Message) -> str:
    kinds = [("default", "high", "highest")[kind] for kind in config.numbers(1)]
    text = f"operand_precision={_braces(kinds)}"
    return text if set(kinds) - {"default"} else ""


def _metadata(metadata: Message) -> str:
    texts = []
    for name, field in (("op_type", 1), ("op_name", 2), ("source_file", 3)):
        if field in metadata:
            texts.append(f"{name}={json.dumps(metadata.text(field), ensure_ascii=False)}")
    for name, field in (
        ("source_line", 4),
        ("source_end_line", 17),
        ("source_column", 18),
        ("source_end_column", 19),
        ("stack_frame_id", 15),
    ):
        if metadata.number(field):
            texts.append(f"{name}={metadata.number(field)}")
    for name, field in (("deduplicated_name", 12), ("scheduling_name", 16)):
        if field in metadata:
            texts.append(f"{name}={json.dumps(metadata.text(field))}")
    return f"{{{' '.join(texts)}}}" if texts else ""


def _slices(instruction: Message) -> str:
    dims = [[dim.number(field) for field in (1, 2, 3)] for dim in instruction.messages(17)]
    strided = any(stride != 1 for _, _, stride in dims)
    texts = [":".join(map(str, dim if strided else dim[:2])) for dim in dims]
    return f"{{{', '.join(f'[{bounds}]' for bounds in texts)}}}"


def _padding(config: Message) -> str:
    dims = [[dim.number(field) for field in (1, 2, 3)] for dim in config.messages(1)]
    printed_dims = dims if any(gap for _, _, gap in dims) else [dim[:2] for dim in dims]
    return "x".join(["_".join(map(str, dim)) for dim in printed_dims])


def _triangular(options: Message) -> str:
    flags = [(name, field) for field, name in enumerate(("left_side", "lower", "unit_diagonal"), 1)]
    texts = [f"{name}=true" for name, field in flags if options.number(field)]
    kinds = ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
    return ", ".join([*texts, f"transpose_a={kinds[options.number(4)]}"])


def _backend_config(data: bytes) -> str:
    text = data.decode(errors="replace")
    return text if text.startswith("{") else json.dumps(text)


def _aliases(pairs: Sequence[Message]) -> str:
    texts = [
        f"{_braces(pair.numbers(1))}: ({pair.number(2)}, {_braces(pair.numbers(3))})"
        for pair in pairs
    ]
    return f"{{{', '.join(texts)}}}"


_GATHER = (
    "offset_dims:1 collapsed_slice_dims:2 start_index_map:3 operand_batching_dims:5? "
    "start_indices_batching_dims:6?"
)
_SCATTER = (
    "update_window_dims:1 inserted_window_dims:2 scatter_dims_to_operand_dims:3 "
    "input_batching_dims:5? scatter_indices_batching_dims:6?"
)
_DOT = "lhs_batch_dims:3? lhs_contracting_dims:1 rhs_batch_dims:4? rhs_contracting_dims:2"


def _if(text: str, shown: Any) -> str:
    return text if shown else ""


def _pairs(x: Message) -> str:
    return _braces([f"{{{pair.number(1)},{pair.number(2)}}}" for pair in x.messages(52)])


def _constraints(x: Message) -> str:
    return f"{{{', '.join(_shape_text(shape) for shape in x.messages(57))}}}"


def _dimensions(x: Message) -> str:
    name = x.text(2)
    if name == "iota":
        return f"iota_dimension={x.numbers(14)[0]}"
    return f"dimensions={_braces(x.numbers(14))}"


def _api_version(number: int) -> str:
    names = ("STATUS_RETURNING", "STATUS_RETURNING_UNIFIED", "TYPED_FFI")
    return f"api_version=API_VERSION_{names[number - 2]}" if number > 1 else ""


#: fields of an instruction and the functions that write their attributes, in the order of XLA's
#: texts; an empty attribute is omitted
_ATTRIBUTES: tuple[tuple[int, Callable[[Message], str]], ...] = (
    (15, lambda x: _if(f"window={_window(x.message(15))}", x.message(15).messages(1))),
    (16, lambda x: f"dim_labels={_dim_labels(x.message(16))}"),
    (50, lambda x: _if(f"feature_group_count={x.number(50)}", x.number(50) > 1)),
    (58, lambda x: _if(f"batch_group_count={x.number(58)}", x.number(58) > 1)),
    (30, lambda x: _dims(x.message(30), _DOT)),
    (17, lambda x: f"slice={_slices(x)}"),
    (20, lambda x: f"dynamic_slice_sizes={_braces(x.numbers(20))}"),
    (21, lambda x: f"padding={_padding(x.message(21))}"),
    (33, lambda x: _dims(x.message(33), _GATHER)),
    (33, lambda x: f"index_vector_dim={x.message(33).number(4)}"),
    (34, lambda x: f"slice_sizes={_braces(x.numbers(34))}"),
    (48, lambda x: _dims(x.message(48), _SCATTER)),
    (48, lambda x: f"index_vector_dim={x.message(48).number(4)}"),
    (67, lambda x: "indices_are_sorted=true"),
    (69, lambda x: "unique_indices=true"),
    (32, lambda x: f"fft_type={('FFT', 'IFFT', 'RFFT', 'IRFFT')[x.number(31)]}"),
    (32, lambda x: f"fft_length={_braces(x.numbers(32))}"),
    (63, lambda x: f"direction={x.text(63)}"),
    (72, lambda x: _if(f"type={x.text(72)}", x.text(72) == "TOTALORDER")),
    (18, lambda x: f"exponent_bits={x.number(18)}"),
    (19, lambda x: f"mantissa_bits={x.number(19)}"),
    (23, lambda x: f"distribution={('', 'rng_uniform', 'rng_normal')[x.number(23)]}"),
    (70, lambda x: f"algorithm=rng_{('default', 'three_fry', 'philox')[x.number(70)]}"),
    (66, lambda x: f"delta={x.number(66)}"),
    (59, lambda x: _triangular(x.message(59))),
    (62, lambda x: _if("lower=true", x.message(62).number(1))),
    (81, lambda x: f"k={x.number(81)}"),
    (85, lambda x: "largest=true"),
    (26, lambda x: _if(f"channel_id={x.number(26)}", x.number(26) > 0)),
    (87, lambda x: f"replica_groups={_devices(x.message(87))}"),
    (52, lambda x: f"source_target_pairs={_pairs(x)}"),
    (71, lambda x: _if("use_global_device_ids=true", x.text(2) == "reduce-scatter")),
    (14, _dimensions),
    (71, lambda x: _if("use_global_device_ids=true", x.text(2) != "reduce-scatter")),
    (60, lambda x: "is_stable=true"),
    (47, lambda x: "is_host_transfer=true"),
    (11, lambda x: f"kind={x.text(11)}"),
    (28, lambda x: f"custom_call_target={json.dumps(x.text(28))}"),
    (57, lambda x: f"operand_layout_constraints={_constraints(x)}"),
    (65, lambda x: "custom_call_has_side_effect=true"),
    (74, lambda x: f"output_to_operand_aliasing={_aliases(x.messages(74))}"),
    (76, lambda x: f"schedule={('', 'SCHEDULE_LATEST', 'SCHEDULE_EARLIEST')[x.number(76)]}"),
    (77, lambda x: _api_version(x.number(77))),
    (51, lambda x: _precision(x.message(51))),
)

#: labels of the computations that an instruction calls, by opcode; the default is `to_apply`
_CALLED = {
    "while": ("body", "condition"),
    "fusion": ("calls",),
    "select-and-scatter": ("select", "scatter"),
}
#: instructions that run another one asynchronously, in a computation of its own
_ASYNC = frozenset(["async-start", "async-update", "async-done"])
#: instructions whose dims are written even if there are none
_WITH_DIMS = frozenset(["broadcast", "map", "reduce", "transpose"])


def _is_float(x: Message) -> bool:
    name = _ELEMENTS[x.message(3).number(2)][0]
    return name.startswith(("f", "bf", "c"))


class _ModuleText:
    """The text of a module, with the names and types of its instructions."""

    def __init__(self, module: Message) -> None:
        self.computations = module.messages(3)
        self.names = {c.number(5): f"%{c.text(1)}" for c in self.computations}
        self.by_number = {c.number(5): c for c in self.computations}
        wrappers = {
            x.numbers(38)[0]
            for c in self.computations
            for x in c.messages(2)
            if x.text(2) in _ASYNC and 38 in x
        }
        self.shown = [c for c in self.computations if c.number(5) not in wrappers]
        self.orders: dict[int, list[int]] = {}
        for entry in module.message(7).messages(1):
            self.orders[entry.number(1)] = entry.message(2).numbers(1)

    def computation(self, computation: Message, head: str) -> str:
        """Return a computation, with its instructions in the order of the schedule."""
        instructions = {x.number(35): x for x in computation.messages(2)}
        shape, root = computation.message(4), computation.number(6)
        parameters = [
            f"{name}: {_shape_text(part, False)}"
            for name, part in zip(_texts(shape, 3), shape.messages(1))
        ]
        lines = [
            f"  {'ROOT ' * (number == root)}{self.instruction(instructions[number], instructions)}"
            for number in self.orders.get(computation.number(5), instructions)
        ]
        signature = f"({', '.join(parameters)}) -> {_shape_text(shape.message(2), False)}"
        return "\n".join([f"{head}%{computation.text(1)} {signature} {{", *lines, "}"])

    def instruction(self, x: Message, others: dict[int, Message]) -> str:
        """Return an instruction with its attributes."""
        opcode, described = x.text(2), x
        operands = _list_items([f"%{others[number].text(1)}" for number in x.numbers(36)])
        texts = []
        if opcode == "parameter":
            operands = str(x.number(9))
        elif opcode == "constant":
            operands = _literal(x.message(8))
        elif opcode in _ASYNC:
            started = self.start_of(x, others)
            opcode = started.text(2) + opcode.removeprefix("async")
            described = started if opcode.endswith("-start") else Message()
            texts = [show(x) for field, show in _ATTRIBUTES if field in x]
        head = f"%{x.text(1)} = {_shape_text(x.message(3))} {opcode}({operands})"
        texts = [*self.attributes(described, others), *texts, *self.notes(x, others)]
        return ", ".join([head, *filter(None, texts)])

    def start_of(self, x: Message, others: dict[int, Message]) -> Message:
        """Return the instruction that an async-start, async-update or async-done runs."""
        while 38 not in x:  # only the start has the called computation
            x = others[x.numbers(36)[0]]
        inner = self.by_number[x.numbers(38)[0]]
        return next(y for y in inner.messages(2) if y.number(35) == inner.number(6))

    def attributes(self, x: Message, others: dict[int, Message]) -> list[str]:
        """Return the attributes that define the computation of an instruction."""
        opcode = x.text(2)
        texts = [show(x) for field, show in _ATTRIBUTES if field in x]
        if opcode == "get-tuple-element":
            texts.append(f"index={x.number(13)}")
        if x.text(102) == "TOTAL" and _is_float(others[x.numbers(36)[0]]):
            texts.append("order=TOTAL")
        if opcode in _WITH_DIMS and 14 not in x:
            texts.append("dimensions={}")
        names = [self.names[number] for number in x.numbers(38)]
        if opcode == "conditional" and others[x.numbers(36)[0]].message(3).number(2) == _PRED:
            return [*texts, f"true_computation={names[0]}", f"false_computation={names[1]}"]
        if opcode in ("conditional", "custom-call") and names:
            label = "branch" if opcode == "conditional" else "called"
            return [*texts, f"{label}_computations={{{', '.join(names)}}}"]
        pairs = list(zip(_CALLED.get(opcode, ("to_apply",)), names))
        called = [f"{label}={name}" for label, name in pairs]
        return [*texts, *(reversed(called) if opcode == "while" else called)]

    def notes(self, x: Message, others: dict[int, Message]) -> list[str]:
        """Return the attributes that do not affect the computation of an instruction."""
        before = [f"%{others[number].text(1)}" for number in x.numbers(37)]
        return [
            _if(f"sharding={_tiles(x.message(40))}", 40 in x),
            _if(f"frontend_attributes={_map_text(x.message(68))}", x.message(68).messages(1)),
            _if(f"control-predecessors={{{', '.join(before)}}}", before),
            _if(f"metadata={_metadata(x.message(7))}", _metadata(x.message(7))),
            _if(f"backend_config={_backend_config(x.data(43))}", 43 in x),
        ]


def _texts(message: Message, field: int) -> list[str]:
    return [bytes(data).decode() for data in message.values(field)]


def optimized_text(code: bytes) -> str:
    """Return a serialized HloModuleProtoWithConfig, as plugins give optimized programs, as HLO text."""
    message = Message(code)
    return module_text(message.data(1), message.message(2))


def module_text(module: bytes, config: Message | None = None) -> str:
    """Return a serialized HloModuleProto, with its HloModuleConfigProto if there is one, as HLO text."""
    message = Message(module)
    writer = _ModuleText(message)
    entry = message.number(6)
    shape = message.message(4)
    arguments = _list_items([*map(_shape_text, shape.messages(1))])
    facts = [f"HloModule {message.text(1)}", _if("is_scheduled=true", 7 in message)]
    aliases = [
        f"{_braces(a.numbers(1))}: ({a.number(2)}, {_braces(a.numbers(3))}, "
        f"{'must' if a.number(4) == 2 else 'may'}-alias)"
        for a in message.message(8).messages(1)
    ]
    facts.append(_if(f"input_output_alias={{ {', '.join(aliases)} }}", aliases))
    donors = [f"({d.number(1)}, {_braces(d.numbers(2))})" for d in message.message(18).messages(1)]
    facts.append(_if(f"buffer_donor={{ {', '.join(donors)} }}", donors))
    facts.append(f"entry_computation_layout={{({arguments})->{_shape_text(shape.message(2))}}}")
    for label, field in (("replica_count", 4), ("num_partitions", 5)):
        count = config.number(field) if config is not None else 1
        facts.append(_if(f"{label}={count}", count > 1))
    attributes = message.message(19)
    facts.append(_if(f"frontend_attributes={_map_text(attributes)}", attributes.messages(1)))
    texts = [writer.computation(c, "ENTRY " * (c.number(5) == entry)) for c in writer.shown]
    return "\n\n".join([", ".join(filter(None, facts)), *texts]) + "\n"
