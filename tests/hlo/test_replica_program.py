"""Local programs as StableHLO modules of replicas: groups, positions, signatures, donation, memory kinds."""

import re

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.hlo.replica_program import replica_program_text
from weft.sharding import Mesh, NamedSharding, P

SIZES = {"a": 2, "b": 4}
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]


def mesh_of(*names: str) -> Mesh:
    sizes = [SIZES[name] for name in names]
    return Mesh(np.array(weft.devices()[: np.prod(sizes)]).reshape(sizes), names)


def text_of(fn, *args, **options) -> str:
    return replica_program_text(weft.jit(fn, **options).lower(*args).compile().stages.program)


def mapped_text(body, names, in_spec, out_spec, shape=(16, 16)) -> str:
    fn = weft.shard_map(
        body, mesh=mesh_of(*names), in_specs=in_spec, out_specs=out_spec, check_vma=False
    )
    return text_of(fn, np.zeros(shape, np.float32))


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


# --- donation ---------------------------------------------------------------------------------------------------------


def donation(text: str) -> list[str]:
    """What each argument of the main function says of its memory."""
    (signature,) = re.findall(r"@main\((.*?)\) -> ", text)
    args = re.split(r", (?=%arg)", signature)
    return ["".join(re.findall(r"tf.aliasing_output = \d+|jax.buffer_donor", arg)) for arg in args]


def test_a_donated_argument_becomes_the_first_free_result_of_its_type():
    fn = lambda x, y, z: (x[:2].sum(), z + 1, x + y)
    x = np.ones(3, np.float32)
    assert donation(text_of(fn, x, x, x, donate_argnums=(0, 2))) == [
        "tf.aliasing_output = 1",
        "",
        "tf.aliasing_output = 2",
    ]


def test_a_donated_argument_gives_its_memory_to_a_result_of_equal_size():
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


def test_memory_kinds_of_arguments_and_results_are_written():
    host = weft.sharding.SingleDeviceSharding(weft.devices()[0], memory_kind="pinned_host")
    x = weft.device_put(np.ones(3, np.float32), host)
    text = text_of(lambda x: x + 1, x, out_shardings=host)
    assert re.search(
        r'%arg0: tensor<3xf32> {mhlo.memory_kind = "pinned_host"}\) -> \(tensor<3xf32> {mhlo.memory_kind',
        text,
    )
    assert "memory_kind" not in text_of(lambda x: x + 1, np.ones(3, np.float32))
