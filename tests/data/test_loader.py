"""Batches depend on the seed and the step only; every row occurs once; errors and the end of data
occur at the right step."""

import gc
import threading
import time

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.data import Loader, permuted
from weft.sharding import NamedSharding, PartitionSpec as P

ROWS = {"x": np.arange(40, dtype=np.float32).reshape(20, 2), "y": np.arange(20, dtype=np.int32)}


def mesh():
    return weft.make_mesh((4, 2), ("x", "y"))


def readers():
    return [thread for thread in threading.enumerate() if thread.name == "weft reads data"]


def equal(xs, ys):
    assert weft.tree.structure(xs) == weft.tree.structure(ys)
    for x, y in zip(weft.tree.leaves(xs), weft.tree.leaves(ys)):
        np.testing.assert_array_equal(x, y)


# ---- the order


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 17, 1000, 4097])
def test_an_order_has_everything_once(size):
    for seed, epoch in ((0, 0), (1, 0), (1, 7), (-3, 1 << 70)):
        whole = permuted(np.arange(size), size, seed, epoch)
        assert sorted(whole.tolist()) == list(range(size))
        part = np.array([size - 1, 0, size // 2])
        np.testing.assert_array_equal(permuted(part, size, seed, epoch), whole[part])
    with pytest.raises(ValueError, match="positions must be in 0"):
        permuted(np.array([size]), size, 0)


def test_orders_look_random():
    """Positions are uniform, neighbors are separated, seeds and epochs are independent: bounds of
    six sigma."""
    size, trials = 12, 1200
    seen = np.array([permuted(np.arange(size), size, seed) for seed in range(trials)])
    counts = np.array([np.bincount(seen[:, place], minlength=size) for place in range(size)])
    chi = ((counts - trials / size) ** 2 / (trials / size)).sum()
    freedom = (size - 1) ** 2
    assert abs(chi - freedom) < 6 * np.sqrt(2 * freedom)
    large = 100_000
    orders = [
        permuted(np.arange(large), large, seed, epoch)
        for seed, epoch in ((0, 0), (0, 1), (1, 0), (1, 1))
    ]
    for i, one in enumerate(orders):
        assert (np.abs(np.diff(one)) == 1).sum() < 20
        assert abs(np.corrcoef(np.arange(large), one)[0, 1]) < 6 / np.sqrt(large)
        for other in orders[:i]:
            assert (
                abs(np.corrcoef(one, other)[0, 1]) < 6 / np.sqrt(large)
                and (one == other).sum() < 15
            )
    assert permuted(np.array([5]), 1 << 61, 3) < 1 << 61


# ---- batches


@pytest.mark.parametrize("prefetch", [0, 3])
def test_every_row_comes_once_in_an_epoch(prefetch):
    loader = Loader(ROWS, 5, seed=4, epochs=2, prefetch=prefetch)
    batches = list(loader)
    assert len(batches) == 8 and loader.step == 8 and next(loader, None) is None
    for epoch in (batches[:4], batches[4:]):
        assert sorted(y for batch in epoch for y in batch["y"].tolist()) == list(range(20))
        assert all((batch["x"][:, 0] == 2 * batch["y"]).all() for batch in epoch)
    assert any((a["y"] != b["y"]).any() for a, b in zip(batches[:4], batches[4:]))
    assert [batch["y"].tolist() for batch in Loader(ROWS, 5, seed=4, epochs=2)] == [
        batch["y"].tolist() for batch in batches
    ]
    assert Loader(ROWS, 5, seed=5).__next__()["y"].tolist() != batches[0]["y"].tolist()


def test_the_last_batch_may_be_smaller():
    sizes = lambda **options: [len(batch["y"]) for batch in Loader(ROWS, 8, epochs=2, **options)]
    assert sizes() == [8, 8, 8, 8] and sizes(drop_last=False) == [8, 8, 4, 8, 8, 4]


def test_batches_lie_as_their_shardings_say():
    sharding = NamedSharding(mesh(), P("x", "y"))
    plain = list(Loader(ROWS, 8, seed=1, epochs=1))
    each = {"x": sharding, "y": NamedSharding(mesh(), P(("x", "y")))}
    for batch, expected in zip(Loader(ROWS, 8, seed=1, epochs=1, sharding=each), plain):
        assert batch["x"].sharding == sharding and len(batch["y"].sharding.device_set) == 8
        equal(batch, expected)
    one = NamedSharding(mesh(), P())
    equal(next(Loader(ROWS["y"], 4, sharding=one, shuffle=False)), np.arange(4))
    with pytest.raises(ValueError, match="not divisible"):
        next(Loader(ROWS, 6, sharding=NamedSharding(mesh(), P("x"))))


def test_memory_maps_sequences_and_arrays_of_weft_are_sources(tmp_path):
    np.save(tmp_path / "x.npy", ROWS["x"])
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    expected = next(Loader(ROWS, 6, seed=2))

    class Records:
        def __len__(self):
            return 20

        def __getitem__(self, i):
            return {"x": ROWS["x"][i], "y": ROWS["y"][i]}

    equal(next(Loader({"x": mapped, "y": ROWS["y"]}, 6, seed=2)), expected)
    equal(next(Loader(Records(), 6, seed=2)), expected)
    equal(next(Loader({"x": wnp.asarray(ROWS["x"]), "y": ROWS["y"]}, 6, seed=2)), expected)
    batch = next(Loader({"x": mapped}, 6, shuffle=False))["x"]
    assert type(batch) is np.ndarray and batch.flags.writeable  # no view of the file


def test_iterables_are_read_in_order():
    records = [{"i": i, "v": np.full(2, i)} for i in range(10)]
    batches = list(Loader((record for record in records), 4, epochs=1))
    assert [batch["i"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]] and batches[
        0
    ]["v"].shape == (4, 2)
    begun = []
    loader = Loader(lambda: begun.append(1) or iter(records), 4, epochs=3, drop_last=False)
    assert [len(batch["i"]) for batch in loader] == [4, 4, 2] * 3 and len(begun) == 3
    assert (
        list(Loader(iter(()), 4)) == [] and len(list(Loader(iter(records), 4))) == 2
    )  # an iterator ends once
    sharded = next(Loader(lambda: iter(records), 8, sharding=NamedSharding(mesh(), P("x"))))
    equal(sharded["i"], np.arange(8))


def test_rows_are_transformed_before_they_are_placed():
    loader = Loader(
        ROWS,
        8,
        sharding=NamedSharding(mesh(), P("x")),
        shuffle=False,
        transform=lambda rows: (rows["x"] / 2, rows["y"] + 1),
    )
    equal(next(loader), (ROWS["x"][:8] / 2, ROWS["y"][:8] + 1))
    with pytest.raises(ValueError, match=r"(?s)number of rows, which is 8.*\['x'\] +\[4, 2\]"):
        next(Loader(ROWS, 8, transform=lambda rows: {"x": rows["x"][::2]}))


# ---- state


@pytest.mark.parametrize(
    "source", [ROWS, lambda: iter([{"y": i} for i in range(20)])], ids=["arrays", "stream"]
)
@pytest.mark.parametrize("step", [0, 1, 4, 7, 9])
def test_a_loader_goes_on_at_a_step(source, step):
    make = lambda: Loader(source, 6, seed=3)
    with make() as loader:
        batches = [next(loader)["y"].tolist() for _ in range(step + 4)]
    with make() as first, make() as second:
        for _ in range(step):
            next(first)
        state = first.state()
        next(first)  # more was read ahead, and one was handed out
        assert [
            next(second.restore(state))["y"].tolist(),
            *(next(second)["y"].tolist() for _ in range(3)),
        ] == batches[step:]
        assert second.step == step + 4 and (source is not ROWS or second.epoch == (step + 4) // 3)


def test_the_state_stands_in_a_checkpoint(tmp_path):
    loader = Loader(ROWS, 5, seed=3)
    next(loader), next(loader)
    weft.checkpoint.save(tmp_path, {"data": loader.state()}, 2).wait()
    again = Loader(ROWS, 5, seed=3)
    again.restore(weft.checkpoint.restore(tmp_path, {"data": again.state()})["data"])
    equal(next(again), next(loader))


def test_a_state_of_other_data_is_refused():
    state = Loader(ROWS, 5, seed=3).state()
    for other in (
        Loader(ROWS, 5, seed=4),
        Loader(ROWS, 4, seed=3),
        Loader(ROWS["y"][:19], 5, seed=3),
        Loader(ROWS, 5, seed=3, shuffle=False),
    ):
        with pytest.raises(ValueError, match=r"(?s)belongs to other batches.*here .*in the state "):
            other.restore(state)
    with pytest.raises(ValueError, match="belongs to other batches"):
        Loader(ROWS, 5).restore({})


# ---- threads


class Broken:
    """Twenty records; one cannot be read."""

    def __init__(self, at):
        self.at = at

    def __len__(self):
        return 20

    def __getitem__(self, i):
        if i == self.at:
            raise OSError("the disk is gone")
        return i


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_comes_where_its_batch_would_have(prefetch):
    source = Broken(at=11)
    loader = Loader(source, 4, shuffle=False, prefetch=prefetch)
    assert [next(loader).tolist()[0] for _ in range(2)] == [0, 4]
    for _ in range(2):
        with pytest.raises(OSError, match="the disk is gone"):
            next(loader)
    source.at = None
    assert next(loader).tolist() == [8, 9, 10, 11] and loader.step == 3  # it was mended


def test_threads_end_with_their_loaders():
    others = set(readers())  # of loaders that reports of failures keep
    readers_here = lambda: [thread for thread in readers() if thread not in others]
    with Loader(ROWS, 5) as loader:
        next(loader)
        assert len(readers_here()) == 1
    assert readers_here() == []
    for finish in (
        lambda loader: loader.close(),
        lambda loader: loader.restore(loader.state()),
        lambda loader: None,
    ):
        loader = Loader(ROWS, 5)
        next(loader)
        finish(loader)
        del loader
        gc.collect()
        assert readers_here() == []
    assert len(list(Loader(ROWS, 5, epochs=1))) == 4 and readers_here() == []


def test_batches_are_read_ahead_but_not_without_bound():
    read = []

    def records():
        for i in range(1000):
            read.append(i)
            yield i

    with Loader(records, 10, prefetch=3) as loader:
        next(loader)
        until = time.monotonic() + 10
        while len(read) < 50 and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(0.02)
        assert len(read) == 50  # one handed out, three ready, one in the hand


def test_what_is_no_source_is_refused():
    for wrong, text in (
        (
            {"x": np.ones(3), "y": np.ones(4)},
            r"(?s)same number of rows.*\['x'\] +\[3\].*\['y'\] +\[4\]",
        ),
        (np.float32(1), "number of rows"),
        (np.ones(3), "has 3 rows, and a batch has 4"),
    ):
        with pytest.raises(ValueError, match=text):
            Loader(wrong, 4)
    for wrong in (5, "text", {"x": 1}, None):
        with pytest.raises(TypeError, match="a source is a tree of arrays"):
            Loader(wrong, 4)
    with pytest.raises(ValueError, match="at least 1"):
        Loader(ROWS, 0)
    with pytest.raises(ValueError, match="come in its order"):
        Loader(iter([1]), 1, shuffle=True)
    with pytest.raises(ValueError, match="unknown number of rows"):
        Loader(iter([1]), 1).epoch  # noqa: B018
