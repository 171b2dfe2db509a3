"""Executables of a plugin are stored on disk: other processes load them, and killed processes leave
nothing that blocks others."""

import json
import os
import signal

import pytest

from tests.accelerators.plugin import run_on_plugin

#: prints the numbers of compiled and loaded programs, and their results
PROGRAMS = """
import json, os
import numpy as np, weft, weft.numpy as wnp
from weft import lax
from weft._engine.backends.pjrt.client import PjrtClient
from weft.sharding import NamedSharding, PartitionSpec as P

counts = {"compile": 0, "load": 0}
def counted(name):
    function = getattr(PjrtClient, name)
    def call(*args):
        counts[name] += 1
        return function(*args)
    setattr(PjrtClient, name, call)
counted("compile"), counted("load")

mesh = weft.make_mesh((4, 2), ("a", "b"))
value = np.arange(64, dtype=np.float32).reshape(8, 8)
x = weft.device_put(value, NamedSharding(mesh, P("a", "b")))
y = weft.device_put(value, weft.devices()[5])
step = weft.jit(lambda x, y: (x + y, wnp.sum(x * y)), donate_argnums=0)
mapped = weft.shard_map(lambda x: lax.psum(x, "a"), mesh=mesh, in_specs=P("a"), out_specs=P())
options = json.loads(os.environ.get("OPTIONS", "{}"))
results = [weft.jit(lambda x: wnp.tanh(x @ x.T).sum(1))(x), weft.jit(wnp.sin, compiler_options=options)(y), weft.jit(mapped)(x)]
results += step(weft.device_put(value, weft.devices()[5]), y)
assert results[1].devices() == {weft.devices()[5]}
print(json.dumps([counts, [np.asarray(r).tolist() for r in results]]))
"""


@pytest.fixture
def folder(tmp_path):
    return {
        "WEFT_CACHE_DIR": str(tmp_path / "cache"),
        "WEFT_VERIFY": "0",
    }  # verified programs are not kept


def run_programs(folder, **variables):
    done = run_on_plugin("-c", PROGRAMS, **{**folder, **variables})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_other_processes_load_executables(folder):
    first, values = run_programs(folder)
    second, same = run_programs(folder)
    assert first["load"] == 0 and first["compile"] >= 4
    assert second == {"compile": 0, "load": first["compile"]}
    assert values == same


def test_without_a_cache_all_is_compiled(folder):
    run_programs(folder)
    counts, _ = run_programs({**folder, "WEFT_CACHE_DIR": "off"})
    assert counts["load"] == 0


@pytest.mark.parametrize(
    "variables",
    [{"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"}, {"WEFT_NUM_DEVICES": "9"}],
    ids=lambda variables: next(iter(variables)),
)
def test_flags_and_devices_are_part_of_the_key(folder, variables):
    first, _ = run_programs(folder)
    counts, _ = run_programs(folder, **variables)
    assert counts == first


def test_compiler_options_are_part_of_the_key(folder):
    first, _ = run_programs(folder)
    for options in ('{"xla_cpu_enable_fast_math": true}', '{"xla_backend_optimization_level": 1}'):
        for compiled in (1, 0):
            counts, _ = run_programs(folder, OPTIONS=options)
            assert counts == {"compile": compiled, "load": first["compile"] - compiled}


def test_damaged_files_are_compiled_again(folder):
    first, values = run_programs(folder)
    for root, _, names in os.walk(folder["WEFT_CACHE_DIR"]):
        for name in names:
            path = os.path.join(root, name)
            size = os.path.getsize(path)
            with open(path, "r+b") as file:
                file.truncate(size // 2)
    second, same = run_programs(folder)
    assert second["compile"] == first["compile"] and same == values


#: the file of an executable is open and empty
KILL_WHILE_WRITING = """
from weft._engine.util import cache
head = cache._head
def kill(name, data):
    return head(name, data) if len(data) < 2000 else os.kill(os.getpid(), signal.SIGKILL)
cache._head = kill
"""


@pytest.mark.parametrize("moment", ["compile", "run", "write"])
def test_killed_processes_leave_nothing_that_hinders(folder, moment):
    _, values = run_programs({**folder, "WEFT_CACHE_DIR": "off"})
    kill = {
        "compile": "PjrtClient.compile = lambda *args: os.kill(os.getpid(), signal.SIGKILL)",
        "run": "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()",
        "write": KILL_WHILE_WRITING,
    }[moment]
    imports = (
        "import os, signal, threading\nfrom weft._engine.backends.pjrt.client import PjrtClient\n"
    )
    loop = "\nwhile True: results = weft.jit(lambda x: x @ x)(x)\n"
    text = imports + kill + PROGRAMS + (loop if moment == "run" else "")
    done = run_on_plugin("-c", text, **folder)
    assert done.returncode == -signal.SIGKILL
    _, same = run_programs(folder)
    assert same == values
    assert run_programs(folder)[0]["compile"] == 0
