"""The hosts that a command line names.

In:   `a:4,b:4`.
Out:  `HostSpec`s.
"""

from __future__ import annotations

from weft.util.record import record

DEFAULT_SSH = "ssh -o BatchMode=yes"


@record
class HostSpec:
    """One host of `--hosts`: its name, and how many ranks it runs."""

    name: str
    slots: int


def parse_hosts(text: str) -> tuple[HostSpec, ...]:
    """Return the hosts that an option names.

    >>> parse_hosts("a:4,me@b.org:2,[::1]:3,c")[1:]
    (HostSpec(name='me@b.org', slots=2), HostSpec(name='::1', slots=3), HostSpec(name='c', slots=1))
    """
    hosts = []
    for item in text.split(","):
        name, colon, count = item.strip().rpartition(":")
        if not colon or count.endswith("]"):
            name, count = item.strip(), "1"
        name = name.removeprefix("[").removesuffix("]")
        if not name or name.startswith("-") or not count.isdecimal() or int(count) < 1:
            raise ValueError(f"hosts are named as in a:4,b:4, with a number from 1, got {item!r}")
        hosts.append(HostSpec(name, int(count)))
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the host {name} is named twice")
    return tuple(hosts)
