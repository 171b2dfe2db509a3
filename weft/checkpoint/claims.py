"""The claim of a group of processes on a folder of checkpoints: a fencing token.

In:   a folder of steps, the processes that save there.
Out:  a `Claim`, which can be tested.
Laws: `weft_claim.N` is the file of token N, with the identity of the group that claimed the folder. A token has one owner, because its
      file is created exclusively. The owner then removes the files of smaller tokens, which ends their claims. A claim holds while its
      file exists.
      A single process is a group too; after `weft.distributed.shrink` the survivors are a new group.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft._engine import processes
from weft._engine.util.errors import CheckpointSupersededError, describe
from weft._engine.util.record import record
from weft.checkpoint import layout

_FILE = re.compile(re.escape(layout.CLAIM) + r"(\d+)")


@record
class Claim:
    """The claim of token `token` on the folder `root`; `identity` describes its owner."""

    root: Path
    token: int
    identity: str

    @property
    def file(self) -> Path:
        """The file that exists while the claim holds."""
        return self.root / f"{layout.CLAIM}{self.token}"

    def is_held(self) -> bool:
        """Return whether no other group has claimed the folder since."""
        try:
            # unlike `exists`, opening the file queries the server of a network file system
            self.file.open("rb").close()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESTALE):
                return False
            raise
        return True

    def check(self, where: Any = None) -> None:
        """Raise CheckpointSupersededError if the claim no longer holds; `where` is the user's line."""
        if self.is_held():
            return
        newest = _newest(self.root)
        ours = f"token {self.token}: {_words(json.loads(self.identity))}"
        if newest > self.token:
            fact = "another group of processes has claimed this folder of checkpoints."
            owner = f"token {newest}: {_describe_owner(self.root, newest)}"
        else:
            fact = "the claim of this group on its folder of checkpoints was removed."
            owner = f"no group; {self.file.name} is gone"
        raise CheckpointSupersededError(
            describe(
                "checkpoint",
                fact,
                [("folder", str(self.root)), ("claimed by", owner), ("this group", ours)],
                where,
                "Only the group that claimed a folder last saves there. This call left its steps unchanged.",
                "End this program if the other one replaced it; if both are to run, use separate folders.",
            )
        )


class Claims:
    """The claims of this process's group, by folder."""

    def __init__(self) -> None:
        self._group: tuple[int, Any] = (-1, None)
        self._groups = -1
        self._held: dict[Path, Claim] = {}

    def enter_group(self) -> None:
        """Detect a change of this process's group; a new group holds no claims. Every process calls this before it saves."""
        group = (os.getpid(), processes.current())
        if group != self._group:
            self._group, self._held, self._groups = group, {}, self._groups + 1

    def acquire(self, root: Path, where: Any = None) -> Claim:
        """Return the group's claim on an existing folder. The first call for a folder claims it; later ones check the claim.

        Raises CheckpointSupersededError if another group has claimed the folder since, OSError if the claim cannot be written.
        """
        self.enter_group()
        claim = self._held.get(root)
        if claim is None:
            self._held[root] = _take(root, _identity(self._group[1], self._groups))
        elif not claim.is_held():
            self._held[root] = _renew(claim, where)
        return self._held[root]

    def check(self, root: Path) -> None:
        """Raise CheckpointSupersededError if this process has claimed a folder and another group has done so since."""
        claim = self._held.get(root)
        if claim is not None and _newest(root) > claim.token:
            claim.check()


#: the claims of this process
own_claims = Claims()


def _take(root: Path, identity: str) -> Claim:
    """Claim the folder with the next free token."""
    token = _newest(root)
    while True:
        claim = Claim(root, token := token + 1, identity)
        if not _create(claim):
            continue
        if (newest := _newest(root)) == token:
            break
        # another group has a greater token, and its predecessors are removed
        claim.file.unlink(missing_ok=True)
        token = newest
    _end_older(claim)
    return claim


def _renew(lost: Claim, where: Any) -> Claim:
    """Claim a folder again after its claim files were removed. Raises CheckpointSupersededError if a greater token exists, or existed."""
    claim = Claim(lost.root, lost.token + 1, lost.identity)
    if _newest(lost.root) > lost.token or not _create(claim):
        lost.check(where)
    if _newest(lost.root) > claim.token:
        claim.file.unlink(missing_ok=True)
        lost.check(where)
    _end_older(claim)
    return claim


def _create(claim: Claim) -> bool:
    """Create the file of a claim and sync it to disk; return False if it exists."""
    try:
        handle = os.open(claim.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return False
    try:
        with open(handle, "w", encoding="utf-8") as opened:
            opened.write(claim.identity)
            opened.flush()
            os.fsync(opened.fileno())
    except BaseException:
        claim.file.unlink(missing_ok=True)
        raise
    layout.sync_folder(claim.root)
    return True


def _end_older(claim: Claim) -> None:
    for token in _tokens(claim.root):
        if token < claim.token:
            (claim.root / f"{layout.CLAIM}{token}").unlink(missing_ok=True)
    layout.sync_folder(claim.root)


def _tokens(root: Path) -> list[int]:
    return [int(match[1]) for name in os.listdir(root) if (match := _FILE.fullmatch(name))]


def _newest(root: Path) -> int:
    return max(_tokens(root), default=0)


def _identity(shared: Any, group: int) -> str:
    """Return the identity of this process's group, as JSON."""
    about: dict[str, Any] = {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "program": sys.argv[0] if sys.argv else "",
        "job": _job(shared),
        "group": group,
        "processes": 1 if shared is None else shared.size,
        "time": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }
    return json.dumps(about)


def _job(shared: Any) -> str:
    if number := os.environ.get("SLURM_JOB_ID"):
        return f"Slurm job {number}"
    return "" if shared is None else f"coordinator {shared.client.address}"


def _describe_owner(root: Path, token: int) -> str:
    """Return a description of the owner of a token."""
    with contextlib.suppress(OSError, ValueError):
        about = json.loads((root / f"{layout.CLAIM}{token}").read_text(encoding="utf-8"))
        if isinstance(about, dict):
            return _words(about)
    return "an owner whose file cannot be read"


def _words(about: Mapping[str, Any]) -> str:
    size = about.get("processes", 1)
    parts = [
        f"{about.get('program') or 'a program'} on {about.get('host')}, process {about.get('process')}",
        f"the first of {size}" if size != 1 else "",
        about.get("job"),
        f"group {about['group']}" if about.get("group") else "",
        f"since {about.get('time')}",
    ]
    return ", ".join(part for part in parts if part)
