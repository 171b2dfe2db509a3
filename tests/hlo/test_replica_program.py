"""Local programs as modules of replicas: groups, signatures, donation, memory kinds, effects."""

import re

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.hlo.replica_program import replica_program_text
from weft._engine.hlo.replicas import ReplicaLowering
from weft.sharding import Mesh, NamedSharding, P

SIZES = {"a": 2, "b": 4}
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]


def mesh_of(*names: str) -> Mesh:
    sizes = [SIZES[name] for name in names]
    return Mesh(np.array(weft.devices()[: np.prod(sizes)]).reshape(sizes), names)


def text_of(fn, *args, host=None, platform="", **options) -> str:
    compiled = weft.jit(fn, backend="reference", **options).lower(*args).compile()
    return replica_program_text(compiled.stages.program, host, platform)


def mapped_text(body, names, in_spec, out_spec, dtype=np.float32, **options) -> str:
    mesh = mesh_of(*names)
    fn = weft.shard_map(body, mesh=mesh, in_specs=in_spec, out_specs=out_spec, check_vma=False)
    return text_of(fn, np.zeros((16, 16), dtype), **options)


def groups_of(text: str) -> list:
    rows = re.findall(r"(?:replica_groups|source_target_pairs) = dense<(\[\[.*?\]\])>", text)
    return [eval(row) for row in rows]


def test_one_device_is_one_replica():
    text = text_of(lambda x: wnp.sin(x) + 1, np.ones(3, np.float32))
    assert "mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32" in text
    assert "func.func public @main(%arg0: tensor<3xf32>) -> (tensor<3xf32>)" in text


