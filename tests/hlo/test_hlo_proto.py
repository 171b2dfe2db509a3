"""Serialized HLO modules as text: types, literals, attributes, called computations, schedules, headers."""

import struct

import numpy as np
import pytest

from weft._engine.hlo.text.hlo_proto import (
    Message,
    _literal,
    _shape_text,
    module_text,
    optimized_text,
)
from weft._engine.util import dtypes

F32, S32, PRED = 11, 4, 1


def varint(number):
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def encode(fields):
    """Encode `{field: number, text, bytes, list of numbers (packed), list of dicts (repeated)}`."""
    encoded = b""
    for field, value in fields.items():
        if isinstance(value, int):
            encoded += varint(field << 3) + varint(value)
            continue
        if isinstance(value, list) and value and not isinstance(value[0], int):
            parts = [encode(part) for part in value]
        elif isinstance(value, list):
            parts = [b"".join(map(varint, value))]
        else:
            plain = value.encode() if isinstance(value, str) else value
            parts = [plain if isinstance(plain, bytes) else encode(plain)]
        for part in parts:
            encoded += varint(field << 3 | 2) + varint(len(part)) + part
    return encoded


def shape(element, *sizes, **layout):
    order = {1: list(reversed(range(len(sizes)))), **layout.get("layout", {})}
    return {2: element, 3: list(sizes), 5: order}


def op(number, name, opcode, type_, operands=(), **fields):
    return {
        1: name,
        2: opcode,
        3: type_,
        35: number,
        36: list(operands),
        **{int(field[1:]): value for field, value in fields.items()},
    }


def computation(number, name, ops, root, parameters, result):
    encoded = encode({1: name, 2: ops, 5: number, 6: root})
    signature = b"".join(encode({1: type_}) for _, type_ in parameters) + encode({2: result})
    signature += b"".join(encode({3: label}) for label, _ in parameters)
    return encoded + encode({4: signature})


def module(*computations, entry, **fields):
    parts = b"".join(encode({3: c}) for c in computations)
    others = {int(field[1:]): value for field, value in fields.items()}
    return encode({1: "jit_f", 6: entry, **others}) + parts


VECTOR, SCALAR = shape(F32, 4), shape(F32)


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (shape(F32, 2, 3), "f32[2,3]{1,0}"),
        (SCALAR, "f32[]"),
        (shape(F32, 8, 128, layout={6: [{1: [8, 128]}]}), "f32[8,128]{1,0:T(8,128)}"),
        (
            shape(16, 8, 128, layout={6: [{1: [8, 128]}, {1: [2, 1]}]}),
            "bf16[8,128]{1,0:T(8,128)(2,1)}",
        ),
        (shape(F32, 8, layout={8: 5}), "f32[8]{0:S(5)}"),
        (shape(21, 8, layout={7: 4}), "s4[8]{0:E(4)}"),
        (shape(F32, 8, layout={16: 1}), "f32[8]{0}"),
        ({2: 13, 4: [SCALAR, VECTOR]}, "(f32[], f32[4]{0})"),
        ({2: 17}, "token[]"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_types(type_, text):
    assert _shape_text(Message(encode(type_))) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(0.1), "0.1"),
        (np.float32(1 / 3), "0.333333343"),
        (np.float32(-np.inf), "-inf"),
        (np.float32(1e-5), "1e-05"),
        (np.float64(1 / 3), "0.33333333333333331"),
        (np.array([1, -2], np.int32), "{1, -2}"),
        (np.array([[1, 2], [3, 4]], np.int64), "{ { 1, 2 }, { 3, 4 } }"),
        (np.bool_(True), "true"),
        (np.array([True, False]), "{1, 0}"),
        (np.int8(-3), "-3"),
        (np.uint16(65535), "65535"),
        (np.complex64(1 - 2j), "(1, -2)"),
        (dtypes.bfloat16.type(1.5), "1.5"),
        (np.float16(0.25), "0.25"),
        (np.zeros(100, np.float32), "{...}"),
    ],
    ids=str,
)
def test_literals(value, text):
    value = np.asarray(value)
    number, field = {
        "bool": (PRED, 2),
        "int8": (2, 15),
        "int32": (S32, 4),
        "int64": (5, 5),
        "uint16": (7, 16),
        "float16": (10, 11),
        "float32": (F32, 8),
        "float64": (12, 9),
        "bfloat16": (16, 13),
        "complex64": (15, 12),
    }[value.dtype.name]
    plain = value.dtype.name in ("bool", "int32", "int64")
    content = [int(x) for x in value.flat] if plain else value.tobytes()
    assert _literal(Message(encode({1: shape(number, *value.shape), field: content}))) == text


