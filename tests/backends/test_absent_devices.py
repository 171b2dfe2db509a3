"""Plugins without attached devices: they are not tried for the default platform, and reports state
why."""

import pytest

from weft._engine.backends.pjrt import plugins


@pytest.fixture
def only_tpu(monkeypatch, tmp_path):
    """A machine whose one plugin is libtpu; `only_tpu(vendor)` adds a PCI device."""
    monkeypatch.setattr(plugins, "_PCI_DEVICES", tmp_path)
    plugin = plugins.Plugin("tpu", "tpu", "libtpu.so", 300, {})
    monkeypatch.setattr(plugins, "registered", {"tpu": plugin})
    platforms = []

    def make(name):
        platforms.append(name)
        raise RuntimeError("tried")

    monkeypatch.setattr(plugins.base, "get", make)

    def add(vendor):
        folder = tmp_path / f"0000:00:{len(list(tmp_path.iterdir())):02}.0"
        folder.mkdir()
        (folder / "vendor").write_text(f"{vendor}\n")

    return platforms, add


def test_libtpu_is_not_tried_without_a_tpu(only_tpu):
    platforms, add = only_tpu
    add("0x8086")
    assert plugins.default_platform() is None and not platforms
    assert plugins.describe_plugins() == ["tpu (libtpu.so): no TPU is attached to this machine"]
    assert not platforms


def test_libtpu_is_tried_where_a_tpu_is_attached(only_tpu):
    platforms, add = only_tpu
    add("0x8086")
    add("0x1ae0")
    assert plugins.default_platform() is None and platforms == ["tpu"]


def test_other_plugins_are_tried(only_tpu):
    gpu = plugins.Plugin("cuda", "gpu", "cuda.so", 200, {})
    assert plugins.find_absence(gpu) == ""
