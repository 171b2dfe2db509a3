"""The kind of this machine: its architecture and the name of its machine model.

In:   the system's name of the architecture and /proc/cpuinfo, or the environment variable WEFT_MACHINE_MODEL.
Out:  `name()`, the name of a model in `util.machine_model`, which is part of the cache key of all compiled objects.
Laws: the architecture is tested first, because an emulator may show the /proc/cpuinfo of its host. A program that is loaded from
      disk needs only the name, so this module is small.
"""

from __future__ import annotations

import functools
import os
import platform

#: numbers of the models Sapphire Rapids and Emerald Rapids, of family 6
_SAPPHIRE_RAPIDS = ("143", "207")


def name() -> str:
    """Return the name of this machine's model, or WEFT_MACHINE_MODEL if it is set."""
    return os.environ.get("WEFT_MACHINE_MODEL") or name_of(cpu_text(), architecture())


def architecture() -> str:
    """Return what `platform.machine()` returns, without importing `platform` where the system call exists."""
    if hasattr(os, "uname"):
        return os.uname().machine

    return platform.machine()


@functools.cache
def cpu_text() -> str:
    """Return the constant lines of /proc/cpuinfo about the first CPU; empty if there is no such file."""
    try:
        with open("/proc/cpuinfo") as file:
            first = file.read(1 << 14).split("\n\n")[0]
    except OSError:
        return ""
    constant = (
        "vendor_id",
        "cpu family",
        "model",
        "stepping",
        "flags",
        "CPU implementer",
        "CPU part",
        "Features",
    )
    return "\n".join([line for line in first.split("\n") if line.startswith(constant)])


def name_of(text: str, architecture: str) -> str:
    r"""Return the name of a CPU's model.

    >>> name_of("vendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t\t: avx avx2", "x86_64")
    'zen3'
    """
    if architecture.lower() in ("aarch64", "arm64"):
        return "neoverse"
    if architecture.lower() not in ("x86_64", "amd64"):
        return "generic"
    facts = {
        key.strip(): value.strip()
        for key, _, value in [line.partition(":") for line in text.split("\n")]
    }
    vendor, family, has_avx512 = facts.get("vendor_id"), facts.get("cpu family"), " avx512f" in text
    if vendor == "AuthenticAMD" and family in ("25", "26"):
        return "zen5" if family == "26" else "zen4" if has_avx512 else "zen3"
    if vendor == "GenuineIntel" and has_avx512:
        return "sapphire-rapids" if facts.get("model") in _SAPPHIRE_RAPIDS else "intel-avx512"
    return "avx2" if " avx2" in text else "generic"
