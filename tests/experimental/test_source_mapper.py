"""The format of source maps, and source maps of jaxprs, StableHLO, HLO and compiled programs."""

import inspect
import json
import linecache

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.experimental import source_mapper
from weft.experimental.source_mapper import MappingsGenerator, SourceMap, hlo, source_maps

NAMES = ["jaxpr", "hlo:stable-hlo", "hlo:original", "hlo:optimized"]


# --- the format -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [0, 1, -1, 15, -15, 16, -16, 31, 123, 1024, 1025, -(2**16), 2**31 - 1, 2**70]
)
def test_numbers_survive(value):
    assert source_maps.decode_vlq(source_maps.encode_vlq(value)) == value


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (b"A", (0,)),
        (b"AAAA", (0, 0, 0, 0)),
        (b"ACDE", (0, 1, -1, 2)),
        (b"AACAA", (0, 0, 1, 0, 0)),
        (b"gBgBgBgB", (16, 16, 16, 16)),
    ],
)
def test_segments_survive(text, numbers):
    assert (
        source_maps.decode_segment(text) == numbers and source_maps.encode_segment(numbers) == text
    )


def test_numbers_may_have_more_digits_than_they_need():
    assert source_maps.decode_segment(b"gACgAgA") == (0, 1, 0, 0)


def test_maps_survive_as_json():
    data = {
        "version": 3,
        "sources": ["a.py", "b.py"],
        "sourcesContent": [None, "x = 1"],
        "names": ["x"],
        "mappings": "A,AAAC;;AACDA",
    }
    source_map = SourceMap.from_json(json.dumps(data))
    assert json.loads(source_map.to_json()) == data and source_map == SourceMap.from_json(
        source_map.to_json()
    )
    assert source_map.positions() == [(0, 0, "a.py", 0, 1), (2, 0, "a.py", 1, 0)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"version": 2, "sources": [], "mappings": ""}, "the version is 2"),
        ({"version": 3, "mappings": ""}, "there is no sources"),
        ({"sources": [], "mappings": ""}, "there is no version"),
        ({"version": 3, "sources": [], "mappings": "AA"}, "1, 4 or 5 numbers, got 2"),
        ({"version": 3, "sources": [], "mappings": "g"}, "end in the middle"),
        ({"version": 3, "sources": [], "mappings": "!"}, "'!' is no digit"),
    ],
)
def test_what_is_no_map(data, message):
    with pytest.raises(ValueError, match=message):
        SourceMap.from_json(json.dumps(data))


def test_a_generator_takes_positions():
    generator = MappingsGenerator()
    with pytest.raises(RuntimeError, match=r"call new_group\(\) first"):
        generator.new_segment(0)
    generator.new_group()
    generator.new_segment(0)
    generator.new_segment(0, 0, 0, 1)
    generator.new_group()
    generator.new_group()
    generator.new_segment(0, 0, 1, 0, 2)
    assert source_maps.serialize_mappings(generator.mappings()) == "A,AAAC;;AACDE"
    with pytest.raises(ValueError, match="1, 4 or 5 numbers, got 2"):
        generator.new_segment(0, 1)


# --- programs ---------------------------------------------------------------------------------------------------------


def layer(x, w):
    x = wnp.tanh(x @ w)

    def body(carry, row):
        carry = carry + wnp.sin(row)
        return carry, carry * 2

    _, rows = lax.scan(body, wnp.zeros(4), x)
    return lax.cond(rows.sum() > 0, lambda r: wnp.exp(r), lambda r: -r, rows)


def dump_of(name, f, *args, **options):
    (dump,) = source_mapper.generate_sourcemaps(
        f, source_mapper.filter_passes(f"{name}$"), **options
    )(*args)
    assert dump.pass_name == name
    return dump


@pytest.mark.parametrize("name", NAMES)
def test_operations_come_from_the_lines_that_name_them(name):
    dump = dump_of(name, layer, np.ones((4, 4), np.float32), np.ones((4, 4), np.float32))
    text = dump.generated_code.split("\n")
    assert dump.source_map.sources == [source_mapper.canonicalize_filename(__file__)]
    assert len(dump.source_map.mappings) == len(text) + 1
    lines_of = {}
    for line, column, file, source_line, source_column in dump.source_map.positions():
        source = linecache.getline(file, source_line + 1)
        assert not text[line][:column].endswith(" ") or text[line][column] != " "
        for op in ("tanh", "sin", "exp"):
            what = text[line][column:] if name != "jaxpr" else text[line][column:].split(";")[0]
            if (
                any(
                    f" {form}" in what
                    for form in (op, f"stablehlo.{op}", f"{op}e(", f"{op}onential(")
                )
                and " fusion(" not in what
            ):
                lines_of[op] = source.strip(), source[source_column:].strip()
    assert lines_of.keys() == {"tanh", "sin", "exp"}
    assert all(f"wnp.{op}(" in source for op, (source, _) in lines_of.items())
    if name in NAMES[:2]:  # HLO has no columns
        assert all(here.startswith(f"wnp.{op}(") for op, (_, here) in lines_of.items())


