"""The cache of objects on disk: compiled kernels, entries and whole programs.

In:   a key (the text that determines the object) and, on a miss, the object's bytes.
Out:  the bytes, or None. `write` writes immediately, `write_later` after the current call; readers in this process see no difference,
      and all objects are written when the process ends.
Laws: files are written under a temporary name and renamed, so that readers see complete files only; each has a checksum of its
      name and contents, and a file with a wrong checksum counts as missing. Files that other users could have written are never
      read (`_is_safe`), because their contents are executed. Failure to write is not an error. The oldest files are deleted
      from time to time to keep the cache below a limit. Names are digests, so the folders fill evenly, and each is kept
      below its share of the limit separately.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import errno
import functools
import os
import stat
import threading
import time
import warnings
from collections.abc import Callable

from weft._engine.util.config import config
from weft._engine.util.errors import ProcessFailureError
from weft._engine.util.user_code_suspension import suspended

try:
    from _blake2 import blake2b  # the function of `hashlib`, without loading OpenSSL
except ImportError:
    from hashlib import blake2b

_MAGIC = b"weftobj2"


def directory() -> str | None:
    """Return the folder of objects: WEFT_CACHE_DIR, `config.compilation_cache_dir` or ~/.cache/weft; None if the cache is off."""
    named = os.environ.get("WEFT_CACHE_DIR")
    if named is None:
        named = _configure()
    if named == "off":
        return None
    if not named:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        if base.startswith("~"):
            return None
        named = os.path.join(base, "weft")
    return named if _is_safe_folder(named) else None


_safe: dict[str, bool] = {}  # folder -> whether it is safe, for tested folders


def _is_safe_folder(place: str) -> bool:
    """Return whether no other user may write into a folder; true if it does not exist yet."""
    known = _safe.get(place)
    if known is None:
        try:
            facts = os.stat(place)
        except OSError:
            return True
        known = _safe[place] = _is_safe(facts, place)
    return known


def _is_safe(facts: os.stat_result, place: str) -> bool:
    """Return whether only this user and root may have written a file or folder; otherwise warn, once."""
    if not hasattr(os, "geteuid"):
        return True
    if facts.st_uid in (0, os.geteuid()) and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return True
    if not _warned:
        _warned.append(place)
        warnings.warn(
            f"weft does not use {place} to keep compiled programs: another user owns it or may write to it, and its contents "
            f"are executed. Own it and run `chmod -R go-w` on it, or name another folder in WEFT_CACHE_DIR.",
            RuntimeWarning,
            stacklevel=2,
        )
    return False


_warned: list[str] = []


def _configure() -> str | None:

    return config.compilation_cache_dir if config.enable_compilation_cache else "off"


@functools.lru_cache(maxsize=8)
def fingerprint(packages: tuple[str, ...]) -> str:
    """Return a fingerprint of the sources in some packages of weft, so that objects of other versions are never used.

    The fingerprint is cached on disk under the files' metadata, so that the files are read again only if one is replaced.
    """
    facts = [
        f"{path} {at.st_ino} {at.st_size} {at.st_mtime_ns} {at.st_ctime_ns}"
        for package in packages
        for _, path, at in _sources(package)
    ]
    name = blake2b("\n".join(facts).encode(), digest_size=16).hexdigest()
    known = read(name)
    if known is None:
        known = (
            blake2b("\n".join(map(_contents, packages)).encode(), digest_size=16)
            .hexdigest()
            .encode()
        )
        write(name, known)
    return known.decode()


_PACKAGE = os.path.dirname(os.path.dirname(__file__))


@functools.cache
def _sources(package: str) -> list[tuple[str, str, os.stat_result]]:
    """Return (name, path, metadata) of the sources of a package and its subpackages, in order.

    "" is the top folder without its subpackages.
    """
    sources, folders = [], [os.path.join(_PACKAGE, package)]
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".ll")):
                    sources.append((entry.path.removeprefix(_PACKAGE), entry.path, entry.stat()))
                elif package and not entry.name.startswith("__") and entry.is_dir():
                    folders.append(entry.path)
    return sorted(sources)


@functools.cache
def _contents(package: str) -> str:
    """Return a fingerprint of the contents of a package's sources."""
    digest = blake2b(package.encode(), digest_size=16)
    for name, path, at in _sources(package):
        file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            text = os.read(file, at.st_size + 1)
        finally:
            os.close(file)
        digest.update(f"\0{name} {len(text)}\0".encode() + text)
    return digest.hexdigest()


