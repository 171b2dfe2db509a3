"""Which kind of machine this is: a name, from what the system says of its first CPU.

In:   /proc/cpuinfo, or the environment variable WEFT_MACHINE_MODEL.
Out:  `name()`, under which `util.machine_model` has the facts and thresholds, and part of the key of everything that is compiled.
Laws: a program that comes from disk needs the name and no more, so this module stays small.
"""

from __future__ import annotations

import functools
import os


def name() -> str:
    """The name of this machine's model; WEFT_MACHINE_MODEL names another one."""
    return os.environ.get("WEFT_MACHINE_MODEL") or name_of(cpu_text())


@functools.cache
def cpu_text() -> str:
    """What the system says of the first CPU, without what changes from moment to moment; nothing if it says nothing."""
    try:
        with open("/proc/cpuinfo") as file:
            first = file.read(1 << 14).split("\n\n")[0]
    except OSError:
        return ""
    wanted = ("vendor_id", "cpu family", "model", "stepping", "flags", "CPU implementer", "CPU part")
    return "\n".join([line for line in first.split("\n") if line.startswith(wanted)])


def name_of(text: str) -> str:
    r"""The name of the model of a CPU.

    >>> name_of("vendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t\t: avx avx2")
    'zen3'
    """
    facts = {key.strip(): value.strip() for key, _, value in [line.partition(":") for line in text.split("\n")]}
    vendor, family, wide = facts.get("vendor_id"), facts.get("cpu family"), " avx512f" in text
    if "CPU implementer" in facts:
        return "neoverse"
    if vendor == "AuthenticAMD" and family in ("25", "26"):
        return "zen5" if family == "26" else "zen4" if wide else "zen3"
    return "intel-avx512" if vendor == "GenuineIntel" and wide else "avx2" if " avx2" in text else "generic"
