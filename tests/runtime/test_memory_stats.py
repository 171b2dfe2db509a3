"""`Device.memory_stats()` on the CPU."""

import numpy as np

import weft
from weft import numpy as wnp
from weft._engine.backends.cpu import buffer

MIB = 1 << 20


def stats() -> dict[str, int]:
    statistics = weft.devices()[0].memory_stats()
    assert statistics is not None
    return statistics


def test_live_arrays_count_with_their_bytes():
    weft.block_until_ready(wnp.ones(3) + 1)  # the native heap exists from now on
    before = stats()
    x = weft.device_put(np.ones(MIB, np.float32))
    held = stats()
    assert held["bytes_in_use"] - before["bytes_in_use"] == 4 * MIB
    assert held["num_allocs"] - before["num_allocs"] == 1
    assert held["largest_alloc_size"] >= 4 * MIB
    assert held["peak_bytes_in_use"] >= held["bytes_in_use"]
    del x
    after = stats()
    assert after["bytes_in_use"] == before["bytes_in_use"]
    assert after["peak_bytes_in_use"] >= before["bytes_in_use"] + 4 * MIB
    assert after["pool_bytes"] >= after["bytes_in_use"]


def test_results_of_programs_are_counted():
    f = weft.jit(lambda x: x * 2)
    x = weft.device_put(np.ones(MIB, np.float32))
    f(x).block_until_ready()
    before = stats()
    results = [f(x).block_until_ready() for _ in range(3)]
    after = stats()
    assert after["bytes_in_use"] - before["bytes_in_use"] == 3 * 4 * MIB
    assert after["num_allocs"] - before["num_allocs"] == 3
    assert len(results) == 3


def test_devices_of_a_process_have_one_memory():
    assert all(d.memory_stats() == stats() for d in weft.devices())


def test_the_limit_is_that_of_the_process(monkeypatch):
    machine = stats()["bytes_limit"]
    monkeypatch.setattr(buffer, "address_limit", lambda: [machine // 2])
    assert stats()["bytes_limit"] == machine // 2
