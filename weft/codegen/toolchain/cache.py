"""Objects on disk: compiled kernels, entries and whole programs that outlive the process.

In:   a key (the text that determines the object) and, when missing, the object's bytes.
Out:  the bytes, or None. `write` writes at once, `later` after the current call: readers in this process see no difference, and
      everything is written when the process ends.
Laws: files are written under a temporary name and renamed, so that a reader sees all or nothing; each carries a
      checksum, and a file that fails it counts as missing. Failure to write is not an error. The cache is kept below a limit by
      deleting the oldest files now and then. Names are digests, so the folders fill evenly: each is kept below its share of
      the limit by itself.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable

try:
    from _blake2 import blake2b  # what `hashlib` hands out, after it has loaded OpenSSL
except ImportError:
    from hashlib import blake2b

_MAGIC = b"weftobj1"


def directory() -> str | None:
    """Where objects are kept: WEFT_CACHE_DIR, `config.compilation_cache_dir` or ~/.cache/weft; None is off."""
    named = os.environ.get("WEFT_CACHE_DIR")
    if named is None:
        named = _configured()
    if named == "off":
        return None
    if named:
        return named
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return None if base.startswith("~") else os.path.join(base, "weft")


def _configured() -> str | None:
    from weft.util.config import config

    return config.compilation_cache_dir if config.enable_compilation_cache else "off"


@functools.lru_cache(maxsize=8)
def fingerprint(rooms: tuple[str, ...]) -> str:
    """A fingerprint of the sources in some rooms of weft: what another version of them made is never used.

    It is kept on disk under what the system says of the files, so that they need not be read again until one is replaced.
    """
    facts = [f"{path} {at.st_ino} {at.st_size} {at.st_mtime_ns} {at.st_ctime_ns}" for room in rooms for _, path, at in _sources(room)]
    name = blake2b("\n".join(facts).encode(), digest_size=16).hexdigest()
    known = read(name)
    if known is None:
        known = blake2b("\n".join(map(_contents, rooms)).encode(), digest_size=16).hexdigest().encode()
        write(name, known)
    return known.decode()


_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))


@functools.cache
def _sources(room: str) -> list[tuple[str, str, os.stat_result]]:
    """The sources of a room and the rooms in it, in order: name, path, and what the system says of them. "" is the package's
    own folder, without its rooms."""
    found, folders = [], [os.path.join(_PACKAGE, room)]
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".ll")):
                    found.append((entry.path.removeprefix(_PACKAGE), entry.path, entry.stat()))
                elif room and entry.name != "__pycache__" and entry.is_dir():
                    folders.append(entry.path)
    return sorted(found)


@functools.cache
def _contents(room: str) -> str:
    """A fingerprint of the sources of a room, all of which are read."""
    digest = blake2b(room.encode(), digest_size=16)
    for name, path, at in _sources(room):
        file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            text = os.read(file, at.st_size + 1)
        finally:
            os.close(file)
        digest.update(f"\0{name} {len(text)}\0".encode() + text)
    return digest.hexdigest()


#: the sources that decide what becomes of a kernel, the machine model among them
_GENERATOR = ("codegen", "util")


def key(*parts: str | bytes) -> str:
    """The name of what the code generator makes of some texts."""
    digest = blake2b(digest_size=16)
    for part in (fingerprint(_GENERATOR), *parts):
        digest.update((part.encode() if isinstance(part, str) else part) + b"\0")
    return digest.hexdigest()


def read(name: str) -> bytes | None:
    """The object called `name`, if it is there and whole."""
    place = _file(name)
    if place is None:
        return None
    make = _waiting.get(place)
    if make is not None:
        return make()
    try:
        with open(place, "rb") as file:
            data = file.read()
    except OSError:
        return None
    body, check = data[len(_MAGIC) + 16:], data[len(_MAGIC): len(_MAGIC) + 16]
    if not data.startswith(_MAGIC) or blake2b(body, digest_size=16).digest() != check:
        return None
    return body


def has(name: str) -> bool:
    """Whether there is an object called `name`."""
    place = _file(name)
    return place is not None and (place in _waiting or os.path.exists(place))


def _file(name: str) -> str | None:
    place = directory()
    return None if place is None else os.path.join(place, name[:2], f"{name}.o")


def write(name: str, data: bytes) -> None:
    """Keep an object."""
    place = _file(name)
    if place is not None:
        if place in _waiting:
            flush()
        _put(place, data)


def _put(place: str, data: bytes) -> None:
    temporary = f"{place}.{os.getpid()}.{threading.get_ident()}"
    folder, name = os.path.split(place)
    try:
        os.makedirs(folder, exist_ok=True)
        with open(temporary, "xb") as file:
            file.write(_MAGIC + blake2b(data, digest_size=16).digest() + data)
        os.replace(temporary, place)
    except OSError:
        return
    if name[2:4] == "00":                    # one in 256 of this folder: often enough, in short-lived processes too
        _prune(folder, _limit() // _FOLDERS)


# ---- what is to be written

_PAUSE_S = 0.02     # by then the call that compiled something is mostly over
_waiting: dict[str, Callable[[], bytes | None]] = {}
_lock, _writing = threading.Lock(), threading.RLock()


def later(name: str, make: Callable[[], bytes | None]) -> None:
    """Keep the object that `make` gives, soon: a thread makes and writes it, or the end of the process does. None is not kept."""
    place = _file(name)
    if place is None:
        return
    with _lock:
        first = not _waiting
        _waiting[place] = make
    if first:
        with contextlib.suppress(RuntimeError):     # the interpreter ends, and starts no thread
            _thread.start_new_thread(_write_soon, ())    # nobody waits for it, not even for its beginning


def _write_soon() -> None:
    time.sleep(_PAUSE_S)
    flush()


@atexit.register
def flush() -> None:
    """Write what waits to be written."""
    with _writing:
        while waiting := list(_waiting.items()):    # a copy: other threads add to it
            place, make = waiting[-1]               # programs before the objects that they read
            with contextlib.suppress(Exception):    # the cache is only a cache
                data = make()
                if data is not None:
                    _put(place, data)
            with _lock:
                _waiting.pop(place, None)


def _forget() -> None:
    """A forked child leaves what waits to its parent, whose threads it does not have."""
    global _lock, _writing
    _lock, _writing = threading.Lock(), threading.RLock()
    _waiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def prune(limit: int | None = None) -> int:
    """Delete the objects written longest ago until at most three quarters of `limit` bytes of disk are taken, if more are.

    The limit is `config.compilation_cache_max_size`, 1 GiB if that is negative. Gives the number of bytes deleted.
    """
    root = directory()
    if root is None or not os.path.isdir(root):
        return 0
    part = (_limit() if limit is None else limit) // _FOLDERS
    with os.scandir(root) as folders:
        return sum([_prune(folder.path, part) for folder in folders])


def _limit() -> int:
    from weft.util.config import config

    given: int = config.compilation_cache_max_size
    return given if given >= 0 else _DEFAULT_LIMIT


def _prune(folder: str, limit: int) -> int:
    found, total, deleted = [], 0, 0
    with os.scandir(folder) as files:
        for file in files:
            try:
                facts = file.stat()
            except OSError:
                continue                          # another process was faster
            found.append((facts.st_mtime, facts.st_blocks * 512, file.path))
            total += facts.st_blocks * 512
    if total <= limit:
        return 0
    for _, size, place in sorted(found):
        if total - deleted <= limit * 3 // 4:
            break
        try:
            os.unlink(place)
        except OSError:
            continue
        deleted += size
    return deleted


_FOLDERS = 256
_DEFAULT_LIMIT = 1 << 30
