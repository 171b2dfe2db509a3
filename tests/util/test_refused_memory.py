"""A limit of the address space (`ulimit -v`): MemoryErrors state the requested size and the fix."""

import errno
import os
import subprocess
import sys

import pytest

from weft._engine.codegen.toolchain import llvm_c
from weft._engine.util.errors import OutOfMemoryError, is_refusal, limit_text, refuse

resource = pytest.importorskip("resource")

#: programs that allocate memory; each runs in a process whose address space may grow by this many
#: MiB
PROGRAMS = {
    "array": ("wnp.ones(1 << 28) + 1", 400, "1.0 GiB"),
    "temporary": (
        "weft.jit(lambda x: (wnp.sin(x)[:, None] * wnp.cos(x)[None]).sort(0).sum())(wnp.ones(1 << 14))",
        400,
        "2.0 GiB",
    ),
    "transfer": ("weft.device_put(np.ones(1 << 26, np.float32))", 300, "256"),
    "scan": (
        "weft.lax.scan(lambda c, _: (c * 2, c), wnp.ones(1 << 16), None, length=1 << 12)",
        400,
        "1.0 GiB",
    ),
    "linear algebra": ("wnp.linalg.svd(wnp.ones((1 << 13, 1 << 13)))", 400, "256.0 MiB"),
}

CHILD = """
import resource, sys
import numpy as np, weft, weft.numpy as wnp
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[2]) << 20), resource.RLIM_INFINITY))
try:
    weft.block_until_ready(eval(sys.argv[1]))
except MemoryError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the address space from /proc")
@pytest.mark.parametrize("name", PROGRAMS)
def test_refused_memory_is_a_memory_error(name, tmp_path):
    program, room, size = PROGRAMS[name]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, program, str(room)],
        capture_output=True,
        text=True,
        timeout=300,
        env={"WEFT_CACHE_DIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path), "PATH": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.startswith(("OutOfMemoryError", "MemoryError")) and size in done.stdout
    if "OutOfMemoryError" in done.stdout:
        assert "ulimit -v" in done.stdout


def test_a_compiler_that_does_not_fit_is_a_memory_error(monkeypatch):
    def refuse(*_, **__):
        raise OSError("libllvmlite.so: failed to map segment from shared object")

    monkeypatch.setattr(llvm_c.ctypes, "PyDLL", refuse)
    with pytest.raises(
        OutOfMemoryError, match=rf"{os.path.getsize(llvm_c.place())} bytes for LLVM"
    ):
        llvm_c._load(llvm_c.place())


def test_refusals_of_the_system_are_told_from_other_errors():
    assert is_refusal(OSError(errno.ENOMEM, "Cannot allocate memory"))
    assert is_refusal(OSError("libx.so: failed to map segment from shared object"))
    assert not is_refusal(
        OSError("libx.so: cannot open shared object file: No such file or directory")
    )
    assert not is_refusal(OSError(errno.ENOENT, "No such file or directory"))


def test_errors_have_the_size_the_purpose_and_advice():
    error = refuse(12345, "compiled code")
    assert isinstance(error, OutOfMemoryError) and isinstance(error, MemoryError)
    assert "12345 bytes for compiled code" in str(error) and (
        "ulimit -v" in str(error) or "Free memory" in str(error)
    )
    before = resource.getrlimit(resource.RLIMIT_AS)
    assert ("ulimit -v" in limit_text()) == (before[0] != resource.RLIM_INFINITY)
