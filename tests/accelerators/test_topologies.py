"""Programs compiled ahead of time by real plugins: NVIDIA's for H100, Google's for TPUs; no device is needed.

    WEFT_TEST_CUDA_PLUGIN=path/to/xla_cuda_plugin.so WEFT_TEST_LIBTPU=path/to/libtpu.so \\
        python -m pytest tests/accelerators/test_topologies.py

Each test runs in a separate process, because a plugin cannot be unloaded.
"""

import json
import os
import textwrap

import pytest

from tests.harness.processes import run_python, run_weft
from tests.hlo import programs

#: these tests need no CPU plugin
needs_cpu_plugin = False

CUDA, LIBTPU = (os.environ.get(f"WEFT_TEST_{name}", "") for name in ("CUDA_PLUGIN", "LIBTPU"))
ENVIRONMENT = {
    "PJRT_NAMES_AND_LIBRARY_PATHS": f"cuda:{CUDA}" if CUDA else "",
    "TPU_LIBRARY_PATH": LIBTPU,
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "WEFT_BACKEND": "cpu",
}

on_gpus = pytest.mark.skipif(not CUDA, reason="WEFT_TEST_CUDA_PLUGIN names no plugin")
on_tpus = pytest.mark.skipif(not LIBTPU, reason="WEFT_TEST_LIBTPU names no plugin")

TARGETS = [
    pytest.param("h100:8", "NVIDIA H100 80GB HBM3", 8, marks=on_gpus),
    pytest.param("a100:16", "NVIDIA A100-SXM4-80GB", 16, marks=on_gpus),
    pytest.param("v4:2x2x2", "TPU v4", 8, marks=on_tpus),
    pytest.param("v5e:2x4", "TPU v5 lite", 8, marks=on_tpus),
    pytest.param("v5p:2x2x2", "TPU v5", 8, marks=on_tpus),
    pytest.param("v6e:2x4", "TPU v6 lite", 8, marks=on_tpus),
]

STEP = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((len(jax.devices()) // 2, 2), ("data", "model"))
place = lambda x, *spec: jax.device_put(x, NamedSharding(mesh, P(*spec)))
up = place(jax.random.normal(jax.random.key(0), (128, 256)), None, "model")
down = place(jax.random.normal(jax.random.key(1), (256, 128)), "model", None)
x = place(np.ones((16 * mesh.shape["data"], 128), np.float32), "data")

def loss(weights, x):
    up, down = weights
    hidden = jax.nn.gelu(x @ up)
    return jnp.mean((hidden @ down - x) ** 2)

@jax.jit
def step(weights, x):
    grads = jax.grad(loss)(weights, x)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, grads)

weights = step((up, down), x)
jax.jit(lambda x: jnp.sort(jax.lax.cumsum(x, 1), 1))(x)
print(weights[0][0, 0])
"""

DESCRIBED = """
import json, sys
import numpy as np, weft, weft.numpy as wnp
from weft.experimental import topologies
from weft.sharding import NamedSharding, P

topology = topologies.get_topology_desc(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3]))
mesh = topologies.make_mesh(topology, (4, 2), ("a", "b"))
rows = NamedSharding(mesh, P("a"))
x = weft.ShapeDtypeStruct((512, 256), np.float32, sharding=rows)
compiled = weft.jit(lambda x: (x + 1, wnp.tanh(x.T @ x)), donate_argnums=0).lower(x).compile()
memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
try:
    compiled(np.ones((512, 256), np.float32))
except RuntimeError as error:
    refusal = str(error)
again = topologies.TopologyDescription.deserialize(topology.serialize())
print(json.dumps({
    "again": [again.serialize() == topology.serialize(), str(again.devices) == str(topology.devices)],
    "count": len(topology.devices), "platform": topology.devices[0].platform, "coords": topology.devices[-1].coords,
    "argument": memory.argument_size_in_bytes, "alias": memory.alias_size_in_bytes,
    "peak": memory.peak_memory_in_bytes, "flops": cost["flops"], "text": compiled.as_text(), "refusal": refusal,
}))
"""

#: compiles the programs of `tests.hlo.programs` with these names for one device or a mesh of eight
PROGRAMS = """
import json, sys
import numpy as np, weft
from tests.hlo import program_list, programs
from weft.experimental import topologies
from weft.sharding import Mesh, SingleDeviceSharding

devices = topologies.get_topology_desc(sys.argv[1]).devices
program_list.mesh = lambda: Mesh(np.array(devices).reshape(4, 2), ("a", "b"))
here = SingleDeviceSharding(devices[0])
failed, compiled = {}, 0
for p in programs.PROGRAMS:
    if p.name not in sys.argv[2:]:
        continue
    args = p.args
    if p.specs is None:
        args = [weft.ShapeDtypeStruct(np.shape(x), x.dtype, sharding=here) for x in p.args]
    try:
        with weft.enable_x64(p.x64):
            program = weft.jit(p.fn, donate_argnums=p.donate, **p.placement()).lower(*args).compile()
            assert program.memory_analysis().peak_memory_in_bytes > 0 and program.as_text().startswith("HloModule")
        compiled += 1
    except Exception as error:
        failed[p.name] = str(error)[:300]