#: the sources that determine the machine code of kernels and routines, including the machine model, FFT plans and formulas
_GENERATOR = ("codegen", "cpython", "util", "ir", "ops/functions")


def key(*parts: str | bytes) -> str:
    """Return the name of the object that the code generator builds from the given texts."""
    digest = blake2b(digest_size=16)
    for part in (fingerprint(_GENERATOR), *parts):
        digest.update((part.encode() if isinstance(part, str) else part) + b"\0")
    return digest.hexdigest()


def digest(data: bytes) -> str:
    """Return a short digest of some bytes, as text."""
    return blake2b(data, digest_size=16).hexdigest()


def token() -> str | None:
    """Return the random identifier stored in the cache folder, equal on all machines that share it; None if the cache is disabled."""
    place = directory()
    if place is None:
        return None
    name = digest(b"which folder this is")
    known = read(name)
    if known is None:
        place = _file(name)
        if place is not None:
            _put(place, os.urandom(8).hex().encode(), os.link)
        known = read(name)  # another process may have been faster
    return None if known is None else known.decode()


def read(name: str) -> bytes | None:
    """Return the contents of object `name`; None if it is missing or damaged."""
    place = _file(name)
    if place is None:
        return None
    make = _waiting.get(place)
    if make is not None:
        return make()
    data = _bytes_of(place)
    at = len(_MAGIC) + _SEAL
    return data[at:] if data[:at] == _head(name, data[at:]) else None


_SEAL = 16  # bytes of the checksum


def _head(name: str, data: bytes) -> bytes:
    """Return the head of a file: a checksum of its name and contents, so that objects cannot be confused."""
    return _MAGIC + blake2b(data, digest_size=_SEAL, key=name.encode()).digest()


def _bytes_of(place: str) -> bytes:
    """Return the contents of a file; empty if it is missing or other users could have written it."""
    try:
        # opening a pipe would block
        file = os.open(
            place, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
        )
    except OSError:
        return b""
    try:
        facts = os.fstat(file)
        return (
            os.read(file, facts.st_size)
            if stat.S_ISREG(facts.st_mode) and _is_safe(facts, place)
            else b""
        )
    except OSError:
        return b""
    finally:
        os.close(file)


def has(name: str) -> bool:
    """Return whether there is an object called `name`."""
    place = _file(name)
    return place is not None and (place in _waiting or os.path.exists(place))


def _file(name: str) -> str | None:
    place = directory()
    folder = None if place is None else os.path.join(place, name[:2])
    return (
        os.path.join(folder, f"{name}.o")
        if folder is not None and _is_safe_folder(folder)
        else None
    )


def write(name: str, data: bytes) -> None:
    """Write an object immediately."""
    place = _file(name)
    if place is not None:
        if place in _waiting:
            flush()
        _put(place, data)


