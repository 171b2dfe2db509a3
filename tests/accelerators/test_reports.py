"""The reports of programs that a PJRT plugin compiled: costs and memory."""

import os

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.backends.pjrt import plugins
from weft.sharding import Mesh, NamedSharding, PartitionSpec

PLUGIN = os.environ.get("WEFT_TEST_PJRT_PLUGIN", "")
pytestmark = pytest.mark.skipif(not PLUGIN, reason="WEFT_TEST_PJRT_PLUGIN names no CPU plugin")

if PLUGIN and "xla" not in plugins.registered:  # before a test module reads its devices
    plugins.register_plugin(
        "xla", library_path=PLUGIN, options={"cpu_device_count": 8}, priority=-1
    )

SQUARE = np.ones((64, 64), np.float32)


def compile_on(devices, fun, *args, **options):
    """Compile for arguments that are split by rows over the devices."""
    mesh = Mesh(np.array(devices), ("x",))
    rows = NamedSharding(mesh, PartitionSpec("x" if len(devices) > 1 else None))
    structs = [weft.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows) for x in args]
    return weft.jit(fun, **options).lower(*structs).compile()


@pytest.mark.parametrize("count", [1, 4])
def test_costs_are_those_of_one_device(count):
    compiled = compile_on(weft.devices("xla")[:count], lambda x: wnp.sin(x) @ SQUARE, SQUARE)
    cost = compiled.cost_analysis()
    assert 2 * 64**3 / count <= cost["flops"] <= 2.1 * 64**3 / count
    assert cost["transcendentals"] == 64 * 64 / count


def test_costs_of_the_plugin_are_preferred(monkeypatch):
    compiled = compile_on(weft.devices("xla")[:1], lambda x: x @ x, SQUARE)
    program = compiled.runtime_executable().loaded.compiled
    monkeypatch.setattr(type(program), "cost", lambda self: {"flops": 7.0})
    assert compiled.cost_analysis() == {"flops": 7.0}


@pytest.mark.parametrize("count", [1, 4])
def test_memory_is_that_of_one_device(count):
    compiled = compile_on(weft.devices("xla")[:count], lambda x, y: (x @ y).sum(), SQUARE, SQUARE)
    memory = compiled.memory_analysis()
    assert memory.argument_size_in_bytes == 2 * SQUARE.nbytes / count
    assert memory.output_size_in_bytes == 4
    assert memory.alias_size_in_bytes == memory.host_temp_size_in_bytes == 0
    assert 0 < memory.peak_memory_in_bytes < 10 * SQUARE.nbytes


def test_memory_counts_donated_arguments_once():
    plain, donated = [
        compile_on(weft.devices("xla")[:1], lambda x: x + 1, SQUARE, donate_argnums=d)
        for d in ((), 0)
    ]
    assert plain.memory_analysis().alias_size_in_bytes == 0
    assert donated.memory_analysis().alias_size_in_bytes == SQUARE.nbytes


def test_errors_of_memory_count_temporaries():
    compiled = compile_on(weft.devices("xla")[:1], lambda x: wnp.sort(x @ x, axis=0).sum(), SQUARE)
    executable = compiled.runtime_executable()
    temporaries = compiled.memory_analysis().temp_size_in_bytes
    assert temporaries >= SQUARE.nbytes
    assert f"{temporaries / 2**20:.1f} MiB  temporaries" in executable._largest_arrays()


def test_text_is_the_optimized_program_of_one_device():
    compiled = compile_on(weft.devices("xla")[:4], lambda x: wnp.sin(x @ x), SQUARE)
    text = compiled.as_text()
    header = text.splitlines()[0]
    assert header.startswith("HloModule ") and header.endswith(", replica_count=4")
    assert "entry_computation_layout={(f32[16,64]{1,0})->f32[16,64]{1,0}}" in header
    assert " all-gather(" in text and "replica_groups={{0,1,2,3}}" in text
    (module,) = compiled.runtime_executable().hlo_modules()
    assert module.to_string() == text