@pytest.mark.parametrize(
    ("names", "axes", "groups"),
    [
        (("a", "b"), "a", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        (("a", "b"), "b", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (("a", "b"), ("a", "b"), [[0, 1, 2, 3, 4, 5, 6, 7]]),
        (("b", "a"), "a", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (("a", "b"), ("b", "a"), [[0, 4, 1, 5, 2, 6, 3, 7]]),
    ],
    ids=str,
)
def test_groups_are_positions_of_the_mesh(names, axes, groups):
    text = mapped_text(
        lambda x: lax.all_gather(x, axes, axis=0, tiled=True), names, P(names), P(None)
    )
    assert "mhlo.num_replicas = 8 : i32" in text
    assert groups_of(text) == [groups]


@pytest.mark.parametrize(
    ("operation", "body", "out"),
    [
        ("all_reduce", lambda x: lax.psum(x, "b"), P("a")),
        ("all_reduce", lambda x: lax.pmax(x, "b"), P("a")),
        ("all_gather", lambda x: lax.all_gather(x, "b", axis=0, tiled=True), P("a")),
        (
            "reduce_scatter",
            lambda x: lax.psum_scatter(x, "a", scatter_dimension=1, tiled=True),
            P("a", "b"),
        ),
        ("all_to_all", lambda x: lax.all_to_all(x, "b", 1, 0, tiled=True), P("a", "b")),
        ("collective_permute", lambda x: lax.ppermute(x, "b", RING), P("a", "b")),
        ("replica_id", lambda x: x + lax.axis_index("b"), P("a", "b")),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_collectives_have_no_channels(operation, body, out):
    text = mapped_text(body, ("a", "b"), P("a", "b"), out)
    assert f"stablehlo.{operation}" in text
    assert not re.search("channel|use_global_device_ids|partition_id|sdy", text)


def test_permutations_name_pairs_of_positions():
    text = mapped_text(
        lambda x: lax.ppermute(x, "a", [(0, 1)]), ("a", "b"), P("a", "b"), P("a", "b")
    )
    assert groups_of(text) == [[[0, 4], [1, 5], [2, 6], [3, 7]]]


def test_calls_and_constraints_of_layouts_leave_no_annotation():
    mesh = mesh_of("a", "b")

    @weft.jit
    def inner(x):
        return lax.with_sharding_constraint(wnp.tanh(x), NamedSharding(mesh, P("b", "a")))

    x = weft.device_put(np.zeros((8, 8), np.float32), NamedSharding(mesh, P("a", "b")))
    text = text_of(lambda x: inner(x) @ inner(x.T), x)
    assert "sdy" not in text and "mhlo.sharding" not in text and "func.call" not in text


def test_unused_arguments_stay_in_the_signature():
    text = text_of(lambda x, y, z: z * 2, *np.ones((3, 4), np.float32), keep_unused=True)
    assert "@main(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>, %arg2: tensor<4xf32>)" in text


def test_equal_programs_have_equal_texts():
    texts = {
        text_of(
            lambda x: lax.fori_loop(0, 3, lambda i, y: wnp.sin(y) @ y, x),
            np.ones((4, 4), np.float32),
        )
        for _ in range(2)
    }
    assert len(texts) == 1


# --- collectives ------------------------------------------------------------------------------------------------------


def blocks_text(body, dtype=np.float32, **options) -> str:
    return mapped_text(body, ("a", "b"), P("a", "b"), P("a", "b"), dtype, **options)


@pytest.mark.parametrize(
    ("dtype", "carrier"),
    [
        (np.bool_, "ui32"),
        (np.int8, "i8"),
        (np.int16, "i32"),
        (np.uint16, "ui32"),
        (wnp.int4, "i32"),
        (wnp.float8_e4m3fn, "f32"),
        (wnp.bfloat16, "bf16"),
        (np.complex64, "complex<f32>"),
    ],
    ids=str,
)
def test_reductions_are_of_dtypes_that_every_platform_reduces(dtype, carrier):
    fn = lax.pmax if dtype != np.complex64 else lax.psum
    text = blocks_text(lambda x: fn(x, "b"), dtype)
    assert re.search(rf"\}}\) : \(tensor<8x4x{carrier}>\) -> tensor<8x4x{carrier}>", text)


def test_parts_of_bytes_travel_in_bytes():
    text = blocks_text(lambda x: lax.ppermute(x, "b", RING), wnp.uint4)
    assert re.search(r"collective_permute.*tensor<8x4xui8>", text)


def test_a_broadcast_is_permutations_that_double_the_holders():
    text = blocks_text(lambda x: lax.pbroadcast(x, "b", 3))
    first, second = groups_of(text)
    assert first == [[3, 0], [7, 4]] and sorted(second) == [[0, 2], [3, 1], [4, 6], [7, 5]]
    assert "collective_broadcast" not in text


@pytest.mark.parametrize(
    ("platform", "is_native"), [("", False), ("cpu", False), ("tpu", False), ("cuda", True)]
)
def test_ragged_exchanges_are_native_where_platforms_have_them(platform, is_native):
    def body(x):
        ones = wnp.ones(4, np.int32)
        return lax.ragged_all_to_all(x, x, ones, ones, ones, ones, axis_name="b")

    text = blocks_text(body, platform=platform)
    assert ("@ragged_all_to_all" in text) == is_native
    assert ("all_gather" in text) != is_native


# --- donation ---------------------------------------------------------------------------------------------------------


def donation(text: str) -> list[str]:
    """Return the donation attribute of each argument of the main function."""
    (signature,) = re.findall(r"@main\((.*?)\) -> ", text)
    args = re.split(r", (?=%arg)", signature)
    return ["".join(re.findall(r"tf.aliasing_output = \d+|jax.buffer_donor", arg)) for arg in args]


def test_donated_arguments_alias_the_first_result_of_the_type():
    fn = lambda x, y, z: (x[:2].sum(), z + 1, x + y)
    x = np.ones(3, np.float32)
    assert donation(text_of(fn, x, x, x, donate_argnums=(0, 2))) == [
        "tf.aliasing_output = 1",
        "",
        "tf.aliasing_output = 2",
    ]


def test_donated_arguments_alias_results_of_equal_size():
    x = np.ones((2, 3), np.float32)
    assert donation(text_of(lambda x: x.reshape(3, 2) + 1, x, donate_argnums=0)) == [
        "jax.buffer_donor"
    ]
    assert donation(text_of(lambda x: x.astype(np.int32), x, donate_argnums=0)) == [
        "jax.buffer_donor"
    ]


def test_a_donated_argument_without_such_a_result_is_kept():
    with pytest.warns(UserWarning, match="donated"):
        text = text_of(
            lambda x, y: x.sum() + y, np.ones(3, np.float32), np.float32(1), donate_argnums=(0, 1)
        )
    assert donation(text) == ["", "tf.aliasing_output = 0"]


def test_donated_memory_has_the_splits_of_its_result():
    x = weft.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh_of("a", "b"), P("a")))
    assert donation(text_of(lambda x: x + 1, x, donate_argnums=0)) == ["tf.aliasing_output = 0"]
    with pytest.warns(
        UserWarning, match="donated"
    ):  # its shard would fit the first half of the result
        text = text_of(
            lambda x: wnp.tile(x, (2, 1)),
            x,
            donate_argnums=0,
            out_shardings=NamedSharding(mesh_of("a", "b"), P("b")),
        )
    assert donation(text) == [""]


# --- memory kinds -----------------------------------------------------------------------------------------------------


def test_values_are_computed_in_the_memory_of_the_device():
    host = weft.sharding.SingleDeviceSharding(weft.devices()[0], memory_kind="pinned_host")
    x = weft.device_put(np.ones(3, np.float32), host)
    text = text_of(lambda x: x + 1, x, out_shardings=host)
    assert re.search(
        r'%arg0: tensor<3xf32> {mhlo.memory_kind = "pinned_host"}\) -> '
        r'\(tensor<3xf32> {mhlo.memory_kind = "pinned_host"}\)',
        text,
    )
    placements = re.findall('@annotate_device_placement.*_xla_buffer_placement = "(\\w+)"', text)
    assert placements == ["device", "pinned_host"]
    ordinary = text_of(lambda x: x + 1, np.ones(3, np.float32))
    assert "memory_kind" not in ordinary and "custom_call" not in ordinary


# --- the host ---------------------------------------------------------------------------------------------------------


def hosts() -> tuple:
    """Return a function that numbers host calls, and the primitives that it numbered."""
    named = []
    return lambda eqn: named.append(eqn.primitive.name) or len(named), named


def test_a_host_call_has_the_position_of_its_device():
    host, named = hosts()
    shape = weft.ShapeDtypeStruct((3,), np.float32)
    fn = lambda x: weft.pure_callback(np.sin, shape, x)
    text = text_of(fn, np.ones(3, np.float32), host=host)
    assert named == ["pure_callback"]
    assert re.search(
        r"%1:2 = stablehlo.custom_call @weft_host\(%0, %arg0\) {api_version = 4 : i32, "
        r"backend_config = {number = 1 : i64}, operand_layouts = \[dense<> : tensor<0xindex>, "
        r"dense<\[0\]> : tensor<1xindex>\], result_layouts = .*} "
        r": \(tensor<ui32>, tensor<3xf32>\) -> \(tensor<ui32>, tensor<3xf32>\)",
        text,
    )


def follow(block, position, seen: list):
    """Return the token after a block's host calls; each call takes the token of the previous one."""
    for op in block.ops:
        if op.name == "custom_call":
            assert op.operands[0] is position
            position = op.results[0]
            seen.append((op.attrs["number"], op.attrs["has_side_effect"]))
        elif op.name == "case":
            assert all(
                follow(region, position, seen) is region.results[-1] for region in op.regions
            )
            position = op.results[-1]
        elif op.name == "while":
            _, body = op.regions
            assert op.operands[-1] is position
            assert follow(body, body.args[-1], seen) is body.results[-1]
            position = op.results[-1]
    return position


def test_host_calls_come_in_the_order_of_the_program():
    def say(x):
        weft.debug.print("{}", x)
        return weft.pure_callback(np.asarray, x, x)

    def fn(x):
        x = say(x)
        x = lax.fori_loop(0, 3, lambda i, y: say(y) + 1, x)
        x, _ = lax.scan(lambda c, k: (say(c) + k, None), x, wnp.arange(3.0))
        x = lax.cond(x > 0, lambda: say(x), lambda: x)
        x = lax.while_loop(lambda y: say(y) < 9, lambda y: y + 1, x)
        return say(x)

    host, named = hosts()
    program = weft.jit(fn, backend="reference").lower(np.float32(1)).compile().stages.program
    main = ReplicaLowering("f", (), host).function(program.jaxpr, "main", public=True).body
    start = next(op.results[0] for op in main.ops if op.name == "replica_id")
    seen: list = []
    follow(main, start, seen)
    # the condition of the last loop is written before the loop and at the end of its body
    assert seen == [(i, i % 2 == 1) for i in range(1, 15)]
    assert named == ["debug_print", "pure_callback"] * 7


def test_refusals_name_the_primitive_the_line_and_a_way_out():
    fn = lambda x: wnp.linalg.eigvals(x) + 1
    with pytest.raises(NotImplementedError) as error:
        text_of(fn, np.ones((2, 2), np.float32))
    assert re.search(
        r"eig: is computed on the host.*\n  at test_replica_program.py:\d+ in .*\n"
        r"  Compute it on the CPU: jit",
        str(error.value),
    )
