"""The client of a plugin: its errors, threads, the end of the process, and freed memory."""

import ctypes
import gc
import re
import threading
from collections import Counter

import numpy as np
import pytest

import weft
from tests.accelerators.plugin import PLUGIN, run_on_plugin
from weft import errors, numpy as wnp
from weft._engine.backends.pjrt.buffers import HostCopy
from weft._engine.backends.pjrt.c_api import PluginLibrary, struct_type
from weft._engine.backends.pjrt.compile_options import encode_compile_options
from weft.experimental import topologies
from weft.sharding import NamedSharding, PartitionSpec as P

#: functions that make an object, with the function that frees it
MAKERS = {
    "Buffer_ReadyEvent": "Event_Destroy",
    "Buffer_ToHostBuffer": "Event_Destroy",
    "Client_BufferFromHostBuffer": "Event_Destroy",
    "Client_Compile": "LoadedExecutable_Destroy",
    "Executable_DeserializeAndLoad": "LoadedExecutable_Destroy",
    "LoadedExecutable_GetExecutable": "Executable_Destroy",
}


@pytest.fixture
def client(devices):
    return devices[0].client.client


def test_errors_have_the_code_and_message_of_the_plugin(client):
    with pytest.raises(errors.JaxRuntimeError, match=r"(?s)^[A-Z_]+: .*xla, Client_Compile"):
        client.compile("module { not a program }", encode_compile_options([0], {}))
    with pytest.raises(errors.JaxRuntimeError, match=r"(?s)^[A-Z_]+: .*Executable_Deserialize"):
        client.load(b"not an executable")


def test_values_of_failed_programs_raise_when_read(devices):
    """A program runs out of memory after the call has returned."""

    def too_large(x):
        rows = wnp.broadcast_to(x[:, None], (4, 1 << 44)) + x[:, None]
        return wnp.sort(rows, axis=0)[:, :4]

    y = weft.jit(too_large)(weft.device_put(np.ones(4, np.float32), devices[0]))
    z = weft.jit(lambda y: y + 1)(y)
    for result in (y, z):
        with pytest.raises(errors.JaxRuntimeError, match="Out of memory allocating"):
            result.block_until_ready()
        with pytest.raises(errors.JaxRuntimeError, match="Out of memory allocating"):
            np.asarray(result)


def test_errors_of_memory_list_the_largest_arrays(devices, mesh):
    """The error lists arrays of the call if the plugin refuses it, and of the devices whenever a
    program fails."""
    large = weft.device_put(np.ones((512, 1024), np.float32), NamedSharding(mesh, P("a")))
    place = weft.device_put(np.ones(4, np.float32), devices[0])
    live = r"(?s)The largest live arrays, .* 0\.5 MiB  float32\[512,1024\] on xla:0, xla:1"
    with pytest.raises(errors.OutOfMemoryError, match=live) as at_once:
        weft.jit(lambda x: wnp.zeros((1 << 20, 1 << 20), np.float32) + x[0])(
            place
        ).block_until_ready()
    with pytest.raises(errors.OutOfMemoryError, match=live):
        weft.jit(lambda x: wnp.sort(wnp.broadcast_to(x[:, None], (4, 1 << 44)) + x[0])[:, 0])(
            place
        ).block_until_ready()
    assert re.search(
        r"of this call .* 4194304\.0 MiB  result 0: float32\[1048576,",
        str(at_once.value),
        re.DOTALL,
    )
    assert large.shape == (512, 1024)


def test_counters_of_memory_are_those_that_the_plugin_sets(devices, client, monkeypatch):
    """CPU plugins set none; the test replaces the function of another plugin."""
    assert devices[0].memory_stats() is None

    def set_counters(address):
        stats = struct_type("Device_MemoryStats").from_address(address)
        assert stats.device == client.devices[devices[3].id].pointer
        stats.bytes_in_use, stats.bytes_limit, stats.peak_bytes_in_use = 5, 9, 7
        stats.peak_bytes_in_use_is_set = True

    monkeypatch.setitem(client.library.functions, "Device_MemoryStats", set_counters)
    assert devices[3].memory_stats() == {"bytes_in_use": 5, "peak_bytes_in_use": 7}


