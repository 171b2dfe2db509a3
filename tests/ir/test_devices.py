"""Attributes and methods of devices."""

import pickle

import pytest

from weft._engine.runtime import device as d
from weft._engine.util.config import Override


def test_devices():
    assert d.device_count() == d.local_device_count() == 8
    first = d.devices()[0]
    assert repr(first) == "CpuDevice(id=0)" and str(first) == "cpu:0"
    with Override(jax_api="0.8"):
        assert str(first) == "TFRT_CPU_0"
    assert first.platform == "cpu" and first.process_index == first.host_id == first.task_id == 0
    assert d.devices("cpu") == d.local_devices() and first.default_memory().kind == "device"
    assert pickle.loads(pickle.dumps(first)) is first
    with pytest.raises(RuntimeError, match="Unknown backend"):
        d.devices("gpu")
    with pytest.raises(ValueError):
        d.local_devices(3)
