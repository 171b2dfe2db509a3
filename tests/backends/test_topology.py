"""Devices that are described but not attached: their attributes, programs, arrays without values."""

import os

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.harness.topology import KIND, MEMORY, described_devices
from weft._engine.backends.pjrt import plugins, topology
from weft._engine.backends.pjrt.topology import NoValueError
from weft.experimental import topologies
from weft.sharding import Mesh, NamedSharding, P

X = np.arange(32, dtype=np.float32).reshape(8, 4)


def rows_of(devices):
    return NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))


def lower(fun, devices, **options):
    struct = weft.ShapeDtypeStruct(X.shape, X.dtype, sharding=rows_of(devices))
    return weft.jit(fun, **options).lower(struct)


@pytest.fixture
def called():
    return []


@pytest.fixture
def devices(called):
    """Return devices whose programs can be called."""
    return described_devices(8, called.append)


def test_devices_have_the_attributes_of_their_description():
    devices = described_devices()
    last = devices[-1]
    assert (last.id, last.process_index, last.platform, last.device_kind) == (7, 1, "test", KIND)
    assert last.coords == (1, 3, 0) and last.device_memory_bytes_limit == MEMORY
    assert last.is_addressable and last.default_memory().kind == "device"
    assert last.client.runtime_type == "pjrt" and last.client.platform_version == "test 1.0"


def test_programs_are_compiled_for_all_devices():
    devices = described_devices()
    compiled = lower(lambda x: x.sum(0), devices).compile()
    (text,) = devices[0].client.topology.compiled
    assert "mhlo.num_replicas = 8" in text and "stablehlo.all_reduce" in text
    assert compiled.cost_analysis()["flops"] == 7.0
    assert compiled.memory_analysis().temp_size_in_bytes == text.count("\n")
    assert compiled.output_shardings.device_set == set(devices)


def test_devices_of_several_processes_make_one_program():
    devices = described_devices()
    order = [devices[i] for i in (0, 4, 1, 5, 2, 6, 3, 7)]  # processes alternate
    compiled = lower(lambda x: x * 2, order).compile()
    assert compiled.runtime_executable().in_specs[0].by_process is None
    assert len(devices[0].client.topology.compiled) == 1


def test_donated_arguments_are_those_of_results():
    compiled = lower(lambda x: x + 1, described_devices(), donate_argnums=0).compile()
    assert compiled.runtime_executable().aliases == {0: 0}


def test_calls_of_compiled_programs_are_refused():
    compiled = lower(lambda x: x + 1, described_devices(2)).compile()
    with pytest.raises(RuntimeError, match=rf"jit\(.*cannot run: its devices \(2 x {KIND}\)"):
        compiled(X)
    with pytest.raises(RuntimeError, match=r"jit\(add\) cannot run"):
        weft.device_put(X, described_devices()[0]) + 1


def test_refusals_of_the_plugin_are_raised():
    with pytest.raises(weft.errors.DeviceRuntimeError, match="no sine"):
        lower(wnp.sin, described_devices()).compile()


def test_programs_that_can_be_called_are_compiled_on_demand(devices, called):
    executables = devices[0].client.topology.compiled
    doubled = weft.jit(lambda x: x * 2)
    y = doubled(weft.device_put(X, rows_of(devices)))
    assert len(called) == 1 and not executables
    assert y.shape == X.shape and y.sharding.is_equivalent_to(rows_of(devices), 2)
    assert called[0].memory()["argument_size_in_bytes"] == 3 and len(executables) == 1
    doubled(y)
    assert called[0] is called[-1] and len(executables) == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda x: wnp.concatenate([x, x]),
        lambda x: [row + 1 for row in x],
        lambda x: x[1:, 0],
        lambda x: x.at[0].set(1.0),
        lambda x: np.float64(2) * x,
        lambda x: np.ones(4) + x,
        lambda x: weft.lax.scan(lambda c, row: (c + row, c), x[0], x),
        lambda x: weft.grad(lambda y: (y**2).sum())(x),
        lambda x: weft.random.split(weft.random.key(0)),
        lambda x: weft.block_until_ready(x),
        lambda x: x.copy(),
        lambda x: weft.device_put(x, x.device),
        lambda x: [shard.data + 1 for shard in x.addressable_shards],
        wnp.linalg.norm,
    ],
)
def test_arrays_without_values_are_computed_with(devices, use):
    use(weft.device_put(X, devices[0]))


