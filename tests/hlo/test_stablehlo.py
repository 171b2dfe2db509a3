"""StableHLO texts: their form, which operations the programs of this folder use, and that every operation has a rule."""

import re

import numpy as np
import pytest

import weft
import weft.lax as lax
import weft.numpy as wnp
from tests.hlo.programs import PROGRAMS, Program
from tests.ops.test_completeness import PRIMITIVES
from weft._engine.hlo.lowering import rule_of
from weft._engine.hlo.text import stablehlo
from weft._engine.ir.jaxpr import Jaxpr, subjaxprs

#: primitives that occur in no text
NEVER_SEEN = {
    "call_hi_primitive": "a call of its body, tested with weft.experimental.hijax",
    "call_hi_primitive_linearized": "a call of its body, tested with weft.experimental.hijax",
    "check": "becomes a value of the program by checkify, before any text",
    "custom_partitioning": "becomes what its function says while the program is partitioned",
    "custom_lin": "exists only while a program is differentiated",
    "dim_as_value": "becomes a constant when an export is called with known sizes",
    "terms": "exists only between the program and its memory, after the text is written",
    "pcast": "changes a type, inside of shard_map",
    "pallas_call": "a call of its loops, tested with weft.experimental.pallas",
    "grouped_dot": "made by the compiler out of ragged_dot, for texts of compiled programs",
    "sorted_rows": "made by the compiler out of sorts, for texts of compiled programs",
    "row_order": "made by the compiler out of sorts, for texts of compiled programs",
    "leading": "made by the compiler out of top_k, for texts of compiled programs",
}


def text_of(fn, *args, **options) -> str:
    return weft.jit(fn, **options).lower(*args).as_text()


def used(jaxpr: Jaxpr) -> set[str]:
    """Return the primitives of a program, including nested programs."""
    inner = [used(program) for eqn in jaxpr.eqns for _, program in subjaxprs(eqn.params)]
    return {eqn.primitive.name for eqn in jaxpr.eqns}.union(*inner)


@pytest.fixture(scope="module")
def lowered() -> dict[str, tuple[set[str], str]]:
    """Return the primitives and the text of each program."""
    texts = {}
    for p in PROGRAMS:
        with weft.enable_x64(p.x64):
            lowered = p.lower()
            texts[p.name] = used(lowered._traced.jaxpr), lowered.as_text()
    return texts


def test_the_programs_use_every_operation(lowered):
    assert len(lowered) >= 60
    seen = set().union(*[primitives for primitives, _ in lowered.values()])
    assert {p.name for p in PRIMITIVES} - seen == set(NEVER_SEEN)


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=str)
def test_every_operation_has_a_rule(primitive):
    # keys are rows of uint32 by then, nothing is differentiated any more, and each program is for one device
    before = {"random_wrap", "random_unwrap", "custom_lin", "custom_partitioning", "terms"}
    assert (rule_of(primitive) is None) == (primitive.name in before)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_names_are_defined_before_they_are_used(program: Program, lowered):
    _, text = lowered[program.name]
    assert text.startswith(
        f"module @jit_{program.name} attributes {{mhlo.num_partitions = "
    ) and text.endswith("}\n")
    assert text.count("{") == text.count("}") and text.count("(") == text.count(")")
    functions = re.findall(r"func\.func \w+ @([\w.]+)\(", text)
    assert functions[0] == "main" and len(set(functions)) == len(functions)
    assert set(re.findall(r"func\.call @([\w.]+)\(", text)) == set(functions[1:])
    defined: set[str] = set()
    for line in text.splitlines():
        if "func.func" in line:
            defined = set()
        results, _, attributes = (
            line.strip().rpartition(" = stablehlo.while(")
            if " = stablehlo.while(" in line
            else (line.split(" = ")[0], "", line)
        )
        if line.strip().startswith("%"):
            defined.add(results.strip().split(":")[0])
        defined.update(re.findall(r"(%arg\d+)[:,]? ?[=:]", line))
        assert {
            name.split("#")[0] for name in re.findall(r"%\w+(?:#\d+)?", attributes)
        } <= defined, line


def test_the_form_of_common_operations():
    text = text_of(
        lambda x, y: (
            x @ y + 1,
            wnp.where(x > 0, x, 0.0).sum(1),
            lax.slice(x, (1, 0), (4, 4), (1, 2)),
        ),
        np.ones((4, 4), np.float32),
        np.ones((4, 4), np.float32),
    )
    for line in (
        "%0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : "
        "(tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>",
        "%cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>",
        "%1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x4xf32>",
        "%2 = stablehlo.add %0, %1 : tensor<4x4xf32>",
        "stablehlo.compare GT, %arg0, %3, FLOAT : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xi1>",
        "applies stablehlo.add across dimensions = [1] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>",
        "stablehlo.slice %arg0 [1:4, 0:4:2] : (tensor<4x4xf32>) -> tensor<3x2xf32>",
    ):
        assert line in text


def test_inner_functions_are_written_once_and_names_are_legal():
    inner = weft.jit(lambda x: wnp.sin(x))
    text = text_of(lambda x: inner(x) + inner(x * 2), np.float32(1))
    assert text.startswith("module @jit__lambda_ ")
    assert (
        text.count("func.func private @_lambda_(") == 1 and text.count("func.call @_lambda_(") == 2
    )


def test_loops_and_branches_have_regions():
    text = text_of(
        lambda x: lax.scan(
            lambda c, _: (lax.cond(c > 0, lambda: c + 1, lambda: c), c), x, None, length=3
        ),
        np.float32(1),
    )
    assert (
        "stablehlo.while(" in text
        and "cond {" in text
        and "} do {" in text
        and '"stablehlo.case"(' in text
    )
    assert "stablehlo.dynamic_update_slice" in text