def _put(place: str, data: bytes, move: Callable[[str, str], None] = os.replace) -> None:
    """Write a file under a temporary name, then rename it by `move`, which is `os.link` if it must not replace a file.

    Failures are ignored, except that a full disk is reported once."""
    temporary = f"{place}.{os.getpid()}.{threading.get_ident()}"
    folder, name = os.path.split(place)
    try:
        for needed in (os.path.dirname(folder), folder):
            os.makedirs(needed, 0o700, exist_ok=True)
        with open(temporary, "xb", opener=_private) as file:
            file.write(_head(name[:-2], data) + data)
        move(temporary, place)
    except OSError as error:
        if error.errno in _NO_SPACE:
            _warn_of_full_disk(folder, error)
        return
    finally:
        with contextlib.suppress(OSError):  # missing if it was renamed
            os.unlink(temporary)
    if name[2:4] == "00":  # one in 256 files of this folder, which also suffices in short processes
        _prune(folder, size_limit() // _FOLDERS)


_NO_SPACE = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
_warned_of: set[str] = set()


def _warn_of_full_disk(folder: str, error: OSError) -> None:
    root = os.path.dirname(folder)
    if root in _warned_of:
        return
    _warned_of.add(root)
    warnings.warn(
        f"Compiled programs are not kept on disk: {root}: {error.strerror}. Programs run, and each process compiles them again. "
        "Free space there, or set WEFT_CACHE_DIR to a folder with more.",
        RuntimeWarning,
        stacklevel=2,
    )


def _private(place: str, flags: int) -> int:
    return os.open(place, flags, 0o600)


# ---- delayed writing

_PAUSE_S = 0.02  # by then, the call that compiled an object has usually ended
_waiting: dict[str, Callable[[], bytes | None]] = {}
_lock, _writing = threading.RLock(), threading.RLock()


def write_later(name: str, make: Callable[[], bytes | None]) -> None:
    """Write the object that `make` returns later, in a thread or at the end of the process. None is not written."""
    place = _file(name)
    if place is None:
        return
    with suspended, _lock:
        first = not _waiting
        _waiting[place] = make
    if first:
        with contextlib.suppress(RuntimeError):  # the ending interpreter starts no threads
            _thread.start_new_thread(_write_soon, ())  # does not wait for the thread to begin


def _write_soon() -> None:
    time.sleep(_PAUSE_S)
    flush()


@atexit.register
def flush() -> None:
    """Write all delayed objects."""
    with _writing:
        while True:
            with suspended, _lock:  # other threads add entries
                if not _waiting:
                    return
                # programs before the objects that they read
                place, make = next(reversed(_waiting.items()))
            try:
                data = make()
                if data is not None:
                    _put(place, data)
            except ProcessFailureError:
                raise  # another process failed meanwhile
            except Exception:  # a failure costs only a compilation later
                pass
            with suspended, _lock:
                _waiting.pop(place, None)


def _forget() -> None:
    """Remove all delayed objects in a forked child; its parent writes them."""
    global _lock, _writing
    _lock, _writing = threading.RLock(), threading.RLock()
    _waiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def prune(limit: int | None = None) -> int:
    """Delete the oldest objects if they take more than `limit` bytes on disk, until at most three quarters of it are used.

    The default limit is `size_limit()`. Return the number of deleted bytes.
    """
    part = (size_limit() if limit is None else limit) // _FOLDERS
    return sum([_prune(folder, part) for folder in _folders()])


def _folders() -> list[str]:
    root = directory()
    if root is None or not os.path.isdir(root):
        return []
    with os.scandir(root) as entries:
        return [entry.path for entry in entries if entry.is_dir()]


def size_limit() -> int:
    """Return the maximal size of the cache in bytes: `config.compilation_cache_max_size`, else the limit stored in its folder, else
    1 GiB."""
    configured: int = config.compilation_cache_max_size
    if configured >= 0:
        return configured
    root = directory()
    stored = b"" if root is None else _bytes_of(os.path.join(root, _LIMIT_FILE))
    return int(stored) if stored.isdigit() else _DEFAULT_LIMIT


def store_size_limit(limit: int) -> None:
    """Store the limit of the cache in its folder, for all processes that use the folder and do not configure another limit."""
    root = directory()
    if root is None:
        raise ValueError("the cache is disabled")
    os.makedirs(root, 0o700, exist_ok=True)
    with open(os.path.join(root, _LIMIT_FILE), "w", opener=_private) as file:
        file.write(str(limit))


def stored_files(folder: str | None = None) -> list[tuple[float, int, str]]:
    """Return (time of change, bytes on disk, path) of all files of objects, or of the files in one folder."""
    files = []
    for place in _folders() if folder is None else [folder]:
        with os.scandir(place) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # another process deleted it meanwhile
                    facts = entry.stat()
                    files.append((facts.st_mtime, facts.st_blocks * 512, entry.path))
    return files


def _prune(folder: str, limit: int) -> int:
    files = stored_files(folder)
    total = sum([size for _, size, _ in files])
    return 0 if total <= limit else delete_oldest(files, total - limit * 3 // 4)


def delete_oldest(files: list[tuple[float, int, str]], nbytes: int) -> int:
    """Delete the oldest of `files` until at least `nbytes` bytes are free; return the number of deleted bytes."""
    deleted = 0
    for _, size, place in sorted(files):
        if deleted >= nbytes:
            break
        with contextlib.suppress(OSError):
            os.unlink(place)
            deleted += size
    return deleted


_FOLDERS = 256
_DEFAULT_LIMIT = 1 << 30
_LIMIT_FILE = "limit"
