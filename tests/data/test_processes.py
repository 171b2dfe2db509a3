"""Loaders of several processes: global batches equal the batches of one process for any number of
processes, also if the number changes on resuming."""

import json

import numpy as np
import pytest

from tests.processes.ranks import run_ranks

BEGIN, MIDDLE, END = 0, 5, 9


def batches():
    """Print a range of batches of several kinds of sources: whole batches, and the rows that this process has read."""
    import json
    import sys
    import tempfile

    import numpy as np

    import weft
    from weft.experimental.multihost_utils import process_allgather
    from weft.sharding import NamedSharding, PartitionSpec as P

    first, last = map(int, sys.argv[1:])
    table = np.arange(80, dtype=np.float32).reshape(40, 2)
    mapped = np.lib.format.open_memmap(f"{tempfile.mkdtemp()}/x.npy", "w+", np.float32, table.shape)
    mapped[:] = table
    rows = NamedSharding(weft.make_mesh((4,), ("d",)), P("d"))
    read = []

    class Records:
        def __len__(self):
            return 40

        def __getitem__(self, i):
            read.append(int(i))
            return {"x": table[i]}

    orders = {}
    for name, source, sharding in (
        ("arrays", {"x": table}, rows),
        ("map", {"x": mapped}, rows),
        ("records", Records(), rows),
        ("stream", lambda: ({"x": row} for row in table), rows),
        ("parts", {"x": table}, None),
    ):
        loader = weft.data.Loader(
            source, 8, sharding=sharding, seed=3, prefetch=0 if name == "records" else 2
        )
        loader.restore({**loader.state(), "step": first})
        orders[name] = [
            np.asarray(process_allgather(next(loader)["x"], tiled=True)).ravel().tolist()
            for _ in range(first, last)
        ]
        assert loader.state()["step"] == last
        loader.close()
    print(json.dumps({**orders, "read": read}))


def run(processes, first, last):
    reports = [
        json.loads(rank.out)
        for rank in run_ranks(
            processes,
            batches,
            4 // processes,
            initialize=processes > 1,
            arguments=[str(first), str(last)],
        )
    ]
    assert all({**one, "read": 0} == {**reports[0], "read": 0} for one in reports)
    return reports[0], [one["read"] for one in reports]


@pytest.mark.parametrize("counts", [(2, 4), pytest.param((4, 2), marks=pytest.mark.slow)])
def test_batches_are_those_of_one_process(counts):
    whole, (read,) = run(1, BEGIN, END)
    before, parts = run(counts[0], BEGIN, MIDDLE)
    after, _ = run(counts[1], MIDDLE, END)
    for name in ("arrays", "map", "records", "stream", "parts"):
        assert before[name] + after[name] == whole[name], name
    assert whole["arrays"] == whole["records"] == whole["parts"] != whole["stream"]
    assert all(
        len(part) == 8 * MIDDLE // counts[0] for part in parts
    )  # each reads its own rows and no others
    assert sorted(row for part in parts for row in part) == sorted(read[: 8 * MIDDLE])
    assert np.unique(whole["arrays"][:5]).size == 80  # an epoch has everything