def test_memory_kinds_that_are_absent_are_named(client):
    with pytest.raises(ValueError, match=r"no memory of kind 'tape'\. It has"):
        client.memory(0, "tape")


@pytest.mark.parametrize("version", [(1, 0), (0, 3)])
def test_unknown_versions_of_the_interface_are_refused(version):
    get_api = ctypes.CDLL(PLUGIN).GetPjrtApi
    get_api.restype = ctypes.c_void_p
    stored = (ctypes.c_int * 2).from_address(get_api() + 32)
    initial = tuple(stored)
    try:
        stored[:] = version
        with pytest.raises(errors.JaxRuntimeError, match=f"has version {version[0]}.{version[1]}"):
            PluginLibrary("other", PLUGIN)
    finally:
        stored[:] = initial


def test_libraries_that_are_no_plugins_are_refused(tmp_path):
    text = tmp_path / "text.so"
    text.write_text("not a library")
    for path in (str(text), str(tmp_path / "absent.so")):
        with pytest.raises(errors.JaxRuntimeError, match="cannot be loaded"):
            PluginLibrary("other", path)


def test_attached_devices_have_a_serialized_topology(devices):
    topology = topologies.get_attached_topology("xla")
    assert len(topology.serialize()) > 100 and topology.serialize() == topology.serialize()
    if devices[0].client.client.library.version > (0, 81):
        with pytest.raises(RuntimeError, match="needs the PJRT plugin of the platform 'cpu'"):
            topologies.TopologyDescription.deserialize(topology.serialize())


def count_objects(library, monkeypatch):
    """Count the objects that calls from now on make and do not free, by the function that frees them."""
    existing = Counter()

    def count_calls(name, kind, change):
        function = library.functions[name]

        def call(address):
            error = function(address)
            existing[kind] += 0 if error else change
            return error

        monkeypatch.setitem(library.functions, name, call)

    def execute(call, operands, results, events, function=library.native.execute):
        error = function(call, operands, results, events)
        existing["Event_Destroy"] += sum(event is not None for event in events or ())
        return error

    monkeypatch.setattr(library, "native", library.native._replace(execute=execute))
    for name, kind in MAKERS.items():
        count_calls(name, kind, 1)
    for kind in set(MAKERS.values()):
        count_calls(kind, kind, -1)
    return existing


def finish_everything():
    """Wait for programs and copies, so that only objects of arrays and functions exist."""
    gc.collect()
    weft.effects_barrier()
    for copy in list(HostCopy.unfinished):
        copy.finish()


def test_a_thousand_calls_leave_nothing_behind(mesh, client, monkeypatch):
    existing = count_objects(client.library, monkeypatch)
    sharding = NamedSharding(mesh, P("a", "b"))
    step = weft.jit(lambda x, y: (x * 2, wnp.sum(x @ y)), donate_argnums=0)
    value = np.ones((8, 8), np.float32)
    y = weft.device_put(value, sharding)
    float(step(weft.device_put(value, sharding), y)[1])
    finish_everything()
    before, buffers = Counter(existing), client.library.native.count_buffers(0)
    for number in range(1000):
        x, total = step(weft.device_put(value, sharding), y)
        if number % 10 == 0:
            assert float(total) == 512
            x.copy_to_host_async()
    del x, total
    finish_everything()
    assert client.library.native.count_buffers(0) == buffers
    assert existing == before


def test_executables_are_freed_with_their_functions(devices, client, monkeypatch):
    existing = count_objects(client.library, monkeypatch)
    x = weft.device_put(np.ones(4, np.float32), devices[0])
    for number in range(20):
        f = weft.jit(lambda x, number=number: x + number)
        assert float(f(x)[0]) == 1 + number
        f.clear_cache()
    del f
    weft.clear_caches()
    gc.collect()
    assert existing["LoadedExecutable_Destroy"] <= 1 and existing["Executable_Destroy"] <= 1


def test_failed_calls_leave_nothing_behind(devices, client, monkeypatch):
    existing = count_objects(client.library, monkeypatch)
    for _ in range(100):
        with pytest.raises(errors.JaxRuntimeError):
            client.compile("no", encode_compile_options([0], {}))
        with pytest.raises(ValueError):
            weft.device_put(
                np.ones(4), weft.sharding.SingleDeviceSharding(devices[0], memory_kind="tape")
            )
    assert not +existing


