"""Programs for a thousand processes, counted without running them."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.distributed import planned_devices
from weft.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec as P

RANKS = 1024


def like(mesh, shape, *entries):
    return weft.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*entries)))


def step(params, batch):
    def loss(params):
        x = batch
        for w in params:
            x = wnp.tanh(x @ w)
        return (x**2).mean()

    return weft.tree.map(lambda p, g: p - 0.1 * g, params, weft.grad(loss)(params))


def test_a_data_parallel_step_reduces_its_gradients_once():
    mesh = Mesh(np.array(planned_devices(RANKS)), ("data",))
    weights = [like(mesh, (32, 32)) for _ in range(3)]
    explained = weft.explain(
        weft.jit(step, out_shardings=NamedSharding(mesh, P())),
        weights,
        like(mesh, (4 * RANKS, 32), "data"),
    )
    assert {(r.kind, r.processes) for r in explained.exchanges} == {("all_reduce sum", RANKS)}
    assert explained.process_bytes == sum(2 * n * (RANKS - 1) // RANKS for n in [4 * 32 * 32] * 3)
    assert explained.bytes == explained.process_bytes


def test_devices_of_a_process_send_one_message():
    mesh = Mesh(np.array(planned_devices(64, 8, 4)).reshape(64, 8), ("data", "model"))
    x = like(mesh, (512, 64), ("data", "model"))
    explained = weft.explain(lambda x: x.sum(0), x)
    (one,) = explained.exchanges
    assert (one.bytes, one.messages) == (2 * 256 * 63 // 64, 2 * 63)
    assert (
        len(one.links) == 16
        and set(one.links.values()) == {one.bytes}
        and "from host 0 to host 1" in str(explained)
    )
    within = weft.explain(lambda x: x.sum(1), like(mesh, (64, 64), "data", "model"))
    assert within.exchanges == [] and within.process_bytes == 0 and within.bytes > 0


def test_nothing_runs_on_planned_devices():
    mesh = Mesh(np.array(planned_devices(4)), ("x",))
    compiled = weft.jit(lambda x: x + 1).lower(like(mesh, (4,), "x")).compile()
    with pytest.raises(RuntimeError, match="planned devices do not exist"):
        compiled(weft.device_put(np.ones(4, np.float32), NamedSharding(mesh, P("x"))))
    with pytest.raises(ValueError, match="processes must be at least 1"):
        planned_devices(0)


# ---- meshes without devices


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_programs_compile_over_abstract_meshes(kind):
    mesh = AbstractMesh((64, 8), ("data", "model"), (kind, kind))
    x = like(mesh, (512, 64), "data", "model")
    lowered = weft.jit(lambda x: wnp.tanh(x).sum(0)).lower(x)
    assert "mhlo.num_partitions = 512" in lowered.as_text() and lowered.in_avals[0][0].shape == (
        512,
        64,
    )
    compiled = lowered.compile()
    assert "all-reduce" in compiled.as_text() and compiled.cost_analysis()["flops"] > 0
    assert (
        compiled.output_shardings.spec == P("model")
        and compiled.output_shardings.mesh.abstract_mesh is mesh
    )
    assert compiled.memory_analysis().argument_size_in_bytes == 8 * 8 * 4
    with pytest.raises(RuntimeError, match="can be compiled and explained, not run"):
        compiled(np.ones((512, 64), np.float32))


@pytest.mark.parametrize(
    "program",
    [
        lambda rows: weft.jit(lambda x: x * 2, in_shardings=rows),
        lambda rows: weft.jit(lambda x: x * 2, out_shardings=rows),
        lambda rows: weft.jit(lambda x: weft.lax.with_sharding_constraint(x * 2, rows)),
        lambda rows: weft.jit(
            weft.shard_map(lambda x: x * 2, mesh=rows.mesh, in_specs=P("x"), out_specs=P("x"))
        ),
    ],
)
def test_what_says_a_layout_may_be_over_a_mesh_without_devices(program):
    rows = NamedSharding(AbstractMesh((4,), ("x",)), P("x"))
    compiled = (
        program(rows).lower(weft.ShapeDtypeStruct((8, 2), np.float32, sharding=rows)).compile()
    )
    assert (
        compiled.output_shardings.spec == P("x") and len(compiled.output_shardings.device_set) == 4
    )


def test_abstract_meshes_take_devices_of_arguments_or_context():
    rows = NamedSharding(AbstractMesh((2,), ("x",)), P("x"))
    struct = weft.ShapeDtypeStruct((8, 2), np.float32, sharding=rows)
    here = weft.make_mesh((2,), ("x",), devices=weft.devices()[2:4])
    x = weft.device_put(np.ones((8, 2), np.float32), NamedSharding(here, P("x")))
    f = weft.jit(lambda x, y: x + y)
    assert f.lower(struct, x).compile()(x, x).devices() == set(here.flat_devices)
    with weft.set_mesh(here):
        assert f.lower(struct, struct).compile()(x, x).tolist() == (2 * x).tolist()
    other = weft.ShapeDtypeStruct(
        (8, 2), np.float32, sharding=NamedSharding(AbstractMesh((2,), ("y",)), P("y"))
    )
    assert "mhlo.num_partitions = 2" in f.lower(struct, other).as_text()
    wider = weft.ShapeDtypeStruct(
        (8, 2), np.float32, sharding=NamedSharding(AbstractMesh((4,), ("x",)), P("x"))
    )
    for args in ((struct, wider), (wider, x)):
        with pytest.raises(ValueError, match="must be on the same devices"):
            f.lower(*args)
