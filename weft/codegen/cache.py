"""Objects on disk: compiled kernels and entries that outlive the process.

In:   a key (the text that determines the object) and, when missing, the object's bytes.
Out:  the bytes, or None.
Laws: files are written under a temporary name and renamed, so that a reader sees all or nothing; each carries a
      checksum, and a file that fails it counts as missing. Failure to write is not an error: the cache is only a cache.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from pathlib import Path

_MAGIC = b"weftobj1"


def directory() -> Path | None:
    """Where objects are kept: WEFT_CACHE_DIR, `config.compilation_cache_dir` or ~/.cache/weft; None is off."""
    named = os.environ.get("WEFT_CACHE_DIR")
    if named is None:
        named = _configured()
    if named == "off":
        return None
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "weft"
    except RuntimeError:
        return None


def _configured() -> str | None:
    from weft.util.config import config

    return config.compilation_cache_dir if config.enable_compilation_cache else "off"


@functools.lru_cache(maxsize=1)
def generator() -> str:
    """A fingerprint of this code generator: objects of another version of it are never used."""
    here = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted([*here.glob("*.py"), *here.glob("*.ll")]):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def key(*parts: str) -> str:
    """The name of an object determined by some texts."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (generator(), *parts):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def read(name: str) -> bytes | None:
    """The object called `name`, if it is there and whole."""
    place = directory()
    if place is None:
        return None
    try:
        data = (place / name[:2] / f"{name}.o").read_bytes()
    except OSError:
        return None
    body, check = data[len(_MAGIC) + 16:], data[len(_MAGIC): len(_MAGIC) + 16]
    if not data.startswith(_MAGIC) or hashlib.blake2b(body, digest_size=16).digest() != check:
        return None
    return body


def has(name: str) -> bool:
    """Whether there is an object called `name`."""
    place = directory()
    return place is not None and (place / name[:2] / f"{name}.o").exists()


def write(name: str, data: bytes) -> None:
    """Keep an object."""
    place = directory()
    if place is None:
        return
    folder = place / name[:2]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + hashlib.blake2b(data, digest_size=16).digest() + data)
        os.replace(temporary, folder / f"{name}.o")
    except OSError:
        return
