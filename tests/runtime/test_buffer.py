"""Buffers: alignment, views that keep memory alive, adoption of NumPy arrays, accounting, the cache of freed blocks."""

import gc
import itertools
import os
import threading

import numpy as np
import pytest

from tests.harness.processes import run_python
from weft._engine.backends.cpu import buffer
from weft._engine.backends.cpu.buffer import HostBuffer, NativeHeap, PythonHeap
from weft._engine.codegen.runtime import heap
from weft._engine.cpython.references import is_held_at_most

SIZES = [0, 1, 63, 64, 65, 4096, 4097, 5000, 8192, 100_000, (1 << 20) - 1, 1 << 20, (3 << 20) + 1]


@pytest.fixture(params=["python", "native"])
def fresh_heap(request, monkeypatch):
    """Return a heap of each kind, in place of the one that serves buffers."""
    gc.collect()
    heap_object = PythonHeap() if request.param == "python" else NativeHeap(heap.symbols())
    heap_object.trim()
    heap_object.peak = heap_object.live
    monkeypatch.setattr(buffer, "_heaps", [heap_object])
    return heap_object


@pytest.mark.parametrize("nbytes", SIZES)
def test_alignment_and_use(fresh_heap, nbytes):
    b = HostBuffer(nbytes)
    assert b.ptr % (64 if nbytes < 1 << 20 else 2 << 20) == 0
    x = b.view(np.uint8, (nbytes,))
    x[...] = 7
    assert x.sum() == 7 * nbytes


def test_blocks_do_not_overlap(fresh_heap):
    buffers = [HostBuffer(n) for n in SIZES for _ in range(3)]
    spans = sorted((b.ptr, b.ptr + b.nbytes) for b in buffers)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    views = [b.view(np.uint8, (b.nbytes,)) for b in buffers]
    for i, v in enumerate(views):
        v[...] = i
    assert all((v == i).all() for i, v in enumerate(views))


def test_accounting(fresh_heap):
    start = buffer.allocated_bytes()
    a, b = HostBuffer(100), HostBuffer(5 << 20)
    assert buffer.allocated_bytes() - start == 100 + (5 << 20)
    del b
    assert buffer.allocated_bytes() - start == 100
    assert buffer.peak_bytes() - start == 100 + (5 << 20)
    buffer.reset_peak()
    assert buffer.peak_bytes() - start == 100
    del a
    assert buffer.allocated_bytes() == start


@pytest.mark.parametrize("nbytes", [100, 5000, 3 << 20])
def test_freed_blocks_are_used_again(fresh_heap, nbytes):
    b = HostBuffer(nbytes)
    ptr = b.ptr
    del b
    assert buffer.cached_bytes() >= nbytes
    assert HostBuffer(nbytes).ptr == ptr
    buffer.trim()
    assert buffer.cached_bytes() == 0


def test_views_keep_the_buffer_alive(fresh_heap):
    start = buffer.allocated_bytes()
    b = HostBuffer(64)
    b.view(np.int32, (16,))[:] = range(16)
    part = b.slice(16, 32).view(np.int32, (2, 4))
    del b
    gc.collect()
    assert buffer.allocated_bytes() == start + 64
    np.testing.assert_array_equal(part, np.arange(4, 12).reshape(2, 4))
    del part
    gc.collect()
    assert buffer.allocated_bytes() == start


def aligned(shape, dtype):
    n = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(n + 64, np.uint8)
    at = -raw.ctypes.data % 64
    return raw[at : at + n].view(dtype).reshape(shape)


def test_from_numpy_shares_what_it_can():
    x = aligned((3, 4), np.float32)
    b = HostBuffer.from_numpy(x)
    assert b.ptr == x.ctypes.data and b.nbytes == 48
    x[1, 2] = 5
    assert b.view(np.float32, (3, 4))[1, 2] == 5
    del x
    gc.collect()
    assert b.view(np.float32, (3, 4))[1, 2] == 5


@pytest.mark.parametrize(
    "make",
    [
        lambda: aligned((4, 5), np.float64).T,
        lambda: aligned((9,), np.float32)[1:],
        lambda: aligned((9,), np.float32)[::2],
        lambda: np.arange(6, dtype=">i4").reshape(2, 3),
        lambda: np.zeros((0, 3)),
        lambda: np.array(3.0),
    ],
)
def test_from_numpy_copies_the_rest(make):
    x = make()
    b = HostBuffer.from_numpy(x, copy=x.ndim == 0)
    assert b.ptr != x.ctypes.data and b.ptr % 64 == 0
    np.testing.assert_array_equal(b.view(x.dtype.newbyteorder("="), x.shape), x)