def test_instructions_follow_the_schedule():
    first, second = (op(i, f"p.{i}", "parameter", VECTOR, f9=i - 1) for i in (1, 2))
    root = op(3, "add.3", "add", VECTOR, (1, 2), f7={2: 'jit(f)/"add"', 3: "a.py", 4: 7})
    main = computation(
        9, "main", [first, second, root], 3, [("p.1", VECTOR), ("p.2", VECTOR)], VECTOR
    )
    text = module_text(
        module(
            main, entry=9, f4={1: [VECTOR, VECTOR], 2: VECTOR}, f7={1: [{1: 9, 2: {1: [2, 1, 3]}}]}
        )
    )
    assert text == (
        "HloModule jit_f, is_scheduled=true, "
        "entry_computation_layout={(f32[4]{0}, f32[4]{0})->f32[4]{0}}\n\n"
        "ENTRY %main (p.1: f32[4], p.2: f32[4]) -> f32[4] {\n"
        "  %p.2 = f32[4]{0} parameter(1)\n"
        "  %p.1 = f32[4]{0} parameter(0)\n"
        "  ROOT %add.3 = f32[4]{0} add(%p.1, %p.2), "
        'metadata={op_name="jit(f)/\\"add\\"" source_file="a.py" source_line=7}\n'
        "}\n"
    )


@pytest.mark.parametrize(
    ("opcode", "fields", "text"),
    [
        ("while", {"f38": [7, 8]}, "condition=%c.8, body=%c.7"),
        ("fusion", {"f38": [7], "f11": "kLoop"}, "kind=kLoop, calls=%c.7"),
        ("conditional", {"f38": [7, 8]}, "branch_computations={%c.7, %c.8}"),
        (
            "all-reduce",
            {"f38": [7], "f87": {1: [{1: [0, 1]}, {1: [2, 3]}]}},
            "replica_groups={{0,1},{2,3}}, to_apply=%c.7",
        ),
        (
            "all-gather",
            {"f87": {2: {1: 2, 2: 4, 3: [4, 2], 4: [1, 0]}}, "f14": [0]},
            "replica_groups=[2,4]<=[4,2]T(1,0), dimensions={0}",
        ),
        (
            "collective-permute",
            {"f52": [{1: 0, 2: 1}, {1: 1, 2: 0}]},
            "source_target_pairs={{0,1},{1,0}}",
        ),
        ("get-tuple-element", {"f13": 2}, "index=2"),
        ("get-tuple-element", {}, "index=0"),
        ("broadcast", {}, "dimensions={}"),
        ("slice", {"f17": [{1: 1, 2: 4, 3: 1}, {2: 8, 3: 1}]}, "slice={[1:4], [0:8]}"),
        ("slice", {"f17": [{1: 1, 2: 4, 3: 1}, {2: 8, 3: 2}]}, "slice={[1:4:1], [0:8:2]}"),
        ("pad", {"f21": {1: [{1: -1}, {2: 2}]}}, "padding=-1_0x0_2"),
        ("dot", {"f30": {1: [1], 2: [0]}}, "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        (
            "custom-call",
            {"f28": "f", "f65": 1, "f77": 4},
            'custom_call_target="f", custom_call_has_side_effect=true, api_version=API_VERSION_TYPED_FFI',
        ),
        ("fft", {"f32": [4]}, "fft_type=FFT, fft_length={4}"),
        ("copy", {"f40": {1: 3, 3: [2, 1], 4: [0, 1]}}, "sharding={devices=[2,1]0,1}"),
        ("copy", {"f37": [1]}, "control-predecessors={%p}"),
        ("copy", {"f43": b'{"a":1}'}, 'backend_config={"a":1}'),
    ],
    ids=lambda x: x if isinstance(x, str) and " " not in x else "",
)
def test_attributes(opcode, fields, text):
    inner = [
        computation(
            i,
            f"c.{i}",
            [op(10 * i, f"q.{i}", "parameter", VECTOR)],
            10 * i,
            [("q", VECTOR)],
            VECTOR,
        )
        for i in (7, 8)
    ]
    ops = [op(1, "p", "parameter", VECTOR), op(2, "x", opcode, VECTOR, (1,), **fields)]
    main = computation(9, "main", ops, 2, [("p", VECTOR)], VECTOR)
    written = module_text(module(*inner, main, entry=9))
    assert f"  ROOT %x = f32[4]{{0}} {opcode}(%p), {text}\n" in written


