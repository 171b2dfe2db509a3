"""Program texts: layouts before partitioning, groups of devices after it."""

import re

import numpy as np
import pytest

import weft
import weft.lax as lax
import weft.numpy as wnp
from weft._engine.hlo.sharding_text import tiles_text
from weft.sharding import NamedSharding, PartitionSpec as P, PositionalSharding


@pytest.fixture(scope="module")
def mesh():
    return weft.make_mesh((4, 2), ("a", "b"))


def placed(mesh, shape, *spec):
    return weft.device_put(np.ones(shape, np.float32), NamedSharding(mesh, P(*spec)))


def test_layouts_of_arguments_results_constraints_and_shard_maps(mesh):
    def f(x):
        y = lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P(("a", "b"), P.UNCONSTRAINED)))
        return weft.shard_map(
            lambda u: lax.psum(u, "a"), mesh=mesh, in_specs=P("a", "b"), out_specs=P(None, "b")
        )(y)

    text = (
        weft.jit(f, out_shardings=NamedSharding(mesh, P("b")))
        .lower(placed(mesh, (8, 16), "a", "b"))
        .as_text()
    )
    assert 'sdy.mesh @mesh = <["a"=4, "b"=2]>' in text and "mhlo.num_partitions = 8" in text
    assert '%arg0: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {"b"}]>}' in text
    assert (
        '-> (tensor<2x16xf32> {jax.result_info = "result", sdy.sharding = #sdy.sharding<@mesh, [{"b"}, {}]>})'
        in text
    )
    assert '%2 = sdy.sharding_constraint %1 <@mesh, [{"a", "b"}, {?}]> : tensor<8x16xf32>' in text
    assert (
        'sdy.manual_computation(%2) in_shardings=[<@mesh, [{"a"}, {"b"}]>] out_shardings=[<@mesh, [{}, {"b"}]>] '
        'manual_axes={"a", "b"} (%arg1: tensor<2x8xf32>)'
    ) in text
    assert (
        "replica_groups = dense<[[0, 2, 4, 6], [1, 3, 5, 7]]> : tensor<2x4xi64>" in text
        and '"stablehlo.all_reduce"(%arg1)' in text
    )
    assert "sdy.return" in text and text.count("{") == text.count("}")


@pytest.mark.parametrize(
    "shape, replicated, want",
    [
        ((4, 2), None, "{devices=[4,2]0,1,2,3,4,5,6,7}"),
        ((2, 4), 0, "{devices=[1,4,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}"),
        ((8, 1), None, "{devices=[8,1]0,1,2,3,4,5,6,7}"),
    ],
)
def test_tiles_of_positional_shardings(shape, replicated, want):
    sharding = PositionalSharding(weft.devices()[:8]).reshape(shape)
    sharding = sharding if replicated is None else sharding.replicate(replicated)
    assert tiles_text(sharding, 2) == want
    x = weft.device_put(np.ones((8, 8), np.float32), sharding)
    assert (
        f'%arg0: tensor<8x8xf32> {{mhlo.sharding = "{want}"}}'
        in weft.jit(wnp.sin).lower(x).as_text()
    )


def test_one_device_has_no_layouts():
    text = weft.jit(lambda x: x + 1).lower(np.ones(3, np.float32)).as_text()
    assert "sdy" not in text and "num_partitions = 1" in text


def test_the_devices_that_meet_are_listed(mesh):
    text = (
        weft.jit(lambda x, w: x @ w)
        .lower(placed(mesh, (8, 16), "a", "b"), placed(mesh, (16, 8), "b"))
        .compile()
        .as_text()
    )
    (line,) = [line for line in text.splitlines() if " all-reduce(" in line]
    assert (
        "replica_groups={{0,1},{2,3},{4,5},{6,7}}, use_global_device_ids=true" in line
        and "to_apply=%add" in line
    )
    assert "num_partitions=8" in text.splitlines()[0]


def test_permutations_name_devices_of_the_whole_mesh(mesh):
    shift = weft.shard_map(
        lambda x: lax.ppermute(x, "b", [(0, 1), (1, 0)]),
        mesh=mesh,
        in_specs=P("a", "b"),
        out_specs=P("a", "b"),
    )
    text = weft.jit(shift).lower(placed(mesh, (8, 8), "a", "b")).compile().as_text()
    assert "source_target_pairs={{0,1},{1,0},{2,3},{3,2},{4,5},{5,4},{6,7},{7,6}}" in text


def test_loops_and_branches_name_what_they_run():
    def f(x):
        x, _ = lax.scan(
            lambda c, _: (lax.cond(c.sum() > 0, wnp.sin, wnp.cos, c), None), x, None, length=5
        )
        return lax.while_loop(
            lambda c: c.sum() < 3,
            lambda c: c + lax.fori_loop(0, 4, lambda i, s: s * c.sum(), 1.0),
            x,
        )

    text = weft.jit(f).lower(np.ones(3, np.float32)).compile().as_text()
    defined = re.findall(r"^(?:ENTRY )?%([\w.\-]+) \(", text, re.MULTILINE)
    assert len(defined) == len(set(defined))
    used = re.findall(r"(?:body|condition|to_apply|calls)=%([\w.\-]+)", text)
    used += [
        x
        for group in re.findall(r"branch_computations=\{([^}]*)\}", text)
        for x in re.findall(r"%([\w.\-]+)", group)
    ]
    assert {*used, "main"} == set(defined)
    assert '"known_trip_count":{"n":"5"}' in text


def test_selections_name_the_case_of_a_true_predicate_first():
    lowered = weft.jit(lambda c, x, y: wnp.where(c, x, y)).lower(
        np.ones(3, bool), np.ones(3, np.float32), np.ones(3, np.float32)
    )
    assert "stablehlo.select %arg0, %arg1, %arg2" in lowered.as_text()
    assert re.search(r"select\(%param.1, %param.2, %param.3\)", lowered.compile().as_text())
