"""Arrays over processes: creation, printing, gathering, resharding and agreement."""

from tests.processes.ranks import run_ranks


def arrays_over_processes():
    import copy
    import itertools
    import pickle

    import numpy as np

    import weft
    from weft.experimental import mesh_utils
    from weft.experimental.layout import Format, Layout
    from weft.experimental.multihost_utils import (
        global_array_to_host_local_array,
        host_local_array_to_global_array,
        process_allgather,
    )  # fmt: skip
    from weft.sharding import (
        Mesh,
        NamedSharding,
        PartitionSpec as P,
        PositionalSharding,
        SingleDeviceSharding,
    )

    rank, size = weft.process_index(), weft.process_count()
    n = 8 // size
    assert (
        weft.process_indices() == list(range(size))
        and weft.device_count() == 8
        and weft.local_device_count() == n
    )
    assert [d.id for d in weft.devices()] == list(range(8)) and [
        d.process_index for d in weft.devices()
    ] == [i // n for i in range(8)]
    assert weft.local_devices() == weft.devices()[rank * n : (rank + 1) * n]
    assert weft.local_devices(process_index=(rank + 1) % size) == [
        d for d in weft.devices() if d.process_index == (rank + 1) % size
    ]
    assert weft.numpy.ones(2).devices() == {weft.local_devices()[0]}

    value = np.arange(64 * 6, dtype=np.float32).reshape(16, 24)
    flat = np.array(weft.devices())
    meshes = [
        Mesh(flat.reshape(4, 2), ("x", "y")),
        Mesh(flat.reshape(2, 4).T, ("x", "y")),
        Mesh(flat[::-1].reshape(4, 2), ("x", "y")),
        Mesh(mesh_utils.create_hybrid_device_mesh((n, 1), (1, size)), ("x", "y")),
    ]
    specs = [P(), P("x"), P("y"), P(None, "x"), P("y", "x"), P(("y", "x")), P(None, ("x", "y"))]
    shardings = [NamedSharding(mesh, spec) for mesh in meshes for spec in specs]
    shardings.append(PositionalSharding(flat).reshape(4, 2))
    arrays = [weft.device_put(value, s) for s in shardings]
    for x, s in zip(arrays, shardings):
        assert (
            not x.is_fully_addressable
            and x.is_fully_replicated == s.is_fully_replicated
            and len(x.addressable_shards) == n
        )
        for shard in x.addressable_shards:
            assert shard.device in weft.local_devices()
            np.testing.assert_array_equal(np.asarray(shard.data), value[shard.index])
        np.testing.assert_array_equal(process_allgather(x, tiled=True), value)
    for x, s in list(itertools.product(arrays, shardings))[::16]:  # between two layouts
        moved = weft.device_put(x, s)
        assert moved.sharding == s
        for shard in moved.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), value[shard.index])
    columns = Layout((1, 0))
    for s in shardings[1::9]:  # permuted dims
        x = weft.device_put(value, Format(columns, s))
        moved = weft.device_put(arrays[3], Format(columns, s))
        array = weft.make_array_from_callback(
            value.shape, Format(columns, s), lambda index: value[index]
        )
        back = weft.device_put(moved, Format(Layout((0, 1)), shardings[4]))
        for y in (
            x,
            moved,
            array,
            copy.deepcopy(x),
            weft.device_put(moved, shardings[2]),
            weft.jit(lambda x: x + 0)(x),
            back,
        ):
            np.testing.assert_array_equal(process_allgather(y, tiled=True), value)
            for shard in y.addressable_shards:
                np.testing.assert_array_equal(np.asarray(shard.data), value[shard.index])
        assert (
            moved.format == x.format
            and x.format.layout.major_to_minor == (1, 0) != back.format.layout.major_to_minor
        )
        mine, same = (
            global_array_to_host_local_array(y, meshes[0], P("x")) for y in (x, arrays[0])
        )
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(same))
    rows = arrays[1]
    assert repr(rows) == "Array(shape=(16, 24), dtype=float32)"
    for read in (
        np.asarray,
        pickle.dumps,
        lambda x: weft.device_put(x, weft.local_devices()[0]),
        lambda x: weft.device_put(x, weft.devices()[0]),
    ):
        try:
            read(rows)
        except (RuntimeError, ValueError) as error:
            assert "process_allgather" in str(error), error
        else:
            raise AssertionError("it was read")
    np.testing.assert_array_equal(
        np.asarray(weft.device_put(arrays[0], weft.local_devices()[0])), value
    )
    np.testing.assert_array_equal(np.asarray(pickle.loads(pickle.dumps(arrays[0]))), value)
    donated = weft.device_put(value, shardings[1])
    moved = weft.device_put(donated, shardings[2], donate=True)
    assert donated.is_deleted() and not moved.is_deleted()

    half = Mesh(
        flat[: 4 if size == 2 else 2 * n].reshape(-1), ("h",)
    )  # from some processes to all, and back
    there = (
        weft.device_put(value, NamedSharding(half, P(None, "h"))) if half.is_multi_process else None
    )
    if there is not None:
        for s in shardings[:4]:
            np.testing.assert_array_equal(
                process_allgather(weft.device_put(there, s), tiled=True), value
            )
        back = weft.device_put(rows, NamedSharding(half, P("h")))
        np.testing.assert_array_equal(process_allgather(back, tiled=True), value)
    keys = weft.device_put(
        weft.random.split(weft.random.key(3), 8), NamedSharding(meshes[0], P("x"))
    )
    data = np.asarray(weft.random.key_data(weft.random.split(weft.random.key(3), 8)))
    moved = weft.device_put(keys, NamedSharding(meshes[1], P("y")))
    for shard in moved.addressable_shards:
        np.testing.assert_array_equal(
            np.asarray(weft.random.key_data(shard.data)), data[shard.index]
        )
    on_one = weft.device_put(np.float32(3), SingleDeviceSharding(weft.devices()[0]))
    assert len(on_one.addressable_shards) == (rank == 0) and ("shape=()" in repr(on_one)) == (
        rank != 0
    )

    for k in (1, n, 4):  # programs without devices on some processes
        part = Mesh(flat[:k], ("p",))
        placed = weft.device_put(value, NamedSharding(part, P("p")))
        more = weft.jit(lambda x: x + 1, donate_argnums=0)(placed)
        total = weft.numpy.sum(more)
        summed = weft.jit(
            weft.shard_map(
                lambda b: weft.lax.psum(b, "p"), mesh=part, in_specs=P("p"), out_specs=P()
            )
        )(more)
        here = sum(d.is_addressable for d in part.devices)
        assert (
            len(more.addressable_shards)
            == len(total.addressable_shards)
            == len(summed.addressable_shards)
            == here
        )
        for shard in more.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), value[shard.index] + 1)
        assert all(float(shard.data) == (value + 1).sum() for shard in total.addressable_shards)
        for shard in summed.addressable_shards:
            np.testing.assert_array_equal(
                np.asarray(shard.data), (value + 1).reshape(k, -1, 24).sum(0)
            )

    mesh = meshes[0]
    mine = np.full((4 // size * 2, 3), rank)
    array = host_local_array_to_global_array(
        {"a": mine, "b": np.arange(3)}, mesh, {"a": P("x"), "b": P()}
    )
    assert array["a"].shape == (8, 3) and array["b"].shape == (3,)
    np.testing.assert_array_equal(
        process_allgather(array["a"], tiled=True)[:, 0], np.repeat(np.arange(size), 8 // size)
    )
    local = global_array_to_host_local_array(array, mesh, {"a": P("x"), "b": P()})
    assert local["a"].is_fully_addressable and local["a"].sharding.mesh == mesh.local_mesh
    np.testing.assert_array_equal(np.asarray(local["a"]), mine)
    other = global_array_to_host_local_array(array["a"], mesh, P())
    np.testing.assert_array_equal(np.asarray(other)[:, 0], np.repeat(np.arange(size), 8 // size))
    batch = weft.make_array_from_process_local_data(
        NamedSharding(mesh, P(("x", "y"))), np.full((n, 2), rank, np.float32)
    )
    assert batch.shape == (8, 2) and float(np.asarray(batch.addressable_data(0))[0, 0]) == rank
    part = rank + np.arange(2.0 * n, dtype=np.float32).reshape(n, 2)
    expected = batch.sharding, Format(Layout((1, 0)), batch.sharding)
    rows, columns = [weft.make_array_from_process_local_data(where, part) for where in expected]
    assert columns.format.layout == Layout((1, 0), ()) and columns.sharding == rows.sharding
    for shard, same in zip(columns.addressable_shards, rows.addressable_shards):
        assert shard.index == same.index
        np.testing.assert_array_equal(shard.data, same.data)
    print("same everywhere" if rank == 0 else "")


def test_arrays_over_two_and_four_processes():
    for n in (2, 4):
        assert "same everywhere" in run_ranks(n, arrays_over_processes, 8 // n)[0].out


def agreements():
    import numpy as np

    import weft
    from weft.experimental import multihost_utils as mu

    rank, size = weft.process_index(), weft.process_count()

    def refused(kind, text, call, *args, **kwargs):
        try:
            call(*args, **kwargs)
        except kind as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"{call} was not refused")

    gathered = mu.process_allgather(
        {"a": np.full(3, rank, np.int64), "b": float(rank), "c": weft.numpy.ones((2, 1)) * rank}
    )
    np.testing.assert_array_equal(gathered["a"], np.arange(size)[:, None].repeat(3, 1))
    assert gathered["a"].dtype == np.int64 and gathered["c"].shape == (size, 2, 1)
    assert gathered["b"].tolist() == list(map(float, range(size)))
    tiled = mu.process_allgather(
        {"a": np.full((2, 3), rank), "b": np.float32(rank), "c": np.zeros((0, 4))}, tiled=True
    )
    assert tiled["a"][:, 0].tolist() == [r for r in range(size) for _ in range(2)] and tiled[
        "b"
    ].shape == (size,)
    assert tiled["c"].shape == (0, 4)
    values = mu.broadcast_one_to_all({"seed": np.full(2, rank), "on": np.array(rank == 0)})
    assert values["seed"].tolist() == [0, 0] and values["on"]
    assert int(mu.broadcast_one_to_all(np.int32(rank), is_source=rank == size - 1)) == size - 1
    refused(ValueError, "there must be one source", mu.broadcast_one_to_all, 1, is_source=False)
    refused(ValueError, "[0, 1", mu.broadcast_one_to_all, 1, is_source=True)
    mu.sync_global_devices("here")
    refused(AssertionError, "name mismatch", mu.sync_global_devices, f"place {rank == 0}")
    mu.assert_equal({"a": np.arange(3), "b": np.array([np.nan, 1.0])})
    mu.assert_equal(np.array([0.0 if rank else -0.0]), "zeros are equal")
    refused(
        AssertionError, "seeds. assert_equal: processes", mu.assert_equal, np.array([rank]), "seeds"
    )
    refused(AssertionError, "int64[3]", mu.assert_equal, np.arange(2 + (rank == 0)))
    mesh = weft.make_mesh((weft.device_count(),), ("d",))
    spread = weft.NamedSharding(mesh, weft.P("d"))
    refused(
        AssertionError,
        "make_array_from_process_local_data",
        weft.device_put,
        np.full(8, rank),
        spread,
    )
    refused(
        weft.errors.ProcessFailureError,
        "float64[3]",
        mu.process_allgather,
        np.ones(2 + (rank == 0)),
    )
    refused(
        weft.errors.ProcessFailureError,
        "sync_global_devices",
        mu.process_allgather if rank else mu.sync_global_devices,
        "x",
    )
    x = weft.device_put(np.arange(8.0), spread)
    refused(ValueError, "tiled=True", mu.process_allgather, x)
    mu.assert_equal(x)
    with mu.live_devices(weft.devices()) as alive:
        assert alive == weft.devices()
    print("agreed")


def test_what_processes_agree_on():
    for rank in run_ranks(2, agreements, 2):
        assert "agreed" in rank.out


def until_told():
    import time

    import weft
    from weft.experimental.multihost_utils import reached_preemption_sync_point, sync_global_devices

    rank = weft.process_index()
    for step in range(1000):
        if reached_preemption_sync_point(step):
            print("saves at", step, flush=True)
            break
        if step == 20:
            sync_global_devices("all have begun")
            print("is under way", flush=True)
        time.sleep(0.004 * (rank + 1))
    sync_global_devices("all have saved")


def test_all_processes_save_at_the_step_of_a_preemption():
    import signal

    from tests.processes.ranks import ranks

    with ranks(3, until_told) as running:
        running.wait_for("is under way", 2)
        running.kill(2, signal.SIGTERM)
        outcomes = [rank.out.split("saves at")[-1].split() for rank in running.finish()]
        assert len({steps[0] for steps in outcomes}) == 1 and int(outcomes[0][0]) > 20, (
            running.shown()
        )