@pytest.mark.parametrize(
    "use",
    [
        np.asarray,
        repr,
        lambda x: float(x[0, 0]),
        lambda x: bool((x > 0).all()),
        lambda x: x.tolist(),
        weft.device_get,
        lambda x: x[x > 0],
    ],
)
def test_values_cannot_be_read(devices, use):
    with pytest.raises(NoValueError, match=rf"has no value: it is on {KIND} devices"):
        use(weft.device_put(X, devices[0]))


def test_arrays_are_made_of_their_parts(devices):
    rows = rows_of(devices)
    parts = [weft.device_put(X[i : i + 1], device) for i, device in enumerate(devices)]
    whole = weft.make_array_from_single_device_arrays(X.shape, rows, parts)
    called_back = weft.make_array_from_callback(X.shape, rows, lambda index: X[index])
    local = weft.make_array_from_process_local_data(rows, X)
    assert whole.shape == called_back.shape == local.shape == X.shape
    assert whole.sharding == rows


def test_mapped_functions_are_compiled_when_called(devices, called):
    mesh = rows_of(devices).mesh
    total = weft.shard_map(
        lambda x: weft.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()
    )
    y = total(weft.device_put(X, rows_of(devices)))
    assert y.shape == (1, 4)
    assert "stablehlo.all_reduce" in called[-1].text_to_compile


@pytest.mark.parametrize(
    ("name", "platform", "package"),
    [
        ("v5e:2x4", None, r"weft with the extra \[tpu\]"),
        ("v5p:2x2x1", "tpu", r"weft with the extra \[tpu\]"),
        ("h100:8", None, r"weft with the extra \[cuda13\]"),
        ("h100:8", "gpu", r"weft with the extra \[cuda13\]"),
        ("1x1x8", "cuda", r"weft with the extra \[cuda13\]"),
        ("anything", "abacus", "its package"),
    ],
)
def test_a_missing_plugin_is_named(monkeypatch, name, platform, package):
    monkeypatch.setattr(plugins, "find_plugin", lambda platform: None)
    with pytest.raises(RuntimeError, match=f"which is not installed. Install {package}"):
        topologies.get_topology_desc(name, platform)


def test_plugins_without_topologies_are_refused(monkeypatch):
    plugin = plugins.Plugin("abacus", "abacus", "", 0, {})
    monkeypatch.setattr(plugins, "find_plugin", lambda platform: plugin)
    monkeypatch.setattr(plugins, "load_library", lambda plugin: None)

    def refuse(*args):
        raise weft.errors.DeviceRuntimeError("UNIMPLEMENTED: no topologies")

    monkeypatch.setattr(topology, "PjrtTopology", refuse)
    with pytest.raises(NotImplementedError, match="no topologies"):
        topologies.get_topology_desc("8", "abacus")


def test_tpu_settings_of_the_user_stay(monkeypatch):
    plugin = plugins.Plugin("tpu", "tpu", "", 0, {})
    monkeypatch.setattr(plugins, "find_plugin", lambda platform: plugin)
    monkeypatch.setattr(plugins, "load_library", lambda plugin: None)
    monkeypatch.setattr(topology, "PjrtTopology", lambda library, name, options: (name, options))
    monkeypatch.setenv("TPU_WORKER_ID", "3")
    for variable in topology._TPU_ENVIRONMENT.keys() - {"TPU_WORKER_ID"}:
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv(variable, "")  # so that monkeypatch restores it
        monkeypatch.delenv(variable)
    monkeypatch.setattr(
        topology, "TopologyBackend", lambda platform, arguments, calls: (platform, arguments)
    )
    description = topology.describe("tpu", "v5e:2x4", {"num_slices": 2})
    assert description == ("tpu", ("v5e:2x4", {"num_slices": 2}))
    assert os.environ["TPU_WORKER_ID"] == "3" and os.environ["TPU_SKIP_MDS_QUERY"] == "1"


def test_processors_have_no_serialized_topology():
    with pytest.raises(NotImplementedError, match=r"TopologyDescription.serialize: cpu devices"):
        topologies.get_attached_topology("cpu").serialize()


OTHER_BYTES = [b"", b"abc", b"\x08\x80\x01\x12", b"\x08\x80\x01\x12\x03a b", b"\x08" * 9]


@pytest.mark.parametrize("text", OTHER_BYTES)
def test_other_bytes_are_no_topologies(text):
    with pytest.raises(ValueError, match="is not a serialized topology"):
        topologies.TopologyDescription.deserialize(text)


def test_serialized_topologies_name_their_platform():
    text = b"\x08\x80\x8a\xb2\xbc\x01\x12\x06mychip\x1a\x03abc"
    assert topology.platform_of(text) == "mychip"
    with pytest.raises(RuntimeError, match=r"A serialized topology needs .* platform 'mychip'"):
        topologies.TopologyDescription.deserialize(text)
