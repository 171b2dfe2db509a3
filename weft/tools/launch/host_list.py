"""The hosts that a command line names.

In:   `a:4,b:4`, or `n[1-8]:4`, as Slurm writes lists.
Out:  `LaunchHost`s.
"""

from __future__ import annotations

import re

from weft._engine.processes.launchers import hosts_of, split_hosts
from weft._engine.util.record import record

DEFAULT_SSH = "ssh -o BatchMode=yes"


@record
class LaunchHost:
    """One host of `--hosts`: its name, and how many ranks it runs."""

    name: str
    slots: int


def parse_hosts(text: str) -> tuple[LaunchHost, ...]:
    """Return the hosts that an option names.

    >>> parse_hosts("me@b.org:2,[::1]:3,c")
    (LaunchHost(name='me@b.org', slots=2), LaunchHost(name='::1', slots=3), LaunchHost(name='c', slots=1))
    >>> parse_hosts("n[09-10]:2")
    (LaunchHost(name='n09', slots=2), LaunchHost(name='n10', slots=2))
    """
    hosts: list[LaunchHost] = []
    for item in split_hosts(text):
        names, slots = _parse_item(item.strip())
        hosts += [LaunchHost(name, slots) for name in names]
    if not hosts or text.endswith(","):
        raise ValueError(f"hosts are named as in a:4,b:4, got {text!r}")
    seen: set[str] = set()
    for host in hosts:
        if host.name in seen:
            raise ValueError(
                f"the host {host.name} is named twice; name each once, with all its processes, as in "
                f"{host.name}:2"
            )
        seen.add(host.name)
    return tuple(hosts)


def _parse_item(item: str) -> tuple[list[str], int]:
    address = re.fullmatch(r"\[([0-9a-fA-F:.%]+)\](?::(\w*))?", item)
    if address:
        names, count = [address.group(1)], address.group(2) or "1"
    else:
        text, colon, count = item.partition(":")
        names, count = hosts_of(text) if text else [], count if colon else "1"
    is_named = bool(names) and not any(name.startswith("-") for name in names)
    if not is_named or not count.isdecimal() or int(count) < 1:
        message = f"hosts are named as in a:4,b:4, with a number from 1, got {item!r}"
        raise ValueError(message)
    return names, int(count)
