"""What pyproject.toml cannot state: an installation from the sources stops on other systems than Linux."""

import sys

if not sys.platform.startswith("linux"):
    sys.exit(
        f"weft runs on Linux, and this Python runs on {sys.platform}: use a Linux container, a virtual machine, "
        "or on Windows the Windows Subsystem for Linux (WSL 2)."
    )

from setuptools import setup  # noqa: E402

setup()