def test_copy_on_request():
    x = aligned((8,), np.int64)
    b = HostBuffer.from_numpy(x, copy=True)
    x[:] = 1
    assert b.ptr != x.ctypes.data and b.view(np.int64, (8,)).sum() == 0


def test_errors(fresh_heap):
    with pytest.raises(
        MemoryError, match=r"cannot allocate 1048576.0 TiB for an array: .* WEFT_BUFFER_CACHE_BYTES"
    ):
        HostBuffer(1 << 60)
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        HostBuffer(-1)
    with pytest.raises(ValueError, match="bytes 8 to 24 reach outside the buffer of 16 bytes"):
        HostBuffer(16).view(np.int32, (4,), offset=8)
    with pytest.raises(ValueError, match=r"Buffer\.slice"):
        HostBuffer(16).slice(-1, 4)


def test_many_threads(fresh_heap):
    start = buffer.allocated_bytes()
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        views = []
        for _ in range(300):
            n = int(rng.choice([8, 100, 5000, 70_000, 1 << 20]))
            b = HostBuffer(n)
            v = b.view(np.uint8, (n,))
            v[:: max(n // 8, 1)] = seed
            views.append(v)
            if len(views) > 5:
                old = views.pop(int(rng.integers(len(views))))
                if (old[:: max(old.size // 8, 1)] != seed).any():
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    gc.collect()
    assert wrong == [] and buffer.allocated_bytes() == start


def test_native_heap_is_taken_once(fresh_heap, monkeypatch):
    heaps = [PythonHeap()]
    monkeypatch.setattr(buffer, "_heaps", heaps)
    first = HostBuffer(10)
    buffer.use_native(heap.symbols())
    before = buffer.allocated_bytes()
    buffer.use_native(heap.symbols())
    assert (
        len(heaps) == 2 and isinstance(heaps[-1], NativeHeap) and buffer.allocated_bytes() == before
    )
    second = HostBuffer(20)
    assert buffer.allocated_bytes() == before + 20
    del first  # released to its allocator, not cached: no later buffer has its size
    assert buffer.allocated_bytes() == before + 10 and second.nbytes == 20
    assert heaps[0].cached == 0


def test_cache_is_bounded():
    script = (
        "from weft._engine.codegen.runtime import heap\n"
        "from weft._engine.backends.cpu import buffer\n"
        "for native in (False, True):\n"
        "    if native: buffer.use_native(heap.symbols())\n"
        "    for n in (1 << 20, 3 << 20, 5000, 64):\n"
        "        kept = [buffer.HostBuffer(n) for _ in range(200)]\n"
        "        del kept\n"
        "        assert buffer.cached_bytes() <= 2 * (8 << 20), (n, buffer.cached_bytes())\n"
        "        assert buffer.cached_bytes() > 0\n"
        "print(buffer.allocated_bytes())\n"
    )
    done = run_python("-c", script, WEFT_BUFFER_CACHE_BYTES=str(8 << 20))
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("nbytes", [64, 4096, 8 << 20])
def test_a_child_process_has_memory_of_its_own(fresh_heap, nbytes):
    b = HostBuffer(nbytes)
    x = b.view(np.uint8, (nbytes,))
    x[...] = 7
    child = os.fork()
    if not child:
        x[...] = 8
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert x.sum() == 7 * nbytes


def test_a_buffer_whose_making_was_interrupted_leaves_silently(fresh_heap, capfd):
    before = buffer.allocated_bytes()
    HostBuffer.__new__(HostBuffer)
    assert (capfd.readouterr().err, buffer.allocated_bytes()) == ("", before)


def test_unshared_numpy_memory_is_owned_by_its_buffer():
    def aligned() -> np.ndarray:
        """Return a view, aligned as buffers are; nothing else refers to its base."""
        room = np.zeros(buffer.ALIGNMENT + 16, np.uint8)
        start = -room.ctypes.data % buffer.ALIGNMENT
        return room[start : start + 16]

    shared = buffer.HostBuffer.from_numpy(aligned())
    alone = (
        is_held_at_most(shared, 1) and shared.owns_memory()
    )  # before `assert`, which refers to what it compares
    known = aligned()
    shared = buffer.HostBuffer.from_numpy(known)
    beside_its_array = is_held_at_most(shared, 1) and shared.owns_memory()
    base = known.base
    del known
    shared = buffer.HostBuffer.from_numpy(base[-base.ctypes.data % buffer.ALIGNMENT :])
    beside_its_base = is_held_at_most(shared, 1) and shared.owns_memory()
    assert (alone, beside_its_array, beside_its_base) == (True, False, False)
