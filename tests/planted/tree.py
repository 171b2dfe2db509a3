"""Copies of the working tree with planted faults.

In:   the working tree, changes with a `path` and `apply(text)`.
Out:  `copy_tree`, and `plant`, a context with the fault in one file of the copy.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]


class PlantedChange(Protocol):
    """A change of one file."""

    @property
    def path(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def note(self) -> str: ...
    def apply(self, text: str) -> str: ...


def tracked_files() -> list[str]:
    """Return the files of the working tree that Git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.check_output(command, cwd=ROOT, text=True).split("\0")
    return sorted(name for name in set(names) if name and (ROOT / name).is_file())


def tree_id() -> str:
    """Return a hash of the sources of the package and of the tests."""
    hashed = hashlib.sha256()
    for name in tracked_files():
        if name.startswith(("weft/", "tests/", "benchmarks/replay_corpus.py")):
            hashed.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return hashed.hexdigest()[:16]


def copy_tree(folder: Path) -> Path:
    """Copy the working tree to a new folder."""
    for name in tracked_files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    return folder


@contextlib.contextmanager
def plant(tree: Path, change: PlantedChange) -> Iterator[None]:
    """Change one file of a copy for the duration of a block; raise ValueError if the change does
    not fit the file."""
    file = tree / change.path
    original, status = file.read_text(), file.stat()
    file.write_text(change.apply(original))
    later = (
        status.st_mtime_ns + 10_000_000_000
    )  # compiled files record the modification time of their source
    os.utime(file, ns=(status.st_atime_ns, later))
    try:
        yield
    finally:
        file.write_text(original)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
