"""The AMX tile instructions on processors without them: a handler of SIGILL executes them.

In:   `tile_emulator.c`, compiled on first use and kept in weft's cache; a C compiler as `cc`.
Out:  `install()` makes tile instructions work in all threads of this process, created before or after; `counts()` has the
      instructions executed since `reset()`. A process installs the emulator itself, also one started by a test:
      `python -c "from tests.harness import tile_emulator; tile_emulator.install(); ..."`.
Laws: the tiles of a thread behave as on hardware: palette 1 with its limits, faults, ragged shapes and rounding. Other
      illegal instructions and tile instructions that are illegal on hardware go to the previous handler. Enable
      `faulthandler` before `install()`, or call `install()` again.

On a processor with tiles only some of their instructions raise SIGILL, so nothing is emulated there (`obstacle`).
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from weft._engine.util import cache, machine

SOURCE = Path(__file__).with_suffix(".c")
COMPILER = "cc"


@functools.cache
def obstacle() -> str | None:
    """Return why the emulator cannot run here, for the reason of a skipped test; None if it can."""
    if sys.platform != "linux" or machine.architecture() != "x86_64":
        return "tile instructions are emulated on x86-64 Linux only"
    features = machine.cpu_text().split()
    if "amx_tile" in features:
        return "the processor has tile instructions"
    if "avx512bw" not in features:
        return "the emulator needs AVX-512"
    if shutil.which(COMPILER) is None:
        return f"the emulator needs a C compiler as `{COMPILER}`"
    return None


def available() -> bool:
    """Return whether `install` can make tile instructions work in this process."""
    return obstacle() is None


def install() -> None:
    """Handle SIGILL in this process, unless the handler is already set. Raise RuntimeError if the emulator cannot run here."""
    if (reason := obstacle()) is not None:
        raise RuntimeError(f"tile_emulator.install: {reason}. Check `available()` first.")
    if _library().install():
        raise OSError("tile_emulator.install: the system refuses the handler of SIGILL.")


def counts() -> Counter[str]:
    """Return the number of instructions executed in all threads since `reset`, by name."""
    return sum(counts_by_thread(), Counter[str]())


def counts_by_thread() -> list[Counter[str]]:
    """Return the number of instructions by name for each thread that executed any since `reset`; the newest thread is first.

    Counts of finished threads are included.
    """
    library, names = _library(), _names()
    numbers = (ctypes.c_uint64 * len(names))()
    by_thread: list[Counter[str]] = []
    thread = 0
    while library.read_counts(thread, numbers):
        by_thread.append(Counter({name: n for name, n in zip(names, numbers) if n}))
        thread += 1
    return [executed for executed in by_thread if executed]


def reset() -> None:
    """Set all counts to 0; the tiles of threads are not changed. No thread may execute tile instructions meanwhile."""
    _library().reset_counts()


@functools.cache
def _names() -> list[str]:
    library = _library()
    return [library.instruction_name(i).decode() for i in range(library.instruction_count())]


@functools.cache
def _library() -> ctypes.CDLL:
    """Load the emulator; compile it unless the cache has it for this source and processor."""
    source = SOURCE.read_bytes()
    name = cache.key("tile emulator", source, machine.cpu_text())
    data = cache.read(name)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tile_emulator.so")
        if data is None:
            _compile(path)
            cache.write(name, Path(path).read_bytes())
        else:
            Path(path).write_bytes(data)
        library = ctypes.CDLL(path)
    library.instruction_name.restype = ctypes.c_char_p
    library.read_counts.restype = ctypes.c_bool
    return library


def _compile(path: str) -> None:
    options = ["-O2", "-march=native", "-Wall", "-Wextra", "-shared", "-fPIC"]
    result = subprocess.run(
        [COMPILER, *options, str(SOURCE), "-o", path], capture_output=True, text=True
    )
    if result.returncode:
        raise RuntimeError(f"tile_emulator: {COMPILER} fails.\n{result.stderr}")