@pytest.mark.parametrize(
    "value, want",
    [
        (np.float32(0.1), "dense<1.00000001e-01>"),
        (np.array([1, 1, 1], np.int8), "dense<1>"),
        (np.array([[True], [False]]), "dense<[[true], [false]]>"),
        (
            np.array([np.inf, -np.inf, np.nan], np.float32),
            "dense<[0x7F800000, 0xFF800000, 0x7FC00000]>",
        ),
        (np.array(np.inf, wnp.bfloat16), "dense<0x7F80>"),
        (
            np.array([1j, 2.5], np.complex64),
            "dense<[(0.000000e+00,1.000000e+00), (2.500000e+00,0.000000e+00)]>",
        ),
        (np.array([1, -3], wnp.int4), "dense<[1, -3]>"),
        (np.zeros((0, 2), np.float32), "dense<>"),
        (
            np.arange(33, dtype=np.int16),
            f'dense<"0x{np.arange(33, dtype=np.int16).tobytes().hex().upper()}">',
        ),
        (np.array([0.0, -0.0], np.float32), "dense<[0.000000e+00, -0.000000e+00]>"),
    ],
)
def test_literals(value, want):
    assert stablehlo.dense(value) == want


def test_equal_elements_take_no_memory():
    assert stablehlo.dense(np.broadcast_to(np.float32(2), (2**20, 2**20))) == "dense<2.000000e+00>"


def test_texts_in_texts_are_quoted():
    assert stablehlo.quote('a "b"\\\né') == '"a \\22b\\22\\5C\\0Aé"'


def test_large_constants_are_whole():
    table = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    assert f'dense<"0x{table.tobytes().hex().upper()}"> : tensor<50x3xf32>' in text_of(
        lambda x: x + table, np.zeros((50, 3), np.float32)
    )


def test_donated_arguments_name_their_aliased_result():
    x = np.ones((4, 2), np.float32)
    both = text_of(
        lambda x, y, n: (y.sum(), x + y, x - y),
        x,
        x,
        np.int32(1),
        donate_argnums=(0, 1, 2),
        keep_unused=True,
    )
    assert (
        "(%arg0: tensor<4x2xf32> {tf.aliasing_output = 1 : i32}, %arg1: tensor<4x2xf32> {tf.aliasing_output = 2 : i32}, "
        in both
    )
    assert "%arg2: tensor<i32>)" in both  # no result has its type
    mesh = weft.make_mesh((8,), ("d",))
    along = weft.sharding.NamedSharding(mesh, weft.sharding.PartitionSpec("d"))
    unknown = text_of(
        lambda x: x * 2, weft.device_put(np.ones(8, np.float32), along), donate_argnums=0
    )
    assert "jax.buffer_donor = true" in unknown and "tf.aliasing_output" not in unknown
    known = text_of(
        lambda x: x * 2,
        weft.device_put(np.ones(8, np.float32), along),
        donate_argnums=0,
        out_shardings=along,
    )
    assert "tf.aliasing_output = 0 : i32" in known and "jax.buffer_donor" not in known


def test_places_in_the_program():
    lowered = weft.jit(lambda x: wnp.sin(x)).lower(np.float32(1))
    assert " loc(" not in lowered.as_text()
    text = lowered.as_text(debug_info=True)
    (file,) = re.findall(
        r'^(#loc\d+) = loc\("[^"]*test_stablehlo\.py":\d+:\d+\)$', text, re.MULTILINE
    )
    (place,) = re.findall(
        rf'^(#loc\d+) = loc\("jit\(<lambda>\)/sin"\({file}\)\)$', text, re.MULTILINE
    )
    assert f"%0 = stablehlo.sine %arg0 : tensor<f32> loc({place})" in text


def test_compiler_ir_prints_as_the_text():
    lowered = weft.jit(lambda x: x + 1).lower(np.float32(1))
    assert str(lowered.compiler_ir("stablehlo")) == str(lowered.compiler_ir()) == lowered.as_text()


def test_meshes_whose_devices_are_not_in_order_say_so():
    mesh = weft.sharding.Mesh(np.array(weft.devices()[:4])[::-1].reshape(2, 2), ("a", "b"))
    x = weft.device_put(
        np.ones((4, 2), np.float32),
        weft.sharding.NamedSharding(mesh, weft.sharding.PartitionSpec("a")),
    )
    assert 'sdy.mesh @mesh = <["a"=2, "b"=2], device_ids=[3, 2, 1, 0]>' in text_of(wnp.sin, x)


def test_values_of_explicit_types_are_constrained_to_them():
    mesh = weft.make_mesh((2, 2), ("a", "b"), axis_types=(weft.sharding.AxisType.Explicit,) * 2)
    x = weft.device_put(
        np.ones((4, 6), np.float32), weft.sharding.NamedSharding(mesh, weft.P("a", "b"))
    )
    text = text_of(lambda x: wnp.sin(x).sum(1), x)
    assert 'sdy.sharding_constraint %0 <@mesh, [{"a"}, {"b"}]> : tensor<4x6xf32>' in text
    assert (
        "sdy.sharding_constraint" in text.split("stablehlo.reduce", 1)[1]
        and '<@mesh, [{"a"}]> : tensor<4xf32>' in text
    )
    assert "sharding_constraint" not in text_of(
        lambda x: wnp.sin(x).sum(1), np.ones((4, 6), np.float32)
    )
