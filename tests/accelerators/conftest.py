"""Tests of the `pjrt` backend on a CPU plugin with 8 devices, the platform `xla`; skipped without one.

    WEFT_TEST_PJRT_PLUGIN=path/to/plugin.so python -m pytest tests/accelerators

`make accelerators` installs plugins and runs these tests on each. A plugin cannot be unloaded, so a
process has one. The default platform of the test process remains the CPU: tests name
`weft.devices("xla")`; where the default platform matters they use `plugin.run_on_plugin`.
"""

import os
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.accelerators.plugin import NUM_DEVICES, PLUGIN
from weft._engine.backends.pjrt import plugins
from weft.sharding import Mesh


def pytest_collection_modifyitems(items):
    """Skip the tests of this folder if there is no plugin."""
    if PLUGIN:
        return
    reason = (
        "WEFT_TEST_PJRT_PLUGIN does not name a CPU plugin of PJRT (make accelerators installs them)"
    )
    for item in items:
        is_here = Path(__file__).parent in item.path.parents
        if is_here and getattr(item.module, "needs_cpu_plugin", True):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def devices():
    """Return the devices of the plugin."""
    return weft.devices("xla")


@pytest.fixture(scope="session")
def mesh(devices):
    """Return a mesh of 4 by 2 devices of the plugin, with the axes `a` and `b`."""
    return Mesh(np.array(devices).reshape(4, 2), ("a", "b"))


if PLUGIN and "xla" not in plugins.registered:  # before a test module reads its devices
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    client_options = {"cpu_device_count": NUM_DEVICES}
    plugins.register_plugin("xla", library_path=PLUGIN, options=client_options, priority=-1)