print(json.dumps([compiled, failed]))
"""
#: programs that call the host, and a program that places its arguments
ON_HOST = {"factorizations", "forms_and_reflectors", "callbacks", "tiled"}


@pytest.fixture
def compile_script(tmp_path):
    """Run `weft compile` for a target; return the process and its reports."""

    def run(text, target):
        (tmp_path / "script.py").write_text(textwrap.dedent(text))
        words = "compile", "--target", target, "script.py", "--json", "reports.json"
        done = run_weft(*words, cwd=tmp_path, **ENVIRONMENT)
        assert done.returncode == 0, done.stderr[-2000:]
        return done, json.loads((tmp_path / "reports.json").read_text())

    return run


@pytest.mark.parametrize(("target", "kind", "count"), TARGETS)
def test_scripts_are_compiled_for_targets(compile_script, target, kind, count):
    done, data = compile_script(STEP, target)
    assert "Stopped at script.py:" in done.stdout
    assert [report["name"] for report in data["programs"]] == ["jit(step)", "jit(<lambda>)"]
    step, sort = data["programs"]
    assert (step["device_kind"], step["num_devices"]) == (kind, count)
    weights = 2 * 128 * 256 * 4 // 2  # split over two devices
    memory = step["memory"]
    assert memory["argument_size_in_bytes"] == weights + 16 * 128 * 4
    assert weights <= memory["output_size_in_bytes"] <= weights + 1024
    assert weights < memory["peak_memory_in_bytes"] < step["memory_limit"]
    assert (
        any(total["kind"] == "psum" for total in step["collectives"]) and sort["collectives"] == []
    )
    assert step["cost"]["flops"] > 6 * 16 * 128 * 128  # forward and backward products of a device
    assert step["cost_source"] == ("weft" if "NVIDIA" in kind else "plugin")
    assert step["plugin_seconds"] > 0 and step["lines"] > 20


@pytest.mark.parametrize(
    ("name", "platform", "options"),
    [
        pytest.param("v5e:2x4", "tpu", {"chips_per_host_bounds": [2, 4, 1]}, marks=on_tpus),
        pytest.param("v5p:2x2x2", "tpu", {}, marks=on_tpus),
        pytest.param("h100:8", "cuda", {}, marks=on_gpus),
    ],
)
def test_topologies_describe_devices_for_meshes(name, platform, options):
    done = run_python("-c", DESCRIBED, name, platform, json.dumps(options), **ENVIRONMENT)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["count"] == 8 and report["platform"] == ("gpu" if platform == "cuda" else "tpu")
    assert len(report["coords"]) == 3 and report["again"] == [True, True]
    assert report["argument"] == report["alias"] == 512 * 256 * 4 // 4
    assert report["peak"] > report["argument"] and report["flops"] >= 2 * 512 * 256 * 256 // 8
    assert report["text"].startswith("HloModule jit__lambda")
    assert "replica_count=8" in report["text"] and "all-reduce" in report["text"]
    assert "cannot run: its devices (8 x" in report["refusal"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", [pytest.param("h100:8", marks=on_gpus), pytest.param("v5e:2x4", marks=on_tpus)]
)
def test_forty_programs_are_compiled(target):
    names = [p.name for p in programs.PROGRAMS if p.name not in ON_HOST][:40]
    done = run_python("-c", PROGRAMS, target, *names, timeout=900, **ENVIRONMENT)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [40, {}]


@on_tpus
def test_unknown_chips_are_refused_by_the_plugin():
    script = "from weft.experimental import topologies; topologies.get_topology_desc('v99:2x2')"
    done = run_python("-c", script, **ENVIRONMENT)
    assert done.returncode == 1 and "INVALID_ARGUMENT" in done.stderr


@on_tpus
def test_libtpu_without_a_tpu_is_not_the_default():
    script = "import weft; print(weft.default_backend())"
    done = run_python("-c", script, timeout=60, **{**ENVIRONMENT, "WEFT_BACKEND": ""})
    assert done.stdout == "cpu\n", done.stderr[-2000:]


VARIABLES = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "XLA_PYTHON_CLIENT_MEM_FRACTION": ".5",
    "XLA_PYTHON_CLIENT_ALLOCATOR": "bfc",
    "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB": "100",
    "XLA_PYTHON_CLIENT_ABORT_COLLECTIVES_ON_FAILURE": "1",
    "XLA_PYTHON_CLIENT_USE_TFRT_GPU_CLIENT": "1",
    "JAX_CUDA_VISIBLE_DEVICES": "0",
}


@on_gpus
@pytest.mark.parametrize("option", ["", "unknown:1"])
def test_options_of_gpu_clients_are_accepted(option):
    """NVIDIA's plugin checks names and types of options before it looks for GPUs."""
    platforms = {
        "WEFT_BACKEND": "",
        "WEFT_PLATFORMS": "cuda",
        "JAX_PJRT_CLIENT_CREATE_OPTIONS": option,
    }
    done = run_python(
        "-c", "import weft; weft.devices()", **{**ENVIRONMENT, **VARIABLES, **platforms}
    )
    assert ("INVALID_ARGUMENT: Unexpected option name" in done.stderr) == bool(option)
    assert option or not done.returncode or "No visible GPU devices" in done.stderr


@on_gpus
def test_plans_are_compared_with_the_compiler(tmp_path):
    """The program of a small plan: its state takes the predicted bytes, its peak is within a third."""
    config = {
        "hidden_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "vocab_size": 2048,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = ["plan", "--model", "config.json", "--cluster", "h100:8", "--verify"]
    run = run_weft(*command, cwd=tmp_path, **ENVIRONMENT)
    assert run.returncode == 0, run.stderr
    state, peak = run.stdout.splitlines()[-2:]
    assert "training state" in state and "peak" in peak
    errors = [int(line.rpartition("(")[2].partition("%")[0]) for line in (state, peak)]
    assert abs(errors[0]) <= 2 and abs(errors[1]) <= 34