def test_a_text_of_one_line():
    dump = dump_of("jaxpr", lambda x, y: x + y, np.arange(3), np.arange(3))
    assert dump.generated_code == "{ lambda ; a:i32[3] b:i32[3]. let c:i32[3] = add a b in (c,) }"
    line = inspect.currentframe().f_code.co_firstlineno
    assert dump.source_map.mappings == [[(34, 0, line, source_column(line + 1, "x + y"))], []]


def source_column(line: int, text: str) -> int:
    return linecache.getline(__file__, line).index(text)


@pytest.mark.parametrize("name", NAMES)
def test_functions_that_are_compiled_and_their_static_arguments(name):
    f = weft.jit(lambda x, n, scale: wnp.sin(x) * n * scale, static_argnums=1)
    generate = source_mapper.generate_sourcemaps(f, source_mapper.filter_passes(f"{name}$"))
    (dump,) = generate(1.0, 3, scale=2.0)
    assert len({line for _, _, _, line, _ in dump.source_map.positions()}) == 1


def test_options_reach_the_compiler():
    with pytest.raises(weft.errors.JaxRuntimeError, match="no_such_flag"):
        dump_of("hlo:optimized", wnp.sin, 1.0, xla_compiler_flags={"no_such_flag": True})
    assert dump_of("jaxpr", wnp.sin, 1.0, xla_compiler_flags={"no_such_flag": True}).generated_code


# --- passes -----------------------------------------------------------------------------------------------------------


def test_passes_are_found_by_their_names():
    names = lambda passes: [p.name for p in passes]
    assert names(source_mapper.all_passes())[:4] == NAMES
    assert (
        names(source_mapper.filter_passes("hlo")) == NAMES[1:]
        and names(source_mapper.filter_passes("lo:")) == []
    )
    assert [p.value for p in hlo.HloPass] == NAMES[1:]


def test_passes_of_programs(monkeypatch):
    monkeypatch.setattr(
        "weft.experimental.source_mapper.common._passes", dict(source_mapper.common._passes)
    )
    seen = []

    def compile_fn(work_dir, f, f_args, f_kwargs, **options):
        seen.append((f_args, f_kwargs, options))
        return f(*f_args, **f_kwargs)

    def generate_dump(source_map, **options):
        return source_mapper.SourceMapDump(SourceMap(3, [], [], [], []), str(source_map), "value")

    source_mapper.register_pass(source_mapper.Pass("value", compile_fn, generate_dump))
    dump = dump_of("value", lambda x, y: x + y, 1, 2, option=3)
    assert dump.generated_code == "3" and seen == [((1, 2), {}, {"option": 3})]
    with pytest.raises(ValueError, match="Pass value already registered"):
        source_mapper.register_pass(source_mapper.Pass("value", compile_fn, generate_dump))


# --- texts of other compilers -----------------------------------------------------------------------------------------


def test_places_of_mlir_through_names_calls_and_ranges():
    text = """#loc1 = loc("args[0]")
module @m {
  func.func @main(%arg0: tensor<f32> loc("args[0]")) -> tensor<f32> {
    %0 = stablehlo.sine %arg0 : tensor<f32> loc(#loc6)
    %1 = stablehlo.cosine %0 : tensor<f32> loc("a \\22b\\22.py":3:4)
    %2 = stablehlo.tanh %1 : tensor<f32> loc(fused[#loc1, #loc2])
    return %2 : tensor<f32> loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("f.py":11:8 to :18)
#loc3 = loc("g.py":13:9)
#loc4 = loc("f"(#loc2))
#loc5 = loc(callsite(#loc4 at #loc3))
#loc6 = loc("jit(f)/sin"(#loc5))"""
    source_map = source_mapper.create_mlir_sourcemap(text)
    assert source_map.positions()[:2] == [(3, 4, "f.py", 10, 8), (4, 4, 'a "b".py', 2, 4)]
    assert (
        source_map.sources == ["f.py", 'a "b".py']
        and len(source_map.mappings) == len(text.split("\n")) + 1
    )


def test_places_of_hlo_in_tables():
    text = """HloModule m, entry_computation_layout={()->pred[]}

FileNames
1 "<embedded module>"
2 "a/b.py"

FunctionNames
1 "main"

FileLocations
1 {file_name_id=1 function_name_id=1 line=153 end_line=153 column=2 end_column=31}
2 {file_name_id=2 function_name_id=1 line=35 end_line=35 column=4 end_column=24}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}


ENTRY %c () -> pred[] {
  %a = pred[] constant(true), metadata={op_name="no place"}
  %b = pred[] not(%a), metadata={op_type="not" op_name="a}b" stack_frame_id=2}
  ROOT %c = pred[] not(%b), metadata={op_name="c" stack_frame_id=1}
  %d = pred[] not(%b), metadata={op_name="d" stack_frame_id=7}
}"""
    at = text.split("\n").index("ENTRY %c () -> pred[] {")
    assert hlo.parse_hlo_dump(text).positions() == [
        (at + 2, 2, "a/b.py", 34, 4),
        (at + 3, 2, "<embedded module>", 152, 2),
    ]


def test_metadata_of_instructions():
    match = hlo.METADATA_REGEX.search(
        '  %a = f32[] sine(%b), metadata={op_name="jit(f)/sin" source_file="f.py" source_line=12}'
    )
    assert (match["scope"], match["src_file"], match["src_line"]) == ("jit(f)/sin", "f.py", "12")