def test_threads_use_a_plugin_at_once(mesh, devices, client):
    buffers = client.library.native.count_buffers(0)
    sharding = NamedSharding(mesh, P("a"))
    on_one = weft.jit(lambda x: wnp.cumsum(x * 2))
    on_all = weft.jit(lambda x: x / wnp.sum(x))
    failures = []

    def work(seed):
        value = np.random.default_rng(seed).random(64).astype(np.float32)
        try:
            for number in range(25):
                y = on_one(weft.device_put(value, devices[(seed + number) % 8]))
                z = on_all(weft.device_put(value, sharding))
                np.testing.assert_allclose(y, np.cumsum(value * 2), rtol=1e-5)
                np.testing.assert_allclose(z, value / value.sum(), rtol=1e-5)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    gc.collect()
    assert client.library.native.count_buffers(0) == buffers


FIRST_USE = """
import sys, threading, numpy as np, weft
from weft._engine.backends.pjrt.client import PjrtClient
clients, initialize = [], PjrtClient.__init__
PjrtClient.__init__ = lambda self, *args: clients.append(self) or initialize(self, *args)
start, sums = threading.Barrier(8), []

def work():
    start.wait()
    sums.append(weft.device_put(np.ones(3), eval(sys.argv[1])).sum())

threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
print(len(clients), float(sum(sums)), len({x.devices().pop().client for x in sums}))
"""


@pytest.mark.parametrize("device", ['weft.devices("xla")[0]', "weft.devices()[0]", "None"])
def test_threads_make_one_client(device):
    done = run_on_plugin("-c", FIRST_USE, device, WEFT_PLATFORMS="")
    assert done.stdout == "1 24.0 1\n", done.stderr


ENDINGS = {
    "a program runs": "y = f(x)",
    "a copy runs": "y = f(x); y.copy_to_host_async()",
    "a copy runs whose array is gone": "y = f(x); y.copy_to_host_async(); del y",
    "another thread waits": "import threading\ny = f(x)\n"
    "threading.Thread(target=y.block_until_ready, daemon=True).start()",
    "an exception ends it": "y = f(x)\nraise SystemExit(0)",
    "a program of all devices runs": "y = g(z)",
}
ENDING_PROGRAM = """
import numpy as np, weft, weft.numpy as wnp
from weft.sharding import NamedSharding, PartitionSpec as P
loop = lambda x: weft.lax.fori_loop(0, 200, lambda _, x: wnp.tanh(x @ x), x)
f, g = weft.jit(loop), weft.jit(loop)
x = weft.device_put(np.eye(256, dtype=np.float32), weft.devices("xla")[3])
z = weft.device_put(x, NamedSharding(weft.make_mesh((8,), ("a",)), P("a")))
f(x).block_until_ready(), g(z).block_until_ready()
"""


@pytest.mark.parametrize("ending", ENDINGS)
def test_processes_end_while_work_is_under_way(ending):
    done = run_on_plugin("-X", "dev", "-c", ENDING_PROGRAM + ENDINGS[ending])
    assert done.returncode == 0
    assert not [word for word in ("Traceback", "Error", "Warning") if word in done.stderr]


FORK = """
import os, sys, numpy as np, weft
x = weft.device_put(np.arange(4, dtype=np.float32), weft.devices()[2])
f = weft.jit(lambda x: x + 1)
y = f(x)
y.copy_to_host_async()
child = os.fork()
if not child:
    uses = lambda: f(x).tolist(), lambda: y.tolist(), lambda: weft.device_put(np.ones(3)), lambda: f(x[:2])
    for use in uses:
        try:
            use()
        except NotImplementedError as error:
            assert "does not work after os.fork()" in str(error)
        else:
            raise AssertionError
    del x, y
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
print(f(x).tolist())
"""


def test_forked_processes_do_not_use_the_plugin():
    done = run_on_plugin("-c", FORK)
    assert done.stdout == "[1.0, 2.0, 3.0, 4.0]\n", done.stderr
    assert "RuntimeWarning: os.fork() was called" in done.stderr and "Traceback" not in done.stderr
