"""pmap over several processes: each passes the slices of its devices and gets their results;
collectives span all processes."""

import numpy as np

from tests.processes.ranks import run_ranks


def program():
    import numpy as np

    import weft
    from weft import lax

    me = weft.process_index()
    x = np.ones((2, 3), np.float32) * (1 + me)
    f = weft.pmap(lambda v: lax.psum(v, "i") + lax.axis_index("i"), axis_name="i")
    y = f(x)
    assert y.is_fully_addressable and y.sharding.device_set == set(weft.local_devices())
    again = f(y)
    step = weft.pmap(
        lambda w, v: w - lax.pmean(v, "i"), axis_name="i", in_axes=(None, 1), out_axes=None
    )
    mean = step(np.float32(0), np.arange(2.0)[None].repeat(3, 0) + 2 * me)
    print(np.asarray(y)[:, 0].tolist(), np.asarray(again)[:, 0].tolist(), np.asarray(mean).tolist())


def test_pmap_over_two_processes():
    outputs = [rank.out.strip() for rank in run_ranks(2, program, 2)]
    total = [6 + i for i in range(4)]
    again = [sum(total) + i for i in range(4)]
    assert outputs == [
        f"{np.float32(total[r : r + 2]).tolist()} {np.float32(again[r : r + 2]).tolist()} [-1.5, -1.5, -1.5]"
        for r in (0, 2)
    ]
