"""A program compiles to the same text wherever its objects are in memory."""

import random

import weft
import weft.numpy as wnp
from weft._engine.util.config import Override


def f(x):
    """A loop whose bounds compare sums of several indices."""
    turned = wnp.sort(x, 1, descending=True)
    stacked = wnp.stack([turned, turned], 2)
    weights = wnp.ones((3, 2, 1), wnp.int32)
    return weft.vmap(lambda w: wnp.tensordot(stacked, w, ((2,), (0,))))(weights)


def stages(folder) -> list[str]:
    weft.clear_caches()
    with Override(dump=str(folder)):
        weft.jit(f)(wnp.zeros((9, 2, 5), wnp.int32))
    return [path.read_text() for path in sorted(folder.glob("*f_/*.txt"))]


def test_ids_of_objects_do_not_order_terms(tmp_path):
    r = random.Random(0)
    first = stages(tmp_path / "first")
    assert len(first) >= 4
    for k in range(12):
        holes = [[i] for i in range(20000)]
        r.shuffle(holes)
        del holes[::2]  # new objects fill the holes in another order
        assert stages(tmp_path / str(k)) == first