def test_branches_by_a_bool_are_true_and_false():
    inner = [
        computation(i, f"c.{i}", [op(10 * i, "q", "parameter", VECTOR)], 10 * i, [], VECTOR)
        for i in (7, 8)
    ]
    ops = [
        op(1, "p", "parameter", shape(PRED)),
        op(2, "x", "conditional", VECTOR, (1, 1, 1), f38=[7, 8]),
    ]
    text = module_text(module(*inner, computation(9, "main", ops, 2, [], VECTOR), entry=9))
    assert "conditional(%p, %p, %p), true_computation=%c.7, false_computation=%c.8\n" in text


def test_asynchronous_instructions_are_those_that_they_wrap():
    wrapped = op(72, "w", "all-gather", VECTOR, (71,), f14=[0])
    inner = computation(7, "wrapper", [op(71, "q", "parameter", VECTOR), wrapped], 72, [], VECTOR)
    ops = [
        op(1, "p", "parameter", VECTOR),
        op(2, "s", "async-start", VECTOR, (1,), f38=[7], f74=[{1: [1]}]),
        op(3, "d", "async-done", VECTOR, (2,)),
    ]
    text = module_text(module(inner, computation(9, "main", ops, 3, [], VECTOR), entry=9))
    alias = "output_to_operand_aliasing={{1}: (0, {})}"
    assert f"%s = f32[4]{{0}} all-gather-start(%p), dimensions={{0}}, {alias}\n" in text
    assert "ROOT %d = f32[4]{0} all-gather-done(%s)\n" in text
    assert "wrapper" not in text


def test_headers_name_replicas_and_aliases():
    main = computation(9, "main", [op(1, "p", "parameter", VECTOR)], 1, [("p", VECTOR)], VECTOR)
    proto = module(
        main, entry=9, f4={1: [VECTOR], 2: VECTOR}, f8={1: [{2: 0, 4: 1}, {1: [1], 2: 2, 4: 2}]}
    )
    header = optimized_text(encode({1: proto, 2: {4: 8, 5: 1}})).splitlines()[0]
    assert header == (
        "HloModule jit_f, input_output_alias={ {}: (0, {}, may-alias), {1}: (2, {}, must-alias) }, "
        "entry_computation_layout={(f32[4]{0})->f32[4]{0}}, replica_count=8"
    )


def test_fields_of_all_wire_types_are_skipped():
    other = varint(99 << 3 | 1) + struct.pack("<d", 1.0) + varint(98 << 3 | 5) + bytes(4)
    assert _shape_text(Message(other + encode(VECTOR))) == "f32[4]{0}"
