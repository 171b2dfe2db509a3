"""Names of devices to compile for: the devices that plugins map them to, and the names that are
refused."""

import re

import pytest

from weft._engine.backends.targets import GPU_KINDS, TPU_KINDS, parse_target, target_config


@pytest.mark.parametrize(
    ("name", "platform", "topology"),
    [
        ("v4:4x4x8", "tpu", "v4:4x4x8"),
        ("v5e:2x4", "tpu", "v5e:2x4"),
        ("v5p:8x8x8", "tpu", "v5p:8x8x8"),
        ("v6e:16x16", "tpu", "v6e:16x16"),
        ("tpu7x:2x2x1", "tpu", "tpu7x:2x2x1"),
        ("h100:1", "cuda", "1x1x1"),
        ("h100:8", "cuda", "1x1x8"),
        ("h100:16", "cuda", "1x2x8"),
        ("a100:4x4", "cuda", "1x4x4"),
        ("h200:8", "cuda", "1x1x8"),
        ("b200:72", "cuda", "1x9x8"),
    ],
)
def test_names_mean_topologies_of_plugins(name, platform, topology):
    target = parse_target(name)
    assert (target.name, target.platform, target.topology) == (name, platform, topology)
    assert ("target_config" in target.options) == (platform == "cuda")
    assert target.options.get("topology", topology) == topology


def test_chips_of_v4_are_one_device_each():
    assert parse_target("v4:2x2x1").options == {"chip_config_name": "megacore"}
    assert parse_target("v5p:2x2x1").options == {}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x100:8", "unknown kind of devices 'x100'. Targets are v4:XxYxZ, v5e:XxY"),
        ("", "unknown kind of devices ''"),
        ("v5e", "'' is not a number of devices"),
        ("v5e:2x", "'2x' is not a number of devices"),
        ("h100:0", "'0' is not a number of devices"),
        ("h100:-8", "'-8' is not a number of devices"),
        ("v5p:8x8", "v5p chips are linked along 3 dims, got 2. .* as in v5p:4x4x4"),
        ("v6e:8", "v6e chips are linked along 2 dims, got 1"),
        ("h100:12", "more than 8 GPUs must be whole hosts of 8, got 12. .* h100:HOSTSxGPUS"),
        ("h100:1x2x8", "give h100:GPUS or h100:HOSTSxGPUS"),
    ],
)
def test_names_without_a_meaning_are_refused(name, message):
    with pytest.raises(ValueError, match=f"target {re.escape(repr(name))}: {message}"):
        parse_target(name)


@pytest.mark.parametrize("kind", GPU_KINDS)
def test_gpus_are_described_for_xla(kind):
    gpu, text = GPU_KINDS[kind], target_config(GPU_KINDS[kind])
    numbers = {name: float(value) for name, value in re.findall(r"(\w+): ([\d.]+)", text)}
    assert numbers["core_count"] == gpu.cores and numbers["threads_per_warp"] == 32
    assert numbers["shared_memory_per_block_optin"] == numbers["shared_memory_per_core"] - 1024
    assert f"cuda_compute_capability {{ major: {gpu.capability[0]} minor: 0 }}" in text
    assert text.count("{") == text.count("}") and gpu.description in text


def test_kinds_do_not_share_names():
    assert not TPU_KINDS.keys() & GPU_KINDS.keys()
