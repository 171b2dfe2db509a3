"""The CPU plugin that the tests of this folder use, and processes with it as default platform."""

import os
import subprocess

from tests.harness.processes import run_python

PLUGIN = os.environ.get("WEFT_TEST_PJRT_PLUGIN", "")
NUM_DEVICES = 8


def run_on_plugin(*words, devices=NUM_DEVICES, **variables) -> subprocess.CompletedProcess:
    """Run `python WORDS` in a process whose default platform is `xla`, and return its output as
    text."""
    environment = {
        "PJRT_NAMES_AND_LIBRARY_PATHS": f"xla:{PLUGIN}",
        "WEFT_PLATFORMS": "xla",  # without it, the CPU would replace a plugin that does not load
        "WEFT_NUM_DEVICES": str(devices),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    return run_python(*words, **{**environment, **variables})
